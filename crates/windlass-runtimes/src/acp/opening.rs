//! How a conversation with an agent begins: its program is started in its place and pointed at its model, and it says
//! what it can do, signs in, and has its modes and settings as a person wants them. What cannot be had as it was asked
//! for ends the try here, with what there is instead.

use std::path::Path;
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema as wire;
use agent_client_protocol::v1::schema::{
    AuthMethod, AuthenticateRequest, ClientCapabilities, FileSystemCapabilities, Implementation,
    InitializeRequest, InitializeResponse, ListSessionsRequest, LoadSessionRequest,
    NewSessionRequest, ResumeSessionRequest, SessionConfigKind, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigSelectOptions, SessionModeState,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass_core::enclosure::Launch;
use windlass_core::runtime::RuntimeError;

use super::options::Setting;
use super::talk::{Phase, Talk, Waited};
use super::words::{clean, clip};
use super::{Acp, Live};
use crate::agent::{End, ModelAccess, Visit};
use crate::filling::Values;
use crate::mcp_server::Reached;
use crate::rpc::Rpc;

/// How long an agent may take for each step before its first turn.
const PATIENCE: Duration = Duration::from_secs(120);
/// The error by which an agent says that it wants to be signed in.
const NOT_SIGNED_IN: i64 = -32000;

/// Why there is no conversation: an end of the try, or of the run.
enum Failed {
    End(End),
    Run(RuntimeError),
}

impl From<RuntimeError> for Failed {
    fn from(err: RuntimeError) -> Self {
        Self::Run(err)
    }
}

fn broken<T>(why: String) -> Result<T, Failed> {
    Err(Failed::End(End::Broken(why)))
}

/// Starts the agent and begins its conversation.
pub(super) async fn open<'a>(
    acp: &'a Acp,
    visit: &'a Visit<'a>,
) -> Result<Result<Live, End>, RuntimeError> {
    match opened(acp, visit).await {
        Ok(live) => Ok(Ok(live)),
        Err(Failed::End(end)) => Ok(Err(end)),
        Err(Failed::Run(err)) => Err(err),
    }
}

async fn opened<'a>(acp: &'a Acp, visit: &'a Visit<'a>) -> Result<Live, Failed> {
    let launch = launch(acp, visit)?;
    let inmate = match visit.place.start(launch).await {
        Ok(inmate) => inmate,
        Err(err) => return broken(format!("{} could not be started: {}", acp.name, err.0)),
    };
    let mut live = Live::new(Rpc::new(inmate), &acp.kinds);
    let mut talk = Talk::new(
        &mut live,
        visit,
        acp.clock.as_ref(),
        &acp.name,
        acp.serves(),
    );
    let hello: InitializeResponse = step(acp, &mut talk, "initialize", &greeting(acp)).await?;
    if hello.protocol_version != ProtocolVersion::V1 {
        return broken(format!(
            "{} speaks version {} of the protocol; 1 is spoken here",
            acp.name, hello.protocol_version
        ));
    }
    talk.live.agent = hello
        .agent_info
        .as_ref()
        .map(|agent| clip(&clean(&agent.name), 80).into_owned())
        .unwrap_or_default();
    sign_in(acp, &mut talk, &hello.auth_methods).await?;
    let servers = servers(acp, &hello)?;
    let session = session(acp, visit, &mut talk, &hello, servers).await?;
    visit.began(Some(&talk.live.session)).await?;
    set_up(acp, visit, &mut talk, session).await?;
    Ok(live)
}

/// What to start, and how it is pointed at its model.
fn launch(acp: &Acp, visit: &Visit<'_>) -> Result<Launch, Failed> {
    with_values(acp, visit, |values| launch_with(acp, visit, values))
}

/// What the words in braces stand for in this try.
fn with_values<T>(acp: &Acp, visit: &Visit<'_>, use_them: impl FnOnce(&Values<'_>) -> T) -> T {
    let (url, key) = match &visit.model {
        ModelAccess::Metered { url, key } => (Some(url.as_str()), Some(key.as_str())),
        ModelAccess::Own => (None, None),
    };
    let (home, workspace) = (
        visit.place.home().to_string_lossy(),
        visit.job.files.root().to_string_lossy(),
    );
    let words = acp.profile.words_for(acp.dialect);
    use_them(&Values {
        url,
        key,
        model: acp.model.as_deref(),
        home: &home,
        workspace: &workspace,
        words,
    })
}

