//! Keys in changed files: where a change put something that looks like one. The value itself is never said.

use windlass_core::workspace::{Change, FileChange, Files, Redactor};

/// Keys that are told one by one.
const MAX_KEYS: usize = 10;

/// How far is looked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Into so many files.
    files: usize,
    /// Of at most so many bytes each.
    bytes: u64,
}

/// After one call.
pub(super) const OF_A_CALL: Bounds = Bounds {
    files: 50,
    bytes: 4 << 20,
};
/// After a run, for what its commands wrote.
pub(crate) const OF_A_RUN: Bounds = Bounds {
    files: 200,
    bytes: 1 << 20,
};

impl Bounds {
    /// Where the changes put something that looks like a key, in words; without what was told already.
    pub(crate) fn keys_in(
        self,
        files: &dyn Files,
        redactor: &dyn Redactor,
        changes: &[FileChange],
        told: &[String],
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
                    // What holds a NUL is no text.
                    Ok(bytes) if bytes.contains(&0) => continue,
                    Ok(bytes) => (String::from_utf8_lossy(&bytes).into_owned(), Vec::new()),
                    // What cannot be read now cannot be looked at; the tool's own result says what it did.
                    Err(_) => continue,
                },
            };
            for found in redactor.scan(&text) {
                let line = lines.get(found.line - 1).copied().unwrap_or(found.line);
                let key = format!("{}:{line}: this looks like a {}", change.path, found.kind);
                if !told.contains(&key) {
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

/// The lines a diff adds, and their numbers in the new file.
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
            // Before the first hunk stand the names of the files.
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
