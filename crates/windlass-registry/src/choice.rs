//! Which runtime, where nobody names one: the first in the order that is usable and has what is needed. Every other one
//! gets its reason. Decides by what it is given, and looks at nothing itself.

use std::fmt;

use windlass_core::runtime::{Capability, Feature, RunMode, Work};
use windlass_host::config::nearest;

use crate::error::RegistryError;
use crate::standing::Standing;

/// The word that leaves the choice to us.
const AUTO: &str = "auto";

/// One thing that a runtime has to be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// All capabilities that a kind of work needs.
    Work(Work),
    /// One capability.
    Capability(Capability),
    /// One feature.
    Feature(Feature),
}

impl Need {
    /// All there are.
    fn all() -> impl Iterator<Item = Self> {
        let works = Work::ALL.into_iter().map(Self::Work);
        works
            .chain(Capability::ALL.into_iter().map(Self::Capability))
            .chain(Feature::ALL.into_iter().map(Self::Feature))
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Work(work) => work.name(),
            Self::Capability(one) => one.word(),
            Self::Feature(one) => one.word(),
        }
    }

    /// The need of that word; a kind of work may be written with either line.
    pub fn named(word: &str) -> Result<Self, RegistryError> {
        let word = word.trim();
        let same = |known: &str| known.replace('-', "_") == word.replace('-', "_");
        Self::all().find(|need| same(need.word())).ok_or_else(|| {
            let failure = RegistryError::usage(format!("`{word}` is nothing that a runtime can be chosen by"));
            match nearest(word, Self::all().map(Self::word)) {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None => {
                    let works: Vec<&str> = Work::ALL.iter().map(|work| work.name()).collect();
                    failure.hint(format!(
                        "name a kind of work ({}), a capability such as shell or mcp, or a feature such as resume; \
                         docs/reference.md lists them",
                        works.join(", ")
                    ))
                }
            }
        })
    }

    /// Several, with commas between them or one by one; none twice.
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

    /// What of it a runtime lacks, in words.
    fn lacks(self, standing: &Standing) -> Vec<&'static str> {
        match self {
            Self::Work(work) => standing.missing(work),
            Self::Capability(one) if !standing.can.has(one) => vec![one.word()],
            Self::Feature(one) if !standing.held.has(one) => vec![one.word()],
            Self::Capability(_) | Self::Feature(_) => Vec::new(),
        }
    }
}

/// What `auto` or `auto:NEED,…` asks for; none where a runtime is named.
pub fn asked_by(name: &str) -> Option<Result<Vec<Need>, RegistryError>> {
    let rest = name.strip_prefix(AUTO)?;
    match rest.strip_prefix(':') {
        Some(words) => Some(Need::list([words])),
        None => rest.is_empty().then(|| Ok(Vec::new())),
    }
}

/// All that a run needs: what its profile is for and what was asked; the work of a coder where neither says.
pub fn needs_of(asked: &[Need], profile: Option<RunMode>) -> Vec<Need> {
    let profile = profile.map(|mode| Need::Work(mode.work()));
    let mut all = Vec::from_iter(profile);
    all.extend(asked.iter().filter(|need| profile != Some(**need)));
    if !all.iter().any(|need| matches!(need, Need::Work(_))) {
        all.insert(0, Need::Work(Work::FullCoder));
    }
    all
}

/// How a run works that was asked for by what it needs: by the most demanding kind of work among it.
fn mode_of(needs: &[Need]) -> Option<RunMode> {
    let modes = needs.iter().filter_map(|need| match need {
        Need::Work(work) => Some(work.mode()),
        _ => None,
    });
    modes.min_by_key(|mode| match mode {
        RunMode::Full => 0,
        RunMode::Patch => 1,
        RunMode::Analysis => 2,
    })
}

/// What came of choosing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What was asked for; never empty.
    pub needs: Vec<Need>,
    /// Who works.
    pub chosen: Option<String>,
    /// Every other one, in the order, with why not.
    pub others: Vec<(String, WhyNot)>,
    /// How many of them come before it.
    before: usize,
}

/// Why a runtime was not chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyNot {
    /// It cannot do that.
    Lacks(Vec<&'static str>),
    /// It changes files itself, and a patch is wanted.
    ProposesNoPatch,
    /// It cannot work here, and what to do about it.
    Unusable(String, Option<String>),
    /// It would do; this one comes first.
    After(String),
    /// It is left out of the order.
    NotInOrder,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lacks(what) => write!(f, "lacks {}", what.join(", ")),
            Self::ProposesNoPatch => f.write_str("changes files itself, and proposes no patch"),
            Self::Unusable(why, _) => f.write_str(why),
            Self::After(first) => write!(f, "would do, and comes after {first}"),
            Self::NotInOrder => f.write_str("is not in `runtime_order`"),
        }
    }
}

impl WhyNot {
    /// A stable word for programs, and two or three words for a person.
    fn names(&self) -> (&'static str, &'static str) {
        match self {
            Self::Lacks(_) => ("lacks_capability", "cannot do it"),
            Self::ProposesNoPatch => ("proposes_no_patch", "proposes no patch"),
            Self::Unusable(..) => ("not_usable", "not usable"),
            Self::After(_) => ("comes_later", "would do"),
            Self::NotInOrder => ("not_in_order", "left out"),
        }
    }

