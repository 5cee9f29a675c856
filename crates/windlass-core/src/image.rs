//! The content at a path, as landing, undo and the log describe it. The bytes themselves are stored elsewhere, under
//! their hash.
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

/// The content at a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Image {
    /// There is nothing at the path.
    Absent,
    /// There is a regular file at the path.
    File {
        /// The BLAKE3 hash of its bytes, in hexadecimal.
        hash: String,
        /// The size in bytes.
        size: u64,
        /// The permission bits of the file.
        mode: u32,
    },
    /// There is a symlink at the path.
    Link {
        /// The target as written in the link, not resolved.
        target: String,
    },
}

impl Image {
    /// Whether there is a file or a link at the path.
    #[must_use]
    pub fn is_there(&self) -> bool {
        *self != Self::Absent
    }
}

/// A replacement of the content at one path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Swap {
    /// Path relative to the root of the tree.
    pub path: String,
    /// The content before the replacement.
    pub before: Image,
    /// The content after the replacement.
    pub after: Image,
}
