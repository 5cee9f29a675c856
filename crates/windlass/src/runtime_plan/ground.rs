//! How every runtime stands under these settings: a run with each is planned as if it had been named, and what such a run
//! would miss is said.
//!
//! ```
//! use windlass::flags::AgentFlags;
//! use windlass::runtime_plan::Ground;
//! use windlass::settings::Settings;
//!
//! let dir = tempfile::tempdir()?;
//! let (agent, settings) = (AgentFlags::default(), Settings::none(dir.path()));
//! let standings = Ground::new(&agent, &settings)?.standings()?;
//! assert!(!standings.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::cell::OnceCell;

use windlass_host::secret::Credentials;
use windlass_providers::{VENDORS, Vendor, models};
use windlass_registry::acp_registry::named_id;
use windlass_registry::{Found, Installed, Standing, Why, abilities, own};
use windlass_runtimes::agents::{AGENTS, ANY_ACP, AgentSpec};

use super::{ForeignPlan, RuntimePlan};
use crate::environment::Environment;
use crate::error::Error;
use crate::flags::AgentFlags;
use crate::model::ModelPlan;
use crate::settings::Settings;

impl From<Error> for Why {
    fn from(error: Error) -> Self {
        Self {
            what: error.message().to_owned(),
            hint: error.advice().map(str::to_owned),
        }
    }
}

/// What runtimes are held against: what was typed and set, the keys, and this kernel.
pub struct Ground<'a> {
    agent: &'a AgentFlags,
    settings: &'a Settings,
    credentials: Credentials,
    /// Whether agents can be held here; asked once, and only when somebody has to know.
    kernel: OnceCell<Result<(), String>>,
}

impl<'a> Ground<'a> {
    /// Reads the keys that are there.
    pub fn new(agent: &'a AgentFlags, settings: &'a Settings) -> Result<Self, Error> {
        let credentials = Credentials::read(&settings.places.credentials_file())?;
        Ok(Self {
            agent,
            settings,
            credentials,
            kernel: OnceCell::new(),
        })
    }

    /// All runtimes that have a name, and the person's own.
    pub fn standings(&self) -> Result<Vec<Standing>, Error> {
        let own = own::all(&self.settings.layers)?;
        let known = AGENTS
            .iter()
            .map(|known| self.standing(known.name, known.about, known));
        let dir = self.settings.places.runtimes_dir();
        let listed = Installed { dir: &dir }.registry_agents();
        let listed = listed.iter().map(|agent| {
            let about = format!("{}, from the ACP registry", agent.name);
            Standing {
                version: Some(agent.version.clone()),
                ..self.standing(&format!("acp:{}", agent.id), &about, &ANY_ACP)
            }
        });
        Ok(known
            .chain(
                own.iter()
                    .map(|own| self.standing(&own.name, &own.about, own.known)),
            )
            .chain(listed)
            .collect())
    }

    fn standing(&self, name: &str, about: &str, known: &'static AgentSpec) -> Standing {
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

    fn found(&self, name: &str, known: &AgentSpec) -> Found {
        if known.is_built_in() {
            return Found::BuiltIn;
        }
        let configured = self
            .settings
            .layers
            .text(&Settings::named("runtimes", name, "command"));
        let dir = self.settings.places.runtimes_dir();
        let installed = Installed { dir: &dir };
        let listed = named_id(name).and_then(|id| installed.registry_agent(id));
        let found = match &listed {
            Some(agent) => installed.find_registry_agent(agent),
            None => installed.find(known, configured),
        };
        found.map_or(Found::Nowhere, Found::At)
    }

    /// Plans a run with it, as if it had been named, and looks for what such a run would miss.
    fn usable(&self, name: &str) -> Result<String, Why> {
        match RuntimePlan::named(name, self.agent, self.settings)? {
            RuntimePlan::Ours(_, ModelPlan::Given(given)) => {
                Ok(format!("asks the provider `{}`", given.provider.name()))
            }
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
                plan.setup.name
            );
            return Err(why(what, "leave `--sandbox full` out"));
        }
        if let Err(text) = self
            .kernel
            .get_or_init(|| kernel(&self.settings.environment))
        {
            return Err(why(
                format!("this kernel cannot hold it: {text}"),
                "`windlass doctor` says what to allow",
            ));
        }
        let Some(upstream) = &plan.upstream else {
            return Ok("uses its own sign-in".to_owned());
        };
        if let Some(vendor) = plan
            .setup
            .model
            .as_deref()
            .and_then(|model| self.serves(model))
            && vendor.id != upstream.vendor.id
        {
            let model = plan.setup.model.as_deref().unwrap_or_default();
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
            _ if key.is_some()
                || crate::wire::aws_keys(vendor, &self.settings.environment).is_some() =>
            {
                asks(how)
            }
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
fn kernel(environment: &Environment) -> Result<(), String> {
    let offer = crate::sandboxing::offer(&environment.temp_dir(), environment)
        .map_err(|error| error.message().to_owned())?;
    let windlass_sandbox::Offer {
        namespaces, broker, ..
    } = offer;
    namespaces.or_else(|first| broker.map_err(|second| format!("{first}; {second}")))
}
