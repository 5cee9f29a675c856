//! Landing and recovery interrupted at every system call: the tree is the old one or the new one afterwards, and
//! what somebody wrote meanwhile is there.

#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::rc::Rc;

use rustix::io::Errno;

use super::disk::Before;
use super::recover::recover_through;
use super::testing::{
    Scene, change, file, land_call_through, land_through, landing_call, old_tree, swap, tree_of,
};
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
    land_through(
        disk,
        &scene.root(),
        swaps,
        &scene.contents,
        &scene.contents,
        &scene.journal(),
    )
}

fn recovered(scene: &Scene) -> Option<Recovered> {
    recover(&scene.journal(), &scene.contents).unwrap()
}

/// The old and the new tree, and how many calls it takes from one to the other.
fn ends(lacks: Lacks) -> (Tree, Tree, u64) {
    let (scene, swaps) = scene();
    let old = tree_of(&scene.tree());
    let disk = Disk::watched(Box::new(move |_, what| lacks.refuses(what)));
    landed(&scene, &swaps, &disk).unwrap();
    let new = tree_of(&scene.tree());
    for swap in &swaps {
        if swap.path != "plain" && !swap.path.starts_with("dir/") {
            assert_eq!(
                look(&scene.root(), &swap.path).unwrap(),
                swap.after,
                "{}",
                swap.path
            );
        }
    }
    assert!(!new.contains_key("gone") && new.contains_key("keep"));
    (old, new, disk.calls())
}

/// From the call `at` on, nothing happens any more.
fn dies(at: u64, lacks: Lacks) -> Before {
    Box::new(move |call, what| {
        if call >= at {
            Err(Errno::IO)
        } else {
            lacks.refuses(what)
        }
    })
}

fn fails(at: u64, errno: Errno) -> Before {
    Box::new(move |call, _| if call == at { Err(errno) } else { Ok(()) })
}

#[track_caller]
fn check_whole(scene: &Scene, old: &Tree, new: &Tree, case: &str) -> bool {
    let now = tree_of(&scene.tree());
    assert!(
        now == *old || now == *new,
        "{case}: neither old nor new: {now:#?}"
    );
    assert!(
        !scene.journal().join("journal.json").exists(),
        "{case}: the journal is still there"
    );
    now == *new
}

/// The process dies at every call; then recovery runs. Both ends must be seen.
#[track_caller]
fn check_death(lacks: Lacks) {
    let (old, new, calls) = ends(lacks);
    let mut ended = [0, 0];
    // The usual file system meets every call; the others meet the calls in which they differ from it often enough.
    let every = if lacks == Lacks::Nothing { 1 } else { 3 };
    for at in (1..=calls).step_by(every) {
        let (scene, swaps) = scene();
        let done = landed(&scene, &swaps, &Disk::watched(dies(at, lacks)));
        let found = recovered(&scene);
        let is_new = check_whole(&scene, &old, &new, &format!("dead at {at}"));
        assert!(
            done.is_err() || is_new,
            "dead at {at}: said to be landed and is not"
        );
        if let Some(found) = found {
            assert_eq!((found.landed, found.left), (is_new, vec![]), "dead at {at}");
        }
        ended[usize::from(is_new)] += 1;
        assert_eq!(recovered(&scene), None, "dead at {at}: recovered twice");
    }
    assert!(ended[0] > 20 && ended[1] > 20, "{ended:?} of {calls}");
}

