//! The additions to the sandbox for a foreign agent: a home, its login and hosts, and a clean environment. Apart from
//! creating the home, this is plain data and pure functions.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use windlass_sandbox::AgentHome;

use super::tools::{TOOL_VARIABLES, add_usual_places};
use super::{HostRule, NetPolicy};

/// The access that the user grants to an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentPlan {
    /// The agent's name, also the name of its home.
    pub name: String,
    /// Paths of the agent's program and of the files that it needs; read-only.
    pub read: Vec<PathBuf>,
    /// Directories that come first in its `PATH`, such as that of its interpreter.
    pub path: Vec<PathBuf>,
    /// The parent directory of homes. A home is `<session>/agents/<name>` below it, created on demand.
    pub homes: PathBuf,
    /// For a login: files of the user that the agent sees in its home, read-only.
    pub home_files: Vec<HomeFile>,
    /// For a login: hosts that the agent reaches in addition to those of commands.
    pub hosts: Vec<HostRule>,
}

/// A file of the user that an agent sees in its home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeFile {
    pub from: PathBuf,
    /// The path in the agent's home, relative to it.
    pub to: String,
}

impl AgentPlan {
    /// Returns the home of one session, and creates it if it does not exist. Only the owner has access to it.
    pub(super) fn home(&self, session: &str) -> Result<PathBuf, String> {
        let plain = |name: &str| Path::new(name).file_name() == Some(OsStr::new(name));
        if !plain(&self.name) || !plain(session) {
            return Err(format!("`{}` is not a valid agent name", self.name));
        }
        let home = self.homes.join(session).join("agents").join(&self.name);
        crate::private::create_dir(&home).map_err(|err| err.message)?;
        home.canonicalize()
            .map_err(|err| format!("cannot open the agent's home `{}`: {err}", home.display()))
    }

    /// Returns the home as the sandbox shows it.
    pub(super) fn shown(&self, home: &Path) -> AgentHome {
        // A symlink of the user does not resolve in the view, but its target does.
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let files = self
            .home_files
            .iter()
            .map(|file| (real(&file.from), PathBuf::from(&file.to)))
            .collect();
        AgentHome {
            from: home.to_owned(),
            files,
        }
    }

    /// Creates symlinks to the user's files in the home, for tiers that cannot mount them there. Returns the symlinks.
    pub(super) fn link_files(&self, home: &Path) -> Result<Vec<PathBuf>, String> {
        let mut links = Vec::new();
        for (from, to) in self.shown(home).files {
            let link = home.join(&to);
            let failed = |err: std::io::Error| {
                format!(
                    "cannot make `{}` visible to the agent: {err}",
                    from.display()
                )
            };
            std::fs::create_dir_all(link.parent().unwrap_or(home)).map_err(failed)?;
            // A crash may have left a symlink of an earlier run.
            if link.is_symlink() {
                std::fs::remove_file(&link).map_err(failed)?;
            }
            std::os::unix::fs::symlink(&from, &link).map_err(failed)?;
            links.push(link);
        }
        Ok(links)
    }

    /// Puts the agent's directories at the front of `PATH`.
    pub(super) fn search_first(&self, env: &mut Vec<(OsString, OsString)>) {
        if self.path.is_empty() {
            return;
        }
        let usual = env
            .iter()
            .position(|(name, _)| name == "PATH")
            .map(|at| env.remove(at).1)
            .unwrap_or_default();
        let all = self
            .path
            .iter()
            .cloned()
            .chain(std::env::split_paths(&usual));
        // A directory with a colon in its name cannot be in `PATH`; then `PATH` stays the same.
        env.push(("PATH".into(), std::env::join_paths(all).unwrap_or(usual)));
    }

    /// Returns the hosts that the agent reaches through the proxy.
    pub(super) fn rules(&self, net: &NetPolicy) -> Vec<HostRule> {
        match net {
            NetPolicy::Off | NetPolicy::Loopback => self.hosts.clone(),
            NetPolicy::Hosts(rules) => rules.iter().chain(&self.hosts).cloned().collect(),
            NetPolicy::Open => Vec::new(),
        }
    }
}

