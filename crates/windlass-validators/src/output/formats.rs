//! The formats of compilers, linters and test runners, line by line. The meaning of a line can depend on the lines before
//! it, so the reader remembers the last message, file and stack frame.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use windlass_core::validator::Finding;

/// Durations, such as `(in 1.2 s)`.
pub(super) static TIMES: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\s*\(?\b(?:in |took )?\d+(?:\.\d+)?\s?(?:ms|µs|s|sec|seconds)\b\)?"));

/// `--> src/a.rs:1:2`, also with the box-drawing characters of newer compilers.
static ARROW: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^\s*(?:-->|╭▸|┌─|└─)\s*(.+?):(\d+)(?::(\d+))?(?::.*)?$"));
/// `error[E0308]: message`, from rustc; its place follows.
static RUST: LazyLock<Regex> = LazyLock::new(|| regex(r"^(error|warning)(?:\[[\w:]+\])?: (.+)$"));
/// `thread 'a' (12) panicked at src/a.rs:1:2:`.
static PANIC: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^thread '(.+?)'(?: \(\d+\))? panicked at (.+?):(\d+):(\d+):?$"));
/// `a.ts(1,2): error TS1: message`, from TypeScript and .NET.
static ROUND: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^\s*(.+?)\((\d+),(\d+)\): (error|warning|info)\s?([\w]*): (.+?)(?: \[.+\])?$")
});
/// `[ERROR] /a/B.java:[1,2] message`, from Maven.
static MAVEN: LazyLock<Regex> = LazyLock::new(|| regex(r"^\[ERROR\] (.+?):\[(\d+),(\d+)\] (.+)$"));
/// `File "a.py", line 1, in f`.
static PYTHON: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"^\s*File "(.+?)", line (\d+)(?:, in (.+))?$"#));
/// `ValueError: message`, the last line of a Python stack trace or the first of a JavaScript one.
static RAISED: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^\s*(?:Uncaught )?((?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning))(?:: (.*))?$",
    )
});
/// `    at f (/a/b.js:1:2)`.
static FRAME: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^\s+at (?:.*?\()?(?:file://)?([^()\s]+?):(\d+):(\d+)\)?$"));
/// `  1:2  error  message  rule`, below a line that is a path.
static INDENTED: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^\s+(\d+):(\d+)\s+(error|warning)\s+(.+?)(?:\s{2,}(\S+))?$"));
/// `PHP Parse error: message in a.php on line 1`.
static PHP: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^(?:PHP )?((?:Parse|Fatal|Syntax) error:?\s+.+?) in (.+?) on line (\d+)$")
});
/// `path:1:2: message`, `path:1: message`, `path:1:2 - error message`, optionally after one of a few known prefixes.
static PLAIN: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^\s*(?:vet: |ERROR: |\*\* \([\w.]+\) |# |rspec )?((?:[A-Za-z]:)?[^\s:()'\x22][^:()'\x22]*?\.?[\w]+):(\d+)(?::(\d+))?(?::| -)\s*(.*)$",
    )
});

#[allow(clippy::expect_used)]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns in this file are valid")
}

/// At most this many further lines are added to a message.
const MAX_MESSAGE_LINES: usize = 4;

/// Collects findings from the lines of an output.
#[derive(Default)]
pub(super) struct OutputReader<'a> {
    root: &'a str,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
    /// A message whose place is expected in a following line, and whether it is a warning.
    message: Option<(bool, String)>,
    /// The file that the next indented lines are about.
    file: Option<String>,
    /// The innermost frame inside the workspace of the current Python stack trace.
    stack_frame: Option<(String, u32)>,
    /// The message of an exception whose JavaScript stack trace may follow.
    thrown: Option<String>,
    /// The number of following lines that may still be added to the last finding.
    message_lines_left: usize,
    /// The lines of a failed assertion of pytest, whose place follows.
    asserted: Vec<String>,
}

impl<'a> OutputReader<'a> {
    pub(super) fn new(root: &'a str) -> Self {
        Self {
            root,
            ..Self::default()
        }
    }

