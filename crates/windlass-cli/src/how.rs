//! How a run was asked for, in the words that were typed: kept with the run in its log, so that whoever goes on with it
//! need not say them again.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::args::{AgentArgs, ContractArgs, LimitArgs};

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

    /// What the log says; what an older or newer version wrote and nobody knows counts as not said.
    pub(crate) fn from_log(value: Option<&Value>) -> Self {
        value.and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
    }

    /// What was said then, under what is said now, in this workspace.
    pub(crate) fn under(self, agent: &AgentArgs, limits: &LimitArgs, workspace: &Path) -> Self {
        let agent = AgentArgs { cd: Some(workspace.to_path_buf()), ..over(&self.agent, agent) };
        Self { agent, limits: over(&self.limits, limits), contract: self.contract }
    }

    /// Of what was said then only who is asked: another run is another decision about what it may do.
    pub(crate) fn model_alone(&self) -> AgentArgs {
        let AgentArgs { model, provider, base_url, reasoning_effort, .. } = self.agent.clone();
        AgentArgs { model, provider, base_url, reasoning_effort, ..AgentArgs::default() }
    }
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
        let back = How::from_log(Some(&value)).under(&now, &LimitArgs::default(), Path::new("/w"));
        assert_eq!((back.agent.model.as_deref(), back.agent.yes), (Some("n"), true));
        assert_eq!(back.contract.validate, ["make"]);
        assert_eq!(How::default().to_value(), None);
        let newer = serde_json::json!({"agent": {"model": "m", "unheard_of": 1}, "other": {}});
        assert_eq!(How::from_log(Some(&newer)).agent.model.as_deref(), Some("m"));
    }
}
