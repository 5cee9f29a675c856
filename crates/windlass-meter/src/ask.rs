//! What a model is asked, as far as a meter needs to know: the model, whether the answer is a stream, and how long it
//! may get. The body is cut into its top-level fields; what is not changed is passed on byte for byte. A field that is there twice is refused, because the other side might read the other one.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use windlass_providers::protocol::{MaxTokensField, Protocol, Quirks};

use super::beyond::{check_told, leave_out};
use super::dialect::Dialect;

/// The longest name of a model.
const MAX_MODEL: usize = 200;
/// The shortest text that may be a picture or another file, and not words.
const LEAST_FILE: usize = 2_048;
/// The least that a model may be told to think.
const LEAST_THINKING: u64 = 1_024;

/// The fields of a JSON object, in their order, each as it was written.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord, Clone)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let (mut all, mut names) = (Vec::new(), BTreeSet::new());
                while let Some((Name(name), value)) =
                    map.next_entry::<Name<'de>, &'de RawValue>()?
                {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format!(
                            "the field `{name}` is there twice"
                        )));
                    }
                    all.push((name, Cow::Borrowed(value.get())));
                }
                Ok(Fields(all))
            }
        }
        de.deserialize_map(V)
    }
}

impl<'a> Fields<'a> {
    /// Reads an object.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, String> {
        serde_json::from_slice(body).map_err(|err| format!("the body cannot be read: {err}"))
    }

    /// The value as it was written; `null` is nothing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.as_ref())
            .filter(|value| *value != "null")
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// A count. Some vendors take one in quotes.
    fn count(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let plain = value.trim_matches('"').parse();
        plain
            .map(Some)
            .map_err(|_| format!("`{name}` is not a whole number of tokens"))
    }

    pub(super) fn set(&mut self, name: &'static str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = Cow::Owned(value),
            None => self.0.push((Cow::Borrowed(name), Cow::Owned(value))),
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_ref())
    }

    pub(super) fn to_json(&self) -> String {
        let room = self
            .0
            .iter()
            .map(|(name, value)| name.len() + value.len() + 8)
            .sum();
        let mut out = String::with_capacity(room);
        for (nth, (name, value)) in self.0.iter().enumerate() {
            out.push(if nth == 0 { '{' } else { ',' });
            out.push_str(&serde_json::Value::from(name.as_ref()).to_string());
            out.push(':');
            out.push_str(value);
        }
        out.push_str(if self.0.is_empty() { "{}" } else { "}" });
        out
    }
}

/// What is asked.
#[derive(Debug, Clone)]
pub(super) struct Ask<'a> {
    dialect: Dialect,
    fields: Fields<'a>,
    /// The model's name.
    pub(super) model: String,
    /// The answer comes in events.
    pub(super) stream: bool,
    /// The most output of one answer, where it is said.
    pub(super) max: Option<u64>,
    /// Tokens that the model may think, where that is not within `max`.
    pub(super) thinking: u64,
    /// How many answers there are to be.
    pub(super) many: u64,
    /// Some of what the model reads lies at the vendor.
    pub(super) goes_on: bool,
    /// What the vendor was to do beside asking the model, and is not told.
    pub(super) left_out: Vec<String>,
    changed: bool,
}

/// Names that one vendor takes for the same thing.
const CONFIG: [&str; 2] = ["generationConfig", "generation_config"];
const OUTPUT: [&str; 2] = ["maxOutputTokens", "max_output_tokens"];
const ANSWERS: [&str; 2] = ["candidateCount", "candidate_count"];

impl<'a> Ask<'a> {
    /// Whether the model gets tools: agents give it none in what they ask beside the work.
    pub(super) fn offers_tools(&self) -> bool {
        self.fields
            .get("tools")
            .is_some_and(|tools| !tools.trim_matches(['[', ']', ' ', '\n']).is_empty())
    }

