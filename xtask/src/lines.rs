//! Counts lines of product code by crate: without blank lines, comments and tests, and without the crates that only
//! serve tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A crate whose name contains one of these words serves tests.
const TEST_CRATES: &[&str] = &["kit", "corpus", "crash", "needs", "scripted", "testing"];

/// Returns the lines of each crate below this folder, the largest first, and their sum.
pub(crate) fn by_crate(crates: &Path) -> Result<(Vec<(String, usize)>, usize)> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(crates)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !TEST_CRATES.iter().any(|word| name.contains(word)) {
            rows.push((name, of_crate(&entry.path().join("src"))?));
        }
    }
    rows.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
    let total = rows.iter().map(|(_, count)| count).sum();
    Ok((rows, total))
}

fn of_crate(source: &Path) -> Result<usize> {
    let mut files = Vec::new();
    collect(source, &mut files)?;
    let texts: Vec<(PathBuf, String)> = files
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path);
            Ok((
                path.clone(),
                text.with_context(|| path.display().to_string())?,
            ))
        })
        .collect::<Result<_>>()?;
    let tests: BTreeSet<PathBuf> = texts
        .iter()
        .flat_map(|(path, text)| test_modules(path, text))
        .collect();
    let is_test = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with("tests.rs") || path.ancestors().any(|part| tests.contains(part))
    };
    Ok(texts
        .iter()
        .filter(|(path, _)| !is_test(path))
        .map(|(_, text)| product_lines(text))
        .sum())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("tests") {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the files and folders that a file declares as `#[cfg(test)] mod name;`.
fn test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let folder = path.parent().unwrap_or(path);
    let stem = path.file_stem().unwrap_or_default();
    let below = if ["lib", "main", "mod"].iter().any(|name| stem == *name) {
        folder.to_owned()
    } else {
        folder.join(stem)
    };
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if !is_test_attribute(line) {
            continue;
        }
        let mut named = None;
        for line in lines.by_ref() {
            if let Some(rest) = line.strip_prefix("#[path = \"") {
                named = rest.split('"').next().map(|name| folder.join(name));
            } else if !line.starts_with("#[") {
                let module = line
                    .strip_suffix(';')
                    .and_then(|line| line.split_once("mod "))
                    .map(|(_, name)| name);
                match (module, named) {
                    (Some(_), Some(path)) => found.push(path),
                    (Some(name), None) => {
                        found.push(below.join(format!("{name}.rs")));
                        found.push(below.join(name));
                    }
                    (None, _) => {}
                }
                break;
            }
        }
    }
    found
}

fn is_test_attribute(line: &str) -> bool {
    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")
}

/// Counts lines that are not blank, not comments and not part of a test item.
fn product_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let (mut at, mut count) = (0, 0);
    while let Some(line) = lines.get(at) {
        if is_test_attribute(line) {
            at = after_item(&lines, at + 1);
            continue;
        }
        count += usize::from(!line.is_empty() && !line.starts_with("//"));
        at += 1;
    }
    count
}

/// Returns the line after the item that begins at `at` or after its attributes.
fn after_item(lines: &[&str], mut at: usize) -> usize {
    let skipped = |line: &&&str| line.is_empty() || line.starts_with("#[");
    at += lines[at..].iter().take_while(skipped).count();
    let (mut depth, mut opened) = (0_isize, false);
    for (nth, line) in lines.iter().enumerate().skip(at) {
        let code = without_literals(line);
        let count = |wanted: char| code.chars().filter(|ch| *ch == wanted).count() as isize;
        depth += count('{') - count('}');
        opened |= count('{') > 0;
        if (opened && depth <= 0) || (!opened && code.trim_end().ends_with(';')) {
            return nth + 1;
        }
    }
    lines.len()
}

/// Removes the strings that end in the line, and braces in character literals.
fn without_literals(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once('"') {
        out += before;
        let mut escaped = false;
        let end = behind.find(|ch| {
            let ends = ch == '"' && !escaped;
            escaped = ch == '\\' && !escaped;
            ends
        });
        rest = end.map_or(behind, |end| &behind[end + 1..]);
    }
    (out + rest).replace("'{'", "").replace("'}'", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_comments_and_tests_are_not_counted() {
        let text = "//! Header.\n\nuse a::b;\n\n/// Doc.\nfn f() {\n    g(); // why\n}\n\n\
                    #[cfg(test)]\n#[allow(x)]\nfn only_in_tests() {\n    h(\"}\");\n    i('}');\n}\n\n\
                    const X: u8 = 1;\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn t() {}\n}\n";
        assert_eq!(product_lines(text), 5);
    }

    #[test]
    fn modules_for_tests_are_found_with_their_files_and_folders() {
        let text = "#[cfg(test)]\nmod fakes;\n#[cfg(test)]\n#[path = \"shared.rs\"]\nmod shared;\nmod real;\n";
        assert_eq!(
            test_modules(Path::new("src/gate.rs"), text),
            ["src/gate/fakes.rs", "src/gate/fakes", "src/shared.rs"].map(PathBuf::from)
        );
        assert_eq!(
            test_modules(Path::new("src/lib.rs"), "#[cfg(test)]\nmod fakes;\n")[0],
            Path::new("src/fakes.rs")
        );
    }
}
