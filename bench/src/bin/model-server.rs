//! A scripted model on a loopback port, for benchmarks: `--answer TEXT`, `--steps N` or `--flood BYTES`. Prints its
//! port first and exits when its stdin closes, so that it never outlives its parent.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};

use anyhow::bail;
use windlass_bench::flags::Flags;
use windlass_bench::server::{ModelServer, ServerScenario};

fn main() -> anyhow::Result<()> {
    let flags = Flags::from_env(&["--answer", "--steps", "--flood", "--arrivals"])?;
    let scenario = match (
        flags.get("--answer")?,
        flags.get("--steps")?,
        flags.get("--flood")?,
    ) {
        (Some(text), None, None) => ServerScenario::Answer(text),
        (None, Some(steps), None) => ServerScenario::Steps(steps),
        (None, None, Some(bytes)) => ServerScenario::Flood(bytes),
        _ => bail!("give one of --answer TEXT, --steps N and --flood BYTES"),
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
    ModelServer::new(scenario, arrivals).serve(&listener);
    Ok(())
}
