//! Builds the OpenAPI document from the table of operations and compares it with the checked-in one. `cargo xtask docs`
//! writes it.
#![allow(clippy::unwrap_used)]
#![allow(
    clippy::disallowed_methods,
    reason = "the test reads and writes the checked-in document"
)]

use std::collections::BTreeMap;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use windlass_service::{Method, Operation, operations};

/// The names of the parameters in a path.
fn path_names(path: &str) -> Vec<&str> {
    let parts = path.split('/');
    parts
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .collect()
}

/// Takes the schemas of the path's parameters out of the schema of all parameters.
fn split(params: &Value, names: &[&str]) -> (Vec<Value>, Value) {
    let mut rest = params.clone();
    let mut path = Vec::new();
    for name in names {
        let schema = rest["properties"]
            .as_object_mut()
            .and_then(|properties| properties.shift_remove(*name));
        let schema = schema.unwrap_or_else(|| panic!("the parameters have no `{name}`"));
        path.push(json!({ "name": name, "in": "path", "required": true, "schema": schema }));
    }
    if let Some(required) = rest["required"].as_array_mut() {
        required.retain(|one| !names.iter().any(|name| one == name));
    }
    if rest["required"].as_array().is_some_and(Vec::is_empty) {
        rest.as_object_mut().unwrap().shift_remove("required");
    }
    (path, rest)
}

fn describe(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    let (params, result) = operation.schemas(generator);
    let mut params = params.to_value();
    params.as_object_mut().unwrap().shift_remove("title");
    let names = path_names(operation.path);
    let (mut parameters, rest) = split(&params, &names);
    let mut described = Map::new();
    described.insert("operationId".into(), operation.name.into());
    described.insert("summary".into(), operation.summary.into());
    let group = operation.name.split('.').next().unwrap();
    described.insert("tags".into(), json!([group]));
    described.insert("x-scope".into(), operation.scope.word().into());
    if operation.changes() {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "A unique text; a request that is repeated with it within 24 hours has no further effect",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
        }));
    }
    let has_body = matches!(operation.method, Method::Post | Method::Put);
    let properties = rest["properties"].as_object().cloned().unwrap_or_default();
    if has_body {
        let needed = rest.get("required").is_some();
        described.insert(
            "requestBody".into(),
            json!({ "required": needed, "content": { "application/json": { "schema": rest } } }),
        );
    } else {
        let required = rest["required"].as_array().cloned().unwrap_or_default();
        for (name, schema) in properties {
            let mut schema = schema;
            let needed = required.iter().any(|one| *one == name.as_str());
            // A query has no null: an absent parameter is absent.
            drop_null(&mut schema);
            let about = schema.get("description").cloned();
            let mut parameter =
                json!({ "name": name, "in": "query", "required": needed, "schema": schema });
            if let Some(about) = about {
                parameter["description"] = about;
            }
            parameters.push(parameter);
        }
    }
    if !parameters.is_empty() {
        described.insert("parameters".into(), parameters.into());
    }
    let mut content = match result {
        Some(schema) => json!({ "application/json": { "schema": schema } }),
        None => {
            json!({ "application/octet-stream": {}, "text/x-diff": {}, "text/plain": {}, "text/html": {} })
        }
    };
    if operation.name == "events.list" {
        content["text/event-stream"] = json!({ "schema": { "type": "string" } });
    }
    let mut responses = Map::new();
    responses.insert(
        operation.status.to_string(),
        json!({ "description": "Success", "content": content }),
    );
    if !content
        .as_object()
        .unwrap()
        .contains_key("application/json")
    {
        responses.insert(
            "206".into(),
            json!({ "description": "A part of the content", "content": content }),
        );
    }
    responses.insert(
        "default".into(),
        json!({
            "description": "A problem",
            "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
        }),
    );
    described.insert("responses".into(), responses.into());
    described.into()
}

fn drop_null(schema: &mut Value) {
    // Indexing a value that is borrowed mutably would add the name.
    if let Some(types) = schema.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|one| one != "null");
        if let [one] = &types[..] {
            schema["type"] = one.clone();
        }
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let rest: Vec<Value> = any
            .iter()
            .filter(|one| one["type"] != "null")
            .cloned()
            .collect();
        if let [one] = &rest[..] {
            let mut one = one.clone();
            if let (Some(about), Some(one)) = (schema.get("description"), one.as_object_mut()) {
                one.entry("description").or_insert(about.clone());
            }
            *schema = one;
        }
    }
    if let Some(schema) = schema.as_object_mut() {
        schema.shift_remove("default");
    }
}

fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    generator.subschema_for::<windlass_service::Problem>();
    generator.subschema_for::<windlass::core::event::Event>();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in operations() {
        let method = operation.method.word().to_lowercase();
        let described = describe(operation, &mut generator);
        paths
            .entry(operation.path)
            .or_default()
            .insert(method, described);
    }
    let schemas: BTreeMap<String, Value> = generator.take_definitions(true).into_iter().collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Windlass",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Run coding agents under one enforced contract. Events: `GET /v1/sessions/{session}/events` with `Accept: text/event-stream`; the `id` of an event continues the stream with `Last-Event-ID`.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

#[test]
fn the_openapi_document_describes_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let mut text = serde_json::to_string_pretty(&document()).unwrap();
    text.push('\n');
    if std::env::var_os("WINDLASS_WRITE_REFERENCE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap();
    assert!(
        checked_in == text,
        "openapi.json is out of date: run `cargo xtask docs` and review the diff"
    );
}
