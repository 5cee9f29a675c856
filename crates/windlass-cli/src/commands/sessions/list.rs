//! `sessions list`: lists all sessions with their states, newest first.

use std::process::ExitCode;

use futures_util::StreamExt;
use serde_json::json;
use windlass::core::store::SessionStore;
use windlass::machine::SessionLog;

use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::sanitize::{json_line, message, one_line};
use windlass::transcript::first_line;

pub(super) async fn run(
    store: &SessionLog,
    as_json: bool,
    limit: usize,
) -> Result<ExitCode, CommandError> {
    let (mut text, mut any) = (String::new(), limit == 0);
    let mut heads = store.list().take(limit);
    while let Some(head) = heads.next().await {
        any = true;
        let head = match head {
            Ok(head) => head,
            // Report a damaged session, and list the others.
            Err(err) => {
                say!("warning: {}", message(&err.to_string()));
                continue;
            }
        };
        let state = head.state.word();
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
        say!("there are no sessions yet; `windlass demo` creates one");
    }
    Ok(exit::print(&text))
}
