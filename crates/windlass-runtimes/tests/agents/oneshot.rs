//! Programs that handle one prompt and exit: recorded outputs, and invalid behaviour.

use parking_lot::Mutex;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use windlass_core::BoxFuture;
use windlass_core::enclosure::{AgentProcess, Launch, ProcessHandle};
use windlass_core::runtime::Stop;
use windlass_core::workspace::{ProcessEnd, ProcessError};
use windlass_runtimes::agent::Metering;
use windlass_runtimes::oneshot::OneShot;
use windlass_runtimes::oneshot::options::CliOptions;

use crate::harness::{AgentHarness, NoRequests};
use crate::script::{PeerStep, recording};

const OPENCODE: &str = include_str!("../fixtures/oneshot/opencode-run.jsonl");
const OPENCODE_REJECTED: &str = include_str!("../fixtures/oneshot/opencode-run-rejected.jsonl");
const CODEX: &str = include_str!("../fixtures/oneshot/codex-exec.jsonl");
const CODEX_FAIL: &str = include_str!("../fixtures/oneshot/codex-exec-fail.jsonl");
const GEMINI: &str = include_str!("../fixtures/oneshot/gemini-stream-json.jsonl");
const CLAUDE: &str = include_str!("../fixtures/claude-denied.jsonl");

fn agent(more: Value) -> OneShot {
    let mut options = json!({ "name": "own", "command": ["/bin/own"], "model": "m" });
    for (key, value) in more.as_object().unwrap() {
        options[key] = value.clone();
    }
    let options: CliOptions = serde_json::from_value(options).unwrap();
    options.program().and_then(OneShot::new).unwrap()
}

fn lines(fields: &Value) -> Value {
    json!({ "output": "jsonl", "fields": fields })
}

fn opencode() -> Value {
    json!({
        "text": "type=text:part.text", "session": "sessionID", "error": "type=error:error",
        "tool": "type=tool_use:part.tool", "tool_id": "part.callID", "tool_input": "part.state.input",
        "result": "part.state.output | part.state.error",
        "input_tokens": "part.tokens.input", "cached_tokens": "part.tokens.cache.read",
        "output_tokens": "part.tokens.output", "cost_usd": "part.cost",
    })
}

fn codex() -> Value {
    json!({
        "text": "item.type=agent_message:item.text", "session": "thread_id",
        "tool": "type=item.started:item.type", "tool_id": "item.id", "tool_input": "item.command | item.changes",
        "result": "type=item.completed:item.aggregated_output | type=item.completed:item.status",
        "total_input_tokens": "usage.input_tokens", "cached_tokens": "usage.cached_input_tokens",
        "output_tokens": "usage.output_tokens", "error": "type=turn.failed:error.message | type=error:message",
    })
}

fn play(text: &str) -> Vec<PeerStep> {
    // Lines in the other direction belong to another protocol.
    recording(text)
        .into_iter()
        .filter(|step| !matches!(step, PeerStep::Expect(_)))
        .collect()
}

fn run(harness: &AgentHarness, agent: OneShot) -> Stop {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(harness.run(agent, "do it"))
}

/// Plays the output of a program and compares the logged lines, without deltas.
#[track_caller]
fn check(text: &str, exit: i32, options: Value, expect: (&str, &[&str])) {
    let harness = AgentHarness::scripted(vec![(play(text), exit)]);
    let stop = run(&harness, agent(options));
    assert_eq!(format!("{stop:?}"), expect.0);
    let lines: Vec<String> = harness
        .lines()
        .into_iter()
        .filter(|line| !line.starts_with("delta "))
        .collect();
    assert_eq!(lines, expect.1, "{lines:#?}");
}

#[test]
fn the_output_of_opencode_run_is_parsed() {
    check(
        OPENCODE,
        0,
        lines(&opencode()),
        (
            "Done",
            &[
                "began own:ses_e232ee95fffeFrBhQbx1a74g07",
                r#"said <call_fake0037 bash {"command":"echo hi > out.txt && cat out.txt","description":"run it"}>"#,
                "observed call_fake0037 bash",
                "reported call_fake0037 bash: hi\n",
                r#"said <call_fake0039 write {"filePath":"/workspace/n3.txt","content":"hello"}>"#,
                "observed call_fake0039 write",
                "reported call_fake0039 write: Wrote file successfully.",
                "said Done. The fake model says hello.",
                "spent 600+3000+0 in, 60 out by m",
            ],
        ),
    );
    let rejected = AgentHarness::scripted(vec![(play(OPENCODE_REJECTED), 0)]);
    assert_eq!(run(&rejected, agent(lines(&opencode()))), Stop::Done);
    let reported = rejected
        .lines()
        .into_iter()
        .find(|line| line.starts_with("reported "))
        .unwrap();
    assert!(reported.contains("rejected"), "{reported}");
}

