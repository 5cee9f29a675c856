//! The driver of foreign agents. It knows no protocol and does everything else: it spawns the program, reads and writes
//! its lines, collects messages, has each call judged once, answers each request once, runs Windlass tools, interrupts
//! the program with a grace period, and ends it after the turn (`turn`). A [`Dialogue`] decides what a line means.

mod turn;

use windlass_core::BoxFuture;
use windlass_core::enclosure::Launch;
use windlass_core::runtime::RuntimeError;

use self::turn::TurnDriver;
use crate::agent::{AgentAnswer, AgentAttempt, CANCEL_GRACE, TurnEndReason, full_prompt};
use crate::dialogue::{Dialogue, TurnResult};
use crate::peer::AgentPeer;
use crate::services::ClientServices;

/// The error of a program that reports an unknown session although it was asked to start a new one.
const UNKNOWN_SESSION: &str =
    "the agent reports an unknown conversation, but none was to be resumed";

/// A running program with its protocol. It may outlive a turn.
pub(crate) struct Conversation<D> {
    pub(crate) dialogue: Box<D>,
    peer: AgentPeer,
    services: ClientServices,
    /// Skipped lines that the user was warned about.
    reported_skipped: u64,
    /// The stdin of the program is closed, so that it cannot take another prompt.
    stdin_closed: bool,
}

impl<D: Dialogue> Conversation<D> {
    pub(crate) fn new(dialogue: D, peer: AgentPeer) -> Self {
        Self {
            dialogue: Box::new(dialogue),
            peer,
            services: ClientServices::default(),
            reported_skipped: 0,
            stdin_closed: false,
        }
    }

    /// Sends a prompt and follows the program to the end of its answer. A program that cannot take another prompt has
    /// exited when this returns.
    pub(crate) async fn turn(
        &mut self,
        attempt: &AgentAttempt<'_>,
        prompt: String,
    ) -> Result<TurnResult, RuntimeError> {
        let (dialogue, peer) = (self.dialogue.as_mut(), &mut self.peer);
        let mut turn = TurnDriver::new(attempt, dialogue, peer, &self.services);
        let ended = turn.follow(prompt).await?;
        let ended = turn.finish(ended).await?;
        let (unknown, cancelled) = (turn.unknown, turn.cancelled);
        drop(turn);
        let ended = self.with_stderr(ended).await;
        self.services.close(attempt.job.processes.as_ref()).await;
        // A program that answers before it has read all input is out of sync and cannot be reused.
        self.stdin_closed = self.dialogue.exits_at_eof()
            || (self.dialogue.accepts_prompt() && !self.peer.is_flushed());
        if self.stdin_closed {
            // The program saves its conversation before it exits.
            let grace = if cancelled {
                CANCEL_GRACE / 4
            } else {
                CANCEL_GRACE * 4
            };
            self.peer.end(attempt.clock, grace).await;
        }
        self.warn_about_skipped_lines(attempt, unknown).await?;
        Ok(ended)
    }

    /// Appends the last standard error output of the program to the reason of the failure, unless the reason contains
    /// it.
    async fn with_stderr(&mut self, mut ended: TurnResult) -> TurnResult {
        let TurnResult::Answered(AgentAnswer {
            end: TurnEndReason::Broken(why),
            ..
        }) = &mut ended
        else {
            return ended;
        };
        self.peer.drain_stderr().await;
        let stderr = self.peer.stderr_tail();
        if !stderr.is_empty() && !why.contains(&stderr) {
            why.push_str(&format!("; end of its standard error: {stderr}"));
        }
        ended
    }

    async fn warn_about_skipped_lines(
        &mut self,
        attempt: &AgentAttempt<'_>,
        unknown: u64,
    ) -> Result<(), RuntimeError> {
        let all = self.peer.skipped_lines();
        let unread = all.saturating_sub(std::mem::replace(&mut self.reported_skipped, all));
        if unread == 0 && unknown == 0 {
            return Ok(());
        }
        let (code, text) = self.dialogue.skipped_lines_warning(unread, unknown);
        attempt.warn(code, text).await
    }
}

/// A conversation with a spawned program, or the reason why the spawn failed.
pub(crate) type Started<D> = Result<Conversation<D>, String>;

/// Spawns a program in the enclosure of the attempt.
pub(crate) async fn start(
    attempt: &AgentAttempt<'_>,
    launch: Result<Launch, String>,
    program: &str,
) -> Result<AgentPeer, String> {
    let failed = |why: String| format!("cannot start `{program}`: {why}");
    let started = attempt.enclosure.start(launch.map_err(failed)?).await;
    started
        .map(AgentPeer::new)
        .map_err(|err| failed(err.to_string()))
}

/// Sends a prompt to a program that takes several prompts. The program is kept for the next prompt while it completes
/// each one.
pub(crate) async fn run_turn_and_keep<D: Dialogue + 'static>(
    attempt: &AgentAttempt<'_>,
    running: Started<D>,
    prompt: &str,
) -> Result<AgentAnswer, RuntimeError> {
    let mut running = match running {
        Ok(running) => running,
        Err(why) => return Ok(broken(why)),
    };
    match running.turn(attempt, prompt.to_owned()).await? {
        TurnResult::Answered(answer) => {
            if answer.end == TurnEndReason::Done {
                attempt.keep_running(running);
            }
            Ok(answer)
        }
        TurnResult::SessionLost => Ok(broken(UNKNOWN_SESSION.to_owned())),
    }
}

/// Sends a prompt to the kept program, or to a new process. A new process resumes the conversation `resume`. If the
/// program has lost that conversation, a second process starts a new one, and its prompt contains a digest of the log.
/// `start` spawns the program for a conversation to resume and a prompt. A program that takes another prompt is kept.
pub(crate) async fn run_turn<'a, D: Dialogue + 'static>(
    attempt: &'a AgentAttempt<'a>,
    resume: Option<String>,
    prompt: &str,
    start: impl Fn(Option<String>, String) -> BoxFuture<'a, Started<D>> + Send,
) -> Result<AgentAnswer, RuntimeError> {
    let (mut resume, mut prompt) = (resume, prompt.to_owned());
    for is_second_try in [false, true] {
        let started = match attempt.take_kept() {
            Some(kept) => Ok(kept),
            None => start(resume.take(), prompt.clone()).await,
        };
        let mut conversation: Conversation<D> = match started {
            Ok(conversation) => conversation,
            Err(why) => return Ok(broken(why)),
        };
        match conversation.turn(attempt, prompt.clone()).await? {
            TurnResult::Answered(answer) => {
                if conversation.dialogue.accepts_prompt() && !conversation.stdin_closed {
                    attempt.keep_running(conversation);
                }
                return Ok(answer);
            }
            TurnResult::SessionLost if is_second_try => break,
            TurnResult::SessionLost => {}
        }
        let warning = conversation.dialogue.lost_session_warning();
        drop(conversation);
        attempt.warn("session_lost", warning).await?;
        prompt = full_prompt(attempt, &prompt);
    }
    Ok(broken(UNKNOWN_SESSION.to_owned()))
}

fn broken(why: String) -> AgentAnswer {
    AgentAnswer {
        text: String::new(),
        output: None,
        end: TurnEndReason::Broken(why),
    }
}
