//! read_file: one file or several, by line ranges, with numbers or anchors. Never changes anything.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{Effect, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch};
use windlass_core::workspace::{FileErrorKind, Files};
use windlass_host::edit::anchors::render_line;
use windlass_host::edit::text::{Encoding, Text, TextError, lines};

use crate::args::{invalid, parse, spec};
use crate::place::{blocking, failure, read_bounded, reads};
use crate::seen::Seen;

/// Lines shown when no limit is given.
const PREVIEW_LINES: usize = 500;
/// Characters of one line.
const MAX_LINE: usize = 2_000;
/// Characters of one answer; under the cap at which the engine would store it away.
const MAX_TEXT: usize = 48_000;
/// Files of one call.
const MAX_PATHS: usize = 20;
/// A larger file is searched for its lines only so far.
const MAX_SCAN: u64 = 256 << 20;
/// Bytes read at once from a large file.
const CHUNK: u64 = 1 << 20;

/// Arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// File to read, relative to the workspace.
    #[serde(default)]
    path: Option<String>,
    /// Several files to read at once, instead of `path`.
    #[serde(default)]
    #[schemars(length(max = 20))]
    paths: Option<Vec<String>>,
    /// First line to show, from 1.
    #[serde(default)]
    #[schemars(range(min = 1))]
    offset: Option<usize>,
    /// How many lines to show; 500 if not given.
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<usize>,
    /// Show each line as `12:k3f9|text`, with the anchor edit_lines takes.
    #[serde(default)]
    anchors: bool,
}

impl Args {
    fn all_paths(&self) -> Result<Vec<String>, ToolFailure> {
        let paths: Vec<String> = self.path.iter().chain(self.paths.iter().flatten()).cloned().collect();
        if paths.is_empty() {
            return Err(invalid("name the file in `path`, or several in `paths`"));
        }
        if paths.len() > MAX_PATHS {
            return Err(invalid(format!("{} files are too many for one call; the most is {MAX_PATHS}", paths.len())));
        }
        Ok(paths)
    }
}

/// The tool.
pub(crate) struct ReadFile {
    spec: ToolSpec,
    seen: Arc<Seen>,
}

impl ReadFile {
    pub(crate) fn new(seen: Arc<Seen>) -> Self {
        let mut spec = spec::<Args>("read_file", include_str!("descriptions/read_file.md"), Effect::Read);
        spec.parallel = true;
        Self { spec, seen }
    }
}

impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &Value, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        parse::<Args>(args.clone())?.all_paths()?.iter().map(|path| reads(ctx, path)).collect()
    }

    fn run<'a>(&'a self, args: Value, ctx: ToolCtx<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            let paths = args.all_paths()?;
            let seen = self.seen.clone();
            blocking(ctx.files, move |files| read_all(files.as_ref(), &args, &paths, &seen)).await.map(ToolOutput::text)
        })
    }
}

fn read_all(files: &dyn Files, args: &Args, paths: &[String], seen: &Seen) -> Result<String, ToolFailure> {
    if let [path] = paths {
        return read_one(files, args, path, seen, MAX_TEXT);
    }
    let share = MAX_TEXT / paths.len();
    let results: Vec<_> = paths.iter().map(|path| read_one(files, args, path, seen, share)).collect();
    if let Some(Err(first)) = results.first()
        && results.iter().all(Result::is_err)
    {
        return Err(first.clone());
    }
    let section = |(path, result): (&String, &Result<String, ToolFailure>)| match result {
        Ok(text) => format!("==> {path}\n{text}"),
        Err(failure) => format!("==> {path}\nError [{}]: {}", failure.category.word(), failure.text),
    };
    Ok(paths.iter().zip(&results).map(section).collect::<Vec<_>>().join("\n\n"))
}

