//! The events of a long session, as real sessions have them: each step has an answer, its cost, a call, a command and a
//! change. An event depends only on its number, so two programs can write the same log.

use windlass_core::budget::{Spent, Usage};
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, EventKind, Order, VERSION};
use windlass_core::flags::SavedFlags;
use windlass_core::gate::Verdict;
use windlass_core::id::{CallId, RunId, SessionId, TraceId};
use windlass_core::message::{Message, Origin, Part, Role, ToolCall, ToolResult};
use windlass_core::outcome::{Outcome, RunSummary};
use windlass_core::workspace::{Change, FileChange, ProcessEnd};

/// The number of events of one step.
const STEP: u64 = 7;
const SENTENCE: &str = "The failing case is in the parser: it reads \"one\\two\" as a single word,\n\tso the table below is short.\n";

/// Makes the events of one session.
pub struct LongSession {
    session: SessionId,
    run: RunId,
    trace: TraceId,
}

impl LongSession {
    /// Creates the generator for this session.
    #[must_use]
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            run: RunId::nth(1),
            trace: TraceId::fresh(1, 2),
        }
    }

    /// Returns the event with this number; the first is 1.
    #[must_use]
    pub fn event(&self, seq: u64) -> Event {
        self.event_of(seq, kind(seq))
    }

    /// Returns the event that ends the run.
    #[must_use]
    pub fn end(&self, seq: u64) -> Event {
        let summary = RunSummary::new(Outcome::Completed);
        self.event_of(seq, EventKind::RunFinished(summary))
    }

    fn event_of(&self, seq: u64, kind: EventKind) -> Event {
        Event {
            v: VERSION,
            order: Order::Durable { seq },
            at: Timestamp::from_millis(1_794_711_285_000 + i64::try_from(seq).unwrap_or(0)),
            session: self.session.clone(),
            run: Some(self.run.clone()),
            trace: self.trace.clone(),
            kind,
        }
    }
}

fn kind(seq: u64) -> EventKind {
    match seq {
        1 => EventKind::SessionOpened {
            workspace: "/home/someone/project".into(),
            runtime: "native".into(),
            model: Some("scripted-bench".into()),
            program: "0.1.0".into(),
        },
        2 => EventKind::RunStarted {
            prompt: Message::user(SENTENCE),
            queued: None,
            flags: SavedFlags::default(),
        },
        _ => step((seq - 3) / STEP, (seq - 3) % STEP),
    }
}

fn step(step: u64, part: u64) -> EventKind {
    let id = CallId(format!("toolu_{step:020}"));
    let path = format!("crates/part-{}/src/file-{}.rs", step % 7, step % 97);
    let edit = serde_json::json!({ "path": path, "old": text(step, 2), "new": text(step + 1, 3) });
    let call = ToolCall {
        id: id.clone(),
        name: "edit_file".into(),
        args: edit,
        malformed: None,
    };
    match part {
        0 => {
            let parts = vec![
                Part::Text {
                    text: text(step, 3),
                },
                Part::Call(call),
            ];
            EventKind::said(Message {
                role: Role::Assistant,
                origin: Origin::Model,
                parts,
            })
        }
        1 => {
            let call = Usage {
                input: 20_000 + step,
                cache_read: 18_000,
                cache_write: 900,
                output: 300,
            };
            let total = Spent {
                steps: u32::try_from(step).unwrap_or(u32::MAX),
                ..Spent::default()
            };
            EventKind::Spent {
                model: "scripted-bench".into(),
                call,
                cost_micros: Some(1_200),
                estimated: false,
                total,
            }
        }
        2 => EventKind::CallStarted {
            call,
            verdict: Some(Verdict::Allow),
            rule: "mode auto".into(),
        },
        3 => EventKind::CommandStarted {
            call: id,
            command: "cargo test --workspace --quiet".into(),
        },
        4 => EventKind::CommandFinished {
            call: id,
            end: ProcessEnd::Exited { code: 0 },
            bytes: 4_096,
            ms: 812,
        },
        5 => {
            let diff = Some(text(step, 8));
            let change = FileChange {
                path,
                change: Change::Modified,
                added: Some(3),
                removed: Some(2),
                diff,
            };
            EventKind::FileChanged {
                call: Some(id),
                change,
                swap: None,
            }
        }
        _ => {
            // Every tenth result has the maximum length of a result that is not stored as an artifact.
            let lines = if step.is_multiple_of(10) { 60 } else { 8 };
            let text = text(step, lines);
            let result = ToolResult {
                id,
                name: "edit_file".into(),
                text,
                error: None,
                artifact: None,
            };
            EventKind::CallFinished { result, ms: 14 }
        }
    }
}

fn text(step: u64, lines: u64) -> String {
    (0..lines)
        .map(|line| format!("{step}.{line}: {SENTENCE}"))
        .collect()
}
