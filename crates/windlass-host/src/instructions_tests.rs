#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use super::*;

struct InstructionsFixture(tempfile::TempDir);

impl InstructionsFixture {
    fn new(files: &[(&str, &str)]) -> Self {
        let fixture = Self(tempfile::tempdir().unwrap());
        for dir in ["etc", "user", "work"] {
            std::fs::create_dir(fixture.0.path().join(dir)).unwrap();
        }
        for (name, text) in files {
            fixture.write(name, text.as_bytes());
        }
        fixture
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn find(&self, below: &str) -> FoundInstructions {
        let root = Root::open(&self.0.path().join("work")).unwrap();
        let (managed, user) = (self.0.path().join("etc"), self.0.path().join("user"));
        find(&InstructionDirs {
            managed: &managed,
            user: &user,
            root: &root,
            below,
        })
    }
}

/// Compares the texts that apply, in order, and the reasons of the skipped files; paths without the directory of the
/// test.
#[track_caller]
fn check(fixture: &InstructionsFixture, below: &str, texts: &[&str], skipped: &[(&str, &str)]) {
    let found = fixture.find(below);
    assert_eq!(
        found
            .layers
            .iter()
            .map(|layer| layer.text.as_str())
            .collect::<Vec<_>>(),
        texts
    );
    let top = format!("{}/", fixture.0.path().display());
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
fn files_are_ordered_from_the_most_general_to_the_most_specific() {
    let fixture = InstructionsFixture::new(&[
        ("etc/AGENTS.md", "managed"),
        ("user/AGENTS.md", "user\n"),
        ("work/AGENTS.md", "\u{feff}root"),
        ("work/a/b/AGENTS.md", "near"),
        ("work/a/other/AGENTS.md", "not on the way"),
    ]);
    check(&fixture, "a/b", &["managed", "user", "root", "near"], &[]);
    check(&fixture, "", &["managed", "user", "root"], &[]);
    check(
        &fixture,
        "a/b/../../x",
        &["managed", "user", "root", "near"],
        &[],
    );
    let owner: Vec<InstructionOwner> = fixture
        .find("a/b")
        .layers
        .iter()
        .map(|layer| layer.owner)
        .collect();
    assert_eq!(
        owner,
        [
            InstructionOwner::Managed,
            InstructionOwner::User,
            InstructionOwner::Project,
            InstructionOwner::Project
        ]
    );
    assert_eq!(fixture.find("a/b").layers[3].file.path, "a/b/AGENTS.md");
}

#[test]
fn other_names_apply_only_without_an_agents_file() {
    let fixture = InstructionsFixture::new(&[
        ("work/AGENTS.md", "ours"),
        ("work/CLAUDE.md", "theirs"),
        ("work/.github/copilot-instructions.md", "ours"),
        ("work/sub/GEMINI.md", "below"),
        ("work/sub/.cursorrules", "more"),
    ]);
    let skipped = [
        ("sub/.cursorrules", "sub/GEMINI.md is used instead"),
        ("CLAUDE.md", "AGENTS.md is used instead"),
        (
            ".github/copilot-instructions.md",
            "it is the same as AGENTS.md",
        ),
    ];
    check(&fixture, "sub", &["ours", "below"], &skipped);
}

#[test]
fn symlinks_and_copies_are_used_once_and_never_lead_outside() {
    let fixture = InstructionsFixture::new(&[
        ("work/AGENTS.md", "ours"),
        ("secret.md", "hush"),
        ("work/.env", "KEY=1"),
    ]);
    std::fs::create_dir_all(fixture.0.path().join("work/a/b/c")).unwrap();
    symlink("AGENTS.md", fixture.0.path().join("work/CLAUDE.md")).unwrap();
    symlink("../AGENTS.md", fixture.0.path().join("work/a/AGENTS.md")).unwrap();
    symlink(
        "../../../../secret.md",
        fixture.0.path().join("work/a/b/AGENTS.md"),
    )
    .unwrap();
    symlink(
        "../../../.env",
        fixture.0.path().join("work/a/b/c/AGENTS.md"),
    )
    .unwrap();
    let skipped = [
        ("a/b/c/AGENTS.md", "it leads to a credential"),
        ("a/b/AGENTS.md", "it leads outside the workspace"),
        ("CLAUDE.md", "it is the same as AGENTS.md"),
        ("a/AGENTS.md", "it is the same as AGENTS.md"),
    ];
    let found = fixture.find("a/b/c");
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
fn a_large_file_is_cut_at_a_line_and_a_binary_file_is_skipped() {
    let line = format!("{}\n", "x".repeat(99));
    let fixture = InstructionsFixture::new(&[
        ("work/AGENTS.md", &line.repeat(1_000)),
        ("work/a/AGENTS.md", " \n"),
    ]);
    fixture.write("user/AGENTS.md", &[0xff, 0xfe, 0]);
    let found = fixture.find("a");
    assert_eq!(found.layers.len(), 1);
    assert_eq!(found.layers[0].text.len(), 655 * 100 - 1);
    assert_eq!(found.layers[0].file.bytes, 100_000);
    let why: Vec<&str> = found.skipped.iter().map(|one| one.why.as_str()).collect();
    assert_eq!(
        why,
        [
            "it is not UTF-8 text",
            "it is empty",
            "only the first 65500 of 100000 bytes are used: the limit for one file"
        ]
    );
}

#[test]
fn a_file_that_does_not_apply_does_not_displace_another() {
    let fixture = InstructionsFixture::new(&[
        ("work/.env", "KEY=1"),
        ("work/CLAUDE.md", "theirs"),
        ("work/a/CLAUDE.md", "near"),
    ]);
    symlink(".env", fixture.0.path().join("work/AGENTS.md")).unwrap();
    std::fs::create_dir(fixture.0.path().join("work/a/AGENTS.md")).unwrap();
    let skipped = [
        ("a/AGENTS.md", "it is not a regular file"),
        ("AGENTS.md", "it leads to a credential"),
    ];
    check(&fixture, "a", &["theirs", "near"], &skipped);
}

#[test]
fn one_long_line_is_cut_at_the_limit() {
    let fixture =
        InstructionsFixture::new(&[("work/AGENTS.md", &format!("x{}", "é".repeat(40_000)))]);
    let found = fixture.find("");
    assert_eq!(
        found.layers[0].text.len(),
        (64 << 10) - 1,
        "no half character"
    );
    assert!(
        found.skipped[0].why.contains("only the first 65535 of"),
        "{:?}",
        found.skipped
    );
}

#[test]
fn the_total_limit_drops_the_most_general_files_first() {
    let line = format!("{}\n", "x".repeat(99));
    let fixture = InstructionsFixture::new(&[]);
    for (n, dir) in ["work", "work/a", "work/a/b", "work/a/b/c"]
        .iter()
        .enumerate()
    {
        fixture.write(
            &format!("{dir}/AGENTS.md"),
            format!("{n} {}", line.repeat(500)).as_bytes(),
        );
    }
    let found = fixture.find("a/b/c");
    let starts: Vec<&str> = found.layers.iter().map(|layer| &layer.text[..1]).collect();
    assert_eq!(
        starts,
        ["1", "2", "3"],
        "the total limit excludes the file of the root"
    );
    let total: usize = found.layers.iter().map(|layer| layer.text.len()).sum();
    assert!(total <= 128 << 10 && total > 120_000, "{total}");
    assert!(
        found
            .skipped
            .iter()
            .all(|one| one.why.contains("the limit for all files together")),
        "{:?}",
        found.skipped
    );
}
