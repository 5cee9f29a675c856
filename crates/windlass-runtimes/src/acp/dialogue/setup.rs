//! The setup of a conversation over ACP: initialize, authenticate, start or resume a session, and apply the user's
//! settings, model and mode. If one of them is not available, the attempt ends with a message that lists the
//! alternatives.

use std::path::Path;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AuthenticateRequest, InitializeResponse, ListSessionsRequest, LoadSessionRequest,
    NewSessionRequest, ResumeSessionRequest, SessionConfigOption, SessionConfigOptionCategory,
    SessionModeState,
};
use serde_json::{Value, json};

use super::{AUTH_REQUIRED, AcpDialogue, AcpRequest};
use crate::acp::session::{
    find_id, list_available, login_methods, parse_settings, select_value, servers, setting_value,
};
use crate::acp::text::{clean, clip};
use crate::agent::TurnEndReason;
use crate::dialogue::{DialogueOutput, OutputQueue};
use crate::services::ServiceReply;

impl AcpDialogue {
    /// Handles the response to the open request, and sends the next one.
    pub(super) fn on_response(&mut self, result: ServiceReply, out: &mut OutputQueue) {
        if self.open_request == AcpRequest::Prompt {
            return self.on_prompt_response(result, out);
        }
        if let Err(why) = self.advance(result, out) {
            self.end_turn(TurnEndReason::Broken(why), out);
        }
    }

    fn advance(&mut self, result: ServiceReply, out: &mut OutputQueue) -> Result<(), String> {
        let (name, method) = (self.setup.name.clone(), self.request_info.1);
        let result = match (self.open_request, result) {
            (AcpRequest::List, result) => return self.on_session_list(result, out),
            (AcpRequest::Resume, Ok(session)) => return self.on_session(session, out),
            (AcpRequest::Resume, Err(err)) => {
                let why = format!("the agent reports: {}", clip(&clean(&err.in_words()), 300));
                return self.not_resumed(&why, out);
            }
            (AcpRequest::New, Err(err)) if err.code == AUTH_REQUIRED => {
                let methods = self
                    .handshake
                    .as_ref()
                    .map(|handshake| &handshake.auth_methods[..]);
                return Err(format!(
                    "{name} requires a login ({}): set `auth_method`; {}",
                    clip(&clean(&err.in_words()), 300),
                    login_methods(methods.unwrap_or_default())
                ));
            }
            (AcpRequest::New, Err(err)) => {
                let why = clip(&clean(&err.in_words()), 500).into_owned();
                return Err(format!("{name} refused `session/new`: {why}"));
            }
            (_, Err(err)) => {
                return Err(format!(
                    "{name} refused `{method}`: {} ({})",
                    clip(&clean(&err.in_words()), 500),
                    err.code
                ));
            }
            (_, Ok(result)) => result,
        };
        match self.open_request {
            AcpRequest::Initialize => {
                let handshake: InitializeResponse =
                    serde_json::from_value(result).map_err(|err| {
                        format!("the answer of {name} to `{method}` is invalid: {err}")
                    })?;
                self.on_initialized(handshake, out)
            }
            AcpRequest::Authenticate => self.begin_session(out),
            AcpRequest::New => {
                let id = result["sessionId"].as_str();
                match id.filter(|id| !id.is_empty() && id.len() <= 1_000) {
                    Some(id) => id.clone_into(&mut self.session),
                    None => return Err(format!("{name} answered `session/new` without an id")),
                }
                self.on_session(result, out)
            }
            AcpRequest::Config(at) => {
                self.set(&result);
                self.configure(at + 1, out)
            }
            AcpRequest::Model => {
                self.set(&result);
                self.set_mode(out)
            }
            _ => {
                self.send_prompt(out);
                Ok(())
            }
        }
    }