    /// What to do about it.
    pub fn to_do(&self) -> Option<&str> {
        match self {
            Self::Unusable(_, hint) => hint.as_deref(),
            _ => None,
        }
    }

    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        self.names().0
    }
}

/// The first in the order that is usable and has what is needed. `order` is what the settings say; without it the
/// built-in agent is first, then the tested ones, then the rest.
pub fn choose(
    standings: &[Standing],
    needs: Vec<Need>,
    order: Option<&[String]>,
) -> Result<Choice, RegistryError> {
    let mut chosen: Option<String> = None;
    let (mut others, mut before) = (Vec::new(), 0);
    let (candidates, left_out) = ordered(standings, order)?;
    for standing in candidates {
        let why = match (why_not(standing, &needs), &chosen) {
            (Some(why), _) => why,
            (None, Some(first)) => WhyNot::After(first.clone()),
            (None, None) => {
                chosen = Some(standing.name.clone());
                before = others.len();
                continue;
            }
        };
        others.push((standing.name.clone(), why));
    }
    others.extend(
        left_out
            .into_iter()
            .map(|standing| (standing.name.clone(), WhyNot::NotInOrder)),
    );
    Ok(Choice {
        needs,
        chosen,
        others,
        before,
    })
}

fn why_not(standing: &Standing, needs: &[Need]) -> Option<WhyNot> {
    let mut lacks: Vec<&str> = Vec::new();
    for word in needs.iter().flat_map(|need| need.lacks(standing)) {
        if !lacks.contains(&word) {
            lacks.push(word);
        }
    }
    if !lacks.is_empty() {
        return Some(WhyNot::Lacks(lacks));
    }
    let changes_itself =
        !standing.known.is_built_in() && standing.can.has(Capability::NativeToolLoop);
    if mode_of(needs) == Some(RunMode::Patch) && changes_itself {
        return Some(WhyNot::ProposesNoPatch);
    }
    standing
        .usable
        .as_ref()
        .err()
        .map(|why| WhyNot::Unusable(why.what.clone(), why.hint.clone()))
}

/// The candidates in their order, and those that are left out of it.
fn ordered<'a>(
    standings: &'a [Standing],
    order: Option<&[String]>,
) -> Result<(Vec<&'a Standing>, Vec<&'a Standing>), RegistryError> {
    let Some(order) = order else {
        let rank = |standing: &&Standing| match () {
            () if standing.name == "native" => 0,
            () if standing.tested().is_some() => 1,
            () => 2,
        };
        let mut all: Vec<&Standing> = standings.iter().collect();
        all.sort_by_key(rank);
        return Ok((all, Vec::new()));
    };
    let mut candidates: Vec<&Standing> = Vec::new();
    for name in order {
        let Some(standing) = standings.iter().find(|standing| standing.name == *name) else {
            let what = format!("`runtime_order` names `{name}`, which is no runtime");
            let known = standings.iter().map(|standing| standing.name.as_str());
            let hint = match nearest(name, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`windlass runtimes` lists them".to_owned(),
            };
            return Err(RegistryError::usage(what).hint(hint));
        };
        if !candidates.iter().any(|known| known.name == standing.name) {
            candidates.push(standing);
        }
    }
    let left_out = standings
        .iter()
        .filter(|standing| !order.contains(&standing.name))
        .collect();
    Ok((candidates, left_out))
}

impl Choice {
    /// How a run of it works.
    pub fn mode(&self) -> Option<RunMode> {
        mode_of(&self.needs)
    }

    /// What was needed, in words.
    pub fn wanted(&self) -> String {
        self.words(", ")
    }

    fn words(&self, between: &str) -> String {
        let words: Vec<&str> = self.needs.iter().map(|need| need.word()).collect();
        words.join(between)
    }

