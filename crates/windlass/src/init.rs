//! `windlass init`: writes an instruction file and a settings file for a project, with contents that are detected in it.
//! It overwrites nothing, except the settings file if the caller asks for it.
//!
//! ```
//! use windlass::init::{InitFile, InitFileState, InitReport, plan_init, trust_init, write_init};
//! use windlass::machine::Root;
//! use windlass::settings::Settings;
//!
//! let (home, project) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! std::fs::write(project.path().join("go.mod"), "module example.com/parser\n")?;
//! let (root, settings) = (Root::open(project.path())?, Settings::none(home.path()));
//! let plan: InitReport = plan_init(&root, false)?;
//! let agents: &InitFile = &plan.files[0];
//! assert_eq!((agents.path.as_str(), agents.state), ("AGENTS.md", InitFileState::New));
//! assert!(agents.text.as_ref().is_some_and(|text| text.contains("go test ./...")));
//! write_init(&root, &plan)?;
//! assert!(trust_init(&root, &plan, &settings)?);
//!
//! let again = plan_init(&root, false)?;
//! assert!(again.files.iter().all(|file| file.state == InitFileState::Kept));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agents_file;

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::workspace::{FileKind, Files};
use windlass_host::instructions::NAMES;
use windlass_host::trust::{PROJECT_FILES, TrustDecision, TrustStore, project_files};
use windlass_host::workspace::Root;

use self::agents_file::ProjectFacts;
use crate::error::Error;
use crate::settings::{KEYS, Settings};
use crate::setup::{DetectedCheck, detected_checks};

/// The instruction file that is written.
const AGENTS_FILE: &str = "AGENTS.md";
/// The directory of the settings of a project.
const CONFIG_DIR: &str = ".windlass";
/// The maximum number of names in a directory.
const MAX_NAMES: usize = 10_000;

/// The checks of the settings file. `bandit` is not among them, because it must be installed if a chain names it.
const CHAIN: &str = r#"validate.chain = ["syntax", "detected", "secrets"]"#;

