#![allow(clippy::unwrap_used)]

use super::*;

#[track_caller]
fn check(output: &str, expect: &[&str]) {
    let found: Vec<_> = findings(output, "/w")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found, expect, "{output}");
}

#[test]
fn every_usual_format_gives_a_place() {
    let cases: &[(&str, &str)] = &[
        (
            "error[E0308]: mismatched types\n  --> src/a.rs:3:5\n   |\n3 |  x\n",
            "src/a.rs:3:5: mismatched types",
        ),
        (
            "src/a.c:3:5: error: expected ';'\n    3 | x\n",
            "src/a.c:3:5: expected ';'",
        ),
        (
            "/w/src/a.cpp:3:5: fatal error: x.h: No such file\n",
            "src/a.cpp:3:5: x.h: No such file",
        ),
        ("./main.go:3:5: undefined: x\n", "main.go:3:5: undefined: x"),
        ("vet: ./main.go:3:5: bad\n", "main.go:3:5: bad"),
        (
            "    a_test.go:10: got 1, want 2\n",
            "a_test.go:10: got 1, want 2",
        ),
        (
            "src/a.ts(1,2): error TS2304: Cannot find name 'x'.\n",
            "src/a.ts:1:2: TS2304 Cannot find name 'x'.",
        ),
        (
            "src/a.ts:1:2 - error TS2304: Cannot find\n",
            "src/a.ts:1:2: TS2304: Cannot find",
        ),
        (
            "A.cs(3,5): error CS1002: ; expected [/w/a.csproj]\n",
            "A.cs:3:5: CS1002 ; expected",
        ),
        (
            "/w/src/a.js\n  3:5  error  'x' is not defined  no-undef\n",
            "src/a.js:3:5: 'x' is not defined (no-undef)",
        ),
        ("A.java:3: error: ';' expected\n", "A.java:3: ';' expected"),
        (
            "[ERROR] /w/src/A.java:[3,5] ';' expected\n",
            "src/A.java:3:5: ';' expected",
        ),
        (
            "a.py:3:5: F821 undefined name 'x'\n",
            "a.py:3:5: F821 undefined name 'x'",
        ),
        (
            "a.py:3: error: Incompatible types  [assignment]\n",
            "a.py:3: Incompatible types [assignment]",
        ),
        (
            "Traceback (most recent call last):\n  File \"/usr/lib/x.py\", line 9, in y\n  File \"/w/a.py\", line 3, in f\n    g()\nValueError: no\n",
            "a.py:3: ValueError: no",
        ),
        (
            "  File \"a.py\", line 3\n    x(\n     ^\nSyntaxError: '(' was never closed\n",
            "a.py:3: SyntaxError: '(' was never closed",
        ),
        (
            "TypeError: x is not a function\n    at f (/w/src/a.js:3:5)\n    at node:internal/x:1:1\n",
            "src/a.js:3:5: TypeError: x is not a function",
        ),
        (
            "PHP Parse error:  syntax error, unexpected end in /w/a.php on line 3\n",
            "a.php:3: Parse error: syntax error, unexpected end",
        ),
        (
            "** (CompileError) lib/a.ex:3: undefined\n",
            "lib/a.ex:3: undefined",
        ),
        (
            "thread 'tests::a' (77) panicked at src/lib.rs:3:5:\nassertion failed: x\nnote: run with\n",
            "src/lib.rs:3:5: `tests::a` panicked; assertion failed: x",
        ),
    ];
    for (output, expect) in cases {
        let found: Vec<_> = findings(output, "/w")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found.first().map(String::as_str),
            Some(*expect),
            "{output}\n{found:?}"
        );
    }
}

#[test]
fn an_assertion_is_reported_at_its_place() {
    let output = "    def test_a():\n>       assert f() == 2\nE       assert 1 == 2\nE        +  where 1 = f()\n\n\
                  tests/test_a.py:5: AssertionError\n=== short test summary info ===\nFAILED tests/test_a.py::test_a - assert 1 == 2\n";
    check(
        output,
        &[
            "tests/test_a.py:5: AssertionError: assert 1 == 2; + where 1 = f()",
            "E       assert 1 == 2\nE        +  where 1 = f()\nFAILED tests/test_a.py::test_a - assert 1 == 2",
        ],
    );
}

#[test]
fn warnings_are_reported_only_without_errors() {
    check(
        "a.c:1:2: warning: unused\na.c:3:4: error: bad\n",
        &["a.c:3:4: bad"],
    );
    check("a.c:1:2: warning: unused\n", &["a.c:1:2: warning: unused"]);
}

#[test]
fn paths_outside_the_workspace_are_ignored() {
    check(
        "Error: x\n    at f (/usr/lib/a.js:3:5)\n    at g (/w/node_modules/b/c.js:1:1)\n",
        &["Error: x"],
    );
    check(
        "10:32:05: started\n../a.c:3: error\nall is well\n",
        &["10:32:05: started\n../a.c:3: error\nall is well"],
    );
}

#[test]
fn escapes_and_progress_lines_are_removed() {
    assert_eq!(
        without_escapes("\u{1b}[31mred\u{1b}[0m \u{1b}]0;title\u{7}x\r\ny 10%\ry 20%\rdone\n"),
        "red x\ndone\n"
    );
    assert_eq!(without_escapes("\u{1b}["), "");
}

#[test]
fn durations_do_not_change_a_finding() {
    let one = findings("boom\nfinished in 0.03s\n", "/w");
    let two = findings("boom\nfinished in 1.9 s\n", "/w");
    assert_eq!(one, two);
}

#[test]
fn the_number_of_findings_is_limited() {
    let many: String = (1..1_000)
        .map(|n| format!("a.c:{n}:1: error: {}\n", "x".repeat(200)))
        .collect();
    let found = findings(&many, "/w");
    assert!(found.len() <= MAX_FINDINGS, "{}", found.len());
    let length: usize = found
        .iter()
        .map(|finding| finding.to_string().chars().count())
        .sum();
    assert!(length < MAX_CHARACTERS + 400, "{length}");
    assert!(
        found.last().unwrap().message.contains("more findings"),
        "{:?}",
        found.last()
    );
    let tail = findings(&"nothing to see\n".repeat(100_000), "/w");
    assert!(tail.len() == 1 && tail[0].message.len() <= MAX_TAIL);
    assert_eq!(findings("", "/w"), []);
}
