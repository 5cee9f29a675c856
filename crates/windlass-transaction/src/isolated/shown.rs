//! Swaps as people and models read them: what happened to each file, with a diff where it is text and not too long.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{Change, FileChange, Files};
use windlass_edit::diff::unified;

use windlass_host::workspace::Root;

/// The largest file that is compared line by line, and the longest diff.
const MAX_COMPARED: u64 = 1 << 20;
const MAX_DIFF: usize = 64 * 1024;

/// Every swap as a change; a file that went away and one that came with the same bytes are a move.
pub(super) fn changes(
    swaps: &[Swap],
    before: &Root,
    after: &Root,
    known: &mut BTreeMap<String, (Swap, FileChange)>,
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
        let change = match known.get(&swap.path) {
            Some((same, change)) if same == swap => change.clone(),
            _ => {
                let change = compare(swap, before, after);
                known.insert(swap.path.clone(), (swap.clone(), change.clone()));
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
    let change = match (swap.before.is_there(), swap.after.is_there()) {
        (false, _) => Change::Created,
        (true, false) => Change::Deleted,
        (true, true) => Change::Modified,
    };
    let text = |image: &Image, root: &Root| -> Option<String> {
        match image {
            Image::Absent => Some(String::new()),
            Image::Link { target } => Some(format!("{target}\n")),
            Image::File { size, .. } if *size > MAX_COMPARED => None,
            Image::File { .. } => {
                let bytes = root.read(&swap.path, MAX_COMPARED).ok()?;
                String::from_utf8(bytes)
                    .ok()
                    .filter(|text| !text.contains('\0'))
            }
        }
    };
    let texts = text(&swap.before, before).zip(text(&swap.after, after));
    let (added, removed, diff) = texts.map_or((0, 0, None), |(old, new)| {
        let name = |image: &Image, side: &str| match image.is_there() {
            true => format!("{side}/{}", swap.path),
            false => "/dev/null".to_owned(),
        };
        let diff = unified(
            &name(&swap.before, "a"),
            &name(&swap.after, "b"),
            &old,
            &new,
            MAX_DIFF,
        );
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        (
            count(diff.added),
            count(diff.removed),
            (!diff.cut && !diff.text.is_empty()).then_some(diff.text),
        )
    });
    FileChange {
        path: swap.path.clone(),
        change,
        added,
        removed,
        diff,
    }
}

/// A path for people.
pub(super) fn lossy(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}
