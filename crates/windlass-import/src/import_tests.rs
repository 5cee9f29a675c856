#![allow(clippy::unwrap_used)]

use std::borrow::Cow;
use std::io::Cursor;

use futures_util::StreamExt;
use serde_json::json;
use windlass_core::budget::Usage;
use windlass_core::flags::SavedFlags;
use windlass_core::history::{History, unpaired};
use windlass_core::message::{Part, Role};
use windlass_core::outcome::{Outcome, RunSummary};
use windlass_core::store::SessionStore;
use windlass_testing::{ManualClock, MemoryStore, StoreFault};

use super::*;

/// Shortened session files that the real programs wrote with a scripted model.
const CLAUDE: &str = include_str!("../tests/imports/claude.jsonl");
const AT_ONCE: &str = include_str!("../tests/imports/claude-at-once.jsonl");
const CODEX: &str = include_str!("../tests/imports/codex.jsonl");
const OURS: &str = include_str!("../../windlass-core/tests/events.jsonl");

struct SecretWordRedactor;

impl Redactor for SecretWordRedactor {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if text.contains("s3cr3t") {
            text.replace("s3cr3t", "***").into()
        } else {
            text.into()
        }
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(work)
}

fn import(
    store: &MemoryStore,
    text: &str,
    kind: Option<FileKind>,
) -> Result<Imported, ImportError> {
    let clock = ManualClock::default();
    let importer = Importer {
        store,
        clock: &clock,
        redactor: &SecretWordRedactor,
        program: "0".into(),
        workspace: &|_, named| named.to_owned(),
    };
    let bytes = text.as_bytes().to_vec();
    let mut open = move || Ok(Box::new(Cursor::new(bytes.clone())) as Box<dyn BufRead + Send>);
    run(importer.import(&mut open, kind))
}

fn events(store: &MemoryStore, id: &SessionId) -> Vec<Event> {
    run(store.read(id, 1).map(Result::unwrap).collect())
}

fn fold(events: &[Event]) -> History {
    let mut history = History::default();
    events.iter().for_each(|event| history.apply(event));
    history
}

/// Imports a file and checks that each call has exactly one result in the log.
#[track_caller]
fn check_valid(text: &str) -> (Imported, Vec<Event>) {
    let store = MemoryStore::default();
    let imported = import(&store, text, None).unwrap();
    let events = events(&store, &imported.id);
    assert_eq!(events.len() as u64, imported.events);
    let history = fold(&events);
    assert_eq!(unpaired(&history.entries()), None);
    assert_eq!(
        (history.open_run(), history.open_calls().count()),
        (None, 0)
    );
    let started = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::CallStarted { .. }))
        .count();
    let finished = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::CallFinished { .. }))
        .count();
    assert_eq!(started, finished);
    (imported, events)
}

/// The prompts, answers, calls and results of a session, one line each.
fn transcript(events: &[Event]) -> Vec<String> {
    let tell = |entry: &windlass_core::history::Entry| -> Vec<String> {
        let who = match entry.role {
            Role::User => "user",
            Role::Assistant => "model",
            Role::Tool => "tool",
        };
        let part = |part: &Part| match part {
            Part::Text { text } => format!("{who}: {}", text.lines().next().unwrap_or_default()),
            Part::Reasoning { text, .. } => format!("{who} thinks: {text}"),
            Part::Image { .. } => format!("{who}: image"),
            Part::Call(call) => format!("call {}: {}", call.id, call.name),
            Part::Result(result) => format!(
                "result {}: {}",
                result.id,
                result.text.lines().next().unwrap_or_default()
            ),
        };
        entry.parts.iter().map(part).collect()
    };
    fold(events).entries().iter().flat_map(tell).collect()
}

#[test]
fn a_session_of_claude_code_is_imported_completely() {
    let (imported, events) = check_valid(CLAUDE);
    assert_eq!(
        (imported.kind, imported.runs, imported.interrupted),
        (FileKind::Claude, 2, 0)
    );
    assert_eq!(imported.workspace, "/home/me/project");
    assert_eq!(
        imported.was.as_deref(),
        Some("eaf7694b-160c-4e2c-8e76-ed896a3c4979")
    );
    assert_eq!(imported.unknown, BTreeMap::new());
    let expect = [
        "user: please do",
        "call toolu_fake0001: bash",
        "result toolu_fake0001: one",
        "call toolu_fake0003: write_file",
        "result toolu_fake0003: File created successfully at: /home/me/project/a.txt (file state is current in your \
         context — no need to Read it back)",
        "model: Done. The fake model says hello.",
        "user: and now",
        "call toolu_fake0006: bash",
        "result toolu_fake0006: Error [exception]: ls in '/nonexistent' was blocked. For security, Claude Code may only \
         list files in the allowed working directories for this session: '/home/me/project'.",
        "model: Done. The fake model says hello.",
    ];
    assert_eq!(transcript(&events), expect);
    let total = fold(&events).total();
    assert_eq!(
        total.usage,
        Usage {
            input: 6_000,
            cache_read: 5_000,
            cache_write: 0,
            output: 150
        }
    );
    assert_eq!((total.steps, total.unpriced), (5, true));
}

