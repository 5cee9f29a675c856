//! What somebody tried against asks, queues and runs that were left open: each of these once went through.

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
use windlass_engine::{Delivery, Engine, OnAsk, Open, Session};
use windlass_testing::{MemoryWorkspaces, says};

use crate::lab::{Diary, Lab, Ran, calls, standard_tools};

type Answers =
    Vec<Vec<Result<windlass_core::provider::Chunk, windlass_core::provider::ProviderError>>>;

/// A lab where every write asks and nobody is there, with a diary of what really ran.
fn pausing(answers: Answers) -> (Lab, Diary) {
    let diary = Diary::default();
    let mut lab = Lab::new(answers);
    lab.tools = standard_tools(&diary);
    lab.gate.mode = Mode::Ask;
    lab.options.yes = false;
    lab.options.on_ask = OnAsk::Pause;
    (lab, diary)
}

async fn reopen(engine: &Engine, id: &SessionId) -> Session {
    engine
        .open(Open::Resume(id.clone()), RunMode::Full)
        .await
        .unwrap()
}

async fn answer(lab: &Lab, id: &SessionId, answer: Answer) -> Ran {
    let session = reopen(&lab.engine(), id).await;
    let ask = session.pending().remove(0);
    lab.watch(
        session
            .answer(&ask.id, answer, lab.options.clone())
            .unwrap(),
    )
    .await
}

/// A run that waits for the approval of its first write; gives its session.
async fn waiting(lab: &Lab) -> SessionId {
    let session = lab.open().await;
    lab.run_in(&session).await;
    assert_eq!(session.pending().len(), 1);
    session.id().clone()
}

#[tokio::test]
async fn a_no_holds_whatever_would_let_the_call_run_by_now() {
    let loosen: [fn(&mut Lab); 2] = [
        |lab| lab.options.yes = true,
        |lab| lab.gate.mode = Mode::Auto,
    ];
    for loosen in loosen {
        let (mut lab, diary) = pausing(vec![
            calls(&[("1", "write", json!({"path": "b"}))]),
            says("done"),
        ]);
        let id = waiting(&lab).await;
        loosen(&mut lab);
        let ran = answer(
            &lab,
            &id,
            Answer::No {
                note: Some("not that file".into()),
            },
        )
        .await;
        assert!(diary.lock().is_empty(), "{:?}", diary.lock());
        assert!(
            ran.results()[0].0.contains("not that file"),
            "{:?}",
            ran.results()
        );
    }
}

/// Notes how each workspace was asked for.
struct Noting(MemoryWorkspaces, Arc<Mutex<Vec<Isolation>>>);

impl Workspaces for Noting {
    fn open<'a>(
        &'a self,
        opening: Opening<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, WorkspaceError>> {
        self.1.lock().push(opening.isolation);
        self.0.open(opening)
    }
}

#[tokio::test]
async fn a_run_goes_on_where_it_worked_whatever_the_answer_comes_with() {
    for (strategy, other) in [
        (Strategy::Copy, Isolation::InPlace),
        (Strategy::InPlace, Isolation::Isolated),
    ] {
        let (mut lab, _) = pausing(vec![
            calls(&[("1", "write", json!({"path": "b"}))]),
            says("done"),
        ]);
        lab.workspaces.terms = Terms::unconfined(strategy);
        let began = strategy.isolation();
        lab.options.isolation = began;
        let opened = Arc::new(Mutex::new(Vec::new()));
        let workspaces = Arc::new(Noting(lab.workspaces.clone(), opened.clone()));
        let engine = lab.builder().workspaces(workspaces).build().unwrap();
        let session = engine.open(Open::New, RunMode::Full).await.unwrap();
        lab.run_in(&session).await;
        lab.options.isolation = other;
        let ask = session.pending().remove(0);
        lab.watch(
            session
                .answer(&ask.id, Answer::Once, lab.options.clone())
                .unwrap(),
        )
        .await;
        assert_eq!(*opened.lock(), [began, began]);
    }
}

