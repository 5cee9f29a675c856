//! The doctor's report: findings in groups, the sentence it begins with, and both as text and as JSON.

use serde_json::{Value, json};

use super::sandbox::SandboxReport;
use crate::sanitize::{json_line, one_line};

/// The heading a finding stands under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Machine,
    Sandbox,
    Models,
    Agents,
}

impl Group {
    const ALL: [Self; 4] = [Self::Machine, Self::Sandbox, Self::Models, Self::Agents];

    fn word(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Sandbox => "sandbox",
            Self::Models => "models",
            Self::Agents => "agents",
        }
    }

    /// Says how many findings the short list leaves out.
    fn left_out(self, count: usize) -> String {
        let (one, many) = match self {
            Self::Models => ("vendor is not set up", "vendors are not set up"),
            Self::Agents => ("agent is not installed", "agents are not installed"),
            Self::Machine | Self::Sandbox => ("more finding", "more findings"),
        };
        format!(
            "{count} {}: `windlass doctor --all` lists them",
            if count == 1 { one } else { many }
        )
    }
}

#[derive(Debug)]
pub(super) struct Finding {
    pub(super) group: Group,
    pub(super) what: String,
    pub(super) ok: bool,
    /// No run can work without it, so the command fails.
    pub(super) needed: bool,
    /// Left out of the short list.
    pub(super) minor: bool,
    pub(super) detail: String,
    /// Further sentences, one per line.
    pub(super) more: Vec<String>,
}

impl Finding {
    pub(super) fn new(group: Group, what: &str, result: Result<String, String>) -> Self {
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
pub(super) enum Work {
    /// The built-in agent has a model; how it is asked.
    Native(String),
    /// Only this foreign agent can work.
    Foreign(String),
    /// No agent can work: the cause, and what to do.
    Nothing { why: String, todo: String },
}

/// Whether a run can work here. Without the thing to do, everything is ready.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) summary: String,
    pub(super) todo: Option<String>,
}

impl Verdict {
    /// The most basic obstacle decides: the files of Windlass, then the sandbox, then the model.
    pub(super) fn of(findings: &[Finding], sandbox: Option<&SandboxReport>, work: &Work) -> Self {
        let not_ready = |why: &str, todo: String| Self {
            summary: format!("not ready: {why}"),
            todo: Some(todo),
        };
        if let Some(broken) = findings.iter().find(|finding| finding.is_broken()) {
            let todo = broken
                .more
                .first()
                .map_or("correct it", |todo| todo.trim_start_matches("→ "));
            return not_ready(
                &format!("{}: {}", broken.what, broken.detail),
                todo.to_owned(),
            );
        }
        let held = match sandbox.map(SandboxReport::in_words) {
            Some(Ok(words)) => words,
            Some(Err((why, todo))) => return not_ready(&why, todo),
            None => {
                return not_ready(
                    "the sandbox could not be tried",
                    "start windlass by its full path".to_owned(),
                );
            }
        };
        match work {
            Work::Native(how) => Self {
                summary: format!(
                    "ready: {held}; the built-in agent {how}; run `windlass demo` to try it"
                ),
                todo: None,
            },
            Work::Foreign(name) => Self {
                summary: format!(
                    "ready: {held}; use an agent that is installed: `windlass run --runtime {name}`"
                ),
                todo: None,
            },
            Work::Nothing { why, todo } => not_ready(why, todo.clone()),
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

/// The sentence first, then the findings of each group; without `all`, those that are minor are only counted.
pub(super) fn text(verdict: &Verdict, findings: &[Finding], all: bool) -> String {
    let mut text = format!("{}\n", one_line(&verdict.sentence()));
    for group in Group::ALL {
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
            text.push_str(&format!("  {}\n", group.left_out(hidden.len())));
        }
    }
    text
}

pub(super) fn json(
    verdict: &Verdict,
    sandbox: Option<&SandboxReport>,
    findings: &[Finding],
    runtimes: &[Value],
) -> String {
    json_line(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "ready": verdict.is_ready(),
        "summary": verdict.summary,
        "todo": verdict.todo,
        "sandbox": sandbox.map(SandboxReport::json),
        "findings": findings.iter().map(Finding::json).collect::<Vec<_>>(),
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

    fn native() -> Work {
        Work::Native("asks anthropic with your key".to_owned())
    }

    #[track_caller]
    fn check(findings: &[Finding], sandbox: &SandboxReport, work: &Work, begins: &str) {
        let verdict = Verdict::of(findings, Some(sandbox), work);
        let sentence = verdict.sentence();
        assert!(sentence.starts_with(begins), "{sentence}");
        assert_eq!(
            verdict.is_ready(),
            begins.starts_with("ready"),
            "{sentence}"
        );
    }

    #[test]
    fn the_first_sentence_says_ready_or_the_one_thing_to_do() {
        let whole = "ready: commands run in the namespaces sandbox; the built-in agent asks anthropic with your key; run";
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
            "not ready: no sandbox holds commands here",
        );
        let nothing = Work::Nothing {
            why: "no model is configured".to_owned(),
            todo: "set a key".to_owned(),
        };
        check(
            &[],
            &sandbox(true, true),
            &nothing,
            "not ready: no model is configured; set a key",
        );
        let foreign = Work::Foreign("codex".to_owned());
        check(
            &[],
            &sandbox(true, true),
            &foreign,
            "ready: commands run in the namespaces sandbox; use an agent",
        );
        let broken = Finding::new(
            Group::Machine,
            "settings",
            Err("line 3 is no TOML".to_owned()),
        )
        .needed();
        check(
            &[broken],
            &sandbox(true, true),
            &native(),
            "not ready: settings: line 3 is no TOML",
        );
    }

    #[test]
    fn the_short_list_counts_minor_findings_and_the_long_one_shows_them() {
        let minor = |name| Finding {
            minor: true,
            ..Finding::new(Group::Models, name, Err("no key".to_owned()))
        };
        let findings = [
            Finding::new(Group::Models, "anthropic", Ok("a key is set".to_owned())),
            minor("groq"),
            minor("xai"),
        ];
        let verdict = Verdict {
            summary: "ready: yes".to_owned(),
            todo: None,
        };
        let short = text(&verdict, &findings, false);
        assert_eq!(
            short,
            "ready: yes\n\nmodels\n  ok       anthropic            a key is set\n  \
             2 vendors are not set up: `windlass doctor --all` lists them\n"
        );
        let long = text(&verdict, &findings, true);
        assert!(
            long.contains("missing  groq") && !long.contains("--all"),
            "{long}"
        );
    }
}
