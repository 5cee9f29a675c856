//! Interrupts landing and recovery at every system call. Afterwards the tree must be the old one or the new one, and
//! everything that another program wrote meanwhile must be in it.

#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::rc::Rc;

use rustix::io::Errno;

use super::disk::CallHook;
use super::recover::recover_through;
use super::testing::{
    LandingFixture, change, file, land_call_through, land_through, landing_call, old_tree, swap,
    tree_of,
};
use super::*;

type Tree = BTreeMap<String, (char, u32, Vec<u8>)>;

/// Features that the simulated file system missing.
#[derive(Clone, Copy, PartialEq)]
enum MissingFeatures {
    Nothing,
    Exchange,
    ExchangeAndNoReplace,
}

impl MissingFeatures {
    fn refuses(self, what: &str) -> Result<(), Errno> {
        match (self, what) {
            (Self::Exchange | Self::ExchangeAndNoReplace, "exchange") => Err(Errno::INVAL),
            (Self::ExchangeAndNoReplace, "rename_new") => Err(Errno::INVAL),
            _ => Ok(()),
        }
    }
}

fn fixture() -> (LandingFixture, Vec<Swap>) {
    let fixture = LandingFixture::new();
    old_tree(&fixture);
    let swaps = change(&fixture);
    (fixture, swaps)
}

fn landed(
    fixture: &LandingFixture,
    swaps: &[Swap],
    disk: &Disk,
) -> Result<CompletedLanding, LandError> {
    land_through(
        disk,
        &fixture.root(),
        swaps,
        &fixture.contents,
        &fixture.contents,
        &fixture.journal(),
    )
}

fn recovered(fixture: &LandingFixture) -> Option<Recovered> {
    recover(&fixture.journal(), &fixture.contents, &|_, _| {}).unwrap()
}

/// The old tree, the new tree, and the number of system calls of the landing.
fn ends(missing: MissingFeatures) -> (Tree, Tree, u64) {
    let (fixture, swaps) = fixture();
    let old = tree_of(&fixture.tree());
    let disk = Disk::with_hook(Box::new(move |_, what| missing.refuses(what)));
    landed(&fixture, &swaps, &disk).unwrap();
    let new = tree_of(&fixture.tree());
    for swap in &swaps {
        if swap.path != "plain" && !swap.path.starts_with("dir/") {
            assert_eq!(
                image_at(&fixture.root(), &swap.path).unwrap(),
                swap.after,
                "{}",
                swap.path
            );
        }
    }
    assert!(!new.contains_key("gone") && new.contains_key("keep"));
    (old, new, disk.calls())
}

/// Every call from number `at` on fails, as if the process were dead.
fn dies(at: u64, missing: MissingFeatures) -> CallHook {
    Box::new(move |call, what| {
        if call >= at {
            Err(Errno::IO)
        } else {
            missing.refuses(what)
        }
    })
}

fn fails(at: u64, errno: Errno) -> CallHook {
    Box::new(move |call, _| if call == at { Err(errno) } else { Ok(()) })
}

#[track_caller]
fn check_whole(fixture: &LandingFixture, old: &Tree, new: &Tree, case: &str) -> bool {
    let now = tree_of(&fixture.tree());
    assert!(
        now == *old || now == *new,
        "{case}: neither old nor new: {now:#?}"
    );
    assert!(
        !fixture.journal().join("journal.json").exists(),
        "{case}: the journal still exists"
    );
    now == *new
}

/// The process dies at each call, and then recovery runs. Some deaths must end with the old tree, some with the new
/// one.
#[track_caller]
fn check_death(missing: MissingFeatures) {
    let (old, new, calls) = ends(missing);
    let mut ended = [0, 0];
    // Test every call on the usual file system, and every third one on the others, which differ from it in few calls.
    let every = if missing == MissingFeatures::Nothing {
        1
    } else {
        3
    };
    for at in (1..=calls).step_by(every) {
        let (fixture, swaps) = fixture();
        let done = landed(&fixture, &swaps, &Disk::with_hook(dies(at, missing)));
        let found = recovered(&fixture);
        let is_new = check_whole(&fixture, &old, &new, &format!("dead at {at}"));
        assert!(
            done.is_err() || is_new,
            "dead at {at}: reported as landed, and it is not"
        );
        if let Some(found) = found {
            assert_eq!((found.landed, found.left), (is_new, vec![]), "dead at {at}");
        }
        ended[usize::from(is_new)] += 1;
        assert_eq!(recovered(&fixture), None, "dead at {at}: recovered twice");
    }
    assert!(ended[0] > 20 && ended[1] > 20, "{ended:?} of {calls}");
}

