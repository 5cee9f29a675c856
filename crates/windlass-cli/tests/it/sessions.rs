//! Sessions: the log and its views, resuming, damage, secrets.

use serde_json::Value;

use crate::codes::wait_until;
use crate::place::{HELLO, Place, id_of};

const EDIT: &str = r#"
[[step]]
calls = [{ name = "edit_file", args = { path = "a.txt", old = "one", new = "two" } }]
[[step]]
expect_new = "a.txt"
text = "done"
"#;

#[test]
fn the_stream_is_the_log_and_the_result_carries_the_same_numbers() {
    let place = Place::new();
    place.write("a.txt", "one\r\n");
    let output = place.play(EDIT, &["--approval", "edit", "-o", "stream-json"]);
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
    assert_eq!(durable, place.log());
    assert!(
        shown
            .iter()
            .any(|event| event["kind"] == "delta" && event["after"].is_u64())
    );
    assert_eq!(
        place.read("a.txt"),
        "two\r\n",
        "bytes outside the edit stay"
    );

    let place = Place::new();
    place.write("a.txt", "one\n");
    let output = place.play(EDIT, &["--approval", "edit", "--json"]);
    let result: Value = serde_json::from_str(&output.out).unwrap();
    let end = place.log().pop().unwrap();
    assert_eq!(result["totals"], end["data"]["totals"]);
    assert_eq!(result["files"], end["data"]["files"]);
    assert_eq!(result["files"][0]["path"], "a.txt");
    assert_eq!(result["text"], "done");
    assert_eq!(result["status"], "completed");
}

#[test]
fn a_prompt_comes_from_standard_input_and_files_are_attached() {
    let place = Place::new();
    place.write("notes.txt", "the attached words");
    let script = place
        .script("[[step]]\nexpect = [\"from the pipe\", \"the attached words\"]\ntext = \"ok\"\n");
    let command = place.command(&["run", "--in-place", "--script", &script, "see @notes.txt"]);
    let output = place.run_with(command, "from the pipe\n");
    assert_eq!(output.code, 0, "{}", output.err);
}

