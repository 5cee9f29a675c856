//! The agents that have a name, one row each: the program, its installation, the protocols for its model, its login,
//! and for an ACP agent its start and its restrictions. The registry, the adapters, the settings and (through `windlass
//! runtimes --json`) the conformance kit read these rows. A new ACP agent needs a row here and nothing else.

use windlass_providers::protocol::Protocol;

use crate::acp::profile::{AcpProfile, GENERIC, TurnUsage};
use crate::dialect::Dialect;
use crate::install::Install;
use crate::sidecar::Sdk;

/// One agent, or one form of the built-in loop.
#[derive(Debug)]
pub struct AgentSpec {
    /// The name that users type, for example `--runtime codex`.
    pub name: &'static str,
    pub kind: AgentKind,
    /// The executable; `None` for the built-in loop.
    pub program: Option<&'static str>,
    /// Protocols that the agent can use for its model requests.
    pub protocols: &'static [Protocol],
    /// Vendors that Windlass tries in this order if the user names none.
    pub vendors: &'static [&'static str],
    /// Instruction files of a project that the agent reads by itself. The prompt does not repeat them.
    pub instruction_files: &'static [&'static str],
    /// Directories of a project with code or settings that no option of the agent disables. They are empty in its copy.
    pub masked_dirs: &'static [&'static str],
    /// Whether the agent cannot choose a model by itself.
    pub needs_model: bool,
    /// The installation, with the version that was certified last.
    pub install: Install,
    /// The agent's own login, if it supports one.
    pub login: Option<Login>,
    /// Sampling settings that the adapter can pass on: `temperature`, `max_output`, `reasoning_effort` and others.
    pub sampling_options: &'static [&'static str],
    pub about: &'static str,
    /// Start and restrictions of an ACP agent; unused by other kinds.
    pub acp: AcpProfile,
}

impl AgentSpec {
    /// Whether Windlass itself runs the agent loop.
    pub fn is_built_in(&self) -> bool {
        matches!(
            self.kind,
            AgentKind::Native | AgentKind::Completion | AgentKind::Patch
        )
    }
}

/// The protocol between Windlass and a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentKind {
    /// The built-in loop with its tools.
    Native,
    /// The built-in loop: one answer without tools.
    Completion,
    /// The built-in loop: one patch that the engine applies.
    Patch,
    /// The control protocol of Claude Code.
    ClaudeCode,
    /// The app server of Codex.
    Codex,
    /// The Agent Client Protocol.
    Acp,
    /// Aider, one process for each prompt.
    Aider,
    /// Any program that handles one prompt and exits.
    Cli,
    /// A Python SDK in a sidecar.
    Sidecar(Sdk),
    /// The agent server of OpenHands.
    OpenHands,
}

/// The files and hosts that an agent needs for its own login.
#[derive(Debug, Clone, Copy)]
pub struct Login {
    /// The credential file, relative to the user's home. The agent receives only this file. `None` if the user has to
    /// name it.
    pub file: Option<&'static str>,
    pub hosts: &'static [&'static str],
    /// Arguments with which the agent's program signs the user in; empty if no such command is known.
    pub args: &'static [&'static str],
}

/// A login without known files or hosts.
const UNKNOWN_LOGIN: Option<Login> = Some(Login {
    file: None,
    hosts: &[],
    args: &[],
});
/// The login of Claude Code. The adapter for ACP is another program with the same login, and has no command for it.
const CLAUDE_ACP_LOGIN: Login = Login {
    file: Some(".claude/.credentials.json"),
    hosts: &[
        "api.anthropic.com",
        "claude.ai",
        "platform.claude.com",
        "console.anthropic.com",
    ],
    args: &[],
};
const CLAUDE_LOGIN: Login = Login {
    args: &["auth", "login"],
    ..CLAUDE_ACP_LOGIN
};
const CODEX_ACP_LOGIN: Login = Login {
    file: Some(".codex/auth.json"),
    hosts: &["chatgpt.com", "auth.openai.com", "api.openai.com"],
    args: &[],
};
const CODEX_LOGIN: Login = Login {
    args: &["login"],
    ..CODEX_ACP_LOGIN
};

/// An npm package at the certified version. `program` is relative to `node_modules`; `node` is the oldest supported
/// major version of Node.
const fn npm(
    package: &'static str,
    version: &'static str,
    program: &'static str,
    node: Option<u32>,
) -> Install {
    Install::Npm {
        package,
        version,
        program,
        node,
    }
}

