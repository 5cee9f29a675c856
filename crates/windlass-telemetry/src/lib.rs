//! Traces and metrics of runs, by the OpenTelemetry conventions for generative AI: a fold of events into plain data, its
//! OTLP/JSON form, and a queue that hands it to a port in the background. It opens no connection, looks at no clock and
//! changes nothing global.
//!
//! A tour, in the order of one event: [`fold`] makes spans and points of it ([`span`], [`metric`]), with what was said
//! only where that is wished for ([`content`]); [`otlp`] writes them down; [`export`] keeps them until they are sent.

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
pub use span::{Kind, Span, SpanEvent, SpanId, Value};
