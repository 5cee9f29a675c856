//! What was typed about sessions.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// All sessions, newest first
    List {
        /// As JSON lines
        #[arg(long)]
        json: bool,
        /// At most so many
        #[arg(short = 'n', long, default_value_t = 50)]
        limit: usize,
    },
    /// What happened in a session
    Show(ShowArgs),
    /// Find words in prompts, answers, calls and results of all sessions
    Search(SearchArgs),
    /// A session as a file
    Export {
        /// Which
        session: String,
        /// The form
        #[arg(long, default_value = "jsonl")]
        format: ExportFormat,
        /// Where to: a new file, or for `trace` a new folder; standard output without it
        #[arg(long, value_name = "PATH")]
        to: Option<PathBuf>,
    },
    /// Take a session in from a file: our own export, or a session file of Claude Code or Codex
    Import(ImportArgs),
    /// Make a damaged session usable again: its events up to the damage; the file as it was is kept beside it
    Salvage {
        /// Which
        session: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Throw away what is kept too long or takes too much: kept runs, and bytes kept for undo. Says what and why
    Gc {
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
        /// Kept runs may be so many days old
        #[arg(long, value_name = "N", default_value_t = 30)]
        days: u64,
        /// Kept runs may take so many megabytes together
        #[arg(long, value_name = "N", default_value_t = 10_240)]
        megabytes: u64,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a session and its artifacts for good
    Delete {
        /// Which
        session: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Remove all sessions of this workspace for good
    Clear {
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        /// Of the workspace around this directory
        #[arg(short = 'C', long, value_name = "DIR")]
        cd: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Which
    pub(crate) session: String,
    /// The events themselves, as JSON lines
    #[arg(long)]
    pub(crate) json: bool,
    /// Only this run, such as r2
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// From this event on
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    pub(crate) from: u64,
}

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// What to find; upper and lower case are the same
    pub(crate) text: String,
    /// Upper and lower case are not the same
    #[arg(long)]
    pub(crate) case: bool,
    /// At most so many hits
    #[arg(short = 'n', long, default_value_t = 100)]
    pub(crate) limit: usize,
    /// As JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file
    pub(crate) file: PathBuf,
    /// What the file is
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) from: ImportFrom,
    /// The session is about the workspace around this directory [default: the one that the file names]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// Say what came of it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFrom {
    /// Told by what it holds
    Auto,
    /// Our own export
    Windlass,
    /// A session file of Claude Code
    Claude,
    /// A rollout file of Codex
    Codex,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// The events, one a line
    Jsonl,
    /// The conversation, for reading
    Markdown,
    /// The conversation as one page that needs nothing else
    Html,
    /// Who did what, one JSON object a line: decisions, answers, commands, changes; no content, but its hash and size
    Audit,
    /// A folder of prompts, answers, calls and results, a file for each
    Trace,
}
