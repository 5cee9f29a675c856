//! The HTTP client of the workspace: HTTP/1.1 with a keep-alive pool, the system's root certificates and explicit
//! proxies. Redirects, sizes and times are limited: it follows at most three redirects, and to another host only for a
//! download, which carries no key; it decodes gzip up to a maximum size, and it fails when no byte arrives for the idle
//! timeout. It never retries, reads no environment variables and knows no model protocol.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
pub use reqwest::{Method, Url, header};
use tokio::time::{Instant, Sleep};

use self::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use crate::cassette::{CassettePlayer, ExchangeLabel, Recorder, Recording, SentRequest};
use crate::tls;

const MAX_REDIRECTS: usize = 3;

/// Settings of the HTTP client.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Additional root certificates, as the content of a PEM file.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// The value of `HTTPS_PROXY`.
    pub https_proxy: Option<String>,
    /// The value of `HTTP_PROXY`.
    pub http_proxy: Option<String>,
    /// The value of `NO_PROXY`. Requests to the loopback interface never use a proxy.
    pub no_proxy: Option<String>,
    /// Includes the TLS handshake.
    pub connect_timeout: Duration,
    /// The longest time without a byte, before the response headers or inside the body.
    pub idle_timeout: Duration,
    /// The longest time for a whole body, counted from the response headers.
    pub total_timeout: Duration,
    /// In bytes, after decompression.
    pub max_body: u64,
    /// Connects requests to this host only to this address, without asking DNS again and without a proxy.
    pub pinned: Option<(String, std::net::SocketAddr)>,
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
            pinned: None,
        }
    }
}

/// Reports a failed request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HttpError {
    pub kind: HttpErrorKind,
    /// Includes the name of the host.
    pub message: String,
}

/// The kind of an [`HttpError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpErrorKind {
    Setup,
    Dns,
    Refused,
    ConnectTimeout,
    /// The certificate is not trusted, or the handshake failed.
    Tls,
    Proxy,
    /// No byte arrived for [`HttpOptions::idle_timeout`].
    Idle,
    /// The body took longer than [`HttpOptions::total_timeout`].
    TooSlow,
    Connect,
    Broken,
    /// The bytes are not valid HTTP or not in the announced encoding.
    Malformed,
    /// The body is larger than [`HttpOptions::max_body`].
    TooLarge,
    Redirect,
    /// The request differs from the exchange in the cassette.
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

fn setup_error(why: impl std::fmt::Display) -> HttpError {
    HttpErrorKind::Setup.error(format!("cannot set up the HTTP client: {why}"))
}

fn idle_error(host: &str, limit: Duration) -> HttpError {
    let seconds = limit.as_secs();
    HttpErrorKind::Idle.error(format!("`{host}` sent no data for {seconds} s"))
}

fn malformed(host: &str, detail: &str) -> HttpError {
    HttpErrorKind::Malformed.error(format!("`{host}` sent an invalid HTTP response: {detail}"))
}

fn proxy_error(host: &str, detail: &str) -> HttpError {
    HttpErrorKind::Proxy.error(format!("the proxy did not connect to `{host}`: {detail}"))
}

fn redirect_error(host: &str, detail: &str) -> HttpError {
    let message = format!("`{host}` redirects {detail}; set the base URL to the final address");
    HttpErrorKind::Redirect.error(message)
}

/// The HTTP client. Cheap to clone; clones share the connection pool.
#[derive(Debug, Clone)]
pub struct Http {
    client: reqwest::Client,
    connect_timeout: Duration,
    idle_timeout: Duration,
    total_timeout: Duration,
    max_body: u64,
    cassette: CassetteMode,
}

/// The hosts to which redirects are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RedirectPolicy {
    SameHost,
    AnyHost,
    /// The redirect itself is the response.
    Never,
}

/// Whether exchanges are recorded, or played instead of using the network.
#[derive(Debug, Clone)]
enum CassetteMode {
    None,
    Record(Recorder, ExchangeLabel),
    Play(CassettePlayer),
}

/// The status and headers of a response, with a body that is read later.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: HttpBody,
}

fn method_for(body: &Option<Bytes>) -> Method {
    match body {
        Some(_) => Method::POST,
        None => Method::GET,
    }
}

