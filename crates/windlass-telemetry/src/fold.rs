//! Events in, spans and measurements out: a fold that needs nothing but the log, so that a trace can be made while a run
//! goes on or years later, with the same ids. Times are those of the events; where the clock was set back, time stands
//! still for that moment and goes on from there.

mod run;

use serde::Serialize;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::RunId;
use windlass_core::outcome::RunSummary;

use self::run::OpenRun;
use crate::metric::Point;
use crate::span::{Attribute, Span};

/// What is told, and what the log does not know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Also what was said: prompts, answers, arguments, results, and reasons in words.
    pub content: bool,
    /// Who serves the model, as we call them.
    pub provider: Option<String>,
}

/// What came to its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Finished {
    /// Spans, in the order they ended.
    pub spans: Vec<Span>,
    /// Measurements.
    pub points: Vec<Point>,
}

/// The fold.
#[derive(Debug, Default)]
pub struct Spans {
    /// What is told. May change between two runs.
    pub options: Options,
    facts: Facts,
    run: Option<OpenRun>,
    ended: Option<RunId>,
}

/// What is known of a session.
#[derive(Debug, Clone, Default)]
struct Facts {
    program: Option<String>,
    runtime: Option<String>,
    model: Option<String>,
}

/// What every part of a run is told with.
struct Told<'a> {
    options: &'a Options,
    facts: &'a Facts,
}

impl Spans {
    /// Nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Takes one more event of a log in. Live ones change nothing.
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
                self.facts = Facts {
                    program: Some(program.clone()),
                    runtime: Some(runtime.clone()),
                    model: model.clone(),
                };
                return out;
            }
            EventKind::ModelSwitched { to, .. } => self.facts.model = Some(to.clone()),
            EventKind::SessionClosed {} | EventKind::Queued { .. } | EventKind::Forked { .. } => {
                return out;
            }
            _ => {}
        }
        let Some(id) = &event.run else { return out };
        let begins = matches!(kind, EventKind::RunStarted { .. });
        if self.ended.as_ref() == Some(id) && !begins {
            return out;
        }
        let told = Told {
            options: &self.options,
            facts: &self.facts,
        };
        if begins || self.run.as_ref().is_none_or(|open| open.id != *id) {
            if let Some(open) = self.run.take() {
                open.interrupt(&told, &mut out);
            }
            self.run = Some(OpenRun::begin(event, id.clone(), &told));
        }
        let Some(run) = &mut self.run else { return out };
        run.apply(seq, event, &told, &mut out);
        if let EventKind::RunFinished(RunSummary {
            outcome,
            totals,
            ms,
            ..
        }) = kind
        {
            self.ended = Some(id.clone());
            if let Some(run) = self.run.take() {
                run.finish(outcome, totals, *ms, &told, &mut out);
            }
        }
        out
    }

    /// The log is over: what is open was interrupted.
    #[must_use]
    pub fn finish(mut self) -> Finished {
        let mut out = Finished::default();
        let told = Told {
            options: &self.options,
            facts: &self.facts,
        };
        if let Some(open) = self.run.take() {
            open.interrupt(&told, &mut out);
        }
        out
    }
}

impl Told<'_> {
    /// Who served which model.
    fn served(&self, model: Option<&str>) -> Vec<Attribute> {
        let model = model.or(self.facts.model.as_deref());
        // A model call needs the name of somebody.
        let provider = self.options.provider.as_deref();
        let provider = provider.or(model.map(|_| "unknown")).map(provider_name);
        let provider = provider.map(|provider| ("gen_ai.provider.name", provider.into()));
        let model = model.map(|model| ("gen_ai.request.model", model.into()));
        provider.into_iter().chain(model).collect()
    }

    /// Words that somebody wrote; absent where content is not told.
    fn words(&self, name: &'static str, text: &str) -> Option<Attribute> {
        self.options
            .content
            .then(|| (name, crate::content::text(text).into()))
    }
}

/// A vendor by the name that the conventions have for it; ours where they have none.
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

/// The word of a value that is written as one.
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
