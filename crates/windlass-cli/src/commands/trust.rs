//! `trust`: which project files count, by their content; and the question about one that is new.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use windlass_core::gate::Mode;
use windlass_core::workspace::Files;
use windlass_host::config::{Layers, Value};
use windlass_host::sandbox::NetPolicy;
use windlass_host::trust::{ProjectFile, Said, TrustStore, project_files};

use crate::args::TrustCommand;
use crate::failure::Failure;
use crate::out::{err, say};
use crate::safe::{json_line, marked_line, one_line};
use crate::settings::{Settings, default_limit};
use crate::{exit, plan};

/// Set in the environment of everything that a run starts.
const INSIDE_A_RUN: &str = "WINDLASS_RUN";

pub(super) fn run(command: Option<TrustCommand>) -> Result<ExitCode, Failure> {
    let settings = Settings::load(None)?;
    let store = TrustStore::new(settings.places.trust_dir());
    match command.unwrap_or(TrustCommand::List { json: false }) {
        TrustCommand::List { json } => list(&store, json),
        TrustCommand::Show { dir } => {
            let root = workspace(dir.as_deref())?;
            let mut text = String::new();
            for file in files(&root)? {
                let said = match store.said(&root, &file)? {
                    Some(Said::Trusted) => "trusted",
                    Some(Said::Refused) => "refused: only what tightens is used",
                    None => "not trusted: only what tightens is used",
                };
                text.push_str(&format!(
                    "{}: {said}\n{}",
                    shown_name(&root, &file),
                    described(&settings, &root, &file)?
                ));
            }
            if text.is_empty() {
                say!("{} has no settings of its own", root.display());
            }
            Ok(exit::printed(&text))
        }
        TrustCommand::Add { dir, yes } => {
            may_change()?;
            let root = workspace(dir.as_deref())?;
            if store.lies_in(&root) {
                return Err(Failure::usage(
                    "the answers would be kept inside the project they are about",
                )
                .hint("set XDG_DATA_HOME to a directory outside of it"));
            }
            let files = files(&root)?;
            if files.is_empty() {
                return Err(Failure::usage(format!(
                    "{} has no settings of its own to trust",
                    root.display()
                )));
            }
            for file in files {
                let said = if yes {
                    Some(Said::Trusted)
                } else {
                    ask(&settings, &root, &file)?
                };
                match said {
                    Some(said) => store.keep(&root, &file, said)?,
                    None => {
                        return Err(Failure::new(
                            exit::ASKED,
                            "nobody answered, so nothing is trusted",
                        )
                        .hint("look with `windlass trust show`, then give --yes"));
                    }
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        TrustCommand::Remove { dir } => {
            may_change()?;
            // Also a directory that is gone can be forgotten.
            let given = dir.clone().unwrap_or_else(|| PathBuf::from("."));
            let root = workspace(dir.as_deref()).unwrap_or(given);
            match store.forget(&root)? {
                true => Ok(ExitCode::SUCCESS),
                false => Err(
                    Failure::usage(format!("nothing is known about {}", root.display()))
                        .hint("`windlass trust list` shows what is"),
                ),
            }
        }
    }
}

fn list(store: &TrustStore, as_json: bool) -> Result<ExitCode, Failure> {
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
                    let said = if *said == Said::Trusted {
                        "trusted"
                    } else {
                        "refused"
                    };
                    let place = one_line(&record.root.join(name).display().to_string());
                    text.push_str(&format!(
                        "{said:<8} {}  {place}  ({state})\n",
                        hash.get(..16).unwrap_or(hash)
                    ));
                }
            }
        }
    }
    if text.is_empty() && !as_json {
        say!("no project is trusted; `windlass trust show` says what one would change");
    }
    Ok(exit::printed(&text))
}

/// A command that an agent started must not decide what is trusted.
fn may_change() -> Result<(), Failure> {
    if std::env::var_os(INSIDE_A_RUN).is_none() {
        return Ok(());
    }
    Err(Failure::new(
        exit::REFUSED,
        "trust is given by a person, and this command was started by a run",
    )
    .hint("run it at a terminal of your own"))
}

fn workspace(dir: Option<&Path>) -> Result<PathBuf, Failure> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    Ok(plan::open_workspace(dir, home.as_deref())?
        .root()
        .to_owned())
}

fn files(root: &Path) -> Result<Vec<ProjectFile>, Failure> {
    let (files, links) = project_files(root)?;
    for link in links {
        say!("warning: {}", link_warning(root, link));
    }
    Ok(files)
}

