//! `runtimes install` and `runtimes remove`: agents that are here for windlass alone.

use std::process::ExitCode;

use windlass::agents::Installed;
use windlass::agents::{AGENTS, AgentSpec};
use windlass::settings::nearest;

use crate::exit;
use crate::failure::Failure;
use crate::out::say;
use windlass::settings::Settings;

/// Installs these, or all where none is named. One that cannot be had does not keep the others from coming.
pub(super) fn install(names: &[String], settings: &Settings) -> Result<ExitCode, Failure> {
    let wanted: Vec<&AgentSpec> = match names {
        [] => installable().collect(),
        names => names
            .iter()
            .map(|name| named(name))
            .collect::<Result<_, _>>()?,
    };
    let dir = settings.places.runtimes_dir();
    let installed = Installed { dir: &dir };
    let (mut text, mut failures) = (String::new(), Vec::new());
    for known in wanted {
        match installed.install(known, &|line| say!("{line}")) {
            Ok(program) => {
                let version = known.install.version().unwrap_or_default();
                text.push_str(&format!(
                    "{:<16} {version:<9} {}\n",
                    known.name,
                    program.display()
                ));
            }
            Err(failure) => failures.push(failure),
        }
    }
    let printed = exit::printed(&text);
    match failures.len() {
        0 => Ok(printed),
        1 => Err(failures.remove(0).into()),
        _ => {
            let last = failures.pop();
            failures
                .iter()
                .for_each(|failure| say!("error: {}", failure.message()));
            last.map_or(Ok(printed), |failure| Err(failure.into()))
        }
    }
}

pub(super) fn remove(names: &[String], settings: &Settings) -> Result<ExitCode, Failure> {
    let dir = settings.places.runtimes_dir();
    let installed = Installed { dir: &dir };
    let mut text = String::new();
    for name in names {
        let known = named(name)?;
        let was = installed.remove(known.name)?;
        let what = if was {
            "removed"
        } else {
            "was not installed by windlass"
        };
        text.push_str(&format!("{:<16} {what}\n", known.name));
    }
    Ok(exit::printed(&text))
}

fn installable() -> impl Iterator<Item = &'static AgentSpec> {
    AGENTS
        .iter()
        .filter(|known| known.install.version().is_some())
}

fn named(name: &str) -> Result<&'static AgentSpec, Failure> {
    if let Some(known) = installable().find(|known| known.name == name) {
        return Ok(known);
    }
    if AGENTS.iter().any(|known| known.name == name) {
        return Err(Failure::usage(format!("`{name}` is built in"))
            .hint("there is nothing to install or to remove"));
    }
    let all: Vec<&str> = installable().map(|known| known.name).collect();
    let failure = Failure::usage(format!("there is no agent `{name}` that can be installed"));
    Err(match nearest(name, all.iter().copied()) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint(format!(
            "those that can: {}; others you install yourself",
            all.join(", ")
        )),
    })
}
