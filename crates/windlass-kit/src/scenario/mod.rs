//! What is tried with every runtime. A scenario prepares a place and a script, runs the product, and holds what came of
//! it against what must hold. It never looks inside the product.

mod agents;
mod answers;
mod checks;
mod edits;
mod hostile;
mod limits;
mod servers;
mod walls;

pub use hostile::ATTACKS;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::contract;
use crate::facts::{Need, Works};
use crate::matrix::Cell;
use crate::place::Place;
use crate::product::{Ask, Product, Ran};
use crate::runtime::Runtime;
use windlass_scripted::{Move, Script, Server};

/// Something every runtime must pass, or a reason why it cannot be asked to.
pub struct Scenario {
    /// Its name, as `--scenario` takes it.
    pub name: &'static str,
    /// What must hold, in one sentence.
    pub about: &'static str,
    /// Which of the tables it stands in.
    pub theme: Theme,
    needs: &'static [Need],
    run: fn(&Stage<'_>) -> Judged,
}

/// What scenarios have in common; a table each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// It does its work.
    Work,
    /// It keeps to limits, and fails well.
    Limits,
    /// It gets over no wall.
    Walls,
    /// The hostile agent.
    Attack,
}

impl Theme {
    /// Those of the matrix, with their titles.
    pub(crate) const TITLES: &'static [(Self, &'static str)] = &[
        (Self::Work, "The work"),
        (Self::Limits, "Limits and failures"),
        (Self::Walls, "Walls"),
    ];
}

impl Scenario {
    /// Tries it, where the runtime can be asked for it.
    pub(crate) fn judge(&self, stage: &Stage<'_>) -> Cell {
        match self
            .needs
            .iter()
            .find_map(|need| stage.runtime.lacks(*need))
        {
            Some(why) => Cell::NotApplicable(why.to_owned()),
            None => (self.run)(stage).unwrap_or_else(Cell::Fail),
        }
    }
}

/// What a scenario comes to; an error is what did not hold.
pub(crate) type Judged = Result<Cell, String>;

/// Who is tried, and with what.
pub(crate) struct Stage<'a> {
    pub(crate) product: &'a Product,
    pub(crate) runtime: &'a Runtime,
    /// The hostile agent.
    pub(crate) hostile: &'a Path,
}

