//! Asks at the terminal: renders the question and parses the typed answer.

use windlass::core::ask::{About, Answer, Approval, Ask, LandingAsk};
use windlass::core::host_name;
use windlass::core::tool::Touch;
use windlass_text::sanitize::{marked_block, marked_line};
use windlass_text::{StyledLine, Tone};

/// The most touches that a question shows.
const MAX_TOUCHES: usize = 40;

/// Renders the question; its last line is the prompt.
pub(crate) fn question(ask: &Ask) -> Vec<StyledLine> {
    match &ask.about {
        About::Approval(approval) => approval_lines(approval),
        About::Landing(landing) => landing_lines(landing),
        About::Question(question) => {
            let mut lines = vec![StyledLine::of("question:", Tone::Warn)];
            lines.extend(block(&question.text));
            for (at, option) in question.options.iter().enumerate() {
                lines.push(text(&format!("  {}. {}", at + 1, marked_line(option))));
            }
            lines.push(text("> "));
            lines
        }
    }
}

fn approval_lines(approval: &Approval) -> Vec<StyledLine> {
    let name = marked_line(&approval.call.name);
    let mut lines =
        vec![StyledLine::of("approve?", Tone::Warn).with(format!(" {name}"), Tone::Text)];
    lines.extend(whole_call(approval));
    lines.push(text(&format!(
        "  because: {} ({})",
        marked_line(&approval.reason),
        marked_line(&approval.rule)
    )));
    let touches = approval.touches.iter().filter(|touch| !runs(touch));
    for touch in touches.take(MAX_TOUCHES) {
        lines.push(text(&format!("  {}", marked_line(&touched(touch)))));
    }
    lines.extend(more(approval.touches.len(), MAX_TOUCHES, "touches"));
    let preview = approval.preview.as_deref().map(marked_block);
    for line in preview.iter().flat_map(|preview| preview.lines()) {
        let tone = match line.trim_start_matches([' ', '│']).bytes().next() {
            Some(b'+') => Tone::Added,
            Some(b'-') => Tone::Removed,
            _ => Tone::Muted,
        };
        lines.push(StyledLine::of(line, tone));
    }
    lines.push(text(&match &approval.always {
        Some(rule) => format!(
            "[y]es, once  [a]lways allow {}  [n]o (you can add a reason): ",
            marked_line(rule)
        ),
        None => "[y]es, once  [n]o (you can add a reason): ".to_owned(),
    }));
    lines
}

fn landing_lines(landing: &LandingAsk) -> Vec<StyledLine> {
    let mut lines = vec![StyledLine::of("land these changes?", Tone::Warn)];
    for (path, reason) in landing.paths.iter().take(MAX_TOUCHES) {
        let (path, reason) = (marked_line(path), marked_line(reason));
        lines.push(text(&format!("  {path}: {reason}")));
    }
    lines.extend(more(landing.paths.len(), MAX_TOUCHES, "paths"));
    for check in &landing.failing {
        let check = marked_line(check);
        lines.push(text(&format!(
            "  the check `{check}` fails, as it did before this run"
        )));
    }
    lines.push(text("[y]es  [n]o: "));
    lines
}

fn text(text: &str) -> StyledLine {
    StyledLine::of(text, Tone::Text)
}

/// The text with a bar before each line.
fn block(shown: &str) -> Vec<StyledLine> {
    marked_block(shown).lines().map(text).collect()
}

/// Renders the call: its commands line by line, or else its arguments.
fn whole_call(approval: &Approval) -> Vec<StyledLine> {
    let commands = approval.touches.iter().filter_map(|touch| match touch {
        Touch::Execute { command, .. } => Some(block(command)),
        _ => None,
    });
    let commands: Vec<_> = commands.flatten().collect();
    match &approval.preview {
        _ if !commands.is_empty() => commands,
        // The question shows the diff and the touched paths below.
        Some(_) => Vec::new(),
        None => arguments(&approval.call.args),
    }
}

/// Renders the arguments of a call by name. Texts are not quoted, so that they are readable.
fn arguments(args: &serde_json::Value) -> Vec<StyledLine> {
    let Some(args) = args.as_object() else {
        return block(&format!("{args:#}"));
    };
    let named = args.iter().map(|(name, value)| match value.as_str() {
        Some(text) if text.contains('\n') => format!("{name}:\n{}", text.trim_end_matches('\n')),
        Some(text) => format!("{name}: {text}"),
        None => format!("{name}: {value}"),
    });
    block(&named.collect::<Vec<_>>().join("\n"))
}

fn runs(touch: &Touch) -> bool {
    matches!(touch, Touch::Execute { .. })
}

/// Tells the user that the list is longer than shown, so that no one approves the rest without knowing.
fn more(all: usize, shown: usize, what: &str) -> Option<StyledLine> {
    let hidden = all.checked_sub(shown).filter(|hidden| *hidden > 0)?;
    Some(text(&format!(
        "  … and {hidden} more {what} that are NOT shown"
    )))
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
    use crate::view::style::encoded;
    use windlass::core::ask::Question;
    use windlass::core::id::AskId;
    use windlass::core::message::ToolCall;
    use windlass_text::ColorDepth;

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
        let shown = encoded(&question(&ask), ColorDepth::None);
        assert!(page.contains(&format!("```text\n{shown}\n```")), "{shown}");
    }

    #[test]
    fn an_edit_without_a_diff_is_shown_as_text() {
        let mut ask = approval(None);
        let About::Approval(about) = &mut ask.about else {
            panic!("an approval")
        };
        about.call.args = serde_json::json!({ "path": "a.txt", "new": "one\ntwo\n", "all": true });
        let shown = encoded(&question(&ask), ColorDepth::None);
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
        let shown = encoded(&question(&ask), ColorDepth::None);
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
