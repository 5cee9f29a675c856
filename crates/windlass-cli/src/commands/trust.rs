//! `trust`: trusts or refuses the settings files of projects by content, and asks about new ones.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use windlass::core::workspace::Files;
use windlass::trust::{ProjectFile, TrustDecision, TrustStore, project_files};
use windlass_text::sanitize::{marked_line, one_line};

use crate::args::TrustCommand;
use crate::command_error::CommandError;
use crate::exit;
use crate::out::{err, say};
use crate::process;
use crate::sanitize::json_line;
use windlass::settings::Settings;
use windlass::trust::{SettingEffect, link_warning};

/// The engine sets this variable for every process of a run.
const INSIDE_A_RUN: &str = "WINDLASS_RUN";

pub(super) fn run(command: Option<TrustCommand>) -> Result<ExitCode, CommandError> {
    let settings = process::load_settings(None)?;
    let store = TrustStore::new(settings.places.trust_dir());
    match command.unwrap_or(TrustCommand::List { json: false }) {
        TrustCommand::List { json } => list(&store, json),
        TrustCommand::Show { dir } => {
            let root = workspace(dir.as_deref())?;
            let mut text = String::new();
            for file in files(&root)? {
                let said = match store.decision(&root, &file)? {
                    Some(TrustDecision::Trusted) => "trusted",
                    Some(TrustDecision::Refused) => "refused: only values that tighten apply",
                    None => "not trusted: only values that tighten apply",
                };
                text.push_str(&format!(
                    "{}: {said}\n{}",
                    shown_name(&root, &file),
                    described(&settings, &root, &file)?
                ));
            }
            if text.is_empty() {
                say!("{} has no project settings", root.display());
            }
            Ok(exit::print(&text))
        }
        TrustCommand::Add { dir, yes } => {
            may_change()?;
            let root = workspace(dir.as_deref())?;
            if store.lies_in(&root) {
                return Err(CommandError::usage(
                    "the trust decisions would be stored inside the project itself",
                )
                .hint("set XDG_DATA_HOME to a directory outside the project"));
            }
            let files = files(&root)?;
            if files.is_empty() {
                return Err(CommandError::usage(format!(
                    "{} has no project settings to trust",
                    root.display()
                )));
            }
            for file in files {
                let said = if yes {
                    Some(TrustDecision::Trusted)
                } else {
                    ask(&settings, &root, &file)?
                };
                match said {
                    Some(said) => store.keep(&root, &file, said)?,
                    None => {
                        return Err(CommandError::new(
                            exit::ASKED,
                            "no user answered, so nothing is trusted",
                        )
                        .hint("see the settings with `windlass trust show`, then use `--yes`"));
                    }
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        TrustCommand::Remove { dir } => {
            may_change()?;
            // A directory that does not exist any more can be forgotten, too.
            let given = dir.clone().unwrap_or_else(|| PathBuf::from("."));
            let root = workspace(dir.as_deref()).unwrap_or(given);
            match store.forget(&root)? {
                true => Ok(ExitCode::SUCCESS),
                false => Err(CommandError::usage(format!(
                    "there is no trust decision about {}",
                    root.display()
                ))
                .hint("`windlass trust list` lists the decisions")),
            }
        }
    }
}

fn list(store: &TrustStore, as_json: bool) -> Result<ExitCode, CommandError> {
    let mut text = String::new();
    for record in store.list()? {
        for (name, hashes) in &record.files {
            for (hash, said) in hashes {
                let now = project_files(&record.root).ok().and_then(|(files, _)| {
                    let file = files.into_iter().find(|file| file.name == name.as_str())?;
                    Some(file.hash() == *hash)
                });
                let state = match now {
                    Some(true) => "unchanged",
                    Some(false) => "changed since",
                    None => "gone",
                };
                if as_json {
                    let row = json!({ "root": record.root, "file": name, "blake3": hash, "said": said, "now": state });
                    text.push_str(&json_line(&row));
                } else {
                    let said = if *said == TrustDecision::Trusted {
                        "trusted"
                    } else {
                        "refused"
                    };
                    let place = record.root.join(name).display().to_string();
                    let place = one_line(&place);
                    text.push_str(&format!(
                        "{said:<8} {}  {place}  ({state})\n",
                        hash.get(..16).unwrap_or(hash)
                    ));
                }
            }
        }
    }
    if text.is_empty() && !as_json {
        say!("no project is trusted; `windlass trust show` shows the settings of this one");
    }
    Ok(exit::print(&text))
}

/// Fails inside a run: an agent must not decide about trust.
fn may_change() -> Result<(), CommandError> {
    refuse_inside_a_run("change trust")
}

/// Fails if a run started this command. `what` completes "only a person can …".
pub(crate) fn refuse_inside_a_run(what: &str) -> Result<(), CommandError> {
    if std::env::var_os(INSIDE_A_RUN).is_none() {
        return Ok(());
    }
    Err(CommandError::new(
        exit::REFUSED,
        format!("only a person can {what}, and a run started this command"),
    )
    .hint("run the command yourself in a terminal"))
}

fn workspace(dir: Option<&Path>) -> Result<PathBuf, CommandError> {
    Ok(process::open_workspace(dir)?.root().to_owned())
}

fn files(root: &Path) -> Result<Vec<ProjectFile>, CommandError> {
    let (files, links) = project_files(root)?;
    for link in links {
        say!("warning: {}", one_line(&link_warning(root, link)));
    }
    Ok(files)
}

/// Asks about every untrusted settings file of a project that would loosen or redirect something. Returns whether a
/// decision was stored. Without a terminal it asks nothing.
pub(crate) fn ask_about(settings: &Settings, root: &Path) -> Result<bool, CommandError> {
    let store = TrustStore::new(settings.places.trust_dir());
    if settings.untrusted.is_empty() || store.lies_in(root) || may_change().is_err() {
        return Ok(false);
    }
    let mut changed = false;
    for file in &settings.untrusted {
        if let Some(said) = ask(settings, root, file)? {
            store.keep(root, file, said)?;
            changed = true;
        }
    }
    Ok(changed)
}

/// Asks the user about one file; `None` without a terminal or an answer.
fn ask(
    settings: &Settings,
    root: &Path,
    file: &ProjectFile,
) -> Result<Option<TrustDecision>, CommandError> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(None);
    }
    err(&format!(
        "{} wants to change the settings of windlass for this project:\n{}",
        shown_name(root, file),
        described(settings, root, file)?
    ));
    for _ in 0..5 {
        err("[y]es, trust exactly this content  [n]o, apply only values that tighten: ");
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(Some(TrustDecision::Trusted)),
            "n" | "no" => return Ok(Some(TrustDecision::Refused)),
            _ => {}
        }
    }
    Ok(None)
}

fn shown_name(root: &Path, file: &ProjectFile) -> String {
    one_line(&root.join(file.name).display().to_string()).into_owned()
}

/// Describes a file: its hash, and every value with its effect.
fn described(settings: &Settings, root: &Path, file: &ProjectFile) -> Result<String, CommandError> {
    let mut text = format!("  blake3 {}\n", file.hash());
    for (name, value) in Settings::project_values(root, file)? {
        let what = match SettingEffect::of(&name, &value, &settings.layers) {
            SettingEffect::Tightens => "may tighten",
            SettingEffect::Loosens => "LOOSENS",
            SettingEffect::Redirects => "REDIRECTS",
            SettingEffect::Runs => "RUNS",
            SettingEffect::Other => "sets",
        };
        text.push_str(&format!(
            "  {what:<12} {} = {}\n",
            marked_line(&name),
            marked_line(&value.to_string())
        ));
    }
    Ok(text)
}
