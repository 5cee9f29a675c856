//! Commands that the client runs for the agent. The gate judges them like `bash`, and they run in the sandbox of the
//! run's other commands. Their number and the size of their output are limited. All of them end with the turn.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use agent_client_protocol::v1::schema::{CreateTerminalRequest, EnvVariable};
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_core::shell::quoted;
use windlass_core::tool::{Effect, Like};
use windlass_core::workspace::{Command, JobId, ProcessEnd, Processes};

use super::{Service, ServiceError, parse_params};
use crate::acp::text::{clip, end_of, shell_line};
use crate::rpc::RpcError;

/// Terminals that may be open at the same time.
const MAX_OPEN: usize = 16;
/// Bytes of output that are kept if the agent sets no lower limit.
const MAX_KEPT: usize = 1 << 20;
/// Bytes of output that are read at once.
const PIECE: usize = 64 << 10;
/// Interval at which a command is polled for its exit.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Variables that only identify the agent, and do not change what a command does.
const IDENTIFYING_VARIABLES: &[&str] = &[
    "AGENT",
    "AGENT_SESSION_ID",
    "CI",
    "CLAUDECODE",
    "GOOSE_TERMINAL",
    "NO_COLOR",
    "TERM",
];
/// Time limit of a command. The limit of the run is shorter.
const MAX_TIME: Duration = Duration::from_secs(6 * 3600);

/// The open terminals of an agent.
#[derive(Default)]
pub(super) struct Terminals(Mutex<TerminalsState>);

#[derive(Default)]
struct TerminalsState {
    made: u64,
    open: HashMap<String, AgentTerminal>,
    /// Id and end of the output of the terminals that were released last.
    released: VecDeque<(String, String)>,
}

struct AgentTerminal {
    job: JobId,
    kept: String,
    most: usize,
    next: u64,
    truncated: bool,
    end: Option<ProcessEnd>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TerminalRef {
    terminal_id: String,
}

impl Terminals {
    pub(super) async fn stop_all(&self, processes: &dyn Processes) {
        let open = std::mem::take(&mut self.0.lock().open);
        for terminal in open.into_values().filter(|terminal| terminal.end.is_none()) {
            // An error means that the command has ended already.
            let _ = processes.stop(&terminal.job).await;
        }
    }

    /// Registers a command and returns the id of its terminal.
    fn open(&self, job: JobId, most: Option<usize>) -> String {
        let mut state = self.0.lock();
        state.made += 1;
        let id = format!("term_{}", state.made);
        let terminal = AgentTerminal {
            job,
            kept: String::new(),
            most: most.unwrap_or(MAX_KEPT).min(MAX_KEPT),
            next: 0,
            truncated: false,
            end: None,
        };
        state.open.insert(id.clone(), terminal);
        id
    }

    /// Reads the new output of a command. Returns its end, once it has ended and all output is read.
    fn poll_output(
        &self,
        processes: &dyn Processes,
        id: &str,
    ) -> Result<Option<ProcessEnd>, RpcError> {
        let mut state = self.0.lock();
        let terminal = state.open.get_mut(id).ok_or_else(|| no_terminal(id))?;
        // A command that writes faster than this loop reads is polled again later.
        for _ in 0..MAX_KEPT / PIECE {
            if terminal.end.is_some() {
                break;
            }
            let more = processes
                .poll(&terminal.job, terminal.next, PIECE)
                .map_err(|err| failed(err.0))?;
            terminal.kept.push_str(&more.text);
            let over = terminal.kept.len().saturating_sub(terminal.most);
            if over > 0 {
                terminal.truncated = true;
                let from = terminal.kept.ceil_char_boundary(over);
                terminal.kept.drain(..from);
            }
            let moved = more.next_offset > terminal.next;
            terminal.next = more.next_offset;
            if !moved {
                terminal.end = more.end;
                break;
            }
        }
        Ok(terminal.end)
    }

