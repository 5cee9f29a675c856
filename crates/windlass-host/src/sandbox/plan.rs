//! Translates the user's wishes into the sandbox specification: the paths that are visible, layered, hidden and
//! protected for one workspace. This module inspects the machine, and changes nothing but its own directories.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use windlass_core::gate::is_credential;
use windlass_sandbox::{Access, Limits, Net, OverlayDir, Spec, Tier, Tree};

use super::scan::{self, TreeScan};
use super::tools::TOOL_VARIABLES;
use super::{AgentPlan, HostRule, NetPolicy, TreePlan, gitdir, names};

/// The user's settings for the sandbox.
#[derive(Debug, Clone, Default)]
pub struct SandboxPlan {
    /// An absolute path without symlinks.
    pub root: PathBuf,
    pub home: Option<PathBuf>,
    /// Directories of our own sessions and settings, which commands never see.
    pub own: Vec<PathBuf>,
    /// The directory in which the sandbox may store its own files.
    pub data_dir: PathBuf,
    pub access: Access,
    pub net: NetPolicy,
    /// Additional hosts for the setup of checks.
    pub setup_hosts: Vec<HostRule>,
    /// Additional paths that commands may read; a credential that is listed here is not hidden.
    pub read: Vec<PathBuf>,
    /// Additional paths that commands may change.
    pub write: Vec<PathBuf>,
    /// Globs of paths in the workspace that commands must not read.
    pub hidden: Vec<String>,
    pub limits: Limits,
    /// Whether Landlock alone is acceptable if no stronger tier is available.
    pub accept_landlock: bool,
    /// The weakest acceptable tier. `None` accepts each tier that confines files, processes and network.
    pub require: Option<Tier>,
    /// The access of a foreign agent; used in isolated runs only.
    pub agent: Option<AgentPlan>,
    /// The user demanded a sandbox: it opens before the first token, or the run is refused.
    pub demanded: bool,
}

impl SandboxPlan {
    /// Returns the directory for the layers of single commands.
    pub(super) fn command_layers(&self) -> PathBuf {
        self.data_dir.join("boxes").join("layers")
    }

    /// Returns the directory for the copies that commands of in-place runs work on.
    pub(super) fn copies(&self) -> PathBuf {
        self.data_dir.join("boxes").join("copies")
    }

    /// Builds the specification for the environment of the commands, the tree at the workspace's path, and the home of
    /// an agent if there is one.
    pub(super) fn spec(
        &self,
        env: &[(OsString, OsString)],
        tier: Tier,
        plan: &TreePlan,
        agent: Option<&Path>,
    ) -> Spec {
        // The kernel denies these files to all users except root. The walk visits about a thousand files, so it runs in
        // parallel with the rest of this function.
        let walk = || unreadable_by_others(Path::new("/etc"));
        let is_root = rustix::process::geteuid().is_root();
        let walking = is_root.then(|| std::thread::Builder::new().spawn(walk));
        let home = self.real_home();
        let mut shown = self.shown(home.as_deref(), env);
        let agent = self.agent.as_ref().zip(agent);
        for program in agent.iter().flat_map(|(agent, _)| &agent.read) {
            shown.add_read(program);
        }
        let git = gitdir::outside(&self.root);
        let mut write: Vec<PathBuf> = self
            .write
            .iter()
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        let found = TreeScan::WORKSPACE.run(&self.root, &self.hidden);
        let tree = plan.tree.clone().unwrap_or(Tree::Itself);
        let (mut protect, mut layers) = (Vec::new(), Vec::new());
        if tree == Tree::Itself {
            protect = names::of_workspace(&self.root, &found.repositories);
            protect.extend(git.iter().flat_map(|git| names::of_git(git, Path::new(""))));
            match tier {
                // This tier cannot protect the settings and hooks in it.
                Tier::Broker => shown.read.extend(git),
                Tier::Namespaces | Tier::Landlock => write.extend(git),
            }
        } else if let (Some(at), Some((upper, work))) = (git, plan.git.clone()) {
            layers.push(OverlayDir { at, upper, work });
        }
        let mut secrets = found.secrets;
        if let Some(thread) = walking {
            let walked = thread.ok().and_then(|thread| thread.join().ok());
            secrets.extend(walked.unwrap_or_else(walk));
        }
        let boxes = self.data_dir.join("boxes");
        // All sandboxes in one workspace share the list of placeholders, including those of other processes.
        let journal = boxes.join(format!(
            "{}.list",
            &blake3::hash(self.root.as_os_str().as_encoded_bytes()).to_hex()[..16]
        ));
        let ready = crate::private::create_dir(&self.command_layers()).is_ok();
        Spec {
            root: self.root.clone(),
            command_layers: Some(self.command_layers())
                .filter(|_| ready && tree == Tree::Itself && self.access == Access::Write),
            tree,
            layers,
            access: self.access,
            tier,
            signals: windlass_sandbox::SignalBarrier::of_this_kernel(),
            hide: self.hide(
                home.as_deref(),
                shown.read.iter().chain(&shown.caches),
                &write,
                secrets,
            ),
            home,
            read: shown.read.into_iter().collect(),
            caches: shown.caches.into_iter().collect(),
            write,
            protect,
            agent: agent.map(|(agent, home)| agent.shown(home)),
            net: match &self.net {
                NetPolicy::Off => Net::Off,
                NetPolicy::Loopback => Net::Loopback,
                NetPolicy::Hosts(_) => Net::Proxy,
                NetPolicy::Open => Net::Open,
            },
            limits: self.limits,
            scratch: ready.then(|| boxes.clone()),
            journal: ready.then_some(journal),
            log: false,
        }
    }

