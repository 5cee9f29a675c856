//! What a model proposes: its shape in JSON, and how it is read. Plain data; nothing is believed here.

use serde::Deserialize;
use serde_json::{Value, json};

/// The most files, test commands and files to read of one proposal.
const MAX_FILES: usize = 100;
const MAX_TESTS: usize = 10;
const MAX_READ: usize = 40;

/// A proposal.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Proposal {
    /// What it does, in words.
    pub summary: String,
    /// What it does to each file.
    #[serde(default)]
    pub files: Vec<ProposedFile>,
    /// Commands that show that it works.
    #[serde(default)]
    pub tests: Vec<String>,
    /// What may go wrong.
    #[serde(default)]
    pub risks: Vec<String>,
    /// Files it wants to see first, as `path` or `path:first-last`. Then nothing else of it counts.
    #[serde(default)]
    pub read: Vec<String>,
}

/// What happens to one file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProposedFile {
    /// Where it is.
    pub path: String,
    /// What happens to it.
    pub operation: Operation,
    /// Where it goes, when it is moved.
    #[serde(default)]
    pub to: Option<String>,
    /// How its text changes: a unified diff, search/replace blocks or `*** Begin Patch`.
    #[serde(default)]
    pub patch: String,
}

/// What happens to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// It is new.
    Create,
    /// Its text changes.
    #[serde(alias = "modify")]
    Update,
    /// It goes away.
    Delete,
    /// It gets another name, and perhaps another text.
    Move,
}

impl Proposal {
    /// Reads an answer.
    pub fn read(output: &Value) -> Result<Self, String> {
        let proposal: Self = serde_json::from_value(output.clone())
            .map_err(|err| format!("the proposal cannot be read: {err}"))?;
        let bounds = [
            ("files", proposal.files.len(), MAX_FILES),
            ("tests", proposal.tests.len(), MAX_TESTS),
            ("read", proposal.read.len(), MAX_READ),
        ];
        match bounds.iter().find(|(_, count, most)| count > most) {
            Some((what, count, most)) => {
                Err(format!("`{what}` has {count} entries; there may be {most}"))
            }
            None => Ok(proposal),
        }
    }
}

/// The JSON Schema of a proposal, for the runtime that is asked for one. Everything is required and nothing else
/// allowed, so that vendors can hold their models to it.
#[must_use]
pub fn schema() -> Value {
    let operations = ["create", "update", "delete", "move"];
    let all = ["summary", "files", "tests", "risks", "read"];
    schema_of(&operations, &["path", "operation", "to", "patch"], &all)
}

/// The JSON Schema of a proposal that can be used, for models that are held to nothing.
#[must_use]
pub fn accepted_schema() -> Value {
    let operations = ["create", "update", "modify", "delete", "move"];
    schema_of(&operations, &["path", "operation"], &["summary", "files"])
}

fn schema_of(operations: &[&str], of_file: &[&str], of_proposal: &[&str]) -> Value {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let object = |required: &[&str], properties: Value| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let file = object(
        of_file,
        json!({
            "path": { "type": "string", "description": "relative to the workspace" },
            "operation": { "type": "string", "enum": operations },
            "to": { "type": ["string", "null"], "description": "the new path of a move" },
            "patch": { "type": "string", "description": "a unified diff, search/replace blocks or *** Begin Patch, for this file only" },
        }),
    );
    object(
        of_proposal,
        json!({
            "summary": { "type": "string" },
            "files": { "type": "array", "items": file },
            "tests": texts,
            "risks": texts,
            "read": texts,
        }),
    )
}
