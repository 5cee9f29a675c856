//! A redactor: removes secrets from a text when it enters the history, so that no log, request or event has them.
//! This one knows one word. Real ones know given values and the formats of keys.
//! Streamed text is held back while it may be the start of a secret, so that no part of a secret is displayed.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::json;
use windlass_core::event::{DeltaOf, EventKind};
use windlass_core::provider::{Chunk, EndReason};
use windlass_core::tool::{Effect, ToolOutput};
use windlass_core::workspace::Redactor;
use windlass_engine::Request;
use windlass_testing::{FnTool, call};

use super::ExampleResult;
use super::fakes::Fakes;

const SECRET: &str = "swordfish";

struct OneWord;

impl Redactor for OneWord {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if text.contains(SECRET) {
            text.replace(SECRET, "[hidden]").into()
        } else {
            text.into()
        }
    }

    fn settled(&self, text: &str) -> usize {
        // Hold back the longest suffix of the text that is a prefix of the secret.
        let ends = (1..SECRET.len())
            .rev()
            .filter(|len| text.ends_with(&SECRET[..*len]));
        text.len() - ends.max().unwrap_or(0)
    }
}

pub(crate) async fn run_example() -> ExampleResult {
    let answer = vec![
        Ok(Chunk::Text("it is sword".into())),
        Ok(Chunk::Text("fish, I think".into())),
        Ok(Chunk::End(EndReason::Done)),
    ];
    let peek = FnTool::new("peek", Effect::Read, |_, _| {
        Box::pin(async { Ok(ToolOutput::text(format!("word = {SECRET}"))) })
    });
    let fakes = Fakes::new([call("1", "peek", &json!({})), answer]);
    let engine = fakes
        .builder()
        .redactor(Arc::new(OneWord))
        .tools([peek.boxed()])
        .build()?;
    let mut run = engine
        .stream(Request::new(format!("is it {SECRET}?")))
        .await?;
    let (mut shown, mut session) = (String::new(), None);
    while let Some(event) = run.next().await {
        if let EventKind::Delta {
            of: DeltaOf::Text,
            text,
        } = &event.kind
        {
            shown.push_str(text);
        }
        assert!(
            !serde_json::to_string(&event)?.contains("sword"),
            "{event:?}"
        );
        session = Some(event.session);
    }
    assert_eq!(shown, "it is [hidden], I think");
    let log = fakes
        .store
        .lines(&session.ok_or("a run has events")?)
        .join("\n");
    let sent = format!("{:?}", fakes.provider.requests());
    assert!(!log.contains(SECRET) && !sent.contains(SECRET));
    assert!(sent.contains("word = [hidden]"), "{sent}");
    Ok(())
}
