//! Files that only the user can read, written at once or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Creates the directory of `file` for this user only, if it is missing.
pub(super) fn create_parent(file: &Path) -> io::Result<()> {
    let Some(parent) = file.parent() else {
        return Ok(());
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)
}

/// Replaces `file` by `bytes`: readers see the old or the new content, also after a crash.
pub(super) fn replace_file(file: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    create_parent(file)?;
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.{number}.new", std::process::id()));
    let temporary = file.with_file_name(name);
    let written = write_new(&temporary, bytes).and_then(|()| fs::rename(&temporary, file));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Reads at most the last `limit` bytes of a file. A missing file is empty.
pub(super) fn read_tail(file: &Path, limit: u64) -> io::Result<Vec<u8>> {
    use std::io::{Seek as _, SeekFrom};
    let mut opened = match open_regular(file, OpenOptions::new().read(true)) {
        Ok(opened) => opened,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(err) => return Err(err),
    };
    let size = opened.metadata()?.len();
    opened.seek(SeekFrom::Start(size.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    opened.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file and refuses anything else, for example a pipe, whose open would wait.
pub(super) fn open_regular(file: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match fs::metadata(file) {
        Ok(found) if !found.is_file() => Err(io::Error::other(format!(
            "{} is not a regular file",
            file.display()
        ))),
        _ => options.open(file),
    }
}

fn write_new(file: &PathBuf, bytes: &[u8]) -> io::Result<()> {
    let mut opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    opened.write_all(bytes)?;
    opened.sync_data()
}
