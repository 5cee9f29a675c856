//! Where measurements happen: a temporary home and workspace, the programs under test, and a model server in a
//! process of its own for each scenario. Everything goes when the lab does.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::measure::{Sample, measure};
use crate::cargo;

/// The two ways to talk to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Chat Completions.
    Chat,
}

impl Wire {
    /// What people call it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Messages => "Messages wire",
            Self::Chat => "Chat wire",
        }
    }

    fn vendor(self) -> &'static str {
        match self {
            Self::Messages => "anthropic",
            Self::Chat => "openai-chat",
        }
    }
}

/// A place to measure in.
pub(crate) struct Lab {
    dir: TempDir,
    programs: PathBuf,
    quick: bool,
}

impl Lab {
    /// A fresh place.
    pub(crate) fn open(quick: bool) -> Result<Self> {
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or(cargo::root()?.join("target"), PathBuf::from);
        let dir =
            TempDir::with_prefix("windlass-bench-").context("cannot make a temporary directory")?;
        for name in ["home", "workspace"] {
            std::fs::create_dir(dir.path().join(name))
                .context("cannot make a temporary directory")?;
        }
        Ok(Self {
            dir,
            programs: target.join("dist"),
            quick,
        })
    }

    /// The temporary directory.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// How often to repeat something, when this often is right.
    pub(crate) fn times(&self, full: usize) -> usize {
        if self.quick { (full / 10).max(2) } else { full }
    }

    /// A built program.
    pub(crate) fn binary(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// A file for a floor to write to.
    pub(crate) fn scratch(&self) -> String {
        self.dir.path().join("floor.jsonl").display().to_string()
    }

    /// A built program in a clean environment, with nothing but a home, a path and two worthless keys.
    pub(crate) fn program(&self, name: &str) -> Command {
        self.in_clean_environment(Command::new(self.binary(name)))
    }

    /// The same on a kernel without namespaces.
    pub(crate) fn without_namespaces(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(cargo::own_program()?);
        command
            .args(["without", "namespaces", "--"])
            .arg(self.binary(name));
        Ok(self.in_clean_environment(command))
    }

    fn in_clean_environment(&self, mut command: Command) -> Command {
        let home = self.dir.path().join("home");
        command
            .env_clear()
            .env(
                "PATH",
                std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()),
            )
            .env("LANG", "C.UTF-8")
            .env("HOME", &home)
            .env("XDG_CONFIG_HOME", home.join("config"))
            .env("XDG_DATA_HOME", home.join("data"))
            .env("XDG_STATE_HOME", home.join("state"))
            .env("XDG_CACHE_HOME", home.join("cache"))
            .env("ANTHROPIC_API_KEY", "x")
            .env("OPENAI_API_KEY", "x")
            .current_dir(self.dir.path().join("workspace"));
        command
    }

    /// Our own program in place, on a server.
    pub(crate) fn windlass(&self, server: &Server, wire: Wire) -> Command {
        let mut command = self.isolated(server, wire);
        command.arg("--in-place");
        command
    }

    /// The same on a copy of the workspace.
    pub(crate) fn isolated(&self, server: &Server, wire: Wire) -> Command {
        let mut command = self.program("windlass");
        command.args(["run", "--yes", "--approval", "auto", "-m", "scripted-bench"]);
        command.args(["--provider", wire.vendor(), "--base-url", &server.url(wire)]);
        command.args([
            "-o",
            "json",
            "--max-steps",
            "2000",
            "--max-tokens",
            "unlimited",
            "Do what has to be done.",
        ]);
        command
    }

    /// Measures ours and the floor in turn, so that both see the same machine.
    pub(crate) fn alternate(
        &self,
        times: usize,
        mut ours: impl FnMut() -> Command,
        mut floor: impl FnMut() -> Command,
    ) -> Result<(Vec<Sample>, Vec<Sample>)> {
        let complaints = self.dir.path().join("stderr");
        let (mut of_ours, mut of_floor) = (Vec::new(), Vec::new());
        // The first run of each reads the program from disk; that is not what is asked.
        for at in 0..=times {
            let (our, floor) = (
                measure(&mut ours(), &complaints)?,
                measure(&mut floor(), &complaints)?,
            );
            if at > 0 {
                of_ours.push(our);
                of_floor.push(floor);
            }
        }
        Ok((of_ours, of_floor))
    }

    /// Measures one run.
    pub(crate) fn once(&self, command: &mut Command) -> Result<Sample> {
        measure(command, &self.dir.path().join("stderr"))
    }

    /// Starts a model server.
    pub(crate) fn serve(&self, scenario: &[&str]) -> Result<Server> {
        let arrivals = self.dir.path().join("arrivals");
        let mut child = Command::new(self.binary("model-server"))
            .args(scenario)
            .arg("--arrivals")
            .arg(&arrivals)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the model server does not start")?;
        let stdout = child
            .stdout
            .take()
            .context("the model server has no output")?;
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .context("the model server says nothing")?;
        let port = line
            .trim()
            .parse()
            .context("the model server did not say its port")?;
        Ok(Server {
            child,
            port,
            arrivals,
        })
    }
}

/// A model server in its own process; it ends with this value.
pub(crate) struct Server {
    child: Child,
    port: u16,
    arrivals: PathBuf,
}

/// When a request came, in nanoseconds since the server's start, and how large it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

impl Server {
    /// The address for a wire.
    pub(crate) fn url(&self, wire: Wire) -> String {
        let path = match wire {
            Wire::Messages => "",
            Wire::Chat => "/v1",
        };
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// All requests since the last call of this function, which must be `expected` many.
    pub(crate) fn arrivals(&self, seen: &mut usize, expected: usize) -> Result<Vec<Arrival>> {
        let text =
            std::fs::read_to_string(&self.arrivals).context("cannot read the server's arrivals")?;
        let all: Vec<Arrival> = text.lines().filter_map(parse_arrival).collect();
        let new = all[(*seen).min(all.len())..].to_vec();
        *seen = all.len();
        ensure!(
            new.len() == expected,
            "the server got {} requests, not {expected}: not every step happened",
            new.len()
        );
        Ok(new)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends by itself when its input does; this makes sure, and waits.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse_arrival(line: &str) -> Option<Arrival> {
    let (at, bytes) = line.split_once(' ')?;
    Some(Arrival {
        at: at.parse().ok()?,
        bytes: bytes.parse().ok()?,
    })
}
