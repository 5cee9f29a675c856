//! Listeners that nothing may reach: they count who came and keep what was said first.

use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::locked;

/// The most that is kept of one visit.
const MAX_VISIT: usize = 64 << 10;
/// How often a listener looks whether it is still wanted.
const TICK: Duration = Duration::from_millis(10);
/// How long a visitor may take to say something.
const PATIENCE: Duration = Duration::from_millis(300);

/// One listener and what came to it.
pub(crate) struct Listener {
    pub(crate) proto: String,
    hits: Arc<AtomicUsize>,
    visits: Arc<Mutex<Vec<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
}

impl Listener {
    /// A loopback port that takes connections.
    pub(crate) fn tcp() -> std::io::Result<(Self, u16)> {
        let socket = TcpListener::bind("127.0.0.1:0")?;
        let port = socket.local_addr()?.port();
        socket.set_nonblocking(true)?;
        let listener = Self::start("tcp", move |came| {
            let (mut stream, _) = socket.accept().ok()?;
            came.fetch_add(1, Ordering::SeqCst);
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_read_timeout(Some(PATIENCE));
            Some(first_words(&mut stream))
        });
        Ok((listener, port))
    }

    /// A loopback port that takes datagrams.
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

    /// A socket in the file system that everybody may open.
    pub(crate) fn unix(path: &Path) -> std::io::Result<Self> {
        let socket = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
        Self::local("unix", socket)
    }

    /// A socket that has a name and no place.
    #[cfg(target_os = "linux")]
    pub(crate) fn unnamed(name: &str) -> std::io::Result<Self> {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        Self::local("abstract", UnixListener::bind_addr(&address)?)
    }

    /// Other systems have no such sockets.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn unnamed(_name: &str) -> std::io::Result<Self> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn local(proto: &str, socket: UnixListener) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self::start(proto, move |came| {
            let (mut stream, _) = socket.accept().ok()?;
            came.fetch_add(1, Ordering::SeqCst);
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_read_timeout(Some(PATIENCE));
            Some(first_words(&mut stream))
        }))
    }

    /// `take` counts a visit as soon as there is one, and only then listens to it.
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

    /// How many came.
    pub(crate) fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }

    /// What they said first.
    pub(crate) fn visits(&self) -> Vec<Vec<u8>> {
        locked(&self.visits).clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn first_words(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    while all.len() < MAX_VISIT {
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
