//! Fakes for tests of ours and of embedders: a scripted model, a store in memory, a clock that is moved by hand, a
//! workspace without a machine. They are as strict as the real ones where the engine relies on it.

mod clock;
mod provider;
mod store;
mod tools;
mod workspace;

pub use clock::ManualClock;
pub use provider::{Asked, ScriptedProvider, call, says};
pub use store::{MemoryStore, StoreFault};
pub use tools::FnTool;
pub use workspace::{MemoryArtifacts, MemoryTree, MemoryWorkspaces, Shown};
