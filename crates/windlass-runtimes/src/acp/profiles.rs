//! What is known of agents that speak the protocol, as data: how each is started, pointed at a model and held. A new one
//! is one more entry; nothing here is code that only one agent needs.

use serde::{Deserialize, Serialize};

use crate::dialect::Dialect;
use crate::filling::EVERY_CLIENT;

/// What the numbers mean that an agent gives at the end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnUsage {
    /// All model calls of the turn.
    Sum,
    /// Only the last one.
    LastCall,
}

/// Names and what they stand for.
pub type Pairs = &'static [(&'static str, &'static str)];

/// What is known of one agent. Whatever a new one does not say is as it is for any: `..GENERIC`.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// As people type it.
    pub name: &'static str,
    /// What it calls itself, where that is another name: so one that is started by its command is known, too.
    pub calls_itself: &'static str,
    /// The program and its words; empty where a person has to say.
    pub command: &'static [&'static str],
    /// Variables; see the options for the words in braces.
    pub env: Pairs,
    /// Variables that point it at the model.
    pub point_at: Pairs,
    /// Files of its home, by their path there.
    pub home_files: Pairs,
    /// Further words in braces, by what the model speaks. `None` is for all that are not named.
    pub words: &'static [(Option<Dialect>, Pairs)],
    /// How it signs in, where it has to be told.
    pub auth_method: Option<&'static str>,
    /// What a session is begun with beside the protocol, as JSON: the `_meta` of `session/new`.
    pub session_meta: Option<&'static str>,
    /// The mode in which it asks before it does something, where that is not how it starts.
    pub mode: Option<&'static str>,
    /// Whether it works well with files that are read and written through us.
    pub fs: bool,
    /// Whether it works well with commands that are run through us.
    pub terminal: bool,
    /// Whether it uses MCP servers that it is given.
    pub mcp: bool,
    /// Whether it asks before each call, as it is set up here.
    pub asks: bool,
    /// Whether it says what it cost.
    pub reports_cost: bool,
    /// What its numbers at the end of a turn mean.
    pub turn_usage: TurnUsage,
    /// What its tools do, by their names, where it says no more of them than `other`: a kind of the protocol.
    pub kinds: Pairs,
    /// Whether a conversation stays in the directory in which it began, even if it is resumed in another one. A copy of
    /// the workspace can be in another directory for each run, and the earlier one is gone.
    pub keeps_directory: bool,
    /// Files and folders of its home that steer it, and that an earlier try may have left for the next.
    pub steered_by: &'static [&'static str],
}

/// The settings of opencode: one provider, ours, and everything asked about.
const OPENCODE: &str = concat!(
    r#"{"model":"windlass/{model}","small_model":"windlass/{model}","enabled_providers":["windlass"],"#,
    r#""share":"disabled","autoupdate":false,"snapshot":false,"permission":{"*":"ask"},"#,
    r#""instructions":["{workspace}/AGENTS.md"],"#,
    r#""provider":{"windlass":{"npm":"{package}","name":"windlass","#,
    r#""options":{"baseURL":"{url}{path}","apiKey":"{key}"},"models":{"{model}":{"name":"{model}"}}}}}"#,
);

/// The settings of Gemini CLI that nobody else can change.
const GEMINI: &str = concat!(
    r#"{"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false,"maxAttempts":2},"#,
    r#""privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},"#,
    r#""security":{"disableYoloMode":true,"disableAlwaysAllow":true},"hooksConfig":{"enabled":false},"#,
    r#""adminPolicyPaths":["{home}/.windlass/gemini.toml"]}"#,
);

/// And its policy: it asks before every call, also of tools that only look. The vendor would do the searching of the web.
const GEMINI_POLICY: &str = r#"[[rule]]
toolName = "*"
decision = "ask_user"
priority = 900

[[rule]]
toolName = "google_web_search"
decision = "deny"
priority = 950
"#;

