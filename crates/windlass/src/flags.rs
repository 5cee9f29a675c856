//! The command-line flags of a run. The log stores them with the run, so that `windlass resume` can apply them again.
//!
//! ```
//! use std::path::Path;
//!
//! use windlass::flags::{AgentFlags, AskPolicy, Cap, ContractFlags, LimitFlags, RunFlags, SignIn, over};
//!
//! let flags = RunFlags {
//!     agent: AgentFlags { model: Some("a".into()), ..AgentFlags::default() },
//!     limits: LimitFlags { max_steps: Some(Cap::At(3)), ..LimitFlags::default() },
//!     contract: ContractFlags { validate: vec!["make".into()], ..ContractFlags::default() },
//! };
//! let saved = flags.save();
//! assert_eq!(RunFlags::load(&saved)?.contract.validate, ["make"]);
//! assert_eq!(RunFlags::load_model(&saved).model.as_deref(), Some("a"));
//! assert_eq!(RunFlags::load_contract(&saved).validate, ["make"]);
//! let mut without = saved.clone();
//! RunFlags::unset(&mut without, &["--validate".into()])?;
//! assert!(RunFlags::load_contract(&without).validate.is_empty());
//!
//! let auth = "login".parse().ok();
//! assert_eq!(auth, Some(SignIn::Login));
//! let on_ask = Some(AskPolicy::Deny);
//! let typed = AgentFlags { model: Some("b".into()), auth, on_ask, ..AgentFlags::default() };
//! assert_eq!(over(&flags.agent, &typed)?.model.as_deref(), Some("b"));
//! let unset = ["--max-steps".to_owned()];
//! let resumed = RunFlags::resumed(saved, &unset, &typed, &LimitFlags::default(), Path::new("."))?;
//! assert_eq!((resumed.agent.model.as_deref(), resumed.limits.max_steps), (Some("b"), None));
//! # Ok::<(), windlass::Error>(())
//! ```

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{EnumString, VariantNames};
use windlass_core::flags::SavedFlags;
use windlass_core::gate::Mode;
use windlass_core::terms::{MeteringKind, SandboxLevel};
use windlass_core::workspace::REDACTED;

use crate::error::Error;

/// The help heading of flags that permit or forbid calls.
#[cfg(feature = "clap")]
const PERMISSIONS: &str = "Permissions";

/// Flags for the agent, its model and its permissions. The doc comments of the fields are the help of the command line.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", command(next_help_heading = "Agent and model"))]
#[serde(default)]
pub struct AgentFlags {
    /// Use this profile: plan, review, implement, verify, or one from the settings
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub profile: Option<String>,
    /// Use this agent: a name from `windlass runtimes`, acp:COMMAND, or auto for the first usable one; auto:NEED,… for the
    /// first one with these capabilities [default: native]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub runtime: Option<String>,
    /// Use this model, as `model` or `vendor/model` [default: the model of the settings]
    #[cfg_attr(feature = "clap", arg(short, long))]
    pub model: Option<String>,
    /// Use this vendor for the model [default: the vendor of the model]
    #[cfg_attr(feature = "clap", arg(long))]
    pub provider: Option<String>,
    /// Use this address of the model server [default: the address of the vendor]
    #[cfg_attr(feature = "clap", arg(long, value_name = "URL"))]
    pub base_url: Option<String>,
    /// Play a scripted model from this file (TOML or JSON lines)
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", conflicts_with_all = ["provider", "base_url"]))]
    pub script: Option<PathBuf>,
    /// Record all exchanges with the model server in this file, without keys
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "FILE", conflicts_with = "script")
    )]
    pub record: Option<PathBuf>,
    /// Replay recorded exchanges in place of the model server
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", conflicts_with_all = ["script", "record"]))]
    pub cassette: Option<PathBuf>,
    /// Sign a foreign agent in with your key, which it never sees, or with its own login [default: key]
    #[cfg_attr(feature = "clap", arg(long, value_name = "HOW", value_parser = one_of::<SignIn>()))]
    pub auth: Option<SignIn>,
    /// Meter the cost of a foreign agent: wire, reported (by the agent) or none [default: wire]
    #[cfg_attr(feature = "clap", arg(long, value_name = "HOW", value_parser = one_of::<MeteringKind>()))]
    pub metering: Option<MeteringKind>,
    /// Start an agent whose calls cannot be checked one by one, even if rules or the approval mode require it. Calls and
    /// changes are compared with the rules afterwards, and a run that breaks a rule does not land
    #[cfg_attr(feature = "clap", arg(long, help_heading = PERMISSIONS))]
    pub accept_ungated: bool,
    /// Fall back to a patch, or to an answer only, if the runtime cannot edit files
    #[cfg_attr(feature = "clap", arg(long))]
    pub fallback: bool,
    /// Work in this directory [default: the current directory]
    #[cfg_attr(feature = "clap", arg(short = 'C', long, value_name = "DIR"))]
    pub cd: Option<PathBuf>,
    /// Use this approval mode: plan, ask, edit or auto [default: auto on a copy, ask in place]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "MODE", help_heading = PERMISSIONS)
    )]
    pub approval: Option<Mode>,
    /// Approve calls without asking, except those that always need a person
    #[cfg_attr(feature = "clap", arg(short, long, help_heading = PERMISSIONS))]
    pub yes: bool,
    /// Limit writes of commands: read-only, workspace-write, or full (no sandbox at all) [default: workspace-write]
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "LEVEL", value_parser = one_of::<SandboxLevel>(), help_heading = PERMISSIONS))]
    pub sandbox: Option<SandboxLevel>,
    /// Allow commands network access: off, loopback, registries, allow:HOST,… or open [default: loopback]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "WHAT", help_heading = PERMISSIONS)
    )]
    pub net: Option<String>,
    /// Set the reasoning effort: low, medium, high, or a level of the model [default: the default of the model]
    #[cfg_attr(feature = "clap", arg(long, value_name = "LEVEL"))]
    pub reasoning_effort: Option<String>,
    /// Require an answer in JSON that matches this schema (a file, or the schema itself)
    #[cfg_attr(feature = "clap", arg(long, value_name = "SCHEMA"))]
    pub json_schema: Option<String>,
    /// Pause (exit code 5) or deny if no person is there to answer [default: pause; deny if CI is set]
    #[cfg_attr(feature = "clap", arg(long, value_name = "WHAT", value_parser = one_of::<AskPolicy>(), help_heading = PERMISSIONS))]
    pub on_ask: Option<AskPolicy>,
}

