//! The two processes that outlive commands: a janitor outside that writes the identity maps and cleans up whatever
//! happens, and a supervisor inside that builds the view once and starts every command of the session from it.

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
use super::command::{self, AgentNetwork, KILL_ALL, Ready, Started, Terms, Whom};
use super::covers::Covers;
use super::filter::Filters;
use super::group::Group;
use super::journal::Journal;
use super::processes::adopt_orphans;
use super::{Refusal, broker_setup, enter_network, fence, processes, sys, view};
use crate::spec::{Access, NO_LAYERS, Net, Protection, Spec, Tier, Tree};
use crate::wire::{Inbox, Launch, MAX_HANDLES, Report, Request, send};

/// How long the first process of a command without a process namespace may take to kill everything in it.
const KILL_TIME: Duration = Duration::from_secs(3);
/// How often that is looked at.
const KILL_LOOK: Duration = Duration::from_millis(100);
/// How long after the last command the placeholders go.
const TIDY_AFTER: Duration = Duration::from_millis(500);
/// Commands at a time; the engine bounds its jobs long before.
const MOST_COMMANDS: usize = 64;
/// Places for agents at a time.
const MOST_PLACES: usize = 8;
/// What the private directories of sessions are called, before the number of their janitor.
const SCRATCH: &str = "box-";

/// Runs the helper to its end: the specification comes first on standard input, then requests.
pub(crate) fn supervise() -> u8 {
    // What is typed at the engine's terminal is for the engine, which ends this by closing the socket.
    let _ = rustix::process::setsid();
    processes::raise_priority();
    let control = match rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) {
        Ok(control) => UnixStream::from(control),
        Err(_) => return 2,
    };
    match oversee(&control) {
        Ok(()) => 0,
        Err(why) => {
            let _ = send(control.as_fd(), &Report::Refused(why.into()).encode(), &[]);
            1
        }
    }
}

