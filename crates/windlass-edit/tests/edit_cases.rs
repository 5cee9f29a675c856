//! Runs every row of `edits.jsonl` through the function that `windlass debug edit` uses. Also runs the rows of a JSON
//! Lines file named by `WINDLASS_EDIT_CASES`, or of a file next to the repository.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stderr)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_edit::patch::{Patch, PatchChange, PatchFormat, PatchPlan, PatchedPath};
use windlass_edit::row::{EditCase, run};

/// The expected result of a row. The other fields are read as [`EditCase`].
#[derive(serde::Deserialize)]
struct ExpectedEdit {
    id: String,
    ok: bool,
    strict: bool,
    input: BTreeMap<String, String>,
    expected: BTreeMap<String, Option<String>>,
    /// A substring of the expected error message.
    #[serde(default)]
    error: Option<String>,
}

/// Runs a row. The error contains the difference from the expected result, and whether the row is strict, that is,
/// whether the difference is a failure.
fn check(line: &str) -> Result<(), (bool, String)> {
    let case: ExpectedEdit = serde_json::from_str(line).unwrap();
    let row: EditCase = serde_json::from_str(line).unwrap();
    let done = run(row);
    let mut expected = case.input.clone();
    if case.ok {
        for (path, text) in &case.expected {
            match text {
                Some(text) => expected.insert(path.clone(), text.clone()),
                None => expected.remove(path),
            };
        }
    }
    let error_matches = match (&case.error, &done.error) {
        (Some(part), Some(error)) => error.contains(part),
        (Some(_), None) => false,
        (None, _) => true,
    };
    if done.ok == case.ok && done.files == expected && error_matches {
        return Ok(());
    }
    let why = format!(
        "{}\n  expected ok: {}, {expected:?}, {:?}\n  found {done:?}",
        case.id, case.ok, case.error
    );
    Err((case.strict, why))
}

#[test]
fn every_row_has_the_expected_result() {
    let rows = include_str!("edits.jsonl");
    let failures: Vec<String> = rows
        .lines()
        .filter_map(|line| check(line).err().map(|(_, why)| why))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(rows.lines().count() > 150, "cases are missing");
}

#[test]
fn rows_of_other_projects_agree_where_they_are_strict() {
    let given = std::env::var_os("WINDLASS_EDIT_CASES").map(std::path::PathBuf::from);
    let beside = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/edits/codex-scenarios.jsonl"
    );
    let path = given.unwrap_or_else(|| beside.into());
    if !path.is_file() {
        windlass_needs::not_run(
            "needs edit cases of other projects (set WINDLASS_EDIT_CASES to their file)",
        );
        return;
    }
    let mut failures = Vec::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        if let Err((strict, why)) = check(line) {
            eprintln!("differs (strict: {strict}): {why}");
            if strict {
                failures.push(why);
            }
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn every_plan_reads_back_from_its_diff() {
    let mut plans = 0;
    for line in include_str!("edits.jsonl").lines() {
        let row: EditCase = serde_json::from_str(line).unwrap();
        let format = match row.format.as_str() {
            "v4a" => PatchFormat::BeginPatch,
            "search-replace" => PatchFormat::SearchReplace,
            "str-replace" => PatchFormat::ToolEdit,
            "udiff" => PatchFormat::Unified,
            _ => PatchFormat::Whole,
        };
        let text = row
            .edit
            .as_str()
            .map_or_else(|| row.edit.to_string(), str::to_owned);
        let known: Vec<&str> = row.input.keys().map(String::as_str).collect();
        let read = |path: &str| match row.input.get(path) {
            Some(Some(text)) => PatchedPath::File(text.clone().into_bytes()),
            _ => PatchedPath::Absent,
        };
        let Ok(plan) = Patch::read(format, &text, &known).and_then(|patch| patch.plan(read)) else {
            continue;
        };
        plans += 1;
        let again = Patch::parse(&plan.to_diff()).unwrap().plan(read).unwrap();
        assert_eq!(
            again.changes,
            plan.changes,
            "{}\n{}",
            row.id,
            plan.to_diff()
        );
    }
    assert!(plans > 80, "{plans}");
}

fn block_like() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("a.txt".to_owned()),
        Just("<<<<<<< SEARCH".to_owned()),
        Just("------- SEARCH".to_owned()),
        Just("=======".to_owned()),
        Just(">>>>>>> REPLACE".to_owned()),
        Just("+++++++ REPLACE".to_owned()),
        Just("...".to_owned()),
        Just("```".to_owned()),
        Just("````md".to_owned()),
        Just(":start_line:2".to_owned()),
        Just("2 | b".to_owned()),
        "[abc “”–]{0,4}",
        "\\PC{0,10}",
    ];
    proptest::collection::vec(line, 0..16).prop_map(|lines| lines.join("\n"))
}

proptest! {
    /// No edit panics, and a refused edit does not change the files.
    #[test]
    fn any_row_ends_without_panic(edit in block_like(), text in "[abc “”–\r\n]{0,20}", format in 0..5usize) {
        let format = ["v4a", "search-replace", "str-replace", "udiff", "whole"][format];
        let input = json!({"a.txt": text});
        let row: EditCase = serde_json::from_value(json!({"id": 1, "format": format, "input": input, "edit": edit})).unwrap();
        let done = run(row);
        prop_assert_eq!(done.ok, done.error.is_none());
        if !done.ok {
            prop_assert_eq!(serde_json::to_value(&done.files).unwrap(), input);
        }
    }

    #[test]
    fn any_change_reads_back_from_its_diff(before in "[ab\r\n]{0,3}([a-c]{0,2}\r?\n){0,12}[ab]{0,2}", after in "([a-c]{0,2}\r?\n){0,12}[ab]{0,2}") {
        // Old lines are compared without their endings, so a diff cannot represent a change of a lone `\r`.
        prop_assume!(before != after && !before.replace("\r\n", "").contains('\r') && !after.replace("\r\n", "").contains('\r'));
        let plan = PatchPlan { changes: vec![PatchChange::Modify { path: "a b\"c".into(), before: before.clone().into(), after: after.into() }], notes: vec![] };
        let again = Patch::parse(&plan.to_diff()).unwrap().plan(|_| PatchedPath::File(before.clone().into_bytes()));
        prop_assert_eq!(again.map(|plan| plan.changes), Ok(plan.changes));
    }

    #[test]
    fn a_tool_edit_changes_only_its_text(before in "[a-c “–\n]{0,20}", after in "[a-c “–\n]{0,20}", new in "[a-c\n]{0,8}") {
        let edit = json!({"path": "a", "old_str": "NEEDLE", "new_str": new});
        let row = json!({"id": 1, "format": "str-replace", "input": {"a": format!("{before}NEEDLE{after}")}, "edit": edit});
        let done = run(serde_json::from_value::<EditCase>(row).unwrap());
        prop_assert_eq!(done.error, None);
        prop_assert_eq!(&done.files["a"], &format!("{before}{new}{after}"));
        prop_assert_eq!(done.id, Value::from(1));
    }
}
