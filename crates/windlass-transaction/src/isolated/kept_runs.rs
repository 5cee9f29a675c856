//! Kept runs: each copy has a directory with a metadata file (`card.json`) and a lock file that the working process
//! holds. All copies together have limits on size and age. A name is validated before it becomes part of a path.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use windlass_core::terms::Strategy;

use windlass_host::private::{create_dir, entries, remove_tree};

/// Maximum bytes of all kept runs together.
pub const MAX_BYTES: u64 = 10 << 30;
/// Maximum age of a kept run.
pub const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Maximum bytes of a metadata file.
const MAX_META: u64 = 1 << 20;
/// Maximum number of copies that are listed.
const MAX_COPIES: usize = 10_000;
/// Waiting time for the lock. A run holds it longer than this; a command that lists copies does not.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);
/// The pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// Prefix of the directory of a copy that is being deleted. It is not a valid name of a copy, so that a half-deleted
/// directory is never mistaken for one.
const DISCARDED: &str = ".gone-";
/// Age at which a directory without metadata counts as abandoned by a dead process.
const ABANDONED_AGE: Duration = Duration::from_secs(3600);
/// Maximum number of files that are counted to determine the size of a copy.
const MAX_COUNTED: usize = 1_000_000;

/// The metadata of a kept run. The session and the run are those that opened the copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRunMeta {
    pub name: String,
    /// The workspace that was copied.
    pub root: PathBuf,
    pub session: String,
    pub run: String,
    /// `None` until the copy was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// When the copy was opened, in seconds since 1970.
    pub opened: u64,
    /// When it was kept, in seconds since 1970; absent while a run works on the copy, and if its process died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// Number of files that it would change.
    #[serde(default)]
    pub files: usize,
    /// Disk usage in bytes.
    #[serde(default)]
    pub bytes: u64,
    /// Paths of the workspace that are not in the copy, because commands must not read them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<PathBuf>,
}

impl KeptRunMeta {
    /// Whether the copy was made. A run that is killed at the very start leaves only the metadata.
    #[must_use]
    pub fn was_made(&self) -> bool {
        self.strategy.is_some()
    }
}

/// The reason why a kept run cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeptRunError {
    #[error("there is no kept run `{0}`; `windlass status` lists them")]
    Unknown(String),
    #[error("a run is working on `{0}`; wait until it ends, or cancel it")]
    Busy(String),
    #[error("{0}")]
    Io(String),
}

/// The directory of all kept runs.
#[derive(Debug, Clone)]
pub struct KeptRuns {
    dir: PathBuf,
}

/// A kept run whose lock is held: no other process can open it until this is dropped.
#[derive(Debug)]
pub struct KeptRun {
    pub(super) dir: PathBuf,
    pub meta: KeptRunMeta,
    _lock: File,
}

