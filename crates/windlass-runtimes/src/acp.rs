//! Agents that speak the Agent Client Protocol, version 1, over their standard input and output. Only the protocol is
//! here: who may do what is decided by the gate, and what holds an agent is its place.
//!
//! In the order of one try: [`options`] and [`profile`] say how it is started, `opening` begins the conversation,
//! `talk` follows a turn over the pipes of its program (`rpc`), `transcript` makes facts of what it tells, `call` and `permission`
//! have its calls judged, and `desk` and `terminals` do what it asks of us.

mod call;
mod desk;
mod opening;
pub mod options;
mod permission;
pub mod profile;
mod talk;
mod terminals;
mod transcript;
mod usage;
mod words;

use std::collections::HashMap;
use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    ContentBlock, PromptRequest, StopReason, TextContent, ToolKind,
};
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::clock::Clock;
use windlass_core::provider::{ProviderError, ProviderErrorKind};
use windlass_core::runtime::{Capabilities, Capability, Feature, Features, RuntimeError};

use self::desk::Desk;
use self::options::AcpOptions;
use self::profile::{Profile, TurnUsage};
use self::talk::{Phase, Serves, Talk, Waited};
use self::transcript::Transcript;
use self::words::{clean, clip};
use crate::agent::{Adapter, Answer, End, ModelAccess, Reported, Visit, told_anew};
use crate::agents::AgentSpec;
use crate::dialect::Dialect;
use crate::mcp_server;
use crate::rpc::{Rpc, RpcError};

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
    clock: Arc<dyn Clock>,
}

/// Why options make no agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AcpError(pub String);

/// A conversation that goes on.
struct Live {
    rpc: Rpc,
    desk: Arc<Desk>,
    transcript: Transcript,
    /// The agent's own name for it.
    session: String,
    /// What the agent calls itself.
    agent: String,
    /// It was to go on with an earlier one and could not.
    forgot: bool,
    /// What a person should know, before there is a try to say it in.
    warnings: Vec<(&'static str, String)>,
    /// Messages that were not understood, and how many of all that was passed over were told of.
    odd: u64,
    told_odd: u64,
    /// What the session had cost by its own words when it was last asked.
    cost_told: u64,
    told_last_call: bool,
}

impl Live {
    fn new(rpc: Rpc, kinds: &Arc<HashMap<String, ToolKind>>) -> Self {
        let desk: Arc<Desk> = Arc::default();
        Self {
            rpc,
            transcript: Transcript::new(Arc::clone(&desk), Arc::clone(kinds)),
            desk,
            session: String::new(),
            agent: String::new(),
            forgot: false,
            warnings: Vec::new(),
            odd: 0,
            told_odd: 0,
            cost_told: 0,
            told_last_call: false,
        }
    }
}

impl Acp {
    /// This agent with these options, for a model that speaks this dialect. [`crate::agents::ANY_ACP`] is any agent, by
    /// its command.
    pub fn new(
        spec: &'static AgentSpec,
        options: AcpOptions,
        dialect: Dialect,
        clock: Arc<dyn Clock>,
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
            clock,
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

    async fn turn(
        &self,
        live: &mut Live,
        visit: &Visit<'_>,
        say: &str,
    ) -> Result<Answer, RuntimeError> {
        for (code, text) in std::mem::take(&mut live.warnings) {
            visit.warn(code, text).await?;
        }
        let say = if std::mem::take(&mut live.forgot) {
            told_anew(visit, say)
        } else {
            say.to_owned()
        };
        live.transcript.begin();
        let params = PromptRequest::new(
            live.session.clone(),
            vec![ContentBlock::Text(TextContent::new(say))],
        );
        let mut talk = Talk::new(live, visit, self.clock.as_ref(), &self.name, self.serves());
        let waited = talk
            .ask("session/prompt", &params, Phase::Working, None)
            .await?;
        talk.close().await;
        drop(talk);
        let text = live.transcript.end(visit).await?;
        let end = match waited {
            Waited::Answer(answer) => {
                self.count(live, visit, &answer).await?;
                match ended(&answer, &text) {
                    // Some take a refusal for the end of the turn; nobody else ended it.
                    End::Cancelled
                        if !visit.cancel.is_cancelled() && visit.ended_at_a_refusal() =>
                    {
                        End::Done
                    }
                    end => end,
                }
            }
            Waited::Error(err) => failed(&self.name, err),
            Waited::Gone(end) => end,
        };
        self.tell_what_was_passed_over(live, visit).await?;
        Ok(Answer {
            text,
            output: None,
            end,
        })
    }

    /// Notes what the agent says the turn took.
    async fn count(
        &self,
        live: &mut Live,
        visit: &Visit<'_>,
        answer: &Value,
    ) -> Result<(), RuntimeError> {
        let mut usage = usage::of_turn(answer).unwrap_or_default();
        let means = self
            .options
            .turn_usage
            .unwrap_or_else(|| self.profile.turn_usage(&live.agent));
        if means == TurnUsage::LastCall {
            if visit.model != ModelAccess::Own {
                // Compared with what went through us it would only be wrong.
                usage = windlass_core::budget::Usage::default();
            } else if !std::mem::replace(&mut live.told_last_call, true) {
                let text = format!(
                    "{} tells only the tokens of the last model call of each turn",
                    self.name
                );
                visit.warn("usage_incomplete", text).await?;
            }
        }
        let cost = live.transcript.cost_micros.unwrap_or(live.cost_told);
        let cost_micros = cost.checked_sub(live.cost_told).filter(|more| *more > 0);
        live.cost_told = cost.max(live.cost_told);
        if usage != windlass_core::budget::Usage::default() || cost_micros.is_some() {
            visit.spent(&Reported {
                usage,
                cost_micros,
                model: usage::model_of_turn(answer),
            });
        }
        Ok(())
    }

    async fn tell_what_was_passed_over(
        &self,
        live: &mut Live,
        visit: &Visit<'_>,
    ) -> Result<(), RuntimeError> {
        let odd = live.odd + live.rpc.passed_over() + live.transcript.unknown;
        let more = odd.saturating_sub(std::mem::replace(&mut live.told_odd, odd));
        if more > 0 {
            let text = format!(
                "{more} messages of {} were not understood and passed over",
                self.name
            );
            visit.warn("not_understood", text).await?;
        }
        let dropped = std::mem::take(&mut live.transcript.dropped);
        if dropped > 0 {
            let text = format!(
                "{} said {dropped} bytes more than are kept of one turn",
                self.name
            );
            visit.warn("too_much_said", text).await?;
        }
        Ok(())
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
                .filter(|(_, has)| *has)
                .map(|(feature, _)| feature),
        )
    }

