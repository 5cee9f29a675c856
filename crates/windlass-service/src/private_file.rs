//! Small files that only their owner can read. Writing replaces a file atomically and durably.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::problem::{Problem, ProblemCode};

/// Maximum size of a file that is read, in bytes: the remembered keys of a day with their replies are the largest.
const MAX_BYTES: u64 = 1 << 30;

/// Creates a directory that only its owner can access.
pub(crate) fn create_dir(dir: &Path) -> Result<(), Problem> {
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    made.map_err(|err| failed("created", dir, &err))
}

/// Reads a file; `None` if it does not exist. A file that others can access is refused.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Problem> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(failed("read", path, &err)),
    };
    let meta = file.metadata().map_err(|err| failed("read", path, &err))?;
    if meta.mode() & 0o077 != 0 {
        return Err(Problem::new(
            ProblemCode::Internal,
            format!("{} can be read by other users", path.display()),
        )
        .hint(format!("run `chmod 600 {}`", path.display())));
    }
    let mut text = String::new();
    file.take(MAX_BYTES)
        .read_to_string(&mut text)
        .map_err(|err| failed("read", path, &err))?;
    Ok(Some(text))
}

/// Replaces a file.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    let fail = |err: &std::io::Error| failed("written", path, err);
    let dir = path.parent().unwrap_or(Path::new("."));
    create_dir(dir)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = dir.join(format!(".{name}.{}", std::process::id()));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(|err| fail(&err))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let moved = written.and_then(|()| std::fs::rename(&fresh, path));
    if let Err(err) = moved {
        let _ = std::fs::remove_file(&fresh);
        return Err(fail(&err));
    }
    // The new name must survive a power cut, too.
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|err| fail(&err))
}

fn failed(what: &str, path: &Path, err: &std::io::Error) -> Problem {
    let code = match err.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            ProblemCode::StorageFull
        }
        _ => ProblemCode::Internal,
    };
    Problem::new(code, format!("{} cannot be {what}: {err}", path.display()))
}
