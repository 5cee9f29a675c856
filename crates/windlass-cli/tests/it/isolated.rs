//! Isolated runs: failures, fixes, landing, kept runs, resume, undo, and kills at any moment.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::cli_fixture::{CliFixture, CliOutput};
use windlass_needs::{Need, lacks};

/// A repository with a test that `check.sh` runs.
fn project() -> CliFixture {
    let fixture = CliFixture::new();
    fixture.write(
        "check.sh",
        "grep -q good value.txt || { echo 'value.txt:1: it is not good'; exit 1; }\n",
    );
    fixture.write("value.txt", "bad\n");
    fixture.write("other.txt", "other\n");
    git(&fixture, &["init", "-qb", "main"]);
    git(&fixture, &["add", "-A"]);
    git(&fixture, &["commit", "-qm", "one"]);
    fixture
}

fn git(fixture: &CliFixture, args: &[&str]) -> String {
    let mut command = std::process::Command::new("git");
    command
        .args(["-c", "user.name=n", "-c", "user.email=e"])
        .args(args);
    let done = command
        .current_dir(fixture.work())
        .env("HOME", fixture.home())
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

fn run(fixture: &CliFixture, script: &str, more: &[&str]) -> CliOutput {
    let script = fixture.script(script);
    let mut args = vec!["run", "--script", script.as_str(), "make it good"];
    args.extend_from_slice(more);
    fixture.run(&args)
}

fn json(output: &CliOutput) -> Value {
    serde_json::from_str(&output.out)
        .unwrap_or_else(|err| panic!("{err}: {} {}", output.out, output.err))
}

fn write_step(path: &str, text: &str) -> String {
    format!(
        "[[step]]\ncalls = [{{ name = \"write_file\", args = {{ path = \"{path}\", content = \"{text}\" }} }}]\n"
    )
}

const DONE: &str = "[[step]]\ntext = \"done\"\n";
const CHECK: &[&str] = &["--validate", "sh check.sh", "--json"];

#[test]
fn a_failing_and_a_passing_iteration_land() {
    let fixture = project();
    fixture.write("value.txt", "bad\n2\n3\n");
    let expect = "[[step]]\nexpect_new = [\"value.txt:1: it is not good\", \"make it good\"]\n";
    let fix = "calls = [{ name = \"write_file\", args = { path = \"value.txt\", content = \"good\\n2\\n3\\n\" } }]\n";
    let script = format!(
        "{}{DONE}{expect}{fix}{DONE}",
        write_step("value.txt", "worse\\n")
    );
    let result = run(&fixture, &script, CHECK);
    assert_eq!(result.code, 0, "{}", result.err);
    let result = json(&result);
    assert_eq!(
        (&result["iterations"], &result["status"]),
        (&2.into(), &"completed".into())
    );
    assert_eq!(result["landed"]["files"], serde_json::json!(["value.txt"]));
    assert_eq!(result["evidence"][1]["proof"]["command"], "sh check.sh");
    assert_eq!(
        result["evidence"][1]["tree_hash"],
        result["landed"]["tree_hash"]
    );
    assert_eq!(fixture.read("value.txt"), "good\n2\n3\n");
    // All of it can be taken back, and done again, with what was written since.
    fixture.write("value.txt", "good\n2\n3\nmine\n");
    assert_eq!(fixture.run(&["undo"]).code, 0);
    assert_eq!(fixture.read("value.txt"), "bad\n2\n3\nmine\n");
    assert_eq!(fixture.run(&["redo"]).code, 0);
    assert_eq!(fixture.read("value.txt"), "good\n2\n3\nmine\n");
    let kinds: Vec<String> = fixture
        .log()
        .iter()
        .map(|event| event["kind"].as_str().unwrap().to_owned())
        .collect();
    assert!(
        kinds.ends_with(&["undone".into(), "redone".into()]),
        "{kinds:?}"
    );
}

#[test]
fn a_failing_run_is_kept_shown_resumed_and_landed() {
    let fixture = project();
    let script = format!("{}{DONE}{DONE}", write_step("value.txt", "worse\\n"));
    let failed = run(&fixture, &script, CHECK);
    assert_eq!(failed.code, 3, "{}", failed.err);
    let failed = json(&failed);
    let name = failed["transaction"].as_str().unwrap().to_owned();
    assert!(
        failed["outcome"]["detail"]
            .as_str()
            .unwrap()
            .contains("nothing improved"),
        "{failed}"
    );
    assert_eq!(fixture.read("value.txt"), "bad\n");

    let status = json(&fixture.run(&["status", "--json"]));
    assert_eq!(
        (&status["kept"][0]["name"], &status["kept"][0]["files"]),
        (&name.clone().into(), &1.into())
    );
    let diff = fixture.run(&["diff", &name]);
    assert!(
        diff.out.contains("-bad") && diff.out.contains("+worse"),
        "{}",
        diff.out
    );
    assert!(json(&fixture.run(&["diff", "--json"]))["tree_hash"].is_string());
    let refused = fixture.run(&["land", &name, "--validate", "sh check.sh"]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert_eq!(fixture.read("value.txt"), "bad\n");

    let script = fixture.script(&format!("{}{DONE}", write_step("value.txt", "good\\n")));
    let resumed = fixture.run(&[
        "resume",
        &name,
        "--script",
        &script,
        "--validate",
        "sh check.sh",
        "--json",
    ]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert_eq!(fixture.read("value.txt"), "good\n");
    assert!(fixture.run(&["status"]).out.contains("no kept runs"));
    assert_eq!(
        fixture.run(&["discard", &name, "--yes"]).code,
        2,
        "it is not there any more"
    );
    assert_eq!(fixture.sessions().len(), 1, "all of it is one session");
}

#[test]
fn a_session_is_resumed_on_its_copy_with_its_flags() {
    let fixture = project();
    let script = format!("{}{DONE}", write_step("value.txt", "worse\\n"));
    let check = [
        "--validate",
        "grep -q good value.txt",
        "--max-iterations",
        "1",
    ];
    let kept = run(&fixture, &script, &[&check[..], &["--json"]].concat());
    assert_eq!(kept.code, 3, "{}", kept.err);
    let session = crate::cli_fixture::id_of(&fixture.sessions()[0]);
    // A prompt alone, the beginning of the id and `last` all find the session; the check of the first run still applies.
    let worse = fixture.script(DONE);
    for args in [
        &["resume", "try once more", "--script", &worse][..],
        &[
            "resume",
            &session[..12],
            "try once more",
            "--script",
            &worse,
        ],
        &["resume", "last", "try once more", "--script", &worse],
    ] {
        let output = fixture.run(args);
        assert_eq!(output.code, 3, "{args:?}: {}", output.err);
        assert!(
            output.err.contains("continuing on the copy of"),
            "{}",
            output.err
        );
        assert_eq!(fixture.read("value.txt"), "bad\n", "{args:?}");
    }
    let script = fixture.script(&format!("{}{DONE}", write_step("value.txt", "good\\n")));
    let output = fixture.run(&["resume", "make it good", "--script", &script]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(fixture.read("value.txt"), "good\n");
    assert_eq!(fixture.sessions().len(), 1);
    // There is no kept run any more, and the session still works on a copy.
    let script = fixture.script(&format!("{}{DONE}", write_step("value.txt", "bad\\n")));
    let output = fixture.run(&["resume", "spoil it", "--script", &script]);
    assert_eq!(output.code, 3, "{}", output.err);
    assert_eq!(fixture.read("value.txt"), "good\n");
    let script = fixture.script(&format!("{}{DONE}", write_step("value.txt", "in place\\n")));
    let args = [
        "resume",
        "--in-place",
        "--yes",
        "--unset",
        "validate",
        "spoil it",
    ];
    let output = fixture.run(&[&args[..], &["--script", &script]].concat());
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(fixture.read("value.txt"), "in place\n");
}

#[test]
fn a_kept_run_is_landed_or_discarded() {
    let fixture = project();
    let script = format!("{}{DONE}{DONE}", write_step("value.txt", "fine\\n"));
    let name = json(&run(&fixture, &script, CHECK))["transaction"]
        .as_str()
        .unwrap()
        .to_owned();
    let landed = fixture.run(&["land", "--validate", "grep -q fine value.txt"]);
    assert_eq!(landed.code, 0, "{}", landed.err);
    assert!(landed.err.contains("landed 1 file"), "{}", landed.err);
    assert_eq!(fixture.read("value.txt"), "fine\n");
    assert_eq!(fixture.run(&["diff", &name]).code, 2);

    let script = format!("{}{DONE}{DONE}", write_step("value.txt", "worse\\n"));
    let name = json(&run(&fixture, &script, CHECK))["transaction"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        fixture.run(&["discard", &name]).code,
        5,
        "it is asked first"
    );
    assert_eq!(fixture.run(&["discard", &name, "--yes"]).code, 0);
    assert!(fixture.run(&["status"]).out.contains("no kept runs"));
    let noted = fixture.sessions().iter().any(|session| {
        let log = std::fs::read_to_string(session.join("events.jsonl")).unwrap();
        let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        last["kind"] == "discarded" && last["data"]["name"] == name.as_str()
    });
    assert!(noted);
    for bad in ["../x", "nobody-home-1"] {
        assert_eq!(fixture.run(&["diff", bad]).code, 2);
    }
}

#[test]
fn landing_a_kept_run_without_changes_reports_that_nothing_lands() {
    let fixture = project();
    let script = format!("{}{DONE}{DONE}", write_step("value.txt", "fine\\n"));
    run(&fixture, &script, CHECK);
    fixture.write("value.txt", "fine\n");
    let landed = fixture.run(&["land"]);
    assert_eq!(landed.code, 0, "{}", landed.err);
    assert!(
        landed.err.contains("there is nothing to land"),
        "{}",
        landed.err
    );
    assert!(fixture.run(&["status"]).out.contains("no kept runs"));
}

#[test]
fn commits_of_a_run_without_file_changes_are_not_lost() {
    let fixture = project();
    for (key, value) in [("user.name", "n"), ("user.email", "e")] {
        git(&fixture, &["config", key, value]);
    }
    fixture.write("other.txt", "mine\n");
    let commit = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"git add -A && git commit -qm mine\" } }]\n";
    let script = format!("{commit}{DONE}");
    let result = run(&fixture, &script, &["--json"]);
    assert_eq!(result.code, 0, "{}", result.err);
    let refname = json(&result)["landed"]["ref"].as_str().unwrap().to_owned();
    assert_eq!(
        git(&fixture, &["show", "-s", "--format=%s", &refname]),
        "mine"
    );
    // A different message, because an equal commit in the same second has the same hash.
    let failed = run(
        &fixture,
        &script.replace("-qm mine", "-qm again"),
        &["--json", "--require-changes"],
    );
    assert_eq!(failed.code, 1, "{}", failed.err);
    let name = json(&failed)["transaction"].as_str().unwrap().to_owned();
    let landed = json(&fixture.run(&["land", &name, "--json"]));
    assert_eq!(landed["landed"]["ref"], format!("refs/windlass/{name}"));
    assert!(fixture.run(&["status"]).out.contains("no kept runs"));
}

#[test]
fn a_failed_commit_leaves_an_undoable_landing() {
    let fixture = project();
    let script = format!("{}{DONE}{DONE}", write_step("value.txt", "good\\n"));
    for (key, value) in [
        ("user.name", "n"),
        ("user.email", "e"),
        ("commit.gpgSign", "true"),
        ("gpg.program", "false"),
    ] {
        git(&fixture, &["config", "--global", key, value]);
    }
    let failed = run(&fixture, &script, &["--commit", "--json"]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    let detail = json(&failed)["outcome"]["detail"].clone();
    assert!(
        detail.as_str().unwrap().contains("the commit was not made"),
        "{detail}"
    );
    assert_eq!(
        (fixture.read("value.txt"), fixture.run(&["undo"]).code),
        ("good\n".into(), 0)
    );
    assert_eq!(fixture.read("value.txt"), "bad\n");
    git(&fixture, &["config", "--global", "commit.gpgSign", "false"]);
    assert_eq!(run(&fixture, &script, &["--validate", "false"]).code, 3);
    let landed = fixture.run(&["land", "--validate", "none", "--commit"]);
    assert_eq!(landed.code, 0, "{}", landed.err);
    assert_eq!(
        git(&fixture, &["show", "-s", "--format=%s"]),
        "make it good",
        "it says what was asked for"
    );
}

#[test]
fn undo_asks_before_undoing_an_older_run_and_names_the_commit() {
    let fixture = project();
    git(&fixture, &["config", "user.name", "n"]);
    git(&fixture, &["config", "user.email", "e"]);
    let script = format!("{}{DONE}", write_step("value.txt", "good\\n"));
    let landed = run(&fixture, &script, &["--commit", "--json"]);
    assert_eq!(landed.code, 0, "{}", landed.err);
    let commit = git(&fixture, &["rev-parse", "HEAD"]);
    // A newer session that changed nothing.
    assert_eq!(run(&fixture, DONE, &[]).code, 0);
    let refused = fixture.run(&["undo"]);
    assert_eq!(
        (refused.code, fixture.read("value.txt").as_str()),
        (5, "good\n"),
        "{}",
        refused.err
    );
    let hint = refused
        .err
        .split('`')
        .find(|part| part.starts_with("windlass undo"))
        .unwrap();
    let args: Vec<&str> = hint.split(' ').skip(1).collect();
    let undone = fixture.run(&args);
    assert_eq!(
        (undone.code, fixture.read("value.txt").as_str()),
        (0, "bad\n"),
        "{}",
        undone.err
    );
    assert!(undone.err.contains(&commit), "{}", undone.err);
    assert_eq!(fixture.run(&["redo"]).code, 0);
    let reverted = fixture.run(&["undo", "--yes", "--revert-commit"]);
    assert_eq!(reverted.code, 0, "{}", reverted.err);
    assert_eq!(git(&fixture, &["show", "HEAD:value.txt"]), "bad");
    assert_eq!(git(&fixture, &["rev-parse", "HEAD^"]), commit);
    assert_eq!(git(&fixture, &["status", "--porcelain"]), "");
    let refused = fixture.run(&["undo", "--call", "no-such"]);
    assert!(
        refused.err.contains("undoes a whole run"),
        "{}",
        refused.err
    );
}

/// The process dies between the landing of an undo and its event in the log.
#[test]
fn an_unlogged_undo_is_logged_by_the_next_command() {
    let fixture = project();
    let script = format!("{}{DONE}", write_step("value.txt", "good\\n"));
    assert_eq!(run(&fixture, &script, &[]).code, 0);
    assert_eq!(fixture.run(&["undo"]).code, 0);
    let session = fixture.sessions().pop().unwrap();
    let path = session.join("events.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, undone) = text.trim_end().rsplit_once('\n').unwrap();
    let undone: Value = serde_json::from_str(undone).unwrap();
    assert_eq!(undone["kind"], "undone");
    std::fs::write(&path, format!("{before}\n")).unwrap();
    let swaps = undone["data"]["swaps"].as_array().unwrap().iter();
    let root = fixture.work().canonicalize().unwrap();
    let record = serde_json::json!({
        "state": "done", "name": ".windlass-landing-1", "stages": [""], "made": [], "emptied": [], "hold": false,
        "root": { "Unix": root.as_os_str().as_encoded_bytes() },
        "swaps": swaps.map(|swap| serde_json::json!([swap, 0])).collect::<Vec<_>>(),
        "mode": { "undo": { "session": undone["session"], "redo": false, "of": undone["data"]["of"], "also": [] } },
    });
    let journals = fixture.home().join(".local/share/windlass/undo/journals");
    let journal = std::fs::read_dir(journals)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let file = journal.path().join("landed-1.json");
    std::fs::write(&file, record.to_string()).unwrap();
    // Again, with a record that remains although the log already has the event.
    for _ in 0..2 {
        assert_eq!(fixture.run(&["status"]).code, 0);
        assert!(!file.exists());
        let log = fixture.log();
        let kinds = log.iter().filter(|event| event["kind"] == "undone");
        assert_eq!(kinds.count(), 1);
        std::fs::write(&file, record.to_string()).unwrap();
    }
    assert_eq!(fixture.run(&["redo"]).code, 0);
    assert_eq!(fixture.read("value.txt"), "good\n");
}

#[test]
fn a_resumed_kept_run_gets_the_piped_prompt() {
    let fixture = project();
    let script = format!("{}{DONE}", write_step("value.txt", "good\\n"));
    let stopped = json(&run(&fixture, &script, &["--max-steps", "1", "--json"]));
    let script = fixture.script("[[step]]\nexpect_new = \"and be brief\"\ntext = \"done\"\n");
    let args = [
        "resume",
        stopped["transaction"].as_str().unwrap(),
        "--script",
        &script,
    ];
    let mut child = fixture
        .command(&args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"and be brief\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(fixture.read("value.txt"), "good\n");
}

#[test]
fn a_bare_repository_is_not_a_workspace() {
    let fixture = project();
    git(&fixture, &["clone", "-q", "--bare", ".", "bare.git"]);
    let output = fixture.run(&[
        "run",
        "-C",
        "bare.git",
        "--script",
        &fixture.script(DONE),
        "go",
    ]);
    // Inside a work tree it belongs to that tree; alone it is refused.
    assert_ne!(output.code, 8, "{}", output.err);
    std::fs::rename(
        fixture.work().join("bare.git"),
        fixture.home().join("bare.git"),
    )
    .unwrap();
    let bare = fixture.home().join("bare.git").display().to_string();
    let output = fixture.run(&["run", "-C", &bare, "--script", &fixture.script(DONE), "go"]);
    assert!(
        output.code == 8 && output.err.contains("git worktree add"),
        "{}",
        output.err
    );
}

#[test]
fn a_run_stopped_by_a_limit_is_kept_and_resumed() {
    let fixture = project();
    let script = format!("{}{DONE}", write_step("value.txt", "good\\n"));
    let told = run(&fixture, &script, &["--max-steps", "1", "-q"]);
    assert!(told.err.contains("kept as "), "{}", told.err);
    let kept = told
        .err
        .split_once("kept as ")
        .unwrap()
        .1
        .split_whitespace()
        .next()
        .unwrap();
    assert!(
        told.err
            .contains(&format!("`windlass resume {kept}` continues")),
        "{}",
        told.err
    );
    let stopped = run(&fixture, &script, &["--max-steps", "1", "--json"]);
    assert_eq!(stopped.code, 4, "{}", stopped.err);
    let stopped = json(&stopped);
    assert_eq!(
        (&stopped["exceeded"], &stopped["limits"]["steps"]),
        (&"steps".into(), &1.into())
    );
    let name = stopped["transaction"].as_str().unwrap();
    let script = fixture.script(DONE);
    let resumed = fixture.run(&[
        "resume",
        name,
        "--script",
        &script,
        "--validate",
        "sh check.sh",
    ]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert_eq!(fixture.read("value.txt"), "good\n");
}

#[test]
fn changed_judges_and_forbidden_paths_do_not_land() {
    let cheat = format!("{}{DONE}{DONE}", write_step("check.sh", "exit 0\\n"));
    let fixture = project();
    let result = run(&fixture, &cheat, &["--validate", "sh check.sh", "--json"]);
    assert_eq!(
        result.code, 0,
        "a changed judge is listed, and no more: {}",
        result.err
    );
    assert_eq!(
        json(&result)["judge_changed"],
        serde_json::json!(["check.sh"])
    );
    let fixture = project();
    let result = run(
        &fixture,
        &cheat,
        &["--validate", "sh check.sh", "--strict-judge", "--json"],
    );
    assert_eq!(result.code, 3, "{}", result.err);
    let fixture = project();
    fixture.write(
        ".windlass/config.toml",
        "validate.protect = [\"check.sh\"]\n",
    );
    git(&fixture, &["add", "-A"]);
    git(&fixture, &["commit", "-qm", "protect"]);
    let result = run(&fixture, &cheat, CHECK);
    assert_eq!(result.code, 3, "the judge of before judges: {}", result.err);
    let fixture = project();
    let result = run(
        &fixture,
        &cheat,
        &["--validate", "none", "--write-path", "value.txt", "--json"],
    );
    assert_eq!(result.code, 3, "{}", result.err);
    assert!(
        json(&result)["outcome"]["detail"]
            .as_str()
            .unwrap()
            .contains("check.sh: only the allowed paths")
    );
}

#[test]
fn unsupported_flags_of_an_in_place_run_are_reported() {
    let fixture = project();
    let cheat = format!("{}{DONE}{DONE}", write_step("other.txt", "x\\n"));
    let result = fixture.play(&cheat, &["--yes", "--write-path", "value.txt", "--json"]);
    assert_eq!(result.code, 3, "{}", result.err);
    assert!(
        json(&result)["outcome"]["detail"]
            .as_str()
            .unwrap()
            .contains("other.txt: only the allowed paths")
    );
    for flag in ["--commit", "--patch=x", "--land-anyway"] {
        let result = fixture.play(DONE, &[flag]);
        assert!(
            result.code == 2 && result.err.contains("in-place"),
            "{flag}: {}",
            result.err
        );
    }
}

#[test]
fn an_answer_without_changes_is_completed_unless_changes_are_required() {
    let fixture = project();
    let result = run(&fixture, DONE, &["--json", "--require-changes"]);
    assert_eq!(
        (result.code, json(&result)["outcome"]["reason"].clone()),
        (1, "no_changes".into())
    );
    // A check that would fail does not run.
    let result = run(&fixture, DONE, &["--validate", "false"]);
    assert_eq!(result.code, 0, "{}", result.err);
    assert!(result.err.contains("no files changed"), "{}", result.err);
    assert!(fixture.run(&["status"]).out.contains("no kept runs"));
}

#[test]
fn structured_output_is_a_result_without_changes() {
    let fixture = project();
    let schema = r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}"#;
    let good = "[[step]]\ntext = '{\"n\": 3}'\n";
    let result = run(&fixture, good, &["--json-schema", schema, "--json"]);
    assert_eq!(
        result.code, 0,
        "an answer was asked for, so nothing needs to change: {}",
        result.err
    );
    assert_eq!(
        json(&result)["structured_output"],
        serde_json::json!({ "n": 3 })
    );
    let result = run(
        &fixture,
        &"[[step]]\ntext = 'three'\n".repeat(5),
        &["--json-schema", schema, "--json"],
    );
    assert_eq!(
        (result.code, json(&result)["outcome"]["reason"].clone()),
        (1, "structured_output".into())
    );
    let refuses = "[[step]]\ncalls = [{ name = \"refuse\", args = { category = \"safety\", reason = \"no\" } }]\n";
    let result = run(&fixture, refuses, &["--json"]);
    assert_eq!(
        (result.code, json(&result)["outcome"]["category"].clone()),
        (6, "safety".into())
    );
}

#[test]
fn every_prompt_of_an_isolated_chat_lands_by_itself() {
    let fixture = project();
    let script = fixture.script(&format!(
        "{}{DONE}{}{DONE}",
        write_step("value.txt", "one\\n"),
        write_step("value.txt", "two\\n")
    ));
    let command = fixture.command(&[
        "chat",
        "--isolated",
        "--script",
        &script,
        "--validate",
        "true",
    ]);
    let output = fixture.run_with(command, "first\nsecond\n");
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(
        (
            output.err.matches("landed 1 file").count(),
            fixture.read("value.txt")
        ),
        (2, "two\n".into())
    );
    assert_eq!(fixture.run(&["undo"]).code, 0);
    assert_eq!(fixture.read("value.txt"), "one\n");
    assert_eq!(fixture.run(&["undo"]).code, 0);
    assert_eq!(fixture.read("value.txt"), "bad\n");
}

#[test]
fn files_ignored_only_by_the_run_are_absent_from_the_checks() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = project();
    let bash = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"mkdir -p lib && echo good > lib/h && echo lib/ >> .gitignore && ln -sf lib/h value.txt\" } }]\n";
    let result = run(&fixture, &format!("{bash}{DONE}{DONE}"), CHECK);
    assert_eq!(
        result.code, 3,
        "without lib/h it is not good: {} {}",
        result.out, result.err
    );
    let name = json(&result)["transaction"].as_str().unwrap().to_owned();
    let left = json(&fixture.run(&["diff", &name, "--json"]))["left"].clone();
    assert_eq!(left, serde_json::json!(["lib"]), "it is back in the copy");
}

#[test]
fn syntax_errors_are_sent_back_with_their_line() {
    let fixture = project();
    let script = format!(
        "{}{DONE}[[step]]\nexpect_new = [\"tool.py:1:\"]\n{}{DONE}",
        write_step("tool.py", "def f(:\\n"),
        write_step("tool.py", "def f(): pass\\n").trim_start_matches("[[step]]\n"),
    );
    let result = run(&fixture, &script, &["--json"]);
    assert_eq!(result.code, 0, "{}", result.err);
    assert_eq!(json(&result)["iterations"], 2);
    // A symlink has no syntax. A symlink out of the workspace needs approval.
    for (to, code) in [("nowhere/x.py", 0), ("/nowhere/x.py", 5)] {
        let fixture = project();
        let link = format!(
            "[[step]]\ncalls = [{{ name = \"bash\", args = {{ command = \"ln -s {to} x.py\" }} }}]\n"
        );
        let result = run(&fixture, &format!("{link}{DONE}"), &["--json"]);
        assert_eq!(result.code, code, "{}", result.err);
    }
}

#[test]
fn invalid_validators_are_reported_before_the_run_starts() {
    let fixture = project();
    fixture.write(".windlass/config.toml", "");
    let config = fixture.home().join(".config/windlass/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    let mut times = 0;
    let mut changing = || {
        times += 1;
        let change = write_step("value.txt", &format!("{times}\\n"));
        format!("{change}{}", DONE.repeat(3))
    };
    let mut check = |text: &str, code: i32, says: &str| {
        std::fs::write(&config, text).unwrap();
        let output = run(&fixture, &changing(), &[]);
        assert!(
            output.code == code && output.err.contains(says),
            "{text}: {} {}",
            output.code,
            output.err
        );
    };
    check(
        "validate.chain = [\"syntex\"]\n",
        2,
        "did you mean `syntax`?",
    );
    check(
        "[validators.own]\ncommand = \"true\"\ncustom = \"true\"\n",
        2,
        "both `command` and `custom`",
    );
    check(
        "[validators.own]\ncommand = \"true\"\ntimeout_s = 0\n",
        2,
        "timeout_s",
    );
    check("[validators.own]\ncomand = \"true\"\n", 2, "did you mean");
    check(
        "validate.chain = [\"own\"]\n[validators.own]\ncommand = \"false\"\n",
        3,
        "own",
    );
    check(
        "validate.chain = [\"own\"]\n[validators.own]\ncommand = \"no-such-program\"\n",
        3,
        "no-such-program",
    );
    check(
        "validate.chain = [\"own\"]\n[validators.own]\ncommand = \"sleep 60\"\ntimeout_s = 1\n",
        3,
        "1 second",
    );
    check(
        "validate.chain = [\"own\"]\n[validators.own]\ncommand = \"yes\"\ntimeout_s = 1\n",
        3,
        "own",
    );
    check(
        "validate.chain = [\"own\"]\n[validators.own]\ncustom = \"echo hello\"\n",
        3,
        "JSON",
    );
    let lies = "validate.chain = [\"own\"]\n[validators.own]\ncustom = '''echo '{\"verdict\":\"pass\"}'; exit 1'''\n";
    check(lies, 3, "own");
    let passes = "validate.chain = [\"own\"]\n[validators.own]\ncustom = '''cat >/dev/null; echo '{\"verdict\":\"pass\"}' '''\n";
    check(passes, 0, "");
    let output = run(
        &fixture,
        DONE,
        &["--validate", "none", "--validate", "true"],
    );
    assert_eq!(output.code, 2, "{}", output.err);
    std::fs::write(&config, "validate.chain = [\"syntax\"]\n").unwrap();
    let output = run(&fixture, &changing(), &["--validate", "false"]);
    assert_eq!(
        output.code, 3,
        "what is asked for looks, whatever the chain is: {}",
        output.err
    );
}

#[test]
fn detected_checks_search_programs_in_their_own_environment() {
    let fixture = project();
    fixture.write(
        "package.json",
        "{ \"scripts\": { \"test\": \"exit 1\" } }\n",
    );
    let output = run(
        &fixture,
        &format!("{}{}", write_step("value.txt", "good\\n"), DONE.repeat(2)),
        &["--json"],
    );
    // If the program itself is missing, the message names it.
    let missing = output.err.contains("npm is not installed");
    assert!(output.code == 3 || missing, "{}", output.err);
    assert!(
        !output.err.contains("CI=true is not installed"),
        "{}",
        output.err
    );
}

#[test]
fn commits_that_change_no_file_are_not_lost() {
    let commit =
        "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"git commit -qam mine\" } }]\n";
    let script = format!("{commit}{DONE}");
    let fixture = project();
    fixture.write("value.txt", "mine\n");
    git(&fixture, &["config", "user.name", "n"]);
    git(&fixture, &["config", "user.email", "e"]);
    let failed = run(&fixture, &script, &["--json", "--require-changes"]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    let name = json(&failed)["transaction"].as_str().unwrap().to_owned();
    assert_eq!(fixture.run(&["diff", &name]).code, 0);
    let landed = fixture.run(&["land", &name]);
    assert_eq!(landed.code, 0, "{}", landed.err);
    assert_eq!(
        git(
            &fixture,
            &["log", "-1", "--format=%s", &format!("refs/windlass/{name}")]
        ),
        "mine"
    );
    assert_eq!(git(&fixture, &["log", "-1", "--format=%s"]), "one");
}

#[test]
fn showing_a_kept_run_deletes_nothing() {
    let fixture = project();
    let script = format!("{}{DONE}{DONE}", write_step("value.txt", "worse\\n"));
    let name = json(&run(&fixture, &script, CHECK))["transaction"]
        .as_str()
        .unwrap()
        .to_owned();
    fixture.write("value.txt", "worse\n");
    assert_eq!(fixture.run(&["diff", &name]).code, 0);
    fixture.write("value.txt", "bad\n");
    let diff = fixture.run(&["diff", &name]);
    assert!(
        diff.code == 0 && diff.out.contains("+worse"),
        "{}{}",
        diff.out,
        diff.err
    );
}

#[test]
fn a_run_that_deletes_the_tree_needs_a_person() {
    let fixture = project();
    let script = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"git rm -rfq . && git clean -fdxq\" } }]\n";
    let result = run(
        &fixture,
        &format!("{script}{DONE}"),
        &["--validate", "none", "--on-ask", "deny", "--json"],
    );
    assert_eq!(result.code, 1, "{}", result.err);
    assert!(json(&result)["outcome"]["reason"] == "policy" && fixture.read("value.txt") == "bad\n");
    let paused = run(
        &fixture,
        &format!("{script}{DONE}"),
        &["--validate", "none", "--on-ask", "pause"],
    );
    assert!(
        paused.code == 5 && paused.err.contains("`windlass land` lands them"),
        "{}",
        paused.err
    );
}

#[test]
fn a_file_whose_name_is_not_utf8_lands_and_is_undone() {
    use std::os::unix::ffi::OsStrExt;
    let fixture = project();
    let odd = fixture
        .work()
        .join(std::ffi::OsStr::from_bytes(b"odd-\xff.txt"));
    std::fs::write(&odd, "old\n").unwrap();
    let bash = r#"[[step]]
calls = [{ name = "bash", args = { command = "echo new > odd-*.txt; echo x > $(printf 'more-\\377')" } }]
"#;
    let output = run(&fixture, &format!("{bash}{DONE}"), &[]);
    assert_eq!(output.code, 0, "{}", output.err);
    let more = fixture
        .work()
        .join(std::ffi::OsStr::from_bytes(b"more-\xff"));
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!((read(&odd), read(&more)), ("new\n".into(), "x\n".into()));
    let landed = fixture
        .log()
        .into_iter()
        .find(|event| event["kind"] == "landed")
        .unwrap();
    let files = serde_json::json!([r#""more-\377""#, r#""odd-\377.txt""#]);
    assert_eq!(landed["data"]["files"], files);
    let undone = fixture.run(&["undo"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    assert_eq!((read(&odd), more.exists()), ("old\n".into(), false));
}

#[test]
fn isolation_without_a_sandbox_is_refused() {
    let fixture = project();
    let result = run(&fixture, DONE, &["--sandbox", "full"]);
    assert_eq!(result.code, 8, "{}", result.err);
    assert!(result.err.contains("--in-place"), "{}", result.err);
}

#[test]
fn work_in_place_is_undone_call_by_call() {
    if !lacks(Need::CommandLayers) {
        check_undo_by_call("--in-place");
    }
}

#[test]
fn a_run_that_landed_is_undone_call_by_call() {
    if !lacks(Need::Overlay) {
        check_undo_by_call("--isolated");
    }
}

#[track_caller]
fn check_undo_by_call(place_flag: &str) {
    let fixture = project();
    let bash = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"echo two > value.txt; rm other.txt; echo n > new.txt\" } }]\n";
    let script = format!("{}{bash}{DONE}", write_step("value.txt", "one\\n"));
    let script = fixture.script(&script);
    let output = fixture.run(&[
        "run",
        place_flag,
        "--script",
        &script,
        "--yes",
        "--approval",
        "auto",
        "--validate",
        "none",
        "go",
    ]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(
        (fixture.read("value.txt"), fixture.read("new.txt")),
        ("two\n".into(), "n\n".into())
    );
    let call = fixture
        .log()
        .into_iter()
        .find(|event| event["data"]["command"].is_string())
        .unwrap()["data"]["call"]
        .clone();
    let preview = fixture.run(&["undo", "--call", call.as_str().unwrap(), "--preview"]);
    assert!(
        preview.out.contains("+one") && fixture.read("value.txt") == "two\n",
        "{}",
        preview.out
    );
    assert_eq!(
        fixture
            .run(&["undo", "--call", call.as_str().unwrap()])
            .code,
        0
    );
    assert_eq!(
        (fixture.read("value.txt"), fixture.read("other.txt")),
        ("one\n".into(), "other\n".into())
    );
    assert!(!fixture.work().join("new.txt").exists());
    assert_eq!(fixture.run(&["undo"]).code, 0);
    assert_eq!(fixture.read("value.txt"), "bad\n");
    assert_eq!(fixture.run(&["redo"]).code, 0);
    assert_eq!(fixture.run(&["redo"]).code, 0);
    assert_eq!(fixture.read("value.txt"), "two\n");
    // A later edit of the same lines is a conflict, and nothing is changed.
    fixture.write("value.txt", "three\n");
    let output = fixture.run(&["undo"]);
    assert!(
        output.code == 1 && output.err.contains("value.txt"),
        "{}",
        output.err
    );
    assert_eq!(
        (fixture.read("value.txt"), fixture.read("new.txt")),
        ("three\n".into(), "n\n".into())
    );
    assert_eq!(fixture.run(&["undo", "--partly"]).code, 0);
    assert_eq!(
        (fixture.read("value.txt"), fixture.read("other.txt")),
        ("three\n".into(), "other\n".into())
    );
    assert_eq!(fixture.run(&["undo", "--run", "nonsense!"]).code, 2);
}

#[test]
fn the_changes_of_a_killed_run_are_found_and_landed() {
    let fixture = project();
    let bash = |line: &str| {
        format!("[[step]]\ncalls = [{{ name = \"bash\", args = {{ command = \"{line}\" }} }}]\n")
    };
    let write = write_step("value.txt", "good\\n");
    let path = fixture.script(&format!(
        "{write}{}{}{DONE}",
        bash("rm other.txt"),
        bash("sleep 600")
    ));
    let args = [
        "run",
        "--script",
        &path,
        "go",
        "-o",
        "stream-json",
        "--validate",
        "none",
    ];
    let mut child = fixture
        .command(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let finished = lines.filter(|line| {
        line.as_ref()
            .unwrap()
            .contains("\"kind\":\"call_finished\"")
    });
    assert_eq!(finished.take(2).count(), 2);
    let _ = child.kill();
    let _ = child.wait();
    let status = json(&fixture.run(&["status", "--json"]));
    assert_eq!(status["kept"][0]["state"], "interrupted");
    let diff = fixture.run(&["diff"]);
    assert!(
        diff.out.contains("+good") && diff.out.contains("-other"),
        "{}{}",
        diff.out,
        diff.err
    );
    let landed = fixture.run(&["land", "--validate", "sh check.sh"]);
    assert_eq!(landed.code, 0, "{}", landed.err);
    assert!(fixture.read("value.txt") == "good\n" && !fixture.work().join("other.txt").exists());
}

/// Kills the run after its n-th event, for every n until it completes. After recovery by the next command, the tree is
/// either the old one or the new one.
#[test]
fn killed_at_every_event_the_tree_is_old_or_new() {
    if lacks(Need::Overlay) {
        return;
    }
    let bash = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"rm other.txt; echo x > new.txt; git add -A\" } }]\n";
    let script = format!("{}{bash}{DONE}", write_step("value.txt", "good\\n"));
    for after in 1.. {
        let fixture = project();
        let path = fixture.script(&script);
        let args = [
            "run",
            "--script",
            &path,
            "go",
            "-o",
            "stream-json",
            "--validate",
            "sh check.sh",
        ];
        let mut child = fixture
            .command(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        while seen < after && lines.next().is_some_and(|line| line.is_ok()) {
            seen += 1;
        }
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(fixture.run(&["status"]).code, 0);
        let (value, other, new) = ["value.txt", "other.txt", "new.txt"]
            .map(|name| fixture.work().join(name))
            .into();
        let (value, new) = (std::fs::read_to_string(value).unwrap(), new.exists());
        let landed = match (value.as_str(), other.exists(), new) {
            ("bad\n", true, false) => false,
            ("good\n", false, true) => true,
            between => panic!("between old and new after event {after}: {between:?}"),
        };
        let left = std::fs::read_dir(fixture.work()).unwrap();
        let left: Vec<_> = left
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(
            left.iter().all(|name| !name.starts_with(".windlass")),
            "{left:?}"
        );
        // The changes until then are still available for `diff` and `resume`.
        let kept = json(&fixture.run(&["status", "--json"]));
        if let Some(kept) = kept["kept"].get(0) {
            let diff = fixture.run(&["diff", kept["name"].as_str().unwrap()]);
            assert_eq!(
                (diff.code, &kept["strategy"]),
                (0, &"overlay".into()),
                "after event {after}: {}",
                diff.err
            );
        }
        if landed {
            let undone = fixture.run(&["undo"]);
            assert_eq!(
                (undone.code, fixture.read("value.txt").as_str()),
                (0, "bad\n"),
                "{after}: {}",
                undone.err
            );
        }
        if seen < after {
            assert!(after > 10, "the run ended after {seen} events");
            break;
        }
    }
}
