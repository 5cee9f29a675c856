//! A model's answers in two protocols, ready to be written to a socket. Pure.

use std::fmt::Write as _;

/// The protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelProtocol {
    /// The Anthropic Messages API.
    Messages,
    /// The OpenAI Chat Completions API.
    Chat,
}

impl ModelProtocol {
    /// Returns the protocol that is served at a path.
    #[must_use]
    pub fn at(path: &str) -> Option<Self> {
        match path {
            "/v1/messages" => Some(Self::Messages),
            "/v1/chat/completions" => Some(Self::Chat),
            _ => None,
        }
    }
}

/// The content of a model's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelAnswer {
    /// A short text, which ends the run.
    Text(String),
    /// One call of `bash`.
    Bash {
        /// The command line that the model wants to run.
        command: String,
        /// Makes the id of the call unique.
        number: u64,
    },
}

/// Four bytes each, as a model streams code; two of them contain escapes.
const PIECES: [&str; 8] = [
    "let ",
    "x = ",
    "f(y)",
    ";\\n  ",
    "if x",
    " == ",
    "\\\"a\\\" ",
    "{ } ",
];
/// Bytes of text in one piece.
pub const PIECE: u64 = 4;

/// The parts of an answer of many small pieces: the start, then `block` repeated, then the end.
#[derive(Debug)]
pub struct Flood {
    /// Everything before the first piece.
    pub start: String,
    /// The events of [`Flood::BLOCK`] pieces.
    pub block: String,
    /// Everything after the last piece.
    pub end: String,
}

impl Flood {
    /// The number of pieces in one block.
    pub const BLOCK: u64 = 1_000;

    /// Creates the answer in a protocol.
    #[must_use]
    pub fn new(wire: ModelProtocol, input: u64, pieces: u64) -> Self {
        let (mut start, mut block, mut end) = (String::new(), String::new(), String::new());
        begin(&mut start, wire, input);
        if wire == ModelProtocol::Messages {
            messages_block(&mut start, r#"{"type":"text","text":""}"#);
        }
        for at in 0..Self::BLOCK as usize {
            text(&mut block, wire, PIECES[at % PIECES.len()]);
        }
        if wire == ModelProtocol::Messages {
            event(
                &mut end,
                "content_block_stop",
                r#"{"type":"content_block_stop","index":0}"#,
            );
        }
        finish(&mut end, wire, "end_turn", "stop", input, pieces);
        Self { start, block, end }
    }
}

/// Returns a complete answer as server-sent events.
#[must_use]
pub fn answer(wire: ModelProtocol, say: &ModelAnswer, input: u64) -> String {
    let mut out = String::new();
    begin(&mut out, wire, input);
    match (wire, say) {
        (ModelProtocol::Messages, ModelAnswer::Text(words)) => {
            messages_block(&mut out, r#"{"type":"text","text":""}"#);
            text(&mut out, wire, &escaped(words));
            event(
                &mut out,
                "content_block_stop",
                r#"{"type":"content_block_stop","index":0}"#,
            );
            finish(&mut out, wire, "end_turn", "stop", input, 8);
        }
        (ModelProtocol::Chat, ModelAnswer::Text(words)) => {
            text(&mut out, wire, &escaped(words));
            finish(&mut out, wire, "end_turn", "stop", input, 8);
        }
        (ModelProtocol::Messages, ModelAnswer::Bash { command, number }) => {
            let start = format!(
                r#"{{"type":"tool_use","id":"toolu_{number:06}","name":"bash","input":{{}}}}"#
            );
            messages_block(&mut out, &start);
            let json = arguments(command);
            let data = format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"input_json_delta","partial_json":"{json}"}}}}"#
            );
            event(&mut out, "content_block_delta", &data);
            event(
                &mut out,
                "content_block_stop",
                r#"{"type":"content_block_stop","index":0}"#,
            );
            finish(&mut out, wire, "tool_use", "tool_calls", input, 16);
        }
        (ModelProtocol::Chat, ModelAnswer::Bash { command, number }) => {
            let json = arguments(command);
            let delta = format!(
                r#"{{"tool_calls":[{{"index":0,"id":"call_{number:06}","type":"function","function":{{"name":"bash","arguments":"{json}"}}}}]}}"#
            );
            chat_chunk(&mut out, &delta, "null", "");
            finish(&mut out, wire, "tool_use", "tool_calls", input, 16);
        }
    }
    out
}

