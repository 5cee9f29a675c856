//! A real agent without windlass around it: the same program, settings and protocol, and a loop that says yes to whatever
//! it asks. It is what the envelope is measured against, so it does as little as it can.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command};
use std::time::Duration;

use serde_json::{Value, json};

use crate::child::{self, Child, Watch};
use crate::facts::Bare;
use crate::place::{KEY, Place};
use crate::product::PROMPT;
use crate::runtime::Runtime;
use windlass_scripted::Server;

/// Time for one run.
const DEADLINE: Duration = Duration::from_secs(120);
/// Tools that windlass takes from Claude Code: with others its requests would be longer.
const USELESS: &str = "AskUserQuestion,EnterPlanMode,ExitPlanMode,EnterWorktree,ExitWorktree,CronCreate,CronDelete,\
                       CronList,ScheduleWakeup";
/// The longest line that is read.
const MAX_LINE: u64 = 64 << 20;

/// Runs the agent on the prompt of the kit to the end of its answer.
pub(crate) fn run(runtime: &Runtime, place: &Place, server: &Server) -> Result<Child, String> {
    let mut command = match runtime.facts.bare {
        Bare::ClaudeCode => claude_command(runtime, place, server)?,
        Bare::Codex => codex_command(place, server)?,
        Bare::Acp => acp_command(runtime, place, server),
        Bare::No => return Err(format!("there is no bare form of `{runtime}` here")),
    };
    of_place(&mut command, place);
    let watch = Watch {
        deadline: DEADLINE,
        interrupt: None,
    };
    let ran = child::talk(command, &watch, |input, out| {
        let mut talk = Talk {
            input,
            out: BufReader::new(out),
            asked: 0,
        };
        match runtime.facts.bare {
            Bare::ClaudeCode => claude(&mut talk),
            Bare::Codex => codex(&mut talk, runtime, place),
            _ => acp(&mut talk, place),
        }
    })?;
    crate::holds(!ran.overdue, || {
        format!("`{runtime}` alone was not done after {DEADLINE:?}")
    })?;
    Ok(ran)
}

/// Lets a command run in a place, with its home and this machine's programs.
pub(super) fn of_place(command: &mut Command, place: &Place) {
    command
        .current_dir(place.work())
        .env("HOME", place.at("home"))
        .env("LANG", "C.UTF-8")
        .env("TERM", "dumb");
    command.env(
        "PATH",
        std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()),
    );
}

/// Lines both ways.
struct Talk<'a> {
    input: ChildStdin,
    out: BufReader<&'a mut ChildStdout>,
    /// Our requests so far.
    asked: u64,
}

