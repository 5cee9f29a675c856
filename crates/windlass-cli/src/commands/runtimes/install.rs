//! `runtimes install`, `runtimes remove` and `runtimes --registry`: agents that are installed privately for windlass.

use std::process::ExitCode;

use serde_json::json;
use windlass::agents::{
    AGENTS, AgentSpec, InstalledAgents, install_from_registry, named_id, registry, registry_name,
};
use windlass::settings::nearest;

use super::block_on;
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::sanitize::{json_line, one_line};
use windlass::settings::Settings;

/// An agent to install or to remove.
enum AgentToInstall<'a> {
    /// An agent of the built-in table.
    Known(&'static AgentSpec),
    /// An agent of the ACP registry, by id.
    Listed(&'a str),
}

/// Installs the named agents, or all if there are no names. A failure does not stop the installation of the others.
pub(super) fn install(names: &[String], settings: &Settings) -> Result<ExitCode, CommandError> {
    let wanted: Vec<AgentToInstall<'_>> = match names {
        [] => installable().map(AgentToInstall::Known).collect(),
        names => names
            .iter()
            .map(|name| named(name))
            .collect::<Result<_, _>>()?,
    };
    let dir = settings.places.runtimes_dir();
    let installed = InstalledAgents { dir: &dir };
    let (mut text, mut failures) = (String::new(), Vec::new());
    for one in wanted {
        let done: Result<_, CommandError> = match one {
            AgentToInstall::Known(known) => installed
                .install(known, &|line| say!("{line}"))
                .map(|program| {
                    let version = known.install.version().unwrap_or_default();
                    (known.name.to_owned(), version.to_owned(), program)
                })
                .map_err(CommandError::from),
            AgentToInstall::Listed(id) => block_on(async {
                let say = |line: &str| say!("{}", one_line(line));
                let (version, program) = install_from_registry(id, settings, &say).await?;
                Ok((format!("acp:{id}"), version, program))
            }),
        };
        match done {
            Ok((name, version, program)) => {
                let program = program.display();
                text.push_str(&format!("{name:<16} {version:<9} {program}\n"));
            }
            Err(error) => failures.push(error),
        }
    }
    let printed = exit::print(&text);
    let last = failures.pop();
    failures.iter().for_each(CommandError::print);
    last.map_or(Ok(printed), Err)
}

pub(super) fn remove(names: &[String], settings: &Settings) -> Result<ExitCode, CommandError> {
    let dir = settings.places.runtimes_dir();
    let installed = InstalledAgents { dir: &dir };
    let mut text = String::new();
    for name in names {
        let dir_name = match named(name)? {
            AgentToInstall::Known(known) => known.name.to_owned(),
            AgentToInstall::Listed(id) => registry_name(id),
        };
        let what = match installed.remove(&dir_name)? {
            true => "removed",
            false => "was not installed by windlass",
        };
        text.push_str(&format!("{name:<16} {what}\n"));
    }
    Ok(exit::print(&text))
}

/// Lists the agents of the ACP registry with their ids, versions, sources and installed versions.
pub(super) fn list_registry(settings: &Settings, json: bool) -> Result<ExitCode, CommandError> {
    let dir = settings.places.runtimes_dir();
    let installed = InstalledAgents { dir: &dir };
    let mut text = String::new();
    for agent in &registry(settings)?.agents {
        let here = installed.registry_agent(&agent.id).map(|here| here.version);
        let (source, built_in) = (agent.source_word(), agent.built_in().map(|spec| spec.name));
        if json {
            text.push_str(&json_line(&json!({
                "id": agent.id,
                "name": agent.name,
                "version": agent.version,
                "source": source,
                "installed": here,
                "built_in": built_in,
            })));
            continue;
        }
        let source = source.unwrap_or("not available for this machine");
        let mut words = format!("{} {} ({source})", agent.name, agent.version);
        if let Some(here) = here {
            words.push_str(&format!("; {here} is installed"));
        }
        if let Some(name) = built_in {
            words.push_str(&format!("; prefer the certified runtime `{name}`"));
        }
        text.push_str(&super::headed(&format!("acp:{}", agent.id), &words));
    }
    Ok(exit::print(&text))
}

fn installable() -> impl Iterator<Item = &'static AgentSpec> {
    AGENTS
        .iter()
        .filter(|known| known.install.version().is_some())
}

fn named(name: &str) -> Result<AgentToInstall<'_>, CommandError> {
    if let Some(id) = named_id(name) {
        return Ok(AgentToInstall::Listed(id));
    }
    if let Some(known) = installable().find(|known| known.name == name) {
        return Ok(AgentToInstall::Known(known));
    }
    if AGENTS.iter().any(|known| known.name == name) {
        return Err(
            CommandError::usage(format!("`{name}` is built in")).hint("it needs no installation")
        );
    }
    let all: Vec<&str> = installable().map(|known| known.name).collect();
    let error = CommandError::usage(format!("windlass cannot install an agent `{name}`"));
    Err(match nearest(name, all.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!(
            "it can install {}, and acp:ID from the ACP registry; install other agents yourself",
            all.join(", ")
        )),
    })
}
