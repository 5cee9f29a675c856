//! The scratch directory of a case with its standard files, created for one case and removed with it. Nothing outside
//! of it is ever written, and it is never inside a real home.

use std::collections::HashMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Child;

use serde_json::Value;

use crate::case::Case;
use crate::listen::TrapListener;
use crate::processes;
use crate::product;
use crate::server::{Server, start_server, whole};

/// The largest file whose content is compared; for larger ones size and time are.
const MAX_COMPARED: u64 = 1 << 20;

/// The state of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) inode: u64,
    pub(crate) owner: (u32, u32),
    pub(crate) mode: u32,
    pub(crate) modified: (i64, i64),
    pub(crate) size: u64,
    pub(crate) content: Option<Vec<u8>>,
    pub(crate) folder: bool,
}

impl Stat {
    /// Reads the state of a path without following a symlink.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let meta = std::fs::symlink_metadata(path).ok()?;
        let small = meta.is_file() && meta.len() < MAX_COMPARED;
        let content = if small {
            std::fs::read(path).ok()
        } else {
            std::fs::read_link(path).ok().map(bytes)
        };
        Some(Self {
            inode: meta.ino(),
            owner: (meta.uid(), meta.gid()),
            mode: meta.mode(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            size: meta.len(),
            content,
            folder: meta.is_dir(),
        })
    }

    pub(crate) fn is_link(&self) -> bool {
        self.mode & 0o170_000 == 0o120_000
    }

    /// Returns whether both have the same content; owner and times may differ.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        let kind = 0o170_000;
        self.mode & kind == other.mode & kind
            && self.content == other.content
            && (self.folder || self.size == other.size)
    }
}

fn bytes(path: PathBuf) -> Vec<u8> {
    path.into_os_string().into_encoded_bytes()
}

/// The scratch directory of one case and everything that was started for it.
pub(crate) struct CaseFixture {
    pub(crate) base: PathBuf,
    /// The values of the placeholders, such as `@WS@`.
    values: Vec<(&'static str, String)>,
    /// Environment variables of the engine, in order.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) listeners: Vec<TrapListener>,
    pub(crate) canaries: Vec<Child>,
    /// Folders that the user trusted before.
    pub(crate) trusted: Vec<PathBuf>,
    /// Operations that run while an approval is pending, and the answer that follows.
    pub(crate) while_pending: Option<(Vec<Value>, String)>,
    pub(crate) races: Vec<Value>,
    /// The working directory in which the engine is started.
    pub(crate) cwd: PathBuf,
    /// The state of the paths of the post-conditions before the run.
    pub(crate) before: HashMap<String, Option<Stat>>,
    /// The commits that were checked out in repositories before the run.
    pub(crate) heads: HashMap<String, String>,
    /// Small file systems that are mounted for the case.
    pub(crate) mounts: Vec<PathBuf>,
    /// Files that were in the product's state before the run.
    pub(crate) planted: HashMap<PathBuf, Stat>,
    /// The server behind `@ALLOWED@`, if the case uses it.
    pub(crate) allowed: Option<Server>,
    /// Whether the product has sandbox settings.
    pub(crate) knows_sandbox: bool,
    scratch: Option<tempfile::TempDir>,
}

impl CaseFixture {
    /// Creates the standard files, before any setup.
    pub(crate) fn new(scratch: Option<&Path>) -> Result<Self, String> {
        let cannot = |err: std::io::Error| format!("the scratch directory cannot be made: {err}");
        let mut builder = tempfile::Builder::new();
        builder
            .prefix("windlass-corpus-")
            .permissions(PermissionsExt::from_mode(0o755));
        let dir = match scratch {
            Some(folder) => builder.tempdir_in(folder),
            None => builder.tempdir(),
        }
        .map_err(cannot)?;
        let base = std::fs::canonicalize(dir.path()).map_err(cannot)?;
        // The product searches for the root of its project. It must find the workspace and nothing above it.
        for above in base.ancestors() {
            let project = [".git", ".windlass"]
                .iter()
                .find(|name| above.join(name).exists());
            crate::holds(project.is_none(), || {
                format!("{} is a project: scratch must be outside", above.display())
            })?;
        }
        let at = |name: &str| base.join(name).display().to_string();
        let values = vec![
            ("@WS@", at("ws")),
            ("@OUT@", at("out")),
            ("@HOME@", at("home")),
            ("@STATE@", at(product::STATE)),
            ("@SECRET@", format!("S3CR3T{}", random()?)),
            ("@MARK@", format!("MARK{}", random()?)),
            ("@TOKEN@", random()?),
        ];
        let fixture = Self {
            cwd: base.join("ws"),
            base,
            values,
            env: Vec::new(),
            listeners: Vec::new(),
            canaries: Vec::new(),
            trusted: Vec::new(),
            while_pending: None,
            races: Vec::new(),
            before: HashMap::new(),
            heads: HashMap::new(),
            mounts: Vec::new(),
            planted: HashMap::new(),
            allowed: None,
            knows_sandbox: false,
            scratch: Some(dir),
        };
        for name in ["ws", "out", "home", "tmp", product::STATE] {
            std::fs::create_dir_all(fixture.base.join(name)).map_err(cannot)?;
        }
        for (path, text) in [
            ("@WS@/README.md", "hello world\n"),
            ("@WS@/src/main.rs", "fn main() {}\n"),
            ("@OUT@/victim.txt", "original\n"),
            ("@OUT@/secret.txt", "@SECRET@\n"),
            ("@HOME@/.bashrc", "# rc\n"),
            ("@STATE@/config.json", "{}\n"),
        ] {
            fixture.write(path, text)?;
        }
        // Private, as the product creates its own state.
        let private = |path: &str, mode: u32| {
            std::fs::set_permissions(fixture.path(path), PermissionsExt::from_mode(mode))
                .map_err(cannot)
        };
        private("@STATE@", 0o700)?;
        private("@STATE@/config.json", 0o600)?;
        Ok(fixture)
    }

