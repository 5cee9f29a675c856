//! Runs each example as a program and checks its output. The examples use `#[tokio::main]`, so this also shows that such
//! a program can act as the sandbox helper, for itself and for another program that names it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use windlass::core::outcome::{FailReason, Outcome};
use windlass_testing::{ScriptedProvider, call, says};

/// The path of an example, which cargo built together with this test.
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

/// Code without whitespace, because the line width differs.
fn without_whitespace(code: &str) -> String {
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
        .map(|entry| without_whitespace(&std::fs::read_to_string(entry.path()).unwrap()))
        .collect();
    let blocks = page.split("```rust\n").skip(1);
    let blocks: Vec<&str> = blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() >= 4);
    for block in blocks {
        let code = without_whitespace(block);
        let found = sources.iter().any(|source| source.contains(&code));
        assert!(found, "this is in no example:\n{block}");
    }
}

#[test]
fn links_of_the_page_exist() {
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

/// A directory with a workspace that has one file.
fn workspace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    std::fs::write(dir.path().join("work/a.txt"), "bad\n").unwrap();
    dir
}

/// Runs a command that writes into the workspace and outside of it, with this program as the sandbox helper.
async fn run_with_helper(
    dir: &Path,
    helper: &Path,
) -> Result<windlass::RunResult, windlass::Error> {
    let command = "echo good > a.txt; echo outside > ../beside.txt; true";
    let arguments = serde_json::json!({ "command": command });
    let turns = [call("1", "bash", &arguments), says("It is good now.")];
    windlass::Windlass::without_settings(dir.join("work"), dir.join("data"))?
        .provider(Arc::new(ScriptedProvider::new(turns)), "scripted")
        .validate("grep -q good a.txt")
        .sandbox_helper(helper)
        .run("make it good")
        .await
}

#[tokio::test]
async fn a_named_program_is_the_sandbox_helper() {
    let dir = workspace();
    let (helper, log) = (dir.path().join("helper"), dir.path().join("started.txt"));
    let program = example("one_shot");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> '{}'\nexec '{}' \"$@\"\n",
        log.display(),
        program.display()
    );
    std::fs::write(&helper, script).unwrap();
    std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let result = run_with_helper(dir.path(), &helper).await.unwrap();
    assert_eq!(result.outcome(), Some(&Outcome::Completed), "{result:?}");
    let landed = std::fs::read_to_string(dir.path().join("work/a.txt")).unwrap();
    assert_eq!(landed, "good\n");
    assert!(!dir.path().join("beside.txt").exists());
    let started = std::fs::read_to_string(log).unwrap();
    assert!(started.lines().all(|line| line == "__sandbox-helper") && !started.is_empty());
}

#[tokio::test]
async fn no_command_runs_if_the_named_program_is_not_a_helper() {
    let dir = workspace();
    let helper = Path::new("/bin/false");
    let result = run_with_helper(dir.path(), helper).await.unwrap();
    let Some(Outcome::Failed { reason, .. }) = result.outcome() else {
        panic!("{result:?}");
    };
    assert_eq!(*reason, FailReason::Isolation);
    let landed = std::fs::read_to_string(dir.path().join("work/a.txt")).unwrap();
    assert_eq!(landed, "bad\n");
    assert!(!dir.path().join("beside.txt").exists());
}
