//! Agents of a person's own: a name and a kind in the settings make one. Which kinds there are is known; whose program it
//! is and how it is told things the person says.

use windlass_host::config::{Layers, Value, nearest};

use crate::error::RegistryError;
use windlass_runtimes::agents::{AGENTS, ANY_ACP, ANY_CLI, AgentKind, AgentSpec};

/// The longest name: it is a folder's, too.
const MAX_NAME: usize = 40;

/// One of them.
#[derive(Clone)]
pub struct Own {
    /// What people type.
    pub name: String,
    /// What is known of its kind.
    pub known: &'static AgentSpec,
    /// What it is, in a few words.
    pub about: String,
}

/// All of them, in the order of their names.
pub fn all(layers: &Layers<'_>) -> Result<Vec<Own>, RegistryError> {
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
            return Err(RegistryError::usage(format!("{}: {why}", setting.origin)).hint(
                "a name of your own is of letters, digits, `-` and `_`, as in `runtimes.my-agent`",
            ));
        }
        let known = if kind == "cli" { &ANY_CLI } else { &ANY_ACP };
        let about = layers
            .text(&format!("runtimes.{name}.about"))
            .unwrap_or(match known.kind {
                AgentKind::Cli => "an agent of your own: a program that does one prompt and ends",
                _ => "an agent of your own, by ACP",
            });
        all.push(Own {
            name: name.to_owned(),
            known,
            about: about.to_owned(),
        });
    }
    Ok(all)
}

/// Refuses names that mean another runtime, and such that are no folder's.
fn check_name(name: &str) -> Result<(), String> {
    if name == "auto"
        || AGENTS
            .iter()
            .chain([&ANY_ACP, &ANY_CLI])
            .any(|known| known.name == name)
    {
        return Err(format!(
            "`{name}` is known; `kind` is for agents of your own"
        ));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let first = name
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric());
    // Agents that are named by their command have such homes.
    if first && name.len() <= MAX_NAME && name.chars().all(plain) && !name.starts_with("acp-") {
        return Ok(());
    }
    Err(format!("`{name}` is not the name of a runtime"))
}

/// That an agent of the settings names no program.
pub fn no_command(name: &str) -> RegistryError {
    RegistryError::usage(format!("`{name}` has no program")).hint(format!(
        "set `runtimes.{name}.command` to its name or its path"
    ))
}

/// That no runtime has this name, with the nearest one.
pub fn unknown(name: &str, own: &[Own]) -> RegistryError {
    let failure = RegistryError::usage(format!("there is no runtime `{name}`"));
    let own = own.iter().map(|own| own.name.as_str());
    let all: Vec<&str> = AGENTS.iter().map(|known| known.name).chain(own).collect();
    // The beginning of a name says which one is meant, where it is of one alone.
    let begun: Vec<&str> = all
        .iter()
        .copied()
        .filter(|known| known.starts_with(name) && !name.is_empty())
        .collect();
    let near = if let [one] = begun[..] {
        Some(one)
    } else {
        nearest(name, all.iter().copied().chain(["auto"]))
    };
    match near {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint(format!(
            "the runtimes are {}, acp:COMMAND for any agent that speaks ACP, and auto for the first that can",
            all.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_ones_own_is_no_other_and_a_folder() {
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
