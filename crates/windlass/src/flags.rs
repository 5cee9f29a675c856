//! The flags of a run, as they were typed. The log keeps them with the run, so that it can be resumed without them.
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

/// The heading of flags about what calls may do.
#[cfg(feature = "clap")]
const PERMISSIONS: &str = "Permissions";

/// Who works, where, and how freely.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", command(next_help_heading = "Agent and model"))]
#[serde(default)]
pub struct AgentFlags {
    /// How to work: plan, review, implement, verify, or a profile of the settings
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub profile: Option<String>,
    /// Who works: a name of `windlass runtimes`, acp:COMMAND, or auto for the first that can; auto:NEED,… names what it
    /// has to be able to do [default: native]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub runtime: Option<String>,
    /// The model, as `model` or `vendor/model`
    #[cfg_attr(feature = "clap", arg(short, long))]
    pub model: Option<String>,
    /// The vendor that serves it
    #[cfg_attr(feature = "clap", arg(long))]
    pub provider: Option<String>,
    /// Another address of that vendor, or of any compatible server
    #[cfg_attr(feature = "clap", arg(long, value_name = "URL"))]
    pub base_url: Option<String>,
    /// Play a scripted model from this file (TOML or JSON lines)
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", conflicts_with_all = ["provider", "base_url"]))]
    pub script: Option<PathBuf>,
    /// Take down every exchange with the model server in this file, without keys
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "FILE", conflicts_with = "script")
    )]
    pub record: Option<PathBuf>,
    /// Play exchanges that were taken down, in the place of the model server
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", conflicts_with_all = ["script", "record"]))]
    pub cassette: Option<PathBuf>,
    /// How a foreign agent signs in to its model: with your key, which it never sees, or with its own login
    #[cfg_attr(feature = "clap", arg(long, value_name = "HOW", value_parser = one_of::<SignIn>()))]
    pub auth: Option<SignIn>,
    /// How it is known what a foreign agent spends: wire, reported (by itself) or none [default: wire]
    #[cfg_attr(feature = "clap", arg(long, value_name = "HOW", value_parser = one_of::<MeteringKind>()))]
    pub metering: Option<MeteringKind>,
    /// Start an agent whose calls cannot be judged one by one, although rules or the approval mode ask for it. Calls and
    /// changes are compared with the rules afterwards, and a run that breaks one does not land
    #[cfg_attr(feature = "clap", arg(long, help_heading = PERMISSIONS))]
    pub accept_ungated: bool,
    /// Step down from the work to a patch to an answer, where the runtime cannot do more
    #[cfg_attr(feature = "clap", arg(long))]
    pub fallback: bool,
    /// Work in this directory
    #[cfg_attr(feature = "clap", arg(short = 'C', long, value_name = "DIR"))]
    pub cd: Option<PathBuf>,
    /// How freely calls run: plan, ask, edit or auto
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "MODE", help_heading = PERMISSIONS)
    )]
    pub approval: Option<Mode>,
    /// Answer yes to what a flag may answer; what needs a person still asks
    #[cfg_attr(feature = "clap", arg(short, long, help_heading = PERMISSIONS))]
    pub yes: bool,
    /// What commands may do: read-only, workspace-write, or full (no sandbox at all) [default: workspace-write]
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "LEVEL", value_parser = one_of::<SandboxLevel>(), help_heading = PERMISSIONS))]
    pub sandbox: Option<SandboxLevel>,
    /// What commands reach: off, loopback, registries, allow:HOST,… or open [default: loopback]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "WHAT", help_heading = PERMISSIONS)
    )]
    pub net: Option<String>,
    /// How hard to think: low, medium, high, or what the model knows
    #[cfg_attr(feature = "clap", arg(long, value_name = "LEVEL"))]
    pub reasoning_effort: Option<String>,
    /// The answer must be JSON that fits this schema (a file, or the schema itself)
    #[cfg_attr(feature = "clap", arg(long, value_name = "SCHEMA"))]
    pub json_schema: Option<String>,
    /// When nobody is there to answer: pause (exit code 5) or deny
    #[cfg_attr(feature = "clap", arg(long, value_name = "WHAT", value_parser = one_of::<AskPolicy>(), help_heading = PERMISSIONS))]
    pub on_ask: Option<AskPolicy>,
}

/// What a run may spend. A number, or `unlimited`.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", command(next_help_heading = "Limits"))]
#[serde(default)]
pub struct LimitFlags {
    /// Most money, in US dollars [default: 10]
    #[cfg_attr(feature = "clap", arg(long, value_name = "USD"))]
    pub max_budget_usd: Option<Cap<f64>>,
    /// Most model calls [default: 50]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub max_steps: Option<Cap<u64>>,
    /// Most tokens [default: 500000; 2000000 where nothing is cached]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub max_tokens: Option<Cap<u64>>,
    /// Most seconds, without waiting for a person [default: 3600]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub max_seconds: Option<Cap<f64>>,
}

