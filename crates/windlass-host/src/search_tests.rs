//! Tests of finding and grepping, on one small tree.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

fn tree() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let ws = dir.path().join("ws");
    for (file, text) in [
        (".gitignore", "target/\n*.log\n"),
        (".hidden/x.rs", "fn hidden() {}\n"),
        (".git/config", "fn never() {}\n"),
        ("a.log", "fn ignored() {}\n"),
        ("src/lib.rs", "one\nfn two() {}\nthree\nfn four() {}\n"),
        ("src/deep/mod.rs", "fn deep() {}\r\nrest\r\n"),
        ("src/deep/.ignore", "skipped.rs\n"),
        ("src/deep/skipped.rs", "fn skipped() {}\n"),
        ("target/out.rs", "fn built() {}\n"),
        ("binary.rs", "fn before() {}\n\0\u{1}"),
    ] {
        let path = ws.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    std::fs::write(dir.path().join("outside.rs"), "fn outside() {}\n").unwrap();
    // Ignore files above the workspace do not apply.
    std::fs::write(dir.path().join(".gitignore"), "lib.rs\n").unwrap();
    symlink("../outside.rs", ws.join("link.rs")).unwrap();
    symlink("..", ws.join("up")).unwrap();
    let root = Root::open(&ws).unwrap();
    (dir, root)
}

#[track_caller]
fn check_find(under: &str, glob: &str, expect: &[&str]) {
    let (_dir, root) = tree();
    let query = FindQuery {
        under: under.into(),
        glob: glob.into(),
        max: 100,
    };
    let found = find(&root, &query, &CancellationToken::new()).unwrap();
    assert_eq!(found.paths, expect, "{glob} under {under:?}");
    assert!(!found.more);
}

#[test]
fn finding_honours_ignore_files_and_enters_neither_git_nor_links() {
    let all = [
        ".hidden/x.rs",
        "binary.rs",
        "link.rs",
        "src/deep/mod.rs",
        "src/lib.rs",
    ];
    check_find("", "*.rs", &all);
    check_find(".", "**/*.rs", &all);
    check_find("", "src/*.rs", &["src/lib.rs"]);
    check_find(
        "",
        "src/**",
        &["src/deep/.ignore", "src/deep/mod.rs", "src/lib.rs"],
    );
    check_find("", "{lib,mod}.rs", &["src/deep/mod.rs", "src/lib.rs"]);
    check_find("src", "*.rs", &["src/deep/mod.rs", "src/lib.rs"]);
    check_find("src", "deep/*.rs", &["src/deep/mod.rs"]);
    check_find("src", "src/deep/*.rs", &["src/deep/mod.rs"]);
    check_find("", "*.log", &[]);
    check_find("src/lib.rs", "*.rs", &["src/lib.rs"]);
}

