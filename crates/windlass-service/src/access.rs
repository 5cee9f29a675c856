//! The rights of a caller: scopes, workspaces, and a ceiling on what its runs may do.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use strum::VariantNames as _;
use windlass::core::gate::Mode;
use windlass::core::terms::{Isolation, SandboxLevel};
use windlass::flags::Cap;
use windlass::settings::Settings;

use crate::problem::{Problem, ProblemCode};
use crate::run_request::RunRequest;

/// A right that an operation requires.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Scope {
    /// See sessions, events, files and settings.
    Read,
    /// Answer asks.
    Approve,
    /// Start, steer and cancel runs, land and undo.
    Run,
    /// Manage tokens and stop all runs.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Read, Self::Approve, Self::Run, Self::Admin];

    /// The name of the scope.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The most that runs of a token may do. An absent field stands for the settings of the user.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ceiling {
    /// The loosest approval mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Mode>,
    /// The loosest sandbox.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known_sandbox_level"
    )]
    pub sandbox: Option<SandboxLevel>,
    /// The widest network access, as `--net`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<String>,
    /// The highest cost of one run in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_budget_usd: Option<f64>,
    /// The only paths that runs may change, as globs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_paths: Option<Vec<String>>,
    /// Whether runs may work in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place: Option<bool>,
}

/// Reads a sandbox level of a request. In logs, an unknown level stands for the loosest one; a request with it is refused.
pub(crate) fn known_sandbox_level<'de, D: Deserializer<'de>>(
    de: D,
) -> Result<Option<SandboxLevel>, D::Error> {
    let word = Option::<String>::deserialize(de)?;
    let level = |word: String| {
        word.parse().map_err(|_| {
            D::Error::custom(format!(
                "unknown sandbox level `{word}`, expected one of {}",
                SandboxLevel::VARIANTS.join(", ")
            ))
        })
    };
    word.map(level).transpose()
}

/// The caller of an operation.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The name of the token; `None` for the user at this machine.
    pub token: Option<String>,
    scopes: Vec<Scope>,
    /// The only workspaces that the caller can see; `None` for all of the server.
    workspaces: Option<Vec<PathBuf>>,
    ceiling: Ceiling,
    /// The user types the options of runs, as on a command line, so that they may be looser than the settings.
    at_terminal: bool,
}

impl Caller {
    /// The user who started this process: all scopes, all workspaces of the service, and the user's settings as ceiling.
    #[must_use]
    pub fn owner() -> Self {
        Self {
            token: None,
            scopes: Scope::ALL.to_vec(),
            workspaces: None,
            ceiling: Ceiling::default(),
            at_terminal: false,
        }
    }

    /// The user at the terminal of this process. Options of runs may exceed the settings, as flags of a command line may.
    #[must_use]
    pub fn terminal() -> Self {
        Self {
            at_terminal: true,
            ..Self::owner()
        }
    }

    pub(crate) fn of_token(
        name: &str,
        scopes: &[Scope],
        workspaces: Option<&[PathBuf]>,
        ceiling: &Ceiling,
    ) -> Self {
        Self {
            token: Some(name.to_owned()),
            scopes: scopes.to_vec(),
            workspaces: workspaces.map(<[PathBuf]>::to_vec),
            ceiling: ceiling.clone(),
            at_terminal: false,
        }
    }

    /// Whether the caller has a scope.
    #[must_use]
    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Refuses a caller that may not read.
    pub fn check_read(&self) -> Result<(), Problem> {
        self.require(Scope::Read)
    }

