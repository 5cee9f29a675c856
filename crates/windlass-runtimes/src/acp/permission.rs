//! Selects the agent's option that corresponds to a verdict: by its kind, never by its name or position, and never one
//! that also applies to later calls, if there is another.

use agent_client_protocol::v1::schema::{PermissionOption, PermissionOptionKind};
use serde_json::{Value, json};

/// Words in an option that would change more than this call.
const MODE_WORDS: &[&str] = &[
    "mode",
    "auto",
    "yolo",
    "bypass",
    "review",
    "always",
    "session",
    "accept edits",
    "acceptedits",
];

/// Words in a rejection that would end the turn. Another rejection lets the agent continue.
const ABORT_WORDS: &[&str] = &["cancel", "abort", "stop"];

/// The response for a call that is allowed or refused, and whether the response allows the call.
pub(super) fn outcome(options: &[PermissionOption], admitted: bool) -> (Value, bool) {
    let of = |kind| options.iter().filter(move |option| option.kind == kind);
    let chosen = if admitted {
        let mut once = of(PermissionOptionKind::AllowOnce);
        let first = once.clone().next();
        once.find(|option| !says(option, MODE_WORDS)).or(first)
    } else {
        let mut once = of(PermissionOptionKind::RejectOnce);
        let first = once.clone().next();
        let continuing = once.find(|option| !says(option, ABORT_WORDS)).or(first);
        continuing.or_else(|| of(PermissionOptionKind::RejectAlways).next())
    };
    let outcome = match chosen {
        Some(option) => json!({ "outcome": "selected", "optionId": option.option_id }),
        None => json!({ "outcome": "cancelled" }),
    };
    let allows = admitted && chosen.is_some();
    (json!({ "outcome": outcome }), allows)
}

fn says(option: &PermissionOption, words: &[&str]) -> bool {
    let texts = [
        option.option_id.0.to_lowercase(),
        option.name.to_lowercase(),
    ];
    words
        .iter()
        .any(|word| texts.iter().any(|text| text.contains(word)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(options: Value, admitted: bool, chosen: Option<&str>) {
        let options: Vec<PermissionOption> = serde_json::from_value(options).unwrap();
        let (reply, allows) = outcome(&options, admitted);
        assert_eq!(reply["outcome"]["optionId"].as_str(), chosen);
        assert_eq!(reply["outcome"]["outcome"] == "cancelled", chosen.is_none());
        assert_eq!(allows, admitted && chosen.is_some());
    }

    #[test]
    fn answers_are_chosen_by_their_kind() {
        let option = |id: &str, kind: &str| json!({ "optionId": id, "name": id, "kind": kind });
        let always_first = json!([
            option("allow_always", "allow_always"),
            option("b", "allow_once"),
            option("reject_always", "reject_always"),
            option("c", "reject_once"),
        ]);
        check(always_first.clone(), true, Some("b"));
        check(always_first, false, Some("c"));
        // The names contradict the kinds.
        check(
            json!([
                option("reject", "allow_once"),
                option("allow", "reject_once")
            ]),
            true,
            Some("reject"),
        );
        // Two options of the same kind, one of which also changes the mode.
        let two = json!([
            option("proceed_once_and_auto_mode", "allow_once"),
            option("proceed_once", "allow_once")
        ]);
        check(two, true, Some("proceed_once"));
        check(
            json!([option("yes_and_auto_mode", "allow_once")]),
            true,
            Some("yes_and_auto_mode"),
        );
        // Permission for later calls is never given.
        check(
            json!([option("a", "allow_always"), option("r", "reject_always")]),
            true,
            None,
        );
        check(
            json!([option("a", "allow_always"), option("r", "reject_always")]),
            false,
            Some("r"),
        );
        // Two options of the same kind, one of which also ends the turn.
        let two = json!([
            option("cancel", "reject_once"),
            option("decline", "reject_once")
        ]);
        check(two, false, Some("decline"));
        check(
            json!([option("cancel", "reject_once")]),
            false,
            Some("cancel"),
        );
        check(json!([option("a", "allow_once")]), false, None);
        check(json!([]), true, None);
    }
}
