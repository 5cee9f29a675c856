//! The kernel sandbox of a session: opened with the first command, gone with the session. It turns a plan into a view,
//! runs commands in it, is their way out where hosts are allowed, and says what it had to do with a failure.

mod agent;
mod client_hello;
mod gitconfig;
mod gitdir;
mod hint;
mod look;
pub mod names;
mod net;
mod plan;
mod private_env;
mod proxy;
mod terms;
mod tools;

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tokio::task::AbortHandle;
pub use windlass_sandbox::Tier;
pub use windlass_sandbox::Tree;
use windlass_sandbox::{AGENT_HOME, Listener, Opened, Place, Session, Spec, Within};

pub use self::agent::{AgentPlan, HomeFile};
pub use self::net::{HostRule, NetPolicy};
pub use self::plan::SandboxPlan;
pub use self::terms::{not_held, tier_of};
pub use windlass_sandbox::{Access, Ended, Helper, Limits, SandboxError, Standard, TreeBorrower};

use self::proxy::{AllowedHosts, Refused};

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
    make_copy: MakeCopy,
    /// It is for checks: the hosts of their set-up are reached until that has ended.
    for_checks: bool,
    state: Mutex<State>,
    /// The tier that was found on this machine.
    found: Arc<OnceLock<Tier>>,
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
pub struct TreePlan {
    /// The workspace itself when absent.
    pub tree: Option<Tree>,
    /// The upper and the working directory of a private layer over the git directory outside.
    pub git: Option<(PathBuf, PathBuf)>,
}

/// A copy of the workspace that commands in place work on, where no view can protect names in the workspace itself.
pub trait CommandTree: std::fmt::Debug + Send + Sync {
    /// The directory of the copy.
    fn path(&self) -> &Path;
    /// Brings later changes of the workspace into the copy, and reverts what was not merged.
    fn update(&self) -> Result<(), String>;
    /// Brings later changes of the workspace into the copy while programs work on it. Paths that they changed stay as
    /// they are.
    fn refresh(&self) -> Result<(), String>;
    /// Lays out what changed in the copy since the last update like the upper directory of an overlay, in an empty
    /// directory, and gives the deleted paths; `None` where nothing changed.
    fn take(&self, upper: &Path) -> Result<Option<BTreeSet<PathBuf>>, String>;
}

/// Copies the workspace at a path into a new folder of `parent`, without the hidden paths.
pub type MakeCopy =
    fn(root: &Path, hidden: Vec<PathBuf>, parent: &Path) -> Result<Arc<dyn CommandTree>, String>;

/// A sandbox that was opened, where commands see the tree if not at the workspace's path, and the copy that commands in
/// place work on.
type Entered = (Opened, Option<PathBuf>, Option<Arc<dyn CommandTree>>);

/// An open sandbox.
#[derive(Debug)]
pub(crate) struct Inside {
    tree: Mutex<Option<OwnedFd>>,
    session: Session,
    env: Vec<(OsString, OsString)>,
    refused: Refused,
    hosts: AllowedHosts,
    proxy: Option<AbortHandle>,
    /// By which means commands are held.
    pub(crate) tier: Tier,
    workspace: PathBuf,
    /// Where commands see the tree, if not at the workspace's path.
    tree_at: Option<PathBuf>,
    /// The copy that commands in place work on.
    copy: Option<Arc<dyn CommandTree>>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(proxy) = &self.proxy {
            proxy.abort();
        }
    }
}

impl Sandbox {
    /// A sandbox for commands with exactly this environment. In place the broker tier works on a copy of the workspace.
    #[must_use]
    pub fn new(
        plan: SandboxPlan,
        helper: Helper,
        env: Vec<(OsString, OsString)>,
        make_copy: MakeCopy,
    ) -> Self {
        Self {
            plan,
            helper,
            env,
            tree: TreePlan::default(),
            agent_home: None,
            make_copy,
            for_checks: false,
            state: Mutex::default(),
            found: Arc::default(),
        }
    }

    /// Another one by the same plan, with another tree at the workspace's path. Whatever its commands change stays in
    /// that tree, so that no name in it needs protection.
    #[must_use]
    pub fn over(&self, tree: TreePlan) -> Self {
        let (plan, helper, env) = (self.plan.clone(), self.helper.clone(), self.env.clone());
        Self {
            tree,
            agent_home: self.agent_home.clone(),
            found: Arc::clone(&self.found),
            ..Self::new(plan, helper, env, self.make_copy)
        }
    }

