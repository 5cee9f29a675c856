//! Salvages a damaged log: the events before the damage become the session's log. The damaged file is kept unchanged.
//! Readable events after the damage go to a separate file: they must not become part of the log again, because it is
//! unknown what is missing in between.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use windlass_core::event::{Line, Order, read_line};
use windlass_core::id::SessionId;
use windlass_core::store::{StoreError, StoreErrorKind};

use super::disk::LogDisk;
use super::events::{Events, LinePosition};
use super::lines::LogLines;
use super::{MAX_NAME_ATTEMPTS, SessionLog, failed, lease, open_log};

/// The result of salvaging a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Salvaged {
    pub id: SessionId,
    /// The number of events in the log now.
    pub kept: u64,
    /// The number of lines that were removed, from the first bad one on.
    pub lost: u64,
    /// `None` if the log was not damaged; then it is unchanged.
    pub first_bad_line: Option<u64>,
    /// The file in its original state: the log itself if it was not damaged.
    pub original: PathBuf,
    /// The file with the readable lines after the damage, if there are any.
    pub rest: Option<PathBuf>,
}

impl SessionLog {
    /// Keeps the events before the damage as the session's log. A log without damage stays the same.
    pub fn salvage(&self, session: &SessionId) -> Result<Salvaged, StoreError> {
        let path = self.log_path(session);
        open_log(&path, session)?;
        let _lease = lease::acquire(&self.disk, &self.home(session), session)?;
        let (file, _) = open_log(&path, session)?;
        let again = || open_log(&path, session).map(|(file, _)| file);
        let (kept, damage) = good_events(file, &path, session)?;
        let Some(bad) = damage else {
            let id = session.clone();
            return Ok(Salvaged {
                id,
                kept,
                lost: 0,
                first_bad_line: None,
                original: path,
                rest: None,
            });
        };
        if kept == 0 {
            let message = format!(
                "{}: its first line is not an event, so there is nothing to salvage; the file was not changed. \
                 Restore it from a backup, or delete the session",
                path.display()
            );
            return Err(StoreError::new(StoreErrorKind::Damaged, message));
        }
        let fail = |err: io::Error| failed("salvage", &path, &err);
        let new = path.with_extension("jsonl.new");
        let (rest, lost) = self.save_rest(again()?, &path, bad)?;
        self.copy_start(again()?, &new, bad.offset).map_err(fail)?;
        let original = self.keep_original(&path).map_err(fail)?;
        // The rename atomically replaces the damaged log with the good one.
        self.disk.rename(&new, &path).map_err(fail)?;
        let home = self.home(session);
        self.disk.sync_dir(&home).map_err(fail)?;
        let _ = self.disk.remove(&path.with_extension("idx"));
        let first_bad_line = Some(bad.number);
        Ok(Salvaged {
            id: session.clone(),
            kept,
            lost,
            first_bad_line,
            original,
            rest,
        })
    }

    /// Writes the readable lines after the damage to a separate file. Also returns the number of all lines from the
    /// damage on.
    fn save_rest(
        &self,
        file: File,
        path: &Path,
        bad: LinePosition,
    ) -> Result<(Option<PathBuf>, u64), StoreError> {
        let fail = |err: io::Error| failed("salvage", path, &err);
        let mut lines = LogLines::new(file, path.to_owned(), None);
        lines.seek(bad.offset, bad.number)?;
        let mut rest: Option<(BufWriter<DiskWriter<'_>>, PathBuf)> = None;
        let mut lost = 0;
        loop {
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                // The line has no line end, so it cannot be separated from the bytes after it.
                Err(err) if err.kind == StoreErrorKind::Damaged => {
                    lost += 1;
                    break;
                }
                Err(err) => return Err(err),
            };
            lost += 1;
            if !readable(line) {
                continue;
            }
            if rest.is_none() {
                let (file, name) =
                    create_numbered(&self.disk, path, "jsonl.after").map_err(fail)?;
                rest = Some((
                    BufWriter::new(DiskWriter {
                        disk: &self.disk,
                        file,
                    }),
                    name,
                ));
            }
            if let Some((rest, _)) = &mut rest {
                rest.write_all(line)
                    .and_then(|()| rest.write_all(b"\n"))
                    .map_err(fail)?;
            }
        }
        let Some((rest, name)) = rest else {
            return Ok((None, lost));
        };
        let writer = rest.into_inner().map_err(|err| fail(err.into_error()))?;
        self.disk.sync(&writer.file).map_err(fail)?;
        Ok((Some(name), lost))
    }

    fn copy_start(&self, mut from: File, to: &Path, len: u64) -> io::Result<()> {
        // An earlier attempt may have left this file.
        let _ = self.disk.remove(to);
        let file = self.disk.create(to)?;
        from.seek(SeekFrom::Start(0))?;
        let copied = copy_synced(&self.disk, &mut from.take(len), file)?;
        if copied != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Adds a second name to the damaged file, so that it exists under at least one name at any time.
    fn keep_original(&self, path: &Path) -> io::Result<PathBuf> {
        for n in 1..=MAX_NAME_ATTEMPTS {
            let name = path.with_extension(format!("jsonl.damaged-{n}"));
            match self.disk.link(path, &name) {
                Ok(()) => return Ok(name),
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
                // The file system may not support hard links.
                Err(_) => {
                    let (file, name) = create_numbered(&self.disk, path, "jsonl.damaged")?;
                    copy_synced(&self.disk, &mut File::open(path)?, file)?;
                    return Ok(name);
                }
            }
        }
        Err(io::Error::other(
            "too many copies of damaged logs exist already",
        ))
    }
}

/// Returns the number of events before the damage, and its position.
fn good_events(
    file: File,
    path: &Path,
    session: &SessionId,
) -> Result<(u64, Option<LinePosition>), StoreError> {
    let mut events = Events::new(file, path.to_owned(), session.clone(), |_| true);
    let mut kept = 0;
    while let Some(event) = events.next() {
        match event {
            Ok(_) => kept += 1,
            Err(err) if err.kind == StoreErrorKind::Damaged => {
                return Ok((kept, Some(events.position)));
            }
            Err(err) => return Err(err),
        }
    }
    Ok((kept, None))
}

fn readable(line: &[u8]) -> bool {
    let read = std::str::from_utf8(line)
        .ok()
        .and_then(|line| read_line(line, |_| true).ok());
    matches!(read, Some(Line::Event(event)) if matches!(event.order, Order::Durable { .. }))
}

/// Creates a file next to the log, `events.<what>-<n>`, with the first free number.
pub(super) fn create_numbered(
    disk: &LogDisk,
    log: &Path,
    what: &str,
) -> io::Result<(File, PathBuf)> {
    for n in 1..=MAX_NAME_ATTEMPTS {
        let name = log.with_extension(format!("{what}-{n}"));
        match disk.create(&name) {
            Ok(file) => return Ok((file, name)),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(err),
        }
    }
    Err(io::Error::other(
        "too many files of this name exist already",
    ))
}

/// Copies into a new file and syncs it. Returns the number of bytes.
pub(super) fn copy_synced(disk: &LogDisk, from: &mut impl Read, file: File) -> io::Result<u64> {
    let mut writer = DiskWriter { disk, file };
    let copied = io::copy(from, &mut writer)?;
    disk.sync(&writer.file)?;
    Ok(copied)
}

/// A file writer that uses [`LogDisk`].
struct DiskWriter<'a> {
    disk: &'a LogDisk,
    file: File,
}

impl Write for DiskWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.disk.write(&self.file, bytes)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
