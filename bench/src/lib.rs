//! Programs that the benchmarks compare the product with: a loopback model server, and *floors*, which do the minimum
//! that any program must do for the same work with the same HTTP stack. `cargo xtask bench` starts and measures them.
//! Nothing here is part of the product or depends on the engine.
//!
//! [`wire`] writes a model's answers, [`server`] serves them, [`exchange`] is a floor's HTTP client, [`long_session`]
//! makes the events of a long session, [`meter_stubs`] has an enclosure and a ledger for a meter, and [`flags`] parses
//! the command line of all programs, and
//! [`event_stream`] reads the event stream of a server.

pub mod event_stream;
pub mod exchange;
pub mod flags;
pub mod long_session;
pub mod meter_stubs;
pub mod server;
pub mod wire;
