//! Checks that requests conform to the protocol: only its fields occur, ids are hexadecimal digits, 64-bit numbers are
//! strings.

use serde_json::{Value, json};
use windlass_telemetry::{Finished, Meter, Resource, otlp};

use crate::log::{eventful, fold};

pub(crate) fn resource() -> Resource {
    Resource {
        service: "windlass".into(),
        version: "0.1.0".into(),
        instance: "s1".into(),
    }
}

/// A JSON Schema of the used part of the protocol, without additional properties.
fn schema() -> Value {
    serde_json::from_str(include_str!("../otlp.schema.json")).unwrap()
}

#[track_caller]
pub(crate) fn check(request: &Value) {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let wrong: Vec<String> = validator
        .iter_errors(request)
        .map(|err| format!("{}: {err}", err.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{request}");
}

#[test]
fn requests_conform_to_the_protocol() {
    for content in [false, true] {
        let Finished { spans, points } = fold(&eventful(), content);
        let mut meter = Meter::default();
        points.into_iter().for_each(|point| meter.add(point));
        check(&otlp::traces(&resource(), &spans));
        check(&otlp::metrics(&resource(), &meter.take()));
    }
}

#[test]
fn the_schema_refuses_unknown_fields() {
    let spans = fold(&eventful(), false).spans;
    let whole = otlp::traces(&resource(), &spans);
    for (path, value) in [
        ("traceId", json!("zz")),
        ("kind", json!("CLIENT")),
        ("endTimeUnixNano", json!(5)),
        ("made_up", json!(1)),
    ] {
        let mut broken = whole.clone();
        broken["resourceSpans"][0]["scopeSpans"][0]["spans"][0][path] = value;
        assert!(!jsonschema::is_valid(&schema(), &broken), "{path}");
    }
}
