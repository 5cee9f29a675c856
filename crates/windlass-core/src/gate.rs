//! The permission gate decides whether a call may run. Its verdict is the stricter of two: the rules (or, if no rule
//! matches, the mode) and the safety floor (decision 8). The gate is a struct and not a trait on purpose: anyone may
//! supply rules and modes as data, but the order of the judgement is fixed.
//!
//! ```
//! use windlass_core::gate::{Bar, bar_at_landing};
//!
//! assert!(bar_at_landing("src/lib.rs", false, "", &[]).is_none());
//! assert!(matches!(bar_at_landing(".github/workflows/ci.yml", true, "", &[]), Some(Bar::Person(_))));
//! ```

mod command;
mod external;
mod floor;
mod landing;
mod pattern;
mod rule;
mod secrets;
mod steering;

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host_name;
use crate::shell::{ShellScript, Simple};
use crate::terms::Isolation;
use crate::tool::{Effect, Touch};
use crate::workspace::Change;

pub use floor::is_system_path;
pub use landing::{Bar, bar_at_landing, executes_later, may_write};
pub use pattern::glob_match;
pub use rule::{Rule, RuleError, keeps_back};
pub use secrets::{is_credential, keeps_secret};
pub use steering::{Steers, steering_names, steers};

/// A table of names, separated by spaces.
struct NameTable(&'static str);

impl NameTable {
    fn iter(&self) -> impl Iterator<Item = &'static str> {
        self.0.split_ascii_whitespace()
    }

    fn contains(&self, name: &str) -> bool {
        self.iter().any(|known| known == name)
    }
}

/// The decision about a call, strictest last.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    /// The call may run without an approval.
    Allow,
    /// The call needs an approval, which a flag such as `--yes` may give.
    Ask,
    /// The call needs the approval of a live person for exactly this call; no flag or rule can give it.
    Person,
    /// The call does not run.
    Deny,
}

/// A verdict with the rule that led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Decision {
    /// The verdict on the call.
    pub verdict: Verdict,
    /// The name of the deciding rule.
    pub rule: String,
    /// The reason, in words for the model and the user.
    pub reason: String,
}

impl Decision {
    fn new(verdict: Verdict, rule: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            verdict,
            rule: rule.into(),
            reason: reason.into(),
        }
    }
}

/// The strictest decision; the first one of equally strict ones.
fn strictest(decisions: impl Iterator<Item = Decision>) -> Option<Decision> {
    decisions.reduce(|known, other| {
        if other.verdict > known.verdict {
            other
        } else {
            known
        }
    })
}

/// The approval mode: which calls run without an approval if no rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Mode {
    /// Only reading is allowed.
    Plan,
    /// Everything except reading needs an approval.
    #[default]
    Ask,
    /// Edits run freely; commands need an approval.
    Edit,
    /// Everything that the sandbox confines runs freely.
    Auto,
}

impl Mode {
    /// The default mode if neither a flag nor a setting gives one. In an isolated run calls run freely, because its
    /// changes are judged before they reach the user's tree.
    #[must_use]
    pub fn usual(isolated: bool) -> Self {
        if isolated { Self::Auto } else { Self::Ask }
    }
}

/// The origin of a rule.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// An answer of the user in this session.
    Session,
    /// The settings of the project.
    Project,
    /// The settings of the user.
    User,
    /// The settings of the organisation.
    Managed,
    /// The profile of the run.
    Profile,
}

impl FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "plan" => Ok(Self::Plan),
            "ask" => Ok(Self::Ask),
            "edit" => Ok(Self::Edit),
            "auto" => Ok(Self::Auto),
            other => Err(format!(
                "`{other}` is not an approval mode; use plan, ask, edit or auto"
            )),
        }
    }
}

/// A call to be judged.
#[derive(Debug, Clone, Copy)]
pub struct Proposal<'a> {
    /// The name of the tool.
    pub tool: &'a str,
    /// The most severe effect that the tool can have.
    pub effect: Effect,
    /// The files, commands and hosts that this call would touch, with resolved paths.
    pub touches: &'a [Touch],
    /// The protection that is in force where the call would run.
    pub place: CallProtection,
}

