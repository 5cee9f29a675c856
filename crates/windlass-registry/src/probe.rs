//! Probes a runtime with a complete run of this program, against a scripted model on loopback, in temporary directories.
//! A probe costs nothing, leaves nothing behind and does not use the user's keys.

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

pub use self::judge::ProbeStep;
use self::judge::{ProbeEvidence, ProbeOutput, ProbeRequest};
use crate::abilities::abilities;
use crate::custom_agents::{self, unknown_runtime};
use crate::error::RegistryError;
use crate::install::InstalledAgents;

/// The file that the scripted model writes.
const FILE: &str = "probe.txt";
/// The final answer of the scripted model.
const END: &str = "The probe is done.";
/// Time for a cancelled run to exit by itself.
const GRACE: Duration = Duration::from_secs(5);
/// Maximum size of the output of a run that is kept, in bytes.
const MAX_OUTPUT: u64 = 16 << 20;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for an agent with a Python environment, which starts slowly.
const PYTHON_TIMEOUT: Duration = Duration::from_secs(180);

/// Probes runtimes, one at a time. A signal that would end this program ends the current probe first, so that no process
/// and no file is left behind.
pub struct RuntimeProbe<'a> {
    layers: &'a Layers<'a>,
    /// The directory of agents that Windlass installed.
    runtimes_dir: PathBuf,
    /// The model for the runtimes, as `model` or `vendor/model`.
    model: Option<String>,
    interrupts: Interrupts,
}

/// Listens for signals that would end this program.
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

    async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// The result of probing one runtime.
#[derive(Debug)]
pub struct ProbeResult {
    /// The value for `--runtime`.
    pub name: String,
    /// The duration of the run.
    pub took: Duration,
    /// The number of model requests.
    pub requests: usize,
    /// A description of the observed work, or the failure.
    pub result: Result<&'static str, ProbeFailure>,
}

/// A probe that failed.
#[derive(Debug)]
pub struct ProbeFailure {
    /// The first step that failed.
    pub step: ProbeStep,
    pub why: String,
    /// The last lines on standard error.
    pub last_output: String,
}

/// The work that a runtime does in a probe. It depends on the capabilities of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeTask {
    /// Write a file with a tool call, which must be in the log.
    Tool,
    /// Write a file with a tool call of a program that does not report its calls.
    UnreportedTool,
    /// Edit a file with text of the model, without tool calls.
    Edit,
    Patch,
    Answer,
}

impl ProbeTask {
    fn of(known: &'static AgentSpec) -> Self {
        let (can, _) = abilities(known);
        match known.kind {
            AgentKind::Patch => Self::Patch,
            AgentKind::Cli => Self::UnreportedTool,
            _ if can.has(Capability::NativeToolLoop) => Self::Tool,
            _ if can.has(Capability::FilesystemEdit) => Self::Edit,
            _ => Self::Answer,
        }
    }

    /// The description of a successful probe.
    fn success(self) -> &'static str {
        match self {
            Self::Tool => "a tool call was checked, run and logged, and its file landed",
            Self::UnreportedTool => "a file that it wrote landed",
            Self::Edit => "its edit landed",
            Self::Patch => "its patch was checked and landed",
            Self::Answer => "it answered",
        }
    }

    fn script(self, root: &Path, marker: &str) -> Script {
        let text = format!("{marker}\n");
        let moves = match self {
            Self::Tool | Self::UnreportedTool | Self::Edit => {
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
            without_tools: !matches!(self, Self::Tool | Self::UnreportedTool),
            ..Script::new(root, moves)
        }
    }
}

impl<'a> RuntimeProbe<'a> {
    /// Starts to listen for signals. `runtimes_dir` is the directory of agents that Windlass installed.
    pub fn new(layers: &'a Layers<'a>, runtimes_dir: PathBuf) -> Result<Self, RegistryError> {
        Ok(Self {
            layers,
            runtimes_dir,
            model: None,
            interrupts: Interrupts::listen()?,
        })
    }

    /// Sets the name of the model, in place of the vendor's default. The scripted model answers under this name.
    #[must_use]
    pub fn with_model(self, model: Option<String>) -> Self {
        Self { model, ..self }
    }

