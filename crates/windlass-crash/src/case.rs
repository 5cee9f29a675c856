//! One fault at one operation, and all checks afterwards: displayed events are in the log, logged events stay, the
//! session loads, the resumed run gives the same tree and the same conversation, and nothing is done twice or left
//! behind.

use anyhow::{Result, anyhow};
use serde_json::Value;

use crate::conversation::{ConversationItem, LoggedConversation, complete_lines, difference};
use crate::op::Op;
use crate::scratch::{FinishedRun, ScratchDir, Template, Tree};
use crate::script::{CONTINUE, TASK};
use crate::supervise::{FaultKind, FaultPoint};

/// The maximum number of resumes before a session is considered stuck.
const MAX_RESUMES: usize = 3;
/// The documented exit codes.
const CODES: &[i32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 124, 130];
/// The exit code of a run that waits for a person; no question is asked here.
const ASKED: i32 = 5;
/// The maximum number of reported differences of a kind.
const MAX_REPORTED: usize = 4;

/// The tree that the run works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkMode {
    InPlace,
    /// A copy that lands at the end.
    Isolated,
}

impl WorkMode {
    /// Both modes, in the order of the tables.
    pub const ALL: [Self; 2] = [Self::InPlace, Self::Isolated];

    /// Returns the word for it on a command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::InPlace => "in-place",
            Self::Isolated => "isolated",
        }
    }
}

/// A check that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    Unloadable,
    Twice,
    /// The tree differs from that of the run without faults.
    Tree,
    History,
    /// An event that was displayed or logged is gone.
    Lost,
    /// The exit has no clear reason.
    Unclear,
    /// Resuming does not complete the task.
    Unfinished,
    /// Files are left that other runs do not leave.
    LeftFiles,
    /// Processes are left, or the program hung.
    LeftProcess,
}

impl Violation {
    /// All violations, in the order of the tables.
    pub const ALL: [Self; 9] = [
        Self::Unloadable,
        Self::Twice,
        Self::Tree,
        Self::History,
        Self::Lost,
        Self::Unclear,
        Self::Unfinished,
        Self::LeftFiles,
        Self::LeftProcess,
    ];

    /// Returns the name in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unloadable => "unloadable",
            Self::Twice => "started twice",
            Self::Tree => "tree differs",
            Self::History => "history differs",
            Self::Lost => "lost",
            Self::Unclear => "unclear end",
            Self::Unfinished => "not finished",
            Self::LeftFiles => "files left",
            Self::LeftProcess => "processes left",
        }
    }
}

/// A fault at an operation of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashCase {
    /// The number of the operation, from 1.
    pub at: usize,
    pub fault: FaultKind,
    pub mode: WorkMode,
}

impl CrashCase {
    /// Returns the command line that repeats exactly this case.
    #[must_use]
    pub fn repeat(&self) -> String {
        let (at, how, place) = (self.at, self.fault.word(), self.mode.word());
        format!("cargo xtask crash --only {at} --how {how} --place {place}")
    }
}

/// The result of one case.
#[derive(Debug, Clone)]
pub(crate) struct CaseResult {
    pub(crate) case: CrashCase,
    /// The operation with the fault; `None` if the run ended before it.
    pub(crate) hit: Option<Op>,
    pub(crate) wrong: Vec<(Violation, String)>,
    /// The number of calls that are marked as interrupted.
    pub(crate) interrupted: usize,
    pub(crate) resumes: usize,
    /// The scratch directory, if it is kept.
    pub(crate) kept: Option<std::path::PathBuf>,
}

/// A run without faults, which all others are compared with.
pub(crate) struct FaultlessRun {
    pub(crate) ops: Vec<Op>,
    pub(crate) events: usize,
    tree: Tree,
    items: Vec<ConversationItem>,
    shapes: Vec<String>,
}

/// The binary, the project, and the expected result.
pub(crate) struct CaseContext<'a> {
    pub(crate) binary: &'a std::path::Path,
    pub(crate) template: &'a Template,
    pub(crate) expected: &'a FaultlessRun,
    /// Whether to keep the scratch directory of each case.
    pub(crate) keep: bool,
}

