//! Paths of a call: what they resolve to for the judge, what to suggest when nothing is there, and the way to do file
//! work without holding up other calls. Never opens anything by itself.

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
        path: if secret {
            path.to_owned()
        } else {
            resolved.path
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
    }];
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let parent = ctx
        .files
        .resolve(if parent.is_empty() { "/" } else { parent })?;
    let named = if parent.path == "." {
        name.to_owned()
    } else {
        format!("{}/{name}", parent.path)
    };
    let named = Touch::Write {
        path: named,
        inside: parent.inside,
    };
    if !matches!(name, "" | "." | "..") && !touches.contains(&named) {
        touches.push(named);
    }
    Ok(touches)
}

/// A path as it is reported: relative to the workspace and without empty steps. Links stay as they are named.
pub(crate) fn tidy(files: &dyn Files, path: &str) -> String {
    let given = std::path::Path::new(path);
    let inside = given.strip_prefix(files.root()).unwrap_or(given);
    // Collecting the components drops `.` and doubled slashes; `..` stays and is judged when the file is opened.
    let parts = inside
        .components()
        .filter(|part| *part != std::path::Component::CurDir);
    let tidy = parts
        .collect::<std::path::PathBuf>()
        .to_string_lossy()
        .into_owned();
    if tidy.is_empty() {
        path.to_owned()
    } else {
        tidy
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
    match tokio::task::spawn_blocking(move || work(files.as_ref())).await {
        Ok(result) => result,
        Err(err) => Err(ToolFailure::new(
            ErrorCategory::Exception,
            format!("the tool itself failed: {err}"),
        )),
    }
}

/// Reads a whole file to be shown or edited.
pub(crate) fn read_bounded(files: &dyn Files, path: &str) -> Result<Vec<u8>, FileError> {
    let bytes = files.read(path, MAX_FILE)?;
    let breaks = bytes
        .iter()
        .filter(|byte| matches!(byte, b'\n' | b'\r'))
        .count();
    if breaks > MAX_LINES {
        let message = format!(
            "{path} has {breaks} line breaks, more than the limit of {MAX_LINES}; use bash for it"
        );
        return Err(FileError {
            kind: FileErrorKind::TooLarge,
            message,
        });
    }
    Ok(bytes)
}

/// The same; when nothing is there, the failure names what is there instead.
pub(crate) fn read_whole(files: &dyn Files, path: &str) -> Result<Vec<u8>, ToolFailure> {
    read_bounded(files, path).map_err(|err| failure(files, path, err))
}

/// The failure for a path, with a suggestion where nothing has that name.
pub(crate) fn failure(files: &dyn Files, path: &str, err: FileError) -> ToolFailure {
    let suggestion = match err.kind {
        FileErrorKind::NotFound => suggest(files, path),
        FileErrorKind::WrongKind
            if files
                .stat(path)
                .is_ok_and(|stat| stat.kind == FileKind::Directory) =>
        {
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

fn suggest(files: &dyn Files, path: &str) -> Option<String> {
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let listing = files.list(if parent.is_empty() { "." } else { parent }, 2000);
    let here: Vec<String> = listing
        .map(|listing| listing.entries.into_iter().map(|entry| entry.0).collect())
        .unwrap_or_default();
    let likeness = here.iter().map(|other| (ratio(name, other), other));
    let close = likeness.max_by(|left, right| left.0.total_cmp(&right.0));
    if let Some((_, close)) = close.filter(|(likeness, _)| *likeness >= 0.6) {
        let full = if parent == "." {
            close.clone()
        } else {
            format!("{parent}/{close}")
        };
        return Some(format!("did you mean {full}?"));
    }
    // The name may be right and the directory wrong.
    let glob = name
        .chars()
        .all(|c| c.is_alphanumeric() || "._-".contains(c))
        .then(|| name.to_owned())?;
    let found = files
        .find(
            &FindQuery {
                under: String::new(),
                glob,
                max: 3,
            },
            &CancellationToken::new(),
        )
        .ok()?;
    (!found.paths.is_empty())
        .then(|| format!("a file of that name is at {}", found.paths.join(", ")))
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
