//! One turn with a running sidecar: its calls are run by the engine, what it says becomes events, and when we are told to
//! end it is told so and gets its grace. Reads run beside each other, everything else one after the other, as for the
//! built-in agent.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use windlass_core::BoxFuture;
use windlass_core::enclosure::Inmate;
use windlass_core::event::{DeltaOf, EventKind};
use windlass_core::message::{Message, Origin, Part, Role, ToolCall, ToolResult};
use windlass_core::outcome::RefusalCategory;
use windlass_core::runtime::RuntimeError;
use windlass_core::tool::{Effect, REFUSE};

use super::ended;
use super::options::SidecarOptions;
use crate::agent::{Answer, CANCEL_GRACE, End, Reported, Visit};
use crate::peer::Peer;
use crate::said::{Said, waits_no_more};

/// The version of the contract.
const PROTOCOL: u64 = 1;
/// How long it may take until it says that it is there: some SDKs are slow to be read.
const READY: Duration = Duration::from_secs(60);
/// Calls of one turn, of them open at a time, and of these run beside each other.
const MAX_CALLS: usize = 20_000;
const MAX_OPEN: usize = 256;
const MAX_BESIDE: usize = 4;
/// Lines before its first word of the protocol that are passed over.
const MAX_NOISE: u64 = 10_000;

/// A sidecar that runs, between two turns.
pub(super) struct Running {
    peer: Peer,
    ready: bool,
    /// Turns that it was begun.
    pub(super) turns: u64,
}

impl Running {
    pub(super) fn new(inmate: Inmate) -> Self {
        Self {
            peer: Peer::new(inmate),
            ready: false,
            turns: 0,
        }
    }
}

/// A call of ours that ran, with the sidecar's name for it.
struct Ran {
    theirs: String,
    call: ToolCall,
    result: ToolResult,
}

pub(super) struct Turn<'v> {
    visit: &'v Visit<'v>,
    options: &'v SidecarOptions,
    running: Running,
    id: String,
    /// Calls that wait for their turn, and those that run.
    queue: VecDeque<(String, ToolCall)>,
    busy: FuturesUnordered<BoxFuture<'v, Result<Ran, RuntimeError>>>,
    /// One that runs may not have others beside it.
    alone: bool,
    /// The sidecar's names of calls that have no result.
    open: HashSet<String>,
    calls: usize,
    /// What was thought before the next words or calls.
    thought: Vec<Part>,
    text: String,
    said: Said,
    unknown: u64,
    cancelled: bool,
}

impl<'v> Turn<'v> {
    pub(super) fn new(
        visit: &'v Visit<'v>,
        mut running: Running,
        options: &'v SidecarOptions,
    ) -> Self {
        running.turns += 1;
        let id = format!("turn{}", running.turns);
        Self {
            visit,
            options,
            running,
            id,
            queue: VecDeque::new(),
            busy: FuturesUnordered::new(),
            alone: false,
            open: HashSet::new(),
            calls: 0,
            thought: Vec::new(),
            text: String::new(),
            said: Said::default(),
            unknown: 0,
            cancelled: false,
        }
    }

