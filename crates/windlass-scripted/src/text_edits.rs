//! Changes of files as text, for agents whose model has no tools and writes its edits into the answer. Which form is
//! meant stands in the question. Pure.

use crate::request::Asked;
use crate::script::Move;

/// A form of edits in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A place to find and what comes there, between marks.
    SearchReplace,
    /// A unified diff without line numbers.
    Diff,
    /// Each file whole.
    Whole,
}

/// Words of a question that ask for a form. The first that is found counts, so the narrower ones come first.
const FORMS: &[(&str, Form)] = &[
    ("*SEARCH/REPLACE block*", Form::SearchReplace),
    ("<<<<<<< SEARCH", Form::SearchReplace),
    ("diff -U0", Form::Diff),
    ("*file listing*", Form::Whole),
];

/// What an agent says that did not take the edits of an answer, because it first shows the model a file that they name. It
/// wants the same answer again.
const AGAIN: &str = "I added these files to the chat";

/// How many answers of the history were not taken.
pub(crate) fn not_taken(asked: &Asked) -> usize {
    form(asked).map_or(0, |_| asked.whole.matches(AGAIN).count())
}

/// The form that a question asks for; none where it asks for none, or where it offers tools.
pub(crate) fn form(asked: &Asked) -> Option<Form> {
    let wanted = FORMS
        .iter()
        .find(|(words, _)| asked.whole.contains(words))
        .map(|(_, form)| *form);
    wanted.filter(|_| asked.tools.is_empty())
}

/// One answer with all these changes; none where the form has no words for one of them.
pub(crate) fn answer(form: Form, steps: &[&Move]) -> Option<String> {
    let blocks: Option<Vec<String>> = steps.iter().map(|step| block(form, step)).collect();
    Some(format!("The changes:\n\n{}", blocks?.join("\n")))
}

fn block(form: Form, step: &Move) -> Option<String> {
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
        (Form::SearchReplace, _) => {
            let (old, new) = (lines(old, ""), lines(new, ""));
            Some(format!(
                "{path}\n```\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```\n"
            ))
        }
        (Form::Diff, Move::Write { .. }) => Some(format!(
            "```diff\n--- /dev/null\n+++ {path}\n@@ ... @@\n{}```\n",
            lines(new, "+")
        )),
        (Form::Diff, _) => Some(format!(
            "```diff\n--- {path}\n+++ {path}\n@@ ... @@\n{}{}```\n",
            lines(old, "-"),
            lines(new, "+")
        )),
        (Form::Whole, Move::Write { .. }) => Some(format!("{path}\n```\n{}```\n", lines(new, ""))),
        // What else stands in the file is not known here.
        (Form::Whole, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_form(question: &str, expect: Option<Form>) {
        assert_eq!(
            form(&Asked {
                whole: question.to_owned(),
                ..Asked::default()
            }),
            expect
        );
    }

    #[test]
    fn the_question_says_which_form_it_wants() {
        check_form(
            "All changes must use this *SEARCH/REPLACE block* format",
            Some(Form::SearchReplace),
        );
        check_form(
            "return edits similar to unified diffs that `diff -U0` would produce",
            Some(Form::Diff),
        );
        check_form("You MUST use this *file listing* format", Some(Form::Whole));
        check_form("Answer in one sentence.", None);
    }

    #[test]
    fn an_answer_that_was_not_taken_is_wanted_again() {
        let asked = |text: &str| Asked {
            whole: format!("*SEARCH/REPLACE block* {text}"),
            ..Asked::default()
        };
        assert_eq!(not_taken(&asked("go")), 0);
        assert_eq!(
            not_taken(&asked("go. I added these files to the chat: a.txt")),
            1
        );
        assert_eq!(
            not_taken(&Asked {
                whole: "I added these files to the chat: a".into(),
                ..Asked::default()
            }),
            0
        );
    }

    #[track_caller]
    fn check(form: Form, steps: &[Move], expect: Option<&str>) {
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
            Form::SearchReplace,
            &[write(), edit()],
            Some(
                "The changes:\n\nb c.txt\n```\n<<<<<<< SEARCH\n=======\nfirst\n>>>>>>> REPLACE\n```\n\n\
                 a.txt\n```\n<<<<<<< SEARCH\ntwo\n=======\nTWO\n>>>>>>> REPLACE\n```\n",
            ),
        );
        check(
            Form::Diff,
            &[edit()],
            Some("The changes:\n\n```diff\n--- a.txt\n+++ a.txt\n@@ ... @@\n-two\n+TWO\n```\n"),
        );
        check(
            Form::Whole,
            &[write()],
            Some("The changes:\n\nb c.txt\n```\nfirst\n```\n"),
        );
        check(Form::Whole, &[write(), edit()], None);
        check(Form::SearchReplace, &[Move::Delete("a".into())], None);
    }
}
