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

use crate::agent::{AgentAnswer, AgentAttempt, CANCEL_GRACE, TurnEndReason};
use crate::dialogue::{
    Dialogue, DialogueInput, DialogueOutput, OutputQueue, RequestTicket, TurnResult,
};
use crate::peer::AgentPeer;
use crate::services::{ClientServices, ServiceReply};
use crate::turn_volume::{TurnVolume, must_flush};

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
struct TrackedCall {
    call: ToolCall,
    verdict: Option<Admitted>,
    /// The call is being judged, was judged, or ran.
    asked: bool,
}

/// The result of the work for a request, by the number of the request.
enum CompletedWork {
    Judged(u64, String, Admitted),
    Ran(u64, ToolResult),
    /// The flag tells whether a file was read.
    Served(u64, ServiceReply, bool),
}

/// The state of one turn.
pub(super) struct TurnDriver<'t, 'v>
where
    't: 'v,
{
    attempt: &'v AgentAttempt<'v>,
    services: &'t ClientServices,
    /// Files that are being read for the agent; their contents are in memory.
    reading: usize,
    dialogue: &'t mut dyn Dialogue,
    peer: &'t mut AgentPeer,
    out: OutputQueue,
    work: FuturesUnordered<BoxFuture<'v, Result<CompletedWork, RuntimeError>>>,
    /// Requests without an answer, by the driver's own number.
    open: HashMap<u64, RequestTicket>,
    /// Calls of Windlass tools that wait, the number of running ones, and whether one runs that excludes others.
    queue: VecDeque<(u64, ToolCall)>,
    running: usize,
    exclusive: bool,
    calls: HashMap<String, TrackedCall>,
    /// Call ids in the log by the agent's ids, for an agent that reuses ids.
    logged_ids: HashMap<String, CallId>,
    /// The incomplete message: its id and the parts so far.
    collected: (String, Vec<Part>),
    volume: TurnVolume,
    pub(super) unknown: u64,
    last_number: u64,
    /// The timeout for the program: the grace period after a cancel, else the timeout that the dialogue set.
    timer: Option<BoxFuture<'v, ()>>,
    pub(super) cancelled: bool,
}

impl<'t, 'v> TurnDriver<'t, 'v> {
    pub(super) fn new(
        attempt: &'v AgentAttempt<'v>,
        dialogue: &'t mut dyn Dialogue,
        peer: &'t mut AgentPeer,
        services: &'t ClientServices,
    ) -> Self {
        Self {
            attempt,
            dialogue,
            peer,
            services,
            reading: 0,
            out: OutputQueue::default(),
            work: FuturesUnordered::new(),
            open: HashMap::new(),
            queue: VecDeque::new(),
            running: 0,
            exclusive: false,
            calls: HashMap::new(),
            logged_ids: HashMap::new(),
            collected: (String::new(), Vec::new()),
            volume: TurnVolume::default(),
            unknown: 0,
            last_number: 0,
            timer: None,
            cancelled: false,
        }
    }

    /// Sends the prompt and follows the program to the end of its answer.
    pub(super) async fn follow(&mut self, prompt: String) -> Result<TurnResult, RuntimeError> {
        let attempt = self.attempt;
        self.input(DialogueInput::Prompt(prompt));
        loop {
            if let Some(ended) = self.settle().await? {
                return Ok(ended);
            }
            self.run_next();
            let max_unsent = self.dialogue.max_unsent();
            let listen = self.work.len() < self.dialogue.max_concurrent_requests()
                && self.reading < MAX_READS;
            let framing = self.dialogue.framing();
            tokio::select! {
                biased;
                () = attempt.cancel.cancelled(), if !self.cancelled => self.cancel(),
                () = elapsed(&mut self.timer) => {
                    self.timer = None;
                    if self.cancelled {
                        return Ok(TurnResult::with("", TurnEndReason::Cancelled));
                    }
                    let stderr = self.peer.stderr_tail();
                    self.input(DialogueInput::TimedOut(stderr));
                }
                Some(done) = self.work.next(), if !self.work.is_empty() => self.done(done?),
                input = self.peer.next_input(framing, max_unsent, listen) => match input {
                    Some(input) => self.input(input),
                    None if self.cancelled => return Ok(TurnResult::with("", TurnEndReason::Cancelled)),
                    None => self.exited().await,
                },
            }
        }
    }

