//! Arguments of a call that come in pieces: each piece names its place in the arguments by a JSON path.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Entries of one list; a larger number in a path is a mistake.
const MOST_ENTRIES: usize = 4_096;
/// Steps of one path.
const MOST_STEPS: usize = 64;

/// One piece.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PartialArg {
    json_path: String,
    string_value: Option<String>,
    number_value: Option<serde_json::Number>,
    bool_value: Option<bool>,
}

/// The arguments so far.
#[derive(Debug, Default)]
pub(super) struct PartialArgs {
    args: Map<String, Value>,
    /// A piece had no place.
    damaged: bool,
}

enum Step<'a> {
    Name(&'a str),
    Entry(usize),
}

impl PartialArgs {
    /// Takes a piece; text is added to the text that is there.
    pub(super) fn push(&mut self, piece: &PartialArg) {
        let value = match piece {
            PartialArg {
                string_value: Some(text),
                ..
            } => Value::from(text.as_str()),
            PartialArg {
                number_value: Some(number),
                ..
            } => Value::Number(number.clone()),
            PartialArg {
                bool_value: Some(is),
                ..
            } => Value::Bool(*is),
            _ => Value::Null,
        };
        let mut args = Value::Object(std::mem::take(&mut self.args));
        let set = steps(&piece.json_path).and_then(|steps| set(&mut args, &steps, value));
        self.damaged |= set.is_none();
        if let Value::Object(args) = args {
            self.args = args;
        }
    }

    /// All arguments; no JSON at all where a piece was lost.
    pub(super) fn to_json(&self) -> String {
        if self.damaged {
            return "{".to_owned();
        }
        Value::Object(self.args.clone()).to_string()
    }
}

/// `$.a.b[0]['c']` in its steps.
fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() && steps.len() < MOST_STEPS {
        if let Some(inner) = rest.strip_prefix('[') {
            let (step, after) = inner.split_once(']')?;
            let quoted = step.trim_matches(['\'', '"']);
            steps.push(match step.parse() {
                Ok(entry) if entry < MOST_ENTRIES => Step::Entry(entry),
                _ if quoted.len() < step.len() => Step::Name(quoted),
                _ => return None,
            });
            rest = after;
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            steps.push(Step::Name(&name[..end]));
            rest = &name[end..];
        }
    }
    (rest.is_empty() && !steps.is_empty()).then_some(steps)
}

/// Sets the value at the place; `None` where the place cannot be.
fn set(args: &mut Value, steps: &[Step<'_>], value: Value) -> Option<()> {
    let mut place = args;
    for step in steps {
        if place.is_null() {
            *place = match step {
                Step::Name(_) => Value::Object(Map::new()),
                Step::Entry(_) => Value::Array(Vec::new()),
            };
        }
        place = match (step, place) {
            (Step::Name(name), Value::Object(map)) => map.entry(*name).or_insert(Value::Null),
            (Step::Entry(at), Value::Array(list)) => {
                while list.len() <= *at {
                    list.push(Value::Null);
                }
                list.get_mut(*at)?
            }
            _ => return None,
        };
    }
    match (place, value) {
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (place, value) => *place = value,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expect: &str) {
        let mut args = PartialArgs::default();
        for piece in pieces {
            args.push(&serde_json::from_str(piece).unwrap());
        }
        assert_eq!(args.to_json(), expect);
    }

    #[test]
    fn pieces_are_put_in_their_places() {
        check(
            &[
                r#"{"jsonPath":"$.path","stringValue":"src/","willContinue":true}"#,
                r#"{"jsonPath":"$.path","stringValue":"a.rs"}"#,
                r#"{"jsonPath":"$.edits[1].line","numberValue":7}"#,
                r#"{"jsonPath":"$['all']","boolValue":true}"#,
            ],
            r#"{"path":"src/a.rs","edits":[null,{"line":7}],"all":true}"#,
        );
        check(&[], "{}");
    }

    #[test]
    fn a_piece_without_a_place_spoils_the_call() {
        check(&[r#"{"jsonPath":"$.list[99999999]","numberValue":1}"#], "{");
        check(&[r#"{"stringValue":"lost"}"#], "{");
        check(
            &[
                r#"{"jsonPath":"$.a","numberValue":1}"#,
                r#"{"jsonPath":"$.a.b","numberValue":1}"#,
            ],
            "{",
        );
    }
}
