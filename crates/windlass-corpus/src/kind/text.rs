//! Untrusted text on its way to the user: through the views for pipes and for terminals, through questions, and through
//! commands that show a session afterwards.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{calls, served};
use crate::case::{Case, Decision};
use crate::child::{ChildResult, ChildWatch};
use crate::facts::{CaseFacts, Screen};
use crate::product;
use crate::server::{saying, start_server};
use crate::terminal::{self, TerminalSession};

/// Returns the bytes of the case. Placeholders are replaced if it is text.
fn payload(facts: &CaseFacts<'_>) -> Result<Vec<u8>, String> {
    let input = &facts.case.input;
    if input.get("chunks").is_some() {
        return Ok(parts(facts)?.concat());
    }
    match (input["text"].as_str(), input["b64"].as_str()) {
        (Some(text), _) => Ok(facts.fixture.filled(text).into_bytes()),
        (None, Some(coded)) => {
            let bytes = STANDARD
                .decode(coded)
                .map_err(|err| format!("`input.b64`: {err}"))?;
            Ok(match String::from_utf8(bytes) {
                Ok(text) => facts.fixture.filled(&text).into_bytes(),
                Err(raw) => raw.into_bytes(),
            })
        }
        (None, None) => Err("`input` has none of `text`, `b64` and `chunks`".to_owned()),
    }
}

/// Returns the pieces of a text: `chunks`, or the parts of the text between `|` characters.
fn parts(facts: &CaseFacts<'_>) -> Result<Vec<Vec<u8>>, String> {
    let input = &facts.case.input;
    let Some(chunks) = input["chunks"].as_array() else {
        let bytes = payload(facts)?;
        return Ok(bytes
            .split(|byte| *byte == b'|')
            .map(<[u8]>::to_vec)
            .collect());
    };
    let part = |chunk: &Value| match (chunk.as_str(), chunk["b64"].as_str()) {
        (Some(text), _) => Ok(facts.fixture.filled(text).into_bytes()),
        (None, Some(coded)) => STANDARD
            .decode(coded)
            .map_err(|err| format!("`input.chunks`: {err}")),
        (None, None) => Err("a chunk is a text or has `b64`".to_owned()),
    };
    chunks.iter().map(part).collect()
}

/// Returns whether a model server streams the text.
pub(super) fn is_streamed(case: &Case) -> bool {
    case.input["where"] == "model_text_chunks"
}

pub(super) fn feed(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let bytes = payload(facts)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    facts.text.clone_from(&text);
    let fixture = facts.fixture;
    // These cases are about what is shown, not about what may run, so allow the two commands that they use.
    facts
        .product
        .settings(fixture, facts.case, "", &["bash(cat *)", "bash(ls)"])?;
    let bash = |command: &str| calls(&[("bash", json!({ "command": command }))]);
    let read = |path: &str| calls(&[("read_file", json!({ "path": path }))]);
    let mut asks = false;
    let steps = match facts.case.input["where"].as_str().unwrap_or_default() {
        "tool_output" => {
            fixture.write_bytes("payload.txt", &bytes)?;
            vec![bash("cat payload.txt"), read("payload.txt")]
        }
        "tool_output_chunks" => {
            let parts = parts(facts)?;
            for (at, part) in parts.iter().enumerate() {
                fixture.write_bytes(&format!("part-{at}"), part)?;
            }
            // Each file is written separately.
            let names: Vec<String> = (0..parts.len()).map(|at| format!("part-{at}")).collect();
            vec![bash(&format!("cat {}", names.join(" ")))]
        }
        "model_text_chunks" => return show_stream(facts),
        "approval_command" => {
            asks = true;
            vec![bash(&text)]
        }
        "file_content" | "diff" => {
            asks = true;
            fixture.write_bytes("payload.txt", &bytes)?;
            let new = json!({ "path": "shown.txt", "content": text });
            vec![read("payload.txt"), calls(&[("write_file", new)])]
        }
        "file_name" => {
            fixture.write_bytes(&text.replace('/', "_"), b"x\n")?;
            let look = json!({ "pattern": "**/*" });
            vec![
                calls(&[
                    ("find_files", look),
                    ("list_directory", json!({ "path": "." })),
                ]),
                bash("ls"),
            ]
        }
        "tool_arguments" => vec![read(&text)],
        "model_text" | "model_reasoning" => {
            vec![json!({ "reasoning": text, "text": text, "calls": [read_readme()] })]
        }
        other => {
            return Err(format!("`{other}` is not a known source of a text"));
        }
    };
    show(facts, &steps, asks)
}

