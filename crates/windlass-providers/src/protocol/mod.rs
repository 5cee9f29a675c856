//! Wire protocols: a request becomes body bytes, events become chunks. Pure: no socket, no clock, no vendor.
//! What differs between vendors of one protocol is data ([`Quirks`]).

mod anthropic;
pub mod bedrock;
mod converse;
mod decode;
mod frame;
mod gemini;
mod ollama;
mod openai_chat;
mod openai_responses;
mod wire;
mod wishes;

use std::collections::VecDeque;

use serde_json::Value;
use windlass_core::message::Role;
use windlass_core::provider::{Chunk, Request, ToolChoice};

use crate::framing::Framing;

pub use self::decode::Decoder;
pub use self::openai_responses::reasons;
pub use self::wishes::is_strict;

const BEDROCK_VERSION: &str = "bedrock-2023-05-31";
const VERTEX_VERSION: &str = "vertex-2023-10-16";

/// How requests are shaped and streams are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Messages with content blocks and named events.
    AnthropicMessages,
    /// Chat completions, the form most servers speak.
    OpenAiChat,
    /// Responses: items and named events, with nothing stored at the vendor.
    OpenAiResponses,
    /// generateContent: candidates made of parts.
    Gemini,
    /// Ollama's own chat, one document a line.
    OllamaChat,
    /// Messages inside Bedrock's binary framing.
    BedrockAnthropic,
    /// Messages as Google Cloud hosts them.
    VertexAnthropic,
    /// Bedrock's own form for all its models.
    BedrockConverse,
}

/// What vendors of one protocol do differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quirks {
    /// The field that limits the output of a chat completion.
    pub max_tokens: MaxTokensField,
    /// How reasoning is sent back in a chat completion.
    pub reasoning_back: ReasoningBack,
    /// The model may write `<think>…</think>` at the beginning of its text.
    pub think_tags: bool,
    /// The server knows `stream_options`.
    pub stream_usage: bool,
    /// The server takes hints about its cache: `cache_control` marks, or a `prompt_cache_key`.
    pub cache_marks: bool,
    /// The server holds a chat completion to a JSON Schema; one that does not is asked for JSON and told the schema.
    pub json_schema: bool,
    /// The window the server is to make, where it has to be told: what was asked of it before.
    pub window: Option<u64>,
}

impl Quirks {
    /// The protocol as its inventor speaks it.
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

/// The name of the output limit in a chat completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxTokensField {
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

/// How earlier reasoning returns to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningBack {
    /// It does not.
    Never,
    /// As text in `reasoning_content`.
    Content,
    /// As the `reasoning_details` that came with it, unchanged.
    Details,
}

impl Protocol {
    /// The whole body of a request.
    #[must_use]
    pub fn encode(self, request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
        match self {
            Self::AnthropicMessages | Self::BedrockAnthropic | Self::VertexAnthropic => {
                // The address of Bedrock says that a stream is wanted.
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

    /// Path and query of a request, behind the base address; `{model}` stands for the model's name.
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

    /// What stands in the body of a hosted Messages request instead of the model's name.
    #[must_use]
    pub fn hosted_version(self) -> Option<&'static str> {
        match self {
            Self::BedrockAnthropic => Some(BEDROCK_VERSION),
            Self::VertexAnthropic => Some(VERTEX_VERSION),
            _ => None,
        }
    }

    /// How the events of an answer are told apart.
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

    /// The wishes of a request that this protocol has no words for, each as a warning. They are said when a session
    /// begins and not at every step.
    #[must_use]
    pub fn unmet(self, request: &Request<'_>) -> Vec<String> {
        let options = request.options;
        let mut unmet = Vec::new();
        if request
            .history
            .iter()
            .any(|entry| entry.role == Role::Assistant)
        {
            return unmet;
        }
        let model = request.model;
        let by_name = match self {
            Self::OpenAiResponses | Self::OpenAiChat => !openai_responses::reasons(model),
            Self::AnthropicMessages | Self::BedrockAnthropic | Self::VertexAnthropic => {
                anthropic::samples(request)
            }
            _ => true,
        };
        if options.temperature.is_some() && !by_name {
            unmet.push(format!(
                "`{model}` takes no temperature here; it is not sent"
            ));
        }
        let stops = match self {
            Self::OpenAiResponses => false,
            Self::OpenAiChat => by_name,
            _ => true,
        };
        if !options.stop.is_empty() && !stops {
            unmet.push(format!(
                "`{model}` takes no stop sequences here; they are not sent"
            ));
        }
        let forced = matches!(
            options.tool_choice,
            Some(ToolChoice::Required | ToolChoice::Named(_))
        );
        if self == Self::OllamaChat && forced {
            unmet.push(format!(
                "`{model}` cannot be made to call a tool here; the choice is left to it"
            ));
        }
        if self == Self::BedrockConverse {
            if options.output_schema.is_some() {
                unmet.push(format!(
                    "`{model}` cannot be held to a schema here; it is told the schema instead"
                ));
            }
            if options.reasoning_effort.is_some() || options.thinking_tokens.is_some() {
                unmet.push(format!(
                    "`{model}` cannot be told here how much to think; it is not sent"
                ));
            }
        }
        unmet
    }

    /// A decoder for one answer.
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

/// Chunks in the order they came; pieces of the same text that follow each other become one chunk.
#[derive(Debug, Default)]
pub struct Batch {
    chunks: VecDeque<Chunk>,
    bytes: usize,
}

impl Batch {
    /// More text.
    pub fn text(&mut self, piece: &str) {
        self.append(piece, Chunk::Text(String::new()));
    }

    /// More reasoning.
    pub fn reasoning(&mut self, piece: &str) {
        self.append(piece, Chunk::Reasoning(String::new()));
    }

    /// More of a call's arguments.
    pub fn args(&mut self, index: u32, piece: &str) {
        let json = String::new();
        self.append(piece, Chunk::CallArgs { index, json });
    }

    /// A call begins.
    pub(crate) fn call(&mut self, index: u32, id: &str, name: &str) {
        let (id, name) = (id.to_owned(), name.to_owned());
        self.push(Chunk::CallStart { index, id, name });
    }

    /// What the model needs again with its reasoning.
    pub(crate) fn state(&mut self, state: Value) {
        self.push(Chunk::ReasoningState(state));
    }

    /// Adds a piece to the last chunk, or to this one if the last is of something else.
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

    /// Anything else. Of usage reports that follow each other the last one counts.
    pub fn push(&mut self, chunk: Chunk) {
        match (self.chunks.back_mut(), chunk) {
            (Some(Chunk::Usage(usage)), Chunk::Usage(newer)) => *usage = newer,
            (_, chunk) => self.chunks.push_back(chunk),
        }
    }

    /// The oldest chunk.
    pub fn pop(&mut self) -> Option<Chunk> {
        let chunk = self.chunks.pop_front();
        if self.chunks.is_empty() {
            self.bytes = 0;
        }
        chunk
    }

    /// How many chunks are waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Nothing is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes of text, reasoning and arguments waiting, give or take what was popped.
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