/// The same for the landing of a call: in the end either the tree is the old one and nothing has to be logged, or it is
/// the new one and the record says so.
#[test]
fn the_landing_of_a_call_that_dies_anywhere_leaves_a_record_when_it_is_in_the_tree() {
    let (first, swaps) = scene();
    let old = tree_of(&first.tree());
    let disk = Disk::default();
    let done = land_call_through(&disk, &first, &swaps).unwrap();
    let new = tree_of(&first.tree());
    assert!(new.contains_key("gone"), "an emptied directory stays");
    let record = unlogged_landings(&first.journal()).pop().unwrap();
    assert_eq!(Some(&record.record), done.record.as_ref());
    assert_eq!(record.call, landing_call());
    let mut ended = [0, 0];
    for at in 1..=disk.calls() {
        let (scene, swaps) = scene();
        let mut dying = Disk::watched(dies(at, Lacks::Nothing));
        dying.unsynced = true;
        let done = land_call_through(&dying, &scene, &swaps);
        recovered(&scene);
        let is_new = check_whole(&scene, &old, &new, &format!("dead at {at}"));
        let records = unlogged_landings(&scene.journal());
        assert_eq!(records.len(), usize::from(is_new), "dead at {at}");
        assert!(done.is_err() || is_new, "dead at {at}");
        if let Some(record) = records.first() {
            let mut paths: Vec<_> = record.swaps.iter().map(|swap| &swap.path).collect();
            let mut expect: Vec<_> = swaps.iter().map(|swap| &swap.path).collect();
            paths.sort();
            expect.sort();
            assert_eq!(paths, expect, "dead at {at}");
        }
        ended[usize::from(is_new)] += 1;
    }
    assert!(ended[0] > 20 && ended[1] > 20, "{ended:?}");
}

#[test]
fn an_undo_that_dies_anywhere_leaves_a_record_when_it_is_in_the_tree() {
    let undo = LandingUndo {
        session: landing_call().session,
        redo: false,
        of: 7,
        also: vec![9],
    };
    let land = |disk: &Disk, scene: &Scene, swaps: &[Swap]| {
        let landing = Landing {
            disk,
            root: &scene.root(),
            contents: &scene.contents,
            journal_dir: &scene.journal(),
            patience: Duration::ZERO,
        };
        landing.land(swaps, &scene.contents, LandMode::Undo(undo.clone()))
    };
    let (old, new, calls) = ends(Lacks::Nothing);
    let mut ended = [0, 0];
    for at in (1..=calls).step_by(5) {
        let (scene, swaps) = scene();
        let _ = land(&Disk::watched(dies(at, Lacks::Nothing)), &scene, &swaps);
        recovered(&scene);
        let is_new = check_whole(&scene, &old, &new, &format!("dead at {at}"));
        let records = unlogged_undos(&scene.journal());
        assert_eq!(records.len(), usize::from(is_new), "dead at {at}");
        assert!(records.iter().all(|record| record.undo == undo));
        assert_eq!(unlogged_landings(&scene.journal()), []);
        ended[usize::from(is_new)] += 1;
    }
    assert!(ended[0] > 5 && ended[1] > 5, "{ended:?}");
}

#[test]
fn looking_for_a_dead_landing_takes_no_lock_where_there_is_none() {
    let scene = Scene::new();
    std::fs::create_dir(scene.journal()).unwrap();
    assert_eq!(recovered(&scene), None);
    assert!(!scene.journal().join("lock").exists());
}

#[test]
fn the_landing_of_a_call_waits_for_no_disk() {
    let (scene, swaps) = scene();
    let synced = Rc::new(Cell::new(0));
    let seen = Rc::clone(&synced);
    let count = move |_: u64, what: &'static str| {
        seen.set(seen.get() + u32::from(what.starts_with("sync")));
        Ok(())
    };
    let mut disk = Disk::watched(Box::new(count));
    disk.unsynced = true;
    land_call_through(&disk, &scene, &swaps).unwrap();
    assert_eq!(synced.get(), 0);
}

#[test]
fn landings_of_calls_wait_for_each_other() {
    let scene = Scene::new();
    let (root, journal) = (scene.root(), scene.journal());
    let contents = &scene.contents;
    std::thread::scope(|scope| {
        for nth in 0..32 {
            let (root, journal) = (&root, &journal);
            scope.spawn(move || {
                for step in 0..5 {
                    let text = format!("{nth} {step}\n");
                    contents.put_bytes_soon(text.as_bytes()).unwrap();
                    let one = swap(&format!("{nth}/{step}"), Image::Absent, file(&text, 0o644));
                    land_call(root, &[one], contents, contents, journal, None).unwrap();
                }
            });
        }
    });
    let files = tree_of(&scene.tree());
    assert_eq!(
        files.values().filter(|(kind, ..)| *kind == 'f').count(),
        160
    );
}