/// Settings, approval rules, instructions and programs that an earlier attempt may have written into the home to
/// influence the next one. The list applies to every protocol of the agent.
pub(crate) const CLAUDE_CLEARED_FILES: &[&str] = &[
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".claude/remote-settings.json",
    ".claude/CLAUDE.md",
    ".claude/rules",
    ".claude/agents",
    ".claude/commands",
    ".claude/skills",
    ".claude/plugins",
    ".claude/hooks",
    ".claude/output-styles",
];
pub(crate) const CODEX_CLEARED_FILES: &[&str] = &[
    ".codex/rules",
    ".codex/AGENTS.md",
    ".codex/AGENTS.override.md",
    ".codex/prompts",
    ".codex/skills",
    ".codex/plugins",
    ".codex/hooks.json",
    ".codex/requirements.toml",
    ".agents",
];

/// Settings of opencode: the meter is the only provider, and every call needs approval.
const OPENCODE: &str = concat!(
    r#"{"model":"windlass/{model}","small_model":"windlass/{model}","enabled_providers":["windlass"],"#,
    r#""share":"disabled","autoupdate":false,"snapshot":false,"permission":{"*":"ask"},"#,
    r#""instructions":["{workspace}/AGENTS.md"],"#,
    r#""provider":{"windlass":{"npm":"{package}","name":"windlass","#,
    r#""options":{"baseURL":"{url}{path}","apiKey":"{key}"},"models":{"{model}":{"name":"{model}"}}}}}"#,
);

/// Settings of Gemini CLI that neither the user nor the project can override.
const GEMINI: &str = concat!(
    r#"{"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false,"maxAttempts":2},"#,
    r#""privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},"#,
    r#""security":{"disableYoloMode":true,"disableAlwaysAllow":true},"hooksConfig":{"enabled":false},"#,
    r#""adminPolicyPaths":["{home}/.windlass/gemini.toml"]}"#,
);

/// Policy of Gemini CLI: it asks before every call, also of read-only tools. The vendor would execute the web search
/// outside of the sandbox, so that tool is denied.
const GEMINI_POLICY: &str = r#"[[rule]]
toolName = "*"
decision = "ask_user"
priority = 900

[[rule]]
toolName = "google_web_search"
decision = "deny"
priority = 950
"#;

/// The provider of goose: the meter, with a single model, so that goose does not request the list of models.
const GOOSE: &str = concat!(
    r#"{"name":"windlass","engine":"{engine}","display_name":"windlass","description":"","#,
    r#""api_key_env":"WINDLASS_KEY","base_url":"{url}","base_path":"{path}","supports_streaming":true,"#,
    r#""models":[{"name":"{model}","context_limit":200000}],"dynamic_models":false}"#,
);

/// Settings of Qwen Code that neither the user nor the project can override.
const QWEN: &str = concat!(
    r#"{"general":{"enableAutoUpdate":false},"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},"#,
    r#""ui":{"enableFollowupSuggestions":false},"disableAllHooks":true,"security":{"folderTrust":{"enabled":true}},"#,
    r#""memory":{"enableManagedAutoMemory":false,"enableManagedAutoDream":false,"enableAutoSkill":false},"#,
    r#""permissions":{"ask":["Bash","Read","Edit","Write","WebFetch","Agent","Skill"],"deny":["WebSearch"]}}"#,
);

/// Options for a session of Claude Code: no project settings, no hooks, and no tools that wait for a user or that the
/// vendor executes.
const CLAUDE: &str = concat!(
    r#"{"claudeCode":{"options":{"settingSources":[],"settings":{"disableAllHooks":true,"permissions":{"#,
    r#""ask":["Bash","Read","Glob","Grep","Edit","Write","NotebookEdit","WebFetch","Agent","Skill"]}},"strictMcpConfig":true,"#,
    r#""promptSuggestions":false,"additionalDirectories":["{workspace}"],"disallowedTools":["WebSearch","#,
    r#""AskUserQuestion","EnterPlanMode","ExitPlanMode","EnterWorktree","ExitWorktree","CronCreate","CronDelete","#,
    r#""CronList","ScheduleWakeup"]}}}"#,
);

