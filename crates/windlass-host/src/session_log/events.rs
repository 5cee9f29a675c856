//! Reads the events of one log, in order and in bounded memory. Each line is checked; the first line that is not the
//! next event ends the reading with an error that names the position and the remedy.

use std::fs::File;
use std::path::{Path, PathBuf};

use windlass_core::event::{Line, Order, read_line};
use windlass_core::id::SessionId;
use windlass_core::store::{Skimmed, StoreError, StoreErrorKind};

use super::disk::LogDisk;
use super::index::Marks;
use super::lines::LogLines;
use super::{tail, version_error};

pub(super) struct Events {
    lines: LogLines,
    session: SessionId,
    from_seq: u64,
    next_seq: u64,
    wanted: fn(&str) -> bool,
    /// The position of the line that was read last.
    pub(super) position: LinePosition,
    /// Line positions for the index, collected until the first requested event.
    marks: Option<(Marks, LogDisk)>,
    ended: bool,
}

/// The position of a line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LinePosition {
    pub(super) offset: u64,
    pub(super) number: u64,
}

impl Events {
    /// Reads all events; events of unwanted kinds are checked and not deserialized.
    pub(super) fn new(
        file: File,
        path: PathBuf,
        session: SessionId,
        wanted: fn(&str) -> bool,
    ) -> Self {
        let lines = LogLines::new(file, path, None);
        Self {
            lines,
            session,
            from_seq: 1,
            next_seq: 1,
            wanted,
            position: LinePosition::default(),
            marks: None,
            ended: false,
        }
    }

    /// Starts at a sequence number. The index is used to skip earlier events as far as it goes.
    pub(super) fn starting(mut self, from_seq: u64, disk: &LogDisk) -> Result<Self, StoreError> {
        self.from_seq = from_seq;
        if from_seq > 1 {
            let mut marks = Marks::load(&self.lines.path);
            if !self.jump(&marks)? {
                marks.clear();
                self.lines.seek(0, 1)?;
            }
            self.marks = Some((marks, disk.clone()));
        }
        Ok(self)
    }

    /// Seeks to the last indexed line at or before the requested event. Returns false if there is none, or if the index
    /// is wrong.
    fn jump(&mut self, marks: &Marks) -> Result<bool, StoreError> {
        let Some(mark) = marks.before(self.from_seq, &self.lines.file) else {
            return Ok(false);
        };
        self.lines.seek(mark.offset, mark.seq)?;
        let line = self
            .lines
            .next()
            .ok()
            .flatten()
            .and_then(|line| std::str::from_utf8(line).ok());
        let order = line.and_then(|line| match read_line(line, |_| false) {
            Ok(Line::Skipped(order)) => Some(order),
            _ => None,
        });
        if order != Some(Order::Durable { seq: mark.seq }) {
            return Ok(false);
        }
        self.lines.seek(mark.offset, mark.seq)?;
        self.next_seq = mark.seq;
        Ok(true)
    }

    /// Returns the next requested event; `None` after the first error.
    pub(super) fn next(&mut self) -> Option<Result<Skimmed, StoreError>> {
        while !self.ended {
            match self.step() {
                Ok(Some(line)) => {
                    let seq = self.next_seq - 1;
                    if let Some((marks, disk)) = &mut self.marks {
                        marks.see(seq, self.position.offset);
                        if seq >= self.from_seq {
                            marks.save(disk, &self.lines.path);
                            self.marks = None;
                        }
                    }
                    if seq >= self.from_seq {
                        return Some(Ok(line));
                    }
                }
                Ok(None) => self.ended = true,
                Err(err) => {
                    self.ended = true;
                    return Some(Err(err));
                }
            }
        }
        None
    }

    /// Reads one line; `None` at the end.
    fn step(&mut self) -> Result<Option<Skimmed>, StoreError> {
        self.position = LinePosition {
            offset: self.lines.offset,
            number: self.lines.number,
        };
        let (number, due) = (self.position.number, self.next_seq);
        let passing = due < self.from_seq;
        // Borrowed separately from the line, for error messages.
        let (session, wanted) = (&self.session, self.wanted);
        let (path, line) = self.lines.next_with_path().map_err(|err| match err.kind {
            StoreErrorKind::Damaged => StoreError::new(
                err.kind,
                format!("{}; {}", err.message, repair_advice(session)),
            ),
            _ => err,
        })?;
        let Some(line) = line else { return Ok(None) };
        let damaged = |what: String| damage(path, number, &what, session);
        let text =
            std::str::from_utf8(line).map_err(|_| damaged("this line is not text".to_owned()))?;
        let read = read_line(text, |kind| !passing && wanted(kind)).map_err(|err| {
            tail::other_version(line, path)
                .unwrap_or_else(|| damaged(format!("this line is not an event: {err}")))
        })?;
        let (order, skimmed) = match read {
            Line::OtherVersion(v) => return Err(version_error(path, v)),
            Line::Event(event) => (event.order, Skimmed::Event(event)),
            Line::Skipped(order) => (order, Skimmed::Passed { seq: due }),
        };
        match order {
            Order::Durable { seq } if seq == due => {}
            Order::Durable { seq } => {
                return Err(damaged(format!(
                    "event {due} is missing, here is event {seq}"
                )));
            }
            Order::Live { .. } => {
                return Err(damaged("a live event does not belong in a log".to_owned()));
            }
        }
        self.next_seq += 1;
        Ok(Some(skimmed))
    }
}

/// Returns the error for a line that is not the expected event.
fn damage(path: &Path, number: u64, what: &str, session: &SessionId) -> StoreError {
    let message = format!(
        "{}:{number}: {what}; {}",
        path.display(),
        repair_advice(session)
    );
    StoreError::new(StoreErrorKind::Damaged, message)
}

/// Returns the advice for a damaged log.
pub(super) fn repair_advice(session: &SessionId) -> String {
    format!(
        "the file was not changed. Restore it from a backup, or keep the events before the damage with \
         `windlass sessions salvage {session}`"
    )
}
