//! Text algorithms for changing files: what a file's bytes mean as text, where an edit applies,
//! what a patch would do, and how the difference reads.
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
