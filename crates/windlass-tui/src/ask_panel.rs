//! The panel that shows an ask in place of the composer: the call taken apart, its effects, the diff, the rule, and the keys
//! that answer it.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use windlass::core::ask::{About, Answer, Approval, Ask, LandingAsk, Question};
use windlass::core::host_name;
use windlass::core::tool::Touch;
use windlass_text::diff::{DiffOptions, unified};
use windlass_text::sanitize::{marked_block, marked_line};
use windlass_text::{StyledLine, TextStyle, Tone, wrap_columns};

use crate::line_input::LineInput;

/// Effects and paths that are shown.
const MAX_EFFECTS: usize = 12;
/// Lines of a command, of arguments or of a diff.
const MAX_LINES: usize = 16;
/// Keys are ignored for this time after the panel appears or the user typed, so that no key that was meant for the composer
/// answers.
pub(crate) const GUARD_MS: i64 = 600;

/// The most rows of the parts of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PanelLimits {
    /// Lines of the command, the arguments or the diff.
    lines: usize,
    /// Effects of the call, or paths that would land.
    effects: usize,
}

impl PanelLimits {
    const MOST: Self = Self {
        lines: MAX_LINES,
        effects: MAX_EFFECTS,
    };
    const NONE: Self = Self {
        lines: usize::MAX,
        effects: usize::MAX,
    };

    /// The next smaller limits, so that the question and the keys stay on a small screen. The effects shrink first, then
    /// the command.
    fn smaller(self) -> Option<Self> {
        let Self { lines, effects } = self;
        match (lines, effects) {
            (0, 0) => None,
            (_, 3..) => Some(Self {
                lines,
                effects: effects - 1,
            }),
            (2.., _) => Some(Self {
                lines: lines - 1,
                effects,
            }),
            (_, 1..) => Some(Self {
                lines,
                effects: effects - 1,
            }),
            (_, 0) => Some(Self { lines: 0, effects }),
        }
    }
}

/// The effect of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AskOutcome {
    /// The panel used the key.
    Handled,
    /// The key belongs to the composer.
    Ignored,
    Answer(Answer),
    /// Answers this ask and all further ones that do not need a person for each call.
    AnswerAll,
    /// Shows the diff of the changes that would land.
    ShowDiff,
    /// Prints the whole question, of which the panel shows a part.
    ShowWhole,
}

/// The input that the panel waits for.
#[derive(Debug, Clone, PartialEq)]
enum PanelStage {
    Choose,
    /// The reason of a no.
    Reason(LineInput),
    /// The pattern of an "always".
    Pattern(LineInput),
    /// The answer to a question.
    Text(LineInput),
}

/// The panel of one ask.
pub(crate) struct AskPanel {
    pub ask: Ask,
    stage: PanelStage,
    /// The number of further asks that are open.
    pub others: usize,
    armed_at_ms: Option<i64>,
}

impl AskPanel {
    /// A panel that does not take keys yet.
    #[must_use]
    pub(crate) fn new(ask: Ask, others: usize) -> Self {
        let stage = match &ask.about {
            About::Question(_) => PanelStage::Text(LineInput::default()),
            _ => PanelStage::Choose,
        };
        Self {
            ask,
            stage,
            others,
            armed_at_ms: None,
        }
    }

    /// The panel was drawn: it takes keys after a pause.
    pub(crate) fn was_shown(&mut self, now_ms: i64) {
        if self.armed_at_ms.is_none() {
            self.armed_at_ms = Some(now_ms + GUARD_MS);
        }
    }

    /// The user typed something else: the pause begins again.
    pub(crate) fn delay(&mut self, now_ms: i64) {
        self.armed_at_ms = Some(now_ms + GUARD_MS);
    }

    /// Whether a key may answer now.
    #[must_use]
    pub(crate) fn is_armed(&self, now_ms: i64) -> bool {
        self.armed_at_ms.is_some_and(|at| now_ms >= at)
    }