impl KeptRuns {
    /// Uses this directory, which is created when it is needed.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Creates the directory of a new copy, under a free name.
    pub(super) fn create(
        &self,
        root: &Path,
        session: &str,
        run: &str,
    ) -> Result<KeptRun, KeptRunError> {
        let failed = |what: &Path, err: std::io::Error| {
            KeptRunError::Io(format!("{}: {err}", what.display()))
        };
        create_dir(&self.dir).map_err(|err| KeptRunError::Io(err.message))?;
        for _ in 0..100 {
            let name = fresh_name();
            let dir = self.dir.join(&name);
            match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => {}
                Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(err) => return Err(failed(&dir, err)),
            }
            let lock = lock(&dir, &name)?;
            let meta = KeptRunMeta {
                name,
                root: root.to_owned(),
                session: session.to_owned(),
                run: run.to_owned(),
                strategy: None,
                opened: now(),
                kept: None,
                files: 0,
                bytes: 0,
                hidden: Vec::new(),
            };
            let run = KeptRun {
                dir,
                meta,
                _lock: lock,
            };
            run.write_meta()?;
            return Ok(run);
        }
        Err(KeptRunError::Io(format!(
            "no free name in {}; discard some kept runs",
            self.dir.display()
        )))
    }

    /// Opens and locks a kept run.
    pub fn open(&self, name: &str) -> Result<KeptRun, KeptRunError> {
        let dir = self.dir_of(name)?;
        let read = || read_meta(&dir).ok_or_else(|| KeptRunError::Unknown(name.to_owned()));
        // The lock would create a file in a directory that is no kept run.
        read()?;
        let lock = lock(&dir, name)?;
        // The holder of the lock may have changed or deleted the kept run.
        let meta = read()?;
        Ok(KeptRun {
            dir,
            meta,
            _lock: lock,
        })
    }

    /// The metadata of a kept run; works also while another process holds its lock.
    pub fn meta(&self, name: &str) -> Result<KeptRunMeta, KeptRunError> {
        read_meta(&self.dir_of(name)?).ok_or_else(|| KeptRunError::Unknown(name.to_owned()))
    }

    /// All kept runs, newest first, and whether a process is working on each.
    #[must_use]
    pub fn list(&self) -> Vec<(KeptRunMeta, bool)> {
        let mut cards: Vec<(KeptRunMeta, bool)> = entries(&self.dir, MAX_COPIES)
            .filter_map(|entry| {
                let mut meta = read_meta(&entry.path())?;
                let busy = is_held(&entry.path());
                if !busy && meta.kept.is_none() {
                    // Its process died before it stored the size. It counts towards the limits all the same.
                    meta.bytes = size_of(&entry.path());
                    meta.files = super::dead_run::count(&entry.path(), &meta);
                }
                Some((meta, busy))
            })
            .collect();
        cards.sort_by(|(a, _), (b, _)| b.opened.cmp(&a.opened).then_with(|| a.name.cmp(&b.name)));
        cards
    }

    /// The names and directories of all copies.
    pub(super) fn directories(&self) -> Vec<(String, PathBuf)> {
        entries(&self.dir, MAX_COPIES)
            .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
            .collect()
    }

    /// Removes remains of copies: half deleted, or left by a process that died before writing metadata.
    pub(super) fn sweep(&self) {
        for (name, dir) in self.directories() {
            let untouched = || {
                let touched = std::fs::symlink_metadata(&dir)
                    .and_then(|about| about.modified())
                    .ok()?;
                SystemTime::now().duration_since(touched).ok()
            };
            let no_card = || {
                !dir.join("card.json").exists()
                    && untouched().is_some_and(|since| since > ABANDONED_AGE)
            };
            if name.starts_with(DISCARDED) || (no_card() && lock(&dir, &name).is_ok()) {
                // If this fails, the next start tries again.
                let _ = remove_tree(&dir);
            }
        }
    }

    /// Kept runs to discard so that the limits hold, with the reason for each.
    #[must_use]
    pub fn surplus(&self, max_bytes: u64, max_age: Duration) -> Vec<(KeptRunMeta, String)> {
        let oldest = now().saturating_sub(max_age.as_secs());
        let mut total = 0_u64;
        let mut surplus = Vec::new();
        for (meta, busy) in self.list() {
            if busy || super::unlogged::is_pending(&self.dir.join(&meta.name)) {
                continue;
            }
            total = total.saturating_add(meta.bytes);
            if !meta.was_made() {
                surplus.push((meta, "its run was killed before it began".to_owned()));
            } else if meta.kept.unwrap_or(meta.opened) < oldest {
                let days = max_age.as_secs() / 86_400;
                surplus.push((meta, format!("it is older than {days} days")));
            } else if total > max_bytes {
                surplus.push((
                    meta,
                    format!(
                        "all kept runs together take more than {} MB",
                        max_bytes >> 20
                    ),
                ));
            }
        }
        surplus
    }

    pub(super) fn dir_of(&self, name: &str) -> Result<PathBuf, KeptRunError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(KeptRunError::Unknown(name.to_owned()));
        }
        Ok(self.dir.join(name))
    }
}

impl KeptRun {
    pub(super) fn write_meta(&self) -> Result<(), KeptRunError> {
        let failed =
            |err: std::io::Error| KeptRunError::Io(format!("{}: {err}", self.dir.display()));
        let text =
            serde_json::to_vec(&self.meta).map_err(|err| KeptRunError::Io(err.to_string()))?;
        let draft = self.dir.join("card.new");
        let mut file = File::create(&draft).map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        std::fs::rename(&draft, self.dir.join("card.json")).map_err(failed)
    }

    /// A directory in it, created if it is missing.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf, KeptRunError> {
        let path = self.dir.join(name);
        create_dir(&path).map_err(|err| KeptRunError::Io(err.message))?;
        Ok(path)
    }

    /// Marks it as kept, with its size.
    pub(super) fn keep(&mut self, files: usize) -> Result<(), KeptRunError> {
        self.meta.kept = Some(now());
        self.meta.files = files;
        self.meta.bytes = size_of(&self.dir);
        self.write_meta()
    }

    /// Whether its landing is unfinished, or may be missing in the log. Discarding it would then make undo impossible.
    #[must_use]
    pub fn has_pending_landing(&self) -> bool {
        super::unlogged::is_pending(&self.dir)
    }

    /// Deletes it: first renames its directory, which is atomic, then removes the content.
    pub fn discard(self) -> Result<(), KeptRunError> {
        let gone = self
            .dir
            .with_file_name(format!("{DISCARDED}{}", self.meta.name));
        let removed = std::fs::rename(&self.dir, &gone).and_then(|()| remove_tree(&gone));
        removed
            .map_err(|err| KeptRunError::Io(format!("cannot remove {}: {err}", self.dir.display())))
    }
}

