//! Vendors and agents that do not follow the rules: the meter never books less than the server may bill.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use windlass_core::budget::{Budget, Estimator, Usage};
use windlass_providers::{Http, HttpOptions};

use super::lab::{
    Act, Booked, ByteServer, HttpAnswer, MeterLab, REAL_KEY, events, saying, upstream,
    upstream_with, whole,
};
use super::{
    ASK_MESSAGES, END, MESSAGES, RESPONSES, START, TEXT, max_tokens, open_stream, read_until,
};
use super::{dialect, tokens};

/// The output tokens that every call here reserves.
const RESERVED: u64 = 9_000;

fn booked_tokens(booked: &Booked) -> (u64, u64, bool) {
    let Usage { input, output, .. } = booked.usage;
    (input, output, booked.estimated)
}

/// Sends a request, waits for `heard` in the answer or at the vendor, and hangs up.
async fn hang_up(lab: &MeterLab, vendor: &ByteServer, ask: &str, heard: Option<&str>) {
    let mut wire = lab.place.connect();
    let request = lab.post(MESSAGES, ask);
    wire.write_all(request.as_bytes()).await.unwrap();
    match heard {
        Some(words) => drop(read_until(&mut wire, words).await),
        None => {
            while vendor.requests().is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Checks an agent that hangs up while the vendor is still answering.
async fn check_hung_up(ask: &str, first: Vec<u8>, heard: Option<&str>, rest: Vec<u8>) {
    let acts = vec![Act::Say(first), Act::Wait, Act::Say(rest), Act::Close];
    let vendor = ByteServer::start(move |_, _| acts.clone()).unwrap();
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    lab.during(async {
        hang_up(&lab, &vendor, ask, heard).await;
        let booked = lab.books.changed.notified();
        vendor.go_on();
        booked.await;
    })
    .await;
    assert_eq!(booked_tokens(&lab.booked()[0]), (7, 5, false), "{ask}");
}

#[tokio::test]
async fn an_answer_is_read_to_its_end_when_the_agent_hangs_up() {
    let whole_answer = whole(
        200,
        "application/json",
        r#"{"type":"message","content":[],"usage":{"input_tokens":7,"output_tokens":5}}"#,
    );
    let ask = ASK_MESSAGES.replace("true", "false");
    check_hung_up(&ask, Vec::new(), None, whole_answer).await;
    check_hung_up(ASK_MESSAGES, open_stream(), Some("twenty"), END.into()).await;
    let late = [open_stream(), END.into()].concat();
    check_hung_up(ASK_MESSAGES, Vec::new(), None, late).await;
}

#[tokio::test]
async fn an_answer_that_never_came_costs_its_reservation() {
    let vendor = ByteServer::start(|_, _| vec![Act::Hang]).unwrap();
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    let ask = ASK_MESSAGES.replace("true", "false");
    lab.during(hang_up(&lab, &vendor, &ask, None)).await;
    let input = Estimator::default().tokens(ask.len());
    assert_eq!(booked_tokens(&lab.booked()[0]), (input, RESERVED, true));
}

fn impatient() -> Http {
    Http::new(&HttpOptions {
        idle_timeout: Duration::from_millis(50),
        ..HttpOptions::default()
    })
    .unwrap()
}

/// The end of a stream with this usage report.
fn ending(usage: &str) -> Vec<u8> {
    let end = END.replace(r#"{"output_tokens":5}"#, usage);
    [open_stream(), end.into()].concat()
}

/// Lets a vendor do this to one call; returns what the agent got, and what was booked.
async fn lie(acts: Vec<Act>) -> (HttpAnswer, Booked) {
    let vendor = ByteServer::start(move |_, _| acts.clone()).unwrap();
    let upstream = upstream_with("anthropic", &vendor.url, impatient());
    let lab = MeterLab::new(vec![upstream], Budget::UNLIMITED);
    let (answer, _) = lab.call(MESSAGES, ASK_MESSAGES).await;
    let booked = lab.booked();
    assert_eq!(booked.len(), 1, "{}", answer.text());
    (answer, booked[0].clone())
}

#[tokio::test]
async fn a_lying_vendor_is_never_booked_below_what_it_served() {
    let input = Estimator::default().tokens(ASK_MESSAGES.len());
    let say = |bytes: Vec<u8>| vec![Act::Say(bytes), Act::Close];
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n".to_vec();
    let cases = [
        (
            "dropped after the request",
            vec![Act::Close],
            (input, RESERVED),
        ),
        (
            "torn after the request",
            vec![Act::Reset],
            (input, RESERVED),
        ),
        (
            "no byte after the request",
            vec![Act::Hang],
            (input, RESERVED),
        ),
        (
            "no event after the head",
            vec![Act::Say(head), Act::Hang],
            (input, RESERVED),
        ),
        ("a cut stream", say(open_stream()), (7, 8)),
        (
            "a slow drip",
            vec![Act::Say(open_stream()), Act::Hang],
            (7, 8),
        ),
        ("negative", say(ending(r#"{"output_tokens":-5}"#)), (7, 8)),
        (
            "overflowing",
            say(ending(r#"{"output_tokens":18446744073709551617}"#)),
            (7, 8),
        ),
        (
            "absurd",
            say(ending(r#"{"input_tokens":-1,"output_tokens":5}"#)),
            (input, 8),
        ),
        (
            "free",
            say(ending(r#"{"input_tokens":0,"output_tokens":5}"#)),
            (input, 8),
        ),
    ];
    for (name, acts, expect) in cases {
        let (_, booked) = lie(acts).await;
        let (input, output) = expect;
        assert_eq!(booked_tokens(&booked), (input, output, true), "{name}");
    }
    let text = TEXT.repeat(1_000);
    let end = String::from_utf8(ending(r#"{"output_tokens":5}"#)).unwrap();
    let understated = end.replacen(TEXT, &text, 1);
    let (_, booked) = lie(say(understated.into())).await;
    assert_eq!(booked_tokens(&booked), (7, 8_000, true), "understated");
}

#[tokio::test]
async fn a_stream_that_passes_its_maximum_is_cut() {
    let acts = vec![Act::Say(open_stream()), Act::Repeat(TEXT.into(), 100_000)];
    let (answer, booked) = lie(acts).await;
    let served = answer.text().matches("twenty").count() as u64 * 4;
    let (_, output, estimated) = booked_tokens(&booked);
    assert!(
        estimated && output >= RESERVED && output >= served,
        "{output}"
    );
    assert!(served < 2 * RESERVED, "{served}");
}

#[tokio::test]
async fn a_vendor_that_passes_the_maximum_again_is_not_asked_any_more() {
    let acts = vec![Act::Say(open_stream()), Act::Repeat(TEXT.into(), 100_000)];
    let vendor = ByteServer::start(move |_, _| acts.clone()).unwrap();
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    let (_, trip) = lab
        .during(async {
            for _ in 0..3 {
                lab.ask(&lab.post(MESSAGES, ASK_MESSAGES)).await;
            }
        })
        .await;
    assert_eq!(vendor.requests().len(), 2);
    assert!(
        format!("{trip:?}").contains("more than the requested 9000 tokens"),
        "{trip:?}"
    );
}

/// A server adds 3,000 tokens to requests of some 100 bytes. No call after the first exceeds the limit.
#[tokio::test]
async fn the_estimate_learns_what_a_server_adds() {
    let start = START.replace("\"input_tokens\":7", "\"input_tokens\":3000");
    let vendor = saying(events(format!("{start}{TEXT}{END}")));
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], tokens(10_000));
    let ask = ASK_MESSAGES.replace("9000", "1024");
    let mut calls = 0;
    while lab.call(MESSAGES, &ask).await.1.is_none() {
        calls += 1;
        assert!(calls < 10);
    }
    let spent: u64 = lab.booked().iter().map(|one| one.usage.counted()).sum();
    assert!(spent <= 10_000 && calls >= 2, "{calls} calls took {spent}");
}

#[tokio::test]
async fn stored_input_is_reserved_by_the_size_of_earlier_calls() {
    let usage = r#"{"id":"r","usage":{"input_tokens":40000,"output_tokens":4}}"#;
    let vendor = saying(whole(200, "application/json", usage));
    let lab = MeterLab::new(vec![upstream("openai", &vendor.url)], tokens(100_000));
    let first = r#"{"model":"gpt-5","max_output_tokens":2000,"input":"hello"}"#;
    lab.call(RESPONSES, first).await;
    let refers = [
        r#"{"model":"gpt-5","max_output_tokens":30000,"input":[{"type":"item_reference","id":"m"}]}"#,
        r#"{"model":"gpt-5","max_output_tokens":30000,"input":[{"id":"m"}]}"#,
    ];
    for ask in refers {
        let lab = MeterLab::new(vec![upstream("openai", &vendor.url)], tokens(100_000));
        lab.call(RESPONSES, first).await;
        lab.call(RESPONSES, ask).await;
        let heard = vendor.requests();
        let left = heard.last().unwrap();
        assert!(!left.contains("\"max_output_tokens\":30000"), "{left}");
    }
    let plain = r#"{"model":"gpt-5","max_output_tokens":8000,"input":[{"role":"user","content":"item_reference"}]}"#;
    lab.call(RESPONSES, plain).await;
    assert!(
        vendor
            .requests()
            .last()
            .unwrap()
            .contains("\"max_output_tokens\":8000")
    );
}

#[tokio::test]
async fn thinking_beyond_the_maximum_is_reserved() {
    let vendor = saying(events(format!("{START}{TEXT}{END}")));
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], tokens(10_000));
    let ask = r#"{"model":"claude-sonnet-4-5","max_tokens":2000,"stream":true,"thinking":{"type":"enabled","budget_tokens":16000}}"#;
    lab.call(MESSAGES, ask).await;
    let heard = vendor.requests();
    assert_eq!(max_tokens(&heard[0]), 2_000);
    assert!(heard[0].contains(r#""budget_tokens":4"#), "{}", heard[0]);
}

#[tokio::test]
async fn a_key_in_an_answer_does_not_reach_the_agent() {
    let (front, back) = REAL_KEY.split_at(9);
    let (_, id, path, ask) = dialect("anthropic");
    let in_text = format!("{START}{TEXT}{END}").replace("bytes", &format!("{REAL_KEY} bytes"));
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let document = format!(
        r#"{{"type":"message","debug":"{REAL_KEY}","usage":{{"input_tokens":7,"output_tokens":5}}}}"#
    );
    let acts = vec![
        Act::Say(format!("{head}{START}: {front}").into()),
        Act::Wait,
        Act::Say(format!("{back}\n\n{TEXT}{END}").into()),
    ];
    let cases = [
        vec![Act::Say(events(&in_text))],
        vec![Act::Say(whole(200, "application/json", document))],
        acts,
    ];
    let stars = "*".repeat(REAL_KEY.len());
    for acts in cases {
        let waits = acts.len() > 1;
        let vendor = ByteServer::start(move |_, _| acts.clone()).unwrap();
        let lab = MeterLab::new(vec![upstream(id, &vendor.url)], Budget::UNLIMITED);
        let (text, _) = lab
            .during(async {
                let mut wire = lab.place.connect();
                let request = lab.post(path, ask);
                wire.write_all(request.as_bytes()).await.unwrap();
                let mut text = String::new();
                if waits {
                    text = read_until(&mut wire, "message_start").await;
                    vendor.go_on();
                }
                text + &read_until(&mut wire, &stars).await
            })
            .await;
        assert!(!text.contains(REAL_KEY), "{text}");
    }
}