    /// Checks the agent's capabilities, and authenticates if necessary.
    fn on_initialized(
        &mut self,
        handshake: InitializeResponse,
        out: &mut OutputQueue,
    ) -> Result<(), String> {
        let name = &self.setup.name;
        if handshake.protocol_version != ProtocolVersion::V1 {
            return Err(format!(
                "{name} speaks version {} of the protocol; Windlass supports version 1",
                handshake.protocol_version
            ));
        }
        let reported_name = handshake.agent_info.as_ref();
        let reported_name = reported_name.map(|agent| clip(&clean(&agent.name), 80).into_owned());
        let known_as = self.setup.options.calls_itself.clone();
        self.agent = known_as.or(reported_name).unwrap_or_default();
        let wanted = self.setup.options.auth_method.as_deref();
        let method = wanted.or(self.setup.profile.auth_method);
        let known = handshake
            .auth_methods
            .iter()
            .find(|known| method.is_some_and(|method| *known.id().0 == *method))
            .map(|known| known.id().clone());
        // An agent that is logged in already offers no methods.
        if let (Some(method), None) = (wanted, &known) {
            return Err(format!(
                "{name} has no login method `{method}`; {}",
                login_methods(&handshake.auth_methods)
            ));
        }
        self.handshake = Some(handshake);
        match known {
            Some(id) => {
                let params = AuthenticateRequest::new(id);
                self.ask(AcpRequest::Authenticate, "authenticate", &params, out);
                Ok(())
            }
            None => self.begin_session(out),
        }
    }

    /// Resumes the conversation that the log names, or starts a new one.
    fn begin_session(&mut self, out: &mut OutputQueue) -> Result<(), String> {
        let Some(id) = self.setup.resume.clone() else {
            return self.new_session(out);
        };
        self.session = id;
        let lists = self.handshake.as_ref().is_some_and(|handshake| {
            let can = &handshake.agent_capabilities.session_capabilities;
            can.list.is_some()
        });
        if self.setup.profile.keeps_directory && lists {
            let params = ListSessionsRequest::new().cwd(self.setup.root.clone());
            self.ask(AcpRequest::List, "session/list", &params, out);
            return Ok(());
        }
        self.resume(out)
    }

    /// Resumes the conversation if the agent lists it for this directory. An agent that fails to list sessions reports
    /// a missing one when it resumes.
    fn on_session_list(
        &mut self,
        result: ServiceReply,
        out: &mut OutputQueue,
    ) -> Result<(), String> {
        let here = |one: &Value| {
            one["sessionId"] == self.session
                && one["cwd"]
                    .as_str()
                    .is_some_and(|at| Path::new(at) == self.setup.root)
        };
        let listed = result.map_or(true, |answer| {
            let mut all = answer["sessions"].as_array().into_iter().flatten();
            all.any(here)
        });
        if listed {
            return self.resume(out);
        }
        let why = "the earlier one belongs to another directory";
        self.not_resumed(why, out)
    }

    fn resume(&mut self, out: &mut OutputQueue) -> Result<(), String> {
        let Some(handshake) = &self.handshake else {
            return Ok(());
        };
        let can = &handshake.agent_capabilities;
        let (resumes, loads) = (can.session_capabilities.resume.is_some(), can.load_session);
        let servers = servers(&self.setup, handshake)?;
        let (id, cwd) = (self.session.clone(), self.setup.root.clone());
        let meta = self.setup.meta.clone();
        if resumes {
            let params = ResumeSessionRequest::new(id, cwd)
                .mcp_servers(servers)
                .meta(meta);
            self.ask(AcpRequest::Resume, "session/resume", &params, out);
            Ok(())
        } else if loads {
            let params = LoadSessionRequest::new(id, cwd)
                .mcp_servers(servers)
                .meta(meta);
            self.ask(AcpRequest::Resume, "session/load", &params, out);
            Ok(())
        } else {
            self.not_resumed("it cannot resume an earlier one", out)
        }
    }

    fn not_resumed(&mut self, why: &str, out: &mut OutputQueue) -> Result<(), String> {
        self.session.clear();
        self.session_lost = true;
        let text = format!("{} starts a new conversation: {why}", self.setup.name);
        self.warnings.push(("not_resumed", text));
        self.new_session(out)
    }

    fn new_session(&mut self, out: &mut OutputQueue) -> Result<(), String> {
        let Some(handshake) = &self.handshake else {
            return Ok(());
        };
        let params = NewSessionRequest::new(self.setup.root.clone())
            .mcp_servers(servers(&self.setup, handshake)?)
            .meta(self.setup.meta.clone());
        self.ask(AcpRequest::New, "session/new", &params, out);
        Ok(())
    }

    /// Handles the response that starts a session, and applies the user's settings, model and mode.
    fn on_session(&mut self, session: Value, out: &mut OutputQueue) -> Result<(), String> {
        self.open = true;
        out.push(DialogueOutput::SessionStarted(Some(self.session.clone())));
        self.settings = parse_settings(&session);
        self.session_info = session;
        self.configure(0, out)
    }

    /// Updates the known settings, if the response contains them.
    fn set(&mut self, answer: &Value) {
        if answer["configOptions"].is_array() {
            self.settings = parse_settings(answer);
        }
    }