/// What must hold before changes land, and how they land.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
#[cfg_attr(feature = "clap", command(next_help_heading = "Checks and landing"))]
pub struct ContractFlags {
    /// A command that must succeed before anything lands, the name of a validator, or `none`; may be given more than
    /// once [default: what is found in the project]
    #[cfg_attr(feature = "clap", arg(long, value_name = "COMMAND"))]
    pub validate: Vec<String>,
    /// Make a commit of what lands, with this message or the prompt
    #[cfg_attr(feature = "clap", arg(long, value_name = "MESSAGE", num_args = 0..=1, require_equals = true, default_missing_value = ""))]
    pub commit: Option<String>,
    /// Write a patch file and leave the tree as it is
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "FILE", conflicts_with = "commit")
    )]
    pub patch: Option<PathBuf>,
    /// Land although other files were changed meanwhile, without checking again
    #[cfg_attr(feature = "clap", arg(long))]
    pub land_anyway: bool,
    /// Fail if no file was changed
    #[cfg_attr(feature = "clap", arg(long))]
    pub require_changes: bool,
    /// Changed tests, scripts and settings of the checks are a failure
    #[cfg_attr(feature = "clap", arg(long))]
    pub strict_judge: bool,
    /// Run the checks with ignored files, such as build outputs, as the run left them; they do not land
    #[cfg_attr(feature = "clap", arg(long))]
    pub keep_ignored: bool,
    /// Land although detected checks fail, if they failed in the same way before the run
    #[cfg_attr(feature = "clap", arg(long))]
    pub accept_preexisting: bool,
    /// Only these paths may be changed, as in an ignore file; may be given more than once
    #[cfg_attr(feature = "clap", arg(long, value_name = "GLOB"))]
    pub write_path: Option<Vec<String>>,
    /// Most tries until the checks pass [default: 5]
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

/// The treatment of an ask where no person is there.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::Display,
    EnumString,
    VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AskPolicy {
    /// The run stops and stays open.
    Pause,
    /// The call is denied.
    Deny,
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cap<N> {
    /// There is none.
    Unlimited,
    /// This much.
    #[serde(untagged)]
    At(N),
}

impl<N: FromStr> FromStr for Cap<N> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unlimited" => Ok(Self::Unlimited),
            text => text.parse().map(Self::At).map_err(|_| {
                "must be a number above zero, or \"unlimited\"; steps, tokens and tries are whole numbers".into()
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

/// Reads a flag that is one of a few words.
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

/// The flags of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunFlags {
    /// The agent, its model and how freely it works.
    #[serde(flatten)]
    pub agent: AgentFlags,
    /// Limits of a run.
    #[serde(flatten)]
    pub limits: LimitFlags,
    /// Checks and landing.
    #[serde(flatten)]
    pub contract: ContractFlags,
}

impl RunFlags {
    /// The flags that were typed now, with paths that mean the same from every directory.
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
        // The log names the workspace.
        flags.agent.cd = None;
        flags
    }

    /// The flags that were given, for the log.
    pub fn save(&self) -> SavedFlags {
        given(self)
    }

    /// Reads flags of the log. A run is not resumed with a flag that is unknown here, or whose value was redacted:
    /// without it the run could be looser than it was.
    pub fn load(saved: &SavedFlags) -> Result<Self, Error> {
        for (name, value) in saved.iter() {
            if value.to_string().contains(REDACTED) {
                return Err(refused(name, "whose value holds a secret and is not kept"));
            }
            // One by one, so that the message names the flag.
            let one: SavedFlags = [(name.to_owned(), value.clone())].into_iter().collect();
            if read::<Self>(&one).is_err() {
                return Err(refused(name, "whose value this version does not know"));
            }
        }
        let flags: Self = read(saved)?;
        // A name or a value that this version does not know is not saved again as it was.
        let known = flags.save();
        match saved
            .iter()
            .find(|(name, value)| known.get(name) != Some(*value))
        {
            Some((name, _)) => Err(refused(name, "which this version does not know")),
            None => Ok(flags),
        }
    }

    /// The flags that say who works, as far as they are known here: enough for another run.
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

    /// The flags that say how another run of a session is judged and lands, as far as they are known here.
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

    /// Takes flags away that a run was started with.
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

    /// The flags to resume a run with: those it was started with, without the ones that are unset, and with those that
    /// were typed now on top.
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

/// One set of flags on top of another.
pub fn over<T: Serialize + DeserializeOwned>(below: &T, above: &T) -> Result<T, Error> {
    read(&given(below).overridden_by(given(above)))
}

fn make_absolute(path: &mut PathBuf) {
    if let Ok(absolute) = std::path::absolute(&*path) {
        *path = absolute;
    }
}

/// The flags of a set that were given.
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

/// Reads the flags of one set.
fn read<T: DeserializeOwned>(saved: &SavedFlags) -> Result<T, Error> {
    let read = serde_json::to_value(saved).and_then(serde_json::from_value);
    read.map_err(|err| {
        Error::usage(format!("the flags of this run cannot be read: {err}"))
            .hint("give the prompt and the flags anew")
    })
}

fn refused(name: &str, why: &str) -> Error {
    let flag = typed(name);
    Error::usage(format!("this run was started with {flag}, {why}")).hint(format!(
        "resume it without that flag (`--unset {name}`), or give the prompt and the flags anew"
    ))
}

/// A flag as it is typed.
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
    fn only_given_flags_are_saved_and_come_back() {
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
    fn each_typed_flag_comes_back() {
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
