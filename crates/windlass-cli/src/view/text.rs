//! The view for people: the answer on standard output, what happens on standard error.

use std::collections::{HashMap, HashSet};
use std::io::IsTerminal;
use std::time::Duration;

use windlass_core::budget::Spent;
use windlass_core::event::{DeltaOf, Event, EventKind};
use windlass_core::id::{CallId, SessionId};
use windlass_core::message::{Origin, Role, ToolCall, ToolResult};
use windlass_core::outcome::{FailReason, Outcome, RunSummary};
use windlass_core::provider::ProviderErrorKind;
use windlass_core::workspace::{Change, FileChange};

use super::context::made_room;
use super::landing;
use super::progress::{Progress, dollars, thousands};
use super::style::{Paint, Style, first_line};
use crate::args::OutputArgs;
use crate::out::{err, out};
use crate::safe::{marked, message, one_line, plain};

/// Lines of one diff that are shown without `--verbose`.
const DIFF_LINES: usize = 60;
/// Lines of a failed call's answer that are shown without `--verbose`.
const FAILURE_LINES: usize = 12;

pub(crate) struct TextView {
    session: SessionId,
    quiet: bool,
    verbose: bool,
    /// The agent that works, when it is not ours.
    foreign: Option<String>,
    /// The line with the terms of a run that was shown last.
    terms: Option<String>,
    paint: Paint,
    progress: Progress,
    /// Standard output is a terminal: the answer is shown as it comes.
    streaming: bool,
    /// What was streamed of the answer that is being written.
    streamed: String,
    /// The last answer, for a pipe.
    answer: String,
    /// Calls that the model wants and nobody has begun.
    wanted: HashMap<CallId, String>,
    calls: HashMap<CallId, String>,
    denied: HashSet<CallId>,
    /// The cursor stands in the middle of streamed text.
    mid_line: bool,
    /// The same for reasoning on standard error.
    mid_thought: bool,
}

impl TextView {
    pub(crate) fn new(output: &OutputArgs, session: &SessionId, foreign: Option<&str>) -> Self {
        Self {
            session: session.clone(),
            quiet: output.quiet,
            verbose: output.verbose,
            foreign: foreign.map(str::to_owned),
            terms: None,
            paint: Paint::for_stderr(),
            progress: Progress::new(output.quiet),
            streaming: std::io::stdout().is_terminal(),
            streamed: String::new(),
            answer: String::new(),
            wanted: HashMap::new(),
            calls: HashMap::new(),
            denied: HashSet::new(),
            mid_line: false,
            mid_thought: false,
        }
    }

    pub(crate) fn wants_live(&self) -> bool {
        self.streaming || self.progress.enabled()
    }

    pub(crate) fn ticks(&self) -> bool {
        self.progress.enabled()
    }

    pub(crate) fn tick(&mut self) {
        if !self.mid_line && !self.mid_thought {
            self.progress.draw();
        }
    }

    pub(crate) fn hush(&mut self) {
        self.progress.clear();
        self.finish_line();
    }

