//! Vendors that host another vendor's model, and cassettes: URL and form are rewritten, the content is not.

use parking_lot::Mutex;
use std::sync::Arc;

use serde_json::json;
use windlass_core::budget::Budget;
use windlass_core::event::EventKind;
use windlass_providers::{AwsKeys, CassettePlayer, ProviderOptions, Recorder, WireProvider};

use super::lab::{
    self, Act, ByteServer, MeterLab, REAL_KEY, events, saying, upstream, upstream_with, whole,
};
use super::{ASK_MESSAGES, END, MESSAGES, START, TEXT, check_heard, recording};
use crate::endpoint::{Endpoint as _, Trip};

#[tokio::test]
async fn vertex_has_the_model_in_the_address() {
    let body = recording("anthropic_text_and_parallel_calls.sse");
    let vendor = saying(events(&body));
    let lab = MeterLab::new(vec![upstream("vertex", &vendor.url)], Budget::UNLIMITED);
    let request = lab
        .post(MESSAGES, ASK_MESSAGES)
        .replace("connection:", "anthropic-beta: one\r\nconnection:");
    let (answer, _) = lab.during(lab.ask(&request)).await;
    assert!(answer.body == body);
    let path = "/publishers/anthropic/models/claude-sonnet-4-5:streamRawPredict";
    let says = [
        &format!("authorization: Bearer {REAL_KEY}"),
        "anthropic-beta: one",
        r#"{"max_tokens":9000,"stream":true,"messages":[],"anthropic_version":"vertex-2023-10-16"}"#,
    ];
    check_heard(
        &vendor.requests()[0],
        path,
        &says,
        &["x-api-key", "\"model\""],
    );
    assert!(!lab.booked()[0].estimated);
}

/// A binary frame, as Bedrock wraps one event.
fn binary(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
    let mut named = Vec::new();
    for (name, value) in headers {
        named.push(u8::try_from(name.len()).unwrap());
        named.extend_from_slice(name.as_bytes());
        named.push(7);
        named.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        named.extend_from_slice(value.as_bytes());
    }
    let total = u32::try_from(named.len() + payload.len() + 16).unwrap();
    let mut out = [
        total.to_be_bytes(),
        u32::try_from(named.len()).unwrap().to_be_bytes(),
    ]
    .concat();
    out.extend_from_slice(&crc32fast::hash(&out).to_be_bytes());
    out.extend_from_slice(&named);
    out.extend_from_slice(payload.as_bytes());
    let checksum = crc32fast::hash(&out);
    out.extend_from_slice(&checksum.to_be_bytes());
    out
}

