//! Isolated runs in the interface: the checks of each attempt, landings and kept runs.

use std::process::Command;

use crate::cli_fixture::CliFixture;
use crate::interface::says;
use crate::interface_fixture::{ENTER, Ui};

const TEST: &str =
    "grep -q three number.txt || { echo 'FAIL: the number is not three'; exit 1; }\n";

fn repository() -> CliFixture {
    let fixture = CliFixture::new();
    fixture.write("number.txt", "one\n");
    fixture.write("test.sh", TEST);
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(args).current_dir(fixture.work());
        command.env("HOME", fixture.home());
        assert!(command.output().unwrap().status.success());
    };
    git(&["init", "-q", "-b", "main"]);
    git(&["add", "."]);
    git(&[
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b.c",
        "commit",
        "-qm",
        "begin",
    ]);
    fixture
}

fn edit(path: &str, old: &str, new: &str) -> String {
    format!(
        "[[step]]\ncalls = [{{ name = \"edit_file\", args = {{ path = \"{path}\", old = \"{old}\", new = \"{new}\" }} }}]\n"
    )
}

fn write(path: &str, content: &str) -> String {
    format!(
        "[[step]]\ncalls = [{{ name = \"write_file\", args = {{ path = \"{path}\", content = \"{content}\" }} }}]\n"
    )
}

const ISOLATED: [&str; 3] = ["--isolated", "--validate", "sh test.sh"];

#[test]
fn each_attempt_has_a_line_of_checks_before_the_changes_land() {
    for size in [(80, 24), (40, 12), (200, 60)] {
        let fixture = repository();
        let script = [
            edit("number.txt", "one", "two"),
            says("It says two."),
            format!(
                "{}expect_new = \"FAIL: the number\"\n",
                edit("number.txt", "two", "three")
            ),
            says("It says three."),
        ]
        .concat();
        let mut ui = Ui::chat_sized(&fixture, &script, size, &ISOLATED);
        ui.submit("three, please");
        ui.wait("Landed 1 file");
        ui.snapshot(&format!("landed_{}x{}", size.0, size.1));
        ui.wait_idle();
        assert_eq!(fixture.read("number.txt"), "three\n");
        if size == (80, 24) {
            ui.command("/diff");
            ui.wait("+three");
            ui.snapshot("diff_of_landed");
            ui.command("/undo");
            ui.wait("undone: number.txt");
            assert_eq!(fixture.read("number.txt"), "one\n");
        }
        let all = ui.quit();
        let attempts: Vec<&str> = all
            .lines()
            .filter(|line| line.contains("Attempt "))
            .collect();
        assert_eq!(attempts.len(), 2, "{all}");
        assert!(attempts[0].contains("✗ sh test.sh"), "{all}");
        assert!(attempts[1].contains("✓ sh test.sh"), "{all}");
    }
}

#[test]
fn a_landing_that_needs_a_person_is_decided_in_a_panel() {
    for (answer, lands) in [("y", true), ("n", false)] {
        let fixture = repository();
        let script = [
            write(".github/workflows/ci.yml", "on: push\\n"),
            edit("number.txt", "one", "three"),
            says("It has a workflow."),
        ]
        .concat();
        let mut ui = Ui::chat_sized(&fixture, &script, (200, 40), &ISOLATED);
        ui.submit("add a workflow");
        ui.wait("Land these changes?");
        ui.wait_armed();
        if lands {
            ui.snapshot("landing");
            ui.keys("d");
            ui.wait("+on: push");
        }
        ui.answer(answer);
        if !lands {
            ui.wait("reason for the agent");
            ui.keys(ENTER);
        }
        ui.wait_idle();
        ui.snapshot(if lands {
            "landing_answered"
        } else {
            "landing_refused"
        });
        assert_eq!(fixture.work().join(".github").exists(), lands);
        if !lands {
            ui.command("/diff");
            ui.wait("+on: push");
            ui.command("/land");
            ui.wait("Landed");
            ui.wait_idle();
            assert!(fixture.work().join(".github").exists());
        }
        ui.quit();
    }
}

#[test]
fn a_kept_run_is_shown_and_discarded() {
    let fixture = repository();
    let script = [
        "follow = \"history\"\n".to_owned(),
        edit("number.txt", "one", "two"),
        says("It says two."),
    ]
    .concat();
    let more = [&ISOLATED[..], &["--max-iterations", "1"]].concat();
    // Wide, because names of kept runs have different lengths.
    let mut ui = Ui::chat_sized(&fixture, &script, (200, 40), &more);
    ui.submit("two, please");
    ui.wait("Attempt 1");
    ui.wait_idle();
    ui.snapshot("kept");
    assert_eq!(fixture.read("number.txt"), "one\n");
    ui.command("/diff");
    ui.wait("+two");
    ui.command("/land");
    ui.wait_times("✗ sh test.sh", 2);
    ui.wait_idle();
    ui.snapshot("kept_again");
    ui.command("/discard");
    ui.wait("deleted the kept run");
    ui.command("/discard");
    ui.wait("this session has no kept run");
    ui.quit();
    assert_eq!(fixture.read("number.txt"), "one\n");
}
