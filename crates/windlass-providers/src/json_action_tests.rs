//! Tests of JSON actions: texts of models, split in different ways, and the replies that they become.
#![allow(clippy::unwrap_used)]

use futures_util::StreamExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Message, Part, Role, ToolCall, ToolResult};
use windlass_core::provider::{EndReason, Sampling, ToolChoice};
use windlass_core::reply::{Reply, ReplyFold};
use windlass_core::tool::{Effect, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch};

use super::*;
use crate::scripted::{ScriptFormat, ScriptedModelProvider};

fn read_pieces<'a>(pieces: impl IntoIterator<Item = &'a str>, end: EndReason) -> Reply {
    let (mut reader, mut batch) = (
        ActionReader::new(vec!["read_file".into()]),
        Batch::default(),
    );
    for piece in pieces {
        reader.push(piece, &mut batch).unwrap();
    }
    reader.finish(end, &mut batch);
    let mut fold = ReplyFold::default();
    while let Some(chunk) = batch.pop() {
        fold.push(chunk);
    }
    fold.finish(|| CallId("fresh".into()))
}

/// Checks the reply for one answer, written as `text | name args | end`, in one piece and character by character.
#[track_caller]
fn check(answer: &str, end: EndReason, expect: &str) {
    let whole = read_pieces([answer], end.clone());
    let chars: Vec<String> = answer.chars().map(String::from).collect();
    assert_eq!(
        read_pieces(chars.iter().map(String::as_str), end.clone()),
        whole,
        "one by one: {answer}"
    );
    let call = whole
        .message
        .calls()
        .next()
        .map(|call| match &call.malformed {
            Some(_) => format!("{} malformed", call.name),
            None => format!("{} {}", call.name, call.args),
        });
    let cut = if whole.truncated { " cut" } else { "" };
    let summary = format!(
        "{} | {} | {:?}{cut}",
        whole.message.text(),
        call.unwrap_or_default(),
        whole.end
    );
    assert_eq!(summary, expect, "{answer}");
}

const DONE: EndReason = EndReason::Done;

