//! Folds events into spans and measurements. It needs nothing but the log, so that a trace can be created during a run or
//! years later, with the same ids. The times are those of the events; if the clock was set back, time stands still at
//! that event and continues from there.

mod run;

use serde::Serialize;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::RunId;
use windlass_core::outcome::RunSummary;

use self::run::OpenRun;
use crate::metric::Point;
use crate::span::{Attribute, Span};

/// The settings of the fold, and facts that are not in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Also export content: prompts, answers, arguments, results, and reasons in words.
    pub content: bool,
    /// Our name of the vendor that serves the model.
    pub provider: Option<String>,
}

/// The spans that ended and the measurements that were taken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Finished {
    /// The spans, in the order in which they ended.
    pub spans: Vec<Span>,
    /// The measurements, in the order of the log.
    pub points: Vec<Point>,
}

/// The state of the fold over the events of a session.
#[derive(Debug, Default)]
pub struct Spans {
    /// The settings; they may change between two runs.
    pub options: Options,
    facts: SessionFacts,
    run: Option<OpenRun>,
    ended: Option<RunId>,
}

/// The facts about a session that its spans have as attributes.
#[derive(Debug, Clone, Default)]
struct SessionFacts {
    program: Option<String>,
    runtime: Option<String>,
    model: Option<String>,
}

/// The settings and facts that are needed to create a span.
struct SpanContext<'a> {
    options: &'a Options,
    facts: &'a SessionFacts,
}

impl Spans {
    /// A fold that has seen no event.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Processes the next event of a log. Live events are ignored.
    pub fn apply(&mut self, event: &Event) -> Finished {
        let mut out = Finished::default();
        let (Some(seq), kind) = (event.order.seq(), &event.kind) else {
            return out;
        };
        match kind {
            EventKind::SessionOpened {
                runtime,
                model,
                program,
                ..
            } => {
                self.facts = SessionFacts {
                    program: Some(program.clone()),
                    runtime: Some(runtime.clone()),
                    model: model.clone(),
                };
                return out;
            }
            EventKind::ModelSwitched { to, .. } => self.facts.model = Some(to.clone()),
            EventKind::SessionClosed {}
            | EventKind::Queued { .. }
            | EventKind::QueueChanged { .. }
            | EventKind::Cleared {}
            | EventKind::Forked { .. } => {
                return out;
            }
            _ => {}
        }
        let Some(id) = &event.run else { return out };
        let begins = matches!(kind, EventKind::RunStarted { .. });
        if self.ended.as_ref() == Some(id) && !begins {
            return out;
        }
        let context = SpanContext {
            options: &self.options,
            facts: &self.facts,
        };
        if begins || self.run.as_ref().is_none_or(|open| open.id != *id) {
            if let Some(open) = self.run.take() {
                open.interrupt(&context, &mut out);
            }
            self.run = Some(OpenRun::begin(event, id.clone(), &context));
        }
        let Some(run) = &mut self.run else { return out };
        run.apply(seq, event, &context, &mut out);
        if let EventKind::RunFinished(RunSummary {
            outcome,
            totals,
            ms,
            ..
        }) = kind
        {
            self.ended = Some(id.clone());
            if let Some(run) = self.run.take() {
                run.finish(outcome, totals, *ms, &context, &mut out);
            }
        }
        out
    }

    /// Ends the log: spans that are still open are closed as interrupted.
    #[must_use]
    pub fn finish(mut self) -> Finished {
        let mut out = Finished::default();
        let context = SpanContext {
            options: &self.options,
            facts: &self.facts,
        };
        if let Some(open) = self.run.take() {
            open.interrupt(&context, &mut out);
        }
        out
    }
}

impl SpanContext<'_> {
    /// The attributes for the provider and the model.
    fn model_attributes(&self, model: Option<&str>) -> Vec<Attribute> {
        let model = model.or(self.facts.model.as_deref());
        // The conventions require a provider name for a model call.
        let provider = self.options.provider.as_deref();
        let provider = provider.or(model.map(|_| "unknown")).map(provider_name);
        let provider = provider.map(|provider| ("gen_ai.provider.name", provider.into()));
        let model = model.map(|model| ("gen_ai.request.model", model.into()));
        provider.into_iter().chain(model).collect()
    }

    /// An attribute with free text; `None` unless content is exported.
    fn text_attribute(&self, name: &'static str, text: &str) -> Option<Attribute> {
        self.options
            .content
            .then(|| (name, crate::content::text(text).into()))
    }
}

/// The name of a vendor in the conventions, or our name if they have none.
#[must_use]
pub fn provider_name(vendor: &str) -> &str {
    match vendor {
        "bedrock" | "bedrock-converse" => "aws.bedrock",
        "vertex" | "vertex-gemini" => "gcp.vertex_ai",
        "gemini" => "gcp.gemini",
        "openai-chat" => "openai",
        "azure" => "azure.ai.openai",
        "mistral" => "mistral_ai",
        "xai" => "x_ai",
        other => other,
    }
}

/// The name of an enum value: its JSON string, or the `is` field of its JSON object.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Object(map)) => match map.get("is") {
            Some(serde_json::Value::String(word)) => word.clone(),
            _ => String::new(),
        },
        _ => String::new(),
    }
}
