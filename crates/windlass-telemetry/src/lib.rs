//! Traces and metrics of runs, following the OpenTelemetry conventions for generative AI: a fold of events into plain
//! data, its OTLP/JSON encoding, and a queue that sends it through a port in the background. This crate opens no
//! connection, reads no clock and has no global state.
//!
//! The path of one event: [`fold`] turns it into spans and points ([`span`], [`metric`]), with the content of messages
//! only if that is enabled ([`content`]); [`otlp`] encodes them; [`export`] queues and sends them.

pub mod content;
pub mod export;
pub mod fold;
pub mod metric;
pub mod otlp;
pub mod span;

pub use export::{Exporter, Post, Signal};
pub use fold::{Finished, Options, Spans, provider_name};
pub use metric::{Meter, Point};
pub use otlp::Resource;
pub use span::{AttributeValue, Span, SpanEvent, SpanId, SpanKind};
