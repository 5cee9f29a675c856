//! The state of one open run: its span, the open spans below it, and the time of the last request to the model.

use serde_json::Value as Json;
use windlass_core::budget::{Spent, Usage};
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::{CallId, RunId, SessionId};
use windlass_core::message::{ErrorCategory, Message, Role, ToolCall, ToolResult};
use windlass_core::outcome::{Outcome, StopReason};
use windlass_core::validator::Judgement;

use super::{Finished, SpanContext, word};
use crate::content;
use crate::metric::{Measure, Point};
use crate::span::{Attribute, AttributeValue, Span, SpanEvent, SpanId, SpanKind, trace_id};

/// If content is exported, at most this many messages between two answers of the model are kept.
const MAX_INPUTS: usize = 256;

/// A run that has started and not ended.
#[derive(Debug)]
pub(super) struct OpenRun {
    pub(super) id: RunId,
    session: SessionId,
    span: Span,
    time: MonotonicTime,
    /// The start of a possible model call: the time of the previous event.
    since: i64,
    answer: Option<PendingAnswer>,
    /// A model call with usage but without an answer; the next event tells why.
    unanswered: Option<Span>,
    calls: Vec<(CallId, Span)>,
    checks: Vec<(String, Span)>,
    /// The messages to the model since its last answer.
    inputs: Vec<Json>,
}

/// The position of the current event, and the output of the fold.
pub(super) struct EventContext<'a> {
    pub(super) seq: u64,
    pub(super) at: i64,
    pub(super) context: &'a SpanContext<'a>,
    pub(super) out: &'a mut Finished,
}

/// An answer of the model whose usage is not known yet.
#[derive(Debug)]
struct PendingAnswer {
    seq: u64,
    start: i64,
    end: i64,
    message: Message,
}

/// Turns wall-clock times into times that never decrease.
#[derive(Debug)]
struct MonotonicTime {
    last: i64,
    offset: i64,
}

