//! Searches changed files for text that looks like a key. A warning names the place, never the value.

use windlass_core::workspace::{Change, FileChange, Files, Redactor};

/// Maximum number of keys that are reported one by one.
const MAX_KEYS: usize = 10;

/// The limits of a search for keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyScan {
    /// Maximum number of files.
    files: usize,
    /// Maximum size of a file; larger ones are skipped.
    bytes: u64,
}

/// The limits after one call.
pub(super) const SCAN_AFTER_CALL: KeyScan = KeyScan {
    files: 50,
    bytes: 4 << 20,
};
/// The limits at the end of a run, for files that commands wrote.
pub(crate) const SCAN_AFTER_RUN: KeyScan = KeyScan {
    files: 200,
    bytes: 1 << 20,
};

impl KeyScan {
    /// Returns warnings about keys in the changes, without those in `known`.
    pub(crate) fn keys_in(
        self,
        files: &dyn Files,
        redactor: &dyn Redactor,
        changes: &[FileChange],
        known: &[String],
    ) -> Vec<String> {
        let mut keys = Vec::new();
        for change in changes
            .iter()
            .filter(|change| change.change != Change::Deleted)
            .take(self.files)
        {
            let (text, lines) = match &change.diff {
                Some(diff) => added_lines(diff),
                None => match files.read(&change.path, self.bytes) {
                    // A file with a NUL byte is not text.
                    Ok(bytes) if bytes.contains(&0) => continue,
                    Ok(bytes) => (String::from_utf8_lossy(&bytes).into_owned(), Vec::new()),
                    // The file is too large, or is gone again.
                    Err(_) => continue,
                },
            };
            for found in redactor.scan(&text) {
                let line = lines.get(found.line - 1).copied().unwrap_or(found.line);
                let key = format!("{}:{line}: this looks like a {}", change.path, found.kind);
                if !known.contains(&key) {
                    keys.push(key);
                }
            }
        }
        let more = keys.len().saturating_sub(MAX_KEYS);
        keys.truncate(MAX_KEYS);
        if more > 0 {
            keys.push(format!("and {more} more places"));
        }
        keys
    }
}

/// The lines that a diff adds, and their line numbers in the new file.
fn added_lines(diff: &str) -> (String, Vec<usize>) {
    let (mut text, mut lines, mut at) = (String::new(), Vec::new(), 0);
    for line in diff.lines() {
        if let Some(hunk) = line.strip_prefix("@@ ") {
            let start = hunk
                .split('+')
                .nth(1)
                .and_then(|new| new.split([',', ' ']).next());
            at = start.and_then(|start| start.parse().ok()).unwrap_or(1);
        } else if at == 0 {
            // The lines before the first hunk are the names of the files.
        } else if let Some(added) = line.strip_prefix('+') {
            text.push_str(added);
            text.push('\n');
            lines.push(at);
            at += 1;
        } else if !line.starts_with('-') {
            at += 1;
        }
    }
    (text, lines)
}
