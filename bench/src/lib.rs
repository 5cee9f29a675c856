//! What the benchmarks run beside the product: a loopback model server, and floors, which are the least a program
//! must do for the same work with the same HTTP stack. `cargo xtask bench` starts them and measures.
//! Nothing here is part of the product, and nothing here knows the engine.
//!
//! [`wire`] writes a model's answers, [`server`] serves them, [`exchange`] is a floor's way to the server,
//! [`story`] is a long session, [`booth`] stands around a meter, [`flags`] reads the command line of all of them.

pub mod booth;
pub mod exchange;
pub mod flags;
pub mod server;
pub mod story;
pub mod wire;
