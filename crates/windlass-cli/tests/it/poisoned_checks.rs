//! Agents that change files outside the source set that a check could read. In every case, a check passes only if the
//! landed tree passes it.

use serde_json::Value;

use crate::cli_fixture::{CliFixture, CliOutput};

/// A repository with a failing check that uses a program in an ignored directory.
fn project(files: &[(&str, &str)]) -> CliFixture {
    let fixture = CliFixture::new();
    fixture.write(".gitignore", "node_modules/\n__pycache__/\nout/\n");
    fixture.write("value.txt", "bad\n");
    for (name, text) in files {
        fixture.write(name, text);
    }
    for args in [
        &["init", "-qb", "main"][..],
        &["add", "-A"],
        &[
            "-c",
            "user.name=n",
            "-c",
            "user.email=e",
            "commit",
            "-qm",
            "one",
        ],
    ] {
        let mut git = std::process::Command::new("git");
        git.args(args).current_dir(fixture.work());
        assert!(git.status().unwrap().success());
    }
    fixture
}

/// Runs an agent that edits a source file and runs a command.
fn run(fixture: &CliFixture, line: &str, more: &[&str]) -> CliOutput {
    let quoted = Value::from(line).to_string();
    let step = format!(
        "[[step]]\ntext = \"I run it.\"\ncalls = [{{ name = \"bash\", args = {{ command = {quoted} }} }}]\n[[step]]\ntext = \
         \"done\"\n"
    );
    let script = fixture.script(&step);
    let mut args = vec![
        "run",
        "--script",
        &script,
        "--max-iterations",
        "1",
        "--json",
        "make it good",
    ];
    args.extend_from_slice(more);
    fixture.run(&args)
}

#[track_caller]
fn check(files: &[(&str, &str)], poison: &str, validate: &str, says: &str) {
    let fixture = project(files);
    let line = format!("echo more >> other.txt; {poison}");
    let output = run(&fixture, &line, &["--validate", validate]);
    assert_eq!(output.code, 3, "{poison}: {} {}", output.out, output.err);
    let result: Value = serde_json::from_str(&output.out).unwrap();
    let detail = result["outcome"]["detail"].as_str().unwrap();
    assert!(detail.contains(says), "{poison}: {detail}");
    assert!(
        !fixture.work().join("other.txt").exists(),
        "{poison}: it landed"
    );
}

#[test]
fn files_outside_the_source_set_cannot_make_a_check_pass() {
    let lint = &[("node_modules/.bin/lint", "grep -q good value.txt\n")][..];
    let replaced = "echo true > node_modules/.bin/lint";
    check(lint, replaced, "sh node_modules/.bin/lint", "node_modules");
    let module = &[
        (
            "test_value.py",
            "import unittest, helper\nclass T(unittest.TestCase):\n    def test(self): self.assertTrue(helper.good())\n",
        ),
        (
            "helper.py",
            "def good(): return open('value.txt').read() == 'good\\n'\n",
        ),
    ][..];
    let compiled = "cp helper.py /tmp/saved.py; echo 'def good(): return True' > helper.py; touch -d 2020-01-01 helper.py; \
                    python3 -m py_compile helper.py; mv /tmp/saved.py helper.py; touch -d 2020-01-01 helper.py";
    check(
        module,
        compiled,
        "python3 -m unittest -q test_value",
        "test_value",
    );
    let in_tmp = "printf 'def good(): return True\\n' > /tmp/other_helper.py";
    let uses_tmp = "PYTHONPATH=/tmp python3 -c 'import other_helper'";
    check(&[], in_tmp, uses_tmp, "other_helper");
    let in_home = "mkdir -p ~/.cargo && echo '[target.x]' > ~/.cargo/config.toml";
    check(
        &[],
        in_home,
        "grep -q target ~/.cargo/config.toml",
        "exit code",
    );
}

