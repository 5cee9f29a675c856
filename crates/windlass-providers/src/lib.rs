//! Model wire protocols and vendors: how a request is shaped, sent and read back as chunks.
//! It opens no files, reads no environment and never retries; keys, addresses and scripts come in as values.

pub mod http;
#[cfg(test)]
mod loopback;
pub mod sse;
pub mod think;
mod tls;