/// What is said about a name that is not read.
pub(crate) fn link_warning(root: &Path, name: &str) -> String {
    let place = one_line(&root.join(name).display().to_string());
    format!(
        "{place} is a link or no regular file, and is not read: a project's settings are files of its own"
    )
}

/// Asks about every file of a project that would loosen or redirect something; says whether anything changed. Nobody
/// is asked where nobody can answer.
pub(crate) fn ask_about(settings: &Settings, root: &Path) -> Result<bool, Failure> {
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

/// The person's answer about one file; none where there is nobody.
fn ask(settings: &Settings, root: &Path, file: &ProjectFile) -> Result<Option<Said>, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(None);
    }
    err(&format!(
        "{} wants to change how windlass works here:\n{}",
        shown_name(root, file),
        described(settings, root, file)?
    ));
    for _ in 0..5 {
        err("[y] trust exactly this content  [n] use only what tightens: ");
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(Some(Said::Trusted)),
            "n" | "no" => return Ok(Some(Said::Refused)),
            _ => {}
        }
    }
    Ok(None)
}

fn shown_name(root: &Path, file: &ProjectFile) -> String {
    one_line(&root.join(file.name).display().to_string())
}

/// The hash, and every value with what it would do.
fn described(settings: &Settings, root: &Path, file: &ProjectFile) -> Result<String, Failure> {
    let mut text = format!("  blake3 {}\n", file.hash());
    for (name, value) in Settings::project_values(root, file)? {
        let what = match Meaning::of(&name, &value, &settings.layers) {
            Meaning::Tightens => "may tighten",
            Meaning::Loosens => "LOOSENS",
            Meaning::Redirects => "REDIRECTS",
            Meaning::Runs => "RUNS",
            Meaning::Other => "sets",
        };
        text.push_str(&format!(
            "  {what:<12} {} = {}\n",
            marked_line(&name),
            marked_line(&value.to_string())
        ));
    }
    Ok(text)
}

/// What a key does to somebody who did not write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Without trust it is used only where it tightens.
    Tightens,
    /// It may give more room.
    Loosens,
    /// It decides who is asked, with which key, at which address.
    Redirects,
    /// It names a program.
    Runs,
    /// Anything else; it needs trust, too.
    Other,
}

impl Meaning {
    /// Judged by the value as well: what gives more room than there is without the project loosens.
    pub(crate) fn of(key: &str, value: &Value, own: &Layers<'_>) -> Self {
        let by_value = |loosens: bool| {
            if loosens {
                Self::Loosens
            } else {
                Self::Tightens
            }
        };
        match key {
            "approval" => by_value(mode(Some(value)) > mode(own.get(key).map(|own| &own.value))),
            "max_budget_usd" | "max_steps" | "max_iterations" | "max_tokens" | "max_seconds" => {
                by_value(
                    limit(value)
                        > own
                            .get(key)
                            .map_or(default_limit(key), |own| limit(&own.value)),
                )
            }
            "sandbox.level" => {
                by_value(level(Some(value)) > level(own.get(key).map(|own| &own.value)))
            }
            "sandbox.net" => by_value(net(Some(value)).is_none_or(|project| {
                let own = net(own.get(key).map(|own| &own.value)).unwrap_or_default();
                project.narrowed(&own) != project
            })),
            "rules.ask" | "rules.deny" | "validate.protect" => Self::Tightens,
            "validate.strict_judge" => by_value(*value == Value::Boolean(false)),
            key if is_check(key) => Self::Tightens,
            "validate.chain" | "validate.write_paths" => Self::Loosens,
            key if key.starts_with("validators.") => Self::Loosens,
            "rules.allow" | "credentials.show" | "env.pass" | "on_ask" => Self::Loosens,
            "provider" | "model" | "ca_file" | "runtime" | "runtime_order" | "runtime_fallback" => {
                Self::Redirects
            }
            // Programs, their words and their variables.
            key if key.starts_with("runtimes.") => Self::Runs,
            key if key.starts_with("providers.") || key.starts_with("profiles.") => Self::Redirects,
            // It decides who else hears of the work here.
            key if key.starts_with("otel.") => Self::Redirects,
            key if key.starts_with("tools.") => Self::Runs,
            key if key.starts_with("sandbox.") => Self::Loosens,
            _ => Self::Other,
        }
    }
}

