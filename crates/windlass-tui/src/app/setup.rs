//! The set-up of a new user: what was found, a list of choices, and a field for a key.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde::Deserialize;
use serde_json::{Value, json};
use windlass::model::{VENDORS, models::default_model};
use windlass_text::{StyledLine, Tone, sanitize};

use super::panels::{Panel, PickedItem};
use super::reports::{heading, remark};
use super::tasks::TaskResult;
use super::{App, reports};
use crate::backend::OperationError;
use crate::composer::{ListPicker, PickerItem};
use crate::line_input::LineInput;

/// The introduction of the first start, in lines of at most 80 columns.
const INTRODUCTION: [&str; 2] = [
    " Windlass runs coding agents on a private copy of your repository and applies",
    " their work only when your checks pass.",
];

/// A choice of the set-up.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SetupStep {
    /// The parameters of `setup.apply`.
    Apply(Value),
    Demo,
    ChooseVendor,
    EnterKey(&'static str),
}

/// The parts of the report that are shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SetupFacts {
    ready: bool,
    why: Option<String>,
    agents: Vec<AgentFact>,
    keys: Vec<KeyFact>,
    local_servers: Vec<ServerFact>,
    checks: Vec<CheckFact>,
    choices: Vec<ChoiceFact>,
}

#[derive(Debug, Deserialize)]
struct AgentFact {
    name: String,
    version: Option<String>,
    signed_in: bool,
}

#[derive(Debug, Deserialize)]
struct KeyFact {
    name: String,
    source: String,
    place: String,
}

#[derive(Debug, Deserialize)]
struct ServerFact {
    vendor: String,
}

#[derive(Debug, Deserialize)]
struct CheckFact {
    command: String,
}

#[derive(Debug, Deserialize)]
struct ChoiceFact {
    action: String,
    name: Option<String>,
    model: Option<String>,
    title: String,
    about: String,
}

impl SetupFacts {
    /// The lines above the choices.
    fn lines(&self) -> Vec<StyledLine> {
        let agents = self.agents.iter().map(|agent| {
            let version = agent.version.as_deref().unwrap_or_default();
            let state = if agent.signed_in { " (signed in)" } else { "" };
            format!("{} {version}{state}", agent.name)
        });
        let keys = self.keys.iter().map(|key| match key.source.as_str() {
            "environment" => key.place.clone(),
            _ => format!("key of {}", key.name),
        });
        let servers = self.local_servers.iter().map(|one| one.vendor.clone());
        let found: Vec<String> = agents.chain(keys).chain(servers).collect();
        let checks: Vec<&str> = self.checks.iter().map(|one| one.command.as_str()).collect();
        let or_none = |text: String| match text.is_empty() {
            true => "none".to_owned(),
            false => text,
        };
        let row = |name: &str, text: String| {
            StyledLine::of(format!(" {name:<12} "), Tone::Muted)
                .with(sanitize::one_line(&text), Tone::Text)
                .with_indent(14)
        };
        let mut lines: Vec<StyledLine> = INTRODUCTION
            .iter()
            .map(|line| StyledLine::of(*line, Tone::Text))
            .collect();
        lines.push(StyledLine::default());
        lines.push(row("Found here", or_none(found.join("   "))));
        lines.push(row("Checks", or_none(checks.join(", "))));
        if let Some(why) = &self.why {
            lines.push(row("No model", why.clone()));
        }
        lines
    }

    fn picker(&self) -> ListPicker<PickedItem> {
        let items = self.choices.iter().enumerate().map(|(at, choice)| {
            let step = match choice.action.as_str() {
                "demo" => SetupStep::Demo,
                "enter_key" => SetupStep::ChooseVendor,
                action => SetupStep::Apply(json!({
                    "action": action, "name": choice.name, "model": choice.model,
                })),
            };
            PickerItem {
                value: PickedItem::Setup(step),
                columns: vec![format!("{}  {}", at + 1, choice.title)],
                preview: vec![remark(&format!("  {}", choice.about))],
            }
        });
        ListPicker::new("Choose how to begin", items.collect())
    }
}

/// A field for the key of a vendor. It shows only the number of characters.
pub(super) struct KeyPanel {
    vendor: &'static str,
    input: LineInput,
}

/// The effect of a key on the field.
pub(super) enum KeyEntry {
    Open,
    Cancelled,
    Entered(Value),
}

impl KeyPanel {
    pub(super) fn new(vendor: &'static str) -> Self {
        Self {
            vendor,
            input: LineInput::default(),
        }
    }

    pub(super) fn paste(&mut self, text: &str) {
        self.input.insert(text.trim());
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> KeyEntry {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => KeyEntry::Cancelled,
            KeyCode::Char('c' | 'd') if control => KeyEntry::Cancelled,
            KeyCode::Enter if self.input.text().trim().is_empty() => KeyEntry::Cancelled,
            KeyCode::Enter => KeyEntry::Entered(json!({
                "action": "enter_key", "name": self.vendor, "key": self.input.text().trim(),
            })),
            _ => {
                self.input.key(key);
                KeyEntry::Open
            }
        }
    }

    pub(super) fn rows(&self, columns: usize) -> (Vec<StyledLine>, Option<(usize, usize)>) {
        let count = self.input.text().chars().count();
        let shown = "•".repeat(count.min(columns.saturating_sub(4)));
        let column = 3 + shown.chars().count();
        let rows = vec![
            heading(&format!("Key of {}", self.vendor)),
            StyledLine::of(" > ", Tone::Accent).with(shown, Tone::Text),
            remark("enter stores it in your credentials file · esc cancels"),
        ];
        (rows, Some((1, column)))
    }
}

