//! What a run may spend, what it has spent, and whether the next model call still fits (decision 7).
//! Money is whole micro-USD. Nothing here knows a vendor or a clock.
//!
//! ```
//! use std::time::Duration;
//! use windlass_core::budget::{Budget, Limit, Spent};
//!
//! let budget = Budget { steps: Some(2), ..Budget::default() };
//! let spent = Spent { steps: 2, ..Spent::default() };
//! assert_eq!(budget.exceeded(&spent, Duration::ZERO), Some(Limit::Steps));
//! ```

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A call is not sent with less room for its answer than this (or than the model's own maximum, if that is smaller).
pub const LEAST_OUTPUT: u64 = 1_024;

/// Limits of one run. `None` is unlimited, and has to be written out by whoever wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Budget {
    /// Tries of the runtime.
    pub iterations: Option<u32>,
    /// Model calls.
    pub steps: Option<u32>,
    /// Tokens: input that was not served from a cache, plus output.
    pub tokens: Option<u64>,
    /// The same, where the upstream reports no caching (every step then counts the whole history again).
    pub tokens_uncached: Option<u64>,
    /// Micro-USD. Binds where a price is known.
    pub cost_micros: Option<u64>,
    /// Seconds, without the time spent waiting for a person.
    pub seconds: Option<u64>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            iterations: Some(5),
            steps: Some(50),
            tokens: Some(500_000),
            tokens_uncached: Some(2_000_000),
            cost_micros: Some(10_000_000),
            seconds: Some(3_600),
        }
    }
}

impl Budget {
    /// No limit at all.
    pub const UNLIMITED: Self = Self {
        iterations: None,
        steps: None,
        tokens: None,
        tokens_uncached: None,
        cost_micros: None,
        seconds: None,
    };
}

/// The limits there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Limit {
    /// Tries of the runtime.
    Iterations,
    /// Model calls.
    Steps,
    /// Tokens.
    Tokens,
    /// Money.
    Cost,
    /// Time.
    Time,
}

/// Tokens of one model call, as reported or estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Input that was neither read from nor written to a cache.
    pub input: u64,
    /// Input served from a cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Input written to a cache.
    #[serde(default)]
    pub cache_write: u64,
    /// Output, reasoning included.
    pub output: u64,
}

impl Usage {
    /// All input, however it was served.
    #[must_use]
    pub fn total_input(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }

    /// What counts against the token limit.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.input
            .saturating_add(self.cache_write)
            .saturating_add(self.output)
    }

    /// Whether any caching was reported.
    #[must_use]
    pub fn cached(&self) -> bool {
        self.cache_read > 0 || self.cache_write > 0
    }

    /// The tokens of a call whose count of the prompt includes what was read from a cache and written to it.
    #[must_use]
    pub fn of_prompt(prompt: u64, cache_read: u64, cache_write: u64, output: u64) -> Self {
        // `u64::MAX` stands for a number that cannot be true, and makes the whole input one.
        let prompt = match cache_read.max(cache_write) {
            u64::MAX => u64::MAX,
            _ => prompt,
        };
        let cache_read = cache_read.min(prompt);
        let cache_write = cache_write.min(prompt - cache_read);
        Self {
            input: prompt - cache_read - cache_write,
            cache_read,
            cache_write,
            output,
        }
    }

    /// The difference to an earlier sum.
    #[must_use]
    pub fn since(&self, earlier: Usage) -> Self {
        Self {
            input: self.input.saturating_sub(earlier.input),
            cache_read: self.cache_read.saturating_sub(earlier.cache_read),
            cache_write: self.cache_write.saturating_sub(earlier.cache_write),
            output: self.output.saturating_sub(earlier.output),
        }
    }

    /// Adds another call's tokens.
    pub fn add(&mut self, other: Usage) {
        self.input = self.input.saturating_add(other.input);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.output = self.output.saturating_add(other.output);
    }
}

/// Micro-USD for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// Fresh input.
    pub input: u64,
    /// Input from a cache.
    pub cache_read: u64,
    /// Input written to a cache.
    pub cache_write: u64,
    /// Output.
    pub output: u64,
}

impl Price {
    /// What a local or scripted model costs.
    pub const FREE: Self = Self {
        input: 0,
        cache_read: 0,
        cache_write: 0,
        output: 0,
    };

