//! Notifications about runs: webhooks, a command of the user, and the user's terminal. A run notifies when it asks, when its
//! changes land, and when it ends.
//!
//! Deliveries happen in the background: they neither delay nor fail a run. A failed one becomes a warning.
//!
//! ```
//! use std::time::Duration;
//!
//! use windlass::Notices;
//! use windlass::core::event::Event;
//! use windlass::notifications::{Channels, Notifier, RunNotifications, TerminalAlert, TerminalSetting};
//! use windlass::settings::Settings;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let settings = Settings::none(dir.path());
//! let notifier = Notifier::start(Notices::default());
//! let run = RunNotifications::open(&settings, &notifier, dir.path(), Channels::All);
//! let event = r#"{"v":2,"seq":7,"at":"2026-11-15T00:00:00.000Z","session":"s1","trace":"t","kind":"session_closed","data":{}}"#;
//! let event: Event = serde_json::from_str(event)?;
//! run.event(&event);
//! assert!(notifier.flush(Duration::from_secs(1)).await, "nothing was sent");
//!
//! assert_eq!(TerminalSetting::default(), TerminalSetting::Auto);
//! let alert = TerminalAlert::of(&settings).ok_or("a bell is the least")?;
//! assert_eq!(alert.text(&event, Duration::from_secs(60)), None);
//! # Ok(())
//! # }
//! ```

mod delivery;
mod terminal;
mod webhook;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use strum::{EnumString, IntoStaticStr, VariantNames};
use windlass_core::ask::About;
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, EventKind, Order};
use windlass_core::gate::keeps_secret;
use windlass_core::id::{RunId, SessionId};
use windlass_core::outcome::Outcome;

use crate::settings::Settings;
use crate::transcript::{counted, describe_call, dollars, first_line};

pub use self::delivery::Notifier;
pub use self::terminal::{TerminalAlert, TerminalSetting};

use self::delivery::QueuedDelivery;
use self::webhook::Webhook;

/// Maximum number of files that a notification lists.
const MAX_FILES: usize = 1_000;
/// Maximum length of a summary in characters.
const MAX_SUMMARY: usize = 200;

/// The events that notify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, EnumString, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
enum NotificationKind {
    Asked,
    RunFinished,
    Landed,
}

/// The body of a notification.
#[derive(Serialize)]
struct Notification<'a> {
    /// `SESSION:SEQ`. A notification that is delivered twice has the same id.
    id: String,
    kind: NotificationKind,
    at: Timestamp,
    session: &'a SessionId,
    workspace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a RunId>,
    summary: String,
    data: Value,
}

impl NotificationKind {
    fn of(event: &Event) -> Option<Self> {
        match &event.kind {
            EventKind::Asked { .. } => Some(Self::Asked),
            EventKind::RunFinished(_) => Some(Self::RunFinished),
            EventKind::Landed { .. } => Some(Self::Landed),
            _ => None,
        }
    }
}

impl<'a> Notification<'a> {
    fn of(event: &'a Event, workspace: &'a str) -> Option<Self> {
        let kind = NotificationKind::of(event)?;
        let place = match event.order {
            Order::Durable { seq } => seq.to_string(),
            // The log could not be written.
            Order::Live { after, n } => format!("{after}.{n}"),
        };
        Some(Self {
            id: format!("{}:{place}", event.session),
            kind,
            at: event.at,
            session: &event.session,
            workspace,
            run: event.run.as_ref(),
            summary: summary(&event.kind),
            data: data(&event.kind),
        })
    }
}

/// The event in one line.
fn summary(kind: &EventKind) -> String {
    let text = match kind {
        EventKind::Asked { ask } => match &ask.about {
            About::Approval(approval) => {
                format!("approval needed: {}", describe_call(&approval.call))
            }
            About::Landing(_) => "the changes need your approval to land".to_owned(),
            About::Question(question) => format!("question: {}", question.text),
        },
        EventKind::RunFinished(run) => {
            let mut text = run.outcome.word().replace('_', " ");
            if let Outcome::Failed { detail, .. } | Outcome::Refused { detail, .. } = &run.outcome {
                text.push_str(&format!(": {detail}"));
            }
            let (files, cost) = (counted(run.files.len(), "file"), run.totals.cost_micros);
            format!("{text} ({files} changed, {})", dollars(cost))
        }
        EventKind::Landed { landed, .. } => {
            format!("{} landed", counted(landed.files.len(), "file"))
        }
        _ => String::new(),
    };
    first_line(&text, MAX_SUMMARY)
}

