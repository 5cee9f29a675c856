//! The report of `doctor`: a verdict in one sentence, then the findings in groups, as text or JSON.

use serde_json::{Value, json};

use super::sandbox::SandboxReport;
use crate::sanitize::{json_line, one_line};

/// The heading of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FindingGroup {
    Machine,
    Sandbox,
    Models,
    Agents,
}

impl FindingGroup {
    const ALL: [Self; 4] = [Self::Machine, Self::Sandbox, Self::Models, Self::Agents];

    fn word(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Sandbox => "sandbox",
            Self::Models => "models",
            Self::Agents => "agents",
        }
    }

    /// Counts the findings that the short list omits.
    fn omitted(self, count: usize) -> String {
        let (one, many) = match self {
            Self::Models => ("vendor is not set up", "vendors are not set up"),
            Self::Agents => ("agent is not installed", "agents are not installed"),
            Self::Machine | Self::Sandbox => ("more finding", "more findings"),
        };
        format!(
            "{count} {} (see `windlass doctor --all`)",
            if count == 1 { one } else { many }
        )
    }
}

#[derive(Debug)]
pub(super) struct DoctorFinding {
    pub(super) group: FindingGroup,
    pub(super) what: String,
    pub(super) ok: bool,
    /// No run can work without it, so `doctor` fails.
    pub(super) needed: bool,
    /// The short list omits it.
    pub(super) minor: bool,
    pub(super) detail: String,
    /// Further sentences, one per line.
    pub(super) more: Vec<String>,
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
            minor: false,
            detail,
            more: Vec::new(),
        }
    }

    pub(super) fn needed(self) -> Self {
        Self {
            needed: true,
            ..self
        }
    }

    pub(super) fn with_more(self, more: Vec<String>) -> Self {
        Self { more, ..self }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.needed && !self.ok
    }

    fn line(&self) -> String {
        let mark = match (self.ok, self.needed) {
            (true, _) => "ok",
            (false, true) => "BROKEN",
            (false, false) => "missing",
        };
        let more: String = self
            .more
            .iter()
            .map(|line| format!("\n{:32}{}", "", one_line(line)))
            .collect();
        format!(
            "  {mark:<8} {:<20} {}{more}\n",
            self.what,
            one_line(&self.detail)
        )
    }

    fn json(&self) -> Value {
        let detail = [&self.detail]
            .into_iter()
            .chain(&self.more)
            .cloned()
            .collect::<Vec<_>>()
            .join("; ");
        json!({
            "group": self.group.word(), "what": self.what, "ok": self.ok, "needed": self.needed, "detail": detail,
        })
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
                .more
                .first()
                .map_or("fix this first", |todo| todo.trim_start_matches("→ "));
            return not_ready(
                &format!("{}: {}", broken.what, broken.detail),
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

    pub(super) fn is_ready(&self) -> bool {
        self.todo.is_none()
    }

    fn sentence(&self) -> String {
        match &self.todo {
            None => self.summary.clone(),
            Some(todo) => format!("{}; {todo}", self.summary),
        }
    }
}

/// Renders the verdict, then the findings of each group; without `all`, minor findings are only counted.
pub(super) fn text(verdict: &ReadyVerdict, findings: &[DoctorFinding], all: bool) -> String {
    let mut text = format!("{}\n", one_line(&verdict.sentence()));
    for group in FindingGroup::ALL {
        let (shown, hidden): (Vec<_>, Vec<_>) = findings
            .iter()
            .filter(|finding| finding.group == group)
            .partition(|finding| all || !finding.minor);
        if shown.is_empty() && hidden.is_empty() {
            continue;
        }
        text.push_str(&format!("\n{}\n", group.word()));
        text.extend(shown.iter().map(|finding| finding.line()));
        if !hidden.is_empty() {
            text.push_str(&format!("  {}\n", group.omitted(hidden.len())));
        }
    }
    text
}

pub(super) fn json(
    verdict: &ReadyVerdict,
    sandbox: Option<&SandboxReport>,
    findings: &[DoctorFinding],
    runtimes: &[Value],
) -> String {
    json_line(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "ready": verdict.is_ready(),
        "summary": verdict.summary,
        "todo": verdict.todo,
        "sandbox": sandbox.map(SandboxReport::json),
        "findings": findings.iter().map(DoctorFinding::json).collect::<Vec<_>>(),
        "runtimes": runtimes,
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
        let sentence = verdict.sentence();
        assert!(sentence.starts_with(begins), "{sentence}");
        assert_eq!(
            verdict.is_ready(),
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

    #[test]
    fn the_short_list_counts_minor_findings_and_the_long_one_shows_them() {
        let minor = |name| DoctorFinding {
            minor: true,
            ..DoctorFinding::new(FindingGroup::Models, name, Err("no key".to_owned()))
        };
        let findings = [
            DoctorFinding::new(
                FindingGroup::Models,
                "anthropic",
                Ok("a key is set".to_owned()),
            ),
            minor("groq"),
            minor("xai"),
        ];
        let verdict = ReadyVerdict {
            summary: "ready: yes".to_owned(),
            todo: None,
        };
        let short = text(&verdict, &findings, false);
        assert_eq!(
            short,
            "ready: yes\n\nmodels\n  ok       anthropic            a key is set\n  \
             2 vendors are not set up (see `windlass doctor --all`)\n"
        );
        let long = text(&verdict, &findings, true);
        assert!(
            long.contains("missing  groq") && !long.contains("--all"),
            "{long}"
        );
    }
}
