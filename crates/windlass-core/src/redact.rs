//! Redaction of whole events and messages: each text in them goes through a [`Redactor`]. State that a vendor must get
//! back byte for byte is left alone. Every writer of a session log redacts before it writes.
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

use crate::ask::{About, Answer, Ask, LandingAsk};
use crate::context::Compaction;
use crate::event::EventKind;
use crate::message::{Message, Part, ToolCall};
use crate::outcome::{Outcome, RunSummary};
use crate::run::Judged;
use crate::tool::Touch;
use crate::validator::Finding;
use crate::workspace::Redactor;

/// Takes the secrets out of a fact before it is logged and shown.
pub fn clean_event(redactor: &dyn Redactor, kind: &mut EventKind) {
    let clean = Clean(redactor);
    match kind {
        EventKind::Queued {
            prompt: message, ..
        }
        | EventKind::Said { message, .. } => clean.message(message),
        EventKind::RunStarted { prompt, flags, .. } => {
            clean.message(prompt);
            flags.texts_mut().for_each(|text| clean.text(text));
        }
        EventKind::CallStarted { call, rule, .. } => {
            clean.call(call);
            clean.text(rule);
        }
        EventKind::CallFinished { result, .. } => clean.text(&mut result.text),
        EventKind::FileChanged { change, .. } => {
            if let Some(diff) = &mut change.diff {
                clean.text(diff);
            }
        }
        EventKind::Asked { ask } => clean.ask(ask),
        EventKind::Answered {
            answer: Answer::No { note: Some(text) } | Answer::Text { text },
            ..
        } => clean.text(text),
        EventKind::Denied { rule, reason, .. } => {
            clean.text(rule);
            clean.text(reason);
        }
        EventKind::ValidationStarted { validator } => clean.text(validator),
        EventKind::Validated {
            validator, report, ..
        } => {
            clean.text(validator);
            report
                .proof
                .command
                .iter_mut()
                .for_each(|command| clean.text(command));
            clean.findings(&mut report.findings);
        }
        EventKind::Judged { result, .. } => match result {
            Judged::Passed { ask: Some(ask) } => clean.landing(ask),
            Judged::Blocked {
                validator,
                findings,
            } => {
                clean.text(validator);
                clean.findings(findings);
            }
            Judged::Passed { ask: None } | Judged::NothingChanged | Judged::Stale { .. } => {}
        },
        EventKind::IterationFinished { output, .. } => {
            output.iter_mut().for_each(|output| clean.value(output));
        }
        EventKind::RunEnding { outcome } => clean.outcome(outcome),
        EventKind::PatchChecked { problems } => {
            problems.iter_mut().for_each(|problem| clean.text(problem))
        }
        EventKind::RunFinished(RunSummary {
            outcome,
            evidence,
            output,
            ..
        }) => {
            clean.outcome(outcome);
            for one in evidence {
                clean.text(&mut one.validator);
                one.proof
                    .command
                    .iter_mut()
                    .for_each(|command| clean.text(command));
            }
            output.iter_mut().for_each(|output| clean.value(output));
        }
        EventKind::CommandStarted { command: text, .. }
        | EventKind::ConnectionRefused { host: text, .. }
        | EventKind::Noted { text }
        | EventKind::Waited { reason: text, .. }
        | EventKind::PatchProposed { summary: text, .. }
        | EventKind::Compacted {
            compaction: Compaction { summary: text, .. },
        }
        | EventKind::Instructed { opening: text, .. }
        | EventKind::FailedOver { reason: text, .. }
        | EventKind::Warned { text, .. } => clean.text(text),
        EventKind::Unknown(event) => clean.value(&mut event.data),
        // Numbers, names and paths; and live facts, which are cleaned as they are shown.
        EventKind::SessionOpened { .. }
        | EventKind::TransactionOpened { .. }
        | EventKind::IterationStarted { .. }
        | EventKind::Delta { .. }
        | EventKind::CallProgress { .. }
        | EventKind::CommandFinished { .. }
        | EventKind::Answered { .. }
        | EventKind::Spent { .. }
        | EventKind::BudgetWarned { .. }
        | EventKind::PatchApplied { .. }
        | EventKind::Landed { .. }
        | EventKind::Kept { .. }
        | EventKind::Discarded { .. }
        | EventKind::Undone { .. }
        | EventKind::Redone { .. }
        | EventKind::ModelSwitched { .. }
        | EventKind::Forked { .. }
        | EventKind::SessionClosed {} => {}
    }
}

/// Takes the secrets out of a prompt.
pub fn clean_message(redactor: &dyn Redactor, message: &mut Message) {
    Clean(redactor).message(message);
}

struct Clean<'a>(&'a dyn Redactor);

impl Clean<'_> {
    fn outcome(&self, outcome: &mut Outcome) {
        if let Outcome::Failed { detail, .. } | Outcome::Refused { detail, .. } = outcome {
            self.text(detail);
        }
    }

    fn findings(&self, findings: &mut [Finding]) {
        let messages = findings.iter_mut().map(|finding| &mut finding.message);
        messages.for_each(|message| self.text(message));
    }

    fn text(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.0.redact(text) {
            *text = clean;
        }
    }

    fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(map) => map.values_mut().for_each(|value| self.value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn call(&self, call: &mut ToolCall) {
        self.value(&mut call.args);
        if let Some(raw) = &mut call.malformed {
            self.text(raw);
        }
    }

    fn message(&self, message: &mut Message) {
        for part in &mut message.parts {
            match part {
                Part::Text { text } => self.text(text),
                Part::Reasoning { text, opaque } => {
                    if let Cow::Owned(clean) = self.0.redact(text) {
                        *text = clean;
                        // A signature of other words is worth nothing.
                        *opaque = None;
                    }
                }
                Part::Call(call) => self.call(call),
                Part::Result(result) => self.text(&mut result.text),
                Part::Image { .. } => {}
            }
        }
    }

    fn ask(&self, ask: &mut Ask) {
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

    fn landing(&self, landing: &mut LandingAsk) {
        let paths = landing.paths.iter_mut();
        paths.for_each(|(path, _)| self.text(path));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::budget::Spent;
    use crate::validator::{Evidence, Judgement, Proof, Report};

    struct Hides(&'static str);

    impl Redactor for Hides {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            if text.contains(self.0) {
                Cow::Owned(text.replace(self.0, "***"))
            } else {
                Cow::Borrowed(text)
            }
        }
    }

    #[test]
    fn what_a_landing_rests_on_is_told_without_secrets() {
        let name = || "check --key s3cr3t".to_owned();
        let proof = Proof {
            command: Some(name()),
            ..Proof::default()
        };
        let evidence = Evidence {
            validator: name(),
            judgement: Judgement::Pass,
            advisory: false,
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
        for mut kind in [
            EventKind::ValidationStarted { validator: name() },
            validated,
            finished,
        ] {
            clean_event(&Hides("s3cr3t"), &mut kind);
            let told = serde_json::to_string(&kind).unwrap();
            assert!(!told.contains("s3cr3t") && told.contains("***"), "{told}");
        }
    }

    #[test]
    fn a_fact_is_cleaned_wherever_words_stand_and_opaque_state_is_not() {
        let redactor = Hides("s3cr3t");
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
