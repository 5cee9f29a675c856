//! Redaction of streams: live deltas on their way to a view, and bytes on their way into an artifact. Whole events are
//! redacted by `windlass_core::redact` before they are logged.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use windlass_core::event::DeltaOf;
use windlass_core::id::ArtifactId;
use windlass_core::message::ArtifactRef;
use windlass_core::workspace::{ArtifactError, ArtifactWriter, Artifacts, REDACTED, Redactor};

/// True if a value contains the placeholder that replaces a redacted secret.
pub(crate) fn has_placeholder(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(REDACTED),
        Value::Array(items) => items.iter().any(has_placeholder),
        Value::Object(map) => map.values().any(has_placeholder),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Redacts live deltas. Text that may be the start of a secret is held back until its end has arrived.
#[derive(Default)]
pub(crate) struct HeldDeltas(Vec<(DeltaOf, String)>);

impl HeldDeltas {
    /// Adds a piece of the stream and returns the redacted text that may be displayed now.
    pub(crate) fn push(&mut self, redactor: &dyn Redactor, of: &DeltaOf, piece: &str) -> String {
        let known = self.0.iter().position(|(known, _)| known == of);
        let at = known.unwrap_or_else(|| {
            self.0.push((of.clone(), String::new()));
            self.0.len() - 1
        });
        let held = &mut self.0[at].1;
        held.push_str(piece);
        let ready = if held.len() > MAX_HELD_DELTA {
            held.len()
        } else {
            redactor.settled(held)
        };
        let rest = held.split_off(ready);
        let ready = std::mem::replace(held, rest);
        redactor.redact(&ready).into_owned()
    }

    /// Returns the rest at the end of the stream.
    pub(crate) fn finish(&mut self, redactor: &dyn Redactor) -> Vec<(DeltaOf, String)> {
        let held = self.0.drain(..).filter(|(_, text)| !text.is_empty());
        held.map(|(of, text)| (of, redactor.redact(&text).into_owned()))
            .collect()
    }
}

/// Maximum number of bytes of deltas that are held back.
const MAX_HELD_DELTA: usize = 20 << 10;

/// Maximum number of bytes of an artifact that are held back until the line is complete.
const MAX_HELD: usize = 64 << 10;
/// Number of bytes of a longer line that are still held back, so that a secret is not split.
const OVERLAP: usize = 4 << 10;

/// An artifact store that redacts everything before it is stored.
pub(crate) struct RedactedArtifacts {
    inner: Arc<dyn Artifacts>,
    redactor: Arc<dyn Redactor>,
}

impl RedactedArtifacts {
    pub(crate) fn new(inner: Arc<dyn Artifacts>, redactor: Arc<dyn Redactor>) -> Self {
        Self { inner, redactor }
    }
}

impl Artifacts for RedactedArtifacts {
    fn put(&self, bytes: &[u8]) -> Result<ArtifactRef, ArtifactError> {
        self.inner.put(&redacted(self.redactor.as_ref(), bytes))
    }

    fn create(&self) -> Result<Box<dyn ArtifactWriter>, ArtifactError> {
        let inner = self.inner.create()?;
        Ok(Box::new(RedactedWriter {
            inner,
            redactor: self.redactor.clone(),
            held: Vec::new(),
        }))
    }

    fn read(&self, id: &ArtifactId, offset: u64, len: u64) -> Result<Vec<u8>, ArtifactError> {
        self.inner.read(id, offset, len)
    }
}

struct RedactedWriter {
    inner: Box<dyn ArtifactWriter>,
    redactor: Arc<dyn Redactor>,
    held: Vec<u8>,
}

impl ArtifactWriter for RedactedWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        self.held.extend_from_slice(bytes);
        let ready = match self.held.iter().rposition(|byte| *byte == b'\n') {
            // A key may have several lines; hold them back until the last one has arrived.
            Some(at) => {
                let lines = std::str::from_utf8(&self.held[..=at]);
                let settled = lines.map_or(at + 1, |lines| self.redactor.settled(lines));
                if at + 1 - settled > MAX_HELD {
                    at + 1
                } else {
                    settled
                }
            }
            None if self.held.len() > MAX_HELD => self.held.len() - OVERLAP,
            None => return Ok(()),
        };
        let rest = self.held.split_off(ready);
        let ready = std::mem::replace(&mut self.held, rest);
        self.inner.write(&redacted(self.redactor.as_ref(), &ready))
    }

    fn finish(mut self: Box<Self>) -> Result<ArtifactRef, ArtifactError> {
        let held = std::mem::take(&mut self.held);
        self.inner.write(&redacted(self.redactor.as_ref(), &held))?;
        self.inner.finish()
    }
}

/// Redacts bytes. Bytes without a secret are returned unchanged, also if they are not valid UTF-8.
fn redacted<'a>(redactor: &dyn Redactor, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    let text = String::from_utf8_lossy(bytes);
    match redactor.redact(&text) {
        Cow::Borrowed(_) => Cow::Borrowed(bytes),
        Cow::Owned(clean) => Cow::Owned(clean.into_bytes()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use windlass_testing::MemoryArtifacts;

    struct HidesText(&'static str);

    impl Redactor for HidesText {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            if text.contains(self.0) {
                Cow::Owned(text.replace(self.0, "***"))
            } else {
                Cow::Borrowed(text)
            }
        }
    }

    #[test]
    fn a_secret_is_found_wherever_the_pieces_are_cut_and_other_bytes_stay() {
        let memory = MemoryArtifacts::default();
        let artifacts = RedactedArtifacts::new(Arc::new(memory), Arc::new(HidesText("s3cr3t")));
        let text = b"one s3cr3t\n\xff\xfe raw\nlast s3cr3t";
        for cut in 0..text.len() {
            let mut writer = artifacts.create().unwrap();
            writer.write(&text[..cut]).unwrap();
            writer.write(&text[cut..]).unwrap();
            let stored = writer.finish().unwrap();
            let read = artifacts.read(&stored.id, 0, 100).unwrap();
            assert!(!read.windows(6).any(|piece| piece == b"s3cr3t"), "{cut}");
        }
        let raw = b"\xff\xfe no secret";
        let stored = artifacts.put(raw).unwrap();
        assert_eq!(artifacts.read(&stored.id, 0, 100).unwrap(), raw);
    }

    impl HidesText {
        fn starts(&self, text: &str) -> usize {
            let cut = (1..self.0.len())
                .rev()
                .find(|len| text.ends_with(&self.0[..*len]));
            text.len() - cut.unwrap_or(0)
        }
    }

    struct HidesPieces(HidesText);

    impl Redactor for HidesPieces {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            self.0.redact(text)
        }

        fn settled(&self, text: &str) -> usize {
            self.0.starts(text)
        }
    }

    #[test]
    fn deltas_never_show_a_piece_of_a_secret_and_lose_nothing_else() {
        let redactor = HidesPieces(HidesText("s3cr3t"));
        let text = "is s3cr3t so s3cr";
        for first in 0..text.len() {
            for second in first..text.len() {
                let mut held = HeldDeltas::default();
                let mut shown = String::new();
                for piece in [&text[..first], &text[first..second], &text[second..]] {
                    shown.push_str(&held.push(&redactor, &DeltaOf::Text, piece));
                    assert!(!shown.contains("s3"), "{first} {second}: {shown}");
                }
                for (of, rest) in held.finish(&redactor) {
                    assert_eq!(of, DeltaOf::Text);
                    shown.push_str(&rest);
                }
                assert_eq!(shown, "is *** so s3cr");
            }
        }
    }
}
