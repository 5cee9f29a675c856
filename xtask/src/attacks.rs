//! `cargo xtask attacks`: runs the corpus of attacks and of everyday work through the built binary and prints the
//! totals of each category. It fails if a case fails, or if too few cases ran. It is also a stage of `cargo xtask
//! test`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::Value;

use crate::cargo;

/// The command line that runs it alone.
pub(crate) const REPEAT: &str = "cargo xtask attacks crates/windlass-corpus/corpus";
const CORPUS: &str = "crates/windlass-corpus/corpus";
/// The number of cases that pass on any machine with a kernel sandbox.
const MIN_PASSED: usize = 320;

/// Runs the corpus and prints the totals. With arguments, it only passes them to the driver, which reports its own
/// errors.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<()> {
    let programs = cargo::build(root, &["--workspace"])?;
    let mut driver = Command::new(programs.join("windlass-corpus"));
    driver.arg("--windlass").arg(programs.join("windlass"));
    if !args.is_empty() {
        let status = driver.args(args).status();
        ensure!(
            status.context("the driver could not be started")?.success(),
            "some checks failed (see above)"
        );
        return Ok(());
    }
    let output = driver.args([CORPUS, "--json"]).current_dir(root).output();
    let output = output.context("the driver could not be started")?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<Value> = lines
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let Some((totals, rows)) = rows
        .split_last()
        .filter(|(last, _)| last["totals"].is_object())
    else {
        bail!(
            "the driver did not finish: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    };
    print_totals(totals);
    for row in rows.iter().filter(|row| is_breach(row)) {
        println!("    FAILED {} {}", row["id"], row["why"][0]);
    }
    judge(rows, output.status.code()).map_err(|why| anyhow!("{why}\n  to repeat it: {REPEAT}"))
}

/// Returns whether a case failed, or was skipped because the product has no kernel sandbox. A missing program is a
/// property of the machine and not a failure.
fn is_breach(row: &Value) -> bool {
    let no_sandbox = || {
        row["why"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .any(names_sandbox)
    };
    row["state"] == "failed" || (row["state"] == "not_run" && no_sandbox())
}

fn names_sandbox(why: &str) -> bool {
    why.contains("kernel sandbox")
}

/// Checks that no case failed, that the driver exited successfully, and that enough cases ran.
fn judge(rows: &[Value], code: Option<i32>) -> Result<(), String> {
    let breaches = rows.iter().filter(|row| is_breach(row)).count();
    if breaches > 0 {
        return Err(format!("{breaches} cases failed"));
    }
    let passed = rows.iter().filter(|row| row["state"] == "passed").count();
    if passed < MIN_PASSED {
        return Err(format!(
            "only {passed} cases passed, and at least {MIN_PASSED} must"
        ));
    }
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(format!("the driver ended with exit code {code}")),
        None => Err("the driver was ended by a signal".to_owned()),
    }
}

fn print_totals(totals: &Value) {
    for (name, row) in totals["totals"].as_object().into_iter().flatten() {
        let count = |key: &str| row[key].as_u64().unwrap_or(0);
        if count("attacks") > 0 {
            println!(
                "    {name:<22} attacks stopped {} of {}",
                count("stopped"),
                count("attacks")
            );
        }
        if count("benign") > 0 {
            println!(
                "    {name:<22} benign passed {} of {}",
                count("through"),
                count("benign")
            );
        }
    }
    for (state, word) in [("pending", "pending"), ("not_run", "not run")] {
        let names: Vec<&str> = totals[state]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if !names.is_empty() {
            println!("    {word} ({}): {}", names.len(), names.join(" "));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks the verdict for this number of passed cases, one more row, and the driver's exit code.
    #[track_caller]
    fn check(passed: usize, more: Value, code: Option<i32>, says: &str) {
        let mut rows = vec![json!({ "state": "passed", "why": [] }); passed];
        rows.push(more);
        let said = judge(&rows, code).err().unwrap_or_default();
        assert!(
            if says.is_empty() {
                said.is_empty()
            } else {
                said.contains(says)
            },
            "{says}: {said}"
        );
    }

    #[test]
    fn only_a_corpus_that_ran_and_held_passes() {
        let row = |state: &str, why: &str| json!({ "state": state, "why": [why] });
        check(320, row("pending", "needs mcp"), Some(0), "");
        check(320, row("not_run", "needs no-such-program"), Some(0), "");
        check(
            320,
            row("not_run", "needs a product with a kernel sandbox: a"),
            Some(0),
            "1 cases failed",
        );
        check(
            320,
            row("failed", "decision: allow"),
            Some(1),
            "1 cases failed",
        );
        check(
            319,
            row("pending", "needs mcp"),
            Some(0),
            "only 319 cases passed",
        );
        check(320, row("pending", "needs mcp"), Some(1), "exit code 1");
        check(320, row("pending", "needs mcp"), None, "signal");
    }
}
