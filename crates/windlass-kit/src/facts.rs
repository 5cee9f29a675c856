//! What the kit knows of runtimes: which model each is asked with, what it is not tried with and why, how it is started
//! without windlass. For most agents all of that follows from `windlass runtimes --json`; a row here is for one that differs.

use std::time::Duration;

use crate::claims::Claims;

/// Something a scenario needs of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It answers in words.
    Words,
    /// It changes files.
    Changes,
    /// It removes files.
    Deletes,
    /// Its model has tools.
    Tools,
    /// Its model can run commands.
    Commands,
    /// It uses MCP servers that it is given.
    Mcp,
    /// It asks before a call.
    Approval,
    /// It asks its model more than once in a run.
    Steps,
    /// It goes on with an earlier conversation.
    Memory,
    /// It is a program that can die, or be replaced.
    Program,
    /// Its program takes more than one prompt.
    Stays,
}

/// How the model's work comes out of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Works {
    /// By calls of tools.
    Calls,
    /// By edits in the text of an answer, which the program applies.
    Text,
    /// By a patch, which the engine applies.
    Patch,
    /// It is words alone.
    Words,
}

/// How a runtime is made to die in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// A command of the model ends its parent, which is the agent.
    ByCommand,
    /// The kit ends the process whose first words hold this: commands are not the agent's children.
    Named(&'static str),
}

/// How a program is run without windlass around it, where the kit knows how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bare {
    No,
    ClaudeCode,
    Codex,
    Acp,
}

/// Needs, and why a runtime does not meet them.
pub(crate) type Lacks = &'static [(&'static [Need], &'static str)];

/// One runtime.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// As `--runtime` takes it; empty where there is no row.
    pub(crate) name: &'static str,
    /// The model it is asked to use; none where it is left its own.
    pub(crate) model: Option<&'static str>,
    /// A program of others runs; the engine only holds it.
    pub(crate) foreign: bool,
    pub(crate) works: Works,
    /// Its calls are in the log.
    pub(crate) tells_calls: bool,
    /// What it is not tried with: limits of the program itself.
    pub(crate) lacks: Lacks,
    /// Its own tools remove no file as it is held, so that its model has to use a command.
    pub(crate) removes_by_command: bool,
    /// Its program is a script of a Python, which is started in its place.
    pub(crate) python: bool,
    /// Time it may take to be ready to work.
    pub(crate) start: Duration,
    pub(crate) crash: Crash,
    pub(crate) bare: Bare,
}

const ANTHROPIC: Option<&str> = Some("anthropic/claude-sonnet-5-5");
const OPENAI: Option<&str> = Some("openai/gpt-5.5");
const OPENAI_CHAT: Option<&str> = Some("openai-chat/gpt-5.5");
const GEMINI: Option<&str> = Some("gemini/gemini-2.5-pro");

/// The engine's own loop.
const NATIVE: Facts = Facts {
    name: "native",
    model: ANTHROPIC,
    foreign: false,
    works: Works::Calls,
    tells_calls: true,
    lacks: &[
        (&[Need::Program], "the engine itself is the agent"),
        (&[Need::Mcp], "MCP servers of its own are not there yet"),
    ],
    removes_by_command: false,
    python: false,
    start: Duration::ZERO,
    crash: Crash::ByCommand,
    bare: Bare::No,
};

/// A program that can do everything; others differ from it.
const AGENT: Facts = Facts {
    foreign: true,
    lacks: &[],
    ..NATIVE
};

/// Why a program that is started for one prompt has no calls to judge.
const ONE_SHOT: &str = "a one-shot program has no way to ask before a call; the sandbox holds it";

/// Programs that are started for each prompt.
const RESTARTS: (&[Need], &str) = (&[Need::Stays], "its program is started for each prompt");

/// Why a program that is started for one prompt is given no servers.
const OWN_SERVERS: &str = "a one-shot program is given no MCP servers; it may have its own";

/// An agent of an SDK has the tools that it is built with.
const NO_SERVERS: Lacks = &[(
    &[Need::Mcp],
    "an SDK's agent gets its tools from us alone, and no MCP servers",
)];

/// Any agent that speaks ACP, by its command or of the settings. Not every one lets its model be chosen.
pub(crate) const ANY_ACP: Facts = Facts {
    name: "acp",
    model: None,
    bare: Bare::Acp,
    ..AGENT
};

/// The kit's own.
pub(crate) const FIXTURE: Facts = Facts {
    lacks: &[(&[Need::Mcp], "the kit's own agent uses no MCP servers")],
    ..ANY_ACP
};

