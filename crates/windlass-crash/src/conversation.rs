//! Folds a log into a conversation: the texts of the model and the result of each call, without the additions of an
//! interruption. Two conversations are equal if they differ only in calls that are marked as interrupted. This module
//! is pure.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::script::CONTINUE;

/// One part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConversationItem {
    /// A text of the user or of the model.
    Words(String),
    /// A call with the step that it belongs to, and its result. The result is `None` if the call failed, or if it was
    /// interrupted and found to be done.
    Call {
        step: String,
        call: String,
        result: Option<String>,
    },
}

/// The content of one log.
#[derive(Debug, Default)]
pub(crate) struct LoggedConversation {
    pub(crate) items: Vec<ConversationItem>,
    pub(crate) events: usize,
    /// The number of starts of each call.
    pub(crate) started: BTreeMap<String, usize>,
    /// The number of calls that are marked as interrupted or not run.
    pub(crate) interrupted: usize,
    /// Whether a run was started.
    pub(crate) begun: bool,
    /// The outcome of the last run; `None` while it is open.
    pub(crate) outcome: Option<String>,
}

/// Returns the complete lines of a log.
pub(crate) fn complete_lines(log: &[u8]) -> &[u8] {
    let end = log
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    &log[..end]
}

impl LoggedConversation {
    /// Folds the complete lines of a log.
    pub(crate) fn of(log: &[u8], neutral: impl Fn(&str) -> String) -> Result<Self> {
        let mut folded = Self::default();
        let text = std::str::from_utf8(complete_lines(log)).context("the log is not UTF-8 text")?;
        for (at, line) in text.lines().enumerate() {
            let event: Value = serde_json::from_str(line)
                .with_context(|| format!("line {} is not an event", at + 1))?;
            folded.events += 1;
            folded.take(&event, &neutral);
        }
        Ok(folded)
    }

    fn take(&mut self, event: &Value, neutral: &impl Fn(&str) -> String) {
        match event["kind"].as_str().unwrap_or_default() {
            "run_started" => {
                (self.begun, self.outcome) = (true, None);
                self.said(&event["data"]["prompt"], neutral);
            }
            "said" => self.said(&event["data"]["message"], neutral),
            "call_started" => {
                *self
                    .started
                    .entry(text(&event["data"]["call"]["id"]))
                    .or_default() += 1
            }
            "call_finished" => self.finished(&event["data"]["result"], neutral),
            "run_finished" => self.outcome = Some(text(&event["data"]["outcome"]["is"])),
            _ => {}
        }
    }

