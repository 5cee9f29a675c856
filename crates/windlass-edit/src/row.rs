//! Runs one edit that is given as data: the files before and the edit go in, the files after it come out. Test cases in
//! JSON Lines use this, both those of this crate and those that users run with `windlass debug edit`.
//!
//! Works on the texts in the row alone; no file is opened or written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::patch::{Patch, PatchChange, PatchFormat, PatchedPath};

/// The files of a row by path. `None` stands for a file that does not exist.
pub type Files = BTreeMap<String, Option<String>>;

/// One test case. It does not contain the expected result; the caller compares that.
#[derive(Debug, Clone, Deserialize)]
pub struct EditCase {
    /// Identifies the case; copied to [`EditCaseResult::id`] unchanged.
    #[serde(default)]
    pub id: Value,
    /// `v4a`, `search-replace`, `str-replace`, `udiff` or `whole`.
    pub format: String,
    /// The files before the edit.
    #[serde(default)]
    pub input: Files,
    /// The edit: a text, or JSON where the format is JSON.
    pub edit: Value,
}

/// The result of running a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EditCaseResult {
    /// Copied unchanged from [`EditCase::id`].
    pub id: Value,
    /// Whether the edit was applied.
    pub ok: bool,
    /// All files afterwards. If the edit was refused, they are unchanged.
    pub files: BTreeMap<String, String>,
    /// Why the edit was refused.
    pub error: Option<String>,
}

/// Applies the edit of a row to its files.
pub fn run(row: EditCase) -> EditCaseResult {
    let mut files: BTreeMap<String, String> = row
        .input
        .iter()
        .filter_map(|(path, text)| Some((path.clone(), text.clone()?)))
        .collect();
    let error = match apply_edit(&row, &files) {
        Ok(after) => {
            files = after;
            None
        }
        Err(why) => Some(why),
    };
    EditCaseResult {
        id: row.id,
        ok: error.is_none(),
        files,
        error,
    }
}

fn apply_edit(
    row: &EditCase,
    before: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    let format = match row.format.as_str() {
        "v4a" => PatchFormat::BeginPatch,
        "search-replace" => PatchFormat::SearchReplace,
        "str-replace" => PatchFormat::ToolEdit,
        "udiff" => PatchFormat::Unified,
        "whole" => PatchFormat::Whole,
        other => {
            return Err(format!(
                "`{other}` is not a format; use v4a, search-replace, str-replace, udiff or whole"
            ));
        }
    };
    let text = match &row.edit {
        Value::String(text) => text.clone(),
        json => json.to_string(),
    };
    let known: Vec<&str> = before.keys().map(String::as_str).collect();
    let patch = Patch::read(format, &text, &known).map_err(|err| err.to_string())?;
    let found = |path: &str| match before.get(path) {
        Some(text) => PatchedPath::File(text.clone().into_bytes()),
        None if before.keys().any(|name| beneath(name, path)) => {
            PatchedPath::Unusable("it is a directory".into())
        }
        None if before.keys().any(|name| beneath(path, name)) => {
            PatchedPath::Unusable("a file is where its directory would be".into())
        }
        None => PatchedPath::Absent,
    };
    let plan = patch.plan(found).map_err(|err| err.to_string())?;
    let mut files = before.clone();
    for change in plan.changes {
        let (path, after) = match change {
            PatchChange::Create { path, after } | PatchChange::Modify { path, after, .. } => {
                (path, after)
            }
            PatchChange::Move {
                from, to, after, ..
            } => {
                files.remove(&from);
                (to, after)
            }
            PatchChange::Delete { path, .. } => {
                files.remove(&path);
                continue;
            }
        };
        files.insert(
            path,
            String::from_utf8(after).map_err(|_| "the new text is not UTF-8".to_owned())?,
        );
    }
    Ok(files)
}

fn beneath(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}
