//! The honest agent: a small loop over Anthropic's messages protocol with four tools, which asks before each call if
//! the host can answer. With it the kit runs without foreign agents, by ACP and as a one-shot program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::host::Host;
use crate::model_endpoint::ModelEndpoint;

/// The maximum number of model requests in one turn, and of retries of a failed request.
const STEPS: usize = 60;
const RETRIES: usize = 2;
/// The maximum size of a command's output for the model, in bytes.
const OUTPUT: usize = 20_000;

/// Works until the model ends its turn. `session` identifies the conversation. Returns the stop reason.
pub(crate) fn work(
    host: &mut dyn Host,
    session: &str,
    folder: &str,
    prompt: &str,
) -> Result<&'static str, String> {
    let endpoint = ModelEndpoint::find().ok_or("no model: ANTHROPIC_BASE_URL is not set")?;
    let file = conversation_file(session);
    let mut messages: Vec<Value> = load_conversation(&file);
    messages.push(json!({ "role": "user", "content": prompt }));
    let stop = steps(host, &endpoint, folder, &mut messages);
    let _ = std::fs::write(&file, json!(messages).to_string());
    stop
}

fn steps(
    host: &mut dyn Host,
    endpoint: &ModelEndpoint,
    folder: &str,
    messages: &mut Vec<Value>,
) -> Result<&'static str, String> {
    for _ in 0..STEPS {
        if host.cancelled() {
            return Ok("cancelled");
        }
        let answer = request(host, endpoint, messages)?;
        let Some(answer) = answer else {
            return Ok("cancelled");
        };
        messages.push(json!({ "role": "assistant", "content": answer["content"] }));
        let blocks = answer["content"].as_array().cloned().unwrap_or_default();
        for text in blocks.iter().filter_map(|block| block["text"].as_str()) {
            host.say(text);
        }
        if answer["stop_reason"] == "refusal" {
            return Ok("refusal");
        }
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        let results: Vec<Value> = calls.map(|block| call(host, folder, block)).collect();
        if results.is_empty() {
            return Ok("end_turn");
        }
        messages.push(json!({ "role": "user", "content": results }));
    }
    Ok("max_turn_requests")
}

