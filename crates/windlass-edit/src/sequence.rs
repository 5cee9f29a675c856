//! Compares two sequences with Myers' algorithm in bounded time.
//!
//! Each distinct item is replaced by a number first, so that the algorithm is compiled for `u32` alone. The generic
//! entry points of `similar` are compiled for each item type and each of its algorithms, which adds about a megabyte to
//! the binary.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use similar::algorithms::{Capture, Compact, Replace, myers};
pub use similar::{DiffOp, DiffTag, group_diff_ops};

/// The operations that turn `old` into `new`. When `patience` has passed, the search for a shorter list of operations
/// stops; the list is still correct.
#[expect(
    clippy::disallowed_methods,
    reason = "`similar` takes its deadline as an `Instant`"
)]
pub fn diff<T: Eq + Hash>(old: &[T], new: &[T], patience: Option<Duration>) -> Vec<DiffOp> {
    let deadline = patience.map(|patience| Instant::now() + patience);
    let mut numbers = HashMap::new();
    let mut numbered = |items| -> Vec<u32> { number_all(items, &mut numbers) };
    let (old, new) = (numbered(old), numbered(new));
    let (old, new) = (&old[..], &new[..]);
    let mut hook = Compact::new(Replace::new(Capture::new()), old, new);
    let ranges = (0..old.len(), 0..new.len());
    let Ok(()) = myers::diff_deadline(&mut hook, old, ranges.0, new, ranges.1, deadline);
    hook.into_inner().into_inner().into_ops()
}

fn number_all<'a, T: Eq + Hash>(items: &'a [T], numbers: &mut HashMap<&'a T, u32>) -> Vec<u32> {
    let mut number = |item| {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(item).or_insert(next)
    };
    items.iter().map(&mut number).collect()
}

/// The similarity of two texts by their characters, from 0 (no character in common) to 1 (equal).
#[must_use]
pub fn ratio(left: &str, right: &str) -> f32 {
    let chars = |text: &str| text.chars().collect::<Vec<char>>();
    let (left, right) = (chars(left), chars(right));
    similar::diff_ratio(&diff(&left, &right, None), left.len(), right.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_turn_one_sequence_into_the_other() {
        let check = |old: &str, new: &str| {
            let (old, new): (Vec<char>, Vec<char>) = (old.chars().collect(), new.chars().collect());
            let mut made = String::new();
            for op in diff(&old, &new, None) {
                match op.tag() {
                    DiffTag::Equal => made.extend(&old[op.old_range()]),
                    DiffTag::Insert | DiffTag::Replace => made.extend(&new[op.new_range()]),
                    DiffTag::Delete => {}
                }
            }
            assert_eq!(made, new.iter().collect::<String>());
        };
        for (old, new) in [
            ("", ""),
            ("abc", ""),
            ("", "abc"),
            ("abcd", "axcd"),
            ("kitten", "sitting"),
        ] {
            check(old, new);
        }
    }

    #[test]
    fn the_ratio_is_the_share_of_equal_characters() {
        let check = |left: &str, right: &str, expect: f32| {
            assert!(
                (ratio(left, right) - expect).abs() < 0.001,
                "{left} {right}"
            );
        };
        check("", "", 1.0);
        check("abc", "abc", 1.0);
        check("abc", "xyz", 0.0);
        check("abcd", "abxd", 0.75);
    }
}
