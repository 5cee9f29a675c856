//! Arguments of the commands for kept runs, landing, undo, redo and replay.

use std::path::PathBuf;

use clap::Args;
use windlass::flags::ContractFlags;

use super::OutputArgs;

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// List the kept runs of all workspaces
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Use this directory [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Show this kept run [default: the newest of this workspace]
    pub(crate) name: Option<String>,
    /// Show only file names and line counts
    #[arg(long)]
    pub(crate) stat: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Use this directory [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct LandArgs {
    /// Apply this kept run [default: the newest of this workspace]
    pub(crate) name: Option<String>,
    /// Use this directory [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) contract: ContractFlags,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiscardArgs {
    /// Delete this kept run
    pub(crate) name: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Undo this run, such as `r2` [default: the last run that changed files]
    #[arg(long, value_name = "RUN", conflicts_with_all = ["call", "to"])]
    pub(crate) run: Option<String>,
    /// Undo only this call
    #[arg(long, value_name = "CALL", conflicts_with = "to")]
    pub(crate) call: Option<String>,
    /// Undo all changes after the event with this number
    #[arg(long, value_name = "SEQ")]
    pub(crate) to: Option<u64>,
    /// Also create a commit that reverts the commit of the run
    #[arg(long)]
    pub(crate) revert_commit: bool,
    /// Do not ask before undoing a run that is not the newest
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) common: UndoRedoArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RedoArgs {
    #[command(flatten)]
    pub(crate) common: UndoRedoArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UndoRedoArgs {
    /// Use this session [default: the newest of this workspace with an undoable change]
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Show the changes without making them
    #[arg(long)]
    pub(crate) preview: bool,
    /// Skip files that cannot be undone [default: change nothing if one cannot]
    #[arg(long)]
    pub(crate) partly: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Use this directory [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Replay this session (an id, the beginning of an id, or `last`)
    pub(crate) session: String,
    /// Replay only this run
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Play the session in the terminal interface at its own pace, or SPEED times as fast [default: print it at once]
    #[arg(long, value_name = "SPEED", num_args = 0..=1, default_missing_value = "1", conflicts_with = "run", value_parser = speed)]
    pub(crate) play: Option<f64>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if (0.01..=1_000.0).contains(&speed) => Ok(speed),
        _ => Err("use a number from 0.01 to 1000".to_owned()),
    }
}
