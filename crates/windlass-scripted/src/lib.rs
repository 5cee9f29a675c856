//! A model server on loopback that plays a script. It speaks the wires of four vendors, finds out from each request how
//! far the script is, and asks for work with the tools that the agent offers. It never reaches out.
//!
//! It keeps no place in the script: the place is in the history that every request carries. So a retry gets the same
//! answer again, and a side question (a title, a topic) moves nothing.
//!
//! [`http`] is the HTTP/1.1 of all servers for tests; [`ByteServer`] sends exactly the bytes that a test wants.

mod bytes;
pub mod http;
mod offer;
mod prose;
mod request;
mod script;
mod seen;
mod serve;
mod tools;
mod wire;

pub use bytes::{Act, ByteServer, Received};
pub use script::{Move, Script, Usage};
pub use seen::Seen;
pub use serve::Server;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock whose data is good even when a thread that held it died.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
