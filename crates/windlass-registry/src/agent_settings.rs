//! The settings of a foreign agent (`runtimes.NAME.*`). Some are for the start of the agent; the others are for its
//! adapter, which rejects unknown options. A setting that would be ignored is an error.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};
use windlass_host::config::{Layers, Value, nearest};
use windlass_runtimes::agents::{AGENTS, ANY_ACP, AgentKind, AgentSpec};

use crate::acp_registry::id_of;
use crate::custom_agents;
use crate::error::RegistryError;

/// The settings of one agent.
pub struct AgentSettings {
    pub command: Option<String>,
    pub auth: Option<String>,
    pub metering: Option<String>,
    pub login_file: Option<String>,
    /// In addition to those of the agent's [`AgentSpec`].
    pub masked_dirs: Vec<String>,
    pub state_dirs: Vec<String>,
    /// In addition to those of the agent's [`AgentSpec`].
    pub instruction_files: Vec<String>,
    /// In place of those of the agent's [`AgentSpec`].
    pub vendors: Option<Vec<String>>,
    /// In place of the protocols of the agent's [`AgentSpec`].
    pub protocols: Option<Vec<String>>,
    /// In place of the value in the agent's [`AgentSpec`].
    pub needs_model: Option<bool>,
    /// In addition to those of the agent's [`AgentSpec`].
    pub login_hosts: Vec<String>,
    /// All other settings, for the adapter.
    pub options: Map<String, Json>,
}

impl AgentSettings {
    /// Reads the settings of the agent with this name.
    pub fn read(name: &str, layers: &Layers<'_>) -> Result<Self, RegistryError> {
        let prefix = format!("runtimes.{name}.");
        let mut all = Map::new();
        for (key, setting) in layers.iter() {
            let Some(path) = key.strip_prefix(&prefix) else {
                continue;
            };
            let value = json(path, &setting.value).map_err(|err| {
                RegistryError::usage(format!("{}: `{key}` is not JSON: {err}", setting.origin))
            })?;
            put(&mut all, path, value);
        }
        Ok(Self::of(all))
    }

    /// Adds environment variables. Those of the settings take precedence.
    pub fn add_env(&mut self, env: &BTreeMap<String, String>) {
        if env.is_empty() {
            return;
        }
        let table = self
            .options
            .entry("env")
            .or_insert_with(|| Json::Object(Map::new()));
        if let Json::Object(table) = table {
            for (name, value) in env {
                table
                    .entry(name)
                    .or_insert_with(|| Json::from(value.as_str()));
            }
        }
    }

    fn of(mut options: Map<String, Json>) -> Self {
        let mut text = |key: &str| {
            options
                .remove(key)
                .and_then(|value| value.as_str().map(str::to_owned))
        };
        let (command, auth, metering, login_file) = (
            text("command"),
            text("auth"),
            text("metering"),
            text("login_file"),
        );
        let needs_model = options
            .remove("needs_model")
            .and_then(|value| value.as_bool());
        let mut listed = |key: &str| -> Option<Vec<String>> {
            let value = options.remove(key)?;
            let texts = value.as_array()?.iter().filter_map(Json::as_str);
            Some(texts.map(str::to_owned).collect())
        };
        let (vendors, protocols) = (listed("vendors"), listed("protocols"));
        let mut texts = |key: &str| listed(key).unwrap_or_default();
        let (masked_dirs, instruction_files) = (texts("masked_dirs"), texts("instruction_files"));
        let state_dirs = texts("state_dirs");
        let login_hosts = texts("login_hosts");
        // Other code reads these: `custom_agents` reads the kind and the description, the gate reads the mode.
        ["kind", "about", "approval"]
            .iter()
            .for_each(|key| drop(options.remove(*key)));
        Self {
            command,
            auth,
            metering,
            login_file,
            masked_dirs,
            state_dirs,
            instruction_files,
            vendors,
            protocols,
            needs_model,
            login_hosts,
            options,
        }
    }
}

