//! An edit as a row of data: files and an edit in, files out. For holding the edit formats to cases, ours or anybody's.
//!
//! Works on the texts of the row alone; nothing is opened or written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::patch::{Change, Format, Found, Patch};

/// The files of a row. A path without a text is a file that is not there.
pub type Files = BTreeMap<String, Option<String>>;

/// One case. What it expects stays with whoever compares.
#[derive(Debug, Clone, Deserialize)]
pub struct Row {
    /// Whatever names the case.
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

/// What became of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Done {
    /// The name of the case.
    pub id: Value,
    /// Whether the edit was made.
    pub ok: bool,
    /// All files afterwards; as they were where the edit was refused.
    pub files: BTreeMap<String, String>,
    /// Why it was refused.
    pub error: Option<String>,
}

/// Makes the edit of a row.
pub fn run(row: Row) -> Done {
    let mut files: BTreeMap<String, String> = row
        .input
        .iter()
        .filter_map(|(path, text)| Some((path.clone(), text.clone()?)))
        .collect();
    let error = match edited(&row, &files) {
        Ok(after) => {
            files = after;
            None
        }
        Err(why) => Some(why),
    };
    Done {
        id: row.id,
        ok: error.is_none(),
        files,
        error,
    }
}

fn edited(
    row: &Row,
    before: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    let format = match row.format.as_str() {
        "v4a" => Format::BeginPatch,
        "search-replace" => Format::SearchReplace,
        "str-replace" => Format::ToolEdit,
        "udiff" => Format::Unified,
        "whole" => Format::Whole,
        other => {
            return Err(format!(
                "`{other}` is not a format that is known; there are v4a, search-replace, str-replace, udiff and whole"
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
        Some(text) => Found::File(text.clone().into_bytes()),
        None if before.keys().any(|name| beneath(name, path)) => {
            Found::Unusable("it is a directory".into())
        }
        None if before.keys().any(|name| beneath(path, name)) => {
            Found::Unusable("a file is where its directory would be".into())
        }
        None => Found::Absent,
    };
    let plan = patch.plan(found).map_err(|err| err.to_string())?;
    let mut files = before.clone();
    for change in plan.changes {
        let (path, after) = match change {
            Change::Create { path, after } | Change::Modify { path, after, .. } => (path, after),
            Change::Move {
                from, to, after, ..
            } => {
                files.remove(&from);
                (to, after)
            }
            Change::Delete { path, .. } => {
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