impl Talk<'_> {
    fn say(&mut self, line: &Value) -> Result<(), String> {
        let line = format!("{line}\n");
        self.input
            .write_all(line.as_bytes())
            .map_err(|err| format!("it takes nothing: {err}"))
    }

    /// The next line that is JSON; an error at the end.
    fn hear(&mut self) -> Result<Value, String> {
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
                Err(err) => return Err(format!("it cannot be read: {err}")),
            }
            if let Ok(value) = serde_json::from_slice(&line) {
                return Ok(value);
            }
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<(), String> {
        self.asked += 1;
        self.say(&json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params }))
    }

    /// Asks, and answers whatever is asked meanwhile; what came of it.
    fn wait(
        &mut self,
        method: &str,
        params: Value,
        answer: fn(&str, &Value) -> Option<Value>,
    ) -> Result<Value, String> {
        self.ask(method, params)?;
        loop {
            let line = self.hear()?;
            let asked = line["method"].as_str();
            match (asked, line.get("id")) {
                (Some(asked), Some(id)) => self.reply(id, answer(asked, &line["params"]))?,
                (None, Some(id)) if *id == self.asked => {
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
        self.say(&match answer {
            Some(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            None => json!({ "jsonrpc": "2.0", "id": id, "error": unknown }),
        })
    }
}

/// A file in the agent's home.
pub(super) fn put(place: &Place, path: &str, text: &str) -> Result<(), String> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    std::fs::create_dir_all(place.at(folder)).map_err(|err| format!("{folder}: {err}"))?;
    place.write(path, text)
}

/// The model without its vendor.
pub(super) fn model(runtime: &Runtime) -> Option<&str> {
    runtime
        .model
        .as_deref()
        .map(|model| model.split_once('/').map_or(model, |(_, model)| model))
}

fn claude_command(runtime: &Runtime, place: &Place, server: &Server) -> Result<Command, String> {
    put(place, "home/.kit/mcp.json", r#"{"mcpServers":{}}"#)?;
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
    command.arg(place.at("home/.kit/mcp.json"));
    command.args([
        "--setting-sources",
        "",
        "--settings",
        r#"{"disableAllHooks":true}"#,
        "--add-dir",
        ".",
    ]);
    command.args(["--disallowedTools", USELESS]);
    command.args(
        model(runtime)
            .into_iter()
            .flat_map(|model| ["--model", model]),
    );
    command
        .env("ANTHROPIC_BASE_URL", &server.url)
        .env("ANTHROPIC_API_KEY", KEY);
    command.env("CLAUDE_CONFIG_DIR", place.at("home/.claude"));
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

fn claude(talk: &mut Talk<'_>) -> Result<(), String> {
    let hook = json!({ "hookCallbackIds": ["kit"], "timeout": 600 });
    let hello = json!({ "subtype": "initialize", "hooks": { "PreToolUse": [hook] } });
    talk.say(&json!({ "type": "control_request", "request_id": "kit-1", "request": hello }))?;
    loop {
        let line = talk.hear()?;
        match line["type"].as_str().unwrap_or_default() {
            "control_response" => {
                let message = json!({ "role": "user", "content": PROMPT });
                let line = json!({ "type": "user", "message": message, "parent_tool_use_id": null, "session_id": "" });
                talk.say(&line)?;
            }
            "control_request" => {
                let request = &line["request"];
                let answer = match request["subtype"].as_str() {
                    Some("hook_callback") => json!({ "hookSpecificOutput": {
                        "hookEventName": "PreToolUse",
                        "permissionDecision": "allow",
                        "permissionDecisionReason": "the kit says yes",
                    } }),
                    _ => json!({ "behavior": "allow", "updatedInput": request["input"] }),
                };
                let response = json!({ "subtype": "success", "request_id": line["request_id"], "response": answer });
                talk.say(&json!({ "type": "control_response", "response": response }))?;
            }
            "result" if line["is_error"] == false => return Ok(()),
            "result" => return Err(format!("it failed: {}", line["result"])),
            _ => {}
        }
    }
}

/// Puts the settings of Codex into its home.
pub(super) fn codex_config(place: &Place, server: &Server) -> Result<(), String> {
    let url = json!(format!("{}/v1", server.url));
    let text = format!(
        "check_for_update_on_startup = false\nmodel_provider = \"kit\"\n\n[analytics]\nenabled = false\n\n\
         [model_providers.kit]\nname = \"kit\"\nbase_url = {url}\nwire_api = \"responses\"\nenv_key = \"KIT_KEY\"\n\
         requires_openai_auth = false\nrequest_max_retries = 1\nstream_max_retries = 1\nsupports_websockets = false\n"
    );
    put(place, "home/.codex/config.toml", &text)
}

fn codex_command(place: &Place, server: &Server) -> Result<Command, String> {
    codex_config(place, server)?;
    let mut command = Command::new("codex");
    command
        .env_clear()
        .arg("app-server")
        .env("CODEX_HOME", place.at("home/.codex"))
        .env("KIT_KEY", KEY);
    Ok(command)
}

fn codex(talk: &mut Talk<'_>, runtime: &Runtime, place: &Place) -> Result<(), String> {
    let yes = |_: &str, _: &Value| Some(json!({ "decision": "accept" }));
    let client = json!({ "name": "kit", "title": "Kit", "version": env!("CARGO_PKG_VERSION") });
    talk.wait(
        "initialize",
        json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } }),
        yes,
    )?;
    talk.say(&json!({ "method": "initialized" }))?;
    let thread = json!({
        "cwd": place.work(), "approvalPolicy": "untrusted", "approvalsReviewer": "user",
        "sandbox": "danger-full-access", "model": model(runtime), "modelProvider": "kit", "dynamicTools": [],
    });
    let begun = talk.wait("thread/start", thread, yes)?;
    let thread = begun["thread"]["id"].clone();
    talk.ask(
        "turn/start",
        json!({ "threadId": thread, "input": [{ "type": "text", "text": PROMPT }] }),
    )?;
    loop {
        let line = talk.hear()?;
        match (line["method"].as_str(), line.get("id")) {
            (Some(_), Some(id)) => talk.reply(id, Some(json!({ "decision": "accept" })))?,
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

fn acp_command(runtime: &Runtime, place: &Place, server: &Server) -> Command {
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
            "instructions": [format!("{}/AGENTS.md", place.work().display())], "provider": { "kit": provider },
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

fn acp(talk: &mut Talk<'_>, place: &Place) -> Result<(), String> {
    let can = json!({ "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false });
    talk.wait(
        "initialize",
        json!({ "protocolVersion": 1, "clientCapabilities": can }),
        permit,
    )?;
    let session = talk.wait(
        "session/new",
        json!({ "cwd": place.work(), "mcpServers": [] }),
        permit,
    )?;
    let prompt = json!({ "sessionId": session["sessionId"], "prompt": [{ "type": "text", "text": PROMPT }] });
    let end = talk.wait("session/prompt", prompt, permit)?;
    crate::holds(end["stopReason"] == "end_turn", || {
        format!("it ended with {end}")
    })
}

/// Yes, once, by the kind of the option.
fn permit(method: &str, params: &Value) -> Option<Value> {
    let options = params["options"]
        .as_array()
        .filter(|_| method == "session/request_permission")?;
    let once = options
        .iter()
        .find(|option| option["kind"] == "allow_once")?;
    Some(json!({ "outcome": { "outcome": "selected", "optionId": once["optionId"] } }))
}
