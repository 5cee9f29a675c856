//! The content of a request, independent of its wire format: the offered tools, and how far the script has got. All
//! functions are pure.

use serde_json::Value;

/// A tool that the agent offers to its model.
#[derive(Debug, Clone)]
pub(crate) struct AgentTool {
    pub(crate) name: String,
    /// True if it takes text instead of JSON.
    pub(crate) freeform: bool,
    /// The description of the tool.
    pub(crate) about: String,
    /// The schema of its arguments.
    pub(crate) schema: Value,
}

/// A request to the model.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScriptedRequest {
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) tools: Vec<AgentTool>,
    /// The schema that the answer must match.
    pub(crate) schema: Option<Value>,
    /// The raw body of the request.
    pub(crate) whole: String,
    /// Names of host tools anywhere in the request. Some agents name them in prose, and search for them before a call.
    pub(crate) named: Vec<String>,
    /// Calls in the history. All of them come from this server.
    pub(crate) calls: usize,
    /// Texts of the model in the history.
    pub(crate) said: Vec<String>,
}

impl ScriptedRequest {
    pub(crate) fn new(body: &Value) -> Self {
        let model = body["model"].as_str().unwrap_or("scripted").to_owned();
        Self {
            model,
            stream: body["stream"] == true,
            ..Self::default()
        }
    }

    /// The position in the script: the number of its answers in the history. `words` are the texts of the script.
    pub(crate) fn place(&self, words: &[&str]) -> usize {
        self.calls
            + self
                .said
                .iter()
                .filter(|said| words.iter().any(|known| known.trim() == said.trim()))
                .count()
    }
}

/// Every word that looks like the name of a host tool.
pub(crate) fn host_tools(body: &str) -> Vec<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    let names = body
        .match_indices("mcp__")
        .map(|(at, _)| body[at..].split(|letter| !is_part(letter)).next());
    let mut names: Vec<String> = names.flatten().map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The value if it is a schema.
pub(crate) fn schema(value: &Value) -> Option<Value> {
    value.is_object().then(|| value.clone())
}

/// The items of an array; none if it is not one.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The text of a field; empty if it is not a text.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The text of a content that is a string or a list of parts with a text each.
pub(crate) fn content(value: &Value) -> String {
    match value.as_str() {
        Some(whole) => whole.to_owned(),
        None => list(value)
            .filter_map(|part| part["text"].as_str())
            .collect(),
    }
}
