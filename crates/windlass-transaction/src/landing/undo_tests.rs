//! The cases of undo, and what must hold of every one under random edits of people.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::super::testing::{Scene, change, file, link, old_tree, swap, tree_of};
use super::super::{land, look};
use super::*;

fn landed(scene: &Scene, swaps: &[Swap]) {
    land(
        &scene.root(),
        swaps,
        &scene.contents,
        &scene.contents,
        &scene.journal(),
    )
    .unwrap();
}

fn planned(scene: &Scene, done: &[Swap]) -> Plan {
    plan(&scene.root(), done, &scene.contents).unwrap()
}

/// Puts texts at paths as a run would; an empty text is a delete. Gives what was done.
fn run(scene: &Scene, edits: &[(&str, &str)]) -> Vec<Swap> {
    let mut swaps = Vec::new();
    for (path, text) in edits {
        let before = look(&scene.root(), path).unwrap();
        scene.contents.put_bytes(text.as_bytes()).unwrap();
        let after = if text.is_empty() {
            Image::Absent
        } else {
            file(text, 0o644)
        };
        swaps.push(Swap {
            path: (*path).to_owned(),
            before,
            after,
        });
    }
    landed(scene, &swaps);
    swaps
}

/// One text is changed by a run, then by a person; undo gives the last text, or a conflict that says so.
#[track_caller]
fn check(texts: [&str; 3], expect: Result<&str, &str>) {
    let scene = Scene::new();
    let [before, after, now] = texts;
    if !before.is_empty() {
        scene.file("f", before, 0o644);
    }
    let done = run(&scene, &[("f", after)]);
    if now.is_empty() {
        let _ = std::fs::remove_file(scene.tree().join("f"));
    } else {
        std::fs::write(scene.tree().join("f"), now).unwrap();
    }
    let plan = planned(&scene, &done);
    match expect {
        Ok(text) => {
            assert_eq!(plan.conflicts, []);
            landed(&scene, &plan.swaps);
            assert_eq!(
                std::fs::read_to_string(scene.tree().join("f")).unwrap_or_default(),
                text
            );
        }
        Err(reason) => {
            assert_eq!(plan.swaps, []);
            assert!(plan.conflicts[0].1.contains(reason), "{:?}", plan.conflicts);
        }
    }
}

#[test]
fn what_was_not_touched_since_is_as_it_was() {
    check(["1\n2\n", "1\nX\n", "1\nX\n"], Ok("1\n2\n"));
    check(["", "new\n", "new\n"], Ok(""));
    check(["old\n", "", ""], Ok("old\n"));
    check(["1\n", "2\n", "1\n"], Ok("1\n"));
}

#[test]
fn what_people_wrote_since_stays() {
    check(
        ["1\n2\n3\n4\n", "1\nX\n3\n4\n", "1\nX\n3\n4\nmine\n"],
        Ok("1\n2\n3\n4\nmine\n"),
    );
    check(
        ["a\r\nb\r\nc\r\n", "A\r\nb\r\nc\r\n", "A\r\nb\r\nC"],
        Ok("a\r\nb\r\nC"),
    );
}

#[test]
fn what_cannot_be_told_apart_is_a_conflict() {
    check(
        ["1\n2\n3\n", "1\nX\n3\n", "1\nmine\n3\n"],
        Err("both sides changed it around line 2"),
    );
    check(
        ["", "new\n", "new\nmine\n"],
        Err("removing it would lose that"),
    );
    check(
        ["old\n", "", "mine\n"],
        Err("something else was put in its place"),
    );
    check(["1\n", "2\n", ""], Err("deleted since"));
    check(["1\0", "2\0", "3\0"], Err("not text"));
}

