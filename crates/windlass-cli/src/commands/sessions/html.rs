//! A session as one page that needs nothing else: no script, no other file, no network. Everything that anybody said
//! is escaped; calls and reasoning are folded until somebody opens them.

use windlass::stats::{Stats, cache_hits};
use windlass_core::ask::{About, Answer, Ask};
use windlass_core::event::{Event, EventKind};
use windlass_core::id::{CallId, SessionId};
use windlass_core::message::{Message, Origin, Part, Role, ToolCall, ToolResult};
use windlass_core::outcome::RunSummary;
use windlass_core::validator::{Judgement, Report};

use crate::safe::plain;
use crate::view::text::{describe, explain};

/// What a picture may be; anything else is named and not shown.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Makes a page, event by event.
pub(super) struct Page {
    session: SessionId,
    stats: Stats,
    /// Calls that were said and have no result yet, with what they changed so far.
    open: Vec<(ToolCall, String)>,
}

impl Page {
    pub(super) fn new(session: &SessionId) -> Self {
        Self {
            session: session.clone(),
            stats: Stats::default(),
            open: Vec::new(),
        }
    }

    pub(super) fn begin(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
             img-src data:\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>Session {}</title>\n<style>\n{}</style>\n\
             </head>\n<body>\n<main>\n",
            escape(self.session.as_str()),
            include_str!("page.css"),
        )
    }

    pub(super) fn event(&mut self, event: &Event) -> String {
        self.stats.apply(event);
        let seq = event.order.seq().unwrap_or_default();
        match &event.kind {
            EventKind::SessionOpened {
                workspace,
                runtime,
                model,
                ..
            } => {
                let model = model.as_deref().unwrap_or("unknown");
                format!(
                    "<header>\n<h1>Session {}</h1>\n<p class=\"about\">{} · {} · {} · {}</p>\n</header>\n",
                    escape(self.session.as_str()),
                    escape(workspace),
                    escape(runtime),
                    escape(model),
                    escape(&event.at.to_string()),
                )
            }
            EventKind::RunStarted { prompt, .. } => {
                let run = event
                    .run
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                format!(
                    "{}<h2 id=\"e{seq}\">{}</h2>\n{}",
                    self.rest(),
                    escape(&run),
                    spoken("prompt", "You", prompt)
                )
            }
            EventKind::Said { message, .. } => self.said(message),
            EventKind::FileChanged { call, change, .. } => {
                let shown = diff(
                    &change.path,
                    change.added,
                    change.removed,
                    change.diff.as_deref(),
                );
                match self.open.iter_mut().find(|(open, _)| open.id == *call) {
                    Some((_, changes)) => {
                        changes.push_str(&shown);
                        String::new()
                    }
                    None => shown,
                }
            }
            EventKind::CallFinished { result, ms } => self.call_finished(result, *ms),
            EventKind::RunFinished(RunSummary {
                outcome,
                totals,
                ms,
                files,
                ..
            }) => {
                let (word, detail, _) = explain(outcome, &event.session, None);
                let files: String = files
                    .iter()
                    .map(|file| diff(&file.path, file.added, file.removed, None))
                    .collect();
                let cost = if totals.unpriced {
                    "price unknown".to_owned()
                } else {
                    dollars(totals.cost_micros)
                };
                let tokens = totals.usage.counted();
                format!(
                    "{}<div class=\"end {}\"><b>{}</b> {}<p>{} steps · {tokens} tokens · {cost} · {ms} ms</p>{files}</div>\n",
                    self.rest(),
                    if outcome.word().starts_with("completed") {
                        "ok"
                    } else {
                        "bad"
                    },
                    escape(&word),
                    escape(&detail),
                    totals.steps,
                )
            }
            other => note(other)
                .map(|(class, text)| aside(class, &text))
                .unwrap_or_default(),
        }
    }

    pub(super) fn end(&mut self) -> String {
        let rest = self.rest();
        let total = &self.stats.total;
        let hits = cache_hits(&total.spent.usage)
            .map_or_else(|| "—".to_owned(), |hits| format!("{:.0} %", hits * 100.0));
        let unpriced = if total.spent.unpriced {
            " and what has no known price"
        } else {
            ""
        };
        let rows = [
            ("runs", self.stats.runs.len().to_string()),
            ("steps", total.spent.steps.to_string()),
            ("tokens in", total.spent.usage.total_input().to_string()),
            ("tokens out", total.spent.usage.output.to_string()),
            ("input from a cache", hits),
            (
                "cost",
                format!("{}{unpriced}", dollars(total.spent.cost_micros)),
            ),
            (
                "calls",
                format!(
                    "{} ({} failed, {} denied)",
                    total.calls.count, total.calls.failed, total.calls.denied
                ),
            ),
            (
                "time",
                format!(
                    "{} ms, of which models took {} ms",
                    total.ms, total.model_ms
                ),
            ),
            (
                "files changed",
                format!(
                    "{} (+{} -{})",
                    self.stats.files.len(),
                    total.added,
                    total.removed
                ),
            ),
        ];
        let rows: String = rows
            .iter()
            .map(|(what, is)| format!("<tr><th>{what}</th><td>{is}</td></tr>\n"))
            .collect();
        format!(
            "{rest}<footer>\n<h2>Totals</h2>\n<table>\n{rows}</table>\n</footer>\n</main>\n</body>\n</html>\n"
        )
    }

    fn said(&mut self, message: &Message) -> String {
        let mut text = self.rest();
        text.push_str(&match (message.role, message.origin) {
            (_, Origin::Engine) => spoken("engine", "Engine", message),
            (Role::Assistant, _) => spoken("answer", "Model", message),
            _ => spoken("prompt", "You", message),
        });
        self.open = message
            .calls()
            .map(|call| (call.clone(), String::new()))
            .collect();
        text
    }

    fn call_finished(&mut self, result: &ToolResult, ms: u64) -> String {
        let known = self.open.iter().position(|(call, _)| call.id == result.id);
        let (call, changes) = match known {
            Some(at) => self.open.remove(at),
            None => (unknown_call(&result.id, &result.name), String::new()),
        };
        let (class, end) = match result.error {
            Some(error) => ("bad", error.word()),
            None => ("ok", "done"),
        };
        called(
            &call,
            class,
            &format!("{end} · {ms} ms"),
            &changes,
            &result.text,
        )
    }

    /// Calls that never had a result.
    fn rest(&mut self) -> String {
        let open = std::mem::take(&mut self.open);
        open.iter()
            .map(|(call, changes)| called(call, "bad", "no result", changes, ""))
            .collect()
    }
}

