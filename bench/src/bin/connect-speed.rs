//! Measures the time that the sandbox adds to a connection on loopback: the same client and server plainly and in an
//! open sandbox, in turn. Prints one line for each repetition: the median microseconds of `socket` and `connect`
//! together, plainly and in the sandbox, then those of `connect` alone.
//!
//! With `--connections` it is the client itself: it serves on a port of its own, connects to it that many times and
//! prints the two medians.

#![allow(clippy::print_stdout)]

use std::ffi::OsString;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rustix::net::{AddressFamily, SocketType};
use windlass_bench::flags::Flags;
use windlass_host::sandbox::{Helper, NetPolicy, Sandbox, SandboxPlan, Standard};

fn main() -> Result<()> {
    let flags = Flags::from_env(&[
        "--helper",
        "--workspace",
        "--home",
        "--times",
        "--connections",
    ])?;
    if let Some(connections) = flags.get("--connections")? {
        let (both, alone) = connect(connections)?;
        println!("{both:.2} {alone:.2}");
        return Ok(());
    }
    let home = PathBuf::from(flags.need::<String>("--home")?);
    let workspace = Path::new(&flags.need::<String>("--workspace")?).canonicalize()?;
    // Commands in the sandbox can read the workspace, but perhaps not the folder of this program.
    let client = workspace.join("connect-client");
    std::fs::copy(std::env::current_exe()?, &client).context("the client cannot be copied")?;
    let sandbox = open(flags.need::<String>("--helper")?.into(), &workspace, &home);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for _ in 0..flags.get("--times")?.unwrap_or(20) {
        let plain = Command::new(&client)
            .args(CLIENT)
            .output()
            .context("the client cannot be started")?;
        let plain = medians(&String::from_utf8_lossy(&plain.stdout))?;
        let inside =
            runtime.block_on(run_in_sandbox(&sandbox, &workspace, &home.join("medians")))?;
        println!("{} {} {} {}", plain.0, inside.0, plain.1, inside.1);
    }
    std::fs::remove_file(client).context("the client cannot be removed")
}

const CLIENT: &[&str] = &["--connections", "200"];

/// Returns the sandbox of an ordinary run whose commands may use loopback.
fn open(helper: PathBuf, workspace: &Path, home: &Path) -> Sandbox {
    let plan = SandboxPlan {
        root: workspace.to_owned(),
        home: Some(home.to_owned()),
        data_dir: home.join("data"),
        net: NetPolicy::Loopback,
        ..SandboxPlan::default()
    };
    let helper = Helper::new(helper);
    let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    Sandbox::new(plan, helper, env, windlass_transaction::copy_workspace)
}

async fn run_in_sandbox(sandbox: &Sandbox, dir: &Path, output: &Path) -> Result<(f64, f64)> {
    let null = || {
        std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
    };
    let file = std::fs::File::create(output).context("the output cannot be written")?;
    let standard = Standard {
        input: null()?.into(),
        output: file.into(),
        error: null()?.into(),
    };
    let mut argv: Vec<OsString> = vec!["./connect-client".into()];
    argv.extend(CLIENT.iter().map(OsString::from));
    let ended = sandbox
        .run(&argv, dir, standard)
        .await
        .context("the sandbox does not work here")?;
    ensure!(ended.status.success(), "the client failed in the sandbox");
    medians(&std::fs::read_to_string(output)?)
}

fn medians(text: &str) -> Result<(f64, f64)> {
    let (both, alone) = text
        .trim()
        .split_once(' ')
        .with_context(|| format!("the client printed `{text}`"))?;
    Ok((both.parse()?, alone.parse()?))
}

fn connect(connections: usize) -> Result<(f64, f64)> {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = server.local_addr()?.port();
    let accept = std::thread::spawn(move || -> std::io::Result<()> {
        for _ in 0..connections {
            // Read until the client closes the connection, so that the queue does not slow down the next one.
            server.accept()?.0.read_to_end(&mut Vec::new())?;
        }
        Ok(())
    });
    let (mut both, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..connections {
        let began = Instant::now();
        let socket: OwnedFd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        let made = Instant::now();
        rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
        both.push(began.elapsed().as_secs_f64() * 1e6);
        alone.push(made.elapsed().as_secs_f64() * 1e6);
    }
    accept
        .join()
        .map_err(|_| anyhow::anyhow!("the server panicked"))??;
    Ok((median(both), median(alone)))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}
