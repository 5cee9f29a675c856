//! Arguments of `attach`, and of `run --server`.

use std::path::PathBuf;

use clap::Args;

use super::OutputArgs;

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Use the server at this address [default: the server of this user on this machine]
    pub(crate) url: Option<String>,
    /// Follow the session with this id [default: the newest session]
    pub(crate) session: Option<String>,
    /// Read the token of the server from this file [default: `WINDLASS_TOKEN`, or the token of the server on this machine]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// Run on the server at this address, and follow the run; Ctrl-C detaches
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Read the token of the server from this file [default: `WINDLASS_TOKEN`, or the token of the server on this machine]
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) token_file: Option<PathBuf>,
}
