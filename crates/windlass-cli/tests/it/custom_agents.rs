//! Agents that the user defines in the settings: small programs in the real sandbox, with each way to pass the prompt,
//! and with failures.

use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

use crate::cli_fixture::{CliFixture, CliOutput};

/// A workspace, and a program outside it that the settings define as the agent `own`.
fn with_program(program: &str, settings: &str) -> CliFixture {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let file = fixture.home().join("bin/agent");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, format!("#!/bin/sh\n{program}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = fixture.home().join(".config/windlass");
    std::fs::create_dir_all(&config).unwrap();
    let command = file.display();
    let text = format!("[runtimes.own]\nkind = \"cli\"\ncommand = \"{command}\"\n{settings}\n");
    std::fs::write(config.join("config.toml"), text).unwrap();
    fixture
}

fn run(fixture: &CliFixture, more: &[&str]) -> CliOutput {
    let args = [
        &[
            "run",
            "--runtime",
            "own",
            "-m",
            "anthropic/some-model",
            "write it down",
        ],
        more,
    ]
    .concat();
    let mut command = fixture.command(&args);
    command.env("ANTHROPIC_API_KEY", "a-key");
    fixture.run_with(command, "")
}

#[track_caller]
fn check_prompt(program: &str, settings: &str) {
    let fixture = with_program(program, settings);
    let output = run(&fixture, &[]);
    assert_eq!(output.code, 0, "{}", output.err);
    let seen = fixture.read("seen.txt");
    assert!(
        seen.starts_with("You work without a user") && seen.ends_with("The task:\nwrite it down"),
        "{seen}"
    );
    assert!(output.out.contains("all is well"), "{}", output.out);
    let opened = fixture
        .log()
        .into_iter()
        .find(|event| event["kind"] == "transaction_opened")
        .unwrap();
    assert_eq!(opened["data"]["gate"], "sandbox_only", "{opened}");
}

#[test]
fn a_program_gets_its_prompt_as_configured() {
    check_prompt("cat > seen.txt\necho all is well", "");
    check_prompt(
        "printf %s \"$2\" > seen.txt\necho all is well",
        "args = [\"--say\", \"{prompt}\"]",
    );
    check_prompt(
        "cat \"$1\" > seen.txt\necho all is well",
        "args = [\"{prompt_file}\"]",
    );
    let lines = r#"cat > seen.txt
echo starting
echo '{"id":"s1"}'
echo '{"kind":"words","text":"all is well"}'"#;
    let fields = "output = \"jsonl\"\nfields.text = \"kind=words:text\"\nfields.session = \"id\"";
    check_prompt(lines, fields);
}

#[test]
fn an_agent_gets_the_meter_endpoint_and_a_private_home() {
    let program = r#"cat "$HOME/conf" > conf.txt
echo "$1" > model.txt
echo "$OPENAI_BASE_URL $MY_URL" > urls.txt
echo done"#;
    let settings =
        "args = [\"{model}\"]\nenv.MY_URL = \"{url}\"\nhome_files.conf = \"at {url} in {home}\"";
    let fixture = with_program(program, settings);
    let output = run(&fixture, &[]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(fixture.read("model.txt"), "some-model\n");
    let urls = fixture.read("urls.txt");
    let (openai, own) = urls.trim().split_once(' ').unwrap();
    assert!(
        own.starts_with("http://127.0.0.1:") && openai == format!("{own}/v1"),
        "{urls}"
    );
    assert!(
        fixture
            .read("conf.txt")
            .starts_with(&format!("at {own} in /")),
        "{}",
        fixture.read("conf.txt")
    );
}

#[track_caller]
fn check_failed(program: &str, flags: &[&str], code: i32, says: &str) {
    let fixture = with_program(program, "");
    let output = run(&fixture, flags);
    assert!(
        output.code == code && output.err.contains(says),
        "{}: {}",
        output.code,
        output.err
    );
    assert_eq!(fixture.read("a.txt"), "one\n");
}

#[test]
fn a_failing_agent_fails_the_run_and_nothing_lands() {
    check_failed(
        "echo two > a.txt\necho no such model >&2\nexit 1",
        &[],
        1,
        "no such model",
    );
    check_failed("echo two > a.txt\nkill -SEGV $$", &[], 1, "signal");
    check_failed(
        "cat > /dev/null",
        &[],
        1,
        "changed no file and said nothing",
    );
    let endless = "echo two > a.txt\nyes \"$(head -c 100000 /dev/zero | tr '\\0' x)\"";
    check_failed(endless, &[], 1, "printed more than 64 MiB");
    // A program that ignores the first signal is killed.
    let deaf = "trap '' TERM\necho two > a.txt\nwhile :; do sleep 1; done";
    check_failed(
        deaf,
        &["--max-seconds", "2"],
        124,
        "the time limit is reached",
    );
}

#[track_caller]
fn check_refused(settings: &[(&str, &str)], runtime: &str, says: &str) {
    let fixture = CliFixture::new();
    for (key, value) in settings {
        let set = fixture.run(&["config", "set", key, value]);
        assert_eq!(set.code, 0, "{}", set.err);
    }
    let mut command = fixture.command(&[
        "run",
        "--runtime",
        runtime,
        "-m",
        "anthropic/some-model",
        "go",
    ]);
    command.env("ANTHROPIC_API_KEY", "a-key");
    let output = fixture.run_with(command, "");
    assert!(
        output.code == 2 && output.err.contains(says),
        "{}: {}",
        output.code,
        output.err
    );
    assert!(fixture.sessions().is_empty(), "nothing was begun");
}

#[test]
fn an_invalid_agent_is_reported_before_the_run_starts() {
    let cli = ("runtimes.own.kind", "cli");
    let sh = ("runtimes.own.command", "sh");
    check_refused(&[cli], "own", "`own` has no program");
    check_refused(
        &[cli, sh, ("runtimes.own.fs", "true")],
        "own",
        "runtimes.own: it has no option `fs`",
    );
    check_refused(
        &[cli, sh, ("runtimes.own.fields.text", "a..b")],
        "own",
        "is not a valid position in a line",
    );
    check_refused(
        &[cli, sh, ("runtimes.own.output", "jsonl")],
        "own",
        "the position of the text",
    );
    check_refused(&[cli, sh], "onw", "did you mean `own`?");
    check_refused(&[sh], "own", "no runtime `own` with options");
    check_refused(
        &[("runtimes.codex.kind", "cli")],
        "codex",
        "`codex` is already a runtime",
    );
    check_refused(
        &[
            ("runtimes.own.kind", "acp"),
            sh,
            ("runtimes.own.output", "text"),
        ],
        "own",
        "it has no option `output`",
    );
}

#[test]
fn an_untrusted_project_cannot_define_agents() {
    let fixture = CliFixture::new();
    fixture.write(
        ".windlass/config.toml",
        "[runtimes.theirs]\nkind = \"cli\"\ncommand = \"sh\"\n",
    );
    let output = fixture.run(&["run", "--runtime", "theirs", "go"]);
    assert!(
        output.code == 2 && output.err.contains("there is no runtime `theirs`"),
        "{}",
        output.err
    );
}

#[test]
fn user_defined_agents_are_listed() {
    let fixture = with_program("true", "about = \"the one that I wrote\"");
    let output = fixture.run(&["runtimes"]);
    assert!(
        output.out.contains("own") && output.out.contains("the one that I wrote"),
        "{}",
        output.out
    );
    assert!(output.out.contains("home/bin/agent"), "{}", output.out);
}

/// Runs a program that writes `a.txt`, with these rules or flags; returns the outcome and the started calls.
#[track_caller]
fn check_gate(rules: &str, flags: &[&str], says: &str) -> Vec<serde_json::Value> {
    let program = "echo two > a.txt\necho '{\"tool\":\"shell\",\"input\":{\"command\":\"curl example.com\"}}'\necho '{\"say\":\"done\"}'";
    let fields = "output = \"jsonl\"\nfields.text = \"say\"\nfields.tool = \"tool\"\nfields.tool_input = \"input\"";
    let fixture = with_program(program, &format!("{fields}\n{rules}"));
    let output = run(&fixture, flags);
    assert!(output.err.contains(says), "{}: {}", output.code, output.err);
    if says.is_empty() {
        assert_eq!((output.code, fixture.read("a.txt").as_str()), (0, "two\n"));
    } else {
        assert_ne!(output.code, 0);
        assert_eq!(fixture.read("a.txt"), "one\n");
    }
    match fixture.sessions().is_empty() {
        true => Vec::new(),
        false => fixture.log(),
    }
}

#[test]
fn rules_and_modes_that_cannot_be_enforced_refuse_the_agent_by_name() {
    let deny = "[rules]\ndeny = [\"write_file(a.txt)\"]";
    let ask = "[rules]\nask = [\"bash(curl *)\"]";
    for (rules, flags, says) in [
        (deny, &[][..], "the deny rule `write_file(a.txt)`"),
        (ask, &[], "the ask rule `bash(curl *)`"),
        ("", &["--approval", "ask"], "the approval mode `ask`"),
        ("", &["--approval", "edit"], "the approval mode `edit`"),
        (deny, &[], "--accept-ungated"),
    ] {
        let log = check_gate(rules, flags, says);
        assert!(log.is_empty(), "the agent was started");
    }
}

#[test]
fn an_ungated_run_that_breaks_a_rule_is_kept_and_does_not_land() {
    let accept = &["--accept-ungated"][..];
    let finished = |log: &[serde_json::Value]| log.last().unwrap()["data"].clone();
    for (rules, says) in [
        (
            "[rules]\ndeny = [\"write_file(a.txt)\"]",
            "user rule write_file(a.txt)",
        ),
        (
            "[rules]\nask = [\"edit_file(*.txt)\"]",
            "user rule edit_file(*.txt)",
        ),
        (
            "[rules]\ndeny = [\"bash(curl *)\"]",
            "user rule bash(curl *)",
        ),
        ("[rules]\ndeny = [\"bash\"]", "user rule bash"),
    ] {
        let log = check_gate(rules, accept, says);
        let end = finished(&log);
        assert_eq!(end["outcome"]["reason"], "policy", "{end}");
        assert!(end["transaction"].is_string(), "the copy is kept: {end}");
    }
    let log = check_gate("[rules]\ndeny = [\"write_file(b.txt)\"]", accept, "");
    let call = log.iter().find(|event| event["kind"] == "call_started");
    let call = &call.unwrap()["data"];
    assert!(call.get("verdict").is_none(), "nothing judged it: {call}");
}

/// An ACP agent that counts its prompts, and runs `more` at each.
fn acp_agent(more: &str) -> CliFixture {
    let program = format!(
        r#"n=0
answer() {{ echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}}"; }}
while read -r line; do
  id=$(printf %s "$line" | grep -o '"id":[0-9]*' | head -n 1 | cut -d: -f2)
  case "$line" in
    *'"initialize"'*) answer '{{"protocolVersion":1,"agentCapabilities":{{}}}}';;
    *'"session/new"'*) answer '{{"sessionId":"s1"}}';;
    *'"session/prompt"'*)
      n=$((n + 1))
      {more}
      answer '{{"stopReason":"end_turn"}}'
      {{ [ "$quits" = yes ] && exit 0; }} 2>/dev/null;;
  esac
done"#
    );
    let fixture = with_program(&program, "");
    let config = fixture.home().join(".config/windlass/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(config, text.replace("\"cli\"", "\"acp\"")).unwrap();
    fixture
}

