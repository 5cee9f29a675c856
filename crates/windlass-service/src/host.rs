//! One session of a service: its events, and the only place of this process that writes its log.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use windlass::core::ask::Answer;
use windlass::core::event::EventKind;
use windlass::core::id::{AskId, SessionId};
use windlass::core::pause::PauseReason;
use windlass::core::runtime::RunMode;
use windlass::engine::{Delivery, OpenSession, QueueRequest, Session};
use windlass::wire;

use crate::live::{LiveSession, SessionEvents};
use crate::local::LocalRequest;
use crate::local_client::RemoteSession;
use crate::problem::{Problem, ProblemCode};
use crate::service::Service;

/// Time that other users of a session's writer have to finish when the session closes.
const RELEASE_STEPS: u32 = 2_000;

/// A session that readers or runs use.
pub(crate) struct SessionHost {
    pub(crate) id: SessionId,
    pub(crate) workspace: PathBuf,
    pub(crate) events: Arc<SessionEvents>,
    /// Held while the log is opened, written between runs, or closed.
    pub(crate) opening: tokio::sync::Mutex<()>,
    live: Mutex<Option<Arc<LiveSession>>>,
    /// A task follows the live events of a run in another process.
    remote: AtomicBool,
}

/// The process that writes a session.
pub(crate) enum SessionWriter {
    /// A run of this process is in progress.
    Live(Arc<LiveSession>),
    /// This process opened the log for one operation between runs.
    Idle(Session),
    /// Another process holds the log and takes operations.
    Remote(RemoteSession),
}

impl SessionHost {
    pub(crate) fn new(id: SessionId, workspace: PathBuf) -> Self {
        Self {
            id,
            workspace,
            events: Arc::default(),
            opening: tokio::sync::Mutex::default(),
            live: Mutex::default(),
            remote: AtomicBool::new(false),
        }
    }

    /// The session, if a run of this process has it open.
    pub(crate) fn live(&self) -> Option<Arc<LiveSession>> {
        self.live.lock().clone()
    }

    pub(crate) fn set_live(&self, live: Arc<LiveSession>) {
        *self.live.lock() = Some(live);
    }