    pub(crate) fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::RunStarted { .. } => {
                self.answer.clear();
                self.streamed.clear();
                "thinking".clone_into(&mut self.progress.doing);
            }
            EventKind::Delta { of, text } => self.delta(of, text),
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
                self.wanted.extend(
                    message
                        .calls()
                        .map(|call| (call.id.clone(), describe(call))),
                );
                self.said(&message.text());
            }
            EventKind::Said { message, .. } if message.origin == Origin::Engine && self.verbose => {
                self.note(
                    Style::Dim,
                    &format!("(to the model) {}", first_line(&message.text(), 200)),
                );
            }
            EventKind::CallStarted { call, .. } => self.call_started(call),
            EventKind::CallProgress { text, .. } => {
                let line = text.trim_end().lines().next_back().unwrap_or_default();
                self.progress.doing = first_line(line, 120);
            }
            EventKind::CallFinished { result, ms } => self.call_finished(result, *ms),
            EventKind::FileChanged { change, .. } => self.file_changed(change),
            EventKind::Denied { call, reason, .. } => self.call_denied(call, reason),
            EventKind::Waited {
                reason,
                ms,
                attempt,
                ..
            } => {
                let reason = message(reason);
                let text = format!(
                    "{reason}; try {attempt} in {}",
                    seconds(Duration::from_millis(*ms))
                );
                self.note(Style::Warning, &text);
            }
            EventKind::Spent { total, .. } => {
                self.progress.steps = total.steps;
                self.progress.tokens = total.usage.counted();
                self.progress.cost_micros = total.cost_micros;
            }
            EventKind::Compacted { compaction } => self.note(Style::Dim, &made_room(compaction)),
            EventKind::BudgetWarned { limit } => {
                self.note(
                    Style::Warning,
                    &format!("four fifths of the limit on {limit} are used"),
                );
            }
            EventKind::Queued { prompt, steer } => {
                let when = if *steer {
                    "said at the next step"
                } else {
                    "waits for the end of this run"
                };
                self.note(
                    Style::Dim,
                    &format!("{when}: {}", first_line(&prompt.text(), 80)),
                );
            }
            EventKind::Warned { text, .. } => {
                self.note(Style::Warning, &format!("warning: {}", message(text)))
            }
            EventKind::ValidationStarted { validator } => {
                self.progress.doing = format!("checking: {}", first_line(validator, 80));
            }
            EventKind::RunFinished(RunSummary {
                outcome,
                files,
                totals,
                ms,
                limits,
                transaction,
                output,
                ..
            }) => {
                if let Some(output) = output {
                    self.answered(output);
                }
                let kept = transaction.as_deref();
                self.run_finished(outcome, files, totals, Duration::from_millis(*ms), kept);
                let reached = matches!(
                    outcome,
                    Outcome::BudgetExceeded { .. }
                        | Outcome::CompletedWithLimitExceeded { .. }
                        | Outcome::MaxSteps
                        | Outcome::TimedOut
                );
                if let Some(limits) = limits.as_ref().filter(|_| reached || self.verbose) {
                    self.note(Style::Dim, &landing::limits(limits, totals, *ms));
                }
            }
            EventKind::TransactionOpened { terms, .. } if self.foreign.is_some() => {
                for (style, line) in
                    landing::foreign(self.foreign.as_deref().unwrap_or_default(), terms)
                {
                    self.note(style, &line);
                }
            }
            EventKind::TransactionOpened { terms, name } => {
                let line = landing::opened(terms, name.as_deref());
                // In a chat every prompt opens the workspace again, most often under the same terms.
                if self.terms.as_ref() != Some(&line) {
                    self.note(Style::Dim, &line);
                    self.terms = Some(line);
                }
            }
            other => {
                for (style, line) in landing::lines(other) {
                    self.note(style, &line);
                }
            }
        }
    }

    pub(crate) fn end(&mut self) {
        self.hush();
        if !self.streaming && !self.answer.is_empty() {
            out(&format!("{}\n", plain(self.answer.trim_end())));
        }
        self.answer.clear();
    }

    fn delta(&mut self, of: &DeltaOf, text: &str) {
        match of {
            DeltaOf::Text if self.streaming => {
                self.progress.clear();
                if std::mem::take(&mut self.mid_thought) {
                    err("\n");
                }
                self.streamed.push_str(text);
                self.mid_line = !text.ends_with('\n');
                out(&plain(text));
            }
            DeltaOf::Reasoning if self.verbose => {
                self.progress.clear();
                self.mid_thought = !text.ends_with('\n');
                err(&self.paint.on(Style::Dim, &plain(text)));
            }
            _ => "thinking".clone_into(&mut self.progress.doing),
        }
    }

    fn said(&mut self, text: &str) {
        let streamed = std::mem::take(&mut self.streamed);
        if self.streaming && !text.trim().is_empty() {
            match text.strip_prefix(streamed.as_str()) {
                Some(rest) => out(&plain(rest)),
                // A retry said something else than was shown: the whole answer stands here.
                None => out(&format!("\n{}", plain(text))),
            }
            self.mid_line = !text.ends_with('\n');
        } else if !self.streaming && self.verbose && !text.trim().is_empty() {
            self.note(Style::Dim, text);
        }
        self.finish_line();
        if !text.trim().is_empty() {
            text.clone_into(&mut self.answer);
        }
    }

    /// An answer in a schema. Agents that have a call for it do not say it in words.
    fn answered(&mut self, output: &serde_json::Value) {
        if serde_json::from_str::<serde_json::Value>(&self.answer).is_ok_and(|said| said == *output)
        {
            return;
        }
        self.hush();
        self.answer = output.to_string();
        if self.streaming {
            out(&format!("{}\n", plain(&self.answer)));
        }
    }

    fn call_started(&mut self, call: &ToolCall) {
        let shown = describe(call);
        self.note(Style::Place, &format!("› {shown}"));
        self.progress.doing.clone_from(&shown);
        self.wanted.remove(&call.id);
        self.calls.insert(call.id.clone(), shown);
    }

    fn call_denied(&mut self, call: &CallId, reason: &str) {
        // It never began, so that nobody has said what it was.
        if let Some(shown) = self.wanted.remove(call) {
            self.note(Style::Place, &format!("› {shown}"));
        }
        self.denied.insert(call.clone());
        self.note(Style::Warning, &format!("  not run: {}", message(reason)));
    }

    fn call_finished(&mut self, result: &ToolResult, ms: u64) {
        "thinking".clone_into(&mut self.progress.doing);
        let started = self.calls.remove(&result.id);
        self.wanted.remove(&result.id);
        let limit = if self.verbose {
            usize::MAX
        } else {
            FAILURE_LINES
        };
        match result.error {
            // A denial said its reason already.
            Some(_) if self.denied.remove(&result.id) => {}
            Some(_) if started.is_none() => {
                self.note(
                    Style::Removed,
                    &format!(
                        "  {} {}",
                        one_line(&result.name),
                        first_line(&result.text, 200)
                    ),
                );
            }
            Some(_) => self.note(Style::Removed, &indent(&tail(&result.text, limit))),
            None if self.verbose => self.note(Style::Dim, &indent(&tail(&result.text, 200))),
            None => {}
        }
        if ms >= 1_000 {
            self.note(
                Style::Dim,
                &format!("  {}", seconds(Duration::from_millis(ms))),
            );
        }
    }

    fn file_changed(&mut self, change: &FileChange) {
        let what = match &change.change {
            Change::Created => "created".to_owned(),
            Change::Modified => "changed".to_owned(),
            Change::Deleted => "deleted".to_owned(),
            Change::MovedFrom(from) => format!("moved from {}", one_line(from)),
        };
        // Of what a foreign agent or a command wrote the lines are known at the end.
        let lines = match (change.added, change.removed) {
            (0, 0) => String::new(),
            (added, removed) => format!(" (+{added} -{removed})"),
        };
        self.note(
            Style::Bold,
            &format!("  {} {what}{lines}", one_line(&change.path)),
        );
        let Some(diff) = change.diff.as_ref().filter(|_| !self.quiet) else {
            return;
        };
        let limit = if self.verbose { usize::MAX } else { DIFF_LINES };
        let lines: Vec<&str> = diff
            .lines()
            .filter(|line| !line.starts_with("---") && !line.starts_with("+++"))
            .collect();
        for line in lines.iter().take(limit) {
            let style = match line.bytes().next() {
                Some(b'+') => Style::Added,
                Some(b'-') => Style::Removed,
                Some(b'@') => Style::Place,
                _ => Style::Dim,
            };
            // A file may hold what cannot be seen.
            self.note(style, &format!("  {}", marked(line)));
        }
        if lines.len() > limit {
            self.note(
                Style::Dim,
                &format!("  … {} more lines (-v shows all)", lines.len() - limit),
            );
        }
    }

    fn run_finished(
        &mut self,
        outcome: &Outcome,
        files: &[FileChange],
        totals: &Spent,
        took: Duration,
        kept: Option<&str>,
    ) {
        self.hush();
        if self.quiet && *outcome == Outcome::Completed {
            return;
        }
        let style = if *outcome == Outcome::Completed {
            Style::Added
        } else {
            Style::Removed
        };
        let (word, detail, advice) = explain(outcome, &self.session, kept);
        let cost = if totals.unpriced {
            "price unknown".to_owned()
        } else {
            dollars(totals.cost_micros)
        };
        let line = format!(
            "{} · {} · {} tokens · {cost} · {} · session {}",
            self.paint.on(style, &word),
            if totals.steps == 1 {
                "1 step".to_owned()
            } else {
                format!("{} steps", totals.steps)
            },
            thousands(totals.usage.total_input() + totals.usage.output),
            seconds(took),
            self.session,
        );
        err(&format!("{line}\n"));
        if let Some(name) = kept.filter(|_| self.quiet) {
            // Who wants only the answer still has to know where the work is.
            err(&format!("  kept as {name}\n"));
        }
        if !detail.is_empty() {
            err(&format!("{}\n", indent(&plain(&detail))));
        }
        for change in files.iter().take(50) {
            err(&format!(
                "  {} {} (+{} -{})\n",
                mark(&change.change),
                one_line(&change.path),
                change.added,
                change.removed
            ));
        }
        if files.len() > 50 {
            err(&format!("  … and {} more\n", files.len() - 50));
        }
        if let Some(advice) = advice {
            err(&format!("hint: {advice}\n"));
        }
    }

    /// One line or more on standard error, out of the way of everything that moves.
    fn note(&mut self, style: Style, text: &str) {
        if self.quiet {
            return;
        }
        self.progress.clear();
        self.finish_line();
        for line in plain(text).lines() {
            err(&format!("{}\n", self.paint.on(style, line)));
        }
    }

    fn finish_line(&mut self) {
        if std::mem::take(&mut self.mid_line) {
            out("\n");
        }
        if std::mem::take(&mut self.mid_thought) {
            err("\n");
        }
    }
}

