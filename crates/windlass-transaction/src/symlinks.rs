//! Judges the target of a new symlink: whether it may land freely, only with a person's approval, or never. Outside of
//! the workspace it decides by names alone.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use windlass_core::gate::{is_credential, is_system_path};

use crate::path::path_of;

/// Maximum symlinks that are followed, as in the kernel.
const MAX_LINKS: usize = 40;

/// Whether a symlink may land.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SymlinkVerdict {
    /// The target is a file of the workspace, or a program or library of the system.
    Allowed,
    /// Needs a person's approval: the target is a file of git, or outside of the workspace.
    Ask(String),
    /// The target is a credential, or a directory that contains the workspace (and thus often the user's whole home).
    Never(String),
}

/// Judges a symlink at a path of the workspace. `link` returns the targets of symlinks in the workspace on the way.
pub(crate) fn judge_symlink(
    root: &Path,
    path: &str,
    target: &str,
    link: &dyn Fn(&Path) -> Option<PathBuf>,
) -> SymlinkVerdict {
    let Some(end) = resolve_target(root, path, target, link) else {
        return SymlinkVerdict::Allowed;
    };
    if let Ok(inside) = end.strip_prefix(root) {
        let is_git = |part: Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
        return match inside.components().any(is_git) {
            true => SymlinkVerdict::Ask(format!("it is a symlink to git's own files ({target})")),
            false => SymlinkVerdict::Allowed,
        };
    }
    let name = end.to_string_lossy();
    // Names in `/proc` lead to open files, directories and roots of processes.
    if root.starts_with(&end) || end.starts_with("/proc") || is_credential(&name) {
        return SymlinkVerdict::Never(format!(
            "it is a symlink to credentials or to a directory above the workspace ({target}); remove it"
        ));
    }
    let is_virtual_env = is_interpreter(&path_of(path)) && is_interpreter(&end);
    match is_system_path(&name) || is_virtual_env {
        true => SymlinkVerdict::Allowed,
        false => SymlinkVerdict::Ask(format!(
            "it is a symlink that leads out of the workspace ({target})"
        )),
    }
}

/// Whether a path looks like the interpreter of a Python installation: a virtual environment contains symlinks to one,
/// often in the user's home.
fn is_interpreter(path: &Path) -> bool {
    let name = |path: &Path| {
        path.file_name()
            .and_then(|name| Some(name.to_str()?.to_owned()))
    };
    let folder = path.parent().and_then(name);
    let named = name(path).is_some_and(|name| {
        let version = name.strip_prefix("python");
        version.is_some_and(|text| text.bytes().all(|byte| b"0123456789.".contains(&byte)))
    });
    named && folder.as_deref() == Some("bin")
}

/// Resolves the target of a symlink; `None` if there are more symlinks than the kernel would follow.
fn resolve_target(
    root: &Path,
    path: &str,
    target: &str,
    link: &dyn Fn(&Path) -> Option<PathBuf>,
) -> Option<PathBuf> {
    let mut end = root.join(path_of(path));
    end.pop();
    let mut todo: Vec<OsString> = steps(&path_of(target));
    let mut links = 0;
    while let Some(step) = todo.pop() {
        match Path::new(&step).components().next() {
            Some(Component::RootDir) => end = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(end.pop()),
            Some(Component::Normal(name)) => {
                end.push(name);
                let inside = end
                    .strip_prefix(root)
                    .ok()
                    .filter(|inside| !inside.as_os_str().is_empty());
                let Some(on) = inside.and_then(link) else {
                    continue;
                };
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                end.pop();
                todo.extend(steps(&on));
            }
            _ => {}
        }
    }
    Some(end)
}

/// The components of a path, in reverse order.
fn steps(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, target: &str, expect: &str) {
        let link = |path: &Path| match path.to_str() {
            Some("other") => Some(PathBuf::from("/home/p/other")),
            Some("docs/on") => Some(PathBuf::from("../other/x")),
            Some("round") => Some(PathBuf::from("./round")),
            _ => None,
        };
        let found = match judge_symlink(Path::new("/home/p/repo"), path, target, &link) {
            SymlinkVerdict::Allowed => "allowed",
            SymlinkVerdict::Ask(_) => "ask",
            SymlinkVerdict::Never(_) => "never",
        };
        assert_eq!(found, expect, "{path} -> {target}");
    }

    #[test]
    fn links_over_links_are_followed_in_the_workspace() {
        check("notes", "other/../.ssh/id_ed25519", "never");
        check("notes", "docs/on/../../.aws/credentials", "never");
        check("docs/notes", "on/readme", "ask");
        check("notes", "plain/../.ssh/id_ed25519", "allowed");
        check("notes", "round/x", "allowed");
        check("notes", "/proc/self/root", "never");
        check("notes", "other/../../../proc/self/cwd/x", "never");
    }

    #[test]
    fn a_virtual_environment_may_use_a_python_of_the_home() {
        let python = "/home/p/.pyenv/versions/3.11.4/bin/python3.11";
        check("env/bin/python3", python, "allowed");
        check("env/bin/python", "/home/p/conda/bin/python3", "allowed");
        check("env/bin/notes", python, "ask");
        check("env/bin/python", "/home/p/.bashrc", "ask");
        check("env/bin/python", "/home/p/notes/python3", "ask");
        check("env/bin/python", "/home/p/bin/python-evil", "ask");
        check("env/bin/python", "/home/p/.ssh/bin/python", "never");
    }

    #[test]
    fn links_out_of_the_workspace_are_known_by_name() {
        check("notes.txt", "/home/p/.ssh/id_ed25519", "never");
        check("docs/a/notes.txt", "../../../.aws/credentials", "never");
        check("config/.env", "../.env", "allowed");
        check("away", "/usr/share/doc", "allowed");
        check("away", "/home/p/.bashrc", "ask");
        check("away", "/home/q", "ask");
        check("away", "/tmp/x", "ask");
        check("loop", "../repo/x", "allowed");
        check("deep", "../../../../../../etc/shadow", "never");
        check("home", "/home/p", "never");
        check("docs/up", "../..", "never");
        check("docs/self", "..", "allowed");
        check("all", "/", "never");
        check("hook", ".git/hooks/pre-commit", "ask");
        check("docs/git", "../sub/.GIT", "ask");
    }
}
