//! Parses a model request as far as the meter needs it: the model, whether the answer is a stream, and its maximum
//! length. The body is split into its top-level fields; fields that are not changed are passed on byte for byte. A
//! duplicate field is an error, because the vendor might read the other one.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use windlass_providers::protocol::{MaxTokensField, Protocol, Quirks};

use super::dialect::AgentDialect;
use super::vendor_actions::{refuse_fetches, remove_vendor_actions};

/// The longest model name, in bytes.
const MAX_MODEL: usize = 200;
/// The shortest string that may be a base64 file and not text.
const MIN_FILE: usize = 2_048;
/// The smallest thinking budget that the vendor accepts.
const MIN_THINKING: u64 = 1_024;

/// The fields of a JSON object in their order, with their original text.
#[derive(Debug, Clone)]
pub(super) struct JsonFields<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord, Clone)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonFields<'a> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = JsonFields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonFields<'de>, A::Error> {
                let (mut all, mut names) = (Vec::new(), BTreeSet::new());
                while let Some((FieldName(name), value)) =
                    map.next_entry::<FieldName<'de>, &'de RawValue>()?
                {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format!("the field `{name}` occurs twice")));
                    }
                    all.push((name, Cow::Borrowed(value.get())));
                }
                Ok(JsonFields(all))
            }
        }
        de.deserialize_map(V)
    }
}

impl<'a> JsonFields<'a> {
    /// Parses a JSON object.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, String> {
        serde_json::from_slice(body).map_err(|err| format!("the body cannot be read: {err}"))
    }

    /// Returns the original text of a value; `null` counts as absent.
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

    /// Parses a number. Some vendors accept it in quotes.
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

/// A parsed model request.
#[derive(Debug, Clone)]
pub(super) struct AgentRequest<'a> {
    dialect: AgentDialect,
    fields: JsonFields<'a>,
    pub(super) model: String,
    /// The answer is a stream of events.
    pub(super) stream: bool,
    /// The maximum output of one answer, if the request has one.
    pub(super) max: Option<u64>,
    /// Thinking tokens that do not count towards `max`.
    pub(super) thinking: u64,
    /// The number of answers that the request asks for.
    pub(super) answers: u64,
    /// A part of the conversation is stored at the vendor and not in the request.
    pub(super) continues_conversation: bool,
    /// Names of the fields and tools that were removed because the vendor would do more than run the model.
    pub(super) left_out: Vec<String>,
    changed: bool,
}

/// Alternative spellings of the same field.
const CONFIG: [&str; 2] = ["generationConfig", "generation_config"];
const OUTPUT: [&str; 2] = ["maxOutputTokens", "max_output_tokens"];
const ANSWERS: [&str; 2] = ["candidateCount", "candidate_count"];

impl<'a> AgentRequest<'a> {
    /// Returns whether the model gets tools. Agents offer none in side requests, for example for a title.
    pub(super) fn offers_tools(&self) -> bool {
        self.fields
            .get("tools")
            .is_some_and(|tools| !tools.trim_matches(['[', ']', ' ', '\n']).is_empty())
    }

