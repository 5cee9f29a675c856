//! `runtimes`: lists the runtimes with their versions and capabilities, explains the choice of `auto`, and probes them.

mod install;

use std::process::ExitCode;

use serde_json::json;
use windlass::agents::{
    ChoiceRow, ProbeRow, ProgramLocation, RuntimeChoice, RuntimeNeed, RuntimeProbe, RuntimeReport,
    RuntimeStatus, choose, names_to_probe, needs_of, runtime_statuses,
};
use windlass::core::runtime::Work;
use windlass::core::workspace::Files;
use windlass_text::sanitize::one_line;

use super::block_on;
use crate::args::{RuntimesArgs, RuntimesCommand};
use crate::command_error::CommandError;
use crate::exit;
use crate::out::{self, say};
use crate::process;
use crate::sanitize::json_line;
use windlass::flags::{AgentFlags, LimitFlags};
use windlass::runtime_plan::RuntimeChecker;
use windlass::settings::Settings;

/// The width of text output, in columns.
const WIDTH: usize = 80;
/// The width of the column with the names.
const INDENT: usize = 18;

pub(super) fn run(args: &RuntimesArgs) -> Result<ExitCode, CommandError> {
    let root = process::open_workspace(None).ok();
    let mut settings = process::load_settings(root.as_ref().map(Files::root))?;
    match &args.command {
        Some(RuntimesCommand::Install { names, .. }) => return install::install(names, &settings),
        Some(RuntimesCommand::Remove { names }) => return install::remove(names, &settings),
        None if args.registry => return install::list_registry(&settings, args.json),
        None => {}
    }
    let agent = AgentFlags {
        model: args.model.clone(),
        ..AgentFlags::default()
    };
    settings.add_flags(&agent, &LimitFlags::default())?;
    if let Some(words) = &args.needs {
        let checker = RuntimeChecker::new(&agent, &settings)?;
        let needs = needs_of(&RuntimeNeed::list(words.iter().map(String::as_str))?, None);
        let choice = choose(
            &checker.statuses()?,
            needs,
            settings.layers.texts("runtime_order"),
        )?;
        return Ok(show_choice(&choice, args.json));
    }
    if let Some(names) = &args.probe {
        let statuses = RuntimeChecker::new(&agent, &settings)?.statuses()?;
        let names = names_to_probe(names, &statuses, &settings)?;
        return block_on(probe(&names, &settings, args));
    }
    let statuses = block_on(async { Ok(runtime_statuses(&agent, &settings).await?) })?;
    let mut text = String::new();
    for status in &statuses {
        text.push_str(&if args.json {
            json_line(&RuntimeReport::from(status))
        } else {
            shown(status)
        });
    }
    if !args.json {
        text.push_str(&format!(
            "{:<INDENT$}any agent that speaks the Agent Client Protocol\n",
            "acp:COMMAND"
        ));
        text.push_str(&format!(
            "{:<INDENT$}an agent of the ACP registry (`windlass runtimes --registry`)\n",
            "acp:ID"
        ));
        text.push_str(&format!(
            "{:<INDENT$}the first suitable one (see `windlass runtimes --for …`)\n",
            "auto"
        ));
    }
    Ok(exit::print(&text))
}

/// Describes a runtime as text.
fn shown(status: &RuntimeStatus) -> String {
    let mut text = headed(&status.name, &status.about);
    let mut line = |words: &str| text.push_str(&wrapped(words));
    match &status.usable {
        Ok(with) => line(&format!("usable: {with}")),
        Err(why) => {
            line(&format!("not usable: {}", why.what));
            why.hint.iter().for_each(|hint| line(&format!("→ {hint}")));
        }
    }
    if let ProgramLocation::At(program) = &status.found {
        line(&program.file.display().to_string());
    }
    status.versions().iter().for_each(|versions| line(versions));
    let (able, unable): (Vec<Work>, Vec<Work>) =
        Work::ALL.iter().partition(|work| status.does(**work));
    if !able.is_empty() {
        let names: Vec<&str> = able.iter().map(|work| work.name()).collect();
        line(&format!("for: {}", names.join(", ")));
    }
    if unable.contains(&Work::FullCoder) {
        line(&format!(
            "not for full-coder: lacks {}",
            status.missing(Work::FullCoder).join(", ")
        ));
    }
    text
}

/// Puts text in the column after a name.
fn headed(name: &str, words: &str) -> String {
    // A name that is too long for its column gets a line of its own.
    let name = one_line(name);
    let (head, tail) = (format!("{name:<INDENT$}"), wrapped(words));
    if name.len() < INDENT {
        format!("{head}{}", tail.trim_start())
    } else {
        format!("{name}\n{tail}")
    }
}

/// Wraps text in the column after the names. A word that is longer than a line is not split.
fn wrapped(words: &str) -> String {
    let (mut text, mut used) = (String::new(), 0);
    for word in one_line(words).split_whitespace() {
        let wide = windlass_text::width::columns(word);
        if used > 0 && INDENT + used + 1 + wide > WIDTH {
            text.push('\n');
            used = 0;
        }
        match used {
            0 => text.push_str(&" ".repeat(INDENT)),
            _ => text.push(' '),
        }
        used += wide + usize::from(used > 0);
        text.push_str(word);
    }
    text.push('\n');
    text
}

fn show_choice(choice: &RuntimeChoice, json: bool) -> ExitCode {
    if json {
        out::json(&ChoiceRow::from(choice));
    } else {
        let name = choice.chosen.as_deref().unwrap_or("none");
        let mut text = headed(name, &format!("for {}", choice.wanted()));
        for (name, why) in &choice.others {
            text.push_str(&headed(name, &format!("not: {why}")));
            why.to_do()
                .iter()
                .for_each(|hint| text.push_str(&wrapped(&format!("→ {hint}"))));
        }
        out::out(&text);
    }
    exit::success_if(choice.chosen.is_some())
}

/// Probes runtimes one by one, and prints each result immediately.
async fn probe(
    names: &[String],
    settings: &Settings,
    args: &RuntimesArgs,
) -> Result<ExitCode, CommandError> {
    let json = args.json;
    let probe = RuntimeProbe::new(&settings.layers, settings.places.runtimes_dir())?;
    let mut probe = probe.with_model(args.model.clone());
    let mut all_work = true;
    for name in names {
        say!("probing {} …", one_line(name));
        let probed = probe.probe(name).await?;
        all_work &= probed.result.is_ok();
        if json {
            out::json(&json!({ "name": probed.name, "probe": ProbeRow::from(&probed) }));
            continue;
        }
        out::out(&headed(name, &probed.line()));
        if let Err(failure) = &probed.result {
            failure
                .last_output
                .lines()
                .for_each(|line| out::out(&wrapped(&format!("| {line}"))));
        }
    }
    Ok(exit::success_if(all_work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_and_long_words_are_not_split() {
        let long = "x".repeat(100);
        let text = wrapped(&format!("one {long} {}", "two ".repeat(20)));
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        assert_eq!(lines[..2], ["one", long.as_str()]);
        assert!(
            text.lines()
                .all(|line| line.len() <= WIDTH || line.trim() == long),
            "{text}"
        );
        assert_eq!(
            headed("native", "the agent"),
            "native            the agent\n"
        );
        assert_eq!(
            headed("acp:a-command with words", "works"),
            "acp:a-command with words\n                  works\n"
        );
    }
}
