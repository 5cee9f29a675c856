//! Sockets of a command. The broker creates each socket, gives the command a copy of the file descriptor, and keeps its
//! own until the socket is connected or listens. So it can operate on the socket without taking a file descriptor out
//! of another process (`pidfd_getfd`), which Docker's default profile forbids. It must not keep the descriptor longer,
//! because a connection that the command closes would then stay open.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::notify::{Errno, SuspendedCall};
use super::super::overlay::handle_path;
use super::super::processes::descendants;
use super::super::sys;
use super::address::{self, Address, Destination, MAX_LEN};
use super::{Broker, CallReply, path_of};
use crate::spec::Net;

/// The most sockets that are kept; a new one replaces the oldest.
const MAX_SOCKETS: usize = 256;
/// The most file descriptors of the command that are read to find closed sockets.
const MAX_HANDLES: usize = 5_000;
/// The most connections that are being established at a time.
const MAX_WAITING: usize = 64;
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The sockets that are neither connected nor listening.
#[derive(Default)]
pub(super) struct Sockets(VecDeque<Socket>);

/// A socket of the command.
struct Socket {
    /// The inode, by which `/proc` names the socket.
    number: u64,
    handle: OwnedFd,
    family: i32,
    kind: i32,
}

impl Socket {
    fn is_datagram(&self) -> bool {
        self.kind & SOCKET_KIND == libc::SOCK_DGRAM
    }
}

/// The bits of a socket's type that are not flags.
const SOCKET_KIND: i32 = 0xf;

impl Sockets {
    fn put(&mut self, socket: Socket) {
        if self.0.len() >= MAX_SOCKETS {
            self.0.pop_front();
        }
        self.0.push_back(socket);
    }

    fn take(&mut self, number: u64) -> Option<Socket> {
        let at = self.0.iter().position(|one| one.number == number)?;
        self.0.remove(at)
    }
}

impl Broker {
    pub(super) fn make_socket(&self, call: &SuspendedCall) -> Result<CallReply, Errno> {
        let [family, kind, protocol] =
            [call.args[0], call.args[1], call.args[2]].map(|arg| arg as i32);
        let stream = kind & SOCKET_KIND == libc::SOCK_STREAM;
        let datagram = kind & SOCKET_KIND == libc::SOCK_DGRAM;
        let allowed = match family {
            libc::AF_UNIX => stream || kind & SOCKET_KIND == libc::SOCK_SEQPACKET,
            libc::AF_INET | libc::AF_INET6 => {
                (stream && [0, libc::IPPROTO_TCP].contains(&protocol))
                    || (datagram
                        && self.rights.network.net == Net::Open
                        && [0, libc::IPPROTO_UDP].contains(&protocol))
            }
            libc::AF_NETLINK => protocol == libc::NETLINK_ROUTE,
            _ => false,
        };
        if !allowed {
            let errno = if protocol == 0 || family == libc::AF_NETLINK {
                libc::EACCES
            } else {
                libc::EPROTONOSUPPORT
            };
            return Err(Errno(errno));
        }
        let handle = sys::socket(family, kind, protocol)?;
        let number = rustix::fs::fstat(&handle)?.st_ino;
        self.listener
            .give(call.id, handle.as_fd(), kind & libc::SOCK_CLOEXEC != 0)?;
        self.sockets.lock().put(Socket {
            number,
            handle,
            family,
            kind,
        });
        Ok(CallReply::Elsewhere)
    }

    /// Returns the inode of the socket that a file descriptor of the command refers to.
    fn number_of(&self, call: &SuspendedCall) -> Result<u64, Errno> {
        let link = std::fs::read_link(format!("/proc/{}/fd/{}", call.pid, call.args[0] as i32));
        let link = link.map_err(|_| Errno(libc::EBADF))?;
        number_in(&link).ok_or(Errno(libc::ENOTSOCK))
    }

    fn read_address(&self, call: &SuspendedCall) -> Result<(Vec<u8>, Address), Errno> {
        let len = usize::try_from(call.args[2] as u32).unwrap_or(usize::MAX);
        if len > MAX_LEN {
            return Err(Errno(libc::EINVAL));
        }
        let bytes = self.listener.read(call, call.args[1], len)?;
        let address = Address::parse(&bytes)?;
        Ok((bytes, address))
    }

