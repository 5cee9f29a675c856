//! A run is a fold of its log: the live state is the fold at every event, and a run that is resumed by another process at
//! every ask does what a run does that nobody interrupted.

use parking_lot::Mutex;
use std::sync::{Arc, Weak};

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_core::ask::{About, Answer};
use windlass_core::event::Event;
use windlass_core::gate::Mode;
use windlass_core::history::History;
use windlass_core::id::SessionId;
use windlass_core::message::Message;
use windlass_core::runtime::RunMode;
use windlass_core::store::{LogWriter, OpenLog, OpenedLog, SessionHead, SessionStore, StoreError};
use windlass_core::terms::{Strategy as Copying, Terms};
use windlass_core::tool::{Effect, ToolOutput};
use windlass_core::validator::{CheckCtx, Finding, Judgement, Report, Validator, ValidatorError};
use windlass_core::{BoxFuture, BoxStream};
use windlass_engine::{Engine, OnAsk, Open, Session};
use windlass_testing::{FnTool, MemoryStore, call, says};

use crate::lab::Lab;

/// A store that folds what is appended and compares it with the state of the session that appends.
#[derive(Clone, Default)]
struct Watched {
    store: MemoryStore,
    session: Arc<Mutex<Weak<Session>>>,
    folded: Arc<Mutex<History>>,
    compared: Arc<Mutex<usize>>,
}

impl Watched {
    fn compare(&self) {
        let Some(session) = self.session.lock().upgrade() else {
            return;
        };
        let folded = self.folded.lock();
        session.look(|live| {
            assert_eq!(live.last_seq(), folded.last_seq());
            assert_eq!(live.open_run(), folded.open_run());
        });
        *self.compared.lock() += 1;
    }
}

impl SessionStore for Watched {
    fn open_writer<'a>(
        &'a self,
        session: &'a SessionId,
        how: OpenLog,
    ) -> BoxFuture<'a, Result<OpenedLog, StoreError>> {
        Box::pin(async move {
            let opened = self.store.open_writer(session, how).await?;
            let writer = WatchedWriter {
                writer: opened.writer,
                watched: self.clone(),
            };
            Ok(OpenedLog {
                writer: Box::new(writer),
                ..opened
            })
        })
    }

    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        from_seq: u64,
    ) -> BoxStream<'a, Result<Event, StoreError>> {
        self.store.read(session, from_seq)
    }

    fn list(&self) -> BoxStream<'_, Result<SessionHead, StoreError>> {
        self.store.list()
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), StoreError>> {
        self.store.delete(session)
    }
}

struct WatchedWriter {
    writer: Box<dyn LogWriter>,
    watched: Watched,
}

impl LogWriter for WatchedWriter {
    fn append<'a>(
        &'a mut self,
        event: &'a Event,
        line: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.watched.compare();
        // As another process would read it.
        let read: Event = serde_json::from_str(line).unwrap();
        self.watched.folded.lock().apply(&read);
        self.writer.append(event, line)
    }

    fn sync(&mut self) -> BoxFuture<'static, Result<(), StoreError>> {
        self.writer.sync()
    }
}

/// What happens in one run.
#[derive(Debug, Clone)]
struct Scenario {
    /// What the model calls before it says that it is done, for each try.
    tries: Vec<Vec<Deed>>,
    /// Whether the checks pass, for each time they run.
    checks: Vec<bool>,
    /// A path that a person is asked about before it lands.
    executes: bool,
    /// What the person says, one by one.
    answers: Vec<bool>,
    /// Whether the tree is found changed, one by one.
    moved: Vec<bool>,
    isolated: bool,
}

#[derive(Debug, Clone, Copy)]
enum Deed {
    Look,
    Change,
    Question,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let deed = prop_oneof![Just(Deed::Look), Just(Deed::Change), Just(Deed::Question)];
    let tries = prop::collection::vec(prop::collection::vec(deed, 0..3), 1..4);
    let flags = || prop::collection::vec(any::<bool>(), 12);
    let few = prop::collection::vec(prop::bool::weighted(0.2), 6);
    (tries, flags(), any::<bool>(), flags(), few, any::<bool>()).prop_map(
        |(tries, checks, executes, answers, moved, isolated)| Scenario {
            tries,
            checks,
            executes,
            answers,
            moved,
            isolated,
        },
    )
}

/// Passes or fails as it is told; each failure is another one.
struct Checks(Mutex<Vec<bool>>);

impl Validator for Checks {
    fn name(&self) -> &str {
        "tests"
    }
    fn check<'a>(&'a self, _: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        Box::pin(async move {
            let mut left = self.0.lock();
            let passes = left.pop().unwrap_or(true);
            let finding = Finding::whole(format!("{} checks are left", left.len()));
            Ok(match passes {
                true => Report::new(Judgement::Pass, Vec::new()),
                false => Report::new(Judgement::Fail, vec![finding]),
            })
        })
    }
}