    /// Reads a body. The dialect that says model and form in the path gives them along.
    pub(super) fn read(
        dialect: Dialect,
        named: Option<(&str, bool)>,
        body: &'a [u8],
    ) -> Result<Self, String> {
        let mut fields = Fields::parse(body)?;
        check_told(&fields)?;
        let left_out = leave_out(dialect, &mut fields)?;
        let changed = !left_out.is_empty();
        let model = named
            .map(|(model, _)| model.to_owned())
            .or_else(|| fields.text("model"));
        let model = model.ok_or("the body does not say which `model`")?;
        if model.is_empty() || model.len() > MAX_MODEL || model.chars().any(char::is_control) {
            return Err("the name of the model cannot be used".to_owned());
        }
        let stream = match named {
            Some((_, stream)) => stream,
            None => fields.get("stream") == Some("true"),
        };
        let mut ask = Self {
            dialect,
            model,
            stream,
            max: None,
            thinking: 0,
            many: 1,
            goes_on: false,
            left_out,
            changed,
            fields,
        };
        match dialect {
            Dialect::Anthropic => {
                ask.max = ask.fields.count("max_tokens")?;
                ask.thinking = ask.thinking_budget();
            }
            Dialect::Responses => {
                if ask.fields.get("background") == Some("true") {
                    return Err(
                        "answers in the background cannot be counted; ask without `background`"
                            .to_owned(),
                    );
                }
                ask.goes_on = ask.fields.has("previous_response_id")
                    || ask.fields.has("conversation")
                    || ask.fields.get("input").is_some_and(refers_to_items);
                ask.max = ask.fields.count("max_output_tokens")?;
            }
            Dialect::Chat => {
                ask.max = ask
                    .fields
                    .count("max_tokens")?
                    .max(ask.fields.count("max_completion_tokens")?);
                ask.many = ask.fields.count("n")?.unwrap_or(1).max(1);
            }
            Dialect::Gemini => {
                if CONFIG.iter().all(|name| ask.fields.has(name)) {
                    return Err("the field `generationConfig` is there twice".to_owned());
                }
                let config = ask.config()?;
                if OUTPUT.iter().all(|name| config.has(name))
                    || ANSWERS.iter().all(|name| config.has(name))
                {
                    return Err("a field of `generationConfig` is there twice".to_owned());
                }
                let count = |names: [&str; 2]| {
                    Ok::<_, String>(config.count(names[0])?.or(config.count(names[1])?))
                };
                let (max, many) = (count(OUTPUT)?, count(ANSWERS)?);
                (ask.max, ask.many) = (max, many.unwrap_or(1).max(1));
                ask.goes_on = ask.fields.has("cachedContent") || ask.fields.has("cached_content");
            }
        }
        // To some servers none at all is no limit.
        ask.max = ask.max.filter(|max| *max > 0);
        Ok(ask)
    }

    fn config(&self) -> Result<Fields<'_>, String> {
        let given = CONFIG.iter().find_map(|name| self.fields.get(name));
        given.map_or_else(
            || Ok(Fields(Vec::new())),
            |json| Fields::parse(json.as_bytes()),
        )
    }

    /// Says how long one answer may get.
    pub(super) fn limit(&mut self, most: u64, quirks: &Quirks) {
        self.changed = true;
        match self.dialect {
            Dialect::Anthropic => {
                let max = self.max.map_or(most, |max| max.min(most));
                self.fields.set("max_tokens", max.to_string());
                self.think_within(most);
            }
            Dialect::Responses => self.fields.set("max_output_tokens", most.to_string()),
            Dialect::Chat => {
                let usual = match quirks.max_tokens {
                    MaxTokensField::MaxTokens => "max_tokens",
                    MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
                };
                let given = ["max_tokens", "max_completion_tokens"]
                    .into_iter()
                    .filter(|name| self.fields.has(name));
                let mut given: Vec<_> = given.collect();
                if given.is_empty() {
                    given.push(usual);
                }
                given
                    .into_iter()
                    .for_each(|name| self.fields.set(name, most.to_string()));
            }
            Dialect::Gemini => {
                // It was readable when the request came.
                let Ok(mut config) = self.config() else {
                    return;
                };
                let name = OUTPUT
                    .into_iter()
                    .find(|name| config.has(name))
                    .unwrap_or(OUTPUT[0]);
                config.set(name, most.to_string());
                let json = config.to_json();
                let name = CONFIG
                    .into_iter()
                    .find(|name| self.fields.has(name))
                    .unwrap_or(CONFIG[0]);
                self.fields.set(name, json);
            }
        }
    }

    /// Thinking between calls may take more than the maximum of one answer.
    fn thinking_budget(&self) -> u64 {
        let thinking = self.fields.get("thinking").unwrap_or("{}");
        let budget = Fields::parse(thinking.as_bytes()).and_then(|all| all.count("budget_tokens"));
        budget.ok().flatten().unwrap_or(0)
    }

    /// Thinking counts as output and has to leave some of it.
    fn think_within(&mut self, most: u64) {
        let Some(thinking) = self.fields.get("thinking") else {
            return;
        };
        let Ok(mut thinking) = Fields::parse(thinking.as_bytes()) else {
            return;
        };
        let Ok(Some(budget)) = thinking.count("budget_tokens") else {
            return;
        };
        if budget < most {
            return;
        }
        let json = if most / 2 >= LEAST_THINKING {
            thinking.set("budget_tokens", (most / 2).to_string());
            thinking.to_json()
        } else {
            r#"{"type":"disabled"}"#.to_owned()
        };
        self.fields.set("thinking", json);
    }

    /// Makes a stream say what it took.
    pub(super) fn report_usage(&mut self, quirks: &Quirks) {
        if self.dialect != Dialect::Chat || !self.stream || !quirks.stream_usage {
            return;
        }
        let given = self.fields.get("stream_options").unwrap_or("{}").to_owned();
        let Ok(mut options) = Fields::parse(given.as_bytes()) else {
            return;
        };
        if options.get("include_usage") != Some("true") {
            options.set("include_usage", "true".to_owned());
            let json = options.to_json();
            self.fields.set("stream_options", json);
            self.changed = true;
        }
    }

    /// Brings it into the form of who hosts the model: the name stands in the address, and the features beside it.
    pub(super) fn hosted(&mut self, protocol: Protocol, features: &[&str]) {
        let Some(version) = protocol.hosted_version() else {
            return;
        };
        self.changed = true;
        self.fields.remove("model");
        if !self.fields.has("anthropic_version") {
            self.fields
                .set("anthropic_version", format!("\"{version}\""));
        }
        if protocol == Protocol::BedrockAnthropic {
            self.fields.remove("stream");
            if !features.is_empty() && !self.fields.has("anthropic_beta") {
                self.fields.set(
                    "anthropic_beta",
                    serde_json::Value::from(features.to_vec()).to_string(),
                );
            }
        }
    }

    /// The body to send; `None` when it is the one that came.
    pub(super) fn body(&self) -> Option<String> {
        self.changed.then(|| self.fields.to_json())
    }
}

