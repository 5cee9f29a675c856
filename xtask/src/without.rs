//! `cargo xtask without FEATURE … -- COMMAND`: runs a command as on a kernel that lacks a feature. A seccomp filter
//! does that, which the command and all its descendants inherit. The machine itself is not changed.

#[cfg(target_os = "linux")]
mod filters;

use anyhow::{Context as _, Result, bail};

use crate::unknown;

/// A kernel feature that can be disabled for one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Every namespace, also for root, as with the filter of a container.
    Namespaces,
    /// User namespaces only, as with `user.max_user_namespaces=0`; root can still create the others.
    UserNamespaces,
    /// A user namespace can be created but gives no capabilities, as with AppArmor on Ubuntu 24.04.
    NamespaceCapabilities,
    /// The Landlock system calls.
    Landlock,
    /// Seccomp filters that report to a listener.
    Notifications,
    /// Taking a file descriptor out of another process; Docker's default profile forbids it.
    PidfdGetfd,
    /// Reading another process with `ptrace` and similar calls.
    Ptrace,
}

impl Feature {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Namespaces,
        Self::UserNamespaces,
        Self::NamespaceCapabilities,
        Self::Landlock,
        Self::Notifications,
        Self::PidfdGetfd,
        Self::Ptrace,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::UserNamespaces => "user-namespaces",
            Self::NamespaceCapabilities => "namespace-capabilities",
            Self::Landlock => "landlock",
            Self::Notifications => "notifications",
            Self::PidfdGetfd => "pidfd-getfd",
            Self::Ptrace => "ptrace",
        }
    }

    pub(crate) fn parse(name: &str) -> Result<Self> {
        let found = Self::ALL
            .iter()
            .copied()
            .find(|feature| feature.name() == name);
        found.with_context(|| {
            unknown(
                "feature",
                name,
                Self::ALL.iter().map(|feature| feature.name()),
            )
        })
    }
}

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct WithoutRequest<'a> {
    features: Vec<Feature>,
    /// The user and group id that the command runs with; unchanged if `None`.
    uid: Option<u32>,
    command: &'a [String],
}

impl<'a> WithoutRequest<'a> {
    fn parse(args: &'a [String]) -> Result<Self> {
        let usage = "usage: cargo xtask without FEATURE … [--uid N] -- COMMAND …";
        let dashes = args.iter().position(|arg| arg == "--").context(usage)?;
        let (options, command) = (&args[..dashes], &args[dashes + 1..]);
        if command.is_empty() {
            bail!("{usage}");
        }
        let (mut features, mut uid) = (Vec::new(), None);
        let mut options = options.iter();
        while let Some(option) = options.next() {
            if option == "--uid" {
                let value = options.next().context("--uid needs a number")?;
                uid = Some(
                    value
                        .parse()
                        .with_context(|| format!("--uid needs a number, not `{value}`"))?,
                );
            } else {
                features.push(Feature::parse(option)?);
            }
        }
        Ok(Self {
            features,
            uid,
            command,
        })
    }
}

/// Replaces this process by the command; returns only if that fails.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let request = WithoutRequest::parse(args)?;
    become_command(&request)
}

#[cfg(target_os = "linux")]
fn become_command(request: &WithoutRequest<'_>) -> Result<()> {
    use std::os::unix::process::CommandExt as _;

    let (program, args) = request.command.split_first().context("no command")?;
    filters::install(&request.features)?;
    let mut command = std::process::Command::new(program);
    command.args(args);
    if let Some(uid) = request.uid {
        command.uid(uid).gid(uid);
    }
    Err(command.exec()).with_context(|| format!("`{program}` could not be started"))
}

#[cfg(not(target_os = "linux"))]
fn become_command(_: &WithoutRequest<'_>) -> Result<()> {
    bail!("`cargo xtask without` needs the seccomp filters of Linux")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(args: &[&str], expect: Result<(&[Feature], Option<u32>, usize), &str>) {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        match (WithoutRequest::parse(&args), expect) {
            (Ok(request), Ok((features, uid, words))) => {
                assert_eq!(
                    (&*request.features, request.uid, request.command.len()),
                    (features, uid, words)
                );
            }
            (Err(err), Err(expect)) => assert!(err.to_string().contains(expect), "{err}"),
            (found, expect) => panic!("{found:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn features_and_a_command_are_needed() {
        check(
            &["landlock", "--", "true"],
            Ok((&[Feature::Landlock], None, 1)),
        );
        check(
            &["namespaces", "landlock", "--uid", "7", "--", "a", "--", "b"],
            Ok((&[Feature::Namespaces, Feature::Landlock], Some(7), 3)),
        );
        check(&["--", "true"], Ok((&[], None, 1)));
        check(
            &["namespace", "--", "true"],
            Err("did you mean `namespaces`?"),
        );
        check(&["landlock", "true"], Err("usage"));
        check(&["landlock", "--"], Err("usage"));
        check(&["--uid", "me", "--", "true"], Err("not `me`"));
    }
}