/// Flags that limit a run. Each is a number, or `unlimited`.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", command(next_help_heading = "Limits"))]
#[serde(default)]
pub struct LimitFlags {
    /// Limit the cost in US dollars [default: 10]
    #[cfg_attr(feature = "clap", arg(long, value_name = "USD"))]
    pub max_budget_usd: Option<Cap<f64>>,
    /// Limit the number of model calls [default: 50]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub max_steps: Option<Cap<u64>>,
    /// Limit the number of tokens [default: 500000; 2000000 if the model server caches nothing]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub max_tokens: Option<Cap<u64>>,
    /// Limit the time in seconds, without waiting for a person [default: 3600]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub max_seconds: Option<Cap<f64>>,
}

/// Flags for the checks before a landing, and for the landing itself.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
#[cfg_attr(feature = "clap", command(next_help_heading = "Checks and landing"))]
pub struct ContractFlags {
    /// Require that this command succeeds before changes land; also the name of a validator, or `none`; may be given more
    /// than once [default: checks that are detected in the project]
    #[cfg_attr(feature = "clap", arg(long, value_name = "COMMAND"))]
    pub validate: Vec<String>,
    /// Commit the changes that land, with this message or the prompt
    #[cfg_attr(feature = "clap", arg(long, value_name = "MESSAGE", num_args = 0..=1, require_equals = true, default_missing_value = ""))]
    pub commit: Option<String>,
    /// Write the changes to a patch file instead of the working tree
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "FILE", conflicts_with = "commit")
    )]
    pub patch: Option<PathBuf>,
    /// Land without checking again even if other files changed during the run
    #[cfg_attr(feature = "clap", arg(long))]
    pub land_anyway: bool,
    /// Fail if the run changes no file
    #[cfg_attr(feature = "clap", arg(long))]
    pub require_changes: bool,
    /// Fail if the run changes tests, scripts or settings of the checks
    #[cfg_attr(feature = "clap", arg(long))]
    pub strict_judge: bool,
    /// Run the checks with the ignored files of the run, such as build outputs; these files do not land
    #[cfg_attr(feature = "clap", arg(long))]
    pub keep_ignored: bool,
    /// Land even if detected checks fail, if they failed in the same way before the run
    #[cfg_attr(feature = "clap", arg(long))]
    pub accept_preexisting: bool,
    /// Allow changes only to paths that match this glob, as in an ignore file; may be given more than once
    #[cfg_attr(feature = "clap", arg(long, value_name = "GLOB"))]
    pub write_path: Option<Vec<String>>,
    /// Limit the number of attempts until the checks pass [default: 5]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub max_iterations: Option<Cap<u64>>,
}

