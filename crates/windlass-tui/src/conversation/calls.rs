//! Calls: one line each, with a few lines of output or a diff below it.

use std::collections::VecDeque;

use windlass::core::id::CallId;
use windlass::core::message::{ToolCall, ToolResult};
use windlass::core::workspace::{Change, FileChange, ProcessEnd};
use windlass::transcript::{CallTitle, counted, first_line, seconds};
use windlass_text::ansi::AnsiText;
use windlass_text::diff::{DiffOptions, unified};
use windlass_text::{StyledLine, TextStyle, Tone, align, sanitize, truncate};

/// Lines of live output that a running command shows.
const LIVE_LINES: usize = 5;
/// Lines of output of a command that succeeded, and of one that failed.
const OUTPUT_LINES: usize = 3;
const FAILURE_LINES: usize = 12;
/// Lines of the diff of one change.
const DIFF_LINES: usize = 24;
/// The widest line with a right-aligned note, so that a narrower window wraps few lines.
const MAX_ALIGNED: usize = 100;
/// Running calls that are shown.
const MAX_OPEN: usize = 6;

/// A call that has not ended.
pub(super) struct OpenCall {
    id: CallId,
    title: CallTitle,
    started_ms: i64,
    output: AnsiText,
    last_output: VecDeque<StyledLine>,
    end: Option<ProcessEnd>,
    counts: (u64, u64),
    changes: Vec<StyledLine>,
}

impl OpenCall {
    /// Adds a change that the call made.
    pub(super) fn add_change(&mut self, change: &FileChange, mut lines: Vec<StyledLine>) {
        self.counts.0 += u64::from(change.added.unwrap_or(0));
        self.counts.1 += u64::from(change.removed.unwrap_or(0));
        // The title of the call names the file already.
        if self.title.target == change.path && !lines.is_empty() {
            lines.remove(0);
        }
        self.changes.extend(lines);
    }

    fn name(&self) -> String {
        format!("{} {}", self.title.verb, self.title.target)
            .trim_end()
            .to_owned()
    }
}

/// The calls that have not ended, in the order of their starts.
#[derive(Default)]
pub(super) struct OpenCalls {
    calls: Vec<OpenCall>,
}

impl OpenCalls {
    /// Adds a call. Returns its title.
    pub(super) fn start(&mut self, call: &ToolCall, now_ms: i64, workspace: &str) -> String {
        let open = OpenCall {
            id: call.id.clone(),
            title: CallTitle::of(call, workspace),
            started_ms: now_ms,
            output: AnsiText::default(),
            last_output: VecDeque::new(),
            end: None,
            counts: (0, 0),
            changes: Vec::new(),
        };
        let name = open.name();
        self.calls.push(open);
        name
    }

    pub(super) fn get_mut(&mut self, id: &CallId) -> Option<&mut OpenCall> {
        self.calls.iter_mut().find(|call| call.id == *id)
    }

    /// Takes output of a running call.
    pub(super) fn progress(&mut self, id: &CallId, text: &str) {
        let Some(call) = self.get_mut(id) else { return };
        for line in call.output.push(text) {
            if call.last_output.len() == LIVE_LINES {
                call.last_output.pop_front();
            }
            call.last_output.push_back(line);
        }
    }

    pub(super) fn command_ended(&mut self, id: &CallId, end: &ProcessEnd) {
        if let Some(call) = self.get_mut(id) {
            call.end = Some(*end);
        }
    }

    /// The title of the newest call.
    pub(super) fn newest(&self) -> Option<String> {
        self.calls.last().map(OpenCall::name)
    }

    pub(super) fn clear(&mut self) {
        self.calls.clear();
    }

    /// The running calls with their live output.
    pub(super) fn lines(&self, now_ms: i64, columns: usize) -> Vec<StyledLine> {
        let mut lines = Vec::new();
        for call in self.calls.iter().take(MAX_OPEN) {
            let took = now_ms.saturating_sub(call.started_ms).max(0) / 1_000;
            let note = match took {
                0 => String::new(),
                took => format!("{took} s"),
            };
            lines.push(title_line("○", Tone::Accent, &call.title, &note, columns));
            for line in &call.last_output {
                let line = StyledLine::of("     ", Tone::Muted).with(line.plain(), Tone::Muted);
                lines.push(truncate(&line, columns));
            }
        }
        if self.calls.len() > MAX_OPEN {
            let more = counted(self.calls.len() - MAX_OPEN, "more call");
            lines.push(StyledLine::of(format!(" … {more}"), Tone::Muted));
        }
        lines
    }