/// Waits a moment, because another command may be reading the lock.
fn lock(dir: &Path, name: &str) -> Result<File, KeptRunError> {
    let path = dir.join("lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = file.map_err(|err| KeptRunError::Io(format!("{}: {err}", path.display())))?;
    match wait_for_lock(&file) {
        Ok(true) => Ok(file),
        Ok(false) => Err(KeptRunError::Busy(name.to_owned())),
        Err(err) => Err(KeptRunError::Io(format!("{}: {err}", path.display()))),
    }
}

/// Takes an exclusive lock; false if another process still holds it after [`LOCK_TIMEOUT`]. It tries again and again: a
/// wait in the kernel could get the lock after the timeout, and the copy would look used for a moment.
fn wait_for_lock(file: &File) -> rustix::io::Result<bool> {
    let began = Instant::now();
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() >= LOCK_TIMEOUT => {
                return Ok(false);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(rustix::io::Errno::INTR) => {}
            Err(err) => return Err(err),
        }
    }
}

/// Whether a run holds the lock. Several commands can ask at the same time.
fn is_held(dir: &Path) -> bool {
    File::open(dir.join("lock")).is_ok_and(|file| {
        let image_or_absent = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
        image_or_absent == Err(rustix::io::Errno::WOULDBLOCK)
    })
}

fn read_meta(dir: &Path) -> Option<KeptRunMeta> {
    let bytes = windlass_host::workspace::read_file(&dir.join("card.json"), MAX_META).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Disk usage of a tree in bytes, up to [`MAX_COUNTED`] files.
fn size_of(dir: &Path) -> u64 {
    let (mut open, mut total, mut seen) = (vec![dir.to_owned()], 0_u64, 0);
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_COUNTED {
                return total;
            }
            let Ok(about) = entry.metadata() else {
                continue;
            };
            total = total
                .saturating_add(std::os::unix::fs::MetadataExt::blocks(&about).saturating_mul(512));
            if about.is_dir() {
                open.push(entry.path());
            }
        }
    }
    total
}

