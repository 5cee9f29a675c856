//! Decides which session runs next. The number of concurrent runs is bounded. Workspaces and tokens take turns, so that one
//! client with many prompts does not delay the others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;

use parking_lot::Mutex;
use windlass::core::id::SessionId;

use crate::problem::{Problem, ProblemCode};

/// Maximum number of sessions that wait for a run.
const MAX_WAITING: usize = 10_000;

/// Sessions with the same key take turns with the sessions of other keys.
pub(crate) type FairKey = (PathBuf, Option<String>);

/// The sessions that run, and those that wait for a run.
pub(crate) struct Scheduler {
    max_runs: usize,
    state: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    running: HashSet<SessionId>,
    /// The keys with waiting sessions, in the order of their turns.
    turns: VecDeque<FairKey>,
    sessions: HashMap<FairKey, VecDeque<SessionId>>,
    waiting: HashSet<SessionId>,
    stopped: bool,
}

impl Scheduler {
    pub(crate) fn new(max_runs: usize) -> Self {
        Self {
            max_runs: max_runs.max(1),
            state: Mutex::default(),
        }
    }

    /// Adds a session that has a queued prompt. A session that waits or runs already keeps its place: it looks for further
    /// prompts before it ends.
    pub(crate) fn enqueue(&self, key: FairKey, session: SessionId) -> Result<(), Problem> {
        let mut state = self.state.lock();
        if state.running.contains(&session) || state.waiting.contains(&session) {
            return Ok(());
        }
        if state.waiting.len() >= MAX_WAITING {
            return Err(Problem::new(
                ProblemCode::TooManyRequests,
                format!("{MAX_WAITING} sessions wait for a run already"),
            )
            .hint("the prompt is queued in its session; send another one later to start it")
            .retry_after(60));
        }
        state.waiting.insert(session.clone());
        let queue = state.sessions.entry(key.clone()).or_default();
        queue.push_back(session);
        if queue.len() == 1 {
            state.turns.push_back(key);
        }
        Ok(())
    }

    /// Takes the next session if a slot is free. The caller must call [`Scheduler::finish`] when its runs have ended.
    pub(crate) fn take(&self) -> Option<SessionId> {
        let mut state = self.state.lock();
        if state.stopped || state.running.len() >= self.max_runs {
            return None;
        }
        let key = state.turns.pop_front()?;
        let queue = state.sessions.get_mut(&key)?;
        let session = queue.pop_front();
        if queue.is_empty() {
            state.sessions.remove(&key);
        } else {
            state.turns.push_back(key);
        }
        let session = session?;
        state.waiting.remove(&session);
        state.running.insert(session.clone());
        Some(session)
    }

    /// Takes a slot for a session whose run continues after an answer. Such runs have precedence, up to twice the number of
    /// slots. Returns false if the session runs already.
    pub(crate) fn take_for(&self, session: &SessionId) -> Result<bool, Problem> {
        let mut state = self.state.lock();
        if state.stopped {
            return Err(shutting_down());
        }
        if state.running.contains(session) {
            return Ok(false);
        }
        if state.running.len() >= self.max_runs.saturating_mul(2) {
            return Err(Problem::new(
                ProblemCode::TooManyRequests,
                format!("{} runs are in progress", state.running.len()),
            )
            .hint("try again when one of them has ended; nothing was changed")
            .retry_after(5));
        }
        state.running.insert(session.clone());
        Ok(true)
    }

    /// Frees the slot of a session.
    pub(crate) fn finish(&self, session: &SessionId) {
        self.state.lock().running.remove(session);
    }

    /// Removes a session that waits for a run.
    pub(crate) fn remove(&self, session: &SessionId) {
        let mut state = self.state.lock();
        if !state.waiting.remove(session) {
            return;
        }
        let state = &mut *state;
        state.sessions.retain(|_, queue| {
            queue.retain(|one| one != session);
            !queue.is_empty()
        });
        let sessions = &state.sessions;
        state.turns.retain(|key| sessions.contains_key(key));
    }

    /// Starts no further run.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// The number of sessions that run and that wait.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.running.len(), state.waiting.len())
    }

    pub(crate) fn is_running(&self, session: &SessionId) -> bool {
        self.state.lock().running.contains(session)
    }

    /// The position of a waiting session, counted from 1, in the order in which sessions would start now.
    pub(crate) fn position(&self, session: &SessionId) -> Option<usize> {
        let state = self.state.lock();
        if !state.waiting.contains(session) {
            return None;
        }
        let mut queues: VecDeque<_> = state
            .turns
            .iter()
            .filter_map(|key| state.sessions.get(key))
            .map(VecDeque::iter)
            .collect();
        let mut position = 0;
        while let Some(mut queue) = queues.pop_front() {
            let Some(one) = queue.next() else { continue };
            position += 1;
            if one == session {
                return Some(position);
            }
            queues.push_back(queue);
        }
        None
    }
}

pub(crate) fn shutting_down() -> Problem {
    Problem::new(ProblemCode::ShuttingDown, "the server is shutting down")
        .hint("try again when it is running again; queued prompts and events are saved")
        .retry_after(5)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn id(text: &str) -> SessionId {
        text.parse().unwrap()
    }

    fn key(workspace: &str) -> FairKey {
        (workspace.into(), None)
    }

    #[test]
    fn workspaces_take_turns() {
        let scheduler = Scheduler::new(10);
        for session in ["a1", "a2", "a3"] {
            scheduler.enqueue(key("a"), id(session)).unwrap();
        }
        scheduler.enqueue(key("b"), id("b1")).unwrap();
        scheduler.enqueue(key("b"), id("b1")).unwrap();
        assert_eq!(scheduler.position(&id("b1")), Some(2));
        assert_eq!(scheduler.position(&id("a3")), Some(4));
        let order: Vec<_> = std::iter::from_fn(|| scheduler.take()).collect();
        assert_eq!(order, ["a1", "b1", "a2", "a3"].map(id));
    }

    #[test]
    fn the_number_of_runs_is_bounded() {
        let scheduler = Scheduler::new(1);
        scheduler.enqueue(key("a"), id("a1")).unwrap();
        scheduler.enqueue(key("a"), id("a2")).unwrap();
        assert_eq!(scheduler.take(), Some(id("a1")));
        assert_eq!(scheduler.take(), None);
        assert!(
            scheduler.take_for(&id("c1")).unwrap(),
            "an answer has precedence"
        );
        assert!(scheduler.take_for(&id("c2")).is_err());
        assert!(!scheduler.take_for(&id("a1")).unwrap());
        scheduler.finish(&id("a1"));
        scheduler.finish(&id("c1"));
        scheduler.remove(&id("a2"));
        assert_eq!(scheduler.take(), None);
        assert_eq!(scheduler.counts(), (0, 0));
        scheduler.stop();
        assert!(scheduler.take_for(&id("a1")).is_err());
    }
}