fn launch_with(acp: &Acp, visit: &Visit<'_>, values: &Values<'_>) -> Result<Launch, Failed> {
    let options = &acp.options;
    // Left out without a word is only what belongs to a model endpoint that this run does not have.
    let filled = |what: &str, text: &str| match values.fill(text) {
        Some(text) => Ok(Some(text)),
        None if acp.model.is_none() && text.contains("{model}") => broken(format!(
            "{what} of {} needs the name of a model; name one",
            acp.name
        )),
        None => Ok(None),
    };
    let mut argv = Vec::new();
    for word in &acp.argv {
        match filled("the command", word)? {
            Some(word) => argv.push(word),
            None => {
                return broken(format!(
                    "the command of {} names the model endpoint, and this run has none",
                    acp.name
                ));
            }
        }
    }
    let mut env: Vec<(String, String)> = Vec::new();
    let profile = acp.profile.env.iter().map(|(name, text)| (*name, *text));
    let pointing: Vec<(&str, &str)> = match &options.point_at {
        Some(own) => own
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect(),
        None => acp.profile.point_at.to_vec(),
    };
    let pointing = pointing.into_iter().filter(|_| values.url.is_some());
    let own = options
        .env
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    for (name, text) in profile.chain(pointing).chain(own) {
        if let Some(text) = filled(name, text)? {
            env.retain(|(known, _)| known != name);
            env.push((name.to_owned(), text));
        }
    }
    let steered_by = acp
        .profile
        .steered_by
        .iter()
        .copied()
        .chain(options.steered_by.iter().map(String::as_str));
    for path in steered_by {
        if let Err(err) = visit.place.clear(path) {
            return broken(format!(
                "what was left in the home of {} could not be removed: {err}",
                acp.name
            ));
        }
    }
    let files = acp
        .profile
        .home_files
        .iter()
        .map(|(path, text)| (*path, *text));
    let own = options
        .home_files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()));
    for (path, text) in files.chain(own) {
        if let Some(text) = filled(path, text)?
            && let Err(err) = visit.place.put(path, text.as_bytes())
        {
            return broken(format!(
                "{path} could not be put into the home of {}: {err}",
                acp.name
            ));
        }
    }
    Ok(Launch {
        argv,
        env,
        workdir: String::new(),
    })
}

fn greeting(acp: &Acp) -> InitializeRequest {
    let serves = acp.serves();
    let fs = FileSystemCapabilities::new()
        .read_text_file(serves.fs)
        .write_text_file(serves.fs);
    let capabilities = ClientCapabilities::new().fs(fs).terminal(serves.terminal);
    let us =
        Implementation::new("windlass", env!("CARGO_PKG_VERSION")).title("Windlass".to_owned());
    InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(capabilities)
        .client_info(us)
}

/// One step, which the agent has to take.
async fn step<T: DeserializeOwned>(
    acp: &Acp,
    talk: &mut Talk<'_, '_>,
    method: &str,
    params: &(impl serde::Serialize + Sync),
) -> Result<T, Failed> {
    let answer = match talk
        .ask(method, params, Phase::Opening, Some(PATIENCE))
        .await?
    {
        Waited::Answer(answer) => answer,
        Waited::Error(err) => {
            return broken(format!(
                "{} refused `{method}`: {} ({})",
                acp.name,
                clip(&clean(&err.in_words()), 500),
                err.code
            ));
        }
        Waited::Gone(end) => return Err(Failed::End(end)),
    };
    match serde_json::from_value(answer) {
        Ok(answer) => Ok(answer),
        Err(err) => broken(format!(
            "{} answered `{method}` with what is not the protocol's: {err}",
            acp.name
        )),
    }
}

async fn sign_in(acp: &Acp, talk: &mut Talk<'_, '_>, methods: &[AuthMethod]) -> Result<(), Failed> {
    let wanted = acp.options.auth_method.as_deref();
    let Some(method) = wanted.or(acp.profile.auth_method) else {
        return Ok(());
    };
    match methods.iter().find(|known| *known.id().0 == *method) {
        Some(known) => {
            let _: Value = step(
                acp,
                talk,
                "authenticate",
                &AuthenticateRequest::new(known.id().clone()),
            )
            .await?;
            Ok(())
        }
        // One that is signed in already offers none.
        None if wanted.is_none() => Ok(()),
        None => broken(format!(
            "{} has no way `{method}` to sign in; {}",
            acp.name,
            ways(methods)
        )),
    }
}

fn ways(methods: &[AuthMethod]) -> String {
    let ways: Vec<String> = methods
        .iter()
        .map(|method| format!("`{}`", clip(&clean(&method.id().0), 80)))
        .collect();
    there_is(&ways)
}

