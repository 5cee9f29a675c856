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

/// Values in the replies of operations that other operations take as parameters: the operation, and the names of the
/// parameters with JSON pointers to the values. A name after a group is a parameter of that group only.
const LINKED_VALUES: &[(&str, &[(&str, &str)])] = &[
    ("sessions.create", &[("session", "/id")]),
    (
        "sessions.list",
        &[
            ("session", "/items/0/id"),
            ("left", "/items/0/id"),
            ("right", "/items/1/id"),
            ("cursor", "/next"),
        ],
    ),
    (
        "sessions.get",
        &[
            ("at", "/last_seq"),
            ("ask", "/asks/0/id"),
            ("run", "/run/id"),
            ("kept.name", "/kept"),
        ],
    ),
    ("sessions.fork", &[("session", "/id")]),
    ("sessions.import", &[("session", "/id")]),
    ("runs.list", &[("run", "/0/run"), ("at", "/0/last_seq")]),
    ("asks.list", &[("session", "/0/session"), ("ask", "/0/id")]),
    ("events.list", &[("after", "/next")]),
    ("files.list", &[("path", "/files/0/path")]),
    ("kept.list", &[("kept.name", "/0/name")]),
    ("tokens.list", &[("tokens.name", "/0/name")]),
    ("tokens.add", &[("tokens.name", "/name")]),
];

/// The media type of files, which can be read in parts.
const BYTES: &str = "application/octet-stream";

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
    // Indexing a value that is borrowed mutably would add the name.
    if let Some(required) = rest.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|one| !names.iter().any(|name| one == name));
        if required.is_empty() {
            rest.as_object_mut().unwrap().shift_remove("required");
        }
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
    described.insert("tags".into(), json!([group(operation.name)]));
    described.insert("x-scope".into(), operation.scope.word().into());
    if operation.changes() {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "A unique text; a request that is repeated with it within 24 hours has no further effect",
            "schema": { "type": "string", "maxLength": 255, "pattern": "^[!-~](?:[ -~]*[!-~])?$" },
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
        None => media_types(operation.name)
            .iter()
            .map(|kind| ((*kind).to_owned(), json!({})))
            .collect(),
    };
    if operation.name == "events.list" {
        content["text/event-stream"] = json!({ "schema": { "type": "string" } });
    }
    let mut responses = Map::new();
    responses.insert(
        operation.status.to_string(),
        json!({ "description": "Success", "content": content }),
    );
    if content.get(BYTES).is_some() {
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

/// The media types of the replies of an operation that are not JSON.
fn media_types(operation: &str) -> &'static [&'static str] {
    match operation {
        "sessions.export" => &["application/jsonl", "text/markdown", "text/html"],
        "kept.patch" => &["text/x-diff"],
        "files.read" | "artifacts.read" => &[BYTES],
        other => panic!("add the media types of `{other}`"),
    }
}

/// The group of an operation, which is the first part of its name.
fn group(operation: &str) -> &str {
    operation.split('.').next().unwrap_or_default()
}

/// Adds links from the replies that have a value to the operations that take it. Links are made only to operations whose
/// required parameters are all known from the request and its reply.
fn add_links(paths: &mut BTreeMap<&str, Map<String, Value>>) {
    let parameters: BTreeMap<&str, Vec<Value>> = operations()
        .iter()
        .map(|operation| {
            let method = operation.method.word().to_lowercase();
            let parameters = paths[operation.path][&method]["parameters"].as_array();
            (operation.name, parameters.cloned().unwrap_or_default())
        })
        .collect();
    for (name, values) in LINKED_VALUES {
        let operation = windlass_service::operation(name).unwrap();
        let own = path_names(operation.path);
        let mut links = Map::new();
        for (target, parameters) in &parameters {
            let (mut linked, mut from_reply, mut complete) = (Map::new(), false, true);
            for parameter in parameters {
                let wanted = parameter["name"].as_str().unwrap();
                let in_group = format!("{}.{wanted}", group(target));
                let value = values.iter().find(|(name, _)| {
                    (*name == wanted && parameter["schema"]["type"] != "boolean")
                        || *name == in_group
                });
                if let Some((_, pointer)) = value {
                    linked.insert(wanted.into(), format!("$response.body#{pointer}").into());
                    from_reply = true;
                } else if own.contains(&wanted) {
                    linked.insert(wanted.into(), format!("$request.path.{wanted}").into());
                } else {
                    complete &= parameter["required"] != true;
                }
            }
            if from_reply && complete {
                links.insert(
                    (*target).into(),
                    json!({ "operationId": target, "parameters": linked }),
                );
            }
        }
        assert!(!links.is_empty(), "no operation takes a value of `{name}`");
        let method = operation.method.word().to_lowercase();
        let described = paths.get_mut(operation.path).unwrap().get_mut(&method);
        let responses = &mut described.unwrap()["responses"];
        responses[operation.status.to_string()]["links"] = links.into();
    }
}

/// Adds the maximum of the integer types, which the generator leaves to the format.
fn add_maximums(value: &mut Value) {
    if let Some(schema) = value.as_object_mut() {
        let most = match schema.get("format").and_then(Value::as_str) {
            Some("uint" | "uint64") => Some(u64::MAX),
            Some("uint32") => Some(u64::from(u32::MAX)),
            Some("int32") => Some(i32::MAX as u64),
            _ => None,
        };
        if let Some(most) = most
            && !schema.contains_key("maximum")
        {
            schema.insert("maximum".into(), most.into());
        }
        schema.values_mut().for_each(add_maximums);
    } else if let Some(items) = value.as_array_mut() {
        items.iter_mut().for_each(add_maximums);
    }
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
    add_links(&mut paths);
    let schemas: BTreeMap<String, Value> = generator.take_definitions(true).into_iter().collect();
    let mut document = json!({
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
    });
    add_maximums(&mut document);
    document
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
