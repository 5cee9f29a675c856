//! `sessions list`: all sessions, newest first, and where each of them stands.

use std::collections::BTreeSet;
use std::process::ExitCode;

use futures_util::StreamExt;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde_json::json;
use windlass::core::event::EventKind;
use windlass::core::id::{AskId, SessionId};
use windlass::core::outcome::RunSummary;
use windlass::core::store::{SessionHead, SessionStore};
use windlass::machine::SessionLog;

use crate::exit;
use crate::failure::Failure;
use crate::out::say;
use crate::safe::{json_line, message, one_line};
use windlass::transcript::first_line;

/// Of a log, the last events tell where it stands: an ask is among the last things that happened, or answered.
const TAIL: u64 = 64;

pub(super) async fn run(
    store: &SessionLog,
    as_json: bool,
    limit: usize,
) -> Result<ExitCode, Failure> {
    let (mut text, mut any) = (String::new(), limit == 0);
    let mut heads = store.list().take(limit);
    while let Some(head) = heads.next().await {
        any = true;
        let head = match head {
            Ok(head) => head,
            // One damaged session is said, and the others are still listed.
            Err(err) => {
                say!("warning: {}", message(&err.to_string()));
                continue;
            }
        };
        let state = state(store, &head).await;
        if as_json {
            let row = json!({
                "id": head.id, "opened": head.opened, "last": head.last, "workspace": head.workspace,
                "title": head.title, "events": head.events, "state": state,
            });
            text.push_str(&json_line(&row));
        } else {
            let last = head.last.to_string();
            let title = first_line(&head.title, 60);
            text.push_str(&format!(
                "{}  {}  {:>6} events  {state:<11}  {title}  ({})\n",
                head.id,
                &last[..16],
                head.events,
                one_line(&head.workspace)
            ));
        }
    }
    if !any && !as_json {
        say!("there are no sessions yet; `windlass demo` makes one");
    }
    Ok(exit::printed(&text))
}

/// Where a session stands, in a word: `running`, `waiting` for an answer, `interrupted`, the outcome of its last run,
/// `closed`, `damaged`, or `new`.
async fn state(store: &SessionLog, head: &SessionHead) -> String {
    let mut events = store.read(&head.id, head.events.saturating_sub(TAIL).max(1));
    let mut state = "new".to_owned();
    let mut asks: BTreeSet<AskId> = BTreeSet::new();
    while let Some(event) = events.next().await {
        let Ok(event) = event else {
            return "damaged".to_owned();
        };
        let in_run = event.run.is_some();
        match event.kind {
            EventKind::RunFinished(RunSummary { outcome, .. }) => {
                asks.clear();
                outcome.word().clone_into(&mut state);
            }
            EventKind::SessionClosed {} => "closed".clone_into(&mut state),
            EventKind::RunStarted { .. } => {
                asks.clear();
                "interrupted".clone_into(&mut state);
            }
            EventKind::Asked { ask } => {
                asks.insert(ask.id);
                "interrupted".clone_into(&mut state);
            }
            EventKind::Answered { ask, .. } => drop(asks.remove(&ask)),
            EventKind::Forked { .. } => asks.clear(),
            // What a run does shows that it has begun; what is noted beside runs does not. Of many changes of one call
            // the tail may hold nothing else.
            EventKind::CallStarted { .. } | EventKind::Said { .. } if in_run => {
                "interrupted".clone_into(&mut state)
            }
            _ if in_run && state == "new" => "interrupted".clone_into(&mut state),
            _ => {}
        }
    }
    if is_busy(store, &head.id) {
        return "running".to_owned();
    }
    if asks.is_empty() {
        state
    } else {
        "waiting".to_owned()
    }
}

/// Whether somebody writes it now. The lock is looked at, never held.
fn is_busy(store: &SessionLog, id: &SessionId) -> bool {
    let lock = store.log_path(id).with_file_name("writer.lock");
    let Ok(lock) = rustix::fs::open(
        &lock,
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    ) else {
        return false;
    };
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared)
        == Err(rustix::io::Errno::WOULDBLOCK)
}
