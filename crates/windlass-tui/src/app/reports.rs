//! Results of commands as lines of the conversation.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use windlass::core::ask::Ask;
use windlass::core::budget::Spent;
use windlass::transcript::thousands;
use windlass_text::{StyledLine, TextStyle, Tone, sanitize};

use crate::backend::OperationError;
use crate::composer::{ListPicker, PickerItem, key_bindings};
use crate::conversation::{WaitingPrompt, money};
use crate::shell::ShellOutput;

use super::commands::COMMANDS;
use super::keys::APP_KEYS;
use super::panels::PickedItem;

/// Lines of the output of a shell command.
const SHELL_LINES: usize = 60;
/// Rows of a report.
const MAX_ROWS: usize = 60;

/// The state of a session when the interface opens it.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct SessionFacts {
    pub(crate) workspace: String,
    pub(crate) asks: Vec<Ask>,
    pub(crate) queue: Vec<QueuedFact>,
    pub(crate) kept: Option<String>,
    pub(crate) spent: Spent,
    pub(crate) last_seq: u64,
    pub(crate) run: Option<RunFact>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct QueuedFact {
    seq: u64,
    prompt: String,
    steer: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RunFact {
    pub(crate) iteration: u32,
    pub(crate) paused: bool,
}

impl SessionFacts {
    pub(crate) fn of(detail: &Value) -> Self {
        // A newer server may have a detail in another form; the events have everything, too.
        serde_json::from_value(detail.clone()).unwrap_or_default()
    }

    pub(crate) fn waiting(&self) -> Vec<WaitingPrompt> {
        let one = |fact: &QueuedFact| WaitingPrompt {
            seq: fact.seq,
            text: fact.prompt.clone(),
            steer: fact.steer,
        };
        self.queue.iter().map(one).collect()
    }
}

pub(super) fn remark(text: &str) -> StyledLine {
    StyledLine::of(format!(" {}", sanitize::one_line(text)), Tone::Muted).with_indent(1)
}

pub(super) fn warning(text: &str) -> StyledLine {
    StyledLine::of(" ⚠ ", Tone::Warn)
        .with(sanitize::one_line(text), Tone::Text)
        .with_indent(3)
}

pub(super) fn error(error: &OperationError) -> Vec<StyledLine> {
    let mut lines = vec![
        StyledLine::of(" ✗ ", Tone::Bad)
            .with(sanitize::one_line(&error.detail), Tone::Text)
            .with_indent(3),
    ];
    if let Some(hint) = &error.hint {
        let hint = format!("   {}", sanitize::one_line(hint));
        lines.push(StyledLine::of(hint, Tone::Muted).with_indent(3));
    }
    lines
}

pub(super) fn heading(text: &str) -> StyledLine {
    StyledLine::of(format!(" {text}"), TextStyle::from(Tone::Text).bold())
}

/// A name, padded to a width, and a text.
pub(super) fn row(name: &str, width: usize, text: &str) -> StyledLine {
    let name = sanitize::one_line(name);
    StyledLine::of(format!("   {name:<width$}  "), Tone::Muted)
        .with(sanitize::one_line(text), Tone::Text)
        .with_indent(width + 5)
}

pub(super) fn shell(command: &str, output: &ShellOutput) -> Vec<StyledLine> {
    let text = sanitize::plain(output.text.trim_end()).into_owned();
    let all: Vec<&str> = text.lines().collect();
    let skipped = all.len().saturating_sub(SHELL_LINES);
    let mut lines = Vec::new();
    if skipped > 0 {
        lines.push(StyledLine::of(format!("   … {skipped} lines"), Tone::Muted));
    }
    let shown = all.iter().skip(skipped);
    lines.extend(shown.map(|line| StyledLine::of(format!("   {line}"), Tone::Text).with_indent(3)));
    match output.exit {
        Some(0) if lines.is_empty() => {
            lines.push(remark(&format!("  `{command}` printed nothing")))
        }
        Some(0) => {}
        Some(code) => lines.push(StyledLine::of(format!("   exit {code}"), Tone::Bad)),
        None => lines.push(StyledLine::of("   the shell ended", Tone::Warn)),
    }
    lines
}

/// The commands and keys.
pub(super) fn help() -> Vec<StyledLine> {
    let mut lines = vec![heading("Commands")];
    for command in COMMANDS {
        let name = format!("/{} {}", command.name, command.arguments);
        lines.push(row(name.trim_end(), 24, command.summary));
    }
    lines.push(row(
        "!command",
        24,
        "run a command in your own shell, without the sandbox",
    ));
    lines.push(row("#text", 24, "add to the notes of the session"));
    lines.push(row("@path", 24, "attach a file"));
    lines.push(StyledLine::default());
    lines.push(heading("Keys"));
    for key in APP_KEYS {
        lines.push(row(key.keys, 30, key.help));
    }
    // The interface uses some keys before the composer can.
    let is_taken = |keys: &str| {
        keys.starts_with("ctrl-")
            && APP_KEYS
                .iter()
                .any(|key| key.keys.eq_ignore_ascii_case(keys))
    };
    let bindings = key_bindings().iter().filter(|one| !is_taken(one.keys));
    lines.extend(bindings.map(|one| row(one.keys, 30, one.help)));
    lines
}

/// The report of the context of the next request.
pub(super) fn context(report: &Value) -> Vec<StyledLine> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let tokens = number(&report["tokens"]);
    let window = report["window"].as_u64();
    let of = window.map_or_else(String::new, |window| format!(" of {window}"));
    let mut lines = vec![heading(&format!("Context: about {tokens}{of} tokens"))];
    let rows = report["rows"].as_array().cloned().unwrap_or_default();
    for one in rows.iter().take(MAX_ROWS) {
        let share = one["share"].as_f64().unwrap_or(0.0);
        let bar = "█".repeat((share * 20.0).round() as usize);
        let text = format!("{:>7} tokens  {bar}", number(&one["tokens"]));
        lines.push(row(one["what"].as_str().unwrap_or_default(), 28, &text));
    }
    lines
}

