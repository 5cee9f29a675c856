use super::*;
use crate::testing::{CheckFixture, text};

fn bandit(program: Option<&str>) -> Bandit {
    Bandit {
        program: program.map(str::to_owned),
    }
}

const REPORT: &str = r#"{
  "errors": [],
  "results": [
    {"filename": "./a.py", "line_number": 3, "col_offset": 4, "issue_severity": "HIGH", "issue_confidence": "HIGH",
     "issue_text": "subprocess call with shell=True", "test_id": "B602", "more_info": "x"}
  ]
}"#;

#[test]
fn issues_are_findings_and_a_missing_scanner_is_unverifiable() {
    let check = |code: i32, output: &str, expect: &str| {
        let world = CheckFixture::new(&[("a.py", b"x"), ("b.js", b"y")], Some(&[]))
            .ending(ProcessEnd::Exited { code }, output);
        let said = text(&world.look(&bandit(None)));
        assert!(said.starts_with(expect), "{output}: {said}");
        assert_eq!(
            world.ran()[0].line,
            "bandit -q -f json -ll --ignore-nosec ./a.py"
        );
    };
    check(
        1,
        REPORT,
        "fail\na.py:3:5: subprocess call with shell=True (B602, high)",
    );
    check(0, "{\"errors\":[],\"results\":[]}", "pass");
    check(0, "[main] INFO x\n{\"errors\":[],\"results\":[]}\n", "pass");
    check(
        0,
        "{\"errors\":[{\"filename\":\"./a.py\",\"reason\":\"syntax error\"}],\"results\":[]}",
        "unverifiable\na.py: bandit could not read it: syntax error",
    );
    check(
        127,
        "bandit: command not found",
        "unverifiable\nbandit is not installed; install it with `python3 -m venv DIR && DIR/bin/pip install",
    );
    check(
        2,
        "Traceback\n",
        "unverifiable\nbandit gave no readable report: Traceback",
    );
    check(
        0,
        "{\"errors\":[",
        "unverifiable\nbandit gave no readable report",
    );
}

#[test]
fn a_change_without_python_runs_nothing() {
    let world = CheckFixture::new(&[("b.js", b"y")], Some(&[]));
    assert_eq!(text(&world.look(&bandit(None))), "pass");
    assert!(world.ran().is_empty());
}

#[test]
fn only_issues_in_added_lines_are_reported() {
    let check = |diff: &str, expect: &str| {
        let mut world = CheckFixture::new(&[("a.py", b"x")], Some(&[]))
            .ending(ProcessEnd::Exited { code: 1 }, REPORT);
        world.changes[0].diff = Some(diff.into());
        assert!(
            text(&world.look(&bandit(Some("/own env/bin/bandit")))).starts_with(expect),
            "{diff}"
        );
        assert!(world.ran()[0].line.starts_with("'/own env/bin/bandit' -q"));
    };
    check("--- a\n+++ b\n@@ -1,2 +1,3 @@\n x\n y\n+z\n", "fail");
    check("--- a\n+++ b\n@@ -1,3 +1,3 @@\n-x\n+y\n z\n w\n", "pass");
}

#[test]
fn names_are_quoted_and_the_install_is_pinned() {
    let change = FileChange {
        path: "-a 'b.py".into(),
        change: Change::Created,
        added: Some(0),
        removed: Some(0),
        diff: None,
    };
    assert_eq!(
        line("bandit", &[&change]),
        r"bandit -q -f json -ll --ignore-nosec './-a '\''b.py'"
    );
    let plan = bandit_install("/home/me/tools/bandit/");
    assert_eq!(plan.program, "/home/me/tools/bandit/bin/bandit");
    assert!(
        plan.line.contains(&format!("bandit=={BANDIT_VERSION}"))
            && plan.line.starts_with("python3 -m venv /home/me")
    );
}
