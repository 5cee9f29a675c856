//! The sandbox as the settings want it: levels, networks and grants with their meaning, and which program is the
//! helper. What is wrong is said here, before anything starts.
//!
//! ```
//! use windlass::Environment;
//! use windlass::sandboxing::{described, helper, holds_commands, offer, sandbox};
//! use windlass::settings::Settings;
//!
//! let dir = tempfile::tempdir()?;
//! let settings = Settings::none(dir.path());
//! assert!(holds_commands(&settings)?);
//! let (level, network) = described(&settings)?;
//! println!("{level}, network {network}");
//! let held = sandbox(&settings, dir.path(), Vec::new(), Vec::new(), None)?;
//! assert!(held.is_some(), "it is opened with the first command");
//! let environment = Environment::of_process();
//! assert!(helper(&environment).is_ok());
//! // What the kernel offers differs from machine to machine.
//! let _ = offer(dir.path(), &environment);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use windlass_host::sandbox::{Sandbox, SandboxError, Standard, not_held, tier_of};
pub use windlass_sandbox::{Offer, Tier, proc_is_masked};
pub use windlass_transaction::in_place::run_program;
pub use windlass_transaction::isolated::try_layer;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use windlass_core::gate::{Mode, Reach};
use windlass_core::terms::SandboxLevel;
use windlass_host::config::Layers;
use windlass_host::sandbox::{Access, AgentPlan, Helper, HostRule, Limits, NetPolicy, SandboxPlan};
use windlass_transaction::copy_workspace;

use crate::environment::Environment;
use crate::error::{Error, ErrorKind};
use crate::settings::Settings;

/// The sandbox for a workspace, with the environment its commands get; none where somebody wrote so.
pub fn sandbox(
    settings: &Settings,
    root: &Path,
    hidden: Vec<String>,
    env: Vec<(OsString, OsString)>,
    agent: Option<AgentPlan>,
) -> Result<Option<Sandbox>, Error> {
    let require = required_tier(settings);
    let Some(access) = level(settings)? else {
        if require.is_some() {
            let message =
                "the setting `sandbox.require` asks for a sandbox, and `--sandbox full` is none";
            return Err(Error::new(ErrorKind::Isolation, message)
                .hint("leave `--sandbox full` out; `windlass config --origin` shows who set `sandbox.require`"));
        }
        return match agent {
            None => Ok(None),
            Some(agent) => Err(Error::new(
                ErrorKind::Isolation,
                format!(
                    "`{}` is not ours, and runs in a sandbox or not at all",
                    agent.name
                ),
            )
            .hint("leave `--sandbox full` out")),
        };
    };
    // An agent that is not ours need not ask: where nothing may be changed, the kernel has to see to it.
    let access = if agent.is_some() && settings.mode(Mode::Ask) == Mode::Plan {
        Access::ReadOnly
    } else {
        access
    };
    let plan = SandboxPlan {
        hidden,
        require,
        agent,
        ..usual_plan(settings, root, access)?
    };
    let helper = helper(&settings.environment)?;
    Ok(Some(Sandbox::new(plan, helper, env, copy_workspace)))
}

/// Where a program really is, if the sandbox of the settings hides that place from commands.
pub(crate) fn hidden_program(
    settings: &Settings,
    root: &Path,
    program: &Path,
) -> Result<Option<PathBuf>, Error> {
    let Some(access) = level(settings)? else {
        return Ok(None);
    };
    let env: Vec<_> = settings.environment.variables().collect();
    Ok(usual_plan(settings, root, access)?.hidden_program(&env, program))
}

fn usual_plan(settings: &Settings, root: &Path, access: Access) -> Result<SandboxPlan, Error> {
    let home = settings.environment.path("HOME");
    let places = &settings.places;
    let mut read = paths(settings, "sandbox.read", root, home.as_deref())?;
    read.extend(crate::contract::scanners_dir(&settings.environment).filter(|dir| dir.is_dir()));
    Ok(SandboxPlan {
        root: root.to_owned(),
        own: own_folders(settings),
        data_dir: places.data_dir.clone(),
        access,
        net: net(settings)?,
        setup_hosts: setup_hosts(settings)?,
        read,
        write: paths(settings, "sandbox.write", root, home.as_deref())?,
        hidden: Vec::new(),
        limits: limits(settings)?,
        accept_landlock: settings.layers.text("sandbox.accept") == Some("landlock"),
        require: None,
        agent: None,
        home,
        demanded: settings.layers.get("sandbox.level").is_some(),
    })
}

/// The weakest tier that will do: the project's applies where it is stricter.
fn required_tier(settings: &Settings) -> Option<Tier> {
    let read = |layers: &Layers<'_>| match layers.text("sandbox.require") {
        Some("namespaces") => Some(Tier::Namespaces),
        Some("broker") => Some(Tier::Broker),
        _ => None,
    };
    read(&settings.layers).max(read(&settings.project))
}

/// The tiers that this kernel offers, found by trying them around a folder.
pub fn offer(folder: &Path, environment: &Environment) -> Result<Offer, Error> {
    Ok(windlass_sandbox::probe(
        &helper(environment)?,
        folder,
        &environment.temp_dir(),
    ))
}

/// The program that acts as the helper.
pub fn helper(environment: &Environment) -> Result<Helper, Error> {
    let program = environment.helper().ok_or_else(|| {
        Error::usage("this program cannot be found, which the sandbox needs")
            .hint("name the program that acts as the sandbox's helper")
    })?;
    Ok(Helper::new(program))
}

