//! Wishes that vendors know under different names: an effort is a number of tokens elsewhere, and a JSON Schema has to
//! be reshaped for those who take a part of the language only. Pure; nothing here decides whether a wish is met.

use std::borrow::Cow;

use serde_json::{Map, Value};
use windlass_core::provider::Sampling;

/// The tokens to think with: as asked, or what an effort amounts to.
pub(super) fn thinking_tokens(options: &Sampling) -> Option<u64> {
    options
        .thinking_tokens
        .or_else(|| match options.reasoning_effort.as_deref()? {
            "none" => Some(0),
            "minimal" => Some(1_024),
            "low" => Some(2_048),
            "medium" => Some(8_192),
            "high" | "xhigh" | "max" => Some(24_576),
            _ => None,
        })
}

/// The effort to think with: as asked, or what a number of tokens amounts to.
pub(super) fn effort(options: &Sampling) -> Option<&str> {
    options
        .reasoning_effort
        .as_deref()
        .or_else(|| match options.thinking_tokens? {
            0 => None,
            1..=4_096 => Some("low"),
            4_097..=16_384 => Some("medium"),
            _ => Some("high"),
        })
}

/// Words for a model that cannot be held to a schema: it is told the schema, and the engine checks the answer.
pub(super) fn with_schema<'a>(system: &'a str, schema: Option<&Value>) -> Cow<'a, str> {
    match schema {
        None => Cow::Borrowed(system),
        Some(schema) => Cow::Owned(format!(
            "{system}\n\nWhen you give your final answer, give only JSON that fits this JSON Schema, without any words \
             or marks around it:\n{schema}"
        )),
    }
}

/// Whether every object in the schema lists all its properties as required and allows no others, which is what strict
/// mode demands. A schema that does not is asked for without it.
#[must_use]
pub fn is_strict(schema: &Value) -> bool {
    let Value::Object(map) = schema else {
        return schema.is_boolean();
    };
    let refused = [
        "allOf",
        "oneOf",
        "not",
        "if",
        "patternProperties",
        "dependentRequired",
        "prefixItems",
    ];
    if refused.iter().any(|name| map.contains_key(*name)) {
        return false;
    }
    let properties = map.get("properties").and_then(Value::as_object);
    let is_object = properties.is_some() || is_of_type(map, "object");
    if is_object {
        let required = map
            .get("required")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let listed = |name: &String| required.iter().any(|known| known.as_str() == Some(name));
        let closed = map.get("additionalProperties") == Some(&Value::Bool(false));
        if !closed || !properties.is_some_and(|all| all.keys().all(listed)) {
            return false;
        }
    }
    inner(map).all(is_strict)
}

/// The schema without what the Messages protocol refuses: objects are closed where nothing is said about it, and limits
/// on numbers, lengths and counts are left to the engine's own check.
pub(super) fn closed(schema: &Value) -> Value {
    let Value::Object(map) = schema else {
        return schema.clone();
    };
    let mut out = Map::new();
    for (name, value) in map {
        match (name.as_str(), value) {
            (
                "$schema" | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum"
                | "multipleOf" | "minLength" | "maxLength" | "minItems" | "maxItems"
                | "uniqueItems" | "minProperties" | "maxProperties",
                _,
            ) => continue,
            ("properties" | "$defs" | "definitions", Value::Object(all)) => {
                let all = all
                    .iter()
                    .map(|(name, schema)| (name.clone(), closed(schema)))
                    .collect();
                out.insert(name.clone(), Value::Object(all));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(all)) => {
                out.insert(name.clone(), all.iter().map(closed).collect());
            }
            ("items" | "additionalProperties", schema) => {
                out.insert(name.clone(), closed(schema));
            }
            _ => {
                out.insert(name.clone(), value.clone());
            }
        }
    }
    if (is_of_type(map, "object") || map.contains_key("properties"))
        && !map.contains_key("additionalProperties")
    {
        out.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    Value::Object(out)
}

/// The schema without the mark of its dialect, which one vendor takes for an unknown word.
pub(super) fn without_dialect(schema: &Value) -> Cow<'_, Value> {
    match schema {
        Value::Object(map) if map.contains_key("$schema") => {
            let rest = map.iter().filter(|(name, _)| *name != "$schema");
            Cow::Owned(Value::Object(
                rest.map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            ))
        }
        other => Cow::Borrowed(other),
    }
}

fn is_of_type(map: &Map<String, Value>, name: &str) -> bool {
    match map.get("type") {
        Some(Value::String(one)) => one == name,
        Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(name)),
        _ => false,
    }
}

/// The schemas inside a schema.
fn inner(map: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let named = ["properties", "$defs", "definitions"]
        .into_iter()
        .filter_map(|name| map.get(name)?.as_object());
    let listed = ["anyOf"]
        .into_iter()
        .filter_map(|name| map.get(name)?.as_array());
    named
        .flat_map(Map::values)
        .chain(listed.flatten())
        .chain(map.get("items"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strict_means_that_every_object_is_closed_and_complete() {
        let point = json!({ "type": "object", "properties": { "x": { "type": "number" } }, "required": ["x"],
            "additionalProperties": false });
        for (schema, expect) in [
            (point.clone(), true),
            (json!({ "type": "string" }), true),
            (json!({ "type": "array", "items": point }), true),
            (
                json!({ "type": "object", "properties": {}, "additionalProperties": false }),
                true,
            ),
            (json!({ "type": "object" }), false),
            (
                json!({ "type": "object", "properties": { "x": {} }, "additionalProperties": false }),
                false,
            ),
            (json!({ "anyOf": [{ "type": ["object", "null"] }] }), false),
            (json!({ "oneOf": [true] }), false),
            (json!({ "$defs": { "a": { "properties": {} } } }), false),
        ] {
            assert_eq!(is_strict(&schema), expect, "{schema}");
        }
    }

    #[test]
    fn closing_a_schema_drops_limits_but_no_property_of_that_name() {
        let schema = json!({ "$schema": "x", "type": "object", "minProperties": 1, "properties": {
            "minimum": { "type": "integer", "minimum": 3 },
            "list": { "type": "array", "maxItems": 2, "items": { "properties": { "a": { "maxLength": 1 } } } },
            "map": { "type": "object", "additionalProperties": { "type": "string", "minLength": 1 } },
        } });
        let expect = json!({ "type": "object", "additionalProperties": false, "properties": {
            "minimum": { "type": "integer" },
            "list": { "type": "array", "items": { "properties": { "a": {} }, "additionalProperties": false } },
            "map": { "type": "object", "additionalProperties": { "type": "string" } },
        } });
        assert_eq!(closed(&schema), expect);
        assert_eq!(closed(&json!(true)), json!(true));
    }

    #[test]
    fn efforts_and_tokens_stand_for_each_other() {
        let asked = |effort: Option<&str>, tokens| Sampling {
            reasoning_effort: effort.map(str::to_owned),
            thinking_tokens: tokens,
            ..Sampling::default()
        };
        assert_eq!(thinking_tokens(&asked(Some("medium"), None)), Some(8_192));
        assert_eq!(thinking_tokens(&asked(Some("medium"), Some(1))), Some(1));
        assert_eq!(thinking_tokens(&asked(Some("fierce"), None)), None);
        assert_eq!(effort(&asked(Some("fierce"), None)), Some("fierce"));
        assert_eq!(effort(&asked(None, Some(9_000))), Some("medium"));
        assert_eq!(
            (effort(&asked(None, Some(0))), effort(&asked(None, None))),
            (None, None)
        );
    }
}
