//! The kernel sandbox of a session. It opens with the first command and closes with the session. It builds the view of
//! the file system from a plan, runs commands in it, runs the proxy if a list of hosts is allowed, and explains a
//! failure that the sandbox may have caused.

mod agent;
mod client_hello;
mod gitconfig;
mod gitdir;
mod hint;
pub mod names;
mod net;
mod plan;
mod private_env;
mod proxy;
mod scan;
mod terms;
mod tools;

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::task::AbortHandle;
pub use windlass_sandbox::Tier;
pub use windlass_sandbox::Tree;
use windlass_sandbox::{
    AGENT_HOME, AgentView, HelperExit, Listener, OpenedSandbox, REAP_TIMEOUT, SandboxSession, Spec,
    StartedHelper, Within,
};

pub use self::agent::{AgentPlan, HomeFile};
pub use self::net::{HostRule, NetPolicy};
pub use self::plan::SandboxPlan;
pub use self::terms::{not_held, tier_of};
pub use windlass_sandbox::{Access, Ended, Helper, Limits, SandboxError, Standard, TreeBorrower};

use self::proxy::{AllowedHosts, RefusedHosts};

/// A sandbox that opens when it is first needed.
#[derive(Debug)]
pub struct Sandbox {
    plan: SandboxPlan,
    helper: Helper,
    env: Vec<(OsString, OsString)>,
    tree: TreePlan,
    /// The home of a foreign agent, in runs that may have one.
    agent_home: Option<PathBuf>,
    make_copy: MakeCopy,
    /// The sandbox is for checks: commands reach the hosts of the checks' setup until [`Sandbox::end_setup`].
    for_checks: bool,
    state: Mutex<SandboxState>,
    /// The tier that this machine supports, shared by all sandboxes of the plan.
    found: Arc<OnceLock<Tier>>,
    /// Shared by all sandboxes of the plan.
    exiting: Arc<ExitingHelpers>,
}

/// Helpers of closed sandboxes, which exit beside other work. Dropping it waits for them.
#[derive(Debug, Default)]
struct ExitingHelpers(Mutex<Vec<HelperExit>>);

impl ExitingHelpers {
    fn add(&self, exit: HelperExit) {
        let mut all = self.0.lock();
        all.retain(|exit| !exit.is_over());
        all.push(exit);
    }
}

impl Drop for ExitingHelpers {
    fn drop(&mut self) {
        let until = Instant::now() + REAP_TIMEOUT;
        for exit in self.0.get_mut().drain(..) {
            exit.wait_within(until.saturating_duration_since(Instant::now()));
        }
    }
}

#[derive(Debug, Default)]
enum SandboxState {
    #[default]
    Closed,
    Open(Arc<OpenSandbox>),
    /// The sandbox could not be opened; it is not tried again in this session.
    Refused(SandboxError),
}

/// The directories that commands see at the path of the workspace, and at that of a git directory outside it.
#[derive(Debug, Clone, Default)]
pub struct TreePlan {
    /// `None` for the workspace itself.
    pub tree: Option<Tree>,
    /// The upper and work directories of a private overlay over the git directory outside the workspace.
    pub git: Option<(PathBuf, PathBuf)>,
}

/// A copy of the workspace for the commands of in-place runs, in tiers that cannot protect names in the workspace
/// itself.
pub trait CommandTree: std::fmt::Debug + Send + Sync {
    /// Returns the directory of the copy.
    fn path(&self) -> &Path;
    /// Copies later changes of the workspace into the copy, and reverts changes that were not merged.
    fn update(&self) -> Result<(), String>;
    /// Copies later changes of the workspace into the copy while programs work on it. Paths that the programs changed
    /// stay the same.
    fn refresh(&self) -> Result<(), String>;
    /// Writes the changes in the copy since the last update into the empty directory `upper`, in the layout of an
    /// overlay's upper directory. Returns the deleted paths, or `None` if nothing changed.
    fn take(&self, upper: &Path) -> Result<Option<BTreeSet<PathBuf>>, String>;
}

