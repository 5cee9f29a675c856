//! Attacks on asks, queues and runs that were left open. Each of them succeeded once.

use parking_lot::Mutex;
use std::sync::Arc;

use serde_json::json;
use windlass_core::BoxFuture;
use windlass_core::ask::Answer;
use windlass_core::event::{Event, EventKind};
use windlass_core::gate::Mode;
use windlass_core::history::unpaired;
use windlass_core::id::SessionId;
use windlass_core::message::{Message, Origin};
use windlass_core::outcome::Outcome;
use windlass_core::runtime::RunMode;
use windlass_core::terms::{Isolation, Strategy, Terms};
use windlass_core::workspace::{
    KeyFinding, Opening, REDACTED, Redactor, Transaction, WorkspaceError, Workspaces,
};
use windlass_engine::{Delivery, Engine, OnAsk, OpenSession, Session};
use windlass_testing::{MemoryWorkspaces, says};

use crate::fixture::{CallTrace, EngineFixture, RunEvents, calls, standard_tools};

type Answers =
    Vec<Vec<Result<windlass_core::provider::Chunk, windlass_core::provider::ProviderError>>>;

/// A fixture in which every write pauses the run on an ask, with a trace of the executed calls.
fn pausing(answers: Answers) -> (EngineFixture, CallTrace) {
    let trace = CallTrace::default();
    let mut fixture = EngineFixture::new(answers);
    fixture.tools = standard_tools(&trace);
    fixture.gate.mode = Mode::Ask;
    fixture.options.yes = false;
    fixture.options.on_ask = OnAsk::Pause;
    (fixture, trace)
}

async fn reopen(engine: &Engine, id: &SessionId) -> Session {
    engine
        .open(OpenSession::Resume(id.clone()), RunMode::Full)
        .await
        .unwrap()
}

async fn answer(fixture: &EngineFixture, id: &SessionId, answer: Answer) -> RunEvents {
    let session = reopen(&fixture.engine(), id).await;
    let ask = session.pending().remove(0);
    fixture
        .watch(
            session
                .answer(&ask.id, answer, fixture.options.clone())
                .unwrap(),
        )
        .await
}

/// Starts a run that pauses on the approval of its first write. Returns its session.
async fn waiting(fixture: &EngineFixture) -> SessionId {
    let session = fixture.open().await;
    fixture.run_in(&session).await;
    assert_eq!(session.pending().len(), 1);
    session.id().clone()
}

#[tokio::test]
async fn a_denied_call_stays_denied_after_the_rules_are_loosened() {
    let loosen: [fn(&mut EngineFixture); 2] = [
        |fixture| fixture.options.yes = true,
        |fixture| fixture.gate.mode = Mode::Auto,
    ];
    for loosen in loosen {
        let (mut fixture, trace) = pausing(vec![
            calls(&[("1", "write", json!({"path": "b"}))]),
            says("done"),
        ]);
        let id = waiting(&fixture).await;
        loosen(&mut fixture);
        let ran = answer(
            &fixture,
            &id,
            Answer::No {
                note: Some("not that file".into()),
            },
        )
        .await;
        assert!(trace.lock().is_empty(), "{:?}", trace.lock());
        assert!(
            ran.results()[0].0.contains("not that file"),
            "{:?}",
            ran.results()
        );
    }
}

/// Records the requested isolation of each workspace.
struct RecordsIsolation(MemoryWorkspaces, Arc<Mutex<Vec<Isolation>>>);

impl Workspaces for RecordsIsolation {
    fn open<'a>(
        &'a self,
        opening: Opening<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, WorkspaceError>> {
        self.1.lock().push(opening.isolation);
        self.0.open(opening)
    }
}

#[tokio::test]
async fn a_resumed_run_keeps_its_isolation() {
    for (strategy, other) in [
        (Strategy::Copy, Isolation::InPlace),
        (Strategy::InPlace, Isolation::Isolated),
    ] {
        let (mut fixture, _) = pausing(vec![
            calls(&[("1", "write", json!({"path": "b"}))]),
            says("done"),
        ]);
        fixture.workspaces.terms = Terms::unconfined(strategy);
        let began = strategy.isolation();
        fixture.options.isolation = began;
        let opened = Arc::new(Mutex::new(Vec::new()));
        let workspaces = Arc::new(RecordsIsolation(fixture.workspaces.clone(), opened.clone()));
        let engine = fixture.builder().workspaces(workspaces).build().unwrap();
        let session = engine.open(OpenSession::New, RunMode::Full).await.unwrap();
        fixture.run_in(&session).await;
        fixture.options.isolation = other;
        let ask = session.pending().remove(0);
        fixture
            .watch(
                session
                    .answer(&ask.id, Answer::Once, fixture.options.clone())
                    .unwrap(),
            )
            .await;
        assert_eq!(*opened.lock(), [began, began]);
    }
}

