//! Agents that speak the Agent Client Protocol, version 1, over their standard input and output. Only the protocol is
//! here: who may do what is decided by the gate, and what holds an agent is its place.
//!
//! In the order of one attempt: [`options`] and [`profile`] say how it is started, `launch` puts that together, `dialogue`
//! sets the conversation up (`session`) and follows each turn, `transcript` makes facts of what it tells, `call` and
//! `permission` have its calls judged.

mod call;
mod dialogue;
mod launch;
pub mod options;
mod permission;
pub mod profile;
mod session;
mod transcript;
mod usage;
pub(crate) mod words;

use std::collections::HashMap;
use std::sync::Arc;

use agent_client_protocol::v1::schema::ToolKind;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::runtime::{Capabilities, Capability, Feature, Features, RuntimeError};

use self::dialogue::{AcpDialogue, AcpSetup, Serves};
use self::options::AcpOptions;
use self::profile::Profile;
use self::words::clean;
use crate::agent::{Adapter, AgentAttempt, Answer, ModelAccess, told_anew};
use crate::agents::AgentSpec;
use crate::dialect::Dialect;
use crate::driver::{Conversation, start, stay};
use crate::mcp_server;

/// An agent that speaks the protocol.
pub struct Acp {
    name: String,
    argv: Vec<String>,
    model: Option<String>,
    options: AcpOptions,
    profile: &'static Profile,
    dialect: Dialect,
    /// What its tools do that it says nothing of.
    kinds: Arc<HashMap<String, ToolKind>>,
}

/// Why options make no agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AcpError(pub String);

impl Acp {
    /// This agent with these options, for a model that speaks this dialect. [`crate::agents::ANY_ACP`] is any agent, by
    /// its command.
    pub fn new(
        spec: &'static AgentSpec,
        options: AcpOptions,
        dialect: Dialect,
    ) -> Result<Self, AcpError> {
        let profile = &spec.acp;
        let own: Vec<String> = profile
            .command
            .iter()
            .map(|word| (*word).to_owned())
            .collect();
        let mut argv: Vec<String> = match &options.command {
            Some(command) => std::iter::once(command.clone())
                .chain(own.into_iter().skip(1))
                .collect(),
            None => own,
        };
        if let Some(args) = &options.args {
            argv.truncate(1);
            argv.extend(args.iter().cloned());
        }
        if argv.first().is_none_or(String::is_empty) {
            return Err(AcpError(
                "an agent needs the command that starts it; set `command`".to_owned(),
            ));
        }
        // It is put between quotes of other formats.
        let plain = |name: &String| {
            !name.is_empty() && !name.contains(|c: char| c.is_control() || c == '"' || c == '\\')
        };
        if let Some(model) = options.model.as_ref().filter(|model| !plain(model)) {
            return Err(AcpError(format!(
                "`{}` is not the name of a model",
                clean(model)
            )));
        }
        mcp_server::check(&options.mcp_servers, "").map_err(AcpError)?;
        if !profile.mcp && !options.mcp_servers.is_empty() {
            return Err(AcpError(format!(
                "{} connects to no MCP server that it is given",
                spec.name
            )));
        }
        let kinds = Arc::new(kinds(profile, &options)?);
        let name = options.name.clone().unwrap_or_else(|| match spec.name {
            "acp" => format!("acp:{}", argv[0].rsplit('/').next().unwrap_or_default()),
            known => known.to_owned(),
        });
        let model = options.model.clone();
        Ok(Self {
            name,
            argv,
            model,
            options,
            profile,
            dialect,
            kinds,
        })
    }

    fn serves(&self) -> Serves {
        Serves {
            fs: self.options.fs.unwrap_or(self.profile.fs),
            terminal: self.options.terminal.unwrap_or(self.profile.terminal),
        }
    }

