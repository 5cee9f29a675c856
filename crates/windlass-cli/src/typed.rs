//! The words of a prompt: typed, or from standard input.

use std::io::{IsTerminal, Read};

use crate::failure::Failure;

/// The longest prompt from standard input.
const MAX_TEXT: u64 = 4 << 20;

/// The words that were typed, and standard input when it is piped.
pub(crate) fn words(typed: &[String]) -> Result<String, Failure> {
    let mut text = typed.join(" ");
    if !std::io::stdin().is_terminal() {
        let mut piped = Vec::new();
        std::io::stdin()
            .lock()
            .take(MAX_TEXT + 1)
            .read_to_end(&mut piped)?;
        if piped.len() as u64 > MAX_TEXT {
            return Err(Failure::usage("standard input is longer than 4 MiB")
                .hint("attach a file with @path instead"));
        }
        let piped = String::from_utf8_lossy(&piped);
        if !piped.trim().is_empty() {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(piped.trim_end());
        }
    }
    Ok(text)
}

/// The command that a line begins with: a slash and a word. Paths are none.
pub(crate) fn slash_command(line: &str) -> Option<&str> {
    let command = line.split_whitespace().next()?;
    let name = command.strip_prefix('/')?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (!name.is_empty() && name.chars().all(is_word)).then_some(command)
}

#[cfg(test)]
mod tests {
    use super::slash_command;

    #[test]
    fn a_slash_and_a_word_is_a_command_and_a_path_is_none() {
        for (line, expect) in [
            ("/model x", Some("/model")),
            ("/quit", Some("/quit")),
            ("/usr/bin/env is missing", None),
            ("/ is full", None),
            ("a /b", None),
            ("", None),
        ] {
            assert_eq!(slash_command(line), expect, "{line}");
        }
    }
}
