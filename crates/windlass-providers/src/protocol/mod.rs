//! Wire protocols: encodes a request as a body, and decodes events into chunks. Pure: no socket, no clock, no vendor.
//! Differences between vendors of one protocol are data ([`Quirks`]).

mod anthropic;
pub mod bedrock;
mod converse;
mod decode;
mod frame;
mod gemini;
mod ollama;
mod openai_chat;
mod openai_responses;
mod output_options;
mod wire;

use std::collections::VecDeque;

use serde_json::Value;
use windlass_core::message::Role;
use windlass_core::provider::{Chunk, Request, ToolChoice};

use crate::framing::Framing;

pub use self::decode::Decoder;
pub use self::openai_responses::is_reasoning_model;
pub use self::output_options::is_strict;

const BEDROCK_VERSION: &str = "bedrock-2023-05-31";
const VERTEX_VERSION: &str = "vertex-2023-10-16";

/// A format of requests and event streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Messages with content blocks and named events.
    AnthropicMessages,
    /// Chat completions, the format that most servers support.
    OpenAiChat,
    /// Responses: items and named events. The vendor stores nothing.
    OpenAiResponses,
    /// `generateContent`: candidates made of parts.
    Gemini,
    /// Ollama's own chat, with one JSON document per line.
    OllamaChat,
    /// Anthropic's messages in Bedrock's binary framing.
    BedrockAnthropic,
    /// Anthropic's messages on Google Cloud.
    VertexAnthropic,
    /// Bedrock's own format for all its models.
    BedrockConverse,
}

/// Differences between vendors of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quirks {
    pub max_tokens: MaxTokensField,
    pub reasoning_back: ReasoningBack,
    /// The model may begin its text with `<think>…</think>`.
    pub think_tags: bool,
    /// The server supports `stream_options`.
    pub stream_usage: bool,
    /// The server accepts hints for its cache: `cache_control` marks, or a `prompt_cache_key`.
    pub cache_marks: bool,
    /// The server enforces a JSON schema in a chat completion. Other servers are asked for JSON, with the schema in the
    /// prompt.
    pub json_schema: bool,
    /// The window to request from the server in tokens, if it must be requested. It comes from an earlier probe.
    pub window: Option<u64>,
}

impl Quirks {
    /// The protocol as its original vendor implements it.
    pub const NONE: Self = Self {
        max_tokens: MaxTokensField::MaxTokens,
        reasoning_back: ReasoningBack::Never,
        think_tags: false,
        stream_usage: true,
        cache_marks: true,
        json_schema: true,
        window: None,
    };
}

/// The field that limits the output of a chat completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxTokensField {
    MaxTokens,
    MaxCompletionTokens,
}

/// The form in which a chat completion sends earlier reasoning back to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningBack {
    Never,
    /// Sends the text in `reasoning_content`.
    Content,
    /// Sends the received `reasoning_details` unchanged.
    Details,
}

impl Protocol {
    /// Encodes the body of a request.
    #[must_use]
    pub fn encode(self, request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
        match self {
            Self::AnthropicMessages | Self::BedrockAnthropic | Self::VertexAnthropic => {
                // Bedrock requests a stream through its address.
                let stream = self != Self::BedrockAnthropic;
                anthropic::encode(request, quirks, self.hosted_version(), stream)
            }
            Self::OpenAiChat => openai_chat::encode(request, quirks),
            Self::OpenAiResponses => openai_responses::encode(request, quirks),
            Self::Gemini => gemini::encode(request, quirks),
            Self::OllamaChat => ollama::encode(request, quirks),
            Self::BedrockConverse => converse::encode(request, quirks),
        }
    }