/// The protection that is in force for a call. The gate trusts only what is really in force, not what was configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallProtection {
    /// Whether the call runs on an isolated copy.
    pub isolation: Isolation,
    /// True if the call runs in a kernel sandbox.
    pub sandboxed: bool,
    /// True if background jobs of the run are still running.
    pub has_jobs: bool,
}

/// The network access of commands, as far as it is known before they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// Some hosts are reachable. Which ones turns out when a command connects.
    #[default]
    Something,
    /// Only a private loopback is reachable.
    Loopback,
    /// There is no network.
    Nothing,
}

/// The permission gate: rules and a mode.
///
/// ```
/// use windlass_core::gate::{Level, Mode, PermissionGate, CallProtection, Proposal, Rule, Verdict};
/// use windlass_core::tool::{Effect, Touch};
///
/// let allow = Rule::parse("write_file(docs/**)", Verdict::Allow, Level::User).expect("a rule");
/// let gate = PermissionGate { mode: Mode::Ask, rules: vec![allow], ..PermissionGate::default() };
/// let judge = |path: &str| {
///     let touches = [Touch::Write { path: path.into(), inside: true, new: false }];
///     gate.judge(&Proposal { tool: "write_file", effect: Effect::Write, touches: &touches, place: CallProtection::default() }).verdict
/// };
/// assert_eq!(judge("docs/guide.md"), Verdict::Allow);
/// assert_eq!(judge("src/lib.rs"), Verdict::Ask);
/// assert_eq!(judge(".git/config"), Verdict::Deny);
/// ```
#[derive(Debug, Clone, Default)]
pub struct PermissionGate {
    /// The mode that applies if no rule matches.
    pub mode: Mode,
    /// The rules of all levels. The strictest matching rule applies.
    pub rules: Vec<Rule>,
    /// Globs of credential paths that a person may approve; access to all others is denied.
    pub exposed: Vec<String>,
    /// The network access of commands in the sandbox.
    pub reach: Reach,
}

/// One stage of a judgement, for explanations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateStage {
    /// The name of the stage.
    pub name: &'static str,
    /// The decision of the stage; `None` if it does not apply to the call.
    pub says: Option<Decision>,
}

/// A judgement with the decisions of all its stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The stages in the order of evaluation.
    pub stages: Vec<GateStage>,
    /// The decision that follows from all stages.
    pub decision: Decision,
}

impl PermissionGate {
    /// Judges a call. A rule may loosen the mode. Nothing loosens the floor.
    #[must_use]
    pub fn judge(&self, proposal: &Proposal<'_>) -> Decision {
        self.explain(proposal).decision
    }

    /// Judges a call like [`PermissionGate::judge`] and returns the decision of every stage.
    #[must_use]
    pub fn explain(&self, proposal: &Proposal<'_>) -> Explained {
        let deny = self
            .restricting(proposal, Verdict::Deny)
            .or_else(|| self.hidden_program(proposal));
        let ask = self.restricting(proposal, Verdict::Ask);
        let allow = self.allowing(proposal);
        let floor = floor::floor(proposal, &self.exposed);
        let floor = strictest(floor.into_iter().chain(self.publishing(proposal)));
        let mode = self.by_mode(proposal);
        let capability = self.unreachable(proposal);
        let wish = deny
            .clone()
            .or_else(|| ask.clone())
            .or_else(|| allow.clone())
            .unwrap_or_else(|| mode.clone());
        let decision = [&floor, &capability].into_iter().flatten().cloned();
        let decision = strictest(std::iter::once(wish.clone()).chain(decision)).unwrap_or(wish);
        let stage = |name, says| GateStage { name, says };
        let stages = vec![
            stage("deny rules", deny),
            stage("ask rules", ask),
            stage("allow rules", allow),
            stage("safety floor", floor),
            stage("mode", Some(mode)),
            stage("capability", capability),
        ];
        Explained { stages, decision }
    }

    /// The deny or ask rule that matches a call, regardless of the mode and the floor.
    #[must_use]
    pub fn restricting_rule(&self, proposal: &Proposal<'_>) -> Option<Decision> {
        self.restricting(proposal, Verdict::Deny)
            .or_else(|| self.restricting(proposal, Verdict::Ask))
    }