#[test]
fn an_answer_with_several_calls_becomes_one_message_although_its_lines_branch() {
    let (imported, events) = check_valid(AT_ONCE);
    assert_eq!((imported.runs, imported.interrupted), (1, 0));
    assert!(
        !imported.left_out.contains_key("abandoned branches"),
        "{imported:?}"
    );
    let expect = [
        "user: two at once",
        "model thinks: three at once",
        "model: I do three things",
        "call toolu_p0: bash",
        "call toolu_p1: bash",
        "call toolu_p2: bash",
        "result toolu_p0: n2",
        "result toolu_p1: n3",
        "result toolu_p2: n4",
        "model: All three are done.",
    ];
    assert_eq!(transcript(&events), expect);
    // Each line of the answer repeats the usage; it is counted once.
    let total = fold(&events).total();
    assert_eq!(
        total.usage,
        Usage {
            input: 22,
            cache_read: 14,
            cache_write: 6,
            output: 49
        }
    );
    assert_eq!(total.steps, 2);
}

#[test]
fn a_session_of_codex_is_imported_completely() {
    let (imported, events) = check_valid(CODEX);
    assert_eq!(
        (imported.kind, imported.runs, imported.interrupted),
        (FileKind::Codex, 2, 0)
    );
    assert_eq!(imported.workspace, "/home/me/project");
    assert_eq!(imported.unknown, BTreeMap::new());
    let told = transcript(&events);
    let calls: Vec<_> = told
        .iter()
        .filter(|line| line.starts_with("call"))
        .collect();
    assert_eq!(
        calls,
        [
            "call call_fake0011: bash",
            "call call_fake0014: apply_patch",
            "call call_fake0019: bash"
        ]
    );
    assert_eq!(told[0], "user: please do");
    assert!(told.contains(&"user: and now".to_owned()), "{told:?}");
    assert!(
        told.iter()
            .any(|line| line.starts_with("result call_fake0019: Error [exception]")),
        "{told:?}"
    );
    let total = fold(&events).total();
    assert_eq!(
        total.usage,
        Usage {
            input: 1_000,
            cache_read: 5_000,
            cache_write: 0,
            output: 150
        }
    );
    assert!(
        imported
            .left_out
            .contains_key("instructions of the other agent"),
        "{imported:?}"
    );
}

/// An export with a line of each kind, numbered as in a log, with live events in between.
fn windlass_export() -> (String, String) {
    let (mut durable, mut live) = (Vec::new(), String::new());
    for line in OURS.lines() {
        let mut event: Event = serde_json::from_str(line).unwrap();
        if event.order.seq().is_none() {
            live.push_str(&format!("{line}\n"));
            continue;
        }
        event.order = Order::Durable {
            seq: durable.len() as u64 + 1,
        };
        if let EventKind::RunStarted { flags, .. } = &mut event.kind {
            *flags = SavedFlags::default();
        }
        durable.push(serde_json::to_string(&event).unwrap());
    }
    (durable.join("\n"), live)
}

#[test]
fn an_export_of_windlass_is_imported_unchanged() {
    let (durable, live) = windlass_export();
    let store = MemoryStore::default();
    let imported = import(&store, &durable, None).unwrap();
    assert_eq!(
        (imported.kind, imported.was.as_deref()),
        (FileKind::Windlass, None)
    );
    assert_eq!(imported.id.as_str(), "20261115-031445-7f3a9c");
    let lines: Vec<String> = durable.lines().map(str::to_owned).collect();
    assert_eq!(store.lines(&imported.id)[..lines.len()], lines);
    // The id is taken now, so importing the same file again creates another session.
    let again = import(&store, &format!("{durable}\n{live}"), None).unwrap();
    assert_ne!(again.id, imported.id);
    assert_eq!(again.was.as_deref(), Some("20261115-031445-7f3a9c"));
    assert_eq!(
        again.left_out.get("live events"),
        Some(&(live.lines().count() as u64))
    );
    let kinds = |id: &SessionId| {
        events(&store, id)
            .into_iter()
            .map(|event| event.kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&again.id), kinds(&imported.id));
    assert!(
        events(&store, &again.id)
            .iter()
            .all(|event| event.session == again.id)
    );
}

