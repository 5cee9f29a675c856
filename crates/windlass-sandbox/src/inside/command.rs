//! Starts one command, watches it, and stops it.
//!
//! **Starting.** The supervisor forks the *first process* ([`prepare`]) into a new process namespace and a new mount
//! namespace. The first process mounts its own `/proc` and forks the *command process*, which gives up its privileges
//! ([`restrict`]) and waits. All of this happens before the engine asks for a command, because it takes longer than
//! starting a program. When the request comes, the supervisor sends it to the first process
//! ([`PreparedCommand::start`]), which mounts an overlay if the command has one ([`FirstProcess::pass_on`]) and sends
//! the request on to the command process, which takes its stdin, stdout and stderr, applies the Landlock rules and
//! executes the program ([`await_orders`]).
//!
//! Three socket pairs connect them:
//!
//! - `orders`, from the supervisor to the first process: one frame with the request.
//! - `status`, from the first process to the supervisor: a byte for each answer to [`PAUSE_ALL`], then the result as
//!   JSON, then end of file.
//! - one between the first process and the command process. The command process sends the seccomp listener through it
//!   (see `notify.rs`), and later the error if the program could not be executed. On success `exec` closes it, and the
//!   first process reads end of file.
//!
//! **Watching.** [`FirstProcess::watch`] polls a signal descriptor and the seccomp listener. It also counts processes
//! and memory at intervals and kills the command when it is over a limit.
//!
//! **Stopping.** When the command process exits, the first process kills everything that it left
//! ([`FirstProcess::end_descendants`]), reports the status and exits. With a process namespace one `kill(-1)` reaches every
//! process, and the kernel kills the rest when process 1 exits. Without one, processes could escape by forking faster
//! than they are found; see `processes::kill_descendants` and `landlock_rules::hold_signals`. The supervisor signals only
//! the first process: SIGTERM is passed on to the command, [`KILL_ALL`] kills everything, [`PAUSE_ALL`] and
//! [`RESUME_ALL`] stop and continue everything.

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::broker::{Broker, Network, Rights};
use super::filter::Filters;
use super::landlock_rules::BrokerRulesets;
use super::overlay::{OverlayDirs, detach, open_folder};
use super::private_dirs::PrivateDirs;
use super::renames::Renames;
use super::sys::{self, Reaped};
use super::view::{Blanks, COMMAND_LAYERS};
use super::{Refusal, covers, enter_network, landlock_rules, processes};
use crate::spec::{AGENT_HOME, Access, SignalBarrier, Spec, Tier, Tree};
use crate::wire::{CommandLaunch, HIT_MEMORY, HIT_PROCESSES, Inbox, SupervisorRequest, send};

/// The interval at which the first process adds up the memory of all processes. For an agent it does so more often,
/// because its address space is not limited.
const MEMORY_INTERVAL: Duration = Duration::from_millis(500);
const AGENT_MEMORY_INTERVAL: Duration = Duration::from_millis(100);
/// The memory, in bytes, that an agent may reserve beyond what it may use: JavaScript engines reserve gigabytes of
/// writable memory that they never touch, more with more processors.
const AGENT_RESERVE: u64 = 64 << 30;
/// The intervals at which the first process counts processes: during the first seconds, later, and when there are many.
/// (A seccomp notification for each fork would be exact, but a signal at the wrong moment would then make the fork
/// fail, which no program expects.)
const COUNT_INTERVAL: Duration = Duration::from_millis(20);
const COUNT_INTERVAL_LATER: Duration = Duration::from_millis(50);
const COUNT_INTERVAL_MANY: Duration = Duration::from_millis(2);
/// The running time after which the counts become less frequent.
const LATER_AFTER: Duration = Duration::from_secs(2);
/// The most tasks, including threads, that the kernel lets a user other than root start in a sandbox.
const MAX_TASKS: u64 = 8192;
/// Tells the first process to kill its command, in the tiers without a process namespace. SIGKILL would kill only the
/// first process and leave the others running.
pub(crate) const KILL_ALL: i32 = libc::SIGUSR1;

