//! Imported sessions: they are complete, and the next request of a resumed one is valid.

use serde_json::Value;

use crate::cli_fixture::{CliFixture, CliOutput, HELLO, id_of};

const CLAUDE: &str = include_str!("../../../windlass-import/tests/imports/claude.jsonl");
const CODEX: &str = include_str!("../../../windlass-import/tests/imports/codex.jsonl");

fn import(fixture: &CliFixture, text: &str, more: &[&str]) -> CliOutput {
    let file = fixture.home().join("given.jsonl");
    std::fs::write(&file, text).unwrap();
    let mut args = vec!["sessions", "import", file.to_str().unwrap()];
    args.extend_from_slice(more);
    fixture.run(&args)
}

/// A script that checks that the model gets the imported messages.
#[track_caller]
fn check_goes_on(text: &str, kind: &str) {
    let fixture = CliFixture::new();
    let output = import(
        &fixture,
        text,
        &["-C", fixture.work().to_str().unwrap(), "--json"],
    );
    assert_eq!(output.code, 0, "{}", output.err);
    let told: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((&told["kind"], &told["runs"]), (&kind.into(), &2.into()));
    let id = told["id"].as_str().unwrap();
    let script = fixture.script(
        "[[step]]\nexpect = [\"please do\", \"The fake model says hello\", \"go on\"]\ncalls = [{ name = \"list_directory\", args = { path = \".\" } }]\n[[step]]\ntext = \"I know what was before\"\n",
    );
    let output = fixture.run(&["resume", "--script", &script, id, "go on"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(output.out, "I know what was before\n");
    let log = fixture.log();
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
    let shown = fixture.run(&["sessions", "list"]).out;
    assert!(shown.contains(id) && shown.contains("please do"), "{shown}");
}

#[test]
fn an_imported_session_is_resumed() {
    check_goes_on(CLAUDE, "claude");
    check_goes_on(CODEX, "codex");
}

#[test]
fn an_export_is_imported_unchanged_and_an_existing_id_is_reported() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    let session = fixture.sessions()[0].clone();
    let (id, log) = (
        id_of(&session),
        std::fs::read_to_string(session.join("events.jsonl")).unwrap(),
    );
    let exported = fixture.run(&["sessions", "export", &id]).out;
    let output = import(&fixture, &exported, &[]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        output.err.contains(&format!("the id {id} already exists")),
        "{}",
        output.err
    );
    assert_eq!(fixture.sessions().len(), 2);

    assert_eq!(fixture.run(&["sessions", "clear", "--yes"]).code, 0);
    assert!(fixture.sessions().is_empty());
    let output = import(&fixture, &exported, &[]);
    assert_eq!(output.out, format!("{id}\n"), "{}", output.err);
    // Everything except the saved flags: those of an imported file are not used.
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
    let script = fixture.script("[[step]]\nexpect = \"hello there\"\ntext = \"x\"\n");
    assert_eq!(
        fixture
            .run(&["resume", "--script", &script, &id, "more"])
            .code,
        0
    );
}

#[test]
fn a_failed_import_names_the_reason_and_leaves_no_session() {
    let fixture = CliFixture::new();
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
        let output = import(&fixture, text, &[]);
        assert_eq!(output.code, code, "{}", output.err);
        assert!(output.err.contains(says), "{}", output.err);
    }
    assert_eq!(
        fixture.run(&["sessions", "import", "nothing.jsonl"]).code,
        2
    );
    assert_eq!(fixture.run(&["sessions", "import", "."]).code, 2);
    assert!(fixture.sessions().is_empty());
}

#[test]
fn secrets_in_a_file_are_not_imported() {
    let fixture = CliFixture::new();
    let file = fixture.home().join("given.jsonl");
    std::fs::write(
        &file,
        CLAUDE.replace("echo one", "echo planted-0123456789abcdef"),
    )
    .unwrap();
    let mut command = fixture.command(&["sessions", "import", file.to_str().unwrap()]);
    command.env("MY_API_TOKEN", "planted-0123456789abcdef");
    let output = fixture.run_with(command, "");
    assert_eq!(output.code, 0, "{}", output.err);
    let log = std::fs::read_to_string(fixture.sessions()[0].join("events.jsonl")).unwrap();
    assert!(log.contains("please do") && !log.contains("planted-0123456789abcdef"));
}

#[test]
fn imported_changes_cannot_be_undone() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let script = "[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"a.txt\", content = \"two\\n\" } }]\n[[step]]\ntext = \"done\"\n";
    assert_eq!(fixture.play(script, &["--approval", "edit"]).code, 0);
    let id = id_of(&fixture.sessions()[0]);
    let file = fixture.home().join("export.jsonl").display().to_string();
    assert_eq!(
        fixture
            .run(&["sessions", "export", &id, "--to", &file])
            .code,
        0
    );
    assert_eq!(fixture.run(&["sessions", "delete", &id, "--yes"]).code, 0);
    assert_eq!(fixture.run(&["sessions", "import", &file]).code, 0);
    let output = fixture.run(&["undo", "--yes"]);
    assert_ne!(output.code, 0, "{}", output.out);
    assert_eq!(fixture.read("a.txt"), "two\n");
}
