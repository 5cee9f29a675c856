//! A runtime under test: its name on the command line, the facts about it, and its settings if windlass does not know
//! the name.

use std::fmt;
use std::path::Path;

use serde_json::json;

use crate::claims::Claims;
use crate::facts::{
    ANY_ACP, ANY_CLI, CLI_WITH_CALLS, FIXTURE, RuntimeFacts, ScenarioNeed, WorkForm,
};

/// The name of the kit's one-shot program in the settings, and the fields of its output.
const CLI_FIXTURE: &str = "kit-fixture";
const CLI_FIELDS: &str = "kind = \"cli\"\nargs = [\"cli\"]\nresume_args = [\"session={session}\"]\noutput = \"jsonl\"\n\
    fields.session = \"type=session:id\"\nfields.text = \"type=text:text\"\nfields.tool = \"type=call:name\"\n\
    fields.tool_id = \"type=call:id\"\nfields.tool_input = \"type=call:input\"\nfields.result = \"type=result:text\"\n\
    fields.result_id = \"type=result:id\"\n";

/// A runtime under test.
#[derive(Debug, Clone)]
pub struct KitRuntime {
    /// The value for `--runtime`, such as `claude-code` or `acp:my-agent --acp`.
    pub name: String,
    /// The model as `vendor/model`; `None` leaves the choice to the agent.
    pub model: Option<String>,
    pub(crate) facts: RuntimeFacts,
    /// The lines of the table `runtimes.NAME`; empty if the runtime needs no settings.
    pub(crate) settings: String,
    short: String,
    hostile: bool,
}

impl KitRuntime {
    /// Finds a runtime by name. `model` replaces the default model of the runtime, and `listed` has the claims of
    /// windlass. `fixture` is the kit's honest agent, `cli:fixture` the same as a one-shot program, and `hostile` the
    /// hostile agent; all three are the program at `own`.
    ///
    /// # Errors
    /// If the runtime is unknown.
    pub fn new(
        name: &str,
        model: Option<&str>,
        own: &Path,
        listed: &[Claims],
    ) -> Result<Self, String> {
        let fixture = format!("acp:{} honest", own.display());
        let known = listed.iter().find(|claims| claims.name == name);
        let (name, facts, short) = match name {
            "fixture" | "acp:fixture" => (fixture, FIXTURE, "acp:fixture".to_owned()),
            "hostile" => (fixture, FIXTURE, name.to_owned()),
            "cli:fixture" => (CLI_FIXTURE.to_owned(), CLI_WITH_CALLS, name.to_owned()),
            _ => match (known, name.strip_prefix("acp:")) {
                (Some(claims), _) => (name.to_owned(), RuntimeFacts::of(claims), name.to_owned()),
                (None, Some(command)) => (
                    name.to_owned(),
                    ANY_ACP,
                    format!("acp:{}", program_of(command)),
                ),
                (None, None) => {
                    let names: Vec<&str> =
                        listed.iter().map(|claims| claims.name.as_str()).collect();
                    return Err(format!(
                        "unknown runtime `{name}`; known are: {}, acp:COMMAND, fixture, cli:fixture, hostile; for an \
                                                 agent in your own settings, pass --settings FILE before it",
                        names.join(", ")
                    ));
                }
            },
        };
        let hostile = short == "hostile";
        let settings = match name.as_str() {
            CLI_FIXTURE => format!("command = {}\n{CLI_FIELDS}", json!(own)),
            _ => String::new(),
        };
        let model = model.or(facts.model).map(str::to_owned);
        Ok(Self {
            name,
            model,
            facts,
            settings,
            short,
            hostile,
        })
    }

    /// Returns all foreign agents that windlass knows.
    pub fn programs(listed: &[Claims]) -> impl Iterator<Item = Self> {
        let of = |claims: &Claims| {
            let facts = RuntimeFacts::of(claims);
            Self {
                name: claims.name.clone(),
                model: facts.model.map(str::to_owned),
                facts,
                settings: String::new(),
                short: claims.name.clone(),
                hostile: false,
            }
        };
        listed.iter().filter(|claims| !claims.built_in).map(of)
    }

    /// Finds an agent that the user's settings define or change; returns `None` if they have no table with its name.
    #[must_use]
    pub fn of_settings(
        name: &str,
        model: Option<&str>,
        settings: &str,
        listed: &[Claims],
    ) -> Option<Self> {
        let head = format!("[runtimes.{name}]");
        let lines = settings
            .lines()
            .skip_while(|line| line.trim() != head)
            .skip(1);
        let lines: Vec<&str> = lines
            .take_while(|line| !line.trim_start().starts_with('['))
            .collect();
        let one_shot = |line: &&str| line.split_whitespace().collect::<String>() == "kind=\"cli\"";
        let has_key = |key: &str| lines.iter().any(|line| line.trim_start().starts_with(key));
        let known = listed.iter().find(|claims| claims.name == name);
        let facts = match (
            known,
            lines.iter().any(one_shot),
            has_key("resume_args") && has_key("fields.tool"),
        ) {
            (Some(claims), ..) => RuntimeFacts::of(claims),
            (None, true, true) => CLI_WITH_CALLS,
            (None, true, false) => ANY_CLI,
            (None, false, _) => ANY_ACP,
        };
        let model = model.or(facts.model).map(str::to_owned);
        let (name, short, settings) = (name.to_owned(), name.to_owned(), lines.join("\n"));
        (!lines.is_empty()).then_some(Self {
            name,
            model,
            facts,
            settings,
            short,
            hostile: false,
        })
    }

