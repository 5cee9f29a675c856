//! Kept runs: isolated runs whose changes did not land. They can be inspected, landed, resumed and deleted.
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass::Windlass;
//! use windlass::core::event::EventKind;
//! use windlass::kept::{changes_of, find, note, shelf};
//! use windlass::machine::Root;
//! # use windlass_testing::{ScriptedProvider, call, says};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (work, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # let write = call("1", "write_file", &serde_json::json!({ "path": "a.txt", "content": "good\n" }));
//! # let model = ScriptedProvider::new([write, says("It is good now.")]);
//! let windlass = Windlass::without_settings(work.path(), data.path())?
//!     .provider(Arc::new(model), "scripted")
//!     .validate("false")
//!     .max_iterations(1);
//! windlass.run("make it good").await?;
//! let (settings, root) = (windlass.settings(), Arc::new(Root::open(work.path())?));
//! assert_eq!(shelf(&settings.places).list().len(), 1);
//! let card = find(&settings.places, &root, None)?;
//! assert_eq!(changes_of(settings, &root, &card).await?.files.len(), 1);
//! note(settings, &card, EventKind::Discarded { name: card.name.clone() }).await?;
//! # Ok(())
//! # }
//! ```

pub use windlass_transaction::isolated::KeptRunMeta;

mod report;

use std::sync::Arc;

use windlass_core::event::EventKind;
use windlass_core::id::{RunId, SessionId};
use windlass_core::runtime::RunMode;
use windlass_core::terms::Isolation;
use windlass_core::workspace::{Changes, Files, Opening, WorkspaceErrorKind, Workspaces};
use windlass_engine::{OpenSession, Session};
use windlass_host::config::Places;
use windlass_host::exec::child_env;
use windlass_host::workspace::Root;
use windlass_transaction::isolated::KeptRuns;

use crate::error::{Error, ErrorKind};
use crate::settings::Settings;
use crate::{sandboxing, wire};

pub use self::report::{
    DiffReport, GcLimits, GcReport, KeptRow, KeptStatus, SurplusRun, check_discard, diff, discard,
    gc, status,
};

/// All kept runs of this user.
#[must_use]
pub fn shelf(places: &Places) -> KeptRuns {
    KeptRuns::new(places.transactions_dir())
}

/// Finds a kept run by its name, or the newest one of the workspace.
pub fn find(places: &Places, root: &Root, name: Option<&str>) -> Result<KeptRunMeta, Error> {
    let shelf = shelf(places);
    if let Some(name) = name {
        return shelf
            .meta(name)
            .map_err(|err| Error::usage(err.to_string()));
    }
    let own = shelf
        .list()
        .into_iter()
        .find(|(card, busy)| !busy && card.was_made() && card.root == root.root());
    own.map(|(card, _)| card).ok_or_else(|| {
        Error::usage("this workspace has no kept runs").hint(
            "an isolated run is kept if its changes do not land; `windlass status --all` lists those of all workspaces",
        )
    })
}

/// The changes of a kept run, compared with the current tree.
pub async fn changes_of(
    settings: &Settings,
    root: &Arc<Root>,
    card: &KeptRunMeta,
) -> Result<Changes, Error> {
    let failed = |message: String| Error::new(ErrorKind::Failed, message);
    let exceptions = settings.layers.texts("env.pass").unwrap_or_default();
    let env = child_env(settings.environment.variables(), exceptions);
    let sandbox = sandboxing::sandbox(settings, root.root(), Vec::new(), env.clone(), None)?;
    let all = wire::transactions(settings, root.clone(), env, sandbox)?;
    let Ok(run) = card.run.parse::<RunId>() else {
        return Err(damaged(card));
    };
    let opening = Opening {
        session: &session_of(card)?,
        run: &run,
        isolation: Isolation::Isolated,
        kept: Some(&card.name),
    };
    let transaction = all.open(opening).await.map_err(|err| match err.kind {
        WorkspaceErrorKind::Busy => Error::new(ErrorKind::Conflict, err.message),
        _ => failed(err.message),
    })?;
    let changes = transaction
        .changes()
        .await
        .map_err(|err| failed(err.message));
    // `keep` would discard a copy without changes, but reading the changes must not discard anything: the tree may have
    // the same content only for the moment.
    if changes.as_ref().is_ok_and(|found| found.files.is_empty()) {
        drop(transaction);
    } else {
        transaction
            .keep()
            .await
            .map_err(|err| failed(err.message))?;
    }
    changes
}

/// The id of the session of a kept run.
pub(crate) fn session_of(card: &KeptRunMeta) -> Result<SessionId, Error> {
    card.session.parse().map_err(|_| damaged(card))
}

fn damaged(card: &KeptRunMeta) -> Error {
    let message = format!("the record of the kept run `{}` is damaged", card.name);
    Error::new(ErrorKind::Failed, message)
}

/// Appends an event about a kept run to the log of its session.
pub async fn note(settings: &Settings, card: &KeptRunMeta, event: EventKind) -> Result<(), Error> {
    open_session(settings, card).await?.note(event).await?;
    Ok(())
}

/// Opens the session of a kept run, to log an event.
pub(crate) async fn open_session(
    settings: &Settings,
    card: &KeptRunMeta,
) -> Result<Session, Error> {
    let root = Root::open(&card.root);
    let root = root.map_err(|err| Error::new(ErrorKind::Failed, err.to_string()))?;
    let built = wire::idle_engine(settings, Arc::new(root))?;
    let which = OpenSession::Resume(session_of(card)?);
    Ok(built.engine.open(which, RunMode::Analysis).await?)
}
