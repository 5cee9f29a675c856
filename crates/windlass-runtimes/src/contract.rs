//! What a foreign agent is told before its work, and how it is noticed that it asks for leave instead of working.
//! Words only: nothing here is a means to hold it, the envelope is.

/// What every interactive agent is told, in front of the first prompt of a try.
pub const CONTRACT: &str = "\
You are working without a person at hand, in a private copy of the repository that is the current directory. \
Do the task to its end now: make the changes in the files, and do not ask for confirmation or offer to go on; \
nobody answers. Everything outside this directory is closed to you, and most of the network is. A call that is refused \
stays refused: find another way, or say what you could not do. When you are done, the project's own checks judge the \
files as they are. Do not commit, unless the task asks for it.";

/// What an agent is told once that asked instead of working.
pub const GO_ON: &str = "\
Nobody can confirm anything: you have every permission that there is. Do the whole task now, in the files.";

/// What an agent is told that ended its turn at a refusal, with nothing said.
pub const REFUSED: &str = "\
That call was refused, and stays refused. Go on with the rest of the task without it, another way where there is one, \
and say at the end what you could not do.";

/// Phrases with which agents ask for leave, in the last part of what they say.
const ASKING: &[&str] = &[
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

/// How much of the end of an answer is looked at.
const END: usize = 600;

/// Whether an answer asks for leave instead of saying what was done.
#[must_use]
pub fn asks_for_leave(answer: &str) -> bool {
    let answer = answer.trim_end();
    let from = answer.floor_char_boundary(answer.len().saturating_sub(END));
    let end = answer[from..].to_lowercase().replace('\u{2019}', "'");
    ASKING.iter().any(|phrase| end.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, asks: bool) {
        assert_eq!(asks_for_leave(answer), asks, "{answer}");
    }

    #[test]
    fn asking_for_leave_is_told_from_saying_what_was_done() {
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
