//! What the server was asked, kept for whoever judges a run. Bounded: a flood is counted, not stored.

use std::time::Instant;

/// The most requests that are kept.
pub(crate) const MOST: usize = 2000;
/// The most of a body that is kept.
pub(crate) const MOST_BODY: usize = 1 << 20;

/// One request.
#[derive(Debug, Clone)]
pub struct Seen {
    /// When it was read.
    pub at: Instant,
    /// Its method.
    pub method: String,
    /// Its path, with the query.
    pub path: String,
    /// The key it carried, in whichever way the wire carries one.
    pub key: Option<String>,
    /// How long the body was.
    pub bytes: usize,
    /// The beginning of the body.
    pub body: String,
    /// Names of the tools it offered.
    pub tools: Vec<String>,
    /// Whether it was part of the work: not a side question, not a list of models.
    pub work: bool,
    /// The status it was answered with.
    pub status: u16,
    /// What the script wanted and this agent has no tool for.
    pub unmapped: Option<String>,
}