fn unknown_call(id: &CallId, name: &str) -> ToolCall {
    ToolCall {
        id: id.clone(),
        name: name.to_owned(),
        args: serde_json::Value::Null,
        malformed: None,
    }
}

/// One call, folded.
fn called(call: &ToolCall, class: &str, end: &str, changes: &str, result: &str) -> String {
    let args = call
        .malformed
        .clone()
        .unwrap_or_else(|| format!("{:#}", call.args));
    format!(
        "<details class=\"call {class}\"><summary><code>{}</code> <span class=\"how\">{}</span></summary>\n\
         <pre class=\"args\">{}</pre>\n{changes}<pre class=\"result\">{}</pre>\n</details>\n",
        escape(&describe(call)),
        escape(end),
        escape(&args),
        escape(result),
    )
}

fn spoken(class: &str, who: &str, message: &Message) -> String {
    let mut text = String::new();
    for part in &message.parts {
        match part {
            Part::Text { text: said } if said.trim().is_empty() => {}
            Part::Text { text: said } => {
                text.push_str(&format!("<div class=\"text\">{}</div>\n", escape(said)))
            }
            Part::Reasoning { text: thought, .. } if !thought.trim().is_empty() => {
                let thought = escape(thought);
                text.push_str(&format!(
                    "<details class=\"thought\"><summary>reasoning</summary><div class=\"text\">{thought}</div></details>\n"
                ));
            }
            Part::Image { media_type, data } => text.push_str(&picture(media_type, data)),
            _ => {}
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("<section class=\"{class}\"><h3>{who}</h3>\n{text}</section>\n")
}

fn picture(media_type: &str, data: &str) -> String {
    let base64 = data
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
    if PICTURES.contains(&media_type) && base64 {
        return format!("<img alt=\"attached picture\" src=\"data:{media_type};base64,{data}\">\n");
    }
    format!(
        "<p class=\"note\">a picture of the kind {} is not shown</p>\n",
        escape(media_type)
    )
}

fn diff(path: &str, added: u32, removed: u32, diff: Option<&str>) -> String {
    let head = format!(
        "<p class=\"file\"><code>{}</code> +{added} -{removed}</p>\n",
        escape(path)
    );
    let Some(diff) = diff else { return head };
    let line = |line: &str| {
        let class = match line.bytes().next() {
            _ if line.starts_with("+++") || line.starts_with("---") => "meta",
            Some(b'+') => "add",
            Some(b'-') => "del",
            Some(b'@') => "meta",
            _ => return format!("{}\n", escape(line)),
        };
        format!("<span class=\"{class}\">{}</span>\n", escape(line))
    };
    format!(
        "{head}<pre class=\"diff\">{}</pre>\n",
        diff.lines().map(line).collect::<String>()
    )
}

/// What else happened, in a line.
fn note(kind: &EventKind) -> Option<(&'static str, String)> {
    Some(match kind {
        EventKind::TransactionOpened { terms, name } => {
            let place = name.as_ref().map_or_else(
                || "in place".to_owned(),
                |name| format!("on the copy {name}"),
            );
            (
                "note",
                format!(
                    "works {place}; {}; network {}",
                    terms.confinement(),
                    terms.network
                ),
            )
        }
        EventKind::Asked { ask } => ("ask", question(ask)),
        EventKind::Answered { answer, by, .. } => {
            ("ask", format!("answered by {by}: {}", answered(answer)))
        }
        EventKind::Denied { rule, reason, .. } => ("bad", format!("not run: {reason} ({rule})")),
        EventKind::ConnectionRefused { host, rule } => {
            ("bad", format!("no connection to {host} ({rule})"))
        }
        EventKind::Waited { reason, ms, .. } => ("note", format!("waited {ms} ms: {reason}")),
        EventKind::Validated {
            validator, report, ..
        } => judged(validator, report),
        EventKind::Landed { landed, .. } => ("ok", format!("landed: {}", landed.files.join(", "))),
        EventKind::Kept { name } => ("note", format!("kept as {name}")),
        EventKind::Discarded { name } => ("note", format!("{name} was thrown away")),
        EventKind::Undone { files, .. } => ("note", format!("taken back: {}", files.join(", "))),
        EventKind::Redone { files, .. } => ("note", format!("done again: {}", files.join(", "))),
        EventKind::Compacted { .. } => {
            let summary = super::summary(kind).unwrap_or_default();
            (
                "note",
                format!("older messages made room for a summary:\n{summary}"),
            )
        }
        EventKind::ModelSwitched { from, to } => {
            ("note", format!("the model is now {to} (was {from})"))
        }
        EventKind::Warned { text, .. } => ("bad", text.clone()),
        EventKind::Unknown(event) => ("note", format!("{} {}", event.kind, event.data)),
        _ => return None,
    })
}

fn judged(validator: &str, report: &Report) -> (&'static str, String) {
    let (class, word) = match report.judgement {
        Judgement::Pass => ("ok", "passed"),
        Judgement::Fail => ("bad", "failed"),
        Judgement::Unverifiable => ("bad", "could not be established"),
    };
    let findings: String = report
        .findings
        .iter()
        .map(|finding| format!("\n{finding}"))
        .collect();
    (class, format!("check {validator}: {word}{findings}"))
}

fn question(ask: &Ask) -> String {
    match &ask.about {
        About::Approval(approval) => format!(
            "asked: may this run? {} ({})",
            describe(&approval.call),
            approval.rule
        ),
        About::Question(question) => format!("asked: {}", question.text),
        About::Landing(landing) => format!("asked: may {} paths land?", landing.paths.len()),
    }
}

pub(super) fn answered(answer: &Answer) -> String {
    match answer {
        Answer::Once => "yes, this once".to_owned(),
        Answer::Always => "yes, and from now on".to_owned(),
        Answer::No { note } => format!(
            "no{}",
            note.as_ref()
                .map(|note| format!(": {note}"))
                .unwrap_or_default()
        ),
        Answer::Text { text } => text.clone(),
        Answer::Expired => "nobody answered in time".to_owned(),
        Answer::Nobody => "there was nobody to ask".to_owned(),
        Answer::Abandoned => "it became pointless".to_owned(),
    }
}

fn aside(class: &str, text: &str) -> String {
    format!("<p class=\"note {class}\">{}</p>\n", escape(text))
}

fn dollars(micros: u64) -> String {
    format!("${}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100)
}

/// Text that is only text, wherever in the page it stands.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in plain(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_was_said_becomes_a_tag_or_leaves_an_attribute() {
        let hostile = "</pre><script>alert(1)</script>\" onload='x' <!-- &lt; \u{202e}";
        let escaped = escape(hostile);
        assert!(
            !escaped.contains(['<', '>', '"', '\'', '\u{202e}']),
            "{escaped}"
        );
        assert!(escaped.contains("&amp;lt;"), "{escaped}");
        assert!(!picture("image/png", "\"><script>").contains("<script"));
        assert!(!picture("image/svg+xml", "AAAA").contains("<img"));
        assert!(picture("image/png", "AAAA").contains("data:image/png;base64,AAAA"));
    }
}