fn begin(out: &mut String, wire: ModelProtocol, input: u64) {
    match wire {
        ModelProtocol::Messages => {
            let data = format!(
                r#"{{"type":"message_start","message":{{"id":"msg_bench","type":"message","role":"assistant","model":"scripted-bench","content":[],"stop_reason":null,"usage":{{"input_tokens":{input},"output_tokens":1}}}}}}"#
            );
            event(out, "message_start", &data);
        }
        ModelProtocol::Chat => chat_chunk(out, r#"{"role":"assistant","content":""}"#, "null", ""),
    }
}

fn messages_block(out: &mut String, block: &str) {
    let data = format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#);
    event(out, "content_block_start", &data);
}

/// Writes a piece of text that is already escaped.
fn text(out: &mut String, wire: ModelProtocol, piece: &str) {
    match wire {
        ModelProtocol::Messages => {
            let data = format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{piece}"}}}}"#
            );
            event(out, "content_block_delta", &data);
        }
        ModelProtocol::Chat => chat_chunk(out, &format!(r#"{{"content":"{piece}"}}"#), "null", ""),
    }
}

fn finish(
    out: &mut String,
    wire: ModelProtocol,
    messages: &str,
    chat: &str,
    input: u64,
    output: u64,
) {
    match wire {
        ModelProtocol::Messages => {
            let data = format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"{messages}","stop_sequence":null}},"usage":{{"output_tokens":{output}}}}}"#
            );
            event(out, "message_delta", &data);
            event(out, "message_stop", r#"{"type":"message_stop"}"#);
        }
        ModelProtocol::Chat => {
            chat_chunk(out, "{}", &format!("\"{chat}\""), "");
            let total = input + output;
            let usage = format!(
                r#","usage":{{"prompt_tokens":{input},"completion_tokens":{output},"total_tokens":{total}}}"#
            );
            chat_chunk(out, "{}", "null", &usage);
            out.push_str("data: [DONE]\n\n");
        }
    }
}

fn chat_chunk(out: &mut String, delta: &str, finish: &str, more: &str) {
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        r#"data: {{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1,"model":"scripted-bench","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]{more}}}"#
    );
    out.push_str("\n\n");
}

fn event(out: &mut String, name: &str, data: &str) {
    let _ = write!(out, "event: {name}\ndata: {data}\n\n");
}

/// Returns `{"command": …}`, escaped for use inside another JSON string.
fn arguments(command: &str) -> String {
    escaped(&format!(r#"{{"command":"{}"}}"#, escaped(command)))
}

/// Escapes text for JSON. Handles only the characters that occur in benchmarks: quotes, backslashes and line breaks.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use windlass_providers::framing::Framer;
    use windlass_providers::protocol::{Batch, Protocol, Quirks};

    /// Decodes an answer with the product's own decoders.
    fn read(wire: ModelProtocol, stream: &str) -> String {
        let protocol = match wire {
            ModelProtocol::Messages => Protocol::AnthropicMessages,
            ModelProtocol::Chat => Protocol::OpenAiChat,
        };
        let mut decoder = protocol.decoder(&Quirks::NONE);
        let (mut framer, mut batch) = (Framer::new(protocol.framing()), Batch::default());
        framer
            .push(stream.as_bytes(), |event| decoder.event(&event, &mut batch))
            .unwrap();
        assert!(decoder.finish(&mut batch), "the answer ends");
        std::iter::from_fn(|| batch.pop())
            .map(|chunk| format!("{chunk:?}\n"))
            .collect()
    }

    #[test]
    fn both_wires_say_what_was_meant() {
        for wire in [ModelProtocol::Messages, ModelProtocol::Chat] {
            let said = read(
                wire,
                &answer(wire, &ModelAnswer::Text("all \"done\"".into()), 7),
            );
            assert!(
                said.contains(r#"Text("all \"done\"")"#) && said.contains("input: 7"),
                "{said}"
            );
            let call = ModelAnswer::Bash {
                command: "echo \"a\\b\"".into(),
                number: 3,
            };
            let said = read(wire, &answer(wire, &call, 7));
            assert!(
                said.contains("000003") && said.contains("bash") && said.contains("ToolCalls"),
                "{said}"
            );
            assert!(
                said.contains(r#"{\"command\":\"echo \\\"a\\\\b\\\"\"}"#),
                "{said}"
            );
        }
    }

    #[test]
    fn a_flood_is_pieces_of_four_bytes() {
        for wire in [ModelProtocol::Messages, ModelProtocol::Chat] {
            let flood = Flood::new(wire, 7, Flood::BLOCK);
            let said = read(
                wire,
                &format!("{}{}{}", flood.start, flood.block, flood.end),
            );
            let text = said
                .lines()
                .find_map(|line| line.strip_prefix("Text("))
                .unwrap();
            let written = text.trim_end_matches(')').trim_matches('"');
            let unescaped = written.replace("\\n", "\n").replace("\\\"", "\"");
            assert_eq!(unescaped.len() as u64, PIECE * Flood::BLOCK);
            assert_eq!(flood.block.matches("\n\n").count() as u64, Flood::BLOCK);
        }
    }
}
