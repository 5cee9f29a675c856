//! The syntax check as a validator: selects the changed files, compares with their previous content, and reports findings.
//! It reads through the ports and changes nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::validator::{BaseTree, CheckCtx, Finding, Report, ValidatorError};
use windlass_core::workspace::{Change, FileChange, FileErrorKind, Files};

use super::{Checked, Flaw, MAX_FILE, Project, check, position};
use crate::base::{CollectedFindings, ValidatorCheck, each_file, finding_about};
use crate::language::Language;

/// At most this many findings are reported.
const MAX_FINDINGS: usize = 200;
/// Two errors are the same error in an edited line if the similarity of their lines is at least this.
const ALIKE: f64 = 0.6;
/// A larger `package.json` or `pyproject.toml` is not read.
const MAX_SETTINGS: u64 = 1 << 20;

/// The check of the syntax of changed files.
pub(crate) struct Syntax;

impl ValidatorCheck for Syntax {
    async fn check(&self, ctx: &CheckCtx<'_>, time: Duration) -> Result<Report, ValidatorError> {
        let mut checker = ChangedFileChecker {
            files: ctx.files.clone(),
            before: ctx.before.clone(),
            packages: HashMap::new(),
            python: None,
        };
        let look = move |change: &FileChange, found: &mut CollectedFindings| match checker
            .check_file(change)
        {
            Checked::Flaws(flaws) => found.add_flaws(flaws.into_iter().map(|flaw| Finding {
                path: change.path.clone(),
                line: flaw.line,
                column: flaw.column,
                ..Finding::whole(flaw.message)
            })),
            Checked::Unsure(why) => {
                let why = format!("its syntax was not checked: {}", position::one_line(&why));
                found.add_unverified([finding_about(&change.path, why)]);
            }
        };
        each_file(ctx, time, MAX_FINDINGS, look).await
    }
}

/// Checks changed files one by one and caches the settings of their projects.
struct ChangedFileChecker {
    files: Arc<dyn Files>,
    before: Arc<dyn BaseTree>,
    /// The settings in the `package.json` of each directory that has one.
    packages: HashMap<String, Project>,
    python: Option<u8>,
}

impl ChangedFileChecker {
    fn check_file(&mut self, change: &FileChange) -> Checked {
        const NOTHING: Checked = Checked::Flaws(Vec::new());
        let path = change.path.as_str();
        // A file without an extension must be read: its first line decides the language.
        let named = path
            .rsplit('/')
            .next()
            .is_some_and(|name| name.contains('.'));
        if named && Language::of(path, b"").is_none() {
            return NOTHING;
        }
        let bytes = match self.files.read(path, MAX_FILE) {
            Ok(bytes) => bytes,
            // Not a file with content of its own: a symlink (only its target's name lands, wherever it points), a nested
            // repository, or a file that was deleted meanwhile.
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
                self.added_by_change(change, language, &bytes, flaws, &project)
            }
            checked => checked,
        }
    }

    /// The flaws that the change added. If the previous content is not known, all flaws of an exact parser are reported,
    /// and those of a grammar make the result unsure.
    fn added_by_change(
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
                    "{count} places cannot be parsed by the grammar of {language}, but the previous content is not known ({}): \
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
                return Checked::Unsure(format!("the previous content could not be parsed: {why}"));
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
                .all(|flaw| followed_old_error(&text, flaw, &before, first))
        {
            return Checked::Unsure(format!(
                "it could not be parsed before the change either, and line {}, where parsing fails now, did not change: {}",
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
                    None => *self.python.insert(minimum_python(self.files.as_ref())),
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

    /// The settings in the nearest `package.json`.
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
            if let Some(project) = found.map(|bytes| read_package(&bytes)) {
                self.packages.insert(folder.to_owned(), project);
                return project;
            }
            if folder.is_empty() {
                return Project::default();
            }
        }
    }
}

fn read_package(bytes: &[u8]) -> Project {
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

/// The minor version of the oldest Python 3 that the project supports; 0 if it is not declared.
fn minimum_python(files: &dyn Files) -> u8 {
    let read = |path| {
        files
            .read(path, MAX_SETTINGS)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
    };
    let project = read("pyproject.toml").and_then(|text| toml::from_str::<toml::Table>(&text).ok());
    let declared = project
        .as_ref()
        .and_then(|table| table.get("project")?.get("requires-python")?.as_str());
    let declared = declared
        .map(str::to_owned)
        .or_else(|| read(".python-version").map(|text| format!(">={}", text.trim())));
    let required = declared.unwrap_or_default();
    let minors = required.split(',').filter_map(|part| {
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

/// Removes each flaw that corresponds to one in the old text: on a line with the same text, else on a similar line.
fn without_old(text: &str, flaws: Vec<Flaw>, before: &str, old: &[Flaw]) -> Vec<Flaw> {
    let mut old: Vec<&str> = old
        .iter()
        .map(|flaw| position::line_of(before, flaw.line).trim())
        .collect();
    let mut left = Vec::new();
    for flaw in flaws {
        let line = position::line_of(text, flaw.line).trim();
        match old.iter().position(|known| *known == line) {
            Some(at) => drop(old.swap_remove(at)),
            None => left.push(flaw),
        }
    }
    left.retain(|flaw| {
        let line = position::line_of(text, flaw.line).trim();
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

/// Whether the line of a flaw existed before the change after the first error of the old text. A parser stops at that
/// error, so the flaw may be an old one.
fn followed_old_error(text: &str, flaw: &Flaw, before: &str, first: u32) -> bool {
    let line = position::line_of(text, flaw.line).trim();
    let mut behind = before.lines().skip(first as usize);
    !line.is_empty() && behind.any(|known| known.trim() == line)
}

#[cfg(test)]
#[path = "validator_tests.rs"]
mod tests;
