//! The runtimes that can be certified: how each is named on the command line, and what the kit must know about it.

use std::fmt;
use std::path::Path;

/// Who owns the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Native,
    ClaudeCode,
    Codex,
    Acp,
    /// An SDK whose tools are all run by the engine.
    Sidecar,
    Patch,
    Completion,
}

/// A runtime, as `--runtime` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// Its name, such as `claude-code` or `acp:my-agent --acp`.
    pub name: String,
    /// The model it is asked to use, as `vendor/model`; none where the agent is left its own.
    pub model: Option<String>,
    pub(crate) family: Family,
    pub(crate) hostile: bool,
}

impl Runtime {
    /// Reads a name; `model` is in the place of the one that fits the runtime best. `fixture` is the kit's own honest
    /// agent and `hostile` its other one, both of which are the program at `own`.
    ///
    /// # Errors
    /// Where there is no such runtime.
    pub fn new(name: &str, model: Option<&str>, own: &Path) -> Result<Self, String> {
        let fixture = format!("acp:{} honest", own.display());
        let (name, hostile) = match name {
            "fixture" => (fixture.as_str(), false),
            "hostile" => (fixture.as_str(), true),
            name => (name, false),
        };
        let family = match name {
            "native" => Family::Native,
            "claude-code" => Family::ClaudeCode,
            "codex" => Family::Codex,
            "patch" => Family::Patch,
            "completion" => Family::Completion,
            "opencode" | "gemini-cli" | "qwen-code" | "goose" | "claude-agent-acp" | "codex-acp" => Family::Acp,
            "openai-agents" | "google-adk" => Family::Sidecar,
            name if name.starts_with("acp:") => Family::Acp,
            name => {
                return Err(format!(
                    "there is no runtime `{name}`; there are: native, claude-code, codex, opencode, openai-agents, google-adk, \
                     acp:COMMAND, patch, completion, fixture, hostile"
                ));
            }
        };
        let usual = match family {
            Family::Codex => Some("openai/gpt-5.5"),
            Family::Acp if name == "codex-acp" => Some("openai/gpt-5.5"),
            Family::Acp if name == "gemini-cli" => Some("gemini/gemini-2.5-pro"),
            Family::Acp if name == "qwen-code" => Some("openai-chat/gpt-5.5"),
            Family::Sidecar if name == "openai-agents" => Some("openai/gpt-5.5"),
            // Not every agent lets its model be chosen.
            Family::Acp if name.starts_with("acp:") => None,
            _ => Some("anthropic/claude-sonnet-5-5"),
        };
        Ok(Self { name: name.to_owned(), model: model.or(usual).map(str::to_owned), family, hostile })
    }

    /// A program of others runs; the engine only holds it.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.family, Family::ClaudeCode | Family::Codex | Family::Acp | Family::Sidecar)
    }

    /// It is named by its command, not by a name that windlass knows.
    pub(crate) fn is_by_command(&self) -> bool {
        self.name.starts_with("acp:")
    }

    /// It is there to be contained, not to work.
    #[must_use]
    pub fn is_hostile(&self) -> bool {
        self.hostile
    }

    /// The model gets tools and works in steps.
    pub(crate) fn has_tools(&self) -> bool {
        !matches!(self.family, Family::Patch | Family::Completion)
    }

    /// A short name for a column.
    #[must_use]
    pub fn short(&self) -> String {
        if self.hostile {
            return "hostile".to_owned();
        }
        let Some(command) = self.name.strip_prefix("acp:") else { return self.name.clone() };
        let program = command.split_whitespace().next().unwrap_or(command);
        match program.rsplit('/').next().unwrap_or(program) {
            "windlass-hostile-agent" => "acp:fixture".to_owned(),
            program => format!("acp:{program}"),
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}
