//! A temporary directory with a user's files: a repository, a home with credentials, and settings and data of windlass.
//! The path of the directory identifies the processes that belong to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The user's key. It may appear only in the headers of requests to the vendor.
pub(crate) const KEY: &str = "sk-kit-REAL-0f4c1d7e9a2b";
/// The content of the user's credential files.
pub(crate) const CREDENTIAL: &str = "KIT-CREDENTIAL-5d8e0c";

/// The directory; it is removed on drop.
pub(crate) struct ScratchDir {
    base: tempfile::TempDir,
    /// A duration for `sleep` that no other process uses, in seconds, so that the process can be found.
    pub(crate) seconds: u32,
}

/// The number of directories that this process created.
static CREATED: AtomicU32 = AtomicU32::new(0);

impl ScratchDir {
    /// Creates the directories, the credentials and a repository with two files.
    pub(crate) fn new() -> Result<Self, String> {
        let base = tempfile::Builder::new().prefix("windlass-kit-").tempdir();
        let base = base.map_err(|err| format!("cannot create a temporary directory: {err}"))?;
        let seconds = 10_000
            + std::process::id() % 100_000 * 100
            + CREATED.fetch_add(1, Ordering::Relaxed) % 100;
        let scratch = Self { base, seconds };
        for folder in [
            "work",
            "home/.ssh",
            "config/windlass",
            "data",
            "cache",
            "state",
            "bin",
            "outside",
        ] {
            let path = scratch.at(folder);
            std::fs::create_dir_all(&path).map_err(|err| format!("{}: {err}", path.display()))?;
        }
        scratch.write("home/.ssh/id_ed25519", &format!("{CREDENTIAL}\n"))?;
        scratch.write("work/.env", &format!("SERVICE_TOKEN={CREDENTIAL}\n"))?;
        scratch.write("work/.gitignore", ".env\n")?;
        scratch.write("work/a.txt", "one\ntwo\nthree\n")?;
        scratch.write("work/gone.txt", "to be removed\n")?;
        for args in [
            &["init", "-q", "-b", "main"][..],
            &["add", "-A"],
            &[
                "-c",
                "user.name=Kit",
                "-c",
                "user.email=kit@example.invalid",
                "commit",
                "-q",
                "-m",
                "begin",
            ],
        ] {
            scratch.git(args)?;
        }
        Ok(scratch)
    }

    /// Returns a path below the directory.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.base.path().join(path)
    }

    /// Returns the path of the repository.
    pub(crate) fn work(&self) -> PathBuf {
        self.at("work")
    }

    /// Returns the text that identifies its processes.
    pub(crate) fn mark(&self) -> String {
        self.base.path().display().to_string()
    }

    /// Returns whether a `sleep` with its unique duration is running.
    pub(crate) fn has_sleeper(&self) -> bool {
        !crate::child::processes_with(&format!("sleep\0{}", self.seconds)).is_empty()
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> Result<(), String> {
        let path = self.at(path);
        std::fs::write(&path, text).map_err(|err| format!("{}: {err}", path.display()))
    }

    /// Creates a symlink, unless it exists.
    pub(crate) fn link(&self, to: &Path, path: &str) -> Result<(), String> {
        let path = self.at(path);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let linked = made.and_then(|()| std::os::unix::fs::symlink(to, &path));
        match linked {
            Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked.map_err(|err| format!("{}: {err}", path.display())),
        }
    }

    /// Creates an executable script.
    pub(crate) fn program(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let (path, name) = (self.at(&format!("bin/{name}")), format!("bin/{name}"));
        self.write(&name, text)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode)
            .map_err(|err| format!("{}: {err}", path.display()))?;
        Ok(path)
    }

    /// Reads all files of the repository, except those of git.
    pub(crate) fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        let mut all = BTreeMap::new();
        walk(&self.work(), &mut |path, bytes| {
            let name = path
                .strip_prefix(self.work())
                .unwrap_or(path)
                .display()
                .to_string();
            if !name.starts_with(".git/") {
                all.insert(name, bytes);
            }
        });
        all
    }

    /// Lists the files below a directory that contain a text.
    pub(crate) fn files_with(&self, folder: &str, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        walk(&self.at(folder), &mut |path, bytes| {
            if crate::child::contains(&bytes, text) {
                found.push(path.display().to_string());
            }
        });
        found
    }

    fn git(&self, args: &[&str]) -> Result<(), String> {
        let mut command = Command::new("git");
        command
            .args(args)
            .current_dir(self.work())
            .env("HOME", self.at("home"));
        let done = command
            .output()
            .map_err(|err| format!("git cannot be started: {err}"))?;
        crate::holds(done.status.success(), || {
            format!("git {args:?}: {}", String::from_utf8_lossy(&done.stderr))
        })
    }
}

/// Visits every regular file below a directory, with its first 8 MB. Does not follow symlinks.
fn walk(folder: &Path, each: &mut dyn FnMut(&Path, Vec<u8>)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&path, each),
            Ok(kind) if kind.is_file() => {
                let mut bytes = Vec::new();
                if let Ok(file) = std::fs::File::open(&path) {
                    let _ = std::io::Read::read_to_end(
                        &mut std::io::Read::take(file, 8 << 20),
                        &mut bytes,
                    );
                }
                each(&path, bytes);
            }
            _ => {}
        }
    }
}
