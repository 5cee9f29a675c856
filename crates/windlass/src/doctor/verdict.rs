//! The findings of a diagnosis, and the verdict whether a run can work.
//!
//! ```
//! use windlass::doctor::{DoctorFinding, FindingGroup};
//!
//! assert_eq!(FindingGroup::ALL.map(FindingGroup::word)[0], "machine");
//! let finding = DoctorFinding {
//!     group: FindingGroup::Machine,
//!     what: "settings".into(),
//!     ok: false,
//!     needed: true,
//!     detail: "line 3 is not TOML".into(),
//!     lines: vec!["line 3 is not TOML".into()],
//!     minor: false,
//! };
//! assert!(finding.is_broken());
//! ```

use schemars::JsonSchema;
use serde::Serialize;

use super::sandbox_report::SandboxReport;

/// The heading of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingGroup {
    Machine,
    Sandbox,
    Models,
    Agents,
}

impl FindingGroup {
    /// In the order of the report.
    pub const ALL: [Self; 4] = [Self::Machine, Self::Sandbox, Self::Models, Self::Agents];

    /// The heading.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Sandbox => "sandbox",
            Self::Models => "models",
            Self::Agents => "agents",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DoctorFinding {
    pub group: FindingGroup,
    pub what: String,
    pub ok: bool,
    /// No run can work without it.
    pub needed: bool,
    /// All lines in one.
    pub detail: String,
    /// The finding in one line, then further ones, for example with a fix.
    #[serde(skip)]
    pub lines: Vec<String>,
    /// A short list omits it.
    #[serde(skip)]
    pub minor: bool,
}

impl DoctorFinding {
    pub(super) fn new(group: FindingGroup, what: &str, result: Result<String, String>) -> Self {
        let ok = result.is_ok();
        let detail = result.unwrap_or_else(|why| why);
        Self {
            group,
            what: what.to_owned(),
            ok,
            needed: false,
            lines: vec![detail.clone()],
            detail,
            minor: false,
        }
    }

    pub(super) fn needed(self) -> Self {
        Self {
            needed: true,
            ..self
        }
    }

    pub(super) fn with_more(mut self, more: Vec<String>) -> Self {
        self.lines.extend(more);
        self.detail = self.lines.join("; ");
        self
    }

    /// The finding without its further lines.
    pub(super) fn first_line(&self) -> &str {
        self.lines.first().map_or("", String::as_str)
    }

    /// Whether the finding stops every run.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.needed && !self.ok
    }
}

/// The runtime that a plain `windlass run` would use, or why there is none.
#[derive(Debug)]
pub(super) enum AvailableAgent {
    /// The built-in agent; the text describes its access to the model.
    Native(String),
    /// The name of a foreign agent, if the built-in one cannot work.
    Foreign(String),
    /// No agent can work.
    Nothing { why: String, todo: String },
}

/// Whether a run can work on this machine. It is ready if `todo` is `None`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadyVerdict {
    pub(super) summary: String,
    pub(super) todo: Option<String>,
}

impl ReadyVerdict {
    /// Reports the most basic obstacle: broken findings, then the sandbox, then the model.
    pub(super) fn of(
        findings: &[DoctorFinding],
        sandbox: Option<&SandboxReport>,
        work: &AvailableAgent,
    ) -> Self {
        let not_ready = |why: &str, todo: String| Self {
            summary: format!("not ready: {why}"),
            todo: Some(todo),
        };
        if let Some(broken) = findings.iter().find(|finding| finding.is_broken()) {
            let todo = broken
                .lines
                .get(1)
                .map_or("fix this first", |todo| todo.trim_start_matches("→ "));
            return not_ready(
                &format!("{}: {}", broken.what, broken.first_line()),
                todo.to_owned(),
            );
        }
        let sandbox = match sandbox.map(SandboxReport::in_words) {
            Some(Ok(words)) => words,
            Some(Err((why, todo))) => return not_ready(&why, todo),
            None => {
                return not_ready(
                    "the sandbox could not be tested",
                    "start windlass by its full path".to_owned(),
                );
            }
        };
        match work {
            AvailableAgent::Native(how) => Self {
                summary: format!(
                    "ready: {sandbox}; the built-in agent {how}; run `windlass demo` to try it"
                ),
                todo: None,
            },
            AvailableAgent::Foreign(name) => Self {
                summary: format!(
                    "ready: {sandbox}; use an installed agent: `windlass run --runtime {name}`"
                ),
                todo: None,
            },
            AvailableAgent::Nothing { why, todo } => not_ready(why, todo.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(namespaces: bool, broker: bool) -> SandboxReport {
        SandboxReport::for_test(namespaces, broker)
    }

    fn native() -> AvailableAgent {
        AvailableAgent::Native("uses anthropic with your key".to_owned())
    }

    #[track_caller]
    fn check(
        findings: &[DoctorFinding],
        sandbox: &SandboxReport,
        work: &AvailableAgent,
        begins: &str,
    ) {
        let verdict = ReadyVerdict::of(findings, Some(sandbox), work);
        let todo = verdict.todo.as_deref();
        let sentence = todo.map_or(verdict.summary.clone(), |todo| {
            format!("{}; {todo}", verdict.summary)
        });
        assert!(sentence.starts_with(begins), "{sentence}");
        assert_eq!(
            verdict.todo.is_none(),
            begins.starts_with("ready"),
            "{sentence}"
        );
    }

    #[test]
    fn the_verdict_is_ready_or_names_the_most_basic_obstacle() {
        let whole = "ready: commands run in the namespaces sandbox; the built-in agent uses anthropic with your key; run";
        check(&[], &sandbox(true, true), &native(), whole);
        check(
            &[],
            &sandbox(false, true),
            &native(),
            "ready: commands run in the broker sandbox (no user namespaces here)",
        );
        check(
            &[],
            &sandbox(false, false),
            &native(),
            "not ready: no sandbox is available for commands",
        );
        let nothing = AvailableAgent::Nothing {
            why: "no model is configured".to_owned(),
            todo: "set a key".to_owned(),
        };
        check(
            &[],
            &sandbox(true, true),
            &nothing,
            "not ready: no model is configured; set a key",
        );
        let foreign = AvailableAgent::Foreign("codex".to_owned());
        check(
            &[],
            &sandbox(true, true),
            &foreign,
            "ready: commands run in the namespaces sandbox; use an installed agent",
        );
        let broken = DoctorFinding::new(
            FindingGroup::Machine,
            "settings",
            Err("line 3 is not TOML".to_owned()),
        )
        .needed();
        check(
            &[broken],
            &sandbox(true, true),
            &native(),
            "not ready: settings: line 3 is not TOML",
        );
    }
}
