//! Where copies are kept: a directory each with a card that says what it is, a lock while somebody works on it, and
//! bounds on all of them together. A name is checked before it becomes part of a path.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use windlass_core::terms::Strategy;

use crate::landing::lock_within;
use windlass_host::private::{create_dir, entries, remove_tree};

/// How much all kept copies may take, and for how long they are kept.
pub const MAX_BYTES: u64 = 10 << 30;
/// See [`MAX_BYTES`].
pub const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// The largest card that is read.
const MAX_CARD: u64 = 1 << 20;
/// The most copies that are listed.
const MAX_COPIES: usize = 10_000;
/// A run holds its copy for longer than this; a command that lists copies does not.
const PATIENCE: Duration = Duration::from_millis(500);
/// What is being thrown away has a name that no copy can have, so that nobody takes what is left of it for a copy.
const GONE: &str = ".gone-";
/// A directory without a card that nobody has touched for so long was left by a process that is gone.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Files that are counted to know what a copy takes.
const MAX_COUNTED: usize = 1_000_000;

/// What a copy is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// The workspace it is a copy of.
    pub root: PathBuf,
    /// The session that works on it.
    pub session: String,
    /// The run that opened it.
    pub run: String,
    /// How the copy was made; absent until it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// When it was opened, in seconds since 1970.
    pub opened: u64,
    /// When it was kept; absent while a run works on it, and when its process died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// How many files it would change.
    #[serde(default)]
    pub files: usize,
    /// How many bytes it takes.
    #[serde(default)]
    pub bytes: u64,
    /// Paths of the workspace that commands must not read and that are not in the copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<PathBuf>,
}

impl Card {
    /// Whether it ever became a copy; a run that is killed at its very beginning leaves only the card.
    #[must_use]
    pub fn was_made(&self) -> bool {
        self.strategy.is_some()
    }
}

/// Why a copy cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShelfError {
    /// There is none of that name.
    #[error("there is no kept run `{0}`; `windlass status` lists them")]
    Unknown(String),
    /// Somebody works on it.
    #[error("a run works on `{0}` right now; wait until it ends, or end it")]
    Busy(String),
    /// The system refuses.
    #[error("{0}")]
    Io(String),
}

/// The directory of all copies.
#[derive(Debug, Clone)]
pub struct Shelf {
    dir: PathBuf,
}

/// A copy that is held: nobody else opens it until this is dropped.
#[derive(Debug)]
pub struct Slot {
    /// Its directory.
    pub(super) dir: PathBuf,
    /// What it is.
    pub card: Card,
    _lock: File,
}

impl Shelf {
    /// Copies in this directory, which is made when it is needed.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// A new copy's directory, under a name that is free.
    pub(super) fn create(&self, root: &Path, session: &str, run: &str) -> Result<Slot, ShelfError> {
        let failed =
            |what: &Path, err: std::io::Error| ShelfError::Io(format!("{}: {err}", what.display()));
        create_dir(&self.dir).map_err(|err| ShelfError::Io(err.message))?;
        for _ in 0..100 {
            let name = fresh_name();
            let dir = self.dir.join(&name);
            match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => {}
                Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(err) => return Err(failed(&dir, err)),
            }
            let lock = lock(&dir, &name)?;
            let card = Card {
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
            let slot = Slot {
                dir,
                card,
                _lock: lock,
            };
            slot.write_card()?;
            return Ok(slot);
        }
        Err(ShelfError::Io(format!(
            "no free name in {}; discard some kept runs",
            self.dir.display()
        )))
    }

    /// Takes hold of a copy.
    pub fn open(&self, name: &str) -> Result<Slot, ShelfError> {
        let dir = self.place(name)?;
        let card = read_card(&dir).ok_or_else(|| ShelfError::Unknown(name.to_owned()))?;
        let lock = lock(&dir, name)?;
        Ok(Slot {
            dir,
            card,
            _lock: lock,
        })
    }

    /// What a copy is, also while somebody works on it.
    pub fn card(&self, name: &str) -> Result<Card, ShelfError> {
        read_card(&self.place(name)?).ok_or_else(|| ShelfError::Unknown(name.to_owned()))
    }

