//! The set-up of a new user: the agents, keys, local servers and checks that are found, whether a run could use a model,
//! and the choices. Applying a choice changes the user's settings, so that the next run uses it.
//!
//! ```
//! use windlass::Environment;
//! use windlass::machine::{Root, Secret};
//! use windlass::settings::Settings;
//! use windlass::setup::{
//!     DetectedCheck, FoundAgent, LocalServer, SettingChange, SetupAction, SetupChange, SetupChoice, SetupReport,
//!     SetupSelection, apply_setup, detected_checks, gather_setup,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let home = tempfile::tempdir()?;
//! # let project = tempfile::tempdir()?;
//! std::fs::write(project.path().join("go.mod"), "module example.com/parser\n")?;
//! let environment = Environment::empty().with("HOME", home.path()).with("PATH", "/usr/bin:/bin");
//! let settings = Settings::load(None, environment.clone())?;
//! let root = Root::open(project.path())?;
//! let report: SetupReport = gather_setup(Some(&root), &settings).await?;
//! assert!(!report.ready && report.keys.is_empty(), "this home is empty");
//! let checks: &[DetectedCheck] = &report.checks;
//! assert_eq!(checks, detected_checks(&root));
//! assert!(checks.iter().any(|check| check.command == "go test ./..."));
//! let last: Option<&SetupChoice> = report.choices.last();
//! assert_eq!(last.map(|choice| choice.action), Some(SetupAction::EnterKey));
//! let (_agents, _servers): (&[FoundAgent], &[LocalServer]) = (&report.agents, &report.local_servers);
//!
//! let selection = SetupSelection {
//!     key: Some(Secret::new("sk-ant-0123456789abcdef")),
//!     name: Some("anthropic".into()),
//!     ..SetupSelection::of(SetupAction::EnterKey)
//! };
//! let change: SetupChange = apply_setup(&selection, &settings)?;
//! let model: &SettingChange = &change.settings[0];
//! assert!(model.key == "model" && model.value.starts_with("anthropic/"));
//! assert!(gather_setup(None, &Settings::load(None, environment)?).await?.ready);
//! # Ok(())
//! # }
//! ```

mod apply;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::workspace::Redactor;
use windlass_host::secret::{Credentials, Secrets};
use windlass_host::workspace::Root;
use windlass_providers::models::default_model;
use windlass_providers::{Vendor, vendor};
use windlass_registry::{ProgramLocation, RuntimeStatus};
use windlass_validators::{LookAt, PlanKind, Purpose, detect};

use crate::auth::{AuthKind, AuthRow, AuthSource, auth_rows};
use crate::error::Error;
use crate::flags::AgentFlags;
use crate::model::{VendorRow, configured_base_url, named, vendor_rows};
use crate::runtime_plan::{RuntimePlan, signed_in};
use crate::runtime_rows::runtime_statuses;
use crate::settings::Settings;

pub use self::apply::{SettingChange, SetupChange, SetupSelection, apply_setup};

/// The set-up of this machine and workspace, with the choices of the user.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SetupReport {
    /// Whether the next run could use a model, with the settings as they are.
    pub ready: bool,
    /// The model access of the next run; `None` if it has none.
    pub with: Option<String>,
    /// The reason why no model is usable.
    pub why: Option<String>,
    /// Foreign agents that are installed.
    pub agents: Vec<FoundAgent>,
    /// Keys of vendors that are used, without any of their characters.
    pub keys: Vec<AuthRow>,
    /// Model servers on this machine that answered.
    pub local_servers: Vec<LocalServer>,
    /// The commands of the project that can check runs.
    pub checks: Vec<DetectedCheck>,
    /// The choices, the preferred first.
    pub choices: Vec<SetupChoice>,
}

/// A foreign agent that is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FoundAgent {
    /// The value for `--runtime`.
    pub name: String,
    pub version: Option<String>,
    /// Whether the file of its own login exists. Windlass does not read it.
    pub signed_in: bool,
    /// Whether a run could start with the settings as they are.
    pub usable: bool,
    /// The reason why not.
    pub why: Option<String>,
}

