//! A small file beside a long log that says where some of its lines begin, so that reading from the middle need not
//! scan what comes before. It is never trusted: a place counts only if the line there has the number it should have.
//! Without it, or with a wrong one, everything works and takes longer; who had to scan writes it anew.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::disk::Disk;
use crate::workspace::open_regular_itself;

/// One place is kept for each part of this size; the logs of tests are shorter.
const PART: u64 = if cfg!(test) { 1 << 14 } else { 1 << 20 };
/// The places of a log of a tebibyte.
const MAX_MARKS: usize = 1 << 20;
/// What the file begins with. Another format gets another name.
const MAGIC: &[u8; 8] = b"wl-idx1\n";
const MARK: usize = 16;

/// Where a line begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) seq: u64,
    pub(super) offset: u64,
}

/// The places that are known, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    marks: Vec<Mark>,
    more: bool,
}

impl Marks {
    /// What stands beside a log; nothing when there is nothing usable.
    pub(super) fn load(log: &Path) -> Self {
        let marks = read(log).unwrap_or_default();
        Self { marks, more: false }
    }

    /// The last place at or before that event which is really there.
    pub(super) fn before(&self, seq: u64, log: &File) -> Option<Mark> {
        let count = self.marks.partition_point(|mark| mark.seq <= seq);
        let mark = *self.marks[..count].last()?;
        // The line itself is looked at by whoever reads it.
        let mut end = [0];
        log.read_exact_at(&mut end, mark.offset - 1).ok()?;
        (end == *b"\n").then_some(mark)
    }

    pub(super) fn clear(&mut self) {
        (self.marks, self.more) = (Vec::new(), false);
    }

    /// Learns where a line begins.
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

    /// Writes down what is new. It is a convenience: that it could not be written matters to nobody.
    pub(super) fn save(&self, disk: &Disk, log: &Path) {
        if self.more {
            let _ = write(disk, log, &self.marks);
        }
    }
}

/// The places of the lines that a writer appends. They are written when it ends, beside those that were known before.
pub(super) struct NewMarks {
    from: u64,
    part: u64,
    marks: Vec<Mark>,
}

impl NewMarks {
    /// For a log of that length.
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

    pub(super) fn save(&mut self, disk: &Disk, log: &Path) {
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

/// Written beside and renamed, so that there is always a whole one.
fn write(disk: &Disk, log: &Path, marks: &[Mark]) -> std::io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    for mark in marks {
        bytes.extend_from_slice(&mark.seq.to_le_bytes());
        bytes.extend_from_slice(&mark.offset.to_le_bytes());
    }
    // Two may write at once; each has a name of its own.
    let beside = log.with_extension(format!(
        "idx-{:08x}",
        crate::clock::random_u64() & 0xffff_ffff
    ));
    let written = disk.create(&beside).and_then(|file| {
        disk.write(&file, &bytes)?;
        disk.rename(&beside, &log.with_extension("idx"))
    });
    if written.is_err() {
        let _ = disk.remove(&beside);
    }
    written
}
