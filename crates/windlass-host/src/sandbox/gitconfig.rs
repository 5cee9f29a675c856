//! The user's own git settings that commands need to commit as the user would. The files themselves may hold tokens, so
//! they are not shown; what is on a short list goes along as variables.

use std::ffi::OsString;
use std::path::Path;

/// The longest settings file that is looked at.
const MAX_CONFIG: u64 = 256 << 10;
/// The most settings that go along.
const MAX_SETTINGS: usize = 64;

/// Sections whose plain keys go along, and the keys; none is all.
const TAKEN: &[(&str, &[&str])] = &[
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

/// What git does differently in a sandbox: it has no key to sign with, and a folder that only looks like a repository
/// is none.
const OURS: &[(&str, &str)] = &[
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("safe.bareRepository", "explicit"),
];

/// The variables.
pub(super) fn variables(home: Option<&Path>) -> Vec<(OsString, OsString)> {
    let files = home
        .into_iter()
        .flat_map(|home| [home.join(".config/git/config"), home.join(".gitconfig")]);
    let texts = files.filter_map(|file| crate::workspace::read_file(&file, MAX_CONFIG).ok());
    let mut settings: Vec<(String, String)> = Vec::new();
    for text in texts {
        settings.extend(taken(&String::from_utf8_lossy(&text)));
    }
    settings.truncate(MAX_SETTINGS);
    settings.extend(
        OURS.iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    let mut env = vec![("GIT_CONFIG_COUNT".into(), settings.len().to_string().into())];
    for (at, (key, value)) in settings.into_iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{at}").into(), key.into()));
        env.push((format!("GIT_CONFIG_VALUE_{at}").into(), value.into()));
    }
    env
}

fn taken(text: &str) -> Vec<(String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix('[') {
            // A section with a name of its own (`[url "…"]`) is none of those that are taken.
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
        // What goes on in the next line, or is quoted in part, is not worth reading wrongly.
        let value = value.split([';', '#']).next().unwrap_or_default().trim();
        let plain = value
            .strip_prefix('"')
            .and_then(|value| value.strip_suffix('"'))
            .unwrap_or(value);
        let keys = TAKEN
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
    fn a_name_goes_along_and_a_token_does_not() {
        let text = "[user]\n\tname = \"A B\" \n\temail = a@b.c ; mine\n\tsigningKey = K\n[github]\n\ttoken = T\n\
                    [url \"https://x:T@h/\"]\n\tinsteadOf = h\n[http]\n\textraHeader = T\n[core]\n\tpager = less\n\
                    \tautocrlf = input\n[credential]\n\thelper = !T\n[pull]\n\trebase = true\n[alias]\n\tx = !T\n";
        let found: Vec<String> = taken(text)
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