#[test]
fn an_agent_is_paused_during_the_checks_and_continues_in_the_same_process() {
    // The agent writes continuously: if it ran during the checks, they would judge another tree than the one that lands.
    let more = "[ $n = 1 ] && (while :; do date +%N > beat.txt; done) & echo $n > try$n.txt";
    let fixture = acp_agent(more);
    let check = "cp beat.txt /tmp/b1 && seq 1 20000 | sort -R > /dev/null && cmp beat.txt /tmp/b1 && test -f try2.txt";
    let output = run(&fixture, &["--validate", check]);
    assert_eq!(output.code, 0, "{}", output.err);
    // A second process would count from one again.
    assert_eq!(fixture.read("try2.txt"), "2\n");
    let log = fixture.log();
    let sessions: Vec<&serde_json::Value> = log
        .iter()
        .filter(|event| event["kind"] == "iteration_started")
        .map(|event| &event["data"]["foreign_session"])
        .collect();
    assert_eq!(sessions, ["own:s1", "own:s1"]);
}

#[test]
fn an_agent_that_exited_before_the_next_iteration_is_restarted() {
    let more = "quits=yes; [ -f try1.txt ] && n=2; echo $n > try$n.txt";
    let fixture = acp_agent(more);
    let output = run(&fixture, &["--validate", "test -f try2.txt"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(fixture.read("try2.txt"), "2\n");
}

#[test]
fn no_process_of_a_paused_agent_outlives_the_run() {
    let seconds = 90_000 + std::process::id() % 9_000;
    // It answers once the background program is running.
    let more = format!(
        "sleep {seconds} & while ! grep -q sleep /proc/$!/cmdline; do :; done; echo $n > try.txt"
    );
    let sleeps = |text: &str| {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter(|entry| {
                let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&words).contains(text)
            })
            .count()
    };
    let words = format!("sleep\0{seconds}");
    // The agent is paused during the check; then the run times out.
    let fixture = acp_agent(&more);
    let output = run(&fixture, &["--validate", "sleep 60", "--max-seconds", "3"]);
    assert_eq!(output.code, 124, "{}", output.err);
    assert_eq!(sleeps(&words), 0);
    // The same if windlass itself is killed.
    let fixture = acp_agent(&more);
    let mut command = fixture.command(&[
        "run",
        "--runtime",
        "own",
        "-m",
        "anthropic/some-model",
        "go",
        "--validate",
        "sleep 61.7",
    ]);
    command.env("ANTHROPIC_API_KEY", "a-key");
    let mut windlass = command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_until(|| sleeps("sleep\x0061.7") > 0);
    assert_eq!(sleeps(&words), 1, "the agent is there, stopped");
    windlass.kill().unwrap();
    windlass.wait().unwrap();
    wait_until(|| sleeps(&words) == 0);
    // The same after the last iteration, if the checks never pass.
    let fixture = acp_agent(&more);
    let output = run(&fixture, &["--validate", "false", "--max-iterations", "2"]);
    assert_ne!(output.code, 0, "{}", output.err);
    assert_eq!(sleeps(&words), 0);
}

fn wait_until(what: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if what() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it did not come to be");
}

#[test]
fn unreported_changes_of_the_agent_are_counted_in_the_copy() {
    let program =
        "printf 'a\\nb\\n' > new.txt\necho two > a.txt\nhead -c 9 /dev/zero > zeros\necho done";
    let fixture = with_program(program, "");
    let output = run(&fixture, &[]);
    assert_eq!(output.code, 0, "{}", output.err);
    let told: Vec<String> = fixture
        .log()
        .iter()
        .filter(|event| event["kind"] == "file_changed")
        .map(|event| {
            let data = &event["data"];
            assert_eq!(data["call"], Value::Null, "no call explains it: {event}");
            format!("{} +{} -{}", data["path"], data["added"], data["removed"])
        })
        .collect();
    // A binary file has no line counts.
    let expect = [
        "\"a.txt\" +1 -1",
        "\"new.txt\" +2 -0",
        "\"zeros\" +null -null",
    ];
    assert_eq!(told, expect);
}

#[test]
fn an_error_after_initialize_shows_the_stderr_of_the_agent() {
    let fixture = acp_agent("true");
    let program = fixture.home().join("bin/agent");
    let text = std::fs::read_to_string(&program).unwrap();
    let failing = "*'\"session/new\"'*) echo 'no licence file in HOME' >&2; \
         echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"error\\\":{\\\"code\\\":-32603,\\\"message\\\":\\\"internal\\\"}}\";;\n    *'\"session/old\"'*)";
    std::fs::write(&program, text.replace("*'\"session/new\"'*)", failing)).unwrap();
    let output = run(&fixture, &[]);
    assert_eq!(output.code, 1, "{}", output.err);
    assert!(
        output.err.contains("no licence file in HOME"),
        "{}",
        output.err
    );
}

#[test]
fn settings_define_masked_directories_and_instruction_files_of_an_agent() {
    let program = "cat > prompt.txt\ncat .tool/steer.md > seen.txt 2>/dev/null\necho done";
    let settings = "masked_dirs = [\".tool\"]\ninstruction_files = [\"AGENTS.md\"]";
    for (settings, masked) in [("", false), (settings, true)] {
        let fixture = with_program(program, settings);
        fixture.write(".tool/steer.md", "be wild\n");
        fixture.write("AGENTS.md", "always use tabs\n");
        let output = run(&fixture, &[]);
        assert_eq!(output.code, 0, "{}", output.err);
        assert_eq!(fixture.read("seen.txt").is_empty(), masked);
        assert_eq!(
            !fixture.read("prompt.txt").contains("always use tabs"),
            masked
        );
    }
}

#[test]
fn files_in_masked_directories_of_an_agent_do_not_land() {
    let program = "mkdir -p .own-agent && echo state > .own-agent/history\n\
                   cat .own-agent/kept 2>/dev/null || echo hidden > seen.txt\n\
                   echo two > a.txt\necho all is well";
    let fixture = with_program(program, "masked_dirs = [\".own-agent\"]");
    fixture.write(".own-agent/kept", "mine\n");
    let output = run(&fixture, &[]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(fixture.read("a.txt"), "two\n");
    assert_eq!(fixture.read("seen.txt"), "hidden\n");
    let state = fixture.work().join(".own-agent/history");
    assert!(!state.exists(), "the state landed");
    assert_eq!(fixture.read(".own-agent/kept"), "mine\n");
}

#[test]
fn new_state_directories_of_an_agent_do_not_land() {
    let program = "mkdir -p .own .memory .other\necho 1 | tee .own/s .memory/s .other/s > a.txt";
    let fixture = with_program(program, "state_dirs = [\".memory\"]");
    let landed = || {
        let output = run(&fixture, &[]);
        assert_eq!(output.code, 0, "{}", output.err);
        let mut log = fixture.log();
        let landed = log.iter_mut().rfind(|event| event["kind"] == "landed");
        let data = landed.unwrap()["data"].take();
        (data["files"].clone(), data["left"].clone())
    };
    let expect = (json!([".other/s", "a.txt"]), json!([".memory/", ".own/"]));
    assert_eq!(landed(), expect);
    assert!(!fixture.work().join(".own").exists());

    // A directory that the project already has is the user's.
    fixture.write(".own/mine", "x\n");
    assert_eq!(landed().0, json!([".own/s"]));
}

#[test]
fn a_path_directory_hidden_by_the_sandbox_is_reported() {
    let fixture = with_program("echo two > a.txt\necho all is well", "");
    let tools = fixture.home().join("tools");
    std::fs::create_dir_all(&tools).unwrap();
    let tools = tools.display().to_string();
    let set =
        |key: &str, value: &str| assert_eq!(fixture.run(&["config", "set", key, value]).code, 0);
    set("runtimes.own.env.PATH", &format!("{tools}:/usr/bin:/bin"));
    let output = run(&fixture, &[]);
    assert_eq!(output.code, 0, "{}", output.err);
    let grant = format!("sandbox.read = [\"{tools}\"]");
    assert!(output.err.contains(&grant), "{}", output.err);
    assert_eq!(
        output.err.matches("sandbox hides").count(),
        1,
        "{}",
        output.err
    );
    set("sandbox.read", &tools);
    let output = run(&fixture, &[]);
    assert!(!output.err.contains("sandbox hides"), "{}", output.err);
}
