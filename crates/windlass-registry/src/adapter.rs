//! Makes the adapter of an agent from the table of agents and the settings. An option that the adapter does not support is
//! an error.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use windlass_core::gate::bar_at_landing;
use windlass_providers::protocol::Protocol;
use windlass_runtimes::acp::Acp;
use windlass_runtimes::acp::options::AcpOptions;
use windlass_runtimes::agent::Adapter;
use windlass_runtimes::agents::{AgentKind, AgentSpec};
use windlass_runtimes::claude_code::{ClaudeCode, ClaudeOptions};
use windlass_runtimes::codex::{Codex, CodexOptions};
use windlass_runtimes::dialect::Dialect;
use windlass_runtimes::oneshot::OneShot;
use windlass_runtimes::oneshot::aider::AiderOptions;
use windlass_runtimes::oneshot::options::CliOptions;
use windlass_runtimes::openhands::{OpenHands, OpenHandsOptions};
use windlass_runtimes::sidecar::{Sidecar, SidecarOptions};

use crate::error::RegistryError;
use crate::program::AgentProgram;
use crate::version;

/// The error of Aider without Python.
const NO_PYTHON: &str = "the Python of its program was not found; install it with `windlass runtimes install aider`, or \
                         set `command` to the `aider` of a Python environment";

/// The inputs for making an adapter.
#[derive(Debug, Clone)]
pub struct AgentSetup {
    pub known: &'static AgentSpec,
    /// The name of the agent's home directory and conversations.
    pub name: String,
    /// The name of the agent's table in the settings, below `runtimes`.
    pub settings: String,
    pub program: AgentProgram,
    /// The first arguments of the program, from `acp:COMMAND` or the ACP registry.
    pub words: Vec<String>,
    /// The model, without the vendor.
    pub model: Option<String>,
    /// The protocol of the model server; `None` if the agent uses its own login.
    pub protocol: Option<Protocol>,
    /// Directories of a project that are empty in the agent's copy, in addition to those of `known`.
    pub masked_dirs: Vec<String>,
    /// Directories of a project in which the agent keeps its own state, in addition to the one that has its name.
    pub state_dirs: Vec<String>,
    /// Instruction files of a project that the agent reads by itself, in addition to those of `known`.
    pub instruction_files: Vec<String>,
    /// The options of the adapter, from the settings.
    pub options: Map<String, Json>,
}

impl AgentSetup {
    /// The directories at the top of a project in which the agent keeps its own state: those of the settings, and a
    /// hidden directory with the name of the agent or of its program. A directory that steers agents (`.claude`) is not
    /// among them: the landing asks a person about it.
    #[must_use]
    pub fn all_state_dirs(&self) -> Vec<String> {
        let program = self.program.file.file_name().and_then(|name| name.to_str());
        let names = [Some(self.name.as_str()), program];
        let named = names.into_iter().flatten().map(|name| {
            let id = name.strip_prefix("acp:").or(name.strip_prefix("acp-"));
            format!(".{}", id.unwrap_or(name))
        });
        let steers =
            |dir: &String| bar_at_landing(&format!("{dir}/state"), false, "", &[]).is_some();
        let named = named.filter(|dir| !steers(dir));
        let mut dirs: Vec<String> = self.state_dirs.iter().cloned().chain(named).collect();
        dirs.sort_unstable();
        dirs.dedup();
        dirs
    }

    /// The version of the program, if files contain it. The program is not started.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        version::read_installed(&self.program.file, self.known.install.package())
    }
}

/// Makes the adapter for an agent.
pub fn adapter(setup: &AgentSetup) -> Result<Box<dyn Adapter>, RegistryError> {
    build(setup, setup.program.python())
}

