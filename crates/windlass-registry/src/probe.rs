//! A rehearsal of a runtime: a whole run of this very program with a scripted model on loopback in the place of the vendor,
//! in folders that go with it. It spends nothing, keeps nothing, and the person's keys have no part in it.

mod judge;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use windlass_core::clock::Clock;
use windlass_core::runtime::Capability;
use windlass_host::clock::SystemClock;
use windlass_host::config::{Layers, Setting};
use windlass_providers::models::{default_model, model_rows};
use windlass_providers::protocol::Protocol;
use windlass_providers::{VENDORS, Vendor};
use windlass_runtimes::agents::{ANY_ACP, AgentKind, AgentSpec, agent as agent_named};
use windlass_scripted::{Move, Script, Server};

pub use self::judge::Step;
use self::judge::{Evidence, Heard, Seen};
use crate::abilities::abilities;
use crate::error::RegistryError;
use crate::install::Installed;
use crate::own::{self, unknown};

/// The file that the task is about.
const FILE: &str = "probe.txt";
/// What the model says at the end.
const END: &str = "The probe is done.";
/// How long a cancelled run has to end by itself.
const GRACE: Duration = Duration::from_secs(5);
/// The most that is kept of what a run prints.
const MAX_OUTPUT: u64 = 16 << 20;

/// How long a runtime has, and one that brings a Python along.
const PATIENCE: Duration = Duration::from_secs(60);
const MORE_PATIENCE: Duration = Duration::from_secs(180);

/// Rehearses runtimes, one at a time. From its beginning an interrupt ends what is under way, and nothing is left.
pub struct Rehearsal<'a> {
    layers: &'a Layers<'a>,
    /// Where agents are that were installed for us.
    runtimes_dir: PathBuf,
    /// The model that each is told to use, as `model` or `vendor/model`.
    model: Option<String>,
    interrupts: Interrupts,
}

/// Whoever ends this program ends what it started.
struct Interrupts {
    interrupt: Signals,
    terminate: Signals,
    hangup: Signals,
}

impl Interrupts {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn heard(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// What came of one.
#[derive(Debug)]
pub struct Probed {
    /// As `--runtime` takes it.
    pub name: String,
    /// From the start of the run to its end.
    pub took: Duration,
    /// How often the model was asked.
    pub requests: usize,
    /// What it was seen to do, or where it fell and why.
    pub result: Result<&'static str, Fell>,
}

/// Where a rehearsal ended early.
#[derive(Debug)]
pub struct Fell {
    /// The first step that did not come about.
    pub step: Step,
    /// What was seen instead.
    pub why: String,
    /// Its last words.
    pub said: String,
}

/// What a runtime is asked to do: what it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Calls a tool that writes a file.
    Tool,
    /// The same, by a program that does not tell of its calls.
    Untold,
    /// Changes a file by what it writes, without tools that the model calls.
    Edit,
    /// Proposes a patch.
    Patch,
    /// Answers.
    Answer,
}

impl Task {
    fn of(known: &'static AgentSpec) -> Self {
        let (can, _) = abilities(known);
        match known.kind {
            AgentKind::Patch => Self::Patch,
            AgentKind::Cli => Self::Untold,
            _ if can.has(Capability::NativeToolLoop) => Self::Tool,
            _ if can.has(Capability::FilesystemEdit) => Self::Edit,
            _ => Self::Answer,
        }
    }

    /// What was seen of a runtime that did it.
    fn seen(self) -> &'static str {
        match self {
            Self::Tool => "a tool call was judged, run and logged, and its file landed",
            Self::Untold => "a file that it wrote landed",
            Self::Edit => "its edit landed",
            Self::Patch => "its patch was checked and landed",
            Self::Answer => "its answer came",
        }
    }

    fn script(self, root: &Path, marker: &str) -> Script {
        let text = format!("{marker}\n");
        let moves = match self {
            Self::Tool | Self::Untold | Self::Edit => {
                vec![
                    Move::Write {
                        path: FILE.to_owned(),
                        text,
                    },
                    Move::Say(END.to_owned()),
                ]
            }
            Self::Patch => {
                let patch =
                    format!("*** Begin Patch\n*** Add File: {FILE}\n+{text}*** End Patch\n");
                let file =
                    json!({ "path": FILE, "operation": "create", "to": null, "patch": patch });
                vec![Move::Json(
                    json!({ "summary": END, "files": [file], "tests": [], "risks": [], "read": [] }),
                )]
            }
            Self::Answer => vec![Move::Say(marker.to_owned())],
        };
        Script {
            without_tools: !matches!(self, Self::Tool | Self::Untold),
            ..Script::new(root, moves)
        }
    }
}

