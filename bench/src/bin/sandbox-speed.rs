//! Measures what the sandbox adds to starting a command: the same program started plainly, in the sandbox of an open
//! session, as the first command of a session, and with bubblewrap if it is installed, in turn. Prints one line for
//! each repetition: milliseconds plainly, in the sandbox, first, and with bubblewrap (`-` without).

#![allow(clippy::print_stdout)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use windlass_bench::flags::Flags;
use windlass_host::sandbox::{Helper, Sandbox, SandboxPlan, Standard};

const PROGRAM: &str = "/bin/true";

fn main() -> Result<()> {
    let flags = Flags::from_env(&["--helper", "--workspace", "--home", "--times"])?;
    let dirs = SandboxDirs {
        helper: flags.need::<String>("--helper")?.into(),
        workspace: Path::new(&flags.need::<String>("--workspace")?).canonicalize()?,
        home: flags.need::<String>("--home")?.into(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let open = dirs.sandbox();
    runtime.block_on(run_in_sandbox(&open, &dirs.workspace))?;
    for _ in 0..flags.get("--times")?.unwrap_or(20) {
        let plain = timed(|| run(Command::new(PROGRAM)))?;
        let inside = timed(|| runtime.block_on(run_in_sandbox(&open, &dirs.workspace)))?;
        let fresh = dirs.sandbox();
        let first = timed(|| runtime.block_on(run_in_sandbox(&fresh, &dirs.workspace)))?;
        drop(fresh);
        let other = timed(|| run(bubblewrap())).map_or("-".to_owned(), |time| time.to_string());
        println!("{plain} {inside} {first} {other}");
    }
    Ok(())
}

struct SandboxDirs {
    helper: PathBuf,
    workspace: PathBuf,
    home: PathBuf,
}

impl SandboxDirs {
    /// Returns the sandbox of an ordinary run.
    fn sandbox(&self) -> Sandbox {
        let plan = SandboxPlan {
            root: self.workspace.clone(),
            home: Some(self.home.clone()),
            data_dir: self.home.join("data"),
            ..SandboxPlan::default()
        };
        let helper = Helper::new(self.helper.clone());
        let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
        Sandbox::new(plan, helper, env, windlass_transaction::copy_workspace)
    }
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

async fn run_in_sandbox(sandbox: &Sandbox, dir: &Path) -> Result<()> {
    let null = || -> Result<std::os::fd::OwnedFd> {
        Ok(std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")?
            .into())
    };
    let standard = Standard {
        input: null()?,
        output: null()?,
        error: null()?,
    };
    let argv: [OsString; 1] = [PROGRAM.into()];
    let ended = sandbox
        .run(&argv, dir, standard)
        .await
        .context("the sandbox does not work here")?;
    ensure!(ended.status.success(), "{PROGRAM} failed in the sandbox");
    Ok(())
}

fn run(mut command: Command) -> Result<()> {
    let null = Stdio::null;
    let status = command
        .stdin(null())
        .stdout(null())
        .stderr(null())
        .status()
        .context("it cannot be started")?;
    ensure!(status.success(), "it failed");
    Ok(())
}

fn bubblewrap() -> Command {
    let mut command = Command::new("bwrap");
    command.args([
        "--unshare-all",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--tmpfs",
        "/tmp",
        PROGRAM,
    ]);
    command
}