impl FaultlessRun {
    /// Runs the task without faults.
    pub(crate) fn find(
        binary: &std::path::Path,
        template: &Template,
        mode: WorkMode,
    ) -> Result<Self> {
        let scratch = ScratchDir::new(binary, template)?;
        let ran = scratch.run(run_args(mode), None)?;
        let said = || format!("{}{}", ran.out.lines().last().unwrap_or_default(), ran.err);
        if ran.code != Some(0) || !ran.left.is_empty() {
            return Err(anyhow!(
                "the run without faults failed ({:?}, left {:?}): {}",
                ran.code,
                ran.left,
                said()
            ));
        }
        let (logs, tree) = (scratch.logs()?, scratch.tree()?);
        let log = logs
            .values()
            .next()
            .ok_or_else(|| anyhow!("the run without faults has no log"))?;
        let folded = LoggedConversation::of(log, |text| scratch.neutral(text))?;
        scratch.next_day()?;
        for mode in WorkMode::ALL {
            scratch.run(next_args(mode), None)?;
        }
        let shapes = scratch.shapes()?.into_keys().collect();
        Ok(Self {
            ops: ran.ops,
            events: folded.events,
            tree,
            items: folded.items,
            shapes,
        })
    }
}

/// Runs one case: the run with the fault, the resumes and all checks.
pub(crate) fn run(case: CrashCase, context: &CaseContext<'_>) -> Result<CaseResult> {
    let scratch = ScratchDir::new(context.binary, context.template)?;
    let mut running = RunningCase {
        case,
        scratch,
        context,
        wrong: Vec::new(),
        interrupted: 0,
        resumes: 0,
    };
    let ran = running.scratch.run(
        run_args(case.mode),
        Some(FaultPoint {
            at: case.at,
            kind: case.fault,
        }),
    )?;
    running.after_fault(&ran)?;
    running.resume(&ran)?;
    running.after_all()?;
    let RunningCase {
        wrong,
        interrupted,
        resumes,
        scratch,
        ..
    } = running;
    let kept = context.keep.then(|| scratch.keep());
    Ok(CaseResult {
        case,
        hit: ran.hit,
        wrong,
        interrupted,
        resumes,
        kept,
    })
}

struct RunningCase<'a> {
    case: CrashCase,
    scratch: ScratchDir,
    context: &'a CaseContext<'a>,
    wrong: Vec<(Violation, String)>,
    interrupted: usize,
    resumes: usize,
}

