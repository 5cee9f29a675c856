//! What the agent may have done through us: files of the workspace read and written, commands run. Each is judged as the
//! same call of ours would be, unless it is the very thing that was just allowed, and everything has a bound.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::v1::schema::{ReadTextFileRequest, WriteTextFileRequest};
use serde_json::{Value, json};
use windlass_core::clock::Clock;
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Message, Origin, Part, Role, ToolCall, ToolResult};
use windlass_core::runtime::RuntimeError;
use windlass_core::tool::{Admitted, Effect, ForeignCall, Like};
use windlass_core::workspace::{FileError, FileErrorKind, Files};

use super::call::Told;
use super::terminals::Terminals;
use super::words::clip;
use crate::agent::Visit;
use crate::rpc::RpcError;

/// The longest file that is read for the agent. Written as JSON it may be six times as long.
const MAX_READ: u64 = 4 << 20;
/// The longest file that is written for it.
const MAX_WRITTEN: usize = 10 << 20;
/// Leave that was given and not used yet.
const MAX_GRANTS: usize = 64;
/// Characters of a file's text that the log has of a call.
const MAX_LOGGED: usize = 16 << 10;

/// The answer to a request of the agent.
pub(super) type Reply = Result<Value, RpcError>;

/// What is kept between the requests of one agent.
#[derive(Default)]
pub(super) struct Desk {
    grants: Mutex<Vec<Grant>>,
    /// Commands that run for it.
    pub terminals: Terminals,
}

/// Something that a call was allowed, so that it is not asked about again when the agent has us do it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grant {
    call: CallId,
    what: Granted,
}

#[derive(Debug, Clone, PartialEq)]
enum Granted {
    /// This file may get this text; any where none was shown.
    Write { path: String, text: Option<String> },
    /// This command may run.
    Run(String),
}

impl Grant {
    /// Everything that a call shows.
    pub(super) fn all_of(told: &Told, files: &dyn Files) -> Vec<Self> {
        let resolved = |path: &String| {
            files
                .resolve(path)
                .ok()
                .filter(|to| to.inside)
                .map(|to| to.path)
        };
        let foreign = told.foreign(files.root());
        let mut all = Vec::new();
        for (path, text) in &told.diffs {
            // A text that was too long to be kept cannot be known again.
            if let (Some(path), Some(text)) = (resolved(path), text) {
                let what = Granted::Write {
                    path,
                    text: Some(text.clone()),
                };
                all.push(Self {
                    call: told.id.clone(),
                    what,
                });
            }
        }
        let written = foreign
            .like
            .iter()
            .filter(|like| like.tool == "write_file" || like.tool == "edit_file");
        for like in written.filter(|_| told.diffs.is_empty()) {
            let path = like.args["path"].as_str().map(str::to_owned);
            if let Some(path) = path.as_ref().and_then(resolved) {
                let what = Granted::Write { path, text: None };
                all.push(Self {
                    call: told.id.clone(),
                    what,
                });
            }
        }
        all.extend(told.command().map(|line| Self {
            call: told.id.clone(),
            what: Granted::Run(line),
        }));
        all
    }
}

impl Desk {
    fn grants(&self) -> MutexGuard<'_, Vec<Grant>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what was allowed.
    pub(super) fn grant(&self, all: Vec<Grant>) {
        let mut grants = self.grants();
        grants.extend(all);
        let over = grants.len().saturating_sub(MAX_GRANTS);
        grants.drain(..over);
    }

    /// Forgets what calls were allowed that are over.
    pub(super) fn keep_grants_of(&self, is_open: impl Fn(&CallId) -> bool) {
        let mut grants = self.grants();
        if !grants.is_empty() {
            grants.retain(|grant| is_open(&grant.call));
        }
    }

    /// Whether a file may get this text because of a call that is under way; once.
    fn may_write(&self, path: &str, text: &str) -> bool {
        self.use_up(|what| match what {
            Granted::Write {
                path: of,
                text: shown,
            } => of == path && shown.as_deref().is_none_or(|shown| shown == text),
            Granted::Run(_) => false,
        })
    }

    /// Whether this command may run because of a call that is under way; once.
    pub(super) fn may_run(&self, line: &str) -> bool {
        self.use_up(|what| matches!(what, Granted::Run(of) if of == line))
    }

    fn use_up(&self, fits: impl Fn(&Granted) -> bool) -> bool {
        let mut grants = self.grants();
        let at = grants.iter().position(|grant| fits(&grant.what));
        at.map(|at| grants.remove(at)).is_some()
    }
}

/// Has something judged that the agent wants from us, as a call of its own in the log.
pub(super) async fn judge(
    visit: &Visit<'_>,
    clock: &dyn Clock,
    method: &str,
    logged: Value,
    like: Like,
    effect: Effect,
) -> Result<Result<ToolCall, RpcError>, RuntimeError> {
    let id = CallId(format!("acp_{:016x}", clock.entropy()));
    let call = ToolCall {
        id,
        name: method.to_owned(),
        args: logged,
        malformed: None,
    };
    let parts = vec![Part::Call(call.clone())];
    visit
        .said(Message {
            role: Role::Assistant,
            origin: Origin::Model,
            parts,
        })
        .await?;
    match visit
        .admit(ForeignCall {
            call: call.clone(),
            like: vec![like],
            effect,
        })
        .await?
    {
        Admitted::Yes { .. } => Ok(Ok(call)),
        Admitted::No { category, text } => Ok(Err(RpcError::new(
            RpcError::FAILED,
            format!("refused [{}]: {text}", category.word()),
        ))),
    }
}

