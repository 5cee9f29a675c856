//! The simple commands of a shell line, as far as its words and borders tell: which program each starts, with which
//! words, and where it writes. What is text and not a command (quotes, comments, here-documents) is kept apart.
//! It expands nothing, and what it cannot read it says so.

/// How deep commands inside commands are followed.
const MAX_DEPTH: usize = 8;
/// How many commands one line may hold.
const MAX_COMMANDS: usize = 1_000;

/// One simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Simple {
    /// The program and its words, quotes taken off; assignments and programs that only start others are left out.
    pub(super) words: Vec<String>,
    /// Files it is redirected to.
    pub(super) writes: Vec<String>,
    /// It reads what another command writes.
    pub(super) piped: bool,
}

impl Simple {
    /// The program by its own name.
    pub(super) fn program(&self) -> &str {
        self.words.first().map_or("", |word| base_name(word))
    }

    /// The words after the program.
    pub(super) fn args(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// It runs the text it is given.
    pub(super) fn is_shell(&self) -> bool {
        SHELLS.contains(&self.program())
    }
}

/// Every simple command of a line, those inside others too. None when it has no end that fits its beginning.
pub(super) fn simple_commands(line: &str) -> Option<Vec<Simple>> {
    let mut found = Vec::new();
    read(line, 0, &mut found)?;
    Some(found)
}

fn read(line: &str, depth: usize, found: &mut Vec<Simple>) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    Reader::new(line, depth, found).run()
}

/// Where the next word belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Words,
    Writes,
    /// The end mark of a here-document.
    Mark,
}

struct Reader<'a, 'b> {
    rest: &'a str,
    depth: usize,
    found: &'b mut Vec<Simple>,
    raw: Simple,
    word: Option<String>,
    to: To,
    /// The word has quotes.
    quoted: bool,
    /// End marks of here-documents whose text begins with the next line, and whether they are in quotes.
    bodies: Vec<(String, bool)>,
}

impl<'a, 'b> Reader<'a, 'b> {
    fn new(rest: &'a str, depth: usize, found: &'b mut Vec<Simple>) -> Self {
        Self {
            rest,
            depth,
            found,
            raw: Simple::default(),
            word: None,
            to: To::Words,
            quoted: false,
            bodies: Vec::new(),
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn until(&mut self, end: &str) -> Option<&'a str> {
        let (text, rest) = self.rest.split_once(end)?;
        self.rest = rest;
        Some(text)
    }

    fn put(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn run(&mut self) -> Option<()> {
        while let Some(c) = self.next() {
            match c {
                ' ' | '\t' | '\r' => self.end_word(),
                '\n' => {
                    self.end_command()?;
                    self.skip_bodies()?;
                }
                '#' if self.word.is_none() => {
                    self.rest = &self.rest[self.rest.find('\n').unwrap_or(self.rest.len())..];
                }
                '&' if self.rest.starts_with('>') => self.end_word(),
                '|' if !self.rest.starts_with('|') => {
                    self.end_command()?;
                    self.raw.piped = true;
                }
                ';' | '|' | '&' | '(' | ')' => self.end_command()?,
                '>' | '<' => self.redirect(c)?,
                '\'' => {
                    let text = self.until("'")?;
                    self.quoted = true;
                    self.word.get_or_insert_default().push_str(text);
                }
                '"' => self.double_quoted()?,
                '\\' => match self.next() {
                    Some('\n') | None => {}
                    Some(c) => {
                        self.quoted = true;
                        self.put(c);
                    }
                },
                '`' | '$' => self.expand(c)?,
                c => self.put(c),
            }
        }
        self.end_command()
    }

    fn double_quoted(&mut self) -> Option<()> {
        self.word.get_or_insert_default();
        self.quoted = true;
        loop {
            match self.next()? {
                '"' => return Some(()),
                '\\' => match self.next()? {
                    '\n' => {}
                    c => self.put(c),
                },
                c @ ('`' | '$') => self.expand(c)?,
                c => self.put(c),
            }
        }
    }

    /// A command whose output becomes a word, or the name of a variable.
    fn expand(&mut self, c: char) -> Option<()> {
        let inner = match c {
            '`' => self.until("`")?,
            _ if self.take("'") => {
                let text = self.until("'")?;
                self.word.get_or_insert_default().push_str(text);
                return Some(());
            }
            _ if self.take("(") => self.parenthesis()?,
            c => {
                self.put(c);
                return Some(());
            }
        };
        self.word.get_or_insert_default();
        read(inner, self.depth + 1, self.found)
    }

    /// Up to the parenthesis that closes the one just opened; those in quotes and here-documents do not count.
    fn parenthesis(&mut self) -> Option<&'a str> {
        let whole = self.rest;
        let (mut open, mut marks) = (1, Vec::new());
        while open > 0 {
            match self.next()? {
                '\\' => {
                    self.next();
                }
                '\'' => {
                    self.until("'")?;
                }
                '"' => self.skip_quoted()?,
                '(' => open += 1,
                ')' => open -= 1,
                '<' if self.take("<<") => {}
                '<' if self.take("<") => {
                    self.take("-");
                    let mark = self.rest.trim_start_matches([' ', '\t']);
                    let end = mark.find(|c: char| c.is_whitespace() || matches!(c, ')' | ';' | '|' | '&' | '>'));
                    let (mark, rest) = mark.split_at(end.unwrap_or(mark.len()));
                    marks.push(mark.replace(['\'', '"', '\\'], ""));
                    self.rest = rest;
                }
                '\n' => {
                    for mark in marks.drain(..) {
                        let _ = self.body(&mark);
                    }
                }
                _ => {}
            }
        }
        Some(&whole[..whole.len() - self.rest.len() - 1])
    }

    fn skip_quoted(&mut self) -> Option<()> {
        loop {
            match self.next()? {
                '"' => return Some(()),
                '\\' => {
                    self.next()?;
                }
                _ => {}
            }
        }
    }

    /// The text of a here-document up to its end mark.
    fn body(&mut self, mark: &str) -> &'a str {
        let whole = self.rest;
        loop {
            let before = whole.len() - self.rest.len();
            let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
            let last = self.rest.is_empty();
            self.rest = rest;
            if last || line.trim_start_matches('\t') == mark {
                return &whole[..before];
            }
        }
    }

