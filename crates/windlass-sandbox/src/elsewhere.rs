//! The same wishes in the words of other systems, as pure functions. Nothing here was run on those systems: the
//! documentation marks them as unverified, and the engine does not offer them as a kernel sandbox.

use std::path::Path;

use crate::spec::{Access, Net, Protection, Spec};

/// A profile for `sandbox-exec` on macOS: nothing is allowed but what is said.
#[must_use]
pub fn seatbelt_profile(spec: &Spec) -> String {
    let mut lines = vec![
        "(version 1)".to_owned(),
        "(deny default)".to_owned(),
        "(allow process-exec process-fork signal (target same-sandbox))".to_owned(),
        "(allow sysctl-read mach-lookup ipc-posix-shm)".to_owned(),
        "(allow file-read-metadata)".to_owned(),
    ];
    for place in [
        "/usr",
        "/bin",
        "/sbin",
        "/System",
        "/Library",
        "/opt",
        "/etc",
        "/private/etc",
        "/dev",
    ] {
        lines.push(format!(
            "(allow file-read* (subpath {}))",
            quoted(Path::new(place))
        ));
    }
    let shown = spec
        .read
        .iter()
        .chain(&spec.write)
        .chain(&spec.caches)
        .chain([&spec.root]);
    lines.extend(shown.map(|place| format!("(allow file-read* (subpath {}))", quoted(place))));
    let root = (spec.access == Access::Write).then_some(&spec.root);
    let written = spec
        .write
        .iter()
        .chain(&spec.caches)
        .chain(root)
        .chain(&spec.scratch);
    lines.extend(written.map(|place| format!("(allow file-write* (subpath {}))", quoted(place))));
    if let Some(home) = &spec.agent {
        lines.push(format!(
            "(allow file-read* file-write* (subpath {}))",
            quoted(&home.from)
        ));
        lines.extend(
            home.files
                .iter()
                .map(|(from, _)| format!("(allow file-read* (literal {}))", quoted(from))),
        );
    }
    lines.push("(allow file-write* (literal \"/dev/null\") (literal \"/dev/tty\"))".to_owned());
    // Later rules count over earlier ones.
    for name in spec
        .protect
        .iter()
        .filter(|name| name.how != Protection::Pinned)
    {
        lines.push(format!(
            "(deny file-write* (subpath {}))",
            quoted(&name.base.join(&name.name))
        ));
    }
    for path in &spec.hide {
        lines.push(format!(
            "(deny file-read* file-write* (subpath {}))",
            quoted(path)
        ));
    }
    match spec.net {
        Net::Off => lines.push("(deny network*)".to_owned()),
        Net::Loopback | Net::Proxy => {
            lines.push("(deny network*)".to_owned());
            lines.push(
                "(allow network* (local ip \"localhost:*\") (remote ip \"localhost:*\"))"
                    .to_owned(),
            );
        }
        Net::Open => lines.push("(allow network*)".to_owned()),
    }
    lines.join("\n") + "\n"
}

fn quoted(path: &Path) -> String {
    let text = path
        .to_string_lossy()
        .replace('\\', "\\\\")
        .replace('"', "\\\"");
    format!("\"{text}\"")
}

/// The words that run a command of ours in the Windows Subsystem for Linux, where the Linux sandbox holds it. Words go
/// as they are: nothing on the way is a shell.
#[must_use]
pub fn wsl_command(distribution: Option<&str>, directory: &str, command: &[String]) -> Vec<String> {
    let mut words = vec!["wsl.exe".to_owned()];
    if let Some(name) = distribution {
        words.extend(["--distribution".to_owned(), name.to_owned()]);
    }
    words.extend(["--cd", directory, "--exec", "windlass", "sandbox", "--"].map(str::to_owned));
    words.extend(command.iter().cloned());
    words
}

/// The words that show, set up or end the subsystem.
#[must_use]
pub fn wsl_control(wish: WslWish) -> Vec<String> {
    let words: &[&str] = match wish {
        WslWish::Status => &["wsl.exe", "--list", "--verbose"],
        WslWish::SetUp => &["wsl.exe", "--install", "--no-launch"],
        WslWish::Reset => &["wsl.exe", "--shutdown"],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What is wanted of the subsystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WslWish {
    /// What there is.
    Status,
    /// To have one.
    SetUp,
    /// To have it begin anew.
    Reset,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{AgentHome, Protected};

    fn spec(access: Access, net: Net) -> Spec {
        let root = std::path::PathBuf::from("/w s/\"x");
        Spec {
            access,
            net,
            read: vec!["/tools".into()],
            caches: vec!["/c".into()],
            agent: Some(AgentHome {
                from: "/h".into(),
                files: vec![("/auth".into(), "auth".into())],
            }),
            hide: vec![root.join(".env")],
            protect: vec![Protected {
                base: root.clone(),
                name: ".git/hooks".into(),
                how: Protection::Frozen,
            }],
            ..Spec::around(root)
        }
    }

    #[test]
    fn a_profile_forbids_all_and_allows_what_is_shown() {
        let profile = seatbelt_profile(&spec(Access::Write, Net::Off));
        assert!(
            profile.starts_with("(version 1)\n(deny default)\n"),
            "{profile}"
        );
        for line in [
            "(allow file-read* (subpath \"/tools\"))",
            "(allow file-write* (subpath \"/w s/\\\"x\"))",
            "(allow file-read* file-write* (subpath \"/h\"))",
            "(allow file-read* (literal \"/auth\"))",
            "(deny file-write* (subpath \"/w s/\\\"x/.git/hooks\"))",
            "(deny file-read* file-write* (subpath \"/w s/\\\"x/.env\"))",
            "(deny network*)",
        ] {
            assert!(profile.lines().any(|one| one == line), "{line}\n{profile}");
        }
        let looking = seatbelt_profile(&spec(Access::ReadOnly, Net::Open));
        assert!(
            !looking.contains("(allow file-write* (subpath \"/w s"),
            "{looking}"
        );
        assert!(looking.contains("(allow network*)"), "{looking}");
    }

    #[test]
    fn words_for_the_subsystem_stay_words() {
        let command = ["sh".to_owned(), "-c".to_owned(), "a; b && c".to_owned()];
        let words = wsl_command(Some("Debian"), "/home/u/p", &command);
        assert_eq!(
            words[..6].join(" "),
            "wsl.exe --distribution Debian --cd /home/u/p --exec"
        );
        assert_eq!(words.last().map(String::as_str), Some("a; b && c"));
        assert_eq!(wsl_control(WslWish::Reset).join(" "), "wsl.exe --shutdown");
    }
}
