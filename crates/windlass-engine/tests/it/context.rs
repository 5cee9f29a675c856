//! The context of the model: full windows, failed summaries, resumed sessions. In every case, each request is valid and
//! contains the messages of the person, and the messages only grow between two compactions.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use windlass_core::budget::Price;
use windlass_core::context::{Compaction, CompactionCause, CompactionMode, Instruction, TASK};
use windlass_core::event::{Event, EventKind};
use windlass_core::history::{Entry, History, unpaired};
use windlass_core::id::SessionId;
use windlass_core::message::{Message, Origin, Part};
use windlass_core::outcome::Outcome;
use windlass_core::provider::{Chunk, EndReason, ModelFacts, ProviderError, ProviderErrorKind};
use windlass_core::runtime::RunMode;
use windlass_core::tool::{Effect, Tool, ToolOutput};
use windlass_engine::{Instructions, OpenSession, Session};
use windlass_testing::{FnTool, ProviderRequest, says};

use crate::fixture::{EngineFixture, RunEvents, calls, standard_tools};

type Answer = Vec<Result<Chunk, ProviderError>>;

/// A tool whose result has the requested number of bytes.
fn bulk() -> Arc<dyn Tool> {
    FnTool::new("bulk", Effect::Read, |args, _| {
        Box::pin(async move {
            let bytes = args["bytes"].as_u64().unwrap_or(0) as usize;
            Ok(ToolOutput::text(format!(
                "result of {} {}",
                args["n"],
                "x".repeat(bytes)
            )))
        })
    })
    .boxed()
}

fn step(n: usize, bytes: usize) -> Answer {
    calls(&[(
        &format!("c{n}"),
        "bulk",
        json!({ "n": n, "bytes": bytes, "path": format!("src/{n}.rs") }),
    )])
}

fn too_long() -> Answer {
    let kind = ProviderErrorKind::ContextLength;
    vec![Err(ProviderError {
        kind,
        message: "prompt is too long".into(),
        status: Some(400),
    })]
}

fn window(tokens: u64) -> ModelFacts {
    ModelFacts {
        context_window: Some(tokens),
        price: Some(Price::FREE),
        max_output: 2_048,
        ..ModelFacts::default()
    }
}

const SUMMARY: &str = "## Goal\nship the thing\n## Progress\nhalf of it\n## Next\nthe other half";

fn fixture(answers: Vec<Answer>, facts: ModelFacts) -> EngineFixture {
    let mut fixture = EngineFixture::new(answers);
    fixture.provider = fixture
        .provider
        .with_facts(facts)
        .with_summary(says(SUMMARY));
    fixture.tools = standard_tools(&crate::fixture::CallTrace::default())
        .into_iter()
        .take(2)
        .chain([bulk()])
        .collect();
    fixture.options.budget = windlass_core::budget::Budget::UNLIMITED;
    fixture
}

fn compactions(events: &[Event]) -> Vec<Compaction> {
    let found = events.iter().filter_map(|event| match &event.kind {
        EventKind::Compacted { compaction } => Some(compaction.clone()),
        _ => None,
    });
    found.collect()
}

