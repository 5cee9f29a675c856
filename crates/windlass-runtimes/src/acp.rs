//! Agents that speak the Agent Client Protocol, version 1, over standard input and output. This module only implements
//! the protocol: the gate decides about calls, and the enclosure restricts the agent.
//!
//! In the order of one attempt: [`options`] and [`profile`] describe the start, `launch` assembles it, `dialogue` sets
//! the conversation up (`session`) and follows each turn, `transcript` converts the agent's messages into events,
//! `call` and `permission` have its calls judged.

mod call;
mod dialogue;
mod launch;
pub mod options;
mod permission;
pub mod profile;
mod session;
pub(crate) mod text;
mod transcript;
mod usage;

use std::collections::HashMap;
use std::sync::Arc;

use agent_client_protocol::v1::schema::ToolKind;
use serde_json::Value;
use windlass_core::runtime::{Capabilities, Capability, Feature, Features};

use self::dialogue::{AcpDialogue, AcpSetup, ClientFeatures};
use self::options::AcpOptions;
use self::profile::AcpProfile;
use self::text::clean;
use crate::agent::{
    Adapter, AgentAttempt, AnswerFuture, CODER_CAPABILITIES, ModelAccess, full_prompt,
};
use crate::agents::AgentSpec;
use crate::dialect::Dialect;
use crate::driver::{Conversation, Started, run_turn_and_keep, start};
use crate::mcp_server;
use crate::placeholders::{LaunchTexts, Texts, owned};

/// The adapter for an agent that speaks ACP.
pub struct Acp {
    name: String,
    argv: Vec<String>,
    model: Option<String>,
    options: AcpOptions,
    profile: AcpProfile,
    /// The texts of the profile, overridden by those of the options.
    texts: LaunchTexts,
    /// Placeholders in braces with their values, for the protocol of the model.
    words: Vec<(String, String)>,
    /// Kinds of the tools for which the agent reports none.
    kinds: Arc<HashMap<String, ToolKind>>,
}

impl Acp {
    /// The adapter of an agent with these options, for a model that speaks this dialect. [`crate::agents::ANY_ACP`]
    /// stands for any agent; its command is in the options.
    pub fn new(
        spec: &'static AgentSpec,
        options: AcpOptions,
        dialect: Dialect,
    ) -> Result<Self, String> {
        let profile = &AcpProfile {
            mcp: options.mcp.unwrap_or(spec.acp.mcp),
            keeps_directory: options.keeps_directory.unwrap_or(spec.acp.keeps_directory),
            ..spec.acp
        };
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
            return Err("the command of the agent is missing; set `command`".to_owned());
        }
        // The model name is inserted between the quotes of other formats.
        let plain = |name: &String| {
            !name.is_empty() && !name.contains(|c: char| c.is_control() || c == '"' || c == '\\')
        };
        if let Some(model) = options.model.as_ref().filter(|model| !plain(model)) {
            return Err(format!("`{}` is not a valid model name", clean(model)));
        }
        mcp_server::check(&options.mcp_servers, "")?;
        if !profile.mcp && !options.mcp_servers.is_empty() {
            return Err(format!(
                "{} does not support MCP servers from the client",
                spec.name
            ));
        }
        let kinds = Arc::new(kinds(profile, &options)?);
        let words = placeholder_values(profile, &options, dialect)?;
        let name = options.name.clone().unwrap_or_else(|| match spec.name {
            "acp" => format!("acp:{}", argv[0].rsplit('/').next().unwrap_or_default()),
            known => known.to_owned(),
        });
        let clear = profile.steered_by.iter().map(|path| (*path).to_owned());
        let texts = LaunchTexts {
            env: with_overrides(profile.env, &options.env),
            point_at: match &options.point_at {
                Some(own) => own.clone(),
                None => owned(profile.point_at),
            },
            home_files: with_overrides(profile.home_files, &options.home_files),
            clear: clear.chain(options.steered_by.iter().cloned()).collect(),
        };
        let model = options.model.clone();
        Ok(Self {
            name,
            argv,
            model,
            options,
            profile: *profile,
            texts,
            words,
            kinds,
        })
    }

    /// Placeholders in braces with their values.
    fn placeholders(&self) -> Vec<(&str, &str)> {
        let words = self.words.iter();
        words
            .map(|(word, value)| (word.as_str(), value.as_str()))
            .collect()
    }

    fn client_features(&self) -> ClientFeatures {
        ClientFeatures {
            fs: self.options.fs.unwrap_or(self.profile.fs),
            terminal: self.options.terminal.unwrap_or(self.profile.terminal),
        }
    }

    /// Whether the command, the environment or the files name the model.
    fn names_model(&self, own_login: bool) -> bool {
        let texts = self.argv.iter().chain(self.texts.used(!own_login));
        texts
            .map(String::as_str)
            .chain(self.session_meta())
            .any(|text| text.contains("{model}"))
    }

    /// Metadata for the request that creates a session.
    fn session_meta(&self) -> Option<&str> {
        let own = self.options.session_meta.as_deref();
        own.or(self.profile.session_meta)
    }

    /// The program that was kept from the previous turn, or a new process.
    async fn running(&self, attempt: &AgentAttempt<'_>) -> Started<AcpDialogue> {
        if let Some(kept) = attempt.take_kept() {
            return Ok(kept);
        }
        let launch = launch::launch(self, attempt)?;
        let own_login = attempt.model == ModelAccess::Own;
        let setup = AcpSetup {
            name: self.name.clone(),
            options: self.options.clone(),
            profile: self.profile,
            client_features: self.client_features(),
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
        let mcp = self.profile.mcp.then_some(Capability::Mcp);
        Capabilities::of(CODER_CAPABILITIES.into_iter().chain(mcp))
    }

    fn features(&self) -> Features {
        use Feature as F;
        let (options, profile) = (&self.options, self.profile);
        let asks = options.asks.unwrap_or(profile.asks);
        let reports_cost = options.reports_cost.unwrap_or(profile.reports_cost);
        let always = [F::Resume, F::Cancel, F::ModelChoice, F::Modes];
        let known = asks.then_some(F::ToolApproval).into_iter();
        Features::of(
            known
                .chain(reports_cost.then_some(F::ReportsCost))
                .chain(always),
        )
    }

    fn survives_iterations(&self) -> bool {
        true
    }

    fn converse<'a>(&'a self, attempt: &'a AgentAttempt<'a>, say: &'a str) -> AnswerFuture<'a> {
        Box::pin(async move {
            let mut running = self.running(attempt).await;
            match &mut running {
                Ok(running) => running.dialogue.prompt_with_digest = full_prompt(attempt, say),
                Err(_) => attempt.log_start(None).await?,
            }
            run_turn_and_keep(attempt, running, say).await
        })
    }
}