    fn real_home(&self) -> Option<PathBuf> {
        self.home.as_deref()?.canonicalize().ok()
    }

    /// Returns the paths that commands with this environment see in addition to the workspace and the system.
    fn shown(&self, home: Option<&Path>, env: &[(OsString, OsString)]) -> VisiblePaths<'_> {
        let mut shown = VisiblePaths {
            root: &self.root,
            read: BTreeSet::new(),
            caches: BTreeSet::new(),
        };
        if let Some(home) = home {
            shown.add_home(home);
        }
        shown.add_programs(home, env);
        shown.add_variables(env, home);
        if self.net == NetPolicy::Open {
            // This file is often a symlink to one that the system generates at each start.
            shown.add_read(Path::new("/etc/resolv.conf"));
        }
        let granted = self.read.iter().filter_map(|path| path.canonicalize().ok());
        shown.read.extend(granted);
        shown
    }

    /// Returns the real path of a program, if commands with this environment cannot see it.
    #[must_use]
    pub fn hidden_program(&self, env: &[(OsString, OsString)], program: &Path) -> Option<PathBuf> {
        let real = program.canonicalize().ok()?;
        let shown = self.shown(self.real_home().as_deref(), env);
        let places = shown.read.iter().chain(&shown.caches).chain(&self.write);
        let mut places = places.chain([&self.root]);
        let is_seen = places.any(|place| real.starts_with(place))
            || ALWAYS_SHOWN.iter().any(|place| real.starts_with(place));
        (!is_seen).then_some(real)
    }

    /// Returns all paths that commands see empty.
    fn hide<'a>(
        &self,
        home: Option<&Path>,
        shown: impl Iterator<Item = &'a PathBuf> + Clone,
        write: &[PathBuf],
        found: Vec<PathBuf>,
    ) -> Vec<PathBuf> {
        let granted = |path: &Path| {
            self.read
                .iter()
                .any(|read| read.canonicalize().is_ok_and(|read| read == path))
        };
        let mut hide: Vec<PathBuf> = SYSTEM_SECRETS.iter().map(PathBuf::from).collect();
        hide.extend(host_keys());
        hide.extend(
            home.into_iter()
                .flat_map(|home| HOME_SECRETS.iter().map(|name| home.join(name))),
        );
        // An agent may be installed in one of our own directories. The rest of that directory is not in the view,
        // unless a directory around it is visible.
        let around = |own: &Path| {
            own.starts_with(&self.root)
                || shown.clone().any(|place| own.starts_with(place))
                || write.iter().any(|place| own.starts_with(place))
                || ALWAYS_SHOWN.iter().any(|place| own.starts_with(place))
        };
        let holds_program = |own: &Path| {
            shown
                .clone()
                .any(|place| place.starts_with(own) && place != own)
        };
        let own = self.own.iter().filter_map(|path| path.canonicalize().ok());
        hide.extend(own.filter(|own| around(own) || !holds_program(own)));
        hide.extend(shown.flat_map(|place| TreeScan::TOOLS.run(place, &[]).secrets));
        hide.extend(
            self.hidden
                .iter()
                .filter_map(|pattern| scan::named(&self.root, pattern)),
        );
        hide.extend(found);
        // The target of a symlink at a hidden place is hidden as well.
        let real: Vec<PathBuf> = hide
            .iter()
            .filter_map(|path| real_path(path).filter(|real| real != path && real.is_file()))
            .collect();
        hide.extend(real);
        hide.retain(|path| !granted(path));
        hide
    }
}