    /// The end of a terminal's output, also after its release.
    pub(super) fn output_end(&self, id: &str) -> Option<String> {
        let state = self.0.lock();
        let mut released = state.released.iter().rev();
        match released.find(|(known, _)| known == id) {
            Some((_, output_end)) => Some(output_end.clone()),
            None => Some(end_of(&state.open.get(id)?.kept, PIECE).to_owned()),
        }
    }

    fn output_json(&self, id: &str) -> Result<Value, RpcError> {
        let state = self.0.lock();
        let terminal = state.open.get(id).ok_or_else(|| no_terminal(id))?;
        let mut output_json = json!({ "output": terminal.kept, "truncated": terminal.truncated });
        if let Some(end) = terminal.end {
            output_json["exitStatus"] = status(end);
        }
        Ok(output_json)
    }
}

impl Service<'_> {
    /// Serves the request `terminal/create`.
    pub(super) async fn create(self, params: Value) -> Result<Value, ServiceError> {
        let request: CreateTerminalRequest = parse_params(params)?;
        let (line, exports, workdir) = self.command(&request)?;
        if self.services.terminals.0.lock().open.len() >= MAX_OPEN {
            let why = format!("{MAX_OPEN} terminals are open; release one first");
            return Err(failed(why).into());
        }
        let mut call = None;
        // The permission applies to the line alone. In another directory, or with other variables, the line may do
        // something else.
        let inert =
            |variable: &EnvVariable| IDENTIFYING_VARIABLES.contains(&variable.name.as_str());
        let unchanged = workdir.is_empty() && request.env.iter().all(inert);
        let whole = format!("{exports}{line}");
        if !unchanged || !self.services.may_run(&line) {
            let args = json!({ "command": whole, "workdir": workdir });
            let like = Like::new("bash", args.clone());
            let judged = self.judge("terminal/create", args, like, Effect::Execute);
            call = Some(judged.await?);
        }
        let most = request.output_byte_limit;
        let most = most.and_then(|most| usize::try_from(most).ok());
        let started = self.attempt.job.processes.start(Command {
            line: whole,
            workdir,
            timeout: MAX_TIME,
            keep: MAX_KEPT,
            input: None,
            looks: false,
        });
        let opened = started
            .map(|job| self.services.terminals.open(job, most))
            .map_err(|err| failed(err.0));
        if let Some(call) = call {
            let outcome = opened.as_ref().map(|id| format!("started as {id}"));
            self.report(&call, outcome).await?;
        }
        Ok(json!({ "terminalId": opened? }))
    }

    /// Serves the request `terminal/output`.
    pub(super) fn output(self, params: Value) -> Result<Value, ServiceError> {
        let TerminalRef { terminal_id: id } = parse_params(params)?;
        self.poll_output(&id)?;
        Ok(self.services.terminals.output_json(&id)?)
    }

