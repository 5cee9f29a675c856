//! Decodes a file's bytes to text that can be edited and written back without changing anything else:
//! the byte-order mark, the encoding, the ending of each line and a missing final newline are preserved.
//!
//! Never normalises: `decode` followed by `encode` of the same content is the identity.

use std::borrow::Cow;
use std::fmt;

/// The character encoding of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8, the usual case.
    Utf8,
    /// UTF-16, little-endian; recognised by its byte-order mark only.
    Utf16Le,
    /// UTF-16, big-endian; recognised by its byte-order mark only.
    Utf16Be,
    /// Latin-1: each byte is the character with that number. The fallback, because any bytes round-trip.
    SingleByte,
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Utf8 => "UTF-8",
            Self::Utf16Le => "UTF-16 LE",
            Self::Utf16Be => "UTF-16 BE",
            Self::SingleByte => "a single-byte encoding (read as Latin-1)",
        })
    }
}

/// Why bytes cannot be decoded, or text cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The bytes contain a NUL, so the file is not text.
    #[error("the file is binary (it has a NUL character at byte {at})")]
    Binary {
        /// Offset of the first NUL.
        at: usize,
    },
    /// The file has a UTF-16 byte-order mark but is not valid UTF-16.
    #[error("the file starts like UTF-16 but is not valid UTF-16, so it cannot be edited as text")]
    BrokenUtf16,
    /// The new text has a character that the file's encoding cannot represent.
    #[error(
        "the file is stored in {encoding}, which has no character {character:?}; use characters the file can hold, or rewrite the whole file"
    )]
    Unencodable {
        /// The encoding of the file.
        encoding: Encoding,
        /// The first character that does not fit.
        character: char,
    },
}

/// Decoded text together with what is needed to write it back unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedText {
    /// The characters, with the line endings exactly as in the file, without the byte-order mark.
    pub content: String,
    /// The encoding to write the text back in.
    pub encoding: Encoding,
    /// Whether the file starts with a byte-order mark.
    pub bom: bool,
}

const BOM_UTF8: &[u8] = &[0xEF, 0xBB, 0xBF];
const BOM_UTF16_LE: &[u8] = &[0xFF, 0xFE];
const BOM_UTF16_BE: &[u8] = &[0xFE, 0xFF];

impl DecodedText {
    /// Detects the encoding of `bytes` and decodes them.
    pub fn decode(bytes: &[u8]) -> Result<Self, TextError> {
        for (mark, encoding) in [
            (BOM_UTF16_LE, Encoding::Utf16Le),
            (BOM_UTF16_BE, Encoding::Utf16Be),
        ] {
            if let Some(rest) = bytes.strip_prefix(mark) {
                return decode_utf16(rest, encoding);
            }
        }
        if let Some(at) = memchr::memchr(0, bytes) {
            return Err(TextError::Binary { at });
        }
        let (bom, rest) = match bytes.strip_prefix(BOM_UTF8) {
            Some(rest) => (true, rest),
            None => (false, bytes),
        };
        match std::str::from_utf8(rest) {
            Ok(text) => Ok(Self {
                content: text.to_owned(),
                encoding: Encoding::Utf8,
                bom,
            }),
            // In Latin-1 text the three bytes of a UTF-8 mark are ordinary characters.
            Err(_) => Ok(Self {
                content: bytes.iter().map(|&b| char::from(b)).collect(),
                encoding: Encoding::SingleByte,
                bom: false,
            }),
        }
    }

    /// Encodes `content` with the encoding and the byte-order mark of this file.
    pub fn encode(&self, content: &str) -> Result<Vec<u8>, TextError> {
        let mut bytes = Vec::with_capacity(content.len() + 3);
        match self.encoding {
            Encoding::Utf8 => {
                if self.bom {
                    bytes.extend_from_slice(BOM_UTF8);
                }
                bytes.extend_from_slice(content.as_bytes());
            }
            Encoding::Utf16Le => {
                bytes.extend_from_slice(BOM_UTF16_LE);
                bytes.extend(content.encode_utf16().flat_map(u16::to_le_bytes));
            }
            Encoding::Utf16Be => {
                bytes.extend_from_slice(BOM_UTF16_BE);
                bytes.extend(content.encode_utf16().flat_map(u16::to_be_bytes));
            }
            Encoding::SingleByte => {
                for character in content.chars() {
                    let byte =
                        u8::try_from(u32::from(character)).map_err(|_| TextError::Unencodable {
                            encoding: self.encoding,
                            character,
                        })?;
                    bytes.push(byte);
                }
            }
        }
        Ok(bytes)
    }
}

