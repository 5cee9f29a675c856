#![allow(clippy::unwrap_used)]

use windlass_core::workspace::ProcessEnd::{self, Exited, Signalled, TimedOut};

use super::*;
use crate::testing::{World, text};

fn custom() -> Custom {
    Custom {
        line: "sh own.sh".into(),
    }
}

#[track_caller]
fn check(end: ProcessEnd, output: &str, expect: &str) {
    let world = World::new(&[("a.py", b"x")], Some(&[])).ending(end, output);
    assert_eq!(text(&world.look(&custom())), expect, "{output}");
}

#[test]
fn an_answer_that_keeps_to_the_contract_is_the_verdict() {
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
        "fail\n`sh own.sh` said fail and did not say why",
    );
    check(
        fine,
        "{\"verdict\":\"unverifiable\",\"findings\":[{\"message\":\"no net\"}]}",
        "unverifiable\nno net",
    );
}

#[test]
fn anything_else_is_no_verdict() {
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
            "does not keep to the contract: missing field `verdict`",
        ),
        (
            fine,
            "{\"verdict\":\"great\"}",
            "gave the verdict `great`; it must be pass, fail or unverifiable",
        ),
        (
            fine,
            "{\"verdict\":\"pass\",\"findings\":[{\"line\":1}]}",
            "does not keep to the contract",
        ),
        (
            Exited { code: 3 },
            "{\"verdict\":\"pass\"}",
            "said pass and ended with exit code 3",
        ),
        (
            Exited { code: 127 },
            "sh: own.sh: not found\n",
            "could not be run; it wrote: sh: own.sh: not found",
        ),
        (
            Signalled { signal: 9 },
            "{\"verdict\":\"pass\"}",
            "was ended by signal 9",
        ),
        (TimedOut, "{\"verdict\":\"pass\"}", "took longer than 60 s"),
    ] {
        let world = World::new(&[], None).ending(end, output);
        let said = text(&world.look(&custom()));
        assert!(
            said.starts_with("unverifiable\n`sh own.sh` ") && said.contains(expect),
            "{output}: {said}"
        );
    }
    // Many beginnings of an answer cost little time.
    let world = World::new(&[], None).ending(fine, &"{\"a\":\n".repeat(30_000));
    assert!(text(&world.look(&custom())).contains("gave no JSON object"));
}

#[test]
fn it_is_told_the_root_and_the_changes() {
    let world = World::new(&[("a.py", b"x")], Some(&[]))
        .ending(Exited { code: 0 }, "{\"verdict\":\"pass\"}");
    let report = world.look(&custom());
    let input = world.ran()[0].input.clone().unwrap();
    let asked: serde_json::Value = serde_json::from_slice(&input).unwrap();
    assert_eq!(
        asked,
        serde_json::json!({ "root": "/w", "changes": [{ "path": "a.py", "change": "created" }] })
    );
    assert_eq!(
        (report.proof.exit, report.proof.command.as_deref()),
        (Some(0), Some("sh own.sh"))
    );
}
