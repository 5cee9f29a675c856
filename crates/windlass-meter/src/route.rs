//! Finds out where a request goes, from its method, path and headers alone. A path that is not listed here is rejected:
//! the agent is in the sandbox, and this endpoint is its only way out. Pure; the body is not read.

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, UPGRADE};
use hyper::{Method, Uri};

use super::dialect::{AgentDialect, RequestFault};

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// A model call, which costs something.
    Call(CallTarget),
    /// A question how many tokens a request has, which is free.
    Count(CallTarget),
    /// A list of models, or the description of one.
    Models {
        dialect: AgentDialect,
        /// The model to describe; `None` lists all.
        of: Option<String>,
    },
}

/// A call, as far as its URL describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallTarget {
    /// The protocol of the request.
    pub(super) dialect: AgentDialect,
    /// The model and the verb, in the dialect that has them in the path.
    pub(super) named: Option<(String, Verb)>,
    /// The query that is passed on to the vendor.
    pub(super) query: Option<&'static str>,
}

/// The verb in the path of a Gemini request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// An answer as a stream of events.
    Stream,
    /// An answer as a JSON array that grows.
    List,
    /// An answer as one JSON document.
    Whole,
    /// A count of tokens.
    Count,
}

impl Verb {
    /// Returns the verb as it stands in the path.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Stream | Self::List => "streamGenerateContent",
            Self::Whole => "generateContent",
            Self::Count => "countTokens",
        }
    }
}

/// A rejected request: the dialect of the answer, the reason, and the message.
pub(super) type Rejection = (AgentDialect, RequestFault, &'static str);

const NOTHING: &str = "there is nothing at this URL; this endpoint passes on only model calls";

/// Returns where the request goes, or why it is rejected.
pub(super) fn route(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    key: &str,
) -> Result<Route, Rejection> {
    let path = uri.path();
    let dialect = dialect_of(path, headers);
    let no = |fault, words| Err((dialect, fault, words));
    if uri.scheme().is_some() || uri.authority().is_some() || method == Method::CONNECT {
        let words = "this is a model endpoint, not a proxy";
        return no(RequestFault::Invalid, words);
    }
    let host = headers.get(HOST);
    if !host.is_none_or(|host| is_loopback(host.as_bytes())) {
        let words = "this endpoint does not pass on requests for other hosts";
        return no(RequestFault::NotFound, words);
    }
    if !shows_key(uri, headers, key) {
        let words = "this endpoint accepts only the key that the agent of this run was given";
        return no(RequestFault::BadKey, words);
    }
    if headers.contains_key(UPGRADE) {
        let words = "this endpoint does not pass on web sockets; use HTTP";
        return no(RequestFault::Upgrade, words);
    }
    let (get, post) = (method == Method::GET, method == Method::POST);
    let beta = has_pair(uri, "beta=true").then_some("beta=true");
    let target = |dialect, query| CallTarget {
        dialect,
        named: None,
        query,
    };
    match path {
        "/v1/messages" if post => Ok(Route::Call(target(AgentDialect::Anthropic, beta))),
        "/v1/messages/count_tokens" if post => {
            Ok(Route::Count(target(AgentDialect::Anthropic, beta)))
        }
        "/v1/responses" if post => Ok(Route::Call(target(AgentDialect::Responses, None))),
        "/v1/chat/completions" if post => Ok(Route::Call(target(AgentDialect::Chat, None))),
        "/v1/models" | "/v1beta/models" if get => Ok(Route::Models { dialect, of: None }),
        _ => with_model(path, get, post, uri, dialect)
            .map_or_else(|| no(RequestFault::NotFound, NOTHING), Ok),
    }
}

/// Parses paths with a model in them.
fn with_model(
    path: &str,
    get: bool,
    post: bool,
    uri: &Uri,
    dialect: AgentDialect,
) -> Option<Route> {
    let rest = path
        .strip_prefix("/v1beta/models/")
        .or_else(|| path.strip_prefix("/v1/models/"))?;
    if get {
        return is_model(rest).then(|| Route::Models {
            dialect,
            of: Some(rest.to_owned()),
        });
    }
    let (model, word) = rest
        .rsplit_once(':')
        .filter(|(model, _)| post && is_model(model))?;
    let verb = match word {
        "streamGenerateContent" if has_pair(uri, "alt=sse") => Verb::Stream,
        "streamGenerateContent" => Verb::List,
        "generateContent" => Verb::Whole,
        "countTokens" => Verb::Count,
        _ => return None,
    };
    let target = CallTarget {
        dialect: AgentDialect::Gemini,
        named: Some((model.to_owned(), verb)),
        query: None,
    };
    Some(if verb == Verb::Count {
        Route::Count(target)
    } else {
        Route::Call(target)
    })
}

/// Returns the dialect of the answer, also for a rejected request.
fn dialect_of(path: &str, headers: &HeaderMap) -> AgentDialect {
    if path.starts_with("/v1beta/")
        || path.contains("enerateContent")
        || headers.contains_key("x-goog-api-key")
    {
        return AgentDialect::Gemini;
    }
    if path.starts_with("/v1/responses") {
        return AgentDialect::Responses;
    }
    let anthropic = path.starts_with("/v1/messages") || headers.contains_key("anthropic-version");
    if anthropic || headers.contains_key("x-api-key") {
        AgentDialect::Anthropic
    } else {
        AgentDialect::Chat
    }
}

/// Returns whether the name is one path segment without escapes that is not `..`.
fn is_model(name: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b':');
    !name.is_empty()
        && name.len() <= 200
        && name.bytes().all(plain)
        && !name.bytes().all(|byte| byte == b'.')
}

fn has_pair(uri: &Uri, pair: &str) -> bool {
    uri.query()
        .is_some_and(|query| query.split('&').any(|one| one == pair))
}

fn is_loopback(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "127.0.0.1" | "localhost" | "[::1]")
}

/// Returns whether the request has the key of this run, in any of the places where agents put keys.
fn shows_key(uri: &Uri, headers: &HeaderMap, key: &str) -> bool {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then(|| token.trim().as_bytes())
    });
    let named = ["x-api-key", "x-goog-api-key", "api-key"];
    let named = named
        .into_iter()
        .filter_map(|name| headers.get(name))
        .map(|value| value.as_bytes());
    let asked = uri
        .query()
        .into_iter()
        .flat_map(|query| query.split('&'))
        .filter_map(|pair| pair.strip_prefix("key="));
    bearer
        .into_iter()
        .chain(named)
        .chain(asked.map(str::as_bytes))
        .any(|shown| same(shown, key.as_bytes()))
}

/// Compares every byte, so that the time it takes reveals nothing about the key.
fn same(shown: &[u8], key: &[u8]) -> bool {
    let different = shown
        .iter()
        .zip(key)
        .fold(0, |bits, (a, b)| std::hint::black_box(bits | (a ^ b)));
    shown.len() == key.len() && different == 0
}
