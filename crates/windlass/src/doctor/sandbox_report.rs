//! Reports the sandbox tier of this machine, its gaps, and the reason why a stronger tier is missing.
//!
//! ```
//! use windlass::doctor::{SandboxTiers, TierState};
//!
//! fn describe(tiers: &SandboxTiers) -> String {
//!     let missing = |state: &TierState| state.why.clone().unwrap_or_default();
//!     format!("{}: {}", tiers.tier, missing(&tiers.namespaces))
//! }
//!
//! let works = TierState { ok: true, why: None };
//! let tiers = SandboxTiers {
//!     tier: "broker",
//!     namespaces: TierState { ok: false, why: Some("refused".into()) },
//!     broker: works.clone(),
//!     landlock: works,
//!     landlock_version: 7,
//!     memory: None,
//!     not_held: Vec::new(),
//!     cause: None,
//! };
//! assert_eq!(describe(&tiers), "broker: refused");
//! ```

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use windlass_host::apparmor::{AppArmorState, install_command};
use windlass_host::diagnosis::NamespaceSettings;

use super::verdict::{DoctorFinding, FindingGroup};
use crate::error::Error;
use crate::sandboxing::{self, Offer, Tier, not_held, tier_of};
use crate::settings::Settings;

/// The sandbox tiers of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SandboxTiers {
    /// The tier that commands run in, or `none`.
    pub tier: &'static str,
    pub namespaces: TierState,
    pub broker: TierState,
    pub landlock: TierState,
    pub landlock_version: u32,
    /// The memory limit of commands in words, if they run in a sandbox.
    pub memory: Option<&'static str>,
    /// The limitations of the tier in words.
    pub not_held: Vec<String>,
    /// The reason why namespaces fail, as far as kernel settings reveal it.
    pub cause: Option<String>,
}

/// Whether a sandbox tier works on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TierState {
    pub ok: bool,
    /// The reason why it does not work.
    pub why: Option<String>,
}

/// The requirements of the settings for the sandbox.
#[derive(Debug, Default)]
struct WantedTier {
    /// `sandbox.level = "full"`: commands run without a sandbox.
    off: bool,
    /// The weakest tier that may be used.
    weakest: Option<Tier>,
}

impl WantedTier {
    fn of(settings: &Settings) -> Result<Self, Error> {
        let landlock = settings.layers.text("sandbox.accept") == Some("landlock");
        let weakest = match settings.layers.text("sandbox.require") {
            Some("namespaces") => Tier::Namespaces,
            Some("broker") => Tier::Broker,
            _ if landlock => Tier::Landlock,
            _ => Tier::Broker,
        };
        Ok(Self {
            off: !sandboxing::holds_commands(settings)?,
            weakest: Some(weakest),
        })
    }

    fn weakest(&self) -> Tier {
        self.weakest.unwrap_or(Tier::Broker)
    }
}

/// The tiers that work on this machine, determined by testing each, and the requirements of the settings.
#[derive(Debug)]
pub(super) struct SandboxReport {
    namespaces: Result<(), String>,
    broker: Result<(), String>,
    landlock: Result<(), String>,
    landlock_version: u32,
    limits_memory: bool,
    wanted: WantedTier,
    /// The reason why namespaces fail, as far as kernel settings reveal it.
    cause: Option<NamespaceObstacle>,
}

impl SandboxReport {
    /// Tests every tier in `dir`.
    pub(super) fn probe(dir: &Path, settings: &Settings) -> Result<Self, Error> {
        let (helper, wanted) = (
            sandboxing::helper(&settings.environment)?,
            WantedTier::of(settings)?,
        );
        let Offer {
            namespaces,
            broker,
            landlock,
            landlock_version,
            limits_memory,
        } = sandboxing::offer(dir, &settings.environment)?;
        let cause = if namespaces.is_err() {
            KernelFacts::read().cause(&helper.program)
        } else {
            None
        };
        Ok(Self {
            namespaces,
            broker,
            landlock,
            landlock_version,
            limits_memory,
            wanted,
            cause,
        })
    }

    /// The tier that commands run in; `None` if commands are refused, or if the settings turn the sandbox off.
    pub(super) fn tier(&self) -> Option<Tier> {
        let offered = [
            (Tier::Namespaces, &self.namespaces),
            (Tier::Broker, &self.broker),
            (Tier::Landlock, &self.landlock),
        ];
        let mut usable = offered
            .into_iter()
            .filter(|(tier, result)| result.is_ok() && *tier >= self.wanted.weakest());
        usable
            .next()
            .map(|(tier, _)| tier)
            .filter(|_| !self.wanted.off)
    }

