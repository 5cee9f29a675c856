//! The timeline of a session: the state after any event, and the ways back to it.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass::core::event::{Event, EventKind};
use windlass::transcript::{Transcript, counted};
use windlass_text::{StyledLine, Tone, sanitize};

use super::panels::{Panel, PickedItem};
use super::tasks::TaskResult;
use super::{App, reports};
use crate::backend::{Backend, OperationError};
use crate::composer::{ListPicker, PickerItem};
use crate::conversation::money;

/// The number of the latest events in the timeline.
const SHOWN: u64 = 1_000;

/// The state after an event, as far as the shown events tell it.
#[derive(Default)]
struct FoldedState {
    cost_micros: u64,
    context_tokens: u64,
    open_asks: BTreeSet<String>,
    files: BTreeSet<String>,
}

impl FoldedState {
    fn apply(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Spent {
                call, cost_micros, ..
            } => {
                self.cost_micros += cost_micros.unwrap_or(0);
                self.context_tokens = call.total_input().saturating_add(call.output);
            }
            EventKind::Asked { ask } => drop(self.open_asks.insert(ask.id.to_string())),
            EventKind::Answered { ask, .. } => drop(self.open_asks.remove(ask.as_str())),
            EventKind::FileChanged { change, .. } => drop(self.files.insert(change.path.clone())),
            EventKind::RunFinished(_) => self.open_asks.clear(),
            _ => {}
        }
    }

    fn line(&self) -> StyledLine {
        let text = format!(
            "   {} · context {} tokens · {} changed · {}",
            money(self.cost_micros),
            self.context_tokens,
            counted(self.files.len(), "file"),
            counted(self.open_asks.len(), "open ask"),
        );
        StyledLine::of(text, Tone::Muted)
    }
}

/// The entries of the timeline.
fn timeline(events: &[Event]) -> ListPicker<PickedItem> {
    let mut transcript = Transcript::default();
    let mut state = FoldedState::default();
    let mut items = Vec::new();
    let mut last = 0;
    for event in events {
        let Some(seq) = event.order.seq() else {
            continue;
        };
        last = seq;
        state.apply(event);
        let line = transcript.line(event);
        let summary = sanitize::one_line(&line.summary()).into_owned();
        let time: String = event.at.to_string().chars().skip(11).take(8).collect();
        let mut preview = vec![
            StyledLine::of(format!("   {summary}"), Tone::Text),
            state.line(),
        ];
        if let Some(rule) = line.facts["rule"].as_str() {
            let rule = format!("   rule: {}", sanitize::one_line(rule));
            preview.push(StyledLine::of(rule, Tone::Muted));
        }
        items.push(PickerItem {
            value: PickedItem::Event(seq),
            columns: vec![
                format!("#{seq}"),
                time,
                line.actor.word().to_owned(),
                summary,
            ],
            preview,
        });
    }
    let mut picker = ListPicker::new("Timeline", items);
    picker.select_where(|item| *item == PickedItem::Event(last));
    picker
}

/// The reports and actions at an event.
fn choices(seq: u64) -> ListPicker<PickedItem> {
    let rows: [(&str, &str, PickedItem); 6] = [
        (
            "event",
            "show the event as it is in the log",
            PickedItem::ShowEvent(seq),
        ),
        (
            "files",
            "list the recorded files at this point",
            PickedItem::FilesAt(seq),
        ),
        (
            "context",
            "show what the next request would contain",
            PickedItem::ContextAt(seq),
        ),
        (
            "decisions",
            "list the decisions of the permission gate until here",
            PickedItem::DecisionsAt(seq),
        ),
        (
            "fork",
            "continue in a copy of the session that ends here",
            PickedItem::Rewind {
                to: seq + 1,
                files: false,
                fork: true,
            },
        ),
        (
            "restore files",
            "undo the changes after this point",
            PickedItem::Rewind {
                to: seq + 1,
                files: true,
                fork: false,
            },
        ),
    ];
    let items = rows.into_iter().map(|(name, about, value)| PickerItem {
        value,
        columns: vec![name.to_owned(), about.to_owned()],
        preview: Vec::new(),
    });
    ListPicker::new(format!("At #{seq}"), items.collect())
}

async fn read(backend: &Backend, params: Value) -> Result<ListPicker<PickedItem>, OperationError> {
    let page: super::tasks::EventPage = backend.call("events.list", params).await?;
    Ok(timeline(&page.events))
}

impl App {
    /// Shows the timeline.
    pub(super) fn show_timeline(&mut self) {
        let (true, Some(backend)) = (self.needs_session(), self.backend.clone()) else {
            return;
        };
        let after = self.conversation.last_seq.saturating_sub(SHOWN);
        let params = self.of_session(json!({ "after": after, "limit": SHOWN }));
        self.spawn(async move { TaskResult::Pick(read(&backend, params).await) });
    }

    pub(super) fn choose_at(&mut self, seq: u64) {
        self.panel = Some(Panel::Picker(Box::new(choices(seq))));
    }

    pub(super) fn show_files_at(&mut self, seq: u64) {
        let params = self.of_session(json!({ "at": seq }));
        self.report("files.list", params, move |list| {
            let mut lines = vec![reports::heading(&format!("Recorded files at #{seq}"))];
            for file in list["files"].as_array().into_iter().flatten() {
                let path = file["path"].as_str().unwrap_or_default();
                let since = file["seq"].as_u64().unwrap_or(0);
                let state = match file["stored"].as_bool() {
                    Some(true) => format!("as of #{since}"),
                    _ => format!("as of #{since}; its content is deleted"),
                };
                lines.push(reports::row(path, 32, &state));
            }
            if lines.len() == 1 {
                lines.push(reports::remark("  none: the session had changed no file"));
            }
            lines
        });
    }

    pub(super) fn show_context_at(&mut self, seq: u64) {
        let params = self.of_session(json!({ "at": seq }));
        self.report("context.get", params, |report| reports::context(&report));
    }

    pub(super) fn show_decisions_at(&mut self, seq: u64) {
        let params = self.of_session(json!({ "at": seq }));
        self.report("decisions.list", params, move |list| {
            let mut lines = vec![reports::heading(&format!("Decisions until #{seq}"))];
            for decision in list.as_array().into_iter().flatten() {
                let text = |name: &str| decision[name].as_str().unwrap_or_default().to_owned();
                let name = format!("#{} {}", decision["seq"], text("tool"));
                let why = format!("{}: {} {}", text("verdict"), text("rule"), text("reason"));
                lines.push(reports::row(&name, 20, why.trim_end()));
            }
            lines
        });
    }
}