#[test]
fn nothing_in_a_file_takes_effect_by_itself() {
    let line = |seq: u64, more: Value| {
        let mut data = more.as_object().unwrap().clone();
        let kind = data.remove("kind").unwrap();
        let at = "2026-11-15T03:14:45.007Z";
        let line = json!({ "v": 2, "seq": seq, "at": at, "session": "s", "run": "r1", "trace": "t", "kind": kind,
                           "data": data });
        format!("{line}\n")
    };
    let prompt = |text: &str| json!({ "role": "user", "parts": [{ "type": "text", "data": { "text": text } }] });
    let call = json!({ "type": "call", "data": { "id": "c", "name": "bash", "args": { "command": "hostile" } } });
    let asked = json!({ "kind": "asked", "ask": { "id": "a1", "about": { "is": "question", "text": "colour?" } } });
    let lines = [
        line(
            1,
            json!({ "kind": "session_opened", "workspace": "/w", "runtime": "native", "program": "0" }),
        ),
        line(
            2,
            json!({ "kind": "run_started", "prompt": prompt("go"), "flags": { "base_url": "http://evil" } }),
        ),
        line(
            3,
            json!({ "kind": "said", "message": { "role": "assistant", "parts": [call] } }),
        ),
        line(4, asked.clone()),
        line(
            5,
            json!({ "kind": "queued", "prompt": prompt("something hostile") }),
        ),
    ];
    let store = MemoryStore::default();
    let imported = import(&store, &lines.concat(), None).unwrap();
    let counted: Vec<_> = imported.left_out.into_iter().collect();
    assert_eq!(
        counted,
        [
            ("open questions".to_owned(), 1),
            ("queued prompts".to_owned(), 1)
        ]
    );
    let events = events(&store, &imported.id);
    assert_eq!(events.len() as u64, imported.events);
    assert!(!serde_json::to_string(&events).unwrap().contains("evil"));
    let history = fold(&events);
    assert!(!history.waits() && history.open_asks().is_empty() && history.queue().all().is_empty());
    let mut glance = windlass_core::overview::SessionOverview::default();
    events.iter().for_each(|event| glance.apply(event));
    assert!(glance.asks.is_empty() && glance.queue.all().is_empty() && glance.flags.is_empty());
    // A question outside of a run has no effect either: it would hide a later one with the same id.
    let imported = import(
        &store,
        &[&lines[0], &line(2, asked)].map(String::as_str).concat(),
        None,
    )
    .unwrap();
    assert!(
        fold(&self::events(&store, &imported.id))
            .open_asks()
            .is_empty()
    );
}

#[track_caller]
fn check_wrong(text: &str, kind: Option<FileKind>, says: &str) {
    let store = MemoryStore::default();
    let err = import(&store, text, kind)
        .map(|imported| panic!("{imported:?}"))
        .unwrap_err()
        .to_string();
    assert!(err.contains(says), "{err}");
    let left: Vec<_> = run(store.list().collect());
    assert!(left.is_empty(), "something was left behind: {left:?}");
}

#[test]
fn a_damaged_or_newer_line_is_named_and_nothing_is_imported() {
    let (ours, _) = windlass_export();
    let ours: Vec<&str> = ours.lines().collect();
    let with = |at: usize, line: &str| {
        let mut lines = ours.clone();
        lines[at] = line;
        lines.join("\n")
    };
    check_wrong(
        &with(4, "{\"v\":2,\"seq\":5"),
        None,
        "line 5: it is not JSON",
    );
    check_wrong(
        &with(4, &ours[4].replace("{\"v\":2,", "{\"v\":9,")),
        None,
        "line 5 was written by another version (format 9",
    );
    check_wrong(
        &with(4, &ours[4].replace("\"iteration\"", "\"invented\"")),
        None,
        "line 5: it is not an event",
    );
    check_wrong(
        &with(4, ours[5]),
        None,
        "line 5: event 5 is missing; this is event 6",
    );
    check_wrong(
        &with(4, &ours[4].replace("7f3a9c", "000000")),
        None,
        "line 5: it belongs to another session",
    );
    check_wrong(&ours[1..].join("\n"), None, "line 1: event 1 is missing");
    check_wrong(
        &ours[0].replace("20261115-031445-7f3a9c", "../x"),
        None,
        "line 1: it is not an event: `../x`",
    );
    for (text, kind) in [(CLAUDE, FileKind::Claude), (CODEX, FileKind::Codex)] {
        let cut = &text[..text.trim_end().len() - 1];
        let last = text.lines().count();
        check_wrong(cut, Some(kind), &format!("line {last}: it is not JSON"));
        check_wrong(
            &format!("{text}[1]\n"),
            Some(kind),
            &format!("line {}: it is not a JSON object", last + 1),
        );
    }
    check_wrong("{\"hello\":1}\n", None, "not a known session file");
    check_wrong("", None, "not a known session file");
    check_wrong(
        "",
        Some(FileKind::Windlass),
        "there is no prompt in this file",
    );
    check_wrong(
        CLAUDE.lines().next().unwrap(),
        None,
        "there is no prompt in this file",
    );
}

