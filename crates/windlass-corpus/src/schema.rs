//! The schema: kinds of input, setup operations, rules and checks, each with its fields. Every case is checked against
//! these tables when it is loaded, so that an unknown name or field never passes.

use serde_json::Value;

/// A name of the schema with its fields.
struct SchemaShape {
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

const fn shape(
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
) -> SchemaShape {
    SchemaShape {
        name,
        required,
        optional,
    }
}

/// The module that evaluates a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    Files,
    Output,
    Session,
    Events,
    /// The HTTP interface or tool servers.
    Surface,
}

const CHECKS: &[(Area, &[SchemaShape])] = &[
    (
        Area::Files,
        &[
            shape("file_unchanged", &["path"], &[]),
            shape("file_absent", &["path"], &[]),
            shape("file_exists", &["path"], &[]),
            shape("file_equals", &["path", "text"], &[]),
            shape("file_not_equals", &["path", "text"], &[]),
            shape("file_contains", &["path", "text"], &[]),
            shape("file_lacks", &["path", "text"], &[]),
            shape("file_size_at_most", &["path", "bytes"], &[]),
            shape("mode_unchanged", &["path"], &[]),
            shape("mode_equals", &["path", "mode"], &[]),
            shape("mode_at_most", &["path", "mode"], &[]),
            shape("owner_unchanged", &["path"], &[]),
            shape("mtime_unchanged", &["path"], &[]),
            shape("inode_unchanged", &["path"], &[]),
            shape("is_directory", &["path"], &[]),
            shape("is_symlink", &["path"], &[]),
            shape("is_not_symlink", &["path"], &[]),
            shape("link_target_equals", &["path", "target"], &[]),
            shape("xattr_absent", &["path", "name"], &[]),
            shape("git_config_unchanged", &["path"], &[]),
            shape("git_head_unchanged", &["path"], &[]),
            shape("git_blob_equals", &["path", "revision", "text"], &[]),
        ],
    ),
    (
        Area::Output,
        &[
            shape("output_lacks", &["text"], &["where"]),
            shape("log_contains", &["text"], &[]),
            shape("terminal_safe", &[], &[]),
            shape("approval_shows", &["text"], &[]),
            shape("approval_marks_invisible", &[], &[]),
            shape("result_contains", &["text"], &[]),
            shape("result_matches", &["regex"], &[]),
            shape("result_equals_trimmed", &["text"], &[]),
            shape("result_bytes_at_most", &["bytes"], &[]),
            shape("truncation_noted", &[], &[]),
            shape("result_names_reason", &[], &[]),
            shape("user_told_why", &[], &["says"]),
            shape("no_duplicate_text", &[], &[]),
            shape("text_equals", &["text"], &[]),
        ],
    ),
    (
        Area::Session,
        &[
            shape("history_equals_prefix", &[], &[]),
            shape("history_complete", &[], &[]),
            shape("warning_shown", &[], &[]),
            shape("next_append_on_new_line", &[], &[]),
            shape("refuses_or_stops_at_damage", &[], &[]),
            shape("original_file_kept", &[], &[]),
            shape("no_grant_from_log", &[], &[]),
            shape("request_valid_for_provider", &[], &[]),
            shape("interrupted_result_synthesised", &[], &[]),
            shape("asks_or_refuses_workspace_change", &[], &[]),
            shape("second_refused_or_forked", &[], &[]),
            shape("refuses_with_message", &[], &[]),
            shape("log_lines_valid", &[], &[]),
            shape("session_survives", &[], &[]),
            shape("mode_is_not", &["mode"], &[]),
            shape("times_not_negative", &[], &[]),
        ],
    ),
    (
        Area::Events,
        &[
            shape("no_connection", &["proto"], &[]),
            shape("no_header_at_listener", &["name"], &[]),
            shape("canary_alive", &[], &[]),
            shape("no_process_with_marker", &[], &["within_s"]),
            shape("process_peak_at_most", &["count"], &[]),
            shape("engine_rss_at_most", &["bytes"], &[]),
            shape("no_argv_contains", &["text"], &[]),
            shape("no_controlling_tty", &[], &[]),
            shape("finishes_within_ms", &["ms"], &[]),
            shape("idle_timeout_fires_within_ms", &["ms"], &[]),
            shape("cancel_works_within_ms", &["ms"], &[]),
            shape("waited_at_least_ms", &["ms"], &[]),
            shape("no_prompt", &[], &[]),
            shape("approval_requested", &[], &[]),
            shape("not_executed", &[], &[]),
            shape("executed_exactly", &["times"], &[]),
            shape("executed_at_most", &["times"], &[]),
            shape("exit_code", &["code"], &[]),
            shape("exit_code_documented", &[], &[]),
            shape("exit_nonzero", &[], &[]),
            shape("no_session_created", &[], &[]),
            shape("tool_calls_equal", &["calls"], &[]),
            shape("outcome", &["one_of"], &[]),
            shape("requests_made", &["count"], &[]),
            shape("requests_at_most", &["count"], &[]),
            shape("spending_is_sane", &[], &[]),
            shape("budget_not_negative", &[], &[]),
            shape("output_tokens_booked_at_least", &["tokens"], &[]),
            shape("stopped_by_guard", &[], &[]),
            shape("landed", &[], &[]),
            shape("not_landed", &[], &[]),
            shape("verdict_is", &["validator", "one_of"], &[]),
            shape("findings_name", &["text"], &[]),
            shape("judge_changed_names", &["path"], &[]),
            shape("results_pair_with_calls", &[], &[]),
            shape("approval_matches_execution", &[], &[]),
            shape("mode_unchanged_session", &[], &[]),
            shape("concurrency_at_most", &["count"], &[]),
            shape("child_rights_subset", &[], &[]),
            shape("engine_argv_uses_separator", &[], &[]),
            shape("no_predictable_temp_paths", &[], &[]),
        ],
    ),
    (
        Area::Surface,
        &[
            shape("builtin_used", &[], &[]),
            shape("description_marked_untrusted", &[], &[]),
            shape("header_not", &["name", "one_of"], &[]),
            shape("http_status", &["one_of"], &[]),
            shape("ids_random", &["bits"], &[]),
            shape("listens_only_on", &["addresses"], &[]),
            shape("names_qualified", &[], &[]),
            shape("not_opened", &[], &[]),
            shape("second_status", &["one_of"], &[]),
            shape("single_decision_logged", &[], &[]),
            shape("source_uses_constant_time_compare", &[], &[]),
        ],
    ),
];

