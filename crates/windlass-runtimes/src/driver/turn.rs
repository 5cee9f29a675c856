//! One turn: reads and writes lines, has calls judged once, answers requests once, runs Windlass tools, serves files
//! and terminals.

use std::collections::{HashMap, VecDeque};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::event::EventKind;
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Message, Part, ToolCall, ToolResult};
use windlass_core::runtime::RuntimeError;
use windlass_core::tool::{Admitted, Effect, ForeignCall};

use crate::agent::{AgentAttempt, Answer, CANCEL_GRACE, End};
use crate::dialogue::{Dialogue, Ended, Input, Output, Outputs, Ticket};
use crate::peer::Peer;
use crate::said::{Said, waits_no_more};
use crate::services::{ClientServices, Reply};

/// Calls of one turn whose verdicts are remembered.
const MAX_CALLS: usize = 20_000;
/// Requests of the agent that may be open at the same time.
const MAX_OPEN: usize = 256;
/// Bytes that are read of a file in the agent's home.
const MAX_HOME_FILE: u64 = 16 << 20;
/// Files that are read for an agent at the same time.
const MAX_READS: usize = 2;
/// Windlass tools that run in parallel.
const MAX_PARALLEL: usize = 4;

/// A call of the agent with its verdict.
struct KnownCall {
    call: ToolCall,
    verdict: Option<Admitted>,
    /// The call is being judged, was judged, or ran.
    asked: bool,
}

/// The result of the work for a request, by the number of the request.
enum Done {
    Judged(u64, String, Admitted),
    Ran(u64, ToolResult),
    /// The flag tells whether a file was read.
    Served(u64, Reply, bool),
}

/// The state of one turn.
pub(super) struct Turn<'t, 'v>
where
    't: 'v,
{
    attempt: &'v AgentAttempt<'v>,
    services: &'t ClientServices,
    /// Files that are being read for the agent; their contents are in memory.
    reading: usize,
    dialogue: &'t mut dyn Dialogue,
    peer: &'t mut Peer,
    out: Outputs,
    work: FuturesUnordered<BoxFuture<'v, Result<Done, RuntimeError>>>,
    /// Requests without an answer, by the driver's own number.
    open: HashMap<u64, Ticket>,
    /// Calls of Windlass tools that wait, the number of running ones, and whether one runs that excludes others.
    queue: VecDeque<(u64, ToolCall)>,
    running: usize,
    alone: bool,
    calls: HashMap<String, KnownCall>,
    /// Call ids in the log by the agent's ids, for an agent that reuses ids.
    names: HashMap<String, CallId>,
    /// The incomplete message: its id and the parts so far.
    gathered: (String, Vec<Part>),
    said: Said,
    pub(super) unknown: u64,
    counted: u64,
    /// The timeout for the program: the grace period after a cancel, else the timeout that the dialogue set.
    timer: Option<BoxFuture<'v, ()>>,
    pub(super) cancelled: bool,
}

impl<'t, 'v> Turn<'t, 'v> {
    pub(super) fn new(
        attempt: &'v AgentAttempt<'v>,
        dialogue: &'t mut dyn Dialogue,
        peer: &'t mut Peer,
        services: &'t ClientServices,
    ) -> Self {
        Self {
            attempt,
            dialogue,
            peer,
            services,
            reading: 0,
            out: Outputs::default(),
            work: FuturesUnordered::new(),
            open: HashMap::new(),
            queue: VecDeque::new(),
            running: 0,
            alone: false,
            calls: HashMap::new(),
            names: HashMap::new(),
            gathered: (String::new(), Vec::new()),
            said: Said::default(),
            unknown: 0,
            counted: 0,
            timer: None,
            cancelled: false,
        }
    }

    /// Sends the prompt and follows the program to the end of its answer.
    pub(super) async fn follow(&mut self, prompt: String) -> Result<Ended, RuntimeError> {
        let attempt = self.attempt;
        self.input(Input::Prompt(prompt));
        loop {
            if let Some(ended) = self.settle().await? {
                return Ok(ended);
            }
            self.run_next();
            let max_unread = self.dialogue.max_unread();
            let listen = self.work.len() < self.dialogue.max_work() && self.reading < MAX_READS;
            let framing = self.dialogue.framing();
            tokio::select! {
                biased;
                () = attempt.cancel.cancelled(), if !self.cancelled => self.cancel(),
                () = passed(&mut self.timer) => {
                    self.timer = None;
                    if self.cancelled {
                        return Ok(Ended::with("", End::Cancelled));
                    }
                    let complaint = self.peer.complaint();
                    self.input(Input::Late(complaint));
                }
                Some(done) = self.work.next(), if !self.work.is_empty() => self.done(done?),
                heard = self.peer.hear(framing, max_unread, listen) => match heard {
                    Some(input) => self.input(input),
                    None if self.cancelled => return Ok(Ended::with("", End::Cancelled)),
                    None => self.exited().await,
                },
            }
        }
    }

