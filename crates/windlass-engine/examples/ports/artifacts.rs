//! Artifacts: the storage of results that are too large for the conversation. The model gets a preview and an id.
//! This store is capped: bytes above the cap are counted and dropped, so that no tool can fill a disk.
//! An engine asks for the artifacts of a session when it starts a run, so each session can have its own directory.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use windlass_core::event::EventKind;
use windlass_core::id::{ArtifactId, SessionId};
use windlass_core::message::ArtifactRef;
use windlass_core::tool::{Effect, ToolFailure, ToolOutput};
use windlass_core::workspace::{ArtifactError, ArtifactWriter, Artifacts};
use windlass_engine::Request;
use windlass_testing::{FnTool, call, says};

use super::ExampleResult;
use super::fakes::Fakes;

/// Maximum size of one artifact, in bytes.
const CAP: usize = 200_000;

#[derive(Clone, Default)]
struct MemoryArtifactStore(Arc<Mutex<BTreeMap<ArtifactId, Vec<u8>>>>);

/// An artifact while it is written.
struct CappedWriter {
    to: MemoryArtifactStore,
    bytes: Vec<u8>,
}

impl Artifacts for MemoryArtifactStore {
    fn put(&self, bytes: &[u8]) -> Result<ArtifactRef, ArtifactError> {
        let mut open = self.create()?;
        open.write(bytes)?;
        open.finish()
    }

    fn create(&self) -> Result<Box<dyn ArtifactWriter>, ArtifactError> {
        Ok(Box::new(CappedWriter {
            to: self.clone(),
            bytes: Vec::new(),
        }))
    }

    fn read(&self, id: &ArtifactId, offset: u64, len: u64) -> Result<Vec<u8>, ArtifactError> {
        let all = self.0.lock();
        let bytes = all
            .get(id)
            .ok_or_else(|| ArtifactError(format!("there is no artifact `{id}`")))?;
        let clamp = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        Ok(bytes[clamp(offset)..clamp(offset.saturating_add(len))].to_vec())
    }
}

impl ArtifactWriter for CappedWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        let room = CAP.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<ArtifactRef, ArtifactError> {
        let mut all = self.to.0.lock();
        let stored = ArtifactRef {
            id: ArtifactId::nth(all.len() as u64 + 1, 0),
            bytes: self.bytes.len() as u64,
        };
        all.insert(stored.id.clone(), self.bytes);
        Ok(stored)
    }
}

pub(crate) async fn run_example() -> ExampleResult {
    let flood = FnTool::new("flood", Effect::Read, |_, _| {
        Box::pin(async { Ok(ToolOutput::text("a".repeat(90_000))) })
    });
    // A tool whose output does not fit into memory writes it piece by piece and returns a preview itself.
    let pieces = FnTool::new("pieces", Effect::Read, |_, ctx| {
        Box::pin(async move {
            let failed = |err: ArtifactError| {
                ToolFailure::new(windlass_core::message::ErrorCategory::Exception, err.0)
            };
            let mut writer = ctx.artifacts.create().map_err(failed)?;
            for _ in 0..30 {
                writer.write(&[b'b'; 10_000]).map_err(failed)?;
            }
            let artifact = Some(writer.finish().map_err(failed)?);
            Ok(ToolOutput {
                artifact,
                ..ToolOutput::text("bbb...")
            })
        })
    });
    let fakes = Fakes::new([
        call("1", "flood", &json!({})),
        call("2", "pieces", &json!({})),
        says("that was a lot"),
    ]);
    let shelf = MemoryArtifactStore::default();
    let of_session = shelf.clone();
    let engine = fakes
        .builder()
        .artifacts(Arc::new(move |_: &SessionId| Arc::new(of_session.clone())))
        .tools([flood.boxed(), pieces.boxed()])
        .build()?;
    let mut run = engine.stream(Request::new("let it rain")).await?;
    let mut results = Vec::new();
    while let Some(event) = run.next().await {
        if let EventKind::CallFinished { result, .. } = event.kind {
            results.push(result);
        }
    }
    let stored: Vec<&ArtifactRef> = results
        .iter()
        .filter_map(|result| result.artifact.as_ref())
        .collect();
    assert_eq!(
        stored.iter().map(|one| one.bytes).collect::<Vec<_>>(),
        [90_000, CAP as u64]
    );
    assert!(
        results[0].text.len() < 51_000
            && results[0]
                .text
                .contains(&format!("artifact:{}", stored[0].id))
    );
    assert_eq!(shelf.read(&stored[0].id, 89_998, 100)?, b"aa");
    Ok(())
}