    pub(super) fn connect(&mut self, call: &SuspendedCall) -> Result<CallReply, Errno> {
        let number = self.number_of(call)?;
        let (bytes, address) = self.read_address(call)?;
        let (bytes, file) = match &address {
            Address::Internet(ip, port) => {
                self.check_destination(*ip, *port)?;
                (bytes, None)
            }
            Address::Path(path) => {
                let file = self.open_path(call, libc::AT_FDCWD, path, true)?;
                if !path_of(file.as_fd())?.is_some_and(|path| self.is_writable(&path)) {
                    return Err(Errno(libc::EACCES));
                }
                (address::unix(&handle_path(file.as_fd())), Some(file))
            }
            Address::Abstract(name) if self.is_own_name(name) => (bytes, None),
            Address::Abstract(_) => return Err(Errno(libc::ECONNREFUSED)),
            Address::Other(_) => (bytes, None),
        };
        // A connected or listening socket is not kept any more.
        let socket = self.take_socket(number, &address, Errno(libc::EISCONN))?;
        self.connect_in_worker(call.id, socket, bytes, file)
    }

    /// Removes the socket of a call from the kept ones if the address has its family. `missing` is the error for a
    /// socket that is not kept any more.
    fn take_socket(&self, number: u64, address: &Address, missing: Errno) -> Result<Socket, Errno> {
        let mut sockets = self.sockets.lock();
        let socket = sockets.take(number).ok_or(missing)?;
        // The kernel treats an address without a family as an IPv4 address. For a datagram socket such an address
        // dissolves the connection, which is allowed.
        let fits = match address {
            Address::Other(_) => {
                socket.family == libc::AF_NETLINK
                    || (socket.is_datagram() && self.rights.network.net == Net::Open)
            }
            Address::Internet(..) => [libc::AF_INET, libc::AF_INET6].contains(&socket.family),
            Address::Path(_) | Address::Abstract(_) => socket.family == libc::AF_UNIX,
        };
        if fits {
            return Ok(socket);
        }
        sockets.put(socket);
        Err(Errno(libc::EAFNOSUPPORT))
    }

    /// Connects a socket in a worker thread, even if it is non-blocking: the command can change that flag before the
    /// kernel reads it.
    fn connect_in_worker(
        &self,
        id: u64,
        socket: Socket,
        address: Vec<u8>,
        file: Option<OwnedFd>,
    ) -> Result<CallReply, Errno> {
        if WAITING.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING {
            WAITING.fetch_sub(1, Ordering::Relaxed);
            self.sockets.lock().put(socket);
            return Err(Errno(libc::EAGAIN));
        }
        let (listener, sockets) = (Arc::clone(&self.listener), Arc::clone(&self.sockets));
        let connect = move || {
            let result = sys::connect(socket.handle.as_fd(), &address).map_err(Errno::from);
            drop(file);
            keep_after_connect(&sockets, socket, result);
            WAITING.fetch_sub(1, Ordering::Relaxed);
            listener.answer(id, result.map(|()| 0));
        };
        match self.workers.run(Box::new(connect)) {
            Ok(()) => Ok(CallReply::Elsewhere),
            Err(err) => {
                WAITING.fetch_sub(1, Ordering::Relaxed);
                Err(err.into())
            }
        }
    }

    fn check_destination(&self, ip: IpAddr, port: u16) -> Result<(), Errno> {
        let network = &self.rights.network;
        let port = match address::destination(network.net, ip, port)? {
            Destination::Free => return Ok(()),
            Destination::OwnPort(port) => port,
        };
        if network.engine.contains(&port) && ip.to_canonical().is_ipv4() {
            return Ok(());
        }
        if self.is_own_server(ip, port) {
            Ok(())
        } else {
            Err(Errno(libc::ECONNREFUSED))
        }
    }

    /// Returns whether a connection would reach a server of the command's own network.
    fn is_own_server(&self, ip: IpAddr, port: u16) -> bool {
        let own = &self.rights.network.own;
        if !own.has_port(port) {
            return false;
        }
        // A dual-stack server is found by the IPv4 address.
        match self
            .diag
            .as_ref()
            .map(|diag| diag.listener(ip.to_canonical(), port))
        {
            Some(Ok(found)) => found.is_some_and(|socket| own.has(port, socket)),
            // The kernel does not support the question, so trust the list alone.
            Some(Err(_)) | None => true,
        }
    }

