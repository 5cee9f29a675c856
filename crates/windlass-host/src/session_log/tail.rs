//! The end of a log: finds the last valid line, and moves the remains of an interrupted write to another file. A log of
//! a newer version or with other damage is never changed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, Order, VERSION};
use windlass_core::id::SessionId;
use windlass_core::store::{StoreError, StoreErrorKind};

use super::disk::LogDisk;
use super::events::repair_advice;
use super::salvage::{copy_synced, create_numbered};
use super::{MAX_LINE, failed, version_error};
use crate::workspace::read_range;

/// The number of bytes that are read from the end at first; it doubles until a valid line is found.
const WINDOW: u64 = 16 * 1024;
/// An interrupted write damages the last line and possibly a few that were not synced. More bad lines are damage.
const MAX_TORN_LINES: usize = 16;
/// The size of one read while zeros are skipped, and the maximum of all reads.
const ZEROS: u64 = 64 * 1024;
const MAX_ZEROS: u64 = 256 << 20;

/// The fields that every line begins with.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct LineHeader {
    v: u64,
    pub(super) seq: u64,
    pub(super) at: Timestamp,
}

/// The result of inspecting the end of a log.
#[derive(Debug)]
pub(super) struct LogTail {
    /// The offset at which the last valid line ends.
    pub(super) end: u64,
    /// The header of that line; `None` in an empty log.
    pub(super) last: Option<LineHeader>,
    /// The offset after the last byte that is not zero.
    used: u64,
}

/// Parses the header of a line. Returns `None` if it is not an event, and an error if it has another version.
pub(super) fn header(line: &[u8], path: &Path) -> Result<Option<LineHeader>, StoreError> {
    match serde_json::from_slice::<LineHeader>(line) {
        Ok(header) if header.v != u64::from(VERSION) => Err(version_error(path, header.v)),
        Ok(header) => Ok(Some(header)),
        // Another version may have completely different fields.
        Err(_) => other_version(line, path).map_or(Ok(None), Err),
    }
}

/// Returns the error for a line of another version.
pub(super) fn other_version(line: &[u8], path: &Path) -> Option<StoreError> {
    #[derive(Deserialize)]
    struct Version {
        v: u64,
    }
    let Version { v } = serde_json::from_slice(line).ok()?;
    (v != u64::from(VERSION)).then(|| version_error(path, v))
}

/// Inspects the end of a log without changing it.
pub(super) fn inspect(
    file: &File,
    len: u64,
    path: &Path,
    session: &SessionId,
) -> Result<LogTail, StoreError> {
    let mut window = WINDOW;
    let len = without_zeros(file, len, path, session)?;
    loop {
        let start = len.saturating_sub(window);
        let bytes =
            read_range(file, len, start, window).map_err(|err| failed("read", path, &err))?;
        // The window usually starts in the middle of a line.
        let skip = if start == 0 {
            0
        } else {
            memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |at| at + 1)
        };
        let mut end = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
        let mut torn = 0;
        while end > skip && torn <= MAX_TORN_LINES {
            let line_start = memchr::memrchr(b'\n', &bytes[..end - 1]).map_or(0, |at| at + 1);
            if let Some(header) = header(&bytes[line_start..end - 1], path)? {
                return Ok(LogTail {
                    end: start + end as u64,
                    last: Some(header),
                    used: len,
                });
            }
            torn += 1;
            end = line_start;
        }
        if torn > MAX_TORN_LINES || (start == 0 && torn > 0) || window > MAX_LINE as u64 {
            // The first line is not an event, or too many lines are unreadable for one interrupted write.
            let message = format!(
                "{}: its last lines are not events; {}",
                path.display(),
                repair_advice(session)
            );
            return Err(StoreError::new(StoreErrorKind::Damaged, message));
        }
        if start == 0 {
            return Ok(LogTail {
                end: 0,
                last: None,
                used: len,
            });
        }
        window *= 2;
    }
}

/// Returns the offset at which the trailing zeros begin, which a power cut may leave in a file.
fn without_zeros(
    file: &File,
    mut len: u64,
    path: &Path,
    session: &SessionId,
) -> Result<u64, StoreError> {
    let mut left = MAX_ZEROS / ZEROS;
    // Most logs do not end with zeros; then checking the last byte is enough.
    let last = read_range(file, len, len.saturating_sub(1), 1)
        .map_err(|err| failed("read", path, &err))?;
    if last != [0] {
        return Ok(len);
    }
    let zeros = [0; ZEROS as usize];
    while len > 0 {
        let start = len.saturating_sub(ZEROS);
        let bytes =
            read_range(file, len, start, ZEROS).map_err(|err| failed("read", path, &err))?;
        if !bytes.starts_with(&zeros[..bytes.len()])
            && let Some(last) = bytes.iter().rposition(|byte| *byte != 0)
        {
            return Ok(start + last as u64 + 1);
        }
        if left == 0 {
            let what = "it ends in more zeros than an interrupted write leaves";
            let message = format!("{}: {what}; {}", path.display(), repair_advice(session));
            return Err(StoreError::new(StoreErrorKind::Damaged, message));
        }
        left -= 1;
        len = start;
    }
    Ok(0)
}

/// Returns the end of the event after the last valid line, if it lacks only its line end.
pub(super) fn complete_without_line_end(
    file: &File,
    tail: &LogTail,
    path: &Path,
) -> Result<Option<u64>, StoreError> {
    if tail.used <= tail.end || tail.used - tail.end > MAX_LINE as u64 {
        return Ok(None);
    }
    let line = read_range(file, tail.used, tail.end, MAX_LINE as u64)
        .map_err(|err| failed("read", path, &err))?;
    let Ok(event) = serde_json::from_slice::<Event>(&line) else {
        return other_version(&line, path).map_or(Ok(None), Err);
    };
    let next = tail.last.map_or(1, |last| last.seq.saturating_add(1));
    let fits = event.order == Order::Durable { seq: next } && !line.contains(&b'\n');
    Ok(fits.then_some(tail.used))
}

/// Adds the missing line end to the last event.
pub(super) fn add_line_end(
    disk: &LogDisk,
    log: &File,
    end: u64,
    path: &Path,
) -> Result<String, StoreError> {
    let given = disk
        .truncate(log, end)
        .and_then(|()| disk.write_line(log, b""));
    given.map_err(|err| failed("repair", path, &err))?;
    Ok(format!(
        "the last line of {} had no line end because a write was interrupted; it was added",
        path.display()
    ))
}

/// Copies the bytes after the last valid line to a new file, then truncates the log.
pub(super) fn move_torn_end(
    disk: &LogDisk,
    mut from: &File,
    log: &File,
    torn: std::ops::Range<u64>,
    path: &Path,
) -> Result<String, StoreError> {
    let fail = |err: io::Error| failed("repair", path, &err);
    let (copy, copy_path) = create_numbered(disk, path, "torn").map_err(fail)?;
    from.seek(SeekFrom::Start(torn.start)).map_err(fail)?;
    // Sync the copy before truncating the original.
    copy_synced(disk, &mut from.take(torn.end - torn.start), copy).map_err(fail)?;
    disk.truncate(log, torn.start).map_err(fail)?;
    Ok(format!(
        "the end of {} was incomplete because a write was interrupted; its {} bytes were moved to {}",
        path.display(),
        torn.end - torn.start,
        copy_path.display()
    ))
}
