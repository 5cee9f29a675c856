//! The kernel sandbox of a session: opened with the first command, gone with the session. It turns a plan into a view,
//! runs commands in it, is their way out where hosts are allowed, and says what it had to do with a failure.

mod agent;
mod gitconfig;
mod gitdir;
mod hint;
mod look;
pub(crate) mod names;
mod net;
mod plan;
mod proxy;
#[cfg(test)]
pub(crate) mod test_helper;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;
pub(crate) use windlass_sandbox::Tree;
use windlass_sandbox::{AGENT_HOME, Access, Listener, Opened, Place, Session, Tier};

pub use self::agent::{AgentPlan, HomeFile};
pub use self::net::{HostRule, NetPolicy};
pub use self::plan::{Level, SandboxPlan};
pub use windlass_sandbox::{Ended, Helper, Limits, SandboxError, Standard};

use self::proxy::Refused;

/// A sandbox that is opened when it is needed.
#[derive(Debug)]
pub struct Sandbox {
    plan: SandboxPlan,
    helper: Helper,
    env: Vec<(OsString, OsString)>,
    /// What stands at the workspace's path.
    tree: TreePlan,
    /// The home of an agent that is not ours, in runs that may have one.
    agent_home: Option<PathBuf>,
    /// Somebody asked for it by name: then it is opened before the first token, or the run is refused.
    demanded: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    Open(Arc<Inside>),
    /// It was tried and cannot be had; the same for the rest of the session.
    Refused(SandboxError),
}

/// What stands at the workspace's path, and at that of a git directory outside it.
#[derive(Debug, Clone, Default)]
pub(crate) struct TreePlan {
    /// The workspace itself when absent.
    pub(crate) tree: Option<Tree>,
    /// The upper and the working directory of a private layer over the git directory outside.
    pub(crate) git: Option<(PathBuf, PathBuf)>,
}

/// An open sandbox.
#[derive(Debug)]
pub(crate) struct Inside {
    tree: Mutex<Option<OwnedFd>>,
    session: Session,
    env: Vec<(OsString, OsString)>,
    refused: Refused,
    proxy: Option<AbortHandle>,
    /// By which means commands are held.
    pub(crate) tier: Tier,
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(proxy) = &self.proxy {
            proxy.abort();
        }
    }
}

impl Sandbox {
    /// A sandbox for commands with exactly this environment.
    #[must_use]
    pub fn new(plan: SandboxPlan, helper: Helper, env: Vec<(OsString, OsString)>) -> Self {
        let tree = TreePlan::default();
        Self { plan, helper, env, tree, agent_home: None, demanded: false, state: Mutex::default() }
    }

    /// Another one by the same plan, with another tree at the workspace's path. Whatever its commands change stays in
    /// that tree, so that no name in it needs protection.
    pub(crate) fn over(&self, tree: TreePlan) -> Self {
        let (plan, helper, env) = (self.plan.clone(), self.helper.clone(), self.env.clone());
        let agent_home = self.agent_home.clone();
        Self { plan, helper, env, tree, agent_home, demanded: true, state: Mutex::default() }
    }

    /// Another one by the same plan for the isolated runs of a session, in which the agent of the plan has its home;
    /// none where there is no agent.
    pub(crate) fn lodging(&self, session: &str) -> Result<Option<Self>, String> {
        let Some(agent) = &self.plan.agent else { return Ok(None) };
        Ok(Some(Self { agent_home: Some(agent.home(session)?), ..self.over(self.tree.clone()) }))
    }

    /// The git directory outside the workspace that commands need.
    pub(crate) fn outside_git(&self) -> Option<PathBuf> {
        gitdir::outside(&self.plan.root)
    }

    /// A handle of the tree that stands at the workspace's path, once.
    pub(crate) fn take_tree(&self) -> Result<Option<OwnedFd>, SandboxError> {
        let inside = self.inside()?;
        let mut tree = inside.tree.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(tree.take())
    }

    /// The same, asked for by name.
    #[must_use]
    pub fn demanded(mut self) -> Self {
        self.demanded = true;
        self
    }

