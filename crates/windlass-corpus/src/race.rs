//! Swaps what is at a path as fast as it can, while the product works on it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;

use crate::fixture::Fixture;

/// One path and what takes its place in turn.
pub(crate) struct Race {
    path: PathBuf,
    /// Where the others wait.
    others: Vec<PathBuf>,
    /// Swaps the case wants.
    pub(crate) rounds: usize,
}

impl Race {
    /// Puts the other targets beside the workspace. `dir` and `file` stand for what is at the path already.
    pub(crate) fn new(place: &Fixture, op: &Value) -> Result<Self, String> {
        let path = place.own_path(op["path"].as_str().ok_or("setup `race` needs `path`")?)?;
        let rounds = op["rounds"].as_u64().unwrap_or(2000) as usize;
        let waiting = place.base.join("swap");
        let io = |err: std::io::Error| format!("setup `race`: {err}");
        std::fs::create_dir_all(&waiting).map_err(io)?;
        let mut others = Vec::new();
        for target in
            crate::words(&op["targets"]).filter(|target| !matches!(*target, "dir" | "file"))
        {
            let other = waiting.join(format!("{}", others.len()));
            std::os::unix::fs::symlink(place.filled(target), &other).map_err(io)?;
            others.push(other);
        }
        if others.is_empty() {
            return Err("setup `race` needs a target to swap with".to_owned());
        }
        Ok(Self {
            path,
            others,
            rounds,
        })
    }

    /// Swaps until told to stop, and leaves the path as it was.
    pub(crate) fn swap(&self, stop: &AtomicBool, swaps: &AtomicUsize) {
        let exchange = |other: &Path| {
            renameat_with(CWD, &self.path, CWD, other, RenameFlags::EXCHANGE).is_ok()
        };
        let most = self.rounds.saturating_mul(5_000);
        let mut chance = Chance(0x9e37_79b9);
        for other in self.others.iter().cycle().take(most) {
            if stop.load(Ordering::Relaxed) && swaps.load(Ordering::Relaxed) >= self.rounds {
                return;
            }
            if exchange(other) {
                // What was written stands aside now; it makes room, so that the next write creates again.
                empty(other);
                chance.linger();
                exchange(other);
                swaps.fetch_add(2, Ordering::Relaxed);
                chance.linger();
            }
        }
    }
}

/// Waits of uneven length, so that every moment between a check and a use is hit. The same for every run.
struct Chance(u32);

impl Chance {
    fn linger(&mut self) {
        // Xorshift: no randomness is needed, only variety.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        for _ in 0..self.0 % 4096 {
            std::hint::spin_loop();
        }
    }
}

fn empty(folder: &Path) {
    if folder.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
