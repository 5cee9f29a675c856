//! Cases of undo, and properties of every undo under random edits of a user.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::super::testing::{LandingFixture, change, file, link, old_tree, swap, tree_of};
use super::super::{image_at, land};
use super::*;

fn landed(fixture: &LandingFixture, swaps: &[Swap]) {
    land(
        &fixture.root(),
        swaps,
        &fixture.contents,
        &fixture.contents,
        &fixture.journal(),
        &|_| {},
    )
    .unwrap();
}

fn planned(fixture: &LandingFixture, done: &[Swap]) -> UndoPlan {
    plan(&fixture.root(), done, &fixture.contents).unwrap()
}

/// Writes texts to paths as a run would; an empty text is a delete. Returns the swaps.
fn run(fixture: &LandingFixture, edits: &[(&str, &str)]) -> Vec<Swap> {
    let mut swaps = Vec::new();
    for (path, text) in edits {
        let before = image_at(&fixture.root(), path).unwrap();
        fixture.contents.put_bytes(text.as_bytes()).unwrap();
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
    landed(fixture, &swaps);
    swaps
}

/// A run changes a text, then a user does. The undo results in the expected text or in a conflict.
#[track_caller]
fn check(texts: [&str; 3], expect: Result<&str, &str>) {
    let fixture = LandingFixture::new();
    let [before, after, now] = texts;
    if !before.is_empty() {
        fixture.file("f", before, 0o644);
    }
    let done = run(&fixture, &[("f", after)]);
    if now.is_empty() {
        let _ = std::fs::remove_file(fixture.tree().join("f"));
    } else {
        std::fs::write(fixture.tree().join("f"), now).unwrap();
    }
    let plan = planned(&fixture, &done);
    match expect {
        Ok(text) => {
            assert_eq!(plan.conflicts, []);
            landed(&fixture, &plan.swaps);
            assert_eq!(
                std::fs::read_to_string(fixture.tree().join("f")).unwrap_or_default(),
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
fn unchanged_files_are_restored() {
    check(["1\n2\n", "1\nX\n", "1\nX\n"], Ok("1\n2\n"));
    check(["", "new\n", "new\n"], Ok(""));
    check(["old\n", "", ""], Ok("old\n"));
    check(["1\n", "2\n", "1\n"], Ok("1\n"));
}

#[test]
fn later_edits_of_the_user_stay() {
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
fn edits_that_cannot_be_merged_are_a_conflict() {
    check(
        ["1\n2\n3\n", "1\nX\n3\n", "1\nmine\n3\n"],
        Err("both sides changed it around line 2"),
    );
    check(
        ["", "new\n", "new\nmine\n"],
        Err("deleting it would lose those changes"),
    );
    check(
        ["old\n", "", "mine\n"],
        Err("another file was created at this path"),
    );
    check(["1\n", "2\n", ""], Err("deleted since"));
    check(["1\0", "2\0", "3\0"], Err("not text"));
}

#[test]
fn changes_of_one_path_are_joined_unless_the_user_edited_it_between() {
    let fixture = LandingFixture::new();
    fixture.file("f", "1\n2\n3\n4\n5\n", 0o644);
    let mut done = run(&fixture, &[("f", "A\n2\n3\n4\n5\n")]);
    done.extend(run(&fixture, &[("f", "B\n2\n3\n4\n5\n")]));
    let plain = planned(&fixture, &done);
    assert_eq!((plain.swaps.len(), plain.merged.len()), (1, 0));
    // A user writes a line between two runs. The undo of both runs keeps the line.
    std::fs::write(fixture.tree().join("f"), "B\n2\nmine\n3\n4\n5\n").unwrap();
    done.extend(run(&fixture, &[("f", "B\n2\nmine\n3\n4\nC\n")]));
    let plan = planned(&fixture, &done);
    assert_eq!(
        (plan.merged, plan.conflicts),
        (vec!["f".to_owned()], vec![])
    );
    landed(&fixture, &plan.swaps);
    assert_eq!(
        std::fs::read_to_string(fixture.tree().join("f")).unwrap(),
        "1\n2\nmine\n3\n4\n5\n"
    );
}

#[test]
fn modes_are_restored_and_modes_set_by_the_user_stay() {
    let fixture = LandingFixture::new();
    for path in ["run", "theirs", "both"] {
        fixture.file(path, "x\n", 0o644);
    }
    fixture.contents.put_bytes(b"y\n").unwrap();
    fixture.contents.put_bytes(b"x\n").unwrap();
    let done = [
        swap("run", file("x\n", 0o644), file("x\n", 0o755)),
        swap("theirs", file("x\n", 0o644), file("y\n", 0o644)),
        swap("both", file("x\n", 0o644), file("x\n", 0o755)),
    ];
    landed(&fixture, &done);
    for (path, mode) in [("theirs", 0o600), ("both", 0o700)] {
        std::fs::set_permissions(fixture.tree().join(path), PermissionsExt::from_mode(mode))
            .unwrap();
    }
    let plan = planned(&fixture, &done);
    assert_eq!(
        plan.conflicts,
        [(
            "both".to_owned(),
            "its mode was changed since (755, now 700)".to_owned()
        )]
    );
    landed(&fixture, &plan.swaps);
    assert_eq!(
        image_at(&fixture.root(), "run").unwrap(),
        file("x\n", 0o644)
    );
    assert_eq!(
        image_at(&fixture.root(), "theirs").unwrap(),
        file("x\n", 0o600)
    );
}

#[test]
fn missing_or_damaged_bytes_are_a_conflict() {
    let fixture = LandingFixture::new();
    fixture.file("f", "old\n", 0o644);
    let done = run(&fixture, &[("f", "new\n")]);
    let name = blake3::hash(b"old\n").to_hex().to_string();
    let kept = fixture
        .dir
        .path()
        .join("contents")
        .join(&name[..2])
        .join(&name[2..]);
    std::fs::write(&kept, "not it").unwrap();
    assert!(planned(&fixture, &done).conflicts[0].1.contains("damaged"));
    std::fs::remove_file(kept).unwrap();
    assert_eq!(
        planned(&fixture, &done).conflicts[0].1,
        "its old bytes are no longer stored"
    );
}

#[test]
fn a_change_of_every_kind_is_undone_and_redone() {
    let fixture = LandingFixture::new();
    old_tree(&fixture);
    let old = tree_of(&fixture.tree());
    let done = change(&fixture);
    landed(&fixture, &done);
    let new = tree_of(&fixture.tree());
    let undo = planned(&fixture, &done);
    assert_eq!((undo.swaps.len(), &undo.conflicts), (done.len(), &vec![]));
    landed(&fixture, &undo.swaps);
    let mut back = tree_of(&fixture.tree());
    // An undo creates directories where files need them, with the mode of a new directory.
    assert_eq!(back["gone/deep"].0, 'd');
    back.insert("gone/deep".to_owned(), old["gone/deep"].clone());
    assert_eq!(back, old);
    landed(&fixture, &planned(&fixture, &undo.swaps).swaps);
    assert_eq!(tree_of(&fixture.tree()), new);
}

#[test]
fn a_directory_with_files_of_the_user_does_not_become_a_file_again() {
    let fixture = LandingFixture::new();
    fixture.file("d", "was a file\n", 0o644);
    fixture.contents.put_bytes(b"in\n").unwrap();
    let done = [
        swap("d", file("was a file\n", 0o644), Image::Absent),
        swap("d/in", Image::Absent, file("in\n", 0o644)),
    ];
    landed(&fixture, &done);
    fixture.file("d/mine", "mine\n", 0o644);
    let plan = planned(&fixture, &done);
    assert!(
        plan.conflicts[0].1.contains("still contains d/mine"),
        "{:?}",
        plan.conflicts
    );
    landed(&fixture, &plan.swaps);
    assert_eq!(
        std::fs::read_to_string(fixture.tree().join("d/mine")).unwrap(),
        "mine\n"
    );
}

#[test]
fn a_preview_shows_what_would_change() {
    let fixture = LandingFixture::new();
    fixture.file("a", "1\n2\n", 0o644);
    fixture.file("gone", "g\n", 0o644);
    fixture.link("l", "x");
    let mut done = run(&fixture, &[("a", "1\nX\n"), ("gone", ""), ("new", "n\n")]);
    let linked = swap("l", link("x"), link("y"));
    landed(&fixture, std::slice::from_ref(&linked));
    done.push(linked);
    let plan = planned(&fixture, &done);
    let files = preview(&fixture.root(), &plan, &fixture.contents);
    let line = |it: &FileChange| {
        format!(
            "{} {:?} {} {:?}",
            it.path,
            it.change,
            it.line_counts(),
            it.diff
        )
    };
    let lines: Vec<String> = files.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            r#"a Modified +1 -1 Some("--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n 1\n-X\n+2\n")"#,
            r#"gone Created +1 -0 Some("--- /dev/null\n+++ b/gone\n@@ -0,0 +1 @@\n+g\n")"#,
            "l Modified  None",
            r#"new Deleted +0 -1 Some("--- a/new\n+++ /dev/null\n@@ -1 +0,0 @@\n-n\n")"#,
        ]
    );
}

type Tree = BTreeMap<String, (char, u32, Vec<u8>)>;

/// A random tree has a text, a symlink or nothing at each of these paths.
const PATHS: [&str; 6] = ["a", "b/c", "b/d/e", "f", "g/h", "i"];

#[derive(Debug, Clone)]
enum RandomContent {
    Nothing,
    Text(Vec<u8>, u32),
    Link(String),
}

fn thing() -> impl Strategy<Value = RandomContent> {
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
        2 => Just(RandomContent::Nothing),
        8 => (text, mode).prop_map(|((lines, last), mode)| RandomContent::Text((lines.concat() + last).into_bytes(), mode)),
        1 => prop_oneof![Just("x"), Just("../out")].prop_map(|target| RandomContent::Link(target.to_owned())),
    ]
}

impl RandomContent {
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

/// An edit of a user: insert a line, remove a line, change the mode, or delete the file.
#[derive(Debug, Clone)]
enum UserEdit {
    Insert(usize),
    Remove(usize),
    Mode,
    Delete,
}

fn edit() -> impl Strategy<Value = (usize, UserEdit)> {
    let edit = prop_oneof![
        6 => (0..9usize).prop_map(UserEdit::Insert),
        2 => (0..9usize).prop_map(UserEdit::Remove),
        1 => Just(UserEdit::Mode),
        1 => Just(UserEdit::Delete),
    ];
    (0..PATHS.len(), edit)
}

/// Applies edits of a user; every line that the user writes is unique.
fn human(fixture: &LandingFixture, edits: &[(usize, UserEdit)], mark: &str) {
    for (number, (at, edit)) in edits.iter().enumerate() {
        let path = fixture.tree().join(PATHS[*at]);
        if !path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let fresh = format!("{mark}{number}\n");
        match edit {
            UserEdit::Insert(line) => lines.insert(line % (lines.len() + 1), fresh.as_bytes()),
            UserEdit::Remove(line) if !lines.is_empty() => drop(lines.remove(line % lines.len())),
            UserEdit::Remove(_) => {}
            UserEdit::Mode => {
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap()
            }
            UserEdit::Delete => {
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

/// Every line in the tree that the user wrote, with its path.
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
        let fixture = LandingFixture::new();
        let start = PATHS.iter().zip(&old).map(|(path, it)| swap(path, Image::Absent, it.image(&fixture.contents)));
        landed(&fixture, &start.collect::<Vec<_>>());
        let mut done = Vec::new();
        for (number, wishes) in runs.iter().enumerate() {
            let wishes: BTreeMap<usize, &RandomContent> = wishes.iter().map(|(at, thing)| (*at, thing)).collect();
            let swaps: Vec<Swap> = wishes.into_iter().map(|(at, thing)| {
                swap(PATHS[at], image_at(&fixture.root(), PATHS[at]).unwrap(), thing.image(&fixture.contents))
            }).collect();
            landed(&fixture, &swaps);
            for swap in &swaps {
                prop_assert_eq!(&image_at(&fixture.root(), &swap.path).unwrap(), &swap.after);
            }
            done.extend(swaps);
            human(&fixture, if number == 0 { &between } else { &[] }, "human between ");
        }
        human(&fixture, &after, "human after ");
        let now = tree_of(&fixture.tree());

        let undo = planned(&fixture, &done);
        landed(&fixture, &undo.swaps);
        let undone = tree_of(&fixture.tree());
        let touched: Vec<&str> = done.iter().map(|swap| swap.path.as_str()).collect();
        for (path, seen) in &now {
            let conflict = undo.conflicts.iter().any(|(other, _)| other == path);
            prop_assert!(seen.0 == 'd' || touched.contains(&path.as_str()) && !conflict || undone.get(path) == Some(seen),
                "{} was not to be touched", path);
        }
        // A run that replaced or deleted a whole file also removed the user's lines in it. Lines that existed before
        // the undo must stay.
        for line in human_lines(&now) {
            prop_assert!(human_lines(&undone).contains(&line), "{:?} is lost: {:?}", line, undo);
        }

        human(&fixture, &late, "human late ");
        let mut written = human_lines(&tree_of(&fixture.tree()));
        // An older line may be one that a run had removed; a redo removes it again.
        written.retain(|(_, line)| line.starts_with(b"human late"));
        let redo = planned(&fixture, &undo.swaps);
        landed(&fixture, &redo.swaps);
        for line in written {
            prop_assert!(human_lines(&tree_of(&fixture.tree())).contains(&line), "{:?} is lost by redo: {:?}", line, redo);
        }
        if !late.is_empty() {
            return Ok(());
        }
        prop_assert_eq!(&redo.conflicts, &vec![]);
        // Directories are created and removed as files need them, so only files are compared.
        prop_assert_eq!(&files_of(&tree_of(&fixture.tree())), &files_of(&now));
    }
}
