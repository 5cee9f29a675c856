//! Builds an engine with fakes for a test, and drives its runs.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::ask::{About, Answer};
use windlass_core::event::{Event, EventKind};
use windlass_core::gate::{Mode, PermissionGate};
use windlass_core::message::{ErrorCategory, Message};
use windlass_core::outcome::{Outcome, RunSummary};
use windlass_core::provider::{Chunk, ProviderError, Sampling};
use windlass_core::runtime::RunMode;
use windlass_core::tool::{Effect, Tool, ToolFailure, ToolOutput};
use windlass_core::validator::Validator;
use windlass_engine::{
    Engine, EngineBuilder, Instructions, NativeOptions, NativeRuntime, OpenSession, RunHandle,
    RunOptions, Session,
};
use windlass_testing::{
    FnTool, ManualClock, MemoryArtifacts, MemoryStore, MemoryWorkspaces, ScriptedProvider,
};

pub(crate) struct EngineFixture {
    pub(crate) provider: ScriptedProvider,
    pub(crate) store: MemoryStore,
    pub(crate) clock: ManualClock,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) gate: PermissionGate,
    pub(crate) validators: Vec<Arc<dyn Validator>>,
    pub(crate) options: RunOptions,
    pub(crate) person: Vec<Answer>,
    pub(crate) workspaces: MemoryWorkspaces,
    pub(crate) schema: Option<Value>,
    pub(crate) model: &'static str,
    pub(crate) instructions: Instructions,
}

/// The starts and ends of tool calls, in order.
pub(crate) type CallTrace = Arc<Mutex<Vec<String>>>;

impl EngineFixture {
    pub(crate) fn new(answers: Vec<Vec<Result<Chunk, ProviderError>>>) -> Self {
        Self {
            provider: ScriptedProvider::new(answers),
            store: MemoryStore::default(),
            clock: ManualClock::default(),
            tools: standard_tools(&CallTrace::default()),
            gate: PermissionGate {
                mode: Mode::Edit,
                ..PermissionGate::default()
            },
            validators: vec![],
            options: RunOptions {
                yes: true,
                ..RunOptions::default()
            },
            person: vec![],
            workspaces: MemoryWorkspaces::default(),
            schema: None,
            model: "m",
            instructions: Instructions::default(),
        }
    }

    pub(crate) fn engine(&self) -> Engine {
        self.builder().build().unwrap()
    }

    pub(crate) fn builder(&self) -> EngineBuilder {
        let sampling = Sampling {
            output_schema: self.schema.clone(),
            ..Sampling::default()
        };
        let (model, system) = (self.model.to_owned(), "be good".to_owned());
        let instructions = self.instructions.clone();
        let options = NativeOptions {
            model,
            system,
            sampling,
            instructions,
            ..NativeOptions::default()
        };
        let native = NativeRuntime::new(
            Arc::new(self.provider.clone()),
            Arc::new(self.clock.clone()),
            options,
        );
        let artifacts = MemoryArtifacts::default();
        let mut builder = Engine::builder()
            .runtime(Arc::new(native))
            .store(Arc::new(self.store.clone()))
            .workspaces(Arc::new(self.workspaces.clone()))
            .artifacts(Arc::new(move |_| Arc::new(artifacts.clone())))
            .clock(Arc::new(self.clock.clone()))
            .tools(self.tools.clone())
            .gate(self.gate.clone())
            .describe("/workspace", "test");
        for validator in &self.validators {
            builder = builder.validator(validator.clone());
        }
        builder
    }

    pub(crate) async fn open(&self) -> Session {
        self.engine()
            .open(OpenSession::New, RunMode::Full)
            .await
            .unwrap()
    }

    /// Runs one prompt in a new session to its end.
    pub(crate) async fn run(&self) -> RunEvents {
        let session = self.open().await;
        self.run_in(&session).await
    }

