//! The two processes that outlive commands: the monitor and the supervisor (see the overview in `mod.rs`).
//!
//! Two processes are needed because of user namespaces. A process that enters a new user namespace has no user ids
//! there until a process *outside* writes `/proc/PID/uid_map`. So they perform a handshake over a socket pair:
//!
//! 1. The monitor reads the [`Spec`] from the engine and forks the supervisor.
//! 2. The supervisor calls `unshare` and sends one byte ([`enter_namespaces`]).
//! 3. The monitor writes the maps and sends one byte back ([`map_identities`]).
//! 4. The supervisor builds the view and reports to the engine that the sandbox is ready.
//!
//! The monitor then only waits for the supervisor to end. It still sees the machine's own file system, so it can remove
//! the placeholders in the workspace, the scratch directory and the cgroup, even when the supervisor was killed.
//!
//! The supervisor is a poll loop over the engine's socket and one socket per running command ([`Supervisor::serve`]).
//! Starting a command takes two forks and a mount of `/proc`, so the supervisor prepares the next command in advance
//! ([`Supervisor::spare`]).
//!
//! Shutdown starts when the engine closes its socket: the supervisor kills all commands and exits, then the monitor
//! cleans up and exits. If the monitor is killed, the kernel kills the supervisor (`die_with_parent`), and the same way
//! every first process dies with the supervisor.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::thread::CapabilitySet;

use super::broker::{Network, Ports};
use super::cgroup::SessionCgroup;
use super::command::{
    self, AgentNetwork, KILL_ALL, PrepareFor, PreparedCommand, RunningCommand, SessionSetup,
};
use super::covers::Covers;
use super::filter::Filters;
use super::placeholders::PlaceholderList;
use super::processes::adopt_orphans;
use super::{Refusal, broker_setup, enter_network, landlock_rules, processes, sys, view};
use crate::spec::{Access, NO_LAYERS, Net, Protection, Spec, Tier, Tree};
use crate::wire::{CommandLaunch, Inbox, MAX_HANDLES, SupervisorReport, SupervisorRequest, send};

/// The time that the first process of a command may take to kill everything in it, in the tiers without a process
/// namespace.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval at which the supervisor checks whether that time is over.
const KILL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The delay between the end of the last command and the removal of placeholders.
const PLACEHOLDER_DELAY: Duration = Duration::from_millis(500);
/// The most commands at a time. The engine has a much lower limit on its jobs.
const MAX_COMMANDS: usize = 64;
/// The most enclosures for agents at a time.
const MAX_ENCLOSURES: usize = 8;
/// The prefix of a session's private directory; the monitor's process id follows.
const SCRATCH: &str = "box-";

/// Runs the helper to its end. The [`Spec`] comes first on stdin, then requests.
pub(crate) fn supervise() -> u8 {
    // In a session of its own the helper gets no Ctrl-C from the engine's terminal. The engine ends it by closing the
    // socket.
    let _ = rustix::process::setsid();
    processes::raise_priority();
    let control = match rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) {
        Ok(control) => UnixStream::from(control),
        Err(_) => return 2,
    };
    match run_monitor(&control) {
        Ok(()) => 0,
        Err(why) => {
            let _ = send(
                control.as_fd(),
                &SupervisorReport::Refused(why.into()).encode(),
                &[],
            );
            1
        }
    }
}

