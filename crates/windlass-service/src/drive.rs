//! Runs the work of sessions: queued prompts, paused runs, answers and landings. One task drives one session; the events go
//! to the readers, and the end of a run frees its slot.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use windlass::core::ask::{About, Answer, Ask};
use windlass::core::event::EventKind;
use windlass::core::flags::SavedFlags;
use windlass::core::id::{AskId, RunId, SessionId};
use windlass::core::message::Message;
use windlass::core::overview::SessionOverview;
use windlass::core::pause::PauseReason;
use windlass::core::terms::Isolation;
use windlass::engine::{Delivery, QueueRequest, RunHandle, RunOptions};
use windlass::flags::{AgentFlags, LimitFlags, RunFlags};
use windlass::notifications::{Channels, RunNotifications};
use windlass::settings::Settings;
use windlass::telemetry::Telemetry;
use windlass::{
    OpenRequest, OpenedSession, SessionSelector, options_for, prepare, prepare_landing,
    resume_options,
};

use crate::access::Caller;
use crate::host::SessionHost;
use crate::left_work::is_paused_for_shutdown;
use crate::live::LiveSession;
use crate::local::LocalChannel;
use crate::problem::{Problem, ProblemCode};
use crate::run_request::{QueuedOptions, RunRequest};
use crate::scheduler::FairKey;
use crate::service::{Service, open_root};
use crate::spending::micros;

/// The prompt of a run that continues another one, if the client gives none.
pub(crate) const CONTINUE_PROMPT: &str = "Continue the task where you stopped.";
/// Time that a run waits for a client that could answer, before it pauses and frees its slot.
const UNATTENDED_WAIT: Duration = Duration::from_secs(2);
/// Time that a run waits for an answer while a client follows it.
const ATTENDED_WAIT: Duration = Duration::from_secs(300);

/// Work for a session that is not a queued prompt.
pub(crate) enum SessionWork {
    /// Resumes a run that was paused.
    ResumePaused,
    /// Answers the ask at which a run paused.
    Answer {
        ask: AskId,
        answer: Answer,
        who: Option<String>,
    },
    /// Checks a kept run again and lands it.
    Land { name: String, flags: Box<RunFlags> },
}

/// A session that is open for runs.
struct OpenedForRun {
    channel: Option<LocalChannel>,
    live: Arc<LiveSession>,
    options: RunOptions,
    settings: Settings,
    telemetry: Telemetry,
    notifications: RunNotifications,
    flags: SavedFlags,
}

impl Service {
    /// Lets the queued prompts of a session run when it is its turn.
    pub(crate) fn schedule(
        &self,
        host: &SessionHost,
        token: Option<String>,
    ) -> Result<(), Problem> {
        let key: FairKey = (host.workspace.clone(), token);
        self.0.scheduler.enqueue(key, host.id.clone())?;
        self.start_waiting();
        Ok(())
    }

    /// Starts waiting sessions while slots are free.
    fn start_waiting(&self) {
        while let Some(session) = self.0.scheduler.take() {
            let service = self.clone();
            self.0.tasks.spawn(async move {
                let ran = Box::pin(service.run_queue(&session)).await;
                service.end_session(&session, ran).await;
            });
        }
    }

    async fn end_session(&self, session: &SessionId, ran: Result<(), Problem>) {
        if let Err(problem) = ran {
            let text = format!("session {session}: {}", problem.detail);
            self.0.options.notices.warn(&text);
        }
        self.unmark_work(session).await;
        self.0.scheduler.finish(session);
        self.start_waiting();
    }