/// Two words and a number: easy to say and to type.
fn fresh_name() -> String {
    let draw = getrandom::u64().unwrap_or(0);
    let pick = |words: &[&'static str], at: u32| words[(draw >> at) as usize % words.len()];
    format!(
        "{}-{}-{}",
        pick(FIRST, 0),
        pick(SECOND, 16),
        draw >> 32 & 0x3ff
    )
}

const FIRST: &[&str] = &[
    "amber", "brisk", "calm", "clear", "copper", "coral", "dusky", "early", "firm", "gentle",
    "golden", "green", "hazel", "ivory", "keen", "light", "lucid", "mellow", "mild", "noble",
    "olive", "plain", "quick", "quiet", "rapid", "rusty", "sandy", "silver", "spry", "steady",
    "swift", "warm",
];
const SECOND: &[&str] = &[
    "anchor", "badger", "beacon", "birch", "bridge", "brook", "cedar", "crane", "delta", "ferry",
    "finch", "fjord", "forge", "harbor", "heron", "island", "kestrel", "lantern", "ledge", "maple",
    "marten", "meadow", "otter", "pebble", "quarry", "raven", "reef", "sail", "sparrow", "summit",
    "thistle", "willow",
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_kept_run_is_opened_as_its_last_holder_left_it() {
        let dir = tempfile::tempdir().unwrap();
        let kept_runs = KeptRuns::new(dir.path().join("transactions"));
        for discards in [false, true] {
            let mut run = kept_runs.create(Path::new("/w"), "s1", "r1").unwrap();
            let name = run.meta.name.clone();
            let begin = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                let opening = scope.spawn(|| {
                    begin.wait();
                    kept_runs.open(&name)
                });
                begin.wait();
                run.meta.strategy = Some(Strategy::Overlay);
                match discards {
                    true => run.discard().unwrap(),
                    false => {
                        run.keep(1).unwrap();
                        drop(run);
                    }
                }
                match (opening.join().unwrap(), discards) {
                    (Ok(opened), false) => assert!(opened.meta.was_made()),
                    (Err(err), true) => assert!(!matches!(err, KeptRunError::Busy(_)), "{err}"),
                    (opened, _) => panic!("{opened:?}"),
                }
            });
        }
    }

    #[test]
    fn a_kept_run_is_locked_listed_and_discarded() {
        let dir = tempfile::tempdir().unwrap();
        let kept_runs = KeptRuns::new(dir.path().join("transactions"));
        assert!(kept_runs.list().is_empty());
        let mut run = kept_runs.create(Path::new("/w"), "s1", "run-1").unwrap();
        run.meta.strategy = Some(Strategy::Overlay);
        let name = run.meta.name.clone();
        assert!(
            matches!(kept_runs.open(&name), Err(KeptRunError::Busy(_))) && kept_runs.list()[0].1
        );
        let locked = run.folder("upper/shut").unwrap();
        std::fs::set_permissions(&locked, PermissionsExt::from_mode(0o000)).unwrap();
        run.keep(3).unwrap();
        drop(run);
        assert_eq!(
            (kept_runs.list()[0].0.files, kept_runs.list()[0].1),
            (3, false)
        );
        for bad in ["../x", "", "a/b", "A", "nobody-here-1"] {
            assert_eq!(
                kept_runs.open(bad).err(),
                Some(KeptRunError::Unknown(bad.to_owned()))
            );
        }
        let killed = kept_runs.create(Path::new("/w"), "s1", "r2").unwrap();
        std::fs::write(
            killed.folder("upper").unwrap().join("big"),
            vec![1; 100_000],
        )
        .unwrap();
        let killed = (killed.meta.name.clone(), drop(killed)).0;
        let counted = kept_runs
            .list()
            .into_iter()
            .find(|(meta, _)| meta.name == killed)
            .unwrap()
            .0;
        assert!(
            counted.bytes >= 100_000,
            "a killed run counts towards the size, too: {counted:?}"
        );
        assert_eq!(
            kept_runs.surplus(MAX_BYTES, MAX_AGE)[0].0.name,
            killed,
            "a run that never began is not worth keeping"
        );
        kept_runs.open(&killed).unwrap().discard().unwrap();
        assert_eq!(kept_runs.surplus(0, MAX_AGE).len(), 1);
        assert_eq!(kept_runs.surplus(MAX_BYTES, MAX_AGE).len(), 0);
        kept_runs.open(&name).unwrap().discard().unwrap();
        assert!(kept_runs.list().is_empty());
    }

    #[test]
    fn listing_kept_runs_does_not_block_opening_one() {
        let dir = tempfile::tempdir().unwrap();
        let kept_runs = KeptRuns::new(dir.path().to_owned());
        let run = kept_runs.create(Path::new("/w"), "s1", "run-1").unwrap();
        let name = run.meta.name.clone();
        let path = run.dir.join("lock");
        drop(run);
        let looks = File::open(path).unwrap();
        rustix::fs::flock(&looks, FlockOperation::LockShared).unwrap();
        assert!(
            !kept_runs.list()[0].1,
            "a command that lists copies does not hold one"
        );
        let (kept_runs, taker) = (kept_runs.clone(), name.clone());
        let (asked, asks) = std::sync::mpsc::channel();
        let taken = std::thread::spawn(move || {
            asked.send(()).unwrap();
            kept_runs.open(&taker).map(|run| run.meta.name.clone())
        });
        asks.recv().unwrap();
        drop(looks);
        assert_eq!(taken.join().unwrap(), Ok(name));
    }

    #[test]
    fn remains_of_dead_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let kept_runs = KeptRuns::new(dir.path().to_owned());
        let run = kept_runs.create(Path::new("/w"), "s1", "run-1").unwrap();
        let make = |name: &str| {
            std::fs::create_dir_all(dir.path().join(name).join("upper")).unwrap();
            dir.path().join(name)
        };
        let (half, fresh, old) = (
            make(".gone-warm-willow-1"),
            make("calm-reef-2"),
            make("calm-reef-3"),
        );
        let long_ago = SystemTime::now() - 2 * ABANDONED_AGE;
        File::open(&old).unwrap().set_modified(long_ago).unwrap();
        File::open(&run.dir)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        kept_runs.sweep();
        assert!(
            !half.exists() && !old.exists(),
            "half-deleted and never-made copies are removed"
        );
        assert!(
            fresh.exists() && run.dir.exists(),
            "copies that are being made or have metadata stay"
        );
    }
}
