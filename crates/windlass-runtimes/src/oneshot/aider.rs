//! Aider as a one-shot program: its arguments, and the files that it writes into its home: the chat, which contains the
//! answer, and an event log, which contains tokens and cost. Its edits are found in the tree, as those of any agent.
//!
//! A small Python program of Windlass starts Aider, because no option keeps it from reading settings, variables and
//! commands from a project's files, or from writing its cache into the tree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_core::budget::Usage;

use super::program::{OneShotProgram, ProgramOutput};
use crate::acp::text::end_of;
use crate::agent::ReportedUsage;
use crate::dialect::Dialect;
use crate::dollars::micros;
use crate::option_checks::{check_args, check_env};
use crate::placeholders::{LaunchTexts, owned};

/// The Python program that starts Aider, and its path in the home.
const START: &str = include_str!("start_aider.py");
const START_AT: &str = ".windlass/start_aider.py";
/// The chat and the event log, in the home.
const CHAT: &str = ".windlass/aider-chat.md";
const LOG: &str = ".windlass/aider-log.jsonl";
/// The files that are read after the exit.
pub(super) const NOTES: &[&str] = &[CHAT, LOG];
/// Bytes of an error output in messages.
const MAX_QUOTED: usize = 1_500;

/// Arguments that restrict Aider, or that would loosen its restrictions.
const OWN_ARGS: &[&str] = &[
    "--model",
    "--message",
    "--msg",
    "-m",
    "--message-file",
    "-f",
    "--yes-always",
    "--pretty",
    "--stream",
    "--auto-commits",
    "--dirty-commits",
    "--commit",
    "--gitignore",
    "--check-update",
    "--upgrade",
    "--update",
    "--install-main-branch",
    "--just-check-update",
    "--suggest-shell-commands",
    "--detect-urls",
    "--analytics",
    "--analytics-log",
    "--analytics-disable",
    "--chat-history-file",
    "--input-history-file",
    "--restore-chat-history",
    "--llm-history-file",
    "--config",
    "-c",
    "--env-file",
    "--set-env",
    "--api-key",
    "--openai-api-key",
    "--openai-api-base",
    "--anthropic-api-key",
    "--load",
    "--gui",
    "--browser",
    "--copy-paste",
    "--watch-files",
    "--notifications",
    "--notifications-command",
    "--exit",
    "--edit-format",
    "--chat-mode",
    "--map-tokens",
    "--file",
    "--read",
    "--test-cmd",
    "--auto-test",
    "--lint-cmd",
    "--reasoning-effort",
    "--thinking-tokens",
];
/// Variables that Windlass sets for the model and for the restrictions.
const OWN_ENV: &[&str] = &[
    "OPENAI_API_BASE",
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_BASE",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_BASE",
    "GEMINI_API_KEY",
    "HOME",
];

/// The user's options for Aider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AiderOptions {
    /// The Python interpreter with the Aider package.
    pub python: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub model: Option<String>,
    /// The format of the model's edits: `diff`, `whole`, `udiff`, `architect` …, or `auto` for Aider's choice. Aider
    /// chooses `whole` for unknown models, which rewrites complete files, so the default is `diff`.
    pub edit_format: Option<String>,
    /// Tokens of the repository map for the model; 0 disables the map. Default: Aider's choice.
    pub map_tokens: Option<u64>,
    /// Files that are always in the chat, in addition to those that a prompt names.
    pub files: Vec<String>,
    /// Files that the model sees and does not change.
    pub read_files: Vec<String>,
    /// A command that Aider runs after its edits. It tries to fix failures of this command.
    pub test_command: Option<String>,
    /// The reasoning effort of the model.
    pub effort: Option<String>,
    /// The limit for thinking tokens.
    pub thinking_tokens: Option<u64>,
}

