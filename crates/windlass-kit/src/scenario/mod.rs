//! The scenarios. A scenario sets up a scratch directory and a script, runs the product, and checks the results from
//! the outside.

mod agents;
mod answers;
mod checks;
mod edits;
mod hostile;
mod isolation;
mod limits;
mod servers;

pub use hostile::ATTACKS;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::contract;
use crate::facts::{ScenarioNeed, WorkForm};
use crate::matrix::MatrixCell;
use crate::product::{FinishedRun, Product, RunRequest};
use crate::runtime::KitRuntime;
use crate::scratch_dir::ScratchDir;
use windlass_scripted::{Move, Script, Server};

/// A test that every runtime must pass, unless it lacks a need.
pub struct Scenario {
    /// The value for `--scenario`.
    pub name: &'static str,
    /// The requirement, in one sentence.
    pub about: &'static str,
    pub theme: Theme,
    needs: &'static [ScenarioNeed],
    check: ScenarioFn,
}

/// The table to which a scenario belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// The runtime does its work.
    Work,
    /// The runtime keeps limits and fails cleanly.
    Limits,
    /// The sandbox confines the runtime.
    Isolation,
    /// Attacks of the hostile agent.
    Attack,
}

impl Theme {
    /// The tables of the matrix, with their titles.
    pub(crate) const TITLES: &'static [(Self, &'static str)] = &[
        (Self::Work, "Work"),
        (Self::Limits, "Limits and failures"),
        (Self::Isolation, "Isolation"),
    ];
}

impl Scenario {
    /// Runs the scenario, if the runtime meets its needs.
    pub(crate) fn run(&self, context: &ScenarioContext<'_>) -> MatrixCell {
        match self
            .needs
            .iter()
            .find_map(|need| context.runtime.lacks(*need))
        {
            Some(why) => MatrixCell::NotApplicable(why.to_owned()),
            None => (self.check)(context).unwrap_or_else(MatrixCell::Fail),
        }
    }
}

/// The result of a scenario; the error is the violation.
pub(crate) type ScenarioResult = Result<MatrixCell, String>;

/// The product, the runtime and the hostile agent of a scenario.
pub(crate) struct ScenarioContext<'a> {
    pub(crate) product: &'a Product,
    pub(crate) runtime: &'a KitRuntime,
    /// The path of the hostile agent.
    pub(crate) hostile: &'a Path,
}

