//! The flags of a run, as they were typed. The log keeps them with the run, so that it can be resumed without them.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use windlass_core::flags::{FlagValue, SavedFlags};
use windlass_core::workspace::REDACTED;

use crate::args::{AgentArgs, ContractArgs, LimitArgs};
use crate::failure::Failure;

/// The flags of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunFlags {
    pub(crate) agent: AgentArgs,
    pub(crate) limits: LimitArgs,
    pub(crate) contract: ContractArgs,
}

impl RunFlags {
    /// The flags that were typed now, with paths that mean the same from every directory.
    pub(crate) fn new(agent: &AgentArgs, limits: &LimitArgs, contract: &ContractArgs) -> Self {
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
    pub(crate) fn save(&self) -> SavedFlags {
        given(&self.agent)
            .overridden_by(given(&self.limits))
            .overridden_by(given(&self.contract))
    }

    /// Reads flags of the log. A run is not resumed with a flag that is unknown here, or whose value was redacted:
    /// without it the run could be looser than it was.
    pub(crate) fn load(saved: &SavedFlags) -> Result<Self, Failure> {
        let (agent, limits, contract) = (
            names::<AgentArgs>(),
            names::<LimitArgs>(),
            names::<ContractArgs>(),
        );
        let known = |name: &str| {
            [&agent, &limits, &contract]
                .into_iter()
                .any(|names| names.contains_key(name))
        };
        for (name, value) in saved.iter() {
            if !known(name) || matches!(value, FlagValue::Other(_)) {
                return Err(refused(name, "which this version does not know"));
            }
            if texts(value).any(|text| text.contains(REDACTED)) {
                return Err(refused(name, "whose value holds a secret and is not kept"));
            }
        }
        Ok(Self {
            agent: read(saved, &agent)?,
            limits: read(saved, &limits)?,
            contract: read(saved, &contract)?,
        })
    }

    /// The flags that say who works, as far as they are known here: enough for another run.
    pub(crate) fn load_model(saved: &SavedFlags) -> AgentArgs {
        let text = |flag: &str| match saved.get(flag) {
            Some(FlagValue::Text(text)) if !text.contains(REDACTED) => Some(text.clone()),
            _ => None,
        };
        AgentArgs {
            runtime: text("runtime"),
            auth: text("auth"),
            metering: text("metering"),
            model: text("model"),
            provider: text("provider"),
            base_url: text("base_url"),
            reasoning_effort: text("reasoning_effort"),
            ..AgentArgs::default()
        }
    }

    /// The flags to resume a run with: those it was started with, without the ones that are unset, and with those that
    /// were typed now on top.
    pub(crate) fn resumed(
        mut saved: SavedFlags,
        unset: &[String],
        agent: &AgentArgs,
        limits: &LimitArgs,
        workspace: &Path,
    ) -> Result<Self, Failure> {
        for flag in unset {
            let name = flag.trim_start_matches('-').replace('-', "_");
            if !saved.unset(&name) {
                let all: Vec<String> = saved.iter().map(|(name, _)| typed(name)).collect();
                let all = if all.is_empty() {
                    "no flags".to_owned()
                } else {
                    all.join(", ")
                };
                return Err(Failure::usage(format!(
                    "the run was not started with {}",
                    typed(&name)
                ))
                .hint(format!("it was started with {all}")));
            }
        }
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
pub(crate) fn over<T: Serialize + DeserializeOwned + Default>(
    below: &T,
    above: &T,
) -> Result<T, Failure> {
    read(&given(below).overridden_by(given(above)), &names::<T>())
}

fn make_absolute(path: &mut PathBuf) {
    if let Ok(absolute) = std::path::absolute(&*path) {
        *path = absolute;
    }
}

/// The flags of a set that were given.
fn given<T: Serialize>(set: &T) -> SavedFlags {
    object(set)
        .into_iter()
        .filter_map(|(name, value)| Some((name, flag_value(value)?)))
        .collect()
}

/// The names of the flags of a set.
fn names<T: Serialize + Default>() -> Map<String, Value> {
    object(&T::default())
}

fn object<T: Serialize>(set: &T) -> Map<String, Value> {
    match serde_json::to_value(set) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// None for a flag that was not given.
fn flag_value(value: Value) -> Option<FlagValue> {
    match value {
        Value::Null | Value::Bool(false) | Value::Object(_) => None,
        Value::Bool(true) => Some(FlagValue::Switch(true)),
        Value::Number(number) => Some(
            number
                .as_u64()
                .map_or_else(|| FlagValue::Text(number.to_string()), FlagValue::Number),
        ),
        Value::String(text) => Some(FlagValue::Text(text)),
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => Some(FlagValue::List(
            items
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        )),
    }
}

/// Reads the flags of one set.
fn read<T: DeserializeOwned>(saved: &SavedFlags, names: &Map<String, Value>) -> Result<T, Failure> {
    let own = saved.iter().filter(|(name, _)| names.contains_key(*name));
    let own = own
        .map(|(name, value)| {
            (
                name.to_owned(),
                serde_json::to_value(value).unwrap_or_default(),
            )
        })
        .collect();
    serde_json::from_value(Value::Object(own)).map_err(|err| {
        Failure::usage(format!("the flags of this run cannot be read: {err}"))
            .hint("give the prompt and the flags anew")
    })
}

fn texts(value: &FlagValue) -> impl Iterator<Item = &String> {
    match value {
        FlagValue::Text(text) => std::slice::from_ref(text).iter(),
        FlagValue::List(texts) => texts.iter(),
        FlagValue::Switch(_) | FlagValue::Number(_) | FlagValue::Other(_) => [].iter(),
    }
}

fn refused(name: &str, why: &str) -> Failure {
    let flag = typed(name);
    Failure::usage(format!("this run was started with {flag}, {why}")).hint(format!(
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
        let agent = AgentArgs {
            model: Some("m".into()),
            yes: true,
            ..AgentArgs::default()
        };
        let contract = ContractArgs {
            validate: vec!["make".into()],
            ..ContractArgs::default()
        };
        let flags = RunFlags::new(&agent, &LimitArgs::default(), &contract).save();
        assert_eq!(
            serde_json::to_string(&flags).unwrap(),
            r#"{"model":"m","validate":["make"],"yes":true}"#
        );
        let now = AgentArgs {
            model: Some("n".into()),
            ..AgentArgs::default()
        };
        let back =
            RunFlags::resumed(flags, &[], &now, &LimitArgs::default(), Path::new("/w")).unwrap();
        assert_eq!(
            (back.agent.model.as_deref(), back.agent.yes),
            (Some("n"), true)
        );
        assert_eq!(back.contract.validate, ["make"]);
        assert!(RunFlags::default().save().is_empty());
    }

    #[track_caller]
    fn check_unset(flags: &[&str], expect: Result<bool, &str>) {
        let unset: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let start = saved(r#"{"max_steps":"3","yes":true}"#);
        let resumed = RunFlags::resumed(
            start,
            &unset,
            &AgentArgs::default(),
            &LimitArgs::default(),
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
                &AgentArgs::default(),
                &LimitArgs::default(),
                Path::new("/w")
            )
            .is_ok()
        );
        for strange in [
            r#"{"model":1}"#,
            r#"{"yes":"maybe"}"#,
            r#"{"model":"[redacted by windlass: secret]"}"#,
        ] {
            assert!(RunFlags::load(&saved(strange)).is_err(), "{strange}");
        }
    }
}
