#![allow(clippy::unwrap_used)]

use windlass_core::workspace::ProcessEnd::{self, Exited, Signalled, TimedOut};

use super::*;
use crate::testing::{CheckFixture, text};

fn custom() -> CustomCheck {
    CustomCheck {
        line: "sh own.sh".into(),
    }
}

#[track_caller]
fn check(end: ProcessEnd, output: &str, expect: &str) {
    let world = CheckFixture::new(&[("a.py", b"x")], Some(&[])).ending(end, output);
    assert_eq!(text(&world.look(&custom())), expect, "{output}");
}

#[test]
fn an_answer_that_follows_the_contract_is_the_verdict() {
    let fine = Exited { code: 0 };
    check(fine, "{\"verdict\":\"pass\"}\n", "pass");
    check(
        fine,
        "log line\n{\"note\":1}\n  {\"verdict\":\"pass\",\"findings\":[]}\nbye\n",
        "pass",
    );
    let fail = "{\n \"verdict\": \"fail\",\n \"findings\": [\n  {\"path\": \"/w/a.py\", \"line\": 3, \"column\": 2, \"message\": \"no\"}\n ]\n}\n";
    check(fine, fail, "fail\na.py:3:2: no");
    check(Exited { code: 1 }, fail, "fail\na.py:3:2: no");
    check(
        fine,
        "{\"verdict\":\"fail\"}",
        "fail\n`sh own.sh` answered `fail` without a finding that says why",
    );
    check(
        fine,
        "{\"verdict\":\"unverifiable\",\"findings\":[{\"message\":\"no net\"}]}",
        "unverifiable\nno net",
    );
}

#[test]
fn any_other_answer_is_unverifiable() {
    let fine = Exited { code: 0 };
    for (end, output, expect) in [
        (fine, "", "gave no JSON object as its answer (exit code 0)"),
        (
            fine,
            "all good\n",
            "gave no JSON object as its answer (exit code 0); it wrote: all good",
        ),
        (fine, "{\"verdict\":", "gave no JSON object"),
        (
            fine,
            "{\"ok\":true}",
            "violates the contract: missing field `verdict`",
        ),
        (
            fine,
            "{\"verdict\":\"great\"}",
            "gave the verdict `great`; it must be pass, fail or unverifiable",
        ),
        (
            fine,
            "{\"verdict\":\"pass\",\"findings\":[{\"line\":1}]}",
            "violates the contract",
        ),
        (
            Exited { code: 3 },
            "{\"verdict\":\"pass\"}",
            "answered `pass` but exited with code 3",
        ),
        (
            Exited { code: 127 },
            "sh: own.sh: not found\n",
            "could not be run; it wrote: sh: own.sh: not found",
        ),
        (
            Signalled { signal: 9 },
            "{\"verdict\":\"pass\"}",
            "was killed by signal 9",
        ),
        (TimedOut, "{\"verdict\":\"pass\"}", "took longer than 60 s"),
    ] {
        let world = CheckFixture::new(&[], None).ending(end, output);
        let said = text(&world.look(&custom()));
        assert!(
            said.starts_with("unverifiable\n`sh own.sh` ") && said.contains(expect),
            "{output}: {said}"
        );
    }
    // Many lines that look like the start of an answer take little time.
    let world = CheckFixture::new(&[], None).ending(fine, &"{\"a\":\n".repeat(30_000));
    assert!(text(&world.look(&custom())).contains("gave no JSON object"));
}

#[test]
fn the_command_gets_the_root_and_the_changes() {
    let world = CheckFixture::new(&[("a.py", b"x")], Some(&[]))
        .ending(Exited { code: 0 }, "{\"verdict\":\"pass\"}");
    let report = world.look(&custom());
    let input = world.ran()[0].input.clone().unwrap();
    let request: serde_json::Value = serde_json::from_slice(&input).unwrap();
    assert_eq!(
        request,
        serde_json::json!({ "root": "/w", "changes": [{ "path": "a.py", "change": "created" }] })
    );
    assert_eq!(
        (report.proof.exit, report.proof.command.as_deref()),
        (Some(0), Some("sh own.sh"))
    );
}