    /// Serves the request `terminal/wait_for_exit`.
    pub(super) async fn wait(self, params: Value) -> Result<Value, ServiceError> {
        let TerminalRef { terminal_id: id } = parse_params(params)?;
        loop {
            if let Some(end) = self.poll_output(&id)? {
                return Ok(status(end));
            }
            self.attempt.clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// Serves `terminal/kill`. The output can still be read.
    pub(super) async fn kill(self, params: Value) -> Result<Value, ServiceError> {
        let TerminalRef { terminal_id: id } = parse_params(params)?;
        let job = {
            let state = self.services.terminals.0.lock();
            let terminal = state.open.get(&id).ok_or_else(|| no_terminal(&id))?;
            terminal.end.is_none().then(|| terminal.job.clone())
        };
        if let Some(job) = job {
            let stopped = self.attempt.job.processes.stop(&job).await;
            stopped.map_err(|err| failed(err.0))?;
        }
        Ok(json!({}))
    }

    /// Serves `terminal/release`: stops the command and removes the terminal.
    pub(super) async fn release(self, params: Value) -> Result<Value, ServiceError> {
        let TerminalRef { terminal_id: id } = parse_params(params)?;
        // The log may still need the output. If it cannot be read, there is none.
        let _ = self.poll_output(&id);
        let terminal = {
            let mut state = self.services.terminals.0.lock();
            let terminal = state.open.remove(&id).ok_or_else(|| no_terminal(&id))?;
            state
                .released
                .push_back((id, end_of(&terminal.kept, PIECE).to_owned()));
            let over = state.released.len().saturating_sub(MAX_OPEN);
            state.released.drain(..over);
            terminal
        };
        if terminal.end.is_none() {
            // An error means that the command has ended meanwhile.
            let _ = self.attempt.job.processes.stop(&terminal.job).await;
        }
        Ok(json!({}))
    }

    fn poll_output(self, id: &str) -> Result<Option<ProcessEnd>, RpcError> {
        let processes = self.attempt.job.processes.as_ref();
        self.services.terminals.poll_output(processes, id)
    }

    /// The command line, the `export` commands that precede it, and the directory.
    fn command(
        self,
        request: &CreateTerminalRequest,
    ) -> Result<(String, String, String), RpcError> {
        let line = if request.args.is_empty() {
            // Some agents put a complete command line into `command`.
            request.command.clone()
        } else {
            let words: Vec<&str> = std::iter::once(&request.command)
                .chain(&request.args)
                .map(String::as_str)
                .collect();
            shell_line(&words)
        };
        let mut exports = String::new();
        for EnvVariable { name, value, .. } in request.env.iter().take(64) {
            if !is_allowed_variable(name) {
                let why = format!(
                    "the variable {} cannot be set for a terminal",
                    clip(name, 80)
                );
                return Err(RpcError::new(RpcError::BAD_PARAMS, why));
            }
            exports.push_str(&format!("export {name}={}; ", quoted(value)));
        }
        let workdir = match &request.cwd {
            Some(cwd) => Some(self.inside(cwd)?).filter(|workdir| workdir != "."),
            None => None,
        };
        Ok((line, exports, workdir.unwrap_or_default()))
    }
}

/// Whether a name is a valid variable that does not change which program a line runs.
fn is_allowed_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let prefixes = [
        "LD_",
        "GIT_",
        "BASH",
        "DYLD_",
        "NODE_OPTIONS",
        "PYTHON",
        "PERL",
        "RUBY",
    ];
    let whole = [
        "PATH",
        "ENV",
        "IFS",
        "PS4",
        "SHELLOPTS",
        "PROMPT_COMMAND",
        "SHELL",
        "HOME",
        "CDPATH",
    ];
    !name.is_empty()
        && name.chars().all(plain)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !whole.contains(&name)
        && !prefixes.iter().any(|start| name.starts_with(start))
}

fn status(end: ProcessEnd) -> Value {
    match end {
        ProcessEnd::Exited { code } => {
            json!({ "exitCode": u32::try_from(code).ok(), "signal": null })
        }
        ProcessEnd::Signalled { signal } => {
            json!({ "exitCode": null, "signal": signal.to_string() })
        }
        ProcessEnd::TimedOut | ProcessEnd::Cancelled => {
            json!({ "exitCode": null, "signal": "SIGKILL" })
        }
    }
}

fn no_terminal(id: &str) -> RpcError {
    RpcError::new(
        RpcError::NOT_FOUND,
        format!("terminal {} does not exist", clip(id, 80)),
    )
}

fn failed(why: String) -> RpcError {
    RpcError::new(RpcError::FAILED, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_change_the_program_are_refused() {
        for name in ["AGENT_SESSION_ID", "CI", "_x", "NO_COLOR"] {
            assert!(is_allowed_variable(name), "{name}");
        }
        for name in [
            "",
            "PATH",
            "LD_PRELOAD",
            "BASH_ENV",
            "GIT_SSH_COMMAND",
            "A B",
            "1A",
            "A;B",
            "PYTHONPATH",
        ] {
            assert!(!is_allowed_variable(name), "{name}");
        }
    }
}