/// Settings that restrict Codex. Codex no longer has a policy that asks before every command. Its own sandbox is
/// therefore read-only: Codex asks about each command that fails there, and then runs it without that sandbox.
const CODEX: &str = r#"default_permissions = "windlass"
check_for_update_on_startup = false

[approval_policy.granular]
sandbox_approval = true
rules = true
mcp_elicitations = true
skill_approval = true
request_permissions = true

[analytics]
enabled = false

[features]
use_legacy_landlock = true
plugins = false
apps = false

[permissions.windlass.filesystem]
":root" = "read"
"#;

/// Settings that connect Codex with its model. Web search is disabled because the vendor would execute it, outside of
/// every sandbox.
const CODEX_MODEL: &str = concat!(
    r#"{"model":"{model}","model_provider":"windlass","web_search":"disabled","model_providers":{"windlass":{"#,
    r#""name":"windlass","base_url":"{url}/v1","wire_api":"responses","env_key":"WINDLASS_KEY","#,
    r#""requires_openai_auth":false,"request_max_retries":1,"stream_max_retries":1,"supports_websockets":false}}}"#,
);

const ANTHROPIC: &[Protocol] = &[
    Protocol::AnthropicMessages,
    Protocol::BedrockAnthropic,
    Protocol::VertexAnthropic,
];
const ALL_PROTOCOLS: &[Protocol] = &[
    Protocol::AnthropicMessages,
    Protocol::BedrockAnthropic,
    Protocol::VertexAnthropic,
    Protocol::OpenAiResponses,
    Protocol::OpenAiChat,
    Protocol::Gemini,
];

const BUILT_IN: AgentSpec = AgentSpec {
    name: "native",
    kind: AgentKind::Native,
    program: None,
    protocols: &[],
    vendors: &[],
    instruction_files: &[],
    masked_dirs: &[],
    needs_model: false,
    install: Install::BuiltIn,
    login: None,
    sampling_options: &[
        "temperature",
        "stop",
        "max_output",
        "reasoning_effort",
        "thinking_tokens",
    ],
    about: "the built-in agent",
    acp: GENERIC,
};

/// Defaults of agents that are not built in.
const FOREIGN: AgentSpec = AgentSpec {
    needs_model: true,
    sampling_options: &[],
    ..BUILT_IN
};

/// Defaults of agents that speak ACP.
const ACP_DEFAULTS: AgentSpec = AgentSpec {
    kind: AgentKind::Acp,
    login: UNKNOWN_LOGIN,
    ..FOREIGN
};