    /// The cost of a call in micro-USD, rounded up.
    #[must_use]
    pub fn cost(&self, usage: Usage) -> u64 {
        let parts = [
            (usage.input, self.input),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
            (usage.output, self.output),
        ];
        let sum = parts.iter().fold(0_u128, |sum, (tokens, rate)| {
            sum + u128::from(*tokens) * u128::from(*rate)
        });
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// What has been spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Spent {
    /// Tries of the runtime.
    pub iterations: u32,
    /// Model calls.
    pub steps: u32,
    /// Tokens.
    pub usage: Usage,
    /// Micro-USD.
    pub cost_micros: u64,
    /// Some of it is our own count, because the upstream reported none.
    #[serde(default)]
    pub estimated: bool,
    /// Some of it has no known price and is missing from the cost.
    #[serde(default)]
    pub unpriced: bool,
}

impl Spent {
    /// Books one model call.
    pub fn settle(&mut self, usage: Usage, price: Option<Price>, estimated: bool) {
        self.usage.add(usage);
        self.estimated |= estimated;
        match price {
            Some(price) => self.cost_micros = self.cost_micros.saturating_add(price.cost(usage)),
            None => self.unpriced = true,
        }
    }

    /// Adds what another run has spent.
    pub fn add(&mut self, other: &Spent) {
        self.iterations = self.iterations.saturating_add(other.iterations);
        self.steps = self.steps.saturating_add(other.steps);
        self.usage.add(other.usage);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
        self.estimated |= other.estimated;
        self.unpriced |= other.unpriced;
    }
}

impl Budget {
    /// The limit that has been reached, if any. `elapsed` is without the time spent waiting for a person.
    #[must_use]
    pub fn exceeded(&self, spent: &Spent, elapsed: Duration) -> Option<Limit> {
        let (tokens, cost) = (spent.usage.counted(), spent.cost_micros);
        if self
            .seconds
            .is_some_and(|max| elapsed >= Duration::from_secs(max))
        {
            return Some(Limit::Time);
        }
        if self.steps.is_some_and(|max| spent.steps >= max) {
            return Some(Limit::Steps);
        }
        if self.token_limit(spent).is_some_and(|max| tokens >= max) {
            return Some(Limit::Tokens);
        }
        // A free model may go on at a cost limit of anything.
        self.cost_micros
            .is_some_and(|max| cost >= max && cost > 0)
            .then_some(Limit::Cost)
    }

    /// The limit that was overrun, if any: not reached, but passed. `elapsed` is as in [`Budget::exceeded`].
    #[must_use]
    pub fn overrun(&self, spent: &Spent, elapsed: Duration) -> Option<Limit> {
        let over = |max: Option<u64>, is: u64| max.is_some_and(|max| is > max);
        if over(self.cost_micros, spent.cost_micros) {
            return Some(Limit::Cost);
        }
        if over(self.token_limit(spent), spent.usage.counted()) {
            return Some(Limit::Tokens);
        }
        if self
            .seconds
            .is_some_and(|max| elapsed > Duration::from_secs(max))
        {
            return Some(Limit::Time);
        }
        over(self.steps.map(u64::from), spent.steps.into()).then_some(Limit::Steps)
    }

    /// Reserves a model call: how many output tokens it may produce, or the limit it would cross.
    ///
    /// `input` is an upper bound of the tokens to be sent and `want` the most output that is useful.
    pub fn admit(
        &self,
        spent: &Spent,
        input: u64,
        want: u64,
        price: Option<Price>,
    ) -> Result<u64, Limit> {
        let least = want.min(LEAST_OUTPUT);
        let mut room = want;
        if let Some(max) = self.token_limit(spent) {
            let left = max
                .saturating_sub(spent.usage.counted())
                .saturating_sub(input);
            if left < least {
                return Err(Limit::Tokens);
            }
            room = room.min(left);
        }
        if let (Some(max), Some(price)) = (self.cost_micros, price) {
            let dearest = price.input.max(price.cache_write);
            let reserve = Price {
                input: dearest,
                ..price
            }
            .cost(Usage {
                input,
                ..Usage::default()
            });
            let left = max
                .saturating_sub(spent.cost_micros)
                .saturating_sub(reserve);
            let affordable = match price.output {
                0 => u64::MAX,
                rate => u64::try_from(u128::from(left) * 1_000_000 / u128::from(rate))
                    .unwrap_or(u64::MAX),
            };
            if affordable < least || (left == 0 && reserve > 0) {
                return Err(Limit::Cost);
            }
            room = room.min(affordable);
        }
        Ok(room)
    }

