//! Credentials: a value type that formatting does not reveal, the credentials file, and redaction of text. This module
//! does not read the environment; the caller does.

mod credentials_edit;
mod shape;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use windlass_core::workspace::{FileErrorKind, KeyFinding, REDACTED, Redactor};

use self::shape::Hit;

use crate::workspace::{open_regular, read_whole};

/// A credentials file has only a few lines.
const MAX_FILE: u64 = 256 * 1024;
/// Shorter values are not redacted: they would match ordinary words.
const MIN_REDACTED: usize = 8;
/// The number of characters that [`Secret::ending`] shows, and the number of bytes that it must leave hidden.
const ENDING: usize = 4;
const MIN_HIDDEN: usize = 12;
/// Plain lower-case words shorter than this are not considered values of secret variables.
const MAX_WORD: usize = 12;

/// A secret value. Formatting shows stars; only [`Secret::expose`] returns the value.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Takes ownership of a secret value.
    #[must_use]
    pub fn new(value: impl Into<Box<str>>) -> Self {
        Self(value.into())
    }

    /// Returns the value, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the last four characters, by which a user recognises the value; `None` for a short value, of which they
    /// would reveal too much.
    #[must_use]
    pub fn ending(&self) -> Option<&str> {
        let value = self.0.trim();
        let start = value.char_indices().nth_back(ENDING - 1)?.0;
        (start >= MIN_HIDDEN).then(|| &value[start..])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        // Zeros are valid text, so the bytes can be overwritten in place; the hint keeps the compiler from removing the
        // writes.
        let mut bytes = std::mem::take(&mut self.0).into_boxed_bytes();
        bytes.fill(0);
        std::hint::black_box(&bytes);
    }
}

/// The reason why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Other users can read the file.
    #[error("{path} can be read by others (mode {mode:03o}); run `chmod 600 {path}` first", path = path.display())]
    TooOpen { path: PathBuf, mode: u32 },
    /// The file does not parse. The message quotes no line of the file, because the line may be a key.
    #[error("{path}:{line}: {what}", path = path.display())]
    Malformed {
        path: PathBuf,
        line: usize,
        what: String,
    },
    /// The file cannot be read or written.
    #[error("{0}")]
    File(String),
}

/// The credentials of the user, by name (`anthropic = "…"`).
#[derive(Debug, Default)]
pub struct Credentials {
    values: BTreeMap<String, Secret>,
}

impl Credentials {
    /// Reads `credentials.toml`. A missing file is empty; a file that other users can read is refused.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let (file, stat) = match open_regular(path) {
            Ok(opened) => opened,
            Err(err) if err.kind == FileErrorKind::NotFound => return Ok(Self::default()),
            Err(err) => return Err(SecretError::File(err.message)),
        };
        if stat.mode & 0o077 != 0 {
            return Err(SecretError::TooOpen {
                path: path.to_owned(),
                mode: stat.mode & 0o777,
            });
        }
        let bytes = read_whole(file, stat.size, MAX_FILE, path)
            .map_err(|err| SecretError::File(err.message))?;
        let text = String::from_utf8(bytes).map_err(|_| SecretError::Malformed {
            path: path.to_owned(),
            line: 1,
            what: "it is not UTF-8 text".to_owned(),
        })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, SecretError> {
        let malformed = |at: Option<std::ops::Range<usize>>, what: String| {
            let before = at.and_then(|at| text.get(..at.start)).unwrap_or_default();
            SecretError::Malformed {
                path: path.to_owned(),
                line: before.matches('\n').count() + 1,
                what,
            }
        };
        let table: BTreeMap<String, toml::Spanned<toml::Value>> = toml::from_str(text)
            .map_err(|err| malformed(err.span(), "this is not valid TOML".to_owned()))?;
        let mut values = BTreeMap::new();
        for (name, value) in table {
            let span = value.span();
            match value.into_inner() {
                toml::Value::String(value) => values.insert(name, Secret::new(value)),
                _ => {
                    return Err(malformed(
                        Some(span),
                        format!("the value of `{name}` must be a text in quotes"),
                    ));
                }
            };
        }
        Ok(Self { values })
    }

    /// Returns the credential of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.values.get(name)
    }

    /// Returns the names of all credentials, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Adds a credential in memory, or replaces it.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, secret: Secret) -> Self {
        self.values.insert(name.into(), secret);
        self
    }

    /// Returns all values, for the redactor.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.values.values()
    }
}

