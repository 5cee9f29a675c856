use super::*;
use serde_json::{Value, json};

/// One line of each kind, as it stands in a log.
const LINES: &str = include_str!("../tests/events.jsonl");

#[test]
fn every_kind_round_trips_byte_for_byte() {
    for line in LINES.lines() {
        let event: Event = serde_json::from_str(line).unwrap_or_else(|err| panic!("{err}: {line}"));
        let again = serde_json::to_string(&event).unwrap_or_else(|err| panic!("{err}"));
        assert_eq!(again, line);
    }
}

#[test]
fn the_fixture_holds_every_kind_of_the_schema() {
    let schema = schema();
    let kinds = kinds_of(&schema);
    assert!(kinds.len() >= 38, "{kinds:?}");
    for kind in kinds {
        let needle = format!("\"kind\":\"{kind}\"");
        assert!(LINES.contains(&needle), "no line for {kind} in tests/events.jsonl");
    }
}

#[test]
fn the_schema_is_the_checked_in_one() {
    let checked_in: Value = serde_json::from_str(include_str!("../schema/event.json")).unwrap_or(Value::Null);
    assert!(checked_in == schema(), "the event schema changed: run `cargo xtask schema` and review the difference");
}

#[test]
fn an_event_without_a_known_kind_is_an_error() {
    let line = json!({"v":1,"seq":1,"at":"2026-11-15T00:00:00.000Z","session":"s","trace":"t","kind":"invented"});
    assert!(serde_json::from_value::<Event>(line).is_err());
}

fn kinds_of(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    fn walk(value: &Value, found: &mut Vec<String>) {
        if let Some(kind) = value.pointer("/properties/kind/const").and_then(Value::as_str) {
            found.push(kind.to_owned());
        }
        match value {
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            Value::Object(map) => map.values().for_each(|item| walk(item, found)),
            _ => {}
        }
    }
    walk(schema, &mut found);
    found.sort();
    found.dedup();
    found
}
