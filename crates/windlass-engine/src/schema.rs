//! Checks arguments and output against a JSON Schema. Only this file uses the schema library.
//! A schema is compiled at the first call of its tool and cached.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use jsonschema::Validator;
use serde_json::Value;

/// Checks a schema that a user provided. The error is the reason why it cannot be used.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    jsonschema::validator_for(schema)
        .map(|_| ())
        .map_err(|err| err.to_string())
}

/// Checks an answer against the requested schema. The error is written for the model.
pub fn check_output(schema: &Value, output: &Value) -> Result<(), String> {
    Schemas::default().check("the output", schema, output)
}

/// Checks arguments against the schema of a tool. The error is written for the model.
pub fn check_arguments(tool: &str, schema: &Value, args: &Value) -> Result<(), String> {
    Schemas::default().check(tool, schema, args)
}

/// Compiled schemas by tool name.
#[derive(Default)]
pub(crate) struct Schemas(Mutex<HashMap<String, Arc<Validator>>>);

impl Schemas {
    /// Checks a value. The error lists at most five problems and is written for the model.
    pub(crate) fn check(&self, tool: &str, schema: &Value, args: &Value) -> Result<(), String> {
        let validator = self.validator(tool, schema)?;
        let mut problems = Vec::new();
        for error in validator.iter_errors(args).take(5) {
            let at = error.instance_path().to_string();
            let at = if at.is_empty() {
                "the arguments".to_owned()
            } else {
                format!("`{}`", at.trim_start_matches('/'))
            };
            // The library quotes the invalid value, which may be huge.
            let text: String = error.to_string().chars().take(300).collect();
            problems.push(format!("{at}: {text}"));
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("; "))
        }
    }

    fn validator(&self, tool: &str, schema: &Value) -> Result<Arc<Validator>, String> {
        let mut known = self.0.lock();
        if let Some(validator) = known.get(tool) {
            return Ok(validator.clone());
        }
        let validator = jsonschema::validator_for(schema).map_err(|err| {
            format!("the schema of `{tool}` is not valid, which is a bug of the tool: {err}")
        })?;
        let validator = Arc::new(validator);
        known.insert(tool.to_owned(), validator.clone());
        Ok(validator)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schema_errors_name_the_field_and_are_short() {
        let schemas = Schemas::default();
        let schema = json!({
            "type": "object", "required": ["path"], "additionalProperties": false,
            "properties": { "path": { "type": "string" }, "limit": { "type": "integer" } }
        });
        assert_eq!(schemas.check("t", &schema, &json!({"path": "a"})), Ok(()));
        let missing = schemas.check("t", &schema, &json!({})).unwrap_err();
        assert!(
            missing.contains("\"path\" is a required property"),
            "{missing}"
        );
        let wrong = schemas
            .check(
                "t",
                &schema,
                &json!({"path": "a", "limit": "x".repeat(10_000)}),
            )
            .unwrap_err();
        assert!(wrong.contains("`limit`") && wrong.len() < 500, "{wrong}");
        assert!(
            schemas
                .check("t", &schema, &json!({"path": "a", "extra": 1}))
                .unwrap_err()
                .contains("extra")
        );
    }
}
