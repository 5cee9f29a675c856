//! Tests the meter between a scripted vendor and an agent: what it passes on, counts and refuses.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod declined;
mod hosted;
mod lab;
mod rejected;
mod settlement;

use std::path::Path;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use windlass_core::budget::{Budget, Estimator, Limit, Price, Usage};
use windlass_core::event::EventKind;
use windlass_core::provider::{Chunk, ProviderErrorKind};
use windlass_providers::framing::Framer;
use windlass_providers::protocol::{Batch, Protocol, Quirks};

use self::lab::{Act, Booked, ByteServer, MeterLab, REAL_KEY, events, saying, upstream, whole};
use crate::endpoint::{Endpoint as _, Trip};

const MESSAGES: &str = "/v1/messages?beta=true";
const RESPONSES: &str = "/v1/responses";
const CHAT: &str = "/v1/chat/completions";
const GEMINI: &str = "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse";

const ASK_MESSAGES: &str =
    r#"{"model":"claude-sonnet-4-5","max_tokens":9000,"stream":true,"messages":[]}"#;
const ASK_RESPONSES: &str =
    r#"{"model":"gpt-5","stream":true,"max_output_tokens":9000,"input":[]}"#;
const ASK_CHAT: &str =
    r#"{"model":"gpt-5","stream":true,"max_completion_tokens":9000,"messages":[]}"#;
const ASK_GEMINI: &str = r#"{"contents":[],"generationConfig":{"maxOutputTokens":9000}}"#;

fn recording(name: &str) -> Vec<u8> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../windlass-providers/tests/recordings");
    std::fs::read(folder.join(name)).unwrap()
}

fn tokens(max: u64) -> Budget {
    Budget {
        tokens: Some(max),
        tokens_uncached: Some(max),
        ..Budget::UNLIMITED
    }
}

/// The vendor, path and body of each dialect.
fn dialect(name: &str) -> (Protocol, &'static str, &'static str, &'static str) {
    match name {
        "anthropic" => (
            Protocol::AnthropicMessages,
            "anthropic",
            MESSAGES,
            ASK_MESSAGES,
        ),
        "responses" => (
            Protocol::OpenAiResponses,
            "openai",
            RESPONSES,
            ASK_RESPONSES,
        ),
        "chat" => (Protocol::OpenAiChat, "openai-chat", CHAT, ASK_CHAT),
        "gemini" => (Protocol::Gemini, "gemini", GEMINI, ASK_GEMINI),
        other => panic!("{other}"),
    }
}

/// Decodes a stream without the meter: the last usage report, and whether the answer is complete.
fn decoded(protocol: Protocol, body: &[u8]) -> (Option<Usage>, bool) {
    let (mut framer, mut decoder) = (
        Framer::new(protocol.framing()),
        protocol.decoder(&Quirks::NONE),
    );
    let mut batch = Batch::default();
    let read = framer.push(body, |event| decoder.event(&event, &mut batch));
    let whole = read.is_ok() && {
        let _ = framer.finish(|event| decoder.event(&event, &mut batch));
        decoder.finish(&mut batch)
    };
    let mut last = None;
    while let Some(chunk) = batch.pop() {
        if let Chunk::Usage(usage) = chunk {
            last = Some(usage);
        }
    }
    (last, whole)
}

#[tokio::test]
async fn recorded_streams_pass_byte_for_byte_and_are_booked_as_reported() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../windlass-providers/tests/recordings");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() > 30);
    for name in names.iter().filter(|name| name.ends_with(".sse")) {
        let body = recording(name);
        let (protocol, id, path, ask) = dialect(name.split('_').next().unwrap());
        let vendor = saying(events(&body));
        let lab = MeterLab::new(vec![upstream(id, &vendor.url)], Budget::UNLIMITED);
        let (answer, trip) = lab.call(path, ask).await;
        assert_eq!((answer.status, trip), (200, None), "{name}");
        assert!(answer.body == body, "{name} was changed on its way");
        let (usage, whole) = decoded(protocol, &body);
        let booked = lab.booked();
        assert_eq!(booked.len(), 1, "{name}");
        match (usage, whole) {
            // An impossible report is ignored.
            (Some(usage), true) if usage.output < u64::MAX => assert_eq!(
                (booked[0].usage, booked[0].estimated),
                (usage, false),
                "{name}"
            ),
            _ => assert!(booked[0].estimated, "{name}"),
        }
        assert_eq!(lab.meter.take_usage(), booked[0].usage, "{name}");
        assert_eq!(lab.meter.take_usage(), Usage::default(), "{name}");
    }
}

