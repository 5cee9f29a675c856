//! A saved fold beside a long log. It counts only if the log still begins with exactly the bytes that were folded, which a
//! checksum over them shows; otherwise the log is read as if there were none. Reading the bytes is several times faster
//! than reading the events in them.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crc32fast::Hasher;
use windlass_core::store::Snapshot;

use super::disk::Disk;
use crate::workspace::open_regular_itself;

/// A log that grew by less is folded faster than a snapshot is checked; the logs of tests are shorter.
const MIN_GROWTH: u64 = if cfg!(test) { 1 << 12 } else { 4 << 20 };
/// The first bytes of the file. Another format gets other ones.
const MAGIC: &[u8; 8] = b"wl-snap1";
const HEADER: usize = 24;
const BUFFER: usize = 1 << 18;

/// The header of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    /// Where the line of its last event ends.
    end: u64,
    /// The checksum of the log up to there.
    log: u32,
    /// The checksum of the state.
    state: u32,
}

impl Header {
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

/// Where the log ended when the last snapshot was saved; zero without one.
pub(super) fn saved_at(log: &Path) -> u64 {
    let header = open_regular_itself(&path(log))
        .ok()
        .and_then(|(file, _)| Header::read(&file));
    header.map_or(0, |header| header.end)
}

/// Whether a log of that length has grown enough since its last snapshot. The cost of saving stays a fraction of the
/// cost of writing the log.
pub(super) fn is_due(len: u64, saved_at: u64) -> bool {
    len.saturating_sub(saved_at) > MIN_GROWTH.max(len / 8)
}

/// The snapshot beside a log, if it fits.
pub(super) fn load(log: &Path) -> Option<Snapshot> {
    let (file, stat) = open_regular_itself(&path(log)).ok()?;
    let header = Header::read(&file)?;
    let (text, log_stat) = open_regular_itself(log).ok()?;
    let fits = header.end <= log_stat.size
        && checksum(&file, HEADER as u64..stat.size).ok()? == header.state
        && checksum(&text, 0..header.end).ok()? == header.log;
    fits.then(|| -> Snapshot {
        Box::new(From {
            file,
            at: HEADER as u64,
        })
    })
}

/// Saves a fold of a log up to `end`, beside it under another name first, so that there is always a whole one.
pub(super) fn save(
    disk: &Disk,
    log: &Path,
    end: u64,
    state: &dyn Fn(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let beside = log.with_extension("snap-new");
    // One that a killed process left; only the writer of the log comes here.
    let _ = disk.remove(&beside);
    let saved = disk.create(&beside).and_then(|file| {
        // The header is known last.
        let mut header = Header {
            end,
            log: 0,
            state: 0,
        };
        disk.write(&file, &header.bytes())?;
        let mut to = Summed {
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
        disk.write_at(&beside, &header.bytes())?;
        disk.rename(&beside, &path(log))
    });
    if saved.is_err() {
        let _ = disk.remove(&beside);
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

/// A file from a place on.
struct From {
    file: File,
    at: u64,
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// A writer that sums what it writes.
struct Summed<'a> {
    to: &'a File,
    sum: Hasher,
}

impl Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = (&mut self.to).write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
