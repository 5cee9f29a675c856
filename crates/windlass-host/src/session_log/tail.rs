//! The end of a log: which line is the last good one, and setting aside what an interrupted write left after it.
//! A log of a newer version or with other damage is never changed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, Order, VERSION};
use windlass_core::id::SessionId;
use windlass_core::store::{StoreError, StoreErrorKind};

use super::disk::Disk;
use super::events::way_out;
use super::salvage::{copy_synced, create_numbered};
use super::{MAX_LINE, failed, version_error};
use crate::workspace::read_range;

/// The first look at the end of a log; it doubles until a good line is found.
const WINDOW: u64 = 16 * 1024;
/// An interrupted write spoils the line in flight and perhaps a few that were not on disk yet. More is damage.
const MAX_TORN_LINES: usize = 16;
/// Zeros are looked for in pieces of this size, up to so many in all.
const ZEROS: u64 = 64 * 1024;
const MAX_ZEROS: u64 = 256 << 20;

/// What every line begins with.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Header {
    v: u64,
    pub(super) seq: u64,
    pub(super) at: Timestamp,
}

/// What the end of a log looks like.
#[derive(Debug)]
pub(super) struct Tail {
    /// Where the last good line ends.
    pub(super) end: u64,
    /// What that line begins with; none in an empty log.
    pub(super) last: Option<Header>,
    /// Where the last byte is that is not zero.
    used: u64,
}

/// The header of a line, or none when it is no event; an error when it is one of another version.
pub(super) fn header(line: &[u8], path: &Path) -> Result<Option<Header>, StoreError> {
    match serde_json::from_slice::<Header>(line) {
        Ok(header) if header.v != u64::from(VERSION) => Err(version_error(path, header.v)),
        Ok(header) => Ok(Some(header)),
        // Another version may have another shape altogether.
        Err(_) => other_version(line, path).map_or(Ok(None), Err),
    }
}

/// The refusal of a line of another version.
pub(super) fn other_version(line: &[u8], path: &Path) -> Option<StoreError> {
    #[derive(Deserialize)]
    struct Version {
        v: u64,
    }
    let Version { v } = serde_json::from_slice(line).ok()?;
    (v != u64::from(VERSION)).then(|| version_error(path, v))
}

/// Looks at the end of a log, without changing it.
pub(super) fn inspect(
    file: &File,
    len: u64,
    path: &Path,
    session: &SessionId,
) -> Result<Tail, StoreError> {
    let mut window = WINDOW;
    let len = without_zeros(file, len, path, session)?;
    loop {
        let start = len.saturating_sub(window);
        let bytes =
            read_range(file, len, start, window).map_err(|err| failed("read", path, &err))?;
        // The first piece of a window begins somewhere inside a line.
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
                return Ok(Tail {
                    end: start + end as u64,
                    last: Some(header),
                    used: len,
                });
            }
            torn += 1;
            end = line_start;
        }
        if torn > MAX_TORN_LINES || (start == 0 && torn > 0) || window > MAX_LINE as u64 {
            // Not even the first line is an event, or too much is unreadable for one interrupted write.
            let message = format!(
                "{}: its last lines are not events; {}",
                path.display(),
                way_out(session)
            );
            return Err(StoreError::new(StoreErrorKind::Damaged, message));
        }
        if start == 0 {
            return Ok(Tail {
                end: 0,
                last: None,
                used: len,
            });
        }
        window *= 2;
    }
}

/// Where the zeros begin that a power cut may leave at the end of a file.
fn without_zeros(
    file: &File,
    mut len: u64,
    path: &Path,
    session: &SessionId,
) -> Result<u64, StoreError> {
    let mut left = MAX_ZEROS / ZEROS;
    // Most logs end in none, and then the last byte says so.
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
            let message = format!("{}: {what}; {}", path.display(), way_out(session));
            return Err(StoreError::new(StoreErrorKind::Damaged, message));
        }
        left -= 1;
        len = start;
    }
    Ok(0)
}

/// Where the event ends that comes after the last good line and lacks nothing but its end; none when there is no such.
pub(super) fn whole_without_end(
    file: &File,
    tail: &Tail,
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

/// Ends a line that lacks nothing but its end.
pub(super) fn give_end(
    disk: &Disk,
    log: &File,
    end: u64,
    path: &Path,
) -> Result<String, StoreError> {
    let given = disk
        .truncate(log, end)
        .and_then(|()| disk.write_line(log, b""));
    given.map_err(|err| failed("repair", path, &err))?;
    Ok(format!(
        "the last line of {} had no end, which an interrupted write left out; it was given one",
        path.display()
    ))
}

/// Copies what comes after the last good line into a file beside the log, then cuts it off the log.
pub(super) fn set_aside(
    disk: &Disk,
    mut from: &File,
    log: &File,
    torn: std::ops::Range<u64>,
    path: &Path,
) -> Result<String, StoreError> {
    let fail = |err: io::Error| failed("repair", path, &err);
    let (aside, aside_path) = create_numbered(disk, path, "torn").map_err(fail)?;
    from.seek(SeekFrom::Start(torn.start)).map_err(fail)?;
    // The copy is safe before the original is cut.
    copy_synced(disk, &mut from.take(torn.end - torn.start), aside).map_err(fail)?;
    disk.truncate(log, torn.start).map_err(fail)?;
    Ok(format!(
        "the end of {} was not written whole ({} bytes, by an interrupted write) and was set aside in {}",
        path.display(),
        torn.end - torn.start,
        aside_path.display()
    ))
}
