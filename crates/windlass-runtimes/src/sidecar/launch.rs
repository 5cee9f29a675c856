//! Assembles the start of a sidecar and the message that starts a turn. This module spawns nothing.

use serde_json::{Value, json};
use windlass_core::enclosure::Launch;
use windlass_core::tool::{Exposure, ToolSpec, Toolbox};
use windlass_providers::protocol::{is_reasoning_model, is_strict};

use super::history;
use super::options::{FIRST, Sdk, SidecarOptions};
use crate::agent::{AgentAttempt, ModelAccess};
use crate::dialect::Dialect;

/// The directory of the Python program, in the agent's home.
const PROGRAM_DIR: &str = ".windlass/sidecar";
/// The files of the Python program.
const PROGRAM: &[(&str, &str)] = &[
    ("__main__.py", include_str!("python/__main__.py")),
    ("host.py", include_str!("python/host.py")),
    ("openai_agents.py", include_str!("python/openai_agents.py")),
    ("google_adk.py", include_str!("python/google_adk.py")),
];
/// Variables that disable the telemetry of the SDKs and their dependencies, and downloads at their start.
const TELEMETRY_OFF: &[(&str, &str)] = &[
    ("OPENAI_AGENTS_DISABLE_TRACING", "1"),
    ("OTEL_SDK_DISABLED", "true"),
    ("LITELLM_MODE", "PRODUCTION"),
    ("LITELLM_TELEMETRY", "False"),
    ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
];
/// Retries by the SDK. The meter retries requests itself.
const RETRIES: u32 = 1;

/// Writes the Python program into the home, and returns the command and environment.
pub(super) fn launch(
    sdk: Sdk,
    options: &SidecarOptions,
    attempt: &AgentAttempt<'_>,
) -> Result<Launch, String> {
    attempt.clear_home(&[PROGRAM_DIR])?;
    for (name, text) in PROGRAM {
        attempt.put_home(&format!("{PROGRAM_DIR}/{name}"), text)?;
    }
    let folder = attempt.in_home(PROGRAM_DIR);
    let mut argv = vec![options.program.clone()];
    // `-I` isolates Python: neither the repository nor a variable influences the imports.
    argv.extend([
        "-I".to_owned(),
        "-B".to_owned(),
        folder,
        sdk.name().to_owned(),
    ]);
    let quiet = TELEMETRY_OFF
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let env = options.env.clone().into_iter().chain(quiet).collect();
    Ok(Launch::new(argv, env))
}

/// The message that starts a turn. A new process receives the conversation so far; a kept one has it.
pub(super) fn start(
    sdk: Sdk,
    wire: Dialect,
    options: &SidecarOptions,
    attempt: &AgentAttempt<'_>,
    say: &str,
    new: bool,
) -> Result<Value, String> {
    let ModelAccess::Metered { url, key } = &attempt.model else {
        return Err(format!(
            "{} has no login of its own; it needs a key for its model",
            sdk.name()
        ));
    };
    let tools: Vec<&ToolSpec> = offered_tools(attempt.job.toolbox).collect();
    let mut start = json!({
        "type": "start",
        "model": {
            "base_url": format!("{url}{}", api(wire).1),
            "api_key": key,
            "api": api(wire).0,
            "max_retries": RETRIES,
        },
        "agents": agents(options, attempt, &tools)?,
        "tools": tools.iter().map(|spec| tool(spec)).collect::<Vec<_>>(),
        "settings": settings(options),
        "prompt": say,
    });
    if let Some(turns) = options.max_turns {
        start["max_turns"] = json!(turns);
    }
    if new {
        start["history"] = Value::Array(history::items(attempt.job));
    }
    // For other models, the prompt contains the schema. The engine checks the answer in any case.
    if let Some(wanted) = attempt
        .output
        .filter(|_| sdk == Sdk::OpenAiAgents && wire == Dialect::OpenAiResponses)
    {
        start["output_schema"] =
            json!({ "schema": wanted.schema, "strict": is_strict(&wanted.schema) });
    }
    Ok(start)
}

/// All tools of the built-in agent.
fn offered_tools(toolbox: &dyn Toolbox) -> impl Iterator<Item = &ToolSpec> {
    let ours = |spec: &&ToolSpec| matches!(spec.exposure, Exposure::Native | Exposure::Function);
    toolbox.tools().iter().map(|tool| tool.spec()).filter(ours)
}

fn tool(spec: &ToolSpec) -> Value {
    json!({ "name": spec.name, "description": spec.description, "parameters": spec.schema })
}

fn settings(options: &SidecarOptions) -> Value {
    let mut settings = json!({
        "temperature": options.temperature,
        "max_output": options.max_output,
        "effort": options.effort,
        "parallel_tool_calls": options.parallel_tool_calls,
    });
    if let Value::Object(settings) = &mut settings {
        settings.retain(|_, value| !value.is_null());
    }
    settings
}

/// The first agent and its subagents, with their instructions.
fn agents(
    options: &SidecarOptions,
    attempt: &AgentAttempt<'_>,
    tools: &[&ToolSpec],
) -> Result<Value, String> {
    let model = options
        .model
        .as_deref()
        .ok_or("the sidecar needs a model; name one with `-m`, or set `model`")?;
    let words = attempt.standing_instructions();
    let mut agents = vec![json!({
        "name": FIRST,
        "description": "Does the task, and hands over what others do better.",
        "instructions": words,
        "model": model,
        "reasons": is_reasoning_model(model),
        "tools": null,
    })];
    for subagent in &options.agents {
        let known = |name: &&String| tools.iter().any(|spec| spec.name == **name);
        if let Some(missing) = subagent.tools.iter().flatten().find(|name| !known(name)) {
            return Err(format!(
                "`agents` gives `{}` the tool `{missing}`, which this run does not have",
                subagent.name
            ));
        }
        let model = subagent.model.as_deref().unwrap_or(model);
        agents.push(json!({
            "name": subagent.name,
            "description": subagent.description,
            "instructions": format!("{}\n\n{words}", subagent.instructions),
            "model": model,
            "reasons": is_reasoning_model(model),
            "tools": subagent.tools,
        }));
    }
    Ok(Value::Array(agents))
}

/// The sidecar's name of a protocol, and the path after the address of the meter.
pub(super) fn api(wire: Dialect) -> (&'static str, &'static str) {
    match wire {
        Dialect::OpenAiResponses => ("responses", "/v1"),
        Dialect::OpenAiChat => ("chat", "/v1"),
        Dialect::Anthropic => ("anthropic", ""),
        Dialect::Gemini => ("gemini", ""),
    }
}
