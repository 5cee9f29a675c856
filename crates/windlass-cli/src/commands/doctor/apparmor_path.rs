//! Checks that only root can replace a program, so that it may get a profile.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A component of a path with its owner and mode.
#[derive(Debug, Clone)]
pub(super) struct PathPart {
    pub(super) path: PathBuf,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u32,
}

/// Fails if a user other than root can replace the program or a directory above it. The write bit of the group also covers
/// access control lists, because it stores their mask.
pub(super) fn check_parts(parts: &[PathPart]) -> Result<(), String> {
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

/// Runs [`check_parts`] for a program and all directories above it.
pub(super) fn owned_by_root_alone(program: &Path) -> Result<(), String> {
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
pub(super) fn shell_quoted(path: &Path) -> String {
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
}
