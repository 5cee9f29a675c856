//! `stats`: reports steps, tokens, cost, time, calls and checks of sessions, from their logs.

use std::process::ExitCode;

use windlass::machine::SessionLog;
use windlass::stats::{
    NamedModel, StatRow, StatTotals, Stats, StatsBy, StatsScope, describe_calls, describe_cost,
    describe_duration, describe_tokens, gather_stats, total_lines,
};
use windlass::transcript::counted;
use windlass_text::sanitize::one_line;

use super::block_on;
use crate::args::StatsArgs;
use crate::command_error::CommandError;
use crate::process;
use crate::{exit, out};
use windlass::{find_session, newest};

pub(super) fn run(args: &StatsArgs) -> Result<ExitCode, CommandError> {
    let places = process::places()?;
    let store = SessionLog::new(places.sessions_dir());
    let stats = block_on(async {
        let scope = scope(&store, args).await?;
        Ok(gather_stats(&store, &scope, &process::notices()).await?)
    })?;
    match (args.by, args.json) {
        (Some(by), true) => stats.rows(by).iter().for_each(out::json),
        (Some(by), false) => out::out(&table(&stats, by)),
        (None, true) => out::json(&stats),
        (None, false) => out::out(&as_text(&stats)),
    }
    Ok(exit::after_output(0))
}

/// The sessions to count: the named one, all, or the newest one of the workspace.
async fn scope(store: &SessionLog, args: &StatsArgs) -> Result<StatsScope, CommandError> {
    if let Some(session) = &args.session {
        let root = process::open_workspace(None).ok();
        let id = find_session(store, root.as_ref(), session).await?;
        return Ok(StatsScope::Session(id));
    }
    if args.all {
        return Ok(StatsScope::All);
    }
    let root = process::open_workspace(None)?;
    Ok(StatsScope::Session(newest(store, &root).await?))
}

fn as_text(stats: &Stats) -> String {
    let lines = total_lines(stats).into_iter();
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
            describe_duration(one.ms)
        );
        text.push_str(&format!("check {}: {line}\n", one_line(name)));
    }
    text
}

fn table(stats: &Stats, by: StatsBy) -> String {
    stats.rows(by).iter().map(row).collect()
}

fn row(row: &StatRow) -> String {
    match row {
        StatRow::Tool(tool) => {
            format!(
                "{:<20} {}\n",
                one_line(&tool.name),
                describe_calls(&tool.calls)
            )
        }
        StatRow::Model(NamedModel { name, model }) => format!(
            "{:<20} {} calls, {}, {}, {}\n",
            one_line(name),
            model.calls,
            describe_duration(model.ms),
            describe_tokens(&model.usage),
            describe_cost(model.cost_micros, model.unpriced > 0),
        ),
        StatRow::Run(run) => {
            let (sum, outcome) = (&run.sum, run.outcome.as_deref().unwrap_or("open"));
            format!(
                "{}  {:<4} {outcome:<12} {}\n",
                run.session,
                run.run.as_str(),
                sums(sum),
            )
        }
        StatRow::Runs(group) => format!(
            "{:<20} {:>4} runs  {}\n",
            one_line(&group.name),
            group.runs,
            sums(&group.sum)
        ),
        StatRow::Step(step) => format!(
            "{}  {:<4} {:>4}  {:<20} {}, {}, model {}, {}\n",
            step.session,
            step.run.as_str(),
            step.step,
            one_line(&step.model),
            describe_tokens(&step.usage),
            describe_cost(step.cost_micros.unwrap_or(0), step.cost_micros.is_none()),
            describe_duration(step.model_ms),
            describe_calls(&step.calls),
        ),
    }
}

fn sums(sum: &StatTotals) -> String {
    format!(
        "{:>4} steps  {:>9} tokens  {:>10}  {:>8}  {} calls, {} failed",
        sum.spent.steps,
        sum.spent.usage.counted(),
        describe_cost(sum.spent.cost_micros, sum.spent.unpriced),
        describe_duration(sum.ms),
        sum.calls.count,
        sum.calls.failed,
    )
}
