//! Retries: how long, how often, and that nothing is shown or run twice.

use std::time::Duration;

use windlass_core::budget::Usage;
use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::outcome::{FailReason, Outcome};
use windlass_core::provider::{Chunk, EndReason, ModelFacts, ProviderError, ProviderErrorKind};
use windlass_core::runtime::RunMode;
use windlass_engine::Open;
use windlass_testing::says;

use crate::lab::{Lab, SECOND};

fn fails(kind: ProviderErrorKind) -> Vec<Result<Chunk, ProviderError>> {
    vec![Err(ProviderError {
        kind,
        message: "no".into(),
        status: Some(429),
    })]
}

#[tokio::test]
async fn retry_after_is_waited_for() {
    let slow = ProviderErrorKind::RateLimited {
        retry_after: Some(Duration::from_secs(2)),
    };
    let lab = Lab::new(vec![fails(slow), says("hello")]);
    let ran = lab.run().await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    let waited = lab.clock.monotonic();
    assert!(waited >= 2 * SECOND && waited < 3 * SECOND, "{waited:?}");
    let said = ran.events.iter().any(|event| {
        matches!(
            &event.kind,
            EventKind::Waited {
                ms: 2_000,
                attempt: 2,
                ..
            }
        )
    });
    assert!(said);
}

#[tokio::test]
async fn each_kind_is_tried_as_often_as_it_deserves() {
    let none = || None;
    for (kind, tries) in [
        (
            ProviderErrorKind::RateLimited {
                retry_after: none(),
            },
            6,
        ),
        (
            ProviderErrorKind::Unavailable {
                retry_after: none(),
            },
            4,
        ),
        (
            ProviderErrorKind::Network {
                transient: true,
                sent: false,
            },
            4,
        ),
        (ProviderErrorKind::InvalidResponse, 2),
        (ProviderErrorKind::InvalidRequest, 1),
        (ProviderErrorKind::Authentication, 1),
        (ProviderErrorKind::ModelNotFound, 1),
        (ProviderErrorKind::ContextLength, 1),
    ] {
        let lab = Lab::new((0..10).map(|_| fails(kind.clone())).collect());
        let ran = lab.run().await;
        assert!(
            matches!(
                ran.outcome(),
                Outcome::Failed {
                    reason: FailReason::Provider,
                    ..
                }
            ),
            "{kind:?}"
        );
        assert_eq!(lab.provider.asked().len(), tries, "{kind:?}");
    }
}

#[tokio::test]
async fn a_retry_after_a_partial_stream_duplicates_no_text_and_books_what_was_used() {
    let cut = vec![
        Ok(Chunk::Text("Hello wo".into())),
        fails(ProviderErrorKind::Network {
            transient: true,
            sent: false,
        })
        .remove(0),
    ];
    let lab = Lab::new(vec![cut, says("Hello world")]);
    let ran = lab.run().await;
    assert_eq!(ran.deltas(), "Hello world");
    let spent: Vec<bool> = ran
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Spent { estimated, .. } => Some(*estimated),
            _ => None,
        })
        .collect();
    assert_eq!(spent, [true, false]);
    assert_eq!(ran.count("said"), 1);
}

#[tokio::test]
async fn waiting_does_not_outlive_the_time_limit() {
    let slow = || ProviderErrorKind::RateLimited {
        retry_after: Some(Duration::from_secs(100)),
    };
    let mut lab = Lab::new(vec![fails(slow()), fails(slow()), says("late")]);
    lab.options.budget.seconds = Some(150);
    let ran = lab.run().await;
    assert_eq!(*ran.outcome(), Outcome::TimedOut);
    assert!(lab.clock.monotonic() < 152 * SECOND);
}

#[tokio::test]
async fn an_answer_that_never_fits_its_schema_fails_and_one_that_does_at_last_completes() {
    let schema = serde_json::json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } });
    let mut lab = Lab::new(vec![says("not json"), says("{\"n\": \"x\"}"), says("{}")]);
    lab.schema = Some(schema.clone());
    let ran = lab.run().await;
    assert!(
        matches!(
            ran.outcome(),
            Outcome::Failed {
                reason: FailReason::StructuredOutput,
                ..
            }
        ),
        "{:?}",
        ran.outcome()
    );
    assert_eq!(lab.provider.asked().len(), 3, "two repairs and no more");

    let mut lab = Lab::new(vec![says("```"), says(" {\"n\": 3}\n")]);
    lab.schema = Some(schema);
    assert_eq!(*lab.run().await.outcome(), Outcome::Completed);
}