/// The sign-in of a foreign agent at its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, EnumString, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SignIn {
    /// The user's key, which the agent never sees.
    Key,
    /// The agent's own login.
    Login,
}

/// Handling of an ask when no person is there to answer it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
    strum::Display,
    EnumString,
    VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AskPolicy {
    /// The run stops and stays open, so that the ask can be answered later.
    Pause,
    Deny,
}

/// A limit that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cap<N> {
    Unlimited,
    #[serde(untagged)]
    At(N),
}

impl<N: FromStr> FromStr for Cap<N> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unlimited" => Ok(Self::Unlimited),
            text => text.parse().map(Self::At).map_err(|_| {
                "must be a number above zero, or \"unlimited\"; steps, tokens and attempts are whole numbers".into()
            }),
        }
    }
}

impl<N: Display> Display for Cap<N> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::At(number) => number.fmt(f),
        }
    }
}

/// A parser for a flag with a fixed set of values, which the help lists.
///
/// ```
/// # #[cfg(feature = "clap")]
/// let parser = windlass::flags::one_of::<windlass::flags::SignIn>();
/// ```
#[cfg(feature = "clap")]
pub fn one_of<T>() -> impl clap::builder::TypedValueParser<Value = T>
where
    T: FromStr<Err = strum::ParseError> + VariantNames + Clone + Send + Sync + 'static,
{
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(T::VARIANTS).try_map(|word| word.parse())
}

/// All flags of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunFlags {
    #[serde(flatten)]
    pub agent: AgentFlags,
    #[serde(flatten)]
    pub limits: LimitFlags,
    #[serde(flatten)]
    pub contract: ContractFlags,
}

impl RunFlags {
    /// Collects flags that the user typed. Relative paths become absolute, so that the run can be resumed from any
    /// directory.
    pub(crate) fn new(agent: &AgentFlags, limits: &LimitFlags, contract: &ContractFlags) -> Self {
        let mut flags = Self {
            agent: agent.clone(),
            limits: limits.clone(),
            contract: contract.clone(),
        };
        let paths = [
            &mut flags.agent.script,
            &mut flags.agent.record,
            &mut flags.agent.cassette,
            &mut flags.contract.patch,
        ];
        paths.into_iter().flatten().for_each(make_absolute);
        if let Some(schema) = flags
            .agent
            .json_schema
            .as_mut()
            .filter(|schema| !schema.trim_start().starts_with('{'))
            && let Ok(path) = std::path::absolute(&*schema)
        {
            *schema = path.display().to_string();
        }
        // The log stores the workspace separately.
        flags.agent.cd = None;
        flags
    }

    /// These flags with those of `above`, which take precedence.
    ///
    /// ```
    /// use windlass::flags::{AgentFlags, RunFlags};
    ///
    /// let model = |name: &str| RunFlags {
    ///     agent: AgentFlags { model: Some(name.into()), ..AgentFlags::default() },
    ///     ..RunFlags::default()
    /// };
    /// let both = model("small").overridden_by(&model("large"))?;
    /// assert_eq!(both.agent.model.as_deref(), Some("large"));
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn overridden_by(&self, above: &Self) -> Result<Self, Error> {
        Ok(Self {
            agent: over(&self.agent, &above.agent)?,
            limits: over(&self.limits, &above.limits)?,
            contract: over(&self.contract, &above.contract)?,
        })
    }

    /// The flags that were given, in the form of the log.
    pub fn save(&self) -> SavedFlags {
        given(self)
    }

    /// Reads flags from a log. A flag that this version does not know, or whose value was redacted, is an error: without
    /// that flag, the resumed run could have more permissions than the original one.
    pub fn load(saved: &SavedFlags) -> Result<Self, Error> {
        for (name, value) in saved.iter() {
            if value.to_string().contains(REDACTED) {
                return Err(refused(
                    name,
                    "but its value contains a secret and was not saved",
                ));
            }
            // Each flag is parsed separately, so that the message can name it.
            let one: SavedFlags = [(name.to_owned(), value.clone())].into_iter().collect();
            if read::<Self>(&one).is_err() {
                return Err(refused(
                    name,
                    "with a value that this version does not know",
                ));
            }
        }
        let flags: Self = read(saved)?;
        // Saving again reveals names and values that this version does not know: they are missing or different.
        let known = flags.save();
        match saved
            .iter()
            .find(|(name, value)| known.get(name) != Some(*value))
        {
            Some((name, _)) => Err(refused(name, "which this version does not know")),
            None => Ok(flags),
        }
    }

