//! Builds the sandbox from the settings: level, network, granted paths, limits and the helper program. Errors in these
//! settings are reported here, before a run starts.
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
//! // The result depends on the kernel.
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

/// The sandbox for a workspace, with the environment of its commands; `None` if the settings say `full`.
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
            let message = "the setting `sandbox.require` requires a sandbox, and `--sandbox full` switches it off";
            return Err(Error::new(ErrorKind::Isolation, message).hint(
                "omit `--sandbox full`; `windlass config --origin` shows where `sandbox.require` is set",
            ));
        }
        return match agent {
            None => Ok(None),
            Some(agent) => Err(Error::new(
                ErrorKind::Isolation,
                format!(
                    "`{}` is a foreign agent, and foreign agents run only in a sandbox",
                    agent.name
                ),
            )
            .hint("omit `--sandbox full`")),
        };
    };
    // A foreign agent may change files without asking, so in plan mode the kernel must prevent it.
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

/// The path of a program without symlinks, if the sandbox hides it from commands.
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

/// The weakest acceptable tier. The setting of an untrusted project applies if it is stricter.
fn required_tier(settings: &Settings) -> Option<Tier> {
    let read = |layers: &Layers<'_>| match layers.text("sandbox.require") {
        Some("namespaces") => Some(Tier::Namespaces),
        Some("broker") => Some(Tier::Broker),
        _ => None,
    };
    read(&settings.layers).max(read(&settings.project))
}

/// The tiers that this kernel offers, found by a probe of each tier in `folder`.
pub fn offer(folder: &Path, environment: &Environment) -> Result<Offer, Error> {
    Ok(windlass_sandbox::probe(
        &helper(environment)?,
        folder,
        &environment.temp_dir(),
    ))
}

/// The program that acts as the sandbox helper.
pub fn helper(environment: &Environment) -> Result<Helper, Error> {
    let program = environment.helper().ok_or_else(|| {
        Error::usage(
            "the path of the current executable is unknown, which the sandbox needs as its helper",
        )
        .hint("set the sandbox helper, for example with `Windlass::sandbox_helper`")
    })?;
    Ok(Helper::new(program))
}

/// The directories of Windlass itself, with settings, sessions and keys. The sandbox hides them.
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

/// Whether commands run in a sandbox.
pub fn holds_commands(settings: &Settings) -> Result<bool, Error> {
    Ok(level(settings)?.is_some())
}

/// The sandbox level and the network of commands, as text for the user.
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

/// The sandbox level; `None` is no sandbox. The setting of an untrusted project applies if it is stricter.
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
            "`{text}` is not a sandbox level: use read-only, workspace-write or full"
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

/// The hosts to which the commands in `validate.setup` may connect.
fn setup_hosts(settings: &Settings) -> Result<Vec<HostRule>, Error> {
    let Some(text) = settings.layers.text("validate.setup_net") else {
        return Ok(Vec::new());
    };
    match text.parse() {
        Ok(NetPolicy::Hosts(rules)) => Ok(rules),
        Ok(NetPolicy::Off | NetPolicy::Loopback) => Ok(Vec::new()),
        Ok(NetPolicy::Open) => Err(Error::usage(
            "`validate.setup_net` must be a list of hosts: `registries`, or `allow:HOST,HOST`",
        )),
        Err(why) => Err(Error::usage(format!("`validate.setup_net`: {why}"))),
    }
}

/// Whether commands have full access to the network of this machine.
pub(crate) fn is_open(settings: &Settings) -> Result<bool, Error> {
    Ok(net(settings)? == NetPolicy::Open)
}

/// The network access of commands, for the gate.
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

/// Granted paths: absolute, in the home directory with `~/`, or relative to the workspace. A relative path may be
/// missing, because it applies to every workspace that has it. Any other missing path is an error, because it is probably
/// misspelled.
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
        Err(Error::usage(format!("`{key}` grants `{text}`, which does not exist"))
            .hint(format!("create it, or remove it from `{key}` (`windlass config --origin` shows where it is set)")))
    };
    settings
        .layers
        .texts(key)
        .unwrap_or_default()
        .iter()
        .map(meant)
        .collect()
}