#[test]
fn only_the_source_set_affects_a_verdict() {
    let uses_value = "test \"$(cat value.txt)\" = good";
    for (poison, validate) in [
        // A build output that is ignored.
        (
            "mkdir -p out; echo good > out/value",
            "grep -q good out/value",
        ),
        // Files of the user that programs read by default.
        (
            "d=$(python3 -c 'import site; print(site.getusersitepackages())'); mkdir -p $d; \
             echo 'open(\"value.txt\", \"w\").write(\"good\\n\")' > $d/usercustomize.py",
            "python3 -c 'assert open(\"value.txt\").read() == \"good\\n\"'",
        ),
        (
            "mkdir -p ~/.local/bin; printf '#!/bin/sh\\n' > ~/.local/bin/lint; chmod +x ~/.local/bin/lint",
            "test -x ~/.local/bin/lint",
        ),
        (
            "mkdir -p ~/.cache/pip; echo good > ~/.cache/pip/value",
            "grep -q good ~/.cache/pip/value",
        ),
        // The git directory, from which only commits are transferred.
        ("git config alias.lint '!true'", "git lint"),
        (
            "python3 -c 'import os; p = os.path.join(\".g\" + \"it\", \"hooks\", \"pre-commit\"); \
             open(p, \"w\").write(\"#!/bin/sh\\n\"); os.chmod(p, 0o755)'",
            "git hook run pre-commit",
        ),
        ("git branch poison", "git rev-parse -q --verify poison"),
        // Memory and processes that outlive a command.
        ("echo good > /dev/shm/value", "grep -q good /dev/shm/value"),
        (
            "nohup sh -c 'sleep 300; echo good > value.txt' > /dev/null 2>&1 &",
            uses_value,
        ),
    ] {
        check(&[], poison, validate, "exit code");
    }
}

#[test]
fn sources_that_affect_a_check_are_judges() {
    for name in [
        "conftest.py",
        "tests/conftest.py",
        "pytest.ini",
        "setup.cfg",
        "tox.ini",
        ".coveragerc",
        "package.json",
        "Makefile",
        "rules.mk",
        "unittest.py",
        "pytest.py",
        "sitecustomize.py",
        "test_value.py",
        "build.rs",
        "jest.config.js",
    ] {
        let fixture = project(&[("Makefile", "include rules.mk\n"), ("rules.mk", "\n")]);
        let line = format!("mkdir -p tests; echo >> {name}");
        let output = run(&fixture, &line, &["--validate", "true", "--strict-judge"]);
        assert_eq!(output.code, 3, "{name}: {} {}", output.out, output.err);
        let result: Value = serde_json::from_str(&output.out).unwrap();
        let judges = result["judge_changed"].as_array().unwrap();
        assert!(judges.contains(&name.into()), "{name}: {judges:?}");
    }
}

#[test]
fn keep_ignored_runs_checks_with_ignored_files() {
    let lint = &[("node_modules/.bin/lint", "grep -q good value.txt\n")][..];
    let fixture = project(lint);
    let line = "echo more >> other.txt; echo true > node_modules/.bin/lint";
    let flags = ["--validate", "sh node_modules/.bin/lint", "--keep-ignored"];
    let output = run(&fixture, line, &flags);
    assert_eq!(output.code, 0, "{} {}", output.out, output.err);
    let result: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(
        result["evidence"][0]["proof"]["ignored"],
        serde_json::json!(["node_modules"])
    );
    assert_eq!(
        std::fs::read_to_string(fixture.work().join("node_modules/.bin/lint")).unwrap(),
        "grep -q good value.txt\n",
        "they do not land"
    );
}

#[test]
fn a_setup_command_prepares_the_tree_of_the_checks() {
    let fixture = project(&[("install.sh", "mkdir -p out && cp value.txt out/tool\n")]);
    let config = fixture.home().join(".config/windlass");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(
        config.join("config.toml"),
        "validate.setup = [\"sh install.sh\"]\n",
    )
    .unwrap();
    let validate = ["--validate", "grep -q good out/tool"];
    let output = run(&fixture, "echo good > value.txt", &validate);
    assert_eq!(output.code, 0, "{} {}", output.out, output.err);
    assert!(!fixture.work().join("out").exists());
}

#[test]
fn preexisting_failures_do_not_block_new_changes() {
    let files = &[
        ("Makefile", "test:\n\t@sh check.sh\n"),
        (
            "check.sh",
            "grep -q good value.txt || { echo 'value.txt:1: it is not good'; exit 1; }\n",
        ),
    ][..];
    let fixture = project(files);
    let output = run(&fixture, "echo more >> other.txt", &[]);
    assert_eq!(output.code, 3, "{} {}", output.out, output.err);
    assert!(
        output.out.contains("--accept-preexisting"),
        "{}",
        output.out
    );
    let output = run(
        &fixture,
        "echo more >> other.txt",
        &["--accept-preexisting"],
    );
    assert_eq!(output.code, 0, "{} {}", output.out, output.err);
    let result: Value = serde_json::from_str(&output.out).unwrap();
    let evidence = result["evidence"].as_array().unwrap();
    assert!(
        evidence.iter().any(|one| one["preexisting"] == true),
        "{evidence:?}"
    );
}
