//! Runs a real agent as a user would without windlass: its own command for one prompt, with approvals off. The
//! difference to a run through windlass is the overhead that a user experiences.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::bare::{codex_config, model, set_environment, write_file};
use crate::child::{self, ChildRun, WatchOptions};
use crate::product::PROMPT;
use crate::runtime::KitRuntime;
use crate::scratch_dir::{KEY, ScratchDir};
use windlass_scripted::Server;

/// The time limit of one run.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs the agent's own command with the kit's prompt.
pub(crate) fn run(
    runtime: &KitRuntime,
    scratch: &ScratchDir,
    server: &Server,
) -> Result<ChildRun, String> {
    let mut command = match runtime.name.as_str() {
        "claude-code" => claude(runtime, scratch, server),
        "codex" => codex(runtime, scratch, server)?,
        "goose" => goose(runtime, scratch, server)?,
        _ => {
            return Err(format!("the kit has no one-shot command for `{runtime}`"));
        }
    };
    set_environment(&mut command, scratch);
    let watch = WatchOptions {
        deadline: DEADLINE,
        interrupt: None,
    };
    let ran = child::run(command, &watch)?;
    crate::holds(!ran.overdue && ran.code == 0, || {
        format!(
            "`{runtime}` without windlass exited with {}: {}",
            ran.code, ran.err
        )
    })?;
    Ok(ran)
}

fn claude(runtime: &KitRuntime, scratch: &ScratchDir, server: &Server) -> Command {
    let mut command = Command::new("claude");
    command.env_clear().args(["-p", PROMPT]);
    command.args(["--dangerously-skip-permissions", "--output-format", "json"]);
    let model = model(runtime).into_iter();
    command.args(model.flat_map(|model| ["--model", model]));
    command
        .env("ANTHROPIC_BASE_URL", &server.url)
        .env("ANTHROPIC_API_KEY", KEY)
        .env("CLAUDE_CONFIG_DIR", scratch.at("home/.claude"));
    // Claude Code requires `IS_SANDBOX` to turn approvals off for root.
    for name in [
        "IS_SANDBOX",
        "CLAUDE_CODE_MAX_RETRIES",
        "DISABLE_TELEMETRY",
        "DISABLE_AUTOUPDATER",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
    ] {
        command.env(name, "1");
    }
    command
}

fn codex(runtime: &KitRuntime, scratch: &ScratchDir, server: &Server) -> Result<Command, String> {
    codex_config(scratch, server)?;
    let mut command = Command::new("codex");
    command.env_clear().args([
        "exec",
        "--dangerously-bypass-approvals-and-sandbox",
        "--skip-git-repo-check",
    ]);
    let model = model(runtime).into_iter();
    command.args(model.flat_map(|model| ["-m", model]));
    command
        .arg(PROMPT)
        .env("CODEX_HOME", scratch.at("home/.codex"))
        .env("KIT_KEY", KEY);
    Ok(command)
}

fn goose(runtime: &KitRuntime, scratch: &ScratchDir, server: &Server) -> Result<Command, String> {
    let model = model(runtime).unwrap_or_default();
    let provider = json!({
        "name": "kit", "engine": "anthropic", "display_name": "kit", "description": "", "api_key_env": "KIT_KEY",
        "base_url": server.url, "base_path": "v1/messages", "supports_streaming": true, "dynamic_models": false,
        "models": [{ "name": model, "context_limit": 200_000 }],
    });
    let file = "home/.config/goose/custom_providers/kit.json";
    write_file(scratch, file, &provider.to_string())?;
    let mut command = Command::new("goose");
    command.env_clear().args([
        "run",
        "--no-session",
        "--with-builtin",
        "developer",
        "-t",
        PROMPT,
    ]);
    for (name, value) in [
        ("GOOSE_PROVIDER", "kit"),
        ("GOOSE_MODEL", model),
        ("KIT_KEY", KEY),
        ("GOOSE_MODE", "auto"),
        ("GOOSE_DISABLE_KEYRING", "1"),
        ("GOOSE_TELEMETRY_ENABLED", "false"),
    ] {
        command.env(name, value);
    }
    Ok(command)
}