fn wrapped(stream: &str) -> Vec<u8> {
    use base64::Engine as _;
    let data = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    data.flat_map(|data| {
        let coded = base64::engine::general_purpose::STANDARD.encode(data);
        binary(
            &[(":event-type", "chunk"), (":message-type", "event")],
            &format!(r#"{{"bytes":"{coded}","p":"ab"}}"#),
        )
    })
    .collect()
}

const BINARY: &str = "application/vnd.amazon.eventstream";

#[tokio::test]
async fn bedrock_is_asked_and_answers_in_its_own_form() {
    let stream = format!("{START}{TEXT}{END}");
    // The chunks end at arbitrary positions.
    let answer = whole(200, BINARY, wrapped(&stream));
    let vendor = ByteServer::start(move |_, _| {
        answer
            .chunks(11)
            .map(|piece| Act::Say(piece.to_vec()))
            .collect()
    })
    .unwrap();
    let lab = MeterLab::new(vec![upstream("bedrock", &vendor.url)], Budget::UNLIMITED);
    let request = lab
        .post(MESSAGES, ASK_MESSAGES)
        .replace("connection:", "anthropic-beta: one,two\r\nconnection:");
    let (answer, _) = lab.during(lab.ask(&request)).await;
    assert_eq!(answer.text(), stream);
    assert!(answer.head.contains("text/event-stream"), "{}", answer.head);
    let path = "/model/claude-sonnet-4-5/invoke-with-response-stream";
    let body = r#"{"max_tokens":9000,"messages":[],"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["one","two"]}"#;
    check_heard(
        &vendor.requests()[0],
        path,
        &[body, &format!("authorization: Bearer {REAL_KEY}")],
        &["anthropic-beta:"],
    );
    let booked = lab.booked();
    assert_eq!(
        (
            booked[0].usage.input,
            booked[0].usage.output,
            booked[0].estimated
        ),
        (7, 5, false)
    );
}

#[tokio::test]
async fn bedrock_fails_in_the_words_of_the_agent() {
    let exception = binary(
        &[
            (":exception-type", "throttlingException"),
            (":message-type", "exception"),
        ],
        r#"{"message":"too fast"}"#,
    );
    let body = [wrapped(&format!("{START}{TEXT}")), exception].concat();
    let vendor = saying(whole(200, BINARY, body));
    let lab = MeterLab::new(vec![upstream("bedrock", &vendor.url)], Budget::UNLIMITED);
    let (answer, trip) = lab.call(MESSAGES, ASK_MESSAGES).await;
    assert_eq!(trip, None);
    let text = answer.text();
    let rest = text
        .strip_prefix(&format!("{START}{TEXT}event: error\ndata: "))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(rest.contains("too fast"), "{rest}");
    assert!(lab.booked()[0].estimated);
    let waited = |kind: &EventKind| matches!(kind, EventKind::Waited { error, .. } if error.word() == "rate_limited");
    assert!(lab.books.events.lock().iter().any(waited));
}

/// Checks the URL of a call for a complete answer.
async fn check_whole_at(id: &str, path: &str, says: &str) {
    let message = r#"{"type":"message","usage":{"input_tokens":3,"output_tokens":4}}"#;
    let vendor = saying(whole(200, "application/json", message));
    let lab = MeterLab::new(vec![upstream(id, &vendor.url)], Budget::UNLIMITED);
    let (answer, _) = lab
        .call(MESSAGES, r#"{"model":"a.b:0","max_tokens":9}"#)
        .await;
    assert_eq!(answer.text(), message);
    check_heard(&vendor.requests()[0], path, &[says], &["\"model\""]);
    assert_eq!(
        (lab.booked()[0].usage.output, lab.booked()[0].estimated),
        (4, false)
    );
}

#[tokio::test]
async fn complete_answers_have_their_own_url() {
    check_whole_at("bedrock", "/model/a.b%3A0/invoke", "bedrock-2023-05-31").await;
    check_whole_at(
        "vertex",
        "/publishers/anthropic/models/a.b%3A0:rawPredict",
        "vertex-2023-10-16",
    )
    .await;
}

#[tokio::test]
async fn a_request_is_signed_where_there_is_no_key() {
    let vendor = saying(whole(200, BINARY, wrapped(&format!("{START}{TEXT}{END}"))));
    let secret = "the-secret-half-of-it";
    let aws = AwsKeys {
        access_key: "AKID".to_owned(),
        secret_key: secret.to_owned().into(),
        session_token: None,
    };
    let options = ProviderOptions {
        base_url: Some(vendor.url.clone()),
        aws: Some(aws),
        ..ProviderOptions::new(lab::client())
    };
    let signed =
        WireProvider::new(*windlass_providers::vendor("bedrock").unwrap(), options).unwrap();
    let lab = MeterLab::new(vec![signed], Budget::UNLIMITED);
    let (answer, _) = lab.call(MESSAGES, ASK_MESSAGES).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let path = "/model/claude-sonnet-4-5/invoke-with-response-stream";
    let says = [
        "authorization: AWS4-HMAC-SHA256 Credential=AKID/",
        "x-amz-date: ",
    ];
    check_heard(
        &vendor.requests()[0],
        path,
        &says,
        &[secret, "bearer", &lab.meter.key()],
    );
}

struct NoRedaction;

impl windlass_core::workspace::Redactor for NoRedaction {
    fn redact<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        text.into()
    }
}

#[tokio::test]
async fn calls_are_recorded_and_played_back_without_a_network() {
    let body = recording("anthropic_text_and_parallel_calls.sse");
    let rows = Arc::new(Mutex::new(String::new()));
    let sink = rows.clone();
    let recorder = Recorder::new(Arc::new(NoRedaction), move |row| {
        let mut all = sink.lock();
        all.push_str(&row);
        all.push('\n');
    });
    let vendor = saying(events(&body));
    let lab = MeterLab::new(
        vec![upstream_with(
            "anthropic",
            &vendor.url,
            lab::client().recording(recorder),
        )],
        Budget::UNLIMITED,
    );
    let (first, _) = lab.call(MESSAGES, ASK_MESSAGES).await;
    drop(vendor);
    let cassette = rows.lock().clone();
    assert!(
        !cassette.contains(REAL_KEY) && !cassette.contains(&lab.meter.key()),
        "{cassette}"
    );
    let player = CassettePlayer::parse(&cassette, Arc::new(NoRedaction)).unwrap();
    let playing = upstream_with(
        "anthropic",
        "http://127.0.0.1:9",
        lab::client().playing(player.clone()),
    );
    let lab2 = MeterLab::new(vec![playing], Budget::UNLIMITED);
    let (second, _) = lab2.call(MESSAGES, ASK_MESSAGES).await;
    assert!(first.body == body && second.body == body);
    assert_eq!((lab.booked(), player.left()), (lab2.booked(), 0));
}

fn row(path: &str, model: &str, said: &str) -> String {
    let request = json!({ "method": "POST", "path": path, "body": format!(r#"{{"model":"{model}","at":"then"}}"#) });
    let response = json!({ "status": 200, "content_type": "text/event-stream", "body": said });
    json!({ "id": said, "request": request, "response": response }).to_string()
}

#[tokio::test]
async fn an_exchange_is_found_in_any_order_and_with_other_fields() {
    let rows = [
        row(MESSAGES, "big", "1"),
        row(MESSAGES, "small", "2"),
        row(MESSAGES, "big", "3"),
    ]
    .join("\n");
    let player = CassettePlayer::parse(&rows, Arc::new(NoRedaction))
        .unwrap()
        .loosely();
    let playing = upstream_with(
        "anthropic",
        "http://127.0.0.1:9",
        lab::client().playing(player.clone()),
    );
    let lab = MeterLab::new(vec![playing], Budget::UNLIMITED);
    let ask = |model: &str| {
        lab.post(
            MESSAGES,
            &format!(r#"{{"model":"{model}","max_tokens":9,"at":"now"}}"#),
        )
    };
    let (said, trip) = lab
        .during(async {
            let mut said = Vec::new();
            for model in ["small", "big", "big", "small"] {
                said.push(lab.ask(&ask(model)).await.text());
            }
            said
        })
        .await;
    assert_eq!(
        (&said[..3], player.left()),
        (&["2".to_owned(), "1".to_owned(), "3".to_owned()][..], 0)
    );
    assert!(
        said[3].contains("contains no unplayed exchange"),
        "{}",
        said[3]
    );
    assert!(matches!(trip, Some(Trip::Provider(_))), "{trip:?}");
}