/// The landing of a call dies at each call. Either the tree is the old one and there is no record, or the tree is the
/// new one and a record for the log exists.
#[test]
fn the_landing_of_a_call_that_dies_anywhere_leaves_a_record_when_it_is_in_the_tree() {
    let (first, swaps) = fixture();
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
        let (fixture, swaps) = fixture();
        let mut dying = Disk::with_hook(dies(at, MissingFeatures::Nothing));
        dying.unsynced = true;
        let done = land_call_through(&dying, &fixture, &swaps);
        recovered(&fixture);
        let is_new = check_whole(&fixture, &old, &new, &format!("dead at {at}"));
        let records = unlogged_landings(&fixture.journal());
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
    let land = |disk: &Disk, fixture: &LandingFixture, swaps: &[Swap]| {
        let landing = LandingContext {
            disk,
            root: &fixture.root(),
            contents: &fixture.contents,
            journal_dir: &fixture.journal(),
            lock_timeout: Duration::ZERO,
            ended: &|_| {},
        };
        landing.land(swaps, &fixture.contents, LandMode::Undo(undo.clone()))
    };
    let (old, new, calls) = ends(MissingFeatures::Nothing);
    let mut ended = [0, 0];
    for at in (1..=calls).step_by(5) {
        let (fixture, swaps) = fixture();
        let _ = land(
            &Disk::with_hook(dies(at, MissingFeatures::Nothing)),
            &fixture,
            &swaps,
        );
        recovered(&fixture);
        let is_new = check_whole(&fixture, &old, &new, &format!("dead at {at}"));
        let records = unlogged_undos(&fixture.journal());
        assert_eq!(records.len(), usize::from(is_new), "dead at {at}");
        assert!(records.iter().all(|record| record.undo == undo));
        assert_eq!(unlogged_landings(&fixture.journal()), []);
        ended[usize::from(is_new)] += 1;
    }
    assert!(ended[0] > 5 && ended[1] > 5, "{ended:?}");
}

#[test]
fn recovery_takes_no_lock_if_there_is_no_journal() {
    let fixture = LandingFixture::new();
    std::fs::create_dir(fixture.journal()).unwrap();
    assert_eq!(recovered(&fixture), None);
    assert!(!fixture.journal().join("lock").exists());
}

#[test]
fn the_landing_of_a_call_does_not_sync() {
    let (fixture, swaps) = fixture();
    let synced = Rc::new(Cell::new(0));
    let seen = Rc::clone(&synced);
    let count = move |_: u64, what: &'static str| {
        seen.set(seen.get() + u32::from(what.starts_with("sync")));
        Ok(())
    };
    let mut disk = Disk::with_hook(Box::new(count));
    disk.unsynced = true;
    land_call_through(&disk, &fixture, &swaps).unwrap();
    assert_eq!(synced.get(), 0);
}

#[test]
fn landings_of_calls_wait_for_each_other() {
    let fixture = LandingFixture::new();
    let (root, journal) = (fixture.root(), fixture.journal());
    let contents = &fixture.contents;
    std::thread::scope(|scope| {
        for nth in 0..32 {
            let (root, journal) = (&root, &journal);
            scope.spawn(move || {
                for step in 0..5 {
                    let text = format!("{nth} {step}\n");
                    contents.put_bytes_unsynced(text.as_bytes()).unwrap();
                    let one = swap(&format!("{nth}/{step}"), Image::Absent, file(&text, 0o644));
                    land_call(root, &[one], contents, contents, journal, None).unwrap();
                }
            });
        }
    });
    let files = tree_of(&fixture.tree());
    assert_eq!(
        files.values().filter(|(kind, ..)| *kind == 'f').count(),
        160
    );
}

