//! Exit codes (spec 4.3). Only this module maps outcomes to numbers.

use std::process::ExitCode;

use windlass::core::outcome::{FailReason, Outcome};
use windlass_text::sanitize::plain;

use crate::out::{self, say};

pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const VALIDATION: u8 = 3;
pub(crate) const BUDGET: u8 = 4;
pub(crate) const ASKED: u8 = 5;
pub(crate) const REFUSED: u8 = 6;
pub(crate) const PROVIDER: u8 = 7;
pub(crate) const ISOLATION: u8 = 8;
pub(crate) const TIME: u8 = 124;
pub(crate) const INTERRUPTED: u8 = 130;

/// Every code with its meaning, for `docs/reference.md`.
#[cfg(test)]
pub(crate) const CODES: &[(u8, &str)] = &[
    (
        0,
        "Success; a run ended `completed` or `completed_with_limit_exceeded`.",
    ),
    (
        FAILED,
        "Any other failure than those below; a run ended `failed`.",
    ),
    (USAGE, "Wrong usage or configuration; nothing was started."),
    (
        VALIDATION,
        "A blocking check did not pass, and nothing landed.",
    ),
    (
        BUDGET,
        "A limit on money, tokens, steps or iterations was reached.",
    ),
    (
        ASKED,
        "Paused: a person has to answer; the session can be resumed.",
    ),
    (REFUSED, "The model, its vendor or a policy declined."),
    (
        PROVIDER,
        "The model could not be reached, or the key or quota is missing.",
    ),
    (
        ISOLATION,
        "The requested isolation is not available on this machine.",
    ),
    (TIME, "The time limit was reached."),
    (INTERRUPTED, "Interrupted by a person or the host."),
];

/// The code of a run; the outcome is `None` if the run is paused on an ask.
pub(crate) fn code(outcome: Option<&Outcome>) -> u8 {
    match outcome {
        None => ASKED,
        Some(Outcome::Completed | Outcome::CompletedWithLimitExceeded { .. }) => 0,
        Some(Outcome::Failed { reason, .. }) => match reason {
            FailReason::Validation => VALIDATION,
            FailReason::Provider => PROVIDER,
            FailReason::Isolation => ISOLATION,
            _ => FAILED,
        },
        Some(Outcome::Refused { .. }) => REFUSED,
        Some(Outcome::BudgetExceeded { .. } | Outcome::MaxSteps) => BUDGET,
        Some(Outcome::TimedOut) => TIME,
        Some(Outcome::Cancelled) => INTERRUPTED,
    }
}

/// Prints the result of a failed parse. Clap reports help and version as errors too; these exit with 0.
pub(crate) fn usage(err: &clap::Error) -> ExitCode {
    // The message repeats the arguments, which may contain terminal escapes.
    let text = err.render();
    let typed_safely =
        std::env::args_os().all(|word| word.to_str().is_some_and(|word| plain(word) == word));
    if typed_safely {
        let _ = err.print();
    } else {
        say!("{}", plain(text.to_string().trim_end()));
    }
    if err.use_stderr() {
        ExitCode::from(USAGE)
    } else {
        ExitCode::SUCCESS
    }
}

/// Prints to standard output. A closed pipe is not a failure.
pub(crate) fn print(text: &str) -> ExitCode {
    out::out(text);
    after_output(0)
}

/// Success or failure, or the error of standard output.
pub(crate) fn success_if(succeeded: bool) -> ExitCode {
    after_output(if succeeded { 0 } else { FAILED })
}

/// The code, or a failure with a message if standard output could not be written completely.
pub(crate) fn after_output(code: u8) -> ExitCode {
    match out::stdout_error() {
        Some((kind, why)) if *kind != std::io::ErrorKind::BrokenPipe => {
            say!("error: standard output could not be written: {why}");
            ExitCode::from(if code == 0 { FAILED } else { code })
        }
        _ => ExitCode::from(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::core::budget::Limit;
    use windlass::core::outcome::RefusalCategory;

    #[test]
    fn every_outcome_has_the_code_of_the_spec() {
        let failed = |reason| Outcome::failed(reason, "");
        let table = [
            (Some(Outcome::Completed), 0),
            (
                Some(Outcome::CompletedWithLimitExceeded { limit: Limit::Cost }),
                0,
            ),
            (Some(failed(FailReason::Runtime)), 1),
            (Some(failed(FailReason::Store)), 1),
            (Some(failed(FailReason::Validation)), 3),
            (
                Some(Outcome::BudgetExceeded {
                    limit: Limit::Tokens,
                }),
                4,
            ),
            (Some(Outcome::MaxSteps), 4),
            (None, 5),
            (
                Some(Outcome::Refused {
                    category: RefusalCategory::Safety,
                    detail: String::new(),
                }),
                6,
            ),
            (Some(failed(FailReason::Provider)), 7),
            (Some(failed(FailReason::Isolation)), 8),
            (Some(Outcome::TimedOut), 124),
            (Some(Outcome::Cancelled), 130),
        ];
        for (outcome, expect) in table {
            assert_eq!(code(outcome.as_ref()), expect, "{outcome:?}");
            assert!(
                CODES.iter().any(|(known, _)| *known == expect),
                "{expect} is not in the table"
            );
        }
    }
}
