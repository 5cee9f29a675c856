//! Facts about runtimes: the model to use, unsupported scenarios and the reasons, and the way to start the agent
//! without windlass. For most agents they follow from `windlass runtimes --json`; only exceptions have a row here.

use std::time::Duration;

use crate::claims::Claims;

/// A requirement of a scenario that a runtime may not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScenarioNeed {
    /// The runtime answers with text.
    TextAnswer,
    ChangesFiles,
    DeletesFiles,
    /// The model has tools.
    Tools,
    /// The model can run commands.
    Commands,
    /// The runtime connects to configured MCP servers.
    Mcp,
    /// The runtime asks before a call.
    Approval,
    /// The runtime makes more than one model request per run.
    Steps,
    /// The runtime can resume an earlier conversation.
    Resume,
    /// The runtime is a separate program, which can crash or be replaced.
    Program,
    /// One process of the runtime handles several prompts.
    LongRunning,
}

/// The form in which a runtime's model produces changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkForm {
    ToolCalls,
    /// Edits in the text of an answer, which the program applies.
    TextEdits,
    /// A patch, which the engine applies.
    Patch,
    /// Only text, without changes.
    TextOnly,
}

/// The way to crash a runtime during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// A command of the model kills its parent process, which is the agent.
    ByCommand,
    /// The kit kills the process with this name in its first arguments, because commands are not children of the agent.
    Named(&'static str),
}

/// The protocol for running an agent without windlass, if the kit implements one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BareProtocol {
    None,
    ClaudeCode,
    Codex,
    Acp,
}

/// Needs that a runtime does not meet, and the reason.
pub(crate) type Lacks = &'static [(&'static [ScenarioNeed], &'static str)];

/// The facts about one runtime.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuntimeFacts {
    /// The value for `--runtime`; empty for runtimes without a row.
    pub(crate) name: &'static str,
    /// `None` leaves the choice to the agent.
    pub(crate) model: Option<&'static str>,
    pub(crate) foreign: bool,
    pub(crate) works: WorkForm,
    /// The calls of the runtime are in the log.
    pub(crate) logs_calls: bool,
    /// Limits of the program itself.
    pub(crate) lacks: Lacks,
    /// The agent has no tool to remove a file in this setup, so its model must use a command.
    pub(crate) removes_by_command: bool,
    /// The program is a Python script; the kit replaces its interpreter.
    pub(crate) python: bool,
    /// The maximum startup time.
    pub(crate) start: Duration,
    pub(crate) crash: Crash,
    pub(crate) bare: BareProtocol,
}

const ANTHROPIC: Option<&str> = Some("anthropic/claude-sonnet-5-5");
const OPENAI: Option<&str> = Some("openai/gpt-5.5");
const OPENAI_CHAT: Option<&str> = Some("openai-chat/gpt-5.5");
const GEMINI: Option<&str> = Some("gemini/gemini-2.5-pro");

/// The built-in agent, on which the other rows are based.
const NATIVE: RuntimeFacts = RuntimeFacts {
    name: "native",
    model: ANTHROPIC,
    foreign: false,
    works: WorkForm::ToolCalls,
    logs_calls: true,
    lacks: &[
        (&[ScenarioNeed::Program], "the engine itself is the agent"),
        (
            &[ScenarioNeed::Mcp],
            "the built-in agent does not support MCP servers yet",
        ),
    ],
    removes_by_command: false,
    python: false,
    start: Duration::ZERO,
    crash: Crash::ByCommand,
    bare: BareProtocol::None,
};

/// A foreign agent without limits; the others are based on it.
const AGENT: RuntimeFacts = RuntimeFacts {
    foreign: true,
    lacks: &[],
    ..NATIVE
};

/// The reason why one-shot programs have no approvals.
const ONE_SHOT: &str = "a one-shot program cannot ask before a call; the sandbox confines it";

/// The limit of programs that are started for each prompt.
const RESTARTS: (&[ScenarioNeed], &str) = (
    &[ScenarioNeed::LongRunning],
    "its program is started for each prompt",
);

/// The reason why one-shot programs get no MCP servers.
const OWN_SERVERS: &str =
    "a one-shot program gets no MCP servers from windlass; it may have its own";

/// The limit of agents of an SDK.
const NO_SERVERS: Lacks = &[(
    &[ScenarioNeed::Mcp],
    "an agent of an SDK gets its tools only from windlass, and no MCP servers",
)];

/// An ACP agent that is named by its command or in the settings. Not every such agent has a choice of models.
pub(crate) const ANY_ACP: RuntimeFacts = RuntimeFacts {
    name: "acp",
    model: None,
    bare: BareProtocol::Acp,
    ..AGENT
};

/// The honest agent of the kit.
pub(crate) const FIXTURE: RuntimeFacts = RuntimeFacts {
    lacks: &[(
        &[ScenarioNeed::Mcp],
        "the kit's own agent uses no MCP servers",
    )],
    ..ANY_ACP
};

/// A one-shot program in the settings that reports its calls and can resume a conversation.
pub(crate) const CLI_WITH_CALLS: RuntimeFacts = RuntimeFacts {
    name: "cli",
    model: None,
    lacks: &[
        (&[ScenarioNeed::Approval], ONE_SHOT),
        (&[ScenarioNeed::Mcp], OWN_SERVERS),
        RESTARTS,
    ],
    ..AGENT
};

/// A one-shot program in the settings that only prints its answer.
pub(crate) const ANY_CLI: RuntimeFacts = RuntimeFacts {
    lacks: &[
        (&[ScenarioNeed::Approval], ONE_SHOT),
        (&[ScenarioNeed::Mcp], OWN_SERVERS),
        (
            &[ScenarioNeed::Resume],
            "it starts a new conversation for each prompt",
        ),
        RESTARTS,
    ],
    logs_calls: false,
    ..CLI_WITH_CALLS
};

