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

use super::{AcpDialogue, NOT_SIGNED_IN, Step};
use crate::acp::session::{choice, chosen, one_of, servers, settings_in, there_is, ways};
use crate::acp::words::{clean, clip};
use crate::agent::End;
use crate::dialogue::{Output, Outputs};
use crate::services::Reply;

impl AcpDialogue {
    /// Handles the response to the open request, and sends the next one.
    pub(super) fn answered(&mut self, result: Reply, out: &mut Outputs) {
        if self.step == Step::Prompt {
            return self.prompted(result, out);
        }
        if let Err(why) = self.advance(result, out) {
            self.over(End::Broken(why), out);
        }
    }

    fn advance(&mut self, result: Reply, out: &mut Outputs) -> Result<(), String> {
        let (name, method) = (self.setup.name.clone(), self.asked.1);
        let result = match (self.step, result) {
            (Step::List, result) => return self.listed(result, out),
            (Step::Resume, Ok(session)) => return self.begun(session, out),
            (Step::Resume, Err(err)) => {
                let why = format!("the agent reports: {}", clip(&clean(&err.in_words()), 300));
                return self.not_resumed(&why, out);
            }
            (Step::New, Err(err)) if err.code == NOT_SIGNED_IN => {
                let methods = self.hello.as_ref().map(|hello| &hello.auth_methods[..]);
                return Err(format!(
                    "{name} requires a login ({}): set `auth_method`; {}",
                    clip(&clean(&err.in_words()), 300),
                    ways(methods.unwrap_or_default())
                ));
            }
            (Step::New, Err(err)) => {
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
        match self.step {
            Step::Initialize => {
                let hello: InitializeResponse = serde_json::from_value(result).map_err(|err| {
                    format!("the answer of {name} to `{method}` is invalid: {err}")
                })?;
                self.greeted(hello, out)
            }
            Step::Authenticate => self.begin_session(out),
            Step::New => {
                let id = result["sessionId"].as_str();
                match id.filter(|id| !id.is_empty() && id.len() <= 1_000) {
                    Some(id) => id.clone_into(&mut self.session),
                    None => return Err(format!("{name} answered `session/new` without an id")),
                }
                self.begun(result, out)
            }
            Step::Config(at) => {
                self.set(&result);
                self.configure(at + 1, out)
            }
            Step::Model => {
                self.set(&result);
                self.set_mode(out)
            }
            _ => {
                self.say(out);
                Ok(())
            }
        }
    }

    /// Checks the agent's capabilities, and authenticates if necessary.
    fn greeted(&mut self, hello: InitializeResponse, out: &mut Outputs) -> Result<(), String> {
        let name = &self.setup.name;
        if hello.protocol_version != ProtocolVersion::V1 {
            return Err(format!(
                "{name} speaks version {} of the protocol; Windlass supports version 1",
                hello.protocol_version
            ));
        }
        let said = hello.agent_info.as_ref();
        let said = said.map(|agent| clip(&clean(&agent.name), 80).into_owned());
        let known_as = self.setup.options.calls_itself.clone();
        self.agent = known_as.or(said).unwrap_or_default();
        let wanted = self.setup.options.auth_method.as_deref();
        let method = wanted.or(self.setup.profile.auth_method);
        let known = hello
            .auth_methods
            .iter()
            .find(|known| method.is_some_and(|method| *known.id().0 == *method))
            .map(|known| known.id().clone());
        // An agent that is logged in already offers no methods.
        if let (Some(method), None) = (wanted, &known) {
            return Err(format!(
                "{name} has no login method `{method}`; {}",
                ways(&hello.auth_methods)
            ));
        }
        self.hello = Some(hello);
        match known {
            Some(id) => {
                let params = AuthenticateRequest::new(id);
                self.ask(Step::Authenticate, "authenticate", &params, out);
                Ok(())
            }
            None => self.begin_session(out),
        }
    }

    /// Resumes the conversation that the log names, or starts a new one.
    fn begin_session(&mut self, out: &mut Outputs) -> Result<(), String> {
        let Some(id) = self.setup.resume.clone() else {
            return self.new_session(out);
        };
        self.session = id;
        let lists = self.hello.as_ref().is_some_and(|hello| {
            let can = &hello.agent_capabilities.session_capabilities;
            can.list.is_some()
        });
        if self.setup.profile.keeps_directory && lists {
            let params = ListSessionsRequest::new().cwd(self.setup.root.clone());
            self.ask(Step::List, "session/list", &params, out);
            return Ok(());
        }
        self.resume(out)
    }

    /// Resumes the conversation if the agent lists it for this directory. An agent that fails to list sessions reports
    /// a missing one when it resumes.
    fn listed(&mut self, result: Reply, out: &mut Outputs) -> Result<(), String> {
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

    fn resume(&mut self, out: &mut Outputs) -> Result<(), String> {
        let Some(hello) = &self.hello else {
            return Ok(());
        };
        let can = &hello.agent_capabilities;
        let (resumes, loads) = (can.session_capabilities.resume.is_some(), can.load_session);
        let servers = servers(&self.setup, hello)?;
        let (id, cwd) = (self.session.clone(), self.setup.root.clone());
        let meta = self.setup.meta.clone();
        if resumes {
            let params = ResumeSessionRequest::new(id, cwd)
                .mcp_servers(servers)
                .meta(meta);
            self.ask(Step::Resume, "session/resume", &params, out);
            Ok(())
        } else if loads {
            let params = LoadSessionRequest::new(id, cwd)
                .mcp_servers(servers)
                .meta(meta);
            self.ask(Step::Resume, "session/load", &params, out);
            Ok(())
        } else {
            self.not_resumed("it cannot resume an earlier one", out)
        }
    }

    fn not_resumed(&mut self, why: &str, out: &mut Outputs) -> Result<(), String> {
        self.session.clear();
        self.forgot = true;
        let text = format!("{} starts a new conversation: {why}", self.setup.name);
        self.warnings.push(("not_resumed", text));
        self.new_session(out)
    }

    fn new_session(&mut self, out: &mut Outputs) -> Result<(), String> {
        let Some(hello) = &self.hello else {
            return Ok(());
        };
        let params = NewSessionRequest::new(self.setup.root.clone())
            .mcp_servers(servers(&self.setup, hello)?)
            .meta(self.setup.meta.clone());
        self.ask(Step::New, "session/new", &params, out);
        Ok(())
    }

    /// Handles the response that starts a session, and applies the user's settings, model and mode.
    fn begun(&mut self, session: Value, out: &mut Outputs) -> Result<(), String> {
        self.open = true;
        out.push(Output::Began(Some(self.session.clone())));
        self.settings = settings_in(&session);
        self.told = session;
        self.configure(0, out)
    }

    /// Updates the known settings, if the response contains them.
    fn set(&mut self, answer: &Value) {
        if answer["configOptions"].is_array() {
            self.settings = settings_in(answer);
        }
    }

    fn ask_to_set(
        &mut self,
        step: Step,
        setting: &SessionConfigOption,
        chosen: Value,
        out: &mut Outputs,
    ) {
        let mut params = json!({ "sessionId": self.session, "configId": setting.id.0 });
        if let (Value::Object(params), Value::Object(chosen)) = (&mut params, chosen) {
            params.extend(chosen);
        }
        self.ask(step, "session/set_config_option", &params, out);
    }

    fn setting_of(&self, category: SessionConfigOptionCategory) -> Option<SessionConfigOption> {
        let of = |known: &&SessionConfigOption| known.category == Some(category.clone());
        self.settings.iter().find(of).cloned()
    }

    /// Applies the setting with this index, and the model after the last one.
    fn configure(&mut self, at: usize, out: &mut Outputs) -> Result<(), String> {
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
                there_is(&ids)
            ));
        };
        let (setting, chosen) = (setting.clone(), chosen(&self.setup, setting, value)?);
        self.ask_to_set(Step::Config(at), &setting, chosen, out);
        Ok(())
    }

