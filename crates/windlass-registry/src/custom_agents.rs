//! Agents that the user defines in the settings, with a name and a kind (`runtimes.NAME.kind`).

use windlass_host::config::{Layers, Value, nearest};

use crate::error::RegistryError;
use windlass_runtimes::agents::{AGENTS, ANY_ACP, ANY_CLI, AgentKind, AgentSpec};

/// Maximum length of a name, which is also the name of a directory.
const MAX_NAME: usize = 40;

/// An agent that the user defined.
#[derive(Clone)]
pub struct CustomAgent {
    /// The value for `--runtime`.
    pub name: String,
    /// The row of its kind in the table of agents.
    pub known: &'static AgentSpec,
    /// A short description.
    pub about: String,
}

/// All agents that the settings define, sorted by name.
pub fn all(layers: &Layers<'_>) -> Result<Vec<CustomAgent>, RegistryError> {
    let mut all = Vec::new();
    for (key, setting) in layers.iter() {
        let kind = key
            .strip_prefix("runtimes.")
            .and_then(|rest| rest.strip_suffix(".kind"));
        let (Some(name), Value::Text(kind)) = (kind, &setting.value) else {
            continue;
        };
        let name = name.trim_matches('"');
        if let Err(why) = check_name(name) {
            return Err(RegistryError::usage(format!("{}: {why}", setting.origin))
                .hint("use a name of letters, digits, `-` and `_`, as in `runtimes.my-agent`"));
        }
        let known = if kind == "cli" { &ANY_CLI } else { &ANY_ACP };
        let about = layers
            .text(&format!("runtimes.{name}.about"))
            .unwrap_or(match known.kind {
                AgentKind::Cli => {
                    "an agent of your own: a program that handles one prompt and exits"
                }
                _ => "an agent of your own that speaks ACP",
            });
        all.push(CustomAgent {
            name: name.to_owned(),
            known,
            about: about.to_owned(),
        });
    }
    Ok(all)
}

/// Rejects names of other runtimes, and names that are not suitable for a directory.
fn check_name(name: &str) -> Result<(), String> {
    if name == "auto"
        || AGENTS
            .iter()
            .chain([&ANY_ACP, &ANY_CLI])
            .any(|known| known.name == name)
    {
        return Err(format!(
            "`{name}` is already a runtime, and `kind` is only for agents of your own"
        ));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let first = name
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric());
    // The prefix is reserved for the home directories of agents that are named by their command or by the ACP registry.
    if first && name.len() <= MAX_NAME && name.chars().all(plain) && !name.starts_with("acp-") {
        return Ok(());
    }
    Err(format!("`{name}` is not a valid name of a runtime"))
}

/// The error of an agent whose settings name no program.
pub fn no_command(name: &str) -> RegistryError {
    RegistryError::usage(format!("`{name}` has no program")).hint(format!(
        "set `runtimes.{name}.command` to the name or the path of its program"
    ))
}

/// The error of an unknown runtime. It suggests a runtime with a similar name.
pub fn unknown_runtime(name: &str, own: &[CustomAgent]) -> RegistryError {
    let failure = RegistryError::usage(format!("there is no runtime `{name}`"));
    let own = own.iter().map(|own| own.name.as_str());
    let all: Vec<&str> = AGENTS.iter().map(|known| known.name).chain(own).collect();
    // A unique prefix of a name identifies the runtime.
    let with_prefix: Vec<&str> = all
        .iter()
        .copied()
        .filter(|known| known.starts_with(name) && !name.is_empty())
        .collect();
    let near = if let [one] = with_prefix[..] {
        Some(one)
    } else {
        nearest(name, all.iter().copied().chain(["auto"]))
    };
    match near {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint(format!(
            "the runtimes are {}, acp:COMMAND for any agent that speaks ACP, and auto for the first usable one",
            all.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_custom_agents_are_unique_and_valid_directory_names() {
        for name in ["my-agent", "a", "Agent_2", "1st"] {
            assert_eq!(check_name(name), Ok(()));
        }
        let long = "x".repeat(MAX_NAME + 1);
        for name in [
            "codex",
            "native",
            "auto",
            "acp",
            "cli",
            "aider",
            "acp-goose",
            "",
            "-x",
            "a/b",
            "..",
            "a b",
            "ä",
            &long,
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
