//! Steps: the order and concurrency of calls, large results, the stable prefix of requests, budgets.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use windlass_core::budget::{Budget, Limit, Usage};
use windlass_core::event::EventKind;
use windlass_core::message::ErrorCategory;
use windlass_core::outcome::{FailReason, Outcome, RunSummary};
use windlass_core::provider::{Chunk, EndReason, ModelFacts};
use windlass_testing::{call, says};

use crate::fixture::{CallTrace, EngineFixture, calls, standard_tools};

#[tokio::test]
async fn reads_overlap_and_the_last_starts_after_the_write() {
    let path = |p: &str| json!({ "path": p });
    let step = calls(&[
        ("1", "look", path("a")),
        ("2", "look", path("b")),
        ("3", "write", path("w")),
        ("4", "look", path("c")),
    ]);
    let mut fixture = EngineFixture::new(vec![step, says("done")]);
    let trace = CallTrace::default();
    fixture.tools = standard_tools(&trace);
    let ran = fixture.run().await;
    let trace = trace.lock().clone();
    assert_eq!(
        trace[..2],
        ["+look a", "+look b"],
        "both began before either ended: {trace:?}"
    );
    assert_eq!(trace[4..], ["+write w", "-write w", "+look c", "-look c"]);
    let texts: Vec<String> = ran.results().into_iter().map(|(text, _)| text).collect();
    assert_eq!(texts, ["saw \"a\"", "saw \"b\"", "written", "saw \"c\""]);
}

#[tokio::test]
async fn at_most_four_reads_run_at_the_same_time() {
    let names: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let step: Vec<_> = names
        .iter()
        .map(|n| (n.as_str(), "look", json!({ "path": n })))
        .collect();
    let mut fixture = EngineFixture::new(vec![calls(&step), says("done")]);
    let trace = CallTrace::default();
    fixture.tools = standard_tools(&trace);
    fixture.run().await;
    let (mut open, mut most) = (0_i32, 0);
    for line in trace.lock().iter() {
        open += if line.starts_with('+') { 1 } else { -1 };
        most = most.max(open);
    }
    assert_eq!(most, 4);
}

#[tokio::test]
async fn a_tool_that_declares_nothing_is_serial_and_asks() {
    let spec = windlass_core::tool::ToolSpec::new(
        "t",
        "d",
        json!({}),
        windlass_core::tool::Effect::External,
    );
    assert!(!spec.parallel && spec.exposure == windlass_core::tool::Exposure::Native);
    assert!(
        serde_json::from_value::<windlass_core::tool::ToolSpec>(
            json!({"name": "t", "description": "", "schema": {}, "max_output": 1})
        )
        .is_err(),
        "the effect has no default"
    );
    for mode in [
        windlass_core::gate::Mode::Ask,
        windlass_core::gate::Mode::Edit,
        windlass_core::gate::Mode::Auto,
    ] {
        let mut fixture = EngineFixture::new(vec![call("1", "t", &json!({})), says("ok")]);
        fixture.tools = vec![
            windlass_testing::FnTool::new("t", windlass_core::tool::Effect::External, |_, _| {
                Box::pin(async { Ok(windlass_core::tool::ToolOutput::text("did it")) })
            })
            .boxed(),
        ];
        fixture.gate.mode = mode;
        fixture.options.yes = false;
        fixture.options.on_ask = windlass_engine::OnAsk::Deny;
        let ran = fixture.run().await;
        assert_eq!(
            (ran.count("asked"), ran.count("call_started")),
            (1, 0),
            "{mode}"
        );
    }
}

#[tokio::test]
async fn a_failed_command_cancels_its_siblings_but_not_the_reads() {
    let step = calls(&[
        ("1", "bash", json!({"command": "false"})),
        ("2", "bash", json!({"command": "rm x"})),
        ("3", "look", json!({"path": "a"})),
    ]);
    let mut fixture = EngineFixture::new(vec![step, says("done")]);
    let trace = CallTrace::default();
    fixture.tools = standard_tools(&trace);
    let errors: Vec<_> = fixture
        .run()
        .await
        .results()
        .into_iter()
        .map(|(_, error)| error)
        .collect();
    assert_eq!(
        errors,
        [
            Some(ErrorCategory::Exception),
            Some(ErrorCategory::Interrupted),
            None
        ]
    );
    assert!(!trace.lock().contains(&"+bash rm x".to_owned()));
}