/// Returns the number of bytes that may be shown if more bytes follow, because a key may begin near the end.
pub(crate) fn open_key(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(text) => shape::open_from(text),
        // Keys are ASCII, so invalid UTF-8 at the end is not part of one.
        Err(err) => std::str::from_utf8(&bytes[..err.valid_up_to()]).map_or(bytes.len(), |text| {
            let open = shape::open_from(text);
            if open == text.len() {
                bytes.len()
            } else {
                open
            }
        }),
    }
}

/// Redacts known secret values, and text that looks like a key.
#[derive(Default)]
pub struct Secrets {
    values: Vec<Secret>,
    /// Matches all values at once. The longest match wins, so that a secret that contains another is removed
    /// completely.
    known: Option<AhoCorasick>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} values)", self.values.len())
    }
}

impl Secrets {
    /// Builds a redactor for these values and for text that looks like a key. Skips very short values and single plain
    /// words, which would match ordinary text.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = Secret>) -> Self {
        let telling = |value: &Secret| {
            let value = value.expose();
            let word =
                value.len() < MAX_WORD && value.bytes().all(|byte| byte.is_ascii_lowercase());
            value.len() >= MIN_REDACTED && !word
        };
        let mut values: Vec<_> = values.into_iter().filter(telling).collect();
        values.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        values.dedup();
        let words = values.iter().map(Secret::expose);
        // This kind is the fastest to build, and each start builds one.
        let kind = Some(AhoCorasickKind::NoncontiguousNFA);
        let build = || {
            AhoCorasick::builder()
                .kind(kind)
                .match_kind(MatchKind::LeftmostLongest)
                .build(words)
        };
        // Building fails only for more text than fits into memory.
        let known = (!values.is_empty()).then(|| build().ok()).flatten();
        Self { values, known }
    }

    /// Returns the ranges to redact, in order and without overlaps.
    fn hits(&self, text: &str) -> Vec<Hit> {
        let mut hits = shape::hits(text);
        if let Some(known) = &self.known {
            let found = known.find_iter(text).map(|found| Hit {
                start: found.start(),
                end: found.end(),
                kind: "secret",
            });
            hits.extend(found);
        }
        hits.sort_unstable_by_key(|hit| (hit.start, hit.end));
        hits.dedup_by(|next, kept| {
            let overlap = next.start < kept.end;
            if overlap {
                kept.end = kept.end.max(next.end);
            }
            overlap
        });
        hits
    }
}

