//! The positions of values in the JSON lines of a program, as the user describes them: `part.text`, or
//! `type=text:part.text` for lines of one kind. This module extracts the values of a line; it does not trust them.
//!
//! A position is a path of names, separated by dots. Conditions may precede it, separated by commas and followed by a
//! colon: `type=message,role=assistant:content`. A path goes into every entry of a list. Several positions are
//! separated by `|`; the first one with a value in a line applies.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_core::budget::Usage;

use crate::agent::ReportedUsage;
use crate::dollars::micros;

/// Bytes of the longest name of a tool, a call or a session.
const MAX_NAME: usize = 200;
/// The limit for positions per field, conditions per position and names per path.
const MAX_PARTS: usize = 20;

/// The positions of all values. An absent field is not read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fields {
    /// A complete message of the agent. The last one is its answer.
    pub text: Option<FieldPosition>,
    /// A piece of a message. Pieces are joined until another value follows.
    pub delta: Option<FieldPosition>,
    /// The program's own id of the conversation.
    pub session: Option<FieldPosition>,
    /// The name of a called tool.
    pub tool: Option<FieldPosition>,
    /// The id of a call, to which its result refers.
    pub tool_id: Option<FieldPosition>,
    /// The input of a tool.
    pub tool_input: Option<FieldPosition>,
    /// The result of a call.
    pub result: Option<FieldPosition>,
    /// The id of the call of a result. Default: `tool_id`.
    pub result_id: Option<FieldPosition>,
    /// Input tokens without cached ones. The numbers of several lines are added.
    pub input_tokens: Option<FieldPosition>,
    /// Input tokens including cached ones.
    pub total_input_tokens: Option<FieldPosition>,
    /// Input tokens from a cache.
    pub cached_tokens: Option<FieldPosition>,
    pub output_tokens: Option<FieldPosition>,
    pub cost_usd: Option<FieldPosition>,
    /// An error message. Later text clears it.
    pub error: Option<FieldPosition>,
}

/// The position of one value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FieldPosition {
    text: String,
    choices: Vec<PositionChoice>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PositionChoice {
    conditions: Vec<(Vec<String>, String)>,
    path: Vec<String>,
}

/// The values of one line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LineFacts {
    pub session: Option<String>,
    pub texts: Vec<String>,
    /// Pieces of a message.
    pub deltas: Vec<String>,
    /// Name, id and input of each call.
    pub calls: Vec<(String, Option<String>, Value)>,
    /// Id and text of each result.
    pub results: Vec<(String, String)>,
    pub spent: Option<ReportedUsage>,
    pub error: Option<String>,
}

