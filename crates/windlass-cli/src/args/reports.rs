//! Arguments of `stats`, `diagram` and `debug otel`.

use std::path::PathBuf;

use clap::Args;

use windlass::core::gate::Mode;
use windlass::core::terms::SandboxLevel;
use windlass::flags::{AgentFlags, ContractFlags, LimitFlags, one_of};
use windlass::stats::StatsBy;

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Report this session (an id, the beginning of an id, or `last`) [default: the newest of this workspace]
    pub(crate) session: Option<String>,
    /// Report the total of all sessions
    #[arg(long, conflicts_with = "session")]
    pub(crate) all: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Print one row per step, tool, model, run, day or agent [default: totals only]
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<StatsBy>,
}

#[derive(Debug, Args)]
pub(crate) struct DiagramArgs {
    /// Draw an in-place run [default: an isolated run]
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Use this profile of the settings [default: no profile]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Use this model, as `model` or `vendor/model` [default: the model of the settings]
    #[arg(short, long)]
    pub(crate) model: Option<String>,
    /// Use this vendor [default: the vendor of the model]
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// Use another address of that vendor
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Use a scripted model from this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["provider", "base_url"])]
    pub(crate) script: Option<PathBuf>,
    /// Use this approval mode: plan, ask, edit or auto [default: as for `run`]
    #[arg(long, value_name = "MODE")]
    pub(crate) approval: Option<Mode>,
    /// Limit writes of commands: read-only, workspace-write or full [default: workspace-write]
    #[arg(short, long, value_name = "LEVEL", value_parser = one_of::<SandboxLevel>())]
    pub(crate) sandbox: Option<SandboxLevel>,
    /// Allow commands this network access [default: as for `run`]
    #[arg(long, value_name = "WHAT")]
    pub(crate) net: Option<String>,
    /// Use this check; may be given more than once [default: detected checks]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) validate: Vec<String>,
    /// Use this directory [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
}

impl DiagramArgs {
    /// Converts the arguments to the flags of a run.
    pub(crate) fn run_flags(&self) -> (AgentFlags, ContractFlags) {
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
    /// Print this session (an id, the beginning of an id, or `last`)
    pub(crate) session: String,
    /// Also include the conversation
    #[arg(long)]
    pub(crate) content: bool,
}
