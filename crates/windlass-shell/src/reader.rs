//! The parser of this crate: splits a line into simple commands as bash does. Unknown syntax is refused; the parser never
//! guesses where a command ends.

mod compound;
mod redirect;

use windlass_core::shell::{Assign, ChangedDir, Simple, Word};

use crate::{MAX_COMMANDS, MAX_DEPTH, read_at, wrappers};

/// The maximum number of here-documents in one line.
const MAX_HERE_DOCUMENTS: usize = 8;

/// A result, or the reason why the line cannot be parsed.
pub(crate) type ReadResult<T> = Result<T, &'static str>;

/// The commands of a line.
#[derive(Default)]
pub(crate) struct ParsedLine {
    pub(crate) commands: Vec<Simple>,
    /// The offsets at which the commands of the line itself begin, for the comparison with the grammar.
    pub(crate) starts: Vec<usize>,
    pub(crate) unclear: Option<String>,
    pub(crate) doubt: Option<String>,
}

pub(crate) fn read(text: &str, depth: usize) -> ReadResult<ParsedLine> {
    let mut found = ParsedLine::default();
    let mut reader = LineReader {
        src: text,
        at: 0,
        end: text.len(),
        depth,
        found: &mut found,
        odd: false,
        dirs: Some(Vec::new()),
        here_documents: Vec::new(),
        compound: 0,
        piped: false,
        changed: None,
    };
    reader.list(ListEnd::End)?;
    if !reader.here_documents.is_empty() {
        return Err("a here-document has no text");
    }
    Ok(found)
}

/// The token that ends a list of commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListEnd {
    End,
    Parenthesis,
    /// `;;` or `esac`, at the end of an arm of `case`.
    Arm,
}

/// A here-document whose text begins with the next line.
struct HereDocument {
    mark: String,
    quoted: bool,
    /// `<<-`: leading tabs are removed from the lines.
    tabs: bool,
    /// The index of the command whose input it is; `usize::MAX` until that is known.
    command: usize,
}

pub(crate) struct LineReader<'a, 'b> {
    pub(crate) src: &'a str,
    pub(crate) at: usize,
    pub(crate) end: usize,
    depth: usize,
    found: &'b mut ParsedLine,
    /// The current command contains an expansion that may do more than produce text.
    pub(crate) odd: bool,
    dirs: Option<Vec<ChangedDir>>,
    here_documents: Vec<HereDocument>,
    /// The number of `if`, `while`, `for`, `case` and `{` that are open in this list.
    compound: usize,
    piped: bool,
    /// The directory of the last command, if that was a plain `cd`.
    changed: Option<Word>,
}

