//! The index of a long log: the offsets of some lines, so that a reader can start in the middle without scanning the
//! lines before. The index is never trusted: an offset is used only if the line there has the expected sequence number.
//! Without an index, or with a wrong one, reading works and takes longer; a reader that had to scan writes a new index.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::disk::LogDisk;
use crate::workspace::open_regular_itself;

/// One mark is kept for each part of this size in bytes; the logs of tests are shorter. A reader scans half a part on
/// average, and the index of a log of one gibibyte has 128 KiB.
const PART: u64 = if cfg!(test) { 1 << 14 } else { 1 << 17 };
/// Enough for a log of 128 gibibytes.
const MAX_MARKS: usize = 1 << 20;
/// The first bytes of the file. Another format gets another value.
const MAGIC: &[u8; 8] = b"wl-idx1\n";
const MARK: usize = 16;

/// The start of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) seq: u64,
    pub(super) offset: u64,
}

/// The known marks, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    marks: Vec<Mark>,
    more: bool,
}

impl Marks {
    /// Loads the index of a log; empty if there is none or it is not usable.
    pub(super) fn load(log: &Path) -> Self {
        let marks = read(log).unwrap_or_default();
        Self { marks, more: false }
    }

    /// Returns the last mark at or before that event, if a line starts at its offset.
    pub(super) fn before(&self, seq: u64, log: &File) -> Option<Mark> {
        let count = self.marks.partition_point(|mark| mark.seq <= seq);
        let mark = *self.marks[..count].last()?;
        // The caller checks the line itself.
        let mut end = [0];
        log.read_exact_at(&mut end, mark.offset - 1).ok()?;
        (end == *b"\n").then_some(mark)
    }

    pub(super) fn clear(&mut self) {
        (self.marks, self.more) = (Vec::new(), false);
    }

    /// Adds a mark for a line that starts in a new part.
    pub(super) fn see(&mut self, seq: u64, offset: u64) {
        let last = self
            .marks
            .last()
            .copied()
            .unwrap_or(Mark { seq: 0, offset: 0 });
        if offset / PART > last.offset / PART && seq > last.seq && self.marks.len() < MAX_MARKS {
            self.marks.push(Mark { seq, offset });
            self.more = true;
        }
    }

    /// Saves new marks. A failure is ignored, because the index only saves time.
    pub(super) fn save(&self, disk: &LogDisk, log: &Path) {
        if self.more {
            let _ = write(disk, log, &self.marks);
        }
    }
}

/// Marks for the lines that a writer appends. They are saved when the writer is dropped, merged with the existing ones.
pub(super) struct NewMarks {
    from: u64,
    part: u64,
    marks: Vec<Mark>,
}

impl NewMarks {
    /// Starts at the current length of the log.
    pub(super) fn new(len: u64) -> Self {
        Self {
            from: len,
            part: len / PART,
            marks: Vec::new(),
        }
    }

    pub(super) fn see(&mut self, seq: Option<u64>, offset: u64) {
        if offset / PART > self.part
            && let Some(seq) = seq
        {
            self.part = offset / PART;
            self.marks.push(Mark { seq, offset });
        }
    }

    pub(super) fn save(&mut self, disk: &LogDisk, log: &Path) {
        if self.marks.is_empty() {
            return;
        }
        let mut all = Marks::load(log);
        all.marks.retain(|mark| mark.offset < self.from);
        for mark in self.marks.drain(..) {
            all.see(mark.seq, mark.offset);
        }
        all.save(disk, log);
    }
}

fn read(log: &Path) -> Option<Vec<Mark>> {
    let (file, stat) = open_regular_itself(&log.with_extension("idx")).ok()?;
    let most = (MAGIC.len() + MAX_MARKS * MARK) as u64;
    if stat.size > most {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
    let mut marks = Vec::with_capacity(bytes.len() / MARK);
    let mut last = Mark { seq: 0, offset: 0 };
    for mark in bytes.strip_prefix(MAGIC)?.chunks(MARK) {
        let mark = Mark {
            seq: number(mark.get(..8)?)?,
            offset: number(mark.get(8..)?)?,
        };
        if mark.seq <= last.seq || mark.offset <= last.offset {
            return None;
        }
        marks.push(mark);
        last = mark;
    }
    Some(marks)
}

/// Replaces the index atomically, by a rename, so that there is always a complete one.
fn write(disk: &LogDisk, log: &Path, marks: &[Mark]) -> std::io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    for mark in marks {
        bytes.extend_from_slice(&mark.seq.to_le_bytes());
        bytes.extend_from_slice(&mark.offset.to_le_bytes());
    }
    // Two processes may write at the same time, so each uses its own name.
    let temporary = log.with_extension(format!(
        "idx-{:08x}",
        crate::clock::random_u64() & 0xffff_ffff
    ));
    let written = disk.create(&temporary).and_then(|file| {
        disk.write(&file, &bytes)?;
        disk.rename(&temporary, &log.with_extension("idx"))
    });
    if written.is_err() {
        let _ = disk.remove(&temporary);
    }
    written
}
