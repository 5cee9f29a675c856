//! `attach` and `run --server`: sessions of a server, with the views of a local run.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;
use windlass::core::event::EventKind;
use windlass::core::message::Message;
use windlass::core::workspace::Files;
use windlass::flags::{AgentFlags, AskPolicy, ContractFlags, LimitFlags};
use windlass::settings::Settings;
use windlass::{model, wire};
use windlass_client::{Client, ClientError, PromptRequest};
use windlass_service::{RunRequest, server_dir};
use windlass_text::sanitize::message;

use super::block_on;
use super::serve::RunningServer;
use crate::args::{AttachArgs, OutputFormat, RunArgs};
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::process;
use crate::remote_run::{RemoteEnd, RemoteRun};
use crate::session_run::{can_answer, session_id};

/// The variable with the token of a server.
const TOKEN: &str = "WINDLASS_TOKEN";
/// Maximum size of the file with a token, and of a schema, in bytes.
const MAX_FILE: u64 = 16 << 20;

pub(super) fn run(args: &AttachArgs) -> Result<ExitCode, CommandError> {
    // A session needs no address before it.
    let (url, session) = match (&args.url, &args.session) {
        (Some(word), None) if !word.contains("://") => (None, Some(word.clone())),
        (url, session) => (url.clone(), session.clone()),
    };
    let settings = process::load_settings(None)?;
    let client = connect(&settings, url.as_deref(), args.token_file.as_deref())?;
    let id = block_on(async {
        Ok(match session {
            Some(session) => session_id(&session)?,
            None => client.newest().await?.ok_or_else(|| {
                CommandError::usage("the server has no sessions")
                    .hint("`windlass run --server URL PROMPT` starts one")
            })?,
        })
    })?;
    if super::interface::is_available(&args.output) {
        return super::interface::attach(&settings, client, id);
    }
    block_on(async {
        let state = client.session(&id).await?;
        let mut remote = RemoteRun::new(client, id, &settings, &args.output, false)?;
        let end = remote.attach(&state).await?;
        Ok(match end {
            RemoteEnd::Finished(outcome) => exit::after_output(exit::code(Some(&outcome))),
            RemoteEnd::NoRun | RemoteEnd::Detached => exit::after_output(0),
            RemoteEnd::Asked(_) => exit::after_output(exit::ASKED),
        })
    })
}

/// `run --server`: creates a session on a server and follows its run.
pub(super) fn run_on_server(args: &RunArgs, url: &str) -> Result<ExitCode, CommandError> {
    let mut options = run_request(args)?;
    let answers = can_answer();
    if !answers && options.on_ask.is_none() {
        // As in a local run.
        let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
        options.on_ask = Some(if in_ci {
            AskPolicy::Deny
        } else {
            AskPolicy::Pause
        });
    }
    let pauses = !answers && options.on_ask == Some(AskPolicy::Pause);
    let structured = options.json_schema.is_some();
    let settings = process::load_settings(None)?;
    block_on(async {
        let client = connect(&settings, Some(url), args.server.token_file.as_deref())?;
        // Only a server on this machine has the same directories.
        let here = is_local(client.url());
        let root = match here {
            true => Some(process::open_workspace(args.agent.cd.as_deref())?),
            false => process::open_workspace(None).ok(),
        };
        let words = crate::prompt_text::prompt_text(&args.prompt)?;
        let prompt = match &root {
            Some(root) => model::prompt(words, root, &process::notices())?,
            None if words.trim().is_empty() => {
                return Err(CommandError::usage("there is no prompt"));
            }
            None => Message::user(words),
        };
        let prompt = PromptRequest {
            options: serde_json::to_value(&options).unwrap_or_default(),
            ..PromptRequest::of(&prompt)
        };
        let (id, queued) = match &args.resume {
            Some(session) => {
                let id = session_id(session)?;
                let queued = client.queue(&id, &prompt).await?.queued;
                (id, queued)
            }
            None => {
                let workspace = match (&root, &args.agent.cd) {
                    (Some(root), _) if here => Some(root.root().display().to_string()),
                    (_, cd) => cd.as_ref().map(|dir| dir.display().to_string()),
                };
                let created = client.create(workspace.as_deref(), &prompt).await?;
                let queued = created.queued.map_or(0, |queued| queued.queued);
                (created.id, queued)
            }
        };
        let mut remote = RemoteRun::new(client, id, &settings, &args.output, structured)?;
        remote.pauses = pauses;
        remote.options = prompt.options;
        let end = remote.follow_prompt(queued).await?;
        Ok(match end {
            RemoteEnd::Finished(outcome) => exit::after_output(exit::code(Some(&outcome))),
            RemoteEnd::NoRun => exit::after_output(exit::USAGE),
            RemoteEnd::Detached => exit::after_output(exit::INTERRUPTED),
            RemoteEnd::Asked(ask) => {
                if args.output.format() == OutputFormat::Text {
                    remote.print_pause(&ask);
                }
                exit::after_output(exit::ASKED)
            }
        })
    })
}

