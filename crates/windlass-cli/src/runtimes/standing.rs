//! How a runtime stands here: whether it is found, in which version, whether it can work and why not. Whoever lists,
//! examines or chooses runtimes asks this, so that all of them say the same.

use std::cell::OnceCell;

use windlass_core::runtime::{Capabilities, Capability, Features, Work};
use windlass_host::secret::Credentials;
use windlass_providers::{VENDORS, Vendor, models};

use super::abilities::{abilities, does};
use super::{
    ForeignPlan, Known, Program, RUNTIMES, RuntimePlan, find_program, own, python, version,
};
use crate::args::AgentArgs;
use crate::failure::Failure;
use crate::plan::ModelPlan;
use crate::settings::Settings;

/// One runtime, as it stands.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    pub(crate) name: String,
    /// What it is, in a few words.
    pub(crate) about: String,
    pub(crate) known: &'static Known,
    pub(crate) found: Found,
    /// The version that is here, once it was looked for.
    pub(crate) version: Option<String>,
    /// With what it can work here, or why it cannot.
    pub(crate) usable: Result<String, Why>,
    pub(crate) can: Capabilities,
    pub(crate) held: Features,
}

/// Where a runtime is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    BuiltIn,
    At(Program),
    Nowhere,
}

/// Why a runtime cannot work here, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Why {
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

impl From<Failure> for Why {
    fn from(failure: Failure) -> Self {
        Self {
            what: failure.message(),
            hint: failure.to_do().map(str::to_owned),
        }
    }
}

/// What runtimes are held against: what was typed and set, the keys, and this kernel.
pub(crate) struct Ground<'a> {
    agent: &'a AgentArgs,
    settings: &'a Settings,
    credentials: Credentials,
    /// Whether agents can be held here; asked once, and only when somebody has to know.
    kernel: OnceCell<Result<(), String>>,
}

impl<'a> Ground<'a> {
    pub(crate) fn new(agent: &'a AgentArgs, settings: &'a Settings) -> Result<Self, Failure> {
        let credentials = Credentials::read(&settings.places.credentials_file())?;
        Ok(Self {
            agent,
            settings,
            credentials,
            kernel: OnceCell::new(),
        })
    }

    /// All runtimes that have a name, and the person's own.
    pub(crate) fn standings(&self) -> Result<Vec<Standing>, Failure> {
        let own = own::all(self.settings)?;
        let known = RUNTIMES
            .iter()
            .map(|known| self.standing(known.name, known.about, known));
        Ok(known
            .chain(
                own.iter()
                    .map(|own| self.standing(&own.name, &own.about, own.known)),
            )
            .collect())
    }

    fn standing(&self, name: &str, about: &str, known: &'static Known) -> Standing {
        let (can, held) = abilities(known);
        Standing {
            name: name.to_owned(),
            about: about.to_owned(),
            known,
            found: self.found(name, known),
            version: None,
            usable: self.usable(name),
            can,
            held,
        }
    }

    fn found(&self, name: &str, known: &Known) -> Found {
        if known.is_ours() {
            return Found::BuiltIn;
        }
        let configured = self
            .settings
            .layers
            .text(&Settings::named("runtimes", name, "command"));
        find_program(known, configured, self.settings).map_or(Found::Nowhere, Found::At)
    }

    /// Plans a run with it, as if it had been named, and looks for what such a run would miss.
    fn usable(&self, name: &str) -> Result<String, Why> {
        match RuntimePlan::named(name, self.agent, self.settings)? {
            RuntimePlan::Ours(_, ModelPlan::Scripted(_)) => Ok("plays your script".to_owned()),
            RuntimePlan::Ours(
                _,
                ModelPlan::Served {
                    vendor, base_url, ..
                },
            ) => self.access(vendor, base_url.as_deref(), "with your key"),
            RuntimePlan::Foreign(plan) => self.foreign(&plan),
        }
    }

    fn foreign(&self, plan: &ForeignPlan) -> Result<String, Why> {
        let why = |what: String, hint: &str| Why {
            what,
            hint: Some(hint.to_owned()),
        };
        if !crate::sandboxing::holds_commands(self.settings)? {
            let what = format!(
                "`{}` is not ours, and runs in a sandbox or not at all",
                plan.name
            );
            return Err(why(what, "leave `--sandbox full` out"));
        }
        if let Err(text) = self.kernel.get_or_init(kernel) {
            return Err(why(
                format!("this kernel cannot hold it: {text}"),
                "`windlass doctor` says what to allow",
            ));
        }
        let Some(upstream) = &plan.upstream else {
            return Ok("uses its own sign-in".to_owned());
        };
        if let Some(vendor) = plan.model.as_deref().and_then(|model| self.serves(model))
            && vendor.id != upstream.vendor.id
        {
            let model = plan.model.as_deref().unwrap_or_default();
            let what = format!(
                "would ask {} for `{model}`, which is a model of {}",
                upstream.vendor.id, vendor.id
            );
            return Err(why(what, "name the vendor, as in -m VENDOR/MODEL"));
        }
        self.access(
            upstream.vendor,
            upstream.base_url.as_deref(),
            "with your key, which it never sees",
        )
    }

