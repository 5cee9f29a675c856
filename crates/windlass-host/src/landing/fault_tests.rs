//! Landing and recovery interrupted at every system call: the tree is the old one or the new one afterwards, and
//! what somebody wrote meanwhile is there.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::rc::Rc;

use rustix::io::Errno;

use super::disk::Before;
use super::recover::recover_through;
use super::testing::{Scene, change, old_tree, tree_of};
use super::*;

type Tree = BTreeMap<String, (char, u32, Vec<u8>)>;

/// What the file system cannot do.
#[derive(Clone, Copy, PartialEq)]
enum Lacks {
    Nothing,
    Exchange,
    ExchangeAndNoReplace,
}

impl Lacks {
    fn refuses(self, what: &str) -> Result<(), Errno> {
        match (self, what) {
            (Self::Exchange | Self::ExchangeAndNoReplace, "exchange") => Err(Errno::INVAL),
            (Self::ExchangeAndNoReplace, "rename_new") => Err(Errno::INVAL),
            _ => Ok(()),
        }
    }
}

fn scene() -> (Scene, Vec<Swap>) {
    let scene = Scene::new();
    old_tree(&scene);
    let swaps = change(&scene);
    (scene, swaps)
}

fn landed(scene: &Scene, swaps: &[Swap], disk: &Disk) -> Result<Done, LandError> {
    land_through(disk, &scene.root(), swaps, &scene.contents, &scene.contents, &scene.journal())
}

fn recovered(scene: &Scene) -> Option<Recovered> {
    recover(&scene.journal(), &scene.contents).unwrap()
}

/// The old and the new tree, and how many calls it takes from one to the other.
fn ends(lacks: Lacks) -> (Tree, Tree, u64) {
    let (scene, swaps) = scene();
    let old = tree_of(&scene.tree());
    let disk = Disk::watched(Box::new(move |_, what| lacks.refuses(what)));
    assert_eq!(landed(&scene, &swaps, &disk).unwrap().not_kept, []);
    let new = tree_of(&scene.tree());
    for swap in &swaps {
        if swap.path != "plain" && !swap.path.starts_with("dir/") {
            assert_eq!(look(&scene.root(), &swap.path).unwrap(), swap.after, "{}", swap.path);
        }
    }
    assert!(!new.contains_key("gone") && new.contains_key("keep"));
    (old, new, disk.calls())
}

/// From the call `at` on, nothing happens any more.
fn dies(at: u64, lacks: Lacks) -> Before {
    Box::new(move |call, what| if call >= at { Err(Errno::IO) } else { lacks.refuses(what) })
}

fn fails(at: u64, errno: Errno) -> Before {
    Box::new(move |call, _| if call == at { Err(errno) } else { Ok(()) })
}

#[track_caller]
fn check_whole(scene: &Scene, old: &Tree, new: &Tree, case: &str) -> bool {
    let now = tree_of(&scene.tree());
    assert!(now == *old || now == *new, "{case}: neither old nor new: {now:#?}");
    assert!(!scene.journal().join("journal.json").exists(), "{case}: the journal is still there");
    now == *new
}

/// The process dies at every call; then recovery runs. Both ends must be seen.
#[track_caller]
fn check_death(lacks: Lacks) {
    let (old, new, calls) = ends(lacks);
    let mut ended = [0, 0];
    for at in 1..=calls {
        let (scene, swaps) = scene();
        let done = landed(&scene, &swaps, &Disk::watched(dies(at, lacks)));
        let found = recovered(&scene);
        let is_new = check_whole(&scene, &old, &new, &format!("dead at {at}"));
        assert!(done.is_err() || is_new, "dead at {at}: said to be landed and is not");
        if let Some(found) = found {
            assert_eq!((found.landed, found.left), (is_new, vec![]), "dead at {at}");
        }
        ended[usize::from(is_new)] += 1;
        assert_eq!(recovered(&scene), None, "dead at {at}: recovered twice");
    }
    assert!(ended[0] > 20 && ended[1] > 20, "{ended:?} of {calls}");
}

#[test]
fn a_process_that_dies_at_any_call_leaves_the_old_tree_or_the_new() {
    check_death(Lacks::Nothing);
}

#[test]
fn the_same_where_names_cannot_be_exchanged() {
    check_death(Lacks::Exchange);
}

#[test]
fn the_same_where_renames_replace() {
    check_death(Lacks::ExchangeAndNoReplace);
}

#[test]
fn recovery_that_dies_at_any_call_is_done_by_the_next() {
    let (old, new, calls) = ends(Lacks::Nothing);
    let mut died = 0;
    for at in (1..=calls).step_by(23) {
        // Another first call for each, so that over all of them every call of recovery is met.
        for again in ((at % 19) + 1..).step_by(19) {
            let (scene, swaps) = scene();
            let _ = landed(&scene, &swaps, &Disk::watched(dies(at, Lacks::Nothing)));
            let disk = Disk::watched(dies(again, Lacks::Nothing));
            let over = recover_through(&disk, &scene.journal(), &scene.contents).is_ok() && disk.calls() < again;
            recovered(&scene);
            check_whole(&scene, &old, &new, &format!("dead at {at}, recovery at {again}"));
            died += u32::from(!over);
            if over {
                break;
            }
        }
    }
    assert!(died > 100, "{died}");
}