/// Collects the visible paths.
struct VisiblePaths<'a> {
    root: &'a Path,
    read: BTreeSet<PathBuf>,
    caches: BTreeSet<PathBuf>,
}

impl VisiblePaths<'_> {
    fn add_home(&mut self, home: &Path) {
        for name in HOME_TOOLS {
            self.add_read(&home.join(name));
        }
        for (name, always) in HOME_CACHES {
            self.add_cache(&home.join(name), *always);
        }
    }

    /// Adds the directories of the user's `PATH` that are not visible anyway, with the parent directory of a `bin`.
    fn add_programs(&mut self, home: Option<&Path>, env: &[(OsString, OsString)]) {
        let path = env
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, value)| value.clone())
            .unwrap_or_default();
        for folder in std::env::split_paths(&path).filter(|folder| folder.is_absolute()) {
            let Some(folder) = real_path(&folder) else {
                continue;
            };
            if ALWAYS_SHOWN.iter().any(|place| folder.starts_with(place)) {
                continue;
            }
            // Below the home only the directory itself is added, because its parent may contain keys.
            let below_home = home.is_some_and(|home| folder.starts_with(home));
            let around = folder
                .parent()
                .filter(|around| around.components().count() > 2 && !below_home);
            let own = around
                .filter(|_| folder.ends_with("bin") || folder.ends_with("sbin"))
                .map(Path::to_path_buf);
            self.add_read(&own.unwrap_or(folder));
        }
    }

    fn add_variables(&mut self, env: &[(OsString, OsString)], home: Option<&Path>) {
        let value = |wanted: &str| {
            env.iter()
                .find(|(name, _)| name == wanted)
                .map(|(_, value)| PathBuf::from(value))
        };
        let usable = |path: &PathBuf| {
            path.is_absolute() && path.parent().is_some() && Some(path.as_path()) != home
        };
        for tool in TOOL_VARIABLES {
            match value(tool.name).filter(usable) {
                Some(path) if tool.cache => self.add_cache(&path, false),
                Some(path) => self.add_read(&path),
                None => {}
            }
        }
    }

    fn add_read(&mut self, path: &Path) {
        if let Some(path) = real_path(path)
            && self.fits(&path)
            && !ALWAYS_SHOWN.iter().any(|place| path.starts_with(place))
        {
            self.read.insert(path);
        }
    }

    fn add_cache(&mut self, path: &Path, always: bool) {
        match real_path(path) {
            Some(path) if path.is_dir() && self.fits(&path) => {
                self.read.remove(&path);
                self.caches.insert(path);
            }
            None if always && self.fits(path) => {
                self.caches.insert(path.to_owned());
            }
            _ => {}
        }
    }

    /// Returns whether a path may be made visible: it is not the workspace, nothing in it or around it, not a
    /// credential, and not inside a cache.
    fn fits(&self, path: &Path) -> bool {
        !path.starts_with(self.root)
            && !self.root.starts_with(path)
            && !is_credential(&path.to_string_lossy())
            && !self.caches.iter().any(|cache| path.starts_with(cache))
    }
}

/// Returns the real path of an existing file or directory. Most candidates do not exist: one call tells that, and
/// `canonicalize` makes one for each directory above.
fn real_path(path: &Path) -> Option<PathBuf> {
    path.exists().then(|| path.canonicalize().ok())?
}

/// Returns the private keys of this machine's SSH server.
fn host_keys() -> Vec<PathBuf> {
    crate::private::entries(Path::new("/etc/ssh"), 200)
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with("_key"))
        .collect()
}

/// The maximum number of entries that are visited below `/etc`.
const MAX_ENTRIES: usize = 20_000;

/// Finds files and directories that other users cannot read: secrets of the machine, for root only.
fn unreadable_by_others(base: &Path) -> Vec<PathBuf> {
    let (mut found, mut open, mut left) = (Vec::new(), vec![base.to_owned()], MAX_ENTRIES);
    while let Some(dir) = open.pop() {
        for entry in crate::private::entries(&dir, left) {
            left = left.saturating_sub(1);
            // Most entries of `/etc` are symlinks, which the directory entry tells without a stat.
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                continue;
            }
            let Ok(meta) = entry.metadata() else {
                continue;
            };
            let needed = if meta.is_dir() { 0o005 } else { 0o004 };
            if meta.mode() & needed != needed {
                found.push(entry.path());
            } else if meta.is_dir() {
                open.push(entry.path());
            }
        }
    }
    found
}

