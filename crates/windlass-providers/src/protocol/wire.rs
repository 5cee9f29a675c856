//! Lenient JSON types and helpers for encoders. A field that is null, of another type or missing deserializes as absent
//! and does not fail the whole event. Texts borrow from the event unless an escape forces a copy.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Value, json};
use windlass_core::budget::Usage;
use windlass_core::history::Entry;
use windlass_core::message::{Message, Part, ToolCall, ToolResult};
use windlass_core::provider::{Request, Sampling, ToolChoice};
use windlass_core::tool::{ToolSet, ToolSpec};

/// A text, or absent if the value is not a string.
#[derive(Debug, Default)]
pub(super) struct JsonText<'a>(pub(super) Option<Cow<'a, str>>);

impl JsonText<'_> {
    /// Returns the text, or an empty string if it is absent.
    pub(super) fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

/// An index; absent if the value is negative, absurd or not a number.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Count(pub(super) Option<u64>);

/// Larger numbers are treated as errors of the server.
const MAX_COUNT: f64 = 1e12;

/// A count of tokens. An impossible value becomes `u64::MAX`, so that the whole usage report is rejected later.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct TokenCount(pub(super) Option<u64>);

/// A field that is normally a text, but may be a number, a list of parts or an object.
#[derive(Debug, Default)]
pub(super) enum Loose<'a> {
    #[default]
    Absent,
    Text(Cow<'a, str>),
    Number(f64),
    Parts(Vec<Value>),
    Object(Value),
}

impl Loose<'_> {
    /// Returns the JSON of arguments, which servers send as text or as an object.
    pub(super) fn json(&self) -> Option<Cow<'_, str>> {
        match self {
            Loose::Text(text) => Some(Cow::Borrowed(text)),
            Loose::Object(value) => Some(Cow::Owned(value.to_string())),
            Loose::Absent | Loose::Number(_) | Loose::Parts(_) => None,
        }
    }
}

/// A call, or a piece of one, in chat protocols.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct WireCall<'a> {
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) id: JsonText<'a>,
    pub(super) function: Option<WireFunction<'a>>,
}

/// The function of a [`WireCall`].
#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct WireFunction<'a> {
    #[serde(borrow)]
    pub(super) name: JsonText<'a>,
    pub(super) arguments: Loose<'a>,
}

/// The token counts of OpenAI's protocols: chat completions use the `prompt` and `completion` names, responses the
/// `input` and `output` names. If a server sends both, the larger value is used.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct OpenAiUsage {
    prompt_tokens: TokenCount,
    input_tokens: TokenCount,
    completion_tokens: TokenCount,
    output_tokens: TokenCount,
    prompt_tokens_details: Lenient<InputDetails>,
    input_tokens_details: Lenient<InputDetails>,
    prompt_cache_hit_tokens: TokenCount,
}

#[derive(Debug, Default, Clone, Copy, serde::Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: TokenCount,
    cache_write_tokens: TokenCount,
}

impl OpenAiUsage {
    /// Returns the usage, or `None` if the input or output count is missing. The reported input includes cached tokens,
    /// and the output includes reasoning.
    pub(super) fn to_usage(&self) -> Option<Usage> {
        let input = self.prompt_tokens.0.max(self.input_tokens.0)?;
        let output = self.completion_tokens.0.max(self.output_tokens.0)?;
        let details = self.prompt_tokens_details.0.or(self.input_tokens_details.0);
        let details = details.unwrap_or_default();
        let cached = details.cached_tokens.0.or(self.prompt_cache_hit_tokens.0);
        let written = details.cache_write_tokens.0.unwrap_or(0);
        Some(Usage::of_prompt(
            input,
            cached.unwrap_or(0),
            written,
            output,
        ))
    }
}

/// Deserializes any JSON value. Lists and objects are skipped unless `keeps_containers` is set.
struct AnyJson {
    keeps_containers: bool,
}

impl<'de> Visitor<'de> for AnyJson {
    type Value = Loose<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Loose<'de>, E> {
        Ok(Loose::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Loose<'de>, E> {
        Ok(Loose::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Loose<'de>, E> {
        Ok(Loose::Number(n as f64))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Loose<'de>, E> {
        Ok(Loose::Number(n as f64))
    }

    fn visit_f64<E>(self, n: f64) -> Result<Loose<'de>, E> {
        Ok(Loose::Number(n))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Loose<'de>, E> {
        Ok(Loose::Absent)
    }

    fn visit_unit<E>(self) -> Result<Loose<'de>, E> {
        Ok(Loose::Absent)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Loose<'de>, A::Error> {
        if !self.keeps_containers {
            return IgnoredAny.visit_seq(seq).map(|_| Loose::Absent);
        }
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Loose::Parts)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loose<'de>, A::Error> {
        if !self.keeps_containers {
            return IgnoredAny.visit_map(map).map(|_| Loose::Absent);
        }
        Value::deserialize(MapAccessDeserializer::new(map)).map(Loose::Object)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Loose<'a> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        let keeps_containers = true;
        de.deserialize_any(AnyJson { keeps_containers })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonText<'a> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        let keeps_containers = false;
        match de.deserialize_any(AnyJson { keeps_containers })? {
            Loose::Text(text) => Ok(Self(Some(text))),
            _ => Ok(Self(None)),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        let keeps_containers = false;
        match de.deserialize_any(AnyJson { keeps_containers })? {
            Loose::Number(n) if (0.0..=MAX_COUNT).contains(&n) && n.fract() == 0.0 => {
                Ok(Self(Some(n as u64)))
            }
            _ => Ok(Self(None)),
        }
    }
}

