//! Recovery after the death of a process: interrupted landings are finished or rolled back, and changes that are missing
//! in a log are added to it. Every surface runs the recovery before its own work.
//!
//! ```
//! use windlass::settings::Settings;
//! use windlass::{Notices, Unlogged, close_interrupted, recover, recoveries};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let settings = Settings::none(dir.path());
//! let unlogged: Unlogged = recover(&settings.places, &Notices::default());
//! assert!(unlogged.is_empty(), "no process died here");
//! unlogged.log(&settings).await;
//! assert!(recoveries(&settings.places).is_empty());
//! let no_session = "20261118-120000-abcdef".parse()?;
//! assert!(close_interrupted(&settings, dir.path(), &no_session).await.is_err());
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::sync::Arc;

use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::id::SessionId;
use windlass_core::image::Swap;
use windlass_core::runtime::RunMode;
use windlass_core::store::StoreErrorKind;
use windlass_core::workspace::FileChange;
use windlass_engine::{EngineError, OpenSession, Session};
use windlass_host::clock::SystemClock;
use windlass_host::config::Places;
use windlass_host::session_log::SessionLog;
use windlass_host::workspace::Root;
use windlass_transaction::isolated::{
    KeptRun, KeptRuns, UnloggedRunLanding, landing_was_logged, recover_landings, undo_contents,
    unlogged_calls, unlogged_run_landings, unlogged_undo_landings,
};
use windlass_transaction::landing::undo::describe;
use windlass_transaction::landing::{LandingCall, LandingUndo, UnloggedLanding, UnloggedUndo};

use crate::error::{Error, ErrorKind};
use crate::kept;
use crate::notices::Notices;
use crate::settings::Settings;
use crate::transcript::counted;
use crate::undo::undoable_changes;
use crate::wire;

/// Number of recoveries that [`recoveries`] keeps.
const MAX_RECOVERIES: usize = 10;

/// Changes by a process that died before it could log them.
#[must_use = "the changes must be logged"]
pub struct Unlogged {
    calls: Vec<UnloggedLanding>,
    landings: Vec<(KeptRun, UnloggedRunLanding)>,
    undos: Vec<UnloggedUndo>,
}

/// Finishes interrupted landings, or rolls them back. The caller must log the returned changes with [`Unlogged::log`].
pub fn recover(places: &Places, notices: &Notices) -> Unlogged {
    let shelf = KeptRuns::new(places.transactions_dir());
    for (name, recovered) in recover_landings(&shelf, &places.undo_dir()) {
        match recovered {
            Ok(done) => {
                let action = if done.landed {
                    "finished"
                } else {
                    "rolled back"
                };
                let mut line = format!(
                    "{action} an interrupted landing: {name} ({})",
                    done.root.display()
                );
                for path in done.left {
                    line.push_str(&format!("; kept your edit of {path}"));
                }
                notices.progress(&line);
                remember(places, &line);
            }
            Err(why) => notices.warn(&format!(
                "could not finish or roll back an interrupted landing: {name}: {why}"
            )),
        }
    }
    Unlogged {
        calls: unlogged_calls(&places.undo_dir()),
        landings: unlogged_run_landings(&shelf),
        undos: unlogged_undo_landings(&places.undo_dir()),
    }
}

/// Descriptions of past recoveries, the newest last.
#[must_use]
pub fn recoveries(places: &Places) -> Vec<String> {
    let text = wire::read_text(&places.undo_dir().join("recovered"), 1 << 20, "the list")
        .unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn remember(places: &Places, line: &str) {
    let mut lines = recoveries(places);
    lines.push(format!("{} {line}", SystemClock::new().now()));
    let first = lines.len().saturating_sub(MAX_RECOVERIES);
    let file = places.undo_dir().join("recovered");
    // The recovery itself is done, so an error here is ignored.
    let _ = windlass_host::workspace::create_file(&file).map(|mut file| {
        use std::io::Write;
        let _ = file.write_all(lines[first..].join("\n").as_bytes());
    });
}

/// Closes the run of a session whose process died. Returns false if the session has none. A paused run stays open.
pub async fn close_interrupted(
    settings: &Settings,
    workspace: &Path,
    session: &SessionId,
) -> Result<bool, Error> {
    let root = Root::open(workspace).map_err(|err| Error::usage(err.to_string()))?;
    let built = wire::idle_engine(settings, Arc::new(root))?;
    let which = OpenSession::Resume(session.clone());
    let session = built.engine.open(which, RunMode::Analysis).await?;
    Ok(session.close_interrupted().await?)
}

impl Unlogged {
    /// Whether there is nothing to log.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.landings.is_empty() && self.undos.is_empty()
    }

    /// Appends the missing changes to the logs, so that they can be undone.
    pub async fn log(self, settings: &Settings) {
        let notices = &settings.notices;
        for landing in self.calls {
            match log_call(settings, &landing).await {
                Ok(Some(logged)) => {
                    if logged > 0 {
                        notices.progress(&format!(
                            "a call had changed {} when its process died ({}); `windlass undo` undoes it",
                            counted(logged, "file"),
                            landing.root.display()
                        ));
                    }
                    // If the record remains, the next recovery finds its changes in the log.
                    let _ = std::fs::remove_file(&landing.record);
                }
                // The session is open in another process, which logs the change itself.
                Ok(None) => {}
                Err(why) => notices.warn(&format!(
                    "a call changed files before its process died, but the changes cannot be added to the log of its \
                     session: {why}"
                )),
            }
        }
        for undo in self.undos {
            match log_undo(settings, &undo).await {
                // If the record remains, the next recovery finds the undo in the log.
                Ok(true) => drop(std::fs::remove_file(&undo.record)),
                // The session is open in another process, which logs the undo itself.
                Ok(false) => {}
                Err(why) => notices.warn(&format!(
                    "an undo was finished after its process died, but it cannot be added to the log of its session: \
                     {why}"
                )),
            }
        }
        for (slot, untold) in self.landings {
            let name = slot.meta.name.clone();
            match log_landing(settings, &slot, untold).await {
                Ok(logged) => {
                    if logged {
                        notices.progress(&format!(
                            "{name} had landed when its process died; `windlass undo` undoes it"
                        ));
                    }
                    if let Err(err) = landing_was_logged(slot) {
                        notices.warn(&err.to_string());
                    }
                }
                Err(why) => notices.warn(&format!(
                    "{name} has landed, but the log of its session cannot be written: {why}"
                )),
            }
        }
    }
}