#[test]
fn a_failed_write_leaves_no_session() {
    for text in [CLAUDE, CODEX, &windlass_export().0] {
        let store = MemoryStore::default();
        store.fail(StoreFault::FullAt(5));
        assert!(matches!(
            import(&store, text, None),
            Err(ImportError::Store(_))
        ));
        assert_eq!(run(store.list().count()), 0);
    }
}

fn claude(line: Value) -> String {
    let mut line = line;
    for (key, value) in [
        ("sessionId", json!("s")),
        ("cwd", json!("/w")),
        ("timestamp", json!("2026-01-01T00:00:00Z")),
    ] {
        line[key] = value;
    }
    format!("{line}\n")
}

fn user(uuid: &str, parent: Option<&str>, content: Value) -> String {
    claude(
        json!({ "type": "user", "uuid": uuid, "parentUuid": parent, "message": { "content": content } }),
    )
}

fn says(uuid: &str, parent: &str, message: &str, block: Value) -> String {
    let message = json!({ "id": message, "model": "m", "content": [block] });
    claude(json!({ "type": "assistant", "uuid": uuid, "parentUuid": parent, "message": message }))
}

fn uses(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "Read", "input": {} })
}

fn brings(id: &str) -> Value {
    json!([{ "type": "tool_result", "tool_use_id": id, "content": [{ "type": "text", "text": format!("of {id}") }] }])
}

fn words(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

#[test]
fn parallel_calls_keep_their_results_in_any_order_of_lines() {
    // One answer with three calls, written while it was streamed: a line for each block, results in between.
    let lines = [
        user("1", None, json!("go")),
        says("2", "1", "a", uses("x")),
        says("3", "2", "a", uses("y")),
        user("4", Some("2"), brings("x")),
        says("5", "3", "a", uses("z")),
        user("6", Some("5"), brings("z")),
        user("7", Some("3"), brings("y")),
        says("8", "7", "b", words("done")),
    ];
    let (imported, events) = check_valid(&lines.concat());
    assert_eq!(
        (imported.interrupted, &imported.left_out),
        (0, &BTreeMap::new())
    );
    let mut results: Vec<_> = transcript(&events)
        .into_iter()
        .filter(|line| line.starts_with("result"))
        .collect();
    results.sort();
    assert_eq!(
        results,
        ["result x: of x", "result y: of y", "result z: of z"]
    );
}

#[test]
fn abandoned_branches_subagents_and_unknown_lines_are_counted() {
    let mut beside: Value =
        serde_json::from_str(&says("b", "1", "beside", words("beside"))).unwrap();
    beside["isSidechain"] = json!(true);
    let mut meta: Value = serde_json::from_str(&user("m", Some("4"), json!("a reminder"))).unwrap();
    meta["isMeta"] = json!(true);
    let mut error: Value =
        serde_json::from_str(&says("e", "m", "err", words("API Error: overloaded"))).unwrap();
    error["isApiErrorMessage"] = json!(true);
    let lines = [
        user("1", None, json!("my key is s3cr3t")),
        format!("{beside}\n"),
        says("2", "1", "a", words("the old way")),
        says(
            "3",
            "1",
            "b",
            json!({ "type": "thinking", "thinking": "hm", "signature": "sig" }),
        ),
        says("4", "3", "b", words("the new way")),
        format!("{meta}\n"),
        format!("{error}\n"),
        user("5", Some("e"), json!("[Request interrupted by user]")),
        claude(json!({ "type": "invented", "n": 1 })),
        says("6", "5", "c", json!({ "type": "hologram" })),
    ];
    let (imported, events) = check_valid(&lines.concat());
    let expect = [
        "user: my key is ***",
        "model thinks: hm",
        "model: the new way",
        "user: a reminder",
        "user: [Request interrupted by user]",
    ];
    assert_eq!(transcript(&events), expect);
    let counted = |kinds: &BTreeMap<String, u64>| kinds.keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        counted(&imported.left_out),
        ["abandoned branches", "lines of subagents"]
    );
    assert_eq!(
        counted(&imported.unknown),
        ["assistant block hologram", "invented"]
    );
    let said = events.iter().find_map(|event| match &event.kind {
        EventKind::Warned { code, text } if code == "imported" => Some(text.clone()),
        _ => None,
    });
    assert!(said.is_some_and(
        |said| said.contains("1 of invented") && said.contains("1 of abandoned branches")
    ));
    assert!(events.iter().any(
        |event| matches!(&event.kind, EventKind::Warned { code, .. } if code == "imported_error")
    ));
    assert!(!serde_json::to_string(&events).unwrap().contains("s3cr3t"));
}