fn lab_for(scenario: &Scenario) -> Lab {
    let path = match scenario.executes {
        true => ".vscode/tasks.json",
        false => "a.rs",
    };
    let mut answers = Vec::new();
    for (at, deeds) in scenario.tries.iter().enumerate() {
        for (n, deed) in deeds.iter().enumerate() {
            let id = format!("{at}-{n}");
            answers.push(match deed {
                Deed::Look => call(&id, "look", &json!({ "path": "a" })),
                Deed::Change => call(&id, "change", &json!({ "at": path, "n": n, "try": at })),
                Deed::Question => call(&id, "ask", &json!({ "text": format!("why {id}?") })),
            });
        }
        answers.push(says("done"));
    }
    let mut lab = Lab::new(answers);
    lab.gate.mode = Mode::Ask;
    lab.options.yes = false;
    if scenario.isolated {
        lab.workspaces.terms = Terms::unconfined(Copying::Overlay);
    }
    let tree = lab.workspaces.clone();
    let change = FnTool::new("change", Effect::Write, move |args, _| {
        tree.tree().change(args["at"].as_str().unwrap_or_default());
        Box::pin(async { Ok(ToolOutput::text("changed")) })
    });
    lab.tools.push(change.boxed());
    lab.validators = vec![Arc::new(Checks(Mutex::new(scenario.checks.clone())))];
    let moved = scenario.moved.iter().map(|moved| match moved {
        true => vec!["theirs.rs".to_owned()],
        false => vec![],
    });
    lab.workspaces.tree().moved = moved.collect();
    lab
}

fn engine(lab: &Lab, watched: &Watched) -> Engine {
    lab.builder()
        .store(Arc::new(watched.clone()))
        .build()
        .unwrap()
}

/// The answers of the person, in the order in which they are asked.
struct Person(Vec<bool>);

impl Person {
    fn answer(&mut self, about: &About) -> Answer {
        let yes = self.0.pop().unwrap_or(true);
        match (about, yes) {
            (About::Question(_), _) => Answer::Text {
                text: format!("because {yes}"),
            },
            (_, true) => Answer::Once,
            (_, false) => Answer::No { note: None },
        }
    }
}

/// The events, and what the model was asked.
type Ran = (Vec<(String, Value)>, Vec<Vec<Message>>);

/// What the log says was done, without what belongs to a process: opening and keeping the copy.
fn deeds(lab: &Lab, watched: &Watched, session: &SessionId) -> Ran {
    const OF_THE_RUN: &[&str] = &[
        "iteration_started",
        "said",
        "call_started",
        "call_finished",
        "asked",
        "answered",
        "validated",
        "iteration_finished",
        "judged",
        "landed",
        "run_ending",
        "run_finished",
    ];
    let mut all = Vec::new();
    for line in watched.store.lines(session) {
        let mut event: Value = serde_json::from_str(&line).unwrap();
        let kind = event["kind"].as_str().unwrap().to_owned();
        if !OF_THE_RUN.contains(&kind.as_str()) {
            continue;
        }
        let data = &mut event["data"];
        // Times and random parts of ids; whether somebody was there to ask.
        for field in ["ms", "limits", "transaction"] {
            data.as_object_mut().unwrap().remove(field);
        }
        match kind.as_str() {
            "asked" => data["ask"] = data["ask"]["about"].take(),
            "answered" => data["ask"] = Value::Null,
            _ => {}
        }
        all.push((kind, event["data"].take()));
    }
    (all, lab.provider.asked())
}

/// A run whose person is there all the time.
async fn uninterrupted(scenario: &Scenario) -> (Ran, usize) {
    let lab = lab_for(scenario);
    let watched = Watched::default();
    let engine = engine(&lab, &watched);
    let session = Arc::new(engine.open(Open::New, RunMode::Full).await.unwrap());
    *watched.session.lock() = Arc::downgrade(&session);
    let mut person = Person(scenario.answers.clone());
    let handle = session
        .run(Message::user("go"), lab.options.clone())
        .unwrap();
    lab.watch_with(handle, |about| Some(person.answer(about)))
        .await;
    let compared = *watched.compared.lock();
    (deeds(&lab, &watched, session.id()), compared)
}

/// The same run with nobody there: another process answers every ask.
async fn resumed(scenario: &Scenario) -> Ran {
    let mut lab = lab_for(scenario);
    lab.options.on_ask = OnAsk::Pause;
    let watched = Watched::default();
    let engine_here = engine(&lab, &watched);
    let session = Arc::new(engine_here.open(Open::New, RunMode::Full).await.unwrap());
    let id = session.id().clone();
    *watched.session.lock() = Arc::downgrade(&session);
    let mut person = Person(scenario.answers.clone());
    let handle = session
        .run(Message::user("go"), lab.options.clone())
        .unwrap();
    lab.watch(handle).await;
    drop(session);
    for _ in 0..100 {
        let engine = engine(&lab, &watched);
        let session = engine.open(Open::Resume(id.clone()), RunMode::Full).await;
        let session = Arc::new(session.unwrap());
        *watched.session.lock() = Arc::downgrade(&session);
        let Some(ask) = session.pending().into_iter().next() else {
            return deeds(&lab, &watched, &id);
        };
        let answer = person.answer(&ask.about);
        let handle = session
            .answer(&ask.id, answer, lab.options.clone())
            .unwrap();
        lab.watch(handle).await;
    }
    panic!("it asks for ever");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_resumed_run_does_what_an_uninterrupted_one_does(scenario in scenarios()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (at_once, compared) = uninterrupted(&scenario).await;
            prop_assert!(compared > 3);
            prop_assert_eq!(at_once.0.iter().filter(|(kind, _)| kind == "run_finished").count(), 1);
            let in_pieces = resumed(&scenario).await;
            prop_assert_eq!(at_once, in_pieces);
            Ok(())
        })?;
    }
}
