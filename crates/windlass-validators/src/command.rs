//! A command of the project as a validator: exit code 0 is a pass, and what it wrote becomes findings. It runs inside
//! the sandbox of the run, on the tree that would land.

use std::time::Duration;

use windlass_core::validator::{CheckCtx, Finding, Judgement, Proof, Report, ValidatorError};
use windlass_core::workspace::{Command, Finished, ProcessEnd, ProcessError, Watch};

use crate::base::Check;
use crate::output;

/// What is kept of an output, from its beginning and its end together.
pub(crate) const KEEP: usize = 200 << 10;

/// Runs a command line and judges by its end.
pub(crate) struct CommandCheck {
    /// The line, for the shell of the run.
    pub(crate) line: String,
}

impl Check for CommandCheck {
    async fn check(&self, ctx: &CheckCtx<'_>, time: Duration) -> Result<Report, ValidatorError> {
        let root = ctx.files.root().to_string_lossy();
        Ok(match run(ctx, &self.line, None, time).await {
            Ok(ended) => judge(&self.line, &ended, time, &root),
            Err(err) => not_started(&self.line, &err),
        })
    }
}

/// Runs a line to its end in the workspace.
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

/// A command that was not run says nothing.
pub(crate) fn not_started(line: &str, err: &ProcessError) -> Report {
    Report::unverifiable(format!("`{line}` could not be started: {err}"))
}

/// How a line ended, as evidence.
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

/// Why a line that was ended said nothing; `None` when it came to its own end.
pub(crate) fn cut_short(line: &str, end: ProcessEnd, time: Duration) -> Option<String> {
    match end {
        ProcessEnd::TimedOut => Some(format!(
            "`{line}` took longer than {} s and was ended",
            time.as_secs()
        )),
        ProcessEnd::Cancelled => Some(format!("`{line}` was stopped before it ended")),
        ProcessEnd::Exited { .. } | ProcessEnd::Signalled { .. } => None,
    }
}

fn judge(line: &str, ended: &Finished, time: Duration, root: &str) -> Report {
    // What failed comes last.
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
            failed(format!("`{line}` was ended by signal {signal}"))
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

/// What a command needs that is not here, with what to do; `None` when it ran.
fn missing(line: &str, code: i32, text: &str) -> Option<String> {
    let last = |what: &str| text.lines().rev().take(40).any(|line| line.contains(what));
    if matches!(code, 126 | 127) {
        let said = text
            .lines()
            .rev()
            .find(|line| line.contains("not found") || line.contains("denied"));
        let said = said
            .map(|said| format!(" ({})", crate::syntax::one_line(said)))
            .unwrap_or_default();
        return Some(format!(
            "`{line}` could not be run{said}: {}",
            install(line)
        ));
    }
    if let Some(module) = text.lines().rev().take(40).find_map(no_module) {
        // Only what the line itself asks for; a module that the project lacks is a failure of the project.
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

/// `No module named pytest`, as the interpreter says it of `-m`.
fn no_module(line: &str) -> Option<&str> {
    let (before, name) = line.rsplit_once("No module named ")?;
    before
        .trim_end()
        .ends_with(':')
        .then(|| name.trim().trim_matches('\''))
}

/// How the program of a line comes onto a machine.
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
        "install what it runs, or change the command of this validator".to_owned()
    })
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
