//! Renders `docs/reference.md` from the code: settings, events, outcomes, exit codes, capabilities, runtimes and errors.
//! The test fails if the file differs. `cargo xtask docs` runs the test with [`WRITE`] set, which updates the file.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use serde_json::Value;
use windlass::agents::{AGENTS, AgentSpec};
use windlass::agents::{abilities, does};
use windlass::core::event;
use windlass::core::runtime::{
    Capabilities, Capability, Feature, Features, RunMode, Work, capability_schema,
};
use windlass::settings::{Key, SettingKind};

use crate::exit;
use windlass::settings::{KEYS, variable};

/// The fields of a row of `windlass runtimes --json`.
const FIELDS: &[(&str, &str)] = &[
    ("name", "The name for `--runtime`."),
    ("about", "A short description."),
    ("built_in", "Whether it is part of windlass."),
    ("found", "Whether it is installed."),
    ("path", "The path of its program, or null."),
    ("version", "The installed version; null if unknown."),
    (
        "tested",
        "The version of the last certification; other versions are not an error.",
    ),
    (
        "usable",
        "Whether a run could start: its program, a sandbox, a vendor that it supports, and a key exist.",
    ),
    (
        "with",
        "The model access that it would use; null if it is not usable.",
    ),
    ("why", "The reason why it is not usable."),
    ("todo", "The fix."),
    (
        "install",
        "The command that installs it; null for built-in agents and agents of your own.",
    ),
    ("by_hand", "The installation without windlass."),
    ("work", "The kinds of work that it can do."),
    (
        "missing",
        "The missing capabilities for each kind of work that it cannot do.",
    ),
    (
        "vendors",
        "The vendors that it uses if the user names none: the first one with a key.",
    ),
    ("capabilities", "Its capabilities."),
    ("features", "Its features for control by windlass."),
];

/// Renders the complete reference as Markdown.
fn text() -> String {
    let schema = event::schema();
    let mut text = String::from(
        "# Reference\n\n`cargo xtask docs` generates this file from the code; do not edit it.\n\n## Settings\n\n\
         Set them in `config.toml`, with `windlass config set KEY VALUE`, or with the environment variable. \
         `windlass config --origin` shows the values in effect. A `*` stands for a name of your choice.\n\n\
         | key | value | variable | meaning |\n|---|---|---|---|\n",
    );
    for key in KEYS {
        let variable = variable(key).map_or_else(String::new, |name| format!("`{name}`"));
        text.push_str(&format!(
            "| `{}` | {} | {variable} | {} |\n",
            key.name,
            value(key),
            cell(key.doc)
        ));
    }
    text.push_str(
        "\n## Events\n\n`events.jsonl` and `-o stream-json` have one event per line. Every line has its `kind`, `data` with the fields below, and:\n\n",
    );
    text.push_str("- `seq`: The number of the event in the log, from 1 without gaps. A live event, which is displayed and not stored, has `after` (the last number) and `n` instead.\n");
    text.push_str(&fields(&schema["properties"], &[]));
    for (kind, doc, about) in kinds(&schema) {
        text.push_str(&format!("\n### `{kind}`\n\n{doc}\n"));
        let fields = fields(about, &[]);
        if !fields.is_empty() {
            text.push_str(&format!("\n{fields}"));
        }
    }
    let defined = |name: &str| &schema["$defs"][name];
    text.push_str(
        "\n## Outcomes\n\nThe outcome of a run (`outcome.is` of `run_finished`).\n\n| outcome | meaning |\n|---|---|\n",
    );
    text.push_str(&words(defined("Outcome"), "is"));
    text.push_str(
        "\nThe reason of a failure (`outcome.reason`).\n\n| reason | meaning |\n|---|---|\n",
    );
    text.push_str(&words(defined("FailReason"), "is"));
    text.push_str(
        "\nThe category of a refusal (`outcome.category`).\n\n| category | meaning |\n|---|---|\n",
    );
    text.push_str(&words(defined("RefusalCategory"), "is"));
    text.push_str("\n## Exit codes\n\n| code | meaning |\n|---|---|\n");
    for (code, doc) in exit::CODES {
        text.push_str(&format!("| {code} | {} |\n", cell(doc)));
    }
    text.push_str("\n## Errors of tool calls\n\nThe word is in `result.error`, and the model reads it as `Error [word]: …`.\n\n");
    text.push_str("| word | meaning |\n|---|---|\n");
    text.push_str(&words(defined("ErrorCategory"), "is"));
    text.push_str("\n## Limits\n\n| limit | meaning |\n|---|---|\n");
    text.push_str(&words(defined("Limit"), "is"));
    text.push_str(&capabilities());
    text.push_str(&runtimes());
    text
}

