//! `doctor --install-apparmor` and `--remove-apparmor`: check, ask, change the profile, and test the result.

use std::io::{BufRead as _, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

use windlass::doctor::{AppArmorState, install_command, owned_by_root_alone, shell_quoted};
use windlass_text::sanitize::{one_line, plain};

use super::apparmor::{ProfileStore, profile};
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;

/// The user `nobody`, as whom the result is tested if root did not use sudo.
const NOBODY: u32 = 65_534;

pub(super) fn install(yes: bool) -> Result<ExitCode, CommandError> {
    let program = program()?;
    only_root(install_command(&program))?;
    check_state(&AppArmorState::read())?;
    check_program(&program)?;
    let store = ProfileStore::of_system()?;
    store.check()?;
    let text = profile(&program)?;
    let file = store.file();
    say!(
        "{}:\n\n{}",
        one_line(&file.display().to_string()),
        plain(&text)
    );
    confirm("write this file and load it?", yes)?;
    store.install(&text)?;
    say!("loaded the profile; remove it with `windlass doctor --remove-apparmor`");
    Ok(report(probe_as_user(&program)))
}

pub(super) fn remove(yes: bool) -> Result<ExitCode, CommandError> {
    let program = program()?;
    only_root(format!(
        "sudo {} doctor --remove-apparmor",
        shell_quoted(&program)
    ))?;
    let store = ProfileStore::of_system()?;
    let file = store.file();
    let file = file.display().to_string();
    let file = one_line(&file);
    confirm(&format!("unload the profile and remove {file}?"), yes)?;
    let text = match store.remove()? {
        true => format!("removed {file}\n"),
        false => format!("{file} does not exist; nothing was changed\n"),
    };
    Ok(exit::print(&text))
}

/// The real path of this program, which AppArmor compares; not the name in the command line.
fn program() -> Result<PathBuf, CommandError> {
    let program = std::env::current_exe().and_then(|path| path.canonicalize());
    program.map_err(|err| {
        CommandError::usage(format!("the path of this program cannot be found: {err}"))
    })
}

fn only_root(command: String) -> Result<(), CommandError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(
        CommandError::usage("only root can change AppArmor profiles")
            .hint(format!("run `{command}`")),
    )
}

fn check_state(state: &AppArmorState) -> Result<(), CommandError> {
    match (state.enabled, state.restricts) {
        (true, true) => Ok(()),
        (false, _) => Err(CommandError::usage(
            "AppArmor is not enabled in this kernel, so a profile would have no effect",
        )),
        (true, false) => Err(CommandError::usage(
            "AppArmor does not restrict user namespaces here, so no profile is needed",
        )
        .hint("`windlass doctor` reports other obstacles")),
    }
}

fn check_program(program: &Path) -> Result<(), CommandError> {
    owned_by_root_alone(program).map_err(|why| {
        let command = install_command(program);
        CommandError::usage(format!(
            "{why}: a user who replaces the program would get the rights of the profile"
        ))
        .hint(format!(
            "install the program where only root can write, and use it from there: `{command}`"
        ))
    })
}

/// Asks for confirmation at the terminal. Without a terminal, `--yes` is required.
fn confirm(question: &str, yes: bool) -> Result<(), CommandError> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(CommandError::usage(
            "standard input is not a terminal, so no user can confirm",
        )
        .hint("use `--yes` to continue without confirmation"));
    }
    crate::out::err(&format!("{question} [y/N] "));
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(CommandError::failed("nothing was changed")),
    }
}

/// Tests the sandbox as the user who ran `sudo`, or else as `nobody`, because the restriction does not apply to root.
fn probe_as_user(program: &Path) -> Result<(), String> {
    let id = |name: &str| {
        std::env::var(name)
            .ok()?
            .parse::<u32>()
            .ok()
            .filter(|id| *id != 0)
    };
    let (uid, gid) = (
        id("SUDO_UID").unwrap_or(NOBODY),
        id("SUDO_GID").unwrap_or(NOBODY),
    );
    let mut command = Command::new(program);
    // Without a home directory, no settings of a user apply.
    command
        .args(["doctor", "--json"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent");
    let output = command
        .current_dir("/tmp")
        .uid(uid)
        .gid(gid)
        .output()
        .map_err(|err| err.to_string())?;
    namespaces_in(&output.stdout)
}

fn namespaces_in(report: &[u8]) -> Result<(), String> {
    let report: Value = serde_json::from_slice(report)
        .map_err(|err| format!("`windlass doctor` printed no report: {err}"))?;
    let namespaces = &report["sandbox"]["namespaces"];
    match (namespaces["ok"].as_bool(), namespaces["why"].as_str()) {
        (Some(true), _) => Ok(()),
        (_, why) => Err(why.unwrap_or("`windlass doctor` gave no reason").to_owned()),
    }
}

fn report(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => {
            exit::print("success: commands of ordinary users run in the namespaces sandbox\n")
        }
        Err(why) => {
            exit::print(&format!(
                "the namespaces sandbox still fails for ordinary users: {}\n",
                one_line(&why)
            ));
            ExitCode::from(exit::FAILED)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_the_restriction_needs_no_profile() {
        let check =
            |enabled, restrict| check_state(&AppArmorState::from_files(enabled, restrict, None));
        assert!(check(Some("Y"), Some("1")).is_ok());
        assert!(
            check(Some("Y"), Some("0"))
                .unwrap_err()
                .text()
                .contains("no profile is needed")
        );
        assert!(
            check(None, None)
                .unwrap_err()
                .text()
                .contains("not enabled")
        );
    }

    #[test]
    fn a_replaceable_program_is_refused_with_a_fix() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("windlass");
        std::fs::write(&program, "").unwrap();
        let failed = check_program(&program).unwrap_err().text();
        assert!(
            failed.contains("a user who replaces the program") && failed.contains("sudo install"),
            "{failed}"
        );
    }

    #[test]
    fn the_result_is_read_from_the_report() {
        assert_eq!(
            namespaces_in(br#"{"sandbox":{"namespaces":{"ok":true,"why":null}}}"#),
            Ok(())
        );
        let denied =
            namespaces_in(br#"{"sandbox":{"namespaces":{"ok":false,"why":"mount: EPERM"}}}"#);
        assert_eq!(denied, Err("mount: EPERM".to_owned()));
        assert!(namespaces_in(b"").unwrap_err().contains("no report"));
    }
}
