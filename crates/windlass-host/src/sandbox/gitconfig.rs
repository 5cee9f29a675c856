//! The user's git settings that commands need to commit as the user. The settings files may contain tokens, so they are
//! not visible in the sandbox; the settings on a short list are passed as variables.

use std::ffi::OsString;
use std::path::Path;

/// The maximum size of a settings file in bytes.
const MAX_CONFIG: u64 = 256 << 10;
/// The maximum number of settings that are passed.
const MAX_SETTINGS: usize = 64;

/// Sections and their keys that are passed; an empty list passes all keys.
const PASSED_KEYS: &[(&str, &[&str])] = &[
    ("user", &["name", "email"]),
    ("author", &["name", "email"]),
    ("committer", &["name", "email"]),
    ("init", &["defaultbranch"]),
    (
        "core",
        &[
            "autocrlf",
            "eol",
            "safecrlf",
            "ignorecase",
            "quotepath",
            "precomposeunicode",
            "longpaths",
            "symlinks",
        ],
    ),
    ("pull", &[]),
    ("push", &["default", "autosetupremote"]),
    ("merge", &["conflictstyle", "ff", "renames"]),
    ("rebase", &[]),
    (
        "diff",
        &["algorithm", "renames", "mnemonicprefix", "colormoved"],
    ),
    ("fetch", &["prune"]),
    ("safe", &["directory"]),
];

/// Settings that differ in a sandbox: git has no key for signatures, and a directory that only looks like a bare
/// repository is not one.
const OVERRIDES: &[(&str, &str)] = &[
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("safe.bareRepository", "explicit"),
];

/// Returns the variables that pass the settings to git.
pub(super) fn variables(home: Option<&Path>) -> Vec<(OsString, OsString)> {
    let files = home
        .into_iter()
        .flat_map(|home| [home.join(".config/git/config"), home.join(".gitconfig")]);
    let texts = files.filter_map(|file| crate::workspace::read_file(&file, MAX_CONFIG).ok());
    let mut settings: Vec<(String, String)> = Vec::new();
    for text in texts {
        settings.extend(passed_settings(&String::from_utf8_lossy(&text)));
    }
    settings.truncate(MAX_SETTINGS);
    settings.extend(
        OVERRIDES
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    let mut env = vec![("GIT_CONFIG_COUNT".into(), settings.len().to_string().into())];
    for (at, (key, value)) in settings.into_iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{at}").into(), key.into()));
        env.push((format!("GIT_CONFIG_VALUE_{at}").into(), value.into()));
    }
    env
}

fn passed_settings(text: &str) -> Vec<(String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix('[') {
            // The name of a section with a subsection (`[url "…"]`) matches none of the list.
            section = rest
                .split(']')
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase();
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let key = key.trim().to_ascii_lowercase();
        // Values with an escape, a line continuation or partial quotes are skipped, because this parser would misread
        // them.
        let value = value.split([';', '#']).next().unwrap_or_default().trim();
        let plain = value
            .strip_prefix('"')
            .and_then(|value| value.strip_suffix('"'))
            .unwrap_or(value);
        let keys = PASSED_KEYS
            .iter()
            .find(|(name, _)| *name == section)
            .map(|(_, keys)| *keys);
        if keys.is_some_and(|keys| keys.is_empty() || keys.contains(&key.as_str()))
            && !plain.contains(['"', '\\', '\0'])
        {
            found.push((format!("{section}.{key}"), plain.to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_passed_and_tokens_are_not() {
        let text = "[user]\n\tname = \"A B\" \n\temail = a@b.c ; mine\n\tsigningKey = K\n[github]\n\ttoken = T\n\
                    [url \"https://x:T@h/\"]\n\tinsteadOf = h\n[http]\n\textraHeader = T\n[core]\n\tpager = less\n\
                    \tautocrlf = input\n[credential]\n\thelper = !T\n[pull]\n\trebase = true\n[alias]\n\tx = !T\n";
        let found: Vec<String> = passed_settings(text)
            .into_iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(
            found,
            [
                "user.name=A B",
                "user.email=a@b.c",
                "core.autocrlf=input",
                "pull.rebase=true"
            ]
        );
        let variables = variables(None);
        assert_eq!(variables[0], ("GIT_CONFIG_COUNT".into(), "3".into()));
    }
}
