//! `sessions salvage`: cuts a damaged session before the damage, and keeps the original file.

use std::process::ExitCode;

use windlass::core::id::SessionId;
use windlass::machine::SessionLog;
use windlass::sessions::SalvageRow;
use windlass_text::sanitize::one_line;

use crate::command_error::CommandError;
use crate::{exit, out};

pub(super) fn run(
    store: &SessionLog,
    id: &SessionId,
    as_json: bool,
) -> Result<ExitCode, CommandError> {
    let salvaged = SalvageRow::from(store.salvage(id)?);
    if as_json {
        out::json(&salvaged);
        return Ok(exit::after_output(0));
    }
    let path = |path: &std::path::Path| one_line(&path.display().to_string()).into_owned();
    let Some(line) = salvaged.first_bad_line else {
        return Ok(exit::print(&format!(
            "session {id} is not damaged: {} events\n",
            salvaged.kept
        )));
    };
    let mut text = format!(
        "session {id} has {} events now; line {line} was damaged, and {} lines from there on were removed\n\
         original file: {}\n",
        salvaged.kept,
        salvaged.lost,
        path(&salvaged.original),
    );
    if let Some(rest) = &salvaged.rest {
        text.push_str(&format!(
            "readable lines after the damage: {}\n",
            path(rest)
        ));
    }
    Ok(exit::print(&text))
}
