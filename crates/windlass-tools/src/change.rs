//! Writes a planned change of files, all of it or none, and reports it: counts and bounded diffs for the log, one
//! line per file for the model. What the bytes are is decided before; nothing here reads or edits text.

use windlass_core::message::ErrorCategory;
use windlass_core::tool::{ToolFailure, ToolOutput};
use windlass_core::workspace::{Change as Happened, FileChange, FileError, Files};
use windlass_edit::diff::{Diff, unified};
use windlass_edit::patch::Change;
use windlass_edit::text::Text;

use crate::place::{joined, tidy};
use crate::seen::Seen;

/// The longest diff that goes into the log or an approval, per file.
const MAX_DIFF: usize = 20_000;

/// Refuses a patch that would move or delete a link: its lines are those of the file it points to, which stays, and
/// a link means another file in another place.
pub(crate) fn refuse_links(files: &dyn Files, changes: &[Change]) -> Result<(), ToolFailure> {
    for change in changes {
        let (Change::Delete { path, .. } | Change::Move { from: path, .. }) = change else {
            continue;
        };
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        let (parent, target) = (files.resolve(parent)?, files.resolve(path)?);
        if target.path != joined(&parent.path, name) {
            let text = format!(
                "is a link to {}; patch that file by its own path, or use move_file or delete_file on the link",
                target.path
            );
            return Err(about(path, ErrorCategory::InvalidArguments, text));
        }
    }
    Ok(())
}

/// Makes a planned change, unless the model has seen other bytes than those it would replace.
pub(crate) fn apply(
    files: &dyn Files,
    changes: &[Change],
    notes: &[String],
    seen: &Seen,
) -> Result<ToolOutput, ToolFailure> {
    for (path, before) in changes.iter().filter_map(|change| sides(change).0) {
        seen.check(files, path, before)?;
    }
    Ok(output(write_all(files, changes, seen)?, notes))
}

/// Makes the changes in order, deletions last. When one fails, those before it are taken back.
pub(crate) fn write_all(
    files: &dyn Files,
    changes: &[Change],
    seen: &Seen,
) -> Result<Vec<FileChange>, ToolFailure> {
    let mut order: Vec<&Change> = changes.iter().collect();
    // A deletion cannot fail half way through a plan if nothing comes after it.
    order.sort_by_key(|change| matches!(change, Change::Delete { .. }));
    let mut done: Vec<&Change> = Vec::with_capacity(order.len());
    for change in order {
        let (old, new) = sides(change);
        if let Err(err) = swap(files, old, new) {
            let mut failure = ToolFailure::from(err);
            if !done.is_empty() {
                failure.text = format!("{}; {}", failure.text, take_back(files, &done));
            }
            return Err(failure);
        }
        done.push(change);
    }
    for change in changes {
        remember(files, change, seen);
    }
    Ok(changes.iter().map(report).collect())
}

/// The output of a tool that changed files: what it says to the model, and the changes for the log.
pub(crate) fn output(changes: Vec<FileChange>, notes: &[String]) -> ToolOutput {
    let mut text: Vec<String> = changes.iter().map(sentence).collect();
    text.extend(notes.iter().cloned());
    ToolOutput {
        text: text.join("\n"),
        changes,
        ..ToolOutput::default()
    }
}

/// The diffs of a plan, for an approval.
pub(crate) fn preview(changes: &[Change]) -> String {
    let shown = |change: &Change| {
        let (report, diff) = (report(change), diff(change));
        match diff {
            Some(diff) if !diff.text.is_empty() => diff.text,
            _ => sentence(&report) + "\n",
        }
    };
    changes.iter().map(shown).collect()
}

/// One side of a change: the path and the bytes of the file, where there is one.
type Side<'a> = Option<(&'a str, &'a [u8])>;

/// A change as its file before and after it.
fn sides(change: &Change) -> (Side<'_>, Side<'_>) {
    match change {
        Change::Create { path, after } => (None, Some((path, after))),
        Change::Modify {
            path,
            before,
            after,
        } => (Some((path, before)), Some((path, after))),
        Change::Delete { path, before } => (Some((path, before)), None),
        Change::Move {
            from,
            to,
            before,
            after,
        } => (Some((from, before)), Some((to, after))),
    }
}