impl<'a> Rehearsal<'a> {
    /// Listens for interrupts from here on. `runtimes_dir` has the agents that we installed.
    pub fn new(layers: &'a Layers<'a>, runtimes_dir: PathBuf) -> Result<Self, RegistryError> {
        Ok(Self {
            layers,
            runtimes_dir,
            model: None,
            interrupts: Interrupts::listen()?,
        })
    }

    /// The same with another model than the usual one of the vendor; a scripted one answers in its place.
    #[must_use]
    pub fn with_model(self, model: Option<String>) -> Self {
        Self { model, ..self }
    }

    /// One runtime, by its name or as acp:COMMAND. An interrupt ends it, and is an error.
    pub async fn probe(&mut self, name: &str) -> Result<Probed, RegistryError> {
        let own = own::all(self.layers)?;
        let of_own = || own.iter().find(|own| own.name == name).map(|own| own.known);
        let known = match name.starts_with("acp:") {
            true => &ANY_ACP,
            false => {
                let known = agent_named(name).or_else(of_own);
                known.ok_or_else(|| unknown(name, &own))?
            }
        };
        let installed = Installed {
            dir: &self.runtimes_dir,
        };
        let table = installed.settings_table(name);
        let task = Task::of(known);
        let stage = Stage::new()?;
        let server = Server::start(task.script(&stage.work(), &stage.marker))?;
        self.configure(&table, &stage)?;
        let began = Instant::now();
        let deadline = if known.install.python().is_some() {
            MORE_PATIENCE
        } else {
            PATIENCE
        };
        let command = self.command(name, known, &stage, &server, deadline)?;
        let heard = watch(command, deadline, &mut self.interrupts).await?;
        let took = began.elapsed();
        let seen: Vec<Seen> = server
            .seen()
            .into_iter()
            .map(|seen| Seen {
                work: seen.work,
                key: seen.key.as_deref() == Some(stage.key.as_str()),
                unmapped: seen.unmapped,
            })
            .collect();
        let landed = std::fs::read_to_string(stage.work().join(FILE)).unwrap_or_default();
        let foreign = !known.is_built_in();
        let (marker, landed) = (stage.marker.as_str(), landed.as_str());
        let result = match (Evidence {
            task,
            foreign,
            marker,
            heard: &heard,
            seen: &seen,
            landed,
        })
        .judge()
        {
            Ok(()) => Ok(task.seen()),
            Err((step, why)) => {
                let why = if heard.overdue {
                    format!("{why}, after {} s", deadline.as_secs())
                } else {
                    why
                };
                Err(Fell {
                    step,
                    why,
                    said: last_words(&heard.err),
                })
            }
        };
        Ok(Probed {
            name: name.to_owned(),
            took,
            requests: server.requests(),
            result,
        })
    }

    /// The settings of the run: what the person set for this runtime, but for how it signs in and what it reaches.
    fn configure(&self, table: &str, stage: &Stage) -> Result<(), RegistryError> {
        let prefix = format!("runtimes.{table}.");
        let personal = ["auth", "metering", "login_file", "mcp_servers"];
        let mut text = String::new();
        for (key, setting) in self.layers.iter() {
            if let Some(option) = key.strip_prefix(&prefix)
                && !personal.contains(&option)
            {
                text.push_str(&format!("{key} = {}\n", setting.value));
            }
        }
        std::fs::write(stage.at("config/windlass/config.toml"), text)?;
        // Agents that were installed for us are used where they are.
        let installed = &self.runtimes_dir;
        if installed.is_dir() {
            std::os::unix::fs::symlink(installed, stage.at("data/windlass/runtimes"))?;
        }
        Ok(())
    }

