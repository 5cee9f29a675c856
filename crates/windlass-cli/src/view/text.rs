//! The view for people: the answer on standard output, what happens on standard error.

use std::io::IsTerminal;

use windlass::core::event::{DeltaOf, Event, EventKind};
use windlass::core::id::SessionId;
use windlass::core::message::{Role, ToolCall, ToolResult};
use windlass::core::outcome::{Outcome, RunSummary};
use windlass::core::workspace::{Change, FileChange};
use windlass::transcript::{LineBlock, Transcript, TranscriptLine, Visibility, first_line};

use super::progress::Progress;
use super::style::{Paint, Style};
use crate::args::OutputArgs;
use crate::out::{err, out};
use crate::safe::{marked, message, one_line, plain};

/// Lines of one diff that are shown without `--verbose`.
const COMMAND_LINES: usize = 8;
const DIFF_LINES: usize = 60;
/// Lines of a failed call's answer that are shown without `--verbose`.
const FAILURE_LINES: usize = 12;
/// Lines of a call's answer that are shown with `--verbose`.
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
    progress: Progress,
    /// Standard output is a terminal: the answer is shown as it comes.
    streaming: bool,
    /// What was streamed of the answer that is being written.
    streamed: String,
    /// The last answer, for a pipe.
    answer: String,
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
            transcript: Transcript::of_agent(foreign),
            paint: Paint::for_stderr(),
            progress: Progress::new(output.quiet),
            streaming: std::io::stdout().is_terminal(),
            streamed: String::new(),
            answer: String::new(),
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
            EventKind::Delta { of, text } => return self.delta(of, text),
            EventKind::CallProgress { text, .. } => {
                let line = text.trim_end().lines().next_back().unwrap_or_default();
                self.progress.doing = first_line(line, 120);
                return;
            }
            EventKind::RunStarted { .. } => {
                self.answer.clear();
                self.streamed.clear();
                self.progress.ended = false;
            }
            EventKind::Spent { total, .. } => {
                self.progress.steps = total.steps;
                let usage = &total.usage;
                self.progress.tokens = usage.total_input().saturating_add(usage.output);
                self.progress.cost_micros = total.cost_micros;
            }
            _ => {}
        }
        let line = self.transcript.line(event);
        match &event.kind {
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
                self.said(&message.text());
            }
            EventKind::RunFinished(summary) => self.run_finished(&line, summary),
            _ => self.show(&line),
        }
        match &event.kind {
            EventKind::RunStarted { .. } => {
                "starting".clone_into(&mut self.progress.doing);
                self.progress.asks_model = true;
            }
            EventKind::IterationStarted { .. } | EventKind::CallFinished { .. } => {
                "thinking".clone_into(&mut self.progress.doing);
                self.progress.asks_model = true;
            }
            EventKind::IterationFinished { .. } => self.progress.asks_model = false,
            EventKind::CallStarted { call, .. } => {
                self.progress.doing = line.title.trim_start_matches("› ").to_owned();
                self.progress.asks_model = false;
                self.more_of_command(call);
            }
            EventKind::ValidationStarted { .. } => {
                self.progress.doing = line.title.trim_start_matches("› ").to_owned();
                self.progress.asks_model = false;
            }
            _ => {}
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

    /// The lines of a command behind its first, which is its title.
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
        self.progress.ended = true;
        if let Some(output) = &summary.output {
            self.answered(output);
        }
        self.hush();
        if self.quiet && summary.outcome == Outcome::Completed {
            return;
        }
        let (word, rest) = line.title.split_once(" · ").unwrap_or((&line.title, ""));
        let word = self.paint.on(line.severity.into(), word);
        err(&format!("{word} · {rest} · session {}\n", self.session));
        if let Some(name) = summary.transaction.as_ref().filter(|_| self.quiet) {
            // With only the answer wanted, the user still has to know where the work is.
            err(&format!("  kept as {name}\n"));
        }
        let mut files = 0;
        for block in &line.body {
            match block {
                LineBlock::Note(_, note) => err(&format!("{}\n", indent(&plain(note)))),
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
                LineBlock::Hint(hint) => err(&format!("hint: {}\n", plain(hint))),
                LineBlock::Detail(detail) if self.verbose => self.note(Style::Dim, detail),
                _ => {}
            }
        }
    }

    /// A line of the transcript with everything below it.
    fn show(&mut self, line: &TranscriptLine<'_>) {
        let wanted = match self.verbose {
            true => Visibility::Record,
            false => Visibility::Live,
        };
        if self.quiet || line.visibility < wanted {
            return;
        }
        let style = match line.body.first() {
            Some(LineBlock::Call(_)) => Style::Place,
            Some(LineBlock::File(_)) => Style::Bold,
            // The call that was denied.
            Some(LineBlock::Note(..)) if line.title.starts_with('›') => Style::Place,
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
                self.note(Style::Removed, &indent(&tail(&result.text, limit)));
            }
            (None, true) => self.note(Style::Dim, &indent(&tail(&result.text, RESULT_LINES))),
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
                Some(b'@') => Style::Place,
                _ => Style::Dim,
            };
            // A file may hold invisible characters.
            self.note(style, &format!("  {}", marked(line)));
        }
        if lines.len() > limit {
            let more = lines.len() - limit;
            self.note(Style::Dim, &format!("  … {more} more lines (-v shows all)"));
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

/// The last lines of a text: of a failing command the end says why.
fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    if all.len() <= lines {
        return all.join("\n");
    }
    let kept = &all[all.len() - (lines - 1).min(all.len())..];
    format!("{}\n…\n{}", all[0], kept.join("\n"))
}