type Try = fn(&Stage<'_>) -> Judged;

const fn work(
    name: &'static str,
    needs: &'static [Need],
    about: &'static str,
    run: Try,
) -> Scenario {
    Scenario {
        name,
        about,
        theme: Theme::Work,
        needs,
        run,
    }
}

const fn limit(
    name: &'static str,
    needs: &'static [Need],
    about: &'static str,
    run: Try,
) -> Scenario {
    Scenario {
        name,
        about,
        theme: Theme::Limits,
        needs,
        run,
    }
}

const fn wall(
    name: &'static str,
    needs: &'static [Need],
    about: &'static str,
    run: Try,
) -> Scenario {
    Scenario {
        name,
        about,
        theme: Theme::Walls,
        needs,
        run,
    }
}

/// All of them, in the order of the tables.
pub const SCENARIOS: &[Scenario] = &[
    work(
        "answer",
        &[Need::Words],
        "a question is answered, by the model that was asked for, and nothing is changed",
        answers::answer,
    ),
    work(
        "streaming",
        &[Need::Words],
        "words are shown while the model says them",
        answers::streaming,
    ),
    work(
        "read",
        &[Need::Tools],
        "a file that the model asks for reaches it",
        edits::read,
    ),
    work(
        "plain-edit",
        &[Need::Changes],
        "one edit lands, is logged, and is billed to the token",
        edits::plain_edit,
    ),
    work(
        "several-files",
        &[Need::Changes],
        "new files and an edit land together",
        edits::several_files,
    ),
    work(
        "delete",
        &[Need::Deletes],
        "a removed file is gone after the landing",
        edits::delete,
    ),
    work(
        "command",
        &[Need::Commands],
        "what a command writes lands, and the command is in the log",
        edits::command,
    ),
    work(
        "validator",
        &[Need::Changes],
        "what a check finds goes back, and what passes at the second try lands; what never passes does not",
        checks::validator,
    ),
    work(
        "same-process",
        &[Need::Changes, Need::Program, Need::Stays],
        "the agent is stopped while the checks run, and works on in the same process",
        checks::same_process,
    ),
    work(
        "resume",
        &[Need::Memory],
        "a second prompt goes on in the same conversation",
        limits::resume,
    ),
    work(
        "structured-output",
        &[],
        "an answer of a schema is in the last event",
        answers::structured_output,
    ),
    work(
        "host-tool",
        &[Need::Tools],
        "a tool of the host is called, and its answer reaches the model",
        answers::host_tool,
    ),
    work(
        "mcp",
        &[Need::Mcp],
        "a tool of an MCP server that the agent is given is called, its answer reaches the model, and the call is in the log",
        servers::mcp,
    ),
    limit(
        "denied-call",
        &[Need::Approval],
        "a call that a rule forbids does not happen, and the rest goes on",
        limits::denied_call,
    ),
    limit(
        "budget",
        &[],
        "the call that would cross the limit is not sent, and the copy is kept",
        limits::budget,
    ),
    limit(
        "provider-500",
        &[],
        "a vendor that fails for ever ends the run, in bounded time and calls",
        limits::provider_500,
    ),
    limit(
        "refusal",
        &[],
        "a model that declines ends the run as refused",
        answers::refusal,
    ),
    limit(
        "unusable-tool",
        &[Need::Tools],
        "a call of a tool that there is not is an error, and the rest goes on",
        answers::unusable_tool,
    ),
    limit(
        "cancel",
        &[],
        "an interrupt ends the run in a second, with everything it started",
        limits::cancel,
    ),
    limit(
        "crash",
        &[Need::Program],
        "an agent that is killed in the middle ends the run as failed",
        agents::crash,
    ),
    limit(
        "silent-exit",
        &[Need::Program],
        "an agent that ends with 0 and no work has failed",
        agents::silent_exit,
    ),
    wall(
        "flood",
        &[Need::Commands],
        "endless output is bounded, in the log and in memory",
        agents::flood,
    ),
    wall(
        "daemon",
        &[Need::Commands],
        "what is started in the background ends with the run",
        agents::daemon,
    ),
    wall(
        "write-outside",
        &[Need::Changes],
        "nothing outside the workspace is written",
        walls::write_outside,
    ),
    wall(
        "read-key",
        &[Need::Commands],
        "no key and no credential reaches the model, the log or the tree",
        walls::read_key,
    ),
    wall(
        "connect-out",
        &[Need::Commands],
        "no socket of the machine is reached, and the vendor only through the meter",
        walls::connect_out,
    ),
];

/// A place, and a vendor that plays a script.
pub(crate) struct Trial<'a> {
    stage: &'a Stage<'a>,
    pub(crate) place: Place,
    pub(crate) server: Server,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(
        stage: &'a Stage<'a>,
        moves: impl FnOnce(&Place) -> Vec<Move>,
    ) -> Result<Self, String> {
        Self::with(stage, |place| Script::new(&place.work(), moves(place)))
    }

    pub(crate) fn with(
        stage: &'a Stage<'a>,
        script: impl FnOnce(&Place) -> Script,
    ) -> Result<Self, String> {
        let place = Place::new()?;
        let mut script = script(&place);
        script.without_tools = !stage.runtime.has_tools();
        let server = Server::start(script)
            .map_err(|err| format!("the model server cannot listen: {err}"))?;
        Ok(Self {
            stage,
            place,
            server,
        })
    }

    pub(crate) fn run(&self, ask: &Ask<'_>) -> Result<Ran, String> {
        self.stage
            .product
            .run(self.stage.runtime, &self.place, &self.server, ask)
    }

    /// Holds a run against the contract and against what the scenario wants; what fails comes with the log.
    pub(crate) fn judge(&self, ran: &Ran, wants: impl FnOnce() -> Result<(), String>) -> Judged {
        let offered = self
            .server
            .seen()
            .into_iter()
            .find_map(|seen| seen.unmapped);
        let mapped = offered.map_or(Ok(()), Err);
        let contract = || contract::check(ran, self.stage.runtime, &self.place, &self.server);
        let held = mapped.and_then(|()| wants()).and_then(|()| contract());
        held.map(|()| Cell::Pass)
            .map_err(|why| self.told(&why, ran))
    }

    /// A failure with everything that helps to find its cause.
    pub(crate) fn told(&self, why: &str, ran: &Ran) -> String {
        let seen = self.server.seen();
        let line = |seen: &windlass_scripted::RecordedRequest| {
            format!("{} {} {}", seen.status, seen.method, seen.path)
        };
        let asked: Vec<String> = seen.iter().take(30).map(line).collect();
        let requests = self.server.requests();
        format!(
            "{why}\n{}\nvendor ({requests}): {}\n{}",
            ran.shown(),
            asked.join(", "),
            ran.kinds()
        )
    }

    /// Questions of the work itself that the vendor got so far.
    pub(crate) fn work_requests(&self) -> usize {
        self.server.seen().iter().filter(|seen| seen.work).count()
    }
}

/// A run that ended like that, with this exit code.
pub(crate) fn ended(ran: &Ran, outcome: &str, code: i32) -> Result<(), String> {
    let found = (ran.outcome(), ran.child.code);
    crate::holds(found == (outcome.to_owned(), code), || {
        format!(
            "it ended as `{}` with {}, not as `{outcome}` with {code}",
            found.0, found.1
        )
    })
}

/// A file of the tree has this text.
pub(crate) fn has(place: &Place, path: &str, text: &str) -> Result<(), String> {
    let found = place
        .tree()
        .get(path)
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    crate::holds(found.as_deref() == Some(text), || {
        format!("{path} is {found:?}, not {text:?}")
    })
}

/// A file of the tree is not there.
pub(crate) fn lacks(place: &Place, path: &str) -> Result<(), String> {
    crate::holds(!place.tree().contains_key(path), || {
        format!("{path} is there")
    })
}

pub(crate) fn not_applicable(why: &str) -> Judged {
    Ok(Cell::NotApplicable(why.to_owned()))
}

/// Waits until something holds, not for ever.
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

/// The same work for a runtime whose model proposes a patch: all changes of files in one proposal.
pub(crate) fn worked(stage: &Stage<'_>, moves: Vec<Move>) -> Vec<Move> {
    if stage.runtime.facts.works != Works::Patch {
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

/// A command that first leaves a mark in the workspace; [`commands_ran`] looks for it. Without it a wall would also
/// hold for an agent whose commands never started.
pub(crate) fn marked_shell(line: impl AsRef<str>) -> Move {
    shell(format!("echo ran >> {MARK}; {}", line.as_ref()))
}

/// At least one of the marked commands ran.
pub(crate) fn commands_ran(place: &Place) -> Result<(), String> {
    crate::holds(place.tree().contains_key(MARK), || {
        "none of the commands ran".to_owned()
    })
}

const MARK: &str = "ran.txt";

pub(crate) fn say(text: &str) -> Move {
    Move::Say(text.to_owned())
}