    /// Waits until a session whose run has ended is closed, so that an operation right after the end of a run succeeds.
    pub(crate) async fn settled(&self) {
        for _ in 0..RELEASE_STEPS {
            if self.live().is_none_or(|live| live.current_run().is_some()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Closes the session, so that its log can be opened again as soon as this returns.
    pub(crate) async fn close_live(&self, mut live: Arc<LiveSession>) {
        let _opening = self.opening.lock().await;
        *self.live.lock() = None;
        // An operation that began before may still use the session for a moment.
        for _ in 0..RELEASE_STEPS {
            match Arc::try_unwrap(live) {
                Ok(_) => break,
                Err(shared) => live = shared,
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.events.ring.touch();
    }

    /// Runs one operation with the writer of the session: that of the run in progress, one that is opened for this
    /// operation, or another process.
    pub(crate) async fn with_writer<T, F>(
        &self,
        service: &Service,
        operation: impl FnOnce(SessionWriter) -> F,
    ) -> Result<T, Problem>
    where
        F: Future<Output = Result<T, Problem>>,
    {
        if let Some(live) = self.live() {
            return operation(SessionWriter::Live(live)).await;
        }
        let opening = self.opening.lock().await;
        if let Some(live) = self.live() {
            drop(opening);
            return operation(SessionWriter::Live(live)).await;
        }
        let settings = service.settings(None)?;
        let engine = wire::session_engine(&settings)?;
        let opened = engine
            .open(OpenSession::Resume(self.id.clone()), RunMode::Analysis)
            .await;
        let session = match opened.map_err(Problem::from) {
            Ok(session) => session,
            Err(problem) if problem.is(ProblemCode::Locked) => {
                drop(opening);
                return match RemoteSession::connect(&service.0.store, &self.id).await {
                    Some(remote) => operation(SessionWriter::Remote(remote)).await,
                    None => Err(problem),
                };
            }
            Err(problem) => return Err(problem),
        };
        let done = operation(SessionWriter::Idle(session)).await;
        drop(opening);
        self.events.ring.touch();
        done
    }
}

impl SessionHost {
    /// Whether another process holds the session and takes operations.
    pub(crate) fn is_held_elsewhere(&self, service: &Service) -> bool {
        self.live().is_none() && service.0.store.is_written(&self.id)
    }

    /// Registers the task that follows a run in another process. Returns false if there is one already.
    pub(crate) fn begin_remote(&self) -> bool {
        !self.remote.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_remote(&self) {
        self.remote.store(false, Ordering::Release);
    }

    /// Queues a prompt. It is durable when this returns. Returns the number of its event.
    pub(crate) async fn queue(
        &self,
        service: &Service,
        request: QueueRequest,
    ) -> Result<u64, Problem> {
        self.with_writer(service, |writer| async move {
            match writer {
                SessionWriter::Live(live) => live.queue(request).await,
                SessionWriter::Idle(session) => Ok(session.queue_request(request).await?),
                SessionWriter::Remote(mut remote) => {
                    let request = LocalRequest::Queue {
                        steer: request.when == Delivery::Steer,
                        prompt: request.prompt,
                        flags: request.flags,
                        by: request.by,
                        key: request.key,
                    };
                    let seq = remote.call(&request).await?;
                    Ok(seq.as_u64().unwrap_or_default())
                }
            }
        })
        .await
    }

    /// Changes the order of the queued prompts.
    pub(crate) async fn reorder_queue(
        &self,
        service: &Service,
        order: Vec<u64>,
    ) -> Result<(), Problem> {
        self.with_writer(service, |writer| async move {
            match writer {
                SessionWriter::Live(live) => live.reorder_queue(order).await.map(drop),
                SessionWriter::Idle(session) => Ok(session.reorder_queue(order).await.map(drop)?),
                SessionWriter::Remote(mut remote) => remote
                    .call(&LocalRequest::Reorder { order })
                    .await
                    .map(drop),
            }
        })
        .await
    }

    /// Cancels the run in progress, or closes a run that waits or is paused, and clears the queue.
    pub(crate) async fn cancel(&self, service: &Service) -> Result<(), Problem> {
        self.with_writer(service, |writer| async move {
            match writer {
                SessionWriter::Live(live) => {
                    live.cancel();
                    Ok(())
                }
                SessionWriter::Idle(session) => {
                    let (paused, queued) = session.with_history(|history| {
                        let paused = history.is_paused() || history.waits();
                        (paused, !history.queue().all().is_empty())
                    });
                    if paused {
                        session.close_paused().await?;
                    } else if queued {
                        session.reorder_queue(Vec::new()).await?;
                    }
                    Ok(())
                }
                SessionWriter::Remote(mut remote) => {
                    remote.call(&LocalRequest::Cancel {}).await.map(drop)
                }
            }
        })
        .await
    }

    /// Pauses the run in progress at its next safe point.
    pub(crate) async fn pause(
        &self,
        service: &Service,
        reason: PauseReason,
    ) -> Result<(), Problem> {
        self.with_writer(service, |writer| async move {
            match writer {
                SessionWriter::Live(live) => {
                    live.pause(reason, false);
                    Ok(())
                }
                SessionWriter::Idle(_) => Err(Problem::new(
                    ProblemCode::Conflict,
                    "no run is in progress in this session",
                )),
                SessionWriter::Remote(mut remote) => {
                    remote.call(&LocalRequest::Pause { reason }).await.map(drop)
                }
            }
        })
        .await
    }

    /// Answers an ask of a run in progress, here or in another process. Returns false if no process drives the run.
    pub(crate) async fn answer(
        &self,
        service: &Service,
        ask: &AskId,
        answer: Answer,
        who: Option<String>,
    ) -> Result<bool, Problem> {
        if let Some(live) = self.live() {
            live.answer(ask, answer, who)?;
            return Ok(true);
        }
        if !self.is_held_elsewhere(service) {
            return Ok(false);
        }
        let Some(mut remote) = RemoteSession::connect(&service.0.store, &self.id).await else {
            return Ok(false);
        };
        let request = LocalRequest::Answer {
            ask: ask.clone(),
            answer,
            who,
        };
        remote.call(&request).await?;
        Ok(true)
    }

    /// Starts the conversation anew.
    pub(crate) async fn clear_conversation(&self, service: &Service) -> Result<(), Problem> {
        self.between_runs(service, |session| async move {
            session.clear().await?;
            Ok(())
        })
        .await
    }

    /// Adds a line to the notes of the session.
    pub(crate) async fn add_note(&self, service: &Service, line: &str) -> Result<(), Problem> {
        self.between_runs(service, |session| async move {
            session.add_note(line).await?;
            Ok(())
        })
        .await
    }

    /// Removes a prompt that cannot run from the queue, and says why in the log.
    pub(crate) async fn refuse_prompt(
        &self,
        service: &Service,
        seq: u64,
        problem: &Problem,
    ) -> Result<(), Problem> {
        let mut text = format!("the queued prompt {seq} cannot run: {}", problem.detail);
        if let Some(hint) = &problem.hint {
            text.push_str(&format!("; {hint}"));
        }
        self.between_runs(service, |session| async move {
            let order = session.with_history(|history| {
                let all = history.queue().all().iter().map(|one| one.seq);
                all.filter(|one| *one != seq).collect()
            });
            session.reorder_queue(order).await?;
            session
                .note(EventKind::warned("prompt_refused", text))
                .await?;
            Ok(())
        })
        .await
    }

    /// Runs an operation that is possible only while no run is in progress.
    async fn between_runs<F>(
        &self,
        service: &Service,
        operation: impl FnOnce(Session) -> F,
    ) -> Result<(), Problem>
    where
        F: Future<Output = Result<(), Problem>>,
    {
        self.settled().await;
        self.with_writer(service, |writer| async move {
            match writer {
                SessionWriter::Idle(session) => operation(session).await,
                SessionWriter::Live(_) | SessionWriter::Remote(_) => Err(Problem::new(
                    ProblemCode::Conflict,
                    "a run is in progress in this session",
                )
                .hint("wait for its end, or cancel it")),
            }
        })
        .await
    }
}
