//! The command line as clap parses it. The library (`windlass::flags`, `windlass::settings`) interprets the flags of a
//! run.

mod attach;
mod context;
mod first_start;
mod landing;
mod reports;
mod serve;
mod sessions;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use windlass::core::gate::Mode;
use windlass::core::terms::SandboxLevel;
use windlass::flags::{AgentFlags, ContractFlags, LimitFlags, one_of};

pub(crate) use self::attach::{AttachArgs, ServerArgs};
pub(crate) use self::context::{ContextArgs, PromptArgs};
pub(crate) use self::first_start::{AuthCommand, InitArgs};
pub(crate) use self::landing::{
    DiffArgs, DiscardArgs, LandArgs, RedoArgs, ReplayArgs, StatusArgs, UndoArgs, UndoRedoArgs,
};
pub(crate) use self::reports::{DiagramArgs, OtelArgs, StatsArgs};
pub(crate) use self::serve::{ServeArgs, ServeCommand, TokenCommand};
pub(crate) use self::sessions::{
    ExportFormat, ImportArgs, ImportFrom, SearchArgs, SessionsCommand, ShowArgs,
};

/// Run any coding agent under one enforced contract.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, max_term_width = 100)]
pub(crate) struct Cli<C: Subcommand = CliCommand> {
    /// Append a developer log to this file [default: none; filter: `WINDLASS_LOG`]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) log_file: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<C>,
}

