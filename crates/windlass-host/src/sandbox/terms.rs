//! The terms of a sandbox in words: its tier, and the things that it does not confine. They are displayed before a run
//! starts.

use windlass_core::terms::{SandboxLevel, SandboxTier, Strategy, Terms};
use windlass_sandbox::{Access, SignalBarrier, Tier};

use super::{NetPolicy, Sandbox, SandboxState};

/// Returns the tier in the type of the engine and its events.
#[must_use]
pub fn tier_of(tier: Tier) -> SandboxTier {
    match tier {
        Tier::Landlock => SandboxTier::Landlock,
        Tier::Broker => SandboxTier::Broker,
        Tier::Namespaces => SandboxTier::Namespaces,
    }
}

/// Returns the things outside the workspace that commands can see or do in a tier, one phrase each.
#[must_use]
pub fn not_held(tier: Tier, has_servers: bool) -> Vec<String> {
    let mut phrases: Vec<&str> = Vec::new();
    match tier {
        Tier::Namespaces if windlass_sandbox::proc_is_masked() => {
            phrases.push("command lines of other processes can be read")
        }
        Tier::Namespaces => {}
        Tier::Broker | Tier::Landlock => {
            phrases.push("names, sizes and times of files elsewhere can be seen and watched, not their contents");
            phrases.push("command lines of other processes can be read");
        }
    }
    match tier {
        Tier::Broker => {
            if has_servers {
                phrases.push("servers on loopback can be reached from this machine");
            }
            if windlass_sandbox::shares_memory() {
                phrases.push("files in /dev/shm are shared");
            }
        }
        Tier::Landlock => {
            phrases.push(
                "files in the workspace that other programs execute or obey are not protected",
            );
            if SignalBarrier::of_this_kernel() == SignalBarrier::Broker {
                phrases.push(
                    "signals reach your other processes, so that a command can outlive its session",
                );
            }
        }
        _ => {}
    }
    phrases.into_iter().map(str::to_owned).collect()
}

impl Sandbox {
    /// Returns the access and the network of commands, and the tier that enforces them.
    #[must_use]
    pub fn terms(&self, strategy: Strategy) -> Terms {
        let tier = match &*self.state.lock() {
            SandboxState::Open(inside) => Some(inside.tier),
            SandboxState::Refused(_) => None,
            SandboxState::Closed => Some(self.known_tier().unwrap_or(Tier::Namespaces)),
        };
        let has_servers = !matches!(self.plan.net, NetPolicy::Off | NetPolicy::Open);
        Terms {
            sandbox: match self.plan.access {
                Access::ReadOnly => SandboxLevel::ReadOnly,
                Access::Write => SandboxLevel::WorkspaceWrite,
            },
            network: self.plan.net.terms(),
            tier: tier.map_or(SandboxTier::None, tier_of),
            not_held: tier.map_or_else(Vec::new, |tier| not_held(tier, has_servers)),
            ..Terms::unconfined(strategy)
        }
    }
}

/// Returns whether a setting of this machine is known to refuse namespaces, so that the tier must be found by trial. A
/// negative answer promises nothing.
pub(super) fn namespaces_may_be_refused() -> bool {
    let text = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let number = |file: &str| text(file).trim().parse::<u64>().ok();
    let filtered = || {
        text("/proc/self/status")
            .lines()
            .any(|line| line.strip_prefix("Seccomp:").map(str::trim) == Some("2"))
    };
    number("/proc/sys/user/max_user_namespaces") == Some(0)
        || number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0)
        || number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
            .is_some_and(|on| on != 0)
        || filtered()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weaker_tiers_list_more_that_they_do_not_confine() {
        let count = |tier| not_held(tier, true).len();
        assert!(
            count(Tier::Namespaces) < count(Tier::Broker)
                && count(Tier::Broker) <= count(Tier::Landlock) + 1
        );
        assert!(not_held(Tier::Broker, true).len() > not_held(Tier::Broker, false).len());
    }
}
