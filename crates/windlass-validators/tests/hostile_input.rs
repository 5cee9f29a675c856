//! Texts that try to break a parser: brackets and operators nested a hundred thousand levels deep, huge lists, binary
//! data. Each must get an answer in bounded time, and none may crash the process.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use windlass_validators::{Checked, Language, Project, check};

/// Nesting depths below and above the limit.
const DEPTHS: &[usize] = &[150, 2_000, 100_000];

#[track_caller]
fn answered(language: Language, name: &str, text: &str) -> Checked {
    let started = Instant::now();
    let said = check(language, name, text.as_bytes(), &Project::default());
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{name} took {:?}",
        started.elapsed()
    );
    said
}

/// `begin` repeated `depth` times, then `middle`, then `end` repeated as often.
fn nested(begin: &str, middle: &str, end: &str, depth: usize) -> String {
    format!("{}{middle}{}", begin.repeat(depth), end.repeat(depth))
}

#[test]
fn every_depth_gets_an_answer() {
    type Shape = (
        &'static str,
        &'static str,
        &'static str,
        &'static str,
        &'static str,
    );
    // The text before, the repeated opening, the middle, the repeated closing, the text after.
    let python: &[Shape] = &[
        ("x = ", "(", "1", ")", "\n"),
        ("x = ", "[", "", "]", "\n"),
        ("x = ", "{1:", "1", "}", "\n"),
        ("x = ", "not ", "1", "", "\n"),
        ("x = ", "-", "1", "", "\n"),
        ("x = ", "lambda: ", "1", "", "\n"),
        ("x = ", "a if b else ", "1", "", "\n"),
        ("x = 1", " + 1", "", "", "\n"),
        ("x = a", ".b", "", "", "\n"),
        ("x = a", "()", "", "", "\n"),
        ("", "x = ", "1", "", "\n"),
        ("x = ", "f'{", "1", "}'", "\n"),
        ("x = ", "await ", "1", "", "\n"),
        ("x = 1", " ** 1", "", "", "\n"),
        ("x = ", "not\\\n", "1", "", "\n"),
    ];
    let javascript: &[Shape] = &[
        ("x = ", "(", "1", ")", ""),
        ("x = ", "[", "", "]", ""),
        ("x = ", "{a:", "1", "}", ""),
        ("", "{", "", "}", ""),
        ("x = ", "!", "1", "", ""),
        ("x = ", "typeof ", "1", "", ""),
        ("x = ", "typeof\n", "1", "", ""),
        ("x = ", "a ? b : ", "1", "", ""),
        ("x = 1", " + 1", "", "", ""),
        ("x = 1", " ** 1", "", "", ""),
        ("x = ", "a => ", "1", "", ""),
        ("", "x = ", "1", "", ""),
        ("", "if (a) ; else ", ";", "", ""),
        ("", "if (a) {}\nelse ", ";", "", ""),
        ("x = ", "`${", "1", "}`", ""),
        ("", "function f() {", "", "}", ""),
        ("x = a", "?.b", "", "", ""),
        ("x = a", "()", "", "", ""),
        ("", "a: ", ";", "", ""),
        ("x = ", "new ", "a", "", ""),
        ("let ", "[", "a", "]", " = b"),
        ("x = /", "(", "a", ")", "/"),
    ];
    let typescript: &[Shape] = &[
        ("let x: ", "Array<", "y", ">", ";"),
        ("let x: y", "[]", "", "", ";"),
        ("let x: ", "(() => ", "y", ")", ";"),
        ("let x: ", "A extends B ? C : ", "y", "", ";"),
        ("let x = ", "<T>", "y", "", ";"),
        ("let x = y", " as z", "", "", ";"),
    ];
    let tsx: &[Shape] = &[
        ("x = ", "<a>", "", "</a>", ""),
        ("x = ", "<a>{", "", "}</a>", ""),
    ];
    let rust: &[Shape] = &[
        ("const X: u8 = ", "(", "1", ")", ";"),
        ("const X: u8 = ", "{", "1", "}", ";"),
        ("const X: u8 = ", "-", "1", "", ";"),
        ("const X: u8 = ", "&", "1", "", ";"),
        ("const X: u8 = ", "|x| ", "1", "", ";"),
        ("const X: u8 = 1", " + 1", "", "", ";"),
        ("type A = ", "Vec<", "u8", ">", ";"),
        ("type A = ", "&", "u8", "", ";"),
        ("type A = ", "fn() -> ", "u8", "", ";"),
        ("fn f() { ", "if a {} else ", "{}", "", "}"),
        ("fn f() { a", ".b()", "", "", "}"),
        ("fn f() { ", "x = ", "1", "", "}"),
        ("", "mod a {", "", "}", ""),
        ("use ", "a::{", "b", "}", ";"),
        ("fn f() { let ", "(", "a", ",)", " = b; }"),
    ];
    let others: &[(Language, &str, Shape)] = &[
        (Language::Json, "a.json", ("", "[", "1", "]", "")),
        (Language::Json, "a.json", ("", "{\"a\":", "1", "}", "")),
        (Language::Jsonc, "a.jsonc", ("", "[", "1", ",]", "")),
        (Language::Toml, "a.toml", ("a = ", "[", "1", "]", "")),
        (Language::Toml, "a.toml", ("", "a.", "b = 1", "", "")),
        (Language::Yaml, "a.yaml", ("", "[", "1", "]", "")),
        (Language::Yaml, "a.yaml", ("", "- ", "1", "", "")),
        (Language::Yaml, "a.yaml", ("", "{a: ", "1", "}", "")),
        (
            Language::Go,
            "a.go",
            ("package a\nvar x = ", "(", "1", ")", "\n"),
        ),
        (
            Language::Java,
            "A.java",
            ("class A { int x = ", "(", "1", ")", "; }"),
        ),
        (Language::C, "a.c", ("int f() ", "{", "", "}", "")),
        (Language::C, "a.h", ("int x = ", "(", "1", ")", ";")),
        (Language::Cpp, "a.cpp", ("int x = ", "(", "1", ")", ";")),
        (
            Language::CSharp,
            "a.cs",
            ("class A { int x = ", "(", "1", ")", "; }"),
        ),
        (Language::Ruby, "a.rb", ("x = ", "[", "1", "]", "\n")),
        (Language::Php, "a.php", ("<?php $x = ", "[", "1", "]", ";")),
        (Language::Bash, "a.sh", ("echo ", "$(echo ", "1", ")", "\n")),
        (Language::Html, "a.html", ("", "<div>", "", "</div>", "")),
        (Language::Css, "a.css", ("", "a {", "", "}", "")),
    ];
    let exact = [
        (Language::Python, "a.py", python),
        (Language::JavaScript, "a.js", javascript),
        (Language::TypeScript, "a.ts", typescript),
        (Language::Tsx, "a.tsx", tsx),
        (Language::Rust, "a.rs", rust),
    ];
    for depth in DEPTHS {
        for (language, name, shapes) in exact {
            for (before, begin, middle, end, after) in shapes {
                let text = format!("{before}{}{after}", nested(begin, middle, end, *depth));
                answered(language, name, &text);
                // Only the opening half, so that nothing is closed.
                answered(language, name, &format!("{before}{}", begin.repeat(*depth)));
            }
        }
    }
    for (language, name, (before, begin, middle, end, after)) in others {
        // The HTML grammar takes quadratic time. A deadline stops it, but the test should not wait for that.
        let deep = if *language == Language::Html {
            3_000
        } else {
            20_000
        };
        for depth in [150, deep] {
            answered(
                *language,
                name,
                &format!("{before}{}{after}", nested(begin, middle, end, depth)),
            );
            answered(*language, name, &format!("{before}{}", begin.repeat(depth)));
        }
    }
}

