//! The one HTTP stack: HTTP/1.1 with a keep-alive pool, system roots, explicit proxies, and a bound on everything.
//! It follows at most three redirects and never to another host (but for a download, which has no key), decodes gzip up
//! to a total, and gives up when no byte arrives for the idle time. It never retries, reads no environment and knows no protocol.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use reqwest::Method;
pub use reqwest::{Url, header};
use tokio::time::{Instant, Sleep};

use self::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use crate::cassette::{Asked, Label, Player, Recorder, Recording};
use crate::tls;

const MAX_REDIRECTS: usize = 3;

/// How to reach the network. All values come from the caller.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// A PEM file's bytes with further root certificates.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// What `HTTPS_PROXY` says, for `https` addresses.
    pub https_proxy: Option<String>,
    /// What `HTTP_PROXY` says, for `http` addresses.
    pub http_proxy: Option<String>,
    /// What `NO_PROXY` says. Loopback never goes through a proxy.
    pub no_proxy: Option<String>,
    /// Longest time to a connection, TLS included.
    pub connect_timeout: Duration,
    /// Longest time without a byte, before the answer's head or inside its body.
    pub idle_timeout: Duration,
    /// Longest time for the whole of one answer, counted from its head.
    pub total_timeout: Duration,
    /// Most bytes of one body, counted after decompression.
    pub max_body: u64,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            extra_ca_pem: None,
            https_proxy: None,
            http_proxy: None,
            no_proxy: None,
            connect_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(120),
            total_timeout: Duration::from_secs(3_600),
            max_body: 512 << 20,
        }
    }
}

/// Why an exchange failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HttpError {
    /// What to match on.
    pub kind: HttpErrorKind,
    /// For a person: what happened, with the host.
    pub message: String,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpErrorKind {
    /// The options cannot be used.
    Setup,
    /// The name has no address.
    Dns,
    /// Nobody listens.
    Refused,
    /// No connection in time.
    ConnectTimeout,
    /// The certificate or the handshake is bad.
    Tls,
    /// The proxy did not let us through.
    Proxy,
    /// No byte for the idle time.
    Idle,
    /// The answer went on for too long.
    TooSlow,
    /// The connection could not be made.
    Connect,
    /// The connection broke.
    Broken,
    /// The bytes are not HTTP, or not the promised encoding.
    Malformed,
    /// The body passed [`HttpOptions::max_body`].
    TooLarge,
    /// A redirect we do not follow.
    Redirect,
    /// The cassette that is played holds another exchange.
    Cassette,
}

impl HttpErrorKind {
    fn error(self, message: String) -> HttpError {
        HttpError {
            kind: self,
            message,
        }
    }
}

/// The options cannot be used.
fn unusable(why: impl std::fmt::Display) -> HttpError {
    HttpErrorKind::Setup.error(format!("cannot set up HTTP: {why}"))
}

fn silent(host: &str, limit: Duration) -> HttpError {
    let seconds = limit.as_secs();
    HttpErrorKind::Idle.error(format!("no byte from `{host}` for {seconds} s"))
}

fn malformed(host: &str, detail: &str) -> HttpError {
    HttpErrorKind::Malformed.error(format!("`{host}` did not answer in proper HTTP: {detail}"))
}

fn no_way_through(host: &str, detail: &str) -> HttpError {
    HttpErrorKind::Proxy.error(format!(
        "the proxy did not connect us to `{host}`: {detail}"
    ))
}

fn redirected(host: &str, detail: &str) -> HttpError {
    let message = format!("`{host}` redirects {detail}; set the base URL to the final address");
    HttpErrorKind::Redirect.error(message)
}

/// The client. Cheap to clone; clones share the connection pool.
#[derive(Debug, Clone)]
pub struct Http {
    client: reqwest::Client,
    connect_timeout: Duration,
    idle_timeout: Duration,
    total_timeout: Duration,
    max_body: u64,
    tape: Tape,
}

/// Which redirects are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follow {
    SameHost,
    AnyHost,
}

/// What stands beside the network, or in its place.
#[derive(Debug, Clone)]
enum Tape {
    None,
    Record(Recorder, Label),
    Play(Player),
}

/// The head of an answer, with its body still to be read.
#[derive(Debug)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: HttpBody,
}