/// Checks what reaches the vendor.
#[track_caller]
fn check_heard(request: &str, path: &str, says: &[&str], never: &[&str]) {
    assert!(
        request.starts_with(&format!("POST {path} HTTP/1.1\r\n")),
        "{request}"
    );
    let lower = request.to_lowercase();
    says.iter()
        .for_each(|words| assert!(lower.contains(&words.to_lowercase()), "{words}\n{request}"));
    never
        .iter()
        .for_each(|words| assert!(!lower.contains(&words.to_lowercase()), "{words}\n{request}"));
}

#[tokio::test]
async fn the_real_key_goes_out_and_the_placeholder_stays() {
    let vendor = saying(events(recording("anthropic_text_and_parallel_calls.sse")));
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    let key = lab.meter.key();
    let more = format!(
        "\r\nauthorization: Bearer {key}\r\ncookie: a=b\r\nx-amz-security-token: t\r\nanthropic-beta: one,two\r\n\
         user-agent: agent/1\r\naccept-encoding: br\r\nproxy-authorization: p\r\nconnection: close"
    );
    let request = lab
        .post(MESSAGES, ASK_MESSAGES)
        .replace("\r\nconnection: close", &more);
    let (answer, _) = lab.during(lab.ask(&request)).await;
    assert_eq!(answer.status, 200);
    let heard = vendor.requests();
    let says = [
        &format!("x-api-key: {REAL_KEY}"),
        "anthropic-beta: one,two",
        "user-agent: agent/1",
        "accept-encoding: identity",
        "anthropic-version: 2023-06-01",
        ASK_MESSAGES,
    ];
    let never = ["authorization", "cookie", "x-amz", &key, "proxy"];
    check_heard(&heard[0], MESSAGES, &says, &never);
    assert!(!answer.head.contains(REAL_KEY) && !answer.text().contains(REAL_KEY));
}

