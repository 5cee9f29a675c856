//! Parses a command line without running it: finds its simple commands, the files that they certainly write, and the
//! commands that are read-only. Every line is parsed twice, with the tree-sitter grammar and with a parser of this crate;
//! if the two differ, the result is marked as doubtful. No file is read and no process started.

mod grammar;
mod read_only;
mod reader;
mod word;
mod wrappers;
mod writers;

use windlass_core::shell::ShellScript;

/// The longest line that is read, in bytes.
const MAX_LINE: usize = 64 << 10;
/// The maximum nesting depth of commands inside commands.
const MAX_DEPTH: usize = 12;
/// The maximum number of commands in one line.
const MAX_COMMANDS: usize = 1_000;

/// Parses a line. There is always a result; if the line cannot be parsed, `unclear` contains the reason.
///
/// ```
/// let script = windlass_shell::read("git log --oneline | head -5");
/// assert!(script.only_looks());
/// assert!(!windlass_shell::read("git log --output=x").only_looks());
/// ```
#[must_use]
pub fn read(line: &str) -> ShellScript {
    read_at(line, 0)
}

/// Parses text that is nested `depth` commands deep in a line.
fn read_at(text: &str, depth: usize) -> ShellScript {
    if text.len() > MAX_LINE {
        return ShellScript::unclear(format!("it is longer than {} KiB", MAX_LINE >> 10));
    }
    if depth > MAX_DEPTH {
        return ShellScript::unclear("its commands are nested too deeply");
    }
    if text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')) {
        return ShellScript::unclear("it contains control characters");
    }
    let found = match reader::read(text, depth) {
        Ok(found) => found,
        Err(why) => return ShellScript::unclear(why),
    };
    let mut script = ShellScript {
        commands: found.commands,
        unclear: found.unclear,
        doubt: found.doubt,
    };
    if script.doubt.is_none() {
        script.doubt = grammar::difference(text, &found.starts);
    }
    read_only::judge(&mut script.commands);
    script
}

/// Whether a word is in a list of words separated by spaces.
fn is_among(word: &str, words: &str) -> bool {
    !word.is_empty() && words.split(' ').any(|known| known == word)
}
