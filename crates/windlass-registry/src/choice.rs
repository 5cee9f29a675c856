//! Chooses a runtime for `auto`: the first one in the order that is usable and meets the needs. For each other runtime, the
//! choice records the reason. The decision depends only on the arguments.

use std::fmt;

use windlass_core::runtime::{Capability, Feature, RunMode, Work};
use windlass_host::config::nearest;

use crate::error::RegistryError;
use crate::runtime_status::RuntimeStatus;

/// The value of `--runtime` that requests a choice.
const AUTO: &str = "auto";

/// One requirement on a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeNeed {
    /// All capabilities that a kind of work requires.
    Work(Work),
    Capability(Capability),
    Feature(Feature),
}

impl RuntimeNeed {
    fn all() -> impl Iterator<Item = Self> {
        let works = Work::ALL.into_iter().map(Self::Work);
        works
            .chain(Capability::ALL.into_iter().map(Self::Capability))
            .chain(Feature::ALL.into_iter().map(Self::Feature))
    }

    /// The name of the requirement, as the user types it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Work(work) => work.name(),
            Self::Capability(one) => one.word(),
            Self::Feature(one) => one.word(),
        }
    }

    /// Parses a requirement. `-` and `_` are equivalent.
    pub fn named(word: &str) -> Result<Self, RegistryError> {
        let word = word.trim();
        let same = |known: &str| known.replace('-', "_") == word.replace('-', "_");
        Self::all().find(|need| same(need.word())).ok_or_else(|| {
            let failure = RegistryError::usage(format!("`{word}` is not a capability of runtimes"));
            match nearest(word, Self::all().map(Self::word)) {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None => {
                    let works: Vec<&str> = Work::ALL.iter().map(|work| work.name()).collect();
                    failure.hint(format!(
                        "use a kind of work ({}), a capability such as shell or mcp, or a feature such as resume; \
                         docs/reference.md lists them",
                        works.join(", ")
                    ))
                }
            }
        })
    }

    /// Parses a list of requirements, separated by commas, without duplicates.
    pub fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Vec<Self>, RegistryError> {
        let mut all = Vec::new();
        for word in words
            .into_iter()
            .flat_map(|word| word.split(','))
            .filter(|word| !word.trim().is_empty())
        {
            let need = Self::named(word)?;
            if !all.contains(&need) {
                all.push(need);
            }
        }
        Ok(all)
    }

    /// The names of the capabilities that a runtime lacks for this requirement.
    fn lacks(self, status: &RuntimeStatus) -> Vec<&'static str> {
        match self {
            Self::Work(work) => status.missing(work),
            Self::Capability(one) if !status.capabilities.has(one) => vec![one.word()],
            Self::Feature(one) if !status.features.has(one) => vec![one.word()],
            Self::Capability(_) | Self::Feature(_) => Vec::new(),
        }
    }
}

/// Parses `auto` or `auto:NEED,…`; `None` if the text is the name of a runtime.
pub fn parse_auto(name: &str) -> Option<Result<Vec<RuntimeNeed>, RegistryError>> {
    let rest = name.strip_prefix(AUTO)?;
    match rest.strip_prefix(':') {
        Some(words) => Some(RuntimeNeed::list([words])),
        None => rest.is_empty().then(|| Ok(Vec::new())),
    }
}

/// All requirements of a run: those of its profile and those that the user asked for. Without a kind of work, it is
/// [`Work::FullCoder`].
pub fn needs_of(asked: &[RuntimeNeed], profile: Option<RunMode>) -> Vec<RuntimeNeed> {
    let profile = profile.map(|mode| RuntimeNeed::Work(mode.work()));
    let mut all = Vec::from_iter(profile);
    all.extend(asked.iter().filter(|need| profile != Some(**need)));
    if !all.iter().any(|need| matches!(need, RuntimeNeed::Work(_))) {
        all.insert(0, RuntimeNeed::Work(Work::FullCoder));
    }
    all
}

/// The mode of a run with these requirements: that of the most demanding kind of work.
fn mode_of(needs: &[RuntimeNeed]) -> Option<RunMode> {
    let modes = needs.iter().filter_map(|need| match need {
        RuntimeNeed::Work(work) => Some(work.mode()),
        _ => None,
    });
    modes.min_by_key(|mode| match mode {
        RunMode::Full => 0,
        RunMode::Patch => 1,
        RunMode::Analysis => 2,
    })
}

/// The result of a choice between runtimes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeChoice {
    /// The requirements; never empty.
    pub needs: Vec<RuntimeNeed>,
    /// The chosen runtime; `None` if no runtime is suitable.
    pub chosen: Option<String>,
    /// The other runtimes in their order, with the reasons.
    pub others: Vec<(String, WhyNot)>,
    /// The number of other runtimes that come before the chosen one in the order.
    before: usize,
}

