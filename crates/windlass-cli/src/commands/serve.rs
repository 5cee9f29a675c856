//! `serve`: serves sessions over HTTP or as JSON lines, and manages the tokens of the server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use windlass::core::workspace::Files;
use windlass_http::{HttpOptions, HttpServer, TlsFiles};
use windlass_service::{
    Caller, Input, Problem, Reply, Request, Service, ServiceOptions, ServiceRole, operation,
    serve_lines, server_dir,
};
use windlass_text::sanitize::one_line;

use crate::args::{ServeArgs, ServeCommand, TokenCommand};
use crate::command_error::CommandError;
use crate::exit;
use crate::out::{self, say};
use crate::process;

/// Runs a future on several threads: a server has many sessions.
fn block_on_threads<T>(
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(work);
    // A blocking call that never returns must not keep the process alive.
    runtime.shutdown_background();
    result
}

pub(super) fn run(args: &ServeArgs) -> Result<ExitCode, CommandError> {
    match &args.command {
        Some(ServeCommand::Token(command)) => block_on_threads(token(args, command)),
        None if args.stdio => block_on_threads(stdio(args)),
        None => block_on_threads(http(args)),
    }
}

async fn open_service(args: &ServeArgs, role: ServiceRole) -> Result<Service, CommandError> {
    let roots = match args.root.is_empty() {
        true => vec![process::open_workspace(None)?.root().to_path_buf()],
        false => args.root.clone(),
    };
    if args
        .budget_usd
        .is_some_and(|usd| !usd.is_finite() || usd <= 0.0)
    {
        return Err(CommandError::usage(
            "`--budget-usd` must be a number above zero",
        ));
    }
    let options = ServiceOptions {
        max_runs: args.max_runs,
        budget_usd: args.budget_usd,
        run_queued: !args.keep_queued,
        resume_interrupted: args.resume_interrupted,
        role,
        notices: process::notices(),
        roots,
        ..ServiceOptions::new(process::environment(), PathBuf::new())
    };
    Ok(Service::open(options).await?)
}

async fn stdio(args: &ServeArgs) -> Result<ExitCode, CommandError> {
    let service = open_service(args, ServiceRole::Private).await?;
    let stop = stop_signal()?;
    let lines = serve_lines(&service, tokio::io::stdin(), tokio::io::stdout());
    let done = tokio::select! {
        done = lines => done,
        () = stop.cancelled() => Ok(()),
    };
    service.close().await;
    done?;
    Ok(ExitCode::SUCCESS)
}

async fn http(args: &ServeArgs) -> Result<ExitCode, CommandError> {
    let places = process::places()?;
    if args.print_url && RunningServer::find(&server_dir(&places)).is_some() {
        let settings = process::load_settings(None)?;
        let link = super::attach::connect(&settings, None, None)?
            .login_link()
            .await?;
        out::out(&format!("{link}\n"));
        return Ok(exit::after_output(0));
    }
    let service = open_service(args, ServiceRole::Main).await?;
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    let options = HttpOptions {
        hosts: args.host.clone(),
        origins: args.origin.clone(),
        tls: tls.map(|(cert, key)| TlsFiles { cert, key }),
        behind_proxy: args.behind_proxy,
        requests_per_second: args.max_requests,
        ..HttpOptions::new(SocketAddr::new(args.bind, args.port))
    };
    let server = HttpServer::bind(service.clone(), options)
        .await
        .map_err(|err| CommandError::usage(err.to_string()).hint(err.hint()))?;
    let stop = stop_signal()?;
    let url = server.url();
    let address_file = AddressFile::write(&server_dir(&places), &url)?;
    say!("listening on {url}");
    say!(
        "the token is in {}",
        server_dir(&places).join("token").display()
    );
    if args.print_url {
        let ticket = service.login_ticket()?;
        out::out(&format!("{url}/login?ticket={ticket}\n"));
    } else {
        say!(
            "hint: `windlass serve --print-url` prints a login link for a browser; {url}/docs describes the interface"
        );
    }
    server.serve(stop).await;
    drop(address_file);
    say!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Cancelled by SIGTERM, SIGINT or SIGHUP.
fn stop_signal() -> Result<CancellationToken, CommandError> {
    use tokio::signal::unix::{SignalKind, signal};
    let stop = CancellationToken::new();
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        let (mut received, stop) = (signal(kind)?, stop.clone());
        tokio::spawn(async move {
            if received.recv().await.is_some() {
                say!("stopping: runs pause at a safe point");
                stop.cancel();
            }
        });
    }
    Ok(stop)
}

