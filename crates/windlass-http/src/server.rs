//! [`HttpServer`]: binds an address and serves a service until it shuts down.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use windlass_service::Service;

use crate::access::AccessRules;
use crate::connections::serve_connections;
use crate::rate_limit::RateLimits;
use crate::routes::router;
use crate::tls::{TlsFiles, acceptor};

/// Time that connections have to end after the service has closed.
const CLOSE_GRACE: Duration = Duration::from_secs(5);

/// Options of a server.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// The address to listen on.
    pub bind: SocketAddr,
    /// Names by which clients may reach the server, in addition to the loopback names.
    pub hosts: Vec<String>,
    /// Origins of other pages that may read replies, for example `https://tools.example`. The default is none.
    pub origins: Vec<String>,
    /// Serves TLS with this certificate.
    pub tls: Option<TlsFiles>,
    /// A reverse proxy in front of the server encrypts the connections.
    pub behind_proxy: bool,
    /// Requests per second of one token.
    pub requests_per_second: u32,
}

impl HttpOptions {
    /// Options with the defaults, for an address.
    #[must_use]
    pub fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            hosts: Vec::new(),
            origins: Vec::new(),
            tls: None,
            behind_proxy: false,
            requests_per_second: 200,
        }
    }
}

/// The reason why a server did not start.
#[derive(Debug)]
pub enum ServeError {
    /// The address is public, and nothing encrypts the connections.
    Unprotected(IpAddr),
    /// The address cannot be used.
    Bind(SocketAddr, std::io::Error),
    /// The certificate or its key cannot be used.
    Tls(String),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unprotected(ip) => write!(
                f,
                "{ip} can be reached from other machines, and tokens would be sent in plain text"
            ),
            Self::Bind(address, err) => write!(f, "the server cannot listen on {address}: {err}"),
            Self::Tls(why) => write!(f, "TLS cannot be served: {why}"),
        }
    }
}

impl std::error::Error for ServeError {}

impl ServeError {
    /// The next step of the user.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unprotected(_) => {
                "add `--tls-cert FILE --tls-key FILE`, or `--behind-proxy` if a reverse proxy encrypts the connections, or \
                 listen on 127.0.0.1"
            }
            Self::Bind(..) => {
                "choose another address or port with `--bind` or `--port`, or end the other server"
            }
            Self::Tls(_) => "name a certificate chain and its private key in PEM files",
        }
    }
}

/// A server that listens.
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<tokio_rustls::TlsAcceptor>,
    parts: Arc<ServerParts>,
}

/// The parts that all requests share.
pub(crate) struct ServerParts {
    pub(crate) service: Service,
    pub(crate) access: AccessRules,
    pub(crate) rates: RateLimits,
    /// Cookies are sent over TLS only.
    pub(crate) secure: bool,
}

impl HttpServer {
    /// Listens on the address. A public address is refused if nothing encrypts the connections.
    pub async fn bind(service: Service, options: HttpOptions) -> Result<Self, ServeError> {
        let ip = options.bind.ip();
        if !ip.is_loopback() && options.tls.is_none() && !options.behind_proxy {
            return Err(ServeError::Unprotected(ip));
        }
        let tls = options.tls.as_ref().map(acceptor).transpose()?;
        let listener = TcpListener::bind(options.bind).await;
        let listener = listener.map_err(|err| ServeError::Bind(options.bind, err))?;
        let address = listener
            .local_addr()
            .map_err(|err| ServeError::Bind(options.bind, err))?;
        let secure = tls.is_some();
        let parts = ServerParts {
            access: AccessRules::new(&options, address, secure),
            rates: RateLimits::new(options.requests_per_second),
            secure: secure || options.behind_proxy,
            service,
        };
        Ok(Self {
            listener,
            address,
            tls,
            parts: Arc::new(parts),
        })
    }

    /// The address on which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the server for clients on this machine.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let host = match self.address.ip() {
            ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
            IpAddr::V6(ip) => format!("[{ip}]"),
            IpAddr::V4(ip) => ip.to_string(),
        };
        format!("{scheme}://{host}:{}", self.address.port())
    }

    /// Serves requests until `stop` is cancelled. Then no connection is accepted any more, event streams end with a hint when
    /// to retry, and runs pause at a safe point.
    pub async fn serve(self, stop: CancellationToken) {
        let router = router(self.parts.clone());
        let service = self.parts.service.clone();
        let connections = serve_connections(self.listener, self.tls, router, stop);
        let open = connections.await;
        service.close().await;
        let _ = tokio::time::timeout(CLOSE_GRACE, open.shutdown()).await;
    }
}