    fn set_model(&mut self, out: &mut Outputs) -> Result<(), String> {
        let model = self.setup.model.clone();
        let Some(wanted) = model.filter(|_| !self.setup.names_model) else {
            return self.set_mode(out);
        };
        if let Some(setting) = self.setting_of(SessionConfigOptionCategory::Model) {
            let chosen = json!({ "value": choice(&self.setup, &setting, &wanted)? });
            self.ask_to_set(Step::Model, &setting, chosen, out);
            return Ok(());
        }
        // Some agents list their models in the field of an older version of the protocol.
        let models = &self.told["models"];
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
        let id = one_of(&self.setup, "model", &wanted, known.into_iter())?;
        if models["currentModelId"].as_str() == Some(id.as_str()) {
            return self.set_mode(out);
        }
        let params = json!({ "sessionId": self.session, "modelId": id });
        self.ask(Step::Model, "session/set_model", &params, out);
        Ok(())
    }

    fn set_mode(&mut self, out: &mut Outputs) -> Result<(), String> {
        let mode = self.setup.options.mode.clone();
        let Some(mode) = mode.or(self.setup.profile.mode.map(str::to_owned)) else {
            self.say(out);
            return Ok(());
        };
        let modes: Option<SessionModeState> =
            serde_json::from_value(self.told["modes"].clone()).ok();
        if let Some(modes) = modes.filter(|modes| !modes.available_modes.is_empty()) {
            let known = modes.available_modes.iter();
            let known = known.map(|mode| (&*mode.id.0, mode.name.as_str()));
            let id = one_of(&self.setup, "mode", &mode, known)?;
            let params = json!({ "sessionId": self.session, "modeId": id });
            self.ask(Step::Mode, "session/set_mode", &params, out);
            return Ok(());
        }
        let Some(setting) = self.setting_of(SessionConfigOptionCategory::Mode) else {
            return Err(format!(
                "{} has no modes, so that mode `{mode}` is not available",
                self.setup.name
            ));
        };
        let chosen = json!({ "value": choice(&self.setup, &setting, &mode)? });
        self.ask_to_set(Step::Mode, &setting, chosen, out);
        Ok(())
    }
}
