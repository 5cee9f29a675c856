//! Reads the complete lines of a file in bounded memory. A last line without a line end is not returned, because a
//! writer may still be writing it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use windlass_core::store::{StoreError, StoreErrorKind};

use super::{MAX_LINE, failed};

/// The size of one read in bytes. The buffer grows for a longer line.
const PIECE: usize = 256 * 1024;

pub(super) struct LogLines {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// The number of bytes that may still be read.
    left: u64,
    /// The number of the next line, from 1.
    pub(super) number: u64,
    /// The offset of the next line in the file.
    pub(super) offset: u64,
    buffer: Vec<u8>,
    /// The bytes from `start` to `end` were read from the file and not returned yet.
    start: usize,
    end: usize,
    /// The bytes before this position contain no line end.
    seen: usize,
}

impl LogLines {
    /// Reads the lines of the file, or only those in its first bytes.
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

    /// Continues at the start of a line, which has this number.
    pub(super) fn seek(&mut self, offset: u64, number: u64) -> Result<(), StoreError> {
        self.file
            .seek(SeekFrom::Start(offset))
            .map_err(|err| failed("read", &self.path, &err))?;
        (self.offset, self.number) = (offset, number);
        (self.start, self.end, self.seen) = (0, 0, 0);
        Ok(())
    }

    /// Returns the next complete line, without its line end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, StoreError> {
        self.next_with_path().map(|(_, line)| line)
    }

    /// Like [`LogLines::next`], and also returns the path for error messages.
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

    /// Returns the size of the buffer in bytes.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Reads more bytes into the buffer. Returns false at the end of the file.
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
            // Free the memory that a long line needed, because the lines after it are short.
            self.buffer.truncate(PIECE);
            self.buffer.shrink_to_fit();
        }
        let space = (self.buffer.len() - self.end).min(left);
        loop {
            match self.file.read(&mut self.buffer[self.end..self.end + space]) {
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
