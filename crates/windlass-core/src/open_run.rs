//! What the log says of a run that has not ended, and of prompts that wait: what somebody who goes on later has to know.
//! Folds of the log like everything else; nothing here is saved elsewhere.

use serde_json::Value;

use crate::ask::Ask;
use crate::event::{Event, EventKind};
use crate::id::RunId;
use crate::message::{Message, Origin, Part};
use crate::outcome::Outcome;
use crate::workspace::REDACTED;

/// A run that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenRun {
    /// Which.
    pub id: RunId,
    /// What was asked.
    pub prompt: Message,
    /// How it was asked for.
    pub how: Option<Value>,
    /// The try it is in, from 1; none before the first.
    pub iteration: u32,
    /// The runtime is done with that try; what follows is judging and landing.
    pub tried: bool,
    /// It works on a copy.
    pub isolated: bool,
    /// The name of the copy.
    pub copy: Option<String>,
}

impl OpenRun {
    /// A run that just began.
    #[must_use]
    pub fn new(id: RunId, prompt: Message, how: Option<Value>) -> Self {
        Self { id, prompt, how, iteration: 0, tried: false, isolated: false, copy: None }
    }

    /// Takes one more event of the run in.
    pub fn apply(&mut self, kind: &EventKind) {
        match kind {
            EventKind::TransactionOpened { terms, name } => {
                self.isolated = terms.strategy != "in_place";
                self.copy.clone_from(name);
            }
            EventKind::Kept { name } => self.copy = Some(name.clone()),
            EventKind::Discarded { name } => drop(self.copy.take_if(|copy| copy == name)),
            EventKind::IterationStarted { iteration, .. } => {
                self.iteration = *iteration;
                self.tried = false;
            }
            EventKind::IterationFinished { .. } => self.tried = true,
            _ => {}
        }
    }
}

/// A prompt that waits.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// The event that told of it.
    pub seq: u64,
    /// The prompt.
    pub prompt: Message,
    /// It is meant for the run that is going.
    pub steer: bool,
}

/// Prompts that wait, in the order they came.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Queue(Vec<Waiting>);

impl Queue {
    /// Takes one more event in. Who is told to end everything does not want what waits either.
    pub fn apply(&mut self, seq: u64, kind: &EventKind) {
        match kind {
            EventKind::Queued { prompt, steer } => {
                self.0.push(Waiting { seq, prompt: prompt.clone(), steer: *steer });
            }
            EventKind::RunStarted { prompt, .. } => self.take(prompt, |_| true),
            EventKind::Said { message } if message.origin == Origin::Person => self.take(message, |one| one.steer),
            EventKind::RunFinished { outcome: Outcome::Cancelled, .. } | EventKind::Forked { .. } => self.0.clear(),
            _ => {}
        }
    }

    /// What was said does not wait any more: the first that says the same.
    fn take(&mut self, said: &Message, fits: impl Fn(&Waiting) -> bool) {
        if let Some(at) = self.0.iter().position(|waiting| fits(waiting) && says_the_same(&waiting.prompt, said)) {
            self.0.remove(at);
        }
    }

    /// What waits.
    #[must_use]
    pub fn all(&self) -> &[Waiting] {
        &self.0
    }

    /// All that is meant for the run that is going.
    #[must_use]
    pub fn steering(&self) -> Vec<Message> {
        self.0.iter().filter(|waiting| waiting.steer).map(|waiting| waiting.prompt.clone()).collect()
    }

    /// The first of all: what the next run is to do. What was meant for a run that is over comes with the rest.
    #[must_use]
    pub fn first(&self) -> Option<&Message> {
        self.0.first().map(|waiting| &waiting.prompt)
    }
}

/// Whether what was said is what waited. What was no secret when it was queued may be one when it is said: then words
/// stand in its place.
fn says_the_same(waited: &Message, said: &Message) -> bool {
    let same = |(waited, said): (&Part, &Part)| match (waited, said) {
        (Part::Text { text: waited }, Part::Text { text: said }) => is_under(waited, said),
        (waited, said) => waited == said,
    };
    (waited.role, waited.origin, waited.parts.len()) == (said.role, said.origin, said.parts.len())
        && waited.parts.iter().zip(&said.parts).all(same)
}

