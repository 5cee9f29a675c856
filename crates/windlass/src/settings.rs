//! Settings: the table of keys, the layers that set them (files, variables, flags), and the values that result.
//!
//! The settings files of a project are untrusted: until the user trusts their content, they may only restrict runs
//! further.
//!
//! ```
//! use windlass::Environment;
//! use windlass::core::gate::Mode;
//! use windlass::flags::{AgentFlags, Cap, ContractFlags, LimitFlags};
//! use windlass::settings::{KEYS, Settings, places, variable};
//! use windlass::trust::project_files;
//!
//! let home = tempfile::tempdir()?;
//! let environment = Environment::empty().with("HOME", home.path()).with("WINDLASS_MODEL", "mine");
//! assert!(places(&environment)?.config_dir.starts_with(home.path()));
//! let mut settings = Settings::load(None, environment)?;
//! assert_eq!(settings.layers.text("model"), Some("mine"));
//! assert!(KEYS.iter().filter_map(variable).any(|name| name == "WINDLASS_MODEL"));
//!
//! let limits = LimitFlags { max_steps: Some(Cap::At(7)), ..LimitFlags::default() };
//! settings.add_flags(&AgentFlags::default(), &limits)?;
//! settings.add_contract_flags(&ContractFlags::default())?;
//! assert_eq!(settings.budget()?.steps, Some(7));
//! assert_eq!(settings.gate(Mode::Ask, &["bash"])?.mode, Mode::Ask);
//! assert_eq!(Settings::named("prices", "gpt-5.4", "input"), "prices.\"gpt-5.4\".input");
//! Settings::remember_rule(&settings.places, home.path(), "bash(ls *)")?;
//!
//! // A project's files may only restrict runs further until a user trusts them.
//! std::fs::create_dir(home.path().join(".windlass"))?;
//! std::fs::write(home.path().join(".windlass/config.toml"), "max_steps = 3\n")?;
//! for file in project_files(home.path())?.0 {
//!     println!("{:?}", Settings::project_values(home.path(), &file)?);
//! }
//! assert!(Settings::none(home.path()).layers.iter().next().is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use windlass_host::config::{
    ConfigError, Key, Places, SettingKind, SettingsLayer, known, nearest, set, unset,
};

mod keys;
mod rows;

use std::ffi::OsStr;
use std::path::Path;

use windlass_core::budget::Budget;
use windlass_core::gate::{Level, Mode, PermissionGate, Rule, Verdict};
use windlass_core::provider::Sampling;
use windlass_host::config::{Layers, Setting, SettingOrigin, Value, managed_files};

use windlass_host::trust::{ProjectFile, TrustDecision, TrustStore, project_files};
use windlass_registry::InstalledAgents;

use crate::environment::Environment;
use crate::error::Error;
use crate::flags::{AgentFlags, ContractFlags, LimitFlags};
use crate::model::GivenModel;
use crate::notices::Notices;
use crate::profile::Profile;
use crate::sandboxing;
use crate::trust::{SettingEffect, link_warning};

pub use self::keys::KEYS;
pub use self::rows::{KeyRow, SettingRow, key_rows, setting_rows};

/// The variable that filters log lines for developers. It is not a setting, because it is read before the settings.
const LOG_VARIABLE: &str = "WINDLASS_LOG";

/// The variable with the token of a server. It is not a setting, because it is a secret.
const TOKEN_VARIABLE: &str = "WINDLASS_TOKEN";

/// The environment variable that sets a key: `WINDLASS_` and the name of the key. Keys with a part that the user chooses,
/// such as `profiles.*.model`, have no variable.
pub fn variable(key: &Key) -> Option<String> {
    (!key.name.contains('*'))
        .then(|| format!("WINDLASS_{}", key.name.replace('.', "_").to_uppercase()))
}

