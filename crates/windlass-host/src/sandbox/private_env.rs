//! The environment of commands without namespaces. A home and caches cannot be mounted at their usual paths there, so
//! variables lead to private directories of the session, and to the tools below the user's own home.

use std::ffi::OsString;
use std::path::Path;

use windlass_sandbox::PRIVATE;

type Env = Vec<(OsString, OsString)>;

/// Tools below a home, by the variables that name them.
const TOOLS: &[(&str, &str)] = &[
    ("RUSTUP_HOME", ".rustup"),
    ("NVM_DIR", ".nvm"),
    ("PYENV_ROOT", ".pyenv"),
    ("VOLTA_HOME", ".volta"),
    ("GOMODCACHE", "go/pkg/mod"),
    ("PYTHONUSERBASE", ".local"),
];

/// Variables that name places a command cannot write. Without them programs take the usual places below the home.
const DROPPED: &[&str] = &[
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "npm_config_cache",
    "PIP_CACHE_DIR",
    "UV_CACHE_DIR",
    "GOCACHE",
    "YARN_CACHE_FOLDER",
    "GRADLE_USER_HOME",
    "DENO_DIR",
];

/// For commands, whose home is private.
pub(super) fn of_commands(mut env: Env, home: Option<&Path>) -> Env {
    for (name, below) in TOOLS {
        let place = home
            .map(|home| home.join(below))
            .filter(|place| place.is_dir());
        if let Some(place) = place.filter(|_| !env.iter().any(|(known, _)| known == name)) {
            env.push((name.into(), place.into()));
        }
    }
    env.retain(|(name, _)| name != "HOME");
    env.push(("HOME".into(), private("home")));
    with_private_caches(env)
}

/// For an agent, which has a home of its own.
pub(super) fn of_agent(env: Env) -> Env {
    with_private_caches(env)
}

fn with_private_caches(mut env: Env) -> Env {
    env.retain(|(name, _)| name != "CARGO_HOME" && !DROPPED.iter().any(|dropped| name == dropped));
    env.push(("CARGO_HOME".into(), private("home/.cargo")));
    env
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