/// A model server on this machine that answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LocalServer {
    /// The part before the slash in `vendor/model`.
    pub vendor: &'static str,
    pub models: Vec<String>,
}

/// A command of the project that can check runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DetectedCheck {
    pub name: String,
    /// `build`, `test` or `lint`.
    pub purpose: &'static str,
    pub command: String,
    /// Whether a failure prevents landing.
    pub blocking: bool,
}

/// The action of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SetupAction {
    /// Use an installed agent with its own login.
    AgentLogin,
    /// Use the built-in agent with a key that was found.
    VendorKey,
    /// Use the built-in agent with a model server on this machine.
    LocalServer,
    /// Watch the demo, which needs no model.
    Demo,
    /// Enter the key of a vendor.
    EnterKey,
}

/// A choice of the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SetupChoice {
    pub action: SetupAction,
    /// The agent or the vendor.
    pub name: Option<String>,
    /// The model that would be used; `None` if the user has to name one, or if the agent chooses it.
    pub model: Option<String>,
    pub title: String,
    /// A fact that the user should know before choosing.
    pub about: String,
}

/// Looks for agents, keys, local servers and checks. It starts `--version` of agents and connects to local servers, which
/// may take seconds.
pub async fn gather_setup(root: Option<&Root>, settings: &Settings) -> Result<SetupReport, Error> {
    let credentials = Credentials::read(&settings.places.credentials_file())?;
    let agent = AgentFlags::default();
    let (statuses, vendors) = futures_util::future::join(
        runtime_statuses(&agent, settings),
        vendor_rows(settings, &credentials, false),
    )
    .await;
    let statuses = statuses?;
    let usable = usable_model(&agent, &statuses, &vendors, settings);
    let agents: Vec<FoundAgent> = statuses.iter().filter_map(|s| found(s, settings)).collect();
    let keys: Vec<AuthRow> = auth_rows(settings)?
        .into_iter()
        .filter(|row| row.kind == AuthKind::Vendor && row.used)
        // Readers of a server see the report, too, and need no part of a key.
        .map(|row| AuthRow {
            ending: None,
            ..row
        })
        .collect();
    let servers = vendors.into_iter().filter(|row| row.local && row.ready);
    let local_servers: Vec<LocalServer> = servers
        .map(|row| LocalServer {
            vendor: row.vendor,
            models: row.serves.unwrap_or_default(),
        })
        .collect();
    Ok(SetupReport {
        ready: usable.is_ok(),
        with: usable.as_ref().ok().cloned(),
        why: usable.err(),
        choices: choices(&statuses, &keys, &local_servers, settings),
        agents,
        keys,
        local_servers,
        checks: root.map(detected_checks).unwrap_or_default(),
    })
}

/// The commands that are detected in a project, from its files.
#[must_use]
pub fn detected_checks(root: &Root) -> Vec<DetectedCheck> {
    let plans = detect(&LookAt(root)).into_iter();
    plans
        .filter_map(|plan| {
            let purpose = match plan.purpose? {
                Purpose::Build => "build",
                Purpose::Test => "test",
                Purpose::Lint => "lint",
            };
            let PlanKind::Command { line } = plan.kind else {
                return None;
            };
            Some(DetectedCheck {
                name: plan.name,
                purpose,
                command: line,
                blocking: plan.blocking,
            })
        })
        .collect()
}

/// The model access of the next run, or the reason why it has none.
fn usable_model(
    agent: &AgentFlags,
    statuses: &[RuntimeStatus],
    vendors: &[VendorRow],
    settings: &Settings,
) -> Result<String, String> {
    let runtime = settings.layers.text("runtime").unwrap_or("native");
    let access = match statuses.iter().find(|status| status.name == runtime) {
        Some(status) => status.usable.clone().map_err(|why| why.what),
        // `auto`, or an agent that is named by its command.
        None => RuntimePlan::of(agent, settings)
            .map(|_| format!("uses the runtime `{runtime}`"))
            .map_err(|error| error.message().to_owned()),
    }?;
    let local = named(agent, settings.layers.text("model"), settings)
        .ok()
        .and_then(|(vendor, _)| vendor)
        .filter(|vendor| vendor.local)
        .and_then(|vendor| vendors.iter().find(|row| row.vendor == vendor.id));
    match local {
        Some(row) if !row.ready => Err(unreachable_server(row, settings)),
        _ => Ok(access),
    }
}

