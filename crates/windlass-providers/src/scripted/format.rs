//! Parses scripts: TOML with a `[[step]]` table per answer, or JSON lines with one object per answer. An error message
//! shows the line and points at the position.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use windlass_core::provider::{EndReason, ProviderErrorKind};

/// A parsed script of a model's answers.
#[derive(Debug, Clone)]
pub struct ModelScript {
    pub(super) name: String,
    pub(super) context_window: Option<u64>,
    pub(super) max_output: Option<u64>,
    pub(super) follow: Option<FollowMode>,
    steps: Vec<ScriptStep>,
}

/// The file format of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptFormat {
    Toml,
    /// One JSON object per line.
    JsonLines,
}

/// Reports an invalid script and the position of the error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}:{line}:{column}: {message}\n{excerpt}")]
pub struct ScriptError {
    /// The name of the script.
    pub name: String,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    pub message: String,
    /// The line, with a caret under the column.
    pub excerpt: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptDocument {
    context_window: Option<u64>,
    max_output: Option<u64>,
    follow: Option<FollowMode>,
    #[serde(default)]
    step: Vec<ScriptStep>,
}

/// The way to choose the next step. Without it, the number of requests decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FollowMode {
    /// Continues after the last answer in the conversation.
    History,
}

/// One answer of the script.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ScriptStep {
    pub(super) expect: OneOrMany,
    pub(super) expect_new: OneOrMany,
    pub(super) reasoning: Option<String>,
    pub(super) text: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) calls: Vec<ScriptCall>,
    pub(super) pieces: Option<usize>,
    pub(super) usage: Option<ScriptUsage>,
    pub(super) end: Option<EndReason>,
    /// Truncates the arguments of the last call.
    pub(super) cut: bool,
    /// Leaves the stream open after the answer, without an end.
    pub(super) hang: bool,
    pub(super) error: Option<ScriptFailure>,
    /// The number of times to play this step.
    pub(super) repeat: Option<usize>,
}

/// One text or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptCall {
    pub(super) name: String,
    #[serde(default = "empty_object")]
    pub(super) args: Value,
    /// Replaces `args` by this text, which may be invalid JSON.
    pub(super) args_text: Option<String>,
    pub(super) id: Option<String>,
    /// Checks whether the call took effect, for a script with `follow = "history"`.
    pub(super) check: Option<CallCheck>,
}

/// A call that checks whether another call took effect, and the text in its result that confirms it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallCheck {
    pub(super) name: String,
    #[serde(default = "empty_object")]
    pub(super) args: Value,
    pub(super) shows: String,
}

