//! `doctor`: checks whether a run can work on this machine, and prints the missing parts and their fixes.

mod apparmor;
mod apparmor_command;
mod apparmor_path;
mod network;
mod report;
mod sandbox;

use std::path::Path;
use std::process::{Command, ExitCode};

use futures_util::future::join_all;
use serde_json::{Value, json};
use windlass::agents::{
    ProbeRow, ProgramLocation, RuntimeFacts, RuntimeProbe, RuntimeStatus, names_to_probe,
    runtime_statuses,
};
use windlass::core::workspace::Files;
use windlass::machine::Credentials;
use windlass::model::{VENDORS, configured_base_url, vendor_access};
use windlass::sandboxing::Tier;
use windlass::settings::Places;

use self::report::{AvailableAgent, DoctorFinding, FindingGroup, ReadyVerdict};
use self::sandbox::SandboxReport;
use super::block_on;
use crate::args::DoctorArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::process;
use crate::sanitize::one_line;
use windlass::flags::AgentFlags;
use windlass::model;
use windlass::settings::Settings;

/// The results of all checks.
struct DoctorReport {
    findings: Vec<DoctorFinding>,
    sandbox: Option<SandboxReport>,
    runtimes: Vec<Value>,
    work: AvailableAgent,
}

pub(super) fn run(args: &DoctorArgs) -> Result<ExitCode, CommandError> {
    if args.install_apparmor {
        return apparmor_command::install(args.yes);
    }
    if args.remove_apparmor {
        return apparmor_command::remove(args.yes);
    }
    let DoctorReport {
        findings,
        sandbox,
        runtimes,
        work,
    } = block_on(examine(args))?;
    let verdict = ReadyVerdict::of(&findings, sandbox.as_ref(), &work);
    let text = match args.json {
        true => report::json(&verdict, sandbox.as_ref(), &findings, &runtimes),
        false => report::text(&verdict, &findings, args.all),
    };
    let failed_probe = runtimes.iter().any(|row| row["probe"]["works"] == false);
    let broken = failed_probe || findings.iter().any(DoctorFinding::is_broken);
    let printed = exit::print(&text);
    Ok(if broken {
        ExitCode::from(exit::FAILED)
    } else {
        printed
    })
}

async fn examine(args: &DoctorArgs) -> Result<DoctorReport, CommandError> {
    let root = process::open_workspace(None);
    let workspace = root
        .as_ref()
        .map(|root| root.root().display().to_string())
        .map_err(|error| error.message());
    let mut findings = machine(workspace);
    let loaded = process::load_settings(root.as_ref().ok().map(Files::root)).and_then(|settings| {
        let credentials = Credentials::read(&settings.places.credentials_file())?;
        Ok((settings, credentials))
    });
    let (settings, credentials) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let todo = error
                .hint_text()
                .map(|todo| vec![format!("→ {todo}")])
                .unwrap_or_default();
            findings.push(
                DoctorFinding::new(FindingGroup::Machine, "settings", Err(error.message()))
                    .needed()
                    .with_more(todo),
            );
            let work = AvailableAgent::Nothing {
                why: "the settings cannot be read".to_owned(),
                todo: "correct the settings file".to_owned(),
            };
            return Ok(DoctorReport {
                findings,
                sandbox: None,
                runtimes: Vec::new(),
                work,
            });
        }
    };
    findings.extend(files(&settings));
    let dir = root.as_ref().map(Files::root).unwrap_or(Path::new("/tmp"));
    let sandbox = SandboxReport::probe(dir, &settings);
    match &sandbox {
        Ok(sandbox) => {
            findings.extend(sandbox.findings());
            findings.push(DoctorFinding::new(
                FindingGroup::Sandbox,
                "isolated runs",
                copies(&settings.places, sandbox.tier()),
            ));
        }
        Err(error) => findings.push(
            DoctorFinding::new(FindingGroup::Sandbox, "sandbox", Err(error.message())).needed(),
        ),
    }
    findings.extend(vendors(&settings, &credentials).await);
    let (statuses, runtimes) = runtimes(args, &settings, &mut findings).await?;
    let work = work(&statuses, &findings, &settings);
    Ok(DoctorReport {
        findings,
        sandbox: sandbox.ok(),
        runtimes,
        work,
    })
}