    /// Ends a call. Returns its lines.
    pub(super) fn finish(
        &mut self,
        result: &ToolResult,
        ms: u64,
        columns: usize,
    ) -> Vec<StyledLine> {
        let at = self.calls.iter().position(|call| call.id == result.id);
        let Some(call) = at.map(|at| self.calls.remove(at)) else {
            return never_started(result, columns);
        };
        let failed = result.error.is_some();
        let exit = match &call.end {
            Some(ProcessEnd::Exited { code }) if *code != 0 => Some(format!("exit {code}")),
            Some(ProcessEnd::Signalled { signal }) => Some(format!("signal {signal}")),
            Some(ProcessEnd::TimedOut) => Some("timed out".to_owned()),
            Some(ProcessEnd::Cancelled) => Some("cancelled".to_owned()),
            Some(ProcessEnd::Exited { .. }) | None => None,
        };
        let mut notes = Vec::new();
        if call.counts != (0, 0) {
            notes.push(format!("+{} −{}", call.counts.0, call.counts.1));
        }
        if call.title.verb == "Read" && !failed {
            notes.push(counted(result.text.lines().count(), "line"));
        }
        let bad = failed || exit.is_some();
        notes.extend(exit);
        if call.end.is_some() || ms >= 1_000 {
            notes.push(seconds(ms));
        }
        let (mark, tone) = match bad {
            true => ("✗", Tone::Bad),
            false => ("●", Tone::Ok),
        };
        let note = notes.join(" · ");
        let mut lines = vec![title_line(mark, tone, &call.title, &note, columns)];
        lines.extend(call.changes);
        let is_command = call.end.is_some() || call.title.verb == "Run";
        let limit = match (bad, is_command) {
            (true, _) => FAILURE_LINES,
            (false, true) => OUTPUT_LINES,
            (false, false) => 0,
        };
        lines.extend(output_lines(&result.text, limit));
        lines
    }
}

/// A call that was denied or that nothing announced.
fn never_started(result: &ToolResult, columns: usize) -> Vec<StyledLine> {
    if result.error.is_none() {
        return Vec::new();
    }
    let title = CallTitle {
        verb: result.name.clone(),
        target: first_line(&result.text, 200),
    };
    vec![title_line("✗", Tone::Bad, &title, "", columns)]
}

/// A mark, a verb in bold, its target, and a note at the right.
fn title_line(mark: &str, tone: Tone, title: &CallTitle, note: &str, columns: usize) -> StyledLine {
    let columns = columns.min(MAX_ALIGNED);
    let verb = sanitize::one_line(&title.verb);
    let target = sanitize::one_line(&title.target);
    let left = StyledLine::of(format!(" {mark} "), tone)
        .with(format!("{verb} "), TextStyle::from(Tone::Text).bold())
        .with(target, Tone::Text)
        .with_indent(3);
    if note.is_empty() {
        return truncate(&left, columns);
    }
    let right = StyledLine::of(format!("  {note}"), Tone::Muted);
    let room = columns.saturating_sub(right.width()).max(1);
    align(&truncate(&left, room), &right, columns)
}

/// The last lines of the output of a call, without colours, because the state of the call is what matters.
fn output_lines(text: &str, limit: usize) -> Vec<StyledLine> {
    if limit == 0 {
        return Vec::new();
    }
    let text = sanitize::plain(text.trim_end());
    let all: Vec<&str> = text.lines().collect();
    let skipped = all.len().saturating_sub(limit);
    let mut lines = Vec::new();
    if skipped > 0 {
        lines.push(StyledLine::of(
            format!("     … {}", counted(skipped, "line")),
            Tone::Muted,
        ));
    }
    let rest = all.iter().skip(skipped);
    lines.extend(
        rest.map(|line| StyledLine::of(format!("     {line}"), Tone::Muted).with_indent(5)),
    );
    lines
}

/// The title and the diff of a changed file.
pub(super) fn change_lines(change: &FileChange, columns: usize) -> Vec<StyledLine> {
    let verb = match &change.change {
        Change::Created => "Created",
        Change::Modified => "Changed",
        Change::Deleted => "Deleted",
        Change::MovedFrom(_) => "Moved",
    };
    let target = match &change.change {
        Change::MovedFrom(from) => format!("{from} → {}", change.path),
        _ => change.path.clone(),
    };
    let title = CallTitle {
        verb: verb.to_owned(),
        target,
    };
    let note = match (change.added, change.removed) {
        (Some(added), Some(removed)) => format!("+{added} −{removed}"),
        _ => String::new(),
    };
    let mut lines = vec![title_line("·", Tone::Accent, &title, &note, columns)];
    if let Some(diff) = &change.diff {
        let options = DiffOptions {
            headers: false,
            ..DiffOptions::default()
        };
        let diff = unified(diff, &options);
        let more = diff.len().saturating_sub(DIFF_LINES);
        lines.extend(diff.into_iter().take(DIFF_LINES));
        if more > 0 {
            lines.push(StyledLine::of(
                format!("     … {}", counted(more, "more line")),
                Tone::Muted,
            ));
        }
    }
    lines
}
