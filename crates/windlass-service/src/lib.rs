//! The operations of Windlass as one table, for servers, editors and other programs.
//!
//! [`Service`] holds many sessions in many workspaces. [`operations`] lists what callers can do; transports translate
//! requests into [`Service::call`], and events into streams with [`Service::events`] and [`Service::feed`]. The crate does not
//! know HTTP, arguments of a command line, or views.

mod access;
mod drive;
mod feed;
mod host;
mod idempotency;
mod json_lines;
mod left_work;
mod live;
mod local;
mod local_client;
mod log_watch;
mod metrics;
mod operations;
mod private_file;
mod problem;
mod reader;
mod retention;
mod ring;
mod run_request;
mod scheduler;
mod schema;
mod service;
mod spending;
mod stdio;
mod tokens;

pub use access::{Caller, Ceiling, Scope};
pub use feed::SessionFeed;
pub use json_lines::RpcId;
pub use live::LiveSession;
pub use local::LocalChannel;
pub use metrics::Histogram;
pub use operations::{Bytes, Input, Method, Operation, Reply, Request, operation, operations};
pub use problem::{Problem, ProblemCode};
pub use reader::{EventReader, FeedItem};
pub use ring::EventLine;
pub use run_request::RunRequest;
pub use service::{Service, ServiceOptions, ServiceRole, server_dir};
pub use stdio::serve_lines;
pub use tokens::{Token, main_token};
