//! Which sandbox tier commands run in on this machine, what it does not hold, and why a stronger one is missing.

use std::path::Path;

use serde_json::{Value, json};
use windlass::sandboxing::{Offer, Tier};
use windlass::sandboxing::{not_held, tier_of};

use super::apparmor::AppArmorState;
use super::report::{Finding, Group};
use crate::command_error::CommandError;
use windlass::settings::Settings;

/// The demands of the settings on the sandbox.
#[derive(Debug, Default)]
struct WantedTier {
    /// `sandbox.level = "full"`: commands run without a sandbox.
    off: bool,
    /// The weakest tier that may be used.
    weakest: Option<Tier>,
}

impl WantedTier {
    fn of(settings: &Settings) -> Result<Self, CommandError> {
        let landlock = settings.layers.text("sandbox.accept") == Some("landlock");
        let weakest = match settings.layers.text("sandbox.require") {
            Some("namespaces") => Tier::Namespaces,
            Some("broker") => Tier::Broker,
            _ if landlock => Tier::Landlock,
            _ => Tier::Broker,
        };
        Ok(Self {
            off: !windlass::sandboxing::holds_commands(settings)?,
            weakest: Some(weakest),
        })
    }

    fn weakest(&self) -> Tier {
        self.weakest.unwrap_or(Tier::Broker)
    }
}

/// The tiers that this machine offers, found by trying them, and the demands of the settings.
#[derive(Debug)]
pub(super) struct SandboxReport {
    namespaces: Result<(), String>,
    broker: Result<(), String>,
    landlock: Result<(), String>,
    landlock_version: u32,
    limits_memory: bool,
    wanted: WantedTier,
    /// Why there are no namespaces, as far as the kernel's settings tell.
    cause: Option<Cause>,
}