    /// Applies a key. The caller passes keys only if the panel [is armed](Self::is_armed).
    pub(crate) fn key(&mut self, key: KeyEvent) -> AskOutcome {
        if key
            .modifiers
            .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
        {
            return AskOutcome::Ignored;
        }
        match &mut self.stage {
            PanelStage::Choose => self.choose(key.code),
            PanelStage::Reason(input) => match key.code {
                KeyCode::Enter => {
                    let note = input.text().trim().to_owned();
                    AskOutcome::Answer(Answer::No {
                        note: (!note.is_empty()).then_some(note),
                    })
                }
                KeyCode::Esc => self.back(),
                _ => handled(input.key(key)),
            },
            PanelStage::Pattern(input) => match key.code {
                KeyCode::Enter => {
                    let rule = input.text().trim().to_owned();
                    AskOutcome::Answer(Answer::Always {
                        rule: (Some(rule.as_str()) != self.offered()).then_some(rule),
                    })
                }
                KeyCode::Esc => self.back(),
                _ => handled(input.key(key)),
            },
            PanelStage::Text(input) => match key.code {
                KeyCode::Enter => answer_text(&self.ask, input.text()),
                KeyCode::Esc if input.text().is_empty() => {
                    AskOutcome::Answer(Answer::No { note: None })
                }
                _ => handled(input.key(key)),
            },
        }
    }

    fn back(&mut self) -> AskOutcome {
        self.stage = PanelStage::Choose;
        AskOutcome::Handled
    }

    fn choose(&mut self, code: KeyCode) -> AskOutcome {
        let KeyCode::Char(letter) = code else {
            return match code {
                KeyCode::Tab => AskOutcome::ShowWhole,
                _ => AskOutcome::Ignored,
            };
        };
        match letter {
            'y' => AskOutcome::Answer(Answer::Once),
            'n' => {
                self.stage = PanelStage::Reason(LineInput::default());
                AskOutcome::Handled
            }
            'a' if self.offered().is_some() => AskOutcome::Answer(Answer::Always { rule: None }),
            'e' => match self.offered() {
                Some(rule) => {
                    self.stage = PanelStage::Pattern(LineInput::with_text(rule));
                    AskOutcome::Handled
                }
                None => AskOutcome::Ignored,
            },
            'd' if matches!(self.ask.about, About::Landing(_)) => AskOutcome::ShowDiff,
            'Y' if self.others > 0 && !self.ask.person => AskOutcome::AnswerAll,
            _ => AskOutcome::Ignored,
        }
    }

    /// The rule that "always" would add.
    fn offered(&self) -> Option<&str> {
        match &self.ask.about {
            About::Approval(approval) => approval.always.as_deref(),
            _ => None,
        }
    }

    /// Text that was pasted.
    pub(crate) fn paste(&mut self, text: &str) -> bool {
        match &mut self.stage {
            PanelStage::Choose => false,
            PanelStage::Reason(input) | PanelStage::Pattern(input) | PanelStage::Text(input) => {
                input.insert(text);
                true
            }
        }
    }

    /// The rows of the panel, and the position of the cursor if a text is typed. If they do not fit, fewer lines of the
    /// command are shown, so that the question and the keys stay on the screen.
    #[must_use]
    pub(crate) fn rows(
        &self,
        columns: usize,
        max_rows: usize,
        armed: bool,
    ) -> (Vec<StyledLine>, Option<(usize, usize)>) {
        let mut limits = PanelLimits::MOST;
        loop {
            let (rows, cursor) = self.rows_with(columns, limits, armed);
            let height: usize = rows
                .iter()
                .map(|row| wrap_columns(row, columns).len())
                .sum();
            match limits.smaller() {
                Some(smaller) if height > max_rows => limits = smaller,
                _ => return (rows, cursor),
            }
        }
    }

    /// The whole question without the keys, for the scrollback.
    #[must_use]
    pub(crate) fn whole(&self) -> Vec<StyledLine> {
        self.question(PanelLimits::NONE)
    }

    fn question(&self, limits: PanelLimits) -> Vec<StyledLine> {
        match &self.ask.about {
            About::Approval(approval) => approval_rows(approval, limits),
            About::Landing(landing) => landing_rows(landing, limits.effects),
            About::Question(question) => question_rows(question),
        }
    }