impl<'a> LineReader<'a, '_> {
    pub(crate) fn rest(&self) -> &'a str {
        &self.src[self.at..self.end]
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(crate) fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    pub(crate) fn until(&mut self, end: char) -> ReadResult<&'a str> {
        let (text, _) = self
            .rest()
            .split_once(end)
            .ok_or("its quotes do not close")?;
        self.at += text.len() + end.len_utf8();
        Ok(text)
    }

    pub(crate) fn doubt(&mut self, why: &str) {
        self.found.doubt.get_or_insert_with(|| why.to_owned());
    }

    pub(crate) fn deeper(&mut self) -> ReadResult<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err("its commands are nested too deeply")
        } else {
            Ok(())
        }
    }

    pub(crate) fn shallower(&mut self) {
        self.depth -= 1;
    }

    /// Parses a nested list, such as a command substitution: a change of directory does not last, and its here-documents
    /// are separate.
    pub(crate) fn scope(&mut self, stop: ListEnd) -> ReadResult<()> {
        let begin = self.at;
        let here_documents = std::mem::take(&mut self.here_documents);
        self.subshell(stop)?;
        if !self.here_documents.is_empty() {
            return Err("a here-document has no text");
        }
        // If a line ends inside a nested command, shells differ about where the text of a here-document begins.
        if !here_documents.is_empty() && self.src[begin..self.at].contains('\n') {
            return Err("a line ends between a here-document and its text");
        }
        self.here_documents = here_documents;
        Ok(())
    }

    /// Parses a list that runs in a subshell, so that it does not affect the commands after it.
    fn subshell(&mut self, stop: ListEnd) -> ReadResult<()> {
        self.deeper()?;
        let dirs = self.dirs.clone();
        let outer = (self.compound, self.piped, self.odd, self.changed.take());
        (self.compound, self.piped, self.odd) = (0, false, false);
        self.list(stop)?;
        (self.compound, self.piped, self.odd, self.changed) = outer;
        self.dirs = dirs;
        self.shallower();
        Ok(())
    }

    /// Parses text that a command would run, and adds its commands.
    pub(crate) fn text(&mut self, text: &str) -> ReadResult<()> {
        let inner = read_at(text, self.depth + 1);
        for mut command in inner.commands {
            self.check_command_limit()?;
            command.dirs = None;
            self.found.commands.push(command);
        }
        self.found.unclear = self.found.unclear.take().or(inner.unclear);
        self.found.doubt = self.found.doubt.take().or(inner.doubt);
        Ok(())
    }

    fn check_command_limit(&self) -> ReadResult<()> {
        if self.found.commands.len() < MAX_COMMANDS {
            Ok(())
        } else {
            Err("it contains too many commands")
        }
    }

    /// Skips spaces, escaped line ends and comments.
    fn blanks(&mut self) {
        loop {
            if self.take(" ") || self.take("\t") || self.take("\\\n") {
                continue;
            }
            let fresh = self.at == 0
                || self.src[..self.at].ends_with([' ', '\t', '\n', ';', '&', '|', '(', ')', '`']);
            if !(fresh && self.peek() == Some('#')) {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn list(&mut self, stop: ListEnd) -> ReadResult<()> {
        loop {
            self.blanks();
            let Some(c) = self.peek() else {
                self.then(false);
                return if stop == ListEnd::End {
                    Ok(())
                } else {
                    Err("a parenthesis or `case` does not close")
                };
            };
            match c {
                '\n' => {
                    self.at += 1;
                    self.then(false);
                    self.read_here_documents()?;
                }
                ')' if stop == ListEnd::Parenthesis => {
                    self.at += 1;
                    return Ok(());
                }
                ')' => return Err("a closing parenthesis has no opening one"),
                ';' if self.rest().starts_with(";;") || self.rest().starts_with(";&") => {
                    if stop != ListEnd::Arm {
                        return Err("`;;` outside of `case`");
                    }
                    let _ = self.take(";;&") || self.take(";;") || self.take(";&");
                    return Ok(());
                }
                ';' => {
                    self.at += 1;
                    self.then(false);
                }
                '&' if !self.rest().starts_with("&>") => self.ampersand(),
                '|' => self.pipe(),
                '(' => self.parenthesis()?,
                _ if stop == ListEnd::Arm && self.reserved() == Some("esac") => return Ok(()),
                _ => self.command()?,
            }
        }
    }

    fn ampersand(&mut self) {
        if self.take("&&") {
            return self.then(true);
        }
        self.at += 1;
        // A background command changes the directory only for itself.
        if self.changed.is_some() {
            self.dirs = None;
        }
        self.then(false);
    }

    fn pipe(&mut self) {
        if self.take("||") {
            return self.then(false);
        }
        let _ = self.take("|&") || self.take("|");
        if self.changed.take().is_some() {
            self.dirs = None;
        }
        self.piped = true;
    }

    /// Ends a command; `sure` means that the next one runs only if it succeeded.
    fn then(&mut self, sure: bool) {
        self.piped = false;
        let changed = self.changed.take();
        let Some(dirs) = &mut self.dirs else { return };
        dirs.extend(changed.map(|word| ChangedDir { word, sure: true }));
        if !sure {
            for dir in dirs {
                dir.sure = false;
            }
        }
    }

    fn parenthesis(&mut self) -> ReadResult<()> {
        if self.take("((") {
            self.arithmetic()?;
            return self.emit_arithmetic();
        }
        self.at += 1;
        self.subshell(ListEnd::Parenthesis)
    }

    /// Adds `((…))` as a command that may do more than produce text.
    fn emit_arithmetic(&mut self) -> ReadResult<()> {
        self.odd = true;
        self.emit(of_words([Word::literal("((")]))
    }

    /// The next word, if it is a reserved word of the shell.
    fn reserved(&self) -> Option<&'a str> {
        let end = self
            .rest()
            .find([' ', '\t', '\n', ';', '&', '|', '<', '>', '(', ')'])
            .unwrap_or(self.rest().len());
        let word = &self.rest()[..end];
        RESERVED.contains(&word).then_some(word)
    }

    fn command(&mut self) -> ReadResult<()> {
        match self.reserved() {
            Some(word) if word != "in" => {
                self.at += word.len();
                self.keyword(word)
            }
            _ => self.simple(),
        }
    }

    fn simple(&mut self) -> ReadResult<()> {
        let mut simple = Simple::default();
        loop {
            self.blanks();
            let Some(c) = self.peek() else { break };
            match c {
                '\n' | ';' | '|' | ')' => break,
                '&' if !self.rest().starts_with("&>") => break,
                '(' if simple.words.len() == 1 && simple.assigns.is_empty() => {
                    return self.function(simple);
                }
                '(' => return Err("unexpected parenthesis"),
                '&' | '<' | '>'
                    if !(self.rest().starts_with("<(") || self.rest().starts_with(">(")) =>
                {
                    self.redirect(&mut simple)?;
                }
                '0'..='9' if self.descriptor() > 0 => self.at += self.descriptor(),
                '{' if self.is_named_descriptor() => {
                    return Err("a file descriptor is kept in a variable");
                }
                _ => self.next_word(&mut simple)?,
            }
        }
        // The text of its here-documents follows after the end of the line.
        let command = self.found.commands.len();
        for body in self
            .here_documents
            .iter_mut()
            .filter(|body| body.command == usize::MAX)
        {
            body.command = command;
        }
        self.emit(simple)
    }

    /// The number of digits of a file descriptor before a redirection; 0 if there is none.
    fn descriptor(&self) -> usize {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if self.rest()[digits..].starts_with(['<', '>']) {
            digits
        } else {
            0
        }
    }

    fn is_named_descriptor(&self) -> bool {
        let Some((name, after)) = self.rest()[1..].split_once('}') else {
            return false;
        };
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && after.starts_with(['<', '>'])
    }

    fn next_word(&mut self, simple: &mut Simple) -> ReadResult<()> {
        let begin = self.at;
        if simple.words.is_empty()
            && let Some(name) = self.assigned()
        {
            self.at += name.len();
            let _ = self.take("+=") || self.take("=");
            let value = self.value()?;
            simple.assigns.push(Assign {
                name: name.to_owned(),
                value,
            });
            return Ok(());
        }
        if simple.program() == "time" && self.reserved().is_some() {
            return Err("`time` is followed by a compound command");
        }
        let mut word = self.word()?;
        if self.at == begin {
            return Err("unexpected character where a word should be");
        }
        let declares = DECLARE.contains(&simple.program());
        if declares && word.text.ends_with('=') && self.peek() == Some('(') {
            self.array()?;
            word.known = false;
        }
        if simple.words.is_empty() {
            self.found.starts.push(begin);
        }
        simple.words.push(word);
        Ok(())
    }

    /// The name of the variable, if an assignment follows. A subscript is arithmetic, which can run commands.
    fn assigned(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        if end == 0 || rest.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let after = &rest[end..];
        if after.starts_with('[') && after.contains(']') {
            let word = after.find([' ', '\n', ';']).unwrap_or(after.len());
            if after[..word].contains("]=") || after[..word].contains("]+=") {
                self.odd = true;
                self.doubt("an array element is assigned");
            }
            return None;
        }
        (after.starts_with('=') || after.starts_with("+=")).then(|| &rest[..end])
    }

    fn value(&mut self) -> ReadResult<Word> {
        if self.peek() == Some('(') {
            self.array()?;
            return Ok(Word {
                text: "()".into(),
                ..Word::default()
            });
        }
        self.word()
    }

    fn array(&mut self) -> ReadResult<()> {
        self.at += 1;
        loop {
            self.space()?;
            if self.take(")") {
                return Ok(());
            }
            let before = self.at;
            self.word()?;
            if self.at == before {
                return Err("a list of values does not close");
            }
        }
    }

    /// Adds a complete command, followed by the commands that it would start.
    fn emit(&mut self, mut simple: Simple) -> ReadResult<()> {
        if simple.words.is_empty()
            && simple.assigns.is_empty()
            && simple.writes.is_empty()
            && simple.reads.is_empty()
        {
            return Ok(());
        }
        self.check_command_limit()?;
        simple.odd |= std::mem::take(&mut self.odd);
        simple.piped = self.piped;
        simple.dirs.clone_from(&self.dirs);
        self.note_directory(&simple);
        let inner = wrappers::started_by(&mut simple);
        let runs = simple.input.is_some() && wrappers::reads_script(&simple);
        let input = simple.input.clone().filter(|_| runs);
        let (dirs, piped) = (simple.dirs.clone(), simple.piped);
        self.found.commands.push(simple);
        if let Some(input) = input {
            self.text(&input.text)?;
        }
        for inner in inner {
            self.deeper()?;
            match inner {
                wrappers::InnerCommand::Text(text) => self.text(&text)?,
                wrappers::InnerCommand::Words(words, dirs_known) => {
                    let dirs = if dirs_known { dirs.clone() } else { None };
                    let simple = Simple {
                        words,
                        piped,
                        dirs,
                        ..Simple::default()
                    };
                    self.started(simple)?;
                }
            }
            self.shallower();
        }
        Ok(())
    }

    /// Adds a command that another command starts.
    fn started(&mut self, simple: Simple) -> ReadResult<()> {
        let (dirs, changed, piped) = (self.dirs.clone(), self.changed.take(), self.piped);
        self.dirs.clone_from(&simple.dirs);
        let moves = CHANGE.contains(&simple.name());
        self.emit(simple)?;
        self.dirs = if moves { None } else { dirs };
        (self.changed, self.piped) = (changed.filter(|_| !moves), piped);
        Ok(())
    }

    fn note_directory(&mut self, simple: &Simple) {
        self.changed = None;
        if !simple.is_named() {
            // The program is not known, so it may be one that changes the directory.
            self.dirs = None;
        }
        if !CHANGE.contains(&simple.name()) {
            return;
        }
        let plain =
            self.compound == 0 && !self.piped && simple.name() == "cd" && simple.assigns.is_empty();
        match simple.args() {
            [dir]
                if plain
                    && dir.known
                    && !dir.glob
                    && !dir.text.starts_with('-')
                    && self.dirs.is_some() =>
            {
                self.changed = Some(dir.clone());
            }
            _ => self.dirs = None,
        }
    }
}

/// A command that consists of these words only.
fn of_words(words: impl IntoIterator<Item = Word>) -> Simple {
    Simple {
        words: words.into_iter().collect(),
        ..Simple::default()
    }
}

const RESERVED: &[&str] = &[
    "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "for", "select", "case",
    "esac", "in", "{", "}", "!", "function", "[[", "coproc",
];
/// Builtins whose arguments may be array assignments.
const DECLARE: &[&str] = &["export", "declare", "typeset", "local", "readonly"];
/// Builtins that change the directory, or may run a command that does.
const CHANGE: &[&str] = &["cd", "pushd", "popd", "eval", "source", "."];