impl AiderOptions {
    /// The description of the program, for a model with this protocol.
    pub fn program(self, dialect: Dialect) -> Result<OneShotProgram, String> {
        check_args(&self.args, OWN_ARGS)?;
        check_env(&self.env, OWN_ENV)?;
        let Some(model) = &self.model else {
            return Err("Aider needs a model; name one with `-m`, or set `model`".to_owned());
        };
        let starts = |name: &String| name.starts_with('-');
        if let Some(invalid) = self
            .files
            .iter()
            .chain(&self.read_files)
            .find(|name| starts(name))
        {
            return Err(format!("`{invalid}` is not the name of a file"));
        }
        // The path of the start program is filled in when the home is known.
        let start = format!("{{home}}/{START_AT}");
        let (args, env) = (
            self.arguments(&litellm_model(model, dialect), dialect),
            self.env.clone(),
        );
        Ok(OneShotProgram {
            name: "aider".to_owned(),
            // `-s` disables packages in the home: an earlier attempt could have installed some that loosen the
            // restrictions.
            command: vec![self.python, "-s".to_owned()],
            args: std::iter::once(start).chain(args).collect(),
            resume_args: Vec::new(),
            texts: LaunchTexts {
                env: owned(FIXED_ENV).into_iter().chain(env).collect(),
                point_at: owned(ENDPOINT_ENV),
                home_files: owned(&[(START_AT, START)]),
                clear: [CHAT, LOG].map(str::to_owned).to_vec(),
            },
            model: self.model,
            output: ProgramOutput::Aider,
        })
    }

    fn arguments(&self, model: &str, dialect: Dialect) -> Vec<String> {
        let mut arguments: Vec<String> = FIXED_ARGS.iter().map(|word| (*word).to_owned()).collect();
        let mut say =
            |option: &str, value: &str| arguments.extend([option.to_owned(), value.to_owned()]);
        say("--message-file", "{prompt_file}");
        say("--chat-history-file", &format!("{{home}}/{CHAT}"));
        say("--input-history-file", "/dev/null");
        say("--analytics-log", &format!("{{home}}/{LOG}"));
        say("--model", model);
        // Aider would use other models of the vendor for titles and edits.
        say("--weak-model", model);
        say("--editor-model", model);
        let numbers = [
            ("--map-tokens", self.map_tokens),
            ("--thinking-tokens", self.thinking_tokens),
        ];
        for (option, number) in numbers {
            if let Some(number) = number {
                say(option, &number.to_string());
            }
        }
        match self.edit_format.as_deref() {
            Some("auto") => {}
            // Gemini models put the file name inside of the fence.
            None if dialect == Dialect::Gemini => say("--edit-format", "diff-fenced"),
            format => say("--edit-format", format.unwrap_or("diff")),
        }
        if let Some(effort) = &self.effort {
            say("--reasoning-effort", effort);
        }
        self.read_files.iter().for_each(|file| say("--read", file));
        self.files.iter().for_each(|file| say("--file", file));
        match &self.test_command {
            Some(command) => {
                say("--test-cmd", command);
                arguments.push("--auto-test".to_owned());
            }
            None => arguments.push("--no-auto-test".to_owned()),
        }
        arguments.extend(self.args.iter().cloned());
        arguments
    }
}

/// Arguments that make Aider run unattended, leave commits to Windlass, and contact no server but the model.
const FIXED_ARGS: &[&str] = &[
    "--yes-always",
    "--no-pretty",
    "--no-stream",
    "--no-fancy-input",
    "--no-notifications",
    "--no-auto-commits",
    "--no-dirty-commits",
    "--no-gitignore",
    "--no-check-update",
    "--no-show-release-notes",
    "--no-show-model-warnings",
    "--no-suggest-shell-commands",
    "--no-detect-urls",
    "--no-auto-lint",
    "--no-restore-chat-history",
    "--no-analytics",
    "--disable-playwright",
];

