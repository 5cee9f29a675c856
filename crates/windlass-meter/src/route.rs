//! Where a request of an agent wants to go, by method, path and headers alone. What is not written here is not passed
//! on: the agent is inside the sandbox, and this address is its only way out. Pure; no body is read.

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, UPGRADE};
use hyper::{Method, Uri};

use super::dialect::{Dialect, Fault};

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// A call of a model, which is counted.
    Call(Target),
    /// Somebody wants to know how many tokens a request takes. It is free.
    Count(Target),
    /// Which models there are, or what is known of one.
    Models {
        /// How the answer is said.
        dialect: Dialect,
        /// The model.
        of: Option<String>,
    },
}

/// A call, as far as its address says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// How it is said.
    pub(super) dialect: Dialect,
    /// The model and the word behind it, in the dialect that has them in the path.
    pub(super) named: Option<(String, Verb)>,
    /// What the vendor is told in the address.
    pub(super) query: Option<&'static str>,
}

/// What the path of a Gemini request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// An answer as events.
    Stream,
    /// An answer as one list, which grows.
    List,
    /// An answer as one document.
    Whole,
    /// A count.
    Count,
}

impl Verb {
    /// Its word in the path.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Stream | Self::List => "streamGenerateContent",
            Self::Whole => "generateContent",
            Self::Count => "countTokens",
        }
    }
}

/// A no: in whose words, why, and the words.
pub(super) type No = (Dialect, Fault, &'static str);

const NOTHING: &str = "there is nothing at this address; only model calls are passed on from here";

/// Where the request goes, or why it does not.
pub(super) fn route(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    key: &str,
) -> Result<Route, No> {
    let path = uri.path();
    let dialect = dialect_of(path, headers);
    let no = |fault, words| Err((dialect, fault, words));
    if uri.scheme().is_some() || uri.authority().is_some() || method == Method::CONNECT {
        let words = "this is a model endpoint and no proxy";
        return no(Fault::Invalid, words);
    }
    let host = headers.get(HOST);
    if !host.is_none_or(|host| is_loopback(host.as_bytes())) {
        let words = "requests for other hosts are not passed on from here";
        return no(Fault::NotFound, words);
    }
    if !shows_key(uri, headers, key) {
        let words = "this endpoint takes only the key that the agent of this run was given";
        return no(Fault::BadKey, words);
    }
    if headers.contains_key(UPGRADE) {
        let words = "web sockets are not passed on from here; ask over HTTP";
        return no(Fault::Upgrade, words);
    }
    let (get, post) = (method == Method::GET, method == Method::POST);
    let beta = has_pair(uri, "beta=true").then_some("beta=true");
    let target = |dialect, query| Target {
        dialect,
        named: None,
        query,
    };
    match path {
        "/v1/messages" if post => Ok(Route::Call(target(Dialect::Anthropic, beta))),
        "/v1/messages/count_tokens" if post => Ok(Route::Count(target(Dialect::Anthropic, beta))),
        "/v1/responses" if post => Ok(Route::Call(target(Dialect::Responses, None))),
        "/v1/chat/completions" if post => Ok(Route::Call(target(Dialect::Chat, None))),
        "/v1/models" | "/v1beta/models" if get => Ok(Route::Models { dialect, of: None }),
        _ => named(path, get, post, uri, dialect).map_or_else(|| no(Fault::NotFound, NOTHING), Ok),
    }
}

/// The addresses with a model in them.
fn named(path: &str, get: bool, post: bool, uri: &Uri, dialect: Dialect) -> Option<Route> {
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
    let target = Target {
        dialect: Dialect::Gemini,
        named: Some((model.to_owned(), verb)),
        query: None,
    };
    Some(if verb == Verb::Count {
        Route::Count(target)
    } else {
        Route::Call(target)
    })
}

/// In whose words the answer is, also when it is a no.
fn dialect_of(path: &str, headers: &HeaderMap) -> Dialect {
    if path.starts_with("/v1beta/")
        || path.contains("enerateContent")
        || headers.contains_key("x-goog-api-key")
    {
        return Dialect::Gemini;
    }
    if path.starts_with("/v1/responses") {
        return Dialect::Responses;
    }
    let anthropic = path.starts_with("/v1/messages") || headers.contains_key("anthropic-version");
    if anthropic || headers.contains_key("x-api-key") {
        Dialect::Anthropic
    } else {
        Dialect::Chat
    }
}

/// One segment of a path that needs no escapes and does not climb.
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

/// Whether the key of this run is shown, in any of the places where agents put keys.
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

/// Looks at every byte, so that the time it takes says nothing about the key.
fn same(shown: &[u8], key: &[u8]) -> bool {
    let different = shown
        .iter()
        .zip(key)
        .fold(0, |bits, (a, b)| std::hint::black_box(bits | (a ^ b)));
    shown.len() == key.len() && different == 0
}
