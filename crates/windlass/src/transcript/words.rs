//! Phrases that lines are made of: calls, outcomes, terms, changes and numbers.

use std::borrow::Cow;

use serde_json::{Value, json};
use windlass_core::ask::Answer;
use windlass_core::budget::{Budget, Spent};
use windlass_core::context::Compaction;
use windlass_core::event::Event;
use windlass_core::id::SessionId;
use windlass_core::message::ToolCall;
use windlass_core::outcome::{FailReason, Outcome, RunSummary};
use windlass_core::provider::ProviderErrorKind;
use windlass_core::run::Judged;
use windlass_core::terms::{GateKind, MeteringKind, SandboxTier, Terms};
use windlass_core::workspace::{Change, FileChange, Landed, Redactor};
use windlass_host::secret::Secrets;

use super::{Actor, LineBlock, Severity, TranscriptLine, Visibility};

/// Paths of a list that are shown before "and N more".
const MAX_PATHS: usize = 10;
/// Arguments that describe the subject of a call: those of the built-in tools first, then those of other agents.
const SUBJECTS: [&str; 12] = [
    "command",
    "path",
    "pattern",
    "glob",
    "from",
    "question",
    "expression",
    "job",
    "file_path",
    "filePath",
    "url",
    "text",
];

/// A call in one line: the tool and the subject of the call.
///
/// ```
/// use serde_json::json;
/// use windlass::core::message::ToolCall;
///
/// let call = ToolCall {
///     id: "1".into(),
///     name: "bash".into(),
///     args: json!({ "command": "cargo test" }),
///     malformed: None,
/// };
/// assert_eq!(windlass::transcript::describe_call(&call), "$ cargo test");
/// ```
#[must_use]
pub fn describe_call(call: &ToolCall) -> String {
    let text = |key: &&str| call.args.get(*key).and_then(Value::as_str);
    // A call that changes several files names them file by file.
    let paths = || {
        let changes = call.args.get("changes")?.as_array()?.iter();
        let paths: Vec<&str> = changes.filter_map(|one| one["path"].as_str()).collect();
        Some(paths.join(", "))
    };
    let about = SUBJECTS.iter().find_map(text).map(str::to_owned);
    let about = match about.or_else(paths).filter(|about| !about.is_empty()) {
        Some(about) => about,
        None if call.args.as_object().is_none_or(serde_json::Map::is_empty) => String::new(),
        None => call.args.to_string(),
    };
    let name = match call.name.as_str() {
        // The prompt sign replaces the name of the shell tool.
        "bash" if text(&"command").is_some() => "$".into(),
        name => flat(name),
    };
    let more = match about.trim().lines().count() {
        0 | 1 => String::new(),
        lines => format!(" (+{})", counted(lines - 1, "line")),
    };
    format!("{name} {}{more}", first_line(&about, 160))
        .trim_end()
        .to_owned()
}

/// A number with its noun: `1 file`, `2 files`.
///
/// ```
/// assert_eq!(windlass::transcript::counted(1, "file"), "1 file");
/// assert_eq!(windlass::transcript::counted(1200, "file"), "1,200 files");
/// ```
#[must_use]
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(count as u64))
}

/// Shortens an absolute path in the workspace, or in the copy of an isolated run, to a path relative to the workspace.
pub(super) fn within(shown: &str, workspace: &str) -> String {
    let Some((name, about)) = shown.split_once(' ') else {
        return shown.to_owned();
    };
    let in_copy = || {
        let (above, rest) = about.split_once("/transactions/")?;
        let (copy, path) = rest.split_once("/tree/")?;
        let plain = above.starts_with('/') && !above.contains(' ') && !copy.contains(['/', ' ']);
        plain.then_some(path)
    };
    let root = workspace.trim_end_matches('/');
    let in_tree = || about.strip_prefix(root)?.strip_prefix('/');
    match in_tree().filter(|_| !root.is_empty()).or_else(in_copy) {
        Some(path) => format!("{name} {path}"),
        None => shown.to_owned(),
    }
}

