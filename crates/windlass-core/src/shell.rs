//! A parsed command line: every simple command that it would run, as far as that is known without running it. These are
//! plain data types; `windlass-shell` parses command lines and the gate judges them.
//!
//! ```
//! use windlass_core::shell::{ShellScript, base_name};
//!
//! assert!(!ShellScript::unclear("a quote is open").is_certain());
//! assert_eq!(base_name("/usr/bin/git"), "git");
//! ```

/// All simple commands of a line. Nested ones are included: those in substitutions, functions and here-documents, and
/// those that programs such as `env` or `xargs` would start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellScript {
    /// The commands in order of appearance; nested ones precede the command that contains them.
    pub commands: Vec<Simple>,
    /// The reason why the line could not be parsed. The list of commands is incomplete then.
    pub unclear: Option<String>,
    /// The reason why the result is uncertain: two parsers disagree, or shells interpret the line differently.
    pub doubt: Option<String>,
}

impl ShellScript {
    /// A line that could not be parsed at all.
    #[must_use]
    pub fn unclear(why: impl Into<String>) -> Self {
        Self {
            unclear: Some(why.into()),
            ..Self::default()
        }
    }

    /// Whether running the line certainly changes nothing.
    #[must_use]
    pub fn only_looks(&self) -> bool {
        self.is_certain()
            && !self.commands.is_empty()
            && self.commands.iter().all(|command| command.looks)
    }

    /// Whether the list of commands is certainly complete.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.unclear.is_none() && self.doubt.is_none()
    }
}

/// One simple command of a script.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simple {
    /// The program and its arguments; empty if there are only assignments or redirections.
    pub words: Vec<Word>,
    /// Variables that it sets, for itself or for later commands.
    pub assigns: Vec<Assign>,
    /// Files that it reads: redirections, and the operands of a command that only reads.
    pub reads: Vec<Word>,
    /// Files that it certainly writes: redirections, and the operands of programs that are known to write them.
    pub writes: Vec<WriteTarget>,
    /// The text of its here-document.
    pub input: Option<Word>,
    /// True if its stdin is a pipe from another command.
    pub piped: bool,
    /// True if an expansion in it may have side effects or run code: an arithmetic subscript, `${x@P}`, `${x:=y}`.
    pub odd: bool,
    /// True if it only reads: running it changes nothing.
    pub looks: bool,
    /// True if it walks directories or a repository, and so reads more than its operands name.
    pub walks: bool,
    /// True if it only starts another command, given in its arguments. That command is also in the list.
    pub starts: bool,
    /// The directory changes before it, in order; `None` if they are unknown.
    pub dirs: Option<Vec<ChangedDir>>,
}

impl Simple {
    /// The program as written in the line.
    #[must_use]
    pub fn program(&self) -> &str {
        self.words.first().map_or("", |word| word.text.as_str())
    }

    /// The base name of the program.
    #[must_use]
    pub fn name(&self) -> &str {
        base_name(self.program())
    }

    /// The arguments after the program.
    #[must_use]
    pub fn args(&self) -> &[Word] {
        self.words.get(1..).unwrap_or_default()
    }

    /// Whether it is known which program the command runs.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.words
            .first()
            .is_none_or(|word| word.known && !word.glob)
    }
}

/// One word of a command, without its quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Word {
    /// The text of the word. Expansions are left as in the line.
    pub text: String,
    /// True if the word is exactly this text.
    pub known: bool,
    /// True if the word is a pattern for file names.
    pub glob: bool,
    /// True if the word stays a single word after all expansions.
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

/// A directory that an earlier command changed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedDir {
    /// The directory as written in the line.
    pub word: Word,
    /// True if later commands run only if the change succeeded.
    pub sure: bool,
}

/// An assignment to a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assign {
    /// The name of the variable.
    pub name: String,
    /// The value, as far as it is known.
    pub value: Word,
}

/// A file that a command writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteTarget {
    /// The path as written in the line.
    pub word: Word,
    /// True if the path is removed recursively.
    pub removes: bool,
    /// The resolved path, if it was resolved.
    pub at: Option<At>,
}

/// A path after symlinks and `..` were resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// Relative to the workspace if inside, absolute if outside.
    pub path: String,
    /// Whether it is inside the workspace.
    pub inside: bool,
}

/// Quotes a text as a single shell word; plain characters need no quotes. `=` is not plain, because it could make the
/// word an assignment.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The last component of a path.
#[must_use]
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