impl RunningCase<'_> {
    fn note(&mut self, wrong: Violation, why: impl Into<String>) {
        let why = self.scratch.neutral(&why.into());
        self.wrong.push((wrong, why));
    }

    /// Checks the state directly after the fault, before another command runs.
    fn after_fault(&mut self, ran: &FinishedRun) -> Result<()> {
        self.processes(ran);
        let logs = self.scratch.logs()?;
        let logged: String = logs
            .values()
            .map(|log| String::from_utf8_lossy(complete_lines(log)))
            .collect();
        let logged: std::collections::BTreeSet<&str> = logged.lines().collect();
        let shown = ran.out.lines().filter(|line| {
            let event: Value = serde_json::from_str(line).unwrap_or_default();
            event["seq"].is_u64() && event["kind"].is_string()
        });
        if let Some(lost) = shown.into_iter().find(|line| !logged.contains(line)) {
            self.note(
                Violation::Lost,
                format!("displayed but not in the log: {}", short(lost)),
            );
        }
        if ran.hit.is_some() && !self.case.fault.kills() {
            self.is_clear(ran);
            self.reads_are_served(logs.keys().map(String::as_str).collect())?;
        }
        Ok(())
    }

    fn processes(&mut self, ran: &FinishedRun) {
        if ran.hung {
            self.note(Violation::LeftProcess, "it hung");
        }
        if !ran.left.is_empty() {
            self.note(Violation::LeftProcess, ran.left.join(", "));
        }
        if ran.err.contains("panicked at") {
            self.note(
                Violation::Unclear,
                format!("it panicked: {}", short(&ran.err)),
            );
        }
    }

    /// A failing disk must end the run with a fitting exit code and a message that names the reason, or not end it at
    /// all.
    fn is_clear(&mut self, ran: &FinishedRun) {
        let (FaultKind::Fail(errno) | FaultKind::FailOnce(errno)) = self.case.fault else {
            return;
        };
        let reason = match errno {
            libc::ENOSPC => "no space",
            libc::EROFS => "read-only",
            _ => "input/output error",
        };
        let said = format!("{}{}", ran.err, ran.out).to_lowercase();
        match ran.code {
            Some(0) => {}
            Some(ASKED) => self.note(
                Violation::Unclear,
                format!("exit code {ASKED} means a question, and there is none"),
            ),
            Some(code) if !CODES.contains(&code) => {
                self.note(Violation::Unclear, format!("exit code {code}"))
            }
            Some(_) => {}
            None => self.note(Violation::Unclear, "a signal ended it"),
        }
        if ran.code != Some(0) && !said.contains(reason) {
            self.note(
                Violation::Unclear,
                format!(
                    "the output does not contain `{reason}`: {}",
                    short(&ran.err)
                ),
            );
        }
    }

    /// While the disk still fails, existing sessions can be read.
    fn reads_are_served(&mut self, sessions: Vec<&str>) -> Result<()> {
        let FaultKind::Fail(_) = self.case.fault else {
            return Ok(());
        };
        let fault = Some(FaultPoint {
            at: 1,
            kind: self.case.fault,
        });
        for session in sessions {
            for args in [
                vec!["sessions", "show", session],
                vec!["sessions", "export", session],
                vec!["sessions", "list"],
            ] {
                let ran = self.scratch.run(&args, fault)?;
                if ran.code != Some(0) || ran.out.trim().is_empty() {
                    self.note(
                        Violation::Unloadable,
                        format!(
                            "{} while the disk fails: {}",
                            args.join(" "),
                            short(&ran.err)
                        ),
                    );
                }
            }
        }
        Ok(())
    }

    /// Resumes as a user would, until the task is complete.
    fn resume(&mut self, first: &FinishedRun) -> Result<()> {
        let (mut said, mut code) = (first.err.clone(), first.code);
        loop {
            let logs = self.scratch.logs()?;
            let newest = logs.iter().next_back();
            let folded = match newest
                .map(|(_, log)| LoggedConversation::of(log, str::to_owned))
                .transpose()
            {
                Ok(folded) => folded.unwrap_or_default(),
                Err(err) => {
                    self.note(Violation::Unloadable, format!("{err:#}"));
                    return Ok(());
                }
            };
            if folded.outcome.as_deref() == Some("completed") {
                return Ok(());
            }
            if self.resumes == MAX_RESUMES {
                let why = format!(
                    "code {code:?}, outcome {:?}: {}",
                    folded.outcome,
                    short(&said)
                );
                self.note(Violation::Unfinished, why);
                return Ok(());
            }
            self.resumes += 1;
            let ran = self.run_next(newest.map(|(id, _)| id.as_str()), folded.begun)?;
            self.processes(&ran);
            for (id, before) in &logs {
                let now = self.scratch.logs()?.remove(id).unwrap_or_default();
                if !now.starts_with(complete_lines(before)) {
                    self.note(
                        Violation::Lost,
                        format!("resuming changed earlier lines of the log of {id}"),
                    );
                }
            }
            let refused = ["cannot be read", "is not an event", "is missing, here is"];
            if refused.iter().any(|words| ran.err.contains(words)) {
                self.note(Violation::Unloadable, short(&ran.err));
            }
            (said, code) = (ran.err, ran.code);
        }
    }

    /// Runs one command: resumes the kept copy if there is one, otherwise the session, otherwise starts the task again.
    fn run_next(&mut self, session: Option<&str>, begun: bool) -> Result<FinishedRun> {
        let Some(session) = session else {
            return self.scratch.run(run_args(self.case.mode), None);
        };
        let kept = self.scratch.run(["status", "--json"], None)?;
        let kept: Value = serde_json::from_str(&kept.out).unwrap_or_default();
        let kept = kept["kept"][0]["name"].as_str();
        let mut args = vec![
            "resume",
            kept.unwrap_or(session),
            if begun { CONTINUE } else { TASK },
        ];
        if self.case.mode == WorkMode::Isolated && kept.is_none() {
            args.push("--isolated");
        }
        args.extend(OPTIONS);
        if self.case.mode == WorkMode::Isolated {
            args.extend(CHECKED);
        }
        self.scratch.run(args, None)
    }

    /// Runs the final checks, and some more runs.
    fn after_all(&mut self) -> Result<()> {
        let status = self.scratch.run(["status"], None)?;
        if status.code != Some(0) {
            self.note(
                Violation::Unclear,
                format!("status failed: {}", short(&status.err)),
            );
        }
        let logs = self.scratch.logs()?;
        for id in logs.keys() {
            let shown = self.scratch.run(["sessions", "show", id], None)?;
            if shown.code != Some(0) {
                self.note(Violation::Unloadable, short(&shown.err));
            }
        }
        let Some((_, log)) = logs.iter().next_back() else {
            return Ok(());
        };
        let Ok(folded) = LoggedConversation::of(log, |text| self.scratch.neutral(text)) else {
            return Ok(());
        };
        self.interrupted = folded.interrupted;
        for (id, times) in folded.started.iter().filter(|(_, times)| **times > 1) {
            self.note(Violation::Twice, format!("{id} was started {times} times"));
        }
        let expected = self.context.expected;
        if let Some(why) = difference(&expected.items, &folded.items) {
            self.note(Violation::History, why);
        }
        for why in tree_difference(&expected.tree, &self.scratch.tree()?) {
            self.note(Violation::Tree, why);
        }
        self.left_files()
    }

    /// Checks for leftover files after two more runs on the next day.
    fn left_files(&mut self) -> Result<()> {
        self.scratch.next_day()?;
        for mode in WorkMode::ALL {
            let ran = self.scratch.run(next_args(mode), None)?;
            if ran.code != Some(0) {
                self.note(
                    Violation::Unfinished,
                    format!("the run of the next day failed: {}", short(&ran.err)),
                );
            }
        }
        let (shapes, expected) = (self.scratch.shapes()?, self.context.expected);
        let left: Vec<_> = shapes
            .keys()
            .filter(|shape| !expected.shapes.contains(shape))
            .collect();
        // These stay on purpose: copies of a repaired log, and the list of repaired landings.
        let meant = |shape: &str| {
            shape.contains("/events.jsonl.")
                || shape.contains("/events.torn-")
                || shape == "data/undo/recovered"
        };
        for shape in left
            .into_iter()
            .filter(|shape| !meant(shape))
            .take(MAX_REPORTED)
        {
            self.note(Violation::LeftFiles, shape.clone());
        }
        Ok(())
    }
}