#[test]
fn several_changes_of_one_path_are_one_unless_somebody_came_between() {
    let scene = Scene::new();
    scene.file("f", "1\n2\n3\n4\n5\n", 0o644);
    let mut done = run(&scene, &[("f", "A\n2\n3\n4\n5\n")]);
    done.extend(run(&scene, &[("f", "B\n2\n3\n4\n5\n")]));
    let plain = planned(&scene, &done);
    assert_eq!((plain.swaps.len(), plain.merged.len()), (1, 0));
    // A person writes a line between two runs. Both runs are taken back, the line is not.
    std::fs::write(scene.tree().join("f"), "B\n2\nmine\n3\n4\n5\n").unwrap();
    done.extend(run(&scene, &[("f", "B\n2\nmine\n3\n4\nC\n")]));
    let plan = planned(&scene, &done);
    assert_eq!(
        (plan.merged, plan.conflicts),
        (vec!["f".to_owned()], vec![])
    );
    landed(&scene, &plan.swaps);
    assert_eq!(
        std::fs::read_to_string(scene.tree().join("f")).unwrap(),
        "1\n2\nmine\n3\n4\n5\n"
    );
}

#[test]
fn modes_are_taken_back_and_those_that_people_gave_stay() {
    let scene = Scene::new();
    for path in ["run", "theirs", "both"] {
        scene.file(path, "x\n", 0o644);
    }
    scene.contents.put_bytes(b"y\n").unwrap();
    scene.contents.put_bytes(b"x\n").unwrap();
    let done = [
        swap("run", file("x\n", 0o644), file("x\n", 0o755)),
        swap("theirs", file("x\n", 0o644), file("y\n", 0o644)),
        swap("both", file("x\n", 0o644), file("x\n", 0o755)),
    ];
    landed(&scene, &done);
    for (path, mode) in [("theirs", 0o600), ("both", 0o700)] {
        std::fs::set_permissions(scene.tree().join(path), PermissionsExt::from_mode(mode)).unwrap();
    }
    let plan = planned(&scene, &done);
    assert_eq!(
        plan.conflicts,
        [(
            "both".to_owned(),
            "its mode was changed since (755, now 700)".to_owned()
        )]
    );
    landed(&scene, &plan.swaps);
    assert_eq!(look(&scene.root(), "run").unwrap(), file("x\n", 0o644));
    assert_eq!(look(&scene.root(), "theirs").unwrap(), file("x\n", 0o600));
}

#[test]
fn bytes_that_are_not_kept_are_a_conflict_and_damaged_ones_too() {
    let scene = Scene::new();
    scene.file("f", "old\n", 0o644);
    let done = run(&scene, &[("f", "new\n")]);
    let name = blake3::hash(b"old\n").to_hex().to_string();
    let kept = scene
        .dir
        .path()
        .join("contents")
        .join(&name[..2])
        .join(&name[2..]);
    std::fs::write(&kept, "not it").unwrap();
    assert!(planned(&scene, &done).conflicts[0].1.contains("damaged"));
    std::fs::remove_file(kept).unwrap();
    assert_eq!(
        planned(&scene, &done).conflicts[0].1,
        "its old bytes are not kept any more"
    );
}

#[test]
fn a_change_with_everything_in_it_goes_there_and_back() {
    let scene = Scene::new();
    old_tree(&scene);
    let old = tree_of(&scene.tree());
    let done = change(&scene);
    landed(&scene, &done);
    let new = tree_of(&scene.tree());
    let undo = planned(&scene, &done);
    assert_eq!((undo.swaps.len(), &undo.conflicts), (done.len(), &vec![]));
    landed(&scene, &undo.swaps);
    let mut back = tree_of(&scene.tree());
    // Directories come back by need, with the mode of a new one.
    assert_eq!(back["gone/deep"].0, 'd');
    back.insert("gone/deep".to_owned(), old["gone/deep"].clone());
    assert_eq!(back, old);
    landed(&scene, &planned(&scene, &undo.swaps).swaps);
    assert_eq!(tree_of(&scene.tree()), new);
}

#[test]
fn a_directory_that_people_use_does_not_become_a_file_again() {
    let scene = Scene::new();
    scene.file("d", "was a file\n", 0o644);
    scene.contents.put_bytes(b"in\n").unwrap();
    let done = [
        swap("d", file("was a file\n", 0o644), Image::Absent),
        swap("d/in", Image::Absent, file("in\n", 0o644)),
    ];
    landed(&scene, &done);
    scene.file("d/mine", "mine\n", 0o644);
    let plan = planned(&scene, &done);
    assert!(
        plan.conflicts[0].1.contains("still holds d/mine"),
        "{:?}",
        plan.conflicts
    );
    landed(&scene, &plan.swaps);
    assert_eq!(
        std::fs::read_to_string(scene.tree().join("d/mine")).unwrap(),
        "mine\n"
    );
}

