//! One command. The supervisor forks a first process into a process namespace and a mount namespace of its own; that
//! one forks the command, counts what it starts, and ends when it has. With it the kernel ends everything
//! else in there, whatever it did to hide. Both are made ready before their words come, so that a command costs
//! little more than its program. The first process may put a layer over the workspace that takes what the command
//! writes there.

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
use super::fence::BrokerFences;
use super::filter::Filters;
use super::layer::{Parts, detach, open_folder};
use super::private::Private;
use super::renames::Renames;
use super::sys::{self, Reaped};
use super::view::{Blanks, COMMAND_LAYERS};
use super::{Refusal, covers, enter_network, fence, processes};
use crate::spec::{AGENT_HOME, Access, Signals, Spec, Tier, Tree};
use crate::wire::{HIT_MEMORY, HIT_PROCESSES, Inbox, Launch, Request, send};

/// How often the memory of all processes is added up; of an agent more often, because nothing else bounds it.
const LOOK_AT_MEMORY: Duration = Duration::from_millis(500);
const LOOK_AT_AGENT: Duration = Duration::from_millis(100);
/// What an agent may set aside beyond the memory it may use: engines of JavaScript reserve gigabytes that are writable
/// and that they never touch, the more the more processors there are.
const AGENT_RESERVE: u64 = 64 << 30;
/// How often processes are counted: at first, after a while, and when there are many. (The kernel could tell of each
/// one before it starts, but then a signal at the wrong moment makes a fork fail, which no program expects.)
const COUNT: Duration = Duration::from_millis(20);
const COUNT_LATER: Duration = Duration::from_millis(50);
const COUNT_MANY: Duration = Duration::from_millis(2);
/// After that it is later.
const LATER: Duration = Duration::from_secs(2);
/// Tasks, threads among them, that the kernel lets a user other than root start in a sandbox.
const MOST_TASKS: u64 = 8192;
/// Tells the first process of a command without a process namespace to kill everything in it. Killing the first process
/// itself would leave the others running.
pub(crate) const KILL_ALL: i32 = libc::SIGUSR1;

/// Tells the first process of a command to stop everything in it. It answers with one of the two bytes below.
pub(crate) const PAUSE_ALL: i32 = libc::SIGUSR2;
/// Tells it to let everything run again.
pub(crate) const RESUME_ALL: i32 = libc::SIGCONT;
/// Nothing of the command runs any more.
const PAUSED: u8 = b'P';
/// Something of it still runs.
const NOT_PAUSED: u8 = b'N';
/// How long everything may take to stop: a process in the middle of a system call finishes it first.
const PAUSE_TIME: Duration = Duration::from_millis(500);
/// A process that sleeps this long where signals do not wake it, with a child that is stopped, waits inside `vfork`.
const VFORK_TIME: Duration = Duration::from_millis(50);
/// How often that is looked at.
const PAUSE_LOOK: Duration = Duration::from_millis(1);

/// What all commands of a session have in common.
pub(crate) struct Terms {
    pub(crate) spec: Spec,
    pub(crate) filters: Filters,
    pub(crate) fence: Option<OwnedFd>,
    /// Capabilities that root keeps inside, to work on files of other owners.
    pub(crate) capabilities: CapabilitySet,
    /// What commands may change, but for those that only look.
    pub(crate) writable: Vec<PathBuf>,
    /// Where commands put temporary files, if not in a /tmp of their own.
    pub(crate) temporary: Option<PathBuf>,
    /// What commands need where there are no namespaces.
    pub(crate) broker: Option<BrokerTerms>,
}

/// What the commands of a session without namespaces have in common.
pub(crate) struct BrokerTerms {
    pub(crate) fences: BrokerFences,
    pub(crate) private: Private,
    /// The network of commands; agents have others.
    pub(crate) network: Network,
}