    /// Runs the queued prompts of a session in order.
    async fn run_queue(&self, session: &SessionId) -> Result<(), Problem> {
        let host = self.any_host(session).await?;
        loop {
            let overview = self.overview(session, None).await?;
            if is_paused_for_shutdown(&overview) {
                if self
                    .drive_work(&host, SessionWork::ResumePaused, None)
                    .await?
                    .is_none()
                {
                    return Ok(());
                }
                continue;
            }
            // A run that waits for a person keeps its session; a new prompt closes it.
            let Some(first) = overview.queue.first().cloned() else {
                return Ok(());
            };
            let options = QueuedOptions::load(&first.flags, host.workspace.clone());
            let options = match options {
                Ok(options) => options,
                Err(problem) => return self.refuse_prompt(&host, first.seq, &problem).await,
            };
            let last = (overview.runs > 0).then_some(overview.isolation);
            let opening = OpenOptions {
                isolation: options.isolation(last),
                flags: options.flags,
                kept: options.kept,
                only_land: false,
                token: first.by.clone(),
            };
            let opened = match self.open_for_runs(&host, opening).await {
                Ok(opened) => opened,
                Err(problem) if problem.is(ProblemCode::Locked) => return Err(problem),
                Err(problem) => return self.refuse_prompt(&host, first.seq, &problem).await,
            };
            if !self.run_same(&host, opened, &first.flags).await? {
                return Ok(());
            }
        }
    }

    /// Runs queued prompts with the same options in one open session. Returns whether the session may go on.
    async fn run_same(
        &self,
        host: &Arc<SessionHost>,
        mut opened: OpenedForRun,
        flags: &SavedFlags,
    ) -> Result<bool, Problem> {
        opened.flags = flags.clone();
        let mut more = true;
        loop {
            let next = opened
                .live
                .session
                .with_history(|history| history.queue().first().cloned());
            let Some(next) = next.filter(|next| next.flags == opened.flags) else {
                break;
            };
            let options = options_for(&opened.options, &next.prompt);
            let started = opened.live.session.run_queued_prompt(next.seq, options);
            let handle = match started {
                Ok(Some(handle)) => handle,
                Ok(None) => break,
                Err(err) => {
                    self.close_after_runs(host, opened).await;
                    return Err(err.into());
                }
            };
            opened.options.contract.kept = None;
            more = self.follow(host, &mut opened, handle, None).await;
            if !more || self.0.scheduler.is_stopped() {
                more = false;
                break;
            }
            // The reservation of the next run must be its own.
            if self.reserve_next(host, &mut opened).await.is_err() {
                more = false;
                break;
            }
        }
        self.close_after_runs(host, opened).await;
        Ok(more)
    }

    /// Removes a prompt that cannot run from the queue, and says why in the log.
    async fn refuse_prompt(
        &self,
        host: &Arc<SessionHost>,
        seq: u64,
        problem: &Problem,
    ) -> Result<(), Problem> {
        self.0.metrics.refused();
        host.refuse_prompt(self, seq, problem).await
    }

    /// Starts work that a client waits for. Returns the run once its first event is in the log.
    pub(crate) async fn start_work(
        &self,
        host: Arc<SessionHost>,
        work: SessionWork,
        caller: &Caller,
    ) -> Result<RunId, Problem> {
        if !self.0.scheduler.take_for(&host.id)? {
            return Err(Problem::new(
                ProblemCode::Conflict,
                "a run is in progress in this session",
            )
            .hint("wait for its end, or cancel it"));
        }
        let (begun, first) = oneshot::channel();
        let (service, token) = (self.clone(), caller.token.clone());
        self.0.tasks.spawn(async move {
            let session = host.id.clone();
            let ran = service.drive_begun(&host, work, token, begun).await;
            // Prompts that were queued meanwhile follow.
            let ran = match ran {
                Ok(true) => Box::pin(service.run_queue(&session)).await,
                other => other.map(drop),
            };
            service.end_session(&session, ran).await;
        });
        match first.await {
            Ok(begun) => begun,
            Err(_) => Err(Problem::new(ProblemCode::Internal, "the run did not start")),
        }
    }

    async fn drive_begun(
        &self,
        host: &Arc<SessionHost>,
        work: SessionWork,
        token: Option<String>,
        begun: oneshot::Sender<Result<RunId, Problem>>,
    ) -> Result<bool, Problem> {
        match self.begin_work(host, work, token).await {
            Ok((mut opened, handle)) => {
                let more = self.follow(host, &mut opened, handle, Some(begun)).await;
                self.close_after_runs(host, opened).await;
                Ok(more)
            }
            Err(problem) => {
                let _ = begun.send(Err(problem));
                Ok(false)
            }
        }
    }

