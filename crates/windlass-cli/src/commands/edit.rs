//! `debug edit`: applies edits to texts in memory. Each row of input has files and an edit; each row of output has the
//! files afterwards. It changes no file on disk.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::Value;
use windlass::edits::{EditCase, EditCaseResult, run as edit};

use crate::args::EditArgs;
use crate::command_error::CommandError;
use crate::commands::debug::each_line;
use crate::{exit, out};

pub(super) fn run(args: &EditArgs) -> Result<ExitCode, CommandError> {
    each_line(&args.file, |number, line| {
        let done = match line
            .and_then(|line| serde_json::from_slice(line).map_err(|err| err.to_string()))
        {
            Ok(row) => apply(row),
            Err(why) => invalid_line(number, Value::Null, why),
        };
        out::json(&match done {
            EditCaseResult {
                id: Value::Null, ..
            } => EditCaseResult {
                id: format!("line {number}").into(),
                ..done
            },
            done => done,
        });
    })?;
    Ok(exit::print(""))
}

/// Applies the edit of a row. If the row is invalid, the result still has its id and its files.
fn apply(row: Value) -> EditCaseResult {
    let id = row["id"].clone();
    let files: BTreeMap<String, String> =
        serde_json::from_value(row["input"].clone()).unwrap_or_default();
    match serde_json::from_value::<EditCase>(row) {
        Ok(row) => edit(row),
        Err(err) => {
            let error = Some(format!(
                "this is not a row of `id`, `format`, `input` and `edit`: {err}"
            ));
            EditCaseResult {
                id,
                ok: false,
                files,
                error,
            }
        }
    }
}

fn invalid_line(number: u64, id: Value, why: String) -> EditCaseResult {
    let error = Some(format!(
        "line {number} is not a row of `id`, `format`, `input` and `edit`: {why}"
    ));
    EditCaseResult {
        id,
        ok: false,
        files: BTreeMap::new(),
        error,
    }
}