impl Terms {
    /// The Landlock rules for a program, where they do not depend on its layer.
    fn fence(&self, role: Role) -> Option<BorrowedFd<'_>> {
        match &self.broker {
            None => self.fence.as_ref().map(AsFd::as_fd),
            Some(broker) => Some(match role {
                Role::Command => broker.fences.write.as_fd(),
                Role::Reader => broker.fences.read.as_fd(),
                Role::Agent => broker
                    .fences
                    .agent
                    .as_ref()
                    .unwrap_or(&broker.fences.read)
                    .as_fd(),
            }),
        }
    }

    /// What a program may do through the broker.
    fn rights(&self, broker: &BrokerTerms, role: Role, network: Network) -> io::Result<Rights> {
        let mut writable = broker.private.writable().to_vec();
        if role != Role::Reader && self.spec.access == Access::Write {
            writable.push(self.tree().to_owned());
            writable.extend(self.spec.write.iter().cloned());
        }
        if role == Role::Agent {
            writable.extend(self.spec.agent.iter().map(|home| home.from.clone()));
        }
        let fence = self
            .fence(role)
            .ok_or(io::ErrorKind::NotFound)?
            .try_clone_to_owned()?;
        Ok(Rights {
            network,
            writable,
            hidden: self.spec.hide.clone(),
            fence,
        })
    }

    /// The directory that commands work in, by its path outside of any view.
    pub(crate) fn tree(&self) -> &Path {
        match &self.spec.tree {
            Tree::Copy { from } => from,
            Tree::Itself | Tree::Layered { .. } => &self.spec.root,
        }
    }
}

/// Who answers the suspended calls of a command.
enum Suspended {
    Brokered(Broker),
    Renames(Renames),
}

impl Suspended {
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

/// What a program is started as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Command,
    /// A command that only reads.
    Reader,
    Agent,
}

/// A command that was started.
pub(crate) struct Started {
    pub(crate) id: u32,
    /// The first process of the command.
    pub(crate) pid: i32,
    /// What the first process says when everything of the command is gone.
    pub(crate) said: UnixStream,
    /// When the first process was told to kill everything.
    pub(crate) killed: Option<Instant>,
}

/// A command that is ready but for its words.
pub(crate) struct Ready {
    pid: i32,
    said: UnixStream,
    orders: UnixStream,
}

/// Whom something is made ready for.
#[derive(Clone, Copy)]
pub(crate) enum Whom<'a> {
    /// A command that may change things.
    Command,
    /// One that only looks.
    Looker,
    /// An agent, with the network of its place.
    Agent(&'a AgentNetwork),
}

/// The network of an agent's place.
pub(crate) enum AgentNetwork {
    /// That of the commands.
    Shared,
    /// A network namespace.
    Namespace(OwnedFd),
    /// What the broker lets it reach.
    Brokered(Network),
}

/// Makes a command ready. What goes wrong on the way is said when it is started.
pub(crate) fn prepare(terms: &Terms, whom: Whom<'_>) -> io::Result<Ready> {
    let (said, says) = UnixStream::pair()?;
    let (orders, taken) = UnixStream::pair()?;
    let namespaces = match terms.spec.tier {
        Tier::Namespaces => libc::CLONE_NEWPID | libc::CLONE_NEWNS,
        Tier::Broker | Tier::Landlock => 0,
    };
    if let Some(pid) = sys::fork_into(namespaces)? {
        return Ok(Ready { pid, said, orders });
    }
    let entered = match whom {
        Whom::Agent(AgentNetwork::Namespace(network)) => enter_network(network.as_fd()),
        _ => Ok(()),
    };
    let entered =
        entered.map_err(|err| describe("the network of the agent's place cannot be entered", err));
    let fences = [Role::Command, Role::Reader, Role::Agent].map(|role| terms.fence(role));
    let kept = [Some(says.as_fd()), Some(taken.as_fd())]
        .into_iter()
        .chain(fences)
        .flatten();
    sys::keep_only(&kept.collect::<Vec<_>>());
    let first = entered.and_then(|()| First::new(terms, whom));
    let report = first
        .map_err(Refusal::from)
        .and_then(|first| first.run(&taken, &says));
    let report = serde_json::to_vec(&report).unwrap_or_default();
    let _ = (&says).write_all(&report);
    sys::exit_now(0)
}

