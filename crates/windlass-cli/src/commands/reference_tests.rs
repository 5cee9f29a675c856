//! `docs/reference.md`: settings, events, outcomes, exit codes, capabilities, runtimes and errors, rendered from the code.
//! The test fails when the file differs; `cargo xtask docs` runs it with [`WRITE`] set, and it writes the file.
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
    ("name", "What `--runtime` takes."),
    ("about", "What it is, in a few words."),
    ("built_in", "Whether it is a part of this program."),
    ("found", "Whether it is on this machine."),
    ("path", "Its program; null where there is none."),
    (
        "version",
        "The version that is here; null where nothing tells it.",
    ),
    (
        "tested",
        "The version that it was last certified with; another one is no error.",
    ),
    (
        "usable",
        "Whether a run with it could begin: its program, a sandbox, a vendor that it can ask, a key.",
    ),
    (
        "with",
        "With what it would work; null where it is not usable.",
    ),
    ("why", "Why it is not usable."),
    ("todo", "What to do about that."),
    (
        "install",
        "The command that installs it; null for what is built in or your own.",
    ),
    ("by_hand", "How it is installed without windlass."),
    ("work", "The kinds of work that it can do."),
    (
        "missing",
        "For kinds of work that it cannot do, the capabilities that it lacks.",
    ),
    (
        "vendors",
        "Vendors whose model it is asked with where none is named: the first that has a key.",
    ),
    ("capabilities", "What it can do."),
    ("features", "How it can be held and steered."),
];

/// The whole reference, as Markdown.
fn text() -> String {
    let schema = event::schema();
    let mut text = String::from(
        "# Reference\n\nThis file is made from the code by `cargo xtask docs`; do not edit it.\n\n## Settings\n\n\
         Set in `config.toml`, by `windlass config set KEY VALUE`, or by the variable; `windlass config --origin` shows \
         what counts. A `*` stands for a name of your own.\n\n| key | value | variable | what it does |\n|---|---|---|---|\n",
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
        "\n## Events\n\nOne a line in `events.jsonl` and in `-o stream-json`. Every line has its `kind`, `data` with the fields below, and:\n\n",
    );
    text.push_str("- `seq`: Its number in the log, from 1 without gaps; a live one, which is shown and forgotten, has `after` (the last number) and `n` instead.\n");
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
        "\n## Outcomes\n\nHow a run ended (`outcome.is` of `run_finished`).\n\n| outcome | meaning |\n|---|---|\n",
    );
    text.push_str(&words(defined("Outcome"), "is"));
    text.push_str("\nWhy a run failed (`outcome.reason`).\n\n| reason | meaning |\n|---|---|\n");
    text.push_str(&words(defined("FailReason"), "is"));
    text.push_str("\nOn what ground it was refused (`outcome.category`).\n\n| category | meaning |\n|---|---|\n");
    text.push_str(&words(defined("RefusalCategory"), "is"));
    text.push_str("\n## Exit codes\n\n| code | meaning |\n|---|---|\n");
    for (code, doc) in exit::CODES {
        text.push_str(&format!("| {code} | {} |\n", cell(doc)));
    }
    text.push_str("\n## Errors that a model is told\n\nIn `result.error`, and as `Error [word]: …` in its text.\n\n");
    text.push_str("| word | meaning |\n|---|---|\n");
    text.push_str(&words(defined("ErrorCategory"), "is"));
    text.push_str("\n## Limits\n\n| limit | meaning |\n|---|---|\n");
    text.push_str(&words(defined("Limit"), "is"));
    text.push_str(&capabilities());
    text.push_str(&runtimes());
    text
}

/// Who can do what, and how each can be held: one column a runtime, by what the adapters say of themselves.
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
        "\n## Runtimes\n\nWhat each can do, as it is without options: fewer tools are fewer capabilities. Of an agent that \
         nobody knows (`acp:COMMAND`) it is not claimed that it asks before each call. `sandbox` means that all of it runs \
         in one; of ours the commands do. All of these words can be asked for: `--runtime auto:mcp,resume`.\n\n",
    );
    text.push_str(&head("capability"));
    for one in Capability::ALL {
        text.push_str(&row(&format!("`{}`", one.word()), &|_, can, _| {
            can.has(one)
        }));
    }
    text.push_str("\nWhat work each can do:\n\n");
    text.push_str(&head("work"));
    for work in Work::ALL {
        text.push_str(&row(&format!("`{}`", work.name()), &|known, can, _| {
            does(known, can, work)
        }));
    }
    text.push_str("\nHow each can be held and steered, through us:\n\n");
    text.push_str(&head("feature"));
    for one in Feature::ALL {
        text.push_str(&row(
            &format!("`{}`: {}", one.word(), one.doc()),
            &|_, _, held| held.has(one),
        ));
    }
    text.push_str(
        "\n### `windlass runtimes --json`\n\nOne object a line; `windlass doctor --json` has them as `runtimes`.\n\n\
         | field | meaning |\n|---|---|\n",
    );
    for (name, doc) in FIELDS {
        text.push_str(&format!("| `{name}` | {} |\n", cell(doc)));
    }
    text
}

/// What a runtime can do, and which work needs it.
fn capabilities() -> String {
    let mut text = String::from(
        "\n## Capabilities of runtimes\n\nA runtime that lacks what the work needs is refused before it starts. `native` is \
         our own loop; on a model without tools it acts through JSON in the text, which is the same to a run.\n\n\
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

/// What a setting may be.
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

/// Every kind of event with its words and its schema, by name.
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

/// The members of an object, one a line.
fn fields(properties: &Value, but: &[&str]) -> String {
    let all = properties
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !but.contains(&name.as_str()));
    all.map(|(name, about)| format!("- `{name}`: {}\n", description(about)))
        .collect()
}

/// A choice as rows of a table.
fn words(schema: &Value, tag: &str) -> String {
    docs_of(schema, tag)
        .iter()
        .map(|(word, doc)| format!("| `{word}` | {} |\n", cell(doc)))
        .collect()
}

/// The words of a choice and what they mean.
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

/// The file in the repository.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference.md");
/// With this variable the test writes the file instead of comparing it.
const WRITE: &str = "WINDLASS_WRITE_REFERENCE";

#[test]
fn the_reference_is_the_checked_in_one() {
    let (path, text) = (Path::new(FILE), text());
    if std::env::var_os(WRITE).is_some() {
        return std::fs::write(path, text).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap() == text,
        "docs/reference.md is not what the code says: run `cargo xtask docs`"
    );
}

#[test]
fn everything_that_has_a_name_has_words() {
    for key in KEYS {
        assert!(
            key.doc.ends_with(['.', '…']) && key.doc.len() > 8,
            "the setting `{}` has no words",
            key.name
        );
    }
    let schema = event::schema();
    let found = kinds(&schema);
    assert!(found.len() >= 38, "{found:?}");
    for (kind, doc, about) in &found {
        assert!(!doc.is_empty(), "the event `{kind}` has no words");
        for (field, about) in about.as_object().into_iter().flatten() {
            assert!(
                !description(about).is_empty(),
                "`{field}` of the event `{kind}` has no words"
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