/// Copies the workspace at a path into a new directory of `parent`, without the hidden paths.
pub type MakeCopy =
    fn(root: &Path, hidden: Vec<PathBuf>, parent: &Path) -> Result<Arc<dyn CommandTree>, String>;

/// An opened sandbox; the path at which commands see the tree, if it is not the workspace's path; and the copy that
/// commands of in-place runs work on.
type EnteredSandbox = (OpenedSandbox, Option<PathBuf>, Option<Arc<dyn CommandTree>>);

/// A sandbox in which commands can be started. Dropping it stops its proxy.
#[derive(Debug)]
pub(crate) struct OpenSandbox {
    tree: Mutex<Option<OwnedFd>>,
    session: SandboxSession,
    env: Vec<(OsString, OsString)>,
    refused: RefusedHosts,
    hosts: AllowedHosts,
    proxy: Option<AbortHandle>,
    pub(crate) tier: Tier,
    workspace: PathBuf,
    /// The path at which commands see the tree, if it is not the workspace's path.
    tree_at: Option<PathBuf>,
    /// The copy that commands of in-place runs work on.
    copy: Option<Arc<dyn CommandTree>>,
    exit: Option<HelperExit>,
    exiting: Arc<ExitingHelpers>,
}

impl Drop for OpenSandbox {
    fn drop(&mut self) {
        if let Some(exit) = self.exit.take() {
            self.exiting.add(exit);
        }
        if let Some(proxy) = &self.proxy {
            proxy.abort();
        }
    }
}

