//! Requests that an agent sends to its client: to read and write files of the workspace, and to run commands in
//! terminals. The gate judges each request like the same Windlass call, unless the request belongs to a call that was
//! just allowed. All sizes are limited.

mod terminals;

use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

use agent_client_protocol::v1::schema::{ReadTextFileRequest, WriteTextFileRequest};
use serde_json::{Value, json};
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Message, Part, ToolCall, ToolResult};
use windlass_core::runtime::RuntimeError;
use windlass_core::tool::{Admitted, Effect, ForeignCall, Like};
use windlass_core::workspace::{FileError, FileErrorKind, Files, Processes};

use self::terminals::Terminals;
use crate::acp::text::clip;
use crate::agent::AgentAttempt;
use crate::rpc::RpcError;

/// Bytes of the longest file that is read for the agent. Its JSON form may be six times as long.
const MAX_READ: u64 = 4 << 20;
/// Bytes of the longest file that is written for the agent.
const MAX_WRITTEN: usize = 10 << 20;
/// Grants that were not used yet.
const MAX_GRANTS: usize = 64;
/// Characters of a file's content in the log of a call.
const MAX_LOGGED: usize = 16 << 10;

/// The reply to a request of the agent.
pub(crate) type ServiceReply = Result<Value, RpcError>;

/// The reason why a request was not served: the agent gets an error, or the attempt ends.
enum ServiceError {
    Reply(RpcError),
    Fatal(RuntimeError),
}

impl From<RpcError> for ServiceError {
    fn from(err: RpcError) -> Self {
        Self::Reply(err)
    }
}

impl From<RuntimeError> for ServiceError {
    fn from(err: RuntimeError) -> Self {
        Self::Fatal(err)
    }
}

/// One request for a file or a terminal, with its context.
#[derive(Clone, Copy)]
struct Service<'a> {
    attempt: &'a AgentAttempt<'a>,
    services: &'a ClientServices,
}

/// State of the services of one agent.
#[derive(Default)]
pub(crate) struct ClientServices {
    grants: Mutex<Vec<(CallId, Grant)>>,
    terminals: Terminals,
}

/// A permission that belongs to an allowed call. The gate does not ask again when the agent lets the client execute it.
#[derive(Debug, Clone, PartialEq)]
pub enum Grant {
    /// The file may get this text; any text if the question showed none.
    Write {
        /// The path, as the agent writes it.
        path: String,
        text: Option<String>,
    },
    /// This command may run.
    Run(String),
}

impl ClientServices {
    /// Stores the grants of a call. Paths outside of the workspace are ignored.
    pub(crate) fn grant(&self, call: &CallId, grants: Vec<Grant>, files: &dyn Files) {
        let resolved = grants.into_iter().filter_map(|grant| match grant {
            Grant::Write { path, text } => {
                let to = files.resolve(&path).ok().filter(|to| to.inside)?;
                let path = to.path;
                Some(Grant::Write { path, text })
            }
            run @ Grant::Run(_) => Some(run),
        });
        let mut all = self.grants.lock();
        all.extend(resolved.map(|grant| (call.clone(), grant)));
        let over = all.len().saturating_sub(MAX_GRANTS);
        all.drain(..over);
    }

    /// Removes the grants of a call that has ended.
    pub(crate) fn revoke(&self, call: &CallId) {
        self.grants.lock().retain(|(of, _)| of != call);
    }

    /// At the end of a turn: removes all grants and stops all commands.
    pub(crate) async fn close(&self, processes: &dyn Processes) {
        self.grants.lock().clear();
        self.terminals.stop_all(processes).await;
    }

    /// The end of a terminal's output, also after its release.
    pub(crate) fn terminal_text(&self, id: &str) -> Option<String> {
        self.terminals.output_end(id)
    }

    /// Serves a request for a file or a terminal.
    pub(crate) async fn serve(
        &self,
        attempt: &AgentAttempt<'_>,
        method: &str,
        params: Value,
    ) -> Result<ServiceReply, RuntimeError> {
        let service = Service {
            attempt,
            services: self,
        };
        let served = match method {
            "fs/read_text_file" => service.read(params).await,
            "fs/write_text_file" => service.write(params).await,
            "terminal/create" => service.create(params).await,
            "terminal/output" => service.output(params),
            "terminal/wait_for_exit" => service.wait(params).await,
            "terminal/kill" => service.kill(params).await,
            _ => service.release(params).await,
        };
        match served {
            Ok(value) => Ok(Ok(value)),
            Err(ServiceError::Reply(err)) => Ok(Err(err)),
            Err(ServiceError::Fatal(err)) => Err(err),
        }
    }

    /// Whether a grant allows this text for this file. Uses the grant up.
    fn may_write(&self, path: &str, text: &str) -> bool {
        self.take_grant(|what| match what {
            Grant::Write {
                path: of,
                text: shown,
            } => of == path && shown.as_deref().is_none_or(|shown| shown == text),
            Grant::Run(_) => false,
        })
    }

    /// Whether a grant allows this command. Uses the grant up.
    fn may_run(&self, line: &str) -> bool {
        self.take_grant(|what| matches!(what, Grant::Run(of) if of == line))
    }

    fn take_grant(&self, fits: impl Fn(&Grant) -> bool) -> bool {
        let mut grants = self.grants.lock();
        let at = grants.iter().position(|(_, grant)| fits(grant));
        at.map(|at| grants.remove(at)).is_some()
    }
}

