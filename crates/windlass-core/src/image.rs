//! What is at a path, by content: the words that landing, undo and the log share. Bytes are elsewhere, under their hash.
//!
//! ```
//! use windlass_core::image::{Image, Swap};
//!
//! let link = Image::Link { target: "lib.rs".into() };
//! let swap = Swap { path: "main.rs".into(), before: Image::Absent, after: link };
//! assert!(swap.after.is_there() && !swap.before.is_there());
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Image {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// The BLAKE3 hash of its bytes, in hexadecimal.
        hash: String,
        /// How many bytes.
        size: u64,
        /// Its permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Where it points, as it is written.
        target: String,
    },
}

impl Image {
    /// Whether there is something.
    #[must_use]
    pub fn is_there(&self) -> bool {
        *self != Self::Absent
    }
}

/// One path that was one thing and becomes another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Swap {
    /// Relative to the root.
    pub path: String,
    /// What is there.
    pub before: Image,
    /// What comes in its place.
    pub after: Image,
}
