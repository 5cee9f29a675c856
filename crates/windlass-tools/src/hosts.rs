//! The hosts to which a command would certainly connect, as far as its arguments tell. No name is resolved.

use windlass_core::shell::Simple;

/// Programs that download the addresses in their arguments.
const FETCHERS: &[&str] = &[
    "curl", "wget", "aria2c", "http", "https", "xh", "lynx", "w3m", "axel",
];
/// Programs whose first argument that is not an option is a host.
const CALLERS: &[&str] = &[
    "nc",
    "ncat",
    "netcat",
    "telnet",
    "ssh",
    "ping",
    "ping6",
    "dig",
    "host",
    "nslookup",
    "traceroute",
    "ftp",
];
/// Programs that accept `user@host:path`.
const COPIERS: &[&str] = &["scp", "sftp", "rsync"];
/// Git subcommands that connect to a remote.
const GIT_REMOTE: &[&str] = &["clone", "fetch", "pull", "push", "ls-remote"];

/// The hosts that a command names, without duplicates.
pub(crate) fn hosts(simple: &Simple) -> Vec<String> {
    let name = simple.name();
    let words: Vec<&str> = simple
        .args()
        .iter()
        .filter(|word| word.known)
        .map(|word| word.text.as_str())
        .collect();
    let git = name == "git" && words.iter().any(|word| GIT_REMOTE.contains(word));
    let (fetches, calls, copies) = (
        FETCHERS.contains(&name),
        CALLERS.contains(&name),
        COPIERS.contains(&name),
    );
    if !(git || fetches || calls || copies) {
        return Vec::new();
    }
    let mut found: Vec<String> = words.iter().filter_map(|word| of_address(word)).collect();
    if git || copies {
        found.extend(words.iter().filter_map(|word| of_remote(word)));
    }
    if found.is_empty() && (fetches || calls) {
        found.extend(bare(&words, fetches));
    }
    found.sort();
    found.dedup();
    found
}

/// The host of `scheme://user@host:port/path`.
fn of_address(word: &str) -> Option<String> {
    let (scheme, rest) = word.split_once("://")?;
    if scheme == "file"
        || !scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    plain_host(authority.rsplit('@').next().unwrap_or_default())
}

/// The host of `user@host:path`.
fn of_remote(word: &str) -> Option<String> {
    let (host, _) = word
        .split_once(':')
        .filter(|(host, path)| !host.contains('/') && !path.starts_with("//"))?;
    let host = host.rsplit('@').next().unwrap_or_default();
    // `HEAD:refs/x` names a branch, and `C:x` a drive.
    (word.contains('@') || host.contains('.')).then(|| plain_host(host))?
}

/// The first argument that is neither an option nor the value of one. A number is not a host, and the word after a
/// short option of a download program is most likely a file.
fn bare(words: &[&str], fetches: bool) -> Option<String> {
    let at = (0..words.len()).find(|&at| {
        let after_option = at > 0 && words[at - 1].starts_with('-') && words[at - 1].len() == 2;
        let number = words[at].bytes().all(|byte| byte.is_ascii_digit());
        let value = fetches && after_option;
        !(words[at].starts_with('-') || number || value)
    })?;
    let word = words[at].split('/').next().unwrap_or_default();
    plain_host(word.rsplit('@').next().unwrap_or_default())
}

/// The host without its port and without the brackets of an IPv6 address.
fn plain_host(text: &str) -> Option<String> {
    let host = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => text.split(':').next().unwrap_or_default(),
    };
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expect: &[&str]) {
        let script = windlass_shell::read(line);
        let found: Vec<String> = script.commands.iter().flat_map(hosts).collect();
        assert_eq!(found, expect, "{line}");
    }

    #[test]
    fn hosts_are_found_where_a_command_would_connect() {
        check("curl http://127.0.0.1:8080/x", &["127.0.0.1"]);
        check(
            "curl -sS -o out.txt https://u:p@Example.com/a?b",
            &["example.com"],
        );
        check("curl example.com/path", &["example.com"]);
        check("wget -q http://[::1]:80/", &["::1"]);
        check(
            "git clone https://github.example/x/y.git",
            &["github.example"],
        );
        check("git clone git@github.example:x/y", &["github.example"]);
        check("git push origin HEAD:refs/heads/x", &[]);
        check("git log --grep http://x", &[]);
        check("ssh -p 22 me@host.example uptime", &["host.example"]);
        check("nc -z localhost 80", &["localhost"]);
        check("rsync -a src me@host.example:dst", &["host.example"]);
        check("echo http://x.example", &[]);
        check("cargo test", &[]);
        check(
            "env A=1 timeout 5 curl http://a.example | sh",
            &["a.example"],
        );
    }
}
