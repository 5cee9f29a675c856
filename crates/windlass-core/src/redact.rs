//! Redaction of whole events and messages: each text in them passes through a [`Redactor`]. State that a vendor must
//! get back byte for byte stays unchanged. Every writer of a session log redacts before it writes.
//!
//! ```
//! use std::borrow::Cow;
//! use windlass_core::message::Message;
//! use windlass_core::redact::clean_message;
//! use windlass_core::workspace::Redactor;
//!
//! struct HidesKey;
//! impl Redactor for HidesKey {
//!     fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
//!         text.replace("swordfish", "[redacted]").into()
//!     }
//! }
//!
//! let mut message = Message::user("the key is swordfish");
//! clean_message(&HidesKey, &mut message);
//! assert_eq!(message.text(), "the key is [redacted]");
//! ```

use std::borrow::Cow;

use serde_json::Value;

use crate::ask::{About, Ask, LandingAsk};
use crate::event::EventKind;
use crate::message::{Message, Part, ToolCall};
use crate::outcome::Outcome;
use crate::tool::Touch;
use crate::validator::Finding;
use crate::workspace::Redactor;

/// Redacts the secrets in an event before it is logged and shown.
pub fn clean_event(redactor: &dyn Redactor, kind: &mut EventKind) {
    kind.redact(&EventRedactor(redactor));
}

/// Redacts the secrets in a message.
pub fn clean_message(redactor: &dyn Redactor, message: &mut Message) {
    EventRedactor(redactor).message(message);
}

/// Redacts the parts of events in place.
pub(crate) struct EventRedactor<'a>(&'a dyn Redactor);

