//! What calls of foreign agents amount to in the words of our tools, so that the same rules judge them.

use serde_json::Value;
use windlass_core::tool::{Effect, Like};

/// Calls of our tools that do the same, and the worst it can do.
pub(crate) type Likeness = (Vec<Like>, Effect);

/// Like a call of this tool of ours.
pub(crate) fn like(tool: &str, args: Value) -> Likeness {
    (vec![Like::new(tool, args)], effect_of(tool))
}

/// The worst that one of these tools of ours can do.
pub(crate) fn effect_of(tool: &str) -> Effect {
    match tool {
        "bash" => Effect::Execute,
        "read_file" | "list_directory" | "find_files" | "grep" | "git_status" => Effect::Read,
        _ => Effect::Write,
    }
}

/// Like nothing of ours, with this effect.
pub(crate) fn unlike(effect: Effect) -> Likeness {
    (Vec::new(), effect)
}
