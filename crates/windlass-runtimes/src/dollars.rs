//! Costs in dollars that agents report. The numbers are not trusted.

/// Converts dollars to micro-USD; `None` if the number is not a plausible amount.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn micros(usd: f64) -> Option<u64> {
    let micros = (usd * 1e6).round();
    (0.0..=1e15).contains(&micros).then_some(micros as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implausible_amounts_are_ignored() {
        assert_eq!(micros(0.012_345_6), Some(12_346));
        assert_eq!(micros(0.0), Some(0));
        for none in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(micros(none), None, "{none}");
        }
    }
}
