//! `config`: shows settings with their origin, and edits the user's settings file.

use crate::out::say;
use std::process::ExitCode;

use windlass::core::workspace::Files;
use windlass::settings::{key_rows, known, set, setting_rows, unset};
use windlass_text::sanitize::{message, one_line};

use crate::args::{ConfigArgs, ConfigCommand};
use crate::command_error::CommandError;
use crate::exit;
use crate::process;
use windlass::settings::{KEYS, Settings};

pub(super) fn run(args: &ConfigArgs) -> Result<ExitCode, CommandError> {
    // Settings can also be shown in directories that are not a workspace, such as the home directory.
    let root = process::open_workspace(None).ok();
    let settings = process::load_settings(root.as_ref().map(Files::root))?;
    let file = settings.places.config_file();
    let text = match &args.command {
        None => show(&settings, args.origin),
        Some(ConfigCommand::Keys) => key_rows()
            .into_iter()
            .map(|key| format!("{:<24} {}\n", key.name, key.doc))
            .collect(),
        Some(ConfigCommand::Path) => paths(&settings, root.as_ref().map(Files::root)),
        Some(ConfigCommand::Get { key }) => match settings.layers.get(key) {
            Some(setting) => format!("{}\n", setting.value),
            None => {
                // An unknown key is an error; a key without a value prints nothing.
                known(KEYS, key)?;
                return Ok(ExitCode::from(exit::FAILED));
            }
        },
        Some(ConfigCommand::Set { key, value }) => {
            set(&file, KEYS, key, value)?;
            String::new()
        }
        Some(ConfigCommand::Unset { key }) => {
            unset(&file, KEYS, key)?;
            String::new()
        }
    };
    for warning in &settings.warnings {
        say!("warning: {}", message(warning));
    }
    Ok(exit::print(&text))
}

fn show(settings: &Settings, origin: bool) -> String {
    let mut text = String::new();
    for row in setting_rows(settings) {
        let (key, value) = (&row.key, one_line(&row.value));
        match origin {
            true => text.push_str(&format!("{key} = {value}  # {}\n", one_line(&row.origin))),
            false => text.push_str(&format!("{key} = {value}\n")),
        }
    }
    if text.is_empty() {
        say!("no settings are set; `windlass config keys` lists the keys");
    }
    text
}

fn paths(settings: &Settings, root: Option<&std::path::Path>) -> String {
    let places = &settings.places;
    let mut rows = vec![
        ("managed", places.managed_dir.join("config.toml")),
        ("user", places.config_file()),
        ("credentials", places.credentials_file()),
    ];
    if let Some(root) = root {
        rows.push(("project", root.join(".windlass/config.toml")));
        rows.push(("project local", root.join(".windlass/config.local.toml")));
    }
    rows.push(("sessions", places.sessions_dir()));
    rows.into_iter()
        .map(|(what, path)| format!("{what:<14} {}\n", path.display()))
        .collect()
}
