//! The texts of a session that a search looks at, and how it folds case.
//!
//! ```
//! use windlass_core::search_text::fold_case;
//!
//! assert_eq!(fold_case('Ü'), 'ü');
//! ```

use serde_json::Value;

use crate::event::EventKind;
use crate::message::{Message, Origin, Part, Role};

/// Calls `visit` with each text of an event that a search looks at, and with who said it: prompts, answers, reasoning,
/// calls and results.
pub fn visit_texts(event: &EventKind, visit: &mut impl FnMut(&'static str, &str)) {
    match event {
        EventKind::RunStarted { prompt, .. } | EventKind::Queued { prompt, .. } => {
            visit_message(prompt, visit);
        }
        EventKind::Said { message, .. } => visit_message(message, visit),
        EventKind::CallFinished { result, .. } => visit("result", &result.text),
        _ => {}
    }
}

/// The lower-case form of a character, one for one, so that offsets in the folded text are offsets in the text.
#[must_use]
pub fn fold_case(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    c.to_lowercase().next().unwrap_or(c)
}

fn visit_message(message: &Message, visit: &mut impl FnMut(&'static str, &str)) {
    let who = match (message.role, message.origin) {
        (_, Origin::Engine) => "engine",
        (Role::Assistant, _) => "model",
        _ => "person",
    };
    for part in &message.parts {
        match part {
            Part::Text { text } => visit(who, text),
            Part::Reasoning { text, .. } => visit("thought", text),
            Part::Call(call) => {
                visit("call", &call.name);
                visit_strings(&call.args, &mut |text| visit("call", text));
                call.malformed.iter().for_each(|raw| visit("call", raw));
            }
            Part::Result(result) => visit("result", &result.text),
            Part::Image { .. } => {}
        }
    }
}

/// Calls `visit` with each string in a value.
fn visit_strings(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| visit_strings(item, visit)),
        Value::Object(map) => map.values().for_each(|item| visit_strings(item, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