/// The monitor: forks the supervisor, waits for it, and cleans up.
fn run_monitor(control: &UnixStream) -> Result<(), String> {
    let mut inbox = Inbox::default();
    let spec = inbox.wait(control).map_err(|err| err.to_string())?;
    let spec = spec.ok_or("the engine closed the socket")?;
    let mut spec: Spec = serde_json::from_slice(&spec)
        .map_err(|err| format!("cannot read the specification: {err}"))?;
    spec.scratch = spec.scratch.as_deref().map(make_scratch).transpose()?;
    // The monitor would resolve the listed placeholder paths in the user's own directory, not in the overlay over it.
    let layered = spec.tree != Tree::Itself || !spec.layers.is_empty();
    spec.journal = spec.journal.filter(|_| !layered);
    // Commands would see overlays that lie in the workspace.
    spec.command_layers = spec
        .command_layers
        .filter(|place| place.is_dir() && !place.starts_with(&spec.root));
    let scratch = spec.scratch.clone();
    let journal = spec.journal.clone();
    let (tier, limits) = (spec.tier, spec.limits);
    // The monitor removes banned names that appeared during the session, even if the supervisor was killed.
    let banned = spec
        .protect
        .iter()
        .filter(|one| one.how == Protection::Banned && !layered);
    let banned = banned.map(|one| one.base.join(&one.name));
    let banned: Vec<PathBuf> = banned
        .filter(|path| path.symlink_metadata().is_err())
        .collect();
    if tier != Tier::Namespaces {
        // Commands of a killed supervisor become children of the monitor, which kills them, instead of children of
        // init.
        adopt_orphans()
            .map_err(|err| format!("cannot become the parent of orphaned processes: {err}"))?;
    }
    let (ours, theirs) = UnixStream::pair().map_err(|err| err.to_string())?;
    let Some(inside) = sys::fork().map_err(|err| err.to_string())? else {
        drop(ours);
        processes::die_with_parent();
        let code = match Supervisor::open(control, spec, &theirs) {
            Ok(mut supervisor) => supervisor.serve(inbox),
            Err(why) => {
                let _ = send(
                    control.as_fd(),
                    &SupervisorReport::Refused(why).encode(),
                    &[],
                );
                1
            }
        };
        sys::exit_now(code)
    };
    drop(theirs);
    let group = SessionCgroup::make(&limits).filter(|group| group.add(inside));
    if tier == Tier::Namespaces
        && let Err(why) = map_identities(&ours, inside)
    {
        sys::kill(inside, libc::SIGKILL);
        sys::wait_for(inside);
        return Err(why);
    }
    let status = sys::wait_for(inside);
    if tier != Tier::Namespaces {
        processes::end_children(processes::kill_descendants);
    }
    drop(group);
    for path in &banned {
        let _ = std::fs::remove_file(path);
    }
    // The supervisor is gone, and every command with it; remove the placeholders that they left in the workspace.
    if let Some(mut journal) = journal
        .as_deref()
        .and_then(|path| PlaceholderList::open(path).ok())
    {
        // Processes of the supervisor may still be exiting and hold the lock on the list for a moment; longer if the
        // supervisor was killed.
        let tries = if libc::WIFSIGNALED(status) { 200 } else { 20 };
        for _ in 0..tries {
            if journal.leave() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // Tell the engine now: it need not wait while the overlays of the caches, which may be large, are removed.
    let _ = control.shutdown(std::net::Shutdown::Both);
    if let Some(scratch) = &scratch {
        let _ = std::fs::remove_dir_all(scratch);
    }
    Ok(())
}

/// Creates a directory for this session alone. Removes those of sessions whose monitor was killed.
fn make_scratch(parent: &Path) -> Result<PathBuf, String> {
    for entry in std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .take(1_000)
    {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(SCRATCH)?.parse::<u32>().ok());
        if owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let own = parent.join(format!("{SCRATCH}{}", std::process::id()));
    // A directory with this process id is left from an earlier process.
    let _ = std::fs::remove_dir_all(&own);
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(&own)
        .map_err(|err| format!("cannot create `{}`: {err}", own.display()))?;
    Ok(own)
}

/// Waits until the supervisor is in its user namespace and maps its user and group ids. For root all ids are mapped, so
/// that commands can work on files of any owner; any other user gets only their own id.
fn map_identities(ours: &UnixStream, inside: i32) -> Result<(), String> {
    let mut ready = [0_u8];
    // If the supervisor could not enter the namespace, it reports the reason itself.
    if (&*ours).read_exact(&mut ready).is_err() {
        return Ok(());
    }
    let write = |file: &str, text: &str| -> io::Result<()> {
        let mut options = File::options();
        options
            .write(true)
            .open(format!("/proc/{inside}/{file}"))?
            .write_all(text.as_bytes())
    };
    let same = |file: &str| -> io::Result<String> {
        let text = std::fs::read_to_string(format!("/proc/self/{file}"))?;
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let (start, _, count) = (words.next()?, words.next()?, words.next()?);
            Some(format!("{start} {start} {count}\n"))
        };
        Ok(text.lines().filter_map(line).collect())
    };
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let all = user.is_root()
        && same("uid_map")
            .and_then(|map| write("uid_map", &map))
            .is_ok()
        && same("gid_map")
            .and_then(|map| write("gid_map", &map))
            .is_ok();
    if !all {
        let one = |id: u32| format!("{id} {id} 1\n");
        write("setgroups", "deny")
            .and_then(|()| write("gid_map", &one(group.as_raw())))
            .and_then(|()| write("uid_map", &one(user.as_raw())))
            .map_err(|err| format!("cannot map the user ids of the sandbox: {err}"))?;
    }
    (&*ours).write_all(&[1]).map_err(|err| err.to_string())
}

/// The state of the supervisor process.
struct Supervisor<'a> {
    control: &'a UnixStream,
    setup: SessionSetup,
    covers: Option<Covers>,
    running: Vec<RunningCommand>,
    /// Enclosures of agents with their ids.
    enclosures: Vec<(u32, AgentNetwork)>,
    /// The next command, prepared while there was no request to serve.
    spare: Option<PreparedCommand>,
    /// Whether a command was started since placeholders were last removed.
    needs_cleanup: bool,
}

