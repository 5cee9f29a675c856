//! Explains the decision of the gate about one call: the decision of every stage, and what the call would touch.
//!
//! ```
//! use windlass::machine::Root;
//! use windlass::policy::{ExplainOptions, ExplainedStage, PolicyEval, PolicyExplanation, call_arguments};
//! use windlass::settings::Settings;
//!
//! let dir = tempfile::tempdir()?;
//! let settings = Settings::none(&dir.path().join(".data"));
//! let eval = PolicyEval::new(Root::open(dir.path())?, settings)?;
//! let options = ExplainOptions { in_place: true, approval: None };
//! let explained: PolicyExplanation = eval.explain("bash", "make", &options)?;
//! assert_eq!(explained.decision.verdict.to_string(), "ask");
//! let stages: &[ExplainedStage] = &explained.stages;
//! assert!(stages.iter().any(|stage| stage.stage == "capability"));
//!
//! let args = call_arguments(eval.tool("read_file")?.as_ref(), "notes.txt")?;
//! assert_eq!(args["path"], "notes.txt");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use windlass_core::gate::{CallProtection, Decision, Mode};
use windlass_core::terms::Isolation;
use windlass_core::tool::{Tool, Touch};

use super::PolicyEval;
use crate::error::Error;

/// The run in which the call is judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExplainOptions {
    /// The run works in place, and not on an isolated copy.
    pub in_place: bool,
    /// The approval mode; `None` for that of the settings.
    pub approval: Option<Mode>,
}

/// The decision about a call, with every stage that led to it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PolicyExplanation {
    /// In the order in which they are evaluated.
    pub stages: Vec<ExplainedStage>,
    /// The paths, commands and hosts that the call would touch; empty if the tool rejects its arguments.
    pub touches: Vec<Touch>,
    pub mode: Mode,
    /// The run in which the call is judged, in words.
    pub capability: String,
    pub decision: Decision,
}

/// A stage of the gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExplainedStage {
    /// The name of the stage.
    pub stage: &'static str,
    /// The decision of the stage; `None` if it does not apply to the call.
    pub says: Option<Decision>,
}

impl PolicyEval {
    /// Explains the decision about a call of a tool. The arguments are in the form of [`call_arguments`].
    pub fn explain(
        &self,
        tool: &str,
        args: &str,
        options: &ExplainOptions,
    ) -> Result<PolicyExplanation, Error> {
        let place = CallProtection {
            isolation: Isolation::from_flag(!options.in_place),
            sandboxed: self.sandboxed,
            has_jobs: false,
        };
        let mut gate = self.gate(place.isolation)?;
        gate.mode = options.approval.unwrap_or(gate.mode);
        let tool = self.tool(tool)?.as_ref();
        let judged = self.judge(&gate, tool, &call_arguments(tool, args)?, place);
        let stages = judged.stages.into_iter().map(|stage| ExplainedStage {
            stage: stage.name,
            says: stage.says,
        });
        Ok(PolicyExplanation {
            stages: stages.collect(),
            touches: judged.touches,
            mode: gate.mode,
            capability: capability(gate.mode, place),
            decision: judged.decision,
        })
    }
}

fn capability(mode: Mode, place: CallProtection) -> String {
    let (tree, flag) = match place.isolation.is_isolated() {
        true => ("on a private copy", ""),
        false => ("in place", " --in-place"),
    };
    let sandbox = match place.sandboxed {
        true => "in a kernel sandbox",
        false => "with no kernel sandbox",
    };
    format!("as `windlass run{flag}`: mode {mode}, {tree}, {sandbox}")
}

/// Parses the arguments of a call: a JSON object, or only the command, the path or the pattern.
pub fn call_arguments(tool: &dyn Tool, text: &str) -> Result<Value, Error> {
    let properties = &tool.spec().schema["properties"];
    if text.trim_start().starts_with('{') {
        match serde_json::from_str(text) {
            Ok(args) => return Ok(args),
            // A shell command can begin with a brace, too.
            Err(_) if properties.get("command").is_some() => {}
            Err(err) => return Err(Error::usage(format!("the arguments are not JSON: {err}"))),
        }
    }
    let key = ["command", "path", "pattern"]
        .into_iter()
        .find(|key| properties.get(key).is_some());
    if text.is_empty() {
        return Ok(json!({}));
    }
    let Some(key) = key else {
        let name = &tool.spec().name;
        return Err(
            Error::usage(format!("`{name}` takes neither a command nor a path"))
                .hint("write its arguments as JSON; `windlass tools NAME` shows their schema"),
        );
    };
    let mut args = json!({ key: text });
    // The gate does not judge contents, so required texts may be empty.
    for needed in tool.spec().schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if args.get(needed).is_none() && properties[needed]["type"] == "string" {
            args[needed] = json!("");
        }
    }
    Ok(args)
}
