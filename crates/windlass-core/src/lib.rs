//! The shared vocabulary, the ports (traits), and every decision that needs no IO.
//!
//! A tour in the order of one run:
//!
//! - [`message`] has what user, model and tools say; [`event`] has the facts of the log; [`history`] folds events into
//!   messages; [`context`] compacts messages that no longer fit the model's window.
//! - [`runtime`] is the port to an agent loop and [`provider`] the port to a model. [`run`] decides the next step of a
//!   run, [`turn`] the next step of the native loop. [`queue`] holds the prompts that wait; [`overview`] is a session
//!   in brief, [`session_state`] its state in a word, and [`search_text`] the text that a search looks at.
//! - [`tool`] is the port to a tool ([`typed_tool`] builds one from an argument type, an effect and a body). [`gate`]
//!   decides whether a call may run; [`ask`] is the question to a person. [`redact`] removes secrets from events before
//!   they are logged.
//! - [`budget`] decides when a run has to stop, [`validator`] whether its work is accepted. [`image`] describes by
//!   content hash what lands.
//! - [`store`], [`workspace`], [`transaction`], [`terms`] and [`clock`] are the machine as the engine sees it;
//!   [`enclosure`] isolates a foreign agent.
//!
//! Nothing in this crate reads a file, a clock or the environment, or starts a process.

pub mod ask;
pub mod budget;
pub mod clock;
pub mod context;
pub mod enclosure;
pub mod event;
pub mod flags;
pub mod gate;
pub mod history;
pub mod host_name;
pub mod id;
pub mod image;
pub mod message;
pub mod outcome;
pub mod overview;
pub mod path_text;
pub mod pause;
pub mod provider;
pub mod queue;
pub mod redact;
pub mod reply;
pub mod run;
pub mod runtime;
pub mod search_text;
pub mod session_state;
pub mod settlement;
pub mod setup;
pub mod shell;
pub mod store;
pub mod structured_output;
pub mod terms;
pub mod tool;
pub mod transaction;
pub mod turn;
pub mod typed_tool;
pub mod validator;
pub mod workspace;

/// A boxed future. Ports are used as trait objects, so their methods cannot be `async fn`.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// A boxed stream, for the same reason as [`BoxFuture`].
pub type BoxStream<'a, T> = std::pin::Pin<Box<dyn futures_core::Stream<Item = T> + Send + 'a>>;
pub use tokio_util::sync::CancellationToken;