impl<'a> Supervisor<'a> {
    fn open(control: &'a UnixStream, spec: Spec, monitor: &UnixStream) -> Result<Self, Refusal> {
        let journal = spec
            .journal
            .as_deref()
            .map(PlaceholderList::open)
            .transpose();
        let journal =
            journal.map_err(|err| format!("cannot open the list of placeholders: {err}"))?;
        let (mut listener, mut tree) = (None, None);
        let covers = match spec.tier {
            Tier::Namespaces => {
                if crate::probe::landlock_version() == 0 && crate::probe::proc_is_masked() {
                    let why = "parts of /proc are masked, as in a container, so that only Landlock could keep commands from \
                               other processes, and this kernel has no Landlock";
                    return Err(why.into());
                }
                enter_namespaces(&spec, monitor)?;
                listener = network(&spec)?;
                let built = view::build(&spec)?;
                tree = built.tree;
                let covers = Covers::new(&spec, built.blanks, journal);
                Some(covers.map_err(|err| format!("cannot open a protected directory: {err}"))?)
            }
            Tier::Broker => {
                tree = broker_setup::brokered_tree(&spec)?;
                listener = (spec.net == Net::Proxy).then(listen).transpose()?;
                None
            }
            Tier::Landlock if spec.tree != Tree::Itself || !spec.layers.is_empty() => {
                return Err(Refusal::NoLayers(NO_LAYERS.to_owned()));
            }
            Tier::Landlock if spec.agent.is_some() => {
                return Err("without namespaces an agent has no home of its own".into());
            }
            Tier::Landlock => None,
        };
        let filters = Filters::compile(spec.tier, spec.net, spec.signals);
        let filters =
            filters.map_err(|err| format!("cannot compile the system call filter: {err}"))?;
        if spec.tier == Tier::Broker {
            broker_setup::try_broker(&filters)?;
        }
        let no_landlock = || Refusal::from("this kernel has no Landlock");
        let (broker, ruleset) = match spec.tier {
            Tier::Broker => {
                let engine = listener.iter().map(|(port, _)| *port).collect();
                (
                    Some(broker_setup::prepare_broker(&spec, engine)?.ok_or_else(no_landlock)?),
                    None,
                )
            }
            Tier::Namespaces | Tier::Landlock => (
                None,
                landlock_rules::rules(&spec)
                    .map_err(|err| format!("cannot create the Landlock rules: {err}"))?,
            ),
        };
        if ruleset.is_none() && spec.tier == Tier::Landlock {
            return Err(no_landlock());
        }
        let root = rustix::process::geteuid().is_root();
        let capabilities = if root && spec.tier == Tier::Namespaces {
            ROOT_KEEPS
        } else {
            CapabilitySet::empty()
        };
        // Without a private view, `/tmp` is the machine's, so commands get another directory for temporary files.
        let temporary = match &broker {
            Some(broker) => Some(broker.private.temporary()),
            None => spec.scratch.clone().filter(|_| spec.tier == Tier::Landlock),
        };
        let layered = spec.layers.iter().map(|one| &one.at);
        let writable = spec
            .write
            .iter()
            .chain(&spec.caches)
            .chain(layered)
            .chain([&spec.root])
            .cloned()
            .collect();
        let setup = SessionSetup {
            spec,
            filters,
            ruleset,
            capabilities,
            writable,
            temporary,
            broker,
        };
        let port = listener.as_ref().map_or(0, |(port, _)| u32::from(*port));
        let ready = SupervisorReport::Ready {
            port,
            tree: tree.is_some(),
        };
        let handles: Vec<_> = listener
            .iter()
            .map(|(_, socket)| socket.as_fd())
            .chain(tree.as_ref().map(AsFd::as_fd))
            .collect();
        send(control.as_fd(), &ready.encode(), &handles)?;
        sys::ignore_children();
        if setup.spec.tier != Tier::Namespaces {
            adopt_orphans()?;
        }
        Ok(Self {
            control,
            setup,
            covers,
            running: Vec::new(),
            enclosures: Vec::new(),
            spare: None,
            needs_cleanup: false,
        })
    }

