//! Files in memory and scripted commands, for the tests of this crate.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_core::validator::{BaseTree, CheckCtx, Report};
use windlass_core::workspace::*;
use windlass_core::{BoxFuture, CancellationToken};

use crate::base::ValidatorCheck;

/// The context of a check, with files in memory.
pub(crate) struct CheckFixture {
    files: Arc<dyn Files>,
    before: Arc<dyn BaseTree>,
    processes: Arc<dyn Processes>,
    ran: Arc<Mutex<Vec<Command>>>,
    pub(crate) changes: Vec<FileChange>,
    pub(crate) cancel: CancellationToken,
    pub(crate) deadline: Duration,
}

impl CheckFixture {
    /// The files now and before; the changes are the differences. `None` means that the previous files are not known.
    pub(crate) fn new(now: &[(&str, &[u8])], before: Option<&[(&str, &[u8])]>) -> Self {
        let map = |files: &[(&str, &[u8])]| -> HashMap<String, Vec<u8>> {
            files
                .iter()
                .map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec()))
                .collect()
        };
        let was = before.map(map);
        let now = map(now);
        let mut changes: Vec<_> = now
            .iter()
            .filter_map(|(path, bytes)| {
                let old = was.as_ref().and_then(|was| was.get(path));
                let change = if old.is_some() || was.is_none() {
                    Change::Modified
                } else {
                    Change::Created
                };
                (old != Some(bytes)).then(|| FileChange {
                    path: path.clone(),
                    change,
                    added: Some(0),
                    removed: Some(0),
                    diff: None,
                })
            })
            .collect();
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        let ran = Arc::new(Mutex::new(Vec::new()));
        Self {
            files: Arc::new(MemoryFiles(now)),
            before: Arc::new(BaseFiles(was)),
            processes: Arc::new(ScriptedProcesses {
                end: Err(ProcessError("nothing runs here".into())),
                ran: ran.clone(),
            }),
            ran,
            changes,
            cancel: CancellationToken::new(),
            deadline: Duration::from_secs(60),
        }
    }

    /// Makes every command end with this status and output.
    pub(crate) fn ending(mut self, end: ProcessEnd, output: &str) -> Self {
        let finished = Finished {
            end,
            output: output.to_owned(),
            total_bytes: output.len() as u64,
            artifact: None,
            took: Duration::ZERO,
            not_landed: None,
            refused: Vec::new(),
        };
        self.processes = Arc::new(ScriptedProcesses {
            end: Ok(finished),
            ran: self.ran.clone(),
        });
        self
    }

    /// The commands that were run.
    pub(crate) fn ran(&self) -> Vec<Command> {
        self.ran.lock().unwrap().clone()
    }

    /// Runs a check on the changes.
    pub(crate) fn look(&self, check: &impl ValidatorCheck) -> Report {
        let ctx = CheckCtx {
            files: &self.files,
            before: &self.before,
            processes: &self.processes,
            changes: &self.changes,
            deadline: self.deadline,
            cancel: self.cancel.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(check.check(&ctx, self.deadline)).unwrap()
    }
}

/// A report as text: the verdict, then a line for each finding.
pub(crate) fn text(report: &Report) -> String {
    let mut lines = vec![format!("{:?}", report.judgement).to_lowercase()];
    lines.extend(report.findings.iter().map(ToString::to_string));
    lines.join("\n")
}

struct MemoryFiles(HashMap<String, Vec<u8>>);

fn failed(kind: FileErrorKind, message: &str) -> FileError {
    FileError {
        kind,
        message: message.into(),
    }
}

impl Files for MemoryFiles {
    fn root(&self) -> &Path {
        Path::new("/w")
    }
    fn resolve(&self, _: &str) -> Result<Resolved, FileError> {
        Err(failed(FileErrorKind::Io, "not here"))
    }
    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError> {
        let bytes = self
            .0
            .get(path)
            .ok_or_else(|| failed(FileErrorKind::NotFound, "no such file"))?;
        if bytes.len() as u64 > max {
            return Err(failed(FileErrorKind::TooLarge, "it is too large"));
        }
        Ok(bytes.clone())
    }
    fn read_range(&self, _: &str, _: u64, _: u64) -> Result<Vec<u8>, FileError> {
        Err(failed(FileErrorKind::Io, "not here"))
    }
    fn stat(&self, _: &str) -> Result<FileStat, FileError> {
        Err(failed(FileErrorKind::Io, "not here"))
    }
    fn write(&self, _: &str, _: &[u8]) -> Result<(), FileError> {
        Err(failed(FileErrorKind::Io, "not here"))
    }
    fn remove(&self, _: &str) -> Result<(), FileError> {
        Err(failed(FileErrorKind::Io, "not here"))
    }
    fn rename(&self, _: &str, _: &str, _: bool) -> Result<(), FileError> {
        Err(failed(FileErrorKind::Io, "not here"))
    }
    fn list(&self, _: &str, _: usize) -> Result<Listing, FileError> {
        Err(failed(FileErrorKind::Io, "not here"))
    }
    fn find(&self, _: &FindQuery, _: &CancellationToken) -> Result<FoundPaths, FileError> {
        Err(failed(FileErrorKind::Io, "not here"))
    }
    fn grep(&self, _: &GrepQuery, _: &CancellationToken) -> Result<Grepped, FileError> {
        Err(failed(FileErrorKind::Io, "not here"))
    }
}

struct BaseFiles(Option<HashMap<String, Vec<u8>>>);

impl BaseTree for BaseFiles {
    fn read(&self, path: &str, _: u64) -> Result<Option<Vec<u8>>, FileError> {
        let known = self
            .0
            .as_ref()
            .ok_or_else(|| failed(FileErrorKind::Io, "it was not kept"))?;
        Ok(known.get(path).cloned())
    }
}

struct ScriptedProcesses {
    end: Result<Finished, ProcessError>,
    ran: Arc<Mutex<Vec<Command>>>,
}

impl Processes for ScriptedProcesses {
    fn run<'a>(
        &'a self,
        command: Command,
        _: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        self.ran.lock().unwrap().push(command);
        Box::pin(std::future::ready(self.end.clone()))
    }
    fn start(&self, _: Command) -> Result<JobId, ProcessError> {
        Err(ProcessError("nothing starts here".into()))
    }
    fn poll(&self, _: &JobId, _: u64, _: usize) -> Result<JobOutput, ProcessError> {
        Err(ProcessError("nothing starts here".into()))
    }
    fn stop<'a>(&'a self, _: &'a JobId) -> BoxFuture<'a, Result<(), ProcessError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn stop_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
