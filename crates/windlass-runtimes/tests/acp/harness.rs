//! An attempt without a machine: an agent that is a script over pipes in memory, an enclosure that provides the pipes,
//! a gate with the answers of the test, and a record of everything.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use windlass_core::ask::{Answer, Ask};
use windlass_core::budget::{Limit, Price, Spent, Usage};
use windlass_core::clock::{Clock, Timestamp};
use windlass_core::context::WorkRecord;
use windlass_core::enclosure::{AgentConnection, AgentProcess, Enclosure, Launch, ProcessHandle};
use windlass_core::event::EventKind;
use windlass_core::history::Entry;
use windlass_core::message::{ErrorCategory, Message, ToolCall, ToolResult};
use windlass_core::runtime::{BudgetAccount, EventSink, Hold, Job, Runtime, Stop};
use windlass_core::store::StoreError;
use windlass_core::tool::{Admitted, ForeignCall, ObservedChange, ToolSet, Toolbox};
use windlass_core::turn::{Planned, Settled};
use windlass_core::workspace::*;
use windlass_core::{BoxFuture, CancellationToken};
use windlass_host::workspace::Root;
use windlass_meter::{Endpoint, Ledger, Trip};
use windlass_runtimes::acp::Acp;
use windlass_runtimes::acp::options::AcpOptions;
use windlass_runtimes::agent::{ForeignRuntime, Metering};
use windlass_runtimes::agents::{ANY_ACP, AgentSpec};
use windlass_runtimes::dialect::Dialect;

/// The time of the test's executor. It is paused, and advances when no task is ready.
pub(crate) struct TestClock;

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0)
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
    fn entropy(&self) -> u64 {
        use std::sync::atomic::{AtomicU64, Ordering};
        static DRAWN: AtomicU64 = AtomicU64::new(0);
        DRAWN.fetch_add(1, Ordering::Relaxed)
    }
}

/// The record of an attempt, in order.
#[derive(Default)]
pub(crate) struct AttemptRecord {
    pub(crate) events: Mutex<Vec<EventKind>>,
    pub(crate) displayed: Mutex<Vec<EventKind>>,
    pub(crate) asked: Mutex<Vec<ForeignCall>>,
    pub(crate) observed: Mutex<Vec<ToolCall>>,
    pub(crate) results: Mutex<Vec<ToolResult>>,
    pub(crate) lines: Mutex<Vec<String>>,
    pub(crate) stopped: Mutex<Vec<String>>,
    pub(crate) launched: Mutex<Vec<Launch>>,
    pub(crate) put: Mutex<HashMap<String, String>>,
    pub(crate) settled: Mutex<Vec<Usage>>,
    pub(crate) killed: Mutex<u32>,
}

impl AttemptRecord {
    /// The logged texts and calls: `text:…`, `call:name …`.
    pub(crate) fn messages(&self) -> Vec<String> {
        use windlass_core::message::Part;
        let mut all = Vec::new();
        for event in self.events.lock().iter() {
            let EventKind::Said { message, .. } = event else {
                continue;
            };
            for part in &message.parts {
                all.push(match part {
                    Part::Text { text } => format!("text:{text}"),
                    Part::Reasoning { text, .. } => format!("thought:{text}"),
                    Part::Call(call) => format!("call:{} {}", call.name, call.args),
                    _ => "other".to_owned(),
                });
            }
        }
        all
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let events = self.events.lock();
        let warned = events.iter().filter_map(|event| match event {
            EventKind::Warned { code, text } => Some(format!("{code}: {text}")),
            _ => None,
        });
        warned.collect()
    }
}

struct FakeEngine {
    record: Arc<AttemptRecord>,
    history: Arc<Vec<Entry>>,
    judge: TestVerdict,
    tools: ToolSet,
    steers: Mutex<VecDeque<()>>,
}

/// The verdict about a call; `None` means that it is never decided.
pub(crate) type TestVerdict = Arc<dyn Fn(&ForeignCall) -> Option<bool> + Send + Sync>;

impl EventSink for FakeEngine {
    fn emit(&self, kind: EventKind) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.record.events.lock().push(kind);
        Box::pin(async { Ok(0) })
    }
    fn show(&self, kind: EventKind) {
        let mut displayed = self.record.displayed.lock();
        if displayed.len() < 100 {
            displayed.push(kind);
        }
    }
    fn watched(&self) -> bool {
        true
    }
    fn ask(&self, _: Ask) -> BoxFuture<'_, Result<Answer, StoreError>> {
        Box::pin(std::future::pending())
    }
    fn steer(&self) -> BoxFuture<'_, Result<bool, StoreError>> {
        let more = self.steers.lock().pop_front().is_some();
        Box::pin(async move { Ok(more) })
    }
    fn history(&self) -> Arc<Vec<Entry>> {
        Arc::clone(&self.history)
    }
    fn facts(&self) -> WorkRecord {
        WorkRecord::default()
    }
}

