//! Removes what a request would have the vendor do besides running the model: search the web, fetch a URL, run
//! programs, or answer faster for more money. That would bypass the sandbox or cost more than is reserved. JsonFields
//! and tools of this kind are removed; content behind a URL is refused. Pure.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::dialect::AgentDialect;
use super::model_request::JsonFields;

/// JsonFields that make the vendor reach out, or use other models than the priced one.
const VENDOR_FIELDS: &[&str] = &[
    "container",
    "mcp_servers",
    "models",
    "plugins",
    "prompt",
    "search_parameters",
    "web_search_options",
];
/// JsonFields for the service tier, and the values of them that cost no more than usual.
const TIER_FIELDS: &[&str] = &["service_tier", "serviceTier", "speed"];
const USUAL_TIERS: &[&str] = &["auto", "default", "flex", "standard", "standard_only"];
/// JsonFields with the conversation, in which a vendor would follow URLs.
const CONVERSATION_FIELDS: &[&str] = &[
    "messages",
    "input",
    "contents",
    "system",
    "instructions",
    "systemInstruction",
];
/// Tools that the agent runs itself, by the prefix of their type.
const CLIENT_SIDE: &[&str] = &[
    "bash_",
    "text_editor_",
    "computer_",
    "memory_",
    "tool_search_tool_",
];

/// Removes fields and tools for which the vendor would do more than run the model; returns their names.
pub(super) fn remove_vendor_actions(
    dialect: AgentDialect,
    fields: &mut JsonFields<'_>,
) -> Result<Vec<String>, String> {
    let mut left_out = Vec::new();
    for name in VENDOR_FIELDS
        .iter()
        .filter(|name| fields.get(name).is_some())
    {
        left_out.push((*name).to_owned());
    }
    for name in TIER_FIELDS {
        let Some(class) = fields.text(name) else {
            continue;
        };
        if !USUAL_TIERS.contains(&class.as_str()) {
            left_out.push((*name).to_owned());
        }
    }
    left_out.iter().for_each(|name| fields.remove(name));
    let Some(tools) = fields.get("tools").map(str::to_owned) else {
        return Ok(left_out);
    };
    let (kept, dropped) = split_tools(dialect, &tools)?;
    if dropped.is_empty() {
        return Ok(left_out);
    }
    left_out.extend(dropped);
    if kept.is_empty() {
        fields.remove("tools");
        fields.remove("tool_choice");
    } else {
        fields.set("tools", format!("[{}]", kept.join(",")));
    }
    Ok(left_out)
}

/// Refuses content that the vendor would have to fetch: that bypasses the sandbox, and its size cannot be reserved.
pub(super) fn refuse_fetches(fields: &JsonFields<'_>) -> Result<(), String> {
    for told in CONVERSATION_FIELDS
        .iter()
        .filter_map(|name| fields.get(name))
        .filter(|told| may_refer(told))
    {
        let mut found = None;
        let mut json = serde_json::Deserializer::from_str(told);
        let walk = FetchFinder {
            within: JsonPosition::Anything,
            found: &mut found,
        };
        walk.deserialize(&mut json)
            .map_err(|err| format!("the body cannot be read: {err}"))?;
        if let Some(what) = found {
            return Err(format!(
                "`{what}` makes the vendor fetch content from elsewhere, which this endpoint does not allow; send the content \
                 itself"
            ));
        }
    }
    Ok(())
}

