//! Exports a session as one self-contained HTML page without scripts, other files or network access. All text is escaped;
//! calls and reasoning are collapsed.

use crate::stats::{Stats, total_lines};
use crate::transcript::{
    Actor, LineBlock, Severity, Transcript, TranscriptLine, Visibility, describe_call,
};
use windlass_core::event::{Event, EventKind};
use windlass_core::id::{CallId, SessionId};
use windlass_core::message::{ToolCall, ToolResult};
use windlass_core::workspace::FileChange;

use windlass_text::sanitize::plain;

/// The media types of embedded images; others are only named.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Renders the events of a session one by one.
pub(super) struct HtmlExport {
    session: SessionId,
    stats: Stats,
    transcript: Transcript,
    /// Calls without a result, each with the diffs of its changes so far.
    open: Vec<(ToolCall, String)>,
}

impl HtmlExport {
    pub(super) fn new(session: &SessionId) -> Self {
        Self {
            session: session.clone(),
            stats: Stats::default(),
            transcript: Transcript::default(),
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
        let line = self.transcript.line(event);
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
            EventKind::RunStarted { .. } => {
                let run = event.run.as_ref().map(ToString::to_string);
                format!(
                    "{}<h2 id=\"e{}\">{}</h2>\n{}",
                    self.close_calls(),
                    line.seq.unwrap_or_default(),
                    escape(&run.unwrap_or_default()),
                    message(&line)
                )
            }
            EventKind::Said { .. } => {
                let mut text = self.close_calls();
                text.push_str(&message(&line));
                self.open_calls(&line);
                text
            }
            EventKind::RunFinished(_) => {
                format!("{}{}", self.close_calls(), note("end", &line))
            }
            _ => self.other_event(&line),
        }
    }

    /// Renders an event that is not a message: the changes and the result of a call inside the call, others as a note.
    fn other_event(&mut self, line: &TranscriptLine<'_>) -> String {
        self.open_calls(line);
        match line.body.first() {
            Some(LineBlock::Call(_)) if line.action == Some("let a call run") => String::new(),
            Some(LineBlock::Result(result)) => self.call_finished(result, line),
            Some(LineBlock::File(change)) => {
                let shown = diff(change);
                match self
                    .open
                    .iter_mut()
                    .find(|(open, _)| Some(&open.id) == line.call)
                {
                    Some((_, changes)) => {
                        changes.push_str(&shown);
                        String::new()
                    }
                    None => shown,
                }
            }
            _ if line.visibility < Visibility::Record => String::new(),
            _ => note("note", line),
        }
    }

    fn open_calls(&mut self, line: &TranscriptLine<'_>) {
        for block in &line.body {
            if let LineBlock::Call(call) = block
                && !self.open.iter().any(|(open, _)| open.id == call.id)
            {
                self.open.push(((*call).clone(), String::new()));
            }
        }
    }

    pub(super) fn end(&mut self) -> String {
        let rest = self.close_calls();
        let rows = total_lines(&self.stats);
        let rows: String = rows
            .iter()
            .map(|(name, value)| format!("<tr><th>{name}</th><td>{value}</td></tr>\n"))
            .collect();
        format!(
            "{rest}<footer>\n<h2>Totals</h2>\n<table>\n{rows}</table>\n</footer>\n</main>\n</body>\n</html>\n"
        )
    }

    fn call_finished(&mut self, result: &ToolResult, line: &TranscriptLine<'_>) -> String {
        let known = self.open.iter().position(|(call, _)| call.id == result.id);
        let (call, changes) = match known {
            Some(at) => self.open.remove(at),
            None => (unknown_call(&result.id, &result.name), String::new()),
        };
        let (class, end) = match result.error {
            Some(error) => ("bad", error.word()),
            None => ("ok", "done"),
        };
        let end = format!("{end} · {} ms", line.facts["ms"]);
        render_call(&call, class, &end, &changes, &result.text)
    }

