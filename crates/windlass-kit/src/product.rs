//! Starts windlass and reads its results. Only this module knows its flags, its settings, and the location and format
//! of its log.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::child::{self, ChildRun, WatchOptions};
use crate::claims::{self, Claims};
use crate::runtime::KitRuntime;
use crate::scratch_dir::{KEY, ScratchDir};
use windlass_scripted::Server;

/// The time limit of one run.
const DEADLINE: Duration = Duration::from_secs(120);
/// The vendors of all agents, and the path of each on the scripted server.
const VENDORS: &[(&str, &str)] = &[
    ("anthropic", ""),
    ("openai", "/v1"),
    ("openai-chat", "/v1"),
    ("gemini", "/v1beta"),
];
/// The prompt of every run. The scripted model does not read it, but scenarios recognize a history by it.
pub(crate) const PROMPT: &str = "Do the work of the kit in this repository.";

/// The windlass binary under test.
#[derive(Debug, Clone)]
pub struct Product {
    binary: PathBuf,
    /// The binary has the flag `--runtime`.
    runtimes: bool,
    /// The directory of agents that were installed for windlass.
    installed: Option<PathBuf>,
}

/// The flags and settings of a run.
#[derive(Default)]
pub(crate) struct RunRequest<'a> {
    pub(crate) flags: Vec<String>,
    /// Top-level settings, as lines of TOML.
    pub(crate) settings: String,
    /// Settings in the table of the runtime, as lines of TOML.
    pub(crate) options: String,
    /// Tables of settings, as TOML.
    pub(crate) tables: String,
    /// Replaces the agent's program.
    pub(crate) program: Option<String>,
    /// Replaces the default [`PROMPT`].
    pub(crate) prompt: Option<&'a str>,
    /// Sends an interrupt once this returns true.
    pub(crate) interrupt: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl RunRequest<'_> {
    /// Creates a request with these flags.
    pub(crate) fn flags(flags: &[&str]) -> Self {
        Self {
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            ..Self::default()
        }
    }
}

/// The output and the log of a run.
pub(crate) struct FinishedRun {
    pub(crate) child: ChildRun,
    /// All events of the session.
    pub(crate) log: Vec<Value>,
    pub(crate) session: String,
}

impl Product {
    /// Checks that the binary works.
    ///
    /// # Errors
    /// If it does not start.
    pub fn open(binary: &Path) -> Result<Self, String> {
        let binary = binary
            .canonicalize()
            .map_err(|err| format!("{}: {err}", binary.display()))?;
        let mut command = Command::new(&binary);
        command.args(["run", "--help"]);
        let output = child::run(
            command,
            &WatchOptions {
                deadline: Duration::from_secs(20),
                interrupt: None,
            },
        )?;
        crate::holds(output.code == 0, || {
            format!("{} does not work: {}", binary.display(), output.err)
        })?;
        Ok(Self {
            binary,
            runtimes: output.out.contains("--runtime"),
            installed: None,
        })
    }

    /// Adds agents that `windlass runtimes install` installed, each in a subdirectory with its name.
    ///
    /// # Errors
    /// If the directory does not exist.
    pub fn with_installed(mut self, folder: &Path) -> Result<Self, String> {
        self.installed = Some(
            folder
                .canonicalize()
                .map_err(|err| format!("{}: {err}", folder.display()))?,
        );
        Ok(self)
    }

    /// Lists the runtimes that windlass knows without settings.
    ///
    /// # Errors
    /// If windlass fails.
    pub fn listed(&self) -> Result<Vec<Claims>, String> {
        self.list("")
    }

    /// Returns the claims about these runtimes, under their short names.
    ///
    /// # Errors
    /// If windlass fails.
    pub fn claims(&self, runtimes: &[KitRuntime]) -> Result<Vec<Claims>, String> {
        let tables: Vec<String> = runtimes
            .iter()
            .map(|runtime| table(runtime, None, ""))
            .collect();
        let all = self.list(&tables.concat())?;
        let of = |runtime: &KitRuntime| {
            let known = all.iter().find(|claims| claims.name == runtime.name)?;
            Some(Claims {
                name: runtime.short(),
                ..known.clone()
            })
        };
        Ok(runtimes.iter().filter_map(of).collect())
    }

    /// Runs `windlass runtimes --json` with these settings.
    fn list(&self, settings: &str) -> Result<Vec<Claims>, String> {
        let scratch = ScratchDir::new()?;
        self.write_settings(&scratch, settings)?;
        let mut command = self.command(&scratch);
        command.args(["runtimes", "--json"]);
        let output = child::run(
            command,
            &WatchOptions {
                deadline: DEADLINE,
                interrupt: None,
            },
        )?;
        crate::holds(output.code == 0, || {
            format!("`windlass runtimes` failed: {}", last_lines(&output))
        })?;
        Ok(claims::read(&output.out))
    }