impl Toolbox for FakeEngine {
    fn tools(&self) -> &ToolSet {
        &self.tools
    }
    fn call<'a>(&'a self, _: Vec<Planned>) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn admit(&self, call: ForeignCall) -> BoxFuture<'_, Result<Admitted, StoreError>> {
        let verdict = (self.judge)(&call);
        self.record.asked.lock().push(call);
        Box::pin(async move {
            match verdict {
                Some(true) => Ok(Admitted::Yes {
                    writes: Vec::new(),
                    rule: "test".into(),
                }),
                Some(false) => Ok(Admitted::No {
                    category: ErrorCategory::Denied,
                    text: "the test says no".into(),
                }),
                None => std::future::pending().await,
            }
        })
    }
    fn observed(&self, foreign: ForeignCall) -> BoxFuture<'_, Result<(), StoreError>> {
        let mut observed = self.record.observed.lock();
        // A later report about a call replaces the earlier one.
        observed.retain(|known| known.id != foreign.call.id);
        observed.push(foreign.call);
        drop(observed);
        Box::pin(async { Ok(()) })
    }
    fn reported(
        &self,
        result: ToolResult,
        _: Vec<ObservedChange>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.record.results.lock().push(result);
        Box::pin(async { Ok(()) })
    }
}

impl BudgetAccount for FakeEngine {
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
            id: 0,
            output: want,
        })
    }
    fn release(&self, _: Hold) {}
    fn settle<'a>(
        &'a self,
        usage: Usage,
        _: Option<Price>,
        _: bool,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.record.settled.lock().push(usage);
        Box::pin(async { Ok(()) })
    }
}

/// A model endpoint without any requests.
struct NoTraffic;

impl Endpoint for NoTraffic {
    fn key(&self) -> String {
        "placeholder".into()
    }
    fn serve<'a>(
        &'a self,
        _: &'a dyn Enclosure,
        _: Ledger<'a>,
        done: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Option<Trip>, StoreError>> {
        Box::pin(async {
            done.cancelled().await;
            Ok(None)
        })
    }
    fn take_usage(&self) -> Usage {
        Usage::default()
    }
}

/// Starts programs: a script, or a real one.
pub(crate) type FakeStarter =
    Arc<dyn Fn(&Launch) -> Result<AgentProcess, ProcessError> + Send + Sync>;

struct FakeEnclosure {
    home: PathBuf,
    port: Option<u16>,
    record: Arc<AttemptRecord>,
    starter: FakeStarter,
}

impl Enclosure for FakeEnclosure {
    fn home(&self) -> &Path {
        &self.home
    }
    fn put(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.record
            .put
            .lock()
            .insert(path.to_owned(), String::from_utf8(bytes.to_vec()).unwrap());
        Ok(())
    }
    fn read(&self, _: &str, _: u64) -> Result<Vec<u8>, FileError> {
        Ok(Vec::new())
    }
    fn clear(&self, _: &str) -> Result<(), FileError> {
        Ok(())
    }
    fn endpoint(&self) -> Option<u16> {
        self.port
    }
    fn accept(&self) -> BoxFuture<'_, std::io::Result<Box<dyn AgentConnection>>> {
        Box::pin(std::future::pending())
    }
    fn start(&self, launch: Launch) -> BoxFuture<'_, Result<AgentProcess, ProcessError>> {
        let process = (self.starter)(&launch);
        self.record.launched.lock().push(launch);
        Box::pin(async move { process })
    }
    fn take_refused(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Commands that print `ran: LINE` and exit at the third poll.
struct FakeCommands {
    enclosure: Arc<FakeEnclosure>,
    record: Arc<AttemptRecord>,
    polls: Mutex<HashMap<String, u32>>,
}

impl Processes for FakeCommands {
    fn run<'a>(
        &'a self,
        _: Command,
        _: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Box::pin(async { Err(ProcessError("not here".into())) })
    }
    fn start(&self, command: Command) -> Result<JobId, ProcessError> {
        let mut lines = self.record.lines.lock();
        lines.push(command.line);
        Ok(JobId((lines.len() - 1).to_string()))
    }
    fn poll(&self, job: &JobId, offset: u64, _: usize) -> Result<JobOutput, ProcessError> {
        let line = self.record.lines.lock()[job.0.parse::<usize>().unwrap()].clone();
        let text = format!("ran: {line}\n");
        let mut polls = self.polls.lock();
        let times = polls.entry(job.0.clone()).or_default();
        *times += 1;
        let endless = line.contains("sleep");
        let end = (*times > 2 && !endless).then_some(ProcessEnd::Exited { code: 0 });
        let rest = text
            .get(usize::try_from(offset).unwrap()..)
            .unwrap_or_default()
            .to_owned();
        Ok(JobOutput {
            text: rest,
            next_offset: text.len() as u64,
            end,
        })
    }
    fn stop<'a>(&'a self, job: &'a JobId) -> BoxFuture<'a, Result<(), ProcessError>> {
        self.record.stopped.lock().push(job.0.clone());
        Box::pin(async { Ok(()) })
    }
    fn stop_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
    fn enclose(&self) -> BoxFuture<'_, Result<Arc<dyn Enclosure>, ProcessError>> {
        let enclosure: Arc<dyn Enclosure> = Arc::clone(&self.enclosure) as _;
        Box::pin(async move { Ok(enclosure) })
    }
}

