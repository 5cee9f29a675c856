//! The board of checks: the state of each validator in the current attempt.

use windlass::core::run::Judged;
use windlass::core::validator::{Judgement, Report};
use windlass::transcript::first_line;
use windlass_text::{StyledLine, Tone, sanitize};

/// Findings that the board shows.
const MAX_FINDINGS: usize = 8;
/// Characters of the name of a check.
const NAME_CHARS: usize = 48;

/// The state of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    Running,
    Passed,
    Failed,
    /// It failed and does not prevent the landing.
    Advisory,
    Unverifiable,
}

impl CheckState {
    /// The mark, which carries the state without colour.
    #[must_use]
    pub fn mark(self) -> &'static str {
        match self {
            Self::Running => "…",
            Self::Passed => "✓",
            Self::Failed => "✗",
            Self::Advisory => "⚠",
            Self::Unverifiable => "?",
        }
    }

    /// The colour of the mark.
    #[must_use]
    pub fn tone(self) -> Tone {
        match self {
            Self::Running => Tone::Muted,
            Self::Passed => Tone::Ok,
            Self::Failed => Tone::Bad,
            Self::Advisory | Self::Unverifiable => Tone::Warn,
        }
    }
}

/// The checks of the current attempt.
#[derive(Debug, Clone, Default)]
pub struct ChecksBoard {
    pub attempt: u32,
    pub rows: Vec<(String, CheckState)>,
    findings: Vec<String>,
}

impl ChecksBoard {
    pub(super) fn restart(&mut self, attempt: u32) {
        *self = Self {
            attempt,
            ..Self::default()
        };
    }

    pub(super) fn start(&mut self, validator: &str) {
        self.set(validator, CheckState::Running);
    }

    pub(super) fn end(&mut self, validator: &str, blocking: bool, report: &Report) {
        let state = match report.judgement {
            Judgement::Pass => CheckState::Passed,
            Judgement::Fail if blocking => CheckState::Failed,
            Judgement::Fail => CheckState::Advisory,
            Judgement::Unverifiable => CheckState::Unverifiable,
        };
        self.set(validator, state);
        if state != CheckState::Passed {
            self.findings
                .extend(report.findings.iter().map(ToString::to_string));
        }
    }

    fn set(&mut self, validator: &str, state: CheckState) {
        match self.rows.iter_mut().find(|(name, _)| name == validator) {
            Some(row) => row.1 = state,
            None => self.rows.push((validator.to_owned(), state)),
        }
    }

    /// The board in one line: a mark and a name for each check.
    #[must_use]
    pub fn line(&self) -> StyledLine {
        let title = format!(" Attempt {}  ", self.attempt.max(1));
        let mut line = StyledLine::of(title, Tone::Text).with_indent(3);
        for (name, state) in &self.rows {
            let name = sanitize::one_line(name);
            line = line
                .with(format!(" {} ", state.mark()), state.tone())
                .with(format!("{}  ", first_line(&name, NAME_CHARS)), Tone::Text);
        }
        line
    }

    /// The board after the attempt was judged, with the findings.
    pub(super) fn lines(&mut self, result: &Judged) -> Vec<StyledLine> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![self.line()];
        let findings = std::mem::take(&mut self.findings);
        for finding in findings.iter().take(MAX_FINDINGS) {
            let text = sanitize::one_line(finding);
            let text = first_line(&text, 400);
            lines.push(StyledLine::of(format!("   {text}"), Tone::Muted).with_indent(3));
        }
        if findings.len() > MAX_FINDINGS {
            let more = findings.len() - MAX_FINDINGS;
            lines.push(StyledLine::of(
                format!("   … {more} more findings"),
                Tone::Muted,
            ));
        }
        match result {
            Judged::Blocked { .. } => lines.push(StyledLine::of(
                "   the failures go back to the agent",
                Tone::Muted,
            )),
            Judged::Stale { .. } => lines.push(StyledLine::of(
                "   the tree changed meanwhile, so the checks run again",
                Tone::Warn,
            )),
            Judged::Passed { .. } | Judged::NothingChanged => {}
        }
        lines
    }
}
