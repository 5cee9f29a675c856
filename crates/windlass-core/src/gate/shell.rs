//! A first reading of shell commands by their words: which programs a line starts, what they are given, where output is
//! sent. It errs to the strict side: what it cannot read is said to be unreadable, and the floor asks a person.
//! It never decides; the floor does.

/// Longer lines, deeper nesting and more commands than these are not read.
const MAX_LINE: usize = 64 << 10;
const MAX_DEPTH: usize = 6;
const MAX_COMMANDS: usize = 512;

/// One simple command.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Simple {
    /// All words, the program first.
    pub(super) words: Vec<Word>,
    /// Files its output goes to.
    pub(super) targets: Vec<String>,
    /// It reads what another command writes.
    pub(super) piped: bool,
}

/// One word, quotes removed.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Some of it was quoted.
    pub(super) quoted: bool,
}

impl Simple {
    /// The program's name without its folder.
    pub(super) fn program(&self) -> &str {
        self.words.first().map_or("", |word| base_name(&word.text))
    }

    /// The words after the program.
    pub(super) fn args(&self) -> impl Iterator<Item = &Word> {
        self.words.iter().skip(1)
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.args().any(|arg| arg.text == word)
    }

    /// The command as one line, for matching rules.
    pub(super) fn text(&self) -> String {
        self.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
    }
}

pub(super) fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Every simple command of a line, also inside substitutions and `sh -c`; `None` when it cannot be read.
pub(super) fn simple_commands(line: &str) -> Option<Vec<Simple>> {
    let mut found = Vec::new();
    read(line, 0, &mut found)?;
    Some(found)
}

fn read(line: &str, depth: usize, found: &mut Vec<Simple>) -> Option<()> {
    if depth > MAX_DEPTH || line.len() > MAX_LINE || line.contains('\0') {
        return None;
    }
    let mut reader = Reader { chars: line.chars().collect(), at: 0, depth, current: Simple::default(), found };
    reader.run()
}

struct Reader<'a> {
    chars: Vec<char>,
    at: usize,
    depth: usize,
    current: Simple,
    found: &'a mut Vec<Simple>,
}

