//! Runs a real agent without windlass: the same program, settings and protocol, with a loop that allows every call.
//! This is the baseline for the overhead of the envelope, so it does as little as possible.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command};
use std::time::Duration;

use serde_json::{Value, json};

use crate::child::{self, ChildRun, WatchOptions};
use crate::facts::BareProtocol;
use crate::product::PROMPT;
use crate::runtime::KitRuntime;
use crate::scratch_dir::{KEY, ScratchDir};
use windlass_scripted::Server;

/// The time limit of one run.
const DEADLINE: Duration = Duration::from_secs(120);
/// Tools that windlass disables in Claude Code. They are disabled here as well, so that the requests have equal sizes.
const DISABLED_TOOLS: &str = "AskUserQuestion,EnterPlanMode,ExitPlanMode,EnterWorktree,ExitWorktree,CronCreate,CronDelete,\
                       CronList,ScheduleWakeup";
/// The maximum length of a line, in bytes.
const MAX_LINE: u64 = 64 << 20;

/// Runs the agent on the kit's prompt until the end of its answer.
pub(crate) fn run(
    runtime: &KitRuntime,
    scratch: &ScratchDir,
    server: &Server,
) -> Result<ChildRun, String> {
    let mut command = match runtime.facts.bare {
        BareProtocol::ClaudeCode => claude_command(runtime, scratch, server)?,
        BareProtocol::Codex => codex_command(scratch, server)?,
        BareProtocol::Acp => acp_command(runtime, scratch, server),
        BareProtocol::None => return Err(format!("the kit has no bare protocol for `{runtime}`")),
    };
    set_environment(&mut command, scratch);
    let watch = WatchOptions {
        deadline: DEADLINE,
        interrupt: None,
    };
    let ran = child::talk(command, &watch, |input, out| {
        let mut dialogue = BareDialogue {
            input,
            out: BufReader::new(out),
            last_id: 0,
        };
        match runtime.facts.bare {
            BareProtocol::ClaudeCode => claude(&mut dialogue),
            BareProtocol::Codex => codex(&mut dialogue, runtime, scratch),
            _ => acp(&mut dialogue, scratch),
        }
    })?;
    crate::holds(!ran.overdue, || {
        format!("`{runtime}` without windlass did not finish within {DEADLINE:?}")
    })?;
    Ok(ran)
}

/// Sets the working directory, the home and the `PATH` of a command.
pub(super) fn set_environment(command: &mut Command, scratch: &ScratchDir) {
    command
        .current_dir(scratch.work())
        .env("HOME", scratch.at("home"))
        .env("LANG", "C.UTF-8")
        .env("TERM", "dumb");
    command.env(
        "PATH",
        std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()),
    );
}

/// An exchange of JSON lines with an agent.
struct BareDialogue<'a> {
    input: ChildStdin,
    out: BufReader<&'a mut ChildStdout>,
    /// The id of the last request.
    last_id: u64,
}

impl BareDialogue<'_> {
    fn send(&mut self, line: &Value) -> Result<(), String> {
        let line = format!("{line}\n");
        self.input
            .write_all(line.as_bytes())
            .map_err(|err| format!("cannot write to its stdin: {err}"))
    }

    /// Returns the next line that is JSON, or an error at the end.
    fn receive(&mut self) -> Result<Value, String> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = self
                .out
                .by_ref()
                .take(MAX_LINE)
                .read_until(b'\n', &mut line);
            match read {
                Ok(0) => return Err("it ended without an answer".to_owned()),
                Ok(_) => {}
                Err(err) => return Err(format!("cannot read its stdout: {err}")),
            }
            if let Ok(value) = serde_json::from_slice(&line) {
                return Ok(value);
            }
        }
    }

    fn request(&mut self, method: &str, params: Value) -> Result<(), String> {
        self.last_id += 1;
        self.send(
            &json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params }),
        )
    }

    /// Sends a request, answers the agent's requests meanwhile, and returns the result.
    fn call(
        &mut self,
        method: &str,
        params: Value,
        answer: fn(&str, &Value) -> Option<Value>,
    ) -> Result<Value, String> {
        self.request(method, params)?;
        loop {
            let line = self.receive()?;
            let requested = line["method"].as_str();
            match (requested, line.get("id")) {
                (Some(requested), Some(id)) => {
                    self.reply(id, answer(requested, &line["params"]))?
                }
                (None, Some(id)) if *id == self.last_id => {
                    let error = line.get("error").filter(|error| !error.is_null());
                    return error.map_or_else(
                        || Ok(line["result"].clone()),
                        |error| Err(format!("{method}: {error}")),
                    );
                }
                _ => {}
            }
        }
    }

    fn reply(&mut self, id: &Value, answer: Option<Value>) -> Result<(), String> {
        let unknown = json!({ "code": -32601, "message": "method not found" });
        self.send(&match answer {
            Some(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            None => json!({ "jsonrpc": "2.0", "id": id, "error": unknown }),
        })
    }
}

