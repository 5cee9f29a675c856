//! The end of a run: what landed, the cost, and the next step.

use windlass::core::event::Event;
use windlass::core::outcome::{Outcome, RunSummary};
use windlass::core::transaction::Landed;
use windlass::core::workspace::{Change, FileChange};
use windlass::transcript::{counted, explain_outcome, seconds};
use windlass_text::{StyledLine, TextStyle, Tone, align, sanitize, truncate};

/// Files that are listed.
const MAX_FILES: usize = 20;
/// The widest line with right-aligned counts.
const MAX_ALIGNED: usize = 100;

/// The facts of a landing that the end of the run shows.
pub(super) struct LandedFiles {
    count: usize,
    commit: Option<String>,
    patch: Option<String>,
    executes: Vec<String>,
    unfinished: Option<String>,
}

impl LandedFiles {
    pub(super) fn of(landed: &Landed) -> Self {
        Self {
            count: landed.files.len(),
            commit: landed.commit.clone(),
            patch: landed.patch.clone(),
            executes: landed.executes.clone(),
            unfinished: landed.unfinished.clone(),
        }
    }

    fn title(&self) -> String {
        match (&self.patch, &self.commit) {
            (Some(patch), _) => format!("Wrote the patch {patch}"),
            (None, Some(commit)) => {
                let short: String = commit.chars().take(10).collect();
                format!("Landed {} in commit {short}", counted(self.count, "file"))
            }
            (None, None) => format!("Landed {}", counted(self.count, "file")),
        }
    }
}

/// Money for people: cents, and more digits only below a cent.
pub(crate) fn money(micros: u64) -> String {
    match micros {
        0 => "$0".to_owned(),
        1..10_000 => format!("${:.4}", micros as f64 / 1e6),
        _ => format!("${:.2}", micros as f64 / 1e6),
    }
}

/// The lines of the end of a run.
pub(super) fn lines(
    event: &Event,
    summary: &RunSummary,
    landed: Option<LandedFiles>,
    columns: usize,
) -> Vec<StyledLine> {
    let (word, detail, hint) = explain_outcome(
        &summary.outcome,
        &event.session,
        summary.transaction.as_deref(),
    );
    let completed = matches!(
        summary.outcome,
        Outcome::Completed | Outcome::CompletedWithLimitExceeded { .. }
    );
    let (title, tone) = match (&landed, completed) {
        (Some(landed), _) => (landed.title(), Tone::Ok),
        (None, true) if summary.files.is_empty() => ("Done".to_owned(), Tone::Ok),
        (None, true) => {
            let files = counted(summary.files.len(), "file");
            (format!("Changed {files}"), Tone::Ok)
        }
        (None, false) => (capitalized(&word), Tone::Bad),
    };
    let cost = match summary.totals.unpriced {
        true => "price unknown".to_owned(),
        false => money(summary.totals.cost_micros),
    };
    let mut facts = format!(" · {cost} · {}", seconds(summary.ms));
    if completed && summary.files.is_empty() {
        facts = format!(" · no files changed{facts}");
    }
    if landed.is_some() && !completed {
        facts = format!(" · {word}{facts}");
    }
    let mut line = StyledLine::of(format!(" {title}"), TextStyle::from(tone).bold())
        .with(sanitize::one_line(&facts), Tone::Muted)
        .with_indent(3);
    let in_tree = match &landed {
        Some(landed) => landed.patch.is_none(),
        None => summary.transaction.is_none(),
    };
    if in_tree && !summary.files.is_empty() {
        line = line.with(" · undo with /undo", Tone::Muted);
    }
    let mut lines = vec![line];
    if !detail.is_empty() {
        let detail = sanitize::one_line(&detail).into_owned();
        lines.push(StyledLine::of(format!("   {detail}"), Tone::Text).with_indent(3));
    }
    lines.extend(
        summary
            .files
            .iter()
            .take(MAX_FILES)
            .map(|change| file_line(change, columns)),
    );
    if summary.files.len() > MAX_FILES {
        let more = counted(summary.files.len() - MAX_FILES, "more file");
        lines.push(StyledLine::of(format!("   … {more}"), Tone::Muted));
    }
    if let Some(landed) = &landed {
        lines.extend(warnings(landed));
    }
    if !summary.judge_changed.is_empty() {
        let judges = summary.judge_changed.join(", ");
        lines.push(warning(&format!("tests or checks changed: {judges}")));
    }
    if let Some(name) = &summary.transaction {
        lines.push(StyledLine::of(
            format!(
                "   kept as {name}: /diff shows it, /land checks and lands it, /discard deletes it"
            ),
            Tone::Muted,
        ));
    }
    if let Some(hint) = hint.filter(|_| summary.transaction.is_none()) {
        let hint = sanitize::one_line(&hint).into_owned();
        lines.push(StyledLine::of(format!("   {hint}"), Tone::Muted).with_indent(3));
    }
    lines
}

fn warnings(landed: &LandedFiles) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    if !landed.executes.is_empty() {
        let files = landed.executes.join(", ");
        lines.push(warning(&format!("will run on your machine later: {files}")));
    }
    if let Some(unfinished) = &landed.unfinished {
        lines.push(warning(unfinished));
    }
    lines
}

fn warning(text: &str) -> StyledLine {
    StyledLine::of("   ⚠ ", Tone::Warn)
        .with(sanitize::one_line(text), Tone::Text)
        .with_indent(5)
}

fn file_line(change: &FileChange, columns: usize) -> StyledLine {
    let (mark, tone) = match &change.change {
        Change::Created => ("A", Tone::Added),
        Change::Modified => ("M", Tone::Accent),
        Change::Deleted => ("D", Tone::Removed),
        Change::MovedFrom(_) => ("R", Tone::Accent),
    };
    let columns = columns.min(MAX_ALIGNED);
    let left = StyledLine::of(format!("   {mark} "), tone)
        .with(sanitize::one_line(&change.path), Tone::Text)
        .with_indent(5);
    let (Some(added), Some(removed)) = (change.added, change.removed) else {
        return left;
    };
    let right = StyledLine::of(format!("  +{added}"), Tone::Added)
        .with(format!(" −{removed}"), Tone::Removed);
    let room = columns.saturating_sub(right.width()).max(1);
    align(&truncate(&left, room), &right, columns)
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