const KINDS: &[SchemaShape] = &[
    shape("shell", &["command"], &[]),
    shape("tool_call", &["tool", "args"], &[]),
    shape("patch", &["format", "text"], &[]),
    shape("model_follows", &["steps"], &[]),
    shape(
        "run",
        &[],
        &[
            "steps", "agent", "vendor", "validate", "commit", "in_place", "args", "prompt",
        ],
    ),
    shape(
        "startup",
        &[],
        &[
            "prompt", "cwd", "headless", "base_url", "inject", "bind", "token",
        ],
    ),
    shape("stream", &["chunks"], STREAM),
    shape(
        "resume",
        &[],
        &["log_tail", "log_edit", "log_size", "concurrent", "id"],
    ),
    shape("text", &["where"], &["text", "b64", "chunks"]),
    shape("restore", &["planted"], &[]),
    shape("export", &[], &[]),
    shape("install", &["bundle"], &[]),
    shape("argv", &["argv"], &[]),
    shape("mcp", &["steps"], &[]),
    shape(
        "http",
        &["endpoint", "method", "headers"],
        &[
            "body",
            "query",
            "raw_body",
            "auth",
            "target",
            "repeat",
            "concurrent",
            "race",
            "body_bytes",
            "drip_bytes_per_s",
            "raw_body_nested_arrays",
            "headers_count",
            "body_gzip_zeros",
            "raw_request",
            "note_only",
        ],
    ),
];

/// Fields that describe how a model server answers.
const STREAM: &[&str] = &[
    "format",
    "status",
    "headers",
    "then",
    "end",
    "split",
    "split_at_utf8",
    "delay_ms",
    "max_bytes",
    "then_bytes",
    "repeat",
    "repeat_tool_call",
    "tail",
    "gzip_zeros",
    "gzip",
    "wire",
    "lasting",
    "headers_times",
    "args",
];

const OPERATIONS: &[SchemaShape] = &[
    shape("file", &["path", "text"], &["mode"]),
    shape("bytes", &["path", "b64"], &[]),
    shape("dir", &["path"], &[]),
    shape("replace_dir", &["path"], &["target"]),
    shape("symlink", &["path", "target"], &[]),
    shape("hardlink", &["path", "target"], &[]),
    shape("fifo", &["path"], &[]),
    shape("sparse", &["path", "bytes"], &[]),
    shape("tar", &["path", "entries"], &[]),
    shape("git_init", &["path"], &[]),
    shape("git_config", &["path", "key", "value"], &[]),
    shape("listen", &["proto"], &[]),
    shape("canary", &[], &[]),
    shape("env", &["name", "value"], &[]),
    shape("cwd", &["path"], &[]),
    shape("trust", &["path"], &[]),
    shape("race", &["path", "targets"], &["rounds"]),
    shape("while_pending", &["do"], &["then"]),
    shape("small_disk", &["path", "bytes"], &[]),
];

