//! `runtimes`: the state of each runtime, the choice of `auto` with its reasons, and probes. The conformance kit tests real
//! agents.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use crate::cli_fixture::{CliFixture, CliOutput, HELLO};
use crate::exit_codes::wait_until;

/// Writes a program outside the workspace.
fn program(fixture: &CliFixture, name: &str, text: &str) -> PathBuf {
    let folder = fixture.work().parent().unwrap().join("programs");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file
}

fn rows(output: &CliOutput) -> Vec<Value> {
    output
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[track_caller]
fn row(output: &CliOutput, name: &str) -> Value {
    rows(output)
        .into_iter()
        .find(|row| row["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {}", output.out))
}

#[test]
fn each_runtime_reports_its_state() {
    let fixture = CliFixture::new();
    // A program without a package is run with `--version`, and cannot change anything.
    let codex = program(
        &fixture,
        "codex",
        "#!/bin/sh\necho leak > \"${0%/*}/leak\"\necho codex-cli 9.8.7\n",
    );
    assert_eq!(
        fixture
            .run(&[
                "config",
                "set",
                "runtimes.codex.command",
                codex.to_str().unwrap()
            ])
            .code,
        0
    );
    let mut command = fixture.command(&["runtimes", "--json"]);
    command
        .env("ANTHROPIC_API_KEY", "a-key")
        .env("PATH", "/usr/bin:/bin");
    let listed = fixture.run_with(command, "");
    assert_eq!(listed.code, 0, "{}", listed.err);
    let native = row(&listed, "native");
    assert_eq!(
        (native["usable"].as_bool(), native["built_in"].as_bool()),
        (Some(true), Some(true))
    );
    assert_eq!(native["with"], "uses anthropic with your key");
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
        !fixture
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
fn the_list_fits_a_terminal_and_agrees_with_doctor() {
    let fixture = CliFixture::new();
    let listed = fixture.run(&["runtimes"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    for line in listed.out.lines() {
        assert!(
            line.chars().count() <= 80 || line.split_whitespace().count() == 1,
            "{line}"
        );
    }
    let doctor: Value = serde_json::from_str(&fixture.run(&["doctor", "--json"]).out).unwrap();
    let same = rows(&fixture.run(&["runtimes", "--json"]));
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
    let fixture = CliFixture::new();
    let reference = include_str!("../../../../docs/reference.md");
    let (_, section) = reference
        .split_once("### `windlass runtimes --json`")
        .unwrap();
    let section = section.split("\n#").next().unwrap();
    let fields: Vec<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let row = rows(&fixture.run(&["runtimes", "--json"])).remove(0);
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
fn a_user_defined_agent_is_listed_with_the_others() {
    let fixture = CliFixture::new();
    let mine = program(&fixture, "mine", "#!/bin/sh\necho mine 0.3.1\n");
    for (key, value) in [("kind", "acp"), ("command", mine.to_str().unwrap())] {
        assert_eq!(
            fixture
                .run(&["config", "set", &format!("runtimes.mine.{key}"), value])
                .code,
            0
        );
    }
    let mut command = fixture.command(&["runtimes", "--json"]);
    command.env("OPENAI_API_KEY", "a-key");
    let mine = row(&fixture.run_with(command, ""), "mine");
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
fn the_choice_is_explained_with_a_reason_for_every_other_runtime() {
    let fixture = CliFixture::new();
    let asked = |args: &[&str]| {
        let mut command = fixture.command(&[&["runtimes", "--json", "--for"], args].concat());
        command
            .env("ANTHROPIC_API_KEY", "a-key")
            .env("PATH", "/usr/bin:/bin");
        fixture.run_with(command, "")
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
        ("claude-code", "`claude` is not installed"),
    );
    check(&["analysis"], Some("native"), ("completion", "is suitable"));
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
    let fixture = CliFixture::new();
    for (key, value) in settings {
        let set = fixture.run(&["config", "set", key, value]);
        assert_eq!(set.code, 0, "{}", set.err);
    }
    let script = fixture.script(HELLO);
    let output = fixture.run(&[&["run", "--script", &script, "go"], flags].concat());
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        output.err.contains(&format!("runtime: {says}")),
        "{}",
        output.err
    );
    let log = fixture.log();
    let note = log
        .iter()
        .find(|event| event["data"]["code"] == "runtime_chosen")
        .unwrap();
    let text = note["data"]["text"].as_str().unwrap();
    assert!(
        text.starts_with(says) && text.contains("not claude-code: "),
        "{text}"
    );
    // A resumed session uses the runtime that was chosen first.
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
fn the_choice_is_printed_and_logged() {
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
        "completion was chosen for analysis; earlier in the order: codex",
    );
}

#[test]
fn no_suitable_runtime_is_an_error_before_the_run_starts() {
    let fixture = CliFixture::new();
    let script = fixture.script(HELLO);
    let output = fixture.run(&["run", "--script", &script, "--runtime", "auto:mcp", "go"]);
    assert_eq!(output.code, 2);
    for says in [
        "no runtime is usable for full-coder, mcp",
        "native: lacks mcp",
        "works only with the built-in agent",
        "→ ",
    ] {
        assert!(output.err.contains(says), "{says}: {}", output.err);
    }
    assert!(fixture.sessions().is_empty());
}

#[test]
fn built_in_runtimes_pass_their_probe_and_leave_no_files() {
    let fixture = CliFixture::new();
    let mut command = fixture.command(&[
        "runtimes",
        "--probe",
        "native",
        "patch",
        "completion",
        "--json",
    ]);
    // The probe does not use the key of the user.
    command
        .env("ANTHROPIC_API_KEY", "the-key-of-a-person")
        .env("WINDLASS_MODEL", "nobody/knows");
    let output = fixture.run_with(command, "");
    assert_eq!(output.code, 0, "{}{}", output.out, output.err);
    for name in ["native", "patch", "completion"] {
        let probe = &row(&output, name)["probe"];
        assert!(
            probe["works"] == true && probe["requests"].as_u64() >= Some(1),
            "{name}: {probe}"
        );
    }
    assert!(fixture.sessions().is_empty(), "a probe is no session");
    let doctor = fixture.run(&["doctor", "--probe", "native"]);
    assert!(
        doctor.code == 0 && doctor.out.contains("probe of native"),
        "{}",
        doctor.out
    );
}

#[test]
fn a_failed_probe_names_the_step() {
    let fixture = CliFixture::new();
    let broken = program(
        &fixture,
        "broken",
        "#!/bin/sh\necho it is broken >&2\nexit 3\n",
    );
    let output = fixture.run(&[
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
    let missing = fixture.run(&["runtimes", "--probe", "acp:/nowhere/agent"]);
    assert!(
        missing.code == 1 && missing.out.contains("is not installed"),
        "{}",
        missing.out
    );
    let unknown = fixture.run(&["doctor", "--probe", "claud-code"]);
    assert!(
        unknown.code == 2 && unknown.err.contains("did you mean `claude-code`"),
        "{}",
        unknown.err
    );
}

#[test]
fn an_interrupt_ends_a_probe_and_what_it_started() {
    let fixture = CliFixture::new();
    // A duration that no other process sleeps for.
    let seconds = format!("{}", 1_000_000 + std::process::id());
    let sleeper = program(
        &fixture,
        "sleeper",
        &format!("#!/bin/sh\nexec sleep {seconds}\n"),
    );
    let mut command =
        fixture.command(&["runtimes", "--probe", &format!("acp:{}", sleeper.display())]);
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

/// Whether a process on this machine sleeps for this many seconds.
fn sleeps(seconds: &str) -> bool {
    let words = format!("sleep\0{seconds}\0");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .map(|entry| entry.path().join("cmdline"))
        .any(|file| std::fs::read(file).unwrap_or_default() == words.as_bytes())
}

#[track_caller]
fn check_no_key(runtime: &str, flags: &[&str], says: &str, sign_in: bool) {
    let fixture = CliFixture::new();
    assert_eq!(
        fixture
            .run(&[
                "config",
                "set",
                &format!("runtimes.{runtime}.command"),
                "sh"
            ])
            .code,
        0
    );
    let output = fixture.run(&[&["run", "--runtime", runtime], flags, &["go"]].concat());
    assert!(
        output.code != 0 && output.err.contains(says),
        "{}",
        output.err
    );
    assert_eq!(
        output.err.contains("use the agent's own login"),
        sign_in,
        "{}",
        output.err
    );
}

#[test]
fn login_is_available_only_for_agents_that_support_it() {
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
        "`openai-agents` has no login of its own",
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
fn built_in_runtimes_cannot_be_installed() {
    let fixture = CliFixture::new();
    let output = fixture.run(&["runtimes", "install", "native"]);
    assert!(
        output.code == 2 && output.err.contains("`native` is built in"),
        "{}",
        output.err
    );
    let output = fixture.run(&["runtimes", "remove", "nobody-knows-it"]);
    assert!(
        output.code == 2 && output.err.contains("it can install claude-code, codex"),
        "{}",
        output.err
    );
}
