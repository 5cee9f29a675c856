//! The built-in table of models: context window, output limit and price. The table is a dated CSV file in the binary.
//! A lookup scans its lines and builds no index, so that it costs nothing at startup.

use windlass_core::budget::Price;
use windlass_core::provider::ModelFacts;

use crate::Vendor;

const TABLE: &str = include_str!("models.csv");

/// One model of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelRow {
    pub vendor: &'static str,
    /// The model's name, or the common prefix of its dated versions.
    pub name: &'static str,
    /// In tokens.
    pub context_window: u64,
    /// In tokens.
    pub max_output: u64,
    pub price: Price,
    /// The price of the vendor's batch API, in percent of `price`.
    pub batch_percent: Option<u64>,
}

/// Iterates over the table in its order.
pub fn model_rows() -> impl Iterator<Item = ModelRow> {
    TABLE.lines().filter_map(parse)
}

/// Iterates over the names of a vendor's models. Parses no other fields.
pub fn model_names(vendor: &str) -> impl Iterator<Item = &'static str> {
    let name = move |line: &'static str| {
        let rest = line.strip_prefix(vendor)?.strip_prefix(',')?;
        rest.split(',').next()
    };
    TABLE.lines().filter_map(name)
}

/// Returns the date of the table, as `YYYY-MM-DD`.
#[must_use]
pub fn table_date() -> &'static str {
    TABLE
        .lines()
        .find_map(|line| line.strip_prefix("# date "))
        .unwrap_or("unknown")
}

/// Returns the model to use if the user names none.
#[must_use]
pub fn default_model(vendor: &Vendor) -> Option<&'static str> {
    match vendor.id {
        "anthropic" => Some("claude-sonnet-5-5"),
        "openai" => Some("gpt-5.4"),
        _ => None,
    }
}

/// Returns the facts of a vendor's model. If several names match, the longest one wins.
#[must_use]
pub fn lookup(vendor: &str, model: &str) -> Option<ModelFacts> {
    // The same vendor with another protocol.
    let vendor = if vendor == "openai-chat" {
        "openai"
    } else {
        vendor
    };
    // Only matching lines are parsed fully.
    let matching = |line: &&str| {
        let name = line
            .strip_prefix(vendor)
            .and_then(|rest| rest.strip_prefix(','))
            .and_then(|rest| rest.split(',').next());
        name.is_some_and(|name| matches_model(name, model))
    };
    let row = TABLE
        .lines()
        .filter(matching)
        .filter_map(parse)
        .max_by_key(|row| row.name.len())?;
    Some(ModelFacts {
        context_window: Some(row.context_window),
        max_output: row.max_output,
        price: Some(row.price),
        ..ModelFacts::default()
    })
}

fn parse(line: &'static str) -> Option<ModelRow> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = line.split(',');
    let (vendor, name) = (fields.next()?, fields.next()?);
    let mut number = || fields.next()?.trim().parse::<u64>().ok();
    Some(ModelRow {
        vendor,
        name,
        context_window: number()?,
        max_output: number()?,
        price: Price {
            input: number()?,
            output: number()?,
            cache_read: number()?,
            cache_write: number()?,
        },
        batch_percent: number(),
    })
}

/// Returns whether `model` is `name`, optionally followed by a date or a tag. `gpt-5` does not match `gpt-5.4`, and
/// `opus-5` does not match `opus-5-7`, because another version has another price.
fn matches_model(name: &str, model: &str) -> bool {
    let Some(rest) = model.strip_prefix(name) else {
        return false;
    };
    match rest.as_bytes().first() {
        None | Some(b':' | b'@') => true,
        Some(b'-') => {
            let word = rest[1..].split('-').next().unwrap_or_default();
            !(word.len() <= 2 && word.bytes().all(|byte| byte.is_ascii_digit()))
        }
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_names_of_a_vendor_are_those_of_its_rows() {
        for vendor in ["anthropic", "openai", "unknown", ""] {
            let rows = model_rows().filter(|row| row.vendor == vendor);
            let names: Vec<&str> = rows.map(|row| row.name).collect();
            assert_eq!(model_names(vendor).collect::<Vec<_>>(), names);
        }
    }

    #[track_caller]
    fn check(vendor: &str, model: &str, input: Option<u64>) {
        let price = lookup(vendor, model).map(|facts| facts.price.unwrap().input);
        assert_eq!(price, input, "{vendor} {model}");
    }

    #[test]
    fn the_longest_name_wins_and_versions_are_not_mixed_up() {
        check("anthropic", "claude-opus-4-5-20251101", Some(5_000_000));
        check("anthropic", "claude-opus-4-20250514", Some(15_000_000));
        check("anthropic", "claude-opus-5-7", None);
        check("openai", "gpt-5-mini", Some(250_000));
        check("openai", "gpt-5-2025-08-07", Some(1_250_000));
        check("openai", "gpt-5.9", None);
        check("openai", "claude-opus-4-5", None);
        check("openai-chat", "gpt-5-mini", Some(250_000));
        check("gemini", "gemini-2.5-flash-lite", Some(100_000));
        check("gemini", "gemini-3.1-pro-preview", Some(4_000_000));
        check("gemini", "gemini-2.5", None);
        check("open", "gpt-5", None);
        check(
            "openrouter",
            "anthropic/claude-sonnet-4.5:beta",
            Some(3_000_000),
        );
        check("anthropic", "", None);
    }

    #[test]
    fn every_line_of_the_table_is_a_row_of_a_known_vendor() {
        let lines = TABLE
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .count();
        assert_eq!(model_rows().count(), lines);
        for row in model_rows() {
            assert!(crate::vendors::vendor(row.vendor).is_some(), "{row:?}");
            assert!(
                row.price.cache_read <= row.price.input && row.price.output >= row.price.input,
                "{row:?}"
            );
            assert!(row.max_output <= row.context_window, "{row:?}");
        }
        assert_eq!(table_date().len(), 10);
    }
}