#[test]
fn a_session_goes_on_where_it_was() {
    let place = Place::new();
    assert_eq!(place.play(HELLO, &[]).code, 0);
    let id = id_of(&place.sessions()[0]);
    let script =
        place.script("[[step]]\nexpect = [\"hello there\", \"and now\"]\ntext = \"more\"\n");
    let output = place.run(&["resume", "--script", &script, &id, "and", "now"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let output = place.run(&[
        "run",
        "--in-place",
        "-c",
        "--script",
        &place.script("[[step]]\nexpect = \"more\"\ntext = \"x\"\n"),
        "again",
    ]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(place.sessions().len(), 1);
    assert!(place.run(&["sessions", "list"]).out.contains(&id));
    assert!(
        place
            .run(&["sessions", "show", &id])
            .out
            .contains("prompt: and now")
    );
    let exported = place.run(&["sessions", "export", &id]).out;
    assert_eq!(exported.lines().count(), place.log().len());
    assert!(
        place
            .run(&["sessions", "export", &id, "--format", "markdown"])
            .out
            .contains("## Prompt")
    );
    assert_eq!(
        place.run(&["sessions", "delete", &id]).code,
        5,
        "nobody said yes"
    );
    assert_eq!(place.run(&["sessions", "delete", &id, "--yes"]).code, 0);
    assert!(place.sessions().is_empty());
}

#[test]
fn a_killed_process_loses_nothing_it_said_and_the_session_goes_on() {
    let place = Place::new();
    let script =
        place.script("[[step]]\ncalls = [{ name = \"bash\", args = { command = \"sleep 20\", timeout_s = 20 } }]\n");
    let mut child = place
        .command(&["run", "--in-place", "--yes", "--script", &script, "go"])
        .spawn()
        .unwrap();
    let started = || {
        place.sessions().first().is_some_and(|session| {
            std::fs::read_to_string(session.join("events.jsonl"))
                .is_ok_and(|log| log.contains("command_started"))
        })
    };
    wait_until(started);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = place.log();
    assert_eq!(before.last().unwrap()["kind"], "command_started");
    let id = id_of(&place.sessions()[0]);
    let script = place.script("[[step]]\nexpect = \"it may have happened\"\ntext = \"I see\"\n");
    let output = place.run(&["resume", "--script", &script, &id, "go on"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let after = place.log();
    assert_eq!(after[..before.len()], before[..]);
    let ends: Vec<&Value> = after
        .iter()
        .filter(|event| event["kind"] == "run_finished")
        .collect();
    assert_eq!(ends.len(), 2);
    assert_eq!(ends[0]["data"]["outcome"]["reason"], "interrupted");
}

#[test]
fn damaged_newer_and_busy_sessions_are_refused_by_path_and_left_alone() {
    let place = Place::new();
    assert_eq!(place.play(HELLO, &[]).code, 0);
    let session = place.sessions()[0].clone();
    let (id, log) = (id_of(&session), session.join("events.jsonl"));
    let good = std::fs::read_to_string(&log).unwrap();
    let script = place.script(HELLO);
    let damaged = good.replacen("\"kind\":\"run_started\"", "\"kind\":\"run_st", 1);
    let newer = good.replacen("{\"v\":2,", "{\"v\":99,", 1);
    for (text, says) in [(damaged, "events.jsonl"), (newer, "newer")] {
        std::fs::write(&log, &text).unwrap();
        let output = place.run(&["resume", "--script", &script, &id, "x"]);
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
    // An incomplete last line is moved to another file with a notice, and the session goes on.
    std::fs::write(&log, format!("{good}{{\"v\":2,\"seq\":9")).unwrap();
    let output = place.run(&["resume", "--script", &script, &id, "x"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        place
            .log()
            .iter()
            .any(|event| event["kind"] == "warned" && event["data"]["code"] == "log_repaired")
    );
    assert!(output.err.contains("were moved to"), "{}", output.err);
}

#[test]
fn an_event_of_a_later_version_is_shown_exported_and_kept() {
    let place = Place::new();
    assert_eq!(place.play(HELLO, &[]).code, 0);
    let session = place.sessions()[0].clone();
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
        let output = place.run(command);
        assert!(
            output.code == 0 && output.out.contains("hook_ran"),
            "{command:?}: {} {}",
            output.out,
            output.err
        );
    }
    for form in ["jsonl", "markdown", "html", "audit"] {
        let output = place.run(&["sessions", "export", "--format", form, &id]);
        assert!(
            output.code == 0 && output.out.contains("hook_ran"),
            "{form}: {} {}",
            output.out,
            output.err
        );
    }
    let script = place.script(HELLO);
    assert_eq!(
        place.run(&["resume", "--script", &script, &id, "x"]).code,
        0
    );
    assert!(place.log().contains(&newer), "it is kept");
}

#[test]
fn a_planted_key_is_in_no_log_no_output_no_artifact_and_no_child() {
    let place = Place::new();
    let key = "sk-planted-0123456789abcdef";
    place.write(
        "leak.txt",
        &format!("the key is {key}\nand a second line\n"),
    );
    let script = place.script(
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
    let mut command = place.command(&[
        "run",
        "--in-place",
        "--yes",
        "-v",
        "--script",
        &script,
        &format!("my key is {key}"),
    ]);
    command.env("ANTHROPIC_API_KEY", key).env("MY_TOKEN", key);
    let output = place.run_with(command, "");
    assert_eq!(output.code, 0, "{}", output.err);
    let session = place.sessions()[0].clone();
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
fn the_stream_of_a_resumed_session_begins_with_what_is_new() {
    let place = Place::new();
    assert_eq!(place.play(HELLO, &[]).code, 0);
    let id = id_of(&place.sessions()[0]);
    let before = place.log().len();
    let script = place.script(HELLO);
    let output = place.run(&[
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
    assert_eq!(durable, place.log()[before..]);
}

#[test]
fn a_session_is_resumed_in_its_own_workspace_only() {
    let place = Place::new();
    assert_eq!(place.play(HELLO, &[]).code, 0);
    let id = id_of(&place.sessions()[0]);
    let other = place.home().join("elsewhere");
    std::fs::create_dir(&other).unwrap();
    let script = place.script(HELLO);
    let output = place.run(&[
        "resume",
        "--script",
        &script,
        "-C",
        other.to_str().unwrap(),
        &id,
        "x",
    ]);
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("add -C "), "{}", output.err);
}

#[test]
fn readers_that_leave_panic_nothing_and_end_the_run() {
    let place = Place::new();
    let steps: String = (0..30)
        .map(|n| format!("[[step]]\ntext = \"{n}\"\ncalls = [{{ name = \"bash\", args = {{ command = \"echo {n} >> done.log\" }} }}]\n"))
        .collect();
    let script = place.script(&steps);
    let line = format!(
        "{} run --in-place --yes -o stream-json --script {script} go | head -n 3; exit ${{PIPESTATUS[0]}}",
        crate::place::BINARY
    );
    let mut command = place.command(&[]);
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
    let output = place.run_with(command, "");
    assert_eq!(output.code, 130, "{}", output.err);
    assert!(!output.err.contains("panicked"), "{}", output.err);
    let steps = std::fs::read_to_string(place.work().join("done.log"))
        .map_or(0, |text| text.lines().count());
    assert!(steps < 30, "every step was run for nobody");

    let quiet = std::process::Command::new("bash")
        .args([
            "-c",
            &format!(
                "{} demo 2>&1 | head -n 1; exit ${{PIPESTATUS[0]}}",
                crate::place::BINARY
            ),
        ])
        .env("HOME", place.home())
        .output()
        .unwrap();
    assert_ne!(quiet.status.code(), Some(101));
    let full = std::process::Command::new("bash")
        .args(["-c", &format!("{} tools > /dev/full", crate::place::BINARY)])
        .env("HOME", place.home())
        .output()
        .unwrap();
    assert_eq!(full.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&full.stderr).contains("standard output could not be written"));
}

#[test]
fn a_project_cannot_loosen_or_redirect_anything() {
    let place = Place::new();
    place.write(
        ".windlass/config.toml",
        "approval = \"auto\"\nmodel = \"evil/x\"\n[rules]\nallow = [\"bash\"]\n",
    );
    let output = place.play(
        "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"touch made\" } }]\n",
        &[],
    );
    assert_eq!(output.code, 5, "{}", output.err);
    assert!(output.err.contains("may only tighten"), "{}", output.err);
    assert!(!place.work().join("made").exists());
}

#[test]
fn an_answer_is_held_to_a_schema() {
    let schema = r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}"#;
    let place = Place::new();
    let good = "[[step]]\ntext = \"three\"\n[[step]]\nexpect_new = \"does not match\"\ntext = '{\"n\": 3}'\n";
    let output = place.play(good, &["--json-schema", schema, "--json"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let result: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(result["structured_output"]["n"], 3);

    let output = Place::new().play(
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
        let output = Place::new().play(HELLO, &["--json-schema", bad]);
        assert_eq!(output.code, 2);
        assert!(output.err.contains(says), "{bad}: {}", output.err);
    }
}

#[test]
fn an_id_that_could_leave_its_folder_is_refused_on_every_surface() {
    let place = Place::new();
    assert_eq!(place.play(HELLO, &[]).code, 0);
    let script = place.script(HELLO);
    let to = place.home().join("out").display().to_string();
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
            let output = place.run(args);
            assert_eq!(output.code, 2, "{args:?}: {}", output.err);
            assert!(
                output.err.contains("is not a valid session id"),
                "{args:?}: {}",
                output.err
            );
            assert!(!output.err.contains('\u{1b}'), "{args:?}");
        }
    }
    let id = id_of(&place.sessions()[0]);
    assert_eq!(
        place.run(&["sessions", "show", &id, "--run", "../x"]).code,
        2
    );
    assert_eq!(place.run(&["answer", "../x", "yes"]).code, 2);
    assert!(!std::path::Path::new(&to).exists());
    assert_eq!(place.sessions().len(), 1);
}

#[test]
fn a_list_says_where_each_session_stands() {
    let place = Place::new();
    assert_eq!(place.play(HELLO, &[]).code, 0);
    let write =
        "[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"a\", content = \"\" } }]\n";
    assert_eq!(place.play(write, &[]).code, 5);
    let state = || -> Vec<String> {
        let rows = place.run(&["sessions", "list", "--json"]).out;
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
    // A log that simply ends was left by its process.
    let logs = place
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
    let list = place.run(&["sessions", "list"]).out;
    assert!(
        list.contains("interrupted") && list.contains("waiting"),
        "{list}"
    );
}

#[test]
fn a_session_is_shown_in_part_and_as_events() {
    let place = Place::new();
    assert_eq!(place.play(HELLO, &[]).code, 0);
    let id = id_of(&place.sessions()[0]);
    let script = place.script(HELLO);
    assert_eq!(
        place
            .run(&["resume", "--script", &script, &id, "again"])
            .code,
        0
    );
    let shown = |more: &[&str]| place.run(&[&["sessions", "show", &id], more].concat());
    let events: Vec<Value> = shown(&["--json"])
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events, place.log());
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
fn clearing_takes_the_sessions_of_one_workspace_after_a_yes() {
    let place = Place::new();
    assert_eq!(place.play(HELLO, &[]).code, 0);
    let other = place.home().join("elsewhere");
    std::fs::create_dir(&other).unwrap();
    let script = place.script(HELLO);
    let there = other.to_str().unwrap();
    assert_eq!(
        place
            .run(&["run", "--in-place", "-C", there, "--script", &script, "go"])
            .code,
        0
    );
    assert_eq!(place.run(&["sessions", "clear"]).code, 5, "nobody said yes");
    assert_eq!(place.sessions().len(), 2);
    assert_eq!(place.run(&["sessions", "clear", "--yes"]).code, 0);
    assert_eq!(place.sessions().len(), 1);
    assert_eq!(
        place.run(&["sessions", "clear", "--yes", "-C", there]).code,
        0
    );
    assert!(place.sessions().is_empty());
}

#[test]
fn a_damaged_session_is_salvaged_and_goes_on() {
    let place = Place::new();
    place.write("a.txt", "one\n");
    assert_eq!(place.play(EDIT, &[]).code, 5);
    let session = place.sessions()[0].clone();
    let (id, log) = (id_of(&session), session.join("events.jsonl"));
    let good = std::fs::read_to_string(&log).unwrap();
    let whole = place.run(&["sessions", "salvage", &id]);
    assert!(whole.out.contains("is not damaged"), "{}", whole.out);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), good);
    let damaged = good.replacen("\"kind\":\"said\"", "\"kind\":\"sa", 1);
    std::fs::write(&log, &damaged).unwrap();
    let output = place.run(&["sessions", "salvage", &id, "--json"]);
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
    let script = place.script(HELLO);
    assert_eq!(
        place
            .run(&["resume", "--script", &script, &id, "go on"])
            .code,
        0
    );
}

/// Makes the log longer than a snapshot is worth: notes with their numbers in order.
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
    let place = Place::new();
    assert_eq!(place.play(HELLO, &[]).code, 0);
    let (session, id) = (place.sessions()[0].clone(), id_of(&place.sessions()[0]));
    let (log, snapshot) = (session.join("events.jsonl"), session.join("events.snap"));
    let script = place.script("[[step]]\nexpect = [\"hello there\"]\ntext = \"more\"\n");
    let resume = || place.run(&["resume", "--script", &script, &id, "and", "now"]);

    assert_eq!(resume().code, 0);
    assert!(!snapshot.exists(), "a short log needs none");
    make_long(&log);
    assert_eq!(resume().code, 0);
    assert!(snapshot.exists());
    let output = resume();
    assert_eq!(output.code, 0, "{}", output.err);

    // Another word in a note: the snapshot no longer fits, and the whole log is read.
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replacen("nnn", "mmm", 1)).unwrap();
    let output = resume();
    assert_eq!(output.code, 0, "{}", output.err);
    // Damage in the part that was folded is found.
    std::fs::write(&log, text.replacen("\"kind\"", "\"kin\"", 1)).unwrap();
    let output = resume();
    assert_ne!(output.code, 0);
    assert!(output.err.contains("events.jsonl:1:"), "{}", output.err);
}

#[test]
fn without_a_kept_run_diff_shows_the_last_one_that_landed() {
    let place = Place::new();
    let nothing = place.run(&["diff"]);
    assert_eq!(nothing.code, 2);
    place.write("a.txt", "one\n");
    let script = place.script(
        "[[step]]\ncalls = [{ name = \"edit_file\", args = { path = \"a.txt\", old = \"one\", new = \"two\" } }]\n[[step]]\ntext = \"done\"\n",
    );
    let ran = place.run(&["run", "--script", &script, "go"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let diff = place.run(&["diff"]);
    assert_eq!(diff.code, 0, "{}", diff.err);
    assert!(diff.out.contains("-one\n+two\n"), "{}", diff.out);
    assert!(diff.err.contains("no kept run"), "{}", diff.err);
    let json: Value = serde_json::from_str(&place.run(&["diff", "--json"]).out).unwrap();
    assert_eq!(json["files"][0]["path"], "a.txt");
    // An undone change is not shown.
    assert_eq!(place.run(&["undo", "--yes"]).code, 0);
    assert_eq!(place.run(&["diff"]).code, 2);
}

#[test]
fn a_session_is_named_by_its_beginning_and_by_last() {
    let place = Place::new();
    assert_eq!(place.play(HELLO, &[]).code, 0);
    let id = id_of(&place.sessions()[0]);
    for name in ["last", &id[..12], &id] {
        for command in [
            ["sessions", "show"],
            ["sessions", "export"],
            ["replay", "-q"],
        ] {
            let output = place.run(&[command[0], command[1], name]);
            assert_eq!(output.code, 0, "{command:?} {name}: {}", output.err);
        }
        let stats = place.run(&["stats", name, "--json"]);
        assert_eq!(stats.code, 0, "{}", stats.err);
    }
    assert_ne!(place.run(&["sessions", "show", "nope"]).code, 0);
}