/// An outcome as a word, a detail, and advice for the user. `kept` is the name of the kept run, if the run was kept.
///
/// ```
/// use windlass::core::outcome::Outcome;
///
/// let (word, detail, hint) = windlass::transcript::explain_outcome(&Outcome::MaxSteps, &"s1".parse()?, None);
/// assert_eq!((word.as_str(), detail.as_str()), ("max steps", "the step limit is reached"));
/// assert!(hint.is_some_and(|hint| hint.contains("windlass resume s1")));
/// # Ok::<(), windlass::core::id::IdError>(())
/// ```
#[must_use]
pub fn explain_outcome(
    outcome: &Outcome,
    session: &SessionId,
    kept: Option<&str>,
) -> (String, String, Option<String>) {
    // A kept run is resumed by its name. If the session were resumed, the next run would not have the kept changes.
    let resume = format!("`windlass resume {}`", kept.unwrap_or(session.as_str()));
    let (detail, hint) = match outcome {
        Outcome::Failed {
            reason,
            detail,
            provider_error,
        } => {
            let hint = match (reason, provider_error) {
                (_, Some(ProviderErrorKind::Authentication)) => {
                    Some("check the key; `windlass doctor` shows which key is used".to_owned())
                }
                (_, Some(ProviderErrorKind::ModelNotFound)) => {
                    Some("`windlass models` lists the known models".to_owned())
                }
                (FailReason::Provider, _) => {
                    Some(format!("nothing is lost: {resume} continues from here"))
                }
                _ => None,
            };
            (detail.clone(), hint)
        }
        Outcome::Refused { detail, .. } => (detail.clone(), None),
        Outcome::BudgetExceeded { limit } => (
            format!("the next model call would have crossed the limit on {limit}"),
            Some(format!("raise the limit and continue with {resume}")),
        ),
        Outcome::MaxSteps => (
            "the step limit is reached".into(),
            Some(format!(
                "{resume} continues with the same number of steps again; `--max-steps` raises the limit"
            )),
        ),
        Outcome::TimedOut => (
            "the time limit is reached".into(),
            Some(format!(
                "continue with {resume}; `--max-seconds` raises the limit"
            )),
        ),
        _ => (String::new(), None),
    };
    let word = match outcome {
        Outcome::Failed { reason, .. } => {
            format!("failed ({})", json!(reason).as_str().unwrap_or_default())
        }
        other => other.word().replace('_', " "),
    };
    (word, detail, hint)
}

/// The first line of a text, truncated to `most` characters.
///
/// ```
/// assert_eq!(windlass::transcript::first_line("one\ntwo", 10), "one");
/// assert_eq!(windlass::transcript::first_line("a long line", 5), "a lo…");
/// ```
#[must_use]
pub fn first_line(text: &str, most: usize) -> String {
    let line = text.trim_start().lines().next().unwrap_or_default();
    if line.chars().count() <= most {
        return line.to_owned();
    }
    let start = line.chars().take(most.saturating_sub(1));
    start.chain(['…']).collect()
}

/// A number with commas between groups of three digits.
///
/// ```
/// assert_eq!(windlass::transcript::thousands(1_234_567), "1,234,567");
/// ```
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Micro-USD as dollars, with four decimals, so that a single cheap call is not zero.
///
/// ```
/// assert_eq!(windlass::transcript::dollars(12_345_678), "$12.3456");
/// ```
#[must_use]
pub fn dollars(micros: u64) -> String {
    format!("${}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100)
}

/// A duration in milliseconds or seconds, for people.
///
/// ```
/// assert_eq!(windlass::transcript::seconds(999), "999 ms");
/// assert_eq!(windlass::transcript::seconds(1_500), "1.5 s");
/// ```
#[must_use]
pub fn seconds(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ => format!("{:.1} s", ms as f64 / 1_000.0),
    }
}

/// Replaces line breaks, so that a hostile name cannot forge a line of the engine.
pub(super) fn flat(text: &str) -> Cow<'_, str> {
    match text.contains('\n') {
        true => text.replace('\n', "⏎").into(),
        false => text.into(),
    }
}

/// The beginning of a text for the facts of a line. Secrets are redacted again, because facts go into audits.
pub(super) fn fact(text: &str, most: usize) -> String {
    first_line(&Secrets::default().redact(text), most)
}

/// The first paths of a list, and the number of the others.
pub(super) fn paths(paths: &[String]) -> String {
    let shown: Vec<_> = paths
        .iter()
        .take(MAX_PATHS)
        .map(|path| flat(path))
        .collect();
    let shown = shown.join(", ");
    match paths.len().saturating_sub(MAX_PATHS) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

pub(super) fn file_change(change: &FileChange) -> String {
    let what: Cow<'_, str> = match &change.change {
        Change::Created => "created".into(),
        Change::Modified => "changed".into(),
        Change::Deleted => "deleted".into(),
        Change::MovedFrom(from) => format!("moved from {}", flat(from)).into(),
    };
    let lines = match change.line_counts() {
        counts if counts.is_empty() || counts == "+0 -0" => String::new(),
        counts => format!(" ({counts})"),
    };
    format!("{} {what}{lines}", flat(&change.path))
}

