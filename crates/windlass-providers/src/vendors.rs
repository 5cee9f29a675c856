//! Vendors as data: protocol, address, key, quirks. Adding one that speaks a known protocol is a few lines here and
//! no code. Nothing in this file acts.

use crate::auth::Auth;
use crate::probe::Probe;
use crate::protocol::{MaxTokensField, Protocol, Quirks, ReasoningBack};

/// Somebody who serves models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vendor {
    /// What people type before the slash in `vendor/model`.
    pub id: &'static str,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// Its address; `None` where the person has to give one.
    pub base_url: Option<&'static str>,
    /// Path and query of its requests, where they are not the protocol's.
    pub path: Option<&'static str>,
    /// Values that its address needs.
    pub settings: &'static [Setting],
    /// How the key travels.
    pub auth: Auth,
    /// The environment variable that usually holds the key; `None` where no key is needed.
    pub key_env: Option<&'static str>,
    /// It runs on the person's own machine: no key, no price.
    pub local: bool,
    /// How it is asked about a model.
    pub probe: Probe,
    /// The path of its list of models.
    pub list: Option<&'static str>,
    /// What it does differently.
    pub quirks: Quirks,
}

/// A value in a vendor's address that the person gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its place in the address, and its name in the configuration.
    pub name: &'static str,
    /// The environment variable that usually holds it.
    pub env: &'static str,
    /// What it is when nobody says.
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

/// Of those that report usage unasked.
const UNASKED: Quirks = Quirks {
    stream_usage: false,
    ..Quirks::NONE
};

/// One that speaks chat completions at this address, with the key in this variable.
const fn chat(id: &'static str, base_url: &'static str, key_env: &'static str) -> Vendor {
    Vendor {
        id,
        base_url: Some(base_url),
        key_env: Some(key_env),
        ..CHAT
    }
}

/// One on the person's own machine.
const fn local(id: &'static str, base_url: &'static str, probe: Probe) -> Vendor {
    Vendor {
        id,
        base_url: Some(base_url),
        local: true,
        probe,
        ..CHAT
    }
}

const fn setting(name: &'static str, env: &'static str, default: Option<&'static str>) -> Setting {
    Setting { name, env, default }
}

impl Vendor {
    /// The variable in which the vendor's own programs look for another address.
    #[must_use]
    pub fn base_url_env(&self) -> Option<&'static str> {
        match self.key_env? {
            "OPENAI_API_KEY" => Some("OPENAI_BASE_URL"),
            "ANTHROPIC_API_KEY" => Some("ANTHROPIC_BASE_URL"),
            _ => None,
        }
    }

    const fn with(self, quirks: Quirks) -> Self {
        Self { quirks, ..self }
    }

    /// Spoken to by another protocol, without quirks.
    const fn by(self, protocol: Protocol) -> Self {
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
    // What `gcloud auth print-access-token` prints.
    key_env: Some("GOOGLE_OAUTH_ACCESS_TOKEN"),
    list: None,
    quirks: Quirks::NONE,
    ..CHAT
};

/// All vendors, in the order they are listed.
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
    chat("openai", "https://api.openai.com/v1", "OPENAI_API_KEY").by(Protocol::OpenAiResponses),
    chat("openai-chat", "https://api.openai.com/v1", "OPENAI_API_KEY").with(Quirks {
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
        // The deployment's name stands in the place of the model's.
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
    .with(Quirks {
        reasoning_back: ReasoningBack::Details,
        ..Quirks::NONE
    }),
    chat("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY").with(Quirks {
        max_tokens: MaxTokensField::MaxCompletionTokens,
        think_tags: true,
        ..Quirks::NONE
    }),
    // It knows JSON, but no schema.
    chat(
        "deepseek",
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
    )
    .with(Quirks {
        reasoning_back: ReasoningBack::Content,
        json_schema: false,
        ..Quirks::NONE
    }),
    // It reports usage unasked and refuses fields it does not know.
    chat("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY").with(UNASKED),
    chat("xai", "https://api.x.ai/v1", "XAI_API_KEY").by(Protocol::OpenAiResponses),
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
    .with(UNASKED),
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

/// The vendor of this id.
#[must_use]
pub fn vendor(id: &str) -> Option<&'static Vendor> {
    VENDORS.iter().find(|vendor| vendor.id == id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::endpoint::Endpoint;

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
                let endpoint = Endpoint::with_path(base, path, &values.collect()).unwrap();
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
        assert!(vendor("nobody").is_none());
    }
}