impl<'de> Deserialize<'de> for TokenCount {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        let keeps_containers = false;
        match de.deserialize_any(AnyJson { keeps_containers })? {
            Loose::Number(n) if (0.0..=MAX_COUNT).contains(&n) => Ok(Self(Some(n as u64))),
            Loose::Number(_) => Ok(Self(Some(u64::MAX))),
            _ => Ok(Self(None)),
        }
    }
}

/// A field that is absent if its value does not have the expected type.
#[derive(Debug)]
pub(super) struct Lenient<T>(pub(super) Option<T>);

impl<T> Default for Lenient<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        Ok(Self(serde_json::from_value(Value::deserialize(de)?).ok()))
    }
}

/// Replaces the escapes of lone surrogates by the replacement character; returns `None` if there are none. Such escapes
/// are not valid JSON for serde. Some servers send them when they cut an answer inside a character.
pub(super) fn replace_lone_surrogates(json: &str) -> Option<String> {
    let bytes = json.as_bytes();
    let mut replaced = String::new();
    let (mut at, mut kept) = (0, 0);
    while let Some(found) = memchr::memchr(b'\\', &bytes[at..]) {
        let start = at + found;
        let Some(unit) = escape_at(bytes, start) else {
            at = start + 2; // another escape, such as `\\` or `\"`
            if at > bytes.len() {
                break;
            }
            continue;
        };
        at = start + 6;
        let is_pair = (0xd800..0xdc00).contains(&unit)
            && escape_at(bytes, at).is_some_and(|low| (0xdc00..0xe000).contains(&low));
        if is_pair {
            at += 6;
        } else if (0xd800..0xe000).contains(&unit) {
            replaced.push_str(&json[kept..start]);
            replaced.push_str("\\ufffd");
            kept = at;
        }
    }
    if kept == 0 {
        return None;
    }
    replaced.push_str(&json[kept..]);
    Some(replaced)
}

/// Returns the code unit of a `\uXXXX` escape at this position.
fn escape_at(bytes: &[u8], at: usize) -> Option<u32> {
    let escape = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u32::from_str_radix(std::str::from_utf8(escape).ok()?, 16).ok()
}

/// Appends a value as JSON.
pub(super) fn write_json(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    // Serialization fails only for maps with keys that are not strings, and no type here has such a map.
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.extend_from_slice(b"null");
    }
}

/// Appends `"name":`, after a comma if one is needed.
pub(super) fn write_key(out: &mut Vec<u8>, name: &str) {
    if !matches!(out.last(), Some(b'{') | None) {
        out.push(b',');
    }
    write_json(out, name);
    out.push(b':');
}

/// Appends `"name":value`, after a comma if one is needed.
pub(super) fn write_field(out: &mut Vec<u8>, name: &str, value: &(impl serde::Serialize + ?Sized)) {
    write_key(out, name);
    write_json(out, value);
}

/// Appends the temperature, limited to `max_temperature`, and the stop sequences in the field `stop`.
pub(super) fn write_sampling(
    out: &mut Vec<u8>,
    options: &Sampling,
    max_temperature: f64,
    stop: &str,
) {
    if let Some(temperature) = options.temperature {
        write_field(out, "temperature", &temperature.clamp(0.0, max_temperature));
    }
    if !options.stop.is_empty() {
        write_field(out, stop, &options.stop);
    }
}

/// Appends every message, separated by commas. The encoded form is cached with the message. A message that encodes to
/// nothing is omitted.
pub(super) fn write_messages(
    out: &mut Vec<u8>,
    history: &[Entry],
    protocol: &'static str,
    encode: impl Fn(&Message) -> Vec<u8>,
) {
    for entry in history {
        let comma = out.last() == Some(&b'}');
        if comma {
            out.push(b',');
        }
        if entry.wire().append_to(out, protocol, || encode(entry)) == 0 && comma {
            out.pop();
        }
    }
}

/// Encodes values as JSON, joined by commas.
pub(super) fn joined(values: impl IntoIterator<Item = Value>) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        if !out.is_empty() {
            out.push(b',');
        }
        write_json(&mut out, &value);
    }
    out
}

/// Appends the tools of a request in this field. The encoded form is cached with the tools.
pub(super) fn write_tools(
    out: &mut Vec<u8>,
    name: &str,
    tools: &ToolSet,
    protocol: &'static str,
    encode: impl Fn(&ToolSpec) -> Value,
) {
    if tools.is_empty() {
        return;
    }
    write_key(out, name);
    tools.wire().append_to(out, protocol, || {
        let mut list = vec![b'['];
        list.append(&mut joined(tools.iter().map(|tool| encode(tool.spec()))));
        list.push(b']');
        list
    });
}

