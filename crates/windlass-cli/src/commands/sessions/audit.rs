//! A session as an audit log: who did what, by which rule, and with what end. Content stays out; its hash and size
//! stand for it, so that it can be proven what it was and not read here.

use serde_json::{Value, json};
use windlass_core::ask::{About, Answer, AnsweredBy, Ask};
use windlass_core::event::{Event, EventKind};
use windlass_core::message::{Message, Origin, Role, ToolCall};
use windlass_core::outcome::RunSummary;
use windlass_core::workspace::Redactor;
use windlass_host::secret::Secrets;

use crate::view::style::first_line;

/// Characters of a command line that are told; the whole of it is told by its hash.
const SHOWN: usize = 200;

/// What an event means to whoever audits; `None` when nobody decided or did anything.
pub(super) fn row(event: &Event) -> Option<Value> {
    let (mut who, did, more) = told(&event.kind)?;
    if matches!(event.kind, EventKind::Discarded { .. }) && event.run.is_some() {
        // A copy that held nothing when the run stopped to ask; what a person throws away is of no run any more.
        who = "engine";
    }
    let mut row = json!({
        "at": event.at, "session": event.session, "seq": event.order.seq(), "run": event.run, "who": who, "did": did,
    });
    if let (Some(row), Value::Object(more)) = (row.as_object_mut(), more) {
        row.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
    }
    Some(row)
}

type Told = (&'static str, &'static str, Value);

fn told(kind: &EventKind) -> Option<Told> {
    Some(match kind {
        EventKind::SessionOpened {
            workspace,
            runtime,
            model,
            program,
        } => {
            let more = json!({ "workspace": workspace, "runtime": runtime, "model": model, "program": program });
            ("engine", "opened the session", more)
        }
        EventKind::Queued { prompt, .. } => ("person", "queued a prompt", content(&prompt.text())),
        EventKind::RunStarted { prompt, .. } => ("person", "asked", content(&prompt.text())),
        EventKind::TransactionOpened { terms, name } => (
            "engine",
            "stated the terms",
            json!({ "terms": terms, "copy": name }),
        ),
        EventKind::Said { message, .. } => (speaker(message), "said", said(message)),
        EventKind::CallStarted {
            call,
            verdict,
            rule,
        } => (
            "policy",
            "let a call run",
            with(
                about_call(call),
                json!({ "verdict": verdict, "rule": rule }),
            ),
        ),
        EventKind::Denied { call, rule, .. } => (
            "policy",
            "denied a call",
            json!({ "call": call, "rule": rule }),
        ),
        EventKind::CallFinished { result, ms } => {
            let more =
                json!({ "call": result.id, "tool": result.name, "error": result.error, "ms": ms });
            ("engine", "ended a call", with(more, content(&result.text)))
        }
        EventKind::CommandStarted { call, command } => (
            "model",
            "ran a command",
            with(
                json!({ "call": call, "command": shown(command) }),
                content(command),
            ),
        ),
        EventKind::CommandFinished {
            call,
            end,
            bytes,
            ms,
        } => (
            "engine",
            "saw a command end",
            json!({ "call": call, "end": end, "bytes": bytes, "ms": ms }),
        ),
        EventKind::FileChanged { call, change, swap } => {
            let images = swap
                .as_ref()
                .map(|swap| json!({ "before": swap.before, "after": swap.after }));
            let more = json!({ "call": call, "path": change.path, "change": change.change, "added": change.added,
                               "removed": change.removed, "images": images });
            ("model", "changed a file", more)
        }
        EventKind::ConnectionRefused { host, rule } => (
            "policy",
            "refused a connection",
            json!({ "host": host, "rule": rule }),
        ),
        EventKind::Asked { ask } => ("engine", "asked a person", about_ask(ask)),
        EventKind::Answered { ask, answer, by } => (
            answerer(*by),
            "answered",
            about_answer(ask.as_str(), answer, *by),
        ),
        _ => return told_of_landing(kind),
    })
}