type ScenarioFn = fn(&ScenarioContext<'_>) -> ScenarioResult;

const fn work(
    name: &'static str,
    needs: &'static [ScenarioNeed],
    about: &'static str,
    check: ScenarioFn,
) -> Scenario {
    Scenario {
        name,
        about,
        theme: Theme::Work,
        needs,
        check,
    }
}

const fn limit(
    name: &'static str,
    needs: &'static [ScenarioNeed],
    about: &'static str,
    check: ScenarioFn,
) -> Scenario {
    Scenario {
        name,
        about,
        theme: Theme::Limits,
        needs,
        check,
    }
}

const fn isolation_scenario(
    name: &'static str,
    needs: &'static [ScenarioNeed],
    about: &'static str,
    check: ScenarioFn,
) -> Scenario {
    Scenario {
        name,
        about,
        theme: Theme::Isolation,
        needs,
        check,
    }
}

/// All scenarios, in the order of the tables.
pub const SCENARIOS: &[Scenario] = &[
    work(
        "answer",
        &[ScenarioNeed::TextAnswer],
        "the requested model answers a question, and no file changes",
        answers::answer,
    ),
    work(
        "streaming",
        &[ScenarioNeed::TextAnswer],
        "text is displayed while the model produces it",
        answers::streaming,
    ),
    work(
        "read",
        &[ScenarioNeed::Tools],
        "the model gets the content of a file that it reads",
        edits::read,
    ),
    work(
        "plain-edit",
        &[ScenarioNeed::ChangesFiles],
        "one edit lands, is logged, and is billed exactly",
        edits::plain_edit,
    ),
    work(
        "several-files",
        &[ScenarioNeed::ChangesFiles],
        "new files and an edit land together",
        edits::several_files,
    ),
    work(
        "delete",
        &[ScenarioNeed::DeletesFiles],
        "the removal of a file lands",
        edits::delete,
    ),
    work(
        "command",
        &[ScenarioNeed::Commands],
        "the output file of a command lands, and the command is in the log",
        edits::command,
    ),
    work(
        "validator",
        &[ScenarioNeed::ChangesFiles],
        "the findings of a check go back to the model; changes that pass in the second iteration land, and changes that never pass do not",
        checks::validator,
    ),
    work(
        "same-process",
        &[
            ScenarioNeed::ChangesFiles,
            ScenarioNeed::Program,
            ScenarioNeed::LongRunning,
        ],
        "the agent is stopped while the checks run, and continues in the same process",
        checks::same_process,
    ),
    work(
        "resume",
        &[ScenarioNeed::Resume],
        "a second prompt continues the same conversation",
        limits::resume,
    ),
    work(
        "structured-output",
        &[],
        "an answer that matches the schema is in the terminal event",
        answers::structured_output,
    ),
    work(
        "host-tool",
        &[ScenarioNeed::Tools],
        "a host tool is called, and the model gets its answer",
        answers::host_tool,
    ),
    work(
        "mcp",
        &[ScenarioNeed::Mcp],
        "a tool of a configured MCP server is called, the model gets its answer, and the call is in the log",
        servers::mcp,
    ),
    limit(
        "denied-call",
        &[ScenarioNeed::Approval],
        "a call that a rule denies does not happen, and the run continues",
        limits::denied_call,
    ),
    limit(
        "budget",
        &[],
        "the model request that would exceed the limit is not sent, and the copy is kept",
        limits::budget,
    ),
    limit(
        "provider-500",
        &[],
        "a permanently failing vendor ends the run after a limited time and number of requests",
        limits::provider_500,
    ),
    limit(
        "refusal",
        &[],
        "a refusal of the model ends the run as refused",
        answers::refusal,
    ),
    limit(
        "unusable-tool",
        &[ScenarioNeed::Tools],
        "a call of an unknown tool is an error, and the run continues",
        answers::unusable_tool,
    ),
    limit(
        "cancel",
        &[],
        "an interrupt ends the run and all its processes within a second",
        limits::cancel,
    ),
    limit(
        "crash",
        &[ScenarioNeed::Program],
        "a crash of the agent ends the run as failed",
        agents::crash,
    ),
    limit(
        "silent-exit",
        &[ScenarioNeed::Program],
        "an agent that exits with 0 and without changes has failed",
        agents::silent_exit,
    ),
    isolation_scenario(
        "flood",
        &[ScenarioNeed::Commands],
        "endless output is limited in the log and in memory",
        agents::flood,
    ),
    isolation_scenario(
        "daemon",
        &[ScenarioNeed::Commands],
        "background processes end with the run",
        agents::daemon,
    ),
    isolation_scenario(
        "write-outside",
        &[ScenarioNeed::ChangesFiles],
        "nothing outside the workspace is written",
        isolation::write_outside,
    ),
    isolation_scenario(
        "read-key",
        &[ScenarioNeed::Commands],
        "no key and no credential reaches the model, the log or the repository",
        isolation::read_key,
    ),
    isolation_scenario(
        "connect-out",
        &[ScenarioNeed::Commands],
        "commands reach no socket of the machine, and the vendor only through the meter",
        isolation::connect_out,
    ),
];

/// A scratch directory and a vendor that plays a script.
pub(crate) struct ScenarioSetup<'a> {
    context: &'a ScenarioContext<'a>,
    pub(crate) scratch: ScratchDir,
    pub(crate) server: Server,
}

impl<'a> ScenarioSetup<'a> {
    pub(crate) fn new(
        context: &'a ScenarioContext<'a>,
        moves: impl FnOnce(&ScratchDir) -> Vec<Move>,
    ) -> Result<Self, String> {
        Self::with(context, |scratch| {
            Script::new(&scratch.work(), moves(scratch))
        })
    }

    pub(crate) fn with(
        context: &'a ScenarioContext<'a>,
        script: impl FnOnce(&ScratchDir) -> Script,
    ) -> Result<Self, String> {
        let scratch = ScratchDir::new()?;
        let mut script = script(&scratch);
        script.without_tools = !context.runtime.has_tools();
        let server = Server::start(script)
            .map_err(|err| format!("the model server cannot listen: {err}"))?;
        Ok(Self {
            context,
            scratch,
            server,
        })
    }

    pub(crate) fn run(&self, ask: &RunRequest<'_>) -> Result<FinishedRun, String> {
        self.context
            .product
            .run(self.context.runtime, &self.scratch, &self.server, ask)
    }

    /// Checks a run against the requirements of the scenario and against the contract; a failure includes the log.
    pub(crate) fn judge(
        &self,
        ran: &FinishedRun,
        wants: impl FnOnce() -> Result<(), String>,
    ) -> ScenarioResult {
        let offered = self
            .server
            .seen()
            .into_iter()
            .find_map(|seen| seen.unmapped);
        let mapped = offered.map_or(Ok(()), Err);
        let contract = || contract::check(ran, self.context.runtime, &self.scratch, &self.server);
        let held = mapped.and_then(|()| wants()).and_then(|()| contract());
        held.map(|()| MatrixCell::Pass)
            .map_err(|why| self.failure(&why, ran))
    }