/// All settings, in layers.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Settings that apply: files of the administrator, the user and trusted projects, variables, and flags.
    pub layers: Layers<'static>,
    /// Settings of an untrusted project. They apply only where they restrict runs further.
    pub project: Layers<'static>,
    /// The directories of settings, keys and sessions.
    pub places: Places,
    /// Warnings about settings that do not apply, for the user.
    pub warnings: Vec<String>,
    /// The environment from which the settings were read.
    pub environment: Environment,
    /// Receives warnings during the preparation of a run.
    pub notices: Notices,
    /// Untrusted project files with settings that do not apply, unless the user has already refused to trust them.
    pub untrusted: Vec<ProjectFile>,
    /// The model of the embedding program, if it passed one.
    pub given_model: Option<GivenModel>,
    pub profile: Option<Profile>,
    /// The runtime that `auto` selected.
    pub chosen: Option<String>,
}

impl Settings {
    /// Empty settings: no file and no variable is read. Sessions and kept runs are stored in `data_dir`.
    #[must_use]
    pub fn none(data_dir: &Path) -> Self {
        // These directories do not exist, so nothing is read from them, including credentials.toml.
        let unread = |name: &str| data_dir.join("none").join(name);
        Self {
            layers: Layers::new(KEYS),
            project: Layers::new(KEYS),
            places: Places {
                home: None,
                config_dir: unread("config"),
                data_dir: data_dir.to_owned(),
                managed_dir: unread("managed"),
            },
            warnings: Vec::new(),
            environment: Environment::empty().with("PATH", "/usr/local/bin:/usr/bin:/bin"),
            notices: Notices::default(),
            untrusted: Vec::new(),
            given_model: None,
            profile: None,
            chosen: None,
        }
    }

    /// Reads the settings that apply to a workspace, or outside of any workspace if `root` is `None`.
    pub fn load(root: Option<&Path>, environment: Environment) -> Result<Self, Error> {
        let (places, unwritable) = writable_places(&environment)?;
        let mut layers = Layers::new(KEYS);
        for file in managed_files(&places.managed_dir)? {
            layers.add_file(SettingsLayer::Managed, &file)?;
        }
        layers.add_file(SettingsLayer::User, &places.config_file())?;
        for key in KEYS {
            let Some(variable) = variable(key) else {
                continue;
            };
            if let Some(value) = environment.get(&variable) {
                let value = value
                    .to_str()
                    .ok_or_else(|| Error::usage(format!("{variable} is not UTF-8")))?;
                layers.add(SettingsLayer::Environment, key.name, value, &variable)?;
            }
        }
        let mut settings = Self {
            layers,
            project: Layers::new(KEYS),
            places,
            warnings: unwritable.into_iter().collect(),
            environment,
            notices: Notices::default(),
            untrusted: Vec::new(),
            given_model: None,
            profile: None,
            chosen: None,
        };
        if let Some(root) = root {
            let approved = settings.places.rules_file(root);
            settings.layers.add_file(SettingsLayer::User, &approved)?;
            settings.add_project(root)?;
        }
        settings.warn_of_unknown_variables();
        Ok(settings)
    }

    fn warn_of_unknown_variables(&mut self) {
        let names = self
            .environment
            .variables()
            .filter_map(|(name, _)| name.into_string().ok());
        let mut known: Vec<String> = KEYS.iter().filter_map(variable).collect();
        known.extend([LOG_VARIABLE, TOKEN_VARIABLE].map(str::to_owned));
        for name in names.filter(|name| name.starts_with("WINDLASS_") && !known.contains(name)) {
            let near = nearest(&name, known.iter().map(String::as_str));
            let meant = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            self.warnings
                .push(format!("the variable {name} is not a setting{meant}"));
        }
    }