    /// Another session by the same plan: nothing that a command left in `/tmp` or in a cache is there.
    #[must_use]
    pub fn anew(&self) -> Self {
        self.over(self.tree.clone())
    }

    /// Another one by the same plan for the isolated runs of a session, in which the agent of the plan has its home;
    /// none where there is no agent.
    pub fn lodging(&self, session: &str) -> Result<Option<Self>, String> {
        let Some(agent) = &self.plan.agent else {
            return Ok(None);
        };
        Ok(Some(Self {
            agent_home: Some(agent.home(session)?),
            ..self.over(self.tree.clone())
        }))
    }

    /// The git directory outside the workspace that commands need.
    #[must_use]
    pub fn outside_git(&self) -> Option<PathBuf> {
        gitdir::outside(&self.plan.root)
    }

    /// A handle of the tree that stands at the workspace's path, once.
    pub fn take_tree(&self) -> Result<Option<OwnedFd>, SandboxError> {
        let inside = self.inside()?;
        let mut tree = inside.tree.lock();
        Ok(tree.take())
    }

    /// The same for checks: the hosts of their set-up are reached until it has ended.
    #[must_use]
    pub fn for_checks(mut self) -> Self {
        if self.plan.net != NetPolicy::Open && !self.plan.setup_hosts.is_empty() {
            let hosts = [self.own_hosts(), self.plan.setup_hosts.clone()].concat();
            self.for_checks = true;
            self.plan.net = NetPolicy::Hosts(hosts);
        }
        self
    }

    /// The set-up has ended: commands reach only what the plan lets them reach.
    pub fn end_setup(&self) {
        if let (true, State::Open(inside)) = (self.for_checks, &*self.state.lock()) {
            inside.hosts.set(self.own_hosts());
        }
    }

    /// The hosts of the plan, without those of the set-up.
    fn own_hosts(&self) -> Vec<HostRule> {
        let NetPolicy::Hosts(rules) = &self.plan.net else {
            return Vec::new();
        };
        let own = match self.for_checks {
            true => rules.len() - self.plan.setup_hosts.len(),
            false => rules.len(),
        };
        rules[..own].to_vec()
    }

    /// Whether it has to be opened before anything else happens: it was asked for, or the tier is not known without
    /// trying.
    #[must_use]
    pub fn opens_first(&self) -> bool {
        self.plan.demanded
            || self.plan.accept_landlock
            || self.plan.require.is_some()
            || terms::namespaces_may_be_refused()
    }

    /// The tier that this machine has for the plan, found by trying. Known once for all sandboxes by this plan.
    pub fn tier(&self) -> Result<Tier, SandboxError> {
        if let Some(tier) = self.known_tier() {
            return Ok(tier);
        }
        let (tier, ()) = self.first_of(Tier::Namespaces, |tier| self.try_bare(tier))?;
        Ok(*self.found.get_or_init(|| tier))
    }

    /// Opens a sandbox of a tier with nothing in it, and closes it.
    fn try_bare(&self, tier: Tier) -> Result<(), SandboxError> {
        let (protect, hide, read, caches) = Default::default();
        let bare = Spec {
            access: Access::ReadOnly,
            protect,
            hide,
            read,
            caches,
            journal: None,
            ..self.spec(tier, &TreePlan::default())
        };
        Session::open(&self.helper, &bare).map(drop)
    }

    fn known_tier(&self) -> Option<Tier> {
        self.found.get().copied()
    }

    /// The strongest tier that can be had, from one on, with what it was opened as.
    fn first_of<T>(
        &self,
        from: Tier,
        attempt: impl Fn(Tier) -> Result<T, SandboxError>,
    ) -> Result<(Tier, T), SandboxError> {
        let least = match (self.plan.require, self.plan.accept_landlock) {
            (Some(least), _) => least,
            (None, true) => Tier::Landlock,
            (None, false) => Tier::Broker,
        };
        let mut reasons = Vec::new();
        for tier in [Tier::Namespaces, Tier::Broker, Tier::Landlock] {
            if tier > from || tier < least {
                continue;
            }
            match attempt(tier) {
                Ok(opened) => return Ok((tier, opened)),
                Err(why @ (SandboxError::NoLayers(_) | SandboxError::Invalid(_))) => {
                    return Err(why);
                }
                Err(why) => reasons.push(format!("{}: {why}", terms::tier_of(tier).word())),
            }
        }
        Err(unavailable(&reasons, self.plan.require))
    }

