//! Tests of the tools that only read.

use serde_json::json;

use super::ToolBench;

fn numbers(from: usize, to: usize) -> String {
    (from..=to).map(|n| format!("line {n}\n")).collect()
}

#[test]
fn a_file_is_read_with_numbers_in_ranges() {
    let bench = ToolBench::new(&[("a.txt", "one\r\ntwo\r\nthree"), ("e.txt", "")]);
    bench.check(
        "read_file",
        json!({"path": "a.txt"}),
        "1|one\n2|two\n3|three",
    );
    bench.check(
        "read_file",
        json!({"path": "a.txt", "offset": 2, "limit": 1}),
        "2|two\n[lines 2-2 of 3; read on with offset=3]",
    );
    bench.check(
        "read_file",
        json!({"path": "a.txt", "offset": 3}),
        "3|three\n[lines 3-3 of 3]",
    );
    bench.check(
        "read_file",
        json!({"path": "a.txt", "offset": 9}),
        "Error [invalid_arguments]: a.txt has 3 lines; offset 9 is past its end",
    );
    bench.check("read_file", json!({"path": "e.txt"}), "[the file is empty]");
    bench.check(
        "read_file",
        json!({}),
        "Error [invalid_arguments]: name the file in `path`, or several in `paths`",
    );
}

#[test]
fn a_long_file_is_previewed() {
    let bench = ToolBench::new(&[("long.txt", &numbers(1, 2300))]);
    let found = bench.call("read_file", json!({"path": "long.txt"}));
    assert!(
        found.contains("500|line 500\n[lines 1-500 of 2300; read on with offset=501]"),
        "{found}"
    );
    let wide = ToolBench::new(&[("wide.txt", &("x".repeat(10_000) + "\n").repeat(100))]);
    let found = wide.call("read_file", json!({"path": "wide.txt"}));
    assert!(
        found.len() < 50_000 && found.contains("more bytes on this line]"),
        "{}",
        found.len()
    );
    assert!(found.contains("read on with offset="), "the cut is said");
}

#[test]
fn a_huge_file_is_read_piece_by_piece() {
    let bench = ToolBench::new(&[]);
    let text: String = (1..=900_000)
        .map(|n| format!("this is line {n}\n"))
        .collect();
    bench.put("huge.log", text.as_bytes());
    let found = bench.call(
        "read_file",
        json!({"path": "huge.log", "offset": 800_000, "limit": 2}),
    );
    assert!(
        found.starts_with("800000|this is line 800000\n800001|this is line 800001\n[lines 800000-800001 of a file of"),
        "{found}"
    );
}

#[test]
fn a_file_of_line_breaks_does_not_fill_the_memory() {
    let bench = ToolBench::new(&[]);
    bench.put("breaks", &[b'\n'; 2_000_000]);
    bench.check("read_file", json!({"path": "breaks", "limit": 1, "anchors": true}), "1|\n[lines 1-1 of a file of 2000000 bytes; read on with offset=2]\n[no anchors: the file is too large for edit_lines]");
    bench.check_start(
        "edit_file",
        json!({"path": "breaks", "old": "a", "new": "b"}),
        "Error [exception]: breaks has 2000000 line breaks",
    );
}

#[test]
fn a_stored_result_is_read_by_range_and_touches_no_file() {
    let bench = ToolBench::new(&[("artifact:x", "a file\n")]);
    let lines: String = (1..=1200).map(|n| format!("line {n}\n")).collect();
    let id = bench.artifacts.put(lines.as_bytes()).unwrap().id;
    let path = format!("artifact:{id}");
    let found = bench.call("read_file", json!({"path": path}));
    assert!(found.starts_with("1|line 1\n"), "{found}");
    assert!(
        found.ends_with("\n500|line 500\n[lines 1-500; read on with offset=501]"),
        "{found}"
    );
    bench.check(
        "read_file",
        json!({"path": path, "offset": 1199}),
        "1199|line 1199\n1200|line 1200\n[lines 1199-1200; line 1200 is the last]",
    );
    bench.check_start(
        "read_file",
        json!({"path": path, "offset": 9999}),
        &format!("Error [invalid_arguments]: {path} has 1200 lines"),
    );
    let touches = |args| {
        bench
            .tools
            .get("read_file")
            .unwrap()
            .touches(&args, &bench.ctx())
            .unwrap()
            .len()
    };
    assert_eq!(touches(json!({"path": path})), 0);
    assert_eq!(touches(json!({"paths": [path, "./artifact:x"]})), 1);
    bench.check_start(
        "read_file",
        json!({"path": "artifact:zz"}),
        "Error [not_found]: there is no artifact `zz`",
    );
    bench.check_start(
        "read_file",
        json!({"path": "artifact:../../x"}),
        "Error [invalid_arguments]: ",
    );
    bench.check("read_file", json!({"path": "./artifact:x"}), "1|a file");
}

#[test]
fn every_byte_of_a_very_long_stored_line_can_be_reached() {
    let bench = ToolBench::new(&[]);
    let long: String = (0..2_000_000)
        .map(|n| char::from(b'a' + (n % 23) as u8))
        .collect();
    let id = bench.artifacts.put(long.as_bytes()).unwrap().id;
    let (mut offset, mut joined) = (1, String::new());
    loop {
        let found = bench.call(
            "read_file",
            json!({"path": format!("artifact:{id}"), "offset": offset}),
        );
        assert!(found.chars().count() <= 50_000);
        let (lines, note) = found.rsplit_once('\n').unwrap();
        joined.extend(lines.lines().map(|line| line.split_once('|').unwrap().1));
        let Some((_, next)) = note.split_once("offset=") else {
            break;
        };
        offset = next.trim_end_matches(']').parse().unwrap();
    }
    assert_eq!(joined, long);
}