impl Redactor for Secrets {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let hits = self.hits(text);
        if hits.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut clean = String::with_capacity(text.len());
        let mut at = 0;
        for hit in hits {
            clean.push_str(&text[at..hit.start]);
            clean.push_str(REDACTED);
            clean.push_str(": ");
            clean.push_str(hit.kind);
            clean.push(']');
            at = hit.end;
        }
        clean.push_str(&text[at..]);
        Cow::Owned(clean)
    }

    fn settled(&self, text: &str) -> usize {
        let mut open = shape::open_from(text);
        for secret in &self.values {
            let secret = secret.expose().as_bytes();
            let most = (secret.len() - 1).min(text.len());
            let cut = (1..=most)
                .rev()
                .find(|len| text.as_bytes().ends_with(&secret[..*len]));
            open = open.min(text.len() - cut.unwrap_or(0));
        }
        // Never cut inside a range that is redacted as a whole.
        let hits = if open < text.len() {
            self.hits(text)
        } else {
            Vec::new()
        };
        let inside = hits.iter().find(|hit| hit.start < open && open < hit.end);
        text.floor_char_boundary(inside.map_or(open, |hit| hit.start))
    }

    fn scan(&self, text: &str) -> Vec<KeyFinding> {
        let mut line = 1;
        let mut counted = 0;
        let found = self.hits(text).into_iter().map(|hit| {
            line += memchr::memchr_iter(b'\n', &text.as_bytes()[counted..hit.start]).count();
            counted = hit.start;
            KeyFinding {
                line,
                kind: hit.kind,
            }
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::new("sk-very-secret");
        assert_eq!(
            format!("{secret} {secret:?} {:?}", Some(&secret)),
            "*** *** Some(***)"
        );
        let (_dir, path) = file("a = \"sk-very-secret\"", 0o600);
        let credentials = Credentials::read(&path).unwrap();
        assert!(!format!("{credentials:?}").contains("very"));
        assert_eq!(credentials.get("a").unwrap().expose(), "sk-very-secret");
        assert_eq!(credentials.secrets().count(), 1);
        let none = Credentials::read(&path.with_file_name("none.toml")).unwrap();
        assert_eq!(none.secrets().count(), 0);
    }

    #[test]
    fn only_the_end_of_a_long_secret_is_shown() {
        let check = |value: &str, expect: Option<&str>| {
            assert_eq!(Secret::new(value).ending(), expect, "{value}");
        };
        check("sk-ant-0123456789", Some("6789"));
        check(" sk-ant-0123456789\n", Some("6789"));
        check("0123456789abcdef", Some("cdef"));
        check("0123456789abcde", None);
        check("", None);
    }

    #[track_caller]
    fn check_refused(text: &str, mode: u32, part: &str) {
        let (_dir, path) = file(text, mode);
        let err = Credentials::read(&path).unwrap_err().to_string();
        assert!(err.contains(part), "{err}");
        assert!(!err.contains("hunter2"), "{err}");
    }

    #[test]
    fn a_readable_or_malformed_file_is_refused_without_quoting_it() {
        check_refused("a = \"hunter2\"", 0o640, "chmod 600 ");
        check_refused("a = \"hunter2\"", 0o604, "mode 604");
        check_refused("\na = \"hunter2", 0o600, "credentials.toml:2: ");
        check_refused(
            "a = 'x'\nb = [\"hunter2\"]",
            0o600,
            "credentials.toml:2: the value of `b`",
        );
    }

    #[test]
    fn known_secrets_are_redacted_completely_and_clean_text_is_not_copied() {
        let known =
            Secrets::new(["pw-12345678", "pw-12345678-long", "short", "disabled"].map(Secret::new));
        let text = "a pw-12345678-long b pw-12345678 c short disabled";
        let gone = format!("{REDACTED}: secret]");
        assert_eq!(
            known.redact(text),
            format!("a {gone} b {gone} c short disabled")
        );
        assert!(matches!(known.redact("nothing here"), Cow::Borrowed(_)));
        assert_eq!(format!("{known:?}"), "Secrets(2 values)");
    }

    #[test]
    fn the_start_of_a_secret_is_held_back() {
        let known = Secrets::new([Secret::new("hunter2-hunter2")]);
        for (text, settled) in [
            ("say hunt", 4),
            ("say hunted", 10),
            ("say hunter2-hunter2", 4),
            ("say hunter2-hunter2 ", 20),
            ("é hunter", 3),
            ("", 0),
        ] {
            assert_eq!(known.settled(text), settled, "{text}");
        }
    }

    #[test]
    fn a_scan_returns_line_and_kind_but_never_the_value() {
        let known = Secrets::new([Secret::new("hunter2-hunter2")]);
        let text = "a\nb hunter2-hunter2\n\nAKIAIOSFODNN7EXAMPLE x AKIAIOSFODNN7EXAMPLE";
        let found: Vec<_> = known
            .scan(text)
            .iter()
            .map(|found| format!("{}: {}", found.line, found.kind))
            .collect();
        assert_eq!(found, ["2: secret", "4: aws key id", "4: aws key id"]);
    }
}
