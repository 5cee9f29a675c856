//! Names that indicate secrets (spec 5.2): paths of credentials, and environment variables that child processes do not
//! get.

use super::NameTable;

/// Whether a path names a file with credentials (spec 5.2).
#[must_use]
pub fn is_credential(path: &str) -> bool {
    let lower = path.to_lowercase().replace('\\', "/");
    let lower = lower.trim_matches(|c| matches!(c, '"' | '\''));
    let parts: Vec<&str> = lower
        .split('/')
        .map(trimmed)
        .filter(|part| !part.is_empty())
        .collect();
    let Some((name, folders)) = parts.split_last() else {
        return false;
    };
    let in_folder = |names: &[&str]| parts.iter().any(|part| names.contains(part));
    if (*name == ".env" || name.starts_with(".env."))
        && !SAMPLES.iter().any(|sample| name.ends_with(sample))
    {
        return true;
    }
    let ends = [".pem", ".key", ".p12", ".pfx"];
    if ends
        .iter()
        .any(|end| name.ends_with(end) && name.len() > end.len())
    {
        return true;
    }
    if KEY_FILES.contains(name) || in_folder(&[".ssh", ".aws", ".azure", ".gnupg"]) {
        return true;
    }
    let tail = |folder: &str, file: &str| *name == file && folders.last() == Some(&folder);
    let below = |trail: &[&str]| parts.windows(trail.len()).any(|window| window == trail);
    if tail(".kube", "config")
        || tail(".docker", "config.json")
        || KEY_FOLDERS.iter().any(|trail| below(trail))
    {
        return true;
    }
    // The environment of a process, which may contain keys.
    if lower.starts_with("/proc/") && *name == "environ" {
        return true;
    }
    if lower.starts_with("/etc/shadow")
        || lower.starts_with("/etc/gshadow")
        || lower.starts_with("/etc/sudoers")
    {
        return true;
    }
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let at_home =
        matches!(*name, ".npmrc" | ".pypirc") && (lower.starts_with('/') || lower.starts_with('~'));
    at_home
        || (matches!(stem, "credentials" | "secrets")
            && matches!(
                extension,
                "" | "json" | "yaml" | "yml" | "toml" | "ini" | "txt"
            ))
}

/// Whether an environment variable of that name is withheld from child processes (spec 5.2).
#[must_use]
pub fn keeps_secret(name: &str) -> bool {
    let upper = name.to_uppercase();
    if ["GIT_AUTHOR_", "GIT_COMMITTER_", "XDG_", "DBUS_"]
        .iter()
        .any(|free| upper.starts_with(free))
    {
        return false;
    }
    // In addition to the list of the spec: names from which well-known programs take passwords and tokens.
    let ending = ["APIKEY", "PASSWORD", "TOKEN", "_PWD", "_PAT"]
        .iter()
        .any(|ending| upper.ends_with(ending));
    ending
        || upper.split('_').any(|word| {
            matches!(
                word,
                "KEY"
                    | "APIKEY"
                    | "TOKEN"
                    | "SECRET"
                    | "PASSWORD"
                    | "PASSWD"
                    | "CREDENTIAL"
                    | "CREDENTIALS"
                    | "AUTH"
                    | "COOKIE"
                    | "SESSION"
            )
        })
}

/// Some file systems drop dots and spaces at the end of a name, so `.git.` is the same as `.git` there.
pub(super) fn trimmed(part: &str) -> &str {
    part.trim_end_matches([' ', '.'])
}

const SAMPLES: &[&str] = &[".example", ".sample", ".template"];
const KEY_FILES: NameTable =
    NameTable(".credentials id_rsa id_dsa id_ecdsa id_ed25519 .netrc .git-credentials .pgpass");
const KEY_FOLDERS: &[&[&str]] = &[
    &[".config", "gcloud"],
    &[".local", "share", "keyrings"],
    &["library", "keychains"],
    &[".mozilla", "firefox"],
    &[".config", "google-chrome"],
    &[".config", "chromium"],
    &["application support", "google", "chrome"],
    &["application support", "firefox"],
];