#[test]
fn several_files_are_read_at_once_and_one_may_be_missing() {
    let bench = ToolBench::new(&[("a.txt", "a\n"), ("b.txt", "b\n")]);
    let found = bench.call("read_file", json!({"paths": ["a.txt", "nope.md", "b.txt"]}));
    assert!(
        found.starts_with(
            "==> a.txt\n1|a\n\n==> nope.md\nError [not_found]: nope.md: no such file or directory"
        ),
        "{found}"
    );
    assert!(found.ends_with("\n\n==> b.txt\n1|b"), "{found}");
    bench.check_start(
        "read_file",
        json!({"paths": ["x", "y"]}),
        "Error [not_found]: ",
    );
}

#[test]
fn files_that_are_not_text_are_described() {
    let bench = ToolBench::new(&[]);
    bench.put("i.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    bench.put("x.bin", b"ab\0cd");
    bench.put("u.txt", b"\xFF\xFEa\0\n\0");
    bench.put("l.txt", b"caf\xE9\n");
    bench.check(
        "read_file",
        json!({"path": "i.png"}),
        "[image/png, 16 bytes; an image is not shown as text]",
    );
    bench.check_start(
        "read_file",
        json!({"path": "x.bin"}),
        "[not text, 5 bytes: the file is binary",
    );
    bench.check(
        "read_file",
        json!({"path": "u.txt"}),
        "1|a\n[the file is stored in UTF-16 LE]",
    );
    bench.check_start(
        "read_file",
        json!({"path": "l.txt"}),
        "1|café\n[the file is stored in a single-byte encoding",
    );
}

#[test]
fn a_missing_file_leads_to_a_suggestion() {
    let bench = ToolBench::new(&[("src/main.rs", "x"), ("deep/er/config.toml", "x")]);
    bench.check(
        "read_file",
        json!({"path": "src/mian.rs"}),
        "Error [not_found]: src/mian.rs: no such file or directory; did you mean src/main.rs?",
    );
    bench.check(
        "read_file",
        json!({"path": "config.toml"}),
        "Error [not_found]: config.toml: no such file or directory; a file of that name is at deep/er/config.toml",
    );
    bench.check(
        "read_file",
        json!({"path": "src"}),
        "Error [exception]: src is a directory; this needs a regular file; use list_directory to see what is in it",
    );
    bench.check_start(
        "read_file",
        json!({"path": "../secret"}),
        "Error [blocked]: ",
    );
}

#[test]
fn directories_are_listed() {
    let bench = ToolBench::new(&[("b.txt", "12"), ("a/x", ""), (".hidden", "")]);
    bench.check("list_directory", json!({}), ".hidden  0\na/\nb.txt  2");
    bench.check("list_directory", json!({"path": "a"}), "x  0");
    bench.check_start(
        "list_directory",
        json!({"path": "zz"}),
        "Error [not_found]: zz",
    );
    bench.check_start(
        "list_directory",
        json!({"path": "b.txt"}),
        "Error [exception]: b.txt",
    );
    std::fs::create_dir(bench.path().join("empty")).unwrap();
    bench.check(
        "list_directory",
        json!({"path": "empty"}),
        "[the directory is empty]",
    );
}

#[test]
fn files_are_found_by_glob_without_ignored_ones() {
    let bench = ToolBench::new(&[
        ("src/a.rs", ""),
        ("src/deep/b.rs", ""),
        ("target/c.rs", ""),
        (".gitignore", "target/\n"),
    ]);
    bench.check(
        "find_files",
        json!({"pattern": "*.rs"}),
        "src/a.rs\nsrc/deep/b.rs",
    );
    bench.check(
        "find_files",
        json!({"pattern": "*.rs", "max": 1}),
        "src/a.rs\n[more than 1 files; a narrower pattern shows the rest]",
    );
    bench.check(
        "find_files",
        json!({"pattern": "*.py"}),
        "[no file matches; ignored files are not looked at]",
    );
    bench.check_start(
        "find_files",
        json!({"pattern": "a[".to_owned()}),
        "Error [invalid_arguments]: ",
    );
}

#[test]
fn lines_are_found_by_pattern_and_credentials_stay_hidden() {
    let bench = ToolBench::new(&[
        ("a.rs", "fn one() {}\nx\nfn two() {}\n"),
        ("b/c.rs", "fn three() {}\n"),
        (".env", "KEY=fn four\n"),
    ]);
    bench.check(
        "grep",
        json!({"pattern": "fn \\w+"}),
        "a.rs\n1:fn one() {}\n3:fn two() {}\n\nb/c.rs\n1:fn three() {}\n[matches in .env not shown: such files hold credentials]",
    );
    bench.check(
        "grep",
        json!({"pattern": "fn one() {}", "literal": true, "context": 1}),
        "a.rs\n1:fn one() {}\n2-x",
    );
    bench.check(
        "grep",
        json!({"pattern": "FN T", "ignore_case": true, "glob": "*.rs", "path": "b"}),
        "b/c.rs\n1:fn three() {}",
    );
    bench.check(
        "grep",
        json!({"pattern": "zzz"}),
        "[no line matches; ignored and binary files are not looked at]",
    );
    bench.check_start(
        "grep",
        json!({"pattern": "("}),
        "Error [invalid_arguments]: the pattern is not usable",
    );
}
