//! File edits as text, for agents whose model has no tools and writes its edits into the answer. The request says which
//! format it wants. All functions are pure.

use crate::request::ScriptedRequest;
use crate::script::Move;

/// A text format for edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EditFormat {
    /// Blocks with the text to search for and its replacement, between markers.
    SearchReplace,
    /// A unified diff without line numbers.
    Diff,
    /// Each file with its whole content.
    Whole,
}

/// Phrases in a request that ask for a format. The first match applies, so narrower phrases come first.
const EDIT_FORMATS: &[(&str, EditFormat)] = &[
    ("*SEARCH/REPLACE block*", EditFormat::SearchReplace),
    ("<<<<<<< SEARCH", EditFormat::SearchReplace),
    ("diff -U0", EditFormat::Diff),
    ("*file listing*", EditFormat::Whole),
];

/// The phrase with which an agent rejects the edits of an answer because it first shows the model a file that they
/// name. It then wants the same answer again.
const AGAIN: &str = "I added these files to the chat";

/// The number of answers in the history that the agent rejected.
pub(crate) fn rejected_answers(asked: &ScriptedRequest) -> usize {
    edit_format(asked).map_or(0, |_| asked.whole.matches(AGAIN).count())
}

/// The format that a request asks for; `None` if it asks for none, or if it offers tools.
pub(crate) fn edit_format(asked: &ScriptedRequest) -> Option<EditFormat> {
    let wanted = EDIT_FORMATS
        .iter()
        .find(|(words, _)| asked.whole.contains(words))
        .map(|(_, form)| *form);
    wanted.filter(|_| asked.tools.is_empty())
}

/// One answer with all these changes; `None` if the format cannot express one of them.
pub(crate) fn answer(form: EditFormat, steps: &[&Move]) -> Option<String> {
    let blocks: Option<Vec<String>> = steps.iter().map(|step| block(form, step)).collect();
    Some(format!("The changes:\n\n{}", blocks?.join("\n")))
}

fn block(form: EditFormat, step: &Move) -> Option<String> {
    let (path, old, new) = match step {
        Move::Write { path, text } => (path, "", text.as_str()),
        Move::Edit { path, old, new } => (path, old.as_str(), new.as_str()),
        _ => return None,
    };
    let lines = |text: &str, sign: &str| {
        text.lines()
            .map(|line| format!("{sign}{line}\n"))
            .collect::<String>()
    };
    match (form, step) {
        (EditFormat::SearchReplace, _) => {
            let (old, new) = (lines(old, ""), lines(new, ""));
            Some(format!(
                "{path}\n```\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```\n"
            ))
        }
        (EditFormat::Diff, Move::Write { .. }) => Some(format!(
            "```diff\n--- /dev/null\n+++ {path}\n@@ ... @@\n{}```\n",
            lines(new, "+")
        )),
        (EditFormat::Diff, _) => Some(format!(
            "```diff\n--- {path}\n+++ {path}\n@@ ... @@\n{}{}```\n",
            lines(old, "-"),
            lines(new, "+")
        )),
        (EditFormat::Whole, Move::Write { .. }) => {
            Some(format!("{path}\n```\n{}```\n", lines(new, "")))
        }
        // The rest of the file is not known here.
        (EditFormat::Whole, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_form(question: &str, expect: Option<EditFormat>) {
        assert_eq!(
            edit_format(&ScriptedRequest {
                whole: question.to_owned(),
                ..ScriptedRequest::default()
            }),
            expect
        );
    }

    #[test]
    fn the_request_says_which_format_it_wants() {
        check_form(
            "All changes must use this *SEARCH/REPLACE block* format",
            Some(EditFormat::SearchReplace),
        );
        check_form(
            "return edits similar to unified diffs that `diff -U0` would produce",
            Some(EditFormat::Diff),
        );
        check_form(
            "You MUST use this *file listing* format",
            Some(EditFormat::Whole),
        );
        check_form("Answer in one sentence.", None);
    }

    #[test]
    fn a_rejected_answer_is_wanted_again() {
        let asked = |text: &str| ScriptedRequest {
            whole: format!("*SEARCH/REPLACE block* {text}"),
            ..ScriptedRequest::default()
        };
        assert_eq!(rejected_answers(&asked("go")), 0);
        assert_eq!(
            rejected_answers(&asked("go. I added these files to the chat: a.txt")),
            1
        );
        assert_eq!(
            rejected_answers(&ScriptedRequest {
                whole: "I added these files to the chat: a".into(),
                ..ScriptedRequest::default()
            }),
            0
        );
    }

    #[track_caller]
    fn check(form: EditFormat, steps: &[Move], expect: Option<&str>) {
        let steps: Vec<&Move> = steps.iter().collect();
        assert_eq!(answer(form, &steps).as_deref(), expect);
    }

    #[test]
    fn changes_become_one_answer() {
        let write = || Move::Write {
            path: "b c.txt".into(),
            text: "first\n".into(),
        };
        let edit = || Move::Edit {
            path: "a.txt".into(),
            old: "two".into(),
            new: "TWO".into(),
        };
        check(
            EditFormat::SearchReplace,
            &[write(), edit()],
            Some(
                "The changes:\n\nb c.txt\n```\n<<<<<<< SEARCH\n=======\nfirst\n>>>>>>> REPLACE\n```\n\n\
                 a.txt\n```\n<<<<<<< SEARCH\ntwo\n=======\nTWO\n>>>>>>> REPLACE\n```\n",
            ),
        );
        check(
            EditFormat::Diff,
            &[edit()],
            Some("The changes:\n\n```diff\n--- a.txt\n+++ a.txt\n@@ ... @@\n-two\n+TWO\n```\n"),
        );
        check(
            EditFormat::Whole,
            &[write()],
            Some("The changes:\n\nb c.txt\n```\nfirst\n```\n"),
        );
        check(EditFormat::Whole, &[write(), edit()], None);
        check(EditFormat::SearchReplace, &[Move::Delete("a".into())], None);
    }
}
