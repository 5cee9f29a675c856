//! The last stage of `cargo xtask test`: the corpus of attacks and of everyday work through the built binary, with
//! the totals for each category. It fails when a case does not hold.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::cargo;

/// As it is typed to run it alone.
pub(crate) const REPEAT: &str = "target/debug/windlass debug attacks crates/windlass-corpus/corpus";
const CORPUS: &str = "crates/windlass-corpus/corpus";

/// Runs the corpus and prints what it came to.
pub(crate) fn run(root: &Path) -> Result<()> {
    let built = cargo::command(["build", "--workspace", "--locked", "--quiet"]).current_dir(root).status();
    if !built.context("cargo could not be started")?.success() {
        bail!("the binary could not be built");
    }
    let args = ["metadata", "--no-deps", "--format-version", "1", "--offline", "--locked"];
    let said = cargo::command(args).current_dir(root).output().context("cargo could not be started")?;
    let metadata: Value = serde_json::from_slice(&said.stdout).context("cargo metadata said no JSON")?;
    let target = metadata["target_directory"].as_str().context("cargo names no target directory")?;
    let binary = Path::new(target).join("debug/windlass");
    let mut command = std::process::Command::new(&binary);
    let output = command.args(["debug", "attacks", CORPUS, "--json"]).current_dir(root).output();
    let output = output.with_context(|| format!("{} could not be started", binary.display()))?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let Some((totals, rows)) = rows.split_last().filter(|(last, _)| last["totals"].is_object()) else {
        bail!("the driver did not come to its end: {}", String::from_utf8_lossy(&output.stderr).trim());
    };
    print_totals(totals);
    let failed: Vec<&Value> = rows.iter().filter(|row| row["state"] == "failed").collect();
    for row in &failed {
        println!("    FAILED {} {}", row["id"], row["why"][0]);
    }
    if !failed.is_empty() {
        bail!("{} cases do not hold\n  to repeat it: {REPEAT}", failed.len());
    }
    Ok(())
}

fn print_totals(totals: &Value) {
    for (name, row) in totals["totals"].as_object().into_iter().flatten() {
        let count = |key: &str| row[key].as_u64().unwrap_or(0);
        if count("attacks") > 0 {
            println!("    {name:<22} attacks stopped {} of {}", count("stopped"), count("attacks"));
        }
        if count("benign") > 0 {
            println!("    {name:<22} benign passed {} of {}", count("through"), count("benign"));
        }
    }
    for (state, word) in [("pending", "pending"), ("not_run", "not run")] {
        let names: Vec<&str> = totals[state].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !names.is_empty() {
            println!("    {word} ({}): {}", names.len(), names.join(" "));
        }
    }
}
