//! `context`: shows the use of the context window in a session, and the cost of a step. Sizes come from the log and the
//! current instruction layers; tokens are estimates, corrected by the counts that the vendor reported.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use futures_util::StreamExt;
use serde_json::{Value, json};
use windlass::core::budget::{Estimator, Price, Usage};
use windlass::core::context::{Compaction, is_words, reserve};
use windlass::core::event::EventKind;
use windlass::core::history::{Entry, History};
use windlass::core::id::SessionId;
use windlass::core::message::{Part, Role};
use windlass::core::provider::ModelFacts;
use windlass::core::store::SessionStore;
use windlass::core::workspace::Files;
use windlass::machine::Root;
use windlass::machine::SessionLog;
use windlass::model::{VENDORS, models};

use super::block_on;
use crate::args::ContextArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::process;
use crate::sanitize::{json_line, one_line};
use windlass::instructions::{Prompt, PromptInputs};
use windlass::program_tools::offered_tools;
use windlass::settings::Settings;
use windlass::transcript::counted;
use windlass::wire;
use windlass::{find_session, newest};

/// The width of the bar for 100 %, in columns.
const BAR_WIDTH: usize = 30;
/// The most message bytes in memory while a log is read.
const MAX_HELD: usize = 256 << 20;

pub(super) fn run(args: &ContextArgs) -> Result<ExitCode, CommandError> {
    block_on(async {
        let here = process::open_workspace(args.cd.as_deref());
        let here = match &args.session {
            Some(_) => here.ok(),
            None => Some(here?),
        };
        let settings = process::load_settings(here.as_ref().map(Files::root))?;
        let store = SessionLog::new(settings.places.sessions_dir());
        let id = match (&args.session, &here) {
            (Some(named), root) => find_session(&store, root.as_ref(), named).await?,
            (None, Some(root)) => newest(&store, root).await?,
            (None, None) => {
                return Err(CommandError::usage(
                    "name a session; `windlass sessions list` lists them",
                ));
            }
        };
        let read = WindowFacts::of(&store, &id).await?;
        let report = ContextReport::of(&settings, read, args.cd.as_deref())?;
        Ok(exit::print(&if args.json {
            report.json(&id)
        } else {
            report.text(&id)
        }))
    })
}

/// The facts of a log that concern the context window.
#[derive(Default)]
struct WindowFacts {
    history: History,
    estimator: Estimator,
    /// The usage of the last model call, and its cost in micro-USD if known.
    last: Option<(Usage, Option<u64>)>,
    /// The bytes and the input tokens of the last call for which the vendor reported the usage.
    reported: Option<(usize, u64)>,
    compactions: Vec<Compaction>,
}

impl WindowFacts {
    async fn of(store: &SessionLog, id: &SessionId) -> Result<Self, CommandError> {
        let mut read = Self::default();
        let mut sent = None;
        let mut events = store.read(id, 1);
        while let Some(event) = events.next().await {
            let event = event?;
            match &event.kind {
                // The request contained the messages before the answer. Calls for summaries have no answer in the log.
                EventKind::Said { message, .. } if message.role == Role::Assistant => {
                    sent = Some(read.history.held())
                }
                EventKind::Spent {
                    call,
                    cost_micros,
                    estimated,
                    ..
                } => {
                    if let Some(bytes) = sent.take() {
                        read.last = Some((*call, *cost_micros));
                        if !estimated {
                            read.reported = Some((bytes, call.total_input()));
                        }
                    }
                }
                EventKind::Compacted { compaction } => {
                    read.compactions.push(Compaction {
                        summary: String::new(),
                        ..compaction.clone()
                    });
                }
                _ => {}
            }
            read.history.apply(&event);
            read.history.bound(MAX_HELD);
        }
        Ok(read)
    }
}

/// The use of the context window by category.
struct ContextReport {
    rows: Vec<(String, usize)>,
    read: WindowFacts,
    model: String,
    facts: ModelFacts,
}