    /// Does work in a slot that is taken already. Returns `None` if the run paused.
    async fn drive_work(
        &self,
        host: &Arc<SessionHost>,
        work: SessionWork,
        token: Option<String>,
    ) -> Result<Option<()>, Problem> {
        let (mut opened, handle) = self.begin_work(host, work, token).await?;
        let more = self.follow(host, &mut opened, handle, None).await;
        self.close_after_runs(host, opened).await;
        Ok(more.then_some(()))
    }

    async fn begin_work(
        &self,
        host: &Arc<SessionHost>,
        work: SessionWork,
        token: Option<String>,
    ) -> Result<(OpenedForRun, RunHandle), Problem> {
        let opening = match &work {
            SessionWork::Land { name, flags } => OpenOptions {
                isolation: Isolation::Isolated,
                flags: (**flags).clone(),
                kept: Some(name.clone()),
                only_land: true,
                token,
            },
            SessionWork::ResumePaused | SessionWork::Answer { .. } => {
                let overview = self.overview(&host.id, None).await?;
                resumed_options(&overview, &host.workspace, token)?
            }
        };
        let opened = self.open_for_runs(host, opening).await?;
        let session = &opened.live.session;
        let started = match work {
            SessionWork::Land { name, .. } => {
                let prompt = Message::user(format!("Land the kept run {name}."));
                session.run(prompt, opened.options.clone())
            }
            SessionWork::ResumePaused => {
                session.resume_paused(resume_options(&opened.options, session))
            }
            SessionWork::Answer { ask, answer, who } => {
                let options = resume_options(&opened.options, session);
                session.answer_as(&ask, answer, who, options)
            }
        };
        match started {
            Ok(handle) => Ok((opened, handle)),
            Err(err) => {
                self.close_after_runs(host, opened).await;
                Err(err.into())
            }
        }
    }

    /// Opens a session for runs with these options.
    async fn open_for_runs(
        &self,
        host: &Arc<SessionHost>,
        opening: OpenOptions,
    ) -> Result<OpenedForRun, Problem> {
        let _opening = host.opening.lock().await;
        let OpenOptions {
            isolation,
            flags,
            kept,
            only_land,
            token,
        } = opening;
        let flags = self.with_own_flags(&flags)?;
        let before = self.total_cost(&host.id).await?;
        let workspace = host.workspace.clone();
        let service = self.clone();
        let prepared = tokio::task::spawn_blocking({
            let flags = flags.clone();
            move || {
                let root = open_root(&workspace)?;
                let settings = service.settings(Some(&workspace))?;
                Ok::<_, Problem>(match only_land {
                    true => prepare_landing(root, settings),
                    false => prepare(root, settings, &flags)?,
                })
            }
        });
        let prepared = prepared
            .await
            .map_err(|_| Problem::new(ProblemCode::Internal, "the run could not be prepared"))??;
        let isolated = isolation.is_isolated() || prepared.needs_copy();
        let opened = prepared
            .open(OpenRequest {
                which: SessionSelector::Named(host.id.clone()),
                isolation: Isolation::from_flag(isolated),
                kept,
                only_land,
                can_answer: flags.agent.on_ask.is_none(),
                ..OpenRequest::new(flags)
            })
            .await?;
        let OpenedSession {
            session,
            settings,
            mut options,
            telemetry,
            ..
        } = opened;
        // The service decides how long a run waits: it pauses and frees its slot.
        options.ask_timeout = None;
        let budget = self.budget_of(token.as_deref());
        let token = token.as_deref().map(|name| (name, budget));
        options.budget.cost_micros =
            self.0
                .spending
                .reserve(&host.id, token, options.budget.cost_micros, before)?;
        let live = Arc::new(LiveSession::with_events(
            Arc::new(session),
            host.events.clone(),
            Some(self.0.feed.clone()),
        ));
        host.set_live(live.clone());
        // Opening may have logged repairs.
        host.events.ring.touch();
        // Without a channel, the session works as before, but other processes cannot reach it.
        let channel = LocalChannel::open(&self.0.store, &live).ok();
        let notifications =
            RunNotifications::open(&settings, &self.0.notifier, &host.workspace, Channels::All);
        Ok(OpenedForRun {
            channel,
            live,
            notifications,
            options,
            settings,
            telemetry,
            flags: SavedFlags::default(),
        })
    }