#[tokio::test]
async fn a_command_behind_a_failed_one_does_not_run_after_the_answer_either() {
    let step = calls(&[
        ("1", "bash", json!({"command": "false"})),
        ("2", "write", json!({"path": "b"})),
        ("3", "bash", json!({"command": "deploy"})),
    ]);
    let (mut lab, diary) = pausing(vec![step, says("done")]);
    let allow = |text: &str| {
        windlass_core::gate::Rule::parse(
            text,
            windlass_core::gate::Verdict::Allow,
            windlass_core::gate::Level::User,
        )
    };
    lab.gate.rules.extend([
        allow("bash(false)").unwrap(),
        allow("bash(deploy)").unwrap(),
    ]);
    let id = waiting(&lab).await;
    answer(&lab, &id, Answer::Once).await;
    assert_eq!(*diary.lock(), ["+bash false", "+write b", "-write b"]);
}

#[tokio::test]
async fn what_was_approved_runs_also_when_the_machine_was_started_anew_meanwhile() {
    let step = calls(&[
        ("1", "bash", json!({"command": "make"})),
        ("2", "write", json!({"path": "b"})),
    ]);
    let (mut lab, diary) = pausing(vec![step, says("done")]);
    lab.gate.rules.push(
        windlass_core::gate::Rule::parse(
            "bash(make)",
            windlass_core::gate::Verdict::Allow,
            windlass_core::gate::Level::User,
        )
        .unwrap(),
    );
    let id = waiting(&lab).await;
    lab.store.cut_power();
    let ran = answer(&lab, &id, Answer::Once).await;
    assert_eq!(
        *diary.lock(),
        ["+bash make", "+write b", "-write b"],
        "{:?}",
        ran.results()
    );
}

/// Takes one word out of text.
struct Hides(&'static str);

impl Redactor for Hides {
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
async fn a_prompt_that_waits_is_done_once_although_it_holds_what_is_a_secret_by_now() {
    let lab = Lab::new(vec![says("one"), says("two"), says("three"), says("four")]);
    let session = lab.open().await;
    let id = session.id().clone();
    session
        .queue(Message::user("use swordfish here"), Delivery::FollowUp)
        .await
        .unwrap();
    drop(session);
    let engine = lab
        .builder()
        .redactor(Arc::new(Hides("swordfish")))
        .build()
        .unwrap();
    let session = reopen(&engine, &id).await;
    let handle = session.run_queued(lab.options.clone()).unwrap().unwrap();
    lab.watch(handle).await;
    assert!(session.run_queued(lab.options.clone()).unwrap().is_none());
    drop(session);
    // Nor does whoever does not know the secret do it again.
    let session = reopen(&lab.engine(), &id).await;
    assert!(session.run_queued(lab.options.clone()).unwrap().is_none());
}

#[tokio::test]
async fn what_is_said_to_a_run_is_said_once_whoever_made_the_message() {
    for prompt in [
        Message::internal("left"),
        Message::assistant("left"),
        Message::user("left"),
    ] {
        let lab = Lab::new(vec![says("ok"), says("done"), says("and the other")]);
        let session = lab.open().await;
        session
            .queue(Message::user("left"), Delivery::FollowUp)
            .await
            .unwrap();
        session.queue(prompt, Delivery::Steer).await.unwrap();
        let ran = lab.run_in(&session).await;
        assert_eq!(*ran.outcome(), Outcome::Completed);
        let said = |event: &Event| matches!(&event.kind, EventKind::Said { message, .. } if message.origin == Origin::Person && message.text() == "left");
        assert_eq!(ran.events.iter().filter(|event| said(event)).count(), 1);
        let waits = session.look(|history| {
            history
                .queue()
                .all()
                .iter()
                .map(|one| one.steer)
                .collect::<Vec<_>>()
        });
        assert_eq!(waits, [false], "what was to be done after the run still is");
    }
}

/// The step of the specification, with a read that only looks at each side.
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

/// What must hold of every log, however its processes ended.
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
async fn a_process_that_ends_anywhere_between_asks_leaves_nothing_that_runs_twice() {
    let (lab, _) = pausing(schedule());
    let id = waiting(&lab).await;
    answer(&lab, &id, Answer::Once).await;
    answer(&lab, &id, Answer::Once).await;
    let ran = answer(
        &lab,
        &id,
        Answer::Text {
            text: "blue".into(),
        },
    )
    .await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    let whole = lab.store.lines(&id);
    check_log(&whole, "whole");
    for power_cut in [false, true] {
        for at in 1..=whole.len() {
            for fork in [false, true] {
                let what = format!(
                    "cut after {at} of {}, fork {fork}, power cut {power_cut}",
                    whole.len()
                );
                let (lab, diary) = pausing((0..6).map(|n| says(&format!("more {n}"))).collect());
                lab.store.put(&id, whole[..at].to_vec());
                if power_cut {
                    lab.store.cut_power();
                }
                let mut of = id.clone();
                if fork {
                    of = lab
                        .engine()
                        .fork(&id, Some(at as u64), RunMode::Full)
                        .await
                        .unwrap()
                        .id()
                        .clone();
                }
                let mut answers = 0;
                loop {
                    let session = reopen(&lab.engine(), &of).await;
                    let Some(ask) = session.pending().into_iter().next() else {
                        break;
                    };
                    let said = match ask.about {
                        windlass_core::ask::About::Question(_) => Answer::Text {
                            text: "blue".into(),
                        },
                        _ => Answer::Once,
                    };
                    lab.watch(session.answer(&ask.id, said, lab.options.clone()).unwrap())
                        .await;
                    answers += 1;
                    assert!(answers < 4, "{what}: asked for ever");
                }
                let session = reopen(&lab.engine(), &of).await;
                let ran = lab.run_in(&session).await;
                assert_eq!(*ran.outcome(), Outcome::Completed, "{what}");
                assert_eq!(
                    session.look(|history| unpaired(&history.entries())),
                    None,
                    "{what}"
                );
                check_log(&lab.store.lines(&of), &what);
                let ran: Vec<String> = diary.lock().clone();
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

/// A write that asks in the middle of what it does.
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
                ctx.voice.ask(question).await
            )))
        })
    })
    .boxed()
}

