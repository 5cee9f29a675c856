//! How a runtime stands here: whether it is found, in which version, whether it can work and why not. Whoever lists,
//! examines or chooses runtimes asks this, so that all of them say the same.

use windlass_core::runtime::{Capabilities, Capability, Features, Work};
use windlass_host::sandbox::Helper;
use windlass_runtimes::agents::AgentSpec;

use crate::abilities::does;
use crate::program::Program;
use crate::{python, version};

/// One runtime, as it stands.
#[derive(Debug, Clone)]
pub struct Standing {
    /// As `--runtime` takes it.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// Its row; for an agent of the settings, the row of its kind.
    pub known: &'static AgentSpec,
    /// Where its program is.
    pub found: Found,
    /// The version that is here, once it was looked for.
    pub version: Option<String>,
    /// With what it can work here, or why it cannot.
    pub usable: Result<String, Why>,
    /// Without options; fewer tools are fewer capabilities.
    pub can: Capabilities,
    /// Without options.
    pub held: Features,
}

/// Where a runtime is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It is a part of this program.
    BuiltIn,
    /// Its program was found.
    At(Program),
    /// Its program is not on this machine.
    Nowhere,
}

/// Why a runtime cannot work here, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// One sentence.
    pub what: String,
    /// What the user can do.
    pub hint: Option<String>,
}

impl Standing {
    /// What it lacks for a kind of work.
    pub fn missing(&self, work: Work) -> Vec<&'static str> {
        let unmet = self.can.require(&self.name, work).err();
        unmet.map_or_else(Vec::new, |unmet| {
            unmet.missing.iter().map(Capability::word).collect()
        })
    }

    /// Whether it does a kind of work.
    pub fn does(&self, work: Work) -> bool {
        does(self.known, self.can, work)
    }

    /// The version it was last certified with.
    pub fn tested(&self) -> Option<&'static str> {
        self.known.install.version()
    }

    /// The command that brings it onto this machine.
    pub fn install(&self) -> Option<String> {
        self.tested()
            .map(|_| format!("windlass runtimes install {}", self.name))
    }

    /// Finds what takes a moment: its version, and for one that is not here whether it could be installed. A program
    /// that says nothing of itself otherwise is asked, in a sandbox.
    pub async fn look_closer(&mut self, helper: Option<Helper>) {
        match &self.found {
            Found::BuiltIn => {}
            // Known already, as for an agent of the ACP registry.
            Found::At(_) if self.version.is_some() => {}
            Found::At(program) => {
                self.version = version::lies_beside(&program.file, self.known.install.package());
                if let (None, Some(helper)) = (&self.version, helper) {
                    self.version = version::asked(program, helper).await;
                }
            }
            Found::Nowhere => {
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

    /// What is here and what was tested, in words; nothing for what is built in.
    pub fn versions(&self) -> Option<String> {
        let tested = self.tested().map(|tested| format!("tested with {tested}"));
        let here = match (&self.found, &self.version) {
            (Found::BuiltIn, _) => return None,
            (Found::Nowhere, _) => return tested,
            (Found::At(_), Some(version)) if Some(version.as_str()) == self.tested() => {
                return Some(format!("version {version}, as tested"));
            }
            (Found::At(_), Some(version)) => format!("version {version}"),
            (Found::At(_), None) => "version not known".to_owned(),
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

    /// An agent that needs a Python that nobody has.
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

    fn standing(found: Found, version: Option<&str>) -> Standing {
        let why = Why {
            what: "`snake` is not on this machine".to_owned(),
            hint: Some("install it".to_owned()),
        };
        let (can, held) = abilities(&AGENTS[2]);
        let version = version.map(str::to_owned);
        let about = String::new();
        Standing {
            name: "snake".to_owned(),
            about,
            known: &SNAKE,
            found,
            version,
            usable: Err(why),
            can,
            held,
        }
    }

    #[tokio::test]
    async fn an_agent_whose_python_is_not_here_says_so() {
        let mut snake = standing(Found::Nowhere, None);
        snake.look_closer(None).await;
        let why = snake.usable.unwrap_err();
        assert!(
            why.what
                .starts_with("`snake` is not on this machine; it needs Python 3.98 to 3.99, and"),
            "{why:?}"
        );
        assert!(
            why.hint
                .unwrap()
                .contains("install Python 3.98 to 3.99 first")
        );
    }

    #[tokio::test]
    async fn the_version_of_a_python_agent_lies_in_its_environment() {
        let dir = tempfile::tempdir().unwrap();
        let facts = dir
            .path()
            .join("lib/python3.99/site-packages/snake_agent-1.3.0.dist-info");
        std::fs::create_dir_all(&facts).unwrap();
        std::fs::write(
            facts.join("METADATA"),
            "Name: snake-agent\nVersion: 1.3.0\n",
        )
        .unwrap();
        let program = Program {
            file: dir.path().join("bin/snake"),
            ..Program::default()
        };
        let mut snake = standing(Found::At(program), None);
        snake.look_closer(None).await;
        assert_eq!(
            snake.versions().as_deref(),
            Some("version 1.3.0; tested with 1.2.0")
        );
    }

    #[test]
    fn a_version_that_is_not_the_tested_one_is_said() {
        let at = || Found::At(Program::default());
        let check = |found, version, says: Option<&str>| {
            assert_eq!(standing(found, version).versions().as_deref(), says)
        };
        check(at(), Some("1.2.0"), Some("version 1.2.0, as tested"));
        check(
            at(),
            Some("1.3.0"),
            Some("version 1.3.0; tested with 1.2.0"),
        );
        check(at(), None, Some("version not known; tested with 1.2.0"));
        check(Found::Nowhere, None, Some("tested with 1.2.0"));
        check(Found::BuiltIn, None, None);
        assert_eq!(
            standing(at(), None).missing(Work::FullCoder),
            ["native_tool_loop", "filesystem_edit", "shell"]
        );
    }
}
