//! Steps: order, overlap, large results, the stable prefix, budgets.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use windlass_core::budget::{Budget, Limit, Usage};
use windlass_core::event::EventKind;
use windlass_core::message::ErrorCategory;
use windlass_core::outcome::{FailReason, Outcome, RunSummary};
use windlass_core::provider::{Chunk, EndReason, ModelFacts};
use windlass_testing::{call, says};

use crate::lab::{Diary, Lab, calls, standard_tools};

#[tokio::test]
async fn reads_overlap_and_the_last_starts_after_the_write() {
    let path = |p: &str| json!({ "path": p });
    let step = calls(&[
        ("1", "look", path("a")),
        ("2", "look", path("b")),
        ("3", "write", path("w")),
        ("4", "look", path("c")),
    ]);
    let mut lab = Lab::new(vec![step, says("done")]);
    let diary = Diary::default();
    lab.tools = standard_tools(&diary);
    let ran = lab.run().await;
    let diary = diary.lock().clone();
    assert_eq!(
        diary[..2],
        ["+look a", "+look b"],
        "both began before either ended: {diary:?}"
    );
    assert_eq!(diary[4..], ["+write w", "-write w", "+look c", "-look c"]);
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
    let mut lab = Lab::new(vec![calls(&step), says("done")]);
    let diary = Diary::default();
    lab.tools = standard_tools(&diary);
    lab.run().await;
    let (mut open, mut most) = (0_i32, 0);
    for line in diary.lock().iter() {
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
        let mut lab = Lab::new(vec![call("1", "t", &json!({})), says("ok")]);
        lab.tools = vec![
            windlass_testing::FnTool::new("t", windlass_core::tool::Effect::External, |_, _| {
                Box::pin(async { Ok(windlass_core::tool::ToolOutput::text("did it")) })
            })
            .boxed(),
        ];
        lab.gate.mode = mode;
        lab.options.yes = false;
        lab.options.on_ask = windlass_engine::OnAsk::Deny;
        let ran = lab.run().await;
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
    let mut lab = Lab::new(vec![step, says("done")]);
    let diary = Diary::default();
    lab.tools = standard_tools(&diary);
    let errors: Vec<_> = lab
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
    assert!(!diary.lock().contains(&"+bash rm x".to_owned()));
}

#[tokio::test]
async fn large_results_become_artifacts_and_empty_ones_a_marker() {
    let step = calls(&[("1", "large", json!({})), ("2", "empty", json!({}))]);
    let ran = Lab::new(vec![step, says("done")]).run().await;
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
    let lab = Lab::new(vec![call("1", "look", &json!({"path": "a"})), says("done")]);
    lab.run().await;
    assert_eq!(lab.store.syncs(), 1, "only the end of the run");
    let step = calls(&[
        ("1", "write", json!({"path": "a"})),
        ("2", "write", json!({"path": "b"})),
    ]);
    let lab = Lab::new(vec![step, says("done")]);
    lab.run().await;
    assert_eq!(
        lab.store.syncs(),
        2,
        "one before the first effect of the step, one at the end"
    );
}

#[tokio::test]
async fn the_crossing_call_is_not_sent() {
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
    let mut lab = Lab::new((0..10).map(|n| step(&n.to_string())).collect());
    lab.provider = lab.provider.with_facts(ModelFacts {
        max_output: 100,
        ..ModelFacts::default()
    });
    lab.options.budget = Budget {
        tokens: Some(1_000),
        tokens_uncached: Some(1_000),
        ..Budget::default()
    };
    let ran = lab.run().await;
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
        lab.provider.asked().len(),
        2,
        "the third would have crossed 1,000"
    );
    assert_eq!(spent, Some(800));
    assert_eq!(ran.count("budget_warned"), 1);
    assert_eq!(ran.count("iteration_started"), 1);
}

#[tokio::test]
async fn steps_are_counted_and_end_the_run() {
    let mut lab = Lab::new(
        (0..10)
            .map(|n| call(&n.to_string(), "look", &json!({"path": n.to_string()})))
            .collect(),
    );
    lab.options.budget = Budget {
        steps: Some(3),
        ..Budget::default()
    };
    let ran = lab.run().await;
    assert_eq!(*ran.outcome(), Outcome::MaxSteps);
    assert_eq!(lab.provider.asked().len(), 3);
}

#[tokio::test]
async fn the_same_call_with_the_same_result_is_not_run_a_fourth_time() {
    let diary = Diary::default();
    let mut lab = Lab::new(
        (0..6)
            .map(|n| call(&n.to_string(), "bash", &json!({"command": "make"})))
            .collect(),
    );
    lab.tools = standard_tools(&diary);
    let ran = lab.run().await;
    assert!(matches!(
        ran.outcome(),
        Outcome::Failed {
            reason: FailReason::Repetition,
            ..
        }
    ));
    assert_eq!(diary.lock().len(), 3);
    assert!(ran.results()[3].0.starts_with("Error [blocked]"));
}

#[tokio::test]
async fn half_a_call_is_never_run_and_the_third_cut_fails() {
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
    let lab = Lab::new(vec![cut(), cut(), cut(), says("never asked")]);
    let ran = lab.run().await;
    assert!(matches!(
        ran.outcome(),
        Outcome::Failed {
            reason: FailReason::Truncation,
            ..
        }
    ));
    assert_eq!(ran.count("call_started"), 0);
    assert_eq!(lab.provider.asked().len(), 3);
}

#[tokio::test]
async fn ids_that_come_again_in_a_session_are_made_unique() {
    let lab = Lab::new(vec![
        call("same", "look", &json!({"path": "a"})),
        call("same", "look", &json!({"path": "b"})),
        says("ok"),
    ]);
    lab.run().await;
    let last = lab.provider.asked().pop().unwrap();
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
    let ran = Lab::new(vec![answer]).run().await;
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
async fn the_view_and_the_log_carry_the_same_events_and_numbers() {
    let lab = Lab::new(vec![call("1", "look", &json!({"path": "a"})), says("done")]);
    let session = lab.open().await;
    let ran = lab.run_in(&session).await;
    let shown: Vec<String> = ran
        .events
        .iter()
        .filter(|event| event.order.seq().is_some())
        .map(|event| serde_json::to_string(event).unwrap())
        .collect();
    assert_eq!(lab.store.lines(session.id())[1..], shown);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// From step to step, what was sent before is sent again unchanged, with more after it.
    #[test]
    fn every_request_begins_with_the_one_before(names in proptest::collection::vec("look|write|bash|empty|nope", 1..8)) {
        let answers: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(n, name)| call(&n.to_string(), name, &json!({"path": "a", "command": "x", "n": n})))
            .chain([says("done")])
            .collect();
        let lab = Arc::new(Lab::new(answers));
        let asked = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            lab.run().await;
            lab.provider.asked()
        });
        for pair in asked.windows(2) {
            prop_assert!(pair[1].starts_with(&pair[0]));
        }
    }
}