    /// Limits that crossed 80 % between the two, each to be warned about once.
    #[must_use]
    pub fn warned(&self, before: &Spent, after: &Spent) -> Vec<Limit> {
        let crossed = |limit: Option<u64>, was: u64, is: u64| {
            limit.is_some_and(|max| {
                let mark = max.saturating_sub(max / 5);
                was < mark && is >= mark
            })
        };
        let mut limits = Vec::new();
        if crossed(
            self.token_limit(after),
            before.usage.counted(),
            after.usage.counted(),
        ) {
            limits.push(Limit::Tokens);
        }
        if crossed(self.cost_micros, before.cost_micros, after.cost_micros) {
            limits.push(Limit::Cost);
        }
        if crossed(
            self.steps.map(u64::from),
            before.steps.into(),
            after.steps.into(),
        ) {
            limits.push(Limit::Steps);
        }
        limits
    }

    fn token_limit(&self, spent: &Spent) -> Option<u64> {
        // Nothing spent yet: nobody has reported anything, so the wider one would be a guess.
        if spent.usage == Usage::default() || spent.usage.cached() {
            self.tokens
        } else {
            self.tokens_uncached
        }
    }
}

/// Counts tokens from bytes, corrected by what the upstream reports.
///
/// It errs high: it is used to refuse a call that would not fit, never to bill one that was reported.
#[derive(Debug, Clone, Copy)]
pub struct Estimator {
    /// Tokens for a thousand bytes.
    per_thousand: u64,
    /// Tokens of every call that our bytes do not explain, such as a prompt that the server adds.
    overhead: u64,
}

impl Default for Estimator {
    fn default() -> Self {
        // 2.5 bytes a token: source code in most vendors' vocabularies takes 3 to 4.
        Self {
            per_thousand: 400,
            overhead: 0,
        }
    }
}

impl Estimator {
    /// An upper bound for that many bytes.
    #[must_use]
    pub fn tokens(&self, bytes: usize) -> u64 {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let tokens = bytes.saturating_mul(self.per_thousand).div_ceil(1_000);
        tokens.saturating_add(self.overhead)
    }

    /// How many bytes stay within that many tokens.
    #[must_use]
    pub fn bytes(&self, tokens: u64) -> usize {
        let tokens = tokens.saturating_sub(self.overhead);
        usize::try_from(tokens.saturating_mul(1_000) / self.per_thousand).unwrap_or(usize::MAX)
    }