/// Texts of a profile, overridden by those of the options.
fn with_overrides(profile: &[(&str, &str)], own: &Texts) -> Texts {
    owned(profile).into_iter().chain(own.clone()).collect()
}

/// Values for the placeholders: those of the options first, then those of the profile.
fn placeholder_values(
    profile: &AcpProfile,
    options: &AcpOptions,
    dialect: Dialect,
) -> Result<Vec<(String, String)>, String> {
    let mut words = Vec::new();
    for (name, values) in &options.words {
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if !plain {
            return Err(format!(
                "`words` contains `{}`; use lower-case letters and `_`",
                clean(name)
            ));
        }
        let mut chosen = None;
        for value in values.split('|').map(str::trim) {
            let wire = value.split_once('=');
            let wire = wire.and_then(|(wire, value)| Some((Dialect::named(wire.trim())?, value)));
            match wire {
                Some((wire, value)) if wire == dialect => {
                    chosen = Some(value.trim());
                    break;
                }
                Some(_) => {}
                None => chosen = chosen.or(Some(value)),
            }
        }
        let chosen = chosen.ok_or_else(|| {
            format!("`words.{name}` has no value for the protocol of this model; a value without a protocol applies to all others")
        })?;
        words.push((format!("{{{name}}}"), chosen.to_owned()));
    }
    let known = profile.words_for(dialect).into_iter();
    words.extend(known.map(|(word, value)| (word.to_owned(), value.to_owned())));
    Ok(words)
}

/// Kinds of tools by the profile, overridden by the options.
fn kinds(profile: &AcpProfile, options: &AcpOptions) -> Result<HashMap<String, ToolKind>, String> {
    let known = profile.kinds.iter().map(|(tool, kind)| (*tool, *kind));
    let from_options = options
        .kinds
        .iter()
        .map(|(tool, kind)| (tool.as_str(), kind.as_str()));
    let read = |(tool, kind): (&str, &str)| match serde_json::from_value(Value::from(kind)) {
        Ok(kind) if kind != ToolKind::Other => Ok((tool.to_owned(), kind)),
        _ => Err(format!(
            "`kinds.{tool}` is `{kind}`; use read, edit, delete, move, search, execute, think or fetch"
        )),
    };
    known.chain(from_options).map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::agents::ANY_ACP;

    /// The value of `{path}` with these settings, for a model that speaks this dialect.
    fn path_for(values: &str, dialect: Dialect) -> Result<String, String> {
        let options = AcpOptions {
            command: Some("toy".to_owned()),
            words: BTreeMap::from([("path".to_owned(), values.to_owned())]),
            ..AcpOptions::default()
        };
        let acp = Acp::new(&ANY_ACP, options, dialect)?;
        let words = acp.placeholders().into_iter();
        let mut path = words.filter(|(word, _)| *word == "{path}");
        Ok(path
            .next()
            .map_or_else(String::new, |(_, value)| value.to_owned()))
    }

    #[test]
    fn a_placeholder_can_have_a_value_per_protocol() {
        let values = "anthropic=/v1 | gemini=/v1beta | /chat=1";
        let check = |dialect, expect: &str| {
            assert_eq!(path_for(values, dialect).as_deref(), Ok(expect));
        };
        check(Dialect::Anthropic, "/v1");
        check(Dialect::Gemini, "/v1beta");
        check(Dialect::OpenAiChat, "/chat=1");
        check(Dialect::OpenAiResponses, "/chat=1");
        let none = path_for("anthropic=/v1", Dialect::Gemini);
        assert!(none.is_err_and(|why| why.contains("no value for the protocol")));
    }

    #[test]
    fn the_settings_can_disable_mcp_servers() {
        let made = |mcp: Option<bool>| {
            let servers = serde_json::json!({ "docs": { "command": "docs" } });
            let options =
                serde_json::json!({ "command": "toy", "mcp": mcp, "mcp_servers": servers });
            let options = serde_json::from_value(options).map_err(|err| err.to_string())?;
            let acp = Acp::new(&ANY_ACP, options, Dialect::Anthropic)?;
            Ok::<bool, String>(acp.capabilities().has(Capability::Mcp))
        };
        assert_eq!(made(None), Ok(true));
        assert_eq!(made(Some(true)), Ok(true));
        assert!(made(Some(false)).is_err_and(|why| why.contains("does not support MCP servers")));
    }
}