    /// The deny or ask rule that matches a changed file.
    #[must_use]
    pub fn rule_about_change(
        &self,
        path: &str,
        change: &Change,
        place: CallProtection,
    ) -> Option<Decision> {
        let write = |path: &str| Touch::Write {
            path: path.to_owned(),
            inside: true,
            new: *change == Change::Created,
        };
        let mut touches = vec![write(path)];
        if let Change::MovedFrom(from) = change {
            touches.push(write(from));
        }
        let tools: &[&str] = match change {
            Change::Created => &["write_file"],
            Change::Deleted => &["delete_file"],
            Change::Modified => &["write_file", "edit_file"],
            Change::MovedFrom(_) => &["move_file"],
        };
        tools.iter().find_map(|tool| {
            self.restricting_rule(&Proposal {
                tool,
                effect: Effect::Write,
                touches: &touches,
                place,
            })
        })
    }

    /// Whether the files that a call would write may be read without a question.
    #[must_use]
    pub fn may_read(&self, proposal: &Proposal<'_>) -> bool {
        let written = proposal.touches.iter().filter_map(|touch| match touch {
            Touch::Write { path, inside, .. } => Some(Touch::Read {
                path: path.clone(),
                inside: *inside,
            }),
            _ => None,
        });
        let touches: Vec<Touch> = written.collect();
        let reading = Proposal {
            tool: "read_file",
            effect: Effect::Read,
            touches: &touches,
            place: proposal.place,
        };
        self.judge(&reading).verdict == Verdict::Allow
    }

    /// Whether a deny rule removes the tool, so that the model is not offered it.
    #[must_use]
    pub fn hides(&self, tool: &str) -> bool {
        self.rules.iter().any(|rule| rule.removes(tool))
    }

    /// Globs of paths that no tool may read, in the order of the rules.
    #[must_use]
    pub fn hidden_paths(&self) -> Vec<String> {
        let rules = self
            .rules
            .iter()
            .filter(|rule| rule.verdict == Verdict::Deny && glob_match(&rule.tool, "read_file"));
        rules.filter_map(|rule| rule.pattern.clone()).collect()
    }

    /// The rule that the answer "always" would add for this call; `None` if no rule can be offered that is narrow
    /// enough.
    #[must_use]
    pub fn always_rule(proposal: &Proposal<'_>) -> Option<String> {
        let text = match proposal.touches {
            [
                Touch::Write {
                    path, inside: true, ..
                },
            ] if !path.contains(['*', '?', '(', ')']) => {
                return Some(format!("{}({path})", proposal.tool));
            }
            touches => {
                let scripts: Vec<&ShellScript> = touches.iter().filter_map(Touch::script).collect();
                let [script] = scripts[..] else { return None };
                format!("{}({})", proposal.tool, command::always_pattern(script)?)
            }
        };
        // The offered rule must allow the call itself, or the user would be asked about the same call again.
        let rule = Rule::parse(&text, Verdict::Allow, Level::Session).ok()?;
        let gate = Self {
            rules: vec![rule],
            ..Self::default()
        };
        gate.allowing(proposal).map(|_| text)
    }

