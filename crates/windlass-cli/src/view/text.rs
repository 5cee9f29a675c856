//! The view for people: the answer on standard output, the progress on standard error.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::IsTerminal;

use windlass::core::event::{DeltaOf, Event, EventKind};
use windlass::core::id::{CallId, SessionId};
use windlass::core::message::{Role, ToolCall, ToolResult};
use windlass::core::outcome::{Outcome, RunSummary};
use windlass::core::workspace::{Change, FileChange};
use windlass::transcript::{LineBlock, Transcript, TranscriptLine, Visibility, first_line};

use super::markdown::{MarkdownRenderer, wrap};
use super::status_line::{StatusLine, columns};
use super::style::{Paint, Style};
use crate::args::OutputArgs;
use crate::out::{err, out, styled};
use crate::sanitize::{marked, message, one_line, plain};

/// Lines of one command after the first that are shown without `--verbose`.
const COMMAND_LINES: usize = 8;
/// Lines of one diff that are shown without `--verbose`.
const DIFF_LINES: usize = 60;
/// Lines of the result of a failed call that are shown without `--verbose`.
const FAILURE_LINES: usize = 12;
/// Lines of the output of a successful command.
const OUTPUT_LINES: usize = 5;
/// Lines of the result of a call that are shown with `--verbose`.
const RESULT_LINES: usize = 200;
/// Findings of one validator that are shown.
const MAX_FINDINGS: usize = 10;
/// Changed files that are listed at the end of a run.
const MAX_FILES: usize = 50;

pub(crate) struct TextView {
    session: SessionId,
    quiet: bool,
    verbose: bool,
    transcript: Transcript,
    paint: Paint,
    status: StatusLine,
    /// The width of standard error, if it is a terminal.
    columns: Option<usize>,
    /// Renders the answer as it streams, if standard output is a terminal.
    markdown: Option<MarkdownRenderer>,
    /// The part of the current answer that was streamed.
    streamed: String,
    /// The last answer, which is printed at the end if standard output is not a terminal.
    answer: String,
    /// The cursor is in the middle of a line of reasoning on standard error.
    mid_reasoning: bool,
    /// The calls that run a command.
    commands: HashSet<CallId>,
}

impl TextView {
    pub(crate) fn new(output: &OutputArgs, session: &SessionId, foreign: Option<&str>) -> Self {
        Self {
            session: session.clone(),
            quiet: output.quiet,
            verbose: output.verbose,
            transcript: Transcript::of_agent(foreign),
            paint: Paint::for_stderr(),
            status: StatusLine::new(output.quiet),
            columns: std::io::stderr().is_terminal().then(columns),
            // With `--quiet`, the answer is printed at the end.
            markdown: (std::io::stdout().is_terminal() && !output.quiet)
                .then(|| MarkdownRenderer::new(Paint::for_stdout(), columns())),
            streamed: String::new(),
            answer: String::new(),
            mid_reasoning: false,
            commands: HashSet::new(),
        }
    }

    pub(crate) fn wants_live(&self) -> bool {
        self.markdown.is_some() || self.status.enabled()
    }

    pub(crate) fn ticks(&self) -> bool {
        self.status.enabled()
    }

    pub(crate) fn tick(&mut self) {
        if !self.mid_reasoning {
            self.status.draw();
        }
    }

    pub(crate) fn clear_status(&mut self) {
        self.status.clear();
        self.finish_line();
    }

