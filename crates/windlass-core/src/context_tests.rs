use crate::flags::SavedFlags;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::clock::Timestamp;
use crate::event::{Event, EventKind, Order, VERSION};
use crate::gate::Verdict;
use crate::history::{History, unpaired};
use crate::id::{ArtifactId, CallId, RunId, SessionId, TraceId};
use crate::message::{ArtifactRef, ToolCall};
use crate::outcome::{FailReason, Outcome, RunSummary};
use crate::workspace::{Change, FileChange, ProcessEnd};

/// A session that is written and folded at the same time.
#[derive(Default)]
struct RecordedSession {
    log: Vec<Event>,
    history: History,
    calls: u32,
    open: Vec<ToolCall>,
}

impl RecordedSession {
    fn emit(&mut self, kind: EventKind) {
        let session: SessionId = "s".parse().unwrap_or_else(|err| panic!("{err}"));
        let event = Event {
            v: VERSION,
            order: Order::Durable {
                seq: self.log.len() as u64 + 1,
            },
            at: Timestamp::from_millis(0),
            session,
            run: Some(RunId::nth(1)),
            trace: TraceId::fresh(1, 2),
            kind,
        };
        self.history.apply(&event);
        self.log.push(event);
    }

    fn prompt(&mut self, text: String) {
        self.open.clear();
        self.emit(EventKind::RunStarted {
            prompt: Message::user(text),
            queued: None,
            flags: SavedFlags::default(),
        });
    }

    fn answer(&mut self, text: &str, calls: usize) {
        let mut message = Message::assistant(text);
        self.open.clear();
        for _ in 0..calls {
            self.calls += 1;
            let id = CallId(format!("c{}", self.calls));
            let args = json!({ "path": format!("src/{}.rs", self.calls % 7) });
            self.open.push(ToolCall {
                id,
                name: "look".into(),
                args,
                malformed: None,
            });
        }
        message
            .parts
            .extend(self.open.iter().cloned().map(Part::Call));
        self.emit(EventKind::said(message));
    }

    fn begin(&mut self) {
        if let Some(call) = self.open.first().cloned() {
            self.emit(EventKind::CallStarted {
                call,
                verdict: Some(Verdict::Allow),
                rule: "r".into(),
            });
        }
    }

    fn finish(&mut self, text: String) {
        if self.open.is_empty() {
            return;
        }
        let call = self.open.remove(0);
        let result = ToolResult {
            id: call.id,
            name: call.name,
            text,
            error: None,
            artifact: None,
        };
        self.emit(EventKind::CallFinished { result, ms: 0 });
    }

    /// Appends one complete step.
    fn step(&mut self, result: String) {
        self.answer("I look", 1);
        self.begin();
        self.finish(result);
    }

    fn end(&mut self) {
        self.open.clear();
        self.emit(EventKind::RunFinished(RunSummary {
            outcome: Outcome::failed(FailReason::Interrupted, "x"),
            files: vec![],
            totals: crate::budget::Spent::default(),
            ms: 0,
            evidence: vec![],
            judge_changed: vec![],
            limits: None,
            transaction: None,
            output: None,
        }));
    }

    fn compact(&mut self, how: CompactionMode, room: usize) -> bool {
        let Some(compaction) = self.history.compaction(how, room) else {
            return false;
        };
        self.emit(EventKind::Compacted { compaction });
        true
    }

    fn messages(&self) -> Vec<Message> {
        self.history
            .entries()
            .iter()
            .map(|entry| Message::clone(entry))
            .collect()
    }

    fn bytes(&self) -> usize {
        self.history.entries().iter().map(Entry::bytes).sum()
    }