    /// Describes the tier for the verdict, or returns the reason why there is none and the fix.
    pub(super) fn in_words(&self) -> Result<String, (String, String)> {
        if self.wanted.off {
            return Ok(
                "commands run without a sandbox, because of `sandbox.level = \"full\"`".to_owned(),
            );
        }
        if let Some(tier) = self.tier() {
            let why = match (tier, &self.cause) {
                (Tier::Namespaces, _) => String::new(),
                (_, Some(cause)) => format!(" ({})", cause.short),
                (_, None) => " (no user namespaces here)".to_owned(),
            };
            return Ok(format!("commands run in the {} sandbox{why}", word(tier)));
        }
        let wanted = self.wanted.weakest();
        let offered = |tier: &Tier| match tier {
            Tier::Namespaces => self.namespaces.is_ok(),
            Tier::Broker => self.broker.is_ok(),
            Tier::Landlock => self.landlock.is_ok(),
        };
        let weaker = [Tier::Broker, Tier::Landlock].into_iter().find(offered);
        let why = match weaker {
            Some(Tier::Broker) => {
                format!(
                    "the settings require the {} sandbox, which this machine lacks",
                    word(wanted)
                )
            }
            _ => "no sandbox is available for commands".to_owned(),
        };
        let todo = match (&self.cause, weaker) {
            (Some(cause), _) => cause.todo.clone(),
            (None, Some(Tier::Landlock)) => {
                "allow user namespaces, or accept the weaker level with `windlass config set sandbox.accept landlock`"
                    .to_owned()
            }
            (None, _) => "allow user namespaces (see docs/containers.md)".to_owned(),
        };
        Err((why, todo))
    }

    pub(super) fn findings(&self) -> Vec<DoctorFinding> {
        let used = self.tier();
        let state = |tier: Tier, result: &Result<(), String>, about: &str| match result {
            Ok(()) if used == Some(tier) => Ok(format!("in use: {about}")),
            Ok(()) => Ok(format!("available: {about}")),
            Err(why) => Err(why.clone()),
        };
        let namespaces = state(
            Tier::Namespaces,
            &self.namespaces,
            "namespaces, Landlock and system call filters",
        );
        let broker = state(
            Tier::Broker,
            &self.broker,
            "Landlock, system call filters and a broker for the network",
        );
        let landlock = state(
            Tier::Landlock,
            &self.landlock,
            "only Landlock and system call filters",
        );
        let version = |text: String| format!("{text} (Landlock version {})", self.landlock_version);
        let cause = self
            .cause
            .iter()
            .flat_map(|cause| [cause.long.clone(), format!("→ {}", cause.todo)]);
        let lines = |tier| {
            let phrases = (used == Some(tier)).then(|| not_held(tier, true));
            let phrases = phrases.into_iter().flatten();
            phrases.map(|phrase| format!("not contained: {phrase}"))
        };
        let mut findings = vec![
            DoctorFinding::new(FindingGroup::Sandbox, "namespaces", namespaces)
                .with_more(lines(Tier::Namespaces).chain(cause).collect()),
            DoctorFinding::new(FindingGroup::Sandbox, "broker", broker)
                .with_more(lines(Tier::Broker).collect()),
            DoctorFinding::new(
                FindingGroup::Sandbox,
                "landlock",
                landlock.map(version).map_err(version),
            )
            .with_more(lines(Tier::Landlock).collect()),
        ];
        if let Some(memory) = self.memory() {
            findings.push(DoctorFinding::new(
                FindingGroup::Sandbox,
                "memory",
                Ok(memory.to_owned()),
            ));
        }
        if self.wanted.off {
            let why =
                "`sandbox.level = \"full\"` turns it off: commands run with all your permissions"
                    .to_owned();
            findings.insert(
                0,
                DoctorFinding::new(FindingGroup::Sandbox, "sandbox", Err(why)),
            );
        }
        findings
    }

