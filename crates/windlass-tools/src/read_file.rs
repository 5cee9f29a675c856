//! read_file: reads files or stored results by line ranges, with line numbers or anchors. It never changes anything.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::id::ArtifactId;
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_core::workspace::{ArtifactError, Artifacts, FileErrorKind, Files};
use windlass_edit::anchors::render_line;
use windlass_edit::text::{DecodedText, Encoding, TextError, lines};

use crate::last_seen::LastSeenFiles;
use crate::line_window::{FoundLines, Window, find, push_cut};
use crate::paths::{at_most, blocking, failure, read_bounded, reads};

/// The number of lines shown if no limit is given.
const PREVIEW_LINES: usize = 500;
/// Approximate maximum bytes of a line that are shown.
const MAX_LINE: usize = 2_000;
/// Maximum characters of a result; below the limit at which the engine would store it as an artifact.
const MAX_TEXT: usize = 48_000;
/// Maximum files of one call.
const MAX_PATHS: usize = 20;
/// The prefix of the path of a stored result. A file with such a name can be read as `./artifact:x`.
const ARTIFACT: &str = "artifact:";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    path: Option<String>,
    /// Several files, instead of `path`.
    paths: Option<Vec<String>>,
    /// First line.
    offset: Option<usize>,
    /// Default 500.
    limit: Option<usize>,
    /// Show the anchors that edit_lines takes.
    #[serde(default)]
    anchors: bool,
}

impl Args {
    fn all_paths(&self) -> Result<Vec<String>, ToolFailure> {
        let paths: Vec<String> = self
            .path
            .iter()
            .chain(self.paths.iter().flatten())
            .cloned()
            .collect();
        if paths.is_empty() {
            return Err(ToolFailure::invalid(
                "name the file in `path`, or several in `paths`",
            ));
        }
        at_most(&paths, MAX_PATHS, "paths")?;
        Ok(paths)
    }
}

pub(crate) struct ReadFile(pub(crate) Arc<LastSeenFiles>);

impl TypedTool for ReadFile {
    type Args = Args;
    const NAME: &str = "read_file";
    const DESCRIPTION: &str = include_str!("descriptions/read_file.md");
    const EFFECT: Effect = Effect::Read;
    const PARALLEL: bool = true;

    fn touches(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        // A stored result belongs to the session: it was judged when it was created.
        let paths = args.all_paths()?;
        paths
            .iter()
            .filter(|path| !path.starts_with(ARTIFACT))
            .map(|path| reads(ctx, path))
            .collect()
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let paths = args.all_paths()?;
        let (seen, artifacts) = (self.0.clone(), ctx.artifacts.clone());
        blocking(ctx.files, move |files| {
            let sources = Sources {
                files,
                artifacts: artifacts.as_ref(),
                seen: &seen,
            };
            read_all(&sources, &args, &paths)
        })
        .await
        .map(ToolOutput::text)
    }
}

/// The sources that a call reads from.
struct Sources<'a> {
    files: &'a dyn Files,
    artifacts: &'a dyn Artifacts,
    seen: &'a LastSeenFiles,
}

fn read_all(sources: &Sources<'_>, args: &Args, paths: &[String]) -> Result<String, ToolFailure> {
    let read = |path: &String, max| match path.strip_prefix(ARTIFACT) {
        Some(id) => read_artifact(sources.artifacts, args, id, max),
        None => read_one(sources.files, args, path, sources.seen, max),
    };
    if let [path] = paths {
        return read(path, MAX_TEXT);
    }
    let share = MAX_TEXT / paths.len();
    let results: Vec<_> = paths.iter().map(|path| read(path, share)).collect();
    if let Some(Err(first)) = results.first()
        && results.iter().all(Result::is_err)
    {
        return Err(first.clone());
    }
    let sections: Vec<String> = paths.iter().zip(&results).map(section).collect();
    Ok(sections.join("\n\n"))
}

fn section((path, result): (&String, &Result<String, ToolFailure>)) -> String {
    match result {
        Ok(text) => format!("==> {path}\n{text}"),
        Err(failure) => format!(
            "==> {path}\nError [{}]: {}",
            failure.category.word(),
            failure.text
        ),
    }
}

