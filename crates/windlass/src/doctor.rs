//! Checks whether a run can work on this machine, and reports the missing parts and their fixes.
//!
//! ```
//! use windlass::doctor::{
//!     AppArmorState, DoctorFinding, DoctorReport, DoctorRuntime, FindingGroup, SandboxTiers, TierState, diagnose, install_command,
//!     owned_by_root_alone, shell_quoted,
//! };
//! use windlass::{Environment, Notices};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let home = tempfile::tempdir()?;
//! let environment = Environment::empty().with("HOME", home.path()).with("PATH", "/usr/bin:/bin");
//! let report: DoctorReport = diagnose(Some(home.path()), environment, None, &Notices::default()).await?;
//! assert!(!report.ready && report.todo.is_some(), "there is no model");
//! let git: Option<&DoctorFinding> = report.findings.iter().find(|finding| finding.what == "git");
//! assert!(git.is_some_and(|git| git.group == FindingGroup::Machine && !git.is_broken()));
//! let sandbox: Option<&SandboxTiers> = report.sandbox.as_ref();
//! let landlock: Option<&TierState> = sandbox.map(|sandbox| &sandbox.landlock);
//! assert!(landlock.is_some() && !report.is_broken());
//! assert!(matches!(&report.runtimes[0], DoctorRuntime::Listed(runtime) if runtime.name == "native"));
//! println!("{:?}", FindingGroup::ALL.map(FindingGroup::word));
//!
//! let (state, program) = (AppArmorState::read(), "/usr/bin/windlass".as_ref());
//! if state.restricts_this_process() && owned_by_root_alone(program).is_ok() {
//!     println!("{} lifts the restriction for {}", install_command(program), shell_quoted(program));
//! }
//! # Ok(())
//! # }
//! ```

mod network;
mod sandbox_report;
mod verdict;

use std::path::Path;

use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::workspace::Files;
use windlass_host::diagnosis::{answers, check_writable, program_version};
use windlass_host::secret::Credentials;
use windlass_providers::VENDORS;
use windlass_registry::{ProgramLocation, RuntimeProbe, RuntimeStatus};

use self::sandbox_report::SandboxReport;
use self::verdict::{AvailableAgent, ReadyVerdict};
use crate::environment::Environment;
use crate::error::Error;
use crate::flags::AgentFlags;
use crate::model::{self, configured_base_url, vendor_access};
use crate::notices::Notices;
use crate::runtime_rows::{ProbeRow, RuntimeReport, names_to_probe, runtime_statuses};
use crate::sandboxing::{self, Tier};
use crate::settings::Settings;

pub use self::sandbox_report::{SandboxTiers, TierState};
pub use self::verdict::{DoctorFinding, FindingGroup};
pub use windlass_host::apparmor::{
    AppArmorState, install_command, owned_by_root_alone, shell_quoted,
};

/// The verdict, and the results of all checks.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DoctorReport {
    /// The version of Windlass.
    pub version: &'static str,
    /// Whether a run can work.
    pub ready: bool,
    pub summary: String,
    /// The next step, if no run can work.
    pub todo: Option<String>,
    /// `None` if the tiers could not be tested.
    pub sandbox: Option<SandboxTiers>,
    pub findings: Vec<DoctorFinding>,
    pub runtimes: Vec<DoctorRuntime>,
}

/// A runtime in the report.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum DoctorRuntime {
    /// A known runtime.
    Listed(Box<RuntimeReport>),
    /// A runtime that was only probed, such as `acp:COMMAND`.
    Probed { name: String, probe: ProbeRow },
}

impl DoctorReport {
    /// Whether a check that every run needs has failed, or a probe.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        let probes = self.runtimes.iter().filter_map(|one| match one {
            DoctorRuntime::Listed(facts) => facts.probe.as_ref(),
            DoctorRuntime::Probed { probe, .. } => Some(probe),
        });
        let failed_probe = probes.into_iter().any(|probe| !probe.works);
        failed_probe || self.findings.iter().any(DoctorFinding::is_broken)
    }

    fn new(
        findings: Vec<DoctorFinding>,
        sandbox: Option<&SandboxReport>,
        runtimes: Vec<DoctorRuntime>,
        work: &AvailableAgent,
    ) -> Self {
        let verdict = ReadyVerdict::of(&findings, sandbox, work);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            ready: verdict.todo.is_none(),
            summary: verdict.summary,
            todo: verdict.todo,
            sandbox: sandbox.map(SandboxReport::tiers),
            findings,
            runtimes,
        }
    }
}