/// The janitor.
fn oversee(control: &UnixStream) -> Result<(), String> {
    let mut inbox = Inbox::default();
    let spec = inbox.wait(control).map_err(|err| err.to_string())?;
    let spec = spec.ok_or("the engine went away")?;
    let mut spec: Spec = serde_json::from_slice(&spec)
        .map_err(|err| format!("the specification is garbled: {err}"))?;
    spec.scratch = spec.scratch.as_deref().map(own_scratch).transpose()?;
    // By its name it would be the user's own directory that is cleaned from out here, and not the layer over it.
    let layered = spec.tree != Tree::Itself || !spec.layers.is_empty();
    spec.journal = spec.journal.filter(|_| !layered);
    // One that lies in what it would be over would be seen there.
    spec.command_layers = spec
        .command_layers
        .filter(|place| place.is_dir() && !place.starts_with(&spec.root));
    let scratch = spec.scratch.clone();
    let journal = spec.journal.clone();
    let (tier, limits) = (spec.tier, spec.limits);
    // What must not come to be goes even when everything else was killed.
    let banned = spec
        .protect
        .iter()
        .filter(|one| one.how == Protection::Banned && !layered);
    let banned = banned.map(|one| one.base.join(&one.name));
    let banned: Vec<PathBuf> = banned
        .filter(|path| path.symlink_metadata().is_err())
        .collect();
    if tier != Tier::Namespaces {
        // What a killed supervisor leaves comes here, and not to the machine.
        adopt_orphans().map_err(|err| format!("orphans cannot be adopted: {err}"))?;
    }
    let (ours, theirs) = UnixStream::pair().map_err(|err| err.to_string())?;
    let Some(inside) = sys::fork().map_err(|err| err.to_string())? else {
        drop(ours);
        processes::die_with_parent();
        let code = match Supervisor::open(control, spec, &theirs) {
            Ok(mut supervisor) => supervisor.serve(inbox),
            Err(why) => {
                let _ = send(control.as_fd(), &Report::Refused(why).encode(), &[]);
                1
            }
        };
        sys::exit_now(code)
    };
    drop(theirs);
    let group = Group::make(&limits).filter(|group| group.add(inside));
    if tier == Tier::Namespaces
        && let Err(why) = map_identities(&ours, inside)
    {
        sys::kill(inside, libc::SIGKILL);
        sys::wait_for(inside);
        return Err(why);
    }
    let status = sys::wait_for(inside);
    if tier != Tier::Namespaces {
        processes::end_children(processes::kill_family);
    }
    drop(group);
    for path in &banned {
        let _ = std::fs::remove_file(path);
    }
    // The supervisor is gone, and with it every command; what it left in the workspace goes now.
    if let Some(mut journal) = journal.as_deref().and_then(|path| Journal::open(path).ok()) {
        // What a supervisor had started may still be going, and hold the list for a moment; longer when it was killed.
        let tries = if libc::WIFSIGNALED(status) { 200 } else { 20 };
        for _ in 0..tries {
            if journal.leave() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // The engine need not wait for the layers of the caches, which may be large.
    let _ = control.shutdown(std::net::Shutdown::Both);
    if let Some(scratch) = &scratch {
        let _ = std::fs::remove_dir_all(scratch);
    }
    Ok(())
}

/// A directory for this session alone. Those of sessions whose janitor was killed go now.
fn own_scratch(parent: &Path) -> Result<PathBuf, String> {
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
    // One of the same number is left from a process that is long gone.
    let _ = std::fs::remove_dir_all(&own);
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(&own)
        .map_err(|err| format!("`{}` cannot be made: {err}", own.display()))?;
    Ok(own)
}

/// Waits until the supervisor has its own user namespace, and gives it its identities: root keeps all it has, so
/// that it can work on files of any owner; everybody else is only themselves.
fn map_identities(ours: &UnixStream, inside: i32) -> Result<(), String> {
    let mut ready = [0_u8];
    // The supervisor says by itself why it got no namespace.
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
            .map_err(|err| format!("the identities of the sandbox cannot be set: {err}"))?;
    }
    (&*ours).write_all(&[1]).map_err(|err| err.to_string())
}

/// The supervisor inside.
struct Supervisor<'a> {
    control: &'a UnixStream,
    terms: Terms,
    covers: Option<Covers>,
    running: Vec<Started>,
    /// Places for agents, each with its network.
    places: Vec<(u32, AgentNetwork)>,
    /// The next command, made ready while nothing else was to do.
    spare: Option<Ready>,
    /// A command was started since it was last tidied up.
    armed: bool,
}

