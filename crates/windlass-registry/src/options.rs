//! What the settings say of an agent that is not ours: some of it is for whoever starts it, the rest is for its adapter,
//! which refuses what it cannot honour. What would be passed over is an error here.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};
use windlass_host::config::{Layers, Value, nearest};
use windlass_runtimes::agents::{AGENTS, ANY_ACP, AgentKind, AgentSpec};

use crate::acp_registry::id_of;
use crate::error::RegistryError;
use crate::own;

/// The settings of one agent.
pub struct Given {
    /// Its program.
    pub command: Option<String>,
    /// How it signs in.
    pub auth: Option<String>,
    /// How it is known what it spends.
    pub metering: Option<String>,
    /// Its credential file.
    pub login_file: Option<String>,
    /// Directories of a project that are empty in its copy, beside those of its row.
    pub masked_dirs: Vec<String>,
    /// Instruction files of a project that it reads by itself, beside those of its row.
    pub instruction_files: Vec<String>,
    /// Vendors that are tried for its model, in the place of those of its row.
    pub vendors: Option<Vec<String>>,
    /// The protocols to its model, in place of those of its row.
    pub wires: Option<Vec<String>>,
    /// Whether it has to be told its model, in the place of what its row says.
    pub needs_model: Option<bool>,
    /// Hosts that it has to reach with its own login, beside those of its row.
    pub login_hosts: Vec<String>,
    /// Everything else, for its adapter.
    pub options: Map<String, Json>,
}

impl Given {
    /// What the settings say of the agent of this name.
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

    /// Adds variables; those of the settings win.
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
        let (vendors, wires) = (listed("vendors"), listed("wires"));
        let mut texts = |key: &str| listed(key).unwrap_or_default();
        let (masked_dirs, instruction_files) = (texts("masked_dirs"), texts("instruction_files"));
        let login_hosts = texts("login_hosts");
        // Who it is was read already, and whoever makes the gate reads the mode.
        ["kind", "about", "approval"]
            .iter()
            .for_each(|key| drop(options.remove(*key)));
        Self {
            command,
            auth,
            metering,
            login_file,
            masked_dirs,
            instruction_files,
            vendors,
            wires,
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
        // Values of an agent's own settings may be numbers and switches.
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

/// Refuses settings of runtimes that have none, or that nobody knows.
pub fn check_names(layers: &Layers<'_>) -> Result<(), RegistryError> {
    let with_options = || {
        AGENTS
            .iter()
            .chain([&ANY_ACP])
            .filter(|known| known.kind != AgentKind::Native)
    };
    let own = own::all(layers)?;
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
            "{}: there is no runtime `{name}` that has options",
            setting.origin
        ));
        return Err(match nearest(name, known.iter().copied()) {
            Some(near) => failure.hint(format!("did you mean `runtimes.{near}`?")),
            None => failure.hint(format!(
                "runtimes with options: {}; an agent of your own has `kind = \"acp\"` or `kind = \"cli\"`",
                known.join(", ")
            )),
        });
    }
    Ok(())
}

/// Passes on how hard the model is to think, where the agent can be told.
pub fn tell_thinking(
    (known, name): (&AgentSpec, &str),
    flag: bool,
    layers: &Layers<'_>,
    options: &mut Map<String, Json>,
) -> Result<(), RegistryError> {
    let heard = |key: &str| known.sampling_options.contains(&key);
    if let Some(tokens) = layers
        .integer("thinking_tokens")
        .filter(|_| heard("thinking_tokens"))
    {
        options
            .entry("thinking_tokens")
            .or_insert_with(|| Json::from(tokens));
    }
    let Some(effort) = layers.text("reasoning_effort") else {
        return Ok(());
    };
    if heard("reasoning_effort") {
        options
            .entry("effort")
            .or_insert_with(|| Json::from(effort));
        return Ok(());
    }
    if !flag {
        return Ok(());
    }
    let failure = RegistryError::usage(format!("`{name}` cannot be told how hard to think"));
    Err(match known.kind {
        AgentKind::Acp => failure.hint(format!(
            "leave --reasoning-effort out, or set an option that the agent has for it (`runtimes.{name}.config_options`)"
        )),
        _ => failure.hint("leave --reasoning-effort out"),
    })
}

/// Passes on how the model is to answer, where the agent can be told.
pub fn tell_sampling(
    known: &AgentSpec,
    temperature: Option<f64>,
    max_output: Option<u64>,
    options: &mut Map<String, Json>,
) {
    let heard = |key: &str| known.sampling_options.contains(&key);
    if let Some(temperature) = temperature.filter(|_| heard("temperature")) {
        options.insert("temperature".to_owned(), Json::from(temperature));
    }
    if let Some(most) = max_output.filter(|_| heard("max_output")) {
        options.insert("max_output".to_owned(), Json::from(most));
    }
}
