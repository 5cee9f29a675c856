//! Measurements as plain data, and the sums of them that are sent. Sums are of what came since the last time (delta): a
//! command that ends after a minute has no long life over which a total could grow.

use crate::span::{Attribute, Value};

/// Boundaries of counts of tokens, as the conventions give them.
const TOKENS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// Boundaries of times in seconds, as the conventions give them.
const SECONDS: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];

/// Sums that are kept apart; what does not fit is counted as one that has no attributes.
const MAX_SERIES: usize = 1_000;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Tokens of one model call.
    Tokens,
    /// Seconds of one operation.
    Seconds,
    /// Calls of tools.
    Calls,
    /// Calls that were not run because a rule or a person said no.
    Denials,
    /// Money, in micro-USD.
    Cost,
}

impl Measure {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Tokens,
        Self::Seconds,
        Self::Calls,
        Self::Denials,
        Self::Cost,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tokens => "gen_ai.client.token.usage",
            Self::Seconds => "gen_ai.client.operation.duration",
            Self::Calls => "windlass.tool.calls",
            Self::Denials => "windlass.tool.denials",
            Self::Cost => "windlass.cost",
        }
    }

    /// Its unit.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Tokens => "{token}",
            Self::Seconds => "s",
            Self::Calls | Self::Denials => "{call}",
            Self::Cost => "{micro_usd}",
        }
    }

    /// The boundaries of its histogram; none for a counter.
    #[must_use]
    pub fn bounds(self) -> Option<&'static [f64]> {
        match self {
            Self::Tokens => Some(TOKENS),
            Self::Seconds => Some(SECONDS),
            Self::Calls | Self::Denials | Self::Cost => None,
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Of what.
    pub measure: Measure,
    /// In milliseconds since 1970.
    pub at: i64,
    /// How much; never below zero.
    pub value: f64,
    /// What it is told apart by.
    pub attributes: Vec<Attribute>,
}

/// The sum of measurements that are told apart by the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Of what.
    pub measure: Measure,
    /// What it is told apart by.
    pub attributes: Vec<Attribute>,
    /// When the first was taken.
    pub start: i64,
    /// When the last was taken.
    pub end: i64,
    /// How many.
    pub count: u64,
    /// All together.
    pub sum: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many in each bucket of a histogram.
    pub buckets: Vec<u64>,
}

/// Adds measurements up until they are sent.
#[derive(Debug, Default)]
pub struct Meter {
    series: Vec<Series>,
}

impl Meter {
    /// One more.
    pub fn add(&mut self, mut point: Point) {
        let same = |one: &Series, point: &Point| {
            one.measure == point.measure && one.attributes == point.attributes
        };
        let mut at = self.series.iter().position(|one| same(one, &point));
        if at.is_none() && self.series.len() >= MAX_SERIES {
            point.attributes = vec![("otel.metric.overflow", Value::Bool(true))];
            at = self.series.iter().position(|one| same(one, &point));
        }
        let series = match at.and_then(|at| self.series.get_mut(at)) {
            Some(series) => series,
            None => self.series.push_mut(Series::new(&point)),
        };
        series.add(&point);
    }

    /// What came since the last time.
    pub fn take(&mut self) -> Vec<Series> {
        std::mem::take(&mut self.series)
    }
}

impl Series {
    fn new(point: &Point) -> Self {
        Self {
            measure: point.measure,
            attributes: point.attributes.clone(),
            start: point.at,
            end: point.at,
            count: 0,
            sum: 0.0,
            min: point.value,
            max: point.value,
            buckets: point
                .measure
                .bounds()
                .map_or_else(Vec::new, |bounds| vec![0; bounds.len() + 1]),
        }
    }

    fn add(&mut self, point: &Point) {
        self.start = self.start.min(point.at);
        self.end = self.end.max(point.at);
        self.count += 1;
        self.sum += point.value;
        self.min = self.min.min(point.value);
        self.max = self.max.max(point.value);
        let bounds = point.measure.bounds().unwrap_or_default();
        // A value on a boundary belongs to the bucket below it.
        let bucket = bounds
            .iter()
            .position(|bound| point.value <= *bound)
            .unwrap_or(bounds.len());
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(value: f64, model: &str) -> Point {
        Point {
            measure: Measure::Tokens,
            at: 5,
            value,
            attributes: vec![("gen_ai.request.model", model.into())],
        }
    }

    #[test]
    fn a_value_on_a_boundary_belongs_below_it_and_sums_begin_anew() {
        let mut meter = Meter::default();
        for value in [0.0, 1.0, 1.5, 4.0, 1e12] {
            meter.add(point(value, "m"));
        }
        let series = meter.take();
        assert_eq!(series.len(), 1);
        assert_eq!(series[0].buckets[..3], [2, 2, 0]);
        assert_eq!(series[0].buckets.last(), Some(&1));
        assert_eq!(
            (series[0].count, series[0].min, series[0].max),
            (5, 0.0, 1e12)
        );
        assert!(meter.take().is_empty());
    }

    #[test]
    fn names_that_never_end_do_not_fill_the_memory() {
        let mut meter = Meter::default();
        for n in 0..3 * MAX_SERIES {
            meter.add(point(1.0, &n.to_string()));
        }
        let series = meter.take();
        assert_eq!(series.len(), MAX_SERIES + 1);
        assert_eq!(
            series.last().map(|last| last.count),
            Some(2 * MAX_SERIES as u64)
        );
    }
}
