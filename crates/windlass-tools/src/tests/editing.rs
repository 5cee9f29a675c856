//! Tests of the tools that change files.

use serde_json::json;
use windlass_core::tool::Touch;
use windlass_core::workspace::Change;

use super::ToolBench;

#[track_caller]
fn check_happened(bench: &ToolBench, tool: &str, args: serde_json::Value, says: Option<&str>) {
    use windlass_core::tool::Happened;
    let said = bench
        .tools
        .get(tool)
        .unwrap()
        .happened(&args, &bench.ctx())
        .map(|happened| match happened {
            Happened::Yes(how) => format!("yes: {how}"),
            Happened::No(how) => format!("no: {how}"),
        });
    assert_eq!(said.as_deref(), says, "{tool} {args}");
}

#[test]
fn the_effect_of_an_interrupted_call_is_reported_only_if_it_is_certain() {
    let bench = ToolBench::new(&[("a.txt", "one\n"), ("b.txt", "new words\n")]);
    let write = |content: &str| json!({"path": "a.txt", "content": content});
    check_happened(
        &bench,
        "write_file",
        write("one\n"),
        Some("yes: a.txt has exactly this content"),
    );
    check_happened(&bench, "write_file", write("two\n"), None);
    check_happened(
        &bench,
        "write_file",
        json!({"path": "none", "content": ""}),
        None,
    );
    check_happened(
        &bench,
        "delete_file",
        json!({"path": "none"}),
        Some("yes: none is not there any more"),
    );
    check_happened(
        &bench,
        "delete_file",
        json!({"path": "a.txt"}),
        Some("no: a.txt is still there"),
    );
    let moved = |from: &str, to: &str| json!({"from": from, "to": to});
    check_happened(
        &bench,
        "move_file",
        moved("none", "a.txt"),
        Some("yes: a.txt is there, and none is not"),
    );
    check_happened(
        &bench,
        "move_file",
        moved("a.txt", "none"),
        Some("no: a.txt is still there, and none is not"),
    );
    check_happened(&bench, "move_file", moved("a.txt", "b.txt"), None);
    let edit = |old: &str, new: &str| json!({"path": "b.txt", "old": old, "new": new});
    check_happened(
        &bench,
        "edit_file",
        edit("old", "new"),
        Some("yes: b.txt holds the new text in place of the old"),
    );
    check_happened(
        &bench,
        "edit_file",
        edit("words", "texts"),
        Some("no: b.txt still holds the old text"),
    );
    check_happened(&bench, "delete_file", json!({"path": "../a.txt"}), None);
    // Text that an edit would find by ignoring whitespace or line endings was not replaced.
    bench.put("c.txt", b"    foo()\r\n    bar()\r\n}\r\n");
    for old in ["\tfoo()\n\tbar()", "    foo()\n    bar()"] {
        check_happened(
            &bench,
            "edit_file",
            json!({"path": "c.txt", "old": old, "new": "}"}),
            None,
        );
    }
    for (old, new) in [
        ("new", "new new"),
        ("new words", "new"),
        ("old", ""),
        ("neither", "nor"),
    ] {
        check_happened(&bench, "edit_file", edit(old, new), None);
    }
}

#[test]
fn write_creates_or_replaces_and_reports_it() {
    let bench = ToolBench::new(&[]);
    bench.check(
        "write_file",
        json!({"path": "./a/b.txt", "content": "one\ntwo\n"}),
        "created a/b.txt (+2 -0)",
    );
    bench.check(
        "write_file",
        json!({"path": "a/b.txt", "content": "one\n2\n"}),
        "edited a/b.txt (+1 -1)",
    );
    bench.check(
        "write_file",
        json!({"path": "a/b.txt", "content": "one\n2\n"}),
        "Error [invalid_arguments]: a/b.txt has exactly this content already",
    );
    let output = bench
        .output("write_file", json!({"path": "c", "content": "x"}))
        .unwrap();
    assert_eq!(output.changes[0].change, Change::Created);
    assert_eq!(
        output.changes[0].diff.as_deref(),
        Some("--- /dev/null\n+++ b/c\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n")
    );
}

#[test]
fn writing_outside_the_workspace_fails() {
    let bench = ToolBench::new(&[]);
    bench.check_start(
        "write_file",
        json!({"path": "../x", "content": ""}),
        "Error [blocked]: ",
    );
    bench.check_start(
        "write_file",
        json!({"path": "/etc/x", "content": ""}),
        "Error [blocked]: ",
    );
    std::os::unix::fs::symlink("/tmp", bench.path().join("link")).unwrap();
    bench.check_start(
        "write_file",
        json!({"path": "link/x", "content": ""}),
        "Error [blocked]: ",
    );
}

