//! A scripted model on a loopback port, for benchmarks: `--answer TEXT`, `--steps N` or `--flood BYTES`.
//! Prints its port first and ends when its standard input does, so that it never outlives who started it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};

use anyhow::bail;
use windlass_bench::flags::Flags;
use windlass_bench::server::{Scenario, Server};

fn main() -> anyhow::Result<()> {
    let flags = Flags::from_env(&["--answer", "--steps", "--flood", "--arrivals"])?;
    let scenario = match (
        flags.get("--answer")?,
        flags.get("--steps")?,
        flags.get("--flood")?,
    ) {
        (Some(text), None, None) => Scenario::Answer(text),
        (None, Some(steps), None) => Scenario::Steps(steps),
        (None, None, Some(bytes)) => Scenario::Flood(bytes),
        _ => bail!("give one of --answer TEXT, --steps N and --flood BYTES"),
    };
    let arrivals = flags
        .get::<String>("--arrivals")?
        .map(File::create)
        .transpose()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?.port())?;
    std::thread::spawn(|| {
        // Anything said is ignored; the end is what counts.
        let _ = std::io::copy(&mut std::io::stdin().lock().by_ref(), &mut std::io::sink());
        std::process::exit(0);
    });
    Server::new(scenario, arrivals).serve(&listener);
    Ok(())
}
