//! Measurements as plain data, and their sums, which are sent. A sum covers the time since the last request (delta
//! temporality), because a command may end after a minute and a cumulative total would have to outlive it.

use crate::span::{Attribute, AttributeValue};

/// The histogram boundaries for token counts in the conventions.
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
/// The histogram boundaries for durations in seconds in the conventions.
const SECONDS: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];

/// The maximum number of series; further ones are added to a single overflow series without attributes.
const MAX_SERIES: usize = 1_000;

/// The quantities that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// The tokens of one model call.
    Tokens,
    /// The duration of one operation in seconds.
    Seconds,
    /// The number of tool calls.
    Calls,
    /// The number of tool calls that a rule or the user denied.
    Denials,
    /// The cost in micro-USD.
    Cost,
}

impl Measure {
    /// All quantities, in the order in which they are sent.
    pub const ALL: [Self; 5] = [
        Self::Tokens,
        Self::Seconds,
        Self::Calls,
        Self::Denials,
        Self::Cost,
    ];

    /// The name of the metric.
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

    /// The unit of the metric.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Tokens => "{token}",
            Self::Seconds => "s",
            Self::Calls | Self::Denials => "{call}",
            Self::Cost => "{micro_usd}",
        }
    }

    /// The boundaries of the histogram; `None` for a counter.
    #[must_use]
    pub fn bounds(self) -> Option<&'static [f64]> {
        match self {
            Self::Tokens => Some(TOKENS),
            Self::Seconds => Some(SECONDS),
            Self::Calls | Self::Denials | Self::Cost => None,
        }
    }
}

/// One measurement of a quantity.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The quantity that was measured.
    pub measure: Measure,
    /// The time in milliseconds since 1970.
    pub at: i64,
    /// The measured value, never negative.
    pub value: f64,
    /// The attributes, which decide the series that the value is added to.
    pub attributes: Vec<Attribute>,
}

/// The sum of the measurements of one quantity with the same attributes.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The quantity that was measured.
    pub measure: Measure,
    /// The attributes that all measurements have in common.
    pub attributes: Vec<Attribute>,
    /// The time of the first measurement in milliseconds since 1970.
    pub start: i64,
    /// The time of the last measurement in milliseconds since 1970.
    pub end: i64,
    /// The number of measurements.
    pub count: u64,
    /// The sum of all values.
    pub sum: f64,
    /// The smallest value so far.
    pub min: f64,
    /// The largest value so far.
    pub max: f64,
    /// The number of values in each bucket; empty for a counter.
    pub buckets: Vec<u64>,
}

/// Sums measurements until they are sent.
#[derive(Debug, Default)]
pub struct Meter {
    series: Vec<Series>,
}

impl Meter {
    /// Adds a measurement to its series.
    pub fn add(&mut self, mut point: Point) {
        let same = |one: &Series, point: &Point| {
            one.measure == point.measure && one.attributes == point.attributes
        };
        let mut at = self.series.iter().position(|one| same(one, &point));
        if at.is_none() && self.series.len() >= MAX_SERIES {
            point.attributes = vec![("otel.metric.overflow", AttributeValue::Bool(true))];
            at = self.series.iter().position(|one| same(one, &point));
        }
        let series = match at.and_then(|at| self.series.get_mut(at)) {
            Some(series) => series,
            None => self.series.push_mut(Series::new(&point)),
        };
        series.add(&point);
    }

    /// Returns the series since the last call and starts new ones.
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
        // The boundaries are inclusive upper bounds.
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
    fn boundaries_are_inclusive_and_taking_starts_new_sums() {
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
    fn the_number_of_series_is_limited() {
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