    fn last(&self) -> &Compaction {
        let found = self.log.iter().rev().find_map(|event| match &event.kind {
            EventKind::Compacted { compaction } => Some(compaction),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("nothing was compacted"))
    }
}

fn folded(log: &[Event]) -> Vec<Message> {
    let mut history = History::default();
    log.iter().for_each(|event| history.apply(event));
    texts(&history)
}

#[test]
fn the_reserve_is_a_fifth_but_neither_too_little_nor_more_than_half() {
    for (window, expect) in [
        (200_000, 40_000),
        (1_000_000, 200_000),
        (64_000, 16_000),
        (32_000, 16_000),
        (8_000, 4_000),
        (0, 0),
    ] {
        assert_eq!(reserve(window), expect, "{window}");
    }
}

#[test]
fn old_large_results_are_shortened_first_and_nothing_else_changes() {
    let mut live = RecordedSession::default();
    live.prompt("go".into());
    for n in 0..10 {
        live.step(format!("begin{n} {} end{n}", "x".repeat(8_000)));
    }
    assert!(live.compact(CompactionMode::Fit(CompactionCause::Window), 60_000));
    let last = live.last();
    assert_eq!((last.summary.as_str(), last.kept_from), ("", 1));
    assert_eq!(last.left_out.len(), 1);
    assert_eq!(
        (last.left_out[0].what.as_str(), last.left_out[0].count),
        ("parts of results of look", 6)
    );
    let results: Vec<String> = live
        .messages()
        .iter()
        .filter_map(|message| match message.parts.first() {
            Some(Part::Result(result)) => Some(result.text.clone()),
            _ => None,
        })
        .collect();
    for (n, text) in results.iter().enumerate() {
        assert_eq!(text.contains("make the call again"), n < 6, "{n}");
        assert!(
            text.starts_with(&format!("begin{n}")) && text.ends_with(&format!("end{n}")),
            "{n}"
        );
    }
    assert!(live.bytes() <= 60_000);
}

#[test]
fn if_shortening_is_not_enough_a_summary_replaces_the_oldest_steps() {
    let mut live = RecordedSession::default();
    live.prompt("first words".into());
    for n in 0..60 {
        live.step(format!("{n} {}", "x".repeat(1_500)));
        if n == 20 {
            live.end();
            live.prompt("second words".into());
        }
    }
    let change = FileChange {
        path: "src/a.rs".into(),
        change: Change::Modified,
        added: Some(3),
        removed: Some(1),
        diff: None,
    };
    live.emit(EventKind::FileChanged {
        call: Some("c1".into()),
        change,
        swap: None,
    });
    live.emit(EventKind::CommandStarted {
        call: "c9".into(),
        command: "cargo test".into(),
    });
    let end = ProcessEnd::Exited { code: 101 };
    live.emit(EventKind::CommandFinished {
        call: "c9".into(),
        end,
        bytes: 1,
        ms: 1,
    });
    assert!(live.compact(CompactionMode::Fit(CompactionCause::Window), 40_000));
    let messages = live.messages();
    let texts: Vec<String> = messages.iter().take(3).map(Message::text).collect();
    assert_eq!(&texts[..2], ["first words", "second words"]);
    for piece in [
        "## Goal",
        "## Progress",
        "## Files changed",
        "src/a.rs (+3 -1)",
        "src/2.rs",
        "`cargo test`: exit 101",
    ] {
        assert!(texts[2].contains(piece), "{piece}: {}", texts[2]);
    }
    assert!(texts[2].contains("results of look"), "{}", texts[2]);
    assert_eq!(messages[3].role, Role::Assistant);
    assert!(
        live.bytes() <= 40_000 && live.bytes() > 15_000,
        "{}",
        live.bytes()
    );
    // The next summary replaces this one and includes the earlier facts.
    for n in 0..60 {
        live.step(format!("{n} {}", "y".repeat(1_500)));
    }
    assert!(live.compact(CompactionMode::Fit(CompactionCause::Window), 40_000));
    let summaries = live
        .history
        .entries()
        .iter()
        .filter(|entry| entry.is_summary())
        .count();
    assert_eq!(summaries, 1);
    assert!(live.messages()[2].text().contains("src/a.rs (+3 -1)"));
    assert_eq!(folded(&live.log), live.messages());
}

#[test]
fn the_last_steps_or_none_at_all_may_be_kept() {
    let mut live = RecordedSession::default();
    live.prompt("go".into());
    for n in 0..6 {
        live.step(format!("result {n}"));
    }
    let mut other = RecordedSession {
        history: History::default(),
        ..RecordedSession::default()
    };
    for event in &live.log {
        other.emit(event.kind.clone());
    }
    assert!(live.compact(CompactionMode::Last(2), 1 << 20));
    let roles: Vec<Role> = live.messages().iter().map(|message| message.role).collect();
    assert_eq!(
        roles,
        [
            Role::User,
            Role::User,
            Role::Assistant,
            Role::Tool,
            Role::Assistant,
            Role::Tool
        ]
    );
    assert!(
        !live.compact(CompactionMode::Last(2), 1 << 20),
        "there is nothing more to leave out"
    );
    assert!(other.compact(CompactionMode::Summary, 1 << 20));
    let roles: Vec<Role> = other
        .messages()
        .iter()
        .map(|message| message.role)
        .collect();
    assert_eq!(roles, [Role::User, Role::User]);
}

#[test]
fn user_messages_that_do_not_fit_are_shortened_oldest_first() {
    let mut live = RecordedSession::default();
    for n in 0..40 {
        live.prompt(format!("prompt {n} {}", "é".repeat(1_000)));
        live.step("ok".into());
        live.end();
    }
    live.prompt("the newest".into());
    assert!(live.compact(CompactionMode::Fit(CompactionCause::Window), 24_000));
    let messages = live.messages();
    let words: Vec<String> = messages
        .iter()
        .filter(|message| message.origin == Origin::Person)
        .map(Message::text)
        .collect();
    assert!(
        words[0].starts_with("prompt 0 é"),
        "the first prompt stays: {}",
        words[0]
    );
    assert_eq!(words.last().map(String::as_str), Some("the newest"));
    let whole = words
        .iter()
        .filter(|text| text.len() > 2_000 && !text.contains("left out"))
        .count();
    assert!(whole >= 2, "the newest stay whole: {whole}");
    assert!(live.bytes() <= 24_000, "{}", live.bytes());
    assert!(
        live.last()
            .left_out
            .iter()
            .any(|row| row.what.contains("messages of yours")),
        "{:?}",
        live.last()
    );
    assert_eq!(folded(&live.log), messages);
}

#[test]
fn omitted_user_messages_are_listed_and_the_summary_does_not_claim_otherwise() {
    let mut live = RecordedSession::default();
    for n in 0..400 {
        live.prompt(format!("short wish {n}"));
        live.step("x".repeat(100));
    }
    assert!(live.compact(CompactionMode::Fit(CompactionCause::Window), 8_192));
    let last = live.last();
    let gone = last
        .left_out
        .iter()
        .find(|row| row.what == "older messages of yours")
        .map_or(0, |row| row.count);
    let held = live
        .history
        .entries()
        .iter()
        .filter(|entry| is_words(entry))
        .count() as u64;
    assert!(
        gone > 0 && gone + held == 400,
        "{gone} of 400 are gone, {held} are there"
    );
    assert!(
        !last.summary.contains("are as they were written"),
        "{}",
        last.summary
    );
}

#[test]
fn a_summary_without_a_model_keeps_the_earlier_prose() {
    let facts = WorkRecord {
        notes: "a note".into(),
        ..WorkRecord::default()
    };
    let [goal, progress, next] = ["ship it", "half is done", "write tests"].map(str::to_owned);
    let sections = Sections {
        goal,
        progress,
        next,
        ..Sections::default()
    };
    let text = write(
        &sections,
        &facts,
        &[LeftOut {
            what: "answers".into(),
            count: 1,
            bytes: 1,
        }],
        64 << 10,
    );
    let before = [
        Entry::new(Message::user("hello")),
        Entry::summary(3, Message::internal(text)),
    ];
    let known = Sections::known(&before, &facts);
    assert_eq!(
        (known.goal.as_str(), known.progress.as_str()),
        ("ship it", "half is done")
    );
    assert_eq!(
        known.next,
        Sections::of(&facts).next,
        "what was next then is not next now"
    );
    assert_eq!(Sections::known(&before[..1], &facts), Sections::of(&facts));
}

#[test]
fn a_list_never_begins_with_an_answer() {
    let mut live = RecordedSession::default();
    live.prompt("go".into());
    live.step("one".into());
    live.step("two".into());
    // This compaction omits even the first prompt and has no summary.
    let clipped = Some(Clip {
        before: 99,
        keep: 0,
        first: 0,
    });
    let kept_from = live.history.entries()[3].seq();
    live.emit(EventKind::Compacted {
        compaction: Compaction {
            kept_from,
            clipped,
            ..Compaction::default()
        },
    });
    let roles: Vec<Role> = live.messages().iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool]);
}

