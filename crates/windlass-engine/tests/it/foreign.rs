//! Calls of foreign agents: they are judged like built-in calls, approved, logged and answered once. Also: concurrent
//! reservations of budget.

use parking_lot::Mutex;
use std::sync::Arc;

use serde_json::{Value, json};
use windlass_core::BoxFuture;
use windlass_core::ask::Answer;
use windlass_core::budget::{Budget, Limit, Usage};
use windlass_core::event::EventKind;
use windlass_core::gate::{Level, Mode, Rule, Verdict};
use windlass_core::message::{ErrorCategory, Message, Part, Role, ToolCall, ToolResult};
use windlass_core::outcome::Outcome;
use windlass_core::runtime::{Capabilities, Capability, Job, RunMode, Runtime, RuntimeError, Stop};
use windlass_core::terms::SandboxTier;
use windlass_core::tool::{Admitted, Effect, ForeignCall, Like};
use windlass_engine::{OnAsk, OpenSession};

use crate::fixture::{EngineFixture, RunEvents};

/// A foreign agent that asks before its calls and obeys the answers. The ids of its calls are new in every process.
struct AskingAgent {
    calls: Vec<ForeignCall>,
    told: Arc<Mutex<Vec<Admitted>>>,
}

impl Runtime for AskingAgent {
    fn name(&self) -> &str {
        "guest"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(Capability::ALL)
    }

    fn begins_itself(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>> {
        Box::pin(async move {
            if job.pending.is_empty() {
                let foreign_session = Some("guest:s1".to_owned());
                job.sink
                    .emit(EventKind::IterationStarted {
                        iteration: job.iteration,
                        foreign_session,
                    })
                    .await?;
            }
            for call in &job.pending {
                job.toolbox
                    .reported(
                        ToolResult::failed(call, ErrorCategory::Interrupted, "again"),
                        Vec::new(),
                    )
                    .await?;
            }
            let again = if job.pending.is_empty() { "" } else { "again-" };
            for known in &self.calls {
                let mut foreign = known.clone();
                foreign.call.id = format!("{again}{}", foreign.call.id.0).as_str().into();
                let parts = vec![Part::Call(foreign.call.clone())];
                let message = Message {
                    role: Role::Assistant,
                    parts,
                    ..Message::assistant("")
                };
                job.sink.emit(EventKind::said(message)).await?;
                let call = foreign.call.clone();
                let admitted = job.toolbox.admit(foreign).await?;
                self.told.lock().push(admitted.clone());
                if matches!(admitted, Admitted::Yes { .. }) {
                    let (id, name) = (call.id.clone(), call.name.clone());
                    let result = ToolResult {
                        id,
                        name,
                        text: "did it".into(),
                        error: None,
                        artifact: None,
                    };
                    job.toolbox.reported(result.clone(), Vec::new()).await?;
                }
            }
            Ok(Stop::Done)
        })
    }
}

fn foreign(name: &str, args: Value, like: &[(&str, Value)], effect: Effect) -> ForeignCall {
    let call = ToolCall {
        id: "f1".into(),
        name: name.into(),
        args,
        malformed: None,
    };
    let like = like
        .iter()
        .map(|(tool, args)| Like {
            tool: (*tool).to_owned(),
            args: args.clone(),
        })
        .collect();
    ForeignCall { call, like, effect }
}

fn shell(command: &str) -> ForeignCall {
    foreign(
        "Bash",
        json!({ "command": command }),
        &[("bash", json!({ "command": command }))],
        Effect::Execute,
    )
}

fn edit(path: &str) -> ForeignCall {
    foreign(
        "Edit",
        json!({ "file_path": path }),
        &[("write", json!({ "path": path }))],
        Effect::Write,
    )
}

async fn run(fixture: &EngineFixture, calls: Vec<ForeignCall>) -> (RunEvents, Vec<Admitted>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let guest = AskingAgent {
        calls,
        told: told.clone(),
    };
    let engine = fixture.builder().runtime(Arc::new(guest)).build().unwrap();
    let session = engine.open(OpenSession::New, RunMode::Full).await.unwrap();
    let ran = fixture.run_in(&session).await;
    let told = told.lock().clone();
    (ran, told)
}

#[track_caller]
fn refused(told: &Admitted, words: &str) {
    assert!(
        matches!(told, Admitted::No { text, .. } if text.contains(words)),
        "{told:?}"
    );
}

fn fixture(mode: Mode) -> EngineFixture {
    let mut fixture = EngineFixture::new(vec![]);
    fixture.gate.mode = mode;
    fixture.workspaces.terms.tier = SandboxTier::Namespaces;
    fixture.options.yes = false;
    fixture
}

#[tokio::test]
async fn a_foreign_call_is_judged_like_the_built_in_call_with_the_same_effect() {
    let (ran, told) = run(&fixture(Mode::Edit), vec![edit("a")]).await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert!(matches!(told[0], Admitted::Yes { .. }), "{told:?}");
    let kinds = ran.kinds();
    for kind in [
        "iteration_started",
        "said",
        "call_started",
        "call_finished",
        "iteration_finished",
    ] {
        assert_eq!(
            kinds.iter().filter(|known| *known == kind).count(),
            1,
            "{kind} in {kinds:?}"
        );
    }
    // The floor also applies to foreign calls.
    let (ran, told) = run(
        &fixture(Mode::Auto),
        vec![edit("/etc/passwd"), edit(".env")],
    )
    .await;
    refused(&told[0], "outside");
    refused(&told[1], "");
    assert_eq!((ran.count("call_started"), ran.count("denied")), (0, 2));
    assert_eq!(
        ran.count("call_finished"),
        2,
        "what was refused has its result"
    );
}

#[tokio::test]
async fn rules_for_built_in_tools_apply_to_foreign_calls() {
    let mut fixture = fixture(Mode::Auto);
    fixture
        .gate
        .rules
        .push(Rule::parse("bash(rm *)", Verdict::Deny, Level::User).unwrap());
    let (ran, told) = run(&fixture, vec![shell("rm x"), shell("ls")]).await;
    refused(&told[0], "bash(rm *)");
    assert!(matches!(told[1], Admitted::Yes { .. }), "{told:?}");
    assert_eq!(ran.results()[0].1, Some(ErrorCategory::Blocked));
    let other = foreign(
        "Commit",
        json!({}),
        &[("git_commit", json!({}))],
        Effect::Execute,
    );
    let (_, told) = run(&fixture, vec![other]).await;
    refused(&told[0], "`git_commit` is disabled");
}

#[tokio::test]
async fn the_strictest_of_several_verdicts_applies() {
    let both = [
        ("write", json!({ "path": "a" })),
        ("write", json!({ "path": "/etc/hosts" })),
    ];
    let (_, told) = run(
        &fixture(Mode::Auto),
        vec![foreign("Patch", json!({}), &both, Effect::Write)],
    )
    .await;
    refused(&told[0], "outside");
}

#[tokio::test]
async fn a_foreign_call_obeys_the_answer_of_a_person() {
    for (answer, yes) in [
        (Answer::Once, true),
        (
            Answer::No {
                note: Some("not now".into()),
            },
            false,
        ),
    ] {
        let mut fixture = fixture(Mode::Ask);
        fixture.person = vec![answer];
        let (ran, told) = run(&fixture, vec![shell("make")]).await;
        assert_eq!(matches!(told[0], Admitted::Yes { .. }), yes, "{told:?}");
        assert_eq!(ran.count("asked"), 1);
    }
}

#[tokio::test]
async fn a_late_answer_applies_once_to_the_repeated_call() {
    let mut fixture = fixture(Mode::Ask);
    fixture.options.on_ask = OnAsk::Pause;
    let told = Arc::new(Mutex::new(Vec::new()));
    let guest = || {
        Arc::new(AskingAgent {
            calls: vec![shell("make")],
            told: told.clone(),
        })
    };
    let session = {
        let engine = fixture.builder().runtime(guest()).build().unwrap();
        let session = engine.open(OpenSession::New, RunMode::Full).await.unwrap();
        let ran = fixture.run_in(&session).await;
        assert_eq!(
            ran.count("run_finished"),
            0,
            "it stays open: {:?}",
            ran.kinds()
        );
        session.id().clone()
    };
    let engine = fixture.builder().runtime(guest()).build().unwrap();
    let session = engine
        .open(OpenSession::Resume(session), RunMode::Full)
        .await
        .unwrap();
    let ask = session.pending().remove(0);
    let handle = session
        .answer(&ask.id, Answer::Once, fixture.options.clone())
        .unwrap();
    let ran = fixture.watch(handle).await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(ran.count("asked"), 0, "the person is not asked again");
    assert!(
        matches!(told.lock().last(), Some(Admitted::Yes { .. })),
        "{told:?}"
    );
}

/// An agent with two concurrent model calls.
struct ConcurrentAgent(Arc<Mutex<Vec<Result<u64, Limit>>>>);

impl Runtime for ConcurrentAgent {
    fn name(&self) -> &str {
        "spender"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(Capability::ALL)
    }

