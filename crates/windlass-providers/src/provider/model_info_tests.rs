//! Tests of requests for model facts, and of request signatures, with loopback servers.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use serde_json::{Value, json};
use windlass_core::history::Entry;
use windlass_core::message::Message;
use windlass_core::provider::{
    Chunk, EndReason, Provider, ProviderError, ProviderErrorKind, Request, Sampling,
};
use windlass_core::tool::ToolSet;

use super::ProbedModel;
use crate::loopback::{Act, Server, chunk, last_chunk, whole};
use crate::provider::{ProviderOptions, SetupError, WireProvider};
use crate::sigv4::AwsKeys;
use crate::vendors::vendor;
use crate::{Http, HttpOptions};

fn options(url: &str) -> ProviderOptions {
    let http = Http::new(&HttpOptions::default()).unwrap();
    ProviderOptions {
        base_url: Some(url.to_owned()),
        ..ProviderOptions::new(http)
    }
}

fn provider(id: &str, url: &str, change: impl FnOnce(&mut ProviderOptions)) -> WireProvider {
    let mut options = options(url);
    change(&mut options);
    WireProvider::new(*vendor(id).unwrap(), options).unwrap()
}

async fn ask(provider: &WireProvider, prompt: &str) -> (Vec<Chunk>, Option<ProviderError>) {
    let (tools, options, history) = (
        ToolSet::default(),
        Sampling::default(),
        [Entry::new(Message::user(prompt))],
    );
    let request = Request {
        model: "m:1",
        system: "s",
        history: &history,
        tools: &tools,
        max_output: 900,
        options: &options,
    };
    let all: Vec<_> = provider.stream(request).collect().await;
    let mut chunks = Vec::new();
    for item in all {
        match item {
            Ok(chunk) => chunks.push(chunk),
            Err(err) => return (chunks, Some(err)),
        }
    }
    (chunks, None)
}

fn json_answer(value: &Value) -> Vec<Act> {
    vec![whole(
        200,
        "content-type: application/json\r\n",
        value.to_string(),
    )]
}

fn ndjson() -> Vec<Act> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    let word = "{\"message\":{\"content\":\"hi\"},\"done\":false}\n";
    let end = "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":1300,\"eval_count\":2}\n";
    vec![Act::Say(head.into()), chunk(word), chunk(end), last_chunk()]
}

/// A fake Ollama server with a model of this window.
async fn ollama(window: u64) -> Server {
    Server::start(move |_, request| {
        if request.starts_with("POST /api/show ") {
            json_answer(&json!({ "model_info": { "qwen3.context_length": window }, "capabilities": ["completion"] }))
        } else {
            ndjson()
        }
    }).unwrap()
}

fn paths(server: &Server) -> Vec<String> {
    let path = |request: &String| request.split(' ').nth(1).unwrap().to_owned();
    server.requests().iter().map(path).collect()
}

#[tokio::test]
async fn ollama_is_probed_once_and_gets_its_window() {
    let server = ollama(4_096).await;
    // The address of its OpenAI-compatible API works as well.
    let provider = provider("ollama", &format!("{}/v1", server.url), |_| ());
    for _ in 0..2 {
        let (chunks, err) = ask(&provider, "hello").await;
        assert_eq!(
            (chunks.first(), err),
            (Some(&Chunk::Text("hi".into())), None)
        );
        assert_eq!(chunks.last(), Some(&Chunk::End(EndReason::Done)));
    }
    assert_eq!(paths(&server), ["/api/show", "/api/chat", "/api/chat"]);
    let sent = server.requests();
    assert!(sent[0].ends_with("{\"model\":\"m:1\"}"), "{}", sent[0]);
    assert!(
        sent[1].contains("\"num_ctx\":4096") && sent[1].contains("\"truncate\":false"),
        "{}",
        sent[1]
    );
    let facts = provider.probe("m:1").await.unwrap();
    assert_eq!(
        (facts.context_window, facts.tools, facts.price),
        (Some(4_096), false, Some(windlass_core::budget::Price::FREE))
    );
    assert_eq!(provider.facts("m:1"), facts);
}

#[tokio::test]
async fn a_request_that_does_not_fit_is_not_sent() {
    let server = ollama(4_096).await;
    let small = provider("ollama", &server.url, |_| ());
    let (chunks, err) = ask(&small, &"word ".repeat(4_000)).await;
    let err = err.unwrap();
    assert_eq!(
        (chunks.len(), &err.kind),
        (0, &ProviderErrorKind::ContextLength),
        "{err}"
    );
    assert!(
        err.message.contains("window of 4096")
            && err.message.contains("providers.ollama.context_window"),
        "{err}"
    );
    assert_eq!(paths(&server), ["/api/show"]);
    // The user may choose a smaller window than the model has, but not a larger one.
    let server = ollama(131_072).await;
    let chosen = provider("ollama", &server.url, |options| {
        options.context_window = Some(600)
    });
    assert_eq!(
        ask(&chosen, &"word ".repeat(400)).await.1.unwrap().kind,
        ProviderErrorKind::ContextLength
    );
    let default = provider("ollama", &server.url, |_| ());
    assert_eq!(ask(&default, &"word ".repeat(4_000)).await.1, None);
    assert!(
        server
            .requests()
            .last()
            .unwrap()
            .contains("\"num_ctx\":32768")
    );
}

