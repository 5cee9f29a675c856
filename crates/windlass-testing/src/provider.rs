//! A model that plays a script.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::Value;
use windlass_core::BoxStream;
use windlass_core::budget::{Price, Usage};
use windlass_core::history::unpaired;
use windlass_core::message::{Message, Role};
use windlass_core::provider::{Chunk, EndReason, ModelFacts, Provider, ProviderError, Request};

type ScriptedAnswer = Vec<Result<Chunk, ProviderError>>;

/// A request that the model received.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderRequest {
    /// The system prompt of the request.
    pub system: String,
    /// The names of the tools that were offered.
    pub tools: Vec<String>,
    /// The conversation so far, oldest first.
    pub messages: Vec<Message>,
}

/// Plays one scripted answer per request and records the requests.
#[derive(Clone)]
pub struct ScriptedProvider {
    answers: Arc<Mutex<VecDeque<ScriptedAnswer>>>,
    asked: Arc<Mutex<Vec<ProviderRequest>>>,
    summary: Option<ScriptedAnswer>,
    on_request: Option<Arc<dyn Fn(usize) + Send + Sync>>,
    facts: Arc<dyn Fn(&str) -> ModelFacts + Send + Sync>,
}

impl ScriptedProvider {
    /// Creates a model with these answers, in order. When they are used up, every request fails with `ModelNotFound`.
    #[must_use]
    pub fn new(answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        let facts = Arc::new(|_: &str| ModelFacts {
            price: Some(Price::FREE),
            ..ModelFacts::default()
        });
        Self {
            answers,
            asked: Arc::default(),
            summary: None,
            on_request: None,
            facts,
        }
    }

    /// Replaces the facts about its model.
    #[must_use]
    pub fn with_facts(self, facts: ModelFacts) -> Self {
        self.with_facts_of(move |_| facts.clone())
    }

    /// Replaces the facts about each model.
    #[must_use]
    pub fn with_facts_of(self, facts: impl Fn(&str) -> ModelFacts + Send + Sync + 'static) -> Self {
        Self {
            facts: Arc::new(facts),
            ..self
        }
    }

    /// Adds an answer for requests for a summary. Such requests offer no tools, and they do not consume an answer of
    /// the script.
    #[must_use]
    pub fn with_summary(self, answer: ScriptedAnswer) -> Self {
        Self {
            summary: Some(answer),
            ..self
        }
    }

    /// Calls a function with the number of each request, counted from 1, before it is answered.
    #[must_use]
    pub fn with_on_request(self, called: impl Fn(usize) + Send + Sync + 'static) -> Self {
        Self {
            on_request: Some(Arc::new(called)),
            ..self
        }
    }

    /// Returns the messages of each request so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Vec<Message>> {
        self.requests()
            .into_iter()
            .map(|asked| asked.messages)
            .collect()
    }

    /// Returns all requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<ProviderRequest> {
        self.asked.lock().clone()
    }
}

/// Returns an answer with only text.
#[must_use]
pub fn says(text: &str) -> ScriptedAnswer {
    vec![
        Ok(Chunk::Text(text.to_owned())),
        Ok(Chunk::Usage(Usage {
            input: 10,
            output: 5,
            ..Usage::default()
        })),
        Ok(Chunk::End(EndReason::Done)),
    ]
}

/// Returns an answer that calls one tool.
#[must_use]
pub fn call(id: &str, name: &str, args: &Value) -> ScriptedAnswer {
    vec![
        Ok(Chunk::CallStart {
            index: 0,
            id: id.to_owned(),
            name: name.to_owned(),
        }),
        Ok(Chunk::CallArgs {
            index: 0,
            json: args.to_string(),
        }),
        Ok(Chunk::Usage(Usage {
            input: 10,
            output: 5,
            ..Usage::default()
        })),
        Ok(Chunk::End(EndReason::ToolCalls)),
    ]
}

impl Provider for ScriptedProvider {
    fn name(&self) -> &str {
        "scripted"
    }

    fn facts(&self, model: &str) -> ModelFacts {
        (self.facts)(model)
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> BoxStream<'a, Result<Chunk, ProviderError>> {
        // A vendor would answer such a request with status 400, so it is a defect of the engine.
        assert_eq!(
            unpaired(request.history),
            None,
            "the engine sent an unpaired call"
        );
        let first = request.history.first().map(|entry| entry.role);
        assert_eq!(
            first,
            Some(Role::User),
            "the engine sent a list that does not begin with a user's message"
        );
        let messages = request
            .history
            .iter()
            .map(|entry| Message::clone(entry))
            .collect();
        let tools = request
            .tools
            .iter()
            .map(|tool| tool.spec().name.clone())
            .collect();
        let asked = ProviderRequest {
            system: request.system.to_owned(),
            tools,
            messages,
        };
        let count = {
            let mut all = self.asked.lock();
            all.push(asked);
            all.len()
        };
        if let Some(called) = &self.on_request {
            called(count);
        }
        if let Some(answer) = self.summary.as_ref().filter(|_| request.tools.is_empty()) {
            return futures_util::stream::iter(answer.clone()).boxed();
        }
        let answer = self.answers.lock().pop_front();
        let answer = answer.unwrap_or_else(|| {
            let kind = windlass_core::provider::ProviderErrorKind::ModelNotFound;
            vec![Err(ProviderError {
                kind,
                message: "the script is over".into(),
                status: None,
            })]
        });
        futures_util::stream::iter(answer).boxed()
    }
}