/// Directories that every command sees (see the view of the sandbox).
const ALWAYS_SHOWN: &[&str] = &[
    "/bin", "/etc", "/lib", "/lib64", "/nix", "/opt", "/sbin", "/snap", "/usr",
];

const SYSTEM_SECRETS: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/krb5.keytab",
    "/etc/NetworkManager/system-connections",
    "/etc/wireguard",
];

/// Credentials among the visible tools and caches.
const HOME_SECRETS: &[&str] = &[
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".hex/hex.config",
    ".bundle/config",
    ".ivy2/.credentials",
    ".sbt/.credentials",
    ".local/share/uv/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".nuget/NuGet/NuGet.Config",
];

/// Tools below a home, and git's global ignore files.
const HOME_TOOLS: &[&str] = &[
    ".rustup",
    ".pyenv",
    ".nvm",
    ".volta",
    ".asdf",
    ".sdkman",
    ".rbenv",
    ".nodenv",
    ".goenv",
    ".jenv",
    ".ghcup",
    ".opam",
    ".dotnet",
    ".juliaup",
    ".swiftly",
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/pipx",
    ".local/share/mise",
    ".local/share/uv",
    ".local/share/fnm",
    ".gitignore",
    ".gitignore_global",
    ".config/git/ignore",
];

/// Caches below a home; the flag says whether to create a missing one.
const HOME_CACHES: &[(&str, bool)] = &[
    (".cargo", true),
    (".npm", true),
    (".cache/pip", true),
    (".cache/uv", true),
    (".cache/go-build", true),
    ("go/pkg", true),
    (".cache/yarn", false),
    (".cache/pnpm", false),
    (".cache/node", false),
    (".cache/pypoetry", false),
    (".cache/pre-commit", false),
    (".cache/ccache", false),
    (".cache/sccache", false),
    (".cache/bazel", false),
    (".cache/deno", false),
    (".cache/ms-playwright", false),
    (".ccache", false),
    (".gradle", false),
    (".m2", false),
    (".nuget", false),
    (".bun", false),
    (".deno", false),
    (".yarn", false),
    (".pnpm-store", false),
    (".local/share/pnpm", false),
    (".bundle", false),
    (".gem", false),
    (".mix", false),
    (".hex", false),
    (".stack", false),
    (".cabal", false),
    (".ivy2", false),
    (".sbt", false),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Checks whether our own directory is hidden if these paths are visible.
    #[track_caller]
    fn check(root: &str, shown: &[&str], expect: bool) {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for folder in ["work", "data/runtimes/one/bin"] {
            std::fs::create_dir_all(base.join(folder)).unwrap();
        }
        let data = base.join("data");
        let plan = SandboxPlan {
            root: base.join(root),
            own: vec![data.clone()],
            data_dir: data.clone(),
            ..SandboxPlan::default()
        };
        let shown: Vec<PathBuf> = shown.iter().map(|path| base.join(path)).collect();
        let hidden = plan.hide(None, shown.iter(), &[], Vec::new());
        assert_eq!(hidden.contains(&data), expect, "{shown:?}");
    }

    #[test]
    fn our_directory_is_hidden_unless_only_a_program_in_it_is_visible() {
        check("work", &[], true);
        check("work", &["work/bin"], true);
        check("work", &["data/runtimes/one"], false);
        check("work", &["data/runtimes/one", ""], true);
        check("work", &["data"], true);
        check("", &["data/runtimes/one"], true);
    }

    #[test]
    fn private_files_are_found_and_symlinks_are_not_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["open", "closed", "open/deep"] {
            std::fs::create_dir(at(folder)).unwrap();
        }
        for (file, mode) in [
            ("plain", 0o644),
            ("secret", 0o600),
            ("of-a-group", 0o640),
            ("open/deep/key", 0o400),
            ("closed/inside", 0o644),
        ] {
            std::fs::write(at(file), "x").unwrap();
            std::fs::set_permissions(at(file), PermissionsExt::from_mode(mode)).unwrap();
        }
        for folder in ["open", "open/deep"] {
            std::fs::set_permissions(at(folder), PermissionsExt::from_mode(0o755)).unwrap();
        }
        std::fs::set_permissions(at("closed"), PermissionsExt::from_mode(0o710)).unwrap();
        symlink("closed", at("link")).unwrap();
        let mut found = unreadable_by_others(dir.path());
        found.sort();
        assert_eq!(
            found,
            ["closed", "of-a-group", "open/deep/key", "secret"].map(at)
        );
    }
}
