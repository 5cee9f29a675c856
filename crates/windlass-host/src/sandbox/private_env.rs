//! The environment of commands without namespaces. The home and the caches cannot be mounted at their usual paths
//! there, so variables point to private directories of the session, and to the tools below the user's home.

use std::ffi::OsString;
use std::path::Path;

use windlass_sandbox::PRIVATE;

use super::tools::{TOOL_VARIABLES, ToolVariable, add_usual_places};

type Env = Vec<(OsString, OsString)>;

/// This cache stays at its usual path, where commands can only read it.
const READ_ONLY_CACHE: &str = "GOMODCACHE";
/// Variables for directories that a command cannot write.
const XDG: &[&str] = &[
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
];
/// The directory of the user's own Python packages.
const PYTHON: ToolVariable = ToolVariable {
    name: "PYTHONUSERBASE",
    below: ".local",
    cache: false,
};

/// Returns the environment of commands, whose home is private.
pub(super) fn of_commands(mut env: Env, home: Option<&Path>) -> Env {
    let tools = TOOL_VARIABLES.iter().filter(|tool| !is_written(tool));
    add_usual_places(&mut env, home, tools.chain([&PYTHON]));
    env.retain(|(name, _)| name != "HOME");
    env.push(("HOME".into(), private("home")));
    with_private_caches(env)
}

/// Replaces the caches but not the home, because an agent has its own home. Drops variables for directories that a
/// command cannot write, so that programs use the default paths below the home.
pub(super) fn with_private_caches(mut env: Env) -> Env {
    let names_cache = |name: &OsString| {
        let mut written = TOOL_VARIABLES.iter().filter(|tool| is_written(tool));
        written.any(|tool| name == tool.name)
    };
    env.retain(|(name, _)| !names_cache(name) && !XDG.iter().any(|xdg| name == xdg));
    env.push(("CARGO_HOME".into(), private("home/.cargo")));
    env
}

fn is_written(tool: &ToolVariable) -> bool {
    tool.cache && tool.name != READ_ONLY_CACHE
}

fn private(name: &str) -> OsString {
    format!("{PRIVATE}/{name}").into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn homes_and_caches_are_private_and_tools_are_found() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".rustup")).unwrap();
        let given = [
            ("HOME", "/home/p"),
            ("CARGO_HOME", "/c"),
            ("PIP_CACHE_DIR", "/p"),
            ("LANG", "C"),
            ("NVM_DIR", "/n"),
        ];
        let given = given
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec();
        let env = of_commands(given, Some(home.path()));
        let value = |name: &str| {
            env.iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.clone())
        };
        assert_eq!(value("HOME"), Some(private("home")));
        assert_eq!(value("CARGO_HOME"), Some(private("home/.cargo")));
        assert_eq!(value("PIP_CACHE_DIR"), None);
        assert_eq!(value("LANG"), Some("C".into()));
        assert_eq!(value("NVM_DIR"), Some("/n".into()));
        assert_eq!(
            value("RUSTUP_HOME"),
            Some(home.path().join(".rustup").into())
        );
        assert_eq!(env.iter().filter(|(name, _)| name == "HOME").count(), 1);
    }
}