/// The runtimes with facts beyond the claims of windlass, in the order of the table.
pub(crate) const FACTS: &[RuntimeFacts] = &[
    NATIVE,
    RuntimeFacts {
        name: "patch",
        works: WorkForm::Patch,
        lacks: &[
            (&[ScenarioNeed::TextAnswer], "its answer is a patch"),
            (
                &[
                    ScenarioNeed::Tools,
                    ScenarioNeed::Commands,
                    ScenarioNeed::Approval,
                    ScenarioNeed::Resume,
                    ScenarioNeed::Mcp,
                ],
                "it gives the model no tools",
            ),
            (&[ScenarioNeed::Steps], "it makes one model request"),
            (&[ScenarioNeed::Program], "the engine itself is the agent"),
        ],
        ..NATIVE
    },
    RuntimeFacts {
        name: "completion",
        works: WorkForm::TextOnly,
        lacks: &[
            (
                &[ScenarioNeed::ChangesFiles, ScenarioNeed::DeletesFiles],
                "it changes no files",
            ),
            (
                &[
                    ScenarioNeed::Tools,
                    ScenarioNeed::Commands,
                    ScenarioNeed::Approval,
                    ScenarioNeed::Resume,
                    ScenarioNeed::Mcp,
                ],
                "it gives the model no tools",
            ),
            (&[ScenarioNeed::Steps], "it makes one model request"),
            (&[ScenarioNeed::Program], "the engine itself is the agent"),
        ],
        ..NATIVE
    },
    RuntimeFacts {
        name: "claude-code",
        bare: BareProtocol::ClaudeCode,
        ..AGENT
    },
    RuntimeFacts {
        name: "codex",
        model: OPENAI,
        bare: BareProtocol::Codex,
        ..AGENT
    },
    RuntimeFacts {
        name: "opencode",
        bare: BareProtocol::Acp,
        ..AGENT
    },
    RuntimeFacts {
        name: "codex-acp",
        model: OPENAI,
        removes_by_command: true,
        ..AGENT
    },
    RuntimeFacts {
        name: "openhands",
        // Its server takes minutes for a cold start on a small machine.
        start: Duration::from_secs(180),
        crash: Crash::Named("agent-server"),
        ..AGENT
    },
    RuntimeFacts {
        name: "aider",
        works: WorkForm::TextEdits,
        logs_calls: false,
        lacks: &[
            (
                &[ScenarioNeed::DeletesFiles],
                "Aider's edit formats cannot remove a file",
            ),
            (
                &[
                    ScenarioNeed::Tools,
                    ScenarioNeed::Commands,
                    ScenarioNeed::Mcp,
                ],
                "Aider gives its model no tools",
            ),
            (
                &[ScenarioNeed::Approval],
                "Aider runs no tools, so there is no call to deny",
            ),
            (&[ScenarioNeed::Steps], "Aider makes one model request"),
            (
                &[ScenarioNeed::Resume],
                "Aider starts a new conversation for each prompt",
            ),
            RESTARTS,
        ],
        python: true,
        start: Duration::from_secs(30),
        crash: Crash::Named("aider"),
        ..AGENT
    },
    RuntimeFacts {
        name: "openai-agents",
        model: OPENAI,
        lacks: NO_SERVERS,
        start: Duration::from_secs(60),
        crash: Crash::Named("python"),
        ..AGENT
    },
    RuntimeFacts {
        name: "google-adk",
        model: GEMINI,
        lacks: NO_SERVERS,
        start: Duration::from_secs(60),
        crash: Crash::Named("python"),
        ..AGENT
    },
];

// Limits of agents without rows, by their claims.
const NO_MCP: Lacks = &[(
    &[ScenarioNeed::Mcp],
    "it does not connect to the MCP servers that windlass passes on",
)];
const NEVER_ASKS: Lacks = &[(
    &[ScenarioNeed::Approval],
    "it does not ask before a call; the sandbox confines it",
)];
const NO_MCP_NEVER_ASKS: Lacks = &[NO_MCP[0], NEVER_ASKS[0]];

impl RuntimeFacts {
    /// Returns the row of a runtime, or facts that follow from its claims.
    pub(crate) fn of(claims: &Claims) -> Self {
        if let Some(facts) = FACTS.iter().find(|facts| facts.name == claims.name) {
            return *facts;
        }
        let has = |word: &str| claims.words.iter().any(|one| one == word);
        let lacks = match (has("mcp"), has("per_tool_approval")) {
            (true, true) => AGENT.lacks,
            (false, true) => NO_MCP,
            (true, false) => NEVER_ASKS,
            (false, false) => NO_MCP_NEVER_ASKS,
        };
        let model = match claims.vendors.first().map(String::as_str) {
            Some("openai") => OPENAI,
            Some("openai-chat") => OPENAI_CHAT,
            Some("gemini") => GEMINI,
            Some("anthropic") => ANTHROPIC,
            _ => None,
        };
        Self {
            name: "",
            model,
            lacks,
            ..AGENT
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_limit_has_a_reason() {
        for (at, facts) in FACTS.iter().enumerate() {
            assert!(
                FACTS[..at].iter().all(|other| other.name != facts.name),
                "{}",
                facts.name
            );
            assert!(
                facts
                    .lacks
                    .iter()
                    .all(|(needs, why)| !needs.is_empty() && !why.is_empty()),
                "{}",
                facts.name
            );
            assert!(
                facts.foreign
                    || facts
                        .lacks
                        .iter()
                        .any(|(needs, _)| needs.contains(&ScenarioNeed::Program))
            );
        }
    }
}
