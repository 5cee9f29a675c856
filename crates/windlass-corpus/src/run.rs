//! Runs the cases, a few at a time, and makes a row of each. Cases that depend on time or on the whole machine run
//! alone.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::case::{Case, load};
use crate::facts::CaseFacts;
use crate::fixture::CaseFixture;
use crate::kind;
use crate::locked;
use crate::product::{self, DrivenProduct};
use crate::report::{Report, Row, State};
use crate::{check, setup};

/// The cases to run, and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The windlass binary to drive.
    pub binary: PathBuf,
    /// Files of cases, and folders with such files.
    pub paths: Vec<PathBuf>,
    /// Run only these categories; empty means all.
    pub categories: Vec<String>,
    /// Run only the cases with these ids; empty means all.
    pub ids: Vec<String>,
    /// The number of cases to run at a time.
    pub jobs: usize,
    /// The folder for scratch directories; `None` means the system's folder for temporary files.
    pub scratch: Option<PathBuf>,
}

/// Runs the selected cases. Passes each row to `tell` as soon as it is there.
pub fn run(options: &Options, tell: &(dyn Fn(&Row) + Sync)) -> Result<Report, String> {
    let product = DrivenProduct::open(&options.binary)?;
    let mut rows: Vec<(usize, Row)> = Vec::new();
    let mut known: BTreeSet<String> = BTreeSet::new();
    let (mut together, mut alone) = (VecDeque::new(), VecDeque::new());
    for (at, line) in load(&options.paths)?.into_iter().enumerate() {
        if let Ok(case) = &line.case {
            known.insert(case.category.clone());
        }
        match line.case {
            Ok(case) if !wanted(options, &case) => {}
            Ok(case) if needs_quiet(&case) => alone.push_back((at, case)),
            Ok(case) => together.push_back((at, case)),
            Err(why) => rows.push((at, invalid_line(line.position, why))),
        }
    }
    if rows.is_empty() && together.is_empty() && alone.is_empty() {
        return Err(nothing_matched(options, &known));
    }
    rows.iter().for_each(|(_, row)| tell(row));
    let rows = Mutex::new(rows);
    for (jobs, queue) in [(options.jobs.clamp(1, 16), together), (1, alone)] {
        let queue = Mutex::new(queue);
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    loop {
                        let next = locked(&queue).pop_front();
                        let Some((at, case)) = next else { return };
                        let row = run_case(&product, &case, options);
                        tell(&row);
                        locked(&rows).push((at, row));
                    }
                });
            }
        });
    }
    let mut rows = rows.into_inner().unwrap_or_default();
    rows.sort_by_key(|(at, _)| *at);
    Ok(Report {
        rows: rows.into_iter().map(|(_, row)| row).collect(),
    })
}

/// Returns the error message for a selection that matches no case.
fn nothing_matched(options: &Options, known: &BTreeSet<String>) -> String {
    if known.is_empty() {
        return "the given paths contain no case".to_owned();
    }
    let asked: Vec<&str> = options
        .categories
        .iter()
        .chain(&options.ids)
        .map(String::as_str)
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    format!(
        "no case matches {}; the categories are {}",
        asked.join(", "),
        known.join(", ")
    )
}

fn wanted(options: &Options, case: &Case) -> bool {
    let named = |list: &[String], name: &String| list.is_empty() || list.contains(name);
    named(&options.categories, &case.category) && named(&options.ids, &case.id)
}

/// Returns whether other cases would disturb this one: short deadlines, races, floods, and observations of the whole
/// machine.
fn needs_quiet(case: &Case) -> bool {
    let checks = [
        "process_peak_at_most",
        "no_argv_contains",
        "no_predictable_temp_paths",
        "file_size_at_most",
    ];
    let short = case
        .wants("finishes_within_ms")
        .and_then(|post| post["ms"].as_u64())
        .is_some_and(|ms| ms <= 20_000);
    let races = case.setup.iter().any(|op| op["op"] == "race");
    let flood = case.kind() == "http" && case.input["repeat"].as_u64() > Some(100);
    let large = flood || case.input.get("log_size").is_some();
    (short && case.kind() != "stream")
        || races
        || large
        || checks.iter().any(|check| case.wants(check).is_some())
}

/// Makes a failed row of a line that is not a case.
fn invalid_line(position: String, why: String) -> Row {
    Row {
        id: position,
        category: "schema".to_owned(),
        title: "a line that is not a case".to_owned(),
        benign: false,
        state: State::Failed,
        decision: String::new(),
        why: vec![why],
        ms: 0,
    }
}

