//! Exports a session as Markdown: the conversation, its calls and other events.

use std::collections::HashSet;

use crate::transcript::{Actor, LineBlock, Transcript, TranscriptLine, Visibility};
use windlass_core::event::{Event, EventKind};
use windlass_core::id::CallId;

/// Renders the events of a session one by one.
#[derive(Default)]
pub(super) struct MarkdownExport {
    transcript: Transcript,
    /// Calls that were shown with the message that requested them.
    calls: HashSet<CallId>,
}

impl MarkdownExport {
    pub(super) fn event(&mut self, event: &Event) -> String {
        let line = self.transcript.line(event);
        let mut text = match &event.kind {
            EventKind::SessionOpened { .. } => format!("# Session {}\n\n", event.session),
            EventKind::RunStarted { .. } => "## Prompt\n\n".to_owned(),
            _ => String::new(),
        };
        let is_message = matches!(
            event.kind,
            EventKind::RunStarted { .. } | EventKind::Said { .. }
        );
        let shown = line.visibility >= Visibility::Record;
        if shown && !is_message && !matches!(line.body.first(), Some(LineBlock::Call(_))) {
            text.push_str(&format!("*{}*\n\n", line.title));
        }
        for block in &line.body {
            text.push_str(&self.block(&line, block, shown));
        }
        text
    }

    fn block(&mut self, line: &TranscriptLine<'_>, block: &LineBlock<'_>, shown: bool) -> String {
        match block {
            LineBlock::Call(call) if self.calls.insert(call.id.clone()) => {
                let args = fenced(&format!("{:#}", call.args), "json");
                format!("**{}**\n\n{args}\n", call.name)
            }
            LineBlock::Result(result) => fenced(&result.text, ""),
            _ if !shown => String::new(),
            LineBlock::Text(said) if line.actor == Actor::Engine => {
                format!("> (engine) {}\n\n", said.replace('\n', "\n> "))
            }
            LineBlock::Text(said) => format!("{said}\n\n"),
            LineBlock::Preformatted(text) if !text.is_empty() => fenced(text, ""),
            LineBlock::Data(data) => fenced(&format!("{data:#}"), "json"),
            LineBlock::Note(_, note) | LineBlock::Detail(note) => format!("{note}\n\n"),
            LineBlock::File(change) => match &change.diff {
                Some(diff) => fenced(diff, "diff"),
                None => String::new(),
            },
            _ => String::new(),
        }
    }
}

/// A code block with a fence that is longer than any in the text.
fn fenced(text: &str, language: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}\n\n", text.trim_end())
}
