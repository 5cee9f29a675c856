//! What windlass says a runtime can do, and which scenario shows it. A claim is not believed: it is shown by a scenario
//! that passed, or it stands there as a claim. Pure.

use serde_json::Value;

use crate::matrix::Cell;

/// What windlass says of one runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// Its name.
    pub name: String,
    /// The version of its program.
    pub version: Option<String>,
    /// Capabilities and features, by their words.
    pub words: Vec<String>,
    /// Whether it is a part of windlass.
    pub built_in: bool,
    /// Vendors whose models it can be asked with, the first one by default.
    pub vendors: Vec<String>,
    /// Why it cannot work here.
    pub missing: Option<String>,
}

/// A capability or feature, and the scenario that shows it; none where no scenario does.
pub(crate) struct Shows {
    pub(crate) word: &'static str,
    pub(crate) by: Option<&'static str>,
}

const fn shows(word: &'static str, by: &'static str) -> Shows {
    Shows { word, by: Some(by) }
}

const fn claim(word: &'static str) -> Shows {
    Shows { word, by: None }
}

/// What a runtime can do.
pub(crate) const CAPABILITIES: &[Shows] = &[
    shows("text_completion", "answer"),
    shows("streaming_text", "streaming"),
    shows("structured_output", "structured-output"),
    shows("native_tool_loop", "command"),
    shows("function_tools", "host-tool"),
    shows("mcp", "mcp"),
    shows("filesystem_read", "read"),
    shows("filesystem_edit", "plain-edit"),
    shows("shell", "command"),
    claim("apply_patch"),
    claim("subagents"),
    shows("sandbox", "write-outside"),
];

/// How a runtime is held and steered.
pub(crate) const FEATURES: &[Shows] = &[
    shows("per_tool_approval", "denied-call"),
    claim("approval_can_rewrite_input"),
    shows("host_tools", "host-tool"),
    shows("resume", "resume"),
    claim("fork"),
    shows("cancel", "cancel"),
    claim("steer_mid_turn"),
    claim("reports_tokens"),
    claim("reports_cost"),
    claim("own_sandbox"),
    shows("model_switch", "answer"),
    claim("mode_switch"),
];

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Its scenario passed.
    Yes,
    /// No scenario shows it, or its scenario was not tried.
    No,
    /// Its scenario failed.
    Fails,
}

/// What the cell of its scenario says about a claim.
pub(crate) fn shown(cell: Option<&Cell>) -> Shown {
    match cell {
        Some(Cell::Pass) => Shown::Yes,
        Some(Cell::Fail(_)) => Shown::Fails,
        Some(Cell::NotApplicable(_)) | None => Shown::No,
    }
}

/// The lines of `windlass runtimes --json`.
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
    // Keys and models are the kit's matter; whether the program is there is the machine's.
    let found = line["found"].as_bool().unwrap_or(!line["found"].is_null());
    Claims {
        name: word("name").unwrap_or_default(),
        version: word("version"),
        built_in: line["built_in"] == true,
        vendors: texts("vendors"),
        words: words.filter_map(Value::as_str).map(str::to_owned).collect(),
        missing: (!found)
            .then(|| word("why").unwrap_or_else(|| "it is not on this machine".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::SCENARIOS;

    #[test]
    fn what_shows_a_claim_is_a_scenario() {
        let by = CAPABILITIES
            .iter()
            .chain(FEATURES)
            .filter_map(|shows| shows.by);
        for name in by {
            assert!(
                SCENARIOS.iter().any(|scenario| scenario.name == name),
                "{name}"
            );
        }
    }

    #[test]
    fn a_claim_is_shown_by_what_passed_alone() {
        assert_eq!(shown(Some(&Cell::Pass)), Shown::Yes);
        assert_eq!(shown(Some(&Cell::Fail("why".into()))), Shown::Fails);
        assert_eq!(shown(Some(&Cell::NotApplicable("no".into()))), Shown::No);
        assert_eq!(shown(None), Shown::No);
    }

    #[test]
    fn claims_are_read_from_lines() {
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