fn json(path: &str, value: &Value) -> Result<Json, serde_json::Error> {
    Ok(match value {
        Value::Text(text) if path == "mcp_servers" || path == "agents" => {
            serde_json::from_str(text)?
        }
        // Values of the agent's own settings may be numbers and booleans.
        Value::Text(text) if path.starts_with("config.") || path.starts_with("config_options.") => {
            serde_json::from_str(text).unwrap_or_else(|_| Json::from(text.as_str()))
        }
        Value::Text(text) => Json::from(text.as_str()),
        Value::Texts(texts) => Json::from(texts.clone()),
        Value::Integer(number) => Json::from(*number),
        Value::Number(number) => Json::from(*number),
        Value::Boolean(yes) => Json::from(*yes),
    })
}

fn put(all: &mut Map<String, Json>, path: &str, value: Json) {
    match path.split_once('.') {
        None => drop(all.insert(path.to_owned(), value)),
        Some((table, name)) => {
            let table = all
                .entry(table.to_owned())
                .or_insert_with(|| Json::Object(Map::new()));
            if let Json::Object(table) = table {
                table.insert(name.trim_matches('"').to_owned(), value);
            }
        }
    }
}

/// Rejects settings of runtimes that have no options or do not exist.
pub fn check_names(layers: &Layers<'_>) -> Result<(), RegistryError> {
    let with_options = || {
        AGENTS
            .iter()
            .chain([&ANY_ACP])
            .filter(|known| known.kind != AgentKind::Native)
    };
    let own = custom_agents::all(layers)?;
    let mut known: Vec<&str> = with_options()
        .filter(|known| !known.protocols.is_empty())
        .map(|known| known.name)
        .collect();
    known.extend(own.iter().map(|own| own.name.as_str()));
    for (key, setting) in layers.iter() {
        let Some(name) = key
            .strip_prefix("runtimes.")
            .and_then(|rest| rest.split('.').next())
        else {
            continue;
        };
        let name = name.trim_matches('"');
        if known.contains(&name) || id_of(name).is_some() {
            continue;
        }
        let failure = RegistryError::usage(format!(
            "{}: there is no runtime `{name}` with options",
            setting.origin
        ));
        return Err(match nearest(name, known.iter().copied()) {
            Some(near) => failure.hint(format!("did you mean `runtimes.{near}`?")),
            None => failure.hint(format!(
                "the runtimes with options are {}; an agent of your own needs `kind = \"acp\"` or `kind = \"cli\"`",
                known.join(", ")
            )),
        });
    }
    Ok(())
}

/// Adds the reasoning effort and the thinking tokens to the options, if the agent supports them. An effort from the flag
/// that the agent does not support is an error.
pub fn add_reasoning(
    (known, name): (&AgentSpec, &str),
    flag: bool,
    layers: &Layers<'_>,
    options: &mut Map<String, Json>,
) -> Result<(), RegistryError> {
    let supports = |key: &str| known.sampling_options.contains(&key);
    if let Some(tokens) = layers
        .integer("thinking_tokens")
        .filter(|_| supports("thinking_tokens"))
    {
        options
            .entry("thinking_tokens")
            .or_insert_with(|| Json::from(tokens));
    }
    let Some(effort) = layers.text("reasoning_effort") else {
        return Ok(());
    };
    if supports("reasoning_effort") {
        options
            .entry("effort")
            .or_insert_with(|| Json::from(effort));
        return Ok(());
    }
    if !flag {
        return Ok(());
    }
    let failure = RegistryError::usage(format!("`{name}` does not support `--reasoning-effort`"));
    Err(match known.kind {
        AgentKind::Acp => failure.hint(format!(
            "omit it, or set the agent's own option for it in `runtimes.{name}.config_options`"
        )),
        _ => failure.hint("omit it"),
    })
}

/// Adds the temperature and the output limit to the options, if the agent supports them.
pub fn add_sampling(
    known: &AgentSpec,
    temperature: Option<f64>,
    max_output: Option<u64>,
    options: &mut Map<String, Json>,
) {
    let supports = |key: &str| known.sampling_options.contains(&key);
    if let Some(temperature) = temperature.filter(|_| supports("temperature")) {
        options.insert("temperature".to_owned(), Json::from(temperature));
    }
    if let Some(most) = max_output.filter(|_| supports("max_output")) {
        options.insert("max_output".to_owned(), Json::from(most));
    }
}
