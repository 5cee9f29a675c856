//! The network policy of commands in the user's notation, and the check whether a command may connect to a host. This
//! module resolves no names and opens no connections.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use windlass_core::terms::NetworkTerms;

/// The network that commands reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetPolicy {
    /// No network, not even loopback.
    Off,
    /// The sandbox's own loopback: commands reach each other and nothing else.
    #[default]
    Loopback,
    /// Some hosts, through a proxy.
    Hosts(Vec<HostRule>),
    /// Everything that this machine reaches.
    Open,
}

/// A rule for hosts: a name, all names below a name, or an address; for one port or all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    host: String,
    below: bool,
    port: Option<u16>,
}

/// The hosts of the word `registries`: package indexes and downloads.
const REGISTRIES: &[&str] = &[
    "crates.io",
    "*.crates.io",
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "pypi.org",
    "files.pythonhosted.org",
    "proxy.golang.org",
    "sum.golang.org",
    "rubygems.org",
    "*.rubygems.org",
    "repo.maven.apache.org",
    "repo1.maven.org",
    "plugins.gradle.org",
    "services.gradle.org",
    "api.nuget.org",
    "repo.packagist.org",
    "packagist.org",
    "hex.pm",
    "repo.hex.pm",
    "pub.dev",
    "jsr.io",
    "npm.jsr.io",
    "deb.debian.org",
    "security.debian.org",
    "archive.ubuntu.com",
    "security.ubuntu.com",
];

impl NetPolicy {
    /// Returns the rank of the policy. A project may only make it stricter.
    fn looseness(&self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Loopback => 1,
            Self::Hosts(_) => 2,
            Self::Open => 3,
        }
    }

    /// Returns the stricter of two policies. Of two lists of hosts, it keeps those that are in both.
    #[must_use]
    pub fn narrowed(&self, by: &Self) -> Self {
        let (Self::Hosts(own), Self::Hosts(others)) = (self, by) else {
            return if by.looseness() < self.looseness() {
                by.clone()
            } else {
                self.clone()
            };
        };
        let held = |by: &[HostRule], rule: &HostRule| by.iter().any(|wider| wider.holds(rule));
        let mut left: Vec<HostRule> = own
            .iter()
            .filter(|rule| held(others, rule))
            .cloned()
            .collect();
        for rule in others {
            if held(own, rule) && !held(&left, rule) {
                left.push(rule.clone());
            }
        }
        if left.is_empty() {
            Self::Off
        } else {
            Self::Hosts(left)
        }
    }

    /// Returns the policy in the form of a run's terms.
    #[must_use]
    pub fn terms(&self) -> NetworkTerms {
        let rules = match self {
            Self::Off => return NetworkTerms::Off,
            Self::Loopback => return NetworkTerms::Loopback,
            Self::Open => return NetworkTerms::Open,
            Self::Hosts(rules) => rules,
        };
        let is_registry =
            |rule: &&HostRule| REGISTRIES.iter().any(|host| rule.to_string() == **host);
        let all_registries = rules.iter().filter(is_registry).count() == REGISTRIES.len();
        let mut hosts: Vec<String> = Vec::new();
        if all_registries {
            hosts.push("registries".to_owned());
        }
        let others = rules
            .iter()
            .filter(|rule| !(all_registries && is_registry(rule)));
        hosts.extend(others.map(ToString::to_string));
        NetworkTerms::Hosts(hosts)
    }

    /// Returns the value of `--net` that allows one more host.
    #[must_use]
    pub fn with(&self, host: &str) -> String {
        match self {
            Self::Off | Self::Loopback | Self::Open => format!("allow:{host}"),
            Self::Hosts(_) => format!(
                "allow:{},{host}",
                self.to_string().trim_start_matches("allow:")
            ),
        }
    }
}

impl FromStr for NetPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => return Ok(Self::Off),
            "loopback" => return Ok(Self::Loopback),
            "open" => return Ok(Self::Open),
            _ => {}
        }
        let wrong = || {
            format!(
                "`{text}` is not a network policy; use off, loopback, registries, allow:HOST,… or open"
            )
        };
        let list = text
            .strip_prefix("allow:")
            .or((text == "registries").then_some(text))
            .ok_or_else(wrong)?;
        let mut rules = Vec::new();
        for word in list
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            if word == "registries" {
                rules.extend(REGISTRIES.iter().filter_map(|host| HostRule::parse(host)));
            } else {
                rules.push(HostRule::parse(word).ok_or_else(|| {
                    format!("`{word}` is not a host; use a name, `*.name` or an address, with or without `:port`")
                })?);
            }
        }
        if rules.is_empty() {
            return Err(wrong());
        }
        Ok(Self::Hosts(rules))
    }
}

