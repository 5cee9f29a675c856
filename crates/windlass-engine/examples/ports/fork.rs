//! Fork: a new session that starts as a copy of another, up to any event. The other session does not change.
//! Both continue independently from there.
//! An event that does not exist is an error, and no session is created.

use windlass_core::message::Message;
use windlass_core::runtime::RunMode;
use windlass_engine::{EngineError, Request, RunOptions};
use windlass_testing::says;

use super::ExampleResult;
use super::fakes::Fakes;

pub(crate) async fn run_example() -> ExampleResult {
    let fakes = Fakes::new([says("tea"), says("then with milk"), says("then black")]);
    let engine = fakes.builder().build()?;
    let first = engine.execute(Request::new("tea or coffee?")).await?;
    let before = fakes.store.lines(&first.session);

    let fork = engine.fork(&first.session, None, RunMode::Full).await?;
    fork.run(Message::user("how?"), RunOptions::default())?
        .finish()
        .await;
    assert_ne!(*fork.id(), first.session);
    assert_eq!(
        fakes.store.lines(&first.session),
        before,
        "the other one is as it was"
    );
    let asked: Vec<String> = fakes.provider.asked()[1]
        .iter()
        .map(Message::text)
        .collect();
    assert_eq!(
        asked,
        ["tea or coffee?", "tea", "how?"],
        "it knows what was said before it began"
    );

    // Fork before the first prompt: the new session has no messages.
    let early = engine.fork(&first.session, Some(1), RunMode::Full).await?;
    early
        .run(Message::user("just water"), RunOptions::default())?
        .finish()
        .await;
    assert_eq!(fakes.provider.asked()[2].len(), 1);

    let none = engine
        .fork(&first.session, Some(10_000), RunMode::Full)
        .await
        .err();
    assert!(
        matches!(none, Some(EngineError::NoSuchEvent { .. })),
        "{none:?}"
    );
    Ok(())
}