/// A call in one line: its name and what it is about.
pub(crate) fn describe(call: &ToolCall) -> String {
    let text = |key: &str| call.args.get(key).and_then(serde_json::Value::as_str);
    // The names of ours first, then those that other agents use.
    let keys = [
        "command",
        "path",
        "pattern",
        "glob",
        "from",
        "question",
        "expression",
        "job",
        "file_path",
        "filePath",
        "url",
    ];
    let about = keys.iter().find_map(|key| text(key)).map(str::to_owned);
    // A call that changes several files says so file by file.
    let changes = call
        .args
        .get("changes")
        .and_then(serde_json::Value::as_array);
    let paths = || {
        Some(
            changes?
                .iter()
                .filter_map(|one| one["path"].as_str())
                .collect::<Vec<_>>()
                .join(", "),
        )
    };
    let about = match about.or_else(paths).filter(|about| !about.is_empty()) {
        Some(about) => about,
        None if call.args.as_object().is_none_or(serde_json::Map::is_empty) => String::new(),
        None => call.args.to_string(),
    };
    format!("{} {}", one_line(&call.name), first_line(&about, 160))
        .trim_end()
        .to_owned()
}

/// The outcome in a word, its detail, and what to do next.
pub(crate) fn explain(
    outcome: &Outcome,
    session: &SessionId,
    kept: Option<&str>,
) -> (String, String, Option<String>) {
    // What was kept is gone on with by its own name: by that of the session, the next prompt would not see it.
    let resume = match kept {
        Some(name) => format!("`windlass resume {name}`"),
        None => format!("`windlass resume {session}`"),
    };
    let (detail, advice) = match outcome {
        Outcome::Failed {
            reason,
            detail,
            provider_error,
        } => {
            let advice = match (reason, provider_error) {
                (_, Some(ProviderErrorKind::Authentication)) => {
                    Some("check the key; `windlass doctor` says which one is used".to_owned())
                }
                (_, Some(ProviderErrorKind::ModelNotFound)) => {
                    Some("`windlass models` lists the models that are known".to_owned())
                }
                (FailReason::Provider, _) => {
                    Some(format!("nothing is lost: {resume} goes on from here"))
                }
                _ => None,
            };
            (detail.clone(), advice)
        }
        Outcome::Refused { detail, .. } => (detail.clone(), None),
        Outcome::BudgetExceeded { limit } => {
            let text = format!("the next model call would have crossed the limit on {limit}");
            (
                text,
                Some(format!("raise the limit, then {resume} goes on from here")),
            )
        }
        Outcome::MaxSteps => (
            "the steps are used up".into(),
            Some(format!(
                "{resume} goes on with new steps; --max-steps raises the limit"
            )),
        ),
        Outcome::TimedOut => (
            "the time is up".into(),
            Some(format!("{resume} goes on; --max-seconds raises the limit")),
        ),
        _ => (String::new(), None),
    };
    let word = match outcome {
        Outcome::Failed { reason, .. } => {
            let reason = serde_json::to_value(reason)
                .ok()
                .and_then(|v| v.as_str().map(str::to_owned));
            format!("failed ({})", reason.unwrap_or_default())
        }
        other => other.word().replace('_', " "),
    };
    (word, detail, advice)
}