/// Tells the first process to stop all processes of its command. It answers with one of the two bytes below.
pub(crate) const PAUSE_ALL: i32 = libc::SIGUSR2;
/// Tells the first process to continue all processes of its command.
pub(crate) const RESUME_ALL: i32 = libc::SIGCONT;
/// All processes of the command are stopped.
const PAUSED: u8 = b'P';
/// Some process of the command still runs.
const NOT_PAUSED: u8 = b'N';
/// The time that all processes together may take to stop: a process in a system call finishes the call first.
const PAUSE_TIMEOUT: Duration = Duration::from_millis(500);
/// A process that was in an uninterruptible sleep for this long, and whose child is stopped, is taken to wait inside
/// `vfork`.
const VFORK_TIME: Duration = Duration::from_millis(50);
/// The interval at which the first process checks whether all are stopped.
const PAUSE_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The settings and rules that all commands of a session share.
pub(crate) struct SessionSetup {
    pub(crate) spec: Spec,
    pub(crate) filters: Filters,
    pub(crate) ruleset: Option<OwnedFd>,
    /// Capabilities that root keeps inside, to work on files of other owners.
    pub(crate) capabilities: CapabilitySet,
    /// Paths that commands may change, unless they are read-only commands.
    pub(crate) writable: Vec<PathBuf>,
    /// The directory for temporary files, if commands have no private `/tmp`.
    pub(crate) temporary: Option<PathBuf>,
    /// Set in the broker tier.
    pub(crate) broker: Option<BrokerSetup>,
}

/// The settings and rules that all commands of a session share in the broker tier.
pub(crate) struct BrokerSetup {
    pub(crate) rulesets: BrokerRulesets,
    pub(crate) private: PrivateDirs,
    /// The network of commands; agents have their own.
    pub(crate) network: Network,
}

impl SessionSetup {
    /// Returns the Landlock rules for a program that has no overlay of its own.
    fn ruleset(&self, role: ProgramRole) -> Option<BorrowedFd<'_>> {
        match &self.broker {
            None => self.ruleset.as_ref().map(AsFd::as_fd),
            Some(broker) => Some(match role {
                ProgramRole::Command => broker.rulesets.write.as_fd(),
                ProgramRole::Reader => broker.rulesets.read.as_fd(),
                ProgramRole::Agent => broker
                    .rulesets
                    .agent
                    .as_ref()
                    .unwrap_or(&broker.rulesets.read)
                    .as_fd(),
            }),
        }
    }

    /// Returns what the broker may do for a program.
    fn rights(
        &self,
        broker: &BrokerSetup,
        role: ProgramRole,
        network: Network,
    ) -> io::Result<Rights> {
        let mut writable = broker.private.writable().to_vec();
        if role != ProgramRole::Reader && self.spec.access == Access::Write {
            writable.push(self.tree().to_owned());
            writable.extend(self.spec.write.iter().cloned());
        }
        if role == ProgramRole::Agent {
            writable.extend(self.spec.agent.iter().map(|home| home.from.clone()));
        }
        let ruleset = self
            .ruleset(role)
            .ok_or(io::ErrorKind::NotFound)?
            .try_clone_to_owned()?;
        Ok(Rights {
            network,
            writable,
            hidden: self.spec.hide.clone(),
            ruleset,
        })
    }

    /// Returns the directory that commands work in, by its path outside of any view.
    pub(crate) fn tree(&self) -> &Path {
        match &self.spec.tree {
            Tree::Copy { from } => from,
            Tree::Itself | Tree::Layered { .. } => &self.spec.root,
        }
    }
}

/// Answers the suspended system calls of a command.
enum CallAnswerer {
    Brokered(Broker),
    Renames(Renames),
}

impl CallAnswerer {
    fn listener(&self) -> BorrowedFd<'_> {
        match self {
            Self::Brokered(broker) => broker.listener(),
            Self::Renames(renames) => renames.listener(),
        }
    }

    fn serve(&mut self) {
        match self {
            Self::Brokered(broker) => broker.serve(),
            Self::Renames(renames) => renames.serve(),
        }
    }
}

/// The kind of program that is started.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramRole {
    Command,
    /// A command that may only read the workspace.
    Reader,
    Agent,
}

/// A command that was started.
pub(crate) struct RunningCommand {
    pub(crate) id: u32,
    /// The process id of the first process.
    pub(crate) pid: i32,
    /// Carries the first process' answers and, at the end, the result of the command.
    pub(crate) status: UnixStream,
    /// When the first process was told to kill everything.
    pub(crate) killed: Option<Instant>,
}

/// A first process and a command process that wait for a request.
pub(crate) struct PreparedCommand {
    pid: i32,
    status: UnixStream,
    orders: UnixStream,
}

