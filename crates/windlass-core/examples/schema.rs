//! Prints the JSON schema of the event log; `cargo xtask schema` writes it to `schema/event.json`.
#![allow(clippy::print_stdout)]

fn main() {
    println!("{:#}", windlass_core::event::schema());
}