    /// This program, as a person would start it.
    fn command(
        &self,
        name: &str,
        known: &AgentSpec,
        stage: &Stage,
        server: &Server,
        deadline: Duration,
    ) -> Result<Command, RegistryError> {
        let (vendor, model) = model_for(self.layers, self.model.as_deref(), name, known);
        let mut command = Command::new(std::env::current_exe()?);
        command.args([
            "run",
            "-o",
            "stream-json",
            "--on-ask",
            "deny",
            "--runtime",
            name,
        ]);
        command.args([
            "--base-url",
            &format!("{}{}", server.url, below(vendor.protocol)),
        ]);
        if let Some(model) = model {
            command.args(["-m", &format!("{}/{model}", vendor.id)]);
        }
        command.args(["--max-seconds", &deadline.as_secs().to_string()]);
        command.arg(format!(
            "Write the word {} into the file {FILE}.",
            stage.marker
        ));
        command.env_clear().current_dir(stage.work());
        for name in ["PATH", "HOME", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        for (name, folder) in [
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_STATE_HOME", "state"),
        ] {
            command.env(name, stage.at(folder));
        }
        let configured = self
            .layers
            .text(&format!("providers.{}.key_env", vendor.id));
        if let Some(variable) = configured.or(vendor.key_env) {
            command.env(variable, &stage.key);
        }
        command.env("NO_COLOR", "1").env("LANG", "C.UTF-8");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        Ok(command)
    }
}

/// Follows a run to its end, to its deadline, or to an interrupt of ours.
async fn watch(
    mut command: Command,
    deadline: Duration,
    interrupts: &mut Interrupts,
) -> Result<Heard, RegistryError> {
    let mut child = command.spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (out, err) = (tokio::spawn(all_of(out)), tokio::spawn(all_of(err)));
    let (mut overdue, mut interrupted) = (false, false);
    let status = tokio::select! {
        status = child.wait() => status.ok(),
        () = tokio::time::sleep(deadline + GRACE) => {
            overdue = true;
            ended(&mut child).await
        }
        () = interrupts.heard() => {
            interrupted = true;
            ended(&mut child).await
        }
    };
    if interrupted {
        return Err(RegistryError::interrupted(
            "the probe was interrupted; what it started has ended",
        ));
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    // It is gone; something that it left behind may hold the pipes, and is not waited for.
    let (out, err) = tokio::join!(
        tokio::time::timeout(GRACE, out),
        tokio::time::timeout(GRACE, err)
    );
    let all = |heard: Result<Result<Vec<u8>, _>, _>| {
        text(heard.ok().and_then(Result::ok).unwrap_or_default())
    };
    let (out, err) = (all(out), all(err));
    let events: Vec<Value> = out
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    Ok(Heard {
        code: status.and_then(|status| status.code()),
        events,
        err,
        overdue,
    })
}

/// Ends a run: it is asked to first, because then it ends what it started itself.
async fn ended(child: &mut Child) -> Option<std::process::ExitStatus> {
    let pid = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let _ = pid.map(|pid| kill_process(pid, Signal::INT));
    if let Ok(status) = tokio::time::timeout(GRACE, child.wait()).await {
        return status.ok();
    }
    let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
    child.wait().await.ok()
}

/// What a pipe says, up to a bound; the rest is read and dropped, so that nobody waits.
async fn all_of(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut all = Vec::new();
    let Some(mut pipe) = pipe else { return all };
    let _ = (&mut pipe).take(MAX_OUTPUT).read_to_end(&mut all).await;
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    all
}

/// Folders that go with a rehearsal, and words that nobody else knows.
struct Stage {
    dir: tempfile::TempDir,
    marker: String,
    key: String,
}

impl Stage {
    fn new() -> Result<Self, RegistryError> {
        let dir = tempfile::Builder::new()
            .prefix("windlass-probe-")
            .tempdir()?;
        let clock = SystemClock::new();
        let (marker, key) = (
            format!("probe-{:016x}", clock.entropy()),
            format!("probe-key-{:032x}", clock.entropy()),
        );
        let stage = Self { dir, marker, key };
        for folder in ["work", "config/windlass", "data/windlass", "cache", "state"] {
            std::fs::create_dir_all(stage.at(folder))?;
        }
        std::fs::write(
            stage.work().join("README.md"),
            "A repository for a probe.\n",
        )?;
        // Without git it is a folder, which is as good for a run.
        let mut git = std::process::Command::new("git");
        git.args(["init", "-q"])
            .current_dir(stage.work())
            .env("HOME", stage.dir.path());
        let _ = git.stdin(Stdio::null()).output();
        Ok(stage)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir
            .path()
            .canonicalize()
            .unwrap_or_else(|_| self.dir.path().to_owned())
            .join(path)
    }

    fn work(&self) -> PathBuf {
        self.at("work")
    }
}

/// The vendor that a runtime is rehearsed with: the first that it would try.
fn vendor_for(known: &AgentSpec) -> &'static Vendor {
    let first = known
        .vendors
        .iter()
        .find_map(|id| windlass_providers::vendor(id));
    first
        .or_else(|| windlass_providers::vendor("anthropic"))
        .unwrap_or(&VENDORS[0])
}

/// The vendor and the model of a rehearsal; no model where the runtime cannot be told one. An agent of the user's own is
/// told one if its settings have a place for it.
fn model_for(
    layers: &Layers<'_>,
    given: Option<&str>,
    name: &str,
    known: &AgentSpec,
) -> (&'static Vendor, Option<String>) {
    let usual = vendor_for(known);
    if let Some(given) = given {
        let named = given.split_once('/');
        let named = named.and_then(|(id, model)| Some((windlass_providers::vendor(id)?, model)));
        let (vendor, model) = named.unwrap_or((usual, given));
        return (vendor, Some(model.to_owned()));
    }
    let own = format!("runtimes.{name}.");
    let has_place = |(key, setting): (&str, &Setting)| {
        key.starts_with(&own) && format!("{:?}", setting.value).contains("{model}")
    };
    let takes_one = known.is_built_in() || known.program.is_some() || layers.iter().any(has_place);
    (usual, takes_one.then(|| model_of(usual).to_owned()))
}

/// A model of a vendor; the scripted one is whichever it is taken for.
fn model_of(vendor: &Vendor) -> &'static str {
    let listed = || {
        model_rows()
            .find(|row| row.vendor == vendor.id)
            .map(|row| row.name)
    };
    default_model(vendor).or_else(listed).unwrap_or("scripted")
}