/// Any program of the settings that does one prompt, tells of its calls and goes on with a conversation.
pub(crate) const CLI_THAT_TELLS: Facts = Facts {
    name: "cli",
    model: None,
    lacks: &[
        (&[Need::Approval], ONE_SHOT),
        (&[Need::Mcp], OWN_SERVERS),
        RESTARTS,
    ],
    ..AGENT
};

/// One that only prints its answer.
pub(crate) const ANY_CLI: Facts = Facts {
    lacks: &[
        (&[Need::Approval], ONE_SHOT),
        (&[Need::Mcp], OWN_SERVERS),
        (&[Need::Memory], "it begins anew with each prompt"),
        RESTARTS,
    ],
    tells_calls: false,
    ..CLI_THAT_TELLS
};

/// Those of which the kit has to know more than windlass says, in the order of the table.
pub(crate) const FACTS: &[Facts] = &[
    NATIVE,
    Facts {
        name: "patch",
        works: Works::Patch,
        lacks: &[
            (&[Need::Words], "its answer is a patch"),
            (
                &[
                    Need::Tools,
                    Need::Commands,
                    Need::Approval,
                    Need::Memory,
                    Need::Mcp,
                ],
                "it gives the model no tools",
            ),
            (&[Need::Steps], "it asks its model once"),
            (&[Need::Program], "the engine itself is the agent"),
        ],
        ..NATIVE
    },
    Facts {
        name: "completion",
        works: Works::Words,
        lacks: &[
            (&[Need::Changes, Need::Deletes], "it changes no files"),
            (
                &[
                    Need::Tools,
                    Need::Commands,
                    Need::Approval,
                    Need::Memory,
                    Need::Mcp,
                ],
                "it gives the model no tools",
            ),
            (&[Need::Steps], "it asks its model once"),
            (&[Need::Program], "the engine itself is the agent"),
        ],
        ..NATIVE
    },
    Facts {
        name: "claude-code",
        bare: Bare::ClaudeCode,
        ..AGENT
    },
    Facts {
        name: "codex",
        model: OPENAI,
        bare: Bare::Codex,
        ..AGENT
    },
    Facts {
        name: "opencode",
        bare: Bare::Acp,
        ..AGENT
    },
    Facts {
        name: "codex-acp",
        model: OPENAI,
        removes_by_command: true,
        ..AGENT
    },
    Facts {
        name: "openhands",
        // Cold, its server takes minutes on a small machine.
        start: Duration::from_secs(180),
        crash: Crash::Named("agent-server"),
        ..AGENT
    },
    Facts {
        name: "aider",
        works: Works::Text,
        tells_calls: false,
        lacks: &[
            (
                &[Need::Deletes],
                "Aider's forms of an edit have no word for removing a file",
            ),
            (
                &[Need::Tools, Need::Commands, Need::Mcp],
                "Aider gives its model no tools",
            ),
            (
                &[Need::Approval],
                "Aider runs no tools, so there is no call to deny",
            ),
            (&[Need::Steps], "Aider asks its model once"),
            (&[Need::Memory], "Aider begins anew with each prompt"),
            RESTARTS,
        ],
        python: true,
        start: Duration::from_secs(30),
        crash: Crash::Named("aider"),
        ..AGENT
    },
    Facts {
        name: "openai-agents",
        model: OPENAI,
        lacks: NO_SERVERS,
        start: Duration::from_secs(60),
        crash: Crash::Named("python"),
        ..AGENT
    },
    Facts {
        name: "google-adk",
        model: GEMINI,
        lacks: NO_SERVERS,
        start: Duration::from_secs(60),
        crash: Crash::Named("python"),
        ..AGENT
    },
];

/// An agent that connects to no MCP server, and one that does not ask either.
const NO_MCP: Lacks = &[(
    &[Need::Mcp],
    "it connects to no MCP server that it is given",
)];
const NEVER_ASKS: Lacks = &[(
    &[Need::Approval],
    "it does not ask before a call; the sandbox holds it",
)];
const NO_MCP_NEVER_ASKS: Lacks = &[NO_MCP[0], NEVER_ASKS[0]];

impl Facts {
    /// The kit's own row for a runtime, or what follows from what windlass says of it.
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
    fn names_are_unique_and_every_limit_has_words() {
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
                        .any(|(needs, _)| needs.contains(&Need::Program))
            );
        }
    }
}
