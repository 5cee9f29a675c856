//! All output of the process. A closed pipe never panics; the first error of standard output is remembered.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use crate::sanitize::{plain, write_json};
use crate::view::style::only_colours;

/// The first error of standard output.
static STDOUT_ERROR: OnceLock<(ErrorKind, String)> = OnceLock::new();

/// Writes text to standard output and flushes it. Terminal escapes are removed, whatever the source of the text.
pub(crate) fn out(text: &str) {
    out_with(|out| out.write_all(plain(text).as_bytes()));
}

/// Writes text to standard output with the colours of [`crate::view::style::Paint`]. Other escapes are removed.
pub(crate) fn styled(text: &str) {
    out_with(|out| out.write_all(only_colours(text).as_bytes()));
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

/// Writes to standard error with the colours of [`crate::view::style::Paint`]. Errors are ignored: no other output is
/// left to report them.
pub(crate) fn err(text: &str) {
    let text = only_colours(text);
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Writes the escape sequences of [`windlass::notifications::TerminalAlert`], which contain only sanitized text, to standard
/// error.
pub(crate) fn alert(text: &str) {
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
