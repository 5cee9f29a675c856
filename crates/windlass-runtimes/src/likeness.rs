//! What calls of foreign agents amount to in the words of our tools, so that the same rules judge them.

use serde_json::{Value, json};
use windlass_core::tool::{Effect, Like, canonical_name};

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

/// What a call amounts to whose tool is not known, by the fields of its input that most agents name alike.
pub(crate) fn likeness_by_input(name: &str, args: &Value) -> Likeness {
    let text = |names: &[&str]| {
        let named = names.iter().find_map(|name| args.get(*name)?.as_str());
        named.map(str::to_owned)
    };
    if let Some(command) = text(&["command", "cmd", "script"]) {
        return like("bash", json!({ "command": command }));
    }
    let path = text(&[
        "path",
        "file_path",
        "filePath",
        "file",
        "filename",
        "absolute_path",
    ]);
    let Some(path) = path else {
        return unlike(Effect::Execute);
    };
    match canonical_name(name) {
        tool @ ("read_file" | "list_directory" | "delete_file") => {
            like(tool, json!({ "path": path }))
        }
        // A file that is named by another tool may be written.
        _ => like("write_file", json!({ "path": path, "content": "" })),
    }
}

/// Like nothing of ours, with this effect.
pub(crate) fn unlike(effect: Effect) -> Likeness {
    (Vec::new(), effect)
}