#[test]
fn an_edit_changes_the_named_text_and_nothing_else() {
    let bench = ToolBench::new(&[]);
    bench.put("a.txt", b"\xEF\xBB\xBFone\r\ntwo\r\nthree");
    bench.check(
        "edit_file",
        json!({"path": "a.txt", "old": "two", "new": "2\n2b"}),
        "edited a.txt (+2 -1)",
    );
    assert_eq!(bench.get("a.txt"), b"\xEF\xBB\xBFone\r\n2\r\n2b\r\nthree");
    bench.put("l.txt", b"caf\xE9 one\n");
    bench.check(
        "edit_file",
        json!({"path": "l.txt", "old": "one", "new": "\u{fc}"}),
        "edited l.txt (+1 -1)",
    );
    assert_eq!(bench.get("l.txt"), b"caf\xE9 \xFC\n");
}

#[test]
fn an_ambiguous_edit_is_refused_with_a_hint() {
    let bench = ToolBench::new(&[("a.txt", "x\ny\nx\n"), ("b.txt", "let total = 1;\n")]);
    bench.check(
        "edit_file",
        json!({"path": "a.txt", "old": "x", "new": "z"}),
        "Error [ambiguous]: a.txt: `old` occurs 2 times (lines 1, 3); include more surrounding lines so that it occurs once, or set replace_all",
    );
    bench.check(
        "edit_file",
        json!({"path": "a.txt", "old": "x", "new": "z", "replace_all": true}),
        "edited a.txt (+2 -2)\nreplaced 2 places",
    );
    bench.check(
        "edit_file",
        json!({"path": "b.txt", "old": "let totals = 1;", "new": "z"}),
        "Error [not_found]: b.txt: `old` was not found; the nearest text is at line 1:\n1| let total = 1;\nfirst difference, line 1: wanted \"let totals = 1;\", found \"let total = 1;\"",
    );
    bench.check(
        "edit_file",
        json!({"path": "b.txt", "new": "z"}),
        "Error [invalid_arguments]: give either `old` and `new`, or `edits`",
    );
    bench.check_start(
        "edit_file",
        json!({"path": "b.text", "old": "a", "new": "z"}),
        "Error [not_found]: b.text: no such file or directory; did you mean b.txt?",
    );
    bench.check_start(
        "edit_file",
        json!({"path": "b.txt", "old": "1|let total = 2;", "new": "z"}),
        "Error [not_found]: ",
    );
    assert!(
        bench
            .call(
                "edit_file",
                json!({"path": "b.txt", "old": "1|let total = 2;", "new": "z"})
            )
            .contains("leave them out")
    );
}

#[test]
fn several_edits_are_one_write() {
    let bench = ToolBench::new(&[("a.txt", "one\ntwo\nthree\n")]);
    let edits = json!([{"old": "one", "new": "1"}, {"old": "nope", "new": "2"}]);
    let found = bench.call("edit_file", json!({"path": "a.txt", "edits": edits}));
    assert!(
        found.starts_with("Error [not_found]: a.txt: edit 2 of 2: `old` was not found"),
        "{found}"
    );
    assert!(found.ends_with("none of the edits was made"), "{found}");
    assert_eq!(bench.get("a.txt"), b"one\ntwo\nthree\n");
    let edits = json!([{"old": "one", "new": "1"}, {"old": "two", "new": "2"}]);
    bench.check(
        "edit_file",
        json!({"path": "a.txt", "edits": edits}),
        "edited a.txt (+2 -2)",
    );
}

#[test]
fn a_loose_match_shows_what_was_done() {
    let bench = ToolBench::new(&[("a.py", "class A:\n    def f(self):\n        return 1\n")]);
    let found = bench.call(
        "edit_file",
        json!({"path": "a.py", "old": "def f(self):\n    return 1\n", "new": "def f(self):\n    return 2\n"}),
    );
    assert!(
        found.contains("re-indented") && found.contains("+        return 2"),
        "{found}"
    );
}