/// Logs what came of it.
pub(super) async fn report(
    visit: &Visit<'_>,
    call: &ToolCall,
    how: &Result<String, RpcError>,
) -> Result<(), RuntimeError> {
    let result = match how {
        Ok(text) => ToolResult {
            id: call.id.clone(),
            name: call.name.clone(),
            text: text.clone(),
            error: None,
            artifact: None,
        },
        Err(err) => ToolResult::failed(call, ErrorCategory::Exception, &err.message),
    };
    visit.reported_result(result).await
}

/// `fs/read_text_file`.
pub(super) async fn read(
    visit: &Visit<'_>,
    clock: &dyn Clock,
    params: Value,
) -> Result<Reply, RuntimeError> {
    let request: ReadTextFileRequest = match fits(params) {
        Ok(request) => request,
        Err(err) => return Ok(Err(err)),
    };
    let path = match inside(visit.job.files.as_ref(), &request.path.to_string_lossy()) {
        Ok(path) => path,
        Err(err) => return Ok(Err(err)),
    };
    let like = Like {
        tool: "read_file".into(),
        args: json!({ "path": path }),
    };
    let logged = json!({ "path": path, "line": request.line, "limit": request.limit });
    let call = match judge(
        visit,
        clock,
        "fs/read_text_file",
        logged,
        like,
        Effect::Read,
    )
    .await?
    {
        Ok(call) => call,
        Err(err) => return Ok(Err(err)),
    };
    let files = Arc::clone(visit.job.files);
    let bytes = off_the_loop(move || files.read(&path, MAX_READ)).await?;
    let text = match bytes {
        Ok(bytes) => String::from_utf8(bytes)
            .map_err(|_| RpcError::new(RpcError::FAILED, "the file is not UTF-8 text")),
        Err(err) => Err(file_error(err)),
    };
    let text = text.map(|text| some_lines(&text, request.line, request.limit));
    report(
        visit,
        &call,
        &text
            .as_ref()
            .map(|text| clip(text, MAX_LOGGED).into_owned())
            .map_err(Clone::clone),
    )
    .await?;
    Ok(text.map(|content| json!({ "content": content })))
}

/// `fs/write_text_file`.
pub(super) async fn write(
    visit: &Visit<'_>,
    clock: &dyn Clock,
    desk: &Desk,
    params: Value,
) -> Result<Reply, RuntimeError> {
    let request: WriteTextFileRequest = match fits(params) {
        Ok(request) => request,
        Err(err) => return Ok(Err(err)),
    };
    if request.content.len() > MAX_WRITTEN {
        let why = format!(
            "{} bytes are too many for one file here; {MAX_WRITTEN} are the most",
            request.content.len()
        );
        return Ok(Err(RpcError::new(RpcError::FAILED, why)));
    }
    let path = match inside(visit.job.files.as_ref(), &request.path.to_string_lossy()) {
        Ok(path) => path,
        Err(err) => return Ok(Err(err)),
    };
    let mut call = None;
    if !desk.may_write(&path, &request.content) {
        let like = Like {
            tool: "write_file".into(),
            args: json!({ "path": path, "content": request.content }),
        };
        let logged = json!({ "path": path, "content": clip(&request.content, MAX_LOGGED) });
        match judge(
            visit,
            clock,
            "fs/write_text_file",
            logged,
            like,
            Effect::Write,
        )
        .await?
        {
            Ok(judged) => call = Some(judged),
            Err(err) => return Ok(Err(err)),
        }
    }
    let (files, text) = (Arc::clone(visit.job.files), request.content);
    let bytes = text.len();
    let done = off_the_loop(move || files.write(&path, text.as_bytes())).await?;
    let done = done
        .map(|()| format!("{bytes} bytes written"))
        .map_err(file_error);
    if let Some(call) = call {
        report(visit, &call, &done).await?;
    }
    Ok(done.map(|_| json!({})))
}

/// What was sent, as the method has it.
pub(super) fn fits<T: serde::de::DeserializeOwned>(params: Value) -> Result<T, RpcError> {
    serde_json::from_value(params)
        .map_err(|err| RpcError::new(RpcError::BAD_PARAMS, err.to_string()))
}

/// Where a path of the agent leads in the workspace.
pub(super) fn inside(files: &dyn Files, path: &str) -> Result<String, RpcError> {
    let to = files.resolve(path).map_err(file_error)?;
    if to.inside {
        return Ok(to.path);
    }
    Err(RpcError::new(
        RpcError::FAILED,
        "the path leads out of the workspace; only files inside it are served",
    ))
}

fn file_error(err: FileError) -> RpcError {
    let code = if err.kind == FileErrorKind::NotFound {
        RpcError::NOT_FOUND
    } else {
        RpcError::FAILED
    };
    RpcError::new(code, err.message)
}

/// Large files take a while, and nothing else must wait for them.
async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RuntimeError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|err| RuntimeError::Other(err.to_string()))
}

fn some_lines(text: &str, line: Option<u32>, limit: Option<u32>) -> String {
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
    fn lines_are_counted_from_one() {
        let check =
            |line, limit, lines: &str| assert_eq!(some_lines("a\nb\nc", line, limit), lines);
        check(None, None, "a\nb\nc");
        check(Some(1), Some(1), "a\n");
        check(Some(2), None, "b\nc");
        check(Some(0), Some(2), "a\nb\n");
        check(Some(9), Some(9), "");
        check(None, Some(0), "");
    }
}
