//! Marks of sessions with work that a later server continues: queued prompts, and runs that paused for a shutdown. A mark is
//! written before the work is logged, and removed when the session has none left.

use std::path::PathBuf;

use futures_util::StreamExt;
use windlass::core::event::EventKind;
use windlass::core::id::SessionId;
use windlass::core::overview::SessionOverview;
use windlass::core::pause::PauseReason;
use windlass::core::store::{SessionStore, Skimmed};

use crate::problem::{Problem, ProblemCode};
use crate::service::{Service, ServiceParts};

/// Maximum number of marks that are read.
const MAX_MARKS: usize = 20_000;

impl ServiceParts {
    fn marks(&self) -> PathBuf {
        self.server_dir().join("work")
    }

    /// Sessions with work that an earlier process left, with the name of the token that requested it.
    pub(crate) fn left_work(&self) -> Result<Vec<(SessionId, Option<String>)>, Problem> {
        let dir = match std::fs::read_dir(self.marks()) {
            Ok(dir) => dir,
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(err) => return Err(err.into()),
        };
        let mut found = Vec::new();
        for entry in dir.flatten().take(MAX_MARKS) {
            let name = entry.file_name();
            let Some(session) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let token = std::fs::read_to_string(entry.path()).unwrap_or_default();
            found.push((session, (!token.is_empty()).then_some(token)));
        }
        Ok(found)
    }
}

/// Whether the open run of a session was paused by the shutdown of its process. Such a run resumes by itself; a run that a
/// client paused does not.
pub(crate) fn is_paused_for_shutdown(overview: &SessionOverview) -> bool {
    let pause = overview.open.as_ref().and_then(|run| run.pause());
    pause.is_some_and(|pause| pause.reason == PauseReason::Shutdown) && overview.asks.is_empty()
}

/// A file with uploaded bytes, which is deleted when it is dropped.
pub(crate) struct Upload(PathBuf);

impl Upload {
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl ServiceParts {
    /// Stores uploaded bytes in a private file.
    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<Upload, Problem> {
        let mut name = [0; 8];
        getrandom::fill(&mut name)
            .map_err(|err| Problem::new(ProblemCode::Internal, err.to_string()))?;
        let name = u64::from_be_bytes(name);
        let path = self.server_dir().join(format!("upload-{name:016x}"));
        crate::private_file::write(&path, bytes)?;
        Ok(Upload(path))
    }
}

impl Service {
    /// Marks a session before work of it is logged.
    pub(crate) fn mark_work(
        &self,
        session: &SessionId,
        token: Option<&str>,
    ) -> Result<(), Problem> {
        let dir = self.0.marks();
        crate::private_file::create_dir(&dir)?;
        Ok(std::fs::write(
            dir.join(session.as_str()),
            token.unwrap_or_default(),
        )?)
    }

    /// Removes the mark of a session that has no work left.
    pub(crate) async fn unmark_work(&self, session: &SessionId) {
        let Ok(overview) = self.overview(session, None).await else {
            return;
        };
        let paused = overview
            .open
            .as_ref()
            .is_some_and(|run| run.pause().is_some());
        if !paused && overview.queue.first().is_none() {
            let _ = std::fs::remove_file(self.0.marks().join(session.as_str()));
        }
    }

    /// The number of the event of a prompt that was queued with this idempotency key.
    pub(crate) async fn prompt_with_key(
        &self,
        session: &SessionId,
        wanted: &str,
        token: Option<&str>,
    ) -> Result<Option<u64>, Problem> {
        let mut events = self.0.store.skim(session, 1, |kind| kind == "queued");
        while let Some(event) = events.next().await {
            if let Skimmed::Event(event) = event?
                && let EventKind::Queued { key, by, .. } = &event.kind
                && key.as_deref() == Some(wanted)
                && by.as_deref() == token
            {
                return Ok(event.order.seq());
            }
        }
        Ok(None)
    }
}

impl ServiceParts {
    /// Removes the mark of a session that was deleted.
    pub(crate) fn forget_work(&self, session: &SessionId) {
        let _ = std::fs::remove_file(self.marks().join(session.as_str()));
    }
}
