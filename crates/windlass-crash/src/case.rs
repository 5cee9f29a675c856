//! One blow at one operation, and everything that must hold afterwards: what was shown is in the log, what was logged
//! stays, the session loads, the binary resumes to the same tree and the same conversation, and nothing is done twice
//! or left behind.

use anyhow::{Result, anyhow};
use serde_json::Value;

use crate::folded::{Folded, Item, difference, whole_lines};
use crate::op::Op;
use crate::place::{Place, Ran, Template, Tree};
use crate::supervise::{Blow, How};
use crate::work::{GO_ON, TASK};

/// So often a session is resumed before it counts as stuck.
const MOST_RESUMES: usize = 3;
/// Every exit code that is documented.
const CODES: &[i32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 124, 130];
/// The code of a run that waits for a person; no question is ever asked here.
const ASKED: i32 = 5;
/// Differences of a kind that are told.
const MOST_TOLD: usize = 4;

/// Where the run works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// On the tree itself.
    InPlace,
    /// On a copy that lands at the end.
    Isolated,
}

impl Where {
    /// Both.
    pub const ALL: [Self; 2] = [Self::InPlace, Self::Isolated];

    /// Its word on a command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::InPlace => "in-place",
            Self::Isolated => "isolated",
        }
    }
}

/// What did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// A session cannot be read or resumed.
    Unloadable,
    /// A call was started twice.
    Twice,
    /// The tree is another one than without the blow.
    Tree,
    /// The conversation is another one.
    History,
    /// Something that was shown or logged is gone.
    Lost,
    /// It ended without words that say why.
    Unclear,
    /// Resuming does not come to the end.
    Unfinished,
    /// Files are left that no other run leaves.
    LeftFiles,
    /// Processes are left, or it hung.
    LeftProcess,
}

impl Wrong {
    /// All of them, in the order of tables.
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

    /// Its name in tables.
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

/// One blow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The operation, counted from 1.
    pub at: usize,
    /// What happens there.
    pub how: How,
    /// Where the run works.
    pub place: Where,
}

impl Case {
    /// As it is typed to do exactly this once more.
    #[must_use]
    pub fn repeat(&self) -> String {
        let (at, how, place) = (self.at, self.how.word(), self.place.word());
        format!("cargo xtask crash --only {at} --how {how} --place {place}")
    }
}

/// What came of one blow.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    pub(crate) case: Case,
    /// What was struck; none when the run ended before.
    pub(crate) hit: Option<Op>,
    pub(crate) wrong: Vec<(Wrong, String)>,
    /// Calls that are marked as interrupted.
    pub(crate) interrupted: usize,
    pub(crate) resumes: usize,
    /// Where everything still is, if that was asked for.
    pub(crate) kept: Option<std::path::PathBuf>,
}

/// A run without a blow: what all others are held against.
pub(crate) struct Expected {
    pub(crate) ops: Vec<Op>,
    pub(crate) events: usize,
    tree: Tree,
    items: Vec<Item>,
    shapes: Vec<String>,
}

/// The binary, the project it starts from, and what must come of it.
pub(crate) struct Ground<'a> {
    pub(crate) binary: &'a std::path::Path,
    pub(crate) template: &'a Template,
    pub(crate) expected: &'a Expected,
    /// Leave the scratch directory of each case.
    pub(crate) keep: bool,
}

impl Expected {
    /// Runs the task without a blow.
    pub(crate) fn find(
        binary: &std::path::Path,
        template: &Template,
        place: Where,
    ) -> Result<Self> {
        let here = Place::new(binary, template)?;
        let ran = here.run(run_args(place), None)?;
        let said = || format!("{}{}", ran.out.lines().last().unwrap_or_default(), ran.err);
        if ran.code != Some(0) || !ran.left.is_empty() {
            return Err(anyhow!(
                "the run without a blow failed ({:?}, left {:?}): {}",
                ran.code,
                ran.left,
                said()
            ));
        }
        let (logs, tree) = (here.logs()?, here.tree()?);
        let log = logs
            .values()
            .next()
            .ok_or_else(|| anyhow!("the run without a blow has no log"))?;
        let folded = Folded::of(log, |text| here.neutral(text))?;
        here.next_day()?;
        for place in Where::ALL {
            here.run(next_args(place), None)?;
        }
        let shapes = here.shapes()?.into_keys().collect();
        Ok(Self {
            ops: ran.ops,
            events: folded.events,
            tree,
            items: folded.items,
            shapes,
        })
    }
}