impl Http {
    /// Creates the client. Reads no certificate store and opens no connection.
    pub fn new(options: &HttpOptions) -> Result<Self, HttpError> {
        let roots = match &options.extra_ca_pem {
            Some(pem) => tls::parse_roots(pem)
                .map_err(|why| setup_error(format!("the extra CA file: {why}")))?,
            None => Vec::new(),
        };
        let config = tls::client_config(roots).map_err(setup_error)?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(config)
            .http1_only()
            .tcp_nodelay(true)
            .connect_timeout(options.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
            .no_proxy(); // ignore the environment; the configured proxies follow
        match &options.pinned {
            // A proxy would resolve the name itself.
            Some((host, address)) => builder = builder.resolve(host, *address),
            None => {
                for proxy in proxies(options)? {
                    builder = builder.proxy(proxy);
                }
            }
        }
        let client = builder.build().map_err(|err| setup_error(chain(&err)))?;
        Ok(Self {
            client,
            connect_timeout: options.connect_timeout,
            idle_timeout: options.idle_timeout,
            total_timeout: options.total_timeout,
            max_body: options.max_body,
            cassette: CassetteMode::None,
        })
    }

    /// Records every exchange with this recorder.
    #[must_use]
    pub fn recording(self, recorder: Recorder) -> Self {
        Self {
            cassette: CassetteMode::Record(recorder, ExchangeLabel::default()),
            ..self
        }
    }

    /// Answers every request from a cassette and opens no connection.
    #[must_use]
    pub fn playing(self, player: CassettePlayer) -> Self {
        Self {
            cassette: CassetteMode::Play(player),
            ..self
        }
    }

    /// Sets the label of recorded exchanges.
    pub(crate) fn labelled(mut self, new: ExchangeLabel) -> Self {
        if let CassetteMode::Record(_, label) = &mut self.cassette {
            *label = new;
        }
        self
    }

    /// Sends a `POST` with a body, or a `GET` without one, and waits for the response headers.
    pub async fn send(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<HttpResponse, HttpError> {
        self.send_following(
            RedirectPolicy::SameHost,
            method_for(&body),
            url,
            headers,
            body,
        )
        .await
    }

    /// Like [`Self::send`], with any method.
    pub async fn send_as(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<HttpResponse, HttpError> {
        self.send_following(RedirectPolicy::SameHost, method, url, headers, body)
            .await
    }

    /// Requests a public file, without content encoding. The request carries no key, so redirects to other hosts are
    /// followed, but not from `https` to `http`.
    pub async fn download(&self, url: &Url) -> Result<HttpResponse, HttpError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        self.send_following(RedirectPolicy::AnyHost, Method::GET, url, headers, None)
            .await
    }

    /// Like [`Self::send`], but returns a redirect instead of following it.
    pub async fn send_once(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<HttpResponse, HttpError> {
        self.send_following(RedirectPolicy::Never, method_for(&body), url, headers, body)
            .await
    }

    async fn send_following(
        &self,
        policy: RedirectPolicy,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<HttpResponse, HttpError> {
        let body = body.unwrap_or_default();
        let sent = SentRequest {
            method: &method,
            url,
            body: &body,
        };
        if let CassetteMode::Play(player) = &self.cassette {
            return self.played(player, &sent);
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
                Err(_) => return Err(idle_error(&host, self.idle_timeout)),
            };
            if !response.status().is_redirection() || policy == RedirectPolicy::Never {
                return Ok(self.response(response, host, &sent));
            }
            url = next_hop(policy, &url, &response)?;
        }
        let detail = format!("more than {MAX_REDIRECTS} times");
        Err(redirect_error(&host_of(&url), &detail))
    }

    fn response(
        &self,
        mut response: reqwest::Response,
        host: String,
        sent: &SentRequest<'_>,
    ) -> HttpResponse {
        let (status, headers) = (
            response.status().as_u16(),
            std::mem::take(response.headers_mut()),
        );
        let recording = match &self.cassette {
            CassetteMode::Record(recorder, label) => {
                let content_type = headers
                    .get(CONTENT_TYPE)
                    .and_then(|value| value.to_str().ok());
                Some(recorder.start(label, sent, status, content_type.unwrap_or_default()))
            }
            CassetteMode::None | CassetteMode::Play(_) => None,
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

    fn played(
        &self,
        player: &CassettePlayer,
        sent: &SentRequest<'_>,
    ) -> Result<HttpResponse, HttpError> {
        let answer = player
            .answer(sent)
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

    /// Maps an error of the HTTP library. Where the library has no type for a failure, its message decides.
    fn classify(&self, err: &reqwest::Error, host: &str) -> HttpError {
        let mut source: Option<&(dyn StdError + 'static)> = Some(err);
        let detail = chain(err);
        while let Some(cause) = source {
            if let Some(classified) = classify_io(innermost(cause), host, &detail) {
                return classified;
            }
            let text = cause.to_string();
            if text.contains("dns error") {
                let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
                return HttpErrorKind::Dns.error(format!(
                    "cannot find the address of `{name}` (DNS); check the name and the network"
                ));
            }
            if text.contains("tunnel error")
                || text.contains("proxy authentication")
                || text.contains("socks")
            {
                return proxy_error(host, &text);
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

/// The body of a response, read in pieces.
pub struct HttpBody {
    stream: Pieces,
    http: Http,
    host: String,
    read: u64,
    deadline: Instant,
    /// The idle timer; it runs only while no bytes are available.
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
    /// Polls for the next piece; `None` means that the body is complete.
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
            (Some(recording), Some(Ok(piece))) => recording.append(piece),
            (Some(recording), None) => recording.complete(),
            _ => {}
        }
        Poll::Ready(result)
    }

    fn too_slow(&self) -> HttpError {
        let (host, seconds) = (&self.host, self.http.total_timeout.as_secs());
        let message = format!("the answer of `{host}` was not complete after {seconds} s");
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
                Poll::Ready(Some(Err(idle_error(&self.host, limit))))
            }
        }
    }

    /// Returns `host:port` of the server.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Reads at most `limit` bytes of the body and drops the rest. On an error it returns the bytes received until
    /// then.
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

/// Returns the innermost cause of nested IO errors, which `source` does not reveal.
fn innermost<'a>(mut cause: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    while let Some(inner) = cause
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref)
    {
        if !inner.is::<std::io::Error>() && !inner.is::<rustls::Error>() {
            break; // a plain message: the kind of the IO error around it is more specific
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
            Some(proxy_error(host, "it refused the connection"))
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
        // The address may contain a password, so the message does not repeat it.
        let proxy = make(value).map_err(|_| {
            setup_error(format!(
                "{name} is not an address of the form http://host:port"
            ))
        })?;
        proxies.push(proxy.no_proxy(reqwest::NoProxy::from_string(&exceptions)));
    }
    Ok(proxies)
}

/// Returns the target of a redirect response, or an error if the redirect is not followed.
fn next_hop(
    policy: RedirectPolicy,
    from: &Url,
    response: &reqwest::Response,
) -> Result<Url, HttpError> {
    let refuse = |detail: &str| redirect_error(&host_of(from), detail);
    let target = response
        .headers()
        .get(LOCATION)
        .and_then(|value| value.to_str().ok());
    let target = target.ok_or_else(|| refuse("without a target"))?;
    let to = next_url(policy, from, target)?;
    match (response.status().as_u16(), policy) {
        (301 | 302 | 307 | 308, _) | (303, RedirectPolicy::AnyHost) => Ok(to),
        (status, _) => Err(refuse(&format!(
            "with status {status}, which loses the request"
        ))),
    }
}

/// Resolves the target of a redirect, or returns an error if the policy forbids it. [`RedirectPolicy::SameHost`] allows
/// the same host and port, and the same host upgraded to TLS.
fn next_url(policy: RedirectPolicy, from: &Url, target: &str) -> Result<Url, HttpError> {
    let refuse = |detail: &str| redirect_error(&host_of(from), detail);
    let to = from
        .join(target)
        .map_err(|_| refuse("to something that is not an address"))?;
    let upgraded = from.scheme() == "http" && to.scheme() == "https";
    if policy == RedirectPolicy::AnyHost {
        return match to.scheme() == from.scheme() || upgraded {
            true => Ok(to),
            false => Err(refuse("to an address without TLS, which is not followed")),
        };
    }
    let same_host = to.host_str() == from.host_str();
    let same_origin =
        to.scheme() == from.scheme() && to.port_or_known_default() == from.port_or_known_default();
    if !same_host || !(same_origin || upgraded) {
        // Neither the key nor the source code in the body may go to a host that the user did not configure.
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

/// Joins the messages of an error's causes, each once. The error's own message is omitted, because it contains the
/// address, and a query may contain a key.
fn chain(err: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut source = StdError::source(err);
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.contains(&message) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&message);
        }
        source = cause.source();
    }
    if text.is_empty() {
        "the request could not be sent".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
