//! A session as Markdown: the conversation, for reading.

use windlass_core::event::{Event, EventKind};
use windlass_core::message::{Origin, Part, Role};
use windlass_core::outcome::RunSummary;

use crate::view::text::explain;

pub(super) fn event(event: &Event) -> String {
    match &event.kind {
        EventKind::SessionOpened { workspace, .. } => {
            format!(
                "# Session {}\n\nWorkspace: `{workspace}`\n\n",
                event.session
            )
        }
        EventKind::RunStarted { prompt, .. } => format!("## Prompt\n\n{}\n\n", prompt.text()),
        EventKind::Said { message, .. } if message.role == Role::Assistant => {
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
        EventKind::Said { message, .. } => {
            let who = if message.origin == Origin::Engine {
                "engine"
            } else {
                "you"
            };
            format!("> ({who}) {}\n\n", message.text().replace('\n', "\n> "))
        }
        EventKind::CallFinished { result, .. } => fenced(&result.text, ""),
        EventKind::RunFinished(RunSummary {
            outcome, totals, ..
        }) => {
            let (word, detail, _) = explain(outcome, &event.session, None);
            format!("*{word}, {} steps* {detail}\n\n", totals.steps)
        }
        EventKind::Unknown(event) => {
            format!(
                "**{}**\n\n{}\n",
                event.kind,
                fenced(&format!("{:#}", event.data), "json")
            )
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
