//! Starts the binary in a private home and workspace.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_windlass");

/// A temporary home and workspace for one test.
pub(crate) struct CliFixture {
    dir: tempfile::TempDir,
}

pub(crate) struct CliOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CliFixture {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["home", "work"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.work().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work().join(name)).unwrap()
    }

    /// Writes a script outside the workspace and returns its path.
    pub(crate) fn script(&self, text: &str) -> String {
        let path = self.dir.path().join("script.toml");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// The command for the binary with a clean environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(args).current_dir(self.work()).env_clear();
        command
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.home());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> CliOutput {
        self.run_with(self.command(args), "")
    }

    pub(crate) fn run_with(&self, mut command: Command, stdin: &str) -> CliOutput {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The command may exit without reading its input.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        CliOutput {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Runs `run --in-place` with a script and further arguments.
    pub(crate) fn play(&self, script: &str, more: &[&str]) -> CliOutput {
        let script = self.script(script);
        let mut args = vec!["run", "--in-place", "--script", script.as_str(), "go"];
        args.extend_from_slice(more);
        self.run(&args)
    }

    pub(crate) fn sessions(&self) -> Vec<PathBuf> {
        let dir = self.home().join(".local/share/windlass/sessions");
        let mut all: Vec<PathBuf> = match std::fs::read_dir(dir) {
            Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
            Err(_) => Vec::new(),
        };
        // The cache directory is not a session.
        all.retain(|path| !path.ends_with(".cache"));
        all.sort();
        all
    }

    /// Reads the log of the newest session.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.log_of(&id_of(&self.sessions().pop().unwrap()))
    }

    /// Reads the log of a session.
    pub(crate) fn log_of(&self, id: &str) -> Vec<Value> {
        let session = self.home().join(".local/share/windlass/sessions").join(id);
        let text = std::fs::read_to_string(session.join("events.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

pub(crate) fn id_of(session: &Path) -> String {
    session.file_name().unwrap().to_string_lossy().into_owned()
}

pub(crate) const HELLO: &str = "[[step]]\ntext = \"hello there\"\n";
