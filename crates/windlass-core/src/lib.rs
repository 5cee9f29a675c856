//! The words everyone shares, the ports, and every decision that needs no IO.
//!
//! A tour, in the order of one run:
//! [`message`] is what is said, [`event`] what happened, [`history`] the fold of the latter into the former,
//! [`context`] what of it a model still gets when it no longer fits.
//! [`runtime`] owns an agent loop, [`provider`] serves a model, [`run`] decides the next step
//! of a run, [`turn`] the next step of our own loop. [`queue`] has the prompts that wait, [`overview`] a session in brief,
//! [`session_state`] its state in a word, and [`search_text`] what a search looks at.
//! [`tool`] is what a model may call ([`typed_tool`] makes one from arguments, effect and body), [`gate`] judges it, [`ask`] is the question to a person.
//! [`redact`] takes the secrets out of what is logged.
//! [`budget`] says when to stop. [`validator`] says whether it is done. [`image`] is what lands, by content.
//! [`store`], [`workspace`], [`transaction`], [`terms`] and [`clock`] are the machine as the engine sees it; [`enclosure`] is the
//! place of an agent that is not ours.
//!
//! Nothing in this crate reads a file, a clock or the environment, or starts anything.

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

/// A boxed future, because ports are used as trait objects.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// A boxed stream, for the same reason.
pub type BoxStream<'a, T> = std::pin::Pin<Box<dyn futures_core::Stream<Item = T> + Send + 'a>>;
pub use tokio_util::sync::CancellationToken;