/// An answer as a word for programs, as the end of a title, and the text that the user typed.
pub(super) fn answer(answer: &Answer) -> (&'static str, &'static str, Option<&str>) {
    match answer {
        Answer::Once => ("once", ": yes, once", None),
        Answer::Always { rule } => ("always", ": yes, always", rule.as_deref()),
        Answer::No { note } => ("no", ": no", note.as_deref()),
        Answer::Text { text } => ("text", "", Some(text)),
        Answer::Expired => ("expired", ": no person answered in time", None),
        Answer::Unanswered => ("unanswered", ": no person was there to ask", None),
        Answer::Abandoned => ("abandoned", ": no longer needed", None),
    }
}

pub(super) fn compaction(compaction: &Compaction) -> String {
    let rows = compaction.left_out.iter();
    let rows: Vec<_> = rows
        .map(|row| format!("{} {}", row.count, flat(&row.what)))
        .collect();
    let what = match rows.is_empty() {
        true => "older messages".to_owned(),
        false => rows.join(", "),
    };
    let how = match compaction.summary.is_empty() {
        true => "without",
        false => "with a summary in place of",
    };
    let why = compaction
        .by
        .map_or(String::new(), |by| format!(", because {}", by.words()));
    format!(
        "compacted the conversation: the model continues {how} {what}{why}; the log keeps everything"
    )
}

/// The sandbox tier, network and metering of a run, the limits of the tier, and whether the run is isolated.
pub(super) fn terms(terms: &Terms, name: Option<&str>) -> String {
    let sandbox = match terms.tier {
        SandboxTier::None => terms.confinement(),
        tier => tier.word().into(),
    };
    let metering = match terms.metering {
        MeteringKind::Wire => "model calls metered",
        MeteringKind::Reported => "spending as the agent reports it",
        MeteringKind::None => "spending not metered",
    };
    let not_held = match terms.not_held.is_empty() {
        true => String::new(),
        false => format!(" · not held: {}", terms.not_held.join("; ")),
    };
    let place = match name {
        Some(name) => format!("on a copy ({}, {name})", terms.strategy),
        None => "in place: changes reach your files at once".to_owned(),
    };
    format!(
        "sandbox: {sandbox} · network: {} · {metering}{not_held} · {place}",
        terms.network
    )
}

/// The terms of a run with a foreign agent, shown before the agent starts.
pub(super) fn agent_terms<'e>(name: &str, terms: &Terms) -> (String, Vec<LineBlock<'e>>) {
    let gate = match terms.gate {
        GateKind::PerCall => "each call is checked",
        GateKind::SandboxOnly => "calls are not checked one by one, only the sandbox limits them",
    };
    let version = terms.agent_version.as_ref();
    let version = version.map_or(String::new(), |version| format!(" {}", flat(version)));
    let (confinement, network) = (terms.confinement(), &terms.network);
    let title =
        format!("{name}{version} works on a copy ({confinement}); {gate}; network: {network}");
    let mut notes = Vec::new();
    if !terms.not_held.is_empty() {
        let text = format!("not held: {}", terms.not_held.join("; "));
        notes.push(LineBlock::Note(Severity::Info, text));
    }
    let (severity, metering) = match terms.metering {
        MeteringKind::Wire => (
            Severity::Info,
            "wire (its model calls go through Windlass, with a key that it never sees)",
        ),
        MeteringKind::Reported => (
            Severity::Warning,
            "reported (it reports its own spending, limits are checked only between its turns, it connects to its \
             vendor directly, and it has your login)",
        ),
        MeteringKind::None => (
            Severity::Warning,
            "none (spending is not counted or limited, and it has your login)",
        ),
    };
    notes.push(LineBlock::Note(severity, format!("metering: {metering}")));
    (title, notes)
}

pub(super) fn landed<'e>(landed: &Landed) -> (String, Vec<LineBlock<'e>>) {
    let files = counted(landed.files.len(), "file");
    let title = match (&landed.patch, &landed.commit) {
        (Some(patch), _) => format!("patch of {files} written to {}", flat(patch)),
        (_, Some(commit)) => {
            let commit = commit.get(..12).unwrap_or(commit);
            format!("landed {files} as commit {commit}")
        }
        _ if landed.files.is_empty() => "no file was changed".to_owned(),
        _ => format!("landed {files}; undo with `windlass undo`"),
    };
    let mut notes = vec![LineBlock::Detail(paths(&landed.files))];
    if let Some(refname) = &landed.refname {
        let text = format!("the run's own commits: {refname}");
        notes.push(LineBlock::Note(Severity::Info, text));
    }
    if !landed.executes.is_empty() {
        let text = format!("will execute on your machine: {}", paths(&landed.executes));
        notes.push(LineBlock::Note(Severity::Warning, text));
    }
    if !landed.left.is_empty() {
        let text = format!(
            "not landed (ignored files, build outputs): {}",
            paths(&landed.left)
        );
        notes.push(LineBlock::Note(Severity::Info, text));
    }
    (title, notes)
}

