//! Judges a call: verdict = the strictest of (rule, else mode) and the floor (decision 8).
//! A struct and not a trait on purpose: rules and modes are data that anyone may supply, the order of judgement is not.

mod floor;
mod pattern;
mod secrets;
mod shell;

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tool::{Effect, Touch, canonical_name};

pub use pattern::glob_match;
pub use secrets::{is_credential, keeps_secret};

/// What may happen with a call, strictest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It runs.
    Allow,
    /// Somebody is asked; a flag may answer.
    Ask,
    /// A live person is asked about this exact call; nothing else answers.
    Person,
    /// It does not run.
    Deny,
}

/// A verdict with the rule that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What may happen.
    pub verdict: Verdict,
    /// Which rule says so.
    pub rule: String,
    /// Why, for the model and the person.
    pub reason: String,
}

impl Decision {
    fn new(verdict: Verdict, rule: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { verdict, rule: rule.into(), reason: reason.into() }
    }
}

/// How freely calls run when no rule speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Looks only.
    Plan,
    /// Asks before anything but looking.
    #[default]
    Ask,
    /// Edits freely, asks before commands.
    Edit,
    /// Everything the sandbox holds.
    Auto,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plan => "plan",
            Self::Ask => "ask",
            Self::Edit => "edit",
            Self::Auto => "auto",
        })
    }
}

/// Where a rule comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// An answer in this session.
    Session,
    /// The project's configuration.
    Project,
    /// The user's.
    User,
    /// The organisation's.
    Managed,
}

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
                (name.trim(), (inner != "*" && inner != "**").then(|| inner.to_owned()))
            }
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*' | '.');
        if name.is_empty() || !name.chars().all(fits) || pattern.as_deref() == Some("") {
            return Err(bad());
        }
        Ok(Self { tool: canonical_name(name).to_owned(), pattern, verdict, level })
    }

    /// Whether it takes a whole tool away before the model sees it.
    #[must_use]
    pub fn removes(&self, tool: &str) -> bool {
        self.verdict == Verdict::Deny && self.pattern.is_none() && glob_match(&self.tool, tool)
    }

    /// Whether the pattern is about a path. A directory stands for all that is in it where the rule restricts, or where
    /// it says so with a slash at its end; a rule that was meant to forbid must not pass over in silence.
    fn covers(&self, pattern: &str, path: &str) -> bool {
        let directory = pattern.strip_suffix('/');
        let inside = directory.is_some() || self.verdict != Verdict::Allow;
        let pattern = directory.unwrap_or(pattern);
        let above = std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(above, _)| above));
        above.take(if inside { usize::MAX } else { 1 }).any(|path| glob_match(pattern, path))
    }

    fn matches(&self, proposal: &Proposal<'_>) -> bool {
        if !glob_match(&self.tool, proposal.tool) {
            return false;
        }
        let Some(pattern) = &self.pattern else { return true };
        let fits = |touch: &Touch| match touch {
            // A rule is about the workspace; what leads out of it matches nothing but a deny.
            Touch::Read { path, inside } | Touch::Write { path, inside } => {
                (*inside || self.verdict == Verdict::Deny) && self.covers(pattern, path)
            }
            Touch::Execute { command } if self.verdict == Verdict::Allow => {
                floor::is_plain(command) && pattern::command_match(pattern, command)
            }
            // A forbidden command is forbidden wherever it stands in a line.
            Touch::Execute { command } => {
                let parts = shell::simple_commands(command).unwrap_or_default();
                pattern::command_match(pattern, command)
                    || parts.iter().any(|part| pattern::command_match(pattern, &part.words.join(" ")))
            }
            Touch::Connect { host } => glob_match(pattern, host),
        };
        // An allow must cover everything the call touches; a deny or ask needs to hit once.
        if self.verdict == Verdict::Allow {
            !proposal.touches.is_empty() && proposal.touches.iter().all(fits)
        } else {
            proposal.touches.iter().any(fits)
        }
    }
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

impl FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "plan" => Ok(Self::Plan),
            "ask" => Ok(Self::Ask),
            "edit" => Ok(Self::Edit),
            "auto" => Ok(Self::Auto),
            other => Err(format!("`{other}` is not an approval mode; use plan, ask, edit or auto")),
        }
    }
}

/// A call to be judged.
#[derive(Debug, Clone, Copy)]
pub struct Proposal<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// The worst the tool can do.
    pub effect: Effect,
    /// What this call would touch, resolved.
    pub touches: &'a [Touch],
    /// Where it would happen.
    pub place: Place,
}