#[test]
fn a_file_that_changed_since_it_was_read_is_stale_once() {
    for (tool, args) in [
        (
            "edit_file",
            json!({"path": "a.txt", "old": "two", "new": "2"}),
        ),
        (
            "write_file",
            json!({"path": "a.txt", "content": "all new\n"}),
        ),
        ("delete_file", json!({"path": "a.txt"})),
        (
            "apply_patch",
            json!({"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -2 +2 @@\n-two\n+2\n"}),
        ),
    ] {
        let bench = ToolBench::new(&[("a.txt", "one\ntwo\n")]);
        bench.check("read_file", json!({"path": "a.txt"}), "1|one\n2|two");
        bench.put("a.txt", b"ONE\ntwo\n");
        bench.check(
            tool,
            args.clone(),
            "Error [stale]: a.txt changed on disk since it was last read; nothing was written. It reads now:\n1| ONE\n2| two",
        );
        assert_eq!(bench.get("a.txt"), b"ONE\ntwo\n");
        let again = bench.call(tool, args);
        assert!(!again.starts_with("Error"), "{again}");
    }
}

#[test]
fn our_own_writes_are_not_stale() {
    let bench = ToolBench::new(&[("a.txt", "one\n")]);
    bench.call("read_file", json!({"path": "a.txt"}));
    bench.check(
        "edit_file",
        json!({"path": "a.txt", "old": "one", "new": "two"}),
        "edited a.txt (+1 -1)",
    );
    bench.check(
        "edit_file",
        json!({"path": "./a.txt", "old": "two", "new": "three"}),
        "edited a.txt (+1 -1)",
    );
}

#[test]
fn lines_are_edited_by_anchor_and_stale_anchors_write_nothing() {
    let bench = ToolBench::new(&[("a.txt", "one\ntwo\nthree\n")]);
    let read = bench.call("read_file", json!({"path": "a.txt", "anchors": true}));
    let anchors: Vec<&str> = read
        .lines()
        .map(|line| line.split('|').next().unwrap())
        .collect();
    let edits = json!([
        {"op": "replace", "start": anchors[0], "text": "ONE\n"},
        {"op": "insert_after", "start": anchors[1], "text": "between"},
        {"op": "delete", "start": anchors[2]},
    ]);
    bench.check(
        "edit_lines",
        json!({"path": "a.txt", "edits": edits}),
        "edited a.txt (+2 -2)",
    );
    assert_eq!(bench.get("a.txt"), b"ONE\ntwo\nbetween\n");
    let stale = json!([{"op": "delete", "start": anchors[0]}]);
    let found = bench.call("edit_lines", json!({"path": "a.txt", "edits": stale}));
    assert!(
        found.starts_with("Error [stale]: a.txt: anchor 1:") && found.contains("|between"),
        "{found}"
    );
    assert_eq!(bench.get("a.txt"), b"ONE\ntwo\nbetween\n");
    let bad = json!([{"op": "delete", "start": "12"}]);
    bench.check_start(
        "edit_lines",
        json!({"path": "a.txt", "edits": bad}),
        "Error [invalid_arguments]: \"12\" is not an anchor",
    );
    let bad = json!([{"op": "replace", "start": anchors[1]}]);
    bench.check(
        "edit_lines",
        json!({"path": "a.txt", "edits": bad}),
        "Error [invalid_arguments]: replace needs `text`",
    );
}

#[test]
fn a_patch_changes_all_its_files() {
    let bench = ToolBench::new(&[("a.txt", "a\nb\n"), ("d.txt", "x\n"), ("m.txt", "1\n")]);
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-b\n+B\n*** Delete File: d.txt\n*** Add File: n/n.txt\n+new\n*** Update File: m.txt\n*** Move to: m2.txt\n@@\n-1\n+2\n*** End Patch\n";
    bench.check(
        "apply_patch",
        json!({"patch": patch}),
        "edited a.txt (+1 -1)\ndeleted d.txt\ncreated n/n.txt (+1 -0)\nmoved m.txt to m2.txt (+1 -1)",
    );
    assert!(!bench.path().join("d.txt").exists() && !bench.path().join("m.txt").exists());
    assert_eq!(bench.get("m2.txt"), b"2\n");
}

#[test]
fn when_the_second_file_fails_the_first_is_unchanged() {
    let bench = ToolBench::new(&[("a.txt", "a\n"), ("b.txt", "b\n")]);
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+A\n--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-zzz\n+B\n";
    let found = bench.call("apply_patch", json!({"patch": patch}));
    assert!(
        found.starts_with("Error [stale]: b.txt: hunk 1 does not fit")
            && found.ends_with("nothing was written"),
        "{found}"
    );
    assert_eq!(bench.get("a.txt"), b"a\n");
}

