//! The queue and its port: what arrives, what is dropped, what is told, and how long anybody waits.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_telemetry::{Exporter, Finished, Post, Signal, Span};

use crate::log::{eventful, fold};
use crate::schema;

/// A collector that keeps what it gets, or does not answer.
#[derive(Default)]
struct Collector {
    got: Mutex<Vec<(Signal, Value)>>,
    refuses: bool,
    hangs: bool,
}

impl Collector {
    fn spans(&self) -> usize {
        let got = self.got.lock();
        let of = |request: &Value| {
            request["resourceSpans"][0]["scopeSpans"][0]["spans"]
                .as_array()
                .map_or(0, Vec::len)
        };
        got.iter().map(|(_, request)| of(request)).sum()
    }
}

impl Post for Collector {
    fn post<'a>(&'a self, signal: Signal, body: Vec<u8>) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            self.got
                .lock()
                .push((signal, serde_json::from_slice(&body).unwrap()));
            if self.hangs {
                std::future::pending::<()>().await;
            }
            if self.refuses {
                Err("it refused".into())
            } else {
                Ok(())
            }
        })
    }
}

fn exporter(collector: &Arc<Collector>) -> Exporter {
    Exporter::start(collector.clone(), schema::resource())
}

fn many(count: usize) -> Finished {
    let one: Span = fold(&eventful(), false).spans.pop().unwrap();
    Finished {
        spans: vec![one; count],
        points: Vec::new(),
    }
}

const LIMIT: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn what_is_given_arrives_at_the_end_of_a_run() {
    let collector = Arc::new(Collector::default());
    let exporter = exporter(&collector);
    let finished = fold(&eventful(), false);
    let count = finished.spans.len();
    exporter.give(finished);
    assert_eq!(exporter.flush(LIMIT).await, None);
    let got = collector.got.lock().clone();
    assert_eq!(
        got.iter().map(|(signal, _)| *signal).collect::<Vec<_>>(),
        [Signal::Traces, Signal::Metrics]
    );
    got.iter().for_each(|(_, request)| schema::check(request));
    assert_eq!(collector.spans(), count);
    assert_eq!(exporter.flush(LIMIT).await, None);
    assert_eq!(
        collector.got.lock().len(),
        2,
        "nothing is sent when nothing came"
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_run_is_sent_while_it_goes_on() {
    let collector = Arc::new(Collector::default());
    let exporter = exporter(&collector);
    exporter.give(many(3));
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(collector.spans(), 3);
    exporter.give(many(600));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(collector.spans(), 603, "a full batch does not wait");
    assert!(collector.got.lock().len() >= 4, "and is not one request");
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_hangs_holds_nobody_up_for_longer_than_once_the_limit() {
    let collector = Arc::new(Collector {
        hangs: true,
        ..Collector::default()
    });
    let exporter = exporter(&collector);
    exporter.give(many(1));
    let began = tokio::time::Instant::now();
    let told = exporter.flush(LIMIT).await.unwrap();
    assert_eq!(
        told,
        "the collector did not answer within 2 s (1 spans not delivered)"
    );
    assert_eq!(began.elapsed(), LIMIT);
    exporter.give(many(1));
    assert_eq!(exporter.flush(LIMIT).await, None, "it is told once");
    assert!(
        began.elapsed() < LIMIT + Duration::from_millis(10),
        "the next run waits no more"
    );
    assert_eq!(collector.spans(), 1, "what came later waits its turn");
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_room_is_dropped_and_counted() {
    let collector = Arc::new(Collector {
        hangs: true,
        ..Collector::default()
    });
    let exporter = exporter(&collector);
    exporter.give(many(10_000));
    let told = exporter.flush(LIMIT).await.unwrap();
    assert_eq!(
        told,
        "more came than could be sent (10000 spans not delivered)"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_is_told_once_and_not_sent_again() {
    let collector = Arc::new(Collector {
        refuses: true,
        ..Collector::default()
    });
    let exporter = exporter(&collector);
    exporter.give(many(2));
    assert_eq!(
        exporter.flush(LIMIT).await.unwrap(),
        "it refused (2 spans not delivered)"
    );
    exporter.give(many(1));
    assert_eq!(exporter.flush(LIMIT).await, None);
    assert_eq!(collector.spans(), 3);
}
