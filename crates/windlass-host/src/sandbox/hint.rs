//! Explains a failed command if the sandbox may be the cause: the rule, and the way to grant more.

use windlass_sandbox::Access;

use super::{NetPolicy, Tier};

/// The number of bytes at the end of the output that are searched.
const SEARCHED_BYTES: usize = 4096;

/// Returns the explanation, if the output has traces of the sandbox.
pub(super) fn hint(
    output: &str,
    access: Access,
    net: &NetPolicy,
    refused: &[String],
    tier: Tier,
) -> Option<String> {
    let start = output.len().saturating_sub(SEARCHED_BYTES);
    let tail = output
        .get(start..)
        .or_else(|| output.get(start + 1..))
        .unwrap_or(output)
        .to_lowercase();
    let has = |signs: &[&str]| signs.iter().any(|sign| tail.contains(sign));
    if !refused.is_empty() {
        let hosts = refused.join(", ");
        let grant = net.with(&refused.join(","));
        return Some(format!(
            "the sandbox refused connections to {hosts}; grant them with `--net {grant}` (setting `sandbox.net`)"
        ));
    }
    if tier == Tier::Broker && has(&["permission denied", "os error 13", "eacces"]) {
        return Some(
            "without namespaces commands work on a copy: use paths relative to the working directory, $TMPDIR instead of \
             /tmp, and $HOME as it is. Further paths can be granted with the settings `sandbox.read` and \
             `sandbox.write`"
                .to_owned(),
        );
    }
    if *net != NetPolicy::Open && has(NETWORK) {
        return Some(format!(
            "the network policy for commands is `{net}`; a person can open it with `--net loopback`, `--net registries` or \
             `--net allow:HOST` (setting `sandbox.net`)"
        ));
    }
    if has(&["read-only file system", "os error 30", "erofs"]) {
        let what = match access {
            Access::ReadOnly => {
                "the sandbox is read-only for commands (`--sandbox workspace-write` lets them change files)"
            }
            Access::Write => {
                "the sandbox lets commands write in the workspace, in /tmp and in tool caches; files that other \
                 programs execute or obey are not writable. Further paths can be granted with the setting `sandbox.write`"
            }
        };
        return Some(what.to_owned());
    }
    if has(&["device or resource busy", "os error 16", "ebusy"]) {
        return Some(
            "commands cannot change git's settings and hooks, or files that other programs execute or obey; \
             a person can change them outside the sandbox"
                .to_owned(),
        );
    }
    if has(&[
        "no such device or address",
        "os error 6)",
        "enxio",
        "unsupported file type",
        "can only add regular files",
    ]) {
        return Some(
            "credentials are hidden from commands, even those that git tracks; a person can show a path with the \
             setting `sandbox.read`"
                .to_owned(),
        );
    }
    None
}

const NETWORK: &[&str] = &[
    "network is unreachable",
    "could not resolve host",
    "temporary failure in name resolution",
    "name or service not known",
    "failed to lookup address",
    "enetunreach",
    "eai_again",
    "enotfound",
    "getaddrinfo",
    "cannot assign requested address",
    "eaddrnotavail",
    "no route to host",
    "dns error",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, expect: &str) {
        let got = hint(
            output,
            Access::Write,
            &NetPolicy::Off,
            &[],
            Tier::Namespaces,
        )
        .unwrap_or_default();
        assert!(
            got.contains(expect) && got.is_empty() == expect.is_empty(),
            "{output}: {got}"
        );
    }

    #[test]
    fn a_failure_names_its_rule_and_the_grant() {
        check(
            "touch: cannot touch '/etc/x': Read-only file system",
            "sandbox.write",
        );
        check("curl: (6) Could not resolve host: example.com", "--net");
        check(
            "error: could not write config file .git/config: Device or resource busy",
            "outside the sandbox",
        );
        check("cat: .env: No such device or address", "sandbox.read");
        check(
            "error: tests/a.pem: can only add regular files, symbolic links or git-directories",
            "sandbox.read",
        );
        check("assertion failed: 1 == 2", "");
        let refused = hint(
            "x",
            Access::Write,
            &"allow:a.b".parse().expect("a policy"),
            &["c.d".into()],
            Tier::Broker,
        );
        assert!(refused.is_some_and(|text| text.contains("--net allow:a.b,c.d")));
        let open = hint(
            "network is unreachable",
            Access::Write,
            &NetPolicy::Open,
            &[],
            Tier::Broker,
        );
        assert_eq!(open, None);
        // A cut inside a character must not panic.
        check(&"é".repeat(5000), "");
    }
}
