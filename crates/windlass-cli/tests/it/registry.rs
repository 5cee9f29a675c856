//! Runtimes as people and programs see them: how each stands, which one is chosen and why, and whether it works when it is
//! rehearsed. Real agents are the conformance kit's business.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use crate::codes::wait_until;
use crate::place::{HELLO, Output, Place};

/// A program beside the workspace.
fn program(place: &Place, name: &str, text: &str) -> PathBuf {
    let folder = place.work().parent().unwrap().join("programs");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file
}

fn rows(output: &Output) -> Vec<Value> {
    output
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[track_caller]
fn row(output: &Output, name: &str) -> Value {
    rows(output)
        .into_iter()
        .find(|row| row["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {}", output.out))
}

#[test]
fn each_runtime_says_how_it_stands() {
    let place = Place::new();
    // A program that no package tells of is asked its version, and changes nothing by it.
    let codex = program(
        &place,
        "codex",
        "#!/bin/sh\necho leak > \"${0%/*}/leak\"\necho codex-cli 9.8.7\n",
    );
    assert_eq!(
        place
            .run(&[
                "config",
                "set",
                "runtimes.codex.command",
                codex.to_str().unwrap()
            ])
            .code,
        0
    );
    let mut command = place.command(&["runtimes", "--json"]);
    command
        .env("ANTHROPIC_API_KEY", "a-key")
        .env("PATH", "/usr/bin:/bin");
    let listed = place.run_with(command, "");
    assert_eq!(listed.code, 0, "{}", listed.err);
    let native = row(&listed, "native");
    assert_eq!(
        (native["usable"].as_bool(), native["built_in"].as_bool()),
        (Some(true), Some(true))
    );
    assert_eq!(native["with"], "asks anthropic with your key");
    let codex = row(&listed, "codex");
    assert_eq!(
        (codex["found"].as_bool(), codex["usable"].as_bool()),
        (Some(true), Some(false))
    );
    assert_eq!(codex["version"], "9.8.7");
    assert!(codex["tested"].is_string() && codex["tested"] != codex["version"]);
    assert!(
        codex["why"]
            .as_str()
            .unwrap()
            .contains("OPENAI_API_KEY is not set"),
        "{codex}"
    );
    assert!(
        !place
            .work()
            .parent()
            .unwrap()
            .join("programs/leak")
            .exists(),
        "it was not held"
    );
    let claude = row(&listed, "claude-code");
    assert_eq!(
        (claude["found"].as_bool(), claude["path"].as_str()),
        (Some(false), None)
    );
    assert_eq!(claude["install"], "windlass runtimes install claude-code");
    assert!(
        claude["todo"]
            .as_str()
            .unwrap()
            .contains("windlass runtimes install claude-code"),
        "{claude}"
    );
    let completion = row(&listed, "completion");
    assert_eq!(
        completion["missing"]["full-coder"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn the_list_fits_a_terminal_and_the_doctor_says_the_same() {
    let place = Place::new();
    let listed = place.run(&["runtimes"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    for line in listed.out.lines() {
        assert!(
            line.chars().count() <= 80 || line.split_whitespace().count() == 1,
            "{line}"
        );
    }
    let doctor: Value = serde_json::from_str(&place.run(&["doctor", "--json"]).out).unwrap();
    let same = rows(&place.run(&["runtimes", "--json"]));
    assert_eq!(doctor["runtimes"].as_array().unwrap(), &same);
    let findings = doctor["findings"].as_array().unwrap();
    assert!(
        findings
            .iter()
            .any(|one| one["what"] == "codex" && one["needed"] == false)
    );
}

#[test]
fn the_fields_of_a_row_are_those_of_the_reference() {
    let place = Place::new();
    let reference = include_str!("../../../../docs/reference.md");
    let (_, section) = reference
        .split_once("### `windlass runtimes --json`")
        .unwrap();
    let section = section.split("\n#").next().unwrap();
    let fields: Vec<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let row = rows(&place.run(&["runtimes", "--json"])).remove(0);
    let mut names: Vec<&str> = row
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut documented = fields.clone();
    names.sort_unstable();
    documented.sort_unstable();
    assert_eq!(names, documented);
}

#[test]
fn an_agent_of_a_persons_own_stands_beside_the_others() {
    let place = Place::new();
    let mine = program(&place, "mine", "#!/bin/sh\necho mine 0.3.1\n");
    for (key, value) in [("kind", "acp"), ("command", mine.to_str().unwrap())] {
        assert_eq!(
            place
                .run(&["config", "set", &format!("runtimes.mine.{key}"), value])
                .code,
            0
        );
    }
    let mut command = place.command(&["runtimes", "--json"]);
    command.env("OPENAI_API_KEY", "a-key");
    let mine = row(&place.run_with(command, ""), "mine");
    assert_eq!(
        (mine["usable"].as_bool(), mine["version"].as_str()),
        (Some(true), Some("0.3.1")),
        "{mine}"
    );
    assert_eq!(
        (mine["tested"].as_str(), mine["install"].as_str()),
        (None, None)
    );
}

#[test]
fn who_would_be_chosen_is_said_with_the_reason_for_every_other() {
    let place = Place::new();
    let asked = |args: &[&str]| {
        let mut command = place.command(&[&["runtimes", "--json", "--for"], args].concat());
        command
            .env("ANTHROPIC_API_KEY", "a-key")
            .env("PATH", "/usr/bin:/bin");
        place.run_with(command, "")
    };
    let check = |args: &[&str], chosen: Option<&str>, other: (&str, &str)| {
        let output = asked(args);
        let said: Value = serde_json::from_str(&output.out).unwrap();
        assert_eq!(
            (output.code, said["chosen"].as_str()),
            (i32::from(chosen.is_none()), chosen),
            "{said}"
        );
        let others = said["others"].as_array().unwrap();
        let found = others.iter().find(|one| one["name"] == other.0).unwrap();
        assert!(found["why"].as_str().unwrap().contains(other.1), "{found}");
    };
    check(
        &[],
        Some("native"),
        ("claude-code", "`claude` is not on this machine"),
    );
    check(&["analysis"], Some("native"), ("completion", "would do"));
    check(&["mcp", "resume"], None, ("native", "lacks mcp"));
    check(
        &["shell", "-m", "openai/gpt-5.5"],
        None,
        ("native", "OPENAI_API_KEY is not set"),
    );
    let wrong = asked(&["shel"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("did you mean `shell`?"),
        "{}",
        wrong.err
    );
}

#[track_caller]
fn check_chosen(settings: &[(&str, &str)], flags: &[&str], says: &str) {
    let place = Place::new();
    for (key, value) in settings {
        let set = place.run(&["config", "set", key, value]);
        assert_eq!(set.code, 0, "{}", set.err);
    }
    let script = place.script(HELLO);
    let output = place.run(&[&["run", "--script", &script, "go"], flags].concat());
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        output.err.contains(&format!("runtime: {says}")),
        "{}",
        output.err
    );
    let log = place.log();
    let note = log
        .iter()
        .find(|event| event["data"]["code"] == "runtime_chosen")
        .unwrap();
    let text = note["data"]["text"].as_str().unwrap();
    assert!(
        text.starts_with(says) && text.contains("not claude-code: "),
        "{text}"
    );
    // Whoever goes on with it goes on with the one that was chosen.
    let began = log
        .iter()
        .find(|event| event["kind"] == "run_started")
        .unwrap();
    assert_eq!(
        began["data"]["flags"]["runtime"].as_str(),
        says.split(' ').next()
    );
}

#[test]
fn the_choice_is_said_and_kept_in_the_log() {
    let first = "native was chosen for full-coder: it is the first in the order";
    check_chosen(&[], &["--runtime", "auto"], first);
    check_chosen(&[("runtime", "auto")], &[], first);
    check_chosen(
        &[
            ("profiles.looks.runtime", "auto:streaming_text"),
            ("profiles.looks.mode", "analysis"),
        ],
        &["--profile", "looks"],
        "native was chosen for analysis, streaming_text",
    );
    let order = ("runtime_order", "codex,completion");
    check_chosen(
        &[order],
        &["--runtime", "auto:analysis"],
        "completion was chosen for analysis; before it: codex",
    );
}

#[test]
fn nobody_who_can_is_an_error_before_anything_begins() {
    let place = Place::new();
    let script = place.script(HELLO);
    let output = place.run(&["run", "--script", &script, "--runtime", "auto:mcp", "go"]);
    assert_eq!(output.code, 2);
    for says in [
        "no runtime is usable for full-coder, mcp",
        "native: lacks mcp",
        "not played by a script",
        "→ ",
    ] {
        assert!(output.err.contains(says), "{says}: {}", output.err);
    }
    assert!(place.sessions().is_empty());
}

#[test]
fn our_own_runtimes_pass_their_probe_and_leave_nothing() {
    let place = Place::new();
    let mut command = place.command(&[
        "runtimes",
        "--probe",
        "native",
        "patch",
        "completion",
        "--json",
    ]);
    // A key of the person's has no part in it.
    command
        .env("ANTHROPIC_API_KEY", "the-key-of-a-person")
        .env("WINDLASS_MODEL", "nobody/knows");
    let output = place.run_with(command, "");
    assert_eq!(output.code, 0, "{}{}", output.out, output.err);
    for name in ["native", "patch", "completion"] {
        let probe = &row(&output, name)["probe"];
        assert!(
            probe["works"] == true && probe["requests"].as_u64() >= Some(1),
            "{name}: {probe}"
        );
    }
    assert!(place.sessions().is_empty(), "a probe is no session");
    let doctor = place.run(&["doctor", "--probe", "native"]);
    assert!(
        doctor.code == 0 && doctor.out.contains("probe of native"),
        "{}",
        doctor.out
    );
}

#[test]
fn a_probe_says_at_which_step_it_failed() {
    let place = Place::new();
    let broken = program(
        &place,
        "broken",
        "#!/bin/sh\necho it is broken >&2\nexit 3\n",
    );
    let output = place.run(&[
        "runtimes",
        "--json",
        "--probe",
        &format!("acp:{}", broken.display()),
    ]);
    assert_eq!(output.code, 1, "{}", output.err);
    let probe = &rows(&output)[0]["probe"];
    assert_eq!(
        (probe["works"].as_bool(), probe["step"].as_str()),
        (Some(false), Some("start")),
        "{probe}"
    );
    let missing = place.run(&["runtimes", "--probe", "acp:/nowhere/agent"]);
    assert!(
        missing.code == 1 && missing.out.contains("is not on this machine"),
        "{}",
        missing.out
    );
    let unknown = place.run(&["doctor", "--probe", "claud-code"]);
    assert!(
        unknown.code == 2 && unknown.err.contains("did you mean `claude-code`"),
        "{}",
        unknown.err
    );
}

#[test]
fn an_interrupt_ends_a_probe_and_what_it_started() {
    let place = Place::new();
    // Seconds that nobody else sleeps for.
    let seconds = format!("{}", 1_000_000 + std::process::id());
    let sleeper = program(
        &place,
        "sleeper",
        &format!("#!/bin/sh\nexec sleep {seconds}\n"),
    );
    let mut command =
        place.command(&["runtimes", "--probe", &format!("acp:{}", sleeper.display())]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().contains("probing"));
    wait_until(|| sleeps(&seconds));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    wait_until(|| !sleeps(&seconds));
}

/// Whether somebody on this machine sleeps for so many seconds.
fn sleeps(seconds: &str) -> bool {
    let words = format!("sleep\0{seconds}\0");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .map(|entry| entry.path().join("cmdline"))
        .any(|file| std::fs::read(file).unwrap_or_default() == words.as_bytes())
}

#[track_caller]
fn check_no_key(runtime: &str, flags: &[&str], says: &str, sign_in: bool) {
    let place = Place::new();
    assert_eq!(
        place
            .run(&[
                "config",
                "set",
                &format!("runtimes.{runtime}.command"),
                "sh"
            ])
            .code,
        0
    );
    let output = place.run(&[&["run", "--runtime", runtime], flags, &["go"]].concat());
    assert!(
        output.code != 0 && output.err.contains(says),
        "{}",
        output.err
    );
    assert_eq!(
        output.err.contains("use the agent's own sign-in"),
        sign_in,
        "{}",
        output.err
    );
}

#[test]
fn a_sign_in_is_offered_to_those_that_have_one() {
    check_no_key("codex", &[], "OPENAI_API_KEY is not set", true);
    check_no_key(
        "goose",
        &[],
        "ANTHROPIC_API_KEY or OPENAI_API_KEY or GEMINI_API_KEY is not set",
        false,
    );
    check_no_key(
        "openai-agents",
        &["--auth", "login"],
        "`openai-agents` has no sign-in of its own",
        false,
    );
    check_no_key(
        "goose",
        &["--auth", "login", "--metering", "reported"],
        "runtimes.goose.login_file",
        false,
    );
    check_no_key(
        "goose",
        &["--reasoning-effort", "high", "-m", "openai/m"],
        "runtimes.goose.config_options",
        false,
    );
}

#[test]
fn what_is_built_in_is_not_installed() {
    let place = Place::new();
    let output = place.run(&["runtimes", "install", "native"]);
    assert!(
        output.code == 2 && output.err.contains("`native` is built in"),
        "{}",
        output.err
    );
    let output = place.run(&["runtimes", "remove", "nobody-knows-it"]);
    assert!(
        output.code == 2 && output.err.contains("it can install claude-code, codex"),
        "{}",
        output.err
    );
}