/// The report of what the session cost.
pub(super) fn cost(report: &Value) -> Vec<StyledLine> {
    let total = &report["total"];
    let spent = &total["spent"];
    let micros = spent["cost_micros"].as_u64().unwrap_or(0);
    let mut lines = vec![heading(&format!("Cost: {}", money(micros)))];
    let runs = report["runs"].as_array().map_or(0, Vec::len);
    let facts = [
        ("runs", &Value::from(runs)),
        ("model calls", &spent["steps"]),
        ("tool calls", &total["calls"]["count"]),
        ("input tokens", &spent["usage"]["input"]),
        ("input tokens from a cache", &spent["usage"]["cache_read"]),
        ("output tokens", &spent["usage"]["output"]),
    ];
    for (label, value) in facts {
        let value = value.as_u64().map_or_else(String::new, thousands);
        lines.push(row(label, 28, &value));
    }
    for (model, stats) in report["models"].as_object().into_iter().flatten() {
        let micros = stats["cost_micros"].as_u64().unwrap_or(0);
        lines.push(row(model, 28, &money(micros)));
    }
    lines
}

/// The report of `doctor`: one line for each finding.
pub(super) fn doctor(report: &Value) -> Vec<StyledLine> {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let mut lines = vec![heading(&text(report, "summary"))];
    for finding in report["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .take(MAX_ROWS)
    {
        let (mark, tone) = match (finding["ok"].as_bool(), finding["needed"].as_bool()) {
            (Some(true), _) => ("✓", Tone::Ok),
            (_, Some(true)) => ("✗", Tone::Bad),
            _ => ("⚠", Tone::Warn),
        };
        let name = sanitize::one_line(&text(finding, "what")).into_owned();
        let detail = sanitize::one_line(&text(finding, "detail")).into_owned();
        lines.push(
            StyledLine::of(format!("   {mark} "), tone)
                .with(format!("{name:<24}  "), Tone::Text)
                .with(detail, Tone::Muted)
                .with_indent(31),
        );
    }
    if let Some(todo) = report["todo"].as_str() {
        lines.push(remark(todo));
    }
    lines
}

/// The diff of all files of a report of changes.
pub(super) fn diff(report: &Value) -> String {
    let files = report["files"].as_array().into_iter().flatten();
    files.filter_map(|file| file["diff"].as_str()).collect()
}

/// The rules of the permission gate.
pub(super) fn permissions(settings: &Value, mode: &str) -> Vec<StyledLine> {
    let mut lines = vec![
        heading("Permissions"),
        row(
            "approval mode",
            20,
            &format!("{mode} (Shift-Tab changes it)"),
        ),
    ];
    for setting in settings.as_array().into_iter().flatten() {
        let name = setting["key"].as_str().unwrap_or_default();
        if !(name.starts_with("rules.") || name.starts_with("sandbox.") || name == "approval") {
            continue;
        }
        let value = setting["value"].as_str().unwrap_or_default();
        let origin = setting["origin"].as_str().unwrap_or_default();
        lines.push(row(name, 20, &format!("{value}  {origin}")));
    }
    lines.push(remark(
        "  `windlass policy explain` explains the decision about a call",
    ));
    lines
}

/// The result of an undo or a redo.
pub(super) fn undone(verb: &str, report: &Value) -> Vec<StyledLine> {
    let paths = |name: &str| -> Vec<String> {
        let items = report[name].as_array().into_iter().flatten();
        items
            .filter_map(|one| one["path"].as_str().or_else(|| one.as_str()))
            .map(str::to_owned)
            .collect()
    };
    let files = paths("files");
    let mut lines = Vec::new();
    if files.is_empty() {
        lines.push(remark("no file has to change"));
    }
    // The event of the undo names the files in the conversation.
    for merged in paths("merged") {
        lines.push(remark(&format!("{verb} {merged}, merged with later edits")));
    }
    for conflict in report["conflicts"].as_array().into_iter().flatten() {
        let (path, why) = (conflict[0].as_str(), conflict[1].as_str());
        let text = format!("{}: {}", path.unwrap_or_default(), why.unwrap_or_default());
        lines.push(warning(&text));
    }
    lines
}

/// The files that going back to an earlier prompt restored.
pub(super) fn restored(report: &Value) -> Vec<StyledLine> {
    let mut lines = undone("undid", report);
    let files = report["files"].as_array().into_iter().flatten();
    let names = files.filter_map(|one| one["path"].as_str().or_else(|| one.as_str()));
    lines.extend(names.map(|name| remark(&format!("restored {name}"))));
    lines
}

/// The name of an entry, and what is known of it.
fn item(
    value: PickedItem,
    columns: Vec<String>,
    preview: Vec<StyledLine>,
) -> PickerItem<PickedItem> {
    PickerItem {
        value,
        columns,
        preview,
    }
}

pub(super) fn sessions(page: &Value) -> ListPicker<PickedItem> {
    let items = page["items"].as_array().into_iter().flatten();
    let items = items.filter_map(|one| {
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        let id = text("id");
        let preview = vec![
            heading(&sanitize::one_line(&text("title"))),
            row("session", 10, &id),
            row("workspace", 10, &text("workspace")),
            row("events", 10, &one["events"].to_string()),
        ];
        let last: String = text("last").chars().take(16).collect();
        let columns = vec![last.replace('T', " "), text("state"), text("title")];
        Some(item(
            PickedItem::Session(id.parse().ok()?),
            columns,
            preview,
        ))
    });
    ListPicker::new("Resume a session", items.collect())
}

pub(super) fn models(list: &Value) -> ListPicker<PickedItem> {
    let mut items: Vec<PickerItem<PickedItem>> = Vec::new();
    let mut ready = Vec::new();
    for vendor in list["vendors"].as_array().into_iter().flatten() {
        let name = vendor["vendor"].as_str().unwrap_or_default();
        if vendor["ready"].as_bool() == Some(true) {
            ready.push(name);
        }
        for model in vendor["serves"].as_array().into_iter().flatten() {
            let full = format!("{name}/{}", model.as_str().unwrap_or_default());
            let columns = vec![full.clone(), "served".to_owned()];
            items.push(item(PickedItem::Model(full), columns, Vec::new()));
        }
    }
    let known = list["models"].as_array().into_iter().flatten();
    // Models that can be used at once come first.
    let (usable, other): (Vec<_>, Vec<_>) =
        known.partition(|model| ready.iter().any(|vendor| model["vendor"] == **vendor));
    for (model, state) in usable
        .into_iter()
        .map(|model| (model, "ready"))
        .chain(other.into_iter().map(|model| (model, "needs a key")))
    {
        let text = |name: &str| model[name].as_str().unwrap_or_default();
        let full = format!("{}/{}", text("vendor"), text("model"));
        let window = model["context_window"].as_u64().unwrap_or(0) / 1_000;
        let (input, output) = (&model["input_usd"], &model["output_usd"]);
        let price = format!("${input} in, ${output} out per million");
        let columns = vec![full.clone(), state.to_owned(), format!("{window}k"), price];
        items.push(item(PickedItem::Model(full), columns, Vec::new()));
    }
    ListPicker::new("Choose the model of the next run", items)
}

pub(super) fn agents(list: &Value) -> ListPicker<PickedItem> {
    let items = list.as_array().into_iter().flatten().filter_map(|one| {
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        let name = one["name"].as_str()?.to_owned();
        let state = match one["usable"].as_bool() {
            Some(true) => format!("ready {}", text("with")),
            _ => text("why"),
        };
        let preview = vec![
            heading(&sanitize::one_line(&text("about"))),
            row("version", 10, &text("version")),
            row("to do", 10, &text("todo")),
        ];
        let columns = vec![name.clone(), text("version"), state];
        Some(item(PickedItem::Agent(name), columns, preview))
    });
    ListPicker::new("Choose the agent of the next run", items.collect())
}

/// A list of names.
pub(super) fn names(
    title: &str,
    names: &[&str],
    value: fn(String) -> PickedItem,
) -> ListPicker<PickedItem> {
    let items = names.iter().map(|name| {
        let name = (*name).to_owned();
        item(value(name.clone()), vec![name], Vec::new())
    });
    ListPicker::new(title, items.collect())
}

/// The points that a session can go back to: its prompts.
pub(super) fn points(prompts: &[(u64, String)]) -> ListPicker<PickedItem> {
    let items = prompts.iter().rev().map(|(seq, text)| {
        let columns = vec![format!("#{seq}"), text.clone()];
        item(PickedItem::Point(*seq), columns, Vec::new())
    });
    ListPicker::new("Go back to before this prompt", items.collect())
}

/// The parts that can be restored at a point.
pub(super) fn rewinds(to: u64) -> ListPicker<PickedItem> {
    let choices = [
        (
            true,
            true,
            "files and conversation",
            "undo the changes since, and continue in a copy of the session",
        ),
        (
            false,
            true,
            "conversation",
            "continue in a copy of the session; the files stay",
        ),
        (
            true,
            false,
            "files",
            "undo the changes since; the conversation stays",
        ),
    ];
    let items = choices.iter().map(|(files, fork, name, about)| {
        let value = PickedItem::Rewind {
            to,
            files: *files,
            fork: *fork,
        };
        item(
            value,
            vec![(*name).to_owned(), (*about).to_owned()],
            Vec::new(),
        )
    });
    ListPicker::new(format!("Restore at #{to}"), items.collect())
}

/// The prompts that wait.
pub(super) fn queue(waiting: &[WaitingPrompt]) -> ListPicker<PickedItem> {
    let items = waiting.iter().map(|one| {
        let when = if one.steer {
            "next step"
        } else {
            "after this run"
        };
        let columns = vec![when.to_owned(), one.text.clone()];
        item(PickedItem::Queued(one.seq), columns, Vec::new())
    });
    ListPicker::new(
        "Take a queued prompt back into the composer",
        items.collect(),
    )
}

/// The title of the window.
pub(super) fn title(workspace: &Path) -> String {
    let name = workspace.file_name().unwrap_or_default().to_string_lossy();
    format!("windlass · {}", sanitize::one_line(&name))
}

/// The branch that is checked out, if the workspace is a git work tree.
pub(super) fn branch(workspace: &Path) -> Option<String> {
    let head = std::fs::read_to_string(workspace.join(".git/HEAD")).ok()?;
    let name = head.trim().strip_prefix("ref: refs/heads/")?;
    Some(sanitize::one_line(name).into_owned())
}
