//! The runtimes that have a name: where their programs are, which wires they speak, how they sign in. Data alone; adding
//! an agent is a row.

use windlass_providers::protocol::Protocol;

use crate::install::Install;
use crate::sidecar::Sdk;

/// A runtime by its name.
#[derive(Debug)]
pub struct Known {
    /// What people type.
    pub name: &'static str,
    /// How it is driven.
    pub kind: Kind,
    /// Its program, where it has one.
    pub program: Option<&'static str>,
    /// In which words it asks its model.
    pub speaks: &'static [Protocol],
    /// The vendors that are tried when none is named.
    pub vendors: &'static [&'static str],
    /// Instruction files of a project that it reads by itself.
    pub reads: &'static [&'static str],
    /// Folders of a project that bring code or settings, where no option of its own keeps it from using them: they are
    /// empty where it works.
    pub hides: &'static [&'static str],
    /// It does not work before it is told its model.
    pub needs_model: bool,
    /// How it comes onto a machine, and the version it was last certified with.
    pub install: Install,
    /// Its own sign-in, where it can have one.
    pub login: Option<Login>,
    /// The settings about how a model answers that it can be told.
    pub hears: &'static [&'static str],
    /// What it is, in a few words.
    pub about: &'static str,
}

impl Known {
    /// Whether the loop is ours.
    pub fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Native | Kind::Completion | Kind::Patch)
    }
}

/// How a runtime is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Our loop, with its tools.
    Native,
    /// Our loop, one answer without tools.
    Completion,
    /// Our loop, one patch that the engine applies.
    Patch,
    /// The control protocol of Claude Code.
    ClaudeCode,
    /// The app server of Codex.
    Codex,
    /// The Agent Client Protocol.
    Acp,
    /// Aider, one process for each prompt.
    Aider,
    /// Any program that does one prompt and ends.
    Cli,
    /// An SDK of Python in a sidecar of ours.
    Sidecar(Sdk),
    /// The agent server of OpenHands.
    OpenHands,
}

/// What an agent needs to sign in by itself.
#[derive(Debug, Clone, Copy)]
pub struct Login {
    /// Its credential file below the person's home, which is all that it gets of it; none where a person has to say.
    pub file: Option<&'static str>,
    /// The hosts it has to reach.
    pub hosts: &'static [&'static str],
}

/// A sign-in of which nothing is known.
const SOME_LOGIN: Option<Login> = Some(Login {
    file: None,
    hosts: &[],
});
/// Where Claude Code and Codex sign in, by whichever protocol they are driven.
const CLAUDE_LOGIN: Option<Login> = Some(Login {
    file: Some(".claude/.credentials.json"),
    hosts: &[
        "api.anthropic.com",
        "claude.ai",
        "platform.claude.com",
        "console.anthropic.com",
    ],
});
const CODEX_LOGIN: Option<Login> = Some(Login {
    file: Some(".codex/auth.json"),
    hosts: &["chatgpt.com", "auth.openai.com", "api.openai.com"],
});

const ANTHROPIC: &[Protocol] = &[
    Protocol::AnthropicMessages,
    Protocol::BedrockAnthropic,
    Protocol::VertexAnthropic,
];
const EVERY_WIRE: &[Protocol] = &[
    Protocol::AnthropicMessages,
    Protocol::BedrockAnthropic,
    Protocol::VertexAnthropic,
    Protocol::OpenAiResponses,
    Protocol::OpenAiChat,
    Protocol::Gemini,
];

const OURS: Known = Known {
    name: "native",
    kind: Kind::Native,
    program: None,
    speaks: &[],
    vendors: &[],
    reads: &[],
    hides: &[],
    needs_model: false,
    install: Install::BuiltIn,
    login: None,
    hears: &[
        "temperature",
        "stop",
        "max_output",
        "reasoning_effort",
        "thinking_tokens",
    ],
    about: "the built-in agent",
};

/// What is the same for most agents that are not ours.
const FOREIGN: Known = Known {
    needs_model: true,
    hears: &[],
    ..OURS
};

