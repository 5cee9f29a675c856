//! Kept runs: what is there, what they would change, and throwing them away. Landings that a dead process left half
//! done are finished or taken back here, before any command does its work.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::gate::Mode;
use windlass_core::id::{RunId, SessionId};
use windlass_core::image::Swap;
use windlass_core::runtime::RunMode;
use windlass_core::store::StoreErrorKind;
use windlass_core::terms::Isolation;
use windlass_core::workspace::{Change, Changes, FileChange, Files, Opening, Workspaces};
use windlass_engine::{EngineError, Open};
use windlass_host::clock::SystemClock;
use windlass_host::config::Places;
use windlass_host::exec::child_env;
use windlass_host::session_log::SessionLog;
use windlass_host::workspace::Root;
use windlass_transaction::isolated::{
    Card, Shelf, UNDO_BYTES, Untold, landing_was_told, recover_landings, undo_contents,
    unlogged_calls, untold_landings,
};
use windlass_transaction::landing::undo::describe;
use windlass_transaction::landing::{LandingCall, UnloggedLanding};

use super::block_on;
use crate::args::{DiffArgs, DiscardArgs, StatusArgs};
use crate::exit;
use crate::failure::Failure;
use crate::out::{self, say};
use crate::process;
use crate::safe::{marked_block, message, one_line};
use windlass::settings::Settings;
use windlass::{sandboxing, wire};

/// Mended landings that `status` tells of.
const MAX_RECOVERIES: usize = 10;

pub(super) fn shelf(places: &Places) -> Shelf {
    Shelf::new(places.transactions_dir())
}

/// Finishes or takes back what was broken off, and says so.
pub(super) fn recover() {
    let Ok(places) = process::places() else {
        return;
    };
    for (name, recovered) in recover_landings(&shelf(&places), &places.undo_dir()) {
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
                say!("{}", message(&line));
                note_recovery(&places, &line);
            }
            Err(why) => say!(
                "warning: a landing that was broken off could not be mended: {}: {}",
                name,
                message(&why)
            ),
        }
    }
    log_unlogged_calls(&places);
    for (slot, untold) in untold_landings(&shelf(&places)) {
        let name = slot.card.name.clone();
        match tell(&slot.card, untold) {
            Ok(told) => {
                if told {
                    say!("{name} had landed when its process died; `windlass undo` takes it back");
                }
                if let Err(err) = landing_was_told(slot) {
                    say!("warning: {err}");
                }
            }
            Err(why) => say!(
                "warning: {name} has landed, but the log of its session cannot be written: {}",
                message(&why.message())
            ),
        }
    }
}

/// Logs what calls in place landed before their process died, so that undo knows it.
fn log_unlogged_calls(places: &Places) {
    for landing in unlogged_calls(&places.undo_dir()) {
        match log_unlogged(places, &landing) {
            Ok(Some(logged)) => {
                if logged > 0 {
                    say!(
                        "a call had changed {logged} files when its process died ({}); `windlass undo` takes them back",
                        message(&landing.root.display().to_string())
                    );
                }
                // One that stays is known by its log the next time.
                let _ = std::fs::remove_file(&landing.record);
            }
            // Its session is at work and logs it itself.
            Ok(None) => {}
            Err(why) => say!(
                "warning: a call changed files before its process died, but its session cannot be told: {}",
                message(&why.message())
            ),
        }
    }
}

