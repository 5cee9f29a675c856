//! Profiles: presets of how freely a run works, with which tools, where, and what it is told. Four are built in; the
//! settings may add others and change these. What a profile takes away is taken away by the gate, not by asking nicely.
//!
//! ```
//! use windlass::Windlass;
//! use windlass::profile::Profile;
//!
//! let dir = tempfile::tempdir()?;
//! let windlass = Windlass::without_settings(dir.path(), dir.path().join(".data"))?.profile("plan");
//! let chosen: Option<&Profile> = windlass.settings().profile.as_ref();
//! // Flags are given their meaning when a session is opened.
//! assert!(chosen.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use windlass_core::gate::glob_match;
use windlass_core::runtime::RunMode;
use windlass_host::config::{Layers, nearest};

use crate::error::Error;
use crate::settings::Settings;

/// Tools that change nothing by themselves. Commands are held by the sandbox.
const LOOKING: &[&str] = &[
    "read_file",
    "list_directory",
    "find_files",
    "grep",
    "git_status",
    "git_diff",
    "bash",
    "notes",
    "ask_user",
    "calculator",
    "refuse",
    "web_fetch",
    "web_search",
];

/// What a run of a profile is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What kind of work it is.
    pub mode: RunMode,
    /// The only tools there are; all of them when absent.
    pub tools: Option<Vec<String>>,
    /// What the model is told.
    pub prompt: String,
    /// It works on the tree itself, because it cannot change it.
    pub in_place: bool,
    /// Nothing it does to files may land.
    pub lands_nothing: bool,
    /// Its last words are kept as a plan.
    pub plans: bool,
    /// Settings it fixes: a flag may be stricter, not looser.
    pub ceilings: Vec<(&'static str, &'static str)>,
}

/// A profile that is built in.
struct Builtin {
    name: &'static str,
    mode: RunMode,
    tools: Option<&'static [&'static str]>,
    prompt: &'static str,
    in_place: bool,
    lands_nothing: bool,
    plans: bool,
    ceilings: &'static [(&'static str, &'static str)],
}

const ONLY_LOOKS: &[(&str, &str)] = &[("approval", "plan"), ("sandbox.level", "read-only")];

const BUILTIN: &[Builtin] = &[
    Builtin {
        name: "plan",
        mode: RunMode::Analysis,
        tools: Some(LOOKING),
        prompt: include_str!("profiles/plan.md"),
        in_place: true,
        lands_nothing: true,
        plans: true,
        ceilings: ONLY_LOOKS,
    },
    Builtin {
        name: "review",
        mode: RunMode::Analysis,
        tools: Some(LOOKING),
        prompt: include_str!("profiles/review.md"),
        in_place: true,
        lands_nothing: true,
        plans: false,
        ceilings: ONLY_LOOKS,
    },
    Builtin {
        name: "implement",
        mode: RunMode::Full,
        tools: None,
        prompt: include_str!("profiles/implement.md"),
        in_place: false,
        lands_nothing: false,
        plans: false,
        ceilings: &[],
    },
    Builtin {
        name: "verify",
        mode: RunMode::Full,
        tools: Some(LOOKING),
        prompt: include_str!("profiles/verify.md"),
        in_place: false,
        lands_nothing: true,
        plans: false,
        ceilings: &[],
    },
];

impl Profile {
    /// The profile of that name: what is built in, and what the settings say of it.
    pub(crate) fn named(name: &str, layers: &Layers<'_>) -> Result<Self, Error> {
        let key = |what: &str| Settings::named("profiles", name, what);
        let described = layers.iter().any(|(known, _)| {
            known
                .strip_prefix("profiles.")
                .and_then(|rest| rest.rsplit_once('.'))
                .is_some_and(|(one, _)| one.trim_matches('"') == name)
        });
        let mut profile = match BUILTIN.iter().find(|one| one.name == name) {
            Some(one) => Self {
                name: name.to_owned(),
                mode: one.mode,
                tools: one
                    .tools
                    .map(|tools| tools.iter().map(|tool| (*tool).to_owned()).collect()),
                prompt: one.prompt.trim().to_owned(),
                in_place: one.in_place,
                lands_nothing: one.lands_nothing,
                plans: one.plans,
                ceilings: one.ceilings.to_vec(),
            },
            None if described => Self {
                name: name.to_owned(),
                mode: RunMode::Full,
                tools: None,
                prompt: String::new(),
                in_place: false,
                lands_nothing: false,
                plans: false,
                ceilings: Vec::new(),
            },
            None => return Err(unknown(name, layers)),
        };
        match layers.text(&key("mode")) {
            // What only looks is held to it, not asked nicely.
            Some("analysis") => {
                profile.mode = RunMode::Analysis;
                profile.lands_nothing = true;
                profile.in_place = true;
                profile.ceilings = ONLY_LOOKS.to_vec();
                profile
                    .tools
                    .get_or_insert_with(|| LOOKING.iter().map(|tool| (*tool).to_owned()).collect());
            }
            Some("patch") => profile.mode = RunMode::Patch,
            Some(_) => profile.mode = RunMode::Full,
            None => {}
        }
        if let Some(tools) = layers.texts(&key("tools")) {
            profile.tools = Some(tools.to_vec());
        }
        if let Some(prompt) = layers.text(&key("instructions")) {
            profile.prompt = prompt.trim().to_owned();
        }
        Ok(profile)
    }

    /// Whether it changes nothing of the tree only because it works on a copy.
    pub(crate) fn needs_copy(&self) -> bool {
        self.lands_nothing && !self.in_place
    }

    /// Whether it takes a tool away.
    pub(crate) fn lacks(&self, tool: &str) -> bool {
        self.tools
            .as_ref()
            .is_some_and(|tools| !tools.iter().any(|known| glob_match(known, tool)))
    }
}

fn unknown(name: &str, layers: &Layers<'_>) -> Error {
    let named = layers
        .iter()
        .filter_map(|(key, _)| key.strip_prefix("profiles.")?.split('.').next());
    let mut known: Vec<&str> = BUILTIN.iter().map(|one| one.name).chain(named).collect();
    known.dedup();
    let failure = Error::usage(format!("there is no profile `{name}`"));
    match nearest(name, known.iter().copied()) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint(format!(
            "the profiles are {}; `windlass config set profiles.{name}.model VENDOR/MODEL` makes another",
            known.join(", ")
        )),
    }
}
