//! One test for each exit code, and the messages for invalid input.

use std::time::{Duration, Instant};

use crate::cli_fixture::{CliFixture, HELLO};

#[track_caller]
fn check(script: &str, more: &[&str], code: i32, says: &str) {
    let fixture = CliFixture::new();
    let output = fixture.play(script, more);
    assert_eq!(output.code, code, "{}\n{}", output.out, output.err);
    let all = format!("{}\n{}", output.out, output.err);
    assert!(all.contains(says), "{says:?} is not in\n{all}");
    assert!(
        !all.contains('\u{1b}') && !all.contains('\r'),
        "no escape sequences and no progress in a pipe:\n{all}"
    );
}

#[test]
fn code_0_is_completed_and_standard_output_is_the_answer() {
    check(HELLO, &[], 0, "completed · no files changed · 1 step");
    let output = CliFixture::new().play(HELLO, &["-q"]);
    assert_eq!(
        (output.out.as_str(), output.err.as_str()),
        ("hello there\n", "")
    );
}

#[test]
fn code_1_is_failed() {
    let step = "[[step]]\nrepeat = 6\ncalls = [{ name = \"calculator\", args = { expression = \"1/0\" } }]\n";
    check(step, &[], 1, "failed (repetition)");
}

#[test]
fn code_1_is_a_run_that_was_let_do_nothing() {
    let script = "[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"n\", content = \"n\" } }]\n\
                  [[step]]\ntext = \"I could not.\"\n";
    check(script, &["--on-ask", "deny"], 1, "failed (policy)");
    check(
        script,
        &["--on-ask", "deny", "--approval", "edit"],
        0,
        "completed",
    );
    // The plan profile changes nothing: its result is text.
    check(
        script,
        &["--on-ask", "deny", "--approval", "plan"],
        0,
        "completed",
    );
}