/// Gives how many changes were appended; `None` while the session is at work. Those of a deleted session are dropped.
fn log_unlogged(places: &Places, landing: &UnloggedLanding) -> Result<Option<usize>, Failure> {
    let LandingCall { session, run, call } = &landing.call;
    let store = SessionLog::new(places.sessions_dir());
    if !places.sessions_dir().join(session.as_str()).exists() {
        return Ok(Some(0));
    }
    let known = block_on(async { super::undo::undoable_changes(&store, session).await })?;
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
    let failed = |err: String| Failure::new(exit::FAILED, err);
    let root = Root::open(&landing.root).map_err(|err| failed(err.to_string()))?;
    let contents = undo_contents(&places.undo_dir()).map_err(|err| failed(err.to_string()))?;
    let settings = process::load_settings(Some(root.root()))?;
    let wired = wire::engine(
        &settings,
        &wire::Agent::Nobody,
        Arc::new(root),
        Mode::Ask,
        Vec::new(),
        Vec::new(),
    )?;
    block_on(async {
        let opened = wired
            .engine
            .open(Open::Resume(session.clone()), RunMode::Analysis)
            .await;
        let session = match opened {
            Ok(session) => session,
            Err(EngineError::Store(err)) if err.kind == StoreErrorKind::Locked => {
                return Ok(None);
            }
            Err(err) => return Err(Failure::from(err)),
        };
        for swap in &missing {
            let change = FileChange {
                diff: None,
                ..describe(swap, &contents)
            };
            session
                .log_recovered(run.clone(), call.clone(), change, (*swap).clone())
                .await
                .map_err(Failure::from)?;
        }
        Ok(Some(missing.len()))
    })
}

/// What was mended, for `status`; the newest last.
fn note_recovery(places: &Places, line: &str) {
    let mut lines = recoveries(places);
    lines.push(format!("{} {line}", SystemClock::new().now()));
    let first = lines.len().saturating_sub(MAX_RECOVERIES);
    // It is a courtesy: the tree is mended, whether or not this can be written.
    let _ = std::fs::write(
        places.undo_dir().join("recovered"),
        lines[first..].join("\n"),
    );
}

fn recoveries(places: &Places) -> Vec<String> {
    let text = wire::read_text(&places.undo_dir().join("recovered"), 1 << 20, "the list")
        .unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Tells the log of a session what landed, unless it knows.
fn tell(card: &Card, untold: Untold) -> Result<bool, Failure> {
    block_on(async {
        let places = process::places()?;
        let id = crate::session_run::session_id(&card.session)?;
        let changes =
            super::undo::undoable_changes(&SessionLog::new(places.sessions_dir()), &id).await?;
        Ok(changes
            .done
            .iter()
            .any(|change| change.call.is_none() && change.swaps == untold.landed.swaps))
    })
    .and_then(|known| match known {
        true => Ok(false),
        false => {
            let Untold { landed, tree_hash } = untold;
            note(card, EventKind::Landed { landed, tree_hash }).map(|()| true)
        }
    })
}

/// The kept run of that name, or the newest of the workspace.
pub(super) fn find(places: &Places, root: &Root, name: Option<&str>) -> Result<Card, Failure> {
    let shelf = shelf(places);
    match name {
        Some(name) => Ok(shelf
            .card(name)
            .map_err(|err| Failure::usage(err.to_string()))?),
        None => {
            let own = shelf
                .list()
                .into_iter()
                .find(|(card, busy)| !busy && card.was_made() && card.root == root.root());
            own.map(|(card, _)| card).ok_or_else(|| {
                Failure::usage("there is no kept run of this workspace")
                    .hint("a run that does not land is kept; `windlass status --all` lists those of other workspaces")
            })
        }
    }
}

pub(super) fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let places = process::places()?;
    let root = match args.all {
        true => None,
        false => Some(process::open_workspace(args.cd.as_deref())?),
    };
    let here = |card: &Card| root.as_ref().is_none_or(|root| card.root == root.root());
    let all = shelf(&places).list().into_iter();
    // What never began holds nothing; the next run or `gc` clears it away.
    let kept: Vec<(Card, bool)> = all
        .filter(|(card, busy)| here(card) && (*busy || card.was_made()))
        .collect();
    if args.json {
        let rows: Vec<_> = kept
            .iter()
            .map(|(card, busy)| {
                let state = state(card, *busy);
                json!({ "name": card.name, "state": state, "root": card.root, "session": card.session,
                        "run": card.run, "strategy": card.strategy, "files": card.files, "bytes": card.bytes,
                        "opened": card.opened, "kept": card.kept })
            })
            .collect();
        out::json(&json!({ "kept": rows, "recovered": recoveries(&places) }));
        return Ok(exit::unless_broken(0));
    }
    if kept.is_empty() {
        out::out("no kept runs\n");
    }
    for (card, busy) in &kept {
        let files = if card.files == 1 {
            "1 file".to_owned()
        } else {
            format!("{} files", card.files)
        };
        let (state, size) = (state(card, *busy), card.bytes.div_ceil(1 << 20));
        out::out(&format!(
            "{:24} {state:12} {files:>10}  {size} MB  session {}\n",
            card.name, card.session
        ));
        if root.is_none() {
            out::out(&format!(
                "  {}\n",
                one_line(&card.root.display().to_string())
            ));
        }
    }
    for line in recoveries(&places) {
        out::out(&format!("{}\n", one_line(&line)));
    }
    if let Some((card, _)) = kept.first() {
        out::out(&format!(
            "\nwindlass diff {0} · land {0} · resume {0} · discard {0}\n",
            card.name
        ));
    }
    Ok(exit::unless_broken(0))
}