    /// Writes the settings, and links the installed agents.
    fn write_settings(&self, scratch: &ScratchDir, settings: &str) -> Result<(), String> {
        scratch.write("config/windlass/config.toml", settings)?;
        match &self.installed {
            Some(folder) => scratch.link(folder, "data/windlass/runtimes"),
            None => Ok(()),
        }
    }

    /// Runs a prompt as a user would, with a key in the environment and the vendor's address in the settings.
    pub(crate) fn run(
        &self,
        runtime: &KitRuntime,
        scratch: &ScratchDir,
        server: &Server,
        ask: &RunRequest<'_>,
    ) -> Result<FinishedRun, String> {
        self.configure(runtime, scratch, server, ask)?;
        let mut command = self.command(scratch);
        command.args(["run", "-o", "stream-json"]);
        command.args(runtime.model.iter().flat_map(|model| ["-m", model]));
        let name = match &ask.program {
            Some(program) if runtime.is_by_command() => format!("acp:{program}"),
            _ => runtime.name.clone(),
        };
        if self.runtimes {
            command.args(["--runtime", &name]);
        } else if name != "native" {
            return Err("this windlass has no flag `--runtime`".to_owned());
        }
        command.args(&ask.flags).arg(ask.prompt.unwrap_or(PROMPT));
        let deadline = DEADLINE + runtime.facts.start;
        let child = child::run(
            command,
            &WatchOptions {
                deadline,
                interrupt: ask.interrupt,
            },
        )?;
        crate::holds(!child.overdue, || {
            format!(
                "it did not finish within {deadline:?}: {}",
                last_lines(&child)
            )
        })?;
        let (session, log) = newest_log(scratch);
        Ok(FinishedRun {
            child,
            log,
            session,
        })
    }

    fn command(&self, scratch: &ScratchDir) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(scratch.work()).env_clear();
        command.env(
            "PATH",
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()),
        );
        for (name, path) in [
            ("HOME", "home"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_STATE_HOME", "state"),
        ] {
            command.env(name, scratch.at(path));
        }
        for name in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"] {
            command.env(name, KEY);
        }
        command.env("NO_COLOR", "1").env("LANG", "C.UTF-8");
        command
    }

    fn configure(
        &self,
        runtime: &KitRuntime,
        scratch: &ScratchDir,
        server: &Server,
        ask: &RunRequest<'_>,
    ) -> Result<(), String> {
        let mut text = ask.settings.clone();
        for (vendor, path) in VENDORS {
            text.push_str(&format!(
                "[providers.{vendor}]\nbase_url = {}\n",
                json!(format!("{}{path}", server.url))
            ));
        }
        text.push_str(&table(runtime, ask.program.as_deref(), &ask.options));
        text.push_str(&ask.tables);
        self.write_settings(scratch, &text)
    }
}