/// Splits the tools into those that stay, with their original text, and the names of those that do not.
fn split_tools(dialect: AgentDialect, tools: &str) -> Result<(Vec<String>, Vec<String>), String> {
    let all: Vec<&RawValue> =
        serde_json::from_str(tools).map_err(|err| format!("`tools` cannot be read: {err}"))?;
    let (mut kept, mut dropped) = (Vec::with_capacity(all.len()), Vec::new());
    for tool in all {
        if dialect == AgentDialect::Gemini {
            let mut fields = JsonFields::parse(tool.get().as_bytes())?;
            let hosted = fields
                .names()
                .filter(|name| !is_declaration(name))
                .map(str::to_owned)
                .collect::<Vec<_>>();
            hosted.iter().for_each(|name| fields.remove(name));
            if fields.names().next().is_some() {
                kept.push(if hosted.is_empty() {
                    tool.get().to_owned()
                } else {
                    fields.to_json()
                });
            }
            dropped.extend(hosted);
            continue;
        }
        let kind: ToolKind<'_> = serde_json::from_str(tool.get())
            .map_err(|err| format!("a tool cannot be read: {err}"))?;
        match is_run_by_agent(dialect, &kind) {
            true => kept.push(tool.get().to_owned()),
            false => dropped.push(
                kind.kind
                    .unwrap_or_default()
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(60)
                    .collect(),
            ),
        }
    }
    Ok((kept, dropped))
}

/// The parts of a tool that tell whether the agent or the vendor runs it.
#[derive(Deserialize)]
struct ToolKind<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    environment: Option<ToolEnvironment<'a>>,
    #[serde(borrow, default)]
    tools: Vec<ToolKind<'a>>,
}

#[derive(Deserialize)]
struct ToolEnvironment<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
}

fn is_run_by_agent(dialect: AgentDialect, tool: &ToolKind<'_>) -> bool {
    let kind = tool.kind.as_deref();
    match dialect {
        AgentDialect::Anthropic => kind.is_none_or(|kind| {
            kind == "custom" || CLIENT_SIDE.iter().any(|known| kind.starts_with(known))
        }),
        AgentDialect::Responses => match kind {
            Some("shell") => tool
                .environment
                .as_ref()
                .is_none_or(|place| place.kind.as_deref() == Some("local")),
            Some("namespace") => tool
                .tools
                .iter()
                .all(|inner| is_run_by_agent(dialect, inner)),
            Some(kind) => matches!(
                kind,
                "function"
                    | "custom"
                    | "local_shell"
                    | "apply_patch"
                    | "computer"
                    | "computer_use_preview"
                    | "tool_search"
            ),
            None => false,
        },
        AgentDialect::Chat => kind.is_none_or(|kind| matches!(kind, "function" | "custom")),
        AgentDialect::Gemini => false,
    }
}

fn is_declaration(name: &str) -> bool {
    matches!(name, "functionDeclarations" | "function_declarations")
}

/// A fast check whether the text may contain a reference. Ordinary text rarely contains these strings, because quotes
/// inside JSON strings are escaped. Text with escapes is always checked in full.
fn may_refer(told: &str) -> bool {
    const SIGNS: &[&str] = &["url\"", "ri\"", "ile_id\"", "\"file\"", "\\u00"];
    SIGNS.iter().any(|sign| told.contains(sign))
}