/// Checks this machine for runs in the workspace that contains `dir`. `probe` names runtimes to probe with a scripted
/// model; an empty list stands for all installed ones.
pub async fn diagnose(
    dir: Option<&Path>,
    environment: Environment,
    probe: Option<&[String]>,
    notices: &Notices,
) -> Result<DoctorReport, Error> {
    let root = model::open_workspace(dir, &environment);
    let workspace = root
        .as_ref()
        .map(|root| root.root().display().to_string())
        .map_err(|error| error.message().to_owned());
    let mut findings = machine(workspace);
    let root = root.ok();
    let loaded = Settings::load(root.as_ref().map(Files::root), environment).and_then(|settings| {
        let credentials = Credentials::read(&settings.places.credentials_file())?;
        Ok((settings, credentials))
    });
    let (mut settings, credentials) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let todo = error.advice().map(|todo| format!("→ {todo}"));
            let result = Err(error.message().to_owned());
            findings.push(
                DoctorFinding::new(FindingGroup::Machine, "settings", result)
                    .needed()
                    .with_more(todo.into_iter().collect()),
            );
            let work = AvailableAgent::Nothing {
                why: "the settings cannot be read".to_owned(),
                todo: "correct the settings file".to_owned(),
            };
            return Ok(DoctorReport::new(findings, None, Vec::new(), &work));
        }
    };
    settings.notices = notices.clone();
    findings.extend(files(&settings));
    let dir = root.as_ref().map_or(Path::new("/tmp"), Files::root);
    let sandbox = SandboxReport::probe(dir, &settings);
    match &sandbox {
        Ok(sandbox) => {
            findings.extend(sandbox.findings());
            findings.push(DoctorFinding::new(
                FindingGroup::Sandbox,
                "isolated runs",
                copies(&settings, sandbox.tier()),
            ));
        }
        Err(error) => {
            let result = Err(error.message().to_owned());
            findings.push(DoctorFinding::new(FindingGroup::Sandbox, "sandbox", result).needed());
        }
    }
    findings.extend(vendors(&settings, &credentials).await);
    let (statuses, runtimes) = runtimes(probe, &settings, &mut findings).await?;
    let work = work(&statuses, &findings, &settings);
    let sandbox = sandbox.ok();
    Ok(DoctorReport::new(
        findings,
        sandbox.as_ref(),
        runtimes,
        &work,
    ))
}

/// Checks the workspace and the programs that every run uses.
fn machine(workspace: Result<String, String>) -> Vec<DoctorFinding> {
    let finding = |what: &str, result| DoctorFinding::new(FindingGroup::Machine, what, result);
    vec![
        finding("workspace", workspace),
        finding("git", program_version("git")),
        finding(
            "bash",
            program_version("bash").map_err(|why| format!("{why}; commands run with sh instead")),
        ),
    ]
}

/// Checks the settings file, the session directory and the proxy settings.
fn files(settings: &Settings) -> Vec<DoctorFinding> {
    let file = settings.places.config_file();
    let shown = match file.exists() {
        true => file.display().to_string(),
        false => format!("no settings file ({}), defaults apply", file.display()),
    };
    let data_dir = &settings.places.data_dir;
    let data_dir = check_writable(data_dir).map(|()| data_dir.display().to_string());
    let todo = data_dir
        .as_ref()
        .err()
        .map(|_| "→ set XDG_DATA_HOME to a directory that you can write to".to_owned());
    vec![
        DoctorFinding::new(FindingGroup::Machine, "settings", Ok(shown)),
        DoctorFinding::new(FindingGroup::Machine, "session directory", data_dir)
            .needed()
            .with_more(todo.into_iter().collect()),
        DoctorFinding::new(
            FindingGroup::Machine,
            "network path",
            network::describe_path(settings),
        ),
    ]
}

/// Checks which vendors can be used. Vendors that are not set up are minor findings.
async fn vendors(settings: &Settings, credentials: &Credentials) -> Vec<DoctorFinding> {
    join_all(VENDORS.iter().map(|vendor| async move {
        let mut state = vendor_access(vendor, settings, credentials);
        let configured = configured_base_url(vendor, settings);
        let url = configured.as_deref().or(vendor.base_url);
        if let Some(url) = url.filter(|_| vendor.local && state.is_ok())
            && !answers(url).await
        {
            state = Err(format!("no server answers at {url}"));
        }
        let finding = DoctorFinding::new(FindingGroup::Models, vendor.id, state);
        DoctorFinding {
            minor: !finding.ok,
            ..finding
        }
    }))
    .await
}

/// Lists the runtimes and probes them if requested.
async fn runtimes(
    probe: Option<&[String]>,
    settings: &Settings,
    findings: &mut Vec<DoctorFinding>,
) -> Result<(Vec<RuntimeStatus>, Vec<DoctorRuntime>), Error> {
    let statuses = match runtime_statuses(&AgentFlags::default(), settings).await {
        Ok(statuses) => statuses,
        Err(error) => {
            let result = Err(error.message().to_owned());
            findings.push(DoctorFinding::new(FindingGroup::Agents, "runtimes", result).needed());
            return Ok(Default::default());
        }
    };
    findings.extend(statuses.iter().filter_map(agent_finding));
    let mut rows: Vec<RuntimeReport> = statuses.iter().map(RuntimeReport::from).collect();
    let mut others = Vec::new();
    if let Some(names) = probe {
        let mut probe = RuntimeProbe::new(&settings.layers, settings.places.runtimes_dir())?;
        for name in names_to_probe(names, &statuses, settings)? {
            settings.notices.progress(&format!("probing {name} …"));
            let probed = probe.probe(&name).await?;
            let failure = probed.result.as_ref().err();
            let said = failure.map_or("", |failure| failure.last_output.as_str());
            let result = match failure {
                None => Ok(probed.line()),
                Some(_) => Err(probed.line()),
            };
            let finding =
                DoctorFinding::new(FindingGroup::Agents, &format!("probe of {name}"), result);
            findings
                .push(finding.with_more(said.lines().map(|line| format!("| {line}")).collect()));
            let probe = ProbeRow::from(&probed);
            match rows.iter_mut().find(|row| row.name == name) {
                Some(row) => row.probe = Some(probe),
                None => others.push(DoctorRuntime::Probed { name, probe }),
            }
        }
    }
    let listed = rows.into_iter().map(Box::new).map(DoctorRuntime::Listed);
    Ok((statuses, listed.chain(others).collect()))
}

