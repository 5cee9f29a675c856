//! The text of a prompt: from arguments and standard input.

use std::io::{IsTerminal, Read};

use crate::command_error::CommandError;

/// The longest prompt from standard input, in bytes.
const MAX_TEXT: u64 = 4 << 20;

/// Joins the arguments, and appends standard input if it is not a terminal.
pub(crate) fn prompt_text(args: &[String]) -> Result<String, CommandError> {
    let mut text = args.join(" ");
    if !std::io::stdin().is_terminal() {
        let mut piped = Vec::new();
        std::io::stdin()
            .lock()
            .take(MAX_TEXT + 1)
            .read_to_end(&mut piped)?;
        if piped.len() as u64 > MAX_TEXT {
            return Err(CommandError::usage("standard input is longer than 4 MiB")
                .hint("attach a file with `@path` instead"));
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

/// Returns the slash command at the start of a line, such as `/quit`. Paths such as `/usr/bin` are not commands.
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
    fn a_slash_and_a_word_is_a_command_and_a_path_is_not() {
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
