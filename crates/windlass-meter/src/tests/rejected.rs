//! Requests that are rejected: wrong keys, other paths, other protocols, and bodies that cannot be limited.

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use windlass_core::budget::Budget;
use windlass_core::event::EventKind;

use super::lab::{Act, ByteServer, HttpAnswer, MeterLab, REAL_KEY, events, saying, upstream};
use super::{
    ASK_MESSAGES, ASK_RESPONSES, CHAT, END, GEMINI, MESSAGES, RESPONSES, START, TEXT, open_stream,
    read_until, tokens,
};
use crate::endpoint::Endpoint as _;

/// Checks that a request reaches no vendor, and how it is answered.
async fn check_stopped(
    edit: impl Fn(String, &str) -> String,
    status: u16,
    says: &str,
) -> HttpAnswer {
    let vendor = saying(events(""));
    let all = ["anthropic", "gemini"].map(|id| upstream(id, &vendor.url));
    let lab = MeterLab::new(all.into(), Budget::UNLIMITED);
    let key = lab.meter.key();
    let request = edit(lab.post(MESSAGES, ASK_MESSAGES), &key);
    let (answer, trip) = lab.during(lab.ask(&request)).await;
    assert_eq!(
        (answer.status, trip),
        (status, None),
        "{request}\n{}",
        answer.text()
    );
    assert!(answer.text().contains(says), "{}", answer.text());
    assert_eq!(vendor.requests(), Vec::<String>::new());
    let said = lab.books.events.lock().len();
    assert_eq!(
        said,
        usize::from(matches!(status, 401 | 404)),
        "who is turned away is named in the log"
    );
    answer
}

#[tokio::test]
async fn only_the_key_of_the_run_is_accepted() {
    check_stopped(
        |request, key| request.replace(key, "sk-other"),
        401,
        "authentication_error",
    )
    .await;
    check_stopped(
        |request, key| request.replace(key, &key[..key.len() - 1]),
        401,
        "authentication_error",
    )
    .await;
    check_stopped(
        |request, key| request.replace(key, REAL_KEY),
        401,
        "authentication_error",
    )
    .await;
    let chat = |request: String, key: &str| {
        request
            .replace(MESSAGES, CHAT)
            .replace(&format!("x-api-key: {key}"), "authorization: Bearer no")
    };
    check_stopped(chat, 401, "invalid_api_key").await;
    let gemini = |request: String, key: &str| {
        request
            .replace(MESSAGES, GEMINI)
            .replace(&format!("x-api-key: {key}"), "x-goog-api-key: no")
    };
    check_stopped(gemini, 401, "UNAUTHENTICATED").await;
}

#[tokio::test]
async fn nothing_but_model_calls_is_passed_on() {
    for path in [
        "/",
        "/v1/messages/",
        "//v1/messages",
        "/v1/../v1/messages",
        "/v1/%6dessages",
        "/v1/messages/batches",
        "/v1/files",
        "/v1/messages/../files",
        "/v1beta/models/../../x:generateContent",
        "/v1beta/models/a%2fb:generateContent",
        "/v1beta/models/..:generateContent",
        "/v1beta/models/m:batchGenerateContent",
        "/api/event_logging/batch",
    ] {
        let answer = check_stopped(
            |request, _| request.replace(MESSAGES, path),
            404,
            "only model calls",
        )
        .await;
        serde_json::from_slice::<Value>(&answer.body).unwrap();
    }
    check_stopped(
        |request, _| request.replace("POST", "DELETE"),
        404,
        "only model calls",
    )
    .await;
    check_stopped(
        |request, _| request.replace("POST /v1", "POST http://evil.invalid/v1"),
        400,
        "not a proxy",
    )
    .await;
    check_stopped(
        |request, _| request.replace("127.0.0.1:1", "evil.invalid"),
        404,
        "other hosts",
    )
    .await;
    check_stopped(
        |request, _| request.replace("POST /v1/messages?beta=true", "CONNECT a.invalid:443"),
        400,
        "not a proxy",
    )
    .await;
}

#[tokio::test]
async fn an_agent_that_wants_a_web_socket_falls_back() {
    let upgrade = |request: String, _: &str| {
        let request = request.replace("POST /v1/messages?beta=true", "GET /v1/responses");
        request
            .replace(
                "connection: close",
                "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x",
            )
            .replace(
                &format!("content-length: {}", ASK_MESSAGES.len()),
                "content-length: 0",
            )
            .replace(ASK_MESSAGES, "")
    };
    let vendor = saying(events(""));
    let lab = MeterLab::new(vec![upstream("openai", &vendor.url)], Budget::UNLIMITED);
    let request = upgrade(lab.post(MESSAGES, ASK_MESSAGES), "");
    lab.during(async {
        let mut wire = lab.place.connect();
        wire.write_all(request.as_bytes()).await.unwrap();
        let said = read_until(&mut wire, "web sockets").await;
        assert!(said.starts_with("HTTP/1.1 426"), "{said}");
    })
    .await;
    assert!(vendor.requests().is_empty());
}