    /// Waits for the exit of the program, with a timeout, and reports it to the dialogue.
    async fn exited(&mut self) {
        let end = self
            .peer
            .end_and_describe(self.attempt.clock, CANCEL_GRACE * 4)
            .await;
        self.input(DialogueInput::Exited(end));
    }

    fn input(&mut self, input: DialogueInput) {
        self.dialogue.input(input, &mut self.out);
    }

    /// Executes all outputs of the last input. Returns the end of the turn, if the outputs contain it.
    async fn settle(&mut self) -> Result<Option<TurnResult>, RuntimeError> {
        while let Some(output) = self.out.pop() {
            match output {
                DialogueOutput::End(ended) => return Ok(Some(ended)),
                output => self.apply(output).await?,
            }
        }
        Ok(self.volume.exceeded().map(TurnResult::broken))
    }

    async fn apply(&mut self, output: DialogueOutput) -> Result<(), RuntimeError> {
        let attempt = self.attempt;
        match output {
            DialogueOutput::Send(line) => self.peer.send(&line),
            DialogueOutput::SendLast(text) => self.peer.send_last(&text),
            DialogueOutput::Terminate => self.peer.terminate(),
            DialogueOutput::ReadHome(files) => {
                let read = |path: &&str| {
                    let bytes = attempt
                        .enclosure
                        .read(path, MAX_HOME_FILE)
                        .unwrap_or_default();
                    String::from_utf8_lossy(&bytes).into_owned()
                };
                let files = files.iter().map(read).collect();
                self.input(DialogueInput::HomeFiles(files));
            }
            DialogueOutput::SessionStarted(session) => {
                attempt.log_start(session.as_deref()).await?
            }
            DialogueOutput::Delta(of, text) => attempt.delta(of, &text),
            DialogueOutput::Progress(call, text) => attempt.progress(&call, &text),
            DialogueOutput::Part(of, part) => self.collect_part(of, part).await?,
            DialogueOutput::Flush => self.flush().await?,
            DialogueOutput::Note(message) => {
                self.volume.add(&message.parts);
                attempt.emit(EventKind::said(message)).await?;
            }
            DialogueOutput::Announce(call) => self.announce(call).await?,
            DialogueOutput::Judge {
                ticket,
                call,
                may_differ,
            } => self.judge(ticket, call, may_differ).await?,
            DialogueOutput::Run { ticket, call } => self.run(ticket, call).await?,
            DialogueOutput::Serve {
                ticket,
                method,
                params,
            } => self.serve(ticket, method, params),
            DialogueOutput::Grant(call, grants) => {
                let files = attempt.job.files.as_ref();
                self.services.grant(&call, grants, files);
            }
            DialogueOutput::Revoke(call) => self.services.revoke(&call),
            DialogueOutput::Observed(mut foreign) => {
                foreign.call.id = self.logged_id(foreign.call.id);
                if let Some(known) = self.calls.get_mut(&foreign.call.id.0) {
                    known.asked = true;
                    attempt.observed(foreign).await?;
                }
            }
            DialogueOutput::TerminalResult {
                call,
                terminal,
                failed,
            } => {
                let text = self.services.terminal_text(&terminal);
                let mut out = OutputQueue::default();
                out.result(&call.0, text.unwrap_or_default(), failed, false);
                if let Some(DialogueOutput::Result { result, ran }) = out.pop() {
                    self.result(result, ran).await?;
                }
            }
            DialogueOutput::Forget(id) => self.open.retain(|_, ticket| ticket.id != id),
            DialogueOutput::Result { result, ran } => self.result(result, ran).await?,
            DialogueOutput::Spent(more) => attempt.spent(&more),
            DialogueOutput::Warn(code, text) => attempt.warn(code, text).await?,
            DialogueOutput::Unknown => self.unknown += 1,
            DialogueOutput::SetTimeout(_) if self.cancelled => {}
            DialogueOutput::SetTimeout(time) => {
                self.timer = time.map(|time| attempt.clock.sleep(time))
            }
            DialogueOutput::Abandon => self.exited().await,
            DialogueOutput::End(_) => {}
        }
        Ok(())
    }