    fn redirect(&mut self, c: char) -> Option<()> {
        // `2>` redirects a number; that is no word.
        if self.word.as_ref().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        if self.take("(") {
            let inner = self.parenthesis()?;
            return read(inner, self.depth + 1, self.found);
        }
        if c == '<' {
            if self.take("<<") {
                return Some(());
            }
            if self.take("<") {
                self.take("-");
                self.to = To::Mark;
            }
            return Some(());
        }
        let _ = self.take(">") || self.take("|");
        // `>&2` joins two streams, `>&file` is a file.
        if self.take("&") && self.rest.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            self.next();
            return Some(());
        }
        self.to = To::Writes;
        Some(())
    }

    fn end_word(&mut self) {
        let quoted = std::mem::take(&mut self.quoted);
        let Some(word) = self.word.take() else { return };
        match std::mem::replace(&mut self.to, To::Words) {
            To::Words => self.raw.words.push(word),
            To::Writes => self.raw.writes.push(word),
            To::Mark => self.bodies.push((word, quoted)),
        }
    }

    fn end_command(&mut self) -> Option<()> {
        self.end_word();
        self.to = To::Words;
        let raw = std::mem::take(&mut self.raw);
        if self.found.len() >= MAX_COMMANDS {
            return None;
        }
        let words = started(&raw.words).to_vec();
        if words.is_empty() && raw.writes.is_empty() {
            return Some(());
        }
        let simple = Simple { words, writes: raw.writes, piped: raw.piped };
        for inner in handed_on(&simple) {
            read(&inner, self.depth + 1, self.found)?;
        }
        self.found.push(simple);
        Some(())
    }

    /// The text of here-documents is input, unless it is the input of a shell; commands in it run all the same when
    /// its mark is not in quotes.
    fn skip_bodies(&mut self) -> Option<()> {
        for (mark, quoted) in std::mem::take(&mut self.bodies) {
            let body = self.body(&mark);
            if self.found.last().is_some_and(Simple::is_shell) {
                read(body, self.depth + 1, self.found)?;
            } else if !quoted {
                let mut inner = Reader::new(body, self.depth, self.found);
                while let Some(c) = inner.next() {
                    match c {
                        '\\' => {
                            inner.next();
                        }
                        '`' | '$' if !inner.rest.starts_with('\'') => inner.expand(c)?,
                        _ => {}
                    }
                }
            }
        }
        Some(())
    }
}