/// The kind of program that a command is prepared for.
#[derive(Clone, Copy)]
pub(crate) enum PrepareFor<'a> {
    /// A command that may change the workspace.
    Command,
    /// A command that may only read the workspace.
    ReadOnlyCommand,
    /// An agent, with the network of its enclosure.
    Agent(&'a AgentNetwork),
}

/// The network of an agent's enclosure.
pub(crate) enum AgentNetwork {
    /// The same network as the commands.
    Shared,
    /// A network namespace of its own, with only a loopback.
    Namespace(OwnedFd),
    /// The network that the broker allows.
    Brokered(Network),
}

/// Forks the processes of a command, which then wait for a request. They report an error of this preparation only once
/// the command is started.
pub(crate) fn prepare(setup: &SessionSetup, target: PrepareFor<'_>) -> io::Result<PreparedCommand> {
    let (status, status_tx) = UnixStream::pair()?;
    let (orders, orders_rx) = UnixStream::pair()?;
    let namespaces = match setup.spec.tier {
        Tier::Namespaces => libc::CLONE_NEWPID | libc::CLONE_NEWNS,
        Tier::Broker | Tier::Landlock => 0,
    };
    if let Some(pid) = sys::fork_into(namespaces)? {
        return Ok(PreparedCommand {
            pid,
            status,
            orders,
        });
    }
    let entered = match target {
        PrepareFor::Agent(AgentNetwork::Namespace(network)) => enter_network(network.as_fd()),
        _ => Ok(()),
    };
    let entered =
        entered.map_err(|err| describe("cannot enter the network of the agent's enclosure", err));
    let rulesets = [
        ProgramRole::Command,
        ProgramRole::Reader,
        ProgramRole::Agent,
    ]
    .map(|role| setup.ruleset(role));
    let kept = [Some(status_tx.as_fd()), Some(orders_rx.as_fd())]
        .into_iter()
        .chain(rulesets)
        .flatten();
    sys::keep_only(&kept.collect::<Vec<_>>());
    let first = entered.and_then(|()| FirstProcess::new(setup, target));
    let report = first
        .map_err(Refusal::from)
        .and_then(|first| first.run(&orders_rx, &status_tx));
    let report = serde_json::to_vec(&report).unwrap_or_default();
    let _ = (&status_tx).write_all(&report);
    sys::exit_now(0)
}

impl PreparedCommand {
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends the request with the three standard streams, and the socket of a [`crate::TreeBorrower`] if there is one.
    pub(crate) fn start(self, launch: Box<CommandLaunch>, standard: &[OwnedFd]) -> RunningCommand {
        let id = launch.id;
        let handles: Vec<BorrowedFd<'_>> = standard.iter().map(AsFd::as_fd).collect();
        // If the first process is gone already, it has reported why.
        let _ = send(
            self.orders.as_fd(),
            &SupervisorRequest::Run(launch).encode(),
            &handles,
        );
        RunningCommand {
            id,
            pid: self.pid,
            status: self.status,
            killed: None,
        }
    }

    /// Kills the unused processes; returns the process id to wait for.
    pub(crate) fn discard(self) -> i32 {
        sys::kill(self.pid, libc::SIGKILL);
        self.pid
    }
}

impl RunningCommand {
    /// Reads the answer to [`PAUSE_ALL`], if the first process sent one: whether all processes are stopped.
    pub(crate) fn paused(&self) -> Option<bool> {
        let mut status = [0_u8];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        rustix::net::recv(&self.status, &mut status, flags).ok()?;
        let paused = match status[0] {
            PAUSED => true,
            NOT_PAUSED => false,
            _ => return None,
        };
        (&self.status).read_exact(&mut status).ok()?;
        Some(paused)
    }

    /// Reads the result of the command: its wait status and the limits it exceeded. Returns `None` if the first process
    /// was killed before it could report.
    pub(crate) fn ending(self) -> Option<Result<(i32, u32), Refusal>> {
        let mut report = Vec::new();
        (&self.status)
            .take(64 << 10)
            .read_to_end(&mut report)
            .ok()?;
        serde_json::from_slice(&report).ok()
    }
}

/// The state of the first process of a command.
struct FirstProcess<'a> {
    setup: &'a SessionSetup,
    signals: OwnedFd,
    hit: u32,
    role: ProgramRole,
    /// The network that the broker allows; set in the broker tier.
    network: Option<Network>,
    /// Whether `/proc` shows the processes of the whole machine or container, and not only those of the command.
    shared_proc: bool,
    /// Whether `kill(-1)` reaches the processes of the command and no others.
    signals_held: bool,
}