/// Encodes a tool for chat protocols.
pub(super) fn function(spec: &ToolSpec) -> Value {
    json!({ "type": "function", "function": {
        "name": spec.name, "description": spec.description, "parameters": spec.schema,
    } })
}

/// Appends the system prompt as a message, if it is not empty.
pub(super) fn write_system(out: &mut Vec<u8>, system: &str) {
    if !system.trim().is_empty() {
        write_json(out, &json!({ "role": "system", "content": system }));
    }
}

/// Returns the tool choice, if the request has tools.
pub(super) fn tool_choice<'a>(request: &Request<'a>) -> Option<&'a ToolChoice> {
    let choice = request.options.tool_choice.as_ref();
    choice.filter(|_| !request.tools.is_empty())
}

/// Returns the arguments of a call for vendors that accept only an object.
pub(super) fn object_args(call: &ToolCall) -> Value {
    match &call.args {
        args @ Value::Object(_) => args.clone(),
        _ => json!({}),
    }
}

/// Iterates over the tool results of a message.
pub(super) fn results(message: &Message) -> impl Iterator<Item = &ToolResult> {
    message.parts.iter().filter_map(|part| match part {
        Part::Result(result) => Some(result),
        _ => None,
    })
}

/// Returns the text of a result, for vendors that reject an empty text.
pub(super) fn result_text(result: &ToolResult) -> &str {
    if result.text.trim().is_empty() {
        "(no output)"
    } else {
        &result.text
    }
}

/// Joins all reasoning of a message.
pub(super) fn thoughts(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Reasoning { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Returns the content of a user's message: its text, or a list of parts if it contains images. `text_type` is the type
/// of a text part, and `image` creates a part from a data URL.
pub(super) fn user_content(
    message: &Message,
    text_type: &str,
    image: impl Fn(String) -> Value,
) -> Value {
    let is_image = |part: &Part| matches!(part, Part::Image { .. });
    if !message.parts.iter().any(is_image) {
        return message.text().into();
    }
    let part = |part: &Part| match part {
        Part::Text { text } => Some(json!({ "type": text_type, "text": text })),
        Part::Image { media_type, data } => Some(image(format!("data:{media_type};base64,{data}"))),
        _ => None,
    };
    message.parts.iter().filter_map(part).collect()
}

/// Estimates the size of a body in bytes. It does not look at the messages, because that would cost more than a
/// reallocation.
pub(super) fn likely_size(request: &Request<'_>) -> usize {
    4_096 + request.system.len() + 1_024 * request.tools.len() + 256 * request.history.len()
}

/// Hashes texts with FNV-1a. The hash is stable across machines and versions, and not cryptographic.
pub(super) fn fingerprint(texts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for text in texts {
        // The end of each text is hashed as well, so that moving a byte to the next text changes the hash.
        for byte in text.iter().map(|byte| u64::from(*byte)).chain([0x100]) {
            hash = (hash ^ byte).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn absurd_indexes_are_absent() {
        for (json, expect) in [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("-1", None),
            ("1e300", None),
            ("18446744073709551615", None),
            ("\"7\"", None),
            ("null", None),
            ("[1]", None),
            ("{\"a\":[]}", None),
        ] {
            assert_eq!(
                serde_json::from_str::<Count>(json).unwrap().0,
                expect,
                "{json}"
            );
        }
    }

    #[test]
    fn impossible_token_counts_become_the_maximum() {
        for (json, expect) in [
            ("7", Some(7)),
            ("7.5", Some(7)),
            ("-1", Some(u64::MAX)),
            ("1e300", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("null", None),
            ("\"7\"", None),
        ] {
            let TokenCount(count) = serde_json::from_str(json).unwrap();
            assert_eq!(count, expect, "{json}");
        }
    }

    #[test]
    fn text_borrows_unless_it_is_escaped() {
        let JsonText(plain) = serde_json::from_str("\"abc\"").unwrap();
        assert!(matches!(plain, Some(Cow::Borrowed("abc"))));
        let JsonText(escaped) = serde_json::from_str("\"a\\nc\"").unwrap();
        assert_eq!(escaped.as_deref(), Some("a\nc"));
        assert!(
            serde_json::from_str::<JsonText<'_>>("{\"a\":1}")
                .unwrap()
                .0
                .is_none()
        );
    }

    #[test]
    fn lone_surrogates_are_replaced() {
        for (json, expect) in [
            (r#""\ud83d""#, Some("\u{fffd}")),
            (r#""a\ude00b\ud83d\ude00""#, Some("a\u{fffd}b\u{1f600}")),
            (r#""\ud83d\ud83d\ude00""#, Some("\u{fffd}\u{1f600}")),
            (r#""\\ud83d""#, None),
            (r#""plain\"""#, None),
        ] {
            let replaced = replace_lone_surrogates(json);
            let text = replaced
                .as_deref()
                .map(|json| serde_json::from_str::<String>(json).unwrap());
            assert_eq!(text.as_deref(), expect, "{json}");
        }
        assert_eq!(replace_lone_surrogates("\\"), None);
    }
}