impl Service<'_> {
    /// Logs a request of the agent as a call, and has it judged.
    async fn judge(
        self,
        method: &str,
        logged: Value,
        like: Like,
        effect: Effect,
    ) -> Result<ToolCall, ServiceError> {
        let id = format!("acp_{:016x}", self.attempt.clock.entropy());
        let call = ToolCall::new(id.as_str(), method.to_owned(), logged);
        let parts = vec![Part::Call(call.clone())];
        self.attempt.log_message(Message::model(parts)).await?;
        let asked = ForeignCall {
            call: call.clone(),
            like: vec![like],
            effect,
        };
        match self.attempt.admit(asked).await? {
            Admitted::Yes { .. } => Ok(call),
            Admitted::No { category, text } => {
                let why = format!("refused [{}]: {text}", category.word());
                Err(RpcError::new(RpcError::FAILED, why).into())
            }
        }
    }

    /// Logs the result of a request.
    async fn report(
        self,
        call: &ToolCall,
        outcome: Result<String, &RpcError>,
    ) -> Result<(), RuntimeError> {
        let result = match outcome {
            Ok(text) => ToolResult::done(call, text),
            Err(err) => ToolResult::failed(call, ErrorCategory::Exception, &err.message),
        };
        self.attempt.reported_result(result).await
    }

    /// Serves the request `fs/read_text_file`.
    async fn read(self, params: Value) -> Result<Value, ServiceError> {
        let request: ReadTextFileRequest = parse_params(params)?;
        let path = self.inside(&request.path)?;
        let like = Like::new("read_file", json!({ "path": path }));
        let logged = json!({ "path": path, "line": request.line, "limit": request.limit });
        let call = self
            .judge("fs/read_text_file", logged, like, Effect::Read)
            .await?;
        let files = Arc::clone(self.attempt.job.files);
        let bytes = run_blocking(move || files.read(&path, MAX_READ)).await?;
        let text = bytes.map_err(file_error).and_then(|bytes| {
            String::from_utf8(bytes)
                .map(|text| select_lines(&text, request.line, request.limit))
                .map_err(|_| RpcError::new(RpcError::FAILED, "the file is not UTF-8 text"))
        });
        let outcome = text
            .as_ref()
            .map(|text| clip(text, MAX_LOGGED).into_owned());
        self.report(&call, outcome).await?;
        Ok(json!({ "content": text? }))
    }

    /// Serves the request `fs/write_text_file`.
    async fn write(self, params: Value) -> Result<Value, ServiceError> {
        let request: WriteTextFileRequest = parse_params(params)?;
        let (bytes, text) = (request.content.len(), request.content);
        if bytes > MAX_WRITTEN {
            let why =
                format!("the file has {bytes} bytes; the maximum for one file is {MAX_WRITTEN}");
            return Err(RpcError::new(RpcError::FAILED, why).into());
        }
        let path = self.inside(&request.path)?;
        let mut call = None;
        if !self.services.may_write(&path, &text) {
            let like = Like::new("write_file", json!({ "path": path, "content": text }));
            let logged = json!({ "path": path, "content": clip(&text, MAX_LOGGED) });
            let judged = self.judge("fs/write_text_file", logged, like, Effect::Write);
            call = Some(judged.await?);
        }
        let files = Arc::clone(self.attempt.job.files);
        let done = run_blocking(move || files.write(&path, text.as_bytes())).await?;
        let done = done.map_err(file_error);
        if let Some(call) = call {
            let outcome = done.as_ref().map(|()| format!("{bytes} bytes written"));
            self.report(&call, outcome).await?;
        }
        done?;
        Ok(json!({}))
    }

    /// Resolves a path of the agent in the workspace.
    fn inside(self, path: &Path) -> Result<String, RpcError> {
        let to = self.attempt.job.files.resolve(&path.to_string_lossy());
        let to = to.map_err(file_error)?;
        if to.inside {
            return Ok(to.path);
        }
        Err(RpcError::new(
            RpcError::FAILED,
            "the path is outside of the workspace; only files inside it can be read and written",
        ))
    }
}

/// Parses the parameters of a method.
fn parse_params<T: serde::de::DeserializeOwned>(params: Value) -> Result<T, RpcError> {
    serde_json::from_value(params)
        .map_err(|err| RpcError::new(RpcError::BAD_PARAMS, err.to_string()))
}

fn file_error(err: FileError) -> RpcError {
    let code = if err.kind == FileErrorKind::NotFound {
        RpcError::NOT_FOUND
    } else {
        RpcError::FAILED
    };
    RpcError::new(code, err.message)
}

/// Runs blocking work on another thread, because a large file must not delay the event loop.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RuntimeError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|err| RuntimeError::Other(err.to_string()))
}

fn select_lines(text: &str, line: Option<u32>, limit: Option<u32>) -> String {
    if line.is_none() && limit.is_none() {
        return text.to_owned();
    }
    let skip = line.unwrap_or(1).saturating_sub(1) as usize;
    let most = limit.map_or(usize::MAX, |limit| limit as usize);
    text.split_inclusive('\n').skip(skip).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_numbers_start_at_one() {
        let check =
            |line, limit, lines: &str| assert_eq!(select_lines("a\nb\nc", line, limit), lines);
        check(None, None, "a\nb\nc");
        check(Some(1), Some(1), "a\n");
        check(Some(2), None, "b\nc");
        check(Some(0), Some(2), "a\nb\n");
        check(Some(9), Some(9), "");
        check(None, Some(0), "");
    }
}
