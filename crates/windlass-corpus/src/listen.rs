//! Listeners that nothing may reach: they count connections and keep the first bytes of each.

use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::locked;

/// The most bytes that are kept of one connection.
const MAX_KEPT_BYTES: usize = 64 << 10;
/// The interval at which a listener checks whether it should stop.
const TICK: Duration = Duration::from_millis(10);
/// The read timeout of a connection.
const READ_TIMEOUT: Duration = Duration::from_millis(300);

/// A listener and its connections.
pub(crate) struct TrapListener {
    pub(crate) proto: String,
    hits: Arc<AtomicUsize>,
    visits: Arc<Mutex<Vec<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
}

impl TrapListener {
    /// Listens for TCP connections on a loopback port.
    pub(crate) fn tcp() -> std::io::Result<(Self, u16)> {
        let socket = TcpListener::bind("127.0.0.1:0")?;
        let port = socket.local_addr()?.port();
        socket.set_nonblocking(true)?;
        let listener = Self::start("tcp", move |came| {
            let (mut stream, _) = socket.accept().ok()?;
            came.fetch_add(1, Ordering::SeqCst);
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_read_timeout(Some(READ_TIMEOUT));
            Some(read_first_bytes(&mut stream))
        });
        Ok((listener, port))
    }

    /// Listens for datagrams on a loopback port.
    pub(crate) fn udp() -> std::io::Result<(Self, u16)> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let port = socket.local_addr()?.port();
        socket.set_nonblocking(true)?;
        let listener = Self::start("udp", move |came| {
            let mut bytes = [0; 2048];
            let length = socket.recv(&mut bytes).ok()?;
            came.fetch_add(1, Ordering::SeqCst);
            Some(bytes[..length].to_vec())
        });
        Ok((listener, port))
    }

    /// Listens on a Unix socket at a path that every user may open.
    pub(crate) fn unix(path: &Path) -> std::io::Result<Self> {
        let socket = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
        Self::local("unix", socket)
    }

    /// Listens on a Unix socket in the abstract namespace.
    #[cfg(target_os = "linux")]
    pub(crate) fn abstract_socket(name: &str) -> std::io::Result<Self> {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        Self::local("abstract", UnixListener::bind_addr(&address)?)
    }

    /// Other systems have no abstract sockets.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn abstract_socket(_name: &str) -> std::io::Result<Self> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn local(proto: &str, socket: UnixListener) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self::start(proto, move |came| {
            let (mut stream, _) = socket.accept().ok()?;
            came.fetch_add(1, Ordering::SeqCst);
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_read_timeout(Some(READ_TIMEOUT));
            Some(read_first_bytes(&mut stream))
        }))
    }

    /// Starts the thread. `take` counts a connection as soon as it accepts it, and only then reads from it.
    fn start(proto: &str, take: impl Fn(&AtomicUsize) -> Option<Vec<u8>> + Send + 'static) -> Self {
        let (hits, visits, stop) = (
            Arc::<AtomicUsize>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
            Arc::default(),
        );
        let listener = Self {
            proto: proto.to_owned(),
            hits: hits.clone(),
            visits: Arc::clone(&visits),
            stop: Arc::clone(&stop),
        };
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let Some(visit) = take(&hits) else {
                    std::thread::sleep(TICK);
                    continue;
                };
                let mut kept = locked(&visits);
                if kept.len() < 64 {
                    kept.push(visit);
                }
            }
        });
        listener
    }

    /// Returns the number of connections.
    pub(crate) fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }

    /// Returns the first bytes of each connection.
    pub(crate) fn visits(&self) -> Vec<Vec<u8>> {
        locked(&self.visits).clone()
    }
}

impl Drop for TrapListener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn read_first_bytes(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    while all.len() < MAX_KEPT_BYTES {
        match stream.read(&mut piece) {
            Ok(n) if n > 0 => all.extend_from_slice(&piece[..n]),
            _ => break,
        }
        if all.windows(4).any(|window| window == b"\r\n\r\n") {
            break;
        }
    }
    all
}