    /// Probes a runtime, by its name or as `acp:COMMAND`. An interrupt is an error.
    pub async fn probe(&mut self, name: &str) -> Result<ProbeResult, RegistryError> {
        let own = custom_agents::all(self.layers)?;
        let of_own = || own.iter().find(|own| own.name == name).map(|own| own.known);
        let known = match name.starts_with("acp:") {
            true => &ANY_ACP,
            false => {
                let known = agent_named(name).or_else(of_own);
                known.ok_or_else(|| unknown_runtime(name, &own))?
            }
        };
        let installed = InstalledAgents {
            dir: &self.runtimes_dir,
        };
        let table = installed.settings_table(name);
        let task = ProbeTask::of(known);
        let dirs = ProbeDirs::new()?;
        let server = Server::start(task.script(&dirs.work(), &dirs.marker))?;
        self.configure(&table, &dirs)?;
        let began = Instant::now();
        let deadline = if known.install.python().is_some() {
            PYTHON_TIMEOUT
        } else {
            TIMEOUT
        };
        let command = self.command(name, known, &dirs, &server, deadline)?;
        let output = watch(command, deadline, &mut self.interrupts).await?;
        let took = began.elapsed();
        let requests: Vec<ProbeRequest> = server
            .seen()
            .into_iter()
            .map(|request| ProbeRequest {
                work: request.work,
                key: request.key.as_deref() == Some(dirs.key.as_str()),
                unmapped: request.unmapped,
            })
            .collect();
        let landed = std::fs::read_to_string(dirs.work().join(FILE)).unwrap_or_default();
        let foreign = !known.is_built_in();
        let (marker, landed) = (dirs.marker.as_str(), landed.as_str());
        let result = match (ProbeEvidence {
            task,
            foreign,
            marker,
            output: &output,
            requests: &requests,
            landed,
        })
        .judge()
        {
            Ok(()) => Ok(task.success()),
            Err((step, why)) => {
                let why = if output.overdue {
                    format!("{why}, after {} s", deadline.as_secs())
                } else {
                    why
                };
                Err(ProbeFailure {
                    step,
                    why,
                    last_output: last_lines(&output.err),
                })
            }
        };
        Ok(ProbeResult {
            name: name.to_owned(),
            took,
            requests: server.requests(),
            result,
        })
    }

    /// Writes the settings of the run: those of the user for this runtime, without sign-in and MCP servers.
    fn configure(&self, table: &str, dirs: &ProbeDirs) -> Result<(), RegistryError> {
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
        std::fs::write(dirs.at("config/windlass/config.toml"), text)?;
        // The run uses the agents that Windlass installed.
        let installed = &self.runtimes_dir;
        if installed.is_dir() {
            std::os::unix::fs::symlink(installed, dirs.at("data/windlass/runtimes"))?;
        }
        Ok(())
    }