impl Ready {
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Gives it its words and its three standard handles, with the socket of a borrower behind them if there is one.
    pub(crate) fn start(self, launch: Box<Launch>, standard: &[OwnedFd]) -> Started {
        let id = launch.id;
        let handles: Vec<BorrowedFd<'_>> = standard.iter().map(AsFd::as_fd).collect();
        // One that is gone already has said why.
        let _ = send(
            self.orders.as_fd(),
            &Request::Run(launch).encode(),
            &handles,
        );
        Started {
            id,
            pid: self.pid,
            said: self.said,
            killed: None,
        }
    }

    /// It is not needed; gives its number, to be waited for.
    pub(crate) fn discard(self) -> i32 {
        sys::kill(self.pid, libc::SIGKILL);
        self.pid
    }
}

impl Started {
    /// The answer to [`PAUSE_ALL`], where that is what the first process said: whether everything is stopped.
    pub(crate) fn paused(&self) -> Option<bool> {
        let mut said = [0_u8];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        rustix::net::recv(&self.said, &mut said, flags).ok()?;
        let paused = match said[0] {
            PAUSED => true,
            NOT_PAUSED => false,
            _ => return None,
        };
        (&self.said).read_exact(&mut said).ok()?;
        Some(paused)
    }

    /// How it ended, once it has said so: its status and the limits it hit. None when the first process was killed and
    /// said nothing.
    pub(crate) fn ending(self) -> Option<Result<(i32, u32), Refusal>> {
        let mut report = Vec::new();
        (&self.said).take(64 << 10).read_to_end(&mut report).ok()?;
        serde_json::from_slice(&report).ok()
    }
}

/// The first process of a command.
struct First<'a> {
    terms: &'a Terms,
    signals: OwnedFd,
    hit: u32,
    role: Role,
    /// What the broker lets the command reach, where there is a broker.
    network: Option<Network>,
    /// The processes of the machine are in `/proc`, and not only those of the command.
    shared_proc: bool,
    /// A signal to all processes reaches those of the command and no others.
    signals_held: bool,
}

impl<'a> First<'a> {
    fn new(terms: &'a Terms, whom: Whom<'_>) -> io::Result<Self> {
        processes::die_with_parent();
        if matches!(whom, Whom::Looker) && terms.spec.tier == Tier::Namespaces {
            for place in &terms.writable {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let place = rustix::fs::open(place, flags, Mode::empty())?;
                sys::mount_setattr(place.as_fd(), libc::MOUNT_ATTR_RDONLY, true)?;
            }
        }
        let shared_proc = match terms.spec.tier {
            Tier::Namespaces => {
                let flags = MountFlags::NOSUID
                    | MountFlags::NODEV
                    | MountFlags::NOEXEC
                    | MountFlags::RDONLY;
                match rustix::mount::mount("proc", "/proc", "proc", flags, None) {
                    Ok(()) => false,
                    // Parts of it are masked, as in a container. What is there shows the processes of the container;
                    // Landlock keeps commands from everything in it that is not public.
                    Err(_) if terms.fence.is_some() => true,
                    Err(err) => {
                        return Err(describe(
                            "a view of its own processes cannot be mounted",
                            err.into(),
                        ));
                    }
                }
            }
            Tier::Broker | Tier::Landlock => {
                processes::adopt_orphans()?;
                true
            }
        };
        let (role, network) = match whom {
            Whom::Command => (Role::Command, None),
            Whom::Looker => (Role::Reader, None),
            Whom::Agent(AgentNetwork::Brokered(network)) => (Role::Agent, Some(network.clone())),
            Whom::Agent(_) => (Role::Agent, None),
        };
        let network = network.or_else(|| Some(terms.broker.as_ref()?.network.clone()));
        let signals = sys::signal_handle(&[
            libc::SIGCHLD,
            libc::SIGTERM,
            KILL_ALL,
            PAUSE_ALL,
            RESUME_ALL,
        ])?;
        let signals_held = match terms.spec.tier {
            Tier::Namespaces => true,
            Tier::Broker if terms.spec.signals == Signals::Landlock => fence::hold_signals()?,
            Tier::Broker | Tier::Landlock => false,
        };
        Ok(Self {
            terms,
            signals,
            hit: 0,
            role,
            network,
            shared_proc,
            signals_held,
        })
    }

