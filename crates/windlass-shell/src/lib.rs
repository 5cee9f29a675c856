//! Reads a command line without running it: which simple commands it holds, what they would write for certain, and
//! which of them only look. Two readers look at every line, the grammar that editors use and one of our own; where
//! they differ, nothing is taken for granted. Reads no file and starts nothing.

mod looks;
mod reader;
mod tree;
mod word;
mod wrap;
mod writers;

use windlass_core::shell::Script;

/// The longest line that is read, in bytes.
const MAX_LINE: usize = 64 << 10;
/// How deep commands inside commands are followed.
const MAX_DEPTH: usize = 12;
/// How many commands one line may hold.
const MAX_COMMANDS: usize = 1_000;

/// Takes a line apart. Always gives an answer; what cannot be read says why.
///
/// ```
/// let script = windlass_shell::read("git log --oneline | head -5");
/// assert!(script.only_looks());
/// assert!(!windlass_shell::read("git log --output=x").only_looks());
/// ```
#[must_use]
pub fn read(line: &str) -> Script {
    read_at(line, 0)
}

/// The same for text inside a line, `depth` commands down.
fn read_at(text: &str, depth: usize) -> Script {
    if text.len() > MAX_LINE {
        return Script::unclear(format!("it is longer than {} KiB", MAX_LINE >> 10));
    }
    if depth > MAX_DEPTH {
        return Script::unclear("its commands are too deep inside each other");
    }
    if text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')) {
        return Script::unclear("it holds control characters");
    }
    let found = match reader::read(text, depth) {
        Ok(found) => found,
        Err(why) => return Script::unclear(why),
    };
    let mut script = Script {
        commands: found.commands,
        unclear: found.unclear,
        doubt: found.doubt,
    };
    if script.doubt.is_none() {
        script.doubt = tree::differs(text, &found.starts);
    }
    looks::judge(&mut script.commands);
    script
}

/// Whether a word is one of those in a list with blanks between them.
fn is_among(word: &str, words: &str) -> bool {
    !word.is_empty() && words.split(' ').any(|known| known == word)
}