    pub(crate) async fn run_in(&self, session: &Session) -> RunEvents {
        let handle = session
            .run(Message::user("go"), self.options.clone())
            .unwrap();
        self.watch(handle).await
    }

    /// Reads a run to its end. Answers asks from the script, and advances the clock if nothing else happens.
    pub(crate) async fn watch(&self, handle: RunHandle) -> RunEvents {
        let mut person = self.person.clone().into_iter();
        self.watch_with(handle, |_| person.next()).await
    }

    /// Like `watch`, with a function that answers each ask.
    pub(crate) async fn watch_with(
        &self,
        handle: RunHandle,
        person: impl FnMut(&About) -> Option<Answer>,
    ) -> RunEvents {
        self.watch_all(handle, person, |_| {}).await
    }

    /// Like `watch`, without answers, and with a function that sees each event.
    pub(crate) async fn watch_events(
        &self,
        handle: RunHandle,
        see: impl FnMut(&Event),
    ) -> RunEvents {
        self.watch_all(handle, |_| None, see).await
    }

    pub(crate) async fn watch_all(
        &self,
        mut handle: RunHandle,
        mut person: impl FnMut(&About) -> Option<Answer>,
        mut see: impl FnMut(&Event),
    ) -> RunEvents {
        let mut events = Vec::new();
        let mut stalls = 0;
        loop {
            let event = tokio::select! {
                biased;
                event = handle.next() => event,
                () = idle() => {
                    if !self.clock.advance_to_next() {
                        // A blocking thread may still be working.
                        stalls += 1;
                        assert!(stalls < 1_000, "the run hangs, and no task waits for the clock");
                        tokio::task::spawn_blocking(std::thread::yield_now).await.unwrap();
                    }
                    continue;
                }
            };
            stalls = 0;
            let Some(event) = event else { break };
            see(&event);
            if let EventKind::Asked { ask } = &event.kind
                && let Some(answer) = person(&ask.about)
            {
                handle.answer(&ask.id, answer).unwrap();
            }
            events.push(event);
        }
        RunEvents { events }
    }
}

/// Yields often enough that every task of a single-threaded runtime that does not wait for the clock makes progress.
async fn idle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// The events that the reader of a run received.
pub(crate) struct RunEvents {
    pub(crate) events: Vec<Event>,
}