    fn restricting(&self, proposal: &Proposal<'_>, verdict: Verdict) -> Option<Decision> {
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.verdict == verdict && rule.restricts(proposal))?;
        let reason = if verdict == Verdict::Deny {
            "forbidden by a rule"
        } else {
            "a rule asks for approval"
        };
        Some(Decision::new(verdict, rule.named(), reason))
    }

    /// If rules forbid certain programs, a command whose programs cannot be determined needs a person's approval.
    fn hidden_program(&self, proposal: &Proposal<'_>) -> Option<Decision> {
        let rule = self.rules.iter().find(|rule| {
            rule.verdict == Verdict::Deny
                && rule.pattern.is_some()
                && glob_match(&rule.tool, proposal.tool)
        })?;
        let hides = |touch: &Touch| match touch {
            Touch::Execute { script, .. } => script.as_deref().is_none_or(|script| {
                !script.is_certain() || script.commands.iter().any(command::hides_program)
            }),
            _ => false,
        };
        let reason = "it does not show which programs it runs, and a rule forbids some; write it more plainly";
        proposal
            .touches
            .iter()
            .any(hides)
            .then(|| Decision::new(Verdict::Person, rule.named(), reason))
    }

    /// If the network permits it, publishing needs a person's approval, unless a rule allows exactly that command.
    fn publishing(&self, proposal: &Proposal<'_>) -> Option<Decision> {
        if proposal.place.sandboxed && self.reach != Reach::Something {
            return None;
        }
        let is_exact = |rule: &Rule| {
            let pattern = rule.pattern.as_deref();
            rule.verdict == Verdict::Allow
                && pattern.is_some_and(|pattern| !pattern.contains(['*', '?', '[']))
                && glob_match(&rule.tool, proposal.tool)
        };
        let exact: Vec<&Rule> = self.rules.iter().filter(|rule| is_exact(rule)).collect();
        let scripts = proposal.touches.iter().filter_map(Touch::script);
        let mut commands = scripts.flat_map(|script| &script.commands);
        let simple = commands.find(|simple| {
            external::publishes(simple) && !exact.iter().any(|rule| rule.allows(simple))
        })?;
        let reason = format!(
            "`{}` changes something that others use; only a person can allow it, or a rule for exactly this command",
            simple.name()
        );
        Some(Decision::new(Verdict::Person, "floor: publishing", reason))
    }

    /// Denies connections that the sandbox's network cannot make. The reason tells the model what the user could grant.
    fn unreachable(&self, proposal: &Proposal<'_>) -> Option<Decision> {
        let local = |host: &str| host == "localhost" || host == "::1" || host.starts_with("127.");
        // On the private loopback nothing listens, unless the same command line or a background job started a server.
        let alone = !proposal.place.has_jobs && proposal.is_one_command();
        let host = proposal.touches.iter().find_map(|touch| match touch {
            Touch::Connect { host } if self.reach == Reach::Nothing || alone || !local(host) => {
                Some(host)
            }
            _ => None,
        })?;
        (proposal.place.sandboxed && self.reach != Reach::Something).then(|| {
            let reason = match (local(host), self.reach) {
                (true, Reach::Loopback) => format!(
                    "nothing listens at `{host}`: commands have a loopback of their own, without the services of this \
                     machine; start the server in the same command or in the background"
                ),
                (true, _) => format!(
                    "commands cannot reach `{host}`; a person can grant it with `--net loopback`"
                ),
                (false, _) => format!(
                    "commands cannot reach `{}`; a person can grant it with `--net allow:{host}`",
                    host_name::in_words(host)
                ),
            };
            Decision::new(Verdict::Deny, "sandbox: network", reason)
        })
    }

    /// The first of the rules that together allow everything a call touches; `None` if they do not cover all of it.
    fn allowing(&self, proposal: &Proposal<'_>) -> Option<Decision> {
        let rules = || {
            self.rules
                .iter()
                .filter(|rule| rule.verdict == Verdict::Allow)
        };
        let decision =
            |rule: &Rule| Decision::new(Verdict::Allow, rule.named(), "allowed by a rule");
        if let Some(rule) =
            rules().find(|rule| rule.pattern.is_none() && glob_match(&rule.tool, proposal.tool))
        {
            return Some(decision(rule));
        }
        let mut first: Option<&Rule> = None;
        for touch in proposal.touches {
            let by_command = proposal.by_command();
            match touch {
                // The floor and the restricting rules judge what a command reads. The sandbox's network limits what it
                // reaches.
                Touch::Read { .. } | Touch::Connect { .. } if by_command => {}
                Touch::Execute { script, .. } => {
                    let script = script.as_deref().filter(|script| script.is_certain())?;
                    for simple in &script.commands {
                        let rule = rules().find(|rule| {
                            glob_match(&rule.tool, proposal.tool) && rule.allows(simple)
                        });
                        match rule {
                            Some(rule) => drop(first.get_or_insert(rule)),
                            None if simple.looks => {}
                            None => return None,
                        }
                    }
                }
                // A rule that allows a command also allows writing the files that its arguments name. A redirection is
                // not an argument.
                Touch::Write {
                    path, inside: true, ..
                } if by_command && proposal.names_target(path) => {}
                touch => {
                    let rule = rules().find(|rule| rule.covers(touch, proposal))?;
                    first.get_or_insert(rule);
                }
            }
        }
        first.map(decision)
    }

    /// Whether a command line only reads, and reads nothing that rules hide.
    fn only_looks(&self, proposal: &Proposal<'_>) -> bool {
        let kept_back = !self.hidden_paths().is_empty();
        // The repository's configuration decides which programs these commands run. Without a sandbox they can do more
        // than read.
        let by_project = |simple: &Simple| matches!(simple.name(), "git" | "cargo" | "rustc");
        let held = |simple: &Simple| proposal.place.sandboxed || !by_project(simple);
        // A command that walks directories may read credentials. Only the sandbox hides those.
        let unseen = kept_back || !proposal.place.sandboxed;
        let free = |simple: &Simple| !(unseen && simple.walks) && held(simple);
        proposal.by_command()
            && proposal.effect <= Effect::Execute
            && proposal.touches.iter().all(|touch| match touch {
                Touch::Execute { script, .. } => script
                    .as_deref()
                    .is_some_and(|script| script.only_looks() && script.commands.iter().all(free)),
                Touch::Read { .. } => true,
                Touch::Write { .. } | Touch::Connect { .. } => false,
            })
    }

    fn by_mode(&self, proposal: &Proposal<'_>) -> Decision {
        let rule = format!("mode {}", self.mode);
        if self.only_looks(proposal) {
            return Decision::new(Verdict::Allow, rule, "the command is read-only");
        }
        let effect = proposal
            .touches
            .iter()
            .map(Touch::effect)
            .fold(proposal.effect, Effect::max);
        let (verdict, reason) = match (self.mode, effect) {
            (_, Effect::Read) => (Verdict::Allow, "reading is allowed"),
            (Mode::Plan, _) => (
                Verdict::Deny,
                "plan mode is read-only; describe the change instead",
            ),
            (Mode::Ask, _) => (
                Verdict::Ask,
                "everything except read-only calls needs approval",
            ),
            (Mode::Edit | Mode::Auto, Effect::Write) => (Verdict::Allow, "this mode allows edits"),
            (Mode::Edit, _) => (Verdict::Ask, "commands need approval in this mode"),
            (Mode::Auto, Effect::Execute) if proposal.place.sandboxed => {
                (Verdict::Allow, "the sandbox contains it")
            }
            (Mode::Auto, _) if proposal.place.sandboxed => (
                Verdict::Ask,
                "the sandbox cannot contain the effects of this call",
            ),
            (Mode::Auto, _) => (
                Verdict::Ask,
                "no kernel sandbox is in force, so commands need approval",
            ),
        };
        Decision::new(verdict, rule, reason)
    }
}

