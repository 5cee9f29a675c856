//! Runtimes, probes and choices as rows for programs, and the agents that can be installed.
//!
//! ```
//! use windlass::agents::{
//!     ChoiceRow, InstalledAgent, OtherRuntime, ProbeRow, RegistryRow, RuntimeReport, choose, install_agents,
//!     names_to_probe, needs_of, registry_rows, remove_agent, runtime_statuses,
//! };
//! use windlass::flags::AgentFlags;
//! use windlass::settings::Settings;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let settings = Settings::none(dir.path());
//! let statuses = runtime_statuses(&AgentFlags::default(), &settings).await?;
//! let native: RuntimeReport = RuntimeReport::from(&statuses[0]);
//! let probe: Option<ProbeRow> = native.probe;
//! assert!(native.built_in && !native.usable && probe.is_none(), "there is no key");
//! assert!(names_to_probe(&["no-such-agent".into()], &statuses, &settings).is_err());
//!
//! let choice = ChoiceRow::from(&choose(&statuses, needs_of(&[], None), None)?);
//! let others: &[OtherRuntime] = &choice.others;
//! assert!(choice.chosen.is_none() && others.len() == statuses.len());
//!
//! let rows: Vec<RegistryRow> = registry_rows(&settings)?;
//! assert!(rows.iter().any(|row| row.id == "cline" && row.installed.is_none()));
//!
//! let installed: Result<Vec<Result<InstalledAgent, _>>, _> =
//!     install_agents(&["native".into()], &settings, &|_| ()).await;
//! assert!(installed.is_err(), "it is built in");
//! assert!(!remove_agent("codex", &settings)?, "it was not installed");
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::runtime::{Capability, Feature, Work};
use windlass_host::config::nearest;
use windlass_registry::acp_registry::{named_id, registry_name};
use windlass_registry::{
    InstalledAgents, ProbeResult, ProgramLocation, RuntimeChoice, RuntimeStatus, custom_agents,
    unknown_runtime,
};
use windlass_runtimes::agents::{AGENTS, AgentSpec};

use crate::acp_agents::{install_from_registry, registry};
use crate::error::Error;
use crate::flags::AgentFlags;
use crate::runtime_plan::RuntimeChecker;
use crate::sandboxing;
use crate::settings::Settings;

/// A runtime: whether it is installed and usable, and its capabilities.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RuntimeReport {
    /// The value for `--runtime`.
    pub name: String,
    pub about: String,
    pub built_in: bool,
    /// Whether it is built in or installed.
    pub found: bool,
    pub path: Option<String>,
    pub version: Option<String>,
    /// The version with which the agent was certified last.
    pub tested: Option<&'static str>,
    /// Whether a run could start.
    pub usable: bool,
    /// The model access that a run would use; `None` if the runtime is not usable.
    pub with: Option<String>,
    /// The reason why it is not usable.
    pub why: Option<String>,
    /// The action that would make it usable.
    pub todo: Option<String>,
    /// The command that installs it; `None` for built-in agents and agents of the settings.
    pub install: Option<String>,
    /// The command that installs it without Windlass.
    pub by_hand: Option<String>,
    /// The kinds of work that it can do.
    pub work: Vec<&'static str>,
    /// The missing capabilities for each kind of work that it cannot do.
    pub missing: BTreeMap<&'static str, Vec<&'static str>>,
    /// The vendors of which the first one with a key is used if the user names no vendor.
    pub vendors: Vec<&'static str>,
    pub capabilities: Vec<&'static str>,
    pub features: Vec<&'static str>,
    /// The result of the probe, if the runtime was probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeRow>,
}

/// The result of probing a runtime.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ProbeRow {
    pub works: bool,
    pub seconds: f64,
    /// The number of model requests.
    pub requests: usize,
    /// The observed work; `None` after a failure.
    pub seen: Option<&'static str>,
    /// The first step that failed.
    pub step: Option<&'static str>,
    pub why: Option<String>,
    /// The last lines on standard error, after a failure.
    pub said: Option<String>,
}

/// The result of a choice between runtimes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChoiceRow {
    pub needs: Vec<&'static str>,
    /// `None` if no runtime is suitable.
    pub chosen: Option<String>,
    pub others: Vec<OtherRuntime>,
}

