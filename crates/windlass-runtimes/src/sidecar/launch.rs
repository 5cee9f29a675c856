//! How a sidecar is started, and what a turn of it begins with. Nothing is started here.

use serde_json::{Value, json};
use windlass_core::enclosure::Launch;
use windlass_core::tool::{Exposure, ToolSpec, Toolbox};
use windlass_providers::protocol::{is_strict, reasons};

use super::history;
use super::options::{FIRST, Sdk, SidecarOptions};
use crate::agent::{AgentAttempt, ModelAccess};
use crate::dialect::Dialect;

/// Where the program is put, in the agent's home.
const FOLDER: &str = ".windlass/sidecar";
/// The program.
const PROGRAM: &[(&str, &str)] = &[
    ("__main__.py", include_str!("python/__main__.py")),
    ("host.py", include_str!("python/host.py")),
    ("openai_agents.py", include_str!("python/openai_agents.py")),
    ("google_adk.py", include_str!("python/google_adk.py")),
];
/// What keeps the SDKs and what they bring from telling others about it, and from asking the network as they start.
const QUIET: &[(&str, &str)] = &[
    ("OPENAI_AGENTS_DISABLE_TRACING", "1"),
    ("OTEL_SDK_DISABLED", "true"),
    ("LITELLM_MODE", "PRODUCTION"),
    ("LITELLM_TELEMETRY", "False"),
    ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
];
/// How often the SDK asks again. Whoever serves the model knows better.
const RETRIES: u32 = 1;

/// Puts the program into the home and says how to start it.
pub(super) fn launch(
    sdk: Sdk,
    options: &SidecarOptions,
    attempt: &AgentAttempt<'_>,
) -> Result<Launch, String> {
    attempt.clear_home(&[FOLDER])?;
    for (name, text) in PROGRAM {
        attempt.put_home(&format!("{FOLDER}/{name}"), text)?;
    }
    let folder = attempt.in_home(FOLDER);
    let mut argv = vec![options.program.clone()];
    // Isolated: neither the repository nor a variable says what is imported.
    argv.extend([
        "-I".to_owned(),
        "-B".to_owned(),
        folder,
        sdk.name().to_owned(),
    ]);
    let quiet = QUIET
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let env = options.env.clone().into_iter().chain(quiet).collect();
    Ok(Launch::new(argv, env))
}

/// The message that begins a turn. A new program is told the conversation so far; one that was kept has it.
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
            "{} has no sign-in of its own; its model is asked with a key",
            sdk.name()
        ));
    };
    let tools: Vec<&ToolSpec> = offered(attempt.job.toolbox).collect();
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
    // Others are asked in words, which the prompt has; the engine looks at the answer either way.
    if let Some(wanted) = attempt
        .output
        .filter(|_| sdk == Sdk::OpenAiAgents && wire == Dialect::OpenAiResponses)
    {
        start["output_schema"] =
            json!({ "schema": wanted.schema, "strict": is_strict(&wanted.schema) });
    }
    Ok(start)
}

/// All tools that the built-in agent would have.
fn offered(toolbox: &dyn Toolbox) -> impl Iterator<Item = &ToolSpec> {
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

/// The first agent and those it can hand over to, each with what it is told.
fn agents(
    options: &SidecarOptions,
    attempt: &AgentAttempt<'_>,
    tools: &[&ToolSpec],
) -> Result<Value, String> {
    let model = options
        .model
        .as_deref()
        .ok_or("it has to be told its model, and none was named")?;
    let words = attempt.standing_words();
    let mut agents = vec![json!({
        "name": FIRST,
        "description": "Does the task, and hands over what others do better.",
        "instructions": words,
        "model": model,
        "reasons": reasons(model),
        "tools": null,
    })];
    for helper in &options.agents {
        let known = |name: &&String| tools.iter().any(|spec| spec.name == **name);
        if let Some(missing) = helper.tools.iter().flatten().find(|name| !known(name)) {
            return Err(format!(
                "`agents` gives `{}` the tool `{missing}`, and this run has none",
                helper.name
            ));
        }
        let model = helper.model.as_deref().unwrap_or(model);
        agents.push(json!({
            "name": helper.name,
            "description": helper.description,
            "instructions": format!("{}\n\n{words}", helper.instructions),
            "model": model,
            "reasons": reasons(model),
            "tools": helper.tools,
        }));
    }
    Ok(Value::Array(agents))
}

/// What the sidecar calls these words, and what comes behind the address of the meter.
pub(super) fn api(wire: Dialect) -> (&'static str, &'static str) {
    match wire {
        Dialect::OpenAiResponses => ("responses", "/v1"),
        Dialect::OpenAiChat => ("chat", "/v1"),
        Dialect::Anthropic => ("anthropic", ""),
        Dialect::Gemini => ("gemini", ""),
    }
}
