//! `context`: shows the use of the context window in a session, and the cost of a step.

use std::process::ExitCode;

use windlass::context::{ContextReport, InputCost, LastStep, context_report};
use windlass::core::workspace::Files;
use windlass::machine::SessionLog;
use windlass_text::sanitize::one_line;

use super::block_on;
use crate::args::ContextArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::process;
use crate::sanitize::json_line;
use windlass::transcript::counted;
use windlass::{find_session, newest};

/// The width of the bar for 100 %, in columns.
const BAR_WIDTH: usize = 30;

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
        let report = context_report(&settings, &store, &id, args.cd.as_deref(), args.at).await?;
        Ok(exit::print(&if args.json {
            json_line(&report)
        } else {
            text(&report)
        }))
    })
}

fn text(report: &ContextReport) -> String {
    let total = report.bytes.max(1);
    let mut text = format!(
        "session {}, model {}\n\n",
        report.session,
        one_line(&report.model)
    );
    let widths = report.rows.iter().map(|row| row.what.chars().count());
    let wide = widths.max().unwrap_or(0).min(48);
    for row in &report.rows {
        let share = row.bytes as f64 / total as f64;
        let bar = "█".repeat((share * BAR_WIDTH as f64).round() as usize);
        let what: String = one_line(&row.what).chars().take(wide).collect();
        let line = format!(
            "{what:<wide$} {:>9} tokens {:>5.1} %  {bar}",
            row.tokens,
            share * 100.0
        );
        text.push_str(&format!("{}\n", line.trim_end()));
    }
    let tokens = report.tokens;
    text.push_str(&format!("{:<wide$} {tokens:>9} tokens", "total"));
    text.push_str(&match (report.window, report.reserve) {
        (Some(window), Some(reserve)) => format!(
            " of {window} ({:.1} %); compaction above {}\n",
            tokens as f64 / window.max(1) as f64 * 100.0,
            window - reserve
        ),
        _ => "; the size of the model's context window is unknown\n".to_owned(),
    });
    text.push_str(&costs(&report.step));
    if let Some(last) = report.compactions.last() {
        let why = last
            .by
            .map_or("older messages had to be dropped", |by| by.words());
        let times = counted(report.compactions.len(), "time");
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

fn costs(step: &InputCost) -> String {
    let dollars = |micros: u64| format!("${:.4}", micros as f64 / 1e6);
    let mut text = match (step.uncached_micros, step.cached_micros) {
        (Some(uncached), Some(cached)) => format!(
            "the input of the next step costs about {} uncached, {} cached\n",
            dollars(uncached),
            dollars(cached)
        ),
        _ => "the price of the model is unknown; set it with `prices` in the settings\n".to_owned(),
    };
    if let Some(LastStep { usage, cost_micros }) = step.last {
        let input = usage.total_input();
        let share = usage.cache_read as f64 / input.max(1) as f64 * 100.0;
        text.push_str(&format!(
            "the last step sent {input} tokens, {share:.0} % of them from the cache"
        ));
        text.push_str(&cost_micros.map_or_else(
            || "\n".to_owned(),
            |cost| format!(", for {}\n", dollars(cost)),
        ));
    }
    text
}
