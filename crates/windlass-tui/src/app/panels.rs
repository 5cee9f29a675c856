//! Panels in place of the composer: asks, and lists to choose from.

use crossterm::event::KeyEvent;
use serde_json::{Value, json};
use windlass::core::ask::{About, Answer};
use windlass::core::id::SessionId;
use windlass_text::StyledLine;

use super::App;
use super::setup::{KeyEntry, KeyPanel, SetupStep};
use crate::ask_panel::{AskOutcome, AskPanel};
use crate::composer::{ListPicker, PickerOutcome};

/// A value that the user chose from a list.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PickedItem {
    Model(String),
    Agent(String),
    Mode(String),
    Theme(String),
    Session(SessionId),
    /// A point in the conversation: the number of the event of a prompt.
    Point(u64),
    /// The parts to restore at a point.
    Rewind {
        to: u64,
        files: bool,
        fork: bool,
    },
    /// An event of the timeline.
    Event(u64),
    ShowEvent(u64),
    FilesAt(u64),
    ContextAt(u64),
    DecisionsAt(u64),
    /// A queued prompt, which is taken back into the composer.
    Queued(u64),
    Setup(SetupStep),
}

/// A panel.
pub(super) enum Panel {
    Ask(Box<AskPanel>),
    Picker(Box<ListPicker<PickedItem>>),
    /// A field for the key of a vendor.
    Key(Box<KeyPanel>),
}

impl Panel {
    pub(super) fn was_shown(&mut self, now_ms: i64) {
        if let Self::Ask(panel) = self {
            panel.was_shown(now_ms);
        }
    }

    /// Whether the panel waits until it takes keys.
    pub(super) fn waits_to_arm(&self, now_ms: i64) -> bool {
        matches!(self, Self::Ask(panel) if !panel.is_armed(now_ms))
    }

    /// The rows of the panel, and the position of the cursor.
    pub(super) fn rows(
        &mut self,
        columns: usize,
        max_rows: usize,
    ) -> (Vec<StyledLine>, Option<(usize, usize)>) {
        match self {
            Self::Ask(panel) => panel.rows(columns, max_rows, panel.is_armed(super::now_ms())),
            Self::Picker(picker) => (picker.view(columns, max_rows.clamp(4, 16)), None),
            Self::Key(panel) => panel.rows(columns),
        }
    }
}

impl App {
    /// Shows the first open ask, unless the user is choosing something. Hides the panel of an ask that was answered
    /// elsewhere.
    pub(super) fn show_asks(&mut self) {
        // Nobody can answer a question of the past.
        if self.is_recording {
            return;
        }
        let asks = &self.conversation.asks;
        match &mut self.panel {
            Some(Panel::Picker(_) | Panel::Key(_)) => {}
            Some(Panel::Ask(panel)) if asks.iter().any(|ask| ask.id == panel.ask.id) => {
                panel.others = asks.len() - 1;
            }
            Some(Panel::Ask(_)) | None => {
                self.panel = asks
                    .first()
                    .map(|ask| Panel::Ask(Box::new(AskPanel::new(ask.clone(), asks.len() - 1))));
            }
        }
        self.dirty = true;
    }

    /// Passes a key to the panel. Returns whether the panel used it.
    pub(super) fn panel_key(&mut self, key: KeyEvent, now_ms: i64) -> bool {
        let Some(panel) = self.panel.take() else {
            return false;
        };
        match panel {
            Panel::Picker(mut picker) => {
                match picker.key(key) {
                    PickerOutcome::Chosen(item) => self.picked(item),
                    PickerOutcome::Cancelled => {}
                    _ => self.panel = Some(Panel::Picker(picker)),
                }
                if self.panel.is_none() {
                    self.show_asks();
                }
                true
            }
            Panel::Key(mut field) => {
                match field.key(key) {
                    KeyEntry::Open => self.panel = Some(Panel::Key(field)),
                    KeyEntry::Cancelled => self.show_asks(),
                    KeyEntry::Entered(params) => {
                        self.apply_setup(params);
                        self.show_asks();
                    }
                }
                true
            }
            Panel::Ask(mut ask) => {
                // Keys that were typed before the question could be read belong to the composer.
                if !ask.is_armed(now_ms) {
                    ask.delay(now_ms);
                    self.panel = Some(Panel::Ask(ask));
                    return false;
                }
                let outcome = ask.key(key);
                let open = ask.ask.clone();
                self.panel = Some(Panel::Ask(ask));
                match outcome {
                    AskOutcome::Handled => true,
                    AskOutcome::Ignored => {
                        // The user types something else, which may go on with a key that would answer.
                        if let Some(Panel::Ask(ask)) = &mut self.panel {
                            ask.delay(now_ms);
                        }
                        false
                    }
                    AskOutcome::Answer(answer) => {
                        self.panel = None;
                        self.answer(&open, &answer);
                        true
                    }
                    AskOutcome::AnswerAll => {
                        self.answer_all();
                        true
                    }
                    AskOutcome::ShowWhole => {
                        if let Some(Panel::Ask(panel)) = &self.panel {
                            let lines = panel.whole();
                            self.say(lines);
                        }
                        true
                    }
                    AskOutcome::ShowDiff => {
                        self.command("diff", "");
                        true
                    }
                }
            }
        }
    }

    /// Allows all open approvals once, except those that need a person for each call.
    fn answer_all(&mut self) {
        let asks: Vec<_> = self
            .conversation
            .asks
            .iter()
            .filter(|ask| !ask.person && matches!(ask.about, About::Approval(_)))
            .cloned()
            .collect();
        self.panel = None;
        for ask in asks {
            self.answer(&ask, &Answer::Once);
        }
    }

    /// Applies a choice from a list.
    fn picked(&mut self, item: PickedItem) {
        match item {
            PickedItem::Model(model) => self.set_option("model", model.into()),
            PickedItem::Agent(agent) => self.set_option("runtime", agent.into()),
            PickedItem::Mode(mode) => self.set_mode(&mode),
            PickedItem::Theme(name) => self.set_theme(&name),
            PickedItem::Session(session) => {
                // The session continues where it was begun, in place or on a copy.
                self.options.run_options.remove("in_place");
                self.follow(session);
            }
            PickedItem::Point(to) => self.choose_rewind(to),
            PickedItem::Rewind { to, files, fork } => self.rewind(to, files, fork),
            PickedItem::Event(seq) => self.choose_at(seq),
            PickedItem::ShowEvent(seq) => self.command("event", &seq.to_string()),
            PickedItem::FilesAt(seq) => self.show_files_at(seq),
            PickedItem::ContextAt(seq) => self.show_context_at(seq),
            PickedItem::DecisionsAt(seq) => self.show_decisions_at(seq),
            PickedItem::Queued(seq) => self.take_back(seq),
            PickedItem::Setup(step) => self.take_setup_step(step),
        }
    }

    /// Takes a queued prompt back into the composer.
    fn take_back(&mut self, seq: u64) {
        let Some(prompt) = self.conversation.queue.iter().find(|one| one.seq == seq) else {
            return;
        };
        self.composer.set_text(&prompt.text);
        let rest: Vec<Value> = self
            .conversation
            .queue
            .iter()
            .filter(|one| one.seq != seq)
            .map(|one| one.seq.into())
            .collect();
        let params = self.of_session(json!({ "order": rest }));
        self.operate("queue.set", params, "took the prompt back");
    }
}