/// The reason why a runtime was not chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyNot {
    /// It lacks these capabilities.
    Lacks(Vec<&'static str>),
    /// It changes files itself, but the run needs a patch.
    ProposesNoPatch,
    /// It cannot be used on this machine: the reason, and advice for the user.
    Unusable(String, Option<String>),
    /// It is suitable, but this runtime comes first in the order.
    After(String),
    /// The setting `runtime_order` does not contain it.
    NotInOrder,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lacks(what) => write!(f, "lacks {}", what.join(", ")),
            Self::ProposesNoPatch => f.write_str("changes files itself and cannot propose a patch"),
            Self::Unusable(why, _) => f.write_str(why),
            Self::After(first) => write!(f, "is suitable, but comes after {first}"),
            Self::NotInOrder => f.write_str("is not in `runtime_order`"),
        }
    }
}

impl WhyNot {
    /// A stable word for programs, and a short description for people.
    fn names(&self) -> (&'static str, &'static str) {
        match self {
            Self::Lacks(_) => ("lacks_capability", "lacks a capability"),
            Self::ProposesNoPatch => ("proposes_no_patch", "cannot propose a patch"),
            Self::Unusable(..) => ("not_usable", "not usable"),
            Self::After(_) => ("comes_later", "suitable"),
            Self::NotInOrder => ("not_in_order", "not in the order"),
        }
    }

    /// The action that would make the runtime usable, if there is one.
    pub fn to_do(&self) -> Option<&str> {
        match self {
            Self::Unusable(_, hint) => hint.as_deref(),
            _ => None,
        }
    }

    /// A stable word for programs, for example `not_usable`.
    pub fn code(&self) -> &'static str {
        self.names().0
    }
}

/// Chooses the first runtime in the order that is usable and meets the needs. `order` is the setting `runtime_order`; the
/// default order is the built-in agent, then the tested ones, then the others.
pub fn choose(
    statuses: &[RuntimeStatus],
    needs: Vec<RuntimeNeed>,
    order: Option<&[String]>,
) -> Result<RuntimeChoice, RegistryError> {
    let mut chosen: Option<String> = None;
    let (mut others, mut before) = (Vec::new(), 0);
    let (candidates, left_out) = ordered(statuses, order)?;
    for status in candidates {
        let why = match (why_not(status, &needs), &chosen) {
            (Some(why), _) => why,
            (None, Some(first)) => WhyNot::After(first.clone()),
            (None, None) => {
                chosen = Some(status.name.clone());
                before = others.len();
                continue;
            }
        };
        others.push((status.name.clone(), why));
    }
    others.extend(
        left_out
            .into_iter()
            .map(|status| (status.name.clone(), WhyNot::NotInOrder)),
    );
    Ok(RuntimeChoice {
        needs,
        chosen,
        others,
        before,
    })
}

fn why_not(status: &RuntimeStatus, needs: &[RuntimeNeed]) -> Option<WhyNot> {
    let mut lacks: Vec<&str> = Vec::new();
    for word in needs.iter().flat_map(|need| need.lacks(status)) {
        if !lacks.contains(&word) {
            lacks.push(word);
        }
    }
    if !lacks.is_empty() {
        return Some(WhyNot::Lacks(lacks));
    }
    let changes_itself =
        !status.known.is_built_in() && status.capabilities.has(Capability::NativeToolLoop);
    if mode_of(needs) == Some(RunMode::Patch) && changes_itself {
        return Some(WhyNot::ProposesNoPatch);
    }
    status
        .usable
        .as_ref()
        .err()
        .map(|why| WhyNot::Unusable(why.what.clone(), why.hint.clone()))
}

/// The candidates in order, and the runtimes that the order does not contain.
fn ordered<'a>(
    statuses: &'a [RuntimeStatus],
    order: Option<&[String]>,
) -> Result<(Vec<&'a RuntimeStatus>, Vec<&'a RuntimeStatus>), RegistryError> {
    let Some(order) = order else {
        let rank = |status: &&RuntimeStatus| match () {
            () if status.name == "native" => 0,
            () if status.tested().is_some() => 1,
            () => 2,
        };
        let mut all: Vec<&RuntimeStatus> = statuses.iter().collect();
        all.sort_by_key(rank);
        return Ok((all, Vec::new()));
    };
    let mut candidates: Vec<&RuntimeStatus> = Vec::new();
    for name in order {
        let Some(status) = statuses.iter().find(|status| status.name == *name) else {
            let what = format!("`runtime_order` contains the unknown runtime `{name}`");
            let known = statuses.iter().map(|status| status.name.as_str());
            let hint = match nearest(name, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`windlass runtimes` lists the runtimes".to_owned(),
            };
            return Err(RegistryError::usage(what).hint(hint));
        };
        if !candidates.iter().any(|known| known.name == status.name) {
            candidates.push(status);
        }
    }
    let left_out = statuses
        .iter()
        .filter(|status| !order.contains(&status.name))
        .collect();
    Ok((candidates, left_out))
}