    fn run(mut self, orders: &UnixStream, says: &UnixStream) -> Result<(i32, u32), Refusal> {
        let (ours, theirs) = UnixStream::pair()?;
        let Some(child) = sys::fork()? else {
            drop(ours);
            let err = become_command(self.terms, self.role, self.moves_directories(), &theirs);
            let _ = send(theirs.as_fd(), err.to_string().as_bytes(), &[]);
            sys::exit_now(127)
        };
        drop(theirs);
        let mut inbox = Inbox::default();
        let broker = self.broker(&ours, &mut inbox)?.map(Suspended::Brokered);
        let renames = self.renames(&ours, &mut inbox)?;
        let (layered, own_rules) = self.pass_on(orders, &ours)?;
        let renames = renames.map(|listener| {
            let fence = own_rules.or_else(|| self.terms.fence.as_ref()?.try_clone().ok());
            Suspended::Renames(Renames::new(listener, self.terms.capabilities, fence))
        });
        let status = self.watch(child, broker.or(renames), says);
        self.end_family();
        let status = status?;
        if layered {
            // Whoever hears of the end finds nobody at the layer, the kernel neither.
            detach(&self.terms.spec.root)?;
        }
        // A program that could not be started said why; one that was started closed its end without a word.
        while matches!(inbox.fill(&ours), Ok(true)) {}
        match inbox.next()? {
            Some(why) => Err(String::from_utf8_lossy(&why).into_owned().into()),
            None => Ok((status, self.hit)),
        }
    }

    /// The broker of the command: the command hands over the handle on which its suspended calls arrive.
    fn broker(
        &mut self,
        command: &UnixStream,
        inbox: &mut Inbox,
    ) -> Result<Option<Broker>, Refusal> {
        let Some((terms, network)) = self.terms.broker.as_ref().zip(self.network.take()) else {
            return Ok(None);
        };
        let Some(frame) = inbox.wait(command)? else {
            return Err("the command ended before it was started".into());
        };
        match inbox.handle() {
            Some(listener) => Ok(Some(Broker::new(
                listener,
                self.terms.rights(terms, self.role, network)?,
            ))),
            None => Err(String::from_utf8_lossy(&frame).into_owned().into()),
        }
    }

    /// Whether renames of the command are suspended. Processes are known by their numbers in a view of their own.
    fn moves_directories(&self) -> bool {
        self.terms.spec.tier == Tier::Namespaces && !self.shared_proc
    }

    /// The handle on which renames arrive, where the command could suspend them.
    fn renames(&self, command: &UnixStream, inbox: &mut Inbox) -> Result<Option<OwnedFd>, Refusal> {
        if !self.moves_directories() {
            return Ok(None);
        }
        let Some(frame) = inbox.wait(command)? else {
            return Err("the command ended before it was started".into());
        };
        match (inbox.handle(), frame.is_empty()) {
            (Some(listener), _) => Ok(Some(listener)),
            (None, true) => Ok(None),
            (None, false) => Err(String::from_utf8_lossy(&frame).into_owned().into()),
        }
    }

