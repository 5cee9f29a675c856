//! A run without an engine: the actions of an adapter are recorded as short lines, the enclosure starts the programs of
//! the test, and the gate decides by words in the call.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use windlass_core::ask::{Answer, Ask};
use windlass_core::budget::{Limit, Price, Spent, Usage};
use windlass_core::context::WorkRecord;
use windlass_core::enclosure::{AgentConnection, AgentProcess, Enclosure, Launch};
use windlass_core::event::{DeltaOf, EventKind};
use windlass_core::history::Entry;
use windlass_core::message::{ErrorCategory, Message, Part, ToolResult};
use windlass_core::runtime::{BudgetAccount, EventSink, Hold, Job, Runtime, Stop};
use windlass_core::store::StoreError;
use windlass_core::terms::Isolation;
use windlass_core::tool::{
    Admitted, Effect, Exposure, ForeignCall, ObservedChange, ToolOutput, ToolSet, Toolbox,
};
use windlass_core::turn::{Planned, Settled};
use windlass_core::workspace::*;
use windlass_core::{BoxFuture, CancellationToken};
use windlass_meter::{Endpoint, Ledger, Trip};
use windlass_runtimes::agent::{Adapter, ForeignRuntime, Metering, WantedOutput};
use windlass_testing::{FnTool, ManualClock, MemoryWorkspaces};

use crate::script::{PeerStep, ReceivedLines, play};

type ProgramStarter = Arc<dyn Fn(&Launch) -> AgentProcess + Send + Sync>;
/// Files that were written into the home.
type HomeFiles = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// The parameters and the record of one attempt.
pub(crate) struct AgentHarness {
    pub(crate) log: Arc<Mutex<Vec<String>>>,
    pub(crate) launches: Arc<Mutex<Vec<Launch>>>,
    pub(crate) received: Arc<Mutex<ReceivedLines>>,
    pub(crate) put: HomeFiles,
    pub(crate) clock: ManualClock,
    pub(crate) cancel: CancellationToken,
    pub(crate) session: Option<String>,
    pub(crate) output: Option<WantedOutput>,
    pub(crate) metering: Metering,
    /// Cancels as soon as a line of the log contains this.
    pub(crate) cancel_at: Option<&'static str>,
    pub(crate) home: PathBuf,
    /// The path of the workspace, if it exists.
    pub(crate) root: Option<PathBuf>,
    /// The port of the model endpoint, if it is metered.
    pub(crate) endpoint: u16,
    start: ProgramStarter,
}

impl AgentHarness {
    /// Programs that play these steps, one per start, with their exit codes.
    pub(crate) fn scripted(plays: Vec<(Vec<PeerStep>, i32)>) -> Self {
        let received: Arc<Mutex<ReceivedLines>> = Arc::default();
        let plays = Mutex::new(VecDeque::from(plays));
        let listens = received.clone();
        Self::new(received, move |_| {
            let (steps, exit) = plays.lock().pop_front().unwrap_or_default();
            play(steps, exit, listens.clone())
        })
    }

    /// Programs that this function starts.
    pub(crate) fn new(
        received: Arc<Mutex<ReceivedLines>>,
        start: impl Fn(&Launch) -> AgentProcess + Send + Sync + 'static,
    ) -> Self {
        Self {
            log: Arc::default(),
            launches: Arc::default(),
            received,
            put: Arc::default(),
            clock: ManualClock::default(),
            cancel: CancellationToken::new(),
            session: None,
            output: None,
            metering: Metering::Reported { price: None },
            cancel_at: None,
            home: PathBuf::from("/home/agent"),
            root: None,
            endpoint: 8_080,
            start: Arc::new(start),
        }
    }

    pub(crate) async fn run(&self, adapter: impl Adapter + 'static, prompt: &str) -> Stop {
        self.run_timed(adapter, prompt, Arc::new(self.clock.clone()))
            .await
    }