impl Fields {
    /// Whether token counts are among the fields.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.input_tokens.is_some()
            || self.total_input_tokens.is_some()
            || self.output_tokens.is_some()
    }

    /// Extracts the values of a line.
    #[must_use]
    pub fn read(&self, line: &Value) -> LineFacts {
        let texts = |position: &Option<FieldPosition>| {
            let values = find_values(position, line).into_iter();
            values
                .filter_map(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
                .collect()
        };
        LineFacts {
            session: names(&self.session, line).into_iter().next(),
            texts: texts(&self.text),
            deltas: texts(&self.delta),
            calls: self.calls(line),
            results: self.results(line),
            spent: self.spent(line),
            error: find_values(&self.error, line)
                .first()
                .map(|error| value_text(error)),
        }
    }

    fn calls(&self, line: &Value) -> Vec<(String, Option<String>, Value)> {
        let tools = names(&self.tool, line);
        let (ids, inputs) = (
            names(&self.tool_id, line),
            find_values(&self.tool_input, line),
        );
        // In a list with a missing id or input, the entries cannot be matched.
        let fit = |many: usize| many == tools.len();
        let (ids_fit, inputs_fit) = (fit(ids.len()), fit(inputs.len()));
        let call = |(at, tool): (usize, String)| {
            let id = ids.get(at).filter(|_| ids_fit).cloned();
            let input = inputs.get(at).filter(|_| inputs_fit).copied().cloned();
            (tool, id, input.unwrap_or(Value::Null))
        };
        tools.into_iter().enumerate().map(call).collect()
    }

    fn results(&self, line: &Value) -> Vec<(String, String)> {
        let results = find_values(&self.result, line);
        let named = match &self.result_id {
            None => &self.tool_id,
            own => own,
        };
        let ids = names(named, line);
        if ids.len() != results.len() {
            return Vec::new();
        }
        ids.into_iter()
            .zip(results)
            .map(|(id, result)| (id, value_text(result)))
            .collect()
    }

    fn spent(&self, line: &Value) -> Option<ReportedUsage> {
        let sum = |position: &Option<FieldPosition>| {
            let numbers = find_values(position, line)
                .into_iter()
                .filter_map(whole_number);
            numbers.reduce(u64::saturating_add)
        };
        let (input, total, cached) = (
            sum(&self.input_tokens),
            sum(&self.total_input_tokens),
            sum(&self.cached_tokens),
        );
        let output = sum(&self.output_tokens);
        let dollars: Option<f64> = find_values(&self.cost_usd, line)
            .into_iter()
            .filter_map(Value::as_f64)
            .reduce(|a, b| a + b);
        let cost_micros = dollars.and_then(micros);
        if input.or(total).or(cached).or(output).is_none() && cost_micros.is_none() {
            return None;
        }
        let cache_read = cached.unwrap_or_default();
        let input = input
            .or_else(|| total.map(|total| total.saturating_sub(cache_read)))
            .unwrap_or_default();
        let usage = Usage {
            input,
            cache_read,
            cache_write: 0,
            output: output.unwrap_or_default(),
        };
        Some(ReportedUsage {
            usage,
            cost_micros,
            model: None,
        })
    }
}

impl FieldPosition {
    /// All values at this position in a line.
    fn find<'a>(&self, line: &'a Value) -> Vec<&'a Value> {
        for choice in &self.choices {
            let mut all = Vec::new();
            if choice
                .conditions
                .iter()
                .all(|(path, wanted)| matches_condition(line, path, wanted))
            {
                walk(line, &choice.path, &mut all);
            }
            if !all.is_empty() {
                return all;
            }
        }
        Vec::new()
    }
}

impl TryFrom<String> for FieldPosition {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let choices = text.split('|').map(|one| choice(one.trim()));
        match choices.collect::<Option<Vec<_>>>() {
            Some(choices) if choices.len() <= MAX_PARTS => Ok(Self { text, choices }),
            _ => Err(format!(
                "`{text}` is not a valid position in a line; write names separated by dots, as `part.text`, and conditions \
                 before a colon, as `type=text:part.text`"
            )),
        }
    }
}

impl From<FieldPosition> for String {
    fn from(position: FieldPosition) -> Self {
        position.text
    }
}

fn choice(text: &str) -> Option<PositionChoice> {
    let (conditions, at) = text.split_once(':').unwrap_or(("", text));
    let condition = |one: &str| {
        let (at, wanted) = one.split_once('=')?;
        Some((path(at)?, wanted.trim().to_owned()))
    };
    let conditions: Vec<_> = match conditions {
        "" if text.contains(':') => return None,
        "" => Vec::new(),
        conditions => conditions
            .split(',')
            .map(condition)
            .collect::<Option<_>>()?,
    };
    let path = path(at)?;
    (conditions.len() <= MAX_PARTS).then_some(PositionChoice { conditions, path })
}

fn path(text: &str) -> Option<Vec<String>> {
    let names: Vec<String> = text.trim().split('.').map(str::to_owned).collect();
    let plain =
        |name: &String| !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c == '=');
    (names.len() <= MAX_PARTS && names.iter().all(plain)).then_some(names)
}

fn find_values<'a>(position: &Option<FieldPosition>, line: &'a Value) -> Vec<&'a Value> {
    position
        .as_ref()
        .map(|position| position.find(line))
        .unwrap_or_default()
}

fn names(position: &Option<FieldPosition>, line: &Value) -> Vec<String> {
    let texts = find_values(position, line).into_iter().map(value_text);
    texts
        .map(|text| text[..text.floor_char_boundary(MAX_NAME)].to_owned())
        .collect()
}

