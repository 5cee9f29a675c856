use crate::flags::SavedFlags;
use proptest::prelude::*;
use serde_json::json;

use super::entry::json_len;
use super::*;
use crate::clock::Timestamp;
use crate::event::{Order, VERSION};
use crate::id::{CallId, RunId, SessionId, TraceId};
use crate::message::{Origin, Role};
use crate::outcome::{FailReason, Outcome, RunSummary};

fn event(seq: u64, kind: EventKind) -> Event {
    let session: SessionId = "s".parse().unwrap_or_else(|err| panic!("{err}"));
    Event {
        v: VERSION,
        order: Order::Durable { seq },
        at: Timestamp::from_millis(0),
        session,
        run: Some(RunId::nth(1)),
        trace: TraceId::fresh(1, 2),
        kind,
    }
}

fn fold(kinds: Vec<EventKind>) -> History {
    let mut history = History::default();
    for (n, kind) in kinds.into_iter().enumerate() {
        history.apply(&event(n as u64 + 1, kind));
    }
    history
}

fn call(id: u8) -> ToolCall {
    ToolCall {
        id: CallId(format!("c{id}")),
        name: "t".into(),
        args: json!({}),
        malformed: None,
    }
}

fn said(ids: &[u8]) -> EventKind {
    let parts = ids.iter().map(|id| Part::Call(call(*id))).collect();
    EventKind::said(Message {
        role: Role::Assistant,
        origin: Origin::Model,
        parts,
    })
}

fn finished(id: u8) -> EventKind {
    let result = ToolResult {
        id: CallId(format!("c{id}")),
        name: "t".into(),
        text: format!("r{id}"),
        error: None,
        artifact: None,
    };
    EventKind::CallFinished { result, ms: 0 }
}

fn started() -> EventKind {
    EventKind::RunStarted {
        prompt: Message::user("go"),
        queued: None,
        flags: SavedFlags::default(),
    }
}

fn ended() -> EventKind {
    EventKind::RunFinished(RunSummary {
        outcome: Outcome::failed(FailReason::Interrupted, "x"),
        files: vec![],
        totals: Spent {
            steps: 2,
            ..Spent::default()
        },
        ms: 0,
        evidence: vec![],
        judge_changed: vec![],
        limits: None,
        transaction: None,
        output: None,
    })
}