fn there_is(what: &[String]) -> String {
    match what {
        [] => "it has none".to_owned(),
        some => format!("there is {}", some[..some.len().min(50)].join(", ")),
    }
}

/// The MCP servers in the agent's words, when it takes such.
fn servers(acp: &Acp, hello: &InitializeResponse) -> Result<Vec<wire::McpServer>, Failed> {
    let takes = &hello.agent_capabilities.mcp_capabilities;
    let mut servers = Vec::new();
    for (name, server) in &acp.options.mcp_servers {
        let reached = match server.reached() {
            Ok(reached) => reached,
            Err(why) => return broken(format!("`mcp_servers.{name}` {why}")),
        };
        let headers = || {
            server
                .headers
                .iter()
                .map(|(name, value)| wire::HttpHeader::new(name, value))
                .collect()
        };
        servers.push(match reached {
            Reached::Program(command) => {
                let env = server
                    .env
                    .iter()
                    .map(|(name, value)| wire::EnvVariable::new(name, value))
                    .collect();
                wire::McpServer::Stdio(
                    wire::McpServerStdio::new(name, command)
                        .args(server.args.clone())
                        .env(env),
                )
            }
            Reached::Remote { url, sse: false } if takes.http => {
                wire::McpServer::Http(wire::McpServerHttp::new(name, url).headers(headers()))
            }
            Reached::Remote { url, sse: true } if takes.sse => {
                wire::McpServer::Sse(wire::McpServerSse::new(name, url).headers(headers()))
            }
            Reached::Remote { sse, .. } => {
                let over = if sse { "SSE" } else { "HTTP" };
                return broken(format!(
                    "{} takes no MCP server over {over}, so `{name}` cannot be used",
                    acp.name
                ));
            }
        });
    }
    Ok(servers)
}

/// What the agent is told beside the protocol as a session begins.
fn session_meta(acp: &Acp, visit: &Visit<'_>) -> Result<Option<wire::Meta>, Failed> {
    let Some(text) = acp
        .options
        .session_meta
        .as_deref()
        .or(acp.profile.session_meta)
    else {
        return Ok(None);
    };
    with_values(acp, visit, |values| match values.fill(text) {
        Some(text) => match serde_json::from_str(&text) {
            Ok(meta) => Ok(Some(meta)),
            Err(err) => broken(format!(
                "`session_meta` of {} is no JSON object: {err}",
                acp.name
            )),
        },
        None => broken(format!(
            "`session_meta` of {} names what this run does not have",
            acp.name
        )),
    })
}

/// Begins a conversation, or goes on with the one that the log names. What the agent says of its modes and settings.
async fn session(
    acp: &Acp,
    visit: &Visit<'_>,
    talk: &mut Talk<'_, '_>,
    hello: &InitializeResponse,
    servers: Vec<wire::McpServer>,
) -> Result<Value, Failed> {
    let cwd = visit.job.files.root().to_path_buf();
    let meta = session_meta(acp, visit)?;
    if let Some(id) = visit.resume.clone() {
        let can = &hello.agent_capabilities;
        talk.live.session.clone_from(&id);
        let elsewhere = acp.profile.keeps_directory
            && can.session_capabilities.list.is_some()
            && !is_in(talk, &id, &cwd).await?;
        let waited = if elsewhere {
            None
        } else if can.session_capabilities.resume.is_some() {
            let params = ResumeSessionRequest::new(id, cwd.clone())
                .mcp_servers(servers.clone())
                .meta(meta.clone());
            Some(
                talk.ask("session/resume", &params, Phase::Opening, Some(PATIENCE))
                    .await?,
            )
        } else if can.load_session {
            let params = LoadSessionRequest::new(id, cwd.clone())
                .mcp_servers(servers.clone())
                .meta(meta.clone());
            Some(
                talk.ask("session/load", &params, Phase::Opening, Some(PATIENCE))
                    .await?,
            )
        } else {
            None
        };
        let why = match waited {
            Some(Waited::Answer(session)) => return Ok(session),
            Some(Waited::Gone(end)) => return Err(Failed::End(end)),
            Some(Waited::Error(err)) => format!("it says: {}", clip(&clean(&err.in_words()), 300)),
            None if elsewhere => {
                "the earlier one began in another directory and stays there".to_owned()
            }
            None => "it cannot go on with an earlier one".to_owned(),
        };
        talk.live.session.clear();
        talk.live.forgot = true;
        talk.live.warnings.push((
            "not_resumed",
            format!("{} begins a new conversation: {why}", acp.name),
        ));
    }
    let params = NewSessionRequest::new(cwd).mcp_servers(servers).meta(meta);
    let session: Value = match talk
        .ask("session/new", &params, Phase::Opening, Some(PATIENCE))
        .await?
    {
        Waited::Answer(session) => session,
        Waited::Gone(end) => return Err(Failed::End(end)),
        Waited::Error(err) if err.code == NOT_SIGNED_IN => {
            return broken(format!(
                "{} wants to be signed in ({}): set `auth_method`; {}",
                acp.name,
                clip(&clean(&err.in_words()), 300),
                ways(&hello.auth_methods)
            ));
        }
        Waited::Error(err) => {
            return broken(format!(
                "{} refused `session/new`: {}",
                acp.name,
                clip(&clean(&err.in_words()), 500)
            ));
        }
    };
    match session["sessionId"].as_str() {
        Some(id) if !id.is_empty() && id.len() <= 1_000 => id.clone_into(&mut talk.live.session),
        _ => return broken(format!("{} answered `session/new` without an id", acp.name)),
    }
    Ok(session)
}

