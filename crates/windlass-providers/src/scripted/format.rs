//! The script's format: TOML with a `[[step]]` table per answer, or JSON lines with one object per answer.
//! What was written and nothing more; an error shows the line and points at the place.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use windlass_core::provider::{EndReason, ProviderErrorKind};

/// A parsed script.
#[derive(Debug, Clone)]
pub struct Script {
    pub(super) name: String,
    pub(super) context_window: Option<u64>,
    pub(super) max_output: Option<u64>,
    pub(super) follow: Option<Follow>,
    steps: Vec<Step>,
}

/// How a script is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptFormat {
    /// One document.
    Toml,
    /// One object a line.
    JsonLines,
}

/// A script that cannot be read. Shows where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}:{line}:{column}: {message}\n{excerpt}")]
pub struct ScriptError {
    /// What the script is called.
    pub name: String,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The line, with a caret under the place.
    pub excerpt: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    context_window: Option<u64>,
    max_output: Option<u64>,
    follow: Option<Follow>,
    #[serde(default)]
    step: Vec<Step>,
}

/// What decides which step is next; without it, how many requests there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Follow {
    /// What the conversation says has happened.
    History,
}

/// One answer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Step {
    pub(super) expect: OneOrMany,
    pub(super) expect_new: OneOrMany,
    pub(super) reasoning: Option<String>,
    pub(super) text: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) calls: Vec<Call>,
    pub(super) pieces: Option<usize>,
    pub(super) usage: Option<Usage>,
    pub(super) end: Option<EndReason>,
    /// The last call's arguments stop half way.
    pub(super) cut: bool,
    /// Nothing follows, and nothing ends.
    pub(super) hang: bool,
    pub(super) error: Option<Failure>,
    /// Play this step so many times.
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
pub(super) struct Call {
    pub(super) name: String,
    #[serde(default = "empty_object")]
    pub(super) args: Value,
    /// Instead of `args`: exactly this text, JSON or not.
    pub(super) args_text: Option<String>,
    pub(super) id: Option<String>,
    /// How to look whether it happened, for a script that follows the conversation.
    pub(super) check: Option<Check>,
}

/// A call that looks, and the words in its result that say it happened.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Check {
    pub(super) name: String,
    #[serde(default = "empty_object")]
    pub(super) args: Value,
    pub(super) shows: String,
}

/// A kind of error by its word alone.
fn kind_of_word<'de, D: Deserializer<'de>>(de: D) -> Result<ProviderErrorKind, D::Error> {
    let word = String::deserialize(de)?;
    serde_json::from_value(json!({ "is": word })).map_err(D::Error::custom)
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Usage {
    pub(super) input: u64,
    pub(super) output: u64,
    #[serde(default)]
    pub(super) cache_read: u64,
    #[serde(default)]
    pub(super) cache_write: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Failure {
    #[serde(deserialize_with = "kind_of_word")]
    pub(super) kind: ProviderErrorKind,
    pub(super) message: Option<String>,
    pub(super) status: Option<u16>,
    /// Seconds.
    pub(super) retry_after: Option<f64>,
    /// After how many pieces of the answer it happens; at once when it is not given.
    #[serde(default)]
    pub(super) after: usize,
}

/// A script longer than this is a mistake.
const MOST_STEPS: usize = 100_000;

impl Script {
    /// Reads a script. `name` is what errors call it.
    pub fn parse(name: &str, text: &str, format: ScriptFormat) -> Result<Self, ScriptError> {
        let document = match format {
            ScriptFormat::Toml => toml::from_str::<Document>(text).map_err(|err| {
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

    /// How many requests it can answer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps
            .iter()
            .map(Step::times)
            .fold(0, usize::saturating_add)
    }

    /// It answers nothing; never true of a script that was parsed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The step that answers this request, counted from 0.
    pub(super) fn step(&self, mut number: usize) -> Option<&Step> {
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
        if self.len() > MOST_STEPS {
            return Err(format!("the script has more than {MOST_STEPS} steps"));
        }
        for (at, step) in self.steps.iter().enumerate() {
            let wrong = |what: &str| Err(format!("step {}: {what}", at + 1));
            let says_nothing =
                step.text.is_none() && step.reasoning.is_none() && step.refusal.is_none();
            if says_nothing
                && step.calls.is_empty()
                && step.error.is_none()
                && step.end.is_none()
                && !step.hang
            {
                return wrong("it says nothing; give it text, calls, refusal, end, error or hang");
            }
            if step.cut && step.calls.is_empty() {
                return wrong("`cut` needs a call to cut");
            }
            if step.repeat == Some(0) {
                return wrong("`repeat` must be at least 1");
            }
            if self.follow.is_some() && step.calls.iter().any(|call| call.id.is_some()) {
                return wrong(
                    "a script that follows the conversation gives its calls their ids itself",
                );
            }
            if self.follow.is_none() && step.calls.iter().any(|call| call.check.is_some()) {
                return wrong(
                    "`check` needs a script that follows the conversation: `follow = \"history\"` at the top",
                );
            }
        }
        Ok(())
    }
}

impl Step {
    fn times(&self) -> usize {
        self.repeat.unwrap_or(1)
    }

    /// What a request must contain, and whether only its new part counts.
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

fn json_lines(name: &str, text: &str) -> Result<Document, ScriptError> {
    let mut document = Document::default();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        if !line.trim().is_empty() {
            let step = serde_json::from_str(line).map_err(|err| {
                let at = offset + err.column().saturating_sub(1).min(line.trim_end().len());
                // The position is shown by the caret; the library's own would count inside the line.
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

/// An error that shows the line around a byte of the text and points at it.
fn point(name: &str, text: &str, at: usize, message: String) -> ScriptError {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line_text = text[start..].lines().next().unwrap_or_default();
    let line = text[..start].matches('\n').count() + 1;
    let before = text[start..at].chars().count();
    // A long line is shown around the place.
    let skip = before.saturating_sub(60);
    let shown: String = line_text
        .chars()
        .skip(skip)
        .take(100)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let gutter = " ".repeat(line.to_string().len());
    let excerpt = format!(
        "{gutter} |\n{line} | {shown}\n{gutter} | {}^",
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
