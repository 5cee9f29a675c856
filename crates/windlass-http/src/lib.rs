//! The operations of Windlass over HTTP and server-sent events.
//!
//! [`HttpServer`] serves a [`Service`](windlass_service::Service). Each operation of the table is one route; this crate adds what
//! HTTP needs: tokens, checks of the host and the origin, limits, ranges, caching, compression and event streams. It does not
//! know what an operation does.

mod access;
mod compat;
mod compression;
mod connections;
mod logins;
mod pages;
mod rate_limit;
mod routes;
mod server;
mod sse;
mod tls;

pub use server::{HttpOptions, HttpServer, ServeError};
pub use tls::TlsFiles;