pub(super) fn run_finished<'e>(event: &'e Event, summary: &'e RunSummary) -> TranscriptLine<'e> {
    let (outcome, totals) = (&summary.outcome, &summary.totals);
    let (word, detail, hint) =
        explain_outcome(outcome, &event.session, summary.transaction.as_deref());
    let cost = match totals.unpriced {
        true => "price unknown".to_owned(),
        false => dollars(totals.cost_micros),
    };
    let steps = counted(totals.steps as usize, "step");
    let changes = match (outcome, summary.files.is_empty()) {
        (Outcome::Completed | Outcome::CompletedWithLimitExceeded { .. }, true) => {
            " · no files changed"
        }
        _ => "",
    };
    let title = format!(
        "{word}{changes} · {steps} · {} tokens · {cost} · {}",
        thousands(totals.usage.total_input() + totals.usage.output),
        seconds(summary.ms),
    );
    let severity = match outcome {
        Outcome::Completed => Severity::Success,
        _ => Severity::Failure,
    };
    let limits = summary.limits.as_ref().map(|limits| {
        let text = spent_of(limits, totals, summary.ms);
        match outcome {
            Outcome::BudgetExceeded { .. }
            | Outcome::CompletedWithLimitExceeded { .. }
            | Outcome::MaxSteps
            | Outcome::TimedOut => LineBlock::Note(Severity::Info, text),
            _ => LineBlock::Detail(text),
        }
    });
    let detail = (!detail.is_empty()).then_some(LineBlock::Note(Severity::Info, detail));
    TranscriptLine::new(event, Actor::Engine, title)
        .level(Visibility::Live, severity)
        .did(
            "ended the run",
            json!({ "outcome": outcome.word(), "totals": totals, "ms": summary.ms,
                "judge_changed": summary.judge_changed }),
        )
        .with(detail)
        .with(summary.files.iter().map(LineBlock::File))
        .with(hint.map(LineBlock::Hint))
        .with(limits)
}

/// The spending of a run, next to its limits.
fn spent_of(limits: &Budget, spent: &Spent, ms: u64) -> String {
    let of = |is: String, max: Option<String>| {
        format!("{is} of {}", max.unwrap_or_else(|| "unlimited".to_owned()))
    };
    let number = |is: u64, max: Option<u64>| of(is.to_string(), max.map(|max| max.to_string()));
    let tokens = match spent.usage.cached() {
        true => limits.tokens,
        false => limits.tokens_uncached,
    };
    format!(
        "attempts {} · steps {} · tokens {} · cost {} · seconds {}",
        number(spent.iterations.into(), limits.iterations.map(u64::from)),
        number(spent.steps.into(), limits.steps.map(u64::from)),
        of(thousands(spent.usage.counted()), tokens.map(thousands)),
        of(dollars(spent.cost_micros), limits.cost_micros.map(dollars)),
        number(ms / 1000, limits.seconds),
    )
}

/// The verdict on an iteration.
pub(super) fn judged(result: &Judged) -> String {
    match result {
        Judged::Passed { ask: None } => "nothing blocks the landing".to_owned(),
        Judged::Passed { ask: Some(ask) } if ask.paths.is_empty() => format!(
            "nothing new fails; a person is asked about checks that failed before: {}",
            first_line(&ask.failing.join(", "), 120)
        ),
        Judged::Passed { ask: Some(ask) } => {
            let paths = counted(ask.paths.len(), "path");
            format!("no check blocks the landing; a person is asked about {paths}")
        }
        Judged::NothingChanged => "no file was changed".to_owned(),
        Judged::Blocked {
            validator,
            findings,
        } => {
            let validator = first_line(validator, 80);
            format!(
                "{validator} blocks with {}",
                counted(findings.len(), "finding")
            )
        }
        Judged::Stale { paths: changed } => {
            format!(
                "files changed meanwhile ({}); checking again",
                paths(changed)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_relative_to_the_workspace() {
        let check = |shown: &str, expect: &str| assert_eq!(within(shown, "/home/me/ws"), expect);
        check("Edit /home/me/ws/src/a.rs", "Edit src/a.rs");
        check(
            "Edit /data/transactions/calm-fox-1/tree/src/a.rs",
            "Edit src/a.rs",
        );
        check("Read /home/me/wsx/a", "Read /home/me/wsx/a");
        check("Bash cat /home/me/ws/a", "Bash cat /home/me/ws/a");
        check("Bash", "Bash");
        assert_eq!(within("Edit /a", ""), "Edit /a");
    }
}
