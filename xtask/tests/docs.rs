//! Links in the Markdown files lead to a file, and to a heading of it, that exist. So do the source files that the
//! architecture names.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The links and the headings of a page.
#[derive(Default)]
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

fn read(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap_or_default());
                page.anchors.insert(anchor);
            }
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            _ => {}
        }
    }
    page
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !matches!(name.as_str(), "target" | "node_modules" | ".git") {
            pages(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut paths = Vec::new();
    pages(&root.join("docs"), &mut paths);
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ] {
        paths.push(root.join(name));
    }
    let pages: BTreeMap<PathBuf, Page> = paths
        .into_iter()
        .map(|path| {
            let page = read(&std::fs::read_to_string(&path).unwrap());
            (path.canonicalize().unwrap(), page)
        })
        .collect();
    let mut wrong = Vec::new();
    for (path, page) in &pages {
        for link in page.links.iter().filter(|link| !link.contains("://")) {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => Ok(path.clone()),
                file => path.parent().unwrap().join(file).canonicalize(),
            };
            let shown = path.strip_prefix(root).unwrap_or(path).display();
            match target {
                Err(_) => wrong.push(format!("{shown}: `{link}`: no such file")),
                Ok(target) if !place.is_empty() => {
                    let has = |page: &Page| page.anchors.contains(place);
                    if !pages.get(&target).is_some_and(has) {
                        wrong.push(format!("{shown}: `{link}`: no such heading"));
                    }
                }
                Ok(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `engine/session.rs` means `crates/windlass-engine/src/session.rs`; other names are the end of a path.
#[test]
fn source_files_in_the_architecture_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut sources = Vec::new();
    source_files(&root.join("crates"), &mut sources);
    source_files(&root.join("xtask"), &mut sources);
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let named = text.split('`').skip(1).step_by(2);
    let named = named.filter(|code| code.ends_with(".rs") && !code.contains(['*', ' ']));
    let missing: Vec<&str> = named
        .filter(|name| !name.contains("NAME"))
        .filter(|name| {
            let in_crate = name.replacen('/', "/src/", 1);
            let ends = [
                format!("/{name}"),
                format!("-{in_crate}"),
                format!("/{in_crate}"),
            ];
            !sources
                .iter()
                .any(|file| ends.iter().any(|end| file.ends_with(end)))
        })
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names {missing:?}");
}

fn source_files(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn links_and_headings_are_found() {
    let page = read("# A `b` c, d!\n\n[x](y.md#z) ![p](q.png)\n\n| [t](u) |\n|---|\n");
    assert_eq!(page.links, ["y.md#z", "q.png", "u"]);
    assert!(page.anchors.contains("a-b-c-d"), "{:?}", page.anchors);
}
