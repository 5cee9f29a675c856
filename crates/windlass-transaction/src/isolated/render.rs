//! Renders swaps for people and models: the change of each file, with a diff if it is text and not too long.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io::Read;

use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{Change, FileChange};

use crate::landing::undo::render;
use crate::path::path_of;
use windlass_host::workspace::Root;

/// Largest file that is compared line by line.
const MAX_COMPARED: u64 = 1 << 20;

/// The descriptions of the last comparison.
#[derive(Default)]
pub(super) struct RenderCache {
    /// By path, each with the hash of its swap, which takes a twentieth of the memory of the swap.
    shown: BTreeMap<String, (u64, FileChange)>,
    /// Its keys are random, so that no agent can write files of which two have the same hash.
    hasher: RandomState,
}

impl RenderCache {
    /// Removes the descriptions of all other paths.
    pub(super) fn retain(&mut self, swaps: &[Swap]) {
        let paths: BTreeSet<&str> = swaps.iter().map(|swap| swap.path.as_str()).collect();
        self.shown.retain(|path, _| paths.contains(path.as_str()));
    }
}

/// Describes every swap. A deleted file and a created file with the same bytes become a move.
pub(super) fn changes(
    swaps: &[Swap],
    before: &Root,
    after: &Root,
    known: &mut RenderCache,
) -> Vec<FileChange> {
    let gone: BTreeMap<&str, &str> = swaps
        .iter()
        .filter_map(|swap| Some((hash(&swap.before)?, swap)))
        .fold(BTreeMap::new(), |mut gone, (hash, swap)| {
            if !swap.after.is_there() {
                gone.entry(hash).or_insert(swap.path.as_str());
            }
            gone
        });
    let mut all = Vec::with_capacity(swaps.len());
    for swap in swaps {
        let hash_of_swap = known.hasher.hash_one(swap);
        let change = match known.shown.get(&swap.path) {
            Some((same, change)) if *same == hash_of_swap => change.clone(),
            _ => {
                let change = compare(swap, before, after);
                let cached = (hash_of_swap, change.clone());
                known.shown.insert(swap.path.clone(), cached);
                change
            }
        };
        let from = (change.change == Change::Created)
            .then(|| hash(&swap.after))
            .flatten();
        all.push(match from.and_then(|hash| gone.get(hash)) {
            Some(from) => FileChange {
                change: Change::MovedFrom((*from).to_owned()),
                ..change
            },
            None => change,
        });
    }
    all
}

fn hash(image: &Image) -> Option<&str> {
    match image {
        Image::File { hash, size, .. } if *size > 0 => Some(hash),
        _ => None,
    }
}

fn compare(swap: &Swap, before: &Root, after: &Root) -> FileChange {
    let text = |image: &Image, root: &Root| -> Option<String> {
        match image {
            Image::Absent => Some(String::new()),
            Image::Link { target } => Some(format!("{target}\n")),
            Image::File { size, .. } if *size > MAX_COMPARED => None,
            Image::File { .. } => {
                let (file, _) = root.open_file(&path_of(&swap.path)).ok()?;
                let mut text = String::new();
                file.take(MAX_COMPARED + 1).read_to_string(&mut text).ok()?;
                Some(text)
            }
        }
    };
    render(
        swap,
        text(&swap.before, before).zip(text(&swap.after, after)),
    )
}
