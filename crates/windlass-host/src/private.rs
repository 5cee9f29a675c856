//! Directories that only their owner may enter: sessions, artifacts, settings.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use windlass_core::workspace::FileError;

use crate::workspace::from_io;

/// Makes a directory and its missing parents, all of them for the owner alone. One that exists stays as it is.
pub(crate) fn create_dir(path: &Path) -> Result<(), FileError> {
    // The common case costs one call: it is there.
    if rustix::fs::access(path, rustix::fs::Access::EXISTS).is_ok() {
        return Ok(());
    }
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|err| from_io(path, &err))
}