fn state(card: &Card, busy: bool) -> &'static str {
    match (busy, card.kept) {
        (true, _) => "running",
        (false, Some(_)) => "kept",
        (false, None) => "interrupted",
    }
}

pub(super) fn diff(args: &DiffArgs) -> Result<ExitCode, Failure> {
    let root = Arc::new(process::open_workspace(args.cd.as_deref())?);
    let settings = process::load_settings(Some(root.root()))?;
    let card = find(&settings.places, &root, args.name.as_deref())?;
    block_on(async move {
        let changes = changes_of(&settings, &root, &card).await?;
        if args.json {
            out::json(
                &json!({ "name": card.name, "files": changes.files, "tree_hash": changes.tree_hash,
                               "left": changes.left, "cannot_land": changes.cannot }),
            );
            return Ok(exit::unless_broken(0));
        }
        show(&changes, args.stat);
        Ok(exit::unless_broken(0))
    })
}

async fn changes_of(
    settings: &Settings,
    root: &Arc<Root>,
    card: &Card,
) -> Result<Changes, Failure> {
    let exceptions = settings.layers.texts("env.pass").unwrap_or_default();
    let env = child_env(std::env::vars_os(), exceptions);
    let sandbox = sandboxing::sandbox(settings, root.root(), Vec::new(), env.clone(), None)?;
    let all = wire::transactions(settings, root.clone(), env, sandbox)?;
    let (session, run) = (card.session.parse::<SessionId>(), card.run.parse::<RunId>());
    let (Ok(session), Ok(run)) = (session, run) else {
        return Err(Failure::new(
            exit::FAILED,
            format!("the card of `{}` is damaged", card.name),
        ));
    };
    let opening = Opening {
        session: &session,
        run: &run,
        isolation: Isolation::Isolated,
        kept: Some(&card.name),
    };
    let transaction = all
        .open(opening)
        .await
        .map_err(|err| Failure::new(exit::FAILED, err.message))?;
    let changes = transaction
        .changes()
        .await
        .map_err(|err| Failure::new(exit::FAILED, err.message));
    // To look at it throws nothing away, also where your tree has all of it at this moment.
    if changes
        .as_ref()
        .is_ok_and(|changes| changes.files.is_empty())
    {
        drop(transaction);
    } else {
        transaction
            .keep()
            .await
            .map_err(|err| Failure::new(exit::FAILED, err.message))?;
    }
    changes
}

fn show(changes: &Changes, stat: bool) {
    for file in &changes.files {
        let (sign, from) = match &file.change {
            Change::Created => ('+', String::new()),
            Change::Deleted => ('-', String::new()),
            Change::Modified => ('~', String::new()),
            Change::MovedFrom(from) => ('>', format!(" (was {})", one_line(from))),
        };
        match &file.diff {
            // A program gets it as it is, to apply it; a terminal gets nothing that could move it.
            Some(diff) if !stat && !std::io::stdout().is_terminal() => out::out(diff),
            Some(diff) if !stat => out::out(&marked_block(diff)),
            _ => out::out(&format!(
                "{sign} {}{from} +{} -{}\n",
                one_line(&file.path),
                file.added,
                file.removed
            )),
        }
    }
    for (path, why) in &changes.cannot {
        say!("cannot land: {}: {why}", message(path));
    }
    if !changes.left.is_empty() {
        say!("{} ignored or built paths stay behind", changes.left.len());
    }
}