impl Http {
    /// Builds the client. Reads no certificate store and opens no connection.
    pub fn new(options: &HttpOptions) -> Result<Self, HttpError> {
        let roots = match &options.extra_ca_pem {
            Some(pem) => tls::parse_roots(pem)
                .map_err(|why| unusable(format!("the extra CA file: {why}")))?,
            None => Vec::new(),
        };
        let config = tls::client_config(roots).map_err(unusable)?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(config)
            .http1_only()
            .tcp_nodelay(true)
            .connect_timeout(options.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
            .no_proxy(); // nothing from the environment; what was given follows
        for proxy in proxies(options)? {
            builder = builder.proxy(proxy);
        }
        let client = builder.build().map_err(|err| unusable(chain(&err)))?;
        Ok(Self {
            client,
            connect_timeout: options.connect_timeout,
            idle_timeout: options.idle_timeout,
            total_timeout: options.total_timeout,
            max_body: options.max_body,
            tape: Tape::None,
        })
    }

    /// Takes down every exchange.
    #[must_use]
    pub fn recording(self, recorder: Recorder) -> Self {
        Self {
            tape: Tape::Record(recorder, Label::default()),
            ..self
        }
    }

    /// Plays what was taken down and connects to nothing.
    #[must_use]
    pub fn playing(self, player: Player) -> Self {
        Self {
            tape: Tape::Play(player),
            ..self
        }
    }

    /// Says whom this client asks, for what is taken down.
    pub(crate) fn labelled(mut self, whom: Label) -> Self {
        if let Tape::Record(_, label) = &mut self.tape {
            *label = whom;
        }
        self
    }

    /// Sends a body, or asks for an address without one, and waits for the head of the answer.
    pub async fn send(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<HttpResponse, HttpError> {
        self.send_following(Follow::SameHost, url, headers, body)
            .await
    }

    /// Asks for a public file as it is stored. It carries no key, so that redirects to other hosts are followed; from
    /// `https` to nothing else.
    pub async fn download(&self, url: &Url) -> Result<HttpResponse, HttpError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        self.send_following(Follow::AnyHost, url, headers, None)
            .await
    }

    async fn send_following(
        &self,
        follow: Follow,
        url: &Url,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<HttpResponse, HttpError> {
        let method = match body {
            Some(_) => Method::POST,
            None => Method::GET,
        };
        let body = body.unwrap_or_default();
        let asked = Asked {
            method: &method,
            url,
            body: &body,
        };
        if let Tape::Play(player) = &self.tape {
            return self.played(player, &asked);
        }
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let host = host_of(&url);
            let request = self
                .client
                .request(method.clone(), url.clone())
                .headers(headers.clone())
                .body(body.clone());
            let response = match tokio::time::timeout(self.idle_timeout, request.send()).await {
                Ok(Ok(response)) => response,
                Ok(Err(err)) => return Err(self.classify(&err, &host)),
                Err(_) => return Err(silent(&host, self.idle_timeout)),
            };
            if !response.status().is_redirection() {
                return Ok(self.response(response, host, &asked));
            }
            url = next_hop(follow, &url, &response)?;
        }
        let detail = format!("more than {MAX_REDIRECTS} times");
        Err(redirected(&host_of(&url), &detail))
    }

    fn response(
        &self,
        mut response: reqwest::Response,
        host: String,
        asked: &Asked<'_>,
    ) -> HttpResponse {
        let (status, headers) = (
            response.status().as_u16(),
            std::mem::take(response.headers_mut()),
        );
        let recording = match &self.tape {
            Tape::Record(recorder, label) => {
                let content_type = headers
                    .get(CONTENT_TYPE)
                    .and_then(|value| value.to_str().ok());
                Some(recorder.start(label, asked, status, content_type.unwrap_or_default()))
            }
            Tape::None | Tape::Play(_) => None,
        };
        let (http, peer) = (self.clone(), host.clone());
        let stream = response
            .bytes_stream()
            .map(move |piece| piece.map_err(|err| http.classify(&err, &peer)));
        HttpResponse {
            status,
            headers,
            body: self.body(Box::pin(stream), host, recording),
        }
    }

    fn played(&self, player: &Player, asked: &Asked<'_>) -> Result<HttpResponse, HttpError> {
        let answer = player
            .answer(asked)
            .map_err(|why| HttpErrorKind::Cassette.error(why))?;
        let mut headers = HeaderMap::new();
        if let Ok(content_type) = HeaderValue::from_str(&answer.content_type) {
            headers.insert(CONTENT_TYPE, content_type);
        }
        let stream = futures_util::stream::iter([Ok(Bytes::from(answer.body))]);
        let body = self.body(Box::pin(stream), "the cassette".to_owned(), None);
        Ok(HttpResponse {
            status: answer.status,
            headers,
            body,
        })
    }

    fn body(&self, stream: Pieces, host: String, recording: Option<Recording>) -> HttpBody {
        let deadline = Instant::now() + self.total_timeout;
        HttpBody {
            stream,
            http: self.clone(),
            host,
            read: 0,
            deadline,
            idle: None,
            done: false,
            recording,
        }
    }

    /// Names what went wrong. The libraries below give few types, so their words decide where a type is missing.
    fn classify(&self, err: &reqwest::Error, host: &str) -> HttpError {
        let mut source: Option<&(dyn StdError + 'static)> = Some(err);
        let detail = chain(err);
        while let Some(cause) = source {
            if let Some(named) = classify_io(innermost(cause), host, &detail) {
                return named;
            }
            let words = cause.to_string();
            if words.contains("dns error") {
                let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
                return HttpErrorKind::Dns.error(format!(
                    "cannot find the address of `{name}` (DNS); check the name and the network"
                ));
            }
            if words.contains("tunnel error")
                || words.contains("proxy authentication")
                || words.contains("socks")
            {
                return no_way_through(host, &words);
            }
            source = cause.source();
        }
        if err.is_timeout() {
            let seconds = self.connect_timeout.as_secs();
            let message = format!("no connection to `{host}` within {seconds} s");
            return HttpErrorKind::ConnectTimeout.error(message);
        }
        if detail.contains("invalid HTTP") || detail.contains("message head is too large") {
            return malformed(host, &detail);
        }
        let kind = if err.is_connect() {
            HttpErrorKind::Connect
        } else {
            HttpErrorKind::Broken
        };
        kind.error(format!("the connection to `{host}` broke: {detail}"))
    }
}

type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, HttpError>> + Send>>;

/// The body of an answer, piece by piece.
pub struct HttpBody {
    stream: Pieces,
    http: Http,
    host: String,
    read: u64,
    deadline: Instant,
    /// Runs only while nothing is there to be read.
    idle: Option<Pin<Box<Sleep>>>,
    done: bool,
    recording: Option<Recording>,
}

impl std::fmt::Debug for HttpBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpBody")
            .field("host", &self.host)
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl HttpBody {
    /// The next piece; `None` at a clean end.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, HttpError>>> {
        if self.done {
            return Poll::Ready(None);
        }
        let result = match self.stream.as_mut().poll_next(cx) {
            Poll::Ready(result) => result,
            Poll::Pending => return self.poll_idle(cx),
        };
        self.idle = None;
        let result = result.map(|piece| match piece {
            Ok(_) if Instant::now() >= self.deadline => Err(self.too_slow()),
            Ok(bytes) => {
                self.read = self.read.saturating_add(bytes.len() as u64);
                if self.read > self.http.max_body {
                    let (host, limit) = (&self.host, self.http.max_body);
                    let message = format!("the answer of `{host}` is larger than {limit} bytes");
                    return Err(HttpErrorKind::TooLarge.error(message));
                }
                Ok(bytes)
            }
            Err(err) => Err(err),
        });
        self.done = !matches!(result, Some(Ok(_)));
        match (&mut self.recording, &result) {
            (Some(recording), Some(Ok(piece))) => recording.take(piece),
            (Some(recording), None) => recording.end(),
            _ => {}
        }
        Poll::Ready(result)
    }

    fn too_slow(&self) -> HttpError {
        let (host, seconds) = (&self.host, self.http.total_timeout.as_secs());
        let message = format!("the answer of `{host}` was not over after {seconds} s");
        HttpErrorKind::TooSlow.error(message)
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, HttpError>>> {
        let limit = self.http.idle_timeout;
        let until = (Instant::now() + limit).min(self.deadline);
        let idle = self
            .idle
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        match idle.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                self.done = true;
                if Instant::now() >= self.deadline {
                    return Poll::Ready(Some(Err(self.too_slow())));
                }
                Poll::Ready(Some(Err(silent(&self.host, limit))))
            }
        }
    }