/// Checks that a body is rejected, and why.
async fn check_body(path: &'static str, body: &str, says: &str) {
    let edit = |request: String, _: &str| {
        let request = request.replace(MESSAGES, path).replace(ASK_MESSAGES, body);
        request.replace(
            &format!("content-length: {}", ASK_MESSAGES.len()),
            &format!("content-length: {}", body.len()),
        )
    };
    check_stopped(edit, 400, says).await;
}

#[tokio::test]
async fn a_body_that_could_be_read_in_two_ways_is_refused() {
    check_body(
        MESSAGES,
        r#"{"model":"m","max_tokens":5,"max_tokens":900000}"#,
        "`max_tokens` occurs twice",
    )
    .await;
    check_body(
        MESSAGES,
        r#"{"model":"m","max_tokens":5,"max\u005ftokens":900000}"#,
        "occurs twice",
    )
    .await;
    check_body(MESSAGES, r#"{"model":"m","max_tokens":-5}"#, "whole number").await;
    check_body(
        MESSAGES,
        r#"{"model":"m","max_tokens":1e9}"#,
        "whole number",
    )
    .await;
    check_body(MESSAGES, r#"{"max_tokens":5}"#, "no `model`").await;
    check_body(
        MESSAGES,
        r#"{"model":"m","tools":{}}"#,
        "`tools` cannot be read",
    )
    .await;
    check_body(MESSAGES, "[]", "cannot be read").await;
    check_body(MESSAGES, "", "cannot be read").await;
    check_body(
        GEMINI,
        r#"{"generationConfig":{},"generation_config":{"maxOutputTokens":9}}"#,
        "twice",
    )
    .await;
    check_body(
        GEMINI,
        r#"{"generationConfig":{"maxOutputTokens":1,"max_output_tokens":9}}"#,
        "twice",
    )
    .await;
}

#[tokio::test]
async fn requests_that_cannot_be_counted_or_reserved_are_refused() {
    let vendor = saying(events(""));
    let lab = MeterLab::new(vec![upstream("openai", &vendor.url)], Budget::UNLIMITED);
    let (answer, _) = lab
        .call(RESPONSES, r#"{"model":"gpt-5","background":true}"#)
        .await;
    assert!(
        answer.status == 400 && answer.text().contains("background"),
        "{}",
        answer.text()
    );
    let (answer, _) = lab.call(MESSAGES, ASK_MESSAGES).await;
    assert!(
        answer.status == 404 && answer.text().contains("`-m anthropic/MODEL`"),
        "{}",
        answer.text()
    );
    let coded = lab
        .post(RESPONSES, ASK_RESPONSES)
        .replace("connection:", "content-encoding: zstd\r\nconnection:");
    let (answer, _) = lab.during(lab.ask(&coded)).await;
    assert!(
        answer.status == 400 && answer.text().contains("compressed"),
        "{}",
        answer.text()
    );
    let huge = lab
        .post(RESPONSES, ASK_RESPONSES)
        .replace("content-length: ", "content-length: 9999999");
    let (answer, _) = lab.during(lab.ask(&huge)).await;
    assert!(
        answer.status == 413 && answer.text().contains("64 MiB"),
        "{}",
        answer.text()
    );
    assert!(vendor.requests().is_empty());
}

#[tokio::test]
async fn vendor_actions_are_removed_with_a_warning() {
    let vendor = saying(events(format!("{START}{TEXT}{END}")));
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    let ask = ASK_MESSAGES.replace(
        r#""messages""#,
        r#""tools":[{"name":"Bash"},{"type":"web_search_20250305","name":"web_search"}],"speed":"fast","messages""#,
    );
    for _ in 0..2 {
        assert_eq!(lab.call(MESSAGES, &ask).await.0.status, 200);
    }
    let heard = vendor.requests();
    assert!(
        heard
            .iter()
            .all(|heard| heard.contains(r#""tools":[{"name":"Bash"}]"#)),
        "{heard:?}"
    );
    assert!(
        !heard
            .iter()
            .any(|heard| heard.contains("web_search") || heard.contains("speed")),
        "{heard:?}"
    );
    let said: Vec<_> = lab.books.events.lock().iter().filter_map(warning).collect();
    assert!(
        said.len() == 2 && said[0].contains("`speed`") && said[1].contains("`web_search_20250305`"),
        "{said:?}"
    );
    let picture = ASK_MESSAGES.replace(
        "[]",
        r#"[{"content":[{"source":{"type":"url","url":"https://a.test/?q"}}]}]"#,
    );
    let (answer, _) = lab.call(MESSAGES, &picture).await;
    assert!(
        answer.status == 400 && answer.text().contains("from elsewhere"),
        "{}",
        answer.text()
    );
    assert_eq!(vendor.requests().len(), 2);
}

fn warning(event: &EventKind) -> Option<String> {
    match event {
        EventKind::Warned { text, .. } => Some(text.clone()),
        _ => None,
    }
}

/// The overrun is at most the error of one call: an agent that made its text look cheap cannot get many such calls
/// through at the same time.
#[tokio::test]
async fn an_estimate_applies_to_one_call_at_a_time() {
    let script = |number: usize, _: &str| {
        let stream = String::from_utf8(open_stream()).unwrap();
        let cheap = Act::Say(stream.replace(":7,", ":100,").into());
        match number {
            1 => vec![cheap, Act::Wait, Act::Say(END.into())],
            _ => vec![cheap, Act::Say(END.into())],
        }
    };
    let vendor = ByteServer::start(script).unwrap();
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], tokens(30_000));
    let ask = ASK_MESSAGES
        .replace("9000", "2000")
        .replace("[]", &format!(r#"["{}"]"#, "two words ".repeat(2_500)));
    lab.during(async {
        let (mut first, mut one, mut two) = (
            lab.place.connect(),
            lab.place.connect(),
            lab.place.connect(),
        );
        // 25,000 bytes are reported as a hundred tokens.
        first
            .write_all(lab.post(MESSAGES, &ask).as_bytes())
            .await
            .unwrap();
        read_until(&mut first, "message_stop").await;
        one.write_all(lab.post(MESSAGES, &ask).as_bytes())
            .await
            .unwrap();
        read_until(&mut one, "twenty bytes").await;
        two.write_all(lab.post(MESSAGES, &ask).as_bytes())
            .await
            .unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            vendor.requests().len(),
            2,
            "it may be 25,000 tokens, and waits"
        );
        vendor.go_on();
        read_until(&mut two, "message_stop").await;
    })
    .await;
}

#[tokio::test]
async fn headers_that_choose_the_payer_are_removed() {
    let vendor = saying(events(""));
    let lab = MeterLab::new(vec![upstream("openai", &vendor.url)], Budget::UNLIMITED);
    let more = "openai-organization: o\r\nOpenAI-Project: p\r\nopenai-beta: b\r\nconnection: close";
    let request = lab
        .post(RESPONSES, ASK_RESPONSES)
        .replace("connection: close", more);
    lab.during(lab.ask(&request)).await;
    let heard = vendor.requests()[0].to_lowercase();
    assert!(heard.contains("openai-beta: b"), "{heard}");
    assert!(
        !heard.contains("openai-organization") && !heard.contains("openai-project"),
        "{heard}"
    );
}

#[tokio::test]
async fn a_log_that_cannot_be_written_ends_serving() {
    let vendor =
        ByteServer::start(|_, _| vec![Act::Say(open_stream()), Act::Say(END.into()), Act::Hang])
            .unwrap();
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    lab.books
        .full
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let (_, served) = lab.served(lab.ask(&lab.post(MESSAGES, ASK_MESSAGES))).await;
    assert_eq!(
        served.map_err(|err| err.kind),
        Err(windlass_core::store::StoreErrorKind::Full)
    );
}

#[tokio::test]
async fn only_so_many_connections_are_served_at_once() {
    let vendor = saying(events(format!("{START}{TEXT}{END}")));
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    lab.during(async {
        let mut idle: Vec<_> = (0..super::super::MAX_CONNECTIONS)
            .map(|_| lab.place.connect())
            .collect();
        let mut wire = lab.place.connect();
        wire.write_all(lab.post(MESSAGES, ASK_MESSAGES).as_bytes())
            .await
            .unwrap();
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert!(vendor.requests().is_empty(), "the last one waits");
        idle.pop();
        read_until(&mut wire, "message_stop").await;
    })
    .await;
}

#[tokio::test]
async fn requests_wait_while_too_much_of_them_is_in_memory() {
    let vendor = saying(events(format!("{START}{TEXT}{END}")));
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    let (small, length) = (
        lab.post(MESSAGES, ASK_MESSAGES),
        format!("content-length: {}", ASK_MESSAGES.len()),
    );
    let large = small.replace(&length, &format!("content-length: {}", 64 << 20));
    lab.during(async {
        let mut begun = Vec::new();
        for _ in 0..4 {
            let mut wire = lab.place.connect();
            wire.write_all(large.as_bytes()).await.unwrap();
            begun.push(wire);
        }
        let mut wire = lab.place.connect();
        wire.write_all(small.as_bytes()).await.unwrap();
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert!(vendor.requests().is_empty(), "the last one waits");
        begun.pop();
        read_until(&mut wire, "message_stop").await;
    })
    .await;
}

#[tokio::test]
async fn a_usage_report_of_zero_is_ignored() {
    let nothing = |text: &str| {
        text.replace(":7", ":0")
            .replace(":1}", ":0}")
            .replace(":5}", ":0}")
    };
    let vendor = saying(events(format!("{}{TEXT}{}", nothing(START), nothing(END))));
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    assert_eq!(lab.call(MESSAGES, ASK_MESSAGES).await.0.status, 200);
    let booked = &lab.booked()[0];
    assert!(
        booked.estimated && booked.usage.input > 0 && booked.usage.output > 0,
        "{booked:?}"
    );
}
