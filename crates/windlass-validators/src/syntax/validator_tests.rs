use super::*;
use crate::testing::{CheckFixture, text};

type Files<'a> = &'a [(&'a str, &'a [u8])];

#[track_caller]
fn check(now: Files<'_>, before: Option<Files<'_>>, expect: &str) {
    assert_eq!(text(&CheckFixture::new(now, before).look(&Syntax)), expect);
}

#[test]
fn changed_files_are_parsed_in_their_language() {
    check(
        &[("a.py", b"x = 1\n"), ("b.txt", b"(((")],
        Some(&[]),
        "pass",
    );
    check(
        &[("a.py", b"x = (\n")],
        Some(&[("a.py", b"x = (\n")]),
        "pass",
    );
    check(
        &[
            ("a.py", b"x = = 1\n"),
            ("b/c.json", b"{\n  \"\xc3\xa9\": }\n"),
        ],
        Some(&[]),
        "fail\na.py:1:5: Expected an expression\nb/c.json:2:8: expected value: a string in double quotes, a number, `true`, \
         `false`, `null`, `[` or `{`",
    );
    check(
        &[("run", b"#!/bin/sh\nif true; then\n")],
        Some(&[]),
        "fail\nrun:2:14: expected `fi`",
    );
    check(&[("LICENSE", b"if true; then (((")], Some(&[]), "pass");
}

#[test]
fn only_errors_that_the_change_added_are_reported() {
    // A Python 2 file, an intentionally broken fixture and JSON with comments, each edited at another place.
    let python: &[u8] = b"print 'a'\n";
    let edited: &[u8] = b"# more\nprint 'a'\n";
    check(&[("a.py", edited)], Some(&[("a.py", python)]), "pass");
    let json: &[u8] = b"{\n  // why\n  \"a\": 1\n}\n";
    let more: &[u8] = b"{\n  // why\n  \"a\": 1,\n  \"b\": 2\n}\n";
    check(&[("a.json", more)], Some(&[("a.json", json)]), "pass");
    let fixture: &[u8] = b"fn f( {\n";
    let longer: &[u8] = b"fn f( {\n// more\n";
    check(&[("bad.rs", longer)], Some(&[("bad.rs", fixture)]), "pass");
    let worse: &[u8] = b"print 'a'\nx = = 1\n";
    let said =
        text(&CheckFixture::new(&[("a.py", worse)], Some(&[("a.py", python)])).look(&Syntax));
    assert!(
        said.contains("a.py:2:") && !said.contains("a.py:1:"),
        "{said}"
    );
}

#[test]
fn only_added_errors_of_a_grammar_are_reported() {
    let old: &[u8] = b"package a\n\nfunc f() { return 1 + }\n";
    let moved: &[u8] = b"package a\n\nvar y = 2\n\nfunc f() { return 1 + }\n";
    let edited: &[u8] = b"package a\n\nfunc f() { return 12 + }\n";
    let worse: &[u8] = b"package a\n\nfunc f() { return 1 + }\n\nfunc g( {}\n";
    check(&[("a.go", moved)], Some(&[("a.go", old)]), "pass");
    check(&[("a.go", edited)], Some(&[("a.go", old)]), "pass");
    let said = text(&CheckFixture::new(&[("a.go", worse)], Some(&[("a.go", old)])).look(&Syntax));
    assert!(
        said.starts_with("fail\na.go:5:") && !said.contains("a.go:3"),
        "{said}"
    );
    let said = text(&CheckFixture::new(&[("a.go", old)], Some(&[])).look(&Syntax));
    assert!(said.starts_with("fail\na.go:3:"), "{said}");
}

#[test]
fn the_previous_content_is_read_only_if_there_are_errors() {
    check(&[("a.go", b"package a\n")], None, "pass");
    let said =
        text(&CheckFixture::new(&[("a.go", b"package a\nfunc f( {}\n")], None).look(&Syntax));
    assert!(
        said.starts_with("unverifiable\na.go: its syntax was not checked: ")
            && said.contains("is not known"),
        "{said}"
    );
    // The errors of an exact parser are reported anyway.
    let said = text(&CheckFixture::new(&[("a.py", b"x = (\n")], None).look(&Syntax));
    assert!(said.starts_with("fail\na.py:"), "{said}");
}

#[test]
fn a_moved_file_is_compared_with_its_old_path() {
    let broken: &[u8] = b"package a\n\nfunc f() { return 1 + }\n";
    let mut world = CheckFixture::new(&[("new.go", broken)], Some(&[("old.go", broken)]));
    world.changes[0].change = Change::MovedFrom("old.go".into());
    assert_eq!(text(&world.look(&Syntax)), "pass");
}

#[test]
fn errors_next_to_c_macros_are_unverifiable() {
    let said = text(
        &CheckFixture::new(
            &[("a.c", b"BEGIN_DECLS\nint f(void)\nEND_DECLS }\n")],
            Some(&[]),
        )
        .look(&Syntax),
    );
    assert!(
        said.starts_with("unverifiable\na.c: its syntax was not checked: "),
        "{said}"
    );
    let said = text(
        &CheckFixture::new(&[("a.c", b"int f(void) { return 1 }\n")], Some(&[])).look(&Syntax),
    );
    assert!(said.starts_with("fail\na.c:1:"), "{said}");
}

