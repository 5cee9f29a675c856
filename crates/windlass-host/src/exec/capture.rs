//! Holding the output of a command in bounded memory: its head and its tail, and, once it is larger than
//! that, all of it in a file up to a cap. Output is bytes here; it becomes text at the very end, lossily.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// How many bytes are looked at to show the latest lines.
const LATEST_BYTES: usize = 2048;
/// How many of the latest lines are shown.
const LATEST_LINES: usize = 8;

/// How much output is kept, and where the rest goes.
#[derive(Debug, Clone)]
pub struct OutputLimits {
    /// Bytes kept from the beginning.
    pub head: usize,
    /// Bytes kept from the end.
    pub tail: usize,
    /// The directory for the file that takes all output once it is larger than head and tail; none keeps
    /// nothing else.
    pub spill_dir: Option<PathBuf>,
    /// The most that file may hold.
    pub spill_cap: u64,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            head: 128 * 1024,
            tail: 128 * 1024,
            spill_dir: None,
            spill_cap: 64 * 1024 * 1024,
        }
    }
}

/// The output of a finished command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The first bytes; all of them when nothing was left out.
    pub head: Vec<u8>,
    /// The last bytes, empty when nothing was left out.
    pub tail: Vec<u8>,
    /// How many bytes between the two were left out.
    pub left_out: u64,
    /// How many bytes the command wrote.
    pub total: u64,
    /// The file with all of it, when it was larger than what is kept here.
    pub spill: Option<Spilled>,
}

impl Output {
    /// The output as text, with a line in the place of what was left out. Bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        if self.left_out > 0 {
            let gap = format!("\n[... {} bytes left out ...]\n", self.left_out);
            text.push_str(&gap);
            text.push_str(&String::from_utf8_lossy(&self.tail));
        }
        text
    }
}

/// A file that took the output; whoever receives this owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spilled {
    /// Where it is.
    pub path: PathBuf,
    /// How many bytes it holds.
    pub bytes: u64,
    /// How many bytes did not fit under the cap or could not be written.
    pub lost: u64,
}

/// Output while it arrives.
#[derive(Debug)]
pub(super) struct Capture {
    limits: OutputLimits,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    spill: Option<Spill>,
}

#[derive(Debug)]
struct Spill {
    file: Option<File>,
    path: PathBuf,
    bytes: u64,
    lost: u64,
}

impl Capture {
    pub(super) fn new(limits: OutputLimits) -> Self {
        Self {
            limits,
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            spill: None,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let bound = (self.limits.head + self.limits.tail) as u64;
        if self.total > bound {
            self.spill_out(bytes);
        }
        let room = self.limits.head - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let last = &rest[rest.len().saturating_sub(self.limits.tail)..];
        let excess = (self.tail.len() + last.len()).saturating_sub(self.limits.tail);
        self.tail.drain(..excess);
        self.tail.extend(last);
    }

    /// Writing straight from here blocks only as long as copying into the page cache takes; another thread
    /// for it would cost every command more than it saves a few.
    fn spill_out(&mut self, bytes: &[u8]) {
        let Some(dir) = &self.limits.spill_dir else {
            return;
        };
        let cap = self.limits.spill_cap;
        if let Some(spill) = &mut self.spill {
            spill.write(bytes, cap);
            return;
        }
        let mut spill = Spill::create(dir);
        spill.write(&self.head, cap);
        let (front, back) = self.tail.as_slices();
        spill.write(front, cap);
        spill.write(back, cap);
        spill.write(bytes, cap);
        self.spill = Some(spill);
    }

    /// The last lines so far, for showing progress.
    pub(super) fn latest(&self) -> String {
        let both = self.head.len() + self.tail.len();
        let skip = both.saturating_sub(LATEST_BYTES);
        let bytes: Vec<u8> = self.head.iter().chain(&self.tail).skip(skip).copied().collect();
        let text = String::from_utf8_lossy(whole_from(&bytes, skip > 0)).into_owned();
        let text = text.trim_end();
        let starts = text.rmatch_indices('\n').nth(LATEST_LINES - 1);
        starts.map_or(text, |(at, _)| &text[at + 1..]).to_owned()
    }

    pub(super) fn finish(self) -> Output {
        let mut head = self.head;
        let tail: Vec<u8> = self.tail.into();
        let left_out = self.total - (head.len() + tail.len()) as u64;
        let spill = self.spill.and_then(Spill::finish);
        if left_out == 0 {
            head.extend_from_slice(&tail);
            return Output {
                head,
                tail: Vec::new(),
                left_out,
                total: self.total,
                spill,
            };
        }
        // A cut inside a character would show as damage that the command did not make.
        let kept_head = whole_until(&head).len();
        head.truncate(kept_head);
        let tail = whole_from(&tail, true).to_vec();
        Output {
            left_out: self.total - (head.len() + tail.len()) as u64,
            head,
            tail,
            total: self.total,
            spill,
        }
    }
}

impl Spill {
    fn create(dir: &Path) -> Self {
        let path = dir.join(format!("output-{:016x}", crate::clock::random_u64()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600));
        Self {
            file: file.ok().map(File::from),
            path,
            bytes: 0,
            lost: 0,
        }
    }