/// A change of the text of a file, which keeps its encoding and line ends.
pub(crate) fn modify<T>(
    files: &dyn Files,
    path: &str,
    before: Vec<u8>,
    edit: impl FnOnce(&str) -> Result<(String, T), ToolFailure>,
) -> Result<(Change, T), ToolFailure> {
    let exception = |err| about(path, ErrorCategory::Exception, err);
    let text = Text::decode(&before).map_err(exception)?;
    let (after, more) = edit(&text.content)?;
    let after = text.encode(&after).map_err(exception)?;
    let path = tidy(files, path);
    let change = Change::Modify {
        path,
        before,
        after,
    };
    Ok((change, more))
}

/// Puts one side of a change in the place of the other.
fn swap(files: &dyn Files, old: Side<'_>, new: Side<'_>) -> Result<(), FileError> {
    match (old, new) {
        (Some((from, before)), Some((to, after))) if from != to => {
            files.rename(from, to, false)?;
            if before == after {
                return Ok(());
            }
            files.replace(to, Some(before), after).inspect_err(|_| {
                let _ = files.rename(to, from, false);
            })
        }
        (old, Some((path, after))) => files.replace(path, old.map(|(_, before)| before), after),
        (Some((path, _)), None) => files.remove(path),
        (None, None) => Ok(()),
    }
}

fn take_back(files: &dyn Files, done: &[&Change]) -> String {
    let mut stuck = Vec::new();
    for change in done.iter().rev() {
        let (old, new) = sides(change);
        if let (Err(err), Some((path, _))) = (swap(files, new, old), new.or(old)) {
            stuck.push(format!("{path} ({err})"));
        }
    }
    match stuck.is_empty() {
        true => "the files changed before it were put back as they were".to_owned(),
        false => format!("these could not be put back: {}", stuck.join(", ")),
    }
}

fn remember(files: &dyn Files, change: &Change, seen: &Seen) {
    let (old, new) = sides(change);
    if let Some((path, _)) = old {
        seen.forget(files, path);
    }
    if let Some((path, after)) = new {
        seen.note(files, path, after);
    }
}

fn report(change: &Change) -> FileChange {
    let (path, happened) = match change {
        Change::Create { path, .. } => (path, Happened::Created),
        Change::Modify { path, .. } => (path, Happened::Modified),
        Change::Delete { path, .. } => (path, Happened::Deleted),
        Change::Move { from, to, .. } => (to, Happened::MovedFrom(from.clone())),
    };
    let diff = diff(change);
    let count = |count: usize| u32::try_from(count).ok();
    FileChange {
        path: path.clone(),
        change: happened,
        added: diff.as_ref().and_then(|diff| count(diff.added)),
        removed: diff.as_ref().and_then(|diff| count(diff.removed)),
        diff: diff
            .filter(|diff| !diff.cut && !diff.text.is_empty())
            .map(|diff| diff.text),
    }
}

fn diff(change: &Change) -> Option<Diff> {
    let side = |mark: &str, side: Side<'_>| match side {
        Some((path, bytes)) => {
            let text = Text::decode(bytes).ok()?.content;
            Some((format!("{mark}/{path}"), text))
        }
        None => Some(("/dev/null".to_owned(), String::new())),
    };
    let (old, new) = sides(change);
    let ((old, before), (new, after)) = (side("a", old)?, side("b", new)?);
    Some(unified(&old, &new, &before, &after, MAX_DIFF))
}

fn sentence(change: &FileChange) -> String {
    let counts = match change.line_counts() {
        counts if counts.is_empty() => counts,
        counts => format!(" ({counts})"),
    };
    match &change.change {
        Happened::Created => format!("created {}{counts}", change.path),
        Happened::Modified => format!("edited {}{counts}", change.path),
        Happened::Deleted => format!("deleted {}", change.path),
        Happened::MovedFrom(from) if counts == " (+0 -0)" => {
            format!("moved {from} to {}", change.path)
        }
        Happened::MovedFrom(from) => format!("moved {from} to {}{counts}", change.path),
    }
}

/// A failure that names the file it is about.
pub(crate) fn about(
    path: &str,
    category: ErrorCategory,
    text: impl std::fmt::Display,
) -> ToolFailure {
    ToolFailure::new(category, format!("{path}: {text}"))
}
