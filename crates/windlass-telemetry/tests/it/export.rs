//! Tests the export queue and its port: delivery, dropped spans, reported errors and waiting times.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_telemetry::{Exporter, Finished, Post, Signal, Span};

use crate::log::{eventful, fold};
use crate::schema;

/// A collector that records requests, or does not answer.
#[derive(Default)]
struct TestCollector {
    got: Mutex<Vec<(Signal, Value)>>,
    refuses: bool,
    hangs: bool,
}

impl TestCollector {
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

impl Post for TestCollector {
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

fn exporter(collector: &Arc<TestCollector>) -> Exporter {
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
async fn spans_arrive_at_the_end_of_a_run() {
    let collector = Arc::new(TestCollector::default());
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
async fn a_long_run_is_sent_while_it_is_running() {
    let collector = Arc::new(TestCollector::default());
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
async fn a_collector_that_hangs_delays_only_once_and_only_for_the_limit() {
    let collector = Arc::new(TestCollector {
        hangs: true,
        ..TestCollector::default()
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
async fn spans_beyond_the_limit_are_dropped_and_counted() {
    let collector = Arc::new(TestCollector {
        hangs: true,
        ..TestCollector::default()
    });
    let exporter = exporter(&collector);
    exporter.give(many(10_000));
    let told = exporter.flush(LIMIT).await.unwrap();
    assert_eq!(told, "the queue was full (10000 spans not delivered)");
}

#[tokio::test(start_paused = true)]
async fn an_error_is_reported_once_and_the_request_is_not_retried() {
    let collector = Arc::new(TestCollector {
        refuses: true,
        ..TestCollector::default()
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
