//! `stats`: reports steps, tokens, cost, time, calls and checks of sessions, from their logs.

use std::process::ExitCode;

use futures_util::StreamExt;
use serde_json::{Value, json};
use windlass::core::budget::Usage;
use windlass::core::event::EventKind;
use windlass::core::id::SessionId;
use windlass::core::store::{SessionStore, StoreError};
use windlass::machine::SessionLog;
use windlass::stats::{CallStats, Stats, cache_hits};
use windlass::transcript::{counted, dollars};

use super::block_on;
use crate::args::{StatsArgs, StatsBy};
use crate::command_error::CommandError;
use crate::out::say;
use crate::process;
use crate::sanitize::{message, one_line};
use crate::{exit, out};
use windlass::{find_session, newest};

pub(super) fn run(args: &StatsArgs) -> Result<ExitCode, CommandError> {
    let places = process::places()?;
    let store = SessionLog::new(places.sessions_dir());
    let stats = block_on(gather(&store, args))?;
    match (args.by, args.json) {
        (Some(by), true) => rows(&stats, by).iter().for_each(out::json),
        (Some(by), false) => out::out(&table(&stats, by)),
        (None, true) => out::json(&as_json(&stats)),
        (None, false) => out::out(&as_text(&stats)),
    }
    Ok(exit::after_output(0))
}

async fn gather(store: &SessionLog, args: &StatsArgs) -> Result<Stats, CommandError> {
    if let Some(session) = &args.session {
        let root = process::open_workspace(None).ok();
        let id = find_session(store, root.as_ref(), session).await?;
        return Ok(fold(store, &id, &[]).await?);
    }
    if !args.all {
        let root = process::open_workspace(None)?;
        return Ok(fold(store, &newest(store, &root).await?, &[]).await?);
    }
    let (mut all, mut ids) = (Stats::default(), Vec::new());
    let mut heads = store.list();
    while let Some(head) = heads.next().await {
        match head {
            Ok(head) => ids.push(head.id),
            Err(err) => say!("warning: skipped: {}", message(&err.to_string())),
        }
    }
    for id in &ids {
        match fold(store, id, &ids).await {
            Ok(one) => all.add(one),
            Err(err) => say!("warning: skipped: {}", message(&err.to_string())),
        }
    }
    Ok(all)
}

/// Counts the events of one log. The copied part of a fork is not counted if `others` contains the original session.
async fn fold(
    store: &SessionLog,
    id: &SessionId,
    others: &[SessionId],
) -> Result<Stats, StoreError> {
    let mut stats = Stats::default();
    let mut events = store.read(id, 1);
    while let Some(event) = events.next().await {
        let event = event?;
        stats.apply(&event);
        if let EventKind::Forked { from, .. } = &event.kind
            && from != id
            && others.contains(from)
        {
            let sessions = stats.sessions;
            stats = Stats::default();
            stats.sessions = sessions;
        }
    }
    Ok(stats)
}

/// The totals as names and values.
pub(super) fn totals(stats: &Stats) -> Vec<(&'static str, String)> {
    let sum = &stats.total;
    let spent = &sum.spent;
    let mut lines = vec![
        ("sessions", stats.sessions.to_string()),
        ("runs", format!("{}{}", stats.runs.len(), outcomes(stats))),
        (
            "time",
            format!(
                "{}, of which models {} and calls {}",
                time(sum.ms),
                time(sum.model_ms),
                time(sum.calls.ms)
            ),
        ),
        (
            "steps",
            format!("{} in {} iterations", spent.steps, spent.iterations),
        ),
        ("tokens", tokens(&spent.usage)),
        ("cost", cost(spent.cost_micros, spent.unpriced)),
        ("calls", calls(&sum.calls)),
        (
            "commands",
            format!(
                "{}, {} failed, {}",
                sum.commands.count,
                sum.commands.failed,
                time(sum.commands.ms)
            ),
        ),
        (
            "waits",
            format!("{} for {}", sum.waits.count, time(sum.waits.ms)),
        ),
        (
            "asks",
            format!(
                "{}, {} answered by a person, {} pending; answers took {}",
                sum.asks.count,
                sum.asks.by_person,
                sum.asks.open,
                time(sum.asks.ms)
            ),
        ),
        (
            "checks",
            format!(
                "{}: {} passed, {} failed, {} undecided; {}",
                sum.checks.count,
                sum.checks.passed,
                sum.checks.failed,
                sum.checks.unverifiable,
                time(sum.checks.ms)
            ),
        ),
        (
            "files",
            format!(
                "{} changed (+{} -{})",
                stats.files.len(),
                sum.added,
                sum.removed
            ),
        ),
    ];
    if spent.estimated {
        lines.push((
            "note",
            "some token counts are estimates, because the server reported none".to_owned(),
        ));
    }
    if sum.refused_connections > 0 {
        lines.push((
            "network",
            format!("{} connections refused", sum.refused_connections),
        ));
    }
    lines
}

