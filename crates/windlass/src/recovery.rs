//! What a dead process left: landings that are finished or rolled back, and changes that its log does not know yet. Every
//! surface calls this before its work.
//!
//! ```
//! use windlass::settings::Settings;
//! use windlass::{Notices, Unlogged, recover, recoveries};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let settings = Settings::none(dir.path());
//! let unlogged: Unlogged = recover(&settings.places, &Notices::default());
//! assert!(unlogged.is_empty(), "no process died here");
//! unlogged.log(&settings).await;
//! assert!(recoveries(&settings.places).is_empty());
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
use crate::undo::undoable_changes;
use crate::wire;

/// Recoveries that [`recoveries`] remembers.
const MAX_RECOVERIES: usize = 10;

/// Changes of a dead process that its session's log does not know yet.
#[must_use = "the log has to be told"]
pub struct Unlogged {
    calls: Vec<UnloggedLanding>,
    landings: Vec<(KeptRun, UnloggedRunLanding)>,
    undos: Vec<UnloggedUndo>,
}

/// Finishes landings that were interrupted, or rolls them back.
pub fn recover(places: &Places, notices: &Notices) -> Unlogged {
    let shelf = KeptRuns::new(places.transactions_dir());
    for (name, recovered) in recover_landings(&shelf, &places.undo_dir()) {
        match recovered {
            Ok(done) => {
                let how = if done.landed {
                    "was finished"
                } else {
                    "was taken back"
                };
                let mut line = format!(
                    "a landing that was broken off {how}: {name} ({})",
                    done.root.display()
                );
                for path in done.left {
                    line.push_str(&format!("; left as you wrote it: {path}"));
                }
                notices.progress(&line);
                remember(places, &line);
            }
            Err(why) => notices.warn(&format!(
                "a landing that was broken off could not be mended: {name}: {why}"
            )),
        }
    }
    Unlogged {
        calls: unlogged_calls(&places.undo_dir()),
        landings: unlogged_run_landings(&shelf),
        undos: unlogged_undo_landings(&places.undo_dir()),
    }
}

/// Recoveries of the past, the newest last.
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
    // The tree is mended, whether or not this can be written.
    let _ = windlass_host::workspace::create_file(&file).map(|mut file| {
        use std::io::Write;
        let _ = file.write_all(lines[first..].join("\n").as_bytes());
    });
}

impl Unlogged {
    /// Whether every log knows everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.landings.is_empty() && self.undos.is_empty()
    }

    /// Appends what is missing to the logs, so that undo knows it.
    pub async fn log(self, settings: &Settings) {
        let notices = &settings.notices;
        for landing in self.calls {
            match log_call(settings, &landing).await {
                Ok(Some(logged)) => {
                    if logged > 0 {
                        notices.progress(&format!(
                            "a call had changed {logged} files when its process died ({}); `windlass undo` takes them \
                             back",
                            landing.root.display()
                        ));
                    }
                    // A record that stays is recognised by the log the next time.
                    let _ = std::fs::remove_file(&landing.record);
                }
                // Its session is at work and logs it itself.
                Ok(None) => {}
                Err(why) => notices.warn(&format!(
                    "a call changed files before its process died, but its session cannot be told: {why}"
                )),
            }
        }
        for undo in self.undos {
            match log_undo(settings, &undo).await {
                // A record that stays is recognised by the log the next time.
                Ok(true) => drop(std::fs::remove_file(&undo.record)),
                // Its session is at work and logs it itself.
                Ok(false) => {}
                Err(why) => notices.warn(&format!(
                    "an undo was finished after its process died, but its session cannot be told: {why}"
                )),
            }
        }
        for (slot, untold) in self.landings {
            let name = slot.meta.name.clone();
            match log_landing(settings, &slot, untold).await {
                Ok(logged) => {
                    if logged {
                        notices.progress(&format!(
                            "{name} had landed when its process died; `windlass undo` takes it back"
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

/// Gives how many changes were appended; `None` while the session is at work. Those of a deleted session are dropped.
async fn log_call(settings: &Settings, landing: &UnloggedLanding) -> Result<Option<usize>, Error> {
    let LandingCall { session, run, call } = &landing.call;
    let places = &settings.places;
    if !places.sessions_dir().join(session.as_str()).exists() {
        return Ok(Some(0));
    }
    let store = SessionLog::new(places.sessions_dir());
    let known = undoable_changes(&store, session).await?;
    // A call is logged as a whole when it has ended.
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

/// Opens a session to log what recovery found; `None` while another process writes it.
async fn open_unlocked(
    settings: &Settings,
    session: &SessionId,
    root: &Path,
) -> Result<Option<Session>, Error> {
    let root = Root::open(root).map_err(|err| Error::new(ErrorKind::Failed, err.to_string()))?;
    let wired = wire::idle_engine(settings, Arc::new(root))?;
    let open = OpenSession::Resume(session.clone());
    match wired.engine.open(open, RunMode::Analysis).await {
        Ok(session) => Ok(Some(session)),
        Err(EngineError::Store(err)) if err.kind == StoreErrorKind::Locked => Ok(None),
        Err(err) => Err(err.into()),
    }
}

/// Whether the log has an undo or a redo now. Those of a deleted session are dropped.
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

/// Whether the log did not know of the landing yet.
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
