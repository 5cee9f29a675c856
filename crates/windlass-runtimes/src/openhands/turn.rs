//! One turn: what was said goes to the server, what it tells is logged, and the actions it waits with are judged. Its
//! waiting has one answer for all actions of a step, so that one refused call refuses the step.

use std::collections::HashMap;

use serde_json::{Value, json};
use windlass_core::BoxFuture;
use windlass_core::event::DeltaOf;
use windlass_core::message::{Message, Origin, Part, Role, ToolCall, ToolResult};
use windlass_core::runtime::RuntimeError;
use windlass_core::tool::{Admitted, ForeignCall};

use super::OpenHandsOptions;
use super::calls::{call, cwd, foreign, kind, result, texts};
use super::ended::end;
use super::live::{Heard, Live, Reply};
use crate::agent::{Answer, CANCEL_GRACE, End, Visit};
use crate::said::{Said, waits_no_more};

/// Calls of one turn that are kept track of.
const MAX_CALLS: usize = 10_000;
/// Requests of one turn that wait for their answer.
const MAX_ASKED: usize = 100;
/// Events that are known, and from which nothing follows here.
const PASSED: &[&str] = &[
    "SystemPromptEvent",
    "PauseEvent",
    "InterruptEvent",
    "TokenEvent",
    "Condensation",
    "CondensationRequest",
    "CondensationSummaryEvent",
    "LLMCompletionLogEvent",
    "HookExecutionEvent",
];

/// A call that was announced.
struct Known {
    call: ToolCall,
    judged: bool,
    answered: bool,
}

/// What was decided about a step: the first refusal, with the call's name.
type Decided = Result<Option<Refusal>, RuntimeError>;

struct Refusal {
    name: String,
    why: String,
    others: usize,
}

/// One turn.
pub(super) struct Turn<'a> {
    options: &'a OpenHandsOptions,
    visit: &'a Visit<'a>,
    live: &'a mut Live,
    /// What requests were for.
    asked: HashMap<u64, &'static str>,
    /// The server was told to run, and did not stop yet.
    runs: bool,
    judging: Option<BoxFuture<'a, Decided>>,
    /// Calls that it waits with.
    pending: Vec<String>,
    calls: HashMap<String, Known>,
    /// Parts of a message whose other parts may still come, and whose answer of the model they are.
    gathered: Vec<Part>,
    gathered_of: String,
    text: String,
    error: Option<Value>,
    steps: u32,
    said: Said,
    unknown: u64,
    cancelled: bool,
}

impl<'a> Turn<'a> {
    pub(super) fn new(
        options: &'a OpenHandsOptions,
        visit: &'a Visit<'a>,
        live: &'a mut Live,
    ) -> Self {
        Self {
            options,
            visit,
            live,
            asked: HashMap::new(),
            runs: false,
            judging: None,
            pending: Vec::new(),
            calls: HashMap::new(),
            gathered: Vec::new(),
            gathered_of: String::new(),
            text: String::new(),
            error: None,
            steps: 0,
            said: Said::default(),
            unknown: 0,
            cancelled: false,
        }
    }

    /// Says something and follows the agent to the end of its answer.
    pub(super) async fn follow(mut self, say: &str) -> Result<Answer, RuntimeError> {
        let visit = self.visit;
        let content = json!([{ "type": "text", "text": say }]);
        self.post(
            "events",
            &json!({ "role": "user", "content": content, "run": true }),
        );
        self.runs = true;
        let mut grace: BoxFuture<'_, ()> = Box::pin(std::future::pending());
        let ended = loop {
            tokio::select! {
                biased;
                () = visit.cancel.cancelled(), if !self.cancelled => {
                    self.cancelled = true;
                    self.judging = None;
                    self.post("interrupt", &Value::Null);
                    grace = visit.clock.sleep(CANCEL_GRACE);
                }
                () = &mut grace => break Some(End::Cancelled),
                decided = decided(&mut self.judging) => self.answer(decided?),
                heard = self.live.hear() => match heard {
                    Heard::End => break None,
                    heard => if let Some(ended) = self.heard(heard).await? {
                        break Some(ended);
                    },
                },
            }
        };
        self.flush().await?;
        let end = match ended {
            Some(end) => end,
            None if self.cancelled => End::Cancelled,
            None => {
                let how = self.live.obituary(visit.clock, CANCEL_GRACE * 4).await;
                End::Broken(format!("its server ended without an answer, {how}"))
            }
        };
        self.warn_of_unread().await?;
        Ok(Answer {
            text: self.text,
            output: None,
            end,
        })
    }

    fn post(&mut self, what: &'static str, body: &Value) {
        let id = self.live.post(what, body);
        self.asked.insert(id, what);
    }