    /// Describes the memory limit of commands, if they run in a sandbox.
    fn memory(&self) -> Option<&'static str> {
        Some(match (self.tier()?, self.limits_memory) {
            (_, true) => {
                "limited: the kernel limits all commands of a run together to `sandbox.memory_mb`"
            }
            (Tier::Namespaces | Tier::Broker, false) => {
                "only monitored: no control group can be created, so a command that uses more than \
                 `sandbox.memory_mb` is killed shortly after"
            }
            (Tier::Landlock, false) => {
                "limited only for each process: no control group can be created"
            }
        })
    }

    pub(super) fn tiers(&self) -> SandboxTiers {
        let state = |result: &Result<(), String>| TierState {
            ok: result.is_ok(),
            why: result.as_ref().err().cloned(),
        };
        let not_held = self.tier().map(|tier| not_held(tier, true));
        SandboxTiers {
            tier: self.tier().map_or("none", word),
            namespaces: state(&self.namespaces),
            broker: state(&self.broker),
            landlock: state(&self.landlock),
            landlock_version: self.landlock_version,
            memory: self.memory(),
            not_held: not_held.into_iter().flatten().collect(),
            cause: self.cause.as_ref().map(|cause| cause.long.clone()),
        }
    }

    #[cfg(test)]
    pub(super) fn for_test(namespaces: bool, broker: bool) -> Self {
        let result = |ok: bool| {
            if ok {
                Ok(())
            } else {
                Err("refused".to_owned())
            }
        };
        Self {
            namespaces: result(namespaces),
            broker: result(broker),
            landlock: Ok(()),
            landlock_version: 7,
            limits_memory: false,
            wanted: WantedTier::default(),
            cause: None,
        }
    }
}

fn word(tier: Tier) -> &'static str {
    tier_of(tier).word()
}

/// The reason why the kernel refuses user namespaces, and the fix.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamespaceObstacle {
    short: &'static str,
    long: String,
    todo: String,
}

/// Kernel settings and files that affect user namespaces.
#[derive(Debug, Default)]
struct KernelFacts {
    apparmor: AppArmorState,
    namespaces: NamespaceSettings,
    /// Mounts hide parts of `/proc`, so the kernel refuses a new `/proc` in a namespace.
    masked_proc: bool,
}

impl KernelFacts {
    fn read() -> Self {
        Self {
            apparmor: AppArmorState::read(),
            namespaces: NamespaceSettings::read(),
            masked_proc: sandboxing::proc_is_masked(),
        }
    }

