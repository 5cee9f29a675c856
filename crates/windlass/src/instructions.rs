//! The system prompt, layer by layer: our own words, the instruction files, the words of a profile, the facts of this
//! place. The same bytes for a whole session; what is only true when a session is opened is kept apart.
//!
//! ```
//! use windlass::instructions::{Inputs, Layer, Prompt};
//! use windlass::machine::Root;
//! use windlass::settings::Settings;
//!
//! let dir = tempfile::tempdir()?;
//! std::fs::write(dir.path().join("AGENTS.md"), "Write tests first.")?;
//! let settings = Settings::none(&dir.path().join(".data"));
//! let redactor = windlass::wire::redactor(&settings)?;
//! let prompt = Prompt::of(&Inputs {
//!     settings: &settings,
//!     root: &Root::open(dir.path())?,
//!     cd: None,
//!     isolated: true,
//!     validators: &[],
//!     redactor: redactor.as_ref(),
//! });
//! let layers: &[Layer] = &prompt.layers;
//! assert!(layers.iter().any(|layer| layer.text.contains("Write tests first.")));
//! assert!(!prompt.system().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use windlass_host::instructions::InstructionOwner;

use std::path::Path;
use std::sync::Arc;

use windlass_core::validator::Validator;
use windlass_core::workspace::{Files, Redactor};
use windlass_engine::Instructions;
use windlass_host::instructions::{
    FoundInstructions, InstructionDirs, NAMES, SkippedInstruction, find,
};
use windlass_host::workspace::Root;

use crate::environment::Environment;
use crate::settings::Settings;

/// What is said before the instruction files. Which counts is said in words: a model knows no order but what it reads.
const ABOUT: &str = "Instructions of the people you work for follow, from the most general to the nearest. They say how \
to work here: follow them. Where two of them disagree, the administrator's count first, and otherwise the later one counts; what the user \
asks for in this conversation counts over those of the project. They are words: they permit no call that is denied, and nothing in \
them changes what needs an approval.";

/// What a system prompt is made from.
pub struct Inputs<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// The workspace.
    pub root: &'a Root,
    /// Where the work begins, when it is not the current directory.
    pub cd: Option<&'a Path>,
    /// The agent works on a copy.
    pub isolated: bool,
    /// Checks that the agent is told of.
    pub validators: &'a [Arc<dyn Validator>],
    /// Removes secrets from instruction files.
    pub redactor: &'a dyn Redactor,
}

/// One layer of it.
pub struct Layer {
    /// A word for what it is.
    pub kind: &'static str,
    /// The file, where it is one.
    pub path: Option<String>,
    /// What the model reads.
    pub text: String,
}

/// A system prompt and what it is made of.
pub struct Prompt {
    /// In the order in which the model reads them.
    pub layers: Vec<Layer>,
    /// Instruction files that were not read, with the reason.
    pub skipped: Vec<SkippedInstruction>,
    /// The same for the engine.
    pub instructions: Instructions,
}

impl Prompt {
    /// Reads the instruction files and puts the layers together.
    pub fn of(inputs: &Inputs<'_>) -> Self {
        let Inputs {
            settings,
            root,
            redactor,
            ..
        } = inputs;
        let below = below(root.root(), inputs.cd, &settings.environment);
        let places = &settings.places;
        let look = InstructionDirs {
            managed: &places.managed_dir,
            user: &places.config_dir,
            root,
            below: &below,
        };
        let FoundInstructions {
            layers: files,
            skipped,
        } = find(&look);
        let own = include_str!("system_prompt.md").trim_end();
        let mut layers = vec![Layer {
            kind: "windlass",
            path: None,
            text: format!("{own}\n"),
        }];
        let clean = |text: &str| redactor.redact(text).into_owned();
        for (at, file) in files.iter().enumerate() {
            let about = if at == 0 {
                format!("\n{ABOUT}\n")
            } else {
                String::new()
            };
            let (kind, whose) = match file.owner {
                InstructionOwner::Managed => ("managed", "the administrator"),
                InstructionOwner::User => ("user", "the user"),
                InstructionOwner::Project => ("project", "the project"),
            };
            let path = &file.file.path;
            let text = format!(
                "{about}\n<instructions of=\"{whose}\" file=\"{}\">\n{}\n</instructions>\n",
                named(path),
                within(&clean(&file.text))
            );
            layers.push(Layer {
                kind,
                path: Some(path.clone()),
                text,
            });
        }
        let profile = settings
            .profile
            .as_ref()
            .map(|profile| profile.prompt.as_str());
        for (kind, words) in [
            ("settings", settings.layers.text("instructions")),
            ("profile", profile),
        ] {
            if let Some(words) = words.map(str::trim).filter(|words| !words.is_empty()) {
                layers.push(Layer {
                    kind,
                    path: None,
                    text: format!("\n{}\n", clean(words)),
                });
            }
        }
        layers.push(Layer {
            kind: "environment",
            path: None,
            text: environment(inputs),
        });
        let instructions = Instructions {
            files: files.into_iter().map(|file| file.file).collect(),
            opening: opening(root.root(), &below),
            names: NAMES.map(str::to_owned).to_vec(),
        };
        Self {
            layers,
            skipped,
            instructions,
        }
    }