/// One more check, which runs in the sandbox of an isolated run.
fn is_check(key: &str) -> bool {
    key.starts_with("validators.") && (key.ends_with(".command") || key.ends_with(".custom"))
}

fn text(value: Option<&Value>) -> Option<&str> {
    match value {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// How freely calls run, as a number.
fn mode(value: Option<&Value>) -> u8 {
    text(value)
        .and_then(|text| text.parse::<Mode>().ok())
        .unwrap_or_default() as u8
}

/// How much commands may do, as a number. Without a word they may write in the workspace.
fn level(value: Option<&Value>) -> u8 {
    match text(value) {
        Some("read-only") => 0,
        Some("full") => 2,
        _ => 1,
    }
}

fn limit(value: &Value) -> f64 {
    match value {
        Value::Integer(number) => *number as f64,
        Value::Number(number) => *number,
        _ => f64::INFINITY,
    }
}

fn net(value: Option<&Value>) -> Option<NetPolicy> {
    text(value)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use windlass_host::config::Layer;

    use super::*;
    use crate::settings::KEYS;

    #[track_caller]
    fn check(own: &str, project: &str, expect: Meaning) {
        let read = |text: &str| {
            let mut layers = Layers::new(KEYS);
            layers
                .add_text(Layer::User, Path::new("config.toml"), text)
                .expect(text);
            layers
        };
        let (own_layers, project_layers) = (read(own), read(project));
        let (key, setting) = project_layers.iter().next().expect("a key");
        assert_eq!(
            Meaning::of(key, &setting.value, &own_layers),
            expect,
            "{project} over {own:?}"
        );
    }

    #[test]
    fn a_value_is_held_against_what_is_in_force_without_the_project() {
        use Meaning::{Loosens, Other, Redirects, Runs, Tightens};
        check("", "approval = \"plan\"", Tightens);
        check("", "approval = \"ask\"", Tightens);
        check("", "approval = \"edit\"", Loosens);
        check("", "approval = \"auto\"", Loosens);
        check("approval = \"auto\"", "approval = \"edit\"", Tightens);
        check("approval = \"plan\"", "approval = \"ask\"", Loosens);
        check("", "sandbox.level = \"read-only\"", Tightens);
        check("", "sandbox.level = \"full\"", Loosens);
        check(
            "sandbox.level = \"full\"",
            "sandbox.level = \"workspace-write\"",
            Tightens,
        );
        check(
            "sandbox.level = \"read-only\"",
            "sandbox.level = \"workspace-write\"",
            Loosens,
        );
        check("", "sandbox.net = \"off\"", Tightens);
        check("", "sandbox.net = \"loopback\"", Loosens);
        check("", "sandbox.net = \"open\"", Loosens);
        check("", "sandbox.net = \"no such thing\"", Loosens);
        check(
            "sandbox.net = \"open\"",
            "sandbox.net = \"allow:a.example\"",
            Tightens,
        );
        check(
            "sandbox.net = \"allow:a.example,b.example\"",
            "sandbox.net = \"allow:a.example\"",
            Tightens,
        );
        check(
            "sandbox.net = \"allow:a.example,b.example\"",
            "sandbox.net = \"allow:b.example,a.example\"",
            Tightens,
        );
        check(
            "sandbox.net = \"allow:a.example\"",
            "sandbox.net = \"allow:a.example,b.example\"",
            Loosens,
        );
        check("", "max_steps = 50", Tightens);
        check("", "max_steps = 51", Loosens);
        check("max_steps = 60", "max_steps = 51", Tightens);
        check("", "max_tokens = \"unlimited\"", Loosens);
        check(
            "max_tokens = \"unlimited\"",
            "max_tokens = 900000000",
            Tightens,
        );
        check("", "max_seconds = 3601", Loosens);
        check("", "max_budget_usd = 0.5", Tightens);
        check("", "max_budget_usd = 10.5", Loosens);
        check("", "rules.deny = [\"bash\"]", Tightens);
        check("", "rules.allow = [\"bash\"]", Loosens);
        check("", "sandbox.write = [\"/\"]", Loosens);
        check("", "model = \"x\"", Redirects);
        check("", "otel.endpoint = \"http://x\"", Redirects);
        check(
            "otel.endpoint = \"http://x\"",
            "otel.content = true",
            Redirects,
        );
        check("", "tools.x.command = [\"x\"]", Runs);
        check("", "temperature = 1.0", Other);
    }
}