#[test]
fn a_landing_of_a_call_whose_old_bytes_cannot_be_stored_changes_nothing() {
    let scene = Scene::that_cannot_store("far too long for the store\n");
    scene.file("a", "far too long for the store\n", 0o644);
    scene.contents.put_bytes(b"new\n").unwrap();
    let before = tree_of(&scene.tree());
    let change = [
        swap(
            "a",
            file("far too long for the store\n", 0o644),
            file("new\n", 0o644),
        ),
        swap("b", Image::Absent, file("new\n", 0o644)),
    ];
    let refused = land_call_through(&Disk::unsynced(), &scene, &change).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("the old bytes of a cannot be stored"),
        "{refused}"
    );
    assert_eq!(tree_of(&scene.tree()), before);
    assert_eq!(unlogged_landings(&scene.journal()), []);
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
    for at in (1..=calls).step_by(31) {
        // Another first call for each, so that over all of them every call of recovery is met.
        for again in ((at % 23) + 1..).step_by(23) {
            let (scene, swaps) = scene();
            let _ = landed(&scene, &swaps, &Disk::watched(dies(at, Lacks::Nothing)));
            let disk = Disk::watched(dies(again, Lacks::Nothing));
            let over = recover_through(&disk, &scene.journal(), &scene.contents).is_ok()
                && disk.calls() < again;
            recovered(&scene);
            check_whole(
                &scene,
                &old,
                &new,
                &format!("dead at {at}, recovery at {again}"),
            );
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
    for at in 1..=calls {
        let errno = [Errno::IO, Errno::NOSPC, Errno::ACCESS][usize::try_from(at % 3).unwrap()];
        let (scene, swaps) = scene();
        let done = landed(&scene, &swaps, &Disk::watched(fails(at, errno)));
        let case = format!("{errno} at {at}: {done:?}");
        // Taking back met no second failure, so the tree is whole before recovery; that only cleans up.
        let now = tree_of(&scene.tree());
        let now: Tree = now
            .into_iter()
            .filter(|(path, _)| !path.contains(STAGING))
            .collect();
        assert!(
            now == if done.is_ok() {
                new.clone()
            } else {
                old.clone()
            },
            "{case}: {now:#?}"
        );
        recovered(&scene);
        assert_eq!(
            check_whole(&scene, &old, &new, &case),
            done.is_ok(),
            "{case}"
        );
    }
}

/// From the call `at` on, nothing that needs room on the disk happens any more.
fn full_from(at: u64) -> Before {
    const NEEDS_ROOM: &[&str] = &["create", "write", "make_dir", "make_link", "clone_bytes"];
    Box::new(move |call, what| {
        if call >= at && NEEDS_ROOM.contains(&what) {
            Err(Errno::NOSPC)
        } else {
            Ok(())
        }
    })
}

#[test]
fn a_disk_that_fills_at_any_call_leaves_the_tree_that_the_landing_reported() {
    let (old, new, calls) = ends(Lacks::Nothing);
    let mut landings = 0;
    for at in 1..=calls {
        let (scene, swaps) = scene();
        let done = landed(&scene, &swaps, &Disk::watched(full_from(at)));
        recovered(&scene);
        let is_new = check_whole(&scene, &old, &new, &format!("full at {at}: {done:?}"));
        landings += u32::from(done.is_ok());
        assert_eq!(is_new, done.is_ok(), "full at {at}: {done:?}");
        let unfinished = matches!(done, Err(LandError::Unfinished(_)));
        assert!(
            !unfinished,
            "full at {at}: a rollback needs no room: {done:?}"
        );
    }
    assert!(landings > 20, "{landings} of {calls}");
}

/// What somebody does to a path.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    /// Writes into what is there, or makes it.
    Overwrite,
    /// Puts a new file in its place.
    Save,
    Delete,
    /// Makes a directory of it, with a file in it.
    MakeDir,
}