    fn run<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>> {
        Box::pin(async move {
            let hold = || job.account.hold(1_000, 5_000, None);
            let first = hold();
            let mut all = vec![
                first.map(|hold| hold.output),
                hold().map(|hold| hold.output),
            ];
            all.push(hold().map(|hold| hold.output));
            if let Ok(hold) = first {
                let usage = Usage {
                    input: 100,
                    output: 100,
                    ..Usage::default()
                };
                job.account.settle(usage, None, false, "m").await?;
                job.account.release(hold);
            }
            all.push(hold().map(|hold| hold.output));
            *self.0.lock() = all;
            Ok(Stop::Done)
        })
    }
}

#[tokio::test]
async fn concurrent_model_calls_reserve_their_budget() {
    let mut fixture = fixture(Mode::Auto);
    fixture.options.budget = Budget {
        tokens: Some(10_000),
        tokens_uncached: Some(10_000),
        ..Budget::default()
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let engine = fixture
        .builder()
        .runtime(Arc::new(ConcurrentAgent(seen.clone())))
        .build()
        .unwrap();
    let session = engine.open(OpenSession::New, RunMode::Full).await.unwrap();
    fixture.run_in(&session).await;
    // The limit is 10,000. The second call gets the rest of the first, and the third gets nothing. When the first call is
    // settled, it releases the unused part of its reservation.
    assert_eq!(
        *seen.lock(),
        [Ok(5_000), Ok(3_000), Err(Limit::Tokens), Ok(4_800)]
    );
}
