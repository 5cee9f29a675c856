//! Runs a command of the project as a validator: exit code 0 is a pass, and the output is turned into findings. The
//! command runs inside the sandbox of the run, on the tree that would land.

use std::time::Duration;

use windlass_core::validator::{CheckCtx, Finding, Judgement, Proof, Report, ValidatorError};
use windlass_core::workspace::{Command, Finished, ProcessEnd, ProcessError, Watch};

use crate::base::ValidatorCheck;
use crate::output;

/// The number of bytes kept of an output, half from its start and half from its end.
pub(crate) const KEEP: usize = 200 << 10;

/// Runs a command line and takes its exit status as the verdict.
pub(crate) struct CommandCheck {
    /// The command line, for the shell.
    pub(crate) line: String,
}

impl ValidatorCheck for CommandCheck {
    async fn check(&self, ctx: &CheckCtx<'_>, time: Duration) -> Result<Report, ValidatorError> {
        let root = ctx.files.root().to_string_lossy();
        Ok(match run(ctx, &self.line, None, time).await {
            Ok(ended) => judge(&self.line, &ended, time, &root),
            Err(err) => not_started(&self.line, &err),
        })
    }
}

/// Runs a command line in the root of the workspace until it exits or times out.
pub(crate) async fn run(
    ctx: &CheckCtx<'_>,
    line: &str,
    input: Option<Vec<u8>>,
    timeout: Duration,
) -> Result<Finished, ProcessError> {
    let command = Command {
        line: line.to_owned(),
        workdir: String::new(),
        timeout,
        keep: KEEP,
        input,
        looks: false,
    };
    let watch = Watch {
        progress: &|_| {},
        cancel: ctx.cancel.clone(),
        artifacts: None,
    };
    ctx.processes.run(command, watch).await
}

/// The report for a command that could not be started: unverifiable.
pub(crate) fn not_started(line: &str, err: &ProcessError) -> Report {
    Report::unverifiable(format!("`{line}` could not be started: {err}"))
}

/// The command, its exit code and the hash of its output, as evidence in the report.
pub(crate) fn proof(line: &str, ended: &Finished) -> Proof {
    let exit = match ended.end {
        ProcessEnd::Exited { code } => Some(code),
        _ => None,
    };
    let digest = blake3::hash(ended.output.as_bytes()).to_hex().to_string();
    Proof {
        version: None,
        command: Some(line.to_owned()),
        exit,
        digest: Some(digest),
        ignored: Vec::new(),
    }
}

/// The reason why a command gave no verdict if it timed out or was cancelled; `None` if it exited by itself.
pub(crate) fn cut_short(line: &str, end: ProcessEnd, time: Duration) -> Option<String> {
    match end {
        ProcessEnd::TimedOut => Some(format!(
            "`{line}` took longer than {} s and was killed",
            time.as_secs()
        )),
        ProcessEnd::Cancelled => Some(format!("`{line}` was cancelled before it exited")),
        ProcessEnd::Exited { .. } | ProcessEnd::Signalled { .. } => None,
    }
}

fn judge(line: &str, ended: &Finished, time: Duration, root: &str) -> Report {
    // The failure itself is the last finding.
    let failed = |what: String| {
        let mut findings = output::findings(&ended.output, root);
        findings.truncate(output::MAX_FINDINGS - 1);
        findings.push(Finding::whole(what));
        (Judgement::Fail, findings)
    };
    let (judgement, mut findings) = match ended.end {
        ProcessEnd::Exited { code: 0 } => (Judgement::Pass, Vec::new()),
        ProcessEnd::TimedOut | ProcessEnd::Cancelled => {
            let why = cut_short(line, ended.end, time).unwrap_or_default();
            let mut findings = vec![Finding::whole(why)];
            findings.extend(output::findings(&ended.output, root));
            (Judgement::Unverifiable, findings)
        }
        ProcessEnd::Exited { code } => match missing(line, code, &ended.output) {
            Some(why) => (Judgement::Unverifiable, vec![Finding::whole(why)]),
            None => failed(format!("`{line}` failed with exit code {code}")),
        },
        ProcessEnd::Signalled { signal } => {
            failed(format!("`{line}` was killed by signal {signal}"))
        }
    };
    if judgement != Judgement::Pass && !ended.refused.is_empty() {
        let hosts = ended.refused[..ended.refused.len().min(5)].join(", ");
        let why = format!("it was not allowed to reach {hosts}");
        findings.push(Finding::whole(why));
    }
    Report {
        judgement,
        findings,
        proof: proof(line, ended),
    }
}