/// The process handle of a script. Dropping it kills the script.
pub(crate) struct ScriptHandle {
    pub(crate) end: ProcessEnd,
    pub(crate) script: tokio::task::JoinHandle<()>,
    pub(crate) record: Arc<AttemptRecord>,
}

impl ProcessHandle for ScriptHandle {
    fn wait(&mut self) -> BoxFuture<'_, Result<ProcessEnd, ProcessError>> {
        Box::pin(async {
            let _ = (&mut self.script).await;
            Ok(self.end)
        })
    }
    fn terminate(&self) {}
    fn kill(&self) {
        self.script.abort();
    }
}

impl Drop for ScriptHandle {
    fn drop(&mut self) {
        *self.record.killed.lock() += 1;
        self.script.abort();
    }
}

/// The agent's end of the pipes.
pub(crate) struct ScriptedAgent {
    pub(crate) from: BufReader<DuplexStream>,
    pub(crate) to: DuplexStream,
    pub(crate) stderr: DuplexStream,
}

impl ScriptedAgent {
    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.from.read_line(&mut line).await {
            Ok(n) if n > 0 => Some(serde_json::from_str(&line).unwrap()),
            _ => None,
        }
    }

    /// The next message, which must have this method.
    #[track_caller]
    pub(crate) fn expect<'a>(&'a mut self, method: &'a str) -> BoxFuture<'a, Value> {
        Box::pin(async move {
            let message = self.next().await.unwrap_or_default();
            assert_eq!(message["method"], method, "{message}");
            message
        })
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        // A killed agent cannot write. The test notices that elsewhere.
        let _ = self.to.write_all(bytes).await;
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    pub(crate) async fn reply(&mut self, to: &Value, result: Value) {
        self.send(json!({ "jsonrpc": "2.0", "id": to["id"], "result": result }))
            .await;
    }

    pub(crate) async fn fail(&mut self, to: &Value, error: Value) {
        self.send(json!({ "jsonrpc": "2.0", "id": to["id"], "error": error }))
            .await;
    }

    pub(crate) async fn update(&mut self, update: Value) {
        let params = json!({ "sessionId": "s1", "update": update });
        self.send(json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))
            .await;
    }

    pub(crate) async fn says(&mut self, text: &str) {
        self.update(json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } }))
            .await;
    }

    /// Sends a request and reads the response.
    pub(crate) async fn ask(&mut self, id: &str, method: &str, mut params: Value) -> Value {
        params["sessionId"] = json!("s1");
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
        let answer = self.next().await.unwrap_or_default();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Answers the requests of the setup, and returns the prompt.
    pub(crate) async fn open(&mut self) -> Value {
        self.open_with(json!({ "sessionId": "s1" })).await
    }

    pub(crate) async fn open_with(&mut self, session: Value) -> Value {
        let hello = self.expect("initialize").await;
        self.reply(
            &hello,
            json!({ "protocolVersion": 1, "agentCapabilities": {}, "authMethods": [] }),
        )
        .await;
        let new = self.expect("session/new").await;
        self.reply(&new, session).await;
        self.expect("session/prompt").await
    }

    pub(crate) async fn done(&mut self, prompt: &Value) {
        self.reply(prompt, json!({ "stopReason": "end_turn" }))
            .await;
    }
}