/// The commented-out examples of the settings file: a key of [`KEYS`], whose description is written above it, and the
/// example, whose parts for `*` are names of the user's choice.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "validators.*.command",
        r#"validators.smoke.command = "make smoke""#,
    ),
    ("validate.protect", r#"validate.protect = ["tests/**"]"#),
    ("validate.setup", r#"validate.setup = ["npm ci"]"#),
    (
        "validate.write_paths",
        r#"validate.write_paths = ["src/**"]"#,
    ),
    ("max_budget_usd", "max_budget_usd = 2.0"),
    ("max_steps", "max_steps = 30"),
    ("approval", r#"approval = "ask""#),
    ("rules.deny", r#"rules.deny = ["bash(git push *)"]"#),
    ("rules.allow", r#"rules.allow = ["bash(make *)"]"#),
    ("sandbox.net", r#"sandbox.net = "registries""#),
    (
        "instructions",
        r#"instructions = "Answer in one paragraph.""#,
    ),
];

/// The files of `init`, before or after they are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InitReport {
    /// The root of the project.
    pub root: String,
    pub files: Vec<InitFile>,
    /// The names of the programming languages, the most frequent first.
    pub languages: Vec<&'static str>,
    pub checks: Vec<DetectedCheck>,
}

/// A file of `init`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InitFile {
    /// The path relative to the root.
    pub path: String,
    pub state: InitFileState,
    /// The content to write; `None` if the file is kept.
    pub text: Option<String>,
    /// The reason why nothing is written.
    pub why: Option<String>,
}

/// The effect of `init` on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InitFileState {
    /// The file does not exist before.
    New,
    /// The caller asked to replace the file.
    Replaced,
    /// The file, or another one of the same purpose, exists and stays the same.
    Kept,
}

/// Decides which files are written, and their contents. Writes nothing.
pub fn plan_init(root: &Root, replace_config: bool) -> Result<InitReport, Error> {
    let checks = detected_checks(root);
    let facts = ProjectFacts::gather(root)?;
    let files = vec![
        instruction_file(root, &facts, &checks)?,
        config_file(root, &checks, replace_config)?,
    ];
    Ok(InitReport {
        root: root.root().display().to_string(),
        files,
        languages: facts.languages,
        checks,
    })
}

/// Writes the planned files. A file that appeared meanwhile is not overwritten.
pub fn write_init(root: &Root, plan: &InitReport) -> Result<(), Error> {
    for file in &plan.files {
        let Some(text) = &file.text else { continue };
        let written = match file.state {
            InitFileState::New => root.replace(&file.path, None, text.as_bytes()),
            InitFileState::Replaced => root.write(&file.path, text.as_bytes()),
            InitFileState::Kept => continue,
        };
        written.map_err(|err| {
            Error::usage(format!("{} was not written: {}", file.path, err.message))
                .hint("`windlass init --dry-run` prints the contents")
        })?;
    }
    Ok(())
}

/// Trusts the settings file for the user, if it has exactly the content that was written. Returns whether it is trusted
/// now. Only a person may decide this, so the caller must know that one started the command.
pub fn trust_init(root: &Root, plan: &InitReport, settings: &Settings) -> Result<bool, Error> {
    let store = TrustStore::new(settings.places.trust_dir());
    let path = PROJECT_FILES[0];
    let planned = plan.files.iter().find(|file| file.path == path);
    let Some(text) = planned.and_then(|file| file.text.as_ref()) else {
        return Ok(false);
    };
    if store.lies_in(root.root()) {
        return Ok(false);
    }
    let (files, _) = project_files(root.root())?;
    let written = files.iter().find(|file| file.name == path);
    match written.filter(|file| file.bytes == text.as_bytes()) {
        Some(file) => {
            store.keep(root.root(), file, TrustDecision::Trusted)?;
            Ok(true)
        }
        None => Ok(false),
    }
}

fn instruction_file(
    root: &Root,
    facts: &ProjectFacts,
    checks: &[DetectedCheck],
) -> Result<InitFile, Error> {
    let top = entries(root, "")?;
    let exists = |name: &&&str| match name.contains('/') {
        true => root.stat(name).is_ok(),
        false => top.iter().any(|(known, _)| known == **name),
    };
    Ok(match NAMES.iter().find(exists) {
        Some(name) => InitFile {
            path: AGENTS_FILE.to_owned(),
            state: InitFileState::Kept,
            text: None,
            why: Some(format!("{name} exists")),
        },
        None => InitFile {
            path: AGENTS_FILE.to_owned(),
            state: InitFileState::New,
            text: Some(facts.instructions(checks)),
            why: None,
        },
    })
}

fn config_file(root: &Root, checks: &[DetectedCheck], replace: bool) -> Result<InitFile, Error> {
    let path = PROJECT_FILES[0].to_owned();
    let link = |what: &str| {
        Error::usage(format!("{what} is a symlink, so nothing is written there"))
            .hint("replace it by a directory or a file of the project")
    };
    let dir = entries(root, "")?
        .into_iter()
        .find(|(name, _)| name == CONFIG_DIR);
    let existing = match dir {
        Some((_, FileKind::Link)) => return Err(link(CONFIG_DIR)),
        Some((_, FileKind::Directory)) => entries(root, CONFIG_DIR)?
            .into_iter()
            .find(|(name, _)| path.ends_with(&format!("/{name}"))),
        Some(_) => {
            return Err(Error::usage(format!("{CONFIG_DIR} is not a directory"))
                .hint("move it away, then run `windlass init` again"));
        }
        None => None,
    };
    let text = Some(config_text(checks));
    Ok(match existing {
        None => InitFile {
            path,
            state: InitFileState::New,
            text,
            why: None,
        },
        Some((_, FileKind::Link)) if replace => return Err(link(&path)),
        Some(_) if replace => InitFile {
            path,
            state: InitFileState::Replaced,
            text,
            why: None,
        },
        Some(_) => InitFile {
            path,
            state: InitFileState::Kept,
            text: None,
            why: Some("it exists; `--force` replaces it".to_owned()),
        },
    })
}

/// The names in a directory of the project, with their kinds.
fn entries(root: &Root, dir: &str) -> Result<Vec<(String, FileKind)>, Error> {
    let listed = root.list(dir, MAX_NAMES)?.entries.into_iter();
    Ok(listed.map(|(name, kind, _)| (name, kind)).collect())
}

/// The settings file. Keys are written with dots, so that an example is valid wherever its comment sign is removed.
fn config_text(checks: &[DetectedCheck]) -> String {
    let doc = |key: &str| {
        let known = KEYS.iter().find(|known| known.name == key);
        known.map_or("", |known| known.doc)
    };
    let mut text = String::from(
        "# Settings of Windlass for this project; `windlass config keys` lists all settings.\n\
         # Other people decide whether these apply to them: `windlass trust show`, `windlass trust add`.\n\n",
    );
    text.push_str(&format!("# {}\n", doc("validate.chain")));
    match checks {
        [] => text.push_str("# No command was detected in this project.\n"),
        checks => {
            text.push_str("# Detected when this file was written:\n");
            for check in checks {
                let command = check.command.replace(['\n', '\r'], " ");
                text.push_str(&format!("#   {}: {command}\n", check.name));
            }
        }
    }
    text.push_str(CHAIN);
    text.push_str("\n\n# Examples: remove the first character of a line to use it.\n");
    for (key, example) in EXAMPLES {
        text.push_str(&format!("\n# {}\n#{example}\n", doc(key)));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]

    use std::path::Path;

    use windlass_host::config::{Layers, SettingsLayer, known};

    use super::*;

    #[test]
    fn the_settings_file_and_each_example_are_valid() {
        let read = |text: &str| {
            let mut layers = Layers::new(KEYS);
            layers
                .add_text(SettingsLayer::Project, Path::new("config.toml"), text)
                .unwrap();
            layers.iter().count()
        };
        let text = config_text(&[]);
        assert_eq!(read(&text), 1);
        for (key, example) in EXAMPLES {
            assert!(KEYS.iter().any(|known| known.name == *key), "{key}");
            let name = example.split(" = ").next().unwrap();
            assert_eq!(known(KEYS, name).unwrap().name, *key);
            assert!(text.contains(&format!("#{example}\n")), "{key}");
        }
        let used = text
            .replace("\n#valid", "\nvalid")
            .replace("\n#max_", "\nmax_");
        assert!(read(&used) >= 5);
    }

    #[test]
    fn a_symlink_is_never_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join(".windlass")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let error = plan_init(&root, true).unwrap_err();
        assert!(error.text().contains("is a symlink"), "{}", error.text());
        std::fs::remove_file(dir.path().join(".windlass")).unwrap();
        // A dangling link counts as an instruction file of the user.
        std::os::unix::fs::symlink("gone.md", dir.path().join("AGENTS.md")).unwrap();
        let plan = plan_init(&root, false).unwrap();
        assert_eq!(plan.files[0].state, InitFileState::Kept);
        write_init(&root, &plan).unwrap();
        assert!(!dir.path().join("gone.md").exists());
    }

    #[test]
    fn a_file_that_appeared_meanwhile_is_kept_and_not_trusted() {
        let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = Root::open(dir.path()).unwrap();
        let plan = plan_init(&root, false).unwrap();
        std::fs::create_dir(dir.path().join(".windlass")).unwrap();
        let config = dir.path().join(".windlass/config.toml");
        std::fs::write(&config, "approval = \"auto\"\n").unwrap();
        assert!(write_init(&root, &plan).is_err());
        let settings = Settings::none(home.path());
        assert!(!trust_init(&root, &plan, &settings).unwrap());
        let text = std::fs::read_to_string(&config).unwrap();
        assert_eq!(text, "approval = \"auto\"\n");
    }
}