/// The provider of goose: ours, with the one model, so that it does not ask for the list of all.
const GOOSE: &str = concat!(
    r#"{"name":"windlass","engine":"{engine}","display_name":"windlass","description":"","#,
    r#""api_key_env":"WINDLASS_KEY","base_url":"{url}","base_path":"{path}","supports_streaming":true,"#,
    r#""models":[{"name":"{model}","context_limit":200000}],"dynamic_models":false}"#,
);

/// The settings of Qwen Code that nobody else can change.
const QWEN: &str = concat!(
    r#"{"general":{"enableAutoUpdate":false},"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},"#,
    r#""ui":{"enableFollowupSuggestions":false},"disableAllHooks":true,"security":{"folderTrust":{"enabled":true}},"#,
    r#""memory":{"enableManagedAutoMemory":false,"enableManagedAutoDream":false,"enableAutoSkill":false},"#,
    r#""permissions":{"ask":["Bash","Read","Edit","Write","WebFetch","Agent","Skill"],"deny":["WebSearch"]}}"#,
);

/// What a session of Claude Code is begun with: no settings of the project's, no hooks, no tools that wait for a person
/// or search by the vendor's hand.
const CLAUDE: &str = concat!(
    r#"{"claudeCode":{"options":{"settingSources":[],"settings":{"disableAllHooks":true,"permissions":{"#,
    r#""ask":["Bash","Read","Glob","Grep","Edit","Write","NotebookEdit","WebFetch","Agent","Skill"]}},"strictMcpConfig":true,"#,
    r#""promptSuggestions":false,"additionalDirectories":["{workspace}"],"disallowedTools":["WebSearch","#,
    r#""AskUserQuestion","EnterPlanMode","ExitPlanMode","EnterWorktree","ExitWorktree","CronCreate","CronDelete","#,
    r#""CronList","ScheduleWakeup"]}}}"#,
);

/// The settings of Codex that hold it. It no longer has a policy that asks before every command; but what it cannot do
/// inside a sandbox of its own that lets it read alone, it asks about, and then does without that sandbox.
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

/// And those that point it at its model. The vendor would do the searching of the web, outside of every sandbox.
const CODEX_MODEL: &str = concat!(
    r#"{"model":"{model}","model_provider":"windlass","web_search":"disabled","model_providers":{"windlass":{"#,
    r#""name":"windlass","base_url":"{url}/v1","wire_api":"responses","env_key":"WINDLASS_KEY","#,
    r#""requires_openai_auth":false,"request_max_retries":1,"stream_max_retries":1,"supports_websockets":false}}}"#,
);

/// Any agent, by its command: nothing is known of it, so nothing is claimed.
pub const GENERIC: Profile = Profile {
    name: "acp",
    calls_itself: "",
    command: &[],
    env: &[],
    point_at: EVERY_CLIENT,
    home_files: &[],
    words: &[],
    auth_method: None,
    session_meta: None,
    mode: None,
    fs: true,
    terminal: true,
    mcp: true,
    asks: false,
    reports_cost: false,
    turn_usage: TurnUsage::Sum,
    kinds: &[],
    keeps_directory: false,
    steered_by: &[],
};