impl<'a> FirstProcess<'a> {
    fn new(setup: &'a SessionSetup, target: PrepareFor<'_>) -> io::Result<Self> {
        processes::die_with_parent();
        if matches!(target, PrepareFor::ReadOnlyCommand) && setup.spec.tier == Tier::Namespaces {
            for place in &setup.writable {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let place = rustix::fs::open(place, flags, Mode::empty())?;
                sys::mount_setattr(place.as_fd(), libc::MOUNT_ATTR_RDONLY, true)?;
            }
        }
        let shared_proc = match setup.spec.tier {
            Tier::Namespaces => {
                let flags = MountFlags::NOSUID
                    | MountFlags::NODEV
                    | MountFlags::NOEXEC
                    | MountFlags::RDONLY;
                match rustix::mount::mount("proc", "/proc", "proc", flags, None) {
                    Ok(()) => false,
                    // Parts of `/proc` are masked, as in a container, so the view has the `/proc` of the container.
                    // Landlock keeps commands from everything in it that is not public.
                    Err(_) if setup.ruleset.is_some() => true,
                    Err(err) => {
                        return Err(describe("cannot mount a private /proc", err.into()));
                    }
                }
            }
            Tier::Broker | Tier::Landlock => {
                processes::adopt_orphans()?;
                true
            }
        };
        let (role, network) = match target {
            PrepareFor::Command => (ProgramRole::Command, None),
            PrepareFor::ReadOnlyCommand => (ProgramRole::Reader, None),
            PrepareFor::Agent(AgentNetwork::Brokered(network)) => {
                (ProgramRole::Agent, Some(network.clone()))
            }
            PrepareFor::Agent(_) => (ProgramRole::Agent, None),
        };
        let network = network.or_else(|| Some(setup.broker.as_ref()?.network.clone()));
        let signals = sys::signal_handle(&[
            libc::SIGCHLD,
            libc::SIGTERM,
            KILL_ALL,
            PAUSE_ALL,
            RESUME_ALL,
        ])?;
        let signals_held = match setup.spec.tier {
            Tier::Namespaces => true,
            Tier::Broker if setup.spec.signals == SignalBarrier::Landlock => {
                landlock_rules::hold_signals()?
            }
            Tier::Broker | Tier::Landlock => false,
        };
        Ok(Self {
            setup,
            signals,
            hit: 0,
            role,
            network,
            shared_proc,
            signals_held,
        })
    }

    fn run(mut self, orders: &UnixStream, status_tx: &UnixStream) -> Result<(i32, u32), Refusal> {
        let (ours, theirs) = UnixStream::pair()?;
        let Some(child) = sys::fork()? else {
            drop(ours);
            let err = become_command(self.setup, self.role, self.suspends_renames(), &theirs);
            let _ = send(theirs.as_fd(), err.to_string().as_bytes(), &[]);
            sys::exit_now(127)
        };
        drop(theirs);
        let mut inbox = Inbox::default();
        let broker = self.broker(&ours, &mut inbox)?.map(CallAnswerer::Brokered);
        let renames = self.renames(&ours, &mut inbox)?;
        let (layered, own_rules) = self.pass_on(orders, &ours)?;
        let renames = renames.map(|listener| {
            let ruleset = own_rules.or_else(|| self.setup.ruleset.as_ref()?.try_clone().ok());
            CallAnswerer::Renames(Renames::new(listener, self.setup.capabilities, ruleset))
        });
        let status = self.watch(child, broker.or(renames), status_tx);
        self.end_descendants();
        let status = status?;
        if layered {
            // When the caller learns of the end, no process and no mount uses the overlay any more.
            detach(&self.setup.spec.root)?;
        }
        // If the program could not be executed, the command process sent the reason. Otherwise `exec` closed the
        // socket, and this reads end of file.
        while matches!(inbox.fill(&ours), Ok(true)) {}
        match inbox.next()? {
            Some(why) => Err(String::from_utf8_lossy(&why).into_owned().into()),
            None => Ok((status, self.hit)),
        }
    }

