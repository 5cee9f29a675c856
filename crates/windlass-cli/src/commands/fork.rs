//! `fork`: creates a session that begins as a copy of another.

use std::process::ExitCode;

use serde_json::json;
use windlass::core::runtime::RunMode;

use super::block_on;
use crate::args::ForkArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::process;
use crate::sanitize::json_line;
use crate::session_run::find_session;
use windlass::wire;

pub(super) fn run(args: &ForkArgs) -> Result<ExitCode, CommandError> {
    let from = find_session(&args.session)?;
    let engine = wire::session_engine(&process::load_settings(None)?)?;
    let session = block_on(async { Ok(engine.fork(&from, args.at, RunMode::Full).await?) })?;
    let id = session.id();
    if args.json {
        let at = session.with_history(|history| history.last_seq() - 1);
        return Ok(exit::print(&json_line(
            &json!({ "session": id, "from": from, "at": at }),
        )));
    }
    say!("continue the new session with `windlass resume {id}`; {from} is unchanged");
    Ok(exit::print(&format!("{id}\n")))
}
