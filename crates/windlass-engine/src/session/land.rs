//! The landing of an isolated run. Only a copy that has landed or has no changes is removed.

use std::collections::HashSet;

use windlass_core::ask::{About, LandingAsk};
use windlass_core::event::EventKind;
use windlass_core::gate::{Bar, bar_at_landing};
use windlass_core::outcome::{FailReason, Outcome};
use windlass_core::run::Judged;
use windlass_core::runtime::EventSink;
use windlass_core::workspace::{Change, Changes, LandTo, Landed, Landing, Transaction};

use super::driver::{RunParts, StepError};
use crate::run::HaltReason;

/// Minimum number of removed files for a question, if they are more than half of the tree.
const MANY_REMOVED: usize = 5;

/// The question to a person before these changes land. The reasons are files that other programs or agents act on, unless
/// the prompt named them, the removal of most of the tree, and checks that also failed before the run.
pub(super) fn question(
    run: &RunParts,
    changes: &Changes,
    failing: Vec<String>,
) -> Option<LandingAsk> {
    if run.contract.ordered || changes.files.is_empty() {
        return None;
    }
    let prompt = run.folded(|run| run.prompt.text()).unwrap_or_default();
    let exposed = run.exposed();
    let barred = changes.files.iter().filter_map(|change| {
        let is_new = change.change == Change::Created;
        match bar_at_landing(&change.path, is_new, &prompt, &exposed)? {
            Bar::Person(why) | Bar::Never(why) => Some((change.path.clone(), why)),
        }
    });
    let mut paths: Vec<(String, String)> = barred.collect();
    paths.extend(changes.asks.iter().cloned());
    paths.extend(removes_most(changes));
    (!paths.is_empty() || !failing.is_empty()).then(|| LandingAsk {
        paths,
        failing,
        tree_hash: changes.tree_hash.clone(),
    })
}

/// Returns a reason to ask if the run removes all or most of the tree, which is more often an error than intended.
fn removes_most(changes: &Changes) -> Option<(String, String)> {
    let before = changes.files_before?;
    let moved: HashSet<&str> = changes
        .files
        .iter()
        .filter_map(|change| match &change.change {
            Change::MovedFrom(from) => Some(from.as_str()),
            _ => None,
        })
        .collect();
    let removed = changes
        .files
        .iter()
        .filter(|change| change.change == Change::Deleted && !moved.contains(change.path.as_str()))
        .count();
    let most = removed >= MANY_REMOVED && removed.saturating_mul(2) > before;
    (removed > 0 && (removed >= before || most)).then(|| {
        (
            ".".to_owned(),
            format!("it removes {removed} of {before} files"),
        )
    })
}

/// Asks a person. The next step reads the answer from the log.
pub(super) async fn ask(run: &RunParts, ask: LandingAsk) -> Result<(), StepError> {
    let asking = run.sink.ask_about(About::Landing(ask), true, None);
    let paused = async {
        run.sink.control.stop.cancelled().await;
        if run.sink.control.halted() != Some(HaltReason::PausedOnAsk) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        answer = asking => answer.map(drop).map_err(StepError::Store),
        () = paused => Err(StepError::Paused),
    }
}

/// Waits until no other run lands in this tree, or the run is stopped or to pause. Returns true if it had to wait.
pub(super) async fn take_turn(
    run: &RunParts,
    transaction: &dyn Transaction,
) -> Result<bool, StepError> {
    tokio::select! {
        biased;
        waited = transaction.take_turn() => Ok(waited?),
        () = run.sink.control.stop.cancelled() => Ok(true),
        () = run.sink.control.pausing.cancelled() => Ok(true),
    }
}

/// Lands the judged changes. Returns true if they landed completely, and false if they have to be judged again.
pub(super) async fn land(
    run: &RunParts,
    transaction: &dyn Transaction,
    judged: Option<String>,
    asked: bool,
) -> Result<bool, StepError> {
    let changes = transaction.changes().await?;
    if changes.files.is_empty() {
        return land_commits(run, transaction, changes.tree_hash).await;
    }
    let waited = take_turn(run, transaction).await?;
    if run.sink.control.pauses() {
        transaction.end_turn();
        return Err(StepError::Paused);
    }
    // The tree may have changed while a person or another run took its time; only the tree that was judged may land.
    if (asked || waited)
        && let Some(paths) = changed_since(run, transaction, &changes, &judged).await?
    {
        let stale = EventKind::Judged {
            result: Judged::Stale { paths },
            tree_hash: changes.tree_hash,
            judge_changed: Vec::new(),
        };
        run.sink.emit(stale).await?;
        return Ok(false);
    }
    let landing = Landing {
        tree_hash: judged.clone(),
        to: run.contract.to.clone(),
    };
    let landed = transaction.land(&landing).await?;
    let unfinished = landed.unfinished.clone();
    log_landed(run, landed, judged).await?;
    // The landing itself may add warnings, for example about changes that cannot be undone.
    run.warn_about_workspace(transaction).await?;
    match unfinished {
        None => Ok(true),
        Some(why) => Err(StepError::Ends(Outcome::failed(FailReason::Runtime, why))),
    }
}

/// Paths that changed since the checks ran, in the tree or in the copy.
async fn changed_since(
    run: &RunParts,
    transaction: &dyn Transaction,
    changes: &Changes,
    judged: &Option<String>,
) -> Result<Option<Vec<String>>, StepError> {
    if changes.tree_hash != *judged {
        let paths = changes.files.iter().map(|change| change.path.clone());
        return Ok(Some(paths.collect()));
    }
    let moved = match run.contract.land_anyway {
        true => Vec::new(),
        false => transaction.moved().await?,
    };
    Ok((!moved.is_empty()).then_some(moved))
}

/// Lands the commits of a run without file changes, if there are any.
async fn land_commits(
    run: &RunParts,
    transaction: &dyn Transaction,
    tree_hash: Option<String>,
) -> Result<bool, StepError> {
    let landing = Landing {
        tree_hash: tree_hash.clone(),
        to: LandTo::Tree,
    };
    let landed = transaction.land(&landing).await?;
    if landed.refname.is_some() {
        log_landed(run, landed, tree_hash).await?;
    } else if run.contract.ordered {
        let text =
            "there is nothing to land: the copy has the same files as your tree, so it is removed";
        run.warn("nothing_to_land", text.to_owned()).await?;
    }
    run.warn_about_workspace(transaction).await?;
    Ok(true)
}

async fn log_landed(
    run: &RunParts,
    landed: Landed,
    tree_hash: Option<String>,
) -> Result<(), StepError> {
    let landed = EventKind::Landed { landed, tree_hash };
    run.sink.emit(landed).await?;
    run.sink.sync().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use windlass_core::workspace::FileChange;

    use super::*;

    fn change(path: &str, change: Change) -> FileChange {
        FileChange {
            path: path.to_owned(),
            change,
            added: None,
            removed: None,
            diff: None,
        }
    }

    #[test]
    fn files_that_moved_are_not_removed() {
        let from = |path: &str| Change::MovedFrom(path.to_owned());
        let mut changes = Changes {
            files: vec![
                change("d/a", Change::Deleted),
                change("d/b", Change::Deleted),
                change("e/a", from("d/a")),
                change("e/b", from("d/b")),
            ],
            files_before: Some(2),
            ..Changes::default()
        };
        assert_eq!(removes_most(&changes), None);
        changes.files[3].change = Change::Created;
        changes.files_before = Some(1);
        let (_, why) = removes_most(&changes).unwrap_or_default();
        assert_eq!(why, "it removes 1 of 1 files");
    }
}
