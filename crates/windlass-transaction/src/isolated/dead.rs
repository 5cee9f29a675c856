//! The changes in the copy of a run whose process died, read from its folders without mounting anything.

use std::collections::BTreeMap;
use std::path::Path;

use windlass_core::image::{Image, Swap};
use windlass_core::terms::Strategy;
use windlass_core::workspace::FileChange;

use super::check_tree::looked;
use super::copied;
use super::layer::{Layers, Touched};
use super::shelf::Card;
use super::shown;
use super::survey::Survey;
use crate::path::text_of;
use windlass_host::workspace::Root;

/// The number of files that the copy would change.
pub(super) fn count(dir: &Path, card: &Card) -> usize {
    swaps(dir, card).map_or(0, |(swaps, ..)| swaps.len())
}

/// The changes with counts of lines and without diffs.
pub(super) fn changes(dir: &Path, card: &Card) -> Option<Vec<FileChange>> {
    let (swaps, base, own) = swaps(dir, card)?;
    let changes = shown::changes(&swaps, &base, &own, &mut BTreeMap::new());
    let without_diff = |change| FileChange {
        diff: None,
        ..change
    };
    Some(changes.into_iter().map(without_diff).collect())
}

/// By content, with the user's tree and the folder that took the writes.
fn swaps(dir: &Path, card: &Card) -> Option<(Vec<Swap>, Root, Root)> {
    let base = Root::open(&card.root).ok()?;
    let (own, touched) = match card.strategy? {
        Strategy::Overlay => {
            let upper = Root::open(&dir.join("upper")).ok()?;
            let layers = Layers {
                upper: &upper,
                lower: &base,
                merged: &base,
            };
            let touched = layers.touched().ok()?;
            (upper, touched)
        }
        _ => {
            let own = Root::open(&dir.join("tree")).ok()?;
            let touched = Touched::between(&Survey::read(&dir.join("copied"))?, &own);
            (own, touched)
        }
    };
    let shown = |path: &&Path| !copied::is_hidden(&card.hidden, path);
    let paths = touched.sources.iter().map(|path| path.as_path());
    let swap = |path: &Path| {
        let path = text_of(path);
        let before = looked(&base, &path).ok()?;
        let after = looked(&own, &path).unwrap_or(Image::Absent);
        (before != after).then_some(Swap {
            path,
            before,
            after,
        })
    };
    let swaps = paths.filter(shown).filter_map(swap).collect();
    Some((swaps, base, own))
}
