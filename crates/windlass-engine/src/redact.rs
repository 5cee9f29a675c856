//! Text without secrets, on each of its ways out: into the log, to whoever watches, into an artifact.
//! What a vendor must see again byte for byte is not touched; everything else is, once.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use windlass_core::ask::{About, Answer, Ask};
use windlass_core::context::Compaction;
use windlass_core::event::{DeltaOf, EventKind};
use windlass_core::id::ArtifactId;
use windlass_core::message::{ArtifactRef, Message, Part, ToolCall};
use windlass_core::outcome::{Outcome, RunSummary};
use windlass_core::tool::Touch;
use windlass_core::workspace::{ArtifactError, ArtifactWriter, Artifacts, REDACTED, Redactor};

/// Takes the secrets out of a fact before it is logged and shown.
pub(crate) fn clean_event(redactor: &dyn Redactor, kind: &mut EventKind) {
    let clean = Clean(redactor);
    match kind {
        EventKind::Queued { prompt: message, .. } | EventKind::Said { message, .. } => clean.message(message),
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
        EventKind::Answered { answer: Answer::No { note: Some(text) } | Answer::Text { text }, .. } => clean.text(text),
        EventKind::Denied { rule, reason, .. } => {
            clean.text(rule);
            clean.text(reason);
        }
        EventKind::ValidationStarted { validator } => clean.text(validator),
        EventKind::Validated { validator, report, .. } => {
            clean.text(validator);
            report.proof.command.iter_mut().for_each(|command| clean.text(command));
            report.findings.iter_mut().for_each(|finding| clean.text(&mut finding.message));
        }
        EventKind::PatchChecked { problems } => problems.iter_mut().for_each(|problem| clean.text(problem)),
        EventKind::RunFinished(RunSummary { outcome, evidence, output, .. }) => {
            if let Outcome::Failed { detail, .. } | Outcome::Refused { detail, .. } = outcome {
                clean.text(detail);
            }
            for one in evidence {
                clean.text(&mut one.validator);
                one.proof.command.iter_mut().for_each(|command| clean.text(command));
            }
            output.iter_mut().for_each(|output| clean.value(output));
        }
        EventKind::CommandStarted { command: text, .. }
        | EventKind::ConnectionRefused { host: text, .. }
        | EventKind::Noted { text }
        | EventKind::Waited { reason: text, .. }
        | EventKind::PatchProposed { summary: text, .. }
        | EventKind::Compacted { compaction: Compaction { summary: text, .. } }
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
        | EventKind::IterationFinished { .. }
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
pub(crate) fn clean_message(redactor: &dyn Redactor, message: &mut Message) {
    Clean(redactor).message(message);
}

/// Whether a value holds the words that stand for a secret.
pub(crate) fn holds_mark(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(REDACTED),
        Value::Array(items) => items.iter().any(holds_mark),
        Value::Object(map) => map.values().any(holds_mark),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

struct Clean<'a>(&'a dyn Redactor);

impl Clean<'_> {
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
                approval.preview.iter_mut().chain(&mut approval.always).for_each(|text| self.text(text));
            }
            About::Question(question) => {
                self.text(&mut question.text);
                question.options.iter_mut().for_each(|option| self.text(option));
            }
            About::Landing(landing) => landing.paths.iter_mut().for_each(|(path, _)| self.text(path)),
        }
    }
}

/// Deltas on their way to a view: what may be the start of a secret is held back until its end is there.
#[derive(Default)]
pub(crate) struct HeldDeltas(Vec<(DeltaOf, String)>);

impl HeldDeltas {
    /// What of the stream may be shown now that this piece came.
    pub(crate) fn push(&mut self, redactor: &dyn Redactor, of: &DeltaOf, piece: &str) -> String {
        let known = self.0.iter().position(|(known, _)| known == of);
        let at = known.unwrap_or_else(|| {
            self.0.push((of.clone(), String::new()));
            self.0.len() - 1
        });
        let held = &mut self.0[at].1;
        held.push_str(piece);
        let ready = if held.len() > MAX_HELD_DELTA { held.len() } else { redactor.settled(held) };
        let rest = held.split_off(ready);
        let ready = std::mem::replace(held, rest);
        redactor.redact(&ready).into_owned()
    }