    /// Formats a failure with the details for debugging.
    pub(crate) fn failure(&self, why: &str, ran: &FinishedRun) -> String {
        let seen = self.server.seen();
        let line = |seen: &windlass_scripted::RecordedRequest| {
            format!("{} {} {}", seen.status, seen.method, seen.path)
        };
        let requested: Vec<String> = seen.iter().take(30).map(line).collect();
        let requests = self.server.requests();
        format!(
            "{why}\n{}\nvendor ({requests}): {}\n{}",
            ran.summary(),
            requested.join(", "),
            ran.short_log()
        )
    }

    /// Returns the number of work requests that the vendor got, without side requests.
    pub(crate) fn work_requests(&self) -> usize {
        self.server.seen().iter().filter(|seen| seen.work).count()
    }
}

/// Checks the outcome and the exit code of a run.
pub(crate) fn ended(ran: &FinishedRun, outcome: &str, code: i32) -> Result<(), String> {
    let found = (ran.outcome(), ran.child.code);
    crate::holds(found == (outcome.to_owned(), code), || {
        format!(
            "it ended as `{}` with {}, not as `{outcome}` with {code}",
            found.0, found.1
        )
    })
}

/// Checks the content of a file in the repository.
pub(crate) fn has(scratch: &ScratchDir, path: &str, text: &str) -> Result<(), String> {
    let found = scratch
        .tree()
        .get(path)
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    crate::holds(found.as_deref() == Some(text), || {
        format!("{path} is {found:?}, not {text:?}")
    })
}

/// Checks that a file does not exist in the repository.
pub(crate) fn lacks(scratch: &ScratchDir, path: &str) -> Result<(), String> {
    crate::holds(!scratch.tree().contains_key(path), || {
        format!("{path} exists")
    })
}

pub(crate) fn not_applicable(why: &str) -> ScenarioResult {
    Ok(MatrixCell::NotApplicable(why.to_owned()))
}

/// Waits up to two seconds until a condition holds.
pub(crate) fn soon(holds: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Converts the moves for a runtime whose model proposes a patch: all file changes in one proposal.
pub(crate) fn worked(context: &ScenarioContext<'_>, moves: Vec<Move>) -> Vec<Move> {
    if context.runtime.facts.works != WorkForm::Patch {
        return moves;
    }
    let lines = |sign: char, text: &str| {
        text.lines()
            .map(|line| format!("{sign}{line}\n"))
            .collect::<String>()
    };
    let file = |path: &str, operation: &str, hunk: String| {
        let patch = if hunk.is_empty() {
            hunk
        } else {
            format!("*** Begin Patch\n{hunk}*** End Patch\n")
        };
        json!({ "path": path, "operation": operation, "to": null, "patch": patch })
    };
    let files = moves.iter().filter_map(|step| match step {
        Move::Write { path, text } => Some(file(
            path,
            "create",
            format!("*** Add File: {path}\n{}", lines('+', text)),
        )),
        Move::Edit { path, old, new } => {
            let hunk = format!(
                "*** Update File: {path}\n@@\n{}{}",
                lines('-', old),
                lines('+', new)
            );
            Some(file(path, "update", hunk))
        }
        Move::Delete(path) => Some(file(path, "delete", String::new())),
        _ => None,
    });
    let files: Vec<Value> = files.collect();
    vec![Move::Json(
        json!({ "summary": "The work.", "files": files, "tests": [], "risks": [], "read": [] }),
    )]
}

pub(crate) fn write(path: &str, text: &str) -> Move {
    Move::Write {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

pub(crate) fn edit(path: &str, old: &str, new: &str) -> Move {
    Move::Edit {
        path: path.to_owned(),
        old: old.to_owned(),
        new: new.to_owned(),
    }
}

pub(crate) fn shell(line: impl Into<String>) -> Move {
    Move::Shell(line.into())
}

/// Returns a command that first writes a marker file for [`commands_ran`]. Without the marker, an isolation scenario
/// would also pass for an agent whose commands never started.
pub(crate) fn marked_shell(line: impl AsRef<str>) -> Move {
    shell(format!("echo ran >> {MARK}; {}", line.as_ref()))
}

/// Checks that at least one of the marked commands ran.
pub(crate) fn commands_ran(scratch: &ScratchDir) -> Result<(), String> {
    crate::holds(scratch.tree().contains_key(MARK), || {
        "none of the commands ran".to_owned()
    })
}

const MARK: &str = "ran.txt";

pub(crate) fn say(text: &str) -> Move {
    Move::Say(text.to_owned())
}