    /// Waits for the exit of the program, with a timeout, and reports it to the dialogue.
    async fn exited(&mut self) {
        let end = self
            .peer
            .ended_in_words(self.attempt.clock, CANCEL_GRACE * 4)
            .await;
        self.input(Input::Exited(end));
    }

    fn input(&mut self, input: Input) {
        self.dialogue.input(input, &mut self.out);
    }

    /// Executes all outputs of the last input. Returns the end of the turn, if the outputs contain it.
    async fn settle(&mut self) -> Result<Option<Ended>, RuntimeError> {
        while let Some(output) = self.out.pop() {
            match output {
                Output::End(ended) => return Ok(Some(ended)),
                output => self.apply(output).await?,
            }
        }
        Ok(self.said.too_much().map(Ended::broken))
    }

    async fn apply(&mut self, output: Output) -> Result<(), RuntimeError> {
        let attempt = self.attempt;
        match output {
            Output::Send(line) => self.peer.send(&line),
            Output::SendLast(text) => self.peer.say_last(&text),
            Output::Terminate => self.peer.terminate(),
            Output::ReadHome(files) => {
                let read = |path: &&str| {
                    let bytes = attempt
                        .enclosure
                        .read(path, MAX_HOME_FILE)
                        .unwrap_or_default();
                    String::from_utf8_lossy(&bytes).into_owned()
                };
                let files = files.iter().map(read).collect();
                self.input(Input::HomeFiles(files));
            }
            Output::Began(session) => attempt.began(session.as_deref()).await?,
            Output::Delta(of, text) => attempt.delta(of, &text),
            Output::Progress(call, text) => attempt.progress(&call, &text),
            Output::Part(of, part) => self.gather(of, part).await?,
            Output::Flush => self.flush().await?,
            Output::Note(message) => {
                self.said.add(&message.parts);
                attempt.emit(EventKind::said(message)).await?;
            }
            Output::Announce(call) => self.announce(call).await?,
            Output::Judge {
                ticket,
                call,
                may_differ,
            } => self.judge(ticket, call, may_differ).await?,
            Output::Run { ticket, call } => self.run(ticket, call).await?,
            Output::Serve {
                ticket,
                method,
                params,
            } => self.serve(ticket, method, params),
            Output::Grant(call, grants) => {
                let files = attempt.job.files.as_ref();
                self.services.grant(&call, grants, files);
            }
            Output::Revoke(call) => self.services.revoke(&call),
            Output::Observed(mut foreign) => {
                foreign.call.id = self.logged(foreign.call.id);
                if let Some(known) = self.calls.get_mut(&foreign.call.id.0) {
                    known.asked = true;
                    attempt.observed(foreign).await?;
                }
            }
            Output::TerminalResult {
                call,
                terminal,
                failed,
            } => {
                let text = self.services.terminal_text(&terminal);
                let mut out = Outputs::default();
                out.result(&call.0, text.unwrap_or_default(), failed, false);
                if let Some(Output::Result { result, ran }) = out.pop() {
                    self.result(result, ran).await?;
                }
            }
            Output::Forget(id) => self.open.retain(|_, ticket| ticket.id != id),
            Output::Result { result, ran } => self.result(result, ran).await?,
            Output::Spent(more) => attempt.spent(&more),
            Output::Warn(code, text) => attempt.warn(code, text).await?,
            Output::Unknown => self.unknown += 1,
            Output::Within(_) if self.cancelled => {}
            Output::Within(time) => self.timer = time.map(|time| attempt.clock.sleep(time)),
            Output::Abandon => self.exited().await,
            Output::End(_) => {}
        }
        Ok(())
    }

    /// Collects a part of a message. A part of another message completes the previous one.
    async fn gather(&mut self, of: String, part: Part) -> Result<(), RuntimeError> {
        if self.gathered.0 != of || waits_no_more(&self.gathered.1) {
            self.flush().await?;
            self.gathered.0 = of;
        }
        let part = match part {
            Part::Call(mut call) => {
                self.rename(&mut call);
                if self.calls.contains_key(&call.id.0) {
                    return Ok(());
                }
                self.know(call.clone());
                Part::Call(call)
            }
            part => part,
        };
        self.gathered.1.push(part);
        Ok(())
    }

