//! The adapter of an agent, made of what is known of it and of the settings. An option that its adapter does not have is
//! an error.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
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
use crate::program::Program;
use crate::version;

/// Why Aider is not started.
const NO_PYTHON: &str = "it is started by its Python, and none was found for its program; install it with \
                         `windlass runtimes install aider`, or set `command` to the `aider` of a Python environment";

/// Everything that an adapter is made from.
#[derive(Debug, Clone)]
pub struct AgentSetup {
    /// Its row.
    pub known: &'static AgentSpec,
    /// The name of its home and its conversations.
    pub name: String,
    /// The table of its settings, below `runtimes`.
    pub settings: String,
    /// Its program.
    pub program: Program,
    /// Arguments behind the program, for `acp:COMMAND`.
    pub words: Vec<String>,
    /// The model, by the vendor's name for it.
    pub model: Option<String>,
    /// The protocol by which its model is served; none where it signs in by itself.
    pub protocol: Option<Protocol>,
    /// Directories of a project that are empty in its copy, beside those of its row.
    pub masked_dirs: Vec<String>,
    /// Instruction files of a project that it reads by itself, beside those of its row.
    pub instruction_files: Vec<String>,
    /// Its own options, as the settings have them.
    pub options: Map<String, Json>,
}

impl AgentSetup {
    /// The version of its program, as far as it is known without running it.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        version::lies_beside(&self.program.file, self.known.install.package())
    }
}

/// An agent by its protocol, with the options of the settings.
pub fn adapter(setup: &AgentSetup) -> Result<Box<dyn Adapter>, RegistryError> {
    build(setup, setup.program.python())
}

/// The same, started by this Python where it is a program of Python.
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
            // Where a program is nobody's script, it is taken for the Python itself.
            let python = python.unwrap_or(program);
            let options = OpenHandsOptions { python, ..options };
            boxed(OpenHands::new(options, dialect))
        }),
        AgentKind::Native | AgentKind::Completion | AgentKind::Patch => {
            Err("it is not an agent of its own".to_owned())
        }
    };
    made.map_err(|why| RegistryError::usage(format!("runtimes.{}: {why}", setup.settings)))
}

fn boxed<A: Adapter + 'static>(made: Result<A, String>) -> Result<Box<dyn Adapter>, String> {
    Ok(Box::new(made?))
}

/// The words in which the run's model is asked; where the agent asks by itself, those that it is known for.
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
                "it has no option `{name}` (`windlass config keys` says which runtime has which)"
            ),
            None => why,
        }
    })
}