    async fn heard(&mut self, heard: Heard) -> Result<Option<End>, RuntimeError> {
        match heard {
            Heard::Event(event) => {
                if let Some(end) = self.event(&event).await? {
                    return Ok(Some(end));
                }
            }
            Heard::Answer(id, reply) => {
                let what = self.asked.remove(&id);
                return Ok(self.replied(what, &reply));
            }
            Heard::Failed(why) => return Ok(Some(End::Broken(why))),
            Heard::Ready | Heard::Odd | Heard::End => self.unknown += 1,
        }
        if self.asked.len() > MAX_ASKED {
            return Ok(Some(End::Broken(
                "it goes on and answers nothing that it is asked".to_owned(),
            )));
        }
        Ok(self.said.too_much().map(End::Broken))
    }

    /// An answer to a request of ours.
    fn replied(&mut self, what: Option<&str>, reply: &Reply) -> Option<End> {
        match what {
            Some("interrupt") => Some(End::Cancelled),
            _ if self.cancelled => None,
            Some("events/respond_to_confirmation") if reply.is_good() => {
                self.run();
                None
            }
            Some(_) if reply.is_good() => None,
            Some(what) => Some(End::Broken(format!(
                "it refused `{what}`: {}",
                reply.complaint()
            ))),
            // The way of its events is one request that ends when it is lost.
            None if reply.status == 0 => Some(End::Broken(format!(
                "its events were lost: {}",
                reply.complaint()
            ))),
            None => {
                self.unknown += 1;
                None
            }
        }
    }

    /// Lets it go on; what it waits with is run.
    fn run(&mut self) {
        self.runs = true;
        self.post("run", &Value::Null);
    }

    async fn event(&mut self, event: &Value) -> Result<Option<End>, RuntimeError> {
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        match kind(event) {
            "StreamingDeltaEvent" => {
                self.visit.delta(DeltaOf::Text, text("content"));
                self.visit
                    .delta(DeltaOf::Reasoning, text("reasoning_content"));
            }
            "ActionEvent" => self.acts(event).await?,
            "MessageEvent" if text("source") == "agent" => self.speaks(event).await?,
            "MessageEvent" => {}
            "ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent" => {
                self.came_of(event).await?
            }
            "ConversationErrorEvent" => self.error = Some(event.clone()),
            "ConversationStateUpdateEvent" => return self.stands(event).await,
            "ServerErrorEvent" => {
                return Ok(Some(End::Broken(format!(
                    "its server failed: {}",
                    text("detail")
                ))));
            }
            known if PASSED.contains(&known) => {}
            _ => self.unknown += 1,
        }
        Ok(None)
    }