#[test]
fn the_output_of_codex_exec_is_parsed() {
    check(
        CODEX,
        0,
        lines(&codex()),
        (
            "Done",
            &[
                "began own:01a1dccb-ade1-79a0-a75a-94f49d050578",
                r#"said <item_0 command_execution "/bin/bash -lc 'echo hi > out.txt && cat out.txt'">"#,
                "observed item_0 command_execution",
                "reported item_0 command_execution: hi\n",
                r#"said <item_1 command_execution "/bin/bash -lc 'ls /nonexistent'">"#,
                "observed item_1 command_execution",
                "reported item_1 command_execution: ls: cannot access '/nonexistent': No such file or directory\n",
                r#"said <item_2 file_change [{"path":"/workspace/new.txt","kind":"add"}]>"#,
                "observed item_2 file_change",
                "reported item_2 file_change: completed",
                "said Done. The fake model says hello.",
                "spent 800+4000+0 in, 120 out by m",
            ],
        ),
    );
    let said = "We’re currently experiencing high demand, which may cause temporary errors.";
    let began = "began own:01a1dccb-b52a-7931-8566-748dfd3910d7";
    let failed = |detail: &str| format!("Failed {{ reason: Runtime, detail: {detail:?} }}");
    check(
        CODEX_FAIL,
        0,
        lines(&codex()),
        (&failed(&format!("the program reports: {said}")), &[began]),
    );
    check(
        CODEX_FAIL,
        1,
        lines(&codex()),
        (
            &failed(&format!(
                "the program ended with exit code 1; it reports: {said}"
            )),
            &[began],
        ),
    );
    // Text after an error clears it.
    let recovered = format!(
        "{}\n{}",
        CODEX_FAIL.lines().take(3).collect::<Vec<_>>().join("\n"),
        CODEX
    );
    let harness = AgentHarness::scripted(vec![(play(&recovered), 0)]);
    assert_eq!(run(&harness, agent(lines(&codex()))), Stop::Done);
}

#[test]
fn pieces_of_gemini_are_joined() {
    let fields = json!({
        "delta": "type=message,role=assistant:content", "session": "session_id",
        "tool": "type=tool_use:tool_name", "tool_id": "tool_id", "tool_input": "parameters",
        "result": "type=tool_result:output | type=tool_result:status",
        "total_input_tokens": "stats.input_tokens", "cached_tokens": "stats.cached",
        "output_tokens": "stats.output_tokens",
    });
    let text = GEMINI.replace("Done. The fake model says hello.", "Done. ");
    let mut all: Vec<&str> = text.lines().collect();
    let piece = r#"{"type":"message","role":"assistant","content":"The end.","delta":true}"#;
    all.insert(all.len() - 1, piece);
    let harness = AgentHarness::scripted(vec![(play(&all.join("\n")), 0)]);
    assert_eq!(run(&harness, agent(lines(&fields))), Stop::Done);
    let lines = harness.lines();
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.starts_with("reported "))
            .count(),
        2,
        "{lines:#?}"
    );
    let end: Vec<&str> = lines.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(
        end,
        ["spent 600+3000+0 in, 90 out by m", "said Done. The end."]
    );
}