#[tokio::test]
async fn another_model_in_the_same_session_is_said_and_what_is_lost_is_warned_about() {
    let mut lab = Lab::new(vec![says("one"), says("two")]);
    let session = lab.open().await;
    lab.run_in(&session).await;
    let id = session.id().clone();
    drop(session);
    lab.model = "small";
    let blind = |model: &str| ModelFacts {
        images: model != "small",
        ..ModelFacts::default()
    };
    lab.provider = lab.provider.with_facts_of(blind);
    let session = lab
        .engine()
        .open(Open::Resume(id.clone()), RunMode::Full)
        .await
        .unwrap();
    lab.run_in(&session).await;
    let lines = lab.store.lines(&id).join("\n");
    assert!(
        lines.contains("\"kind\":\"model_switched\",\"data\":{\"from\":\"m\",\"to\":\"small\""),
        "{lines}"
    );
    assert!(lines.contains("lacks: images"), "{lines}");
    assert_eq!(
        session.look(|history| windlass_core::history::unpaired(&history.entries())),
        None
    );
}

/// The calls that were booked: input, output, and whether they are estimates.
async fn booked(script: Vec<Vec<Result<Chunk, ProviderError>>>) -> Vec<(u64, u64, bool)> {
    let mut lab = Lab::new(script);
    lab.provider = lab.provider.with_facts(ModelFacts {
        max_output: RESERVED,
        ..ModelFacts::default()
    });
    let ran = lab.run().await;
    let spent = ran.events.iter().filter_map(|event| match &event.kind {
        EventKind::Spent {
            call, estimated, ..
        } => Some((call.input, call.output, *estimated)),
        _ => None,
    });
    spent.collect()
}

const RESERVED: u64 = 2_000;

fn ends_with(text: &str, usage: Option<(u64, u64)>) -> Vec<Result<Chunk, ProviderError>> {
    let mut chunks = vec![Ok(Chunk::Text(text.into()))];
    chunks.extend(usage.map(|(input, output)| {
        Ok(Chunk::Usage(Usage {
            input,
            output,
            ..Usage::default()
        }))
    }));
    chunks.push(Ok(Chunk::End(EndReason::Done)));
    chunks
}

#[tokio::test]
async fn a_lying_vendor_is_never_booked_below_what_it_served() {
    let text = "word ".repeat(1_000);
    let dropped = fails(ProviderErrorKind::Network {
        transient: false,
        sent: true,
    });
    let cases = [
        ("dropped after the request", dropped, RESERVED),
        ("missing", ends_with(&text, None), RESERVED),
        (
            "negative",
            ends_with(&text, Some((900, u64::MAX))),
            RESERVED,
        ),
        ("understated", ends_with(&text, Some((900, 1))), RESERVED),
        ("no input", ends_with(&text, Some((0, 1_000))), RESERVED),
        (
            "passed",
            ends_with(&text.repeat(9), Some((900, 9_000))),
            18_000,
        ),
    ];
    for (name, script, expect) in cases {
        let booked = booked(vec![script]).await;
        let (input, output, estimated) = booked[0];
        assert!(estimated && input > 0, "{name}: {booked:?}");
        assert_eq!(output, expect, "{name}");
    }
    let honest = booked(vec![ends_with(&text, Some((900, 1_000)))]).await;
    assert_eq!(honest, [(900, 1_000, false)]);
}

#[tokio::test]
async fn a_stream_that_passes_its_maximum_is_cut() {
    let endless = || {
        (0..100_000)
            .map(|_| Ok(Chunk::Text("word ".into())))
            .collect()
    };
    let booked = booked(vec![endless(), endless()]).await;
    assert_eq!(booked.len(), 2, "it is tried twice");
    for (_, output, _) in booked {
        assert!((RESERVED..3 * RESERVED).contains(&output), "{output}");
    }
}