#[tokio::test]
async fn reported_counts_correct_the_estimate_and_implausible_ones_do_not() {
    let server = ollama(4_096).await;
    let provider = provider("ollama", &server.url, |_| ());
    let estimate = |provider: &WireProvider| -> u64 {
        let probed: ProbedModel = provider.probed.lock().get("m:1").unwrap().clone();
        probed.estimator.tokens(10_000)
    };
    assert_eq!(ask(&provider, "hello").await.1, None);
    provider.learn("m:1", 20_000, 100);
    assert_eq!(estimate(&provider), 4_000);
    assert_eq!(ask(&provider, &"word ".repeat(1_000)).await.1, None);
    assert!(estimate(&provider) < 3_200, "{}", estimate(&provider));
}

#[tokio::test]
async fn a_missing_model_and_a_missing_server_are_errors() {
    let missing = Server::saying(vec![whole(
        404,
        "",
        "{\"error\":\"model 'm:1' not found\"}",
    )])
    .unwrap();
    let err = ask(&provider("ollama", &missing.url, |_| ()), "hello")
        .await
        .1
        .unwrap();
    assert_eq!(
        (err.kind, missing.requests().len()),
        (ProviderErrorKind::ModelNotFound, 1)
    );
    // An older or merely compatible server is used without its facts.
    let plain = Server::start(|_, request| match request.starts_with("POST /api/show ") {
        true => vec![whole(404, "", "404 page not found")],
        false => ndjson(),
    })
    .unwrap();
    assert_eq!(
        ask(&provider("ollama", &plain.url, |_| ()), "hello")
            .await
            .1,
        None
    );
    assert!(!plain.requests()[1].contains("num_ctx"));
    let gone = provider("ollama", "http://127.0.0.1:1", |_| ());
    assert_eq!(
        ask(&gone, "hello").await.1.unwrap().kind,
        ProviderErrorKind::Network {
            transient: true,
            sent: false
        }
    );
}

#[tokio::test]
async fn a_request_for_the_list_of_models_times_out() {
    let server = Server::saying(vec![Act::Hang]).unwrap();
    let provider = provider("ollama", &server.url, |_| ());
    tokio::time::pause();
    let err = provider.models().await.unwrap_err();
    assert!(
        err.message
            .contains("did not describe its models within 3 s"),
        "{err}"
    );
}

#[tokio::test]
async fn the_other_local_servers_report_their_window() {
    for (id, path, answer) in [
        (
            "llama.cpp",
            "/props",
            json!({ "default_generation_settings": { "n_ctx": 512 } }),
        ),
        (
            "lmstudio",
            "/api/v0/models",
            json!({ "data": [{ "id": "m:1", "loaded_context_length": 512 }] }),
        ),
        (
            "vllm",
            "/v1/models",
            json!({ "data": [{ "id": "m:1", "max_model_len": 512 }] }),
        ),
    ] {
        let server = Server::start(move |_, _| json_answer(&answer)).unwrap();
        let provider = provider(id, &format!("{}/v1", server.url), |_| ());
        assert_eq!(
            provider.probe("m:1").await.unwrap().context_window,
            Some(512),
            "{id}"
        );
        assert_eq!(paths(&server), [path], "{id}");
    }
    let loading = Server::saying(vec![whole(
        503,
        "",
        "{\"error\":{\"message\":\"Loading model\"}}",
    )])
    .unwrap();
    let err = provider("llama.cpp", &loading.url, |_| ())
        .probe("m:1")
        .await
        .unwrap_err();
    assert_eq!(
        err.kind,
        ProviderErrorKind::Unavailable { retry_after: None }
    );
}