    /// All copies, newest first, with whether somebody works on it.
    #[must_use]
    pub fn list(&self) -> Vec<(Card, bool)> {
        let mut cards: Vec<(Card, bool)> = entries(&self.dir, MAX_COPIES)
            .filter_map(|entry| {
                let mut card = read_card(&entry.path())?;
                let busy = is_held(&entry.path());
                if !busy && card.kept.is_none() {
                    // Its process died before it could count; it counts against the bound all the same.
                    card.bytes = size_of(&entry.path());
                    card.files = super::dead::count(&entry.path(), &card);
                }
                Some((card, busy))
            })
            .collect();
        cards.sort_by(|(a, _), (b, _)| b.opened.cmp(&a.opened).then_with(|| a.name.cmp(&b.name)));
        cards
    }

    /// Copies whose landing was broken off: their directories and names.
    pub(super) fn directories(&self) -> Vec<(String, PathBuf)> {
        entries(&self.dir, MAX_COPIES)
            .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
            .collect()
    }

    /// Removes what a process that died left of a copy: half thrown away, or never made.
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
                    && untouched().is_some_and(|since| since > ABANDONED)
            };
            if name.starts_with(GONE) || (no_card() && lock(&dir, &name).is_ok()) {
                // What cannot be removed now is tried again at the next start.
                let _ = remove_tree(&dir);
            }
        }
    }

    /// Copies to throw away so that the bounds hold, oldest first, each with the reason.
    #[must_use]
    pub fn surplus(&self, max_bytes: u64, max_age: Duration) -> Vec<(Card, String)> {
        let oldest = now().saturating_sub(max_age.as_secs());
        let mut total = 0_u64;
        let mut surplus = Vec::new();
        for (card, busy) in self.list() {
            if busy || super::untold::is_pending(&self.dir.join(&card.name)) {
                continue;
            }
            total = total.saturating_add(card.bytes);
            if !card.was_made() {
                surplus.push((card, "its run was killed before it began".to_owned()));
            } else if card.kept.unwrap_or(card.opened) < oldest {
                let days = max_age.as_secs() / 86_400;
                surplus.push((card, format!("it is older than {days} days")));
            } else if total > max_bytes {
                surplus.push((
                    card,
                    format!(
                        "all kept runs together take more than {} MB",
                        max_bytes >> 20
                    ),
                ));
            }
        }
        surplus
    }

    pub(super) fn place(&self, name: &str) -> Result<PathBuf, ShelfError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(ShelfError::Unknown(name.to_owned()));
        }
        Ok(self.dir.join(name))
    }
}

impl Slot {
    pub(super) fn write_card(&self) -> Result<(), ShelfError> {
        let failed = |err: std::io::Error| ShelfError::Io(format!("{}: {err}", self.dir.display()));
        let text = serde_json::to_vec(&self.card).map_err(|err| ShelfError::Io(err.to_string()))?;
        let draft = self.dir.join("card.new");
        let mut file = File::create(&draft).map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        std::fs::rename(&draft, self.dir.join("card.json")).map_err(failed)
    }

    /// A directory in it, made when it is missing.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf, ShelfError> {
        let path = self.dir.join(name);
        create_dir(&path).map_err(|err| ShelfError::Io(err.message))?;
        Ok(path)
    }

    /// Notes that it is kept, with what it holds.
    pub(super) fn keep(&mut self, files: usize) -> Result<(), ShelfError> {
        self.card.kept = Some(now());
        self.card.files = files;
        self.card.bytes = size_of(&self.dir);
        self.write_card()
    }

    /// Whether its landing is not finished, or perhaps not in the log. Discarding it would make undo impossible.
    #[must_use]
    pub fn has_pending_landing(&self) -> bool {
        super::untold::is_pending(&self.dir)
    }

    /// Throws it away: first its name, at once, then what it holds.
    pub fn discard(self) -> Result<(), ShelfError> {
        let gone = self.dir.with_file_name(format!("{GONE}{}", self.card.name));
        let removed = std::fs::rename(&self.dir, &gone).and_then(|()| remove_tree(&gone));
        removed.map_err(|err| {
            ShelfError::Io(format!("{} cannot be removed: {err}", self.dir.display()))
        })
    }
}

