//! Sessions: the log and its views, resume, damage, secrets.

use serde_json::Value;

use crate::cli_fixture::{CliFixture, HELLO, id_of};
use crate::exit_codes::wait_until;

const EDIT: &str = r#"
[[step]]
calls = [{ name = "edit_file", args = { path = "a.txt", old = "one", new = "two" } }]
[[step]]
expect_new = "a.txt"
text = "done"
"#;

#[test]
fn the_stream_equals_the_log_and_the_result_has_the_same_numbers() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\r\n");
    let output = fixture.play(EDIT, &["--approval", "edit", "-o", "stream-json"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let shown: Vec<Value> = output
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let durable: Vec<Value> = shown
        .iter()
        .filter(|event| event["seq"].is_u64())
        .cloned()
        .collect();
    assert_eq!(durable, fixture.log());
    assert!(
        shown
            .iter()
            .any(|event| event["kind"] == "delta" && event["after"].is_u64())
    );
    assert_eq!(
        fixture.read("a.txt"),
        "two\r\n",
        "bytes outside the edit stay"
    );

    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let output = fixture.play(EDIT, &["--approval", "edit", "--json"]);
    let result: Value = serde_json::from_str(&output.out).unwrap();
    let end = fixture.log().pop().unwrap();
    assert_eq!(result["totals"], end["data"]["totals"]);
    assert_eq!(result["files"], end["data"]["files"]);
    assert_eq!(result["files"][0]["path"], "a.txt");
    assert_eq!(result["text"], "done");
    assert_eq!(result["status"], "completed");
}

#[test]
fn a_prompt_comes_from_standard_input_and_files_are_attached() {
    let fixture = CliFixture::new();
    fixture.write("notes.txt", "the attached words");
    let script = fixture
        .script("[[step]]\nexpect = [\"from the pipe\", \"the attached words\"]\ntext = \"ok\"\n");
    let command = fixture.command(&["run", "--in-place", "--script", &script, "see @notes.txt"]);
    let output = fixture.run_with(command, "from the pipe\n");
    assert_eq!(output.code, 0, "{}", output.err);
}

#[test]
fn a_session_is_continued() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    let id = id_of(&fixture.sessions()[0]);
    let script =
        fixture.script("[[step]]\nexpect = [\"hello there\", \"and now\"]\ntext = \"more\"\n");
    let output = fixture.run(&["resume", "--script", &script, &id, "and", "now"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let output = fixture.run(&[
        "run",
        "--in-place",
        "-c",
        "--script",
        &fixture.script("[[step]]\nexpect = \"more\"\ntext = \"x\"\n"),
        "again",
    ]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(fixture.sessions().len(), 1);
    assert!(fixture.run(&["sessions", "list"]).out.contains(&id));
    assert!(
        fixture
            .run(&["sessions", "show", &id])
            .out
            .contains("prompt: and now")
    );
    let exported = fixture.run(&["sessions", "export", &id]).out;
    assert_eq!(exported.lines().count(), fixture.log().len());
    assert!(
        fixture
            .run(&["sessions", "export", &id, "--format", "markdown"])
            .out
            .contains("## Prompt")
    );
    assert_eq!(
        fixture.run(&["sessions", "delete", &id]).code,
        5,
        "nobody said yes"
    );
    assert_eq!(fixture.run(&["sessions", "delete", &id, "--yes"]).code, 0);
    assert!(fixture.sessions().is_empty());
}

#[test]
fn a_killed_process_loses_no_logged_event_and_the_session_is_resumed() {
    let fixture = CliFixture::new();
    let script =
        fixture.script("[[step]]\ncalls = [{ name = \"bash\", args = { command = \"sleep 20\", timeout_s = 20 } }]\n");
    let mut child = fixture
        .command(&["run", "--in-place", "--yes", "--script", &script, "go"])
        .spawn()
        .unwrap();
    let started = || {
        fixture.sessions().first().is_some_and(|session| {
            std::fs::read_to_string(session.join("events.jsonl"))
                .is_ok_and(|log| log.contains("command_started"))
        })
    };
    wait_until(started);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = fixture.log();
    assert_eq!(before.last().unwrap()["kind"], "command_started");
    let id = id_of(&fixture.sessions()[0]);
    let script = fixture.script("[[step]]\nexpect = \"it may have happened\"\ntext = \"I see\"\n");
    let output = fixture.run(&["resume", "--script", &script, &id, "go on"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let after = fixture.log();
    assert_eq!(after[..before.len()], before[..]);
    let ends: Vec<&Value> = after
        .iter()
        .filter(|event| event["kind"] == "run_finished")
        .collect();
    assert_eq!(ends.len(), 2);
    assert_eq!(ends[0]["data"]["outcome"]["reason"], "interrupted");
}

#[test]
fn damaged_newer_and_locked_sessions_are_refused_and_unchanged() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    let session = fixture.sessions()[0].clone();
    let (id, log) = (id_of(&session), session.join("events.jsonl"));
    let good = std::fs::read_to_string(&log).unwrap();
    let script = fixture.script(HELLO);
    let damaged = good.replacen("\"kind\":\"run_started\"", "\"kind\":\"run_st", 1);
    let newer = good.replacen("{\"v\":2,", "{\"v\":99,", 1);
    for (text, says) in [(damaged, "events.jsonl"), (newer, "newer")] {
        std::fs::write(&log, &text).unwrap();
        let output = fixture.run(&["resume", "--script", &script, &id, "x"]);
        assert_eq!(output.code, 1, "{}", output.err);
        assert!(
            output.err.contains(says) && output.err.contains(&id),
            "{}",
            output.err
        );
        assert_eq!(
            std::fs::read_to_string(&log).unwrap(),
            text,
            "left untouched"
        );
    }
    // A torn last line is moved aside with a notice, and the session can be resumed.
    std::fs::write(&log, format!("{good}{{\"v\":2,\"seq\":9")).unwrap();
    let output = fixture.run(&["resume", "--script", &script, &id, "x"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        fixture
            .log()
            .iter()
            .any(|event| event["kind"] == "warned" && event["data"]["code"] == "log_repaired")
    );
    assert!(output.err.contains("were moved to"), "{}", output.err);
}

#[test]
fn an_event_of_a_later_version_is_shown_exported_and_kept() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    let session = fixture.sessions()[0].clone();
    let (id, log) = (id_of(&session), session.join("events.jsonl"));
    let good = std::fs::read_to_string(&log).unwrap();
    let last: Value = serde_json::from_str(good.lines().last().unwrap()).unwrap();
    let mut newer = last.clone();
    newer["seq"] = (last["seq"].as_u64().unwrap() + 1).into();
    newer["kind"] = "hook_ran".into();
    newer["data"] = serde_json::json!({ "hook": "format", "ms": 7 });
    std::fs::write(&log, format!("{good}{newer}\n")).unwrap();
    for command in [
        &["sessions", "show", &id][..],
        &["sessions", "show", "--json", &id],
    ] {
        let output = fixture.run(command);
        assert!(
            output.code == 0 && output.out.contains("hook_ran"),
            "{command:?}: {} {}",
            output.out,
            output.err
        );
    }
    for form in ["jsonl", "markdown", "html", "audit"] {
        let output = fixture.run(&["sessions", "export", "--format", form, &id]);
        assert!(
            output.code == 0 && output.out.contains("hook_ran"),
            "{form}: {} {}",
            output.out,
            output.err
        );
    }
    let script = fixture.script(HELLO);
    assert_eq!(
        fixture.run(&["resume", "--script", &script, &id, "x"]).code,
        0
    );
    assert!(fixture.log().contains(&newer), "it is kept");
}

#[test]
fn a_planted_key_is_in_no_log_no_output_no_artifact_and_no_child() {
    let fixture = CliFixture::new();
    let key = "sk-planted-0123456789abcdef";
    fixture.write(
        "leak.txt",
        &format!("the key is {key}\nand a second line\n"),
    );
    let script = fixture.script(
        r#"
[[step]]
calls = [
  { name = "bash", args = { command = "env; cat leak.txt" } },
  { name = "read_file", args = { path = "leak.txt" } },
  { name = "edit_file", args = { path = "leak.txt", old = "second", new = "changed" } },
  { name = "bash", args = { command = "cat leak.txt; seq 40000" } },
  { name = "delete_file", args = { path = "leak.txt" } },
]
[[step]]
expect_new = "the key is"
calls = [{ name = "write_file", args = { path = "leak.txt", content = "" } }]
[[step]]
text = "seen"
"#,
    );
    let mut command = fixture.command(&[
        "run",
        "--in-place",
        "--yes",
        "-v",
        "--script",
        &script,
        &format!("my key is {key}"),
    ]);
    command.env("ANTHROPIC_API_KEY", key).env("MY_TOKEN", key);
    let output = fixture.run_with(command, "");
    assert_eq!(output.code, 0, "{}", output.err);
    let session = fixture.sessions()[0].clone();
    let log = std::fs::read_to_string(session.join("events.jsonl")).unwrap();
    for (what, text) in [
        ("log", &log),
        ("stdout", &output.out),
        ("stderr", &output.err),
    ] {
        assert!(!text.contains(key), "the key is in the {what}:\n{text}");
    }
    assert!(!log.contains("MY_TOKEN="), "the child saw the variable");
    let artifacts: Vec<_> = std::fs::read_dir(session.join("artifacts"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    assert!(!artifacts.is_empty());
    for artifact in artifacts.iter().filter(|path| path.is_file()) {
        assert!(
            !String::from_utf8_lossy(&std::fs::read(artifact).unwrap()).contains(key),
            "{}",
            artifact.display()
        );
    }
}

#[test]
fn the_stream_of_a_resumed_session_begins_with_new_events() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    let id = id_of(&fixture.sessions()[0]);
    let before = fixture.log().len();
    let script = fixture.script(HELLO);
    let output = fixture.run(&[
        "resume",
        "--script",
        &script,
        "-o",
        "stream-json",
        &id,
        "more",
    ]);
    let shown: Vec<Value> = output
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let durable: Vec<Value> = shown
        .into_iter()
        .filter(|event| event["seq"].is_u64())
        .collect();
    assert_eq!(durable, fixture.log()[before..]);
}

#[test]
fn a_session_is_resumed_in_its_own_workspace_only() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    let id = id_of(&fixture.sessions()[0]);
    let other = fixture.home().join("elsewhere");
    std::fs::create_dir(&other).unwrap();
    let script = fixture.script(HELLO);
    let output = fixture.run(&[
        "resume",
        "--script",
        &script,
        "-C",
        other.to_str().unwrap(),
        &id,
        "x",
    ]);
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("add `-C "), "{}", output.err);
}

#[test]
fn a_closed_pipe_causes_no_panic_and_ends_the_run() {
    let fixture = CliFixture::new();
    let steps: String = (0..30)
        .map(|n| format!("[[step]]\ntext = \"{n}\"\ncalls = [{{ name = \"bash\", args = {{ command = \"echo {n} >> done.log\" }} }}]\n"))
        .collect();
    let script = fixture.script(&steps);
    let line = format!(
        "{} run --in-place --yes -o stream-json --script {script} go | head -n 3; exit ${{PIPESTATUS[0]}}",
        crate::cli_fixture::BINARY
    );
    let mut command = fixture.command(&[]);
    command = {
        let mut shell = std::process::Command::new("bash");
        shell
            .args(["-c", &line])
            .current_dir(command.get_current_dir().unwrap());
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                shell.env(name, value);
            }
        }
        shell
    };
    let output = fixture.run_with(command, "");
    assert_eq!(output.code, 130, "{}", output.err);
    assert!(!output.err.contains("panicked"), "{}", output.err);
    let steps = std::fs::read_to_string(fixture.work().join("done.log"))
        .map_or(0, |text| text.lines().count());
    assert!(steps < 30, "every step was run for nobody");

    let quiet = std::process::Command::new("bash")
        .args([
            "-c",
            &format!(
                "{} demo 2>&1 | head -n 1; exit ${{PIPESTATUS[0]}}",
                crate::cli_fixture::BINARY
            ),
        ])
        .env("HOME", fixture.home())
        .output()
        .unwrap();
    assert_ne!(quiet.status.code(), Some(101));
    let full = std::process::Command::new("bash")
        .args([
            "-c",
            &format!("{} tools > /dev/full", crate::cli_fixture::BINARY),
        ])
        .env("HOME", fixture.home())
        .output()
        .unwrap();
    assert_eq!(full.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&full.stderr).contains("standard output could not be written"));
}