/// A runtime that was not chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OtherRuntime {
    pub name: String,
    /// A stable word for the reason.
    pub code: &'static str,
    /// The reason.
    pub why: String,
    /// The action that would make the runtime usable.
    pub todo: Option<String>,
}

/// An agent of the ACP registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RegistryRow {
    /// The id, as in `acp:ID`.
    pub id: String,
    pub name: String,
    /// The version that would be installed.
    pub version: String,
    /// The source of the installation; `None` if there is none for this machine.
    pub source: Option<&'static str>,
    /// The installed version.
    pub installed: Option<String>,
    /// The certified runtime for the same agent.
    pub built_in: Option<&'static str>,
}

/// An agent that was installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InstalledAgent {
    /// The value for `--runtime`.
    pub name: String,
    pub version: String,
    /// The path of its program.
    pub program: PathBuf,
}

/// The status of every runtime, with the installed versions.
pub async fn runtime_statuses(
    agent: &AgentFlags,
    settings: &Settings,
) -> Result<Vec<RuntimeStatus>, Error> {
    let mut statuses = RuntimeChecker::new(agent, settings)?.statuses()?;
    let helper = sandboxing::helper(&settings.environment).ok();
    let all = statuses.iter_mut();
    join_all(all.map(|status| status.find_version(helper.clone()))).await;
    Ok(statuses)
}

impl From<&RuntimeStatus> for RuntimeReport {
    fn from(status: &RuntimeStatus) -> Self {
        let work = Work::ALL.iter().filter(|work| status.does(**work));
        let missing = Work::ALL
            .iter()
            .map(|work| (work.name(), status.missing(*work)))
            .filter(|(_, missing)| !missing.is_empty());
        let (path, version) = match &status.found {
            ProgramLocation::At(program) => (
                Some(program.file.display().to_string()),
                status.version.clone(),
            ),
            ProgramLocation::BuiltIn => (None, Some(env!("CARGO_PKG_VERSION").to_owned())),
            ProgramLocation::Missing => (None, None),
        };
        let unusable = status.usable.as_ref().err();
        Self {
            name: status.name.clone(),
            about: status.about.clone(),
            built_in: status.found == ProgramLocation::BuiltIn,
            found: status.found != ProgramLocation::Missing,
            path,
            version,
            tested: status.tested(),
            usable: status.usable.is_ok(),
            with: status.usable.as_ref().ok().cloned(),
            why: unusable.map(|why| why.what.clone()),
            todo: unusable.and_then(|why| why.hint.clone()),
            install: status.install(),
            by_hand: status
                .tested()
                .map(|_| status.known.install.manual_command()),
            work: work.map(|work| work.name()).collect(),
            missing: missing.collect(),
            vendors: status.known.vendors.to_vec(),
            capabilities: status.capabilities.iter().map(Capability::word).collect(),
            features: status.features.iter().map(Feature::word).collect(),
            probe: None,
        }
    }
}

impl From<&ProbeResult> for ProbeRow {
    fn from(probed: &ProbeResult) -> Self {
        let failure = probed.result.as_ref().err();
        Self {
            works: failure.is_none(),
            seconds: (probed.took.as_secs_f64() * 1_000.0).round() / 1_000.0,
            requests: probed.requests,
            seen: probed.result.as_ref().ok().copied(),
            step: failure.map(|failure| failure.step.word()),
            why: failure.map(|failure| failure.why.clone()),
            said: failure.map(|failure| failure.last_output.clone()),
        }
    }
}

impl From<&RuntimeChoice> for ChoiceRow {
    fn from(choice: &RuntimeChoice) -> Self {
        let others = choice.others.iter().map(|(name, why)| OtherRuntime {
            name: name.clone(),
            code: why.code(),
            why: why.to_string(),
            todo: why.to_do().map(str::to_owned),
        });
        Self {
            needs: choice.needs.iter().map(|need| need.word()).collect(),
            chosen: choice.chosen.clone(),
            others: others.collect(),
        }
    }
}

