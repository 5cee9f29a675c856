//! `demo`: the real engine, tools and log on a scripted model, in a folder of its own. Nothing it shows was not said
//! by an event.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use windlass::core::gate::Mode;
use windlass::core::message::Message;
use windlass::core::outcome::Outcome;
use windlass::core::terms::{Isolation, SandboxLevel};

use super::{block_on, replay, undo};
use crate::args::{DemoArgs, Format, OutputArgs, ReplayArgs, TakeBackArgs, UndoArgs};
use crate::failure::Failure;
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

pub(super) fn run(args: &DemoArgs) -> Result<ExitCode, Failure> {
    let folder = Folder::make(args.keep)?;
    let script = folder.path.join("model.toml");
    std::fs::write(&script, include_str!("../demo/script.toml"))?;
    let project = folder.path.join("project");
    make_project(&project)?;
    // The commands of the demo are our own, so it needs no sandbox; a run of the user's does.
    let offer = sandboxing::offer(&project, &process::environment())?;
    let held = offer.namespaces.is_ok() || offer.broker.is_ok();
    let agent = AgentFlags {
        script: Some(script),
        cd: Some(project.clone()),
        sandbox: (!held).then_some(SandboxLevel::Full),
        approval: (!held).then_some(Mode::Auto),
        yes: !held,
        ..AgentFlags::default()
    };
    let contract = ContractFlags {
        validate: vec!["bash test.sh".into()],
        ..ContractFlags::default()
    };
    let text = args.output.format() == Format::Text && !args.output.quiet;
    if text {
        say!(
            "a small repository with a failing test: {}",
            project.display()
        );
        say!("prompt: {PROMPT}");
        match held {
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
        isolation: Isolation::from_flag(held),
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
        take_back_and_forth(&project, &session)?;
        what_next(&session);
    }
    if args.keep {
        say!("kept: {}", folder.path.display());
    }
    Ok(code)
}

/// Slow enough to be watched at a terminal.
fn default_pace() -> Duration {
    match std::io::stderr().is_terminal() {
        true => Duration::from_millis(500),
        false => Duration::ZERO,
    }
}

/// Undo, redo and a replay, each as a person would type it.
fn take_back_and_forth(project: &Path, session: &str) -> Result<(), Failure> {
    let how = || TakeBackArgs {
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
        how: how(),
    })?;
    say!("\n$ windlass redo");
    undo::redo(&how())?;
    say!("\n$ windlass replay {session} --quiet");
    let output = OutputArgs {
        quiet: true,
        ..OutputArgs::default()
    };
    replay::run(&ReplayArgs {
        session: session.to_owned(),
        run: None,
        output,
    })?;
    Ok(())
}

fn what_next(session: &str) {
    // Started by cargo, the program is not on the path yet.
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

/// A git repository with one commit, as a user would have it.
fn make_project(project: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(project)?;
    for (name, text) in FILES {
        std::fs::write(project.join(name), text)?;
    }
    git(project, &["init", "-q", "-b", "main"])?;
    git(project, &["add", "."])?;
    git(project, &["commit", "-q", "-m", "A median with a bug"])
}

/// Runs git without the settings of the user.
fn git(project: &Path, args: &[&str]) -> Result<(), Failure> {
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
            Err(Failure::failed(text))
        }
        Err(err) => Err(Failure::failed(format!("git cannot be started: {err}"))
            .hint("the demo makes a small git repository; install git and run it again")),
    }
}

/// A temporary folder that is removed at the end, unless it is to be kept.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    fn make(keep: bool) -> Result<Self, Failure> {
        let base = std::env::temp_dir();
        for attempt in 0..100 {
            let path = base.join(format!("windlass-demo-{}-{attempt}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path, keep }),
                Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(err) => {
                    return Err(Failure::failed(format!(
                        "{} cannot be made: {err}",
                        path.display()
                    ))
                    .hint("set TMPDIR to a folder that can be written"));
                }
            }
        }
        Err(Failure::failed(format!(
            "{} is full of demo folders",
            base.display()
        )))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