#[test]
fn the_project_decides_how_a_file_is_parsed() {
    let with: &[u8] = b"with (a) b;\n";
    check(&[("a.js", with)], Some(&[]), "pass");
    let module: &[u8] = br#"{"type": "module"}"#;
    let said = text(
        &CheckFixture::new(&[("p/package.json", module), ("p/q/a.js", with)], Some(&[]))
            .look(&Syntax),
    );
    assert!(said.starts_with("fail\np/q/a.js:1:"), "{said}");
    let jsx: &[u8] = b"export default () => <div>x</div>;\n";
    check(
        &[
            ("a.js", jsx),
            ("package.json", br#"{"dependencies": {"react": "19"}}"#),
        ],
        Some(&[]),
        "pass",
    );
    let said = text(&CheckFixture::new(&[("a.js", jsx)], Some(&[])).look(&Syntax));
    assert!(said.starts_with("fail\na.js:1:"), "{said}");
    let except: &[u8] = b"try: pass\nexcept A, B: pass\n";
    let said = text(&CheckFixture::new(&[("a.py", except)], Some(&[])).look(&Syntax));
    assert!(said.starts_with("fail\na.py:2:"), "{said}");
    let newest: &[u8] = b"[project]\nrequires-python = \">=3.14,<4\"\n";
    check(
        &[("a.py", except), ("pyproject.toml", newest)],
        Some(&[]),
        "pass",
    );
}

#[test]
fn findings_are_limited_and_a_timeout_is_not_a_pass() {
    let bad = b"x = = 1\n".repeat(500);
    let names: Vec<String> = (0..20).map(|n| format!("{n:02}.py")).collect();
    let files: Vec<(&str, &[u8])> = names
        .iter()
        .map(|name| (name.as_str(), bad.as_slice()))
        .collect();
    let report = CheckFixture::new(&files, Some(&[])).look(&Syntax);
    assert_eq!(report.findings.len(), MAX_FINDINGS);
    assert_eq!(
        report
            .findings
            .iter()
            .filter(|finding| finding.path == "00.py")
            .count(),
        super::super::MAX_PER_FILE
    );
    let mut world = CheckFixture::new(&[("a.py", b"x = 1\n")], Some(&[]));
    world.cancel.cancel();
    assert_eq!(
        text(&world.look(&Syntax)),
        "unverifiable\nit was cancelled before a.py was checked"
    );
    world = CheckFixture::new(&[("a.py", &[b' '; 3 << 20])], Some(&[]));
    assert_eq!(
        text(&world.look(&Syntax)),
        "unverifiable\na.py: its syntax was not checked: it is too large"
    );
    world = CheckFixture::new(&[("a.py", b"x = 1\n")], Some(&[]));
    world.changes[0].change = Change::Deleted;
    assert_eq!(text(&world.look(&Syntax)), "pass");
}

#[test]
fn a_data_template_is_unverifiable() {
    let said = |path: &str, bytes: &[u8]| {
        text(&CheckFixture::new(&[(path, bytes)], Some(&[])).look(&Syntax))
    };
    for (path, bytes) in [
        (
            "templates/a.yaml",
            b"{{- if .Values.a }}\na: {{ .Values.b }}\n{{- end }}\n".as_slice(),
        ),
        ("a.json", b"{\"a\": {{ value }} }\n"),
        ("a.toml", b"{% if a %}\nb = 1\n{% endif %}\n"),
        ("{{name}}/a.py", b"import {{ name }}\n"),
    ] {
        let said = said(path, bytes);
        assert!(
            said.starts_with("unverifiable\n") && said.contains("template"),
            "{path}: {said}"
        );
    }
    for (path, bytes) in [
        ("a.yaml", b"a: \"{{ b }}\"\nc: ${{ d }}\n e: 1\n".as_slice()),
        ("a.json", b"{{\"a\": 1}}"),
    ] {
        assert!(said(path, bytes).starts_with("fail\n"), "{path}");
    }
}

#[test]
fn an_old_error_after_a_repaired_one_does_not_block() {
    let before: &[u8] = b"fn f( {}\nfn g() {}\nstruct Wrong { one two }\n";
    let repaired: &[u8] = b"fn f() {}\nfn g() {}\nstruct Wrong { one two }\n";
    let said =
        text(&CheckFixture::new(&[("a.rs", repaired)], Some(&[("a.rs", before)])).look(&Syntax));
    assert!(said.starts_with("unverifiable"), "{said}");
    let worse: &[u8] = b"fn f() {}\nenum More { = }\nstruct Wrong { one two }\n";
    let said =
        text(&CheckFixture::new(&[("a.rs", worse)], Some(&[("a.rs", before)])).look(&Syntax));
    assert!(said.starts_with("fail"), "{said}");
}

#[test]
fn files_are_parsed_like_their_own_tools_parse_them() {
    let table: &[u8] = b"a = {\n b = 1,\n}\n";
    check(&[("any.toml", table)], Some(&[]), "pass");
    let said = text(&CheckFixture::new(&[("x/Cargo.toml", table)], Some(&[])).look(&Syntax));
    assert!(said.starts_with("fail") && said.contains("1.0"), "{said}");
    let ranges: &[u8] = b"fn f(a: [u8; 2]) -> bool {\n    matches!(a, [..=1, _]) && match a { [..=1, _] => true, _ => false }\n}\n";
    check(&[("a.rs", ranges)], Some(&[]), "pass");
    let twice: &[u8] = b"\xef\xbb\xbf\xef\xbb\xbfx = 1\n";
    check(&[("a.js", twice)], Some(&[]), "pass");
    let said = text(&CheckFixture::new(&[("a.py", twice)], Some(&[])).look(&Syntax));
    assert!(said.starts_with("fail\na.py:1:1: a second byte"), "{said}");
    let walrus: &[u8] = b"def f(a: (b := int)) -> (c := int): ...\nx: (y := int) = 1\n";
    check(&[("a.py", walrus)], Some(&[]), "pass");
    let deferred = [b"from __future__ import annotations\n", walrus].concat();
    let said = text(&CheckFixture::new(&[("a.py", &deferred)], Some(&[])).look(&Syntax));
    assert!(said.starts_with("fail"), "{said}");
}