#[test]
fn results_are_one_message_in_call_order_however_they_finish() {
    let history = fold(vec![
        started(),
        said(&[1, 2, 3]),
        finished(3),
        finished(1),
        finished(2),
    ]);
    let entries = history.entries();
    let texts: Vec<_> = entries[2]
        .parts
        .iter()
        .map(|part| match part {
            Part::Result(result) => result.text.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts, ["r1", "r2", "r3"]);
    assert_eq!(unpaired(&entries), None);
}

#[test]
fn messages_wait_for_the_results_of_open_calls() {
    let words = || EventKind::said(Message::assistant("meanwhile"));
    let shape = |history: &History| -> Vec<String> {
        let part = |part: &Part| match part {
            Part::Text { text } => text.clone(),
            Part::Call(call) => call.id.0.clone(),
            Part::Result(result) => result.text.clone(),
            _ => String::new(),
        };
        history
            .entries()
            .iter()
            .map(|entry| entry.parts.iter().map(part).collect::<Vec<_>>().join(" "))
            .collect()
    };
    let mut kinds = vec![
        started(),
        said(&[1]),
        words(),
        said(&[2, 3]),
        finished(3),
        finished(2),
    ];
    assert_eq!(shape(&fold(kinds.clone())), ["go", "c1"]);
    kinds.push(finished(1));
    assert_eq!(
        shape(&fold(kinds)),
        ["go", "c1", "r1", "meanwhile", "c2 c3", "r2 r3"]
    );
    let cut = fold(vec![
        started(),
        said(&[1]),
        said(&[2]),
        finished(2),
        ended(),
    ]);
    assert_eq!(shape(&cut).len(), 5, "{:?}", shape(&cut));
    assert_eq!(shape(&cut)[4], "r2");
}

#[test]
fn a_dangling_call_says_whether_it_may_have_happened() {
    let begun = EventKind::CallStarted {
        call: call(2),
        verdict: Some(crate::gate::Verdict::Allow),
        rule: "r".into(),
    };
    let history = fold(vec![
        started(),
        said(&[1, 2, 3]),
        finished(1),
        begun,
        ended(),
        started(),
    ]);
    let entries = history.entries();
    assert_eq!(unpaired(&entries), None);
    let Part::Result(second) = &entries[2].parts[1] else {
        panic!("no result")
    };
    let Part::Result(third) = &entries[2].parts[2] else {
        panic!("no result")
    };
    assert!(
        second.text.contains("it may have happened"),
        "{}",
        second.text
    );
    assert!(third.text.contains("not run, because"), "{}", third.text);
    assert_eq!(history.total().steps, 2);
}

#[test]
fn the_phase_follows_the_log() {
    assert_eq!(fold(vec![]).phase(), Phase::Idle);
    assert_eq!(fold(vec![started()]).phase(), Phase::Running);
    assert_eq!(fold(vec![started(), ended()]).phase(), Phase::Idle);
    assert_eq!(
        fold(vec![started(), EventKind::SessionClosed {}]).phase(),
        Phase::Ended
    );
}

#[test]
fn appending_copies_nothing_unless_the_list_is_shared() {
    let mut history = fold(vec![started()]);
    let before = Arc::as_ptr(&history.entries());
    history.apply(&event(2, said(&[])));
    history.apply(&event(3, EventKind::said(Message::assistant("x"))));
    assert_eq!(before, Arc::as_ptr(&history.entries()));
}

fn any_kind() -> impl Strategy<Value = EventKind> {
    prop_oneof![
        Just(started()),
        Just(ended()),
        proptest::collection::btree_set(0_u8..6, 0..4)
            .prop_map(|ids| said(&ids.into_iter().collect::<Vec<_>>())),
        (0_u8..6).prop_map(finished),
        Just(EventKind::said(Message::internal("nudge"))),
        Just(EventKind::Cleared {}),
        Just(EventKind::QueueChanged { order: vec![2, 1] }),
        Just(EventKind::Paused {
            reason: crate::pause::PauseReason::Shutdown,
            run_ms: 1,
        }),
    ]
}

proptest! {
    /// For any order of events, the messages for the model after the next prompt are paired.
    #[test]
    fn no_list_ever_has_a_call_without_its_result(kinds in proptest::collection::vec(any_kind(), 0..40)) {
        let mut kinds = kinds;
        kinds.push(started());
        prop_assert_eq!(unpaired(&fold(kinds).entries()), None);
    }

    /// The prefix is stable: later events never change a message that is already in the list, unless the user clears
    /// the conversation.
    #[test]
    fn messages_are_only_ever_appended(kinds in proptest::collection::vec(any_kind(), 1..40)) {
        let mut history = History::default();
        let mut seen: Vec<Message> = Vec::new();
        for (n, kind) in kinds.into_iter().enumerate() {
            if kind == (EventKind::Cleared {}) && history.open_run().is_none() {
                seen.clear();
            }
            history.apply(&event(n as u64 + 1, kind));
            let now: Vec<Message> = history.entries().iter().map(|entry| (**entry).clone()).collect();
            prop_assert!(now.starts_with(&seen));
            seen = now;
        }
    }
}

/// The whole state of a history as text.
fn in_full(history: &History) -> String {
    let open: Vec<_> = history.open.iter().map(|open| &open.call.id).collect();
    let asks = (history.asks.len(), history.ask_count(), history.phase());
    format!(
        "{} {open:?} {asks:?} {:?}",
        serde_json::to_string(history).expect("a history"),
        history.open_run().map(|run| &run.id)
    )
}

proptest! {
    #[test]
    fn a_snapshot_and_the_events_after_it_give_the_same(
        kinds in proptest::collection::vec(any_kind(), 1..60),
        at in any::<prop::sample::Index>(),
    ) {
        let events: Vec<Event> = (1..).zip(kinds).map(|(seq, kind)| event(seq, kind)).collect();
        let (mut whole, mut part) = (History::default(), History::default());
        for (index, event) in events.iter().enumerate() {
            whole.apply(event);
            part.apply(event);
            if index >= at.index(events.len()) && part.is_idle() {
                let mut bytes = Vec::new();
                part.save(&mut bytes).expect("a history");
                part = History::restore(&mut bytes.as_slice()).expect("a history");
            }
        }
        prop_assert_eq!(in_full(&whole), in_full(&part));
    }
}

#[test]
fn a_snapshot_of_another_version_is_ignored() {
    let mut bytes = Vec::new();
    fold(vec![started(), ended()])
        .save(&mut bytes)
        .expect("a history");
    let text = String::from_utf8(bytes).expect("a history");
    assert!(History::restore(&mut text.as_bytes()).is_some());
    let other = text.replacen("[2,", "[3,", 1);
    assert!(History::restore(&mut other.as_bytes()).is_none());
    assert!(History::restore(&mut &text.as_bytes()[..20]).is_none());
}

#[test]
fn no_snapshot_is_taken_of_an_open_run() {
    let history = fold(vec![started()]);
    assert!(!history.is_idle());
    assert!(history.save(&mut Vec::new()).is_err());
}

#[test]
fn events_that_are_not_needed_change_nothing() {
    // In the middle of a run, where most events would have an effect.
    let middle = || {
        let begun = EventKind::CallStarted {
            call: call(1),
            verdict: Some(crate::gate::Verdict::Allow),
            rule: "r".into(),
        };
        fold(vec![started(), said(&[1, 2]), begun])
    };
    let seen = |history: &History| {
        let open: Vec<String> = history
            .open_calls()
            .map(|open| format!("{open:?}"))
            .collect();
        let entries: Vec<Message> = history
            .entries()
            .iter()
            .map(|entry| Message::clone(entry))
            .collect();
        let rest = (
            history.facts.clone(),
            history.queue.clone(),
            history.run.clone(),
            history.asks.clone(),
        );
        (
            open,
            entries,
            rest,
            history.phase(),
            history.run_spent(),
            history.total(),
            history.notes().to_owned(),
        )
    };
    assert_eq!(UNUSED.iter().find(|kind| !EventKind::is_known(kind)), None);
    for line in include_str!("../tests/events.jsonl").lines() {
        let event: Event = serde_json::from_str(line).unwrap_or_else(|err| panic!("{err}: {line}"));
        let kind = event.kind.name();
        let mut history = middle();
        history.apply(&event);
        assert!(
            History::needs(kind) || seen(&history) == seen(&middle()),
            "{kind} changes something"
        );
    }
}

#[test]
fn json_len_is_the_length_of_the_serialized_value() {
    let ascii: String = (0..=127_u8).map(char::from).collect();
    for value in [
        serde_json::json!({ "path": "a\"b\n", "n": [1, 2.5, null, true, false, -7], "é": {} }),
        serde_json::json!([[], [1e300, u64::MAX], { "a": { "b\\": "€" } }]),
        ascii.into(),
    ] {
        assert_eq!(json_len(&value), value.to_string().len());
    }
}

#[test]
fn a_fork_does_not_resume_the_session_of_the_foreign_agent() {
    let began = EventKind::IterationStarted {
        iteration: 1,
        foreign_session: Some("codex:t1".into()),
    };
    let from: SessionId = "other".parse().unwrap_or_else(|err| panic!("{err}"));
    let mut history = fold(vec![started(), began, ended()]);
    assert_eq!(history.foreign_session(), Some("codex:t1"));
    history.apply(&event(4, EventKind::Forked { from, at_seq: 3 }));
    assert_eq!(history.foreign_session(), None);
}

#[test]
fn a_cleared_conversation_starts_anew_and_keeps_totals_and_queue() {
    let noted = EventKind::Noted { text: "n".into() };
    let began = EventKind::IterationStarted {
        iteration: 1,
        foreign_session: Some("codex:t1".into()),
    };
    let queued = EventKind::Queued {
        prompt: Message::user("later"),
        steer: false,
        flags: SavedFlags::default(),
        by: None,
        key: None,
    };
    let words = EventKind::said(Message::assistant("an answer"));
    let before = vec![started(), began, noted, words, queued, ended()];
    let mut history = fold([before, vec![EventKind::Cleared {}]].concat());
    assert!(history.entries().is_empty());
    assert_eq!((history.held(), history.notes()), (0, ""));
    assert_eq!(history.foreign_session(), None);
    assert_eq!(history.facts(), &WorkRecord::default());
    assert_eq!((history.runs(), history.total().steps), (1, 2));
    assert_eq!(history.queue().all().len(), 1);
    assert!(history.last_outcome().is_some());
    history.apply(&event(8, started()));
    assert_eq!(history.entries().len(), 1);
    // The calls of an open run need their messages.
    history.apply(&event(9, EventKind::Cleared {}));
    assert_eq!(history.entries().len(), 1);
}
