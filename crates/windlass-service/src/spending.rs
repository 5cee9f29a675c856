//! Budgets of a server and of its tokens. The cost limit of a run is reserved before it starts, so that concurrent runs
//! cannot spend the same money. Reservations are stored: after a crash, the log of the session tells what was spent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use windlass::core::id::SessionId;

use crate::private_file;
use crate::problem::{Problem, ProblemCode};

/// The amounts spent and reserved, in micro-USD.
pub(crate) struct Spending {
    file: PathBuf,
    /// The most that all runs may cost together.
    server_micros: Option<u64>,
    state: Mutex<SpendingState>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct SpendingState {
    /// The amount that all runs of this server spent.
    spent: u64,
    /// The amounts by token.
    tokens: BTreeMap<String, u64>,
    /// The reservations by session.
    reserved: BTreeMap<String, Reservation>,
}

/// The reservation of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reservation {
    pub(crate) token: Option<String>,
    pub(crate) micros: u64,
    /// The cost of the session before the run, so that the log tells the cost of the run after a crash.
    pub(crate) before: u64,
}

impl Spending {
    pub(crate) fn open(dir: &Path, server_usd: Option<f64>) -> Result<Self, Problem> {
        let file = dir.join("spending.json");
        let state = match private_file::read(&file)? {
            None => SpendingState::default(),
            Some(text) => serde_json::from_str(&text).map_err(|err| {
                Problem::new(
                    ProblemCode::Internal,
                    format!("{} cannot be read: {err}", file.display()),
                )
                .hint("restore the file, or delete it to begin at zero")
            })?,
        };
        Ok(Self {
            file,
            server_micros: server_usd.map(micros),
            state: Mutex::new(state),
        })
    }

    /// Reservations of runs whose server died, to be settled from their logs.
    pub(crate) fn left_open(&self) -> Vec<(SessionId, Reservation)> {
        let state = self.state.lock();
        let open = state.reserved.iter();
        open.filter_map(|(session, one)| Some((session.parse().ok()?, one.clone())))
            .collect()
    }

