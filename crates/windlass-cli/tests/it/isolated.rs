//! Isolated runs through the binary: fail, fix, land, keep, resume, undo, and being killed at any moment.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::place::{Output, Place};
use windlass_needs::{Need, lacks};

/// A repository with a test that `check.sh` runs.
fn project() -> Place {
    let place = Place::new();
    place.write(
        "check.sh",
        "grep -q good value.txt || { echo 'value.txt:1: it is not good'; exit 1; }\n",
    );
    place.write("value.txt", "bad\n");
    place.write("other.txt", "other\n");
    git(&place, &["init", "-qb", "main"]);
    git(&place, &["add", "-A"]);
    git(&place, &["commit", "-qm", "one"]);
    place
}

fn git(place: &Place, args: &[&str]) -> String {
    let mut command = std::process::Command::new("git");
    command
        .args(["-c", "user.name=n", "-c", "user.email=e"])
        .args(args);
    let done = command
        .current_dir(place.work())
        .env("HOME", place.home())
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

fn run(place: &Place, script: &str, more: &[&str]) -> Output {
    let script = place.script(script);
    let mut args = vec!["run", "--script", script.as_str(), "make it good"];
    args.extend_from_slice(more);
    place.run(&args)
}

fn json(output: &Output) -> Value {
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
fn bad_then_good_takes_two_tries_and_lands() {
    let place = project();
    place.write("value.txt", "bad\n2\n3\n");
    let expect = "[[step]]\nexpect_new = [\"value.txt:1: it is not good\", \"make it good\"]\n";
    let fix = "calls = [{ name = \"write_file\", args = { path = \"value.txt\", content = \"good\\n2\\n3\\n\" } }]\n";
    let script = format!(
        "{}{DONE}{expect}{fix}{DONE}",
        write_step("value.txt", "worse\\n")
    );
    let result = run(&place, &script, CHECK);
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
    assert_eq!(place.read("value.txt"), "good\n2\n3\n");
    // All of it can be taken back, and done again, with what was written since.
    place.write("value.txt", "good\n2\n3\nmine\n");
    assert_eq!(place.run(&["undo"]).code, 0);
    assert_eq!(place.read("value.txt"), "bad\n2\n3\nmine\n");
    assert_eq!(place.run(&["redo"]).code, 0);
    assert_eq!(place.read("value.txt"), "good\n2\n3\nmine\n");
    let kinds: Vec<String> = place
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
fn what_does_not_pass_is_kept_shown_resumed_and_landed() {
    let place = project();
    let script = format!("{}{DONE}{DONE}", write_step("value.txt", "worse\\n"));
    let failed = run(&place, &script, CHECK);
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
    assert_eq!(place.read("value.txt"), "bad\n");

    let status = json(&place.run(&["status", "--json"]));
    assert_eq!(
        (&status["kept"][0]["name"], &status["kept"][0]["files"]),
        (&name.clone().into(), &1.into())
    );
    let diff = place.run(&["diff", &name]);
    assert!(
        diff.out.contains("-bad") && diff.out.contains("+worse"),
        "{}",
        diff.out
    );
    assert!(json(&place.run(&["diff", "--json"]))["tree_hash"].is_string());
    let refused = place.run(&["land", &name, "--validate", "sh check.sh"]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert_eq!(place.read("value.txt"), "bad\n");

    let script = place.script(&format!("{}{DONE}", write_step("value.txt", "good\\n")));
    let resumed = place.run(&[
        "resume",
        &name,
        "--script",
        &script,
        "--validate",
        "sh check.sh",
        "--json",
    ]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert_eq!(place.read("value.txt"), "good\n");
    assert!(place.run(&["status"]).out.contains("no kept runs"));
    assert_eq!(
        place.run(&["discard", &name, "--yes"]).code,
        2,
        "it is not there any more"
    );
    assert_eq!(place.sessions().len(), 1, "all of it is one session");
}

#[test]
fn a_session_is_resumed_on_its_copy_with_its_flags() {
    let place = project();
    let script = format!("{}{DONE}", write_step("value.txt", "worse\\n"));
    let check = [
        "--validate",
        "grep -q good value.txt",
        "--max-iterations",
        "1",
    ];
    let kept = run(&place, &script, &[&check[..], &["--json"]].concat());
    assert_eq!(kept.code, 3, "{}", kept.err);
    let session = crate::place::id_of(&place.sessions()[0]);
    // The prompt alone, the beginning of the id and `last` name the session; the check is that of the first run.
    let worse = place.script(DONE);
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
        let output = place.run(args);
        assert_eq!(output.code, 3, "{args:?}: {}", output.err);
        assert!(
            output.err.contains("continuing on the copy of"),
            "{}",
            output.err
        );
        assert_eq!(place.read("value.txt"), "bad\n", "{args:?}");
    }
    let script = place.script(&format!("{}{DONE}", write_step("value.txt", "good\\n")));
    let output = place.run(&["resume", "make it good", "--script", &script]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(place.read("value.txt"), "good\n");
    assert_eq!(place.sessions().len(), 1);
    // Nothing is kept any more, and the session still works on a copy.
    let script = place.script(&format!("{}{DONE}", write_step("value.txt", "bad\\n")));
    let output = place.run(&["resume", "spoil it", "--script", &script]);
    assert_eq!(output.code, 3, "{}", output.err);
    assert_eq!(place.read("value.txt"), "good\n");
    let script = place.script(&format!("{}{DONE}", write_step("value.txt", "in place\\n")));
    let args = [
        "resume",
        "--in-place",
        "--yes",
        "--unset",
        "validate",
        "spoil it",
    ];
    let output = place.run(&[&args[..], &["--script", &script]].concat());
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(place.read("value.txt"), "in place\n");
}

#[test]
fn a_kept_run_lands_by_order_or_is_thrown_away() {
    let place = project();
    let script = format!("{}{DONE}{DONE}", write_step("value.txt", "fine\\n"));
    let name = json(&run(&place, &script, CHECK))["transaction"]
        .as_str()
        .unwrap()
        .to_owned();
    let landed = place.run(&["land", "--validate", "grep -q fine value.txt"]);
    assert_eq!(landed.code, 0, "{}", landed.err);
    assert!(landed.err.contains("landed 1 file"), "{}", landed.err);
    assert_eq!(place.read("value.txt"), "fine\n");
    assert_eq!(place.run(&["diff", &name]).code, 2);

    let script = format!("{}{DONE}{DONE}", write_step("value.txt", "worse\\n"));
    let name = json(&run(&place, &script, CHECK))["transaction"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(place.run(&["discard", &name]).code, 5, "it is asked first");
    assert_eq!(place.run(&["discard", &name, "--yes"]).code, 0);
    assert!(place.run(&["status"]).out.contains("no kept runs"));
    let noted = place.sessions().iter().any(|session| {
        let log = std::fs::read_to_string(session.join("events.jsonl")).unwrap();
        let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        last["kind"] == "discarded" && last["data"]["name"] == name.as_str()
    });
    assert!(noted);
    for bad in ["../x", "nobody-home-1"] {
        assert_eq!(place.run(&["diff", bad]).code, 2);
    }
}

#[test]
fn a_kept_run_that_is_the_same_as_the_tree_says_that_nothing_is_to_land() {
    let place = project();
    let script = format!("{}{DONE}{DONE}", write_step("value.txt", "fine\\n"));
    run(&place, &script, CHECK);
    place.write("value.txt", "fine\n");
    let landed = place.run(&["land"]);
    assert_eq!(landed.code, 0, "{}", landed.err);
    assert!(
        landed.err.contains("there is nothing to land"),
        "{}",
        landed.err
    );
    assert!(place.run(&["status"]).out.contains("no kept runs"));
}

#[test]
fn commits_of_a_run_are_not_lost_although_no_file_differs() {
    let place = project();
    for (key, value) in [("user.name", "n"), ("user.email", "e")] {
        git(&place, &["config", key, value]);
    }
    place.write("other.txt", "mine\n");
    let commit = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"git add -A && git commit -qm mine\" } }]\n";
    let script = format!("{commit}{DONE}");
    let result = run(&place, &script, &["--json"]);
    assert_eq!(result.code, 0, "{}", result.err);
    let refname = json(&result)["landed"]["ref"].as_str().unwrap().to_owned();
    assert_eq!(
        git(&place, &["show", "-s", "--format=%s", &refname]),
        "mine"
    );
    // Another message, because the same commit in the same second is no other commit.
    let failed = run(
        &place,
        &script.replace("-qm mine", "-qm again"),
        &["--json", "--require-changes"],
    );
    assert_eq!(failed.code, 1, "{}", failed.err);
    let name = json(&failed)["transaction"].as_str().unwrap().to_owned();
    let landed = json(&place.run(&["land", &name, "--json"]));
    assert_eq!(landed["landed"]["ref"], format!("refs/windlass/{name}"));
    assert!(place.run(&["status"]).out.contains("no kept runs"));
}

#[test]
fn a_commit_that_cannot_be_made_leaves_what_landed_to_undo() {
    let place = project();
    let script = format!("{}{DONE}{DONE}", write_step("value.txt", "good\\n"));
    for (key, value) in [
        ("user.name", "n"),
        ("user.email", "e"),
        ("commit.gpgSign", "true"),
        ("gpg.program", "false"),
    ] {
        git(&place, &["config", "--global", key, value]);
    }
    let failed = run(&place, &script, &["--commit", "--json"]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    let detail = json(&failed)["outcome"]["detail"].clone();
    assert!(
        detail.as_str().unwrap().contains("the commit was not made"),
        "{detail}"
    );
    assert_eq!(
        (place.read("value.txt"), place.run(&["undo"]).code),
        ("good\n".into(), 0)
    );
    assert_eq!(place.read("value.txt"), "bad\n");
    git(&place, &["config", "--global", "commit.gpgSign", "false"]);
    assert_eq!(run(&place, &script, &["--validate", "false"]).code, 3);
    let landed = place.run(&["land", "--validate", "none", "--commit"]);
    assert_eq!(landed.code, 0, "{}", landed.err);
    assert_eq!(
        git(&place, &["show", "-s", "--format=%s"]),
        "make it good",
        "it says what was asked for"
    );
}

#[test]
fn undo_asks_before_it_takes_an_older_run_and_names_the_commit() {
    let place = project();
    git(&place, &["config", "user.name", "n"]);
    git(&place, &["config", "user.email", "e"]);
    let script = format!("{}{DONE}", write_step("value.txt", "good\\n"));
    let landed = run(&place, &script, &["--commit", "--json"]);
    assert_eq!(landed.code, 0, "{}", landed.err);
    let commit = git(&place, &["rev-parse", "HEAD"]);
    // A newer session that changed nothing.
    assert_eq!(run(&place, DONE, &[]).code, 0);
    let refused = place.run(&["undo"]);
    assert_eq!(
        (refused.code, place.read("value.txt").as_str()),
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
    let undone = place.run(&args);
    assert_eq!(
        (undone.code, place.read("value.txt").as_str()),
        (0, "bad\n"),
        "{}",
        undone.err
    );
    assert!(undone.err.contains(&commit), "{}", undone.err);
    assert_eq!(place.run(&["redo"]).code, 0);
    let reverted = place.run(&["undo", "--yes", "--revert-commit"]);
    assert_eq!(reverted.code, 0, "{}", reverted.err);
    assert_eq!(git(&place, &["show", "HEAD:value.txt"]), "bad");
    assert_eq!(git(&place, &["rev-parse", "HEAD^"]), commit);
    assert_eq!(git(&place, &["status", "--porcelain"]), "");
    let refused = place.run(&["undo", "--call", "no-such"]);
    assert!(refused.err.contains("a whole run back"), "{}", refused.err);
}

/// The process died between the landing of an undo and its event in the log.
#[test]
fn an_undo_that_the_log_does_not_know_is_logged_by_the_next_command() {
    let place = project();
    let script = format!("{}{DONE}", write_step("value.txt", "good\\n"));
    assert_eq!(run(&place, &script, &[]).code, 0);
    assert_eq!(place.run(&["undo"]).code, 0);
    let session = place.sessions().pop().unwrap();
    let path = session.join("events.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, undone) = text.trim_end().rsplit_once('\n').unwrap();
    let undone: Value = serde_json::from_str(undone).unwrap();
    assert_eq!(undone["kind"], "undone");
    std::fs::write(&path, format!("{before}\n")).unwrap();
    let swaps = undone["data"]["swaps"].as_array().unwrap().iter();
    let root = place.work().canonicalize().unwrap();
    let record = serde_json::json!({
        "state": "done", "name": ".windlass-landing-1", "stages": [""], "made": [], "emptied": [], "hold": false,
        "root": { "Unix": root.as_os_str().as_encoded_bytes() },
        "swaps": swaps.map(|swap| serde_json::json!([swap, 0])).collect::<Vec<_>>(),
        "mode": { "undo": { "session": undone["session"], "redo": false, "of": undone["data"]["of"], "also": [] } },
    });
    let journals = place.home().join(".local/share/windlass/undo/journals");
    let journal = std::fs::read_dir(journals)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let file = journal.path().join("landed-1.json");
    std::fs::write(&file, record.to_string()).unwrap();
    // Twice: the record stays once more, and the log knows it already.
    for _ in 0..2 {
        assert_eq!(place.run(&["status"]).code, 0);
        assert!(!file.exists());
        let log = place.log();
        let kinds = log.iter().filter(|event| event["kind"] == "undone");
        assert_eq!(kinds.count(), 1);
        std::fs::write(&file, record.to_string()).unwrap();
    }
    assert_eq!(place.run(&["redo"]).code, 0);
    assert_eq!(place.read("value.txt"), "good\n");
}

#[test]
fn a_kept_run_hears_what_is_piped_to_it() {
    let place = project();
    let script = format!("{}{DONE}", write_step("value.txt", "good\\n"));
    let stopped = json(&run(&place, &script, &["--max-steps", "1", "--json"]));
    let script = place.script("[[step]]\nexpect_new = \"and be brief\"\ntext = \"done\"\n");
    let args = [
        "resume",
        stopped["transaction"].as_str().unwrap(),
        "--script",
        &script,
    ];
    let mut child = place
        .command(&args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"and be brief\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(place.read("value.txt"), "good\n");
}

#[test]
fn a_bare_repository_is_no_workspace() {
    let place = project();
    git(&place, &["clone", "-q", "--bare", ".", "bare.git"]);
    let output = place.run(&[
        "run",
        "-C",
        "bare.git",
        "--script",
        &place.script(DONE),
        "go",
    ]);
    // In a work tree it belongs to that; by itself it is refused.
    assert_ne!(output.code, 8, "{}", output.err);
    std::fs::rename(place.work().join("bare.git"), place.home().join("bare.git")).unwrap();
    let bare = place.home().join("bare.git").display().to_string();
    let output = place.run(&["run", "-C", &bare, "--script", &place.script(DONE), "go"]);
    assert!(
        output.code == 8 && output.err.contains("git worktree add"),
        "{}",
        output.err
    );
}

#[test]
fn a_limit_keeps_the_work_and_resume_goes_on_with_it() {
    let place = project();
    let script = format!("{}{DONE}", write_step("value.txt", "good\\n"));
    let told = run(&place, &script, &["--max-steps", "1", "-q"]);
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
            .contains(&format!("`windlass resume {kept}` goes on")),
        "{}",
        told.err
    );
    let stopped = run(&place, &script, &["--max-steps", "1", "--json"]);
    assert_eq!(stopped.code, 4, "{}", stopped.err);
    let stopped = json(&stopped);
    assert_eq!(
        (&stopped["exceeded"], &stopped["limits"]["steps"]),
        (&"steps".into(), &1.into())
    );
    let name = stopped["transaction"].as_str().unwrap();
    let script = place.script(DONE);
    let resumed = place.run(&[
        "resume",
        name,
        "--script",
        &script,
        "--validate",
        "sh check.sh",
    ]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert_eq!(place.read("value.txt"), "good\n");
}

#[test]
fn changed_judges_and_forbidden_paths_do_not_slip_through() {
    let cheat = format!("{}{DONE}{DONE}", write_step("check.sh", "exit 0\\n"));
    let place = project();
    let result = run(&place, &cheat, &["--validate", "sh check.sh", "--json"]);
    assert_eq!(
        result.code, 0,
        "a changed judge is listed, and no more: {}",
        result.err
    );
    assert_eq!(
        json(&result)["judge_changed"],
        serde_json::json!(["check.sh"])
    );
    let place = project();
    let result = run(
        &place,
        &cheat,
        &["--validate", "sh check.sh", "--strict-judge", "--json"],
    );
    assert_eq!(result.code, 3, "{}", result.err);
    let place = project();
    place.write(
        ".windlass/config.toml",
        "validate.protect = [\"check.sh\"]\n",
    );
    git(&place, &["add", "-A"]);
    git(&place, &["commit", "-qm", "protect"]);
    let result = run(&place, &cheat, CHECK);
    assert_eq!(result.code, 3, "the judge of before judges: {}", result.err);
    let place = project();
    let result = run(
        &place,
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
fn in_place_what_cannot_be_kept_to_is_said() {
    let place = project();
    let cheat = format!("{}{DONE}{DONE}", write_step("other.txt", "x\\n"));
    let result = place.play(&cheat, &["--yes", "--write-path", "value.txt", "--json"]);
    assert_eq!(result.code, 3, "{}", result.err);
    assert!(
        json(&result)["outcome"]["detail"]
            .as_str()
            .unwrap()
            .contains("other.txt: only the allowed paths")
    );
    for flag in ["--commit", "--patch=x", "--land-anyway"] {
        let result = place.play(DONE, &[flag]);
        assert!(
            result.code == 2 && result.err.contains("in place"),
            "{flag}: {}",
            result.err
        );
    }
}

#[test]
fn an_answer_without_changes_is_completed_unless_changes_are_required() {
    let place = project();
    let result = run(&place, DONE, &["--json", "--require-changes"]);
    assert_eq!(
        (result.code, json(&result)["outcome"]["reason"].clone()),
        (1, "no_changes".into())
    );
    // A check that would fail does not run.
    let result = run(&place, DONE, &["--validate", "false"]);
    assert_eq!(result.code, 0, "{}", result.err);
    assert!(result.err.contains("no files changed"), "{}", result.err);
    assert!(place.run(&["status"]).out.contains("no kept runs"));
}

#[test]
fn an_answer_of_a_schema_is_a_result_of_its_own() {
    let place = project();
    let schema = r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}"#;
    let good = "[[step]]\ntext = '{\"n\": 3}'\n";
    let result = run(&place, good, &["--json-schema", schema, "--json"]);
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
        &place,
        &"[[step]]\ntext = 'three'\n".repeat(5),
        &["--json-schema", schema, "--json"],
    );
    assert_eq!(
        (result.code, json(&result)["outcome"]["reason"].clone()),
        (1, "structured_output".into())
    );
    let refuses = "[[step]]\ncalls = [{ name = \"refuse\", args = { category = \"safety\", reason = \"no\" } }]\n";
    let result = run(&place, refuses, &["--json"]);
    assert_eq!(
        (result.code, json(&result)["outcome"]["category"].clone()),
        (6, "safety".into())
    );
}

#[test]
fn every_prompt_of_an_isolated_chat_lands_by_itself() {
    let place = project();
    let script = place.script(&format!(
        "{}{DONE}{}{DONE}",
        write_step("value.txt", "one\\n"),
        write_step("value.txt", "two\\n")
    ));
    let command = place.command(&[
        "chat",
        "--isolated",
        "--script",
        &script,
        "--validate",
        "true",
    ]);
    let output = place.run_with(command, "first\nsecond\n");
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(
        (
            output.err.matches("landed 1 file").count(),
            place.read("value.txt")
        ),
        (2, "two\n".into())
    );
    assert_eq!(place.run(&["undo"]).code, 0);
    assert_eq!(place.read("value.txt"), "one\n");
    assert_eq!(place.run(&["undo"]).code, 0);
    assert_eq!(place.read("value.txt"), "bad\n");
}

#[test]
fn what_only_the_run_ignores_is_not_there_when_the_checks_look() {
    if lacks(Need::Overlay) {
        return;
    }
    let place = project();
    let bash = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"mkdir -p lib && echo good > lib/h && echo lib/ >> .gitignore && ln -sf lib/h value.txt\" } }]\n";
    let result = run(&place, &format!("{bash}{DONE}{DONE}"), CHECK);
    assert_eq!(
        result.code, 3,
        "without lib/h it is not good: {} {}",
        result.out, result.err
    );
    let name = json(&result)["transaction"].as_str().unwrap().to_owned();
    let left = json(&place.run(&["diff", &name, "--json"]))["left"].clone();
    assert_eq!(left, serde_json::json!(["lib"]), "it is back in the copy");
}

#[test]
fn broken_syntax_goes_back_with_its_line() {
    let place = project();
    let script = format!(
        "{}{DONE}[[step]]\nexpect_new = [\"tool.py:1:\"]\n{}{DONE}",
        write_step("tool.py", "def f(:\\n"),
        write_step("tool.py", "def f(): pass\\n").trim_start_matches("[[step]]\n"),
    );
    let result = run(&place, &script, &["--json"]);
    assert_eq!(result.code, 0, "{}", result.err);
    assert_eq!(json(&result)["iterations"], 2);
    // A link has no syntax, wherever it leads. One that leads out of the workspace is asked about.
    for (to, code) in [("nowhere/x.py", 0), ("/nowhere/x.py", 5)] {
        let place = project();
        let link = format!(
            "[[step]]\ncalls = [{{ name = \"bash\", args = {{ command = \"ln -s {to} x.py\" }} }}]\n"
        );
        let result = run(&place, &format!("{link}{DONE}"), &["--json"]);
        assert_eq!(result.code, code, "{}", result.err);
    }
}

#[test]
fn validators_that_are_wrong_are_said_before_anything_starts() {
    let place = project();
    place.write(".windlass/config.toml", "");
    let config = place.home().join(".config/windlass/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    let mut times = 0;
    let mut changing = || {
        times += 1;
        let change = write_step("value.txt", &format!("{times}\\n"));
        format!("{change}{}", DONE.repeat(3))
    };
    let mut check = |text: &str, code: i32, says: &str| {
        std::fs::write(&config, text).unwrap();
        let output = run(&place, &changing(), &[]);
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
    let output = run(&place, DONE, &["--validate", "none", "--validate", "true"]);
    assert_eq!(output.code, 2, "{}", output.err);
    std::fs::write(&config, "validate.chain = [\"syntax\"]\n").unwrap();
    let output = run(&place, &changing(), &["--validate", "false"]);
    assert_eq!(
        output.code, 3,
        "what is asked for looks, whatever the chain is: {}",
        output.err
    );
}

#[test]
fn detected_checks_look_also_where_they_set_their_environment() {
    let place = project();
    place.write(
        "package.json",
        "{ \"scripts\": { \"test\": \"exit 1\" } }\n",
    );
    let output = run(
        &place,
        &format!("{}{}", write_step("value.txt", "good\\n"), DONE.repeat(2)),
        &["--json"],
    );
    // Where the program itself is missing, that is what is said.
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
    let place = project();
    place.write("value.txt", "mine\n");
    git(&place, &["config", "user.name", "n"]);
    git(&place, &["config", "user.email", "e"]);
    let failed = run(&place, &script, &["--json", "--require-changes"]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    let name = json(&failed)["transaction"].as_str().unwrap().to_owned();
    assert_eq!(place.run(&["diff", &name]).code, 0);
    let landed = place.run(&["land", &name]);
    assert_eq!(landed.code, 0, "{}", landed.err);
    assert_eq!(
        git(
            &place,
            &["log", "-1", "--format=%s", &format!("refs/windlass/{name}")]
        ),
        "mine"
    );
    assert_eq!(git(&place, &["log", "-1", "--format=%s"]), "one");
}

#[test]
fn to_look_at_a_kept_run_throws_nothing_away() {
    let place = project();
    let script = format!("{}{DONE}{DONE}", write_step("value.txt", "worse\\n"));
    let name = json(&run(&place, &script, CHECK))["transaction"]
        .as_str()
        .unwrap()
        .to_owned();
    place.write("value.txt", "worse\n");
    assert_eq!(place.run(&["diff", &name]).code, 0);
    place.write("value.txt", "bad\n");
    let diff = place.run(&["diff", &name]);
    assert!(
        diff.code == 0 && diff.out.contains("+worse"),
        "{}{}",
        diff.out,
        diff.err
    );
}

#[test]
fn a_run_that_clears_the_tree_out_needs_a_person() {
    let place = project();
    let script = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"git rm -rfq . && git clean -fdxq\" } }]\n";
    let result = run(
        &place,
        &format!("{script}{DONE}"),
        &["--validate", "none", "--on-ask", "deny", "--json"],
    );
    assert_eq!(result.code, 1, "{}", result.err);
    assert!(json(&result)["outcome"]["reason"] == "policy" && place.read("value.txt") == "bad\n");
    let paused = run(
        &place,
        &format!("{script}{DONE}"),
        &["--validate", "none", "--on-ask", "pause"],
    );
    assert!(
        paused.code == 5 && paused.err.contains("`windlass land` lands it"),
        "{}",
        paused.err
    );
}

#[test]
fn a_file_whose_name_is_not_utf8_lands_and_is_undone() {
    use std::os::unix::ffi::OsStrExt;
    let place = project();
    let odd = place
        .work()
        .join(std::ffi::OsStr::from_bytes(b"odd-\xff.txt"));
    std::fs::write(&odd, "old\n").unwrap();
    let bash = r#"[[step]]
calls = [{ name = "bash", args = { command = "echo new > odd-*.txt; echo x > $(printf 'more-\\377')" } }]
"#;
    let output = run(&place, &format!("{bash}{DONE}"), &[]);
    assert_eq!(output.code, 0, "{}", output.err);
    let more = place.work().join(std::ffi::OsStr::from_bytes(b"more-\xff"));
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!((read(&odd), read(&more)), ("new\n".into(), "x\n".into()));
    let landed = place
        .log()
        .into_iter()
        .find(|event| event["kind"] == "landed")
        .unwrap();
    let files = serde_json::json!([r#""more-\377""#, r#""odd-\377.txt""#]);
    assert_eq!(landed["data"]["files"], files);
    let undone = place.run(&["undo"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    assert_eq!((read(&odd), more.exists()), ("old\n".into(), false));
}

#[test]
fn isolation_without_a_sandbox_is_refused() {
    let place = project();
    let result = run(&place, DONE, &["--sandbox", "full"]);
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
    let place = project();
    let bash = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"echo two > value.txt; rm other.txt; echo n > new.txt\" } }]\n";
    let script = format!("{}{bash}{DONE}", write_step("value.txt", "one\\n"));
    let script = place.script(&script);
    let output = place.run(&[
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
        (place.read("value.txt"), place.read("new.txt")),
        ("two\n".into(), "n\n".into())
    );
    let call = place
        .log()
        .into_iter()
        .find(|event| event["data"]["command"].is_string())
        .unwrap()["data"]["call"]
        .clone();
    let preview = place.run(&["undo", "--call", call.as_str().unwrap(), "--preview"]);
    assert!(
        preview.out.contains("+one") && place.read("value.txt") == "two\n",
        "{}",
        preview.out
    );
    assert_eq!(
        place.run(&["undo", "--call", call.as_str().unwrap()]).code,
        0
    );
    assert_eq!(
        (place.read("value.txt"), place.read("other.txt")),
        ("one\n".into(), "other\n".into())
    );
    assert!(!place.work().join("new.txt").exists());
    assert_eq!(place.run(&["undo"]).code, 0);
    assert_eq!(place.read("value.txt"), "bad\n");
    assert_eq!(place.run(&["redo"]).code, 0);
    assert_eq!(place.run(&["redo"]).code, 0);
    assert_eq!(place.read("value.txt"), "two\n");
    // What was written over since, on the same lines, is a conflict that changes nothing.
    place.write("value.txt", "three\n");
    let output = place.run(&["undo"]);
    assert!(
        output.code == 1 && output.err.contains("value.txt"),
        "{}",
        output.err
    );
    assert_eq!(
        (place.read("value.txt"), place.read("new.txt")),
        ("three\n".into(), "n\n".into())
    );
    assert_eq!(place.run(&["undo", "--partly"]).code, 0);
    assert_eq!(
        (place.read("value.txt"), place.read("other.txt")),
        ("three\n".into(), "other\n".into())
    );
    assert_eq!(place.run(&["undo", "--run", "nonsense!"]).code, 2);
}

#[test]
fn what_a_killed_run_did_is_found_again_and_lands() {
    let place = project();
    let bash = |line: &str| {
        format!("[[step]]\ncalls = [{{ name = \"bash\", args = {{ command = \"{line}\" }} }}]\n")
    };
    let write = write_step("value.txt", "good\\n");
    let path = place.script(&format!(
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
    let mut child = place
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
    let status = json(&place.run(&["status", "--json"]));
    assert_eq!(status["kept"][0]["state"], "interrupted");
    let diff = place.run(&["diff"]);
    assert!(
        diff.out.contains("+good") && diff.out.contains("-other"),
        "{}{}",
        diff.out,
        diff.err
    );
    let landed = place.run(&["land", "--validate", "sh check.sh"]);
    assert_eq!(landed.code, 0, "{}", landed.err);
    assert!(place.read("value.txt") == "good\n" && !place.work().join("other.txt").exists());
}

/// Kills the run after its n-th event, for every n until it ends by itself: the tree is the old one or the new one,
/// whatever the next command has to mend.
#[test]
fn killed_at_every_event_the_tree_is_old_or_new() {
    if lacks(Need::Overlay) {
        return;
    }
    let bash = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"rm other.txt; echo x > new.txt; git add -A\" } }]\n";
    let script = format!("{}{bash}{DONE}", write_step("value.txt", "good\\n"));
    for after in 1.. {
        let place = project();
        let path = place.script(&script);
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
        let mut child = place
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
        assert_eq!(place.run(&["status"]).code, 0);
        let (value, other, new) = ["value.txt", "other.txt", "new.txt"]
            .map(|name| place.work().join(name))
            .into();
        let (value, new) = (std::fs::read_to_string(value).unwrap(), new.exists());
        let landed = match (value.as_str(), other.exists(), new) {
            ("bad\n", true, false) => false,
            ("good\n", false, true) => true,
            between => panic!("between old and new after event {after}: {between:?}"),
        };
        let left = std::fs::read_dir(place.work()).unwrap();
        let left: Vec<_> = left
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(
            left.iter().all(|name| !name.starts_with(".windlass")),
            "{left:?}"
        );
        // What it did until then is still there to be seen, and to go on with.
        let kept = json(&place.run(&["status", "--json"]));
        if let Some(kept) = kept["kept"].get(0) {
            let diff = place.run(&["diff", kept["name"].as_str().unwrap()]);
            assert_eq!(
                (diff.code, &kept["strategy"]),
                (0, &"overlay".into()),
                "after event {after}: {}",
                diff.err
            );
        }
        if landed {
            let undone = place.run(&["undo"]);
            assert_eq!(
                (undone.code, place.read("value.txt").as_str()),
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
