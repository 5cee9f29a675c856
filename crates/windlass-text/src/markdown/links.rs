//! The targets of reference links, such as `[text][label]`, across the blocks of one document.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pulldown_cmark::{Options, Parser};

/// The most definitions that one document keeps.
const MAX_LINKS: usize = 1_000;
/// The longest label and the longest target, in bytes.
const MAX_LENGTH: usize = 4_000;

/// The extensions of Markdown that models use.
pub(super) fn extensions() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_GFM
}

/// The known definitions, and the labels that were used before their definition.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkTargets {
    targets: HashMap<String, Arc<str>>,
    missing: HashSet<String>,
}

impl LinkTargets {
    pub(super) fn get(&self, label: &str) -> Option<&Arc<str>> {
        if self.targets.is_empty() {
            return None;
        }
        self.targets.get(&normalized(label))
    }

    /// Notes a label without a definition.
    pub(super) fn note_missing(&mut self, label: &str) {
        if self.missing.len() < MAX_LINKS && label.len() <= MAX_LENGTH {
            self.missing.insert(normalized(label));
        }
    }

    /// Adds a definition; the first one of a label applies. Returns whether the label was used before.
    pub(super) fn define(&mut self, label: &str, target: &str) -> bool {
        let bounded = label.len() <= MAX_LENGTH && target.len() <= MAX_LENGTH;
        if !bounded || self.targets.len() >= MAX_LINKS {
            return true;
        }
        let label = normalized(label);
        let missing = self.missing.remove(&label);
        self.targets
            .entry(label)
            .or_insert_with(|| Arc::from(target));
        missing
    }

    /// Adds all definitions of a text.
    pub(super) fn define_all(&mut self, markdown: &str) {
        if !markdown.contains("]:") {
            return;
        }
        let parser = Parser::new_ext(markdown, extensions());
        for (label, definition) in parser.reference_definitions().iter() {
            self.define(label, &definition.dest);
        }
    }
}

fn normalized(label: &str) -> String {
    let mut out = String::with_capacity(label.len());
    for word in label.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.extend(word.chars().flat_map(char::to_lowercase));
    }
    out
}