/// Whether the agent lists a conversation among those of a directory. If it gives no list, it has to say so when the
/// conversation is resumed.
async fn is_in(talk: &mut Talk<'_, '_>, id: &str, cwd: &Path) -> Result<bool, Failed> {
    let params = ListSessionsRequest::new().cwd(cwd.to_path_buf());
    match talk
        .ask("session/list", &params, Phase::Opening, Some(PATIENCE))
        .await?
    {
        Waited::Answer(answer) => {
            let mut listed = answer["sessions"].as_array().into_iter().flatten();
            Ok(listed.any(|one| {
                one["sessionId"] == id && one["cwd"].as_str().is_some_and(|at| Path::new(at) == cwd)
            }))
        }
        Waited::Error(_) => Ok(true),
        Waited::Gone(end) => Err(Failed::End(end)),
    }
}

/// Sets what a person wants set: settings, the model, the mode.
async fn set_up(
    acp: &Acp,
    visit: &Visit<'_>,
    talk: &mut Talk<'_, '_>,
    session: Value,
) -> Result<(), Failed> {
    let mut settings = settings_in(&session);
    for (id, value) in &acp.options.config_options {
        let Some(setting) = settings.iter().find(|known| *known.id.0 == **id).cloned() else {
            let ids: Vec<String> = settings
                .iter()
                .map(|known| format!("`{}`", known.id.0))
                .collect();
            return broken(format!(
                "{} has no setting `{id}`; {}",
                acp.name,
                there_is(&ids)
            ));
        };
        let chosen = match (&setting.kind, value) {
            (SessionConfigKind::Boolean(_), Setting::Switch(on)) => {
                json!({ "type": "boolean", "value": on })
            }
            // Settings that come as words have no other way to say it.
            (SessionConfigKind::Boolean(_), Setting::Choice(on))
                if on == "true" || on == "false" =>
            {
                json!({ "type": "boolean", "value": on == "true" })
            }
            (SessionConfigKind::Select(_), Setting::Choice(name)) => {
                json!({ "value": choice(acp, &setting, name)? })
            }
            (SessionConfigKind::Boolean(_), _) => {
                return broken(format!(
                    "the setting `{id}` of {} is true or false",
                    acp.name
                ));
            }
            _ => {
                return broken(format!(
                    "the setting `{id}` of {} is one of several; name one",
                    acp.name
                ));
            }
        };
        settings = set(acp, talk, &setting, chosen).await?.unwrap_or(settings);
    }
    if let Some(model) = acp
        .model
        .as_deref()
        .filter(|_| !acp.names_model(matches!(visit.model, ModelAccess::Own)))
    {
        let setting = settings
            .iter()
            .find(|known| known.category == Some(SessionConfigOptionCategory::Model))
            .cloned();
        match setting {
            Some(setting) => {
                let chosen = json!({ "value": choice(acp, &setting, model)? });
                settings = set(acp, talk, &setting, chosen).await?.unwrap_or(settings);
            }
            None => legacy_model(acp, talk, &session["models"], model).await?,
        }
    }
    let Some(mode) = acp.options.mode.as_deref().or(acp.profile.mode) else {
        return Ok(());
    };
    let modes: Option<SessionModeState> = serde_json::from_value(session["modes"].clone()).ok();
    if let Some(modes) = modes.filter(|modes| !modes.available_modes.is_empty()) {
        let known = modes
            .available_modes
            .iter()
            .map(|mode| (&*mode.id.0, mode.name.as_str()));
        let id = one_of(acp, "mode", mode, known)?;
        let params = json!({ "sessionId": talk.live.session, "modeId": id });
        let _: Value = step(acp, talk, "session/set_mode", &params).await?;
        return Ok(());
    }
    match settings
        .iter()
        .find(|known| known.category == Some(SessionConfigOptionCategory::Mode))
        .cloned()
    {
        Some(setting) => {
            let chosen = json!({ "value": choice(acp, &setting, mode)? });
            set(acp, talk, &setting, chosen).await?;
            Ok(())
        }
        None => broken(format!(
            "{} has no modes, so it cannot work in `{mode}`",
            acp.name
        )),
    }
}