    fn add_project(&mut self, root: &Path) -> Result<(), Error> {
        let (files, links) = project_files(root)?;
        self.warnings
            .extend(links.into_iter().map(|link| link_warning(root, link)));
        let store = TrustStore::new(self.places.trust_dir());
        for file in files {
            let (path, text) = (root.join(file.name), Self::project_text(root, &file)?);
            let layer = if file.name.contains(".local.") {
                SettingsLayer::ProjectLocal
            } else {
                SettingsLayer::Project
            };
            let said = match store.decision(root, &file) {
                _ if store.lies_in(root) => None,
                Ok(said) => said,
                Err(err) => {
                    self.warnings.push(err.message);
                    None
                }
            };
            if said == Some(TrustDecision::Trusted) {
                self.layers.add_text(layer, &path, &text)?;
                continue;
            }
            let mut alone = Layers::new(KEYS);
            alone.add_text(layer, &path, &text)?;
            self.project.add_text(layer, &path, &text)?;
            let own = &self.layers;
            let more = alone.iter().filter(|(name, set)| {
                SettingEffect::of(name, &set.value, own) != SettingEffect::Tightens
            });
            let unused: Vec<String> = more
                .map(|(name, setting)| {
                    format!(
                        "{}: `{name}` is ignored, because the settings of an untrusted project may only restrict runs \
                         further (`windlass trust show`)",
                        setting.origin
                    )
                })
                .collect();
            // A user who refused to trust this file is not warned again.
            if !unused.is_empty() && said.is_none() {
                self.warnings.extend(unused);
                self.untrusted.push(file);
            }
        }
        Ok(())
    }

    fn project_text(root: &Path, file: &ProjectFile) -> Result<String, Error> {
        let unreadable = || {
            Error::usage(format!(
                "{} is not UTF-8 text",
                root.join(file.name).display()
            ))
        };
        String::from_utf8(file.bytes.clone()).map_err(|_| unreadable())
    }

    /// The names and values that a project file sets.
    pub fn project_values(root: &Path, file: &ProjectFile) -> Result<Vec<(String, Value)>, Error> {
        let mut alone = Layers::new(KEYS);
        alone.add_text(
            SettingsLayer::Project,
            &root.join(file.name),
            &Self::project_text(root, file)?,
        )?;
        Ok(alone
            .iter()
            .map(|(name, setting)| (name.to_owned(), setting.value.clone()))
            .collect())
    }

    /// Stores a rule that the user approved with "always", for this workspace.
    pub fn remember_rule(places: &Places, root: &Path, rule: &str) -> Result<(), Error> {
        let file = places.rules_file(root);
        let mut known = Layers::new(KEYS);
        known.add_file(SettingsLayer::User, &file)?;
        let mut rules = known.texts("rules.allow").unwrap_or_default().to_vec();
        if rules.iter().all(|known| known != rule) {
            rules.push(rule.to_owned());
            set(&file, KEYS, "rules.allow", &Value::Texts(rules).to_string())?;
        }
        Ok(())
    }

    /// Adds the flags to the layer [`SettingsLayer::Flag`].
    pub fn add_flags(&mut self, agent: &AgentFlags, limits: &LimitFlags) -> Result<(), Error> {
        if let Some(profile) = &agent.profile {
            // The profile comes before the flags of the same layer, so that a flag overrides it.
            self.add_profile(profile)?;
        }
        let flags = [
            ("runtime", text(&agent.runtime), "--runtime"),
            ("model", text(&agent.model), "--model"),
            ("provider", text(&agent.provider), "--provider"),
            ("approval", text(&agent.approval), "--approval"),
            ("on_ask", text(&agent.on_ask), "--on-ask"),
            ("sandbox.level", text(&agent.sandbox), "--sandbox"),
            ("sandbox.net", text(&agent.net), "--net"),
            (
                "reasoning_effort",
                text(&agent.reasoning_effort),
                "--reasoning-effort",
            ),
            (
                "max_budget_usd",
                text(&limits.max_budget_usd),
                "--max-budget-usd",
            ),
            ("max_steps", text(&limits.max_steps), "--max-steps"),
            ("max_tokens", text(&limits.max_tokens), "--max-tokens"),
            ("max_seconds", text(&limits.max_seconds), "--max-seconds"),
        ];
        for (key, value, flag) in flags {
            if let Some(value) = value {
                self.check_ceiling(key, &value, flag)?;
                self.layers.add(SettingsLayer::Flag, key, &value, flag)?;
            }
        }
        Ok(())
    }

