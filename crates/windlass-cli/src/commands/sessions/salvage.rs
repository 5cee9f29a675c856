//! `sessions salvage`: a damaged session goes on with what stands before the damage. Nothing is thrown away.

use std::process::ExitCode;

use serde_json::json;
use windlass::core::id::SessionId;
use windlass::machine::SessionLog;

use crate::command_error::CommandError;
use crate::sanitize::one_line;
use crate::{exit, out};

pub(super) fn run(
    store: &SessionLog,
    id: &SessionId,
    as_json: bool,
) -> Result<ExitCode, CommandError> {
    let salvaged = store.salvage(id)?;
    if as_json {
        out::json(&json!({
            "id": salvaged.id, "kept": salvaged.kept, "lost": salvaged.lost, "first_bad_line": salvaged.first_bad_line,
            "original": salvaged.original, "rest": salvaged.rest,
        }));
        return Ok(exit::after_output(0));
    }
    let path = |path: &std::path::Path| one_line(&path.display().to_string());
    let Some(line) = salvaged.first_bad_line else {
        return Ok(exit::print(&format!(
            "session {id} is not damaged: {} events\n",
            salvaged.kept
        )));
    };
    let mut text = format!(
        "session {id} goes on with {} events; line {line} was damaged, and {} lines from there on are out\n\
         the file as it was: {}\n",
        salvaged.kept,
        salvaged.lost,
        path(&salvaged.original),
    );
    if let Some(rest) = &salvaged.rest {
        text.push_str(&format!(
            "lines behind the damage that can be read: {}\n",
            path(rest)
        ));
    }
    Ok(exit::print(&text))
}
