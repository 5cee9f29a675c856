//! The status of a runtime on this machine: its location, its version, and whether it is usable. Lists, checks and the
//! choice of runtimes use the same status, so that they agree.

use windlass_core::runtime::{Capabilities, Capability, Features, Work};
use windlass_host::sandbox::Helper;
use windlass_runtimes::agents::AgentSpec;

use crate::abilities::does;
use crate::program::AgentProgram;
use crate::{python, version};

/// The status of one runtime.
#[derive(Debug, Clone)]
pub struct RuntimeStatus {
    /// The value for `--runtime`.
    pub name: String,
    /// A short description.
    pub about: String,
    /// The row in the table of agents; for an agent of the settings, the row of its kind.
    pub known: &'static AgentSpec,
    pub found: ProgramLocation,
    /// The installed version; [`Self::find_version`] finds it.
    pub version: Option<String>,
    /// A description of its model access, or the reason why it cannot be used.
    pub usable: Result<String, UnusableReason>,
    /// The capabilities without options. An option that removes tools also removes capabilities.
    pub capabilities: Capabilities,
    /// The features without options.
    pub features: Features,
}

/// The location of a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramLocation {
    /// A part of Windlass.
    BuiltIn,
    At(AgentProgram),
    /// Not installed.
    Missing,
}

/// The reason why a runtime cannot be used, and advice for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableReason {
    pub what: String,
    pub hint: Option<String>,
}

impl RuntimeStatus {
    /// The names of the capabilities that the runtime lacks for a kind of work.
    pub fn missing(&self, work: Work) -> Vec<&'static str> {
        let unmet = self.capabilities.require(&self.name, work).err();
        unmet.map_or_else(Vec::new, |unmet| {
            unmet.missing.iter().map(Capability::word).collect()
        })
    }

    /// Whether the runtime supports a kind of work.
    pub fn does(&self, work: Work) -> bool {
        does(self.known, self.capabilities, work)
    }

    /// The version with which the agent was certified last.
    pub fn tested(&self) -> Option<&'static str> {
        self.known.install.version()
    }

    /// The command that installs the agent, if Windlass can install it.
    pub fn install(&self) -> Option<String> {
        self.tested()
            .map(|_| format!("windlass runtimes install {}", self.name))
    }

    /// Finds the version of an installed agent; for another one, checks whether it can be installed. This is separate,
    /// because it is slow: if no file contains the version, the program runs with `--version` in a sandbox.
    pub async fn find_version(&mut self, helper: Option<Helper>) {
        match &self.found {
            ProgramLocation::BuiltIn => {}
            // The version of an agent from the ACP registry is already known.
            ProgramLocation::At(_) if self.version.is_some() => {}
            ProgramLocation::At(program) => {
                self.version = version::read_installed(&program.file, self.known.install.package());
                if let (None, Some(helper)) = (&self.version, helper) {
                    self.version = version::run_version_flag(program, helper).await;
                }
            }
            ProgramLocation::Missing => {
                let Some(range) = self.known.install.python() else {
                    return;
                };
                let found = tokio::task::spawn_blocking(move || python::find(range)).await;
                if let Ok(Err(why)) = found
                    && let Err(not) = &mut self.usable
                {
                    not.what = format!("{}; {why}", not.what);
                    let wanted = python::range(range.0, range.1);
                    not.hint = Some(format!(
                        "install {wanted} first, then `windlass runtimes install {}`",
                        self.name
                    ));
                }
            }
        }
    }

    /// A description of the installed version and the tested version; `None` for a built-in runtime.
    pub fn versions(&self) -> Option<String> {
        let tested = self.tested().map(|tested| format!("tested with {tested}"));
        let here = match (&self.found, &self.version) {
            (ProgramLocation::BuiltIn, _) => return None,
            (ProgramLocation::Missing, _) => return tested,
            (ProgramLocation::At(_), Some(version)) if Some(version.as_str()) == self.tested() => {
                return Some(format!("version {version}, as tested"));
            }
            (ProgramLocation::At(_), Some(version)) => format!("version {version}"),
            (ProgramLocation::At(_), None) => "unknown version".to_owned(),
        };
        Some(tested.map_or_else(|| here.clone(), |tested| format!("{here}; {tested}")))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use windlass_runtimes::agents::AGENTS;
    use windlass_runtimes::install::Install;

    use super::*;
    use crate::abilities::abilities;

    /// An agent that needs a version of Python that does not exist.
    const SNAKE: AgentSpec = AgentSpec {
        name: "snake",
        program: Some("snake"),
        install: Install::Pip {
            packages: &["snake-agent[all]==1.2.0"],
            version: "1.2.0",
            pins: "",
            python: (98, 99),
            program: "bin/snake",
        },
        ..windlass_runtimes::agents::ANY_ACP
    };

    fn status(found: ProgramLocation, version: Option<&str>) -> RuntimeStatus {
        let why = UnusableReason {
            what: "`snake` is not installed".to_owned(),
            hint: Some("install it".to_owned()),
        };
        let (capabilities, features) = abilities(&AGENTS[2]);
        let version = version.map(str::to_owned);
        let about = String::new();
        RuntimeStatus {
            name: "snake".to_owned(),
            about,
            known: &SNAKE,
            found,
            version,
            usable: Err(why),
            capabilities,
            features,
        }
    }

    #[tokio::test]
    async fn a_missing_python_is_reported() {
        let mut snake = status(ProgramLocation::Missing, None);
        snake.find_version(None).await;
        let why = snake.usable.unwrap_err();
        assert!(
            why.what
                .starts_with("`snake` is not installed; it needs Python 3.98 to 3.99, and"),
            "{why:?}"
        );
        assert!(
            why.hint
                .unwrap()
                .contains("install Python 3.98 to 3.99 first")
        );
    }

    #[tokio::test]
    async fn the_version_of_a_python_agent_is_read_from_its_environment() {
        let dir = tempfile::tempdir().unwrap();
        let metadata = dir
            .path()
            .join("lib/python3.99/site-packages/snake_agent-1.3.0.dist-info");
        std::fs::create_dir_all(&metadata).unwrap();
        std::fs::write(
            metadata.join("METADATA"),
            "Name: snake-agent\nVersion: 1.3.0\n",
        )
        .unwrap();
        let program = AgentProgram {
            file: dir.path().join("bin/snake"),
            ..AgentProgram::default()
        };
        let mut snake = status(ProgramLocation::At(program), None);
        snake.find_version(None).await;
        assert_eq!(
            snake.versions().as_deref(),
            Some("version 1.3.0; tested with 1.2.0")
        );
    }

    #[test]
    fn installed_and_tested_versions_are_described() {
        let at = || ProgramLocation::At(AgentProgram::default());
        let check = |found, version, says: Option<&str>| {
            assert_eq!(status(found, version).versions().as_deref(), says)
        };
        check(at(), Some("1.2.0"), Some("version 1.2.0, as tested"));
        check(
            at(),
            Some("1.3.0"),
            Some("version 1.3.0; tested with 1.2.0"),
        );
        check(at(), None, Some("unknown version; tested with 1.2.0"));
        check(ProgramLocation::Missing, None, Some("tested with 1.2.0"));
        check(ProgramLocation::BuiltIn, None, None);
        assert_eq!(
            status(at(), None).missing(Work::FullCoder),
            ["native_tool_loop", "filesystem_edit", "shell"]
        );
    }
}
