//! One task in one mode: a workspace and a home of its own, a scripted model that calls bash, and a comparison of the
//! result with the table. A task that fails is repeated without windlass, to see whether windlass is the reason.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::Mode;
use super::table::Task;
use crate::process::Running;

/// How long one attempt may take; a first build of a slow machine included.
const LIMIT: Duration = Duration::from_secs(120);
/// How much of an output is quoted.
const QUOTED: usize = 600;
/// The answer of a call that needs a person, where there is none.
const ASKED: &str = "it needs approval";
/// The tier with namespaces.
const FIRST: &str = "namespaces";
/// The outcome of a run that is refused because no tier holds.
const NO_TIER: &str = "\"reason\":\"isolation\"";
const GIT_CONFIG: &str = "[user]\nname = Everyday\nemail = everyday@example.invalid\n[init]\ndefaultBranch = main\n\
                          [advice]\ndetachedHead = false\n";

/// A task that was tried in one mode.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) task: String,
    pub(super) mode: Mode,
    /// The tier that the run says it has; empty if there was no run.
    pub(super) tier: String,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Passed,
    Failed(String),
    NotRun(String),
}

/// The exit code and the output of the command, and the tier it ran in.
#[derive(Debug, Default)]
struct Finished {
    tier: String,
    code: Option<i64>,
    output: String,
    /// The outcome of the run.
    end: String,
}

/// Whether something is mounted over a part of `/proc`, as in a container.
fn proc_is_masked() -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    places.any(|place| place.starts_with("/proc/") && place != "/proc/sys/fs/binfmt_misc")
}

/// Tries a task.
pub(super) fn run(task: &Task, mode: Mode, binary: &Path) -> Attempt {
    let attempt = |tier: String, outcome| Attempt {
        task: task.name.clone(),
        mode,
        tier,
        outcome,
    };
    if let Some(missing) = task
        .needs
        .iter()
        .find(|program| find_program(program).is_none())
    {
        return attempt(String::new(), Outcome::NotRun(format!("needs {missing}")));
    }
    let mut tier = String::new();
    let outcome =
        try_in(task, mode, binary, &mut tier).unwrap_or_else(|why| match try_plainly(task) {
            Ok(()) if task.own_proc && tier == FIRST && proc_is_masked() => Outcome::NotRun(
                "parts of `/proc` are masked here, and commands have other numbers in it"
                    .to_owned(),
            ),
            Ok(()) => Outcome::Failed(format!("{why:#}")),
            Err(plain) => Outcome::NotRun(format!("fails without windlass, too: {plain:#}")),
        });
    attempt(tier, outcome)
}

fn try_in(task: &Task, mode: Mode, binary: &Path, tier: &mut String) -> Result<Outcome> {
    let place = Place::make(task)?;
    let (success, finished) = place.run_windlass(task, mode, binary)?;
    tier.clone_from(&finished.tier);
    if task.asks_in_place && mode == Mode::InPlace {
        ensure!(
            finished.output.contains(ASKED),
            "no person was asked: {}",
            last(&finished.output)
        );
        return Ok(Outcome::Passed);
    }
    if finished.end.contains(NO_TIER) {
        return Ok(Outcome::NotRun("no sandbox tier is available".to_owned()));
    }
    ensure!(
        success && finished.code.is_some(),
        "{}: {}",
        last(&finished.end),
        last(&finished.output)
    );
    place.judge(task, &finished)?;
    Ok(Outcome::Passed)
}

fn try_plainly(task: &Task) -> Result<()> {
    let place = Place::make(task)?;
    let output = place.bash(&task.command)?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let code = output.status.code().map(i64::from);
    place.judge(
        task,
        &Finished {
            code,
            output: text,
            ..Finished::default()
        },
    )
}

