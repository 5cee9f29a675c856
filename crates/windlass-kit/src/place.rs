//! A scratch directory with a person's things in it: a repository, a home with credentials, settings and data of the
//! product. Everything is temporary and below one folder, whose name marks every process that belongs to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the person's key looks like. It must show up nowhere but in the head of a request to the vendor.
pub(crate) const KEY: &str = "sk-kit-REAL-0f4c1d7e9a2b";
/// What is in the person's credential files.
pub(crate) const CREDENTIAL: &str = "KIT-CREDENTIAL-5d8e0c";

/// One place; it is removed with this.
pub(crate) struct Place {
    base: tempfile::TempDir,
    /// Seconds that nobody else on this machine sleeps for: so a sleeper is known.
    pub(crate) seconds: u32,
}

/// How many places this process made.
static PLACES: AtomicU32 = AtomicU32::new(0);

impl Place {
    /// Makes the folders, the credentials and a repository with two files.
    pub(crate) fn new() -> Result<Self, String> {
        let base = tempfile::Builder::new().prefix("windlass-kit-").tempdir();
        let base = base.map_err(|err| format!("no scratch directory: {err}"))?;
        let seconds = 10_000
            + std::process::id() % 100_000 * 100
            + PLACES.fetch_add(1, Ordering::Relaxed) % 100;
        let place = Self { base, seconds };
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
            let path = place.at(folder);
            std::fs::create_dir_all(&path).map_err(|err| format!("{}: {err}", path.display()))?;
        }
        place.write("home/.ssh/id_ed25519", &format!("{CREDENTIAL}\n"))?;
        place.write("work/.env", &format!("SERVICE_TOKEN={CREDENTIAL}\n"))?;
        place.write("work/.gitignore", ".env\n")?;
        place.write("work/a.txt", "one\ntwo\nthree\n")?;
        place.write("work/gone.txt", "to be removed\n")?;
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
            place.git(args)?;
        }
        Ok(place)
    }

    /// A path of it.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.base.path().join(path)
    }

    /// The repository.
    pub(crate) fn work(&self) -> PathBuf {
        self.at("work")
    }

    /// The text that marks its processes.
    pub(crate) fn mark(&self) -> String {
        self.base.path().display().to_string()
    }

    /// Whether somebody sleeps for its seconds.
    pub(crate) fn has_sleeper(&self) -> bool {
        !crate::child::processes_with(&format!("sleep\0{}", self.seconds)).is_empty()
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> Result<(), String> {
        let path = self.at(path);
        std::fs::write(&path, text).map_err(|err| format!("{}: {err}", path.display()))
    }

    /// A link of the place to something elsewhere; one that is there stays.
    pub(crate) fn link(&self, to: &Path, path: &str) -> Result<(), String> {
        let path = self.at(path);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let linked = made.and_then(|()| std::os::unix::fs::symlink(to, &path));
        match linked {
            Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked.map_err(|err| format!("{}: {err}", path.display())),
        }
    }

    /// A program of the place.
    pub(crate) fn program(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let (path, name) = (self.at(&format!("bin/{name}")), format!("bin/{name}"));
        self.write(&name, text)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode)
            .map_err(|err| format!("{}: {err}", path.display()))?;
        Ok(path)
    }

    /// Every file of the repository without git's own.
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

    /// Files below a folder of it that hold a text.
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

/// Every regular file below a folder; links are not followed, and large files are looked at by their beginning.
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
