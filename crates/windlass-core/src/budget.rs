//! The limits of a run, its spending so far, and the check before each model call that the call still fits (decision
//! 7). Money is counted in whole micro-USD. Nothing here knows a vendor or a clock.
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

/// Minimum output tokens of a model call: a call that could not get this many is not sent. For a model whose own
/// maximum is smaller, that maximum applies.
pub const LEAST_OUTPUT: u64 = 1_024;

/// Limits of one run. `None` means unlimited; it is never a default and has to be set explicitly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Budget {
    /// Maximum iterations of the runtime.
    pub iterations: Option<u32>,
    /// Maximum number of model calls.
    pub steps: Option<u32>,
    /// Maximum tokens: input that was not read from a cache, plus output.
    pub tokens: Option<u64>,
    /// Maximum tokens for a vendor that reports no caching, where every step counts the whole history again.
    pub tokens_uncached: Option<u64>,
    /// Maximum cost in micro-USD. It applies only to models with a known price.
    pub cost_micros: Option<u64>,
    /// Maximum active time in seconds, without the time spent waiting for a person.
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
    /// A budget without any limit.
    pub const UNLIMITED: Self = Self {
        iterations: None,
        steps: None,
        tokens: None,
        tokens_uncached: None,
        cost_micros: None,
        seconds: None,
    };
}

/// The kind of limit that a run reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Limit {
    /// The number of iterations of the runtime.
    Iterations,
    /// The number of model calls.
    Steps,
    /// The number of tokens, cache reads excluded.
    Tokens,
    /// The cost in micro-USD.
    Cost,
    /// The active time, without the time spent waiting for a person.
    Time,
}

/// Token counts of one model call, reported by the vendor or estimated.
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
    /// Output tokens, reasoning included.
    pub output: u64,
}

impl Usage {
    /// All input tokens, cached or not.
    #[must_use]
    pub fn total_input(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }

    /// The tokens that count against the token limit: everything except cache reads.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.input
            .saturating_add(self.cache_write)
            .saturating_add(self.output)
    }

    /// Whether the vendor reported any cache reads or writes.
    #[must_use]
    pub fn cached(&self) -> bool {
        self.cache_read > 0 || self.cache_write > 0
    }

    /// Token counts from a vendor whose prompt count includes cache reads and cache writes.
    #[must_use]
    pub fn of_prompt(prompt: u64, cache_read: u64, cache_write: u64, output: u64) -> Self {
        // Decoders use `u64::MAX` for a number that cannot be true. One such number makes the whole input implausible.
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

    /// The difference between this sum and an earlier one.
    #[must_use]
    pub fn since(&self, earlier: Usage) -> Self {
        Self {
            input: self.input.saturating_sub(earlier.input),
            cache_read: self.cache_read.saturating_sub(earlier.cache_read),
            cache_write: self.cache_write.saturating_sub(earlier.cache_write),
            output: self.output.saturating_sub(earlier.output),
        }
    }

    /// Adds the tokens of another call.
    pub fn add(&mut self, other: Usage) {
        self.input = self.input.saturating_add(other.input);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.output = self.output.saturating_add(other.output);
    }
}

/// Prices in micro-USD per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// Price of input that was neither read from nor written to a cache.
    pub input: u64,
    /// Price of input read from a cache.
    pub cache_read: u64,
    /// Price of input written to a cache.
    pub cache_write: u64,
    /// Price of output, reasoning included.
    pub output: u64,
}

impl Price {
    /// The price of a local or scripted model.
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

/// The spending of a run so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Spent {
    /// Number of iterations so far.
    pub iterations: u32,
    /// Number of model calls so far.
    pub steps: u32,
    /// Tokens of all model calls.
    pub usage: Usage,
    /// Cost of all priced calls, in micro-USD.
    pub cost_micros: u64,
    /// True if some token counts are estimates, because the vendor reported none.
    #[serde(default)]
    pub estimated: bool,
    /// True if some calls have no known price and are missing from the cost.
    #[serde(default)]
    pub unpriced: bool,
}

impl Spent {
    /// Adds the usage of one finished model call.
    pub fn settle(&mut self, usage: Usage, price: Option<Price>, estimated: bool) {
        self.usage.add(usage);
        self.estimated |= estimated;
        match price {
            Some(price) => self.cost_micros = self.cost_micros.saturating_add(price.cost(usage)),
            None => self.unpriced = true,
        }
    }

    /// Adds the spending of another run.
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
    /// The limit that has been reached, if any. `elapsed` excludes the time spent waiting for a person.
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
        // A model without cost never reaches the cost limit, even if that limit is zero.
        self.cost_micros
            .is_some_and(|max| cost >= max && cost > 0)
            .then_some(Limit::Cost)
    }

    /// The limit that has been passed, not only reached, if any. `elapsed` is as in [`Budget::exceeded`].
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

    /// Reserves a model call. Returns the output tokens that the call may produce, or the limit that it would exceed.
    ///
    /// `input` is an upper bound of the tokens to be sent. `want` is the maximum useful output.
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

    /// The limits whose use crossed 80 % between the two values. Each one leads to one warning.
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
        // Before the first report it is unknown whether the vendor caches, so the stricter limit applies.
        if spent.usage == Usage::default() || spent.usage.cached() {
            self.tokens
        } else {
            self.tokens_uncached
        }
    }
}

/// Estimates tokens from bytes. Each report of the vendor corrects the estimate.
///
/// The estimate is too high rather than too low: it only serves to refuse a call that would not fit, and never replaces
/// a reported count.
#[derive(Debug, Clone, Copy)]
pub struct Estimator {
    /// Tokens per thousand bytes.
    per_thousand: u64,
    /// Tokens that every call has on top of ours, such as a prompt that the server adds.
    overhead: u64,
}

impl Default for Estimator {
    fn default() -> Self {
        // This is 2.5 bytes per token. Source code takes 3 to 4 bytes per token with most vendors.
        Self {
            per_thousand: 400,
            overhead: 0,
        }
    }
}

impl Estimator {
    /// An upper bound for the tokens of this many bytes.
    #[must_use]
    pub fn tokens(&self, bytes: usize) -> u64 {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let tokens = bytes.saturating_mul(self.per_thousand).div_ceil(1_000);
        tokens.saturating_add(self.overhead)
    }

    /// The number of bytes that surely fit into this many tokens.
    #[must_use]
    pub fn bytes(&self, tokens: u64) -> usize {
        let tokens = tokens.saturating_sub(self.overhead);
        usize::try_from(tokens.saturating_mul(1_000) / self.per_thousand).unwrap_or(usize::MAX)
    }

    /// Adjusts the rate to a reported call, with a margin of one eighth.
    pub fn correct(&mut self, bytes: usize, reported: u64) {
        let sent = u64::try_from(bytes).unwrap_or(u64::MAX);
        if sent == 0 || reported == 0 {
            return;
        }
        let expect = reported.saturating_add(reported.div_ceil(8));
        let seen = expect.saturating_mul(1_000).div_ceil(sent);
        // A small request says nothing about the rate. A rate above one token per byte is impossible, so in that case
        // the server added tokens of its own.
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