    /// Refuses a caller without a scope.
    pub(crate) fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.has(scope) {
            return Ok(());
        }
        Err(Problem::new(
            ProblemCode::Forbidden,
            format!("this token lacks the scope `{}`", scope.word()),
        )
        .hint(format!(
            "use a token with it: `windlass serve token add NAME --scope {}`",
            scope.word()
        )))
    }

    /// Whether the caller may see a workspace.
    #[must_use]
    pub fn sees(&self, workspace: &Path) -> bool {
        match &self.workspaces {
            None => true,
            Some(roots) => roots.iter().any(|root| workspace.starts_with(root)),
        }
    }

    /// Refuses a run that would exceed the ceiling, and adds the limits of the ceiling to the request.
    pub(crate) fn apply_ceiling(
        &self,
        request: &mut RunRequest,
        settings: &Settings,
    ) -> Result<(), Problem> {
        if self.at_terminal {
            return Ok(());
        }
        let ceiling = &self.ceiling;
        let isolation = Isolation::from_flag(!request.in_place.unwrap_or(false));
        if request.in_place == Some(true) && ceiling.in_place == Some(false) {
            return Err(exceeds("runs in place", "omit `in_place`"));
        }
        let default = match isolation {
            Isolation::Isolated => Mode::Auto,
            Isolation::InPlace => Mode::Ask,
        };
        let own: Option<Mode> = settings
            .layers
            .text("approval")
            .and_then(|word| word.parse().ok());
        let mode = ceiling.approval.or(own).unwrap_or(default);
        if let Some(wanted) = request.approval
            && looseness(wanted) > looseness(mode)
        {
            return Err(exceeds(
                &format!("the approval mode `{wanted}`"),
                &format!("use `{mode}` or a stricter mode"),
            ));
        }
        if request.approval.is_none() && ceiling.approval.is_some() {
            request.approval = ceiling.approval;
        }
        let own = settings
            .layers
            .text("sandbox.level")
            .and_then(|word| word.parse().ok());
        let level = ceiling
            .sandbox
            .or(own)
            .unwrap_or(SandboxLevel::WorkspaceWrite);
        if let Some(wanted) = request.sandbox
            && openness(wanted) > openness(level)
        {
            return Err(exceeds(
                &format!("the sandbox level `{wanted}`"),
                &format!("use `{level}` or a stricter level"),
            ));
        }
        if request.sandbox.is_none() && ceiling.sandbox.is_some() {
            request.sandbox = ceiling.sandbox;
        }
        let own = settings.layers.text("sandbox.net").unwrap_or("loopback");
        let net = ceiling.net.as_deref().unwrap_or(own);
        if let Some(wanted) = &request.net
            && !net_is_within(wanted, net)
        {
            return Err(exceeds(
                &format!("network access `{wanted}`"),
                &format!("use `{net}` or less"),
            ));
        }
        if request.net.is_none() && ceiling.net.is_some() {
            request.net.clone_from(&ceiling.net);
        }
        self.limit_cost(request, settings)?;
        if let Some(paths) = &ceiling.write_paths {
            match &request.write_paths {
                None => request.write_paths = Some(paths.clone()),
                Some(wanted) if wanted.iter().all(|path| paths.contains(path)) => {}
                Some(_) => {
                    return Err(exceeds(
                        "these write paths",
                        &format!("use some of {}", paths.join(", ")),
                    ));
                }
            }
        }
        Ok(())
    }

    fn limit_cost(&self, request: &mut RunRequest, settings: &Settings) -> Result<(), Problem> {
        let own = settings
            .budget()?
            .cost_micros
            .map(|micros| micros as f64 / 1e6);
        let Some(most) = self.ceiling.max_budget_usd.or(own) else {
            return Ok(());
        };
        let over = match request.max_budget_usd {
            Some(Cap::Unlimited) => true,
            Some(Cap::At(usd)) => usd > most,
            None => false,
        };
        if over {
            return Err(exceeds(
                "this budget",
                &format!("use at most {most} US dollars"),
            ));
        }
        if request.max_budget_usd.is_none() && self.ceiling.max_budget_usd.is_some() {
            request.max_budget_usd = Some(Cap::At(most));
        }
        Ok(())
    }
}

fn exceeds(what: &str, hint: &str) -> Problem {
    Problem::new(
        ProblemCode::Forbidden,
        format!("{what} would exceed what this token allows"),
    )
    .hint(hint.to_owned())
}

/// Approval modes in ascending order of what they allow without a person.
fn looseness(mode: Mode) -> u8 {
    match mode {
        Mode::Plan => 0,
        Mode::Ask => 1,
        Mode::Edit => 2,
        Mode::Auto => 3,
    }
}

fn openness(level: SandboxLevel) -> u8 {
    match level {
        SandboxLevel::ReadOnly => 0,
        SandboxLevel::WorkspaceWrite => 1,
        SandboxLevel::Full => 2,
    }
}

/// Whether network access is at most that of a limit. Hosts of an allow-list must be in the list of the limit.
fn net_is_within(wanted: &str, limit: &str) -> bool {
    let rank = |text: &str| match text {
        "off" => Some(0),
        "loopback" => Some(1),
        "registries" => Some(2),
        "open" => Some(9),
        _ => None,
    };
    match (rank(wanted), rank(limit)) {
        (Some(wanted), Some(limit)) => wanted <= limit,
        (Some(wanted), None) => wanted <= 1,
        (None, Some(limit)) => limit == 9,
        (None, None) => {
            let hosts = |text: &str| -> Vec<String> {
                let list = text.strip_prefix("allow:").unwrap_or(text);
                list.split(',').map(|host| host.trim().to_owned()).collect()
            };
            let allowed = hosts(limit);
            wanted.starts_with("allow:") && hosts(wanted).iter().all(|host| allowed.contains(host))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_sandbox_level_is_refused() {
        let ceiling = |text: &str| serde_json::from_str::<Ceiling>(text);
        let level = |text: &str| ceiling(text).unwrap().sandbox;
        assert_eq!(level("{}"), None);
        assert_eq!(level(r#"{"sandbox":null}"#), None);
        assert_eq!(
            level(r#"{"sandbox":"read-only"}"#),
            Some(SandboxLevel::ReadOnly)
        );
        let err = ceiling(r#"{"sandbox":"read_only"}"#).unwrap_err();
        assert!(err.to_string().contains("`read_only`"), "{err}");
        let request = serde_json::from_str::<RunRequest>(r#"{"sandbox":"readonly"}"#);
        assert!(request.is_err());
    }

    #[test]
    fn network_access_is_compared() {
        let check = |wanted: &str, limit: &str, expect: bool| {
            assert_eq!(
                net_is_within(wanted, limit),
                expect,
                "{wanted} within {limit}"
            );
        };
        check("off", "loopback", true);
        check("loopback", "loopback", true);
        check("registries", "loopback", false);
        check("open", "registries", false);
        check("allow:a.example", "open", true);
        check("allow:a.example", "registries", false);
        check("allow:a.example", "allow:a.example,b.example", true);
        check("allow:c.example", "allow:a.example,b.example", false);
        check("registries", "allow:a.example", false);
        check("loopback", "allow:a.example", true);
        check("nonsense", "loopback", false);
    }
}
