//! The seccomp filters of `cargo xtask without`. Each returns the error number that the real cause returns.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op,
    SeccompCondition as Condition, SeccompFilter, SeccompRule as Rule, apply_filter,
};

use super::Feature;

/// The system calls of one filter with the rules for which they fail; without rules a call always fails.
type Calls = Vec<(libc::c_long, Vec<Rule>)>;

/// All namespaces except the user namespace. 0x80 is the time namespace, which `libc` has no name for.
const OTHER_NAMESPACES: &[i32] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    0x80,
];
const MOUNT_CALLS: &[libc::c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
];
const SECCOMP_SET_MODE_FILTER: u32 = 1;
const SECCOMP_GET_NOTIF_SIZES: u32 = 3;
const SECCOMP_FILTER_FLAG_NEW_LISTENER: u32 = 1 << 3;
/// Changes the flags of a network interface, which is needed to bring up the loopback of a new network namespace.
const SIOCSIFFLAGS: u32 = 0x8914;

/// Applies the filters of these features to this process and its descendants.
pub(super) fn install(features: &[Feature]) -> Result<()> {
    for feature in features {
        for (errno, calls) in filters(*feature)? {
            let program = compile(errno, calls)?;
            apply_filter(&program)
                .with_context(|| format!("the filter for `{}` was refused", feature.name()))?;
        }
    }
    Ok(())
}

fn compile(errno: i32, calls: Calls) -> Result<BpfProgram> {
    let arch = std::env::consts::ARCH
        .try_into()
        .context("no seccomp filters for this architecture")?;
    let rules: BTreeMap<i64, Vec<Rule>> = calls.into_iter().collect();
    let fails = SeccompAction::Errno(errno.cast_unsigned());
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, fails, arch)?.try_into()?)
}

fn filters(feature: Feature) -> Result<Vec<(i32, Calls)>> {
    let always = |calls: &[libc::c_long]| -> Calls {
        calls.iter().map(|call| (*call, Vec::new())).collect()
    };
    // The arguments of clone3 are in memory, which a filter cannot read; libraries use clone if clone3 is missing.
    let no_clone3 = (libc::ENOSYS, always(&[libc::SYS_clone3]));
    Ok(match feature {
        Feature::Namespaces => {
            let mut rules = vec![rule(&[has_flag(0, libc::CLONE_NEWUSER)?])?];
            for flag in OTHER_NAMESPACES {
                rules.push(rule(&[has_flag(0, *flag)?])?);
            }
            let calls = vec![
                (libc::SYS_unshare, rules.clone()),
                (libc::SYS_clone, rules),
                (libc::SYS_setns, Vec::new()),
            ];
            vec![(libc::EPERM, calls), no_clone3]
        }
        Feature::UserNamespaces => {
            let rules = vec![rule(&[has_flag(0, libc::CLONE_NEWUSER)?])?];
            let calls = vec![(libc::SYS_unshare, rules.clone()), (libc::SYS_clone, rules)];
            // The kernel returns this error when the limit on namespaces is reached.
            vec![(libc::ENOSPC, calls), no_clone3]
        }
        Feature::NamespaceCapabilities => namespace_capabilities(no_clone3)?,
        Feature::Landlock => {
            let calls = [
                libc::SYS_landlock_create_ruleset,
                libc::SYS_landlock_add_rule,
                libc::SYS_landlock_restrict_self,
            ];
            vec![(libc::ENOSYS, always(&calls))]
        }
        Feature::Notifications => {
            let listener = rule(&[
                equals(0, SECCOMP_SET_MODE_FILTER)?,
                has_flag(1, SECCOMP_FILTER_FLAG_NEW_LISTENER.cast_signed())?,
            ])?;
            let sizes = rule(&[equals(0, SECCOMP_GET_NOTIF_SIZES)?])?;
            vec![(
                libc::EINVAL,
                vec![(libc::SYS_seccomp, vec![listener, sizes])],
            )]
        }
        Feature::PidfdGetfd => vec![(libc::EPERM, always(&[libc::SYS_pidfd_getfd]))],
        Feature::Ptrace => {
            let calls = [
                libc::SYS_ptrace,
                libc::SYS_process_vm_readv,
                libc::SYS_process_vm_writev,
                libc::SYS_kcmp,
            ];
            vec![(libc::EPERM, always(&calls))]
        }
    })
}

/// Simulates AppArmor. It lets an unprivileged process create a user namespace, together with others in the same call,
/// and then denies every capability in it: a second `unshare`, mounts, changes to the network. The id maps can still be
/// written from outside the namespace.
fn namespace_capabilities(no_clone3: (i32, Calls)) -> Result<Vec<(i32, Calls)>> {
    let without_user = Condition::new(
        0,
        Len::Dword,
        Op::MaskedEq(u64::from(libc::CLONE_NEWUSER.cast_unsigned())),
        0,
    )?;
    let mut alone = Vec::new();
    for flag in OTHER_NAMESPACES {
        alone.push(rule(&[without_user.clone(), has_flag(0, *flag)?])?);
    }
    let network = rule(&[equals(1, SIOCSIFFLAGS)?])?;
    let denied = vec![
        (libc::SYS_unshare, alone.clone()),
        (libc::SYS_clone, alone),
        (libc::SYS_setns, Vec::new()),
        (libc::SYS_chroot, Vec::new()),
        (libc::SYS_sethostname, Vec::new()),
        (libc::SYS_ioctl, vec![network]),
    ];
    let mounts = MOUNT_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    Ok(vec![
        (libc::EPERM, denied),
        (libc::EACCES, mounts),
        no_clone3,
    ])
}

fn rule(conditions: &[Condition]) -> Result<Rule> {
    Ok(Rule::new(conditions.to_vec())?)
}

fn has_flag(argument: u8, flag: i32) -> Result<Condition> {
    let flag = u64::from(flag.cast_unsigned());
    Ok(Condition::new(
        argument,
        Len::Dword,
        Op::MaskedEq(flag),
        flag,
    )?)
}

fn equals(argument: u8, value: u32) -> Result<Condition> {
    Ok(Condition::new(argument, Len::Dword, Op::Eq, value.into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_compiles() {
        for feature in Feature::ALL {
            for (errno, calls) in
                filters(*feature).unwrap_or_else(|err| panic!("{}: {err}", feature.name()))
            {
                assert!(
                    compile(errno, calls).is_ok_and(|program| program.len() > 3),
                    "{}",
                    feature.name()
                );
            }
        }
    }
}