    fn converse<'a>(
        &'a self,
        visit: &'a Visit<'a>,
        say: &'a str,
    ) -> BoxFuture<'a, Result<Answer, RuntimeError>> {
        Box::pin(async move {
            let mut live: Live = match visit.take_kept() {
                Some(live) => live,
                None => match opening::open(self, visit).await? {
                    Ok(live) => live,
                    Err(end) => {
                        visit.began(None).await?;
                        return Ok(Answer {
                            text: String::new(),
                            output: None,
                            end,
                        });
                    }
                },
            };
            let answer = self.turn(&mut live, visit, say).await?;
            // Whatever ended otherwise is ended by us: its program goes with it.
            if answer.end == End::Done {
                visit.keep(live);
            }
            Ok(answer)
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

/// Why a turn ended, as the agent says.
fn ended(answer: &Value, text: &str) -> End {
    let reason = serde_json::from_value::<StopReason>(answer["stopReason"].clone());
    match reason {
        Ok(StopReason::EndTurn) => End::Done,
        Ok(StopReason::MaxTokens) => {
            End::OwnLimit("the answer was cut at the most tokens of its model".to_owned())
        }
        Ok(StopReason::MaxTurnRequests) => {
            End::OwnLimit("the most model calls of one turn were made".to_owned())
        }
        Ok(StopReason::Refusal) => {
            let said = if text.trim().is_empty() {
                "the agent's model declined"
            } else {
                text.trim()
            };
            End::Refused(clip(said, 2_000).into_owned())
        }
        Ok(StopReason::Cancelled) => End::Cancelled,
        _ => End::Broken(format!(
            "the turn ended for a reason that is not known: {}",
            clip(&answer["stopReason"].to_string(), 80)
        )),
    }
}

/// Why a turn failed, as the agent says: its model, where its words leave no doubt, or the agent itself.
fn failed(name: &str, err: RpcError) -> End {
    let said = clip(&clean(&err.in_words()), 2_000).into_owned();
    let message = format!("{name} reports: {said}");
    let said = said.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let (kind, status) = if has(&["rate limit", "rate_limit", "too many requests", "quota"]) {
        (
            ProviderErrorKind::RateLimited { retry_after: None },
            Some(429),
        )
    } else if has(&[
        "invalid api key",
        "unauthorized",
        "invalid x-api-key",
        "authentication_error",
    ]) {
        (ProviderErrorKind::Authentication, Some(401))
    } else if has(&[
        "overloaded",
        "service unavailable",
        "internal server error",
        "bad gateway",
        "status code 5",
    ]) {
        (ProviderErrorKind::Unavailable { retry_after: None }, None)
    } else if has(&[
        "context length",
        "context window",
        "prompt is too long",
        "context_length",
    ]) {
        (ProviderErrorKind::ContextLength, None)
    } else if has(&[
        "econnrefused",
        "econnreset",
        "fetch failed",
        "connection refused",
        "cannot connect to api",
    ]) {
        (ProviderErrorKind::Network { transient: true }, None)
    } else {
        return End::Broken(format!("{message} ({})", err.code));
    };
    End::Provider(ProviderError {
        kind,
        message,
        status,
    })
}