    /// Creates the broker of the command, with the seccomp listener that the command process sends.
    fn broker(
        &mut self,
        command: &UnixStream,
        inbox: &mut Inbox,
    ) -> Result<Option<Broker>, Refusal> {
        let Some((setup, network)) = self.setup.broker.as_ref().zip(self.network.take()) else {
            return Ok(None);
        };
        let Some(frame) = inbox.wait(command)? else {
            return Err("the command process exited before the program was started".into());
        };
        match inbox.handle() {
            Some(listener) => Ok(Some(Broker::new(
                listener,
                self.setup.rights(setup, self.role, network)?,
            ))),
            None => Err(String::from_utf8_lossy(&frame).into_owned().into()),
        }
    }

    /// Returns whether renames of the command are suspended. That needs a private `/proc`, because the process ids in
    /// notifications are those of the process namespace.
    fn suspends_renames(&self) -> bool {
        self.setup.spec.tier == Tier::Namespaces && !self.shared_proc
    }

    /// Returns the seccomp listener for renames, if the command process could install the filter.
    fn renames(&self, command: &UnixStream, inbox: &mut Inbox) -> Result<Option<OwnedFd>, Refusal> {
        if !self.suspends_renames() {
            return Ok(None);
        }
        let Some(frame) = inbox.wait(command)? else {
            return Err("the command process exited before the program was started".into());
        };
        match (inbox.handle(), frame.is_empty()) {
            (Some(listener), _) => Ok(Some(listener)),
            (None, true) => Ok(None),
            (None, false) => Err(String::from_utf8_lossy(&frame).into_owned().into()),
        }
    }

    /// Waits for the request and passes it on to the command process, after it has mounted the command's overlay.
    /// Returns whether there is one, and the Landlock rules for it.
    fn pass_on(
        &self,
        orders: &UnixStream,
        command: &UnixStream,
    ) -> Result<(bool, Option<OwnedFd>), Refusal> {
        let (frame, mut handles) = next_order(orders)?;
        let SupervisorRequest::Run(launch) = SupervisorRequest::decode(&frame)? else {
            return Err(io::Error::from(io::ErrorKind::InvalidData).into());
        };
        let borrower = if launch.lends_tree {
            handles.pop()
        } else {
            None
        };
        let mut own_rules = None;
        if !launch.layer.is_empty() {
            let name = Path::new(std::ffi::OsStr::from_bytes(&launch.layer));
            own_rules = self.mount_overlay(name, borrower)?;
        }
        if self.setup.spec.command_layers.is_some() && self.setup.spec.tier == Tier::Namespaces {
            detach(Path::new(COMMAND_LAYERS))?;
        }
        if self.setup.spec.agent.is_some()
            && launch.place == 0
            && self.setup.spec.tier == Tier::Namespaces
        {
            // Other commands must not see the agent's memory and its login.
            detach(Path::new(AGENT_HOME))?;
        }
        let handles: Vec<BorrowedFd<'_>> =
            handles.iter().chain(&own_rules).map(AsFd::as_fd).collect();
        // If the command process is gone already, it has reported why.
        let _ = send(command.as_fd(), &frame, &handles);
        Ok((!launch.layer.is_empty(), own_rules))
    }

    /// Mounts an overlay over the workspace, masks the hidden names in it, and sends it to a borrower. Returns the
    /// Landlock rules that allow the overlay.
    fn mount_overlay(
        &self,
        name: &Path,
        borrower: Option<OwnedFd>,
    ) -> Result<Option<OwnedFd>, Refusal> {
        let spec = &self.setup.spec;
        if spec.command_layers.is_none() || spec.tier != Tier::Namespaces {
            return Err(Refusal::NoLayers(
                "this sandbox has no overlays for single commands".to_owned(),
            ));
        }
        if name.components().count() != 1 || name.file_name().is_none() {
            return Err(Refusal::Unavailable(format!(
                "`{}` is not the name of an overlay",
                name.display()
            )));
        }
        let layer = Path::new(COMMAND_LAYERS).join(name);
        let parts = OverlayDirs::open(&spec.root, &layer.join("upper"), &layer.join("work"))?;
        let root = parts.mount(|| open_folder(&spec.root))?;
        let blanks = Blanks::open()?;
        for name in spec
            .hide
            .iter()
            .filter_map(|path| path.strip_prefix(&spec.root).ok())
        {
            covers::mask(&root, name, &blanks)?;
        }
        if let Some(borrower) = borrower {
            send(borrower.as_fd(), b"tree", &[root.as_fd()])?;
        }
        Ok(landlock_rules::rules(spec)?)
    }

