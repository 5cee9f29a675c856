//! A program that does one prompt and ends, as data: how it is started, where the prompt goes, what its output is, and
//! how it is pointed at its model. Nothing here starts one.

use super::fields::Fields;
use crate::filling::StartTexts;

/// Where the prompt is written for a program that reads it from a file, in its home.
pub(super) const PROMPT_FILE: &str = ".windlass/prompt.md";
/// The word for the prompt itself, for its file and for the conversation to go on with.
pub(super) const PROMPT: &str = "{prompt}";
pub(super) const PROMPT_AT: &str = "{prompt_file}";
pub(super) const SESSION: &str = "{session}";

/// One program.
///
/// In `args`, `resume_args` and `texts` words in braces stand for what is known when it is
/// started: `{url}` and `{key}` (the model endpoint of the run), `{model}`, `{home}` (its home), `{workspace}`; in words
/// also `{prompt}`, `{prompt_file}` and, to go on, `{session}`.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// What it is called, in the log and on the screen.
    pub name: String,
    /// The program, with whoever runs it in front.
    pub command: Vec<String>,
    /// Its words. Without the prompt or its file among them it reads the prompt from its standard input.
    pub args: Vec<String>,
    /// Further words with which it goes on with an earlier conversation; without them it has none.
    pub resume_args: Vec<String>,
    /// Its variables and the files of its home.
    pub texts: StartTexts,
    /// The model it is told.
    pub model: Option<String>,
    /// What it prints.
    pub output: Output,
}

/// What a program prints.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Output {
    /// Its answer, in words.
    #[default]
    Text,
    /// JSON lines, with what stands where.
    Lines(Box<Fields>),
    /// What Aider prints and writes down.
    Aider,
}

/// Where the prompt goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptBy {
    Stdin,
    Argument,
    File,
}

impl Program {
    pub(super) fn prompt_by(&self) -> PromptBy {
        let has = |word: &str| self.args.iter().any(|arg| arg.contains(word));
        match (has(PROMPT), has(PROMPT_AT)) {
            (true, _) => PromptBy::Argument,
            (false, true) => PromptBy::File,
            (false, false) => PromptBy::Stdin,
        }
    }

    /// Whether it is told its model by what it is started with.
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

    /// What is wrong with it, before anything starts.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.command.first().is_none_or(String::is_empty) {
            return Err("a program needs the command that starts it; set `command`".to_owned());
        }
        if self.names_model() && self.model.is_none() {
            return Err(
                "it is told `{model}`, and no model was named; name one with -m, or set `model`"
                    .to_owned(),
            );
        }
        let names = |args: &[String], word: &str| args.iter().any(|arg| arg.contains(word));
        if names(&self.args, PROMPT) && names(&self.args, PROMPT_AT) {
            return Err("`args` may have `{prompt}` or `{prompt_file}`, not both".to_owned());
        }
        if !self.resume_args.is_empty() {
            if !names(&self.resume_args, SESSION) {
                return Err(
                    "`resume_args` says nowhere which conversation; it needs `{session}`"
                        .to_owned(),
                );
            }
            if !matches!(&self.output, Output::Lines(fields) if fields.session.is_some()) {
                return Err(
                    "`resume_args` needs the name of a conversation: set `output = \"jsonl\"` and `fields.session`"
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
