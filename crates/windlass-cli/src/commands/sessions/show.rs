//! `sessions show`: prints one line for each relevant event, or the raw events.

use std::process::ExitCode;

use futures_util::StreamExt;
use windlass::core::id::{RunId, SessionId};
use windlass::core::store::SessionStore;
use windlass::machine::SessionLog;
use windlass::transcript::{Actor, LineBlock, Transcript, TranscriptLine, Visibility};
use windlass_text::sanitize::one_line;

use crate::args::ShowArgs;
use crate::command_error::CommandError;
use crate::{exit, out};

pub(super) async fn run(
    store: &SessionLog,
    id: &SessionId,
    args: &ShowArgs,
) -> Result<ExitCode, CommandError> {
    let run: Option<RunId> = match &args.run {
        Some(run) => Some(
            run.parse()
                .map_err(|err: windlass::core::id::IdError| CommandError::usage(err.to_string()))?,
        ),
        None => None,
    };
    let mut transcript = Transcript::default();
    let mut events = store.read(id, args.from);
    let (mut seen, mut any) = (false, false);
    while let Some(event) = events.next().await {
        let event = event?;
        any = true;
        if run.is_some() && event.run != run {
            continue;
        }
        seen = true;
        if args.json {
            out::json(&event);
        } else {
            show(&transcript.line(&event), event.run.as_ref());
        }
        if out::stdout_error().is_some() {
            break;
        }
    }
    if !any && args.from <= 1 {
        return Err(CommandError::usage(format!(
            "session {id} has no events: its creation was interrupted"
        ))
        .hint(format!("delete it with `windlass sessions delete {id}`")));
    }
    if !seen {
        return Err(
            CommandError::usage(format!("session {id} has no such events"))
                .hint(format!("`windlass sessions show {id}` shows all of them")),
        );
    }
    Ok(exit::after_output(0))
}

fn show(line: &TranscriptLine<'_>, run: Option<&RunId>) {
    if line.visibility < Visibility::Record {
        return;
    }
    let at = line.at.to_string();
    let indent = if line.call.is_some() { "  " } else { "" };
    let id = match (line.body.first(), run) {
        (Some(LineBlock::Call(call)), _) => format!(" [{}]", call.id),
        (_, Some(run)) if line.actor == Actor::Person => format!(" [{run}]"),
        _ => String::new(),
    };
    out::out(&format!(
        "{:>5}  {}  {indent}{}{}\n",
        line.seq.unwrap_or_default(),
        &at[11..19],
        one_line(&line.summary()),
        one_line(&id),
    ));
}
