//! What a request would have the vendor do beside asking the model: search the web, fetch an address, run programs, or
//! answer sooner for more money. That would be a way around the sandbox, and cost what nobody counts. Pure: tools and
//! wishes of this kind are left out, and what lies at an address is refused.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::ask::Fields;
use super::dialect::Dialect;

/// Fields that have the vendor reach out, or ask other models than the one that is priced.
const REACHING: &[&str] = &[
    "container",
    "mcp_servers",
    "models",
    "plugins",
    "prompt",
    "search_parameters",
    "web_search_options",
];
/// Fields that say how fast, and values of them that cost no more than usual.
const CLASSES: &[&str] = &["service_tier", "serviceTier", "speed"];
const USUAL: &[&str] = &["auto", "default", "flex", "standard", "standard_only"];
/// What the model is told, where a vendor would follow addresses.
const TOLD: &[&str] = &[
    "messages",
    "input",
    "contents",
    "system",
    "instructions",
    "systemInstruction",
];
/// Tools that the agent runs itself, by the beginning of their type.
const CLIENT_SIDE: &[&str] = &[
    "bash_",
    "text_editor_",
    "computer_",
    "memory_",
    "tool_search_tool_",
];

/// Takes out what the vendor would do beside asking the model; what that was, in its own words.
pub(super) fn leave_out(dialect: Dialect, fields: &mut Fields<'_>) -> Result<Vec<String>, String> {
    let mut left_out = Vec::new();
    for name in REACHING.iter().filter(|name| fields.get(name).is_some()) {
        left_out.push((*name).to_owned());
    }
    for name in CLASSES {
        let Some(class) = fields.text(name) else {
            continue;
        };
        if !USUAL.contains(&class.as_str()) {
            left_out.push((*name).to_owned());
        }
    }
    left_out.iter().for_each(|name| fields.remove(name));
    let Some(tools) = fields.get("tools").map(str::to_owned) else {
        return Ok(left_out);
    };
    let (kept, dropped) = kept(dialect, &tools)?;
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

/// Refuses what the vendor would have to fetch, which leaves the sandbox and has no size that could be reserved.
pub(super) fn check_told(fields: &Fields<'_>) -> Result<(), String> {
    for told in TOLD
        .iter()
        .filter_map(|name| fields.get(name))
        .filter(|told| may_refer(told))
    {
        let mut found = None;
        let mut json = serde_json::Deserializer::from_str(told);
        let walk = Walk {
            within: Within::Anything,
            found: &mut found,
        };
        walk.deserialize(&mut json)
            .map_err(|err| format!("the body cannot be read: {err}"))?;
        if let Some(what) = found {
            return Err(format!(
                "`{what}` has the vendor fetch what lies elsewhere, which is not passed on from here; send the content \
                 itself"
            ));
        }
    }
    Ok(())
}

/// Tools that stay, as they were written, and the names of those that do not.
fn kept(dialect: Dialect, tools: &str) -> Result<(Vec<String>, Vec<String>), String> {
    let all: Vec<&RawValue> =
        serde_json::from_str(tools).map_err(|err| format!("`tools` cannot be read: {err}"))?;
    let (mut kept, mut dropped) = (Vec::with_capacity(all.len()), Vec::new());
    for tool in all {
        if dialect == Dialect::Gemini {
            let mut fields = Fields::parse(tool.get().as_bytes())?;
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
        match runs_here(dialect, &kind) {
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

/// As much of a tool as says who runs it.
#[derive(Deserialize)]
struct ToolKind<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    environment: Option<Place<'a>>,
    #[serde(borrow, default)]
    tools: Vec<ToolKind<'a>>,
}

#[derive(Deserialize)]
struct Place<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
}

fn runs_here(dialect: Dialect, tool: &ToolKind<'_>) -> bool {
    let kind = tool.kind.as_deref();
    match dialect {
        Dialect::Anthropic => kind.is_none_or(|kind| {
            kind == "custom" || CLIENT_SIDE.iter().any(|known| kind.starts_with(known))
        }),
        Dialect::Responses => match kind {
            Some("shell") => tool
                .environment
                .as_ref()
                .is_none_or(|place| place.kind.as_deref() == Some("local")),
            Some("namespace") => tool.tools.iter().all(|inner| runs_here(dialect, inner)),
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
        Dialect::Chat => kind.is_none_or(|kind| matches!(kind, "function" | "custom")),
        Dialect::Gemini => false,
    }
}

fn is_declaration(name: &str) -> bool {
    matches!(name, "functionDeclarations" | "function_declarations")
}

/// Whether it is worth a closer look. Most requests have none of these words outside of their texts, where the quotes
/// have a backslash in front; what is written with escapes is looked at, whatever it is.
fn may_refer(told: &str) -> bool {
    const SIGNS: &[&str] = &["url\"", "ri\"", "ile_id\"", "\"file\"", "\\u00"];
    SIGNS.iter().any(|sign| told.contains(sign))
}

/// Where in a message a value stands.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Anything,
    /// The value is an address, or an object with one.
    Address(&'static str),
    /// The value says where content comes from.
    Source,
    /// The value says what kind of source it is.
    SourceKind,
    /// The value names something that lies at the vendor.
    Stored(&'static str),
}

impl Within {
    fn under(self, key: &str) -> Option<Self> {
        Some(match (self, key) {
            // What tools were called with, and what they are, nobody fetches.
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

/// Looks for the first thing that would have to be fetched.
struct Walk<'f> {
    within: Within,
    found: &'f mut Option<&'static str>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        de.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what a model is told")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        let what = match self.within {
            // The rest of an address that is the content itself does not matter.
            Within::Address(what) if !text.starts_with("data:") => what,
            Within::SourceKind if text == "url" || text == "file" => "source",
            Within::Stored(what) => what,
            _ => return Ok(()),
        };
        self.found.get_or_insert(what);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while all
            .next_element_seed(Walk {
                within: self.within,
                found: &mut *self.found,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Key<'de>>()? {
            match self.within.under(&key.0) {
                Some(within) => map.next_value_seed(Walk {
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
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_left(dialect: Dialect, body: &str, left_out: &[&str], sent: &str) {
        let mut fields = Fields::parse(body.as_bytes()).unwrap();
        assert_eq!(leave_out(dialect, &mut fields).unwrap(), left_out, "{body}");
        assert_eq!(fields.to_json(), sent, "{body}");
    }

    #[track_caller]
    fn check_same(dialect: Dialect, body: &str) {
        check_left(dialect, body, &[], body);
    }

    #[test]
    fn what_the_vendor_would_run_is_left_out() {
        use Dialect::{Anthropic, Chat, Gemini, Responses};
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
    fn what_costs_more_than_the_price_is_left_out() {
        for class in ["auto", "default", "flex", "standard_only"] {
            check_same(
                Dialect::Responses,
                &format!(r#"{{"service_tier":"{class}"}}"#),
            );
        }
        check_left(
            Dialect::Responses,
            r#"{"service_tier":"priority"}"#,
            &["service_tier"],
            "{}",
        );
        check_left(
            Dialect::Anthropic,
            r#"{"speed":"fast","max_tokens":9}"#,
            &["speed"],
            r#"{"max_tokens":9}"#,
        );
        check_same(Dialect::Anthropic, r#"{"speed":null}"#);
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
            let mut fields = Fields::parse(body.as_bytes()).unwrap();
            assert!(
                leave_out(Dialect::Responses, &mut fields).is_err(),
                "{tools}"
            );
        }
    }

    #[track_caller]
    fn check_fetched(body: &str, what: Option<&str>) {
        let refused = check_told(&Fields::parse(body.as_bytes()).unwrap()).err();
        assert_eq!(
            refused.as_deref().map(|why| why.split('`').nth(1).unwrap()),
            what,
            "{body}"
        );
    }

    #[test]
    fn what_lies_elsewhere_is_not_fetched() {
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
