//! The status of every runtime under the current settings: whether it is installed, and whether a run with it could
//! start. For each runtime, a run is planned as if the user had named it, and the obstacles are reported.
//!
//! ```
//! use windlass::flags::AgentFlags;
//! use windlass::runtime_plan::RuntimeChecker;
//! use windlass::settings::Settings;
//!
//! let dir = tempfile::tempdir()?;
//! let (agent, settings) = (AgentFlags::default(), Settings::none(dir.path()));
//! let statuses = RuntimeChecker::new(&agent, &settings)?.statuses()?;
//! assert!(!statuses.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::cell::OnceCell;

use windlass_host::secret::Credentials;
use windlass_providers::{VENDORS, Vendor, models};
use windlass_registry::acp_registry::named_id;
use windlass_registry::{
    InstalledAgents, ProgramLocation, RuntimeStatus, UnusableReason, abilities, custom_agents,
};
use windlass_runtimes::agents::{AGENTS, ANY_ACP, AgentSpec};

use super::{ForeignPlan, RuntimePlan};
use crate::environment::Environment;
use crate::error::Error;
use crate::flags::AgentFlags;
use crate::model::ModelPlan;
use crate::settings::Settings;

impl From<Error> for UnusableReason {
    fn from(error: Error) -> Self {
        Self {
            what: error.message().to_owned(),
            hint: error.advice().map(str::to_owned),
        }
    }
}

/// Checks runtimes against the flags, the settings, the keys and this kernel.
pub struct RuntimeChecker<'a> {
    agent: &'a AgentFlags,
    settings: &'a Settings,
    credentials: Credentials,
    /// Whether this kernel can sandbox an agent. It is probed at most once, for the first foreign agent.
    kernel: OnceCell<Result<(), String>>,
}

impl<'a> RuntimeChecker<'a> {
    /// Reads the credentials file.
    pub fn new(agent: &'a AgentFlags, settings: &'a Settings) -> Result<Self, Error> {
        let credentials = Credentials::read(&settings.places.credentials_file())?;
        Ok(Self {
            agent,
            settings,
            credentials,
            kernel: OnceCell::new(),
        })
    }

    /// The status of each known runtime, of the user's own agents, and of agents installed from the ACP registry.
    pub fn statuses(&self) -> Result<Vec<RuntimeStatus>, Error> {
        let own = custom_agents::all(&self.settings.layers)?;
        let known = AGENTS
            .iter()
            .map(|known| self.status(known.name, known.about, known));
        let dir = self.settings.places.runtimes_dir();
        let listed = InstalledAgents { dir: &dir }.registry_agents();
        let listed = listed.iter().map(|agent| {
            let about = format!("{}, from the ACP registry", agent.name);
            RuntimeStatus {
                version: Some(agent.version.clone()),
                ..self.status(&format!("acp:{}", agent.id), &about, &ANY_ACP)
            }
        });
        Ok(known
            .chain(
                own.iter()
                    .map(|own| self.status(&own.name, &own.about, own.known)),
            )
            .chain(listed)
            .collect())
    }

    fn status(&self, name: &str, about: &str, known: &'static AgentSpec) -> RuntimeStatus {
        let (capabilities, features) = abilities(known);
        RuntimeStatus {
            name: name.to_owned(),
            about: about.to_owned(),
            known,
            found: self.found(name, known),
            version: None,
            usable: self.usable(name),
            capabilities,
            features,
        }
    }

    fn found(&self, name: &str, known: &AgentSpec) -> ProgramLocation {
        if known.is_built_in() {
            return ProgramLocation::BuiltIn;
        }
        let configured = self
            .settings
            .layers
            .text(&Settings::named("runtimes", name, "command"));
        let dir = self.settings.places.runtimes_dir();
        let installed = InstalledAgents { dir: &dir };
        let listed = named_id(name).and_then(|id| installed.registry_agent(id));
        let found = match &listed {
            Some(agent) => installed.find_registry_agent(agent),
            None => installed.find(known, configured),
        };
        found.map_or(ProgramLocation::Missing, ProgramLocation::At)
    }

    /// Plans a run with this runtime. Returns a description of its model access, or the reason why it cannot start.
    fn usable(&self, name: &str) -> Result<String, UnusableReason> {
        match RuntimePlan::named(name, self.agent, self.settings)? {
            RuntimePlan::Ours(_, ModelPlan::Given(given)) => {
                Ok(format!("uses the provider `{}`", given.provider.name()))
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

    fn foreign(&self, plan: &ForeignPlan) -> Result<String, UnusableReason> {
        let why = |what: String, hint: &str| UnusableReason {
            what,
            hint: Some(hint.to_owned()),
        };
        if !crate::sandboxing::holds_commands(self.settings)? {
            let what = format!(
                "`{}` is a foreign agent, and foreign agents run only in a sandbox",
                plan.setup.name
            );
            return Err(why(what, "omit `--sandbox full`"));
        }
        if let Err(text) = self
            .kernel
            .get_or_init(|| kernel(&self.settings.environment))
        {
            return Err(why(
                format!("this kernel cannot sandbox it: {text}"),
                "`windlass doctor` shows what to allow",
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
                "would request `{model}` from {}, but it is a model of {}",
                upstream.vendor.id, vendor.id
            );
            return Err(why(what, "name the vendor, as in `-m VENDOR/MODEL`"));
        }
        self.access(
            upstream.vendor,
            upstream.base_url.as_deref(),
            "with your key, which it never sees",
        )
    }

    /// The vendor that serves a model which the user named without a vendor.
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

    /// Describes the access to a vendor, or reports a missing address or key.
    fn access(
        &self,
        vendor: &Vendor,
        base_url: Option<&str>,
        how: &str,
    ) -> Result<String, UnusableReason> {
        let uses = |how: &str| Ok(format!("uses {} {how}", vendor.id));
        if self.agent.cassette.is_some() {
            return Ok("plays your cassette".to_owned());
        }
        if base_url.or(vendor.base_url).is_none() {
            let hint = format!(
                "set one with `--base-url`, or with the setting `providers.{}.base_url`",
                vendor.id
            );
            return Err(UnusableReason {
                what: format!("`{}` has no default address", vendor.id),
                hint: Some(hint),
            });
        }
        if vendor.local {
            return uses("on this machine");
        }
        let key = crate::wire::key(self.settings, vendor, &self.credentials);
        match vendor.key_env {
            _ if key.is_some()
                || crate::wire::aws_keys(vendor, &self.settings.environment).is_some() =>
            {
                uses(how)
            }
            None => uses("without a key"),
            Some(env) => {
                let hint =
                    format!("run `export {env}=…`, or name another vendor with `-m VENDOR/MODEL`");
                Err(UnusableReason {
                    what: format!("no key for {}: {env} is not set", vendor.id),
                    hint: Some(hint),
                })
            }
        }
    }
}

/// Whether this kernel can sandbox whole agents; an error gives the reason.
fn kernel(environment: &Environment) -> Result<(), String> {
    let offer = crate::sandboxing::offer(&environment.temp_dir(), environment)
        .map_err(|error| error.message().to_owned())?;
    let windlass_sandbox::Offer {
        namespaces, broker, ..
    } = offer;
    namespaces.or_else(|first| broker.map_err(|second| format!("{first}; {second}")))
}
