//! Fakes for the tests of this workspace and of embedders: a scripted model, a store in memory, a clock that is moved
//! by hand, and a workspace without files or processes. Where the engine relies on the strictness of the real ones,
//! they are just as strict.

mod clock;
mod provider;
mod store;
mod tools;
mod workspace;

pub use clock::ManualClock;
pub use provider::{ProviderRequest, ScriptedProvider, call, says};
pub use store::{MemoryStore, StoreFault};
pub use tools::FnTool;
pub use workspace::{CheckedTree, MemoryArtifacts, MemoryTree, MemoryWorkspaces};