    fn spec(&self, tier: Tier, tree: &TreePlan) -> Spec {
        self.plan
            .spec(&self.env, tier, tree, self.agent_home.as_deref())
    }

    /// Paths of the workspace that commands must not read, relative to it.
    #[must_use]
    pub fn hidden_in_workspace(&self) -> Vec<PathBuf> {
        let root = &self.plan.root;
        let hide = self.spec(Tier::Broker, &TreePlan::default()).hide;
        let below = hide
            .iter()
            .filter_map(|path| path.strip_prefix(root).ok())
            .map(Path::to_path_buf);
        below.filter(|path| !path.as_os_str().is_empty()).collect()
    }

    /// The path at which commands see the tree, where that is not the workspace's own.
    pub fn path_of_tree(&self) -> Result<Option<PathBuf>, SandboxError> {
        Ok(self.inside()?.tree_at.clone())
    }

    /// The copy that commands in place work on, where there is no view that could protect names in the workspace.
    pub fn working_copy(&self) -> Result<Option<Arc<dyn CommandTree>>, SandboxError> {
        Ok(self.inside()?.copy.clone())
    }

    /// Where the layers of single commands are made.
    #[must_use]
    pub fn command_layers(&self) -> std::path::PathBuf {
        self.plan.command_layers()
    }

    /// Opens it now, to know whether it can be had.
    pub fn open(&self) -> Result<(), SandboxError> {
        self.inside().map(drop)
    }

    /// Runs a program to its end with the handles it is given.
    pub async fn run(
        &self,
        argv: &[OsString],
        dir: &Path,
        standard: Standard,
    ) -> Result<Ended, SandboxError> {
        let inside = self.inside()?;
        let (done, ended) = tokio::sync::oneshot::channel();
        let child = inside.start(argv, None, dir, Access::Write, standard, move |result| {
            drop(done.send(result))
        })?;
        let ended = ended
            .await
            .unwrap_or_else(|_| Err(SandboxError::Gone("its helper process exited".to_owned())));
        drop(child);
        ended
    }