/// What became of the work.
fn told_of_landing(kind: &EventKind) -> Option<Told> {
    Some(match kind {
        EventKind::Validated {
            validator,
            blocking,
            report,
            ..
        } => {
            let more = json!({ "validator": shown(validator), "judgement": report.judgement, "blocking": blocking,
                               "findings": report.findings.len(), "exit": report.proof.exit, "digest": report.proof.digest });
            ("validator", "judged", more)
        }
        EventKind::PatchApplied { files } => {
            ("engine", "applied a patch", json!({ "files": files }))
        }
        EventKind::Landed { landed, tree_hash } => {
            let more = json!({ "files": landed.files, "tree_hash": tree_hash, "commit": landed.commit,
                               "ref": landed.refname, "executes": landed.executes });
            ("engine", "landed", more)
        }
        EventKind::Kept { name } => ("engine", "kept the copy", json!({ "copy": name })),
        EventKind::Discarded { name } => ("person", "threw the copy away", json!({ "copy": name })),
        EventKind::Undone {
            of, also, files, ..
        } => {
            let of: Vec<u64> = std::iter::once(*of).chain(also.iter().copied()).collect();
            ("person", "took back", json!({ "of": of, "files": files }))
        }
        EventKind::Redone { of, files, .. } => {
            ("person", "did again", json!({ "of": of, "files": files }))
        }
        EventKind::ModelSwitched { from, to } => (
            "person",
            "switched the model",
            json!({ "from": from, "to": to }),
        ),
        EventKind::FailedOver { from, to, .. } => {
            ("engine", "failed over", json!({ "from": from, "to": to }))
        }
        EventKind::Compacted { .. } => (
            "engine",
            "compacted",
            content(super::summary(kind).unwrap_or_default()),
        ),
        EventKind::Instructed { files, .. } => {
            ("engine", "read instructions", json!({ "files": files }))
        }
        EventKind::Forked { from, at_seq } => (
            "person",
            "forked",
            json!({ "from": from, "at_seq": at_seq }),
        ),
        EventKind::BudgetWarned { limit } => {
            ("engine", "warned of a limit", json!({ "limit": limit }))
        }
        EventKind::Warned { code, .. } => ("engine", "warned", json!({ "code": code })),
        EventKind::RunFinished(RunSummary {
            outcome,
            totals,
            ms,
            judge_changed,
            ..
        }) => {
            let more = json!({ "outcome": outcome.word(), "totals": totals, "ms": ms, "judge_changed": judge_changed });
            ("engine", "ended the run", more)
        }
        EventKind::SessionClosed {} => ("engine", "closed the session", json!({})),
        EventKind::Unknown(event) => (
            "engine",
            "logged an event of a later version",
            json!({ "kind": event.kind }),
        ),
        _ => return None,
    })
}

fn speaker(message: &Message) -> &'static str {
    match (message.role, message.origin) {
        (_, Origin::Engine) => "engine",
        (Role::Assistant, _) => "model",
        _ => "person",
    }
}

fn answerer(by: AnsweredBy) -> &'static str {
    match by {
        AnsweredBy::Person | AnsweredBy::YesFlag => "person",
        AnsweredBy::Policy => "policy",
        AnsweredBy::Engine => "engine",
    }
}

fn said(message: &Message) -> Value {
    let calls: Vec<Value> = message.calls().map(about_call).collect();
    with(
        content(&message.text()),
        json!({ "calls": (!calls.is_empty()).then_some(calls) }),
    )
}

fn about_call(call: &ToolCall) -> Value {
    let args = call.args.to_string();
    let told = json!({ "call": call.id, "tool": call.name, "args_bytes": args.len(), "args_blake3": hash(&args) });
    match call.args.get("path").and_then(Value::as_str) {
        Some(path) => with(told, json!({ "path": path })),
        None => told,
    }
}

fn about_ask(ask: &Ask) -> Value {
    let more = match &ask.about {
        About::Approval(approval) => with(
            about_call(&approval.call),
            json!({ "about": "approval", "rule": approval.rule }),
        ),
        About::Question(question) => with(content(&question.text), json!({ "about": "question" })),
        About::Landing(landing) => {
            let paths: Vec<&str> = landing
                .paths
                .iter()
                .map(|(path, _)| path.as_str())
                .collect();
            json!({ "about": "landing", "paths": paths })
        }
    };
    with(
        more,
        json!({ "ask": ask.id, "person_only": ask.person, "expires": ask.expires }),
    )
}

fn about_answer(ask: &str, answer: &Answer, by: AnsweredBy) -> Value {
    let (word, text) = match answer {
        Answer::Once => ("once", None),
        Answer::Always => ("always", None),
        Answer::No { note } => ("no", note.as_deref()),
        Answer::Text { text } => ("text", Some(text.as_str())),
        Answer::Expired => ("expired", None),
        Answer::Nobody => ("nobody", None),
        Answer::Abandoned => ("abandoned", None),
    };
    with(
        json!({ "ask": ask, "answer": word, "by": by }),
        text.map_or(json!({}), content),
    )
}

/// What stands for a text.
fn content(text: &str) -> Value {
    json!({ "bytes": text.len(), "blake3": hash(text) })
}

fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// The beginning of a command, once more without what looks like a secret.
fn shown(text: &str) -> String {
    first_line(&Secrets::default().redact(text), SHOWN)
}

fn with(mut value: Value, more: Value) -> Value {
    if let (Some(map), Value::Object(more)) = (value.as_object_mut(), more) {
        map.extend(more);
    }
    value
}
