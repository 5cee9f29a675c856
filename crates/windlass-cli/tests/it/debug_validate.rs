//! `debug validate`: rows of input and verdicts.

use std::io::Write;

use serde_json::{Value, json};

use crate::cli_fixture::CliFixture;

fn validate(fixture: &CliFixture, rows: &str) -> (i32, Vec<Value>, String) {
    let output = fixture.run_with(fixture.command(&["debug", "validate", "-"]), rows);
    let said = output
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    (output.code, said, output.err)
}

#[test]
fn every_row_gets_a_verdict() {
    let fixture = CliFixture::new();
    let rows = [
        json!({ "id": "a", "lang": "py", "text": "def f(:\n    pass\n" }),
        json!({ "id": 2, "lang": "C++", "text": "int main() { return 0; }\n" }),
        json!({ "id": "b", "lang": "json", "text_b64": "eyJhIjogMSx9" }),
        json!({ "id": "c", "lang": "json", "text": "{ // x\n}", "name": "web/tsconfig.json" }),
        json!({ "id": "d", "lang": "jsx", "text": "x = <a/>" }),
        json!({ "id": "e", "lang": "cobol", "text": "x" }),
        json!({ "id": "f", "lang": "go", "text": "package a\nfunc f( {}\n" }),
    ];
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let (code, said, err) = validate(&fixture, &text);
    assert_eq!((code, err.as_str(), said.len()), (0, "", rows.len()));
    let verdicts: Vec<_> = said
        .iter()
        .map(|row| (row["id"].clone(), row["verdict"].as_str().unwrap()))
        .collect();
    let expect = [
        (json!("a"), "fail"),
        (json!(2), "pass"),
        (json!("b"), "fail"),
        (json!("c"), "pass"),
        (json!("d"), "pass"),
        (json!("e"), "unverifiable"),
        (json!("f"), "fail"),
    ];
    assert_eq!(verdicts, expect);
    let first = json!({ "line": 1, "column": 7, "message": "Expected a parameter or the end of the parameter list" });
    assert_eq!(
        (&said[0]["findings"][0], &said[0]["validator"]),
        (&first, &json!("syntax"))
    );
    let unknown = said[5]["findings"][0]["message"].as_str().unwrap();
    assert!(
        unknown.contains("`cobol`") && unknown.contains("python, javascript"),
        "{unknown}"
    );
    let packed = fixture.home().join("rows.jsonl.gz");
    let mut gzip = flate2::write::GzEncoder::new(
        std::fs::File::create(&packed).unwrap(),
        flate2::Compression::fast(),
    );
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap();
    let output = fixture.run(&["debug", "validate", packed.to_str().unwrap()]);
    assert_eq!((output.code, output.out.lines().count()), (0, rows.len()));
}

#[test]
fn an_invalid_row_is_reported_by_line_and_the_others_are_checked() {
    let fixture = CliFixture::new();
    let rows = "what\n\n{\"id\":1,\"lang\":\"json\",\"text\":\"{}\"}\n{\"id\":2,\"lang\":\"json\"}\n\
                {\"id\":3,\"lang\":\"json\",\"text_b64\":\"?\"}\n{\"id\":4,\"lang\":\"toml\",\"text\":\"a = 1\"}\n";
    let (code, said, err) = validate(&fixture, rows);
    assert_eq!(code, 2);
    assert_eq!(
        said.iter().map(|row| row["id"].clone()).collect::<Vec<_>>(),
        [json!(1), json!(4)]
    );
    for part in [
        "line 1 is not a row",
        "line 4 is not a row",
        "neither `text` nor `text_b64`",
        "line 5",
        "not base64",
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert_eq!(fixture.run(&["debug", "validate", "/nowhere"]).code, 2);
}
