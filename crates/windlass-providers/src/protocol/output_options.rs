//! Converts reasoning and schema options between vendors: some have an effort and others a number of tokens, and some
//! support only a part of JSON Schema.

use std::borrow::Cow;

use serde_json::{Map, Value};
use windlass_core::provider::Sampling;

/// Returns the thinking budget in tokens, converted from an effort if necessary.
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

/// Returns the reasoning effort, converted from a number of tokens if necessary.
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

/// Adds a schema to the system prompt, for models whose vendor cannot enforce it. The engine checks the answer.
pub(super) fn with_schema<'a>(system: &'a str, schema: Option<&Value>) -> Cow<'a, str> {
    match schema {
        None => Cow::Borrowed(system),
        Some(schema) => Cow::Owned(format!(
            "{system}\n\nWhen you give your final answer, give only JSON that fits this JSON Schema, without any words \
             or marks around it:\n{schema}"
        )),
    }
}

/// Returns whether strict mode accepts a schema: every object must list all its properties as required and allow no
/// others. For other schemas strict mode is switched off.
#[must_use]
pub fn is_strict(schema: &Value) -> bool {
    let Value::Object(map) = schema else {
        return schema.is_boolean();
    };
    let unsupported = [
        "allOf",
        "oneOf",
        "not",
        "if",
        "patternProperties",
        "dependentRequired",
        "prefixItems",
    ];
    if unsupported.iter().any(|name| map.contains_key(*name)) {
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

/// Converts a schema for Anthropic's messages protocol: forbids additional properties where the schema does not mention
/// them, and removes limits on numbers, lengths and counts, which the vendor rejects and the engine checks.
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

/// Removes `$schema`, which Gemini rejects as unknown.
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

/// Iterates over the direct subschemas of a schema.
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
    fn efforts_and_tokens_are_converted() {
        let options = |effort: Option<&str>, tokens| Sampling {
            reasoning_effort: effort.map(str::to_owned),
            thinking_tokens: tokens,
            ..Sampling::default()
        };
        assert_eq!(thinking_tokens(&options(Some("medium"), None)), Some(8_192));
        assert_eq!(thinking_tokens(&options(Some("medium"), Some(1))), Some(1));
        assert_eq!(thinking_tokens(&options(Some("other"), None)), None);
        assert_eq!(effort(&options(Some("other"), None)), Some("other"));
        assert_eq!(effort(&options(None, Some(9_000))), Some("medium"));
        assert_eq!(
            (
                effort(&options(None, Some(0))),
                effort(&options(None, None))
            ),
            (None, None)
        );
    }
}
