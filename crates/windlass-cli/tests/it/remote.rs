//! `run --server` and `attach` with a real server and a model server on loopback.

use std::process::{Child, Stdio};

use serde_json::Value;
use windlass_scripted::{Act, ByteServer, http};

use crate::cli_fixture::{CliFixture, CliOutput};
use crate::exit_codes::wait_until;
use crate::model_server::{events, serve};
use crate::terminal::PtySession;

const MODEL: [&str; 3] = ["--in-place", "-m", "openai-chat/some-model"];

/// `windlass serve` with a model server.
pub(crate) struct TestServer {
    pub(crate) fixture: CliFixture,
    child: Child,
    url: String,
}

impl TestServer {
    pub(crate) fn start(model_url: &str, config: &str) -> Self {
        let fixture = CliFixture::new();
        let dir = fixture.home().join(".config/windlass");
        std::fs::create_dir_all(&dir).unwrap();
        let provider = format!("{config}\n[providers.openai-chat]\nbase_url = \"{model_url}\"\n");
        std::fs::write(dir.join("config.toml"), provider).unwrap();
        let child = fixture
            .command(&["serve", "--port", "0"])
            .env("OPENAI_API_KEY", "sk-secret-1234567890")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = fixture
            .home()
            .join(".local/share/windlass/server/address.json");
        let read = || {
            let text = std::fs::read_to_string(&address).ok()?;
            serde_json::from_str::<Value>(&text).ok()
        };
        wait_until(|| read().is_some());
        let url = read().unwrap()["url"].as_str().unwrap().to_owned();
        Self {
            fixture,
            child,
            url,
        }
    }

    /// The arguments of `run --server`.
    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["run", "--server", &self.url], &MODEL, more].concat()
    }

    pub(crate) fn run(&self, more: &[&str]) -> CliOutput {
        self.fixture.run(&self.args(more))
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn says(text: &str) -> String {
    events(&[
        &format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#),
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":7}}"#,
        "[DONE]",
    ])
}

fn asks(question: &str) -> String {
    events(&[
        &format!(
            r#"{{"choices":[{{"index":0,"delta":{{"role":"assistant","tool_calls":[{{"index":0,"id":"t1","function":{{"name":"ask_user","arguments":"{{\"question\":\"{question}\"}}"}}}}]}}}}]}}"#
        ),
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}"#,
        "[DONE]",
    ])
}

#[test]
fn a_run_on_a_server_prints_what_a_local_run_prints_and_notifies() {
    let model = serve(vec![says("hello there")]);
    let hook = ByteServer::start(|_, _| vec![Act::Say(http::whole(204, "", ""))]).unwrap();
    let config = format!(
        "[webhooks.ci]\nurl = \"{}/\"\nallow_private = true\n",
        hook.url
    );
    let server = TestServer::start(&model.url, &config);
    let output = server.run(&["--json", "greet me"]);
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    let result: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(
        (&result["text"], &result["status"]),
        (&"hello there".into(), &"completed".into())
    );
    let session = result["session"].as_str().unwrap();
    wait_until(|| !hook.requests().is_empty());
    let body = hook.requests()[0].clone();
    let (_, body) = body.split_once("\r\n\r\n").unwrap();
    let note: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        (&note["kind"], &note["session"]),
        (&"run_finished".into(), &session.into())
    );
    let attached = [
        vec!["attach", "--json"],
        vec!["attach", session, "--json"],
        vec!["attach", &server.url, session, "--json"],
    ];
    for args in attached {
        let again = server.fixture.run(&args);
        assert_eq!(again.code, 0, "{args:?}: {}", again.err);
        let again: Value = serde_json::from_str(&again.out).unwrap();
        assert_eq!(again["text"], "hello there");
    }
    let stream = server
        .fixture
        .run(&["attach", session, "-o", "stream-json"]);
    let seqs: Vec<u64> = stream
        .out
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64())
        .collect();
    let log = server.fixture.log_of(session);
    assert_eq!(seqs, (1..=log.len() as u64).collect::<Vec<_>>());
}

#[test]
fn wrong_tokens_sessions_and_flags_are_errors() {
    let model = serve(Vec::new());
    let server = TestServer::start(&model.url, "");
    let check = |output: CliOutput, expect: &str| {
        assert_eq!(output.code, 2, "{}", output.err);
        assert!(output.err.contains(expect), "{}", output.err);
    };
    check(
        server.run(&["--script", "x.toml", "go"]),
        "`--script` is not available",
    );
    check(server.run(&["--yes", "go"]), "`--yes` is not available");
    check(
        server.fixture.run(&["attach", "no-such-session"]),
        "there is no session",
    );
    check(
        server.fixture.run(&["attach"]),
        "the server has no sessions",
    );
    let mut command = server.fixture.command(&["attach"]);
    command.env("WINDLASS_TOKEN", "wrong");
    check(server.fixture.run_with(command, ""), "token");
    let other = CliFixture::new();
    check(other.run(&["attach"]), "no server of yours runs");
    check(other.run(&["attach", &server.url]), "needs a token");
    let token = server
        .fixture
        .home()
        .join(".local/share/windlass/server/token");
    let file = token.display().to_string();
    check(
        other.run(&["attach", &server.url, "--token-file", &file]),
        "the server has no sessions",
    );
    assert_eq!(model.connections(), 0);
}

#[test]
fn a_run_that_asks_in_a_pipe_is_answered_later_at_a_terminal() {
    let model = serve(vec![asks("red?"), says("red it is")]);
    let server = TestServer::start(&model.url, "");
    let output = server.run(&["go"]);
    assert_eq!(output.code, 5, "{}\n{}", output.out, output.err);
    let ask: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(ask["about"]["text"], "red?", "{ask}");
    assert!(output.err.contains("windlass attach"), "{}", output.err);
    let mut terminal = PtySession::start_dumb(&server.fixture, &["attach"]);
    terminal.expect("red?");
    terminal.expect("> ");
    terminal.type_in("certainly\r");
    terminal.expect("red it is");
    terminal.ends_with(0);
    let log = server.fixture.log();
    let answered = log.iter().find(|event| event["kind"] == "answered");
    assert_eq!(answered.unwrap()["data"]["answer"]["text"], "certainly");
}

#[test]
fn ctrl_c_detaches_and_cancel_ends_the_run() {
    let model = ByteServer::saying(vec![Act::Hang]).unwrap();
    let server = TestServer::start(&model.url, "");
    let mut terminal = PtySession::start(&server.fixture, &server.args(&["go"]));
    wait_until(|| !model.requests().is_empty());
    terminal.expect("step 1");
    terminal.type_in("\u{3}");
    terminal.expect("detached");
    terminal.ends_with(130);
    let mut terminal = PtySession::start_dumb(&server.fixture, &["attach"]);
    terminal.expect("running");
    terminal.type_in("/cancel\r");
    terminal.expect("cancelled");
    terminal.ends_with(130);
    let log = server.fixture.log();
    let last = log
        .iter()
        .rev()
        .find(|event| event["kind"] == "run_finished");
    assert_eq!(last.unwrap()["data"]["outcome"]["is"], "cancelled");
}
