//! Tools that are programs of the user's own, from `[tools.NAME]` in the settings. What is not said in full is a
//! mistake, never a tool that is missing without a word.
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

/// Seconds a program may take when nothing is said.
const DEFAULT_TIMEOUT: f64 = 120.0;
/// And at most.
const MAX_TIMEOUT: f64 = 600.0;

/// All tools there are under these settings: our own, and the programs. Whoever reads rules or judges calls uses this
/// list, so that a rule about a tool means the same everywhere.
pub fn all_tools(settings: &Settings) -> Result<Vec<Arc<dyn Tool>>, Error> {
    with_programs(windlass_tools::all(), settings)
}

/// The tools that a model is offered: all that no rule denies.
pub fn offered_tools(settings: &Settings) -> Result<Vec<Arc<dyn Tool>>, Error> {
    let mut tools = all_tools(settings)?;
    let gate = settings.gate(Mode::Ask, &names(&tools))?;
    tools.retain(|tool| !gate.hides(&tool.spec().name));
    Ok(tools)
}

/// The same as [`all_tools`], where our own are made already.
pub(crate) fn with_programs(
    mut own: Vec<Arc<dyn Tool>>,
    settings: &Settings,
) -> Result<Vec<Arc<dyn Tool>>, Error> {
    own.extend(program_tools(settings)?);
    Ok(own)
}

/// What rules may be about.
pub fn names(tools: &[Arc<dyn Tool>]) -> Vec<&str> {
    tools.iter().map(|tool| tool.spec().name.as_str()).collect()
}

/// The tools that the settings describe, in the order of their names.
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
        return Err(wrong("effect", "it names no program".into()).hint(format!(
            "say which: `command = [\"PROGRAM\", \"ARGUMENT\"]` below `[tools.{name}]`"
        )));
    };
    let effect = match settings.layers.text(&key("effect")) {
        Some("read") => Effect::Read,
        Some("network") => Effect::Network,
        Some("write") => Effect::Write,
        Some("execute") => Effect::Execute,
        Some("external") => Effect::External,
        _ => {
            return Err(wrong("command", "it does not say what it can do at worst".into()).hint(format!(
                "add `effect = \"…\"` below `[tools.{name}]`: read, network, write, execute, or external for what \
                 acts outside this machine"
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
            format!("`timeout_s` is a number of seconds, from 0.1 to {MAX_TIMEOUT}"),
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