    pub(crate) async fn run_timed(
        &self,
        adapter: impl Adapter + 'static,
        prompt: &str,
        clock: Arc<dyn windlass_core::clock::Clock>,
    ) -> Stop {
        let runtime = ForeignRuntime {
            adapter: Box::new(adapter),
            metering: self.metering.clone(),
            clock,
            output: self.output.clone(),
            instructions: String::new(),
            version: None,
            paused: windlass_runtimes::agent::PausedAgent::default(),
        };
        let files: Arc<dyn Files> = match &self.root {
            Some(root) => Arc::new(Rooted(root.clone(), memory_files().await)),
            None => memory_files().await,
        };
        let enclosure = RecordingEnclosure {
            home: self.home.clone(),
            put: self.put.clone(),
            launches: self.launches.clone(),
            start: self.start.clone(),
            endpoint: matches!(self.metering, Metering::Wire(_)).then_some(self.endpoint),
        };
        let processes: Arc<dyn Processes> = Arc::new(NoCommands(Arc::new(enclosure)));
        let prompt = Message::user(prompt);
        let engine = RecordingEngine {
            log: self.log.clone(),
            history: Arc::new(vec![Entry::new(prompt.clone())]),
            tools: tools(),
            cancel: self.cancel.clone(),
            cancel_at: self.cancel_at,
        };
        let job = Job {
            prompt: &prompt,
            iteration: 1,
            resumed: false,
            pending: Vec::new(),
            foreign_session: self.session.clone(),
            sink: &engine,
            toolbox: &engine,
            account: &engine,
            files: &files,
            processes: &processes,
            cancel: self.cancel.clone(),
        };
        runtime.run(job).await.unwrap()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.log.lock().clone()
    }

    pub(crate) fn received(&self) -> MutexGuard<'_, ReceivedLines> {
        self.received.lock()
    }
}

/// A model endpoint without any requests.
pub(crate) struct NoRequests;

impl Endpoint for NoRequests {
    fn key(&self) -> String {
        "placeholder".into()
    }
    fn serve<'a>(
        &'a self,
        _: &'a dyn Enclosure,
        _: Ledger<'a>,
        done: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Option<Trip>, StoreError>> {
        Box::pin(async move {
            done.cancelled().await;
            Ok(None)
        })
    }
    fn take_usage(&self) -> Usage {
        Usage::default()
    }
}

async fn memory_files() -> Arc<dyn Files> {
    let workspaces = MemoryWorkspaces::default();
    let (session, run) = ("s".parse().unwrap(), "r".parse().unwrap());
    let opening = Opening {
        session: &session,
        run: &run,
        isolation: Isolation::Isolated,
        kept: None,
    };
    workspaces.open(opening).await.unwrap().files()
}

/// Files without content, at a given path.
struct Rooted(PathBuf, Arc<dyn Files>);

impl Files for Rooted {
    fn root(&self) -> &Path {
        &self.0
    }
    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        self.1.resolve(path)
    }
    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError> {
        self.1.read(path, max)
    }
    fn read_range(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        self.1.read_range(path, offset, len)
    }
    fn stat(&self, path: &str) -> Result<FileStat, FileError> {
        self.1.stat(path)
    }
    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.1.write(path, bytes)
    }
    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.1.remove(path)
    }
    fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), FileError> {
        self.1.rename(from, to, replace)
    }
    fn list(&self, path: &str, max: usize) -> Result<Listing, FileError> {
        self.1.list(path, max)
    }
    fn find(&self, query: &FindQuery, cancel: &CancellationToken) -> Result<FoundPaths, FileError> {
        self.1.find(query, cancel)
    }
    fn grep(&self, query: &GrepQuery, cancel: &CancellationToken) -> Result<Grepped, FileError> {
        self.1.grep(query, cancel)
    }
}

fn tools() -> ToolSet {
    let silent = |name: &str, effect| {
        FnTool::new(name, effect, |_, _| {
            Box::pin(std::future::ready(Ok(ToolOutput::default())))
        })
    };
    let lookup = silent("lookup", Effect::Read).with(|spec| spec.exposure = Exposure::Function);
    ToolSet::new(vec![
        silent("bash", Effect::Execute).boxed(),
        lookup.boxed(),
    ])
}