#[test]
fn a_preview_shows_what_would_change() {
    let scene = Scene::new();
    scene.file("a", "1\n2\n", 0o644);
    scene.file("gone", "g\n", 0o644);
    scene.link("l", "x");
    let mut done = run(&scene, &[("a", "1\nX\n"), ("gone", ""), ("new", "n\n")]);
    let linked = swap("l", link("x"), link("y"));
    landed(&scene, std::slice::from_ref(&linked));
    done.push(linked);
    let plan = planned(&scene, &done);
    let shown = preview(&scene.root(), &plan, &scene.contents);
    let line = |it: &FileChange| {
        format!(
            "{} {:?} {} {:?}",
            it.path,
            it.change,
            it.line_counts(),
            it.diff
        )
    };
    let shown: Vec<String> = shown.iter().map(line).collect();
    assert_eq!(
        shown,
        [
            r#"a Modified +1 -1 Some("--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n 1\n-X\n+2\n")"#,
            r#"gone Created +1 -0 Some("--- /dev/null\n+++ b/gone\n@@ -0,0 +1 @@\n+g\n")"#,
            "l Modified  None",
            r#"new Deleted +0 -1 Some("--- a/new\n+++ /dev/null\n@@ -1 +0,0 @@\n-n\n")"#,
        ]
    );
}

type Tree = BTreeMap<String, (char, u32, Vec<u8>)>;

/// A random tree is a text, a link or nothing at each of a few paths; one of them is a directory of another.
const PATHS: [&str; 6] = ["a", "b/c", "b/d/e", "f", "g/h", "i"];

#[derive(Debug, Clone)]
enum Thing {
    Nothing,
    Text(Vec<u8>, u32),
    Link(String),
}

fn thing() -> impl Strategy<Value = Thing> {
    let line = prop_oneof![
        Just("a\n"),
        Just("b\n"),
        Just("c\r\n"),
        Just("d\n"),
        Just("e\n"),
        Just("f\n")
    ];
    let text = (
        prop::collection::vec(line, 0..9),
        prop_oneof![4 => Just(""), 1 => Just("end")],
    );
    let mode = prop_oneof![3 => Just(0o644), 1 => Just(0o755)];
    prop_oneof![
        2 => Just(Thing::Nothing),
        8 => (text, mode).prop_map(|((lines, last), mode)| Thing::Text((lines.concat() + last).into_bytes(), mode)),
        1 => prop_oneof![Just("x"), Just("../out")].prop_map(|target| Thing::Link(target.to_owned())),
    ]
}

impl Thing {
    fn image(&self, contents: &Contents) -> Image {
        match self {
            Self::Nothing => Image::Absent,
            Self::Link(target) => Image::Link {
                target: target.clone(),
            },
            Self::Text(bytes, mode) => {
                let (hash, size) = contents.put_bytes(bytes).unwrap();
                Image::File {
                    hash,
                    size,
                    mode: *mode,
                }
            }
        }
    }
}

/// What a person does to a path: a line at a place, a line less, another mode, or all of it gone.
#[derive(Debug, Clone)]
enum Edit {
    Insert(usize),
    Remove(usize),
    Mode,
    Delete,
}

fn edit() -> impl Strategy<Value = (usize, Edit)> {
    let edit = prop_oneof![
        6 => (0..9usize).prop_map(Edit::Insert),
        2 => (0..9usize).prop_map(Edit::Remove),
        1 => Just(Edit::Mode),
        1 => Just(Edit::Delete),
    ];
    (0..PATHS.len(), edit)
}