/// The runtimes to probe: the named ones, or else all installed ones. An unknown name is an error.
pub fn names_to_probe(
    names: &[String],
    statuses: &[RuntimeStatus],
    settings: &Settings,
) -> Result<Vec<String>, Error> {
    if names.is_empty() {
        let here = statuses
            .iter()
            .filter(|one| one.found != ProgramLocation::Missing);
        return Ok(here.map(|one| one.name.clone()).collect());
    }
    let is_known =
        |name: &&String| name.starts_with("acp:") || statuses.iter().any(|one| one.name == **name);
    match names.iter().find(|name| !is_known(name)) {
        Some(name) => Err(unknown_runtime(name, &custom_agents::all(&settings.layers)?).into()),
        None => Ok(names.to_vec()),
    }
}

/// The agents of the ACP registry, in the order of the registry.
pub fn registry_rows(settings: &Settings) -> Result<Vec<RegistryRow>, Error> {
    let dir = settings.places.runtimes_dir();
    let installed = InstalledAgents { dir: &dir };
    let agents = registry(settings)?.agents;
    Ok(agents
        .into_iter()
        .map(|agent| RegistryRow {
            source: agent.source_word(),
            installed: installed.registry_agent(&agent.id).map(|here| here.version),
            built_in: agent.built_in().map(|spec| spec.name),
            id: agent.id,
            name: agent.name,
            version: agent.version,
        })
        .collect())
}

/// Installs agents of the built-in table, and `acp:ID` from the ACP registry; without names, all of the table. An unknown
/// name is an error before anything is installed. A failure does not stop the installation of the others. `say` receives
/// a line of progress for each step.
pub async fn install_agents(
    names: &[String],
    settings: &Settings,
    say: &dyn Fn(&str),
) -> Result<Vec<Result<InstalledAgent, Error>>, Error> {
    let wanted: Vec<AgentSource<'_>> = match names {
        [] => installable().map(AgentSource::Table).collect(),
        names => names
            .iter()
            .map(|name| AgentSource::named(name))
            .collect::<Result<_, _>>()?,
    };
    let mut results = Vec::new();
    for source in wanted {
        results.push(source.install(settings, say).await);
    }
    Ok(results)
}

fn installable() -> impl Iterator<Item = &'static AgentSpec> {
    AGENTS
        .iter()
        .filter(|known| known.install.version().is_some())
}

/// Removes an agent that [`install_agents`] installed; returns `false` if it was not installed.
pub fn remove_agent(name: &str, settings: &Settings) -> Result<bool, Error> {
    let dir = settings.places.runtimes_dir();
    let dir_name = match AgentSource::named(name)? {
        AgentSource::Table(known) => known.name.to_owned(),
        AgentSource::Registry(id) => registry_name(id),
    };
    Ok(InstalledAgents { dir: &dir }.remove(&dir_name)?)
}

/// The source of an agent to install or to remove.
enum AgentSource<'a> {
    /// The built-in table.
    Table(&'static AgentSpec),
    /// The ACP registry, by id.
    Registry(&'a str),
}

impl<'a> AgentSource<'a> {
    async fn install(
        self,
        settings: &Settings,
        say: &dyn Fn(&str),
    ) -> Result<InstalledAgent, Error> {
        let (name, (version, program)) = match self {
            Self::Table(known) => {
                let dir = settings.places.runtimes_dir();
                let program = InstalledAgents { dir: &dir }.install(known, say)?;
                let version = known.install.version().unwrap_or_default();
                (known.name.to_owned(), (version.to_owned(), program))
            }
            Self::Registry(id) => (
                format!("acp:{id}"),
                install_from_registry(id, settings, say).await?,
            ),
        };
        Ok(InstalledAgent {
            name,
            version,
            program,
        })
    }

    fn named(name: &'a str) -> Result<Self, Error> {
        if let Some(id) = named_id(name) {
            return Ok(Self::Registry(id));
        }
        match AGENTS.iter().find(|known| known.name == name) {
            Some(known) if known.install.version().is_some() => return Ok(Self::Table(known)),
            Some(_) => {
                let error = Error::usage(format!("`{name}` is built in"));
                return Err(error.hint("it needs no installation"));
            }
            None => {}
        }
        let all: Vec<&str> = installable().map(|known| known.name).collect();
        let error = Error::usage(format!("windlass cannot install an agent `{name}`"));
        Err(match nearest(name, all.iter().copied()) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint(format!(
                "it can install {}, and acp:ID from the ACP registry; install other agents yourself",
                all.join(", ")
            )),
        })
    }
}