    /// Waits for the words of the command and passes them on, with the rules for its layer if it has one; says whether
    /// it has, and what the rules are.
    fn pass_on(
        &self,
        orders: &UnixStream,
        command: &UnixStream,
    ) -> Result<(bool, Option<OwnedFd>), Refusal> {
        let (frame, mut handles) = next_order(orders)?;
        let Request::Run(launch) = Request::decode(&frame)? else {
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
            own_rules = self.put_layer(name, borrower)?;
        }
        if self.terms.spec.command_layers.is_some() && self.terms.spec.tier == Tier::Namespaces {
            detach(Path::new(COMMAND_LAYERS))?;
        }
        if self.terms.spec.agent.is_some()
            && launch.place == 0
            && self.terms.spec.tier == Tier::Namespaces
        {
            // What an agent remembers, and its login, is no other command's concern.
            detach(Path::new(AGENT_HOME))?;
        }
        let handles: Vec<BorrowedFd<'_>> =
            handles.iter().chain(&own_rules).map(AsFd::as_fd).collect();
        // One that is gone already has said why.
        let _ = send(command.as_fd(), &frame, &handles);
        Ok((!launch.layer.is_empty(), own_rules))
    }

    /// Puts a layer over the workspace, hides in it what is hidden, sends it to a borrower, and gives the rules for what
    /// is seen then.
    fn put_layer(
        &self,
        name: &Path,
        borrower: Option<OwnedFd>,
    ) -> Result<Option<OwnedFd>, Refusal> {
        let spec = &self.terms.spec;
        if spec.command_layers.is_none() || spec.tier != Tier::Namespaces {
            return Err(Refusal::NoLayers(
                "this sandbox has no layers for single commands".to_owned(),
            ));
        }
        if name.components().count() != 1 || name.file_name().is_none() {
            return Err(Refusal::Unavailable(format!(
                "`{}` is not the name of a layer",
                name.display()
            )));
        }
        let layer = Path::new(COMMAND_LAYERS).join(name);
        let parts = Parts::hold(&spec.root, &layer.join("upper"), &layer.join("work"))?;
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
        Ok(fence::rules(spec)?)
    }

