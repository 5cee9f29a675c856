//! Everything that is printed goes through here: a reader that went away never panics the process, and is not forgotten.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use crate::safe::{plain, write_json};
use crate::view::style::only_colours;

/// What went wrong with standard output, the first time it did.
static BROKEN: OnceLock<(ErrorKind, String)> = OnceLock::new();

/// Writes text to standard output, now. Whoever made it: nothing in it drives a terminal.
pub(crate) fn out(text: &str) {
    out_with(|out| out.write_all(plain(text).as_bytes()));
}

/// Writes text to standard output with the colours of [`crate::view::style::Paint`] and no other escape sequence.
pub(crate) fn styled(text: &str) {
    out_with(|out| out.write_all(only_colours(text).as_bytes()));
}

/// Writes a value to standard output as one line of JSON, without a copy of it.
pub(crate) fn json(value: &impl serde::Serialize) {
    out_with(|out| {
        write_json(&mut *out, value)?;
        out.write_all(b"\n")
    });
}

/// Lets something write to standard output, buffered.
fn out_with(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let written = write(&mut out).and_then(|()| out.flush());
    // What could not be written is not tried again when the buffer is dropped.
    let (_, _) = out.into_parts();
    if let Err(err) = written {
        BROKEN.get_or_init(|| (err.kind(), err.to_string()));
    }
}

/// Writes to standard error, with our own colours and nothing else; nobody can be told when that fails.
pub(crate) fn err(text: &str) {
    let text = only_colours(text);
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Why standard output takes nothing more, if so.
pub(crate) fn broken() -> Option<&'static (ErrorKind, String)> {
    BROKEN.get()
}

/// A line on standard error.
macro_rules! say {
    ($($words:tt)*) => { $crate::out::err(&format!("{}\n", format_args!($($words)*))) };
}
pub(crate) use say;
