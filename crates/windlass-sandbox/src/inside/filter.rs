//! The seccomp filters: system calls that a command may not make, and those that are suspended for another process to
//! perform (see `notify.rs`). A call is denied if it reaches beyond the view, the namespaces or the filter itself and
//! ordinary programs do not need it.
//!
//! The kernel runs all installed filters for each call and takes the strictest answer. So every filter here names only
//! the calls it is about and allows all others.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op,
    SeccompCondition as Condition, SeccompFilter, SeccompRule, sock_filter,
};

use crate::spec::{Net, SignalBarrier, Tier};

/// System calls with the argument conditions that a filter matches; a call without conditions always matches.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The offset of the system call number in the data that the kernel gives to a filter.
const NUMBER_OFFSET: u32 = 0;

/// System calls that rename a file.
const RENAMES: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
];

/// The compiled filters of a session.
pub(crate) struct Filters {
    /// Filters that deny calls, in the order they are installed.
    plain: Vec<BpfProgram>,
    /// Suspends the calls that the broker performs; set in the broker tier.
    brokered: Option<BpfProgram>,
    /// Suspends renames; set in the tier with namespaces.
    renames: Option<BpfProgram>,
}

impl Filters {
    pub(crate) fn compile(tier: Tier, net: Net, signals: SignalBarrier) -> io::Result<Self> {
        let mut denied = any_arguments(DENIED);
        denied.insert(libc::SYS_unshare, with_flags(0, NAMESPACES)?);
        denied.insert(libc::SYS_clone, with_flags(0, NAMESPACES)?);
        let mut controls = vec![TIOCSTI, TIOCLINUX];
        match tier {
            Tier::Namespaces => drop(denied.insert(libc::SYS_socket, sockets(tier, net)?)),
            Tier::Broker => {
                controls.extend(FILE_CONTROLS);
                denied.extend(without_own_namespaces()?);
                if signals == SignalBarrier::Broker {
                    controls.extend(OWNER_CONTROLS);
                    denied.extend(any_arguments(QUEUED_SIGNALS));
                    let owner = OWNER_COMMANDS
                        .iter()
                        .map(|command| low(1, Op::Eq, *command));
                    denied.insert(libc::SYS_fcntl, owner.collect::<io::Result<_>>()?);
                }
                if net != Net::Open {
                    denied.extend(fast_open()?);
                    denied.extend([redirecting_options()?]);
                }
            }
            Tier::Landlock => {
                denied.insert(libc::SYS_socket, sockets(tier, net)?);
                // Without a private view these calls reach files that Landlock does not protect from them.
                denied.extend(any_arguments(ATTRIBUTES));
                denied.extend(any_arguments(EXTENDED_ATTRIBUTES));
                if net != Net::Open {
                    denied.extend(any_arguments(&[libc::SYS_bind, libc::SYS_listen]));
                }
            }
        }
        let controls = controls
            .into_iter()
            .map(|code| low(1, Op::Eq, code))
            .collect::<io::Result<_>>()?;
        denied.insert(libc::SYS_ioctl, controls);
        let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
        let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
        let mut all = vec![
            x32_numbers(),
            compile(denied, refused)?,
            // A filter cannot read the arguments of these calls, which are behind a pointer. With ENOSYS, programs use
            // the older calls instead.
            compile(any_arguments(ABSENT), missing)?,
        ];
        if tier == Tier::Broker {
            // Programs that copy files ignore this error: some file systems have no extended attributes.
            let unsupported = SeccompAction::Errno(libc::EOPNOTSUPP.cast_unsigned());
            all.push(compile(any_arguments(EXTENDED_ATTRIBUTES), unsupported)?);
        }
        let plain = all
            .into_iter()
            .filter(|program| !program.is_empty())
            .collect();
        Ok(Self {
            plain,
            brokered: (tier == Tier::Broker).then(|| suspended(signals)),
            renames: (tier == Tier::Namespaces).then(suspended_renames),
        })
    }