#[test]
fn a_project_cannot_loosen_or_redirect_anything() {
    let fixture = CliFixture::new();
    fixture.write(
        ".windlass/config.toml",
        "approval = \"auto\"\nmodel = \"evil/x\"\n[rules]\nallow = [\"bash\"]\n",
    );
    let output = fixture.play(
        "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"touch made\" } }]\n",
        &[],
    );
    assert_eq!(output.code, 5, "{}", output.err);
    assert!(output.err.contains("may only restrict"), "{}", output.err);
    assert!(!fixture.work().join("made").exists());
}

#[test]
fn an_answer_is_validated_against_the_schema() {
    let schema = r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}"#;
    let fixture = CliFixture::new();
    let good = "[[step]]\ntext = \"three\"\n[[step]]\nexpect_new = \"does not match\"\ntext = '{\"n\": 3}'\n";
    let output = fixture.play(good, &["--json-schema", schema, "--json"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let result: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(result["structured_output"]["n"], 3);

    let output = CliFixture::new().play(
        "[[step]]\nrepeat = 3\ntext = \"three\"\n",
        &["--json-schema", schema],
    );
    assert_eq!(output.code, 1);
    assert!(
        output.err.contains("failed (structured_output)"),
        "{}",
        output.err
    );

    for (bad, says) in [
        ("{", "is not JSON"),
        ("{\"type\": 7}", "is not a JSON Schema"),
        ("no/such/file", "cannot be read"),
    ] {
        let output = CliFixture::new().play(HELLO, &["--json-schema", bad]);
        assert_eq!(output.code, 2);
        assert!(output.err.contains(says), "{bad}: {}", output.err);
    }
}

#[test]
fn a_session_id_that_leaves_its_directory_is_refused_by_every_command() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    let script = fixture.script(HELLO);
    let to = fixture.home().join("out").display().to_string();
    for bad in [
        "../x",
        "..",
        "/etc",
        "a/../b",
        "a\\b",
        ".hidden",
        "x\u{1b}[2J",
    ] {
        for args in [
            &["sessions", "show", bad][..],
            &["sessions", "show", bad, "--json"],
            &["sessions", "export", bad],
            &["sessions", "export", bad, "--format", "html", "--to", &to],
            &["sessions", "export", bad, "--format", "audit", "--to", &to],
            &["sessions", "export", bad, "--format", "trace", "--to", &to],
            &["sessions", "delete", bad, "--yes"],
            &["stats", bad],
            &["replay", bad],
            &["resume", "--script", &script, bad, "go"],
            &[
                "run",
                "--in-place",
                "--script",
                &script,
                "--resume",
                bad,
                "go",
            ],
            &["undo", "--session", bad],
            &["redo", "--session", bad],
            &["fork", bad],
            &["sessions", "salvage", bad],
        ] {
            let output = fixture.run(args);
            assert_eq!(output.code, 2, "{args:?}: {}", output.err);
            assert!(
                output.err.contains("is not a valid session id"),
                "{args:?}: {}",
                output.err
            );
            assert!(!output.err.contains('\u{1b}'), "{args:?}");
        }
    }
    let id = id_of(&fixture.sessions()[0]);
    assert_eq!(
        fixture
            .run(&["sessions", "show", &id, "--run", "../x"])
            .code,
        2
    );
    assert_eq!(fixture.run(&["answer", "../x", "yes"]).code, 2);
    assert!(!std::path::Path::new(&to).exists());
    assert_eq!(fixture.sessions().len(), 1);
}