/// Checks that a request with 5,000 tokens left is limited to what fits, in the field of its dialect. `LEFT` stands for
/// the tokens that its own text leaves, and `HALF` for half of that.
async fn check_lowered(name: &str, ask: &str, expect: &str) {
    let (_, id, path, _) = dialect(name);
    let body = recording(match name {
        "anthropic" => "anthropic_text_and_parallel_calls.sse",
        "responses" => "responses_reasoning_calls_and_state.sse",
        "chat" => "chat_text_and_usage_after_the_end.sse",
        _ => "gemini_thoughts_signatures_and_parallel_calls.sse",
    });
    let vendor = saying(events(body));
    let lab = MeterLab::new(vec![upstream(id, &vendor.url)], tokens(5_000));
    let (answer, _) = lab.call(path, ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let left = 5_000 - Estimator::default().tokens(ask.len());
    let expect = &expect
        .replace("LEFT", &left.to_string())
        .replace("HALF", &(left / 2).to_string());
    let heard = vendor.requests();
    let body = heard[0].split_once("\r\n\r\n").unwrap().1;
    assert!(body.contains(expect), "{expect}: {body}");
    serde_json::from_str::<Value>(body).unwrap();
}

#[tokio::test]
async fn the_output_is_lowered_to_what_is_left() {
    check_lowered("anthropic", ASK_MESSAGES, r#""max_tokens":LEFT,"#).await;
    check_lowered("responses", ASK_RESPONSES, r#""max_output_tokens":LEFT,"#).await;
    check_lowered(
        "responses",
        r#"{"model":"gpt-5","input":[]}"#,
        r#""max_output_tokens":LEFT}"#,
    )
    .await;
    check_lowered("chat", ASK_CHAT, r#""max_completion_tokens":LEFT,"#).await;
    check_lowered(
        "chat",
        r#"{"model":"gpt-5","n":2,"messages":[]}"#,
        r#""max_completion_tokens":HALF"#,
    )
    .await;
    check_lowered(
        "chat",
        r#"{"model":"gpt-5","max_tokens":9000}"#,
        r#""max_tokens":LEFT"#,
    )
    .await;
    check_lowered(
        "gemini",
        ASK_GEMINI,
        r#""generationConfig":{"maxOutputTokens":LEFT}"#,
    )
    .await;
    check_lowered(
        "gemini",
        r#"{"contents":[]}"#,
        r#""generationConfig":{"maxOutputTokens":LEFT}"#,
    )
    .await;
    let thinking = r#"{"model":"claude-sonnet-4-5","max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":8000}}"#;
    check_lowered(
        "anthropic",
        thinking,
        r#""thinking":{"type":"enabled","budget_tokens":HALF}"#,
    )
    .await;
    // An unknown model gets a maximum, and a known one that fits is passed on unchanged.
    check_lowered(
        "chat",
        r#"{"model":"nobody-1"}"#,
        r#""max_completion_tokens":LEFT"#,
    )
    .await;
    check_lowered(
        "anthropic",
        r#"{"model":"claude-sonnet-4-5" , "max_tokens":20}"#,
        r#""claude-sonnet-4-5" , "max"#,
    )
    .await;
}

#[tokio::test]
async fn a_chat_stream_is_made_to_report_its_usage() {
    check_lowered(
        "chat",
        r#"{"model":"gpt-5","stream":true}"#,
        r#""stream_options":{"include_usage":true}"#,
    )
    .await;
    let ask = r#"{"model":"gpt-5","stream":true,"stream_options":{"a":1}}"#;
    check_lowered(
        "chat",
        ask,
        r#""stream_options":{"a":1,"include_usage":true}"#,
    )
    .await;
}

/// Checks that a call over the limit is not sent, and that the error has the form of the dialect.
async fn check_refused(name: &str, status: u16, place: &str, word: &str) {
    let (_, id, path, ask) = dialect(name);
    let vendor = saying(Vec::new());
    let lab = MeterLab::new(vec![upstream(id, &vendor.url)], tokens(1_000));
    let (answer, trip) = lab.call(path, ask).await;
    assert_eq!(
        (answer.status, trip),
        (status, Some(Trip::OverBudget(Limit::Tokens))),
        "{name}"
    );
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        body.pointer(place).and_then(Value::as_str),
        Some(word),
        "{body}"
    );
    assert!(
        body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("(tokens)"),
        "{body}"
    );
    assert_eq!(
        (vendor.requests().len(), lab.booked().len()),
        (0, 0),
        "nothing was sent or booked"
    );
}

#[tokio::test]
async fn the_crossing_call_is_refused_in_the_words_of_the_agent() {
    check_refused("anthropic", 402, "/error/type", "billing_error").await;
    check_refused("responses", 400, "/error/code", "budget_exceeded").await;
    check_refused("chat", 400, "/error/code", "budget_exceeded").await;
    check_refused("gemini", 400, "/error/status", "FAILED_PRECONDITION").await;
}

const PRICE: Price = Price {
    input: 3_000_000,
    cache_read: 300_000,
    cache_write: 3_750_000,
    output: 15_000_000,
};

#[tokio::test]
async fn the_configured_price_applies() {
    let body = recording("anthropic_text_and_parallel_calls.sse");
    let vendor = saying(events(&body));
    let lab = MeterLab::priced(
        vec![upstream("anthropic", &vendor.url)],
        Budget::UNLIMITED,
        Some(PRICE),
        true,
    );
    lab.call(MESSAGES, ASK_MESSAGES).await;
    assert_eq!(lab.booked()[0].price, Some(PRICE));
    let cost = Budget {
        cost_micros: Some(1_000),
        ..Budget::UNLIMITED
    };
    let lab = MeterLab::priced(
        vec![upstream("anthropic", &vendor.url)],
        cost,
        Some(PRICE),
        true,
    );
    let (_, trip) = lab.call(MESSAGES, ASK_MESSAGES).await;
    assert_eq!(trip, Some(Trip::OverBudget(Limit::Cost)));
}

#[tokio::test]
async fn an_unknown_price_is_warned_of_once_and_refused_with_a_cost_limit() {
    let vendor = saying(events(recording("anthropic_text_and_parallel_calls.sse")));
    let ask = r#"{"model":"nobody-1","max_tokens":10,"stream":true}"#;
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    lab.during(async {
        for _ in 0..2 {
            assert_eq!(lab.ask(&lab.post(MESSAGES, ask)).await.status, 200);
        }
    })
    .await;
    let warned = |kind: &EventKind| matches!(kind, EventKind::Warned { code, .. } if code == "unknown_price");
    assert_eq!(
        lab.books
            .events
            .lock()
            .iter()
            .filter(|kind| warned(kind))
            .count(),
        1
    );
    let lab = MeterLab::priced(
        vec![upstream("anthropic", &vendor.url)],
        Budget::UNLIMITED,
        None,
        true,
    );
    let (answer, trip) = lab.call(MESSAGES, ask).await;
    assert!(
        answer.status == 402 && answer.text().contains("`prices`"),
        "{}",
        answer.text()
    );
    let Some(Trip::Provider(err)) = trip else {
        panic!("{trip:?}")
    };
    assert_eq!(err.kind, ProviderErrorKind::InvalidRequest);
    assert_eq!(vendor.requests().len(), 2);
}

/// Reads from a connection until this text arrived.
async fn read_until(wire: &mut tokio::io::DuplexStream, words: &str) -> String {
    let (mut all, mut piece) = (Vec::new(), vec![0; 4_096]);
    loop {
        let read = wire.read(&mut piece).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&piece[..read]);
        if String::from_utf8_lossy(&all).contains(words) {
            return String::from_utf8_lossy(&all).into_owned();
        }
    }
}

const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n";
const TEXT: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"twenty bytes of text\"}}\n\n";
const END: &str = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":5}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn open_stream() -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    format!("{head}{START}{TEXT}").into_bytes()
}

#[tokio::test]
async fn the_first_bytes_do_not_wait_for_the_rest() {
    let script = |_: usize, _: &str| {
        vec![
            Act::Say(open_stream()),
            Act::Wait,
            Act::Say(END.into()),
            Act::Hang,
        ]
    };
    let vendor = ByteServer::start(script).unwrap();
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    lab.during(async {
        let mut wire = lab.place.connect();
        wire.write_all(lab.post(MESSAGES, ASK_MESSAGES).as_bytes())
            .await
            .unwrap();
        read_until(&mut wire, "twenty bytes").await;
        assert!(lab.booked().is_empty());
        vendor.go_on();
        read_until(&mut wire, "message_stop").await;
    })
    .await;
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
async fn calls_in_progress_when_serving_ends_are_booked() {
    let vendor = ByteServer::start(|_, _| vec![Act::Say(open_stream()), Act::Hang]).unwrap();
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    let mut wire = lab.place.connect();
    lab.during(async {
        wire.write_all(lab.post(MESSAGES, ASK_MESSAGES).as_bytes())
            .await
            .unwrap();
        read_until(&mut wire, "twenty bytes").await;
    })
    .await;
    let Booked {
        usage, estimated, ..
    } = lab.booked()[0].clone();
    assert_eq!((usage.input, usage.output, estimated), (7, 9_000, true));
}

#[tokio::test]
async fn concurrent_calls_hold_their_reservations() {
    // Each wants 6,000 of 10,000: the second gets the rest, and the third waits until one of them is booked.
    let script = |number: usize, _: &str| match number {
        0 | 1 => vec![Act::Say(open_stream()), Act::Wait, Act::Say(END.into())],
        _ => vec![Act::Say(open_stream()), Act::Say(END.into())],
    };
    let vendor = ByteServer::start(script).unwrap();
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], tokens(10_000));
    let ask = ASK_MESSAGES.replace("9000", "6000");
    lab.during(async {
        let (mut one, mut two, mut three) = (
            lab.place.connect(),
            lab.place.connect(),
            lab.place.connect(),
        );
        one.write_all(lab.post(MESSAGES, &ask).as_bytes())
            .await
            .unwrap();
        read_until(&mut one, "twenty bytes").await;
        two.write_all(lab.post(MESSAGES, &ask).as_bytes())
            .await
            .unwrap();
        read_until(&mut two, "twenty bytes").await;
        three
            .write_all(lab.post(MESSAGES, &ask).as_bytes())
            .await
            .unwrap();
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(vendor.requests().len(), 2, "there is no room for a third");
        vendor.go_on();
        read_until(&mut three, "message_stop").await;
        vendor.go_on();
    })
    .await;
    let asked: Vec<_> = vendor
        .requests()
        .iter()
        .map(|heard| max_tokens(heard))
        .collect();
    assert_eq!(asked[0], 6_000);
    assert!((1_024..4_000).contains(&asked[1]), "{asked:?}");
    assert!(asked[2] > asked[1], "{asked:?}");
}

