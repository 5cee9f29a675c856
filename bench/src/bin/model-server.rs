//! A scripted model on a loopback port, for benchmarks: `--answer TEXT`, `--steps N`,
//! `--steps-each N` (for each of many conversations) or `--flood BYTES`, each answered after
//! `--delay-ms`. Prints its port first and exits when its stdin closes, so that it never outlives its parent.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use anyhow::bail;
use windlass_bench::flags::Flags;
use windlass_bench::server::{ModelServer, ServerScenario};

fn main() -> anyhow::Result<()> {
    let flags = Flags::from_env(&[
        "--answer",
        "--steps",
        "--steps-each",
        "--flood",
        "--arrivals",
        "--delay-ms",
    ])?;
    let scenario = match (
        flags.get("--answer")?,
        flags.get("--steps")?,
        flags.get("--steps-each")?,
        flags.get("--flood")?,
    ) {
        (Some(text), None, None, None) => ServerScenario::Answer(text),
        (None, Some(steps), None, None) => ServerScenario::Steps(steps),
        (None, None, Some(steps), None) => ServerScenario::StepsEach(steps),
        (None, None, None, Some(bytes)) => ServerScenario::Flood(bytes),
        _ => bail!("give one of --answer TEXT, --steps N, --steps-each N and --flood BYTES"),
    };
    let arrivals = flags
        .get::<String>("--arrivals")?
        .map(File::create)
        .transpose()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?.port())?;
    std::thread::spawn(|| {
        // Input is ignored; only its end matters.
        let _ = std::io::copy(&mut std::io::stdin().lock().by_ref(), &mut std::io::sink());
        std::process::exit(0);
    });
    let delay = Duration::from_millis(flags.get("--delay-ms")?.unwrap_or(0));
    ModelServer::new(scenario, arrivals, delay).serve(&listener);
    Ok(())
}
