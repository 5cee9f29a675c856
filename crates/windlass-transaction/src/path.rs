//! Converts between the text of a path in a swap and the bytes of a path in the file system.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use windlass_core::path_text::{from_text, to_text};

/// Decodes the text of a path.
pub(crate) fn path_of(text: &str) -> Cow<'_, Path> {
    match from_text(text) {
        Cow::Borrowed(bytes) => Cow::Borrowed(Path::new(OsStr::from_bytes(bytes))),
        Cow::Owned(bytes) => Cow::Owned(PathBuf::from(std::ffi::OsString::from_vec(bytes))),
    }
}

/// Encodes a path as text.
pub(crate) fn text_of(path: &Path) -> String {
    to_text(path.as_os_str().as_bytes())
}