/// Waits a moment, because another command may be looking at it.
fn lock(dir: &Path, name: &str) -> Result<File, ShelfError> {
    let path = dir.join("lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = file.map_err(|err| ShelfError::Io(format!("{}: {err}", path.display())))?;
    match lock_within(file.into(), PATIENCE) {
        Ok(Some(lock)) => Ok(lock.into()),
        Ok(None) => Err(ShelfError::Busy(name.to_owned())),
        Err(err) => Err(ShelfError::Io(format!("{}: {err}", path.display()))),
    }
}

/// Whether a run holds a copy. Several commands can look at once.
fn is_held(dir: &Path) -> bool {
    File::open(dir.join("lock")).is_ok_and(|file| {
        let looked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
        looked == Err(rustix::io::Errno::WOULDBLOCK)
    })
}

fn read_card(dir: &Path) -> Option<Card> {
    let bytes = windlass_host::workspace::read_file(&dir.join("card.json"), MAX_CARD).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// What a tree takes, as far as it can be counted.
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
    fn a_copy_is_held_by_one_kept_by_name_and_gone_when_discarded() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(dir.path().join("transactions"));
        assert!(shelf.list().is_empty());
        let mut slot = shelf.create(Path::new("/w"), "s1", "run-1").unwrap();
        slot.card.strategy = Some(Strategy::Overlay);
        let name = slot.card.name.clone();
        assert!(matches!(shelf.open(&name), Err(ShelfError::Busy(_))) && shelf.list()[0].1);
        let locked = slot.folder("upper/shut").unwrap();
        std::fs::set_permissions(&locked, PermissionsExt::from_mode(0o000)).unwrap();
        slot.keep(3).unwrap();
        drop(slot);
        assert_eq!((shelf.list()[0].0.files, shelf.list()[0].1), (3, false));
        for bad in ["../x", "", "a/b", "A", "nobody-here-1"] {
            assert_eq!(
                shelf.open(bad).err(),
                Some(ShelfError::Unknown(bad.to_owned()))
            );
        }
        let killed = shelf.create(Path::new("/w"), "s1", "r2").unwrap();
        std::fs::write(
            killed.folder("upper").unwrap().join("big"),
            vec![1; 100_000],
        )
        .unwrap();
        let killed = (killed.card.name.clone(), drop(killed)).0;
        let counted = shelf
            .list()
            .into_iter()
            .find(|(card, _)| card.name == killed)
            .unwrap()
            .0;
        assert!(
            counted.bytes >= 100_000,
            "a run that was killed takes room, too: {counted:?}"
        );
        assert_eq!(
            shelf.surplus(MAX_BYTES, MAX_AGE)[0].0.name,
            killed,
            "what never began is nothing to keep"
        );
        shelf.open(&killed).unwrap().discard().unwrap();
        assert_eq!(shelf.surplus(0, MAX_AGE).len(), 1);
        assert_eq!(shelf.surplus(MAX_BYTES, MAX_AGE).len(), 0);
        shelf.open(&name).unwrap().discard().unwrap();
        assert!(shelf.list().is_empty());
    }

    #[test]
    fn a_command_that_lists_copies_does_not_keep_a_run_from_taking_one() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(dir.path().to_owned());
        let slot = shelf.create(Path::new("/w"), "s1", "run-1").unwrap();
        let name = slot.card.name.clone();
        let path = slot.dir.join("lock");
        drop(slot);
        let looks = File::open(path).unwrap();
        rustix::fs::flock(&looks, FlockOperation::LockShared).unwrap();
        assert!(
            !shelf.list()[0].1,
            "a command that lists copies does not hold one"
        );
        let (shelf, taker) = (shelf.clone(), name.clone());
        let (asked, asks) = std::sync::mpsc::channel();
        let taken = std::thread::spawn(move || {
            asked.send(()).unwrap();
            shelf.open(&taker).map(|slot| slot.card.name.clone())
        });
        asks.recv().unwrap();
        drop(looks);
        assert_eq!(taken.join().unwrap(), Ok(name));
    }

    #[test]
    fn what_a_process_that_died_left_of_a_copy_goes() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(dir.path().to_owned());
        let slot = shelf.create(Path::new("/w"), "s1", "run-1").unwrap();
        let make = |name: &str| {
            std::fs::create_dir_all(dir.path().join(name).join("upper")).unwrap();
            dir.path().join(name)
        };
        let (half, fresh, old) = (
            make(".gone-warm-willow-1"),
            make("calm-reef-2"),
            make("calm-reef-3"),
        );
        let long_ago = SystemTime::now() - 2 * ABANDONED;
        File::open(&old).unwrap().set_modified(long_ago).unwrap();
        File::open(&slot.dir)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        shelf.sweep();
        assert!(
            !half.exists() && !old.exists(),
            "what is half gone or was never made goes"
        );
        assert!(
            fresh.exists() && slot.dir.exists(),
            "what is being made stays, and so does what has a card"
        );
    }
}
