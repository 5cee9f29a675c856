//! How a program is started for one prompt: its words and variables are filled in, the prompt is put where it looks for
//! it, and what an earlier try left to steer it is removed.

use windlass_core::enclosure::Launch;

use super::program::{PROMPT, PROMPT_AT, PROMPT_FILE, Program, PromptBy, SESSION};
use crate::agent::AgentAttempt;
use crate::filling::Values;

/// The longest word that Linux gives a program, with room for what stands around the prompt in it.
const MAX_ARGUMENT: usize = (128 << 10) - 4_096;

/// Puts what it needs into its home and says how to start it; beside that, what it is to read from its standard input.
pub(super) fn launch(
    program: &Program,
    attempt: &AgentAttempt<'_>,
    session: Option<&str>,
    say: &str,
) -> Result<(Launch, String), String> {
    let file = attempt.in_home(PROMPT_FILE);
    let model = program.model.as_deref();
    let by = program.prompt_by();
    if by == PromptBy::Argument && say.len() > MAX_ARGUMENT {
        return Err(format!(
            "the prompt has {} bytes, and a word of a command line at most {MAX_ARGUMENT}; give it by `{PROMPT_AT}` or \
             the standard input instead",
            say.len()
        ));
    }
    let words = [
        (PROMPT, say),
        (PROMPT_AT, &file),
        (SESSION, session.unwrap_or_default()),
    ];
    let values = Values::new(attempt, &program.name, model, &words);
    let resume = session.map(|_| &program.resume_args).into_iter().flatten();
    let mut argv = program.command.clone();
    for word in program.args.iter().chain(resume) {
        argv.push(values.word(word)?);
    }
    let values = Values::new(attempt, &program.name, model, &[]);
    let env = values.prepare(attempt, &program.texts)?;
    if by == PromptBy::File {
        attempt.put_home(PROMPT_FILE, say)?;
    }
    let input = if by == PromptBy::Stdin { say } else { "" };
    Ok((Launch::new(argv, env), input.to_owned()))
}
