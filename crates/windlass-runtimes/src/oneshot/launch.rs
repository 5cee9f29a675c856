//! Assembles the start of a program for one prompt: fills in its arguments and variables, writes the prompt to its
//! place, and removes files with which an earlier attempt could influence it.

use windlass_core::enclosure::Launch;

use super::program::{
    OneShotProgram, PROMPT, PROMPT_FILE, PROMPT_FILE_PLACEHOLDER, PromptBy, SESSION,
};
use crate::agent::AgentAttempt;
use crate::placeholders::PlaceholderValues;

/// The longest argument that Linux accepts, with space for text around the prompt.
const MAX_ARGUMENT: usize = (128 << 10) - 4_096;

/// Writes the files into the home. Returns the command with its environment, and the text for standard input.
pub(super) fn launch(
    program: &OneShotProgram,
    attempt: &AgentAttempt<'_>,
    session: Option<&str>,
    say: &str,
) -> Result<(Launch, String), String> {
    let file = attempt.in_home(PROMPT_FILE);
    let model = program.model.as_deref();
    let by = program.prompt_by();
    if by == PromptBy::Argument && say.len() > MAX_ARGUMENT {
        return Err(format!(
            "the prompt has {} bytes, but an argument at most {MAX_ARGUMENT}; pass it with `{PROMPT_FILE_PLACEHOLDER}` or the standard \
             input instead",
            say.len()
        ));
    }
    let words = [
        (PROMPT, say),
        (PROMPT_FILE_PLACEHOLDER, &file),
        (SESSION, session.unwrap_or_default()),
    ];
    let values = PlaceholderValues::new(attempt, &program.name, model, &words);
    let resume = session.map(|_| &program.resume_args).into_iter().flatten();
    let mut argv = program.command.clone();
    for word in program.args.iter().chain(resume) {
        argv.push(values.word(word)?);
    }
    let values = PlaceholderValues::new(attempt, &program.name, model, &[]);
    let env = values.prepare(attempt, &program.texts)?;
    if by == PromptBy::File {
        attempt.put_home(PROMPT_FILE, say)?;
    }
    let input = if by == PromptBy::Stdin { say } else { "" };
    Ok((Launch::new(argv, env), input.to_owned()))
}