    /// Returns whether an abstract name belongs to a server of the command's own network. The kernel's list shows zero
    /// bytes as `@`, so a name with either of them could be mistaken for another one and is refused.
    fn is_own_name(&self, name: &[u8]) -> bool {
        let plain = !name.is_empty()
            && !name
                .iter()
                .any(|byte| [0, b'@', b' ', b'\n'].contains(byte));
        let list = std::fs::read("/proc/net/unix").unwrap_or_default();
        let shown = [b"@", name].concat();
        let owner = list.split(|byte| *byte == b'\n').find_map(|line| {
            let mut words = line
                .split(|byte| *byte == b' ')
                .filter(|word| !word.is_empty());
            let number = words
                .nth(6)
                .and_then(|number| std::str::from_utf8(number).ok()?.parse::<u64>().ok())?;
            (words.next() == Some(&shown)).then_some(number)
        });
        plain && owner.is_some_and(|number| self.rights.network.own.has(0, number))
    }

    pub(super) fn bind(&mut self, call: &SuspendedCall) -> Result<CallReply, Errno> {
        let number = self.number_of(call)?;
        let (bytes, address) = self.read_address(call)?;
        let socket = self.take_socket(number, &address, Errno(libc::EINVAL))?;
        let result = match address {
            Address::Internet(ip, port) => self.bind_internet(&socket, &bytes, ip, port),
            Address::Path(path) => self.bind_path(call, &socket, &path),
            Address::Abstract(_) | Address::Other(_) => {
                sys::bind(socket.handle.as_fd(), &bytes).map_err(Errno::from)
            }
        };
        if socket.family != libc::AF_NETLINK || result.is_err() {
            self.sockets.lock().put(socket);
        }
        result.map(|()| CallReply::Value(0))
    }

    fn bind_internet(
        &self,
        socket: &Socket,
        bytes: &[u8],
        ip: IpAddr,
        port: u16,
    ) -> Result<(), Errno> {
        let only_v6 =
            socket.family == libc::AF_INET6 && rustix::net::sockopt::ipv6_v6only(&socket.handle)?;
        let ip = address::server_ip(self.rights.network.net, ip, only_v6)?;
        // With SO_REUSEPORT the command could take connections away from another program of the user. The command can
        // change that option at any moment, so the broker refuses the port without reading it.
        if port != 0 && self.rights.network.net != Net::Open && self.is_used_by_another(ip, port) {
            return Err(Errno(libc::EADDRINUSE));
        }
        let address = address::with_ip(bytes, ip);
        match sys::bind(socket.handle.as_fd(), &address) {
            // The command may have closed the socket that holds the port, while the broker still keeps its copy.
            Err(err) if err.raw_os_error() == Some(libc::EADDRINUSE) && self.drop_closed() => {
                Ok(sys::bind(socket.handle.as_fd(), &address)?)
            }
            other => Ok(other?),
        }
    }

    /// Returns whether another program listens there.
    fn is_used_by_another(&self, ip: IpAddr, port: u16) -> bool {
        let found = self
            .diag
            .as_ref()
            .and_then(|diag| diag.listener(ip.to_canonical(), port).ok().flatten());
        found.is_some_and(|socket| !self.rights.network.own.has(port, socket))
    }

