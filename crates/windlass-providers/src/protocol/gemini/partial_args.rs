//! Assembles the arguments of a call from pieces, each with the JSON path of its value.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The maximum length of a list in the arguments.
const MAX_ENTRIES: usize = 4_096;
/// The maximum depth of a path.
const MAX_STEPS: usize = 64;

/// A value, or a piece of a text, at a path.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PartialArg {
    json_path: String,
    string_value: Option<String>,
    number_value: Option<serde_json::Number>,
    bool_value: Option<bool>,
}

/// The arguments that were received so far.
#[derive(Debug, Default)]
pub(super) struct PartialArgs {
    args: Map<String, Value>,
    /// A piece had an invalid path.
    damaged: bool,
}

enum PathStep<'a> {
    Name(&'a str),
    Entry(usize),
}

impl PartialArgs {
    /// Adds a piece. Text is appended to the existing text at the same path.
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

    /// Returns all arguments as JSON, or invalid JSON if a piece had an invalid path.
    pub(super) fn to_json(&self) -> String {
        if self.damaged {
            return "{".to_owned();
        }
        Value::Object(self.args.clone()).to_string()
    }
}

/// Parses a path such as `$.a.b[0]['c']`.
fn steps(path: &str) -> Option<Vec<PathStep<'_>>> {
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() && steps.len() < MAX_STEPS {
        if let Some(inner) = rest.strip_prefix('[') {
            let (step, after) = inner.split_once(']')?;
            let quoted = step.trim_matches(['\'', '"']);
            steps.push(match step.parse() {
                Ok(entry) if entry < MAX_ENTRIES => PathStep::Entry(entry),
                _ if quoted.len() < step.len() => PathStep::Name(quoted),
                _ => return None,
            });
            rest = after;
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            steps.push(PathStep::Name(&name[..end]));
            rest = &name[end..];
        }
    }
    (rest.is_empty() && !steps.is_empty()).then_some(steps)
}

/// Sets the value at a path; returns `None` if the path contradicts the existing values.
fn set(args: &mut Value, steps: &[PathStep<'_>], value: Value) -> Option<()> {
    let mut target = args;
    for step in steps {
        if target.is_null() {
            *target = match step {
                PathStep::Name(_) => Value::Object(Map::new()),
                PathStep::Entry(_) => Value::Array(Vec::new()),
            };
        }
        target = match (step, target) {
            (PathStep::Name(name), Value::Object(map)) => map.entry(*name).or_insert(Value::Null),
            (PathStep::Entry(at), Value::Array(list)) => {
                while list.len() <= *at {
                    list.push(Value::Null);
                }
                list.get_mut(*at)?
            }
            _ => return None,
        };
    }
    match (target, value) {
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (target, value) => *target = value,
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
    fn pieces_are_set_at_their_paths() {
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
    fn a_piece_with_an_invalid_path_makes_the_arguments_invalid() {
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