fn unreachable_server(row: &VendorRow, settings: &Settings) -> String {
    let known = vendor(row.vendor);
    let configured = known.and_then(|known| configured_base_url(known, settings));
    let url = configured.or_else(|| known?.base_url.map(str::to_owned));
    // The address may contain a password.
    let url = url.unwrap_or_default();
    let url = Secrets::default().redact(&url).into_owned();
    format!("`{}` does not answer at {url}", row.vendor)
}

fn found(status: &RuntimeStatus, settings: &Settings) -> Option<FoundAgent> {
    let ProgramLocation::At(_) = &status.found else {
        return None;
    };
    Some(FoundAgent {
        name: status.name.clone(),
        version: status.version.clone(),
        signed_in: signed_in(status.known, &status.name, settings).is_some(),
        usable: status.usable.is_ok(),
        why: status.usable.as_ref().err().map(|why| why.what.clone()),
    })
}

/// The choices, the preferred first. Agents that share a login are offered once, the first of the table.
fn choices(
    statuses: &[RuntimeStatus],
    keys: &[AuthRow],
    servers: &[LocalServer],
    settings: &Settings,
) -> Vec<SetupChoice> {
    let mut choices = Vec::new();
    let mut logins = Vec::new();
    for status in statuses {
        let ProgramLocation::At(_) = &status.found else {
            continue;
        };
        let Some(login) = signed_in(status.known, &status.name, settings) else {
            continue;
        };
        if logins.contains(&login) || apply::check_login(&status.name, settings).is_err() {
            continue;
        }
        logins.push(login);
        choices.push(SetupChoice {
            action: SetupAction::AgentLogin,
            name: Some(status.name.clone()),
            model: None,
            title: format!("use {} with its login", status.name),
            about: "it chooses the model; its spending is what it reports, and cannot be limited exactly"
                .to_owned(),
        });
    }
    choices.extend(keys.iter().filter_map(key_choice));
    let served = servers.iter().filter_map(|server| {
        let model = format!("{}/{}", server.vendor, server.models.first()?);
        Some(SetupChoice {
            action: SetupAction::LocalServer,
            name: Some(server.vendor.to_owned()),
            title: format!("use the built-in agent with {model}"),
            model: Some(model),
            about: "the model runs on this machine: no key, no price".to_owned(),
        })
    });
    choices.extend(served);
    choices.push(SetupChoice {
        action: SetupAction::Demo,
        name: None,
        model: None,
        title: "watch the demo".to_owned(),
        about: "a real task with a scripted model: no key, no network".to_owned(),
    });
    choices.push(SetupChoice {
        action: SetupAction::EnterKey,
        name: None,
        model: None,
        title: "enter a key".to_owned(),
        about: "it is stored in the credentials file, which only you can read".to_owned(),
    });
    choices
}

/// The choice of a key that was found.
fn key_choice(row: &AuthRow) -> Option<SetupChoice> {
    let known: &Vendor = vendor(&row.name)?;
    let model = default_model(known).map(|model| format!("{}/{model}", known.id));
    let place = match row.source {
        AuthSource::Environment => row.place.as_str(),
        AuthSource::CredentialsFile | AuthSource::AgentLogin => "the credentials file",
    };
    let about = match &model {
        Some(model) => format!("the key of {place}, and the model {model}"),
        None => format!("the key of {place}; you have to name a model"),
    };
    Some(SetupChoice {
        action: SetupAction::VendorKey,
        name: Some(known.id.to_owned()),
        title: format!("use the built-in agent with the key of {}", known.id),
        model,
        about,
    })
}

#[cfg(test)]
mod tests;
