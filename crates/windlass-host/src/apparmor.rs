//! Ubuntu's AppArmor restriction of user namespaces: whether it applies, and which programs may get a profile that lifts
//! it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The state of AppArmor, as the kernel reports it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct AppArmorState {
    pub enabled: bool,
    /// The kernel setting `kernel.apparmor_restrict_unprivileged_userns` is 1.
    pub restricts: bool,
    /// The profile this process runs under.
    profile: Option<String>,
}

impl AppArmorState {
    /// Reads the state from the kernel.
    pub fn read() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let profile =
            read("/proc/self/attr/apparmor/current").or_else(|| read("/proc/self/attr/current"));
        Self::from_files(
            read("/sys/module/apparmor/parameters/enabled").as_deref(),
            read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref(),
            profile.as_deref(),
        )
    }

    /// Parses the contents of the kernel's files; `None` stands for a missing file.
    pub fn from_files(
        enabled: Option<&str>,
        restrict: Option<&str>,
        profile: Option<&str>,
    ) -> Self {
        let is = |text: Option<&str>, value: &str| text.is_some_and(|text| text.trim() == value);
        let profile = profile.map(|text| text.trim_matches(['\0', '\n', ' ']).to_owned());
        Self {
            enabled: is(enabled, "Y"),
            restricts: is(restrict, "1"),
            profile: profile.filter(|text| !text.is_empty()),
        }
    }

    /// Whether the restriction applies to this process: processes without a profile are restricted.
    pub fn restricts_this_process(&self) -> bool {
        let unconfined = self
            .profile
            .as_deref()
            .is_none_or(|profile| profile == "unconfined");
        self.enabled && self.restricts && unconfined
    }
}

/// The command that installs the profile. A binary that other users can replace is copied to a directory of root first.
#[must_use]
pub fn install_command(program: &Path) -> String {
    if owned_by_root_alone(program).is_ok() {
        return format!("sudo {} doctor --install-apparmor", shell_quoted(program));
    }
    let shared = Path::new("/usr/local/bin/windlass");
    format!(
        "sudo install -o root -g root -m 755 {} {shared} && sudo {shared} doctor --install-apparmor",
        shell_quoted(program),
        shared = shared.display()
    )
}

/// A component of a path with its owner and mode.
#[derive(Debug, Clone)]
struct PathPart {
    path: PathBuf,
    uid: u32,
    gid: u32,
    mode: u32,
}

/// Fails if a user other than root can replace the program or a directory above it. The write bit of the group also covers
/// access control lists, because it stores their mask.
fn check_parts(parts: &[PathPart]) -> Result<(), String> {
    for part in parts {
        let path = part.path.display();
        if part.uid != 0 {
            return Err(format!("{path} belongs to user {}, not to root", part.uid));
        }
        if part.mode & 0o002 != 0 {
            return Err(format!("every user can write to {path}"));
        }
        if part.mode & 0o020 != 0 && part.gid != 0 {
            return Err(format!("the group {} can write to {path}", part.gid));
        }
    }
    Ok(())
}

/// Checks the owner and the mode of a program and all directories above it.
pub fn owned_by_root_alone(program: &Path) -> Result<(), String> {
    let parts: Result<Vec<_>, String> = program.ancestors().map(examine).collect();
    check_parts(&parts?)
}

fn examine(path: &Path) -> Result<PathPart, String> {
    let found = path
        .symlink_metadata()
        .map_err(|err| format!("{} cannot be examined: {err}", path.display()))?;
    Ok(PathPart {
        path: path.to_owned(),
        uid: found.uid(),
        gid: found.gid(),
        mode: found.mode(),
    })
}

/// Quotes a path for a shell.
#[must_use]
pub fn shell_quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_others_can_replace_is_refused_with_the_reason() {
        let part = |path: &str, uid, gid, mode| PathPart {
            path: path.into(),
            uid,
            gid,
            mode,
        };
        let root = part("/", 0, 0, 0o40755);
        let check = |one: PathPart| check_parts(&[one, root.clone()]);
        assert_eq!(check(part("/usr/bin/windlass", 0, 0, 0o100755)), Ok(()));
        assert_eq!(
            check(part("/usr/bin", 0, 0, 0o40775)),
            Ok(()),
            "root's own group may write"
        );
        for (bad, why) in [
            (
                part("/home/me", 1000, 1000, 0o40755),
                "/home/me belongs to user 1000, not to root",
            ),
            (part("/tmp", 0, 0, 0o41777), "every user can write to /tmp"),
            (
                part("/usr/local/bin", 0, 50, 0o42775),
                "the group 50 can write to /usr/local/bin",
            ),
        ] {
            assert_eq!(check(bad), Err(why.to_owned()));
        }
        assert!(
            owned_by_root_alone(Path::new("/no/such/file"))
                .unwrap_err()
                .contains("cannot be examined")
        );
    }

    #[test]
    fn a_path_is_one_word_for_a_shell() {
        assert_eq!(
            shell_quoted(Path::new("/usr/bin/windlass")),
            "/usr/bin/windlass"
        );
        assert_eq!(shell_quoted(Path::new("/a b/it's")), "'/a b/it'\\''s'");
    }

    #[test]
    fn the_restriction_is_recognised_from_the_kernels_files() {
        let restricts = |enabled, restrict, profile| {
            AppArmorState::from_files(enabled, restrict, profile).restricts_this_process()
        };
        assert!(restricts(Some("Y\n"), Some("1\n"), Some("unconfined\n")));
        assert!(restricts(Some("Y\n"), Some("1\n"), None));
        assert!(!restricts(Some("Y\n"), Some("0\n"), Some("unconfined\n")));
        assert!(!restricts(Some("N\n"), Some("1\n"), Some("unconfined\n")));
        assert!(!restricts(None, None, None), "a kernel without AppArmor");
        assert!(
            !restricts(Some("Y\n"), Some("1\n"), Some("windlass (unconfined)\n")),
            "our profile is loaded"
        );
        assert!(!restricts(
            Some("Y\n"),
            Some("1\n"),
            Some("docker-default (enforce)\n")
        ));
    }

    #[test]
    fn the_offered_command_copies_a_program_that_others_can_replace() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("windlass");
        std::fs::write(&program, "").unwrap();
        let command = install_command(&program);
        // Every user can write to the temporary directory.
        assert!(
            command.starts_with("sudo install -o root -g root -m 755 "),
            "{command}"
        );
        assert!(
            command.ends_with("&& sudo /usr/local/bin/windlass doctor --install-apparmor"),
            "{command}"
        );
    }
}