/// Runs one case, from its scratch directory to its row.
fn run_case(product: &DrivenProduct, case: &Case, options: &Options) -> Row {
    let began = Instant::now();
    let mut row = Row {
        id: case.id.clone(),
        category: case.category.clone(),
        title: case.title.clone(),
        benign: case.benign(),
        state: State::Failed,
        decision: String::new(),
        why: Vec::new(),
        ms: 0,
    };
    if let Some(why) = cannot_run(product, case) {
        (row.state, row.why) = (State::NotRun, vec![why]);
        return row;
    }
    match kind::pending(product, case) {
        Some(Ok(surface)) => {
            (row.state, row.why) = (State::Pending, vec![format!("needs {surface}")])
        }
        Some(Err(why)) => row.why = vec![why],
        None => {
            if let Err(why) = drive(product, case, options, &mut row) {
                row.state = State::Failed;
                row.why.push(why);
            }
        }
    }
    row.ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    row
}

/// Returns why a case cannot be run on this machine.
fn cannot_run(product: &DrivenProduct, case: &Case) -> Option<String> {
    // If the approval gate has a defect, the sandbox must still keep a hostile command from this machine.
    if kind::brings_hostile_command(case) && !product.has_sandbox() {
        return Some(
            "needs a product with a kernel sandbox: hostile commands are not run without one"
                .to_owned(),
        );
    }
    if !case.platform.is_empty()
        && !case
            .platform
            .iter()
            .any(|system| system == std::env::consts::OS)
    {
        return Some(format!("is for {}", case.platform.join(", ")));
    }
    if case.setup.iter().any(|op| op["op"] == "small_disk") && !setup::may_mount() {
        return Some("needs the right to mount a file system".to_owned());
    }
    if let Some(missing) = case.needs.iter().find(|name| !product::has_program(name)) {
        return Some(format!("needs {missing}"));
    }
    let root = rustix::process::geteuid().is_root();
    match case.as_user.as_str() {
        "root only" if !root => Some("needs root".to_owned()),
        "not root" if root => Some("needs an ordinary user".to_owned()),
        _ => None,
    }
}

fn drive(
    product: &DrivenProduct,
    case: &Case,
    options: &Options,
    row: &mut Row,
) -> Result<(), String> {
    let mut case = case.clone();
    product::translate_case(&mut case)?;
    let mut fixture = CaseFixture::new(options.scratch.as_deref())?;
    fixture.knows_sandbox = product.has_sandbox();
    if case.input.to_string().contains("@ALLOWED@") {
        fixture.start_allowed()?;
    }
    for op in &case.setup {
        setup::apply(&mut fixture, op)?;
    }
    kind::prepare(&mut fixture, &case)?;
    product.settings(&fixture, &case, "", &[])?;
    if case.trusted {
        fixture.trusted.push(fixture.workspace());
    }
    for folder in fixture.trusted.clone() {
        product.trust(&fixture, &folder)?;
    }
    fixture.remember(&case);
    let mut facts = CaseFacts::new(product, &case, &fixture);
    kind::feed(&mut facts)?;
    // Give started processes a moment to show an effect, or to end.
    std::thread::sleep(Duration::from_millis(100));
    let mut wrong = check::decision(&facts);
    let decision = facts
        .reached
        .iter()
        .find(|reached| case.accepted.contains(reached));
    row.decision = decision
        .or(facts.reached.first())
        .map_or("none", |decision| decision.word())
        .to_owned();
    for post in &case.post {
        if let Err(why) = check::check(&mut facts, post) {
            wrong.push(format!(
                "{}: {why}",
                post["check"].as_str().unwrap_or("a check without a name")
            ));
        }
    }
    if let Some(absent) = &facts.absent {
        row.decision = "absent".to_owned();
        row.why.push(absent.clone());
    }
    row.why.append(&mut facts.notes);
    row.state = if wrong.is_empty() {
        State::Passed
    } else {
        State::Failed
    };
    if !wrong.is_empty() {
        let said: String = facts.main.err.trim().chars().take(300).collect();
        wrong.push(format!(
            "exit {} after {} ms {said}",
            facts.main.code,
            facts.main.took.as_millis()
        ));
    }
    // List the failures first.
    wrong.append(&mut row.why);
    row.why = wrong;
    Ok(())
}
