use windlass_core::event::{Order, UnknownEvent, VERSION};
use windlass_core::id::TraceId;
use windlass_core::message::ErrorCategory;
use windlass_core::terms::Strategy;

use super::*;

fn event(kind: EventKind) -> Event {
    Event {
        v: VERSION,
        order: Order::Durable { seq: 1 },
        at: Timestamp::from_millis(0),
        session: "s1".parse().expect("an id"),
        run: None,
        trace: TraceId::fresh(0, 1),
        kind,
    }
}

fn call(name: &str, args: Value) -> ToolCall {
    ToolCall {
        id: CallId("1".to_owned()),
        name: name.to_owned(),
        args,
        malformed: None,
    }
}

#[track_caller]
fn check(name: &str, args: Value, shown: &str) {
    assert_eq!(describe_call(&call(name, args)), shown);
}

#[test]
fn a_call_is_described_by_its_subject() {
    check(
        "bash",
        json!({ "command": "ls\n-l", "path": "a" }),
        "$ ls (+1 line)",
    );
    check("bash", json!({ "poll": "1" }), "bash {\"poll\":\"1\"}");
    check(
        "notes",
        json!({ "action": "add", "text": "later" }),
        "notes later",
    );
    check(
        "Write",
        json!({ "file_path": "a.rs", "content": "x" }),
        "Write a.rs",
    );
    check(
        "apply_patch",
        json!({ "changes": [{ "path": "a" }, { "path": "b" }] }),
        "apply_patch a, b",
    );
    check("edit", json!({ "changes": [] }), "edit {\"changes\":[]}");
    check("list", json!({}), "list");
    check("a\nb", json!({}), "a⏎b");
}

#[test]
fn numbers_are_for_people() {
    assert_eq!(thousands(0), "0");
    assert_eq!(thousands(999), "999");
    assert_eq!(thousands(1_234_567), "1,234,567");
    assert_eq!(dollars(0), "$0.0000");
    assert_eq!(first_line("äöü\nx", 10), "äöü");
    assert_eq!(first_line("äöüäöü", 4), "äöü…");
}

#[test]
fn an_unknown_event_is_shown_everywhere() {
    let event = event(EventKind::Unknown(UnknownEvent {
        kind: "hook_ran".into(),
        data: json!({ "ms": 7 }),
    }));
    let line = Transcript::default().line(&event);
    assert_eq!(line.visibility, Visibility::Live);
    assert_eq!(line.summary(), "hook_ran: {\"ms\":7}");
    assert!(line.action.is_some());
}

#[test]
fn a_denied_call_is_named_once_with_its_reason() {
    let mut transcript = Transcript::default();
    let call = call("bash", json!({ "command": "rm x" }));
    let said = event(EventKind::said(Message::model(vec![Part::Call(
        call.clone(),
    )])));
    assert_eq!(transcript.line(&said).visibility, Visibility::Detail);
    let denied = event(EventKind::Denied {
        call: "1".into(),
        rule: "mode ask".into(),
        reason: "nobody is there".into(),
    });
    assert_eq!(
        transcript.line(&denied).summary(),
        "› $ rm x: not run: nobody is there (mode ask)"
    );
    let result = ToolResult::failed(&call, ErrorCategory::Denied, "denied");
    let finished = event(EventKind::CallFinished { result, ms: 0 });
    assert_eq!(transcript.line(&finished).visibility, Visibility::Detail);
}

#[test]
fn the_same_terms_are_shown_once() {
    let opened = event(EventKind::TransactionOpened {
        terms: Terms::unconfined(Strategy::InPlace),
        name: None,
    });
    let mut transcript = Transcript::default();
    assert_eq!(transcript.line(&opened).visibility, Visibility::Live);
    assert_eq!(transcript.line(&opened).visibility, Visibility::Record);
}