    /// Parses a body. The Gemini dialect has the model and the form of the answer in the path, as `named`.
    pub(super) fn read(
        dialect: AgentDialect,
        named: Option<(&str, bool)>,
        body: &'a [u8],
    ) -> Result<Self, String> {
        let mut fields = JsonFields::parse(body)?;
        refuse_fetches(&fields)?;
        let left_out = remove_vendor_actions(dialect, &mut fields)?;
        let changed = !left_out.is_empty();
        let model = named
            .map(|(model, _)| model.to_owned())
            .or_else(|| fields.text("model"));
        let model = model.ok_or("the body has no `model`")?;
        if model.is_empty() || model.len() > MAX_MODEL || model.chars().any(char::is_control) {
            return Err("the model name is not valid".to_owned());
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
            answers: 1,
            continues_conversation: false,
            left_out,
            changed,
            fields,
        };
        match dialect {
            AgentDialect::Anthropic => {
                ask.max = ask.fields.count("max_tokens")?;
                ask.thinking = ask.thinking_budget();
            }
            AgentDialect::Responses => {
                if ask.fields.get("background") == Some("true") {
                    return Err(
                        "answers in the background cannot be counted; ask without `background`"
                            .to_owned(),
                    );
                }
                ask.continues_conversation = ask.fields.has("previous_response_id")
                    || ask.fields.has("conversation")
                    || ask.fields.get("input").is_some_and(refers_to_items);
                ask.max = ask.fields.count("max_output_tokens")?;
            }
            AgentDialect::Chat => {
                ask.max = ask
                    .fields
                    .count("max_tokens")?
                    .max(ask.fields.count("max_completion_tokens")?);
                ask.answers = ask.fields.count("n")?.unwrap_or(1).max(1);
            }
            AgentDialect::Gemini => {
                if CONFIG.iter().all(|name| ask.fields.has(name)) {
                    return Err("the field `generationConfig` occurs twice".to_owned());
                }
                let config = ask.config()?;
                if OUTPUT.iter().all(|name| config.has(name))
                    || ANSWERS.iter().all(|name| config.has(name))
                {
                    return Err("a field of `generationConfig` occurs twice".to_owned());
                }
                let count = |names: [&str; 2]| {
                    Ok::<_, String>(config.count(names[0])?.or(config.count(names[1])?))
                };
                let (max, many) = (count(OUTPUT)?, count(ANSWERS)?);
                (ask.max, ask.answers) = (max, many.unwrap_or(1).max(1));
                ask.continues_conversation =
                    ask.fields.has("cachedContent") || ask.fields.has("cached_content");
            }
        }
        // Some servers treat 0 as no limit.
        ask.max = ask.max.filter(|max| *max > 0);
        Ok(ask)
    }