fn max_tokens(request: &str) -> u64 {
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    body["max_tokens"].as_u64().unwrap()
}

/// Checks how many calls reach a vendor that always fails like this, and how serving ends.
async fn check_failing(status: u16, body: &str, calls: usize, kind: &str) {
    let vendor = saying(whole(status, "application/json", body));
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    let (_, trip) = lab
        .during(async {
            for _ in 0..calls {
                let answer = lab.ask(&lab.post(MESSAGES, ASK_MESSAGES)).await;
                assert_eq!(answer.status, status);
                assert!(!answer.text().contains(REAL_KEY), "{}", answer.text());
            }
        })
        .await;
    let Some(Trip::Provider(err)) = trip else {
        panic!("{status}: {trip:?}")
    };
    assert_eq!((err.kind.word(), vendor.requests().len()), (kind, calls));
    assert!(!err.message.contains(REAL_KEY), "{err}");
    assert!(lab.booked().is_empty(), "a call that failed costs nothing");
    let waited = |kind: &EventKind| matches!(kind, EventKind::Waited { .. });
    assert_eq!(
        lab.books
            .events
            .lock()
            .iter()
            .filter(|kind| waited(kind))
            .count(),
        calls - 1
    );
}

#[tokio::test]
async fn consecutive_vendor_failures_end_serving() {
    let says = format!(r#"{{"type":"error","error":{{"type":"x","message":"no, {REAL_KEY}"}}}}"#);
    check_failing(500, &says, 4, "unavailable").await;
    check_failing(429, &says, 6, "rate_limited").await;
    check_failing(401, &says, 1, "authentication").await;
    check_failing(403, &says, 1, "authentication").await;
    check_failing(
        404,
        r#"{"error":{"message":"no such model"}}"#,
        1,
        "model_not_found",
    )
    .await;
}

#[tokio::test]
async fn a_success_between_failures_and_an_invalid_request_do_not_end_serving() {
    let script = |number: usize, _: &str| match number % 4 {
        3 => vec![Act::Say(events(format!("{START}{TEXT}{END}")))],
        2 => vec![Act::Say(whole(400, "application/json", "{}"))],
        _ => vec![Act::Say(whole(529, "application/json", "{}"))],
    };
    let vendor = ByteServer::start(script).unwrap();
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    let (statuses, trip) = lab
        .during(async {
            let mut all = Vec::new();
            for _ in 0..8 {
                all.push(lab.ask(&lab.post(MESSAGES, ASK_MESSAGES)).await.status);
            }
            all
        })
        .await;
    assert_eq!(
        (statuses, trip),
        (vec![529, 529, 400, 200, 529, 529, 400, 200], None)
    );
}

#[tokio::test]
async fn a_side_request_does_not_hide_that_the_work_fails() {
    let script = |_: usize, heard: &str| match heard.contains("\"tools\"") {
        true => vec![Act::Say(whole(500, "application/json", "{}"))],
        false => vec![Act::Say(events(format!("{START}{TEXT}{END}")))],
    };
    let vendor = ByteServer::start(script).unwrap();
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    let work = ASK_MESSAGES.replacen(
        '{',
        r#"{"tools":[{"name":"write","input_schema":{"type":"object"}}],"#,
        1,
    );
    let (statuses, trip) = lab
        .during(async {
            let mut all = Vec::new();
            for ask in [&*work, ASK_MESSAGES, &*work, &*work, ASK_MESSAGES, &*work] {
                all.push(lab.ask(&lab.post(MESSAGES, ask)).await.status);
            }
            all
        })
        .await;
    assert_eq!(statuses, [500, 200, 500, 500, 200, 500]);
    assert!(
        matches!(&trip, Some(Trip::Provider(err)) if err.kind.word() == "unavailable"),
        "{trip:?}"
    );
}

#[tokio::test]
async fn an_unreachable_vendor_ends_serving_after_some_calls() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let lab = MeterLab::new(vec![upstream("anthropic", &url)], Budget::UNLIMITED);
    let (answer, trip) = lab
        .during(async {
            let mut last = None;
            for _ in 0..4 {
                last = Some(lab.ask(&lab.post(MESSAGES, ASK_MESSAGES)).await);
            }
            last.unwrap()
        })
        .await;
    assert!(
        answer.status == 502 && answer.text().contains("refused the connection"),
        "{}",
        answer.text()
    );
    assert!(matches!(trip, Some(Trip::Provider(_))));
}

