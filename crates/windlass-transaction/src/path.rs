//! Paths of swaps, which are text, as paths of the system, which are bytes.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use windlass_core::path_text::{from_text, to_text};

/// The path of a text.
pub(crate) fn path_of(text: &str) -> Cow<'_, Path> {
    match from_text(text) {
        Cow::Borrowed(bytes) => Cow::Borrowed(Path::new(OsStr::from_bytes(bytes))),
        Cow::Owned(bytes) => Cow::Owned(PathBuf::from(std::ffi::OsString::from_vec(bytes))),
    }
}

/// The text of a path.
pub(crate) fn text_of(path: &Path) -> String {
    to_text(path.as_os_str().as_bytes())
}