    /// Returns whether this is a foreign agent.
    pub(crate) fn is_foreign(&self) -> bool {
        self.facts.foreign
    }

    /// Returns whether the runtime is named by its command.
    pub(crate) fn is_by_command(&self) -> bool {
        self.name.starts_with("acp:")
    }

    /// Returns whether this is the hostile agent.
    #[must_use]
    pub fn is_hostile(&self) -> bool {
        self.hostile
    }

    /// Returns the reason why the runtime does not meet a need, or `None` if it does.
    pub(crate) fn lacks(&self, need: ScenarioNeed) -> Option<&'static str> {
        self.facts
            .lacks
            .iter()
            .find(|(needs, _)| needs.contains(&need))
            .map(|(_, why)| *why)
    }

    pub(crate) fn has(&self, need: ScenarioNeed) -> bool {
        self.lacks(need).is_none()
    }

    /// Returns whether the model works with tool calls.
    pub(crate) fn has_tools(&self) -> bool {
        self.facts.works == WorkForm::ToolCalls
    }

    /// Returns the short name for tables.
    #[must_use]
    pub fn short(&self) -> String {
        self.short.clone()
    }
}

/// Returns the program of a command line, without its directory.
fn program_of(command: &str) -> &str {
    let program = command.split_whitespace().next().unwrap_or(command);
    program.rsplit('/').next().unwrap_or(program)
}

impl fmt::Display for KitRuntime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example claims of windlass.
    fn listed() -> Vec<Claims> {
        let row = |name: &str, vendor: &str, words: &[&str]| Claims {
            name: name.to_owned(),
            vendors: vec![vendor.to_owned()],
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            ..Claims::default()
        };
        vec![
            row("codex", "openai", &["mcp", "per_tool_approval"]),
            row("opencode", "anthropic", &["mcp", "per_tool_approval"]),
            row("gemini-cli", "gemini", &["per_tool_approval"]),
            row("aider", "anthropic", &[]),
            row("a-new-one", "openai-chat", &["mcp", "per_tool_approval"]),
        ]
    }

    #[track_caller]
    fn check(typed: &str, name: &str, short: &str, model: Option<&str>) {
        let runtime = KitRuntime::new(typed, None, Path::new("/kit/own"), &listed())
            .unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(
            (runtime.name.as_str(), runtime.short().as_str()),
            (name, short)
        );
        assert_eq!(runtime.model.as_deref(), model);
    }

    #[test]
    fn a_name_selects_the_runtime() {
        check("codex", "codex", "codex", Some("openai/gpt-5.5"));
        check(
            "a-new-one",
            "a-new-one",
            "a-new-one",
            Some("openai-chat/gpt-5.5"),
        );
        check("fixture", "acp:/kit/own honest", "acp:fixture", None);
        check("hostile", "acp:/kit/own honest", "hostile", None);
        check("cli:fixture", "kit-fixture", "cli:fixture", None);
        check("acp:/opt/my agent", "acp:/opt/my agent", "acp:my", None);
        let unknown = KitRuntime::new("codx", None, Path::new("/kit/own"), &listed());
        assert!(unknown.is_err_and(|why| why.contains("codex, opencode, gemini-cli")));
    }

    #[test]
    fn an_agent_in_the_settings_is_found() {
        let settings = "[a]\nb = 1\n[runtimes.mine]\nkind = \"cli\"\ncommand = \"x\"\n\n[runtimes.other]\nkind = \"acp\"\n";
        let mine = KitRuntime::of_settings("mine", None, settings, &listed());
        assert!(
            mine.is_some_and(|mine| !mine.has(ScenarioNeed::Approval)
                && mine.settings.contains("command = \"x\""))
        );
        assert!(
            KitRuntime::of_settings("other", None, settings, &listed())
                .is_some_and(|other| other.has(ScenarioNeed::Approval))
        );
        assert!(KitRuntime::of_settings("codex", None, settings, &listed()).is_none());
        let codex = KitRuntime::of_settings(
            "codex",
            None,
            "[runtimes.codex]\ncommand = \"x\"\n",
            &listed(),
        );
        assert!(codex.is_some_and(|codex| codex.model.as_deref() == Some("openai/gpt-5.5")));
    }

    #[test]
    fn a_limit_has_its_reason() {
        let aider = KitRuntime::new("aider", None, Path::new("/kit/own"), &listed())
            .unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(
            aider.lacks(ScenarioNeed::Approval),
            Some("Aider runs no tools, so there is no call to deny")
        );
        let accepts_servers = |name| {
            KitRuntime::new(name, None, Path::new("/kit/own"), &listed())
                .is_ok_and(|it| it.has(ScenarioNeed::Mcp))
        };
        assert!(
            accepts_servers("acp:mine")
                && !accepts_servers("fixture")
                && !accepts_servers("gemini-cli")
        );
        assert!(aider.has(ScenarioNeed::ChangesFiles) && !aider.has_tools());
    }
}
