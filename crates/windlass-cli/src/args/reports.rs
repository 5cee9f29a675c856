//! What was typed about looking at what was done and at what is set up.

use clap::{Args, ValueEnum};

use super::{AgentArgs, ContractArgs, LimitArgs};

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Which session; the newest of this workspace without it
    pub(crate) session: Option<String>,
    /// All sessions together
    #[arg(long, conflicts_with = "session")]
    pub(crate) all: bool,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// One row for each of these
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<StatsBy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatsBy {
    /// One model call and its tools
    Step,
    /// A tool by its name
    Tool,
    /// A model by its name
    Model,
    /// One prompt to its end
    Run,
}

#[derive(Debug, Args)]
pub(crate) struct DiagramArgs {
    /// As if it worked on the tree itself, not on a copy
    #[arg(long)]
    pub(crate) in_place: bool,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) contract: ContractArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OtelArgs {
    /// Which session
    pub(crate) session: String,
    /// Also what was said
    #[arg(long)]
    pub(crate) content: bool,
}