#[test]
fn a_call_without_a_result_is_interrupted_and_so_is_its_run() {
    let lines = [
        user("1", None, json!("go")),
        says("2", "1", "a", uses("x")),
        user("3", Some("2"), json!("never mind")),
        says("4", "3", "b", uses("y")),
    ];
    let (imported, events) = check_valid(&lines.concat());
    assert_eq!((imported.runs, imported.interrupted), (2, 2));
    let ends = events.iter().filter_map(|event| match &event.kind {
        EventKind::RunFinished(RunSummary { outcome, .. }) => Some(outcome),
        _ => None,
    });
    let ends: Vec<_> = ends.collect();
    assert!(
        ends.iter()
            .all(|outcome| matches!(outcome, Outcome::Failed { .. })),
        "{ends:?}"
    );
    assert!(
        transcript(&events)
            .iter()
            .any(|line| line.contains("it may have happened in part or in full"))
    );
}

#[test]
fn turns_that_codex_rolled_back_are_left_out() {
    let item = |payload: Value| {
        format!(
            "{}\n",
            json!({ "timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": payload })
        )
    };
    let message = |role: &str, text: &str| {
        item(
            json!({ "type": "message", "role": role, "content": [{ "type": "input_text", "text": text }] }),
        )
    };
    let lines = [
        format!(
            "{}\n",
            json!({ "type": "session_meta", "payload": { "id": "c", "cwd": "/w" } })
        ),
        message("user", "<environment_context>\n</environment_context>"),
        message("user", "first"),
        message("assistant", "one"),
        message("user", "second"),
        item(
            json!({ "type": "local_shell_call", "call_id": "l", "action": { "command": ["ls", "-l"] } }),
        ),
        format!(
            "{}\n",
            json!({ "type": "event_msg", "payload": { "type": "thread_rolled_back", "num_turns": 1 } })
        ),
        message("user", "third"),
        item(
            json!({ "type": "local_shell_call", "call_id": "m", "action": { "command": ["ls", "-l"] } }),
        ),
        item(
            json!({ "type": "function_call_output", "call_id": "m", "output": "{\"output\":\"no\",\"metadata\":{\"exit_code\":2}}" }),
        ),
    ];
    let (imported, events) = check_valid(&lines.concat());
    let expect = [
        "user: first",
        "model: one",
        "user: third",
        "call m: bash",
        "result m: Error [exception]: no",
    ];
    assert_eq!(transcript(&events), expect);
    assert_eq!(
        imported.left_out.get("lines that were rolled back"),
        Some(&3)
    );
}

proptest::proptest! {
    /// The lines of a session in any order, with some missing, still give a history that can be sent to a model.
    #[test]
    fn any_order_of_lines_gives_a_valid_history(
        seed in proptest::collection::vec(0_usize..1_000, 1..60),
        foreign in 0_usize..3,
    ) {
        let lines: Vec<&str> = [CLAUDE, CODEX, AT_ONCE][foreign].lines().collect();
        let picked: String = seed.iter().map(|at| format!("{}\n", lines[at % lines.len()])).collect();
        let kind = [FileKind::Claude, FileKind::Codex, FileKind::Claude][foreign];
        let store = MemoryStore::default();
        match import(&store, &picked, Some(kind)) {
            Ok(imported) => {
                let history = fold(&events(&store, &imported.id));
                proptest::prop_assert_eq!(unpaired(&history.entries()), None);
            }
            Err(ImportError::Nothing) => proptest::prop_assert_eq!(run(store.list().count()), 0),
            Err(err) => return Err(proptest::test_runner::TestCaseError::fail(err.to_string())),
        }
    }
}