impl Proposal<'_> {
    /// Whether the call runs a command.
    fn by_command(&self) -> bool {
        self.touches
            .iter()
            .any(|touch| matches!(touch, Touch::Execute { .. }))
    }

    /// Whether the call runs a single command, so that no other command of the line could have started a server.
    fn is_one_command(&self) -> bool {
        self.touches.iter().any(|touch| match touch {
            Touch::Execute { script, .. } => script
                .as_deref()
                .is_some_and(|script| script.is_certain() && script.commands.len() == 1),
            _ => false,
        })
    }

    /// Whether every command that writes this path names it among its arguments, rather than in a redirection.
    fn names_target(&self, path: &str) -> bool {
        let commands = || {
            self.touches
                .iter()
                .filter_map(Touch::script)
                .flat_map(|script| &script.commands)
        };
        let mut targets =
            commands().flat_map(|simple| simple.writes.iter().map(move |target| (simple, target)));
        let mut found = false;
        let all = targets.all(|(simple, target)| {
            let same = target.at.as_ref().is_some_and(|at| at.path == path);
            found |= same;
            !same || simple.words.contains(&target.word)
        });
        found && all
    }
}

impl Touch {
    /// The kind of effect that this touch has.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Read { .. } => Effect::Read,
            Self::Write { .. } => Effect::Write,
            Self::Execute { .. } => Effect::Execute,
            Self::Connect { .. } => Effect::Network,
        }
    }

    /// The parsed command line of an execution.
    #[must_use]
    pub fn script(&self) -> Option<&ShellScript> {
        match self {
            Self::Execute { script, .. } => script.as_deref(),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
