//! What the settings say of an agent that is not ours: some of it is for whoever starts it, the rest is for its adapter,
//! which refuses what it cannot honour. What would be passed over is an error here.

use serde_json::{Map, Value as Json};
use windlass_host::config::{Value, nearest};

use super::{ANY_ACP, Kind, Known, RUNTIMES, own};
use crate::failure::Failure;
use crate::settings::Settings;

/// The settings of one agent.
pub(super) struct Given {
    /// Its program.
    pub(super) command: Option<String>,
    /// How it signs in.
    pub(super) auth: Option<String>,
    /// How it is known what it spends.
    pub(super) metering: Option<String>,
    /// Its credential file.
    pub(super) login_file: Option<String>,
    /// Everything else, for its adapter.
    pub(super) options: Map<String, Json>,
}

impl Given {
    pub(super) fn read(name: &str, settings: &Settings) -> Result<Self, Failure> {
        let prefix = format!("runtimes.{name}.");
        let mut all = Map::new();
        for (key, setting) in settings.layers.iter() {
            let Some(path) = key.strip_prefix(&prefix) else {
                continue;
            };
            let value = json(path, &setting.value).map_err(|err| {
                Failure::usage(format!("{}: `{key}` is not JSON: {err}", setting.origin))
            })?;
            put(&mut all, path, value);
        }
        Ok(Self::of(all))
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
        // Who it is was read already, and whoever makes the gate reads the mode.
        ["kind", "about", "approval"]
            .iter()
            .for_each(|key| drop(options.remove(*key)));
        Self {
            command,
            auth,
            metering,
            login_file,
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
pub(super) fn check_names(settings: &Settings) -> Result<(), Failure> {
    let with_options = || {
        RUNTIMES
            .iter()
            .chain([&ANY_ACP])
            .filter(|known| known.kind != Kind::Native)
    };
    let own = own::all(settings)?;
    let mut known: Vec<&str> = with_options()
        .filter(|known| !known.speaks.is_empty())
        .map(|known| known.name)
        .collect();
    known.extend(own.iter().map(|own| own.name.as_str()));
    for (key, setting) in settings.layers.iter() {
        let Some(name) = key
            .strip_prefix("runtimes.")
            .and_then(|rest| rest.split('.').next())
        else {
            continue;
        };
        if known.contains(&name.trim_matches('"')) {
            continue;
        }
        let failure = Failure::usage(format!(
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
pub(super) fn tell_thinking(
    (known, name): (&Known, &str),
    flag: bool,
    settings: &Settings,
    options: &mut Map<String, Json>,
) -> Result<(), Failure> {
    let heard = |key: &str| known.hears.contains(&key);
    if let Some(tokens) = settings
        .layers
        .integer("thinking_tokens")
        .filter(|_| heard("thinking_tokens"))
    {
        options
            .entry("thinking_tokens")
            .or_insert_with(|| Json::from(tokens));
    }
    let Some(effort) = settings.layers.text("reasoning_effort") else {
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
    let failure = Failure::usage(format!("`{name}` cannot be told how hard to think"));
    Err(match known.kind {
        Kind::Acp => failure.hint(format!(
            "leave --reasoning-effort out, or set an option that the agent has for it (`runtimes.{name}.config_options`)"
        )),
        _ => failure.hint("leave --reasoning-effort out"),
    })
}

/// Passes on how the model is to answer, where the agent can be told.
pub(super) fn tell_sampling(known: &Known, settings: &Settings, options: &mut Map<String, Json>) {
    let heard = |key: &str| known.hears.contains(&key);
    if let Some(temperature) = settings
        .sampling()
        .temperature
        .filter(|_| heard("temperature"))
    {
        options.insert("temperature".to_owned(), Json::from(temperature));
    }
    if let Some(most) = settings.max_output().filter(|_| heard("max_output")) {
        options.insert("max_output".to_owned(), Json::from(most));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use windlass_core::clock::Clock;
    use windlass_host::clock::SystemClock;
    use windlass_host::config::Kind as ValueKind;

    use super::*;
    use crate::runtimes::known::ANY_CLI;
    use crate::runtimes::{ForeignPlan, MeteringPlan, Program};
    use crate::settings::KEYS;

    /// A value that a key may have.
    fn sample(path: &str, kind: ValueKind) -> Value {
        match kind {
            ValueKind::Integer => Value::Integer(3),
            ValueKind::Boolean => Value::Boolean(true),
            ValueKind::Texts => {
                let word = match path {
                    "setting_sources" => "project",
                    "tools" => "terminal",
                    "resume_args" => "{session}",
                    _ => "word",
                };
                Value::Texts(vec![word.to_owned()])
            }
            ValueKind::Choice(words) => Value::Text(words[0].to_owned()),
            _ if path == "agents" => Value::Text(
                r#"[{"name":"reviewer","description":"Reviews.","instructions":"Review what was done."}]"#.to_owned(),
            ),
            _ if path == "mcp_servers" => Value::Text(r#"{"docs":{"command":"docs"}}"#.to_owned()),
            _ => Value::Text("high".to_owned()),
        }
    }

    /// What else has to be set, so that a value makes sense.
    fn beside(path: &str) -> &'static [(&'static str, &'static str)] {
        match path {
            "fields.text" => &[("output", "jsonl")],
            "resume_args" => &[
                ("output", "jsonl"),
                ("fields.text", "text"),
                ("fields.session", "session"),
            ],
            _ => &[],
        }
    }

    fn takes(known: &'static Known, file: &Path, path: &str, value: &Value) -> Result<(), String> {
        let mut all = Map::new();
        put(&mut all, path, json(path, value).unwrap());
        for (path, text) in beside(path) {
            put(&mut all, path, Json::from(*text));
        }
        let plan = ForeignPlan {
            known,
            name: known.name.to_owned(),
            settings: known.name.to_owned(),
            program: Program {
                file: file.to_owned(),
                ..Program::default()
            },
            words: Vec::new(),
            model: Some("m".to_owned()),
            upstream: None,
            metering: MeteringPlan::Wire,
            login_file: None,
            hosts: Vec::new(),
            options: Given::of(all).options,
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        crate::wire::agents::adapter(&plan, &clock)
            .map(drop)
            .map_err(|failure| failure.message())
    }

    /// Two agents connect to no server in a folder that they do not trust, and say so.
    fn takes_it(name: &str, field: &str) -> bool {
        !(["gemini-cli", "qwen-code"].contains(&name) && field == "mcp_servers")
    }

    #[test]
    fn every_option_is_honoured_by_an_agent_and_an_error_on_those_that_cannot() {
        let agents: Vec<&'static Known> = RUNTIMES
            .iter()
            .filter(|known| known.program.is_some())
            .chain([&ANY_ACP, &ANY_CLI])
            .collect();
        let of_runtimes: Vec<_> = KEYS
            .iter()
            .filter(|key| key.name.starts_with("runtimes.*."))
            .collect();
        assert!(of_runtimes.len() > 20);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent");
        std::fs::write(&file, "#!/usr/bin/python3\n").unwrap();
        for key in of_runtimes {
            let name = if key.name.contains(".fields.") {
                ".text"
            } else {
                ".NAME"
            };
            let path = key
                .name
                .trim_start_matches("runtimes.*.")
                .replace(".*", name);
            let value = sample(&path, key.kind);
            let given = [path.as_str()]
                .into_iter()
                .chain(beside(&path).iter().map(|(path, _)| *path));
            let fields: Vec<&str> = given.map(|path| path.split('.').next().unwrap()).collect();
            let mut honoured = Vec::new();
            for known in &agents {
                match takes(known, &file, &path, &value) {
                    Ok(()) => honoured.push(known.name),
                    Err(why) => {
                        let unknown = fields
                            .iter()
                            .any(|field| why.contains(&format!("no option `{field}`")));
                        assert!(
                            unknown || why.contains("no MCP server"),
                            "{}: {why}",
                            known.name
                        );
                    }
                }
            }
            // The words of a key say whose it is; without such words it is everybody's.
            let whose = key
                .doc
                .split_once(": ")
                .map(|(whose, _)| whose.split(", ").collect::<Vec<_>>());
            let words = |known: &Known| match known.kind {
                Kind::Acp => [known.name, "ACP"],
                Kind::Sidecar(_) => [known.name, "SDKs"],
                _ => [known.name; 2],
            };
            let all: Vec<&str> = agents.iter().flat_map(|known| words(known)).collect();
            let whose = whose.filter(|whose| whose.iter().all(|one| all.contains(one)));
            let meant = |known: &Known| {
                whose
                    .as_ref()
                    .is_none_or(|whose| words(known).iter().any(|w| whose.contains(w)))
            };
            let theirs = |known: &&&'static Known| meant(known) && takes_it(known.name, fields[0]);
            let says: Vec<&str> = agents
                .iter()
                .filter(theirs)
                .map(|known| known.name)
                .collect();
            assert_eq!(honoured, says, "{}", key.name);
        }
    }
}
