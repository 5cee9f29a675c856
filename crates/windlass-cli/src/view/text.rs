//! The view for people: the answer on standard output, the progress on standard error.

use std::collections::HashSet;
use std::io::IsTerminal;

use windlass::core::event::{DeltaOf, Event, EventKind};
use windlass::core::id::{CallId, SessionId};
use windlass::core::message::{Role, ToolCall, ToolResult};
use windlass::core::outcome::{Outcome, RunSummary};
use windlass::core::workspace::{Change, FileChange};
use windlass::transcript::{LineBlock, Transcript, TranscriptLine, Visibility, first_line};
use windlass_text::diff::{DiffOptions, unified};
use windlass_text::markdown::{MarkdownOptions, MarkdownStream, READABLE_WIDTH, render};
use windlass_text::sanitize::{marked, message, one_line, plain};
use windlass_text::{ColorDepth, StyledLine, TextStyle, Tone, wrap, wrap_columns};

use super::status_line::{StatusLine, columns};
use super::style::{stderr_colors, style_of};
use crate::args::OutputArgs;
use crate::out::{err, err_lines, err_open_line, out, out_lines};

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
    status: StatusLine,
    /// The width of standard error, if it is a terminal.
    columns: Option<usize>,
    /// Renders the answer as it streams, if standard output is a terminal.
    markdown: Option<MarkdownStream>,
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
            status: StatusLine::new(output.quiet),
            columns: std::io::stderr().is_terminal().then(columns),
            // With `--quiet`, the answer is printed at the end.
            markdown: (std::io::stdout().is_terminal() && !output.quiet)
                .then(|| MarkdownStream::new(markdown_options())),
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
                    self.verbatim(Tone::Muted, &indent(&tail(&result.text, OUTPUT_LINES)));
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
                true => out_lines(&render(answer, &markdown_options())),
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
                if self.status.enabled() {
                    let last = markdown.tail().pop().unwrap_or_default();
                    self.status.activity = last_words(&last.plain());
                }
                self.answer_lines(&shown);
            }
            (DeltaOf::Reasoning, _) if self.verbose => {
                self.status.clear();
                self.mid_reasoning = !text.ends_with('\n');
                let lines = text.split('\n');
                let lines: Vec<_> = lines
                    .map(|line| StyledLine::of(line, Tone::Muted))
                    .collect();
                err_open_line(&lines);
            }
            _ => "thinking".clone_into(&mut self.status.activity),
        }
    }

    fn said(&mut self, text: &str) {
        let streamed = std::mem::take(&mut self.streamed);
        let has_words = !text.trim().is_empty();
        match &mut self.markdown {
            Some(markdown) if has_words => {
                let mut shown = match text.strip_prefix(streamed.as_str()) {
                    Some(rest) => markdown.push(rest),
                    // A retry gave another answer than the one that was streamed: print it completely.
                    None => {
                        let mut shown = markdown.finish();
                        shown.push(StyledLine::default());
                        shown.extend(markdown.push(text));
                        shown
                    }
                };
                shown.extend(markdown.finish());
                self.answer_lines(&shown);
            }
            None if has_words && self.verbose => self.note(Tone::Muted, text),
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
            self.note(Tone::Muted, &format!("    {}", marked(line)));
        }
        if lines.len() > limit {
            let more = lines.len() - limit;
            self.note(
                Tone::Muted,
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
        err_lines(&[
            StyledLine::of(word, style_of(line.severity)).with(format!(" · {rest}"), Tone::Text)
        ]);
        err(&format!("  session {}\n", self.session));
        if let Some(name) = summary.transaction.as_ref().filter(|_| self.quiet) {
            // `--quiet` hides the other messages, but the user needs the name of the kept run.
            err(&format!("  kept as {name}\n"));
        }
        let mut files = 0;
        for block in &line.body {
            match block {
                LineBlock::Note(_, note) => {
                    for line in note.lines() {
                        err_lines(&self.wrapped(&format!("  {line}"), Tone::Text.into()));
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
                    for line in format!("hint: {hint}").lines() {
                        err_lines(&self.wrapped(line, Tone::Text.into()));
                    }
                }
                LineBlock::Detail(detail) if self.verbose => self.note(Tone::Muted, detail),
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
            Some(LineBlock::Call(_)) => Tone::Accent.into(),
            Some(LineBlock::File(_)) => Tone::Text.bold(),
            // A denied call.
            Some(LineBlock::Note(..)) if line.title.starts_with('›') => Tone::Accent.into(),
            _ => style_of(line.severity),
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
                    self.note(style_of(*severity), &format!("  {}", message(note)));
                }
                LineBlock::Detail(detail) if self.verbose => {
                    self.note(Tone::Muted, &format!("  {}", message(detail)));
                }
                LineBlock::Result(result) => self.result(result),
                LineBlock::File(change) => self.diff(change),
                _ => {}
            }
        }
        if more > 0 {
            self.note(Tone::Muted, &format!("  … and {more} more"));
        }
    }

    fn result(&mut self, result: &ToolResult) {
        match (result.error, self.verbose) {
            (Some(_), verbose) => {
                let limit = if verbose { usize::MAX } else { FAILURE_LINES };
                self.verbatim(Tone::Bad, &indent(&tail(&result.text, limit)));
            }
            (None, true) => self.verbatim(Tone::Muted, &indent(&tail(&result.text, RESULT_LINES))),
            (None, false) => {}
        }
    }

    fn diff(&mut self, change: &FileChange) {
        let Some(diff) = &change.diff else { return };
        let limit = if self.verbose { usize::MAX } else { DIFF_LINES };
        let options = DiffOptions {
            headers: false,
            syntax: stderr_colors() != ColorDepth::None,
            ..DiffOptions::default()
        };
        let rows = unified(diff, &options);
        let shown = rows.iter().take(limit);
        let shown: Vec<_> = match self.columns {
            Some(columns) => shown
                .flat_map(|row| wrap_columns(row, columns - 1))
                .collect(),
            None => shown.cloned().collect(),
        };
        self.print(&shown);
        if rows.len() > limit {
            let more = rows.len() - limit;
            self.note(
                Tone::Muted,
                &format!("  … {more} more lines (-v shows all)"),
            );
        }
    }

    /// Prints lines to standard error, wrapped.
    fn note(&mut self, style: impl Into<TextStyle>, text: &str) {
        let style = style.into();
        let rows = text.lines().flat_map(|line| self.wrapped(line, style));
        let rows: Vec<_> = rows.collect();
        self.print(&rows);
    }

    /// Prints lines to standard error without wrapping, for the output of commands.
    fn verbatim(&mut self, style: impl Into<TextStyle>, text: &str) {
        let style = style.into();
        let lines = text.lines().map(|line| StyledLine::of(line, style));
        let lines: Vec<_> = lines.collect();
        self.print(&lines);
    }

    /// Prints lines to standard error after clearing the status line.
    fn print(&mut self, lines: &[StyledLine]) {
        if !self.quiet {
            self.clear_status();
            err_lines(lines);
        }
    }

    /// Wraps a line to the width of the terminal; output to a pipe is not wrapped.
    fn wrapped(&self, line: &str, style: TextStyle) -> Vec<StyledLine> {
        let indent = line.len() - line.trim_start().len();
        let line = StyledLine::of(line, style).with_indent(indent + 2);
        match self.columns {
            // Some terminals wrap when the last column is written.
            Some(columns) => wrap(&line, columns - 1),
            None => vec![line],
        }
    }

    /// Prints lines of the answer to standard output.
    fn answer_lines(&mut self, lines: &[StyledLine]) {
        if !lines.is_empty() {
            self.clear_status();
            out_lines(lines);
        }
    }

    fn finish_line(&mut self) {
        if std::mem::take(&mut self.mid_reasoning) {
            err("\n");
        }
    }
}

/// The layout of an answer on a terminal.
fn markdown_options() -> MarkdownOptions {
    MarkdownOptions {
        // Code is not wrapped, so that it can be copied.
        wrap_code: false,
        ..MarkdownOptions::with_width((columns() - 1).min(READABLE_WIDTH))
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