/// Checks the workspace and the programs that every run uses.
fn machine(workspace: Result<String, String>) -> Vec<DoctorFinding> {
    let finding = |what: &str, result| DoctorFinding::new(FindingGroup::Machine, what, result);
    vec![
        finding("workspace", workspace),
        finding("git", version("git")),
        finding(
            "bash",
            version("bash").map_err(|why| format!("{why}; commands run with sh instead")),
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
    let data_dir = check_writable(&settings.places.data_dir);
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
            network::path(settings),
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
            && !network::answers(url).await
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

/// Lists the runtimes and probes them if requested: as findings, and as rows for JSON.
async fn runtimes(
    args: &DoctorArgs,
    settings: &Settings,
    findings: &mut Vec<DoctorFinding>,
) -> Result<(Vec<RuntimeStatus>, Vec<Value>), CommandError> {
    let agent = AgentFlags::default();
    let statuses = match runtime_statuses(&agent, settings).await {
        Ok(statuses) => statuses,
        Err(error) => {
            findings.push(
                DoctorFinding::new(
                    FindingGroup::Agents,
                    "runtimes",
                    Err(error.message().to_owned()),
                )
                .needed(),
            );
            return Ok(Default::default());
        }
    };
    findings.extend(statuses.iter().filter_map(agent_finding));
    let mut rows: Vec<Value> = statuses
        .iter()
        .map(|one| json!(RuntimeFacts::from(one)))
        .collect();
    let Some(names) = &args.probe else {
        return Ok((statuses, rows));
    };
    let mut probe = RuntimeProbe::new(&settings.layers, settings.places.runtimes_dir())?;
    for name in names_to_probe(names, &statuses, settings)? {
        say!("probing {} …", one_line(&name));
        let probed = probe.probe(&name).await?;
        let said = probed
            .result
            .as_ref()
            .err()
            .map_or("", |failure| failure.last_output.as_str());
        let result = if probed.result.is_ok() {
            Ok(probed.line())
        } else {
            Err(probed.line())
        };
        let finding = DoctorFinding::new(FindingGroup::Agents, &format!("probe of {name}"), result);
        findings.push(finding.with_more(said.lines().map(|line| format!("| {line}")).collect()));
        match rows.iter_mut().find(|row| row["name"] == name.as_str()) {
            Some(row) => row["probe"] = json!(ProbeRow::from(&probed)),
            None => rows.push(json!({ "name": name, "probe": ProbeRow::from(&probed) })),
        }
    }
    Ok((statuses, rows))
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
            why: unreachable.detail.clone(),
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
fn copies(places: &Places, tier: Option<Tier>) -> Result<String, String> {
    let copy = "a copy of the tree, up to 2 GB and 200,000 files";
    match tier {
        None => {
            Err("they need the sandbox; `run --in-place` works in your working tree".to_owned())
        }
        Some(Tier::Broker | Tier::Landlock) => {
            Ok(format!("{copy}: overlays need the namespaces sandbox"))
        }
        Some(Tier::Namespaces) => {
            let helper = windlass::sandboxing::helper(&process::environment())
                .map_err(|error| error.message().to_owned())?;
            match windlass::sandboxing::try_layer(&helper, &places.transactions_dir()) {
                Ok(()) => Ok(
                    "an overlay over the tree, which costs the same for trees of any size"
                        .to_owned(),
                ),
                Err(why) => Ok(format!("{copy}, because no overlay can be mounted: {why}")),
            }
        }
    }
}

fn version(program: &str) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|err| format!("cannot start {program}: {err}"))?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned())
}

/// Checks that the directory can be created or written: its nearest existing ancestor must be writable.
fn check_writable(dir: &Path) -> Result<String, String> {
    let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
    rustix::fs::access(existing, rustix::fs::Access::WRITE_OK)
        .map(|()| dir.display().to_string())
        .map_err(|err| format!("{} cannot be written: {err}", existing.display()))
}