    /// Rejects a flag that contradicts a value that the profile fixes.
    fn check_ceiling(&self, key: &str, value: &str, flag: &str) -> Result<(), Error> {
        let Some(profile) = &self.profile else {
            return Ok(());
        };
        match profile
            .ceilings
            .iter()
            .find(|(fixed, most)| *fixed == key && *most != value)
        {
            Some((_, most)) => Err(Error::usage(format!(
                "`{flag} {value}` cannot be combined with the profile `{}`, which requires `{most}`",
                profile.name
            ))
            .hint("omit the flag or the profile")),
            None => Ok(()),
        }
    }

    /// The value that the profile fixes for a setting.
    pub(crate) fn fixed(&self, key: &str) -> Option<&'static str> {
        let profile = self.profile.as_ref()?;
        profile
            .ceilings
            .iter()
            .find(|(fixed, _)| *fixed == key)
            .map(|(_, most)| *most)
    }

    /// Adds the flags for checks and landing that are also settings.
    pub fn add_contract_flags(&mut self, args: &ContractFlags) -> Result<(), Error> {
        if let Some(limit) = text(&args.max_iterations) {
            self.layers.add(
                SettingsLayer::Flag,
                "max_iterations",
                &limit,
                "--max-iterations",
            )?;
        }
        Ok(())
    }

    /// Adds the settings of a profile to the layer of the flags.
    fn add_profile(&mut self, name: &str) -> Result<(), Error> {
        let profile = Profile::named(name, &self.layers)?;
        let place = format!("profile {name}");
        for key in KEYS
            .iter()
            .filter_map(|key| key.name.strip_prefix("profiles.*."))
        {
            let meant = match key {
                // These describe the profile itself; `Profile::named` reads them.
                "mode" | "tools" | "instructions" => continue,
                "sandbox" => "sandbox.level",
                key => key,
            };
            let Some(setting) = self.layers.get(&Self::named("profiles", name, key)) else {
                continue;
            };
            let value = match &setting.value {
                Value::Text(text) => text.clone(),
                other => other.to_string(),
            };
            self.layers
                .add(SettingsLayer::Flag, meant, &value, &place)?;
        }
        for (key, most) in &profile.ceilings {
            self.layers.add(SettingsLayer::Flag, key, most, &place)?;
        }
        self.profile = Some(profile);
        Ok(())
    }

    /// A key with a part that the user chooses, quoted if necessary, as in `prices."gpt-5.4".input`.
    pub fn named(table: &str, name: &str, key: &str) -> String {
        let bare = name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        if bare {
            format!("{table}.{name}.{key}")
        } else {
            format!("{table}.\"{name}\".{key}")
        }
    }

    /// The limits of a run. A limit of an untrusted project applies if it is lower.
    pub fn budget(&self) -> Result<Budget, Error> {
        for key in ["max_steps", "max_tokens", "max_iterations"] {
            if self
                .limit(key)
                .flatten()
                .is_some_and(|limit| limit.fract() != 0.0)
            {
                return Err(Error::usage(format!(
                    "`{key}` must be a whole number, or \"unlimited\""
                )));
            }
        }
        let mut budget = Budget::default();
        if let Some(limit) = self.limit("max_budget_usd") {
            budget.cost_micros = limit.map(|usd| (usd * 1_000_000.0) as u64);
        }
        if let Some(limit) = self.limit("max_iterations") {
            budget.iterations = limit.map(|iterations| iterations as u32);
        }
        if let Some(limit) = self.limit("max_steps") {
            budget.steps = limit.map(|steps| steps as u32);
        }
        if let Some(limit) = self.limit("max_tokens") {
            budget.tokens = limit.map(|tokens| tokens as u64);
            budget.tokens_uncached = budget.tokens;
        }
        if let Some(limit) = self.limit("max_seconds") {
            budget.seconds = limit.map(|seconds| (seconds.ceil() as u64).max(1));
        }
        Ok(budget)
    }

    /// The sampling parameters of model calls.
    pub(crate) fn sampling(&self) -> Sampling {
        let number = |key: &str| {
            self.layers
                .integer(key)
                .and_then(|number| u64::try_from(number).ok())
        };
        Sampling {
            temperature: self.layers.number("temperature"),
            reasoning_effort: self.layers.text("reasoning_effort").map(str::to_owned),
            thinking_tokens: number("thinking_tokens"),
            stop: self.layers.texts("stop").unwrap_or_default().to_vec(),
            ..Sampling::default()
        }
    }

    /// The maximum number of output tokens of one model call, if it is set.
    pub(crate) fn max_output(&self) -> Option<u64> {
        self.layers
            .integer("max_output")
            .and_then(|most| u64::try_from(most).ok())
            .filter(|most| *most > 0)
    }

    /// Whether a cost limit is set, in contrast to the default limit.
    pub(crate) fn explicit_cost_limit(&self) -> bool {
        matches!(self.limit("max_budget_usd"), Some(Some(_)))
    }

    /// The approval mode. The setting of the runtime (`runtimes.NAME.approval`) overrides `approval`, unless `approval` is
    /// set in a stronger layer. An untrusted project and the profile can make the result stricter, never looser.
    pub(crate) fn mode(&self, default: Mode) -> Mode {
        let mode = |layers: &Layers<'_>| {
            layers
                .text("approval")
                .and_then(|text| text.parse::<Mode>().ok())
        };
        let for_all = self
            .layers
            .get("approval")
            .map(|setting| setting.origin.layer);
        let of_runtime = self
            .of_runtime("approval")
            .filter(|setting| Some(setting.origin.layer) >= for_all);
        let of_runtime = of_runtime.and_then(|setting| match &setting.value {
            Value::Text(text) => text.parse::<Mode>().ok(),
            _ => None,
        });
        let chosen = of_runtime.or_else(|| mode(&self.layers)).unwrap_or(default);
        let fixed = self
            .fixed("approval")
            .and_then(|text| text.parse::<Mode>().ok());
        mode(&self.project)
            .into_iter()
            .chain(fixed)
            .fold(chosen, |chosen, most| {
                if (most as u8) < (chosen as u8) {
                    most
                } else {
                    chosen
                }
            })
    }

    /// A setting of the runtime that is used, below `runtimes.NAME`.
    fn of_runtime(&self, key: &str) -> Option<&Setting> {
        let runtime = self
            .chosen
            .as_deref()
            .or_else(|| self.layers.text("runtime"))?;
        let dir = self.places.runtimes_dir();
        let table = InstalledAgents { dir: &dir }.settings_table(runtime);
        self.layers.get(&Self::named("runtimes", &table, key))
    }

    /// The permission gate with the mode and the rules of all layers. Allow rules of an untrusted project are left out.
    pub fn gate(&self, default: Mode, tools: &[&str]) -> Result<PermissionGate, Error> {
        let chosen = self.mode(default);
        let mut rules = Vec::new();
        let keys = [
            ("rules.allow", Verdict::Allow),
            ("rules.ask", Verdict::Ask),
            ("rules.deny", Verdict::Deny),
        ];
        for (key, verdict) in keys {
            let own = self.layers.stack(key);
            let project = self
                .project
                .stack(key)
                .filter(|_| verdict != Verdict::Allow);
            for setting in own.chain(project) {
                let Value::Texts(texts) = &setting.value else {
                    continue;
                };
                let level = match setting.origin.layer {
                    SettingsLayer::Managed => Level::Managed,
                    SettingsLayer::Project | SettingsLayer::ProjectLocal => Level::Project,
                    _ => Level::User,
                };
                for text in texts {
                    let rule = Rule::parse(text, verdict, level);
                    let rule =
                        rule.map_err(|err| Error::usage(format!("{}: {err}", setting.origin)))?;
                    // An untrusted project may forbid a tool that its own settings define.
                    let brought = Self::named("tools", &rule.tool, "command");
                    if level != Level::Project || self.project.get(&brought).is_none() {
                        known_tool(&rule, tools, &setting.origin)?;
                    }
                    rules.push(rule);
                }
            }
        }
        if let Some(profile) = &self.profile {
            for tool in tools.iter().filter(|tool| profile.lacks(tool)) {
                rules.push(Rule {
                    tool: (*tool).to_owned(),
                    pattern: None,
                    verdict: Verdict::Deny,
                    level: Level::Profile,
                });
            }
        }
        let exposed = self
            .layers
            .texts("credentials.show")
            .unwrap_or_default()
            .to_vec();
        Ok(PermissionGate {
            mode: chosen,
            rules,
            exposed,
            reach: sandboxing::reach(self)?,
        })
    }

    /// A limit: `None` if it is not set, `Some(None)` for `unlimited`.
    pub(crate) fn limit(&self, key: &str) -> Option<Option<f64>> {
        let read = |layers: &Layers<'_>| match &layers.get(key)?.value {
            Value::Integer(number) => Some(Some(*number as f64)),
            Value::Number(number) => Some(Some(*number)),
            _ => Some(None),
        };
        match (read(&self.layers), read(&self.project)) {
            (own, None | Some(None)) => own,
            (Some(Some(own)), Some(Some(project))) => Some(Some(own.min(project))),
            (Some(None), Some(project)) => Some(project),
            // If only the project sets the limit, it can lower the default, not raise it.
            (None, Some(Some(project))) => Some(Some(project.min(default_limit(key)))),
        }
    }
}

