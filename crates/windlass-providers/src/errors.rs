//! Maps failures of an upstream to provider errors, by HTTP status, error body and headers.
//! Pure; the current time is an argument. No message contains a key, a control character or more than a few hundred
//! characters.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;
use windlass_core::provider::{LONGEST_WAIT, ProviderError, ProviderErrorKind};

use crate::framing::FramingError;
use crate::http::{HttpError, HttpErrorKind};

/// Bytes of an unexpected answer that an error message quotes.
const QUOTE: usize = 200;
const MAX_MESSAGE: usize = 600;
/// The upper bound of a wait that an upstream asks for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The connection failed after the request was sent, and a retry may succeed.
const INTERRUPTED: ProviderErrorKind = ProviderErrorKind::Network {
    transient: true,
    sent: true,
};

impl From<HttpError> for ProviderError {
    fn from(err: HttpError) -> Self {
        use HttpErrorKind as K;
        let kind = match err.kind {
            K::Setup | K::Redirect | K::Cassette => ProviderErrorKind::InvalidRequest,
            K::Malformed | K::TooLarge => ProviderErrorKind::InvalidResponse,
            K::Tls => ProviderErrorKind::Network {
                transient: false,
                sent: false,
            },
            K::TooSlow => ProviderErrorKind::Network {
                transient: false,
                sent: true,
            },
            K::Dns | K::Refused | K::ConnectTimeout | K::Connect | K::Proxy => {
                ProviderErrorKind::Network {
                    transient: true,
                    sent: false,
                }
            }
            K::Idle | K::Broken => INTERRUPTED,
        };
        error(kind, err.message, None)
    }
}

impl From<FramingError> for ProviderError {
    fn from(err: FramingError) -> Self {
        match &err {
            FramingError::Exception { name, message } => in_stream(name, "", message),
            _ => error(ProviderErrorKind::InvalidResponse, err.to_string(), None),
        }
    }
}

/// The stream ended before the answer was complete.
pub(crate) fn cut(host: &str) -> ProviderError {
    let message = format!("the stream of `{host}` ended before the answer did");
    error(INTERRUPTED, message, None)
}

/// The request is larger than the model's context window and was not sent.
pub(crate) fn does_not_fit(vendor: &str, model: &str, needed: u64, window: u64) -> ProviderError {
    let message = format!(
        "the request takes about {needed} tokens and `{model}` has a context window of {window}; it was not sent, because \
                 the server would drop its beginning. Shorten it, or set `providers.{vendor}.context_window` if the window is \
                 larger"
    );
    error(ProviderErrorKind::ContextLength, message, None)
}

/// The vendor offers no list of models, or the list cannot be parsed.
pub(crate) fn no_list(vendor: &str) -> ProviderError {
    let message = format!("`{vendor}` offers no readable list of its models");
    error(ProviderErrorKind::InvalidResponse, message, None)
}

/// A request for a list of models or a description of one took too long.
pub(crate) fn no_answer(url: &reqwest::Url, limit: Duration) -> ProviderError {
    let host = url.host_str().unwrap_or("the server");
    let message = format!(
        "`{host}` did not describe its models within {} s",
        limit.as_secs()
    );
    error(INTERRUPTED, message, None)
}

/// The key cannot be a header value.
pub(crate) fn unusable_key(err: &crate::auth::BadKey) -> ProviderError {
    error(ProviderErrorKind::Authentication, err.to_string(), None)
}

/// The answer should be an event stream and is something else.
pub(crate) fn not_a_stream(status: u16, content_type: &str, body: &[u8]) -> ProviderError {
    let message = if body.is_empty() {
        "the upstream answered with an empty body".to_owned()
    } else {
        format!(
            "the upstream answered with `{content_type}` instead of an event stream: {}",
            quote(body)
        )
    };
    error(ProviderErrorKind::InvalidResponse, message, Some(status))
}

