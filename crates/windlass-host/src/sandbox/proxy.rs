//! The only way out of a sandbox whose network is a list of hosts: a proxy that listens on the sandbox's own loopback.
//! It resolves a name once, checks the address, and connects to exactly that address. It refuses and records all other
//! requests.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::client_hello::{self, Hello};
use super::net::{HostRule, clean_host, is_public, split_port};

/// The maximum size of a request's head in bytes.
const MAX_HEAD: usize = 32 << 10;
/// The maximum number of connections at a time; further ones wait.
const MAX_CONNECTIONS: usize = 128;
/// The timeout for a client's request, and for a host to accept the connection.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum number of refused hosts that are remembered until [`RefusedHosts::take`].
const MAX_REFUSED: usize = 64;

/// The ports of a rule without a port.
const TLS_PORT: u16 = 443;
const PLAIN_PORT: u16 = 80;

/// The hosts that were refused since the last [`RefusedHosts::take`].
#[derive(Debug, Default, Clone)]
pub(super) struct RefusedHosts(Arc<Mutex<BTreeSet<String>>>);

impl RefusedHosts {
    fn add(&self, host: &str) {
        let mut hosts = self.0.lock();
        if hosts.len() < MAX_REFUSED {
            hosts.insert(host.chars().take(253).collect());
        }
    }

    /// Returns the refused hosts and clears the list.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock()).into_iter().collect()
    }
}

/// The hosts that clients may reach at the moment.
#[derive(Debug, Default, Clone)]
pub(super) struct AllowedHosts(Arc<Mutex<Arc<[HostRule]>>>);

impl AllowedHosts {
    /// Replaces the list. Open connections stay open.
    pub(super) fn set(&self, rules: Vec<HostRule>) {
        *self.0.lock() = rules.into();
    }

    fn now(&self) -> Arc<[HostRule]> {
        Arc::clone(&self.0.lock())
    }
}