#[tokio::test]
async fn counting_tokens_and_listing_models_are_free() {
    let vendor = saying(whole(200, "application/json", r#"{"input_tokens":12}"#));
    let count = "/v1/messages/count_tokens?beta=true";
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], tokens(1));
    let (answer, trip) = lab.call(count, ASK_MESSAGES).await;
    assert_eq!(
        (answer.status, answer.text().as_str(), trip),
        (200, r#"{"input_tokens":12}"#, None)
    );
    let list = |path: &str| lab.post(path, "").replace("POST", "GET");
    lab.during(async {
        assert_eq!(lab.ask(&list("/v1/models")).await.status, 200);
        assert_eq!(lab.ask(&list("/v1/models/claude-x")).await.status, 200);
    })
    .await;
    let paths: Vec<_> = vendor
        .requests()
        .iter()
        .map(|heard| heard.split(" HTTP").next().unwrap().to_owned())
        .collect();
    assert_eq!(
        paths,
        [
            &format!("POST {count}"),
            "GET /v1/models",
            "GET /v1/models/claude-x"
        ]
    );
    let lab = MeterLab::new(vec![upstream("bedrock", &vendor.url)], tokens(1));
    let (answer, _) = lab.call(count, ASK_MESSAGES).await;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, r#"{"input_tokens":30}"#)
    );
    let (answer, _) = lab
        .during(lab.ask(&lab.post("/v1/models", "").replace("POST", "GET")))
        .await;
    assert!(
        answer.status == 200 && answer.text().contains(r#""data":["#),
        "{}",
        answer.text()
    );
    assert!(lab.booked().is_empty());
    assert_eq!(vendor.requests().len(), 3);
}

/// Checks what is booked for an answer in one document.
async fn check_whole(id: &str, path: &str, ask: &str, answer: &str, expect: Option<[u64; 4]>) {
    let vendor = saying(whole(200, "application/json", answer));
    let lab = MeterLab::new(vec![upstream(id, &vendor.url)], Budget::UNLIMITED);
    let (got, _) = lab.call(path, ask).await;
    assert_eq!((got.status, got.text().as_str()), (200, answer));
    let booked = lab.booked();
    let usage = booked[0].usage;
    assert_eq!(booked[0].estimated, expect.is_none());
    if let Some(expect) = expect {
        assert_eq!(
            [
                usage.input,
                usage.cache_read,
                usage.cache_write,
                usage.output
            ],
            expect,
            "{answer}"
        );
    }
}

#[tokio::test]
async fn whole_answers_are_read_for_their_usage() {
    let ask = r#"{"model":"gpt-5"}"#;
    let messages = r#"{"type":"message","usage":{"input_tokens":3,"cache_read_input_tokens":2,"cache_creation_input_tokens":1,"output_tokens":4}}"#;
    check_whole("anthropic", MESSAGES, ask, messages, Some([3, 2, 1, 4])).await;
    let chat = r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":6}}}"#;
    check_whole("openai-chat", CHAT, ask, chat, Some([4, 6, 0, 4])).await;
    check_whole("openai", CHAT, ask, chat, Some([4, 6, 0, 4])).await;
    let responses = r#"{"id":"r","usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":6},"output_tokens":4}}"#;
    check_whole("openai", RESPONSES, ask, responses, Some([4, 6, 0, 4])).await;
    let gemini =
        r#"{"candidates":[],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":4}}"#;
    let path = "/v1beta/models/gemini-2.5-pro:generateContent";
    check_whole("gemini", path, "{}", gemini, Some([10, 0, 0, 4])).await;
    let path = "/v1beta/models/gemini-2.5-pro:streamGenerateContent";
    check_whole(
        "gemini",
        path,
        "{}",
        &format!("[{gemini},\n{gemini}]"),
        Some([10, 0, 0, 4]),
    )
    .await;
    check_whole("anthropic", MESSAGES, ask, "{}", None).await;
    check_whole("openai-chat", CHAT, ask, "not json", None).await;
}