    fn write(&mut self, bytes: &[u8], cap: u64) {
        let room = usize::try_from(cap - self.bytes).unwrap_or(usize::MAX);
        let fits = &bytes[..bytes.len().min(room)];
        let written = match &mut self.file {
            Some(file) => file.write_all(fits).is_ok(),
            None => false,
        };
        if written {
            self.bytes += fits.len() as u64;
            self.lost += (bytes.len() - fits.len()) as u64;
        } else {
            // A full disk must not end the command: what is in memory still reaches the model.
            self.file = None;
            self.lost += bytes.len() as u64;
        }
    }

    fn finish(self) -> Option<Spilled> {
        if self.bytes == 0 {
            let _ = std::fs::remove_file(&self.path);
            return None;
        }
        Some(Spilled {
            path: self.path,
            bytes: self.bytes,
            lost: self.lost,
        })
    }
}

/// The bytes without a character that is cut off at their end.
fn whole_until(bytes: &[u8]) -> &[u8] {
    let lead = bytes.iter().rev().take(4).position(|byte| byte & 0xC0 != 0x80);
    let Some(back) = lead else { return bytes };
    let at = bytes.len() - 1 - back;
    let needed = match bytes[at] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    if back + 1 < needed { &bytes[..at] } else { bytes }
}

/// The bytes without the rest of a character that began before them.
fn whole_from(bytes: &[u8], cut: bool) -> &[u8] {
    let rest = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80);
    let skip = if cut { rest.count() } else { 0 };
    &bytes[skip..]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn limits(head: usize, tail: usize, spill_dir: Option<&Path>) -> OutputLimits {
        OutputLimits {
            head,
            tail,
            spill_dir: spill_dir.map(Path::to_owned),
            spill_cap: 20,
        }
    }

    #[track_caller]
    fn check(chunks: &[&str], expect: &str) {
        let mut capture = Capture::new(limits(4, 4, None));
        for chunk in chunks {
            capture.push(chunk.as_bytes());
        }
        assert_eq!(capture.finish().text(), expect);
    }

    #[test]
    fn head_and_tail_are_kept_and_the_gap_is_counted() {
        check(&[], "");
        check(&["abc"], "abc");
        check(&["abcd", "efgh"], "abcdefgh");
        check(&["abcd", "e", "fghi"], "abcd\n[... 1 bytes left out ...]\nfghi");
        check(&["abcdefghijkl"], "abcd\n[... 4 bytes left out ...]\nijkl");
    }

    #[test]
    fn a_character_cut_by_the_bound_is_left_out_whole() {
        check(&["abcéxxxxéyz"], "abc\n[... 6 bytes left out ...]\néyz");
        check(&["abcdxxxxxé€"], "abcd\n[... 7 bytes left out ...]\n€");
    }

    #[test]
    fn larger_output_goes_to_a_file_whole_up_to_the_cap() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(limits(4, 4, Some(dir.path())));
        capture.push(b"01234567");
        assert!(capture.spill.is_none());
        capture.push(b"89abcdef");
        capture.push(b"ghijklmnop");
        let spilled = capture.finish().spill.unwrap();
        assert_eq!(std::fs::read(&spilled.path).unwrap(), b"0123456789abcdefghij");
        assert_eq!((spilled.bytes, spilled.lost), (20, 6));
    }

    #[test]
    fn a_spill_that_cannot_be_written_keeps_head_and_tail() {
        let mut capture = Capture::new(limits(4, 4, Some(Path::new("/nonexistent"))));
        capture.push(b"0123456789");
        let output = capture.finish();
        assert_eq!((output.spill.clone(), output.left_out), (None, 2));
    }

    #[test]
    fn progress_shows_the_last_lines() {
        let mut capture = Capture::new(OutputLimits::default());
        for line in 1..=20 {
            capture.push(format!("line {line}\n").as_bytes());
        }
        let latest = capture.latest();
        assert!(latest.starts_with("line 13\n") && latest.ends_with("line 20"), "{latest}");
        capture.push(&[b'x'; 10_000]);
        assert!(capture.latest().len() <= LATEST_BYTES);
    }

    proptest! {
        #[test]
        fn every_byte_is_kept_or_counted(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9)) {
            let dir = tempfile::tempdir().unwrap();
            let mut capture = Capture::new(OutputLimits { spill_cap: 1000, ..limits(5, 6, Some(dir.path())) });
            for chunk in &chunks {
                capture.push(chunk);
            }
            let all = chunks.concat();
            let output = capture.finish();
            prop_assert_eq!(output.total, all.len() as u64);
            prop_assert_eq!(output.left_out + (output.head.len() + output.tail.len()) as u64, output.total);
            prop_assert!(all.starts_with(&output.head) && all.ends_with(&output.tail));
            if let Some(spilled) = output.spill {
                prop_assert_eq!(std::fs::read(spilled.path).unwrap(), all);
            }
        }
    }
}