/// Where a call happens; the policy judges by what is really in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// On a private copy.
    pub isolated: bool,
    /// In a kernel sandbox.
    pub sandboxed: bool,
}

/// Rules and a mode.
///
/// ```
/// use windlass_core::gate::{Level, Mode, PermissionGate, Place, Proposal, Rule, Verdict};
/// use windlass_core::tool::{Effect, Touch};
///
/// let allow = Rule::parse("write_file(docs/**)", Verdict::Allow, Level::User).expect("a rule");
/// let gate = PermissionGate { mode: Mode::Ask, rules: vec![allow], ..PermissionGate::default() };
/// let judge = |path: &str| {
///     let touches = [Touch::Write { path: path.into(), inside: true }];
///     gate.judge(&Proposal { tool: "write_file", effect: Effect::Write, touches: &touches, place: Place::default() }).verdict
/// };
/// assert_eq!(judge("docs/guide.md"), Verdict::Allow);
/// assert_eq!(judge("src/lib.rs"), Verdict::Ask);
/// assert_eq!(judge(".git/config"), Verdict::Deny);
/// ```
#[derive(Debug, Clone, Default)]
pub struct PermissionGate {
    /// What happens when no rule speaks.
    pub mode: Mode,
    /// All rules, whatever their level: the strictest that matches counts.
    pub rules: Vec<Rule>,
    /// Credential paths that a person may allow, as globs; all others are denied.
    pub exposed: Vec<String>,
}

impl PermissionGate {
    /// A rule may loosen the mode. Nothing loosens the floor.
    #[must_use]
    pub fn judge(&self, proposal: &Proposal<'_>) -> Decision {
        let wish = self.by_rule(proposal).unwrap_or_else(|| self.by_mode(proposal));
        match floor::floor(proposal, &self.exposed) {
            Some(floor) if floor.verdict > wish.verdict => floor,
            _ => wish,
        }
    }

    /// Whether a rule takes the tool away before the model sees it.
    #[must_use]
    pub fn hides(&self, tool: &str) -> bool {
        self.rules.iter().any(|rule| rule.removes(tool))
    }

    /// The rule that "always" would add for this call, where one can be offered that allows no more than it says.
    #[must_use]
    pub fn always_rule(proposal: &Proposal<'_>) -> Option<String> {
        match proposal.touches {
            [Touch::Execute { command }] if floor::is_plain(command) => {
                Some(format!("{}({})", proposal.tool, floor::always_pattern(command)))
            }
            [Touch::Write { path, inside: true }] if !path.contains(['*', '?', '(', ')']) => {
                Some(format!("{}({path})", proposal.tool))
            }
            _ => None,
        }
    }

    fn by_rule(&self, proposal: &Proposal<'_>) -> Option<Decision> {
        let rule = self.rules.iter().filter(|rule| rule.matches(proposal)).max_by_key(|rule| rule.verdict)?;
        let reason = match rule.verdict {
            Verdict::Allow => "allowed by a rule",
            Verdict::Ask | Verdict::Person => "a rule asks for approval",
            Verdict::Deny => "forbidden by a rule",
        };
        let level = format!("{:?}", rule.level).to_lowercase();
        Some(Decision::new(rule.verdict, format!("{level} rule {rule}"), reason))
    }

    fn by_mode(&self, proposal: &Proposal<'_>) -> Decision {
        let effect = proposal.touches.iter().map(Touch::effect).fold(proposal.effect, Effect::max);
        let rule = format!("mode {}", self.mode);
        let (verdict, reason) = match (self.mode, effect) {
            (_, Effect::Read) => (Verdict::Allow, "looking is free"),
            (Mode::Plan, _) => (Verdict::Deny, "plan mode only looks; say what you would do instead"),
            (Mode::Ask, _) => (Verdict::Ask, "this mode asks before anything but looking"),
            (Mode::Edit | Mode::Auto, Effect::Write) => (Verdict::Allow, "this mode edits freely"),
            (Mode::Edit, _) => (Verdict::Ask, "this mode asks before commands"),
            (Mode::Auto, Effect::Execute) if proposal.place.sandboxed => (Verdict::Allow, "the sandbox holds it"),
            (Mode::Auto, _) => (Verdict::Ask, "no kernel sandbox is in force, so commands are asked for"),
        };
        Decision::new(verdict, rule, reason)
    }
}

impl Touch {
    /// What kind of effect it is.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Read { .. } => Effect::Read,
            Self::Write { .. } => Effect::Write,
            Self::Execute { .. } => Effect::Execute,
            Self::Connect { .. } => Effect::Network,
        }
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