    /// Returns the first cause that is certain enough. A container comes before AppArmor: a profile cannot be installed
    /// from inside, and the system call filter of the container is the usual obstacle.
    fn cause(&self, program: &Path) -> Option<NamespaceObstacle> {
        let zero = |text: &Option<String>| text.as_deref().is_some_and(|text| text.trim() == "0");
        if zero(&self.namespaces.max) || zero(&self.namespaces.clone) {
            let (name, command) = match zero(&self.namespaces.max) {
                true => (
                    "user.max_user_namespaces",
                    "sudo sysctl -w user.max_user_namespaces=15000",
                ),
                false => (
                    "kernel.unprivileged_userns_clone",
                    "sudo sysctl -w kernel.unprivileged_userns_clone=1",
                ),
            };
            return Some(NamespaceObstacle {
                short: "user namespaces are turned off",
                long: format!("the kernel setting {name} is 0"),
                todo: format!("run `{command}`"),
            });
        }
        // A container with a read-only root has no marker file, but it masks parts of /proc.
        if self.namespaces.in_container || self.masked_proc {
            let long = match self.masked_proc {
                true => "parts of /proc are masked, as container engines do",
                false => {
                    "this is a container, and its system call filter probably blocks namespaces"
                }
            };
            return Some(NamespaceObstacle {
                short: "this container has no user namespaces",
                long: long.to_owned(),
                todo: "start the container with `--security-opt systempaths=unconfined`, with Docker also \
                       `--security-opt seccomp=unconfined` (docs/containers.md describes the risk)"
                    .to_owned(),
            });
        }
        self.apparmor
            .restricts_this_process()
            .then(|| NamespaceObstacle {
                short: "Ubuntu's AppArmor restricts user namespaces",
                long: "the cause is Ubuntu's AppArmor restriction of user namespaces \
                   (kernel.apparmor_restrict_unprivileged_userns is 1)"
                    .to_owned(),
                todo: format!("run `{}`", install_command(program)),
            })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn report(namespaces: bool, broker: bool, weakest: Tier) -> SandboxReport {
        let wanted = WantedTier {
            off: false,
            weakest: Some(weakest),
        };
        SandboxReport {
            wanted,
            ..SandboxReport::for_test(namespaces, broker)
        }
    }

    #[test]
    fn the_report_says_whether_memory_is_limited_or_monitored() {
        let check = |namespaces: bool, limits_memory: bool, begins: &str| {
            let report = SandboxReport {
                limits_memory,
                ..SandboxReport::for_test(namespaces, true)
            };
            let memory = report.memory().unwrap_or_default();
            assert!(memory.starts_with(begins), "{memory}");
            let findings = report.findings();
            assert!(findings.iter().any(|finding| finding.what == "memory"));
        };
        check(true, true, "limited:");
        check(true, false, "only monitored:");
        check(false, false, "only monitored:");
    }

    #[test]
    fn the_strongest_tier_that_the_settings_allow_is_in_force() {
        use Tier::{Broker, Landlock, Namespaces};
        for (namespaces, broker, weakest, expected) in [
            (true, true, Broker, Some(Namespaces)),
            (false, true, Broker, Some(Broker)),
            (false, true, Namespaces, None),
            (false, false, Broker, None),
            (false, false, Landlock, Some(Landlock)),
        ] {
            assert_eq!(
                report(namespaces, broker, weakest).tier(),
                expected,
                "{namespaces} {broker} {weakest:?}"
            );
        }
    }

    #[test]
    fn a_missing_tier_is_reported_with_a_fix() {
        let required = report(false, true, Tier::Namespaces)
            .in_words()
            .unwrap_err();
        assert!(
            required.0.contains("require the namespaces sandbox"),
            "{}",
            required.0
        );
        let none = report(false, false, Tier::Broker).in_words().unwrap_err();
        assert!(none.1.contains("sandbox.accept landlock"), "{}", none.1);
        let off = SandboxReport {
            wanted: WantedTier {
                off: true,
                weakest: None,
            },
            ..SandboxReport::for_test(true, true)
        };
        assert_eq!(off.tiers().tier, "none");
        assert!(off.in_words().unwrap().contains("without a sandbox"));
    }

    #[test]
    fn the_report_has_every_tier_and_its_gaps() {
        let tiers = report(false, true, Tier::Broker).tiers();
        assert_eq!(
            (tiers.tier, tiers.namespaces.why.as_deref()),
            ("broker", Some("refused"))
        );
        assert_eq!((tiers.broker.ok, tiers.landlock_version), (true, 7));
        assert!(tiers.not_held.len() > 2);
        // In a container, the first tier has gaps, too.
        let first = not_held(Tier::Namespaces, true).len();
        let tiers = report(true, true, Tier::Broker).tiers();
        assert_eq!(tiers.not_held.len(), first);
    }

    #[test]
    fn the_cause_is_derived_from_kernel_settings() {
        let program = Path::new("/usr/bin/windlass");
        let text = |text: &str| Some(text.to_owned());
        let cause = |facts: KernelFacts| {
            facts
                .cause(program)
                .map(|cause| format!("{} | {}", cause.long, cause.todo))
        };
        assert_eq!(cause(KernelFacts::default()), None);
        let off = cause(KernelFacts {
            namespaces: NamespaceSettings {
                max: text("0\n"),
                ..NamespaceSettings::default()
            },
            ..KernelFacts::default()
        })
        .unwrap();
        assert!(
            off.contains("user.max_user_namespaces is 0 | run `sudo sysctl"),
            "{off}"
        );
        let clone = cause(KernelFacts {
            namespaces: NamespaceSettings {
                max: text("100\n"),
                clone: text("0\n"),
                ..NamespaceSettings::default()
            },
            ..KernelFacts::default()
        })
        .unwrap();
        assert!(
            clone.contains("kernel.unprivileged_userns_clone is 0"),
            "{clone}"
        );
        let apparmor = || AppArmorState::from_files(Some("Y\n"), Some("1\n"), Some("unconfined\n"));
        let ubuntu = cause(KernelFacts {
            apparmor: apparmor(),
            ..KernelFacts::default()
        })
        .unwrap();
        assert!(
            ubuntu.contains("AppArmor restriction") && ubuntu.contains("doctor --install-apparmor"),
            "{ubuntu}"
        );
        let inside = cause(KernelFacts {
            apparmor: apparmor(),
            namespaces: NamespaceSettings {
                in_container: true,
                ..NamespaceSettings::default()
            },
            ..KernelFacts::default()
        })
        .unwrap();
        assert!(inside.contains("container"), "{inside}");
        let masked = cause(KernelFacts {
            masked_proc: true,
            ..KernelFacts::default()
        })
        .unwrap();
        assert!(masked.contains("parts of /proc are masked"), "{masked}");
    }
}