    /// The amount that a run of this token can still spend; `None` if nothing limits it.
    fn left(&self, state: &SpendingState, token: Option<(&str, Option<u64>)>) -> Option<u64> {
        let all: u64 = state.reserved.values().map(|one| one.micros).sum();
        let server = self
            .server_micros
            .map(|most| most.saturating_sub(state.spent).saturating_sub(all));
        let of_token = token.and_then(|(name, budget)| {
            let spent = state.tokens.get(name).copied().unwrap_or(0);
            let of_token = state
                .reserved
                .values()
                .filter(|one| one.token.as_deref() == Some(name));
            let reserved: u64 = of_token.map(|one| one.micros).sum();
            budget.map(|most| most.saturating_sub(spent).saturating_sub(reserved))
        });
        match (server, of_token) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Refuses a token whose budget is spent.
    pub(crate) fn check(&self, token: Option<(&str, Option<u64>)>) -> Result<(), Problem> {
        match self.left(&self.state.lock(), token) {
            Some(0) => Err(spent()),
            _ => Ok(()),
        }
    }

    /// Reserves the cost of a run. Returns its cost limit: the wanted one, lowered to what is left.
    pub(crate) fn reserve(
        &self,
        session: &SessionId,
        token: Option<(&str, Option<u64>)>,
        wanted: Option<u64>,
        before: u64,
    ) -> Result<Option<u64>, Problem> {
        let mut state = self.state.lock();
        let left = self.left(&state, token);
        if left == Some(0) {
            return Err(spent());
        }
        let limit = match (wanted, left) {
            (Some(wanted), Some(left)) => Some(wanted.min(left)),
            (wanted, left) => wanted.or(left),
        };
        let reservation = Reservation {
            token: token.map(|(name, _)| name.to_owned()),
            // A run without any limit reserves nothing, because nothing limits the others either.
            micros: left.and(limit).unwrap_or(0),
            before,
        };
        state.reserved.insert(session.to_string(), reservation);
        if left.is_some() {
            self.save(&state)?;
        }
        Ok(limit)
    }

    /// Replaces the reservation of a session by the amount that its run spent.
    pub(crate) fn settle(&self, session: &SessionId, micros: u64) -> Result<(), Problem> {
        let mut state = self.state.lock();
        let Some(reservation) = state.reserved.remove(session.as_str()) else {
            return Ok(());
        };
        state.spent = state.spent.saturating_add(micros);
        if let Some(token) = reservation.token {
            let sum = state.tokens.entry(token).or_default();
            *sum = sum.saturating_add(micros);
        }
        if micros == 0 && reservation.micros == 0 {
            return Ok(());
        }
        self.save(&state)
    }

    /// The amount spent by all runs, and by token.
    pub(crate) fn totals(&self) -> (u64, BTreeMap<String, u64>) {
        let state = self.state.lock();
        (state.spent, state.tokens.clone())
    }

    /// The amount that is reserved by runs in progress.
    pub(crate) fn reserved(&self) -> u64 {
        self.state
            .lock()
            .reserved
            .values()
            .map(|one| one.micros)
            .sum()
    }

    fn save(&self, state: &SpendingState) -> Result<(), Problem> {
        let text = serde_json::to_vec(state)
            .map_err(|err| Problem::new(ProblemCode::Internal, err.to_string()))?;
        private_file::write(&self.file, &text)
    }
}

/// US dollars as whole micro-USD.
pub(crate) fn micros(usd: f64) -> u64 {
    (usd.max(0.0) * 1e6).round() as u64
}

fn spent() -> Problem {
    Problem::new(
        ProblemCode::BudgetExceeded,
        "the budget of this token or server is spent or reserved by runs in progress",
    )
    .hint("wait for runs to end, or raise the budget")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn id(text: &str) -> SessionId {
        text.parse().unwrap()
    }

    #[test]
    fn concurrent_runs_cannot_spend_the_same_money() {
        let dir = tempfile::tempdir().unwrap();
        let spending = Spending::open(dir.path(), Some(1.0)).unwrap();
        let ci = Some(("ci", Some(micros(0.5))));
        assert_eq!(
            spending
                .reserve(&id("s1"), ci, Some(micros(10.0)), 0)
                .unwrap(),
            Some(500_000)
        );
        assert!(spending.check(ci).is_err());
        assert!(spending.reserve(&id("s2"), ci, None, 0).is_err());
        assert_eq!(
            spending.reserve(&id("s3"), None, None, 0).unwrap(),
            Some(500_000)
        );
        assert!(spending.check(None).is_err());
        spending.settle(&id("s1"), 100_000).unwrap();
        spending.check(ci).unwrap();
        assert_eq!(
            spending
                .reserve(&id("s2"), ci, Some(micros(10.0)), 7)
                .unwrap(),
            Some(400_000)
        );
        // The process dies: the next one knows the open reservations.
        let next = Spending::open(dir.path(), Some(1.0)).unwrap();
        let open = next.left_open();
        assert_eq!(open.len(), 2);
        assert_eq!(open[0].1.before, 7);
        next.settle(&id("s2"), 400_000).unwrap();
        next.settle(&id("s3"), 0).unwrap();
        assert_eq!(next.totals().0, 500_000);
        assert!(next.check(ci).is_err());
        assert_eq!(
            next.reserve(&id("s4"), None, None, 0).unwrap(),
            Some(500_000)
        );
    }

    #[test]
    fn without_budgets_nothing_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let spending = Spending::open(dir.path(), None).unwrap();
        assert_eq!(spending.reserve(&id("s1"), None, None, 0).unwrap(), None);
        assert_eq!(
            spending.reserve(&id("s2"), None, Some(5), 0).unwrap(),
            Some(5)
        );
    }
}