/// Aider must not download a price list, nor write a user name into the repository's settings because there is none.
/// Git must not use a bare repository inside of the tree, because its settings could run programs.
const FIXED_ENV: &[(&str, &str)] = &[
    ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
    ("GIT_CONFIG_COUNT", "3"),
    ("GIT_CONFIG_KEY_0", "user.name"),
    ("GIT_CONFIG_VALUE_0", "aider"),
    ("GIT_CONFIG_KEY_1", "user.email"),
    ("GIT_CONFIG_VALUE_1", "aider@localhost"),
    ("GIT_CONFIG_KEY_2", "safe.bareRepository"),
    ("GIT_CONFIG_VALUE_2", "explicit"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
];

const ENDPOINT_ENV: &[(&str, &str)] = &[
    ("OPENAI_API_BASE", "{url}/v1"),
    ("OPENAI_API_KEY", "{key}"),
    ("ANTHROPIC_API_BASE", "{url}"),
    ("ANTHROPIC_API_KEY", "{key}"),
    ("GEMINI_API_BASE", "{url}/v1beta"),
    ("GEMINI_API_KEY", "{key}"),
];

/// The model name with a prefix for its protocol.
fn litellm_model(model: &str, dialect: Dialect) -> String {
    let prefix = match dialect {
        Dialect::Anthropic => "anthropic",
        Dialect::OpenAiChat => "openai",
        Dialect::OpenAiResponses => "openai/responses",
        Dialect::Gemini => "gemini",
    };
    format!("{prefix}/{model}")
}

/// The content of the files that Aider wrote for one prompt.
#[derive(Debug, Default)]
pub(super) struct AiderNotes {
    /// The last message of the model.
    pub(super) answer: String,
    pub(super) spent: Option<ReportedUsage>,
    /// The reason why there is no answer of the model.
    pub(super) failed: Option<String>,
}

/// Parses the files from the home. The exit code of Aider is not informative.
pub(super) fn notes(files: &[String]) -> AiderNotes {
    let file = |at: usize| files.get(at).map_or("", String::as_str);
    read_notes(file(0), file(1))
}

fn read_notes(chat: &str, log: &str) -> AiderNotes {
    let mut sum: Option<ReportedUsage> = None;
    for line in log.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        if event["event"] != "message_send" {
            continue;
        }
        let properties = &event["properties"];
        let number = |key: &str| properties[key].as_u64().unwrap_or_default();
        let cost = properties["cost"].as_f64().and_then(micros);
        sum.get_or_insert_default().add(&ReportedUsage {
            usage: Usage::of_prompt(number("prompt_tokens"), 0, 0, number("completion_tokens")),
            cost_micros: cost.filter(|cost| *cost > 0),
            model: None,
        });
    }
    let failed = sum.is_none().then(|| {
        let own_lines: Vec<&str> = chat
            .lines()
            .rev()
            .map_while(|line| line.strip_prefix("> "))
            .collect();
        let own_lines = own_lines
            .into_iter()
            .rev()
            .map(str::trim_end)
            .collect::<Vec<_>>()
            .join("\n");
        let own_lines = end_of(&own_lines, MAX_QUOTED);
        if own_lines.is_empty() {
            "Aider exited without an answer of the model".to_owned()
        } else {
            format!("Aider exited without an answer of the model and printed: {own_lines}")
        }
    });
    AiderNotes {
        answer: answer(chat),
        spent: sum,
        failed,
    }
}