/// Writes a file and creates its directory.
pub(super) fn write_file(scratch: &ScratchDir, path: &str, text: &str) -> Result<(), String> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    std::fs::create_dir_all(scratch.at(folder)).map_err(|err| format!("{folder}: {err}"))?;
    scratch.write(path, text)
}

/// Returns the name of the model without its vendor.
pub(super) fn model(runtime: &KitRuntime) -> Option<&str> {
    runtime
        .model
        .as_deref()
        .map(|model| model.split_once('/').map_or(model, |(_, model)| model))
}

fn claude_command(
    runtime: &KitRuntime,
    scratch: &ScratchDir,
    server: &Server,
) -> Result<Command, String> {
    write_file(scratch, "home/.kit/mcp.json", r#"{"mcpServers":{}}"#)?;
    let mut command = Command::new("claude");
    command
        .env_clear()
        .args(["-p", "--verbose", "--include-partial-messages"]);
    command.args([
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
    ]);
    command.args([
        "--permission-prompt-tool",
        "stdio",
        "--strict-mcp-config",
        "--mcp-config",
    ]);
    command.arg(scratch.at("home/.kit/mcp.json"));
    command.args([
        "--setting-sources",
        "",
        "--settings",
        r#"{"disableAllHooks":true}"#,
        "--add-dir",
        ".",
    ]);
    command.args(["--disallowedTools", DISABLED_TOOLS]);
    command.args(
        model(runtime)
            .into_iter()
            .flat_map(|model| ["--model", model]),
    );
    command
        .env("ANTHROPIC_BASE_URL", &server.url)
        .env("ANTHROPIC_API_KEY", KEY);
    command.env("CLAUDE_CONFIG_DIR", scratch.at("home/.claude"));
    for name in [
        "CLAUDE_CODE_MAX_RETRIES",
        "DISABLE_TELEMETRY",
        "DISABLE_AUTOUPDATER",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
    ] {
        command.env(name, "1");
    }
    Ok(command)
}

fn claude(dialogue: &mut BareDialogue<'_>) -> Result<(), String> {
    let hook = json!({ "hookCallbackIds": ["kit"], "timeout": 600 });
    let hello = json!({ "subtype": "initialize", "hooks": { "PreToolUse": [hook] } });
    dialogue
        .send(&json!({ "type": "control_request", "request_id": "kit-1", "request": hello }))?;
    loop {
        let line = dialogue.receive()?;
        match line["type"].as_str().unwrap_or_default() {
            "control_response" => {
                let message = json!({ "role": "user", "content": PROMPT });
                let line = json!({ "type": "user", "message": message, "parent_tool_use_id": null, "session_id": "" });
                dialogue.send(&line)?;
            }
            "control_request" => {
                let request = &line["request"];
                let answer = match request["subtype"].as_str() {
                    Some("hook_callback") => json!({ "hookSpecificOutput": {
                        "hookEventName": "PreToolUse",
                        "permissionDecision": "allow",
                        "permissionDecisionReason": "the kit allows every call",
                    } }),
                    _ => json!({ "behavior": "allow", "updatedInput": request["input"] }),
                };
                let response = json!({ "subtype": "success", "request_id": line["request_id"], "response": answer });
                dialogue.send(&json!({ "type": "control_response", "response": response }))?;
            }
            "result" if line["is_error"] == false => return Ok(()),
            "result" => return Err(format!("it failed: {}", line["result"])),
            _ => {}
        }
    }
}

/// Writes the settings of Codex.
pub(super) fn codex_config(scratch: &ScratchDir, server: &Server) -> Result<(), String> {
    let url = json!(format!("{}/v1", server.url));
    let text = format!(
        "check_for_update_on_startup = false\nmodel_provider = \"kit\"\n\n[analytics]\nenabled = false\n\n\
         [model_providers.kit]\nname = \"kit\"\nbase_url = {url}\nwire_api = \"responses\"\nenv_key = \"KIT_KEY\"\n\
         requires_openai_auth = false\nrequest_max_retries = 1\nstream_max_retries = 1\nsupports_websockets = false\n"
    );
    write_file(scratch, "home/.codex/config.toml", &text)
}

fn codex_command(scratch: &ScratchDir, server: &Server) -> Result<Command, String> {
    codex_config(scratch, server)?;
    let mut command = Command::new("codex");
    command
        .env_clear()
        .arg("app-server")
        .env("CODEX_HOME", scratch.at("home/.codex"))
        .env("KIT_KEY", KEY);
    Ok(command)
}

fn codex(
    dialogue: &mut BareDialogue<'_>,
    runtime: &KitRuntime,
    scratch: &ScratchDir,
) -> Result<(), String> {
    let yes = |_: &str, _: &Value| Some(json!({ "decision": "accept" }));
    let client = json!({ "name": "kit", "title": "Kit", "version": env!("CARGO_PKG_VERSION") });
    dialogue.call(
        "initialize",
        json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } }),
        yes,
    )?;
    dialogue.send(&json!({ "method": "initialized" }))?;
    let thread = json!({
        "cwd": scratch.work(), "approvalPolicy": "untrusted", "approvalsReviewer": "user",
        "sandbox": "danger-full-access", "model": model(runtime), "modelProvider": "kit", "dynamicTools": [],
    });
    let begun = dialogue.call("thread/start", thread, yes)?;
    let thread = begun["thread"]["id"].clone();
    dialogue.request(
        "turn/start",
        json!({ "threadId": thread, "input": [{ "type": "text", "text": PROMPT }] }),
    )?;
    loop {
        let line = dialogue.receive()?;
        match (line["method"].as_str(), line.get("id")) {
            (Some(_), Some(id)) => dialogue.reply(id, Some(json!({ "decision": "accept" })))?,
            (Some("turn/completed"), None) => {
                let turn = &line["params"]["turn"];
                return crate::holds(turn["status"] == "completed", || {
                    format!("it failed: {turn}")
                });
            }
            _ => {}
        }
    }
}

