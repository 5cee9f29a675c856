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

/// The event that is taken in, and what comes of it.
pub(super) struct Now<'a> {
    pub(super) seq: u64,
    pub(super) at: i64,
    pub(super) told: &'a Told<'a>,
    pub(super) out: &'a mut Finished,
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
        let (trace, name) = (trace_id(&event.trace), "invoke_agent windlass".to_owned());
        let span_id = SpanId::of_run(&session, &id);
        let mut span = Span::new(trace, span_id, name, Kind::Internal, start);
        span.set("gen_ai.operation.name", "invoke_agent");
        span.set("gen_ai.agent.name", "windlass");
        if let Some(program) = told.facts.program.as_deref() {
            span.set("gen_ai.agent.version", program);
        }
        span.attributes.extend(told.served(None));
        span.set("gen_ai.conversation.id", session.as_str());
        span.set("windlass.run.id", id.as_str());
        if let Some(runtime) = told.facts.runtime.as_deref() {
            span.set("windlass.runtime", runtime);
        }
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
        let now = &mut Now { seq, at, told, out };
        self.settle_booked(&event.kind, now);
        match &event.kind {
            EventKind::RunStarted { prompt, .. } => self.heard(told, || content::message(prompt)),
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
                self.settle_said(None, now);
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
            } => self.spent((model, *call, *cost_micros, *estimated), now),
            EventKind::CallStarted { call, .. } => {
                let span = self.call_span(seq, at, call, told);
                self.calls.push((call.id.clone(), span));
            }
            EventKind::CallFinished { result, .. } => self.call_finished(result, now),
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
                span.set("windlass.validator.judgement", word(&report.judgement));
                span.set("windlass.validator.blocking", *blocking);
                let findings = report.findings.len() as u64;
                span.set("windlass.validator.findings", findings);
                let failed = report.judgement == Judgement::Fail;
                span.close(at, failed.then(|| "failed".to_owned()));
                now.out.spans.push(span);
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
        let span = &mut self.span;
        span.set("windlass.outcome", outcome.word());
        span.attributes.extend(usage(&totals.usage));
        span.set("windlass.steps", u64::from(totals.steps));
        span.set("windlass.iterations", u64::from(totals.iterations));
        if !totals.unpriced {
            span.set("windlass.cost.micro_usd", totals.cost_micros);
        }
        span.set("windlass.active_ms", ms);
        self.close(error, told, out);
    }

    /// Nobody will say how it ended.
    pub(super) fn interrupt(self, told: &Told<'_>, out: &mut Finished) {
        self.close(Some("interrupted".into()), told, out);
    }

    fn close(mut self, error: Option<String>, told: &Told<'_>, out: &mut Finished) {
        let end = self.time.last;
        let (seq, at) = (0, end);
        let now = &mut Now { seq, at, told, out };
        self.settle_said(None, now);
        let calls = std::mem::take(&mut self.calls).into_iter();
        let checks = std::mem::take(&mut self.checks).into_iter();
        let open = calls.map(|(_, span)| span);
        let open = open.chain(checks.map(|(_, span)| span));
        for mut span in self.booked.take().into_iter().chain(open) {
            span.close(end, Some("interrupted".to_owned()));
            now.out.spans.push(span);
        }
        let mut attributes = vec![("gen_ai.operation.name", "invoke_agent".into())];
        attributes.extend(told.served(None));
        self.span.close(end, error);
        self.seconds(&self.span, attributes, now);
        now.out.spans.push(self.span);
    }

    /// What becomes of a model call that was paid for and gave no answer.
    fn settle_booked(&mut self, kind: &EventKind, now: &mut Now<'_>) {
        match kind {
            EventKind::Waited { error, .. } => {
                let booked = self.booked.take();
                let mut failed = booked.unwrap_or_else(|| self.chat(self.since, None, now));
                failed.close(now.at, Some(error.word().to_owned()));
                self.answered(failed, now);
            }
            EventKind::IterationFinished { stop, .. } => {
                let asked = (*stop == StopReason::Provider).then_some(());
                let failed = self.booked.take();
                let failed = failed.or_else(|| asked.map(|()| self.chat(self.since, None, now)));
                if let Some(mut failed) = failed {
                    let error = (*stop != StopReason::Done).then(|| stop.word().to_owned());
                    failed.close(now.at, error);
                    self.answered(failed, now);
                }
            }
            EventKind::Compacted { compaction } => {
                let booked = self.booked.take();
                let start = booked.as_ref().map_or(self.since, |booked| booked.start);
                let mut span = self.below(now.seq, start, "compact".into(), Kind::Internal);
                if let Some(by) = &compaction.by {
                    span.set("windlass.compaction.cause", word(by));
                }
                let left_out = compaction.left_out.iter().map(|one| one.count).sum::<u64>();
                span.set("windlass.compaction.left_out", left_out);
                span.close(now.at, None);
                if let Some(mut booked) = booked {
                    // The model wrote the summary.
                    booked.parent = Some(span.id);
                    booked.close(booked.end, None);
                    self.answered(booked, now);
                }
                now.out.spans.push(span);
            }
            EventKind::Warned { .. } | EventKind::BudgetWarned { .. } => {}
            _ => {
                if let Some(mut booked) = self.booked.take() {
                    booked.close(booked.end, None);
                    self.answered(booked, now);
                }
            }
        }
    }

    fn spent(
        &mut self,
        (model, call, cost, estimated): (&str, Usage, Option<u64>, bool),
        now: &mut Now<'_>,
    ) {
        let (at, told) = (now.at, now.told);
        let mut point = |measure, value: u64, kind: Option<&str>| {
            let mut attributes: Vec<Attribute> = vec![("gen_ai.operation.name", "chat".into())];
            attributes.extend(told.served(Some(model)));
            attributes.extend(kind.map(|kind| ("gen_ai.token.type", kind.into())));
            now.out.points.push(Point {
                measure,
                at,
                value: value as f64,
                attributes,
            });
        };
        point(Measure::Tokens, call.total_input(), Some("input"));
        point(Measure::Tokens, call.output, Some("output"));
        if let Some(cost) = cost {
            point(Measure::Cost, cost, None);
        }
        let mut more = usage(&call);
        more.extend(cost.map(|cost| ("windlass.cost.micro_usd", cost.into())));
        if estimated {
            more.push(("windlass.usage.estimated", true.into()));
        }
        if self.said.is_some() {
            return self.settle_said(Some((model, more)), now);
        }
        let mut span = self.chat(self.since, Some(model), now);
        span.attributes.extend(more);
        span.end = at;
        self.booked = Some(span);
    }

    /// An answer is known as well as it will be.
    fn settle_said(&mut self, booked: Option<(&str, Vec<Attribute>)>, now: &mut Now<'_>) {
        let Some(said) = self.said.take() else { return };
        let (model, more) = booked.unzip();
        let told = now.told;
        let mut span = self.chat_at(said.seq, said.start, model, told);
        span.attributes.extend(more.unwrap_or_default());
        let calls = said.message.calls().next().is_some();
        if calls {
            let reasons = Value::Texts(vec!["tool_call".into()]);
            span.set("gen_ai.response.finish_reasons", reasons);
        }
        if told.options.content {
            let inputs = std::mem::take(&mut self.inputs);
            span.set("gen_ai.input.messages", content::messages(&inputs));
            let mut output = content::message(&said.message);
            output["finish_reason"] = if calls { "tool_call" } else { "stop" }.into();
            span.set("gen_ai.output.messages", content::messages(&[output]));
        }
        span.close(said.end, None);
        self.answered(span, now);
    }

    /// A model call has ended.
    fn answered(&self, span: Span, now: &mut Now<'_>) {
        let model = span
            .attributes
            .iter()
            .find_map(|(name, value)| match value {
                Value::Text(model) if *name == "gen_ai.request.model" => Some(model.as_str()),
                _ => None,
            });
        let mut attributes = vec![("gen_ai.operation.name", "chat".into())];
        attributes.extend(now.told.served(model));
        self.seconds(&span, attributes, now);
        now.out.spans.push(span);
    }

    fn call_finished(&mut self, result: &ToolResult, now: &mut Now<'_>) {
        let told = now.told;
        let open = self.calls.iter().position(|(id, _)| *id == result.id);
        let mut span = match open {
            Some(open) => self.calls.swap_remove(open).1,
            // It was not run; nobody but the model knows a tool that is not there.
            None => {
                let unknown =
                    result.error == Some(ErrorCategory::UnknownTool) && !told.options.content;
                let name = if unknown { "unknown" } else { &result.name };
                self.tool_span(now.seq, now.at, name, &result.id)
            }
        };
        span.attributes
            .extend(told.words("gen_ai.tool.call.result", &result.text));
        self.heard(told, || content::result(result));
        let error = result.error.map(|error| error.word().to_owned());
        span.close(now.at, error.clone());
        let tool = span.name.strip_prefix("execute_tool ").unwrap_or_default();
        let mut attributes: Vec<Attribute> = vec![("gen_ai.tool.name", tool.into())];
        attributes.extend(error.map(|error| ("error.type", error.into())));
        let point = |measure| Point {
            measure,
            at: span.end,
            value: 1.0,
            attributes: attributes.clone(),
        };
        now.out.points.push(point(Measure::Calls));
        let denied = [ErrorCategory::Denied, ErrorCategory::Blocked].map(Some);
        if denied.contains(&result.error) {
            now.out.points.push(point(Measure::Denials));
        }
        if open.is_some() {
            let mut timed = vec![("gen_ai.operation.name", "execute_tool".into())];
            timed.extend(attributes.into_iter().take(1));
            self.seconds(&span, timed, now);
        }
        now.out.spans.push(span);
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
            EventKind::RuleBroken { call, rule } => (
                "windlass.rule_broken",
                vec![
                    Some(("gen_ai.tool.call.id", call.0.as_str().into())),
                    told.words("windlass.rule", rule),
                ],
            ),
            EventKind::NotWritten { call, paths } => (
                "windlass.not_written",
                vec![
                    Some(("gen_ai.tool.call.id", call.0.as_str().into())),
                    Some(("windlass.files", (paths.len() as u64).into())),
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

    fn chat(&self, start: i64, model: Option<&str>, now: &Now<'_>) -> Span {
        self.chat_at(now.seq, start, model, now.told)
    }

    fn chat_at(&self, seq: u64, start: i64, model: Option<&str>, told: &Told<'_>) -> Span {
        let model = model.or(told.facts.model.as_deref());
        let name = model.map_or_else(|| "chat".to_owned(), |model| format!("chat {model}"));
        // A wait that was cut short ends before the time it was to take.
        let mut span = self.below(seq, start.min(self.time.last), name, Kind::Client);
        span.set("gen_ai.operation.name", "chat");
        span.attributes.extend(told.served(model));
        span.set("gen_ai.conversation.id", self.session.as_str());
        span
    }

    fn call_span(&self, seq: u64, start: i64, call: &ToolCall, told: &Told<'_>) -> Span {
        let mut span = self.tool_span(seq, start, &call.name, &call.id);
        if told.options.content {
            let arguments = content::arguments_text(&call.args);
            span.set("gen_ai.tool.call.arguments", arguments);
        }
        span
    }

    fn tool_span(&self, seq: u64, start: i64, tool: &str, call: &CallId) -> Span {
        let name = format!("execute_tool {tool}");
        let mut span = self.below(seq, start, name, Kind::Internal);
        span.set("gen_ai.operation.name", "execute_tool");
        span.set("gen_ai.tool.name", tool);
        span.set("gen_ai.tool.call.id", call.0.as_str());
        span.set("gen_ai.tool.type", "function");
        span.set("gen_ai.conversation.id", self.session.as_str());
        span
    }

    /// A check that was given as a command is named by it: only its first word is told without content.
    fn check_span(&self, seq: u64, start: i64, validator: &str, told: &Told<'_>) -> Span {
        let mut span = self.below(seq, start, "validate".into(), Kind::Internal);
        let name = match told.options.content {
            true => validator,
            false => validator.split_whitespace().next().unwrap_or_default(),
        };
        span.set("windlass.validator.name", name);
        span
    }

    fn below(&self, seq: u64, start: i64, name: String, kind: Kind) -> Span {
        let id = SpanId::of(&self.session, &self.id, seq);
        Span {
            parent: Some(self.span.id),
            ..Span::new(self.span.trace.clone(), id, name, kind, start)
        }
    }

    fn seconds(&self, span: &Span, mut attributes: Vec<Attribute>, now: &mut Now<'_>) {
        let error = span.error.as_deref();
        attributes.extend(error.map(|error| ("error.type", error.into())));
        now.out.points.push(Point {
            measure: Measure::Seconds,
            at: span.end,
            value: (span.end - span.start) as f64 / 1_000.0,
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
