//! What the network of commands is, as people write it, and which host a command may speak to. Nothing is resolved
//! or dialled here.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use windlass_core::terms::NetworkTerms;

/// The network of commands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetPolicy {
    /// Nothing can be reached.
    Off,
    /// A loopback of the sandbox's own: commands reach each other and nothing else.
    #[default]
    Loopback,
    /// Some hosts, through a proxy of ours.
    Hosts(Vec<HostRule>),
    /// Everything this machine reaches.
    Open,
}

/// Hosts of one kind: a name, everything below a name, or an address; on any port or on one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    host: String,
    below: bool,
    port: Option<u16>,
}

/// What the word `registries` stands for: where package managers look things up and fetch them.
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
    /// How loose it is; a project may only make it stricter.
    fn looseness(&self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Loopback => 1,
            Self::Hosts(_) => 2,
            Self::Open => 3,
        }
    }

    /// What is left of it when somebody else may only take away: the stricter of the two, and of two lists of hosts
    /// what both list.
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

    /// The policy as the terms of a run state it.
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

    /// What would have to be written for one more host.
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
            format!("`{text}` is no network: use off, loopback, registries, allow:HOST,… or open")
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
                    format!("`{word}` is no host: write a name, `*.name`, or an address, each with `:port` if you like")
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
    /// Reads one as people write it: a name, `*.name` or an address, each with `:port` or without.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (text, below) = text
            .strip_prefix("*.")
            .map_or((text, false), |rest| (rest, true));
        let (host, port) = split_port(text)?;
        let host = clean_host(host)?;
        // Everything below an address, or below a name without a dot, is nothing anybody means.
        let odd = below && (host.parse::<IpAddr>().is_ok() || !host.contains('.'));
        (!odd).then_some(Self { host, below, port })
    }

    /// Whether it is about this host, by its clean name, and port.
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

    /// Whether what is sent there must be TLS for the host that is named: everywhere but at a port or an address that a
    /// person gave.
    #[must_use]
    pub fn wants_tls(&self) -> bool {
        self.port.is_none() && !self.names_address()
    }

    /// Whether everything that another rule is about is about this one, too.
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

    /// Whether it names an address or this machine outright: then an address that is not public is what was meant.
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

/// A host and the port behind it, brackets around an address taken off.
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

/// A host in the one spelling that is compared: lower case, without a dot at its end, addresses as the system writes
/// them. Nothing where it is not a plain host: an escape, a NUL or a name that only looks like an address.
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
    // `127.1`, `0x7f.1` and `2130706433` are addresses to some resolvers.
    let last = name.rsplit('.').next().unwrap_or_default();
    let numeric = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
    (labels && name.chars().all(fits) && !numeric).then_some(name)
}

/// Whether an address is one that anybody on the internet could mean.
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
    fn hosts_are_whole_names() {
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
    fn policies_are_written_as_they_are_read() {
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
    fn of_two_lists_of_hosts_only_what_both_list_is_left() {
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
    fn addresses_of_this_machine_and_its_neighbours_are_not_public() {
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