/// The directories of the user. If the usual data directory is not writable, data goes to a temporary directory.
pub fn places(environment: &Environment) -> Result<Places, Error> {
    Ok(writable_places(environment)?.0)
}

fn writable_places(environment: &Environment) -> Result<(Places, Option<String>), Error> {
    let named = environment.path("XDG_DATA_HOME").is_some();
    let lookup = |name: &str| environment.get(name).map(OsStr::to_owned);
    Ok(Places::from_env(lookup)?.writable(named, &environment.temp_dir())?)
}

/// Rejects a rule about a tool that does not exist: it would protect nothing, and is probably misspelled.
fn known_tool(rule: &Rule, tools: &[&str], origin: &SettingOrigin) -> Result<(), Error> {
    let name = rule.tool.as_str();
    if name.contains('*')
        || name.starts_with("mcp__")
        || LATER_TOOLS.contains(&name)
        || tools.contains(&name)
    {
        return Ok(());
    }
    let failure = Error::usage(format!("{origin}: there is no tool `{name}`"));
    Err(match nearest(name, tools.iter().copied()) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint("`windlass tools` lists the tools"),
    })
}

/// Names of planned tools, which rules may already use.
const LATER_TOOLS: &[&str] = &["web_fetch", "web_search", "spawn_agent"];

/// The default of a limit; infinity if there is none.
pub(crate) fn default_limit(key: &str) -> f64 {
    let budget = Budget::default();
    let number = |value: Option<u64>| value.map_or(f64::INFINITY, |value| value as f64);
    match key {
        "max_budget_usd" => number(budget.cost_micros) / 1_000_000.0,
        "max_steps" => number(budget.steps.map(u64::from)),
        "max_iterations" => number(budget.iterations.map(u64::from)),
        "max_tokens" => number(budget.tokens),
        _ => number(budget.seconds),
    }
}

/// The value of a flag as a setting.
fn text<T: ToString>(flag: &Option<T>) -> Option<String> {
    flag.as_ref().map(ToString::to_string)
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