/// Renders the capabilities, kinds of work and features of the runtimes, one column for each runtime.
fn runtimes() -> String {
    let all: Vec<_> = AGENTS
        .iter()
        .map(|known| (known, abilities(known)))
        .collect();
    let names: Vec<String> = all
        .iter()
        .map(|(known, _)| format!("`{}`", known.name))
        .collect();
    let head = |first: &str| {
        format!(
            "| {first} | {} |\n|---|{}\n",
            names.join(" | "),
            "---|".repeat(names.len())
        )
    };
    let row = |first: &str, has: &dyn Fn(&AgentSpec, Capabilities, Features) -> bool| {
        let mark =
            |(known, (can, held)): &(&AgentSpec, (Capabilities, Features))| has(known, *can, *held);
        let marks: Vec<&str> = all
            .iter()
            .map(|one| if mark(one) { "yes" } else { "" })
            .collect();
        format!("| {first} | {} |\n", marks.join(" | "))
    };
    let mut text = String::from(
        "\n## Runtimes\n\nThe capabilities of each runtime without options; fewer tools mean fewer capabilities. For an \
         unknown agent (`acp:COMMAND`), `per_tool_approval` is not assumed. `sandbox` means that the whole agent runs in a \
         sandbox; for the built-in agents, only the commands do. `--runtime auto:mcp,resume` requires any of these words.\n\n",
    );
    text.push_str(&head("capability"));
    for one in Capability::ALL {
        text.push_str(&row(&format!("`{}`", one.word()), &|_, can, _| {
            can.has(one)
        }));
    }
    text.push_str("\nThe kinds of work that each runtime can do:\n\n");
    text.push_str(&head("work"));
    for work in Work::ALL {
        text.push_str(&row(&format!("`{}`", work.name()), &|known, can, _| {
            does(known, can, work)
        }));
    }
    text.push_str("\nThe features of each runtime that windlass uses to control it:\n\n");
    text.push_str(&head("feature"));
    for one in Feature::ALL {
        text.push_str(&row(
            &format!("`{}`: {}", one.word(), one.doc()),
            &|_, _, held| held.has(one),
        ));
    }
    text.push_str(
        "\n### `windlass runtimes --json`\n\nIt prints one object per line; `windlass doctor --json` has them in `runtimes`.\n\n\
         | field | meaning |\n|---|---|\n",
    );
    for (name, doc) in FIELDS {
        text.push_str(&format!("| `{name}` | {} |\n", cell(doc)));
    }
    text
}

/// Renders the capabilities and the kinds of work that need them.
fn capabilities() -> String {
    let mut text = String::from(
        "\n## Capabilities of runtimes\n\nA runtime without a capability that the work needs is refused before it starts. \
         `native` is the built-in agent; with a model that has no tool calls, it reads calls as JSON from the text.\n\n\
         | capability | meaning | native | full coder | patch coder | analysis |\n|---|---|---|---|---|---|\n",
    );
    let docs = docs_of(&capability_schema(), "is");
    let native = windlass::engine::NativeRuntime::CAPABILITIES;
    for one in Capability::ALL {
        let doc = docs
            .iter()
            .find(|(word, _)| word == one.word())
            .map(|(_, doc)| doc.as_str())
            .unwrap_or_default();
        let mark = |yes: bool| if yes { "yes" } else { "" };
        let needs = |mode: RunMode| {
            if mode.work().needs().all.has(one) {
                "needs it"
            } else {
                ""
            }
        };
        text.push_str(&format!(
            "| `{}` | {} | {} | {} | {} | {} |\n",
            one.word(),
            cell(doc),
            mark(native.contains(&one)),
            needs(RunMode::Full),
            needs(RunMode::Patch),
            needs(RunMode::Analysis),
        ));
    }
    text
}