    /// The rows within these limits.
    fn rows_with(
        &self,
        columns: usize,
        limits: PanelLimits,
        armed: bool,
    ) -> (Vec<StyledLine>, Option<(usize, usize)>) {
        let mut rows = self.question(limits);
        if self.others > 0 {
            let text = format!("   {} more wait for an answer", self.others);
            rows.push(StyledLine::of(text, Tone::Muted));
        }
        let mut cursor = None;
        let mut field = |label: &str, input: &LineInput, rows: &mut Vec<StyledLine>| {
            let (text, column) = input.view(columns.saturating_sub(label.len() + 1));
            cursor = Some((rows.len(), label.chars().count() + column));
            let style = match armed {
                true => TextStyle::from(Tone::Accent).bold(),
                false => Tone::Muted.into(),
            };
            rows.push(StyledLine::of(label, style).with(text, Tone::Text));
        };
        match &self.stage {
            PanelStage::Choose => rows.push(self.keys_row(armed)),
            PanelStage::Reason(input) => {
                field("   reason for the agent > ", input, &mut rows);
                rows.push(hint("enter refuses · esc goes back"));
            }
            PanelStage::Pattern(input) => {
                field("   always allow > ", input, &mut rows);
                rows.push(hint("enter allows · esc goes back"));
            }
            PanelStage::Text(input) => {
                field(" > ", input, &mut rows);
                rows.push(hint("enter answers · esc refuses to answer"));
            }
        }
        (rows, cursor)
    }

    /// The keys that answer. They are muted until the panel takes them.
    fn keys_row(&self, armed: bool) -> StyledLine {
        let mut line = StyledLine::of("   ", Tone::Text);
        let (name, about) = match armed {
            true => (TextStyle::from(Tone::Accent).bold(), Tone::Text),
            false => (Tone::Muted.into(), Tone::Muted),
        };
        let key = |line: StyledLine, key: &str, text: &str| {
            line.with(key, name).with(format!(" {text}   "), about)
        };
        match &self.ask.about {
            About::Landing(_) => {
                line = key(line, "y", "land");
                line = key(line, "d", "diff");
                key(line, "n", "keep, and do not land…")
            }
            _ => {
                line = key(line, "y", "once");
                if let Some(rule) = self.offered() {
                    line = key(line, "a", &format!("always for `{}`", marked_line(rule)));
                    line = key(line, "e", "edit the pattern");
                }
                if self.others > 0 && !self.ask.person {
                    line = key(line, "Y", "all that may be allowed together");
                }
                key(line, "n", "no…")
            }
        }
    }
}

fn handled(used: bool) -> AskOutcome {
    match used {
        true => AskOutcome::Handled,
        false => AskOutcome::Ignored,
    }
}

fn answer_text(ask: &Ask, typed: &str) -> AskOutcome {
    let typed = typed.trim();
    if typed.is_empty() {
        return AskOutcome::Handled;
    }
    let chosen = match &ask.about {
        About::Question(question) => typed
            .parse::<usize>()
            .ok()
            .and_then(|number| question.options.get(number.checked_sub(1)?)),
        _ => None,
    };
    AskOutcome::Answer(Answer::Text {
        text: chosen.map_or_else(|| typed.to_owned(), Clone::clone),
    })
}

fn hint(text: &str) -> StyledLine {
    StyledLine::of(format!("   {text}"), Tone::Muted)
}

fn title(text: &str, note: &str) -> StyledLine {
    StyledLine::of(format!(" {text}"), TextStyle::from(Tone::Warn).bold())
        .with(format!("   {note}"), Tone::Muted)
        .with_indent(3)
}

fn fact(name: &str, text: &str, tone: Tone) -> StyledLine {
    StyledLine::of(format!("   {name:<9}"), Tone::Muted)
        .with(text, tone)
        .with_indent(12)
}

/// The first lines of a text, and the number of the others, so that nobody approves them without knowing.
fn limited(lines: Vec<StyledLine>, limit: usize) -> Vec<StyledLine> {
    let all = lines.len();
    let mut shown: Vec<_> = lines.into_iter().take(limit).collect();
    if all > limit {
        let text = format!(
            "     … {} more lines are NOT shown; tab shows them",
            all - limit
        );
        shown.push(StyledLine::of(text, Tone::Warn));
    }
    shown
}