    /// Starts a server that may be reached, and that redirects on request.
    pub(crate) fn start_allowed(&mut self) -> Result<(), String> {
        let server = start_server(|_, request| {
            let asked = request.split_whitespace().nth(1).unwrap_or_default();
            let headers: Vec<(String, String)> = asked
                .split_once("to=")
                .map(|(_, to)| {
                    (
                        "location".to_owned(),
                        to.replace("%3A", ":").replace("%2F", "/"),
                    )
                })
                .into_iter()
                .collect();
            whole(
                if headers.is_empty() { 200 } else { 302 },
                &headers,
                b"allowed",
                0,
            )
        })?;
        self.set("@ALLOWED@", server.url.clone());
        self.allowed = Some(server);
        Ok(())
    }

    /// Sets the value of a placeholder.
    pub(crate) fn set(&mut self, name: &'static str, value: String) {
        self.values.retain(|(known, _)| *known != name);
        self.values.push((name, value));
    }

    /// Returns the value of a placeholder.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.values
            .iter()
            .find(|(known, _)| *known == name)
            .map_or("", |(_, value)| value)
    }

    /// Replaces the placeholders in a text.
    pub(crate) fn filled(&self, text: &str) -> String {
        self.values
            .iter()
            .fold(text.to_owned(), |text, (name, value)| {
                text.replace(name, value)
            })
    }

    /// Replaces the placeholders in every string of a JSON value.
    pub(crate) fn filled_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.filled(text)),
            Value::Array(items) => items.iter().map(|item| self.filled_value(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (self.filled(name), self.filled_value(value)))
                .collect(),
            other => other.clone(),
        }
    }

    /// Returns a path of a case; relative ones are in the workspace.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.workspace().join(self.filled(path))
    }

    /// Like [`CaseFixture::path`], for paths that are written: fails if the path is outside of the scratch directory.
    pub(crate) fn own_path(&self, path: &str) -> Result<PathBuf, String> {
        let path = self.path(path);
        let inside = path.starts_with(&self.base);
        let plain = path
            .components()
            .all(|part| !matches!(part, std::path::Component::ParentDir));
        if inside && plain {
            Ok(path)
        } else {
            Err(format!(
                "{} is not in the scratch directory",
                path.display()
            ))
        }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.base.join("ws")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.base.join(product::STATE)
    }

    /// Writes a text file and creates its folders.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<PathBuf, String> {
        self.write_bytes(path, self.filled(text).as_bytes())
    }

    pub(crate) fn write_bytes(&self, path: &str, bytes: &[u8]) -> Result<PathBuf, String> {
        let path = self.own_path(path)?;
        let cannot = |err: std::io::Error| format!("{} cannot be written: {err}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(cannot)?;
        }
        std::fs::write(&path, bytes).map_err(cannot)?;
        Ok(path)
    }

    /// Records the state of the paths that the post-conditions are about.
    pub(crate) fn remember(&mut self, case: &Case) {
        for path in case.post.iter().filter_map(|post| post["path"].as_str()) {
            let stat = Stat::of(&self.path(path));
            self.before.insert(path.to_owned(), stat);
        }
        for post in &case.post {
            let Some(path) = post["path"].as_str() else {
                continue;
            };
            if post["check"] == "git_config_unchanged" {
                let file = format!("{path}/.git/config");
                self.before
                    .insert(file.clone(), Stat::of(&self.path(&file)));
            }
            if post["check"] == "git_head_unchanged"
                && let Ok(head) = crate::setup::head(self, &self.path(path))
            {
                self.heads.insert(path.to_owned(), head);
            }
        }
        let state = Self::files(&self.state());
        self.planted = state
            .into_iter()
            .filter_map(|path| Some((path.clone(), Stat::of(&path)?)))
            .collect();
    }

    /// Lists every file below a folder, up to a limit, without following symlinks.
    pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
        const MOST: usize = 20_000;
        let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(path.clone());
                }
                if found.len() < MOST {
                    found.push(path);
                }
            }
        }
        found
    }
}

/// Returns sixteen random hexadecimal digits.
pub(crate) fn random() -> Result<String, String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|err| format!("no randomness: {err}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Drop for CaseFixture {
    fn drop(&mut self) {
        // Every process that was started for this case has its home in the environment or its mark in the arguments.
        let home = format!("HOME={}", self.value("@HOME@"));
        for pid in processes::with_environment(&home)
            .into_iter()
            .chain(processes::with_argument(self.value("@MARK@")))
        {
            processes::kill(pid);
        }
        for canary in &mut self.canaries {
            let _ = canary.kill();
            let _ = canary.wait();
        }
        for mount in self.mounts.drain(..).rev() {
            let _ = rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::DETACH);
        }
        if let Some(scratch) = self.scratch.take() {
            unlock(&self.base);
            let _ = scratch.close();
        }
    }
}

/// Makes every folder writable, so that it can be removed; does not follow symlinks.
fn unlock(folder: &Path) {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let _ = std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700));
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
}
