//! The content of the next model request of a session, by layer, and the cost of a step. Sizes come from the log and the
//! current instruction layers; tokens are estimates, corrected by the counts that the vendor reported.
//!
//! ```
//! use windlass::context::{ContextReport, ContextRow, InputCost, LastStep, context_report};
//! use windlass::machine::SessionLog;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (work, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # let model = windlass_testing::ScriptedProvider::new([windlass_testing::says("hello")]);
//! # let windlass = windlass::Windlass::without_settings(work.path(), data.path())?
//! #     .provider(std::sync::Arc::new(model), "scripted");
//! # let session = windlass.run("greet me").await?.session;
//! let settings = windlass.settings();
//! let store = SessionLog::new(settings.places.sessions_dir());
//! let report: ContextReport = context_report(settings, &store, &session, None, None).await?;
//! let rows: &[ContextRow] = &report.rows;
//! assert!(rows.iter().any(|row| row.what == "your messages" && row.bytes > 0));
//! let (cost, last): (&InputCost, Option<LastStep>) = (&report.step, report.step.last);
//! assert!(cost.uncached_micros.is_some() && last.is_some());
//!
//! let before = context_report(settings, &store, &session, None, Some(1)).await?;
//! assert!(before.bytes < report.bytes, "the run had not started");
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::budget::{Estimator, Price, Usage};
use windlass_core::context::{Compaction, is_words, reserve};
use windlass_core::event::EventKind;
use windlass_core::history::{Entry, History};
use windlass_core::id::SessionId;
use windlass_core::message::{Part, Role};
use windlass_core::provider::ModelFacts;
use windlass_core::store::SessionStore;
use windlass_host::session_log::SessionLog;
use windlass_host::workspace::Root;
use windlass_providers::{VENDORS, models};

use crate::error::Error;
use crate::instructions::{Prompt, PromptInputs};
use crate::program_tools::offered_tools;
use crate::settings::Settings;
use crate::wire;

/// The most message bytes in memory while a log is read.
const MAX_HELD: usize = 256 << 20;

/// The content of the next model request, and its cost.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ContextReport {
    pub session: SessionId,
    pub model: String,
    /// The context window of the model in tokens; `None` if it is unknown.
    pub window: Option<u64>,
    /// The tokens of the window that stay free: above the rest, the conversation is compacted.
    pub reserve: Option<u64>,
    pub bytes: usize,
    /// An estimate; so are the tokens of the rows.
    pub tokens: u64,
    /// The layers of the system prompt, the tools, and the messages by kind.
    pub rows: Vec<ContextRow>,
    pub step: InputCost,
    /// Without the texts of the summaries.
    pub compactions: Vec<Compaction>,
}

/// A part of a request.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ContextRow {
    pub what: String,
    pub bytes: usize,
    pub tokens: u64,
    /// The share of the request, from 0 to 1.
    pub share: f64,
}

/// The cost of the input of the next step in micro-USD; `None` if the price is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InputCost {
    /// The cost if nothing is cached.
    pub uncached_micros: Option<u64>,
    /// The cost if everything is cached.
    pub cached_micros: Option<u64>,
    /// The last step, if there was one.
    pub last: Option<LastStep>,
}

/// The tokens and the cost of the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LastStep {
    pub usage: Usage,
    /// Micro-USD; `None` if the price is unknown.
    pub cost_micros: Option<u64>,
}

/// The next request of a session, with the instruction files of `cd` in its workspace. With `at`, the request after the
/// event of this number, and the present instructions and tools.
pub async fn context_report(
    settings: &Settings,
    store: &SessionLog,
    session: &SessionId,
    cd: Option<&Path>,
    at: Option<u64>,
) -> Result<ContextReport, Error> {
    let mut read = WindowFacts::read(store, session, at).await?;
    let mut sizes = Vec::new();
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
            sizes.push((format!("system: {what}"), layer.text.len()));
        }
    }
    let tools = offered_tools(settings)?;
    let described = tools
        .iter()
        .map(|tool| tool.spec().description.len() + tool.spec().schema.to_string().len());
    sizes.push(("tools".into(), described.sum()));
    if let Some((bytes, tokens)) = read.reported {
        // The count of the vendor includes the system prompt and the tools.
        let base: usize = sizes.iter().map(|(_, bytes)| bytes).sum();
        read.estimator.correct(base + bytes, tokens);
    }
    sizes.extend(messages(&read.history.entries()));
    let model = read.history.model().unwrap_or_default().to_owned();
    let facts = facts(settings, &model);
    // A model whose last call cost nothing is free, even if the price table does not know it.
    let is_free = read.last.is_some_and(|last| last.cost_micros == Some(0));
    let price = facts.price.or_else(|| is_free.then_some(Price::FREE));

    let bytes: usize = sizes.iter().map(|(_, bytes)| bytes).sum();
    let tokens = |bytes: usize| read.estimator.tokens(bytes);
    let input = tokens(bytes);
    let cost = |usage: Usage| price.map(|price| price.cost(usage));
    let rows = sizes.into_iter().map(|(what, size)| ContextRow {
        what,
        bytes: size,
        tokens: tokens(size),
        share: (size as f64 / bytes.max(1) as f64 * 1_000.0).round() / 1_000.0,
    });
    Ok(ContextReport {
        session: session.clone(),
        model,
        window: facts.context_window,
        reserve: facts.context_window.map(reserve),
        bytes,
        tokens: input,
        rows: rows.collect(),
        step: InputCost {
            uncached_micros: cost(Usage {
                input,
                ..Usage::default()
            }),
            cached_micros: cost(Usage {
                cache_read: input,
                ..Usage::default()
            }),
            last: read.last,
        },
        compactions: read.compactions,
    })
}

/// The facts of a log that concern the context window.
#[derive(Default)]
struct WindowFacts {
    history: History,
    estimator: Estimator,
    last: Option<LastStep>,
    /// The bytes and the input tokens of the last call for which the vendor reported the usage.
    reported: Option<(usize, u64)>,
    compactions: Vec<Compaction>,
}

impl WindowFacts {
    async fn read(store: &SessionLog, id: &SessionId, at: Option<u64>) -> Result<Self, Error> {
        let mut read = Self::default();
        let mut sent = None;
        let mut events = store.read(id, 1);
        while let Some(event) = events.next().await {
            let event = event?;
            if at.is_some_and(|at| event.order.seq() > Some(at)) {
                break;
            }
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
                        read.last = Some(LastStep {
                            usage: *call,
                            cost_micros: *cost_micros,
                        });
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