    /// In one line: who, what for, and who came before but was not fit.
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
                "{chosen} was chosen for {}; before it: {}",
                self.wanted(),
                before.join(", ")
            ),
        }
    }

    /// One line for each of the others.
    pub fn reasons(&self) -> impl Iterator<Item = String> {
        self.others
            .iter()
            .map(|(name, why)| format!("not {name}: {why}"))
    }

    /// For the log: who, and why each of the others was not.
    pub fn whole(&self) -> String {
        std::iter::once(self.summary())
            .chain(self.reasons())
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// That nobody can do it, with everything a person needs to change that.
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
            "do one of these, or need less; `windlass runtimes --for {words}` says who would be chosen then"
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use windlass_core::runtime::{Capabilities, Features};

    use windlass_runtimes::agents::agent;

    use crate::abilities::abilities;
    use crate::standing::{Found, Why};

    use super::*;

    /// A runtime of the table as it would stand; `!` behind its name: it is not usable.
    fn standing(name: &str) -> Standing {
        let (name, usable) = (name.trim_end_matches('!'), !name.ends_with('!'));
        let known = agent(name).unwrap();
        let (can, held) = abilities(known);
        let why = || Why {
            what: "no key".to_owned(),
            hint: Some("get a key".to_owned()),
        };
        Standing {
            name: name.to_owned(),
            about: String::new(),
            known,
            found: Found::Nowhere,
            version: None,
            usable: if usable {
                Ok("has a key".to_owned())
            } else {
                Err(why())
            },
            can,
            held,
        }
    }

    /// `wanted` is what people type behind `auto:`; `expect` is who is chosen, and the others with why not.
    #[track_caller]
    fn check(standings: &str, wanted: &str, order: Option<&str>, expect: (&str, &str)) {
        let standings: Vec<Standing> = standings.split_whitespace().map(standing).collect();
        let order: Option<Vec<String>> =
            order.map(|order| order.split_whitespace().map(str::to_owned).collect());
        let needs = needs_of(&Need::list([wanted]).unwrap(), None);
        let choice = choose(&standings, needs, order.as_deref()).unwrap();
        let others: Vec<String> = choice
            .others
            .iter()
            .map(|(name, why)| format!("{name} {why}"))
            .collect();
        assert_eq!(
            (
                choice.chosen.as_deref().unwrap_or("nobody"),
                others.join("; ").as_str()
            ),
            expect
        );
    }

    #[test]
    fn the_first_usable_one_that_can_is_chosen_and_the_others_have_their_reasons() {
        check(
            "native codex",
            "",
            None,
            ("native", "codex would do, and comes after native"),
        );
        check("native! codex", "", None, ("codex", "native no key"));
        check(
            "native! codex!",
            "",
            None,
            ("nobody", "native no key; codex no key"),
        );
        // What it cannot do counts before what could be set up.
        check(
            "native codex claude-code!",
            "mcp,subagents",
            None,
            (
                "nobody",
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
            ("patch", "codex changes files itself, and proposes no patch"),
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
                "nobody",
                "native no key; completion lacks native_tool_loop, filesystem_edit, shell",
            ),
        );
    }

    #[test]
    fn the_order_is_native_then_the_tested_ones_or_what_is_set() {
        check(
            "patch completion claude-code codex native",
            "analysis",
            None,
            (
                "native",
                "claude-code would do, and comes after native; codex would do, and comes after native; \
             patch would do, and comes after native; completion would do, and comes after native",
            ),
        );
        check(
            "native claude-code codex",
            "",
            Some("codex native"),
            (
                "codex",
                "native would do, and comes after codex; claude-code is not in `runtime_order`",
            ),
        );
        check(
            "native codex!",
            "",
            Some("codex codex native"),
            ("native", "codex no key"),
        );
        let standings = ["native", "codex"].map(standing);
        let failure = choose(&standings, Vec::new(), Some(&["codx".to_owned()]))
            .err()
            .unwrap()
            .text();
        assert!(
            failure.contains("`codx`, which is no runtime | did you mean `codex`?"),
            "{failure}"
        );
    }

    #[test]
    fn what_is_asked_for_is_read_with_the_nearest_word_for_a_wrong_one() {
        let words =
            |name: &str| asked_by(name).map(|needs| needs.map_err(|failure| failure.text()));
        assert_eq!(words("native"), None);
        assert_eq!(words("autopilot"), None);
        assert_eq!(words("auto"), Some(Ok(Vec::new())));
        let (shell, resume) = (
            Need::Capability(Capability::Shell),
            Need::Feature(Feature::Resume),
        );
        assert_eq!(
            words("auto:shell, resume,shell"),
            Some(Ok(vec![shell, resume]))
        );
        assert_eq!(
            words("auto:end_to_end"),
            Some(Ok(vec![Need::Work(Work::EndToEnd)]))
        );
        let wrong = words("auto:shel").unwrap().unwrap_err();
        assert!(
            wrong.contains("`shel` is nothing") && wrong.contains("did you mean `shell`?"),
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
    fn a_run_needs_what_its_profile_is_for_and_works_as_hard_as_the_hardest_of_it() {
        let mcp = Need::Capability(Capability::Mcp);
        let check = |asked: &[Need], profile, needs: &[Need], mode| {
            assert_eq!(needs_of(asked, profile), needs);
            assert_eq!(mode_of(needs), Some(mode));
        };
        let (coder, analysis) = (Need::Work(Work::FullCoder), Need::Work(Work::Analysis));
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
            &[Need::Work(Work::PatchCoder), analysis],
            None,
            &[Need::Work(Work::PatchCoder), analysis],
            RunMode::Patch,
        );
    }

    #[test]
    fn the_line_of_a_choice_names_those_before_it_and_its_failure_says_what_to_do() {
        let standings = ["native!", "codex", "claude-code!"].map(standing);
        let choice = choose(&standings, needs_of(&[], None), None).unwrap();
        assert_eq!(
            choice.summary(),
            "codex was chosen for full-coder; before it: native (not usable)"
        );
        assert_eq!(choice.whole().lines().count(), 3);
        let nobody = Standing {
            can: Capabilities::NONE,
            held: Features::NONE,
            ..standing("native")
        };
        let failure = choose(&[nobody, standing("codex!")], needs_of(&[], None), None)
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
