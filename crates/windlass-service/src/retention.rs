//! Deletes sessions: on request, and those whose last event is older than `server.retention_days`.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use windlass::core::clock::{Clock, Timestamp};
use windlass::core::id::SessionId;
use windlass::core::session_state::SessionState;
use windlass::core::store::SessionStore;
use windlass::kept::shelf;
use windlass::machine::SystemClock;
use windlass::sessions::SessionDeletion;

use crate::host::SessionHost;
use crate::problem::{Problem, ProblemCode};
use crate::service::{Service, ServiceParts};

/// The pause between two searches for old sessions.
const SEARCH_INTERVAL: Duration = Duration::from_secs(24 * 3_600);
const DAY_MS: f64 = 86_400_000.0;

impl Service {
    /// Deletes a session with everything that belongs to it. A session in use is not deleted.
    pub(crate) async fn delete_session(&self, host: &SessionHost) -> Result<(), Problem> {
        let mut deletion = SessionDeletion::new(&self.0.places, &self.0.store);
        self.delete_with(&mut deletion, host).await?;
        self.finish_deletion(deletion).await;
        Ok(())
    }

    /// Removes the bytes for undo that only deleted sessions needed. The sessions are gone already, so an error is a warning.
    async fn finish_deletion(&self, deletion: SessionDeletion<'_>) {
        if let Err(err) = deletion.finish().await {
            let text = format!("bytes for undo of deleted sessions stay: {}", err.message());
            self.0.options.notices.warn(&text);
        }
    }

    async fn delete_with(
        &self,
        deletion: &mut SessionDeletion<'_>,
        host: &SessionHost,
    ) -> Result<(), Problem> {
        host.settled().await;
        let _opening = host.opening.lock().await;
        if host.live().is_some() {
            return Err(Problem::new(
                ProblemCode::Conflict,
                "a run is in progress in this session",
            )
            .hint("cancel it first"));
        }
        self.0.scheduler.remove(&host.id);
        deletion.delete(&host.id).await?;
        self.0.forget_work(&host.id);
        self.0.keys.forget_session(&host.id);
        host.events.ring.touch();
        Ok(())
    }

    /// Starts the daily search for old sessions. It ends when the service shuts down.
    pub(crate) fn start_retention(&self) {
        let (parts, closing) = (Arc::downgrade(&self.0), self.0.closing.clone());
        self.0.tasks.spawn(async move {
            while let Some(service) = Weak::<ServiceParts>::upgrade(&parts).map(Service) {
                tokio::select! {
                    () = service.apply_retention() => {}
                    () = closing.cancelled() => return,
                }
                drop(service);
                tokio::select! {
                    () = tokio::time::sleep(SEARCH_INTERVAL) => {}
                    () = closing.cancelled() => return,
                }
            }
        });
    }

    async fn apply_retention(&self) {
        // A session that the command line deleted leaves its keys here.
        let store = &self.0.store;
        self.0
            .keys
            .forget_missing(|session| store.log_path(session).exists());
        let warn = |text: String| self.0.options.notices.warn(&text);
        let days = match self.settings(None) {
            Ok(settings) => settings.layers.number("server.retention_days"),
            Err(problem) => return warn(format!("old sessions are kept: {}", problem.detail)),
        };
        match days {
            None => {}
            Some(days) if days > 0.0 => {
                let now = SystemClock::new().now().as_millis();
                let before = Timestamp::from_millis(now.saturating_sub((days * DAY_MS) as i64));
                if let Err(problem) = self.delete_old_sessions(before).await {
                    warn(format!("old sessions are kept: {}", problem.detail));
                }
            }
            Some(_) => {
                warn("old sessions are kept: `server.retention_days` must be above zero".to_owned())
            }
        }
    }

    /// Deletes the sessions whose last event is older, except those that run, wait, are paused, or have prompts in their queue
    /// or a kept run. Returns their number.
    pub(crate) async fn delete_old_sessions(&self, before: Timestamp) -> Result<usize, Problem> {
        let mut old = Vec::new();
        let mut heads = self.0.store.list();
        while let Some(head) = heads.next().await {
            // A damaged session may be repaired by its user.
            let Ok(head) = head else { continue };
            let in_use = matches!(
                head.state,
                SessionState::Running
                    | SessionState::Waiting
                    | SessionState::Paused
                    | SessionState::Damaged
            );
            if head.last < before && !in_use {
                old.push(head.id);
            }
        }
        drop(heads);
        let cards = shelf(&self.0.places).list();
        let kept: HashSet<String> = cards.into_iter().map(|(card, _)| card.session).collect();
        let mut deletion = SessionDeletion::new(&self.0.places, &self.0.store);
        let mut deleted = 0;
        for session in old {
            if kept.contains(session.as_str()) || self.has_work(&session).await {
                continue;
            }
            let Ok(host) = self.any_host(&session).await else {
                continue;
            };
            match self.delete_with(&mut deletion, &host).await {
                Ok(()) => deleted += 1,
                Err(problem) => {
                    let text = format!("session {session} is kept: {}", problem.detail);
                    self.0.options.notices.warn(&text);
                }
            }
        }
        self.finish_deletion(deletion).await;
        Ok(deleted)
    }

    /// Whether a session has prompts or asks that wait.
    async fn has_work(&self, session: &SessionId) -> bool {
        match self.overview(session, None).await {
            Ok(overview) => !overview.asks.is_empty() || overview.queue.first().is_some(),
            Err(_) => true,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use windlass::Environment;
    use windlass::core::message::Message;
    use windlass::core::runtime::RunMode;
    use windlass::engine::{Delivery, OpenSession, QueueRequest};
    use windlass::wire::session_engine;

    use super::*;
    use crate::service::ServiceOptions;

    #[tokio::test(flavor = "multi_thread")]
    async fn old_sessions_are_deleted_except_those_with_work() {
        let home = tempfile::tempdir().unwrap();
        let environment = Environment::empty().with("HOME", home.path());
        let options = ServiceOptions {
            run_queued: false,
            ..ServiceOptions::new(environment, home.path())
        };
        let service = Service::open(options).await.unwrap();
        let settings = service.settings(None).unwrap();
        let engine = session_engine(&settings).unwrap();
        let open = async || {
            engine
                .open(OpenSession::New, RunMode::Analysis)
                .await
                .unwrap()
        };
        let [idle, queued] = [open().await, open().await];
        let ids = [idle.id().clone(), queued.id().clone()];
        let prompt = QueueRequest::new(Message::user("later"), Delivery::FollowUp);
        queued.queue_request(prompt).await.unwrap();
        drop((idle, queued));
        let held = open().await;
        let exists = |id: &SessionId| service.0.store.log_path(id).exists();
        let delete = async |at: i64| {
            let now = SystemClock::new().now().as_millis();
            service
                .delete_old_sessions(Timestamp::from_millis(now + at))
                .await
                .unwrap()
        };
        assert_eq!(
            delete(-60_000).await,
            0,
            "no session is older than a minute"
        );
        assert_eq!(delete(60_000).await, 1);
        assert_eq!(
            [exists(&ids[0]), exists(&ids[1]), exists(held.id())],
            [false, true, true]
        );
        service.close().await;
    }
}