    /// The flags from a log that choose the agent and its model, without those that this version does not know. They
    /// apply to the next run of the session.
    pub fn load_model(saved: &SavedFlags) -> AgentFlags {
        const NAMES: [&str; 8] = [
            "runtime",
            "accept_ungated",
            "auth",
            "metering",
            "model",
            "provider",
            "base_url",
            "reasoning_effort",
        ];
        let named = NAMES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), saved.get(name)?.clone())));
        let known = named.filter(|flag| Self::load(&[flag.clone()].into_iter().collect()).is_ok());
        Self::load(&known.collect())
            .map(|flags| flags.agent)
            .unwrap_or_default()
    }

    /// The flags from a log for checks and landing, without those that this version does not know. They apply to the
    /// next run of the session.
    pub fn load_contract(saved: &SavedFlags) -> ContractFlags {
        let of_contract = saved.iter().filter(|(name, value)| {
            let one: SavedFlags = [((*name).to_owned(), (*value).clone())]
                .into_iter()
                .collect();
            Self::load(&one).is_ok_and(|flags| given(&flags.contract).iter().next().is_some())
        });
        let known = of_contract.map(|(name, value)| (name.to_owned(), value.clone()));
        Self::load(&known.collect())
            .map(|flags| flags.contract)
            .unwrap_or_default()
    }

    /// Removes flags from those with which a run was started.
    pub fn unset(saved: &mut SavedFlags, unset: &[String]) -> Result<(), Error> {
        for flag in unset {
            let name = flag.trim_start_matches('-').replace('-', "_");
            if !saved.unset(&name) {
                let all: Vec<String> = saved.iter().map(|(name, _)| typed(name)).collect();
                let all = if all.is_empty() {
                    "no flags".to_owned()
                } else {
                    all.join(", ")
                };
                return Err(
                    Error::usage(format!("the run was not started with {}", typed(&name)))
                        .hint(format!("it was started with {all}")),
                );
            }
        }
        Ok(())
    }

    /// The flags for resuming a run: those with which it was started, without the `unset` ones, overridden by those that
    /// the user typed now.
    pub fn resumed(
        mut saved: SavedFlags,
        unset: &[String],
        agent: &AgentFlags,
        limits: &LimitFlags,
        workspace: &Path,
    ) -> Result<Self, Error> {
        Self::unset(&mut saved, unset)?;
        let mut flags = Self::load(
            &saved
                .overridden_by(given(agent))
                .overridden_by(given(limits)),
        )?;
        flags.agent.cd = Some(workspace.to_path_buf());
        Ok(flags)
    }
}

/// Merges two sets of flags. Flags in `above` take precedence.
pub fn over<T: Serialize + DeserializeOwned>(below: &T, above: &T) -> Result<T, Error> {
    read(&given(below).overridden_by(given(above)))
}

fn make_absolute(path: &mut PathBuf) {
    if let Ok(absolute) = std::path::absolute(&*path) {
        *path = absolute;
    }
}

/// The flags of a set that differ from their default.
fn given<T: Serialize>(set: &T) -> SavedFlags {
    let was_given = |value: &Value| match value {
        Value::Null | Value::Bool(false) | Value::Object(_) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => true,
    };
    let flags = match serde_json::to_value(set) {
        Ok(Value::Object(flags)) => flags,
        _ => serde_json::Map::new(),
    };
    flags
        .into_iter()
        .filter(|(_, value)| was_given(value))
        .collect()
}

/// Deserializes one set of flags.
fn read<T: DeserializeOwned>(saved: &SavedFlags) -> Result<T, Error> {
    let read = serde_json::to_value(saved).and_then(serde_json::from_value);
    read.map_err(|err| {
        Error::usage(format!("the flags of this run cannot be read: {err}"))
            .hint("start a new run with the prompt and the flags")
    })
}

fn refused(name: &str, why: &str) -> Error {
    let flag = typed(name);
    Error::usage(format!("this run was started with {flag}, {why}")).hint(format!(
        "resume it without that flag (`--unset {name}`), or start a new run with the prompt and the flags"
    ))
}

