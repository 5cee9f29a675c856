//! `replay`: a session played back from its log through the same views. Nothing is asked, run or changed.

use std::process::ExitCode;

use futures_util::StreamExt;
use windlass::core::event::EventKind;
use windlass::core::store::SessionStore;
use windlass::machine::SessionLog;

use super::block_on;
use crate::args::ReplayArgs;
use crate::exit;
use crate::failure::Failure;
use crate::out;
use crate::process;
use crate::session_run::find_session;
use crate::view::View;

pub(super) fn run(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let places = process::places()?;
    let store = SessionLog::new(places.sessions_dir());
    let id = find_session(&args.session)?;
    block_on(async {
        let mut view = View::new(&args.output, &id, false, None);
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
            if out::broken().is_some() {
                break;
            }
        }
        if open {
            view.end();
        }
        if !seen {
            return Err(
                Failure::usage(format!("nothing of that is in session {id}"))
                    .hint("`windlass sessions show SESSION` lists its runs"),
            );
        }
        Ok(exit::unless_broken(0))
    })
}