/// Where the scripted model serves a protocol.
fn below(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::OpenAiResponses | Protocol::OpenAiChat => "/v1",
        Protocol::Gemini => "/v1beta",
        _ => "",
    }
}

/// The last lines of what a run said.
fn last_words(err: &str) -> String {
    let lines: Vec<&str> = err.lines().filter(|line| !line.trim().is_empty()).collect();
    let text = lines[lines.len().saturating_sub(5)..].join("\n");
    text.chars()
        .rev()
        .take(1_000)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect()
}

impl Probed {
    /// In one line.
    pub fn line(&self) -> String {
        match &self.result {
            Ok(seen) => format!("works in {:.1} s: {seen}", self.took.as_secs_f64()),
            Err(fell) => format!("failed at the step `{}`: {}", fell.step.word(), fell.why),
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let fell = self.result.as_ref().err();
        json!({
            "works": fell.is_none(),
            "seconds": (self.took.as_secs_f64() * 1_000.0).round() / 1_000.0,
            "requests": self.requests,
            "seen": self.result.as_ref().ok(),
            "step": fell.map(|fell| fell.step.word()),
            "why": fell.map(|fell| &fell.why),
            "said": fell.map(|fell| &fell.said),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use windlass_host::config::{Key, SettingKind, SettingsLayer};

    use super::*;

    const KEYS: &[Key] = &[Key {
        name: "runtimes.*.command",
        kind: SettingKind::Texts,
        doc: "",
    }];

    #[track_caller]
    fn check(command: &str, given: Option<&str>, expect: (&str, Option<&str>)) {
        let mut layers = Layers::new(KEYS);
        let text = format!("[runtimes.mine]\ncommand = {command}\n");
        let file = Path::new("config.toml");
        layers.add_text(SettingsLayer::User, file, &text).unwrap();
        let (vendor, model) = model_for(&layers, given, "mine", &ANY_ACP);
        let usual = model_of(vendor_for(&ANY_ACP));
        let expect = (
            expect.0,
            expect.1.map(|it| if it == "usual" { usual } else { it }),
        );
        assert_eq!((vendor.id, model.as_deref()), expect);
    }

    #[test]
    fn agents_of_ones_own_are_told_a_model_where_they_have_a_place_for_it() {
        let usual = vendor_for(&ANY_ACP).id;
        check(r#"["agent"]"#, None, (usual, None));
        check(
            r#"["agent", "--model={model}"]"#,
            None,
            (usual, Some("usual")),
        );
        check(
            r#"["agent"]"#,
            Some("some-model"),
            (usual, Some("some-model")),
        );
        check(
            r#"["agent"]"#,
            Some("openai/gpt-x"),
            ("openai", Some("gpt-x")),
        );
    }
}