struct RecordingEnclosure {
    home: PathBuf,
    put: HomeFiles,
    launches: Arc<Mutex<Vec<Launch>>>,
    start: ProgramStarter,
    endpoint: Option<u16>,
}

impl Enclosure for RecordingEnclosure {
    fn home(&self) -> &Path {
        &self.home
    }
    fn put(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.put.lock().push((path.to_owned(), bytes.to_vec()));
        if self.home.is_dir() {
            let path = self.home.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        Ok(())
    }
    fn read(&self, path: &str, _: u64) -> Result<Vec<u8>, FileError> {
        let put = self.put.lock();
        let found = put.iter().rev().find(|(known, _)| known == path);
        let missing = FileError {
            kind: FileErrorKind::NotFound,
            message: "nothing there".into(),
        };
        found.map(|(_, bytes)| bytes.clone()).ok_or(missing)
    }
    fn clear(&self, _: &str) -> Result<(), FileError> {
        Ok(())
    }
    fn endpoint(&self) -> Option<u16> {
        self.endpoint
    }
    fn accept(&self) -> BoxFuture<'_, std::io::Result<Box<dyn AgentConnection>>> {
        Box::pin(std::future::pending())
    }
    fn start(&self, launch: Launch) -> BoxFuture<'_, Result<AgentProcess, ProcessError>> {
        let process = (self.start)(&launch);
        self.launches.lock().push(launch);
        Box::pin(std::future::ready(Ok(process)))
    }
    fn take_refused(&self) -> Vec<String> {
        Vec::new()
    }
}

struct NoCommands(Arc<RecordingEnclosure>);

impl Processes for NoCommands {
    fn run<'a>(
        &'a self,
        _: Command,
        _: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Box::pin(std::future::ready(Err(ProcessError(
            "nothing runs here".into(),
        ))))
    }
    fn start(&self, _: Command) -> Result<JobId, ProcessError> {
        Err(ProcessError("nothing runs here".into()))
    }
    fn poll(&self, _: &JobId, _: u64, _: usize) -> Result<JobOutput, ProcessError> {
        Err(ProcessError("nothing runs here".into()))
    }
    fn stop<'a>(&'a self, _: &'a JobId) -> BoxFuture<'a, Result<(), ProcessError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn stop_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
    fn enclose(&self) -> BoxFuture<'_, Result<Arc<dyn Enclosure>, ProcessError>> {
        Box::pin(std::future::ready(Ok(self.0.clone() as Arc<dyn Enclosure>)))
    }
}

struct RecordingEngine {
    log: Arc<Mutex<Vec<String>>>,
    history: Arc<Vec<Entry>>,
    tools: ToolSet,
    cancel: CancellationToken,
    cancel_at: Option<&'static str>,
}

impl RecordingEngine {
    fn note(&self, line: String) {
        if self.cancel_at.is_some_and(|word| line.contains(word)) {
            self.cancel.cancel();
        }
        self.log.lock().push(line);
    }
}

fn event_line(kind: EventKind) -> String {
    match kind {
        EventKind::IterationStarted {
            foreign_session, ..
        } => format!("began {}", foreign_session.unwrap_or_default()),
        EventKind::Said { message, .. } => {
            let parts = message.parts.iter().map(|part| match part {
                Part::Text { text } => text.clone(),
                Part::Reasoning { text, .. } => format!("({text})"),
                Part::Call(call) => format!("<{} {} {}>", call.id, call.name, call.args),
                other => format!("{other:?}"),
            });
            format!("said {}", parts.collect::<Vec<_>>().join(" | "))
        }
        EventKind::Warned { code, text } => format!("warned {code}: {text}"),
        EventKind::Delta {
            of: DeltaOf::Text,
            text,
        } => format!("delta {text}"),
        EventKind::Delta { of, text } => format!("delta {of:?} {text}"),
        EventKind::CallProgress { id, text } => format!("progress {id} {text}"),
        other => format!("{other:?}"),
    }
}