    /// Follows the command to its end; then this process may end, and with it all that is left.
    fn watch(
        &mut self,
        child: i32,
        mut suspended: Option<Suspended>,
        says: &UnixStream,
    ) -> io::Result<i32> {
        let began = Instant::now();
        let between = if self.role == Role::Agent {
            LOOK_AT_AGENT
        } else {
            LOOK_AT_MEMORY
        };
        let (mut look, mut count) = (began + between, began + COUNT);
        let most = self.terms.spec.limits.processes;
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
                // Nobody is left who could call; without this the end of the handle would wake us without a pause.
                one if calls.contains(PollFlags::HUP) => *one = None,
                _ => {}
            }
            while let Some(signal) = sys::next_signal(self.signals.as_fd()) {
                match signal {
                    libc::SIGTERM => self.signal_all(child, libc::SIGTERM),
                    KILL_ALL => self.kill_all(),
                    PAUSE_ALL => {
                        let paused = if self.pause_all() { PAUSED } else { NOT_PAUSED };
                        let mut says = says;
                        says.write_all(&[paused])?;
                    }
                    RESUME_ALL => self.signal_each(RESUME_ALL),
                    _ => {}
                }
            }
            for _ in 0..processes::MOST_REAPED {
                match sys::reap() {
                    Reaped::One(pid, status) if pid == child => return Ok(status),
                    Reaped::One(..) => {}
                    Reaped::NotYet | Reaped::Nobody => break,
                }
            }
            if count <= Instant::now() {
                let now = self.count_processes();
                count = Instant::now()
                    + match began.elapsed() > LATER {
                        // Close to the limit every moment counts: on a busy machine the next turn may come late enough.
                        _ if now > most / 2 => Duration::ZERO,
                        _ if now > most / 4 => COUNT_MANY,
                        false => COUNT,
                        true => COUNT_LATER,
                    };
            }
            if look <= Instant::now() {
                self.look_at_memory();
                if self.terms.spec.tier == Tier::Broker {
                    self.look_at_threads();
                }
                look = Instant::now() + between;
            }
        }
    }

    /// Ends a command that has started too many; says how many there are.
    fn count_processes(&mut self) -> u32 {
        let all = self.processes();
        let now = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let most = self.terms.spec.limits.processes;
        if now > most {
            self.hit |= HIT_PROCESSES;
            self.kill_all();
        } else if now > most / 2 {
            // On a busy machine many more could be started before the next count: this process goes first from now on.
            processes::lower_priority(&all);
        }
        now
    }

    /// Ends a command whose threads are more than the machine should bear.
    fn look_at_threads(&mut self) {
        let threads =
            |pid: &i32| std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        if self.processes().iter().map(threads).sum::<usize>() as u64 > MOST_TASKS {
            self.hit |= HIT_PROCESSES;
            self.kill_all();
        }
    }

    fn look_at_memory(&mut self) {
        let (tier, most) = (self.terms.spec.tier, self.terms.spec.limits.memory);
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

    /// Signals every process of the command, whichever group it is in.
    fn signal_each(&self, signal: i32) {
        match self.signals_held {
            true => sys::kill(-1, signal),
            false => processes::signal_all(&self.processes(), signal),
        }
    }

    /// Stops everything in the command; whether nothing of it runs any more. A process may start another one, or continue
    /// one, before its own signal reaches it, so that it is repeated until nothing changes.
    fn pause_all(&self) -> bool {
        let until = Instant::now() + PAUSE_TIME;
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
            std::thread::sleep(PAUSE_LOOK);
        }
        false
    }

    /// Whether all of these are stopped; with `vfork` also those that wait for a stopped child.
    fn all_stopped(all: &[i32], vfork: bool) -> bool {
        all.iter().all(|pid| {
            processes::is_stopped(*pid) || (vfork && processes::waits_for_stopped_child(*pid, all))
        })
    }

    /// Kills everything in the command.
    fn kill_all(&self) {
        match self.signals_held {
            true => sys::kill(-1, libc::SIGKILL),
            false => processes::kill_family(),
        }
    }

    /// The processes of the command.
    fn processes(&self) -> Vec<i32> {
        match self.shared_proc {
            true => processes::family(),
            // All that are there but this one.
            false => processes::visible().filter(|pid| *pid != 1).collect(),
        }
    }

    /// Ends everything the command left, and waits until it is gone: whoever hears of the end can rely on it. Orphans
    /// come to this process, so nobody is left when it has no child. What the kernel cannot end in time it ends later.
    fn end_family(&self) {
        processes::end_children(|| self.kill_all());
    }
}

/// The next order, with what came beside it.
fn next_order(orders: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut inbox = Inbox::default();
    match inbox.wait(orders)? {
        Some(frame) => Ok((frame, std::iter::from_fn(|| inbox.handle()).collect())),
        // It was never needed.
        None => sys::exit_now(0),
    }
}

/// Turns this process into the command. Only returns when it cannot.
fn become_command(
    terms: &Terms,
    role: Role,
    suspends_renames: bool,
    orders: &UnixStream,
) -> io::Error {
    let bound = bind(terms, role, orders).and_then(|()| match suspends_renames {
        true => hand_over_renames(terms, orders),
        false => Ok(()),
    });
    match bound.and_then(|()| await_orders(terms, role, orders)) {
        Ok(program) => program.start(),
        Err(err) => err,
    }
}