    /// Hosts that commands were not allowed to reach since somebody last asked.
    #[must_use]
    pub fn take_refused(&self) -> Vec<String> {
        match &*self.state.lock() {
            State::Open(inside) => inside.refused.take(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn inside(&self) -> Result<Arc<Inside>, SandboxError> {
        let mut state = self.state.lock();
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
        let from = self.known_tier().unwrap_or(Tier::Namespaces);
        let layered = matches!(self.tree.tree, Some(Tree::Layered { .. }));
        let (tier, (opened, tree_at, copy)) = self.first_of(from, |tier| match tier {
            Tier::Namespaces => {
                let opened = Session::open(&self.helper, &self.spec(tier, &self.tree));
                // Without a view of its own no layer can stand at the workspace's path, but a copy can be worked on.
                let opened = opened.map_err(|why| match why {
                    SandboxError::Unavailable(why) if layered => SandboxError::NoLayers(why),
                    other => other,
                });
                Ok((opened?, None, None))
            }
            Tier::Broker if layered => Err(SandboxError::NoLayers(
                windlass_sandbox::NO_LAYERS.to_owned(),
            )),
            Tier::Broker => self.enter_with_broker(),
            Tier::Landlock if self.tree.tree.is_some() => Err(SandboxError::Unavailable(
                "it cannot keep commands from your tree".to_owned(),
            )),
            Tier::Landlock => Ok((
                Session::open(&self.helper, &self.spec(tier, &self.tree))?,
                None,
                None,
            )),
        })?;
        let _ = self.found.set(tier);
        let Opened {
            session,
            listener,
            tree,
        } = opened;
        let refused = Refused::default();
        let mut env = without_proxies(&self.env, &self.plan.net);
        if tier == Tier::Broker {
            env = private_env::of_commands(env, self.plan.home.as_deref());
        }
        let (mut proxy, hosts) = (None, AllowedHosts::default());
        if let (NetPolicy::Hosts(rules), Some(listener)) = (&self.plan.net, listener) {
            hosts.set(rules.clone());
            let (task, variables) = way_out(listener, &hosts, &refused)?;
            proxy = Some(task);
            env.extend(variables);
        }
        env.extend(self.usual_variables());
        let workspace = self.plan.root.clone();
        Ok(Inside {
            tree: Mutex::new(tree),
            session,
            env,
            refused,
            hosts,
            proxy,
            tier,
            workspace,
            tree_at,
            copy,
        })
    }

    /// Without namespaces commands work on a copy, at a path of its own. In place it is made here, unless commands only
    /// read and nothing is hidden from them.
    fn enter_with_broker(&self) -> Result<Entered, SandboxError> {
        let open = |tree: Tree| {
            let plan = TreePlan {
                tree: Some(tree),
                git: self.tree.git.clone(),
            };
            Session::open(&self.helper, &self.spec(Tier::Broker, &plan))
        };
        if let Some(tree) = &self.tree.tree {
            let at = if let Tree::Copy { from } = tree {
                Some(from.clone())
            } else {
                None
            };
            return Ok((open(tree.clone())?, at, None));
        }
        let (hidden, itself) = (
            self.hidden_in_workspace(),
            self.spec(Tier::Broker, &self.tree),
        );
        if hidden.is_empty() && (self.plan.access == Access::ReadOnly || itself.protect.is_empty())
        {
            return Ok((Session::open(&self.helper, &itself)?, None, None));
        }
        let unavailable = |why: String| {
            SandboxError::Unavailable(format!("commands need a copy of the workspace: {why}"))
        };
        let copy = (self.make_copy)(&self.plan.root, hidden, &self.plan.copies());
        let copy = copy.map_err(unavailable)?;
        let at = copy.path().to_owned();
        Ok((open(Tree::Copy { from: at.clone() })?, Some(at), Some(copy)))
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

    async fn lodge_agent(
        &self,
        agent: &AgentPlan,
        home: PathBuf,
        inside: &Inside,
    ) -> Result<Lodging, SandboxError> {
        let rules = agent.rules(&self.plan.net);
        // With the machine's own network there is nothing that only the agent could reach. With any other there is a
        // way out even where it leads nowhere: without one, programs wait long seconds for names that nobody resolves,
        // and nobody hears whom they wanted to reach.
        let listeners = if self.plan.net == NetPolicy::Open {
            0
        } else {
            2
        };
        let (done, made) = tokio::sync::oneshot::channel();
        inside
            .session
            .enclose(listeners, move |result| drop(done.send(result)))?;
        let made = made
            .await
            .unwrap_or_else(|_| Err(SandboxError::Gone("its helper process exited".to_owned())));
        let (place, mut listeners) = made?;
        let refused = Refused::default();
        let seen_home = if inside.tier == Tier::Namespaces {
            PathBuf::from(AGENT_HOME)
        } else {
            home.clone()
        };
        let mut env = agent::environment(&self.env, self.plan.home.as_deref(), &seen_home);
        let mut links = Vec::new();
        if inside.tier == Tier::Broker {
            env = private_env::with_private_caches(env);
            links = agent.link_files(&home).map_err(SandboxError::Unavailable)?;
        }
        env.extend(self.usual_variables());
        agent.search_first(&mut env);
        let mut proxy = None;
        if let Some(listener) = listeners.pop() {
            let hosts = AllowedHosts::default();
            hosts.set(rules);
            let (task, variables) = way_out(listener, &hosts, &refused)?;
            proxy = Some(task);
            env.extend(variables);
        }
        let files = agent
            .home_files
            .iter()
            .map(|file| file.to.clone())
            .collect();
        let (endpoint, limits) = (listeners.pop(), self.plan.limits);
        Ok(Lodging {
            place,
            outer_home: home,
            home: seen_home,
            links,
            files,
            endpoint,
            env,
            refused,
            proxy,
            limits,
        })
    }

    /// What the sandbox has to say about a command that ended.
    pub(crate) fn remarks(
        &self,
        inside: &Inside,
        ended: Option<Ended>,
        output: &str,
        failed: bool,
    ) -> Remarks {
        let refused = inside.refused.take();
        let hit = ended.map(|ended| limits_hit(&self.plan.limits, ended));
        let hit = hit.into_iter().flatten();
        let mut text: Vec<String> = hit
            .map(|limit| format!("it was ended at {limit}"))
            .collect();
        if failed || !refused.is_empty() {
            text.extend(hint::hint(
                output,
                self.plan.access,
                &self.plan.net,
                &refused,
                inside.tier,
            ));
        }
        Remarks { text, refused }
    }
}

/// The place of an agent in an open sandbox. It does not keep the sandbox.
#[derive(Debug)]
pub(crate) struct Lodging {
    pub(crate) place: Place,
    /// Its home as it is outside of the view.
    pub(crate) outer_home: PathBuf,
    /// Its home as it sees it.
    pub(crate) home: PathBuf,
    /// Links in the home to files of the person's, which go with the place.
    links: Vec<PathBuf>,
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
    /// Hosts that were refused since somebody last looked.
    pub(crate) fn take_refused(&self) -> Vec<String> {
        self.refused.take()
    }
}

impl Drop for Lodging {
    fn drop(&mut self) {
        for link in self.links.iter().filter(|link| link.is_symlink()) {
            let _ = std::fs::remove_file(link);
        }
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
    /// A directory of the workspace as commands see it.
    fn seen_at(&self, dir: &Path) -> PathBuf {
        match (&self.tree_at, dir.strip_prefix(&self.workspace)) {
            (Some(tree), Ok(below)) => tree.join(below),
            _ => dir.to_owned(),
        }
    }

    /// Starts a command; see [`Session::start`]. `env` is the environment of the session's commands without one.
    pub(crate) fn start<'a>(
        &self,
        argv: &[OsString],
        env: Option<&[(OsString, OsString)]>,
        dir: &Path,
        within: impl Into<Within<'a>>,
        standard: Standard,
        done: impl FnOnce(Result<Ended, SandboxError>) + Send + 'static,
    ) -> Result<windlass_sandbox::Child, SandboxError> {
        let env = env.unwrap_or(&self.env);
        self.session
            .start(argv, env, &self.seen_at(dir), within, standard, done)
    }
}

/// The limits that a program ran into, each with the setting that raises it.
pub(crate) fn limits_hit(limits: &Limits, ended: Ended) -> impl Iterator<Item = String> {
    let (processes, memory) = (limits.processes, limits.memory >> 20);
    let hit = ended.limits;
    let processes = hit
        .processes
        .then(|| format!("the limit of {processes} processes (setting `sandbox.processes`)"));
    let memory = hit
        .memory
        .then(|| format!("the limit of {memory} MiB of memory (setting `sandbox.memory_mb`)"));
    processes.into_iter().chain(memory)
}

/// Serves a list of hosts at a listener; gives the task and the variables that lead there.
fn way_out(
    (port, listener): Listener,
    hosts: &AllowedHosts,
    refused: &Refused,
) -> Result<(AbortHandle, Vec<(OsString, OsString)>), SandboxError> {
    let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
        SandboxError::Unavailable("a list of hosts needs a running tokio runtime".to_owned())
    })?;
    let served = proxy::serve(listener, hosts.clone(), refused.clone());
    Ok((runtime.spawn(served).abort_handle(), proxy_variables(port)))
}

/// Why no tier can be had, with what to do about it.
fn unavailable(reasons: &[String], required: Option<Tier>) -> SandboxError {
    let required = match required {
        Some(least) => format!(
            " (`sandbox.require` asks for {})",
            terms::tier_of(least).word()
        ),
        None => String::new(),
    };
    SandboxError::Unavailable(format!(
        "no kernel sandbox is available{required}: {}; `windlass doctor` says what to do on this machine. To go on without \
         it: accept Landlock alone with the setting `sandbox.accept = \"landlock\"`, or use `--sandbox full --in-place`",
        reasons.join("; ")
    ))
}

/// Nobody's proxy but ours leads out of a sandbox.
fn without_proxies(env: &[(OsString, OsString)], net: &NetPolicy) -> Vec<(OsString, OsString)> {
    let ends_in_proxy = |name: &OsString| {
        name.to_string_lossy()
            .to_ascii_lowercase()
            .ends_with("_proxy")
    };
    env.iter()
        .filter(|(name, _)| *net == NetPolicy::Open || !ends_in_proxy(name))
        .cloned()
        .collect()
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
