//! The one place that knows how windlass is spoken to: flags, settings, where the log is and how its events read.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::child::{self, Child, Watch};
use crate::claims::{self, Claims};
use crate::place::{KEY, Place};
use crate::runtime::Runtime;
use windlass_scripted::Server;

/// Time for one run that nothing holds up.
const DEADLINE: Duration = Duration::from_secs(120);
/// The vendors that all agents can be asked with, and the path of each on the scripted one.
const VENDORS: &[(&str, &str)] = &[
    ("anthropic", ""),
    ("openai", "/v1"),
    ("openai-chat", "/v1"),
    ("gemini", "/v1beta"),
];
/// The words of every prompt; a scripted model needs none, but a history is known by them.
pub(crate) const PROMPT: &str = "Do the work of the kit in this repository.";

/// The product that is driven.
#[derive(Debug, Clone)]
pub struct Product {
    binary: PathBuf,
    /// Whether it takes `--runtime`.
    runtimes: bool,
    /// Where agents are that were installed for it alone.
    installed: Option<PathBuf>,
}

/// How a run is asked for.
#[derive(Default)]
pub(crate) struct Ask<'a> {
    /// Further flags.
    pub(crate) flags: Vec<String>,
    /// Top-level settings, as lines of TOML.
    pub(crate) settings: String,
    /// Settings of the runtime's own, as lines of TOML.
    pub(crate) options: String,
    /// Tables of settings, as TOML.
    pub(crate) tables: String,
    /// This program in the place of the agent's.
    pub(crate) program: Option<String>,
    /// Another prompt.
    pub(crate) prompt: Option<&'a str>,
    /// Interrupt it once this says so.
    pub(crate) interrupt: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl Ask<'_> {
    /// A run with these flags.
    pub(crate) fn flags(flags: &[&str]) -> Self {
        Self {
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            ..Self::default()
        }
    }
}

/// A run as it went.
pub(crate) struct Ran {
    pub(crate) child: Child,
    /// The log of the session, up to its end.
    pub(crate) log: Vec<Value>,
    pub(crate) session: String,
}

impl Product {
    /// Asks the binary what it can do.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn open(binary: &Path) -> Result<Self, String> {
        let binary = binary
            .canonicalize()
            .map_err(|err| format!("{}: {err}", binary.display()))?;
        let mut command = Command::new(&binary);
        command.args(["run", "--help"]);
        let said = child::run(
            command,
            &Watch {
                deadline: Duration::from_secs(20),
                interrupt: None,
            },
        )?;
        crate::holds(said.code == 0, || {
            format!("{} does not work: {}", binary.display(), said.err)
        })?;
        Ok(Self {
            binary,
            runtimes: said.out.contains("--runtime"),
            installed: None,
        })
    }

    /// The same with agents that `windlass runtimes install` made: a folder of each one's name below this one.
    ///
    /// # Errors
    /// Where there is no such folder.
    pub fn with_installed(mut self, folder: &Path) -> Result<Self, String> {
        self.installed = Some(
            folder
                .canonicalize()
                .map_err(|err| format!("{}: {err}", folder.display()))?,
        );
        Ok(self)
    }

    /// Every runtime that it knows by name, without settings.
    ///
    /// # Errors
    /// Where it does not list them.
    pub fn listed(&self) -> Result<Vec<Claims>, String> {
        self.list("")
    }

    /// What it says of these runtimes, each under its short name.
    ///
    /// # Errors
    /// Where it does not say it.
    pub fn claims(&self, runtimes: &[Runtime]) -> Result<Vec<Claims>, String> {
        let tables: Vec<String> = runtimes
            .iter()
            .map(|runtime| table(runtime, None, ""))
            .collect();
        let all = self.list(&tables.concat())?;
        let of = |runtime: &Runtime| {
            let known = all.iter().find(|claims| claims.name == runtime.name)?;
            Some(Claims {
                name: runtime.short(),
                ..known.clone()
            })
        };
        Ok(runtimes.iter().filter_map(of).collect())
    }

    /// The rows of `windlass runtimes --json` under these settings.
    fn list(&self, settings: &str) -> Result<Vec<Claims>, String> {
        let place = Place::new()?;
        self.settle(&place, settings)?;
        let mut command = self.command(&place);
        command.args(["runtimes", "--json"]);
        let said = child::run(
            command,
            &Watch {
                deadline: DEADLINE,
                interrupt: None,
            },
        )?;
        crate::holds(said.code == 0, || {
            format!("`windlass runtimes` failed: {}", last_lines(&said))
        })?;
        Ok(claims::read(&said.out))
    }

    /// Writes the settings, and puts the installed agents where they are looked for.
    fn settle(&self, place: &Place, settings: &str) -> Result<(), String> {
        place.write("config/windlass/config.toml", settings)?;
        match &self.installed {
            Some(folder) => place.link(folder, "data/windlass/runtimes"),
            None => Ok(()),
        }
    }

    /// Runs a prompt as a person would, with their key in the environment and the vendor's address in the settings.
    pub(crate) fn run(
        &self,
        runtime: &Runtime,
        place: &Place,
        server: &Server,
        ask: &Ask<'_>,
    ) -> Result<Ran, String> {
        self.configure(runtime, place, server, ask)?;
        let mut command = self.command(place);
        command.args(["run", "-o", "stream-json"]);
        command.args(runtime.model.iter().flat_map(|model| ["-m", model]));
        let name = match &ask.program {
            Some(program) if runtime.is_by_command() => format!("acp:{program}"),
            _ => runtime.name.clone(),
        };
        if self.runtimes {
            command.args(["--runtime", &name]);
        } else if name != "native" {
            return Err("this windlass has no `--runtime`".to_owned());
        }
        command.args(&ask.flags).arg(ask.prompt.unwrap_or(PROMPT));
        let deadline = DEADLINE + runtime.facts.start;
        let child = child::run(
            command,
            &Watch {
                deadline,
                interrupt: ask.interrupt,
            },
        )?;
        crate::holds(!child.overdue, || {
            format!("it was not done after {deadline:?}: {}", last_lines(&child))
        })?;
        let (session, log) = newest_log(place);
        Ok(Ran {
            child,
            log,
            session,
        })
    }

    fn command(&self, place: &Place) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(place.work()).env_clear();
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
            command.env(name, place.at(path));
        }
        for name in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"] {
            command.env(name, KEY);
        }
        command.env("NO_COLOR", "1").env("LANG", "C.UTF-8");
        command
    }

    fn configure(
        &self,
        runtime: &Runtime,
        place: &Place,
        server: &Server,
        ask: &Ask<'_>,
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
        self.settle(place, &text)
    }
}

