//! The one way out of a sandbox whose network is a list of hosts: a proxy on a listener of the sandbox's own loopback.
//! It resolves a name once, looks at the address, and dials exactly that one. Everything else is refused and told.

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

use super::net::{HostRule, clean_host, is_public, split_port};

/// The longest head of a request.
const MAX_HEAD: usize = 32 << 10;
/// Connections at a time; more wait.
const MOST: usize = 128;
/// How long a client may take to say what it wants, and a host to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Refused hosts that are remembered between two looks.
const MOST_REFUSED: usize = 64;

/// Hosts that were refused since somebody last looked.
#[derive(Debug, Default, Clone)]
pub(super) struct Refused(Arc<Mutex<BTreeSet<String>>>);

impl Refused {
    fn add(&self, host: &str) {
        let mut hosts = self.0.lock();
        if hosts.len() < MOST_REFUSED {
            hosts.insert(host.chars().take(253).collect());
        }
    }

    /// Takes them.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock()).into_iter().collect()
    }
}

/// The hosts that may be reached now.
#[derive(Debug, Default, Clone)]
pub(super) struct AllowedHosts(Arc<Mutex<Arc<[HostRule]>>>);

impl AllowedHosts {
    /// From here on these may be reached. A connection that is open stays open.
    pub(super) fn set(&self, rules: Vec<HostRule>) {
        *self.0.lock() = rules.into();
    }

    fn now(&self) -> Arc<[HostRule]> {
        Arc::clone(&self.0.lock())
    }
}

/// Serves until it is dropped with its task.
pub(super) async fn serve(listener: std::net::TcpListener, hosts: AllowedHosts, refused: Refused) {
    let listener = match listener
        .set_nonblocking(true)
        .and_then(|()| TcpListener::from_std(listener))
    {
        Ok(listener) => listener,
        // Without a listener nothing can be reached, which is on the safe side.
        Err(_) => return,
    };
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((client, _)) => {
                let (rules, refused) = (hosts.now(), refused.clone());
                tokio::spawn(async move {
                    // What goes wrong on one connection is that client's to see.
                    let _ = one(client, &rules, &refused).await;
                    drop(place);
                });
            }
            // Out of handles: the next try comes when something was closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// What a client asks for.
struct Wish {
    host: String,
    port: u16,
    /// What goes to the host first: nothing for a tunnel, the request for a plain one.
    head: Vec<u8>,
    tunnel: bool,
}

async fn one(mut client: TcpStream, rules: &[HostRule], refused: &Refused) -> io::Result<()> {
    let (head, rest) = timeout(PATIENCE, read_head(&mut client))
        .await
        .map_err(|_| io::ErrorKind::TimedOut)??;
    let (wish, mut host) = match dial(&head, rules, refused).await {
        Ok(dialled) => dialled,
        Err((status, text)) => return answer(&mut client, status, &text).await,
    };
    if wish.tunnel {
        client
            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .await?;
    }
    host.write_all(&wish.head).await?;
    host.write_all(&rest).await?;
    tokio::io::copy_bidirectional(&mut client, &mut host)
        .await
        .map(drop)
}

/// The connection to the host that a client asks for, or the status and the text of a refusal.
async fn dial(
    head: &[u8],
    rules: &[HostRule],
    refused: &Refused,
) -> Result<(Wish, TcpStream), (&'static str, String)> {
    let wish = read_wish(head).map_err(|named| {
        if let Some(named) = named {
            refused.add(&named);
        }
        let text = "this is no request the sandbox's proxy understands";
        ("400 Bad Request", text.to_owned())
    })?;
    let name = &wish.host;
    let forbidden = |text: String| {
        refused.add(name);
        ("403 Forbidden", text)
    };
    let rule = rules.iter().find(|rule| rule.covers(name, wish.port));
    let rule = rule.ok_or_else(|| {
        forbidden(format!(
            "the sandbox does not let commands connect to {name}"
        ))
    })?;
    let found = resolve(&wish, rule).await;
    let found =
        found.map_err(|err| ("502 Bad Gateway", format!("{name} cannot be found: {err}")))?;
    let address = found.ok_or_else(|| {
        forbidden(format!(
            "{name} leads to an address of this machine or its network"
        ))
    })?;
    match timeout(PATIENCE, TcpStream::connect(address)).await {
        Ok(Ok(host)) => Ok((wish, host)),
        Ok(Err(err)) => Err((
            "502 Bad Gateway",
            format!("{name} cannot be reached: {err}"),
        )),
        Err(_) => Err(("504 Gateway Timeout", format!("{name} does not answer"))),
    }
}

/// The first address that may be dialled; none when all of them are refused.
async fn resolve(wish: &Wish, rule: &HostRule) -> io::Result<Option<SocketAddr>> {
    let found = timeout(
        PATIENCE,
        tokio::net::lookup_host((wish.host.as_str(), wish.port)),
    );
    let mut found = found.await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(found.find(|address| rule.names_address() || is_public(address.ip())))
}

/// The head of a request, and what came behind it.
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

/// What is wanted, or the host that was named where it is no host.
fn read_wish(head: &[u8]) -> Result<Wish, Option<String>> {
    let text = std::str::from_utf8(head).map_err(|_| None)?;
    let (line, headers) = text.split_once("\r\n").ok_or(None)?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(None);
    };
    if method == "CONNECT" {
        let (host, port) = host_of(target, 443)?;
        return Ok(Wish {
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
    let (host, port) = host_of(authority, 80)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head =
        format!("{method} {slash}{path} {version}\r\nHost: {authority}\r\nConnection: close\r\n");
    // What is meant for the proxy stays here; the host is the one that was judged.
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
    Ok(Wish {
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

    /// Sends bytes through a proxy with that policy; the answer, and what was refused.
    async fn ask(policy: &str, request: &str) -> (String, Vec<String>) {
        let NetPolicy::Hosts(rules) = policy.parse().unwrap() else {
            panic!("{policy}")
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let refused = Refused::default();
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

    /// A host that answers every connection with what it was sent up to the empty line.
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
    async fn one_host_passes_and_the_next_is_refused_and_told() {
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
    async fn a_name_that_leads_to_this_machine_is_refused() {
        let port = echo().await;
        // A rule for the port of any name below a domain; the name is this machine.
        let (answer, refused) = ask(
            "allow:localhost.example",
            &format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n"),
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert_eq!(refused, ["localhost"]);
        let wish = Wish {
            host: "localhost".into(),
            port,
            head: Vec::new(),
            tunnel: true,
        };
        let NetPolicy::Hosts(rules) = "allow:some.example".parse().unwrap() else {
            panic!()
        };
        assert_eq!(resolve(&wish, &rules[0]).await.unwrap(), None);
    }

    #[tokio::test]
    async fn nonsense_is_refused() {
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
}
