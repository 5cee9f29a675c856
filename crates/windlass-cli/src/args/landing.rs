//! What was typed about checks, landing, kept runs, and taking back.

use std::path::PathBuf;

use clap::Args;
use windlass::flags::ContractFlags;

use super::OutputArgs;

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Of all workspaces
    #[arg(long)]
    pub(crate) all: bool,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Look in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Which kept run; the newest of this workspace without it
    pub(crate) name: Option<String>,
    /// Only names and counts
    #[arg(long)]
    pub(crate) stat: bool,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Look in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct LandArgs {
    /// Which kept run; the newest of this workspace without it
    pub(crate) name: Option<String>,
    /// Work in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) contract: ContractFlags,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiscardArgs {
    /// Which kept run
    pub(crate) name: String,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Only this run, such as `r2` [default: the last one that changed something]
    #[arg(long, value_name = "RUN", conflicts_with_all = ["call", "to"])]
    pub(crate) run: Option<String>,
    /// Only this call
    #[arg(long, value_name = "CALL", conflicts_with = "to")]
    pub(crate) call: Option<String>,
    /// Everything after this event, by its number
    #[arg(long, value_name = "SEQ")]
    pub(crate) to: Option<u64>,
    /// Also make a commit that takes back the commit of the run
    #[arg(long)]
    pub(crate) revert_commit: bool,
    /// Do not ask before an older run than the newest is undone
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) how: TakeBackArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RedoArgs {
    #[command(flatten)]
    pub(crate) how: TakeBackArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TakeBackArgs {
    /// In this session [default: the newest of this workspace with something to take back]
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Only show what would change
    #[arg(long)]
    pub(crate) preview: bool,
    /// Leave out files that cannot be taken back, instead of changing nothing
    #[arg(long)]
    pub(crate) partly: bool,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Work in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Which session
    pub(crate) session: String,
    /// Only this run
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