impl Ran {
    /// Events of one kind.
    pub(crate) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.log.iter().filter(move |event| event["kind"] == kind)
    }

    /// The summary of the last terminal event; null where there is none.
    pub(crate) fn end(&self) -> &Value {
        self.of("run_finished")
            .last()
            .map_or(&Value::Null, |event| &event["data"])
    }

    /// How it ended, such as `failed runtime`.
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

    /// From the interrupt to the terminal event.
    pub(crate) fn cancelled_in(&self) -> Result<Duration, String> {
        let end = self.of("run_finished").last().unwrap_or(&Value::Null);
        let at = end["at"].as_str().unwrap_or_default();
        let told = self
            .child
            .interrupted
            .map(|(_, at)| at)
            .ok_or("it ended before it was interrupted")?;
        since(told, at).ok_or_else(|| format!("`{at}` is no time"))
    }

    /// A few words for a failure: the code, the outcome, and the last lines that were said.
    pub(crate) fn shown(&self) -> String {
        format!(
            "exit code {}, outcome `{}`; {}",
            self.child.code,
            self.outcome(),
            last_lines(&self.child)
        )
    }

    /// The events themselves, in short, for whoever has to find out why.
    pub(crate) fn kinds(&self) -> String {
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

/// The settings of a runtime: its own, with another program in its place where one is to be, and further ones.
fn table(runtime: &Runtime, program: Option<&str>, options: &str) -> String {
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
    // Those that are named by their command share a table.
    let name = if runtime.is_by_command() {
        "acp"
    } else {
        runtime.name.as_str()
    };
    format!("[runtimes.{name}]\n{}\n", lines.join("\n"))
}

fn last_lines(child: &Child) -> String {
    let lines: Vec<&str> = child
        .err
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let text = lines[lines.len().saturating_sub(6)..].join(" | ");
    format!("said: {}", text.chars().take(800).collect::<String>())
}

/// The log of the newest session, with the session's name.
fn newest_log(place: &Place) -> (String, Vec<Value>) {
    let entries = std::fs::read_dir(place.at("data/windlass/sessions"))
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

/// Events of a text, one a line; other lines are none.
pub(crate) fn events(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|event: &Value| event.is_object())
        .collect()
}

/// From a moment to a time of the log of the same day; by seconds of the day, which is all that is needed.
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
    // Over midnight the day begins anew.
    Some(Duration::from_secs_f64((at - from).rem_euclid(86400.0)).min(Duration::from_secs(43200)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_takes_the_place_of_the_one_in_the_settings() {
        let text = "[runtimes.mine]\nkind = \"cli\"\ncommand = \"a\"\n";
        let runtime =
            Runtime::of_settings("mine", None, text, &[]).unwrap_or_else(|| panic!("no table"));
        assert_eq!(table(&runtime, None, ""), text);
        assert_eq!(
            table(&runtime, Some("b"), ""),
            text.replace("\"a\"", "\"b\"")
        );
        assert_eq!(table(&runtime, None, "c = 1\n"), format!("{text}c = 1\n"));
        let named = Runtime::new("acp:mine", None, Path::new("/own"), &[])
            .unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(table(&named, None, "c = 1\n"), "[runtimes.acp]\nc = 1\n");
        assert_eq!(table(&named, Some("b"), ""), "");
    }

    #[test]
    fn time_is_counted_over_midnight() {
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
