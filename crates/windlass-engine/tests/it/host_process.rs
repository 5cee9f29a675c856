//! The engine does not change the process that embeds it: two engines in one process share nothing, and signal handlers,
//! panic hook, current directory and environment stay unchanged.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use windlass_core::clock::Clock;
use windlass_core::event::Event;
use windlass_core::message::Message;
use windlass_core::outcome::Outcome;
use windlass_core::runtime::RunMode;
use windlass_core::store::SessionStore;
use windlass_core::terms::{Strategy, Terms};
use windlass_core::tool::{Effect, ToolOutput};
use windlass_engine::{Delivery, Engine, OpenSession, Request};
use windlass_testing::{FnTool, call, says};

use crate::fixture::EngineFixture;

/// Number of runs of each engine.
const RUNS: usize = 40;

/// A separate engine whose messages contain a word that must not appear in the other engine.
fn separate_engine(word: &'static str) -> (EngineFixture, Engine) {
    let answers =
        (0..RUNS).flat_map(|_| [call("1", "leave", &json!({ "path": word })), says(word)]);
    let mut fixture = EngineFixture::new(answers.collect());
    fixture.workspaces.terms = Terms::unconfined(Strategy::Copy);
    let tree = fixture.workspaces.clone();
    let leave = FnTool::new("leave", Effect::Write, move |args, ctx| {
        let tree = tree.clone();
        Box::pin(async move {
            // Let the other engine run meanwhile.
            tokio::task::yield_now().await;
            let path = args["path"].as_str().unwrap_or_default().to_owned();
            tree.tree().change(&path);
            ctx.call_output.set_notes(path).await?;
            Ok(ToolOutput::text("left"))
        })
    });
    fixture.tools = vec![leave.boxed()];
    let engine = fixture.engine();
    (fixture, engine)
}

async fn work(fixture: &EngineFixture, engine: &Engine, word: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for _ in 0..RUNS {
        let mut request = Request::new(word);
        request.options = fixture.options.clone();
        let result = engine.execute(request).await.unwrap();
        assert_eq!(
            (result.outcome(), result.text.as_str()),
            (Some(&Outcome::Completed), word)
        );
        ids.insert(result.session.to_string());
    }
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_engines_in_one_process_share_nothing() {
    // Both begin with the same time and randomness and therefore the same ids: their sessions would collide if anything
    // were shared.
    let (one, first) = separate_engine("alpha");
    let (two, second) = separate_engine("omega");
    let (ours, theirs) = tokio::join!(
        async {
            tokio::spawn(async move { (work(&one, &first, "alpha").await, one, first) })
                .await
                .unwrap()
        },
        async {
            tokio::spawn(async move { (work(&two, &second, "omega").await, two, second) })
                .await
                .unwrap()
        },
    );
    for ((ids, fixture, engine), own, other) in
        [(&ours, "alpha", "omega"), (&theirs, "omega", "alpha")]
    {
        assert_eq!(ids.len(), RUNS);
        let now = fixture.clock.now();
        assert_eq!(fixture.store.list().count().await, RUNS);
        for id in ids {
            let id = id.parse().unwrap();
            let lines = fixture.store.lines(&id);
            assert!(
                lines.iter().any(|line| line.contains(own))
                    && !lines.iter().any(|line| line.contains(other))
            );
            let at = |line: &String| serde_json::from_str::<Event>(line).unwrap().at;
            assert!(lines.iter().all(|line| at(line) == now), "{now}");
            let session = engine
                .open(OpenSession::Resume(id), RunMode::Full)
                .await
                .unwrap();
            assert_eq!(
                session.with_history(|history| history.notes().to_owned()),
                own
            );
            session
                .queue(Message::user("later"), Delivery::FollowUp)
                .await
                .unwrap();
        }
        let paths: Vec<String> = fixture
            .workspaces
            .tree()
            .changes
            .iter()
            .map(|change| change.path.clone())
            .collect();
        assert_eq!(paths, [own]);
    }
    assert_eq!(ours.0, theirs.0, "the same ids");
    ours.1.clock.advance(Duration::from_millis(500));
    assert_ne!(ours.1.clock.now(), theirs.1.clock.now(), "and other clocks");
}

/// The state of the process that a library could change: signals, current directory, environment.
fn process() -> (
    Vec<String>,
    std::path::PathBuf,
    Vec<(std::ffi::OsString, std::ffi::OsString)>,
) {
    // Read the state of this thread: a thread that is just spawning another one blocks all signals for a moment.
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let signals = status.lines().filter(|line| {
        ["SigCgt", "SigIgn", "SigBlk"]
            .iter()
            .any(|name| line.starts_with(name))
    });
    (
        signals.map(str::to_owned).collect(),
        std::env::current_dir().unwrap(),
        std::env::vars_os().collect(),
    )
}

#[tokio::test]
async fn a_run_does_not_change_the_process() {
    const WORDS: &str = "a tool of a guest fell over";
    static HEARD: AtomicU32 = AtomicU32::new(0);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|info| {
        let ours = info.payload_as_str() == Some(WORDS);
        HEARD.fetch_add(u32::from(ours), Ordering::SeqCst);
    }));
    let before = process();
    assert!(
        before.0.len() == 3 || !cfg!(target_os = "linux"),
        "the kernel says which signals are caught: {before:?}"
    );
    let mut fixture = EngineFixture::new(vec![
        call("1", "boom", &json!({})),
        says("ok"),
        call("2", "boom", &json!({})),
        says("ok"),
    ]);
    fixture.tools = vec![
        FnTool::new("boom", Effect::Read, |_, _| {
            Box::pin(async { panic!("{}", WORDS) })
        })
        .boxed(),
    ];
    let engine = Arc::new(fixture.engine());
    for heard in [1, 2] {
        let result = engine.execute(Request::new("go")).await.unwrap();
        assert_eq!(result.outcome(), Some(&Outcome::Completed));
        assert_eq!(
            HEARD.load(Ordering::SeqCst),
            heard,
            "the host's panic hook is still there"
        );
    }
    let after = process();
    std::panic::set_hook(usual);
    assert_eq!(after, before);
}

/// Searches the sources for static state. `clippy.toml` bans calls that change the process, but it cannot ban a static.
#[test]
fn core_and_engine_have_no_state_outside_of_values() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap();
    let mut looked = 0;
    for name in ["windlass-core", "windlass-engine"] {
        let manifest = std::fs::read_to_string(crates.join(name).join("Cargo.toml")).unwrap();
        for word in [
            // The engine logs for developers with `tracing`; the host sets the subscriber.
            "tracing-",
            "log.",
            "log =",
            "env_logger",
            "ctrlc",
            "signal-hook",
        ] {
            assert!(
                !manifest.lines().any(|line| line.starts_with(word)),
                "{name} depends on {word}"
            );
        }
        let mut folders = vec![crates.join(name).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                looked += 1;
                for line in std::fs::read_to_string(&path).unwrap().lines() {
                    let word = line
                        .trim_start()
                        .trim_start_matches("pub(crate) ")
                        .trim_start_matches("pub ");
                    let state = word.starts_with("static ") || word.starts_with("thread_local!");
                    assert!(!state, "{}: {line}", path.display());
                }
            }
        }
    }
    assert!(looked > 50, "{looked}");
}
