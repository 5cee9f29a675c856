//! Arguments of the commands for the first start: `init` and `auth`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::OutputFormat;

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Use the project in this directory [default: the current project]
    #[arg(short = 'C', long = "cd", value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// Replace the settings file of the project; an instruction file is never replaced
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the files without writing them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print this format to standard output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output_format: OutputFormat,
    /// Print one JSON object; the same as `-o json`
    #[arg(long, conflicts_with = "output_format")]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// List keys and logins with their origin, without the keys
    List {
        /// Print JSON lines instead of text
        #[arg(long)]
        json: bool,
    },
    /// Store the key of a vendor, or sign in to an agent with its own login
    Login {
        /// Use this vendor of `windlass models`, or this agent of `windlass runtimes`
        name: String,
        /// Ask the vendor whether it accepts the key, before it is stored
        #[arg(long)]
        check: bool,
    },
    /// Remove the key of a vendor from the credentials file
    #[command(visible_alias = "logout")]
    Remove {
        /// Remove the key of this vendor
        name: String,
    },
}