#[test]
fn a_landing_of_a_call_whose_old_bytes_cannot_be_stored_changes_nothing() {
    let fixture = LandingFixture::without_storage_for("far too long for the store\n");
    fixture.file("a", "far too long for the store\n", 0o644);
    fixture.contents.put_bytes(b"new\n").unwrap();
    let before = tree_of(&fixture.tree());
    let change = [
        swap(
            "a",
            file("far too long for the store\n", 0o644),
            file("new\n", 0o644),
        ),
        swap("b", Image::Absent, file("new\n", 0o644)),
    ];
    let refused = land_call_through(&Disk::unsynced(), &fixture, &change).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("cannot store the old bytes of a"),
        "{refused}"
    );
    assert_eq!(tree_of(&fixture.tree()), before);
    assert_eq!(unlogged_landings(&fixture.journal()), []);
}

#[test]
fn a_process_that_dies_at_any_call_leaves_the_old_tree_or_the_new() {
    check_death(MissingFeatures::Nothing);
}

#[test]
fn a_process_that_dies_leaves_the_old_tree_or_the_new_without_exchange() {
    check_death(MissingFeatures::Exchange);
}

#[test]
fn a_process_that_dies_leaves_the_old_tree_or_the_new_without_noreplace() {
    check_death(MissingFeatures::ExchangeAndNoReplace);
}