fn read_one(
    files: &dyn Files,
    args: &Args,
    path: &str,
    seen: &LastSeenFiles,
    max: usize,
) -> Result<String, ToolFailure> {
    let stat = files.stat(path).map_err(|err| failure(files, path, err))?;
    let first = args.offset.unwrap_or(1).max(1);
    let limit = args.limit.unwrap_or(PREVIEW_LINES).max(1);
    let bytes = match read_bounded(files, path) {
        Ok(bytes) => bytes,
        Err(err) if err.kind == FileErrorKind::TooLarge => {
            let window = Window {
                first,
                limit,
                max,
                broken: false,
            };
            let mut text = read_large(files, path, stat.size, window)?;
            if args.anchors {
                text.push_str("\n[no anchors: the file is too large for edit_lines]");
            }
            return Ok(text);
        }
        Err(err) => return Err(failure(files, path, err)),
    };
    let text = match DecodedText::decode(&bytes) {
        Ok(text) => text,
        Err(err) => return Ok(not_text(&bytes, stat.size, &err)),
    };
    seen.note(files, path, &bytes);
    let all = lines(&text.content);
    if all.is_empty() {
        return Ok("[the file is empty]".into());
    }
    if first > all.len() {
        return Err(ToolFailure::invalid(format!(
            "{path} has {} lines; offset {first} is past its end",
            all.len()
        )));
    }
    let wanted = &all[first - 1..(first - 1 + limit.min(all.len())).min(all.len())];
    let mut out = String::new();
    let mut shown = 0;
    for (index, line) in wanted.iter().enumerate() {
        let number = first + index;
        let entry = if args.anchors {
            render_line(number, line.text)
        } else {
            format!("{number}|{}", line.text)
        };
        // At least one line is shown, so that reading on always makes progress.
        if shown > 0 && out.len() + entry.len().min(MAX_LINE) > max {
            break;
        }
        push_cut(&mut out, &entry, 0);
        shown += 1;
    }
    let last = first + shown - 1;
    if first > 1 || last < all.len() {
        out.push_str(&format!("[lines {first}-{last} of {}", all.len()));
        out.push_str(&if last < all.len() {
            format!("; read on with offset={}]\n", last + 1)
        } else {
            "]\n".to_owned()
        });
    }
    if text.encoding != Encoding::Utf8 {
        out.push_str(&format!("[the file is stored in {}]\n", text.encoding));
    }
    out.pop();
    Ok(out)
}

/// Reads lines of a file that is too large for memory, piece by piece and up to a maximum. Such a file cannot be edited
/// here.
fn read_large(
    files: &dyn Files,
    path: &str,
    size: u64,
    window: Window,
) -> Result<String, ToolFailure> {
    let start = files
        .read_range(path, 0, 1 << 20)
        .map_err(|err| failure(files, path, err))?;
    if start.contains(&0) {
        return Ok(not_text(&start, size, &TextError::Binary { at: 0 }));
    }
    let found = find(window, |at, len| {
        files
            .read_range(path, at, len)
            .map_err(|err| failure(files, path, err))
    })?;
    shown(&found, window, path, &format!(" of a file of {size} bytes"))
}

/// Reads lines of a stored result. Long lines are broken, so that every byte can be reached.
fn read_artifact(
    artifacts: &dyn Artifacts,
    args: &Args,
    id: &str,
    max: usize,
) -> Result<String, ToolFailure> {
    let id: ArtifactId = id
        .parse()
        .map_err(|err| ToolFailure::invalid(format!("{err}")))?;
    let (first, limit) = (
        args.offset.unwrap_or(1).max(1),
        args.limit.unwrap_or(PREVIEW_LINES).max(1),
    );
    let window = Window {
        first,
        limit,
        max,
        broken: true,
    };
    let not_found = |err: ArtifactError| ToolFailure::new(ErrorCategory::NotFound, err.0);
    let found = find(window, |at, len| {
        artifacts.read(&id, at, len).map_err(not_found)
    })?;
    if found.total == Some(0) {
        return Ok("[the stored result is empty]".into());
    }
    shown(&found, window, &format!("{ARTIFACT}{id}"), "")
}

/// The lines, and how to continue reading.
fn shown(found: &FoundLines, window: Window, path: &str, of: &str) -> Result<String, ToolFailure> {
    let first = window.first;
    if found.shown == 0 {
        return Err(match found.total {
            Some(total) => ToolFailure::invalid(format!(
                "{path} has {total} lines; offset {first} is past its end"
            )),
            None => ToolFailure::new(
                ErrorCategory::Exception,
                format!(
                    "{path}: line {first} is too far in to be shown; use grep, or bash with sed -n"
                ),
            ),
        });
    }
    let last = first + found.shown - 1;
    let more = match found.total {
        Some(total) if last >= total => format!("; line {last} is the last"),
        _ => format!("; read on with offset={}", last + 1),
    };
    Ok(format!("{}[lines {first}-{last}{of}{more}]", found.text))
}

fn not_text(bytes: &[u8], size: u64, err: &TextError) -> String {
    const IMAGES: [(&[u8], &str); 5] = [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xFF\xD8\xFF", "image/jpeg"),
        (b"GIF8", "image/gif"),
        (b"BM", "image/bmp"),
        (b"RIFF", "image/webp"),
    ];
    let kind = IMAGES.iter().find(|(magic, kind)| {
        bytes.starts_with(magic) && (*kind != "image/webp" || bytes.get(8..12) == Some(b"WEBP"))
    });
    match kind {
        Some((_, kind)) => format!("[{kind}, {size} bytes; an image is not shown as text]"),
        None => format!("[not text, {size} bytes: {err}; bash can look at it with file or xxd]"),
    }
}
