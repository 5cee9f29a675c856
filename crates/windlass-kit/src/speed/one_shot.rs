//! A real agent as a user would run it without windlass: its own command for one prompt, with approvals off. What windlass
//! adds to that is the price that a user pays.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::bare::{codex_config, model, of_place, put};
use crate::child::{self, Child, Watch};
use crate::place::{KEY, Place};
use crate::product::PROMPT;
use crate::runtime::Runtime;
use windlass_scripted::Server;

/// Time for one run.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs the agent's own command on the prompt of the kit.
pub(crate) fn run(runtime: &Runtime, place: &Place, server: &Server) -> Result<Child, String> {
    let mut command = match runtime.name.as_str() {
        "claude-code" => claude(runtime, place, server),
        "codex" => codex(runtime, place, server)?,
        "goose" => goose(runtime, place, server)?,
        _ => {
            return Err(format!(
                "the kit knows no command of `{runtime}` for one prompt"
            ));
        }
    };
    of_place(&mut command, place);
    let watch = Watch {
        deadline: DEADLINE,
        interrupt: None,
    };
    let ran = child::run(command, &watch)?;
    crate::holds(!ran.overdue && ran.code == 0, || {
        format!("`{runtime}` alone ended with {}: {}", ran.code, ran.err)
    })?;
    Ok(ran)
}

fn claude(runtime: &Runtime, place: &Place, server: &Server) -> Command {
    let mut command = Command::new("claude");
    command.env_clear().args(["-p", PROMPT]);
    command.args(["--dangerously-skip-permissions", "--output-format", "json"]);
    let model = model(runtime).into_iter();
    command.args(model.flat_map(|model| ["--model", model]));
    command
        .env("ANTHROPIC_BASE_URL", &server.url)
        .env("ANTHROPIC_API_KEY", KEY)
        .env("CLAUDE_CONFIG_DIR", place.at("home/.claude"));
    // Without the first it does not turn its approvals off for root.
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

fn codex(runtime: &Runtime, place: &Place, server: &Server) -> Result<Command, String> {
    codex_config(place, server)?;
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
        .env("CODEX_HOME", place.at("home/.codex"))
        .env("KIT_KEY", KEY);
    Ok(command)
}

fn goose(runtime: &Runtime, place: &Place, server: &Server) -> Result<Command, String> {
    let model = model(runtime).unwrap_or_default();
    let provider = json!({
        "name": "kit", "engine": "anthropic", "display_name": "kit", "description": "", "api_key_env": "KIT_KEY",
        "base_url": server.url, "base_path": "v1/messages", "supports_streaming": true, "dynamic_models": false,
        "models": [{ "name": model, "context_limit": 200_000 }],
    });
    let file = "home/.config/goose/custom_providers/kit.json";
    put(place, file, &provider.to_string())?;
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