#[tokio::test]
async fn after_a_resume_commands_after_a_failed_one_do_not_run() {
    let step = calls(&[
        ("1", "bash", json!({"command": "false"})),
        ("2", "write", json!({"path": "b"})),
        ("3", "bash", json!({"command": "deploy"})),
    ]);
    let (mut fixture, trace) = pausing(vec![step, says("done")]);
    let allow = |text: &str| {
        windlass_core::gate::Rule::parse(
            text,
            windlass_core::gate::Verdict::Allow,
            windlass_core::gate::Level::User,
        )
    };
    fixture.gate.rules.extend([
        allow("bash(false)").unwrap(),
        allow("bash(deploy)").unwrap(),
    ]);
    let id = waiting(&fixture).await;
    answer(&fixture, &id, Answer::Once).await;
    assert_eq!(*trace.lock(), ["+bash false", "+write b", "-write b"]);
}

#[tokio::test]
async fn an_approved_call_runs_after_a_reboot() {
    let step = calls(&[
        ("1", "bash", json!({"command": "make"})),
        ("2", "write", json!({"path": "b"})),
    ]);
    let (mut fixture, trace) = pausing(vec![step, says("done")]);
    fixture.gate.rules.push(
        windlass_core::gate::Rule::parse(
            "bash(make)",
            windlass_core::gate::Verdict::Allow,
            windlass_core::gate::Level::User,
        )
        .unwrap(),
    );
    let id = waiting(&fixture).await;
    fixture.store.cut_power();
    let ran = answer(&fixture, &id, Answer::Once).await;
    assert_eq!(
        *trace.lock(),
        ["+bash make", "+write b", "-write b"],
        "{:?}",
        ran.results()
    );
}

/// A redactor of one word.
struct HidesWord(&'static str);

impl Redactor for HidesWord {
    fn redact<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        match text.contains(self.0) {
            true => text.replace(self.0, &format!("{REDACTED}: secret]")).into(),
            false => text.into(),
        }
    }
    fn scan(&self, _text: &str) -> Vec<KeyFinding> {
        Vec::new()
    }
}