    /// What is still held, when nothing more comes.
    pub(crate) fn finish(&mut self, redactor: &dyn Redactor) -> Vec<(DeltaOf, String)> {
        let held = self.0.drain(..).filter(|(_, text)| !text.is_empty());
        held.map(|(of, text)| (of, redactor.redact(&text).into_owned())).collect()
    }
}

/// A delta waits for the end of a secret up to this much.
const MAX_HELD_DELTA: usize = 20 << 10;

/// Text is held back until its line is complete, up to this much.
const MAX_HELD: usize = 64 << 10;
/// Of a longer line, this much stays behind, so that a secret is not cut in two.
const OVERLAP: usize = 4 << 10;

/// Artifacts that hold no known secret.
pub(crate) struct RedactedArtifacts {
    inner: Arc<dyn Artifacts>,
    redactor: Arc<dyn Redactor>,
}

impl RedactedArtifacts {
    pub(crate) fn new(inner: Arc<dyn Artifacts>, redactor: Arc<dyn Redactor>) -> Self {
        Self { inner, redactor }
    }
}

impl Artifacts for RedactedArtifacts {
    fn put(&self, bytes: &[u8]) -> Result<ArtifactRef, ArtifactError> {
        self.inner.put(&redacted(self.redactor.as_ref(), bytes))
    }

    fn create(&self) -> Result<Box<dyn ArtifactWriter>, ArtifactError> {
        let inner = self.inner.create()?;
        Ok(Box::new(RedactedWriter { inner, redactor: self.redactor.clone(), held: Vec::new() }))
    }

    fn read(&self, id: &ArtifactId, offset: u64, len: u64) -> Result<Vec<u8>, ArtifactError> {
        self.inner.read(id, offset, len)
    }
}

struct RedactedWriter {
    inner: Box<dyn ArtifactWriter>,
    redactor: Arc<dyn Redactor>,
    held: Vec<u8>,
}

impl ArtifactWriter for RedactedWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        self.held.extend_from_slice(bytes);
        let ready = match self.held.iter().rposition(|byte| *byte == b'\n') {
            // A key of many lines waits for its last one.
            Some(at) => {
                let lines = std::str::from_utf8(&self.held[..=at]);
                let settled = lines.map_or(at + 1, |lines| self.redactor.settled(lines));
                if at + 1 - settled > MAX_HELD { at + 1 } else { settled }
            }
            None if self.held.len() > MAX_HELD => self.held.len() - OVERLAP,
            None => return Ok(()),
        };
        let rest = self.held.split_off(ready);
        let ready = std::mem::replace(&mut self.held, rest);
        self.inner.write(&redacted(self.redactor.as_ref(), &ready))
    }

    fn finish(mut self: Box<Self>) -> Result<ArtifactRef, ArtifactError> {
        let held = std::mem::take(&mut self.held);
        self.inner.write(&redacted(self.redactor.as_ref(), &held))?;
        self.inner.finish()
    }
}

