//! The description of a program that handles one prompt and exits: its start, the way of the prompt, its output, and
//! its model access. This module spawns nothing.

use super::fields::Fields;
use crate::placeholders::LaunchTexts;

/// The file with the prompt, in the program's home.
pub(super) const PROMPT_FILE: &str = ".windlass/prompt.md";
/// The placeholders for the prompt, for its file, and for the conversation to resume.
pub(super) const PROMPT: &str = "{prompt}";
pub(super) const PROMPT_FILE_PLACEHOLDER: &str = "{prompt_file}";
pub(super) const SESSION: &str = "{session}";

/// One program.
///
/// In `args`, `resume_args` and `texts`, placeholders stand for values that are known when it is started: `{url}` and
/// `{key}` (the model endpoint of the run), `{model}`, `{home}` (of the program), `{workspace}`; in arguments also
/// `{prompt}`, `{prompt_file}` and, for resuming, `{session}`.
#[derive(Debug, Clone, Default)]
pub struct OneShotProgram {
    /// The name in the log and on the screen.
    pub name: String,
    /// The program, after an interpreter if it needs one.
    pub command: Vec<String>,
    /// The arguments. Without the prompt or its file among them, the program reads the prompt from its standard input.
    pub args: Vec<String>,
    /// Additional arguments that resume an earlier conversation. Without them, the program has no conversations.
    pub resume_args: Vec<String>,
    /// The environment and the files in the home.
    pub texts: LaunchTexts,
    pub model: Option<String>,
    pub output: ProgramOutput,
}

/// The output of a program.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ProgramOutput {
    /// The answer as plain text.
    #[default]
    Text,
    /// JSON lines, with the positions of their values.
    Lines(Box<Fields>),
    /// The output and the files of Aider.
    Aider,
}

/// The way in which the program gets the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptBy {
    Stdin,
    Argument,
    File,
}

impl OneShotProgram {
    pub(super) fn prompt_by(&self) -> PromptBy {
        let has = |word: &str| self.args.iter().any(|arg| arg.contains(word));
        match (has(PROMPT), has(PROMPT_FILE_PLACEHOLDER)) {
            (true, _) => PromptBy::Argument,
            (false, true) => PromptBy::File,
            (false, false) => PromptBy::Stdin,
        }
    }

    /// Whether the command, the environment or the files name the model.
    pub(super) fn names_model(&self) -> bool {
        let words = self
            .command
            .iter()
            .chain(&self.args)
            .chain(&self.resume_args);
        words
            .chain(self.texts.used(true))
            .any(|text| text.contains("{model}"))
    }

    /// Refuses a description that cannot work.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.command.first().is_none_or(String::is_empty) {
            return Err("the command of the program is missing; set `command`".to_owned());
        }
        if self.names_model() && self.model.is_none() {
            return Err(
                "the settings contain `{model}`, but no model was named; name one with `-m`, or set `model`"
                    .to_owned(),
            );
        }
        let names = |args: &[String], word: &str| args.iter().any(|arg| arg.contains(word));
        if names(&self.args, PROMPT) && names(&self.args, PROMPT_FILE_PLACEHOLDER) {
            return Err("`args` can contain `{prompt}` or `{prompt_file}`, not both".to_owned());
        }
        if !self.resume_args.is_empty() {
            if !names(&self.resume_args, SESSION) {
                return Err(
                    "`resume_args` does not name the conversation; it needs `{session}`".to_owned(),
                );
            }
            if !matches!(&self.output, ProgramOutput::Lines(fields) if fields.session.is_some()) {
                return Err(
                    "`resume_args` needs the id of a conversation: set `output = \"jsonl\"` and `fields.session`"
                        .to_owned(),
                );
            }
        }
        if names(&self.args, SESSION) {
            return Err(
                "`{session}` is for `resume_args`: a first prompt has no conversation yet"
                    .to_owned(),
            );
        }
        Ok(())
    }
}