/// Logs the changes of a call and returns their number; `None` if another process has the session open. Changes of a
/// deleted session are dropped.
async fn log_call(settings: &Settings, landing: &UnloggedLanding) -> Result<Option<usize>, Error> {
    let LandingCall { session, run, call } = &landing.call;
    let places = &settings.places;
    if !places.sessions_dir().join(session.as_str()).exists() {
        return Ok(Some(0));
    }
    let store = SessionLog::new(places.sessions_dir());
    let known = undoable_changes(&store, session).await?;
    // A call that ended in the normal way has logged its changes.
    let is_known = |swap: &Swap| {
        let mut own = known.done.iter().filter(|change| {
            change.call.as_ref() == Some(call) && change.run.as_ref() == Some(run)
        });
        own.any(|change| change.swaps.iter().any(|other| other.path == swap.path))
    };
    let missing: Vec<&Swap> = landing
        .swaps
        .iter()
        .filter(|swap| !is_known(swap))
        .collect();
    if missing.is_empty() {
        return Ok(Some(0));
    }
    let contents = undo_contents(&places.undo_dir())
        .map_err(|err| Error::new(ErrorKind::Failed, err.to_string()))?;
    let Some(session) = open_unlocked(settings, session, &landing.root).await? else {
        return Ok(None);
    };
    for swap in &missing {
        let change = FileChange {
            diff: None,
            ..describe(swap, &contents)
        };
        session
            .log_recovered(run.clone(), call.clone(), change, (*swap).clone())
            .await?;
    }
    Ok(Some(missing.len()))
}

/// Opens a session to add the results of the recovery; `None` if another process has it open.
async fn open_unlocked(
    settings: &Settings,
    session: &SessionId,
    root: &Path,
) -> Result<Option<Session>, Error> {
    let root = Root::open(root).map_err(|err| Error::new(ErrorKind::Failed, err.to_string()))?;
    let built = wire::idle_engine(settings, Arc::new(root))?;
    let open = OpenSession::Resume(session.clone());
    match built.engine.open(open, RunMode::Analysis).await {
        Ok(session) => Ok(Some(session)),
        Err(EngineError::Store(err)) if err.kind == StoreErrorKind::Locked => Ok(None),
        Err(err) => Err(err.into()),
    }
}

/// Logs an undo or a redo. Returns `false` if another process has the session open. Undos of a deleted session are
/// dropped.
async fn log_undo(settings: &Settings, landing: &UnloggedUndo) -> Result<bool, Error> {
    let LandingUndo {
        session,
        redo,
        of,
        also,
    } = &landing.undo;
    let places = &settings.places;
    if !places.sessions_dir().join(session.as_str()).exists() {
        return Ok(true);
    }
    let known = undoable_changes(&SessionLog::new(places.sessions_dir()), session).await?;
    let is_known = match redo {
        true => known.undone.iter().all(|undo| undo.seq != *of),
        false => known
            .done
            .iter()
            .any(|change| change.seq == *of && change.undone_by.is_some()),
    };
    if is_known {
        return Ok(true);
    }
    let Some(session) = open_unlocked(settings, session, &landing.root).await? else {
        return Ok(false);
    };
    let swaps = landing.swaps.clone();
    session
        .note(match redo {
            true => EventKind::redone(*of, swaps),
            false => EventKind::undone(*of, also.clone(), swaps),
        })
        .await?;
    Ok(true)
}

/// Logs the landing of a run. Returns `false` if the log already had it.
async fn log_landing(
    settings: &Settings,
    slot: &KeptRun,
    untold: UnloggedRunLanding,
) -> Result<bool, Error> {
    let places = &settings.places;
    let id = kept::session_of(&slot.meta)?;
    let store = SessionLog::new(places.sessions_dir());
    let known = undoable_changes(&store, &id).await?;
    let UnloggedRunLanding { landed, tree_hash } = untold;
    let is_known = known
        .done
        .iter()
        .any(|change| change.call.is_none() && change.swaps == landed.swaps);
    if !is_known {
        let session = kept::open_session(settings, &slot.meta).await?;
        session
            .log_recovered_landing(&slot.meta.name, landed, tree_hash)
            .await?;
    }
    Ok(!is_known)
}
