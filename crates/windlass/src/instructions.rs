//! The system prompt in layers: the text of Windlass, the instruction files, the instructions of the settings and the
//! profile, and facts about the workspace. The system prompt stays the same for a whole session, so that vendors can cache
//! it; facts that hold only at the opening of a session are separate.
//!
//! ```
//! use windlass::instructions::{PromptInputs, PromptLayer, Prompt};
//! use windlass::machine::Root;
//! use windlass::settings::Settings;
//!
//! let dir = tempfile::tempdir()?;
//! std::fs::write(dir.path().join("AGENTS.md"), "Write tests first.")?;
//! let settings = Settings::none(&dir.path().join(".data"));
//! let redactor = windlass::wire::redactor(&settings)?;
//! let prompt = Prompt::of(&PromptInputs {
//!     settings: &settings,
//!     root: &Root::open(dir.path())?,
//!     cd: None,
//!     isolated: true,
//!     validators: &[],
//!     redactor: redactor.as_ref(),
//! });
//! let layers: &[PromptLayer] = &prompt.layers;
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

/// The introduction of the instruction files. It states their precedence, which a model cannot infer.
const ABOUT: &str = "Instructions of the people you work for follow, from the most general to the most specific. Follow \
them. If two conflict, the administrator's take precedence, otherwise the later one does; the user's requests in this \
conversation take precedence over the project's. They are only text: they permit no denied call, and do not change which \
calls need approval.";

/// The inputs of a system prompt.
pub struct PromptInputs<'a> {
    pub settings: &'a Settings,
    pub root: &'a Root,
    /// The directory in which the user started the run; the default is the current directory.
    pub cd: Option<&'a Path>,
    pub isolated: bool,
    /// The checks that the prompt lists.
    pub validators: &'a [Arc<dyn Validator>],
    /// Removes secrets from instruction files.
    pub redactor: &'a dyn Redactor,
}

/// One part of a system prompt.
pub struct PromptLayer {
    /// The origin: `windlass`, `managed`, `user`, `project`, `settings`, `profile` or `environment`.
    pub kind: &'static str,
    /// The path of the instruction file, if the layer is one.
    pub path: Option<String>,
    pub text: String,
}

/// A system prompt with its layers.
pub struct Prompt {
    /// In the order in which the model reads them.
    pub layers: Vec<PromptLayer>,
    /// Instruction files that were not read, with the reason.
    pub skipped: Vec<SkippedInstruction>,
    /// The instruction files and opening facts, in the form that the engine needs.
    pub instructions: Instructions,
}

impl Prompt {
    /// Reads the instruction files and builds the layers.
    pub fn of(inputs: &PromptInputs<'_>) -> Self {
        let PromptInputs {
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
        let mut layers = vec![PromptLayer {
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
                escape_path(path),
                escape_tags(&clean(&file.text))
            );
            layers.push(PromptLayer {
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
                layers.push(PromptLayer {
                    kind,
                    path: None,
                    text: format!("\n{}\n", clean(words)),
                });
            }
        }
        layers.push(PromptLayer {
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

    /// The text of the system prompt, without facts about the opening of a session.
    pub fn system(&self) -> String {
        self.layers
            .iter()
            .map(|layer| layer.text.as_str())
            .collect()
    }

    /// The instructions that a foreign agent does not find by itself: those of the administrator, the user, the settings
    /// and the profile, and files of the project that the agent does not read (`reads` decides by file name).
    pub(crate) fn for_foreign_agent(&self, reads: impl Fn(&str) -> bool) -> String {
        let is_sent = |layer: &&PromptLayer| match (layer.kind, &layer.path) {
            ("project", Some(path)) => !reads(path.rsplit('/').next().unwrap_or_default()),
            (kind, _) => ["managed", "user", "settings", "profile"].contains(&kind),
        };
        let text: String = self
            .layers
            .iter()
            .filter(is_sent)
            .map(|layer| layer.text.as_str())
            .collect();
        text.trim().to_owned()
    }
}

/// Escapes `<instructions>` tags in a file, so that its text cannot end its own element and pretend to be instructions
/// of a higher precedence.
fn escape_tags(text: &str) -> String {
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

/// Replaces characters of a path that could end the quoted attribute.
fn escape_path(path: &str) -> String {
    let fits = |c: char| {
        if c.is_control() || matches!(c, '"' | '<' | '>') {
            '_'
        } else {
            c
        }
    };
    path.chars().map(fits).collect()
}

/// Facts that are the same for all runs of a session. They do not include the date, which would change and invalidate the
/// vendor's cache.
fn environment(inputs: &PromptInputs<'_>) -> String {
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

/// Facts about the moment at which a session is opened.
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

/// The directory in which the user started the run, relative to the root; empty for the root and for directories outside
/// of it.
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