#[test]
fn the_list_shows_the_state_of_each_session() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    let write =
        "[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"a\", content = \"\" } }]\n";
    assert_eq!(fixture.play(write, &[]).code, 5);
    let state = || -> Vec<String> {
        let rows = fixture.run(&["sessions", "list", "--json"]).out;
        let mut rows: Vec<Value> = rows
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        rows.sort_by_key(|row| row["opened"].to_string());
        rows.iter()
            .map(|row| row["state"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(state(), ["completed", "waiting"]);
    // A log without a terminal event belongs to a dead process.
    let logs = fixture
        .sessions()
        .into_iter()
        .map(|session| session.join("events.jsonl"));
    let ended = |log: &std::path::PathBuf| {
        std::fs::read_to_string(log)
            .unwrap()
            .contains("run_finished")
    };
    let log = logs.into_iter().find(ended).unwrap();
    let text = std::fs::read_to_string(&log).unwrap();
    let cut = text
        .lines()
        .take_while(|line| !line.contains("iteration_finished"))
        .map(|line| format!("{line}\n"));
    std::fs::write(&log, cut.collect::<String>()).unwrap();
    assert_eq!(state(), ["interrupted", "waiting"]);
    let list = fixture.run(&["sessions", "list"]).out;
    assert!(
        list.contains("interrupted") && list.contains("waiting"),
        "{list}"
    );
}

#[test]
fn a_session_is_shown_in_part_and_as_events() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    let id = id_of(&fixture.sessions()[0]);
    let script = fixture.script(HELLO);
    assert_eq!(
        fixture
            .run(&["resume", "--script", &script, &id, "again"])
            .code,
        0
    );
    let shown = |more: &[&str]| fixture.run(&[&["sessions", "show", &id], more].concat());
    let events: Vec<Value> = shown(&["--json"])
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events, fixture.log());
    let second = shown(&["--run", "r2"]).out;
    assert!(
        second.contains("prompt: again") && !second.contains("prompt: go"),
        "{second}"
    );
    let from: Vec<Value> = shown(&["--json", "--from", "5"])
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(from, events[4..]);
    assert_eq!(shown(&["--run", "r9"]).code, 2);
}

