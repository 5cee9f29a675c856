//! Compresses replies for clients that accept gzip. Event streams are not compressed, because events must arrive at once.

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, VARY};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// Replies below this size are not compressed.
const MIN_BYTES: usize = 1 << 10;

/// Whether the client accepts gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let all = headers.get_all(ACCEPT_ENCODING).iter();
    all.filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|one| {
            let mut parts = one.split(';');
            let name = parts.next().unwrap_or_default().trim();
            let refused =
                parts.any(|part| matches!(part.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
            name == "gzip" && !refused
        })
}

/// The body of a reply, compressed if that is worthwhile.
pub(crate) fn set_body(response: &mut Response, bytes: Vec<u8>, gzip: bool) {
    if bytes.len() >= MIN_BYTES {
        response
            .headers_mut()
            .insert(VARY, HeaderValue::from_static("accept-encoding"));
        if gzip && let Ok(packed) = pack(&bytes) {
            response
                .headers_mut()
                .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            *response.body_mut() = Body::from(packed);
            return;
        }
    }
    *response.body_mut() = Body::from(bytes);
}

fn pack(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}
