//! The whole lines of a file one by one, in bounded memory. A last line without its end is not a line yet:
//! a writer may be in the middle of it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use windlass_core::store::{StoreError, StoreErrorKind};

use super::{MAX_LINE, failed};

/// How much is read at once. A longer line makes the room grow with it.
const PIECE: usize = 256 * 1024;

pub(super) struct Lines {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// How many bytes of the file may still be read.
    left: u64,
    /// The line that is given next has this number, from 1.
    pub(super) number: u64,
    /// Where in the file that line begins.
    pub(super) offset: u64,
    buffer: Vec<u8>,
    /// What of the buffer was read and not given yet.
    start: usize,
    end: usize,
    /// Up to here there is no end of a line.
    seen: usize,
}

impl Lines {
    /// The lines of the file, or only of its first bytes.
    pub(super) fn new(file: File, path: PathBuf, first: Option<u64>) -> Self {
        let left = first.unwrap_or(u64::MAX);
        Self {
            file,
            path,
            left,
            number: 1,
            offset: 0,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            seen: 0,
        }
    }

    /// Goes on from a place where a line begins, which has that number.
    pub(super) fn seek(&mut self, offset: u64, number: u64) -> Result<(), StoreError> {
        self.file
            .seek(SeekFrom::Start(offset))
            .map_err(|err| failed("read", &self.path, &err))?;
        (self.offset, self.number) = (offset, number);
        (self.start, self.end, self.seen) = (0, 0, 0);
        Ok(())
    }

    /// The next whole line without its end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, StoreError> {
        self.next_with_path().map(|(_, line)| line)
    }

    /// The same, with the path beside it for what has to be said about the line.
    pub(super) fn next_with_path(&mut self) -> Result<(&Path, Option<&[u8]>), StoreError> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.seen..self.end]) {
                let (start, end) = (self.start, self.seen + at);
                (self.start, self.seen) = (end + 1, end + 1);
                self.number += 1;
                self.offset += (end + 1 - start) as u64;
                return Ok((&self.path, Some(&self.buffer[start..end])));
            }
            self.seen = self.end;
            if self.end - self.start > MAX_LINE {
                let message = format!(
                    "{}:{}: a line is longer than {MAX_LINE} bytes",
                    self.path.display(),
                    self.number
                );
                return Err(StoreError::new(StoreErrorKind::Damaged, message));
            }
            if !self
                .fill()
                .map_err(|err| failed("read", &self.path, &err))?
            {
                return Ok((&self.path, None));
            }
        }
    }

    /// How much memory it holds.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.buffer.capacity()
    }

    /// Reads more behind what is there; false when there is no more.
    fn fill(&mut self) -> io::Result<bool> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.end, self.seen) = (self.end - self.start, self.seen - self.start);
            self.start = 0;
        }
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        if self.buffer.len() - self.end < (PIECE / 2).min(left) {
            self.buffer
                .resize((self.buffer.len() * 2).max(PIECE.min(left)), 0);
        } else if self.buffer.len() > 4 * PIECE && self.end < PIECE / 2 {
            // What one long line needed is not kept for the short ones behind it.
            self.buffer.truncate(PIECE);
            self.buffer.shrink_to_fit();
        }
        let room = (self.buffer.len() - self.end).min(left);
        loop {
            match self.file.read(&mut self.buffer[self.end..self.end + room]) {
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err),
                Ok(read) => {
                    self.end += read;
                    self.left -= read as u64;
                    return Ok(read > 0);
                }
            }
        }
    }
}
