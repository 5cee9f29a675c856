//! Text algorithms for changing files: decoding bytes, finding the place of an edit, reading and applying patches, and
//! writing diffs.
//!
//! Pure: nothing here opens a file. Callers read the bytes, compute the whole result, then write it.

pub mod anchors;
pub mod block;
pub mod diff;
pub mod matching;
pub mod nearest;
pub mod patch;
mod punctuation;
mod reindent;
pub mod row;
pub mod sequence;
pub mod text;
