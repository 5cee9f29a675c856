//! The machine in a few words: what matters for the figures, and nothing that names it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// Processor, cores, kernel, file system, compiler and date.
pub(crate) fn describe(measured_in: &Path) -> Result<String> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpus.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_owned())
    };
    let cpu = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = said("uname", &["-sr"])?;
    // What stands behind the number is a distribution's or a cloud's own business.
    let kernel = kernel.split('-').next().unwrap_or_default();
    let path = measured_in.display().to_string();
    let fs = said("df", &["--output=fstype", &path]).unwrap_or_default();
    let fs = fs.lines().last().unwrap_or("unknown");
    let rustc = said("rustc", &["--version"])?;
    let date = said("date", &["-u", "+%Y-%m-%d"])?;
    Ok(format!(
        "Measured {date} on {cpu}, {cores} cores, {kernel}, file system {fs}, {rustc}, dist profile."
    ))
}

fn said(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(args)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    anyhow::ensure!(output.status.success(), "{program} failed");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
