//! The proposal of a model: its JSON schema and its parser. The content is checked elsewhere.

use serde::Deserialize;
use serde_json::{Value, json};

// The maximum numbers of files, test commands and files to read in one proposal.
const MAX_FILES: usize = 100;
const MAX_TESTS: usize = 10;
const MAX_READ: usize = 40;

/// A change that a model proposes, or a request to see files first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PatchProposal {
    /// A description of the change in words.
    pub summary: String,
    /// The change of each file.
    #[serde(default)]
    pub files: Vec<ProposedFile>,
    /// Commands that test the change.
    #[serde(default)]
    pub tests: Vec<String>,
    /// Possible problems of the change, in words.
    #[serde(default)]
    pub risks: Vec<String>,
    /// Files that the model wants to see first, as `path` or `path:first-last`. If there are any, the rest is ignored.
    #[serde(default)]
    pub read: Vec<String>,
}

/// The proposed change of one file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProposedFile {
    /// The path of the file, relative to the workspace.
    pub path: String,
    /// The declared operation, which the patch must match.
    pub operation: Operation,
    /// The new path of a moved file.
    #[serde(default)]
    pub to: Option<String>,
    /// The change of the text: a unified diff, search/replace blocks or `*** Begin Patch`.
    #[serde(default)]
    pub patch: String,
}

/// The operation on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Create a new file.
    Create,
    /// Change the text of the file.
    #[serde(alias = "modify")]
    Update,
    /// Delete the whole file.
    Delete,
    /// Rename the file, and optionally change its text.
    Move,
}

impl PatchProposal {
    /// Parses the answer of the model.
    pub fn read(output: &Value) -> Result<Self, String> {
        let proposal: Self = serde_json::from_value(output.clone())
            .map_err(|err| format!("the proposal does not have the expected form: {err}"))?;
        let bounds = [
            ("files", proposal.files.len(), MAX_FILES),
            ("tests", proposal.tests.len(), MAX_TESTS),
            ("read", proposal.read.len(), MAX_READ),
        ];
        match bounds.iter().find(|(_, count, most)| count > most) {
            Some((what, count, most)) => Err(format!(
                "`{what}` has {count} entries; at most {most} are allowed"
            )),
            None => Ok(proposal),
        }
    }
}

/// The JSON Schema of a proposal, for vendors that enforce an output schema: all fields are required and no others are
/// allowed.
#[must_use]
pub fn schema() -> Value {
    let operations = ["create", "update", "delete", "move"];
    let all = ["summary", "files", "tests", "risks", "read"];
    schema_of(&operations, &["path", "operation", "to", "patch"], &all)
}

/// The JSON Schema of the proposals that are accepted, for models whose output is not enforced: most fields are optional.
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