/// A runtime that makes one call after another, each under the same id, as a foreign agent may.
struct SameId;

impl windlass_core::runtime::Runtime for SameId {
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
                .outlet
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
                job.outlet.emit(EventKind::said(message)).await?;
                job.toolbox
                    .call(vec![windlass_core::turn::Planned { call, refuse: None }])
                    .await?;
            }
            Ok(windlass_core::runtime::Stop::Done)
        })
    }
}

#[tokio::test]
async fn a_call_under_an_id_that_was_used_before_is_judged_and_logged_like_any_other() {
    let (mut lab, diary) = pausing(vec![]);
    lab.tools.push(asking_write());
    let allow = windlass_core::gate::Verdict::Allow;
    let rule =
        windlass_core::gate::Rule::parse("asking_write", allow, windlass_core::gate::Level::User)
            .unwrap();
    lab.gate.rules.push(rule);
    let engine = lab.builder().runtime(Arc::new(SameId)).build().unwrap();
    let session = engine.open(Open::New, RunMode::Full).await.unwrap();
    lab.run_in(&session).await;
    let ask = session.pending().remove(0);
    lab.watch(
        session
            .answer(
                &ask.id,
                Answer::Text { text: "yes".into() },
                lab.options.clone(),
            )
            .unwrap(),
    )
    .await;
    assert!(
        diary.lock().is_empty(),
        "nobody approved this: {:?}",
        diary.lock()
    );
    assert_eq!(session.pending().len(), 1, "it is asked about");
}

/// A write whose effect, by what is there, did not happen.
struct Undone(windlass_core::tool::ToolSpec);

impl windlass_core::tool::Tool for Undone {
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
async fn a_call_is_not_said_to_be_undone_where_a_later_one_may_have_undone_it() {
    for (power_cut, certain) in [(false, true), (true, false)] {
        let step = calls(&[
            ("1", "remove", json!({})),
            ("2", "write", json!({"path": "a"})),
        ]);
        let mut lab = Lab::new(vec![step, says("done"), says("I will look")]);
        lab.options.isolation = Isolation::InPlace;
        let effect = windlass_core::tool::Effect::Write;
        let spec = windlass_core::tool::ToolSpec::new(
            "remove",
            "removes",
            json!({ "type": "object" }),
            effect,
        );
        lab.tools.push(Arc::new(Undone(spec)));
        let session = lab.open().await;
        let id = session.id().clone();
        lab.run_in(&session).await;
        drop(session);
        let mut lines = lab.store.lines(&id);
        let begun = lines
            .iter()
            .position(|line| line.contains("\"kind\":\"call_started\""))
            .unwrap();
        lines.truncate(begun + 1);
        lab.store.put(&id, lines);
        if power_cut {
            lab.store.cut_power();
        }
        let session = reopen(&lab.engine(), &id).await;
        lab.run_in(&session).await;
        let asked = format!("{:?}", lab.provider.asked().last().unwrap());
        assert_eq!(
            asked.contains("before it was done: it is still there"),
            certain,
            "{asked}"
        );
    }
}