impl SandboxReport {
    /// Tries every tier in `folder`.
    pub(super) fn probe(folder: &Path, settings: &Settings) -> Result<Self, CommandError> {
        let (helper, wanted) = (
            windlass::sandboxing::helper(&settings.environment)?,
            WantedTier::of(settings)?,
        );
        let Offer {
            namespaces,
            broker,
            landlock,
            landlock_version,
            limits_memory,
        } = windlass::sandboxing::offer(folder, &settings.environment)?;
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

    /// The tier commands run in; `None` where they are refused, or where the settings turn the sandbox off.
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

    /// The tier in words, for the first sentence; else the reason why there is none, and what to do.
    pub(super) fn in_words(&self) -> Result<String, (String, String)> {
        if self.wanted.off {
            return Ok(
                "commands run without a sandbox, as `sandbox.level = \"full\"` says".to_owned(),
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
            _ => "no sandbox holds commands here".to_owned(),
        };
        let todo = match (&self.cause, weaker) {
            (Some(cause), _) => cause.todo.clone(),
            (None, Some(Tier::Landlock)) => {
                "allow user namespaces, or accept the weaker level with `windlass config set sandbox.accept landlock`"
                    .to_owned()
            }
            (None, _) => "allow user namespaces; docs/containers.md says how".to_owned(),
        };
        Err((why, todo))
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let used = self.tier();
        let said = |tier: Tier, result: &Result<(), String>, about: &str| match result {
            Ok(()) if used == Some(tier) => Ok(format!("in use: {about}")),
            Ok(()) => Ok(format!("available: {about}")),
            Err(why) => Err(why.clone()),
        };
        let namespaces = said(
            Tier::Namespaces,
            &self.namespaces,
            "namespaces, Landlock and system call filters",
        );
        let broker = said(
            Tier::Broker,
            &self.broker,
            "Landlock, system call filters and a broker for the network",
        );
        let landlock = said(
            Tier::Landlock,
            &self.landlock,
            "Landlock and system call filters alone",
        );
        let version = |text: String| format!("{text} (Landlock version {})", self.landlock_version);
        let cause = self
            .cause
            .iter()
            .flat_map(|cause| [cause.long.clone(), format!("→ {}", cause.todo)]);
        let lines = |tier| {
            let phrases = (used == Some(tier)).then(|| not_held(tier, true));
            let phrases = phrases.into_iter().flatten();
            phrases.map(|phrase| format!("not held: {phrase}"))
        };
        let mut findings = vec![
            Finding::new(Group::Sandbox, "namespaces", namespaces)
                .with_more(lines(Tier::Namespaces).chain(cause).collect()),
            Finding::new(Group::Sandbox, "broker", broker).with_more(lines(Tier::Broker).collect()),
            Finding::new(
                Group::Sandbox,
                "landlock",
                landlock.map(version).map_err(version),
            )
            .with_more(lines(Tier::Landlock).collect()),
        ];
        if let Some(memory) = self.memory() {
            findings.push(Finding::new(
                Group::Sandbox,
                "memory",
                Ok(memory.to_owned()),
            ));
        }
        if self.wanted.off {
            let why =
                "`sandbox.level = \"full\"` turns it off: commands run with all of your rights"
                    .to_owned();
            findings.insert(0, Finding::new(Group::Sandbox, "sandbox", Err(why)));
        }
        findings
    }

    /// The way in which the memory of commands is held, where a sandbox holds them.
    fn memory(&self) -> Option<&'static str> {
        Some(match (self.tier()?, self.limits_memory) {
            (_, true) => {
                "limited: the kernel holds all commands of a run together to `sandbox.memory_mb`"
            }
            (Tier::Namespaces | Tier::Broker, false) => {
                "only watched: no control group can be made here, so a command that takes more than \
                 `sandbox.memory_mb` is ended a moment later"
            }
            (Tier::Landlock, false) => {
                "limited for each process alone: no control group can be made here"
            }
        })
    }

    pub(super) fn json(&self) -> Value {
        let tier = |result: &Result<(), String>| json!({ "ok": result.is_ok(), "why": result.as_ref().err() });
        let tier_in_force = self.tier().map_or("none", word);
        json!({
            "tier": tier_in_force,
            "namespaces": tier(&self.namespaces),
            "broker": tier(&self.broker),
            "landlock": tier(&self.landlock),
            "landlock_version": self.landlock_version,
            "memory": self.memory(),
            "not_held": self.tier().map_or_else(Vec::new, |tier| not_held(tier, true)),
            "cause": self.cause.as_ref().map(|cause| &cause.long),
        })
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

/// Why the kernel gives no user namespaces, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cause {
    /// For the first sentence.
    short: &'static str,
    long: String,
    todo: String,
}

/// Settings of the kernel and files of this machine that tell about user namespaces.
#[derive(Debug, Default)]
struct KernelFacts {
    apparmor: AppArmorState,
    /// `user.max_user_namespaces`
    max: Option<String>,
    /// `kernel.unprivileged_userns_clone`, which Debian had
    clone: Option<String>,
    container: bool,
    /// Something is mounted over parts of `/proc`, so that no new `/proc` may be mounted in a namespace.
    masked_proc: bool,
}

impl KernelFacts {
    fn read() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        Self {
            apparmor: AppArmorState::read(),
            max: read("/proc/sys/user/max_user_namespaces"),
            clone: read("/proc/sys/kernel/unprivileged_userns_clone"),
            container: ["/.dockerenv", "/run/.containerenv"]
                .iter()
                .any(|file| Path::new(file).exists()),
            masked_proc: windlass::sandboxing::proc_is_masked(),
        }
    }

    /// The first cause that is certain enough to name. A container comes before AppArmor: a profile cannot be installed
    /// from inside, and the container's own system call filter is the usual obstacle.
    fn cause(&self, program: &Path) -> Option<Cause> {
        let zero = |text: &Option<String>| text.as_deref().is_some_and(|text| text.trim() == "0");
        if zero(&self.max) || zero(&self.clone) {
            let (name, command) = match zero(&self.max) {
                true => (
                    "user.max_user_namespaces",
                    "sudo sysctl -w user.max_user_namespaces=15000",
                ),
                false => (
                    "kernel.unprivileged_userns_clone",
                    "sudo sysctl -w kernel.unprivileged_userns_clone=1",
                ),
            };
            return Some(Cause {
                short: "user namespaces are turned off here",
                long: format!("the kernel setting {name} is 0"),
                todo: format!("run `{command}`"),
            });
        }
        // A container with a read-only root has no file that marks it, but its masks can be seen.
        if self.container || self.masked_proc {
            let long = match self.masked_proc {
                true => "parts of /proc are masked, as container engines do it",
                false => "this is a container, whose system call filter is probably in the way",
            };
            return Some(Cause {
                short: "this container gets no user namespaces",
                long: long.to_owned(),
                todo: "start the container with `--security-opt systempaths=unconfined`, with Docker also \
                       `--security-opt seccomp=unconfined` (docs/containers.md says what that gives up)"
                    .to_owned(),
            });
        }
        self.apparmor.restricts_this_process().then(|| Cause {
            short: "Ubuntu's AppArmor restricts user namespaces",
            long: "the cause is Ubuntu's AppArmor restriction of user namespaces \
                   (kernel.apparmor_restrict_unprivileged_userns is 1)"
                .to_owned(),
            todo: format!("run `{}`", super::apparmor::install_command(program)),
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
    fn it_says_where_memory_is_only_watched() {
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
        check(true, false, "only watched:");
        check(false, false, "only watched:");
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
    fn a_missing_tier_is_said_with_what_to_do() {
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
        assert_eq!(off.json()["tier"], "none");
        assert!(off.in_words().unwrap().contains("without a sandbox"));
    }

    #[test]
    fn the_json_has_every_tier_and_what_is_not_held() {
        let json = report(false, true, Tier::Broker).json();
        assert_eq!(
            (json["tier"].as_str(), json["namespaces"]["why"].as_str()),
            (Some("broker"), Some("refused"))
        );
        assert_eq!(
            (
                json["broker"]["ok"].as_bool(),
                json["landlock_version"].as_u64()
            ),
            (Some(true), Some(7))
        );
        assert!(json["not_held"].as_array().unwrap().len() > 2);
        // In a container the first tier does not hold everything either.
        let first = not_held(Tier::Namespaces, true).len();
        assert_eq!(
            report(true, true, Tier::Broker).json()["not_held"]
                .as_array()
                .unwrap()
                .len(),
            first
        );
    }

    #[test]
    fn the_cause_is_named_from_the_kernels_settings() {
        let program = Path::new("/usr/bin/windlass");
        let text = |text: &str| Some(text.to_owned());
        let cause = |facts: KernelFacts| {
            facts
                .cause(program)
                .map(|cause| format!("{} | {}", cause.long, cause.todo))
        };
        assert_eq!(cause(KernelFacts::default()), None);
        let off = cause(KernelFacts {
            max: text("0\n"),
            ..KernelFacts::default()
        })
        .unwrap();
        assert!(
            off.contains("user.max_user_namespaces is 0 | run `sudo sysctl"),
            "{off}"
        );
        let clone = cause(KernelFacts {
            max: text("100\n"),
            clone: text("0\n"),
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
            container: true,
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