    fn config(&self) -> Result<JsonFields<'_>, String> {
        let given = CONFIG.iter().find_map(|name| self.fields.get(name));
        given.map_or_else(
            || Ok(JsonFields(Vec::new())),
            |json| JsonFields::parse(json.as_bytes()),
        )
    }

    /// Sets the maximum output of one answer.
    pub(super) fn limit(&mut self, most: u64, quirks: &Quirks) {
        self.changed = true;
        match self.dialect {
            AgentDialect::Anthropic => {
                let max = self.max.map_or(most, |max| max.min(most));
                self.fields.set("max_tokens", max.to_string());
                self.lower_thinking_budget(most);
            }
            AgentDialect::Responses => self.fields.set("max_output_tokens", most.to_string()),
            AgentDialect::Chat => {
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
            AgentDialect::Gemini => {
                // `read` has parsed it before.
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

    /// Returns the thinking budget, which may exceed the maximum of one answer.
    fn thinking_budget(&self) -> u64 {
        let thinking = self.fields.get("thinking").unwrap_or("{}");
        let budget =
            JsonFields::parse(thinking.as_bytes()).and_then(|all| all.count("budget_tokens"));
        budget.ok().flatten().unwrap_or(0)
    }

    /// Lowers the thinking budget, because thinking counts as output and must leave some of it for the answer.
    fn lower_thinking_budget(&mut self, most: u64) {
        let Some(thinking) = self.fields.get("thinking") else {
            return;
        };
        let Ok(mut thinking) = JsonFields::parse(thinking.as_bytes()) else {
            return;
        };
        let Ok(Some(budget)) = thinking.count("budget_tokens") else {
            return;
        };
        if budget < most {
            return;
        }
        let json = if most / 2 >= MIN_THINKING {
            thinking.set("budget_tokens", (most / 2).to_string());
            thinking.to_json()
        } else {
            r#"{"type":"disabled"}"#.to_owned()
        };
        self.fields.set("thinking", json);
    }

    /// Makes a stream report its usage.
    pub(super) fn report_usage(&mut self, quirks: &Quirks) {
        if self.dialect != AgentDialect::Chat || !self.stream || !quirks.stream_usage {
            return;
        }
        let given = self.fields.get("stream_options").unwrap_or("{}").to_owned();
        let Ok(mut options) = JsonFields::parse(given.as_bytes()) else {
            return;
        };
        if options.get("include_usage") != Some("true") {
            options.set("include_usage", "true".to_owned());
            let json = options.to_json();
            self.fields.set("stream_options", json);
            self.changed = true;
        }
    }

    /// Changes the request to the form of a vendor that hosts another vendor's model: the model is in the URL, and the
    /// beta features are in the body.
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

    /// Returns the body to send; `None` if it is unchanged.
    pub(super) fn body(&self) -> Option<String> {
        self.changed.then(|| self.fields.to_json())
    }
}

/// Returns whether the input refers to items that are stored at the vendor.
fn refers_to_items(input: &str) -> bool {
    #[derive(Deserialize)]
    struct InputItem<'a> {
        #[serde(borrow, default, rename = "type")]
        kind: Option<Cow<'a, str>>,
        role: Option<serde::de::IgnoredAny>,
    }
    let items = serde_json::from_str::<Vec<InputItem<'_>>>(input).unwrap_or_default();
    items.iter().any(|item| match &item.kind {
        Some(kind) => kind == "item_reference",
        None => item.role.is_none(),
    })
}

/// Returns the number of bytes that count as text. A base64 file counts for an eighth of its size, which is more than
/// models charge for pictures.
pub(super) fn text_bytes(body: &[u8]) -> usize {
    let files: usize = body
        .split(|byte| *byte == b'"')
        .filter(|text| is_file(text))
        .map(<[u8]>::len)
        .sum();
    body.len() - files + files / 8
}

fn is_file(text: &[u8]) -> bool {
    if text.len() < MIN_FILE {
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
            text_bytes(body.as_bytes()),
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
    fn zero_means_no_limit() {
        for (dialect, body) in [
            (AgentDialect::Anthropic, r#"{"model":"m","max_tokens":0}"#),
            (
                AgentDialect::Chat,
                r#"{"model":"m","max_tokens":0,"max_completion_tokens":"0"}"#,
            ),
        ] {
            assert_eq!(
                AgentRequest::read(dialect, None, body.as_bytes())
                    .unwrap()
                    .max,
                None,
                "{body}"
            );
        }
    }

    /// For any input that is accepted, the output is valid JSON and has the limit.
    #[test]
    fn damaged_bodies_are_refused_or_limited() {
        let bodies = [
            (
                AgentDialect::Anthropic,
                r#"{"model":"m","max_tokens":90,"thinking":{"budget_tokens":80},"x":[1,{"a":"\u00fc"}]}"#,
            ),
            (
                AgentDialect::Responses,
                r#"{"model":"m","max_output_tokens":90,"stream":true}"#,
            ),
            (
                AgentDialect::Chat,
                r#"{"model":"m","max_tokens":90,"n":2,"stream":true,"stream_options":{"a":null}}"#,
            ),
            (
                AgentDialect::Gemini,
                r#"{"contents":[],"generationConfig":{"maxOutputTokens":"90","candidateCount":1}}"#,
            ),
        ];
        let named = |dialect| (dialect == AgentDialect::Gemini).then_some(("m", true));
        let mut read = 0;
        for (dialect, body) in bodies {
            for at in 0..=body.len() {
                for byte in [b'"', b'}', b'0', b'\\', 0xff, b' '] {
                    let mut damaged = body.as_bytes().to_vec();
                    match damaged.get_mut(at) {
                        Some(place) => *place = byte,
                        None => damaged.push(byte),
                    }
                    let Ok(mut ask) = AgentRequest::read(dialect, named(dialect), &damaged) else {
                        continue;
                    };
                    ask.limit(7, &Quirks::NONE);
                    ask.report_usage(&Quirks::NONE);
                    let sent = ask.body().unwrap();
                    let again =
                        AgentRequest::read(dialect, named(dialect), sent.as_bytes()).unwrap();
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
