//! Swaps the file at a path as fast as possible, while the product works on it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;

use crate::fixture::CaseFixture;

/// A path, and the files that are swapped with it in turn.
pub(crate) struct Race {
    path: PathBuf,
    /// Where the other files are between swaps.
    others: Vec<PathBuf>,
    /// The number of swaps that the case wants.
    pub(crate) rounds: usize,
}

impl Race {
    /// Creates the other files next to the workspace. The targets `dir` and `file` stand for the file that is already
    /// at the path.
    pub(crate) fn new(fixture: &CaseFixture, op: &Value) -> Result<Self, String> {
        let path = fixture.own_path(op["path"].as_str().ok_or("setup `race` needs `path`")?)?;
        let rounds = op["rounds"].as_u64().unwrap_or(2000) as usize;
        let waiting = fixture.base.join("swap");
        let io = |err: std::io::Error| format!("setup `race`: {err}");
        std::fs::create_dir_all(&waiting).map_err(io)?;
        let mut others = Vec::new();
        for target in
            crate::words(&op["targets"]).filter(|target| !matches!(*target, "dir" | "file"))
        {
            let other = waiting.join(format!("{}", others.len()));
            std::os::unix::fs::symlink(fixture.filled(target), &other).map_err(io)?;
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

    /// Swaps until `stop` is set, and leaves the path as it was.
    pub(crate) fn swap(&self, stop: &AtomicBool, swaps: &AtomicUsize) {
        let exchange = |other: &Path| {
            renameat_with(CWD, &self.path, CWD, other, RenameFlags::EXCHANGE).is_ok()
        };
        let most = self.rounds.saturating_mul(5_000);
        let mut delay = UnevenDelay(0x9e37_79b9);
        for other in self.others.iter().cycle().take(most) {
            if stop.load(Ordering::Relaxed) && swaps.load(Ordering::Relaxed) >= self.rounds {
                return;
            }
            if exchange(other) {
                // The product may have written into the swapped directory; empty it, so that the next write creates a
                // file again.
                empty(other);
                delay.linger();
                exchange(other);
                swaps.fetch_add(2, Ordering::Relaxed);
                delay.linger();
            }
        }
    }
}

/// Delays of uneven length, so that a swap hits every moment between a check and a use. They are the same in every run.
struct UnevenDelay(u32);

impl UnevenDelay {
    fn linger(&mut self) {
        // Xorshift: variety is enough, no real randomness is needed.
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