impl RuntimeChoice {
    /// The mode of a run with these requirements.
    pub fn mode(&self) -> Option<RunMode> {
        mode_of(&self.needs)
    }

    /// The names of the requirements, separated by commas.
    pub fn wanted(&self) -> String {
        self.words(", ")
    }

    fn words(&self, between: &str) -> String {
        let words: Vec<&str> = self.needs.iter().map(|need| need.word()).collect();
        words.join(between)
    }

    /// The choice in one line: the chosen runtime, the requirements, and the unsuitable runtimes before it in the order.
    pub fn summary(&self) -> String {
        let Some(chosen) = &self.chosen else {
            return format!("no runtime is usable for {}", self.wanted());
        };
        let before: Vec<String> = self
            .others
            .iter()
            .take(self.before)
            .map(|(name, why)| format!("{name} ({})", why.names().1))
            .collect();
        match before.is_empty() {
            true => format!(
                "{chosen} was chosen for {}: it is the first in the order",
                self.wanted()
            ),
            false => format!(
                "{chosen} was chosen for {}; earlier in the order: {}",
                self.wanted(),
                before.join(", ")
            ),
        }
    }

    /// One line for each runtime that was not chosen.
    pub fn reasons(&self) -> impl Iterator<Item = String> {
        self.others
            .iter()
            .map(|(name, why)| format!("not {name}: {why}"))
    }