fn read_readme() -> Value {
    json!({ "name": "read_file", "args": { "path": "README.md" } })
}

/// Shows the script in every view.
fn show(facts: &mut CaseFacts<'_>, steps: &[Value], asks: bool) -> Result<(), String> {
    // Cases that need a question run in mode `ask`; the others must run without one, and reading is allowed in every
    // mode.
    let mode = if asks {
        "ask"
    } else {
        facts.case.mode.as_str()
    }
    .to_owned();
    let (product, fixture) = (facts.product, facts.fixture);
    let script = product::script(fixture, steps)?;
    facts.call = format!("call-{}-1", steps.len());
    let args = product.scripted(&mode, &script, &["-v"]);
    show_run(facts, &mode, &args, asks)
}

/// Shows an answer of a model server that comes in the pieces of the case.
fn show_stream(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let parts = parts(facts)?;
    let texts: Vec<String> = parts
        .into_iter()
        .map(|part| String::from_utf8(part).map_err(|_| "a chunk of text is not UTF-8".to_owned()))
        .collect::<Result<_, _>>()?;
    let server = start_server(move |_, _| saying(&texts))?;
    let mode = facts.case.mode.clone();
    let more = ["--base-url", server.url.as_str(), "-v"];
    let args = served(facts.product, &mode, &more, "go");
    show_run(facts, &mode, &args, false)
}

fn show_run(
    facts: &mut CaseFacts<'_>,
    mode: &str,
    args: &[String],
    asks: bool,
) -> Result<(), String> {
    let (product, fixture) = (facts.product, facts.fixture);
    let piped = product.run(fixture, mode, args, &ChildWatch::default())?;
    facts.events = product::log(fixture);
    facts.reached = reached(facts, &piped, asks);
    let mut seen = |view: &str, text: &str, colour: bool| {
        facts.screens.push(Screen {
            view: view.to_owned(),
            text: text.to_owned(),
            colour,
        });
    };
    seen("standard output", &piped.out, false);
    seen("standard error", &piped.err, false);
    facts.set_checked_run(piped);
    for colour in [false, true] {
        let session = TerminalSession {
            colour,
            answer: "n",
            before_answer: &|| Ok(()),
        };
        let ran = terminal::run(
            product,
            fixture,
            mode,
            args,
            &session,
            &ChildWatch::default(),
        )?;
        let view = if colour {
            "a terminal with colours"
        } else {
            "a terminal"
        };
        facts.screens.push(Screen {
            view: view.to_owned(),
            text: ran.out,
            colour,
        });
    }
    let session = product::sessions(fixture)
        .pop()
        .ok_or("there is no session")?;
    let id = session
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    for words in [&["sessions", "list"] as &[&str], &["sessions", "show", &id]] {
        let args: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let ran = product.run(fixture, mode, &args, &ChildWatch::default())?;
        crate::holds(ran.code == 0, || format!("{words:?}: {}", ran.err.trim()))?;
        facts.screens.push(Screen {
            view: words.join(" "),
            text: ran.out,
            colour: false,
        });
    }
    Ok(())
}

/// Returns whether the text was shown, from the exit code of the run.
fn reached(facts: &CaseFacts<'_>, ran: &ChildResult, asks: bool) -> Vec<Decision> {
    let asked = facts.of("asked").next().is_some();
    match ran.code {
        0 => vec![Decision::Allow],
        product::ASKED if asks && asked => vec![Decision::Allow, Decision::Ask],
        product::ASKED => vec![Decision::Ask],
        _ => vec![Decision::Deny],
    }
}