    /// Serves requests and commands until the engine closes the socket; returns the exit code.
    fn serve(&mut self, mut inbox: Inbox) -> i32 {
        loop {
            loop {
                match inbox.next().and_then(|frame| {
                    frame
                        .map(|frame| SupervisorRequest::decode(&frame))
                        .transpose()
                }) {
                    Ok(Some(request)) => self.handle(request, &mut inbox),
                    Ok(None) => break,
                    Err(_) => return 1,
                }
            }
            let idle = self.needs_cleanup && self.running.is_empty();
            let killing = self.running.iter().any(|one| one.killed.is_some());
            let pause = if killing {
                KILL_CHECK_INTERVAL
            } else {
                PLACEHOLDER_DELAY
            };
            let pause = Timespec::try_from(pause).ok().filter(|_| idle || killing);
            let gone: Vec<bool> = {
                let mut waited = vec![PollFd::new(self.control, PollFlags::IN)];
                waited.extend(
                    self.running
                        .iter()
                        .map(|one| PollFd::new(&one.status, PollFlags::IN)),
                );
                match rustix::event::poll(&mut waited, pause.as_ref()) {
                    Ok(0) if killing => {
                        self.kill_first_processes();
                        continue;
                    }
                    Ok(0) => {
                        self.remove_placeholders();
                        continue;
                    }
                    Ok(_) => waited.iter().map(|one| !one.revents().is_empty()).collect(),
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => return 1,
                }
            };
            for index in (0..self.running.len())
                .rev()
                .filter(|index| gone[index + 1])
            {
                if let Some(stopped) = self.running[index].paused() {
                    let id = self.running[index].id;
                    self.say(&SupervisorReport::Paused { id, stopped });
                    continue;
                }
                let one = self.running.swap_remove(index);
                self.report(one);
                if self.spare.is_none() {
                    self.spare = command::prepare(&self.setup, PrepareFor::Command).ok();
                }
            }
            if gone[0] && !matches!(inbox.fill(self.control), Ok(true)) {
                self.end_all();
                return 0;
            }
        }
    }

    fn handle(&mut self, request: SupervisorRequest, inbox: &mut Inbox) {
        match request {
            SupervisorRequest::Run(launch) => {
                let id = launch.id;
                let count = 3 + usize::from(launch.lends_tree);
                let handles: Option<Vec<OwnedFd>> = (0..count).map(|_| inbox.handle()).collect();
                let started = handles
                    .ok_or_else(|| {
                        io::Error::other(
                            "the request has no file descriptors for stdin, stdout and stderr",
                        )
                    })
                    .and_then(|handles| self.start(launch, &handles));
                match started {
                    Ok(started) => {
                        self.log(|| format!("command {id} is process {}", started.pid));
                        self.running.push(started);
                    }
                    Err(err) => self.say(&SupervisorReport::Failed {
                        id,
                        why: err.into(),
                    }),
                }
            }
            SupervisorRequest::Signal { id, signal } => {
                let kill_all = signal == libc::SIGKILL && self.setup.spec.tier != Tier::Namespaces;
                if let Some(one) = self.running.iter_mut().find(|one| one.id == id) {
                    one.killed = kill_all.then(Instant::now);
                    sys::kill(one.pid, if kill_all { KILL_ALL } else { signal });
                }
            }
            SupervisorRequest::Enclose { id, listeners } => match self.enclose(id, listeners) {
                Ok(listeners) => {
                    let ports = listeners.iter().map(|(port, _)| u32::from(*port)).collect();
                    let handles: Vec<BorrowedFd<'_>> =
                        listeners.iter().map(|(_, socket)| socket.as_fd()).collect();
                    let _ = send(
                        self.control.as_fd(),
                        &SupervisorReport::Enclosed { id, ports }.encode(),
                        &handles,
                    );
                }
                Err(err) => self.say(&SupervisorReport::Failed {
                    id,
                    why: err.into(),
                }),
            },
            SupervisorRequest::Leave { id } => self.enclosures.retain(|(known, _)| *known != id),
        }
    }

