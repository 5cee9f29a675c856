//! The protocol of the model endpoint, which an adapter has to configure in addition to the address.

/// The wire protocol of the run's model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Anthropic,
    /// OpenAI Chat Completions, and servers compatible with it.
    OpenAiChat,
    OpenAiResponses,
    Gemini,
}

impl Dialect {
    /// The protocol with this name in the settings.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "anthropic" => Self::Anthropic,
            "chat" => Self::OpenAiChat,
            "responses" => Self::OpenAiResponses,
            "gemini" => Self::Gemini,
            _ => return None,
        })
    }
}