#[test]
fn an_action_is_a_call_and_an_answer_is_text() {
    check(
        r#"{"action": "read_file", "arguments": {"path": "a"}}"#,
        DONE,
        r#" | read_file {"path":"a"} | ToolCalls"#,
    );
    check(
        r#"{"answer": "two\nlines \u00fc \ud83d\ude00 \"q\""}"#,
        DONE,
        "two\nlines ü 😀 \"q\" |  | Done",
    );
    check(r#"{"action": "list"}"#, DONE, " | list {} | ToolCalls");
    check(r#"{"answer": {"n": 1}}"#, DONE, r#"{"n":1} |  | Done"#);
}

#[test]
fn prose_and_code_fences_around_the_object_are_accepted() {
    let action = r#"{"action": "read_file", "arguments": {"path": "a"}}"#;
    let called = r#"read_file {"path":"a"} | ToolCalls"#;
    check(
        &format!("```json\n{action}\n```"),
        DONE,
        &format!(" | {called}"),
    );
    check(
        &format!("I look first.\n\n```json\n{action}\n```\nDone."),
        DONE,
        &format!("I look first. | {called}"),
    );
    check(
        &format!("So: {action} and then?"),
        DONE,
        &format!("So: | {called}"),
    );
    check(
        "Well:\n```\n{\"answer\": \"yes\"}\n```",
        DONE,
        "Well:\nyes |  | Done",
    );
}

#[test]
fn the_first_complete_object_is_used() {
    let two = r#"{"action":"read_file","arguments":{"path":"a"}}{"action":"rm","arguments":{}} {"answer":"all done"}"#;
    check(two, DONE, r#" | read_file {"path":"a"} | ToolCalls"#);
    check(r#"{"answer":"a"}{"answer":"b"}"#, DONE, "a |  | Done");
    // The stream broke off after the complete action.
    check(
        &two[..60],
        EndReason::Length,
        r#" | read_file {"path":"a"} | ToolCalls"#,
    );
}

#[test]
fn a_partial_action_is_neither_executed_nor_displayed() {
    for end in [DONE, EndReason::Length] {
        check(
            r#"{"action": "read_file", "arguments": {"path": "a"}"#,
            end.clone(),
            " |  | Length cut",
        );
        check(
            r#"Now: {"action": "bash", "arguments": {"x": {"action": "y"}"#,
            end,
            "Now:  |  | Length cut",
        );
    }
    check(
        r#"{"answer": "half of"#,
        EndReason::Length,
        "half of |  | Length cut",
    );
    check(r#"{"answer": "no end"#, DONE, "no end |  | Done");
}

#[test]
fn invalid_json_is_a_malformed_call() {
    check(
        r#"{'action': 'read_file', 'arguments': {}}"#,
        DONE,
        " | read_file malformed | ToolCalls",
    );
    check(
        r#"{"action": "read_file", "arguments": {path: 1}}"#,
        DONE,
        " | read_file malformed | ToolCalls",
    );
    check(
        r#"{action: read_file}"#,
        DONE,
        " | action malformed | ToolCalls",
    );
    check(
        r#"{"action": "read_file", "arguments": "{broken"}"#,
        DONE,
        " | read_file malformed | ToolCalls",
    );
    check(
        "{\"action\": \"w\", \"arguments\": {\"t\": \"a\nb\"}}",
        DONE,
        r#" | w {"t":"a\nb"} | ToolCalls"#,
    );
}

#[test]
fn prose_is_an_answer_even_with_code_in_it() {
    check("Just words.", DONE, "Just words. |  | Done");
    let code = "Use this:\n```rust\nfn main() { run(\"{\"); }\n```\nand {\"a\": 1}.\n";
    check(code, DONE, &format!("{code} |  | Done"));
    check("an open { brace", DONE, "an open { brace |  | Done");
    check(
        r#"an open { brace, then {"action": "read_file", "arguments": {}}"#,
        DONE,
        "an open { brace, then | read_file {} | ToolCalls",
    );
    check(
        "I cannot help.",
        EndReason::Refused,
        "I cannot help. |  | Refused",
    );
}

#[test]
fn other_field_names_are_accepted() {
    let called = r#" | read_file {"path":"a"} | ToolCalls"#;
    check(
        r#"{"name": "read_file", "arguments": {"path": "a"}}"#,
        DONE,
        called,
    );
    check(
        r#"{"thought": "hm", "action": "read_file", "action_input": {"path": "a"}}"#,
        DONE,
        called,
    );
    check(
        r#"{"tool": "read_file", "args": "{\"path\":\"a\"}"}"#,
        DONE,
        called,
    );
    check(
        r#"{"action": {"name": "read_file", "arguments": {"path": "a"}}}"#,
        DONE,
        called,
    );
    check(
        r#"{"action": "final_answer", "arguments": {"text": "bye"}}"#,
        DONE,
        "bye |  | Done",
    );
    check(
        r#"{"name": "a person"}"#,
        DONE,
        "{\"name\": \"a person\"} |  | Done",
    );
}

#[test]
fn an_object_over_the_limit_is_an_error() {
    let mut reader = ActionReader::new(Vec::new());
    let mut batch = Batch::default();
    reader.push("{\"action\": \"", &mut batch).unwrap();
    let piece = "x".repeat(1 << 20);
    assert!((0..16).any(|_| reader.push(&piece, &mut batch).is_err()));
    assert!(batch.is_empty());
}

proptest! {
    #[test]
    fn every_answer_is_decoded_exactly(text in "[\\PC\"\\\\\n\t{}]{0,40}", sizes in prop::collection::vec(1_usize..7, 1..9)) {
        let written = json!({ "answer": text }).to_string();
        let pieces = cut(&written, &sizes);
        let reply = read_pieces(pieces.iter().map(String::as_str), DONE);
        prop_assert_eq!(reply.message.text(), text);
    }

    #[test]
    fn the_result_does_not_depend_on_the_pieces(
        text in "([{}\"':,\\\\`\n a-c]|action|answer|\"action\": \"|\"answer\": \"|\\\\ud83d|```json\n){0,24}",
        sizes in prop::collection::vec(1_usize..9, 1..9),
    ) {
        let whole = read_pieces([text.as_str()], DONE);
        let pieces = cut(&text, &sizes);
        prop_assert_eq!(read_pieces(pieces.iter().map(String::as_str), DONE), whole);
    }
}

fn cut(text: &str, sizes: &[usize]) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let (mut pieces, mut at) = (Vec::new(), 0);
    for size in sizes.iter().cycle() {
        if at >= chars.len() {
            break;
        }
        let end = (at + size).min(chars.len());
        pieces.push(chars[at..end].iter().collect());
        at = end;
    }
    pieces
}

struct FakeTool(ToolSpec);

impl Tool for FakeTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }
    fn touches(&self, _: &Value, _: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(Vec::new())
    }
    fn run<'a>(
        &'a self,
        _: Value,
        _: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        unreachable!("a provider executes no tool")
    }
}

fn tools() -> ToolSet {
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let tool = |name: &str| {
        Arc::new(FakeTool(ToolSpec::new(
            name,
            "Does it.",
            schema.clone(),
            Effect::Read,
        )))
    };
    ToolSet::new(vec![tool("read_file"), tool("grep")])
}

/// A model without native tool calls that records its requests.
struct ModelWithoutTools {
    script: ScriptedModelProvider,
    requests: Mutex<Vec<(String, Vec<Entry>, Sampling)>>,
}

impl Provider for ModelWithoutTools {
    fn name(&self) -> &str {
        "plain"
    }
    fn facts(&self, model: &str) -> ModelFacts {
        ModelFacts {
            tools: false,
            ..self.script.facts(model)
        }
    }
    fn stream<'a>(&'a self, request: Request<'a>) -> BoxStream<'a, Result<Chunk, ProviderError>> {
        assert!(request.tools.is_empty());
        let sent = (
            request.system.to_owned(),
            request.history.to_vec(),
            request.options.clone(),
        );
        self.requests.lock().push(sent);
        self.script.stream(request)
    }
}

fn model_without_tools(script: &str) -> Arc<ModelWithoutTools> {
    let script = ScriptedModelProvider::parse("test", script, ScriptFormat::Toml).unwrap();
    Arc::new(ModelWithoutTools {
        script,
        requests: Mutex::default(),
    })
}

async fn ask(
    provider: &dyn Provider,
    history: &[Entry],
    options: &Sampling,
) -> Vec<Result<Chunk, ProviderError>> {
    let tools = tools();
    let request = Request {
        model: "m",
        system: "Be good.",
        history,
        tools: &tools,
        max_output: 100,
        options,
    };
    provider.stream(request).collect().await
}

fn call(malformed: Option<&str>) -> Part {
    let malformed = malformed.map(str::to_owned);
    Part::Call(ToolCall {
        id: CallId("c".into()),
        name: "read_file".into(),
        args: json!({ "path": "a" }),
        malformed,
    })
}

#[tokio::test]
async fn a_task_works_without_native_calls_and_messages_are_translated_once() {
    let inner = model_without_tools(
        "[[step]]\ntext = '{\"action\": \"read_file\", \"arguments\": {\"path\": \"a\"}}'\n\
         usage = { input = 5, output = 2 }\n[[step]]\ntext = '{\"answer\": \"it says hi\"}'",
    );
    let provider = with_tools(inner.clone(), "m");
    assert!(provider.facts("m").tools);
    let mut history = vec![Entry::new(Message::user("read a"))];
    let chunks = ask(provider.as_ref(), &history, &Sampling::default()).await;
    assert!(chunks.contains(&Ok(Chunk::CallStart {
        index: 0,
        id: String::new(),
        name: "read_file".into()
    })));
    assert!(
        chunks
            .iter()
            .any(|chunk| matches!(chunk, Ok(Chunk::Usage(usage)) if usage.output == 2))
    );
    assert_eq!(chunks.last(), Some(&Ok(Chunk::End(EndReason::ToolCalls))));
    let reply = Message {
        role: Role::Assistant,
        parts: vec![call(None)],
        ..Message::assistant("")
    };
    history.push(Entry::new(reply));
    let Part::Call(made) = call(None) else {
        unreachable!()
    };
    let text = "hi".to_owned();
    let result = ToolResult {
        id: made.id.clone(),
        name: made.name.clone(),
        text,
        error: None,
        artifact: None,
    };
    history.push(Entry::new(Message::results(vec![result])));
    history.push(Entry::new(Message::internal("Go on.")));
    let chunks = ask(provider.as_ref(), &history, &Sampling::default()).await;
    let texts = chunks
        .iter()
        .filter(|chunk| matches!(chunk, Ok(Chunk::Text(_))))
        .count();
    assert!(texts > 0 && chunks.last() == Some(&Ok(Chunk::End(EndReason::Done))));
    ask(provider.as_ref(), &history, &Sampling::default()).await;

    let requests = inner.requests.lock();
    let texts: Vec<_> = requests[1]
        .1
        .iter()
        .map(|entry| (entry.role, entry.text()))
        .collect();
    assert_eq!(
        texts,
        [
            (Role::User, "read a".to_owned()),
            (
                Role::Assistant,
                r#"{"action":"read_file","arguments":{"path":"a"}}"#.to_owned()
            ),
            (Role::User, "Result of read_file:\nhi\n\nGo on.".to_owned()),
        ]
    );
    assert_eq!(requests[0].0, requests[1].0, "the prefix is stable");
    assert!(
        requests[0].0.starts_with("Be good.")
            && requests[0]
                .0
                .contains("- grep: Does it.\n  arguments: {\"type\"")
    );
    for (before, after) in requests[1].1.iter().zip(&requests[2].1) {
        assert!(std::ptr::eq::<Message>(&**before, &**after));
    }
    assert!(
        std::ptr::eq::<Message>(&*requests[0].1[0], &*history[0]),
        "a message that needs no translation is used unchanged"
    );
}

#[tokio::test]
async fn a_malformed_action_is_answered_with_a_reminder() {
    let inner =
        model_without_tools("[[step]]\ntext = \"{'action': 'read_file'}\"\n[[step]]\ntext = 'ok'");
    let provider = JsonActions::new(inner.clone());
    let chunks = ask(
        &provider,
        &[Entry::new(Message::user("x"))],
        &Sampling::default(),
    )
    .await;
    assert_eq!(chunks.last(), Some(&Ok(Chunk::End(EndReason::ToolCalls))));
    let Part::Call(made) = call(Some("{'action': 'read_file'}")) else {
        unreachable!()
    };
    let failed = ToolResult::failed(&made, ErrorCategory::InvalidArguments, "not JSON");
    let reply = Message {
        parts: vec![Part::Call(made)],
        ..Message::assistant("")
    };
    let history = [Message::user("x"), reply, Message::results(vec![failed])].map(Entry::new);
    ask(&provider, &history, &Sampling::default()).await;
    let requests = inner.requests.lock();
    assert_eq!(requests[1].1[1].text(), "{'action': 'read_file'}");
    assert!(
        requests[1].1[2]
            .text()
            .contains("Error [invalid_arguments]: not JSON\n(Answer with one valid JSON object")
    );
}

#[tokio::test]
async fn a_cut_stream_is_an_error_after_the_received_text() {
    let inner = model_without_tools(
        "[[step]]\ntext = '{\"answer\": \"some words and more of them\"}'\nerror = { kind = \"network\", after = 2 }",
    );
    let chunks = ask(&JsonActions::new(inner), &[], &Sampling::default()).await;
    assert!(matches!(chunks.first(), Some(Ok(Chunk::Text(_)))));
    assert!(
        matches!(chunks.last(), Some(Err(err)) if err.kind == ProviderErrorKind::Network { transient: true, sent: false })
    );
}

#[tokio::test]
async fn a_model_with_native_calls_gets_the_request_unchanged() {
    let script = "[[step]]\ntext = '{\"answer\": \"as it is\"}'\npieces = 1";
    let native = JsonActions::new(Arc::new(
        ScriptedModelProvider::parse("test", script, ScriptFormat::Toml).unwrap(),
    ));
    let chunks = ask(&native, &[], &Sampling::default()).await;
    assert_eq!(
        chunks[0],
        Ok(Chunk::Text("{\"answer\": \"as it is\"}".into()))
    );
}

#[track_caller]
fn check_schema(choice: Option<ToolChoice>, fits: &str) {
    let (tools, options) = (
        tools(),
        Sampling {
            tool_choice: choice,
            ..Sampling::default()
        },
    );
    let request = Request {
        model: "m",
        system: "",
        history: &[],
        tools: &tools,
        max_output: 1,
        options: &options,
    };
    let schema = prompt::schema(&request);
    let forms = schema["anyOf"]
        .as_array()
        .cloned()
        .unwrap_or_else(|| vec![schema.clone()]);
    let names: Vec<_> = forms
        .iter()
        .map(|form| {
            form["properties"]["action"]["const"]
                .as_str()
                .unwrap_or("answer")
                .to_owned()
        })
        .collect();
    assert_eq!(names.join(" "), fits);
}

#[test]
fn the_schema_follows_the_choice_of_tools() {
    check_schema(None, "read_file grep answer");
    check_schema(Some(ToolChoice::Required), "read_file grep");
    check_schema(Some(ToolChoice::Named("grep".into())), "grep");
    check_schema(Some(ToolChoice::None), "answer");
}

#[tokio::test]
async fn an_output_schema_becomes_the_schema_of_the_answer() {
    let inner = model_without_tools("[[step]]\ntext = '{\"answer\": {\"n\": 1}}'");
    let options = Sampling {
        output_schema: Some(json!({ "type": "object" })),
        ..Sampling::default()
    };
    let chunks = ask(&JsonActions::new(inner.clone()), &[], &options).await;
    assert_eq!(chunks[0], Ok(Chunk::Text("{\"n\":1}".into())));
    let requests = inner.requests.lock();
    let schema = requests[0].2.output_schema.clone().unwrap();
    assert_eq!(
        schema["anyOf"][2]["properties"]["answer"],
        json!({ "type": "object" })
    );
}
