//! Which sandbox tier commands run in on this machine, what it does not hold, and why a stronger one is missing.

use std::path::Path;

use serde_json::{Value, json};
use windlass_sandbox::Offer;

use super::apparmor::AppArmorState;
use super::report::{Finding, Group};
use crate::failure::Failure;
use crate::settings::Settings;

/// A tier, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TierInForce {
    Namespaces,
    Broker,
    Landlock,
}

impl TierInForce {
    fn word(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Broker => "broker",
            Self::Landlock => "landlock",
        }
    }

    /// What a command can still do or see in this tier, in addition to the limits that hold for every tier.
    fn not_held(self) -> &'static [&'static str] {
        match self {
            Self::Namespaces => &[],
            Self::Broker => &[
                "names, sizes and times of files outside the workspace can be seen; their content cannot be read",
                "other processes can be listed",
                "ports that a command opens on loopback can be reached by other programs of this machine",
                "isolated runs work on a copy with another absolute path, not on an overlay",
            ],
            Self::Landlock => &[
                "names, sizes and times of files outside the workspace can be seen",
                "other processes can be listed",
                "names inside the workspace are not protected, and credentials in it can be read",
                "network rules by host do not hold, and UDP is not held",
            ],
        }
    }
}

/// What the settings ask of the sandbox.
#[derive(Debug, Default)]
struct WantedTier {
    /// `sandbox.level = "full"`: commands run without a sandbox.
    off: bool,
    /// The weakest tier that may be used.
    weakest: Option<TierInForce>,
}

impl WantedTier {
    fn of(settings: &Settings) -> Result<Self, Failure> {
        let landlock = settings.layers.text("sandbox.accept") == Some("landlock");
        let weakest = match settings.layers.text("sandbox.require") {
            Some("namespaces") => TierInForce::Namespaces,
            Some("broker") => TierInForce::Broker,
            _ if landlock => TierInForce::Landlock,
            _ => TierInForce::Broker,
        };
        Ok(Self { off: !crate::sandboxing::holds_commands(settings)?, weakest: Some(weakest) })
    }

    fn weakest(&self) -> TierInForce {
        self.weakest.unwrap_or(TierInForce::Broker)
    }
}

/// What this machine offers to hold commands, found by trying it, and what the settings make of it.
#[derive(Debug)]
pub(super) struct SandboxReport {
    namespaces: Result<(), String>,
    broker: Result<(), String>,
    landlock: Result<(), String>,
    landlock_version: u32,
    wanted: WantedTier,
    /// Why there are no namespaces, as far as the kernel's settings tell.
    cause: Option<Cause>,
}

impl SandboxReport {
    /// Tries every tier in `folder`.
    pub(super) fn probe(folder: &Path, settings: &Settings) -> Result<Self, Failure> {
        let helper = crate::sandboxing::helper()?;
        let wanted = WantedTier::of(settings)?;
        let Offer { full: namespaces, landlock, landlock_version } = windlass_sandbox::probe(&helper, folder);
        let broker = Err("this version of windlass has no broker tier".to_owned());
        let cause = if namespaces.is_err() { KernelFacts::read().cause(&helper.program) } else { None };
        Ok(Self { namespaces, broker, landlock, landlock_version, wanted, cause })
    }

    /// The tier commands run in; `None` where they are refused, or where the settings turn the sandbox off.
    pub(super) fn tier(&self) -> Option<TierInForce> {
        let offered = [
            (TierInForce::Namespaces, &self.namespaces),
            (TierInForce::Broker, &self.broker),
            (TierInForce::Landlock, &self.landlock),
        ];
        let mut usable = offered.into_iter().filter(|(tier, result)| result.is_ok() && *tier <= self.wanted.weakest());
        usable.next().map(|(tier, _)| tier).filter(|_| !self.wanted.off)
    }