    fn said(&mut self, message: &Value, neutral: &impl Fn(&str) -> String) {
        let parts = message["parts"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let words: String = parts
            .iter()
            .filter_map(|part| part["data"]["text"].as_str())
            .collect();
        let calls: Vec<&Value> = parts
            .iter()
            .filter(|part| part["type"] == "call")
            .map(|part| &part["data"])
            .collect();
        let repeats = calls
            .iter()
            .any(|call| key(&text(&call["id"])).is_none_or(|(_, first)| !first));
        // These messages are additions: those of the engine, the user's prompt to continue, and repeated calls.
        let added = message["origin"] == "engine" || words == CONTINUE || repeats;
        if !added
            && !words.is_empty()
            && self.items.last() != Some(&ConversationItem::Words(words.clone()))
        {
            self.items.push(ConversationItem::Words(neutral(&words)));
        }
        for call in calls {
            if let Some((step, true)) = key(&text(&call["id"])) {
                let call = neutral(&format!("{} {}", text(&call["name"]), call["args"]));
                self.items.push(ConversationItem::Call {
                    step,
                    call,
                    result: None,
                });
            }
        }
    }

    fn finished(&mut self, told: &Value, neutral: &impl Fn(&str) -> String) {
        if told["error"] == "interrupted" {
            self.interrupted += 1;
        }
        // The recovery found that the call was done; its original result text is lost.
        if text(&told["text"]).contains(FOUND_DONE) {
            self.interrupted += 1;
            return;
        }
        let Some((wanted, _)) = key(&text(&told["id"])) else {
            return;
        };
        if told["error"].is_null()
            && let Some(ConversationItem::Call { result, .. }) = self
                .items
                .iter_mut()
                .find(|item| matches!(item, ConversationItem::Call { step, .. } if *step == wanted))
        {
            *result = Some(neutral(&text(&told["text"])));
        }
    }
}

/// The text in a result that the recovery wrote instead of the call.
const FOUND_DONE: &str = "the process ended before it reported this";

/// Returns the step of a call, and whether it is the first attempt. `None` for a call that only reads.
fn key(id: &str) -> Option<(String, bool)> {
    let mut parts = id.strip_prefix("call-")?.split('-');
    let step = format!("{}-{}", parts.next()?, parts.next()?);
    Some((step, parts.next().is_none()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the first difference that an interruption does not explain.
pub(crate) fn difference(
    expected: &[ConversationItem],
    got: &[ConversationItem],
) -> Option<String> {
    let same = |want: &ConversationItem, have: &ConversationItem| match (want, have) {
        (
            ConversationItem::Call {
                step: a, call: b, ..
            },
            ConversationItem::Call {
                step,
                call,
                result: None,
            },
        ) => (a, b) == (step, call),
        _ => want == have,
    };
    let wrong = expected
        .iter()
        .zip(got)
        .find(|(want, have)| !same(want, have));
    if let Some((want, have)) = wrong {
        return Some(format!("expected {want:?}, found {have:?}"));
    }
    match expected.len().cmp(&got.len()) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(format!("{:?} is missing", expected[got.len()])),
        std::cmp::Ordering::Less => Some(format!("{:?} is unexpected", got[expected.len()])),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const FIRST: &str = r#"{"kind":"run_started","data":{"prompt":{"origin":"person","parts":[{"type":"text","data":{"text":"Do it."}}]}}}
{"kind":"said","data":{"message":{"origin":"model","parts":[{"type":"text","data":{"text":"One."}},{"type":"call","data":{"id":"call-1-1","name":"bash","args":{}}}]}}}
{"kind":"call_started","data":{"call":{"id":"call-1-1"}}}
"#;
    const DONE: &str = r#"{"kind":"call_finished","data":{"result":{"id":"call-1-1","text":"fine"}}}
"#;
    const CUT: &str = r#"{"kind":"call_finished","data":{"result":{"id":"call-1-1","text":"may have happened","error":"interrupted"}}}
{"kind":"run_finished","data":{"outcome":{"is":"failed"}}}
{"kind":"run_started","data":{"prompt":{"origin":"person","parts":[{"type":"text","data":{"text":"Go on."}}]}}}
"#;
    const AGAIN: &str = r#"{"kind":"said","data":{"message":{"origin":"model","parts":[{"type":"text","data":{"text":"Once more."}},{"type":"call","data":{"id":"call-1-1-2","name":"bash","args":{}}}]}}}
{"kind":"call_started","data":{"call":{"id":"call-1-1-2"}}}
{"kind":"call_finished","data":{"result":{"id":"call-1-1-2","text":"fine"}}}
"#;
    const END: &str = r#"{"kind":"said","data":{"message":{"origin":"model","parts":[{"type":"text","data":{"text":"Done."}}]}}}
{"kind":"run_finished","data":{"outcome":{"is":"completed"}}}
"#;

    fn folded(parts: &[&str]) -> LoggedConversation {
        LoggedConversation::of(parts.concat().as_bytes(), str::to_owned).unwrap()
    }

    /// Compares a log with that of a run without interruption.
    #[track_caller]
    fn check(parts: &[&str], expect: Option<&str>) {
        let why = difference(&folded(&[FIRST, DONE, END]).items, &folded(parts).items);
        assert_eq!(why.is_some(), expect.is_some(), "{why:?}");
        assert!(
            why.as_deref()
                .unwrap_or_default()
                .contains(expect.unwrap_or_default()),
            "{why:?}"
        );
    }

    #[test]
    fn only_differences_by_an_interruption_are_accepted() {
        check(&[FIRST, DONE, END], None);
        check(&[FIRST, CUT, AGAIN, END], None);
        check(&[FIRST, CUT, END], None);
        check(&[FIRST, DONE], Some("Words(\"Done.\") is missing"));
        check(
            &[FIRST, DONE, &END.replace("Done.", "Gone.")],
            Some("found Words(\"Gone.\")"),
        );
        check(&[FIRST, &DONE.replace("fine", "other"), END], Some("other"));
        check(
            &[FIRST, DONE, &AGAIN.replace("call-1-1-2", "call-2-1"), END],
            Some("Once more."),
        );
    }

    #[test]
    fn starts_and_outcomes_are_counted() {
        let cut = folded(&[
            FIRST,
            CUT,
            "{\"kind\":\"call_started\",\"data\":{\"call\":{\"id\":\"call-1-1\"}}}\n{\"half\":",
        ]);
        assert_eq!(
            (
                cut.started["call-1-1"],
                cut.interrupted,
                cut.outcome.as_deref()
            ),
            (2, 1, None)
        );
        assert_eq!(
            folded(&[FIRST, DONE, END]).outcome.as_deref(),
            Some("completed")
        );
        assert!(LoggedConversation::of(b"no event\n", str::to_owned).is_err());
    }
}
