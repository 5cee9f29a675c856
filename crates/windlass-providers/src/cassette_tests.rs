//! Tests that cassettes record no secrets, and that playback compares requests strictly.
#![allow(clippy::unwrap_used)]

use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::Arc;

use futures_util::StreamExt;
use windlass_core::history::Entry;
use windlass_core::message::Message;
use windlass_core::provider::{
    Chunk, EndReason, Provider, ProviderError, ProviderErrorKind, Request, Sampling,
};
use windlass_core::tool::ToolSet;
use windlass_core::workspace::{NoSecrets, Redactor};

use super::*;
use crate::loopback::{Act, Server, event_stream, stream_head, whole};
use crate::provider::{ProviderOptions, WireProvider};
use crate::vendors::{VENDORS, vendor};
use crate::{Http, HttpOptions};

const ANSWER: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\n\
                      data: [DONE]\n\n";

struct HideWord(&'static str);

impl Redactor for HideWord {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if text.contains(self.0) {
            text.replace(self.0, "[redacted]").into()
        } else {
            text.into()
        }
    }
}

type RecordedLines = Arc<Mutex<Vec<String>>>;

fn recorder(redactor: impl Redactor + 'static) -> (Recorder, RecordedLines) {
    let lines = RecordedLines::default();
    let sink = lines.clone();
    (
        Recorder::new(Arc::new(redactor), move |line| sink.lock().push(line)),
        lines,
    )
}

fn provider(http: Http, url: &str) -> WireProvider {
    let (base_url, key) = (
        Some(url.to_owned()),
        Some("sk-secret-1234".to_owned().into()),
    );
    let options = ProviderOptions {
        base_url,
        key,
        ..ProviderOptions::new(http)
    };
    WireProvider::new(*vendor("openai-compatible").unwrap(), options).unwrap()
}

fn http() -> Http {
    Http::new(&HttpOptions::default()).unwrap()
}

async fn ask(provider: &WireProvider, text: &str) -> Vec<Result<Chunk, ProviderError>> {
    let history = [Entry::new(Message::user(text))];
    let (tools, options) = (ToolSet::default(), Sampling::default());
    let request = Request {
        model: "m",
        system: "",
        history: &history,
        tools: &tools,
        max_output: 10,
        options: &options,
    };
    provider.stream(request).collect().await
}

#[tokio::test]
async fn an_exchange_is_recorded_without_keys_and_plays_back() {
    let server = Server::start(|number, _| match number {
        0 => vec![whole(
            429,
            "content-type: application/json\r\nset-cookie: id=sk-secret-1234\r\n",
            "{\"error\":{\"message\":\"slow\"}}",
        )],
        _ => event_stream(&[ANSWER]),
    })
    .unwrap();
    let (recorder, lines) = recorder(HideWord("hunter22"));
    let live = provider(
        http().recording(recorder),
        &format!("{}/v1?key=sk-secret-1234&v=2", server.url),
    );
    let refused = ask(&live, "say hello, hunter22").await;
    let answered = ask(&live, "say hello, hunter22").await;
    assert_eq!(answered.last(), Some(&Ok(Chunk::End(EndReason::Done))));

    let lines = lines.lock().clone();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert!(
            !line.contains("sk-secret") && !line.contains("hunter22"),
            "{line}"
        );
        assert!(
            !line.to_lowercase().contains("authorization")
                && !line.to_lowercase().contains("cookie"),
            "{line}"
        );
    }
    let row = RecordedExchange::parse(&lines[1]).unwrap();
    assert_eq!(
        (
            row.provider.as_str(),
            row.protocol.as_str(),
            row.framing.as_str()
        ),
        ("openai-compatible", "openai.chat", "sse")
    );
    assert_eq!(row.request.path, "/v1/chat/completions?key=REDACTED&v=2");
    assert_eq!(
        (row.response.status, row.response.body.as_deref()),
        (200, Some(ANSWER))
    );
    assert!(row.tags.is_empty() && row.streaming);
    assert_eq!(RecordedExchange::parse(&lines[0]).unwrap().tags, ["error"]);

    let player = CassettePlayer::parse(&lines.join("\n"), Arc::new(HideWord("hunter22"))).unwrap();
    let played = provider(
        http().playing(player.clone()),
        "http://elsewhere.invalid/v1?key=other&v=2",
    );
    let again = ask(&played, "say hello, hunter22").await;
    assert_eq!(again.len(), refused.len());
    assert!(
        matches!(&again[0], Err(err) if err.kind == ProviderErrorKind::RateLimited { retry_after: None })
    );
    assert_eq!(ask(&played, "say hello, hunter22").await, answered);
    assert_eq!(player.left(), 0);
    let over = ask(&played, "more").await.pop().unwrap().unwrap_err();
    assert!(
        over.kind == ProviderErrorKind::InvalidRequest && over.message.contains("2 exchanges"),
        "{over}"
    );
}

#[tokio::test]
async fn a_request_that_was_not_recorded_names_the_first_difference() {
    let server = Server::start(|_, _| event_stream(&[ANSWER])).unwrap();
    let (recorder, lines) = recorder(NoSecrets);
    ask(
        &provider(http().recording(recorder), &format!("{}/v1", server.url)),
        "one",
    )
    .await;
    let text = lines.lock().join("\n");
    let play = |url: &str| {
        provider(
            http().playing(CassettePlayer::parse(&text, Arc::new(NoSecrets)).unwrap()),
            url,
        )
    };
    let err = ask(&play("http://x.invalid/v1"), "two")
        .await
        .pop()
        .unwrap()
        .unwrap_err();
    assert!(
        err.message
            .contains("`/messages/0/content`: recorded \"one\", sent \"two\""),
        "{err}"
    );
    let err = ask(&play("http://x.invalid/v2"), "one")
        .await
        .pop()
        .unwrap()
        .unwrap_err();
    assert!(
        err.message
            .contains("another path: recorded /v1/chat/completions, sent /v2/chat"),
        "{err}"
    );
}