impl App {
    /// Looks for agents, keys and servers beside the interface. If `asked` is false, the choices are shown only if no
    /// model is usable.
    pub(super) fn open_setup(&mut self, asked: bool) {
        let Some(backend) = self.backend.clone() else {
            self.warn("the sessions are not open yet");
            return;
        };
        if asked {
            self.notice = Some(remark("looking for agents, keys and local servers…"));
        }
        self.spawn(async move {
            let facts = backend.call("setup.get", json!({})).await;
            TaskResult::Setup { facts, asked }
        });
    }

    pub(super) fn show_setup(&mut self, facts: Result<SetupFacts, OperationError>, asked: bool) {
        let facts = match facts {
            Ok(facts) if asked || !facts.ready => facts,
            Ok(_) => return,
            Err(error) if asked => return self.say(reports::error(&error)),
            // The first run reports the reason, too.
            Err(_) => return,
        };
        self.notice = None;
        let mut lines = facts.lines();
        let is_free = self.panel.is_none() && self.composer.is_empty();
        if asked || (is_free && self.conversation.run.is_none()) {
            self.panel = Some(Panel::Picker(Box::new(facts.picker())));
        } else {
            // The user is typing already: keys must not choose anything.
            lines.push(remark("/login shows the choices"));
        }
        self.say(lines);
    }

    /// Continues with a choice.
    pub(super) fn take_setup_step(&mut self, step: SetupStep) {
        match step {
            SetupStep::Apply(params) => self.apply_setup(params),
            SetupStep::Demo => {
                self.run_demo = true;
                self.quit = true;
            }
            SetupStep::ChooseVendor => {
                let vendors = VENDORS.iter().filter(|one| default_model(one).is_some());
                let items = vendors.map(|one| PickerItem {
                    value: PickedItem::Setup(SetupStep::EnterKey(one.id)),
                    columns: vec![
                        one.id.to_owned(),
                        default_model(one).unwrap_or_default().to_owned(),
                    ],
                    preview: Vec::new(),
                });
                let picker = ListPicker::new(
                    "Enter the key of (others: `windlass auth login VENDOR`)",
                    items.collect(),
                );
                self.panel = Some(Panel::Picker(Box::new(picker)));
            }
            SetupStep::EnterKey(vendor) => {
                self.panel = Some(Panel::Key(Box::new(KeyPanel::new(vendor))));
            }
        }
    }

    pub(super) fn apply_setup(&mut self, params: Value) {
        let Some(backend) = self.backend.clone() else {
            return;
        };
        self.spawn(async move { TaskResult::SetUp(backend.call("setup.apply", params).await) });
    }

    /// Shows the changed settings, and uses them for the next run.
    pub(super) fn was_set_up(&mut self, change: &Value) {
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let mut lines = vec![remark(&format!("changed {}", text(change, "file")))];
        for one in change["settings"].as_array().into_iter().flatten() {
            let (key, value) = (text(one, "key"), text(one, "value"));
            lines.push(remark(&format!("  {key} = {value}")));
            match key.as_str() {
                "model" => self.facts.model = Some(value),
                "runtime" => self.facts.agent = Some(value),
                _ => {}
            }
        }
        for one in change["warnings"].as_array().into_iter().flatten() {
            lines.push(reports::warning(one.as_str().unwrap_or_default()));
        }
        self.say(lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[StyledLine]) -> String {
        lines.iter().map(|line| line.plain() + "\n").collect()
    }

    #[test]
    fn the_report_is_shown_with_numbered_choices() {
        let facts: SetupFacts = serde_json::from_value(json!({
            "ready": false, "with": null, "why": "no key",
            "agents": [{ "name": "codex", "version": "0.166", "signed_in": true, "usable": false, "why": "no key" }],
            "keys": [{ "name": "openai", "kind": "vendor", "source": "environment", "place": "OPENAI_API_KEY" }],
            "local_servers": [], "checks": [{ "name": "t", "purpose": "test", "command": "cargo test", "blocking": true }],
            "choices": [
                { "action": "agent_login", "name": "codex", "model": null, "title": "use codex", "about": "a" },
                { "action": "demo", "name": null, "model": null, "title": "watch the demo", "about": "b" },
                { "action": "enter_key", "name": null, "model": null, "title": "enter a key", "about": "c" },
            ],
        }))
        .expect("a report");
        let shown = text(&facts.lines());
        for part in [
            "codex 0.166 (signed in)   OPENAI_API_KEY",
            "cargo test",
            "no key",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let mut picker = facts.picker();
        assert!(text(&picker.view(80, 12)).contains("1  use codex"));
        picker.key(KeyEvent::from(KeyCode::Char('2')));
        assert_eq!(picker.selected(), Some(&PickedItem::Setup(SetupStep::Demo)));
    }

    #[test]
    fn a_key_is_masked_and_sent_when_it_is_complete() {
        let mut panel = KeyPanel::new("anthropic");
        assert!(matches!(
            panel.key(KeyEvent::from(KeyCode::Enter)),
            KeyEntry::Cancelled
        ));
        panel.paste("  sk-ant-0123\n");
        panel.key(KeyEvent::from(KeyCode::Char('4')));
        let (rows, cursor) = panel.rows(80);
        let shown = text(&rows);
        assert!(shown.contains("••••") && !shown.contains("0123"), "{shown}");
        assert_eq!(cursor, Some((1, 15)));
        assert!(panel.rows(6).1.is_some_and(|(_, column)| column < 6));
        let KeyEntry::Entered(params) = panel.key(KeyEvent::from(KeyCode::Enter)) else {
            panic!("it is complete");
        };
        assert_eq!(params["key"], "sk-ant-01234");
        assert!(matches!(
            panel.key(KeyEvent::from(KeyCode::Esc)),
            KeyEntry::Cancelled
        ));
    }
}