/// And for most that speak ACP.
const AN_ACP: Known = Known {
    kind: Kind::Acp,
    login: SOME_LOGIN,
    ..FOREIGN
};

/// All runtimes that have a name.
pub const RUNTIMES: &[Known] = &[
    OURS,
    Known {
        name: "patch",
        kind: Kind::Patch,
        about: "a model proposes a patch, the engine checks and applies it",
        ..OURS
    },
    Known {
        name: "completion",
        kind: Kind::Completion,
        about: "a model answers; it has no tools",
        ..OURS
    },
    Known {
        name: "claude-code",
        kind: Kind::ClaudeCode,
        program: Some("claude"),
        speaks: ANTHROPIC,
        vendors: &["anthropic"],
        reads: &["CLAUDE.md"],
        needs_model: false,
        install: Install::Npm {
            package: "@anthropic-ai/claude-code",
            version: "2.1.325",
            program: ".bin/claude",
            node: Some(22),
        },
        login: CLAUDE_LOGIN,
        hears: &["reasoning_effort", "thinking_tokens"],
        about: "Claude Code, by its control protocol",
        ..FOREIGN
    },
    Known {
        name: "codex",
        kind: Kind::Codex,
        program: Some("codex"),
        speaks: &[Protocol::OpenAiResponses],
        vendors: &["openai"],
        reads: &["AGENTS.md"],
        needs_model: false,
        install: Install::Npm {
            package: "@openai/codex",
            version: "0.166.0",
            program: ".bin/codex",
            node: Some(22),
        },
        login: CODEX_LOGIN,
        hears: &["reasoning_effort"],
        about: "Codex, by its app server",
        ..FOREIGN
    },
    Known {
        name: "opencode",
        kind: Kind::Acp,
        program: Some("opencode"),
        speaks: EVERY_WIRE,
        vendors: &["anthropic", "openai"],
        hides: &[".opencode"],
        reads: &["AGENTS.md", "CLAUDE.md"],
        install: Install::Npm {
            package: "opencode-ai",
            version: "1.18.33",
            program: ".bin/opencode",
            node: Some(22),
        },
        login: Some(Login {
            file: Some(".local/share/opencode/auth.json"),
            hosts: &[],
        }),
        hears: &[],
        about: "opencode, by ACP",
        ..FOREIGN
    },
    Known {
        name: "gemini-cli",
        program: Some("gemini"),
        speaks: &[Protocol::Gemini],
        vendors: &["gemini"],
        install: Install::Npm {
            package: "@google/gemini-cli",
            version: "0.61.0",
            program: ".bin/gemini",
            node: Some(20),
        },
        login: Some(Login {
            file: Some(".gemini/oauth_creds.json"),
            hosts: &[
                "cloudcode-pa.googleapis.com",
                "oauth2.googleapis.com",
                "www.googleapis.com",
            ],
        }),
        about: "Gemini CLI, by ACP",
        ..AN_ACP
    },
    Known {
        name: "qwen-code",
        program: Some("qwen"),
        speaks: &[Protocol::OpenAiChat],
        vendors: &["openai-chat", "openrouter"],
        hides: &[".qwen"],
        install: Install::Npm {
            package: "@qwen-code/qwen-code",
            version: "0.24.4",
            program: ".bin/qwen",
            node: Some(22),
        },
        about: "Qwen Code, by ACP",
        ..AN_ACP
    },
    Known {
        name: "goose",
        program: Some("goose"),
        speaks: EVERY_WIRE,
        vendors: &["anthropic", "openai", "gemini"],
        reads: &["AGENTS.md"],
        install: Install::Npm {
            package: "@aaif/goose-binary-{platform}",
            version: "1.52.0",
            program: "@aaif/goose-binary-{platform}/bin/goose",
            node: None,
        },
        about: "goose, by ACP",
        ..AN_ACP
    },
    Known {
        name: "claude-agent-acp",
        program: Some("claude-agent-acp"),
        speaks: ANTHROPIC,
        vendors: &["anthropic"],
        reads: &["CLAUDE.md"],
        install: Install::Npm {
            package: "@agentclientprotocol/claude-agent-acp",
            version: "0.99.0",
            program: ".bin/claude-agent-acp",
            node: Some(22),
        },
        login: CLAUDE_LOGIN,
        about: "Claude Code, by its ACP adapter",
        ..AN_ACP
    },
    Known {
        name: "codex-acp",
        program: Some("codex-acp"),
        speaks: &[Protocol::OpenAiResponses],
        vendors: &["openai"],
        hides: &[".codex"],
        reads: &["AGENTS.md"],
        install: Install::Npm {
            package: "@agentclientprotocol/codex-acp",
            version: "2.6.0",
            program: ".bin/codex-acp",
            node: Some(22),
        },
        login: CODEX_LOGIN,
        about: "Codex, by its ACP adapter",
        ..AN_ACP
    },
    Known {
        name: "aider",
        kind: Kind::Aider,
        program: Some("aider"),
        speaks: EVERY_WIRE,
        vendors: &["anthropic", "openai", "gemini"],
        install: Install::Pip {
            packages: &["aider-chat==0.86.2"],
            version: "0.86.2",
            pins: include_str!("pins/aider.txt"),
            python: (10, 12),
            program: "bin/aider",
        },
        hears: &["reasoning_effort", "thinking_tokens"],
        about: "Aider, one prompt at a time",
        ..FOREIGN
    },
    Known {
        name: "openai-agents",
        kind: Kind::Sidecar(Sdk::OpenAiAgents),
        program: Some("openai-agents"),
        speaks: &[Protocol::OpenAiResponses, Protocol::OpenAiChat],
        vendors: &["openai"],
        install: Install::Pip {
            packages: &["openai-agents==0.24.0"],
            version: "0.24.0",
            pins: include_str!("pins/openai-agents.txt"),
            python: (11, 13),
            program: "bin/python",
        },
        hears: &["temperature", "max_output", "reasoning_effort"],
        about: "the OpenAI Agents SDK, in a sidecar with our tools",
        ..FOREIGN
    },
    Known {
        name: "google-adk",
        kind: Kind::Sidecar(Sdk::GoogleAdk),
        program: Some("google-adk"),
        speaks: EVERY_WIRE,
        vendors: &["gemini", "anthropic", "openai"],
        install: Install::Pip {
            packages: &["google-adk==2.13.0", "litellm==1.106.2", "mcp==2.3.0"],
            version: "2.13.0",
            pins: include_str!("pins/google-adk.txt"),
            python: (11, 13),
            program: "bin/python",
        },
        hears: &["temperature", "max_output"],
        about: "Google's Agent Development Kit, in a sidecar with our tools",
        ..FOREIGN
    },
    Known {
        name: "openhands",
        kind: Kind::OpenHands,
        program: Some("agent-server"),
        speaks: EVERY_WIRE,
        vendors: &["anthropic", "openai", "gemini"],
        install: Install::Pip {
            packages: &[
                "openhands-agent-server==1.58.0",
                "openhands-sdk==1.58.0",
                "openhands-tools==1.58.0",
            ],
            version: "1.58.0",
            pins: include_str!("pins/openhands.txt"),
            python: (12, 13),
            program: "bin/agent-server",
        },
        hears: &["reasoning_effort"],
        about: "OpenHands, by its agent server",
        ..FOREIGN
    },
];

/// Any agent that speaks ACP, by its command.
pub const ANY_ACP: Known = Known {
    name: "acp",
    speaks: EVERY_WIRE,
    vendors: &["anthropic", "openai", "gemini"],
    needs_model: false,
    about: "any agent that speaks ACP, as acp:COMMAND",
    ..AN_ACP
};

/// Any program that does one prompt and ends, by the settings.
pub const ANY_CLI: Known = Known {
    name: "cli",
    kind: Kind::Cli,
    about: "a program that does one prompt and ends",
    ..ANY_ACP
};
