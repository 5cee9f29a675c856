//! All output of the process. A closed pipe never panics; the first error of standard output is remembered.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use windlass_text::StyledLine;
use windlass_text::sanitize::plain;

use crate::sanitize::write_json;
use crate::view::style::{encoded, stderr_colors, stdout_colors};

/// The first error of standard output.
static STDOUT_ERROR: OnceLock<(ErrorKind, String)> = OnceLock::new();

/// Writes text to standard output and flushes it. Terminal escapes are removed, whatever the source of the text.
pub(crate) fn out(text: &str) {
    out_with(|out| out.write_all(plain(text).as_bytes()));
}

/// Writes lines to standard output, with colours on a terminal.
pub(crate) fn out_lines(lines: &[StyledLine]) {
    if !lines.is_empty() {
        let text = encoded(lines, stdout_colors()) + "\n";
        out_with(|out| out.write_all(text.as_bytes()));
    }
}

/// Writes a value to standard output as one line of JSON, without building the line in memory.
pub(crate) fn json(value: &impl serde::Serialize) {
    out_with(|out| {
        write_json(&mut *out, value)?;
        out.write_all(b"\n")
    });
}

/// Runs a closure with buffered standard output and remembers its error.
fn out_with(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let written = write(&mut out).and_then(|()| out.flush());
    // After an error, dropping the `BufWriter` would write the rest of the buffer again.
    let (_, _) = out.into_parts();
    if let Err(err) = written {
        STDOUT_ERROR.get_or_init(|| (err.kind(), err.to_string()));
    }
}

/// Writes text to standard error. Terminal escapes are removed.
pub(crate) fn err(text: &str) {
    err_unchecked(&plain(text));
}

/// Writes lines to standard error, with colours on a terminal.
pub(crate) fn err_lines(lines: &[StyledLine]) {
    if !lines.is_empty() {
        err_unchecked(&(encoded(lines, stderr_colors()) + "\n"));
    }
}

/// Writes lines to standard error, with colours on a terminal. The cursor stays at the end of the last line.
pub(crate) fn err_open_line(lines: &[StyledLine]) {
    err_unchecked(&encoded(lines, stderr_colors()));
}

/// Writes the escape sequences of [`windlass::notifications::TerminalAlert`], which contain only sanitized text, to standard
/// error.
pub(crate) fn alert(text: &str) {
    err_unchecked(text);
}

/// Errors are ignored: no other output is left to report them.
fn err_unchecked(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// The first error of standard output, if there was one.
pub(crate) fn stdout_error() -> Option<&'static (ErrorKind, String)> {
    STDOUT_ERROR.get()
}

/// Prints a line to standard error.
macro_rules! say {
    ($($words:tt)*) => { $crate::out::err(&format!("{}\n", format_args!($($words)*))) };
}
pub(crate) use say;