fn read_one(files: &dyn Files, args: &Args, path: &str, seen: &Seen, max: usize) -> Result<String, ToolFailure> {
    let stat = files.stat(path).map_err(|err| failure(files, path, err))?;
    let first = args.offset.unwrap_or(1).max(1);
    let limit = args.limit.unwrap_or(PREVIEW_LINES);
    let bytes = match read_bounded(files, path) {
        Ok(bytes) => bytes,
        Err(err) if err.kind == FileErrorKind::TooLarge => {
            let mut text = read_large(files, path, stat.size, first, limit)?;
            if args.anchors {
                text.push_str("\n[no anchors: the file is too large for edit_lines]");
            }
            return Ok(text);
        }
        Err(err) => return Err(failure(files, path, err)),
    };
    let text = match Text::decode(&bytes) {
        Ok(text) => text,
        Err(err) => return Ok(not_text(&bytes, stat.size, &err)),
    };
    seen.note(files, path, &bytes);
    let all = lines(&text.content);
    if all.is_empty() {
        return Ok("[the file is empty]".into());
    }
    if first > all.len() {
        return Err(invalid(format!("{path} has {} lines; offset {first} is past its end", all.len())));
    }
    let wanted = &all[first - 1..(first - 1 + limit.min(all.len())).min(all.len())];
    let mut out = String::new();
    let mut shown = 0;
    for (index, line) in wanted.iter().enumerate() {
        let number = first + index;
        let entry = if args.anchors { render_line(number, line.text) } else { format!("{number}|{}", line.text) };
        // At least one line is always shown, so that reading on makes progress.
        if shown > 0 && out.len() + entry.len().min(MAX_LINE) > max {
            break;
        }
        push_cut(&mut out, &entry);
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

fn push_cut(out: &mut String, entry: &str) {
    let cut = &entry[..entry.floor_char_boundary(MAX_LINE)];
    out.push_str(cut);
    if cut.len() < entry.len() {
        out.push_str(&format!("… [{} more bytes on this line]", entry.len() - cut.len()));
    }
    out.push('\n');
}

/// Lines of a file too large to hold: read piece by piece, only so far, and not to be edited here.
fn read_large(files: &dyn Files, path: &str, size: u64, first: usize, limit: usize) -> Result<String, ToolFailure> {
    let mut out = String::new();
    let (mut at, mut number, mut shown) = (0, 1, 0);
    let mut line: Vec<u8> = Vec::new();
    while at < size.min(MAX_SCAN) && shown < limit && out.len() < MAX_TEXT {
        let chunk = files.read_range(path, at, CHUNK).map_err(|err| failure(files, path, err))?;
        if chunk.is_empty() {
            break;
        }
        if at == 0 && chunk.contains(&0) {
            return Ok(not_text(&chunk, size, &TextError::Binary { at: 0 }));
        }
        at += chunk.len() as u64;
        for piece in chunk.split_inclusive(|&byte| byte == b'\n') {
            if number >= first && line.len() < MAX_LINE * 2 {
                line.extend_from_slice(&piece[..piece.len().min(MAX_LINE * 2)]);
            }
            if !piece.ends_with(b"\n") {
                continue;
            }
            if number >= first && shown < limit && out.len() < MAX_TEXT {
                push_cut(
                    &mut out,
                    &format!("{number}|{}", String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r'])),
                );
                shown += 1;
            }
            line.clear();
            number += 1;
        }
    }
    if shown == 0 {
        return Err(ToolFailure::new(
            ErrorCategory::Exception,
            format!(
                "{path} has {size} bytes and line {first} is too far in to be shown; use grep, or bash with sed -n"
            ),
        ));
    }
    Ok(format!(
        "{out}[lines {first}-{} of a file of {size} bytes; read on with offset={}]",
        first + shown - 1,
        first + shown
    ))
}

fn not_text(bytes: &[u8], size: u64, err: &TextError) -> String {
    const IMAGES: [(&[u8], &str); 5] = [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xFF\xD8\xFF", "image/jpeg"),
        (b"GIF8", "image/gif"),
        (b"BM", "image/bmp"),
        (b"RIFF", "image/webp"),
    ];
    let kind = IMAGES
        .iter()
        .find(|(magic, kind)| bytes.starts_with(magic) && (*kind != "image/webp" || bytes.get(8..12) == Some(b"WEBP")));
    match kind {
        Some((_, kind)) => format!("[{kind}, {size} bytes; an image is not shown as text]"),
        None => format!("[not text, {size} bytes: {err}; bash can look at it with file or xxd]"),
    }
}