/// The body ended before its first event was complete. If it begins like an event stream, it was cut off.
pub(crate) fn no_event(host: &str, start: &[u8]) -> ProviderError {
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    let field =
        |name: &&str| text.starts_with(name.as_bytes()) || name.as_bytes().starts_with(text);
    let begun = ["data:", "event:", "id:", "retry:", ":", "\0"]
        .iter()
        .any(field);
    if begun && !text.is_empty() {
        return cut(host);
    }
    in_body(start).unwrap_or_else(|| not_a_stream(200, "no events", start))
}

/// The upstream sent an event that does not parse as JSON of the protocol.
pub(crate) fn not_an_event(data: &str, err: &serde_json::Error) -> ProviderError {
    let message = format!(
        "the upstream sent an event that is not of its protocol ({err}): {}",
        quote(data.as_bytes())
    );
    error(ProviderErrorKind::InvalidResponse, message, None)
}

/// Maps an answer with an error status.
pub(crate) fn from_status(
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    now: SystemTime,
) -> ProviderError {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    // Gemini answers with a list of one element.
    let parsed = parsed.as_ref().map(|value| value.get(0).unwrap_or(value));
    let error_object = parsed.map(|value| value.get("error").unwrap_or(value));
    let found = error_object.map(ErrorFields::find).unwrap_or_default();
    let wait = retry_after(headers, now).or_else(|| retry_delay(error_object?));
    let mut kind = kind_of_status(status, &found, wait);
    if matches!(kind, ProviderErrorKind::InvalidRequest) {
        kind = refine(kind, &found);
    }
    let message = match (&found.message, body.is_empty()) {
        (Some(message), _) => message.clone(),
        (None, true) => "the upstream gave no reason".to_owned(),
        (None, false) => quote(body),
    };
    let message = match wait {
        Some(wait) if wait > LONGEST_WAIT => {
            format!("{message}; the upstream asks to wait {}", rough_time(wait))
        }
        _ => message,
    };
    error(kind, message, Some(status))
}

/// Formats a long time roughly, with one unit.
fn rough_time(time: Duration) -> String {
    match time.as_secs() {
        seconds if time >= MAX_RETRY_AFTER => format!("more than {} days", seconds / 86_400),
        seconds if seconds >= 2 * 86_400 => format!("{} days", seconds / 86_400),
        seconds if seconds >= 2 * 3_600 => format!("{} hours", seconds / 3_600),
        seconds => format!("{} minutes", seconds / 60),
    }
}

/// Maps an error object inside a stream that began with a success status.
pub(crate) fn from_error_value(value: &Value) -> ProviderError {
    let found = ErrorFields::find(value);
    let message = found
        .message
        .clone()
        .unwrap_or_else(|| quote(value.to_string().as_bytes()));
    // Some gateways put the status of their own upstream into `code`.
    if let Some(status) = found
        .code
        .as_deref()
        .and_then(|code| code.parse().ok())
        .filter(|code| (400..600).contains(code))
    {
        let kind = refine(kind_of_status(status, &found, None), &found);
        return error(kind, message, Some(status));
    }
    in_stream(
        found.kind.as_deref().unwrap_or_default(),
        found.code.as_deref().unwrap_or_default(),
        &message,
    )
}

/// Returns the error in a body that is a JSON document, or a list of documents, instead of an event stream.
pub(crate) fn in_body(body: &[u8]) -> Option<ProviderError> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let all = body
        .as_array()
        .map_or(std::slice::from_ref(&body), Vec::as_slice);
    all.iter()
        .find_map(|value| value.get("error").filter(|error| !error.is_null()))
        .map(from_error_value)
}

/// The server itself reports that the model's answer is unusable. A retry may give a better answer.
pub(crate) fn bad_answer(reason: &str, message: &str) -> ProviderError {
    let colon = if message.is_empty() { "" } else { ": " };
    let message =
        format!("the model gave an answer that cannot be used (`{reason}`){colon}{message}");
    error(ProviderErrorKind::InvalidResponse, message, None)
}

