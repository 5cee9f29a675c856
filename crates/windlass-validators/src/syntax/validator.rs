//! The syntax check as a validator of a run: which files, what they held before, and how the findings are put
//! together. It reads through the ports and changes nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::validator::{Before, CheckCtx, Finding, Report, ValidatorError};
use windlass_core::workspace::{Change, FileChange, FileErrorKind, Files};

use super::{Checked, Flaw, MAX_FILE, Project, check, place};
use crate::base::{Check, Found, about, each_file};
use crate::language::Language;

/// The most findings in all.
const MAX_FINDINGS: usize = 200;
/// How alike the lines of two errors must be to be one error in an edited line.
const ALIKE: f64 = 0.6;
/// What is read of a `package.json` or a `pyproject.toml`.
const MAX_SETTINGS: u64 = 1 << 20;

/// Checks the syntax of what changed.
pub(crate) struct Syntax;

impl Check for Syntax {
    async fn check(&self, ctx: &CheckCtx<'_>, time: Duration) -> Result<Report, ValidatorError> {
        let mut look = Look {
            files: ctx.files.clone(),
            before: ctx.before.clone(),
            packages: HashMap::new(),
            python: None,
        };
        let look = move |change: &FileChange, found: &mut Found| match look.one(change) {
            Checked::Flaws(flaws) => found.wrong(flaws.into_iter().map(|flaw| Finding {
                path: change.path.clone(),
                line: flaw.line,
                column: flaw.column,
                ..Finding::whole(flaw.message)
            })),
            Checked::Unsure(why) => {
                let why = format!("its syntax was not checked: {}", place::one_line(&why));
                found.unsure([about(&change.path, why)]);
            }
        };
        each_file(ctx, time, MAX_FINDINGS, look).await
    }
}

struct Look {
    files: Arc<dyn Files>,
    before: Arc<dyn Before>,
    /// What the `package.json` of a folder says, its own and those above it.
    packages: HashMap<String, Project>,
    python: Option<u8>,
}

impl Look {
    fn one(&mut self, change: &FileChange) -> Checked {
        const NOTHING: Checked = Checked::Flaws(Vec::new());
        let path = change.path.as_str();
        // Without an ending the first line decides, so the name alone is not enough to pass a file by.
        let named = path
            .rsplit('/')
            .next()
            .is_some_and(|name| name.contains('.'));
        if named && Language::of(path, b"").is_none() {
            return NOTHING;
        }
        let bytes = match self.files.read(path, MAX_FILE) {
            Ok(bytes) => bytes,
            // A link, also one that leads out, of which only the target's name lands; a folder of another repository,
            // or gone since.
            Err(err)
                if matches!(
                    err.kind,
                    FileErrorKind::WrongKind | FileErrorKind::NotFound | FileErrorKind::Outside
                ) =>
            {
                return NOTHING;
            }
            Err(err)
                if Language::of(path, b"").is_none() && err.kind == FileErrorKind::TooLarge =>
            {
                return NOTHING;
            }
            Err(err) => return Checked::Unsure(err.message),
        };
        let Some(language) = Language::of(path, &bytes) else {
            return NOTHING;
        };
        let project = self.project(language, path);
        match check(language, path, &bytes, &project) {
            Checked::Flaws(flaws) if !flaws.is_empty() => {
                self.added(change, language, &bytes, flaws, &project)
            }
            checked => checked,
        }
    }

    /// Of what cannot be read, what was not there before. Where that is not known, the word of an exact parser counts, and
    /// a grammar is not sure.
    fn added(
        &self,
        change: &FileChange,
        language: Language,
        bytes: &[u8],
        flaws: Vec<Flaw>,
        project: &Project,
    ) -> Checked {
        let exact = language.is_exact();
        let was = match &change.change {
            Change::MovedFrom(from) => from,
            _ => &change.path,
        };
        let before = match self.before.read(was, MAX_FILE) {
            Ok(before) => before.unwrap_or_default(),
            Err(_) if exact => return Checked::Flaws(flaws),
            Err(err) => {
                let count = flaws.len();
                let why = format!(
                    "{count} places cannot be read by the grammar of {language}, but what was there before is not known ({}): \
                     the first is at line {}: {}",
                    err.message, flaws[0].line, flaws[0].message
                );
                return Checked::Unsure(why);
            }
        };
        let old = match check(language, was, &before, project) {
            Checked::Flaws(old) => old,
            Checked::Unsure(_) if exact => return Checked::Flaws(flaws),
            Checked::Unsure(why) => {
                return Checked::Unsure(format!("what was there before could not be read: {why}"));
            }
        };
        let (text, before) = (
            String::from_utf8_lossy(bytes),
            String::from_utf8_lossy(&before),
        );
        let first = old.iter().map(|flaw| flaw.line).min();
        let left = without_old(&text, flaws, &before, &old);
        if let (Some(first), [flaw, ..]) = (first, left.as_slice())
            && left
                .iter()
                .all(|flaw| stood_behind(&text, flaw, &before, first))
        {
            return Checked::Unsure(format!(
                "it could not be read before the change either, and line {}, where it cannot be read now, is as it was: {}",
                flaw.line, flaw.message
            ));
        }
        Checked::Flaws(left).settled()
    }

