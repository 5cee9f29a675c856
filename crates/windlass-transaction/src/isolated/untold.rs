//! Landings that no log tells of yet. What is about to land is written down beside the copy, and goes away with it when
//! the log has it; where the process died in between, whoever comes next tells the log, so that it can be undone.

use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use windlass_core::image::Swap;
use windlass_core::terms::Strategy;
use windlass_core::workspace::Landed;

use super::shelf::{Shelf, ShelfError, Slot};
use super::survey::Survey;
use crate::landing::look;
use crate::path::path_of;
use windlass_host::workspace::Root;

/// What is landing, and what has landed.
const LANDING: &str = "landing.json";
const LANDED: &str = "landed.json";
/// Room for the event that tells of a landing, taken before its first file is touched, and given free for the event.
const ROOM: &str = "landing.room";
/// The event, and those around it, are at most so much longer than what is written down here.
const ROOM_SLACK: usize = 64 << 10;
/// The longest that is read.
const MAX_READ: u64 = 256 << 20;

/// A landing as the log will tell of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untold {
    /// What landed.
    pub landed: Landed,
    /// The hash of what was judged.
    pub tree_hash: Option<String>,
}

/// To be called before the first file is touched.
pub(super) fn begin(dir: &Path, untold: &Untold) -> std::io::Result<()> {
    let draft = dir.join("landing.new");
    let mut file = std::fs::File::create(&draft)?;
    let text = serde_json::to_vec(untold)?;
    file.write_all(&text)?;
    file.sync_all()?;
    let mut room = std::fs::File::create(dir.join(ROOM))?;
    room.write_all(&vec![0; text.len() + ROOM_SLACK])?;
    room.sync_all()?;
    std::fs::rename(draft, dir.join(LANDING))
}

/// It is in the tree, or it is not and will not be.
pub(super) fn settle(dir: &Path, landed: bool) {
    let _ = match landed {
        true => std::fs::rename(dir.join(LANDING), dir.join(LANDED)),
        false => std::fs::remove_file(dir.join(LANDING)),
    };
    let _ = std::fs::remove_file(dir.join(ROOM));
}

/// A landing was rolled back: its files are as they were and have new records, by which they would be taken for changed.
/// Gives the survey with their records of now. Files that another program changed keep the old ones.
pub(super) fn refresh_survey(dir: &Path, root: &Root) -> Option<Survey> {
    let bytes = windlass_host::workspace::read_file(&dir.join(LANDING), MAX_READ).ok()?;
    let untold: Untold = serde_json::from_slice(&bytes).ok()?;
    let mut survey = Survey::read(&dir.join("survey"))?;
    let same = |swap: &&Swap| look(root, &swap.path).is_ok_and(|now| now == swap.before);
    let same = untold.landed.swaps.iter().filter(same);
    survey.refresh(root, same.map(|swap| path_of(&swap.path)));
    survey.write(&dir.join("survey")).ok()?;
    Some(survey)
}

/// Whether a landing of this copy is not finished, or perhaps not in the log: then it must not be discarded.
pub(super) fn is_pending(dir: &Path) -> bool {
    let marks = [dir.join(LANDING), dir.join(LANDED)];
    let journal = super::landing::journal_of(dir).join("journal.json");
    marks.iter().chain([&journal]).any(|mark| mark.exists())
}

/// Copies that have landed and are still here, each held, with what the log should tell.
#[must_use]
pub fn untold_landings(shelf: &Shelf) -> Vec<(Slot, Untold)> {
    let mut all = Vec::new();
    for (name, dir) in shelf.directories() {
        let place = dir.join(LANDED);
        // The common case costs one call: there is none.
        if !place.is_file() {
            continue;
        }
        // Who works on it tells of it.
        let Ok(slot) = shelf.open(&name) else {
            continue;
        };
        let read = windlass_host::workspace::read_file(&place, MAX_READ).ok();
        if let Some(untold) = read.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            all.push((slot, untold));
        }
    }
    all
}

/// The log has it: the copy goes, unless git was used in it, whose commits may be nowhere else.
pub fn landing_was_told(slot: Slot) -> Result<(), ShelfError> {
    let is_layer = slot.card.strategy == Some(Strategy::Overlay);
    if is_layer && !git_was_touched(&slot.dir) {
        return slot.discard();
    }
    let place = slot.dir.join(LANDED);
    std::fs::remove_file(&place)
        .map_err(|err| ShelfError::Io(format!("{}: {err}", place.display())))
}

/// Whether anything in the git directory of a layer was written, seen without running anything.
pub(super) fn git_was_touched(dir: &Path) -> bool {
    dir.join("upper/.git").symlink_metadata().is_ok()
        || std::fs::read_dir(dir.join("git-upper"))
            .is_ok_and(|mut entries| entries.next().is_some())
}
