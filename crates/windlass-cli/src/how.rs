//! How a run was asked for, in the words that were typed: kept with the run in its log, so that whoever goes on with it
//! need not say them again.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use windlass_core::workspace::REDACTED;

use crate::args::{AgentArgs, ContractArgs, LimitArgs};
use crate::failure::Failure;

/// The flags of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct How {
    pub(crate) agent: AgentArgs,
    pub(crate) limits: LimitArgs,
    pub(crate) contract: ContractArgs,
}

impl How {
    /// What was typed now, in a form that means the same from everywhere.
    pub(crate) fn of(agent: &AgentArgs, limits: &LimitArgs, contract: &ContractArgs) -> Self {
        let mut how = Self { agent: agent.clone(), limits: limits.clone(), contract: contract.clone() };
        let absolute = |path: &mut Option<PathBuf>| {
            if let Some(path) = path
                && let Ok(whole) = std::path::absolute(&*path)
            {
                *path = whole;
            }
        };
        for path in [&mut how.agent.script, &mut how.agent.record, &mut how.agent.cassette, &mut how.contract.patch] {
            absolute(path);
        }
        if let Some(schema) = how.agent.json_schema.as_mut().filter(|schema| !schema.trim_start().starts_with('{'))
            && let Ok(whole) = std::path::absolute(&*schema)
        {
            *schema = whole.display().to_string();
        }
        // Where it works stands in the log already.
        how.agent.cd = None;
        how
    }

    /// For the log: only what was said.
    pub(crate) fn to_value(&self) -> Option<Value> {
        let mut value = serde_json::to_value(self).ok()?;
        prune(&mut value);
        value.as_object().is_some_and(|all| !all.is_empty()).then_some(value)
    }

    /// What the log says. A run does not go on under terms that are not wholly understood, or whose secrets are not
    /// kept: what is left of them may be looser than what was said.
    pub(crate) fn from_log(value: Option<&Value>) -> Result<Self, Failure> {
        let Some(value) = value else { return Ok(Self::default()) };
        let hint = "say anew what is to be done, with the flags: `windlass resume SESSION \"WORDS\"`";
        let refused = |what: String| Failure::usage(what).hint(hint);
        if holds_secret(value) {
            return Err(refused("a flag of this run holds a secret, which is not kept, so it cannot go on".into()));
        }
        let how: Self = serde_json::from_value(value.clone()).map_err(|err| {
            refused(format!("this run was started with flags that are not known here: {err}: {value}"))
        })?;
        let known = serde_json::to_value(&how).unwrap_or_default();
        match unknown("how", value, &known) {
            None => Ok(how),
            Some(flag) => Err(refused(format!("this run was started with a flag that is not known here: `{flag}`"))),
        }
    }

    /// Who was asked, as far as the log says so in words of today: enough for another run.
    pub(crate) fn model_from_log(value: Option<&Value>) -> AgentArgs {
        let text = |flag: &str| {
            let said = value?.get("agent")?.get(flag)?.as_str()?;
            (!said.contains(REDACTED)).then(|| said.to_owned())
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

    /// What was said then, under what is said now, in this workspace.
    pub(crate) fn under(self, agent: &AgentArgs, limits: &LimitArgs, workspace: &Path) -> Self {
        let agent = AgentArgs { cd: Some(workspace.to_path_buf()), ..over(&self.agent, agent) };
        Self { agent, limits: over(&self.limits, limits), contract: self.contract }
    }
}

/// Whether words stand in the place of a secret.
fn holds_secret(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(REDACTED),
        Value::Array(items) => items.iter().any(holds_secret),
        Value::Object(map) => map.values().any(holds_secret),
        _ => false,
    }
}

/// The first flag of one object that another does not have.
fn unknown(name: &str, value: &Value, known: &Value) -> Option<String> {
    let Value::Object(known) = known else { return None };
    let Value::Object(value) = value else { return Some(name.to_owned()) };
    value.iter().find_map(|(name, value)| match known.get(name) {
        None => Some(name.clone()),
        Some(known) => unknown(name, value, known),
    })
}

/// One set of flags over another: what is said in the second counts.
pub(crate) fn over<T: Serialize + for<'de> Deserialize<'de> + Clone>(below: &T, above: &T) -> T {
    let object = |flags: &T| {
        let mut value = serde_json::to_value(flags).unwrap_or_default();
        prune(&mut value);
        match value {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    };
    let mut all = object(below);
    all.extend(object(above));
    serde_json::from_value(Value::Object(all)).unwrap_or_else(|_| above.clone())
}

/// Takes out what nobody said.
fn prune(value: &mut Value) {
    let Value::Object(map) = value else { return };
    map.retain(|_, value| {
        prune(value);
        match value {
            Value::Null | Value::Bool(false) => false,
            Value::Array(items) => !items.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        }
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_said_is_kept_and_comes_back() {
        let agent = AgentArgs { model: Some("m".into()), yes: true, ..AgentArgs::default() };
        let contract = ContractArgs { validate: vec!["make".into()], ..ContractArgs::default() };
        let how = How::of(&agent, &LimitArgs::default(), &contract);
        let value = how.to_value().unwrap();
        assert_eq!(value.to_string(), r#"{"agent":{"model":"m","yes":true},"contract":{"validate":["make"]}}"#);
        let now = AgentArgs { model: Some("n".into()), ..AgentArgs::default() };
        let back = How::from_log(Some(&value)).unwrap().under(&now, &LimitArgs::default(), Path::new("/w"));
        assert_eq!((back.agent.model.as_deref(), back.agent.yes), (Some("n"), true));
        assert_eq!(back.contract.validate, ["make"]);
        assert_eq!(How::default().to_value(), None);
        let newer = serde_json::json!({"agent": {"model": "m", "unheard_of": 1}, "other": {}});
        assert!(How::from_log(Some(&newer)).is_err());
        assert_eq!(How::model_from_log(Some(&newer)).model.as_deref(), Some("m"));
        for strange in
            [serde_json::json!([]), serde_json::json!({"agent": 1}), serde_json::json!({"agent": {"model": {}}})]
        {
            assert!(How::from_log(Some(&strange)).is_err(), "{strange}");
            assert_eq!(How::model_from_log(Some(&strange)).model, None, "{strange}");
        }
    }
}