    fn project(&mut self, language: Language, path: &str) -> Project {
        match language {
            Language::Python => {
                let python = match self.python {
                    Some(known) => known,
                    None => *self.python.insert(least_python(self.files.as_ref())),
                };
                Project {
                    python,
                    ..Project::default()
                }
            }
            Language::JavaScript => self.package(path),
            _ => Project::default(),
        }
    }

    /// What the nearest `package.json` says.
    fn package(&mut self, path: &str) -> Project {
        let mut folder = path;
        loop {
            folder = folder.rsplit_once('/').map_or("", |(folder, _)| folder);
            if let Some(known) = self.packages.get(folder) {
                return *known;
            }
            let file = if folder.is_empty() {
                "package.json".to_owned()
            } else {
                format!("{folder}/package.json")
            };
            let found = self.files.read(&file, MAX_SETTINGS).ok();
            if let Some(project) = found.map(|bytes| package_says(&bytes)) {
                self.packages.insert(folder.to_owned(), project);
                return project;
            }
            if folder.is_empty() {
                return Project::default();
            }
        }
    }
}

fn package_says(bytes: &[u8]) -> Project {
    let package: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    let needs = ["dependencies", "devDependencies", "peerDependencies"];
    let names = needs
        .iter()
        .filter_map(|key| package[*key].as_object())
        .flat_map(serde_json::Map::keys);
    let with_jsx = |name: &String| {
        matches!(
            name.as_str(),
            "react" | "preact" | "solid-js" | "react-native" | "next" | "gatsby" | "inferno"
        )
    };
    Project {
        es_modules: package["type"] == "module",
        jsx: names.into_iter().any(with_jsx),
        ..Project::default()
    }
}

/// The version 3 of Python that the project needs at least; 0 when it does not say.
fn least_python(files: &dyn Files) -> u8 {
    let read = |path| {
        files
            .read(path, MAX_SETTINGS)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
    };
    let project = read("pyproject.toml").and_then(|text| toml::from_str::<toml::Table>(&text).ok());
    let said = project
        .as_ref()
        .and_then(|table| table.get("project")?.get("requires-python")?.as_str());
    let said = said
        .map(str::to_owned)
        .or_else(|| read(".python-version").map(|text| format!(">={}", text.trim())));
    let least = said.unwrap_or_default();
    let minors = least.split(',').filter_map(|part| {
        let part = part.trim();
        let version = [">=", "==", "~="]
            .iter()
            .find_map(|sign| part.strip_prefix(sign))?;
        let minor = version
            .trim()
            .strip_prefix("3.")?
            .split(|c: char| !c.is_ascii_digit())
            .next()?;
        minor.parse::<u8>().ok()
    });
    minors.max().unwrap_or_default()
}

/// The flaws that have no partner in the old text: the same message on the same line of text, else on a line that was
/// only edited.
fn without_old(text: &str, flaws: Vec<Flaw>, before: &str, old: &[Flaw]) -> Vec<Flaw> {
    let mut old: Vec<&str> = old
        .iter()
        .map(|flaw| place::line_of(before, flaw.line).trim())
        .collect();
    let mut left = Vec::new();
    for flaw in flaws {
        let line = place::line_of(text, flaw.line).trim();
        match old.iter().position(|known| *known == line) {
            Some(at) => drop(old.swap_remove(at)),
            None => left.push(flaw),
        }
    }
    left.retain(|flaw| {
        let line = place::line_of(text, flaw.line).trim();
        let alike = |known: &&str| {
            known.len().max(line.len()) < 500
                && strsim::normalized_levenshtein(known, line) >= ALIKE
        };
        match old.iter().position(alike) {
            Some(at) => {
                old.swap_remove(at);
                false
            }
            None => true,
        }
    });
    left
}

/// Whether the line of a flaw was already there behind the first error of the old text, where no parser looked.
fn stood_behind(text: &str, flaw: &Flaw, before: &str, first: u32) -> bool {
    let line = place::line_of(text, flaw.line).trim();
    let mut behind = before.lines().skip(first as usize);
    !line.is_empty() && behind.any(|known| known.trim() == line)
}

#[cfg(test)]
#[path = "validator_tests.rs"]
mod tests;