    pub(crate) fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Delta { of, text } => return self.delta(of, text),
            EventKind::CallProgress { text, .. } => {
                let line = text.trim_end().lines().next_back().unwrap_or_default();
                self.status.activity = first_line(line, 120);
                return;
            }
            EventKind::CommandStarted { call, .. } => drop(self.commands.insert(call.clone())),
            EventKind::RunStarted { .. } => {
                self.answer.clear();
                self.streamed.clear();
                self.status.ended = false;
            }
            EventKind::Spent { total, .. } => {
                self.status.steps = total.steps;
                let usage = &total.usage;
                self.status.tokens = usage.total_input().saturating_add(usage.output);
                self.status.cost_micros = total.cost_micros;
            }
            _ => {}
        }
        let line = self.transcript.line(event);
        match &event.kind {
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
                self.said(&message.text());
            }
            EventKind::RunFinished(summary) => self.run_finished(&line, summary),
            EventKind::CallFinished { result, .. } => {
                self.show(&line);
                if self.commands.remove(&result.id) && result.error.is_none() && !self.verbose {
                    self.verbatim(Style::Dim, &indent(&tail(&result.text, OUTPUT_LINES)));
                }
            }
            _ => self.show(&line),
        }
        match &event.kind {
            EventKind::RunStarted { .. } => {
                "starting".clone_into(&mut self.status.activity);
                self.status.calls_model = true;
            }
            EventKind::IterationStarted { .. } | EventKind::CallFinished { .. } => {
                "thinking".clone_into(&mut self.status.activity);
                self.status.calls_model = true;
            }
            EventKind::IterationFinished { .. } => self.status.calls_model = false,
            EventKind::CallStarted { call, .. } => {
                self.status.activity = line.title.trim_start_matches("› ").to_owned();
                self.status.calls_model = false;
                self.more_of_command(call);
            }
            EventKind::ValidationStarted { .. } => {
                self.status.activity = line.title.trim_start_matches("› ").to_owned();
                self.status.calls_model = false;
            }
            _ => {}
        }
    }

    pub(crate) fn end(&mut self) {
        self.clear_status();
        if self.markdown.is_none() && !self.answer.is_empty() {
            let answer = self.answer.trim_end();
            match std::io::stdout().is_terminal() {
                true => {
                    let mut markdown = MarkdownRenderer::new(Paint::for_stdout(), columns());
                    styled(&(markdown.push(answer) + &markdown.finish()));
                }
                false => out(&format!("{}\n", plain(answer))),
            }
        }
        self.answer.clear();
    }

    fn delta(&mut self, of: &DeltaOf, text: &str) {
        match (of, &mut self.markdown) {
            (DeltaOf::Text, Some(markdown)) => {
                self.streamed.push_str(text);
                let shown = markdown.push(text);
                self.status.activity = last_words(markdown.unfinished());
                self.answer_lines(&shown);
            }
            (DeltaOf::Reasoning, _) if self.verbose => {
                self.status.clear();
                self.mid_reasoning = !text.ends_with('\n');
                err(&self.paint.on(Style::Dim, &plain(text)));
            }
            _ => "thinking".clone_into(&mut self.status.activity),
        }
    }

    fn said(&mut self, text: &str) {
        let streamed = std::mem::take(&mut self.streamed);
        let has_words = !text.trim().is_empty();
        match &mut self.markdown {
            Some(markdown) if has_words => {
                let shown = match text.strip_prefix(streamed.as_str()) {
                    Some(rest) => markdown.push(rest) + &markdown.finish(),
                    // A retry gave another answer than the one that was streamed: print it completely.
                    None => {
                        let shown = markdown.finish();
                        format!("{shown}\n{}{}", markdown.push(text), markdown.finish())
                    }
                };
                self.answer_lines(&shown);
            }
            None if has_words && self.verbose => self.note(Style::Dim, text),
            _ => {}
        }
        self.finish_line();
        if has_words {
            text.clone_into(&mut self.answer);
        }
    }

    /// Prints the structured output, unless the answer in the conversation is the same JSON. Agents with a tool for
    /// structured output do not repeat it as text.
    fn structured_output(&mut self, output: &serde_json::Value) {
        if serde_json::from_str::<serde_json::Value>(&self.answer).is_ok_and(|said| said == *output)
        {
            return;
        }
        self.clear_status();
        self.answer = output.to_string();
        if self.markdown.is_some() {
            out(&format!("{}\n", plain(&self.answer)));
        }
    }

    /// Prints the lines of a command after the first, which is the title of the call.
    fn more_of_command(&mut self, call: &ToolCall) {
        let command = call
            .args
            .get("command")
            .and_then(|command| command.as_str());
        let lines: Vec<&str> = command.unwrap_or_default().trim().lines().skip(1).collect();
        let limit = if self.verbose {
            usize::MAX
        } else {
            COMMAND_LINES
        };
        for line in lines.iter().take(limit) {
            self.note(Style::Dim, &format!("    {}", marked(line)));
        }
        if lines.len() > limit {
            let more = lines.len() - limit;
            self.note(
                Style::Dim,
                &format!("    … {more} more lines (-v shows all)"),
            );
        }
    }

    fn run_finished(&mut self, line: &TranscriptLine<'_>, summary: &RunSummary) {
        self.status.ended = true;
        if let Some(output) = &summary.output {
            self.structured_output(output);
        }
        self.clear_status();
        if self.quiet && summary.outcome == Outcome::Completed {
            return;
        }
        let (word, rest) = line.title.split_once(" · ").unwrap_or((&line.title, ""));
        let word = self.paint.on(line.severity.into(), word);
        err(&format!("{word} · {rest}\n"));
        err(&format!("  session {}\n", self.session));
        if let Some(name) = summary.transaction.as_ref().filter(|_| self.quiet) {
            // `--quiet` hides the other messages, but the user needs the name of the kept run.
            err(&format!("  kept as {name}\n"));
        }
        let mut files = 0;
        for block in &line.body {
            match block {
                LineBlock::Note(_, note) => {
                    for line in plain(note).lines() {
                        err(&format!("{}\n", self.wrapped(&format!("  {line}"))));
                    }
                }
                LineBlock::File(change) => {
                    files += 1;
                    if files <= MAX_FILES {
                        let (mark, path) = (mark(&change.change), one_line(&change.path));
                        let counts = match change.line_counts() {
                            counts if counts.is_empty() => counts,
                            counts => format!(" ({counts})"),
                        };
                        err(&format!("  {mark} {path}{counts}\n"));
                    } else if files == MAX_FILES + 1 {
                        err(&format!(
                            "  … and {} more\n",
                            summary.files.len() - MAX_FILES
                        ));
                    }
                }
                LineBlock::Hint(hint) => {
                    err(&format!(
                        "{}\n",
                        self.wrapped(&format!("hint: {}", plain(hint)))
                    ));
                }
                LineBlock::Detail(detail) if self.verbose => self.note(Style::Dim, detail),
                _ => {}
            }
        }
    }

    /// Prints a line of the transcript and its details.
    fn show(&mut self, line: &TranscriptLine<'_>) {
        let wanted = match self.verbose {
            true => Visibility::Record,
            false => Visibility::Live,
        };
        if self.quiet || line.visibility < wanted {
            return;
        }
        let style = match line.body.first() {
            Some(LineBlock::Call(_)) => Style::Accent,
            Some(LineBlock::File(_)) => Style::Bold,
            // A denied call.
            Some(LineBlock::Note(..)) if line.title.starts_with('›') => Style::Accent,
            _ => line.severity.into(),
        };
        let indent = if line.call.is_some() { "  " } else { "" };
        let words = line
            .words()
            .map_or(String::new(), |words| format!(": {words}"));
        self.note(style, &format!("{indent}{}{words}", message(&line.title)));
        let notes = |block: &&LineBlock<'_>| matches!(block, LineBlock::Note(..));
        let more = line
            .body
            .iter()
            .filter(notes)
            .count()
            .saturating_sub(MAX_FINDINGS);
        let mut left = MAX_FINDINGS;
        for block in &line.body {
            match block {
                LineBlock::Note(severity, note) if left > 0 => {
                    left -= 1;
                    self.note((*severity).into(), &format!("  {}", message(note)));
                }
                LineBlock::Detail(detail) if self.verbose => {
                    self.note(Style::Dim, &format!("  {}", message(detail)));
                }
                LineBlock::Result(result) => self.result(result),
                LineBlock::File(change) => self.diff(change),
                _ => {}
            }
        }
        if more > 0 {
            self.note(Style::Dim, &format!("  … and {more} more"));
        }
    }

    fn result(&mut self, result: &ToolResult) {
        match (result.error, self.verbose) {
            (Some(_), verbose) => {
                let limit = if verbose { usize::MAX } else { FAILURE_LINES };
                self.verbatim(Style::Removed, &indent(&tail(&result.text, limit)));
            }
            (None, true) => self.verbatim(Style::Dim, &indent(&tail(&result.text, RESULT_LINES))),
            (None, false) => {}
        }
    }

    fn diff(&mut self, change: &FileChange) {
        let Some(diff) = &change.diff else { return };
        let limit = if self.verbose { usize::MAX } else { DIFF_LINES };
        let lines: Vec<&str> = diff
            .lines()
            .filter(|line| !line.starts_with("---") && !line.starts_with("+++"))
            .collect();
        for line in lines.iter().take(limit) {
            let style = match line.bytes().next() {
                Some(b'+') => Style::Added,
                Some(b'-') => Style::Removed,
                Some(b'@') => Style::Accent,
                _ => Style::Dim,
            };
            // Make invisible characters of the file visible.
            self.verbatim(style, &format!("  {}", marked(line)));
        }
        if lines.len() > limit {
            let more = lines.len() - limit;
            self.note(Style::Dim, &format!("  … {more} more lines (-v shows all)"));
        }
    }

    /// Prints lines to standard error, wrapped, after clearing the status line.
    fn note(&mut self, style: Style, text: &str) {
        let lines = plain(text);
        let lines: Vec<_> = lines.lines().map(|line| self.wrapped(line)).collect();
        self.verbatim(style, &lines.join("\n"));
    }

    /// Prints lines to standard error without wrapping, for diffs and output.
    fn verbatim(&mut self, style: Style, text: &str) {
        if self.quiet {
            return;
        }
        self.status.clear();
        self.finish_line();
        for line in plain(text).lines() {
            err(&format!("{}\n", self.paint.on(style, line)));
        }
    }

    /// Wraps a line to the width of the terminal; output to a pipe is not wrapped.
    fn wrapped<'a>(&self, line: &'a str) -> Cow<'a, str> {
        match self.columns {
            Some(columns) => wrap(line, columns).into(),
            None => line.into(),
        }
    }

    /// Prints lines of the answer to standard output.
    fn answer_lines(&mut self, lines: &str) {
        if lines.is_empty() {
            return;
        }
        self.status.clear();
        self.finish_line();
        styled(lines);
    }

    fn finish_line(&mut self) {
        if std::mem::take(&mut self.mid_reasoning) {
            err("\n");
        }
    }
}

fn mark(change: &Change) -> char {
    match change {
        Change::Created => 'A',
        Change::Modified => 'M',
        Change::Deleted => 'D',
        Change::MovedFrom(_) => 'R',
    }
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|line| format!("  {line}\n"))
        .collect::<String>()
        .trim_end()
        .to_owned()
}

/// The end of an incomplete line, for the status line.
fn last_words(line: &str) -> String {
    const SHOWN: usize = 60;
    let count = line.chars().count();
    match count {
        0 => "writing".to_owned(),
        1..=SHOWN => line.to_owned(),
        _ => format!("…{}", line.chars().skip(count - SHOWN).collect::<String>()),
    }
}

/// Shortens a text to its first line and its last lines, because commands print the reason for a failure last.
fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    if all.len() <= lines {
        return all.join("\n");
    }
    let kept = &all[all.len() - (lines - 1).min(all.len())..];
    format!("{}\n…\n{}", all[0], kept.join("\n"))
}