    fn ask_to_set(
        &mut self,
        open_request: AcpRequest,
        setting: &SessionConfigOption,
        chosen: Value,
        out: &mut OutputQueue,
    ) {
        let mut params = json!({ "sessionId": self.session, "configId": setting.id.0 });
        if let (Value::Object(params), Value::Object(chosen)) = (&mut params, chosen) {
            params.extend(chosen);
        }
        self.ask(open_request, "session/set_config_option", &params, out);
    }

    fn setting_of(&self, category: SessionConfigOptionCategory) -> Option<SessionConfigOption> {
        let of = |known: &&SessionConfigOption| known.category == Some(category.clone());
        self.settings.iter().find(of).cloned()
    }

    /// Applies the setting with this index, and the model after the last one.
    fn configure(&mut self, at: usize, out: &mut OutputQueue) -> Result<(), String> {
        let wanted = self.setup.options.config_options.iter().nth(at);
        let Some((id, value)) = wanted else {
            return self.set_model(out);
        };
        let Some(setting) = self.settings.iter().find(|known| *known.id.0 == **id) else {
            let ids: Vec<String> = self
                .settings
                .iter()
                .map(|known| format!("`{}`", known.id.0))
                .collect();
            return Err(format!(
                "{} has no setting `{id}`; {}",
                self.setup.name,
                list_available(&ids)
            ));
        };
        let (setting, chosen) = (setting.clone(), setting_value(&self.setup, setting, value)?);
        self.ask_to_set(AcpRequest::Config(at), &setting, chosen, out);
        Ok(())
    }

    fn set_model(&mut self, out: &mut OutputQueue) -> Result<(), String> {
        let model = self.setup.model.clone();
        let Some(wanted) = model.filter(|_| !self.setup.names_model) else {
            return self.set_mode(out);
        };
        if let Some(setting) = self.setting_of(SessionConfigOptionCategory::Model) {
            let chosen = json!({ "value": select_value(&self.setup, &setting, &wanted)? });
            self.ask_to_set(AcpRequest::Model, &setting, chosen, out);
            return Ok(());
        }
        // Some agents list their models in the field of an older version of the protocol.
        let models = &self.session_info["models"];
        let known = models["availableModels"].as_array();
        let known: Vec<(&str, &str)> = known
            .into_iter()
            .flatten()
            .filter_map(|one| {
                let name = one["name"].as_str().unwrap_or_default();
                Some((one["modelId"].as_str()?, name))
            })
            .collect();
        if known.is_empty() {
            // The meter still selects the vendor, and logs the model that the agent requests.
            let text = format!(
                "the model of {} cannot be selected; it may use another one than `{wanted}`",
                self.setup.name
            );
            self.warnings.push(("model_not_chosen", text));
            return self.set_mode(out);
        }
        let id = find_id(&self.setup, "model", &wanted, known.into_iter())?;
        if models["currentModelId"].as_str() == Some(id.as_str()) {
            return self.set_mode(out);
        }
        let params = json!({ "sessionId": self.session, "modelId": id });
        self.ask(AcpRequest::Model, "session/set_model", &params, out);
        Ok(())
    }

    fn set_mode(&mut self, out: &mut OutputQueue) -> Result<(), String> {
        let mode = self.setup.options.mode.clone();
        let Some(mode) = mode.or(self.setup.profile.mode.map(str::to_owned)) else {
            self.send_prompt(out);
            return Ok(());
        };
        let modes: Option<SessionModeState> =
            serde_json::from_value(self.session_info["modes"].clone()).ok();
        if let Some(modes) = modes.filter(|modes| !modes.available_modes.is_empty()) {
            let known = modes.available_modes.iter();
            let known = known.map(|mode| (&*mode.id.0, mode.name.as_str()));
            let id = find_id(&self.setup, "mode", &mode, known)?;
            let params = json!({ "sessionId": self.session, "modeId": id });
            self.ask(AcpRequest::Mode, "session/set_mode", &params, out);
            return Ok(());
        }
        let Some(setting) = self.setting_of(SessionConfigOptionCategory::Mode) else {
            return Err(format!(
                "{} has no modes, so that mode `{mode}` is not available",
                self.setup.name
            ));
        };
        let chosen = json!({ "value": select_value(&self.setup, &setting, &mode)? });
        self.ask_to_set(AcpRequest::Mode, &setting, chosen, out);
        Ok(())
    }
}