fn decode_utf16(rest: &[u8], encoding: Encoding) -> Result<DecodedText, TextError> {
    let (pairs, odd) = rest.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(TextError::BrokenUtf16);
    }
    let units = pairs.iter().map(|&pair| match encoding {
        Encoding::Utf16Be => u16::from_be_bytes(pair),
        _ => u16::from_le_bytes(pair),
    });
    let mut content = String::with_capacity(rest.len() / 2);
    for unit in char::decode_utf16(units) {
        match unit {
            Ok('\0') => {
                return Err(TextError::Binary {
                    at: 2 + content.encode_utf16().count() * 2,
                });
            }
            Ok(character) => content.push(character),
            Err(_) => return Err(TextError::BrokenUtf16),
        }
    }
    Ok(DecodedText {
        content,
        encoding,
        bom: true,
    })
}

/// The characters at the end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEnding {
    /// The last line of a file without a final newline.
    None,
    /// `\n`, as on Unix.
    Lf,
    /// `\r\n`, as on Windows.
    CrLf,
    /// A `\r` that no `\n` follows.
    Cr,
}

impl LineEnding {
    /// The characters of the ending.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::Cr => "\r",
        }
    }
}

/// One line of a text with its position and its ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLine<'a> {
    /// Byte offset of the first character.
    pub start: usize,
    /// The line without its ending.
    pub text: &'a str,
    /// The ending, which is not part of `text`.
    pub ending: LineEnding,
}

impl TextLine<'_> {
    /// Byte offset of the ending.
    pub fn text_end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Byte offset of the next line.
    pub fn end(&self) -> usize {
        self.text_end() + self.ending.as_str().len()
    }
}

/// Splits a text into lines. An empty text has none, and a final newline does not start another line.
pub fn lines(content: &str) -> Vec<TextLine<'_>> {
    let bytes = content.as_bytes();
    let mut lines = Vec::new();
    let mut start = 0;
    for at in memchr::memchr2_iter(b'\n', b'\r', bytes) {
        // This `\n` was consumed together with the `\r` before it.
        if at < start {
            continue;
        }
        let ending = match (bytes[at], bytes.get(at + 1)) {
            (b'\n', _) => LineEnding::Lf,
            (_, Some(b'\n')) => LineEnding::CrLf,
            _ => LineEnding::Cr,
        };
        let line = TextLine {
            start,
            text: &content[start..at],
            ending,
        };
        start = line.end();
        lines.push(line);
    }
    if start < content.len() {
        lines.push(TextLine {
            start,
            text: &content[start..],
            ending: LineEnding::None,
        });
    }
    lines
}

/// The ending for new lines that replace `around`: the most common one there (the first one if two are
/// equally common), else the most common one in `all`, else `\n`.
pub fn ending_for(around: &[TextLine<'_>], all: &[TextLine<'_>]) -> LineEnding {
    most_common(around)
        .or_else(|| most_common(all))
        .unwrap_or(LineEnding::Lf)
}

fn most_common(lines: &[TextLine<'_>]) -> Option<LineEnding> {
    let mut counts: [(LineEnding, usize, usize); 3] = [
        (LineEnding::Lf, 0, usize::MAX),
        (LineEnding::CrLf, 0, usize::MAX),
        (LineEnding::Cr, 0, usize::MAX),
    ];
    for (index, line) in lines.iter().enumerate() {
        if let Some(entry) = counts.iter_mut().find(|entry| entry.0 == line.ending) {
            entry.1 += 1;
            entry.2 = entry.2.min(index);
        }
    }
    counts
        .into_iter()
        .filter(|entry| entry.1 > 0)
        .max_by_key(|&(_, count, first)| (count, std::cmp::Reverse(first)))
        .map(|entry| entry.0)
}

/// The texts of lines, without their endings.
pub(crate) fn texts<'a>(lines: &[TextLine<'a>]) -> Vec<&'a str> {
    lines.iter().map(|line| line.text).collect()
}

/// Maps a line to the form in which it is compared, for example without trailing spaces.
pub(crate) type LineKey = for<'a> fn(&'a str) -> Cow<'a, str>;

