//! What each runtime can do and how it can be held, by what it says of itself.

use std::sync::Arc;

use windlass_core::runtime::{Capabilities, Capability, Features, Work};
use windlass_engine::NativeRuntime;
use windlass_host::clock::SystemClock;
use windlass_runtimes::acp::Acp;
use windlass_runtimes::acp::options::AcpOptions;
use windlass_runtimes::acp::profiles::Profile;
use windlass_runtimes::agent::Adapter;
use windlass_runtimes::claude_code::{ClaudeCode, ClaudeOptions};
use windlass_runtimes::codex::{Codex, CodexOptions};
use windlass_runtimes::dialect::Dialect;
use windlass_runtimes::oneshot::OneShot;
use windlass_runtimes::oneshot::aider::AiderOptions;
use windlass_runtimes::oneshot::options::CliOptions;
use windlass_runtimes::openhands::{OpenHands, OpenHandsOptions};
use windlass_runtimes::sidecar::{Sidecar, SidecarOptions};

use windlass_runtimes::known::{Kind, Known};

/// Whether it does a kind of work: what an agent with tools of its own makes is no patch that the engine applies.
pub fn does(known: &Known, can: Capabilities, work: Work) -> bool {
    let changes_itself = !known.is_ours() && can.has(Capability::NativeToolLoop);
    can.require(known.name, work).is_ok() && !(work == Work::PatchCoder && changes_itself)
}

/// What a runtime can do, and how it can be held, as it is without options.
pub fn abilities(known: &Known) -> (Capabilities, Features) {
    let nothing = (Capabilities::NONE, Features::NONE);
    let of = |agent: &dyn Adapter| {
        (
            Capabilities::of(agent.capabilities().iter().chain([Capability::Sandbox])),
            agent.features(),
        )
    };
    match known.kind {
        Kind::Native => (
            Capabilities::of(NativeRuntime::CAPABILITIES.iter().copied()),
            Features::of(NativeRuntime::FEATURES.iter().copied()),
        ),
        Kind::Completion => (
            Capabilities::of(windlass_runtimes::completion::CAPABILITIES),
            Features::NONE,
        ),
        Kind::Patch => (
            Capabilities::of(windlass_runtimes::patch_proposal::CAPABILITIES),
            Features::NONE,
        ),
        Kind::ClaudeCode => {
            ClaudeCode::new(ClaudeOptions::default()).map_or(nothing, |agent| of(&agent))
        }
        Kind::Codex => Codex::new(CodexOptions::default()).map_or(nothing, |agent| of(&agent)),
        Kind::Aider => {
            let options = AiderOptions {
                python: "python".into(),
                model: Some("m".into()),
                ..AiderOptions::default()
            };
            let agent = options.program(Dialect::OpenAiChat).and_then(OneShot::new);
            agent.map_or(nothing, |agent| of(&agent))
        }
        Kind::Cli => {
            let options = CliOptions {
                command: vec!["agent".into()],
                ..CliOptions::default()
            };
            options
                .program()
                .and_then(OneShot::new)
                .map_or(nothing, |agent| of(&agent))
        }
        Kind::Sidecar(sdk) => Sidecar::new(sdk, Dialect::OpenAiChat, SidecarOptions::default())
            .map_or(nothing, |agent| of(&agent)),
        Kind::OpenHands => OpenHands::new(OpenHandsOptions::default(), Dialect::Anthropic)
            .map_or(nothing, |agent| of(&agent)),
        Kind::Acp => {
            let clock = Arc::new(SystemClock::new());
            let options = AcpOptions {
                command: Some("agent".to_owned()),
                ..AcpOptions::default()
            };
            Acp::new(
                Profile::named(known.name),
                options,
                Dialect::Anthropic,
                clock,
            )
            .map_or(nothing, |agent| of(&agent))
        }
    }
}