#[test]
fn a_shortened_result_tells_how_to_get_the_rest_and_splits_no_character() {
    let artifact = Some(ArtifactRef {
        id: ArtifactId::nth(1, 2),
        bytes: 9,
    });
    let text = "ü".repeat(4_000);
    let result = ToolResult {
        id: "c".into(),
        name: "t".into(),
        text,
        error: None,
        artifact,
    };
    let stub = stub(
        &result,
        Shrink {
            before: 9,
            over: 2_048,
            keep: 601,
        },
    )
    .unwrap_or_default();
    assert!(
        stub.contains("artifact:f1-00000002") && stub.len() < 1_200,
        "{stub}"
    );
    let short = ToolResult {
        text: "x".repeat(2_048),
        ..result.clone()
    };
    assert_eq!(
        super::stub(
            &short,
            Shrink {
                before: 9,
                over: 2_048,
                keep: 600
            }
        ),
        None
    );
    assert_eq!(
        super::stub(
            &result,
            Shrink {
                before: 9,
                over: 0,
                keep: u64::MAX
            }
        ),
        None,
        "never longer than it was"
    );
}

#[test]
fn a_models_summary_is_read_by_its_headings() {
    let text = "preface\n## Goal\nship it\n### Decisions:\n- A\n# Next\nrest\n## Own heading\nmore";
    let sections = Sections::parse(text).unwrap_or_default();
    assert_eq!(
        (sections.goal.as_str(), sections.progress.as_str()),
        ("ship it", "preface")
    );
    assert_eq!(
        (sections.decisions.as_str(), sections.next.as_str()),
        ("- A", "rest\n## Own heading\nmore")
    );
    assert_eq!(Sections::parse(" \n## Goal\n \n"), None);
    let long = Sections::parse(&"y".repeat(1 << 20)).unwrap_or_default();
    assert!(long.progress.len() < 4_100);
    let facts = WorkRecord {
        notes: "n".repeat(1 << 20),
        ..WorkRecord::default()
    };
    assert!(write(&long, &facts, &[], usize::MAX).len() <= MAX_SUMMARY + 8);
    assert!(write(&long, &facts, &[], 10_000).len() <= 2_510);
}