    /// Processes the next line of the output.
    pub(super) fn line(&mut self, line: &str) {
        if line.len() > 4_000 {
            return;
        }
        if self.message_lines_left > 0 && self.continues_message(line) {
            return;
        }
        self.message_lines_left = 0;
        let known =
            self.rust(line) || self.brackets(line) || self.python(line) || self.javascript(line);
        if !known && !self.list(line) {
            self.plain(line);
        }
    }

    /// The findings: the errors, or the warnings if there is no error. Duplicates are removed.
    pub(super) fn finish(self) -> Vec<Finding> {
        let all = if self.errors.is_empty() {
            self.warnings
        } else {
            self.errors
        };
        let mut found: Vec<Finding> = Vec::new();
        for finding in all {
            let same = |other: &Finding| {
                other.path == finding.path
                    && other.line == finding.line
                    && other.message.starts_with(&finding.message)
            };
            if !found.iter().any(same) {
                found.push(finding);
            }
        }
        found
    }

    /// Adds a line to the message of a panic; returns `false` if the line does not belong to it.
    fn continues_message(&mut self, line: &str) -> bool {
        let text = line.trim();
        if text.is_empty() || text.starts_with("note: ") || text.starts_with("stack backtrace") {
            return false;
        }
        let Some(last) = self.errors.last_mut() else {
            return false;
        };
        last.message = format!("{}; {text}", last.message);
        self.message_lines_left -= 1;
        true
    }

    fn rust(&mut self, line: &str) -> bool {
        if let Some(found) = PANIC.captures(line) {
            let added = self.add(&found, 2, &format!("`{}` panicked", &found[1]), false);
            self.message_lines_left = if added { MAX_MESSAGE_LINES } else { 0 };
            return true;
        }
        if let Some(found) = RUST.captures(line) {
            self.message = Some((&found[1] == "warning", found[2].to_owned()));
            // The line may also match another format.
            return false;
        }
        if let Some(found) = ARROW.captures(line) {
            if let Some((warning, message)) = self.message.take() {
                self.add(&found, 1, &message, warning);
            }
            return true;
        }
        false
    }

    fn brackets(&mut self, line: &str) -> bool {
        if let Some(found) = ROUND.captures(line) {
            let message = format!("{} {}", &found[5], &found[6]);
            return self.add(&found, 1, message.trim(), &found[4] != "error");
        }
        if let Some(found) = MAVEN.captures(line) {
            return self.add(&found, 1, &found[4], false);
        }
        if let Some(found) = PHP.captures(line) {
            return self.add(&found, 2, &found[1], false);
        }
        false
    }

    fn python(&mut self, line: &str) -> bool {
        if let Some(found) = PYTHON.captures(line) {
            if let Some(path) = self.inside(&found[1]) {
                self.stack_frame = Some((path, found[2].parse().unwrap_or_default()));
            }
            return true;
        }
        if let Some(text) = line.strip_prefix("E  ").map(str::trim) {
            if self.asserted.len() < MAX_MESSAGE_LINES && !text.is_empty() {
                self.asserted.push(text.to_owned());
            }
            return true;
        }
        if let Some(found) = RAISED.captures(line) {
            let message = match found
                .get(2)
                .map(|text| text.as_str())
                .filter(|text| !text.is_empty())
            {
                Some(text) => format!("{}: {text}", &found[1]),
                None => found[1].to_owned(),
            };
            if let Some((path, line)) = self.stack_frame.take() {
                self.errors.push(Finding {
                    path,
                    line,
                    column: 0,
                    ..Finding::whole(message)
                });
                return true;
            }
            self.thrown = Some(message);
        }
        false
    }

    fn javascript(&mut self, line: &str) -> bool {
        let Some(found) = FRAME.captures(line) else {
            return false;
        };
        // The error is reported at the first frame inside the workspace.
        if let Some(message) = self.thrown.clone()
            && self.add(&found, 1, &message, false)
        {
            self.thrown = None;
        }
        true
    }

