//! Applies a choice of the set-up: it stores a key if the user entered one, and changes the user's settings.
//!
//! ```
//! use windlass::machine::Secret;
//! use windlass::settings::Settings;
//! use windlass::setup::{SettingChange, SetupAction, SetupChange, SetupSelection, apply_setup};
//!
//! let home = tempfile::tempdir()?;
//! let selection = SetupSelection {
//!     name: Some("anthropic".into()),
//!     key: Some(Secret::new(format!("sk-ant-{}", "x".repeat(40)))),
//!     ..SetupSelection::of(SetupAction::EnterKey)
//! };
//! let change: SetupChange = apply_setup(&selection, &Settings::none(home.path()))?;
//! let model: Option<&SettingChange> = change.settings.iter().find(|one| one.key == "model");
//! assert!(model.is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::terms::MeteringKind;
use windlass_host::config::{SettingsLayer, set};
use windlass_host::secret::{Credentials, Secret};
use windlass_providers::models::default_model;
use windlass_providers::{Vendor, vendor};

use super::SetupAction;
use crate::auth::{check_key_form, keyed_vendor, store_key};
use crate::error::{Error, ErrorKind};
use crate::flags::{AgentFlags, SignIn};
use crate::runtime_plan::RuntimeChecker;
use crate::settings::{KEYS, Settings};

/// A choice with its values.
#[derive(Debug, Clone)]
pub struct SetupSelection {
    pub action: SetupAction,
    /// The agent or the vendor.
    pub name: Option<String>,
    /// The model; the default is the default model of the vendor.
    pub model: Option<String>,
    /// The key that the user entered.
    pub key: Option<Secret>,
}

impl SetupSelection {
    /// A choice without values.
    #[must_use]
    pub fn of(action: SetupAction) -> Self {
        Self {
            action,
            name: None,
            model: None,
            key: None,
        }
    }
}

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SettingChange {
    pub key: String,
    pub value: String,
}

/// The changes of a choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SetupChange {
    /// The user's settings file.
    pub file: String,
    pub settings: Vec<SettingChange>,
    /// Reasons why the choice does not take effect yet.
    pub warnings: Vec<String>,
}

/// Applies a choice to the user's settings. Other keys and comments stay the same.
pub fn apply_setup(selection: &SetupSelection, settings: &Settings) -> Result<SetupChange, Error> {
    let mut warnings = Vec::new();
    let changes = match selection.action {
        SetupAction::AgentLogin => {
            let name = named(selection, "an agent")?;
            check_login(name, settings)?;
            login_changes(name)
        }
        SetupAction::VendorKey => {
            let found = keyed_vendor(named(selection, "a vendor")?)?;
            let credentials = Credentials::read(&settings.places.credentials_file())?;
            if crate::wire::key(settings, found, &credentials).is_none()
                && crate::wire::aws_keys(found, &settings.environment).is_none()
            {
                let error = Error::new(
                    ErrorKind::Provider,
                    format!("there is no key of {}", found.id),
                );
                return Err(error.hint(format!("`windlass auth login {}` stores one", found.id)));
            }
            model_changes(found, selection.model.as_deref(), settings)?
        }
        SetupAction::LocalServer => {
            let name = named(selection, "a vendor")?;
            let local = vendor(name).filter(|found| found.local);
            let local = local.ok_or_else(|| {
                Error::usage(format!("`{name}` is not a model server on this machine"))
                    .hint("`windlass models` lists the vendors")
            })?;
            model_changes(local, selection.model.as_deref(), settings)?
        }
        SetupAction::EnterKey => {
            let found = keyed_vendor(named(selection, "a vendor")?)?;
            let key = selection.key.as_ref().ok_or_else(|| {
                Error::usage("there is no key").hint("enter the key of the vendor")
            })?;
            check_key_form(found, key)?;
            // Nothing is stored if the choice cannot take effect.
            let changes = model_changes(found, selection.model.as_deref(), settings)?;
            if let Some(variable) = store_key(found, key, settings)? {
                warnings.push(format!(
                    "the variable {variable} takes precedence over the key that you entered; unset it"
                ));
            }
            changes
        }
        SetupAction::Demo => {
            return Err(Error::usage("the demo changes no settings").hint("run `windlass demo`"));
        }
    };
    let file = settings.places.config_file();
    for change in &changes {
        set(&file, KEYS, &change.key, &change.value)?;
        let stronger = settings
            .layers
            .get(&change.key)
            .filter(|now| now.origin.layer != SettingsLayer::User)
            .filter(|now| plain(&now.value.to_string()) != change.value);
        if let Some(now) = stronger {
            warnings.push(format!(
                "`{}` is also set by {}, which takes precedence",
                change.key, now.origin
            ));
        }
    }
    Ok(SetupChange {
        file: file.display().to_string(),
        settings: changes,
        warnings,
    })
}

fn plain(value: &str) -> &str {
    value.trim_matches('"')
}

fn named<'a>(selection: &'a SetupSelection, what: &str) -> Result<&'a str, Error> {
    selection.name.as_deref().ok_or_else(|| {
        Error::usage(format!("the choice needs the name of {what}"))
            .hint("`GET /v1/setup` lists the choices")
    })
}

/// Checks that a run with the agent and its own login could start.
pub(super) fn check_login(name: &str, settings: &Settings) -> Result<(), Error> {
    let flags = AgentFlags {
        auth: Some(SignIn::Login),
        metering: Some(MeteringKind::Reported),
        ..AgentFlags::default()
    };
    let status = RuntimeChecker::new(&flags, settings)?
        .statuses()?
        .into_iter()
        .find(|status| status.name == name)
        .ok_or_else(|| {
            Error::usage(format!("there is no agent `{name}`"))
                .hint("`windlass runtimes` lists the agents")
        })?;
    status.usable.map(drop).map_err(|why| {
        let error = Error::new(ErrorKind::Provider, why.what);
        match why.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    })
}

/// The runtime is last, so that an interrupted change leaves the old one in use.
fn login_changes(name: &str) -> Vec<SettingChange> {
    let (login, reported): (&str, &str) = ("login", "reported");
    vec![
        change(Settings::named("runtimes", name, "auth"), login),
        change(Settings::named("runtimes", name, "metering"), reported),
        change("runtime", name),
    ]
}

fn model_changes(
    found: &Vendor,
    model: Option<&str>,
    settings: &Settings,
) -> Result<Vec<SettingChange>, Error> {
    let id = found.id;
    let model = match model.or(default_model(found)) {
        Some(model) if model.starts_with(&format!("{id}/")) => model.to_owned(),
        Some(model) => format!("{id}/{model}"),
        None => {
            return Err(
                Error::usage(format!("there is no default model for `{id}`"))
                    .hint(format!("name one: `windlass config set model {id}/MODEL`")),
            );
        }
    };
    let mut changes = vec![change("model", model)];
    let runtime = settings.layers.text("runtime");
    if runtime.is_some_and(|runtime| runtime != "native") {
        changes.push(change("runtime", "native"));
    }
    Ok(changes)
}

fn change(key: impl Into<String>, value: impl Into<String>) -> SettingChange {
    SettingChange {
        key: key.into(),
        value: value.into(),
    }
}
