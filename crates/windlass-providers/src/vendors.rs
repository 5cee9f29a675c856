//! Vendors as data: protocol, address, key, quirks. A new vendor with a known protocol needs only a few lines here.

use crate::auth::Auth;
use crate::probe::Probe;
use crate::protocol::{MaxTokensField, Protocol, Quirks, ReasoningBack};

/// A model service and its peculiarities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vendor {
    /// The part before the slash in `vendor/model`.
    pub id: &'static str,
    pub protocol: Protocol,
    /// `None` if the user must configure the address.
    pub base_url: Option<&'static str>,
    /// Path and query of requests, if they differ from the protocol's.
    pub path: Option<&'static str>,
    /// Values for the placeholders in the address.
    pub settings: &'static [VendorSetting],
    pub auth: Auth,
    /// The environment variable with the key; `None` if no key is needed.
    pub key_env: Option<&'static str>,
    /// The server runs on the user's machine and needs no key and no price.
    pub local: bool,
    pub probe: Probe,
    /// The path of the list of models, if the vendor has one.
    pub list: Option<&'static str>,
    pub quirks: Quirks,
}

/// A user-defined value in a vendor's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VendorSetting {
    /// The placeholder in the address, and the name in the settings.
    pub name: &'static str,
    /// The environment variable with the value.
    pub env: &'static str,
    pub default: Option<&'static str>,
}

const CHAT: Vendor = Vendor {
    id: "openai-compatible",
    protocol: Protocol::OpenAiChat,
    base_url: None,
    path: None,
    settings: &[],
    auth: Auth::Bearer,
    key_env: None,
    local: false,
    probe: Probe::None,
    list: Some("/models"),
    quirks: Quirks {
        think_tags: true,
        ..Quirks::NONE
    },
};

/// For vendors that always report usage and reject `stream_options`.
const ALWAYS_USAGE: Quirks = Quirks {
    stream_usage: false,
    ..Quirks::NONE
};

/// Returns a vendor with chat completions.
const fn chat(id: &'static str, base_url: &'static str, key_env: &'static str) -> Vendor {
    Vendor {
        id,
        base_url: Some(base_url),
        key_env: Some(key_env),
        ..CHAT
    }
}

/// Returns a vendor that runs on the user's machine.
const fn local(id: &'static str, base_url: &'static str, probe: Probe) -> Vendor {
    Vendor {
        id,
        base_url: Some(base_url),
        local: true,
        probe,
        ..CHAT
    }
}

const fn setting(
    name: &'static str,
    env: &'static str,
    default: Option<&'static str>,
) -> VendorSetting {
    VendorSetting { name, env, default }
}

impl Vendor {
    /// Returns the environment variable from which the vendor's own programs take another address.
    #[must_use]
    pub fn base_url_env(&self) -> Option<&'static str> {
        match self.key_env? {
            "OPENAI_API_KEY" => Some("OPENAI_BASE_URL"),
            "ANTHROPIC_API_KEY" => Some("ANTHROPIC_BASE_URL"),
            _ => None,
        }
    }

    const fn with_quirks(self, quirks: Quirks) -> Self {
        Self { quirks, ..self }
    }

    /// Replaces the protocol and removes all quirks.
    const fn with_protocol(self, protocol: Protocol) -> Self {
        Self {
            protocol,
            quirks: Quirks::NONE,
            ..self
        }
    }
}

const BEDROCK: Vendor = Vendor {
    id: "bedrock",
    protocol: Protocol::BedrockAnthropic,
    base_url: Some("https://bedrock-runtime.{region}.amazonaws.com"),
    settings: &[setting("region", "AWS_REGION", Some("us-east-1"))],
    auth: Auth::SigV4("bedrock"),
    key_env: Some("AWS_BEARER_TOKEN_BEDROCK"),
    list: None,
    quirks: Quirks::NONE,
    ..CHAT
};

const VERTEX: Vendor = Vendor {
    id: "vertex",
    protocol: Protocol::VertexAnthropic,
    base_url: Some(
        "https://{region}-aiplatform.googleapis.com/v1/projects/{project}/locations/{region}",
    ),
    settings: &[
        setting("region", "GOOGLE_CLOUD_LOCATION", Some("us-east5")),
        setting("project", "GOOGLE_CLOUD_PROJECT", None),
    ],
    // The output of `gcloud auth print-access-token`.
    key_env: Some("GOOGLE_OAUTH_ACCESS_TOKEN"),
    list: None,
    quirks: Quirks::NONE,
    ..CHAT
};