    /// Begins the turn and follows it to its end. The program is kept for the next where the turn was done.
    pub(super) async fn follow(mut self, mut start: Value) -> Result<Answer, RuntimeError> {
        let visit = self.visit;
        start["id"] = json!(self.id);
        if self.running.ready {
            self.running.peer.send(&start);
        }
        let ready: BoxFuture<'_, ()> = if self.running.ready {
            Box::pin(std::future::pending())
        } else {
            visit.clock.sleep(READY)
        };
        // The one thing that is waited for: that it is there, and later that it is gone.
        let mut wait = ready;
        let ended = loop {
            self.run_next();
            tokio::select! {
                biased;
                () = visit.cancel.cancelled(), if !self.cancelled => {
                    self.cancelled = true;
                    self.queue.clear();
                    self.running.peer.send(&json!({ "type": "cancel" }));
                    wait = visit.clock.sleep(CANCEL_GRACE);
                }
                () = &mut wait => break self.late(),
                Some(ran) = self.busy.next() => if let Some(answer) = self.ran(ran?) {
                    break answer;
                },
                line = self.running.peer.next() => match line {
                    Ok(Some(line)) if self.running.ready => if let Some(answer) = self.heard(&line).await? {
                        break answer;
                    },
                    Ok(Some(line)) => match self.hello(&line, &start) {
                        Ok(true) => {
                            visit.began(None).await?;
                            if !self.cancelled {
                                wait = Box::pin(std::future::pending());
                            }
                        }
                        Ok(false) => {}
                        Err(why) => break self.answer(End::Broken(why)),
                    },
                    Ok(None) | Err(_) => break self.gone().await,
                },
            }
        };
        self.flush(Vec::new()).await?;
        self.warn_of_unread().await?;
        if ended.end == End::Done {
            visit.keep(self.running);
        }
        Ok(ended)
    }

    /// Its first word; whether it was one.
    fn hello(&mut self, line: &Value, start: &Value) -> Result<bool, String> {
        if line.get("type").and_then(Value::as_str) != Some("ready") {
            self.unknown += 1;
            let noise = self.unknown.saturating_add(self.running.peer.unread());
            return if noise > MAX_NOISE {
                Err("it says other things than that it is ready".to_owned())
            } else {
                Ok(false)
            };
        }
        match line.get("protocol").and_then(Value::as_u64) {
            Some(PROTOCOL) => {}
            other => {
                return Err(format!(
                    "it speaks version {other:?} of the contract, and this is {PROTOCOL}"
                ));
            }
        }
        self.running.ready = true;
        self.running.peer.send(start);
        Ok(true)
    }

    /// The time is over that it had.
    fn late(&mut self) -> Answer {
        if self.cancelled {
            return self.answer(End::Cancelled);
        }
        let said = self.running.peer.complaint();
        let said = if said.is_empty() {
            said
        } else {
            format!("; the last on its standard error: {said}")
        };
        self.answer(End::Broken(format!(
            "it was not ready after {} seconds{said}",
            READY.as_secs()
        )))
    }

    async fn gone(&mut self) -> Answer {
        if self.cancelled {
            return self.answer(End::Cancelled);
        }
        let how = self
            .running
            .peer
            .ended_in_words(self.visit.clock, CANCEL_GRACE * 4)
            .await;
        self.answer(End::Broken(format!("it ended without an answer, {how}")))
    }

    /// One line of it; how the turn ended, when that was the last.
    async fn heard(&mut self, line: &Value) -> Result<Option<Answer>, RuntimeError> {
        let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "text_delta" => self.visit.delta(DeltaOf::Text, text("text")),
            "reasoning_delta" => self.visit.delta(DeltaOf::Reasoning, text("text")),
            "reasoning" => {
                self.thought.push(Part::Reasoning {
                    text: text("text").to_owned(),
                    opaque: None,
                });
                if waits_no_more(&self.thought) {
                    self.flush(Vec::new()).await?;
                }
            }
            "message" => {
                text("text").clone_into(&mut self.text);
                self.flush(vec![Part::Text {
                    text: text("text").to_owned(),
                }])
                .await?;
            }
            "tool_call" => self.tool_call(line).await?,
            "handoff" => {
                let words = format!(
                    "The agent `{}` hands over to `{}`.",
                    plain(text("from")),
                    plain(text("to"))
                );
                let message = Message::internal(words);
                self.said.add(&message.parts);
                self.visit.job.outlet.emit(EventKind::said(message)).await?;
            }
            "usage" => {
                let usage = ended::usage(line);
                self.visit.spent(&Reported {
                    usage,
                    cost_micros: None,
                    model: self.options.model.clone(),
                });
            }
            "done" if text("id") == self.id => {
                let last = std::mem::take(&mut self.text);
                return Ok(Some(ended::answer(
                    line,
                    last,
                    self.options,
                    self.cancelled,
                )));
            }
            _ => self.unknown += 1,
        }
        let too_much = self.said.too_much();
        Ok(too_much.map(|why| self.answer(End::Broken(why))))
    }

    /// Takes a call. It is logged now, and run when its turn comes.
    async fn tool_call(&mut self, line: &Value) -> Result<(), RuntimeError> {
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        let theirs = text("call_id").unwrap_or_default().to_owned();
        if theirs.is_empty() || self.open.contains(&theirs) {
            // It has asked already, or nobody could be answered.
            self.unknown += 1;
            return Ok(());
        }
        self.calls += 1;
        if self.cancelled || self.open.len() >= MAX_OPEN || self.calls > MAX_CALLS {
            let why = if self.cancelled {
                "the run was cancelled"
            } else {
                "there are too many calls"
            };
            self.settle(&theirs, why, true);
            return Ok(());
        }
        let args = line.get("arguments").cloned().unwrap_or_else(|| json!({}));
        let malformed = text("malformed").map(str::to_owned);
        let name = text("name").unwrap_or_default().to_owned();
        let call = ToolCall {
            id: self.visit.call_id(&theirs),
            name,
            args,
            malformed,
        };
        self.flush(vec![Part::Call(call.clone())]).await?;
        self.open.insert(theirs.clone());
        self.queue.push_back((theirs, call));
        Ok(())
    }

    /// Begins what may begin.
    fn run_next(&mut self) {
        while let Some((_, call)) = self.queue.front() {
            let beside = self.is_read(call);
            let free =
                self.busy.is_empty() || (beside && !self.alone && self.busy.len() < MAX_BESIDE);
            if !free {
                return;
            }
            self.alone = !beside;
            let Some((theirs, call)) = self.queue.pop_front() else {
                return;
            };
            let visit = self.visit;
            self.busy.push(Box::pin(async move {
                let result = visit.call(call.clone()).await?;
                Ok(Ran {
                    theirs,
                    call,
                    result,
                })
            }));
        }
    }

    /// Whether a call may run beside others: it says so, and only looks.
    fn is_read(&self, call: &ToolCall) -> bool {
        let tool = self
            .visit
            .job
            .toolbox
            .tools()
            .get(&call.name)
            .map(|tool| tool.spec());
        tool.is_some_and(|spec| spec.parallel && spec.effect == Effect::Read)
    }

    /// What came of a call goes back; the one by which the task is declined ends the turn.
    fn ran(&mut self, ran: Ran) -> Option<Answer> {
        let Ran {
            theirs,
            call,
            result,
        } = ran;
        self.settle(&theirs, &result.text, result.error.is_some());
        let (category, detail) = declined(&call).filter(|_| result.error.is_none())?;
        Some(self.answer(End::Declined(category, detail)))
    }

    fn settle(&mut self, theirs: &str, content: &str, is_error: bool) {
        self.open.remove(theirs);
        let line = json!({ "type": "tool_result", "call_id": theirs, "content": content, "is_error": is_error });
        self.running.peer.send(&line);
    }

    /// Says what was thought, and this.
    async fn flush(&mut self, more: Vec<Part>) -> Result<(), RuntimeError> {
        let mut parts = std::mem::take(&mut self.thought);
        parts.extend(more);
        if parts.is_empty() {
            return Ok(());
        }
        self.said.add(&parts);
        self.visit
            .said(Message {
                role: Role::Assistant,
                origin: Origin::Model,
                parts,
            })
            .await
    }

    fn answer(&mut self, end: End) -> Answer {
        Answer {
            text: std::mem::take(&mut self.text),
            output: None,
            end,
        }
    }

    async fn warn_of_unread(&mut self) -> Result<(), RuntimeError> {
        let (unread, unknown) = (self.running.peer.unread(), self.unknown);
        if unread == 0 && unknown == 0 {
            return Ok(());
        }
        let text = format!(
            "{unread} lines of the sidecar could not be read, and {unknown} were of a kind that is not known here; they \
             were passed over"
        );
        self.visit.warn("unread_lines", text).await
    }
}

/// The task declined by the tool for that, with why.
fn declined(call: &ToolCall) -> Option<(RefusalCategory, String)> {
    if call.name != REFUSE {
        return None;
    }
    let category = serde_json::from_value(call.args.get("category")?.clone()).ok()?;
    Some((category, call.args.get("reason")?.as_str()?.to_owned()))
}

/// A name for a person to read, whatever was sent.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| !c.is_control() && *c != '`')
        .take(60)
        .collect()
}
