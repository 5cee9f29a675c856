use proptest::prelude::*;

use super::*;

/// The text with the first letters of the tones: k keyword, s string, n number, c comment, f function, t type.
fn tones(line: &StyledLine) -> String {
    let letter = |tone: Tone| match tone {
        Tone::Keyword => 'k',
        Tone::Literal => 's',
        Tone::Number => 'n',
        Tone::Comment => 'c',
        Tone::Function => 'f',
        Tone::Type => 't',
        Tone::Added => '+',
        Tone::Removed => '-',
        Tone::Muted => 'm',
        Tone::Accent => 'a',
        _ => ' ',
    };
    let spans = line.spans.iter();
    let tones: String = spans
        .flat_map(|span| std::iter::repeat_n(letter(span.style.tone), span.text.chars().count()))
        .collect();
    tones.trim_end().to_owned()
}

#[track_caller]
fn check(language: &str, lines: &[(&str, &str)]) {
    let mut highlighter = Highlighter::new(CodeLanguage::of_name(language).expect("a language"));
    for (text, expect) in lines {
        let line = highlighter.line(text);
        assert_eq!(line.plain(), *text, "{language}");
        assert_eq!(tones(&line), *expect, "{language}: {text}");
    }
}

#[test]
fn words_of_languages_have_tones() {
    check(
        "rust",
        &[
            (
                "pub fn go<'a>(x: &'a u8) -> Vec {",
                "kkk kk ff tt      tt tt     ttt",
            ),
            (
                "let c = 'x'; println!(\"a\\\"b\");",
                "kkk     sss  ffffffff ssssss",
            ),
            (
                "r#\"a\"b\"# /* a /* b */ c */ 1_u8",
                "ssssssss ccccccccccccccccc nnnn",
            ),
        ],
    );
    check(
        "python",
        &[
            ("def f(self): # x", "kkk f kkkk   ccc"),
            ("return None or f'a'", "kkkkkk ssss kk  sss"),
        ],
    );
    check(
        "js",
        &[
            ("const f = async () => `a", "kkkkk     kkkkk       ss"),
            ("b` + g(1.5e-3)", "ss   f nnnnnn"),
        ],
    );
    check(
        "go",
        &[("func (s *Sink) Add() error {", "kkkk     tttt  ttt   ttttt")],
    );
    check(
        "c",
        &[
            ("#include <a.h> // x", "kkkkkkkk       cccc"),
            (
                "int main(void) { return 0x1f; }",
                "ttt ffff tttt    kkkkkk nnnn",
            ),
        ],
    );
    check("sql", &[("SELECT a FROM b -- c", "kkkkkk   kkkk   cccc")]);
    check(
        "bash",
        &[(
            "if [ \"$a\" ]; then echo ${b#x} # c",
            "kk   ssss    kkkk kkkk ttt    ccc",
        )],
    );
    check("php", &[("$a = new B('x'); // c", "tt   kkk t sss   cccc")]);
    check(
        "lua",
        &[
            ("--[[ a", "cccccc"),
            ("]] local x = nil", "cc kkkkk     sss"),
        ],
    );
    check("dockerfile", &[("FROM rust:1 AS build", "kkkk      n kk")]);
}

#[test]
fn keys_have_the_tone_of_functions() {
    check(
        "json",
        &[("{\"a\": \"b\", \"c\": true}", " fff  sss  fff  ssss")],
    );
    check(
        "yaml",
        &[
            ("- name: x # y", "  ffff    ccc"),
            ("a: \"b: c\"", "f  ssssss"),
            ("  url: http://x", "  fff"),
        ],
    );
    check(
        "toml",
        &[
            ("[a.b] # c", "ttttt ccc"),
            ("a-b = 1", "ffff  n"),
            ("c = '''x", "ff  ssss"),
            ("y'''", "ssss"),
        ],
    );
    check(
        "css",
        &[("color: #fff; /* a", "fffff        cccc"), ("b */", "cccc")],
    );
    check("make", &[("all: a b", "fff"), ("\techo".trim_start(), "")]);
}

#[test]
fn constructs_continue_on_the_next_line() {
    check(
        "rust",
        &[
            ("/* a", "cccc"),
            ("/* b */", "ccccccc"),
            ("c */ x", "cccc"),
            ("\"a", "ss"),
            ("b\" y", "ss"),
        ],
    );
    check(
        "python",
        &[
            ("x = \"\"\"a", "    ssss"),
            ("# b", "sss"),
            ("\"\"\" + 'c", "sss   ss"),
            ("d", ""),
        ],
    );
    check(
        "html",
        &[
            ("<a b=\"c", "kk f ss"),
            ("d\"> e <!-- f", "ssk   cccccc"),
            ("--></a>", "ccckkkk"),
        ],
    );
    check(
        "md",
        &[
            ("# a", "kkk"),
            ("b `c`", "  sss"),
            ("```rust", "sssssss"),
            ("# d", "sss"),
            ("```", "sss"),
            ("e", ""),
        ],
    );
    check(
        "diff",
        &[
            ("+a", "++"),
            ("-b", "--"),
            ("@@ -1 @@", "aaaaaaaa"),
            ("--- a", "mmmmm"),
        ],
    );
}

#[test]
fn languages_are_found_by_name_and_path() {
    for (path, expect) in [
        ("src/x.rs", Some("rust")),
        ("a/Dockerfile.dev", Some("dockerfile")),
        ("Makefile", Some("make")),
        ("x.test.tsx", Some("typescript")),
        ("a\\b.CS", Some("c#")),
        ("Cargo.lock", Some("toml")),
        ("README", None),
        ("", None),
    ] {
        let language = CodeLanguage::of_path(path).map(CodeLanguage::name);
        assert_eq!(language, expect, "{path}");
    }
    assert!(LANGUAGES.len() >= 24, "{}", LANGUAGES.len());
}

#[test]
fn the_tables_are_sorted_and_have_unique_names() {
    let mut names: Vec<&str> = LANGUAGES
        .iter()
        .flat_map(|rules| rules.names)
        .copied()
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for rules in LANGUAGES {
        for text in [rules.keywords, rules.types, rules.literals] {
            let words: Vec<&str> = text.split(' ').collect();
            assert!(words.is_sorted(), "{}: {words:?}", rules.names[0]);
            for word in words.into_iter().filter(|word| !word.is_empty()) {
                assert!(contains_word(text, word), "{word}");
            }
            for word in ["", "a", "zzz", "fo"] {
                assert!(!contains_word(text, word), "{word}");
            }
        }
    }
}

proptest! {
    #[test]
    fn any_text_keeps_its_characters(language in 0..LANGUAGES.len(), lines in prop::collection::vec("([\"'`/*#<>\\\\ -]|[a-z0-9]|\\PC){0,30}", 0..6)) {
        let mut highlighter = Highlighter::new(CodeLanguage(language));
        for text in lines {
            let line = highlighter.line(&text);
            prop_assert_eq!(line.plain(), span_text(&text, 0));
        }
    }

    #[test]
    fn code_of_no_language_has_control_characters(language in 0..LANGUAGES.len(), text in "(?s).{0,60}") {
        let line = Highlighter::new(CodeLanguage(language)).line(&text);
        prop_assert!(!line.plain().chars().any(char::is_control));
    }
}
