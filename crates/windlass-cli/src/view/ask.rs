//! Asks at the terminal: renders the question and parses the typed answer.

use windlass::core::ask::{About, Answer, Approval, Ask};
use windlass::core::host_name;
use windlass::core::tool::Touch;

use super::style::{Paint, Style};
use crate::sanitize::{marked_block, marked_line};

/// The most touches that a question shows.
const MAX_TOUCHES: usize = 40;

/// Renders the question; its last line is the prompt.
pub(crate) fn question(ask: &Ask) -> String {
    let paint = Paint::for_stderr();
    let mut text = String::new();
    match &ask.about {
        About::Approval(approval) => {
            text.push_str(&format!(
                "{} {}\n",
                paint.on(Style::Warning, "approve?"),
                marked_line(&approval.call.name)
            ));
            text.push_str(&whole_call(approval));
            text.push_str(&format!(
                "  because: {} ({})\n",
                marked_line(&approval.reason),
                marked_line(&approval.rule)
            ));
            for touch in approval
                .touches
                .iter()
                .filter(|touch| !runs(touch))
                .take(MAX_TOUCHES)
            {
                text.push_str(&format!("  {}\n", marked_line(&touched(touch))));
            }
            text.push_str(&more(approval.touches.len(), MAX_TOUCHES, "touches"));
            for line in approval.preview.iter().flat_map(|preview| {
                marked_block(preview)
                    .lines()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            }) {
                let style = match line.trim_start_matches([' ', '│']).bytes().next() {
                    Some(b'+') => Style::Added,
                    Some(b'-') => Style::Removed,
                    _ => Style::Dim,
                };
                text.push_str(&format!("{}\n", paint.on(style, &line)));
            }
            match &approval.always {
                Some(rule) => text.push_str(&format!(
                    "[y]es, once  [a]lways allow {}  [n]o (you can add a reason): ",
                    marked_line(rule)
                )),
                None => text.push_str("[y]es, once  [n]o (you can add a reason): "),
            }
        }
        About::Landing(landing) => {
            text.push_str(&format!(
                "{}\n",
                paint.on(Style::Warning, "land these changes?")
            ));
            for (path, reason) in landing.paths.iter().take(MAX_TOUCHES) {
                text.push_str(&format!(
                    "  {}: {}\n",
                    marked_line(path),
                    marked_line(reason)
                ));
            }
            text.push_str(&more(landing.paths.len(), MAX_TOUCHES, "paths"));
            for check in &landing.failing {
                let check = marked_line(check);
                text.push_str(&format!(
                    "  the check `{check}` fails, as it did before this run\n"
                ));
            }
            text.push_str("[y]es  [n]o: ");
        }
        About::Question(question) => {
            text.push_str(&format!(
                "{}\n{}",
                paint.on(Style::Warning, "question:"),
                marked_block(&question.text)
            ));
            for (at, option) in question.options.iter().enumerate() {
                text.push_str(&format!("  {}. {}\n", at + 1, marked_line(option)));
            }
            text.push_str("> ");
        }
    }
    text
}

/// Renders the call: its commands line by line, or else its arguments.
fn whole_call(approval: &Approval) -> String {
    let commands = approval.touches.iter().filter_map(|touch| match touch {
        Touch::Execute { command, .. } => Some(marked_block(command)),
        _ => None,
    });
    let commands: String = commands.collect();
    match &approval.preview {
        _ if !commands.is_empty() => commands,
        // The question shows the diff and the touched paths below.
        Some(_) => String::new(),
        None => arguments(&approval.call.args),
    }
}

/// Renders the arguments of a call by name. Texts are not quoted, so that they are readable.
fn arguments(args: &serde_json::Value) -> String {
    let Some(args) = args.as_object() else {
        return marked_block(&format!("{args:#}"));
    };
    let named = args.iter().map(|(name, value)| match value.as_str() {
        Some(text) if text.contains('\n') => format!("{name}:\n{}", text.trim_end_matches('\n')),
        Some(text) => format!("{name}: {text}"),
        None => format!("{name}: {value}"),
    });
    marked_block(&named.collect::<Vec<_>>().join("\n"))
}

fn runs(touch: &Touch) -> bool {
    matches!(touch, Touch::Execute { .. })
}

/// Tells the user that the list is longer than shown, so that no one approves the rest without knowing.
fn more(all: usize, shown: usize, what: &str) -> String {
    if all <= shown {
        String::new()
    } else {
        format!("  … and {} more {what} that are NOT shown\n", all - shown)
    }
}

/// Parses a typed answer; `None` if it is not a valid answer to this ask.
pub(crate) fn parse_answer(ask: &Ask, line: &str) -> Option<Answer> {
    let line = line.trim();
    match &ask.about {
        About::Question(question) => {
            let chosen = line
                .parse::<usize>()
                .ok()
                .and_then(|n| question.options.get(n.checked_sub(1)?));
            let text = chosen.cloned().unwrap_or_else(|| line.to_owned());
            (!text.is_empty()).then_some(Answer::Text { text })
        }
        About::Landing(_) => match line.to_lowercase().as_str() {
            "y" | "yes" | "once" => Some(Answer::Once),
            "n" | "no" => Some(Answer::No { note: None }),
            _ => None,
        },
        About::Approval(approval) => {
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let note = (!rest.trim().is_empty()).then(|| rest.trim().to_owned());
            match word.to_lowercase().as_str() {
                "y" | "yes" | "once" if note.is_none() => Some(Answer::Once),
                "a" | "always" if note.is_none() && approval.always.is_some() => {
                    Some(Answer::Always { rule: None })
                }
                "n" | "no" => Some(Answer::No { note }),
                _ => None,
            }
        }
    }
}