#[test]
fn when_a_write_fails_the_earlier_ones_are_rolled_back() {
    let bench = ToolBench::new(&[("a.txt", "a\n"), ("m.txt", "m\n"), ("d.txt", "d\n")]);
    // Each new file alone could be created, but the second one needs a directory where the first one is a file.
    let patch = "*** Begin Patch\n*** Delete File: d.txt\n*** Update File: a.txt\n@@\n-a\n+A\n*** Update File: m.txt\n*** Move to: m2.txt\n@@\n-m\n+M\n\
        *** Add File: n\n+x\n*** Add File: n/x\n+x\n*** End Patch\n";
    let found = bench.call("apply_patch", json!({"patch": patch}));
    assert!(found.starts_with("Error [exception]: "), "{found}");
    assert!(
        found.ends_with("the files changed before it were put back as they were"),
        "{found}"
    );
    bench.check("list_directory", json!({}), "a.txt  2\nd.txt  2\nm.txt  2");
    assert_eq!(
        (bench.get("a.txt"), bench.get("m.txt")),
        (b"a\n".to_vec(), b"m\n".to_vec())
    );
}

#[test]
fn forbidden_paths_in_patches_are_blocked_before_they_are_judged() {
    let bench = ToolBench::new(&[("a.txt", "a\n")]);
    let link = "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n";
    bench.check_start(
        "apply_patch",
        json!({"patch": link}),
        "Error [blocked]: l: a symbolic link",
    );
    bench.check_start(
        "apply_patch",
        json!({"patch": "hello"}),
        "Error [invalid_arguments]: the patch does not parse",
    );
    let up = "*** Begin Patch\n*** Add File: ../x\n+x\n*** End Patch\n";
    bench.check_start("apply_patch", json!({"patch": up}), "Error [blocked]: ");
}

#[test]
fn files_are_deleted_and_moved() {
    let bench = ToolBench::new(&[("a.txt", "a\n"), ("b.txt", "b\n"), ("d/x", "")]);
    bench.check(
        "move_file",
        json!({"from": "a.txt", "to": "b.txt"}),
        "Error [invalid_arguments]: b.txt exists already; choose another name or set overwrite",
    );
    bench.check(
        "move_file",
        json!({"from": "a.txt", "to": "d"}),
        "Error [invalid_arguments]: d is a directory; name the file, as in d/a.txt",
    );
    bench.check(
        "move_file",
        json!({"from": "a.txt", "to": "n/a.txt"}),
        "moved a.txt to n/a.txt",
    );
    bench.check(
        "move_file",
        json!({"from": "n/a.txt", "to": "b.txt", "overwrite": true}),
        "moved n/a.txt to b.txt",
    );
    assert_eq!(bench.get("b.txt"), b"a\n");
    bench.check("delete_file", json!({"path": "b.txt"}), "deleted b.txt");
    bench.check_start(
        "delete_file",
        json!({"path": "b.txt"}),
        "Error [not_found]: b.txt",
    );
    bench.check_start(
        "delete_file",
        json!({"path": "d"}),
        "Error [exception]: d is a directory",
    );
}

#[test]
fn odd_targets_fail_in_bounded_time() {
    let bench = ToolBench::new(&[("bin", "a\0b")]);
    let path = bench.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    std::fs::File::create(bench.path().join("huge"))
        .unwrap()
        .set_len(8 << 30)
        .unwrap();
    for (path, expect) in [
        ("pipe", "Error [exception]: "),
        ("bin", "Error [exception]: bin: the file is binary"),
        ("huge", "Error [exception]: huge has"),
    ] {
        bench.check_start(
            "edit_file",
            json!({"path": path, "old": "a", "new": "b"}),
            expect,
        );
    }
    bench.check("delete_file", json!({"path": "huge"}), "deleted huge");
}

#[test]
fn a_symlink_is_judged_by_its_own_name_as_well() {
    let bench = ToolBench::new(&[("d/a.txt", "a\n")]);
    std::os::unix::fs::symlink("d", bench.path().join("e")).unwrap();
    std::os::unix::fs::symlink("a.txt", bench.path().join("d/link")).unwrap();
    let touched = |tool: &str, args| -> Vec<String> {
        let touches = bench
            .tools
            .get(tool)
            .unwrap()
            .touches(&args, &bench.ctx())
            .unwrap();
        touches
            .iter()
            .map(|touch| match touch {
                Touch::Write {
                    path, inside: true, ..
                } => path.clone(),
                other => format!("{other:?}"),
            })
            .collect()
    };
    assert_eq!(
        touched("delete_file", json!({"path": "e/link"})),
        ["d/a.txt", "d/link"]
    );
    assert_eq!(
        touched("write_file", json!({"path": "./d//a.txt", "content": ""})),
        ["d/a.txt"]
    );
    assert_eq!(
        touched("write_file", json!({"path": "new.txt", "content": ""})),
        ["new.txt"]
    );
    assert_eq!(
        touched("move_file", json!({"from": "d/a.txt", "to": "n/b.txt"})),
        ["d/a.txt", "n/b.txt"]
    );
}