    /// Suspends renames of this process and its descendants, and returns the listener for them. Returns `None` if the
    /// kernel refuses, for example because another filter of this process already has a listener.
    pub(crate) fn install_renames(&self) -> Option<OwnedFd> {
        super::sys::seccomp_listener(self.renames.as_deref()?).ok()
    }

    /// Installs the filters for this process and its descendants. In the broker tier, returns the listener for
    /// suspended calls.
    pub(crate) fn install(&self) -> io::Result<Option<OwnedFd>> {
        self.plain
            .iter()
            .try_for_each(|program| super::sys::seccomp(program))?;
        self.brokered
            .as_deref()
            .map(super::sys::seccomp_listener)
            .transpose()
    }
}

/// Returns a program that suspends renames and allows all other calls.
fn suspended_renames() -> BpfProgram {
    let equals = |k: u32, jt: u8| statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, 0, k);
    let mut program = vec![load(NUMBER_OFFSET)];
    for (at, call) in RENAMES.iter().enumerate() {
        let distance = u8::try_from(RENAMES.len() - at).unwrap_or(u8::MAX);
        program.push(equals(u32::try_from(*call).unwrap_or(u32::MAX), distance));
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program.push(answer(libc::SECCOMP_RET_USER_NOTIF));
    program
}

/// Returns a program that suspends the calls which the broker performs and allows all others. Of `ioctl` it suspends
/// only `TIOCGPTPEER`.
fn suspended(signals: SignalBarrier) -> BpfProgram {
    // The offset of the lower half of the second argument; the kernel reads only that half.
    const CONTROL: u32 = 16 + 8;
    let sent = match signals {
        SignalBarrier::Landlock => &[],
        SignalBarrier::Broker => SIGNALS,
    };
    let calls: Vec<i64> = SOCKETS
        .iter()
        .chain(ATTRIBUTES)
        .chain(sent)
        .copied()
        .collect();
    let equals =
        |k: u32, jt: u8, jf: u8| statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
    let number = |call: i64| u32::try_from(call).unwrap_or(u32::MAX);
    let mut program = vec![load(NUMBER_OFFSET)];
    for (at, call) in calls.iter().enumerate() {
        // The distance to the last statement. The table is far shorter than the longest jump.
        let distance = u8::try_from(calls.len() - at + 3).unwrap_or(u8::MAX);
        program.push(equals(number(*call), distance, 0));
    }
    program.extend([
        equals(number(libc::SYS_ioctl), 0, 2),
        load(CONTROL),
        equals(TIOCGPTPEER, 1, 0),
    ]);
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program.push(answer(libc::SECCOMP_RET_USER_NOTIF));
    program
}

/// Returns rules against calls that reach other processes of the same user when there are no namespaces.
fn without_own_namespaces() -> io::Result<Rules> {
    let mut denied = any_arguments(IPC);
    denied.insert(libc::SYS_prlimit64, vec![low(0, Op::Ne, 0)?]);
    denied.insert(
        libc::SYS_setpriority,
        vec![low(0, Op::Ne, PRIO_PROCESS)?, low(1, Op::Ne, 0)?],
    );
    denied.insert(
        libc::SYS_ioprio_set,
        vec![low(0, Op::Ne, IOPRIO_WHO_PROCESS)?, low(1, Op::Ne, 0)?],
    );
    for call in SCHEDULING {
        denied.insert(*call, vec![low(0, Op::Ne, 0)?]);
    }
    // A datagram socket of a pair can send to any other socket by name. A raw socket of this family is a datagram
    // socket, too.
    let kind = |kind: i32| low(1, Op::MaskedEq(0xf), kind.cast_unsigned());
    let other_family = low(0, Op::Ne, libc::AF_UNIX.cast_unsigned())?;
    denied.insert(
        libc::SYS_socketpair,
        vec![other_family, kind(libc::SOCK_DGRAM)?, kind(libc::SOCK_RAW)?],
    );
    denied.insert(FILE_SETATTR, Vec::new());
    Ok(denied)
}