/// Accepts connections until its task is aborted.
pub(super) async fn serve(
    listener: std::net::TcpListener,
    hosts: AllowedHosts,
    refused: RefusedHosts,
) {
    let listener = match listener
        .set_nonblocking(true)
        .and_then(|()| TcpListener::from_std(listener))
    {
        Ok(listener) => listener,
        // Without a listener commands reach nothing, which is safe.
        Err(_) => return,
    };
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((client, _)) => {
                let (rules, refused) = (hosts.now(), refused.clone());
                tokio::spawn(async move {
                    // An error concerns only this client, which sees its connection close.
                    let _ = handle_client(client, &rules, &refused).await;
                    drop(permit);
                });
            }
            // The process is out of file descriptors: retry after others were closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The request of a client.
struct ProxyRequest {
    host: String,
    port: u16,
    /// The bytes to send to the host first: empty for a tunnel, the rewritten head for a plain request.
    head: Vec<u8>,
    tunnel: bool,
}

async fn handle_client(
    mut client: TcpStream,
    rules: &[HostRule],
    refused: &RefusedHosts,
) -> io::Result<()> {
    let (head, rest) = timeout(TIMEOUT, read_head(&mut client))
        .await
        .map_err(|_| io::ErrorKind::TimedOut)??;
    let (request, rule, mut host) = match dial(&head, rules, refused).await {
        Ok(dialled) => dialled,
        Err((status, text)) => return answer(&mut client, status, &text).await,
    };
    let mut first = rest;
    if request.tunnel {
        client
            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .await?;
        if rule.wants_tls() {
            let checked =
                timeout(TIMEOUT, check_hello(&mut client, &mut first, &request.host)).await;
            // The tunnel is established already, so the proxy can only close it and record the refusal.
            if let Err(why) = checked.map_err(|_| io::ErrorKind::TimedOut)?? {
                refused.add(&why);
                return Ok(());
            }
        }
    }
    host.write_all(&request.head).await?;
    host.write_all(&first).await?;
    tokio::io::copy_bidirectional(&mut client, &mut host)
        .await
        .map(drop)
}

/// Reads the first message of a client, which must name this host. The inner error is the text for the list of refused
/// hosts.
async fn check_hello(
    client: &mut TcpStream,
    first: &mut Vec<u8>,
    host: &str,
) -> io::Result<Result<(), String>> {
    loop {
        let no_name = || format!("{host} (its TLS handshake names no server)");
        match client_hello::read(first) {
            Hello::Names(Some(name)) if clean_host(&name).as_deref() == Some(host) => {
                return Ok(Ok(()));
            }
            Hello::Names(Some(name)) => return Ok(Err(name)),
            Hello::Names(None) => return Ok(Err(no_name())),
            Hello::Refused(why) => return Ok(Err(format!("{host} ({why})"))),
            Hello::Partial if first.len() > 2 * client_hello::MAX_HELLO => {
                return Ok(Err(no_name()));
            }
            Hello::Partial => {}
        }
        if client.read_buf(first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Connects to the host that a client requests. Returns the rule that allows it, or the status and text of a refusal.
async fn dial<'a>(
    head: &[u8],
    rules: &'a [HostRule],
    refused: &RefusedHosts,
) -> Result<(ProxyRequest, &'a HostRule, TcpStream), (&'static str, String)> {
    let request = parse_request(head).map_err(|named| {
        if let Some(named) = named {
            refused.add(&named);
        }
        let text = "the proxy of the sandbox does not understand this request";
        ("400 Bad Request", text.to_owned())
    })?;
    let name = &request.host;
    let forbidden = |text: String| {
        refused.add(name);
        ("403 Forbidden", text)
    };
    let rule = rules.iter().find(|rule| rule.covers(name, request.port));
    let rule = rule.ok_or_else(|| {
        forbidden(format!(
            "the sandbox does not let commands connect to {name}"
        ))
    })?;
    // A rule without a port allows only the web's ports: 443 for tunnels, 80 for plain requests.
    let usual = if request.tunnel { TLS_PORT } else { PLAIN_PORT };
    if rule.wants_tls() && request.port != usual {
        let port = request.port;
        return Err(forbidden(format!(
            "the sandbox lets commands connect to {name} at port {usual} only; `{name}:{port}` allows this one"
        )));
    }
    let found = resolve(&request, rule).await;
    let found = found.map_err(|err| {
        (
            "502 Bad Gateway",
            format!("{name} cannot be resolved: {err}"),
        )
    })?;
    let address = found.ok_or_else(|| {
        forbidden(format!(
            "{name} resolves to an address of this machine or its local network"
        ))
    })?;
    match timeout(TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(host)) => Ok((request, rule, host)),
        Ok(Err(err)) => Err((
            "502 Bad Gateway",
            format!("{name} cannot be reached: {err}"),
        )),
        Err(_) => Err(("504 Gateway Timeout", format!("{name} does not answer"))),
    }
}

/// Returns the first address that the rule permits; `None` if it permits none.
async fn resolve(request: &ProxyRequest, rule: &HostRule) -> io::Result<Option<SocketAddr>> {
    let found = timeout(
        TIMEOUT,
        tokio::net::lookup_host((request.host.as_str(), request.port)),
    );
    let mut found = found.await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(found.find(|address| rule.names_address() || is_public(address.ip())))
}

/// Reads the head of a request. Also returns the bytes after it.
async fn read_head(client: &mut TcpStream) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut head = Vec::with_capacity(1024);
    loop {
        if client.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(end) = memchr::memmem::find(&head, b"\r\n\r\n") {
            let rest = head.split_off(end + 4);
            return Ok((head, rest));
        }
        if head.len() > MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Parses the head of a request. The error is the requested host, if it is not a valid host name.
fn parse_request(head: &[u8]) -> Result<ProxyRequest, Option<String>> {
    let text = std::str::from_utf8(head).map_err(|_| None)?;
    let (line, headers) = text.split_once("\r\n").ok_or(None)?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(None);
    };
    if method == "CONNECT" {
        let (host, port) = host_of(target, TLS_PORT)?;
        return Ok(ProxyRequest {
            host,
            port,
            head: Vec::new(),
            tunnel: true,
        });
    }
    let rest = target.strip_prefix("http://").ok_or(None)?;
    let (authority, path) = rest
        .find(['/', '?'])
        .map_or((rest, ""), |at| rest.split_at(at));
    let (host, port) = host_of(authority, PLAIN_PORT)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head =
        format!("{method} {slash}{path} {version}\r\nHost: {authority}\r\nConnection: close\r\n");
    // Headers for the proxy are not forwarded; the host header names the host that was checked.
    let ours = [
        "host:",
        "connection:",
        "proxy-connection:",
        "proxy-authorization:",
        "keep-alive:",
    ];
    for header in headers.split("\r\n").filter(|header| !header.is_empty()) {
        let lower = header.to_ascii_lowercase();
        if !ours.iter().any(|name| lower.starts_with(name)) {
            head.push_str(header);
            head.push_str("\r\n");
        }
    }
    head.push_str("\r\n");
    Ok(ProxyRequest {
        host,
        port,
        head: head.into_bytes(),
        tunnel: false,
    })
}

fn host_of(authority: &str, usual: u16) -> Result<(String, u16), Option<String>> {
    let named = || {
        Some(
            authority
                .chars()
                .filter(|c| !c.is_control())
                .collect::<String>(),
        )
    };
    let (host, port) = split_port(authority).ok_or_else(named)?;
    Ok((clean_host(host).ok_or_else(named)?, port.unwrap_or(usual)))
}

async fn answer(client: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    let body = format!("{text}\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes()).await?;
    client.write_all(body.as_bytes()).await?;
    client.shutdown().await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sandbox::NetPolicy;

    /// Sends bytes through a proxy with this policy. Returns the answer, and the refused hosts.
    async fn ask(policy: &str, request: &str) -> (String, Vec<String>) {
        let NetPolicy::Hosts(rules) = policy.parse().unwrap() else {
            panic!("{policy}")
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let refused = RefusedHosts::default();
        let hosts = AllowedHosts::default();
        hosts.set(rules);
        let task = tokio::spawn(serve(listener, hosts, refused.clone()));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        task.abort();
        (answer, refused.take())
    }

    /// Starts a host that echoes the head of each request.
    async fn echo() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (head, _) = read_head(&mut stream).await.unwrap();
                stream.write_all(&head).await.unwrap();
            }
        });
        port
    }

    #[tokio::test]
    async fn one_host_passes_and_another_is_refused_and_recorded() {
        let port = echo().await;
        let policy = format!("allow:127.0.0.1:{port}");
        let plain = format!(
            "GET http://127.0.0.1:{port}/a?b HTTP/1.1\r\nHost: evil\r\nProxy-Authorization: x\r\nX: y\r\n\r\n"
        );
        let (answer, refused) = ask(&policy, &plain).await;
        assert_eq!(
            answer,
            format!(
                "GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nX: y\r\n\r\n"
            )
        );
        assert!(refused.is_empty());
        let tunnel = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nhello\r\n\r\n");
        let (answer, _) = ask(&policy, &tunnel).await;
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello\r\n\r\n"),
            "{answer}"
        );
        let (answer, refused) = ask(&policy, "CONNECT other.example:443 HTTP/1.1\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert_eq!(refused, ["other.example"]);
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_this_machine_is_refused() {
        let port = echo().await;
        // The rule allows another name; the requested name is this machine.
        let (answer, refused) = ask(
            "allow:localhost.example",
            &format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n"),
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert_eq!(refused, ["localhost"]);
        let request = ProxyRequest {
            host: "localhost".into(),
            port,
            head: Vec::new(),
            tunnel: true,
        };
        let NetPolicy::Hosts(rules) = "allow:some.example".parse().unwrap() else {
            panic!()
        };
        assert_eq!(resolve(&request, &rules[0]).await.unwrap(), None);
    }

    #[tokio::test]
    async fn malformed_requests_are_refused() {
        for request in [
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT a b c d\r\n\r\n",
            "CONNECT 127.0.0.1%00.ok.example:80 HTTP/1.1\r\n\r\n",
            "CONNECT x@ok.example:80 HTTP/1.1\r\n\r\n",
            "GET ftp://ok.example/ HTTP/1.1\r\n\r\n",
        ] {
            let (answer, _) = ask("allow:*.ok.example,ok.example", request).await;
            assert!(answer.starts_with("HTTP/1.1 400"), "{request}: {answer}");
        }
    }

    /// Returns the result for a client that begins a tunnel to `ok.example` with these bytes.
    async fn tunnelled(first: &[u8]) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut proxy, _) = listener.accept().await.unwrap();
        client.write_all(first).await.unwrap();
        client.shutdown().await.unwrap();
        let mut read = Vec::new();
        let result = check_hello(&mut proxy, &mut read, "ok.example").await;
        let result = result.unwrap_or_else(|err| Err(err.to_string()));
        assert!(
            result.is_err() || read == first,
            "the bytes that were read are kept"
        );
        result
    }

    #[tokio::test]
    async fn a_tunnel_must_name_the_allowed_host() {
        use super::client_hello::tests::hello;
        assert_eq!(tunnelled(&hello("ok.example")).await, Ok(()));
        assert_eq!(tunnelled(&hello("OK.example")).await, Ok(()));
        assert_eq!(
            tunnelled(&hello("evil.example")).await,
            Err("evil.example".to_owned())
        );
        for first in [
            &b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"[..],
            b"SSH-2.0-x\r\n",
        ] {
            let result = tunnelled(first).await;
            assert_eq!(
                result,
                Err("ok.example (it is not a TLS handshake)".to_owned())
            );
        }
        assert!(tunnelled(&hello("ok.example")[..20]).await.is_err());
    }

    #[tokio::test]
    async fn a_rule_without_a_port_allows_only_the_ports_of_the_web() {
        for (request, says) in [
            ("CONNECT ok.example:22 HTTP/1.1\r\n\r\n", "port 443 only"),
            ("CONNECT ok.example:80 HTTP/1.1\r\n\r\n", "port 443 only"),
            (
                "GET http://ok.example:8080/ HTTP/1.1\r\n\r\n",
                "port 80 only",
            ),
        ] {
            let (answer, refused) = ask("allow:ok.example", request).await;
            assert!(
                answer.starts_with("HTTP/1.1 403") && answer.contains(says),
                "{answer}"
            );
            assert_eq!(refused, ["ok.example"]);
        }
    }
}
