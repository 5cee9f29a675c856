//! The helper's side: what runs in the program that the engine starts, outside of the engine. One thread, no
//! allocation games, no output; everything it has to say goes through the socket that is its standard input.

mod command;
mod covers;
mod fence;
mod filter;
mod group;
mod journal;
mod supervise;
mod sys;
mod view;

pub use supervise::supervise;
