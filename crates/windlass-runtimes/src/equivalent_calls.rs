//! Maps calls of foreign agents to equivalent Windlass calls, so that the same rules judge them.

use serde_json::{Value, json};
use windlass_core::tool::{Effect, Like, canonical_name};

/// Equivalent Windlass calls, and the worst effect of the call.
pub(crate) type EquivalentCalls = (Vec<Like>, Effect);

/// Equivalent to a call of this Windlass tool.
pub(crate) fn equivalent(tool: &str, args: Value) -> EquivalentCalls {
    (vec![Like::new(tool, args)], effect_of(tool))
}

/// The worst effect of a Windlass tool.
pub(crate) fn effect_of(tool: &str) -> Effect {
    match tool {
        "bash" => Effect::Execute,
        "read_file" | "list_directory" | "find_files" | "grep" | "git_status" => Effect::Read,
        _ => Effect::Write,
    }
}

/// Maps a call of an unknown tool by the input fields that most agents name alike.
pub(crate) fn equivalent_by_input(name: &str, args: &Value) -> EquivalentCalls {
    let text = |names: &[&str]| {
        let named = names.iter().find_map(|name| args.get(*name)?.as_str());
        named.map(str::to_owned)
    };
    if let Some(command) = text(&["command", "cmd", "script"]) {
        return equivalent("bash", json!({ "command": command }));
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
        return no_equivalent(Effect::Execute);
    };
    match canonical_name(name) {
        tool @ ("read_file" | "list_directory" | "delete_file") => {
            equivalent(tool, json!({ "path": path }))
        }
        // An unknown tool may write the file that it names.
        _ => equivalent("write_file", json!({ "path": path, "content": "" })),
    }
}

/// Without an equivalent Windlass call, with this effect.
pub(crate) fn no_equivalent(effect: Effect) -> EquivalentCalls {
    (Vec::new(), effect)
}