impl RunEvents {
    pub(crate) fn outcome(&self) -> &Outcome {
        let ends: Vec<&Outcome> = self
            .events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::RunFinished(RunSummary { outcome, .. }) => Some(outcome),
                _ => None,
            })
            .collect();
        assert_eq!(
            ends.len(),
            1,
            "exactly one terminal event: {:?}",
            self.kinds()
        );
        assert!(
            matches!(self.events.last().unwrap().kind, EventKind::RunFinished(_)),
            "and it is the last"
        );
        ends[0]
    }

    pub(crate) fn kinds(&self) -> Vec<String> {
        let kind = |event: &Event| {
            serde_json::to_value(event).unwrap()["kind"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        self.events.iter().map(kind).collect()
    }

    pub(crate) fn deltas(&self) -> String {
        let text = |event: &Event| match &event.kind {
            EventKind::Delta {
                of: windlass_core::event::DeltaOf::Text,
                text,
            } => Some(text.clone()),
            _ => None,
        };
        self.events.iter().filter_map(text).collect()
    }

    /// The results of the calls in the order of the log: text and error.
    pub(crate) fn results(&self) -> Vec<(String, Option<ErrorCategory>)> {
        let result = |event: &Event| match &event.kind {
            EventKind::CallFinished { result, .. } => Some((result.text.clone(), result.error)),
            _ => None,
        };
        self.events.iter().filter_map(result).collect()
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.kinds().iter().filter(|known| *known == kind).count()
    }
}

/// `look` (parallel read), `write`, `bash` (fails for the command `false`), `boom` (panics), `slow` (waits for its
/// cancellation), `stuck` (never ends), `ask`, `large` and `empty`. The first three record `+name` at their start and
/// `-name` at their end.
pub(crate) fn standard_tools(trace: &CallTrace) -> Vec<Arc<dyn Tool>> {
    let note = |trace: &CallTrace, text: String| trace.lock().push(text);
    let (d1, d2, d3) = (trace.clone(), trace.clone(), trace.clone());
    let look = FnTool::new("look", Effect::Read, move |args, _| {
        let trace = d1.clone();
        Box::pin(async move {
            note(
                &trace,
                format!("+look {}", args["path"].as_str().unwrap_or("")),
            );
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
            note(
                &trace,
                format!("-look {}", args["path"].as_str().unwrap_or("")),
            );
            Ok(ToolOutput::text(format!("saw {}", args["path"])))
        })
    })
    .with(|spec| spec.parallel = true);
    let write = FnTool::new("write", Effect::Write, move |args, _| {
        let trace = d2.clone();
        Box::pin(async move {
            note(
                &trace,
                format!("+write {}", args["path"].as_str().unwrap_or("")),
            );
            note(
                &trace,
                format!("-write {}", args["path"].as_str().unwrap_or("")),
            );
            Ok(ToolOutput::text("written"))
        })
    })
    .with(|spec| {
        spec.schema = json!({
            "type": "object", "required": ["path"], "additionalProperties": false,
            "properties": { "path": { "type": "string" } }
        });
    });
    let bash = FnTool::new("bash", Effect::Execute, move |args, _| {
        let trace = d3.clone();
        Box::pin(async move {
            let command = args["command"].as_str().unwrap_or_default().to_owned();
            note(&trace, format!("+bash {command}"));
            let failed = (command == "false").then_some(ErrorCategory::Exception);
            Ok(ToolOutput {
                failed,
                ..ToolOutput::text(format!("ran {command}"))
            })
        })
    });
    let boom = FnTool::new("boom", Effect::Read, |_, _| {
        Box::pin(async { panic!("a tool fell over") })
    });
    let slow = FnTool::new("slow", Effect::Execute, |_, ctx| {
        Box::pin(async move {
            ctx.cancel.cancelled().await;
            Err(ToolFailure::new(ErrorCategory::Interrupted, "told to end"))
        })
    });
    let stuck = FnTool::new("stuck", Effect::Execute, |_, _| {
        Box::pin(std::future::pending())
    });
    let ask = FnTool::new("ask", Effect::Read, |args: Value, ctx| {
        Box::pin(async move {
            let text = args["text"].as_str().unwrap_or_default().to_owned();
            let question = windlass_core::ask::Question {
                text,
                options: vec![],
            };
            Ok(ToolOutput::text(format!(
                "{:?}",
                ctx.call_output.ask(question).await
            )))
        })
    });
    let large = FnTool::new("large", Effect::Read, |_, _| {
        Box::pin(async { Ok(ToolOutput::text("0123456789".repeat(500_000))) })
    });
    let empty = FnTool::new("empty", Effect::Read, |_, _| {
        Box::pin(async { Ok(ToolOutput::text(" ")) })
    });
    [look, write, bash, boom, slow, stuck, ask, large, empty]
        .map(FnTool::boxed)
        .to_vec()
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// An answer with several calls: `(id, name, args)`.
pub(crate) fn calls(calls: &[(&str, &str, Value)]) -> Vec<Result<Chunk, ProviderError>> {
    let mut chunks = Vec::new();
    for (index, (id, name, args)) in (0..).zip(calls) {
        chunks.push(Ok(Chunk::CallStart {
            index,
            id: (*id).into(),
            name: (*name).into(),
        }));
        chunks.push(Ok(Chunk::CallArgs {
            index,
            json: args.to_string(),
        }));
    }
    chunks.push(Ok(Chunk::End(
        windlass_core::provider::EndReason::ToolCalls,
    )));
    chunks
}
