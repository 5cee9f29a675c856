//! What was typed about looking at what was done and at what is set up.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use windlass::core::gate::Mode;
use windlass::core::terms::SandboxLevel;
use windlass::flags::{AgentFlags, ContractFlags, LimitFlags, one_of};

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
    /// With this profile
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// With this model, as `model` or `vendor/model`
    #[arg(short, long)]
    pub(crate) model: Option<String>,
    /// With this vendor
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// With another address of that vendor
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// With a scripted model
    #[arg(long, value_name = "FILE", conflicts_with_all = ["provider", "base_url"])]
    pub(crate) script: Option<PathBuf>,
    /// As freely as this: plan, ask, edit or auto
    #[arg(long, value_name = "MODE")]
    pub(crate) approval: Option<Mode>,
    /// With commands held like this: read-only, workspace-write or full
    #[arg(short, long, value_name = "LEVEL", value_parser = one_of::<SandboxLevel>())]
    pub(crate) sandbox: Option<SandboxLevel>,
    /// With commands that reach this
    #[arg(long, value_name = "WHAT")]
    pub(crate) net: Option<String>,
    /// With these checks
    #[arg(long, value_name = "COMMAND")]
    pub(crate) validate: Vec<String>,
    /// In this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
}

impl DiagramArgs {
    /// The same as the flags of a run.
    pub(crate) fn of_a_run(&self) -> (AgentFlags, ContractFlags) {
        let agent = AgentFlags {
            profile: self.profile.clone(),
            model: self.model.clone(),
            provider: self.provider.clone(),
            base_url: self.base_url.clone(),
            script: self.script.clone(),
            approval: self.approval,
            sandbox: self.sandbox,
            net: self.net.clone(),
            cd: self.cd.clone(),
            ..AgentFlags::default()
        };
        (
            agent,
            ContractFlags {
                validate: self.validate.clone(),
                ..ContractFlags::default()
            },
        )
    }
}

#[derive(Debug, Args)]
pub(crate) struct OtelArgs {
    /// Which session
    pub(crate) session: String,
    /// Also what was said
    #[arg(long)]
    pub(crate) content: bool,
}