fn touched(touch: &Touch) -> String {
    match touch {
        Touch::Read { path, .. } => format!("reads {path}"),
        Touch::Write { path, .. } => format!("writes {path}"),
        Touch::Execute { command, .. } => format!("runs {command}"),
        Touch::Connect { host } => format!("connects to {}", host_name::in_words(host)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::core::ask::Question;
    use windlass::core::id::AskId;
    use windlass::core::message::ToolCall;

    fn ask(about: About) -> Ask {
        let id = AskId::nth(1, 1);
        Ask {
            id,
            about,
            call: None,
            person: false,
            expires: None,
            waits_ms: None,
            run_ms: 0,
        }
    }

    fn approval(always: Option<&str>) -> Ask {
        let call = ToolCall {
            id: "c".into(),
            name: "bash".into(),
            args: serde_json::json!({"command": "ls"}),
            malformed: None,
        };
        let approval = Approval {
            call,
            touches: vec![],
            found: vec![],
            rule: "mode ask".into(),
            reason: "asks".into(),
            preview: None,
            always: always.map(str::to_owned),
        };
        ask(About::Approval(Box::new(approval)))
    }

    #[test]
    fn only_clear_answers_approve_a_call() {
        let ask = approval(Some("bash(ls*)"));
        assert_eq!(parse_answer(&ask, "y"), Some(Answer::Once));
        assert_eq!(parse_answer(&ask, " YES "), Some(Answer::Once));
        assert_eq!(parse_answer(&ask, "a"), Some(Answer::Always { rule: None }));
        assert_eq!(
            parse_answer(&ask, "n not that"),
            Some(Answer::No {
                note: Some("not that".into())
            })
        );
        for vague in ["", "ok", "yes but carefully", "yep", "1", "always maybe"] {
            assert_eq!(parse_answer(&ask, vague), None, "{vague}");
        }
        assert_eq!(parse_answer(&approval(None), "a"), None);
    }

    #[test]
    fn the_docs_show_the_real_question() {
        let page = include_str!("../../../../docs/commands.md");
        let mut ask = approval(Some("bash(cargo test *)"));
        let About::Approval(about) = &mut ask.about else {
            panic!("an approval")
        };
        about.reason = "everything except read-only calls needs approval".to_owned();
        about.touches = vec![Touch::Execute {
            command: "cargo test -p parser".to_owned(),
            script: None,
        }];
        let shown = question(&ask);
        assert!(page.contains(&format!("```text\n{shown}\n```")), "{shown}");
    }

    #[test]
    fn an_edit_without_a_diff_is_shown_as_text() {
        let mut ask = approval(None);
        let About::Approval(about) = &mut ask.about else {
            panic!("an approval")
        };
        about.call.args = serde_json::json!({ "path": "a.txt", "new": "one\ntwo\n", "all": true });
        let shown = question(&ask);
        for text in [
            "  │ path: a.txt\n",
            "  │ new:\n  │ one\n  │ two\n",
            "  │ all: true\n",
        ] {
            assert!(shown.contains(text), "{shown}");
        }
    }

    #[test]
    fn a_number_chooses_an_option() {
        let about = About::Question(Question {
            text: "which?".into(),
            options: vec!["red".into(), "blue".into()],
        });
        let ask = ask(about);
        assert_eq!(
            parse_answer(&ask, "2"),
            Some(Answer::Text {
                text: "blue".into()
            })
        );
        assert_eq!(
            parse_answer(&ask, "7"),
            Some(Answer::Text { text: "7".into() })
        );
        assert_eq!(parse_answer(&ask, " "), None);
    }

    #[track_caller]
    fn check(command: &str, expected_parts: &[&str]) {
        let mut ask = approval(None);
        let About::Approval(about) = &mut ask.about else {
            panic!("an approval")
        };
        about.touches = vec![Touch::Execute {
            command: command.to_owned(),
            script: None,
        }];
        let shown = question(&ask);
        assert!(
            shown.chars().all(|c| c == '\n' || !c.is_control()),
            "{shown:?}"
        );
        for part in expected_parts {
            assert!(shown.contains(part), "{part} is not in {shown:?}");
        }
    }

    #[test]
    fn invisible_characters_and_long_commands_are_visible() {
        check("touch build\rls           ", &["  │ touch build‹U+000D›ls"]);
        check("echo \u{202e} hs|live\u{202c}", &["‹U+202E›", "‹U+202C›"]);
        check(
            &format!("ls{}; touch tail", " ".repeat(5_000)),
            &["  │ ls ‹5000 blanks› ; touch tail\n"],
        );
        check(
            &format!("ls {}; touch tail", "x".repeat(50_000)),
            &["NOT shown", "; touch tail\n"],
        );
        check(
            "ls\n[y]es, once  [n]o\ntouch x",
            &["  │ ls\n  │ [y]es, once  [n]o\n  │ touch x\n"],
        );
    }
}
