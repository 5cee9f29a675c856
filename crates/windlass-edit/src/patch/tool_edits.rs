//! Parses edits in the JSON that edit tools accept: an object, or a list of objects, with a path, the old and the new
//! text.
//!
//! Each field is known under several common names. A field of the wrong type is an error.

use serde_json::{Map, Value};

use super::names;
use super::{FileOp, FilePatch, PatchBody, PatchError, push_block};
use crate::block::EditBlock;

const PATH: &[&str] = &[
    "path",
    "file_path",
    "filePath",
    "filepath",
    "file",
    "filename",
    "target_file",
];
const OLD: &[&str] = &[
    "old_str",
    "old_string",
    "oldString",
    "old_text",
    "oldText",
    "old",
    "search",
    "find",
];
const NEW: &[&str] = &[
    "new_str",
    "new_string",
    "newString",
    "new_text",
    "newText",
    "new",
    "replace",
    "replacement",
    "replace_with",
];
const ALL: &[&str] = &["replace_all", "replaceAll", "allow_multiple"];
const TIMES: &[&str] = &["expected_replacements", "expectedReplacements"];
const TEXT: &[&str] = &["file_text", "content", "contents", "text"];
const WRAPPED: &[&str] = &["input", "arguments", "args", "parameters"];
/// A list with more edits than this is refused.
const MAX_EDITS: usize = 1_000;

pub(super) fn parse(text: &str, known: &[&str]) -> Result<Vec<FilePatch>, PatchError> {
    let value: Value = serde_json::from_str(unfenced(text)).map_err(|err| PatchError::Syntax {
        line: err.line().max(1),
        message: format!("the edit is not JSON: {err}"),
    })?;
    let mut files = Vec::new();
    match &value {
        Value::Array(edits) => {
            if edits.len() > MAX_EDITS {
                return Err(wrong(format!("there are more than {MAX_EDITS} edits")));
            }
            for edit in edits {
                read(object(edit)?, None, known, &mut files)?;
            }
        }
        edit => read(object(edit)?, None, known, &mut files)?,
    }
    Ok(files)
}

/// Removes a code fence around the JSON.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let Some((opening, rest)) = text.split_once('\n') else {
        return text;
    };
    match names::fence(opening) {
        Some((_, count, _)) => rest
            .trim_end()
            .strip_suffix(&opening.trim()[..count])
            .unwrap_or(rest),
        None => text,
    }
}

fn wrong(message: impl Into<String>) -> PatchError {
    PatchError::syntax(0, message)
}

fn object(value: &Value) -> Result<&Map<String, Value>, PatchError> {
    value
        .as_object()
        .ok_or_else(|| wrong("an edit is a JSON object with a path, the old and the new text"))
}

fn read(
    edit: &Map<String, Value>,
    outer: Option<&str>,
    known: &[&str],
    files: &mut Vec<FilePatch>,
) -> Result<(), PatchError> {
    // The object is a whole tool call; the edit is in its arguments.
    if let (Some(Value::Object(inner)), None) = (field(edit, WRAPPED), field(edit, OLD)) {
        return read(inner, outer, known, files);
    }
    let own = text_of(edit, PATH)?;
    let path = own.or(outer);
    if let Some(edits) = edit.get("edits").or_else(|| edit.get("replacements")) {
        let edits = edits.as_array().filter(|edits| edits.len() <= MAX_EDITS);
        for inner in edits.ok_or_else(|| wrong("`edits` is a list of old and new texts"))? {
            let inner = object(inner)?;
            if inner.contains_key("edits") || inner.contains_key("replacements") {
                return Err(wrong("`edits` may not hold `edits`"));
            }
            read(inner, path, known, files)?;
        }
        return Ok(());
    }
    let name = match (path, known) {
        (Some(path), _) => path,
        (None, [only]) => only,
        (None, _) => return Err(wrong("the edit names no file; give `path`")),
    };
    if let (None, Some(text)) = (field(edit, OLD), text_of(edit, TEXT)?) {
        let path = super::paths::check(name)?;
        files.push(FilePatch {
            op: FileOp::Create { path },
            body: PatchBody::Whole(text.to_owned()),
        });
        return Ok(());
    }
    let old =
        text_of(edit, OLD)?.ok_or_else(|| wrong("the edit has no old text; give `old_string`"))?;
    let new =
        text_of(edit, NEW)?.ok_or_else(|| wrong("the edit has no new text; give `new_string`"))?;
    if old.is_empty() {
        let path = super::paths::check(name)?;
        files.push(FilePatch {
            op: FileOp::Create { path },
            body: PatchBody::Whole(new.to_owned()),
        });
        return Ok(());
    }
    let times = match field(edit, TIMES) {
        None | Some(Value::Null) => None,
        Some(times) => Some(
            times
                .as_u64()
                .and_then(|times| usize::try_from(times).ok())
                .filter(|times| *times > 0)
                .ok_or_else(|| wrong("`expected_replacements` is a number from 1"))?,
        ),
    };
    let all = match field(edit, ALL) {
        None | Some(Value::Null) => false,
        Some(all) => all
            .as_bool()
            .ok_or_else(|| wrong("`replace_all` is true or false"))?,
    };
    let block = EditBlock {
        search: old.to_owned(),
        replace: new.to_owned(),
        inline: true,
        all,
        times,
        ..EditBlock::default()
    };
    let path = names::resolve(name, known)?;
    push_block(files, path, block);
    Ok(())
}

fn field<'a>(edit: &'a Map<String, Value>, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| edit.get(*name))
}

fn text_of<'a>(
    edit: &'a Map<String, Value>,
    names: &[&str],
) -> Result<Option<&'a str>, PatchError> {
    match field(edit, names) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(format!("`{}` is a text", names[0]))),
    }
}
