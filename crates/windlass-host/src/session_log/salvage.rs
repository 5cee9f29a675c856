//! Keeping what can be kept of a damaged log: the exact events up to the damage stay the session's log. The damaged file
//! stays beside it untouched, and what can still be read after the damage is put into a file of its own: it may not
//! become part of the log again, because nobody knows what is missing between.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use windlass_core::event::{Line, Order, read_line};
use windlass_core::id::SessionId;
use windlass_core::store::{StoreError, StoreErrorKind};

use super::disk::Disk;
use super::events::{Events, Place};
use super::lines::Lines;
use super::{NAME_TRIES, SessionLog, failed, lease, open_log};

/// What became of a damaged log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Salvaged {
    /// Whose log.
    pub id: SessionId,
    /// Events that are its log now.
    pub kept: u64,
    /// Lines that are not in it any more, from the first bad one on.
    pub lost: u64,
    /// The first bad line; none when the log was not damaged and was left as it is.
    pub first_bad_line: Option<u64>,
    /// The file as it was found: the log itself when it was not damaged.
    pub original: PathBuf,
    /// Where the lines after the damage are that can be read; none when there are none.
    pub rest: Option<PathBuf>,
}

impl SessionLog {
    /// Keeps the events up to the damage as the session's log. An undamaged log is left as it is.
    pub fn salvage(&self, session: &SessionId) -> Result<Salvaged, StoreError> {
        let path = self.log_path(session);
        open_log(&path, session)?;
        let _lease = lease::take(&self.disk, &self.home(session), session)?;
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
                "{}: not even its first line is an event, so there is nothing to go on from; the file is left as it is. \
                 Restore it from a copy, or delete the session",
                path.display()
            );
            return Err(StoreError::new(StoreErrorKind::Damaged, message));
        }
        let fail = |err: io::Error| failed("salvage", &path, &err);
        let new = path.with_extension("jsonl.new");
        let (rest, lost) = self.put_rest_aside(again()?, &path, bad)?;
        self.copy_start(again()?, &new, bad.offset).map_err(fail)?;
        let original = self.keep_original(&path).map_err(fail)?;
        // From here on the log is the good one; before, it was the damaged one.
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

    /// The readable lines from the damage on, in a file of their own; with how many lines there are in all.
    fn put_rest_aside(
        &self,
        file: File,
        path: &Path,
        bad: Place,
    ) -> Result<(Option<PathBuf>, u64), StoreError> {
        let fail = |err: io::Error| failed("salvage", path, &err);
        let mut lines = Lines::new(file, path.to_owned(), None);
        lines.seek(bad.offset, bad.number)?;
        let mut aside: Option<(BufWriter<Through<'_>>, PathBuf)> = None;
        let mut lost = 0;
        loop {
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                // A line without an end: what is behind it cannot be told from it.
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
            if aside.is_none() {
                let (file, name) =
                    create_numbered(&self.disk, path, "jsonl.after").map_err(fail)?;
                aside = Some((
                    BufWriter::new(Through {
                        disk: &self.disk,
                        file,
                    }),
                    name,
                ));
            }
            if let Some((aside, _)) = &mut aside {
                aside
                    .write_all(line)
                    .and_then(|()| aside.write_all(b"\n"))
                    .map_err(fail)?;
            }
        }
        let Some((aside, name)) = aside else {
            return Ok((None, lost));
        };
        let through = aside.into_inner().map_err(|err| fail(err.into_error()))?;
        self.disk.sync(&through.file).map_err(fail)?;
        Ok((Some(name), lost))
    }

    fn copy_start(&self, mut from: File, to: &Path, len: u64) -> io::Result<()> {
        // One that an earlier try left.
        let _ = self.disk.remove(to);
        let file = self.disk.create(to)?;
        from.seek(SeekFrom::Start(0))?;
        let copied = copy_synced(&self.disk, &mut from.take(len), file)?;
        if copied != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Gives the damaged file a second name, so that it is there under one or the other at any moment.
    fn keep_original(&self, path: &Path) -> io::Result<PathBuf> {
        for n in 1..=NAME_TRIES {
            let name = path.with_extension(format!("jsonl.damaged-{n}"));
            match self.disk.link(path, &name) {
                Ok(()) => return Ok(name),
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
                // Not every file system has second names.
                Err(_) => {
                    let (file, name) = create_numbered(&self.disk, path, "jsonl.damaged")?;
                    copy_synced(&self.disk, &mut File::open(path)?, file)?;
                    return Ok(name);
                }
            }
        }
        Err(io::Error::other("too many damaged logs were kept before"))
    }
}

/// How many events come before the damage, and where that is.
fn good_events(
    file: File,
    path: &Path,
    session: &SessionId,
) -> Result<(u64, Option<Place>), StoreError> {
    let mut events = Events::new(file, path.to_owned(), session.clone(), |_| true);
    let mut kept = 0;
    while let Some(event) = events.next() {
        match event {
            Ok(_) => kept += 1,
            Err(err) if err.kind == StoreErrorKind::Damaged => {
                return Ok((kept, Some(events.place)));
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

/// A new file beside the log, `events.<what>-<n>` with the first number that is free.
pub(super) fn create_numbered(disk: &Disk, log: &Path, what: &str) -> io::Result<(File, PathBuf)> {
    for n in 1..=NAME_TRIES {
        let name = log.with_extension(format!("{what}-{n}"));
        match disk.create(&name) {
            Ok(file) => return Ok((file, name)),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(err),
        }
    }
    Err(io::Error::other(
        "too many such files were set aside before",
    ))
}

/// Copies into a new file and makes it last; gives the number of bytes.
pub(super) fn copy_synced(disk: &Disk, from: &mut impl Read, file: File) -> io::Result<u64> {
    let mut through = Through { disk, file };
    let copied = io::copy(from, &mut through)?;
    disk.sync(&through.file)?;
    Ok(copied)
}

/// Writing through the one door.
struct Through<'a> {
    disk: &'a Disk,
    file: File,
}

impl Write for Through<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.disk.write(&self.file, bytes)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