/// A home and a workspace.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn make(task: &Task) -> Result<Self> {
        let place = Self {
            folder: tempfile::tempdir()?,
        };
        for name in ["home", "work"] {
            std::fs::create_dir(place.folder.path().join(name))?;
        }
        std::fs::write(place.home().join(".gitconfig"), GIT_CONFIG)?;
        for (path, text) in &task.files {
            let path = place.work().join(path);
            std::fs::create_dir_all(path.parent().context("a file has no folder")?)?;
            std::fs::write(&path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if task.git {
            place.prepare("git init -q . && git add -A && git commit -q --allow-empty -m first")?;
        }
        task.before
            .iter()
            .try_for_each(|line| place.prepare(line))?;
        Ok(place)
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// A program in a clean environment, with the toolchains of this machine's user.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.work())
            .env_clear()
            .env("HOME", self.home())
            .env("LANG", "C.UTF-8");
        command.env(
            "PATH",
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()),
        );
        for (name, below_home) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            let usual = std::env::home_dir()
                .map(|home| home.join(below_home))
                .filter(|folder| folder.is_dir());
            if let Some(folder) = std::env::var_os(name).map(PathBuf::from).or(usual) {
                command.env(name, folder);
            }
        }
        command
    }

    fn bash(&self, line: &str) -> Result<Output> {
        let mut command = self.command(Path::new("bash"));
        command
            .args(["-c", line])
            .stdin(Stdio::null())
            .output()
            .context("bash could not be started")
    }

    fn prepare(&self, line: &str) -> Result<()> {
        let output = self.bash(line)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "the workspace could not be prepared: `{line}`: {}",
            errors.trim()
        );
        Ok(())
    }

    /// Whether the run succeeded, and what its events say.
    fn run_windlass(&self, task: &Task, mode: Mode, binary: &Path) -> Result<(bool, Finished)> {
        let path = |name: &str| self.folder.path().join(name);
        let call = json!({ "calls": [{ "name": "bash", "args": { "command": task.command } }] });
        let script = format!("{call}\n{}\n", json!({ "text": "done" }));
        std::fs::write(path("script.jsonl"), script)?;
        let mut command = self.command(binary);
        command.arg("run").arg("--script").arg(path("script.jsonl"));
        command.args([
            "--yes",
            "--approval",
            "auto",
            "--on-ask",
            "deny",
            "--validate",
            "none",
        ]);
        command.args(["-o", "stream-json"]);
        if task.loopback {
            command.args(["--net", "loopback"]);
        }
        if mode == Mode::InPlace {
            command.arg("--in-place");
        }
        command.arg("do the task");
        let status = Running::start(&mut command, &path("events"), &path("errors"))?.wait(LIMIT)?;
        let (events, errors) = (
            std::fs::read(path("events"))?,
            std::fs::read(path("errors"))?,
        );
        let mut finished = read_events(&String::from_utf8_lossy(&events));
        if finished.end.is_empty() {
            finished.end = format!(
                "the run ended with {status}: {}",
                String::from_utf8_lossy(&errors)
            );
        }
        Ok((status.success(), finished))
    }

    /// Compares the command's end and the workspace with the table.
    fn judge(&self, task: &Task, finished: &Finished) -> Result<()> {
        let output = last(&finished.output);
        let code = finished.code.map_or("no exit code".to_owned(), |code| {
            format!("exit code {code}")
        });
        ensure!(
            finished.code == Some(task.code),
            "{code}, not {}: {output}",
            task.code
        );
        if let Some(text) = &task.output {
            ensure!(
                finished.output.contains(text),
                "the output has no `{text}`: {output}"
            );
        }
        for (path, text) in &task.after {
            let found = std::fs::read(self.work().join(path))
                .with_context(|| format!("`{path}` after: {output}"))?;
            let found = String::from_utf8_lossy(&found);
            ensure!(
                found.contains(text),
                "`{path}` has no `{text}`: {}",
                last(&found)
            );
        }
        let left = task
            .gone
            .iter()
            .find(|path| self.work().join(path).symlink_metadata().is_ok());
        left.map_or(Ok(()), |path| bail!("`{path}` is still there"))
    }
}

fn read_events(text: &str) -> Finished {
    let mut finished = Finished::default();
    for event in text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        match event["kind"].as_str() {
            Some("transaction_opened") => finished.tier = tier(&event),
            Some("command_finished") => finished.code = event["data"]["end"]["code"].as_i64(),
            Some("call_finished") => {
                finished.output = event["data"]["result"]["text"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            }
            Some("run_finished") => finished.end = event["data"]["outcome"].to_string(),
            _ => {}
        }
    }
    finished
}

/// The event names the tier only where there is one.
fn tier(event: &Value) -> String {
    event["data"]["tier"].as_str().unwrap_or("none").to_owned()
}

fn last(text: &str) -> String {
    let text = text.trim();
    let skip = text
        .char_indices()
        .rev()
        .nth(QUOTED)
        .map_or(0, |(at, _)| at);
    text[skip..].to_owned()
}

/// A program on PATH that this user can start.
fn find_program(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let is_program = |path: &PathBuf| {
        let about = std::fs::metadata(path);
        about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_say_the_tier_the_code_and_the_output() {
        let finished = read_events(
            "{\"kind\":\"transaction_opened\",\"data\":{\"tier\":\"namespaces\"}}\n\
             {\"kind\":\"command_finished\",\"data\":{\"end\":{\"is\":\"exited\",\"code\":3}}}\n\
             {\"kind\":\"call_finished\",\"data\":{\"result\":{\"text\":\"no\"}}}\n",
        );
        assert_eq!(
            (
                finished.tier.as_str(),
                finished.code,
                finished.output.as_str()
            ),
            ("namespaces", Some(3), "no")
        );
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(find_program("sh").is_some() && find_program("no-such-program").is_none());
    }
}