/// Bytes without secrets; the very same bytes when there was none.
fn redacted<'a>(redactor: &dyn Redactor, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    let text = String::from_utf8_lossy(bytes);
    match redactor.redact(&text) {
        Cow::Borrowed(_) => Cow::Borrowed(bytes),
        Cow::Owned(clean) => Cow::Owned(clean.into_bytes()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use windlass_core::budget::Spent;
    use windlass_core::validator::{Evidence, Judgement, Proof, Report};

    use super::*;
    use crate::testing::MemoryArtifacts;

    struct Hides(&'static str);

    impl Redactor for Hides {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            if text.contains(self.0) { Cow::Owned(text.replace(self.0, "***")) } else { Cow::Borrowed(text) }
        }
    }

    #[test]
    fn what_a_landing_rests_on_is_told_without_secrets() {
        let name = || "check --key s3cr3t".to_owned();
        let proof = Proof { command: Some(name()), ..Proof::default() };
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
        let report = Report { proof, ..Report::unverifiable("s3cr3t".to_owned()) };
        let validated = EventKind::Validated { validator: name(), blocking: true, report };
        for mut kind in [EventKind::ValidationStarted { validator: name() }, validated, finished] {
            clean_event(&Hides("s3cr3t"), &mut kind);
            let told = serde_json::to_string(&kind).unwrap();
            assert!(!told.contains("s3cr3t") && told.contains("***"), "{told}");
        }
    }

    #[test]
    fn a_secret_is_found_wherever_the_pieces_are_cut_and_other_bytes_stay() {
        let memory = MemoryArtifacts::default();
        let artifacts = RedactedArtifacts::new(Arc::new(memory), Arc::new(Hides("s3cr3t")));
        let text = b"one s3cr3t\n\xff\xfe raw\nlast s3cr3t";
        for cut in 0..text.len() {
            let mut writer = artifacts.create().unwrap();
            writer.write(&text[..cut]).unwrap();
            writer.write(&text[cut..]).unwrap();
            let stored = writer.finish().unwrap();
            let read = artifacts.read(&stored.id, 0, 100).unwrap();
            assert!(!read.windows(6).any(|piece| piece == b"s3cr3t"), "{cut}");
        }
        let raw = b"\xff\xfe no secret";
        let stored = artifacts.put(raw).unwrap();
        assert_eq!(artifacts.read(&stored.id, 0, 100).unwrap(), raw);
    }

    impl Hides {
        fn starts(&self, text: &str) -> usize {
            let cut = (1..self.0.len()).rev().find(|len| text.ends_with(&self.0[..*len]));
            text.len() - cut.unwrap_or(0)
        }
    }

    struct HidesPieces(Hides);

    impl Redactor for HidesPieces {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            self.0.redact(text)
        }

        fn settled(&self, text: &str) -> usize {
            self.0.starts(text)
        }
    }

    #[test]
    fn deltas_never_show_a_piece_of_a_secret_and_lose_nothing_else() {
        let redactor = HidesPieces(Hides("s3cr3t"));
        let text = "is s3cr3t so s3cr";
        for first in 0..text.len() {
            for second in first..text.len() {
                let mut held = HeldDeltas::default();
                let mut shown = String::new();
                for piece in [&text[..first], &text[first..second], &text[second..]] {
                    shown.push_str(&held.push(&redactor, &DeltaOf::Text, piece));
                    assert!(!shown.contains("s3"), "{first} {second}: {shown}");
                }
                for (of, rest) in held.finish(&redactor) {
                    assert_eq!(of, DeltaOf::Text);
                    shown.push_str(&rest);
                }
                assert_eq!(shown, "is *** so s3cr");
            }
        }
    }

    #[test]
    fn a_fact_is_cleaned_wherever_words_stand_and_opaque_state_is_not() {
        let redactor = Hides("s3cr3t");
        let call = ToolCall {
            id: windlass_core::id::CallId("c".into()),
            name: "bash".into(),
            args: serde_json::json!({ "command": "echo s3cr3t", "list": ["s3cr3t", 1] }),
            malformed: Some("s3cr3t".into()),
        };
        let state = serde_json::json!({ "signature": "s3cr3t" });
        let mut message = Message::assistant("say s3cr3t");
        message.parts.push(Part::Call(call.clone()));
        message.parts.push(Part::Reasoning { text: "fine".into(), opaque: Some(state.clone()) });
        let mut kind = EventKind::said(message);
        clean_event(&redactor, &mut kind);
        let EventKind::Said { message, .. } = &mut kind else { panic!("{kind:?}") };
        assert_eq!(message.parts.pop(), Some(Part::Reasoning { text: "fine".into(), opaque: Some(state) }));
        assert!(!serde_json::to_string(message).unwrap().contains("s3cr3t"), "{message:?}");
        let approval = windlass_core::ask::Approval {
            call,
            touches: vec![Touch::Execute { command: "echo s3cr3t".into(), script: None }],
            found: vec![],
            rule: "s3cr3t".into(),
            reason: "s3cr3t".into(),
            preview: Some("s3cr3t".into()),
            always: Some("bash(echo s3cr3t)".into()),
        };
        let about = About::Approval(Box::new(approval));
        let id = windlass_core::id::AskId::nth(1, 1);
        let mut kind = EventKind::Asked {
            ask: Ask { id, about, call: None, person: false, expires: None, waits_ms: None, run_ms: 0 },
        };
        clean_event(&redactor, &mut kind);
        assert!(!serde_json::to_string(&kind).unwrap().contains("s3cr3t"), "{kind:?}");
    }
}