    /// Makes an enclosure for an agent.
    fn enclose(&mut self, id: u32, listeners: u32) -> io::Result<Vec<Listener>> {
        if self.setup.spec.agent.is_none() {
            return Err(io::Error::other("this sandbox has no home for an agent"));
        }
        if self.enclosures.len() >= MAX_ENCLOSURES || listeners as usize > MAX_HANDLES {
            return Err(io::Error::other(
                "too many agents run in this sandbox already",
            ));
        }
        let (network, listeners) = match (listeners, &self.setup.broker) {
            (0, _) => (AgentNetwork::Shared, Vec::new()),
            (count, None) => own_network(count)
                .map(|(network, listeners)| (AgentNetwork::Namespace(network), listeners))?,
            (count, Some(_)) => {
                let listeners: Vec<Listener> =
                    (0..count).map(|_| listen()).collect::<io::Result<_>>()?;
                let engine = listeners.iter().map(|(port, _)| *port).collect();
                let network = Network {
                    net: Net::Proxy,
                    engine,
                    own: Rc::new(Ports::new()?),
                };
                (AgentNetwork::Brokered(network), listeners)
            }
        };
        self.enclosures.push((id, network));
        self.log(|| format!("enclosure {id} has {} listeners", listeners.len()));
        Ok(listeners)
    }

    fn start(
        &mut self,
        launch: Box<CommandLaunch>,
        standard: &[OwnedFd],
    ) -> io::Result<RunningCommand> {
        if self.running.len() >= MAX_COMMANDS {
            return Err(io::Error::other(format!(
                "{MAX_COMMANDS} commands run already; stop one first"
            )));
        }
        let layered = !launch.layer.is_empty();
        let changed = self
            .covers
            .as_mut()
            .map_or(Ok(false), |covers| covers.cover_all(layered))?;
        self.needs_cleanup |= changed || !layered;
        if changed {
            // The prepared command has a copy of the mounts from before this change.
            self.drop_spare();
        }
        if launch.place != 0 {
            let enclosure = self.enclosures.iter().find(|(id, _)| *id == launch.place);
            let (_, network) = enclosure
                .ok_or_else(|| io::Error::other("the agent's enclosure was removed already"))?;
            return Ok(
                command::prepare(&self.setup, PrepareFor::Agent(network))?.start(launch, standard)
            );
        }
        let ready = match launch.access {
            // Read-only commands are rare, so none is prepared in advance.
            Access::ReadOnly => command::prepare(&self.setup, PrepareFor::ReadOnlyCommand)?,
            Access::Write => match self.spare.take() {
                Some(ready) => ready,
                None => command::prepare(&self.setup, PrepareFor::Command)?,
            },
        };
        Ok(ready.start(launch, standard))
    }

    fn drop_spare(&mut self) {
        // It exits soon, and the kernel reaps it because SIGCHLD is ignored.
        let _ = self.spare.take().map(PreparedCommand::discard);
    }

    /// Kills first processes that were asked to kill their command and are not done in time. The supervisor then adopts
    /// the processes that they leave.
    fn kill_first_processes(&mut self) {
        for one in self
            .running
            .iter()
            .filter(|one| one.killed.is_some_and(|at| at.elapsed() > KILL_TIMEOUT))
        {
            sys::kill(one.pid, libc::SIGKILL);
        }
    }