#[test]
fn a_preview_shows_the_diff_and_writes_nothing() {
    let bench = ToolBench::new(&[("a.txt", "a\n")]);
    let ctx = bench.ctx();
    for (tool, args) in [
        (
            "edit_file",
            json!({"path": "a.txt", "old": "a", "new": "b"}),
        ),
        ("write_file", json!({"path": "a.txt", "content": "b\n"})),
        (
            "apply_patch",
            json!({"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\n"}),
        ),
    ] {
        let preview = bench.tools.get(tool).unwrap().preview(&args, &ctx);
        assert_eq!(
            preview.unwrap().as_deref(),
            Some("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\n"),
            "{tool}"
        );
    }
    assert_eq!(bench.get("a.txt"), b"a\n");
}

#[test]
fn a_change_that_cannot_be_made_has_no_preview_but_its_failure() {
    let bench = ToolBench::new(&[("a.txt", "a\n"), ("b.txt", "b\n")]);
    let ctx = bench.ctx();
    for (tool, args, says) in [
        (
            "edit_file",
            json!({"path": "a.txt", "old": "x", "new": "b"}),
            "a.txt",
        ),
        (
            "edit_file",
            json!({"path": "c.txt", "old": "x", "new": "b"}),
            "c.txt",
        ),
        (
            "write_file",
            json!({"path": "a.txt", "content": "a\n"}),
            "already",
        ),
        ("delete_file", json!({"path": "c.txt"}), "c.txt"),
        (
            "move_file",
            json!({"from": "c.txt", "to": "d.txt"}),
            "c.txt",
        ),
        (
            "move_file",
            json!({"from": "a.txt", "to": "b.txt"}),
            "b.txt",
        ),
        (
            "apply_patch",
            json!({"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-x\n+b\n"}),
            "a.txt",
        ),
    ] {
        let preview = bench.tools.get(tool).unwrap().preview(&args, &ctx);
        let failure = preview.unwrap_err().text;
        assert!(failure.contains(says), "{tool}: {failure}");
    }
    let moved = json!({"from": "a.txt", "to": "c.txt"});
    let preview = bench.tools.get("move_file").unwrap().preview(&moved, &ctx);
    assert_eq!(preview.unwrap().as_deref(), Some("move a.txt to c.txt\n"));
}

/// A moved symlink points elsewhere: the gate would judge one file and the patch would write another.
#[test]
fn a_patch_neither_moves_nor_deletes_a_symlink() {
    let bench = ToolBench::new(&[("d/k/config", "a\n"), (".git/config", "a\n"), ("e/x", "")]);
    std::os::unix::fs::symlink("k/config", bench.path().join("d/l")).unwrap();
    std::os::unix::fs::symlink("../.git", bench.path().join("e/k")).unwrap();
    let patch =
        "*** Begin Patch\n*** Update File: d/l\n*** Move to: e/l\n@@\n-a\n+b\n*** End Patch\n";
    bench.check_start(
        "apply_patch",
        json!({"patch": patch}),
        "Error [invalid_arguments]: d/l: is a link to d/k/config",
    );
    let patch = "*** Begin Patch\n*** Delete File: d/l\n*** End Patch\n";
    bench.check_start(
        "apply_patch",
        json!({"patch": patch}),
        "Error [invalid_arguments]: d/l: is a link to d/k/config",
    );
    assert_eq!(
        (bench.get(".git/config"), bench.get("d/l")),
        (b"a\n".to_vec(), b"a\n".to_vec())
    );
    let patch = "*** Begin Patch\n*** Update File: d/l\n@@\n-a\n+b\n*** End Patch\n";
    bench.check("apply_patch", json!({"patch": patch}), "edited d/l (+1 -1)");
    assert_eq!(bench.get("d/k/config"), b"b\n");
    assert!(bench.path().join("d/l").is_symlink());
}

#[test]
fn a_dangling_symlink_can_be_deleted() {
    let bench = ToolBench::new(&[]);
    std::os::unix::fs::symlink("gone", bench.path().join("l")).unwrap();
    bench.check("delete_file", json!({"path": "l"}), "deleted l");
    assert!(!bench.path().join("l").is_symlink());
}
