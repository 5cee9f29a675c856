//! Profiles: presets of tools, approval mode, isolation and instructions. Four are built in; the settings can change them
//! and add others. The gate enforces the restrictions of a profile, so they do not depend on the model's cooperation.
//!
//! ```
//! use windlass::Windlass;
//! use windlass::profile::Profile;
//!
//! let dir = tempfile::tempdir()?;
//! let windlass = Windlass::without_settings(dir.path(), dir.path().join(".data"))?.profile("plan");
//! let chosen: Option<&Profile> = windlass.settings().profile.as_ref();
//! // Flags are applied to the settings when a session is opened.
//! assert!(chosen.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use windlass_core::gate::glob_match;
use windlass_core::runtime::RunMode;
use windlass_host::config::{Layers, nearest};

use crate::error::Error;
use crate::settings::Settings;

/// Tools that change no files by themselves. The sandbox contains the commands of `bash`.
const READ_ONLY_TOOLS: &[&str] = &[
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

/// A preset for runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub name: String,
    pub mode: RunMode,
    /// Globs of the only tools of a run; `None` for all tools.
    pub tools: Option<Vec<String>>,
    /// Instructions for the model.
    pub prompt: String,
    /// Runs may work in place, because they cannot change files.
    pub in_place: bool,
    /// Changes to files never land.
    pub lands_nothing: bool,
    /// The final answer of a run is saved as a plan.
    pub plans: bool,
    /// Settings that the profile fixes, with their values. A flag with another value is an error.
    pub ceilings: Vec<(&'static str, &'static str)>,
}

/// A built-in profile, as a constant.
struct BuiltinProfile {
    name: &'static str,
    mode: RunMode,
    tools: Option<&'static [&'static str]>,
    prompt: &'static str,
    in_place: bool,
    lands_nothing: bool,
    plans: bool,
    ceilings: &'static [(&'static str, &'static str)],
}

const READ_ONLY_CEILINGS: &[(&str, &str)] = &[("approval", "plan"), ("sandbox.level", "read-only")];

const BUILTIN: &[BuiltinProfile] = &[
    BuiltinProfile {
        name: "plan",
        mode: RunMode::Analysis,
        tools: Some(READ_ONLY_TOOLS),
        prompt: include_str!("profiles/plan.md"),
        in_place: true,
        lands_nothing: true,
        plans: true,
        ceilings: READ_ONLY_CEILINGS,
    },
    BuiltinProfile {
        name: "review",
        mode: RunMode::Analysis,
        tools: Some(READ_ONLY_TOOLS),
        prompt: include_str!("profiles/review.md"),
        in_place: true,
        lands_nothing: true,
        plans: false,
        ceilings: READ_ONLY_CEILINGS,
    },
    BuiltinProfile {
        name: "implement",
        mode: RunMode::Full,
        tools: None,
        prompt: include_str!("profiles/implement.md"),
        in_place: false,
        lands_nothing: false,
        plans: false,
        ceilings: &[],
    },
    BuiltinProfile {
        name: "verify",
        mode: RunMode::Full,
        tools: Some(READ_ONLY_TOOLS),
        prompt: include_str!("profiles/verify.md"),
        in_place: false,
        lands_nothing: true,
        plans: false,
        ceilings: &[],
    },
];

impl Profile {
    /// The profile with this name: a built-in one with the changes of the settings, or one that the settings define.
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
            // An analysis is read-only, enforced by the gate and the sandbox.
            Some("analysis") => {
                profile.mode = RunMode::Analysis;
                profile.lands_nothing = true;
                profile.in_place = true;
                profile.ceilings = READ_ONLY_CEILINGS.to_vec();
                profile.tools.get_or_insert_with(|| {
                    READ_ONLY_TOOLS
                        .iter()
                        .map(|tool| (*tool).to_owned())
                        .collect()
                });
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

    /// Whether runs must be isolated, because that is the only protection of the user's tree.
    pub(crate) fn needs_copy(&self) -> bool {
        self.lands_nothing && !self.in_place
    }

    /// Whether the profile excludes a tool.
    pub(crate) fn lacks(&self, tool: &str) -> bool {
        self.tools
            .as_ref()
            .is_some_and(|tools| !tools.iter().any(|known| glob_match(known, tool)))
    }
}

fn unknown(name: &str, layers: &Layers<'_>) -> Error {
    let named = layers.iter().filter_map(|(key, _)| {
        let (name, _) = key.strip_prefix("profiles.")?.rsplit_once('.')?;
        Some(name.trim_matches('"'))
    });
    let mut known: Vec<&str> = BUILTIN.iter().map(|one| one.name).collect();
    for name in named {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    let failure = Error::usage(format!("there is no profile `{name}`"));
    match nearest(name, known.iter().copied()) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint(format!(
            "the profiles are {}; `windlass config set profiles.{name}.model VENDOR/MODEL` makes another",
            known.join(", ")
        )),
    }
}
