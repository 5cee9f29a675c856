//! `debug edit`: rows of input and output. The edit formats have their own tests.

use serde_json::{Value, json};

use crate::cli_fixture::CliFixture;

#[test]
fn every_row_gets_its_files_and_an_invalid_row_does_not_stop_the_rest() {
    let fixture = CliFixture::new();
    let block = "a.txt\n<<<<<<< SEARCH\none\n=======\ntwo\n>>>>>>> REPLACE\n";
    let rows = [
        json!({ "id": "made", "format": "search-replace", "input": { "a.txt": "one\n", "b": "x" }, "edit": block })
            .to_string(),
        json!({ "id": 7, "format": "search-replace", "input": { "a.txt": "other\n" }, "edit": block }).to_string(),
        "what".to_owned(),
        json!({ "id": "shape", "format": 3, "input": { "a.txt": "one\n" }, "edit": block }).to_string(),
        json!({ "format": "whole", "input": {}, "edit": { "n.txt": "new\n" }, "ok": true, "expected": {} }).to_string(),
    ];
    let output = fixture.run_with(fixture.command(&["debug", "edit", "-"]), &rows.join("\n"));
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    let said: Vec<Value> = output
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let short: Vec<_> = said
        .iter()
        .map(|row| (row["id"].clone(), row["ok"].clone(), row["files"].clone()))
        .collect();
    let expect = [
        (
            json!("made"),
            json!(true),
            json!({ "a.txt": "two\n", "b": "x" }),
        ),
        (json!(7), json!(false), json!({ "a.txt": "other\n" })),
        (json!("line 3"), json!(false), json!({})),
        (json!("shape"), json!(false), json!({ "a.txt": "one\n" })),
        (json!("line 5"), json!(true), json!({ "n.txt": "new\n" })),
    ];
    assert_eq!(short, expect);
    assert_eq!(said[0]["error"], Value::Null);
    assert!(
        said[1]["error"].as_str().unwrap().contains("was not found"),
        "{}",
        said[1]
    );
}