#[tokio::test]
async fn a_queued_prompt_with_a_secret_that_became_known_runs_once() {
    let fixture = EngineFixture::new(vec![says("one"), says("two"), says("three"), says("four")]);
    let session = fixture.open().await;
    let id = session.id().clone();
    session
        .queue(Message::user("use swordfish here"), Delivery::FollowUp)
        .await
        .unwrap();
    drop(session);
    let engine = fixture
        .builder()
        .redactor(Arc::new(HidesWord("swordfish")))
        .build()
        .unwrap();
    let session = reopen(&engine, &id).await;
    let handle = session
        .run_queued(fixture.options.clone())
        .unwrap()
        .unwrap();
    fixture.watch(handle).await;
    assert!(
        session
            .run_queued(fixture.options.clone())
            .unwrap()
            .is_none()
    );
    drop(session);
    // An engine that does not know the secret does not run the prompt again either.
    let session = reopen(&fixture.engine(), &id).await;
    assert!(
        session
            .run_queued(fixture.options.clone())
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn a_steering_message_of_any_origin_is_delivered_once() {
    for prompt in [
        Message::internal("left"),
        Message::assistant("left"),
        Message::user("left"),
    ] {
        let fixture = EngineFixture::new(vec![says("ok"), says("done"), says("and the other")]);
        let session = fixture.open().await;
        session
            .queue(Message::user("left"), Delivery::FollowUp)
            .await
            .unwrap();
        session.queue(prompt, Delivery::Steer).await.unwrap();
        let ran = fixture.run_in(&session).await;
        assert_eq!(*ran.outcome(), Outcome::Completed);
        let said = |event: &Event| matches!(&event.kind, EventKind::Said { message, .. } if message.origin == Origin::Person && message.text() == "left");
        assert_eq!(ran.events.iter().filter(|event| said(event)).count(), 1);
        let waits = session.with_history(|history| {
            history
                .queue()
                .all()
                .iter()
                .map(|one| one.steer)
                .collect::<Vec<_>>()
        });
        assert_eq!(waits, [false], "the follow-up is still queued");
    }
}

/// A step with reads, a write, a command and a question.
fn schedule() -> Answers {
    let step = calls(&[
        ("1", "look", json!({"path": "a"})),
        ("2", "look", json!({"path": "b"})),
        ("3", "write", json!({"path": "c"})),
        ("4", "bash", json!({"command": "make"})),
        ("5", "ask", json!({"text": "red or blue?"})),
        ("6", "look", json!({"path": "d"})),
    ]);
    let mut answers = vec![step, says("done")];
    answers.extend((0..4).map(|n| says(&format!("more {n}"))));
    answers
}

/// Checks that no call starts twice, no ask is repeated, and every run has one start and one end.
#[track_caller]
fn check_log(lines: &[String], what: &str) {
    let events: Vec<Event> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut begun = std::collections::HashSet::new();
    let mut runs = std::collections::HashMap::<String, (u32, u32)>::new();
    let mut asks = std::collections::HashSet::new();
    for event in &events {
        let run = event
            .run
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        match &event.kind {
            EventKind::CallStarted { call, .. } => {
                assert!(begun.insert(call.id.clone()), "{what}: {} twice", call.id.0)
            }
            EventKind::RunStarted { .. } => runs.entry(run).or_default().0 += 1,
            EventKind::RunFinished(_) => runs.entry(run).or_default().1 += 1,
            EventKind::Asked { ask } => {
                assert!(asks.insert(ask.id.clone()), "{what}: {} twice", ask.id)
            }
            _ => {}
        }
    }
    for (run, (starts, ends)) in runs {
        assert_eq!((starts, ends), (1, 1), "{what}: run {run}");
    }
}

#[tokio::test]
async fn no_call_runs_twice_if_the_process_dies_at_any_event() {
    let (fixture, _) = pausing(schedule());
    let id = waiting(&fixture).await;
    answer(&fixture, &id, Answer::Once).await;
    answer(&fixture, &id, Answer::Once).await;
    let ran = answer(
        &fixture,
        &id,
        Answer::Text {
            text: "blue".into(),
        },
    )
    .await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    let whole = fixture.store.lines(&id);
    check_log(&whole, "whole");
    for power_cut in [false, true] {
        for at in 1..=whole.len() {
            for fork in [false, true] {
                let what = format!(
                    "cut after {at} of {}, fork {fork}, power cut {power_cut}",
                    whole.len()
                );
                let (fixture, trace) =
                    pausing((0..6).map(|n| says(&format!("more {n}"))).collect());
                fixture.store.put(&id, whole[..at].to_vec());
                if power_cut {
                    fixture.store.cut_power();
                }
                let mut of = id.clone();
                if fork {
                    of = fixture
                        .engine()
                        .fork(&id, Some(at as u64), RunMode::Full)
                        .await
                        .unwrap()
                        .id()
                        .clone();
                }
                let mut answers = 0;
                loop {
                    let session = reopen(&fixture.engine(), &of).await;
                    let Some(ask) = session.pending().into_iter().next() else {
                        break;
                    };
                    let answer = match ask.about {
                        windlass_core::ask::About::Question(_) => Answer::Text {
                            text: "blue".into(),
                        },
                        _ => Answer::Once,
                    };
                    fixture
                        .watch(
                            session
                                .answer(&ask.id, answer, fixture.options.clone())
                                .unwrap(),
                        )
                        .await;
                    answers += 1;
                    assert!(answers < 4, "{what}: endless asks");
                }
                let session = reopen(&fixture.engine(), &of).await;
                let ran = fixture.run_in(&session).await;
                assert_eq!(*ran.outcome(), Outcome::Completed, "{what}");
                assert_eq!(
                    session.with_history(|history| unpaired(&history.entries())),
                    None,
                    "{what}"
                );
                check_log(&fixture.store.lines(&of), &what);
                let ran: Vec<String> = trace.lock().clone();
                for effect in ["+write c", "+bash make"] {
                    let name = if effect.contains("write") {
                        "write"
                    } else {
                        "bash"
                    };
                    let before = whole[..at].iter().any(|line| {
                        line.contains("\"kind\":\"call_started\"")
                            && line.contains(&format!("\"name\":\"{name}\""))
                    });
                    let now = ran.iter().filter(|line| *line == effect).count();
                    assert!(
                        now <= usize::from(!before),
                        "{what}: {effect} ran again: {ran:?}"
                    );
                }
            }
        }
    }
}

/// A write that asks a question in the middle of its effect.
fn asking_write() -> Arc<dyn windlass_core::tool::Tool> {
    let effect = windlass_core::tool::Effect::Write;
    windlass_testing::FnTool::new("asking_write", effect, |_, ctx| {
        Box::pin(async move {
            let question = windlass_core::ask::Question {
                text: "go on?".into(),
                options: vec![],
            };
            Ok(windlass_core::tool::ToolOutput::text(format!(
                "{:?}",
                ctx.call_output.ask(question).await
            )))
        })
    })
    .boxed()
}

/// A runtime that reuses the id of its first call, as a foreign agent may.
struct ReusesCallId;

impl windlass_core::runtime::Runtime for ReusesCallId {
    fn name(&self) -> &str {
        "same id"
    }
    fn model(&self) -> Option<&str> {
        None
    }
    fn capabilities(&self) -> windlass_core::runtime::Capabilities {
        windlass_core::runtime::Capabilities::of(
            windlass_engine::NativeRuntime::CAPABILITIES.iter().copied(),
        )
    }
    fn run<'a>(
        &'a self,
        job: windlass_core::runtime::Job<'a>,
    ) -> BoxFuture<'a, Result<windlass_core::runtime::Stop, windlass_core::runtime::RuntimeError>>
    {
        Box::pin(async move {
            let began = job
                .sink
                .history()
                .iter()
                .flat_map(|entry| entry.calls())
                .count();
            for name in ["asking_write", "write"].into_iter().skip(began) {
                let args = if name == "write" {
                    json!({"path": "b"})
                } else {
                    json!({})
                };
                let call = windlass_core::message::ToolCall {
                    id: "1".into(),
                    name: name.into(),
                    args,
                    malformed: None,
                };
                let mut message = Message::assistant("");
                message.parts = vec![windlass_core::message::Part::Call(call.clone())];
                job.sink.emit(EventKind::said(message)).await?;
                job.toolbox
                    .call(vec![windlass_core::turn::Planned { call, refuse: None }])
                    .await?;
            }
            Ok(windlass_core::runtime::Stop::Done)
        })
    }
}

#[tokio::test]
async fn a_call_with_a_reused_id_is_judged_and_logged() {
    let (mut fixture, trace) = pausing(vec![]);
    fixture.tools.push(asking_write());
    let allow = windlass_core::gate::Verdict::Allow;
    let rule =
        windlass_core::gate::Rule::parse("asking_write", allow, windlass_core::gate::Level::User)
            .unwrap();
    fixture.gate.rules.push(rule);
    let engine = fixture
        .builder()
        .runtime(Arc::new(ReusesCallId))
        .build()
        .unwrap();
    let session = engine.open(OpenSession::New, RunMode::Full).await.unwrap();
    fixture.run_in(&session).await;
    let ask = session.pending().remove(0);
    fixture
        .watch(
            session
                .answer(
                    &ask.id,
                    Answer::Text { text: "yes".into() },
                    fixture.options.clone(),
                )
                .unwrap(),
        )
        .await;
    assert!(
        trace.lock().is_empty(),
        "no person approved this: {:?}",
        trace.lock()
    );
    assert_eq!(session.pending().len(), 1, "it is asked about");
}

/// A write whose effect is not visible in the files.
struct WriteWithoutEffect(windlass_core::tool::ToolSpec);

impl windlass_core::tool::Tool for WriteWithoutEffect {
    fn spec(&self) -> &windlass_core::tool::ToolSpec {
        &self.0
    }
    fn touches(
        &self,
        _args: &serde_json::Value,
        _ctx: &windlass_core::tool::ToolCtx<'_>,
    ) -> Result<Vec<windlass_core::tool::Touch>, windlass_core::tool::ToolFailure> {
        Ok(vec![])
    }
    fn happened(
        &self,
        _args: &serde_json::Value,
        _ctx: &windlass_core::tool::ToolCtx<'_>,
    ) -> Option<windlass_core::tool::Happened> {
        Some(windlass_core::tool::Happened::No(
            "it is still there".into(),
        ))
    }
    fn run<'a>(
        &'a self,
        _args: serde_json::Value,
        _ctx: windlass_core::tool::ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<windlass_core::tool::ToolOutput, windlass_core::tool::ToolFailure>>
    {
        Box::pin(async { Ok(windlass_core::tool::ToolOutput::text("done")) })
    }
}

#[tokio::test]
async fn a_call_is_not_reported_as_not_done_if_a_later_one_may_have_undone_it() {
    for (power_cut, certain) in [(false, true), (true, false)] {
        let step = calls(&[
            ("1", "remove", json!({})),
            ("2", "write", json!({"path": "a"})),
        ]);
        let mut fixture = EngineFixture::new(vec![step, says("done"), says("I will look")]);
        fixture.options.isolation = Isolation::InPlace;
        let effect = windlass_core::tool::Effect::Write;
        let spec = windlass_core::tool::ToolSpec::new(
            "remove",
            "removes",
            json!({ "type": "object" }),
            effect,
        );
        fixture.tools.push(Arc::new(WriteWithoutEffect(spec)));
        let session = fixture.open().await;
        let id = session.id().clone();
        fixture.run_in(&session).await;
        drop(session);
        let mut lines = fixture.store.lines(&id);
        let begun = lines
            .iter()
            .position(|line| line.contains("\"kind\":\"call_started\""))
            .unwrap();
        lines.truncate(begun + 1);
        fixture.store.put(&id, lines);
        if power_cut {
            fixture.store.cut_power();
        }
        let session = reopen(&fixture.engine(), &id).await;
        fixture.run_in(&session).await;
        let asked = format!("{:?}", fixture.provider.asked().last().unwrap());
        assert_eq!(
            asked.contains("before it was done: it is still there"),
            certain,
            "{asked}"
        );
    }
}
