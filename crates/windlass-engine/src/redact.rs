//! Large results without secrets: what a call stores passes the redactor on its way, line by line.

use std::borrow::Cow;
use std::sync::Arc;

use windlass_core::id::ArtifactId;
use windlass_core::message::ArtifactRef;
use windlass_core::workspace::{ArtifactError, ArtifactWriter, Artifacts, Redactor};

/// Text is held back until its line is complete, up to this much.
const MAX_HELD: usize = 64 << 10;
/// Of a longer line, this much stays behind, so that a secret is not cut in two.
const OVERLAP: usize = 4 << 10;

/// Artifacts that hold no known secret.
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
        Ok(Box::new(RedactedWriter { inner, redactor: self.redactor.clone(), held: Vec::new() }))
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
            Some(at) => at + 1,
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

/// Bytes without secrets; the very same bytes when there was none.
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
    use crate::testing::MemoryArtifacts;

    struct Hides(&'static str);

    impl Redactor for Hides {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            if text.contains(self.0) { Cow::Owned(text.replace(self.0, "***")) } else { Cow::Borrowed(text) }
        }
    }

    #[test]
    fn a_secret_is_found_wherever_the_pieces_are_cut_and_other_bytes_stay() {
        let memory = MemoryArtifacts::default();
        let artifacts = RedactedArtifacts::new(Arc::new(memory), Arc::new(Hides("s3cr3t")));
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
}
