//! What must hold with a real model. The model is tiny and may wander: what it says is not judged, only what the
//! program makes of it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::player::{NOTE, Played, Player, check_events};
use super::server::Server;
use crate::process::until;

/// One protocol that the server speaks, and the vendor whose data it is reached with.
pub(super) struct Wire {
    pub(super) protocol: &'static str,
    pub(super) vendor: &'static str,
    /// What stands behind the server's address.
    pub(super) base: &'static str,
}

const CHAT: Wire = Wire {
    protocol: "Chat Completions",
    vendor: "llama.cpp",
    base: "/v1",
};
const MESSAGES: Wire = Wire {
    protocol: "Messages",
    vendor: "anthropic-compatible",
    base: "",
};
const RESPONSES: Wire = Wire {
    protocol: "Responses",
    vendor: "openai",
    base: "/v1",
};

/// All of them.
pub(super) const WIRES: &[Wire] = &[CHAT, MESSAGES, RESPONSES];

/// Spelt out, because the server holds the model to a schema on one of the three wires only.
const READ: &str = r#"Write {"action": "read_file", "arguments": {"path": "note.txt"}} first. After you see the result, write {"answer": "done"}."#;
const LONG: &str = "Write a very long story about rain, at least one thousand words.";
/// One try is as good as the same each time; the later ones let the model choose other words.
const TEMPERATURES: &[&str] = &["0", "0.3", "0.6"];
/// A run ends itself after 120 s.
const RUN: Duration = Duration::from_secs(150);
/// From Ctrl-C to the end of the process.
const CANCEL: Duration = Duration::from_secs(2);
const TOGETHER: usize = 4;

/// The model reads a file through the JSON-action loop and finishes.
pub(super) fn round(player: &Player, server: &Server, wire: &Wire) -> Result<String> {
    let mut seen = Vec::new();
    let mut wandered = false;
    for temperature in TEMPERATURES {
        let settings = [("WINDLASS_TEMPERATURE", *temperature)];
        let played = player
            .start(server, wire, READ, &settings, "round")?
            .end(RUN)?;
        let read = played.has_result("read_file", NOTE);
        match played.outcome() {
            "completed" if read => {
                ensure!(played.code == 0, "completed with exit code {}", played.code);
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
            played.outcome(),
            played.detail()
        ));
    }
    // The loop did its part; the model did not come to an end.
    ensure!(wandered, "{} tries: {}", seen.len(), seen.join("; "));
    Ok("read_file, then the step limit".to_owned())
}

/// Ctrl-C while words come ends the process at once, and the log says so.
pub(super) fn cancel(player: &Player, server: &Server) -> Result<String> {
    for temperature in TEMPERATURES {
        let settings = [
            ("WINDLASS_TEMPERATURE", *temperature),
            ("WINDLASS_MAX_OUTPUT", "4096"),
        ];
        let mut session = player.start(server, &CHAT, LONG, &settings, "cancel")?;
        let spoke = until(RUN, || {
            Ok(session.speaks() || session.process.ended()?.is_some())
        })?;
        ensure!(spoke, "no word came within {} s", RUN.as_secs());
        if session.process.ended()?.is_some() {
            continue; // shorter than it was asked to be: another try
        }
        session.process.interrupt()?;
        let began = Instant::now();
        let played = session.end(CANCEL)?;
        let took = began.elapsed();
        if played.outcome() == "completed" {
            continue; // it ended in the same moment
        }
        ensure!(
            played.code == 130 && played.outcome() == "cancelled",
            "exit code {}, {}: {}",
            played.code,
            played.outcome(),
            played.detail()
        );
        return Ok(format!("exit code 130 after {} ms", took.as_millis()));
    }
    bail!("no answer was long enough to be cancelled")
}

/// A prompt that does not fit is refused, and the error names the window.
pub(super) fn overflow(
    player: &Player,
    server: &Server,
    wire: &Wire,
    window: u32,
) -> Result<String> {
    let prompt = "the quick brown fox jumps over the lazy dog ".repeat(200);
    let played = player
        .start(server, wire, &prompt, &[], "overflow")?
        .end(RUN)?;
    let detail = played.detail();
    ensure!(
        played.code == 7,
        "exit code {}, {}: {detail}",
        played.code,
        played.outcome()
    );
    ensure!(
        detail.starts_with("context_length") && detail.contains(&window.to_string()),
        "it says `{detail}`"
    );
    Ok(format!("refused: {detail}"))
}

/// Sessions of one workspace and one home do not disturb each other.
pub(super) fn four_at_once(player: &Player, server: &Server) -> Result<String> {
    let start = |at: usize| player.start(server, &CHAT, READ, &[], &format!("together-{at}"));
    let sessions = (0..TOGETHER).map(start).collect::<Result<Vec<_>>>()?;
    let played = sessions
        .into_iter()
        .map(|session| session.end(RUN))
        .collect::<Result<Vec<Played>>>()?;
    let mut ids = BTreeSet::new();
    let mut events = 0;
    for played in &played {
        let ended = format!(
            "exit code {}, {}: {}",
            played.code,
            played.outcome(),
            played.detail()
        );
        ensure!(matches!(played.code, 0 | 4), "{ended}");
        let id = played.session();
        let log = player.log(id)?;
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
