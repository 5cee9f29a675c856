//! One run while it is open: its own span, what is going on below it, and when the model was asked.

use serde_json::Value as Json;
use windlass_core::budget::{Spent, Usage};
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::{CallId, RunId, SessionId};
use windlass_core::message::{ErrorCategory, Message, Role, ToolCall, ToolResult};
use windlass_core::outcome::{Outcome, StopReason};
use windlass_core::validator::Judgement;

use super::{Finished, Told, word};
use crate::content;
use crate::metric::{Measure, Point};
use crate::span::{Attribute, Kind, Span, SpanEvent, SpanId, Value, trace_id};

/// What the model is told between two answers is kept up to this many messages, where content is told.
const MAX_INPUTS: usize = 256;

/// A run that has begun and not ended.
#[derive(Debug)]
pub(super) struct OpenRun {
    pub(super) id: RunId,
    session: SessionId,
    span: Span,
    time: Time,
    /// When the model may have been asked: the event before.
    since: i64,
    said: Option<Said>,
    /// A model call that was paid for and gave no answer; the next event says why.
    booked: Option<Span>,
    calls: Vec<(CallId, Span)>,
    checks: Vec<(String, Span)>,
    /// What was said to the model since it was asked last.
    inputs: Vec<Json>,
}

/// An answer whose price is not known yet.
#[derive(Debug)]
struct Said {
    seq: u64,
    start: i64,
    end: i64,
    message: Message,
}

/// The wall clock, made to never go back.
#[derive(Debug)]
struct Time {
    last: i64,
    offset: i64,
}

impl Time {
    fn of(&mut self, at: Timestamp) -> i64 {
        let at = at.as_millis();
        // What the clock was set back by is added from here on, so that what follows still has its own length; until
        // the clock is where it was again.
        self.offset = if at >= self.last {
            0
        } else {
            self.offset.max(self.last.saturating_sub(at))
        };
        self.last = at.saturating_add(self.offset).max(self.last);
        self.last
    }
}

impl OpenRun {
    pub(super) fn begin(event: &Event, id: RunId, told: &Told<'_>) -> Self {
        let session = event.session.clone();
        let start = event.at.as_millis();
        let mut attributes: Vec<Attribute> = vec![
            ("gen_ai.operation.name", "invoke_agent".into()),
            ("gen_ai.agent.name", "windlass".into()),
        ];
        attributes.extend(
            told.facts
                .program
                .as_deref()
                .map(|it| ("gen_ai.agent.version", it.into())),
        );
        attributes.extend(told.served(None));
        attributes.push(("gen_ai.conversation.id", session.as_str().into()));
        attributes.push(("windlass.run.id", id.as_str().into()));
        attributes.extend(
            told.facts
                .runtime
                .as_deref()
                .map(|it| ("windlass.runtime", it.into())),
        );
        let span = Span {
            trace: trace_id(&event.trace),
            id: SpanId::of_run(&session, &id),
            parent: None,
            name: "invoke_agent windlass".into(),
            kind: Kind::Internal,
            start,
            end: start,
            attributes,
            events: Vec::new(),
            dropped_events: 0,
            error: None,
            detail: None,
        };
        Self {
            id,
            session,
            span,
            time: Time {
                last: start,
                offset: 0,
            },
            since: start,
            said: None,
            booked: None,
            calls: Vec::new(),
            checks: Vec::new(),
            inputs: Vec::new(),
        }
    }