    /// Gives a new call a unique id in the log, if the agent may have used its id before.
    fn rename(&mut self, call: &mut ToolCall) {
        if self.dialogue.repeats_names() && self.names.len() < MAX_CALLS {
            let name = self.attempt.call_id(&call.id.0);
            let theirs = std::mem::replace(&mut call.id, name.clone());
            self.names.insert(theirs.0, name);
        }
    }

    /// The id of a call in the log.
    fn logged(&self, theirs: CallId) -> CallId {
        self.names.get(&theirs.0).cloned().unwrap_or(theirs)
    }

    fn know(&mut self, call: ToolCall) {
        if self.calls.len() < MAX_CALLS {
            let known = KnownCall {
                call: call.clone(),
                verdict: None,
                asked: false,
            };
            self.calls.insert(call.id.0.clone(), known);
        }
    }

    async fn announce(&mut self, call: ToolCall) -> Result<(), RuntimeError> {
        if !self.calls.contains_key(&call.id.0) && self.calls.len() < MAX_CALLS {
            self.know(call.clone());
            self.gathered.1.push(Part::Call(call));
        }
        self.flush().await
    }

    /// Logs the collected message.
    async fn flush(&mut self) -> Result<(), RuntimeError> {
        self.gathered.0.clear();
        let parts = std::mem::take(&mut self.gathered.1);
        if parts.is_empty() {
            return Ok(());
        }
        self.said.add(&parts);
        self.attempt.said(Message::model(parts)).await
    }

    /// Registers a request and returns the driver's number for it. `None` if the request was refused already.
    fn admit(&mut self, ticket: Ticket) -> Option<u64> {
        if self.open.values().any(|open| open.id == ticket.id) {
            // The program sent the same request twice and gets one answer.
            self.unknown += 1;
            return None;
        }
        if self.cancelled {
            self.input(Input::Withdrawn(ticket));
            return None;
        }
        self.counted += 1;
        self.open.insert(self.counted, ticket);
        Some(self.counted)
    }

    /// Answers a request, unless the agent withdrew it.
    fn answer(&mut self, n: u64, input: impl FnOnce(Ticket) -> Input) {
        if let Some(ticket) = self.open.remove(&n) {
            let input = input(ticket);
            self.input(input);
        }
    }

    /// Has a call judged once, independent of the number and the kind of the questions about it.
    async fn judge(
        &mut self,
        ticket: Ticket,
        call: ToolCall,
        may_differ: bool,
    ) -> Result<(), RuntimeError> {
        let Some(n) = self.admit(ticket) else {
            return Ok(());
        };
        self.flush().await?;
        self.announce(call.clone()).await?;
        let verdict = match self.calls.get_mut(&call.id.0) {
            _ if self.open.len() > MAX_OPEN => {
                Some(Admitted::blocked("too many requests are open"))
            }
            None => Some(Admitted::blocked("too many calls in one turn")),
            Some(known) => {
                let same = known.call.args == call.args || (may_differ && !known.asked);
                if known.call.name != call.name || !same {
                    Some(Admitted::blocked(
                        "the call differs from the one that the agent announced",
                    ))
                } else if std::mem::replace(&mut known.asked, true) {
                    let verdict = known.verdict.clone();
                    Some(verdict.unwrap_or_else(|| {
                        Admitted::blocked("a decision about this call is already pending")
                    }))
                } else {
                    known.call.args.clone_from(&call.args);
                    None
                }
            }
        };
        if let Some(verdict) = verdict {
            self.answer(n, |ticket| Input::Judged(ticket, verdict));
            return Ok(());
        }
        let (attempt, id) = (self.attempt, call.id.0.clone());
        let (like, effect) = self.dialogue.liken(&call);
        let call = ForeignCall { call, like, effect };
        self.work.push(Box::pin(async move {
            Ok(Done::Judged(n, id, attempt.admit(call).await?))
        }));
        Ok(())
    }