    /// An action of the agent. It is judged when the whole step is known.
    async fn acts(&mut self, event: &Value) -> Result<(), RuntimeError> {
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("llm_response_id") != self.gathered_of || waits_no_more(&self.gathered) {
            self.flush().await?;
            text("llm_response_id").clone_into(&mut self.gathered_of);
        }
        if !text("reasoning_content").is_empty() {
            self.gathered.push(Part::Reasoning {
                text: text("reasoning_content").to_owned(),
                opaque: None,
            });
        }
        let thought = texts(event.get("thought"));
        if !thought.trim().is_empty() {
            self.gathered.push(Part::Text { text: thought });
        }
        let action = event.get("action").unwrap_or(&Value::Null);
        let of_action = |key: &str| {
            action
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        match kind(action) {
            // Words, in the form of a call.
            "FinishAction" => {
                self.text = of_action("message");
                self.gathered.push(Part::Text {
                    text: of_action("message"),
                });
            }
            "ThinkAction" => self.gathered.push(Part::Reasoning {
                text: of_action("thought"),
                opaque: None,
            }),
            _ => {
                let Some(call) = call(event) else {
                    self.unknown += 1;
                    return Ok(());
                };
                if self.calls.contains_key(&call.id.0) || self.calls.len() >= MAX_CALLS {
                    self.unknown += 1;
                    return Ok(());
                }
                if action.is_object() {
                    self.pending.push(call.id.0.clone());
                }
                let known = Known {
                    call: call.clone(),
                    judged: false,
                    answered: false,
                };
                self.calls.insert(call.id.0.clone(), known);
                self.gathered.push(Part::Call(call));
            }
        }
        Ok(())
    }

    async fn speaks(&mut self, event: &Value) -> Result<(), RuntimeError> {
        self.flush().await?;
        let message = event.get("llm_message").unwrap_or(&Value::Null);
        if let Some(text) = message
            .get("reasoning_content")
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
        {
            self.gathered.push(Part::Reasoning {
                text: text.to_owned(),
                opaque: None,
            });
        }
        self.text = texts(message.get("content"));
        if !self.text.is_empty() {
            self.gathered.push(Part::Text {
                text: self.text.clone(),
            });
        }
        self.flush().await
    }

    /// What came of a call.
    async fn came_of(&mut self, event: &Value) -> Result<(), RuntimeError> {
        self.flush().await?;
        let id = event
            .get("tool_call_id")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if let Some(path) = cwd(event) {
            self.live.cwd =
                Some(path.to_owned()).filter(|path| self.visit.job.files.root() != path);
        }
        let Some(known) = self.calls.get_mut(id) else {
            return Ok(());
        };
        self.pending.retain(|pending| pending != id);
        if std::mem::replace(&mut known.answered, true) {
            return Ok(());
        }
        let call = known.call.clone();
        if kind(event) == "UserRejectObservation" {
            // The one that was refused has its result.
            let why = "another call of the same step was refused, and OpenHands takes one answer for a whole step";
            return self
                .visit
                .reported_result(ToolResult::not_run(&call, why))
                .await;
        }
        if !std::mem::replace(&mut known.judged, true) && kind(event) == "ObservationEvent" {
            // It ran, and nobody was asked. It was held by its place alone.
            let effect = foreign(call.clone(), None).effect;
            self.visit.observed(call.clone(), effect).await?;
        }
        self.visit.reported_result(result(event, &call)).await
    }

    /// How the conversation stands. Only the whole state is told after everything before it was.
    async fn stands(&mut self, event: &Value) -> Result<Option<End>, RuntimeError> {
        let value = event.get("value").unwrap_or(&Value::Null);
        let stats = match event.get("key").and_then(Value::as_str).unwrap_or_default() {
            "stats" => Some(value),
            "full_state" => value.get("stats"),
            _ => None,
        };
        if let Some(more) = stats.and_then(|stats| self.live.meter.more(stats)) {
            self.visit.spent(&more);
        }
        let status = value
            .get("execution_status")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if event.get("key").and_then(Value::as_str) != Some("full_state")
            || !self.runs
            || status == "running"
        {
            return Ok(None);
        }
        self.runs = false;
        self.flush().await?;
        if let Some(end) = end(status, self.error.as_ref(), self.cancelled) {
            return Ok(Some(end));
        }
        if self.cancelled {
            return Ok(Some(End::Cancelled));
        }
        self.steps += 1;
        if self
            .options
            .max_iterations
            .is_some_and(|most| self.steps > most)
        {
            let most = self.options.max_iterations.unwrap_or_default();
            return Ok(Some(End::OwnLimit(format!(
                "it took the {most} steps of `max_iterations`"
            ))));
        }
        self.judge();
        Ok(None)
    }

    /// Has everything judged that it waits with, one after the other, up to the first refusal.
    fn judge(&mut self) {
        let mut calls: Vec<ForeignCall> = Vec::new();
        for id in std::mem::take(&mut self.pending) {
            if let Some(known) = self.calls.get_mut(&id) {
                known.judged = true;
                calls.push(foreign(known.call.clone(), self.live.cwd.as_deref()));
            }
        }
        self.judging = Some(Box::pin(judged(self.visit, calls)));
    }

    /// Passes on what was decided.
    fn answer(&mut self, refusal: Option<Refusal>) {
        self.judging = None;
        let Some(Refusal { name, why, others }) = refusal else {
            // A run is the yes. The other way to say it says nothing when it was not heard.
            self.run();
            return;
        };
        let reason = match others {
            0 => why,
            _ => format!(
                "{why} This was about the call of `{name}`. None of the calls of this step was run; make those again \
                 that you still need, without it."
            ),
        };
        self.post(
            "events/respond_to_confirmation",
            &json!({ "accept": false, "reason": reason }),
        );
    }

    /// Says what was gathered.
    async fn flush(&mut self) -> Result<(), RuntimeError> {
        let parts = std::mem::take(&mut self.gathered);
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

    async fn warn_of_unread(&mut self) -> Result<(), RuntimeError> {
        let all = self.live.passed_over().saturating_add(self.unknown);
        self.live.odd = 0;
        if all == 0 {
            return Ok(());
        }
        let text = format!(
            "{all} lines of OpenHands could not be read or are not known here; they were passed over"
        );
        self.visit.warn("unread_lines", text).await
    }
}

/// The first refusal among calls that are asked about together.
async fn judged(visit: &Visit<'_>, calls: Vec<ForeignCall>) -> Decided {
    let others = calls.len().saturating_sub(1);
    for call in calls {
        let name = call.call.name.clone();
        if let Admitted::No { category, text } = visit.admit(call).await? {
            let why = format!("[{}] {text}", category.word());
            return Ok(Some(Refusal { name, why, others }));
        }
    }
    Ok(None)
}

/// What was decided; never ends while nothing is to be decided.
async fn decided(judging: &mut Option<BoxFuture<'_, Decided>>) -> Decided {
    match judging {
        Some(judging) => judging.await,
        None => std::future::pending().await,
    }
}
