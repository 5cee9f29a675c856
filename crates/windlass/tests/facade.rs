//! Tests of sessions, answers, forks, undo and kept runs through `Windlass`, with real copies, checks and logs and a
//! scripted model. The tests compare the files on disk. The test program itself is the sandbox helper.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::sync::Arc;

use serde_json::json;
use windlass::core::ask::Answer;
use windlass::core::gate::Mode;
use windlass::core::outcome::{FailReason, Outcome};
use windlass::core::provider::{Chunk, ProviderError};
use windlass::undo::UndoTarget;
use windlass::{ErrorKind, Windlass};
use windlass_testing::{ScriptedProvider, call, says};

type ScriptedAnswer = Vec<Result<Chunk, ProviderError>>;

/// A workspace with one file, and a check that the file contains `good`.
struct FacadeFixture {
    dir: tempfile::TempDir,
}

impl FacadeFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let fixture = Self { dir };
        fixture.write("bad\n");
        fixture
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("work/a.txt")
    }

    fn write(&self, text: &str) {
        std::fs::write(self.file(), text).unwrap();
    }

    fn read(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }

    fn windlass(&self, turns: impl IntoIterator<Item = ScriptedAnswer>) -> Windlass {
        let (work, data) = (self.dir.path().join("work"), self.dir.path().join("data"));
        Windlass::without_settings(work, data)
            .unwrap()
            .provider(Arc::new(ScriptedProvider::new(turns)), "scripted")
            .validate("grep -q good a.txt")
    }
}

fn writes(text: &str) -> ScriptedAnswer {
    call(
        "1",
        "write_file",
        &json!({ "path": "a.txt", "content": text }),
    )
}

#[tokio::test]
async fn a_run_lands_and_is_undone_and_redone() {
    let fixture = FacadeFixture::new();
    let windlass = fixture.windlass([writes("good\n"), says("It is good now.")]);
    let result = windlass.run("make it good").await.unwrap();
    assert_eq!(result.outcome(), Some(&Outcome::Completed));
    assert_eq!(
        (fixture.read().as_str(), result.text.as_str()),
        ("good\n", "It is good now.")
    );
    let undone = windlass.undo(UndoTarget::LastRun).await.unwrap();
    assert_eq!((undone.len(), fixture.read().as_str()), (1, "bad\n"));
    windlass.redo().await.unwrap();
    assert_eq!(fixture.read(), "good\n");
    let error = windlass.redo().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
}

#[tokio::test]
async fn a_run_that_fails_its_check_is_kept_and_can_be_landed_or_discarded() {
    let fixture = FacadeFixture::new();
    let turns = || [writes("better\n"), says("It is better.")];
    let windlass = fixture.windlass(turns()).max_iterations(1);
    let result = windlass.run("make it good").await.unwrap();
    let Some(Outcome::Failed { reason, .. }) = result.outcome() else {
        panic!("{:?}", result.outcome());
    };
    assert_eq!(
        (*reason, fixture.read().as_str()),
        (FailReason::Validation, "bad\n")
    );
    let kept = windlass.kept_runs();
    let [name] = kept.as_slice() else {
        panic!("{kept:?}");
    };
    assert_eq!(windlass.kept_changes(name).await.unwrap().files.len(), 1);
    // Under another check it lands.
    let landed = fixture.windlass([]).validate("grep -q better a.txt");
    let mut flags = windlass::flags::RunFlags::default();
    flags.contract.validate = vec!["grep -q better a.txt".to_owned()];
    let result = landed.flags(flags).land(name).await.unwrap();
    assert_eq!(result.outcome(), Some(&Outcome::Completed));
    assert_eq!(
        (fixture.read().as_str(), windlass.kept_runs().len()),
        ("better\n", 0)
    );
    // Another kept run is discarded.
    fixture.write("bad\n");
    let windlass = fixture.windlass(turns()).max_iterations(1);
    windlass.run("make it good").await.unwrap();
    let name = windlass.kept_runs().remove(0);
    windlass.discard(&name).await.unwrap();
    assert_eq!(
        (fixture.read().as_str(), windlass.kept_runs().len()),
        ("bad\n", 0)
    );
    assert!(windlass.discard(&name).await.is_err());
}

#[tokio::test]
async fn a_run_without_a_callback_pauses_at_an_ask_and_is_answered_later() {
    let fixture = FacadeFixture::new();
    let turns = [writes("good\n"), says("It is good now.")];
    let windlass = fixture.windlass(turns).in_place().approval(Mode::Ask);
    let paused = windlass.run("make it good").await.unwrap();
    let [ask] = paused.asks.as_slice() else {
        panic!("{paused:?}");
    };
    assert_eq!((paused.outcome(), fixture.read().as_str()), (None, "bad\n"));
    let result = windlass
        .answer(&paused.session, &ask.id, Answer::Once)
        .await
        .unwrap();
    assert_eq!(
        (result.outcome(), &result.run),
        (Some(&Outcome::Completed), &paused.run)
    );
    assert_eq!(fixture.read(), "good\n");
}

#[tokio::test]
async fn a_session_has_many_prompts_and_can_be_resumed_and_forked() {
    let fixture = FacadeFixture::new();
    let provider = Arc::new(ScriptedProvider::new([
        says("My name is Ada."),
        says("You asked for my name."),
        says("You asked twice."),
    ]));
    let windlass = fixture
        .windlass([])
        .provider(provider.clone(), "scripted")
        .validate("none")
        .flags({
            let mut flags = windlass::flags::RunFlags::default();
            flags.contract.validate = vec!["none".to_owned()];
            flags
        });
    let session = windlass.session().await.unwrap();
    session.run("what is your name?").await.unwrap();
    let id = session.id().clone();
    drop(session);
    let again = windlass.resume(&id).await.unwrap();
    let result = again.run("what did I ask?").await.unwrap();
    assert_eq!(result.text, "You asked for my name.");
    drop(again);
    let fork = windlass.fork(&id, None).await.unwrap();
    assert_ne!(fork, id);
    let forked = windlass.resume(&fork).await.unwrap();
    forked.run("and now?").await.unwrap();
    let last = provider.asked().pop().unwrap();
    let words: Vec<String> = last
        .iter()
        .map(windlass::core::message::Message::text)
        .collect();
    assert!(
        words.iter().any(|text| text.contains("what is your name?")),
        "{words:?}"
    );
    assert!(
        words
            .iter()
            .any(|text| text.contains("You asked for my name.")),
        "{words:?}"
    );
}

#[tokio::test]
async fn a_run_can_be_cancelled_and_wrong_values_are_errors() {
    let fixture = FacadeFixture::new();
    let error = fixture
        .windlass([])
        .runtime("no-such-agent")
        .run("x")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.advice().is_some(), "{error}");
    let error = Windlass::without_settings("/no/such/folder", fixture.dir.path())
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Usage);
    let windlass = fixture.windlass([writes("good\n"), says("done")]);
    let mut run = windlass.stream("make it good").await.unwrap();
    run.next().await.unwrap();
    run.cancel();
    let result = run.result().await.unwrap();
    assert_eq!(
        (result.outcome(), fixture.read().as_str()),
        (Some(&Outcome::Cancelled), "bad\n")
    );
}
