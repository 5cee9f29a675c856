//! The JSON encoding of OTLP: ids as hexadecimal digits, times as strings of nanoseconds, enums as numbers. It is written
//! by hand because it is small: the existing crates bring a second encoder and only accept sums that they computed.

use serde_json::{Value as Json, json};

use crate::metric::{Measure, Series};
use crate::span::{Attribute, AttributeValue, Span, SpanKind};

/// The attributes of the sender, which are part of every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The value of `service.name`.
    pub service: String,
    /// The value of `service.version`.
    pub version: String,
    /// The value of `service.instance.id`; a session has one writer at a time.
    pub instance: String,
}

/// A request with spans.
#[must_use]
pub fn traces(resource: &Resource, spans: &[Span]) -> Json {
    json!({ "resourceSpans": [{
        "resource": resource_attributes(resource),
        "scopeSpans": [{ "scope": scope(resource), "spans": spans.iter().map(span).collect::<Vec<_>>() }],
    }] })
}

/// A request with sums and histograms.
#[must_use]
pub fn metrics(resource: &Resource, series: &[Series]) -> Json {
    let metrics: Vec<Json> = Measure::ALL
        .into_iter()
        .filter_map(|measure| metric(measure, series))
        .collect();
    json!({ "resourceMetrics": [{
        "resource": resource_attributes(resource),
        "scopeMetrics": [{ "scope": scope(resource), "metrics": metrics }],
    }] })
}

/// A message about spans or points that the collector rejected although it accepted the request, from its response.
#[must_use]
pub fn rejected(answer: &[u8]) -> Option<String> {
    let answer: Json = serde_json::from_slice(answer).ok()?;
    let partial = answer.get("partialSuccess")?;
    let number = |name: &str| match partial.get(name)? {
        Json::String(text) => text.parse::<u64>().ok(),
        other => other.as_u64(),
    };
    let count = number("rejectedSpans")
        .or_else(|| number("rejectedDataPoints"))
        .filter(|count| *count > 0)?;
    let why = partial
        .get("errorMessage")
        .and_then(Json::as_str)
        .unwrap_or("without a reason");
    Some(format!(
        "it rejected {count}: {}",
        why.chars().take(200).collect::<String>()
    ))
}

fn resource_attributes(resource: &Resource) -> Json {
    json!({ "attributes": attributes(&[
        ("service.name", resource.service.as_str().into()),
        ("service.version", resource.version.as_str().into()),
        ("service.instance.id", resource.instance.as_str().into()),
    ]) })
}

fn scope(resource: &Resource) -> Json {
    json!({ "name": "windlass", "version": resource.version })
}

fn span(span: &Span) -> Json {
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Client => 3,
    };
    let mut one = json!({
        "traceId": span.trace,
        "spanId": span.id.to_string(),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.start),
        "endTimeUnixNano": nanos(span.end),
        "attributes": attributes(&span.attributes),
    });
    if let Some(parent) = span.parent {
        one["parentSpanId"] = parent.to_string().into();
    }
    if !span.events.is_empty() {
        let events = span.events.iter().map(|event| {
            json!({
                "timeUnixNano": nanos(event.at),
                "name": event.name,
                "attributes": attributes(&event.attributes),
            })
        });
        one["events"] = events.collect();
    }
    if span.dropped_events > 0 {
        one["droppedEventsCount"] = span.dropped_events.into();
    }
    if let Some(error) = &span.error {
        one["status"] = json!({ "code": 2, "message": span.detail.as_ref().unwrap_or(error) });
    }
    one
}

fn metric(measure: Measure, series: &[Series]) -> Option<Json> {
    let of: Vec<&Series> = series
        .iter()
        .filter(|series| series.measure == measure)
        .collect();
    if of.is_empty() {
        return None;
    }
    let point = |series: &Series| {
        json!({
            "attributes": attributes(&series.attributes),
            "startTimeUnixNano": nanos(series.start),
            "timeUnixNano": nanos(series.end),
        })
    };
    let mut metric = json!({ "name": measure.name(), "unit": measure.unit() });
    match measure.bounds() {
        Some(bounds) => {
            let points = of.iter().map(|series| {
                let mut point = point(series);
                point["count"] = series.count.to_string().into();
                point["sum"] = series.sum.into();
                point["min"] = series.min.into();
                point["max"] = series.max.into();
                point["bucketCounts"] = series.buckets.iter().map(u64::to_string).collect();
                point["explicitBounds"] = bounds.into();
                point
            });
            metric["histogram"] = json!({ "aggregationTemporality": DELTA, "dataPoints": points.collect::<Vec<_>>() });
        }
        None => {
            let points = of.iter().map(|series| {
                let mut point = point(series);
                point["asInt"] = (series.sum as i64).to_string().into();
                point
            });
            let points = points.collect::<Vec<_>>();
            metric["sum"] = json!({ "aggregationTemporality": DELTA, "isMonotonic": true, "dataPoints": points });
        }
    }
    Some(metric)
}

/// The temporality of sums that cover only the time since the last request.
const DELTA: u8 = 1;

fn attributes(all: &[Attribute]) -> Json {
    all.iter()
        .map(|(name, value)| json!({ "key": name, "value": any(value) }))
        .collect()
}

fn any(value: &AttributeValue) -> Json {
    match value {
        AttributeValue::Text(text) => json!({ "stringValue": text }),
        AttributeValue::Int(number) => json!({ "intValue": number.to_string() }),
        AttributeValue::Bool(yes) => json!({ "boolValue": yes }),
        AttributeValue::Texts(texts) => {
            let values: Vec<Json> = texts
                .iter()
                .map(|text| json!({ "stringValue": text }))
                .collect();
            json!({ "arrayValue": { "values": values } })
        }
    }
}

/// Nanoseconds since 1970 as a string; 0 for earlier times.
fn nanos(millis: i64) -> String {
    (u128::try_from(millis).unwrap_or(0) * 1_000_000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expect: Option<&str>) {
        assert_eq!(rejected(answer.as_bytes()).as_deref(), expect, "{answer}");
    }

    #[test]
    fn rejected_items_are_found_in_the_response() {
        check("", None);
        check("{}", None);
        check(r#"{"partialSuccess":{}}"#, None);
        check(r#"{"partialSuccess":{"rejectedSpans":"0"}}"#, None);
        check(
            r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#,
            Some("it rejected 3: too old"),
        );
        check(
            r#"{"partialSuccess":{"rejectedDataPoints":2}}"#,
            Some("it rejected 2: without a reason"),
        );
    }
}
