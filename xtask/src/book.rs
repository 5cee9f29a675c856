//! The docs as a small site, built by mdBook into `target/book`. The pages keep their places relative to each other, so
//! that a link works in the repository and on the site alike; `docs/SUMMARY.md` has the order of the pages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{cargo, install};

/// Pages of the repository's root that belong to the site.
const ROOT_PAGES: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "crates/windlass-corpus/corpus/README.md",
];

const CONFIG: &str = "[book]\ntitle = \"Windlass\"\nsrc = \"src\"\n\n[build]\nbuild-dir = \"html\"\ncreate-missing = false\n\n\
                      [output.html]\ndefault-theme = \"light\"\npreferred-dark-theme = \"navy\"\n";

/// Builds the site and returns the path of its first page.
pub(crate) fn build() -> Result<PathBuf> {
    let book = prepare()?;
    mdbook(&book, "build")?;
    let first = book.join("html/index.html");
    ensure!(
        first.is_file(),
        "mdBook wrote no first page to {}",
        first.display()
    );
    Ok(first)
}

/// Builds the site and serves it on loopback until it is interrupted.
pub(crate) fn serve() -> Result<()> {
    mdbook(&prepare()?, "serve")
}

/// Copies the pages to where mdBook reads them.
fn prepare() -> Result<PathBuf> {
    let root = cargo::root()?;
    let book = root.join("target/book");
    let source = book.join("src");
    if source.exists() {
        std::fs::remove_dir_all(&source).context("the old pages cannot be removed")?;
    }
    for page in ROOT_PAGES {
        copy(&root.join(page), &source.join(page))?;
    }
    copy_folder(&root.join("docs"), &source.join("docs"))?;
    let summary = std::fs::read_to_string(source.join("docs/SUMMARY.md"))
        .context("docs/SUMMARY.md lists the pages of the site and is missing")?;
    std::fs::remove_file(source.join("docs/SUMMARY.md"))?;
    std::fs::write(source.join("SUMMARY.md"), from_root(&summary))?;
    std::fs::write(book.join("book.toml"), CONFIG)?;
    Ok(book)
}

/// The list of pages with links from the root instead of from `docs`.
fn from_root(summary: &str) -> String {
    summary.replace("](", "](docs/").replace("](docs/../", "](")
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let entries =
        std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_folder(&path, &target)?;
        } else {
            copy(&path, &target)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

fn mdbook(book: &Path, command: &str) -> Result<()> {
    let status = Command::new(install::mdbook()?)
        .arg(command)
        .arg(book)
        .status()
        .context("mdBook could not be started")?;
    ensure!(status.success(), "mdBook failed (see above)");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_summary_are_from_the_root() {
        let text = "[W](../README.md)\n- [C](contract.md)\n";
        let expect = "[W](README.md)\n- [C](docs/contract.md)\n";
        assert_eq!(from_root(text), expect);
    }
}