fn settings_in(session: &Value) -> Vec<SessionConfigOption> {
    let all = session["configOptions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    // One of a kind that is not known here is not one that could be set.
    all.iter()
        .filter_map(|one| serde_json::from_value(one.clone()).ok())
        .collect()
}

/// Sets one setting; what there is then, where the agent says so.
async fn set(
    acp: &Acp,
    talk: &mut Talk<'_, '_>,
    setting: &SessionConfigOption,
    chosen: Value,
) -> Result<Option<Vec<SessionConfigOption>>, Failed> {
    let mut params = json!({ "sessionId": talk.live.session, "configId": setting.id.0 });
    if let (Value::Object(params), Value::Object(chosen)) = (&mut params, chosen) {
        params.extend(chosen);
    }
    let answer: Value = step(acp, talk, "session/set_config_option", &params).await?;
    Ok(answer["configOptions"]
        .is_array()
        .then(|| settings_in(&answer)))
}

fn choice(acp: &Acp, setting: &SessionConfigOption, wanted: &str) -> Result<String, Failed> {
    let SessionConfigKind::Select(select) = &setting.kind else {
        return broken(format!(
            "the setting `{}` of {} has no values to choose from",
            setting.id.0, acp.name
        ));
    };
    let all: Vec<(&str, &str)> = match &select.options {
        SessionConfigSelectOptions::Ungrouped(all) => all
            .iter()
            .map(|one| (&*one.value.0, one.name.as_str()))
            .collect(),
        SessionConfigSelectOptions::Grouped(groups) => groups
            .iter()
            .flat_map(|group| &group.options)
            .map(|one| (&*one.value.0, one.name.as_str()))
            .collect(),
        _ => Vec::new(),
    };
    one_of(acp, &setting.id.0, wanted, all.into_iter())
}

/// The model of an agent that has its list where the protocol once had it.
async fn legacy_model(
    acp: &Acp,
    talk: &mut Talk<'_, '_>,
    models: &Value,
    wanted: &str,
) -> Result<(), Failed> {
    let known = models["availableModels"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if known.is_empty() {
        // Who serves it is chosen all the same, and what it asks for is in the log.
        let text = format!(
            "{} does not let its model be chosen, and may use another than `{wanted}`",
            acp.name
        );
        talk.live.warnings.push(("model_not_chosen", text));
        return Ok(());
    }
    let known: Vec<(&str, &str)> = known
        .iter()
        .filter_map(|one| {
            one["modelId"]
                .as_str()
                .map(|id| (id, one["name"].as_str().unwrap_or_default()))
        })
        .collect();
    let id = one_of(acp, "model", wanted, known.into_iter())?;
    if models["currentModelId"].as_str() == Some(id.as_str()) {
        return Ok(());
    }
    let params = json!({ "sessionId": talk.live.session, "modelId": id });
    let _: Value = step(acp, talk, "session/set_model", &params).await?;
    Ok(())
}

/// The one that is wanted, by its id or its name.
fn one_of<'s>(
    acp: &Acp,
    what: &str,
    wanted: &str,
    known: impl Iterator<Item = (&'s str, &'s str)> + Clone,
) -> Result<String, Failed> {
    let by_id = known.clone().find(|(id, _)| *id == wanted);
    if let Some((id, _)) = by_id.or_else(|| {
        known
            .clone()
            .find(|(_, name)| name.eq_ignore_ascii_case(wanted))
    }) {
        return Ok(id.to_owned());
    }
    let all: Vec<String> = known
        .map(|(id, _)| format!("`{}`", clip(&clean(id), 80)))
        .collect();
    broken(format!(
        "{} has no {what} `{wanted}`; {}",
        acp.name,
        there_is(&all)
    ))
}
