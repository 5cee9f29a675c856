//! Parses compound commands: loops, branches, functions and `[[`. Their parts are read as simple commands. The words of
//! `for`, `case` and `function` become simple commands of these names.

use windlass_core::shell::{Simple, Word};

use super::{LineReader, ListEnd, ReadResult, of_words};

impl LineReader<'_, '_> {
    pub(super) fn keyword(&mut self, word: &str) -> ReadResult<()> {
        match word {
            "if" | "while" | "until" | "{" => self.compound += 1,
            "fi" | "done" | "}" => self.compound = self.compound.saturating_sub(1),
            // The exit status is inverted, so it is unknown whether `cd` succeeded.
            "!" => {
                self.blanks();
                if self.reserved().is_none() && self.rest().starts_with("cd") {
                    self.dirs = None;
                }
            }
            "for" | "select" => return self.for_loop(),
            "case" => return self.case(),
            "function" => {
                self.blanks();
                let name = self.word()?;
                self.blanks();
                if self.take("(") {
                    self.blanks();
                    if !self.take(")") {
                        return Err("the header of a function cannot be parsed");
                    }
                }
                self.dirs = None;
                return self.emit(of_words([Word::literal("function"), name]));
            }
            "[[" => return self.double_bracket(),
            "coproc" => return Err("`coproc` cannot be followed"),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn for_loop(&mut self) -> ReadResult<()> {
        self.compound += 1;
        self.blanks();
        if self.take("((") {
            self.arithmetic()?;
            return self.emit_arithmetic();
        }
        let name = self.word()?;
        if !name.known {
            return Err("a loop has no fixed variable name");
        }
        let mut simple = of_words([Word::literal("for"), name]);
        self.blanks();
        while self.take("\n") {
            self.blanks();
        }
        if self.reserved() == Some("in") {
            self.at += 2;
            loop {
                self.blanks();
                match self.peek() {
                    None | Some('\n' | ';') => break,
                    Some('&' | '|' | '(' | ')') => return Err("a loop is not closed"),
                    Some('<' | '>') if !self.rest()[1..].starts_with('(') => {
                        return Err("a loop is not closed");
                    }
                    Some(_) => simple.words.push(self.word()?),
                }
            }
        }
        self.emit(simple)
    }

    pub(super) fn case(&mut self) -> ReadResult<()> {
        self.compound += 1;
        self.deeper()?;
        self.blanks();
        let word = self.word()?;
        self.emit(of_words([Word::literal("case"), word]))?;
        self.space()?;
        if self.reserved() != Some("in") {
            return Err("`case` has no `in`");
        }
        self.at += 2;
        loop {
            self.space()?;
            if self.reserved() == Some("esac") {
                self.at += 4;
                break;
            }
            self.take("(");
            loop {
                self.blanks();
                let before = self.at;
                self.word()?;
                self.blanks();
                if self.take(")") {
                    break;
                }
                if !self.take("|") || self.at == before {
                    return Err("a pattern of `case` does not close");
                }
            }
            self.list(ListEnd::Arm)?;
        }
        self.compound = self.compound.saturating_sub(1);
        self.shallower();
        Ok(())
    }

    pub(super) fn space(&mut self) -> ReadResult<()> {
        loop {
            self.blanks();
            if !self.take("\n") {
                return Ok(());
            }
            self.read_here_documents()?;
        }
    }

    /// `[[ … ]]`: words are not split in it, and `<`, `>`, `&&` and `||` are operators of the condition.
    pub(super) fn double_bracket(&mut self) -> ReadResult<()> {
        self.found.starts.push(self.at - 2);
        let mut simple = of_words([Word::literal("[[")]);
        loop {
            while self.take(" ") || self.take("\t") || self.take("\n") || self.take("\\\n") {}
            let c = self.peek().ok_or("`[[` does not close")?;
            if matches!(c, '&' | '|' | '<' | '>' | '(' | ')' | ';')
                && !self.rest().starts_with("<(")
            {
                if c == ';' {
                    return Err("`[[` does not close");
                }
                self.at += 1;
                simple.words.push(Word::literal(c));
                continue;
            }
            let begin = self.at;
            let word = self.word()?;
            if &self.src[begin..self.at] == "]]" {
                break;
            }
            simple.words.push(word);
        }
        self.emit(simple)
    }

    /// A function header `name ()`; the body is then read as commands.
    pub(super) fn function(&mut self, simple: Simple) -> ReadResult<()> {
        self.at += 1;
        self.blanks();
        if !self.take(")") {
            return Err("unexpected parenthesis");
        }
        // The grammar does not count the function name as a command.
        self.found.starts.pop();
        self.dirs = None;
        let name = simple.words.into_iter().next().unwrap_or_default();
        self.emit(of_words([Word::literal("function"), name]))
    }
}