    /// Collects a part of a message. A part of another message completes the previous one.
    async fn collect_part(&mut self, of: String, part: Part) -> Result<(), RuntimeError> {
        if self.collected.0 != of || must_flush(&self.collected.1) {
            self.flush().await?;
            self.collected.0 = of;
        }
        let part = match part {
            Part::Call(mut call) => {
                self.assign_logged_id(&mut call);
                if self.calls.contains_key(&call.id.0) {
                    return Ok(());
                }
                self.track(call.clone());
                Part::Call(call)
            }
            part => part,
        };
        self.collected.1.push(part);
        Ok(())
    }

    /// Gives a new call a unique id in the log, if the agent may have used its id before.
    fn assign_logged_id(&mut self, call: &mut ToolCall) {
        if self.dialogue.reuses_call_ids() && self.logged_ids.len() < MAX_CALLS {
            let name = self.attempt.call_id(&call.id.0);
            let agent_id = std::mem::replace(&mut call.id, name.clone());
            self.logged_ids.insert(agent_id.0, name);
        }
    }

    /// The id of a call in the log.
    fn logged_id(&self, agent_id: CallId) -> CallId {
        self.logged_ids
            .get(&agent_id.0)
            .cloned()
            .unwrap_or(agent_id)
    }

    fn track(&mut self, call: ToolCall) {
        if self.calls.len() < MAX_CALLS {
            let known = TrackedCall {
                call: call.clone(),
                verdict: None,
                asked: false,
            };
            self.calls.insert(call.id.0.clone(), known);
        }
    }

    async fn announce(&mut self, call: ToolCall) -> Result<(), RuntimeError> {
        if !self.calls.contains_key(&call.id.0) && self.calls.len() < MAX_CALLS {
            self.track(call.clone());
            self.collected.1.push(Part::Call(call));
        }
        self.flush().await
    }

    /// Logs the collected message.
    async fn flush(&mut self) -> Result<(), RuntimeError> {
        self.collected.0.clear();
        let parts = std::mem::take(&mut self.collected.1);
        if parts.is_empty() {
            return Ok(());
        }
        self.volume.add(&parts);
        self.attempt.log_message(Message::model(parts)).await
    }

    /// Registers a request and returns the driver's number for it. `None` if the request was refused already.
    fn admit(&mut self, ticket: RequestTicket) -> Option<u64> {
        if self.open.values().any(|open| open.id == ticket.id) {
            // The program sent the same request twice and gets one answer.
            self.unknown += 1;
            return None;
        }
        if self.cancelled {
            self.input(DialogueInput::Withdrawn(ticket));
            return None;
        }
        self.last_number += 1;
        self.open.insert(self.last_number, ticket);
        Some(self.last_number)
    }

    /// Answers a request, unless the agent withdrew it.
    fn answer(&mut self, n: u64, input: impl FnOnce(RequestTicket) -> DialogueInput) {
        if let Some(ticket) = self.open.remove(&n) {
            let input = input(ticket);
            self.input(input);
        }
    }

