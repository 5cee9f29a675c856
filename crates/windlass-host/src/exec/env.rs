//! Selects the environment variables of a child process, as a pure function of the caller's variables. Variables whose
//! names look like credentials are dropped, and programs that would wait for a person or draw on a terminal are
//! replaced.

use std::ffi::{OsStr, OsString};

use windlass_core::gate::keeps_secret;

/// Git sets these for its hooks. A child that inherited them would work on another repository than its own.
const GIT_PLACES: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    // The variables that it counts look like secrets and are dropped; without them the count is an error.
    "GIT_CONFIG_COUNT",
];

/// No person sits at the child's terminal: no pager, no editor, no prompt, no color.
const NEUTRAL: [(&str, &str); 15] = [
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("GH_PAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    // `true` accepts the existing text: a rebase continues, a commit without a message fails at once.
    ("EDITOR", "true"),
    ("VISUAL", "true"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("CLICOLOR", "0"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PIP_NO_INPUT", "1"),
];

/// Dropped although they are not credentials: they name programs that ask a question, scripts that every shell would
/// execute first, or directories that are out of date.
const DROPPED: [&str; 11] = [
    "BASH_ENV",
    "CDPATH",
    "ENV",
    "SSH_ASKPASS",
    "GIT_ASKPASS",
    "SUDO_ASKPASS",
    "CLICOLOR_FORCE",
    "FORCE_COLOR",
    "COLORTERM",
    "PWD",
    "OLDPWD",
];

/// Builds the environment of a child: the given variables without credentials, plus the neutral settings. `exceptions`
/// are names that the configuration permits although they look secret.
pub fn child_env(
    vars: impl IntoIterator<Item = (OsString, OsString)>,
    exceptions: &[String],
) -> Vec<(OsString, OsString)> {
    let excepted = |name: &OsStr| {
        exceptions
            .iter()
            .any(|exception| name == exception.as_str())
    };
    let mut kept: Vec<(OsString, OsString)> = vars
        .into_iter()
        .filter(|(name, _)| excepted(name) || passes(name))
        .collect();
    kept.extend(neutral_env().filter(|(name, _)| !excepted(name)));
    kept
}

/// Returns only the neutral settings.
pub(crate) fn neutral_env() -> impl Iterator<Item = (OsString, OsString)> {
    NEUTRAL
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)))
}

fn passes(name: &OsStr) -> bool {
    let neutral = NEUTRAL.iter().map(|(name, _)| name);
    let mut removed = neutral.chain(&GIT_PLACES).chain(&DROPPED);
    !removed.any(|other| name == *other) && !keeps_secret(&name.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, passes: bool) {
        let vars = [(OsString::from(name), OsString::from("v"))];
        let child = child_env(vars, &["NPM_TOKEN".to_owned()]);
        let found = child
            .iter()
            .any(|(found, value)| found == name && value == "v");
        assert_eq!(found, passes, "{name}");
    }

    #[test]
    fn credentials_are_dropped_by_the_words_of_their_name() {
        for name in [
            "ANTHROPIC_API_KEY",
            "OPENAI_APIKEY",
            "MYAPIKEY",
            "KEY",
            "GITHUB_TOKEN",
            "TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "DB_PASSWORD",
            "MYSQL_PASSWD",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "X_CREDENTIAL",
            "SSH_AUTH_SOCK",
            "npm_config__auth",
            "api_key",
            "HTTP_COOKIE",
            "SESSION_ID",
        ] {
            check(name, false);
        }
    }

    #[test]
    fn ordinary_names_pass_even_if_they_contain_such_words() {
        for name in [
            "PATH",
            "HOME",
            "LANG",
            "KEYBOARD",
            "MONKEY",
            "TOKENIZERS_PARALLELISM",
            "AUTHOR",
            "GIT_AUTHOR_NAME",
            "GIT_COMMITTER_EMAIL",
            "XDG_SESSION_ID",
            "XDG_RUNTIME_DIR",
            "DBUS_SESSION_BUS_ADDRESS",
            "CARGO_HOME",
            "NPM_TOKEN", // named as an exception
        ] {
            check(name, true);
        }
    }

    #[test]
    fn variables_that_wait_for_a_person_or_point_elsewhere_are_replaced() {
        for name in [
            "PAGER",
            "EDITOR",
            "TERM",
            "GIT_DIR",
            "PWD",
            "SSH_ASKPASS",
            "FORCE_COLOR",
            "BASH_ENV",
        ] {
            check(name, false);
        }
        let child = child_env([("PAGER".into(), "less".into())], &[]);
        let pagers: Vec<_> = child.iter().filter(|(name, _)| name == "PAGER").collect();
        assert_eq!(pagers, [&("PAGER".into(), "cat".into())]);
        let kept = child_env([("TERM".into(), "xterm".into())], &["TERM".to_owned()]);
        assert!(kept.contains(&("TERM".into(), "xterm".into())));
        assert!(!kept.contains(&("TERM".into(), "dumb".into())));
    }
}
