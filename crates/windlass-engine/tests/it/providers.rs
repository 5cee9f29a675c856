//! Retries: waiting times, number of attempts, and that nothing is displayed or executed twice.

use std::time::Duration;

use windlass_core::budget::Usage;
use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::outcome::{FailReason, Outcome};
use windlass_core::provider::{Chunk, EndReason, ModelFacts, ProviderError, ProviderErrorKind};
use windlass_core::runtime::RunMode;
use windlass_engine::OpenSession;
use windlass_testing::says;

use crate::fixture::{EngineFixture, SECOND};

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
    let fixture = EngineFixture::new(vec![fails(slow), says("hello")]);
    let ran = fixture.run().await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    let waited = fixture.clock.monotonic();
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
async fn each_kind_of_error_has_its_number_of_retries() {
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
        let fixture = EngineFixture::new((0..10).map(|_| fails(kind.clone())).collect());
        let ran = fixture.run().await;
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
        assert_eq!(fixture.provider.asked().len(), tries, "{kind:?}");
    }
}

#[tokio::test]
async fn a_retry_after_a_partial_stream_repeats_no_text_and_records_its_cost() {
    let cut = vec![
        Ok(Chunk::Text("Hello wo".into())),
        fails(ProviderErrorKind::Network {
            transient: true,
            sent: false,
        })
        .remove(0),
    ];
    let fixture = EngineFixture::new(vec![cut, says("Hello world")]);
    let ran = fixture.run().await;
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
    let mut fixture = EngineFixture::new(vec![fails(slow()), fails(slow()), says("late")]);
    fixture.options.budget.seconds = Some(150);
    let ran = fixture.run().await;
    assert_eq!(*ran.outcome(), Outcome::TimedOut);
    assert!(fixture.clock.monotonic() < 152 * SECOND);
}

#[tokio::test]
async fn an_answer_that_never_fits_its_schema_fails_and_one_that_does_at_last_completes() {
    let schema = serde_json::json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } });
    let mut fixture =
        EngineFixture::new(vec![says("not json"), says("{\"n\": \"x\"}"), says("{}")]);
    fixture.schema = Some(schema.clone());
    let ran = fixture.run().await;
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
    assert_eq!(fixture.provider.asked().len(), 3, "two repairs and no more");

    let mut fixture = EngineFixture::new(vec![says("```"), says(" {\"n\": 3}\n")]);
    fixture.schema = Some(schema);
    assert_eq!(*fixture.run().await.outcome(), Outcome::Completed);
}

#[tokio::test]
async fn a_model_switch_is_logged_with_a_warning_about_lost_abilities() {
    let mut fixture = EngineFixture::new(vec![says("one"), says("two")]);
    let session = fixture.open().await;
    fixture.run_in(&session).await;
    let id = session.id().clone();
    drop(session);
    fixture.model = "small";
    let blind = |model: &str| ModelFacts {
        images: model != "small",
        ..ModelFacts::default()
    };
    fixture.provider = fixture.provider.with_facts_of(blind);
    let session = fixture
        .engine()
        .open(OpenSession::Resume(id.clone()), RunMode::Full)
        .await
        .unwrap();
    fixture.run_in(&session).await;
    let lines = fixture.store.lines(&id).join("\n");
    assert!(
        lines.contains("\"kind\":\"model_switched\",\"data\":{\"from\":\"m\",\"to\":\"small\""),
        "{lines}"
    );
    assert!(lines.contains("lacks: images"), "{lines}");
    assert_eq!(
        session.with_history(|history| windlass_core::history::unpaired(&history.entries())),
        None
    );
}

/// The recorded model calls: input, output, and whether they are estimates.
async fn recorded(script: Vec<Vec<Result<Chunk, ProviderError>>>) -> Vec<(u64, u64, bool)> {
    let mut fixture = EngineFixture::new(script);
    fixture.provider = fixture.provider.with_facts(ModelFacts {
        max_output: RESERVED,
        ..ModelFacts::default()
    });
    let ran = fixture.run().await;
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
async fn the_recorded_usage_is_never_below_the_received_answer() {
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
        let recorded = recorded(vec![script]).await;
        let (input, output, estimated) = recorded[0];
        assert!(estimated && input > 0, "{name}: {recorded:?}");
        assert_eq!(output, expect, "{name}");
    }
    let honest = recorded(vec![ends_with(&text, Some((900, 1_000)))]).await;
    assert_eq!(honest, [(900, 1_000, false)]);
}

#[tokio::test]
async fn a_stream_above_its_maximum_is_cut() {
    let endless = || {
        (0..100_000)
            .map(|_| Ok(Chunk::Text("word ".into())))
            .collect()
    };
    let recorded = recorded(vec![endless(), endless()]).await;
    assert_eq!(recorded.len(), 2, "there are two attempts");
    for (_, output, _) in recorded {
        assert!((RESERVED..3 * RESERVED).contains(&output), "{output}");
    }
}