    /// Kills the processes that a killed first process left behind.
    fn kill_orphans(&self) {
        if self.setup.spec.tier == Tier::Namespaces {
            return;
        }
        let known: Vec<i32> = self
            .running
            .iter()
            .map(|one| one.pid)
            .chain(self.spare.as_ref().map(PreparedCommand::pid))
            .collect();
        let until = Instant::now() + KILL_TIMEOUT;
        loop {
            let orphans = processes::descendants_except(&known);
            if orphans.is_empty() || until < Instant::now() {
                return;
            }
            processes::signal_all(&orphans, libc::SIGKILL);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn report(&self, one: RunningCommand) {
        let id = one.id;
        if let Some(covers) = &self.covers {
            covers.remove_banned();
        }
        self.say(&match one.ending() {
            Some(Ok((status, limits))) => SupervisorReport::Ended { id, status, limits },
            Some(Err(why)) => SupervisorReport::Failed { id, why },
            None => {
                self.kill_orphans();
                SupervisorReport::Ended {
                    id,
                    status: libc::SIGKILL,
                    limits: 0,
                }
            }
        });
    }

    /// Sends a debug log line if the engine wants them. It holds ids and counts, never arguments of a command.
    fn log(&self, line: impl FnOnce() -> String) {
        if self.setup.spec.log {
            self.say(&SupervisorReport::Log { line: line() });
        }
    }

    fn say(&self, report: &SupervisorReport) {
        // If the engine is gone, no report is needed; the next read finds out.
        let _ = send(self.control.as_fd(), &report.encode(), &[]);
    }

    /// Kills every command and waits until it is gone, because commands hold the lock and the mounts that the monitor
    /// needs to be free.
    fn end_all(&mut self) {
        let signal = if self.setup.spec.tier == Tier::Namespaces {
            libc::SIGKILL
        } else {
            KILL_ALL
        };
        for one in &self.running {
            sys::kill(one.pid, signal);
        }
        let spare = self.spare.take().map(PreparedCommand::discard);
        let until = Instant::now() + KILL_TIMEOUT;
        for pid in self.running.drain(..).map(|one| one.pid).chain(spare) {
            // A first process that does not finish in time is killed, and the supervisor adopts the processes that it
            // leaves.
            while signal == KILL_ALL && sys::exists(pid) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            sys::kill(pid, libc::SIGKILL);
            sys::wait_for(pid);
        }
        self.kill_orphans();
        if let Some(covers) = &mut self.covers {
            covers.remove_banned();
            // With a list on disk the monitor removes the placeholders; it has no mounts in the way.
            if !covers.has_list() {
                covers.uncover();
            }
        }
    }

    fn remove_placeholders(&mut self) {
        self.log(|| "no command is left; removing placeholders".to_owned());
        if let Some(covers) = &mut self.covers {
            covers.uncover();
        }
        self.drop_spare();
        self.needs_cleanup = false;
    }
}

/// Moves the supervisor into new namespaces and waits until the monitor has mapped its user ids.
fn enter_namespaces(spec: &Spec, monitor: &UnixStream) -> Result<(), String> {
    let network = if spec.net == Net::Open {
        0
    } else {
        libc::CLONE_NEWNET
    };
    let spaces =
        libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | network;
    sys::unshare(spaces).map_err(|err| match err.raw_os_error() {
        // The kernel's text for this error is "no space left on device", which misleads here.
        Some(libc::ENOSPC) => {
            "user namespaces are not available: as many as the system allows are in use".to_owned()
        }
        _ => format!("user namespaces are not available: {err}"),
    })?;
    let mut mapped = [0_u8];
    (&*monitor)
        .write_all(&[1])
        .and_then(|()| (&*monitor).read_exact(&mut mapped))
        .map_err(|err| format!("the user ids of the sandbox were not mapped: {err}"))?;
    limit_segments(spec.limits.memory);
    Ok(())
}

/// Limits System V shared memory in the namespace. Kernels before 5.19 refuse that; there the first process only counts
/// the segments.
fn limit_segments(most: u64) {
    let pages = most / rustix::param::page_size() as u64;
    let _ = std::fs::write("/proc/sys/kernel/shmall", pages.to_string());
    let _ = std::fs::write("/proc/sys/kernel/shmmax", most.to_string());
}

/// Brings up the loopback of the sandbox; returns the listener if the [`Spec`] asks for one.
fn network(spec: &Spec) -> Result<Option<Listener>, String> {
    if matches!(spec.net, Net::Off | Net::Open) {
        return Ok(None);
    }
    sys::loopback_up()
        .map_err(|err| format!("cannot bring up the loopback of the sandbox: {err}"))?;
    if spec.net == Net::Loopback {
        return Ok(None);
    }
    listen()
        .map(Some)
        .map_err(|err| format!("cannot listen for the proxy: {err}"))
}

/// A listener with its port.
type Listener = (u16, std::net::TcpListener);

fn listen() -> io::Result<Listener> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    Ok((listener.local_addr()?.port(), listener))
}

/// Makes a network namespace with only a loopback, so that only the agent reaches the listeners in it.
fn own_network(listeners: u32) -> io::Result<(OwnedFd, Vec<Listener>)> {
    let here = || File::open("/proc/self/ns/net").map(OwnedFd::from);
    let commands = here()?;
    sys::unshare(libc::CLONE_NEWNET)?;
    let made = sys::loopback_up().and_then(|()| {
        let listeners = (0..listeners)
            .map(|_| listen())
            .collect::<io::Result<_>>()?;
        Ok((here()?, listeners))
    });
    if enter_network(commands.as_fd()).is_err() {
        // The supervisor is stuck in the agent's network, and commands must not start there.
        sys::exit_now(1);
    }
    made
}

/// Capabilities that root keeps inside the view: to work on files of any owner, and to become another user.
const ROOT_KEEPS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);
