//! End-to-end tests: requests through the real HTTP client to a loopback server that behaves or misbehaves.
#![allow(clippy::unwrap_used)]

use futures_util::StreamExt;
use windlass_core::history::Entry;
use windlass_core::message::Message;
use windlass_core::provider::{EndReason, ProviderErrorKind, Sampling};
use windlass_core::tool::ToolSet;

use super::*;
use crate::http::HttpOptions;
use crate::loopback::{Act, Server, chunk, event_stream, last_chunk, stream_head, whole};
use crate::vendors::vendor;

const KEY: &str = "sk-very-secret";

fn provider(id: &str, url: &str, change: impl FnOnce(&mut HttpOptions)) -> WireProvider {
    let mut options = HttpOptions::default();
    change(&mut options);
    let options = ProviderOptions {
        base_url: Some(url.to_owned()),
        key: Some(KEY.to_owned().into()),
        ..ProviderOptions::new(Http::new(&options).unwrap())
    };
    WireProvider::new(*vendor(id).unwrap(), options).unwrap()
}

async fn ask(provider: &WireProvider) -> (Vec<Chunk>, Option<ProviderError>) {
    let (tools, options) = (ToolSet::default(), Sampling::default());
    let history = [Entry::new(Message::user("hello"))];
    let request = Request {
        model: "m",
        system: "s",
        history: &history,
        tools: &tools,
        max_output: 9,
        options: &options,
    };
    let mut stream = provider.stream(request);
    let mut chunks = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(chunk) => chunks.push(chunk),
            Err(err) => {
                assert!(stream.next().await.is_none(), "an error ends the stream");
                assert!(!err.to_string().contains(KEY), "{err}");
                return (chunks, Some(err));
            }
        }
    }
    (chunks, None)
}