const THEIRS: &str = "mine, says somebody\n";

impl Act {
    /// Does it, and says whether there was something to do.
    fn on(self, path: &Path) -> bool {
        let Self::Delete = self else {
            // A parent may be a file.
            return std::fs::create_dir_all(path.parent().unwrap()).is_ok()
                && self.write(path).is_ok();
        };
        std::fs::remove_file(path).is_ok()
    }

    fn write(self, path: &Path) -> std::io::Result<()> {
        let draft = path.with_extension("draft");
        match self {
            Self::Delete => Ok(()),
            Self::Overwrite => std::fs::write(path, THEIRS),
            Self::Save => {
                std::fs::write(&draft, THEIRS)?;
                std::fs::rename(&draft, path).inspect_err(|_| std::fs::remove_file(&draft).unwrap())
            }
            Self::MakeDir => {
                let _ = std::fs::remove_file(path);
                std::fs::create_dir_all(path)?;
                std::fs::write(path.join("inner"), THEIRS)
            }
        }
    }

    fn is_there(self, path: &Path) -> bool {
        match self {
            Self::Delete => path.symlink_metadata().is_err(),
            Self::MakeDir => {
                std::fs::read_to_string(path.join("inner")).is_ok_and(|text| text == THEIRS)
            }
            Self::Overwrite | Self::Save => {
                std::fs::read_to_string(path).is_ok_and(|text| text == THEIRS)
            }
        }
    }
}

