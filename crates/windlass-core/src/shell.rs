//! A command line taken apart: every simple command that it would run, as far as that can be told without running
//! it. Plain data; who reads lines is the shell crate, and who judges them is the gate.
//!
//! ```
//! use windlass_core::shell::{Script, base_name};
//!
//! assert!(!Script::unclear("a quote is open").is_certain());
//! assert_eq!(base_name("/usr/bin/git"), "git");
//! ```

/// All simple commands of a line, those inside others too: substitutions, functions, here-documents, and what
/// programs that only start others would start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    /// In the order in which they stand, those inside others first.
    pub commands: Vec<Simple>,
    /// Why the line cannot be read; the commands are then not all there are.
    pub unclear: Option<String>,
    /// Why the reading is not certain: two readers differ, or it is written in a way that shells read differently.
    pub doubt: Option<String>,
}

impl Script {
    /// A line of which nothing can be told.
    #[must_use]
    pub fn unclear(why: impl Into<String>) -> Self {
        Self {
            unclear: Some(why.into()),
            ..Self::default()
        }
    }

    /// Whether it is certain that running it changes nothing.
    #[must_use]
    pub fn only_looks(&self) -> bool {
        self.is_certain()
            && !self.commands.is_empty()
            && self.commands.iter().all(|command| command.looks)
    }

    /// Whether the commands are all there are, for certain.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.unclear.is_none() && self.doubt.is_none()
    }
}

/// One simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simple {
    /// The program and its words; empty for assignments and redirections alone.
    pub words: Vec<Word>,
    /// Variables that it sets, for itself or for what follows.
    pub assigns: Vec<Assign>,
    /// Files that it reads: redirections, and the operands of a command that only looks.
    pub reads: Vec<Word>,
    /// Files that it writes for certain: redirections, and the operands of programs that are known to write them.
    pub writes: Vec<Target>,
    /// The text of its here-document.
    pub input: Option<Word>,
    /// It reads what another command writes.
    pub piped: bool,
    /// Something in it may do more than give text: an arithmetic subscript, `${x@P}`, `${x:=y}`.
    pub odd: bool,
    /// It only looks: running it changes nothing.
    pub looks: bool,
    /// It looks through whole folders or a repository, so it reads more than its operands say.
    pub walks: bool,
    /// It only starts the command that follows from its words, which is in the list, too.
    pub starts: bool,
    /// The directories that were changed to before it, one after the other; `None` when that cannot be told.
    pub dirs: Option<Vec<Dir>>,
}

impl Simple {
    /// The program as it is written.
    #[must_use]
    pub fn program(&self) -> &str {
        self.words.first().map_or("", |word| word.text.as_str())
    }

    /// The program by its own name.
    #[must_use]
    pub fn name(&self) -> &str {
        base_name(self.program())
    }

    /// The words after the program.
    #[must_use]
    pub fn args(&self) -> &[Word] {
        self.words.get(1..).unwrap_or_default()
    }

    /// Whether it is known which program it runs.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.words
            .first()
            .is_none_or(|word| word.known && !word.glob)
    }
}

/// One word, quotes taken off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Word {
    /// Its text; what the shell puts in place of a part is written as in the line.
    pub text: String,
    /// It is exactly this text.
    pub known: bool,
    /// It is a pattern for the names of files.
    pub glob: bool,
    /// It stays one word, whatever is put in place of its parts.
    pub one: bool,
}

impl Word {
    /// A word that is exactly this text.
    #[must_use]
    pub fn literal(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            known: true,
            glob: false,
            one: true,
        }
    }
}

/// A directory that was changed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dir {
    /// As it is named.
    pub word: Word,
    /// What follows only runs when the change worked.
    pub sure: bool,
}

/// A variable that is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assign {
    /// Its name.
    pub name: String,
    /// To what.
    pub value: Word,
}

/// A file that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// As it is named.
    pub word: Word,
    /// It is removed with all that is in it.
    pub removes: bool,
    /// Where it leads, where somebody looked: relative inside the workspace, absolute outside.
    pub at: Option<At>,
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// Resolved: relative inside the workspace, absolute outside.
    pub path: String,
    /// Whether it is inside.
    pub inside: bool,
}

/// A text as one word for a shell; a word of plain characters as it is. `=` is not plain: in front it would assign.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The last part of a path.
#[must_use]
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
