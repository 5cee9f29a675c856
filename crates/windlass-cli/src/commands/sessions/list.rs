//! `sessions list`: lists all sessions with their states, newest first.

use std::process::ExitCode;

use futures_util::StreamExt;
use windlass::machine::SessionLog;
use windlass::sessions::session_rows;
use windlass_text::sanitize::{message, one_line};

use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::sanitize::json_line;
use windlass::transcript::first_line;

pub(super) async fn run(
    store: &SessionLog,
    as_json: bool,
    limit: usize,
) -> Result<ExitCode, CommandError> {
    let (mut text, mut any) = (String::new(), limit == 0);
    let mut rows = session_rows(store).take(limit);
    while let Some(row) = rows.next().await {
        any = true;
        let row = match row {
            Ok(row) => row,
            // Report a damaged session, and list the others.
            Err(err) => {
                say!("warning: {}", message(&err.to_string()));
                continue;
            }
        };
        if as_json {
            text.push_str(&json_line(&row));
        } else {
            let last = row.last.to_string();
            let title = first_line(&row.title, 60);
            text.push_str(&format!(
                "{}  {}  {:>6} events  {:<11}  {title}  ({})\n",
                row.id,
                &last[..16],
                row.events,
                row.state,
                one_line(&row.workspace)
            ));
        }
    }
    if !any && !as_json {
        say!("there are no sessions yet; `windlass demo` creates one");
    }
    Ok(exit::print(&text))
}
