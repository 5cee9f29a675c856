//! The model's server on loopback: started, waited for, and killed when the handle goes, whatever happened.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::install;
use crate::process::{Running, last_lines, until};

/// Loading takes seconds on an idle machine.
const START: Duration = Duration::from_secs(120);
/// One question whether it is ready.
const QUESTION: Duration = Duration::from_secs(2);

/// A server that answers.
pub(super) struct Server {
    at: SocketAddr,
    _process: Running,
}

impl Server {
    /// Starts it and waits until the model is loaded.
    pub(super) fn start(root: &Path, home: &Path, model: &Path, window: u32) -> Result<Self> {
        let at = free_address()?;
        let mut command = Command::new(install::python(home));
        command
            .arg(root.join("xtask/live/serve_smol.py"))
            .arg(model);
        command.args([at.port().to_string(), window.to_string()]);
        let log = home.join("server.log");
        let mut process = Running::start(&mut command, &home.join("server.out"), &log)?;
        let ready = until(START, || {
            if let Some(status) = process.ended()? {
                bail!(
                    "the server ended while it started ({status}):\n{}",
                    last_lines(&log)
                );
            }
            Ok(is_ready(at))
        })?;
        ensure!(
            ready,
            "the server did not answer within {} s:\n{}",
            START.as_secs(),
            last_lines(&log)
        );
        Ok(Self {
            at,
            _process: process,
        })
    }

    /// Its address with a path behind it.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }
}

/// The server cannot choose a port itself, so one is taken that is free now.
fn free_address() -> Result<SocketAddr> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    listener.local_addr().context("no free port on loopback")
}

/// It says 503 while it loads.
fn is_ready(at: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&at, QUESTION)?;
        stream.set_read_timeout(Some(QUESTION))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(status.ends_with(b" 200"))
    };
    ask().unwrap_or(false)
}
