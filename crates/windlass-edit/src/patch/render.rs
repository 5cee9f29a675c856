//! Writes a plan as a unified diff that parses back to exactly that plan. Thereby edits in different formats can be
//! stored as one patch. Nothing is shortened.

use super::paths::{self, NULL};
use super::{PatchChange, PatchPlan};
use crate::text::DecodedText;

/// The number of unchanged lines written before and after a change.
const CONTEXT: usize = 3;

impl PatchPlan {
    /// The plan as a unified diff with git headers.
    #[must_use]
    pub fn to_diff(&self) -> String {
        let mut out = String::new();
        for change in &self.changes {
            match change {
                PatchChange::Create { path, after } => {
                    header(&mut out, path, path);
                    out.push_str("new file mode 100644\n");
                    texts(&mut out, NULL, path, &[], after);
                }
                PatchChange::Modify {
                    path,
                    before,
                    after,
                } => {
                    header(&mut out, path, path);
                    texts(&mut out, path, path, before, after);
                }
                PatchChange::Delete { path, .. } => {
                    header(&mut out, path, path);
                    out.push_str("deleted file mode 100644\n");
                }
                PatchChange::Move {
                    from,
                    to,
                    before,
                    after,
                } => {
                    header(&mut out, from, to);
                    out.push_str(&format!(
                        "rename from {}\nrename to {}\n",
                        quoted("", from),
                        quoted("", to)
                    ));
                    texts(&mut out, from, to, before, after);
                }
            }
        }
        out
    }
}

fn header(out: &mut String, old: &str, new: &str) {
    out.push_str(&format!(
        "diff --git {} {}\n",
        quoted("a/", old),
        quoted("b/", new)
    ));
}

/// A path as written in a diff: C-quoted if it would be misread otherwise.
fn quoted(prefix: &str, path: &str) -> String {
    if path == NULL {
        return path.to_owned();
    }
    // A date and time after a space would be cut off as the time stamp of a file.
    let parses_back = paths::take(path).is_ok_and(|(read, rest)| read == path && rest.is_empty());
    let plain = !path.contains(['"', '\\']) && path.trim() == path && parses_back;
    if plain {
        format!("{prefix}{path}")
    } else {
        format!(
            "\"{prefix}{}\"",
            path.replace('\\', "\\\\").replace('"', "\\\"")
        )
    }
}

/// Writes one hunk from the first line that differs to the last.
fn texts(out: &mut String, old: &str, new: &str, before: &[u8], after: &[u8]) {
    let content = |bytes: &[u8]| {
        DecodedText::decode(bytes)
            .map(|text| text.content)
            .unwrap_or_default()
    };
    let (before, after) = (content(before), content(after));
    if before == after {
        return;
    }
    let was: Vec<&str> = before.split_inclusive('\n').collect();
    let is: Vec<&str> = after.split_inclusive('\n').collect();
    let same = was
        .iter()
        .zip(&is)
        .take_while(|(one, two)| one == two)
        .count();
    let start = same.saturating_sub(CONTEXT);
    let (rest_was, rest_is) = (&was[same..], &is[same..]);
    let tail = rest_was
        .iter()
        .rev()
        .zip(rest_is.iter().rev())
        .take_while(|(one, two)| one == two)
        .count();
    let (end_was, end_is) = (was.len() - tail, is.len() - tail);
    let shown = tail.min(CONTEXT);
    let (old_count, new_count) = (end_was - start + shown, end_is - start + shown);
    let first = |count: usize| if count == 0 { start } else { start + 1 };
    out.push_str(&format!(
        "--- {}\n+++ {}\n",
        quoted("a/", old),
        quoted("b/", new)
    ));
    out.push_str(&format!(
        "@@ -{},{old_count} +{},{new_count} @@\n",
        first(old_count),
        first(new_count)
    ));
    let mut push = |prefix: char, lines: &[&str]| {
        for line in lines {
            out.push(prefix);
            out.push_str(line);
            if !line.ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        }
    };
    push(' ', &was[start..same]);
    push('-', &was[same..end_was]);
    push('+', &is[same..end_is]);
    push(' ', &was[end_was..end_was + shown]);
}

#[cfg(test)]
mod tests {
    use crate::patch::{Patch, PatchChange, PatchPlan, PatchedPath};

    #[test]
    fn a_path_with_a_date_and_time_parses_back() {
        let changes = vec![PatchChange::Modify {
            path: "logs 2024-01-31 12:00.txt".into(),
            before: b"a\n".to_vec(),
            after: b"b\n".to_vec(),
        }];
        let plan = PatchPlan {
            changes,
            notes: Vec::new(),
        };
        let again = Patch::parse(&plan.to_diff())
            .and_then(|patch| patch.plan(|_| PatchedPath::File(b"a\n".to_vec())));
        assert_eq!(again, Ok(plan));
    }
}
