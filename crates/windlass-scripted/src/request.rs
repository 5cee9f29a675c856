//! What a request says, whichever wire it came over: the tools it offers and how far the script is. Pure.

use serde_json::Value;

/// A tool that the agent offers to its model.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// It takes text, not JSON.
    pub(crate) freeform: bool,
    /// What it says about itself.
    pub(crate) about: String,
    /// The schema of its arguments.
    pub(crate) schema: Value,
}

/// A question to the model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) tools: Vec<Tool>,
    /// The form that the answer must have.
    pub(crate) schema: Option<Value>,
    /// All of it, as it came.
    pub(crate) whole: String,
    /// Names of host tools anywhere in it: some agents tell them in words, and have them looked up before a call.
    pub(crate) named: Vec<String>,
    /// Calls in the history. Only this server makes any.
    pub(crate) calls: usize,
    /// What the model said in the history.
    pub(crate) said: Vec<String>,
}

impl Asked {
    pub(crate) fn new(body: &Value) -> Self {
        let model = body["model"].as_str().unwrap_or("scripted").to_owned();
        Self {
            model,
            stream: body["stream"] == true,
            ..Self::default()
        }
    }

    /// How many answers of the script are in the history, of which these are words.
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

/// A schema where there is one.
pub(crate) fn schema(value: &Value) -> Option<Value> {
    value.is_object().then(|| value.clone())
}

/// The items of a list; nothing where it is none.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text of a field; empty where there is none.
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
