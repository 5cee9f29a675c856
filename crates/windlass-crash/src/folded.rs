//! A log as a conversation: what the model said and what became of each call it made, without what an interruption
//! adds. Two conversations are the same when they differ only in calls that are marked as interrupted. Pure.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::work::GO_ON;

/// One thing of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// Words of the person or of the model.
    Words(String),
    /// A call by the step it is for, and its result; none when it failed or was interrupted, and was seen to have
    /// happened.
    Call {
        step: String,
        call: String,
        result: Option<String>,
    },
}

/// Everything one log says.
#[derive(Debug, Default)]
pub(crate) struct Folded {
    pub(crate) items: Vec<Item>,
    pub(crate) events: usize,
    /// How often each call was started.
    pub(crate) started: BTreeMap<String, usize>,
    /// Calls that are marked as interrupted or not run.
    pub(crate) interrupted: usize,
    /// Whether there was a run.
    pub(crate) begun: bool,
    /// How the last run ended; none while it is open.
    pub(crate) outcome: Option<String>,
}

/// The lines that are whole.
pub(crate) fn whole_lines(log: &[u8]) -> &[u8] {
    let end = log
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    &log[..end]
}

impl Folded {
    /// Folds the whole lines of a log.
    pub(crate) fn of(log: &[u8], neutral: impl Fn(&str) -> String) -> Result<Self> {
        let mut folded = Self::default();
        let text = std::str::from_utf8(whole_lines(log)).context("the log is no text")?;
        for (at, line) in text.lines().enumerate() {
            let event: Value = serde_json::from_str(line)
                .with_context(|| format!("line {} is no event", at + 1))?;
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
        // What the engine says, what a person says to go on, and last words that were asked for again.
        let added = message["origin"] == "engine" || words == GO_ON || repeats;
        if !added && !words.is_empty() && self.items.last() != Some(&Item::Words(words.clone())) {
            self.items.push(Item::Words(neutral(&words)));
        }
        for call in calls {
            if let Some((step, true)) = key(&text(&call["id"])) {
                let call = neutral(&format!("{} {}", text(&call["name"]), call["args"]));
                self.items.push(Item::Call {
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
        // Closed by looking at what is there: it happened, and nobody was left to say in which words.
        if text(&told["text"]).contains(FOUND) {
            self.interrupted += 1;
            return;
        }
        let Some((wanted, _)) = key(&text(&told["id"])) else {
            return;
        };
        if told["error"].is_null()
            && let Some(Item::Call { result, .. }) = self
                .items
                .iter_mut()
                .find(|item| matches!(item, Item::Call { step, .. } if *step == wanted))
        {
            *result = Some(neutral(&text(&told["text"])));
        }
    }
}

/// How a result begins to end that was not said by the call itself.
const FOUND: &str = "the process ended before it reported this";

/// The step a call is for, and whether it is the first try of it. None for one that only looks.
fn key(id: &str) -> Option<(String, bool)> {
    let mut parts = id.strip_prefix("call-")?.split('-');
    let step = format!("{}-{}", parts.next()?, parts.next()?);
    Some((step, parts.next().is_none()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The first difference that an interruption does not explain.
pub(crate) fn difference(expected: &[Item], got: &[Item]) -> Option<String> {
    let same = |want: &Item, have: &Item| match (want, have) {
        (
            Item::Call {
                step: a, call: b, ..
            },
            Item::Call {
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
        std::cmp::Ordering::Less => Some(format!("{:?} is too much", got[expected.len()])),
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

    fn folded(parts: &[&str]) -> Folded {
        Folded::of(parts.concat().as_bytes(), str::to_owned).unwrap()
    }

    /// What tells a log from the one of a run that was left alone.
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
    fn only_what_an_interruption_explains_is_the_same() {
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
        assert!(Folded::of(b"no event\n", str::to_owned).is_err());
    }
}
