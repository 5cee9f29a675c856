//! Valid and invalid texts of every language: `tests/cases/LANGUAGE.good` and `LANGUAGE.bad`. A line that starts with
//! `%%` begins a case; in the bad ones the number after it is the line of the first flaw.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fmt::Write;

use windlass_validators::{Checked, Language, Project, check};

fn cases(text: &str) -> Vec<(String, String)> {
    let mut cases: Vec<(String, String)> = Vec::new();
    for line in text.split_inclusive('\n') {
        match line.strip_prefix("%%") {
            Some(mark) => cases.push((mark.trim().to_owned(), String::new())),
            None => cases
                .last_mut()
                .expect("a file begins with %%")
                .1
                .push_str(line),
        }
    }
    cases
}

fn ending(language: Language) -> &'static str {
    match language {
        Language::Python => "py",
        Language::JavaScript => "js",
        Language::TypeScript => "ts",
        Language::CSharp => "cs",
        Language::Ruby => "rb",
        Language::Rust => "rs",
        other => other.name(),
    }
}

fn judge(language: Language, text: &str) -> Checked {
    check(
        language,
        &format!("case.{}", ending(language)),
        text.as_bytes(),
        &Project::default(),
    )
    .settled()
}

#[track_caller]
fn check_good(language: Language, text: &str, wrong: &mut String) {
    let checked = judge(language, text);
    if checked != Checked::Flaws(Vec::new()) {
        writeln!(wrong, "--- good {language}\n{text}--- {checked:?}").unwrap();
    }
}

#[track_caller]
fn check_bad(language: Language, line: u32, text: &str, wrong: &mut String) {
    let checked = judge(language, text);
    let Checked::Flaws(flaws) = &checked else {
        return writeln!(wrong, "--- bad {language}\n{text}--- {checked:?}").unwrap();
    };
    let Some(first) = flaws.first() else {
        return writeln!(wrong, "--- bad {language} passes\n{text}").unwrap();
    };
    let lines = u32::try_from(text.lines().count()).unwrap();
    // A grammar may report another line: the one where it gave up.
    let placed = !language.is_exact() || flaws.iter().any(|flaw| flaw.line.abs_diff(line) <= 1);
    if !placed
        || first.line == 0
        || first.column == 0
        || first.line > lines + 1
        || first.message.is_empty()
    {
        writeln!(
            wrong,
            "--- bad {language}, expected line {line}\n{text}--- {checked:?}"
        )
        .unwrap();
    }
    if first.message.contains('\n') {
        writeln!(
            wrong,
            "--- {language}: a message of many lines: {checked:?}"
        )
        .unwrap();
    }
}

#[test]
fn every_case_of_every_language_has_the_expected_result() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let (mut good, mut bad, mut wrong) = (0, 0, String::new());
    for language in Language::all() {
        let read = |kind: &str| {
            let path = folder.join(format!("{}.{kind}", language.name()));
            std::fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
        };
        for (_, text) in cases(&read("good")) {
            good += 1;
            check_good(language, &text, &mut wrong);
        }
        for (line, text) in cases(&read("bad")) {
            bad += 1;
            check_bad(language, line.parse().unwrap(), &text, &mut wrong);
        }
    }
    assert!(
        wrong.is_empty(),
        "of {good} good and {bad} bad cases:\n{wrong}"
    );
    assert!(good > 150 && bad > 400, "{good} good, {bad} bad");
}
