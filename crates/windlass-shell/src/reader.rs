//! Our own reader: cuts a line into simple commands the way bash does. What it does not know it refuses; it never
//! guesses where a command ends.

mod compound;
mod here;

use windlass_core::shell::{Assign, Dir, Simple, Word};

use crate::{MAX_COMMANDS, MAX_DEPTH, read_at, wrap};

/// How many here-documents one line may begin.
const MAX_BODIES: usize = 8;

/// A reading, or why there is none.
pub(crate) type Res<T> = Result<T, &'static str>;

/// What a line holds.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) commands: Vec<Simple>,
    /// Where the commands of the line itself begin, for the comparison with the grammar.
    pub(crate) starts: Vec<usize>,
    pub(crate) unclear: Option<String>,
    pub(crate) doubt: Option<String>,
}

pub(crate) fn read(text: &str, depth: usize) -> Res<Found> {
    let mut found = Found::default();
    let mut reader = Reader {
        src: text,
        at: 0,
        end: text.len(),
        depth,
        found: &mut found,
        odd: false,
        dirs: Some(Vec::new()),
        bodies: Vec::new(),
        compound: 0,
        piped: false,
        changed: None,
    };
    reader.list(Stop::End)?;
    if !reader.bodies.is_empty() {
        return Err("a here-document has no text");
    }
    Ok(found)
}

/// Where a list of commands ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    End,
    Parenthesis,
    /// An arm of `case`.
    Arm,
}

/// A here-document whose text begins with the next line.
struct Body {
    mark: String,
    quoted: bool,
    /// Tabs at the beginning of its lines do not count.
    tabs: bool,
    /// Whose input it is.
    command: usize,
}

pub(crate) struct Reader<'a, 'b> {
    pub(crate) src: &'a str,
    pub(crate) at: usize,
    pub(crate) end: usize,
    depth: usize,
    found: &'b mut Found,
    /// The command being read holds something that may do more than give text.
    pub(crate) odd: bool,
    dirs: Option<Vec<Dir>>,
    bodies: Vec<Body>,
    /// How many of `if`, `while`, `for`, `case` and `{` are open in this list.
    compound: usize,
    piped: bool,
    /// The directory the last command changed to, when it was a plain `cd`.
    changed: Option<Word>,
}

