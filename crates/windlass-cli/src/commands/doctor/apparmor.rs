//! Installs or removes a profile that lifts Ubuntu's AppArmor restriction of user namespaces for this binary. The profile is of the `unconfined` kind: it restricts nothing and grants nothing else.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::command_error::CommandError;

/// The name of the profile and its file.
const NAME: &str = "windlass";
/// Marks files that this command wrote, so that it replaces and removes no other.
const MARK: &str = "# Written by `windlass doctor --install-apparmor`.";

/// The text of a profile that lets a program create user namespaces.
pub(super) fn profile(program: &Path) -> Result<String, CommandError> {
    let path = pattern(program)?;
    Ok(format!(
        "{MARK}\n\
         # It lets windlass create user namespaces for its sandbox, and restricts nothing.\n\
         # Programs that windlass starts without its sandbox can create them, too.\n\
         # Remove it with `windlass doctor --remove-apparmor`.\n\
         abi <abi/4.0>,\n\
         include <tunables/global>\n\
         \n\
         profile {NAME} \"{path}\" flags=(unconfined) {{\n\
         \x20 userns,\n\
         \n\
         \x20 include if exists <local/{NAME}>\n\
         }}\n"
    ))
}

/// Escapes a path as a quoted AppArmor pattern that matches only this path.
fn pattern(path: &Path) -> Result<String, CommandError> {
    let text = path
        .to_str()
        .filter(|text| text.starts_with('/') && !text.contains(char::is_control));
    let Some(text) = text else {
        let shown = path.display();
        return Err(CommandError::usage(format!(
            "an AppArmor profile cannot name {shown}: it is not a plain absolute path"
        ))
        .hint("move windlass to a path like /usr/local/bin/windlass"));
    };
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '"' | '*' | '?' | '[' | ']' | '{' | '}' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    Ok(pattern)
}

/// The directory of the profiles, and the program that loads them.
#[derive(Debug, Clone)]
pub(super) struct ProfileStore {
    pub(super) dir: PathBuf,
    pub(super) parser: PathBuf,
}

impl ProfileStore {
    /// The store of this system. It uses fixed paths and not `PATH`, because it runs as root.
    pub(super) fn of_system() -> Result<Self, CommandError> {
        let parsers = [
            "/usr/sbin/apparmor_parser",
            "/sbin/apparmor_parser",
            "/usr/bin/apparmor_parser",
        ];
        let parser = parsers
            .iter()
            .map(PathBuf::from)
            .find(|path| path.exists())
            .ok_or_else(|| {
                CommandError::usage("apparmor_parser, which loads profiles, is not installed")
                    .hint("run `sudo apt install apparmor`")
            })?;
        Ok(Self {
            dir: PathBuf::from("/etc/apparmor.d"),
            parser,
        })
    }

    pub(super) fn file(&self) -> PathBuf {
        self.dir.join(NAME)
    }

    /// Fails if the profile cannot be installed, before the user is asked.
    pub(super) fn check(&self) -> Result<(), CommandError> {
        if !self.dir.join("abi/4.0").exists() {
            let dir = self.dir.display();
            return Err(CommandError::usage(format!(
                "this AppArmor has no rules for user namespaces: {dir}/abi/4.0, which comes with version 4, is missing"
            ))
            .hint("update the package `apparmor`"));
        }
        self.own_file().map(drop)
    }

    /// Reads the profile if it exists; fails if another program wrote the file.
    fn own_file(&self) -> Result<Option<String>, CommandError> {
        let file = self.file();
        match std::fs::read_to_string(&file) {
            Ok(text) if text.starts_with(MARK) => Ok(Some(text)),
            Ok(_) => Err(CommandError::usage(format!(
                "{} was not written by windlass, so it stays unchanged",
                file.display()
            ))
            .hint(
                "if it is the profile of a package, it already covers the windlass of that package",
            )),
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(CommandError::usage(format!(
                "{} cannot be read: {err}",
                file.display()
            ))),
        }
    }

    /// Writes and loads the profile. If loading fails, the previous file is restored.
    pub(super) fn install(&self, text: &str) -> Result<(), CommandError> {
        let before = self.own_file()?;
        self.write(text)?;
        self.parse("-r").inspect_err(|_| {
            let _ = match &before {
                Some(before) => self.write(before),
                None => std::fs::remove_file(self.file()).map_err(Into::into),
            };
        })
    }

    /// Unloads the profile and removes its file; returns `false` if there is none.
    pub(super) fn remove(&self) -> Result<bool, CommandError> {
        if self.own_file()?.is_none() {
            return Ok(false);
        }
        // Unload first: the parser reads the name of the profile from the file.
        self.parse("-R")?;
        let file = self.file();
        std::fs::remove_file(&file).map_err(|err| {
            CommandError::usage(format!("{} cannot be removed: {err}", file.display()))
        })?;
        Ok(true)
    }

    /// Replaces the file atomically, so that a crash leaves no partial profile for the next boot.
    fn write(&self, text: &str) -> Result<(), CommandError> {
        self.replace(text).map_err(|err| {
            CommandError::usage(format!(
                "{} cannot be written: {err}",
                self.file().display()
            ))
        })
    }

    fn replace(&self, text: &str) -> std::io::Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        // AppArmor ignores hidden files when it loads the directory.
        let mut new = tempfile::Builder::new()
            .prefix(".windlass-")
            .tempfile_in(&self.dir)?;
        new.write_all(text.as_bytes())?;
        new.as_file()
            .set_permissions(std::fs::Permissions::from_mode(0o644))?;
        new.as_file().sync_all()?;
        new.persist(self.file())?;
        Ok(())
    }

    fn parse(&self, flag: &str) -> Result<(), CommandError> {
        let parser = self.parser.display();
        let mut command = std::process::Command::new(&self.parser);
        let output = command
            .arg(flag)
            .arg(self.file())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .output();
        let output = output
            .map_err(|err| CommandError::usage(format!("{parser} cannot be started: {err}")))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(CommandError::usage(format!(
            "{parser} {flag} failed ({}): {}",
            output.status,
            stderr.trim()
        )))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "apparmor_tests.rs"]
mod tests;
