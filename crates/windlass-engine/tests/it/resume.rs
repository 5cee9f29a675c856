//! A run is a fold of its log: at every event, the live state equals the fold. A run that another process resumes at every
//! ask does the same as an uninterrupted run.

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
use windlass_core::pause::PauseReason;
use windlass_core::runtime::RunMode;
use windlass_core::store::{LogWriter, OpenLog, OpenedLog, SessionHead, SessionStore, StoreError};
use windlass_core::terms::{Strategy as Copying, Terms};
use windlass_core::tool::{Effect, ToolOutput};
use windlass_core::validator::{CheckCtx, Finding, Judgement, Report, Validator, ValidatorError};
use windlass_core::{BoxFuture, BoxStream};
use windlass_engine::{Delivery, Engine, OnAsk, OpenSession, Pauser, Session};
use windlass_testing::{FnTool, MemoryStore, call, says};

use crate::fixture::EngineFixture;

/// A store that folds the appended events and compares the result with the live state of the session.
#[derive(Clone, Default)]
struct ComparedStore {
    store: MemoryStore,
    session: Arc<Mutex<Weak<Session>>>,
    folded: Arc<Mutex<History>>,
    compared: Arc<Mutex<usize>>,
}

impl ComparedStore {
    fn compare(&self) {
        let Some(session) = self.session.lock().upgrade() else {
            return;
        };
        let folded = self.folded.lock();
        session.with_history(|live| {
            assert_eq!(live.last_seq(), folded.last_seq());
            assert_eq!(live.open_run(), folded.open_run());
            assert_eq!(live.is_paused(), folded.is_paused());
            assert_eq!(live.queue(), folded.queue());
            assert_eq!(messages(live), messages(&folded));
        });
        *self.compared.lock() += 1;
    }
}

fn messages(history: &History) -> Vec<Message> {
    let entries = history.entries();
    entries.iter().map(|entry| Message::clone(entry)).collect()
}