/// Makes the adapter for an agent. `python` is the interpreter of an agent that is written in Python.
pub(crate) fn build(
    setup: &AgentSetup,
    python: Option<PathBuf>,
) -> Result<Box<dyn Adapter>, RegistryError> {
    let program = setup.program.file.display().to_string();
    let mut given = setup.options.clone();
    if let Some(model) = &setup.model {
        given
            .entry("model")
            .or_insert_with(|| Json::from(model.as_str()));
    }
    let python = python.map(|python| python.display().to_string());
    let dialect = dialect(setup);
    let made = match setup.known.kind {
        AgentKind::ClaudeCode => read(given)
            .and_then(|options| boxed(ClaudeCode::new(ClaudeOptions { program, ..options }))),
        AgentKind::Codex => {
            read(given).and_then(|options| boxed(Codex::new(CodexOptions { program, ..options })))
        }
        AgentKind::Acp => read(given).and_then(|mut options: AcpOptions| {
            options.name = Some(setup.name.clone());
            options.command = Some(program);
            if !setup.words.is_empty() {
                let more = options.args.take().unwrap_or_default();
                options.args = Some(setup.words.iter().cloned().chain(more).collect());
            }
            boxed(Acp::new(setup.known, options, dialect))
        }),
        AgentKind::Aider => read(given).and_then(|options| {
            let python = python.ok_or(NO_PYTHON)?;
            let options = AiderOptions { python, ..options };
            boxed(OneShot::new(options.program(dialect)?))
        }),
        AgentKind::Cli => read(given).and_then(|mut options: CliOptions| {
            options.name = Some(setup.name.clone());
            options.command = vec![program];
            boxed(OneShot::new(options.program()?))
        }),
        AgentKind::Sidecar(sdk) => read(given).and_then(|options| {
            let options = SidecarOptions { program, ..options };
            boxed(Sidecar::new(sdk, dialect, options))
        }),
        AgentKind::OpenHands => read(given).and_then(|options| {
            // If the program is not a script, it is the Python itself.
            let python = python.unwrap_or(program);
            let options = OpenHandsOptions { python, ..options };
            boxed(OpenHands::new(options, dialect))
        }),
        AgentKind::Native | AgentKind::Completion | AgentKind::Patch => {
            Err("it is built in and has no adapter".to_owned())
        }
    };
    made.map_err(|why| RegistryError::usage(format!("runtimes.{}: {why}", setup.settings)))
}

fn boxed<A: Adapter + 'static>(made: Result<A, String>) -> Result<Box<dyn Adapter>, String> {
    Ok(Box::new(made?))
}

/// The dialect of the model protocol; for an agent with its own login, the first one that the agent supports.
fn dialect(setup: &AgentSetup) -> Dialect {
    let known = setup.known.protocols.first();
    match setup.protocol.or_else(|| known.copied()) {
        Some(Protocol::OpenAiResponses) => Dialect::OpenAiResponses,
        Some(Protocol::OpenAiChat) => Dialect::OpenAiChat,
        Some(Protocol::Gemini) => Dialect::Gemini,
        _ => Dialect::Anthropic,
    }
}

fn read<T: DeserializeOwned>(given: Map<String, Json>) -> Result<T, String> {
    let names: Vec<String> = given.keys().cloned().collect();
    serde_json::from_value(Json::Object(given)).map_err(|err| {
        let why = err.to_string();
        let missing = |name: &&String| why.starts_with(&format!("unknown field `{name}`"));
        match names.iter().find(missing) {
            Some(name) => format!(
                "it has no option `{name}` (`windlass config keys` lists the options of each runtime)"
            ),
            None => why,
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use windlass_runtimes::agents::{AGENTS, ANY_ACP};

    use super::*;

    #[track_caller]
    fn check_state_dirs(known: &'static AgentSpec, name: &str, program: &str, expect: &[&str]) {
        let setup = AgentSetup {
            known,
            name: name.to_owned(),
            settings: name.to_owned(),
            program: AgentProgram {
                file: program.into(),
                ..AgentProgram::default()
            },
            words: Vec::new(),
            model: None,
            protocol: None,
            masked_dirs: Vec::new(),
            state_dirs: vec![".cache-of-mine".to_owned()],
            instruction_files: Vec::new(),
            options: Map::new(),
        };
        assert_eq!(setup.all_state_dirs(), expect);
    }

    #[test]
    fn an_agent_keeps_its_state_below_its_name_unless_that_directory_steers_agents() {
        let expect = [".cache-of-mine", ".fast-agent"];
        check_state_dirs(&ANY_ACP, "acp:fast-agent", "/opt/fast-agent", &expect);
        let claude = AGENTS.iter().find(|agent| agent.name == "claude-code");
        let expect = [".cache-of-mine", ".claude-code"];
        check_state_dirs(claude.unwrap(), "claude-code", "/opt/claude", &expect);
    }
}
