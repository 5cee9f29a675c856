//! `sandbox`: runs any program in the sandbox of a run's commands. The program inherits stdin, stdout and stderr, and its
//! exit code is passed on.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use windlass::core::gate::Mode;
use windlass::core::workspace::Files;
use windlass::machine::Root;
use windlass::machine::child_env;
use windlass::sandboxing::run_program;
use windlass::sandboxing::{Sandbox, SandboxError, Standard};
use windlass_text::sanitize::plain;

use super::block_on;
use crate::args::SandboxArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::process;
use windlass::flags::{AgentFlags, LimitFlags};
use windlass::{program_tools, sandboxing};

pub(super) fn run(args: &SandboxArgs) -> Result<ExitCode, CommandError> {
    let root = process::open_workspace(args.cd.as_deref())?;
    let mut settings = process::load_settings(Some(root.root()))?;
    let flags = AgentFlags {
        sandbox: args.sandbox,
        net: args.net.clone(),
        ..AgentFlags::default()
    };
    settings.add_flags(&flags, &LimitFlags::default())?;
    for warning in &settings.warnings {
        say!("warning: {}", plain(warning));
    }
    let env = child_env(
        std::env::vars_os(),
        settings.layers.texts("env.pass").unwrap_or_default(),
    );
    let tools = program_tools::all_tools(&settings)?;
    let hidden = settings
        .gate(Mode::Ask, &program_tools::names(&tools))?
        .hidden_paths();
    let Some(sandbox) = sandboxing::sandbox(&settings, root.root(), hidden, env, None)? else {
        return Err(CommandError::usage("`full` means no sandbox at all")
            .hint("start the program directly instead"));
    };
    let dir = match &args.cd {
        Some(dir) => dir
            .canonicalize()
            .map_err(|err| CommandError::usage(format!("{}: {err}", dir.display())))?,
        None => std::env::current_dir()
            .map_err(|err| CommandError::usage(format!("the current directory: {err}")))?,
    };
    block_on(run_in_sandbox(
        Arc::new(sandbox),
        Arc::new(root),
        &settings.places.undo_dir(),
        args,
        &dir,
    ))
}

async fn run_in_sandbox(
    sandbox: Arc<Sandbox>,
    root: Arc<Root>,
    undo: &Path,
    args: &SandboxArgs,
    dir: &Path,
) -> Result<ExitCode, CommandError> {
    let own = |handle: std::io::Result<OwnedFd>| {
        handle.map_err(|err| {
            CommandError::usage(format!("cannot duplicate stdin, stdout or stderr: {err}"))
        })
    };
    use std::os::fd::AsFd;
    let standard = Standard {
        input: own(std::io::stdin().as_fd().try_clone_to_owned())?,
        output: own(std::io::stdout().as_fd().try_clone_to_owned())?,
        error: own(std::io::stderr().as_fd().try_clone_to_owned())?,
    };
    let ended = run_program(
        Arc::clone(&sandbox),
        root,
        undo,
        &args.command,
        dir,
        standard,
    )
    .await;
    for host in sandbox.take_refused() {
        say!("sandbox: refused a connection to {}", plain(&host));
    }
    match ended {
        Ok((ended, refusal)) => {
            let refused = refusal.is_some();
            if let Some(refusal) = refusal {
                say!("sandbox: {}", plain(&refusal));
            }
            if ended.limits.processes {
                say!(
                    "sandbox: killed at the limit of processes; raise it with `sandbox.processes`"
                );
            }
            if ended.limits.memory {
                say!("sandbox: killed at the memory limit; raise it with `sandbox.memory_mb`");
            }
            let code = ended
                .status
                .code()
                .or(ended.status.signal().map(|signal| 128 + signal))
                .unwrap_or(1);
            // The program may exit with 0 although some of its writes were refused: report a failure.
            let code = if refused && code == 0 {
                i32::from(exit::FAILED)
            } else {
                code
            };
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        Err(SandboxError::Command(why)) => Err(CommandError::new(127, why)),
        Err(err) => Err(CommandError::new(exit::ISOLATION, err.to_string())),
    }
}
