//! Decides which settings of an untrusted project apply: a setting that only restricts runs further applies, any other
//! setting needs the trust of the user.
//!
//! ```
//! use std::path::Path;
//!
//! use windlass::settings::Settings;
//! use windlass::trust::{SettingEffect, link_warning};
//!
//! let dir = tempfile::tempdir()?;
//! let mut settings = Settings::none(dir.path());
//! settings.layers.add(windlass::settings::SettingsLayer::Flag, "max_steps", "9", "here")?;
//! let own = Settings::none(dir.path()).layers;
//! let steps = &settings.layers.get("max_steps").ok_or("it was set")?.value;
//! assert_eq!(SettingEffect::of("max_steps", steps, &own), SettingEffect::Tightens);
//! assert!(link_warning(Path::new("/project"), "a.toml").starts_with("/project/a.toml is ignored"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use windlass_host::trust::{ProjectFile, TrustDecision, TrustStore, project_files};

use std::path::Path;

use windlass_core::gate::Mode;
use windlass_host::config::{Layers, Value};
use windlass_host::sandbox::NetPolicy;

use crate::settings::default_limit;

/// The warning about a settings file of a project that is not a regular file.
pub fn link_warning(root: &Path, name: &str) -> String {
    format!(
        "{} is ignored, because it is a symlink or not a regular file",
        root.join(name).display()
    )
}

/// The effect of a project's setting on the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingEffect {
    /// Only restricts runs further, so it applies without trust.
    Tightens,
    /// May permit more than the user's own settings.
    Loosens,
    /// Changes the model, the vendor, the address or the recipient of data.
    Redirects,
    /// Names a program that will be executed.
    Runs,
    /// Any other effect, which also needs trust.
    Other,
}

impl SettingEffect {
    /// The effect of a key with this value, compared with the user's own settings.
    pub fn of(key: &str, value: &Value, own: &Layers<'_>) -> Self {
        let by_value = |loosens: bool| {
            if loosens {
                Self::Loosens
            } else {
                Self::Tightens
            }
        };
        let own = own.get(key).map(|own| &own.value);
        match key {
            "approval" => by_value(mode(Some(value)) > mode(own)),
            "max_budget_usd" | "max_steps" | "max_iterations" | "max_tokens" | "max_seconds" => {
                by_value(limit(value) > own.map_or_else(|| default_limit(key), limit))
            }
            "sandbox.level" => by_value(level(Some(value)) > level(own)),
            "sandbox.net" => {
                by_value(net(Some(value)).is_none_or(|project| {
                    project.narrowed(&net(own).unwrap_or_default()) != project
                }))
            }
            "rules.ask" | "rules.deny" | "validate.protect" => Self::Tightens,
            "validate.strict_judge" => by_value(*value == Value::Boolean(false)),
            key if is_check(key) => Self::Tightens,
            "validate.chain"
            | "validate.setup"
            | "validate.setup_net"
            | "validate.write_paths"
            | "rules.allow"
            | "credentials.show"
            | "env.pass"
            | "on_ask" => Self::Loosens,
            "notify.command" => Self::Runs,
            "provider" | "model" | "ca_file" | "runtime" | "runtime_order" | "runtime_fallback" => {
                Self::Redirects
            }
            key => match key.split_once('.').map(|(table, _)| table) {
                // `server` says when data of the user is deleted.
                Some("validators" | "sandbox" | "server") => Self::Loosens,
                // Programs, their arguments and their variables.
                Some("runtimes" | "tools") => Self::Runs,
                // `otel` and `webhooks` choose further recipients of data about the runs.
                Some("providers" | "profiles" | "otel" | "webhooks") => Self::Redirects,
                _ => Self::Other,
            },
        }
    }
}

/// Whether the key adds a check. A check of an untrusted project runs only in the sandbox of an isolated run.
fn is_check(key: &str) -> bool {
    key.starts_with("validators.") && (key.ends_with(".command") || key.ends_with(".custom"))
}

