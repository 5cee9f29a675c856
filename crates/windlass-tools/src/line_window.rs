//! Pages through the lines of a large file or a stored result in bounded memory. Nothing is opened here: the caller
//! provides the bytes.

use windlass_core::tool::ToolFailure;

/// Maximum bytes of a line that are shown.
const MAX_LINE: usize = 2_000;
/// The length at which a long line is broken, if lines are broken. A line number in front still fits.
const BROKEN: usize = 1_900;
/// Bytes that are read at once.
const CHUNK: u64 = 1 << 20;
/// Maximum distance into the file, in bytes.
const MAX_SCAN: u64 = 256 << 20;

/// The lines to show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// The first line, counted from 1.
    pub(crate) first: usize,
    /// Maximum number of lines.
    pub(crate) limit: usize,
    /// Maximum bytes of the result.
    pub(crate) max: usize,
    /// True if long lines are broken into several, so that all of their bytes can be reached.
    pub(crate) broken: bool,
}

/// The lines in a window.
#[derive(Debug, Default)]
pub(crate) struct FoundLines {
    /// The lines with their numbers and line endings.
    pub(crate) text: String,
    /// The number of lines.
    pub(crate) shown: usize,
    /// The total number of lines, if the end was reached.
    pub(crate) total: Option<usize>,
}

/// Reads pieces (`offset`, `len`) until the window is full or the end is reached.
pub(crate) fn find(
    window: Window,
    mut read: impl FnMut(u64, u64) -> Result<Vec<u8>, ToolFailure>,
) -> Result<FoundLines, ToolFailure> {
    let mut scan = LineScan {
        window,
        number: 1,
        line: Vec::new(),
        dropped: 0,
        found: FoundLines::default(),
    };
    let mut at = 0;
    while at < MAX_SCAN && !scan.is_full() {
        let chunk = read(at, CHUNK)?;
        if chunk.is_empty() {
            if !scan.line.is_empty() {
                scan.end_line();
            }
            scan.found.total = Some(scan.number - 1);
            break;
        }
        at += chunk.len() as u64;
        scan.push(&chunk);
    }
    Ok(scan.found)
}

struct LineScan {
    window: Window,
    /// The number of the current line.
    number: usize,
    line: Vec<u8>,
    /// Bytes of the current line that were dropped.
    dropped: usize,
    found: FoundLines,
}

impl LineScan {
    fn is_full(&self) -> bool {
        self.found.shown >= self.window.limit || self.found.text.len() >= self.window.max
    }

    fn push(&mut self, chunk: &[u8]) {
        for piece in chunk.split_inclusive(|&byte| byte == b'\n') {
            let ended = piece.strip_suffix(b"\n");
            let text = self.break_off(ended.unwrap_or(piece));
            let kept = text.len().min(MAX_LINE.saturating_sub(self.line.len()));
            self.line.extend_from_slice(&text[..kept]);
            self.dropped += text.len() - kept;
            if ended.is_some() {
                self.end_line();
            }
            if self.is_full() {
                return;
            }
        }
    }

    /// Ends lines that became too long, if lines are to be broken. Returns the rest, which belongs to the next line.
    fn break_off<'a>(&mut self, mut text: &'a [u8]) -> &'a [u8] {
        while self.window.broken && self.line.len() + text.len() > BROKEN && !self.is_full() {
            let mut cut = BROKEN.saturating_sub(self.line.len());
            // Do not cut inside a character.
            cut += text[cut..]
                .iter()
                .take(3)
                .take_while(|&&byte| byte & 0xC0 == 0x80)
                .count();
            self.line.extend_from_slice(&text[..cut]);
            self.end_line();
            text = &text[cut..];
        }
        text
    }

    fn end_line(&mut self) {
        if self.number >= self.window.first && !self.is_full() {
            let text = String::from_utf8_lossy(&self.line);
            push_cut(
                &mut self.found.text,
                &format!("{}|{}", self.number, text.trim_end_matches('\r')),
                self.dropped,
            );
            self.found.shown += 1;
        }
        self.number += 1;
        self.line.clear();
        self.dropped = 0;
    }
}

/// Appends a line and shortens it if it is too long. `dropped` bytes of it are missing already.
pub(crate) fn push_cut(out: &mut String, entry: &str, dropped: usize) {
    let cut = &entry[..entry.floor_char_boundary(MAX_LINE)];
    out.push_str(cut);
    let left = entry.len() - cut.len() + dropped;
    if left > 0 {
        out.push_str(&format!("… [{left} more bytes on this line]"));
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &[u8], window: Window, piece: usize) -> FoundLines {
        let read = |at: u64, _| {
            let at = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
            Ok(text[at..text.len().min(at + piece)].to_vec())
        };
        find(window, read).unwrap_or_default()
    }

    const WHOLE: Window = Window {
        first: 1,
        limit: usize::MAX,
        max: usize::MAX,
        broken: false,
    };

    #[test]
    fn a_last_line_without_its_end_is_a_line() {
        let found = all(b"a\r\n\nb", WHOLE, 2);
        assert_eq!(
            (found.text.as_str(), found.shown, found.total),
            ("1|a\n2|\n3|b\n", 3, Some(3))
        );
        assert_eq!(all(b"", WHOLE, 2).total, Some(0));
    }

    #[test]
    fn a_long_line_is_cut_or_broken() {
        let long = "é".repeat(3_000);
        let found = all(long.as_bytes(), WHOLE, 1_000);
        assert!(
            found.text.ends_with("… [4002 more bytes on this line]\n"),
            "{}",
            found.text.len()
        );
        let broken = all(
            long.as_bytes(),
            Window {
                broken: true,
                ..WHOLE
            },
            1_001,
        );
        let joined: String = broken
            .text
            .lines()
            .filter_map(|line| Some(line.split_once('|')?.1))
            .collect();
        assert_eq!(joined, long);
        assert_eq!(broken.total, Some(4));
    }

    proptest! {
        #[test]
        fn pages_add_up_to_the_whole_for_any_size_of_the_pieces(
            lines in prop::collection::vec("[a-zé]{0,9}", 0..20),
            piece in 1..9usize,
            limit in 1..5usize,
        ) {
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let whole: String = lines.iter().enumerate().map(|(at, line)| format!("{}|{line}\n", at + 1)).collect();
            let (mut first, mut pages) = (1, String::new());
            while first <= lines.len() {
                let page = all(text.as_bytes(), Window { first, limit, ..WHOLE }, piece);
                prop_assert!(page.shown > 0);
                pages.push_str(&page.text);
                first += page.shown;
            }
            prop_assert_eq!(pages, whole);
        }
    }
}