#[test]
fn a_usual_depth_is_parsed_and_an_absurd_one_is_unsure() {
    let fine = |language, name, text: &str| {
        assert_eq!(
            answered(language, name, text),
            Checked::Flaws(vec![]),
            "{name}"
        )
    };
    fine(Language::JavaScript, "a.js", &nested("(", "1", ")", 500));
    fine(
        Language::JavaScript,
        "a.js",
        &format!("x = 1{}", " + 1".repeat(3_000)),
    );
    fine(
        Language::Python,
        "a.py",
        &format!("x = 1{}\n", " + 1".repeat(3_000)),
    );
    fine(
        Language::Python,
        "a.py",
        &format!("x = {}\n", nested("(", "1", ")", 199)),
    );
    fine(
        Language::Rust,
        "a.rs",
        &format!("const X: u8 = {};", nested("(", "1", ")", 500)),
    );
    fine(Language::Json, "a.json", &nested("[", "1", "]", 100_000));
    let comment = "// one line of words - with signs (and brackets), and (more\n".repeat(20_000);
    fine(Language::JavaScript, "a.js", &comment);
    let strings = format!("x = [{}];", "\"<a href='x'>{{(([[ text\", ".repeat(20_000));
    fine(Language::JavaScript, "a.js", &strings);
    let plain = "let a = b.c(d, e => e + 1)\nif (a) { f() }\nelse g\n"
        .repeat(20_000)
        .replace("let", "var");
    fine(Language::JavaScript, "a.js", &plain);
    for (language, name) in [(Language::JavaScript, "a.js"), (Language::Rust, "a.rs")] {
        let said = answered(
            language,
            name,
            &format!("const X: u8 = {};", nested("(", "1", ")", 100_000)),
        );
        assert!(
            matches!(&said, Checked::Unsure(why) if why.contains("levels deep")),
            "{said:?}"
        );
    }
    let said = answered(
        Language::Python,
        "a.py",
        &format!("x = {}\n", nested("(", "1", ")", 201)),
    );
    assert!(
        matches!(&said, Checked::Flaws(flaws) if flaws[0].message.contains("200 nested")),
        "{said:?}"
    );
}

