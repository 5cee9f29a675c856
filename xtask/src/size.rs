//! `cargo xtask size`: prints the size of the shipped binary by section and by crate, and the lines of product code of
//! each crate. It builds the profile `size`, which is `dist` without stripping the symbols.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::{cargo, lines};

/// The maximum size of the shipped binary, in bytes.
const TARGET: u64 = 40_000_000;
/// Smaller crates are summed up in one row, in bytes.
const SMALLEST_ROW: u64 = 100_000;
/// Prefixes of sections that the shipped binary does not have: symbols and debug information.
const STRIPPED: &[&str] = &[".symtab", ".strtab", ".debug_"];

/// Prints both tables. `--binary PATH` measures an existing binary with symbols; `--lines` builds nothing.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let root = cargo::root()?;
    match args {
        [] => print_binary(&build(&root)?)?,
        [flag] if flag == "--lines" => {}
        [flag, path] if flag == "--binary" => print_binary(Path::new(path))?,
        _ => bail!("usage: cargo xtask size [--binary PATH | --lines]"),
    }
    let (rows, total) = lines::by_crate(&root.join("crates"))?;
    println!("\nproduct lines (without blanks, comments and tests)");
    for (name, count) in rows {
        println!("{count:>8}  {name}");
    }
    println!("{total:>8}  all");
    Ok(())
}

fn build(root: &Path) -> Result<PathBuf> {
    let args = [
        "build",
        "--profile",
        "size",
        "--locked",
        "-p",
        "windlass-cli",
    ];
    let status = cargo::command(args).current_dir(root).status();
    ensure!(
        status.context("cargo could not be started")?.success(),
        "the binary could not be built"
    );
    Ok(cargo::target_directory(root)?.join("size/windlass"))
}

fn print_binary(path: &Path) -> Result<()> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let sizes = Sizes::of(&bytes)
        .with_context(|| format!("{} is not an ELF binary with symbols", path.display()))?;
    println!("{}", sizes.table());
    Ok(())
}

/// The sizes of one binary, in bytes.
#[derive(Debug, Default)]
struct Sizes {
    /// The size of the file after stripping.
    file: u64,
    sections: BTreeMap<String, u64>,
    crates: BTreeMap<String, u64>,
}

impl Sizes {
    fn of(bytes: &[u8]) -> Result<Self> {
        let binary = object::File::parse(bytes)?;
        let mut sizes = Self {
            file: bytes.len() as u64,
            ..Self::default()
        };
        for section in binary.sections() {
            let Some((_, size)) = section.file_range() else {
                continue;
            };
            let name = section.name()?;
            if STRIPPED.iter().any(|start| name.starts_with(start)) {
                sizes.file -= size;
            } else {
                *sizes.sections.entry(name.to_owned()).or_default() += size;
            }
        }
        sizes.attribute(&binary);
        ensure!(!sizes.crates.is_empty(), "it has no symbols");
        Ok(sizes)
    }

    /// Adds the size of each symbol to its crate. The rest, which no symbol covers, is unnamed constants, unwind tables
    /// and relocations.
    fn attribute(&mut self, binary: &object::File<'_>) {
        let mut source = String::new();
        let mut counted = std::collections::BTreeSet::new();
        for symbol in binary.symbols() {
            let Ok(name) = symbol.name() else { continue };
            if symbol.kind() == SymbolKind::File {
                name.clone_into(&mut source);
                continue;
            }
            let in_file = symbol
                .section_index()
                .and_then(|at| binary.section_by_index(at).ok())
                .is_some_and(|section| section.file_range().is_some());
            // Functions with the same code share one address.
            if !in_file || symbol.size() == 0 || !counted.insert(symbol.address()) {
                continue;
            }
            *self.crates.entry(owner(name, &source)).or_default() += symbol.size();
        }
        if !self.crates.is_empty() {
            let named: u64 = self.crates.values().sum();
            self.crates
                .insert("(no symbol)".to_owned(), self.file.saturating_sub(named));
        }
    }

    fn table(&self) -> String {
        let percent = |size: u64| size as f64 * 100.0 / self.file.max(1) as f64;
        let mb = |size: u64| size as f64 / 1e6;
        let mut out = format!(
            "{:.1} MB as it is shipped, the target is {:.0} MB",
            mb(self.file),
            mb(TARGET)
        );
        for (title, sizes) in [("by section", &self.sections), ("by crate", &self.crates)] {
            out += &format!("\n\n{title}");
            let mut rows: Vec<_> = sizes.iter().collect();
            rows.sort_by_key(|(_, size)| std::cmp::Reverse(**size));
            let (large, small): (Vec<_>, Vec<_>) = rows
                .into_iter()
                .partition(|(_, size)| **size >= SMALLEST_ROW);
            let rest: u64 = small.iter().map(|(_, size)| **size).sum();
            let rest_name = format!("({} smaller ones)", small.len());
            let last = (!small.is_empty()).then_some((&rest_name, &rest));
            for (name, &size) in large.into_iter().chain(last) {
                out += &format!("\n{:>8.2} MB {:>5.1} %  {name}", mb(size), percent(size));
            }
        }
        out
    }
}

/// Returns the crate of a symbol: the first path of its name, which for `<T as Trait>::f` is the crate of `T`. C
/// symbols are attributed to their source file.
fn owner(symbol: &str, source: &str) -> String {
    let Ok(name) = rustc_demangle::try_demangle(symbol) else {
        return format!("(C) {source}");
    };
    let name = format!("{name:#}");
    // `<alloc::vec::Vec<windlass::T> as Drop>::drop`: the crate of the inner type is more useful than that of the
    // container.
    let is_path = |text: &str| text.contains("::");
    let words = name.split(|ch: char| !(ch.is_alphanumeric() || ch == '_' || ch == ':'));
    let mut crates = words
        .filter(|word| is_path(word))
        .filter_map(|word| word.split("::").next())
        .filter(|name| !name.is_empty());
    let first = crates.next().unwrap_or("(unknown)").to_owned();
    let general = |name: &str| ["core", "alloc", "std", "hashbrown"].contains(&name);
    match crates.find(|name| !general(name)) {
        Some(inner) if general(&first) => inner.to_owned(),
        _ => first,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(symbol: &str, expect: &str) {
        assert_eq!(owner(symbol, "parser.c"), expect, "{symbol}");
    }

    #[test]
    fn a_symbol_belongs_to_the_crate_it_names() {
        check(
            "_ZN13windlass_core4gate5judge17h0123456789abcdefE",
            "windlass_core",
        );
        check("_RNvNtCs1234_13windlass_core4gate5judge", "windlass_core");
        check("ts_parse_table", "(C) parser.c");
    }

    #[test]
    fn code_of_the_standard_library_made_for_a_type_belongs_to_its_crate() {
        check(
            "_ZN4core3ptr44drop_in_place$LT$windlass_engine..Engine$GT$17h0123456789abcdefE",
            "windlass_engine",
        );
        check("_ZN3std2io5stdio6_print17h0123456789abcdefE", "std");
    }

    #[test]
    fn this_very_program_has_rows_that_add_up_to_its_size() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let sizes = Sizes::of(&bytes).unwrap();
        assert_eq!(sizes.crates.values().sum::<u64>(), sizes.file);
        assert!(sizes.crates.contains_key("xtask"), "{}", sizes.table());
    }
}
