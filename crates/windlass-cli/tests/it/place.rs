//! The one place that knows how the binary is started.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_windlass");

/// A home and a workspace that exist for one test.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
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

    /// A script beside the workspace.
    pub(crate) fn script(&self, text: &str) -> String {
        let path = self.dir.path().join("script.toml");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// The binary with a clean environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(args).current_dir(self.work()).env_clear();
        command
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.home());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.run_with(self.command(args), "")
    }

    pub(crate) fn run_with(&self, mut command: Command, stdin: &str) -> Output {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that ends before it reads its input is fine.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Output {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// `run --in-place` on a script, with further arguments.
    pub(crate) fn play(&self, script: &str, more: &[&str]) -> Output {
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
        // The caches of lists are no session.
        all.retain(|path| !path.ends_with(".cache"));
        all.sort();
        all
    }

    /// The log of the newest session.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.log_of(&id_of(&self.sessions().pop().unwrap()))
    }

    /// The log of a session.
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