pub(super) fn discard(args: &DiscardArgs) -> Result<ExitCode, Failure> {
    let places = process::places()?;
    let slot = shelf(&places)
        .open(&args.name)
        .map_err(|err| Failure::usage(err.to_string()))?;
    let question = format!(
        "throw away {} with {} changed files? [y/N] ",
        args.name, slot.card.files
    );
    if !args.yes && !super::sessions::confirmed(&question)? {
        return Err(Failure::new(exit::ASKED, "nothing was thrown away")
            .hint("give --yes to throw it away without being asked"));
    }
    let card = slot.card.clone();
    slot.discard()
        .map_err(|err| Failure::new(exit::FAILED, err.to_string()))?;
    if let Err(why) = note(
        &card,
        EventKind::Discarded {
            name: card.name.clone(),
        },
    ) {
        say!(
            "warning: the session's log does not say so: {}",
            message(&why.message())
        );
    }
    say!("{} is gone", args.name);
    Ok(exit::unless_broken(0))
}

/// Notes in the log of its session what became of a copy.
fn note(card: &Card, what: EventKind) -> Result<(), Failure> {
    let root = Arc::new(
        Root::open(&card.root).map_err(|err| Failure::new(exit::FAILED, err.to_string()))?,
    );
    let settings = process::load_settings(Some(root.root()))?;
    let wired = wire::engine(
        &settings,
        &wire::Agent::Nobody,
        root,
        Mode::Ask,
        Vec::new(),
        Vec::new(),
    )?;
    block_on(async move {
        let id = crate::session_run::session_id(&card.session)?;
        let session = wired
            .engine
            .open(Open::Resume(id), RunMode::Analysis)
            .await?;
        session.note(what).await?;
        Ok(())
    })
}

/// Throws away what is kept too long or takes too much, and says what and why.
pub(super) fn gc(
    places: &Places,
    max_bytes: u64,
    max_age: Duration,
    dry_run: bool,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    let shelf = shelf(places);
    let failed = |err: String| Failure::new(exit::FAILED, err);
    let (mut gone, mut freed) = (Vec::new(), 0);
    for (card, why) in shelf.surplus(max_bytes, max_age) {
        if !dry_run {
            // Somebody may have begun to work on it since it was listed.
            let Ok(slot) = shelf.open(&card.name) else {
                continue;
            };
            slot.discard().map_err(|err| failed(err.to_string()))?;
        }
        freed += card.bytes;
        gone.push(json!({ "name": card.name, "bytes": card.bytes, "why": why }));
        if !as_json {
            let megabytes = card.bytes.div_ceil(1 << 20);
            out::out(&format!(
                "{} {} ({megabytes} MB): {why}\n",
                verb(dry_run),
                card.name
            ));
        }
    }
    let left = shelf.list();
    let kept: u64 = left.iter().map(|(card, _)| card.bytes).sum();
    let undo = undo_contents(&places.undo_dir()).and_then(|contents| contents.used());
    let undo = undo.map_err(|err| failed(err.to_string()))?;
    if as_json {
        out::json(
            &json!({ "dry_run": dry_run, "gone": gone, "bytes": freed, "kept_runs": left.len(),
                           "kept_bytes": kept, "undo_bytes": undo, "undo_cap": UNDO_BYTES }),
        );
        return Ok(exit::unless_broken(0));
    }
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
    out::out(&format!(
        "kept runs: {} with {} MB (at most {} MB and {} days); bytes for undo: {} MB of {} MB, the oldest go first by \
         themselves\n",
        left.len(),
        megabytes(kept),
        megabytes(max_bytes),
        max_age.as_secs() / 86_400,
        megabytes(undo),
        megabytes(UNDO_BYTES),
    ));
    Ok(exit::unless_broken(0))
}

fn verb(dry_run: bool) -> &'static str {
    if dry_run {
        "would throw away"
    } else {
        "threw away"
    }
}