    /// Follows the command until it exits; returns its wait status.
    fn watch(
        &mut self,
        child: i32,
        mut suspended: Option<CallAnswerer>,
        status_tx: &UnixStream,
    ) -> io::Result<i32> {
        let began = Instant::now();
        let between = if self.role == ProgramRole::Agent {
            AGENT_MEMORY_INTERVAL
        } else {
            MEMORY_INTERVAL
        };
        let (mut look, mut count) = (began + between, began + COUNT_INTERVAL);
        let most = self.setup.spec.limits.processes;
        loop {
            let pause = count.saturating_duration_since(Instant::now());
            let pause = Timespec::try_from(pause).ok();
            let mut waited = vec![PollFd::new(&self.signals, PollFlags::IN)];
            waited.extend(
                suspended
                    .as_ref()
                    .map(|calls| PollFd::from_borrowed_fd(calls.listener(), PollFlags::IN)),
            );
            let calls = match rustix::event::poll(&mut waited, pause.as_ref()) {
                Ok(_) => waited.get(1).map_or(PollFlags::empty(), PollFd::revents),
                Err(rustix::io::Errno::INTR) => PollFlags::empty(),
                Err(err) => return Err(err.into()),
            };
            match &mut suspended {
                Some(suspended) if calls.contains(PollFlags::IN) => suspended.serve(),
                // All processes with the filter are gone. Without this, poll would return at once every time.
                one if calls.contains(PollFlags::HUP) => *one = None,
                _ => {}
            }
            while let Some(signal) = sys::next_signal(self.signals.as_fd()) {
                match signal {
                    libc::SIGTERM => self.signal_all(child, libc::SIGTERM),
                    KILL_ALL => self.kill_all(),
                    PAUSE_ALL => {
                        let paused = if self.pause_all() { PAUSED } else { NOT_PAUSED };
                        let mut status_tx = status_tx;
                        status_tx.write_all(&[paused])?;
                    }
                    RESUME_ALL => self.signal_each(RESUME_ALL),
                    _ => {}
                }
            }
            for _ in 0..processes::MAX_REAPED {
                match sys::reap() {
                    Reaped::One(pid, status) if pid == child => return Ok(status),
                    Reaped::One(..) => {}
                    Reaped::NotYet | Reaped::NoChildren => break,
                }
            }
            if count <= Instant::now() {
                let now = self.count_processes();
                count = Instant::now()
                    + match began.elapsed() > LATER_AFTER {
                        // Near the limit count without a pause: on a busy machine this process may not run again for a
                        // while.
                        _ if now > most / 2 => Duration::ZERO,
                        _ if now > most / 4 => COUNT_INTERVAL_MANY,
                        false => COUNT_INTERVAL,
                        true => COUNT_INTERVAL_LATER,
                    };
            }
            if look <= Instant::now() {
                self.check_memory();
                if self.setup.spec.tier == Tier::Broker {
                    self.check_threads();
                }
                look = Instant::now() + between;
            }
        }
    }

    /// Kills a command that has too many processes; returns their number.
    fn count_processes(&mut self) -> u32 {
        let all = self.processes();
        let now = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let most = self.setup.spec.limits.processes;
        if now > most {
            self.hit |= HIT_PROCESSES;
            self.kill_all();
        } else if now > most / 2 {
            // On a busy machine the command could start many more processes before the next count, so the kernel should
            // prefer this process from now on.
            processes::lower_priority(&all);
        }
        now
    }

    /// Kills a command that has too many threads.
    fn check_threads(&mut self) {
        let threads =
            |pid: &i32| std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        if self.processes().iter().map(threads).sum::<usize>() as u64 > MAX_TASKS {
            self.hit |= HIT_PROCESSES;
            self.kill_all();
        }
    }

    fn check_memory(&mut self) {
        let (tier, most) = (self.setup.spec.tier, self.setup.spec.limits.memory);
        if tier != Tier::Landlock
            && processes::holds_more_than(most, &self.processes(), tier == Tier::Namespaces)
        {
            self.hit |= HIT_MEMORY;
            self.kill_all();
        }
    }

    fn signal_all(&self, child: i32, signal: i32) {
        sys::kill(if self.signals_held { -1 } else { -child }, signal);
    }

    /// Signals every process of the command, in any process group.
    fn signal_each(&self, signal: i32) {
        match self.signals_held {
            true => sys::kill(-1, signal),
            false => processes::signal_all(&self.processes(), signal),
        }
    }