/// All agents that have a name.
pub const AGENTS: &[AgentSpec] = &[
    BUILT_IN,
    AgentSpec {
        name: "patch",
        kind: AgentKind::Patch,
        about: "a model proposes a patch, the engine checks and applies it",
        ..BUILT_IN
    },
    AgentSpec {
        name: "completion",
        kind: AgentKind::Completion,
        about: "a model answers; it has no tools",
        ..BUILT_IN
    },
    AgentSpec {
        name: "claude-code",
        kind: AgentKind::ClaudeCode,
        program: Some("claude"),
        protocols: ANTHROPIC,
        vendors: &["anthropic"],
        instruction_files: &["CLAUDE.md"],
        needs_model: false,
        install: npm(
            "@anthropic-ai/claude-code",
            "2.1.325",
            ".bin/claude",
            Some(22),
        ),
        login: Some(CLAUDE_LOGIN),
        sampling_options: &["reasoning_effort", "thinking_tokens"],
        about: "Claude Code, over its control protocol",
        ..FOREIGN
    },
    AgentSpec {
        name: "codex",
        kind: AgentKind::Codex,
        program: Some("codex"),
        protocols: &[Protocol::OpenAiResponses],
        vendors: &["openai"],
        instruction_files: &["AGENTS.md"],
        needs_model: false,
        install: npm("@openai/codex", "0.166.0", ".bin/codex", Some(22)),
        login: Some(CODEX_LOGIN),
        sampling_options: &["reasoning_effort"],
        about: "Codex, over its app server",
        ..FOREIGN
    },
    AgentSpec {
        name: "opencode",
        kind: AgentKind::Acp,
        program: Some("opencode"),
        protocols: ALL_PROTOCOLS,
        vendors: &["anthropic", "openai"],
        masked_dirs: &[".opencode"],
        instruction_files: &["AGENTS.md", "CLAUDE.md"],
        install: npm("opencode-ai", "1.18.33", ".bin/opencode", Some(22)),
        login: Some(Login {
            file: Some(".local/share/opencode/auth.json"),
            hosts: &[],
            args: &["auth", "login"],
        }),
        sampling_options: &[],
        about: "opencode, over ACP",
        acp: AcpProfile {
            command: &["opencode", "acp"],
            env: &[
                ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
                ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
                ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
                ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
                // The project's settings could allow calls without approval, and load code. Its instructions are named
                // in `OPENCODE`.
                ("OPENCODE_DISABLE_PROJECT_CONFIG", "1"),
                ("OPENCODE_PERMISSION", r#"{"*":"ask"}"#),
            ],
            point_at: &[("OPENCODE_CONFIG_CONTENT", OPENCODE)],
            // These packages are part of opencode. It cannot download others inside the enclosure.
            words: (
                &["{package}", "{path}"],
                &[
                    (Some(Dialect::Anthropic), &["@ai-sdk/anthropic", "/v1"]),
                    (Some(Dialect::OpenAiResponses), &["@ai-sdk/openai", "/v1"]),
                    (Some(Dialect::Gemini), &["@ai-sdk/google", "/v1beta"]),
                    (None, &["@ai-sdk/openai-compatible", "/v1"]),
                ],
            ),
            asks: true,
            turn_usage: TurnUsage::LastCall,
            keeps_directory: true,
            steered_by: &[".config/opencode", ".opencode", ".claude", ".agents"],
            ..GENERIC
        },
        ..FOREIGN
    },
    AgentSpec {
        name: "gemini-cli",
        program: Some("gemini"),
        protocols: &[Protocol::Gemini],
        vendors: &["gemini"],
        install: npm("@google/gemini-cli", "0.61.0", ".bin/gemini", Some(20)),
        login: Some(Login {
            file: Some(".gemini/oauth_creds.json"),
            hosts: &[
                "cloudcode-pa.googleapis.com",
                "oauth2.googleapis.com",
                "www.googleapis.com",
            ],
            args: &[],
        }),
        about: "Gemini CLI, over ACP",
        acp: AcpProfile {
            calls_itself: "gemini-cli",
            command: &["gemini", "--acp"],
            env: &[
                // Settings of the project or its owner could allow calls without approval, and load code.
                ("GEMINI_CLI_TRUST_WORKSPACE", "false"),
                (
                    "GEMINI_CLI_SYSTEM_SETTINGS_PATH",
                    "{home}/.windlass/gemini.json",
                ),
                ("GEMINI_TELEMETRY_ENABLED", "false"),
                ("NO_BROWSER", "1"),
            ],
            point_at: &[
                ("GOOGLE_GEMINI_BASE_URL", "{url}"),
                ("GEMINI_API_KEY", "{key}"),
                ("GEMINI_MODEL", "{model}"),
            ],
            home_files: &[
                (".windlass/gemini.json", GEMINI),
                (".windlass/gemini.toml", GEMINI_POLICY),
            ],
            auth_method: Some("gemini-api-key"),
            mode: Some("default"),
            // Gemini CLI treats a file that does not exist yet as an error of the client.
            fs: false,
            mcp: false,
            asks: true,
            steered_by: &[
                ".gemini/settings.json",
                ".gemini/trustedFolders.json",
                ".gemini/policies",
                ".gemini/extensions",
                ".gemini/commands",
                ".gemini/skills",
                ".gemini/agents",
                ".gemini/hooks",
                ".gemini/GEMINI.md",
                ".gemini/memory",
                ".gemini/.env",
                ".env",
                ".agents",
            ],
            ..GENERIC
        },
        ..ACP_DEFAULTS
    },
    AgentSpec {
        name: "qwen-code",
        program: Some("qwen"),
        protocols: &[Protocol::OpenAiChat],
        vendors: &["openai-chat", "openrouter"],
        masked_dirs: &[".qwen"],
        install: npm("@qwen-code/qwen-code", "0.24.4", ".bin/qwen", Some(22)),
        about: "Qwen Code, over ACP",
        acp: AcpProfile {
            command: &["qwen", "--acp"],
            env: &[
                (
                    "QWEN_CODE_SYSTEM_SETTINGS_PATH",
                    "{home}/.windlass/qwen.json",
                ),
                ("NO_BROWSER", "1"),
            ],
            point_at: &[
                ("OPENAI_BASE_URL", "{url}/v1"),
                ("OPENAI_API_KEY", "{key}"),
                ("OPENAI_MODEL", "{model}"),
            ],
            home_files: &[(".windlass/qwen.json", QWEN)],
            mode: Some("default"),
            fs: false,
            mcp: false,
            asks: true,
            steered_by: &[
                ".qwen/settings.json",
                ".qwen/trustedFolders.json",
                ".qwen/extensions",
                ".qwen/commands",
                ".qwen/skills",
                ".qwen/agents",
                ".qwen/hooks",
                ".qwen/QWEN.md",
                ".qwen/memories",
                ".qwen/.env",
                ".env",
                ".agents",
            ],
            ..GENERIC
        },
        ..ACP_DEFAULTS
    },
    AgentSpec {
        name: "goose",
        program: Some("goose"),
        protocols: ALL_PROTOCOLS,
        vendors: &["anthropic", "openai", "gemini"],
        instruction_files: &["AGENTS.md"],
        install: npm(
            "@aaif/goose-binary-{platform}",
            "1.52.0",
            "@aaif/goose-binary-{platform}/bin/goose",
            None,
        ),
        about: "goose, over ACP",
        acp: AcpProfile {
            command: &["goose", "acp", "--with-builtin", "developer"],
            env: &[
                ("GOOSE_MODE", "approve"),
                ("GOOSE_DISABLE_KEYRING", "1"),
                ("GOOSE_TELEMETRY_OFF", "1"),
                ("GOOSE_TELEMETRY_ENABLED", "false"),
            ],
            point_at: &[
                ("GOOSE_PROVIDER", "{provider}"),
                ("GOOSE_MODEL", "{model}"),
                ("WINDLASS_KEY", "{key}"),
                ("GOOGLE_HOST", "{url}"),
                ("GOOGLE_API_KEY", "{key}"),
            ],
            home_files: &[(".config/goose/custom_providers/windlass.json", GOOSE)],
            words: (
                &["{provider}", "{engine}", "{path}"],
                &[
                    (
                        Some(Dialect::Anthropic),
                        &["windlass", "anthropic", "v1/messages"],
                    ),
                    (
                        Some(Dialect::OpenAiResponses),
                        &["windlass", "openai", "v1/responses"],
                    ),
                    (Some(Dialect::Gemini), &["google", "openai", ""]),
                    (None, &["windlass", "openai", "v1/chat/completions"]),
                ],
            ),
            fs: false,
            terminal: false,
            asks: true,
            turn_usage: TurnUsage::LastCall,
            kinds: &[
                ("shell", "execute"),
                ("write", "edit"),
                ("edit", "edit"),
                ("tree", "read"),
            ],
            steered_by: &[
                ".config/goose",
                ".config/agents",
                ".agents",
                ".goose",
                ".goosehints",
            ],
            ..GENERIC
        },
        ..ACP_DEFAULTS
    },
    AgentSpec {
        name: "claude-agent-acp",
        program: Some("claude-agent-acp"),
        protocols: ANTHROPIC,
        vendors: &["anthropic"],
        instruction_files: &["CLAUDE.md"],
        install: npm(
            "@agentclientprotocol/claude-agent-acp",
            "0.99.0",
            ".bin/claude-agent-acp",
            Some(22),
        ),
        login: Some(CLAUDE_ACP_LOGIN),
        about: "Claude Code, over its ACP adapter",
        acp: AcpProfile {
            calls_itself: "@agentclientprotocol/claude-agent-acp",
            command: &["claude-agent-acp"],
            env: &[
                ("DISABLE_TELEMETRY", "1"),
                ("DISABLE_AUTOUPDATER", "1"),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
                ("CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD", "1"),
                // An answer must be the end of the work; a background task would continue after it.
                ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
                ("NO_BROWSER", "1"),
            ],
            point_at: &[
                ("ANTHROPIC_BASE_URL", "{url}"),
                ("ANTHROPIC_API_KEY", "{key}"),
                ("ANTHROPIC_MODEL", "{model}"),
                ("ANTHROPIC_CUSTOM_MODEL_OPTION", "{model}"),
                ("CLAUDE_CODE_MAX_RETRIES", "1"),
            ],
            session_meta: Some(CLAUDE),
            mode: Some("default"),
            asks: true,
            reports_cost: true,
            steered_by: CLAUDE_CLEARED_FILES,
            ..GENERIC
        },
        ..ACP_DEFAULTS
    },
    AgentSpec {
        name: "codex-acp",
        program: Some("codex-acp"),
        protocols: &[Protocol::OpenAiResponses],
        vendors: &["openai"],
        masked_dirs: &[".codex"],
        instruction_files: &["AGENTS.md"],
        install: npm(
            "@agentclientprotocol/codex-acp",
            "2.6.0",
            ".bin/codex-acp",
            Some(22),
        ),
        login: Some(CODEX_ACP_LOGIN),
        about: "Codex, over its ACP adapter",
        acp: AcpProfile {
            calls_itself: "@agentclientprotocol/codex-acp",
            command: &["codex-acp"],
            env: &[("CODEX_HOME", "{home}/.codex"), ("NO_BROWSER", "1")],
            point_at: &[
                ("CODEX_CONFIG", CODEX_MODEL),
                ("MODEL_PROVIDER", "windlass"),
                ("WINDLASS_KEY", "{key}"),
            ],
            home_files: &[(".codex/config.toml", CODEX)],
            mode: Some("permission-profile:windlass"),
            asks: true,
            steered_by: CODEX_CLEARED_FILES,
            ..GENERIC
        },
        ..ACP_DEFAULTS
    },
    AgentSpec {
        name: "aider",
        kind: AgentKind::Aider,
        program: Some("aider"),
        protocols: ALL_PROTOCOLS,
        vendors: &["anthropic", "openai", "gemini"],
        install: Install::Pip {
            packages: &["aider-chat==0.86.2"],
            version: "0.86.2",
            pins: include_str!("pins/aider.txt"),
            python: (10, 12),
            program: "bin/aider",
        },
        sampling_options: &["reasoning_effort", "thinking_tokens"],
        about: "Aider, one prompt at a time",
        ..FOREIGN
    },
    AgentSpec {
        name: "openai-agents",
        kind: AgentKind::Sidecar(Sdk::OpenAiAgents),
        program: Some("openai-agents"),
        protocols: &[Protocol::OpenAiResponses, Protocol::OpenAiChat],
        vendors: &["openai"],
        install: Install::Pip {
            packages: &["openai-agents==0.24.0"],
            version: "0.24.0",
            pins: include_str!("pins/openai-agents.txt"),
            python: (11, 13),
            program: "bin/python",
        },
        sampling_options: &["temperature", "max_output", "reasoning_effort"],
        about: "the OpenAI Agents SDK, in a sidecar with Windlass tools",
        ..FOREIGN
    },
    AgentSpec {
        name: "google-adk",
        kind: AgentKind::Sidecar(Sdk::GoogleAdk),
        program: Some("google-adk"),
        protocols: ALL_PROTOCOLS,
        vendors: &["gemini", "anthropic", "openai"],
        install: Install::Pip {
            packages: &["google-adk==2.13.0", "litellm==1.106.2", "mcp==2.3.0"],
            version: "2.13.0",
            pins: include_str!("pins/google-adk.txt"),
            python: (11, 13),
            program: "bin/python",
        },
        sampling_options: &["temperature", "max_output"],
        about: "Google's Agent Development Kit, in a sidecar with Windlass tools",
        ..FOREIGN
    },
    AgentSpec {
        name: "openhands",
        kind: AgentKind::OpenHands,
        program: Some("agent-server"),
        protocols: ALL_PROTOCOLS,
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
        sampling_options: &["reasoning_effort"],
        about: "OpenHands, over its agent server",
        ..FOREIGN
    },
];

/// Finds an agent by the name that users type.
#[must_use]
pub fn agent(name: &str) -> Option<&'static AgentSpec> {
    AGENTS.iter().find(|agent| agent.name == name)
}

/// Any agent that speaks ACP. The user gives its command.
pub const ANY_ACP: AgentSpec = AgentSpec {
    name: "acp",
    protocols: ALL_PROTOCOLS,
    vendors: &["anthropic", "openai", "gemini"],
    needs_model: false,
    about: "any agent that speaks ACP, as acp:COMMAND",
    ..ACP_DEFAULTS
};

/// Any program that handles one prompt and exits. The settings describe it.
pub const ANY_CLI: AgentSpec = AgentSpec {
    name: "cli",
    kind: AgentKind::Cli,
    about: "a program that handles one prompt and exits",
    ..ANY_ACP
};