fn as_text(stats: &Stats) -> String {
    let lines = totals(stats).into_iter();
    let mut text: String = lines
        .map(|(name, value)| format!("{name:<10} {value}\n"))
        .collect();
    for (title, by) in [("models", StatsBy::Model), ("tools", StatsBy::Tool)] {
        let table = table(stats, by);
        if !table.is_empty() {
            text.push_str(&format!("\n{title}\n{table}"));
        }
    }
    for (name, one) in &stats.validators {
        let line = format!(
            "{}, {} passed, {}",
            counted(usize::try_from(one.count).unwrap_or(usize::MAX), "time"),
            one.passed,
            time(one.ms)
        );
        text.push_str(&format!("check {}: {line}\n", one_line(name)));
    }
    text
}

fn table(stats: &Stats, by: StatsBy) -> String {
    let mut text = String::new();
    match by {
        StatsBy::Tool => {
            for (name, one) in &stats.tools {
                text.push_str(&format!("{:<20} {}\n", one_line(name), calls(one)));
            }
        }
        StatsBy::Model => {
            for (name, one) in &stats.models {
                let (used, cost) = (tokens(&one.usage), cost(one.cost_micros, one.unpriced > 0));
                text.push_str(&format!(
                    "{:<20} {} calls, {}, {used}, {cost}\n",
                    one_line(name),
                    one.calls,
                    time(one.ms)
                ));
            }
        }
        StatsBy::Run => {
            for run in &stats.runs {
                let (sum, outcome) = (&run.sum, run.outcome.as_deref().unwrap_or("open"));
                text.push_str(&format!(
                    "{}  {:<4} {outcome:<12} {:>4} steps  {:>9} tokens  {:>10}  {:>8}  {} calls, {} failed\n",
                    run.session,
                    run.run.as_str(),
                    sum.spent.steps,
                    sum.spent.usage.counted(),
                    cost(sum.spent.cost_micros, sum.spent.unpriced),
                    time(sum.ms),
                    sum.calls.count,
                    sum.calls.failed,
                ));
            }
        }
        StatsBy::Step => {
            for step in &stats.steps {
                let cost = cost(step.cost_micros.unwrap_or(0), step.cost_micros.is_none());
                text.push_str(&format!(
                    "{}  {:<4} {:>4}  {:<20} {}, {cost}, model {}, {}\n",
                    step.session,
                    step.run.as_str(),
                    step.step,
                    one_line(&step.model),
                    tokens(&step.usage),
                    time(step.model_ms),
                    calls(&step.calls),
                ));
            }
        }
    }
    text
}

fn rows(stats: &Stats, by: StatsBy) -> Vec<Value> {
    let named = |name: &String, value: Value| {
        let mut row = json!({ "name": name });
        if let (Some(row), Value::Object(value)) = (row.as_object_mut(), value) {
            row.extend(value);
        }
        row
    };
    let (tools, models) = (stats.tools.iter(), stats.models.iter());
    match by {
        StatsBy::Tool => tools.map(|(name, one)| named(name, json!(one))).collect(),
        StatsBy::Model => models.map(|(name, one)| named(name, json!(one))).collect(),
        StatsBy::Run => stats.runs.iter().map(|run| json!(run)).collect(),
        StatsBy::Step => stats.steps.iter().map(|step| json!(step)).collect(),
    }
}

fn as_json(stats: &Stats) -> Value {
    let mut value = json!(stats);
    value["total"]["cache_hits"] = json!(cache_hits(&stats.total.spent.usage));
    value
}

/// Counts the runs by outcome.
fn outcomes(stats: &Stats) -> String {
    let mut words: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for run in &stats.runs {
        *words
            .entry(run.outcome.as_deref().unwrap_or("open"))
            .or_default() += 1;
    }
    let words: Vec<String> = words
        .iter()
        .map(|(word, count)| format!("{count} {word}"))
        .collect();
    if words.is_empty() {
        String::new()
    } else {
        format!(" ({})", words.join(", "))
    }
}

fn tokens(usage: &Usage) -> String {
    let hits = cache_hits(usage).map_or_else(String::new, |hits| {
        format!(" ({:.0} % from a cache)", hits * 100.0)
    });
    format!("{} in{hits}, {} out", usage.total_input(), usage.output)
}

fn calls(calls: &CallStats) -> String {
    let mut text = format!(
        "{} calls, {} failed, {} denied",
        calls.count, calls.failed, calls.denied
    );
    if calls.interrupted > 0 {
        text.push_str(&format!(", {} interrupted", calls.interrupted));
    }
    format!(
        "{text}, {} (longest {})",
        time(calls.ms),
        time(calls.longest_ms)
    )
}

fn cost(micros: u64, unpriced: bool) -> String {
    let known = dollars(micros);
    match (unpriced, micros) {
        (false, _) => known,
        (true, 0) => "price unknown".to_owned(),
        (true, _) => format!("{known} plus calls of unknown price"),
    }
}

fn time(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
    }
}
