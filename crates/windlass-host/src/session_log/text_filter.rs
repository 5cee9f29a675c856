//! A filter that excludes sessions from a search: a Bloom filter of all pairs and triples of characters of a session,
//! in lower case. A search reads only the sessions that are not excluded.

use windlass_core::search_text::fold_case;

/// The number of bits while a filter is built: enough for the different triples in a log of hundreds of megabytes. The
/// texts of tests are shorter.
const BITS: usize = if cfg!(test) { 1 << 14 } else { 1 << 20 };
const WORD: usize = 64;
/// A filter is halved while at most one of this many bits is set.
const SPARSE: usize = 12;
/// The maximum number of hashes of the searched text. More would not exclude more.
const MAX_NEEDLE: usize = 256;

/// The hashes that a filter must contain if its session contains the text.
pub(super) struct NeedleHashes(Vec<u32>);

impl NeedleHashes {
    pub(super) fn new(text: &str) -> Self {
        let chars: Vec<u64> = text.chars().map(|c| u64::from(fold_case(c))).collect();
        let hashes: Vec<u32> = match &chars[..] {
            // Single characters are not in the filter: such a search reads every log.
            [] | [_] => Vec::new(),
            [a, b] => vec![hash_pair(*a, *b)],
            more => more
                .windows(3)
                .take(MAX_NEEDLE)
                .map(|of| hash_triple(of[0], of[1], of[2]))
                .collect(),
        };
        Self(hashes)
    }

    /// Returns whether the text may be in the session of that filter.
    pub(super) fn may_be_in(&self, filter: &[u8]) -> bool {
        let bits = filter.len() * 8;
        if !bits.is_power_of_two() {
            return true;
        }
        let is_set = |hash: &u32| {
            let bit = *hash as usize & (bits - 1);
            filter[bit / 8] & (1 << (bit % 8)) != 0
        };
        self.0.iter().all(is_set)
    }
}

/// Builds the filters of several sessions, one after the other.
pub(super) struct FilterBuilder {
    words: Vec<u64>,
}

impl FilterBuilder {
    pub(super) fn new() -> Self {
        Self {
            words: vec![0; BITS / WORD],
        }
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
    }

    pub(super) fn add(&mut self, text: &str) {
        let (mut before, mut last) = (None, None);
        for c in text.chars() {
            let c = u64::from(fold_case(c));
            if let Some(last) = last {
                self.set(hash_pair(last, c));
                if let Some(before) = before {
                    self.set(hash_triple(before, last, c));
                }
            }
            (before, last) = (last, Some(c));
        }
    }

    fn set(&mut self, hash: u32) {
        let bit = hash as usize;
        self.words[bit / WORD] |= 1 << (bit % WORD);
    }

    /// Returns the filter of the added texts, halved as often as possible. Halving drops the highest bit of each bit
    /// number.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut words = &mut self.words[..];
        let ones: usize = words.iter().map(|word| word.count_ones() as usize).sum();
        while words.len() > 1 && ones * SPARSE <= words.len() * WORD / 2 {
            let (low, high) = words.split_at_mut(words.len() / 2);
            low.iter_mut()
                .zip(&*high)
                .for_each(|(low, high)| *low |= high);
            words = low;
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

fn hash_pair(a: u64, b: u64) -> u32 {
    spread(a | b << 21 | 1 << 63)
}

/// A character has 21 bits.
fn hash_triple(a: u64, b: u64, c: u64) -> u32 {
    spread(a | b << 21 | c << 42)
}

/// Returns a number below [`BITS`], each of whose bits depends on all of `key`.
fn spread(key: u64) -> u32 {
    let mixed = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    u32::try_from(mixed >> (u64::BITS - BITS.ilog2())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(texts: &[&str]) -> Vec<u8> {
        let mut builder = FilterBuilder::new();
        texts.iter().for_each(|text| builder.add(text));
        builder.finish()
    }

    proptest! {
        /// A filter never excludes a text that is in the session.
        #[test]
        fn every_part_of_a_text_may_be_in_it(text in "\\PC{0,60}", more in "\\PC{0,600}", from in 0..60_usize, len in 0..20_usize) {
            let part: String = text.chars().skip(from).take(len).collect();
            let filter = filter(&[&more, &text]);
            prop_assert!(NeedleHashes::new(&part).may_be_in(&filter));
            let folded: String = part.chars().map(fold_case).collect();
            prop_assert!(NeedleHashes::new(&folded).may_be_in(&filter));
        }
    }

    #[test]
    fn a_filter_excludes_most_texts_and_is_small() {
        let letter = |n: u32| char::from(b"abcdefghijklmnopqrstuvwxyz"[n as usize % 26]);
        let word = |n: u32| -> String {
            (0..6)
                .map(|at| letter(n.wrapping_mul(2_654_435_761) >> (at * 5)))
                .collect()
        };
        let words: Vec<String> = (0..2_000).map(word).collect();
        let text = words[..1_000].join(" ");
        let filter = filter(&[&text]);
        assert!(filter.len() <= 16 << 10, "{}", filter.len());
        let passed = words[1_000..]
            .iter()
            .filter(|word| NeedleHashes::new(word).may_be_in(&filter));
        assert!(passed.count() < 200);
        assert!(!NeedleHashes::new("語彙").may_be_in(&filter));
        let other = FilterBuilder::new().finish();
        assert_eq!(other, [0; 8]);
    }
}