#[test]
fn a_log_that_is_larger_than_memory_is_folded_within_a_bound() {
    let (most, mut held) = (200_000, 0);
    let mut live = RecordedSession::default();
    live.prompt("the first prompt".into());
    let mut history = History::default();
    for n in 0..2_000 {
        live.step(format!("{n} {}", "x".repeat(1_000)));
    }
    for event in &live.log {
        history.apply(event);
        history.bound(most);
        held = held.max(history.held());
    }
    assert!(held <= most + 10_000, "{held}");
    let entries = history.entries();
    assert_eq!(unpaired(&entries), None);
    assert_eq!(entries[0].text(), "the first prompt");
    assert!(entries[1].is_summary());
    assert!(entries.len() > 50 && entries.last().is_some_and(|last| last.seq() > 5_000));
    // Once the compaction is logged, folding the log gives the same messages.
    let (before, compaction) = (
        texts(&history),
        history.bounded().cloned().unwrap_or_default(),
    );
    live.emit(EventKind::Compacted { compaction });
    history.apply(&live.log[live.log.len() - 1]);
    assert_eq!(texts(&history), before);
}

fn texts(history: &History) -> Vec<Message> {
    history
        .entries()
        .iter()
        .map(|entry| Message::clone(entry))
        .collect()
}

#[test]
fn the_same_compaction_twice_changes_nothing() {
    let mut live = RecordedSession::default();
    for n in 0..10 {
        live.prompt(format!("prompt {n} {}", "p".repeat(4_000)));
        live.step("r".repeat(5_000));
    }
    assert!(live.compact(CompactionMode::Fit(CompactionCause::Window), 30_000));
    assert!(
        live.last().clipped.is_some_and(|clip| clip.keep > 0),
        "{:?}",
        live.last().clipped
    );
    let (before, compaction) = (live.messages(), live.last().clone());
    live.emit(EventKind::Compacted { compaction });
    assert_eq!(live.messages(), before);
}

/// A random action in a session.
#[derive(Debug, Clone)]
enum RandomAction {
    Prompt(usize),
    Answer(usize),
    Begin,
    Finish(usize),
    Nudge,
    Steer,
    End,
    Compact(u8, usize),
    Hostile(u64, bool, u64),
}

fn any_action() -> impl Strategy<Value = RandomAction> {
    prop_oneof![
        2 => prop_oneof![4 => 1_usize..200, 1 => 200_usize..6_000].prop_map(RandomAction::Prompt),
        6 => (0_usize..4).prop_map(RandomAction::Answer),
        4 => Just(RandomAction::Begin),
        9 => prop_oneof![2 => 0_usize..100, 2 => 2_000_usize..9_000].prop_map(RandomAction::Finish),
        1 => Just(RandomAction::Nudge),
        1 => Just(RandomAction::Steer),
        1 => Just(RandomAction::End),
        2 => (0_u8..4, prop_oneof![Just(0_usize), 1_000_usize..40_000]).prop_map(|(how, room)| RandomAction::Compact(how, room)),
        1 => (0_u64..200, any::<bool>(), 0_u64..4_000).prop_map(|(from, said, keep)| RandomAction::Hostile(from, said, keep)),
    ]
}