/// The model's text, without the prompt and Aider's own lines.
fn answer(chat: &str) -> String {
    let lines: Vec<&str> = chat.lines().collect();
    let own_lines = lines
        .iter()
        .rposition(|line| line.starts_with("#### "))
        .map_or(0, |at| at + 1);
    let own = |line: &&&str| **line == ">" || line.starts_with("> ");
    lines[own_lines..]
        .iter()
        .filter(|line| !own(line))
        .copied()
        .collect::<Vec<_>>()
        .join("\n")
        .trim()
        .to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LOG: &str = include_str!("../../tests/fixtures/oneshot/aider-analytics-log.jsonl");

    #[test]
    fn usage_is_in_the_log_and_the_answer_in_the_chat() {
        let chat = "\n# aider chat started at 2026-11-15 21:23:27\n\n> Aider v0.86.2  \n\n#### Change a.py  \n#### now  \n\
                    > a.py  \n> Add file to the chat? (Y)es/(N)o/(D)on't ask again [Yes]: y  \n\nHere is the change.\n\n\
                    a.py\n```\n  x=2\n```\n\n> Tokens: 1.2k sent, 30 received.  \n> Applied edit to a.py  \n";
        let notes = read_notes(chat, LOG);
        assert_eq!(notes.answer, "Here is the change.\n\na.py\n```\n  x=2\n```");
        let spent = notes.spent.unwrap();
        assert_eq!(
            (spent.usage.input, spent.usage.output, spent.cost_micros),
            (1_200, 30, Some(2_050))
        );
        assert_eq!(notes.failed, None);
    }

    #[test]
    fn a_prompt_without_an_answer_fails_despite_exit_code_0() {
        let log: String = LOG
            .lines()
            .filter(|line| !line.contains("message_send\""))
            .collect::<Vec<_>>()
            .join("\n");
        let chat = "#### Change a.py  \n> litellm.InternalServerError: no  \n> Retrying in 0.2 seconds...  \n";
        let failed = read_notes(chat, &log).failed.unwrap();
        assert!(
            failed
                .ends_with("printed: litellm.InternalServerError: no\nRetrying in 0.2 seconds..."),
            "{failed}"
        );
        assert!(read_notes("", "no json\n").failed.is_some());
    }

    #[track_caller]
    fn check(options: &str, dialect: Dialect, expect: Result<&[&str], &str>) {
        let made = serde_json::from_str::<AiderOptions>(options)
            .unwrap()
            .program(dialect);
        match (made, expect) {
            (Ok(program), Ok(arguments)) => {
                let line = program.args.join(" ");
                assert!(arguments.iter().all(|word| line.contains(word)), "{line}");
                assert_eq!(program.command, ["/p/python", "-s"]);
                assert!(
                    line.starts_with("{home}/.windlass/start_aider.py --yes-always"),
                    "{line}"
                );
            }
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (made, expect) => panic!("{made:?}, and not {expect:?}"),
        }
    }

    #[test]
    fn options_become_arguments_and_restrictions_stay() {
        let base = |more: &str| format!(r#"{{"python":"/p/python","model":"m"{more}}}"#);
        let chat = Dialect::OpenAiChat;
        check(
            &base(""),
            chat,
            Ok(&[
                "--model openai/m",
                "--weak-model openai/m",
                "--no-auto-test",
            ]),
        );
        check(&base(""), Dialect::Anthropic, Ok(&["--model anthropic/m"]));
        check(
            &base(""),
            Dialect::OpenAiResponses,
            Ok(&["--model openai/responses/m"]),
        );
        check(
            &base(""),
            Dialect::Gemini,
            Ok(&["--model gemini/m", "--edit-format diff-fenced"]),
        );
        check(
            &base(r#","edit_format":"whole","map_tokens":0"#),
            chat,
            Ok(&["--edit-format whole", "--map-tokens 0"]),
        );
        check(&base(""), chat, Ok(&["--edit-format diff "]));
        check(
            &base(r#","files":["a.py"],"read_files":["b.md"]"#),
            chat,
            Ok(&["--read b.md --file a.py"]),
        );
        check(
            &base(r#","test_command":"make test""#),
            chat,
            Ok(&["--test-cmd make test --auto-test"]),
        );
        check(
            &base(r#","args":["--architect"]"#),
            chat,
            Ok(&["--architect"]),
        );
        check(
            &base(r#","args":["--load=x"]"#),
            chat,
            Err("cannot contain `--load`"),
        );
        check(
            &base(r#","env":{"OPENAI_API_BASE":"x"}"#),
            chat,
            Err("Windlass sets it"),
        );
        check(
            &base(r#","files":["--load"]"#),
            chat,
            Err("not the name of a file"),
        );
        check(r#"{"python":"/p/python"}"#, chat, Err("needs a model"));
    }
}