/// Ignore files that would block a search forever, or fill the memory, if they were opened or followed.
#[test]
fn an_ignore_file_that_is_not_a_regular_file_is_skipped() {
    let (dir, root) = tree();
    let ws = dir.path().join("ws");
    for (folder, name) in [
        ("src", ".gitignore"),
        ("src/deep", ".gitignore"),
        (".hidden", ".ignore"),
    ] {
        let path = ws.join(folder).join(name);
        match folder {
            "src" => rustix::fs::mknodat(
                rustix::fs::CWD,
                &path,
                rustix::fs::FileType::Fifo,
                0o600.into(),
                0,
            )
            .unwrap(),
            "src/deep" => symlink("/dev/zero", &path).unwrap(),
            _ => File::create(&path).unwrap().set_len(1 << 40).unwrap(),
        }
    }
    std::fs::create_dir_all(ws.join(".git/info")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        ws.join(".git/info/exclude"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let query = FindQuery {
        under: String::new(),
        glob: "*.rs".into(),
        max: 100,
    };
    let found = find(&root, &query, &CancellationToken::new()).unwrap();
    assert_eq!(
        found.paths,
        [
            ".hidden/x.rs",
            "binary.rs",
            "link.rs",
            "src/deep/mod.rs",
            "src/lib.rs"
        ]
    );
}

#[test]
fn ignore_files_apply_by_directory_kind_and_repository() {
    let (dir, root) = tree();
    let ws = dir.path().join("ws");
    for (file, text) in [
        // The nearer file wins, `.ignore` before `.gitignore`, and both before the repository's own list.
        ("src/.gitignore", "\u{feff}!keep.log\r\n/top.txt\r\n"),
        ("src/keep.log", ""),
        ("src/top.txt", ""),
        ("src/deep/top.txt", ""),
        (".git/info/exclude", "*.tmp\n"),
        ("x.tmp", ""),
        // Another repository inside has its own rules.
        ("vendor/.git/HEAD", ""),
        ("vendor/a.log", ""),
        // A file that a killed process left is not listed.
        (".windlass-0123456789abcdef.tmp", ""),
    ] {
        let path = ws.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let query = FindQuery {
        under: String::new(),
        glob: "*.{log,txt,tmp}".into(),
        max: 100,
    };
    let found = find(&root, &query, &CancellationToken::new()).unwrap();
    assert_eq!(
        found.paths,
        ["src/deep/top.txt", "src/keep.log", "vendor/a.log"]
    );
}

#[test]
fn drafts_of_killed_processes_are_skipped() {
    let (dir, root) = tree();
    let ws = dir.path().join("ws");
    for name in ["src/.windlass-0123456789abcdef.tmp", ".windlass-mine.tmp"] {
        File::create(ws.join(name)).unwrap();
    }
    let query = FindQuery {
        under: String::new(),
        glob: "*.tmp".into(),
        max: 100,
    };
    let found = find(&root, &query, &CancellationToken::new()).unwrap();
    assert_eq!(found.paths, [".windlass-mine.tmp"]);
}

#[test]
fn a_deep_tree_is_walked_completely() {
    let (dir, root) = tree();
    let mut path = dir.path().join("ws/nest");
    path.extend(std::iter::repeat_n("d", 1500));
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("bottom.txt"), "x").unwrap();
    let query = FindQuery {
        under: "nest".into(),
        glob: "bottom.txt".into(),
        max: 1,
    };
    assert_eq!(
        find(&root, &query, &CancellationToken::new())
            .unwrap()
            .paths
            .len(),
        1
    );
}

#[test]
fn a_glob_that_leads_out_is_refused_and_an_absolute_one_inside_works() {
    let (_dir, root) = tree();
    let run = |glob: &str| {
        find(
            &root,
            &FindQuery {
                glob: glob.into(),
                max: 9,
                ..FindQuery::default()
            },
            &CancellationToken::new(),
        )
    };
    for glob in ["../*", "src/../../*", "/etc/*"] {
        assert_eq!(
            run(glob).unwrap_err().kind,
            FileErrorKind::Outside,
            "{glob}"
        );
    }
    assert_eq!(
        run(&format!("{}/src/*.rs", root.root().display()))
            .unwrap()
            .paths,
        ["src/lib.rs"]
    );
}

#[test]
fn an_ignored_directory_is_searched_when_it_is_named() {
    check_find("target", "*.rs", &["target/out.rs"]);
}

#[track_caller]
fn check_grep(query: GrepQuery, expect: &[&str]) -> Grepped {
    let (_dir, root) = tree();
    let found = grep(
        &root,
        &GrepQuery { max: 100, ..query },
        &CancellationToken::new(),
    )
    .unwrap();
    let lines: Vec<_> = found
        .lines
        .iter()
        .map(|it| {
            format!(
                "{}{}{}: {}",
                it.path,
                if it.hit { ":" } else { "-" },
                it.line,
                it.text
            )
        })
        .collect();
    assert_eq!(lines, expect);
    found
}

fn pattern(text: &str) -> GrepQuery {
    GrepQuery {
        pattern: text.into(),
        ..GrepQuery::default()
    }
}

#[test]
fn grep_shows_lines_in_order_and_skips_binary_files_and_links() {
    let found = check_grep(
        pattern(r"^fn \w+\("),
        &[
            ".hidden/x.rs:1: fn hidden() {}",
            "src/deep/mod.rs:1: fn deep() {}",
            "src/lib.rs:2: fn two() {}",
            "src/lib.rs:4: fn four() {}",
        ],
    );
    assert_eq!((found.files, found.matches), (3, 4));
}

#[test]
fn grep_takes_context_case_globs_literals_and_line_ends() {
    let under = |query: GrepQuery, under: &str| GrepQuery {
        under: under.into(),
        ..query
    };
    check_grep(
        GrepQuery {
            context: 1,
            ..under(pattern("TWO"), "src/lib.rs")
        },
        &[],
    );
    check_grep(
        GrepQuery {
            context: 1,
            ignore_case: true,
            ..under(pattern("TWO"), "src/lib.rs")
        },
        &[
            "src/lib.rs-1: one",
            "src/lib.rs:2: fn two() {}",
            "src/lib.rs-3: three",
        ],
    );
    check_grep(
        GrepQuery {
            literal: true,
            ..pattern("two() {")
        },
        &["src/lib.rs:2: fn two() {}"],
    );
    check_grep(
        GrepQuery {
            glob: Some("mod.rs".into()),
            ..pattern("fn")
        },
        &["src/deep/mod.rs:1: fn deep() {}"],
    );
    check_grep(pattern(r"rest$"), &["src/deep/mod.rs:2: rest"]);
    check_grep(
        pattern(r"deep\(\) \{\}$"),
        &["src/deep/mod.rs:1: fn deep() {}"],
    );
}

#[track_caller]
fn check_refused(query: GrepQuery, kind: FileErrorKind, part: &str) {
    let (_dir, root) = tree();
    let err = grep(
        &root,
        &GrepQuery { max: 10, ..query },
        &CancellationToken::new(),
    )
    .unwrap_err();
    assert_eq!(err.kind, kind, "{err}");
    assert!(err.message.contains(part), "{err}");
}

#[test]
fn an_impossible_search_returns_the_reason() {
    let under = |under: &str| GrepQuery {
        under: under.into(),
        ..pattern("x")
    };
    check_refused(
        pattern("a(b"),
        FileErrorKind::BadInput,
        "^\nerror: unclosed group",
    );
    check_refused(pattern(r"(?=x)"), FileErrorKind::BadInput, "look-around");
    check_refused(pattern(r"a\nb"), FileErrorKind::BadInput, "inside one line");
    check_refused(
        pattern(r"\w{5000}{5000}"),
        FileErrorKind::BadInput,
        "size limit",
    );
    check_refused(
        GrepQuery {
            glob: Some("[".into()),
            ..pattern("x")
        },
        FileErrorKind::BadInput,
        "glob",
    );
    check_refused(under("nowhere"), FileErrorKind::NotFound, "nowhere");
    check_refused(under("up"), FileErrorKind::Outside, "leads out");
    check_refused(under("/etc"), FileErrorKind::Outside, "leads out");
    let (_dir, root) = tree();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let err = grep(
        &root,
        &GrepQuery {
            max: 1,
            ..pattern("fn")
        },
        &cancel,
    )
    .unwrap_err();
    assert_eq!(err.kind, FileErrorKind::Cancelled);
    let query = FindQuery {
        glob: "*".into(),
        max: 1,
        under: String::new(),
    };
    assert_eq!(
        find(&root, &query, &cancel).unwrap_err().kind,
        FileErrorKind::Cancelled
    );
}

#[test]
fn results_are_bounded_and_say_so() {
    let (_dir, root) = tree();
    let cancel = CancellationToken::new();
    let found = grep(
        &root,
        &GrepQuery {
            max: 2,
            ..pattern("fn")
        },
        &cancel,
    )
    .unwrap();
    assert_eq!((found.matches, found.lines.len(), found.more), (2, 2, true));
    let query = FindQuery {
        glob: "*.rs".into(),
        max: 2,
        under: String::new(),
    };
    let found = find(&root, &query, &cancel).unwrap();
    assert_eq!((found.paths.len(), found.more), (2, true));
}

#[test]
fn a_very_long_line_is_cut_around_its_match() {
    let (_dir, root) = tree();
    let line = format!("{}needle{}", "é".repeat(5000), "x".repeat(5000));
    root.write("long.txt", line.as_bytes()).unwrap();
    let found = grep(
        &root,
        &GrepQuery {
            max: 9,
            ..pattern("needle")
        },
        &CancellationToken::new(),
    )
    .unwrap();
    let text = &found.lines[0].text;
    assert!(
        text.len() < MAX_LINE + 10 && text.contains("needle"),
        "{text}"
    );
    assert!(text.starts_with("…é") && text.ends_with("x…"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_pattern_or_glob_or_content_panics(text in ".{0,12}", glob in ".{0,8}", content in prop::collection::vec(any::<u8>(), 0..200)) {
        let (_dir, root) = tree();
        root.write("any.bin", &content).unwrap();
        let query = GrepQuery { pattern: text.clone(), glob: Some(glob.clone()), max: 5, context: 1, ..GrepQuery::default() };
        let _ = grep(&root, &query, &CancellationToken::new());
        let _ = find(&root, &FindQuery { under: text, glob, max: 5 }, &CancellationToken::new());
    }
}

#[test]
fn a_search_that_times_out_returns_partial_results() {
    let (_dir, root) = tree();
    let query = GrepQuery {
        pattern: "fn".into(),
        max: 100,
        ..GrepQuery::default()
    };
    let cancel = CancellationToken::new();
    let found = grep_until(&root, &query, &cancel, Instant::now()).unwrap();
    assert!(found.timed_out && found.lines.is_empty(), "{found:?}");
    let found = grep_until(&root, &query, &cancel, Instant::now() + MAX_SEARCH).unwrap();
    assert!(!found.timed_out && !found.lines.is_empty(), "{found:?}");
}

#[test]
fn reading_fails_after_the_deadline() {
    let (dir, _root) = tree();
    let file = File::open(dir.path().join("ws/src/lib.rs")).unwrap();
    let cancel = CancellationToken::new();
    let until = Instant::now();
    let mut file = Interruptible {
        file,
        cancel: &cancel,
        until,
    };
    assert!(file.read(&mut [0; 8]).is_err());
}