impl EventSink for RecordingEngine {
    fn emit(&self, kind: EventKind) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.note(event_line(kind));
        Box::pin(std::future::ready(Ok(1)))
    }
    fn show(&self, kind: EventKind) {
        self.note(event_line(kind));
    }
    fn watched(&self) -> bool {
        true
    }
    fn ask(&self, _: Ask) -> BoxFuture<'_, Result<Answer, StoreError>> {
        Box::pin(std::future::ready(Ok(Answer::No { note: None })))
    }
    fn history(&self) -> Arc<Vec<Entry>> {
        self.history.clone()
    }
    fn facts(&self) -> WorkRecord {
        WorkRecord::default()
    }
}

impl Toolbox for RecordingEngine {
    fn tools(&self) -> &ToolSet {
        &self.tools
    }
    fn call<'a>(&'a self, calls: Vec<Planned>) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async move {
            let mut settled = Vec::new();
            for Planned { call, .. } in calls {
                self.note(format!("ran {} {} {}", call.id, call.name, call.args));
                if call.args.to_string().contains("never") {
                    std::future::pending::<()>().await;
                }
                let key = call
                    .args
                    .get("key")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let text = format!("value-of-{key}");
                let result = ToolResult {
                    id: call.id,
                    name: call.name,
                    text,
                    error: None,
                    artifact: None,
                };
                settled.push(Settled {
                    result,
                    effect: Some(Effect::Read),
                });
            }
            Ok(settled)
        })
    }
    /// Refuses `forbidden`, never answers `never`, and allows everything else.
    fn admit(&self, call: ForeignCall) -> BoxFuture<'_, Result<Admitted, StoreError>> {
        let like: Vec<String> = call
            .like
            .iter()
            .map(|like| format!("{} {}", like.tool, like.args))
            .collect();
        let args = call.call.args.to_string() + &like.join(";");
        self.note(format!(
            "judged {} as {:?} {}",
            call.call.id,
            call.effect,
            like.join("; ")
        ));
        Box::pin(async move {
            if args.contains("never") {
                std::future::pending::<()>().await;
            }
            if args.contains("forbidden") {
                return Ok(Admitted::No {
                    category: ErrorCategory::Blocked,
                    text: "a rule says no".into(),
                });
            }
            Ok(Admitted::Yes {
                writes: Vec::new(),
                rule: "mode auto".into(),
            })
        })
    }
    fn observed(
        &self,
        ForeignCall { call, .. }: ForeignCall,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.note(format!("observed {} {}", call.id, call.name));
        Box::pin(std::future::ready(Ok(())))
    }
    fn reported(
        &self,
        result: ToolResult,
        _: Vec<ObservedChange>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.note(format!(
            "reported {} {}: {}",
            result.id, result.name, result.text
        ));
        Box::pin(std::future::ready(Ok(())))
    }
}

impl BudgetAccount for RecordingEngine {
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
    fn spent(&self) -> Spent {
        Spent::default()
    }
    fn exceeded(&self) -> Option<Limit> {
        None
    }
    fn admit(&self, _: u64, want: u64, _: Option<Price>) -> Result<u64, Limit> {
        Ok(want)
    }
    fn hold(&self, _: u64, want: u64, _: Option<Price>) -> Result<Hold, Limit> {
        Ok(Hold {
            id: 1,
            output: want,
        })
    }
    fn release(&self, _: Hold) {}
    fn settle<'a>(
        &'a self,
        usage: Usage,
        _: Option<Price>,
        _: bool,
        model: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let Usage {
            input,
            cache_read,
            cache_write,
            output,
        } = usage;
        self.note(format!(
            "spent {input}+{cache_read}+{cache_write} in, {output} out by {model}"
        ));
        Box::pin(std::future::ready(Ok(())))
    }
}