fn data(kind: &EventKind) -> Value {
    match kind {
        EventKind::Asked { ask } => json!({ "ask": ask }),
        EventKind::RunFinished(run) => json!({
            "outcome": run.outcome,
            "files": run.files.iter().take(MAX_FILES).collect::<Vec<_>>(),
            "cost_usd": run.totals.cost_micros as f64 / 1_000_000.0,
        }),
        EventKind::Landed { landed, .. } => {
            json!({ "files": landed.files.iter().take(MAX_FILES).collect::<Vec<_>>() })
        }
        _ => Value::Null,
    }
}

/// The channels that a surface uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channels {
    /// Webhooks and the command of the user.
    All,
    /// Only the command of the user: a person at a terminal needs no webhook.
    Command,
}

/// `notify.command` with its environment.
#[derive(Debug)]
struct UserCommand {
    line: String,
    env: Vec<(OsString, OsString)>,
    /// Not the workspace: a relative path in the command must not name a file of the project.
    dir: PathBuf,
}

impl UserCommand {
    fn of(settings: &Settings) -> Option<Self> {
        let line = settings.layers.text("notify.command")?;
        if line.trim().is_empty() {
            return None;
        }
        let variables = settings.environment.variables();
        let env = variables.filter(|(name, _)| !keeps_secret(&name.to_string_lossy()));
        Some(Self {
            line: line.to_owned(),
            env: env.collect(),
            dir: settings.places.home.clone().unwrap_or_else(|| "/".into()),
        })
    }
}

/// The notifications about runs in one session, by the settings of its workspace.
pub struct RunNotifications {
    notifier: Notifier,
    workspace: String,
    webhooks: Vec<Arc<Webhook>>,
    command: Option<Arc<UserCommand>>,
}

impl RunNotifications {
    /// Reads the settings. A webhook that cannot be used is reported as a warning.
    #[must_use]
    pub fn open(
        settings: &Settings,
        notifier: &Notifier,
        workspace: &Path,
        channels: Channels,
    ) -> Self {
        let mut webhooks = Vec::new();
        if channels == Channels::All {
            for name in webhook_names(settings) {
                match Webhook::of(settings, &name) {
                    Ok(webhook) => webhooks.push(Arc::new(webhook)),
                    Err(why) => settings
                        .notices
                        .warn(&format!("the webhook `{name}` is not used: {why}")),
                }
            }
        }
        Self {
            notifier: notifier.clone(),
            workspace: workspace.display().to_string(),
            webhooks,
            command: UserCommand::of(settings).map(Arc::new),
        }
    }

    /// Queues the notifications that an event causes. Never blocks.
    pub fn event(&self, event: &Event) {
        let Some(kind) = NotificationKind::of(event) else {
            return;
        };
        let wanted: Vec<_> = self
            .webhooks
            .iter()
            .filter(|hook| hook.wants(kind))
            .collect();
        if wanted.is_empty() && self.command.is_none() {
            return;
        }
        let Some(notification) = Notification::of(event, &self.workspace) else {
            return;
        };
        let Ok(body) = serde_json::to_vec(&notification) else {
            return;
        };
        let body: Arc<[u8]> = body.into();
        for webhook in wanted {
            self.notifier.push(QueuedDelivery::Webhook {
                webhook: webhook.clone(),
                id: notification.id.clone(),
                body: body.clone(),
            });
        }
        if let Some(command) = &self.command {
            self.notifier.push(QueuedDelivery::Command {
                command: command.clone(),
                body,
            });
        }
    }
}

/// The names of the webhooks in the settings.
fn webhook_names(settings: &Settings) -> BTreeSet<String> {
    let keys = settings.layers.iter();
    let named = keys.filter_map(|(key, _)| key.strip_prefix("webhooks.")?.rsplit_once('.'));
    named
        .map(|(name, _)| name.trim_matches('"').to_owned())
        .collect()
}

#[cfg(test)]
#[path = "notifications/notifications_tests.rs"]
mod tests;