    /// Returns path and query of a request, relative to the base address; `{model}` stands for the model's name.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "/v1/messages",
            Self::OpenAiChat => "/chat/completions",
            Self::OpenAiResponses => "/responses",
            Self::Gemini => "/v1beta/models/{model}:streamGenerateContent?alt=sse",
            Self::OllamaChat => "/api/chat",
            Self::BedrockAnthropic => "/model/{model}/invoke-with-response-stream",
            Self::VertexAnthropic => "/publishers/anthropic/models/{model}:streamRawPredict",
            Self::BedrockConverse => "/model/{model}/converse-stream",
        }
    }

    /// Returns the version that a hosted messages request contains instead of the model's name.
    #[must_use]
    pub fn hosted_version(self) -> Option<&'static str> {
        match self {
            Self::BedrockAnthropic => Some(BEDROCK_VERSION),
            Self::VertexAnthropic => Some(VERTEX_VERSION),
            _ => None,
        }
    }

    /// Returns the framing of an answer's events.
    #[must_use]
    pub fn framing(self) -> Framing {
        match self {
            Self::AnthropicMessages
            | Self::OpenAiChat
            | Self::OpenAiResponses
            | Self::Gemini
            | Self::VertexAnthropic => Framing::Sse,
            Self::OllamaChat => Framing::JsonLines,
            Self::BedrockAnthropic | Self::BedrockConverse => Framing::AwsEventStream,
        }
    }

    /// Returns a warning for each option of a request that this protocol cannot express. Returns none once the history
    /// has an answer, so that the warnings appear once per session and not at every step.
    #[must_use]
    pub fn unsupported(self, request: &Request<'_>) -> Vec<String> {
        let options = request.options;
        let mut warnings = Vec::new();
        if request
            .history
            .iter()
            .any(|entry| entry.role == Role::Assistant)
        {
            return warnings;
        }
        let model = request.model;
        let takes_temperature = match self {
            Self::OpenAiResponses | Self::OpenAiChat => {
                !openai_responses::is_reasoning_model(model)
            }
            Self::AnthropicMessages | Self::BedrockAnthropic | Self::VertexAnthropic => {
                anthropic::accepts_temperature(request)
            }
            _ => true,
        };
        if options.temperature.is_some() && !takes_temperature {
            warnings.push(format!(
                "this vendor accepts no temperature for `{model}`; it is not sent"
            ));
        }
        let stops = match self {
            Self::OpenAiResponses => false,
            Self::OpenAiChat => takes_temperature,
            _ => true,
        };
        if !options.stop.is_empty() && !stops {
            warnings.push(format!(
                "this vendor accepts no stop sequences for `{model}`; they are not sent"
            ));
        }
        let forced = matches!(
            options.tool_choice,
            Some(ToolChoice::Required | ToolChoice::Named(_))
        );
        if self == Self::OllamaChat && forced {
            warnings.push(format!(
                "this vendor cannot force `{model}` to call a tool; the model decides"
            ));
        }
        if self == Self::BedrockConverse {
            if options.output_schema.is_some() {
                warnings.push(format!(
                    "this vendor cannot enforce a schema for `{model}`; the schema is added to the prompt"
                ));
            }
            if options.reasoning_effort.is_some() || options.thinking_tokens.is_some() {
                warnings.push(format!(
                    "this vendor has no reasoning setting for `{model}`; it is not sent"
                ));
            }
        }
        warnings
    }

    /// Creates a decoder for one answer.
    #[must_use]
    pub fn decoder(self, quirks: &Quirks) -> Decoder {
        Decoder(match self {
            Self::AnthropicMessages | Self::VertexAnthropic => {
                Box::new(anthropic::AnthropicDecoder::default())
            }
            Self::OpenAiChat => Box::new(openai_chat::ChatDecoder::new(quirks)),
            Self::OpenAiResponses => Box::new(openai_responses::ResponsesDecoder::default()),
            Self::Gemini => Box::new(gemini::GeminiDecoder::default()),
            Self::OllamaChat => Box::new(ollama::OllamaDecoder::new(quirks)),
            Self::BedrockAnthropic => Box::new(bedrock::BedrockDecoder::default()),
            Self::BedrockConverse => Box::new(converse::ConverseDecoder::default()),
        })
    }
}

/// A queue of chunks. Consecutive pieces of the same text become one chunk.
#[derive(Debug, Default)]
pub struct Batch {
    chunks: VecDeque<Chunk>,
    bytes: usize,
}

impl Batch {
    /// Appends a piece of text.
    pub fn text(&mut self, piece: &str) {
        self.append(piece, Chunk::Text(String::new()));
    }

    /// Appends a piece of reasoning.
    pub fn reasoning(&mut self, piece: &str) {
        self.append(piece, Chunk::Reasoning(String::new()));
    }

    /// Appends a piece of a call's arguments.
    pub fn args(&mut self, index: u32, piece: &str) {
        let json = String::new();
        self.append(piece, Chunk::CallArgs { index, json });
    }

    /// Begins a tool call.
    pub(crate) fn call(&mut self, index: u32, id: &str, name: &str) {
        let (id, name) = (id.to_owned(), name.to_owned());
        self.push(Chunk::CallStart { index, id, name });
    }

    /// Adds data that must be sent back to the model with its reasoning.
    pub(crate) fn state(&mut self, state: Value) {
        self.push(Chunk::ReasoningState(state));
    }

    /// Appends a piece to the last chunk if that has the same type, or to a new chunk.
    fn append(&mut self, piece: &str, empty: Chunk) {
        if piece.is_empty() {
            return;
        }
        self.bytes += piece.len();
        let fits = self.chunks.back().is_some_and(|last| match (last, &empty) {
            (Chunk::CallArgs { index: open, .. }, Chunk::CallArgs { index, .. }) => open == index,
            (last, empty) => std::mem::discriminant(last) == std::mem::discriminant(empty),
        });
        if !fits {
            self.chunks.push_back(empty);
        }
        if let Some(
            Chunk::Text(text) | Chunk::Reasoning(text) | Chunk::CallArgs { json: text, .. },
        ) = self.chunks.back_mut()
        {
            text.push_str(piece);
        }
    }

    /// Adds a chunk. A usage report replaces an earlier one that is separated from it by at most one piece of text, so
    /// that the text of a vendor that reports its counts with every piece becomes one chunk.
    pub fn push(&mut self, chunk: Chunk) {
        if let Chunk::Usage(newer) = chunk {
            let is_text = matches!(
                self.chunks.back(),
                Some(Chunk::Text(_) | Chunk::Reasoning(_))
            );
            let last = self.chunks.iter_mut().nth_back(usize::from(is_text));
            if let Some(Chunk::Usage(usage)) = last {
                *usage = newer;
                return;
            }
        }
        self.chunks.push_back(chunk);
    }

    /// Removes the oldest chunk.
    pub fn pop(&mut self) -> Option<Chunk> {
        let chunk = self.chunks.pop_front();
        if self.chunks.is_empty() {
            self.bytes = 0;
        }
        chunk
    }

    /// Returns the number of queued chunks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Returns whether no chunk is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the bytes of text, reasoning and arguments since the queue was last empty, including popped chunks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
#[cfg(test)]
#[path = "wire_cases.rs"]
mod wire_cases;