#[test]
fn an_edit_that_cannot_apply_is_not_asked_about() {
    let edit = |old: &str| {
        format!(
            "[[step]]\ncalls = [{{ name = \"edit_file\", args = {{ path = \"a.txt\", old = \"{old}\", new = \"b\" }} }}]\n\
             [[step]]\ntext = \"done\"\n"
        )
    };
    let fixture = CliFixture::new();
    fixture.write("a.txt", "a\n");
    let output = fixture.play(&edit("missing"), &["--on-ask", "pause"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(fixture.log().iter().all(|event| event["kind"] != "asked"));
    let output = fixture.play(&edit("a"), &["--on-ask", "pause"]);
    assert_eq!(output.code, 5, "{}", output.err);
    assert_eq!(fixture.read("a.txt"), "a\n");
}

#[test]
fn an_attachment_that_does_not_exist_is_reported() {
    let fixture = CliFixture::new();
    let script = fixture.script(HELLO);
    let args = [
        "run",
        "--in-place",
        "--script",
        &script,
        "look at @missing.rs",
    ];
    let output = fixture.run(&args);
    assert_eq!(output.code, 0, "{}", output.err);
    let says = "warning: `@missing.rs` is not a file of the workspace and is not attached";
    assert!(output.err.contains(says), "{}", output.err);
}

#[test]
fn code_2_is_wrong_usage_or_configuration() {
    let fixture = CliFixture::new();
    for (args, says) in [
        (
            &["run", "--in-place", "-m", "antropic/x", "go"][..],
            "did you mean `anthropic`?",
        ),
        (
            &["run", "--in-place", "-m", "foo/bar", "go"],
            "there is no vendor `foo`",
        ),
        (&["run", "--in-plac", "go"], "--in-place"),
        (&["rum"], "run"),
        (
            &[
                "run",
                "--in-place",
                "--max-steps",
                "0",
                "-m",
                "ollama/x",
                "go",
            ],
            "above zero",
        ),
        (
            &["run", "--in-place", "-C", "nowhere", "go"],
            "no such directory",
        ),
        (
            &["run", "--in-place", "-m", "ollama/x"],
            "there is no prompt",
        ),
        (&["sessions", "show", "../x"], "not a valid session id"),
        (&["sessions", "show", "nothing"], "sessions list"),
        (&["config", "set", "modle", "x"], "did you mean `model`?"),
        (&["tools", "read_fil"], "did you mean `read_file`?"),
        (
            &["run", "--in-place", "-m", "openai-compatible/x", "go"],
            "--base-url",
        ),
        (
            &[
                "run",
                "--in-place",
                "-m",
                "ollama/x",
                "--max-budget-usd",
                "0",
                "go",
            ],
            "above zero",
        ),
    ] {
        let output = fixture.run(args);
        assert_eq!(output.code, 2, "{args:?}: {}", output.err);
        assert!(
            output.err.contains(says),
            "{args:?}: {says:?} is not in\n{}",
            output.err
        );
    }
    assert!(fixture.sessions().is_empty(), "nothing was started");
}

#[test]
fn an_explicit_cost_limit_with_an_unknown_price_is_refused_and_a_local_model_is_not() {
    let fixture = CliFixture::new();
    let mut command = fixture.command(&[
        "run",
        "--in-place",
        "-m",
        "openai/unheard-of",
        "--max-budget-usd",
        "1",
        "go",
    ]);
    command.env("OPENAI_API_KEY", "sk-test");
    let output = fixture.run_with(command, "");
    assert_eq!(output.code, 2);
    assert!(
        output.err.contains("prices.unheard-of.input"),
        "{}",
        output.err
    );
    // A local server costs nothing. No server listens there, so the run itself fails.
    let output = fixture.run(&[
        "run",
        "--in-place",
        "-m",
        "ollama/x",
        "--base-url",
        "http://127.0.0.1:9",
        "--max-budget-usd",
        "1",
        "--max-seconds",
        "1",
        "go",
    ]);
    assert_ne!(output.code, 2, "{}", output.err);
}

#[test]
fn a_broken_script_shows_the_line_and_a_caret() {
    check("[[step]]\ntxet = \"x\"\n", &[], 2, "^");
    check("[[step]]\ntext = \n", &[], 2, "script.toml:2");
}

#[test]
fn code_4_is_the_budget_or_the_steps() {
    let step = |n: usize| {
        format!(
            "[[step]]\ncalls = [{{ name = \"calculator\", args = {{ expression = \"{n}+1\" }} }}]\n"
        )
    };
    let script: String = (0..5).map(step).collect();
    check(&script, &["--max-steps", "2"], 4, "max steps");
    check(HELLO, &["--max-tokens", "100"], 4, "the limit on tokens");
}

#[test]
fn code_5_is_an_ask_that_found_nobody() {
    let script = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"touch made\" } }]\n[[step]]\ntext = \"ok\"\n";
    let fixture = CliFixture::new();
    let output = fixture.play(script, &[]);
    assert_eq!(output.code, 5, "{}", output.err);
    let ask: serde_json::Value = serde_json::from_str(output.out.trim()).unwrap();
    assert_eq!(ask["about"]["call"]["args"]["command"], "touch made");
    assert!(!fixture.work().join("made").exists());
    assert!(
        fixture
            .log()
            .iter()
            .all(|event| event["kind"] != "run_finished"),
        "the run stays open"
    );

    // If CI is set, the call is denied without a question, and a run with only denied calls fails.
    let fixture = CliFixture::new();
    let script = fixture.script(script);
    let mut command = fixture.command(&["run", "--in-place", "--script", &script, "go"]);
    command.env("CI", "true");
    assert_eq!(fixture.run_with(command, "").code, 1);
    assert!(!fixture.work().join("made").exists());
}

#[test]
fn code_6_is_a_refusal() {
    check("[[step]]\nrefusal = \"I will not\"\n", &[], 6, "I will not");
}

#[test]
fn code_7_is_the_provider_or_the_key() {
    check(
        "[[step]]\nerror = { kind = \"authentication\", message = \"bad key\", status = 401 }\n",
        &[],
        7,
        "bad key",
    );
    let fixture = CliFixture::new();
    let output = fixture.run(&["run", "--in-place", "-m", "anthropic/claude-sonnet-5", "go"]);
    assert_eq!(output.code, 7);
    assert!(
        output.err.contains("ANTHROPIC_API_KEY") && output.err.contains("export"),
        "{}",
        output.err
    );
    assert_eq!(
        fixture.run(&["run", "--in-place", "go"]).code,
        7,
        "no key at all"
    );
}

#[test]
fn code_8_is_isolation_that_cannot_be_had() {
    let fixture = CliFixture::new();
    let script = fixture.script(HELLO);
    let output = fixture.run(&["run", "--sandbox", "full", "--script", &script, "go"]);
    assert_eq!(output.code, 8);
    assert!(output.err.contains("--in-place"), "{}", output.err);
}

#[test]
fn code_124_is_time() {
    check(
        "[[step]]\ntext = \"wait\"\nhang = true\n",
        &["--max-seconds", "1"],
        124,
        "timed out",
    );
}

#[test]
fn code_130_is_an_interrupt_and_nothing_is_left_running() {
    let fixture = CliFixture::new();
    let mark = format!("3{}.5", std::process::id());
    let command = format!("sleep {mark} & sleep {mark}");
    let script = fixture.script(&format!(
        "[[step]]\ncalls = [{{ name = \"bash\", args = {{ command = \"{command}\" }} }}]\n"
    ));
    let mut child = fixture.command(&[
        "run",
        "--in-place",
        "--yes",
        "--script",
        &script,
        "-o",
        "json",
        "go",
    ]);
    child
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = child.spawn().unwrap();
    wait_until(|| running(&mark));
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let began = Instant::now();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(130),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["outcome"]["is"], "cancelled");
    assert!(!running(&mark), "a sleep was left running");
}

/// Whether any process has this text in its command line.
fn running(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| {
        String::from_utf8_lossy(&line)
            .split('\0')
            .any(|word| word == mark)
    })
}

#[track_caller]
pub(crate) fn wait_until(done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it never came to be"
        );
        std::thread::yield_now();
    }
}

#[track_caller]
fn check_limited(limit: &str, expect: &str) {
    let fixture = CliFixture::new();
    let script = fixture.script("[[step]]\ntext = \"done\"\n");
    let command = fixture.command(&[]);
    let line = format!("{limit}; exec \"$0\" run --in-place --script \"$1\" go");
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", &line])
        .arg(command.get_program())
        .arg(script);
    limited.current_dir(fixture.work()).env_clear();
    limited.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = fixture.run_with(limited, "");
    assert_eq!(output.code, 1, "{}", output.err);
    assert!(output.err.contains(expect), "{}", output.err);
}

#[test]
fn limits_of_the_process_are_errors() {
    check_limited("ulimit -f 2", "events.jsonl");
    check_limited("ulimit -v 200000", "the address space is limited to");
}
