use serde_json::{Value, json};
use windlass::core::event::Event;
use windlass::core::message::Part;

use super::*;

/// A log that is built event by event.
struct Log {
    conversation: Conversation,
    seq: u64,
    shown: Vec<String>,
}

impl Log {
    fn new() -> Self {
        let mut log = Self {
            conversation: Conversation::new(60),
            seq: 0,
            shown: Vec::new(),
        };
        let opened =
            json!({ "workspace": "/w", "runtime": "native", "model": "m", "program": "1" });
        log.event("session_opened", opened);
        log
    }

    fn apply(&mut self, order: Value, kind: &str, data: &Value) {
        let mut event = json!({
            "v": 2, "at": "2026-11-15T00:00:00.000Z", "session": "s1", "run": "r1", "trace": "t",
            "kind": kind, "data": data,
        });
        for (name, value) in order.as_object().unwrap() {
            event[name] = value.clone();
        }
        let event: Event = serde_json::from_value(event).unwrap();
        self.conversation.apply(&event);
        let finished = self.conversation.take_finished();
        let lines = finished.iter().flat_map(|block| &block.lines);
        self.shown
            .extend(lines.map(|line| line.plain().trim_end().to_owned()));
    }

    fn event(&mut self, kind: &str, data: Value) {
        self.seq += 1;
        self.apply(json!({ "seq": self.seq }), kind, &data);
    }

    fn delta(&mut self, text: &str) {
        let order = json!({ "after": self.seq, "n": 1 });
        self.apply(order, "delta", &json!({ "of": "text", "text": text }));
    }

    fn begin(&mut self, prompt: &str) {
        self.event("run_started", json!({ "prompt": Message::user(prompt) }));
    }

    fn said(&mut self, text: &str) {
        let message = Message {
            role: Role::Assistant,
            origin: Origin::Model,
            parts: vec![Part::Text { text: text.into() }],
        };
        self.event("said", json!({ "message": message }));
    }

    fn ask(&mut self, id: &str) {
        let about = json!({ "is": "question", "text": "which?" });
        self.event("asked", json!({ "ask": { "id": id, "about": about } }));
    }
}

#[test]
fn an_answer_is_shown_once_however_it_is_streamed() {
    let check = |deltas: &[&str], gap: bool, text: &str| {
        let mut log = Log::new();
        log.begin("hi");
        for (at, delta) in deltas.iter().enumerate() {
            log.delta(delta);
            if gap && at == 0 {
                log.conversation.lost_live_events();
            }
        }
        log.said(text);
        let expect = [" > hi", "", " One.", "", " Two."];
        assert_eq!(log.shown, expect, "{deltas:?} {gap}");
        assert_eq!(log.conversation.open_lines(0), []);
    };
    let whole = "One.\n\nTwo.";
    check(&[], false, whole);
    check(&[whole], false, whole);
    check(&["One.\n\nT", "wo."], false, whole);
    check(&["One.\n", "\nTw", "o."], false, whole);
    // Pieces after the first one were lost: the complete answer has them.
    check(&["One.\n\n", "wo."], true, whole);
}

#[test]
fn an_answer_that_was_streamed_differently_is_shown_completely() {
    let mut log = Log::new();
    log.begin("hi");
    log.delta("First try.\n\n");
    log.said("Second try.");
    assert_eq!(log.shown, [" > hi", "", " First try.", " Second try."]);
}

#[test]
fn a_call_is_one_line_with_its_result() {
    let mut log = Log::new();
    log.begin("hi");
    let call = json!({ "id": "c1", "name": "bash", "args": { "command": "make" } });
    log.event(
        "call_started",
        json!({ "call": call, "verdict": "allow", "rule": "r" }),
    );
    let open: Vec<String> = log
        .conversation
        .open_lines(0)
        .iter()
        .map(StyledLine::plain)
        .collect();
    assert_eq!(open, [" ○ Run make"]);
    log.event(
        "command_finished",
        json!({ "call": "c1", "end": { "is": "exited", "code": 2 }, "bytes": 4, "ms": 90 }),
    );
    let result = json!({ "id": "c1", "name": "bash", "text": "\u{1b}[31moops" });
    log.event("call_finished", json!({ "result": result, "ms": 100 }));
    let line = log.shown[2]
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert_eq!(line, "✗ Run make exit 2 · 100 ms");
    assert_eq!(log.shown[3].trim_start(), "[31moops");
}

#[test]
fn asks_and_queued_prompts_follow_the_log() {
    let mut log = Log::new();
    log.begin("hi");
    log.ask("a1-00000001");
    log.ask("a2-00000002");
    assert_eq!(log.conversation.asks.len(), 2);
    log.event(
        "answered",
        json!({ "ask": "a1-00000001", "answer": { "is": "once" }, "by": "person", "who": "phone" }),
    );
    assert_eq!(log.conversation.asks.len(), 1);
    let queued = |text: &str| json!({ "prompt": Message::user(text) });
    log.event("queued", queued("one"));
    log.event("queued", queued("two"));
    let (one, two) = (log.seq - 1, log.seq);
    log.event("queue_changed", json!({ "order": [two, one] }));
    let order: Vec<u64> = log.conversation.queue.iter().map(|one| one.seq).collect();
    assert_eq!(order, [two, one]);
    log.event("queue_changed", json!({ "order": [one] }));
    assert_eq!(log.conversation.queue.len(), 1);
}

#[test]
fn an_unknown_event_is_shown() {
    let mut log = Log::new();
    log.event("teleported", json!({ "to": "mars" }));
    assert!(
        log.shown.iter().any(|line| line.contains("teleported")),
        "{:?}",
        log.shown
    );
}
