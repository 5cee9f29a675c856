//! `replay`: shows a session from its log in the views of a live run. Nothing is asked, run or changed.

use std::process::ExitCode;

use futures_util::StreamExt;
use windlass::core::event::EventKind;
use windlass::core::store::SessionStore;
use windlass::machine::SessionLog;

use super::block_on;
use crate::args::ReplayArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::out;
use crate::process;
use crate::session_run::find_session;
use crate::view::RunView;

pub(super) fn run(args: &ReplayArgs) -> Result<ExitCode, CommandError> {
    let places = process::places()?;
    let store = SessionLog::new(places.sessions_dir());
    let id = find_session(&args.session)?;
    if let Some(speed) = args.play {
        if !super::interface::is_available(&args.output) {
            return Err(CommandError::usage("`--play` needs a terminal")
                .hint("omit it to print the session"));
        }
        return super::interface::play(&id, speed);
    }
    block_on(async {
        let mut view = RunView::new(&args.output, &id, false, None);
        let mut events = store.read(&id, 1);
        let (mut seen, mut open) = (false, false);
        while let Some(event) = events.next().await {
            let event = event?;
            let run = event.run.as_ref().map(ToString::to_string);
            if args.run.is_some() && args.run != run {
                continue;
            }
            seen = true;
            open = !matches!(event.kind, EventKind::RunFinished(_));
            view.event(&event);
            if !open {
                view.end();
            }
            if out::stdout_error().is_some() {
                break;
            }
        }
        if open {
            view.end();
        }
        if !seen {
            return Err(CommandError::usage(match &args.run {
                Some(run) => format!("session {id} has no run `{run}`"),
                None => format!("session {id} has no events"),
            })
            .hint(format!("`windlass sessions show {id}` lists its runs")));
        }
        Ok(exit::after_output(0))
    })
}
