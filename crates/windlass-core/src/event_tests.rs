use super::*;
use serde_json::{Value, json};

/// One line of each kind, as in a log.
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
        assert!(
            LINES.contains(&needle),
            "no line for {kind} in tests/events.jsonl"
        );
    }
}

#[test]
fn the_schema_is_the_checked_in_one() {
    let checked_in: Value =
        serde_json::from_str(include_str!("../schema/event.json")).unwrap_or(Value::Null);
    assert!(
        checked_in == schema(),
        "the event schema changed: run `cargo xtask schema` and review the difference"
    );
}

#[test]
fn an_unknown_kind_is_kept_and_written_as_it_was() {
    let rest = r#""at":"2026-11-15T00:00:00.000Z","session":"s","trace":"t""#;
    for data in [r#"{"b":[1,{"a":2}],"a":null}"#, "{}", "7"] {
        for kind in ["invented", "unknown"] {
            let line = format!(r#"{{"v":2,"seq":1,{rest},"kind":"{kind}","data":{data}}}"#);
            let event: Event =
                serde_json::from_str(&line).unwrap_or_else(|err| panic!("{err}: {line}"));
            assert_eq!(event.kind.name(), kind);
            assert_eq!(serde_json::to_string(&event).ok(), Some(line));
        }
    }
    // The data of a known kind has to be valid.
    let line = json!({"v":2,"seq":1,"at":"2026-11-15T00:00:00.000Z","session":"s","trace":"t","kind":"noted","data":{}});
    assert!(serde_json::from_value::<Event>(line).is_err());
}

#[test]
fn a_kind_has_the_name_that_stands_in_the_log() {
    for line in LINES.lines() {
        let event: Event = serde_json::from_str(line).unwrap_or_else(|err| panic!("{err}: {line}"));
        assert!(
            line.contains(&format!("\"kind\":\"{}\"", event.kind.name())),
            "{line}"
        );
        assert!(EventKind::is_known(event.kind.name()));
    }
}

#[test]
fn fields_may_come_in_any_order() {
    for line in LINES.lines() {
        let event: Event = serde_json::from_str(line).unwrap_or_else(|err| panic!("{err}: {line}"));
        let fields: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap_or_default();
        let reversed = Value::Object(fields.into_iter().rev().collect());
        assert_eq!(
            serde_json::from_str::<Event>(&reversed.to_string())
                .ok()
                .as_ref(),
            Some(&event),
            "{reversed}"
        );
        let read = read_line(&reversed.to_string(), |_| true);
        assert_eq!(read.ok(), Some(Line::Event(event.clone())), "{reversed}");
        let order = read_line(&reversed.to_string(), |_| false);
        assert_eq!(order.ok(), Some(Line::Skipped(event.order)), "{reversed}");
        assert_eq!(serde_json::from_value::<Event>(reversed).ok(), Some(event));
    }
}

#[test]
fn events_of_unwanted_kinds_are_skipped_but_validated() {
    for line in LINES.lines() {
        let event: Event = serde_json::from_str(line).unwrap_or_else(|err| panic!("{err}: {line}"));
        assert_eq!(
            read_line(line, |_| false).ok(),
            Some(Line::Skipped(event.order))
        );
        // A line that is cut off anywhere is invalid.
        for cut in (0..line.len()).filter(|cut| line.is_char_boundary(*cut)) {
            for wanted in [false, true] {
                assert!(
                    read_line(&line[..cut], |_| wanted).is_err(),
                    "{}",
                    &line[..cut]
                );
            }
        }
        assert!(read_line(&format!("{line} {{}}"), |_| false).is_err());
        assert!(read_line(&format!("{line} {{}}"), |_| true).is_err());
        assert_eq!(read_line(line, |_| true).ok(), Some(Line::Event(event)));
    }
}

#[track_caller]
fn check_line(line: &str, expect: &str) {
    let said = |wanted: bool| match read_line(line, |_| wanted) {
        Ok(Line::Event(_)) => "an event".to_owned(),
        Ok(Line::Skipped(order)) => format!("passed {:?}", order.seq()),
        Ok(Line::OtherVersion(v)) => format!("version {v}"),
        Err(err) => err.to_string(),
    };
    let (wanted, passed) = (said(true), said(false));
    assert!(
        wanted.contains(expect) || passed.contains(expect),
        "{wanted} / {passed}"
    );
    assert_eq!(
        wanted == passed,
        expect != "an event" && !expect.starts_with("passed"),
        "{wanted} / {passed}"
    );
}

#[test]
fn an_invalid_line_gives_a_precise_error() {
    let rest = r#""at":"2026-11-15T00:00:00.000Z","session":"s","trace":"t","kind":"noted","data":{"text":"x"}"#;
    check_line(&format!(r#"{{"v":2,"seq":7,{rest}}}"#), "an event");
    check_line(
        &format!(r#"{{"v":2,"seq":7,"run":null,"new_field":[1,{{}}],{rest}}}"#),
        "passed Some(7)",
    );
    check_line(&format!(r#"{{"v":3,"seq":7,{rest}}}"#), "version 3");
    check_line(&format!(r#"{{"v":99999,"seq":7,{rest}}}"#), "version 99999");
    check_line(r#"{"v":9,"all":"new"}"#, "version 9");
    check_line(r#"{"v":1,"seq":7,"kind":"noted","text":"x"}"#, "version 1");
    check_line(&format!(r#"{{{rest},"seq":7,"v":3}}"#), "version 3");
    check_line(
        &format!(r#"{{"v":2,"v":2,"seq":7,{rest}}}"#),
        "duplicate field `v`",
    );
    check_line(&format!(r#"{{"seq":7,{rest}}}"#), "missing field `v`");
    check_line(&format!(r#"{{"v":2,{rest}}}"#), "missing field `seq`");
    check_line(r#"{"v":2,"seq":7}"#, "missing field `at`");
    let head = r#""at":"2026-11-15T00:00:00.000Z","session":"s","trace":"t""#;
    check_line(
        &format!(r#"{{"v":2,"seq":7,{head}}}"#),
        "missing field `kind`",
    );
    check_line(
        &format!(r#"{{"v":2,"seq":7,{head},"kind":"noted"}}"#),
        "missing field `data`",
    );
    check_line("[]", "expected an event");
    check_line(&format!(r#"{{"v":2,"seq":07,{rest}}}"#), "invalid number");
    check_line(&format!(r#"{{"v":2,"seq":-7,{rest}}}"#), "invalid value");
    check_line(&format!(r#"{{"v":2,"seq":7,{rest}}} }}"#), "trailing");
    check_line(&format!(r#"{{"v":2,"seq":7,{rest},}}"#), "trailing comma");
    check_line(
        &format!(r#"{{"v":2,"after":7,"n":99999999999,{rest}}}"#),
        "expected u32",
    );
    check_line(
        &"{'v':2,'seq':7,'at':'2026-11-15T00:00:00.000Z','session':'s','trace':'a\tb','kind':'noted','data':{'text':'x'}}".replace('\'', "\""),
        "control character",
    );
    // A `kind` in a nested value is not the kind of the event.
    check_line(
        &format!(r#"{{"v":2,"x":{{"a":1,"kind":"said","data":{{}}}},"seq":7,{rest}}}"#),
        "an event",
    );
    check_line(
        &format!(r#"{{"v":2,"x":"a,\"kind\":\"said\"","seq":7,{rest}}}"#),
        "an event",
    );
    check_line(
        &format!(r#"{{"v":2,"seq":7,{rest},"kind":"said"}}"#),
        "duplicate field `kind`",
    );
}

#[test]
fn a_run_with_escapes_is_read() {
    let line = r#"{"v":2,"seq":7,"at":"2026-11-15T00:00:00.000Z","session":"s","run":"r\u0031","trace":"t","kind":"noted","data":{"text":"x"}}"#;
    let Ok(Line::Event(event)) = read_line(line, |_| true) else {
        panic!("{line}");
    };
    assert_eq!(event.run, Some(RunId::nth(1)));
}

#[test]
fn a_field_after_the_data_is_read() {
    let line = r#"{"v":2,"seq":7,"at":"2026-11-15T00:00:00.000Z","session":"s","trace":"t","kind":"noted","data":{"text":"x"},"run":"r1"}"#;
    let Ok(Line::Event(event)) = read_line(line, |_| true) else {
        panic!("{line}");
    };
    assert_eq!(event.run, Some(RunId::nth(1)));
    let skipped = read_line(line, |_| false).ok();
    assert_eq!(skipped, Some(Line::Skipped(event.order)));
}

#[test]
fn a_name_may_have_escapes() {
    let line = r#"{"v":2,"s\u0065q":7,"at":"2026-11-15T00:00:00.000Z","session":"s","trace":"t","kind":"not\u0065d","data":{"text":"x"}}"#;
    let wanted = read_line(line, |kind| kind == "noted");
    let Ok(Line::Event(event)) = wanted else {
        panic!("{wanted:?}");
    };
    assert_eq!(event.kind, EventKind::Noted { text: "x".into() });
    assert_eq!(serde_json::from_str(line).ok(), Some(event));
}

fn kinds_of(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    fn walk(value: &Value, found: &mut Vec<String>) {
        if let Some(kind) = value
            .pointer("/properties/kind/const")
            .and_then(Value::as_str)
        {
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
