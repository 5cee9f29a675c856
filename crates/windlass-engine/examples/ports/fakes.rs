//! Everything of an engine that an example is not about: the fakes that come with the library.
//! A program has the real ones in their place, and gives them to the same builder.

use std::sync::Arc;

use windlass_core::provider::{Chunk, Provider, ProviderError};
use windlass_core::runtime::Runtime;
use windlass_engine::{Engine, EngineBuilder, NativeOptions, NativeRuntime};
use windlass_testing::{
    ManualClock, MemoryArtifacts, MemoryStore, MemoryWorkspaces, ScriptedProvider,
};

/// What a scripted model says, piece by piece.
pub(crate) type Reply = Vec<Result<Chunk, ProviderError>>;

/// A world without a machine. Its parts can be looked at, and engines can share them.
pub(crate) struct Fakes {
    pub(crate) provider: ScriptedProvider,
    pub(crate) store: MemoryStore,
    pub(crate) clock: ManualClock,
    pub(crate) workspaces: MemoryWorkspaces,
}

impl Fakes {
    /// With a model that says these things, one for each request.
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            provider: ScriptedProvider::new(replies),
            store: MemoryStore::default(),
            clock: ManualClock::default(),
            workspaces: MemoryWorkspaces::default(),
        }
    }

    /// The built-in agent on a provider.
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

    /// All five parts that an engine needs. What is given again takes the place of what is here.
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