    /// How commands are held, for the first sentence; else why they cannot be held, and what to do.
    pub(super) fn in_words(&self) -> Result<String, (String, String)> {
        if self.wanted.off {
            return Ok("commands run without a sandbox, as `sandbox.level = \"full\"` says".to_owned());
        }
        if let Some(tier) = self.tier() {
            let why = match (tier, &self.cause) {
                (TierInForce::Namespaces, _) => String::new(),
                (_, Some(cause)) => format!(" ({})", cause.short),
                (_, None) => " (no user namespaces here)".to_owned(),
            };
            return Ok(format!("commands run in the {} sandbox{why}", tier.word()));
        }
        let wanted = self.wanted.weakest();
        let offered = |tier: &TierInForce| match tier {
            TierInForce::Namespaces => self.namespaces.is_ok(),
            TierInForce::Broker => self.broker.is_ok(),
            TierInForce::Landlock => self.landlock.is_ok(),
        };
        let weaker = [TierInForce::Broker, TierInForce::Landlock].into_iter().find(offered);
        let why = match weaker {
            Some(TierInForce::Broker) => {
                format!("the settings require the {} sandbox, which this machine lacks", wanted.word())
            }
            _ => "no sandbox holds commands here".to_owned(),
        };
        let todo = match (&self.cause, weaker) {
            (Some(cause), _) => cause.todo.clone(),
            (None, Some(TierInForce::Landlock)) => {
                "allow user namespaces, or accept the weaker level with `windlass config set sandbox.accept landlock`"
                    .to_owned()
            }
            (None, _) => "allow user namespaces; docs/containers.md says how".to_owned(),
        };
        Err((why, todo))
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let used = self.tier();
        let said = |tier: TierInForce, result: &Result<(), String>, about: &str| match result {
            Ok(()) if used == Some(tier) => Ok(format!("in use: {about}")),
            Ok(()) => Ok(format!("available: {about}")),
            Err(why) => Err(why.clone()),
        };
        let namespaces =
            said(TierInForce::Namespaces, &self.namespaces, "namespaces, Landlock and system call filters");
        let broker =
            said(TierInForce::Broker, &self.broker, "Landlock, system call filters and a broker for the network");
        let landlock = said(TierInForce::Landlock, &self.landlock, "Landlock and system call filters alone");
        let version = |text: String| format!("{text} (Landlock version {})", self.landlock_version);
        let cause = self.cause.iter().flat_map(|cause| [cause.long.clone(), format!("→ {}", cause.todo)]);
        let not_held = used.map_or(&[][..], TierInForce::not_held);
        let not_held = |tier| if used == Some(tier) { not_held } else { &[] };
        let lines = |tier| not_held(tier).iter().map(|line| format!("not held: {line}")).collect::<Vec<_>>();
        let mut findings = vec![
            Finding::new(Group::Sandbox, "namespaces", namespaces).with_more(cause.collect()),
            Finding::new(Group::Sandbox, "broker", broker).with_more(lines(TierInForce::Broker)),
            Finding::new(Group::Sandbox, "landlock", landlock.map(version).map_err(version))
                .with_more(lines(TierInForce::Landlock)),
        ];
        if self.wanted.off {
            let why = "`sandbox.level = \"full\"` turns it off: commands run with all of your rights".to_owned();
            findings.insert(0, Finding::new(Group::Sandbox, "sandbox", Err(why)));
        }
        findings
    }

    pub(super) fn json(&self) -> Value {
        let tier = |result: &Result<(), String>| json!({ "ok": result.is_ok(), "why": result.as_ref().err() });
        let word = self.tier().map_or("none", TierInForce::word);
        json!({
            "tier": word,
            "namespaces": tier(&self.namespaces),
            "broker": tier(&self.broker),
            "landlock": tier(&self.landlock),
            "landlock_version": self.landlock_version,
            "not_held": self.tier().map_or(&[][..], TierInForce::not_held),
            "cause": self.cause.as_ref().map(|cause| &cause.long),
        })
    }

    #[cfg(test)]
    pub(super) fn for_test(namespaces: bool, broker: bool) -> Self {
        let result = |ok: bool| if ok { Ok(()) } else { Err("refused".to_owned()) };
        Self {
            namespaces: result(namespaces),
            broker: result(broker),
            landlock: Ok(()),
            landlock_version: 7,
            wanted: WantedTier::default(),
            cause: None,
        }
    }
}

/// Why the kernel gives no user namespaces, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cause {
    /// For the first sentence.
    short: &'static str,
    long: String,
    todo: String,
}