    /// Host and port of the peer.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Reads at most `limit` bytes of the body and drops the rest. What broke off after some bytes counts as read.
    pub async fn read_up_to(mut self, limit: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < limit {
            match poll_fn(|cx| self.poll_piece(cx)).await {
                Some(Ok(piece)) => {
                    all.extend_from_slice(&piece[..piece.len().min(limit - all.len())])
                }
                Some(Err(_)) | None => break,
            }
        }
        all
    }
}

/// IO errors wrap each other and hide what they wrap from `source`; this looks through them.
fn innermost<'a>(mut cause: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    while let Some(inner) = cause
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref)
    {
        if !inner.is::<std::io::Error>() && !inner.is::<rustls::Error>() {
            break; // a plain text: the kind around it says more
        }
        cause = inner;
    }
    cause
}

fn classify_io(cause: &(dyn StdError + 'static), host: &str, detail: &str) -> Option<HttpError> {
    if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
        return Some(HttpErrorKind::Tls.error(format!("TLS with `{host}` failed: {tls}")));
    }
    match cause.downcast_ref::<std::io::Error>()?.kind() {
        std::io::ErrorKind::ConnectionRefused if detail.contains("tunnel error") => {
            Some(no_way_through(host, "it refused the connection"))
        }
        std::io::ErrorKind::ConnectionRefused => Some(HttpErrorKind::Refused.error(format!(
            "`{host}` refused the connection; is the server running?"
        ))),
        std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput => {
            Some(malformed(host, detail))
        }
        _ => None,
    }
}

