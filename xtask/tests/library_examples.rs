//! Checks that every public function, type and constant of the crate `windlass`, and every module of re-exports, is
//! used in an example that rustdoc compiles and runs. The example may be in the docs of the item, of its type or of its
//! module, so that one example can show several items. Reads the source; builds nothing.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

/// Returns the public items of a file, and the code of the examples in its docs.
fn read(text: &str) -> (Vec<PublicItem>, String) {
    let (mut items, mut code) = (Vec::new(), String::new());
    let mut example = None;
    // Tests are last in every file.
    for line in text.lines().take_while(|line| *line != "#[cfg(test)]") {
        let inner = line.starts_with(' ');
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
        match doc.map(str::trim) {
            Some(fence) if fence.starts_with("```") => {
                example = match example {
                    Some(_) => None,
                    None => Some(matches!(fence, "```" | "```rust")),
                };
            }
            Some(shown) if example == Some(true) => {
                code.push_str(shown);
                code.push('\n');
            }
            Some(_) => {}
            None => items.extend(public_item(line, inner)),
        }
    }
    (items, code)
}

/// A public item and how an example names it.
#[derive(Debug, PartialEq)]
struct PublicItem {
    name: String,
    is_method: bool,
    is_function: bool,
}

impl PublicItem {
    /// Returns whether code names the item itself: a method after its type or value, a function with its call, a type
    /// as a word.
    fn is_in(&self, code: &str) -> bool {
        code.match_indices(&self.name).any(|(at, name)| {
            let (before, after) = (&code[..at], &code[at + name.len()..]);
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let whole = !before.ends_with(is_word) && !after.starts_with(is_word);
            let owned = before.ends_with('.') || before.ends_with("::");
            let passed = before.ends_with('(') && after.starts_with(')');
            let called = after.starts_with('(') || after.starts_with("::<") || passed || owned;
            whole && (owned || !self.is_method) && (called || !self.is_function)
        })
    }
}

fn public_item(line: &str, inner: bool) -> Option<PublicItem> {
    let mut words = line.strip_prefix("pub ")?.split_whitespace();
    let kind = words.find(|word| !matches!(*word, "async" | "unsafe"))?;
    let mut name = words.next()?;
    if kind == "const" && name == "fn" {
        name = words.next()?;
    }
    let is_function = kind == "fn" || (kind == "const" && line.contains(" fn "));
    let kinds = ["struct", "enum", "trait", "type", "const", "static"];
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    // A module without a body on the same line has its own file.
    let is_module = kind == "mod" && line.ends_with('{');
    (is_function || is_module || kinds.contains(&kind)).then(|| PublicItem {
        name: name[..end.unwrap_or(name.len())].to_owned(),
        is_method: inner && is_function || is_module,
        is_function,
    })
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
        let (items, code) = read(&std::fs::read_to_string(&file).unwrap());
        let name = file.strip_prefix(&src).unwrap().display().to_string();
        let unshown = items.iter().filter(|item| !item.is_in(&code));
        missing.extend(unshown.map(|item| format!("{name}: {}", item.name)));
    }
    assert!(
        missing.is_empty(),
        "in no example of their file that runs:\n{}",
        missing.join("\n")
    );
}

#[track_caller]
fn check_example(code: &str, item: &str, shown: bool) {
    let (items, code) = read(&format!("/// ```\n/// {code}\n/// ```\n{item}\n"));
    let [item] = items.as_slice() else {
        panic!("{items:?}");
    };
    assert_eq!(item.is_in(&code), shown, "{item:?} in {code}");
}

#[test]
fn an_item_without_an_example_is_found() {
    check_example("shown();", "pub fn shown() {}", true);
    check_example("shown::<u8>();", "pub async fn shown<T>() {}", true);
    check_example("x.map(shown);", "pub fn shown() {}", true);
    check_example("let shown = 1;", "pub fn shown() {}", false);
    check_example("is_shown();", "pub fn shown() {}", false);
    check_example("value.shown();", "    pub fn shown(&self) {}", true);
    check_example("Type::shown", "    pub const fn shown(&self) {}", true);
    check_example("shown();", "    pub fn shown(&self) {}", false);
    check_example("let x: Type;", "pub struct Type {", true);
    check_example("let x: Types;", "pub struct Type {", false);
    check_example("use windlass::tools::X;", "pub mod tools {", true);
    check_example("let tools = 1;", "pub mod tools {", false);
    for fence in ["no_run", "ignore", "text"] {
        let text = format!("/// ```{fence}\n/// hidden();\n/// ```\npub fn hidden() {{}}\n");
        let (items, code) = read(&text);
        assert!(!items[0].is_in(&code), "{fence}");
    }
    assert_eq!(read("pub(crate) fn inner() {}\npub mod file;\n").0, []);
}
