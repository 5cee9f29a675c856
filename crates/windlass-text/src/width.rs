//! Widths of text in terminal columns, counted by grapheme clusters.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// The width of a text in columns. A grapheme cluster, for example an emoji with a joiner, is one symbol.
#[must_use]
pub fn columns(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    text.graphemes(true).map(cluster_columns).sum()
}

/// The width of one grapheme cluster. Terminals show none wider than two columns.
pub(crate) fn cluster_columns(cluster: &str) -> usize {
    cluster.width().min(2)
}

/// Iterates over the grapheme clusters and their widths.
pub fn clusters(text: &str) -> impl Iterator<Item = (&str, usize)> + '_ {
    // A segmentation of ASCII would find each byte; finding them directly is several times faster.
    let (ascii, rest) = text.split_at(ascii_prefix(text));
    let single = (0..ascii.len()).map(move |at| (&ascii[at..=at], 1));
    single.chain(
        rest.graphemes(true)
            .map(|cluster| (cluster, cluster_columns(cluster))),
    )
}

/// The length of the prefix whose bytes are clusters of their own. The last ASCII byte may have a combining mark.
fn ascii_prefix(text: &str) -> usize {
    match text.bytes().position(|byte| !byte.is_ascii()) {
        None => text.len(),
        Some(at) => at.saturating_sub(1),
    }
}

/// The longest prefix that has at most `max` columns, and its width.
#[must_use]
pub fn prefix(text: &str, max: usize) -> (&str, usize) {
    // The byte after the prefix must be ASCII, too, because a combining mark would belong to the last symbol.
    let begin = &text.as_bytes()[..text.len().min(max.saturating_add(1))];
    if begin.is_ascii() {
        let end = begin.len().min(max);
        return (&text[..end], end);
    }
    let (mut end, mut used) = (0, 0);
    for cluster in text.graphemes(true) {
        let width = cluster_columns(cluster);
        if used + width > max {
            break;
        }
        end += cluster.len();
        used += width;
    }
    (&text[..end], used)
}

/// The first grapheme cluster and its width.
pub(crate) fn first_cluster(text: &str) -> (&str, usize) {
    let cluster = text.graphemes(true).next().unwrap_or(text);
    (cluster, cluster_columns(cluster))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: usize) {
        assert_eq!(columns(text), expect, "{text:?}");
        assert_eq!(
            clusters(text).map(|(_, width)| width).sum::<usize>(),
            expect
        );
        let all: String = clusters(text).map(|(cluster, _)| cluster).collect();
        assert_eq!(all, text);
    }

    #[test]
    fn clusters_have_the_width_that_terminals_show() {
        check("", 0);
        check("abc", 3);
        check("漢字", 4);
        check("e\u{301}x", 2);
        check("👩\u{200d}👩\u{200d}👧", 2);
        check("a❤\u{fe0f}", 3);
        check("🇩🇪", 2);
    }

    #[test]
    fn a_prefix_never_cuts_a_cluster() {
        assert_eq!(prefix("a漢b", 2), ("a", 1));
        assert_eq!(prefix("e\u{301}x", 1), ("e\u{301}", 1));
        assert_eq!(prefix("abc", 9), ("abc", 3));
    }
}