/// Returns the part of the user's environment that an agent gets: user name, language, and the directories of tools,
/// because the tools would otherwise look in the agent's home.
pub(super) fn environment(
    env: &[(OsString, OsString)],
    home: Option<&Path>,
    own_home: &Path,
) -> Vec<(OsString, OsString)> {
    let kept = |name: &OsStr| {
        let name = name.to_string_lossy();
        let tool = TOOL_VARIABLES.iter().any(|tool| name == tool.name);
        tool || name.starts_with("LC_") || KEPT.iter().any(|kept| name == *kept)
    };
    let mut left: Vec<(OsString, OsString)> =
        env.iter().filter(|(name, _)| kept(name)).cloned().collect();
    add_usual_places(&mut left, home, TOOL_VARIABLES);
    left.extend(crate::exec::neutral_env());
    left.push(("HOME".into(), own_home.into()));
    left
}

const KEPT: &[&str] = &["PATH", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ"];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expect: Option<&str>) {
        let env = [
            ("PATH", "/bin"),
            ("HOME", "/home/p"),
            ("LC_ALL", "C"),
            ("OPENAI_API_KEY", "k"),
            ("HTTPS_PROXY", "http://x"),
            ("no_proxy", "x"),
            ("XDG_CONFIG_HOME", "/home/p/.config"),
            ("EDITOR", "vi"),
            ("GOROOT", "/go"),
            ("SHLVL", "1"),
        ];
        let env: Vec<(OsString, OsString)> = env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let left = environment(&env, None, Path::new("/h"));
        let found: Vec<&OsString> = left
            .iter()
            .filter(|(left, _)| left == name)
            .map(|(_, value)| value)
            .collect();
        assert_eq!(
            found,
            expect.map(OsString::from).iter().collect::<Vec<_>>(),
            "{name}"
        );
    }

    #[test]
    fn an_agent_gets_only_a_small_part_of_the_users_environment() {
        for (name, value) in [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("GOROOT", "/go"),
            ("EDITOR", "true"),
            ("TERM", "dumb"),
        ] {
            check(name, Some(value));
        }
        check("HOME", Some("/h"));
        for name in [
            "OPENAI_API_KEY",
            "HTTPS_PROXY",
            "no_proxy",
            "XDG_CONFIG_HOME",
            "SHLVL",
            "CARGO_HOME",
        ] {
            check(name, None);
        }
    }

    #[test]
    fn tools_below_the_users_home_are_named_in_the_environment() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".cargo")).unwrap();
        let left = environment(&[], Some(home.path()), Path::new("/h"));
        assert!(left.contains(&("CARGO_HOME".into(), home.path().join(".cargo").into())));
        assert!(!left.iter().any(|(name, _)| name == "RUSTUP_HOME"));
    }

    #[test]
    fn the_directories_of_an_agent_come_first_in_path() {
        let with = |path: &[&str]| AgentPlan {
            path: path.iter().map(PathBuf::from).collect(),
            ..AgentPlan::default()
        };
        let check = |path: &[&str], expect: &str| {
            let mut env = vec![
                ("PATH".into(), "/usr/bin:/bin".into()),
                ("TZ".into(), "UTC".into()),
            ];
            with(path).search_first(&mut env);
            let found: Vec<_> = env.iter().filter(|(name, _)| name == "PATH").collect();
            assert_eq!(found, [&("PATH".into(), OsString::from(expect))]);
        };
        check(&[], "/usr/bin:/bin");
        check(&["/node/22/bin"], "/node/22/bin:/usr/bin:/bin");
        check(&["/odd:name"], "/usr/bin:/bin");
    }

    #[test]
    fn the_name_of_a_home_has_one_component() {
        let homes = tempfile::tempdir().unwrap();
        let plan = |name: &str| AgentPlan {
            name: name.into(),
            homes: homes.path().into(),
            ..AgentPlan::default()
        };
        assert!(plan("x").home("s1").unwrap().ends_with("s1/agents/x"));
        for name in ["", "..", "a/b", "/a", "a/"] {
            assert!(plan(name).home("s1").is_err(), "{name}");
        }
    }
}
