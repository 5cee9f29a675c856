//! Writes planned changes to files, all or nothing, and reports them: line counts and bounded diffs for the log, one
//! line per file for the model. The new content is decided before; nothing here reads or edits text.

use windlass_core::message::ErrorCategory;
use windlass_core::tool::{ToolFailure, ToolOutput};
use windlass_core::workspace::{Change, FileChange, FileError, Files};
use windlass_edit::diff::{Diff, unified};
use windlass_edit::patch::PatchChange;
use windlass_edit::text::DecodedText;

use crate::last_seen::LastSeenFiles;
use crate::paths::{joined, tidy};

/// Maximum bytes of a diff in the log or in an approval, per file.
const MAX_DIFF: usize = 20_000;

/// Rejects a patch that would move or delete a symlink. The patch has the lines of the target file, which would stay;
/// and a moved relative link would point to another file.
pub(crate) fn refuse_links(files: &dyn Files, changes: &[PatchChange]) -> Result<(), ToolFailure> {
    for change in changes {
        let (PatchChange::Delete { path, .. } | PatchChange::Move { from: path, .. }) = change
        else {
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

/// Applies planned changes, unless the model last saw other content than the one to be replaced.
pub(crate) fn apply(
    files: &dyn Files,
    changes: &[PatchChange],
    notes: &[String],
    seen: &LastSeenFiles,
) -> Result<ToolOutput, ToolFailure> {
    for (path, before) in changes.iter().filter_map(|change| sides(change).0) {
        seen.check(files, path, before)?;
    }
    Ok(output(write_all(files, changes, seen)?, notes))
}

/// Applies the changes in order, deletions last. If one fails, the changes before it are rolled back.
pub(crate) fn write_all(
    files: &dyn Files,
    changes: &[PatchChange],
    seen: &LastSeenFiles,
) -> Result<Vec<FileChange>, ToolFailure> {
    let mut order: Vec<&PatchChange> = changes.iter().collect();
    // Deletions come last, so that a failing write never has to restore a deleted file.
    order.sort_by_key(|change| matches!(change, PatchChange::Delete { .. }));
    let mut done: Vec<&PatchChange> = Vec::with_capacity(order.len());
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

/// The output of a tool that changed files: the text for the model, and the changes for the log.
pub(crate) fn output(changes: Vec<FileChange>, notes: &[String]) -> ToolOutput {
    let mut text: Vec<String> = changes.iter().map(sentence).collect();
    text.extend(notes.iter().cloned());
    ToolOutput {
        text: text.join("\n"),
        changes,
        ..ToolOutput::default()
    }
}

/// The diffs of planned changes, for an approval.
pub(crate) fn preview(changes: &[PatchChange]) -> String {
    let shown = |change: &PatchChange| {
        let (report, diff) = (report(change), diff(change));
        match diff {
            Some(diff) if !diff.text.is_empty() => diff.text,
            _ => sentence(&report) + "\n",
        }
    };
    changes.iter().map(shown).collect()
}

/// One side of a change: the path and the content of the file, if it exists.
type Side<'a> = Option<(&'a str, &'a [u8])>;

/// The file before and after a change.
fn sides(change: &PatchChange) -> (Side<'_>, Side<'_>) {
    match change {
        PatchChange::Create { path, after } => (None, Some((path, after))),
        PatchChange::Modify {
            path,
            before,
            after,
        } => (Some((path, before)), Some((path, after))),
        PatchChange::Delete { path, before } => (Some((path, before)), None),
        PatchChange::Move {
            from,
            to,
            before,
            after,
        } => (Some((from, before)), Some((to, after))),
    }
}

/// Edits the text of a file and keeps its encoding and line endings.
pub(crate) fn modify<T>(
    files: &dyn Files,
    path: &str,
    before: Vec<u8>,
    edit: impl FnOnce(&str) -> Result<(String, T), ToolFailure>,
) -> Result<(PatchChange, T), ToolFailure> {
    let exception = |err| about(path, ErrorCategory::Exception, err);
    let text = DecodedText::decode(&before).map_err(exception)?;
    let (after, more) = edit(&text.content)?;
    let after = text.encode(&after).map_err(exception)?;
    let path = tidy(files, path);
    let change = PatchChange::Modify {
        path,
        before,
        after,
    };
    Ok((change, more))
}

/// Replaces the old side of a change by the new one.
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

fn take_back(files: &dyn Files, done: &[&PatchChange]) -> String {
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

fn remember(files: &dyn Files, change: &PatchChange, seen: &LastSeenFiles) {
    let (old, new) = sides(change);
    if let Some((path, _)) = old {
        seen.forget(files, path);
    }
    if let Some((path, after)) = new {
        seen.note(files, path, after);
    }
}

fn report(change: &PatchChange) -> FileChange {
    let (path, happened) = match change {
        PatchChange::Create { path, .. } => (path, Change::Created),
        PatchChange::Modify { path, .. } => (path, Change::Modified),
        PatchChange::Delete { path, .. } => (path, Change::Deleted),
        PatchChange::Move { from, to, .. } => (to, Change::MovedFrom(from.clone())),
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

fn diff(change: &PatchChange) -> Option<Diff> {
    let side = |mark: &str, side: Side<'_>| match side {
        Some((path, bytes)) => {
            let text = DecodedText::decode(bytes).ok()?.content;
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
        Change::Created => format!("created {}{counts}", change.path),
        Change::Modified => format!("edited {}{counts}", change.path),
        Change::Deleted => format!("deleted {}", change.path),
        Change::MovedFrom(from) if counts == " (+0 -0)" => {
            format!("moved {from} to {}", change.path)
        }
        Change::MovedFrom(from) => format!("moved {from} to {}{counts}", change.path),
    }
}

/// A failure that starts with the path of the file.
pub(crate) fn about(
    path: &str,
    category: ErrorCategory,
    text: impl std::fmt::Display,
) -> ToolFailure {
    ToolFailure::new(category, format!("{path}: {text}"))
}