    fn budget_of(&self, token: Option<&str>) -> Option<u64> {
        self.0.tokens.named(token?)?.budget_usd.map(micros)
    }

    /// Settles the finished run and reserves the cost of the next one in the same session.
    async fn reserve_next(
        &self,
        host: &Arc<SessionHost>,
        opened: &mut OpenedForRun,
    ) -> Result<(), Problem> {
        let next = opened.live.session.with_history(|history| {
            (
                history.queue().first().cloned(),
                history.total().cost_micros,
            )
        });
        let (Some(next), before) = next else {
            return Ok(());
        };
        let budget = self.budget_of(next.by.as_deref());
        let token = next.by.as_deref().map(|name| (name, budget));
        let wanted = opened
            .settings
            .budget()
            .ok()
            .and_then(|budget| budget.cost_micros);
        opened.options.budget.cost_micros =
            self.0.spending.reserve(&host.id, token, wanted, before)?;
        Ok(())
    }

    async fn close_after_runs(&self, host: &Arc<SessionHost>, opened: OpenedForRun) {
        let OpenedForRun { channel, live, .. } = opened;
        // The channel ends before the log is free: the next holder makes one of its own.
        drop(channel);
        // A reservation without a run has spent nothing.
        if let Err(problem) = self.0.spending.settle(&host.id, 0) {
            self.0.options.notices.warn(&problem.detail);
        }
        host.close_live(live).await;
    }

    /// Passes the events of a run to the readers until its end. Returns false if the run paused.
    async fn follow(
        &self,
        host: &Arc<SessionHost>,
        opened: &mut OpenedForRun,
        mut handle: RunHandle,
        mut begun: Option<oneshot::Sender<Result<RunId, Problem>>>,
    ) -> bool {
        let live = opened.live.clone();
        live.connect(&handle);
        self.0.metrics.started();
        let mut waiting: Option<(Ask, tokio::time::Instant)> = None;
        let mut asks: Vec<Ask> = live.session.pending();
        let (mut finished, mut begun_any, mut spent) = (false, false, 0_u64);
        loop {
            let deadline = waiting.as_ref().map(|(_, since)| {
                let wait = match host.events.has_followers() || self.0.feed.has_followers() {
                    true => ATTENDED_WAIT,
                    false => UNATTENDED_WAIT,
                };
                *since + wait
            });
            let event = tokio::select! {
                biased;
                event = handle.next() => event,
                () = until(deadline) => {
                    // The ask stays open in the log, and any client can answer it later.
                    handle.pause(PauseReason::Requested);
                    waiting = None;
                    continue;
                }
            };
            let Some(event) = event else { break };
            begun_any = true;
            if let Some(begun) = begun.take_if(|_| event.order.seq().is_some()) {
                let _ = begun.send(Ok(handle.id().clone()));
            }
            opened.telemetry.event(&event);
            self.0.metrics.event(&event);
            match &event.kind {
                EventKind::Asked { ask } => {
                    waiting = Some((ask.clone(), tokio::time::Instant::now()));
                    asks.push(ask.clone());
                }
                EventKind::Answered { ask, answer, .. } => {
                    waiting = None;
                    if let Some(at) = asks.iter().position(|open| open.id == *ask) {
                        remember(
                            &opened.settings,
                            &host.workspace,
                            &asks.swap_remove(at),
                            answer,
                        );
                    }
                }
                EventKind::Spent { cost_micros, .. } => {
                    spent = spent.saturating_add(cost_micros.unwrap_or(0));
                }
                EventKind::RunFinished(_) => finished = true,
                _ => {}
            }
            opened.notifications.event(&event);
            live.show(&event);
        }
        live.disconnect();
        opened.telemetry.flush().await;
        if let Err(problem) = self.0.spending.settle(&host.id, spent) {
            self.0.options.notices.warn(&problem.detail);
        }
        self.0.metrics.ended();
        // A prompt that was removed from the queue at the last moment starts no run.
        finished || !begun_any
    }

