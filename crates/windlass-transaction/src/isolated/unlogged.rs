//! Landings of isolated runs that are not in the log yet. Before a landing begins, its record is stored next to the
//! copy. When the log has the landing, the record is deleted with the copy. If the process died in between, the next
//! process adds the landing to the log, so that it can be undone.

use std::fs::File;
use std::io::{self, BufWriter, IntoInnerError, Read, Seek};
use std::path::Path;

use serde::{Deserialize, Serialize};
use windlass_core::image::Swap;
use windlass_core::terms::Strategy;
use windlass_core::workspace::Landed;

use super::kept_runs::{KeptRun, KeptRunError, KeptRuns};
use super::stat_snapshot::StatSnapshot;
use crate::landing::image_at;
use crate::path::path_of;
use windlass_host::workspace::Root;

/// The record while the landing is in progress.
const LANDING: &str = "landing.json";
/// The record after the landing.
const LANDED: &str = "landed.json";
/// Reserves disk space for the log event of a landing before the first file changes; it is freed for the event.
const RESERVED: &str = "landing.room";
/// Bytes by which the event and its neighbours may be longer than the record.
const RESERVED_SLACK: u64 = 64 << 10;
/// Bytes that are written at once.
const PIECE: usize = 64 << 10;
/// Maximum bytes of a record.
const MAX_READ: u64 = 256 << 20;

/// A landing with everything that its log event needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnloggedRunLanding {
    pub landed: Landed,
    /// Hash of the tree that was judged.
    pub tree_hash: Option<String>,
}

/// Stores the record. Call it before the first file changes.
pub(super) fn begin(dir: &Path, record: &UnloggedRunLanding) -> std::io::Result<()> {
    let draft = dir.join("landing.new");
    // The record of a large landing has many megabytes, so it is not built in memory.
    let mut file = BufWriter::with_capacity(PIECE, File::create(&draft)?);
    serde_json::to_writer(&mut file, record)?;
    let mut file = file.into_inner().map_err(IntoInnerError::into_error)?;
    let length = file.stream_position()?;
    file.sync_all()?;
    let mut reserved = BufWriter::with_capacity(PIECE, File::create(dir.join(RESERVED))?);
    io::copy(
        &mut io::repeat(0).take(length + RESERVED_SLACK),
        &mut reserved,
    )?;
    let reserved = reserved.into_inner().map_err(IntoInnerError::into_error)?;
    reserved.sync_all()?;
    std::fs::rename(draft, dir.join(LANDING))
}

/// Records that the landing is in the tree, or that it was rolled back.
pub(super) fn settle(dir: &Path, landed: bool) {
    let _ = match landed {
        true => std::fs::rename(dir.join(LANDING), dir.join(LANDED)),
        false => std::fs::remove_file(dir.join(LANDING)),
    };
    let _ = std::fs::remove_file(dir.join(RESERVED));
}

/// Updates the baseline after a rollback. The restored files have their old content but new stat records, by which they
/// would count as changed. Files that another program changed keep their old records. Returns the updated snapshot.
pub(super) fn refresh_baseline(dir: &Path, root: &Root) -> Option<StatSnapshot> {
    let bytes = windlass_host::workspace::read_file(&dir.join(LANDING), MAX_READ).ok()?;
    let record: UnloggedRunLanding = serde_json::from_slice(&bytes).ok()?;
    let mut snapshot = StatSnapshot::read(&dir.join("survey"))?;
    let same = |swap: &&Swap| image_at(root, &swap.path).is_ok_and(|now| now == swap.before);
    let same = record.landed.swaps.iter().filter(same);
    snapshot.refresh(root, same.map(|swap| path_of(&swap.path)));
    snapshot.write(&dir.join("survey")).ok()?;
    Some(snapshot)
}

/// Whether a landing of this copy is unfinished, or may be missing in the log. Such a copy must not be discarded.
pub(super) fn is_pending(dir: &Path) -> bool {
    let marks = [dir.join(LANDING), dir.join(LANDED)];
    let journal = super::landing::journal_of(dir).join("journal.json");
    marks.iter().chain([&journal]).any(|mark| mark.exists())
}

/// Copies that landed and still exist, with their locks held and the records for the log.
#[must_use]
pub fn unlogged_run_landings(kept_runs: &KeptRuns) -> Vec<(KeptRun, UnloggedRunLanding)> {
    let mut all = Vec::new();
    for (name, dir) in kept_runs.directories() {
        let path = dir.join(LANDED);
        // In the common case there is no record, and this costs one system call.
        if !path.is_file() {
            continue;
        }
        // If a process works on the copy, it logs the landing itself.
        let Ok(slot) = kept_runs.open(&name) else {
            continue;
        };
        let read = windlass_host::workspace::read_file(&path, MAX_READ).ok();
        if let Some(record) = read.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            all.push((slot, record));
        }
    }
    all
}

/// Call it when the log has the landing. Deletes the copy, unless git was used in it: its commits may exist nowhere
/// else.
pub fn landing_was_logged(slot: KeptRun) -> Result<(), KeptRunError> {
    let is_layer = slot.meta.strategy == Some(Strategy::Overlay);
    if is_layer && !git_was_touched(&slot.dir) {
        return slot.discard();
    }
    let path = slot.dir.join(LANDED);
    std::fs::remove_file(&path)
        .map_err(|err| KeptRunError::Io(format!("{}: {err}", path.display())))
}

/// Whether the git directory of an overlay was written; decided without executing anything.
pub(super) fn git_was_touched(dir: &Path) -> bool {
    dir.join("upper/.git").symlink_metadata().is_ok()
        || std::fs::read_dir(dir.join("git-upper"))
            .is_ok_and(|mut entries| entries.next().is_some())
}