/// The words from the program on that is really started.
fn started(words: &[String]) -> &[String] {
    let mut rest = words;
    let mut after_starter = false;
    while let Some((first, more)) = rest.split_first() {
        let filler = first.starts_with('-')
            || first == "{}"
            || first.trim_end_matches(['s', 'm', 'h', 'd']).parse::<f64>().is_ok();
        if STARTERS.contains(&base_name(first)) {
            after_starter = true;
        } else if !(is_assignment(first) || KEYWORDS.contains(&first.as_str()) || (after_starter && filler)) {
            break;
        }
        rest = more;
    }
    rest
}

/// The commands that a program gets as words.
fn handed_on(simple: &Simple) -> Vec<String> {
    let (program, words) = (simple.program(), &simple.words);
    let rest = words.get(1..).unwrap_or_default();
    if program == "eval" {
        return vec![rest.join(" ")];
    }
    if simple.is_shell() {
        let flag = rest.iter().position(|word| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c'));
        return flag.and_then(|at| rest.get(at + 1)).cloned().into_iter().collect();
    }
    if program == "find" {
        let starts = |word: &String| matches!(word.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
        return rest.split(starts).skip(1).map(|words| words.join(" ")).collect();
    }
    Vec::new()
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'+')
    })
}

pub(super) fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "ash"];
const KEYWORDS: &[&str] = &["if", "then", "elif", "else", "do", "while", "until", "!", "{", "}", "fi", "done", "esac"];
/// Programs that start the program named in their words.
const STARTERS: &[&str] = &[
    "env", "command", "builtin", "exec", "nohup", "nice", "ionice", "time", "timeout", "stdbuf", "setsid", "xargs",
    "busybox", "unshare", "strace", "chronic", "script", "flock", "parallel",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands by `;`, words by a space, targets after `>`.
    #[track_caller]
    fn check(line: &str, expect: &str) {
        let shown = simple_commands(line).map(|all| {
            let one = |simple: &Simple| {
                let targets = simple.writes.iter().map(|target| format!(" >{target}"));
                simple.words.join(" ") + &targets.collect::<String>()
            };
            all.iter().map(one).collect::<Vec<_>>().join("; ")
        });
        assert_eq!(shown.as_deref(), Some(expect).filter(|text| *text != "?"), "{line}");
    }

    #[test]
    fn commands_are_told_apart_from_text() {
        check("a b && c | d; e & (f g)", "a b; c; d; e; f g");
        check("echo \"a; sudo b\" 'c & d' e\\ f # sudo", "echo a; sudo b c & d e f");
        check("a $(b c) `d` \"$(e 'f)')\" <(g)", "b c; d; e f); g; a   ");
        check("cat <<'EOF' > out\nsudo $(x)\nEOF\nls", "cat >out; ls");
        check("cat <<E\n$(sudo x) \\$(y) it's\nE\nls", "cat; sudo x; ls");
        check("git commit -m \"$(cat <<'EOF'\nIt's done (really :)\nEOF\n)\" && ls", "cat; git commit -m ; ls");
        check("bash <<E\nsudo id\nE\n", "bash; sudo id");
        check("sud\\\no id", "sudo id");
        check("a >b 2>&1 2>>c &>d < e", "a e >b >c >d");
        check("x $'a b' \"unclosed", "?");
        check("", "");
    }

    #[test]
    fn the_program_behind_others_is_found() {
        check("A=1 env -i B=2 timeout -k 5 60s nice -n 10 /usr/bin/sudo id", "/usr/bin/sudo id");
        check("ls | xargs -n 1 -I {} rm {}", "ls; rm {}");
        check("if true; then sudo x; fi", "true; sudo x");
        check("bash -lc 'sudo a; b'", "sudo a; b; bash -lc sudo a; b");
        check("eval \"a b\" c", "a b c; eval a b c");
        check("find . -name x -exec rm -f {} +", "rm -f {} +; find . -name x -exec rm -f {} +");
        check("f() { g; }", "f; g");
    }

    #[test]
    fn depth_is_bounded() {
        let line = "$(".repeat(50) + &")".repeat(50);
        assert_eq!(simple_commands(&line), None);
        let line = "eval ".repeat(5000) + "x";
        assert_eq!(simple_commands(&line), None);
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in "[a-z$(){}<>|&;'\"`\\\\# \n=-]{0,80}") {
            let _ = simple_commands(&line);
        }
    }
}