    /// Stops all processes of the command; returns whether all are stopped. A process may fork or continue another one
    /// before its own SIGSTOP arrives, so this repeats until the list of processes does not change any more.
    fn pause_all(&self) -> bool {
        let until = Instant::now() + PAUSE_TIMEOUT;
        let (mut known, mut since) = (Vec::new(), Instant::now());
        while Instant::now() < until {
            self.signal_each(libc::SIGSTOP);
            let mut now = self.processes();
            now.sort_unstable();
            if now != known {
                (known, since) = (now, Instant::now());
            } else if Self::all_stopped(&known, since.elapsed() > VFORK_TIME) {
                return true;
            }
            std::thread::sleep(PAUSE_CHECK_INTERVAL);
        }
        false
    }

    /// Returns whether all of these are stopped. With `vfork`, a process that waits for a stopped child counts as
    /// stopped.
    fn all_stopped(all: &[i32], vfork: bool) -> bool {
        all.iter().all(|pid| {
            processes::is_stopped(*pid) || (vfork && processes::waits_for_stopped_child(*pid, all))
        })
    }

    /// Kills all processes of the command.
    fn kill_all(&self) {
        match self.signals_held {
            true => sys::kill(-1, libc::SIGKILL),
            false => processes::kill_descendants(),
        }
    }

    /// Lists the processes of the command.
    fn processes(&self) -> Vec<i32> {
        match self.shared_proc {
            true => processes::descendants(),
            // All processes of the namespace except this one.
            false => processes::visible().filter(|pid| *pid != 1).collect(),
        }
    }

    /// Kills all processes that the command left and waits until they are gone, so that the report of the end can be
    /// relied on. This process adopts orphans, so when it has no child, none is left. If the kernel cannot end a
    /// process in time, the process ends later.
    fn end_descendants(&self) {
        processes::end_children(|| self.kill_all());
    }
}

/// Reads the request with its file descriptors.
fn next_order(orders: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut inbox = Inbox::default();
    match inbox.wait(orders)? {
        Some(frame) => Ok((frame, std::iter::from_fn(|| inbox.handle()).collect())),
        // The prepared command was not used.
        None => sys::exit_now(0),
    }
}

/// Turns this process into the command. Returns only on failure.
fn become_command(
    setup: &SessionSetup,
    role: ProgramRole,
    suspends_renames: bool,
    orders: &UnixStream,
) -> io::Error {
    let bound = restrict(setup, role, orders).and_then(|()| match suspends_renames {
        true => hand_over_renames(setup, orders),
        false => Ok(()),
    });
    match bound.and_then(|()| await_orders(setup, role, orders)) {
        Ok(program) => program.start(),
        Err(err) => err,
    }
}

/// Gives up every privilege that a command must not have, except for the Landlock rules, which depend on its overlay.
fn restrict(setup: &SessionSetup, role: ProgramRole, orders: &UnixStream) -> io::Result<()> {
    // A new session has no controlling terminal, so the command can neither type into the user's terminal nor ask
    // there.
    rustix::process::setsid().map_err(io::Error::from)?;
    processes::restore_priority();
    sys::lower_limit(libc::RLIMIT_CORE, 0);
    sys::lower_limit(libc::RLIMIT_FSIZE, setup.spec.limits.file_size);
    // This limits private writable memory and not address space: programs reserve much more than they touch.
    let reserve = if role == ProgramRole::Agent {
        AGENT_RESERVE
    } else {
        0
    };
    sys::lower_limit(
        libc::RLIMIT_DATA,
        setup.spec.limits.memory.saturating_add(reserve),
    );
    if setup.spec.tier == Tier::Namespaces {
        // The kernel counts only the tasks of this user namespace.
        sys::lower_limit(libc::RLIMIT_NPROC, MAX_TASKS);
    }
    sys::reset_signals();
    keep_capabilities(setup.capabilities)
        .map_err(|err| describe("cannot drop capabilities", err.into()))?;
    rustix::thread::set_no_new_privs(true)?;
    match setup
        .filters
        .install()
        .map_err(|err| describe("the kernel refuses the system call filter", err))?
    {
        // The first process keeps the listener. If this process kept it, the program could answer its own calls.
        Some(listener) => send(orders.as_fd(), &[], &[listener.as_fd()]),
        None => Ok(()),
    }
}