impl EventRedactor<'_> {
    pub(crate) fn outcome(&self, outcome: &mut Outcome) {
        if let Outcome::Failed { detail, .. } | Outcome::Refused { detail, .. } = outcome {
            self.text(detail);
        }
    }

    pub(crate) fn findings(&self, findings: &mut [Finding]) {
        let messages = findings.iter_mut().map(|finding| &mut finding.message);
        messages.for_each(|message| self.text(message));
    }

    pub(crate) fn text(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.0.redact(text) {
            *text = clean;
        }
    }

    pub(crate) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(map) => map.values_mut().for_each(|value| self.value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    pub(crate) fn call(&self, call: &mut ToolCall) {
        self.value(&mut call.args);
        if let Some(raw) = &mut call.malformed {
            self.text(raw);
        }
    }

    pub(crate) fn message(&self, message: &mut Message) {
        for part in &mut message.parts {
            match part {
                Part::Text { text } => self.text(text),
                Part::Reasoning { text, opaque } => {
                    if let Cow::Owned(clean) = self.0.redact(text) {
                        *text = clean;
                        // The signature belongs to the original text, so it is invalid now.
                        *opaque = None;
                    }
                }
                Part::Call(call) => self.call(call),
                Part::Result(result) => self.text(&mut result.text),
                Part::Image { .. } => {}
            }
        }
    }

    pub(crate) fn ask(&self, ask: &mut Ask) {
        match &mut ask.about {
            About::Approval(approval) => {
                self.call(&mut approval.call);
                for touch in &mut approval.touches {
                    if let Touch::Execute { command, .. } = touch {
                        self.text(command);
                    }
                }
                self.text(&mut approval.rule);
                self.text(&mut approval.reason);
                approval
                    .preview
                    .iter_mut()
                    .chain(&mut approval.always)
                    .for_each(|text| self.text(text));
            }
            About::Question(question) => {
                self.text(&mut question.text);
                question
                    .options
                    .iter_mut()
                    .for_each(|option| self.text(option));
            }
            About::Landing(landing) => self.landing(landing),
        }
    }

    pub(crate) fn landing(&self, landing: &mut LandingAsk) {
        let paths = landing.paths.iter_mut().map(|(path, _)| path);
        paths
            .chain(&mut landing.failing)
            .for_each(|text| self.text(text));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::budget::Spent;
    use crate::outcome::{Outcome, RunSummary};
    use crate::run::Judged;
    use crate::validator::{Evidence, Judgement, Proof, Report};

    struct KeyRedactor(&'static str);

    impl Redactor for KeyRedactor {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            if text.contains(self.0) {
                Cow::Owned(text.replace(self.0, "***"))
            } else {
                Cow::Borrowed(text)
            }
        }
    }

    #[test]
    fn evidence_is_redacted() {
        let name = || "check --key s3cr3t".to_owned();
        let proof = Proof {
            command: Some(name()),
            ..Proof::default()
        };
        let evidence = Evidence {
            validator: name(),
            judgement: Judgement::Pass,
            advisory: false,
            preexisting: false,
            tree_hash: None,
            proof: proof.clone(),
        };
        let finished = EventKind::RunFinished(RunSummary {
            outcome: Outcome::Completed,
            files: Vec::new(),
            totals: Spent::default(),
            ms: 0,
            evidence: vec![evidence],
            judge_changed: Vec::new(),
            limits: None,
            transaction: None,
            output: Some(serde_json::json!({ "key": ["s3cr3t"] })),
        });
        let report = Report {
            proof,
            ..Report::unverifiable("s3cr3t".to_owned())
        };
        let validated = EventKind::Validated {
            validator: name(),
            blocking: true,
            report,
            tree_hash: None,
        };
        let landing = LandingAsk {
            paths: Vec::new(),
            failing: vec![name()],
            tree_hash: None,
        };
        let judged = EventKind::Judged {
            result: Judged::Passed { ask: Some(landing) },
            tree_hash: None,
            judge_changed: Vec::new(),
        };
        for mut kind in [
            EventKind::ValidationStarted { validator: name() },
            validated,
            judged,
            finished,
        ] {
            clean_event(&KeyRedactor("s3cr3t"), &mut kind);
            let told = serde_json::to_string(&kind).unwrap();
            assert!(!told.contains("s3cr3t") && told.contains("***"), "{told}");
        }
    }

    #[test]
    fn every_text_of_an_event_is_redacted_except_opaque_state() {
        let redactor = KeyRedactor("s3cr3t");
        let call = ToolCall {
            id: crate::id::CallId("c".into()),
            name: "bash".into(),
            args: serde_json::json!({ "command": "echo s3cr3t", "list": ["s3cr3t", 1] }),
            malformed: Some("s3cr3t".into()),
        };
        let state = serde_json::json!({ "signature": "s3cr3t" });
        let mut message = Message::assistant("say s3cr3t");
        message.parts.push(Part::Call(call.clone()));
        message.parts.push(Part::Reasoning {
            text: "fine".into(),
            opaque: Some(state.clone()),
        });
        let mut kind = EventKind::said(message);
        clean_event(&redactor, &mut kind);
        let EventKind::Said { message, .. } = &mut kind else {
            panic!("{kind:?}")
        };
        assert_eq!(
            message.parts.pop(),
            Some(Part::Reasoning {
                text: "fine".into(),
                opaque: Some(state)
            })
        );
        assert!(
            !serde_json::to_string(message).unwrap().contains("s3cr3t"),
            "{message:?}"
        );
        let approval = crate::ask::Approval {
            call,
            touches: vec![Touch::Execute {
                command: "echo s3cr3t".into(),
                script: None,
            }],
            found: vec![],
            rule: "s3cr3t".into(),
            reason: "s3cr3t".into(),
            preview: Some("s3cr3t".into()),
            always: Some("bash(echo s3cr3t)".into()),
        };
        let about = About::Approval(Box::new(approval));
        let id = crate::id::AskId::nth(1, 1);
        let mut kind = EventKind::Asked {
            ask: Ask {
                id,
                about,
                call: None,
                person: false,
                expires: None,
                waits_ms: None,
                run_ms: 0,
            },
        };
        clean_event(&redactor, &mut kind);
        assert!(
            !serde_json::to_string(&kind).unwrap().contains("s3cr3t"),
            "{kind:?}"
        );
    }
}
