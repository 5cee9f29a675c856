//! `runtimes`: who can work here, what each can do, and how it comes onto this machine.

mod install;

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use windlass_core::runtime::{Capabilities, Capability, Feature, Features, Work};
use windlass_core::workspace::Files;
use windlass_engine::NativeRuntime;
use windlass_host::clock::SystemClock;
use windlass_host::secret::Credentials;
use windlass_runtimes::acp::Acp;
use windlass_runtimes::acp::options::AcpOptions;
use windlass_runtimes::acp::profiles::{Dialect, Profile};
use windlass_runtimes::agent::Adapter;
use windlass_runtimes::claude_code::{ClaudeCode, ClaudeOptions};
use windlass_runtimes::codex::{Codex, CodexOptions};

use crate::args::{RuntimesArgs, RuntimesCommand};
use crate::exit;
use crate::failure::Failure;
use crate::plan;
use crate::runtimes::{Kind, Known, RUNTIMES, find_program};
use crate::settings::Settings;

pub(super) fn run(args: &RuntimesArgs) -> Result<ExitCode, Failure> {
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    let root = plan::open_workspace(None, home.as_deref()).ok();
    let settings = Settings::load(root.as_ref().map(Files::root))?;
    match &args.command {
        Some(RuntimesCommand::Install { names, .. }) => return install::install(names, &settings),
        Some(RuntimesCommand::Remove { names }) => return install::remove(names, &settings),
        None => {}
    }
    let mut text = String::new();
    for known in RUNTIMES {
        let (can, held) = abilities(known);
        let found = found(known, &settings);
        let work: Vec<&str> =
            Work::ALL.iter().filter(|work| can.require(known.name, **work).is_ok()).map(|work| work.word()).collect();
        if args.json {
            text.push_str(&crate::safe::json_line(&json!({
                "name": known.name,
                "about": known.about,
                "found": found.as_ref().ok(),
                "why": found.as_ref().err(),
                "install": install_command(known),
                "by_hand": known.install.by_hand(),
                "tested": known.install.version(),
                "capabilities": can.iter().map(Capability::word).collect::<Vec<_>>(),
                "features": held.iter().map(Feature::word).collect::<Vec<_>>(),
                "work": work,
            })));
            continue;
        }
        let state = found.unwrap_or_else(|why| format!("{why}; {}", install_command(known).unwrap_or_default()));
        text.push_str(&format!("{:<12} {}\n{:13}{state}\n", known.name, known.about, ""));
        text.push_str(&format!("{:13}work: {}\n", "", work.join(" · ")));
    }
    if !args.json {
        text.push_str("acp:COMMAND  any agent that speaks the Agent Client Protocol\n");
    }
    Ok(exit::printed(&text))
}

/// Where its program is, or that it is not here.
fn found(known: &Known, settings: &Settings) -> Result<String, String> {
    if known.program.is_none() {
        return Ok("built in".to_owned());
    }
    let configured = settings.layers.text(&Settings::named("runtimes", known.name, "command"));
    let program = find_program(known, configured, settings).map_err(|failure| failure.message())?;
    let tested = known.install.version().map(|version| format!(" (tested with {version})")).unwrap_or_default();
    Ok(format!("{}{tested}", program.file.display()))
}

/// The command that brings it onto this machine.
fn install_command(known: &Known) -> Option<String> {
    known.install.version().map(|_| format!("windlass runtimes install {}", known.name))
}

/// Whether an agent can work here: its program, and a key for its model.
pub(super) fn state(known: &Known, settings: &Settings, credentials: &Credentials) -> Result<String, String> {
    let path =
        found(known, settings).map_err(|why| format!("{why}: {}", install_command(known).unwrap_or_default()))?;
    let vendors: Vec<_> = known.vendors.iter().filter_map(|id| windlass_providers::vendor(id)).collect();
    match vendors.iter().find(|vendor| crate::wire::key(settings, vendor, credentials).is_some()) {
        Some(vendor) => Ok(format!("{path}; asks {} with your key, which it never sees", vendor.id)),
        None => {
            let keys: Vec<&str> = vendors.iter().filter_map(|vendor| vendor.key_env).collect();
            Err(format!("{path} is here; no key for its model: export {}=…, or `--auth login`", keys.join("=… or ")))
        }
    }
}

/// What a runtime can do, and how it can be held.
pub(super) fn abilities(known: &Known) -> (Capabilities, Features) {
    let nothing = (Capabilities::NONE, Features::NONE);
    let of = |agent: &dyn Adapter| {
        (Capabilities::of(agent.capabilities().iter().chain([Capability::Sandbox])), agent.features())
    };
    match known.kind {
        Kind::Native => (
            Capabilities::of(NativeRuntime::CAPABILITIES.iter().copied()),
            Features::of(NativeRuntime::FEATURES.iter().copied()),
        ),
        Kind::Completion => (Capabilities::of(windlass_runtimes::completion::CAPABILITIES), Features::NONE),
        Kind::Patch => (Capabilities::of(windlass_runtimes::patch_proposal::CAPABILITIES), Features::NONE),
        Kind::ClaudeCode => ClaudeCode::new(ClaudeOptions::default()).map_or(nothing, |agent| of(&agent)),
        Kind::Codex => Codex::new(CodexOptions::default()).map_or(nothing, |agent| of(&agent)),
        Kind::Acp => {
            let clock = Arc::new(SystemClock::new());
            Acp::new(Profile::named(known.name), AcpOptions::default(), Dialect::Anthropic, clock)
                .map_or(nothing, |agent| of(&agent))
        }
    }
}