/// Maps an error inside a stream by its type and code.
pub(crate) fn in_stream(kind: &str, code: &str, message: &str) -> ProviderError {
    let found = ErrorFields {
        kind: Some(kind.to_owned()),
        code: Some(code.to_owned()),
        message: Some(message.to_owned()),
    };
    // AWS writes these names both as `throttlingException` and as `ThrottlingException`.
    let name = kind.strip_suffix("Exception").map(str::to_ascii_lowercase);
    let by_name = match name
        .as_deref()
        .unwrap_or(if kind.is_empty() { code } else { kind })
    {
        "accessdenied" | "unrecognizedclient" | "expiredtoken" | "invalidsignature" => {
            ProviderErrorKind::Authentication
        }
        "throttling" | "toomanyrequests" | "servicequotaexceeded" => {
            ProviderErrorKind::RateLimited { retry_after: None }
        }
        "resourcenotfound" => ProviderErrorKind::ModelNotFound,
        "validation" => ProviderErrorKind::InvalidRequest,
        "authentication_error" | "permission_error" | "billing_error" => {
            ProviderErrorKind::Authentication
        }
        "rate_limit_error" | "rate_limit_exceeded" | "tokens" | "requests" => {
            ProviderErrorKind::RateLimited { retry_after: None }
        }
        "not_found_error" => ProviderErrorKind::ModelNotFound,
        "request_too_large" => ProviderErrorKind::ContextLength,
        "invalid_request_error"
        | "BadRequestError"
        | "invalid_prompt"
        | "invalid_image"
        | "image_parse_error" => ProviderErrorKind::InvalidRequest,
        _ => ProviderErrorKind::Unavailable { retry_after: None },
    };
    let message = if message.is_empty() {
        format!("the upstream reported `{kind}`")
    } else {
        message.to_owned()
    };
    error(refine(by_name, &found), message, None)
}

/// The fields of an error object, from any of the places where vendors put them.
#[derive(Debug, Default)]
struct ErrorFields {
    kind: Option<String>,
    code: Option<String>,
    message: Option<String>,
}

impl ErrorFields {
    fn find(value: &Value) -> Self {
        let text = |name: &str| match value.get(name)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let message = value
            .as_str()
            .map(str::to_owned)
            .or_else(|| text("message"))
            .or_else(|| text("detail"));
        // The message of a gateway is often generic; the message of its upstream is in the metadata.
        let raw = value.pointer("/metadata/raw").and_then(Value::as_str);
        let message = match (message, raw) {
            (Some(message), Some(raw)) => Some(format!("{message}: {raw}")),
            (message, _) => message,
        };
        Self {
            kind: text("type"),
            code: text("code"),
            message,
        }
    }
}

fn kind_of_status(
    status: u16,
    found: &ErrorFields,
    retry_after: Option<Duration>,
) -> ProviderErrorKind {
    match status {
        401..=403 => ProviderErrorKind::Authentication,
        404 => {
            let says_model = [&found.code, &found.message]
                .into_iter()
                .flatten()
                .any(|text| text.contains("model"));
            if says_model {
                ProviderErrorKind::ModelNotFound
            } else {
                ProviderErrorKind::InvalidRequest
            }
        }
        413 => ProviderErrorKind::ContextLength,
        429 => ProviderErrorKind::RateLimited { retry_after },
        408 | 425 | 500..=599 => ProviderErrorKind::Unavailable { retry_after },
        400..=499 => ProviderErrorKind::InvalidRequest,
        _ => ProviderErrorKind::InvalidResponse,
    }
}