    /// Renders the calls that never got a result.
    fn close_calls(&mut self) -> String {
        let open = std::mem::take(&mut self.open);
        open.iter()
            .map(|(call, changes)| render_call(call, "bad", "no result", changes, ""))
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

/// Renders one call, collapsed.
fn render_call(call: &ToolCall, class: &str, end: &str, changes: &str, result: &str) -> String {
    let args = call
        .malformed
        .clone()
        .unwrap_or_else(|| format!("{:#}", call.args));
    format!(
        "<details class=\"call {class}\"><summary><code>{}</code> <span class=\"how\">{}</span></summary>\n\
         <pre class=\"args\">{}</pre>\n{changes}<pre class=\"result\">{}</pre>\n</details>\n",
        escape(&describe_call(call)),
        escape(end),
        escape(&args),
        escape(result),
    )
}

/// Renders a message with its text, reasoning and images.
fn message(line: &TranscriptLine<'_>) -> String {
    let text = blocks(line);
    if text.is_empty() {
        return text;
    }
    let (class, who) = match line.actor {
        Actor::Engine => ("engine", "Engine"),
        Actor::Model => ("answer", "Model"),
        _ => ("prompt", "You"),
    };
    format!("<section class=\"{class}\"><h3>{who}</h3>\n{text}</section>\n")
}

/// Renders a line that is not a message.
fn note(class: &str, line: &TranscriptLine<'_>) -> String {
    let severity = match line.severity {
        Severity::Info => "info",
        Severity::Success => "ok",
        Severity::Warning | Severity::Failure => "bad",
    };
    let rule = line.facts["rule"].as_str();
    let rule = rule.map_or(String::new(), |rule| format!(" ({rule})"));
    let title = escape(&format!("{}{rule}", line.title));
    let body = blocks(line);
    format!("<div class=\"{class} {severity}\"><b>{title}</b>{body}</div>\n")
}

fn blocks(line: &TranscriptLine<'_>) -> String {
    let mut text = String::new();
    for block in &line.body {
        text.push_str(&match block {
            LineBlock::Text(text) if !text.trim().is_empty() => {
                format!("<div class=\"text\">{}</div>\n", escape(text))
            }
            LineBlock::Reasoning(thought) if !thought.trim().is_empty() => format!(
                "<details class=\"thought\"><summary>reasoning</summary><div class=\"text\">{}</div></details>\n",
                escape(thought)
            ),
            LineBlock::Preformatted(shown) if !shown.is_empty() => {
                format!("<pre>{}</pre>\n", escape(shown))
            }
            LineBlock::Image { media_type, data } => image(media_type, data),
            LineBlock::File(change) => diff(change),
            LineBlock::Data(data) => format!("<pre>{}</pre>\n", escape(&format!("{data:#}"))),
            LineBlock::Note(_, note) | LineBlock::Detail(note) => {
                format!("<p>{}</p>\n", escape(note))
            }
            _ => continue,
        });
    }
    text
}

fn image(media_type: &str, data: &str) -> String {
    let base64 = data
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
    if IMAGE_TYPES.contains(&media_type) && base64 {
        return format!("<img alt=\"attached image\" src=\"data:{media_type};base64,{data}\">\n");
    }
    format!(
        "<p class=\"note\">an image of type {} is not shown</p>\n",
        escape(media_type)
    )
}

fn diff(change: &FileChange) -> String {
    let head = format!(
        "<p class=\"file\"><code>{}</code> {}</p>\n",
        escape(&change.path),
        change.line_counts()
    );
    let Some(diff) = &change.diff else {
        return head;
    };
    format!(
        "{head}<pre class=\"diff\">{}</pre>\n",
        diff.lines().map(diff_line).collect::<String>()
    )
}

fn diff_line(line: &str) -> String {
    let class = match line.bytes().next() {
        _ if line.starts_with("+++") || line.starts_with("---") => "meta",
        Some(b'+') => "add",
        Some(b'-') => "del",
        Some(b'@') => "meta",
        _ => return format!("{}\n", escape(line)),
    };
    format!("<span class=\"{class}\">{}</span>\n", escape(line))
}

/// Escapes text for HTML content and attributes.
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
    fn text_cannot_become_a_tag_or_leave_an_attribute() {
        let hostile = "</pre><script>alert(1)</script>\" onload='x' <!-- &lt; \u{202e}";
        let escaped = escape(hostile);
        assert!(
            !escaped.contains(['<', '>', '"', '\'', '\u{202e}']),
            "{escaped}"
        );
        assert!(escaped.contains("&amp;lt;"), "{escaped}");
        assert!(!image("image/png", "\"><script>").contains("<script"));
        assert!(!image("image/svg+xml", "AAAA").contains("<img"));
        assert!(image("image/png", "AAAA").contains("data:image/png;base64,AAAA"));
    }
}