/// A flag as the user types it, in backticks.
fn typed(name: &str) -> String {
    format!("`--{}`", name.replace('_', "-"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn saved(text: &str) -> SavedFlags {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn only_given_flags_are_saved_and_restored() {
        let agent = AgentFlags {
            model: Some("m".into()),
            yes: true,
            ..AgentFlags::default()
        };
        let contract = ContractFlags {
            validate: vec!["make".into()],
            ..ContractFlags::default()
        };
        let flags = RunFlags::new(&agent, &LimitFlags::default(), &contract).save();
        assert_eq!(
            serde_json::to_string(&flags).unwrap(),
            r#"{"model":"m","validate":["make"],"yes":true}"#
        );
        let now = AgentFlags {
            model: Some("n".into()),
            ..AgentFlags::default()
        };
        let back =
            RunFlags::resumed(flags, &[], &now, &LimitFlags::default(), Path::new("/w")).unwrap();
        assert_eq!(
            (back.agent.model.as_deref(), back.agent.yes),
            (Some("n"), true)
        );
        assert_eq!(back.contract.validate, ["make"]);
        assert!(RunFlags::default().save().is_empty());
    }

    #[test]
    fn each_typed_flag_is_restored() {
        let text = r#"{"approval":"edit","auth":"login","max_budget_usd":0.5,"max_iterations":2,"max_seconds":"unlimited","max_steps":3,"max_tokens":9,"metering":"reported","on_ask":"deny","sandbox":"read-only"}"#;
        let flags = RunFlags::load(&saved(text)).unwrap();
        assert_eq!(flags.agent.metering, Some(MeteringKind::Reported));
        assert_eq!(flags.limits.max_seconds, Some(Cap::Unlimited));
        assert_eq!(flags.contract.max_iterations, Some(Cap::At(2)));
        assert_eq!(serde_json::to_string(&flags.save()).unwrap(), text);
        let model = RunFlags::load_model(&saved(text));
        let expect = (Some(SignIn::Login), None);
        assert_eq!((model.auth, model.approval), expect);
    }

    #[test]
    fn a_limit_is_a_number_or_unlimited() {
        assert_eq!("7".parse(), Ok(Cap::At(7_u64)));
        assert_eq!("unlimited".parse(), Ok(Cap::<u64>::Unlimited));
        assert_eq!("0.5".parse(), Ok(Cap::At(0.5)));
        let error = "0.5".parse::<Cap<u64>>().unwrap_err();
        assert!(
            error.contains("whole number") && error.contains("unlimited"),
            "{error}"
        );
        assert!("many".parse::<Cap<f64>>().is_err());
    }

    #[track_caller]
    fn check_unset(flags: &[&str], expect: Result<bool, &str>) {
        let unset: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let start = saved(r#"{"max_steps":3,"yes":true}"#);
        let resumed = RunFlags::resumed(
            start,
            &unset,
            &AgentFlags::default(),
            &LimitFlags::default(),
            Path::new("/w"),
        );
        match (resumed, expect) {
            (Ok(flags), Ok(yes)) => assert_eq!(flags.agent.yes, yes),
            (Err(failure), Err(text)) => {
                assert!(format!("{failure:?}").contains(text), "{failure:?}")
            }
            (got, expect) => panic!("{got:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn a_flag_can_be_unset() {
        check_unset(&[], Ok(true));
        check_unset(&["yes"], Ok(false));
        check_unset(&["--yes", "--max-steps"], Ok(false));
        check_unset(&["model"], Err("`--max-steps`, `--yes`"));
    }

    #[test]
    fn an_unknown_flag_refuses_the_run_unless_it_is_unset() {
        let newer = saved(r#"{"model":"m","unheard_of":1}"#);
        assert!(RunFlags::load(&newer).is_err());
        assert_eq!(RunFlags::load_model(&newer).model.as_deref(), Some("m"));
        let unset = ["unheard-of".to_owned()];
        assert!(
            RunFlags::resumed(
                newer,
                &unset,
                &AgentFlags::default(),
                &LimitFlags::default(),
                Path::new("/w")
            )
            .is_ok()
        );
        for strange in [
            r#"{"model":1}"#,
            r#"{"yes":"maybe"}"#,
            r#"{"metering":"guessed"}"#,
            r#"{"sandbox":"none"}"#,
            r#"{"max_steps":"3"}"#,
            r#"{"model":"[redacted by windlass: secret]"}"#,
        ] {
            assert!(RunFlags::load(&saved(strange)).is_err(), "{strange}");
        }
    }
}