#[tokio::test]
async fn large_results_become_artifacts_and_empty_ones_a_marker() {
    let step = calls(&[("1", "large", json!({})), ("2", "empty", json!({}))]);
    let ran = EngineFixture::new(vec![step, says("done")]).run().await;
    let results = ran.results();
    assert!(
        results[0].0.chars().count() <= 50_000,
        "{}",
        results[0].0.len()
    );
    assert!(
        results[0]
            .0
            .contains("all 5000000 bytes are kept: read_file with path \"artifact:f0-")
    );
    assert_eq!(results[1].0, "(no output)");
}

#[tokio::test]
async fn one_sync_serves_a_step_and_reads_need_none() {
    let fixture = EngineFixture::new(vec![call("1", "look", &json!({"path": "a"})), says("done")]);
    fixture.run().await;
    assert_eq!(fixture.store.syncs(), 1, "only the end of the run");
    let step = calls(&[
        ("1", "write", json!({"path": "a"})),
        ("2", "write", json!({"path": "b"})),
    ]);
    let fixture = EngineFixture::new(vec![step, says("done")]);
    fixture.run().await;
    assert_eq!(
        fixture.store.syncs(),
        2,
        "one before the first effect of the step, one at the end"
    );
}

#[tokio::test]
async fn a_model_call_that_would_exceed_a_limit_is_not_sent() {
    let usage = |input| {
        Ok(Chunk::Usage(Usage {
            input,
            output: 100,
            ..Usage::default()
        }))
    };
    let step = |id: &str| {
        let mut step = call(id, "look", &json!({"path": id}));
        step[2] = usage(300);
        step
    };
    let mut fixture = EngineFixture::new((0..10).map(|n| step(&n.to_string())).collect());
    fixture.provider = fixture.provider.with_facts(ModelFacts {
        max_output: 100,
        ..ModelFacts::default()
    });
    fixture.options.budget = Budget {
        tokens: Some(1_000),
        tokens_uncached: Some(1_000),
        ..Budget::default()
    };
    let ran = fixture.run().await;
    assert_eq!(
        *ran.outcome(),
        Outcome::BudgetExceeded {
            limit: Limit::Tokens
        }
    );
    let spent = ran.events.iter().rev().find_map(|event| match event.kind {
        EventKind::RunFinished(RunSummary { totals, .. }) => Some(totals.usage.counted()),
        _ => None,
    });
    assert_eq!(
        fixture.provider.asked().len(),
        2,
        "the third would have crossed 1,000"
    );
    assert_eq!(spent, Some(800));
    assert_eq!(ran.count("budget_warned"), 1);
    assert_eq!(ran.count("iteration_started"), 1);
}

#[tokio::test]
async fn steps_are_counted_and_end_the_run() {
    let mut fixture = EngineFixture::new(
        (0..10)
            .map(|n| call(&n.to_string(), "look", &json!({"path": n.to_string()})))
            .collect(),
    );
    fixture.options.budget = Budget {
        steps: Some(3),
        ..Budget::default()
    };
    let ran = fixture.run().await;
    assert_eq!(*ran.outcome(), Outcome::MaxSteps);
    assert_eq!(fixture.provider.asked().len(), 3);
}

#[tokio::test]
async fn the_same_call_with_the_same_result_is_not_run_a_fourth_time() {
    let trace = CallTrace::default();
    let mut fixture = EngineFixture::new(
        (0..6)
            .map(|n| call(&n.to_string(), "bash", &json!({"command": "make"})))
            .collect(),
    );
    fixture.tools = standard_tools(&trace);
    let ran = fixture.run().await;
    assert!(matches!(
        ran.outcome(),
        Outcome::Failed {
            reason: FailReason::Repetition,
            ..
        }
    ));
    assert_eq!(trace.lock().len(), 3);
    assert!(ran.results()[3].0.starts_with("Error [blocked]"));
}