    /// Whether the agent is told its model by what it is started with.
    fn names_model(&self, own_login: bool) -> bool {
        let pointing = self.options.point_at.as_ref();
        let mut texts: Vec<&str> = self.argv.iter().map(String::as_str).collect();
        texts.extend(self.profile.env.iter().map(|(_, text)| *text));
        texts.extend(self.profile.home_files.iter().map(|(_, text)| *text));
        texts.extend(
            self.options
                .env
                .values()
                .chain(self.options.home_files.values())
                .map(String::as_str),
        );
        texts.extend(
            self.options
                .session_meta
                .as_deref()
                .or(self.profile.session_meta),
        );
        if !own_login {
            match pointing {
                Some(own) => texts.extend(own.values().map(String::as_str)),
                None => texts.extend(self.profile.point_at.iter().map(|(_, text)| *text)),
            }
        }
        texts.iter().any(|text| text.contains("{model}"))
    }

    /// The program that was kept from the turn before, or a new one.
    async fn running(
        &self,
        attempt: &AgentAttempt<'_>,
    ) -> Result<Conversation<AcpDialogue>, String> {
        if let Some(kept) = attempt.take_kept() {
            return Ok(kept);
        }
        let launch = launch::launch(self, attempt)?;
        let own_login = attempt.model == ModelAccess::Own;
        let setup = AcpSetup {
            name: self.name.clone(),
            options: self.options.clone(),
            profile: self.profile,
            serves: self.serves(),
            model: self.model.clone(),
            names_model: self.names_model(own_login),
            metered: !own_login,
            kinds: Arc::clone(&self.kinds),
            root: attempt.job.files.root().to_owned(),
            meta: launch::session_meta(self, attempt)?,
            resume: attempt.resume.clone(),
        };
        let program = start(attempt, Ok(launch), &self.name).await?;
        Ok(Conversation::new(AcpDialogue::new(setup), program))
    }
}

impl Adapter for Acp {
    fn name(&self) -> &str {
        &self.name
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn capabilities(&self) -> Capabilities {
        use Capability as C;
        let all = [
            C::TextCompletion,
            C::StreamingText,
            C::StructuredOutput,
            C::NativeToolLoop,
            C::FilesystemRead,
            C::FilesystemEdit,
            C::Shell,
        ];
        Capabilities::of(all.into_iter().chain(self.profile.mcp.then_some(C::Mcp)))
    }

    fn features(&self) -> Features {
        let known = [
            (
                Feature::ToolApproval,
                self.options.asks.unwrap_or(self.profile.asks),
            ),
            (
                Feature::ReportsCost,
                self.options
                    .reports_cost
                    .unwrap_or(self.profile.reports_cost),
            ),
            (Feature::Resume, true),
            (Feature::Cancel, true),
            (Feature::ModelChoice, true),
            (Feature::Modes, true),
        ];
        Features::of(
            known
                .into_iter()
                .filter_map(|(one, has)| has.then_some(one)),
        )
    }

    fn converse<'a>(
        &'a self,
        attempt: &'a AgentAttempt<'a>,
        say: &'a str,
    ) -> BoxFuture<'a, Result<Answer, RuntimeError>> {
        Box::pin(async move {
            let mut running = self.running(attempt).await;
            match &mut running {
                Ok(running) => running.dialogue.retold = told_anew(attempt, say),
                Err(_) => attempt.began(None).await?,
            }
            stay(attempt, running, say).await
        })
    }
}

/// What the tools of an agent do by its profile, and by what a person says of them.
fn kinds(profile: &Profile, options: &AcpOptions) -> Result<HashMap<String, ToolKind>, AcpError> {
    let known = profile.kinds.iter().map(|(tool, kind)| (*tool, *kind));
    let said = options
        .kinds
        .iter()
        .map(|(tool, kind)| (tool.as_str(), kind.as_str()));
    let read = |(tool, kind): (&str, &str)| match serde_json::from_value(Value::from(kind)) {
        Ok(kind) if kind != ToolKind::Other => Ok((tool.to_owned(), kind)),
        _ => Err(AcpError(format!(
            "`kinds.{tool}` is `{kind}`; there is read, edit, delete, move, search, execute, think and fetch"
        ))),
    };
    known.chain(said).map(read).collect()
}
