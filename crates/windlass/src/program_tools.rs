//! Tools that are programs of the user, from `[tools.NAME]` in the settings. An incomplete definition is an error; the
//! tool is never left out silently.
//!
//! ```
//! use windlass::program_tools::{all_tools, names, offered_tools};
//! use windlass::settings::Settings;
//!
//! let dir = tempfile::tempdir()?;
//! let settings = Settings::none(dir.path());
//! let tools = all_tools(&settings)?;
//! assert!(names(&tools).contains(&"read_file"));
//! assert_eq!(offered_tools(&settings)?.len(), tools.len(), "no rule denies one");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::gate::Mode;
use windlass_core::tool::{Effect, Tool};
use windlass_tools::ProcessTool;

use crate::error::Error;
use crate::settings::Settings;

/// Default timeout of a program in seconds.
const DEFAULT_TIMEOUT: f64 = 120.0;
/// Longest timeout of a program in seconds.
const MAX_TIMEOUT: f64 = 600.0;

/// All tools under these settings: the built-in ones, and the programs of the user. Rules are always checked against this
/// list, so that a rule about a tool has the same meaning everywhere.
pub fn all_tools(settings: &Settings) -> Result<Vec<Arc<dyn Tool>>, Error> {
    with_programs(windlass_tools::all(), settings)
}

/// The tools that the model sees: all tools except those that a rule denies as a whole.
pub fn offered_tools(settings: &Settings) -> Result<Vec<Arc<dyn Tool>>, Error> {
    let mut tools = all_tools(settings)?;
    let gate = settings.gate(Mode::Ask, &names(&tools))?;
    tools.retain(|tool| !gate.hides(&tool.spec().name));
    Ok(tools)
}

/// Like [`all_tools`], with built-in tools that the caller already made.
pub(crate) fn with_programs(
    mut own: Vec<Arc<dyn Tool>>,
    settings: &Settings,
) -> Result<Vec<Arc<dyn Tool>>, Error> {
    own.extend(program_tools(settings)?);
    Ok(own)
}

/// The names of tools, to which rules can refer.
pub fn names(tools: &[Arc<dyn Tool>]) -> Vec<&str> {
    tools.iter().map(|tool| tool.spec().name.as_str()).collect()
}

/// The tools that the settings define, sorted by name.
fn program_tools(settings: &Settings) -> Result<Vec<Arc<dyn Tool>>, Error> {
    let named = settings
        .layers
        .iter()
        .filter_map(|(key, _)| key.strip_prefix("tools.")?.rsplit_once('.'));
    let names: BTreeSet<String> = named
        .map(|(name, _)| name.trim_matches('"').to_owned())
        .collect();
    names
        .iter()
        .map(|name| program_tool(settings, name))
        .collect()
}

fn program_tool(settings: &Settings, name: &str) -> Result<Arc<dyn Tool>, Error> {
    let key = |what: &str| Settings::named("tools", name, what);
    let wrong = |what: &str, why: String| {
        let place = settings
            .layers
            .get(&key(what))
            .map(|setting| format!("{}: ", setting.origin));
        Error::usage(format!(
            "{}the tool `{name}` cannot be used: {why}",
            place.unwrap_or_default()
        ))
    };
    let Some(command) = settings.layers.texts(&key("command")) else {
        return Err(
            wrong("effect", "its `command` is missing".into()).hint(format!(
                "add `command = [\"PROGRAM\", \"ARGUMENT\"]` below `[tools.{name}]`"
            )),
        );
    };
    let effect = match settings.layers.text(&key("effect")) {
        Some("read") => Effect::Read,
        Some("network") => Effect::Network,
        Some("write") => Effect::Write,
        Some("execute") => Effect::Execute,
        Some("external") => Effect::External,
        _ => {
            return Err(wrong("command", "its `effect` is missing".into()).hint(format!(
                "add `effect = \"…\"` with its most dangerous effect below `[tools.{name}]`: read, network, write, \
                 execute, or external for effects outside this machine"
            )));
        }
    };
    let schema = match settings.layers.text(&key("schema")) {
        None => json!({ "type": "object", "properties": {}, "additionalProperties": false }),
        Some(text) => {
            let schema: Value = serde_json::from_str(text)
                .map_err(|err| wrong("schema", format!("`schema` is not JSON: {err}")))?;
            windlass_engine::check_schema(&schema)
                .map_err(|err| wrong("schema", format!("`schema` is not a JSON Schema: {err}")))?;
            schema
        }
    };
    let seconds = settings
        .layers
        .number(&key("timeout_s"))
        .unwrap_or(DEFAULT_TIMEOUT);
    if !(0.1..=MAX_TIMEOUT).contains(&seconds) {
        return Err(wrong(
            "timeout_s",
            format!("`timeout_s` must be a number of seconds, from 0.1 to {MAX_TIMEOUT}"),
        ));
    }
    let tool = ProcessTool {
        name: name.to_owned(),
        command: command.to_vec(),
        description: settings
            .layers
            .text(&key("description"))
            .unwrap_or_default()
            .to_owned(),
        schema,
        effect,
        timeout: Duration::from_secs_f64(seconds),
    };
    tool.build().map_err(|why| wrong("command", why))
}