    fn list(&mut self, line: &str) -> bool {
        if let Some(found) = INDENTED.captures(line) {
            if let Some(file) = self.file.clone() {
                let rule = found
                    .get(5)
                    .map(|rule| format!(" ({})", rule.as_str()))
                    .unwrap_or_default();
                let message = format!("{}{rule}", &found[4]);
                self.add_at(
                    &file,
                    &found[1],
                    Some(&found[2]),
                    &message,
                    &found[3] != "error",
                );
            }
            return true;
        }
        let alone = line.trim();
        let is_path =
            !alone.contains([' ', ':', '"']) && alone.contains('.') && !alone.ends_with('.');
        if is_path && (line.starts_with('/') || !line.starts_with(' ')) {
            self.file = Some(alone.to_owned());
        }
        false
    }

    fn plain(&mut self, line: &str) {
        let Some(found) = PLAIN.captures(line) else {
            return;
        };
        let mut message = found[4].trim().to_owned();
        let lower = message.to_ascii_lowercase();
        if lower.starts_with("note:")
            || lower.starts_with("in ")
            || lower.starts_with("in function")
        {
            return;
        }
        let warning = lower.starts_with("warning");
        for begin in ["error: ", "fatal error: ", "error "] {
            if lower.starts_with(begin) {
                message = message[begin.len()..].to_owned();
                break;
            }
        }
        if !self.asserted.is_empty() {
            let assertion = std::mem::take(&mut self.asserted).join("; ");
            message = if message.is_empty() {
                assertion
            } else {
                format!("{message}: {assertion}")
            };
        }
        if !message.is_empty() {
            self.add(&found, 1, &message, warning);
        }
    }

    /// Adds a finding. The group `at` of the match is the path, the next ones are the line and the optional column.
    fn add(&mut self, found: &Captures<'_>, at: usize, message: &str, warning: bool) -> bool {
        let column = found.get(at + 2).map(|column| column.as_str());
        self.add_at(&found[at], &found[at + 1], column, message, warning)
    }

    /// Adds a finding if it is about a file of the workspace; returns whether it did.
    fn add_at(
        &mut self,
        path: &str,
        line: &str,
        column: Option<&str>,
        message: &str,
        warning: bool,
    ) -> bool {
        let Some(path) = self.inside(path) else {
            return false;
        };
        let Ok(line) = line.parse() else { return false };
        let column = column
            .and_then(|column| column.parse().ok())
            .unwrap_or_default();
        let message = crate::syntax::one_line(message);
        let list = if warning {
            &mut self.warnings
        } else {
            &mut self.errors
        };
        if list.len() < 500 {
            list.push(Finding {
                path,
                line,
                column,
                ..Finding::whole(message)
            });
        }
        true
    }

    /// The path relative to the root; `None` if it is outside the workspace or belongs to an installed dependency.
    fn inside(&self, path: &str) -> Option<String> {
        let path = path.trim().trim_start_matches("file://");
        let inner = match path.strip_prefix(self.root) {
            Some(rest) if !self.root.is_empty() => rest.strip_prefix('/')?,
            _ => path,
        };
        let inner = inner.trim_start_matches("./");
        let foreign = [
            "node_modules/",
            "site-packages/",
            "dist-packages/",
            ".cargo/registry/",
            "vendor/bundle/",
        ];
        let unusable = inner.is_empty()
            || inner.starts_with(['/', '<', '~'])
            || inner.starts_with("../")
            || inner.contains("://")
            || inner.starts_with("node:")
            || foreign
                .iter()
                .any(|part| inner.starts_with(part) || inner.contains(&format!("/{part}")));
        // A file name must contain a dot or a slash, or start with a capital: `10:32: done` is a time of day.
        let named =
            inner.contains(['.', '/']) || inner.starts_with(|c: char| c.is_ascii_uppercase());
        (!unusable && named).then(|| inner.to_owned())
    }
}