/// Whether some of the input is only named, and lies at the vendor.
fn refers_to_items(input: &str) -> bool {
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow, default, rename = "type")]
        kind: Option<Cow<'a, str>>,
        role: Option<serde::de::IgnoredAny>,
    }
    let items = serde_json::from_str::<Vec<Item<'_>>>(input).unwrap_or_default();
    items.iter().any(|item| match &item.kind {
        Some(kind) => kind == "item_reference",
        None => item.role.is_none(),
    })
}

/// How many bytes of a body are words. Files inside it are counted as a model counts pictures, of which an eighth of
/// their size is a generous bound.
pub(super) fn words(body: &[u8]) -> usize {
    let files: usize = body
        .split(|byte| *byte == b'"')
        .filter(|text| is_file(text))
        .map(<[u8]>::len)
        .sum();
    body.len() - files + files / 8
}

fn is_file(text: &[u8]) -> bool {
    if text.len() < LEAST_FILE {
        return false;
    }
    let from = text[..100]
        .iter()
        .position(|byte| *byte == b',')
        .map_or(0, |at| at + 1);
    text[from..].iter().all(|byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_')
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[track_caller]
    fn check_words(body: &str, expect: usize) {
        assert_eq!(
            words(body.as_bytes()),
            expect,
            "{}",
            &body[..body.len().min(60)]
        );
    }

    #[test]
    fn pictures_are_counted_as_pictures_and_words_as_words() {
        let picture = "iVBORw0KGgo+".repeat(1_000);
        check_words(
            &format!(r#"{{"data":"{picture}"}}"#),
            11 + picture.len() / 8,
        );
        let address = format!("data:image/png;base64,{picture}");
        check_words(&format!(r#"{{"url":"{address}"}}"#), 10 + address.len() / 8);
        let prose = "these are words, ".repeat(1_000);
        check_words(&format!(r#"{{"text":"{prose}"}}"#), 11 + prose.len());
        check_words(r#"{"data":"iVBORw0KGgo"}"#, 22);
        check_words("", 0);
    }

    #[test]
    fn none_at_all_is_no_limit() {
        for (dialect, body) in [
            (Dialect::Anthropic, r#"{"model":"m","max_tokens":0}"#),
            (
                Dialect::Chat,
                r#"{"model":"m","max_tokens":0,"max_completion_tokens":"0"}"#,
            ),
        ] {
            assert_eq!(
                Ask::read(dialect, None, body.as_bytes()).unwrap().max,
                None,
                "{body}"
            );
        }
    }

    /// Whatever comes in, what goes out is JSON and holds the limit.
    #[test]
    fn damaged_bodies_are_refused_or_limited() {
        let bodies = [
            (
                Dialect::Anthropic,
                r#"{"model":"m","max_tokens":90,"thinking":{"budget_tokens":80},"x":[1,{"a":"\u00fc"}]}"#,
            ),
            (
                Dialect::Responses,
                r#"{"model":"m","max_output_tokens":90,"stream":true}"#,
            ),
            (
                Dialect::Chat,
                r#"{"model":"m","max_tokens":90,"n":2,"stream":true,"stream_options":{"a":null}}"#,
            ),
            (
                Dialect::Gemini,
                r#"{"contents":[],"generationConfig":{"maxOutputTokens":"90","candidateCount":1}}"#,
            ),
        ];
        let named = |dialect| (dialect == Dialect::Gemini).then_some(("m", true));
        let mut read = 0;
        for (dialect, body) in bodies {
            for at in 0..=body.len() {
                for byte in [b'"', b'}', b'0', b'\\', 0xff, b' '] {
                    let mut damaged = body.as_bytes().to_vec();
                    match damaged.get_mut(at) {
                        Some(place) => *place = byte,
                        None => damaged.push(byte),
                    }
                    let Ok(mut ask) = Ask::read(dialect, named(dialect), &damaged) else {
                        continue;
                    };
                    ask.limit(7, &Quirks::NONE);
                    ask.report_usage(&Quirks::NONE);
                    let sent = ask.body().unwrap();
                    let again = Ask::read(dialect, named(dialect), sent.as_bytes()).unwrap();
                    assert_eq!(
                        (again.max, again.model == ask.model),
                        (Some(7), true),
                        "{sent}"
                    );
                    read += 1;
                }
            }
        }
        assert!(read > 100, "{read}");
    }
}
