//! The capabilities that windlass claims for a runtime, and the scenarios that prove them. A claim without a scenario
//! that passed is reported as only claimed. Pure.

use serde_json::Value;

use crate::matrix::MatrixCell;

/// The claims of windlass about one runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    pub name: String,
    pub version: Option<String>,
    /// The names of capabilities and features.
    pub words: Vec<String>,
    /// The runtime is a part of windlass.
    pub built_in: bool,
    /// The vendors that it supports; the first one is the default.
    pub vendors: Vec<String>,
    /// The reason why it cannot run on this machine.
    pub missing: Option<String>,
}

/// A capability or feature, and the scenario that proves it, if there is one.
pub(crate) struct ClaimProof {
    pub(crate) word: &'static str,
    pub(crate) by: Option<&'static str>,
}

const fn proven(word: &'static str, by: &'static str) -> ClaimProof {
    ClaimProof { word, by: Some(by) }
}

const fn claim(word: &'static str) -> ClaimProof {
    ClaimProof { word, by: None }
}

/// The capabilities of runtimes, in the order of the table.
pub(crate) const CAPABILITIES: &[ClaimProof] = &[
    proven("text_completion", "answer"),
    proven("streaming_text", "streaming"),
    proven("structured_output", "structured-output"),
    proven("native_tool_loop", "command"),
    proven("function_tools", "host-tool"),
    proven("mcp", "mcp"),
    proven("filesystem_read", "read"),
    proven("filesystem_edit", "plain-edit"),
    proven("shell", "command"),
    claim("apply_patch"),
    claim("subagents"),
    proven("sandbox", "write-outside"),
];

/// The control features of runtimes, in the order of the table.
pub(crate) const FEATURES: &[ClaimProof] = &[
    proven("per_tool_approval", "denied-call"),
    claim("approval_can_rewrite_input"),
    proven("host_tools", "host-tool"),
    proven("resume", "resume"),
    claim("fork"),
    proven("cancel", "cancel"),
    claim("steer_mid_turn"),
    claim("reports_tokens"),
    claim("reports_cost"),
    claim("own_sandbox"),
    proven("model_switch", "answer"),
    claim("mode_switch"),
];

/// The status of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimStatus {
    Proven,
    /// No scenario proves the claim, or its scenario was not run.
    Unproven,
    Failed,
}

/// Returns the status of a claim by the result of its scenario.
pub(crate) fn status(cell: Option<&MatrixCell>) -> ClaimStatus {
    match cell {
        Some(MatrixCell::Pass) => ClaimStatus::Proven,
        Some(MatrixCell::Fail(_)) => ClaimStatus::Failed,
        Some(MatrixCell::NotApplicable(_)) | None => ClaimStatus::Unproven,
    }
}

/// Parses the output of `windlass runtimes --json`.
pub(crate) fn read(text: &str) -> Vec<Claims> {
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["name"].is_string())
        .map(|line| of(&line))
        .collect()
}

fn of(line: &Value) -> Claims {
    let word = |name: &str| line[name].as_str().map(str::to_owned);
    let words = ["capabilities", "features"]
        .iter()
        .flat_map(|list| line[*list].as_array().into_iter().flatten());
    let texts = |name: &str| {
        let list = line[name].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    // The kit provides keys and models, so only a missing program matters.
    let found = line["found"].as_bool().unwrap_or(!line["found"].is_null());
    Claims {
        name: word("name").unwrap_or_default(),
        version: word("version"),
        built_in: line["built_in"] == true,
        vendors: texts("vendors"),
        words: words.filter_map(Value::as_str).map(str::to_owned).collect(),
        missing: (!found).then(|| word("why").unwrap_or_else(|| "it is not installed".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::SCENARIOS;

    #[test]
    fn every_proof_of_a_claim_is_a_scenario() {
        let by = CAPABILITIES
            .iter()
            .chain(FEATURES)
            .filter_map(|proof| proof.by);
        for name in by {
            assert!(
                SCENARIOS.iter().any(|scenario| scenario.name == name),
                "{name}"
            );
        }
    }

    #[test]
    fn only_a_scenario_that_passed_proves_a_claim() {
        assert_eq!(status(Some(&MatrixCell::Pass)), ClaimStatus::Proven);
        assert_eq!(
            status(Some(&MatrixCell::Fail("why".into()))),
            ClaimStatus::Failed
        );
        assert_eq!(
            status(Some(&MatrixCell::NotApplicable("no".into()))),
            ClaimStatus::Unproven
        );
        assert_eq!(status(None), ClaimStatus::Unproven);
    }

    #[test]
    fn claims_are_parsed_from_lines() {
        let text = r#"{"name":"codex","found":true,"usable":false,"why":"no key","version":"1.2","capabilities":["shell"],"features":["resume"]}
no json
{"name":"aider","found":false,"why":"no Python 3.10 to 3.12","tested":"0.86.2","capabilities":[],"features":[]}
"#;
        let claims = read(text);
        assert_eq!(claims.len(), 2);
        assert_eq!(claims[0].words, ["shell", "resume"]);
        assert_eq!(
            (claims[0].version.as_deref(), claims[0].missing.as_deref()),
            (Some("1.2"), None)
        );
        assert_eq!(claims[1].missing.as_deref(), Some("no Python 3.10 to 3.12"));
    }
}
