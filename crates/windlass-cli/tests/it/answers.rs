//! Asks that outlive their process: another process answers them, once, for exactly the call in question.

use serde_json::Value;

use crate::cli_fixture::{CliFixture, id_of};

/// A script that reads, writes with approval, asks a question and repeats the answer.
const THREE: &str = r#"
follow = "history"
[[step]]
calls = [
  { name = "read_file", args = { path = "a.txt" } },
  { name = "write_file", args = { path = "b.txt", content = "written\n" } },
  { name = "ask_user", args = { question = "red or blue?", options = ["red", "blue"] } },
]
[[step]]
expect = "blue"
text = "blue it is"
"#;

fn ask_of(out: &str) -> Value {
    serde_json::from_str(out.lines().last().unwrap_or_default())
        .unwrap_or_else(|err| panic!("{err}: {out}"))
}

fn count(fixture: &CliFixture, kind: &str) -> usize {
    fixture
        .log()
        .iter()
        .filter(|event| event["kind"] == kind)
        .count()
}

#[test]
fn a_run_resumes_after_each_answer_and_runs_each_call_once() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let output = fixture.play(THREE, &["--approval", "ask", "--max-steps", "7"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let ask = ask_of(&output.out);
    assert_eq!(ask["about"]["is"], "approval");
    assert_eq!(ask["session"], id_of(&fixture.sessions()[0]).as_str());
    let id = ask["id"].as_str().unwrap();
    assert!(
        output.err.contains(&format!("windlass answer {id}")),
        "{}",
        output.err
    );
    assert!(fixture.run(&["answer"]).out.contains(id), "it is listed");

    // An invalid answer changes nothing.
    for words in [&["maybe"][..], &[], &["yes", "and", "more"]] {
        let output = fixture.run(&[&["answer", id], words].concat());
        assert_eq!(output.code, 2, "{}", output.err);
    }
    assert_eq!(fixture.run(&["answer", "a9-12345678", "yes"]).code, 2);
    assert_eq!(fixture.run(&["answer", "../x", "yes"]).code, 2);
    assert_eq!(count(&fixture, "answered"), 0);

    // The run is resumed with its own flags, so none are repeated.
    let output = fixture.run(&["answer", id, "yes"]);
    assert_eq!(output.code, 5, "{}", output.err);
    assert_eq!(fixture.read("b.txt"), "written\n");
    let question = ask_of(&output.out);
    assert_eq!(question["about"]["is"], "question");
    let output = fixture.run(&["answer", question["id"].as_str().unwrap(), "2"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("blue it is"), "{}", output.out);
    for (kind, times) in [
        ("run_started", 1),
        ("run_finished", 1),
        ("call_started", 3),
        ("call_finished", 3),
    ] {
        assert_eq!(count(&fixture, kind), times, "{kind}");
    }
    assert_eq!(
        fixture.log().last().unwrap()["data"]["limits"]["steps"],
        7,
        "under the limits it was started with"
    );
    // The ask was answered already.
    let output = fixture.run(&["answer", id, "yes"]);
    assert_eq!(output.code, 2);
    assert!(
        output.err.contains("there is no pending ask"),
        "{}",
        output.err
    );
}

#[test]
fn an_approval_applies_only_to_the_unchanged_file() {
    let fixture = CliFixture::new();
    fixture.write("b.txt", "before\n");
    let script = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"after\\n\" } }]\n\
                  [[step]]\nexpect = \"changed while it waited\"\ntext = \"I will look again\"\n";
    let output = fixture.play(script, &["--approval", "ask"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let id = ask_of(&output.out)["id"].as_str().unwrap().to_owned();
    fixture.write("b.txt", "somebody else was here\n");
    let output = fixture.run(&["answer", &id, "yes"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(fixture.read("b.txt"), "somebody else was here\n");
}

#[test]
fn an_approval_of_a_large_file_depends_on_its_first_and_last_bytes() {
    let fixture = CliFixture::new();
    let mut bytes = vec![b'a'; 17 << 20];
    std::fs::write(fixture.work().join("big.bin"), &bytes).unwrap();
    let script = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"delete_file\", args = { path = \"big.bin\" } }]\n\
                  [[step]]\nexpect = \"changed while it waited\"\ntext = \"I will look again\"\n";
    let output = fixture.play(script, &["--approval", "ask"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let id = ask_of(&output.out)["id"].as_str().unwrap().to_owned();
    *bytes.last_mut().unwrap() = b'b';
    std::fs::write(fixture.work().join("big.bin"), &bytes).unwrap();
    let output = fixture.run(&["answer", &id, "yes"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(fixture.work().join("big.bin").exists());
}

#[test]
fn resume_shows_pending_asks_and_a_prompt_abandons_them() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    assert_eq!(fixture.play(THREE, &["--approval", "ask"]).code, 5);
    let session = id_of(&fixture.sessions()[0]);
    let output = fixture.run(&["resume"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let ask = ask_of(&output.out);
    assert_eq!(ask["about"]["is"], "approval");
    let script = fixture.script("[[step]]\nexpect = \"not run, because\"\ntext = \"then not\"\n");
    let output = fixture.run(&["resume", &session, "--script", &script, "never mind"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(
        fixture
            .run(&["answer", ask["id"].as_str().unwrap(), "yes"])
            .code,
        2
    );
    assert!(!fixture.work().join("b.txt").exists());
}

#[test]
fn a_piped_prompt_starts_a_new_run_without_the_earlier_yes() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    // A question of the model, in a run with `--yes`.
    let asks = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"ask_user\", args = { question = \"which?\" } }]\n[[step]]\ntext = \"ok\"\n";
    assert_eq!(fixture.play(asks, &["--yes", "--approval", "ask"]).code, 5);
    let script = fixture.script("[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"x\" } }]\n[[step]]\ntext = \"ok\"\n");
    let output = fixture.run_with(
        fixture.command(&["resume", "--script", &script]),
        "write b\n",
    );
    assert_eq!(
        output.code, 5,
        "the yes of the other run does not count: {}",
        output.err
    );
    assert!(!fixture.work().join("b.txt").exists());
}

#[test]
fn a_paused_kept_run_is_resumed_by_name() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let script = fixture.script("follow = \"history\"\n[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"x\" } }, { name = \"ask_user\", args = { question = \"which?\" } }]\n[[step]]\nexpect = \"that one\"\ntext = \"ok\"\n");
    let output = fixture.run(&["run", "--script", &script, "--validate", "none", "go"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let kept = fixture
        .log()
        .into_iter()
        .rev()
        .find(|event| event["kind"] == "kept")
        .unwrap()["data"]["name"]
        .clone();
    let output = fixture.run(&["resume", kept.as_str().unwrap()]);
    assert_eq!(output.code, 5, "{}", output.err);
    let ask = ask_of(&output.out);
    let output = fixture.run(&["answer", ask["id"].as_str().unwrap(), "that", "one"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(fixture.read("b.txt"), "x");
}

#[test]
fn the_answer_decides_whether_a_paused_landing_proceeds() {
    for (word, lands) in [("yes", true), ("no", false)] {
        let fixture = CliFixture::new();
        fixture.write("a.txt", "one\n");
        let script = fixture.script(
            "follow = \"history\"\n[[step]]\ncalls = [{ name = \"write_file\", args = { path = \".envrc\", content = \"export A=1\\n\" } }]\n[[step]]\ntext = \"done\"\n",
        );
        let output = fixture.run(&["run", "--script", &script, "--yes", "make it so"]);
        assert_eq!(output.code, 5, "{}", output.err);
        assert!(!fixture.work().join(".envrc").exists());
        let ask = ask_of(&output.out);
        assert_eq!(ask["about"]["is"], "landing");
        let output = fixture.run(&["answer", ask["id"].as_str().unwrap(), word]);
        assert_eq!(output.code, if lands { 0 } else { 1 }, "{}", output.err);
        assert_eq!(
            fixture.work().join(".envrc").exists(),
            lands,
            "{}",
            output.err
        );
        assert_eq!(
            (count(&fixture, "run_finished"), count(&fixture, "asked")),
            (1, 1)
        );
        assert_eq!(count(&fixture, "kept"), if lands { 1 } else { 2 });
    }
}

#[test]
fn an_isolated_run_paused_before_its_first_change_is_resumed() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let script = fixture.script(
        "follow = \"history\"\n[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"x\\n\" } }]\n[[step]]\ntext = \"done\"\n",
    );
    let output = fixture.run(&[
        "run",
        "--script",
        &script,
        "--approval",
        "ask",
        "make it so",
    ]);
    assert_eq!(output.code, 5, "{}", output.err);
    let ask = ask_of(&output.out);
    let output = fixture.run(&["answer", ask["id"].as_str().unwrap(), "yes"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(fixture.read("b.txt"), "x\n");
    assert_eq!(
        (count(&fixture, "discarded"), count(&fixture, "landed")),
        (1, 1)
    );
}

#[test]
fn a_later_answer_always_is_remembered() {
    let fixture = CliFixture::new();
    let script = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"x\" } }]\n[[step]]\ntext = \"ok\"\n";
    let output = fixture.play(script, &["--approval", "ask"]);
    let id = ask_of(&output.out)["id"].as_str().unwrap().to_owned();
    assert_eq!(fixture.run(&["answer", &id, "always"]).code, 0);
    let again = script.replace("\"x\"", "\"y\"");
    let output = fixture.play(&again, &["--approval", "ask"]);
    assert_eq!(output.code, 0, "{}", output.err);
}

#[test]
fn a_fork_and_its_origin_continue_independently() {
    let fixture = CliFixture::new();
    assert_eq!(
        fixture
            .play("[[step]]\ntext = \"the first answer\"\n", &[])
            .code,
        0
    );
    let id = id_of(&fixture.sessions()[0]);
    let before = fixture.log();
    let output = fixture.run(&["fork", &id]);
    assert_eq!(output.code, 0, "{}", output.err);
    let fork = output.out.trim().to_owned();
    let script = fixture.script("[[step]]\nexpect = \"the first answer\"\ntext = \"and more\"\n");
    assert_eq!(
        fixture
            .run(&["resume", &fork, "--script", &script, "go on"])
            .code,
        0
    );
    assert_eq!(fixture.log_of(&id), before);
    let output = fixture.run(&["fork", &id, "--at", "999"]);
    assert_eq!(output.code, 1);
    assert!(
        output.err.contains("cannot be forked at event 999"),
        "{}",
        output.err
    );
    assert_eq!(fixture.run(&["fork", "../x"]).code, 2);
}

#[test]
fn of_two_concurrent_answers_one_is_accepted() {
    let fixture = CliFixture::new();
    let script = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"bash\", args = { command = \"echo once >> b.txt\" } }]\n[[step]]\ntext = \"ok\"\n";
    let output = fixture.play(script, &["--approval", "ask"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let id = ask_of(&output.out)["id"].as_str().unwrap().to_owned();
    let codes: Vec<i32> = std::thread::scope(|scope| {
        let answer = || fixture.run(&["answer", &id, "yes"]).code;
        let both: Vec<_> = (0..4).map(|_| scope.spawn(answer)).collect();
        both.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(
        codes.iter().filter(|code| **code == 0).count(),
        1,
        "{codes:?}"
    );
    assert_eq!(fixture.read("b.txt"), "once\n");
    assert_eq!(
        (
            count(&fixture, "answered"),
            count(&fixture, "call_started"),
            count(&fixture, "run_finished")
        ),
        (1, 1, 1)
    );
}

#[test]
fn a_line_of_a_piped_chat_is_a_prompt_and_not_an_answer() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    assert_eq!(fixture.play(THREE, &["--approval", "ask"]).code, 5);
    let script = fixture.script("[[step]]\nexpect = \"not run, because\"\ntext = \"then not\"\n");
    let output = fixture.run_with(
        fixture.command(&["chat", "--continue", "--script", &script]),
        "yes\n",
    );
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(!fixture.work().join("b.txt").exists(), "{}", output.err);
}

/// Changes the saved flags of the run in the log of the newest session.
fn tamper(fixture: &CliFixture, from: &str, to: &str) {
    let file = fixture.sessions().pop().unwrap().join("events.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(&file, text.replace(from, to)).unwrap();
}

#[test]
fn a_run_with_unreadable_flags_is_not_resumed_with_looser_ones() {
    for (to, named) in [
        ("\"sandbox\":{\"level\":\"read-only\"}", "sandbox"),
        ("\"sandbox\":\"read-only\",\"forbid\":[\"bash\"]", "forbid"),
    ] {
        let fixture = CliFixture::new();
        fixture.write("a.txt", "one\n");
        let output = fixture.play(THREE, &["--approval", "ask", "--sandbox", "read-only"]);
        assert_eq!(output.code, 5, "{}", output.err);
        let id = ask_of(&output.out)["id"].as_str().unwrap().to_owned();
        let asks = "\"approval\":\"ask\",";
        tamper(
            &fixture,
            &format!("{asks}\"sandbox\":\"read-only\""),
            &format!("{asks}{to}"),
        );
        for args in [&["answer", &id, "yes"][..], &["resume"]] {
            let output = fixture.run(args);
            assert_eq!(output.code, 2, "{to}: {}", output.err);
            assert!(
                output.err.contains(named) && output.err.contains("hint"),
                "{to}: {}",
                output.err
            );
        }
        assert_eq!(count(&fixture, "answered"), 0, "{to}: it is still open");
        // A new prompt starts a new run with the new flags.
        let script = fixture.script("[[step]]\ntext = \"then not\"\n");
        let session = id_of(&fixture.sessions()[0]);
        let output = fixture.run(&["resume", &session, "--script", &script, "never mind"]);
        assert_eq!(output.code, 0, "{to}: {}", output.err);
    }
}

#[test]
fn a_secret_in_a_flag_is_not_stored_and_the_run_is_not_resumed_with_a_placeholder() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let key = format!("ghp_{}", "a1B2c3D4e5".repeat(4).split_at(36).0);
    let script = fixture.script(
        "follow = \"history\"\n[[step]]\ncalls = [{ name = \"write_file\", args = { path = \".envrc\", content = \"export A=1\\n\" } }]\n[[step]]\ntext = \"done\"\n",
    );
    let validate = format!("test -n {key}");
    let output = fixture.run(&[
        "run",
        "--script",
        &script,
        "--yes",
        "--validate",
        &validate,
        "make it so",
    ]);
    assert_eq!(output.code, 5, "{}", output.err);
    let id = ask_of(&output.out)["id"].as_str().unwrap().to_owned();
    let log = format!("{:?}", fixture.log());
    assert!(!log.contains(&key), "{log}");
    let output = fixture.run(&["answer", &id, "yes"]);
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("secret"), "{}", output.err);
    assert!(!fixture.work().join(".envrc").exists());
}

#[test]
fn a_fork_of_a_damaged_session_leaves_nothing_behind() {
    let fixture = CliFixture::new();
    assert_eq!(
        fixture
            .play("[[step]]\ntext = \"the first answer\"\n", &[])
            .code,
        0
    );
    let id = id_of(&fixture.sessions()[0]);
    tamper(&fixture, "\"kind\":\"run_started\"", "\"kind\":run_started");
    let output = fixture.run(&["fork", &id]);
    assert_ne!(output.code, 0, "{}", output.out);
    assert_eq!(fixture.sessions().len(), 1, "{}", output.err);
}

/// A script that asks a question; the run has `--yes`.
const ASKS: &str = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"ask_user\", args = { question = \"red?\" } }]\n[[step]]\ntext = \"red it is\"\n";
/// A script for the next run, which writes a file.
const WRITES: &str = "[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"x\" } }]\n[[step]]\ntext = \"ok\"\n";

#[test]
fn a_piped_prompt_does_not_inherit_the_flags_of_the_paused_run() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(ASKS, &["--yes"]).code, 5);
    let script = fixture.script(WRITES);
    let output = fixture.run_with(
        fixture.command(&["resume", "--script", &script]),
        "and now write it\n",
    );
    assert_eq!(output.code, 5, "{}", output.err);
    assert!(!fixture.work().join("b.txt").exists(), "{}", output.err);
}