#[tokio::test]
async fn an_incomplete_call_is_never_executed_and_the_third_one_fails() {
    let cut = || {
        vec![
            Ok(Chunk::Text("writing".into())),
            Ok(Chunk::CallStart {
                index: 0,
                id: "1".into(),
                name: "write".into(),
            }),
            Ok(Chunk::CallArgs {
                index: 0,
                json: "{\"path\": \"a".into(),
            }),
            Ok(Chunk::End(EndReason::ToolCalls)),
        ]
    };
    let fixture = EngineFixture::new(vec![cut(), cut(), cut(), says("never asked")]);
    let ran = fixture.run().await;
    assert!(matches!(
        ran.outcome(),
        Outcome::Failed {
            reason: FailReason::Truncation,
            ..
        }
    ));
    assert_eq!(ran.count("call_started"), 0);
    assert_eq!(fixture.provider.asked().len(), 3);
}

#[tokio::test]
async fn repeated_call_ids_are_made_unique() {
    let fixture = EngineFixture::new(vec![
        call("same", "look", &json!({"path": "a"})),
        call("same", "look", &json!({"path": "b"})),
        says("ok"),
    ]);
    fixture.run().await;
    let last = fixture.provider.asked().pop().unwrap();
    let mut ids: Vec<_> = last
        .iter()
        .flat_map(|message| message.calls().map(|call| call.id.clone()))
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), 2, "{ids:?}");
}

#[tokio::test]
async fn streamed_pieces_usage_and_totals_agree_with_the_folded_answer() {
    let pieces = ["a", "bc", "", "def"];
    let mut answer: Vec<_> = pieces
        .iter()
        .map(|piece| Ok(Chunk::Text((*piece).to_owned())))
        .collect();
    answer.push(Ok(Chunk::Usage(Usage {
        input: 7,
        output: 1,
        ..Usage::default()
    })));
    answer.push(Ok(Chunk::Usage(Usage {
        input: 7,
        output: 9,
        ..Usage::default()
    })));
    answer.push(Ok(Chunk::End(EndReason::Done)));
    let ran = EngineFixture::new(vec![answer]).run().await;
    assert_eq!(ran.deltas(), "abcdef");
    let said = ran.events.iter().find_map(|event| match &event.kind {
        EventKind::Said { message, .. } => Some(message.text()),
        _ => None,
    });
    assert_eq!(said.as_deref(), Some("abcdef"));
    let totals: Vec<Usage> = ran
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Spent { total, .. } => Some(total.usage),
            EventKind::RunFinished(RunSummary { totals, .. }) => Some(totals.usage),
            _ => None,
        })
        .collect();
    assert_eq!(
        totals,
        [Usage {
            input: 7,
            output: 9,
            ..Usage::default()
        }; 2]
    );
}

#[tokio::test]
async fn the_reader_and_the_log_get_the_same_events() {
    let fixture = EngineFixture::new(vec![call("1", "look", &json!({"path": "a"})), says("done")]);
    let session = fixture.open().await;
    let ran = fixture.run_in(&session).await;
    let shown: Vec<String> = ran
        .events
        .iter()
        .filter(|event| event.order.seq().is_some())
        .map(|event| serde_json::to_string(event).unwrap())
        .collect();
    assert_eq!(fixture.store.lines(session.id())[1..], shown);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Each request repeats the previous one unchanged and adds to it.
    #[test]
    fn every_request_starts_with_the_previous_one(names in proptest::collection::vec("look|write|bash|empty|nope", 1..8)) {
        let answers: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(n, name)| call(&n.to_string(), name, &json!({"path": "a", "command": "x", "n": n})))
            .chain([says("done")])
            .collect();
        let fixture = Arc::new(EngineFixture::new(answers));
        let asked = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            fixture.run().await;
            fixture.provider.asked()
        });
        for pair in asked.windows(2) {
            prop_assert!(pair[1].starts_with(&pair[0]));
        }
    }
}
