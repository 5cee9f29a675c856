//! Evaluates the gate for a call, stage by stage, with the settings and tools of a workspace, without running the call.
//!
//! ```
//! use serde_json::json;
//! use windlass::core::gate::{CallProtection, Verdict};
//! use windlass::core::terms::Isolation;
//! use windlass::machine::Root;
//! use windlass::policy::{JudgedCall, PolicyEval};
//! use windlass::settings::Settings;
//!
//! let dir = tempfile::tempdir()?;
//! let settings = Settings::none(&dir.path().join(".data"));
//! let eval = PolicyEval::new(Root::open(dir.path())?, settings)?;
//! let place = CallProtection { isolation: Isolation::InPlace, sandboxed: eval.sandboxed, has_jobs: false };
//! let (gate, tool) = (eval.gate(place.isolation)?, eval.tool("bash")?);
//! let judged: JudgedCall = eval.judge(&gate, tool.as_ref(), &json!({ "command": "make" }), place);
//! assert_eq!(judged.decision.verdict, Verdict::Ask);
//! assert!(eval.tool("bahs").is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod explanation;

use std::sync::Arc;

use serde_json::Value;
use windlass_core::ask::{Answer, Question};
use windlass_core::gate::{
    CallProtection, Decision, GateStage, Mode, PermissionGate, Proposal, Verdict,
};
use windlass_core::message::ErrorCategory;
use windlass_core::terms::Isolation;
use windlass_core::tool::{CallOutput, Tool, ToolCtx, ToolFailure, ToolSet, Touch, canonical_name};
use windlass_core::workspace::{Artifacts, Files, Processes};
use windlass_core::{BoxFuture, CancellationToken};
use windlass_engine::check_arguments;
use windlass_host::artifact::ArtifactDir;
use windlass_host::exec::{HostProcesses, child_env};
use windlass_host::workspace::Root;

use crate::error::Error;
use crate::settings::{Settings, nearest};
use crate::{program_tools, sandboxing};

pub use self::explanation::{ExplainOptions, ExplainedStage, PolicyExplanation, call_arguments};

/// The stage in which a tool checks its arguments.
const TOOL_VALIDATION: &str = "tool validation";

/// The settings and tools of a workspace, for judging calls.
pub struct PolicyEval {
    /// Whether commands run in a sandbox under these settings.
    pub sandboxed: bool,
    settings: Settings,
    tools: ToolSet,
    files: Arc<dyn Files>,
    processes: Arc<dyn Processes>,
    artifacts: Arc<dyn Artifacts>,
}

/// The verdict of the gate on a call.
pub struct JudgedCall {
    /// The verdict of each stage, in order.
    pub stages: Vec<GateStage>,
    pub decision: Decision,
    /// The paths, commands and hosts that the call would touch; empty if the tool rejects its arguments.
    pub touches: Vec<Touch>,
}

impl PolicyEval {
    /// An evaluation for calls in this workspace, under these settings.
    pub fn new(root: Root, settings: Settings) -> Result<Self, Error> {
        let root = Arc::new(root);
        let env = child_env(std::iter::empty(), &[]);
        let artifacts = settings.places.sessions_dir().join("none");
        Ok(Self {
            sandboxed: sandboxing::holds_commands(&settings)?,
            tools: ToolSet::new(program_tools::all_tools(&settings)?),
            settings,
            processes: Arc::new(HostProcesses::new(root.clone(), env)),
            files: root,
            artifacts: Arc::new(ArtifactDir::new(artifacts)),
        })
    }

    /// The gate of a run with this isolation, which decides the default approval mode.
    pub fn gate(&self, isolation: Isolation) -> Result<PermissionGate, Error> {
        self.settings
            .gate(Mode::usual(isolation.is_isolated()), &self.names())
    }

    /// The tool with this name. For an unknown name, the error suggests a similar one.
    pub fn tool(&self, name: &str) -> Result<&Arc<dyn Tool>, Error> {
        self.tools.get(canonical_name(name)).ok_or_else(|| {
            let error = Error::usage(format!("there is no tool `{name}`"));
            match nearest(name, self.names()) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint("`windlass tools` lists the tools"),
            }
        })
    }

    fn names(&self) -> Vec<&str> {
        let tools = self.tools.iter();
        tools.map(|tool| tool.spec().name.as_str()).collect()
    }

    /// Judges a call: the tool checks the arguments, then the gate decides.
    pub fn judge(
        &self,
        gate: &PermissionGate,
        tool: &dyn Tool,
        args: &Value,
        place: CallProtection,
    ) -> JudgedCall {
        let spec = tool.spec();
        let validated = |says| GateStage {
            name: TOOL_VALIDATION,
            says,
        };
        let touches = match self.touches(tool, args) {
            Ok(touches) => touches,
            Err(failure) => {
                let decision = Decision {
                    verdict: Verdict::Deny,
                    rule: TOOL_VALIDATION.into(),
                    reason: failure.text,
                };
                return JudgedCall {
                    stages: vec![validated(Some(decision.clone()))],
                    decision,
                    touches: Vec::new(),
                };
            }
        };
        let mut explained = gate.explain(&Proposal {
            tool: &spec.name,
            effect: spec.effect,
            touches: &touches,
            place,
        });
        if gate.hides(&spec.name) {
            explained.decision.verdict = Verdict::Deny;
            explained.decision.reason = "the model does not see this tool".into();
        }
        explained.stages.insert(3, validated(None));
        JudgedCall {
            stages: explained.stages,
            decision: explained.decision,
            touches,
        }
    }

    fn touches(&self, tool: &dyn Tool, args: &Value) -> Result<Vec<Touch>, ToolFailure> {
        let spec = tool.spec();
        check_arguments(&spec.name, &spec.schema, args)
            .map_err(|why| ToolFailure::new(ErrorCategory::InvalidArguments, why))?;
        let ctx = ToolCtx {
            files: &self.files,
            processes: &self.processes,
            artifacts: &self.artifacts,
            call_output: &NoCallOutput,
            cancel: CancellationToken::new(),
        };
        tool.touches(args, &ctx)
    }
}

/// The output of a call that is only judged: progress is dropped, and questions stay unanswered.
struct NoCallOutput;

impl CallOutput for NoCallOutput {
    fn progress(&self, _text: &str) {}
    fn ask<'a>(&'a self, _question: Question) -> BoxFuture<'a, Answer> {
        Box::pin(async { Answer::Unanswered })
    }
    fn notes(&self) -> String {
        String::new()
    }
    fn set_notes<'a>(&'a self, _text: String) -> BoxFuture<'a, Result<(), ToolFailure>> {
        let failure = ToolFailure::new(
            ErrorCategory::Exception,
            "notes cannot be saved while a call is only judged",
        );
        Box::pin(std::future::ready(Err(failure)))
    }
}
