//! Every public function, type and constant of the crate `windlass` is used in an example that rustdoc compiles. The
//! example stands in the docs of the item, of its type or of its module, so that one example can show what belongs
//! together. Reads the source; builds nothing.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The public items of a file and the words of the examples in its docs.
fn read(text: &str) -> (Vec<String>, BTreeSet<String>) {
    let (mut items, mut words) = (Vec::new(), BTreeSet::new());
    let mut example = None;
    // Tests come last in every file.
    for line in text.lines().take_while(|line| *line != "#[cfg(test)]") {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
        match doc.map(str::trim) {
            Some(fence) if fence.starts_with("```") => {
                example = match example {
                    Some(_) => None,
                    None => Some(matches!(fence, "```" | "```no_run" | "```rust")),
                };
            }
            Some(code) if example == Some(true) => {
                let parts = code.split(|c: char| !c.is_alphanumeric() && c != '_');
                words.extend(parts.map(str::to_owned));
            }
            Some(_) => {}
            None => items.extend(public_item(line)),
        }
    }
    (items, words)
}

fn public_item(line: &str) -> Option<String> {
    let mut words = line.strip_prefix("pub ")?.split_whitespace();
    let kind = words.find(|word| !matches!(*word, "async" | "unsafe"))?;
    let mut name = words.next()?;
    if kind == "const" && name == "fn" {
        name = words.next()?;
    }
    let is_item = matches!(
        kind,
        "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static"
    );
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    is_item.then(|| name[..end.unwrap_or(name.len())].to_owned())
}

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.to_string_lossy().ends_with(".rs")
            && !path.to_string_lossy().ends_with("tests.rs")
        {
            into.push(path);
        }
    }
}

#[test]
fn every_public_item_of_the_library_is_in_an_example() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/windlass/src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut missing = Vec::new();
    for file in files {
        let (items, words) = read(&std::fs::read_to_string(&file).unwrap());
        let name = file.strip_prefix(&src).unwrap().display().to_string();
        let unshown = items.iter().filter(|item| !words.contains(*item));
        missing.extend(unshown.map(|item| format!("{name}: {item}")));
    }
    assert!(
        missing.is_empty(),
        "in no example of their file:\n{}",
        missing.join("\n")
    );
}

#[test]
fn an_item_without_an_example_is_found() {
    let text = "/// ```\n/// shown();\n/// ```\npub fn shown() {}\n/// ```text\n/// hidden()\n/// ```\n\
                pub async fn hidden<T>() {}\npub(crate) fn inner() {}\n";
    let (items, words) = read(text);
    assert_eq!(items, ["shown", "hidden"]);
    assert!(words.contains("shown") && !words.contains("hidden"));
}
