//! Keeps the output of a command in bounded memory: its head and its tail. Larger output also goes to an artifact
//! completely. The output is bytes until the end, when it is converted to text lossily.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::message::ArtifactRef;
use windlass_core::workspace::{ArtifactWriter, Artifacts};

use super::OutputSink;

/// The number of bytes that are searched for the latest lines.
const LATEST_BYTES: usize = 2048;
/// The number of lines in a progress report.
const LATEST_LINES: usize = 8;
/// The longest word, in bytes, that is removed as a whole where output is cut.
const MAX_WORD: usize = 512;
/// The minimum time between two progress reports.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The kept output of a finished command.
#[derive(Debug)]
pub(super) struct Captured {
    /// The text, with a line in place of the removed part. Invalid UTF-8 is replaced.
    pub(super) text: String,
    /// The number of bytes that the command wrote.
    pub(super) total: u64,
    /// The complete output, if it was larger than the limit.
    pub(super) artifact: Option<ArtifactRef>,
}

/// The output of a running command.
pub(super) struct Capture<'a> {
    head: Vec<u8>,
    head_max: usize,
    tail: VecDeque<u8>,
    tail_max: usize,
    total: u64,
    artifacts: Option<&'a dyn Artifacts>,
    spill: Spill,
    progress: &'a (dyn Fn(&str) + Send + Sync),
    reported_at: Instant,
    unreported: bool,
}

enum Spill {
    NotNeeded,
    Open(Box<dyn ArtifactWriter>),
    /// The artifact could not be written; the text is the reason.
    Failed(String),
}

impl<'a> Capture<'a> {
    /// Keeps `keep` bytes, half from the beginning and half from the end.
    pub(super) fn new(
        keep: usize,
        artifacts: Option<&'a dyn Artifacts>,
        progress: &'a (dyn Fn(&str) + Send + Sync),
    ) -> Self {
        let head_max = keep / 2;
        Self {
            head: Vec::new(),
            head_max,
            tail: VecDeque::new(),
            tail_max: keep - head_max,
            total: 0,
            artifacts,
            spill: Spill::NotNeeded,
            progress,
            reported_at: Instant::now(),
            unreported: false,
        }
    }

    /// Writes to the artifact. The call blocks only for a copy into the page cache; a thread for it would cost each
    /// command more than it would save.
    fn spill(&mut self, bytes: &[u8]) {
        let Some(artifacts) = self.artifacts else {
            return;
        };
        let written = match &mut self.spill {
            Spill::Open(writer) => writer.write(bytes),
            Spill::NotNeeded => artifacts.create().and_then(|mut writer| {
                writer.write(&self.head)?;
                let (front, back) = self.tail.as_slices();
                writer.write(front)?;
                writer.write(back)?;
                writer.write(bytes)?;
                self.spill = Spill::Open(writer);
                Ok(())
            }),
            Spill::Failed(_) => return,
        };
        if let Err(err) = written {
            // A full disk must not fail the command: the model still receives the part in memory, and a note.
            self.spill = Spill::Failed(err.0);
        }
    }

    /// Returns the last lines so far, for a progress report.
    fn latest(&self) -> String {
        let skip = (self.head.len() + self.tail.len()).saturating_sub(LATEST_BYTES);
        let bytes: Vec<u8> = self
            .head
            .iter()
            .chain(&self.tail)
            .skip(skip)
            .copied()
            .collect();
        let bytes = if skip > 0 {
            trim_cut_word_start(&bytes)
        } else {
            &bytes
        };
        let text = String::from_utf8_lossy(trim_cut_char_start(bytes, skip > 0));
        let text = text.trim_end();
        let starts = text.rmatch_indices('\n').nth(LATEST_LINES - 1);
        starts.map_or(text, |(at, _)| &text[at + 1..]).to_owned()
    }

    pub(super) fn finish(self) -> Captured {
        let (artifact, lost) = match self.spill {
            Spill::NotNeeded => (None, None),
            Spill::Failed(why) => (None, Some(why)),
            Spill::Open(writer) => match writer.finish() {
                Ok(artifact) => (Some(artifact), None),
                Err(err) => (None, Some(err.0)),
            },
        };
        let (mut head, tail) = (self.head, Vec::from(self.tail));
        if self.total == (head.len() + tail.len()) as u64 {
            head.extend_from_slice(&tail);
            // Valid text, the common case, is not copied again.
            let text = String::from_utf8(head)
                .unwrap_or_else(|err| String::from_utf8_lossy(err.as_bytes()).into_owned());
            return Captured {
                text,
                total: self.total,
                artifact,
            };
        }
        // A cut inside a character would look like damage by the command, and a partial key would not be recognized as
        // a secret.
        let (head, tail) = (
            trim_cut_char_end(trim_cut_word_end(&head)),
            trim_cut_char_start(trim_cut_word_start(&tail), true),
        );
        let left_out = self.total - (head.len() + tail.len()) as u64;
        let lost = lost
            .map(|why| format!(" and could not be stored: {why}"))
            .unwrap_or_default();
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
        let text = format!("{head}\n[... {left_out} bytes left out{lost} ...]\n{tail}");
        Captured {
            text,
            total: self.total,
            artifact,
        }
    }
}

