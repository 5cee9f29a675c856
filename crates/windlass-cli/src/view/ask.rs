//! Questions at the terminal: what exactly is asked, and what a typed line means.

use windlass_core::ask::{About, Answer, Ask};
use windlass_core::tool::Touch;

use super::style::{Paint, Style, marked};
use super::text::describe;

/// Lines of a preview that are shown.
const PREVIEW_LINES: usize = 400;
/// Touches that are shown.
const MAX_TOUCHES: usize = 40;

/// The question as it is printed; the last line is the prompt.
pub(crate) fn question(ask: &Ask) -> String {
    let paint = Paint::for_stderr();
    let mut text = String::new();
    match &ask.about {
        About::Approval(approval) => {
            let call = marked(&describe(&approval.call));
            text.push_str(&format!("{} {call}\n", paint.on(Style::Warning, "approve?")));
            text.push_str(&format!("  because: {} ({})\n", marked(&approval.reason), marked(&approval.rule)));
            for touch in approval.touches.iter().take(MAX_TOUCHES) {
                text.push_str(&format!("  {}\n", marked(&touched(touch))));
            }
            text.push_str(&more(approval.touches.len(), MAX_TOUCHES, "things it touches"));
            if let Some(preview) = &approval.preview {
                for line in marked(preview).lines().take(PREVIEW_LINES) {
                    let style = match line.bytes().next() {
                        Some(b'+') => Style::Added,
                        Some(b'-') => Style::Removed,
                        _ => Style::Dim,
                    };
                    text.push_str(&format!("  {}\n", paint.on(style, line)));
                }
                text.push_str(&more(preview.lines().count(), PREVIEW_LINES, "lines"));
            }
            match &approval.always {
                Some(rule) => text.push_str(&format!(
                    "[y] once  [a] always for {}  [n] no, with a reason if you like: ",
                    marked(rule)
                )),
                None => text.push_str("[y] once  [n] no, with a reason if you like: "),
            }
        }
        About::Question(question) => {
            text.push_str(&format!("{} {}\n", paint.on(Style::Warning, "question:"), marked(&question.text)));
            for (at, option) in question.options.iter().enumerate() {
                text.push_str(&format!("  {}. {}\n", at + 1, marked(option)));
            }
            text.push_str("> ");
        }
    }
    text
}

/// What is not shown is said, so that nobody approves it unseen.
fn more(all: usize, shown: usize, what: &str) -> String {
    if all <= shown { String::new() } else { format!("  … and {} more {what} that are NOT shown\n", all - shown) }
}

/// What a typed line says; `None` when it says nothing that fits.
pub(crate) fn understand(ask: &Ask, line: &str) -> Option<Answer> {
    let line = line.trim();
    match &ask.about {
        About::Question(question) => {
            let chosen = line.parse::<usize>().ok().and_then(|n| question.options.get(n.checked_sub(1)?));
            let text = chosen.cloned().unwrap_or_else(|| line.to_owned());
            (!text.is_empty()).then_some(Answer::Text { text })
        }
        About::Approval(approval) => {
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let note = (!rest.trim().is_empty()).then(|| rest.trim().to_owned());
            match word.to_lowercase().as_str() {
                "y" | "yes" | "once" if note.is_none() => Some(Answer::Once),
                "a" | "always" if note.is_none() && approval.always.is_some() => Some(Answer::Always),
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
        Touch::Connect { host } => format!("connects to {host}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::ask::{Approval, Question};
    use windlass_core::id::AskId;
    use windlass_core::message::ToolCall;

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
            rule: "mode ask".into(),
            reason: "asks".into(),
            preview: None,
            always: always.map(str::to_owned),
        };
        Ask { id: AskId::nth(1, 1), about: About::Approval(Box::new(approval)), person: false, expires: None }
    }

    #[test]
    fn typed_lines_mean_what_they_say_and_nothing_else_approves() {
        let ask = approval(Some("bash(ls*)"));
        assert_eq!(understand(&ask, "y"), Some(Answer::Once));
        assert_eq!(understand(&ask, " YES "), Some(Answer::Once));
        assert_eq!(understand(&ask, "a"), Some(Answer::Always));
        assert_eq!(understand(&ask, "n not that"), Some(Answer::No { note: Some("not that".into()) }));
        for vague in ["", "ok", "yes but carefully", "yep", "1", "always maybe"] {
            assert_eq!(understand(&ask, vague), None, "{vague}");
        }
        assert_eq!(understand(&approval(None), "a"), None);
    }

    #[test]
    fn a_number_chooses_an_option() {
        let about = About::Question(Question { text: "which?".into(), options: vec!["red".into(), "blue".into()] });
        let ask = Ask { id: AskId::nth(1, 1), about, person: false, expires: None };
        assert_eq!(understand(&ask, "2"), Some(Answer::Text { text: "blue".into() }));
        assert_eq!(understand(&ask, "7"), Some(Answer::Text { text: "7".into() }));
        assert_eq!(understand(&ask, " "), None);
    }
}