#[test]
fn clear_deletes_the_sessions_of_one_workspace_after_confirmation() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    let other = fixture.home().join("elsewhere");
    std::fs::create_dir(&other).unwrap();
    let script = fixture.script(HELLO);
    let there = other.to_str().unwrap();
    assert_eq!(
        fixture
            .run(&["run", "--in-place", "-C", there, "--script", &script, "go"])
            .code,
        0
    );
    assert_eq!(
        fixture.run(&["sessions", "clear"]).code,
        5,
        "nobody said yes"
    );
    assert_eq!(fixture.sessions().len(), 2);
    assert_eq!(fixture.run(&["sessions", "clear", "--yes"]).code, 0);
    assert_eq!(fixture.sessions().len(), 1);
    assert_eq!(
        fixture
            .run(&["sessions", "clear", "--yes", "-C", there])
            .code,
        0
    );
    assert!(fixture.sessions().is_empty());
}

#[test]
fn a_damaged_session_is_salvaged_and_resumed() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    assert_eq!(fixture.play(EDIT, &[]).code, 5);
    let session = fixture.sessions()[0].clone();
    let (id, log) = (id_of(&session), session.join("events.jsonl"));
    let good = std::fs::read_to_string(&log).unwrap();
    let whole = fixture.run(&["sessions", "salvage", &id]);
    assert!(whole.out.contains("is not damaged"), "{}", whole.out);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), good);
    let damaged = good.replacen("\"kind\":\"said\"", "\"kind\":\"sa", 1);
    std::fs::write(&log, &damaged).unwrap();
    let output = fixture.run(&["sessions", "salvage", &id, "--json"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let told: Value = serde_json::from_str(&output.out).unwrap();
    let line = good
        .lines()
        .position(|line| line.contains("\"kind\":\"said\""))
        .unwrap() as u64;
    assert_eq!(
        (&told["kept"], &told["first_bad_line"]),
        (&line.into(), &(line + 1).into())
    );
    assert_eq!(
        std::fs::read_to_string(told["original"].as_str().unwrap()).unwrap(),
        damaged
    );
    let script = fixture.script(HELLO);
    assert_eq!(
        fixture
            .run(&["resume", "--script", &script, &id, "go on"])
            .code,
        0
    );
}

/// Appends numbered notes to the log, until a snapshot is worthwhile.
fn make_long(log: &std::path::Path) {
    let text = std::fs::read_to_string(log).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let seq = last["seq"].as_u64().unwrap();
    let mut long = text;
    for more in 1..=50 {
        let mut event = last.clone();
        event["seq"] = (seq + more).into();
        event["kind"] = "noted".into();
        event["data"] = serde_json::json!({ "text": "n".repeat(100_000) });
        long.push_str(&format!("{event}\n"));
    }
    std::fs::write(log, long).unwrap();
}

#[test]
fn a_long_session_is_resumed_from_a_snapshot_that_hides_no_damage() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    let (session, id) = (fixture.sessions()[0].clone(), id_of(&fixture.sessions()[0]));
    let (log, snapshot) = (session.join("events.jsonl"), session.join("events.snap"));
    let script = fixture.script("[[step]]\nexpect = [\"hello there\"]\ntext = \"more\"\n");
    let resume = || fixture.run(&["resume", "--script", &script, &id, "and", "now"]);

    assert_eq!(resume().code, 0);
    assert!(!snapshot.exists(), "a short log needs none");
    make_long(&log);
    assert_eq!(resume().code, 0);
    assert!(snapshot.exists());
    let output = resume();
    assert_eq!(output.code, 0, "{}", output.err);

    // After a change in a note, the snapshot does not match, and the complete log is read.
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replacen("nnn", "mmm", 1)).unwrap();
    let output = resume();
    assert_eq!(output.code, 0, "{}", output.err);
    // Damage in the part that the snapshot covers is detected.
    std::fs::write(&log, text.replacen("\"kind\"", "\"kin\"", 1)).unwrap();
    let output = resume();
    assert_ne!(output.code, 0);
    assert!(output.err.contains("events.jsonl:1:"), "{}", output.err);
}