impl MonotonicTime {
    fn of(&mut self, at: Timestamp) -> i64 {
        let at = at.as_millis();
        // If the clock was set back, the difference is added to later times, so that durations stay correct, until the
        // clock has caught up.
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
    pub(super) fn begin(event: &Event, id: RunId, context: &SpanContext<'_>) -> Self {
        let session = event.session.clone();
        let start = event.at.as_millis();
        let (trace, name) = (trace_id(&event.trace), "invoke_agent windlass".to_owned());
        let span_id = SpanId::of_run(&session, &id);
        let mut span = Span::new(trace, span_id, name, SpanKind::Internal, start);
        span.set("gen_ai.operation.name", "invoke_agent");
        span.set("gen_ai.agent.name", "windlass");
        if let Some(program) = context.facts.program.as_deref() {
            span.set("gen_ai.agent.version", program);
        }
        span.attributes.extend(context.model_attributes(None));
        span.set("gen_ai.conversation.id", session.as_str());
        span.set("windlass.run.id", id.as_str());
        if let Some(runtime) = context.facts.runtime.as_deref() {
            span.set("windlass.runtime", runtime);
        }
        Self {
            id,
            session,
            span,
            time: MonotonicTime {
                last: start,
                offset: 0,
            },
            since: start,
            answer: None,
            unanswered: None,
            calls: Vec::new(),
            checks: Vec::new(),
            inputs: Vec::new(),
        }
    }

    /// Processes the next event of this run.
    pub(super) fn apply(
        &mut self,
        seq: u64,
        event: &Event,
        context: &SpanContext<'_>,
        out: &mut Finished,
    ) {
        let at = self.time.of(event.at);
        let now = &mut EventContext {
            seq,
            at,
            context,
            out,
        };
        self.settle_unanswered(&event.kind, now);
        match &event.kind {
            EventKind::RunStarted { prompt, .. } => {
                self.add_input(context, || content::message(prompt))
            }
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
                self.settle_answer(None, now);
                self.answer = Some(PendingAnswer {
                    seq,
                    start: self.since,
                    end: at,
                    message: message.clone(),
                });
            }
            EventKind::Said { message, .. } => {
                self.add_input(context, || content::message(message))
            }
            EventKind::Spent {
                model,
                call,
                cost_micros,
                estimated,
                ..
            } => self.spent((model, *call, *cost_micros, *estimated), now),
            EventKind::CallStarted { call, .. } => {
                let span = self.call_span(seq, at, call, context);
                self.calls.push((call.id.clone(), span));
            }
            EventKind::CallFinished { result, .. } => self.call_finished(result, now),
            EventKind::ValidationStarted { validator } => {
                let span = self.check_span(seq, at, validator, context);
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
                    None => self.check_span(seq, at, validator, context),
                };
                span.set("windlass.validator.judgement", word(&report.judgement));
                span.set("windlass.validator.blocking", *blocking);
                let findings = report.findings.len() as u64;
                span.set("windlass.validator.findings", findings);
                let failed = report.judgement == Judgement::Fail;
                span.close(at, failed.then(|| "failed".to_owned()));
                now.out.spans.push(span);
            }
            kind => self.add_run_event(at, kind, context),
        }
        match &event.kind {
            // A warning may be logged in the middle of a model call, so it does not start a new one.
            EventKind::Warned { .. } | EventKind::BudgetWarned { .. } => {}
            EventKind::Waited { ms, .. } => {
                self.since = at.saturating_add(i64::try_from(*ms).unwrap_or(i64::MAX))
            }
            _ => self.since = at,
        }
    }

    /// Ends the run with its outcome.
    pub(super) fn finish(
        mut self,
        outcome: &Outcome,
        totals: &Spent,
        ms: u64,
        context: &SpanContext<'_>,
        out: &mut Finished,
    ) {
        let error = match outcome {
            Outcome::Completed | Outcome::CompletedWithLimitExceeded { .. } => None,
            Outcome::Failed { reason, .. } => Some(word(reason)),
            other => Some(other.word().to_owned()),
        };
        if let Outcome::Failed { detail, .. } | Outcome::Refused { detail, .. } = outcome
            && context.options.content
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
        self.close(error, context, out);
    }

    /// Ends a run whose log has no outcome.
    pub(super) fn interrupt(self, context: &SpanContext<'_>, out: &mut Finished) {
        self.close(Some("interrupted".into()), context, out);
    }

    fn close(mut self, error: Option<String>, context: &SpanContext<'_>, out: &mut Finished) {
        let end = self.time.last;
        let (seq, at) = (0, end);
        let now = &mut EventContext {
            seq,
            at,
            context,
            out,
        };
        self.settle_answer(None, now);
        let calls = std::mem::take(&mut self.calls).into_iter();
        let checks = std::mem::take(&mut self.checks).into_iter();
        let open = calls.map(|(_, span)| span);
        let open = open.chain(checks.map(|(_, span)| span));
        for mut span in self.unanswered.take().into_iter().chain(open) {
            span.close(end, Some("interrupted".to_owned()));
            now.out.spans.push(span);
        }
        let mut attributes = vec![("gen_ai.operation.name", "invoke_agent".into())];
        attributes.extend(context.model_attributes(None));
        self.span.close(end, error);
        self.add_duration(&self.span, attributes, now);
        now.out.spans.push(self.span);
    }

    /// Closes a model call without an answer: a retry or the end of the iteration makes it a failure, a compaction makes it
    /// the call that wrote the summary.
    fn settle_unanswered(&mut self, kind: &EventKind, now: &mut EventContext<'_>) {
        match kind {
            EventKind::Waited { error, .. } => {
                let booked = self.unanswered.take();
                let mut failed = booked.unwrap_or_else(|| self.chat(self.since, None, now));
                failed.close(now.at, Some(error.word().to_owned()));
                self.end_model_call(failed, now);
            }
            EventKind::IterationFinished { stop, .. } => {
                let asked = (*stop == StopReason::Provider).then_some(());
                let failed = self.unanswered.take();
                let failed = failed.or_else(|| asked.map(|()| self.chat(self.since, None, now)));
                if let Some(mut failed) = failed {
                    let error = (*stop != StopReason::Done).then(|| stop.word().to_owned());
                    failed.close(now.at, error);
                    self.end_model_call(failed, now);
                }
            }
            EventKind::Compacted { compaction } => {
                let booked = self.unanswered.take();
                let start = booked.as_ref().map_or(self.since, |booked| booked.start);
                let mut span =
                    self.child_span(now.seq, start, "compact".into(), SpanKind::Internal);
                if let Some(by) = &compaction.by {
                    span.set("windlass.compaction.cause", word(by));
                }
                let left_out = compaction.left_out.iter().map(|one| one.count).sum::<u64>();
                span.set("windlass.compaction.left_out", left_out);
                span.close(now.at, None);
                if let Some(mut booked) = booked {
                    // This model call wrote the summary.
                    booked.parent = Some(span.id);
                    booked.close(booked.end, None);
                    self.end_model_call(booked, now);
                }
                now.out.spans.push(span);
            }
            EventKind::Warned { .. } | EventKind::BudgetWarned { .. } => {}
            _ => {
                if let Some(mut booked) = self.unanswered.take() {
                    booked.close(booked.end, None);
                    self.end_model_call(booked, now);
                }
            }
        }
    }

    fn spent(
        &mut self,
        (model, call, cost, estimated): (&str, Usage, Option<u64>, bool),
        now: &mut EventContext<'_>,
    ) {
        let (at, context) = (now.at, now.context);
        let mut point = |measure, value: u64, kind: Option<&str>| {
            let mut attributes: Vec<Attribute> = vec![("gen_ai.operation.name", "chat".into())];
            attributes.extend(context.model_attributes(Some(model)));
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
        if self.answer.is_some() {
            return self.settle_answer(Some((model, more)), now);
        }
        let mut span = self.chat(self.since, Some(model), now);
        span.attributes.extend(more);
        span.end = at;
        self.unanswered = Some(span);
    }

    /// Closes the span of the pending answer, with its usage if that is known.
    fn settle_answer(
        &mut self,
        booked: Option<(&str, Vec<Attribute>)>,
        now: &mut EventContext<'_>,
    ) {
        let Some(said) = self.answer.take() else {
            return;
        };
        let (model, more) = booked.unzip();
        let context = now.context;
        let mut span = self.chat_at(said.seq, said.start, model, context);
        span.attributes.extend(more.unwrap_or_default());
        let calls = said.message.calls().next().is_some();
        if calls {
            let reasons = AttributeValue::Texts(vec!["tool_call".into()]);
            span.set("gen_ai.response.finish_reasons", reasons);
        }
        if context.options.content {
            let inputs = std::mem::take(&mut self.inputs);
            span.set("gen_ai.input.messages", content::messages(&inputs));
            let mut output = content::message(&said.message);
            output["finish_reason"] = if calls { "tool_call" } else { "stop" }.into();
            span.set("gen_ai.output.messages", content::messages(&[output]));
        }
        span.close(said.end, None);
        self.end_model_call(span, now);
    }

    /// Emits the closed span of a model call and its duration.
    fn end_model_call(&self, span: Span, now: &mut EventContext<'_>) {
        let model = span
            .attributes
            .iter()
            .find_map(|(name, value)| match value {
                AttributeValue::Text(model) if *name == "gen_ai.request.model" => {
                    Some(model.as_str())
                }
                _ => None,
            });
        let mut attributes = vec![("gen_ai.operation.name", "chat".into())];
        attributes.extend(now.context.model_attributes(model));
        self.add_duration(&span, attributes, now);
        now.out.spans.push(span);
    }

    fn call_finished(&mut self, result: &ToolResult, now: &mut EventContext<'_>) {
        let context = now.context;
        let open = self.calls.iter().position(|(id, _)| *id == result.id);
        let mut span = match open {
            Some(open) => self.calls.swap_remove(open).1,
            // The call was not run. The name of an unknown tool was made up by the model, so it counts as content.
            None => {
                let unknown =
                    result.error == Some(ErrorCategory::UnknownTool) && !context.options.content;
                let name = if unknown { "unknown" } else { &result.name };
                self.tool_span(now.seq, now.at, name, &result.id)
            }
        };
        span.attributes
            .extend(context.text_attribute("gen_ai.tool.call.result", &result.text));
        self.add_input(context, || content::result(result));
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
            self.add_duration(&span, timed, now);
        }
        now.out.spans.push(span);
    }

    /// Adds an event that has no span of its own to the span of the run.
    fn add_run_event(&mut self, at: i64, kind: &EventKind, context: &SpanContext<'_>) {
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
                    context.text_attribute("windlass.reason", reason),
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
            EventKind::Answered {
                ask, answer, by, ..
            } => (
                "windlass.answered",
                vec![
                    Some(("windlass.ask.id", ask.as_str().into())),
                    Some(("windlass.ask.answer", word(answer).into())),
                    Some(("windlass.ask.by", by.word().into())),
                ],
            ),
            EventKind::Paused { reason, .. } => (
                "windlass.paused",
                vec![Some(("windlass.reason", <&str>::from(reason).into()))],
            ),
            EventKind::Denied { call, rule, reason } => (
                "windlass.denied",
                vec![
                    Some(("gen_ai.tool.call.id", call.0.as_str().into())),
                    context.text_attribute("windlass.rule", rule),
                    context.text_attribute("windlass.reason", reason),
                ],
            ),
            EventKind::RuleBroken { call, rule } => (
                "windlass.rule_broken",
                vec![
                    Some(("gen_ai.tool.call.id", call.0.as_str().into())),
                    context.text_attribute("windlass.rule", rule),
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
                    context.text_attribute("windlass.text", text),
                ],
            ),
            EventKind::BudgetWarned { limit } => (
                "windlass.budget_warned",
                vec![Some(("windlass.limit", word(limit).into()))],
            ),
            EventKind::ConnectionRefused { host, .. } => (
                "windlass.connection_refused",
                vec![context.text_attribute("windlass.host", host)],
            ),
            EventKind::IterationStarted { iteration, .. } => (
                "windlass.iteration",
                vec![Some(("windlass.iteration", u64::from(*iteration).into()))],
            ),
            _ => return,
        };
        self.span.add_event(SpanEvent {
            name,
            at,
            attributes: attributes.into_iter().flatten().collect(),
        });
    }

    /// Records a message that the model gets with the next request, if content is exported.
    fn add_input(&mut self, context: &SpanContext<'_>, message: impl FnOnce() -> Json) {
        if context.options.content && self.inputs.len() < MAX_INPUTS {
            self.inputs.push(message());
        }
    }

    fn chat(&self, start: i64, model: Option<&str>, now: &EventContext<'_>) -> Span {
        self.chat_at(now.seq, start, model, now.context)
    }

    fn chat_at(
        &self,
        seq: u64,
        start: i64,
        model: Option<&str>,
        context: &SpanContext<'_>,
    ) -> Span {
        let model = model.or(context.facts.model.as_deref());
        let name = model.map_or_else(|| "chat".to_owned(), |model| format!("chat {model}"));
        // `start` may be in the future if the wait before a retry was cut short.
        let mut span = self.child_span(seq, start.min(self.time.last), name, SpanKind::Client);
        span.set("gen_ai.operation.name", "chat");
        span.attributes.extend(context.model_attributes(model));
        span.set("gen_ai.conversation.id", self.session.as_str());
        span
    }

    fn call_span(&self, seq: u64, start: i64, call: &ToolCall, context: &SpanContext<'_>) -> Span {
        let mut span = self.tool_span(seq, start, &call.name, &call.id);
        if context.options.content {
            let arguments = content::arguments_text(&call.args);
            span.set("gen_ai.tool.call.arguments", arguments);
        }
        span
    }

    fn tool_span(&self, seq: u64, start: i64, tool: &str, call: &CallId) -> Span {
        let name = format!("execute_tool {tool}");
        let mut span = self.child_span(seq, start, name, SpanKind::Internal);
        span.set("gen_ai.operation.name", "execute_tool");
        span.set("gen_ai.tool.name", tool);
        span.set("gen_ai.tool.call.id", call.0.as_str());
        span.set("gen_ai.tool.type", "function");
        span.set("gen_ai.conversation.id", self.session.as_str());
        span
    }

    /// The name of a validator may be a whole command line; without content only its first word is exported.
    fn check_span(&self, seq: u64, start: i64, validator: &str, context: &SpanContext<'_>) -> Span {
        let mut span = self.child_span(seq, start, "validate".into(), SpanKind::Internal);
        let name = match context.options.content {
            true => validator,
            false => validator.split_whitespace().next().unwrap_or_default(),
        };
        span.set("windlass.validator.name", name);
        span
    }

    fn child_span(&self, seq: u64, start: i64, name: String, kind: SpanKind) -> Span {
        let id = SpanId::of(&self.session, &self.id, seq);
        Span {
            parent: Some(self.span.id),
            ..Span::new(self.span.trace.clone(), id, name, kind, start)
        }
    }

    fn add_duration(
        &self,
        span: &Span,
        mut attributes: Vec<Attribute>,
        now: &mut EventContext<'_>,
    ) {
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

/// The attributes for token usage; as in the conventions, input includes cached tokens.
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