    fn bind_path(&self, call: &SuspendedCall, socket: &Socket, path: &[u8]) -> Result<(), Errno> {
        let path = Path::new(OsStr::from_bytes(path));
        let name = path.file_name().ok_or(Errno(libc::EINVAL))?;
        let above = path
            .parent()
            .filter(|above| !above.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let folder = self.open_path(call, libc::AT_FDCWD, above.as_os_str().as_bytes(), true)?;
        if !path_of(folder.as_fd())?.is_some_and(|path| self.is_writable(&path)) {
            return Err(Errno(libc::EACCES));
        }
        let name = name.to_str().ok_or(Errno(libc::EINVAL))?;
        // Bind by the real path, because clients may ask the socket for its address. If that is too long, bind by the
        // path of the open directory.
        let real = path_of(folder.as_fd())?
            .and_then(|folder| folder.join(name).into_os_string().into_string().ok());
        let fits = |place: &String| address::unix(place).len() <= size_of::<libc::sockaddr_un>();
        if let Some(real) = real.filter(fits) {
            return self.bind_by_path(socket, &real);
        }
        let place = format!("{}/{name}", handle_path(folder.as_fd()));
        if !fits(&place) {
            return Err(Errno(libc::ENAMETOOLONG));
        }
        Ok(sys::bind(socket.handle.as_fd(), &address::unix(&place))?)
    }

    /// Binds to a path that the command could change meanwhile. A thread with the command's own Landlock rules does it,
    /// so it can create the socket only where the command could.
    fn bind_by_path(&self, socket: &Socket, path: &str) -> Result<(), Errno> {
        let (ruleset, handle) = (self.rights.ruleset.as_fd(), socket.handle.as_fd());
        let bind = || -> std::io::Result<()> {
            rustix::thread::set_no_new_privs(true)?;
            sys::landlock_restrict(ruleset)?;
            sys::bind(handle, &address::unix(path))
        };
        let bound = std::thread::scope(|scope| scope.spawn(bind).join());
        bound
            .unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
            .map_err(Errno::from)
    }

    pub(super) fn listen(&mut self, call: &SuspendedCall) -> Result<CallReply, Errno> {
        let number = self.number_of(call)?;
        let Some(socket) = self.sockets.lock().take(number) else {
            // A socket that listens already may listen again.
            return match self.rights.network.own.has_socket(number) {
                true => Ok(CallReply::Value(0)),
                false => Err(Errno(libc::EINVAL)),
            };
        };
        let result = self.listen_on(&socket, call.args[1] as i32);
        if result.is_err() {
            self.sockets.lock().put(socket);
        }
        result.map(|()| CallReply::Value(0))
    }

    fn listen_on(&self, socket: &Socket, backlog: i32) -> Result<(), Errno> {
        let internet = [libc::AF_INET, libc::AF_INET6].contains(&socket.family);
        let bound = || -> Result<(Vec<u8>, IpAddr, u16), Errno> {
            let bytes = sys::bound_to(socket.handle.as_fd())?;
            match Address::parse(&bytes)? {
                Address::Internet(ip, port) => Ok((bytes, ip, port)),
                _ => Err(Errno(libc::EINVAL)),
            }
        };
        if internet && let (bytes, ip, 0) = bound()? {
            // Without this, the kernel would bind it to every address of this machine.
            self.bind_internet(socket, &bytes, ip, 0)?;
        }
        let port = if internet {
            self.check_server(bound()?)?
        } else {
            0
        };
        rustix::net::listen(&socket.handle, backlog)?;
        self.rights.network.own.add(port, socket.number);
        Ok(())
    }

    /// Returns the port of a server, if it is bound to an allowed address.
    fn check_server(&self, (_, ip, port): (Vec<u8>, IpAddr, u16)) -> Result<u16, Errno> {
        let net = self.rights.network.net;
        let allowed = net == Net::Open || (net != Net::Off && ip.to_canonical().is_loopback());
        if allowed {
            Ok(port)
        } else {
            Err(Errno(libc::EACCES))
        }
    }

    /// Drops the kept sockets that no process of the command has open any more; returns whether there were some. Gives
    /// up if the command has very many file descriptors.
    fn drop_closed(&self) -> bool {
        let mut open = BTreeSet::new();
        let mut left = MAX_HANDLES;
        for pid in descendants() {
            for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))
                .into_iter()
                .flatten()
                .flatten()
            {
                left -= 1;
                if left == 0 {
                    return false;
                }
                let link = std::fs::read_link(entry.path()).ok();
                open.extend(link.and_then(|link| number_in(&link)));
            }
        }
        let mut sockets = self.sockets.lock();
        let before = sockets.0.len();
        sockets.0.retain(|one| open.contains(&one.number));
        sockets.0.len() < before
    }
}

/// Parses the inode in a link of `/proc`, such as `socket:[42]`.
fn number_in(link: &Path) -> Option<u64> {
    let number = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
    number.parse().ok()
}

/// Keeps a socket whose connection failed, because the command may try again, and a datagram socket, because the
/// command may connect it elsewhere.
fn keep_after_connect(
    sockets: &parking_lot::Mutex<Sockets>,
    socket: Socket,
    result: Result<(), Errno>,
) {
    let under_way = matches!(result, Ok(()) | Err(Errno(libc::EINPROGRESS)));
    if socket.is_datagram() || !under_way {
        sockets.lock().put(socket);
    }
}
