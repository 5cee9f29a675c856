//! The status line: what the session does, what it has cost, and what the user can do next.

use windlass::transcript::thousands;
use windlass_text::{StyledLine, Tone, align, sanitize, truncate};

use crate::conversation::{Activity, Conversation, money};

/// Facts that no event tells.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StatusFacts {
    pub model: Option<String>,
    pub agent: Option<String>,
    /// The approval mode of the next run.
    pub mode: String,
    /// The mode follows from the isolation, because neither a flag nor a setting names one.
    pub mode_is_default: bool,
    /// The next run works in place.
    pub in_place: bool,
    pub branch: Option<String>,
    /// The context window of the model in tokens.
    pub window: Option<u64>,
    /// The cost limit of the next run in micro-USD.
    pub budget_micros: Option<u64>,
    /// Where the sessions are, if they are not in this process.
    pub server: Option<String>,
    /// The connection to the server is lost.
    pub reconnecting: bool,
}

impl StatusFacts {
    /// The next run works in place or on a copy.
    pub(crate) fn set_in_place(&mut self, in_place: bool) {
        self.in_place = in_place;
        if self.mode_is_default {
            self.mode = Self::default_mode(in_place).to_owned();
        }
    }

    /// The approval mode of a run for which nobody chose one.
    #[must_use]
    pub fn default_mode(in_place: bool) -> &'static str {
        if in_place { "ask" } else { "auto" }
    }
}

/// The mark of a run in progress. It does not move: the seconds beside it do.
const RUNNING: &str = "●";

/// The status line for a width.
#[must_use]
pub(crate) fn status_line(
    conversation: &Conversation,
    facts: &StatusFacts,
    now_ms: i64,
    columns: usize,
) -> StyledLine {
    let right = spending(conversation, facts);
    let right_width = right.width();
    let left = match &conversation.run {
        Some(run) if !run.paused => {
            let (what, tone) = match &run.activity {
                Activity::Starting => ("starting".to_owned(), Tone::Text),
                Activity::Thinking => ("waiting for the model".to_owned(), Tone::Text),
                Activity::Answering => ("answering".to_owned(), Tone::Text),
                Activity::Calling(title) => (title.clone(), Tone::Text),
                Activity::Checking(name) => (format!("checking {name}"), Tone::Text),
                Activity::Retrying(reason) => (format!("retrying: {reason}"), Tone::Warn),
                Activity::Landing => ("landing".to_owned(), Tone::Text),
            };
            let what = match conversation.asks.is_empty() {
                true => what,
                false => "waiting for you".to_owned(),
            };
            let since = now_ms.saturating_sub(run.since_ms).max(0) / 1_000;
            let mut rest = match since {
                0 => String::new(),
                since => format!("  {}", duration(since)),
            };
            rest.push_str(&format!(" · step {} · esc stops", run.spent.steps.max(1)));
            // The time and the key are more important than the end of a long command.
            let rest = StyledLine::of(rest, Tone::Muted);
            let used = rest.width() + right_width + 5;
            let free = columns.saturating_sub(used).clamp(12, 60);
            let what = StyledLine::of(sanitize::one_line(&what), tone);
            let mut line = StyledLine::of(format!(" {RUNNING} "), Tone::Accent);
            line.extend(&truncate(&what, free));
            line.extend(&rest);
            line
        }
        Some(_) => StyledLine::of(" ‖ paused", Tone::Warn)
            .with(" · enter resumes · a new prompt replaces it", Tone::Muted),
        None => idle_facts(conversation, facts),
    };
    if columns <= right_width + 12 {
        return truncate(&left, columns);
    }
    align(&truncate(&left, columns - right_width - 1), &right, columns)
}

fn idle_facts(conversation: &Conversation, facts: &StatusFacts) -> StyledLine {
    let mut words: Vec<(String, Tone)> = Vec::new();
    if facts.reconnecting {
        words.push(("reconnecting".to_owned(), Tone::Warn));
    }
    let model = facts.model.as_ref().or(conversation.model.as_ref());
    words.push((
        model.map_or_else(
            || "no model yet".to_owned(),
            |model| sanitize::one_line(model).into_owned(),
        ),
        Tone::Text,
    ));
    let agent = match conversation.runtime.as_str() {
        "" => facts.agent.clone(),
        runtime => facts.agent.clone().or_else(|| Some(runtime.to_owned())),
    };
    words.extend(agent.map(|agent| (agent, Tone::Muted)));
    words.push((facts.mode.clone(), mode_tone(&facts.mode)));
    let place = if facts.in_place {
        "in place"
    } else {
        "isolated"
    };
    words.push((place.to_owned(), Tone::Muted));
    words.extend(facts.branch.clone().map(|branch| (branch, Tone::Muted)));
    if let Some(terms) = &conversation.terms {
        words.push((format!("sandbox {}", terms.tier.word()), Tone::Muted));
    }
    words.extend(facts.server.clone().map(|server| (server, Tone::Muted)));
    let mut line = StyledLine::of(" ", Tone::Muted);
    for (at, (word, tone)) in words.into_iter().enumerate() {
        if at > 0 {
            line = line.with(" · ", Tone::Muted);
        }
        line = line.with(word, tone);
    }
    line
}

/// The colour of an approval mode: `auto` asks nobody.
fn mode_tone(mode: &str) -> Tone {
    match mode {
        "plan" => Tone::Accent,
        "auto" => Tone::Warn,
        _ => Tone::Muted,
    }
}

fn spending(conversation: &Conversation, facts: &StatusFacts) -> StyledLine {
    let spent = conversation.cost_micros;
    let limit = conversation
        .limits
        .as_ref()
        .and_then(|limits| limits.cost_micros)
        .or(facts.budget_micros);
    let cost = match (&conversation.run, limit) {
        (Some(run), Some(limit)) => format!("{} of {}", money(run.spent.cost_micros), money(limit)),
        (Some(run), None) => money(run.spent.cost_micros),
        (None, _) => money(spent),
    };
    let mut line = StyledLine::of(cost, Tone::Text);
    let tokens = conversation.context_tokens;
    if tokens > 0 {
        let of = facts
            .window
            .map_or_else(String::new, |window| format!(" of {}", short(window)));
        let tone = match facts.window {
            Some(window) if tokens * 10 > window * 8 => Tone::Warn,
            _ => Tone::Muted,
        };
        line = line
            .with(" · ", Tone::Muted)
            .with(format!("{}{of}", short(tokens)), tone);
    }
    line.with(" ", Tone::Muted)
}

/// A number of tokens in thousands or millions.
fn short(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..1_000_000 => format!("{}k", tokens.div_ceil(1_000)),
        _ => format!("{}k", thousands(tokens.div_ceil(1_000))),
    }
}

/// Seconds as `12 s` or `3 m 4 s`.
fn duration(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        _ => format!("{} m {} s", seconds / 60, seconds % 60),
    }
}
