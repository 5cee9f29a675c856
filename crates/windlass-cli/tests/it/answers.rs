//! Asks that outlive their process: answered from elsewhere, once, for exactly what was asked.

use serde_json::Value;

use crate::place::{Place, id_of};

/// Reads, writes what needs approval, asks, and says what it heard.
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

fn count(place: &Place, kind: &str) -> usize {
    place
        .log()
        .iter()
        .filter(|event| event["kind"] == kind)
        .count()
}

#[test]
fn a_run_goes_on_from_answer_to_answer_and_does_each_thing_once() {
    let place = Place::new();
    place.write("a.txt", "one\n");
    let output = place.play(THREE, &["--approval", "ask", "--max-steps", "7"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let ask = ask_of(&output.out);
    assert_eq!(ask["about"]["is"], "approval");
    assert_eq!(ask["session"], id_of(&place.sessions()[0]).as_str());
    let id = ask["id"].as_str().unwrap();
    assert!(
        output.err.contains(&format!("windlass answer {id}")),
        "{}",
        output.err
    );
    assert!(place.run(&["answer"]).out.contains(id), "it is listed");

    // What is no answer changes nothing.
    for words in [&["maybe"][..], &[], &["yes", "and", "more"]] {
        let output = place.run(&[&["answer", id], words].concat());
        assert_eq!(output.code, 2, "{}", output.err);
    }
    assert_eq!(place.run(&["answer", "a9-12345678", "yes"]).code, 2);
    assert_eq!(place.run(&["answer", "../x", "yes"]).code, 2);
    assert_eq!(count(&place, "answered"), 0);

    // No flag is said again: the run goes on under its own.
    let output = place.run(&["answer", id, "yes"]);
    assert_eq!(output.code, 5, "{}", output.err);
    assert_eq!(place.read("b.txt"), "written\n");
    let question = ask_of(&output.out);
    assert_eq!(question["about"]["is"], "question");
    let output = place.run(&["answer", question["id"].as_str().unwrap(), "2"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("blue it is"), "{}", output.out);
    for (kind, times) in [
        ("run_started", 1),
        ("run_finished", 1),
        ("call_started", 3),
        ("call_finished", 3),
    ] {
        assert_eq!(count(&place, kind), times, "{kind}");
    }
    assert_eq!(
        place.log().last().unwrap()["data"]["limits"]["steps"],
        7,
        "under the limits it was started with"
    );
    // Used up.
    let output = place.run(&["answer", id, "yes"]);
    assert_eq!(output.code, 2);
    assert!(
        output.err.contains("there is no pending ask"),
        "{}",
        output.err
    );
}

#[test]
fn an_approval_counts_for_the_file_as_it_was() {
    let place = Place::new();
    place.write("b.txt", "before\n");
    let script = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"after\\n\" } }]\n\
                  [[step]]\nexpect = \"changed while it waited\"\ntext = \"I will look again\"\n";
    let output = place.play(script, &["--approval", "ask"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let id = ask_of(&output.out)["id"].as_str().unwrap().to_owned();
    place.write("b.txt", "somebody else was here\n");
    let output = place.run(&["answer", &id, "yes"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(place.read("b.txt"), "somebody else was here\n");
}

#[test]
fn an_approval_counts_for_a_large_file_as_it_began_and_ended() {
    let place = Place::new();
    let mut bytes = vec![b'a'; 17 << 20];
    std::fs::write(place.work().join("big.bin"), &bytes).unwrap();
    let script = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"delete_file\", args = { path = \"big.bin\" } }]\n\
                  [[step]]\nexpect = \"changed while it waited\"\ntext = \"I will look again\"\n";
    let output = place.play(script, &["--approval", "ask"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let id = ask_of(&output.out)["id"].as_str().unwrap().to_owned();
    *bytes.last_mut().unwrap() = b'b';
    std::fs::write(place.work().join("big.bin"), &bytes).unwrap();
    let output = place.run(&["answer", &id, "yes"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(place.work().join("big.bin").exists());
}

#[test]
fn resuming_offers_what_is_open_and_a_prompt_gives_it_up() {
    let place = Place::new();
    place.write("a.txt", "one\n");
    assert_eq!(place.play(THREE, &["--approval", "ask"]).code, 5);
    let session = id_of(&place.sessions()[0]);
    let output = place.run(&["resume"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let ask = ask_of(&output.out);
    assert_eq!(ask["about"]["is"], "approval");
    let script = place.script("[[step]]\nexpect = \"not run, because\"\ntext = \"then not\"\n");
    let output = place.run(&["resume", &session, "--script", &script, "never mind"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(
        place
            .run(&["answer", ask["id"].as_str().unwrap(), "yes"])
            .code,
        2
    );
    assert!(!place.work().join("b.txt").exists());
}

#[test]
fn words_from_a_pipe_are_a_prompt_of_their_own_and_take_over_no_yes() {
    let place = Place::new();
    place.write("a.txt", "one\n");
    // A question of the model, in a run that says yes to everything.
    let asks = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"ask_user\", args = { question = \"which?\" } }]\n[[step]]\ntext = \"ok\"\n";
    assert_eq!(place.play(asks, &["--yes", "--approval", "ask"]).code, 5);
    let script = place.script("[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"x\" } }]\n[[step]]\ntext = \"ok\"\n");
    let output = place.run_with(place.command(&["resume", "--script", &script]), "write b\n");
    assert_eq!(
        output.code, 5,
        "the yes of the other run does not count: {}",
        output.err
    );
    assert!(!place.work().join("b.txt").exists());
}

#[test]
fn a_copy_that_waits_goes_on_by_its_name() {
    let place = Place::new();
    place.write("a.txt", "one\n");
    let script = place.script("follow = \"history\"\n[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"x\" } }, { name = \"ask_user\", args = { question = \"which?\" } }]\n[[step]]\nexpect = \"that one\"\ntext = \"ok\"\n");
    let output = place.run(&["run", "--script", &script, "--validate", "none", "go"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let kept = place
        .log()
        .into_iter()
        .rev()
        .find(|event| event["kind"] == "kept")
        .unwrap()["data"]["name"]
        .clone();
    let output = place.run(&["resume", kept.as_str().unwrap()]);
    assert_eq!(output.code, 5, "{}", output.err);
    let ask = ask_of(&output.out);
    let output = place.run(&["answer", ask["id"].as_str().unwrap(), "that", "one"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(place.read("b.txt"), "x");
}

#[test]
fn a_landing_that_waits_is_let_through_or_not_by_the_answer() {
    for (word, lands) in [("yes", true), ("no", false)] {
        let place = Place::new();
        place.write("a.txt", "one\n");
        let script = place.script(
            "follow = \"history\"\n[[step]]\ncalls = [{ name = \"write_file\", args = { path = \".envrc\", content = \"export A=1\\n\" } }]\n[[step]]\ntext = \"done\"\n",
        );
        let output = place.run(&["run", "--script", &script, "--yes", "make it so"]);
        assert_eq!(output.code, 5, "{}", output.err);
        assert!(!place.work().join(".envrc").exists());
        let ask = ask_of(&output.out);
        assert_eq!(ask["about"]["is"], "landing");
        let output = place.run(&["answer", ask["id"].as_str().unwrap(), word]);
        assert_eq!(output.code, if lands { 0 } else { 1 }, "{}", output.err);
        assert_eq!(
            place.work().join(".envrc").exists(),
            lands,
            "{}",
            output.err
        );
        assert_eq!(
            (count(&place, "run_finished"), count(&place, "asked")),
            (1, 1)
        );
        assert_eq!(count(&place, "kept"), if lands { 1 } else { 2 });
    }
}

#[test]
fn an_isolated_run_that_stopped_before_it_changed_anything_goes_on() {
    let place = Place::new();
    place.write("a.txt", "one\n");
    let script = place.script(
        "follow = \"history\"\n[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"x\\n\" } }]\n[[step]]\ntext = \"done\"\n",
    );
    let output = place.run(&[
        "run",
        "--script",
        &script,
        "--approval",
        "ask",
        "make it so",
    ]);
    assert_eq!(output.code, 5, "{}", output.err);
    let ask = ask_of(&output.out);
    let output = place.run(&["answer", ask["id"].as_str().unwrap(), "yes"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(place.read("b.txt"), "x\n");
    assert_eq!(
        (count(&place, "discarded"), count(&place, "landed")),
        (1, 1)
    );
}

#[test]
fn always_is_remembered_also_when_it_is_said_later() {
    let place = Place::new();
    let script = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"x\" } }]\n[[step]]\ntext = \"ok\"\n";
    let output = place.play(script, &["--approval", "ask"]);
    let id = ask_of(&output.out)["id"].as_str().unwrap().to_owned();
    assert_eq!(place.run(&["answer", &id, "always"]).code, 0);
    let again = script.replace("\"x\"", "\"y\"");
    let output = place.play(&again, &["--approval", "ask"]);
    assert_eq!(output.code, 0, "{}", output.err);
}

#[test]
fn a_fork_goes_on_beside_the_session_it_was_made_of() {
    let place = Place::new();
    assert_eq!(
        place
            .play("[[step]]\ntext = \"the first answer\"\n", &[])
            .code,
        0
    );
    let id = id_of(&place.sessions()[0]);
    let before = place.log();
    let output = place.run(&["fork", &id]);
    assert_eq!(output.code, 0, "{}", output.err);
    let fork = output.out.trim().to_owned();
    let script = place.script("[[step]]\nexpect = \"the first answer\"\ntext = \"and more\"\n");
    assert_eq!(
        place
            .run(&["resume", &fork, "--script", &script, "go on"])
            .code,
        0
    );
    assert_eq!(place.log_of(&id), before);
    let output = place.run(&["fork", &id, "--at", "999"]);
    assert_eq!(output.code, 1);
    assert!(
        output.err.contains("cannot be forked at event 999"),
        "{}",
        output.err
    );
    assert_eq!(place.run(&["fork", "../x"]).code, 2);
}

#[test]
fn of_two_who_answer_at_once_one_does() {
    let place = Place::new();
    let script = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"bash\", args = { command = \"echo once >> b.txt\" } }]\n[[step]]\ntext = \"ok\"\n";
    let output = place.play(script, &["--approval", "ask"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let id = ask_of(&output.out)["id"].as_str().unwrap().to_owned();
    let codes: Vec<i32> = std::thread::scope(|scope| {
        let answer = || place.run(&["answer", &id, "yes"]).code;
        let both: Vec<_> = (0..4).map(|_| scope.spawn(answer)).collect();
        both.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(
        codes.iter().filter(|code| **code == 0).count(),
        1,
        "{codes:?}"
    );
    assert_eq!(place.read("b.txt"), "once\n");
    assert_eq!(
        (
            count(&place, "answered"),
            count(&place, "call_started"),
            count(&place, "run_finished")
        ),
        (1, 1, 1)
    );
}

#[test]
fn a_line_of_a_piped_chat_is_a_prompt_and_no_answer() {
    let place = Place::new();
    place.write("a.txt", "one\n");
    assert_eq!(place.play(THREE, &["--approval", "ask"]).code, 5);
    let script = place.script("[[step]]\nexpect = \"not run, because\"\ntext = \"then not\"\n");
    let output = place.run_with(
        place.command(&["chat", "--continue", "--script", &script]),
        "yes\n",
    );
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(!place.work().join("b.txt").exists(), "{}", output.err);
}

/// Changes how the run was asked for, in the log of the newest session.
fn tamper(place: &Place, from: &str, to: &str) {
    let file = place.sessions().pop().unwrap().join("events.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(&file, text.replace(from, to)).unwrap();
}

#[test]
fn a_run_whose_terms_cannot_be_read_does_not_go_on_under_looser_ones() {
    for (to, named) in [
        ("\"sandbox\":{\"level\":\"read-only\"}", "sandbox"),
        ("\"sandbox\":\"read-only\",\"forbid\":[\"bash\"]", "forbid"),
    ] {
        let place = Place::new();
        place.write("a.txt", "one\n");
        let output = place.play(THREE, &["--approval", "ask", "--sandbox", "read-only"]);
        assert_eq!(output.code, 5, "{}", output.err);
        let id = ask_of(&output.out)["id"].as_str().unwrap().to_owned();
        let asks = "\"approval\":\"ask\",";
        tamper(
            &place,
            &format!("{asks}\"sandbox\":\"read-only\""),
            &format!("{asks}{to}"),
        );
        for args in [&["answer", &id, "yes"][..], &["resume"]] {
            let output = place.run(args);
            assert_eq!(output.code, 2, "{to}: {}", output.err);
            assert!(
                output.err.contains(named) && output.err.contains("hint"),
                "{to}: {}",
                output.err
            );
        }
        assert_eq!(count(&place, "answered"), 0, "{to}: it is still open");
        // A new prompt is another run, under what is said now.
        let script = place.script("[[step]]\ntext = \"then not\"\n");
        let session = id_of(&place.sessions()[0]);
        let output = place.run(&["resume", &session, "--script", &script, "never mind"]);
        assert_eq!(output.code, 0, "{to}: {}", output.err);
    }
}

#[test]
fn a_secret_in_a_flag_is_not_kept_and_the_run_does_not_go_on_with_words_in_its_place() {
    let place = Place::new();
    place.write("a.txt", "one\n");
    let key = format!("ghp_{}", "a1B2c3D4e5".repeat(4).split_at(36).0);
    let script = place.script(
        "follow = \"history\"\n[[step]]\ncalls = [{ name = \"write_file\", args = { path = \".envrc\", content = \"export A=1\\n\" } }]\n[[step]]\ntext = \"done\"\n",
    );
    let validate = format!("test -n {key}");
    let output = place.run(&[
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
    let log = format!("{:?}", place.log());
    assert!(!log.contains(&key), "{log}");
    let output = place.run(&["answer", &id, "yes"]);
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("secret"), "{}", output.err);
    assert!(!place.work().join(".envrc").exists());
}

#[test]
fn a_fork_of_a_damaged_session_leaves_nothing_behind() {
    let place = Place::new();
    assert_eq!(
        place
            .play("[[step]]\ntext = \"the first answer\"\n", &[])
            .code,
        0
    );
    let id = id_of(&place.sessions()[0]);
    tamper(&place, "\"kind\":\"run_started\"", "\"kind\":run_started");
    let output = place.run(&["fork", &id]);
    assert_ne!(output.code, 0, "{}", output.out);
    assert_eq!(place.sessions().len(), 1, "{}", output.err);
}

/// A question, asked by a run whose calls were answered yes by a flag.
const ASKS: &str = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"ask_user\", args = { question = \"red?\" } }]\n[[step]]\ntext = \"red it is\"\n";
/// A run after that, which writes.
const WRITES: &str = "[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"x\" } }]\n[[step]]\ntext = \"ok\"\n";

#[test]
fn a_piped_prompt_is_another_run_and_no_flag_of_the_one_that_waits_holds_for_it() {
    let place = Place::new();
    assert_eq!(place.play(ASKS, &["--yes"]).code, 5);
    let script = place.script(WRITES);
    let output = place.run_with(
        place.command(&["resume", "--script", &script]),
        "and now write it\n",
    );
    assert_eq!(output.code, 5, "{}", output.err);
    assert!(!place.work().join("b.txt").exists(), "{}", output.err);
}
