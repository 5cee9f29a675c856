//! Sessions from files, through the real binary: they come in, and the next request of a resumed one is valid.

use serde_json::Value;

use crate::place::{HELLO, Output, Place, id_of};

const CLAUDE: &str = include_str!("../../../windlass-import/tests/imports/claude.jsonl");
const CODEX: &str = include_str!("../../../windlass-import/tests/imports/codex.jsonl");

fn import(place: &Place, text: &str, more: &[&str]) -> Output {
    let file = place.home().join("given.jsonl");
    std::fs::write(&file, text).unwrap();
    let mut args = vec!["sessions", "import", file.to_str().unwrap()];
    args.extend_from_slice(more);
    place.run(&args)
}

/// The messages of a request as the model saw them are the imported ones: a scripted model holds them against this.
#[track_caller]
fn check_goes_on(text: &str, kind: &str) {
    let place = Place::new();
    let output = import(
        &place,
        text,
        &["-C", place.work().to_str().unwrap(), "--json"],
    );
    assert_eq!(output.code, 0, "{}", output.err);
    let told: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((&told["kind"], &told["runs"]), (&kind.into(), &2.into()));
    let id = told["id"].as_str().unwrap();
    let script = place.script(
        "[[step]]\nexpect = [\"please do\", \"The fake model says hello\", \"go on\"]\ncalls = [{ name = \"list_directory\", args = { path = \".\" } }]\n[[step]]\ntext = \"I know what was before\"\n",
    );
    let output = place.run(&["resume", "--script", &script, id, "go on"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(output.out, "I know what was before\n");
    let log = place.log();
    let opened = &log[0];
    assert_eq!(
        (&opened["kind"], &opened["data"]["runtime"]),
        (&"session_opened".into(), &kind.into())
    );
    let ends: Vec<_> = log
        .iter()
        .filter(|event| event["kind"] == "run_finished")
        .collect();
    assert_eq!(ends.len(), 3);
    assert_eq!(ends[2]["data"]["outcome"]["is"], "completed");
    let shown = place.run(&["sessions", "list"]).out;
    assert!(shown.contains(id) && shown.contains("please do"), "{shown}");
}

#[test]
fn a_session_of_another_agent_goes_on_here() {
    check_goes_on(CLAUDE, "claude");
    check_goes_on(CODEX, "codex");
}

#[test]
fn an_export_comes_back_as_it_was_and_a_taken_id_is_said() {
    let place = Place::new();
    assert_eq!(place.play(HELLO, &[]).code, 0);
    let session = place.sessions()[0].clone();
    let (id, log) = (
        id_of(&session),
        std::fs::read_to_string(session.join("events.jsonl")).unwrap(),
    );
    let exported = place.run(&["sessions", "export", &id]).out;
    let output = import(&place, &exported, &[]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        output.err.contains(&format!("its id {id} is taken here")),
        "{}",
        output.err
    );
    assert_eq!(place.sessions().len(), 2);

    assert_eq!(place.run(&["sessions", "clear", "--yes"]).code, 0);
    assert!(place.sessions().is_empty());
    let output = import(&place, &exported, &[]);
    assert_eq!(output.out, format!("{id}\n"), "{}", output.err);
    // All but the flags it was started with: those of a file do not count.
    let without_flags = |text: &str| -> Vec<Value> {
        let mut events: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        events
            .iter_mut()
            .for_each(|event| drop(event["data"].as_object_mut().unwrap().remove("flags")));
        events
    };
    let back = std::fs::read_to_string(session.join("events.jsonl")).unwrap();
    assert_eq!(without_flags(&back), without_flags(&log));
    assert!(log.contains("\"flags\":") && !back.contains("\"flags\":"));
    let script = place.script("[[step]]\nexpect = \"hello there\"\ntext = \"x\"\n");
    assert_eq!(
        place
            .run(&["resume", "--script", &script, &id, "more"])
            .code,
        0
    );
}

#[test]
fn what_cannot_be_imported_is_named_and_nothing_is_left() {
    let place = Place::new();
    let newer = "{\"v\":99,\"seq\":1,\"session\":\"s\",\"kind\":\"x\"}\n";
    let outside = "{\"v\":2,\"seq\":1,\"at\":\"2026-11-15T03:14:45.007Z\",\"session\":\"../x\",\"trace\":\"t\",\
                   \"kind\":\"session_opened\",\"data\":{\"workspace\":\"/w\",\"runtime\":\"native\",\"program\":\"0\"}}\n";
    let damaged = format!("{CLAUDE}{{\"type\":\"user\",");
    for (text, code, says) in [
        (newer, 1, "line 1 was written by another version (format 99"),
        (outside, 1, "`../x` is not a valid session id"),
        (damaged.as_str(), 1, "line 20: it is not JSON"),
        ("hello\n", 1, "line 1: it is not JSON"),
        ("{\"hello\":1}\n", 2, "not a known session file"),
    ] {
        let output = import(&place, text, &[]);
        assert_eq!(output.code, code, "{}", output.err);
        assert!(output.err.contains(says), "{}", output.err);
    }
    assert_eq!(place.run(&["sessions", "import", "nothing.jsonl"]).code, 2);
    assert_eq!(place.run(&["sessions", "import", "."]).code, 2);
    assert!(place.sessions().is_empty());
}

#[test]
fn secrets_of_a_file_do_not_come_in() {
    let place = Place::new();
    let file = place.home().join("given.jsonl");
    std::fs::write(
        &file,
        CLAUDE.replace("echo one", "echo planted-0123456789abcdef"),
    )
    .unwrap();
    let mut command = place.command(&["sessions", "import", file.to_str().unwrap()]);
    command.env("MY_API_TOKEN", "planted-0123456789abcdef");
    let output = place.run_with(command, "");
    assert_eq!(output.code, 0, "{}", output.err);
    let log = std::fs::read_to_string(place.sessions()[0].join("events.jsonl")).unwrap();
    assert!(log.contains("please do") && !log.contains("planted-0123456789abcdef"));
}

#[test]
fn what_a_file_says_was_done_is_not_taken_back_here() {
    let place = Place::new();
    place.write("a.txt", "one\n");
    let script = "[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"a.txt\", content = \"two\\n\" } }]\n[[step]]\ntext = \"done\"\n";
    assert_eq!(place.play(script, &["--approval", "edit"]).code, 0);
    let id = id_of(&place.sessions()[0]);
    let file = place.home().join("export.jsonl").display().to_string();
    assert_eq!(
        place.run(&["sessions", "export", &id, "--to", &file]).code,
        0
    );
    assert_eq!(place.run(&["sessions", "delete", &id, "--yes"]).code, 0);
    assert_eq!(place.run(&["sessions", "import", &file]).code, 0);
    let output = place.run(&["undo", "--yes"]);
    assert_ne!(output.code, 0, "{}", output.out);
    assert_eq!(place.read("a.txt"), "two\n");
}
