//! Reads the changes in the copy of a run whose process died, without mounting anything.

use std::path::Path;

use windlass_core::image::{Image, Swap};
use windlass_core::terms::Strategy;
use windlass_core::workspace::FileChange;

use super::check_tree::image_or_absent;
use super::copy_tree;
use super::kept_runs::KeptRunMeta;
use super::overlay_changes::{OverlayTrees, TouchedPaths};
use super::render::{self, RenderCache};
use super::stat_snapshot::StatSnapshot;
use crate::path::text_of;
use windlass_host::workspace::Root;

pub(super) fn count(dir: &Path, meta: &KeptRunMeta) -> usize {
    swaps(dir, meta).map_or(0, |(swaps, ..)| swaps.len())
}

/// The changes with line counts and without diffs.
pub(super) fn changes(dir: &Path, meta: &KeptRunMeta) -> Option<Vec<FileChange>> {
    let (swaps, base, own) = swaps(dir, meta)?;
    let changes = render::changes(&swaps, &base, &own, &mut RenderCache::default());
    let without_diff = |change| FileChange {
        diff: None,
        ..change
    };
    Some(changes.into_iter().map(without_diff).collect())
}

/// The swaps, the user's tree, and the directory that received the writes.
fn swaps(dir: &Path, meta: &KeptRunMeta) -> Option<(Vec<Swap>, Root, Root)> {
    let base = Root::open(&meta.root).ok()?;
    let (own, touched) = match meta.strategy? {
        Strategy::Overlay => {
            let upper = Root::open(&dir.join("upper")).ok()?;
            let layers = OverlayTrees {
                upper: &upper,
                lower: &base,
                merged: &base,
            };
            let touched = layers.touched().ok()?;
            (upper, touched)
        }
        _ => {
            let own = Root::open(&dir.join("tree")).ok()?;
            let touched = TouchedPaths::between(&StatSnapshot::read(&dir.join("copied"))?, &own);
            (own, touched)
        }
    };
    let shown = |path: &&Path| !copy_tree::is_hidden(&meta.hidden, path);
    let paths = touched.sources.iter().map(|path| path.as_path());
    let swap = |path: &Path| {
        let path = text_of(path);
        let before = image_or_absent(&base, &path).ok()?;
        let after = image_or_absent(&own, &path).unwrap_or(Image::Absent);
        (before != after).then_some(Swap {
            path,
            before,
            after,
        })
    };
    let swaps = paths.filter(shown).filter_map(swap).collect();
    Some((swaps, base, own))
}
