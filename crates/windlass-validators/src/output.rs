//! Turns the output of a compiler, a linter or a test runner into findings. It knows the usual formats; of other output it
//! keeps the lines that report a failure, or the end. The size is limited to an amount that a model can use.

mod formats;

use windlass_core::validator::Finding;

use formats::OutputReader;

/// At most this many findings are reported for one command.
pub(crate) const MAX_FINDINGS: usize = 40;
/// At most this many characters in all findings together.
const MAX_CHARACTERS: usize = 8_000;
/// At most this many bytes from the end of an output in which nothing was recognised.
const MAX_TAIL: usize = 4_000;
/// At most this many lines that report a failure without a place.
const MAX_FAILING: usize = 15;

/// The findings in an output: first those with a place, then lines that report a failure. If there is neither, the end of
/// the output.
pub(crate) fn findings(output: &str, root: &str) -> Vec<Finding> {
    let text = without_escapes(output);
    let mut reader = OutputReader::new(root);
    for line in text.lines() {
        reader.line(line);
    }
    let mut found = reader.finish();
    let failing = failing_lines(&text, &found);
    if !failing.is_empty() {
        found.push(Finding::whole(failing.join("\n")));
    }
    if found.is_empty() {
        found.extend(tail(&text).map(Finding::whole));
    }
    bounded(found)
}

/// Removes terminal escape sequences, and text that was overwritten after a carriage return.
pub(crate) fn without_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                // A control sequence ends with its first byte from `@` to `~`.
                Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                // A title or a link ends with BEL or ESC \.
                Some(']') => {
                    while let Some(c) = chars.next() {
                        if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            '\r' if chars.peek() == Some(&'\n') => {}
            // The line is a progress display that is overwritten.
            '\r' => {
                let start = out.rfind('\n').map_or(0, |at| at + 1);
                out.truncate(start);
            }
            '\n' | '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

/// Whether a line begins or ends with a word that test runners and builds use to report a failure.
fn reports_failure(line: &str) -> bool {
    let line = line.trim();
    let begins = [
        "FAILED",
        "FAIL ",
        "FAIL:",
        "--- FAIL",
        "ERROR ",
        "ERROR:",
        "error:",
        "error[",
        "Error:",
        "fatal:",
        "fatal error",
        "not ok ",
        "✕",
        "✗",
        "✘",
        "×",
        "✖",
        "❌",
        "E   ",
        "npm ERR!",
        "npm error",
        "make: ***",
        "panic:",
        "undefined reference",
        "AssertionError",
        "Failed asserting",
        "FAILURE:",
        "BUILD FAILED",
        "SyntaxError",
        "TypeError",
        "ReferenceError",
        "[ERROR]",
        "Caused by:",
    ];
    begins.iter().any(|begin| line.starts_with(begin))
        || line.ends_with("FAILED")
        || line.ends_with("... ERROR")
}

fn failing_lines(text: &str, found: &[Finding]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| reports_failure(line)) {
        let line = stable(line.trim());
        let reported = found
            .iter()
            .any(|finding| !finding.message.is_empty() && line.contains(&finding.message));
        if !reported && !lines.contains(&line) {
            lines.push(line);
        }
        if lines.len() == MAX_FAILING {
            break;
        }
    }
    lines
}

/// The last whole lines of an output.
fn tail(text: &str) -> Option<String> {
    let text = text.trim_end();
    let mut start = text.len().saturating_sub(MAX_TAIL);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    if start > 0 {
        start = text[start..].find('\n').map_or(start, |at| start + at + 1);
    }
    let lines: Vec<_> = text[start..]
        .lines()
        .map(stable)
        .filter(|line| !line.trim().is_empty())
        .collect();
    if lines.is_empty() {
        None
    } else {
        Some(lines.join("\n"))
    }
}

/// A line without durations, which differ from run to run, so that the same failure gives the same finding.
fn stable(line: &str) -> String {
    let line: String = line.chars().take(400).collect();
    formats::TIMES.replace_all(&line, "").trim_end().to_owned()
}

fn bounded(found: Vec<Finding>) -> Vec<Finding> {
    let mut left = MAX_CHARACTERS;
    let mut kept = Vec::new();
    let all = found.len();
    for mut finding in found {
        if kept.len() == MAX_FINDINGS - 1 || left < 80 {
            break;
        }
        if let Some((at, _)) = finding.message.char_indices().nth(left.min(2_000)) {
            finding.message.truncate(at);
            finding.message.push('…');
        }
        left = left.saturating_sub(finding.to_string().chars().count());
        kept.push(finding);
    }
    if kept.len() < all {
        kept.push(Finding::whole(format!(
            "{} more findings are not shown",
            all - kept.len()
        )));
    }
    kept
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