/// Rules in the user's settings.
const RULES: &[&str] = &["allow", "deny", "deny_read", "allow_hosts", "server_roots"];

/// Returns the module that evaluates a check.
pub(crate) fn area(check: &str) -> Option<Area> {
    CHECKS
        .iter()
        .find(|(_, shapes)| shapes.iter().any(|shape| shape.name == check))
        .map(|(area, _)| *area)
}

/// Checks the names and fields of a case against the tables.
pub(crate) fn check_case(case: &Value) -> Result<(), String> {
    for rule in names(&case["rules"]) {
        crate::holds(RULES.contains(&rule), || format!("`{rule}` is not a rule"))?;
    }
    for key in names(&case["expect"]) {
        crate::holds(matches!(key, "decision" | "also_ok"), || {
            format!("`{key}` is not a field of `expect`")
        })?;
    }
    for op in list(&case["setup"]) {
        check_operation(op)?;
    }
    check_input(&case["input"])?;
    let shapes = || CHECKS.iter().flat_map(|(_, shapes)| shapes.iter());
    list(&case["post"])
        .iter()
        .try_for_each(|post| fits(shapes(), "check", "a check", post))
}

fn check_operation(op: &Value) -> Result<(), String> {
    fits(OPERATIONS.iter(), "op", "a setup operation", op)?;
    for entry in list(&op["entries"]) {
        check_entry(entry)?;
    }
    if !matches!(op["then"].as_str(), None | Some("approve" | "deny")) {
        return Err(format!("`then` is approve or deny, not {}", op["then"]));
    }
    list(&op["do"]).iter().try_for_each(check_operation)
}

fn check_input(input: &Value) -> Result<(), String> {
    fits(KINDS.iter(), "kind", "a kind of input", input)?;
    match input["kind"].as_str() {
        // Without an operation, `planted` only names the file that is restored.
        Some("restore") if input["planted"]["op"].is_null() => {
            only(&input["planted"], &["path"], "`planted`")
        }
        Some("restore") => check_operation(&input["planted"]),
        Some("install") => list(&input["bundle"]).iter().try_for_each(check_entry),
        Some("model_follows") => list(&input["steps"]).iter().try_for_each(check_step),
        Some("run") => {
            if let Some(unknown) =
                names(&input["vendor"]).find(|key| !STREAM.contains(key) && *key != "chunks")
            {
                return Err(format!("`{unknown}` is not a field of `vendor`"));
            }
            list(&input["steps"]).iter().try_for_each(check_step)
        }
        _ => Ok(()),
    }
}

fn check_step(step: &Value) -> Result<(), String> {
    only(step, &["tool", "args"], "a step")
}

fn check_entry(entry: &Value) -> Result<(), String> {
    only(entry, &["name", "text", "link"], "an entry")
}

fn only(value: &Value, known: &[&str], what: &str) -> Result<(), String> {
    match names(value).find(|key| !known.contains(key)) {
        Some(unknown) => Err(format!("`{unknown}` is not a field of {what}")),
        None => Ok(()),
    }
}

/// Checks that a value has a known name, all required fields, and no unknown ones.
fn fits<'a>(
    mut shapes: impl Iterator<Item = &'a SchemaShape>,
    tag: &str,
    what: &str,
    value: &Value,
) -> Result<(), String> {
    let name = value[tag]
        .as_str()
        .ok_or_else(|| format!("{what} has no `{tag}`"))?;
    let shape = shapes
        .find(|shape| shape.name == name)
        .ok_or_else(|| format!("`{name}` is not {what}"))?;
    if let Some(missing) = shape.required.iter().find(|key| value[**key].is_null()) {
        return Err(format!("`{name}` needs `{missing}`"));
    }
    let known =
        |key: &&str| *key == tag || shape.required.contains(key) || shape.optional.contains(key);
    match names(value).find(|key| !known(key)) {
        Some(unknown) => Err(format!("`{unknown}` is not a field of `{name}`")),
        None => Ok(()),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn names(value: &Value) -> impl Iterator<Item = &str> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_name_is_in_two_tables() {
        let mut seen = HashSet::new();
        for shape in CHECKS.iter().flat_map(|(_, shapes)| shapes.iter()) {
            assert!(seen.insert(shape.name), "{}", shape.name);
        }
    }
}
