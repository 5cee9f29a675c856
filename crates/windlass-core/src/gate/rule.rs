//! Rules: `tool(pattern)` and what they say. What restricts is read generously, what allows is read narrowly: an
//! allow never covers more than its words say, and a deny must not be passed over in silence.

use std::fmt;

use super::pattern::{command_allows, command_hits};
use super::{Level, Proposal, Verdict, external, glob_match};
use crate::shell::{Simple, base_name};
use crate::tool::{Touch, canonical_name};

/// One rule: `tool` or `tool(pattern)` and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The tool's name; `*` is any.
    pub tool: String,
    /// What the touched path or command must match; `None` is anything.
    pub pattern: Option<String>,
    /// What it says: Allow, Ask or Deny.
    pub verdict: Verdict,
    /// Where it comes from.
    pub level: Level,
}

/// A rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a rule: write `tool` or `tool(pattern)`, for example `write_file(docs/**)` or `bash(cargo test*)`"
)]
pub struct RuleError(String);

impl Rule {
    /// Reads `tool` or `tool(pattern)`.
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

    /// Whether it takes a whole tool away before the model sees it.
    #[must_use]
    pub fn removes(&self, tool: &str) -> bool {
        self.verdict == Verdict::Deny && self.pattern.is_none() && glob_match(&self.tool, tool)
    }

    /// Where it comes from and what it is, for a decision.
    pub(super) fn named(&self) -> String {
        format!("{} rule {self}", format!("{:?}", self.level).to_lowercase())
    }

    /// Whether the pattern is about a path. A directory stands for all that is in it where the rule restricts, or where
    /// it says so with a slash at its end.
    fn is_about(&self, pattern: &str, path: &str) -> bool {
        if pattern.ends_with('/') || self.verdict != Verdict::Allow {
            return keeps_back(pattern, path);
        }
        glob_match(pattern, path)
    }

    /// Whether a rule that restricts is about a call: one hit is enough. What a rule says about reading or writing
    /// a path holds for every tool that would.
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
            // A forbidden command is forbidden wherever it stands in a line.
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

    /// Whether a rule that allows covers one thing that is touched, other than a command.
    pub(super) fn covers(&self, touch: &Touch, proposal: &Proposal<'_>) -> bool {
        let Some(pattern) = &self.pattern else {
            return false;
        };
        let own = glob_match(&self.tool, proposal.tool) && !proposal.by_command();
        match touch {
            Touch::Read { path, inside } => own && *inside && self.is_about(pattern, path),
            // What a command writes is covered by rules about writing.
            Touch::Write { path, inside, .. } => {
                let writing = proposal.by_command() && glob_match(&self.tool, "write_file");
                (own || writing) && *inside && self.is_about(pattern, path)
            }
            Touch::Connect { host } => own && glob_match(pattern, host),
            Touch::Execute { .. } => false,
        }
    }

    /// Whether a rule that allows covers one simple command: all its words are known, it sets nothing, and what it
    /// writes is judged apart from it.
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
        // Options before a command of git change what it does, so they must stand in the rule.
        let literal = pattern.split('*').next().unwrap_or_default();
        let sets = simple.name() == "git"
            && simple
                .args()
                .first()
                .is_some_and(|word| word.text.starts_with('-'));
        known
            && !simple.words.is_empty()
            && (!sets || literal.starts_with("git -"))
            // A wildcard stands for words, not for options that run programs.
            && (!pattern.contains('*') || !external::runs_by_option(simple))
            && command_allows(pattern, &joined(simple))
    }
}

/// Whether a pattern is about a path or about a folder that it is in.
#[must_use]
pub fn keeps_back(pattern: &str, path: &str) -> bool {
    let pattern = pattern.strip_suffix('/').unwrap_or(pattern);
    let mut above = std::iter::successors(Some(path), |path| {
        path.rsplit_once('/').map(|(above, _)| above)
    });
    above.any(|path| glob_match(pattern, path))
}

/// The words with one space between them.
fn joined(simple: &Simple) -> String {
    simple
        .words
        .iter()
        .map(|word| word.text.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether a pattern is about a command: as it is written, by the program's own name, and without the options that
/// stand before a command of git.
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
