//! The checks with a real model. The model is tiny and may wander, so its text is not judged, only the reaction of the
//! program.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::runner::{EndedSession, LiveRunner, NOTE, check_events};
use super::server::LiveServer;
use crate::process::until;

/// A protocol of the server, and the vendor settings that it is used with.
pub(super) struct LiveProtocol {
    pub(super) protocol: &'static str,
    pub(super) vendor: &'static str,
    /// The path after the server's address.
    pub(super) base: &'static str,
}

const CHAT: LiveProtocol = LiveProtocol {
    protocol: "Chat Completions",
    vendor: "llama.cpp",
    base: "/v1",
};
const MESSAGES: LiveProtocol = LiveProtocol {
    protocol: "Messages",
    vendor: "anthropic-compatible",
    base: "",
};
const RESPONSES: LiveProtocol = LiveProtocol {
    protocol: "Responses",
    vendor: "openai",
    base: "/v1",
};

/// All protocols of the server.
pub(super) const PROTOCOLS: &[LiveProtocol] = &[CHAT, MESSAGES, RESPONSES];

/// The format is spelt out, because the server enforces a schema in only one of the three protocols.
const READ: &str = r#"Write {"action": "read_file", "arguments": {"path": "note.txt"}} first. After you see the result, write {"answer": "done"}."#;
const LONG: &str = "Write a very long story about rain, at least one thousand words.";
/// At temperature 0 another attempt gives the same answer; the higher ones let the model vary it.
const TEMPERATURES: &[&str] = &["0", "0.3", "0.6"];
/// The timeout of a run, which ends by itself after 120 s.
const RUN_TIMEOUT: Duration = Duration::from_secs(150);
/// The most time from Ctrl-C to the end of the process.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
const TOGETHER: usize = 4;

/// The model reads a file through the JSON-action loop and finishes.
pub(super) fn round(
    runner: &LiveRunner,
    server: &LiveServer,
    wire: &LiveProtocol,
) -> Result<String> {
    let mut seen = Vec::new();
    let mut wandered = false;
    for temperature in TEMPERATURES {
        let settings = [("WINDLASS_TEMPERATURE", *temperature)];
        let ended = runner
            .start(server, wire, READ, &settings, "round")?
            .end(RUN_TIMEOUT)?;
        let read = ended.has_result("read_file", NOTE);
        match ended.outcome() {
            "completed" if read => {
                ensure!(ended.code == 0, "completed with exit code {}", ended.code);
                return Ok(format!(
                    "read_file, then an answer, at temperature {temperature}"
                ));
            }
            "max_steps" if read => wandered = true,
            _ => {}
        }
        let file = if read {
            "the file was read"
        } else {
            "the file was not read"
        };
        seen.push(format!(
            "{file}, then {}: {}",
            ended.outcome(),
            ended.detail()
        ));
    }
    // The loop worked; the model just did not stop.
    ensure!(wandered, "{} tries: {}", seen.len(), seen.join("; "));
    Ok("read_file, then the step limit".to_owned())
}

/// Ctrl-C during an answer ends the process at once, and the log says so.
pub(super) fn cancel(runner: &LiveRunner, server: &LiveServer) -> Result<String> {
    for temperature in TEMPERATURES {
        let settings = [
            ("WINDLASS_TEMPERATURE", *temperature),
            ("WINDLASS_MAX_OUTPUT", "4096"),
        ];
        let mut session = runner.start(server, &CHAT, LONG, &settings, "cancel")?;
        let spoke = until(RUN_TIMEOUT, || {
            Ok(session.has_text() || session.process.ended()?.is_some())
        })?;
        ensure!(spoke, "no word came within {} s", RUN_TIMEOUT.as_secs());
        if session.process.ended()?.is_some() {
            continue; // the answer was too short; try again
        }
        session.process.interrupt()?;
        let began = Instant::now();
        let ended = session.end(CANCEL_TIMEOUT)?;
        let took = began.elapsed();
        if ended.outcome() == "completed" {
            continue; // the run completed before the signal arrived
        }
        ensure!(
            ended.code == 130 && ended.outcome() == "cancelled",
            "exit code {}, {}: {}",
            ended.code,
            ended.outcome(),
            ended.detail()
        );
        return Ok(format!("exit code 130 after {} ms", took.as_millis()));
    }
    bail!("no answer was long enough to be cancelled")
}

/// A prompt that does not fit is refused, and the error names the context window.
pub(super) fn overflow(
    runner: &LiveRunner,
    server: &LiveServer,
    wire: &LiveProtocol,
    window: u32,
) -> Result<String> {
    let prompt = "the quick brown fox jumps over the lazy dog ".repeat(200);
    let ended = runner
        .start(server, wire, &prompt, &[], "overflow")?
        .end(RUN_TIMEOUT)?;
    let detail = ended.detail();
    ensure!(
        ended.code == 7,
        "exit code {}, {}: {detail}",
        ended.code,
        ended.outcome()
    );
    ensure!(
        detail.starts_with("context_length") && detail.contains(&window.to_string()),
        "it says `{detail}`"
    );
    Ok(format!("refused: {detail}"))
}

/// Sessions in the same workspace and home do not disturb each other.
pub(super) fn four_at_once(runner: &LiveRunner, server: &LiveServer) -> Result<String> {
    let start = |at: usize| runner.start(server, &CHAT, READ, &[], &format!("together-{at}"));
    let sessions = (0..TOGETHER).map(start).collect::<Result<Vec<_>>>()?;
    let ended = sessions
        .into_iter()
        .map(|session| session.end(RUN_TIMEOUT))
        .collect::<Result<Vec<EndedSession>>>()?;
    let mut ids = BTreeSet::new();
    let mut events = 0;
    for ended in &ended {
        let summary = format!(
            "exit code {}, {}: {}",
            ended.code,
            ended.outcome(),
            ended.detail()
        );
        ensure!(matches!(ended.code, 0 | 4), "{summary}");
        let id = ended.session();
        let log = runner.log(id)?;
        check_events(&log).with_context(|| format!("the log of {id}"))?;
        ensure!(
            log.iter().all(|event| event["session"] == id),
            "the log of {id} holds another session's events"
        );
        ensure!(ids.insert(id), "two sessions have the id {id}");
        events += log.len();
    }
    Ok(format!("{} logs with {events} events", ids.len()))
}
