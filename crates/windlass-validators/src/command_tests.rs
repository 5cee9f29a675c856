use std::time::Duration;

use windlass_core::workspace::ProcessEnd::{self, Cancelled, Exited, Signalled, TimedOut};

use super::*;
use crate::testing::{CheckFixture, text};

fn command(line: &str) -> CommandCheck {
    CommandCheck { line: line.into() }
}

#[track_caller]
fn check(line: &str, end: ProcessEnd, output: &str, expect: &str) {
    let world = CheckFixture::new(&[], None).ending(end, output);
    assert_eq!(text(&world.look(&command(line))), expect, "{line} {end:?}");
}

#[test]
fn the_exit_status_of_a_command_is_its_verdict() {
    check("make t", Exited { code: 0 }, "warning: x\n", "pass");
    check(
        "make t",
        Exited { code: 2 },
        "a.c:1:2: error: bad\n",
        "fail\na.c:1:2: bad\n`make t` failed with exit code 2",
    );
    check(
        "make t",
        Exited { code: 1 },
        "",
        "fail\n`make t` failed with exit code 1",
    );
    check(
        "make t",
        Signalled { signal: 11 },
        "",
        "fail\n`make t` was killed by signal 11",
    );
    check(
        "make t",
        TimedOut,
        "half\n",
        "unverifiable\n`make t` took longer than 60 s and was killed\nhalf",
    );
    check(
        "make t",
        Cancelled,
        "",
        "unverifiable\n`make t` was cancelled before it exited",
    );
}

#[test]
fn a_missing_program_is_unverifiable_and_gets_an_install_hint() {
    check(
        "go test ./...",
        Exited { code: 127 },
        "bash: line 1: go: command not found\n",
        "unverifiable\n`go test ./...` could not be run (bash: line 1: go: command not found): install Go",
    );
    check(
        "./own",
        Exited { code: 126 },
        "",
        "unverifiable\n`./own` could not be run: install the program, or change the command of this validator",
    );
    check(
        "python3 -m pytest -q",
        Exited { code: 1 },
        "/usr/bin/python3: No module named pytest\n",
        "unverifiable\n`python3 -m pytest -q` needs the Python module `pytest`, which is not installed: install it with \
         `python3 -m pip install pytest`",
    );
    check(
        "python3 -m pytest -q",
        Exited { code: 5 },
        "",
        "unverifiable\n`python3 -m pytest -q` found no tests to run",
    );
    // A missing module of the project itself is a failure.
    check(
        "python3 -m pytest -q",
        Exited { code: 2 },
        "E   ModuleNotFoundError: No module named 'thing'\n",
        "fail\nE   ModuleNotFoundError: No module named 'thing'\n`python3 -m pytest -q` failed with exit code 2",
    );
    let nothing = CheckFixture::new(&[], None);
    assert_eq!(
        text(&nothing.look(&command("x"))),
        "unverifiable\n`x` could not be started: nothing runs here"
    );
}

#[test]
fn a_command_runs_in_the_workspace_with_limits_and_leaves_proof() {
    let world = CheckFixture::new(&[], None).ending(Exited { code: 0 }, "fine\n");
    let report = world.look(&command("make t"));
    let ran = world.ran();
    assert_eq!(
        (ran.len(), ran[0].line.as_str(), ran[0].workdir.as_str()),
        (1, "make t", "")
    );
    assert_eq!(
        (ran[0].timeout, ran[0].keep, ran[0].looks),
        (Duration::from_secs(60), KEEP, false)
    );
    assert_eq!(report.proof.command.as_deref(), Some("make t"));
    assert_eq!(report.proof.exit, Some(0));
    assert_eq!(
        report.proof.digest,
        Some(blake3::hash(b"fine\n").to_hex().to_string())
    );
}
