//! The runtimes that can be certified: how each is named on the command line, and what the kit must know about it.

use std::fmt;

/// Who owns the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Native,
    ClaudeCode,
    Codex,
    Acp,
    Patch,
    Completion,
}

/// A runtime, as `--runtime` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// Its name, such as `claude-code` or `acp:my-agent --acp`.
    pub name: String,
    /// The model it is asked to use, as `vendor/model`.
    pub model: String,
    pub(crate) family: Family,
}

impl Runtime {
    /// Reads a name; `model` is in the place of the one that fits the runtime best.
    ///
    /// # Errors
    /// Where there is no such runtime.
    pub fn new(name: &str, model: Option<&str>) -> Result<Self, String> {
        let family = match name {
            "native" => Family::Native,
            "claude-code" => Family::ClaudeCode,
            "codex" => Family::Codex,
            "patch" => Family::Patch,
            "completion" => Family::Completion,
            name if name.starts_with("acp:") => Family::Acp,
            name => {
                return Err(format!(
                    "there is no runtime `{name}`; there are: native, claude-code, codex, acp:COMMAND, patch, completion"
                ));
            }
        };
        let usual = if family == Family::Codex { "openai/gpt-5.5" } else { "anthropic/claude-sonnet-5-5" };
        Ok(Self { name: name.to_owned(), model: model.unwrap_or(usual).to_owned(), family })
    }

    /// A program of others runs; the engine only holds it.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.family, Family::ClaudeCode | Family::Codex | Family::Acp)
    }

    /// The model gets tools and works in steps.
    pub(crate) fn has_tools(&self) -> bool {
        !matches!(self.family, Family::Patch | Family::Completion)
    }

    /// A short name for a column.
    #[must_use]
    pub fn short(&self) -> String {
        let Some(command) = self.name.strip_prefix("acp:") else { return self.name.clone() };
        let program = command.split_whitespace().next().unwrap_or(command);
        format!("acp:{}", program.rsplit('/').next().unwrap_or(program))
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}