/// What the kernel's settings and this machine's files tell about user namespaces.
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
            container: ["/.dockerenv", "/run/.containerenv"].iter().any(|file| Path::new(file).exists()),
            masked_proc: read("/proc/self/mountinfo").is_some_and(|mounts| masks_proc(&mounts)),
        }
    }

    /// The first cause that is certain enough to name. A container comes before AppArmor: a profile cannot be installed
    /// from inside, and the container's own system call filter is the usual obstacle.
    fn cause(&self, program: &Path) -> Option<Cause> {
        let zero = |text: &Option<String>| text.as_deref().is_some_and(|text| text.trim() == "0");
        if zero(&self.max) || zero(&self.clone) {
            let (name, command) = match zero(&self.max) {
                true => ("user.max_user_namespaces", "sudo sysctl -w user.max_user_namespaces=15000"),
                false => ("kernel.unprivileged_userns_clone", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
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

/// Whether mounts cover parts of `/proc`. The one for other binary formats is there on every machine.
fn masks_proc(mountinfo: &str) -> bool {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points.into_iter().any(|point| point.starts_with("/proc/") && point != "/proc/sys/fs/binfmt_misc")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn report(namespaces: bool, broker: bool, weakest: TierInForce) -> SandboxReport {
        let wanted = WantedTier { off: false, weakest: Some(weakest) };
        SandboxReport { wanted, ..SandboxReport::for_test(namespaces, broker) }
    }

    #[test]
    fn the_strongest_tier_that_the_settings_allow_is_in_force() {
        use TierInForce::{Broker, Landlock, Namespaces};
        for (namespaces, broker, weakest, expected) in [
            (true, true, Broker, Some(Namespaces)),
            (false, true, Broker, Some(Broker)),
            (false, true, Namespaces, None),
            (false, false, Broker, None),
            (false, false, Landlock, Some(Landlock)),
        ] {
            assert_eq!(report(namespaces, broker, weakest).tier(), expected, "{namespaces} {broker} {weakest:?}");
        }
    }

    #[test]
    fn a_missing_tier_is_said_with_what_to_do() {
        let required = report(false, true, TierInForce::Namespaces).in_words().unwrap_err();
        assert!(required.0.contains("require the namespaces sandbox"), "{}", required.0);
        let none = report(false, false, TierInForce::Broker).in_words().unwrap_err();
        assert!(none.1.contains("sandbox.accept landlock"), "{}", none.1);
        let off =
            SandboxReport { wanted: WantedTier { off: true, weakest: None }, ..SandboxReport::for_test(true, true) };
        assert_eq!(off.json()["tier"], "none");
        assert!(off.in_words().unwrap().contains("without a sandbox"));
    }

    #[test]
    fn the_json_has_every_tier_and_what_is_not_held() {
        let json = report(false, true, TierInForce::Broker).json();
        assert_eq!((json["tier"].as_str(), json["namespaces"]["why"].as_str()), (Some("broker"), Some("refused")));
        assert_eq!((json["broker"]["ok"].as_bool(), json["landlock_version"].as_u64()), (Some(true), Some(7)));
        assert!(json["not_held"].as_array().unwrap().len() > 2);
        assert_eq!(report(true, true, TierInForce::Broker).json()["not_held"].as_array().unwrap().len(), 0);
    }

    #[test]
    fn the_cause_is_named_from_the_kernels_settings() {
        let program = Path::new("/usr/bin/windlass");
        let text = |text: &str| Some(text.to_owned());
        let cause = |facts: KernelFacts| facts.cause(program).map(|cause| format!("{} | {}", cause.long, cause.todo));
        assert_eq!(cause(KernelFacts::default()), None);
        let off = cause(KernelFacts { max: text("0\n"), ..KernelFacts::default() }).unwrap();
        assert!(off.contains("user.max_user_namespaces is 0 | run `sudo sysctl"), "{off}");
        let clone = cause(KernelFacts { max: text("100\n"), clone: text("0\n"), ..KernelFacts::default() }).unwrap();
        assert!(clone.contains("kernel.unprivileged_userns_clone is 0"), "{clone}");
        let apparmor = || AppArmorState::from_files(Some("Y\n"), Some("1\n"), Some("unconfined\n"));
        let ubuntu = cause(KernelFacts { apparmor: apparmor(), ..KernelFacts::default() }).unwrap();
        assert!(ubuntu.contains("AppArmor restriction") && ubuntu.contains("doctor --install-apparmor"), "{ubuntu}");
        let inside = cause(KernelFacts { apparmor: apparmor(), container: true, ..KernelFacts::default() }).unwrap();
        assert!(inside.contains("container"), "{inside}");
        let masked = cause(KernelFacts { masked_proc: true, ..KernelFacts::default() }).unwrap();
        assert!(masked.contains("parts of /proc are masked"), "{masked}");
    }

    #[test]
    fn a_masked_proc_is_seen_in_the_list_of_mounts() {
        let plain =
            "22 28 0:21 / /proc rw,nosuid - proc proc rw\n30 22 0:28 / /proc/sys/fs/binfmt_misc rw - autofs a rw\n";
        assert!(!masks_proc(plain));
        assert!(masks_proc(&format!("{plain}40 22 0:30 / /proc/kcore rw - tmpfs tmpfs rw\n")));
    }
}