/// A person edits; every line they write is theirs alone.
fn human(scene: &Scene, edits: &[(usize, Edit)], mark: &str) {
    for (number, (at, edit)) in edits.iter().enumerate() {
        let path = scene.tree().join(PATHS[*at]);
        if !path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let fresh = format!("{mark}{number}\n");
        match edit {
            Edit::Insert(line) => lines.insert(line % (lines.len() + 1), fresh.as_bytes()),
            Edit::Remove(line) if !lines.is_empty() => drop(lines.remove(line % lines.len())),
            Edit::Remove(_) => {}
            Edit::Mode => {
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap()
            }
            Edit::Delete => {
                std::fs::remove_file(&path).unwrap();
                continue;
            }
        }
        std::fs::write(&path, lines.concat()).unwrap();
    }
}

fn files_of(tree: &Tree) -> Tree {
    tree.iter()
        .filter(|(_, seen)| seen.0 != 'd')
        .map(|(path, seen)| (path.clone(), seen.clone()))
        .collect()
}

/// Every line in the tree that a person wrote, with its path.
fn human_lines(tree: &Tree) -> Vec<(String, Vec<u8>)> {
    let lines = tree.iter().flat_map(|(path, (_, _, bytes))| {
        let lines = bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| line.windows(5).any(|it| it == b"human"));
        lines.map(|line| (path.clone(), line.to_vec()))
    });
    lines.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn undo_and_redo_under_random_edits(
        old in prop::collection::vec(thing(), PATHS.len()),
        runs in prop::collection::vec(prop::collection::vec((0..PATHS.len(), thing()), 1..5), 1..3),
        between in prop::collection::vec(edit(), 0..2),
        after in prop::collection::vec(edit(), 0..4),
        late in prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(edit(), 1..3)],
    ) {
        let scene = Scene::new();
        let start = PATHS.iter().zip(&old).map(|(path, it)| swap(path, Image::Absent, it.image(&scene.contents)));
        landed(&scene, &start.collect::<Vec<_>>());
        let mut done = Vec::new();
        for (number, wishes) in runs.iter().enumerate() {
            let wishes: BTreeMap<usize, &Thing> = wishes.iter().map(|(at, thing)| (*at, thing)).collect();
            let swaps: Vec<Swap> = wishes.into_iter().map(|(at, thing)| {
                swap(PATHS[at], look(&scene.root(), PATHS[at]).unwrap(), thing.image(&scene.contents))
            }).collect();
            landed(&scene, &swaps);
            for swap in &swaps {
                prop_assert_eq!(&look(&scene.root(), &swap.path).unwrap(), &swap.after);
            }
            done.extend(swaps);
            human(&scene, if number == 0 { &between } else { &[] }, "human between ");
        }
        human(&scene, &after, "human after ");
        let now = tree_of(&scene.tree());

        let undo = planned(&scene, &done);
        landed(&scene, &undo.swaps);
        let undone = tree_of(&scene.tree());
        let touched: Vec<&str> = done.iter().map(|swap| swap.path.as_str()).collect();
        for (path, seen) in &now {
            let conflict = undo.conflicts.iter().any(|(other, _)| other == path);
            prop_assert!(seen.0 == 'd' || touched.contains(&path.as_str()) && !conflict || undone.get(path) == Some(seen),
                "{} was not to be touched", path);
        }
        // A run that replaced a whole file, or took it away, took the lines in it; those that were there at the end stay.
        for line in human_lines(&now) {
            prop_assert!(human_lines(&undone).contains(&line), "{:?} is lost: {:?}", line, undo);
        }

        human(&scene, &late, "human late ");
        let mut written = human_lines(&tree_of(&scene.tree()));
        // An older line may be one that a run had taken away, which redo does again.
        written.retain(|(_, line)| line.starts_with(b"human late"));
        let redo = planned(&scene, &undo.swaps);
        landed(&scene, &redo.swaps);
        for line in written {
            prop_assert!(human_lines(&tree_of(&scene.tree())).contains(&line), "{:?} is lost by redo: {:?}", line, redo);
        }
        if !late.is_empty() {
            return Ok(());
        }
        prop_assert_eq!(&redo.conflicts, &vec![]);
        // Directories come and go by need; one that somebody emptied is nobody's.
        prop_assert_eq!(&files_of(&tree_of(&scene.tree())), &files_of(&now));
    }
}