fn delta(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn text(chunks: &[Chunk]) -> String {
    let texts = chunks.iter().filter_map(|chunk| match chunk {
        Chunk::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test]
async fn an_answer_arrives_and_the_connection_is_used_for_the_next_step() {
    let server = Server::saying(event_stream(&[&delta("hel"), &delta("lo"), STOP])).unwrap();
    let provider = provider("openai-chat", &server.url, |_| ());
    for _ in 0..5 {
        let (chunks, err) = ask(&provider).await;
        assert_eq!(
            (text(&chunks).as_str(), chunks.last(), err),
            ("hello", Some(&Chunk::End(EndReason::Done)), None)
        );
    }
    assert_eq!(server.connections(), 1);
    let request = &server.requests()[0];
    assert!(
        request.starts_with("POST /chat/completions HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains(&format!("authorization: Bearer {KEY}"))
            && request.contains("\"stream\":true")
    );
    assert_eq!(provider.name(), "openai-chat");
    assert!(!format!("{provider:?}").contains(KEY));
}

#[tokio::test]
async fn the_messages_protocol_sends_its_headers() {
    let events = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
                  event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let server = Server::saying(event_stream(&[events])).unwrap();
    let (chunks, err) = ask(&provider("anthropic", &server.url, |_| ())).await;
    assert_eq!((chunks, err), (vec![Chunk::End(EndReason::Done)], None));
    let request = &server.requests()[0];
    assert!(
        request.starts_with("POST /v1/messages HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains(&format!("x-api-key: {KEY}"))
            && request.contains("anthropic-version: 2023-06-01")
    );
}

#[tokio::test]
async fn gemini_has_the_model_in_the_address_and_errors_may_be_in_a_list() {
    let events = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]},\"finishReason\":\"STOP\"}]}\r\n\r\n";
    let server = Server::saying(event_stream(&[events])).unwrap();
    let (chunks, err) = ask(&provider("gemini", &server.url, |_| ())).await;
    assert_eq!(
        (chunks, err),
        (
            vec![Chunk::Text("x".into()), Chunk::End(EndReason::Done)],
            None
        )
    );
    let request = &server.requests()[0];
    assert!(
        request.starts_with("POST /v1beta/models/m:streamGenerateContent?alt=sse HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains(&format!("x-goog-api-key: {KEY}")) && !request.contains("authorization")
    );

    let list = "[{\"error\":{\"code\":503,\"message\":\"try later\",\"status\":\"UNAVAILABLE\"}}]";
    for kind in ["application/json", "text/event-stream"] {
        let server =
            Server::saying(vec![whole(200, &format!("Content-Type: {kind}\r\n"), list)]).unwrap();
        let (_, err) = ask(&provider("gemini", &server.url, |_| ())).await;
        assert_eq!(
            err.unwrap().kind,
            ProviderErrorKind::Unavailable { retry_after: None },
            "{kind}"
        );
    }
}

#[tokio::test]
async fn the_responses_protocol_stores_nothing_and_warns_about_unsupported_options() {
    let events = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n\
                  data: {\"type\":\"response.completed\",\"response\":{}}\n\n";
    let server = Server::saying(event_stream(&[events])).unwrap();
    let (chunks, err) = ask(&provider("openai", &server.url, |_| ())).await;
    assert_eq!(
        (chunks, err),
        (
            vec![Chunk::Text("x".into()), Chunk::End(EndReason::Done)],
            None
        )
    );
    let request = &server.requests()[0];
    assert!(
        request.starts_with("POST /responses HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains("\"store\":false") && request.contains("\"prompt_cache_key\":\"windlass-"),
        "{request}"
    );

    let (tools, options) = (
        ToolSet::default(),
        Sampling {
            stop: vec!["END".into()],
            ..Sampling::default()
        },
    );
    let history = [Entry::new(Message::user("hello"))];
    let request = Request {
        model: "m",
        system: "",
        history: &history,
        tools: &tools,
        max_output: 9,
        options: &options,
    };
    let openai = provider("openai", &server.url, |_| ());
    let first = openai.stream(request).next().await.unwrap().unwrap();
    assert!(
        matches!(&first, Chunk::Unknown(text) if text.contains("stop sequences")),
        "{first:?}"
    );
}

#[tokio::test]
async fn text_that_arrives_together_is_one_chunk_and_nothing_waits_for_later_text() {
    let many: String = (0..1_000).map(|_| delta("abcd")).collect();
    let server = Server::saying(event_stream(&[&many, STOP])).unwrap();
    let (chunks, _) = ask(&provider("openai-chat", &server.url, |_| ())).await;
    assert_eq!(text(&chunks).len(), 4_000);
    assert!(chunks.len() < 50, "{} chunks", chunks.len());

    // The first piece is passed on although the server sends nothing more.
    let server = Server::saying(vec![stream_head(), chunk(delta("first")), Act::Hang]).unwrap();
    let provider = provider("openai-chat", &server.url, |_| ());
    let (tools, options) = (ToolSet::default(), Sampling::default());
    let request = Request {
        model: "m",
        system: "",
        history: &[],
        tools: &tools,
        max_output: 9,
        options: &options,
    };
    let mut stream = provider.stream(request);
    assert_eq!(stream.next().await, Some(Ok(Chunk::Text("first".into()))));
}

#[tokio::test]
async fn a_body_that_stays_open_after_the_end_does_not_delay_the_answer() {
    let server = Server::saying(vec![stream_head(), chunk(delta("x") + STOP), Act::Hang]).unwrap();
    let (chunks, err) = ask(&provider("openai-chat", &server.url, |_| ())).await;
    assert_eq!(
        (chunks, err),
        (
            vec![Chunk::Text("x".into()), Chunk::End(EndReason::Done)],
            None
        )
    );
}

/// Checks a failure: the kind and the message of the error for the server's actions, and the text received before it.
async fn check_failure(acts: Vec<Act>, kind: ProviderErrorKind, says: &str, kept: &str) {
    let hangs = acts.iter().any(|act| matches!(act, Act::Hang));
    let idle = Duration::from_millis(if hangs { 200 } else { 60_000 });
    let server = Server::saying(acts).unwrap();
    let (chunks, err) = ask(&provider("openai-chat", &server.url, |o| {
        o.idle_timeout = idle
    }))
    .await;
    let err = err.unwrap_or_else(|| panic!("no error for {says:?}"));
    assert_eq!(err.kind, kind, "{err}");
    assert!(
        err.to_string().contains(says),
        "{err} does not say {says:?}"
    );
    assert_eq!(text(&chunks), kept);
    assert!(
        !chunks.iter().any(|chunk| matches!(chunk, Chunk::End(_))),
        "no end after an error"
    );
    assert_eq!(server.requests().len(), 1, "providers never retry");
}

#[tokio::test]
async fn the_status_decides_the_kind_of_error() {
    use ProviderErrorKind as K;
    let limited = K::RateLimited {
        retry_after: Some(Duration::from_secs(2)),
    };
    check_failure(
        vec![whole(429, "retry-after: 2\r\n", "{}")],
        limited,
        "HTTP 429",
        "",
    )
    .await;
    let unavailable = K::Unavailable { retry_after: None };
    check_failure(
        vec![whole(500, "", "oops")],
        unavailable,
        "oops (HTTP 500)",
        "",
    )
    .await;
    let echo = format!("{{\"error\":{{\"message\":\"Incorrect API key: {KEY}\"}}}}");
    check_failure(
        vec![whole(401, "", echo)],
        K::Authentication,
        "Incorrect API key: ***",
        "",
    )
    .await;
    let long = "{\"error\":{\"message\":\"prompt is too long\"}}";
    check_failure(vec![whole(400, "", long)], K::ContextLength, "too long", "").await;
}

#[tokio::test]
async fn errors_quote_answers_that_are_no_stream() {
    use ProviderErrorKind as K;
    let page = whole(
        200,
        "content-type: text/html\r\n",
        "<html><body>502 Bad Gateway</body></html>",
    );
    check_failure(vec![page], K::InvalidResponse, "<html><body>502", "").await;
    let plain = whole(200, "", "hello, I am no event stream");
    check_failure(vec![plain], K::InvalidResponse, "hello, I am", "").await;
    check_failure(
        vec![whole(200, "", "")],
        K::InvalidResponse,
        "empty body",
        "",
    )
    .await;
    let json = whole(
        200,
        "content-type: application/json\r\n",
        "{\"choices\":[]}",
    );
    check_failure(
        vec![json],
        K::InvalidResponse,
        "`application/json` instead",
        "",
    )
    .await;
    let error = whole(
        200,
        "content-type: application/json\r\n",
        "{\"error\":{\"code\":429,\"message\":\"slow down\"}}",
    );
    check_failure(
        vec![error],
        K::RateLimited { retry_after: None },
        "slow down",
        "",
    )
    .await;
    let garbage = event_stream(&[&delta("ok"), "data: {not json}\n\n"]);
    check_failure(garbage, K::InvalidResponse, "{not json}", "ok").await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_keeps_its_text_and_is_a_network_error() {
    use ProviderErrorKind as K;
    check_failure(
        vec![Act::Close],
        K::Network {
            transient: true,
            sent: true,
        },
        "broke",
        "",
    )
    .await;
    check_failure(
        vec![stream_head(), chunk(delta("half")), Act::Close],
        K::Network {
            transient: true,
            sent: true,
        },
        "broke",
        "half",
    )
    .await;
    let clean = event_stream(&[&delta("half"), "data: {\"choices\":[{\"ind"]);
    check_failure(
        clean,
        K::Network {
            transient: true,
            sent: true,
        },
        "ended before the answer did",
        "half",
    )
    .await;
    check_failure(
        vec![stream_head(), chunk(delta("half")), Act::Hang],
        K::Network {
            transient: true,
            sent: true,
        },
        "sent no data",
        "half",
    )
    .await;
    let error =
        "data: {\"error\":{\"type\":\"server_error\",\"message\":\"upstream fell over\"}}\n\n";
    let acts = event_stream(&[&delta("half"), error]);
    check_failure(
        acts,
        K::Unavailable { retry_after: None },
        "fell over",
        "half",
    )
    .await;
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_finish_reason_is_no_error() {
    let reason = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let server = Server::saying(vec![
        stream_head(),
        chunk(delta("all")),
        chunk(reason),
        Act::Close,
    ])
    .unwrap();
    let (chunks, err) = ask(&provider("openai-chat", &server.url, |_| ())).await;
    assert_eq!(
        (chunks, err),
        (
            vec![Chunk::Text("all".into()), Chunk::End(EndReason::Done)],
            None
        )
    );
}

#[tokio::test]
async fn an_endless_event_fails_at_the_limit() {
    let flood = vec![b'x'; 1 << 20];
    let mut acts = vec![stream_head(), chunk("data: ")];
    acts.extend((0..20).map(|_| chunk(&flood)));
    acts.push(last_chunk());
    check_failure(
        acts,
        ProviderErrorKind::InvalidResponse,
        "longer than 16777216 bytes",
        "",
    )
    .await;
}

#[tokio::test]
async fn many_empty_deltas_become_no_chunks() {
    let block = delta("").repeat(10_000);
    let mut acts = vec![stream_head()];
    acts.extend((0..10).map(|_| chunk(&block)));
    acts.extend([chunk(STOP), last_chunk()]);
    let server = Server::saying(acts).unwrap();
    let (chunks, err) = ask(&provider("openai-chat", &server.url, |_| ())).await;
    assert_eq!((chunks, err), (vec![Chunk::End(EndReason::Done)], None));
}

#[test]
fn setup_errors_name_the_variable_to_set() {
    let options = |base: Option<&str>, key: Option<&str>| ProviderOptions {
        base_url: base.map(str::to_owned),
        key: key.map(|key| key.to_owned().into()),
        ..ProviderOptions::new(Http::new(&HttpOptions::default()).unwrap())
    };
    let refuse = |id: &str, base, key| {
        WireProvider::new(*vendor(id).unwrap(), options(base, key))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refuse("anthropic", None, None),
        "no key for `anthropic`: set ANTHROPIC_API_KEY"
    );
    assert_eq!(
        refuse("anthropic", None, Some(" ")),
        "no key for `anthropic`: set ANTHROPIC_API_KEY"
    );
    assert_eq!(
        refuse("openai-compatible", None, None),
        "`openai-compatible` needs a base URL"
    );
    assert!(refuse("openai-chat", None, Some("a\u{7}b")).contains("the key contains characters"));
    assert!(refuse("openai-chat", Some("ftp://x"), None).contains("not `ftp:`"));
    let local = WireProvider::new(*vendor("ollama").unwrap(), options(None, None)).unwrap();
    assert_eq!(local.facts("qwen3").price, Some(Price::FREE));
    let local_gateway = WireProvider::new(
        *vendor("openai-compatible").unwrap(),
        options(Some("http://localhost:1"), None),
    )
    .unwrap();
    assert_eq!(local_gateway.facts("x").price, Some(Price::FREE));
    let paid =
        WireProvider::new(*vendor("openai-chat").unwrap(), options(None, Some("k"))).unwrap();
    assert_eq!(
        (
            paid.facts("gpt-4o").price.unwrap().input,
            paid.facts("unknown-model").price
        ),
        (2_500_000, None)
    );
}