fn proxies(options: &HttpOptions) -> Result<Vec<reqwest::Proxy>, HttpError> {
    let exceptions = format!(
        "localhost,127.0.0.0/8,::1,{}",
        options.no_proxy.as_deref().unwrap_or_default()
    );
    type Make = fn(&str) -> reqwest::Result<reqwest::Proxy>;
    let given: [(&str, &Option<String>, Make); 2] = [
        ("HTTPS_PROXY", &options.https_proxy, |url| {
            reqwest::Proxy::https(url)
        }),
        ("HTTP_PROXY", &options.http_proxy, |url| {
            reqwest::Proxy::http(url)
        }),
    ];
    let mut proxies = Vec::new();
    for (name, value, make) in given {
        let Some(value) = value
            .as_deref()
            .map(str::trim)
            .filter(|value| !value.is_empty())
        else {
            continue;
        };
        // The address may hold a password, so it is not echoed.
        let proxy = make(value)
            .map_err(|_| unusable(format!("{name} is not an address like http://host:port")))?;
        proxies.push(proxy.no_proxy(reqwest::NoProxy::from_string(&exceptions)));
    }
    Ok(proxies)
}

/// Where a redirect leads, if we go there: same host and port, or the same host upgraded to TLS.
fn next_hop(follow: Follow, from: &Url, response: &reqwest::Response) -> Result<Url, HttpError> {
    let refuse = |detail: &str| redirected(&host_of(from), detail);
    let target = response
        .headers()
        .get(LOCATION)
        .and_then(|value| value.to_str().ok());
    let target = target.ok_or_else(|| refuse("without saying where to"))?;
    let to = next_url(follow, from, target)?;
    match (response.status().as_u16(), follow) {
        (301 | 302 | 307 | 308, _) | (303, Follow::AnyHost) => Ok(to),
        (status, _) => Err(refuse(&format!(
            "with status {status}, which loses the request"
        ))),
    }
}

/// The address that a redirect leads to, where it may be followed.
fn next_url(follow: Follow, from: &Url, target: &str) -> Result<Url, HttpError> {
    let refuse = |detail: &str| redirected(&host_of(from), detail);
    let to = from
        .join(target)
        .map_err(|_| refuse("to something that is not an address"))?;
    let upgraded = from.scheme() == "http" && to.scheme() == "https";
    if follow == Follow::AnyHost {
        return match to.scheme() == from.scheme() || upgraded {
            true => Ok(to),
            false => Err(refuse("to an address without TLS, which is not followed")),
        };
    }
    let same_host = to.host_str() == from.host_str();
    let same_origin =
        to.scheme() == from.scheme() && to.port_or_known_default() == from.port_or_known_default();
    if !same_host || !(same_origin || upgraded) {
        // Neither the key nor the source code in the body may go to a host nobody configured.
        return Err(refuse(&format!(
            "to another host ({}), which is not followed",
            host_of(&to)
        )));
    }
    Ok(to)
}

fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or("?");
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// The words of an error and of its causes, without the address (a query may hold a key), each said once.
fn chain(err: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut source = StdError::source(err);
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&words);
        }
        source = cause.source();
    }
    if text.is_empty() {
        "the request could not be made".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
