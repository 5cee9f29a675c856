//! Differences of two sequences, by Myers' algorithm in bounded time.
//!
//! The sequences are numbered first, so that the algorithm is compiled once, for numbers. The general entry points of
//! `similar` are compiled for all of its algorithms and for every type: about a megabyte of the binary.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use similar::algorithms::{Capture, Compact, Replace, myers};
pub use similar::{DiffOp, DiffTag, group_diff_ops};

/// The operations that turn one sequence into the other. Past the patience they are still correct, only more.
#[expect(
    clippy::disallowed_methods,
    reason = "the library takes the end of its time as an instant"
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

/// How alike two texts are by their characters: from 0 for nothing in common to 1 for the same.
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
    fn the_ratio_is_the_share_of_what_is_the_same() {
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
