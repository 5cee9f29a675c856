//! Sockets of a command. The broker makes each of them and keeps a handle until it is connected or listens: so it can
//! act on the socket itself, also where it may not take handles out of another process (Docker's default profile
//! withholds `pidfd_getfd`). A handle that was kept longer would keep a connection open that the command closed.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::layer::handle_path;
use super::super::notify::{Call, Errno};
use super::super::processes::family;
use super::super::sys;
use super::address::{self, Address, Destination, MAX_LEN};
use super::{Broker, Reply, path_of};
use crate::spec::Net;

/// Sockets that are kept; the oldest gives way.
const MOST_SOCKETS: usize = 256;
/// Handles of the command that are looked at to find sockets it closed.
const MOST_HANDLES: usize = 5_000;
/// Connections that are waited for at a time.
const MOST_WAITING: usize = 64;
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The sockets that are neither connected nor listening.
#[derive(Default)]
pub(super) struct Sockets(VecDeque<Socket>);

/// A socket of the command.
struct Socket {
    /// By this number the kernel names it in `/proc`.
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

/// The part of a socket's type that is no flag.
const SOCKET_KIND: i32 = 0xf;

impl Sockets {
    fn put(&mut self, socket: Socket) {
        if self.0.len() >= MOST_SOCKETS {
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
    pub(super) fn make_socket(&self, call: &Call) -> Result<Reply, Errno> {
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
        Ok(Reply::Elsewhere)
    }

    /// The number of the socket that a handle of the command is.
    fn number_of(&self, call: &Call) -> Result<u64, Errno> {
        let link = std::fs::read_link(format!("/proc/{}/fd/{}", call.pid, call.args[0] as i32));
        let link = link.map_err(|_| Errno(libc::EBADF))?;
        number_in(&link).ok_or(Errno(libc::ENOTSOCK))
    }

    fn read_address(&self, call: &Call) -> Result<(Vec<u8>, Address), Errno> {
        let len = usize::try_from(call.args[2] as u32).unwrap_or(usize::MAX);
        if len > MAX_LEN {
            return Err(Errno(libc::EINVAL));
        }
        let bytes = self.listener.read(call, call.args[1], len)?;
        let address = Address::parse(&bytes)?;
        Ok((bytes, address))
    }

    pub(super) fn connect(&mut self, call: &Call) -> Result<Reply, Errno> {
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
        // One that is connected or listens is not kept any more.
        let socket = self.take_socket(number, &address, Errno(libc::EISCONN))?;
        self.connect_beside(call.id, socket, bytes, file)
    }

    /// The socket of a call with this address; `missing` is what is said of one that is not kept any more.
    fn take_socket(&self, number: u64, address: &Address, missing: Errno) -> Result<Socket, Errno> {
        let mut sockets = self.sockets.lock();
        let socket = sockets.take(number).ok_or(missing)?;
        // The kernel takes an address without a family for one of the Internet; a datagram socket may be let go with it.
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

    /// Connects a socket in a thread of its own. Also one that says it does not wait: the command can change its mind
    /// before the kernel looks.
    fn connect_beside(
        &self,
        id: u64,
        socket: Socket,
        address: Vec<u8>,
        file: Option<OwnedFd>,
    ) -> Result<Reply, Errno> {
        if WAITING.fetch_add(1, Ordering::Relaxed) >= MOST_WAITING {
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
            Ok(()) => Ok(Reply::Elsewhere),
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

    /// Whether a connection would reach a server of the command's own network.
    fn is_own_server(&self, ip: IpAddr, port: u16) -> bool {
        let own = &self.rights.network.own;
        if !own.has_port(port) {
            return false;
        }
        // A server for both families is found by the address of the fourth version.
        match self
            .diag
            .as_ref()
            .map(|diag| diag.listener(ip.to_canonical(), port))
        {
            Some(Ok(found)) => found.is_some_and(|socket| own.has(port, socket)),
            // A kernel without this question: the list alone has to do.
            Some(Err(_)) | None => true,
        }
    }

    /// Whether a name outside of the file system is that of a server of the command's own network. The kernel's list shows
    /// zeros as `@`, so that names with either could be mistaken for others.
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

    pub(super) fn bind(&mut self, call: &Call) -> Result<Reply, Errno> {
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
        result.map(|()| Reply::Value(0))
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
        // A port that programs share could take connections away from another program of the user's. Whether this one
        // is to be shared can change at any moment, so that it is not asked.
        if port != 0 && self.rights.network.net != Net::Open && self.is_taken(ip, port) {
            return Err(Errno(libc::EADDRINUSE));
        }
        let address = address::with_ip(bytes, ip);
        match sys::bind(socket.handle.as_fd(), &address) {
            // A port that the command gave up is still held by the handle that is kept here.
            Err(err) if err.raw_os_error() == Some(libc::EADDRINUSE) && self.forget_closed() => {
                Ok(sys::bind(socket.handle.as_fd(), &address)?)
            }
            other => Ok(other?),
        }
    }

    /// Whether another program listens there.
    fn is_taken(&self, ip: IpAddr, port: u16) -> bool {
        let found = self
            .diag
            .as_ref()
            .and_then(|diag| diag.listener(ip.to_canonical(), port).ok().flatten());
        found.is_some_and(|socket| !self.rights.network.own.has(port, socket))
    }

    fn bind_path(&self, call: &Call, socket: &Socket, path: &[u8]) -> Result<(), Errno> {
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
        // By its own path, which clients may ask the socket for; where that is too long, by the handle.
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

    /// Binds by a path that the command could change meanwhile, in a thread that is held to the command's own Landlock
    /// rules.
    fn bind_by_path(&self, socket: &Socket, path: &str) -> Result<(), Errno> {
        let (fence, handle) = (self.rights.fence.as_fd(), socket.handle.as_fd());
        let bind = || -> std::io::Result<()> {
            rustix::thread::set_no_new_privs(true)?;
            sys::landlock_restrict(fence)?;
            sys::bind(handle, &address::unix(path))
        };
        let bound = std::thread::scope(|scope| scope.spawn(bind).join());
        bound
            .unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
            .map_err(Errno::from)
    }

    pub(super) fn listen(&mut self, call: &Call) -> Result<Reply, Errno> {
        let number = self.number_of(call)?;
        let Some(socket) = self.sockets.lock().take(number) else {
            // One that listens already may say so again.
            return match self.rights.network.own.has_socket(number) {
                true => Ok(Reply::Value(0)),
                false => Err(Errno(libc::EINVAL)),
            };
        };
        let result = self.listen_on(&socket, call.args[1] as i32);
        if result.is_err() {
            self.sockets.lock().put(socket);
        }
        result.map(|()| Reply::Value(0))
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
            // The kernel would bind it to every address of this machine.
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

    /// The port of a server, if it is bound where servers may be.
    fn check_server(&self, (_, ip, port): (Vec<u8>, IpAddr, u16)) -> Result<u16, Errno> {
        let net = self.rights.network.net;
        let allowed = net == Net::Open || (net != Net::Off && ip.to_canonical().is_loopback());
        if allowed {
            Ok(port)
        } else {
            Err(Errno(libc::EACCES))
        }
    }

    /// Drops the sockets that no process of the command has any more; says whether there were some. A command with very
    /// many handles is not looked through.
    fn forget_closed(&self) -> bool {
        let mut open = BTreeSet::new();
        let mut left = MOST_HANDLES;
        for pid in family() {
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

/// The number of a socket in a link of `/proc`, such as `socket:[42]`.
fn number_in(link: &Path) -> Option<u64> {
    let number = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
    number.parse().ok()
}

/// A socket whose connection failed may try again, and one for datagrams may change its mind.
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