impl<'a> Supervisor<'a> {
    fn open(control: &'a UnixStream, spec: Spec, janitor: &UnixStream) -> Result<Self, Refusal> {
        let journal = spec.journal.as_deref().map(Journal::open).transpose();
        let journal =
            journal.map_err(|err| format!("the list of placeholders cannot be opened: {err}"))?;
        let (mut listener, mut tree) = (None, None);
        let covers = match spec.tier {
            Tier::Namespaces => {
                if crate::probe::landlock_version() == 0 && crate::probe::proc_is_masked() {
                    let why = "parts of /proc are masked, as in a container, so that only Landlock could keep commands from \
                               other processes, and this kernel has no Landlock";
                    return Err(why.into());
                }
                apart(&spec, janitor)?;
                listener = network(&spec)?;
                let built = view::build(&spec)?;
                tree = built.tree;
                let covers = Covers::new(&spec, built.blanks, journal);
                Some(covers.map_err(|err| format!("a protected directory cannot be held: {err}"))?)
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
        let filters = filters.map_err(|err| format!("the system call filter: {err}"))?;
        if spec.tier == Tier::Broker {
            broker_setup::try_broker(&filters)?;
        }
        let no_landlock = || Refusal::from("this kernel has no Landlock");
        let (broker, fence) = match spec.tier {
            Tier::Broker => {
                let engine = listener.iter().map(|(port, _)| *port).collect();
                (
                    Some(broker_setup::broker_terms(&spec, engine)?.ok_or_else(no_landlock)?),
                    None,
                )
            }
            Tier::Namespaces | Tier::Landlock => (
                None,
                fence::rules(&spec).map_err(|err| format!("the Landlock rules: {err}"))?,
            ),
        };
        if fence.is_none() && spec.tier == Tier::Landlock {
            return Err(no_landlock());
        }
        let root = rustix::process::geteuid().is_root();
        let capabilities = if root && spec.tier == Tier::Namespaces {
            ROOT_KEEPS
        } else {
            CapabilitySet::empty()
        };
        // Without a view of its own a command has no /tmp either.
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
        let terms = Terms {
            spec,
            filters,
            fence,
            capabilities,
            writable,
            temporary,
            broker,
        };
        let port = listener.as_ref().map_or(0, |(port, _)| u32::from(*port));
        let ready = Report::Ready {
            port,
            tree: tree.is_some(),
        };
        let handles: Vec<_> = listener
            .iter()
            .map(|(_, socket)| socket.as_fd())
            .chain(tree.as_ref().map(AsFd::as_fd))
            .collect();
        send(control.as_fd(), &ready.encode(), &handles)?;
        sys::forget_children();
        if terms.spec.tier != Tier::Namespaces {
            adopt_orphans()?;
        }
        Ok(Self {
            control,
            terms,
            covers,
            running: Vec::new(),
            places: Vec::new(),
            spare: None,
            armed: false,
        })
    }

    /// Until the engine goes away.
    fn serve(&mut self, mut inbox: Inbox) -> i32 {
        loop {
            loop {
                match inbox
                    .next()
                    .and_then(|frame| frame.map(|frame| Request::decode(&frame)).transpose())
                {
                    Ok(Some(request)) => self.handle(request, &mut inbox),
                    Ok(None) => break,
                    Err(_) => return 1,
                }
            }
            let idle = self.armed && self.running.is_empty();
            let killing = self.running.iter().any(|one| one.killed.is_some());
            let pause = if killing { KILL_LOOK } else { TIDY_AFTER };
            let pause = Timespec::try_from(pause).ok().filter(|_| idle || killing);
            let gone: Vec<bool> = {
                let mut waited = vec![PollFd::new(self.control, PollFlags::IN)];
                waited.extend(
                    self.running
                        .iter()
                        .map(|one| PollFd::new(&one.said, PollFlags::IN)),
                );
                match rustix::event::poll(&mut waited, pause.as_ref()) {
                    Ok(0) if killing => {
                        self.kill_first_processes();
                        continue;
                    }
                    Ok(0) => {
                        self.tidy();
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
                    self.say(&Report::Paused { id, stopped });
                    continue;
                }
                let one = self.running.swap_remove(index);
                self.report(one);
                if self.spare.is_none() {
                    self.spare = command::prepare(&self.terms, Whom::Command).ok();
                }
            }
            if gone[0] && !matches!(inbox.fill(self.control), Ok(true)) {
                self.end_all();
                return 0;
            }
        }
    }

    fn handle(&mut self, request: Request, inbox: &mut Inbox) {
        match request {
            Request::Run(launch) => {
                let id = launch.id;
                let count = 3 + usize::from(launch.lends_tree);
                let handles: Option<Vec<OwnedFd>> = (0..count).map(|_| inbox.handle()).collect();
                let started = handles
                    .ok_or_else(|| io::Error::other("the command came without its handles"))
                    .and_then(|handles| self.start(launch, &handles));
                match started {
                    Ok(started) => {
                        self.log(|| format!("command {id} is process {}", started.pid));
                        self.running.push(started);
                    }
                    Err(err) => self.say(&Report::Failed {
                        id,
                        why: err.into(),
                    }),
                }
            }
            Request::Signal { id, signal } => {
                let kill_all = signal == libc::SIGKILL && self.terms.spec.tier != Tier::Namespaces;
                if let Some(one) = self.running.iter_mut().find(|one| one.id == id) {
                    one.killed = kill_all.then(Instant::now);
                    sys::kill(one.pid, if kill_all { KILL_ALL } else { signal });
                }
            }
            Request::Enclose { id, listeners } => match self.enclose(id, listeners) {
                Ok(listeners) => {
                    let ports = listeners.iter().map(|(port, _)| u32::from(*port)).collect();
                    let handles: Vec<BorrowedFd<'_>> =
                        listeners.iter().map(|(_, socket)| socket.as_fd()).collect();
                    let _ = send(
                        self.control.as_fd(),
                        &Report::Enclosed { id, ports }.encode(),
                        &handles,
                    );
                }
                Err(err) => self.say(&Report::Failed {
                    id,
                    why: err.into(),
                }),
            },
            Request::Leave { id } => self.places.retain(|(known, _)| *known != id),
        }
    }

    /// Makes a place for an agent.
    fn enclose(&mut self, id: u32, listeners: u32) -> io::Result<Vec<Listener>> {
        if self.terms.spec.agent.is_none() {
            return Err(io::Error::other("this sandbox has no home for an agent"));
        }
        if self.places.len() >= MOST_PLACES || listeners as usize > MAX_HANDLES {
            return Err(io::Error::other(
                "there are too many places for agents already",
            ));
        }
        let (network, listeners) = match (listeners, &self.terms.broker) {
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
        self.places.push((id, network));
        self.log(|| format!("place {id} has {} listeners", listeners.len()));
        Ok(listeners)
    }

    fn start(&mut self, launch: Box<Launch>, standard: &[OwnedFd]) -> io::Result<Started> {
        if self.running.len() >= MOST_COMMANDS {
            return Err(io::Error::other(format!(
                "{MOST_COMMANDS} commands run already; stop one first"
            )));
        }
        let layered = !launch.layer.is_empty();
        let changed = self
            .covers
            .as_mut()
            .map_or(Ok(false), |covers| covers.arm(layered))?;
        self.armed |= changed || !layered;
        if changed {
            // It has the mounts of before.
            self.drop_spare();
        }
        if launch.place != 0 {
            let place = self.places.iter().find(|(id, _)| *id == launch.place);
            let (_, network) =
                place.ok_or_else(|| io::Error::other("the agent's place was left already"))?;
            return Ok(command::prepare(&self.terms, Whom::Agent(network))?.start(launch, standard));
        }
        let ready = match launch.access {
            // One that only looks is rare enough to be made when it comes.
            Access::ReadOnly => command::prepare(&self.terms, Whom::Looker)?,
            Access::Write => match self.spare.take() {
                Some(ready) => ready,
                None => command::prepare(&self.terms, Whom::Command)?,
            },
        };
        Ok(ready.start(launch, standard))
    }

    fn drop_spare(&mut self) {
        // It is gone in a moment, and nobody waits for it.
        let _ = self.spare.take().map(Ready::discard);
    }

    /// Kills first processes that were told to kill their commands and did not in time. What they leave comes to this
    /// process.
    fn kill_first_processes(&mut self) {
        for one in self
            .running
            .iter()
            .filter(|one| one.killed.is_some_and(|at| at.elapsed() > KILL_TIME))
        {
            sys::kill(one.pid, libc::SIGKILL);
        }
    }

    /// Kills what a first process left that was killed itself.
    fn kill_strays(&self) {
        if self.terms.spec.tier == Tier::Namespaces {
            return;
        }
        let known: Vec<i32> = self
            .running
            .iter()
            .map(|one| one.pid)
            .chain(self.spare.as_ref().map(Ready::pid))
            .collect();
        let until = Instant::now() + KILL_TIME;
        loop {
            let strays = processes::family_but(&known);
            if strays.is_empty() || until < Instant::now() {
                return;
            }
            processes::signal_all(&strays, libc::SIGKILL);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn report(&self, one: Started) {
        let id = one.id;
        if let Some(covers) = &self.covers {
            covers.sweep();
        }
        self.say(&match one.ending() {
            Some(Ok((status, limits))) => Report::Ended { id, status, limits },
            Some(Err(why)) => Report::Failed { id, why },
            None => {
                self.kill_strays();
                Report::Ended {
                    id,
                    status: libc::SIGKILL,
                    limits: 0,
                }
            }
        });
    }

    /// Sends a line for the log of developers, if there is one: numbers and kinds, never words of a command.
    fn log(&self, line: impl FnOnce() -> String) {
        if self.terms.spec.log {
            self.say(&Report::Log { line: line() });
        }
    }

    fn say(&self, report: &Report) {
        // An engine that is gone needs no report; the next read sees its end.
        let _ = send(self.control.as_fd(), &report.encode(), &[]);
    }

    /// Ends every command and waits for it: they hold what the janitor needs to be free.
    fn end_all(&mut self) {
        let signal = if self.terms.spec.tier == Tier::Namespaces {
            libc::SIGKILL
        } else {
            KILL_ALL
        };
        for one in &self.running {
            sys::kill(one.pid, signal);
        }
        let spare = self.spare.take().map(Ready::discard);
        let until = Instant::now() + KILL_TIME;
        for pid in self.running.drain(..).map(|one| one.pid).chain(spare) {
            // One that does not answer is killed, and what it leaves comes to this process.
            while signal == KILL_ALL && sys::is_there(pid) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            sys::kill(pid, libc::SIGKILL);
            sys::wait_for(pid);
        }
        self.kill_strays();
        if let Some(covers) = &mut self.covers {
            covers.sweep();
            // With a list of placeholders the janitor does it, who has no cover in the way.
            if !covers.listed() {
                covers.disarm();
            }
        }
    }

    fn tidy(&mut self) {
        self.log(|| "no command is left: placeholders are removed".to_owned());
        if let Some(covers) = &mut self.covers {
            covers.disarm();
        }
        self.drop_spare();
        self.armed = false;
    }
}

/// Namespaces of its own.
fn apart(spec: &Spec, janitor: &UnixStream) -> Result<(), String> {
    let network = if spec.net == Net::Open {
        0
    } else {
        libc::CLONE_NEWNET
    };
    let spaces =
        libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | network;
    sys::unshare(spaces).map_err(|err| match err.raw_os_error() {
        // The kernel's own words for this are about disks.
        Some(libc::ENOSPC) => {
            "user namespaces are not available: as many as the system allows are in use".to_owned()
        }
        _ => format!("user namespaces are not available: {err}"),
    })?;
    let mut mapped = [0_u8];
    (&*janitor)
        .write_all(&[1])
        .and_then(|()| (&*janitor).read_exact(&mut mapped))
        .map_err(|err| format!("the identities of the sandbox were not set: {err}"))?;
    limit_segments(spec.limits.memory);
    Ok(())
}

/// Bounds System V segments in the namespace. Kernels before 5.19 refuse that; there they are only watched.
fn limit_segments(most: u64) {
    let pages = most / rustix::param::page_size() as u64;
    let _ = std::fs::write("/proc/sys/kernel/shmall", pages.to_string());
    let _ = std::fs::write("/proc/sys/kernel/shmmax", most.to_string());
}

/// The network inside; the listener where one is asked for, with its port.
fn network(spec: &Spec) -> Result<Option<Listener>, String> {
    if matches!(spec.net, Net::Off | Net::Open) {
        return Ok(None);
    }
    sys::loopback_up().map_err(|err| format!("the loopback of the sandbox: {err}"))?;
    if spec.net == Net::Loopback {
        return Ok(None);
    }
    listen()
        .map(Some)
        .map_err(|err| format!("the way out: {err}"))
}

/// A listener, with its port.
type Listener = (u16, std::net::TcpListener);

fn listen() -> io::Result<Listener> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    Ok((listener.local_addr()?.port(), listener))
}

/// A network beside that of the commands, so that nobody but an agent reaches its listeners: a loopback and nothing else.
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
        // Commands would be where only the agent is to be.
        sys::exit_now(1);
    }
    made
}

/// What root keeps: working on files of any owner, and being another user. All of it only inside the view.
const ROOT_KEEPS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);