/// Describes the type of a setting.
fn value(key: &Key) -> String {
    match key.kind {
        SettingKind::Text => "text".to_owned(),
        SettingKind::Choice(words) => words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", "),
        SettingKind::Integer => "whole number".to_owned(),
        SettingKind::Number => "number".to_owned(),
        SettingKind::Limit => "number above zero, or `unlimited`".to_owned(),
        SettingKind::Boolean => "`true` or `false`".to_owned(),
        SettingKind::Texts => "list of texts".to_owned(),
    }
}

/// Lists every kind of event with its description and schema, by name.
fn kinds(schema: &Value) -> Vec<(String, String, &Value)> {
    let mut found = Vec::new();
    collect(schema, &schema["$defs"], &mut found);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn collect<'a>(
    schema: &'a Value,
    defined: &'a Value,
    found: &mut Vec<(String, String, &'a Value)>,
) {
    if let Some(kind) = schema
        .pointer("/properties/kind/const")
        .and_then(Value::as_str)
    {
        let data = &schema["properties"]["data"];
        let name = data["$ref"]
            .as_str()
            .and_then(|path| path.strip_prefix("#/$defs/"));
        let data = name.map_or(data, |name| &defined[name]);
        found.push((kind.to_owned(), description(schema), &data["properties"]));
        return;
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        schema[key]
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|one| collect(one, defined, found));
    }
}

/// Renders the fields of an object as a list.
fn fields(properties: &Value, but: &[&str]) -> String {
    let all = properties
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !but.contains(&name.as_str()));
    all.map(|(name, about)| format!("- `{name}`: {}\n", description(about)))
        .collect()
}

/// Renders the variants of an enum as rows of a table.
fn words(schema: &Value, tag: &str) -> String {
    docs_of(schema, tag)
        .iter()
        .map(|(word, doc)| format!("| `{word}` | {} |\n", cell(doc)))
        .collect()
}

/// Lists the variants of an enum with their descriptions.
fn docs_of(schema: &Value, tag: &str) -> Vec<(String, String)> {
    let one = |one: &Value| {
        let tagged = one.pointer(&format!("/properties/{tag}/const"));
        let word = tagged.or_else(|| one.get("const"))?.as_str()?.to_owned();
        Some((word, description(one)))
    };
    schema["oneOf"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(one)
        .collect()
}

fn description(schema: &Value) -> String {
    schema["description"]
        .as_str()
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The path of the file in the repository.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference.md");
/// If this variable is set, the test writes the file instead of comparing it.
const WRITE: &str = "WINDLASS_WRITE_REFERENCE";

#[test]
fn the_reference_is_up_to_date() {
    let (path, text) = (Path::new(FILE), text());
    if std::env::var_os(WRITE).is_some() {
        return std::fs::write(path, text).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap() == text,
        "docs/reference.md is outdated: run `cargo xtask docs`"
    );
}

#[test]
fn every_setting_event_and_word_has_a_description() {
    for key in KEYS {
        assert!(
            key.doc.ends_with(['.', '…']) && key.doc.len() > 8,
            "the setting `{}` has no description",
            key.name
        );
    }
    let schema = event::schema();
    let found = kinds(&schema);
    assert!(found.len() >= 38, "{found:?}");
    for (kind, doc, about) in &found {
        assert!(!doc.is_empty(), "the event `{kind}` has no description");
        for (field, about) in about.as_object().into_iter().flatten() {
            assert!(
                !description(about).is_empty(),
                "`{field}` of the event `{kind}` has no description"
            );
        }
    }
    for name in [
        "Outcome",
        "FailReason",
        "RefusalCategory",
        "ErrorCategory",
        "Limit",
    ] {
        let docs = docs_of(&schema["$defs"][name], "is");
        assert!(
            docs.len() >= 3 && docs.iter().all(|(_, doc)| !doc.is_empty()),
            "{name}: {docs:?}"
        );
    }
    let docs = docs_of(&capability_schema(), "is");
    assert!(Capability::ALL.iter().all(|one| {
        docs.iter()
            .any(|(word, doc)| word == one.word() && !doc.is_empty())
    }));
}
