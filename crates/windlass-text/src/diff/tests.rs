use proptest::prelude::*;

use super::*;
use crate::line::Tone;

const EXAMPLE: &str = "\
diff --git a/median.sh b/median.sh
index 1..2 100644
--- a/median.sh
+++ b/median.sh
@@ -2,3 +2,3 @@ main
 a
-sorted=(\"$@\")
+sorted=(1 \"$@\")
 b
\\ No newline at end of file
";

fn texts(lines: &[StyledLine]) -> Vec<String> {
    lines.iter().map(StyledLine::plain).collect()
}

#[track_caller]
fn check(diff: &str, width: usize, expect: &[&str]) {
    let lines = unified(diff, &DiffOptions::with_width(width));
    assert_eq!(texts(&lines), expect, "{diff}");
}

#[test]
fn lines_have_numbers_and_signs() {
    check(
        EXAMPLE,
        40,
        &[
            "M median.sh                        +1 −1",
            "    ⋮   main",
            "    2 │  a",
            "    3 │ -sorted=(\"$@\")",
            "    3 │ +sorted=(1 \"$@\")",
            "    4 │  b",
            "      │ \\ no newline at the end",
        ],
    );
    check(
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a long line\n+another long line\n",
        18,
        &[
            "M x          +1 −1",
            "    1 │ -a long li",
            "         ne",
            "    1 │ +another l",
            "         ong line",
        ],
    );
}

#[test]
fn changed_words_are_emphasised() {
    let lines = unified(EXAMPLE, &DiffOptions::default());
    let emphasised = |at: usize| -> Vec<&str> {
        let spans = lines[at].spans.iter();
        let spans = spans.filter(|span| span.style.background.is_some());
        spans.map(|span| span.text.as_str()).collect()
    };
    assert!(emphasised(3).is_empty());
    assert_eq!(emphasised(4), ["1 "]);
    let has_literal = |at: usize| {
        let mut spans = lines[at].spans.iter();
        spans.any(|span| span.style.tone == Tone::Literal)
    };
    assert!(has_literal(4) && !has_literal(3));
}

#[test]
fn the_old_text_is_beside_the_new_one() {
    let lines = side_by_side("--- a/x\n+++ b/x\n@@ -7,2 +7,3 @@\n a\n-b\n+c\n+d\n", 41);
    assert_eq!(
        texts(&lines),
        [
            "M x                                 +2 −1",
            "    7 │  a          │     7 │  a",
            "    8 │ -b          │     8 │ +c",
            "                    │     9 │ +d",
        ]
    );
}

#[test]
fn files_have_a_status_and_notes() {
    let diff = "commit 1\n\n    message\n\
        diff --git a/old name b/new name\nsimilarity index 90%\nrename from old name\nrename to new name\n\
        diff --git a/run b/run\nold mode 100644\nnew mode 100755\n\
        diff --git a/i.png b/i.png\nnew file mode 100644\nBinary files /dev/null and b/i.png differ\n\
        diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
        diff --git \"a/gr\\303\\274n\" \"b/gr\\303\\274n\"\n--- \"a/gr\\303\\274n\"\n+++ \"b/gr\\303\\274n\"\n@@ -1 +1 @@\n--- x\n+++ y\n\
        -- \n2.39\n";
    let parsed = ParsedDiff::parse(diff);
    let rows: Vec<_> = parsed
        .files
        .iter()
        .map(|file| (file.path(), file.status, file.binary, file.counts()))
        .collect();
    assert_eq!(
        rows,
        [
            ("new name", DiffFileStatus::Renamed, false, (0, 0)),
            ("run", DiffFileStatus::Modified, false, (0, 0)),
            ("i.png", DiffFileStatus::Added, true, (0, 0)),
            ("gone", DiffFileStatus::Removed, false, (0, 1)),
            ("grün", DiffFileStatus::Modified, false, (1, 1)),
        ]
    );
    assert_eq!(parsed.preamble, ["commit 1", "", "    message"]);
    assert_eq!(parsed.files[4].hunks[0].lines[0].text, "-- x");
    let shown = texts(&unified(diff, &DiffOptions::with_width(50)));
    assert_eq!(shown[4], "R old name → new name");
    assert_eq!(
        shown[6],
        "M run                         mode 100644 → 100755"
    );
    assert_eq!(
        shown[8],
        "A i.png                                     binary"
    );
}

#[test]
fn notes_about_hidden_parts_are_shown() {
    check(
        "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n-a\u{200b}\n+b\n… (diff cut here)\n",
        40,
        &[
            "M x                                +1 −1",
            "    1 │ -a‹U+200B›",
            "    1 │ +b",
            "    ⋮   … (diff cut here)",
        ],
    );
    check(
        "--- a/x\n+++ b/x\n@@ from line 7: too many to show @@\n",
        40,
        &["M x", "    ⋮   from line 7: too many to show"],
    );
}

#[test]
fn wrong_counts_and_missing_headers_are_tolerated() {
    let rows = |diff: &str| -> Vec<(usize, usize)> {
        let parsed = ParsedDiff::parse(diff);
        parsed.files.iter().map(DiffFile::counts).collect()
    };
    for (diff, expect) in [
        ("@@\n-a\n+b\n c\n", vec![(1, 1)]),
        (
            "@@ -1,9 +1,9 @@\n-a\ndiff --git a/x b/x\n",
            vec![(0, 1), (0, 0)],
        ),
        ("@@ -1 +1 @@\n-a\n+b\n+c\n", vec![(2, 1)]),
        (
            "--- x\n+++ x\n@@ @@\n+a\n--- y\n+++ y\n@@ @@\n+b\n",
            vec![(1, 0), (1, 0)],
        ),
        (
            "@@ -4294967295,1 +4294967295,2 @@\n-a\n+b\n+c\n",
            vec![(2, 1)],
        ),
        ("+++ x\n", vec![]),
    ] {
        assert_eq!(rows(diff), expect, "{diff}");
    }
    check("just\ntext", 20, &["just", "text"]);
    check("", 20, &[]);
}

#[test]
fn the_end_of_a_huge_line_is_not_shown() {
    let diff = format!("@@ -1 +1 @@\n-{}\n+x\n", "x".repeat(100_000));
    let options = DiffOptions {
        headers: false,
        ..DiffOptions::default()
    };
    let rows = texts(&unified(&diff, &options));
    assert!(rows[0].ends_with("xx … 96000 more bytes") && rows[0].len() < 4_100);
    assert_eq!(rows[1], "    1 │ +x");
}

fn foreign_diffs() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("diff --git a/x.rs b/x.rs".to_owned()),
        Just("--- a/x.rs".to_owned()),
        Just("+++ b/x.rs".to_owned()),
        Just("@@ -1,3 +1,4 @@ fn x".to_owned()),
        Just("\\ No newline".to_owned()),
        "[-+ ][a-z (){}\"]{0,20}",
        "[-+ ]?\\PC{0,12}",
        "(?s)[-+@ \"]{0,2}.{0,12}",
    ];
    prop::collection::vec(line, 0..25).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_text_is_rendered_within_the_width(diff in foreign_diffs(), width in 12_usize..60) {
        let options = DiffOptions::with_width(width);
        let cut = DiffOptions { wrap: false, ..options.clone() };
        for lines in [unified(&diff, &options), unified(&diff, &cut), side_by_side(&diff, width)] {
            for line in lines {
                prop_assert!(line.width() <= width.max(24), "{:?}", line.plain());
                prop_assert!(!line.plain().chars().any(char::is_control));
            }
        }
    }
}
