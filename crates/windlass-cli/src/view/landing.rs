//! What the terminal shows of checks, landing and limits.

use windlass_core::budget::{Budget, Spent};
use windlass_core::event::EventKind;
use windlass_core::terms::{GateKind, MeteringKind, SandboxTier, Terms};
use windlass_core::validator::{Judgement, Report};
use windlass_core::workspace::Landed;

use super::progress::{dollars, thousands};
use super::style::Style;
use crate::safe::{message, one_line};

/// Findings of one validator that are shown.
const MAX_FINDINGS: usize = 10;
/// Paths of a list that are shown.
const MAX_PATHS: usize = 10;

/// The lines for an event, if it has any.
pub(super) fn lines(kind: &EventKind) -> Vec<(Style, String)> {
    match kind {
        EventKind::IterationStarted { iteration, .. } if *iteration > 1 => {
            vec![(
                Style::Dim,
                format!("try {iteration}, with what the checks found"),
            )]
        }
        EventKind::Validated {
            validator,
            blocking,
            report,
            ..
        } => validated(validator, *blocking, report),
        EventKind::Landed { landed, .. } => landing(landed),
        EventKind::Kept { name } => vec![(
            Style::Warning,
            format!(
                "not landed; kept as {name}: windlass diff {name} · land {name} · resume {name} · discard {name}"
            ),
        )],
        _ => Vec::new(),
    }
}

/// The terms of a run in one line.
pub(super) fn opened(terms: &Terms, name: Option<&str>) -> String {
    let place = match name {
        Some(name) => format!("on a copy ({}, {name})", terms.strategy),
        None => "in place: changes reach your files at once".to_owned(),
    };
    format!("{} · {place}", held(terms))
}

/// The tier, network and metering of a run, and what the tier does not hold.
fn held(terms: &Terms) -> String {
    let sandbox = match terms.tier {
        SandboxTier::None => format!("sandbox: {}", terms.confinement()),
        tier => format!("sandbox: {}", tier.word()),
    };
    let metering = match terms.metering {
        MeteringKind::Wire => "model calls metered",
        MeteringKind::Reported => "spending as the agent reports it",
        MeteringKind::None => "spending not metered",
    };
    let mut line = format!("{sandbox} · network: {} · {metering}", terms.network);
    if !terms.not_held.is_empty() {
        line.push_str(&format!(" · not held: {}", terms.not_held.join("; ")));
    }
    line
}

/// What holds an agent that is not ours, said before it starts.
pub(super) fn foreign(name: &str, terms: &Terms) -> Vec<(Style, String)> {
    let gate = match terms.gate {
        GateKind::PerCall => "each call is judged",
        GateKind::SandboxOnly => "calls are not judged one by one, the sandbox holds them",
    };
    let version = terms
        .agent_version
        .as_ref()
        .map(|version| format!(" {}", one_line(version)))
        .unwrap_or_default();
    let (confinement, network) = (terms.confinement(), &terms.network);
    let mut lines = vec![(
        Style::Dim,
        format!("{name}{version} works on a copy ({confinement}); {gate}; network: {network}"),
    )];
    if !terms.not_held.is_empty() {
        lines.push((
            Style::Dim,
            format!("not held: {}", terms.not_held.join("; ")),
        ));
    }
    match terms.metering {
        MeteringKind::Wire => {
            lines.push((Style::Dim, "metering: wire (its model is asked through us, with a key it never sees)".into()))
        }
        MeteringKind::Reported => lines.push((
            Style::Warning,
            "metering: reported (what it spends is its own word, limits are looked at between its turns, it reaches its vendor itself, and it holds \
             your login)"
                .into(),
        )),
        MeteringKind::None => lines
            .push((Style::Warning, "metering: none (nothing is counted or limited, and it holds your login)".into())),
    }
    lines
}

fn validated(validator: &str, blocking: bool, report: &Report) -> Vec<(Style, String)> {
    let name = one_line(validator);
    let (style, text) = match report.judgement {
        Judgement::Pass => (Style::Added, format!("✓ {name}")),
        Judgement::Fail if blocking => (Style::Removed, format!("✗ {name}")),
        Judgement::Fail => (
            Style::Warning,
            format!("! {name} (does not stop the landing)"),
        ),
        Judgement::Unverifiable => (Style::Warning, format!("? {name} could not be established")),
    };
    let mut lines = vec![(style, text)];
    let shown = report.findings.iter().take(MAX_FINDINGS);
    lines.extend(shown.map(|finding| (Style::Dim, format!("  {}", message(&finding.to_string())))));
    let more = report.findings.len().saturating_sub(MAX_FINDINGS);
    if more > 0 {
        lines.push((Style::Dim, format!("  … and {more} more")));
    }
    lines
}

fn landing(landed: &Landed) -> Vec<(Style, String)> {
    let files = if landed.files.len() == 1 {
        "1 file".to_owned()
    } else {
        format!("{} files", landed.files.len())
    };
    let mut lines = vec![(
        Style::Added,
        match (&landed.patch, &landed.commit) {
            (Some(patch), _) => format!("patch of {files} written to {}", one_line(patch)),
            (_, Some(commit)) => format!(
                "landed {files} as commit {}",
                commit.get(..12).unwrap_or(commit)
            ),
            _ if landed.files.is_empty() => "no file was changed".to_owned(),
            _ => format!("landed {files}; `windlass undo` takes them back"),
        },
    )];
    if let Some(refname) = &landed.refname {
        lines.push((Style::Dim, format!("  the run's own commits: {refname}")));
    }
    if !landed.executes.is_empty() {
        let text = format!(
            "  will execute on your machine: {}",
            listed(&landed.executes)
        );
        lines.push((Style::Warning, text));
    }
    if !landed.left.is_empty() {
        lines.push((
            Style::Dim,
            format!("  ignored or built, left behind: {}", listed(&landed.left)),
        ));
    }
    lines
}

fn listed(paths: &[String]) -> String {
    let mut text = paths
        .iter()
        .take(MAX_PATHS)
        .map(|path| one_line(path))
        .collect::<Vec<_>>()
        .join(", ");
    if paths.len() > MAX_PATHS {
        text.push_str(&format!(" and {} more", paths.len() - MAX_PATHS));
    }
    text
}

/// What was spent of what was allowed.
pub(super) fn limits(limits: &Budget, spent: &Spent, ms: u64) -> String {
    let of = |is: String, max: Option<String>| {
        format!("{is} of {}", max.unwrap_or_else(|| "unlimited".to_owned()))
    };
    let tokens = if spent.usage.cached() {
        limits.tokens
    } else {
        limits.tokens_uncached
    };
    let seconds = of(
        (ms / 1000).to_string(),
        limits.seconds.map(|max| max.to_string()),
    );
    format!(
        "tries {} · steps {} · tokens {} · cost {} · seconds {seconds}",
        of(
            spent.iterations.to_string(),
            limits.iterations.map(|max| max.to_string())
        ),
        of(
            spent.steps.to_string(),
            limits.steps.map(|max| max.to_string())
        ),
        of(thousands(spent.usage.counted()), tokens.map(thousands)),
        of(dollars(spent.cost_micros), limits.cost_micros.map(dollars)),
    )
}
