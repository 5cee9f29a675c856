//! Stores large results as files of one session, named by ids that this module creates or core has checked. Files are
//! never overwritten, and their size is limited.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use windlass_core::id::ArtifactId;
use windlass_core::message::ArtifactRef;
use windlass_core::workspace::{
    ArtifactError, ArtifactWriter, Artifacts, FileError, FileErrorKind,
};

use crate::workspace::{from_errno, from_io, open_regular, open_regular_itself, read_range};

/// The maximum size of an artifact in bytes.
const CAP: u64 = 64 * 1024 * 1024;
/// A random name is free with overwhelming probability; a few attempts are enough.
const MAX_NAME_ATTEMPTS: u32 = 8;

/// The artifacts of one session, in a directory that is created with the first artifact.
#[derive(Debug)]
pub struct ArtifactDir {
    dir: PathBuf,
    /// The maximum size of an artifact in bytes.
    pub(crate) cap: u64,
}

impl ArtifactDir {
    /// Stores artifacts as files in `dir`.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, cap: CAP }
    }

    /// Shares all current artifacts with another session, as hard links; artifacts that it has already stay the same.
    /// Artifacts are never changed, so the sessions cannot affect each other.
    pub(crate) fn share(&self, to: &Self) -> Result<(), FileError> {
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(err) => return Err(from_io(&self.dir, &err)),
        };
        crate::private::create_dir(&to.dir)?;
        for entry in entries {
            let entry = entry.map_err(|err| from_io(&self.dir, &err))?;
            if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            let Some(id) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<ArtifactId>().ok())
            else {
                continue;
            };
            let path = to.dir.join(id.as_str());
            match std::fs::hard_link(entry.path(), &path) {
                Ok(()) => {}
                Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => {}
                // The file system may not support hard links.
                Err(_) => copy_new(&entry.path(), &path)?,
            }
        }
        Ok(())
    }

    /// Returns the size of an artifact in bytes.
    pub fn size(&self, id: &ArtifactId) -> Result<u64, ArtifactError> {
        let (_, stat) =
            open_regular(&self.dir.join(id.as_str())).map_err(|err| cannot("read", &err))?;
        Ok(stat.size)
    }

    fn open_new(&self) -> Result<FileWriter, ArtifactError> {
        crate::private::create_dir(&self.dir).map_err(|err| cannot("store", &err))?;
        for _ in 0..MAX_NAME_ATTEMPTS {
            let entropy = crate::clock::random_u64();
            let id = ArtifactId::nth(entropy >> 48, entropy);
            let path = self.dir.join(id.as_str());
            match create_new(&path) {
                Ok(file) => {
                    return Ok(FileWriter {
                        file,
                        path,
                        id,
                        bytes: 0,
                        cap: self.cap,
                        kept: false,
                    });
                }
                Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(cannot("store", &from_errno(&path, errno))),
            }
        }
        Err(ArtifactError(format!(
            "{}: no free name for an artifact was found",
            self.dir.display()
        )))
    }
}

impl Artifacts for ArtifactDir {
    fn put(&self, bytes: &[u8]) -> Result<ArtifactRef, ArtifactError> {
        let mut writer = self.create()?;
        writer.write(bytes)?;
        writer.finish()
    }

    fn create(&self) -> Result<Box<dyn ArtifactWriter>, ArtifactError> {
        Ok(Box::new(self.open_new()?))
    }

    fn read(&self, id: &ArtifactId, offset: u64, len: u64) -> Result<Vec<u8>, ArtifactError> {
        let path = self.dir.join(id.as_str());
        let opened = open_regular(&path);
        if opened
            .as_ref()
            .is_err_and(|err| err.kind == FileErrorKind::NotFound)
        {
            return Err(ArtifactError(format!(
                "there is no artifact `{id}` in this session"
            )));
        }
        let (file, stat) = opened.map_err(|err| cannot("read", &err))?;
        read_range(&file, stat.size, offset, len)
            .map_err(|err| cannot("read", &from_io(&path, &err)))
    }
}

/// Writes one artifact. Bytes over the limit are dropped; the size in the reference is the real one.
struct FileWriter {
    file: File,
    path: PathBuf,
    id: ArtifactId,
    bytes: u64,
    cap: u64,
    kept: bool,
}

impl ArtifactWriter for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        let room = usize::try_from(self.cap - self.bytes).unwrap_or(usize::MAX);
        let fits = &bytes[..bytes.len().min(room)];
        self.file
            .write_all(fits)
            .map_err(|err| cannot("store", &from_io(&self.path, &err)))?;
        self.bytes += fits.len() as u64;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<ArtifactRef, ArtifactError> {
        self.kept = true;
        Ok(ArtifactRef {
            id: self.id.clone(),
            bytes: self.bytes,
        })
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.kept {
            // The id was never returned, so the file is useless.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Copies a regular file to a new name. Removes an incomplete copy.
fn copy_new(from: &Path, to: &Path) -> Result<(), FileError> {
    let (mut file, _) = open_regular_itself(from)?;
    let mut copy = create_new(to).map_err(|errno| from_errno(to, errno))?;
    std::io::copy(&mut file, &mut copy)
        .map(|_| ())
        .map_err(|err| {
            let _ = std::fs::remove_file(to);
            from_io(to, &err)
        })
}

fn create_new(path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map(File::from)
}

fn cannot(what: &str, err: &FileError) -> ArtifactError {
    ArtifactError(format!("cannot {what} an artifact: {err}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_artifact_reads_by_range_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = ArtifactDir::new(dir.path().join("s/artifacts"));
        let stored = artifacts.put(b"0123456789").unwrap();
        assert_eq!(stored.bytes, 10);
        assert_eq!(artifacts.read(&stored.id, 2, 3).unwrap(), b"234");
        assert_eq!(artifacts.read(&stored.id, 9, u64::MAX).unwrap(), b"9");
        assert_eq!(artifacts.read(&stored.id, 99, 1).unwrap(), b"");
        let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(
            mode(dir.path().join("s/artifacts").join(stored.id.as_str())),
            0o600
        );
        assert_eq!(mode(dir.path().join("s/artifacts")), 0o700);
        let err = artifacts.read(&"nope".parse().unwrap(), 0, 1).unwrap_err();
        assert!(err.to_string().contains("no artifact `nope`"), "{err}");
    }

    #[test]
    fn an_artifact_ends_at_the_cap_and_an_unfinished_one_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = ArtifactDir {
            cap: 5,
            ..ArtifactDir::new(dir.path().to_owned())
        };
        let mut writer = artifacts.create().unwrap();
        writer.write(b"0123").unwrap();
        writer.write(b"4567").unwrap();
        writer.write(b"89").unwrap();
        let stored = writer.finish().unwrap();
        assert_eq!(stored.bytes, 5);
        assert_eq!(artifacts.read(&stored.id, 0, 99).unwrap(), b"01234");
        drop(artifacts.create().unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
