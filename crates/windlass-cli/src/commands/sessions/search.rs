//! `sessions search`: prints the lines of all sessions that contain a text.

use std::process::ExitCode;

use windlass::machine::SessionLog;
use windlass::sessions::{SearchMatch, SessionSearch};
use windlass_text::sanitize::{message, one_line};

use crate::args::SearchArgs;
use crate::command_error::CommandError;
use crate::out::say;
use crate::{exit, out};

pub(super) fn run(store: &SessionLog, args: &SearchArgs) -> Result<ExitCode, CommandError> {
    let mut search = SessionSearch::new(store, &args.text, args.case)?;
    let mut found = 0;
    for one in &mut search {
        let one = match one {
            Ok(one) => one,
            Err(err) => {
                say!("warning: skipped: {}", message(&err.to_string()));
                continue;
            }
        };
        if found >= args.limit || out::stdout_error().is_some() {
            break;
        }
        found += 1;
        print_match(&one, args.json);
    }
    if found >= args.limit {
        say!("stopped after {} matches; `--limit` shows more", args.limit);
    } else if found == 0 && !args.json {
        say!("no matches in {} sessions", search.sessions());
    }
    // Like grep: no match is a failure.
    Ok(exit::success_if(found > 0))
}

fn print_match(one: &SearchMatch, as_json: bool) {
    if as_json {
        out::json(one);
    } else {
        let line = one_line(&one.line);
        out::out(&format!(
            "{}  {:>5}  {:<7} {line}\n",
            one.session, one.seq, one.who
        ));
    }
}
