//! Tests of search and replace. All of them call `check`.

#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

#[track_caller]
fn check(content: &str, old: &str, new: &str, expect: &str) {
    check_all(content, old, new, false, expect);
}

#[track_caller]
fn check_all(content: &str, old: &str, new: &str, replace_all: bool, expect: &str) {
    let result = match apply(
        content,
        &Edit {
            old,
            new,
            replace_all,
        },
    ) {
        Ok(applied) => applied.content,
        Err(err) => format!("error: {err}"),
    };
    assert_eq!(result, expect);
}

#[test]
fn the_exact_text_is_replaced() {
    check("a b c", "b", "x", "a x c");
    check("a\nb\n", "a\n", "", "b\n");
}

#[test]
fn a_replacement_gets_the_line_ending_of_its_place() {
    check("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n");
    check("a\r\nb\r\nc\r\n", "a\nb", "x\ny", "x\r\ny\r\nc\r\n");
    check("a\nb\r\n", "a", "x\ny", "x\ny\nb\r\n");
    check("a\rb\r", "b", "x\ny", "a\rx\ry\r");
}

#[test]
fn explicit_endings_are_kept_when_the_match_is_exact() {
    check("a\nb\n", "b", "x\r\ny", "a\nx\r\ny\n");
}

#[test]
fn an_edit_with_crlf_matches_a_file_with_lf() {
    check("a\nb\nc\n", "a\r\nb", "x\r\ny", "x\ny\nc\n");
}

#[test]
fn a_crlf_pair_is_never_split() {
    check("a\r\nb\r\n", "\nb", "\nc", "a\r\nc\r\n");
    check("a\r\nb\r\n", "a\r", "c\r", "c\r\nb\r\n");
}

#[test]
fn trailing_spaces_are_ignored() {
    check(
        "fn a() {  \n    b\n}\n",
        "fn a() {\n    b\n",
        "fn c() {\n",
        "fn c() {\n}\n",
    );
    check("a \nb", "a\nb\n", "c\nd\n", "c\nd");
}

#[test]
fn indentation_is_ignored_and_the_replacement_is_reindented() {
    check(
        "class A:\n    def f(self):\n        return 1\n",
        "def f(self):\n    return 1\n",
        "def f(self):\n    if x:\n        return 2\n",
        "class A:\n    def f(self):\n        return 1\n"
            .replace(
                "        return 1\n",
                "        if x:\n            return 2\n",
            )
            .as_str(),
    );
    check(
        "\tif a {\n\t\tb()\n\t}\n",
        "    if a {\n        b()\n    }\n",
        "    if a {\n        c()\n    }\n",
        "\tif a {\n\t\tc()\n\t}\n",
    );
}

#[test]
fn an_ambiguous_edit_names_the_count_and_the_lines() {
    let tail = "; include more surrounding lines so that it occurs once, or set replace_all";
    check(
        "x\ny\nx\nx\n",
        "x",
        "z",
        &format!("error: `old` occurs 3 times (lines 1, 3, 4){tail}"),
    );
    check(
        "aaa",
        "aa",
        "b",
        &format!("error: `old` occurs 2 times (lines 1, 1){tail}"),
    );
    check(
        "  x = 1\n  y\n\n    x = 1\n    y\n",
        "x = 1\ny\n",
        "z\n",
        &format!("error: `old` occurs 2 times (lines 1, 4){tail}"),
    );
    check("  f()\n", "f()\n", "g()\n", "  g()\n");
}

#[test]
fn replace_all_replaces_each_place_once() {
    check_all("x y x", "x", "zz", true, "zz y zz");
    check_all("aaa", "aa", "b", true, "ba");
    check_all("a \na \nb\n", "a\n", "c\n", true, "c\nc\nb\n");
    check_all(&"x\n".repeat(3000), "x", "y", true, &"y\n".repeat(3000));
    check_all(
        &"x \n".repeat(3000),
        "x\n",
        "y\n",
        true,
        &"y\n".repeat(3000),
    );
}

#[test]
fn an_edit_without_effect_is_refused() {
    check(
        "a",
        "",
        "b",
        "error: `old` is empty; give the text to replace, or write the whole file instead",
    );
    check(
        "a",
        "a",
        "a",
        "error: `old` and `new` are the same text; nothing would change",
    );
    check(
        "a\r\nb",
        "a\nb",
        "a\r\nb",
        "error: the edit would leave the file exactly as it is",
    );
}

#[test]
fn a_miss_shows_the_nearest_text_and_the_first_difference() {
    check(
        "one\nlet total = 1;\nlet other = 2;\nend\n",
        "let total = 1;\nlet other = 3;\n",
        "x",
        "error: `old` was not found; the nearest text is at line 1:\n1| one\n2| let total = 1;\n3| let other = 2;\n4| end\n\
         first difference, line 3: wanted \"let other = 3;\", found \"let other = 2;\"",
    );
    check(
        "one\n",
        "zzzzzz",
        "x",
        "error: `old` was not found; nothing in the file resembles it, so read the file again",
    );
}

#[test]
fn blank_lines_alone_do_not_match_loosely() {
    check(
        "a\n  \nb\n",
        "\n\n",
        "x",
        "error: `old` was not found; nothing in the file resembles it, so read the file again",
    );
}

#[test]
fn several_edits_apply_in_order_or_not_at_all() {
    let edits = [
        Edit {
            old: "a",
            new: "b",
            replace_all: false,
        },
        Edit {
            old: "b",
            new: "c",
            replace_all: false,
        },
    ];
    assert_eq!(apply_all("a", &edits).unwrap().last().unwrap().content, "c");
    let failing = [
        edits[0],
        Edit {
            old: "zz",
            new: "c",
            replace_all: false,
        },
    ];
    assert_eq!(apply_all("a", &failing).unwrap_err().0, 1);
}

#[test]
fn a_huge_repetitive_file_takes_bounded_time() {
    let content = "x\n".repeat(500_000);
    let old = "x\n".repeat(20_000) + "y\n";
    assert!(matches!(
        apply(
            &content,
            &Edit {
                old: &old,
                new: "z",
                replace_all: false
            }
        ),
        Err(EditError::Missing { .. })
    ));
}

proptest! {
    #[test]
    fn nothing_outside_the_match_changes(before in "[a-c \t\r\n]{0,20}", after in "[a-c \t\r\n]{0,20}", new in "[a-c\n]{0,10}") {
        let content = format!("{before}NEEDLE{after}");
        let applied = apply(&content, &Edit { old: "NEEDLE", new: &new, replace_all: false }).unwrap();
        prop_assert!(applied.content.starts_with(&before));
        prop_assert!(applied.content.ends_with(&after));
    }

    #[test]
    fn any_edit_of_any_text_ends_without_panic(content in "\\PC{0,20}[ab \r\n]{0,40}", old in "[ab \r\n]{0,6}", new in "[ab \r\n]{0,6}", all: bool) {
        let _ = apply(&content, &Edit { old: &old, new: &new, replace_all: all });
    }
}