#[test]
fn a_call_that_fails_anywhere_leaves_the_old_tree_or_the_new() {
    let (old, new, calls) = ends(Lacks::Nothing);
    for errno in [Errno::IO, Errno::NOSPC, Errno::ACCESS] {
        for at in 1..=calls {
            let (scene, swaps) = scene();
            let done = landed(&scene, &swaps, &Disk::watched(fails(at, errno)));
            let case = format!("{errno} at {at}: {done:?}");
            // Taking back met no second failure, so the tree is whole before recovery; that only cleans up.
            let now = tree_of(&scene.tree());
            let now: Tree = now.into_iter().filter(|(path, _)| !path.contains(STAGING)).collect();
            assert!(now == if done.is_ok() { new.clone() } else { old.clone() }, "{case}: {now:#?}");
            recovered(&scene);
            assert_eq!(check_whole(&scene, &old, &new, &case), done.is_ok(), "{case}");
        }
    }
}

/// What somebody does to a path: leaves a file with their bytes, or nothing. Says whether there was something to do.
type Deed = (&'static str, fn(&Path) -> bool);

const THEIRS: &str = "mine, says somebody\n";

fn overwrite(path: &Path) -> bool {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, THEIRS).unwrap();
    true
}

fn save(path: &Path) -> bool {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, THEIRS).unwrap();
    std::fs::rename(draft, path).unwrap();
    true
}

fn delete(path: &Path) -> bool {
    std::fs::remove_file(path).is_ok()
}

const DEEDS: &[Deed] = &[
    ("a.txt", overwrite),
    ("a.txt", save),
    ("a.txt", delete),
    ("new/one/two", overwrite),
    ("gone/x", overwrite),
    ("gone/x", delete),
    ("conv", save),
];

/// All that is not a directory, without one path.
fn others(tree: &Tree, path: &str) -> Tree {
    let other = |(name, seen): &(&String, &(char, u32, Vec<u8>))| **name != *path && seen.0 != 'd';
    tree.iter().filter(other).map(|(name, seen)| (name.clone(), seen.clone())).collect()
}

#[track_caller]
fn check_theirs(scene: &Scene, (old, new): (&Tree, &Tree), (path, deed): Deed, case: &str) {
    let found = std::fs::read_to_string(scene.tree().join(path)).ok();
    let wanted = (!std::ptr::fn_addr_eq(deed, delete as fn(&Path) -> bool)).then(|| THEIRS.to_owned());
    assert_eq!(found, wanted, "{case}");
    let now = others(&tree_of(&scene.tree()), path);
    let whole = now == others(old, path) || now == others(new, path);
    assert!(whole, "{case}: the rest is neither old nor new: {now:#?}");
    assert!(!scene.journal().join("journal.json").exists(), "{case}: the journal is still there");
}

/// Somebody does something at every call of a landing.
#[track_caller]
fn check_meddling(lacks: Lacks) {
    let (old, new, calls) = ends(lacks);
    for (number, deed) in DEEDS.iter().enumerate() {
        for at in (1 + number as u64 % 7..=calls).step_by(7) {
            let (scene, swaps) = scene();
            let path = scene.tree().join(deed.0);
            let (meddle, done) = (deed.1, Rc::new(Cell::new(false)));
            let did = Rc::clone(&done);
            let disk = Disk::watched(Box::new(move |call, what| {
                if call == at {
                    done.set(meddle(&path));
                }
                lacks.refuses(what)
            }));
            let done = landed(&scene, &swaps, &disk);
            let case = format!("deed {number} at {at}: {done:?}");
            if did.get() {
                check_theirs(&scene, (&old, &new), *deed, &case);
            }
        }
    }
}

#[test]
fn what_somebody_writes_during_a_landing_is_there_afterwards() {
    check_meddling(Lacks::Nothing);
}

#[test]
fn the_same_by_two_renames() {
    check_meddling(Lacks::Exchange);
}

#[test]
fn what_somebody_writes_before_recovery_is_there_afterwards() {
    let (old, new, calls) = ends(Lacks::Nothing);
    for (number, deed) in DEEDS.iter().enumerate() {
        for at in (1 + number as u64 % 7..=calls).step_by(7) {
            let (scene, swaps) = scene();
            let _ = landed(&scene, &swaps, &Disk::watched(dies(at, Lacks::Nothing)));
            let did = (deed.1)(&scene.tree().join(deed.0));
            let found = recovered(&scene);
            if did {
                check_theirs(&scene, (&old, &new), *deed, &format!("deed {number}, dead at {at}: {found:?}"));
            }
        }
    }
}

#[test]
fn what_is_written_through_an_open_handle_before_it_is_kept_stops_the_landing() {
    let (scene, swaps) = scene();
    let old = tree_of(&scene.tree());
    let handle = std::fs::OpenOptions::new().append(true).open(scene.tree().join("a.txt")).unwrap();
    let (handle, swapped) = (Rc::new(handle), Rc::new(Cell::new(false)));
    let disk = Disk::watched(Box::new(move |_, what| {
        // The file is rewound when it is about to be kept, after every path was swapped.
        if what == "rewind" && !swapped.replace(true) {
            (&*handle).write_all(b"and a line\n").unwrap();
        }
        Ok(())
    }));
    let err = landed(&scene, &swaps, &disk).unwrap_err();
    assert!(matches!(&err, LandError::Conflict { refused, .. } if refused[0].path == "a.txt"), "{err}");
    let now = tree_of(&scene.tree());
    assert_eq!(now["a.txt"].2, b"a old\nand a line\n");
    assert_eq!(others(&now, "a.txt"), others(&old, "a.txt"));
}