    /// Closes a run whose process died. If the service is to resume such runs, a prompt on the run's copy is queued. A session
    /// that another process holds is left alone.
    async fn close_interrupted(&self, host: &Arc<SessionHost>, overview: &SessionOverview) {
        let closed = async {
            let _opening = host.opening.lock().await;
            let settings = self.settings(Some(&host.workspace))?;
            Ok::<_, Problem>(
                windlass::close_interrupted(&settings, &host.workspace, &host.id).await?,
            )
        };
        match closed.await {
            Ok(true) if self.0.options.resume_interrupted => {}
            Ok(_) => return,
            Err(problem) => {
                let text = format!("session {}: {}", host.id, problem.detail);
                return self.0.options.notices.warn(&text);
            }
        }
        let kept = overview.open.as_ref().and_then(|run| run.copy.clone());
        let request = RunRequest {
            kept: kept.filter(|_| overview.isolation.is_isolated()),
            in_place: (!overview.isolation.is_isolated()).then_some(true),
            ..RunRequest::default()
        };
        let request = QueueRequest {
            flags: overview.flags.clone().overridden_by(request.save()),
            ..QueueRequest::new(Message::user(CONTINUE_PROMPT), Delivery::FollowUp)
        };
        if let Err(problem) = host.queue(self, request).await {
            self.0.options.notices.warn(&problem.detail);
        }
    }

    /// Continues runs that an earlier process paused, and starts prompts that it queued.
    pub(crate) async fn continue_left_work(&self) -> Result<(), Problem> {
        for (session, token) in self.0.left_work()? {
            let host = match self.any_host(&session).await {
                Ok(host) => host,
                Err(problem) => {
                    if problem.is(ProblemCode::NotFound) {
                        self.0.forget_work(&session);
                    }
                    continue;
                }
            };
            let Ok(overview) = self.overview(&session, None).await else {
                continue;
            };
            let open = overview.open.as_ref();
            let is_interrupted = open.is_some_and(|run| run.pause().is_none());
            if is_interrupted && overview.asks.is_empty() {
                self.close_interrupted(&host, &overview).await;
            }
            let Ok(overview) = self.overview(&session, None).await else {
                continue;
            };
            let queued = self.0.options.run_queued && overview.queue.first().is_some();
            if is_paused_for_shutdown(&overview) || (queued && overview.asks.is_empty()) {
                self.schedule(&host, token)?;
            } else {
                self.unmark_work(&session).await;
            }
        }
        Ok(())
    }
}

/// Options for opening a session for runs.
struct OpenOptions {
    isolation: Isolation,
    flags: RunFlags,
    kept: Option<String>,
    only_land: bool,
    token: Option<String>,
}

/// The options with which the open run of a session was started.
fn resumed_options(
    overview: &SessionOverview,
    workspace: &Path,
    token: Option<String>,
) -> Result<OpenOptions, Problem> {
    let flags = RunFlags::resumed(
        overview.flags.clone(),
        &[],
        &AgentFlags::default(),
        &LimitFlags::default(),
        workspace,
    )?;
    let open = overview.open.as_ref();
    Ok(OpenOptions {
        isolation: open.map_or_else(Isolation::default, |open| open.isolation),
        flags,
        kept: None,
        only_land: false,
        token,
    })
}

/// Stores the rule of an answer `always` for later sessions of the workspace.
fn remember(settings: &Settings, workspace: &Path, ask: &Ask, answer: &Answer) {
    if let (About::Approval(approval), Answer::Always) = (&ask.about, answer)
        && let Some(rule) = &approval.always
        && let Err(error) = Settings::remember_rule(&settings.places, workspace, rule)
    {
        let text = format!("the rule applies to this session only: {error}");
        settings.notices.warn(&text);
    }
}

/// Returns at a time, or never.
async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