fn act(live: &mut RecordedSession, next: RandomAction, n: usize) {
    match next {
        RandomAction::Prompt(len) => live.prompt(format!("prompt {n} {}", "p".repeat(len))),
        RandomAction::Answer(calls) => live.answer("hm", calls),
        RandomAction::Begin => live.begin(),
        RandomAction::Finish(len) => live.finish(format!("result {n} {}", "r".repeat(len))),
        RandomAction::Nudge => {
            live.open.clear();
            live.emit(EventKind::said(Message::internal("go on")));
        }
        RandomAction::Steer => {
            live.open.clear();
            live.emit(EventKind::said(Message::user(format!("steering {n}"))));
        }
        RandomAction::End => live.end(),
        RandomAction::Compact(how, room) => {
            let how = match how {
                0 => CompactionMode::Fit(CompactionCause::Window),
                1 => CompactionMode::Fit(CompactionCause::Length),
                2 => CompactionMode::Last(2),
                _ => CompactionMode::Summary,
            };
            live.compact(how, room);
        }
        // The engine would not log such a compaction, but it must not cause an invalid list. It does not shorten
        // messages of the user.
        RandomAction::Hostile(kept_from, said, keep) => {
            let summary = if said { "s".into() } else { String::new() };
            let shrunk = Some(Shrink {
                before: kept_from * 2,
                over: keep,
                keep,
            });
            live.emit(EventKind::Compacted {
                compaction: Compaction {
                    kept_from,
                    summary,
                    shrunk,
                    ..Compaction::default()
                },
            });
        }
    }
}

/// Checks that each message of the user is present: whole, or shortened by a compaction that records it.
fn words_are_there(live: &RecordedSession) -> Result<(), TestCaseError> {
    let entries = live.history.entries();
    let clips = live.log.iter().filter_map(|event| match &event.kind {
        EventKind::Compacted { compaction } => compaction
            .clipped
            .map(|how| (event.order.seq().unwrap_or(0), how)),
        _ => None,
    });
    let clips: Vec<(u64, Clip)> = clips.collect();
    for event in &live.log {
        let prompt = match &event.kind {
            EventKind::RunStarted { prompt, .. } => prompt,
            EventKind::Said { message, .. } if message.origin == Origin::Person => message,
            _ => continue,
        };
        let (seq, text) = (event.order.seq().unwrap_or(0), prompt.text());
        let now = entries
            .iter()
            .find(|entry| entry.seq() == seq && is_words(entry));
        let may_be_short = clips.iter().any(|(at, how)| *at > seq && seq < how.before);
        match now {
            Some(entry) if entry.text() == text => {}
            Some(entry) if may_be_short => {
                prop_assert!(
                    entry.text().starts_with(&text[..8.min(text.len())]),
                    "{} for {text}",
                    entry.text()
                );
            }
            other => prop_assert!(
                may_be_short && seq != 1,
                "{seq} is {:?}",
                other.map(|entry| entry.text())
            ),
        }
    }
    Ok(())
}

proptest! {
    /// For any actions and any number of compactions, the list for the model is valid, begins with a message in the
    /// user's role, has all messages of the user, and is the same when the log is folded from the beginning.
    #[test]
    fn every_list_is_valid_and_keeps_the_messages_of_the_user(nexts in proptest::collection::vec(any_action(), 1..120)) {
        let mut live = RecordedSession::default();
        live.prompt("the first".into());
        let mut seen: Vec<Message> = Vec::new();
        for (n, next) in nexts.into_iter().enumerate() {
            let logged = live.log.len();
            act(&mut live, next, n);
            let now = live.messages();
            let compacted = live.log[logged..].iter().any(|event| matches!(event.kind, EventKind::Compacted { .. }));
            prop_assert!(compacted || now.starts_with(&seen), "only a compaction may change what was there");
            prop_assert_eq!(now.first().map(|message| message.role), Some(Role::User));
            if live.history.open_calls().next().is_none() {
                prop_assert_eq!(unpaired(&live.history.entries()), None);
            }
            words_are_there(&live)?;
            seen = now;
        }
        live.prompt("the last".into());
        prop_assert_eq!(unpaired(&live.history.entries()), None);
        prop_assert_eq!(folded(&live.log), live.messages());
        let held: usize = live.history.entries().iter().map(Entry::bytes).sum();
        prop_assert_eq!(live.history.held(), held);
    }
}