fn logged(fixture: &EngineFixture, session: &SessionId) -> Vec<Event> {
    fixture
        .store
        .lines(session)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn messages(entries: &[Entry]) -> Vec<Message> {
    entries.iter().map(|entry| Message::clone(entry)).collect()
}

/// The requests of the loop, without those for summaries.
fn steps(fixture: &EngineFixture) -> Vec<ProviderRequest> {
    fixture
        .provider
        .requests()
        .into_iter()
        .filter(|asked| asked.system != TASK)
        .collect()
}

/// Checks the invariants of the requests of a session.
#[track_caller]
fn check_session(fixture: &EngineFixture, session: &Session, prompts: &[&str]) {
    let log = logged(fixture, session.id());
    let mut folded = History::default();
    log.iter().for_each(|event| folded.apply(event));
    let live = session.with_history(|history| messages(&history.entries()));
    assert_eq!(
        messages(&folded.entries()),
        live,
        "the log folds to what the session holds"
    );
    assert_eq!(unpaired(&folded.entries()), None);
    let requests = steps(fixture);
    let mut grown = 0;
    for pair in requests.windows(2) {
        assert_eq!(
            (&pair[0].system, &pair[0].tools),
            (&pair[1].system, &pair[1].tools),
            "the prefix is stable"
        );
        grown += usize::from(pair[1].messages.starts_with(&pair[0].messages));
    }
    // Each request starts with the previous one, except for the first one after a compaction.
    assert!(
        grown + compactions(&log).len() >= requests.len().saturating_sub(1),
        "{grown} of {}",
        requests.len()
    );
    let last = &requests.last().unwrap().messages;
    for prompt in prompts {
        let held = last
            .iter()
            .any(|message| message.origin == Origin::Person && message.text() == *prompt);
        assert!(held, "`{prompt}` is in the last request");
    }
}

async fn run(fixture: &EngineFixture, session: &Session, prompt: &str) -> RunEvents {
    fixture
        .watch(
            session
                .run(Message::user(prompt), fixture.options.clone())
                .unwrap(),
        )
        .await
}

#[tokio::test]
async fn a_long_run_is_compacted_several_times_and_completes() {
    // 32,000 tokens leave 16,000 for the request, which are about 40,000 bytes at two and a half bytes per token.
    let mut answers: Vec<Answer> = (0..120)
        .map(|n| step(n, if n % 3 == 0 { 6_000 } else { 900 }))
        .collect();
    answers.push(says("all of it is done"));
    let fixture = fixture(answers, window(32_000));
    let session = fixture.open().await;
    let ran = run(&fixture, &session, "do all of it").await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    let made = compactions(&ran.events);
    assert!(made.len() >= 4, "{}", made.len());
    assert!(
        made.iter().any(|one| one.summary.is_empty()),
        "results are shortened first"
    );
    let with_summary = made
        .iter()
        .rev()
        .find(|one| !one.summary.is_empty())
        .unwrap();
    for piece in [
        "ship the thing",
        "the other half",
        "## Files looked at",
        "src/",
        "results of bulk",
    ] {
        assert!(
            with_summary.summary.contains(piece),
            "{piece}: {}",
            with_summary.summary
        );
    }
    assert!(
        made.iter()
            .all(|one| one.by == Some(CompactionCause::Window) && !one.left_out.is_empty())
    );
    for asked in steps(&fixture) {
        let bytes: usize = asked
            .messages
            .into_iter()
            .map(|message| Entry::new(message).bytes())
            .sum();
        assert!(bytes < 40_000, "{bytes}");
    }
    check_session(&fixture, &session, &["do all of it"]);
}

#[tokio::test]
async fn a_summary_is_billed_and_requested_without_tools() {
    let mut answers: Vec<Answer> = (0..30).map(|n| step(n, 1_000)).collect();
    answers.push(says("done"));
    let fixture = fixture(answers, window(8_000));
    let session = fixture.open().await;
    let ran = run(&fixture, &session, "go").await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    let summaries: Vec<ProviderRequest> = fixture
        .provider
        .requests()
        .into_iter()
        .filter(|asked| asked.system == TASK)
        .collect();
    assert!(!summaries.is_empty());
    for asked in &summaries {
        assert!(
            asked.tools.is_empty() && asked.messages.len() == 1,
            "{asked:?}"
        );
        assert!(asked.messages[0].text().contains("--- user ---\ngo"));
    }
    // One for each step of the loop, and one for each summary.
    assert_eq!(ran.count("spent"), 31 + summaries.len());
    check_session(&fixture, &session, &["go"]);
}

#[tokio::test]
async fn a_failed_summary_is_replaced_by_facts_from_the_log() {
    let refused = vec![
        Ok(Chunk::Text("I cannot".into())),
        Ok(Chunk::End(EndReason::Refused)),
    ];
    let broken = vec![Err(ProviderError {
        kind: ProviderErrorKind::Unavailable { retry_after: None },
        message: "down".into(),
        status: Some(503),
    })];
    let cut = vec![Ok(Chunk::Text("## Goal\nhal".into()))];
    for (answer, why) in [
        (refused, "refused"),
        (broken, "down"),
        (cut, "cut off"),
        (says("  "), "empty"),
    ] {
        let mut answers: Vec<Answer> = (0..20).map(|n| step(n, 1_000)).collect();
        answers.push(says("done"));
        let mut fixture = fixture(answers, window(8_000));
        fixture.provider = fixture.provider.with_summary(answer);
        let session = fixture.open().await;
        let ran = run(&fixture, &session, "go").await;
        assert_eq!(*ran.outcome(), Outcome::Completed, "{why}");
        let warned = ran.events.iter().any(|event| {
            matches!(&event.kind, EventKind::Warned { code, text } if code == "summary_not_written" && text.contains(why))
        });
        assert!(warned, "{why}");
        let made = compactions(&ran.events);
        let last = made
            .iter()
            .rev()
            .find(|one| !one.summary.is_empty())
            .unwrap();
        assert!(
            last.summary.contains("As in the user's messages") && last.summary.contains("src/"),
            "{}",
            last.summary
        );
        check_session(&fixture, &session, &["go"]);
    }
}

#[tokio::test]
async fn after_a_length_error_the_messages_are_compacted_and_the_call_retried_once() {
    let facts = ModelFacts {
        price: Some(Price::FREE),
        ..ModelFacts::default()
    };
    let mut answers: Vec<Answer> = (0..30).map(|n| step(n, 900)).collect();
    answers.extend([too_long(), says("done")]);
    let fits = fixture(answers.clone(), facts.clone());
    let session = fits.open().await;
    let ran = run(&fits, &session, "go").await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    let made = compactions(&ran.events);
    assert_eq!(
        made.iter().map(|one| one.by).collect::<Vec<_>>(),
        [Some(CompactionCause::Length)]
    );
    check_session(&fits, &session, &["go"]);
    // If the server repeats the error, the run fails.
    answers.truncate(30);
    answers.extend([too_long(), too_long(), says("done")]);
    let full = fixture(answers, facts);
    let session = full.open().await;
    let ran = run(&full, &session, "go").await;
    assert_eq!(ran.outcome().word(), "failed");
    assert_eq!(compactions(&ran.events).len(), 1);
}

#[tokio::test]
async fn a_summary_beyond_the_budget_is_not_requested() {
    let mut refused = 0;
    for limit in (10_000..40_000).step_by(1_500) {
        let mut answers: Vec<Answer> = (0..12).map(|n| step(n, 1_000)).collect();
        answers.push(says("done"));
        let mut fixture = fixture(answers, window(8_000));
        fixture.options.budget.tokens = Some(limit);
        fixture.options.budget.tokens_uncached = Some(limit);
        let session = fixture.open().await;
        let ran = run(&fixture, &session, "go").await;
        for event in &ran.events {
            match &event.kind {
                EventKind::Spent { total, .. } => {
                    assert!(total.usage.counted() <= limit, "{total:?} of {limit}")
                }
                EventKind::Warned { text, .. } => {
                    refused += u32::from(text.contains("exceed the limit of tokens"))
                }
                _ => {}
            }
        }
    }
    assert!(refused > 0, "no limit was between a step and a summary");
}

#[tokio::test]
async fn in_a_window_that_two_steps_fill_not_every_step_costs_a_second_call() {
    let mut answers: Vec<Answer> = (0..30).map(|n| step(n, 2_100)).collect();
    answers.push(says("done"));
    let fixture = fixture(answers, window(4_096));
    let session = fixture.open().await;
    let ran = run(&fixture, &session, "do all of it").await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert!(
        compactions(&ran.events).len() >= 10,
        "{}",
        compactions(&ran.events).len()
    );
    let asked = fixture
        .provider
        .requests()
        .iter()
        .filter(|asked| asked.system == TASK)
        .count();
    assert!(asked <= 10, "{asked} summaries for 31 steps");
    check_session(&fixture, &session, &["do all of it"]);
}

#[tokio::test]
async fn the_prefix_is_the_same_in_every_run_and_changed_instructions_cause_a_warning() {
    let file = |hash: &str| Instruction {
        path: "AGENTS.md".into(),
        bytes: 3,
        hash: hash.into(),
    };
    let answers = vec![
        step(1, 10),
        says("one"),
        says("two"),
        says("three"),
        says("four"),
    ];
    let mut fixture = fixture(answers, window(200_000));
    fixture.instructions = Instructions {
        files: vec![file("a")],
        opening: "branch: main\n".into(),
        names: vec![],
    };
    let session = fixture.open().await;
    let first = run(&fixture, &session, "first").await;
    assert_eq!((first.count("instructed"), first.count("warned")), (1, 0));
    assert_eq!(
        run(&fixture, &session, "second").await.count("instructed"),
        0
    );
    let id = session.id().clone();
    drop(session);
    // Another branch is checked out, but the session keeps its first facts.
    fixture.instructions.opening = "branch: other\n".into();
    let session = fixture
        .engine()
        .open(OpenSession::Resume(id.clone()), RunMode::Full)
        .await
        .unwrap();
    let third = run(&fixture, &session, "third").await;
    assert_eq!((third.count("instructed"), third.count("warned")), (0, 0));
    check_session(&fixture, &session, &["first", "second", "third"]);
    assert!(
        steps(&fixture)
            .iter()
            .all(|asked| asked.system == "be goodbranch: main\n")
    );
    drop(session);
    fixture.instructions.files = vec![file("b")];
    let session = fixture
        .engine()
        .open(OpenSession::Resume(id), RunMode::Full)
        .await
        .unwrap();
    let fourth = run(&fixture, &session, "fourth").await;
    assert_eq!((fourth.count("instructed"), fourth.count("warned")), (1, 1));
    let text = fourth.events.iter().find_map(|event| match &event.kind {
        EventKind::Warned { text, .. } => Some(text.clone()),
        _ => None,
    });
    assert!(text.unwrap_or_default().contains("AGENTS.md was changed"));
}

#[tokio::test]
async fn a_resumed_session_that_is_too_long_is_compacted_before_its_first_request() {
    let mut answers: Vec<Answer> = (0..40).map(|n| step(n, 1_500)).collect();
    answers.extend([says("done"), says("and more")]);
    let wide = fixture(answers, window(200_000));
    let session = wide.open().await;
    run(&wide, &session, "the first prompt").await;
    let id = session.id().clone();
    drop(session);
    let mut narrow = wide;
    narrow.provider = narrow.provider.with_facts(window(16_000));
    let session = narrow
        .engine()
        .open(OpenSession::Resume(id), RunMode::Full)
        .await
        .unwrap();
    let ran = run(&narrow, &session, "the second prompt").await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(compactions(&ran.events).len(), 1);
    check_session(
        &narrow,
        &session,
        &["the first prompt", "the second prompt"],
    );
}

#[tokio::test]
async fn kept_messages_keep_their_reasoning_state() {
    let state = json!({ "signature": "abc" });
    let mut answers: Vec<Answer> = Vec::new();
    for n in 0..30 {
        let mut thought = vec![
            Ok(Chunk::Reasoning("hm".into())),
            Ok(Chunk::ReasoningState(state.clone())),
        ];
        thought.extend(step(n, 1_000));
        answers.push(thought);
    }
    answers.push(says("done"));
    let fixture = fixture(answers, window(8_000));
    let session = fixture.open().await;
    run(&fixture, &session, "go").await;
    let last = steps(&fixture).pop().unwrap();
    let thoughts: Vec<_> = last
        .messages
        .iter()
        .filter(|message| message.calls().next().is_some())
        .map(|message| message.parts.first().cloned())
        .collect();
    assert!(!thoughts.is_empty() && thoughts.len() < 30);
    for thought in thoughts {
        assert_eq!(
            thought,
            Some(Part::Reasoning {
                text: "hm".into(),
                opaque: Some(state.clone())
            })
        );
    }
}

/// One random answer of the model: its calls with the size of their results, or an error of the server.
#[derive(Debug, Clone)]
enum RandomAnswer {
    Calls(Vec<usize>),
    Words,
    TooLong,
}

fn random_answer() -> impl Strategy<Value = RandomAnswer> {
    let size = prop_oneof![3 => 0_usize..300, 2 => 2_000_usize..12_000];
    prop_oneof![
        8 => proptest::collection::vec(size, 1..4).prop_map(RandomAnswer::Calls),
        1 => Just(RandomAnswer::Words),
        1 => Just(RandomAnswer::TooLong),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Several runs with a small window, and a resume after each: every request is valid (the scripted provider checks
    /// this), no message of the person is lost, and the log folds to the live state.
    #[test]
    fn sessions_stay_valid_after_any_number_of_compactions(
        random_answers in proptest::collection::vec(random_answer(), 1..60),
        tokens in prop_oneof![Just(None), (6_000_u64..40_000).prop_map(Some)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut n = 0;
            let mut answers: Vec<Answer> = Vec::new();
            for say in &random_answers {
                answers.push(match say {
                    RandomAnswer::Words => says("so far"),
                    RandomAnswer::TooLong => too_long(),
                    RandomAnswer::Calls(sizes) => {
                        let named: Vec<(String, usize)> = sizes.iter().map(|bytes| { n += 1; (format!("c{n}"), *bytes) }).collect();
                        let made: Vec<_> = named.iter().map(|(id, bytes)| (id.as_str(), "bulk", json!({ "n": id, "bytes": bytes }))).collect();
                        calls(&made)
                    }
                });
            }
            answers.extend((0..12).map(|_| says("done")));
            let fixture = fixture(answers, ModelFacts { context_window: tokens, price: Some(Price::FREE), ..ModelFacts::default() });
            let session = fixture.open().await;
            let id = session.id().clone();
            run(&fixture, &session, "prompt 0").await;
            drop(session);
            for n in 1..4 {
                let session = fixture.engine().open(OpenSession::Resume(id.clone()), RunMode::Full).await.unwrap();
                run(&fixture, &session, &format!("prompt {n}")).await;
                let room = session.with_history(|history| history.compaction(CompactionMode::Last(1), 1 << 16));
                prop_assert!(room.is_none_or(|room| room.kept_from > 0));
                let prompts: Vec<String> = (0..=n).map(|n| format!("prompt {n}")).collect();
                check_session(&fixture, &session, &prompts.iter().map(String::as_str).collect::<Vec<_>>());
            }
            Ok(())
        })?;
    }
}