/// The file that tells other commands the address of the running server. It is removed when the server stops.
struct AddressFile(PathBuf);

impl AddressFile {
    fn write(dir: &Path, url: &str) -> Result<Self, CommandError> {
        let path = dir.join("address.json");
        let text = json!({ "url": url, "pid": std::process::id() }).to_string();
        std::fs::write(&path, text)?;
        Ok(Self(path))
    }
}

impl Drop for AddressFile {
    fn drop(&mut self) {
        // The lock of the server is held until after this.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The server of this user that runs in another process.
pub(super) struct RunningServer {
    pub(super) url: String,
}

impl RunningServer {
    pub(super) fn find(dir: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(dir.join("address.json")).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        let pid = value["pid"].as_u64()?;
        let url = value["url"].as_str()?.to_owned();
        Path::new(&format!("/proc/{pid}"))
            .exists()
            .then_some(Self { url })
    }
}

/// Calls an operation as the user of this machine, and returns its reply.
async fn call(service: &Service, name: &str, params: Value) -> Result<Value, CommandError> {
    let map = match params {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let Some(operation) = operation(name) else {
        return Err(CommandError::failed(format!(
            "there is no operation `{name}`"
        )));
    };
    let request = Request {
        caller: Caller::owner(),
        input: Input::Json(map),
        key: None,
    };
    match service.call(operation, request).await? {
        Reply::Json(text) => Ok(serde_json::from_str(&text).unwrap_or_default()),
        Reply::Bytes(_) => Ok(Value::Null),
    }
}

async fn token(args: &ServeArgs, command: &TokenCommand) -> Result<ExitCode, CommandError> {
    let service = open_service(args, ServiceRole::Tool).await?;
    match command {
        TokenCommand::Add {
            name,
            scope,
            workspace,
            budget_usd,
            max_budget_usd,
            approval,
            net,
            write_path,
            json,
        } => {
            let mut workspaces = Vec::new();
            for dir in workspace {
                workspaces.push(process::open_workspace(Some(dir))?.root().to_path_buf());
            }
            let params = json!({
                "name": name,
                "scopes": scope,
                "workspaces": (!workspaces.is_empty()).then_some(workspaces),
                "budget_usd": budget_usd,
                "ceiling": {
                    "approval": approval,
                    "net": net,
                    "max_budget_usd": max_budget_usd,
                    "write_paths": (!write_path.is_empty()).then_some(write_path),
                },
            });
            let added = call(&service, "tokens.add", params).await?;
            if *json {
                out::json(&added);
            } else {
                out::out(&format!(
                    "{}\n",
                    added["secret"].as_str().unwrap_or_default()
                ));
                say!("the secret is not stored; send it as `Authorization: Bearer SECRET`");
            }
        }
        TokenCommand::List { json } => {
            let tokens = call(&service, "tokens.list", Value::Null).await?;
            if *json {
                out::json(&tokens);
            } else {
                list_tokens(&tokens);
            }
        }
        TokenCommand::Revoke { name } => {
            call(&service, "tokens.revoke", json!({ "name": name })).await?;
            say!("revoked {}", one_line(name));
        }
    }
    Ok(exit::after_output(0))
}

fn list_tokens(tokens: &Value) {
    let rows = tokens.as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        say!("there are no named tokens; `windlass serve token add NAME --scope read` adds one");
    }
    for row in rows {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let scopes: Vec<_> = row["scopes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let budget = match row["budget_usd"].as_f64() {
            Some(budget) => format!(" of ${budget}"),
            None => String::new(),
        };
        out::out(&format!(
            "{:<20} {:<28} ${:.2}{budget}  since {}\n",
            one_line(&text("name")),
            scopes.join(", "),
            row["spent_usd"].as_f64().unwrap_or_default(),
            text("created").get(..10).unwrap_or_default(),
        ));
    }
}

impl From<Problem> for CommandError {
    fn from(problem: Problem) -> Self {
        let code = match problem.code.status() {
            400..=499 => exit::USAGE,
            _ => exit::FAILED,
        };
        let error = Self::new(code, problem.detail);
        match problem.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}