#[test]
fn without_a_kept_run_diff_shows_the_last_landed_run() {
    let fixture = CliFixture::new();
    let nothing = fixture.run(&["diff"]);
    assert_eq!(nothing.code, 2);
    fixture.write("a.txt", "one\n");
    let script = fixture.script(
        "[[step]]\ncalls = [{ name = \"edit_file\", args = { path = \"a.txt\", old = \"one\", new = \"two\" } }]\n[[step]]\ntext = \"done\"\n",
    );
    let ran = fixture.run(&["run", "--script", &script, "go"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let diff = fixture.run(&["diff"]);
    assert_eq!(diff.code, 0, "{}", diff.err);
    assert!(diff.out.contains("-one\n+two\n"), "{}", diff.out);
    assert!(diff.err.contains("no kept run"), "{}", diff.err);
    let json: Value = serde_json::from_str(&fixture.run(&["diff", "--json"]).out).unwrap();
    assert_eq!(json["files"][0]["path"], "a.txt");
    // An undone change is not shown.
    assert_eq!(fixture.run(&["undo", "--yes"]).code, 0);
    assert_eq!(fixture.run(&["diff"]).code, 2);
}

#[test]
fn a_session_is_found_by_the_beginning_of_its_id_and_by_last() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    let id = id_of(&fixture.sessions()[0]);
    for name in ["last", &id[..12], &id] {
        for command in [
            ["sessions", "show"],
            ["sessions", "export"],
            ["replay", "-q"],
        ] {
            let output = fixture.run(&[command[0], command[1], name]);
            assert_eq!(output.code, 0, "{command:?} {name}: {}", output.err);
        }
        let stats = fixture.run(&["stats", name, "--json"]);
        assert_eq!(stats.code, 0, "{}", stats.err);
    }
    assert_ne!(fixture.run(&["sessions", "show", "nope"]).code, 0);
}