#[test]
fn lists_of_claude_are_traversed() {
    let fields = json!({
        "text": "type=assistant:message.content.text", "session": "session_id",
        "tool": "type=assistant:message.content.name", "tool_id": "message.content.id",
        "tool_input": "type=assistant:message.content.input",
        "result": "type=user:message.content.content", "result_id": "message.content.tool_use_id",
        "input_tokens": "type=result:usage.input_tokens", "cached_tokens": "type=result:usage.cache_read_input_tokens",
        "output_tokens": "type=result:usage.output_tokens", "cost_usd": "type=result:total_cost_usd",
        "error": "is_error=true:result",
    });
    let harness = AgentHarness::scripted(vec![(play(CLAUDE), 0)]);
    assert_eq!(run(&harness, agent(lines(&fields))), Stop::Done);
    let lines = harness.lines();
    let has = |what: &str| {
        assert!(
            lines.iter().any(|line| line.contains(what)),
            "{what}: {lines:#?}"
        )
    };
    has("began own:479ec4b6-5cbf-415e-ac06-812cba84b3ad");
    has(r#"said <toolu_fake0017 Bash {"command":"touch denied.txt","description":"run it"}>"#);
    has("reported toolu_fake0017 Bash: touch in");
    has("said Done. The fake model says hello.");
    has("spent 2400+2000+0 in, 60 out by m");
}

#[test]
fn other_lines_and_calls_without_results_are_harmless() {
    let text = "starting up…\n{\"say\":\"one\"}\n[1,2]\n\n{\"tool\":\"look\"}\n{\"say\":{\"not\":\"text\"}}\n{broken\n{\"say\":\"two\"}";
    let fields = json!({ "text": "say", "tool": "tool" });
    check(
        text,
        0,
        lines(&fields),
        (
            "Done",
            &[
                "began ",
                "said one",
                "said <call-1 look null>",
                "observed call-1 look",
                "reported call-1 look: (the program reports no results)",
                "said two",
                "warned unread_lines: 2 lines of the program were not JSON or too long; they were ignored",
            ],
        ),
    );
}

#[test]
fn plain_text_is_the_answer_and_its_end_explains_a_failure() {
    let failed = |detail: &str| format!("Failed {{ reason: Runtime, detail: {detail:?} }}");
    let words = "  first\n\u{1b}[32mdone\u{1b}[0m";
    check(
        words,
        0,
        json!({}),
        ("Done", &["began ", "said first\ndone"]),
    );
    check("", 0, json!({}), ("Done", &["began "]));
    let last = "the program ended with exit code 3; end of its output: first\ndone";
    check(words, 3, json!({}), (&failed(last), &["began "]));
    let harness = AgentHarness::scripted(vec![(
        vec![PeerStep::WriteStderr("no such model\n".into())],
        1,
    )]);
    let stop = run(&harness, agent(json!({})));
    let why = "the program ended with exit code 1; end of its standard error: no such model";
    assert_eq!(format!("{stop:?}"), failed(why));
}

/// A program that records its input and exits, or prints without an end.
struct InputRecorder {
    input: Arc<Mutex<String>>,
    endless: bool,
}

struct TaskHandle(tokio::task::JoinHandle<()>);

impl ProcessHandle for TaskHandle {
    fn wait(&mut self) -> BoxFuture<'_, Result<ProcessEnd, ProcessError>> {
        Box::pin(async move {
            let ended = (&mut self.0).await;
            ended
                .map(|()| ProcessEnd::Exited { code: 0 })
                .map_err(|_| ProcessError("it was killed".into()))
        })
    }
    fn terminate(&self) {}
    fn kill(&self) {
        self.0.abort();
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl InputRecorder {
    fn start(&self) -> AgentProcess {
        let (stdin, mut hears) = tokio::io::duplex(4_096);
        let (stdout, mut says) = tokio::io::duplex(1 << 20);
        let (stderr, _complains) = tokio::io::duplex(64);
        let (input, endless) = (self.input.clone(), self.endless);
        let task = tokio::spawn(async move {
            let mut text = String::new();
            let _ = hears.read_to_string(&mut text).await;
            *input.lock() = text;
            let line = format!("{}\n", "x".repeat(100_000));
            while endless && says.write_all(line.as_bytes()).await.is_ok() {}
        });
        AgentProcess {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            handle: Box::new(TaskHandle(task)),
        }
    }
}

fn recording_harness(endless: bool) -> (AgentHarness, Arc<Mutex<String>>) {
    let input: Arc<Mutex<String>> = Arc::default();
    let program = InputRecorder {
        input: input.clone(),
        endless,
    };
    let mut harness = AgentHarness::new(Arc::default(), move |_: &Launch| program.start());
    harness.metering = Metering::Wire(Arc::new(NoRequests));
    (harness, input)
}

/// Checks the place of the prompt: its standard input, its arguments, and the files in its home.
#[track_caller]
fn check_prompt(options: Value, has: impl Fn(&str, &[String], &[(String, Vec<u8>)]) -> bool) {
    let (harness, input) = recording_harness(false);
    assert_eq!(run(&harness, agent(options)), Stop::Done);
    let launch = harness.launches.lock().pop().unwrap();
    let put = harness.put.lock().clone();
    let input = input.lock().clone();
    assert!(
        has(&input, &launch.argv, &put),
        "{input:?} {:?} {put:?}",
        launch.argv
    );
    let variable = |name: &str| {
        launch
            .env
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, text)| text.as_str())
    };
    assert_eq!(
        variable("OPENAI_BASE_URL"),
        Some("http://127.0.0.1:8080/v1")
    );
    assert_eq!(variable("ANTHROPIC_API_KEY"), Some("placeholder"));
}