/// Collects the values at a path, in every entry of lists.
fn walk<'a>(value: &'a Value, path: &[String], all: &mut Vec<&'a Value>) {
    match (path.split_first(), value) {
        (None, Value::Null) => {}
        (None, value) => all.push(value),
        (Some(_), Value::Array(entries)) => entries.iter().for_each(|entry| walk(entry, path, all)),
        (Some((name, rest)), Value::Object(members)) => {
            if let Some(value) = members.get(name) {
                walk(value, rest, all);
            }
        }
        _ => {}
    }
}

fn matches_condition(line: &Value, path: &[String], wanted: &str) -> bool {
    let mut all = Vec::new();
    walk(line, path, &mut all);
    all.into_iter().any(|value| match value {
        Value::Array(entries) => entries.iter().any(|entry| value_text(entry) == wanted),
        value => value_text(value) == wanted,
    })
}

fn value_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        value
            .as_f64()
            .filter(|number| *number >= 0.0 && number.is_finite())
            .map(|n| n as u64)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(position: &str, line: Value, expect: &[Value]) {
        let position = FieldPosition::try_from(position.to_owned()).unwrap();
        assert_eq!(position.find(&line), expect.iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_position_is_a_path_with_conditions() {
        let line =
            json!({"type": "text", "n": 3, "yes": true, "part": {"text": "hi", "none": null}});
        check("part.text", line.clone(), &[json!("hi")]);
        check("type=text:part.text", line.clone(), &[json!("hi")]);
        check(
            "type=text,n=3,yes=true:part.text",
            line.clone(),
            &[json!("hi")],
        );
        check("type=tool:part.text", line.clone(), &[]);
        check("type=text,n=4:part.text", line.clone(), &[]);
        check("part.none", line.clone(), &[]);
        check("part.text.deeper", line.clone(), &[]);
        check("type=tool:part.text | n", line.clone(), &[json!(3)]);
        check("part", line, &[json!({"text": "hi", "none": null})]);
        let list = json!({"content": [{"text": "a"}, {"name": "b"}, 7, {"text": "c"}], "tags": ["x", "y"]});
        check("content.text", list.clone(), &[json!("a"), json!("c")]);
        check("tags=y:content.name", list.clone(), &[json!("b")]);
        check("tags", list, &[json!(["x", "y"])]);
        check("a", json!([{"a": 1}, {"a": 2}]), &[json!(1), json!(2)]);
        check("a", json!("text"), &[]);
    }

    #[test]
    fn an_invalid_position_is_an_error() {
        for text in [
            "",
            " ",
            ".",
            "a..b",
            "type:part",
            ":part",
            "a=b:",
            "a b",
            "a=b",
            "a | ",
            &"a.".repeat(40),
        ] {
            assert!(
                serde_json::from_value::<FieldPosition>(json!(text)).is_err(),
                "{text:?}"
            );
        }
        let err = serde_json::from_value::<Fields>(json!({"txet": "a"}))
            .unwrap_err()
            .to_string();
        assert!(
            err.contains("unknown field `txet`") && err.contains("`text`"),
            "{err}"
        );
    }

    #[test]
    fn numbers_are_added_and_cached_tokens_are_counted_once() {
        let fields = |value: Value| serde_json::from_value::<Fields>(value).unwrap();
        let all = fields(
            json!({"total_input_tokens": "in", "cached_tokens": "c", "output_tokens": "out", "cost_usd": "usd"}),
        );
        let spent = all
            .read(&json!({"in": 120, "c": 100, "out": 7.0, "usd": 0.25}))
            .spent
            .unwrap();
        assert_eq!(
            (
                spent.usage.input,
                spent.usage.cache_read,
                spent.usage.output
            ),
            (20, 100, 7)
        );
        assert_eq!(spent.cost_micros, Some(250_000));
        assert_eq!(
            all.read(&json!({"in": "many", "out": -3, "usd": -1.0}))
                .spent,
            None
        );
        let plain = fields(json!({"input_tokens": "m.in", "cached_tokens": "m.c"}));
        let spent = plain
            .read(&json!({"m": [{"in": 1, "c": 4}, {"in": 2}]}))
            .spent
            .unwrap();
        assert_eq!((spent.usage.input, spent.usage.cache_read), (3, 4));
    }
}
