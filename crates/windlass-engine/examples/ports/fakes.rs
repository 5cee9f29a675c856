//! The parts of an engine that an example is not about: the fakes of `windlass-testing`.
//! A program passes real parts to the same builder.

use std::sync::Arc;

use windlass_core::provider::{Chunk, Provider, ProviderError};
use windlass_core::runtime::Runtime;
use windlass_engine::{Engine, EngineBuilder, NativeOptions, NativeRuntime};
use windlass_testing::{
    ManualClock, MemoryArtifacts, MemoryStore, MemoryWorkspaces, ScriptedProvider,
};

/// The chunks of one scripted answer.
pub(crate) type Reply = Vec<Result<Chunk, ProviderError>>;

/// Fakes for all parts of an engine. Tests can inspect them, and several engines can share them.
pub(crate) struct Fakes {
    pub(crate) provider: ScriptedProvider,
    pub(crate) store: MemoryStore,
    pub(crate) clock: ManualClock,
    pub(crate) workspaces: MemoryWorkspaces,
}

impl Fakes {
    /// Creates fakes with a model that gives these answers, one for each request.
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            provider: ScriptedProvider::new(replies),
            store: MemoryStore::default(),
            clock: ManualClock::default(),
            workspaces: MemoryWorkspaces::default(),
        }
    }

    /// The built-in agent with a provider.
    pub(crate) fn native(&self, provider: Arc<dyn Provider>) -> Arc<dyn Runtime> {
        let options = NativeOptions {
            model: "any".into(),
            system: "Be brief.".into(),
            ..NativeOptions::default()
        };
        Arc::new(NativeRuntime::new(
            provider,
            Arc::new(self.clock.clone()),
            options,
        ))
    }

    /// A builder with all five required parts. A part that is set again replaces the first one.
    pub(crate) fn builder(&self) -> EngineBuilder {
        let artifacts = MemoryArtifacts::default();
        Engine::builder()
            .runtime(self.native(Arc::new(self.provider.clone())))
            .store(Arc::new(self.store.clone()))
            .workspaces(Arc::new(self.workspaces.clone()))
            .artifacts(Arc::new(move |_| Arc::new(artifacts.clone())))
            .clock(Arc::new(self.clock.clone()))
            .describe("/workspace", "example")
    }
}