fn acp_command(runtime: &KitRuntime, scratch: &ScratchDir, server: &Server) -> Command {
    let url = &server.url;
    let Some(line) = runtime.name.strip_prefix("acp:") else {
        let model = model(runtime).unwrap_or_default();
        let provider = json!({
            "npm": "@ai-sdk/anthropic", "name": "kit", "models": { model: { "name": model } },
            "options": { "baseURL": format!("{url}/v1"), "apiKey": KEY },
        });
        let config = json!({
            "model": format!("kit/{model}"), "small_model": format!("kit/{model}"), "enabled_providers": ["kit"],
            "share": "disabled", "autoupdate": false, "snapshot": false, "permission": { "*": "ask" },
            "instructions": [format!("{}/AGENTS.md", scratch.work().display())], "provider": { "kit": provider },
        });
        let mut command = Command::new("opencode");
        command
            .env_clear()
            .arg("acp")
            .env("OPENCODE_CONFIG_CONTENT", config.to_string());
        command.env("OPENCODE_PERMISSION", r#"{"*":"ask"}"#);
        for name in [
            "AUTOUPDATE",
            "MODELS_FETCH",
            "LSP_DOWNLOAD",
            "DEFAULT_PLUGINS",
            "PROJECT_CONFIG",
        ] {
            command.env(format!("OPENCODE_DISABLE_{name}"), "1");
        }
        return command;
    };
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.env_clear().args(words);
    command
        .env("ANTHROPIC_BASE_URL", url)
        .env("ANTHROPIC_API_KEY", KEY);
    command
        .env("OPENAI_BASE_URL", format!("{url}/v1"))
        .env("OPENAI_API_KEY", KEY);
    command
        .env("GOOGLE_GEMINI_BASE_URL", url)
        .env("GEMINI_API_KEY", KEY);
    command
}

fn acp(dialogue: &mut BareDialogue<'_>, scratch: &ScratchDir) -> Result<(), String> {
    let can = json!({ "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false });
    dialogue.call(
        "initialize",
        json!({ "protocolVersion": 1, "clientCapabilities": can }),
        permit,
    )?;
    let session = dialogue.call(
        "session/new",
        json!({ "cwd": scratch.work(), "mcpServers": [] }),
        permit,
    )?;
    let prompt = json!({ "sessionId": session["sessionId"], "prompt": [{ "type": "text", "text": PROMPT }] });
    let end = dialogue.call("session/prompt", prompt, permit)?;
    crate::holds(end["stopReason"] == "end_turn", || {
        format!("it ended with {end}")
    })
}

/// Answers a permission request with the option that allows the call once.
fn permit(method: &str, params: &Value) -> Option<Value> {
    let options = params["options"]
        .as_array()
        .filter(|_| method == "session/request_permission")?;
    let once = options
        .iter()
        .find(|option| option["kind"] == "allow_once")?;
    Some(json!({ "outcome": { "outcome": "selected", "optionId": once["optionId"] } }))
}