/// Deserializes a kind of error from its name.
fn kind_by_name<'de, D: Deserializer<'de>>(de: D) -> Result<ProviderErrorKind, D::Error> {
    let name = String::deserialize(de)?;
    serde_json::from_value(json!({ "is": name })).map_err(D::Error::custom)
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptUsage {
    pub(super) input: u64,
    pub(super) output: u64,
    #[serde(default)]
    pub(super) cache_read: u64,
    #[serde(default)]
    pub(super) cache_write: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptFailure {
    #[serde(deserialize_with = "kind_by_name")]
    pub(super) kind: ProviderErrorKind,
    pub(super) message: Option<String>,
    pub(super) status: Option<u16>,
    /// In seconds.
    pub(super) retry_after: Option<f64>,
    /// The number of pieces of the answer before the error.
    #[serde(default)]
    pub(super) after: usize,
}

const MAX_STEPS: usize = 100_000;

impl ModelScript {
    /// Parses a script. `name` identifies it in error messages.
    pub fn parse(name: &str, text: &str, format: ScriptFormat) -> Result<Self, ScriptError> {
        let document = match format {
            ScriptFormat::Toml => toml::from_str::<ScriptDocument>(text).map_err(|err| {
                let at = err.span().map_or(0, |span| span.start);
                point(name, text, at, err.message().to_owned())
            })?,
            ScriptFormat::JsonLines => json_lines(name, text)?,
        };
        let script = Self {
            name: name.to_owned(),
            context_window: document.context_window,
            max_output: document.max_output,
            follow: document.follow,
            steps: document.step,
        };
        script
            .check()
            .map_err(|message| point(name, text, 0, message))?;
        Ok(script)
    }

    /// Returns the number of requests that the script can answer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps
            .iter()
            .map(ScriptStep::times)
            .fold(0, usize::saturating_add)
    }

    /// Returns whether the script has no steps; a parsed script always has some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the step for the request with this number, counted from 0.
    pub(super) fn step(&self, mut number: usize) -> Option<&ScriptStep> {
        for step in &self.steps {
            if number < step.times() {
                return Some(step);
            }
            number -= step.times();
        }
        None
    }

    fn check(&self) -> Result<(), String> {
        if self.steps.is_empty() {
            return Err("the script has no step; begin one with `[[step]]`".to_owned());
        }
        if self.len() > MAX_STEPS {
            return Err(format!("the script has more than {MAX_STEPS} steps"));
        }
        for (at, step) in self.steps.iter().enumerate() {
            let wrong = |what: &str| Err(format!("step {}: {what}", at + 1));
            let has_no_text =
                step.text.is_none() && step.reasoning.is_none() && step.refusal.is_none();
            if has_no_text
                && step.calls.is_empty()
                && step.error.is_none()
                && step.end.is_none()
                && !step.hang
            {
                return wrong("it is empty; add text, calls, refusal, end, error or hang");
            }
            if step.cut && step.calls.is_empty() {
                return wrong("`cut` needs a call to truncate");
            }
            if step.repeat == Some(0) {
                return wrong("`repeat` must be at least 1");
            }
            if self.follow.is_some() && step.calls.iter().any(|call| call.id.is_some()) {
                return wrong(
                    "remove `id`: with `follow = \"history\"` the ids of calls are generated",
                );
            }
            if self.follow.is_none() && step.calls.iter().any(|call| call.check.is_some()) {
                return wrong("`check` needs `follow = \"history\"` at the top of the script");
            }
        }
        Ok(())
    }
}

impl ScriptStep {
    fn times(&self) -> usize {
        self.repeat.unwrap_or(1)
    }

    /// Iterates over the texts that a request must contain, and whether its new part must contain them.
    pub(super) fn expectations(&self) -> impl Iterator<Item = (&str, bool)> {
        let anywhere = self.expect.iter().map(|wanted| (wanted, false));
        anywhere.chain(self.expect_new.iter().map(|wanted| (wanted, true)))
    }
}

impl OneOrMany {
    fn iter(&self) -> impl Iterator<Item = &str> {
        let texts = match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts.as_slice(),
        };
        texts.iter().map(String::as_str)
    }
}

fn json_lines(name: &str, text: &str) -> Result<ScriptDocument, ScriptError> {
    let mut document = ScriptDocument::default();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        if !line.trim().is_empty() {
            let step = serde_json::from_str(line).map_err(|err| {
                let at = offset + err.column().saturating_sub(1).min(line.trim_end().len());
                // The library's position is relative to this line, so it is removed; the caret shows the position.
                let message = err.to_string();
                let message = message
                    .split(" at line ")
                    .next()
                    .unwrap_or(&message)
                    .to_owned();
                point(name, text, at, message)
            })?;
            document.step.push(step);
        }
        offset += line.len();
    }
    Ok(document)
}

/// Creates an error with the line around a byte offset and a caret under it.
fn point(name: &str, text: &str, at: usize, message: String) -> ScriptError {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line_text = text[start..].lines().next().unwrap_or_default();
    let line = text[..start].matches('\n').count() + 1;
    let before = text[start..at].chars().count();
    // Only the part of a long line around the position is shown.
    let skip = before.saturating_sub(60);
    let visible: String = line_text
        .chars()
        .skip(skip)
        .take(100)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let gutter = " ".repeat(line.to_string().len());
    let excerpt = format!(
        "{gutter} |\n{line} | {visible}\n{gutter} | {}^",
        " ".repeat(before - skip)
    );
    ScriptError {
        name: name.to_owned(),
        line,
        column: before + 1,
        message,
        excerpt,
    }
}