#[tokio::test]
async fn a_cut_stream_is_recorded_up_to_the_cut() {
    let server = Server::saying(vec![
        stream_head(),
        crate::loopback::chunk(&ANSWER[..40]),
        Act::Close,
    ])
    .unwrap();
    let (recorder, lines) = recorder(NoSecrets);
    ask(&provider(http().recording(recorder), &server.url), "one").await;
    let row = RecordedExchange::parse(&lines.lock()[0]).unwrap();
    assert_eq!(
        (row.tags, row.response.body.as_deref()),
        (vec!["cut".to_owned()], Some(&ANSWER[..40]))
    );
}

#[test]
fn the_first_difference_is_found() {
    let check = |was: &str, is: &str, expect: Option<&str>| {
        let found = play::first_difference(was, is).map(|(place, _, _)| place);
        assert_eq!(found.as_deref(), expect, "{was} {is}");
    };
    check(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, None);
    check(
        r#"{"a":[1,{"b":2}]}"#,
        r#"{"a":[1,{"b":3}]}"#,
        Some("/a/1/b"),
    );
    check(r#"{"a":[1]}"#, r#"{"a":[1,2]}"#, Some("/a/1"));
    check(r#"{"a":1}"#, r#"{"a":1,"x/y":2}"#, Some("/x~1y"));
    check("text", "other", Some("/"));
}

#[test]
fn mistakes_in_a_cassette_are_named() {
    let check = |text: &str, expect: &str| {
        let err = CassettePlayer::parse(text, Arc::new(NoSecrets))
            .unwrap_err()
            .to_string();
        assert!(err.contains(expect), "{err}");
    };
    check("\n", "no exchange");
    check(
        "{\"id\":\"a\",\"response\":{\"body\":\"\"}}\nnonsense",
        "line 2",
    );
    check(
        "{\"id\":\"a\",\"response\":{\"body_b64\":\"%%\"}}",
        "`a` is not valid base64",
    );
}

#[test]
fn every_protocol_of_a_vendor_has_a_name_in_cassettes() {
    for vendor in VENDORS {
        assert_ne!(protocol_name(vendor.protocol), "unknown", "{}", vendor.id);
    }
}

fn row(protocol: &str, status: u16, body: &str) -> RecordedExchange {
    let response = RecordedResponse {
        status,
        body: Some(body.to_owned()),
        ..RecordedResponse::default()
    };
    RecordedExchange {
        id: "r".into(),
        provider: String::new(),
        protocol: protocol.into(),
        framing: "sse".into(),
        streaming: true,
        request: RecordedRequest::default(),
        response,
        tags: Vec::new(),
    }
}

#[test]
fn an_answer_decodes_the_same_with_every_option() {
    let whole = decode(&row("openai.chat", 200, ANSWER), &DecodeOptions::default());
    assert_eq!(
        (whole.text.as_str(), whole.stop.clone(), whole.error.clone()),
        ("hello", Some(EndReason::Done), None)
    );
    for split in [1, 2, 7] {
        let options = DecodeOptions {
            split: std::num::NonZeroUsize::new(split),
            bom: true,
            crlf: true,
        };
        assert_eq!(decode(&row("openai.chat", 200, ANSWER), &options), whole);
    }
}

#[test]
fn a_binary_body_is_base64_in_either_field() {
    let mut binary = row("bedrock.converse", 200, "AAEC");
    binary.framing = "aws-eventstream".into();
    assert_eq!(binary.body(), Ok(vec![0, 1, 2]));
    binary.response.body_b64 = binary.response.body.take();
    assert_eq!(binary.body(), Ok(vec![0, 1, 2]));
}

#[test]
fn an_unreadable_answer_is_an_error_and_keeps_its_text() {
    let check = |row: &RecordedExchange, text: &str, kind: &str, says: &str| {
        let decoded = decode(row, &DecodeOptions::default());
        let error = decoded.error.unwrap();
        assert_eq!(
            (decoded.text.as_str(), error.kind, decoded.stop),
            (text, kind, None),
            "{}",
            error.message
        );
        assert!(error.message.contains(says), "{}", error.message);
    };
    let half = ANSWER
        .replace("\"stop\"", "null")
        .replace("data: [DONE]\n\n", "");
    check(
        &row("openai.chat", 200, &half),
        "hello",
        "network",
        "ended before",
    );
    check(
        &row("cohere.chat", 200, ""),
        "",
        "invalid_request",
        "`cohere.chat` is unknown",
    );
    check(
        &row("openai.chat", 401, "{\"error\":{\"message\":\"bad key\"}}"),
        "",
        "authentication",
        "bad key",
    );
    check(
        &row("openai.chat", 200, "<html>"),
        "",
        "invalid_response",
        "<html>",
    );
    check(
        &row(
            "openai.chat",
            200,
            "{\"error\":{\"message\":\"m\",\"code\":503}}",
        ),
        "",
        "unavailable",
        "m",
    );
}

proptest::proptest! {
    #[test]
    fn base64_round_trips(bytes: Vec<u8>) {
        proptest::prop_assert_eq!(base64(&to_base64(&bytes)), Some(bytes));
    }

    #[test]
    fn no_line_makes_the_decoder_panic(line in "[\\PC{}\":,\\[\\]]{0,60}") {
        if let Ok(row) = RecordedExchange::parse(&line) {
            let _ = decode(&row, &DecodeOptions::default());
        }
    }
}