fn mark(change: &Change) -> char {
    match change {
        Change::Created => 'A',
        Change::Modified => 'M',
        Change::Deleted => 'D',
        Change::MovedFrom(_) => 'R',
    }
}

fn seconds(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|line| format!("  {line}\n"))
        .collect::<String>()
        .trim_end()
        .to_owned()
}

/// The last lines of a text: of a failing command the end says why.
fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    if all.len() <= lines {
        return all.join("\n");
    }
    let kept = &all[all.len() - (lines - 1).min(all.len())..];
    format!("{}\n…\n{}", all[0], kept.join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(name: &str, args: Value, shown: &str) {
        let call = ToolCall {
            id: CallId("1".to_owned()),
            name: name.to_owned(),
            args,
            malformed: None,
        };
        assert_eq!(describe(&call), shown);
    }

    #[test]
    fn a_call_is_told_by_what_it_is_about() {
        check(
            "bash",
            json!({ "command": "ls\n-l", "path": "a" }),
            "bash ls",
        );
        check(
            "Write",
            json!({ "file_path": "a.rs", "content": "x" }),
            "Write a.rs",
        );
        check(
            "apply_patch",
            json!({ "changes": [{ "path": "a" }, { "path": "b" }] }),
            "apply_patch a, b",
        );
        check("edit", json!({ "changes": [] }), "edit {\"changes\":[]}");
        check("list", json!({}), "list");
    }
}
