//! Reads a key: from the terminal without showing it, or from standard input if it is piped.

use std::io::{IsTerminal, Read};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use windlass::machine::Secret;

use crate::command_error::CommandError;
use crate::exit;
use crate::out::err;

/// The most that is read, in bytes.
const MAX_INPUT: usize = 64 << 10;

/// Reads a key. The question is shown only at a terminal.
pub(crate) fn read_key(question: &str) -> Result<Secret, CommandError> {
    let bytes = match std::io::stdin().is_terminal() {
        true => read_hidden(question)?,
        false => {
            let mut bytes = Vec::new();
            let most = MAX_INPUT as u64;
            std::io::stdin().take(most).read_to_end(&mut bytes)?;
            bytes
        }
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| CommandError::usage("the key is not text").hint("copy it again"))?;
    Ok(Secret::new(text.trim()))
}

/// Restores the modes of the terminal.
struct TerminalModes(Termios);

impl Drop for TerminalModes {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Reads a line without echo. The terminal sends no signals meanwhile, so that Ctrl-C cannot leave it without echo.
fn read_hidden(question: &str) -> Result<Vec<u8>, CommandError> {
    let stdin = std::io::stdin();
    let before = tcgetattr(&stdin).map_err(std::io::Error::from)?;
    let mut quiet = before.clone();
    quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
    quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
    quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
    let modes = TerminalModes(before);
    tcsetattr(&stdin, OptionalActions::Now, &quiet).map_err(std::io::Error::from)?;
    err(question);
    let mut line = Vec::new();
    let mut byte = [0];
    let ended = loop {
        if stdin.lock().read(&mut byte)? == 0 || !apply(&mut line, byte[0]) {
            break byte[0];
        }
    };
    drop(modes);
    err("\n");
    match ended {
        INTERRUPT | END if line.is_empty() => Err(CommandError::new(
            exit::INTERRUPTED,
            "no key was entered, so nothing is stored",
        )),
        INTERRUPT => Err(CommandError::new(
            exit::INTERRUPTED,
            "interrupted; nothing is stored",
        )),
        _ => Ok(line),
    }
}

const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;

/// Applies a typed byte. Returns false at the end of the line.
fn apply(line: &mut Vec<u8>, byte: u8) -> bool {
    match byte {
        b'\n' | b'\r' | INTERRUPT | END => return false,
        0x08 | 0x7f => {
            // Continuation bytes belong to the character before them.
            while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
        }
        // Ctrl-U clears the line.
        0x15 => line.clear(),
        byte if line.len() < MAX_INPUT => line.push(byte),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_edit_the_hidden_line() {
        let check = |typed: &str, expect: &str| {
            let mut line = Vec::new();
            for byte in typed.bytes() {
                if !apply(&mut line, byte) {
                    break;
                }
            }
            assert_eq!(String::from_utf8_lossy(&line), expect, "{typed:?}");
        };
        check("sk-1\rmore", "sk-1");
        check("sk-1\u{7f}2\n", "sk-2");
        check("aé\u{7f}b\n", "ab");
        check("\u{7f}a\n", "a");
        check("wrong\u{15}right\n", "right");
        check("ab\u{3}c", "ab");
    }
}
