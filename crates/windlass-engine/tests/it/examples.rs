//! Tests of the examples for embedders: they pass, every port has one, and `docs/engine.md` shows their code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The source of the example program. It runs here, so that it cannot become outdated.
#[allow(dead_code)]
#[path = "../../examples/ports/main.rs"]
mod ports;

const PAGE: &str = include_str!("../../../../docs/engine.md");

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[allow(clippy::disallowed_methods)]
fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

/// All Rust files below a directory.
fn sources(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}

fn example(name: &str) -> String {
    text(&here().join("examples/ports").join(format!("{name}.rs")))
}

#[tokio::test]
async fn every_example_passes() {
    for (name, example) in ports::ALL {
        let result = tokio::time::timeout(Duration::from_secs(30), example()).await;
        let result = result.unwrap_or_else(|_| panic!("the example {name} hangs"));
        result.unwrap_or_else(|err| panic!("the example {name} fails: {err}"));
    }
}

#[test]
fn every_file_is_a_listed_example_with_a_description() {
    let listed: BTreeSet<String> = ports::ALL
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    let stem = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let files: BTreeSet<String> = sources(&here().join("examples/ports"))
        .iter()
        .map(stem)
        .collect();
    let more: Vec<_> = files.difference(&listed).collect();
    assert_eq!(
        more,
        ["fakes", "main"],
        "every other file is an example and listed in main.rs"
    );
    for name in &listed {
        let header = example(name)
            .lines()
            .take_while(|line| line.starts_with("//! "))
            .count();
        assert_eq!(header, 3, "{name}: the header has three lines");
        assert!(example(name).contains("assert"), "{name} asserts nothing");
        assert!(
            PAGE.contains(&format!("`{name}`")),
            "{name} is not on the page for embedders"
        );
    }
}

/// The rows of the table of ports on the page: the port, its implementer and its example.
fn rows() -> Vec<(String, String, String)> {
    let cells = |line: &str| -> Option<(String, String, String)> {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, port, who, _, example, _] = cells[..] else {
            return None;
        };
        let bare = |cell: &str| cell.strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
        Some((bare(port)?, who.to_owned(), bare(example)?))
    };
    let (_, table) = PAGE.split_once("## The ports").unwrap();
    table.lines().filter_map(cells).collect()
}

/// Code without the parts that depend on line breaks: spaces, and commas before a closing bracket.
fn bare(code: &str) -> String {
    let mut code: String = code.split_whitespace().collect();
    for bracket in [")", "}", "]"] {
        code = code.replace(&format!(",{bracket}"), bracket);
    }
    code
}

/// The name of the field that holds a port of the engine.
fn field_of(port: &str) -> String {
    match port {
        "EventSink" => "sink".to_owned(),
        "BudgetAccount" => "account".to_owned(),
        "CallOutput" => "call_output".to_owned(),
        other => other.to_lowercase(),
    }
}

#[test]
fn every_port_has_an_example() {
    let core = here().parent().unwrap().join("windlass-core/src");
    let all: String = sources(&core).iter().map(|path| text(path)).collect();
    let name = |line: &str| {
        line.strip_prefix("pub trait ")?
            .split([':', '<', ' '])
            .next()
            .map(str::to_owned)
    };
    // A trait with a blanket implementation is only an alias, not a port.
    let blanket = |port: &String| all.contains(&format!("> {port} for T "));
    let ports: BTreeSet<String> = all
        .lines()
        .filter_map(name)
        .filter(|port| !blanket(port))
        .collect();
    assert!(ports.len() > 15, "{ports:?}");
    let shown: BTreeSet<String> = rows().into_iter().map(|(port, ..)| port).collect();
    assert_eq!(shown, ports, "the table of ports in docs/engine.md");
    for (port, who, name) in rows() {
        let needle = match who.as_str() {
            "you" => format!("impl {port} for "),
            "you, as a `TypedTool`" => "impl TypedTool for ".to_owned(),
            "the engine" => format!(".{}.", field_of(&port)),
            other => panic!("{port}: who is `{other}`?"),
        };
        assert!(
            bare(&example(&name)).contains(&bare(&needle)),
            "the example {name} does not show {port} (`{needle}`)"
        );
    }
}

#[test]
fn the_page_for_embedders_shows_code_of_the_examples() {
    let all: Vec<String> = sources(&here().join("examples"))
        .iter()
        .map(|path| bare(&text(path)))
        .collect();
    let blocks: Vec<&str> = PAGE
        .split("```rust\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() >= 5, "{}", blocks.len());
    for block in blocks {
        assert!(
            all.iter().any(|source| source.contains(&bare(block))),
            "this is in no example:\n{block}"
        );
    }
}

#[test]
fn links_of_the_page_exist() {
    let docs = here().join("../../docs");
    for link in PAGE
        .split("](")
        .skip(1)
        .map(|rest| rest.split([')', '#']).next().unwrap())
    {
        assert!(link.is_empty() || docs.join(link).exists(), "{link}");
    }
}