/// The options of a run for a server. A flag that a server cannot take is an error.
fn run_request(args: &RunArgs) -> Result<RunRequest, CommandError> {
    // Without `..`, so that the compiler asks about each new flag.
    let AgentFlags {
        profile,
        runtime,
        model,
        provider,
        base_url,
        script,
        record,
        cassette,
        auth,
        metering,
        accept_ungated,
        fallback,
        cd: _,
        approval,
        yes,
        sandbox,
        net,
        reasoning_effort,
        json_schema,
        on_ask,
    } = args.agent.clone();
    let LimitFlags {
        max_budget_usd,
        max_steps,
        max_tokens,
        max_seconds,
    } = args.limits.clone();
    let ContractFlags {
        validate,
        commit,
        patch,
        land_anyway,
        require_changes,
        strict_judge,
        keep_ignored,
        accept_preexisting,
        write_path,
        max_iterations,
    } = args.contract.clone();
    let unavailable = [
        ("--plan", args.plan.is_some()),
        ("--continue", args.continue_newest),
        ("--provider", provider.is_some()),
        ("--base-url", base_url.is_some()),
        ("--script", script.is_some()),
        ("--record", record.is_some()),
        ("--cassette", cassette.is_some()),
        ("--auth", auth.is_some()),
        ("--metering", metering.is_some()),
        ("--accept-ungated", accept_ungated),
        ("--fallback", fallback),
        ("--yes", yes),
        ("--patch", patch.is_some()),
    ];
    if let Some((flag, _)) = unavailable.iter().find(|(_, given)| *given) {
        return Err(
            CommandError::usage(format!("`{flag}` is not available with `--server`"))
                .hint("omit it, or set it in the settings of the server"),
        );
    }
    let in_place = match (args.in_place, args.isolated) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    };
    Ok(RunRequest {
        profile,
        runtime,
        model,
        approval,
        sandbox,
        net,
        on_ask,
        reasoning_effort,
        json_schema: json_schema.as_deref().map(schema).transpose()?,
        max_budget_usd,
        max_steps,
        max_tokens,
        max_seconds,
        max_iterations,
        validate,
        commit,
        require_changes,
        strict_judge,
        keep_ignored,
        accept_preexisting,
        land_anyway,
        write_paths: write_path,
        in_place,
        kept: None,
    })
}

/// The value of `--json-schema`: the schema itself, or the path of a file.
fn schema(given: &str) -> Result<Value, CommandError> {
    let text = match given.trim_start().starts_with('{') {
        true => given.to_owned(),
        false => wire::read_text(Path::new(given), MAX_FILE, "the schema")?,
    };
    serde_json::from_str(&text)
        .map_err(|err| CommandError::usage(format!("--json-schema is not JSON: {err}")))
}

/// Connects to the server at this address, or to the one of this user on this machine.
pub(super) fn connect(
    settings: &Settings,
    url: Option<&str>,
    token_file: Option<&Path>,
) -> Result<Client, CommandError> {
    let dir = server_dir(&settings.places);
    let running = RunningServer::find(&dir).map(|server| server.url);
    let url = match (url, &running) {
        (Some(url), _) => url.trim_end_matches('/').to_owned(),
        (None, Some(url)) => url.clone(),
        (None, None) => {
            return Err(
                CommandError::usage("no server of yours runs on this machine")
                    .hint("start one with `windlass serve`, or name the address of another one"),
            );
        }
    };
    let own_token = (running.as_deref() == Some(url.as_str())).then(|| dir.join("token"));
    let token = token(token_file, own_token)?;
    if url.starts_with("http://") && !is_local(&url) {
        say!(
            "warning: the connection to {} is not encrypted",
            message(&url)
        );
    }
    let options = wire::http_options(settings)?;
    Ok(Client::new(options, &url, token.into())?)
}

fn token(file: Option<&Path>, own: Option<PathBuf>) -> Result<String, CommandError> {
    let variable = || {
        let value = std::env::var(TOKEN).ok()?;
        (!value.trim().is_empty()).then_some(value)
    };
    let text = match (file, variable(), own) {
        (Some(file), _, _) => wire::read_text(file, MAX_FILE, "the token")?,
        (None, Some(value), _) => value,
        (None, None, Some(own)) => wire::read_text(&own, MAX_FILE, "the token")?,
        (None, None, None) => {
            return Err(CommandError::usage("the server needs a token").hint(format!(
                "set {TOKEN}, or give `--token-file FILE`; `windlass serve token add` makes one on the server"
            )));
        }
    };
    Ok(text.trim().to_owned())
}

/// Whether an address is on the loopback interface.
fn is_local(url: &str) -> bool {
    let host = url.split("://").nth(1).unwrap_or_default();
    let host = host.split('/').next().unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether an event says that a queued prompt was refused.
pub(crate) fn refusal_of(kind: &EventKind, queued: u64) -> Option<&str> {
    match kind {
        EventKind::Warned { code, text } if code == "prompt_refused" => text
            .starts_with(&format!("the queued prompt {queued} "))
            .then_some(text),
        _ => None,
    }
}

impl From<ClientError> for CommandError {
    fn from(err: ClientError) -> Self {
        match err {
            ClientError::Refused {
                status,
                detail,
                hint,
            } => {
                let code = if status < 500 {
                    exit::USAGE
                } else {
                    exit::FAILED
                };
                let error = Self::new(code, detail);
                match hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                }
            }
            ClientError::Usage(text) => Self::usage(text),
            err => Self::failed(err.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_local() {
        for local in [
            "http://127.0.0.1:8080",
            "http://localhost/",
            "http://[::1]:1",
        ] {
            assert!(is_local(local), "{local}");
        }
        for remote in [
            "http://127.0.0.1.example",
            "https://example.com:8080",
            "http://10.0.0.1",
        ] {
            assert!(!is_local(remote), "{remote}");
        }
    }
}