/// Gives up everything that a command must not have, but for what depends on where it works.
fn bind(terms: &Terms, role: Role, orders: &UnixStream) -> io::Result<()> {
    // A session of its own has no terminal, so that nothing can be typed or asked there.
    rustix::process::setsid().map_err(io::Error::from)?;
    processes::restore_priority();
    sys::limit(libc::RLIMIT_CORE, 0);
    sys::limit(libc::RLIMIT_FSIZE, terms.spec.limits.file_size);
    // Written memory and not address space: much of what programs reserve they never touch.
    let reserve = if role == Role::Agent {
        AGENT_RESERVE
    } else {
        0
    };
    sys::limit(
        libc::RLIMIT_DATA,
        terms.spec.limits.memory.saturating_add(reserve),
    );
    if terms.spec.tier == Tier::Namespaces {
        // In a user namespace of its own only what runs in it counts.
        sys::limit(libc::RLIMIT_NPROC, MOST_TASKS);
    }
    sys::usual_signals();
    keep_capabilities(terms.capabilities)
        .map_err(|err| describe("capabilities cannot be given up", err.into()))?;
    rustix::thread::set_no_new_privs(true)?;
    match terms
        .filters
        .install()
        .map_err(|err| describe("the system call filter is refused", err))?
    {
        // The first process answers; this one must not keep the handle, or the program could answer itself.
        Some(listener) => send(orders.as_fd(), &[], &[listener.as_fd()]),
        None => Ok(()),
    }
}

/// Hands the first process the handle on which renames arrive, or says that there is none.
fn hand_over_renames(terms: &Terms, orders: &UnixStream) -> io::Result<()> {
    match terms.filters.install_renames() {
        Some(listener) => send(orders.as_fd(), &[], &[listener.as_fd()]),
        None => send(orders.as_fd(), &[], &[]),
    }
}

/// Gives up all capabilities but these, for this process and all it starts.
pub(super) fn keep_capabilities(keep: CapabilitySet) -> rustix::io::Result<()> {
    let each = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
    for one in each.filter(|one| !keep.contains(*one)) {
        // The first one that the kernel does not know ends the list.
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

/// Waits for the words, takes its place and its standard handles, and binds itself to the rules: those of its layer
/// come as a fourth handle, because what is under a layer is another directory than what is seen.
fn await_orders(terms: &Terms, role: Role, orders: &UnixStream) -> io::Result<Program> {
    let (frame, mut handles) = next_order(orders)?;
    let Request::Run(launch) = Request::decode(&frame)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let own_rules = handles.split_off(handles.len().min(3)).pop();
    if handles.len() < 3 {
        return Err(io::Error::other("the command came without its handles"));
    }
    if let Some(fence) = own_rules.as_ref().map(AsFd::as_fd).or(terms.fence(role)) {
        sys::landlock_restrict(fence).map_err(|err| describe("Landlock refuses", err))?;
    }
    for (handle, at) in handles.iter().zip(0..) {
        sys::place(handle.as_raw_fd(), at)?;
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
    if let Some(folder) = &terms.temporary {
        env.retain(|one| !one.as_bytes().starts_with(b"TMPDIR="));
        env.push(CString::new(
            [b"TMPDIR=", folder.as_os_str().as_bytes()].concat(),
        )?);
    }
    if let Some(broker) = &terms.broker {
        for variable in &mut env {
            if let Some(resolved) = broker.private.resolve(variable.as_bytes()) {
                *variable = CString::new(resolved)?;
            }
        }
    }
    let dir = CString::new(launch.dir.clone())?;
    rustix::process::chdir(dir.as_c_str())
        .map_err(|err| describe("the directory cannot be entered", err.into()))?;
    Ok(Program { argv, env })
}

/// What is started.
struct Program {
    argv: Vec<CString>,
    env: Vec<CString>,
}

impl Program {
    /// Looks a bare name up in the command's own `PATH`, never in the current directory.
    fn start(&self) -> io::Error {
        let Some(name) = self.argv.first() else {
            return io::Error::from(io::ErrorKind::InvalidInput);
        };
        sys::close_on_start(3);
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