impl<'a> Reader<'a, '_> {
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

    pub(crate) fn until(&mut self, end: char) -> Res<&'a str> {
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

    pub(crate) fn deeper(&mut self) -> Res<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err("its commands are too deep inside each other")
        } else {
            Ok(())
        }
    }

    pub(crate) fn shallower(&mut self) {
        self.depth -= 1;
    }

    /// A list of its own: what it changes to does not last, and its here-documents are its own.
    pub(crate) fn scope(&mut self, stop: Stop) -> Res<()> {
        let begin = self.at;
        let bodies = std::mem::take(&mut self.bodies);
        self.subshell(stop)?;
        if !self.bodies.is_empty() {
            return Err("a here-document has no text");
        }
        // Shells differ about where the text begins when a line ends inside a command inside the command.
        if !bodies.is_empty() && self.src[begin..self.at].contains('\n') {
            return Err("a line ends between a here-document and its text");
        }
        self.bodies = bodies;
        Ok(())
    }

    /// Commands that change nothing for those after them.
    fn subshell(&mut self, stop: Stop) -> Res<()> {
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

    /// Text that a command would run.
    pub(crate) fn text(&mut self, text: &str) -> Res<()> {
        let inner = read_at(text, self.depth + 1);
        for mut command in inner.commands {
            self.room()?;
            command.dirs = None;
            self.found.commands.push(command);
        }
        self.found.unclear = self.found.unclear.take().or(inner.unclear);
        self.found.doubt = self.found.doubt.take().or(inner.doubt);
        Ok(())
    }

    fn room(&self) -> Res<()> {
        if self.found.commands.len() < MAX_COMMANDS {
            Ok(())
        } else {
            Err("it holds too many commands")
        }
    }

    /// Spaces, lines that go on, and comments.
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

    fn list(&mut self, stop: Stop) -> Res<()> {
        loop {
            self.blanks();
            let Some(c) = self.peek() else {
                self.then(false);
                return if stop == Stop::End {
                    Ok(())
                } else {
                    Err("a parenthesis or `case` does not close")
                };
            };
            match c {
                '\n' => {
                    self.at += 1;
                    self.then(false);
                    self.here_documents()?;
                }
                ')' if stop == Stop::Parenthesis => {
                    self.at += 1;
                    return Ok(());
                }
                ')' => return Err("a parenthesis closes nothing"),
                ';' if self.rest().starts_with(";;") || self.rest().starts_with(";&") => {
                    if stop != Stop::Arm {
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
                _ if stop == Stop::Arm && self.reserved() == Some("esac") => return Ok(()),
                _ => self.command()?,
            }
        }
    }

    fn ampersand(&mut self) {
        if self.take("&&") {
            return self.then(true);
        }
        self.at += 1;
        // What goes on beside the rest changes directory for itself alone.
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

    /// The next command follows; `sure` when only after success.
    fn then(&mut self, sure: bool) {
        self.piped = false;
        let changed = self.changed.take();
        let Some(dirs) = &mut self.dirs else { return };
        dirs.extend(changed.map(|word| Dir { word, sure: true }));
        if !sure {
            for dir in dirs {
                dir.sure = false;
            }
        }
    }

    fn parenthesis(&mut self) -> Res<()> {
        if self.take("((") {
            self.arithmetic()?;
            return self.emit_arithmetic();
        }
        self.at += 1;
        self.subshell(Stop::Parenthesis)
    }

    /// `((…))` as a command that may do more than give text.
    fn emit_arithmetic(&mut self) -> Res<()> {
        self.odd = true;
        self.emit(of_words([Word::literal("((")]))
    }

    /// The raw word that comes next, when it is one the shell keeps for itself.
    fn reserved(&self) -> Option<&'a str> {
        let end = self
            .rest()
            .find([' ', '\t', '\n', ';', '&', '|', '<', '>', '(', ')'])
            .unwrap_or(self.rest().len());
        let word = &self.rest()[..end];
        RESERVED.contains(&word).then_some(word)
    }

    fn command(&mut self) -> Res<()> {
        match self.reserved() {
            Some(word) if word != "in" => {
                self.at += word.len();
                self.keyword(word)
            }
            _ => self.simple(),
        }
    }

    fn simple(&mut self) -> Res<()> {
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
                '(' => return Err("a parenthesis stands where no command begins"),
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
        // The text of its here-documents comes later.
        let command = self.found.commands.len();
        for body in self
            .bodies
            .iter_mut()
            .filter(|body| body.command == usize::MAX)
        {
            body.command = command;
        }
        self.emit(simple)
    }

    /// How many digits name the stream that is redirected.
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

    fn next_word(&mut self, simple: &mut Simple) -> Res<()> {
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
            return Err("what is timed is no simple command");
        }
        let mut word = self.word()?;
        if self.at == begin {
            return Err("a sign stands where no word can");
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

    /// The name, when an assignment comes next. A subscript in it is arithmetic.
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
                self.doubt("a subscript is set");
            }
            return None;
        }
        (after.starts_with('=') || after.starts_with("+=")).then(|| &rest[..end])
    }

    fn value(&mut self) -> Res<Word> {
        if self.peek() == Some('(') {
            self.array()?;
            return Ok(Word {
                text: "()".into(),
                ..Word::default()
            });
        }
        self.word()
    }

    fn array(&mut self) -> Res<()> {
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

    /// A whole command: it is kept, and what it would start follows it.
    fn emit(&mut self, mut simple: Simple) -> Res<()> {
        if simple.words.is_empty()
            && simple.assigns.is_empty()
            && simple.writes.is_empty()
            && simple.reads.is_empty()
        {
            return Ok(());
        }
        self.room()?;
        simple.odd |= std::mem::take(&mut self.odd);
        simple.piped = self.piped;
        simple.dirs.clone_from(&self.dirs);
        self.note_directory(&simple);
        let inner = wrap::started_by(&mut simple);
        let runs = simple.input.is_some() && wrap::reads_script(&simple);
        let input = simple.input.clone().filter(|_| runs);
        let (dirs, piped) = (simple.dirs.clone(), simple.piped);
        self.found.commands.push(simple);
        if let Some(input) = input {
            self.text(&input.text)?;
        }
        for inner in inner {
            self.deeper()?;
            match inner {
                wrap::Inner::Text(text) => self.text(&text)?,
                wrap::Inner::Words(words, dirs_known) => {
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

    /// A command behind another.
    fn started(&mut self, simple: Simple) -> Res<()> {
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
            // Whatever it is, it may be one that changes directory.
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

/// A command of these words and nothing else.
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
/// Builtins whose words may be lists of values.
const DECLARE: &[&str] = &["export", "declare", "typeset", "local", "readonly"];
/// Builtins that change the directory, and those that may run something that does.
const CHANGE: &[&str] = &["cd", "pushd", "popd", "eval", "source", "."];