    /// Who serves a model that was named without its vendor.
    fn serves(&self, model: &str) -> Option<&'static Vendor> {
        let named = self
            .settings
            .layers
            .text("model")
            .is_some_and(|named| named == model);
        let free = named && self.settings.layers.text("provider").is_none();
        VENDORS
            .iter()
            .filter(|_| free)
            .find(|vendor| models::lookup(vendor.id, model).is_some())
    }

    /// Whether a vendor can be asked.
    fn access(&self, vendor: &Vendor, base_url: Option<&str>, how: &str) -> Result<String, Why> {
        let asks = |how: &str| Ok(format!("asks {} {how}", vendor.id));
        if self.agent.cassette.is_some() {
            return Ok("plays your cassette".to_owned());
        }
        if base_url.or(vendor.base_url).is_none() {
            let hint = format!(
                "give one with --base-url, or set `providers.{}.base_url`",
                vendor.id
            );
            return Err(Why {
                what: format!("`{}` has no address of its own", vendor.id),
                hint: Some(hint),
            });
        }
        if vendor.local {
            return asks("on this machine");
        }
        let key = crate::wire::key(self.settings, vendor, &self.credentials);
        match vendor.key_env {
            _ if key.is_some() || crate::wire::aws_keys(vendor).is_some() => asks(how),
            None => asks("without a key"),
            Some(env) => {
                let hint =
                    format!("run `export {env}=…`, or name another vendor with -m VENDOR/MODEL");
                Err(Why {
                    what: format!("no key for {}: {env} is not set", vendor.id),
                    hint: Some(hint),
                })
            }
        }
    }
}

/// Whether this kernel holds whole agents.
fn kernel() -> Result<(), String> {
    let offer =
        crate::sandboxing::offer(&std::env::temp_dir()).map_err(|failure| failure.message())?;
    let windlass_sandbox::Offer {
        namespaces, broker, ..
    } = offer;
    namespaces.or_else(|first| broker.map_err(|second| format!("{first}; {second}")))
}

impl Standing {
    /// What it lacks for a kind of work.
    pub(crate) fn missing(&self, work: Work) -> Vec<&'static str> {
        let unmet = self.can.require(&self.name, work).err();
        unmet.map_or_else(Vec::new, |unmet| {
            unmet.missing.iter().map(Capability::word).collect()
        })
    }

    /// Whether it does a kind of work.
    pub(crate) fn does(&self, work: Work) -> bool {
        does(self.known, self.can, work)
    }

    /// The version it was last certified with.
    pub(crate) fn tested(&self) -> Option<&'static str> {
        self.known.install.version()
    }

    /// The command that brings it onto this machine.
    pub(crate) fn install(&self) -> Option<String> {
        self.tested()
            .map(|_| format!("windlass runtimes install {}", self.name))
    }

    /// Finds what takes a moment: its version, and for one that is not here whether it could be installed. A program
    /// that says nothing of itself otherwise is asked, in a sandbox.
    pub(crate) async fn look_closer(&mut self) {
        match &self.found {
            Found::BuiltIn => {}
            Found::At(program) => {
                self.version = version::lies_beside(&program.file, self.known.install.package());
                if self.version.is_none() {
                    self.version = version::asked(program).await;
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
    pub(crate) fn versions(&self) -> Option<String> {
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
    use super::super::install::Install;
    use super::*;

    /// An agent that needs a Python that nobody has.
    const SNAKE: Known = Known {
        name: "snake",
        program: Some("snake"),
        install: Install::Pip {
            packages: &["snake-agent[all]==1.2.0"],
            version: "1.2.0",
            pins: "",
            python: (98, 99),
            program: "bin/snake",
        },
        ..super::super::known::ANY_ACP
    };

    fn standing(found: Found, version: Option<&str>) -> Standing {
        let why = Why {
            what: "`snake` is not on this machine".to_owned(),
            hint: Some("install it".to_owned()),
        };
        let (can, held) = abilities(&RUNTIMES[2]);
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
        snake.look_closer().await;
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
        snake.look_closer().await;
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