/// Those that are known.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "opencode",
        command: &["opencode", "acp"],
        env: &[
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
            // The project's own settings could allow what is to be asked about, and bring code; its instructions are
            // named below.
            ("OPENCODE_DISABLE_PROJECT_CONFIG", "1"),
            ("OPENCODE_PERMISSION", r#"{"*":"ask"}"#),
        ],
        point_at: &[("OPENCODE_CONFIG_CONTENT", OPENCODE)],
        // Only packages that are part of the program: it cannot fetch others in its place.
        words: &[
            (
                Some(Dialect::Anthropic),
                &[("{package}", "@ai-sdk/anthropic"), ("{path}", "/v1")],
            ),
            (
                Some(Dialect::OpenAiResponses),
                &[("{package}", "@ai-sdk/openai"), ("{path}", "/v1")],
            ),
            (
                Some(Dialect::Gemini),
                &[("{package}", "@ai-sdk/google"), ("{path}", "/v1beta")],
            ),
            (
                None,
                &[
                    ("{package}", "@ai-sdk/openai-compatible"),
                    ("{path}", "/v1"),
                ],
            ),
        ],
        asks: true,
        turn_usage: TurnUsage::LastCall,
        keeps_directory: true,
        steered_by: &[".config/opencode", ".opencode", ".claude", ".agents"],
        ..GENERIC
    },
    Profile {
        name: "gemini-cli",
        calls_itself: "gemini-cli",
        command: &["gemini", "--acp"],
        env: &[
            // What the project or its owner set could allow what is to be asked about, and bring code.
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
        // It takes a file that is not there yet for an error.
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
    Profile {
        name: "qwen-code",
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
    Profile {
        name: "goose",
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
        words: &[
            (
                Some(Dialect::Anthropic),
                &[
                    ("{provider}", "windlass"),
                    ("{engine}", "anthropic"),
                    ("{path}", "v1/messages"),
                ],
            ),
            (
                Some(Dialect::OpenAiResponses),
                &[
                    ("{provider}", "windlass"),
                    ("{engine}", "openai"),
                    ("{path}", "v1/responses"),
                ],
            ),
            (
                Some(Dialect::Gemini),
                &[
                    ("{provider}", "google"),
                    ("{engine}", "openai"),
                    ("{path}", ""),
                ],
            ),
            (
                None,
                &[
                    ("{provider}", "windlass"),
                    ("{engine}", "openai"),
                    ("{path}", "v1/chat/completions"),
                ],
            ),
        ],
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
    Profile {
        name: "claude-agent-acp",
        calls_itself: "@agentclientprotocol/claude-agent-acp",
        command: &["claude-agent-acp"],
        env: &[
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD", "1"),
            // An answer while work goes on behind it would not be the end of the work.
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
        steered_by: &[
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
        ],
        ..GENERIC
    },
    Profile {
        name: "codex-acp",
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
        steered_by: &[
            ".codex/rules",
            ".codex/AGENTS.md",
            ".codex/AGENTS.override.md",
            ".codex/prompts",
            ".codex/skills",
            ".codex/plugins",
            ".codex/hooks.json",
            ".codex/requirements.toml",
            ".agents",
        ],
        ..GENERIC
    },
];

impl Profile {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// What the numbers of a turn mean for one that calls itself so.
    pub(super) fn turn_usage(&self, agent: &str) -> TurnUsage {
        let is = |known: &&Self| [known.name, known.calls_itself].contains(&agent);
        PROFILES.iter().find(is).unwrap_or(self).turn_usage
    }

    /// The words in braces for a model that speaks so.
    pub(super) fn words_for(&self, dialect: Dialect) -> Pairs {
        let fits = |which: &Option<Dialect>| which.is_none_or(|which| which == dialect);
        self.words
            .iter()
            .find(|(which, _)| fits(which))
            .map_or(&[], |(_, words)| words)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::filling::Values;

    #[test]
    fn every_setting_that_is_json_stays_json_when_it_is_filled() {
        for profile in PROFILES {
            for dialect in [
                Dialect::Anthropic,
                Dialect::OpenAiChat,
                Dialect::OpenAiResponses,
                Dialect::Gemini,
            ] {
                let values = Values {
                    url: Some("http://127.0.0.1:9"),
                    key: Some("k"),
                    model: Some("vendor/m-1.5:latest"),
                    home: "/h",
                    workspace: "/w\"\\w",
                    words: profile.words_for(dialect),
                };
                let meta = profile.session_meta.map(|text| ("session_meta", text));
                for (name, text) in profile
                    .env
                    .iter()
                    .chain(profile.point_at)
                    .chain(profile.home_files)
                    .chain(&meta)
                {
                    let filled = values.fill(text).unwrap();
                    let word = |(word, _): &(&str, &str)| {
                        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                    };
                    let left = filled
                        .split('{')
                        .skip(1)
                        .filter_map(|rest| rest.split_once('}'))
                        .find(word);
                    assert_eq!(left, None, "{name}: {filled}");
                    if filled.starts_with('{') {
                        serde_json::from_str::<serde_json::Value>(&filled)
                            .unwrap_or_else(|err| panic!("{name}: {err}"));
                    }
                }
            }
        }
    }
}