impl SessionStore for ComparedStore {
    fn open_writer<'a>(
        &'a self,
        session: &'a SessionId,
        how: OpenLog,
    ) -> BoxFuture<'a, Result<OpenedLog, StoreError>> {
        Box::pin(async move {
            let opened = self.store.open_writer(session, how).await?;
            let writer = ComparedWriter {
                writer: opened.writer,
                store: self.clone(),
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

struct ComparedWriter {
    writer: Box<dyn LogWriter>,
    store: ComparedStore,
}

impl LogWriter for ComparedWriter {
    fn append<'a>(
        &'a mut self,
        event: &'a Event,
        line: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.store.compare();
        // Parse the line, as another process would.
        let read: Event = serde_json::from_str(line).unwrap();
        self.store.folded.lock().apply(&read);
        self.writer.append(event, line)
    }

    fn sync(&mut self) -> BoxFuture<'static, Result<(), StoreError>> {
        self.writer.sync()
    }
}

/// The random inputs of one run.
#[derive(Debug, Clone)]
struct RandomRun {
    /// The calls of the model in each iteration, before it says that it is done.
    iterations: Vec<Vec<ModelAction>>,
    /// The results of the checks, in order.
    checks: Vec<bool>,
    /// The changed path needs the consent of a person before it lands.
    executes: bool,
    /// The answers of the person, in order.
    answers: Vec<bool>,
    /// Whether the user has changed the tree, for each query.
    moved: Vec<bool>,
    isolated: bool,
    /// Whether the run is asked to pause, for each request to the model and each check.
    pauses: Vec<bool>,
}

#[derive(Debug, Clone, Copy)]
enum ModelAction {
    Look,
    Change,
    Question,
}

fn scenarios() -> impl Strategy<Value = RandomRun> {
    let action = prop_oneof![
        Just(ModelAction::Look),
        Just(ModelAction::Change),
        Just(ModelAction::Question)
    ];
    let iterations = prop::collection::vec(prop::collection::vec(action, 0..3), 1..4);
    let flags = || prop::collection::vec(any::<bool>(), 12);
    let few = prop::collection::vec(prop::bool::weighted(0.2), 6);
    (
        iterations,
        flags(),
        any::<bool>(),
        flags(),
        few,
        any::<bool>(),
        flags(),
    )
        .prop_map(
            |(iterations, checks, executes, answers, moved, isolated, pauses)| RandomRun {
                iterations,
                checks,
                executes,
                answers,
                moved,
                isolated,
                pauses,
            },
        )
}

/// Passes or fails by its script. Each failure has a different finding.
struct ScriptedChecks(Mutex<Vec<bool>>);

impl Validator for ScriptedChecks {
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

fn fixture_for(scenario: &RandomRun) -> EngineFixture {
    let path = match scenario.executes {
        true => ".vscode/tasks.json",
        false => "a.rs",
    };
    let mut answers = Vec::new();
    for (at, actions) in scenario.iterations.iter().enumerate() {
        for (n, action) in actions.iter().enumerate() {
            let id = format!("{at}-{n}");
            answers.push(match action {
                ModelAction::Look => call(&id, "look", &json!({ "path": "a" })),
                ModelAction::Change => {
                    call(&id, "change", &json!({ "at": path, "n": n, "try": at }))
                }
                ModelAction::Question => call(&id, "ask", &json!({ "text": format!("why {id}?") })),
            });
        }
        answers.push(says("done"));
    }
    let mut fixture = EngineFixture::new(answers);
    fixture.gate.mode = Mode::Ask;
    fixture.options.yes = false;
    if scenario.isolated {
        fixture.workspaces.terms = Terms::unconfined(Copying::Overlay);
    }
    let tree = fixture.workspaces.clone();
    let change = FnTool::new("change", Effect::Write, move |args, _| {
        tree.tree().change(args["at"].as_str().unwrap_or_default());
        Box::pin(async { Ok(ToolOutput::text("changed")) })
    });
    fixture.tools.push(change.boxed());
    fixture.validators = vec![Arc::new(ScriptedChecks(Mutex::new(
        scenario.checks.clone(),
    )))];
    let moved = scenario.moved.iter().map(|moved| match moved {
        true => vec!["theirs.rs".to_owned()],
        false => vec![],
    });
    fixture.workspaces.tree().moved = moved.collect();
    fixture
}

fn engine(fixture: &EngineFixture, store: &ComparedStore) -> Engine {
    fixture
        .builder()
        .store(Arc::new(store.clone()))
        .build()
        .unwrap()
}

/// A person with scripted answers.
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

/// The events, and the requests to the model.
type ComparedRun = (Vec<(String, Value)>, Vec<Vec<Message>>);

/// The logged events of the run, without those of a process: opening and keeping the copy.
fn actions(fixture: &EngineFixture, store: &ComparedStore, session: &SessionId) -> ComparedRun {
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
    for line in store.store.lines(session) {
        let mut event: Value = serde_json::from_str(&line).unwrap();
        let kind = event["kind"].as_str().unwrap().to_owned();
        if !OF_THE_RUN.contains(&kind.as_str()) {
            continue;
        }
        let data = &mut event["data"];
        // Remove times, random parts of ids, and fields that depend on whether a user was connected.
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
    (all, fixture.provider.asked())
}

/// A run during which the user is connected all the time.
async fn uninterrupted(scenario: &RandomRun) -> (ComparedRun, usize) {
    let fixture = fixture_for(scenario);
    let store = ComparedStore::default();
    let engine = engine(&fixture, &store);
    let session = Arc::new(engine.open(OpenSession::New, RunMode::Full).await.unwrap());
    *store.session.lock() = Arc::downgrade(&session);
    let mut person = Person(scenario.answers.clone());
    let handle = session
        .run(Message::user("go"), fixture.options.clone())
        .unwrap();
    fixture
        .watch_with(handle, |about| Some(person.answer(about)))
        .await;
    let compared = *store.compared.lock();
    (actions(&fixture, &store, session.id()), compared)
}

/// The same run without a connected user: another process answers every ask.
async fn resumed(scenario: &RandomRun) -> ComparedRun {
    let mut fixture = fixture_for(scenario);
    fixture.options.on_ask = OnAsk::Pause;
    let store = ComparedStore::default();
    let engine_here = engine(&fixture, &store);
    let session = Arc::new(
        engine_here
            .open(OpenSession::New, RunMode::Full)
            .await
            .unwrap(),
    );
    let id = session.id().clone();
    *store.session.lock() = Arc::downgrade(&session);
    let mut person = Person(scenario.answers.clone());
    let handle = session
        .run(Message::user("go"), fixture.options.clone())
        .unwrap();
    fixture.watch(handle).await;
    drop(session);
    for _ in 0..100 {
        let engine = engine(&fixture, &store);
        let session = engine
            .open(OpenSession::Resume(id.clone()), RunMode::Full)
            .await;
        let session = Arc::new(session.unwrap());
        *store.session.lock() = Arc::downgrade(&session);
        let Some(ask) = session.pending().into_iter().next() else {
            return actions(&fixture, &store, &id);
        };
        let answer = person.answer(&ask.about);
        let handle = session
            .answer(&ask.id, answer, fixture.options.clone())
            .unwrap();
        fixture.watch(handle).await;
    }
    panic!("it asks without end");
}

/// The value that pauses the current run until it is used, and the pauses that are still to come.
type PauseScript = Arc<Mutex<(Option<Pauser>, Vec<bool>)>>;

fn next_pause(script: &PauseScript) {
    let mut script = script.lock();
    if script.1.pop() == Some(true)
        && let Some(pauser) = script.0.take()
    {
        pauser.pause(PauseReason::Shutdown);
    }
}

/// Asks the run to pause before it checks, by its script.
struct PausingChecks(ScriptedChecks, PauseScript);

impl Validator for PausingChecks {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn check<'a>(&'a self, ctx: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        next_pause(&self.1);
        self.0.check(ctx)
    }
}

/// The same run with a connected user. It is paused at random points, and another process resumes it every time. The
/// queue is changed meanwhile.
async fn paused(scenario: &RandomRun) -> ComparedRun {
    let mut fixture = fixture_for(scenario);
    let script = PauseScript::new(Mutex::new((None, scenario.pauses.clone())));
    let checks = ScriptedChecks(Mutex::new(scenario.checks.clone()));
    fixture.validators = vec![Arc::new(PausingChecks(checks, script.clone()))];
    let pauses = script.clone();
    fixture.provider = fixture
        .provider
        .with_on_request(move |_| next_pause(&pauses));
    let store = ComparedStore::default();
    let engine_here = engine(&fixture, &store);
    let session = engine_here.open(OpenSession::New, RunMode::Full).await;
    let mut session = Arc::new(session.unwrap());
    *store.session.lock() = Arc::downgrade(&session);
    let id = session.id().clone();
    let mut person = Person(scenario.answers.clone());
    let options = || fixture.options.clone();
    let mut waiting = Vec::new();
    for text in ["a", "b", "c"] {
        let queued = session.queue(Message::user(text), Delivery::FollowUp).await;
        waiting.push(queued.unwrap());
    }
    let mut handle = session.run(Message::user("go"), options()).unwrap();
    for _ in 0..100 {
        script.lock().0 = Some(handle.pauser());
        waiting.rotate_left(1);
        session.reorder_queue(waiting.clone()).await.unwrap();
        // An ask of a run that is to pause stays open; another process answers it.
        let connected = |about: &About| {
            let pauses = script.lock().0.is_none();
            (!pauses).then(|| person.answer(about))
        };
        fixture.watch_with(handle, connected).await;
        drop(session);
        let engine = engine(&fixture, &store);
        let opened = engine.open(OpenSession::Resume(id.clone()), RunMode::Full);
        session = Arc::new(opened.await.unwrap());
        *store.session.lock() = Arc::downgrade(&session);
        let ask = session.pending().into_iter().next();
        handle = match ask {
            Some(ask) => {
                let answer = person.answer(&ask.about);
                session.answer(&ask.id, answer, options()).unwrap()
            }
            None if session.with_history(|history| history.is_paused()) => {
                session.resume_paused(options()).unwrap()
            }
            None => {
                session.clear().await.unwrap();
                session.reorder_queue(Vec::new()).await.unwrap();
                store.compare();
                return actions(&fixture, &store, &id);
            }
        };
    }
    panic!("it pauses without end");
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

    #[test]
    fn a_paused_run_does_what_an_uninterrupted_one_does(mut scenario in scenarios()) {
        // A run that was paused looks once more whether the user changed the tree, so the script of the user would shift.
        scenario.moved.clear();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (at_once, _) = uninterrupted(&scenario).await;
            let in_pieces = paused(&scenario).await;
            prop_assert_eq!(at_once, in_pieces);
            Ok(())
        })?;
    }
}
