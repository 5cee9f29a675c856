//! What an agent that is not ours gets beside what commands get: a home, its own login and hosts, and a clean
//! environment. Plain data and pure functions, but for making the home.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use windlass_sandbox::AgentHome;

use super::tools::{TOOL_VARIABLES, add_usual_places};
use super::{HostRule, NetPolicy};

/// What a person lets an agent have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentPlan {
    /// Its name, which is the name of its home.
    pub name: String,
    /// Where its program is, and what that needs: shown, and not writable.
    pub read: Vec<PathBuf>,
    /// Folders that come first in its `PATH`: where its interpreter is.
    pub path: Vec<PathBuf>,
    /// Where homes are: each is `<session>/agents/<name>` below it, and made when it is needed.
    pub homes: PathBuf,
    /// For a login: files of the person's that it sees in its home, and does not write.
    pub home_files: Vec<HomeFile>,
    /// For a login: hosts that it reaches whatever commands reach.
    pub hosts: Vec<HostRule>,
}

/// A file of the person's that an agent sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeFile {
    /// Where it is.
    pub from: PathBuf,
    /// Its name in the agent's home, relative to it.
    pub to: String,
}

impl AgentPlan {
    /// The home of one session, made where it is not there yet. Nobody but the owner gets into it.
    pub(super) fn home(&self, session: &str) -> Result<PathBuf, String> {
        let plain = |name: &str| Path::new(name).file_name() == Some(OsStr::new(name));
        if !plain(&self.name) || !plain(session) {
            return Err(format!("`{}` is no name for an agent", self.name));
        }
        let home = self.homes.join(session).join("agents").join(&self.name);
        crate::private::create_dir(&home).map_err(|err| err.message)?;
        home.canonicalize()
            .map_err(|err| format!("the agent's home `{}` cannot be had: {err}", home.display()))
    }

    /// The home as the sandbox shows it.
    pub(super) fn shown(&self, home: &Path) -> AgentHome {
        // A link of the person's leads nowhere in the view, what it leads to does.
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

    /// Shows the person's files in its home by links, where no view can show them there. Gives the links.
    pub(super) fn link_files(&self, home: &Path) -> Result<Vec<PathBuf>, String> {
        let mut links = Vec::new();
        for (from, to) in self.shown(home).files {
            let link = home.join(&to);
            let failed = |err: std::io::Error| {
                format!("`{}` cannot be shown to the agent: {err}", from.display())
            };
            std::fs::create_dir_all(link.parent().unwrap_or(home)).map_err(failed)?;
            // A link of an earlier run may be left from a crash.
            if link.is_symlink() {
                std::fs::remove_file(&link).map_err(failed)?;
            }
            std::os::unix::fs::symlink(&from, &link).map_err(failed)?;
            links.push(link);
        }
        Ok(links)
    }

    /// Puts its folders before those in which programs are searched anyway.
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
        // A folder with a colon in its name cannot be in it; then the usual ones are left.
        env.push(("PATH".into(), std::env::join_paths(all).unwrap_or(usual)));
    }

    /// Whom it may speak to by way of the proxy.
    pub(super) fn rules(&self, net: &NetPolicy) -> Vec<HostRule> {
        match net {
            NetPolicy::Off | NetPolicy::Loopback => self.hosts.clone(),
            NetPolicy::Hosts(rules) => rules.iter().chain(&self.hosts).cloned().collect(),
            NetPolicy::Open => Vec::new(),
        }
    }
}

/// What is left of a person's environment for an agent: what names them and their language, and where their tools are,
/// because the agent's home is not the one those would look in.
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
    fn little_of_a_persons_environment_is_left_for_an_agent() {
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
    fn tools_are_found_where_they_are_below_a_home() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".cargo")).unwrap();
        let left = environment(&[], Some(home.path()), Path::new("/h"));
        assert!(left.contains(&("CARGO_HOME".into(), home.path().join(".cargo").into())));
        assert!(!left.iter().any(|(name, _)| name == "RUSTUP_HOME"));
    }

    #[test]
    fn the_interpreter_of_an_agent_is_found_first() {
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
    fn a_home_has_one_name() {
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
