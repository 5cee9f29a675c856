//! Settles one model call: decides which tokens are charged when it ends, and whether they are reported or estimated
//! (decision 7). A vendor's report is used only if it is plausible; otherwise the estimate is too high rather than too
//! low.

use crate::budget::{Estimator, Usage};

/// More tokens than a call of any model can have.
const MOST_TOKENS: u64 = 20_000_000;
/// Maximum bytes per input token. With more, a report understates the input; pictures have the highest ratio.
const MOST_BYTES: u64 = 10_000;
/// Tokens by which an answer may exceed its reservation.
const SLACK: u64 = 64;
/// Tokens by which a reported output may be below our count.
const TOLERATED: u64 = 256;

/// Counts the output of a call while it arrives. The result does not depend on how the output is split into pieces.
#[derive(Debug, Clone, Copy, Default)]
pub struct OutputCount {
    bytes: usize,
    words: u64,
    kind: RunKind,
    run: u32,
}

/// Classes of characters. Tokenizers do not put two classes into one token, except for one sign or space before a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum RunKind {
    #[default]
    Space,
    Word,
    Signs,
}

impl RunKind {
    /// Answers arrive in up to half a million pieces, so ASCII is looked up in a table.
    fn of(c: char) -> Self {
        match ASCII.get(c as usize) {
            Some(kind) => *kind,
            None => Self::of_any(c),
        }
    }

    fn of_any(c: char) -> Self {
        if c.is_whitespace() {
            Self::Space
        } else if c.is_alphanumeric() {
            Self::Word
        } else {
            Self::Signs
        }
    }

    /// The minimum length of a run of this class that is a token of its own, and the maximum length of one token.
    fn sizes(self) -> (u32, u32) {
        match self {
            Self::Space => (32, 64),
            Self::Word => (1, 12),
            Self::Signs => (2, 64),
        }
    }
}

const ASCII: [RunKind; 128] = {
    let mut kinds = [RunKind::Signs; 128];
    let mut at = 0_u8;
    while at < 128 {
        if at.is_ascii_whitespace() || at == 0x0b {
            kinds[at as usize] = RunKind::Space;
        } else if at.is_ascii_alphanumeric() {
            kinds[at as usize] = RunKind::Word;
        }
        at += 1;
    }
    kinds
};

impl OutputCount {
    /// Counts a piece of text, reasoning or arguments.
    pub fn push(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len());
        for c in text.chars() {
            let kind = RunKind::of(c);
            let (least, most) = kind.sizes();
            if kind != self.kind || self.run >= most {
                (self.kind, self.run) = (kind, 0);
            }
            // Scripts without spaces have tokens of one to three characters.
            let before = self.run;
            self.run += if c >= '\u{2e80}' { 4 } else { 1 };
            if before < least && self.run >= least {
                self.words += 1;
            }
        }
    }

    /// Bytes received so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A lower bound of the tokens: fewer than any vendor would count.
    #[must_use]
    pub fn at_least(&self) -> u64 {
        self.words.max(self.bytes as u64 / 10)
    }

    /// An upper bound of the tokens: more than most vendors would count.
    #[must_use]
    pub fn at_most(&self) -> u64 {
        Estimator::default().tokens(self.bytes).max(self.at_least())
    }

    /// Whether the answer is certainly longer than its reservation.
    #[must_use]
    pub fn passes(&self, reserved: u64) -> bool {
        self.at_least() > reserved.saturating_add(reserved / 16 + SLACK)
    }
}

/// The end of a model call, as far as billing is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The answer is complete.
    Complete,
    /// The answer was cut off, and the vendor generated nothing after the part that arrived.
    Cut,
    /// The vendor may have generated and billed everything that was reserved.
    Unknown,
}

/// A model call: its reservation, and what was sent and received.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallRecord {
    /// Bytes of text that were sent.
    pub sent: usize,
    /// Input tokens that were reserved.
    pub input: u64,
    /// Output tokens that were reserved.
    pub output: u64,
    /// Our own count of the answer.
    pub received: OutputCount,
    /// The vendor's last report.
    pub reported: Option<Usage>,
}

impl CallRecord {
    /// The tokens to charge, and whether they are an estimate.
    #[must_use]
    pub fn settle(&self, end: CallEnd) -> (Usage, bool) {
        let reported = self.reported.unwrap_or_default();
        let input_is_known = self.input_is_plausible(reported);
        let output_is_known = reported.output <= MOST_TOKENS;
        let understated =
            reported.output.saturating_mul(2).saturating_add(TOLERATED) < self.received.at_least();
        if end == CallEnd::Complete && input_is_known && output_is_known && !understated {
            return (reported, false);
        }
        let own = match end {
            // A vendor that respects the given maximum cannot have billed more.
            CallEnd::Complete => {
                let most = self.output.max(self.received.at_least());
                self.received.at_most().min(most)
            }
            CallEnd::Cut => self.received.at_most(),
            CallEnd::Unknown => self.received.at_most().max(self.output),
        };
        let input = Usage {
            input: self.input,
            ..Usage::default()
        };
        let usage = Usage {
            output: own.max(if output_is_known { reported.output } else { 0 }),
            ..if input_is_known { reported } else { input }
        };
        (usage, true)
    }