const OPTIONS: [&str; 8] = [
    "--script",
    "../script.toml",
    "--approval",
    "auto",
    "--output-format",
    "stream-json",
    "--max-steps",
    "100",
];
/// An isolated run has a validator before it lands.
const CHECKED: [&str; 2] = ["--validate", "test -s steps.log"];

fn run_args(mode: WorkMode) -> Vec<&'static str> {
    let mut args = vec!["run", TASK];
    args.push(if mode == WorkMode::InPlace {
        "--in-place"
    } else {
        "--isolated"
    });
    args.extend(OPTIONS);
    if mode == WorkMode::Isolated {
        args.extend(CHECKED);
    }
    args
}

/// Returns the arguments of a short run on the next day.
fn next_args(mode: WorkMode) -> Vec<&'static str> {
    let mode = if mode == WorkMode::InPlace {
        "--in-place"
    } else {
        "--isolated"
    };
    vec![
        "run",
        "A little more.",
        mode,
        "--script",
        "../next.toml",
        "--approval",
        "auto",
        "--validate",
        "none",
    ]
}

fn tree_difference(expected: &Tree, got: &Tree) -> Vec<String> {
    let missing = expected
        .iter()
        .filter_map(|(path, want)| match got.get(path) {
            None => Some(format!("{path} is missing")),
            Some(have) if have != want => Some(format!(
                "{path}: expected {}, found {}",
                short(want),
                short(have)
            )),
            Some(_) => None,
        });
    let more = got
        .keys()
        .filter(|path| !expected.contains_key(*path))
        .map(|path| format!("{path} is unexpected"));
    missing.chain(more).take(MAX_REPORTED).collect()
}

/// Returns the beginning of a text on one line.
fn short(text: &str) -> String {
    let mut short: String = text.trim().chars().take(300).collect();
    if short.len() < text.trim().len() {
        short.push('…');
    }
    short.replace('\n', "⏎")
}