    /// The command line that starts this program, as a user would type it.
    fn command(
        &self,
        name: &str,
        known: &AgentSpec,
        dirs: &ProbeDirs,
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
            &format!("{}{}", server.url, path_prefix(vendor.protocol)),
        ]);
        if let Some(model) = model {
            command.args(["-m", &format!("{}/{model}", vendor.id)]);
        }
        command.args(["--max-seconds", &deadline.as_secs().to_string()]);
        command.arg(format!(
            "Write the word {} into the file {FILE}.",
            dirs.marker
        ));
        command.env_clear().current_dir(dirs.work());
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
            command.env(name, dirs.at(folder));
        }
        let configured = self
            .layers
            .text(&format!("providers.{}.key_env", vendor.id));
        if let Some(variable) = configured.or(vendor.key_env) {
            command.env(variable, &dirs.key);
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

/// Waits for the end of a run, for its deadline, or for a signal to this program.
async fn watch(
    mut command: Command,
    deadline: Duration,
    interrupts: &mut Interrupts,
) -> Result<ProbeOutput, RegistryError> {
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
        () = interrupts.received() => {
            interrupted = true;
            ended(&mut child).await
        }
    };
    if interrupted {
        return Err(RegistryError::interrupted(
            "the probe was interrupted, and its processes have ended",
        ));
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    // The run has exited. A process that it left behind may hold the pipes open, so the wait is limited.
    let (out, err) = tokio::join!(
        tokio::time::timeout(GRACE, out),
        tokio::time::timeout(GRACE, err)
    );
    let all = |output: Result<Result<Vec<u8>, _>, _>| {
        text(output.ok().and_then(Result::ok).unwrap_or_default())
    };
    let (out, err) = (all(out), all(err));
    let events: Vec<Value> = out
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    Ok(ProbeOutput {
        code: status.and_then(|status| status.code()),
        events,
        err,
        overdue,
    })
}

/// Ends a run. An interrupt comes first, so that the run can end its own processes.
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

/// The content of a pipe, up to a limit. The rest is read and dropped, so that the writer does not block.
async fn all_of(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut all = Vec::new();
    let Some(mut pipe) = pipe else { return all };
    let _ = (&mut pipe).take(MAX_OUTPUT).read_to_end(&mut all).await;
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    all
}

/// Temporary directories of a probe, with a random marker and a random key.
struct ProbeDirs {
    dir: tempfile::TempDir,
    marker: String,
    key: String,
}

impl ProbeDirs {
    fn new() -> Result<Self, RegistryError> {
        let dir = tempfile::Builder::new()
            .prefix("windlass-probe-")
            .tempdir()?;
        let clock = SystemClock::new();
        let (marker, key) = (
            format!("probe-{:016x}", clock.entropy()),
            format!("probe-key-{:032x}", clock.entropy()),
        );
        let dirs = Self { dir, marker, key };
        for folder in ["work", "config/windlass", "data/windlass", "cache", "state"] {
            std::fs::create_dir_all(dirs.at(folder))?;
        }
        std::fs::write(dirs.work().join("README.md"), "A repository for a probe.\n")?;
        // A run also works in a directory without git, so an error is ignored.
        let mut git = std::process::Command::new("git");
        git.args(["init", "-q"])
            .current_dir(dirs.work())
            .env("HOME", dirs.dir.path());
        let _ = git.stdin(Stdio::null()).output();
        Ok(dirs)
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

/// The vendor for a probe: the first one of the runtime.
fn vendor_for(known: &AgentSpec) -> &'static Vendor {
    let first = known
        .vendors
        .iter()
        .find_map(|id| windlass_providers::vendor(id));
    first
        .or_else(|| windlass_providers::vendor("anthropic"))
        .unwrap_or(&VENDORS[0])
}

/// The vendor and the model of a probe. An agent of the user's own gets a model only if its settings contain the
/// placeholder `{model}`.
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
    let has_placeholder = |(key, setting): (&str, &Setting)| {
        key.starts_with(&own) && format!("{:?}", setting.value).contains("{model}")
    };
    let takes_model =
        known.is_built_in() || known.program.is_some() || layers.iter().any(has_placeholder);
    (usual, takes_model.then(|| model_of(usual).to_owned()))
}

/// The name of a model of a vendor. The scripted model answers under any name.
fn model_of(vendor: &Vendor) -> &'static str {
    let listed = || {
        model_rows()
            .find(|row| row.vendor == vendor.id)
            .map(|row| row.name)
    };
    default_model(vendor).or_else(listed).unwrap_or("scripted")
}

/// The path under which the scripted server serves a protocol.
fn path_prefix(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::OpenAiResponses | Protocol::OpenAiChat => "/v1",
        Protocol::Gemini => "/v1beta",
        _ => "",
    }
}

/// The last lines on standard error.
fn last_lines(err: &str) -> String {
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

impl ProbeResult {
    /// The result in one line, for people.
    pub fn line(&self) -> String {
        match &self.result {
            Ok(done) => format!("works in {:.1} s: {done}", self.took.as_secs_f64()),
            Err(failure) => format!(
                "failed at the step `{}`: {}",
                failure.step.word(),
                failure.why
            ),
        }
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
    fn custom_agents_get_a_model_if_they_have_a_placeholder() {
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
