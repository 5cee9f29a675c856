//! The answers of a case's model server, byte for byte: good ones, compressed ones, and floods.

use std::io::Write as _;

use serde_json::{Value, json};
use windlass_scripted::http;
pub(crate) use windlass_scripted::http::chunk;
pub(crate) use windlass_scripted::{Act, ByteServer as Server, Received};

use crate::product::WORDS;

/// Starts a model server. `answer` gets the number of the request, starting at 0, and its text.
pub(crate) fn start_server(
    answer: impl Fn(usize, &str) -> Vec<Act> + Send + Sync + 'static,
) -> Result<Server, String> {
    Server::start(answer).map_err(|err| format!("the model server cannot listen: {err}"))
}

/// Returns the JSON body of a request.
pub(crate) fn body(request: &Received) -> Value {
    let body = request.text.split_once("\r\n\r\n");
    body.and_then(|(_, body)| serde_json::from_str(body).ok())
        .unwrap_or_default()
}

/// Returns the head of an answer in chunked encoding.
pub(crate) fn head(status: u16, headers: &[(String, String)]) -> Act {
    let mut text = String::new();
    if !headers.iter().any(|(name, _)| name == "content-type") {
        text.push_str("content-type: text/event-stream\r\n");
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    Act::Say(http::stream_head(status, &text))
}

/// Returns the end of a chunked body.
pub(crate) fn end() -> Act {
    Act::Say(http::LAST_CHUNK.to_vec())
}

/// Returns a complete answer, cut into pieces of this size; 0 means one piece.
pub(crate) fn whole(
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
    split: usize,
) -> Vec<Act> {
    let mut acts = vec![head(status, headers)];
    let size = if split == 0 { body.len().max(1) } else { split };
    acts.extend(body.chunks(size).map(|bytes| Act::Say(chunk(bytes))));
    acts.push(end());
    acts
}

/// Returns an answer that ends a run successfully.
pub(crate) fn good(chat: bool) -> Vec<Act> {
    if !chat {
        return saying(&[WORDS.to_owned()]);
    }
    let text = format!(
        "data: {}\n\ndata: [DONE]\n\n",
        json!({ "choices": [{ "index": 0, "delta": { "content": WORDS }, "finish_reason": "stop" }] })
    );
    whole(200, &[], text.as_bytes(), 0)
}

/// Returns an answer whose text comes in these pieces, each in its own event.
pub(crate) fn saying(pieces: &[String]) -> Vec<Act> {
    let first = [
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": 3, "output_tokens": 1 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
    ];
    let last = [
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 4 } }),
        json!({ "type": "message_stop" }),
    ];
    let piece = |text: &String| json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } });
    let mut acts = vec![head(200, &[])];
    for event in first
        .into_iter()
        .chain(pieces.iter().map(piece))
        .chain(last)
    {
        acts.push(Act::Say(chunk(format!("data: {event}\n\n").as_bytes())));
    }
    acts.push(end());
    acts
}

/// Returns a gzip stream of this number of zeros, without the final checksum.
pub(crate) fn packed_zeros(bytes: usize) -> Vec<Act> {
    const BLOCK: usize = 1 << 20;
    // One flushed block of zeros may follow another, because it refers back only to zeros.
    let first = flushed(1, BLOCK);
    let block = flushed(2, BLOCK).split_off(first.len());
    vec![
        Act::Say(chunk(&first)),
        Act::Repeat(chunk(&block), (bytes / BLOCK).saturating_sub(1)),
    ]
}

fn flushed(blocks: usize, size: usize) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..blocks {
        // Writing to memory cannot fail.
        let _ = gzip.write_all(&vec![0; size]).and_then(|()| gzip.flush());
    }
    gzip.get_ref().clone()
}

/// Compresses the bytes with gzip.
pub(crate) fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let _ = gzip.write_all(bytes);
    gzip.finish().unwrap_or_default()
}
