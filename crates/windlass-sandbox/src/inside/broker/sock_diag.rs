//! Asks the kernel (through `sock_diag` netlink) which socket of this machine a connection to a loopback port would
//! reach. The inode of the socket distinguishes a server of the command from another program that got the same port
//! later.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};

use super::super::sys;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NETLINK_SOCK_DIAG: i32 = 4;
const REQUEST: u16 = 1;
/// Lengths of the kernel's structs: the message header and the request; and the offset of the socket's inode in the
/// answer.
const HEAD: usize = 16;
const BODY: usize = 56;
const INODE_AT: usize = HEAD + 68;

/// A netlink socket for these questions.
pub(super) struct SockDiag(OwnedFd);

impl SockDiag {
    pub(super) fn open() -> io::Result<Self> {
        sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_SOCK_DIAG).map(Self)
    }

    /// Returns the inode of the TCP socket that listens at this address; `None` if there is none.
    pub(super) fn listener(&self, ip: IpAddr, port: u16) -> io::Result<Option<u64>> {
        rustix::net::send(self.0.as_fd(), &request(ip, port), SendFlags::empty())?;
        let mut answer = [0_u8; 4096];
        let (_, len) = rustix::net::recv(self.0.as_fd(), &mut answer[..], RecvFlags::empty())?;
        Ok(inode(&answer[..len.min(answer.len())]))
    }
}

fn request(ip: IpAddr, port: u16) -> Vec<u8> {
    let family = if ip.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    } as u8;
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => [&ip.octets()[..], &[0; 12]].concat(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let from = if ip.is_ipv4() {
        IpAddr::from(Ipv4Addr::LOCALHOST)
    } else {
        Ipv6Addr::LOCALHOST.into()
    };
    let mut bytes = Vec::with_capacity(HEAD + BODY);
    bytes.extend_from_slice(&((HEAD + BODY) as u32).to_ne_bytes());
    bytes.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend_from_slice(&REQUEST.to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[family, libc::IPPROTO_TCP as u8, 0, 0]);
    bytes.extend_from_slice(&u32::MAX.to_ne_bytes());
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&0_u16.to_be_bytes());
    bytes.extend_from_slice(&octets(ip));
    bytes.extend_from_slice(&octets(from));
    // No network interface, and no cookie of a known socket.
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[0xff; 8]);
    bytes
}

fn inode(answer: &[u8]) -> Option<u64> {
    let kind = answer
        .get(4..6)
        .map(|kind| u16::from_ne_bytes([kind[0], kind[1]]))?;
    let number = answer.get(INODE_AT..INODE_AT + 4)?;
    (kind == SOCK_DIAG_BY_FAMILY).then(|| {
        u64::from(u32::from_ne_bytes([
            number[0], number[1], number[2], number[3],
        ]))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use windlass_needs::{Need, lacks};

    #[test]
    fn the_kernel_names_the_socket_that_listens() {
        if lacks(Need::SocketDiag) {
            return;
        }
        let diag = SockDiag::open().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let number = rustix::fs::fstat(&listener).unwrap().st_ino;
        assert_eq!(
            diag.listener(Ipv4Addr::LOCALHOST.into(), port).unwrap(),
            Some(number)
        );
        drop(listener);
        assert_eq!(
            diag.listener(Ipv4Addr::LOCALHOST.into(), port).unwrap(),
            None
        );
    }
}
