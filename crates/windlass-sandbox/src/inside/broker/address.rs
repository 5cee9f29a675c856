//! Parses socket addresses as the kernel does, and decides where a command may bind and connect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::notify::Errno;
use crate::spec::Net;

/// The length of the longest address of any family.
pub(super) const MAX_LEN: usize = size_of::<libc::sockaddr_storage>();

/// A socket address of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Internet(IpAddr, u16),
    /// A Unix socket with a path.
    Path(Vec<u8>),
    /// A Unix socket in the abstract namespace; with an empty name the kernel chooses one.
    Abstract(Vec<u8>),
    /// Any other family, by its number.
    Other(u16),
}

impl Address {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Errno> {
        let wrong = Errno(libc::EINVAL);
        let family = u16::from_ne_bytes(*bytes.first_chunk().ok_or(wrong)?);
        let port = || {
            bytes
                .get(2..4)
                .map(|port| u16::from_be_bytes([port[0], port[1]]))
                .ok_or(wrong)
        };
        match i32::from(family) {
            libc::AF_INET => {
                let ip: [u8; 4] = bytes
                    .get(4..8)
                    .and_then(|ip| ip.try_into().ok())
                    .ok_or(wrong)?;
                Ok(Self::Internet(IpAddr::from(ip), port()?))
            }
            libc::AF_INET6 => {
                let ip: [u8; 16] = bytes
                    .get(8..24)
                    .and_then(|ip| ip.try_into().ok())
                    .ok_or(wrong)?;
                Ok(Self::Internet(IpAddr::from(ip), port()?))
            }
            libc::AF_UNIX => match bytes.get(2..) {
                None | Some([]) => Ok(Self::Abstract(Vec::new())),
                Some([0, name @ ..]) => Ok(Self::Abstract(name.to_vec())),
                Some(path) => {
                    let end = path
                        .iter()
                        .position(|byte| *byte == 0)
                        .unwrap_or(path.len());
                    Ok(Self::Path(path[..end].to_vec()))
                }
            },
            _ => Ok(Self::Other(family)),
        }
    }
}

/// Encodes the address of a Unix socket. The path must fit into an address.
pub(super) fn unix(path: &str) -> Vec<u8> {
    let family = libc::AF_UNIX as u16;
    [&family.to_ne_bytes(), path.as_bytes(), &[0]].concat()
}

/// Replaces the IP address by another one of the same family.
pub(super) fn with_ip(bytes: &[u8], ip: IpAddr) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    match ip {
        IpAddr::V4(ip) => {
            if let Some(place) = bytes.get_mut(4..8) {
                place.copy_from_slice(&ip.octets());
            }
        }
        IpAddr::V6(ip) => {
            if let Some(place) = bytes.get_mut(8..24) {
                place.copy_from_slice(&ip.octets());
            }
        }
    }
    bytes
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Returns the address that a server of the command is bound to instead of the requested one: with a private loopback,
/// "any address" becomes loopback. A dual-stack socket gets the IPv4 loopback, which clients try as well.
pub(super) fn server_ip(net: Net, ip: IpAddr, only_v6: bool) -> Result<IpAddr, Errno> {
    match net {
        Net::Open => Ok(ip),
        Net::Loopback | Net::Proxy if is_loopback(ip) => Ok(ip),
        Net::Loopback | Net::Proxy if ip.to_canonical().is_unspecified() => Ok(match ip {
            IpAddr::V6(_) if only_v6 => Ipv6Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        }),
        Net::Off | Net::Loopback | Net::Proxy => Err(Errno(libc::EADDRNOTAVAIL)),
    }
}

/// The target of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// Any host; the network is open.
    Free,
    /// A loopback port, on which only servers of the command itself and of the engine may be reached.
    OwnPort(u16),
}

pub(super) fn destination(net: Net, ip: IpAddr, port: u16) -> Result<Destination, Errno> {
    match net {
        Net::Open => Ok(Destination::Free),
        Net::Loopback | Net::Proxy if is_loopback(ip) || ip.to_canonical().is_unspecified() => {
            Ok(Destination::OwnPort(port))
        }
        Net::Off | Net::Loopback | Net::Proxy => Err(Errno(libc::ENETUNREACH)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn v4(ip: [u8; 4], port: u16) -> Vec<u8> {
        [
            &(libc::AF_INET as u16).to_ne_bytes()[..],
            &port.to_be_bytes(),
            &ip,
            &[0; 8],
        ]
        .concat()
    }

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them() {
        assert_eq!(
            Address::parse(&v4([127, 0, 0, 1], 80)),
            Ok(Address::Internet(Ipv4Addr::LOCALHOST.into(), 80))
        );
        assert_eq!(
            Address::parse(&unix("/run/x")),
            Ok(Address::Path(b"/run/x".to_vec()))
        );
        assert_eq!(
            Address::parse(b"\x01\x00\0name"),
            Ok(Address::Abstract(b"name".to_vec()))
        );
        assert_eq!(
            Address::parse(b"\x01\x00"),
            Ok(Address::Abstract(Vec::new()))
        );
        assert_eq!(Address::parse(&[0, 0]), Ok(Address::Other(0)));
        for short in [
            &[][..],
            &[2],
            &[2, 0, 0],
            &v4([1; 4], 1)[..7],
            &[10, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(Address::parse(short), Err(Errno(libc::EINVAL)), "{short:?}");
        }
    }

    #[track_caller]
    fn check_server(net: Net, ip: &str, only_v6: bool, expect: Option<&str>) {
        let expect = expect
            .map(|ip| ip.parse().unwrap())
            .ok_or(Errno(libc::EADDRNOTAVAIL));
        assert_eq!(server_ip(net, ip.parse().unwrap(), only_v6), expect, "{ip}");
    }

    #[test]
    fn servers_are_bound_to_loopback() {
        check_server(Net::Loopback, "127.0.0.1", false, Some("127.0.0.1"));
        check_server(Net::Loopback, "0.0.0.0", false, Some("127.0.0.1"));
        check_server(Net::Proxy, "::", false, Some("::ffff:127.0.0.1"));
        check_server(Net::Loopback, "::", true, Some("::1"));
        check_server(Net::Loopback, "10.0.0.1", false, None);
        check_server(Net::Off, "127.0.0.1", false, None);
        check_server(Net::Open, "0.0.0.0", false, Some("0.0.0.0"));
    }

    #[track_caller]
    fn check_client(net: Net, ip: &str, expect: Result<Destination, i32>) {
        assert_eq!(
            destination(net, ip.parse().unwrap(), 80),
            expect.map_err(Errno),
            "{ip}"
        );
    }

    #[test]
    fn clients_reach_only_this_machine() {
        for ip in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "::",
        ] {
            check_client(Net::Loopback, ip, Ok(Destination::OwnPort(80)));
            check_client(Net::Off, ip, Err(libc::ENETUNREACH));
        }
        for ip in [
            "10.0.0.1",
            "::ffff:10.0.0.1",
            "fe80::1",
            "8.8.8.8",
            "169.254.169.254",
        ] {
            check_client(Net::Proxy, ip, Err(libc::ENETUNREACH));
            check_client(Net::Open, ip, Ok(Destination::Free));
        }
    }

    #[test]
    fn an_ip_address_is_replaced_in_place() {
        let changed = with_ip(&v4([0, 0, 0, 0], 8080), Ipv4Addr::LOCALHOST.into());
        assert_eq!(changed, v4([127, 0, 0, 1], 8080));
        assert_eq!(with_ip(&[2, 0], Ipv4Addr::LOCALHOST.into()), [2, 0]);
    }
}
