//! The program of the kit. Printing is its job.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use windlass_kit::model::{Script, Server};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(code) => code,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(args: &[String]) -> Result<ExitCode> {
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve", file, port] => serve(file, port),
        _ => bail!("usage: windlass-kit serve SCRIPT.json PORT"),
    }
}

/// Plays a script until it is ended, and says what it is asked.
fn serve(file: &str, port: &str) -> Result<ExitCode> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let script: Script = serde_json::from_str(&text).with_context(|| format!("{file} is no script"))?;
    let server = Server::start_on(script, port.parse().context("the port is no number")?).context("cannot listen")?;
    println!("{}", server.url);
    let mut shown = 0;
    loop {
        for seen in server.seen().iter().skip(shown) {
            let key = seen.key.as_deref().unwrap_or("no key");
            let tools = seen.tools.join(" ");
            println!("{} {} {} {key} {} bytes [{tools}]", seen.status, seen.method, seen.path, seen.bytes);
            if let Some(missing) = &seen.unmapped {
                println!("  {missing}");
            }
            shown += 1;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