/// The finding about a foreign agent; `None` for the built-in ones, which need only a model. An agent that is not
/// installed is a minor finding.
fn agent_finding(status: &RuntimeStatus) -> Option<DoctorFinding> {
    let place = match &status.found {
        ProgramLocation::BuiltIn => return None,
        ProgramLocation::At(program) => Some(program.file.display().to_string()),
        ProgramLocation::Missing => None,
    };
    let todo = status
        .usable
        .as_ref()
        .err()
        .and_then(|why| why.hint.as_ref())
        .map(|hint| format!("→ {hint}"));
    let minor = place.is_none();
    let more = [todo, place, status.versions()]
        .into_iter()
        .flatten()
        .collect();
    let result = status.usable.clone().map_err(|why| why.what);
    Some(DoctorFinding {
        minor,
        ..DoctorFinding::new(FindingGroup::Agents, &status.name, result).with_more(more)
    })
}

/// Finds an agent that can work: the built-in one if a model is configured, or else an installed one.
fn work(
    statuses: &[RuntimeStatus],
    findings: &[DoctorFinding],
    settings: &Settings,
) -> AvailableAgent {
    let named = model::named(
        &AgentFlags::default(),
        settings.layers.text("model"),
        settings,
    );
    let named = named.ok().and_then(|(vendor, _)| vendor);
    let state = |id: &str| {
        findings
            .iter()
            .find(|finding| finding.group == FindingGroup::Models && finding.what == id)
    };
    let unreachable = named
        .filter(|vendor| vendor.local)
        .and_then(|vendor| state(vendor.id))
        .filter(|finding| !finding.ok);
    let native = statuses
        .iter()
        .find(|status| status.name == "native")
        .map(|native| &native.usable);
    if let (Some(Ok(how)), None) = (native, unreachable) {
        return AvailableAgent::Native(how.clone());
    }
    let foreign =
        |status: &&RuntimeStatus| status.found != ProgramLocation::BuiltIn && status.usable.is_ok();
    if let Some(foreign) = statuses.iter().find(foreign) {
        return AvailableAgent::Foreign(foreign.name.clone());
    }
    if let Some(unreachable) = unreachable {
        let todo = format!(
            "start {}, or choose another model with `windlass config set model …`",
            unreachable.what
        );
        return AvailableAgent::Nothing {
            why: unreachable.first_line().to_owned(),
            todo,
        };
    }
    let configured = settings
        .layers
        .text("model")
        .or(settings.layers.text("provider"))
        .is_some();
    if let Some(Err(why)) = native.filter(|_| configured) {
        let todo = why
            .hint
            .clone()
            .unwrap_or_else(|| "`windlass models` lists the models".to_owned());
        return AvailableAgent::Nothing {
            why: why.what.clone(),
            todo,
        };
    }
    match findings.iter().find(|finding| finding.group == FindingGroup::Models && finding.ok) {
        Some(vendor) => AvailableAgent::Nothing {
            why: "no model is chosen".to_owned(),
            todo: format!("{name} is set up: run `windlass config set model {name}/MODEL`", name = vendor.what),
        },
        None => AvailableAgent::Nothing {
            why: "no model is configured".to_owned(),
            todo: "set ANTHROPIC_API_KEY or OPENAI_API_KEY, or run `windlass demo`, which needs no model".to_owned(),
        },
    }
}

/// Describes the copy that isolated runs work on: an overlay, or copied files.
fn copies(settings: &Settings, tier: Option<Tier>) -> Result<String, String> {
    let copy = "a copy of the tree, up to 2 GB and 200,000 files";
    match tier {
        None => {
            Err("they need the sandbox; `run --in-place` works in your working tree".to_owned())
        }
        Some(Tier::Broker | Tier::Landlock) => {
            Ok(format!("{copy}: overlays need the namespaces sandbox"))
        }
        Some(Tier::Namespaces) => {
            let helper = sandboxing::helper(&settings.environment)
                .map_err(|error| error.message().to_owned())?;
            match sandboxing::try_layer(&helper, &settings.places.transactions_dir()) {
                Ok(()) => Ok(
                    "an overlay over the tree, which costs the same for trees of any size"
                        .to_owned(),
                ),
                Err(why) => Ok(format!("{copy}, because no overlay can be mounted: {why}")),
            }
        }
    }
}
