//! Runs the real binary with its own home and workspace, and checks its output line by line.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::checks::LiveProtocol;
use super::server::LiveServer;
use crate::process::{Running, last_lines};

/// All tools but one are denied, so that the schema of the model's answers allows only reading and answering.
const CONFIG: &str = r#"temperature = 0
max_output = 256
max_steps = 6
max_seconds = 120
models.smol.tools = false
rules.deny = [
    "write_file", "edit_file", "edit_lines", "apply_patch", "delete_file", "move_file", "list_directory", "find_files",
    "grep", "bash", "git_status", "git_diff", "notes", "ask_user", "calculator",
]
"#;

/// The content of the file that the model reads.
pub(super) const NOTE: &str = "The magic word is pomegranate.";

/// A home and a workspace in which sessions run.
pub(super) struct LiveRunner {
    program: PathBuf,
    dir: TempDir,
}

/// A session that is running.
pub(super) struct LiveSession {
    pub(super) process: Running,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// A session that ended.
pub(super) struct EndedSession {
    pub(super) code: i32,
    /// The events on standard output, in order.
    pub(super) events: Vec<Value>,
}

impl LiveRunner {
    pub(super) fn new(program: &Path) -> Result<Self> {
        let dir = tempfile::tempdir().context("no temporary directory")?;
        let runner = Self {
            program: program.to_owned(),
            dir,
        };
        for (path, text) in [
            ("home/.config/windlass/config.toml", CONFIG),
            ("work/note.txt", NOTE),
        ] {
            let path = runner.dir.path().join(path);
            let parent = path.parent().context("a file has a directory")?;
            std::fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))?;
            std::fs::write(&path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(runner)
    }

    /// Starts a session; `settings` are environment variables.
    pub(super) fn start(
        &self,
        server: &LiveServer,
        wire: &LiveProtocol,
        prompt: &str,
        settings: &[(&str, &str)],
        name: &str,
    ) -> Result<LiveSession> {
        let file = |kind: &str| self.dir.path().join(format!("{name}.{kind}"));
        let (stdout, stderr) = (file("out"), file("err"));
        let mut command = Command::new(&self.program);
        // The user's own environment is removed: no keys, no proxies, no settings.
        command
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command
            .env("HOME", self.dir.path().join("home"))
            .env("OPENAI_API_KEY", "none-is-needed");
        command
            .envs(settings.iter().copied())
            .current_dir(self.dir.path().join("work"));
        command.args([
            "run",
            "--in-place",
            "-o",
            "stream-json",
            "-m",
            &format!("{}/smol", wire.vendor),
        ]);
        command.args(["--base-url", &server.url(wire.base), prompt]);
        Ok(LiveSession {
            process: Running::start(&mut command, &stdout, &stderr)?,
            stdout,
            stderr,
        })
    }

    /// Returns the events in the log of a session.
    pub(super) fn log(&self, session: &str) -> Result<Vec<Value>> {
        let path = self
            .dir
            .path()
            .join("home/.local/share/windlass/sessions")
            .join(session)
            .join("events.jsonl");
        read(&path)
    }
}

impl LiveSession {
    /// Waits for its end and reads its output.
    pub(super) fn end(mut self, most: Duration) -> Result<EndedSession> {
        let status = self.process.wait(most)?;
        let code = status
            .code()
            .with_context(|| format!("it was killed ({status})"))?;
        let events = read(&self.stdout)?;
        check_events(&events)
            .with_context(|| format!("exit code {code}; {}", last_lines(&self.stderr)))?;
        Ok(EndedSession { code, events })
    }

    /// Returns whether text of an answer has arrived.
    pub(super) fn has_text(&self) -> bool {
        let text = std::fs::read_to_string(&self.stdout).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .any(|event| is(&event, "delta"))
    }
}

impl EndedSession {
    /// Returns the id of the session.
    pub(super) fn session(&self) -> &str {
        self.events
            .first()
            .and_then(|event| event["session"].as_str())
            .unwrap_or_default()
    }

    /// Returns the name of the outcome, as in the event log.
    pub(super) fn outcome(&self) -> &str {
        self.finish()["outcome"]["is"].as_str().unwrap_or_default()
    }

    /// Returns the detail of the outcome.
    pub(super) fn detail(&self) -> &str {
        self.finish()["outcome"]["detail"]
            .as_str()
            .unwrap_or_default()
    }

    /// Returns whether a tool returned a result that contains this text.
    pub(super) fn has_result(&self, tool: &str, text: &str) -> bool {
        let results = self
            .events
            .iter()
            .filter(|event| is(event, "call_finished"))
            .map(|event| &event["data"]["result"]);
        results.into_iter().any(|result| {
            result["name"] == tool
                && result["error"].is_null()
                && result["text"].as_str().is_some_and(|t| t.contains(text))
        })
    }

    fn finish(&self) -> &Value {
        self.events
            .last()
            .map_or(&Value::Null, |event| &event["data"])
    }
}

fn is(event: &Value, kind: &str) -> bool {
    event["kind"] == kind
}

fn read(path: &Path) -> Result<Vec<Value>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let parse = |(at, line)| {
        serde_json::from_str(line).with_context(|| format!("line {} is not JSON: {line}", at + 1))
    };
    text.lines().enumerate().map(parse).collect()
}

/// Checks that every event is complete, that the durable ones are numbered without a gap, and that the last one ends
/// the run.
pub(super) fn check_events(events: &[Value]) -> Result<()> {
    let mut last = 0;
    for event in events {
        let texts = ["at", "session", "trace", "kind"]
            .iter()
            .all(|field| event[*field].is_string());
        ensure!(texts && event["v"] == 2, "an event lacks a field: {event}");
        match event["seq"].as_u64() {
            Some(seq) => {
                ensure!(seq == last + 1, "event {seq} follows event {last}");
                last = seq;
            }
            None => ensure!(
                event["after"] == last && event["n"].is_u64(),
                "an event has no place: {event}"
            ),
        }
    }
    ensure!(
        events.last().is_some_and(|event| is(event, "run_finished")),
        "the last event does not end the run"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &str, expect: &str) {
        let event = |line: &str| {
            let (order, kind) = line.split_once(' ').unwrap_or_default();
            let order = order.split_once('+').map_or_else(
                || format!(r#""seq":{order}"#),
                |(after, n)| format!(r#""after":{after},"n":{n}"#),
            );
            let text =
                format!(r#"{{"v":2,{order},"at":"t","session":"s","trace":"t","kind":"{kind}"}}"#);
            serde_json::from_str(&text).unwrap_or_default()
        };
        let events: Vec<Value> = lines.split(", ").map(event).collect();
        let said = check_events(&events).map_or_else(|err| err.to_string(), |()| "fine".to_owned());
        assert!(said.contains(expect), "{said}");
    }

    #[test]
    fn events_are_numbered_without_a_gap_and_end_with_the_run() {
        check("1 said, 1+1 delta, 2 run_finished", "fine");
        check("1 said, 3 run_finished", "event 3 follows event 1");
        check("1 said, 2+1 delta, 2 run_finished", "has no place");
        check("1 said", "does not end the run");
        check("", "lacks a field");
    }
}
