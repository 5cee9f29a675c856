//! `cargo xtask style`: measures how plainly the source is written, and fails above the thresholds. The rules are in
//! CONTRIBUTING.md: words of the field, subject-verb-object, one type name for one type, no empty doc comments.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use self::source::{Comment, Source};
use crate::{cargo, install};

/// The command that runs this check alone.
pub(crate) const REPEAT: &str = "cargo xtask style";

/// Share of comment sentences that may begin with a relative clause.
const MAX_CLAUSES: f64 = 0.03;
/// Share of type names that may be used for more than one type.
const MAX_REUSED: f64 = 0.12;
/// Share of doc comments that may have three words or fewer.
const MAX_SHORT: f64 = 0.02;
/// Examples that are printed for a measure above its threshold.
const SHOWN: usize = 20;

/// First words of a relative clause in the place of a subject.
const CLAUSES: &[&str] = &["what", "whatever", "who", "whoever", "whose", "how"];
/// Names that are local to a module by convention.
const LOCAL: &[&str] = &["Error", "Args", "Request", "Result"];
/// Words that have a plainer equivalent, with that equivalent.
const UNUSED: &[(&str, &str)] = &[
    ("to be had", "available"),
    ("whoever", "the caller"),
    ("hangs on", "depends on"),
    ("hang on", "depend on"),
    ("gives way", "is dropped"),
    ("is taken in", "is merged"),
    ("for nothing", "unused"),
    ("going on with", "resuming"),
    ("goes on with", "resumes"),
    ("makes room", "compacts"),
    ("making room", "compaction"),
];

/// One measure of the whole tree.
struct Measure {
    what: &'static str,
    bad: usize,
    of: usize,
    max: f64,
    examples: Vec<String>,
}

impl Measure {
    fn share(&self) -> f64 {
        self.bad as f64 / self.of.max(1) as f64
    }

    fn holds(&self) -> bool {
        self.share() <= self.max
    }
}

/// Checks the spelling and measures the tree. With `list`, every place is printed, also below the thresholds.
pub(crate) fn run(list: bool) -> Result<()> {
    let root = cargo::root()?;
    let spelled = Command::new(install::typos()?)
        .arg("--format=brief")
        .current_dir(&root)
        .status()
        .context("typos could not be started")?;
    ensure!(
        spelled.success(),
        "misspelled words (see above); words that are right go into _typos.toml"
    );
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "bench"] {
        collect(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut sources = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let path = path.strip_prefix(&root).unwrap_or(&path).to_owned();
        sources.push((path, Source::parse(&text)));
    }
    let measures = [
        clauses(&sources),
        reused_names(&sources),
        short_docs(&sources),
        unused_words(&sources),
        undocumented(&sources),
    ];
    for measure in &measures {
        println!(
            "{:<52} {:>6} of {:>6}  {:>6.2} %  (at most {:.0} %)",
            measure.what,
            measure.bad,
            measure.of,
            measure.share() * 100.0,
            measure.max * 100.0
        );
        let shown = match (list, measure.holds()) {
            (true, _) => usize::MAX,
            (false, false) => SHOWN,
            (false, true) => 0,
        };
        for example in measure.examples.iter().take(shown) {
            println!("    {example}");
        }
    }
    ensure!(
        measures.iter().all(Measure::holds),
        "the wording is above a threshold; `cargo xtask style --list` prints every place, CONTRIBUTING.md has the rules"
    );
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

type Sources = [(PathBuf, Source)];

fn comments(sources: &Sources) -> impl Iterator<Item = (&Path, &Comment)> {
    sources.iter().flat_map(|(path, source)| {
        let comments = source.comments.iter();
        comments.map(move |comment| (path.as_path(), comment))
    })
}

fn clauses(sources: &Sources) -> Measure {
    let (mut of, mut examples) = (0, Vec::new());
    for (path, comment) in comments(sources) {
        for sentence in comment.sentences() {
            of += 1;
            let first = sentence
                .split(|c: char| !c.is_alphabetic())
                .next()
                .unwrap_or_default();
            // A question is no relative clause.
            if CLAUSES.contains(&first.to_lowercase().as_str()) && !sentence.ends_with('?') {
                examples.push(format!("{}:{}: {sentence}", path.display(), comment.line));
            }
        }
    }
    Measure {
        what: "comment sentences that begin with what, who or how",
        bad: examples.len(),
        of,
        max: MAX_CLAUSES,
        examples,
    }
}

fn reused_names(sources: &Sources) -> Measure {
    let mut names: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (path, source) in sources {
        for (line, name) in &source.types {
            if !LOCAL.contains(&name.as_str()) {
                let place = format!("{}:{line}", path.display());
                names.entry(name).or_default().insert(place);
            }
        }
    }
    let of = names.len();
    let examples: Vec<String> = names
        .into_iter()
        .filter(|(_, places)| places.len() > 1)
        .map(|(name, places)| {
            let places: Vec<String> = places.into_iter().collect();
            format!("{name}: {}", places.join(", "))
        })
        .collect();
    Measure {
        what: "type names that are used for more than one type",
        bad: examples.len(),
        of,
        max: MAX_REUSED,
        examples,
    }
}

fn short_docs(sources: &Sources) -> Measure {
    let docs = comments(sources).filter(|(_, comment)| comment.doc);
    let (mut of, mut examples) = (0, Vec::new());
    for (path, comment) in docs {
        of += 1;
        if comment.text.split_whitespace().count() <= 3 {
            examples.push(format!(
                "{}:{}: {}",
                path.display(),
                comment.line,
                comment.text
            ));
        }
    }
    Measure {
        what: "doc comments of three words or fewer",
        bad: examples.len(),
        of,
        max: MAX_SHORT,
        examples,
    }
}

/// Public items of the crates, without those of tests and examples.
fn undocumented(sources: &Sources) -> Measure {
    let mut examples = Vec::new();
    let mut of = 0;
    for (path, source) in sources {
        of += source.types.len();
        let tests = ["tests", "examples"];
        if path
            .iter()
            .any(|part| tests.iter().any(|name| part == *name))
        {
            continue;
        }
        for (line, code) in &source.undocumented {
            examples.push(format!("{}:{line}: {code}", path.display()));
        }
    }
    Measure {
        what: "public items without a doc comment, by types",
        bad: examples.len(),
        of,
        max: 0.0,
        examples,
    }
}

/// Words in comments and in strings that have a plainer equivalent.
fn unused_words(sources: &Sources) -> Measure {
    let (mut of, mut examples) = (0, Vec::new());
    for (path, source) in sources {
        // This list itself.
        if path.ends_with("xtask/src/style.rs") {
            continue;
        }
        let comments = source
            .comments
            .iter()
            .map(|comment| (comment.line, &comment.text));
        let strings = source.strings.iter().map(|(line, text)| (*line, text));
        for (line, text) in comments.chain(strings) {
            of += 1;
            let lower = text.to_lowercase();
            for (word, instead) in UNUSED.iter().filter(|(word, _)| lower.contains(word)) {
                examples.push(format!(
                    "{}:{line}: \"{word}\", better \"{instead}\": {text}",
                    path.display()
                ));
            }
        }
    }
    Measure {
        what: "words that have a plainer equivalent",
        bad: examples.len(),
        of,
        max: 0.0,
        examples,
    }
}
