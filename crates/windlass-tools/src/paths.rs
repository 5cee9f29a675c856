//! Paths of a call: resolves them for the gate, suggests similar names if a file is missing, and runs file work without
//! blocking other calls. Nothing is opened here directly.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use windlass_core::CancellationToken;
use windlass_core::gate::is_credential;
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{ToolCtx, ToolFailure, Touch};
use windlass_core::workspace::{FileError, FileErrorKind, FileKind, Files, FindQuery};
use windlass_edit::sequence::ratio;

/// Maximum size of a file that is read whole, in bytes.
pub(crate) const MAX_FILE: u64 = 16 << 20;
/// Maximum number of lines of such a file. A file of nothing but line breaks would take many times its size in memory.
const MAX_LINES: usize = 1_000_000;

/// The touch of a call that reads a path.
pub(crate) fn reads(ctx: &ToolCtx<'_>, path: &str) -> Result<Touch, ToolFailure> {
    let resolved = ctx.files.resolve(path)?;
    // A symlink with the name of a credential is treated as one, whatever its target is called.
    let secret = is_credential(path) && !is_credential(&resolved.path);
    Ok(Touch::Read {
        path: match secret {
            true => path.to_owned(),
            false => resolved.path,
        },
        inside: resolved.inside,
    })
}

/// The touches of a call that writes, creates, moves or removes a path: the resolved path, and for a symlink also the
/// link itself, because removing or moving acts on the link.
pub(crate) fn writes(ctx: &ToolCtx<'_>, path: &str) -> Result<Vec<Touch>, ToolFailure> {
    let resolved = ctx.files.resolve(path)?;
    let mut touches = vec![Touch::Write {
        path: resolved.path,
        inside: resolved.inside,
        new: resolved.kind.is_none(),
    }];
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let parent = ctx
        .files
        .resolve(if parent.is_empty() { "/" } else { parent })?;
    let named = Touch::Write {
        path: joined(&parent.path, name),
        inside: parent.inside,
        new: resolved.kind.is_none(),
    };
    if !matches!(name, "" | "." | "..") && !touches.contains(&named) {
        touches.push(named);
    }
    Ok(touches)
}

/// The path of an entry of a directory.
pub(crate) fn joined(parent: &str, name: &str) -> String {
    match parent {
        "." => name.to_owned(),
        _ => format!("{parent}/{name}"),
    }
}

/// A path for reports: relative to the workspace, without `.` and empty components. Symlinks are not resolved.
pub(crate) fn tidy(files: &dyn Files, path: &str) -> String {
    let given = Path::new(path);
    let inside = given.strip_prefix(files.root()).unwrap_or(given);
    // Collecting the components drops `.` and doubled slashes. `..` stays; it is judged when the file is opened.
    let parts = inside
        .components()
        .filter(|part| *part != Component::CurDir);
    let tidy: PathBuf = parts.collect();
    match tidy.as_os_str().is_empty() {
        true => path.to_owned(),
        false => tidy.to_string_lossy().into_owned(),
    }
}

/// The given directory, or the workspace itself.
pub(crate) fn or_root(path: &Option<String>) -> &str {
    path.as_deref()
        .filter(|path| !path.is_empty())
        .unwrap_or(".")
}

/// Runs file work on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(
    files: &Arc<dyn Files>,
    work: impl FnOnce(&dyn Files) -> Result<T, ToolFailure> + Send + 'static,
) -> Result<T, ToolFailure> {
    let files = files.clone();
    let worked = tokio::task::spawn_blocking(move || work(files.as_ref())).await;
    worked.unwrap_or_else(|err| {
        let text = format!("the tool itself failed: {err}");
        Err(ToolFailure::new(ErrorCategory::Exception, text))
    })
}

/// Reads a whole file, to show or edit it.
pub(crate) fn read_bounded(files: &dyn Files, path: &str) -> Result<Vec<u8>, FileError> {
    let bytes = files.read(path, MAX_FILE)?;
    let breaks = bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r'));
    match breaks.count() {
        0..=MAX_LINES => Ok(bytes),
        breaks => Err(FileError {
            kind: FileErrorKind::TooLarge,
            message: format!(
                "{path} has {breaks} line breaks, more than the limit of {MAX_LINES}; use bash for it"
            ),
        }),
    }
}

/// Like [`read_bounded`]; if the file is missing, the failure suggests a similar name.
pub(crate) fn read_whole(files: &dyn Files, path: &str) -> Result<Vec<u8>, ToolFailure> {
    read_bounded(files, path).map_err(|err| failure(files, path, err))
}

/// The failure for a path, with a suggestion if the file is missing.
pub(crate) fn failure(files: &dyn Files, path: &str, err: FileError) -> ToolFailure {
    let suggestion = match err.kind {
        FileErrorKind::NotFound => suggest(files, path),
        FileErrorKind::WrongKind if is_directory(files, path) => {
            Some("use list_directory to see what is in it".to_owned())
        }
        _ => None,
    };
    let mut failure = ToolFailure::from(err);
    if let Some(suggestion) = suggestion {
        failure.text = format!("{}; {suggestion}", failure.text);
    }
    failure
}

pub(crate) fn is_directory(files: &dyn Files, path: &str) -> bool {
    let stat = files.stat(path);
    stat.is_ok_and(|stat| stat.kind == FileKind::Directory)
}

fn suggest(files: &dyn Files, path: &str) -> Option<String> {
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let listing = files.list(if parent.is_empty() { "." } else { parent }, 2000);
    let here: Vec<String> = listing
        .map(|listing| listing.entries.into_iter().map(|entry| entry.0).collect())
        .unwrap_or_default();
    let likeness = here.iter().map(|other| (ratio(name, other), other));
    let close = likeness.max_by(|left, right| left.0.total_cmp(&right.0));
    if let Some((_, close)) = close.filter(|(likeness, _)| *likeness >= 0.6) {
        return Some(format!("did you mean {}?", joined(parent, close)));
    }
    // The name may be correct and the directory wrong.
    let plain = |c: char| c.is_alphanumeric() || "._-".contains(c);
    let query = FindQuery {
        under: String::new(),
        glob: name.chars().all(plain).then(|| name.to_owned())?,
        max: 3,
    };
    let found = files.find(&query, &CancellationToken::new()).ok()?;
    (!found.paths.is_empty())
        .then(|| format!("a file of that name is at {}", found.paths.join(", ")))
}

/// Limits the length of a list argument. The schema does not contain the limit, because it is sent with every request.
pub(crate) fn at_most<T>(items: &[T], max: usize, name: &str) -> Result<(), ToolFailure> {
    if items.len() <= max {
        return Ok(());
    }
    Err(ToolFailure::invalid(format!(
        "`{name}` has {} entries; at most {max} are allowed in one call",
        items.len()
    )))
}

#[cfg(test)]
mod tests {
    use windlass_core::workspace::FileErrorKind;

    #[test]
    fn a_file_error_keeps_its_category() {
        let err = super::FileError {
            kind: FileErrorKind::Outside,
            message: "x".into(),
        };
        assert_eq!(
            super::ToolFailure::from(err).category,
            super::ErrorCategory::Blocked
        );
    }
}