#[tokio::test]
async fn servers_list_their_models() {
    for (id, base, path, answer, expect) in [
        (
            "ollama",
            "",
            "/api/tags",
            json!({ "models": [{ "name": "qwen3:4b" }] }),
            Some("qwen3:4b"),
        ),
        (
            "llama.cpp",
            "/v1",
            "/v1/models",
            json!({ "data": [{ "id": "smol" }] }),
            Some("smol"),
        ),
        (
            "anthropic",
            "",
            "/v1/models",
            json!({ "data": [{ "id": "claude" }] }),
            Some("claude"),
        ),
        (
            "openai-compatible",
            "/v1",
            "/v1/models",
            json!({ "error": "no" }),
            None,
        ),
    ] {
        let server = Server::start(move |_, _| json_answer(&answer)).unwrap();
        let key = |options: &mut ProviderOptions| options.key = Some("sk-1".to_owned().into());
        let models = provider(id, &format!("{}{base}", server.url), key)
            .models()
            .await;
        assert_eq!(
            models.ok(),
            expect.map(|name| vec![name.to_owned()]),
            "{id}"
        );
        assert_eq!(paths(&server), [path], "{id}");
    }
    let refused = Server::saying(vec![whole(
        401,
        "",
        "{\"error\":{\"message\":\"bad key sk-1\"}}",
    )])
    .unwrap();
    let key = |options: &mut ProviderOptions| options.key = Some("sk-1".to_owned().into());
    let err = provider("litellm", &refused.url, key)
        .models()
        .await
        .unwrap_err();
    assert_eq!(
        (err.kind, err.message.as_str()),
        (ProviderErrorKind::Authentication, "bad key ***")
    );
}

fn keys() -> AwsKeys {
    AwsKeys {
        access_key: "AKIDEXAMPLE".into(),
        secret_key: "very-secret".to_owned().into(),
        session_token: Some("token-1".to_owned().into()),
    }
}

#[tokio::test]
async fn bedrock_requests_are_signed_or_have_a_bearer_token() {
    let denied = || vec![whole(403, "", "{\"message\":\"no very-secret access\"}")];
    let server = Server::start(move |_, _| denied()).unwrap();
    let signed = provider("bedrock", &server.url, |options| {
        options.aws = Some(keys());
        options.settings.insert("region".into(), "eu-west-1".into());
        options.now = || SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160);
    });
    let err = ask(&signed, "hello").await.1.unwrap();
    assert_eq!(
        (err.kind, err.message.as_str()),
        (ProviderErrorKind::Authentication, "no *** access")
    );
    let request = &server.requests()[0];
    assert!(
        request.starts_with("POST /model/m%3A1/invoke-with-response-stream HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains("Credential=AKIDEXAMPLE/20150830/eu-west-1/bedrock/aws4_request, "),
        "{request}"
    );
    assert!(
        request.contains("SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, "),
        "{request}"
    );
    assert!(
        request.contains("x-amz-security-token: token-1") && !request.contains("very-secret"),
        "{request}"
    );
    assert!(
        request.contains("accept: application/vnd.amazon.eventstream"),
        "{request}"
    );

    let bearer = provider("bedrock-converse", &server.url, |options| {
        options.key = Some("b-1".to_owned().into());
        options.aws = Some(keys());
    });
    ask(&bearer, "hello").await;
    let request = &server.requests()[1];
    assert!(
        request.starts_with("POST /model/m%3A1/converse-stream ")
            && request.contains("authorization: Bearer b-1")
    );
}

#[test]
fn errors_name_the_missing_setting() {
    let refuse = |id: &str, change: &dyn Fn(&mut ProviderOptions)| {
        let mut options = ProviderOptions {
            base_url: None,
            ..options("")
        };
        change(&mut options);
        WireProvider::new(*vendor(id).unwrap(), options).err()
    };
    let key = |options: &mut ProviderOptions| options.key = Some("k".to_owned().into());
    assert_eq!(
        refuse("vertex", &key).unwrap().to_string(),
        "`vertex` needs a project: set GOOGLE_CLOUD_PROJECT"
    );
    assert_eq!(
        refuse("bedrock", &|_| ()),
        Some(SetupError::MissingKey {
            vendor: "bedrock",
            env: "AWS_BEARER_TOKEN_BEDROCK"
        })
    );
    assert_eq!(
        refuse("bedrock", &|options| options.aws = Some(keys())),
        None
    );
    assert_eq!(
        refuse("azure", &key),
        Some(SetupError::MissingUrl { vendor: "azure" })
    );
}

#[test]
fn azure_and_vertex_put_the_model_into_the_address() {
    let url = |id: &str, base: Option<&str>, values: &[(&str, &str)]| {
        let mut options = ProviderOptions {
            base_url: base.map(str::to_owned),
            ..options("")
        };
        options.key = Some("k".to_owned().into());
        options.settings = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        WireProvider::new(*vendor(id).unwrap(), options)
            .unwrap()
            .endpoint()
            .url("m-1")
            .to_string()
    };
    assert_eq!(
        url("azure", Some("https://me.openai.azure.com/"), &[]),
        "https://me.openai.azure.com/openai/deployments/m-1/chat/completions?api-version=2024-10-21"
    );
    assert_eq!(
        url("vertex", None, &[("project", "p")]),
        "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5/publishers/anthropic/models/m-1:streamRawPredict"
    );
    assert_eq!(
        url("bedrock", None, &[("region", "eu-west-1")]),
        "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m-1/invoke-with-response-stream"
    );
}
