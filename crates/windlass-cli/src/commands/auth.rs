//! `auth`: lists keys and logins, stores and removes keys, and starts the login of an agent. It prints no key.

use std::io::IsTerminal;
use std::process::{Command, ExitCode};

use windlass::agents::AGENTS;
use windlass::auth::{
    AuthKind, AuthRow, AuthSource, auth_rows, check_key_form, check_key_works, keyed_vendor,
    login_command, remove_key, store_key,
};
use windlass::model::Vendor;
use windlass::settings::Settings;

use super::block_on;
use super::trust::refuse_inside_a_run;
use crate::args::AuthCommand;
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::process;
use crate::sanitize::json_line;
use crate::secret_input::read_key;
use windlass_text::sanitize::one_line;

pub(super) fn run(command: AuthCommand) -> Result<ExitCode, CommandError> {
    let settings = process::load_settings(None)?;
    match command {
        AuthCommand::List { json } => list(&settings, json),
        AuthCommand::Login { name, check } => {
            refuse_inside_a_run("change keys")?;
            match AGENTS.iter().any(|agent| agent.name == name) {
                true if check => Err(CommandError::usage(format!(
                    "`--check` is for keys, and `{name}` is an agent"
                ))
                .hint(format!("test it with `windlass doctor --probe {name}`"))),
                true => sign_in(&name, &settings),
                false => login(keyed_vendor(&name)?, check, &settings),
            }
        }
        AuthCommand::Remove { name } => {
            refuse_inside_a_run("change keys")?;
            let file = settings.places.credentials_file();
            match remove_key(&name, &settings)? {
                true => {
                    say!(
                        "removed the key of {} from {}",
                        one_line(&name),
                        file.display()
                    );
                    Ok(ExitCode::SUCCESS)
                }
                false => Err(CommandError::usage(format!(
                    "{} has no key of `{}`",
                    file.display(),
                    one_line(&name)
                ))
                .hint("`windlass auth list` lists the keys; unset variables yourself")),
            }
        }
    }
}

fn list(settings: &Settings, json: bool) -> Result<ExitCode, CommandError> {
    let rows = auth_rows(settings)?;
    if json {
        return Ok(exit::print(&rows.iter().map(json_line).collect::<String>()));
    }
    if rows.is_empty() {
        say!(
            "no key and no login was found; `windlass auth login VENDOR` stores a key, and `windlass demo` needs none"
        );
    }
    Ok(exit::print(&rows.iter().map(line).collect::<String>()))
}

fn line(row: &AuthRow) -> String {
    let ending = row.ending.as_ref();
    let ending = ending.map_or_else(String::new, |ending| format!("…{ending}"));
    let place = match row.source {
        AuthSource::Environment => format!("the variable {}", row.place),
        AuthSource::CredentialsFile => row.place.clone(),
        AuthSource::AgentLogin => format!("its own login, {}", row.place),
    };
    let note = match (row.kind, row.used) {
        (AuthKind::Unknown, _) => "  (no vendor has this name)",
        (AuthKind::Vendor, false) => "  (unused: a variable takes precedence)",
        (AuthKind::Agent, false) => "  (unused: `--auth login` uses it)",
        (_, true) => "",
    };
    let also = match row.also_for.as_slice() {
        [] => String::new(),
        also => format!("  (also for {})", also.join(", ")),
    };
    format!(
        "{:<16} {ending:<6} {}{also}{note}\n",
        one_line(&row.name),
        one_line(&place)
    )
}

fn login(
    vendor: &'static Vendor,
    check: bool,
    settings: &Settings,
) -> Result<ExitCode, CommandError> {
    let key = read_key(&format!("key of {} (it is not shown): ", vendor.id))?;
    check_key_form(vendor, &key)?;
    if check {
        block_on(async { Ok(check_key_works(vendor, &key, settings).await?) })?;
    }
    let stronger = store_key(vendor, &key, settings)?;
    let ending = key.ending();
    let ending = ending.map_or_else(String::new, |ending| format!(" (…{ending})"));
    let checked = if check { ", which accepted it," } else { "" };
    say!(
        "stored the key of {}{checked}{ending} in {}",
        vendor.id,
        settings.places.credentials_file().display()
    );
    if let Some(variable) = stronger {
        say!(
            "warning: the variable {variable} takes precedence over it; unset it to use the stored key"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts the login of an agent at the terminal. The agent stores its login itself.
fn sign_in(name: &str, settings: &Settings) -> Result<ExitCode, CommandError> {
    let command = login_command(name, settings)?;
    let shown = command.join(" ");
    let Some((program, args)) = command.split_first() else {
        return Err(CommandError::failed(format!("`{name}` has no program")));
    };
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(
            CommandError::new(exit::ASKED, format!("`{name}` signs you in at a terminal"))
                .hint(format!("run `{shown}`")),
        );
    }
    say!(
        "starting `{}`; Windlass does not see what you enter",
        one_line(&shown)
    );
    let status = Command::new(program)
        .args(args)
        .status()
        .map_err(|why| CommandError::failed(format!("`{shown}` could not be started: {why}")))?;
    if !status.success() {
        return Err(
            CommandError::failed(format!("`{shown}` ended with {status}"))
                .hint("repeat it, or start the agent itself and sign in there"),
        );
    }
    say!("use it with `windlass run --runtime {name} --auth login --metering reported \"…\"`");
    Ok(ExitCode::SUCCESS)
}