/// Sends a model request on a separate thread, so that a cancel interrupts it. Returns `None` after a cancel.
fn request(
    host: &dyn Host,
    endpoint: &ModelEndpoint,
    messages: &[Value],
) -> Result<Option<Value>, String> {
    let path = |more: Value| {
        let mut properties = json!({ "path": { "type": "string" } });
        if let (Some(all), Some(more)) = (properties.as_object_mut(), more.as_object()) {
            all.extend(more.clone());
        }
        json!({ "type": "object", "properties": properties, "required": ["path"] })
    };
    let text = json!({ "type": "string" });
    let command =
        json!({ "type": "object", "properties": { "command": text }, "required": ["command"] });
    let body = json!({
        "model": std::env::var("ANTHROPIC_MODEL").unwrap_or_else(|_| "claude-sonnet-5-5".to_owned()),
        "max_tokens": 4096, "messages": messages,
        "tools": [
            { "name": "bash", "description": "Runs a command line.", "input_schema": command },
            { "name": "write_file", "description": "Writes a file.", "input_schema": path(json!({ "content": text })) },
            { "name": "edit_file", "description": "Changes a place.", "input_schema": path(json!({ "old": text, "new": text })) },
            { "name": "delete_file", "description": "Removes a file.", "input_schema": path(json!({})) },
        ],
    });
    std::thread::scope(|scope| {
        let request = scope.spawn(|| {
            let mut last = (0, Value::Null);
            for _ in 0..=RETRIES {
                last = endpoint.send(&body).unwrap_or((0, Value::Null));
                if last.0 < 500 && last.0 != 0 {
                    break;
                }
            }
            last
        });
        while !request.is_finished() {
            if host.cancelled() {
                // The request is still open; the client ends it when it stops the agent.
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        match request.join() {
            Ok((200, answer)) => Ok(Some(answer)),
            Ok((status, answer)) => Err(format!(
                "the model answered {status}: {}",
                answer["error"]["message"]
            )),
            Err(_) => Err("the model request panicked".to_owned()),
        }
    })
}

fn call(host: &mut dyn Host, folder: &str, block: &Value) -> Value {
    let (name, input) = (block["name"].as_str().unwrap_or_default(), &block["input"]);
    let kind = match name {
        "bash" => "execute",
        "write_file" | "edit_file" => "edit",
        "delete_file" => "delete",
        _ => "other",
    };
    let title = input["command"]
        .as_str()
        .or(input["path"].as_str())
        .unwrap_or(name);
    let path = input["path"]
        .as_str()
        .map(|path| Path::new(folder).join(path));
    let locations: Vec<Value> = path.iter().map(|path| json!({ "path": path })).collect();
    let mut update = json!({
        "toolCallId": block["id"], "name": name, "title": title, "kind": kind, "status": "pending", "rawInput": input, "locations": locations,
    });
    if let (Some(path), Some(text)) = (&path, input["content"].as_str().or(input["new"].as_str())) {
        update["content"] =
            json!([{ "type": "diff", "path": path, "oldText": input["old"], "newText": text }]);
    }
    let mut begun = update.clone();
    begun["sessionUpdate"] = json!("tool_call");
    host.update(&begun);
    let done = match kind {
        "other" => Err(format!("unknown tool `{name}`")),
        _ if !host.may(&update) => Err("this call was rejected".to_owned()),
        _ => act(host, name, input, path.as_deref(), folder),
    };
    let (status, text) = match &done {
        Ok(text) => ("completed", text),
        Err(text) => ("failed", text),
    };
    let content = json!([{ "type": "content", "content": { "type": "text", "text": text } }]);
    host.update(&json!({
        "sessionUpdate": "tool_call_update", "toolCallId": block["id"], "status": status, "content": content,
        "rawOutput": { "output": text },
    }));
    json!({ "type": "tool_result", "tool_use_id": block["id"], "content": text, "is_error": done.is_err() })
}

fn act(
    host: &dyn Host,
    name: &str,
    input: &Value,
    path: Option<&Path>,
    folder: &str,
) -> Result<String, String> {
    if name == "bash" {
        return command(host, input["command"].as_str().unwrap_or_default(), folder);
    }
    let path = path.ok_or("the path is missing")?;
    let cannot = |err: std::io::Error| format!("{}: {err}", path.display());
    let text = |name: &str| input[name].as_str().unwrap_or_default();
    match name {
        "write_file" => {
            path.parent()
                .map_or(Ok(()), std::fs::create_dir_all)
                .map_err(cannot)?;
            std::fs::write(path, text("content")).map_err(cannot)?;
        }
        "edit_file" => {
            let before = std::fs::read_to_string(path).map_err(cannot)?;
            let once = before.matches(text("old")).count() == 1;
            let after = once.then(|| before.replacen(text("old"), text("new"), 1));
            std::fs::write(path, after.ok_or("the old text must occur exactly once")?)
                .map_err(cannot)?;
        }
        _ => std::fs::remove_file(path).map_err(cannot)?,
    }
    Ok("done".to_owned())
}

fn command(host: &dyn Host, line: &str, folder: &str) -> Result<String, String> {
    let mut command = Command::new("bash");
    command
        .args(["-c", line])
        .current_dir(folder)
        .stdin(Stdio::null());
    let output = output_file(folder)?;
    let (out, err) = (
        output.0.try_clone().map_err(|err| err.to_string())?,
        output.0,
    );
    let mut child = command
        .stdout(out)
        .stderr(err)
        .spawn()
        .map_err(|err| format!("bash: {err}"))?;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if host.cancelled() => {
                let _ = child.kill();
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(err) => return Err(err.to_string()),
        }
    };
    let mut text = vec![0; OUTPUT];
    let read = std::fs::File::open(&output.1)
        .and_then(|mut file| std::io::Read::read(&mut file, &mut text));
    let _ = std::fs::remove_file(&output.1);
    text.truncate(read.unwrap_or(0));
    let text = String::from_utf8_lossy(&text).into_owned();
    if status.success() {
        Ok(text)
    } else {
        Err(format!("{status}\n{text}"))
    }
}

/// Creates a file for a command's output in the temporary directory. A pipe would block when it is full.
fn output_file(folder: &str) -> Result<(std::fs::File, PathBuf), String> {
    let at = std::env::temp_dir();
    let at = if at.is_dir() {
        at
    } else {
        PathBuf::from(folder)
    };
    let path = at.join(format!("kit-output-{}", std::process::id()));
    let file = std::fs::File::create(&path).map_err(|err| format!("{}: {err}", path.display()))?;
    Ok((file, path))
}

/// Returns the file in the agent's home that stores the conversation between prompts.
fn conversation_file(session: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
    home.join(format!(".windlass-hostile-agent-{session}.json"))
}

fn load_conversation(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    serde_json::from_str::<Value>(&text)
        .ok()
        .and_then(|value| value.as_array().cloned())
        .unwrap_or_default()
}
