//! The driver of foreign agents: it knows no protocol, and owns everything else. It starts the program, reads and writes
//! its lines, gathers messages, has every call judged once and answers every request once, runs our tools, interrupts the
//! program and gives it its grace, and ends it when the turn is over (`turn`). What a line means is decided by a
//! [`Dialogue`].

mod turn;

use windlass_core::BoxFuture;
use windlass_core::enclosure::Launch;
use windlass_core::runtime::RuntimeError;

use self::turn::Turn;
use crate::agent::{AgentAttempt, Answer, CANCEL_GRACE, End, told_anew};
use crate::dialogue::{Dialogue, Ended};
use crate::peer::Peer;
use crate::services::ClientServices;

/// Why a program is broken that forgot what it was never told.
const UNASKED: &str = "it says that it does not know a conversation that it was not asked for";

/// A program that runs, with its protocol. It may outlive a turn.
pub(crate) struct Conversation<D> {
    pub(crate) dialogue: Box<D>,
    peer: Peer,
    services: ClientServices,
    /// Unread lines that were warned about.
    warned: u64,
    /// The program was told that nothing more comes.
    over: bool,
}

impl<D: Dialogue> Conversation<D> {
    pub(crate) fn new(dialogue: D, peer: Peer) -> Self {
        Self {
            dialogue: Box::new(dialogue),
            peer,
            services: ClientServices::default(),
            warned: 0,
            over: false,
        }
    }

    /// Says a prompt and follows the program to the end of its answer. A program that cannot take another prompt has
    /// ended when this returns.
    pub(crate) async fn turn(
        &mut self,
        attempt: &AgentAttempt<'_>,
        prompt: String,
    ) -> Result<Ended, RuntimeError> {
        let (dialogue, peer) = (self.dialogue.as_mut(), &mut self.peer);
        let mut turn = Turn::new(attempt, dialogue, peer, &self.services);
        let ended = turn.follow(prompt).await?;
        let ended = turn.finish(ended).await?;
        let (unknown, cancelled) = (turn.unknown, turn.cancelled);
        drop(turn);
        let ended = self.with_complaint(ended).await;
        self.services.close(attempt.job.processes.as_ref()).await;
        // One that answered before it read everything is no longer in step.
        self.over = self.dialogue.ends_with_input()
            || (self.dialogue.takes_another() && !self.peer.is_flushed());
        if self.over {
            // It writes down what it remembers before it exits.
            let grace = if cancelled {
                CANCEL_GRACE / 4
            } else {
                CANCEL_GRACE * 4
            };
            self.peer.end(attempt.clock, grace).await;
        }
        self.warn_of_unread(attempt, unknown).await?;
        Ok(ended)
    }

    /// Adds what the program wrote to standard error last to the reason why it is broken, unless the reason has it.
    async fn with_complaint(&mut self, mut ended: Ended) -> Ended {
        let Ended::Answered(Answer {
            end: End::Broken(why),
            ..
        }) = &mut ended
        else {
            return ended;
        };
        self.peer.hear_complaint().await;
        let complaint = self.peer.complaint();
        if !complaint.is_empty() && !why.contains(&complaint) {
            why.push_str(&format!("; the last on its standard error: {complaint}"));
        }
        ended
    }

    async fn warn_of_unread(
        &mut self,
        attempt: &AgentAttempt<'_>,
        unknown: u64,
    ) -> Result<(), RuntimeError> {
        let all = self.peer.unread();
        let unread = all.saturating_sub(std::mem::replace(&mut self.warned, all));
        if unread == 0 && unknown == 0 {
            return Ok(());
        }
        let (code, text) = self.dialogue.unread_warning(unread, unknown);
        attempt.warn(code, text).await
    }
}

/// A conversation with a program that was started, or why it was not.
pub(crate) type Started<D> = Result<Conversation<D>, String>;

/// Starts a program in the enclosure of the attempt; in words, why it could not be started.
pub(crate) async fn start(
    attempt: &AgentAttempt<'_>,
    launch: Result<Launch, String>,
    program: &str,
) -> Result<Peer, String> {
    let failed = |why: String| format!("`{program}` could not be started: {why}");
    let started = attempt.enclosure.start(launch.map_err(failed)?).await;
    started
        .map(Peer::new)
        .map_err(|err| failed(err.to_string()))
}

/// One prompt to a program that takes the next one, too: it is kept for as long as it is done with each.
pub(crate) async fn stay<D: Dialogue + 'static>(
    attempt: &AgentAttempt<'_>,
    running: Started<D>,
    prompt: &str,
) -> Result<Answer, RuntimeError> {
    let mut running = match running {
        Ok(running) => running,
        Err(why) => return Ok(broken(why)),
    };
    match running.turn(attempt, prompt.to_owned()).await? {
        Ended::Answered(answer) => {
            if answer.end == End::Done {
                attempt.keep_running(running);
            }
            Ok(answer)
        }
        Ended::Forgotten => Ok(broken(UNASKED.to_owned())),
    }
}

/// One prompt to the program that was kept, or to one that is started: in the conversation `resume` or, where the program
/// forgot it, in a new one that is told what was said before. `start` starts the program, for a conversation to resume and
/// a prompt. It is kept where it takes another prompt.
pub(crate) async fn one_turn<'a, D: Dialogue + 'static>(
    attempt: &'a AgentAttempt<'a>,
    resume: Option<String>,
    prompt: &str,
    start: impl Fn(Option<String>, String) -> BoxFuture<'a, Started<D>> + Send,
) -> Result<Answer, RuntimeError> {
    let (mut resume, mut prompt) = (resume, prompt.to_owned());
    for anew in [false, true] {
        let started = match attempt.take_kept() {
            Some(kept) => Ok(kept),
            None => start(resume.take(), prompt.clone()).await,
        };
        let mut conversation: Conversation<D> = match started {
            Ok(conversation) => conversation,
            Err(why) => return Ok(broken(why)),
        };
        match conversation.turn(attempt, prompt.clone()).await? {
            Ended::Answered(answer) => {
                if conversation.dialogue.takes_another() && !conversation.over {
                    attempt.keep_running(conversation);
                }
                return Ok(answer);
            }
            Ended::Forgotten if anew => break,
            Ended::Forgotten => {}
        }
        let warning = conversation.dialogue.forgot_warning();
        drop(conversation);
        attempt.warn("session_lost", warning).await?;
        prompt = told_anew(attempt, &prompt);
    }
    Ok(broken(UNASKED.to_owned()))
}

fn broken(why: String) -> Answer {
    Answer {
        text: String::new(),
        output: None,
        end: End::Broken(why),
    }
}
