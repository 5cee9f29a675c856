//! `sessions`: list, show, export, delete and gc.

use crate::out::say;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use windlass_core::ask::About;
use windlass_core::event::{Event, EventKind};
use windlass_core::message::{Origin, Part, Role};
use windlass_core::store::SessionStore;
use windlass_core::validator::Judgement;
use windlass_host::config::Places;
use windlass_host::session_log::SessionLog;

use super::block_on;
use crate::args::{ExportFormat, SessionsCommand};
use crate::exit;
use crate::failure::Failure;
use crate::out;
use crate::safe::{json_line, message, one_line};
use crate::session_run::session_id;
use crate::view::context::made_room;
use crate::view::style::first_line;
use crate::view::text::{describe, explain};

pub(super) fn run(command: SessionsCommand) -> Result<ExitCode, Failure> {
    let places = Places::from_env(|name| std::env::var_os(name))?;
    let store = SessionLog::new(places.sessions_dir());
    match command {
        SessionsCommand::List { json, limit } => block_on(list(&store, json, limit)),
        SessionsCommand::Show { session } => block_on(show(&store, &session)),
        SessionsCommand::Export { session, format, to } => block_on(async {
            let id = session_id(&session)?;
            let mut file = to.as_deref().map(create).transpose()?.map(std::io::BufWriter::new);
            let mut events = store.read(&id, 1);
            while let Some(event) = events.next().await {
                let event = event?;
                let text = match format {
                    ExportFormat::Jsonl => json_line(&event),
                    ExportFormat::Markdown => markdown(&event),
                };
                match &mut file {
                    Some(file) => file.write_all(text.as_bytes())?,
                    None => out::out(&text),
                }
                if out::broken().is_some() {
                    break;
                }
            }
            if let Some(mut file) = file {
                file.flush()?;
            }
            Ok(exit::unless_broken(0))
        }),
        SessionsCommand::Gc { dry_run, days, megabytes, json } => {
            let (age, bytes) = (Duration::from_secs(days.saturating_mul(86_400)), megabytes.saturating_mul(1 << 20));
            super::kept::gc(&places, bytes, age, dry_run, json)
        }
        SessionsCommand::Delete { session, yes } => {
            let id = session_id(&session)?;
            if !yes && !confirmed(&format!("delete session {id} and everything in it? [y/N] "))? {
                return Err(
                    Failure::new(exit::ASKED, "nothing was deleted").hint("give --yes to delete without being asked")
                );
            }
            block_on(async { Ok(store.delete(&id).await?) })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn list(store: &SessionLog, as_json: bool, limit: usize) -> Result<ExitCode, Failure> {
    let mut text = String::new();
    let mut heads = store.list().take(limit);
    while let Some(head) = heads.next().await {
        let head = match head {
            Ok(head) => head,
            // One damaged session is said, and the others are still listed.
            Err(err) => {
                say!("warning: {}", message(&err.to_string()));
                continue;
            }
        };
        if as_json {
            let row = json!({
                "id": head.id, "opened": head.opened, "last": head.last, "workspace": head.workspace,
                "title": head.title, "events": head.events,
            });
            text.push_str(&json_line(&row));
        } else {
            let last = head.last.to_string();
            let title = first_line(&head.title, 60);
            text.push_str(&format!(
                "{}  {}  {:>6} events  {title}  ({})\n",
                head.id,
                &last[..16],
                head.events,
                one_line(&head.workspace)
            ));
        }
    }
    if text.is_empty() && !as_json {
        say!("there are no sessions yet; `windlass demo` makes one");
    }
    Ok(exit::printed(&text))
}

async fn show(store: &SessionLog, session: &str) -> Result<ExitCode, Failure> {
    let id = session_id(session)?;
    let mut events = store.read(&id, 1);
    while let Some(event) = events.next().await {
        let event = event?;
        if let Some(line) = line(&event) {
            let at = event.at.to_string();
            let seq = event.order.seq().unwrap_or_default();
            out::out(&format!("{seq:>5}  {}  {}\n", &at[11..19], one_line(&line)));
        }
        if out::broken().is_some() {
            break;
        }
    }
    Ok(exit::unless_broken(0))
}

/// An event in one line, for people; `None` for what only programs need.
fn line(event: &Event) -> Option<String> {
    Some(match &event.kind {
        EventKind::SessionOpened { workspace, runtime, model, .. } => {
            format!("session in {workspace} with {runtime}, model {}", model.as_deref().unwrap_or("unknown"))
        }
        EventKind::RunStarted { prompt, .. } => {
            let run = event.run.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("prompt: {} [{run}]", first_line(&prompt.text(), 200))
        }
        EventKind::TransactionOpened { terms, name } => match name {
            Some(name) => format!("works on the copy {name} ({})", terms.strategy),
            None => "works in place".to_owned(),
        },
        EventKind::Validated { validator, report, .. } => {
            let verdict = match report.judgement {
                Judgement::Pass => "passed".to_owned(),
                Judgement::Fail => format!("failed with {} findings", report.findings.len()),
                Judgement::Unverifiable => "could not be established".to_owned(),
            };
            format!("check {}: {verdict}", first_line(validator, 100))
        }
        EventKind::Landed { landed, .. } => format!("landed: {}", named(&landed.files)),
        EventKind::Kept { name } => format!("kept as {name}"),
        EventKind::Discarded { name } => format!("{name} was thrown away"),
        EventKind::Undone { files, .. } => format!("undone: {}", named(files)),
        EventKind::Redone { files, .. } => format!("redone: {}", named(files)),
        EventKind::Said { message } => {
            let text = message.text();
            if text.trim().is_empty() {
                return None;
            }
            let who = if message.origin == Origin::Engine { "engine" } else { "model" };
            format!("{who}: {}", first_line(&text, 200))
        }
        EventKind::CallStarted { call, rule, .. } => format!("call {} ({rule}) [{}]", describe(call), call.id),
        EventKind::CallFinished { result, ms } => match result.error {
            Some(_) => format!("  failed after {ms} ms: {}", first_line(&result.text, 160)),
            None => format!("  done in {ms} ms, {} characters", result.text.chars().count()),
        },
        EventKind::FileChanged { change, .. } => {
            format!("  changed {} (+{} -{})", change.path, change.added, change.removed)
        }
        EventKind::Asked { ask } => match &ask.about {
            About::Approval(approval) => {
                format!("asked {}: approve {}? ({})", ask.id, describe(&approval.call), approval.rule)
            }
            About::Landing(landing) => format!("asked {}: may {} paths land?", ask.id, landing.paths.len()),
            About::Question(question) => format!("asked {}: {}", ask.id, first_line(&question.text, 160)),
        },
        EventKind::Answered { ask, answer, by } => format!("answered {ask} by {by}: {answer:?}"),
        EventKind::Denied { reason, .. } => format!("  denied: {reason}"),
        EventKind::Compacted { compaction } => made_room(compaction),
        EventKind::Instructed { files, .. } if !files.is_empty() => {
            format!("instructed by {}", named(&files.iter().map(|file| file.path.clone()).collect::<Vec<_>>()))
        }
        EventKind::Waited { reason, ms, .. } => format!("waited {ms} ms: {reason}"),
        EventKind::Warned { text, .. } => format!("warning: {text}"),
        EventKind::RunFinished { outcome, totals, ms, .. } => {
            let (word, detail, _) = explain(outcome, &event.session, None);
            format!("{word} after {} steps and {ms} ms {detail}", totals.steps)
        }
        _ => return None,
    })
}

/// The first paths of a list.
fn named(paths: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = paths.len().saturating_sub(SHOWN);
    let shown = paths.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

fn markdown(event: &Event) -> String {
    match &event.kind {
        EventKind::SessionOpened { workspace, .. } => {
            format!("# Session {}\n\nWorkspace: `{workspace}`\n\n", event.session)
        }
        EventKind::RunStarted { prompt, .. } => format!("## Prompt\n\n{}\n\n", prompt.text()),
        EventKind::Said { message } if message.role == Role::Assistant => {
            let mut text = String::new();
            for part in &message.parts {
                match part {
                    Part::Text { text: said } => text.push_str(&format!("{said}\n\n")),
                    Part::Call(call) => {
                        text.push_str(&format!(
                            "**{}**\n\n{}\n",
                            call.name,
                            fenced(&format!("{:#}", call.args), "json")
                        ));
                    }
                    _ => {}
                }
            }
            text
        }
        EventKind::Said { message } => format!("> (engine) {}\n\n", message.text().replace('\n', "\n> ")),
        EventKind::CallFinished { result, .. } => fenced(&result.text, ""),
        EventKind::RunFinished { outcome, totals, .. } => {
            let (word, detail, _) = explain(outcome, &event.session, None);
            format!("*{word}, {} steps* {detail}\n\n", totals.steps)
        }
        _ => String::new(),
    }
}

/// A code block whose fence is longer than any in the text.
fn fenced(text: &str, language: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}\n\n", text.trim_end())
}

fn create(path: &std::path::Path) -> Result<std::fs::File, Failure> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|err| match err.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::usage(format!("{} exists already", path.display())).hint("name another file, or remove it first")
        }
        _ => Failure::new(exit::FAILED, format!("{} cannot be written: {err}", path.display())),
    })
}

pub(super) fn confirmed(question: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    crate::out::err(question);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}
