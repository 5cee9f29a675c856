//! Tests of every tool in a real workspace.

// Tests may access the machine directly; tools may not.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod editing;
mod programs;
mod reading;
mod running;

use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use windlass_core::ask::{Answer, Question};
use windlass_core::tool::{CallOutput, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSet, Touch};
use windlass_core::workspace::{Artifacts, Files, Processes};
use windlass_core::{BoxFuture, CancellationToken};
use windlass_host::artifact::ArtifactDir;
use windlass_host::exec::{HostProcesses, child_env};
use windlass_host::workspace::Root;

/// A workspace with all tools.
pub(crate) struct ToolBench {
    dir: TempDir,
    _store: TempDir,
    files: Arc<dyn Files>,
    processes: Arc<dyn Processes>,
    artifacts: Arc<dyn Artifacts>,
    call_output: ScriptedPerson,
    tools: ToolSet,
    cancel: CancellationToken,
}

/// The user's answers, and the notes of the session.
#[derive(Default)]
struct ScriptedPerson {
    notes: Mutex<String>,
    answers: Mutex<Vec<Answer>>,
    asked: Mutex<Vec<Question>>,
}

impl CallOutput for ScriptedPerson {
    fn progress(&self, _text: &str) {}

    fn ask<'a>(&'a self, question: Question) -> BoxFuture<'a, Answer> {
        self.asked.lock().push(question);
        let answer = self.answers.lock().pop().unwrap_or(Answer::Unanswered);
        Box::pin(async move { answer })
    }

    fn notes(&self) -> String {
        self.notes.lock().clone()
    }

    fn set_notes<'a>(&'a self, text: String) -> BoxFuture<'a, Result<(), ToolFailure>> {
        *self.notes.lock() = text;
        Box::pin(async { Ok(()) })
    }
}

impl ToolBench {
    pub(crate) fn new(before: &[(&str, &str)]) -> Self {
        let (dir, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let env = ["PATH", "HOME"]
            .into_iter()
            .filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
        let bench = Self {
            files: root.clone(),
            processes: Arc::new(HostProcesses::new(root, child_env(env, &[]))),
            artifacts: Arc::new(ArtifactDir::new(store.path().join("artifacts"))),
            call_output: ScriptedPerson::default(),
            tools: ToolSet::new(crate::all()),
            cancel: CancellationToken::new(),
            _store: store,
            dir,
        };
        before
            .iter()
            .for_each(|(path, text)| bench.put(path, text.as_bytes()));
        bench
    }

    /// A workspace with another `PATH` for programs.
    fn with_path(path: &str) -> Self {
        let bench = Self::new(&[]);
        let root = Arc::new(Root::open(bench.path()).unwrap());
        let processes = Arc::new(HostProcesses::new(
            root,
            child_env([("PATH".into(), path.into())], &[]),
        ));
        Self { processes, ..bench }
    }

    /// Adds one tool to the set.
    fn add(&mut self, tool: Arc<dyn Tool>) {
        self.tools = ToolSet::new(self.tools.iter().cloned().chain([tool]).collect());
    }

    fn touches(&self, tool: &str, args: Value) -> Result<Vec<Touch>, ToolFailure> {
        self.tools.get(tool).unwrap().touches(&args, &self.ctx())
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn get(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path().join(path)).unwrap()
    }

    fn ctx(&self) -> ToolCtx<'_> {
        ToolCtx {
            files: &self.files,
            processes: &self.processes,
            artifacts: &self.artifacts,
            call_output: &self.call_output,
            cancel: self.cancel.clone(),
        }
    }

    /// Calls `touches` and then `run`, like the engine.
    fn output(&self, tool: &str, args: Value) -> Result<ToolOutput, ToolFailure> {
        let ctx = self.ctx();
        let tool = self.tools.get(tool).unwrap();
        tool.touches(&args, &ctx)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(tool.run(args, ctx))
    }

    /// The text that the model would read.
    fn call(&self, tool: &str, args: Value) -> String {
        match self.output(tool, args) {
            Ok(ToolOutput {
                text, failed: None, ..
            }) => text,
            Ok(ToolOutput {
                text,
                failed: Some(category),
                ..
            }) => format!("Error [{}]: {text}", category.word()),
            Err(failure) => format!("Error [{}]: {}", failure.category.word(), failure.text),
        }
    }

    #[track_caller]
    pub(crate) fn check(&self, tool: &str, args: Value, expect: &str) {
        assert_eq!(self.call(tool, args), expect);
    }

    /// Checks the beginning of the result.
    #[track_caller]
    pub(crate) fn check_start(&self, tool: &str, args: Value, expect: &str) {
        let found = self.call(tool, args);
        assert!(found.starts_with(expect), "{found}");
    }
}

/// Every tool has a description and every description a tool, so that no tool appears or vanishes unnoticed.
#[test]
fn every_description_belongs_to_one_tool() {
    let mut tools: Vec<String> = crate::all()
        .iter()
        .map(|tool| format!("{}.md", tool.spec().name))
        .collect();
    let descriptions = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/descriptions");
    let mut files: Vec<String> = std::fs::read_dir(descriptions)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    tools.sort();
    files.sort();
    assert_eq!(tools, files);
}

#[test]
fn schemas_are_compact() {
    let tools = crate::all();
    let mut size = 0;
    for tool in &tools {
        let spec = tool.spec();
        let schema = spec.schema.to_string();
        assert!(!spec.description.is_empty());
        assert_eq!(spec.schema["type"], "object", "{}", spec.name);
        for noise in [
            "$ref",
            "$defs",
            "$schema",
            "\"title\"",
            "\"format\"",
            "null",
            "additionalProperties",
        ] {
            assert!(!schema.contains(noise), "{}: {schema}", spec.name);
        }
        size += schema.len() + spec.description.len();
    }
    // This limits the average: a tool that needs more space must be worth it.
    assert!(
        size < 320 * crate::all().len(),
        "{size} bytes go along with every request"
    );
}
