#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use super::*;

struct Place(tempfile::TempDir);

impl Place {
    fn new(files: &[(&str, &str)]) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for dir in ["etc", "user", "work"] {
            std::fs::create_dir(place.0.path().join(dir)).unwrap();
        }
        for (name, text) in files {
            place.write(name, text.as_bytes());
        }
        place
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn find(&self, below: &str) -> Found {
        let root = Root::open(&self.0.path().join("work")).unwrap();
        let (managed, user) = (self.0.path().join("etc"), self.0.path().join("user"));
        find(&LookIn {
            managed: &managed,
            user: &user,
            root: &root,
            below,
        })
    }
}

/// The texts that count, in order, and what is said about the rest; paths without the directory of the test.
#[track_caller]
fn check(place: &Place, below: &str, texts: &[&str], skipped: &[(&str, &str)]) {
    let found = place.find(below);
    assert_eq!(
        found
            .layers
            .iter()
            .map(|layer| layer.text.as_str())
            .collect::<Vec<_>>(),
        texts
    );
    let top = format!("{}/", place.0.path().display());
    let said: Vec<(String, String)> = found
        .skipped
        .iter()
        .map(|one| (one.path.replace(&top, ""), one.why.replace(&top, "")))
        .collect();
    let expect: Vec<(String, String)> = skipped
        .iter()
        .map(|(path, why)| ((*path).into(), (*why).into()))
        .collect();
    assert_eq!(said, expect);
}

#[test]
fn from_the_most_general_to_the_nearest() {
    let place = Place::new(&[
        ("etc/AGENTS.md", "managed"),
        ("user/AGENTS.md", "user\n"),
        ("work/AGENTS.md", "\u{feff}root"),
        ("work/a/b/AGENTS.md", "near"),
        ("work/a/other/AGENTS.md", "not on the way"),
    ]);
    check(&place, "a/b", &["managed", "user", "root", "near"], &[]);
    check(&place, "", &["managed", "user", "root"], &[]);
    check(
        &place,
        "a/b/../../x",
        &["managed", "user", "root", "near"],
        &[],
    );
    let whose: Vec<Whose> = place
        .find("a/b")
        .layers
        .iter()
        .map(|layer| layer.whose)
        .collect();
    assert_eq!(
        whose,
        [Whose::Managed, Whose::User, Whose::Project, Whose::Project]
    );
    assert_eq!(place.find("a/b").layers[3].file.path, "a/b/AGENTS.md");
}

#[test]
fn other_names_count_only_where_there_is_no_agents_file() {
    let place = Place::new(&[
        ("work/AGENTS.md", "ours"),
        ("work/CLAUDE.md", "theirs"),
        ("work/.github/copilot-instructions.md", "ours"),
        ("work/sub/GEMINI.md", "below"),
        ("work/sub/.cursorrules", "more"),
    ]);
    let skipped = [
        ("sub/.cursorrules", "sub/GEMINI.md counts instead"),
        ("CLAUDE.md", "AGENTS.md counts instead"),
        (
            ".github/copilot-instructions.md",
            "it is the same as AGENTS.md",
        ),
    ];
    check(&place, "sub", &["ours", "below"], &skipped);
}

#[test]
fn links_and_copies_are_told_once_and_none_leads_out() {
    let place = Place::new(&[
        ("work/AGENTS.md", "ours"),
        ("secret.md", "hush"),
        ("work/.env", "KEY=1"),
    ]);
    std::fs::create_dir_all(place.0.path().join("work/a/b/c")).unwrap();
    symlink("AGENTS.md", place.0.path().join("work/CLAUDE.md")).unwrap();
    symlink("../AGENTS.md", place.0.path().join("work/a/AGENTS.md")).unwrap();
    symlink(
        "../../../../secret.md",
        place.0.path().join("work/a/b/AGENTS.md"),
    )
    .unwrap();
    symlink("../../../.env", place.0.path().join("work/a/b/c/AGENTS.md")).unwrap();
    let skipped = [
        ("a/b/c/AGENTS.md", "it leads to a credential"),
        ("a/b/AGENTS.md", "it leads outside the workspace"),
        ("CLAUDE.md", "it is the same as AGENTS.md"),
        ("a/AGENTS.md", "it is the same as AGENTS.md"),
    ];
    let found = place.find("a/b/c");
    assert_eq!(found.layers.len(), 1);
    let mut said: Vec<(&str, &str)> = found
        .skipped
        .iter()
        .map(|one| (one.path.as_str(), one.why.as_str()))
        .collect();
    let mut expect = skipped.to_vec();
    said.sort_unstable();
    expect.sort_unstable();
    assert_eq!(said, expect);
}

#[test]
fn what_is_too_large_is_cut_at_a_line_and_what_is_no_text_is_left_out() {
    let line = format!("{}\n", "x".repeat(99));
    let place = Place::new(&[
        ("work/AGENTS.md", &line.repeat(1_000)),
        ("work/a/AGENTS.md", " \n"),
    ]);
    place.write("user/AGENTS.md", &[0xff, 0xfe, 0]);
    let found = place.find("a");
    assert_eq!(found.layers.len(), 1);
    assert_eq!(found.layers[0].text.len(), 655 * 100 - 1);
    assert_eq!(found.layers[0].file.bytes, 100_000);
    let why: Vec<&str> = found.skipped.iter().map(|one| one.why.as_str()).collect();
    assert_eq!(
        why,
        [
            "it is not UTF-8 text",
            "it is empty",
            "it has 100000 bytes, of which the first 65500 count: that much one file may have"
        ]
    );
}

#[test]
fn one_that_does_not_count_takes_no_others_place() {
    let place = Place::new(&[
        ("work/.env", "KEY=1"),
        ("work/CLAUDE.md", "theirs"),
        ("work/a/CLAUDE.md", "near"),
    ]);
    symlink(".env", place.0.path().join("work/AGENTS.md")).unwrap();
    std::fs::create_dir(place.0.path().join("work/a/AGENTS.md")).unwrap();
    let skipped = [
        ("a/AGENTS.md", "it is no regular file"),
        ("AGENTS.md", "it leads to a credential"),
    ];
    check(&place, "a", &["theirs", "near"], &skipped);
}

#[test]
fn one_long_line_counts_as_far_as_there_is_room() {
    let place = Place::new(&[("work/AGENTS.md", &format!("x{}", "é".repeat(40_000)))]);
    let found = place.find("");
    assert_eq!(
        found.layers[0].text.len(),
        (64 << 10) - 1,
        "no half character"
    );
    assert!(
        found.skipped[0]
            .why
            .contains("of which the first 65535 count"),
        "{:?}",
        found.skipped
    );
}

#[test]
fn all_together_have_a_bound_and_the_nearest_are_the_last_to_go() {
    let line = format!("{}\n", "x".repeat(99));
    let place = Place::new(&[]);
    for (n, dir) in ["work", "work/a", "work/a/b", "work/a/b/c"]
        .iter()
        .enumerate()
    {
        place.write(
            &format!("{dir}/AGENTS.md"),
            format!("{n} {}", line.repeat(500)).as_bytes(),
        );
    }
    let found = place.find("a/b/c");
    let starts: Vec<&str> = found.layers.iter().map(|layer| &layer.text[..1]).collect();
    assert_eq!(starts, ["1", "2", "3"], "the root's has no room left");
    let told: usize = found.layers.iter().map(|layer| layer.text.len()).sum();
    assert!(told <= 128 << 10 && told > 120_000, "{told}");
    assert!(
        found
            .skipped
            .iter()
            .all(|one| one.why.contains("is left for all files together")),
        "{:?}",
        found.skipped
    );
}
