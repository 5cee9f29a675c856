//! Tests the fold: the spans of a log, exported content, and clocks that are set back.

use serde_json::json;
use windlass_core::id::RunId;
use windlass_telemetry::span::{MAX_EVENTS, trace_id};
use windlass_telemetry::{Options, SpanId, Spans, provider_name};

use crate::log::{
    call, ended, event, eventful, fold, log, opened, result, said, shown, spent, started,
};

#[test]
fn a_run_is_a_tree_of_spans() {
    insta::assert_snapshot!("eventful", shown(&fold(&eventful(), false)));
}

#[test]
fn with_content_messages_are_exported() {
    insta::assert_snapshot!("content", shown(&fold(&eventful(), true)));
}

#[test]
fn without_content_no_message_is_exported() {
    let text = format!("{:?}", fold(&eventful(), false));
    for word in [
        "PROMPT", "ANSWER", "ARGS", "RESULT", "RULE", "WHY", "WHICH", "THIS", "FINDING", "SUMMARY",
        "WHAT",
    ] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    for word in ["TEXT", "SECRET", "PATH", "DETAIL", "MADE_UP"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
}

#[test]
fn ids_are_reproducible_and_every_parent_exists() {
    let (once, again) = (fold(&eventful(), false), fold(&eventful(), true));
    let ids = |spans: &[windlass_telemetry::Span]| {
        spans
            .iter()
            .map(|span| (span.id, span.parent))
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&once.spans), ids(&again.spans));
    let root = SpanId::of_run(&"s1".parse().unwrap(), &RunId::nth(1));
    for span in &once.spans {
        assert_eq!(span.trace, "000000000000000a000000000000000b");
        let parent = span
            .parent
            .and_then(|parent| once.spans.iter().find(|other| other.id == parent));
        assert_eq!(span.id == root, span.parent.is_none());
        assert!(span.id == root || parent.is_some(), "{span:?}");
        assert_eq!(
            once.spans
                .iter()
                .filter(|other| other.id == span.id)
                .count(),
            1
        );
        if let Some(parent) = parent {
            assert!(
                parent.start <= span.start && span.end <= parent.end,
                "{} in {}",
                span.name,
                parent.name
            );
        }
    }
    assert_eq!(
        trace_id(&"t".parse().unwrap()).len(),
        32,
        "a trace of another form is made into one"
    );
    assert_ne!(trace_id(&"0".repeat(32).parse().unwrap()), "0".repeat(32));
}

#[test]
fn a_clock_that_is_set_back_makes_no_duration_negative() {
    let events = log(&[
        (0.0, opened()),
        (3_600.0, started()),
        (3_601.0, call("c1")),
        (1.0, result("c1", "bash", None)),
        (2.0, call("c2")),
        (4.0, result("c2", "bash", None)),
        (4.0, ended(json!({ "is": "completed" }))),
    ]);
    let times: Vec<(i64, i64)> = fold(&events, false)
        .spans
        .iter()
        .map(|span| (span.start, span.end))
        .collect();
    let at = |ms: i64| 1_000_000 + 3_600_000 + ms;
    assert_eq!(
        times,
        [
            (at(1_000), at(1_000)),
            (at(2_000), at(4_000)),
            (at(0), at(4_000))
        ]
    );
}

#[test]
fn open_spans_at_the_end_are_interrupted() {
    let check = json!({ "kind": "validation_started", "validator": "v" });
    let log = log(&[
        (0.0, opened()),
        (0.0, started()),
        (2.0, said(&["c1"])),
        (2.0, call("c1")),
        (3.0, check),
    ]);
    let all = fold(&log, false).spans;
    let ends: Vec<(&str, Option<&str>)> = all
        .iter()
        .map(|span| (span.name.as_str(), span.error.as_deref()))
        .collect();
    let stopped = Some("interrupted");
    let calls = [
        ("chat m", None),
        ("execute_tool bash", stopped),
        ("validate", stopped),
    ];
    assert_eq!(
        ends,
        [&calls[..], &[("invoke_agent windlass", stopped)]].concat()
    );
}

#[test]
fn a_new_run_ends_an_open_one_and_a_late_event_begins_none() {
    let late = json!({ "kind": "warned", "code": "c", "text": "t" });
    let done = ended(json!({ "is": "completed" }));
    let lines = [
        ("r1", started()),
        ("r2", started()),
        ("r2", done),
        ("r2", late),
        ("r2", json!({ "kind": "session_closed" })),
    ];
    let events: Vec<_> = lines
        .iter()
        .zip(1..)
        .map(|((run, kind), seq)| event(seq, run, 0.0, kind))
        .collect();
    let all = fold(&events, false).spans;
    let ends: Vec<Option<&str>> = all.iter().map(|span| span.error.as_deref()).collect();
    assert_eq!(ends, [Some("interrupted"), None]);
}

#[test]
fn a_run_resumed_in_another_process_is_one_span() {
    let events = eventful();
    let mut spans = Spans::new(Options {
        content: false,
        provider: Some("bedrock".into()),
    });
    let (before, after) = events.split_at(8);
    let mut all: Vec<_> = before
        .iter()
        .flat_map(|event| spans.apply(event).spans)
        .collect();
    all.extend(after.iter().flat_map(|event| spans.apply(event).spans));
    assert_eq!(all, fold(&events, false).spans);
}

#[test]
fn a_final_model_failure_is_reported_with_the_last_attempt() {
    let stop = json!({ "kind": "iteration_finished", "iteration": 1, "stop": "provider" });
    let end = ended(json!({ "is": "failed", "reason": "provider", "detail": "d" }));
    let events = log(&[(0.0, opened()), (0.0, started()), (1.5, stop), (1.5, end)]);
    let all = fold(&events, false).spans;
    assert_eq!(
        (all[0].name.as_str(), all[0].error.as_deref()),
        ("chat m", Some("provider"))
    );
    assert_eq!(all[0].end - all[0].start, 1_500);
    // The usage of a stream that was cut is reported with the same attempt.
    let cut = json!({ "kind": "waited", "reason": "", "error": { "is": "network" }, "ms": 0, "attempt": 2 });
    let events = log(&[
        (0.0, opened()),
        (0.0, started()),
        (1.0, spent(Some(3))),
        (1.0, cut),
    ]);
    let all = fold(&events, false).spans;
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(
        (all[0].name.as_str(), all[0].error.as_deref()),
        ("chat m", Some("network"))
    );
}

#[test]
fn events_beyond_the_limit_are_counted() {
    let warned = json!({ "kind": "warned", "code": "c", "text": "t" });
    let mut lines = vec![(0.0, started())];
    lines.extend((0..MAX_EVENTS + 5).map(|_| (0.0, warned.clone())));
    let all = fold(&log(&lines), false).spans;
    assert_eq!(
        (all[0].events.len(), all[0].dropped_events),
        (MAX_EVENTS, 5)
    );
}

#[test]
fn vendors_have_the_names_of_the_conventions() {
    for (ours, theirs) in [
        ("bedrock-converse", "aws.bedrock"),
        ("gemini", "gcp.gemini"),
        ("groq", "groq"),
    ] {
        assert_eq!(provider_name(ours), theirs);
    }
}