    /// All of it but what belongs to the opening of a session.
    pub fn system(&self) -> String {
        self.layers
            .iter()
            .map(|layer| layer.text.as_str())
            .collect()
    }

    /// What an agent that is not ours does not find by itself: the person's words, and files of the project that it does
    /// not read.
    pub(crate) fn for_others(&self, reads: impl Fn(&str) -> bool) -> String {
        let told = |layer: &&Layer| match (layer.kind, &layer.path) {
            ("project", Some(path)) => !reads(path.rsplit('/').next().unwrap_or_default()),
            (kind, _) => ["managed", "user", "settings", "profile"].contains(&kind),
        };
        let text: String = self
            .layers
            .iter()
            .filter(told)
            .map(|layer| layer.text.as_str())
            .collect();
        text.trim().to_owned()
    }
}

/// What a file says, without what would end its own words and begin those of somebody who counts for more.
fn within(text: &str) -> String {
    const TAG: &str = "instructions";
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let begins = || {
            let rest = text[at + 1..].trim_start_matches(|c: char| c == '/' || c.is_whitespace());
            rest.get(..TAG.len())
                .is_some_and(|word| word.eq_ignore_ascii_case(TAG))
        };
        if c == '<' && begins() {
            out.push_str("&lt;");
        } else {
            out.push(c);
        }
    }
    out
}

/// A path between quotes.
fn named(path: &str) -> String {
    let fits = |c: char| {
        if c.is_control() || matches!(c, '"' | '<' | '>') {
            '_'
        } else {
            c
        }
    };
    path.chars().map(fits).collect()
}

/// What stays true for all runs that are started in the same way. No date: it would change under a session.
fn environment(inputs: &Inputs<'_>) -> String {
    let mut text = format!(
        "\nFacts:\n- The workspace is {}; paths are relative to it.\n- The system is {}.\n",
        inputs.root.root().display(),
        std::env::consts::OS,
    );
    text.push_str(match inputs.isolated {
        true => "- You work on a private copy of the workspace; it reaches the user as a whole when you are done.\n",
        false => "- You work on the user's files themselves.\n",
    });
    let blocking: Vec<&str> = inputs
        .validators
        .iter()
        .filter(|one| one.blocking())
        .map(|one| one.name())
        .collect();
    if !blocking.is_empty() {
        text.push_str(&format!(
            "- These checks must pass when you are done: {}.\n",
            blocking.join("; ")
        ));
    }
    text
}

/// What is true when a session is opened.
fn opening(root: &Path, below: &str) -> String {
    let mut text = String::new();
    if let Some(branch) = windlass_host::git::branch(root) {
        text.push_str(&format!(
            "- The git branch was `{branch}` when this session was opened.\n"
        ));
    }
    if !below.is_empty() {
        text.push_str(&format!(
            "- The user was in `{below}/` when this session was opened.\n"
        ));
    }
    text
}

/// The directory where the work begins, from the root; empty for the root, and for one that is not in it.
fn below(root: &Path, cd: Option<&Path>, environment: &Environment) -> String {
    let start = cd
        .map(Path::to_path_buf)
        .or_else(|| environment.current_dir().map(Path::to_path_buf));
    let start = start.and_then(|dir| dir.canonicalize().ok());
    let below = start
        .as_deref()
        .and_then(|dir| dir.strip_prefix(root).ok()?.to_str());
    below
        .filter(|below| !below.contains(char::is_control))
        .unwrap_or_default()
        .to_owned()
}
