//! The model's server on loopback: starts it, waits until it is ready, and kills it when the handle is dropped.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::install;
use crate::process::{Running, last_lines, until};

/// The timeout for loading the model, which takes seconds on an idle machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The timeout of one health request.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// A server that is ready.
pub(super) struct LiveServer {
    at: SocketAddr,
    _process: Running,
}

impl LiveServer {
    /// Starts the server and waits until the model is loaded.
    pub(super) fn start(root: &Path, home: &Path, model: &Path, window: u32) -> Result<Self> {
        let at = free_address()?;
        let mut command = Command::new(install::python(home));
        command
            .arg(root.join("xtask/live/serve_smol.py"))
            .arg(model);
        command.args([at.port().to_string(), window.to_string()]);
        let log = home.join("server.log");
        let mut process = Running::start(&mut command, &home.join("server.out"), &log)?;
        let ready = until(START_TIMEOUT, || {
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
            START_TIMEOUT.as_secs(),
            last_lines(&log)
        );
        Ok(Self {
            at,
            _process: process,
        })
    }

    /// Returns the server's address with a path.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }
}

/// Returns a free port. The server cannot choose one itself.
fn free_address() -> Result<SocketAddr> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    listener.local_addr().context("no free port on loopback")
}

/// Returns whether the server is ready; it answers 503 while it loads.
fn is_ready(at: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&at, HEALTH_TIMEOUT)?;
        stream.set_read_timeout(Some(HEALTH_TIMEOUT))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(status.ends_with(b" 200"))
    };
    ask().unwrap_or(false)
}
