//! Permission rules of the form `tool(pattern)`. Restricting rules (ask, deny) match broadly and allowing rules
//! narrowly: an allow rule never covers more than it says, and a deny rule must not be easy to circumvent.

use std::fmt;

use super::pattern::{command_allows, command_hits};
use super::{Level, Proposal, Verdict, external, glob_match};
use crate::shell::{Simple, base_name};
use crate::tool::{Touch, canonical_name};

/// One rule: `tool` or `tool(pattern)`, and its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name of the tool; `*` matches every tool.
    pub tool: String,
    /// The pattern for the touched path or command; `None` matches everything.
    pub pattern: Option<String>,
    /// The verdict: allow, ask or deny.
    pub verdict: Verdict,
    /// The origin of the rule.
    pub level: Level,
}

/// The error for a text that is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a rule: write `tool` or `tool(pattern)`, for example `write_file(docs/**)` or `bash(cargo test*)`"
)]
pub struct RuleError(String);

impl Rule {
    /// Parses `tool` or `tool(pattern)`.
    pub fn parse(text: &str, verdict: Verdict, level: Level) -> Result<Self, RuleError> {
        let bad = || RuleError(text.chars().take(120).collect());
        let text = text.trim();
        let (name, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((name, rest)) => {
                let inner = rest.strip_suffix(')').ok_or_else(bad)?.trim();
                (
                    name.trim(),
                    (inner != "*" && inner != "**").then(|| inner.to_owned()),
                )
            }
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*' | '.');
        if name.is_empty() || !name.chars().all(fits) || pattern.as_deref() == Some("") {
            return Err(bad());
        }
        Ok(Self {
            tool: canonical_name(name).to_owned(),
            pattern,
            verdict,
            level,
        })
    }

    /// Whether the rule denies every use of a tool, so that the model is not offered it.
    #[must_use]
    pub fn removes(&self, tool: &str) -> bool {
        self.verdict == Verdict::Deny && self.pattern.is_none() && glob_match(&self.tool, tool)
    }

    /// The origin and text of the rule, for a decision.
    pub(super) fn named(&self) -> String {
        format!("{} rule {self}", format!("{:?}", self.level).to_lowercase())
    }

    /// Whether the pattern matches a path. If the rule restricts, or the pattern ends in a slash, a directory includes
    /// everything below it.
    fn is_about(&self, pattern: &str, path: &str) -> bool {
        if pattern.ends_with('/') || self.verdict != Verdict::Allow {
            return keeps_back(pattern, path);
        }
        glob_match(pattern, path)
    }

    /// Whether a restricting rule matches a call; one matching touch is enough. A rule about reading or writing a path
    /// applies to every tool that does so.
    pub(super) fn restricts(&self, proposal: &Proposal<'_>) -> bool {
        let own = glob_match(&self.tool, proposal.tool);
        let Some(pattern) = &self.pattern else {
            return own;
        };
        let for_any = |tools: &[&str]| own || tools.iter().any(|tool| glob_match(&self.tool, tool));
        let path_counts = |inside: bool| inside || self.verdict == Verdict::Deny;
        proposal.touches.iter().any(|touch| match touch {
            Touch::Read { path, inside } => {
                for_any(&["read_file"]) && path_counts(*inside) && self.is_about(pattern, path)
            }
            Touch::Write { path, inside, .. } => {
                for_any(&["write_file", "edit_file"])
                    && path_counts(*inside)
                    && self.is_about(pattern, path)
            }
            // A forbidden command is forbidden anywhere in a command line.
            Touch::Execute { command, script } => {
                own && (command_hits(pattern, command)
                    || script
                        .iter()
                        .flat_map(|script| &script.commands)
                        .any(|simple| hits(pattern, simple)))
            }
            Touch::Connect { host } => own && glob_match(pattern, host),
        })
    }

    /// Whether an allowing rule covers one touch other than a command.
    pub(super) fn covers(&self, touch: &Touch, proposal: &Proposal<'_>) -> bool {
        let Some(pattern) = &self.pattern else {
            return false;
        };
        let own = glob_match(&self.tool, proposal.tool) && !proposal.by_command();
        match touch {
            Touch::Read { path, inside } => own && *inside && self.is_about(pattern, path),
            // A rule about writing files also covers writes by a command.
            Touch::Write { path, inside, .. } => {
                let writing = proposal.by_command() && glob_match(&self.tool, "write_file");
                (own || writing) && *inside && self.is_about(pattern, path)
            }
            Touch::Connect { host } => own && glob_match(pattern, host),
            Touch::Execute { .. } => false,
        }
    }

    /// Whether an allowing rule covers one simple command. All its arguments must be known and it must not set
    /// variables. Its writes are judged separately.
    pub(super) fn allows(&self, simple: &Simple) -> bool {
        let Some(pattern) = &self.pattern else {
            return true;
        };
        let known = simple.words.iter().all(|word| word.known)
            && simple.assigns.is_empty()
            && !simple.odd
            && simple.is_named()
            && !simple.program().contains(char::is_whitespace)
            && simple.writes.iter().all(|target| target.at.is_some());
        // Options before a git subcommand change what it does, so the rule must include them.
        let literal = pattern.split('*').next().unwrap_or_default();
        let sets = simple.name() == "git"
            && simple
                .args()
                .first()
                .is_some_and(|word| word.text.starts_with('-'));
        known
            && !simple.words.is_empty()
            && (!sets || literal.starts_with("git -"))
            // A wildcard matches arguments, but no options that run programs.
            && (!pattern.contains('*') || !external::runs_by_option(simple))
            && command_allows(pattern, &joined(simple))
    }
}

/// Whether a pattern matches a path or one of its parent directories.
#[must_use]
pub fn keeps_back(pattern: &str, path: &str) -> bool {
    let pattern = pattern.strip_suffix('/').unwrap_or(pattern);
    let mut above = std::iter::successors(Some(path), |path| {
        path.rsplit_once('/').map(|(above, _)| above)
    });
    above.any(|path| glob_match(pattern, path))
}

/// The words of the command, separated by single spaces.
fn joined(simple: &Simple) -> String {
    simple
        .words
        .iter()
        .map(|word| word.text.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether a pattern matches a command: as written, with the program's base name, or without the options before a git
/// subcommand.
fn hits(pattern: &str, simple: &Simple) -> bool {
    let written = joined(simple);
    let Some(program) = simple.words.first() else {
        return false;
    };
    let named = base_name(&program.text).to_owned() + &written[program.text.len()..];
    let mut args = simple.args();
    if simple.name() == "git" {
        while let Some((first, rest)) = args
            .split_first()
            .filter(|(first, _)| first.text.starts_with('-'))
        {
            let takes = matches!(
                first.text.as_str(),
                "-c" | "-C"
                    | "--git-dir"
                    | "--work-tree"
                    | "--namespace"
                    | "--config-env"
                    | "--attr-source"
                    | "--exec-path"
                    | "--super-prefix"
                    | "--list-cmds"
            );
            args = if takes {
                rest.get(1..).unwrap_or_default()
            } else {
                rest
            };
        }
    }
    let bare = args.iter().fold(simple.name().to_owned(), |line, word| {
        line + " " + &word.text
    });
    [written, named, bare]
        .iter()
        .any(|line| command_hits(pattern, line))
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tool)?;
        match &self.pattern {
            Some(pattern) => write!(f, "({pattern})"),
            None => Ok(()),
        }
    }
}
