//! Builds HTTP responses for [`windlass_scripted::ByteServer`]. Test code only.

use windlass_scripted::http;
pub(crate) use windlass_scripted::{Act, ByteServer as Server};

/// A complete response with a content length.
pub(crate) fn whole(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Act {
    Act::Say(http::whole(status, headers, body))
}

/// The headers of an event stream in chunked encoding.
pub(crate) fn stream_head() -> Act {
    Act::Say(http::stream_head(200, http::EVENT_STREAM))
}

/// One chunk of a chunked body.
pub(crate) fn chunk(bytes: impl AsRef<[u8]>) -> Act {
    Act::Say(http::chunk(bytes))
}

/// The chunk that ends a chunked body.
pub(crate) fn last_chunk() -> Act {
    Act::Say(http::LAST_CHUNK.to_vec())
}

/// A complete event stream: headers, one chunk for each piece, and the last chunk.
pub(crate) fn event_stream(pieces: &[&str]) -> Vec<Act> {
    let mut acts = vec![stream_head()];
    acts.extend(pieces.iter().map(chunk));
    acts.push(last_chunk());
    acts
}
