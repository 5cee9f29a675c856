//! `sessions show`: what happened, one line for each event that a person cares about, or the events themselves.

use std::process::ExitCode;

use futures_util::StreamExt;
use windlass_core::ask::About;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::RunId;
use windlass_core::message::Origin;
use windlass_core::outcome::RunSummary;
use windlass_core::store::SessionStore;
use windlass_core::validator::Judgement;
use windlass_host::session_log::SessionLog;

use super::html::answered;
use crate::args::ShowArgs;
use crate::failure::Failure;
use crate::safe::one_line;
use crate::session_run::session_id;
use crate::view::context::made_room;
use crate::view::style::first_line;
use crate::view::text::{describe, explain};
use crate::{exit, out};

pub(super) async fn run(store: &SessionLog, args: &ShowArgs) -> Result<ExitCode, Failure> {
    let id = session_id(&args.session)?;
    let run: Option<RunId> = match &args.run {
        Some(run) => Some(
            run.parse()
                .map_err(|err: windlass_core::id::IdError| Failure::usage(err.to_string()))?,
        ),
        None => None,
    };
    let mut events = store.read(&id, args.from);
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
        } else if let Some(line) = line(&event) {
            let at = event.at.to_string();
            let seq = event.order.seq().unwrap_or_default();
            out::out(&format!("{seq:>5}  {}  {}\n", &at[11..19], one_line(&line)));
        }
        if out::broken().is_some() {
            break;
        }
    }
    if !any && args.from <= 1 {
        return Err(Failure::usage(format!(
            "session {id} has no events: its beginning was never written"
        ))
        .hint(format!("`windlass sessions delete {id}` removes it")));
    }
    if !seen {
        return Err(
            Failure::usage(format!("nothing of that is in session {id}"))
                .hint("`windlass sessions show SESSION` without more shows all of it"),
        );
    }
    Ok(exit::unless_broken(0))
}

/// An event in one line, for people; `None` for what only programs need.
fn line(event: &Event) -> Option<String> {
    Some(match &event.kind {
        EventKind::SessionOpened {
            workspace,
            runtime,
            model,
            ..
        } => {
            format!(
                "session in {workspace} with {runtime}, model {}",
                model.as_deref().unwrap_or("unknown")
            )
        }
        EventKind::RunStarted { prompt, .. } => {
            let run = event
                .run
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            format!("prompt: {} [{run}]", first_line(&prompt.text(), 200))
        }
        EventKind::TransactionOpened { terms, name } => match name {
            Some(name) => format!("works on the copy {name} ({})", terms.strategy),
            None => "works in place".to_owned(),
        },
        EventKind::Validated {
            validator, report, ..
        } => {
            let verdict = match report.judgement {
                Judgement::Pass => "passed".to_owned(),
                Judgement::Fail => format!("failed with {} findings", report.findings.len()),
                Judgement::Unverifiable => "could not be established".to_owned(),
            };
            format!("check {}: {verdict}", first_line(validator, 100))
        }
        EventKind::Compacted { compaction } => made_room(compaction),
        EventKind::Instructed { files, .. } if !files.is_empty() => {
            format!(
                "instructed by {}",
                named(
                    &files
                        .iter()
                        .map(|file| file.path.clone())
                        .collect::<Vec<_>>()
                )
            )
        }
        EventKind::Landed { landed, .. } => format!("landed: {}", named(&landed.files)),
        EventKind::Kept { name } => format!("kept as {name}"),
        EventKind::Discarded { name } => format!("{name} was thrown away"),
        EventKind::Undone { files, .. } => format!("undone: {}", named(files)),
        EventKind::Redone { files, .. } => format!("redone: {}", named(files)),
        EventKind::Queued { prompt, steer } => {
            let when = if *steer {
                "to the run that is going"
            } else {
                "for later"
            };
            format!("said {when}: {}", first_line(&prompt.text(), 200))
        }
        EventKind::Forked { from, at_seq } => format!("forked from {from} at event {at_seq}"),
        EventKind::Said { message, .. } => {
            let text = message.text();
            if text.trim().is_empty() {
                return None;
            }
            let who = match message.origin {
                Origin::Engine => "engine",
                Origin::Model => "model",
                Origin::Person => "person",
            };
            format!("{who}: {}", first_line(&text, 200))
        }
        EventKind::CallStarted { call, rule, .. } => {
            format!("call {} ({rule}) [{}]", describe(call), call.id)
        }
        EventKind::CallFinished { result, ms } => match result.error {
            Some(_) => format!("  failed after {ms} ms: {}", first_line(&result.text, 160)),
            None => format!(
                "  done in {ms} ms, {} characters",
                result.text.chars().count()
            ),
        },
        EventKind::FileChanged { change, .. } => {
            format!(
                "  changed {} (+{} -{})",
                change.path, change.added, change.removed
            )
        }
        EventKind::Asked { ask } => match &ask.about {
            About::Approval(approval) => {
                format!(
                    "asked {}: approve {}? ({})",
                    ask.id,
                    describe(&approval.call),
                    approval.rule
                )
            }
            About::Landing(landing) => {
                format!("asked {}: may {} paths land?", ask.id, landing.paths.len())
            }
            About::Question(question) => {
                format!("asked {}: {}", ask.id, first_line(&question.text, 160))
            }
        },
        EventKind::Answered { ask, answer, by } => {
            format!("answered {ask} by {by}: {}", answered(answer))
        }
        EventKind::Denied { reason, .. } => format!("  denied: {reason}"),
        EventKind::Waited { reason, ms, .. } => format!("waited {ms} ms: {reason}"),
        EventKind::Warned { text, .. } => format!("warning: {text}"),
        EventKind::RunFinished(RunSummary {
            outcome,
            totals,
            ms,
            ..
        }) => {
            let (word, detail, _) = explain(outcome, &event.session, None);
            format!("{word} after {} steps and {ms} ms {detail}", totals.steps)
        }
        EventKind::Unknown(event) => format!(
            "{} {}",
            event.kind,
            first_line(&event.data.to_string(), 160)
        ),
        _ => return None,
    })
}

/// The first paths of a list.
fn named(paths: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = paths.len().saturating_sub(SHOWN);
    let shown = paths
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if more > 0 {
        format!("{shown} and {more} more")
    } else {
        shown
    }
}