/// Returns rules against socket options that redirect the packets of a connection to loopback.
fn redirecting_options() -> io::Result<(i64, Vec<SeccompRule>)> {
    let rules = REDIRECTING_OPTIONS
        .iter()
        .map(sets_option)
        .collect::<io::Result<_>>()?;
    Ok((libc::SYS_setsockopt, rules))
}

fn sets_option((level, option): &(i32, i32)) -> io::Result<SeccompRule> {
    let equals = |argument: u8, value: i32| {
        let value = u64::from(value.cast_unsigned());
        Condition::new(argument, Len::Dword, Op::Eq, value).map_err(io::Error::other)
    };
    SeccompRule::new(vec![equals(1, *level)?, equals(2, *option)?]).map_err(io::Error::other)
}

/// Returns rules against this flag, with which sending also connects a socket.
fn fast_open() -> io::Result<Rules> {
    let with_flag = |call, argument| Ok((call, with_flags(argument, &[libc::MSG_FASTOPEN])?));
    [
        (libc::SYS_sendto, 3),
        (libc::SYS_sendmsg, 2),
        (libc::SYS_sendmmsg, 3),
    ]
    .into_iter()
    .map(|(call, argument)| with_flag(call, argument))
    .collect()
}

fn compile(rules: Rules, action: SeccompAction) -> io::Result<BpfProgram> {
    let arch = std::env::consts::ARCH
        .try_into()
        .map_err(io::Error::other)?;
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, action, arch).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}

/// Returns rules that match these calls with any arguments.
fn any_arguments(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

const fn statement(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    let code = code as u16;
    sock_filter { code, jt, jf, k }
}

/// Loads a word of the call's data at this offset.
const fn load(from: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, from)
}

/// Ends the program with this action.
const fn answer(action: u32) -> sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, 0, 0, action)
}

/// Returns rules that match if any of the bits is set in the argument.
fn with_flags(argument: u8, bits: &[i32]) -> io::Result<Vec<SeccompRule>> {
    bits.iter()
        .map(|bit| {
            low(
                argument,
                Op::MaskedEq(u64::from(bit.cast_unsigned())),
                bit.cast_unsigned(),
            )
        })
        .collect()
}

/// Compares the lower half of an argument. The kernel ignores the upper half of these arguments, so the filter must
/// ignore it as well.
fn low(argument: u8, op: Op, value: u32) -> io::Result<SeccompRule> {
    let condition =
        Condition::new(argument, Len::Dword, op, value.into()).map_err(io::Error::other)?;
    SeccompRule::new(vec![condition]).map_err(io::Error::other)
}

/// Returns a rule against all socket families but those that commands need. Some of the others are not confined by a
/// network namespace.
fn sockets(tier: Tier, net: Net) -> io::Result<Vec<SeccompRule>> {
    let mut families = vec![libc::AF_NETLINK];
    match (tier, net) {
        (Tier::Namespaces, _) => families.extend([libc::AF_UNIX, libc::AF_INET, libc::AF_INET6]),
        (Tier::Landlock, Net::Open) => families.extend([libc::AF_INET, libc::AF_INET6]),
        // Without namespaces only the filter keeps a command from the services of this machine.
        (Tier::Landlock | Tier::Broker, _) => {}
    }
    let conditions: io::Result<Vec<_>> = families
        .into_iter()
        .map(|family| {
            Condition::new(0, Len::Dword, Op::Ne, u64::from(family.cast_unsigned()))
                .map_err(io::Error::other)
        })
        .collect();
    Ok(vec![
        SeccompRule::new(conditions?).map_err(io::Error::other)?,
    ])
}