fn approval_rows(approval: &Approval, limits: PanelLimits) -> Vec<StyledLine> {
    let commands: Vec<&str> = approval
        .touches
        .iter()
        .filter_map(|touch| match touch {
            Touch::Execute { command, .. } => Some(command.as_str()),
            _ => None,
        })
        .collect();
    let question = match commands.is_empty() {
        true => format!("Allow {}?", marked_line(&approval.call.name)),
        false => "Allow this command?".to_owned(),
    };
    let mut rows = vec![title(&question, &marked_line(&approval.rule))];
    let mut content = Vec::new();
    let indented = |text: &str| -> Vec<StyledLine> {
        let block = marked_block(text);
        let lines = block.lines().map(str::trim_start);
        let line = |line: &str| StyledLine::of(format!("   {line}"), Tone::Text).with_indent(5);
        lines.map(line).collect()
    };
    for command in &commands {
        content.extend(indented(command));
    }
    match &approval.preview {
        Some(preview) => {
            let options = DiffOptions {
                headers: false,
                ..DiffOptions::default()
            };
            content.extend(unified(preview, &options));
        }
        None if commands.is_empty() => content.extend(indented(&arguments(&approval.call.args))),
        None => {}
    }
    rows.extend(limited(content, limits.lines));
    rows.extend(touch_rows(&approval.touches, limits.effects));
    rows.push(fact("why", &marked_line(&approval.reason), Tone::Text));
    rows
}

/// The arguments of a call by name.
fn arguments(args: &serde_json::Value) -> String {
    let Some(args) = args.as_object() else {
        return format!("{args:#}");
    };
    let named = args.iter().map(|(name, value)| match value.as_str() {
        Some(text) if text.contains('\n') => format!("{name}:\n{}", text.trim_end_matches('\n')),
        Some(text) => format!("{name}: {text}"),
        None => format!("{name}: {value}"),
    });
    named.collect::<Vec<_>>().join("\n")
}

fn touch_rows(touches: &[Touch], limit: usize) -> Vec<StyledLine> {
    let mut rows = Vec::new();
    let shown = touches
        .iter()
        .filter(|touch| !matches!(touch, Touch::Execute { .. }));
    let all = shown.clone().count();
    for touch in shown.take(limit) {
        let (name, text, outside) = match touch {
            Touch::Read { path, inside } => ("reads", path.clone(), !inside),
            Touch::Write {
                path, inside, new, ..
            } => (
                if *new { "creates" } else { "writes" },
                path.clone(),
                !inside,
            ),
            Touch::Connect { host } => ("network", host_name::in_words(host).to_string(), false),
            Touch::Execute { .. } => continue,
        };
        let mut row = fact(name, &marked_line(&text), Tone::Text);
        if outside {
            row = row.with("  outside of the workspace", Tone::Warn);
        }
        rows.push(row);
    }
    if all > limit {
        let text = format!(
            "   … {} more effects are NOT shown; tab shows them",
            all - limit
        );
        rows.push(StyledLine::of(text, Tone::Warn));
    }
    rows
}

fn landing_rows(landing: &LandingAsk, limit: usize) -> Vec<StyledLine> {
    let tree = landing.tree_hash.as_ref().map_or_else(String::new, |hash| {
        format!("on tree {}", hash.chars().take(8).collect::<String>())
    });
    let mut rows = vec![title("Land these changes?", &tree)];
    for (path, reason) in landing.paths.iter().take(limit) {
        rows.push(
            StyledLine::of("   ⚠ ", Tone::Warn)
                .with(marked_line(path), Tone::Text)
                .with(format!("  {}", marked_line(reason)), Tone::Muted)
                .with_indent(5),
        );
    }
    if landing.paths.len() > limit {
        let more = landing.paths.len() - limit;
        let text = format!("   … {more} more paths are NOT shown; d shows the diff");
        rows.push(StyledLine::of(text, Tone::Warn));
    }
    for check in landing.failing.iter().take(limit) {
        let text = format!("{} fails, as it did before this run", marked_line(check));
        rows.push(
            StyledLine::of("   ✗ ", Tone::Bad)
                .with(text, Tone::Text)
                .with_indent(5),
        );
    }
    rows
}

fn question_rows(question: &Question) -> Vec<StyledLine> {
    let mut rows = vec![title("The agent asks", "")];
    let text = marked_block(&question.text);
    let lines = text.lines().map(str::trim_start);
    rows.extend(lines.map(|line| StyledLine::of(format!("   {line}"), Tone::Text).with_indent(3)));
    for (at, option) in question.options.iter().enumerate().take(MAX_EFFECTS) {
        let text = format!("   {}. {}", at + 1, marked_line(option));
        rows.push(StyledLine::of(text, Tone::Text).with_indent(6));
    }
    rows
}
