//! A runtime that is certified: how it is named on the command line, what the kit knows of it, and the settings that make
//! it known to windlass where it has no name there.

use std::fmt;
use std::path::Path;

use serde_json::json;

use crate::claims::Claims;
use crate::facts::{ANY_ACP, ANY_CLI, CLI_THAT_TELLS, FIXTURE, Facts, Need, Works};

/// The kit's own one-shot program, as it is named in the settings, and where things stand in its lines.
const CLI_FIXTURE: &str = "kit-fixture";
const CLI_FIELDS: &str = "kind = \"cli\"\nargs = [\"cli\"]\nresume_args = [\"session={session}\"]\noutput = \"jsonl\"\n\
    fields.session = \"type=session:id\"\nfields.text = \"type=text:text\"\nfields.tool = \"type=call:name\"\n\
    fields.tool_id = \"type=call:id\"\nfields.tool_input = \"type=call:input\"\nfields.result = \"type=result:text\"\n\
    fields.result_id = \"type=result:id\"\n";

/// A runtime, as `--runtime` takes it.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// Its name for windlass, such as `claude-code` or `acp:my-agent --acp`.
    pub name: String,
    /// The model it is asked to use, as `vendor/model`; none where the agent is left its own.
    pub model: Option<String>,
    /// What the kit knows of it.
    pub(crate) facts: Facts,
    /// Settings of the table `runtimes.NAME`, as lines of TOML; none where it needs no settings.
    pub(crate) settings: String,
    /// A short name for a table.
    short: String,
    hostile: bool,
}

impl Runtime {
    /// Reads a name; `listed` is what windlass says of the runtimes that it knows; `model` is in the place of the one that fits the runtime best. `fixture` is the kit's own honest
    /// agent, `cli:fixture` the same as a one-shot program, and `hostile` its other one: all are the program at `own`.
    ///
    /// # Errors
    /// Where there is no such runtime.
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
            "cli:fixture" => (CLI_FIXTURE.to_owned(), CLI_THAT_TELLS, name.to_owned()),
            _ => match (known, name.strip_prefix("acp:")) {
                (Some(claims), _) => (name.to_owned(), Facts::of(claims), name.to_owned()),
                (None, Some(command)) => (
                    name.to_owned(),
                    ANY_ACP,
                    format!("acp:{}", program_of(command)),
                ),
                (None, None) => {
                    let names: Vec<&str> =
                        listed.iter().map(|claims| claims.name.as_str()).collect();
                    return Err(format!(
                        "there is no runtime `{name}`; there are: {}, acp:COMMAND, fixture, cli:fixture, hostile; an \
                         agent of your own settings is told by --settings FILE before it",
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

    /// Every program of others that has a name.
    pub fn programs(listed: &[Claims]) -> impl Iterator<Item = Self> {
        let of = |claims: &Claims| {
            let facts = Facts::of(claims);
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

    /// An agent that a person's own settings describe or change, in a table of its name; none where they have no such
    /// table.
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
        let says = |key: &str| lines.iter().any(|line| line.trim_start().starts_with(key));
        let known = listed.iter().find(|claims| claims.name == name);
        let facts = match (
            known,
            lines.iter().any(one_shot),
            says("resume_args") && says("fields.tool"),
        ) {
            (Some(claims), ..) => Facts::of(claims),
            (None, true, true) => CLI_THAT_TELLS,
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

    /// A program of others runs; the engine only holds it.
    pub(crate) fn is_foreign(&self) -> bool {
        self.facts.foreign
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

    /// Why it does not meet a need; none where it does.
    pub(crate) fn lacks(&self, need: Need) -> Option<&'static str> {
        self.facts
            .lacks
            .iter()
            .find(|(needs, _)| needs.contains(&need))
            .map(|(_, why)| *why)
    }

    pub(crate) fn has(&self, need: Need) -> bool {
        self.lacks(need).is_none()
    }

    /// The model gets tools and works in steps.
    pub(crate) fn has_tools(&self) -> bool {
        self.facts.works == Works::Calls
    }

    /// A short name for a table.
    #[must_use]
    pub fn short(&self) -> String {
        self.short.clone()
    }
}

/// The program of a command line, without its folder.
fn program_of(command: &str) -> &str {
    let program = command.split_whitespace().next().unwrap_or(command);
    program.rsplit('/').next().unwrap_or(program)
}

impl fmt::Display for Runtime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What windlass says of a few runtimes.
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
        let runtime = Runtime::new(typed, None, Path::new("/kit/own"), &listed())
            .unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(
            (runtime.name.as_str(), runtime.short().as_str()),
            (name, short)
        );
        assert_eq!(runtime.model.as_deref(), model);
    }

    #[test]
    fn a_name_says_what_is_run() {
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
        let unknown = Runtime::new("codx", None, Path::new("/kit/own"), &listed());
        assert!(unknown.is_err_and(|why| why.contains("codex, opencode, gemini-cli")));
    }

    #[test]
    fn an_agent_of_the_settings_is_read_from_its_table() {
        let settings = "[a]\nb = 1\n[runtimes.mine]\nkind = \"cli\"\ncommand = \"x\"\n\n[runtimes.other]\nkind = \"acp\"\n";
        let mine = Runtime::of_settings("mine", None, settings, &listed());
        assert!(mine.is_some_and(
            |mine| !mine.has(Need::Approval) && mine.settings.contains("command = \"x\"")
        ));
        assert!(
            Runtime::of_settings("other", None, settings, &listed())
                .is_some_and(|other| other.has(Need::Approval))
        );
        assert!(Runtime::of_settings("codex", None, settings, &listed()).is_none());
        let codex = Runtime::of_settings(
            "codex",
            None,
            "[runtimes.codex]\ncommand = \"x\"\n",
            &listed(),
        );
        assert!(codex.is_some_and(|codex| codex.model.as_deref() == Some("openai/gpt-5.5")));
    }

    #[test]
    fn a_limit_has_its_reason() {
        let aider = Runtime::new("aider", None, Path::new("/kit/own"), &listed())
            .unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(
            aider.lacks(Need::Approval),
            Some("Aider runs no tools, so there is no call to deny")
        );
        let takes_servers = |name| {
            Runtime::new(name, None, Path::new("/kit/own"), &listed())
                .is_ok_and(|it| it.has(Need::Mcp))
        };
        assert!(
            takes_servers("acp:mine") && !takes_servers("fixture") && !takes_servers("gemini-cli")
        );
        assert!(aider.has(Need::Changes) && !aider.has_tools());
    }
}