    /// Queues a call of a Windlass tool.
    async fn run(&mut self, ticket: Ticket, mut call: ToolCall) -> Result<(), RuntimeError> {
        let Some(n) = self.admit(ticket) else {
            return Ok(());
        };
        self.rename(&mut call);
        self.announce(call.clone()).await?;
        let runs = self.calls.get_mut(&call.id.0).is_some_and(|known| {
            let same = known.call.name == call.name && known.call.args == call.args;
            same && !std::mem::replace(&mut known.asked, true)
        });
        if !runs || self.open.len() > MAX_OPEN {
            let why = "the call differs from the one that the agent announced, or too many calls are open";
            let result = ToolResult::failed(&call, ErrorCategory::Blocked, why);
            self.answer(n, |ticket| Input::Ran(ticket, result));
            return Ok(());
        }
        self.queue.push_back((n, call));
        Ok(())
    }

    /// Serves a request for a file or a terminal.
    fn serve(&mut self, ticket: Ticket, method: String, params: Value) {
        let Some(n) = self.admit(ticket) else {
            return;
        };
        let read = method == "fs/read_text_file";
        self.reading += usize::from(read);
        let (attempt, services) = (self.attempt, self.services);
        self.work.push(Box::pin(async move {
            let reply = services.serve(attempt, &method, params).await?;
            Ok(Done::Served(n, reply, read))
        }));
    }

    /// Starts the queued calls of Windlass tools that may run now.
    fn run_next(&mut self) {
        while let Some((_, call)) = self.queue.front() {
            let tools = self.attempt.job.toolbox.tools();
            let reads = tools.get(&call.name).is_some_and(|tool| {
                let spec = tool.spec();
                spec.parallel && spec.effect == Effect::Read
            });
            let free = self.running == 0 || (reads && !self.alone && self.running < MAX_PARALLEL);
            if !free {
                return;
            }
            self.alone = !reads;
            self.running += 1;
            let Some((n, call)) = self.queue.pop_front() else {
                return;
            };
            let attempt = self.attempt;
            self.work.push(Box::pin(async move {
                Ok(Done::Ran(n, attempt.call(call).await?))
            }));
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Judged(n, call, verdict) => {
                if let Some(known) = self.calls.get_mut(&call) {
                    known.verdict = Some(verdict.clone());
                }
                self.answer(n, |ticket| Input::Judged(ticket, verdict));
            }
            Done::Served(n, reply, read) => {
                self.reading -= usize::from(read);
                self.answer(n, |ticket| Input::Served(ticket, reply));
            }
            Done::Ran(n, result) => {
                self.running = self.running.saturating_sub(1);
                self.answer(n, |ticket| Input::Ran(ticket, result));
            }
        }
    }

    async fn result(&mut self, mut result: ToolResult, ran: bool) -> Result<(), RuntimeError> {
        self.flush().await?;
        result.id = self.logged(result.id);
        let Some(known) = self.calls.get_mut(&result.id.0) else {
            return Ok(());
        };
        result.name.clone_from(&known.call.name);
        if !std::mem::replace(&mut known.asked, true) && ran {
            // The agent ran the call without asking. Only the enclosure restricted it.
            let call = known.call.clone();
            let (like, effect) = self.dialogue.liken(&call);
            self.attempt
                .observed(ForeignCall { call, like, effect })
                .await?;
        }
        self.attempt.reported_result(result).await
    }

    /// Answers all open requests as withdrawn.
    fn withdraw(&mut self) {
        self.queue.clear();
        let mut open: Vec<(u64, Ticket)> = std::mem::take(&mut self.open).into_iter().collect();
        open.sort_by_key(|(n, _)| *n);
        for (_, ticket) in open {
            self.input(Input::Withdrawn(ticket));
        }
    }

    /// Completes the turn: answers open requests and logs the rest of the conversation.
    pub(super) async fn finish(&mut self, ended: Ended) -> Result<Ended, RuntimeError> {
        self.withdraw();
        self.dialogue.finish(&mut self.out);
        while let Some(output) = self.out.pop() {
            self.apply(output).await?;
        }
        self.flush().await?;
        Ok(match ended {
            // Some agents report a refused call as a cancelled turn, although neither the user nor the engine cancelled
            // it.
            Ended::Answered(answer)
                if answer.end == End::Cancelled
                    && !self.attempt.cancel.is_cancelled()
                    && self.attempt.ended_at_a_refusal() =>
            {
                Ended::Answered(Answer {
                    end: End::Done,
                    ..answer
                })
            }
            ended => ended,
        })
    }

    /// Answers all open requests, and asks the program to end its turn.
    fn cancel(&mut self) {
        self.cancelled = true;
        self.withdraw();
        self.input(Input::Interrupt);
        self.timer = Some(self.attempt.clock.sleep(CANCEL_GRACE));
    }
}

async fn passed(timer: &mut Option<BoxFuture<'_, ()>>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}
