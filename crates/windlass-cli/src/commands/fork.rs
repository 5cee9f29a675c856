//! `fork`: a new session that begins as a copy of another.

use std::process::ExitCode;

use serde_json::json;
use windlass::core::runtime::RunMode;

use super::block_on;
use crate::args::ForkArgs;
use crate::exit;
use crate::failure::Failure;
use crate::out::say;
use crate::process;
use crate::safe::json_line;
use crate::session_run::find_session;
use windlass::wire;

pub(super) fn run(args: &ForkArgs) -> Result<ExitCode, Failure> {
    let from = find_session(&args.session)?;
    let engine = wire::bystander(&process::places()?)?;
    let session = block_on(async { Ok(engine.fork(&from, args.at, RunMode::Full).await?) })?;
    let id = session.id();
    if args.json {
        let at = session.with_history(|history| history.last_seq() - 1);
        return Ok(exit::printed(&json_line(
            &json!({ "session": id, "from": from, "at": at }),
        )));
    }
    say!("`windlass resume {id}` goes on with it; {from} stays as it is");
    Ok(exit::printed(&format!("{id}\n")))
}
