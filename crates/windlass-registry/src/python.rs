//! A Python for agents that are written in it: one of a fitting version that can make environments, wherever the usual
//! tools put theirs. Asks each candidate itself, because a name says little.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};

use crate::said::said;

/// Candidates that are asked; more are not on a machine in earnest.
const MAX_ASKED: usize = 40;
const ASK: &str =
    "import sys, venv, ensurepip; print(sys.version_info.major, sys.version_info.minor)";

/// The newest Python from 3.`from` to 3.`to`.
pub(crate) fn find((from, to): (u32, u32)) -> Result<PathBuf, String> {
    let mut seen: Vec<(u32, PathBuf)> = Vec::new();
    for candidate in candidates(from, to).into_iter().take(MAX_ASKED) {
        let Some(minor) = asked(&candidate) else {
            continue;
        };
        if minor == to {
            return Ok(candidate);
        }
        seen.push((minor, candidate));
    }
    let best = seen
        .iter()
        .filter(|(minor, _)| (from..=to).contains(minor))
        .max_by_key(|(minor, _)| *minor);
    if let Some((_, python)) = best {
        return Ok(python.clone());
    }
    let mut minors: Vec<u32> = seen.iter().map(|(minor, _)| *minor).collect();
    minors.sort_unstable();
    minors.dedup();
    let found = match minors.as_slice() {
        [] => "none that can make environments was found".to_owned(),
        minors => {
            let all: Vec<String> = minors.iter().map(|minor| format!("3.{minor}")).collect();
            format!("this machine has {}", all.join(", "))
        }
    };
    Err(format!("it needs {}, and {found}", range(from, to)))
}

/// Which one a candidate is. Each is asked once, however many agents want to know.
fn asked(candidate: &Path) -> Option<u32> {
    static ASKED: Mutex<Vec<(PathBuf, Option<u32>)>> = Mutex::new(Vec::new());
    let mut asked = ASKED.lock();
    if let Some((_, minor)) = asked.iter().find(|(known, _)| known == candidate) {
        return *minor;
    }
    let minor = said(candidate, &["-I", "-c", ASK]).and_then(|said| minor(&said));
    asked.push((candidate.to_owned(), minor));
    minor
}

/// The Pythons that will do, in words.
pub(crate) fn range(from: u32, to: u32) -> String {
    if from == to {
        format!("Python 3.{to}")
    } else {
        format!("Python 3.{from} to 3.{to}")
    }
}

/// Where Pythons are, the likely ones first.
fn candidates(from: u32, to: u32) -> Vec<PathBuf> {
    let names: Vec<String> = (from..=to)
        .rev()
        .map(|minor| format!("python3.{minor}"))
        .collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/bin", "/opt/homebrew/bin", "/usr/bin"].map(PathBuf::from);
    let folders: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(usual)
        .filter(|dir| dir.is_absolute())
        .collect();
    let mut all: Vec<PathBuf> = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .collect();
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let pyenv = std::env::var_os("PYENV_ROOT").map_or_else(|| home.join(".pyenv"), PathBuf::from);
    // A pyenv elsewhere is known by its shims.
    let shims = folders.iter().filter(|folder| folder.ends_with("shims"));
    let shims = shims.filter_map(|shims| Some(shims.parent()?.join("versions")));
    let places = [pyenv.join("versions"), home.join(".local/share/uv/python")];
    for place in places.into_iter().chain(shims) {
        let versions = std::fs::read_dir(place)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path().join("bin"));
        let mut versions: Vec<PathBuf> = versions.collect();
        versions.sort();
        all.extend(
            versions
                .iter()
                .rev()
                .flat_map(|bin| names.iter().map(move |name| bin.join(name))),
        );
    }
    all.extend(folders.iter().map(|folder| folder.join("python3")));
    // Those of pyenv are looked at where they are, not through its scripts, which take their time. Without a home, its
    // folder would be looked for where the person stands.
    all.retain(|file| {
        file.is_absolute()
            && file.is_file()
            && !file
                .parent()
                .is_some_and(|folder| folder.ends_with("shims"))
    });
    let mut once: Vec<(PathBuf, PathBuf)> = Vec::new();
    for file in all {
        let real = file.canonicalize().unwrap_or_else(|_| file.clone());
        if !once.iter().any(|(known, _)| *known == real) {
            once.push((real, file));
        }
    }
    once.into_iter().map(|(_, file)| file).collect()
}

fn minor(said: &str) -> Option<u32> {
    match said.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["3", minor] => minor.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pythons_say_is_read() {
        for (said, expect) in [
            ("3 12\n", Some(12)),
            ("2 7\n", None),
            ("", None),
            ("3 x", None),
            ("3 12 1", None),
        ] {
            assert_eq!(minor(said), expect, "{said}");
        }
    }

    #[test]
    fn a_machine_without_a_fitting_python_says_what_it_has() {
        let why = find((99, 99)).err();
        assert!(
            why.as_deref()
                .is_some_and(|why| why.starts_with("it needs Python 3.99, and ")),
            "{why:?}"
        );
        assert_eq!(range(10, 12), "Python 3.10 to 3.12");
    }
}