/// Does one case.
pub(crate) fn run(case: Case, ground: &Ground<'_>) -> Result<Done> {
    let place = Place::new(ground.binary, ground.template)?;
    let mut trial = Trial {
        case,
        place,
        ground,
        wrong: Vec::new(),
        interrupted: 0,
        resumes: 0,
    };
    let ran = trial.place.run(
        run_args(case.place),
        Some(Blow {
            at: case.at,
            how: case.how,
        }),
    )?;
    trial.after_blow(&ran)?;
    trial.resume(&ran)?;
    trial.after_all()?;
    let Trial {
        wrong,
        interrupted,
        resumes,
        place,
        ..
    } = trial;
    let kept = ground.keep.then(|| place.keep());
    Ok(Done {
        case,
        hit: ran.hit,
        wrong,
        interrupted,
        resumes,
        kept,
    })
}

struct Trial<'a> {
    case: Case,
    place: Place,
    ground: &'a Ground<'a>,
    wrong: Vec<(Wrong, String)>,
    interrupted: usize,
    resumes: usize,
}

impl Trial<'_> {
    fn note(&mut self, wrong: Wrong, why: impl Into<String>) {
        let why = self.place.neutral(&why.into());
        self.wrong.push((wrong, why));
    }

    /// Right after the blow, before anything else is started.
    fn after_blow(&mut self, ran: &Ran) -> Result<()> {
        self.processes(ran);
        let logs = self.place.logs()?;
        let logged: String = logs
            .values()
            .map(|log| String::from_utf8_lossy(whole_lines(log)))
            .collect();
        let logged: std::collections::BTreeSet<&str> = logged.lines().collect();
        let shown = ran.out.lines().filter(|line| {
            let event: Value = serde_json::from_str(line).unwrap_or_default();
            event["seq"].is_u64() && event["kind"].is_string()
        });
        if let Some(lost) = shown.into_iter().find(|line| !logged.contains(line)) {
            self.note(
                Wrong::Lost,
                format!("shown but not in the log: {}", short(lost)),
            );
        }
        if ran.hit.is_some() && !self.case.how.kills() {
            self.is_clear(ran);
            self.reads_are_served(logs.keys().map(String::as_str).collect())?;
        }
        Ok(())
    }

    fn processes(&mut self, ran: &Ran) {
        if ran.hung {
            self.note(Wrong::LeftProcess, "it hung");
        }
        if !ran.left.is_empty() {
            self.note(Wrong::LeftProcess, ran.left.join(", "));
        }
        if ran.err.contains("panicked at") {
            self.note(Wrong::Unclear, format!("it panicked: {}", short(&ran.err)));
        }
    }

    /// A disk that fails is an end with a code that says so and with words that name the reason, or no end at all.
    fn is_clear(&mut self, ran: &Ran) {
        let (How::Fail(errno) | How::FailOnce(errno)) = self.case.how else {
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
                Wrong::Unclear,
                format!("exit code {ASKED} is for a question, and there is none"),
            ),
            Some(code) if !CODES.contains(&code) => {
                self.note(Wrong::Unclear, format!("exit code {code}"))
            }
            Some(_) => {}
            None => self.note(Wrong::Unclear, "a signal ended it"),
        }
        if ran.code != Some(0) && !said.contains(reason) {
            self.note(
                Wrong::Unclear,
                format!("`{reason}` is not in what it said: {}", short(&ran.err)),
            );
        }
    }

    /// While the disk still fails, what is there can be read.
    fn reads_are_served(&mut self, sessions: Vec<&str>) -> Result<()> {
        let How::Fail(_) = self.case.how else {
            return Ok(());
        };
        let blow = Some(Blow {
            at: 1,
            how: self.case.how,
        });
        for session in sessions {
            for args in [
                vec!["sessions", "show", session],
                vec!["sessions", "export", session],
                vec!["sessions", "list"],
            ] {
                let ran = self.place.run(&args, blow)?;
                if ran.code != Some(0) || ran.out.trim().is_empty() {
                    self.note(
                        Wrong::Unloadable,
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

    /// Goes on as a person would, until the task is done.
    fn resume(&mut self, first: &Ran) -> Result<()> {
        let (mut said, mut code) = (first.err.clone(), first.code);
        loop {
            let logs = self.place.logs()?;
            let newest = logs.iter().next_back();
            let folded = match newest
                .map(|(_, log)| Folded::of(log, str::to_owned))
                .transpose()
            {
                Ok(folded) => folded.unwrap_or_default(),
                Err(err) => {
                    self.note(Wrong::Unloadable, format!("{err:#}"));
                    return Ok(());
                }
            };
            if folded.outcome.as_deref() == Some("completed") {
                return Ok(());
            }
            if self.resumes == MOST_RESUMES {
                let why = format!(
                    "code {code:?}, outcome {:?}: {}",
                    folded.outcome,
                    short(&said)
                );
                self.note(Wrong::Unfinished, why);
                return Ok(());
            }
            self.resumes += 1;
            let ran = self.go_on(newest.map(|(id, _)| id.as_str()), folded.begun)?;
            self.processes(&ran);
            for (id, before) in &logs {
                let now = self.place.logs()?.remove(id).unwrap_or_default();
                if !now.starts_with(whole_lines(before)) {
                    self.note(
                        Wrong::Lost,
                        format!("resuming changed what the log of {id} said before"),
                    );
                }
            }
            let refused = ["cannot be read", "is not an event", "is missing, here is"];
            if refused.iter().any(|words| ran.err.contains(words)) {
                self.note(Wrong::Unloadable, short(&ran.err));
            }
            (said, code) = (ran.err, ran.code);
        }
    }

    /// One command: the kept copy if there is one, else the session, else the task from the beginning.
    fn go_on(&mut self, session: Option<&str>, begun: bool) -> Result<Ran> {
        let Some(session) = session else {
            return self.place.run(run_args(self.case.place), None);
        };
        let kept = self.place.run(["status", "--json"], None)?;
        let kept: Value = serde_json::from_str(&kept.out).unwrap_or_default();
        let kept = kept["kept"][0]["name"].as_str();
        let mut args = vec![
            "resume",
            kept.unwrap_or(session),
            if begun { GO_ON } else { TASK },
        ];
        if self.case.place == Where::Isolated && kept.is_none() {
            args.push("--isolated");
        }
        args.extend(OPTIONS);
        if self.case.place == Where::Isolated {
            args.extend(CHECKED);
        }
        self.place.run(args, None)
    }

    /// When all is done, and once more was started.
    fn after_all(&mut self) -> Result<()> {
        let status = self.place.run(["status"], None)?;
        if status.code != Some(0) {
            self.note(
                Wrong::Unclear,
                format!("status failed: {}", short(&status.err)),
            );
        }
        let logs = self.place.logs()?;
        for id in logs.keys() {
            let shown = self.place.run(["sessions", "show", id], None)?;
            if shown.code != Some(0) {
                self.note(Wrong::Unloadable, short(&shown.err));
            }
        }
        let Some((_, log)) = logs.iter().next_back() else {
            return Ok(());
        };
        let Ok(folded) = Folded::of(log, |text| self.place.neutral(text)) else {
            return Ok(());
        };
        self.interrupted = folded.interrupted;
        for (id, times) in folded.started.iter().filter(|(_, times)| **times > 1) {
            self.note(Wrong::Twice, format!("{id} was started {times} times"));
        }
        let expected = self.ground.expected;
        if let Some(why) = difference(&expected.items, &folded.items) {
            self.note(Wrong::History, why);
        }
        for why in tree_difference(&expected.tree, &self.place.tree()?) {
            self.note(Wrong::Tree, why);
        }
        self.left_files()
    }

    /// What is there after somebody came back the next day and did a little more.
    fn left_files(&mut self) -> Result<()> {
        self.place.next_day()?;
        for place in Where::ALL {
            let ran = self.place.run(next_args(place), None)?;
            if ran.code != Some(0) {
                self.note(
                    Wrong::Unfinished,
                    format!("the run of the next day failed: {}", short(&ran.err)),
                );
            }
        }
        let (shapes, expected) = (self.place.shapes()?, self.ground.expected);
        let left: Vec<_> = shapes
            .keys()
            .filter(|shape| !expected.shapes.contains(shape))
            .collect();
        // Kept for the person on purpose: what a repair of a log sets aside, and the list of mended landings.
        let meant = |shape: &str| shape.contains("events.jsonl.") || shape == "data/undo/recovered";
        for shape in left
            .into_iter()
            .filter(|shape| !meant(shape))
            .take(MOST_TOLD)
        {
            self.note(Wrong::LeftFiles, shape.clone());
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
/// Isolated, something is checked before it lands.
const CHECKED: [&str; 2] = ["--validate", "test -s steps.log"];

fn run_args(place: Where) -> Vec<&'static str> {
    let mut args = vec!["run", TASK];
    args.push(if place == Where::InPlace {
        "--in-place"
    } else {
        "--isolated"
    });
    args.extend(OPTIONS);
    if place == Where::Isolated {
        args.extend(CHECKED);
    }
    args
}

/// A little more work, on another day.
fn next_args(place: Where) -> Vec<&'static str> {
    let place = if place == Where::InPlace {
        "--in-place"
    } else {
        "--isolated"
    };
    vec![
        "run",
        "A little more.",
        place,
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
        .map(|path| format!("{path} is too much"));
    missing.chain(more).take(MOST_TOLD).collect()
}

/// The beginning of a text on one line.
fn short(text: &str) -> String {
    let mut short: String = text.trim().chars().take(300).collect();
    if short.len() < text.trim().len() {
        short.push('…');
    }
    short.replace('\n', "⏎")
}