impl Sandbox {
    /// Prepares a sandbox for commands with exactly this environment. For in-place runs the broker tier works on a copy
    /// of the workspace.
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
            exiting: Arc::default(),
        }
    }

    /// Returns another sandbox by the same plan, with another tree at the workspace's path. The changes of its commands
    /// stay in that tree, so that no name in it needs protection.
    #[must_use]
    pub fn with_tree(&self, tree: TreePlan) -> Self {
        let (plan, helper, env) = (self.plan.clone(), self.helper.clone(), self.env.clone());
        Self {
            tree,
            agent_home: self.agent_home.clone(),
            found: Arc::clone(&self.found),
            exiting: Arc::clone(&self.exiting),
            ..Self::new(plan, helper, env, self.make_copy)
        }
    }

    /// Returns another session by the same plan, without the files that commands left in `/tmp` or in a cache.
    #[must_use]
    pub fn fresh_session(&self) -> Self {
        self.with_tree(self.tree.clone())
    }

    /// Returns another sandbox by the same plan for the isolated runs of a session, in which the agent of the plan has
    /// its home. Returns `None` if the plan has no agent.
    pub fn for_agent(&self, session: &str) -> Result<Option<Self>, String> {
        let Some(agent) = &self.plan.agent else {
            return Ok(None);
        };
        Ok(Some(Self {
            agent_home: Some(agent.home(session)?),
            ..self.with_tree(self.tree.clone())
        }))
    }

    /// Returns the git directory outside the workspace that commands need.
    #[must_use]
    pub fn outside_git(&self) -> Option<PathBuf> {
        gitdir::outside(&self.plan.root)
    }

    /// Returns a handle of the tree at the workspace's path. Only the first call returns it.
    pub fn take_tree(&self) -> Result<Option<OwnedFd>, SandboxError> {
        let inside = self.inside()?;
        let mut tree = inside.tree.lock();
        Ok(tree.take())
    }

    /// Lets commands reach the hosts of the checks' setup, until [`Sandbox::end_setup`].
    #[must_use]
    pub fn for_checks(mut self) -> Self {
        if self.plan.net != NetPolicy::Open && !self.plan.setup_hosts.is_empty() {
            let hosts = [self.own_hosts(), self.plan.setup_hosts.clone()].concat();
            self.for_checks = true;
            self.plan.net = NetPolicy::Hosts(hosts);
        }
        self
    }

    /// Ends the setup of checks: from now on commands reach only the hosts of the plan.
    pub fn end_setup(&self) {
        if let (true, SandboxState::Open(inside)) = (self.for_checks, &*self.state.lock()) {
            inside.hosts.set(self.own_hosts());
        }
    }

    /// Returns the hosts of the plan, without those of the setup.
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

    /// Returns whether the sandbox has to open before the run starts: the user demanded it, or the tier is unknown
    /// without a trial.
    #[must_use]
    pub fn opens_first(&self) -> bool {
        self.plan.demanded
            || self.plan.accept_landlock
            || self.plan.require.is_some()
            || terms::namespaces_may_be_refused()
    }

    /// Returns the tier that this machine supports for the plan, found by trial. All sandboxes of the plan share the
    /// result.
    pub fn tier(&self) -> Result<Tier, SandboxError> {
        if let Some(tier) = self.known_tier() {
            return Ok(tier);
        }
        let (tier, ()) = self.first_available(Tier::Namespaces, |tier| self.try_bare(tier))?;
        Ok(*self.found.get_or_init(|| tier))
    }

    /// Opens and closes an empty sandbox of a tier.
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
        SandboxSession::open(&self.helper, &bare).map(OpenedSandbox::close)
    }

    fn known_tier(&self) -> Option<Tier> {
        self.found.get().copied()
    }

    /// Tries the tiers from `from` downwards. Returns the first one that is available, and the result of its attempt.
    fn first_available<T>(
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

    /// Returns the paths of the workspace that commands must not read, relative to the workspace.
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

    /// Returns the path at which commands see the tree, if it is not the workspace's path.
    pub fn path_of_tree(&self) -> Result<Option<PathBuf>, SandboxError> {
        Ok(self.inside()?.tree_at.clone())
    }

    /// Returns the copy that commands of in-place runs work on, in tiers that cannot protect names in the workspace.
    pub fn working_copy(&self) -> Result<Option<Arc<dyn CommandTree>>, SandboxError> {
        Ok(self.inside()?.copy.clone())
    }

    /// Returns the directory for the layers of single commands.
    #[must_use]
    pub fn command_layers(&self) -> std::path::PathBuf {
        self.plan.command_layers()
    }

    /// Opens the sandbox now, to find out whether it is available.
    pub fn open(&self) -> Result<(), SandboxError> {
        self.inside().map(drop)
    }

    /// Runs a program with the given standard streams until it exits.
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

    /// Returns the hosts that commands were refused since the last call.
    #[must_use]
    pub fn take_refused(&self) -> Vec<String> {
        match &*self.state.lock() {
            SandboxState::Open(inside) => inside.refused.take(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn inside(&self) -> Result<Arc<OpenSandbox>, SandboxError> {
        let mut state = self.state.lock();
        match &*state {
            SandboxState::Open(inside) => return Ok(Arc::clone(inside)),
            SandboxState::Refused(why) => return Err(why.clone()),
            SandboxState::Closed => {}
        }
        match self.enter() {
            Ok(inside) => {
                let inside = Arc::new(inside);
                *state = SandboxState::Open(Arc::clone(&inside));
                Ok(inside)
            }
            Err(why) => {
                *state = SandboxState::Refused(why.clone());
                Err(why)
            }
        }
    }

    fn enter(&self) -> Result<OpenSandbox, SandboxError> {
        let from = self.known_tier().unwrap_or(Tier::Namespaces);
        let layered = matches!(self.tree.tree, Some(Tree::Layered { .. }));
        let (tier, (opened, tree_at, copy)) = self.first_available(from, |tier| match tier {
            Tier::Namespaces => {
                // The program of the helper loads while the specification is made.
                let opened = StartedHelper::spawn(&self.helper).and_then(|helper| {
                    SandboxSession::open_in(helper, &self.spec(tier, &self.tree))
                });
                // Without namespaces no overlay can be mounted at the workspace's path; the caller may use a copy
                // instead.
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
                "it cannot keep commands out of your tree".to_owned(),
            )),
            Tier::Landlock => Ok((
                SandboxSession::open(&self.helper, &self.spec(tier, &self.tree))?,
                None,
                None,
            )),
        })?;
        let _ = self.found.set(tier);
        let OpenedSandbox {
            session,
            listener,
            tree,
            exit,
        } = opened;
        let refused = RefusedHosts::default();
        let mut env = without_proxies(&self.env, &self.plan.net);
        if tier == Tier::Broker {
            env = private_env::of_commands(env, self.plan.home.as_deref());
        }
        let (mut proxy, hosts) = (None, AllowedHosts::default());
        if let (NetPolicy::Hosts(rules), Some(listener)) = (&self.plan.net, listener) {
            hosts.set(rules.clone());
            let (task, variables) = start_proxy(listener, &hosts, &refused)?;
            proxy = Some(task);
            env.extend(variables);
        }
        env.extend(self.usual_variables());
        let workspace = self.plan.root.clone();
        Ok(OpenSandbox {
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
            exit: Some(exit),
            exiting: Arc::clone(&self.exiting),
        })
    }

    /// Opens a sandbox without namespaces, in which commands work on a copy with its own path. For in-place runs the
    /// copy is made here, unless commands only read and no path is hidden from them.
    fn enter_with_broker(&self) -> Result<EnteredSandbox, SandboxError> {
        let open = |tree: Tree| {
            let plan = TreePlan {
                tree: Some(tree),
                git: self.tree.git.clone(),
            };
            SandboxSession::open(&self.helper, &self.spec(Tier::Broker, &plan))
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
            return Ok((SandboxSession::open(&self.helper, &itself)?, None, None));
        }
        let unavailable = |why: String| {
            SandboxError::Unavailable(format!("commands need a copy of the workspace: {why}"))
        };
        let copy = (self.make_copy)(&self.plan.root, hidden, &self.plan.copies());
        let copy = copy.map_err(unavailable)?;
        let at = copy.path().to_owned();
        Ok((open(Tree::Copy { from: at.clone() })?, Some(at), Some(copy)))
    }

    /// Returns the variables in the environment of every program.
    fn usual_variables(&self) -> Vec<(OsString, OsString)> {
        let mut env = vec![("TMPDIR".into(), "/tmp".into())];
        env.extend(gitconfig::variables(self.plan.home.as_deref()));
        // Our own programs recognize by it that a command started them, and not a person.
        env.push((crate::exec::MARK.into(), "sandbox".into()));
        env
    }

    /// Creates the enclosure of the plan's agent in an open sandbox. Returns `None` if the run has no agent.
    pub(crate) async fn enclose(
        &self,
        inside: &OpenSandbox,
    ) -> Option<Result<EnclosureSetup, SandboxError>> {
        let (agent, home) = self.plan.agent.as_ref().zip(self.agent_home.clone())?;
        Some(self.enclose_agent(agent, home, inside).await)
    }

    async fn enclose_agent(
        &self,
        agent: &AgentPlan,
        home: PathBuf,
        inside: &OpenSandbox,
    ) -> Result<EnclosureSetup, SandboxError> {
        let rules = agent.rules(&self.plan.net);
        // With an open network, the agent needs no proxy. Otherwise it always gets one, even without allowed hosts:
        // without a proxy, programs wait many seconds for names that are not resolved, and refused hosts are not
        // recorded.
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
        let refused = RefusedHosts::default();
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
            let (task, variables) = start_proxy(listener, &hosts, &refused)?;
            proxy = Some(task);
            env.extend(variables);
        }
        let files = agent
            .home_files
            .iter()
            .map(|file| file.to.clone())
            .collect();
        let (endpoint, limits) = (listeners.pop(), self.plan.limits);
        Ok(EnclosureSetup {
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

    /// Returns notes about the sandbox's part in the end of a command.
    pub(crate) fn notes(
        &self,
        inside: &OpenSandbox,
        ended: Option<Ended>,
        output: &str,
        failed: bool,
    ) -> SandboxNotes {
        let refused = inside.refused.take();
        let hit = ended.map(|ended| limits_hit(&self.plan.limits, ended));
        let hit = hit.into_iter().flatten();
        let mut text: Vec<String> = hit
            .map(|limit| format!("the command was stopped because it reached {limit}"))
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
        SandboxNotes { text, refused }
    }
}

/// The parts of an agent's enclosure in an open sandbox. It does not keep the sandbox open. Dropping it removes the
/// symlinks to the user's files and stops the proxy.
#[derive(Debug)]
pub(crate) struct EnclosureSetup {
    pub(crate) place: AgentView,
    /// The path of the home on the host.
    pub(crate) outer_home: PathBuf,
    /// The path of the home in the agent's view.
    pub(crate) home: PathBuf,
    /// Symlinks in the home to files of the user, removed on drop.
    links: Vec<PathBuf>,
    /// Files in the home that belong to the user.
    pub(crate) files: Vec<String>,
    /// The listener for the agent's model requests.
    pub(crate) endpoint: Option<Listener>,
    /// The environment of the agent's programs.
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) limits: Limits,
    refused: RefusedHosts,
    proxy: Option<AbortHandle>,
}

impl EnclosureSetup {
    /// Returns the hosts that the agent was refused since the last call.
    pub(crate) fn take_refused(&self) -> Vec<String> {
        self.refused.take()
    }
}

impl Drop for EnclosureSetup {
    fn drop(&mut self) {
        for link in self.links.iter().filter(|link| link.is_symlink()) {
            let _ = std::fs::remove_file(link);
        }
        if let Some(proxy) = &self.proxy {
            proxy.abort();
        }
    }
}

/// Notes of a sandbox about one command.
#[derive(Debug, Default)]
pub(crate) struct SandboxNotes {
    pub(crate) text: Vec<String>,
    pub(crate) refused: Vec<String>,
}

impl OpenSandbox {
    /// Returns a directory of the workspace as commands see it.
    fn seen_at(&self, dir: &Path) -> PathBuf {
        match (&self.tree_at, dir.strip_prefix(&self.workspace)) {
            (Some(tree), Ok(below)) => tree.join(below),
            _ => dir.to_owned(),
        }
    }

    /// Starts a command; see [`SandboxSession::start`]. Without `env` it has the environment of the session's commands.
    pub(crate) fn start<'a>(
        &self,
        argv: &[OsString],
        env: Option<&[(OsString, OsString)]>,
        dir: &Path,
        within: impl Into<Within<'a>>,
        standard: Standard,
        done: impl FnOnce(Result<Ended, SandboxError>) + Send + 'static,
    ) -> Result<windlass_sandbox::SandboxedChild, SandboxError> {
        let env = env.unwrap_or(&self.env);
        self.session
            .start(argv, env, &self.seen_at(dir), within, standard, done)
    }
}

/// Returns the limits that a program reached, each with the setting that raises it.
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

/// Starts a proxy for a list of hosts at a listener. Returns its task, and the variables that point to it.
fn start_proxy(
    (port, listener): Listener,
    hosts: &AllowedHosts,
    refused: &RefusedHosts,
) -> Result<(AbortHandle, Vec<(OsString, OsString)>), SandboxError> {
    let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
        SandboxError::Unavailable("a list of hosts needs a running tokio runtime".to_owned())
    })?;
    let served = proxy::serve(listener, hosts.clone(), refused.clone());
    Ok((runtime.spawn(served).abort_handle(), proxy_variables(port)))
}

/// Returns the error for a machine without a usable tier, with advice.
fn unavailable(reasons: &[String], required: Option<Tier>) -> SandboxError {
    let required = match required {
        Some(least) => format!(
            " (`sandbox.require` asks for {})",
            terms::tier_of(least).word()
        ),
        None => String::new(),
    };
    SandboxError::Unavailable(format!(
        "no kernel sandbox is available{required}: {}; `windlass doctor` explains the fix for this machine. To continue without \
         it: accept Landlock alone with the setting `sandbox.accept = \"landlock\"`, or use `--sandbox full --in-place`",
        reasons.join("; ")
    ))
}

/// Removes proxy variables: only the sandbox's own proxy leads out of it.
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