    /// The summary and all reasons, for the log.
    pub fn whole(&self) -> String {
        std::iter::once(self.summary())
            .chain(self.reasons())
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The error that no runtime is suitable, with the reasons and advice for each runtime.
    pub fn failure(&self) -> RegistryError {
        let mut text = self.summary();
        for (name, why) in &self.others {
            text.push_str(&format!("\n{name}: {why}"));
            why.to_do()
                .iter()
                .for_each(|hint| text.push_str(&format!("\n  → {hint}")));
        }
        let words = self.words(" ");
        RegistryError::usage(text).hint(format!(
            "do one of these, or require less; `windlass runtimes --for {words}` shows which runtime would be chosen"
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use windlass_core::runtime::{Capabilities, Features};

    use windlass_runtimes::agents::agent;

    use crate::abilities::abilities;
    use crate::runtime_status::{ProgramLocation, UnusableReason};

    use super::*;

    /// The status of a known runtime; `!` after its name makes it unusable.
    fn status(name: &str) -> RuntimeStatus {
        let (name, usable) = (name.trim_end_matches('!'), !name.ends_with('!'));
        let known = agent(name).unwrap();
        let (capabilities, features) = abilities(known);
        let why = || UnusableReason {
            what: "no key".to_owned(),
            hint: Some("get a key".to_owned()),
        };
        RuntimeStatus {
            name: name.to_owned(),
            about: String::new(),
            known,
            found: ProgramLocation::Missing,
            version: None,
            usable: if usable {
                Ok("has a key".to_owned())
            } else {
                Err(why())
            },
            capabilities,
            features,
        }
    }

    /// `wanted` is the text after `auto:`; `expect` is the chosen runtime, and the others with their reasons.
    #[track_caller]
    fn check(statuses: &str, wanted: &str, order: Option<&str>, expect: (&str, &str)) {
        let statuses: Vec<RuntimeStatus> = statuses.split_whitespace().map(status).collect();
        let order: Option<Vec<String>> =
            order.map(|order| order.split_whitespace().map(str::to_owned).collect());
        let needs = needs_of(&RuntimeNeed::list([wanted]).unwrap(), None);
        let choice = choose(&statuses, needs, order.as_deref()).unwrap();
        let others: Vec<String> = choice
            .others
            .iter()
            .map(|(name, why)| format!("{name} {why}"))
            .collect();
        assert_eq!(
            (
                choice.chosen.as_deref().unwrap_or("none"),
                others.join("; ").as_str()
            ),
            expect
        );
    }

    #[test]
    fn the_first_suitable_runtime_is_chosen_and_the_others_have_reasons() {
        check(
            "native codex",
            "",
            None,
            ("native", "codex is suitable, but comes after native"),
        );
        check("native! codex", "", None, ("codex", "native no key"));
        check(
            "native! codex!",
            "",
            None,
            ("none", "native no key; codex no key"),
        );
        // A missing capability is reported before a missing key.
        check(
            "native codex claude-code!",
            "mcp,subagents",
            None,
            (
                "none",
                "native lacks mcp, subagents; codex lacks subagents; claude-code no key",
            ),
        );
        check(
            "native claude-code",
            "writing_subagent",
            None,
            ("claude-code", "native lacks subagents"),
        );
        check(
            "codex patch",
            "patch-coder",
            None,
            (
                "patch",
                "codex changes files itself and cannot propose a patch",
            ),
        );
        check(
            "completion native!",
            "analysis",
            None,
            ("completion", "native no key"),
        );
        check(
            "completion native!",
            "",
            None,
            (
                "none",
                "native no key; completion lacks native_tool_loop, filesystem_edit, shell",
            ),
        );
    }

    #[test]
    fn the_default_order_is_native_then_the_tested_ones() {
        check(
            "patch completion claude-code codex native",
            "analysis",
            None,
            (
                "native",
                "claude-code is suitable, but comes after native; codex is suitable, but comes after native; \
             patch is suitable, but comes after native; completion is suitable, but comes after native",
            ),
        );
        check(
            "native claude-code codex",
            "",
            Some("codex native"),
            (
                "codex",
                "native is suitable, but comes after codex; claude-code is not in `runtime_order`",
            ),
        );
        check(
            "native codex!",
            "",
            Some("codex codex native"),
            ("native", "codex no key"),
        );
        let statuses = ["native", "codex"].map(status);
        let failure = choose(&statuses, Vec::new(), Some(&["codx".to_owned()]))
            .err()
            .unwrap()
            .text();
        assert!(
            failure.contains("the unknown runtime `codx` | did you mean `codex`?"),
            "{failure}"
        );
    }

    #[test]
    fn needs_are_parsed_and_errors_suggest_a_similar_word() {
        let words =
            |name: &str| parse_auto(name).map(|needs| needs.map_err(|failure| failure.text()));
        assert_eq!(words("native"), None);
        assert_eq!(words("autopilot"), None);
        assert_eq!(words("auto"), Some(Ok(Vec::new())));
        let (shell, resume) = (
            RuntimeNeed::Capability(Capability::Shell),
            RuntimeNeed::Feature(Feature::Resume),
        );
        assert_eq!(
            words("auto:shell, resume,shell"),
            Some(Ok(vec![shell, resume]))
        );
        assert_eq!(
            words("auto:end_to_end"),
            Some(Ok(vec![RuntimeNeed::Work(Work::EndToEnd)]))
        );
        let wrong = words("auto:shel").unwrap().unwrap_err();
        assert!(
            wrong.contains("`shel` is not a capability") && wrong.contains("did you mean `shell`?"),
            "{wrong}"
        );
        assert!(
            words("auto:xyzzy")
                .unwrap()
                .unwrap_err()
                .contains("full-coder")
        );
    }

    #[test]
    fn a_run_has_the_needs_of_its_profile_and_the_most_demanding_mode() {
        let mcp = RuntimeNeed::Capability(Capability::Mcp);
        let check = |asked: &[RuntimeNeed], profile, needs: &[RuntimeNeed], mode| {
            assert_eq!(needs_of(asked, profile), needs);
            assert_eq!(mode_of(needs), Some(mode));
        };
        let (coder, analysis) = (
            RuntimeNeed::Work(Work::FullCoder),
            RuntimeNeed::Work(Work::Analysis),
        );
        check(&[], None, &[coder], RunMode::Full);
        check(&[mcp], None, &[coder, mcp], RunMode::Full);
        check(&[analysis], None, &[analysis], RunMode::Analysis);
        check(
            &[mcp],
            Some(RunMode::Analysis),
            &[analysis, mcp],
            RunMode::Analysis,
        );
        check(
            &[analysis],
            Some(RunMode::Full),
            &[coder, analysis],
            RunMode::Full,
        );
        check(
            &[RuntimeNeed::Work(Work::PatchCoder), analysis],
            None,
            &[RuntimeNeed::Work(Work::PatchCoder), analysis],
            RunMode::Patch,
        );
    }

    #[test]
    fn a_summary_lists_earlier_runtimes_and_a_failure_gives_advice() {
        let statuses = ["native!", "codex", "claude-code!"].map(status);
        let choice = choose(&statuses, needs_of(&[], None), None).unwrap();
        assert_eq!(
            choice.summary(),
            "codex was chosen for full-coder; earlier in the order: native (not usable)"
        );
        assert_eq!(choice.whole().lines().count(), 3);
        let incapable = RuntimeStatus {
            capabilities: Capabilities::NONE,
            features: Features::NONE,
            ..status("native")
        };
        let failure = choose(&[incapable, status("codex!")], needs_of(&[], None), None)
            .unwrap()
            .failure()
            .text();
        for says in [
            "no runtime is usable for full-coder",
            "native: lacks",
            "codex: no key",
            "→ get a key",
        ] {
            assert!(failure.contains(says), "{failure}");
        }
    }
}
