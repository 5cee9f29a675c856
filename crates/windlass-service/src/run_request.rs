//! The options of a run, as a client gives them. The service stores them with the queued prompt, so that the run has them
//! also after a restart.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass::core::flags::SavedFlags;
use windlass::core::gate::Mode;
use windlass::core::terms::{Isolation, SandboxLevel};
use windlass::flags::{AgentFlags, AskPolicy, Cap, ContractFlags, LimitFlags, RunFlags};

use crate::access::known_sandbox_level;
use crate::problem::Problem;

/// The options of a run. An absent option has the value of the settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunRequest {
    /// The profile: `plan`, `review`, `implement`, `verify`, or one of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The agent: a name that `GET /v1/runtimes` lists, or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The model, as `model` or `vendor/model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The approval mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Mode>,
    /// The sandbox of commands.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known_sandbox_level"
    )]
    pub sandbox: Option<SandboxLevel>,
    /// Network access of commands: `off`, `loopback`, `registries`, `allow:HOST,…` or `open`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<String>,
    /// Handling of an ask that no client answers: `pause` or `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_ask: Option<AskPolicy>,
    /// The reasoning effort of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// Requires an answer in JSON that matches this schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_schema: Option<Value>,
    /// The highest cost in US dollars, or `unlimited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<AmountLimit>")]
    pub max_budget_usd: Option<Cap<f64>>,
    /// The most model calls, or `unlimited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<CountLimit>")]
    pub max_steps: Option<Cap<u64>>,
    /// The most tokens, or `unlimited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<CountLimit>")]
    pub max_tokens: Option<Cap<u64>>,
    /// The longest time in seconds, without waiting for a person, or `unlimited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<AmountLimit>")]
    pub max_seconds: Option<Cap<f64>>,
    /// The most attempts until the checks pass, or `unlimited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<CountLimit>")]
    pub max_iterations: Option<Cap<u64>>,
    /// Checks that must pass before changes land: commands, names of validators, or `none`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validate: Vec<String>,
    /// Commits the changes that land with this message; an empty message stands for the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Fails a run that changes no file.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub require_changes: bool,
    /// Fails a run that changes tests, scripts or settings of the checks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict_judge: bool,
    /// Runs the checks with the ignored files of the run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_ignored: bool,
    /// Lands even if detected checks fail that failed in the same way before the run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub accept_preexisting: bool,
    /// Lands without checking again even if other files changed during the run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub land_anyway: bool,
    /// The only paths that the run may change, as globs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_paths: Option<Vec<String>>,
    /// Works in the workspace itself instead of a copy. The default is the value of the session's last run, and a copy for
    /// the first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place: Option<bool>,
    /// The name of a kept run to continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// A limit as an amount above zero, or `unlimited`.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
enum AmountLimit {
    At(#[schemars(extend("exclusiveMinimum" = 0))] f64),
    Word(Unlimited),
}

/// A limit as a number above zero, or `unlimited`.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
enum CountLimit {
    At(std::num::NonZeroU64),
    Word(Unlimited),
}

/// The word for no limit.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(dead_code, reason = "only its schema is used")]
enum Unlimited {
    Unlimited,
}

/// Flags of the log that belong to the session and not to the agent.
const IN_PLACE: &str = "in_place";
const KEPT: &str = "kept";

impl RunRequest {
    /// The flags of the run for a workspace.
    #[must_use]
    pub fn flags(&self, workspace: PathBuf) -> RunFlags {
        let one = self.clone();
        RunFlags {
            agent: AgentFlags {
                profile: one.profile,
                runtime: one.runtime,
                model: one.model,
                approval: one.approval,
                sandbox: one.sandbox,
                net: one.net,
                on_ask: one.on_ask,
                reasoning_effort: one.reasoning_effort,
                json_schema: one.json_schema.map(|schema| schema.to_string()),
                cd: Some(workspace),
                ..AgentFlags::default()
            },
            limits: LimitFlags {
                max_budget_usd: one.max_budget_usd,
                max_steps: one.max_steps,
                max_tokens: one.max_tokens,
                max_seconds: one.max_seconds,
            },
            contract: ContractFlags {
                validate: one.validate,
                commit: one.commit,
                require_changes: one.require_changes,
                strict_judge: one.strict_judge,
                keep_ignored: one.keep_ignored,
                accept_preexisting: one.accept_preexisting,
                land_anyway: one.land_anyway,
                write_path: one.write_paths,
                max_iterations: one.max_iterations,
                ..ContractFlags::default()
            },
        }
    }

    /// The options in the form of the log.
    pub(crate) fn save(&self) -> SavedFlags {
        let mut flags = self.flags(PathBuf::new());
        flags.agent.cd = None;
        let mut saved = flags.save();
        if let Some(in_place) = self.in_place {
            saved.set(IN_PLACE, in_place.into());
        }
        if let Some(kept) = &self.kept {
            saved.set(KEPT, kept.clone().into());
        }
        saved
    }
}

/// The options of a queued run, read from the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueuedOptions {
    pub(crate) flags: RunFlags,
    /// Whether the run works in place; `None` for the isolation of the last run.
    pub(crate) in_place: Option<bool>,
    pub(crate) kept: Option<String>,
}

impl QueuedOptions {
    /// Reads the options. An unknown flag is an error: without it, the run could have more rights than requested.
    pub(crate) fn load(saved: &SavedFlags, workspace: PathBuf) -> Result<Self, Problem> {
        let mut saved = saved.clone();
        let in_place = saved.get(IN_PLACE).and_then(Value::as_bool);
        let kept = saved.get(KEPT).and_then(Value::as_str).map(str::to_owned);
        saved.unset(IN_PLACE);
        saved.unset(KEPT);
        let mut flags = RunFlags::load(&saved)?;
        flags.agent.cd = Some(workspace);
        Ok(Self {
            flags,
            in_place,
            kept,
        })
    }

    /// The isolation of the run, in a session whose last run had this isolation.
    pub(crate) fn isolation(&self, last: Option<Isolation>) -> Isolation {
        match self.in_place {
            Some(in_place) => Isolation::from_flag(!in_place),
            None => last.unwrap_or(Isolation::Isolated),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_the_log() {
        let request = RunRequest {
            model: Some("m".into()),
            max_budget_usd: Some(Cap::At(0.5)),
            validate: vec!["make".into()],
            in_place: Some(true),
            kept: Some("amber-otter-1".into()),
            ..RunRequest::default()
        };
        let saved = request.save();
        let loaded = QueuedOptions::load(&saved, "/w".into()).unwrap();
        assert_eq!(loaded.flags.agent.model.as_deref(), Some("m"));
        assert_eq!(loaded.flags.contract.validate, ["make"]);
        assert_eq!(loaded.in_place, Some(true));
        assert_eq!(loaded.kept.as_deref(), Some("amber-otter-1"));
        assert!(RunRequest::default().save().is_empty());
        let mut newer = saved;
        newer.set("unheard_of", 1.into());
        assert!(QueuedOptions::load(&newer, "/w".into()).is_err());
    }
}