/// Whether a text is another in which secrets were hidden.
fn is_under(text: &str, hidden: &str) -> bool {
    let mut pieces = hidden.split(REDACTED);
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let pieces: Vec<&str> = pieces.map(|piece| piece.split_once(']').map_or("", |(_, after)| after)).collect();
    let Some((last, between)) = pieces.split_last() else { return rest.is_empty() };
    for piece in between {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// What a list and whoever goes on has to know of a session, without its messages: a fold that takes little memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Glance {
    /// Where it works.
    pub workspace: String,
    /// How its last run was asked for.
    pub how: Option<Value>,
    /// The run that has not ended.
    pub open: Option<OpenRun>,
    /// What waits for a person.
    pub asks: Vec<Ask>,
    /// Prompts that wait.
    pub queue: Queue,
    /// The last event.
    pub last_seq: u64,
}

impl Glance {
    /// Whether events of a kind, by its name in the log, change anything here but the last number.
    #[must_use]
    pub fn needs(kind: &str) -> bool {
        matches!(
            kind,
            "session_opened"
                | "run_started"
                | "run_finished"
                | "asked"
                | "answered"
                | "forked"
                | "queued"
                | "said"
                | "transaction_opened"
                | "kept"
                | "discarded"
                | "iteration_started"
                | "iteration_finished"
        )
    }

    /// Takes one more event in.
    pub fn apply(&mut self, event: &Event) {
        let Some(seq) = event.order.seq() else { return };
        self.last_seq = seq;
        self.queue.apply(seq, &event.kind);
        if let Some(open) = &mut self.open {
            open.apply(&event.kind);
        }
        match &event.kind {
            EventKind::SessionOpened { workspace, .. } => self.workspace.clone_from(workspace),
            EventKind::RunStarted { prompt, how } => {
                self.how.clone_from(how);
                self.asks.clear();
                self.open = event.run.clone().map(|id| OpenRun::new(id, prompt.clone(), how.clone()));
            }
            EventKind::RunFinished { .. } => {
                self.open = None;
                self.asks.clear();
            }
            EventKind::Asked { ask } => self.asks.push(ask.clone()),
            EventKind::Answered { ask, .. } => self.asks.retain(|open| open.id != *ask),
            EventKind::Forked { .. } => self.asks.clear(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Spent;

    fn queued(text: &str, steer: bool) -> EventKind {
        EventKind::Queued { prompt: Message::user(text), steer }
    }

    fn finished(outcome: Outcome) -> EventKind {
        EventKind::RunFinished {
            outcome,
            files: vec![],
            totals: Spent::default(),
            ms: 0,
            evidence: vec![],
            judge_changed: vec![],
            limits: None,
            transaction: None,
            output: None,
        }
    }

    #[track_caller]
    fn check(kinds: &[EventKind], waits: &[&str]) {
        let mut queue = Queue::default();
        for (seq, kind) in (1..).zip(kinds) {
            queue.apply(seq, kind);
        }
        let texts: Vec<String> = queue.all().iter().map(|waiting| waiting.prompt.text()).collect();
        assert_eq!(texts, waits);
    }

    #[test]
    fn what_waits_is_known_although_secrets_in_it_are_hidden_by_now() {
        let mark = format!("{REDACTED}: secret]");
        for (waited, said, same) in [
            ("a swordfish b", format!("a {mark} b"), true),
            ("swordfish", mark.clone(), true),
            ("a x b y c", format!("a {mark} b {mark} c"), true),
            ("a x b y c", format!("a {mark} c"), true),
            ("a x b", format!("a {mark} c"), false),
            ("b x b", format!("a {mark} b"), false),
            ("a swordfish b", "a swordfish b".to_owned(), true),
            ("a swordfish b", "a swordfish".to_owned(), false),
            ("a", format!("a{mark}"), true),
            ("", REDACTED.to_owned(), true),
        ] {
            assert_eq!(is_under(waited, &said), same, "{waited:?} {said:?}");
        }
    }

    #[test]
    fn what_waits_goes_in_order_and_a_cancel_empties_it() {
        let start = |text: &str| EventKind::RunStarted { prompt: Message::user(text), how: None };
        let steered = EventKind::Said { message: Message::user("left") };
        let model = EventKind::Said { message: Message::assistant("left") };
        check(&[queued("a", false), queued("b", false), start("a")], &["b"]);
        check(&[queued("a", false), start("a"), queued("a", false)], &["a"]);
        check(&[queued("left", true), model, queued("b", false)], &["left", "b"]);
        check(&[queued("b", false), queued("left", true), steered], &["b"]);
        check(&[queued("a", false), finished(Outcome::Completed)], &["a"]);
        let said = |text: &str| EventKind::Said { message: Message::user(text) };
        check(&[queued("a", false), queued("a", true), said("a")], &["a"]);
        check(&[queued("a", false), said("a")], &["a"]);
        check(&[queued("a", false), queued("b", true), finished(Outcome::Cancelled)], &[]);
    }
}
