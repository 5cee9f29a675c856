//! A snapshot of a fold, stored next to a long log. It is used only if the log still begins with exactly the bytes that
//! were folded, verified by a checksum; otherwise the log is read from its start. Computing the checksum is several
//! times faster than parsing the events.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crc32fast::Hasher;
use windlass_core::store::Snapshot;

use super::disk::LogDisk;
use crate::workspace::open_regular_itself;

/// If a log grew by less, folding it is faster than checking a snapshot; the logs of tests are shorter.
const MIN_GROWTH: u64 = if cfg!(test) { 1 << 12 } else { 4 << 20 };
/// The first bytes of the file. Another format gets another value.
const MAGIC: &[u8; 8] = b"wl-snap1";
const HEADER: usize = 24;
const BUFFER: usize = 1 << 18;

/// The header of a snapshot file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SnapshotHeader {
    /// The offset in the log at which the last folded line ends.
    end: u64,
    /// The checksum of the log up to `end`.
    log: u32,
    /// The checksum of the folded state.
    state: u32,
}

impl SnapshotHeader {
    fn bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.end.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.log.to_le_bytes());
        bytes[20..].copy_from_slice(&self.state.to_le_bytes());
        bytes
    }

    fn read(file: &File) -> Option<Self> {
        let mut bytes = [0; HEADER];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let short = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let header = Self {
            end: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
            log: short(16)?,
            state: short(20)?,
        };
        bytes.starts_with(MAGIC).then_some(header)
    }
}

/// Returns the length of the log at the last snapshot; zero without one.
pub(super) fn saved_at(log: &Path) -> u64 {
    let header = open_regular_itself(&path(log))
        .ok()
        .and_then(|(file, _)| SnapshotHeader::read(&file));
    header.map_or(0, |header| header.end)
}

/// Returns whether a log has grown enough since its last snapshot. The cost of saving stays a fraction of the cost of
/// writing the log.
pub(super) fn is_due(len: u64, saved_at: u64) -> bool {
    len.saturating_sub(saved_at) > MIN_GROWTH.max(len / 8)
}

/// Loads the snapshot of a log, if it is valid.
pub(super) fn load(log: &Path) -> Option<Snapshot> {
    let (file, stat) = open_regular_itself(&path(log)).ok()?;
    let header = SnapshotHeader::read(&file)?;
    let (text, log_stat) = open_regular_itself(log).ok()?;
    let fits = header.end <= log_stat.size
        && checksum(&file, HEADER as u64..stat.size).ok()? == header.state
        && checksum(&text, 0..header.end).ok()? == header.log;
    fits.then(|| -> Snapshot {
        Box::new(OffsetReader {
            file,
            at: HEADER as u64,
        })
    })
}

/// Saves a fold of a log up to `end` atomically, by a rename, so that there is always a complete snapshot.
pub(super) fn save(
    disk: &LogDisk,
    log: &Path,
    end: u64,
    state: &dyn Fn(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = log.with_extension("snap-new");
    // A killed process may have left this file; only the writer of the log comes here.
    let _ = disk.remove(&temporary);
    let saved = disk.create(&temporary).and_then(|file| {
        // The header is complete only after the state was written.
        let mut header = SnapshotHeader {
            end,
            log: 0,
            state: 0,
        };
        disk.write(&file, &header.bytes())?;
        let mut to = ChecksumWriter {
            to: &file,
            sum: Hasher::new(),
        };
        let mut buffered = BufWriter::with_capacity(BUFFER, &mut to);
        state(&mut buffered)?;
        buffered.flush()?;
        drop(buffered);
        header.state = to.sum.finalize();
        header.log = checksum(
            &open_regular_itself(log).map_err(io::Error::other)?.0,
            0..end,
        )?;
        disk.write_at(&temporary, &header.bytes())?;
        disk.rename(&temporary, &path(log))
    });
    if saved.is_err() {
        let _ = disk.remove(&temporary);
    }
    saved
}

fn path(log: &Path) -> std::path::PathBuf {
    log.with_extension("snap")
}

fn checksum(file: &File, range: std::ops::Range<u64>) -> io::Result<u32> {
    let mut sum = Hasher::new();
    let mut buffer = vec![0; BUFFER];
    let mut at = range.start;
    while at < range.end {
        let most = usize::try_from(range.end - at).map_or(BUFFER, |left| left.min(BUFFER));
        let read = file.read_at(&mut buffer[..most], at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        sum.update(&buffer[..read]);
        at += read as u64;
    }
    Ok(sum.finalize())
}

/// Reads a file from an offset on.
struct OffsetReader {
    file: File,
    at: u64,
}

impl Read for OffsetReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// A writer that computes the checksum of its output.
struct ChecksumWriter<'a> {
    to: &'a File,
    sum: Hasher,
}

impl Write for ChecksumWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = (&mut self.to).write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