#[test]
fn recovery_that_dies_at_any_call_is_done_by_the_next() {
    let (old, new, calls) = ends(MissingFeatures::Nothing);
    let mut died = 0;
    for at in (1..=calls).step_by(31) {
        // Start at a different call each time, so that together they cover every call of recovery.
        for again in ((at % 23) + 1..).step_by(23) {
            let (fixture, swaps) = fixture();
            let _ = landed(
                &fixture,
                &swaps,
                &Disk::with_hook(dies(at, MissingFeatures::Nothing)),
            );
            let disk = Disk::with_hook(dies(again, MissingFeatures::Nothing));
            let over = recover_through(&disk, &fixture.journal(), &fixture.contents, &|_, _| {})
                .is_ok()
                && disk.calls() < again;
            recovered(&fixture);
            check_whole(
                &fixture,
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
    let (old, new, calls) = ends(MissingFeatures::Nothing);
    for at in 1..=calls {
        let errno = [Errno::IO, Errno::NOSPC, Errno::ACCESS][usize::try_from(at % 3).unwrap()];
        let (fixture, swaps) = fixture();
        let done = landed(&fixture, &swaps, &Disk::with_hook(fails(at, errno)));
        let case = format!("{errno} at {at}: {done:?}");
        // The rollback met no second failure, so the tree is complete before recovery; recovery only cleans up.
        let now = tree_of(&fixture.tree());
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
        recovered(&fixture);
        assert_eq!(
            check_whole(&fixture, &old, &new, &case),
            done.is_ok(),
            "{case}"
        );
    }
}

/// From the call `at` on, every call that needs disk space fails.
fn full_from(at: u64) -> CallHook {
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
    let (old, new, calls) = ends(MissingFeatures::Nothing);
    let mut landings = 0;
    for at in 1..=calls {
        let (fixture, swaps) = fixture();
        let done = landed(&fixture, &swaps, &Disk::with_hook(full_from(at)));
        recovered(&fixture);
        let is_new = check_whole(&fixture, &old, &new, &format!("full at {at}: {done:?}"));
        landings += u32::from(done.is_ok());
        assert_eq!(is_new, done.is_ok(), "full at {at}: {done:?}");
        let unfinished = matches!(done, Err(LandError::Unfinished(_)));
        assert!(
            !unfinished,
            "full at {at}: a rollback needs no disk space: {done:?}"
        );
    }
    assert!(landings > 20, "{landings} of {calls}");
}

/// An action of another program on a path.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ForeignAction {
    /// Writes into the file, or creates it.
    Overwrite,
    /// Replaces the file with a new one, by a rename.
    Save,
    Delete,
    /// Replaces the file with a directory that contains a file.
    MakeDir,
}

const FOREIGN_TEXT: &str = "of another program\n";

impl ForeignAction {
    /// Returns whether there was something to do.
    fn on(self, path: &Path) -> bool {
        let Self::Delete = self else {
            // It fails if a parent is a file.
            return std::fs::create_dir_all(path.parent().unwrap()).is_ok()
                && self.write(path).is_ok();
        };
        std::fs::remove_file(path).is_ok()
    }

    fn write(self, path: &Path) -> std::io::Result<()> {
        let draft = path.with_extension("draft");
        match self {
            Self::Delete => Ok(()),
            Self::Overwrite => std::fs::write(path, FOREIGN_TEXT),
            Self::Save => {
                std::fs::write(&draft, FOREIGN_TEXT)?;
                std::fs::rename(&draft, path).inspect_err(|_| std::fs::remove_file(&draft).unwrap())
            }
            Self::MakeDir => {
                let _ = std::fs::remove_file(path);
                std::fs::create_dir_all(path)?;
                std::fs::write(path.join("inner"), FOREIGN_TEXT)
            }
        }
    }

    fn is_there(self, path: &Path) -> bool {
        match self {
            Self::Delete => path.symlink_metadata().is_err(),
            Self::MakeDir => {
                std::fs::read_to_string(path.join("inner")).is_ok_and(|text| text == FOREIGN_TEXT)
            }
            Self::Overwrite | Self::Save => {
                std::fs::read_to_string(path).is_ok_and(|text| text == FOREIGN_TEXT)
            }
        }
    }
}

type PathAction = (&'static str, ForeignAction);

const ACTIONS: &[PathAction] = &[
    ("a.txt", ForeignAction::Overwrite),
    ("a.txt", ForeignAction::Save),
    ("a.txt", ForeignAction::Delete),
    ("a.txt", ForeignAction::MakeDir),
    ("new/one/two", ForeignAction::Overwrite),
    ("gone/x", ForeignAction::Save),
    ("gone/x", ForeignAction::Delete),
    ("gone/deep/mine", ForeignAction::Overwrite),
    ("conv", ForeignAction::Save),
    ("plain/in", ForeignAction::Overwrite),
    ("dir", ForeignAction::Save),
    ("unlinked", ForeignAction::Save),
];

/// The entries that are no directories, without the paths of `without`, their descendants and their ancestors: a file
/// cannot be at the path of a directory that another program made.
fn others(tree: &Tree, without: &[PathAction]) -> Tree {
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

/// Checks that every action of the other program is in the tree, and that the rest is the old tree or the new one.
#[track_caller]
fn check_actions_are_kept(
    fixture: &LandingFixture,
    (old, new): (&Tree, &Tree),
    actions: &[PathAction],
    case: &str,
) {
    for (path, act) in actions {
        assert!(
            act.is_there(&fixture.tree().join(path)),
            "{case}: {act:?} of {path} is lost"
        );
    }
    let now = others(&tree_of(&fixture.tree()), actions);
    let whole = now == others(old, actions) || now == others(new, actions);
    assert!(whole, "{case}: the rest is neither old nor new: {now:#?}");
    assert!(
        !fixture.journal().join("journal.json").exists(),
        "{case}: the journal still exists"
    );
}

/// Another program acts on paths, each at its call. Returns the actions that had an effect.
fn with_actions(
    fixture: &LandingFixture,
    actions: Vec<(u64, PathAction)>,
    missing: MissingFeatures,
) -> (Disk, Rc<RefCell<Vec<PathAction>>>) {
    let (tree, done) = (fixture.tree(), Rc::new(RefCell::new(Vec::new())));
    let did = Rc::clone(&done);
    let disk = Disk::with_hook(Box::new(move |call, what| {
        for (_, (path, act)) in actions.iter().filter(|(at, _)| *at == call) {
            if act.on(&tree.join(path)) {
                done.borrow_mut().push((*path, *act));
            }
        }
        missing.refuses(what)
    }));
    (disk, did)
}

/// Another program acts at every call of a landing; each action covers every twelfth call.
#[track_caller]
fn check_writes_during_landing(missing: MissingFeatures) {
    let (old, new, calls) = ends(missing);
    for (number, action) in ACTIONS.iter().enumerate() {
        for at in (1 + number as u64..=calls).step_by(ACTIONS.len()) {
            let (fixture, swaps) = fixture();
            let (disk, did) = with_actions(&fixture, vec![(at, *action)], missing);
            let done = landed(&fixture, &swaps, &disk);
            check_actions_are_kept(
                &fixture,
                (&old, &new),
                &did.borrow(),
                &format!("{action:?} at {at}: {done:?}"),
            );
        }
    }
}

#[test]
fn writes_of_others_during_a_landing_are_kept() {
    check_writes_during_landing(MissingFeatures::Nothing);
}

#[test]
fn writes_of_others_are_kept_without_exchange() {
    check_writes_during_landing(MissingFeatures::Exchange);
}

/// A landing dies, another program acts, and then recovery runs.
#[track_caller]
fn check_writes_before_recovery(missing: MissingFeatures) {
    let (old, new, calls) = ends(missing);
    for (number, action) in ACTIONS.iter().enumerate() {
        for at in (1 + number as u64..=calls).step_by(ACTIONS.len()) {
            let (fixture, swaps) = fixture();
            // A rename by hard link that is half done, with one of its names deleted, looks like one that did not
            // begin.
            if missing == MissingFeatures::ExchangeAndNoReplace && action.1 == ForeignAction::Delete
            {
                continue;
            }
            let _ = landed(&fixture, &swaps, &Disk::with_hook(dies(at, missing)));
            let did = if action.1.on(&fixture.tree().join(action.0)) {
                vec![*action]
            } else {
                vec![]
            };
            let disk = Disk::with_hook(Box::new(move |_, what| missing.refuses(what)));
            let found =
                recover_through(&disk, &fixture.journal(), &fixture.contents, &|_, _| {}).unwrap();
            check_actions_are_kept(
                &fixture,
                (&old, &new),
                &did,
                &format!("{action:?}, dead at {at}: {found:?}"),
            );
        }
    }
}

#[test]
fn writes_of_others_before_recovery_are_kept() {
    check_writes_before_recovery(MissingFeatures::Nothing);
}

#[test]
fn writes_of_others_before_recovery_are_kept_without_exchange_and_noreplace() {
    check_writes_before_recovery(MissingFeatures::ExchangeAndNoReplace);
}

/// A change with one path of each kind, and one more path that cannot land, because another program creates it after
/// the check. The landing must roll back.
fn doomed() -> (LandingFixture, Vec<Swap>, PathAction) {
    let fixture = LandingFixture::new();
    fixture.file("changed", "old\n", 0o644);
    fixture.file("deleted", "old\n", 0o644);
    fixture.contents.put_bytes(b"new\n").unwrap();
    let swaps = vec![
        swap("changed", file("old\n", 0o644), file("new\n", 0o644)),
        swap("deleted", file("old\n", 0o644), Image::Absent),
        swap("made", Image::Absent, file("new\n", 0o644)),
        swap("taken", Image::Absent, file("new\n", 0o644)),
    ];
    (fixture, swaps, ("taken", ForeignAction::Overwrite))
}

/// Another program acts while a landing is rolled back.
#[track_caller]
fn check_writes_during_rollback(missing: MissingFeatures) {
    let first = Rc::new(Cell::new(0));
    let (fixture, swaps, taken) = doomed();
    let old = tree_of(&fixture.tree());
    // The other program creates the file when staging begins.
    let (seen, tree) = (Rc::clone(&first), fixture.tree());
    let disk = Disk::with_hook(Box::new(move |call, what| {
        if what == "make_dir" && seen.get() == 0 {
            seen.set(call);
            assert!(taken.1.on(&tree.join(taken.0)));
        }
        missing.refuses(what)
    }));
    assert!(matches!(
        landed(&fixture, &swaps, &disk),
        Err(LandError::Conflict { .. })
    ));
    check_actions_are_kept(&fixture, (&old, &old), &[taken], "nothing else");
    for path in ["changed", "deleted", "made"] {
        // One of the two actions that write covers each call.
        for (number, act) in [
            ForeignAction::Overwrite,
            ForeignAction::Save,
            ForeignAction::Delete,
        ]
        .into_iter()
        .enumerate()
        {
            for at in (first.get() + 1 + number as u64..=disk.calls()).step_by(2) {
                let (fixture, swaps, taken) = doomed();
                let actions = vec![(first.get(), taken), (at, (path, act))];
                let (disk, did) = with_actions(&fixture, actions, missing);
                let done = landed(&fixture, &swaps, &disk);
                assert!(done.is_err(), "{act:?} of {path} at {at}");
                check_actions_are_kept(
                    &fixture,
                    (&old, &old),
                    &did.borrow(),
                    &format!("{act:?} of {path} at {at}: {done:?}"),
                );
            }
        }
    }
}

#[test]
fn writes_of_others_during_a_rollback_are_kept() {
    check_writes_during_rollback(MissingFeatures::Nothing);
}

#[test]
fn writes_of_others_during_a_rollback_are_kept_without_exchange() {
    check_writes_during_rollback(MissingFeatures::Exchange);
}

#[test]
fn two_writes_of_others_are_both_kept() {
    let (old, new, calls) = ends(MissingFeatures::Nothing);
    for number in 0..300_u64 {
        // These numbers cover every pair of actions and many distances. The second action often happens during the
        // rollback that the first one causes.
        let (first, second) = (
            number * 7 % calls + 1,
            number * 7 % calls + 1 + number * 13 % 90,
        );
        let pick = |number: u64| ACTIONS[usize::try_from(number).unwrap() % ACTIONS.len()];
        let actions = [(first, pick(number)), (second, pick(number / 5 + 4))];
        if actions[0].1.0 == actions[1].1.0 {
            continue;
        }
        let (fixture, swaps) = fixture();
        let (disk, did) = with_actions(&fixture, actions.to_vec(), MissingFeatures::Nothing);
        let done = landed(&fixture, &swaps, &disk);
        check_actions_are_kept(
            &fixture,
            (&old, &new),
            &did.borrow(),
            &format!("{actions:?}: {done:?}"),
        );
    }
}

#[test]
fn of_two_writes_to_one_path_the_later_wins_and_the_earlier_is_preserved() {
    let (fixture, swaps, _) = doomed();
    let (path, exchanged) = (fixture.tree().join("changed"), Cell::new(0));
    // The first write is before the exchange, the second one before the exchange back.
    let disk = Disk::with_hook(Box::new(move |_, what| {
        exchanged.set(exchanged.get() + u32::from(what == "exchange"));
        if what == "exchange" && exchanged.get() <= 2 {
            std::fs::write(&path, format!("mine {}\n", exchanged.get())).unwrap();
        }
        Ok(())
    }));
    let Err(LandError::Conflict { refused, left }) = landed(&fixture, &swaps, &disk) else {
        panic!("it landed")
    };
    assert_eq!((refused[0].path.as_str(), left.len()), ("changed", 1));
    assert_eq!(
        std::fs::read_to_string(fixture.tree().join("changed")).unwrap(),
        "mine 2\n"
    );
    assert_eq!(
        std::fs::read_to_string(fixture.tree().join(&left[0]).join("1.new")).unwrap(),
        "mine 1\n"
    );
}

#[test]
fn a_write_through_an_open_handle_stops_the_landing() {
    let (fixture, swaps) = fixture();
    let old = tree_of(&fixture.tree());
    let handle = std::fs::OpenOptions::new()
        .append(true)
        .open(fixture.tree().join("a.txt"))
        .unwrap();
    let (handle, swapped) = (Rc::new(handle), Rc::new(Cell::new(false)));
    let disk = Disk::with_hook(Box::new(move |_, what| {
        // The landing rewinds the file right before storing it, after every path was swapped.
        if what == "rewind" && !swapped.replace(true) {
            (&*handle).write_all(b"and a line\n").unwrap();
        }
        Ok(())
    }));
    let err = landed(&fixture, &swaps, &disk).unwrap_err();
    assert!(
        matches!(&err, LandError::Conflict { refused, .. } if refused[0].path == "a.txt"),
        "{err}"
    );
    let now = tree_of(&fixture.tree());
    assert_eq!(now["a.txt"].2, b"a old\nand a line\n");
    let action = [("a.txt", ForeignAction::Overwrite)];
    assert_eq!(others(&now, &action), others(&old, &action));
}