/// If the command failed because a program or module is missing, a message that says so and how to install it.
fn missing(line: &str, code: i32, text: &str) -> Option<String> {
    let last = |what: &str| text.lines().rev().take(40).any(|line| line.contains(what));
    if matches!(code, 126 | 127) {
        let message = text
            .lines()
            .rev()
            .find(|line| line.contains("not found") || line.contains("denied"));
        let message = message
            .map(|message| format!(" ({})", crate::syntax::one_line(message)))
            .unwrap_or_default();
        return Some(format!(
            "`{line}` could not be run{message}: {}",
            install(line)
        ));
    }
    if let Some(module) = text.lines().rev().take(40).find_map(no_module) {
        // Only a module that the command line itself names. Any other missing module is an error of the project.
        if line.split_whitespace().any(|word| word == module) {
            return Some(format!(
                "`{line}` needs the Python module `{module}`, which is not installed: {}",
                install(line)
            ));
        }
    }
    if line.contains("pytest") && code == 5 {
        return Some(format!("`{line}` found no tests to run"));
    }
    if line.starts_with("cargo ") && last("error: no such command") {
        return Some(format!(
            "`{line}` needs a command of cargo that is not installed"
        ));
    }
    None
}

/// The module name in `No module named pytest`, the message of the interpreter for `python -m pytest`.
fn no_module(line: &str) -> Option<&str> {
    let (before, name) = line.rsplit_once("No module named ")?;
    before
        .trim_end()
        .ends_with(':')
        .then(|| name.trim().trim_matches('\''))
}

/// A hint for installing the program of a command line.
fn install(line: &str) -> String {
    let known: &[(&str, &str)] = &[
        ("pytest", "install it with `python3 -m pip install pytest`"),
        ("tox", "install it with `python3 -m pip install tox`"),
        ("nox", "install it with `python3 -m pip install nox`"),
        ("ruff", "install it with `python3 -m pip install ruff`"),
        ("mypy", "install it with `python3 -m pip install mypy`"),
        ("cargo", "install Rust from https://rustup.rs"),
        (
            "npm",
            "install Node.js, then run `npm install` in the project",
        ),
        (
            "npx",
            "install Node.js, then run `npm install` in the project",
        ),
        (
            "pnpm",
            "install pnpm, then run `pnpm install` in the project",
        ),
        (
            "yarn",
            "install yarn, then run `yarn install` in the project",
        ),
        ("bun", "install bun, then run `bun install` in the project"),
        ("deno", "install Deno"),
        ("go", "install Go"),
        ("mvn", "install Maven and a JDK"),
        ("gradle", "install Gradle and a JDK"),
        ("dotnet", "install the .NET SDK"),
        ("mix", "install Elixir"),
        (
            "bundle",
            "install Ruby and Bundler, then run `bundle install`",
        ),
        ("rake", "install Ruby and rake"),
        ("composer", "install PHP and Composer"),
        ("just", "install just"),
        ("make", "install make"),
    ];
    let words: Vec<_> = line
        .split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-')
        .collect();
    let hint = known
        .iter()
        .find(|(program, _)| words.contains(program))
        .map(|(_, hint)| (*hint).to_owned());
    hint.unwrap_or_else(|| {
        "install the program, or change the command of this validator".to_owned()
    })
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