/// Finds a more specific kind by the code and the message, because vendors report most errors as a bad request.
fn refine(kind: ProviderErrorKind, found: &ErrorFields) -> ProviderErrorKind {
    let code = found.code.as_deref().unwrap_or_default();
    let message = found
        .message
        .as_deref()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
    match code {
        "context_length_exceeded" | "exceed_context_size_error" => {
            return ProviderErrorKind::ContextLength;
        }
        "model_not_found" => return ProviderErrorKind::ModelNotFound,
        "invalid_api_key" => return ProviderErrorKind::Authentication,
        "content_filter" | "content_policy_violation" => return ProviderErrorKind::Refused,
        "rate_limit_exceeded" | "insufficient_quota" => {
            return ProviderErrorKind::RateLimited { retry_after: None };
        }
        _ => {}
    }
    let unspecific = matches!(
        kind,
        ProviderErrorKind::InvalidRequest | ProviderErrorKind::Unavailable { .. }
    );
    if unspecific
        && says(&[
            "exceeds the maximum number of tokens",
            "prompt is too long",
            "maximum context length",
            "context length",
            "context window",
            "context size",
            "input is too long",
            "too many tokens",
            "reduce the length of the messages",
        ])
    {
        return ProviderErrorKind::ContextLength;
    }
    if kind == ProviderErrorKind::InvalidRequest && says(&["api key not valid", "api key expired"])
    {
        return ProviderErrorKind::Authentication;
    }
    if kind == ProviderErrorKind::InvalidRequest
        && says(&[
            "model not exist",
            "model does not exist",
            "invalid model",
            "unknown model",
            "is not a valid model",
        ])
    {
        return ProviderErrorKind::ModelNotFound;
    }
    kind
}

/// Returns the wait that the headers ask for, as milliseconds, seconds or a date. A wait longer than the engine would
/// wait is kept up to [`MAX_RETRY_AFTER`], because the error message states it.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::trim)
    };
    if let Some(wait) = text("retry-after-ms").and_then(|text| seconds(text, 0.001)) {
        return Some(wait);
    }
    let text = text(RETRY_AFTER.as_str())?;
    seconds(text, 1.0).or_else(|| {
        // A wrong day of the week is ignored.
        const DATE: jiff::fmt::rfc2822::DateTimeParser =
            jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
        let date = SystemTime::from(DATE.parse_timestamp(text).ok()?);
        date.duration_since(now)
            .ok()
            .map(|wait| wait.min(MAX_RETRY_AFTER))
    })
}

/// Returns the wait that an error object asks for: `{"retryDelay": "28s"}` among its details.
fn retry_delay(value: &Value) -> Option<Duration> {
    let details = value.get("details")?.as_array()?;
    let text = details
        .iter()
        .find_map(|detail| detail.get("retryDelay")?.as_str())?;
    seconds(text.strip_suffix('s')?, 1.0)
}

/// Parses a non-negative number of `unit` seconds.
fn seconds(text: &str, unit: f64) -> Option<Duration> {
    let seconds = text.parse::<f64>().ok()? * unit;
    (seconds.is_finite() && seconds >= 0.0)
        .then(|| Duration::from_secs_f64(seconds.min(MAX_RETRY_AFTER.as_secs_f64())))
}

fn error(kind: ProviderErrorKind, message: String, status: Option<u16>) -> ProviderError {
    ProviderError {
        kind,
        message: tidy(&message, MAX_MESSAGE),
        status,
    }
}

/// Returns the beginning of an answer as printable text.
fn quote(body: &[u8]) -> String {
    let start = String::from_utf8_lossy(&body[..body.len().min(QUOTE)]);
    let mut text = tidy(&start, QUOTE);
    if body.len() > QUOTE && !text.ends_with('…') {
        text.push('…');
    }
    text
}

/// Returns the text as one line without control characters, truncated to about `most` bytes.
fn tidy(text: &str, most: usize) -> String {
    let mut tidy = String::with_capacity(text.len().min(most));
    let mut blank = false;
    for c in text.trim().chars() {
        if tidy.len() >= most {
            tidy.push('…');
            break;
        }
        let is_blank = c.is_whitespace() || c.is_control();
        if !is_blank {
            tidy.push(c);
        } else if !blank {
            tidy.push(' ');
        }
        blank = is_blank;
    }
    tidy
}