/// The command that scripts start most often, alone.
#[derive(Debug, Subcommand)]
enum RunCommand {
    Run(RunArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a single task
    Run(RunArgs),
    /// Start an interactive chat in your working tree
    Chat(ChatArgs),
    /// Continue a session or a kept run: first pending approvals, then a prompt or a chat
    Resume(ResumeArgs),
    /// Answer a pending approval or question and continue the run; without an id, list them
    Answer(AnswerArgs),
    /// Branch a session at any event
    Fork(ForkArgs),
    /// List kept runs of this workspace and repairs after a crash
    Status(StatusArgs),
    /// Show the changes of a kept run
    Diff(DiffArgs),
    /// Check a kept run again and apply it to your working tree
    Land(LandArgs),
    /// Delete a kept run
    Discard(DiscardArgs),
    /// Undo the changes of a run and keep your later edits
    Undo(UndoArgs),
    /// Redo the changes that were undone last
    Redo(RedoArgs),
    /// Replay a session from its log without running anything
    Replay(ReplayArgs),
    /// List, show, search, export, import and delete sessions
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Serve sessions over HTTP, or as JSON lines over standard input and output
    Serve(ServeArgs),
    /// Show a session of a server, answer its asks and steer it
    Attach(AttachArgs),
    /// Print the instructions that the model gets before the first message
    Prompt(PromptArgs),
    /// Show the use of the model's context window in a session and the cost of a step
    Context(ContextArgs),
    /// Report steps, tokens, cost, time, calls and checks of sessions
    Stats(StatsArgs),
    /// Draw the configuration of this workspace as a Mermaid diagram
    Diagram(DiagramArgs),
    /// Run a real task with a scripted model: no key, no network
    Demo(DemoArgs),
    /// Run any program in the sandbox that runs use for their commands
    Sandbox(SandboxArgs),
    /// Check the setup of this machine and print how to fix it
    Doctor(DoctorArgs),
    /// List the tools that the model can call
    Tools(ToolsArgs),
    /// Write an instruction file and settings for this project; existing files stay the same
    Init(InitArgs),
    /// List, store and remove keys of vendors, and sign in to agents
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Show and change settings
    Config(ConfigArgs),
    /// Trust or revoke the settings of a project
    Trust {
        #[command(subcommand)]
        command: Option<TrustCommand>,
    },
    /// List vendors and models
    Models(ModelsArgs),
    /// List agents, whether they are installed, and their capabilities
    Runtimes(RuntimesArgs),
    /// Explain and test the permissions of tool calls
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Print a completion script for a shell
    Completion {
        /// Print the script for this shell
        shell: clap_complete::Shell,
    },
    /// Run tools for debugging
    #[command(subcommand)]
    Debug(DebugCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum DebugCommand {
    /// Decode recorded model responses and print one JSON line for each
    Decode(DecodeArgs),
    /// Check the syntax of texts and print the verdict on each as a JSON line
    Validate(ValidateArgs),
    /// Apply edits to texts in memory and print the resulting files as JSON lines
    Edit(EditArgs),
    /// Print the traces and metrics of a session as OTLP/JSON, one request per line, without sending them
    Otel(OtelArgs),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RuntimesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RuntimesCommand>,
    /// Print one JSON object for each runtime
    #[arg(long)]
    pub(crate) json: bool,
    /// Print which runtime `auto` would choose for these needs (kinds of work, capabilities, features), and why it
    /// rejects the others
    #[arg(long = "for", value_name = "NEED", num_args = 0.., conflicts_with = "probe")]
    pub(crate) needs: Option<Vec<String>>,
    /// List the agents of the ACP registry; install them with `windlass runtimes install acp:ID`
    #[arg(long, conflicts_with_all = ["needs", "probe", "model"])]
    pub(crate) registry: bool,
    /// Use this model, as `model` or `vendor/model` [default: the model of the settings]
    #[arg(short, long)]
    pub(crate) model: Option<String>,
    /// Run a small task with each installed or named runtime and a scripted model, under the conditions of a real run:
    /// no key, no network, no cost
    #[arg(long, value_name = "NAME", num_args = 0..)]
    pub(crate) probe: Option<Vec<String>>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RuntimesCommand {
    /// Install agents privately for windlass, in their certified version or as the ACP registry describes them
    Install {
        /// Install these agents: names of `windlass runtimes`, or acp:ID from `windlass runtimes --registry`
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// Install all certified agents
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// Remove agents that `windlass runtimes install` installed
    Remove {
        /// Remove the agents with these names
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Read JSON lines `{id, lang, text | text_b64, name?}` from this file, plain or gzipped; `-` is standard input
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// Read JSON lines `{id, format, input{path: text}, edit}` from this file, plain or gzipped; `-` is standard input.
    /// The format is v4a, search-replace, str-replace, udiff or whole
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// Read JSON lines from this file, plain or gzipped; `-` is standard input
    pub(crate) file: PathBuf,
    /// Feed the bytes in pieces of this size [default: all at once]
    #[arg(long, value_name = "N")]
    pub(crate) split: Option<std::num::NonZeroUsize>,
    /// Put a byte-order mark at the beginning
    #[arg(long)]
    pub(crate) bom: bool,
    /// End lines with carriage return and line feed
    #[arg(long)]
    pub(crate) crlf: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Do this task; `@path` attaches a file [default: read from standard input, if piped]
    pub(crate) prompt: Vec<String>,
    /// Start from this plan: the name of a kept plan, `last`, or a file
    #[arg(long, value_name = "PLAN")]
    pub(crate) plan: Option<String>,
    /// Work directly in your working tree, not on a copy
    #[arg(long, conflicts_with = "isolated")]
    pub(crate) in_place: bool,
    /// Work on a copy that lands when the checks pass [default]
    #[arg(long)]
    pub(crate) isolated: bool,
    /// Continue the newest session of this workspace
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    pub(crate) continue_newest: bool,
    /// Continue this session (an id, the beginning of an id, or `last`)
    #[arg(short, long, value_name = "SESSION")]
    pub(crate) resume: Option<String>,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
    #[command(flatten)]
    pub(crate) contract: ContractFlags,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    /// Continue the newest session of this workspace
    #[arg(short = 'c', long = "continue")]
    pub(crate) continue_newest: bool,
    /// Run each prompt on a copy that lands when the checks pass
    #[arg(long)]
    pub(crate) isolated: bool,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
    #[command(flatten)]
    pub(crate) contract: ContractFlags,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// Continue this kept run or session (an id, the beginning of an id, or `last`) [default: the newest session of this
    /// workspace]
    pub(crate) session: Option<String>,
    /// Do this next [default: a chat; for a kept run, its own task]
    pub(crate) prompt: Vec<String>,
    /// Keep only the last N steps of the conversation and a summary of the rest
    #[arg(long, value_name = "N", conflicts_with = "summary")]
    pub(crate) last: Option<u32>,
    /// Keep only a summary of the conversation and your own messages
    #[arg(long)]
    pub(crate) summary: bool,
    /// Work on a copy that lands when the checks pass, even if the session worked in place
    #[arg(long)]
    pub(crate) isolated: bool,
    /// Work directly in your working tree, even if the session worked on a copy
    #[arg(long, conflicts_with = "isolated")]
    pub(crate) in_place: bool,
    /// Drop a flag that the run was started with; may be given more than once
    #[arg(long, value_name = "FLAG")]
    pub(crate) unset: Vec<String>,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
    #[command(flatten)]
    pub(crate) contract: ContractFlags,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// Answer the ask with this id, which the run printed
    pub(crate) ask: Option<String>,
    /// Give this answer: `yes`, `no` with an optional reason, `always` if it was offered, or the answer to a question
    pub(crate) words: Vec<String>,
    /// List the pending asks of all workspaces
    #[arg(long)]
    pub(crate) all: bool,
    /// Drop a flag that the run was started with; may be given more than once
    #[arg(long, value_name = "FLAG")]
    pub(crate) unset: Vec<String>,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// Branch this session (an id, the beginning of an id, or `last`)
    pub(crate) session: String,
    /// Copy the events up to this number, as `windlass sessions show` lists them [default: all]
    #[arg(long, value_name = "SEQ")]
    pub(crate) at: Option<u64>,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args, Default, Clone)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print this format to standard output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output_format: OutputFormat,
    /// Print one JSON object at the end; the same as `-o json`
    #[arg(long, conflicts_with = "output_format")]
    pub(crate) json: bool,
    /// Print only the answer
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Also print reasoning, complete diffs and tool results
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Print text for people
    #[default]
    Text,
    /// Print one JSON object at the end
    Json,
    /// Print one JSON object for each event as it happens
    StreamJson,
}

impl OutputArgs {
    pub(crate) fn format(&self) -> OutputFormat {
        if self.json {
            OutputFormat::Json
        } else {
            self.output_format
        }
    }
}

/// Parses a pause of at most ten seconds; longer pauses look like a hang.
fn parse_pace(text: &str) -> Result<std::time::Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=10.0).contains(&seconds) => {
            Ok(std::time::Duration::from_secs_f64(seconds))
        }
        _ => Err("give seconds from 0 to 10, such as 0.5".to_owned()),
    }
}

#[derive(Debug, Args, Default)]
pub(crate) struct DemoArgs {
    /// Keep the directory of the demo
    #[arg(long)]
    pub(crate) keep: bool,
    /// Pause after each step for this long [default: 0.5 at a terminal, 0 otherwise]
    #[arg(long, value_name = "SECONDS", value_parser = parse_pace)]
    pub(crate) pace: Option<std::time::Duration>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Run the program in this directory; it may change the workspace that contains it [default: the current directory]
    #[arg(short = 'C', long = "cd", value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// Limit writes: read-only or workspace-write [default: workspace-write]
    #[arg(short, long, value_name = "LEVEL", value_parser = one_of::<SandboxLevel>())]
    pub(crate) sandbox: Option<SandboxLevel>,
    /// Allow network access: off, loopback, registries, allow:HOST,… or open [default: off]
    #[arg(long, value_name = "WHAT")]
    pub(crate) net: Option<String>,
    /// Run this program with these arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Also run a small task with each installed or named runtime and a scripted model: no key, no cost
    #[arg(long, value_name = "NAME", num_args = 0..)]
    pub(crate) probe: Option<Vec<String>>,
    /// Also list vendors without a key and agents that are not installed
    #[arg(short, long, visible_alias = "verbose", conflicts_with = "json")]
    pub(crate) all: bool,
    /// Install an AppArmor profile that lets this binary create user namespaces; prints the file and asks first
    #[arg(long, conflicts_with_all = ["json", "probe", "all"])]
    pub(crate) install_apparmor: bool,
    /// Remove the AppArmor profile
    #[arg(long, conflicts_with_all = ["json", "probe", "all", "install_apparmor"])]
    pub(crate) remove_apparmor: bool,
    /// Install or remove the AppArmor profile without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    /// Show the definition of this tool as the model gets it [default: list all tools]
    pub(crate) name: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    /// Also query remote vendors for their models
    #[arg(long)]
    pub(crate) ask: bool,
    /// Show prices per million tokens
    #[arg(long)]
    pub(crate) prices: bool,
    /// Print JSON lines instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Explain the decision of each stage of the gate about a call, without running it
    Explain(ExplainArgs),
    /// Compare decisions about calls with a table of expected ones; exit with 1 if any differs
    #[command(
        after_help = "The table is TOML:\n\n  [rules]\n  deny = [\"bash(git push *)\"]\n\n  [[case]]\n  command = \"git push origin main\"   # or tool and args\n  approval = \"auto\"                  # plan, ask, edit or auto\n  sandboxed = true                   # or false; default: as in the settings\n  expect = \"deny\"                    # allow, ask, person or deny\n  rule = \"user rule bash(git push *)\""
    )]
    Test(PolicyTestArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Judge a call of this tool
    pub(crate) tool: String,
    /// Judge these arguments: JSON, or only the command or path; `-` reads them from standard input
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CALL"
    )]
    pub(crate) words: Vec<String>,
    /// Use this approval mode: plan, ask, edit or auto [default: the mode of `run` here]
    #[arg(long, value_name = "MODE")]
    pub(crate) approval: Option<Mode>,
    /// Limit writes of commands: read-only, workspace-write, or full (no sandbox at all) [default: as for `run`]
    #[arg(short, long, value_name = "LEVEL", value_parser = one_of::<SandboxLevel>())]
    pub(crate) sandbox: Option<SandboxLevel>,
    /// Judge as for `run --in-place` [default: as for a private copy]
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Use this directory [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyTestArgs {
    /// Read rules and cases from this TOML file
    pub(crate) file: PathBuf,
    /// Use this directory [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ConfigCommand>,
    /// Show the origin of each value
    #[arg(long)]
    pub(crate) origin: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// List all keys with their meaning
    Keys,
    /// List the settings files
    Path,
    /// Print the value of a key
    Get {
        /// Print the value of this key
        key: String,
    },
    /// Set a key in the user's settings file
    Set {
        /// Set the key with this name
        key: String,
        /// Set it to this value; write lists as `a,b`
        value: String,
    },
    /// Remove a key from the user's settings file
    Unset {
        /// Remove the key with this name
        key: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// List the projects that were trusted or refused
    List {
        /// Print JSON lines instead of text
        #[arg(long)]
        json: bool,
    },
    /// Show the effect of the settings of a project
    Show {
        /// Use the project in this directory [default: the current project]
        dir: Option<PathBuf>,
    },
    /// Trust the current settings of a project
    Add {
        /// Use the project in this directory [default: the current project]
        dir: Option<PathBuf>,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
    /// Forget the decision about a project
    #[command(visible_alias = "revoke")]
    Remove {
        /// Use the project in this directory [default: the current project]
        dir: Option<PathBuf>,
    },
}

/// The commands in the order of the help, by topic.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Work", &["run", "chat", "resume", "answer"]),
    (
        "Changes",
        &["status", "diff", "land", "discard", "undo", "redo"],
    ),
    (
        "Sessions",
        &["sessions", "fork", "replay", "context", "stats"],
    ),
    ("Server", &["serve", "attach"]),
    (
        "Set-up",
        &[
            "init", "auth", "doctor", "models", "runtimes", "config", "trust", "policy", "tools",
            "prompt", "diagram",
        ],
    ),
    ("Other", &["demo", "sandbox", "completion", "debug", "help"]),
];

pub(crate) fn parse() -> Result<Cli, clap::Error> {
    parse_words(expand_print_flag(std::env::args_os()))
}

fn parse_words(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    match parse_run(&words) {
        Some(cli) => Ok(cli),
        None => <Cli>::from_arg_matches(&command().try_get_matches_from(words)?),
    }
}

/// Parses a valid `run`. Building the definitions of all commands takes longer than all other work on the command line.
/// Errors and help texts need all of them, so they give `None` here.
fn parse_run(words: &[OsString]) -> Option<Cli> {
    if words.get(1)? != "run" {
        return None;
    }
    let Cli { log_file, command } = Cli::<RunCommand>::try_parse_from(words).ok()?;
    let command = command.map(|RunCommand::Run(args)| CliCommand::Run(args));
    Some(Cli { log_file, command })
}

/// Expands a leading `-p` to `run --quiet`.
fn expand_print_flag(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words
        .get(1)
        .is_some_and(|word| word == "-p" || word == "--print")
    {
        words.splice(1..2, ["run", "--quiet"].map(OsString::from));
    }
    words
}

/// Builds the clap command, with a help text that lists the commands by group.
pub(crate) fn command() -> clap::Command {
    let command = <Cli>::command();
    let about = |name: &str| match command.find_subcommand(name) {
        Some(known) => known.get_about().map(ToString::to_string),
        None => Some("Print this message or the help of a command".to_owned()),
    };
    let mut listed = String::new();
    for (group, names) in GROUPS {
        listed.push_str(&format!("{group}:\n"));
        for name in names {
            let about = about(name).unwrap_or_default();
            listed.push_str(&format!("  {name:<11} {about}\n"));
        }
        listed.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n       windlass -p PROMPT    the same as `run --quiet`\n\n\
         {listed}Options:\n{{options}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clap_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_run_is_parsed_as_among_all_commands() {
        let check = |line: &[&str], alone: bool| {
            let words: Vec<OsString> = std::iter::once(&"windlass")
                .chain(line)
                .map(OsString::from)
                .collect();
            assert_eq!(parse_run(&words).is_some(), alone, "{line:?}");
            let all = command().try_get_matches_from(&words);
            let all = all.and_then(|found| <Cli>::from_arg_matches(&found));
            let text = |parsed: Result<Cli, clap::Error>| match parsed {
                Ok(cli) => format!("{cli:?}"),
                Err(err) => err.to_string(),
            };
            assert_eq!(text(parse_words(words)), text(all), "{line:?}");
        };
        check(&["run", "fix it"], true);
        check(
            &[
                "run",
                "--log-file",
                "log",
                "-m",
                "x/y",
                "--in-place",
                "fix",
                "it",
            ],
            true,
        );
        check(&["run", "--", "--help"], true);
        check(&["run", "--help"], false);
        check(&["run", "--no-such-flag"], false);
        check(&["--log-file", "log", "run", "fix it"], false);
        check(&["runs"], false);
        check(&["status"], false);
        check(&[], false);
    }

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let command = command();
        let known = command.get_subcommands().map(clap::Command::get_name);
        let mut known: Vec<&str> = known.chain(["help"]).collect();
        let mut listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        known.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, known);
    }

    #[test]
    fn print_is_a_quiet_run_and_only_in_front() {
        let check = |given: &[&str], expect: &[&str]| {
            let words = given.iter().map(OsString::from);
            assert_eq!(expand_print_flag(words), expect);
        };
        check(
            &["windlass", "-p", "-m", "x", "fix it"],
            &["windlass", "run", "--quiet", "-m", "x", "fix it"],
        );
        check(&["windlass", "--print"], &["windlass", "run", "--quiet"]);
        check(&["windlass", "run", "-p"], &["windlass", "run", "-p"]);
    }
}
