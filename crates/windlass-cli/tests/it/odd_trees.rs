//! Unusual trees and repositories: a command in an isolated or in-place run has the same effect as without windlass, and
//! undo restores the tree. The tests compare the files on disk, `git status` and `git fsck`.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use windlass_needs::{Need, lacks, not_run};

use crate::cli_fixture::CliFixture;

/// A name, the commands that prepare the tree, and the command of the run.
const ROWS: &[(&str, &str, &str)] = &[
    ("a folder becomes a file", "", "rm -r d && echo x > d"),
    (
        "a file becomes a folder",
        "",
        "rm f && mkdir f && echo x > f/in",
    ),
    ("a file becomes a symlink", "", "rm f && ln -s g f"),
    (
        "a symlink becomes a file",
        "ln -s g l && git add l",
        "rm l && echo x > l",
    ),
    ("a folder becomes a symlink", "", "mv d e && ln -s e d"),
    (
        "names that differ in case",
        "",
        "echo a > Name; echo b > name; mv f F",
    ),
    (
        "names that are not UTF-8",
        "echo o > $(printf 'o-\\377')",
        "rm o-*; echo n > $(printf 'n-\\376')",
    ),
    ("modes", "", "chmod 755 f; chmod 600 g"),
    (
        "a file that is read-only",
        "chmod 444 f",
        "chmod 644 f; echo x >> f; chmod 444 f",
    ),
    (
        "a nested repository",
        "git init -q sub; echo s > sub/s",
        "echo t >> sub/s; echo u > sub/u",
    ),
    (
        "a submodule",
        "git init -q ../module; cd ../module; echo m > m; git add m; git commit -qm m; cd -; git -c protocol.file.allow=always submodule --quiet add ../module module",
        "echo n >> module/m; echo x >> f",
    ),
    (
        "a sparse checkout",
        "git sparse-checkout set --no-cone /d/",
        "echo x >> d/one; echo y > d/new",
    ),
    (
        "no commits",
        "rm -rf .git; git init -q .",
        "echo x >> f; rm g",
    ),
    (
        "a detached head",
        "git checkout -q --detach",
        "echo x >> f; rm g",
    ),
    (
        "the middle of a merge",
        "git checkout -qb other; echo o > f; git commit -qam o; git checkout -q main; echo m > f; git commit -qam m; git merge other >/dev/null; true",
        "echo merged > f",
    ),
    (
        "a linked worktree",
        "git worktree add -q --detach ../linked; mv .git ../moved; mv ../linked/.git .git; git -C ../moved config core.bare false; echo \"gitdir: $(cd ../moved && pwd)/worktrees/linked\" > .git; pwd | sed 's,$,/.git,' > ../moved/worktrees/linked/gitdir",
        "echo x >> f; rm g",
    ),
];

const BASE: &str = "git init -q -b main . && mkdir d && echo one > d/one && echo f > f && echo g > g && git add . && git commit -qm first";

fn sh(fixture: &CliFixture, line: &str) -> String {
    let done = Command::new("sh")
        .args(["-c", line])
        .current_dir(fixture.work())
        .env("HOME", fixture.home())
        .envs([
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@example.invalid"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@example.invalid"),
        ])
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Reads files and symlinks by name, without the git directory and empty directories.
fn tree(dir: &Path, below: &Path, all: &mut BTreeMap<Vec<u8>, String>) {
    for entry in std::fs::read_dir(dir.join(below)).unwrap().flatten() {
        let path = below.join(entry.file_name());
        let about = std::fs::symlink_metadata(dir.join(&path)).unwrap();
        let text = match about.file_type() {
            _ if entry.file_name() == ".git" => continue,
            kind if kind.is_dir() => {
                tree(dir, &path, all);
                continue;
            }
            kind if kind.is_symlink() => format!("{:?}", std::fs::read_link(dir.join(&path))),
            _ => {
                let bytes = std::fs::read(dir.join(&path));
                let (owner, group) = (about.uid(), about.gid());
                format!("{:o} {owner}:{group} {bytes:?}", about.mode())
            }
        };
        all.insert(path.into_os_string().into_encoded_bytes(), text);
    }
}

fn files(fixture: &CliFixture) -> BTreeMap<Vec<u8>, String> {
    let mut all = BTreeMap::new();
    tree(&fixture.work(), Path::new(""), &mut all);
    all
}

#[track_caller]
fn check(flag: &str, (name, setup, command): (&str, &str, &str)) {
    let (windlass, plain) = (CliFixture::new(), CliFixture::new());
    for fixture in [&windlass, &plain] {
        sh(fixture, BASE);
        sh(fixture, if setup.is_empty() { "true" } else { setup });
    }
    let before = files(&windlass);
    sh(&plain, command);
    let quoted = serde_json::Value::from(command).to_string();
    let script = windlass.script(&format!(
        "[[step]]\ncalls = [{{ name = \"bash\", args = {{ command = {quoted} }} }}]\n\n[[step]]\ntext = \"done\"\n"
    ));
    let ran = windlass.run(&[
        "run",
        flag,
        "--script",
        &script,
        "--approval",
        "auto",
        "--validate",
        "none",
        "go",
    ]);
    assert_eq!(ran.code, 0, "{name} {flag}: {}", ran.err);
    assert_eq!(files(&windlass), files(&plain), "{name} {flag}");
    let status = "git status --porcelain";
    assert_eq!(sh(&windlass, status), sh(&plain, status), "{name} {flag}");
    let undone = windlass.run(&["undo"]);
    assert_eq!(undone.code, 0, "{name} {flag}: {}", undone.err);
    assert_eq!(files(&windlass), before, "{name} {flag}: undo");
    sh(&windlass, "git fsck --no-progress");
}

#[test]
fn odd_trees_are_changed_and_undone_in_place() {
    if !lacks(Need::CommandLayers) {
        ROWS.iter().for_each(|row| check("--in-place", *row));
    }
}

#[test]
fn odd_trees_are_changed_and_undone_by_isolated_runs() {
    ROWS.iter().for_each(|row| check("--isolated", *row));
}

#[test]
fn files_of_another_owner_keep_their_owner() {
    let fixture = CliFixture::new();
    fixture.write("f", "");
    if std::os::unix::fs::chown(fixture.work().join("f"), Some(1234), Some(1235)).is_err() {
        return not_run("needs the right to give files to another owner");
    }
    if lacks(Need::CommandLayers) {
        return;
    }
    let row = (
        "files of another owner",
        "chown 1234:1235 f d/one; chmod 600 d/one",
        "echo x >> f; echo y >> d/one; echo z > d/new; mv g h",
    );
    check("--in-place", row);
    check("--isolated", row);
}
