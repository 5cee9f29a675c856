//! Builds a tool from three things: an argument struct, an effect (which the gate sees) and a body.
//!
//! The schema for the model is generated from the struct, and the arguments of a call are deserialized into it. Schemas
//! are sent with every request, so they omit everything that a model does not use: titles, references, number formats
//! and nulls.
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use windlass_core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
//! use windlass_core::typed_tool::{TypedTool, typed};
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Args {
//!     /// The ticket's number.
//!     number: u64,
//! }
//!
//! struct Ticket;
//!
//! impl TypedTool for Ticket {
//!     type Args = Args;
//!     const NAME: &str = "ticket";
//!     const DESCRIPTION: &str = "Reads a ticket of the tracker.";
//!     const EFFECT: Effect = Effect::Network;
//!
//!     fn touches(&self, _args: Args, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
//!         Ok(vec![Touch::Connect { host: "tracker.example".into() }])
//!     }
//!
//!     async fn run(&self, args: Args, _ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
//!         Ok(ToolOutput::text(format!("ticket {} is open", args.number)))
//!     }
//! }
//!
//! let tool = typed(Ticket);
//! assert_eq!(tool.spec().schema["properties"]["number"]["type"], "integer");
//! ```

use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::BoxFuture;
use crate::tool::{
    Effect, Happened, Interrupt, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch,
};

/// A tool whose arguments are a struct. [`typed`] converts it to a [`Tool`].
pub trait TypedTool: Send + Sync + 'static {
    /// The argument struct. The doc comment of each field is for the model; `deny_unknown_fields` rejects misspelt
    /// names.
    type Args: DeserializeOwned + JsonSchema + Send;
    /// The name that models and rules use.
    const NAME: &'static str;
    /// The description for the model.
    const DESCRIPTION: &'static str;
    /// The most severe effect that the tool can have.
    const EFFECT: Effect;
    /// True if several calls may run at the same time. Only used for reads.
    const PARALLEL: bool = false;
    /// The treatment of a running call when the run is cancelled.
    const INTERRUPT: Interrupt = Interrupt::Cancel;

    /// Like [`Tool::touches`], with deserialized arguments.
    fn touches(&self, args: Self::Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure>;
    /// Like [`Tool::preview`], with deserialized arguments.
    fn preview(
        &self,
        _args: Self::Args,
        _ctx: &ToolCtx<'_>,
    ) -> Result<Option<String>, ToolFailure> {
        Ok(None)
    }
    /// Like [`Tool::happened`], with deserialized arguments.
    fn happened(&self, _args: Self::Args, _ctx: &ToolCtx<'_>) -> Option<Happened> {
        None
    }
    /// Like [`Tool::run`], with deserialized arguments.
    fn run(
        &self,
        args: Self::Args,
        ctx: ToolCtx<'_>,
    ) -> impl Future<Output = Result<ToolOutput, ToolFailure>> + Send;
}

/// Converts a typed tool to a [`Tool`] for an engine.
pub fn typed<T: TypedTool>(tool: T) -> Arc<dyn Tool> {
    let mut spec = ToolSpec::new(T::NAME, T::DESCRIPTION, schema::<T::Args>(), T::EFFECT);
    spec.parallel = T::PARALLEL;
    spec.interrupt = T::INTERRUPT;
    Arc::new(TypedToolAdapter { tool, spec })
}

struct TypedToolAdapter<T> {
    tool: T,
    spec: ToolSpec,
}

impl<T: TypedTool> Tool for TypedToolAdapter<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &Value, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        self.tool.touches(parse(args.clone())?, ctx)
    }

    fn preview(&self, args: &Value, ctx: &ToolCtx<'_>) -> Result<Option<String>, ToolFailure> {
        self.tool.preview(parse(args.clone())?, ctx)
    }

    fn happened(&self, args: &Value, ctx: &ToolCtx<'_>) -> Option<Happened> {
        self.tool.happened(parse(args.clone()).ok()?, ctx)
    }

    fn run<'a>(
        &'a self,
        args: Value,
        ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move { self.tool.run(parse(args)?, ctx).await })
    }
}

/// The compact schema of an argument struct.
fn schema<A: JsonSchema>() -> Value {
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
        // The doc comment of the struct is for readers of the code; the tool has its own description.
        root.shift_remove("description");
        // Some vendors reject an object schema without `properties`, even if the object has none.
        root.entry("properties")
            .or_insert_with(|| Map::new().into());
    }
    value
}

/// Deserializes arguments. The engine has checked them against the schema; this catches what a schema cannot express.
fn parse<A: DeserializeOwned>(args: Value) -> Result<A, ToolFailure> {
    serde_json::from_value(args)
        .map_err(|err| ToolFailure::invalid(format!("the arguments do not fit: {err}")))
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
    // A property may be named `title` or `format`; its value is a schema, not a string.
    for noise in ["$schema", "title", "format"] {
        if map.get(noise).is_some_and(Value::is_string) {
            map.shift_remove(noise);
        }
    }
    if map.get("default").is_some_and(is_empty) {
        map.shift_remove("default");
    }
    if map.get("description").and_then(Value::as_str) == Some("") {
        map.shift_remove("description");
    }
    // Deserializing rejects unknown fields because of `deny_unknown_fields`, so the schema need not say it.
    if map.get("additionalProperties") == Some(&Value::Bool(false)) {
        map.shift_remove("additionalProperties");
    }
    if let Some(names) = map.get("oneOf").and_then(constants) {
        map.shift_remove("oneOf");
        map.insert("type".into(), "string".into());
        map.insert("enum".into(), names);
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

fn is_empty(default: &Value) -> bool {
    match default {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// The names of an enum whose variants have doc comments.
fn constants(variants: &Value) -> Option<Value> {
    let names = variants.as_array()?.iter();
    names.map(|variant| variant.get("const").cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ErrorCategory;
    use serde::Deserialize;
    use serde_json::json;

    /// Not for the model.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct SampleArgs {
        /// The path of the file.
        path: String,
        /// The number of lines.
        #[serde(default)]
        #[schemars(range(min = 1, max = 9))]
        count: Option<u32>,
        /// The titles to use.
        #[serde(default)]
        title: Vec<Inner>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Inner {
        /// True if it is certain.
        sure: bool,
    }

    #[test]
    fn a_schema_says_what_a_model_needs_and_no_more() {
        let expect = json!({
            "type": "object",
            "properties": {
                "path": {"description": "The path of the file.", "type": "string"},
                "count": {"description": "The number of lines.", "type": "integer", "minimum": 1, "maximum": 9},
                "title": {
                    "description": "The titles to use.",
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"sure": {"description": "True if it is certain.", "type": "boolean"}},
                        "required": ["sure"]
                    }
                }
            },
            "required": ["path"]
        });
        assert_eq!(schema::<SampleArgs>(), expect);
    }

    #[test]
    fn unknown_arguments_are_refused() {
        let failure = parse::<SampleArgs>(json!({"path": "a", "pathh": 1})).err();
        assert!(failure.is_some_and(|failure| failure.category == ErrorCategory::InvalidArguments));
    }
}