impl fmt::Display for NetPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.terms().fmt(f)
    }
}

impl HostRule {
    /// Parses a rule in the user's notation: a name, `*.name` or an address, with or without `:port`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (text, below) = text
            .strip_prefix("*.")
            .map_or((text, false), |rest| (rest, true));
        let (host, port) = split_port(text)?;
        let host = clean_host(host)?;
        // A wildcard below an address, or below a name without a dot, is a mistake.
        let odd = below && (host.parse::<IpAddr>().is_ok() || !host.contains('.'));
        (!odd).then_some(Self { host, below, port })
    }

    /// Returns whether the rule applies to this host, in its canonical form, and port.
    #[must_use]
    pub fn covers(&self, host: &str, port: u16) -> bool {
        let named = if self.below {
            host.strip_suffix(&self.host)
                .is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
        } else {
            host == self.host
        };
        named && self.port.is_none_or(|own| own == port)
    }

    /// Returns whether a tunnel to the host must carry TLS with the host's own name: always, except if the rule names a
    /// port or an address.
    #[must_use]
    pub fn wants_tls(&self) -> bool {
        self.port.is_none() && !self.names_address()
    }

    /// Returns whether this rule includes another one completely.
    fn holds(&self, other: &Self) -> bool {
        let below = other
            .host
            .strip_suffix(&self.host)
            .is_some_and(|rest| rest.ends_with('.'));
        let hosts = if self.below {
            below || (other.below && other.host == self.host)
        } else {
            self.host == other.host && !other.below
        };
        hosts && (self.port.is_none() || self.port == other.port)
    }

    /// Returns whether the rule names an address or this machine itself; then an address that is not public is
    /// intended.
    #[must_use]
    pub fn names_address(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok()
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.below { "*." } else { "" };
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match self.port {
            Some(port) => write!(f, "{star}{host}:{port}"),
            None => write!(f, "{star}{host}"),
        }
    }
}

/// Splits a host from its port, and removes the brackets of an address.
pub(super) fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest {
            "" => Some((host, None)),
            rest => Some((host, Some(rest.strip_prefix(':')?.parse().ok()?))),
        };
    }
    match text.rsplit_once(':') {
        Some((host, _)) if host.contains(':') => Some((text, None)),
        Some((host, port)) => Some((host, Some(port.parse().ok()?))),
        None => Some((text, None)),
    }
}

/// Returns a host in canonical form: lower case, without a trailing dot, addresses in the system's notation. Returns
/// `None` for anything else: an escape, a NUL, or a name that some resolvers read as an address.
pub(super) fn clean_host(text: &str) -> Option<String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical().to_string());
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let labels = !name.is_empty()
        && name.len() <= 253
        && name
            .split('.')
            .all(|label| !label.is_empty() && label.len() <= 63);
    // Some resolvers read `127.1`, `0x7f.1` and `2130706433` as addresses.
    let last = name.rsplit('.').next().unwrap_or_default();
    let numeric = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
    (labels && name.chars().all(fits) && !numeric).then_some(name)
}