    /// Has a call judged once, independent of the number and the kind of the questions about it.
    async fn judge(
        &mut self,
        ticket: RequestTicket,
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
            self.answer(n, |ticket| DialogueInput::Judged(ticket, verdict));
            return Ok(());
        }
        let (attempt, id) = (self.attempt, call.id.0.clone());
        let (like, effect) = self.dialogue.equivalent_calls(&call);
        let call = ForeignCall { call, like, effect };
        self.work.push(Box::pin(async move {
            Ok(CompletedWork::Judged(n, id, attempt.admit(call).await?))
        }));
        Ok(())
    }

    /// Queues a call of a Windlass tool.
    async fn run(&mut self, ticket: RequestTicket, mut call: ToolCall) -> Result<(), RuntimeError> {
        let Some(n) = self.admit(ticket) else {
            return Ok(());
        };
        self.assign_logged_id(&mut call);
        self.announce(call.clone()).await?;
        let runs = self.calls.get_mut(&call.id.0).is_some_and(|known| {
            let same = known.call.name == call.name && known.call.args == call.args;
            same && !std::mem::replace(&mut known.asked, true)
        });
        if !runs || self.open.len() > MAX_OPEN {
            let why = "the call differs from the one that the agent announced, or too many calls are open";
            let result = ToolResult::failed(&call, ErrorCategory::Blocked, why);
            self.answer(n, |ticket| DialogueInput::ToolRan(ticket, result));
            return Ok(());
        }
        self.queue.push_back((n, call));
        Ok(())
    }

    /// Serves a request for a file or a terminal.
    fn serve(&mut self, ticket: RequestTicket, method: String, params: Value) {
        let Some(n) = self.admit(ticket) else {
            return;
        };
        let read = method == "fs/read_text_file";
        self.reading += usize::from(read);
        let (attempt, services) = (self.attempt, self.services);
        self.work.push(Box::pin(async move {
            let reply = services.serve(attempt, &method, params).await?;
            Ok(CompletedWork::Served(n, reply, read))
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
            let free =
                self.running == 0 || (reads && !self.exclusive && self.running < MAX_PARALLEL);
            if !free {
                return;
            }
            self.exclusive = !reads;
            self.running += 1;
            let Some((n, call)) = self.queue.pop_front() else {
                return;
            };
            let attempt = self.attempt;
            self.work.push(Box::pin(async move {
                Ok(CompletedWork::Ran(n, attempt.call(call).await?))
            }));
        }
    }

    fn done(&mut self, done: CompletedWork) {
        match done {
            CompletedWork::Judged(n, call, verdict) => {
                if let Some(known) = self.calls.get_mut(&call) {
                    known.verdict = Some(verdict.clone());
                }
                self.answer(n, |ticket| DialogueInput::Judged(ticket, verdict));
            }
            CompletedWork::Served(n, reply, read) => {
                self.reading -= usize::from(read);
                self.answer(n, |ticket| DialogueInput::Served(ticket, reply));
            }
            CompletedWork::Ran(n, result) => {
                self.running = self.running.saturating_sub(1);
                self.answer(n, |ticket| DialogueInput::ToolRan(ticket, result));
            }
        }
    }

    async fn result(&mut self, mut result: ToolResult, ran: bool) -> Result<(), RuntimeError> {
        self.flush().await?;
        result.id = self.logged_id(result.id);
        let Some(known) = self.calls.get_mut(&result.id.0) else {
            return Ok(());
        };
        result.name.clone_from(&known.call.name);
        if !std::mem::replace(&mut known.asked, true) && ran {
            // The agent ran the call without asking. Only the enclosure restricted it.
            let call = known.call.clone();
            let (like, effect) = self.dialogue.equivalent_calls(&call);
            self.attempt
                .observed(ForeignCall { call, like, effect })
                .await?;
        }
        self.attempt.reported_result(result).await
    }

    /// Answers all open requests as withdrawn.
    fn withdraw_all(&mut self) {
        self.queue.clear();
        let mut open: Vec<(u64, RequestTicket)> =
            std::mem::take(&mut self.open).into_iter().collect();
        open.sort_by_key(|(n, _)| *n);
        for (_, ticket) in open {
            self.input(DialogueInput::Withdrawn(ticket));
        }
    }

    /// Completes the turn: answers open requests and logs the rest of the conversation.
    pub(super) async fn finish(&mut self, ended: TurnResult) -> Result<TurnResult, RuntimeError> {
        self.withdraw_all();
        self.dialogue.finish(&mut self.out);
        while let Some(output) = self.out.pop() {
            self.apply(output).await?;
        }
        self.flush().await?;
        Ok(match ended {
            // Some agents report a refused call as a cancelled turn, although neither the user nor the engine cancelled
            // it.
            TurnResult::Answered(answer)
                if answer.end == TurnEndReason::Cancelled
                    && !self.attempt.cancel.is_cancelled()
                    && self.attempt.ended_at_refusal() =>
            {
                TurnResult::Answered(AgentAnswer {
                    end: TurnEndReason::Done,
                    ..answer
                })
            }
            ended => ended,
        })
    }

    /// Answers all open requests, and asks the program to end its turn.
    fn cancel(&mut self) {
        self.cancelled = true;
        self.withdraw_all();
        self.input(DialogueInput::Interrupt);
        self.timer = Some(self.attempt.clock.sleep(CANCEL_GRACE));
    }
}

async fn elapsed(timer: &mut Option<BoxFuture<'_, ()>>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}
