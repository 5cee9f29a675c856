//! What calls of foreign agents amount to in the words of our tools, so that the same rules judge them.

use serde_json::Value;
use windlass_core::tool::{Effect, Like};

/// Calls of our tools that do the same, and the worst it can do.
pub(crate) type Likeness = (Vec<Like>, Effect);

/// Like a call of this tool of ours.
pub(crate) fn like(tool: &str, args: Value) -> Likeness {
    let effect = match tool {
        "bash" => Effect::Execute,
        "read_file" | "list_directory" | "find_files" | "grep" => Effect::Read,
        _ => Effect::Write,
    };
    (vec![Like::new(tool, args)], effect)
}

/// Like nothing of ours, with this effect.
pub(crate) fn unlike(effect: Effect) -> Likeness {
    (Vec::new(), effect)
}