/// Removes a key from a message, in case the upstream repeats it, including the part of a key at which the message was
/// truncated.
pub(crate) fn hide(mut err: ProviderError, secret: &str) -> ProviderError {
    const SHORTEST: usize = 4;
    if secret.len() < SHORTEST {
        return err;
    }
    if err.message.contains(secret) {
        err.message = err.message.replace(secret, "***");
    }
    if let Some(text) = err.message.strip_suffix('…') {
        let part = (SHORTEST..secret.len())
            .rev()
            .filter_map(|len| secret.get(..len))
            .find(|part| text.ends_with(part));
        if let Some(part) = part {
            err.message = format!("{}***…", &text[..text.len() - part.len()]);
        }
    }
    err
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    #[track_caller]
    fn check(status: u16, body: &str, kind: &ProviderErrorKind, message: &str) {
        let err = from_status(status, &HeaderMap::new(), body.as_bytes(), now());
        assert_eq!((&err.kind, err.status), (kind, Some(status)), "{err}");
        assert!(err.message.contains(message), "{err}");
    }

    #[test]
    fn the_status_and_the_message_decide_the_kind() {
        use ProviderErrorKind as K;
        check(
            401,
            r#"{"error":{"message":"bad key"}}"#,
            &K::Authentication,
            "bad key",
        );
        check(403, "", &K::Authentication, "no reason");
        check(
            404,
            r#"{"error":{"code":"model_not_found","message":"The model `x` does not exist"}}"#,
            &K::ModelNotFound,
            "`x`",
        );
        check(404, "<html>nope</html>", &K::InvalidRequest, "<html>");
        check(
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#,
            &K::ContextLength,
            "9 > 8",
        );
        check(
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#,
            &K::ContextLength,
            "x",
        );
        check(
            400,
            r#"{"error":"just text"}"#,
            &K::InvalidRequest,
            "just text",
        );
        check(
            400,
            r#"{"detail":"other form"}"#,
            &K::InvalidRequest,
            "other form",
        );
        check(422, "{}", &K::InvalidRequest, "{}");
        check(429, "{}", &K::RateLimited { retry_after: None }, "{}");
        check(500, "boom", &K::Unavailable { retry_after: None }, "boom");
        check(
            529,
            r#"{"type":"error","error":{"type":"overloaded_error"}}"#,
            &K::Unavailable { retry_after: None },
            "overloaded",
        );
        check(302, "", &K::InvalidResponse, "");
        let google = |code: u16, message: &str| {
            format!(r#"[{{"error":{{"code":{code},"message":"{message}"}}}}]"#)
        };
        check(
            400,
            &google(400, "API key not valid. Pass a valid one."),
            &K::Authentication,
            "not valid",
        );
        check(
            404,
            &google(404, "models/x is not found"),
            &K::ModelNotFound,
            "models/x",
        );
        let long = "The input token count (9) exceeds the maximum number of tokens allowed (8).";
        check(400, &google(400, long), &K::ContextLength, "allowed (8)");
        let wait = r#"{"error":{"code":429,"message":"quota","details":[{"@type":"x"},{"retryDelay":"28.5s"}]}}"#;
        check(
            429,
            wait,
            &K::RateLimited {
                retry_after: Some(Duration::from_millis(28_500)),
            },
            "quota",
        );
        let never = r#"{"error":{"message":"quota","details":[{"retryDelay":"-1s"}]}}"#;
        check(429, never, &K::RateLimited { retry_after: None }, "quota");
    }

    #[test]
    fn an_error_body_is_found_alone_or_in_a_list() {
        let kind = |body: &str| in_body(body.as_bytes()).map(|err| err.kind.word());
        assert_eq!(
            kind(r#"{"error":{"code":503,"message":"x"}}"#),
            Some("unavailable")
        );
        assert_eq!(
            kind(r#"[{"candidates":[]},{"error":{"code":429,"message":"x"}}]"#),
            Some("rate_limited")
        );
        assert_eq!(kind(r#"[{"error":null}]"#), None);
        assert_eq!((kind("[]"), kind("half {"), kind("7")), (None, None, None));
    }

    #[test]
    fn errors_inside_a_stream_have_the_kind_of_the_matching_status() {
        use ProviderErrorKind as K;
        assert_eq!(
            in_stream("overloaded_error", "", "x").kind,
            K::Unavailable { retry_after: None }
        );
        assert_eq!(
            in_stream("rate_limit_error", "", "x").kind,
            K::RateLimited { retry_after: None }
        );
        assert_eq!(
            in_stream("invalid_request_error", "", "prompt is too long").kind,
            K::ContextLength
        );
        assert_eq!(in_stream("", "invalid_prompt", "x").kind, K::InvalidRequest);
        assert_eq!(
            in_stream("", "server_error", "x").kind,
            K::Unavailable { retry_after: None }
        );
        let value =
            serde_json::json!({ "code": 502, "message": "upstream", "metadata": { "raw": "why" } });
        let err = from_error_value(&value);
        assert_eq!(
            (err.kind, err.status),
            (K::Unavailable { retry_after: None }, Some(502))
        );
        assert_eq!(err.message, "upstream: why");
        assert_eq!(from_error_value(&serde_json::json!("text")).message, "text");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_capped() {
        let check = |name: &'static str, value: &str, expect: Option<u64>| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(
                retry_after(&headers, now()),
                expect.map(Duration::from_millis),
                "{name}: {value}"
            );
        };
        check("retry-after", "2", Some(2_000));
        check("retry-after", "0.5", Some(500));
        check("retry-after", "-3", None);
        check("retry-after", "1e400", None);
        check("retry-after", "999999999999", Some(31_536_000_000));
        check("retry-after", "soon", None);
        check(
            "retry-after",
            "Fri, 31 Dec 2999 23:59:59 GMT",
            Some(31_536_000_000),
        );
        check("retry-after", "Fri, 15 Jan 2027 08:00:10 GMT", Some(10_000));
        check("retry-after", "Fri, 15 Jan 2010 08:00:10 GMT", None);
        check("retry-after-ms", "1500", Some(1_500));
    }

    #[test]
    fn an_incomplete_first_event_was_cut_off_and_a_page_was_not() {
        let kind = |start: &str| no_event("h", start.as_bytes()).kind;
        for start in [
            "data: {\"a\"",
            "event: x",
            ": keep-alive",
            "\u{feff}da",
            "\0\0\0\u{7f}",
        ] {
            assert_eq!(
                kind(start),
                ProviderErrorKind::Network {
                    transient: true,
                    sent: true
                },
                "{start}"
            );
        }
        for start in ["", "<html>", "dato", "{\"id\":1}"] {
            assert_eq!(kind(start), ProviderErrorKind::InvalidResponse, "{start}");
        }
        assert_eq!(
            kind("{\"error\":{\"code\":401}}"),
            ProviderErrorKind::Authentication
        );
    }

    #[test]
    fn a_wait_that_is_too_long_is_in_the_message() {
        let message = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            from_status(429, &headers, b"{\"error\":\"slow\"}", now()).message
        };
        assert_eq!(message("300"), "slow");
        assert_eq!(
            message("5400"),
            "slow; the upstream asks to wait 90 minutes"
        );
        assert_eq!(message("90000"), "slow; the upstream asks to wait 25 hours");
        assert_eq!(
            message("Fri, 31 Dec 2999 23:59:59 GMT"),
            "slow; the upstream asks to wait more than 365 days"
        );
    }

    #[test]
    fn messages_are_one_short_line_without_the_key() {
        let long = "x\u{1b}[2J\n\n".repeat(400);
        let err = from_status(400, &HeaderMap::new(), long.as_bytes(), now());
        assert!(
            err.message.len() <= QUOTE + 4 && !err.message.contains(['\u{1b}', '\n']),
            "{}",
            err.message
        );
        let err = from_status(
            401,
            &HeaderMap::new(),
            br#"{"error":{"message":"wrong key sk-12345"}}"#,
            now(),
        );
        assert_eq!(hide(err, "sk-12345").message, "wrong key ***");

        let key = "sk-0123456789";
        for body in [
            format!("{}{key}", "x".repeat(QUOTE - 8)),
            format!(
                r#"{{"error":{{"message":"{}{key}"}}}}"#,
                "x".repeat(MAX_MESSAGE - 8)
            ),
        ] {
            let err = from_status(401, &HeaderMap::new(), body.as_bytes(), now());
            let message = hide(err, key).message;
            assert!(message.ends_with("x***…"), "{message}");
        }
    }
}