    /// Learns from a reported call, keeping a margin of an eighth.
    pub fn correct(&mut self, bytes: usize, reported: u64) {
        let sent = u64::try_from(bytes).unwrap_or(u64::MAX);
        if sent == 0 || reported == 0 {
            return;
        }
        let expect = reported.saturating_add(reported.div_ceil(8));
        let seen = expect.saturating_mul(1_000).div_ceil(sent);
        // A small request says nothing about the rate, and no text has more tokens than bytes: then the server added some.
        if sent >= 1_000 && seen <= 1_000 {
            self.per_thousand = seen.max(100);
        }
        self.overhead = 0;
        self.overhead = expect.saturating_sub(self.tokens(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(tokens: u64, cost: u64) -> Spent {
        Spent {
            usage: Usage {
                input: tokens,
                ..Usage::default()
            },
            cost_micros: cost,
            ..Spent::default()
        }
    }

    fn tokens(max: u64) -> Budget {
        Budget {
            tokens: Some(max),
            tokens_uncached: Some(max),
            ..Budget::UNLIMITED
        }
    }

    #[test]
    fn the_budget_stops_before_the_call_not_after() {
        let budget = tokens(10_000);
        assert_eq!(budget.admit(&spent(0, 0), 2_000, 4_000, None), Ok(4_000));
        assert_eq!(
            budget.admit(&spent(5_000, 0), 2_000, 4_000, None),
            Ok(3_000)
        );
        assert_eq!(
            budget.admit(&spent(8_000, 0), 2_000, 4_000, None),
            Err(Limit::Tokens)
        );
        assert_eq!(
            budget.admit(&spent(7_000, 0), 2_000, 4_000, None),
            Err(Limit::Tokens),
            "1,000 left is under 1,024"
        );
        assert_eq!(
            budget.admit(&spent(7_000, 0), 2_000, 100, None),
            Ok(100),
            "a model that answers in 100 fits"
        );
    }

    #[test]
    fn money_limits_the_answer_and_then_the_call() {
        let price = Price {
            input: 3_000_000,
            cache_read: 300_000,
            cache_write: 3_750_000,
            output: 15_000_000,
        };
        let budget = Budget {
            cost_micros: Some(100_000),
            ..Budget::UNLIMITED
        };
        // 10,000 input tokens at the dearest input rate are 37,500; 62,500 are left for output at 15 a token.
        assert_eq!(
            budget.admit(&spent(0, 0), 10_000, 8_000, Some(price)),
            Ok(4_166)
        );
        assert_eq!(
            budget.admit(&spent(0, 90_000), 10_000, 8_000, Some(price)),
            Err(Limit::Cost)
        );
        assert_eq!(
            budget.admit(&spent(0, 0), 10_000, 8_000, None),
            Ok(8_000),
            "an unknown price does not bind"
        );
        assert_eq!(
            budget.admit(&spent(0, 0), 10_000, 8_000, Some(Price::FREE)),
            Ok(8_000)
        );
    }

    #[test]
    fn cache_reads_do_not_count_and_no_caching_widens_the_default() {
        let cached = Usage {
            input: 100,
            cache_read: 900_000,
            cache_write: 0,
            output: 100,
        };
        let mut spent = Spent::default();
        spent.settle(cached, None, false);
        assert_eq!(Budget::default().exceeded(&spent, Duration::ZERO), None);
        let mut plain = Spent::default();
        plain.settle(
            Usage {
                input: 600_000,
                ..Usage::default()
            },
            None,
            false,
        );
        assert_eq!(
            Budget::default().exceeded(&plain, Duration::ZERO),
            None,
            "2,000,000 where nobody caches"
        );
        plain.settle(
            Usage {
                input: 0,
                cache_read: 1,
                ..Usage::default()
            },
            None,
            false,
        );
        assert_eq!(
            Budget::default().exceeded(&plain, Duration::ZERO),
            Some(Limit::Tokens)
        );
    }

    #[test]
    fn each_limit_is_warned_about_once_at_four_fifths() {
        let budget = tokens(1_000);
        assert_eq!(budget.warned(&spent(700, 0), &spent(799, 0)), vec![]);
        assert_eq!(
            budget.warned(&spent(799, 0), &spent(800, 0)),
            vec![Limit::Tokens]
        );
        assert_eq!(budget.warned(&spent(800, 0), &spent(900, 0)), vec![]);
    }

    #[test]
    fn reaching_a_limit_is_no_overrun() {
        let budget = tokens(1_000);
        assert_eq!(budget.overrun(&spent(1_000, 0), Duration::ZERO), None);
        assert_eq!(
            budget.overrun(&spent(1_001, 0), Duration::ZERO),
            Some(Limit::Tokens)
        );
        let money = Budget {
            cost_micros: Some(5),
            seconds: Some(1),
            ..Budget::UNLIMITED
        };
        assert_eq!(
            money.overrun(&spent(0, 6), Duration::ZERO),
            Some(Limit::Cost)
        );
        assert_eq!(money.overrun(&spent(0, 5), Duration::from_secs(1)), None);
        assert_eq!(
            money.overrun(&spent(0, 5), Duration::from_millis(1_001)),
            Some(Limit::Time)
        );
    }

    #[test]
    fn cost_is_rounded_up_and_never_overflows() {
        let price = Price {
            input: 1,
            output: u64::MAX,
            ..Price::FREE
        };
        assert_eq!(
            price.cost(Usage {
                input: 1,
                ..Usage::default()
            }),
            1
        );
        assert_eq!(
            price.cost(Usage {
                output: u64::MAX,
                ..Usage::default()
            }),
            u64::MAX
        );
    }

    #[test]
    fn the_estimate_follows_what_is_reported_and_stays_above_it() {
        let mut estimator = Estimator::default();
        assert_eq!(estimator.tokens(10_000), 4_000);
        estimator.correct(10_000, 2_500);
        let after = estimator.tokens(10_000);
        assert!((2_500..3_000).contains(&after), "{after}");
        // A server that adds a long prompt of its own to a short request.
        estimator.correct(500, 20_000);
        let after = estimator.tokens(500);
        assert!((20_000..23_000).contains(&after), "{after}");
        assert!(estimator.tokens(estimator.bytes(40_000)) <= 40_000);
        // Tokens that the server adds are counted once, and do not raise the rate.
        let mut estimator = Estimator::default();
        estimator.correct(2_000, 40_000);
        let after = estimator.tokens(31_000);
        assert!((45_000..58_000).contains(&after), "{after}");
    }
}
