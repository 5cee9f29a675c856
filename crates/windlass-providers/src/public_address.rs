//! Resolves the host of an address once and refuses private addresses, so that a request that a setting or a server
//! chose cannot reach services of this machine, its network or its cloud vendor.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reqwest::Url;

/// Longest wait for DNS.
const DNS_TIMEOUT: Duration = Duration::from_secs(10);
/// The metadata service of a cloud vendor that has a public address.
const METADATA: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// Whether an address belongs to the public internet: not private, loopback, link-local, reserved or a metadata service.
#[must_use]
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !matches!(
        ip.octets(),
        [0 | 10 | 127, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [192, 168, ..]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
            | [224..=255, ..]
    ) && ip != METADATA
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let parts = ip.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match parts {
        // Addresses that contain an IPv4 address: mapped, NAT64 and 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            embedded(high, low)
        }
        [0x2002, high, low, ..] => embedded(high, low),
        // Special purposes, among them Teredo, and documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

/// Resolves the host of an address. Private addresses are skipped unless `allow_private` is set.
pub async fn resolve(url: &Url, allow_private: bool) -> Result<SocketAddr, String> {
    let host = url.host_str().unwrap_or_default();
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or(443);
    let found: Vec<SocketAddr> = match name.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => {
            let lookup = tokio::net::lookup_host((name, port));
            match tokio::time::timeout(DNS_TIMEOUT, lookup).await {
                Ok(Ok(found)) => found.collect(),
                Ok(Err(_)) | Err(_) => {
                    return Err(format!(
                        "cannot find the address of `{name}` (DNS); check the name and the network"
                    ));
                }
            }
        }
    };
    let usable = found
        .into_iter()
        .find(|address| allow_private || is_public(address.ip()));
    usable.ok_or_else(|| format!("`{name}` has a private address"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for public in [
            "1.1.1.1",
            "100.128.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "0.0.0.0",
            "10.1.2.3",
            "100.100.100.200",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.0.1",
            "192.0.0.192",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "fe80::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[tokio::test]
    async fn a_private_address_is_refused_after_it_was_resolved() {
        for url in [
            "http://localhost:1/",
            "http://127.0.0.1:1/",
            "http://[::1]:1/",
            "http://2130706433/",
            "http://0x7f.1/",
        ] {
            let url = Url::parse(url).unwrap();
            let refused = resolve(&url, false).await.unwrap_err();
            assert!(refused.contains("private address"), "{url}: {refused}");
            assert!(resolve(&url, true).await.unwrap().ip().is_loopback());
        }
    }
}
