//! The whole lines of a file one by one, in bounded memory. A last line without its end is not a line yet:
//! a writer may be in the middle of it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Take};
use std::path::{Path, PathBuf};

use windlass_core::store::{StoreError, StoreErrorKind};

use super::{MAX_LINE, failed};

pub(super) struct Lines {
    reader: BufReader<Take<File>>,
    path: PathBuf,
    number: u64,
    line: Vec<u8>,
}

impl Lines {
    /// The lines of the file, or only of its first bytes.
    pub(super) fn new(file: File, path: PathBuf, first: Option<u64>) -> Self {
        let reader = BufReader::with_capacity(64 * 1024, file.take(first.unwrap_or(u64::MAX)));
        Self { reader, path, number: 0, line: Vec::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How many lines have been read.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next whole line without its end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, StoreError> {
        self.line.clear();
        let mut bounded = (&mut self.reader).take(MAX_LINE as u64 + 1);
        bounded.read_until(b'\n', &mut self.line).map_err(|err| failed("read", &self.path, &err))?;
        if self.line.pop_if(|last| *last == b'\n').is_none() {
            if self.line.len() > MAX_LINE {
                let message =
                    format!("{}:{}: a line is longer than {MAX_LINE} bytes", self.path.display(), self.number + 1);
                return Err(StoreError::new(StoreErrorKind::Damaged, message));
            }
            return Ok(None);
        }
        self.number += 1;
        Ok(Some(&self.line))
    }
}
