//! Arguments of `prompt` and `context`.

use std::path::PathBuf;

use clap::Args;

use windlass::flags::AgentFlags;

#[derive(Debug, Args)]
pub(crate) struct PromptArgs {
    /// List the instruction layers instead: file, size, and omitted parts with the reason
    #[arg(long)]
    pub(crate) layers: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the prompt of an in-place run [default: of an isolated run]
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Use this profile of the settings [default: no profile]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Use this check; may be given more than once [default: detected checks]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) validate: Vec<String>,
    /// Use this directory [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
}

impl PromptArgs {
    /// Converts the arguments to the flags of a run.
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
    /// Show this session (an id, the beginning of an id, or `last`) [default: the newest of this workspace]
    pub(crate) session: Option<String>,
    /// Show the request after the event with this number [default: the last event]
    #[arg(long, value_name = "N")]
    pub(crate) at: Option<u64>,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Use this directory [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
}
