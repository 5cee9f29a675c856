//! The terms of a run: its isolation, its sandbox, how its spending is measured and when its calls are judged. They are
//! logged before the run starts, and the gate reads them. An unknown value of a later version is read as the weakest
//! one.
//!
//! ```
//! use windlass_core::terms::{Isolation, Strategy, Terms};
//!
//! assert_eq!(Terms::unconfined(Strategy::Overlay).isolation, Isolation::Isolated);
//! let unknown: Strategy = serde_json::from_str("\"of a later version\"").expect("any word");
//! assert_eq!(unknown.isolation(), Isolation::InPlace, "the weakest one");
//! ```

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a run works on the user's own tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// The run works on an isolated copy, which lands when the validators pass.
    Isolated,
    /// The run works on the user's own tree. Unknown values of later versions also map to this one, because the gate
    /// must not trust them.
    #[default]
    #[serde(other)]
    InPlace,
}

impl Isolation {
    /// Converts a flag to an isolation.
    #[must_use]
    pub fn from_flag(isolated: bool) -> Self {
        if isolated {
            Self::Isolated
        } else {
            Self::InPlace
        }
    }

    /// Whether the run works on an isolated copy.
    #[must_use]
    pub fn is_isolated(self) -> bool {
        self == Self::Isolated
    }
}

/// The technique by which the tree of a run is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Strategy {
    /// An overlay file system over the user's tree.
    Overlay,
    /// A copy whose files share their blocks with the user's files.
    Reflink,
    /// A plain copy of the files.
    Copy,
    /// The user's own tree.
    #[default]
    #[serde(other)]
    InPlace,
}

impl Strategy {
    /// The isolation that the strategy gives.
    #[must_use]
    pub fn isolation(self) -> Isolation {
        match self {
            Self::InPlace => Isolation::InPlace,
            Self::Overlay | Self::Reflink | Self::Copy => Isolation::Isolated,
        }
    }

    /// The name of the strategy, as in the log.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The access of sandboxed commands to the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr, strum::Display, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum SandboxLevel {
    /// Commands can read the workspace.
    ReadOnly,
    /// Commands can read and write the workspace.
    WorkspaceWrite,
    /// Commands can do everything that the user can: there is no sandbox.
    #[default]
    #[serde(other)]
    Full,
}

impl SandboxLevel {
    /// The name of the level, as in the settings.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The kernel mechanisms that confine commands, weakest first.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SandboxTier {
    /// Landlock and system call filters. Protected names in the workspace are not enforced.
    Landlock = 1,
    /// Landlock, system call filters, and a broker for the network; on a copy of the workspace.
    Broker = 2,
    /// Namespaces, Landlock and system call filters.
    Namespaces = 3,
    /// No kernel mechanism confines commands.
    #[default]
    #[serde(other)]
    None = 0,
}

impl SandboxTier {
    /// Whether nothing confines commands.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// Whether the kernel confines commands to the workspace. The gate relies on this, so weaker tiers do not qualify.
    #[must_use]
    pub fn confines(self) -> bool {
        self >= Self::Broker
    }

    /// The name of the tier, as in the settings.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The source of an agent's spending figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum MeteringKind {
    /// The agent's model calls go through the engine, which counts them.
    Wire,
    /// The agent reports its spending.
    Reported,
    /// The spending is unknown.
    #[default]
    #[serde(other)]
    None,
}

/// The point at which an agent's calls are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    /// Each call is judged before it runs.
    PerCall,
    /// Calls are not judged individually; only the sandbox confines them.
    #[default]
    #[serde(other)]
    SandboxOnly,
}

/// The network that commands can reach.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkTerms {
    /// There is no network.
    Off,
    /// Only a private loopback is reachable.
    Loopback,
    /// A private loopback and these hosts are reachable. `registries` stands for those of the package managers.
    Hosts(Vec<String>),
    /// The machine's network is reachable.
    #[default]
    #[serde(other)]
    Open,
}

impl fmt::Display for NetworkTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Loopback => f.write_str("loopback"),
            Self::Hosts(hosts) if *hosts == ["registries"] => f.write_str("registries"),
            Self::Hosts(hosts) => write!(f, "allow:{}", hosts.join(",")),
            Self::Open => f.write_str("open"),
        }
    }
}

/// The terms of a run, which are logged before it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Terms {
    /// Whether the run works on an isolated copy.
    pub isolation: Isolation,
    /// The technique by which the tree is made.
    pub strategy: Strategy,
    /// The access of commands to the workspace.
    pub sandbox: SandboxLevel,
    /// The mechanisms that confine commands. `none` with another sandbox level than `full` means that commands are refused.
    #[serde(default, skip_serializing_if = "SandboxTier::is_none")]
    pub tier: SandboxTier,
    /// Things that commands can still see or do outside the workspace, one phrase each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_held: Vec<String>,
    /// The source of the spending figures.
    pub metering: MeteringKind,
    /// The point at which calls are judged.
    pub gate: GateKind,
    /// The network that commands can reach.
    pub network: NetworkTerms,
    /// The version of a foreign agent, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
}

impl Terms {
    /// Terms without a sandbox, for an agent whose model calls go through the engine and whose calls are judged.
    #[must_use]
    pub fn unconfined(strategy: Strategy) -> Self {
        Self {
            isolation: strategy.isolation(),
            strategy,
            sandbox: SandboxLevel::Full,
            tier: SandboxTier::None,
            not_held: Vec::new(),
            metering: MeteringKind::Wire,
            gate: GateKind::PerCall,
            network: NetworkTerms::Open,
            agent_version: None,
        }
    }

    /// A short description of the sandbox: the level and the mechanisms.
    #[must_use]
    pub fn confinement(&self) -> String {
        let mechanisms = match (self.sandbox, self.tier) {
            (SandboxLevel::Full, _) => return "none".to_owned(),
            (_, SandboxTier::None) => "not available, so commands are refused",
            (_, SandboxTier::Landlock) => "landlock+seccomp",
            (_, SandboxTier::Broker) => "landlock+seccomp+broker",
            (_, SandboxTier::Namespaces) => "namespaces+landlock+seccomp",
        };
        format!("{}: {mechanisms}", self.sandbox.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_later_versions_read_as_the_weakest() {
        let text = r#"{"isolation":"vm","strategy":"inplace","sandbox":"tight","tier":"vm","metering":"quota",
            "gate":"sometimes","network":"mesh"}"#;
        let terms: Terms = serde_json::from_str(text).expect("terms");
        assert!(!terms.isolation.is_isolated() && !terms.tier.confines());
        assert_eq!(
            (terms.strategy, terms.sandbox),
            (Strategy::InPlace, SandboxLevel::Full)
        );
        assert_eq!(
            (terms.metering, terms.gate),
            (MeteringKind::None, GateKind::SandboxOnly)
        );
        assert_eq!(terms.network, NetworkTerms::Open);
    }
}
