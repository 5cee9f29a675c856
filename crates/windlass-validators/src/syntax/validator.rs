//! The syntax check as a validator of a run: which files, what they held before, and how the findings are put
//! together. It reads through the ports and changes nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_core::validator::{
    Before, CheckCtx, Finding, Judgement, Proof, Report, Validator, ValidatorError,
};
use windlass_core::workspace::{Change, FileChange, FileErrorKind, Files};
use windlass_core::{BoxFuture, CancellationToken};

use super::{Checked, Flaw, MAX_FILE, Project, check, place};
use crate::language::{Certainty, Language};

/// The most findings in all.
const MAX_FINDINGS: usize = 200;
/// How alike the lines of two errors must be to be one error in an edited line.
const ALIKE: f64 = 0.6;
/// What is read of a `package.json` or a `pyproject.toml`.
const MAX_SETTINGS: u64 = 1 << 20;

/// Checks the syntax of what changed.
#[derive(Debug, Clone)]
pub struct Syntax {
    /// Its name.
    pub name: String,
    /// Whether its fail stops the landing.
    pub blocking: bool,
    /// How long it may take.
    pub timeout: Duration,
}

impl Default for Syntax {
    fn default() -> Self {
        Self {
            name: "syntax".into(),
            blocking: true,
            timeout: Duration::from_secs(120),
        }
    }
}

impl Validator for Syntax {
    fn name(&self) -> &str {
        &self.name
    }

    fn blocking(&self) -> bool {
        self.blocking
    }

    fn deadline(&self) -> Duration {
        self.timeout
    }

    fn check<'a>(&'a self, ctx: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        let mut look = Look {
            files: ctx.files.clone(),
            before: ctx.before.clone(),
            cancel: ctx.cancel.clone(),
            packages: HashMap::new(),
            python: None,
            wrong: Vec::new(),
            unsure: Vec::new(),
        };
        let changes = ctx.changes.to_vec();
        let time = self.timeout.min(ctx.deadline);
        Box::pin(async move {
            let work = move || {
                look.all(&changes, time);
                look.report()
            };
            let said = tokio::task::spawn_blocking(work).await;
            said.map_err(|err| ValidatorError(format!("the syntax check failed: {err}")))
        })
    }
}

struct Look {
    files: Arc<dyn Files>,
    before: Arc<dyn Before>,
    cancel: CancellationToken,
    /// What the `package.json` of a folder says, its own and those above it.
    packages: HashMap<String, Project>,
    python: Option<u8>,
    wrong: Vec<Finding>,
    unsure: Vec<Finding>,
}

impl Look {
    fn all(&mut self, changes: &[FileChange], time: Duration) {
        let started = Instant::now();
        for change in changes
            .iter()
            .filter(|change| change.change != Change::Deleted)
        {
            let stopped = self.cancel.is_cancelled();
            if stopped || started.elapsed() > time {
                let why = if stopped {
                    "it was stopped"
                } else {
                    "its time was over"
                };
                self.unsure.push(Finding::whole(format!(
                    "{why} before {} was looked at",
                    change.path
                )));
                return;
            }
            if self.wrong.len() >= MAX_FINDINGS {
                return;
            }
            self.one(change);
        }
    }

    fn one(&mut self, change: &FileChange) {
        let path = change.path.as_str();
        // Without an ending the first line decides, so the name alone is not enough to pass a file by.
        let named = path
            .rsplit('/')
            .next()
            .is_some_and(|name| name.contains('.'));
        if named && Language::of(path, b"").is_none() {
            return;
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
                return;
            }
            Err(err)
                if Language::of(path, b"").is_none() && err.kind == FileErrorKind::TooLarge =>
            {
                return;
            }
            Err(err) => return self.unsure(path, &err.message),
        };
        let Some(language) = Language::of(path, &bytes) else {
            return;
        };
        let project = self.project(language, path);
        match check(language, path, &bytes, &project) {
            Checked::Unsure(why) => self.unsure(path, &why),
            Checked::Flaws(flaws) if flaws.is_empty() => {}
            Checked::Flaws(flaws) if language.certainty() == Certainty::Exact => {
                self.fail(path, flaws)
            }
            Checked::Flaws(flaws) => self.added(change, language, &bytes, flaws),
        }
    }

    /// Of what a grammar cannot read, what was not there before.
    fn added(&mut self, change: &FileChange, language: Language, bytes: &[u8], flaws: Vec<Flaw>) {
        let was = match &change.change {
            Change::MovedFrom(from) => from,
            _ => &change.path,
        };
        let before = match self.before.read(was, MAX_FILE) {
            Ok(before) => before.unwrap_or_default(),
            Err(err) => {
                let count = flaws.len();
                let why = format!(
                    "{count} places cannot be read by the grammar of {language}, but what was there before is not known ({}): \
                     the first is at line {}: {}",
                    err.message, flaws[0].line, flaws[0].message
                );
                return self.unsure(&change.path, &why);
            }
        };
        let old = match check(language, was, &before, &Project::default()) {
            Checked::Flaws(old) => old,
            Checked::Unsure(why) => {
                return self.unsure(
                    &change.path,
                    &format!("what was there before could not be read: {why}"),
                );
            }
        };
        let (text, before) = (
            String::from_utf8_lossy(bytes),
            String::from_utf8_lossy(&before),
        );
        match Checked::Flaws(without_old(&text, flaws, &before, &old)).settled() {
            Checked::Flaws(flaws) => self.fail(&change.path, flaws),
            Checked::Unsure(why) => self.unsure(&change.path, &why),
        }
    }

    fn fail(&mut self, path: &str, flaws: Vec<Flaw>) {
        let room = MAX_FINDINGS.saturating_sub(self.wrong.len());
        self.wrong
            .extend(flaws.into_iter().take(room).map(|flaw| Finding {
                path: path.to_owned(),
                line: flaw.line,
                column: flaw.column,
                message: flaw.message,
            }));
    }

    fn unsure(&mut self, path: &str, why: &str) {
        if self.unsure.len() < MAX_FINDINGS {
            let message = format!("its syntax was not checked: {}", place::one_line(why));
            self.unsure.push(Finding {
                path: path.to_owned(),
                line: 0,
                column: 0,
                message,
            });
        }
    }

    fn report(self) -> Report {
        let judgement = match (self.wrong.is_empty(), self.unsure.is_empty()) {
            (false, _) => Judgement::Fail,
            (true, false) => Judgement::Unverifiable,
            (true, true) => Judgement::Pass,
        };
        let findings = self
            .wrong
            .into_iter()
            .chain(self.unsure)
            .take(MAX_FINDINGS)
            .collect();
        let proof = Proof {
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..Proof::default()
        };
        Report {
            judgement,
            findings,
            proof,
        }
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

#[cfg(test)]
#[path = "validator_tests.rs"]
mod tests;
