//! Requests that the server received, recorded for checks after a run. The record is bounded: beyond the limit,
//! requests are only counted.

use std::time::Instant;

/// Maximum number of recorded requests.
pub(crate) const MOST: usize = 2000;
/// Maximum recorded bytes of a body.
pub(crate) const MOST_BODY: usize = 1 << 20;

/// One request that the server recorded.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The time when it was read.
    pub at: Instant,
    /// The HTTP method, such as `POST`.
    pub method: String,
    /// The path with the query.
    pub path: String,
    /// The API key, from any of the places where vendors expect it.
    pub key: Option<String>,
    /// The length of the body in bytes.
    pub bytes: usize,
    /// The beginning of the body.
    pub body: String,
    /// The names of the offered tools.
    pub tools: Vec<String>,
    /// True if it belonged to the work, unlike a side question or a list of models.
    pub work: bool,
    /// The status of the response.
    pub status: u16,
    /// A move of the script for which this agent offers no tool.
    pub unmapped: Option<String>,
}
