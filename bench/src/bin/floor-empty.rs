//! The floor of a cold start: a program that does nothing.

fn main() {}
