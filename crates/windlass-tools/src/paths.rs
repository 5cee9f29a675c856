//! Paths of a call: what they resolve to for the judge, what to suggest when nothing is there, and the way to do file
//! work without holding up other calls. Never opens anything by itself.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use windlass_core::CancellationToken;
use windlass_core::gate::is_credential;
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{ToolCtx, ToolFailure, Touch};
use windlass_core::workspace::{FileError, FileErrorKind, FileKind, Files, FindQuery};
use windlass_edit::sequence::ratio;

/// The largest file that is read whole.
pub(crate) const MAX_FILE: u64 = 16 << 20;
/// The most lines of such a file; a file of nothing but line breaks would take many times its size in memory.
const MAX_LINES: usize = 1_000_000;

/// That the call reads a path.
pub(crate) fn reads(ctx: &ToolCtx<'_>, path: &str) -> Result<Touch, ToolFailure> {
    let resolved = ctx.files.resolve(path)?;
    // A link with the name of a credential leads to one, whatever that is called.
    let secret = is_credential(path) && !is_credential(&resolved.path);
    Ok(Touch::Read {
        path: match secret {
            true => path.to_owned(),
            false => resolved.path,
        },
        inside: resolved.inside,
    })
}

/// That the call writes, creates, moves or removes a path: what it leads to, and the name itself where that is a
/// link, because removing or moving acts on the link.
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

/// A path as it is reported: relative to the workspace and without empty steps. Links stay as they are named.
pub(crate) fn tidy(files: &dyn Files, path: &str) -> String {
    let given = Path::new(path);
    let inside = given.strip_prefix(files.root()).unwrap_or(given);
    // Collecting the components drops `.` and doubled slashes; `..` stays and is judged when the file is opened.
    let parts = inside
        .components()
        .filter(|part| *part != Component::CurDir);
    let tidy: PathBuf = parts.collect();
    match tidy.as_os_str().is_empty() {
        true => path.to_owned(),
        false => tidy.to_string_lossy().into_owned(),
    }
}

/// The directory that was named, or the workspace itself.
pub(crate) fn or_root(path: &Option<String>) -> &str {
    path.as_deref()
        .filter(|path| !path.is_empty())
        .unwrap_or(".")
}

/// Runs file work on a thread that may block.
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

/// Reads a whole file to be shown or edited.
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

/// The same; when nothing is there, the failure names what is there instead.
pub(crate) fn read_whole(files: &dyn Files, path: &str) -> Result<Vec<u8>, ToolFailure> {
    read_bounded(files, path).map_err(|err| failure(files, path, err))
}

/// The failure for a path, with a suggestion where nothing has that name.
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
    // The name may be right and the directory wrong.
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

/// Bounds the length of an argument. Schemas carry no bounds: they are sent with every request.
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