impl Reader<'_> {
    fn run(&mut self) -> Option<()> {
        let mut ends: Vec<String> = Vec::new();
        while let Some(c) = self.peek(0) {
            match c {
                '\n' => {
                    self.at += 1;
                    self.end(false)?;
                    for end in ends.drain(..) {
                        self.skip_here_document(&end);
                    }
                }
                ' ' | '\t' | '\r' => self.at += 1,
                '#' => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                ';' | '(' | ')' => {
                    self.at += 1;
                    self.end(false)?;
                }
                '|' => {
                    let or = self.peek(1) == Some('|');
                    self.at += if or || self.peek(1) == Some('&') { 2 } else { 1 };
                    self.end(!or)?;
                }
                '&' if self.peek(1) == Some('>') => {
                    self.at += 2;
                    self.redirect()?;
                }
                '&' => {
                    self.at += 1;
                    self.end(false)?;
                }
                '<' if self.peek(1) == Some('<') && self.peek(2) != Some('<') => {
                    self.at += if self.peek(2) == Some('-') { 3 } else { 2 };
                    self.skip_blanks();
                    ends.push(self.word()?.text);
                }
                '<' if self.peek(1) == Some('(') => self.substitution(1)?,
                '<' => {
                    self.at += 1;
                    while self.peek(0).is_some_and(|c| matches!(c, '<' | '&' | '>')) {
                        self.at += 1;
                    }
                }
                '>' if self.peek(1) == Some('(') => self.substitution(1)?,
                '>' => {
                    self.at += 1;
                    self.redirect()?;
                }
                _ => {
                    let word = self.word()?;
                    // `2>` is a redirection, not a word.
                    let number = !word.quoted && !word.text.is_empty() && word.text.bytes().all(|b| b.is_ascii_digit());
                    if !(number && matches!(self.peek(0), Some('>' | '<'))) {
                        self.current.words.push(word);
                    }
                }
            }
        }
        self.end(false)
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn skip_blanks(&mut self) {
        while self.peek(0).is_some_and(|c| matches!(c, ' ' | '\t')) {
            self.at += 1;
        }
    }

    /// Behind a `>`: the file, unless it is another descriptor.
    fn redirect(&mut self) -> Option<()> {
        while self.peek(0).is_some_and(|c| matches!(c, '>' | '|')) {
            self.at += 1;
        }
        let duplicate = self.peek(0) == Some('&');
        if duplicate {
            self.at += 1;
        }
        self.skip_blanks();
        let target = self.word()?.text;
        if target.is_empty() {
            return None;
        }
        if !(duplicate && target.chars().all(|c| c.is_ascii_digit() || c == '-')) {
            self.current.targets.push(target);
        }
        Some(())
    }

    /// One word. What is inside substitutions is read as commands of its own.
    fn word(&mut self) -> Option<Word> {
        let mut word = Word::default();
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' | '\n' | '\r' | ';' | '|' | '&' | '(' | ')' | '<' | '>' => break,
                '\'' => {
                    word.quoted = true;
                    self.at += 1;
                    loop {
                        let c = self.peek(0)?;
                        self.at += 1;
                        if c == '\'' {
                            break;
                        }
                        word.text.push(c);
                    }
                }
                '"' => self.double_quoted(&mut word)?,
                '\\' => {
                    if let Some(next) = self.peek(1).filter(|next| *next != '\n') {
                        word.text.push(next);
                    }
                    self.at += 2;
                }
                '`' => self.backticks()?,
                '$' if self.peek(1) == Some('(') => self.substitution(1)?,
                _ => {
                    word.text.push(c);
                    self.at += 1;
                }
            }
        }
        Some(word)
    }

    fn double_quoted(&mut self, word: &mut Word) -> Option<()> {
        word.quoted = true;
        self.at += 1;
        loop {
            match self.peek(0)? {
                '"' => {
                    self.at += 1;
                    return Some(());
                }
                '\\' => {
                    word.text.extend(self.peek(1));
                    self.at += 2;
                }
                '`' => self.backticks()?,
                '$' if self.peek(1) == Some('(') => self.substitution(1)?,
                c => {
                    word.text.push(c);
                    self.at += 1;
                }
            }
        }
    }

    /// `$(…)`, `<(…)`, `>(…)`: `skip` characters, then a parenthesis.
    fn substitution(&mut self, skip: usize) -> Option<()> {
        self.at += skip + 1;
        let start = self.at;
        let (mut open, mut quote) = (1, None);
        while open > 0 {
            let c = self.peek(0)?;
            self.at += 1;
            match (quote, c) {
                (Some(q), c) if c == q => quote = None,
                (Some('\''), _) => {}
                (_, '\\') => self.at += 1,
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(c),
                (None, '(') => open += 1,
                (None, ')') => open -= 1,
                (None, _) => {}
            }
        }
        let inner: String = self.chars[start..self.at - 1].iter().collect();
        read(&inner, self.depth + 1, self.found)
    }

    fn backticks(&mut self) -> Option<()> {
        self.at += 1;
        let start = self.at;
        while self.peek(0)? != '`' {
            self.at += 1;
        }
        let inner: String = self.chars[start..self.at].iter().collect();
        self.at += 1;
        read(&inner, self.depth + 1, self.found)
    }

    fn skip_here_document(&mut self, end: &str) {
        while self.at < self.chars.len() {
            let rest = &self.chars[self.at..];
            let length = rest.iter().position(|c| *c == '\n').unwrap_or(rest.len());
            let line: String = rest[..length].iter().collect();
            self.at += (length + 1).min(rest.len());
            if line.trim_start_matches('\t') == end {
                return;
            }
        }
    }

    /// A command is complete; `pipe` says that the next one reads its output.
    fn end(&mut self, pipe: bool) -> Option<()> {
        let command = std::mem::replace(&mut self.current, Simple { piped: pipe, ..Simple::default() });
        self.add(command, 0)
    }

    /// Takes wrappers off and notes what is behind them.
    fn add(&mut self, mut command: Simple, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH || self.found.len() >= MAX_COMMANDS {
            return None;
        }
        while command
            .words
            .first()
            .is_some_and(|word| !word.quoted && (is_keyword(&word.text) || is_assignment(&word.text)))
        {
            command.words.remove(0);
        }
        if command.words.is_empty() && command.targets.is_empty() {
            return Some(());
        }
        let behind = behind_wrapper(&command);
        let script = shell_script(&command);
        self.found.push(command);
        if let Some(behind) = behind {
            self.add(behind, depth + 1)?;
        }
        match script {
            Some(script) => read(&script, self.depth + 1, self.found),
            None => Some(()),
        }
    }
}

fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "if" | "then" | "else" | "elif" | "while" | "until" | "do" | "!" | "{" | "}" | "time" | "fi" | "done"
    )
}

fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.as_bytes()[0].is_ascii_digit()
}

/// The command that a wrapper starts: everything behind its options and their numbers.
fn behind_wrapper(command: &Simple) -> Option<Simple> {
    let at = match command.program() {
        "env" | "nohup" | "nice" | "ionice" | "setsid" | "stdbuf" | "timeout" | "command" | "exec" | "builtin"
        | "xargs" => {
            let plain = |word: &Word| {
                !word.text.starts_with('-')
                    && !is_assignment(&word.text)
                    && !word.text.starts_with(|c: char| c.is_ascii_digit())
            };
            command.words.iter().skip(1).position(plain)? + 1
        }
        "find" => {
            command
                .words
                .iter()
                .position(|word| matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir"))?
                + 1
        }
        _ => return None,
    };
    let words = command.words.get(at..).filter(|words| !words.is_empty())?.to_vec();
    Some(Simple { words, targets: Vec::new(), piped: command.piped })
}

/// The script that `sh -c` is given.
fn shell_script(command: &Simple) -> Option<String> {
    if !is_shell(command.program()) {
        return None;
    }
    let at = command
        .words
        .iter()
        .position(|word| word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('c'))?;
    command.words.get(at + 1).map(|word| word.text.clone())
}

pub(super) fn is_shell(program: &str) -> bool {
    matches!(program, "sh" | "bash" | "dash" | "zsh" | "ksh" | "fish" | "ash")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expect: &[&str]) {
        let found = simple_commands(line).map(|all| all.iter().map(Simple::text).collect::<Vec<_>>());
        assert_eq!(found, Some(expect.iter().map(|text| (*text).to_owned()).collect()), "{line}");
    }

    #[test]
    fn lists_pipes_and_substitutions_are_taken_apart() {
        check("ls -l", &["ls -l"]);
        check("a; b && c || d | e & f\ng", &["a", "b", "c", "d", "e", "f", "g"]);
        check("echo $(rm x) `rm y`", &["rm x", "rm y", "echo  "]);
        check("echo \"$(rm x)\" 'a;b' # rm z", &["rm x", "echo  a;b"]);
        check("(cd a && b)", &["cd a", "b"]);
        check("A=1 B=2 make -j2", &["make -j2"]);
        check("if true; then rm x; fi", &["true", "rm x"]);
        check("bash -c 'rm x; ls'", &["bash -c rm x; ls", "rm x", "ls"]);
        check("env A=1 timeout 5 sudo id", &["env A=1 timeout 5 sudo id", "timeout 5 sudo id", "sudo id"]);
        check("find . -name x -exec rm {} ;", &["find . -name x -exec rm {}", "rm {}"]);
        check("cat <<EOF\nsudo rm\nEOF\nls", &["cat", "ls"]);
    }

    #[test]
    fn redirections_are_targets_and_not_words() {
        let found = simple_commands("make 2>&1 >out.log 2>>err.log &>all < in").unwrap_or_default();
        assert_eq!(found[0].text(), "make in");
        assert_eq!(found[0].targets, ["out.log", "err.log", "all"]);
    }

    #[test]
    fn what_is_not_closed_cannot_be_read() {
        for line in ["echo 'a", "echo \"a", "echo $(a", "echo `a", "a >", "x\0y"] {
            assert_eq!(simple_commands(line), None, "{line:?}");
        }
        let deep = "$(".repeat(50) + &")".repeat(50);
        assert_eq!(simple_commands(&deep), None);
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_it_panic(line in "[a-z$(){}<>|&;'\"`\\\\ \n#=/.0-9-]{0,80}") {
            let _ = simple_commands(&line);
        }
    }
}
