//! Arguments of `sessions` and its subcommands.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List sessions, newest first
    List {
        /// Print JSON lines instead of text
        #[arg(long)]
        json: bool,
        /// List at most this many sessions
        #[arg(short = 'n', long, default_value_t = 50)]
        limit: usize,
    },
    /// Show the events of a session
    Show(ShowArgs),
    /// Search the prompts, answers, calls and results of all sessions
    Search(SearchArgs),
    /// Export a session to a file
    Export {
        /// Export this session (an id, the beginning of an id, or `last`)
        session: String,
        /// Write the session in this format
        #[arg(long, default_value = "jsonl")]
        format: ExportFormat,
        /// Write to this new file, or for `trace` to this new directory [default: standard output]
        #[arg(long, value_name = "PATH")]
        to: Option<PathBuf>,
    },
    /// Import a session from an export, or from a session file of Claude Code or Codex
    Import(ImportArgs),
    /// Repair a damaged session: keep its events before the damage, and a copy of the original file
    Salvage {
        /// Repair this session (an id, the beginning of an id, or `last`)
        session: String,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Delete kept runs that are too old or too large, and print the reason for each
    Gc {
        /// Print what would be deleted without deleting it
        #[arg(long)]
        dry_run: bool,
        /// Delete kept runs that are older than this many days
        #[arg(long, value_name = "N", default_value_t = 30)]
        days: u64,
        /// Delete the oldest kept runs until the rest fits into this many megabytes
        #[arg(long, value_name = "N", default_value_t = 10_240)]
        megabytes: u64,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Delete a session and its artifacts permanently
    Delete {
        /// Delete this session (an id, the beginning of an id, or `last`)
        session: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
    /// Delete all sessions of this workspace permanently
    Clear {
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
        /// Use the workspace that contains this directory [default: the current directory]
        #[arg(short = 'C', long, value_name = "DIR")]
        cd: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Show this session (an id, the beginning of an id, or `last`)
    pub(crate) session: String,
    /// Print the raw events as JSON lines
    #[arg(long)]
    pub(crate) json: bool,
    /// Show only this run, such as r2
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Start at the event with this number
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    pub(crate) from: u64,
}

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// Search for this text, ignoring case
    pub(crate) text: String,
    /// Match upper and lower case exactly
    #[arg(long)]
    pub(crate) case: bool,
    /// Print at most this many matches
    #[arg(short = 'n', long, default_value_t = 100)]
    pub(crate) limit: usize,
    /// Print JSON lines instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Import the session in this file
    pub(crate) file: PathBuf,
    /// Treat the file as this kind
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) from: ImportFrom,
    /// Assign the session to the workspace that contains this directory [default: the one that the file names]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFrom {
    /// Detect the kind from the content
    Auto,
    /// Read an export of windlass
    Windlass,
    /// Read a session file of Claude Code
    Claude,
    /// Read a rollout file of Codex
    Codex,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Write the events, one per line
    Jsonl,
    /// Write the conversation as Markdown
    Markdown,
    /// Write the conversation as one self-contained page
    Html,
    /// Write decisions, answers, commands and changes as JSON lines, with hashes and sizes in place of content
    Audit,
    /// Write a directory with one file for each prompt, answer, call and result
    Trace,
}