impl FinishedRun {
    /// Iterates over the events of one kind.
    pub(crate) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.log.iter().filter(move |event| event["kind"] == kind)
    }

    /// Returns the data of the last terminal event, or null.
    pub(crate) fn end(&self) -> &Value {
        self.of("run_finished")
            .last()
            .map_or(&Value::Null, |event| &event["data"])
    }

    /// Returns the outcome, for example `failed runtime`.
    pub(crate) fn outcome(&self) -> String {
        let outcome = &self.end()["outcome"];
        let word = |name: &str| outcome[name].as_str();
        let more = word("reason").or(word("category")).or(word("limit"));
        [word("is"), more]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Returns the time from the interrupt to the terminal event.
    pub(crate) fn cancelled_in(&self) -> Result<Duration, String> {
        let end = self.of("run_finished").last().unwrap_or(&Value::Null);
        let at = end["at"].as_str().unwrap_or_default();
        let interrupted = self
            .child
            .interrupted
            .map(|(_, at)| at)
            .ok_or("it ended before it was interrupted")?;
        since(interrupted, at).ok_or_else(|| format!("`{at}` is not a time"))
    }

    /// Summarizes the run for a failure message: exit code, outcome, and the last lines of stderr.
    pub(crate) fn summary(&self) -> String {
        format!(
            "exit code {}, outcome `{}`; {}",
            self.child.code,
            self.outcome(),
            last_lines(&self.child)
        )
    }

    /// Returns abbreviated events for debugging.
    pub(crate) fn short_log(&self) -> String {
        let line = |event: &Value| {
            let mut event = event.clone();
            let fields = event
                .as_object_mut()
                .map(std::mem::take)
                .unwrap_or_default();
            let rest: serde_json::Map<String, Value> = fields
                .into_iter()
                .filter(|(name, _)| {
                    !["v", "at", "session", "run", "trace"].contains(&name.as_str())
                })
                .collect();
            let text = Value::Object(rest).to_string();
            text.chars().take(400).collect::<String>()
        };
        self.log.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the settings table of a runtime, optionally with another program and further options.
fn table(runtime: &KitRuntime, program: Option<&str>, options: &str) -> String {
    let program = program.filter(|_| !runtime.is_by_command());
    if runtime.settings.is_empty() && program.is_none() && options.is_empty() {
        return String::new();
    }
    let kept = |line: &&str| program.is_none() || !line.trim_start().starts_with("command");
    let lines = runtime.settings.lines().filter(kept).map(str::to_owned);
    let command = program.map(|program| format!("command = {}", json!(program)));
    let lines: Vec<String> = lines
        .chain(command)
        .chain(options.lines().map(str::to_owned))
        .collect();
    // Runtimes that are named by their command share a table.
    let name = if runtime.is_by_command() {
        "acp"
    } else {
        runtime.name.as_str()
    };
    format!("[runtimes.{name}]\n{}\n", lines.join("\n"))
}

fn last_lines(child: &ChildRun) -> String {
    let lines: Vec<&str> = child
        .err
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let text = lines[lines.len().saturating_sub(6)..].join(" | ");
    format!("stderr: {}", text.chars().take(800).collect::<String>())
}

/// Reads the log of the newest session. Returns the session's id and the events.
fn newest_log(scratch: &ScratchDir) -> (String, Vec<Value>) {
    let entries = std::fs::read_dir(scratch.at("data/windlass/sessions"))
        .into_iter()
        .flatten()
        .flatten();
    let newest = entries
        .map(|entry| entry.path())
        .filter(|path| path.join("events.jsonl").exists())
        .max();
    let Some(folder) = newest else {
        return (String::new(), Vec::new());
    };
    let bytes = std::fs::read(folder.join("events.jsonl")).unwrap_or_default();
    let name = folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    (name, events(&String::from_utf8_lossy(&bytes)))
}

/// Parses events, one per line; ignores other lines.
pub(crate) fn events(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|event: &Value| event.is_object())
        .collect()
}

/// Returns the time from `from` to a timestamp of the log, less than a day later.
fn since(from: SystemTime, at: &str) -> Option<Duration> {
    let (_, time) = at.trim_end_matches('Z').split_once('T')?;
    let mut parts = time.split(':').map(str::parse::<f64>);
    let (hours, minutes, seconds) = (
        parts.next()?.ok()?,
        parts.next()?.ok()?,
        parts.next()?.ok()?,
    );
    let at = hours * 3600.0 + minutes * 60.0 + seconds;
    let from = from
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?
        .as_secs_f64()
        % 86400.0;
    // The timestamp may be after midnight.
    Some(Duration::from_secs_f64((at - from).rem_euclid(86400.0)).min(Duration::from_secs(43200)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_replaces_the_one_in_the_settings() {
        let text = "[runtimes.mine]\nkind = \"cli\"\ncommand = \"a\"\n";
        let runtime =
            KitRuntime::of_settings("mine", None, text, &[]).unwrap_or_else(|| panic!("no table"));
        assert_eq!(table(&runtime, None, ""), text);
        assert_eq!(
            table(&runtime, Some("b"), ""),
            text.replace("\"a\"", "\"b\"")
        );
        assert_eq!(table(&runtime, None, "c = 1\n"), format!("{text}c = 1\n"));
        let named = KitRuntime::new("acp:mine", None, Path::new("/own"), &[])
            .unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(table(&named, None, "c = 1\n"), "[runtimes.acp]\nc = 1\n");
        assert_eq!(table(&named, Some("b"), ""), "");
    }

    #[test]
    fn the_time_may_pass_midnight() {
        let from = SystemTime::UNIX_EPOCH + Duration::from_millis(86_399_500);
        assert_eq!(
            since(from, "1970-01-02T00:00:00.250Z"),
            Some(Duration::from_millis(750))
        );
        assert_eq!(
            since(from, "1970-01-01T23:59:59.750Z"),
            Some(Duration::from_millis(250))
        );
        assert_eq!(since(from, "soon"), None);
    }
}