    /// Whether it has to be opened before anything else happens: it was asked for, or what it will be depends on
    /// what the kernel offers.
    pub(crate) fn opens_first(&self) -> bool {
        self.demanded || self.plan.accept_landlock
    }

    /// What commands may do and reach, for the event that says so, and whether they are held by all of it.
    #[must_use]
    pub fn terms(&self) -> (String, String, bool) {
        let level = match self.plan.level {
            Level::ReadOnly => "read-only",
            Level::WorkspaceWrite => "workspace-write",
        };
        let network = self.plan.net.to_string();
        match &*self.lock() {
            State::Open(inside) if inside.tier == Tier::Landlock => {
                (format!("{level}: landlock+seccomp"), network, false)
            }
            State::Refused(_) => (format!("{level}: not available, so commands are refused"), network, false),
            State::Closed if namespaces_are_off() => {
                (format!("{level}: not available, so commands are refused"), network, false)
            }
            State::Open(_) | State::Closed => (format!("{level}: namespaces+landlock+seccomp"), network, true),
        }
    }

    /// Where the layers of single commands are made.
    pub(crate) fn command_layers(&self) -> std::path::PathBuf {
        self.plan.command_layers()
    }

    /// Opens it now, to know whether it can be had.
    pub fn open(&self) -> Result<(), SandboxError> {
        self.inside().map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a program to its end with the handles it is given.
    pub async fn run(&self, argv: &[OsString], dir: &Path, standard: Standard) -> Result<Ended, SandboxError> {
        let inside = self.inside()?;
        let (done, ended) = tokio::sync::oneshot::channel();
        let child = inside.start(argv, dir, Access::Write, standard, move |result| drop(done.send(result)))?;
        let ended = ended.await.unwrap_or_else(|_| Err(SandboxError::Gone("its supervisor was ended".to_owned())));
        drop(child);
        ended
    }

    /// Hosts that commands were not allowed to reach since somebody last asked.
    #[must_use]
    pub fn take_refused(&self) -> Vec<String> {
        match &*self.lock() {
            State::Open(inside) => inside.refused.take(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn inside(&self) -> Result<Arc<Inside>, SandboxError> {
        let mut state = self.lock();
        match &*state {
            State::Open(inside) => return Ok(Arc::clone(inside)),
            State::Refused(why) => return Err(why.clone()),
            State::Closed => {}
        }
        match self.enter() {
            Ok(inside) => {
                let inside = Arc::new(inside);
                *state = State::Open(Arc::clone(&inside));
                Ok(inside)
            }
            Err(why) => {
                *state = State::Refused(why.clone());
                Err(why)
            }
        }
    }

    fn enter(&self) -> Result<Inside, SandboxError> {
        let spec = |tier| self.plan.spec(&self.env, tier, &self.tree, self.agent_home.as_deref());
        let whole = Session::open(&self.helper, &spec(Tier::Full));
        let (opened, tier) = match whole {
            Ok(opened) => (opened, Tier::Full),
            Err(why @ SandboxError::NoLayers(_)) => return Err(why),
            // Without a view of its own nothing else can stand at the workspace's path.
            Err(why) if self.tree.tree.is_some() => return Err(unavailable(&why)),
            Err(why) if self.plan.accept_landlock => {
                let weaker = Session::open(&self.helper, &spec(Tier::Landlock));
                (
                    weaker
                        .map_err(|also| SandboxError::Unavailable(format!("{why}; nor can Landlock alone: {also}")))?,
                    Tier::Landlock,
                )
            }
            Err(why) => return Err(unavailable(&why)),
        };
        let Opened { session, listener, tree } = opened;
        let refused = Refused::default();
        let mut env = without_proxies(&self.env, &self.plan.net);
        let mut proxy = None;
        if let (NetPolicy::Hosts(rules), Some(listener)) = (&self.plan.net, listener) {
            let (task, variables) = way_out(listener, rules.clone(), &refused)?;
            proxy = Some(task);
            env.extend(variables);
        }
        env.extend(self.usual_variables());
        Ok(Inside { tree: Mutex::new(tree), session, env, refused, proxy, tier })
    }

    /// What everything that is started has in its environment.
    fn usual_variables(&self) -> Vec<(OsString, OsString)> {
        let mut env = vec![("TMPDIR".into(), "/tmp".into())];
        env.extend(gitconfig::variables(self.plan.home.as_deref()));
        // Programs of ours that a command starts know by it that no person did.
        env.push((crate::exec::MARK.into(), "sandbox".into()));
        env
    }

    /// A place for the agent of the plan in an open sandbox; none where the run has no agent.
    pub(crate) async fn lodge(&self, inside: &Inside) -> Option<Result<Lodging, SandboxError>> {
        let (agent, home) = self.plan.agent.as_ref().zip(self.agent_home.clone())?;
        Some(self.lodge_agent(agent, home, inside).await)
    }

    async fn lodge_agent(&self, agent: &AgentPlan, home: PathBuf, inside: &Inside) -> Result<Lodging, SandboxError> {
        let rules = agent.rules(&self.plan.net);
        // With the machine's own network there is nothing that only the agent could reach. With any other there is a
        // way out even where it leads nowhere: without one, programs wait long seconds for names that nobody resolves,
        // and nobody hears whom they wanted to reach.
        let listeners = if self.plan.net == NetPolicy::Open { 0 } else { 2 };
        let (done, made) = tokio::sync::oneshot::channel();
        inside.session.enclose(listeners, move |result| drop(done.send(result)))?;
        let made = made.await.unwrap_or_else(|_| Err(SandboxError::Gone("its supervisor was ended".to_owned())));
        let (place, mut listeners) = made?;
        let refused = Refused::default();
        let mut env = agent::environment(&self.env, self.plan.home.as_deref());
        env.extend(self.usual_variables());
        agent.search_first(&mut env);
        let mut proxy = None;
        if let Some(listener) = listeners.pop() {
            let (task, variables) = way_out(listener, rules, &refused)?;
            proxy = Some(task);
            env.extend(variables);
        }
        let files = agent.home_files.iter().map(|file| file.to.clone()).collect();
        let (endpoint, limits) = (listeners.pop(), self.plan.limits);
        Ok(Lodging { place, home, files, endpoint, env, refused, proxy, limits })
    }

    /// What the sandbox has to say about a command that ended.
    pub(crate) fn remarks(&self, inside: &Inside, ended: Option<Ended>, output: &str, failed: bool) -> Remarks {
        let refused = inside.refused.take();
        let mut text = Vec::new();
        if let Some(ended) = ended {
            if ended.limits.processes {
                let most = self.plan.limits.processes;
                text.push(format!("it was ended at the limit of {most} processes (setting `sandbox.processes`)"));
            }
            if ended.limits.memory {
                let most = self.plan.limits.memory >> 20;
                text.push(format!("it was ended at the limit of {most} MiB of memory (setting `sandbox.memory_mb`)"));
            }
        }
        if failed || !refused.is_empty() {
            text.extend(hint::hint(output, self.plan.level, &self.plan.net, &refused));
        }
        Remarks { text, refused }
    }
}

/// The place of an agent in an open sandbox. It does not keep the sandbox.
#[derive(Debug)]
pub(crate) struct Lodging {
    pub(crate) place: Place,
    /// Its home as it is outside of the view.
    pub(crate) home: PathBuf,
    /// What in its home is the person's.
    pub(crate) files: Vec<String>,
    /// Where its model is to be.
    pub(crate) endpoint: Option<Listener>,
    /// What its programs have in their environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) limits: Limits,
    refused: Refused,
    proxy: Option<AbortHandle>,
}

impl Lodging {
    /// Its home as it sees it.
    pub(crate) const HOME: &'static str = AGENT_HOME;

    /// Hosts that were refused since somebody last looked.
    pub(crate) fn take_refused(&self) -> Vec<String> {
        self.refused.take()
    }
}

impl Drop for Lodging {
    fn drop(&mut self) {
        if let Some(proxy) = &self.proxy {
            proxy.abort();
        }
    }
}

/// What a sandbox says about a command.
#[derive(Debug, Default)]
pub(crate) struct Remarks {
    pub(crate) text: Vec<String>,
    pub(crate) refused: Vec<String>,
}

impl Inside {
    /// Starts a command; see [`Session::start`].
    pub(crate) fn start(
        &self,
        argv: &[OsString],
        dir: &Path,
        access: Access,
        standard: Standard,
        done: impl FnOnce(Result<Ended, SandboxError>) + Send + 'static,
    ) -> Result<windlass_sandbox::Child, SandboxError> {
        self.session.start(argv, &self.env, dir, access, standard, done)
    }

    /// Starts a program of an agent; see [`Session::start_in`].
    pub(crate) fn start_in(
        &self,
        place: &Place,
        argv: &[OsString],
        env: &[(OsString, OsString)],
        dir: &Path,
        standard: Standard,
        done: impl FnOnce(Result<Ended, SandboxError>) + Send + 'static,
    ) -> Result<windlass_sandbox::Child, SandboxError> {
        self.session.start_in(place, argv, env, dir, standard, done)
    }

    /// Starts a command over a layer of its own; see [`Session::start_over`].
    pub(crate) fn start_over(
        &self,
        layer: &str,
        argv: &[OsString],
        dir: &Path,
        standard: Standard,
        done: impl FnOnce(Result<Ended, SandboxError>) + Send + 'static,
    ) -> Result<windlass_sandbox::Child, SandboxError> {
        self.session.start_over(layer, argv, &self.env, dir, standard, done)
    }
}

/// Serves a list of hosts at a listener; gives the task and the variables that lead there.
fn way_out(
    (port, listener): Listener,
    rules: Vec<HostRule>,
    refused: &Refused,
) -> Result<(AbortHandle, Vec<(OsString, OsString)>), SandboxError> {
    let runtime = tokio::runtime::Handle::try_current()
        .map_err(|_| SandboxError::Unavailable("a list of hosts needs a running tokio runtime".to_owned()))?;
    let served = proxy::serve(listener, rules.into(), refused.clone());
    Ok((runtime.spawn(served).abort_handle(), proxy_variables(port)))
}

/// What cannot be had, with what to do about it.
fn unavailable(why: &SandboxError) -> SandboxError {
    SandboxError::Unavailable(format!(
        "the kernel sandbox is not available: {why}. Allow user namespaces (sysctl user.max_user_namespaces, \
         kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or accept weaker means with \
         the setting `sandbox.accept = \"landlock\"`, or run without a sandbox with `--sandbox full`; \
         `windlass doctor` says what this kernel offers"
    ))
}

/// Whether the system says outright that it gives no namespaces. That it does not say so is no promise.
fn namespaces_are_off() -> bool {
    let number = |file: &str| std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<u64>().ok());
    number("/proc/sys/user/max_user_namespaces") == Some(0)
        || (number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) && !rustix::process::geteuid().is_root())
}

/// Nobody's proxy but ours leads out of a sandbox.
fn without_proxies(env: &[(OsString, OsString)], net: &NetPolicy) -> Vec<(OsString, OsString)> {
    let ends_in_proxy = |name: &OsString| name.to_string_lossy().to_ascii_lowercase().ends_with("_proxy");
    env.iter().filter(|(name, _)| *net == NetPolicy::Open || !ends_in_proxy(name)).cloned().collect()
}

fn proxy_variables(port: u16) -> Vec<(OsString, OsString)> {
    let address = format!("http://127.0.0.1:{port}");
    let mut variables = Vec::new();
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        variables.push((name.into(), address.clone().into()));
        variables.push((name.to_lowercase().into(), address.clone().into()));
    }
    for name in ["NO_PROXY", "no_proxy"] {
        variables.push((name.into(), "localhost,127.0.0.1,::1".into()));
    }
    variables
}