    /// All input tokens that the vendor reported, if the number is plausible.
    #[must_use]
    pub fn reported_input(&self) -> Option<u64> {
        let reported = self
            .reported
            .filter(|usage| self.input_is_plausible(*usage));
        reported.map(|usage| usage.total_input())
    }

    fn input_is_plausible(&self, usage: Usage) -> bool {
        let total = usage.total_input();
        let least = self.sent as u64 / MOST_BYTES;
        total > 0 && total >= least && total <= MOST_TOKENS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> OutputCount {
        let mut count = OutputCount::default();
        count.push(text);
        count
    }

    #[test]
    fn the_ascii_table_agrees_with_the_classification() {
        for c in (0..=127_u8).map(char::from) {
            assert_eq!(RunKind::of(c), RunKind::of_any(c), "{c:?}");
        }
    }

    #[test]
    fn the_count_does_not_depend_on_how_the_text_is_split() {
        let text = "fn main() { println!(\"größer, 你好世界\"); }\n\n        // done".repeat(9);
        let mut pieces = OutputCount::default();
        text.chars()
            .for_each(|c| pieces.push(c.encode_utf8(&mut [0; 4])));
        assert_eq!(pieces.at_least(), count(&text).at_least());
        assert_eq!(pieces.bytes(), text.len());
    }

    /// The numbers are those of a common vocabulary of 100,000 tokens.
    #[test]
    fn the_two_bounds_enclose_the_count_of_vendors() {
        let cases = [
            ("The quick brown fox jumps over the lazy dog. ", 10),
            (
                "let total = items.iter().map(|item| item.price).sum();\n",
                15,
            ),
            ("    return self.value\n", 5),
            ("你好世界，今天天气很好。", 13),
        ];
        for (text, real) in cases {
            let (many, real) = (count(&text.repeat(100)), real * 100);
            assert!(many.at_least() <= real, "{text}: {}", many.at_least());
            assert!(many.at_least() >= real / 4, "{text}: {}", many.at_least());
            assert!(many.at_most() >= real, "{text}: {}", many.at_most());
        }
    }

    #[test]
    fn an_answer_of_the_reserved_size_is_not_cut_and_a_longer_one_is() {
        // This text has 1,000 tokens.
        let fitting = count(&"The quick brown fox jumps over the lazy dog. ".repeat(100));
        assert!(!fitting.passes(1_000));
        assert!(fitting.passes(500));
    }

    fn usage(input: u64, output: u64) -> Usage {
        Usage {
            input,
            output,
            ..Usage::default()
        }
    }

    #[track_caller]
    fn check(text: &str, reported: Option<Usage>, end: CallEnd, expect: (u64, u64, bool)) {
        let record = CallRecord {
            sent: 50_000,
            input: 20_000,
            output: 1_000,
            received: count(text),
            reported,
        };
        let (usage, estimated) = record.settle(end);
        let got = (usage.total_input(), usage.output, estimated);
        assert_eq!(got, expect, "{reported:?} {end:?}");
    }

    #[test]
    fn plausible_reports_are_charged_and_all_others_are_estimated() {
        use CallEnd::{Complete, Cut, Unknown};
        let text = "word ".repeat(500);
        check(
            &text,
            Some(usage(2_500, 500)),
            Complete,
            (2_500, 500, false),
        );
        // A plausible report of more than the maximum was billed, so it is charged.
        check(
            &text,
            Some(usage(2_500, 9_000)),
            Complete,
            (2_500, 9_000, false),
        );
        check(&text, None, Complete, (20_000, 1_000, true));
        check(
            &text,
            Some(usage(2_500, u64::MAX)),
            Complete,
            (2_500, 1_000, true),
        );
        check(
            &text,
            Some(usage(u64::MAX, 500)),
            Complete,
            (20_000, 1_000, true),
        );
        check(&text, Some(usage(0, 500)), Complete, (20_000, 1_000, true));
        check(&text, Some(usage(2_500, 1)), Complete, (2_500, 1_000, true));
        check(&text, Some(usage(1, 500)), Complete, (20_000, 1_000, true));
        check("", Some(usage(2_500, 0)), Complete, (2_500, 0, false));
        check("word", Some(usage(2_500, 1)), Cut, (2_500, 2, true));
        check(&text.repeat(9), None, Cut, (20_000, 9_000, true));
        check("", None, Unknown, (20_000, 1_000, true));
        check(&text.repeat(9), None, Unknown, (20_000, 9_000, true));
        check("", Some(usage(2_500, 1)), Unknown, (2_500, 1_000, true));
    }
}