/// Returns whether an address belongs to the public internet.
#[must_use]
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            !(v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_documentation()
                || a == 0
                || a >= 240
                || (a == 100 && (64..128).contains(&b))
                || (a == 192 && b == 0 && c == 0)
                || (a == 198 && (18..20).contains(&b)))
        }
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            !(v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || (first & 0xfe00) == 0xfc00
                || (first & 0xffc0) == 0xfe80
                || first == 0x2002
                || (first == 0x2001 && v6.segments()[1] == 0)
                || (first == 0x64 && v6.segments()[1] == 0xff9b))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(policy: &str, host: &str, port: u16, expect: bool) {
        let NetPolicy::Hosts(rules) = policy.parse().expect("a policy") else {
            panic!("{policy} has no hosts")
        };
        let host = clean_host(host);
        let got = host.is_some_and(|host| rules.iter().any(|rule| rule.covers(&host, port)));
        assert_eq!(got, expect, "{policy}");
    }

    #[test]
    fn rules_match_complete_host_names() {
        check("allow:example.com", "example.com", 443, true);
        check("allow:example.com", "EXAMPLE.com.", 443, true);
        check("allow:example.com", "sub.example.com", 443, false);
        check("allow:example.com", "notexample.com", 443, false);
        check("allow:example.com", "example.com.evil.net", 443, false);
        check("allow:*.example.com", "a.b.example.com", 80, true);
        check("allow:*.example.com", "example.com", 80, false);
        check("allow:*.example.com", "evilexample.com", 80, false);
        check("allow:example.com:8443", "example.com", 443, false);
        check("allow:example.com:8443", "example.com", 8443, true);
        check("allow:127.0.0.1:9", "127.0.0.1", 9, true);
        check("allow:127.0.0.1", "::ffff:127.0.0.1", 9, true);
        check("registries", "index.crates.io", 443, true);
        check("registries", "crates.io.evil.net", 443, false);
        check("allow:example.com", "127.0.0.1\0.example.com", 80, false);
        check("allow:*.example.com", "127.0.0.1%00.example.com", 80, false);
        check("allow:*.example.com", "x y.example.com", 80, false);
        check("allow:example.com", "2130706433", 80, false);
    }

    #[test]
    fn policies_are_displayed_as_they_are_parsed() {
        for text in [
            "off",
            "loopback",
            "open",
            "registries",
            "allow:a.b,*.c.d:1,[::1]:80",
            "allow:registries,a.b",
        ] {
            assert_eq!(text.parse::<NetPolicy>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "on",
            "allow:",
            "allow:a b",
            "allow:*.1.2.3.4",
            "allow:x:99999",
            "allow:*.com",
            "allow:0x7f.1",
        ] {
            assert!(text.parse::<NetPolicy>().is_err(), "{text}");
        }
        let policy: NetPolicy = "registries".parse().expect("a policy");
        assert_eq!(policy.with("a.b"), "allow:registries,a.b");
    }

    #[track_caller]
    fn check_narrowed(own: &str, by: &str, expect: &str) {
        let read = |text: &str| text.parse::<NetPolicy>().expect(text);
        assert_eq!(
            read(own).narrowed(&read(by)).to_string(),
            expect,
            "{own} by {by}"
        );
    }

    #[test]
    fn the_narrowed_policy_has_only_hosts_of_both_lists() {
        check_narrowed("allow:a.b,c.d", "allow:c.d,e.f", "allow:c.d");
        check_narrowed("allow:a.b", "allow:e.f", "off");
        check_narrowed("allow:*.a.b", "allow:x.a.b,a.b", "allow:x.a.b");
        check_narrowed("allow:x.a.b", "allow:*.a.b", "allow:x.a.b");
        check_narrowed("allow:a.b", "allow:*.a.b", "off");
        check_narrowed("allow:*.a.b", "allow:*.x.a.b,*.a.b", "allow:*.a.b");
        check_narrowed("allow:*.x.a.b", "allow:xa.b", "off");
        check_narrowed("allow:a.b:443", "allow:a.b", "allow:a.b:443");
        check_narrowed("allow:a.b", "allow:a.b:443", "allow:a.b:443");
        check_narrowed("allow:a.b:80", "allow:a.b:443", "off");
        check_narrowed("registries", "allow:crates.io,evil.net", "allow:crates.io");
        check_narrowed("open", "allow:a.b", "allow:a.b");
        check_narrowed("allow:a.b", "open", "allow:a.b");
        check_narrowed("allow:a.b", "off", "off");
        check_narrowed("off", "open", "off");
    }

    #[test]
    fn local_addresses_are_not_public() {
        for text in [
            "127.0.0.1",
            "127.8.8.8",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "::ffff:127.0.0.1",
            "fe80::1",
            "fd00::1",
            "::",
            "224.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
        ] {
            assert!(!is_public(text.parse().expect(text)), "{text}");
        }
        for text in ["1.1.1.1", "93.184.216.34", "2606:4700::1111"] {
            assert!(is_public(text.parse().expect(text)), "{text}");
        }
    }
}
