//! What is typed to see what a model is given.

use std::path::PathBuf;

use clap::Args;

use windlass::flags::AgentFlags;

#[derive(Debug, Args)]
pub(crate) struct PromptArgs {
    /// List each layer instead: its file, its size, and what was left out and why
    #[arg(long)]
    pub(crate) layers: bool,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// As for work on the tree itself, not on a copy
    #[arg(long)]
    pub(crate) in_place: bool,
    /// With this profile of the settings
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// With this check; may be given more than once
    #[arg(long, value_name = "COMMAND")]
    pub(crate) validate: Vec<String>,
    /// Work in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
}

impl PromptArgs {
    /// The same as flags of a run.
    pub(crate) fn agent(&self) -> AgentFlags {
        AgentFlags {
            profile: self.profile.clone(),
            cd: self.cd.clone(),
            ..AgentFlags::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ContextArgs {
    /// Which session [default: the newest of this workspace]
    pub(crate) session: Option<String>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Work in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
}
