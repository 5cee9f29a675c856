//! Arguments as structs: the schema the model sees is made from the struct, and a call's arguments are read into it.
//!
//! Schemas are sent with every request, so they carry nothing a model does not use: no titles, no references,
//! no number formats, no nulls. Never checks meaning; that is each tool's own work.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{Effect, ToolFailure, ToolSpec};

/// A spec whose schema is that of `A`.
pub(crate) fn spec<A: JsonSchema>(name: &str, description: &str, effect: Effect) -> ToolSpec {
    ToolSpec::new(name, description, schema::<A>(), effect)
}

/// The compact schema of an argument struct.
pub(crate) fn schema<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut value = settings
        .into_generator()
        .into_root_schema_for::<A>()
        .to_value();
    compact(&mut value);
    if let Value::Object(root) = &mut value {
        // The struct's own comment is for readers of the code; the tool has its description.
        root.shift_remove("description");
        // Some vendors refuse an object schema that does not list its properties, even when there are none.
        root.entry("properties")
            .or_insert_with(|| Map::new().into());
    }
    value
}

/// Reads arguments. The engine has checked them against the schema; what a schema cannot say ends here.
pub(crate) fn parse<A: DeserializeOwned>(args: Value) -> Result<A, ToolFailure> {
    serde_json::from_value(args).map_err(|err| invalid(format!("the arguments do not fit: {err}")))
}

/// A failure because of the arguments themselves.
pub(crate) fn invalid(text: impl Into<String>) -> ToolFailure {
    ToolFailure::new(ErrorCategory::InvalidArguments, text)
}

fn compact(value: &mut Value) {
    match value {
        Value::Object(map) => {
            compact_object(map);
            map.values_mut().for_each(compact);
        }
        Value::Array(items) => items.iter_mut().for_each(compact),
        _ => {}
    }
}

fn compact_object(map: &mut Map<String, Value>) {
    // A property may be called `title` or `format`; those are schemas, not words.
    for noise in ["$schema", "title", "format"] {
        if map.get(noise).is_some_and(Value::is_string) {
            map.shift_remove(noise);
        }
    }
    if map
        .get("default")
        .is_some_and(|default| default.is_null() || *default == Value::Bool(false))
    {
        map.shift_remove("default");
    }
    if map.get("minimum").and_then(Value::as_u64) == Some(0) {
        map.shift_remove("minimum");
    }
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            map.insert("type".into(), only);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    /// Not for the model.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Sample {
        /// Where.
        path: String,
        /// How many.
        #[serde(default)]
        #[schemars(range(min = 1, max = 9))]
        count: Option<u32>,
        /// Which.
        #[serde(default)]
        title: Vec<Inner>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Inner {
        /// Really.
        sure: bool,
    }

    #[test]
    fn a_schema_says_what_a_model_needs_and_no_more() {
        let expect = json!({
            "type": "object",
            "properties": {
                "path": {"description": "Where.", "type": "string"},
                "count": {"description": "How many.", "type": "integer", "minimum": 1, "maximum": 9},
                "title": {
                    "description": "Which.",
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"sure": {"description": "Really.", "type": "boolean"}},
                        "additionalProperties": false,
                        "required": ["sure"]
                    }
                }
            },
            "additionalProperties": false,
            "required": ["path"]
        });
        assert_eq!(schema::<Sample>(), expect);
    }

    #[test]
    fn unknown_arguments_are_refused() {
        let failure = parse::<Sample>(json!({"path": "a", "pathh": 1})).err();
        assert!(failure.is_some_and(|failure| failure.category == ErrorCategory::InvalidArguments));
    }
}