impl OutputSink for Capture<'_> {
    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        if self.total > (self.head_max + self.tail_max) as u64 {
            self.spill(bytes);
        }
        let room = self.head_max - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let last = &rest[rest.len().saturating_sub(self.tail_max)..];
        let excess = (self.tail.len() + last.len()).saturating_sub(self.tail_max);
        self.tail.drain(..excess);
        self.tail.extend(last);
        self.unreported = true;
    }

    fn report_due(&self) -> Option<Instant> {
        self.unreported.then(|| self.reported_at + PROGRESS_EVERY)
    }

    fn report(&mut self) {
        (self.progress)(&self.latest());
        self.reported_at = Instant::now();
        self.unreported = false;
    }
}

/// Removes a word that is cut off at the end, unless it is very long.
fn trim_cut_word_end(bytes: &[u8]) -> &[u8] {
    let back = bytes
        .iter()
        .rev()
        .take(MAX_WORD)
        .position(u8::is_ascii_whitespace);
    &bytes[..bytes.len() - back.unwrap_or(0)]
}

/// Removes the rest of a word that began before the bytes, unless it is very long.
fn trim_cut_word_start(bytes: &[u8]) -> &[u8] {
    let skip = bytes
        .iter()
        .take(MAX_WORD)
        .position(u8::is_ascii_whitespace);
    &bytes[skip.map_or(0, |at| at + 1)..]
}

/// Removes a character that is cut off at the end.
fn trim_cut_char_end(bytes: &[u8]) -> &[u8] {
    let lead = bytes
        .iter()
        .rev()
        .take(4)
        .position(|byte| byte & 0xC0 != 0x80);
    let Some(back) = lead else { return bytes };
    let at = bytes.len() - 1 - back;
    let needed = match bytes[at] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    if back + 1 < needed {
        &bytes[..at]
    } else {
        bytes
    }
}

/// Removes the rest of a character that began before the bytes, if they are `cut` there.
pub(super) fn trim_cut_char_start(bytes: &[u8], cut: bool) -> &[u8] {
    let rest = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0xC0 == 0x80);
    let skip = if cut { rest.count() } else { 0 };
    &bytes[skip..]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::artifact::ArtifactDir;

    #[track_caller]
    fn check(chunks: &[&str], expect: &str) {
        let mut capture = Capture::new(8, None, &|_| {});
        for chunk in chunks {
            capture.push(chunk.as_bytes());
        }
        assert_eq!(capture.finish().text, expect);
    }

    #[test]
    fn head_and_tail_are_kept_and_the_gap_is_counted() {
        check(&[], "");
        check(&["abc"], "abc");
        check(&["abcd", "efgh"], "abcdefgh");
        check(
            &["abcd", "e", "fghi"],
            "abcd\n[... 1 bytes left out ...]\nfghi",
        );
        check(&["abcdefghijkl"], "abcd\n[... 4 bytes left out ...]\nijkl");
    }

    #[test]
    fn a_character_cut_by_the_limit_is_removed_completely() {
        check(&["abcéxxxxéyz"], "abc\n[... 6 bytes left out ...]\néyz");
        check(&["abcdxxxxxé€"], "abcd\n[... 7 bytes left out ...]\n€");
    }

    #[test]
    fn larger_output_is_stored_completely_as_an_artifact() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = ArtifactDir::new(dir.path().join("artifacts"));
        let mut capture = Capture::new(8, Some(&artifacts), &|_| {});
        capture.push(b"01234567");
        assert!(matches!(capture.spill, Spill::NotNeeded));
        capture.push(b"89abcdef");
        capture.push(b"ghij");
        let artifact = capture.finish().artifact.unwrap();
        assert_eq!(artifact.bytes, 20);
        assert_eq!(
            artifacts.read(&artifact.id, 0, 99).unwrap(),
            b"0123456789abcdefghij"
        );
    }

    #[test]
    fn an_artifact_that_cannot_be_written_is_reported_and_the_ends_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let artifacts = ArtifactDir::new(dir.path().join("file/artifacts"));
        let mut capture = Capture::new(8, Some(&artifacts), &|_| {});
        capture.push(b"0123456789");
        let captured = capture.finish();
        assert_eq!(captured.artifact, None);
        assert!(
            captured
                .text
                .starts_with("0123\n[... 2 bytes left out and could not be stored"),
            "{}",
            captured.text
        );
    }

    #[test]
    fn progress_shows_the_last_lines() {
        let mut capture = Capture::new(100_000, None, &|_| {});
        for line in 1..=20 {
            capture.push(format!("line {line}\n").as_bytes());
        }
        let latest = capture.latest();
        assert!(
            latest.starts_with("line 13\n") && latest.ends_with("line 20"),
            "{latest}"
        );
        capture.push(&[b'x'; 10_000]);
        assert!(capture.latest().len() <= LATEST_BYTES);
    }

    proptest! {
        #[test]
        fn every_byte_is_kept_in_the_artifact_or_in_the_text(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let artifacts = ArtifactDir::new(dir.path().to_owned());
            let mut capture = Capture::new(11, Some(&artifacts), &|_| {});
            for chunk in &chunks {
                capture.push(chunk);
            }
            let all = chunks.concat();
            let captured = capture.finish();
            prop_assert_eq!(captured.total, all.len() as u64);
            match captured.artifact {
                Some(artifact) => prop_assert_eq!(artifacts.read(&artifact.id, 0, 999).unwrap(), all),
                None => prop_assert_eq!(captured.text, String::from_utf8_lossy(&all).into_owned()),
            }
        }
    }
}