/// The parameters of one attempt.
pub(crate) struct AcpHarness {
    pub(crate) options: AcpOptions,
    pub(crate) spec: &'static AgentSpec,
    pub(crate) dialect: Dialect,
    pub(crate) resume: Option<String>,
    pub(crate) judge: TestVerdict,
    pub(crate) files: Vec<(&'static str, &'static str)>,
    pub(crate) cancel: CancellationToken,
    pub(crate) steers: usize,
    pub(crate) port: Option<u16>,
    pub(crate) prompt: String,
    pub(crate) metering_none: bool,
    pub(crate) end: ProcessEnd,
    pub(crate) folder: Arc<tempfile::TempDir>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Default for AcpHarness {
    fn default() -> Self {
        Self {
            options: AcpOptions {
                name: Some("toy".into()),
                command: Some("toy".into()),
                ..AcpOptions::default()
            },
            spec: &ANY_ACP,
            dialect: Dialect::OpenAiChat,
            resume: None,
            judge: Arc::new(|_| Some(true)),
            files: Vec::new(),
            cancel: CancellationToken::new(),
            steers: 0,
            port: Some(9),
            prompt: "do it".into(),
            metering_none: false,
            end: ProcessEnd::Exited { code: 0 },
            folder: Arc::new(tempfile::tempdir().unwrap()),
            clock: Arc::new(TestClock),
        }
    }
}

impl AcpHarness {
    /// Runs a script as the agent, to the end of the attempt.
    pub(crate) async fn play<F>(
        self,
        script: impl Fn(ScriptedAgent) -> F + Send + Sync + 'static,
    ) -> (Stop, Arc<AttemptRecord>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let record = Arc::new(AttemptRecord::default());
        let (end, of) = (self.end, Arc::clone(&record));
        let starter: FakeStarter = Arc::new(move |_| {
            let (stdin, from) = tokio::io::duplex(64 << 10);
            let (to, stdout) = tokio::io::duplex(64 << 10);
            let (theirs, stderr) = tokio::io::duplex(64 << 10);
            let agent = ScriptedAgent {
                from: BufReader::new(from),
                to,
                stderr: theirs,
            };
            let script = tokio::spawn(script(agent));
            let handle = Box::new(ScriptHandle {
                end,
                script,
                record: Arc::clone(&of),
            });
            Ok(AgentProcess {
                stdin: Box::new(stdin),
                stdout: Box::new(stdout),
                stderr: Box::new(stderr),
                handle,
            })
        });
        self.run(record, starter).await
    }

    pub(crate) async fn run(
        self,
        record: Arc<AttemptRecord>,
        starter: FakeStarter,
    ) -> (Stop, Arc<AttemptRecord>) {
        for (path, text) in &self.files {
            std::fs::write(self.folder.path().join(path), text).unwrap();
        }
        let files: Arc<dyn Files> = Arc::new(Root::open(self.folder.path()).unwrap());
        let home = self.folder.path().join(".home");
        let enclosure = Arc::new(FakeEnclosure {
            home,
            port: self.port,
            record: Arc::clone(&record),
            starter,
        });
        let processes: Arc<dyn Processes> = Arc::new(FakeCommands {
            enclosure,
            record: Arc::clone(&record),
            polls: Mutex::default(),
        });
        let prompt = Message::user(self.prompt.clone());
        let engine = FakeEngine {
            record: Arc::clone(&record),
            history: Arc::default(),
            judge: self.judge,
            tools: ToolSet::default(),
            steers: Mutex::new(std::iter::repeat_n((), self.steers).collect()),
        };
        let acp = Acp::new(self.spec, self.options, self.dialect).unwrap();
        let metering = if self.metering_none {
            Metering::Reported { price: None }
        } else {
            Metering::Wire(Arc::new(NoTraffic))
        };
        let runtime = ForeignRuntime {
            adapter: Box::new(acp),
            metering,
            clock: self.clock,
            output: None,
            instructions: String::new(),
            version: None,
            paused: windlass_runtimes::agent::PausedAgent::default(),
        };
        let job = Job {
            prompt: &prompt,
            iteration: 1,
            resumed: false,
            pending: Vec::new(),
            foreign_session: self.resume,
            sink: &engine,
            toolbox: &engine,
            account: &engine,
            files: &files,
            processes: &processes,
            cancel: self.cancel,
        };
        let stop = runtime.run(job).await.unwrap();
        (stop, record)
    }
}