    /// Takes one more event of this run in.
    pub(super) fn apply(&mut self, seq: u64, event: &Event, told: &Told<'_>, out: &mut Finished) {
        let at = self.time.of(event.at);
        self.settle_booked(seq, &event.kind, at, told, out);
        match &event.kind {
            EventKind::RunStarted { prompt, .. } => self.heard(told, || content::message(prompt)),
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
                self.settle_said(None, told, out);
                self.said = Some(Said {
                    seq,
                    start: self.since,
                    end: at,
                    message: message.clone(),
                });
            }
            EventKind::Said { message, .. } => self.heard(told, || content::message(message)),
            EventKind::Spent {
                model,
                call,
                cost_micros,
                estimated,
                ..
            } => {
                self.spent(seq, at, (model, *call, *cost_micros, *estimated), told, out);
            }
            EventKind::CallStarted { call, .. } => {
                let span = self.call_span(seq, at, call, told);
                self.calls.push((call.id.clone(), span));
            }
            EventKind::CallFinished { result, .. } => {
                self.call_finished(seq, at, result, told, out)
            }
            EventKind::ValidationStarted { validator } => {
                let span = self.check_span(seq, at, validator, told);
                self.checks.push((validator.clone(), span));
            }
            EventKind::Validated {
                validator,
                blocking,
                report,
                ..
            } => {
                let open = self.checks.iter().position(|(name, _)| name == validator);
                let mut span = match open {
                    Some(open) => self.checks.swap_remove(open).1,
                    None => self.check_span(seq, at, validator, told),
                };
                span.attributes.push((
                    "windlass.validator.judgement",
                    word(&report.judgement).into(),
                ));
                span.attributes
                    .push(("windlass.validator.blocking", (*blocking).into()));
                span.attributes.push((
                    "windlass.validator.findings",
                    (report.findings.len() as u64).into(),
                ));
                span.close(
                    at,
                    (report.judgement == Judgement::Fail).then(|| "failed".to_owned()),
                );
                out.spans.push(span);
            }
            kind => self.happened(at, kind, told),
        }
        match &event.kind {
            // Said in the middle of an answer.
            EventKind::Warned { .. } | EventKind::BudgetWarned { .. } => {}
            EventKind::Waited { ms, .. } => {
                self.since = at.saturating_add(i64::try_from(*ms).unwrap_or(i64::MAX))
            }
            _ => self.since = at,
        }
    }

    /// The run has its outcome.
    pub(super) fn finish(
        mut self,
        outcome: &Outcome,
        totals: &Spent,
        ms: u64,
        told: &Told<'_>,
        out: &mut Finished,
    ) {
        let error = match outcome {
            Outcome::Completed | Outcome::CompletedWithLimitExceeded { .. } => None,
            Outcome::Failed { reason, .. } => Some(word(reason)),
            other => Some(other.word().to_owned()),
        };
        if let Outcome::Failed { detail, .. } | Outcome::Refused { detail, .. } = outcome
            && told.options.content
        {
            self.span.detail = Some(content::text(detail));
        }
        let attributes = &mut self.span.attributes;
        attributes.push(("windlass.outcome", outcome.word().into()));
        attributes.extend(usage(&totals.usage));
        attributes.push(("windlass.steps", u64::from(totals.steps).into()));
        attributes.push(("windlass.iterations", u64::from(totals.iterations).into()));
        if !totals.unpriced {
            attributes.push(("windlass.cost.micro_usd", totals.cost_micros.into()));
        }
        attributes.push(("windlass.active_ms", ms.into()));
        self.close(error, told, out);
    }

    /// Nobody will say how it ended.
    pub(super) fn interrupt(self, told: &Told<'_>, out: &mut Finished) {
        self.close(Some("interrupted".into()), told, out);
    }

    fn close(mut self, error: Option<String>, told: &Told<'_>, out: &mut Finished) {
        let end = self.time.last;
        let open = || Some("interrupted".to_owned());
        self.settle_said(None, told, out);
        if let Some(mut booked) = self.booked.take() {
            booked.close(end, open());
            out.spans.push(booked);
        }
        let calls = std::mem::take(&mut self.calls)
            .into_iter()
            .map(|(_, span)| span);
        let checks = std::mem::take(&mut self.checks)
            .into_iter()
            .map(|(_, span)| span);
        for mut span in calls.chain(checks) {
            span.close(end, open());
            out.spans.push(span);
        }
        let mut attributes = vec![("gen_ai.operation.name", "invoke_agent".into())];
        attributes.extend(told.served(None));
        self.span.close(end, error);
        self.seconds(&self.span, attributes, out);
        out.spans.push(self.span);
    }

    /// What becomes of a model call that was paid for and gave no answer.
    fn settle_booked(
        &mut self,
        seq: u64,
        kind: &EventKind,
        at: i64,
        told: &Told<'_>,
        out: &mut Finished,
    ) {
        match kind {
            EventKind::Waited { error, .. } => {
                let mut failed = match self.booked.take() {
                    Some(booked) => booked,
                    None => self.chat(seq, self.since, None, told),
                };
                failed.close(at, Some(error.word().to_owned()));
                self.answered(failed, told, out);
            }
            EventKind::IterationFinished { stop, .. } => {
                let failed = match self.booked.take() {
                    Some(booked) => Some(booked),
                    None => (*stop == StopReason::Provider)
                        .then(|| self.chat(seq, self.since, None, told)),
                };
                if let Some(mut failed) = failed {
                    failed.close(
                        at,
                        (*stop != StopReason::Done).then(|| stop.word().to_owned()),
                    );
                    self.answered(failed, told, out);
                }
            }
            EventKind::Compacted { compaction } => {
                let start = self
                    .booked
                    .as_ref()
                    .map_or(self.since, |booked| booked.start);
                let mut span = self.below(seq, start, "compact".into(), Kind::Internal);
                if let Some(by) = &compaction.by {
                    span.attributes
                        .push(("windlass.compaction.cause", word(by).into()));
                }
                let left_out = compaction.left_out.iter().map(|one| one.count).sum::<u64>();
                span.attributes
                    .push(("windlass.compaction.left_out", left_out.into()));
                span.close(at, None);
                if let Some(mut booked) = self.booked.take() {
                    // The model wrote the summary.
                    booked.parent = Some(span.id);
                    booked.close(booked.end, None);
                    self.answered(booked, told, out);
                }
                out.spans.push(span);
            }
            EventKind::Warned { .. } | EventKind::BudgetWarned { .. } => {}
            _ => {
                if let Some(mut booked) = self.booked.take() {
                    booked.close(booked.end, None);
                    self.answered(booked, told, out);
                }
            }
        }
    }

    fn spent(
        &mut self,
        seq: u64,
        at: i64,
        (model, call, cost, estimated): (&str, Usage, Option<u64>, bool),
        told: &Told<'_>,
        out: &mut Finished,
    ) {
        let attributes = |kind: Option<&str>| {
            let mut all: Vec<Attribute> = vec![("gen_ai.operation.name", "chat".into())];
            all.extend(told.served(Some(model)));
            all.extend(kind.map(|kind| ("gen_ai.token.type", kind.into())));
            all
        };
        let mut point = |measure, value: u64, attributes| {
            out.points.push(Point {
                measure,
                at,
                value: value as f64,
                attributes,
            });
        };
        point(
            Measure::Tokens,
            call.total_input(),
            attributes(Some("input")),
        );
        point(Measure::Tokens, call.output, attributes(Some("output")));
        if let Some(cost) = cost {
            point(Measure::Cost, cost, attributes(None));
        }
        let mut more = usage(&call);
        more.extend(cost.map(|cost| ("windlass.cost.micro_usd", cost.into())));
        if estimated {
            more.push(("windlass.usage.estimated", true.into()));
        }
        if self.said.is_some() {
            return self.settle_said(Some((model, more)), told, out);
        }
        let mut span = self.chat(seq, self.since, Some(model), told);
        span.attributes.extend(more);
        span.end = at;
        self.booked = Some(span);
    }

    /// An answer is known as well as it will be.
    fn settle_said(
        &mut self,
        booked: Option<(&str, Vec<Attribute>)>,
        told: &Told<'_>,
        out: &mut Finished,
    ) {
        let Some(said) = self.said.take() else { return };
        let (model, more) = booked.unzip();
        let mut span = self.chat(said.seq, said.start, model, told);
        span.attributes.extend(more.unwrap_or_default());
        let calls = said.message.calls().next().is_some();
        if calls {
            span.attributes.push((
                "gen_ai.response.finish_reasons",
                Value::Texts(vec!["tool_call".into()]),
            ));
        }
        if told.options.content {
            let inputs = std::mem::take(&mut self.inputs);
            span.attributes
                .push(("gen_ai.input.messages", content::messages(&inputs).into()));
            let mut output = content::message(&said.message);
            output["finish_reason"] = if calls { "tool_call" } else { "stop" }.into();
            span.attributes.push((
                "gen_ai.output.messages",
                content::messages(&[output]).into(),
            ));
        }
        span.close(said.end, None);
        self.answered(span, told, out);
    }

    /// A model call has ended.
    fn answered(&self, span: Span, told: &Told<'_>, out: &mut Finished) {
        let model = span
            .attributes
            .iter()
            .find_map(|(name, value)| match value {
                Value::Text(model) if *name == "gen_ai.request.model" => Some(model.as_str()),
                _ => None,
            });
        let mut attributes = vec![("gen_ai.operation.name", "chat".into())];
        attributes.extend(told.served(model));
        self.seconds(&span, attributes, out);
        out.spans.push(span);
    }

    fn call_finished(
        &mut self,
        seq: u64,
        at: i64,
        result: &ToolResult,
        told: &Told<'_>,
        out: &mut Finished,
    ) {
        let open = self.calls.iter().position(|(id, _)| *id == result.id);
        let mut span = match open {
            Some(open) => self.calls.swap_remove(open).1,
            // It was not run; nobody but the model knows a tool that is not there.
            None => {
                let unknown =
                    result.error == Some(ErrorCategory::UnknownTool) && !told.options.content;
                let name = if unknown {
                    "unknown".to_owned()
                } else {
                    result.name.clone()
                };
                let call = ToolCall {
                    id: result.id.clone(),
                    name,
                    args: Json::Null,
                    malformed: None,
                };
                self.call_span(
                    seq,
                    at,
                    &call,
                    &Told {
                        options: &super::Options::default(),
                        ..*told
                    },
                )
            }
        };
        span.attributes
            .extend(told.words("gen_ai.tool.call.result", &result.text));
        self.heard(told, || content::result(result));
        let error = result.error.map(|error| error.word().to_owned());
        span.close(at, error.clone());
        let tool = span
            .name
            .strip_prefix("execute_tool ")
            .unwrap_or_default()
            .to_owned();
        let mut attributes: Vec<Attribute> = vec![("gen_ai.tool.name", tool.into())];
        attributes.extend(error.map(|error| ("error.type", error.into())));
        let point = |measure| Point {
            measure,
            at: span.end,
            value: 1.0,
            attributes: attributes.clone(),
        };
        out.points.push(point(Measure::Calls));
        if matches!(
            result.error,
            Some(ErrorCategory::Denied | ErrorCategory::Blocked)
        ) {
            out.points.push(point(Measure::Denials));
        }
        if open.is_some() {
            let mut timed = vec![("gen_ai.operation.name", "execute_tool".into())];
            timed.extend(attributes.into_iter().take(1));
            self.seconds(&span, timed, out);
        }
        out.spans.push(span);
    }

    /// What has no span of its own is told in that of the run.
    fn happened(&mut self, at: i64, kind: &EventKind, told: &Told<'_>) {
        let (name, attributes): (_, Vec<Option<Attribute>>) = match kind {
            EventKind::Waited {
                reason,
                error,
                ms,
                attempt,
            } => (
                "windlass.retry",
                vec![
                    Some(("error.type", error.word().into())),
                    Some(("windlass.wait_ms", (*ms).into())),
                    Some(("windlass.attempt", u64::from(*attempt).into())),
                    told.words("windlass.reason", reason),
                ],
            ),
            EventKind::Asked { ask } => (
                "windlass.asked",
                vec![
                    Some(("windlass.ask.id", ask.id.as_str().into())),
                    Some(("windlass.ask.about", word(&ask.about).into())),
                    ask.call
                        .as_ref()
                        .map(|call| ("gen_ai.tool.call.id", call.0.as_str().into())),
                ],
            ),
            EventKind::Answered { ask, answer, by } => (
                "windlass.answered",
                vec![
                    Some(("windlass.ask.id", ask.as_str().into())),
                    Some(("windlass.ask.answer", word(answer).into())),
                    Some(("windlass.ask.by", by.word().into())),
                ],
            ),
            EventKind::Denied { call, rule, reason } => (
                "windlass.denied",
                vec![
                    Some(("gen_ai.tool.call.id", call.0.as_str().into())),
                    told.words("windlass.rule", rule),
                    told.words("windlass.reason", reason),
                ],
            ),
            EventKind::Landed { landed, .. } => (
                "windlass.landed",
                vec![Some(("windlass.files", (landed.files.len() as u64).into()))],
            ),
            EventKind::Kept { .. } => ("windlass.kept", Vec::new()),
            EventKind::Discarded { .. } => ("windlass.discarded", Vec::new()),
            EventKind::Warned { code, text } => (
                "windlass.warned",
                vec![
                    Some(("windlass.code", code.as_str().into())),
                    told.words("windlass.text", text),
                ],
            ),
            EventKind::BudgetWarned { limit } => (
                "windlass.budget_warned",
                vec![Some(("windlass.limit", word(limit).into()))],
            ),
            EventKind::ConnectionRefused { host, .. } => (
                "windlass.connection_refused",
                vec![told.words("windlass.host", host)],
            ),
            EventKind::IterationStarted { iteration, .. } => (
                "windlass.iteration",
                vec![Some(("windlass.iteration", u64::from(*iteration).into()))],
            ),
            _ => return,
        };
        self.span.tell(SpanEvent {
            name,
            at,
            attributes: attributes.into_iter().flatten().collect(),
        });
    }

    /// The model is told this with the next request.
    fn heard(&mut self, told: &Told<'_>, message: impl FnOnce() -> Json) {
        if told.options.content && self.inputs.len() < MAX_INPUTS {
            self.inputs.push(message());
        }
    }

    fn chat(&self, seq: u64, start: i64, model: Option<&str>, told: &Told<'_>) -> Span {
        let model = model.or(told.facts.model.as_deref());
        let name = model.map_or_else(|| "chat".to_owned(), |model| format!("chat {model}"));
        // A wait that was cut short ends before the time it was to take.
        let mut span = self.below(seq, start.min(self.time.last), name, Kind::Client);
        span.attributes
            .push(("gen_ai.operation.name", "chat".into()));
        span.attributes.extend(told.served(model));
        span.attributes
            .push(("gen_ai.conversation.id", self.session.as_str().into()));
        span
    }

    fn call_span(&self, seq: u64, start: i64, call: &ToolCall, told: &Told<'_>) -> Span {
        let mut span = self.below(
            seq,
            start,
            format!("execute_tool {}", call.name),
            Kind::Internal,
        );
        span.attributes.extend([
            ("gen_ai.operation.name", "execute_tool".into()),
            ("gen_ai.tool.name", call.name.as_str().into()),
            ("gen_ai.tool.call.id", call.id.0.as_str().into()),
            ("gen_ai.tool.type", "function".into()),
            ("gen_ai.conversation.id", self.session.as_str().into()),
        ]);
        if told.options.content {
            span.attributes.push((
                "gen_ai.tool.call.arguments",
                content::arguments_text(&call.args).into(),
            ));
        }
        span
    }

    /// A check that was given as a command is named by it: only its first word is told without content.
    fn check_span(&self, seq: u64, start: i64, validator: &str, told: &Told<'_>) -> Span {
        let mut span = self.below(seq, start, "validate".into(), Kind::Internal);
        let name = match told.options.content {
            true => validator,
            false => validator.split_whitespace().next().unwrap_or_default(),
        };
        span.attributes
            .push(("windlass.validator.name", name.into()));
        span
    }

    fn below(&self, seq: u64, start: i64, name: String, kind: Kind) -> Span {
        Span {
            trace: self.span.trace.clone(),
            id: SpanId::of(&self.session, &self.id, seq),
            parent: Some(self.span.id),
            name,
            kind,
            start,
            end: start,
            attributes: Vec::new(),
            events: Vec::new(),
            dropped_events: 0,
            error: None,
            detail: None,
        }
    }

    fn seconds(&self, span: &Span, mut attributes: Vec<Attribute>, out: &mut Finished) {
        attributes.extend(
            span.error
                .as_deref()
                .map(|error| ("error.type", error.into())),
        );
        let value = (span.end - span.start) as f64 / 1_000.0;
        out.points.push(Point {
            measure: Measure::Seconds,
            at: span.end,
            value,
            attributes,
        });
    }
}

/// Tokens, all input counted together as the conventions want it.
fn usage(usage: &Usage) -> Vec<Attribute> {
    vec![
        ("gen_ai.usage.input_tokens", usage.total_input().into()),
        ("gen_ai.usage.output_tokens", usage.output.into()),
        (
            "gen_ai.usage.cache_read.input_tokens",
            usage.cache_read.into(),
        ),
        (
            "gen_ai.usage.cache_creation.input_tokens",
            usage.cache_write.into(),
        ),
    ]
}
