//! Arguments of `serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServeArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ServeCommand>,
    /// Listen on this address [default: 127.0.0.1]
    #[arg(
        long,
        value_name = "IP",
        default_value = "127.0.0.1",
        hide_default_value = true
    )]
    pub(crate) bind: IpAddr,
    /// Listen on this port; 0 for any free port [default: 8080]
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8080,
        hide_default_value = true
    )]
    pub(crate) port: u16,
    /// Allow workspaces in this directory; may be given more than once [default: the current workspace]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Vec<PathBuf>,
    /// Limit the number of concurrent runs [default: 16]
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        hide_default_value = true
    )]
    pub(crate) max_runs: usize,
    /// Limit the cost of all runs together in US dollars [default: unlimited]
    #[arg(long, value_name = "USD")]
    pub(crate) budget_usd: Option<f64>,
    /// Leave prompts that were queued before the start in their queues
    #[arg(long)]
    pub(crate) keep_queued: bool,
    /// Continue runs that a crash interrupted, with a new run on their copy [default: close them]
    #[arg(long)]
    pub(crate) resume_interrupted: bool,
    /// Read requests from standard input and write replies to standard output, as JSON-RPC lines
    #[arg(long, conflicts_with_all = ["print_url", "tls_cert", "behind_proxy"])]
    pub(crate) stdio: bool,
    /// Print a one-time login link for a browser, of this server or of the one that runs already
    #[arg(long)]
    pub(crate) print_url: bool,
    /// Accept requests for this host name; may be given more than once [default: localhost and the address]
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Let pages of this origin use the server; may be given more than once [default: none]
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) origin: Vec<String>,
    /// Serve TLS with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Use this private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// State that a reverse proxy in front of the server encrypts the connections
    #[arg(long)]
    pub(crate) behind_proxy: bool,
    /// Limit the requests of one token per second [default: 200]
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200,
        hide_default_value = true
    )]
    pub(crate) max_requests: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServeCommand {
    /// Add, list and revoke tokens
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Add a token and print its secret, which is not stored
    Add {
        /// The name of the token, which appears in answers and the audit
        name: String,
        /// Give this right: read, approve, run or admin; may be given more than once
        #[arg(long, value_name = "SCOPE", required = true)]
        scope: Vec<String>,
        /// Limit the token to this workspace; may be given more than once [default: all of the server]
        #[arg(long, value_name = "DIR")]
        workspace: Vec<PathBuf>,
        /// Limit the cost of all runs of the token in US dollars [default: unlimited]
        #[arg(long, value_name = "USD")]
        budget_usd: Option<f64>,
        /// Limit the cost of each run in US dollars [default: the settings]
        #[arg(long, value_name = "USD")]
        max_budget_usd: Option<f64>,
        /// Set the loosest approval mode of runs: plan, ask, edit or auto [default: the settings]
        #[arg(long, value_name = "MODE")]
        approval: Option<windlass::core::gate::Mode>,
        /// Set the widest network access of runs, as `--net` [default: the settings]
        #[arg(long, value_name = "WHAT")]
        net: Option<String>,
        /// Let runs change only paths that match this glob; may be given more than once [default: all]
        #[arg(long, value_name = "GLOB")]
        write_path: Vec<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// List tokens with their rights and spending
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token
    Revoke {
        /// The name of the token
        name: String,
    },
}
