//! Exports the traces of a log through your own port:
//! `cargo run -p windlass-telemetry --example own_collector < events.jsonl`.
//! Embedders pass the events of a run handle to the same two functions, `apply` and `give`.
#![allow(clippy::print_stdout)]

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::BoxFuture;
use windlass_core::event::Event;
use windlass_telemetry::{Exporter, Options, Post, Resource, Signal, Spans};

/// Prints requests instead of sending them.
struct Printer;

impl Post for Printer {
    fn post<'a>(&'a self, signal: Signal, body: Vec<u8>) -> BoxFuture<'a, Result<(), String>> {
        println!("{} {}", signal.path(), String::from_utf8_lossy(&body));
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let resource = Resource {
        service: "mine".into(),
        version: "1".into(),
        instance: "one".into(),
    };
    let exporter = Exporter::start(Arc::new(Printer), resource);
    let mut spans = Spans::new(Options {
        content: false,
        provider: Some("anthropic".into()),
    });
    for line in std::io::stdin().lock().lines() {
        let event: Event = serde_json::from_str(&line?)?;
        exporter.give(spans.apply(&event));
    }
    exporter.give(spans.finish());
    match exporter.flush(Duration::from_secs(2)).await {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}