impl ContextReport {
    fn of(
        settings: &Settings,
        mut read: WindowFacts,
        cd: Option<&Path>,
    ) -> Result<Self, CommandError> {
        let mut rows = Vec::new();
        // The layers come from the workspace of the session, if it still exists.
        if let Ok(root) = Root::open(Path::new(read.history.workspace())) {
            let redactor = wire::redactor(settings)?;
            let (validators, isolated) = (&[], true);
            let inputs = PromptInputs {
                settings,
                root: &root,
                cd,
                isolated,
                validators,
                redactor: redactor.as_ref(),
            };
            for layer in Prompt::of(&inputs).layers {
                let what = layer.path.map_or_else(
                    || layer.kind.to_owned(),
                    |path| format!("{} {path}", layer.kind),
                );
                rows.push((format!("system: {what}"), layer.text.len()));
            }
        }
        let tools = offered_tools(settings)?;
        let described = tools
            .iter()
            .map(|tool| tool.spec().description.len() + tool.spec().schema.to_string().len());
        rows.push(("tools".into(), described.sum()));
        if let Some((bytes, tokens)) = read.reported {
            // The count of the vendor includes the system prompt and the tools.
            let base: usize = rows.iter().map(|(_, bytes)| bytes).sum();
            read.estimator.correct(base + bytes, tokens);
        }
        rows.extend(messages(&read.history.entries()));
        let model = read.history.model().unwrap_or_default().to_owned();
        let mut facts = facts(settings, &model);
        // A model whose last call cost nothing is free, even if the price table does not know it.
        facts.price = facts
            .price
            .or_else(|| (read.last?.1? == 0).then_some(Price::FREE));
        Ok(Self {
            rows,
            read,
            model,
            facts,
        })
    }

    fn tokens(&self, bytes: usize) -> u64 {
        self.read.estimator.tokens(bytes)
    }