/// Sends the first process the listener for renames, or an empty frame if there is none.
fn hand_over_renames(setup: &SessionSetup, orders: &UnixStream) -> io::Result<()> {
    match setup.filters.install_renames() {
        Some(listener) => send(orders.as_fd(), &[], &[listener.as_fd()]),
        None => send(orders.as_fd(), &[], &[]),
    }
}

/// Drops all capabilities but these, for this process and its descendants.
pub(super) fn keep_capabilities(keep: CapabilitySet) -> rustix::io::Result<()> {
    let each = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
    for one in each.filter(|one| !keep.contains(*one)) {
        // The first capability that the kernel does not know is the end of the list.
        if rustix::thread::remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
    let sets = CapabilitySets {
        effective: keep,
        permitted: keep,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)
}

/// Waits for the request, then takes the standard streams, applies the Landlock rules and enters the working directory.
/// The rules for an overlay come as a fourth file descriptor, because the overlay is another directory than the
/// workspace under it.
fn await_orders(
    setup: &SessionSetup,
    role: ProgramRole,
    orders: &UnixStream,
) -> io::Result<CommandProgram> {
    let (frame, mut handles) = next_order(orders)?;
    let SupervisorRequest::Run(launch) = SupervisorRequest::decode(&frame)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let own_rules = handles.split_off(handles.len().min(3)).pop();
    if handles.len() < 3 {
        return Err(io::Error::other(
            "the request has no file descriptors for stdin, stdout and stderr",
        ));
    }
    if let Some(ruleset) = own_rules.as_ref().map(AsFd::as_fd).or(setup.ruleset(role)) {
        sys::landlock_restrict(ruleset).map_err(|err| describe("Landlock refuses", err))?;
    }
    for (handle, at) in handles.iter().zip(0..) {
        sys::dup_to(handle.as_raw_fd(), at)?;
    }
    let text = |bytes: &Vec<u8>| CString::new(bytes.clone()).map_err(io::Error::from);
    let argv = launch
        .argv
        .iter()
        .map(text)
        .collect::<io::Result<Vec<_>>>()?;
    let mut env = launch
        .env
        .iter()
        .map(text)
        .collect::<io::Result<Vec<_>>>()?;
    if let Some(folder) = &setup.temporary {
        env.retain(|one| !one.as_bytes().starts_with(b"TMPDIR="));
        env.push(CString::new(
            [b"TMPDIR=", folder.as_os_str().as_bytes()].concat(),
        )?);
    }
    if let Some(broker) = &setup.broker {
        for variable in &mut env {
            if let Some(resolved) = broker.private.resolve(variable.as_bytes()) {
                *variable = CString::new(resolved)?;
            }
        }
    }
    let dir = CString::new(launch.dir.clone())?;
    rustix::process::chdir(dir.as_c_str())
        .map_err(|err| describe("cannot enter the working directory", err.into()))?;
    Ok(CommandProgram { argv, env })
}

/// The program to execute.
struct CommandProgram {
    argv: Vec<CString>,
    env: Vec<CString>,
}

impl CommandProgram {
    /// Executes the program; returns only on failure. Looks a bare name up in the command's own `PATH`, never in the
    /// current directory.
    fn start(&self) -> io::Error {
        let Some(name) = self.argv.first() else {
            return io::Error::from(io::ErrorKind::InvalidInput);
        };
        sys::close_on_exec_from(3);
        let fail =
            |err: io::Error| describe(&format!("cannot start `{}`", name.to_string_lossy()), err);
        if name.as_bytes().contains(&b'/') {
            return fail(sys::exec(name, &self.argv, &self.env));
        }
        let path = self
            .env
            .iter()
            .find_map(|one| one.as_bytes().strip_prefix(b"PATH="));
        let path = path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
        let mut last = io::Error::from_raw_os_error(libc::ENOENT);
        for folder in path
            .split(|byte| *byte == b':')
            .filter(|folder| folder.starts_with(b"/"))
        {
            let Ok(full) = CString::new([folder, b"/", name.as_bytes()].concat()) else {
                continue;
            };
            let err = sys::exec(&full, &self.argv, &self.env);
            if err.raw_os_error() != Some(libc::ENOENT) && err.raw_os_error() != Some(libc::ENOTDIR)
            {
                last = err;
            }
        }
        fail(last)
    }
}

fn describe(what: &str, err: io::Error) -> io::Error {
    io::Error::new(err.kind(), format!("{what}: {err}"))
}