/// All vendors, in the order in which they are listed to users.
pub const VENDORS: &[Vendor] = &[
    Vendor {
        id: "anthropic",
        protocol: Protocol::AnthropicMessages,
        base_url: Some("https://api.anthropic.com"),
        auth: Auth::Header("x-api-key"),
        key_env: Some("ANTHROPIC_API_KEY"),
        list: Some("/v1/models"),
        quirks: Quirks::NONE,
        ..CHAT
    },
    chat("openai", "https://api.openai.com/v1", "OPENAI_API_KEY")
        .with_protocol(Protocol::OpenAiResponses),
    chat("openai-chat", "https://api.openai.com/v1", "OPENAI_API_KEY").with_quirks(Quirks {
        max_tokens: MaxTokensField::MaxCompletionTokens,
        ..Quirks::NONE
    }),
    Vendor {
        id: "gemini",
        protocol: Protocol::Gemini,
        base_url: Some("https://generativelanguage.googleapis.com/v1beta"),
        auth: Auth::Header("x-goog-api-key"),
        key_env: Some("GEMINI_API_KEY"),
        quirks: Quirks::NONE,
        ..CHAT
    },
    Vendor {
        id: "azure",
        // The name of the deployment replaces the name of the model.
        path: Some("/openai/deployments/{model}/chat/completions?api-version={api_version}"),
        settings: &[setting(
            "api_version",
            "AZURE_OPENAI_API_VERSION",
            Some("2024-10-21"),
        )],
        auth: Auth::Header("api-key"),
        key_env: Some("AZURE_OPENAI_API_KEY"),
        list: None,
        quirks: Quirks {
            max_tokens: MaxTokensField::MaxCompletionTokens,
            ..Quirks::NONE
        },
        ..CHAT
    },
    VERTEX,
    Vendor {
        id: "vertex-gemini",
        protocol: Protocol::Gemini,
        path: Some("/publishers/google/models/{model}:streamGenerateContent?alt=sse"),
        ..VERTEX
    },
    BEDROCK,
    Vendor {
        id: "bedrock-converse",
        protocol: Protocol::BedrockConverse,
        ..BEDROCK
    },
    chat(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
    )
    .with_quirks(Quirks {
        reasoning_back: ReasoningBack::Details,
        ..Quirks::NONE
    }),
    chat("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY").with_quirks(Quirks {
        max_tokens: MaxTokensField::MaxCompletionTokens,
        think_tags: true,
        ..Quirks::NONE
    }),
    // It supports JSON output, but no schema.
    chat(
        "deepseek",
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
    )
    .with_quirks(Quirks {
        reasoning_back: ReasoningBack::Content,
        json_schema: false,
        ..Quirks::NONE
    }),
    // It rejects unknown fields.
    chat("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY").with_quirks(ALWAYS_USAGE),
    chat("xai", "https://api.x.ai/v1", "XAI_API_KEY").with_protocol(Protocol::OpenAiResponses),
    chat(
        "together",
        "https://api.together.xyz/v1",
        "TOGETHER_API_KEY",
    ),
    chat(
        "zhipu",
        "https://open.bigmodel.cn/api/paas/v4",
        "ZHIPU_API_KEY",
    )
    .with_quirks(ALWAYS_USAGE),
    Vendor {
        id: "litellm",
        key_env: Some("LITELLM_API_KEY"),
        ..CHAT
    },
    Vendor {
        protocol: Protocol::OllamaChat,
        list: Some("/api/tags"),
        ..local("ollama", "http://127.0.0.1:11434", Probe::OllamaShow)
    },
    local("lmstudio", "http://127.0.0.1:1234/v1", Probe::LmStudio),
    local("llama.cpp", "http://127.0.0.1:8080/v1", Probe::LlamaProps),
    local("vllm", "http://127.0.0.1:8000/v1", Probe::Models),
    CHAT,
    Vendor {
        id: "anthropic-compatible",
        protocol: Protocol::AnthropicMessages,
        auth: Auth::Header("x-api-key"),
        list: Some("/v1/models"),
        quirks: Quirks::NONE,
        ..CHAT
    },
];

/// Finds a vendor by its id.
#[must_use]
pub fn vendor(id: &str) -> Option<&'static Vendor> {
    VENDORS.iter().find(|vendor| vendor.id == id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::endpoint::VendorEndpoint;

    #[test]
    fn every_vendor_has_a_usable_address_and_a_name_of_its_own() {
        for (at, vendor) in VENDORS.iter().enumerate() {
            assert!(
                VENDORS[..at].iter().all(|other| other.id != vendor.id),
                "{}",
                vendor.id
            );
            if let Some(base) = vendor.base_url {
                let values = vendor
                    .settings
                    .iter()
                    .map(|it| (it.name.to_owned(), it.default.unwrap_or("x").to_owned()));
                let path = vendor.path.unwrap_or_else(|| vendor.protocol.path());
                let endpoint = VendorEndpoint::with_path(base, path, &values.collect()).unwrap();
                assert!(
                    !endpoint.url("m").as_str().contains(['{', '%']),
                    "{}",
                    endpoint.url("m")
                );
                assert_eq!(endpoint.is_loopback(), vendor.local, "{}", vendor.id);
                assert_eq!(vendor.key_env.is_none(), vendor.local, "{}", vendor.id);
            }
        }
        assert_eq!(vendor("groq").unwrap().key_env, Some("GROQ_API_KEY"));
        assert!(vendor("unknown").is_none());
    }
}