/// Rejects the x32 numbers, a second set of numbers for the same calls on this architecture. No current program uses
/// them.
#[cfg(target_arch = "x86_64")]
fn x32_numbers() -> BpfProgram {
    const SECOND_SET: u32 = 0x4000_0000;
    let test = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    let missing = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    vec![
        load(NUMBER_OFFSET),
        statement(test, 0, 1, SECOND_SET),
        answer(missing),
        answer(libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn x32_numbers() -> BpfProgram {
    Vec::new()
}

/// `ioctl` codes that work for the owner of a file even if it was opened only for reading: file flags (two codes),
/// fs-verity, and subvolumes and snapshots of btrfs.
const FILE_CONTROLS: &[u32] = &[
    0x4008_6602,
    0x401c_5820,
    0x4080_6685,
    0x5000_940e,
    0x5000_9401,
    0x5000_940f,
    0x5000_9417,
    0x5000_9418,
    0x5000_943f,
    0x4008_941a,
];
/// `ioctl` codes that choose the process which gets a signal when a file becomes ready: `FIOSETOWN` and `SIOCSPGRP`.
const OWNER_CONTROLS: &[u32] = &[0x8901, 0x8902];
/// The `fcntl` commands for the same: `F_SETOWN` and `F_SETOWN_EX`.
const OWNER_COMMANDS: &[u32] = &[8, 15];
const PRIO_PROCESS: u32 = 0;
const IOPRIO_WHO_PROCESS: u32 = 1;
/// System calls that change the scheduling of other processes of the user.
const SCHEDULING: &[i64] = &[
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
];
/// Socket options for the network device, source routes and header options, by level and number.
const REDIRECTING_OPTIONS: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
    (libc::SOL_SOCKET, 62), // SO_BINDTOIFINDEX
    (libc::IPPROTO_IP, libc::IP_OPTIONS),
    (libc::IPPROTO_IP, 50),   // IP_UNICAST_IF
    (libc::IPPROTO_IPV6, 5),  // IPV6_2292RTHDR
    (libc::IPPROTO_IPV6, 6),  // IPV6_2292PKTOPTIONS
    (libc::IPPROTO_IPV6, 54), // IPV6_HOPOPTS
    (libc::IPPROTO_IPV6, 57), // IPV6_RTHDR
    (libc::IPPROTO_IPV6, 59), // IPV6_DSTOPTS
    (libc::IPPROTO_IPV6, 76), // IPV6_UNICAST_IF
];

/// Types a character into a terminal.
const TIOCSTI: u32 = 0x5412;
/// Does the same for a console, among other things.
const TIOCLINUX: u32 = 0x541c;
/// Opens the slave end of a pseudoterminal.
const TIOCGPTPEER: u32 = 0x5441;

const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    // `CLONE_NEWTIME`. In the flags of `clone` and `unshare` the bit means nothing else.
    0x80,
];

/// System calls that libc does not list yet; the numbers are the same on every architecture.
pub(super) const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const OPEN_TREE_ATTR: i64 = 467;
const FILE_SETATTR: i64 = 469;

const ABSENT: &[i64] = &[libc::SYS_clone3];

const DENIED: &[i64] = &[
    // Access to other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_process_madvise,
    // `io_uring` performs calls that the filter does not see.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // The kernel keyring of the user's session.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Changes of the view and access to files around it.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_fanotify_init,
    // Administration of the kernel and the machine.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
];

/// System calls that create sockets and give them addresses.
const SOCKETS: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
];

/// System calls that send signals.
const SIGNALS: &[i64] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_pidfd_send_signal,
];
/// System calls that send signals with data.
const QUEUED_SIGNALS: &[i64] = &[libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo];

/// System calls that change modes, owners and times of files.
const ATTRIBUTES: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// System calls that change extended attributes.
const EXTENDED_ATTRIBUTES: &[i64] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
];

/// System calls for shared memory, semaphores and message queues, which have no names in the file system that Landlock
/// could judge.
const IPC: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_sandbox_has_filters_that_compile() {
        for tier in [Tier::Namespaces, Tier::Broker, Tier::Landlock] {
            for net in [Net::Off, Net::Loopback, Net::Proxy, Net::Open] {
                for signals in [SignalBarrier::Landlock, SignalBarrier::Broker] {
                    let filters = Filters::compile(tier, net, signals).expect("compiled");
                    let all = filters.plain.iter().chain(&filters.brokered);
                    assert!(
                        all.into_iter()
                            .all(|program| (2..4096).contains(&program.len()))
                    );
                    assert_eq!(filters.brokered.is_some(), tier == Tier::Broker);
                }
            }
        }
    }
}
