//! The instructions that a foreign agent gets before its work, and the detection of an agent that asks for permission
//! instead of working. These are texts only; the envelope restricts the agent.

/// Instructions for every interactive agent, before the first prompt of an attempt.
pub const CONTRACT: &str = "\
You work without a user present, in a private copy of the repository, which is the current directory. \
Do the whole task now: change the files, and do not ask for confirmation or offer to continue; \
no user will answer. You cannot access anything outside this directory, nor most of the network. A refused call \
stays refused: find another way, or report what you could not do. When you are done, the project's own checks judge \
the files. Do not commit unless the task asks for it.";

/// The prompt for an agent that asked for permission once instead of working.
pub const CONTINUE_PROMPT: &str = "\
No user can confirm anything: you have every permission that exists. Do the whole task now, in the files.";

/// The prompt for an agent that ended its turn at a refused call without a message.
pub const REFUSED_PROMPT: &str = "\
That call was refused and stays refused. Continue with the rest of the task without it, in another way if there is \
one, and report at the end what you could not do.";

/// Phrases with which agents ask for permission, near the end of an answer.
const PERMISSION_PHRASES: &[&str] = &[
    "shall i",
    "should i",
    "would you like me",
    "do you want me",
    "may i proceed",
    "want me to",
    "let me know if you",
    "let me know whether",
    "please confirm",
    "waiting for your confirmation",
    "awaiting your approval",
    "ready to proceed",
    "if you'd like me to",
    "if you approve",
    "once you approve",
    "grant permission",
    "need your permission",
    "need permission to",
];

/// Bytes at the end of an answer that are searched.
const SEARCHED_END: usize = 600;

/// Whether an answer asks for permission instead of reporting results.
#[must_use]
pub fn asks_for_permission(answer: &str) -> bool {
    let answer = answer.trim_end();
    let from = answer.floor_char_boundary(answer.len().saturating_sub(SEARCHED_END));
    let end = answer[from..].to_lowercase().replace('\u{2019}', "'");
    PERMISSION_PHRASES.iter().any(|phrase| end.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, asks: bool) {
        assert_eq!(asks_for_permission(answer), asks, "{answer}");
    }

    #[test]
    fn asking_for_permission_is_distinguished_from_a_report() {
        check("I would change `a.py`. Shall I go on?", true);
        check(
            "Here is the plan: …\n\nWould you like me to implement it?",
            true,
        );
        check("I need your permission to edit the file.", true);
        check(
            "Done: `a.py` now handles empty lists, and the tests pass.",
            false,
        );
        check(
            &format!("Shall I? {} Done.", "I did it. ".repeat(200)),
            false,
        );
        check("", false);
    }
}