type Deed = (&'static str, Act);

const DEEDS: &[Deed] = &[
    ("a.txt", Act::Overwrite),
    ("a.txt", Act::Save),
    ("a.txt", Act::Delete),
    ("a.txt", Act::MakeDir),
    ("new/one/two", Act::Overwrite),
    ("gone/x", Act::Save),
    ("gone/x", Act::Delete),
    ("gone/deep/mine", Act::Overwrite),
    ("conv", Act::Save),
    ("plain/in", Act::Overwrite),
    ("dir", Act::Save),
    ("unlinked", Act::Save),
];

/// All that is not a directory, without some paths, what is beneath them, and what they are beneath: a file cannot be
/// where somebody has a directory.
fn others(tree: &Tree, without: &[Deed]) -> Tree {
    let other = |name: &str| {
        let (name, mut without) = (
            Path::new(name),
            without.iter().map(|(path, _)| Path::new(path)),
        );
        without.all(|path| !name.starts_with(path) && !path.starts_with(name))
    };
    tree.iter()
        .filter(|(name, seen)| seen.0 != 'd' && other(name))
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect()
}

/// Everything that somebody did is there, and the rest is the old tree or the new.
#[track_caller]
fn check_theirs(scene: &Scene, (old, new): (&Tree, &Tree), deeds: &[Deed], case: &str) {
    for (path, act) in deeds {
        assert!(
            act.is_there(&scene.tree().join(path)),
            "{case}: {act:?} of {path} is lost"
        );
    }
    let now = others(&tree_of(&scene.tree()), deeds);
    let whole = now == others(old, deeds) || now == others(new, deeds);
    assert!(whole, "{case}: the rest is neither old nor new: {now:#?}");
    assert!(
        !scene.journal().join("journal.json").exists(),
        "{case}: the journal is still there"
    );
}

/// Somebody does one thing after the other, each at its call. Gives what there was to do.
fn meddling(
    scene: &Scene,
    deeds: Vec<(u64, Deed)>,
    lacks: Lacks,
) -> (Disk, Rc<RefCell<Vec<Deed>>>) {
    let (tree, done) = (scene.tree(), Rc::new(RefCell::new(Vec::new())));
    let did = Rc::clone(&done);
    let disk = Disk::watched(Box::new(move |call, what| {
        for (_, (path, act)) in deeds.iter().filter(|(at, _)| *at == call) {
            if act.on(&tree.join(path)) {
                done.borrow_mut().push((*path, *act));
            }
        }
        lacks.refuses(what)
    }));
    (disk, did)
}

/// Somebody does something at every call of a landing; each deed meets every so many of them.
#[track_caller]
fn check_meddling(lacks: Lacks) {
    let (old, new, calls) = ends(lacks);
    for (number, deed) in DEEDS.iter().enumerate() {
        for at in (1 + number as u64..=calls).step_by(DEEDS.len()) {
            let (scene, swaps) = scene();
            let (disk, did) = meddling(&scene, vec![(at, *deed)], lacks);
            let done = landed(&scene, &swaps, &disk);
            check_theirs(
                &scene,
                (&old, &new),
                &did.borrow(),
                &format!("{deed:?} at {at}: {done:?}"),
            );
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

/// A landing dies, somebody does something, then recovery runs.
#[track_caller]
fn check_late(lacks: Lacks) {
    let (old, new, calls) = ends(lacks);
    for (number, deed) in DEEDS.iter().enumerate() {
        for at in (1 + number as u64..=calls).step_by(DEEDS.len()) {
            let (scene, swaps) = scene();
            // Half of a rename by two names, with one of them deleted, looks like one that was not begun.
            if lacks == Lacks::ExchangeAndNoReplace && deed.1 == Act::Delete {
                continue;
            }
            let _ = landed(&scene, &swaps, &Disk::watched(dies(at, lacks)));
            let did = if deed.1.on(&scene.tree().join(deed.0)) {
                vec![*deed]
            } else {
                vec![]
            };
            let disk = Disk::watched(Box::new(move |_, what| lacks.refuses(what)));
            let found = recover_through(&disk, &scene.journal(), &scene.contents).unwrap();
            check_theirs(
                &scene,
                (&old, &new),
                &did,
                &format!("{deed:?}, dead at {at}: {found:?}"),
            );
        }
    }
}

#[test]
fn what_somebody_writes_before_recovery_is_there_afterwards() {
    check_late(Lacks::Nothing);
}

#[test]
fn the_same_where_renames_replace_and_nothing_is_exchanged() {
    check_late(Lacks::ExchangeAndNoReplace);
}

/// A change of one path of each kind, and one more that cannot land, because somebody makes it after the first look:
/// everything is taken back.
fn doomed() -> (Scene, Vec<Swap>, Deed) {
    let scene = Scene::new();
    scene.file("changed", "old\n", 0o644);
    scene.file("deleted", "old\n", 0o644);
    scene.contents.put_bytes(b"new\n").unwrap();
    let swaps = vec![
        swap("changed", file("old\n", 0o644), file("new\n", 0o644)),
        swap("deleted", file("old\n", 0o644), Image::Absent),
        swap("made", Image::Absent, file("new\n", 0o644)),
        swap("taken", Image::Absent, file("new\n", 0o644)),
    ];
    (scene, swaps, ("taken", Act::Overwrite))
}

/// While a landing is taken back somebody does something else.
#[track_caller]
fn check_meddling_with_back(lacks: Lacks) {
    let first = Rc::new(Cell::new(0));
    let (scene, swaps, taken) = doomed();
    let old = tree_of(&scene.tree());
    // It is taken when staging begins.
    let (seen, tree) = (Rc::clone(&first), scene.tree());
    let disk = Disk::watched(Box::new(move |call, what| {
        if what == "make_dir" && seen.get() == 0 {
            seen.set(call);
            assert!(taken.1.on(&tree.join(taken.0)));
        }
        lacks.refuses(what)
    }));
    assert!(matches!(
        landed(&scene, &swaps, &disk),
        Err(LandError::Conflict { .. })
    ));
    check_theirs(&scene, (&old, &old), &[taken], "nothing else");
    for path in ["changed", "deleted", "made"] {
        // Every call is met by one of the two that write.
        for (number, act) in [Act::Overwrite, Act::Save, Act::Delete]
            .into_iter()
            .enumerate()
        {
            for at in (first.get() + 1 + number as u64..=disk.calls()).step_by(2) {
                let (scene, swaps, taken) = doomed();
                let deeds = vec![(first.get(), taken), (at, (path, act))];
                let (disk, did) = meddling(&scene, deeds, lacks);
                let done = landed(&scene, &swaps, &disk);
                assert!(done.is_err(), "{act:?} of {path} at {at}");
                check_theirs(
                    &scene,
                    (&old, &old),
                    &did.borrow(),
                    &format!("{act:?} of {path} at {at}: {done:?}"),
                );
            }
        }
    }
}

#[test]
fn what_somebody_writes_while_a_landing_is_taken_back_is_there_afterwards() {
    check_meddling_with_back(Lacks::Nothing);
}

#[test]
fn the_same_by_renames_alone() {
    check_meddling_with_back(Lacks::Exchange);
}

#[test]
fn two_things_that_somebody_does_are_both_there_afterwards() {
    let (old, new, calls) = ends(Lacks::Nothing);
    for number in 0..300_u64 {
        // Any numbers that reach every pair of deeds and all distances; the second is often met while the landing
        // is taken back because of the first.
        let (first, second) = (
            number * 7 % calls + 1,
            number * 7 % calls + 1 + number * 13 % 90,
        );
        let pick = |number: u64| DEEDS[usize::try_from(number).unwrap() % DEEDS.len()];
        let deeds = [(first, pick(number)), (second, pick(number / 5 + 4))];
        if deeds[0].1.0 == deeds[1].1.0 {
            continue;
        }
        let (scene, swaps) = scene();
        let (disk, did) = meddling(&scene, deeds.to_vec(), Lacks::Nothing);
        let done = landed(&scene, &swaps, &disk);
        check_theirs(
            &scene,
            (&old, &new),
            &did.borrow(),
            &format!("{deeds:?}: {done:?}"),
        );
    }
}

#[test]
fn of_two_writes_to_one_path_the_later_is_there_and_the_earlier_is_kept() {
    let (scene, swaps, _) = doomed();
    let (path, exchanged) = (scene.tree().join("changed"), Cell::new(0));
    // The first comes before the exchange, the second before it is exchanged back.
    let disk = Disk::watched(Box::new(move |_, what| {
        exchanged.set(exchanged.get() + u32::from(what == "exchange"));
        if what == "exchange" && exchanged.get() <= 2 {
            std::fs::write(&path, format!("mine {}\n", exchanged.get())).unwrap();
        }
        Ok(())
    }));
    let Err(LandError::Conflict { refused, left }) = landed(&scene, &swaps, &disk) else {
        panic!("it landed")
    };
    assert_eq!((refused[0].path.as_str(), left.len()), ("changed", 1));
    assert_eq!(
        std::fs::read_to_string(scene.tree().join("changed")).unwrap(),
        "mine 2\n"
    );
    assert_eq!(
        std::fs::read_to_string(scene.tree().join(&left[0]).join("1.new")).unwrap(),
        "mine 1\n"
    );
}

#[test]
fn what_is_written_through_an_open_handle_before_it_is_kept_stops_the_landing() {
    let (scene, swaps) = scene();
    let old = tree_of(&scene.tree());
    let handle = std::fs::OpenOptions::new()
        .append(true)
        .open(scene.tree().join("a.txt"))
        .unwrap();
    let (handle, swapped) = (Rc::new(handle), Rc::new(Cell::new(false)));
    let disk = Disk::watched(Box::new(move |_, what| {
        // The file is rewound when it is about to be kept, after every path was swapped.
        if what == "rewind" && !swapped.replace(true) {
            (&*handle).write_all(b"and a line\n").unwrap();
        }
        Ok(())
    }));
    let err = landed(&scene, &swaps, &disk).unwrap_err();
    assert!(
        matches!(&err, LandError::Conflict { refused, .. } if refused[0].path == "a.txt"),
        "{err}"
    );
    let now = tree_of(&scene.tree());
    assert_eq!(now["a.txt"].2, b"a old\nand a line\n");
    let deed = [("a.txt", Act::Overwrite)];
    assert_eq!(others(&now, &deed), others(&old, &deed));
}
