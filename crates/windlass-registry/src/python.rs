//! Finds a Python for agents that are written in Python: one with a suitable version that can make virtual environments,
//! including those of pyenv and uv. Each candidate is started to check its version, because its name is not reliable.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};

use crate::short_command::short_output;

/// Maximum number of candidates that are started.
const MAX_CANDIDATES: usize = 40;
const VERSION_CODE: &str =
    "import sys, venv, ensurepip; print(sys.version_info.major, sys.version_info.minor)";

/// Finds the newest Python from 3.`from` to 3.`to`. The error describes the versions of this machine.
pub(crate) fn find((from, to): (u32, u32)) -> Result<PathBuf, String> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for candidate in candidates(from, to).into_iter().take(MAX_CANDIDATES) {
        let Some(minor) = minor_version(&candidate) else {
            continue;
        };
        if minor == to {
            return Ok(candidate);
        }
        found.push((minor, candidate));
    }
    let best = found
        .iter()
        .filter(|(minor, _)| (from..=to).contains(minor))
        .max_by_key(|(minor, _)| *minor);
    if let Some((_, python)) = best {
        return Ok(python.clone());
    }
    let mut minors: Vec<u32> = found.iter().map(|(minor, _)| *minor).collect();
    minors.sort_unstable();
    minors.dedup();
    let found = match minors.as_slice() {
        [] => "no Python that can make environments was found".to_owned(),
        minors => {
            let all: Vec<String> = minors.iter().map(|minor| format!("3.{minor}")).collect();
            format!("this machine has {}", all.join(", "))
        }
    };
    Err(format!("it needs {}, and {found}", range(from, to)))
}

/// The minor version of a candidate. Results are cached, so that each candidate is started once.
fn minor_version(candidate: &Path) -> Option<u32> {
    static CACHE: Mutex<Vec<(PathBuf, Option<u32>)>> = Mutex::new(Vec::new());
    let mut cache = CACHE.lock();
    if let Some((_, minor)) = cache.iter().find(|(known, _)| known == candidate) {
        return *minor;
    }
    let output = short_output(candidate, &["-I", "-c", VERSION_CODE]);
    let minor = output.and_then(|output| parse_minor(&output));
    cache.push((candidate.to_owned(), minor));
    minor
}

/// A range of versions as text.
pub(crate) fn range(from: u32, to: u32) -> String {
    if from == to {
        format!("Python 3.{to}")
    } else {
        format!("Python 3.{from} to 3.{to}")
    }
}

/// The paths of Pythons on this machine, the most likely first.
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
    // A pyenv in another directory is found by its shims in `PATH`.
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
    // The shims of pyenv are slow, and the Pythons behind them are in the list already. Relative paths come from a missing
    // HOME and would refer to the current directory.
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

fn parse_minor(output: &str) -> Option<u32> {
    match output.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["3", minor] => minor.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_python_is_parsed() {
        for (output, expect) in [
            ("3 12\n", Some(12)),
            ("2 7\n", None),
            ("", None),
            ("3 x", None),
            ("3 12 1", None),
        ] {
            assert_eq!(parse_minor(output), expect, "{output}");
        }
    }

    #[test]
    fn without_a_suitable_python_the_error_lists_the_versions() {
        let why = find((99, 99)).err();
        assert!(
            why.as_deref()
                .is_some_and(|why| why.starts_with("it needs Python 3.99, and ")),
            "{why:?}"
        );
        assert_eq!(range(10, 12), "Python 3.10 to 3.12");
    }
}
