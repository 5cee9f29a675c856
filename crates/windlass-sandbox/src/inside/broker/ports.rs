//! The ports on which the commands of one network listen. All brokers of the network share the list, so that a command
//! can reach a server that an earlier command left running, and no other server of this machine.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::sys::SharedNumbers;

/// The most ports in the list; a new one replaces the oldest.
const MAX_PORTS: usize = 511;
const PORT_BITS: u32 = 16;

/// The list, in memory that is shared between processes. The first number counts additions; each of the others packs a
/// port with the inode of its socket.
pub(crate) struct Ports(SharedNumbers);

impl Ports {
    pub(crate) fn new() -> io::Result<Self> {
        SharedNumbers::new(MAX_PORTS + 1).map(Self)
    }

    /// Adds a socket that listens on a port.
    pub(crate) fn add(&self, port: u16, socket: u64) {
        let (count, entries) = self.parts();
        let at = count.fetch_add(1, Ordering::Relaxed) as usize % MAX_PORTS;
        if let Some(entry) = entries.get(at) {
            entry.store(packed(port, socket), Ordering::Release);
        }
    }

    /// Returns whether this socket listens on this port.
    pub(crate) fn has(&self, port: u16, socket: u64) -> bool {
        self.parts()
            .1
            .iter()
            .any(|entry| entry.load(Ordering::Acquire) == packed(port, socket))
    }

    /// Returns whether some socket of this network has listened on the port.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        let same = |entry: &AtomicU64| {
            entry.load(Ordering::Acquire) & ((1 << PORT_BITS) - 1) == u64::from(port)
        };
        port != 0 && self.parts().1.iter().any(same)
    }

    /// Returns whether this socket listens on some port.
    pub(crate) fn has_socket(&self, socket: u64) -> bool {
        self.parts()
            .1
            .iter()
            .any(|entry| entry.load(Ordering::Acquire) >> PORT_BITS == socket)
    }

    fn parts(&self) -> (&AtomicU64, &[AtomicU64]) {
        let all = self.0.all();
        (&all[0], &all[1..])
    }
}

fn packed(port: u16, socket: u64) -> u64 {
    socket << PORT_BITS | u64::from(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_port_is_replaced() {
        let ports = Ports::new().expect("memory");
        assert!(!ports.has_port(80) && !ports.has_socket(7));
        ports.add(80, 7);
        assert!(ports.has(80, 7) && !ports.has(80, 8) && !ports.has(81, 7) && ports.has_port(80));
        for n in 0..MAX_PORTS as u64 {
            ports.add(90, 100 + n);
        }
        assert!(!ports.has_port(80) && ports.has_socket(100) && !ports.has_port(0));
    }
}
