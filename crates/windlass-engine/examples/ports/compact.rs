//! Compact: summarises the messages of a session between two runs. The log keeps everything; the model gets the summary.
//! The messages of the user stay unchanged, and every call keeps its result.
//! The session pays for the summary, under a separate budget.

use serde_json::json;
use windlass_core::budget::Budget;
use windlass_core::context::CompactionMode;
use windlass_core::history::unpaired;
use windlass_core::message::Message;
use windlass_core::runtime::RunMode;
use windlass_core::tool::{Effect, ToolOutput};
use windlass_engine::{OpenSession, RunOptions};
use windlass_testing::{FnTool, call, says};

use super::ExampleResult;
use super::fakes::Fakes;

pub(crate) async fn run_example() -> ExampleResult {
    let look = FnTool::new("look", Effect::Read, |_, _| {
        Box::pin(async { Ok(ToolOutput::text("x".repeat(5_000))) })
    });
    let looks = (0..6).map(|n| {
        call(
            &n.to_string(),
            "look",
            &json!({ "path": format!("{n}.rs") }),
        )
    });
    let mut fakes = Fakes::new(looks.chain([says("I have seen it all"), says("on it")]));
    fakes.provider = fakes
        .provider
        .with_summary(says("## Goal\nto know the code\n## Next\nto change it"));
    let engine = fakes.builder().tools([look.boxed()]).build()?;
    let session = engine.open(OpenSession::New, RunMode::Full).await?;
    session
        .run(Message::user("read the code"), RunOptions::default())?
        .finish()
        .await;

    let before = session.with_history(|history| (history.held(), history.last_seq()));
    assert!(
        session
            .compact(CompactionMode::Last(1), Budget::default())
            .await?,
        "there was something to gain"
    );
    let after = session.with_history(|history| (history.held(), history.last_seq()));
    assert!(after.0 < before.0 / 2, "{before:?} {after:?}");
    assert_eq!(
        fakes.store.lines(session.id()).len() as u64,
        after.1,
        "the log only grew"
    );

    session
        .run(Message::user("now change it"), RunOptions::default())?
        .finish()
        .await;
    let asked = fakes.provider.asked().pop().ok_or("it was asked")?;
    let texts: Vec<String> = asked.iter().map(Message::text).collect();
    assert_eq!(
        texts[0], "read the code",
        "the first prompt stays as it was"
    );
    assert!(
        texts.iter().any(|text| text.contains("to know the code")),
        "{texts:?}"
    );
    assert_eq!(
        session.with_history(|history| unpaired(&history.entries())),
        None
    );
    Ok(())
}
