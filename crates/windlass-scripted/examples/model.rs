//! A scripted model as a program, for tests that are not a part of this workspace's crates: takes a script as JSON, prints
//! the URL of the server, and serves until it is killed.

use std::io::Write as _;

use windlass_scripted::{Script, Server};

fn main() -> std::io::Result<()> {
    let script = std::env::args().nth(1).unwrap_or_default();
    let script: Script = serde_json::from_str(&script)?;
    let server = Server::start(script)?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", server.url)?;
    out.flush()?;
    loop {
        std::thread::park();
    }
}
