//! Exactly what was typed. What it means is decided in `plan` and `settings`.

mod context;
mod landing;
mod reports;
mod sessions;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use windlass::core::gate::Mode;
use windlass::core::terms::SandboxLevel;
use windlass::flags::{AgentFlags, ContractFlags, LimitFlags, one_of};

pub(crate) use self::context::{ContextArgs, PromptArgs};
pub(crate) use self::landing::{
    DiffArgs, DiscardArgs, LandArgs, RedoArgs, ReplayArgs, StatusArgs, TakeBackArgs, UndoArgs,
};
pub(crate) use self::reports::{DiagramArgs, OtelArgs, StatsArgs, StatsBy};
pub(crate) use self::sessions::{
    ExportFormat, ImportArgs, ImportFrom, SearchArgs, SessionsCommand, ShowArgs,
};

/// Run any coding agent under one contract that is enforced.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Append log lines for developers to this file (filter: `WINDLASS_LOG`)
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) log_file: Option<PathBuf>,
    /// None where nothing was typed.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Do one task and end
    Run(RunArgs),
    /// Talk with the agent, in place, prompt by prompt
    Chat(ChatArgs),
    /// Continue a session or a kept run: what is open first, then a prompt or a chat
    Resume(ResumeArgs),
    /// Answer what a run waits for, and let it go on; without an id, list what waits
    Answer(AnswerArgs),
    /// Make a new session of another, up to an event of it
    Fork(ForkArgs),
    /// List kept runs of this workspace, and what was finished or taken back after a crash
    Status(StatusArgs),
    /// Show what a kept run would change
    Diff(DiffArgs),
    /// Check a kept run once more and bring it to your tree
    Land(LandArgs),
    /// Throw a kept run away
    Discard(DiscardArgs),
    /// Take back what a run changed in your tree; what you wrote since stays
    Undo(UndoArgs),
    /// Do again what was taken back last
    Redo(RedoArgs),
    /// Play a session back from its log; nothing is run
    Replay(ReplayArgs),
    /// List, show, search, export, import and delete sessions
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Print what the model is told before the first message, or list the layers of it
    Prompt(PromptArgs),
    /// Show what fills the model's window in a session, and what a step costs
    Context(ContextArgs),
    /// What sessions came to: steps, tokens, money, time, calls, checks
    Stats(StatsArgs),
    /// Draw what is configured here, as a Mermaid diagram
    Diagram(DiagramArgs),
    /// Watch the engine do a real task on a scripted model: no key, no network
    Demo(DemoArgs),
    /// Run any program in the kernel sandbox that holds the commands of a run
    Sandbox(SandboxArgs),
    /// Check whether this machine is ready for a run, and say what to do if not
    Doctor(DoctorArgs),
    /// List the tools the model may call
    Tools(ToolsArgs),
    /// Show and change settings
    Config(ConfigArgs),
    /// Say which project settings count, by their content
    Trust {
        #[command(subcommand)]
        command: Option<TrustCommand>,
    },
    /// List vendors and models
    Models(ModelsArgs),
    /// List agents, whether they are installed, and what they can do
    Runtimes(RuntimesArgs),
    /// Show and test what calls may do
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Print a completion script for a shell
    Completion {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Look into the machinery
    #[command(subcommand)]
    Debug(DebugCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum DebugCommand {
    /// Read recorded exchanges and print what the decoders make of each, one JSON line a row
    Decode(DecodeArgs),
    /// Check the syntax of texts and print the verdict on each, one JSON line a row
    Validate(ValidateArgs),
    /// Make edits on texts and print the files after each, one JSON line a row; nothing is written
    Edit(EditArgs),
    /// Print the traces and metrics of a session as OTLP/JSON, one request a line; nothing is sent
    Otel(OtelArgs),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RuntimesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RuntimesCommand>,
    /// One JSON object for each
    #[arg(long)]
    pub(crate) json: bool,
    /// Say which one `auto` would choose for these needs, and why not each of the others: kinds of work, capabilities,
    /// features
    #[arg(long = "for", value_name = "NEED", num_args = 0.., conflicts_with = "probe")]
    pub(crate) needs: Option<Vec<String>>,
    /// List the agents of the ACP registry, which `windlass runtimes install acp:ID` installs
    #[arg(long, conflicts_with_all = ["needs", "probe", "model"])]
    pub(crate) registry: bool,
    /// Judge for this model, as `model` or `vendor/model`
    #[arg(short, long)]
    pub(crate) model: Option<String>,
    /// Let each that is found, or those named, do a small task for a scripted model, with everything around it that a
    /// run has: no key, no network, no cost
    #[arg(long, value_name = "NAME", num_args = 0..)]
    pub(crate) probe: Option<Vec<String>>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RuntimesCommand {
    /// Install agents for windlass alone: in the version they were certified with, or as the ACP registry says
    Install {
        /// Their names, as `windlass runtimes` lists them, or acp:ID, as `windlass runtimes --registry` does
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// All that were certified
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// Remove agents that were installed so
    Remove {
        /// Their names
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// JSON lines of `{id, lang, text | text_b64, name?}`, plain or gzipped; `-` is standard input
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// JSON lines of `{id, format, input{path: text}, edit}`, plain or gzipped; `-` is standard input. The format is
    /// v4a, search-replace, str-replace, udiff or whole
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// JSON lines, plain or gzipped; `-` is standard input
    pub(crate) file: PathBuf,
    /// Feed the bytes in pieces of this size
    #[arg(long, value_name = "N")]
    pub(crate) split: Option<std::num::NonZeroUsize>,
    /// Put a byte-order mark in front
    #[arg(long)]
    pub(crate) bom: bool,
    /// Use carriage return and line feed as line ends
    #[arg(long)]
    pub(crate) crlf: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What to do; `@path` attaches a file; read from standard input when piped
    pub(crate) prompt: Vec<String>,
    /// Start from this plan: the name of a kept one, `last`, or a file
    #[arg(long, value_name = "PLAN")]
    pub(crate) plan: Option<String>,
    /// Work on the tree itself, not on a copy
    #[arg(long, conflicts_with = "isolated")]
    pub(crate) in_place: bool,
    /// Work on a copy that lands when the checks pass; this is the default
    #[arg(long)]
    pub(crate) isolated: bool,
    /// Go on with the newest session of this workspace
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    pub(crate) go_on: bool,
    /// Go on with this session
    #[arg(short, long, value_name = "SESSION")]
    pub(crate) resume: Option<String>,
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
pub(crate) struct ChatArgs {
    /// Go on with the newest session of this workspace
    #[arg(short = 'c', long = "continue")]
    pub(crate) go_on: bool,
    /// Let every prompt work on a copy that lands when the checks pass
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
    /// Session (its id, the beginning of it, or `last`) or kept run; the newest session of this workspace without it
    pub(crate) session: Option<String>,
    /// What to do next; without it, a chat, or for a kept run what it was doing
    pub(crate) prompt: Vec<String>,
    /// Of what was said keep only the last so many steps, and a summary of the rest
    #[arg(long, value_name = "N", conflicts_with = "summary")]
    pub(crate) last: Option<u32>,
    /// Of what was said keep only a summary, and your own words
    #[arg(long)]
    pub(crate) summary: bool,
    /// Work on a copy that lands when the checks pass, also where the session worked in place
    #[arg(long)]
    pub(crate) isolated: bool,
    /// Work in your own tree, also where the session worked on a copy
    #[arg(long, conflicts_with = "isolated")]
    pub(crate) in_place: bool,
    /// Resume without a flag that the run was started with; may be given more than once
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
    /// Which ask; its id stands in what the run printed
    pub(crate) ask: Option<String>,
    /// yes, no with a reason if you like, always where it was offered; or the answer to a question in words
    pub(crate) words: Vec<String>,
    /// List what waits in all workspaces
    #[arg(long)]
    pub(crate) all: bool,
    /// Resume without a flag that the run was started with; may be given more than once
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
    /// Which session
    pub(crate) session: String,
    /// Up to this event, by its number; `windlass sessions show` lists them [default: all of it]
    #[arg(long, value_name = "SEQ")]
    pub(crate) at: Option<u64>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args, Default, Clone)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// What standard output gets
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output_format: Format,
    /// The same as `-o json`
    #[arg(long, conflicts_with = "output_format")]
    pub(crate) json: bool,
    /// Only the answer
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Also reasoning, whole diffs and what tools answered
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object at the end
    Json,
    /// One JSON object for each event, as it happens
    StreamJson,
}

impl OutputArgs {
    pub(crate) fn format(&self) -> Format {
        if self.json {
            Format::Json
        } else {
            self.output_format
        }
    }
}

/// At most ten seconds: longer pauses look like a hang.
fn pace(text: &str) -> Result<std::time::Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=10.0).contains(&seconds) => {
            Ok(std::time::Duration::from_secs_f64(seconds))
        }
        _ => Err("give seconds from 0 to 10, such as 0.5".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the folder the demo worked in
    #[arg(long)]
    pub(crate) keep: bool,
    /// Pause after each step, in seconds [default: 0.5 at a terminal, 0 otherwise]
    #[arg(long, value_name = "SECONDS", value_parser = pace)]
    pub(crate) pace: Option<std::time::Duration>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Where to run it; the workspace around it is what it may change
    #[arg(short = 'C', long = "cd", value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// What it may do: read-only or workspace-write [default: workspace-write]
    #[arg(short, long, value_name = "LEVEL", value_parser = one_of::<SandboxLevel>())]
    pub(crate) sandbox: Option<SandboxLevel>,
    /// What it reaches: off, loopback, registries, allow:HOST,… or open [default: off]
    #[arg(long, value_name = "WHAT")]
    pub(crate) net: Option<String>,
    /// The program and its words
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
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Also let each runtime that is found, or those named, do a small task for a scripted model: no key, no cost
    #[arg(long, value_name = "NAME", num_args = 0..)]
    pub(crate) probe: Option<Vec<String>>,
    /// Also list vendors that are not set up and agents that are not installed
    #[arg(short, long, visible_alias = "verbose", conflicts_with = "json")]
    pub(crate) all: bool,
    /// Install an AppArmor profile that lets this binary make user namespaces; shows the file and asks first
    #[arg(long, conflicts_with_all = ["json", "probe", "all"])]
    pub(crate) install_apparmor: bool,
    /// Remove that profile
    #[arg(long, conflicts_with_all = ["json", "probe", "all", "install_apparmor"])]
    pub(crate) remove_apparmor: bool,
    /// Install or remove the profile without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    /// Show this tool as the model sees it
    pub(crate) name: Option<String>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    /// Also ask vendors that are not on this machine which models they serve
    #[arg(long)]
    pub(crate) ask: bool,
    /// What they cost, for a million tokens
    #[arg(long)]
    pub(crate) prices: bool,
    /// As JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// What each stage of the gate says about a call; nothing is run
    Explain(ExplainArgs),
    /// Hold a table of calls against the verdicts they must have; exit code 1 when one is decided otherwise
    #[command(
        after_help = "The table is TOML:\n\n  [rules]\n  deny = [\"bash(git push *)\"]\n\n  [[case]]\n  command = \"git push origin main\"   # or tool and args\n  approval = \"auto\"                  # plan, ask, edit or auto\n  sandboxed = true                   # or false; as the settings say without it\n  expect = \"deny\"                    # allow, ask, person or deny\n  rule = \"user rule bash(git push *)\""
    )]
    Test(PolicyTestArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Which tool
    pub(crate) tool: String,
    /// Its arguments as JSON, or the command or path alone; `-` reads them from standard input
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CALL"
    )]
    pub(crate) words: Vec<String>,
    /// Judge in this mode: plan, ask, edit or auto [default: the one that `run` would use here]
    #[arg(long, value_name = "MODE")]
    pub(crate) approval: Option<Mode>,
    /// What commands may do: read-only, workspace-write, or full (no sandbox at all) [default: as for `run`]
    #[arg(short, long, value_name = "LEVEL", value_parser = one_of::<SandboxLevel>())]
    pub(crate) sandbox: Option<SandboxLevel>,
    /// As for `run --in-place`, and not on a private copy
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Work in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyTestArgs {
    /// A TOML file with rules and cases
    pub(crate) file: PathBuf,
    /// Work in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ConfigCommand>,
    /// Where each value came from
    #[arg(long)]
    pub(crate) origin: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// All keys there are, with what they do
    Keys,
    /// The files that are read
    Path,
    /// The value of one key
    Get {
        /// Which
        key: String,
    },
    /// Set a key in the user's file
    Set {
        /// Which
        key: String,
        /// To what; lists are given as `a,b`
        value: String,
    },
    /// Remove a key from the user's file
    Unset {
        /// Which
        key: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// Every project that was trusted or refused
    List {
        /// As JSON lines
        #[arg(long)]
        json: bool,
    },
    /// What the settings of a project would change
    Show {
        /// The project [default: this one]
        dir: Option<PathBuf>,
    },
    /// Trust the settings of a project, as they are now
    Add {
        /// The project [default: this one]
        dir: Option<PathBuf>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Forget what was said about a project
    #[command(visible_alias = "revoke")]
    Remove {
        /// The project [default: this one]
        dir: Option<PathBuf>,
    },
}

/// The commands of the help, by the group in which a user looks for them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Work", &["run", "chat", "resume", "answer"]),
    (
        "Changes",
        &["status", "diff", "land", "discard", "undo", "redo"],
    ),
    (
        "Sessions",
        &["sessions", "fork", "replay", "context", "stats"],
    ),
    (
        "Set-up",
        &[
            "doctor", "models", "runtimes", "config", "trust", "policy", "tools", "prompt",
            "diagram",
        ],
    ),
    ("Other", &["demo", "sandbox", "completion", "debug", "help"]),
];

pub(crate) fn parse() -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(typed(std::env::args_os()))?)
}

/// The words that were typed, with `-p` for a task of which only the answer is printed.
fn typed(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words
        .get(1)
        .is_some_and(|word| word == "-p" || word == "--print")
    {
        words.splice(1..2, ["run", "--quiet"].map(OsString::from));
    }
    words
}

/// The commands, with a help that lists them by group.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
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
    fn the_commands_fit_together() {
        command().debug_assert();
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
            assert_eq!(typed(words), expect);
        };
        check(
            &["windlass", "-p", "-m", "x", "fix it"],
            &["windlass", "run", "--quiet", "-m", "x", "fix it"],
        );
        check(&["windlass", "--print"], &["windlass", "run", "--quiet"]);
        check(&["windlass", "run", "-p"], &["windlass", "run", "-p"]);
    }
}