    fn total_bytes(&self) -> usize {
        self.rows.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The cost of the input of the next step in micro-USD: uncached, and completely cached.
    fn step_cost(&self) -> Option<(u64, u64)> {
        let price: Price = self.facts.price?;
        let input = self.tokens(self.total_bytes());
        let of = |usage: Usage| price.cost(usage);
        Some((
            of(Usage {
                input,
                ..Usage::default()
            }),
            of(Usage {
                cache_read: input,
                ..Usage::default()
            }),
        ))
    }

    fn json(&self, id: &SessionId) -> String {
        let total = self.total_bytes().max(1);
        let row = |(what, bytes): &(String, usize)| {
            let share = (*bytes as f64 / total as f64 * 1_000.0).round() / 1_000.0;
            json!({ "what": what, "bytes": bytes, "tokens": self.tokens(*bytes), "share": share })
        };
        let window = self.facts.context_window;
        let last = self
            .read
            .last
            .map(|(usage, cost)| json!({ "usage": usage, "cost_micros": cost }));
        json_line(&json!({
            "session": id,
            "model": self.model,
            "window": window,
            "reserve": window.map(reserve),
            "bytes": self.total_bytes(),
            "tokens": self.tokens(self.total_bytes()),
            "rows": self.rows.iter().map(row).collect::<Vec<Value>>(),
            "step": {
                "uncached_micros": self.step_cost().map(|(fresh, _)| fresh),
                "cached_micros": self.step_cost().map(|(_, cached)| cached),
                "last": last,
            },
            "compactions": self.read.compactions,
        }))
    }

    fn text(&self, id: &SessionId) -> String {
        let total = self.total_bytes().max(1);
        let mut text = format!("session {id}, model {}\n\n", one_line(&self.model));
        let wide = self
            .rows
            .iter()
            .map(|(what, _)| what.chars().count())
            .max()
            .unwrap_or(0)
            .min(48);
        for (what, bytes) in &self.rows {
            let share = *bytes as f64 / total as f64;
            let bar = "█".repeat((share * BAR_WIDTH as f64).round() as usize);
            let what: String = one_line(what).chars().take(wide).collect();
            let tokens = self.tokens(*bytes);
            let line = format!(
                "{what:<wide$} {tokens:>9} tokens {:>5.1} %  {bar}",
                share * 100.0
            );
            text.push_str(&format!("{}\n", line.trim_end()));
        }
        let tokens = self.tokens(total);
        text.push_str(&format!("{:<wide$} {tokens:>9} tokens", "total"));
        text.push_str(&match self.facts.context_window {
            Some(window) => {
                let (free, used) = (
                    reserve(window),
                    tokens as f64 / window.max(1) as f64 * 100.0,
                );
                format!(
                    " of {window} ({used:.1} %); compaction above {}\n",
                    window - free
                )
            }
            None => "; the size of the model's context window is unknown\n".to_owned(),
        });
        text.push_str(&self.costs());
        if let Some(last) = self.read.compactions.last() {
            let why = last
                .by
                .map_or("older messages had to be dropped", |by| by.words());
            let times = counted(self.read.compactions.len(), "time");
            text.push_str(&format!(
                "the conversation was compacted {times}, last because {why}; omitted then:\n"
            ));
            for row in &last.left_out {
                text.push_str(&format!(
                    "  {} {} ({} bytes)\n",
                    row.count,
                    one_line(&row.what),
                    row.bytes
                ));
            }
            text.push_str("the log still has everything; see it with `windlass sessions show`\n");
        }
        text
    }

    fn costs(&self) -> String {
        let dollars = |micros: u64| format!("${:.4}", micros as f64 / 1e6);
        let mut text = match self.step_cost() {
            Some((fresh, cached)) => format!(
                "the input of the next step costs about {} uncached, {} cached\n",
                dollars(fresh),
                dollars(cached)
            ),
            None => "the price of the model is unknown; set it with `prices` in the settings\n"
                .to_owned(),
        };
        if let Some((usage, cost)) = self.read.last {
            let input = usage.total_input();
            let share = usage.cache_read as f64 / input.max(1) as f64 * 100.0;
            text.push_str(&format!(
                "the last step sent {input} tokens, {share:.0} % of them from the cache"
            ));
            text.push_str(&cost.map_or_else(
                || "\n".to_owned(),
                |cost| format!(", for {}\n", dollars(cost)),
            ));
        }
        text
    }
}

/// Sums the sizes of the messages by kind; those of tool results by tool.
fn messages(entries: &[Entry]) -> Vec<(String, usize)> {
    let mut rows: BTreeMap<(u8, String), usize> = BTreeMap::new();
    let mut add = |order: u8, what: &str, bytes: usize| {
        *rows.entry((order, what.to_owned())).or_default() += bytes
    };
    for entry in entries {
        match entry.role {
            Role::User if entry.is_summary() => add(0, "summary", entry.bytes()),
            Role::User if is_words(entry) => add(1, "your messages", entry.bytes()),
            Role::User => add(4, "messages of the engine", entry.bytes()),
            Role::Assistant => {
                let calls: usize = entry
                    .calls()
                    .map(|call| call.name.len() + call.args.to_string().len() + 32)
                    .sum();
                add(2, "answers", entry.bytes().saturating_sub(calls));
                if calls > 0 {
                    add(3, "calls", calls);
                }
            }
            Role::Tool => {
                for part in &entry.parts {
                    if let Part::Result(result) = part {
                        add(
                            5,
                            &format!("results of {}", result.name),
                            result.text.len() + 32,
                        );
                    }
                }
            }
        }
    }
    rows.into_iter()
        .map(|((_, what), bytes)| (what, bytes))
        .collect()
}

/// Finds price and context window of a model: of the vendor in the settings, or else of any vendor with this model.
fn facts(settings: &Settings, model: &str) -> ModelFacts {
    let named = settings.layers.text("provider");
    let vendors = VENDORS.iter().map(|vendor| vendor.id);
    let mut facts = named
        .into_iter()
        .chain(vendors)
        .find_map(|vendor| models::lookup(vendor, model))
        .unwrap_or_default();
    facts.price = wire::price(settings, model).or(facts.price);
    facts.context_window = wire::window(settings, model).or(facts.context_window);
    facts
}
