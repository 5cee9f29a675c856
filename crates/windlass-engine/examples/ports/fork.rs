//! Fork: a new session that begins as a copy of another, up to any event. The other stays as it is.
//! Both go on by themselves from there, with histories of their own.
//! An event that is not there is an error, and leaves nothing behind.

use windlass_core::message::Message;
use windlass_core::runtime::RunMode;
use windlass_engine::{EngineError, Request, RunOptions};
use windlass_testing::says;

use super::Shown;
use super::fakes::Fakes;

pub(crate) async fn show() -> Shown {
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

    // From before the first prompt: the same session, as if nothing had been asked.
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
