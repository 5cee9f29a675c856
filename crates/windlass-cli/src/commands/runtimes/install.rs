//! `runtimes install`, `runtimes remove` and `runtimes --registry`: agents that are installed privately for windlass.

use std::process::ExitCode;

use windlass::agents::{install_agents, registry_rows, remove_agent};
use windlass::settings::Settings;
use windlass_text::sanitize::one_line;

use super::block_on;
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::sanitize::json_line;

/// Installs the named agents, or all if there are no names.
pub(super) fn install(names: &[String], settings: &Settings) -> Result<ExitCode, CommandError> {
    let say = |line: &str| say!("{}", one_line(line));
    let results = block_on(async { Ok(install_agents(names, settings, &say).await?) })?;
    let (mut text, mut failures) = (String::new(), Vec::new());
    for result in results {
        match result {
            Ok(agent) => text.push_str(&format!(
                "{:<16} {:<9} {}\n",
                agent.name,
                agent.version,
                agent.program.display()
            )),
            Err(error) => failures.push(CommandError::from(error)),
        }
    }
    let printed = exit::print(&text);
    let last = failures.pop();
    failures.iter().for_each(CommandError::print);
    last.map_or(Ok(printed), Err)
}

pub(super) fn remove(names: &[String], settings: &Settings) -> Result<ExitCode, CommandError> {
    let mut text = String::new();
    for name in names {
        let what = match remove_agent(name, settings)? {
            true => "removed",
            false => "was not installed by windlass",
        };
        text.push_str(&format!("{name:<16} {what}\n"));
    }
    Ok(exit::print(&text))
}

/// Lists the agents of the ACP registry with their ids, versions, sources and installed versions.
pub(super) fn list_registry(settings: &Settings, json: bool) -> Result<ExitCode, CommandError> {
    let rows = registry_rows(settings)?;
    if json {
        return Ok(exit::print(&rows.iter().map(json_line).collect::<String>()));
    }
    let mut text = String::new();
    for agent in &rows {
        let source = agent.source.unwrap_or("not available for this machine");
        let mut words = format!("{} {} ({source})", agent.name, agent.version);
        if let Some(here) = &agent.installed {
            words.push_str(&format!("; {here} is installed"));
        }
        if let Some(name) = agent.built_in {
            words.push_str(&format!("; prefer the certified runtime `{name}`"));
        }
        text.push_str(&super::headed(&format!("acp:{}", agent.id), &words));
    }
    Ok(exit::print(&text))
}
