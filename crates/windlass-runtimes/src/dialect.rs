//! In which words an agent asks the model of a run: what its adapter has to tell it beside the address.

/// The wire protocol that the run's model is asked in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, and whoever speaks it, too.
    OpenAiChat,
    /// OpenAI Responses.
    OpenAiResponses,
    /// Gemini.
    Gemini,
}

impl Dialect {
    /// The wire of that name, as the settings have it.
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
