//! The capabilities and features of each runtime, as its adapter declares them without options.

use serde_json::Map;
use windlass_core::runtime::{Capabilities, Capability, Features, Work};
use windlass_engine::NativeRuntime;
use windlass_proposal::AnswerForm;
use windlass_runtimes::agents::{AgentKind, AgentSpec};

use crate::adapter::{AgentSetup, build};
use crate::program::AgentProgram;

/// Whether an agent supports a kind of work. An agent with tools of its own changes files itself, so it cannot propose a
/// patch for the engine to apply.
#[must_use]
pub fn does(known: &AgentSpec, can: Capabilities, work: Work) -> bool {
    let changes_itself = !known.is_built_in() && can.has(Capability::NativeToolLoop);
    can.require(known.name, work).is_ok() && !(work == Work::PatchCoder && changes_itself)
}

/// The capabilities and features of a runtime without options.
#[must_use]
pub fn abilities(known: &'static AgentSpec) -> (Capabilities, Features) {
    match known.kind {
        AgentKind::Native => (
            Capabilities::of(NativeRuntime::CAPABILITIES.iter().copied()),
            Features::of(NativeRuntime::FEATURES.iter().copied()),
        ),
        AgentKind::Completion => (at_most(AnswerForm::Words), Features::NONE),
        AgentKind::Patch => (at_most(AnswerForm::Patch), Features::NONE),
        _ => {
            let setup = AgentSetup {
                known,
                name: known.name.to_owned(),
                settings: known.name.to_owned(),
                program: AgentProgram {
                    file: "agent".into(),
                    ..AgentProgram::default()
                },
                words: Vec::new(),
                model: Some("m".to_owned()),
                protocol: None,
                masked_dirs: Vec::new(),
                state_dirs: Vec::new(),
                instruction_files: Vec::new(),
                options: Map::new(),
            };
            match build(&setup, Some("python".into())) {
                Ok(agent) => (
                    Capabilities::of(agent.capabilities().iter().chain([Capability::Sandbox])),
                    agent.features(),
                ),
                Err(_) => (Capabilities::NONE, Features::NONE),
            }
        }
    }
}

fn at_most(form: AnswerForm) -> Capabilities {
    Capabilities::of(form.capabilities().iter().copied())
}