/// The position of a value within a message.
#[derive(Clone, Copy, PartialEq)]
enum JsonPosition {
    Anything,
    /// The value is a URL, or an object with one.
    Address(&'static str),
    /// The value describes the source of some content.
    Source,
    /// The value is the type of a source.
    SourceKind,
    /// The value names a file that is stored at the vendor.
    Stored(&'static str),
}

impl JsonPosition {
    fn under(self, key: &str) -> Option<Self> {
        Some(match (self, key) {
            // Arguments and results of tools are never fetched.
            (
                _,
                "input" | "arguments" | "functionCall" | "function_call" | "functionResponse"
                | "function_response",
            ) => {
                return None;
            }
            (Self::Source, "type") => Self::SourceKind,
            (Self::Address(what), "url") => Self::Address(what),
            (_, "source") => Self::Source,
            (_, "image_url") => Self::Address("image_url"),
            (_, "video_url") => Self::Address("video_url"),
            (_, "audio_url") => Self::Address("audio_url"),
            (_, "file_url") => Self::Address("file_url"),
            (_, "fileUri" | "file_uri") => Self::Stored("file_uri"),
            (_, "file_id") => Self::Stored("file_id"),
            _ => Self::Anything,
        })
    }
}

/// Finds the first reference that the vendor would have to fetch.
struct FetchFinder<'f> {
    within: JsonPosition,
    found: &'f mut Option<&'static str>,
}

impl<'de> DeserializeSeed<'de> for FetchFinder<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        de.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FetchFinder<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the messages of a model request")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        let what = match self.within {
            // A `data:` URL contains the content itself.
            JsonPosition::Address(what) if !text.starts_with("data:") => what,
            JsonPosition::SourceKind if text == "url" || text == "file" => "source",
            JsonPosition::Stored(what) => what,
            _ => return Ok(()),
        };
        self.found.get_or_insert(what);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while all
            .next_element_seed(FetchFinder {
                within: self.within,
                found: &mut *self.found,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<ObjectKey<'de>>()? {
            match self.within.under(&key.0) {
                Some(within) => map.next_value_seed(FetchFinder {
                    within,
                    found: &mut *self.found,
                })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[derive(Deserialize)]
struct ObjectKey<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_left(dialect: AgentDialect, body: &str, left_out: &[&str], sent: &str) {
        let mut fields = JsonFields::parse(body.as_bytes()).unwrap();
        assert_eq!(
            remove_vendor_actions(dialect, &mut fields).unwrap(),
            left_out,
            "{body}"
        );
        assert_eq!(fields.to_json(), sent, "{body}");
    }

    #[track_caller]
    fn check_same(dialect: AgentDialect, body: &str) {
        check_left(dialect, body, &[], body);
    }

    #[test]
    fn tools_that_the_vendor_runs_are_removed() {
        use AgentDialect::{Anthropic, Chat, Gemini, Responses};
        let own = r#"{"name":"Bash","input_schema":{"type":"object"}}"#;
        check_same(
            Anthropic,
            &format!(r#"{{"tools":[{own},{{"type":"bash_20250124","name":"bash"}}]}}"#),
        );
        check_left(
            Anthropic,
            &format!(
                r#"{{"tools":[{own},{{"type":"web_search_20250305","name":"w"}}],"mcp_servers":[1],"a":1}}"#
            ),
            &["mcp_servers", "web_search_20250305"],
            &format!(r#"{{"tools":[{own}],"a":1}}"#),
        );
        check_left(
            Anthropic,
            r#"{"tools":[{"type":"web\u005ffetch_20250910"}],"tool_choice":{"type":"any"},"model":"m"}"#,
            &["web_fetch_20250910"],
            r#"{"model":"m"}"#,
        );
        check_same(
            Responses,
            r#"{"tools":[{"type":"function"},{"type":"custom"},{"type":"tool_search"}]}"#,
        );
        check_same(
            Responses,
            r#"{"tools":[{"type":"shell","environment":{"type":"local"}}]}"#,
        );
        check_left(
            Responses,
            r#"{"tools":[{"type":"function"},{"type":"mcp","server_url":"https://a"},{"type":"web_search"}]}"#,
            &["mcp", "web_search"],
            r#"{"tools":[{"type":"function"}]}"#,
        );
        check_left(
            Responses,
            r#"{"tools":[{"type":"shell","environment":{"type":"container_auto"}},{"x":1}]}"#,
            &["shell", ""],
            "{}",
        );
        check_left(
            Responses,
            r#"{"tools":[{"type":"namespace","tools":[{"type":"code_interpreter"}]}]}"#,
            &["namespace"],
            "{}",
        );
        check_left(
            Chat,
            r#"{"web_search_options":{},"plugins":[]}"#,
            &["plugins", "web_search_options"],
            "{}",
        );
        check_left(
            Chat,
            r#"{"tools":[{"type":"function"},{"type":"builtin_function"}]}"#,
            &["builtin_function"],
            r#"{"tools":[{"type":"function"}]}"#,
        );
        check_left(
            Gemini,
            r#"{"tools":[{"functionDeclarations":[],"googleSearch":{}},{"url_context":{}}]}"#,
            &["googleSearch", "url_context"],
            r#"{"tools":[{"functionDeclarations":[]}]}"#,
        );
    }

    #[test]
    fn service_tiers_that_cost_more_are_removed() {
        for class in ["auto", "default", "flex", "standard_only"] {
            check_same(
                AgentDialect::Responses,
                &format!(r#"{{"service_tier":"{class}"}}"#),
            );
        }
        check_left(
            AgentDialect::Responses,
            r#"{"service_tier":"priority"}"#,
            &["service_tier"],
            "{}",
        );
        check_left(
            AgentDialect::Anthropic,
            r#"{"speed":"fast","max_tokens":9}"#,
            &["speed"],
            r#"{"max_tokens":9}"#,
        );
        check_same(AgentDialect::Anthropic, r#"{"speed":null}"#);
    }

    #[test]
    fn tools_that_cannot_be_read_are_refused() {
        for tools in [
            "{}",
            "7",
            r#"[{"type":"function","type":"web_search"}]"#,
            r#"[{"type":7}]"#,
            "[[]]",
        ] {
            let body = format!(r#"{{"tools":{tools}}}"#);
            let mut fields = JsonFields::parse(body.as_bytes()).unwrap();
            assert!(
                remove_vendor_actions(AgentDialect::Responses, &mut fields).is_err(),
                "{tools}"
            );
        }
    }

    #[track_caller]
    fn check_fetched(body: &str, what: Option<&str>) {
        let refused = refuse_fetches(&JsonFields::parse(body.as_bytes()).unwrap()).err();
        assert_eq!(
            refused.as_deref().map(|why| why.split('`').nth(1).unwrap()),
            what,
            "{body}"
        );
    }

    #[test]
    fn content_behind_a_url_is_refused() {
        let block =
            |block: &str| format!(r#"{{"messages":[{{"role":"user","content":[{block}]}}]}}"#);
        check_fetched(
            &block(r#"{"type":"image","source":{"type":"base64","data":"QUJD"}}"#),
            None,
        );
        check_fetched(
            &block(r#"{"type":"image","source":{"type":"url","url":"https://a/b"}}"#),
            Some("source"),
        );
        check_fetched(
            &block(r#"{"type":"image","source":{"url":"https://a","type":"\u0075rl"}}"#),
            Some("source"),
        );
        check_fetched(
            &block(r#"{"type":"document","source":{"type":"file","file_id":"f"}}"#),
            Some("source"),
        );
        let inner =
            r#"{"type":"tool_result","content":[{"type":"image","source":{"type":"url"}}]}"#;
        check_fetched(&block(inner), Some("source"));
        check_fetched(
            &block(r#"{"type":"tool_use","input":{"url":"https://a","source":{"type":"url"}}}"#),
            None,
        );
        check_fetched(
            &block(r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,QQ"}}"#),
            None,
        );
        check_fetched(
            &block(r#"{"type":"image_url","image_url":{"url":"https://a"}}"#),
            Some("image_url"),
        );
        check_fetched(
            &block(r#"{"type":"text","text":"\"image_url\": \"https://a\""}"#),
            None,
        );
        let item = |item: &str| format!(r#"{{"input":[{item}]}}"#);
        check_fetched(
            &item(r#"{"content":[{"type":"input_image","image_url":"https://a"}]}"#),
            Some("image_url"),
        );
        check_fetched(
            &item(r#"{"content":[{"type":"input_file","file_url":"https://a"}]}"#),
            Some("file_url"),
        );
        check_fetched(
            &item(r#"{"content":[{"type":"input_file","file_id":"x"}]}"#),
            Some("file_id"),
        );
        check_fetched(
            &item(r#"{"type":"function_call","arguments":"{\"image_url\":\"https://a\"}"}"#),
            None,
        );
        let part = |part: &str| format!(r#"{{"contents":[{{"parts":[{part}]}}]}}"#);
        check_fetched(
            &part(r#"{"fileData":{"fileUri":"https://a"}}"#),
            Some("file_uri"),
        );
        check_fetched(
            &part(r#"{"functionCall":{"args":{"file_uri":"https://a"}}}"#),
            None,
        );
    }
}
