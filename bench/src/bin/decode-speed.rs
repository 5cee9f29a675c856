//! Measures how fast a text-only stream is decoded, compared with a plain scan of the same bytes for line ends. Prints
//! one line for each repetition: milliseconds for 100 MB of decoding, and of scanning.

#![allow(clippy::print_stdout)]

use std::time::Instant;

use anyhow::{Context as _, ensure};
use windlass_bench::flags::Flags;
use windlass_providers::framing::Framer;
use windlass_providers::protocol::{Batch, Protocol, Quirks};

/// Bytes that are decoded; the figures are scaled to 100 MB.
const SIZE: usize = 32 << 20;
/// The size of a typical network read.
const PIECE: usize = 16 << 10;

fn main() -> anyhow::Result<()> {
    let flags = Flags::from_env(&["--protocol", "--times"])?;
    let name: String = flags.need("--protocol")?;
    let (protocol, event) =
        stream(&name).with_context(|| format!("there is no protocol `{name}`"))?;
    let mut bytes = Vec::with_capacity(SIZE + 1_024);
    for n in 0_u64.. {
        if bytes.len() >= SIZE {
            break;
        }
        bytes.extend_from_slice(event(n).as_bytes());
    }
    for _ in 0..flags.get("--times")?.unwrap_or(5) {
        let began = Instant::now();
        let text = decode(protocol, &bytes)?;
        let decoding = began.elapsed();
        ensure!(text > SIZE / 20, "only {text} bytes of text were read");
        let began = Instant::now();
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        let scanning = began.elapsed();
        ensure!(lines > 0, "there were no lines");
        let scaled =
            |time: std::time::Duration| time.as_secs_f64() * 1e3 * 1e8 / bytes.len() as f64;
        println!("{} {}", scaled(decoding), scaled(scanning));
    }
    Ok(())
}

/// Decodes the stream; returns the bytes of text in it.
fn decode(protocol: Protocol, bytes: &[u8]) -> anyhow::Result<usize> {
    let mut framer = Framer::new(protocol.framing());
    let mut decoder = protocol.decoder(&Quirks::NONE);
    let mut batch = Batch::default();
    let mut text = 0;
    for piece in bytes.chunks(PIECE) {
        framer
            .push(piece, |event| decoder.event(&event, &mut batch))
            .map_err(|err| anyhow::anyhow!("the stream was not understood: {err}"))?;
        while let Some(chunk) = batch.pop() {
            if let windlass_core::provider::Chunk::Text(piece) = chunk {
                text += piece.len();
            }
        }
    }
    Ok(text)
}

type EventText = fn(u64) -> String;

/// Returns a protocol and a function for the n-th event of a text-only stream, as its vendor sends it.
fn stream(name: &str) -> Option<(Protocol, EventText)> {
    const WORDS: &str = "and then the function returns the";
    let found: (Protocol, EventText) = match name {
        "messages" => (Protocol::AnthropicMessages, |_| {
            format!(
                "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\" {WORDS}\"}}}}\n\n"
            )
        }),
        "chat" => (Protocol::OpenAiChat, |_| {
            format!(
                "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" {WORDS}\"}},\"finish_reason\":null}}]}}\n\n"
            )
        }),
        "responses" => (Protocol::OpenAiResponses, |n| {
            format!(
                "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":{n},\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\" {WORDS}\"}}\n\n"
            )
        }),
        "gemini" => (Protocol::Gemini, |n| {
            format!(
                "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\" {WORDS}\"}}],\"role\":\"model\"}},\"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":10,\"candidatesTokenCount\":{n},\"totalTokenCount\":{n}}},\"modelVersion\":\"m\"}}\r\n\r\n"
            )
        }),
        "ollama" => (Protocol::OllamaChat, |n| {
            format!(
                "{{\"model\":\"m\",\"created_at\":\"2026-11-15T00:00:00.{n:09}Z\",\"message\":{{\"role\":\"assistant\",\"content\":\" {WORDS}\"}},\"done\":false}}\n"
            )
        }),
        _ => return None,
    };
    Some(found)
}
