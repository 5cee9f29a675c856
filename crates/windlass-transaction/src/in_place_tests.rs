//! Tests of the in-place transaction: its terms, its changes and its jobs.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use windlass_core::CancellationToken;
use windlass_core::id::{RunId, SessionId};
use windlass_core::terms::Strategy;
use windlass_core::workspace::{Change, Command, FileErrorKind, ProcessEnd, Watch};

use super::*;

fn workspaces(dir: &Path) -> InPlace {
    let root = Arc::new(Root::open(&dir.join("ws")).unwrap());
    let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    InPlace::new(
        root,
        env,
        None,
        &dir.join("contents"),
        dir.join("journal"),
        1 << 20,
    )
    .unwrap()
}

async fn opened() -> (tempfile::TempDir, Box<dyn Transaction>) {
    let dir = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("a.txt", "1\n2\n3\n"),
        ("b.txt", "b\n"),
        (".gitignore", "out\n"),
        ("sub/c.txt", "c\n"),
    ] {
        let path = dir.path().join("ws").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let run = workspaces(dir.path())
        .open(Opening {
            session: &SessionId::fresh(windlass_core::clock::Timestamp::from_millis(0), 1),
            run: &RunId::nth(1),
            isolation: Isolation::InPlace,
            kept: None,
        })
        .await
        .unwrap();
    (dir, run)
}

async fn shell(run: &dyn Transaction, line: &str) {
    let command = Command {
        line: line.into(),
        workdir: String::new(),
        timeout: Duration::from_secs(10),
        keep: 1000,
        input: None,
        looks: false,
    };
    let watch = Watch {
        progress: &|_| {},
        cancel: CancellationToken::new(),
        artifacts: None,
    };
    let finished = run.processes().run(command, watch).await.unwrap();
    assert_eq!(
        finished.end,
        ProcessEnd::Exited { code: 0 },
        "{}",
        finished.output
    );
}

/// One line per change, for example `M a.txt +1 -1`.
async fn changes(run: &dyn Transaction) -> Vec<String> {
    let sign = |change: &Change| match change {
        Change::Created => 'C',
        Change::Modified => 'M',
        Change::Deleted => 'D',
        Change::MovedFrom(_) => 'R',
    };
    let all = run.changes().await.unwrap();
    all.files
        .iter()
        .map(|it| format!("{} {} {}", sign(&it.change), it.path, it.line_counts()))
        .collect()
}

#[tokio::test]
async fn an_isolated_run_is_refused_and_the_terms_say_in_place() {
    let (dir, run) = opened().await;
    assert_eq!(
        (run.terms().strategy, run.terms().isolation),
        (Strategy::InPlace, Isolation::InPlace)
    );
    let err = workspaces(dir.path())
        .open(Opening {
            session: &SessionId::fresh(windlass_core::clock::Timestamp::from_millis(0), 1),
            run: &RunId::nth(1),
            isolation: Isolation::Isolated,
            kept: None,
        })
        .await
        .err()
        .unwrap();
    assert!(
        err.kind == windlass_core::workspace::WorkspaceErrorKind::Isolation
            && err.message.contains("--in-place"),
        "{err}"
    );
}

#[tokio::test]
async fn changes_through_the_files_come_with_a_diff() {
    let (_dir, run) = opened().await;
    assert_eq!(changes(&*run).await, [] as [String; 0]);
    let files = run.files();
    files.write("a.txt", b"1\ntwo\n3\n").unwrap();
    files.write("sub/../new.txt", b"n\n").unwrap();
    files.write("b.txt", b"other\n").unwrap();
    files.write("b.txt", b"b\n").unwrap();
    files.write("gone.txt", b"x").unwrap();
    files.remove("gone.txt").unwrap();
    files.rename("sub/c.txt", "d.txt", false).unwrap();
    assert_eq!(
        changes(&*run).await,
        [
            "M a.txt +1 -1",
            "C d.txt +1 -0",
            "C new.txt +1 -0",
            "D sub/c.txt +0 -1"
        ]
    );
    let all = run.changes().await.unwrap();
    let diff = all.files[0].diff.as_deref().unwrap();
    assert_eq!(
        diff,
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n"
    );
    assert_eq!(
        run.land(&Landing::default()).await.unwrap().files,
        ["a.txt", "d.txt", "new.txt", "sub/c.txt"]
    );
}

#[tokio::test]
async fn a_link_that_is_moved_or_removed_is_listed_and_a_directory_is_not_moved() {
    let (dir, run) = opened().await;
    for link in ["link", "other"] {
        std::os::unix::fs::symlink("a.txt", dir.path().join("ws").join(link)).unwrap();
    }
    run.files().remove("link").unwrap();
    run.files().rename("other", "sub/other", false).unwrap();
    let err = run.files().rename("sub", "dir", false).unwrap_err();
    assert_eq!(err.kind, FileErrorKind::WrongKind, "{err}");
    assert_eq!(
        changes(&*run).await,
        ["D link ", "D other ", "C sub/other "]
    );
}

#[tokio::test]
async fn changes_by_commands_are_listed() {
    let (_dir, run) = opened().await;
    run.files().write("a.txt", b"1\n").unwrap();
    // Keep size and time on purpose. The ignored file is not in the source set.
    shell(&*run, "touch -r b.txt t; echo B > b.txt; touch -r t b.txt; rm t; rm sub/c.txt; echo n > n; echo o > out")
        .await;
    assert_eq!(
        changes(&*run).await,
        ["M a.txt +0 -2", "M b.txt ", "C n ", "D sub/c.txt "]
    );
    shell(&*run, "echo more >> a.txt").await;
    assert_eq!(changes(&*run).await[0], "M a.txt +1 -2");
}

#[tokio::test]
async fn freezing_ends_every_job() {
    let (_dir, run) = opened().await;
    let command = Command {
        line: "sleep 30".into(),
        workdir: String::new(),
        timeout: Duration::from_secs(60),
        keep: 10,
        input: None,
        looks: false,
    };
    let processes = run.processes();
    let job = processes.start(command).unwrap();
    run.freeze().await.unwrap();
    assert_eq!(
        processes.poll(&job, 0, 1).unwrap().end,
        Some(ProcessEnd::Cancelled)
    );
    assert_eq!(run.changes().await.unwrap().tree_hash, None);
    run.discard().await.unwrap();
}