/// Where our own settings, sessions and keys are: nothing in a sandbox sees them.
fn own_folders(settings: &Settings) -> Vec<PathBuf> {
    let config = settings
        .places
        .config_file()
        .parent()
        .map(Path::to_path_buf);
    [Some(settings.places.data_dir.clone()), config]
        .into_iter()
        .flatten()
        .collect()
}

/// Whether commands are held at all.
pub fn holds_commands(settings: &Settings) -> Result<bool, Error> {
    Ok(level(settings)?.is_some())
}

/// What commands may do and what they reach, in words.
pub fn described(settings: &Settings) -> Result<(&'static str, String), Error> {
    let level = match level(settings)? {
        None => "full (no sandbox at all)",
        Some(Access::ReadOnly) => "read-only",
        Some(Access::Write) => "workspace-write",
    };
    let net = if holds_commands(settings)? {
        net(settings)?.to_string()
    } else {
        "open".to_owned()
    };
    Ok((level, net))
}

/// The level: the project's counts where it is stricter. `None` is no sandbox at all.
fn level(settings: &Settings) -> Result<Option<Access>, Error> {
    if settings.fixed("sandbox.level") == Some("read-only") {
        return Ok(Some(Access::ReadOnly));
    }
    let own = read_level(&settings.layers)?.unwrap_or(Some(Access::Write));
    Ok(match (own, read_level(&settings.project)?) {
        (Some(own), Some(Some(project))) => Some(own.min(project)),
        (None, Some(Some(project))) => Some(project),
        (own, _) => own,
    })
}

fn read_level(layers: &Layers<'_>) -> Result<Option<Option<Access>>, Error> {
    let Some(text) = layers.text("sandbox.level") else {
        return Ok(None);
    };
    match text.parse() {
        Ok(SandboxLevel::ReadOnly) => Ok(Some(Some(Access::ReadOnly))),
        Ok(SandboxLevel::WorkspaceWrite) => Ok(Some(Some(Access::Write))),
        Ok(SandboxLevel::Full) => Ok(Some(None)),
        Err(_) => Err(Error::usage(format!(
            "`{text}` is no sandbox: use read-only, workspace-write or full"
        ))),
    }
}

fn net(settings: &Settings) -> Result<NetPolicy, Error> {
    let own = read_net(&settings.layers)?.unwrap_or_default();
    let project = read_net(&settings.project)?;
    Ok(project.map_or_else(|| own.clone(), |project| own.narrowed(&project)))
}

fn read_net(layers: &Layers<'_>) -> Result<Option<NetPolicy>, Error> {
    let Some(setting) = layers.get("sandbox.net") else {
        return Ok(None);
    };
    let text = layers.text("sandbox.net").unwrap_or_default();
    text.parse()
        .map(Some)
        .map_err(|why: String| Error::usage(format!("{}: {why}", setting.origin)))
}

/// The hosts that the set-up of checks may reach.
fn setup_hosts(settings: &Settings) -> Result<Vec<HostRule>, Error> {
    let Some(text) = settings.layers.text("validate.setup_net") else {
        return Ok(Vec::new());
    };
    match text.parse() {
        Ok(NetPolicy::Hosts(rules)) => Ok(rules),
        Ok(NetPolicy::Off | NetPolicy::Loopback) => Ok(Vec::new()),
        Ok(NetPolicy::Open) => Err(Error::usage(
            "`validate.setup_net` is a list of hosts: `registries`, or `allow:HOST,HOST`",
        )),
        Err(why) => Err(Error::usage(format!("`validate.setup_net`: {why}"))),
    }
}

/// Whether commands have the network of this machine.
pub(crate) fn is_open(settings: &Settings) -> Result<bool, Error> {
    Ok(net(settings)? == NetPolicy::Open)
}

/// What the gate has to know of the network.
pub(crate) fn reach(settings: &Settings) -> Result<Reach, Error> {
    Ok(match net(settings)? {
        NetPolicy::Off => Reach::Nothing,
        NetPolicy::Loopback => Reach::Loopback,
        NetPolicy::Hosts(_) | NetPolicy::Open => Reach::Something,
    })
}

fn limits(settings: &Settings) -> Result<Limits, Error> {
    let mut limits = Limits::default();
    let number = |key: &str, least: i64| match settings.layers.integer(key) {
        Some(number) if number < least => {
            Err(Error::usage(format!("`{key}` must be at least {least}")))
        }
        other => Ok(other),
    };
    if let Some(most) = number("sandbox.processes", 8)? {
        limits.processes = u32::try_from(most).unwrap_or(u32::MAX);
    }
    if let Some(most) = number("sandbox.memory_mb", 64)? {
        limits.memory = most.cast_unsigned().saturating_mul(1 << 20);
    }
    Ok(limits)
}

/// Granted paths: absolute, below the home with `~/`, or relative to the workspace. A relative one need not be there,
/// because it is meant for every workspace that has it; any other that is missing grants nothing, which is a mistake.
fn paths(
    settings: &Settings,
    key: &str,
    root: &Path,
    home: Option<&Path>,
) -> Result<Vec<PathBuf>, Error> {
    let meant = |text: &String| {
        let path = match (text.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => root.join(text),
        };
        if path.starts_with(root) || path.symlink_metadata().is_ok() {
            return Ok(path);
        }
        Err(Error::usage(format!("`{key}` grants `{text}`, which is not there"))
            .hint(format!("make it, or take it out of `{key}` (`windlass config --origin` shows where it is set)")))
    };
    settings
        .layers
        .texts(key)
        .unwrap_or_default()
        .iter()
        .map(meant)
        .collect()
}