fn text(value: Option<&Value>) -> Option<&str> {
    match value {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// The approval mode as a number; higher is looser.
fn mode(value: Option<&Value>) -> u8 {
    text(value)
        .and_then(|text| text.parse::<Mode>().ok())
        .unwrap_or_default() as u8
}

/// The sandbox level as a number; higher is looser. The default is `workspace-write`.
fn level(value: Option<&Value>) -> u8 {
    match text(value) {
        Some("read-only") => 0,
        Some("full") => 2,
        _ => 1,
    }
}

fn limit(value: &Value) -> f64 {
    match value {
        Value::Integer(number) => *number as f64,
        Value::Number(number) => *number,
        _ => f64::INFINITY,
    }
}

fn net(value: Option<&Value>) -> Option<NetPolicy> {
    text(value)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use windlass_host::config::SettingsLayer;

    use super::*;
    use crate::settings::KEYS;

    #[track_caller]
    fn check(own: &str, project: &str, expect: SettingEffect) {
        let read = |text: &str| {
            let mut layers = Layers::new(KEYS);
            layers
                .add_text(SettingsLayer::User, Path::new("config.toml"), text)
                .expect(text);
            layers
        };
        let (own_layers, project_layers) = (read(own), read(project));
        let (key, setting) = project_layers.iter().next().expect("a key");
        assert_eq!(
            SettingEffect::of(key, &setting.value, &own_layers),
            expect,
            "{project} over {own:?}"
        );
    }

    #[test]
    fn a_value_is_compared_with_the_settings_without_the_project() {
        use SettingEffect::{Loosens, Other, Redirects, Runs, Tightens};
        check("", "approval = \"plan\"", Tightens);
        check("", "approval = \"ask\"", Tightens);
        check("", "approval = \"edit\"", Loosens);
        check("", "approval = \"auto\"", Loosens);
        check("approval = \"auto\"", "approval = \"edit\"", Tightens);
        check("approval = \"plan\"", "approval = \"ask\"", Loosens);
        check("", "sandbox.level = \"read-only\"", Tightens);
        check("", "sandbox.level = \"full\"", Loosens);
        check(
            "sandbox.level = \"full\"",
            "sandbox.level = \"workspace-write\"",
            Tightens,
        );
        check(
            "sandbox.level = \"read-only\"",
            "sandbox.level = \"workspace-write\"",
            Loosens,
        );
        check("", "sandbox.net = \"off\"", Tightens);
        check("", "sandbox.net = \"loopback\"", Tightens);
        check("", "sandbox.net = \"open\"", Loosens);
        check("", "sandbox.net = \"no such thing\"", Loosens);
        check(
            "sandbox.net = \"open\"",
            "sandbox.net = \"allow:a.example\"",
            Tightens,
        );
        check(
            "sandbox.net = \"allow:a.example,b.example\"",
            "sandbox.net = \"allow:a.example\"",
            Tightens,
        );
        check(
            "sandbox.net = \"allow:a.example,b.example\"",
            "sandbox.net = \"allow:b.example,a.example\"",
            Tightens,
        );
        check(
            "sandbox.net = \"allow:a.example\"",
            "sandbox.net = \"allow:a.example,b.example\"",
            Loosens,
        );
        check("", "max_steps = 50", Tightens);
        check("", "max_steps = 51", Loosens);
        check("max_steps = 60", "max_steps = 51", Tightens);
        check("", "max_tokens = \"unlimited\"", Loosens);
        check(
            "max_tokens = \"unlimited\"",
            "max_tokens = 900000000",
            Tightens,
        );
        check("", "max_seconds = 3601", Loosens);
        check("", "max_budget_usd = 0.5", Tightens);
        check("", "max_budget_usd = 10.5", Loosens);
        check("", "rules.deny = [\"bash\"]", Tightens);
        check("", "rules.allow = [\"bash\"]", Loosens);
        check("", "sandbox.write = [\"/\"]", Loosens);
        check("", "model = \"x\"", Redirects);
        check("", "otel.endpoint = \"http://x\"", Redirects);
        check(
            "otel.endpoint = \"http://x\"",
            "otel.content = true",
            Redirects,
        );
        check("", "tools.x.command = [\"x\"]", Runs);
        check("", "notify.command = \"x\"", Runs);
        check("", "webhooks.x.url = \"https://x.example\"", Redirects);
        check("", "server.retention_days = 1", Loosens);
        check("", "temperature = 1.0", Other);
    }
}