#[test]
fn the_prompt_is_passed_in_one_way() {
    const TASK: &str = "The task:\ndo it";
    check_prompt(json!({}), |input, argv, put| {
        input.ends_with(TASK)
            && input.starts_with("You work without")
            && argv == ["/bin/own"]
            && put.is_empty()
    });
    check_prompt(
        json!({ "args": ["-m", "{model}", "--say={prompt}"] }),
        |input, argv, put| {
            let has_prompt =
                argv[3].starts_with("--say=You work without") && argv[3].ends_with(TASK);
            input.is_empty() && has_prompt && argv[..3] == ["/bin/own", "-m", "m"] && put.is_empty()
        },
    );
    let file = json!({ "args": ["{prompt_file}"], "home_files": { "conf": "key = {key}" } });
    check_prompt(file, |input, argv, put| {
        let text = |path: &str| {
            put.iter()
                .find(|(at, _)| at == path)
                .map(|(_, text)| String::from_utf8_lossy(text))
        };
        input.is_empty()
            && argv == ["/bin/own", "/home/agent/.windlass/prompt.md"]
            && text(".windlass/prompt.md").is_some_and(|text| text.ends_with(TASK))
            && text("conf").is_some_and(|text| text == "key = placeholder")
    });
}

#[test]
fn an_endless_output_is_stopped() {
    let (harness, _) = recording_harness(true);
    let stop = run(&harness, agent(json!({})));
    let why = "the program printed more than 64 MiB and was stopped";
    assert_eq!(
        format!("{stop:?}"),
        format!("Failed {{ reason: Runtime, detail: {why:?} }}")
    );
}

#[test]
fn a_cancel_ends_a_program() {
    for steps in [
        vec![PeerStep::Write("{\"say\":\"one\"}".into()), PeerStep::Hang],
        play("{\"say\":\"one\"}"),
    ] {
        let mut harness = AgentHarness::scripted(vec![(steps, 0)]);
        harness.cancel_at = Some("said one");
        assert_eq!(
            run(&harness, agent(lines(&json!({ "text": "say" })))),
            Stop::Cancelled
        );
    }
}

#[test]
fn a_conversation_is_resumed_or_replaced_with_a_warning() {
    let options = || {
        let fields = json!({ "text": "say", "session": "id" });
        json!({ "output": "jsonl", "fields": fields, "args": ["{prompt}"], "resume_args": ["--resume", "{session}"] })
    };
    let done = || play("{\"id\":\"s2\",\"say\":\"done\"}");
    let mut harness = AgentHarness::scripted(vec![(done(), 0)]);
    harness.session = Some("own:s1".into());
    assert_eq!(run(&harness, agent(options())), Stop::Done);
    let argv = harness.launches.lock().pop().unwrap().argv;
    assert_eq!(argv, ["/bin/own", "do it", "--resume", "s1"]);
    let mut harness = AgentHarness::scripted(vec![
        (vec![PeerStep::WriteStderr("no such session".into())], 1),
        (done(), 0),
    ]);
    harness.session = Some("own:s1".into());
    assert_eq!(run(&harness, agent(options())), Stop::Done);
    let argv = harness.launches.lock().pop().unwrap().argv;
    assert!(
        argv.len() == 2 && argv[1].starts_with("You work without"),
        "{argv:?}"
    );
    let lines = harness.lines();
    assert!(
        lines[0].starts_with("warned session_lost: own could not resume"),
        "{lines:#?}"
    );
    assert_eq!(
        lines[1..],
        [
            "began own:s2".to_owned(),
            "delta done\n".to_owned(),
            "said done".to_owned()
        ]
    );
}
