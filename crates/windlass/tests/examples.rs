//! The examples, as programs of their own: each does what its first lines say. They have `#[tokio::main]`, so this also
//! shows that such a program is the helper of its sandboxes.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::PathBuf;
use std::process::Command;

/// An example that cargo built beside this test.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().unwrap().parent().unwrap();
    target.join("examples").join(name)
}

#[track_caller]
fn check(name: &str, args: &[&str], expect: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(example(name))
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home.path())
        .env("OPENAI_API_KEY", "not-a-key")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {text}\n{error}");
    for line in expect {
        assert!(
            text.contains(line),
            "{name}: no `{line}` in:\n{text}\n{error}"
        );
    }
}

#[test]
fn one_shot() {
    check(
        "one_shot",
        &[],
        &["Some(Completed)", "changed sum.sh", "$1 + $2"],
    );
}

#[test]
fn streaming() {
    let expect = [
        "[edit_file]",
        "[checked by sh check.sh]",
        "[landed 1 files]",
        "The script subtracted; it adds now.",
        "[Completed]",
    ];
    check("streaming", &[], &expect);
}

#[test]
fn approvals() {
    let expect = ["refused bash", "Some(Completed)", "the command ran: false"];
    check("approvals", &[], &expect);
}

#[test]
fn custom_tool() {
    let expect = ["Some(Completed)", "the model read the ticket: true"];
    check("custom_tool", &[], &expect);
}

#[test]
fn custom_validator() {
    check("custom_validator", &[], &["Some(Completed)", "sum.sh adds"]);
}

#[test]
fn many_sessions() {
    check("many_sessions", &[], &["Some(Completed)", "4 parts landed"]);
}

#[test]
fn foreign_agent() {
    let agent = format!("acp:{}", example("acp_agent").display());
    check("foreign_agent", &[&agent], &["Completed", "$1 + $2"]);
}

/// Code without what depends on the width of a line.
fn bare(code: &str) -> String {
    code.split_whitespace().collect()
}

#[test]
fn the_page_for_embedders_shows_code_of_the_examples() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(folder.join("../../docs/embedding.md")).unwrap();
    let sources: Vec<String> = std::fs::read_dir(folder.join("examples"))
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| bare(&std::fs::read_to_string(entry.path()).unwrap()))
        .collect();
    let blocks = page.split("```rust\n").skip(1);
    let blocks: Vec<&str> = blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() >= 4);
    for block in blocks {
        let shown = sources.iter().any(|source| source.contains(&bare(block)));
        assert!(shown, "this is in no example:\n{block}");
    }
}

#[test]
fn links_of_the_page_lead_somewhere() {
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = std::fs::read_to_string(docs.join("embedding.md")).unwrap();
    for link in page
        .split("](")
        .skip(1)
        .map(|rest| rest.split([')', '#']).next().unwrap())
    {
        assert!(docs.join(link).exists(), "{link}");
    }
}