#[test]
fn binary_or_too_long_input_is_unsure_or_a_flaw() {
    let said = |language, name: &str, bytes: &[u8]| match check(
        language,
        name,
        bytes,
        &Project::default(),
    ) {
        Checked::Unsure(why) => why,
        Checked::Flaws(flaws) => flaws.first().map_or("fine".into(), |flaw| {
            format!("{}: {}", flaw.line, flaw.message)
        }),
    };
    let long = vec![b' '; (2 << 20) + 1];
    assert!(said(Language::Python, "a.py", &long).contains("longer than 2 MB"));
    assert!(said(Language::TypeScript, "a.ts", b"G\0\0\x40\xff\xfe").contains("binary"));
    assert!(said(Language::Json, "a.json", b"\xff\xfe{\0}\0").contains("UTF-16"));
    assert_eq!(
        said(Language::Python, "a.py", b"x = 1\ny = '\xe9'\n"),
        "2: this byte is not UTF-8; save the file as UTF-8"
    );
    assert_eq!(
        said(
            Language::Python,
            "a.py",
            b"# -*- coding: latin-1 -*-\ny = '\xe9'\n"
        ),
        "fine"
    );
    assert!(said(Language::Python, "a.py", b"# coding: koi8-r\ny = '\xe9'\n").contains("koi8-r"));
    assert_eq!(
        said(Language::Python, "a.py", b"x = 1\0\n"),
        "1: a null byte is not allowed in source code"
    );
    assert_eq!(
        said(Language::Python, "a.py", b"\xef\xbb\xbfx = 1\n"),
        "fine"
    );
    assert_eq!(said(Language::Json, "a.json", b"\xef\xbb\xbf{}"), "fine");
    assert_eq!(said(Language::C, "a.c", b"char *s = \"\xe9\";\n"), "fine");
    assert_eq!(
        said(Language::Rust, "a.rs", b"// \xe9\n"),
        "1: this byte is not UTF-8; save the file as UTF-8"
    );
}
