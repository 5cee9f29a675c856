//! `demo`: runs the real engine, tools and log with a scripted model, in a temporary directory. All output comes from
//! events.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use windlass::core::gate::Mode;
use windlass::core::message::Message;
use windlass::core::outcome::Outcome;
use windlass::core::terms::{Isolation, SandboxLevel};

use super::{block_on, replay, undo};
use crate::args::{DemoArgs, OutputArgs, OutputFormat, ReplayArgs, UndoArgs, UndoRedoArgs};
use crate::command_error::CommandError;
use crate::out::say;
use crate::process;
use crate::session_run::{InteractiveSession, finish, prepare};
use windlass::OpenRequest;
use windlass::flags::{AgentFlags, ContractFlags, RunFlags};
use windlass::sandboxing;

const PROMPT: &str =
    "The test in test.sh fails. Find out why, fix median.sh and make the test pass.";

const FILES: &[(&str, &str)] = &[
    ("median.sh", include_str!("../demo/median.sh")),
    ("test.sh", include_str!("../demo/test.sh")),
];

pub(super) fn run(args: &DemoArgs) -> Result<ExitCode, CommandError> {
    let dir = DemoDir::make(args.keep)?;
    let script = dir.path.join("model.toml");
    std::fs::write(&script, include_str!("../demo/script.toml"))?;
    let project = dir.path.join("project");
    make_project(&project)?;
    // The commands of the demo are known, so it may run without a sandbox; other runs may not.
    let offer = sandboxing::offer(&project, &process::environment())?;
    let sandboxed = offer.namespaces.is_ok() || offer.broker.is_ok();
    let agent = AgentFlags {
        script: Some(script),
        cd: Some(project.clone()),
        sandbox: (!sandboxed).then_some(SandboxLevel::Full),
        approval: (!sandboxed).then_some(Mode::Auto),
        yes: !sandboxed,
        ..AgentFlags::default()
    };
    let contract = ContractFlags {
        validate: vec!["bash test.sh".into()],
        ..ContractFlags::default()
    };
    let text = args.output.format() == OutputFormat::Text && !args.output.quiet;
    if text {
        say!(
            "a small repository with a failing test: {}",
            project.display()
        );
        say!("prompt: {PROMPT}");
        match sandboxed {
            true => say!(
                "nothing reaches the repository before `bash test.sh` passes on exactly what would land\n"
            ),
            false => say!(
                "this machine has no kernel sandbox (see `windlass doctor`), so the demo works in place\n"
            ),
        }
    }
    let flags = RunFlags {
        agent,
        contract,
        ..RunFlags::default()
    };
    let ready = prepare(&flags)?;
    let request = OpenRequest {
        isolation: Isolation::from_flag(sandboxed),
        ..OpenRequest::new(flags)
    };
    let (outcome, code, session) = block_on(async {
        let mut interactive = InteractiveSession::open(ready, request, &args.output, None).await?;
        interactive.pace = args.pace.unwrap_or_else(default_pace);
        let outcome = interactive.run(Message::user(PROMPT)).await?;
        let code = finish(outcome.as_ref(), &interactive.session, args.output.format());
        Ok((outcome, code, interactive.session.id().to_string()))
    })?;
    if text && outcome == Some(Outcome::Completed) {
        show_undo_redo_replay(&project, &session)?;
        print_next_steps(&session);
    }
    if args.keep {
        say!("kept: {}", dir.path.display());
    }
    Ok(code)
}

/// At a terminal, the pause is long enough to follow the demo.
fn default_pace() -> Duration {
    match std::io::stderr().is_terminal() {
        true => Duration::from_millis(500),
        false => Duration::ZERO,
    }
}

/// Runs `undo`, `redo` and `replay` as a user would.
fn show_undo_redo_replay(project: &Path, session: &str) -> Result<(), CommandError> {
    let common = || UndoRedoArgs {
        session: Some(session.to_owned()),
        preview: false,
        partly: false,
        json: false,
        cd: Some(project.to_owned()),
    };
    say!("\n$ windlass undo");
    undo::undo(&UndoArgs {
        run: None,
        call: None,
        to: None,
        revert_commit: false,
        yes: false,
        common: common(),
    })?;
    say!("\n$ windlass redo");
    undo::redo(&common())?;
    say!("\n$ windlass replay {session} --quiet");
    let output = OutputArgs {
        quiet: true,
        ..OutputArgs::default()
    };
    replay::run(&ReplayArgs {
        session: session.to_owned(),
        play: None,
        run: None,
        output,
    })?;
    Ok(())
}

fn print_next_steps(session: &str) {
    // If cargo started the program, it may not be in PATH.
    let windlass = if std::env::var_os("CARGO").is_some() {
        "cargo run --"
    } else {
        "windlass"
    };
    say!("\nwhat to try next:");
    say!("  {windlass} sessions show {session}      every event of what you just saw");
    say!("  {windlass} sessions export {session}    the log itself, as JSON lines");
    say!("  export ANTHROPIC_API_KEY=…              then, in a repository of yours:");
    say!("  windlass run \"fix the failing test\"");
}

/// Creates a git repository with one commit.
fn make_project(project: &Path) -> Result<(), CommandError> {
    std::fs::create_dir_all(project)?;
    for (name, text) in FILES {
        std::fs::write(project.join(name), text)?;
    }
    git(project, &["init", "-q", "-b", "main"])?;
    git(project, &["add", "."])?;
    git(project, &["commit", "-q", "-m", "A median with a bug"])
}

/// Runs git without the settings of the user.
fn git(project: &Path, args: &[&str]) -> Result<(), CommandError> {
    let settings = [
        "user.name=Demo",
        "user.email=demo@example.invalid",
        "commit.gpgsign=false",
        "core.hooksPath=/dev/null",
    ];
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(project)
        .args(settings.iter().flat_map(|setting| ["-c", *setting]))
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null");
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            let text = format!("git {} failed: {}", args.join(" "), why.trim());
            Err(CommandError::failed(text))
        }
        Err(err) => Err(CommandError::failed(format!("cannot start git: {err}"))
            .hint("the demo needs git for its repository; install git and run the demo again")),
    }
}

/// A temporary directory. Dropping it removes it, unless `keep` is set.
struct DemoDir {
    path: PathBuf,
    keep: bool,
}

impl DemoDir {
    fn make(keep: bool) -> Result<Self, CommandError> {
        let base = std::env::temp_dir();
        for attempt in 0..100 {
            let path = base.join(format!("windlass-demo-{}-{attempt}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path, keep }),
                Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(err) => {
                    return Err(CommandError::failed(format!(
                        "cannot create {}: {err}",
                        path.display()
                    ))
                    .hint("set TMPDIR to a directory that you can write to"));
                }
            }
        }
        Err(CommandError::failed(format!(
            "{} contains too many demo directories",
            base.display()
        ))
        .hint("delete the directories `windlass-demo-*` there"))
    }
}

impl Drop for DemoDir {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