/// The indexes at which the wanted lines occur, including overlapping occurrences. Uses Knuth-Morris-Pratt over lines,
/// so that the time is linear even for repetitive files. `wanted` must not be empty.
pub(crate) fn windows(lines: &[TextLine<'_>], wanted: &[&str], key: LineKey) -> Vec<usize> {
    let wanted: Vec<Cow<'_, str>> = wanted.iter().map(|text| key(text)).collect();
    let mut fallback = vec![0; wanted.len()];
    let mut matched = 0;
    for at in 1..wanted.len() {
        while matched > 0 && wanted[at] != wanted[matched] {
            matched = fallback[matched - 1];
        }
        if wanted[at] == wanted[matched] {
            matched += 1;
        }
        fallback[at] = matched;
    }
    let mut found = Vec::new();
    matched = 0;
    for (at, line) in lines.iter().enumerate() {
        let text = key(line.text);
        while matched > 0 && text != wanted[matched] {
            matched = fallback[matched - 1];
        }
        if text == wanted[matched] {
            matched += 1;
        }
        if matched == wanted.len() {
            found.push(at + 1 - matched);
            matched = fallback[matched - 1];
        }
    }
    found
}

/// Appends lines to `out` with the endings they have.
pub(crate) fn push_lines(out: &mut String, lines: &[TextLine<'_>]) {
    for line in lines {
        out.push_str(line.text);
        out.push_str(line.ending.as_str());
    }
}

/// Replaces every line ending in `text` with `ending`. With `keep_explicit`, only a bare `\n` is
/// replaced: a `\r\n` in an edit is taken to be intended.
pub fn with_endings(text: &str, ending: LineEnding, keep_explicit: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for line in lines(text) {
        out.push_str(line.text);
        out.push_str(match line.ending {
            LineEnding::Lf => ending.as_str(),
            LineEnding::CrLf | LineEnding::Cr if !keep_explicit => ending.as_str(),
            other => other.as_str(),
        });
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check_decode(bytes: &[u8], expect: Result<(&str, Encoding), TextError>) {
        let text = DecodedText::decode(bytes);
        assert_eq!(
            text.as_ref().map(|t| (t.content.as_str(), t.encoding)),
            expect.as_ref().copied()
        );
        if let Ok(text) = text {
            assert_eq!(
                text.encode(&text.content).unwrap(),
                bytes,
                "encoding returns the same bytes"
            );
        }
    }

    #[test]
    fn each_encoding_is_recognised_and_round_trips() {
        check_decode(b"", Ok(("", Encoding::Utf8)));
        check_decode("naïve\r\n".as_bytes(), Ok(("naïve\r\n", Encoding::Utf8)));
        check_decode(b"\xEF\xBB\xBFa\n", Ok(("a\n", Encoding::Utf8)));
        check_decode(b"\xFF\xFEa\0\n\0", Ok(("a\n", Encoding::Utf16Le)));
        check_decode(
            b"\xFE\xFF\0a\xD8\x3D\xDE\x00",
            Ok(("a😀", Encoding::Utf16Be)),
        );
        check_decode(b"caf\xE9\n", Ok(("café\n", Encoding::SingleByte)));
        check_decode(b"\xEF\xBB\xBF\xE9", Ok(("ï»¿é", Encoding::SingleByte)));
    }

    #[test]
    fn binary_is_refused() {
        check_decode(b"a\0b", Err(TextError::Binary { at: 1 }));
        check_decode(b"\xFF\xFE\0\0", Err(TextError::Binary { at: 2 }));
        check_decode(b"\xFF\xFEa", Err(TextError::BrokenUtf16));
        check_decode(b"\xFF\xFE\x00\xD8", Err(TextError::BrokenUtf16));
    }

    #[test]
    fn a_character_the_encoding_lacks_is_refused() {
        let text = DecodedText::decode(b"caf\xE9").unwrap();
        assert_eq!(
            text.encode("→"),
            Err(TextError::Unencodable {
                encoding: Encoding::SingleByte,
                character: '→'
            })
        );
    }

    #[test]
    fn lines_keep_their_own_endings() {
        let found: Vec<_> = lines("a\r\nb\rc\n\nd")
            .iter()
            .map(|l| (l.text, l.ending))
            .collect();
        let expect = [
            ("a", LineEnding::CrLf),
            ("b", LineEnding::Cr),
            ("c", LineEnding::Lf),
            ("", LineEnding::Lf),
            ("d", LineEnding::None),
        ];
        assert_eq!(found, expect);
        assert!(lines("").is_empty());
        assert_eq!(lines("\r\r\n").len(), 2);
    }

    #[test]
    fn new_lines_get_the_ending_of_their_place() {
        let all = lines("a\r\nb\nc\n");
        assert_eq!(ending_for(&all[..1], &all), LineEnding::CrLf);
        assert_eq!(
            ending_for(&all[..2], &all),
            LineEnding::CrLf,
            "a tie goes to the first"
        );
        assert_eq!(ending_for(&[], &all), LineEnding::Lf);
        assert_eq!(ending_for(&[], &[]), LineEnding::Lf);
        assert_eq!(with_endings("x\ny\r\nz", LineEnding::Cr, true), "x\ry\r\nz");
        assert_eq!(with_endings("x\ny\r\nz", LineEnding::Cr, false), "x\ry\rz");
    }

    proptest! {
        #[test]
        fn decoded_bytes_round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..200), mark in 0..4usize) {
            let mut all = [&b""[..], BOM_UTF8, BOM_UTF16_LE, BOM_UTF16_BE][mark].to_vec();
            all.extend(bytes);
            if let Ok(text) = DecodedText::decode(&all) {
                prop_assert_eq!(text.encode(&text.content).unwrap(), all);
            }
        }

        #[test]
        fn joined_lines_are_the_text(content in "[a\r\n ]{0,40}") {
            let joined: String = lines(&content).iter().flat_map(|l| [l.text, l.ending.as_str()]).collect();
            prop_assert_eq!(joined, content);
        }
    }
}
